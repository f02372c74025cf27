/* index.c - see index.h. */
#include "cuda/one/layers/index.h"

#include "cuda/kernels/attention/chosen.h"
#include "cuda/kernels/ops/index.h"

/* Rows whose positions are chosen at once: scores and chosen positions of a row take much memory in a long
 * text. */
enum { ROWS_AT_ONCE = 128 };

static int rows_at_once(const BackendState *s) {
  return s->options.max_chunk < ROWS_AT_ONCE ? s->options.max_chunk : ROWS_AT_ONCE;
}

void index_place(BackendState *s, const ModelConfig *c, Buffers *m) {
  const size_t rows = c->indexer.block > 0 ? (size_t)rows_at_once(s) : 0,
               most = rows > 0 ? index_most_chosen(&c->indexer) : 0,
               scores = rows > 0 ? index_row_scores(&c->indexer, s->options.n_ctx) : 0;
  size_t workspace = 0;
  for (int i = 0; rows > 0 && i < c->n_layers; i++) {
    const LayerConfig own = config_layer(c, i);
    if (own.kind != LAYER_ATTENTION) continue;
    const size_t bytes = chosen_workspace_bytes(own.n_heads, own.head_dim, (int)most, (int)rows);
    if (bytes > workspace) workspace = bytes;
  }
  s->index.scores = buffers_take(m, rows * scores, sizeof(float));
  s->index.chosen = buffers_take(m, rows * most, sizeof(int));
  s->index.n_chosen = buffers_take(m, rows, sizeof(int));
  s->index.workspace = buffers_take(m, workspace, 1);
}

Status index_open(BackendState *s, Error *err) {
  for (CachePart part = INDEX_KEYS; part <= INDEX_VALUES; part++) {
    const size_t bytes = state_cache_bytes(s, part);
    if (bytes == 0) continue;
    TRY(cuda_status(cudaMemsetAsync(s->cache[part], 0, bytes, s->loaded->stream), "cannot clear memory",
                    err));
  }
  return STATUS_OK;
}

bool index_selects(const BackendState *s, TokenRange span) {
  const IndexerConfig *i = &s->loaded->model->config.indexer;
  const SequenceRows only = {0, span.pos, span.n_tokens, false, false};
  const SequenceRows *parts = span.parts ? span.parts : &only;
  /* Attention to chosen positions sums in another order. With --invariant a row's bits must not depend on
   * whether another row of the step has to choose, so every step attends to chosen positions. */
  bool selects = i->block > 0 && s->options.invariant;
  for (int part = 0; i->block > 0 && part < (span.parts ? span.n_parts : 1); part++)
    selects = selects || (parts[part].pos + parts[part].n_tokens) / i->block > i->budget / i->block;
  return selects;
}

/* The call for the rows from `row` on. */
static IndexCall call_of(const BackendState *s, int layer, int row) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const LayerConfig own = config_layer(c, layer);
  const DeviceLayer *l = &m->layers[layer];
  const DeviceRope *rope = &m->ropes[own.rope];
  AttentionPages pages = state_attention(s, layer).pages;
  if (pages.first) pages.first += row;
  return (IndexCall){.sizes = c->indexer,
                     .eps = (float)c->norm_eps,
                     .rows = s->projections + (size_t)row * (size_t)s->projection_stride +
                             state_index_outputs(c, &own),
                     .stride = (size_t)s->projection_stride,
                     .q_norm = l->index_q_norm,
                     .k_norm = l->index_k_norm,
                     .frequencies = rope->frequencies,
                     .n_pairs = rope->n_pairs,
                     .attention_factor = rope->attention_factor,
                     .pos = s->rows.pos + row,
                     .pages = pages,
                     .n_ctx = page_positions(&s->options),
                     .raw = s->layers[layer].cache[INDEX_VALUES],
                     .keys = s->layers[layer].cache[INDEX_KEYS],
                     .width = own.head_dim};
}

Status index_keys(BackendState *s, int layer, int n_rows, Error *err) {
  const IndexCall call = call_of(s, layer, 0);
  return index_append(&call, n_rows, s->loaded->stream, err);
}

Status index_attend(BackendState *s, int layer, int n_rows, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const LayerConfig own = config_layer(c, layer);
  const Attention attention = state_attention(s, layer);
  cudaStream_t stream = s->loaded->stream;
  const int at_once = rows_at_once(s), q_stride = own.n_heads * own.head_dim,
            out_stride = padded_row(s->loaded->layers[layer].o.n_in);
  for (int row = 0; row < n_rows; row += at_once) {
    const int n = n_rows - row < at_once ? n_rows - row : at_once;
    const IndexCall call = call_of(s, layer, row);
    TRY(index_choose(&call, n, s->options.n_ctx, s->index.scores, s->index.chosen, s->index.n_chosen, stream,
                     err));
    const ChosenAttention chosen = {.n_heads = own.n_heads,
                                    .n_kv_heads = own.n_kv_heads,
                                    .head_dim = own.head_dim,
                                    .scale = (float)attention.scale,
                                    .q = (const char *)s->q + (size_t)row * (size_t)q_stride * 2,
                                    .k = attention.k,
                                    .v = attention.v,
                                    .pages = call.pages,
                                    .n_ctx = attention.n_ctx,
                                    .pos = call.pos,
                                    .chosen = s->index.chosen,
                                    .n_chosen = s->index.n_chosen,
                                    .most_chosen = (int)index_most_chosen(&call.sizes),
                                    .out = (char *)s->a + (size_t)row * (size_t)out_stride * 2,
                                    .q_stride = q_stride,
                                    .out_stride = out_stride,
                                    .workspace = s->index.workspace};
    TRY(chosen_attend(&chosen, n, stream, err));
  }
  return STATUS_OK;
}
