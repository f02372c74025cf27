/* index.c - see index.h. */
#include "cuda/one/layers/index.h"

#include "cuda/kernels/attention/chosen.h"
#include "cuda/kernels/ops/index.h"

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
                             state_index_outputs(&own),
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
  const int q_stride = own.n_heads * own.head_dim, out_stride = padded_row(s->loaded->layers[layer].o.n_in);
  for (int row = 0; row < n_rows; row += INDEX_ROWS) {
    const int n = n_rows - row < INDEX_ROWS ? n_rows - row : INDEX_ROWS;
    const IndexCall call = call_of(s, layer, row);
    TRY(index_choose(&call, n, s->options.n_ctx, s->index_scores, s->index_chosen, s->index_n_chosen, stream,
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
                                    .chosen = s->index_chosen,
                                    .n_chosen = s->index_n_chosen,
                                    .most_chosen = (int)index_most_chosen(&call.sizes),
                                    .out = (char *)s->a + (size_t)row * (size_t)out_stride * 2,
                                    .q_stride = q_stride,
                                    .out_stride = out_stride,
                                    .workspace = s->index_workspace};
    TRY(chosen_attend(&chosen, n, stream, err));
  }
  return STATUS_OK;
}
