/* rows.c - see rows.h. */
#include "cuda/one/rows.h"

#include "cuda/kernels/ops/values.h"
#include "cuda/kernels/ptx/device.h"
#include "cuda/one/layers/narrow.h"
#include "cuda/one/products.h"
#include "cuda/one/residual.h"
#include "cuda/one/tokens.h"

Status rows_set(BackendState *s, TokenRange span, Error *err) {
  const int32_t *ids = span.ids;
  cudaStream_t stream = s->loaded->stream;
  const int n = span.n_tokens;
  const int n_ids = ids && n <= OPS_MOST_IDS ? n : 0;
  tokens_forget_picks(s);
  if (s->draft_seen) TRY(ops_set_step(s->draft_seen, span.pos - 1, 1, NULL, NULL, 0, stream, err));
  TRY(ops_set_step(s->rows.pos, span.pos, n, s->rows.ids, ids, n_ids, stream, err));
  if (!ids || n_ids > 0) return STATUS_OK;
  return cuda_status(
      cudaMemcpyAsync(s->rows.ids, ids, (size_t)n * sizeof *ids, cudaMemcpyHostToDevice, stream),
      "cannot copy ids", err); /* from pageable memory: the call returns after reading ids */
}

/* True if there are many rows, and at least 3 of 4 have no logits. (A few rows cost hardly more than one.)
 * With up to LINEAR_MOST_PLANES rows attention can have written planes (layers/narrow.h); rows_keep() cannot
 * move those. False for models on several GPUs or partly on the host: nothing was measured there. False if
 * all rows are units (only_singles): such a step is padded, and its graph can serve other numbers of rows. */
bool rows_cut(const BackendState *s, TokenRange span) {
  enum { LEAST_ROWS = LINEAR_MOST_PLANES + 1, ROWS_PER_LOGITS = 4 };
  if (span.parts && s->sequences.only_singles) return false;
  if (s->peers.n > 0 || s->loaded->n_host > 0) return false;
  return span.n_tokens >= LEAST_ROWS && span.n_logit_rows <= span.n_tokens / ROWS_PER_LOGITS;
}

Status rows_keep(BackendState *s, TokenRange span, void *from, int from_stride, Error *err) {
  const CompactRows call = {.of = {s->x, from},
                            .n_words = {s->loaded->model->config.hidden, from_stride / 2},
                            .rows = span.parts ? s->rows.logit_rows : NULL,
                            .first = span.n_tokens - span.n_kept,
                            .n_rows = span.n_kept};
  return ops_compact_rows(&call, s->loaded->stream, err);
}

RopeAngles rows_rope_angles(const BackendState *s, TokenRange span, LayerRope which) {
  const BackendModel *m = s->loaded;
  const bool by_row = which == ROPE_GLOBAL && span.parts;
  const DeviceRope *of_long = &m->ropes[ROPE_OF_LONG_TEXTS];
  const DeviceRope *rope = which == ROPE_GLOBAL && !by_row && span.long_rope ? of_long : &m->ropes[which];
  return (RopeAngles){.frequencies = rope->frequencies,
                      .long_frequencies = of_long->frequencies,
                      .half = rope->n_pairs,
                      .attention_factor = rope->attention_factor,
                      .long_factor = of_long->attention_factor,
                      .pos = s->rows.pos,
                      .is_long = by_row ? s->rows.is_long : NULL};
}

Status rows_rope_tables(BackendState *s, TokenRange span, Error *err) {
  for (LayerRope which = ROPE_GLOBAL; which <= ROPE_LOCAL; which++) {
    const RopeAngles angles = rows_rope_angles(s, span, which);
    if (s->rope_tables[which])
      TRY(ops_rope_table(&angles, rows_of(s, span), s->rope_tables[which], s->loaded->stream, err));
  }
  return STATUS_OK;
}

/* Where q begins in the projections of a layer with attention. */
static float *rows_queries(const BackendState *s, int layer) {
  const ModelConfig *c = &s->loaded->model->config;
  return s->projections + (config_layer(c, layer).delta_beside ? delta_outputs(&c->delta) : 0);
}

/* Normalises q over all its heads together, and k likewise. With QK_NORM_CENTRED: each head alone, after its
 * mean is subtracted. */
static Status norm_q_k(BackendState *s, int layer, int n_tokens, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const DeviceLayer *l = &s->loaded->layers[layer];
  const LayerConfig own = config_layer(c, layer);
  const int n_q = own.n_heads * own.head_dim, n_k = own.n_kv_heads * own.head_dim;
  if (own.qk_norm == QK_NORM_CENTRED)
    return ops_centred_norm_heads(rows_queries(s, layer), (size_t)s->projection_stride, own.n_heads,
                                  own.n_kv_heads, own.head_dim, l->q_norm, l->k_norm, (float)c->norm_eps,
                                  n_tokens, s->loaded->stream, err);
  return ops_rms_norm_qk(rows_queries(s, layer), (size_t)s->projection_stride, n_q, n_k, l->q_norm, l->k_norm,
                         (float)c->norm_eps, n_tokens, s->loaded->stream, err);
}

static QkvHeads heads_of(const BackendState *s, int layer) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const DeviceLayer *l = &m->layers[layer];
  const LayerConfig own = config_layer(c, layer);
  const bool before = own.qk_norm > QK_NORM_HEADS; /* made by norm_q_k() */
  const Attention attention = state_attention(s, layer);
  return (QkvHeads){
      .n_heads = own.n_heads,
      .n_kv_heads = own.shares_kv ? 0 : own.n_kv_heads,
      .head_dim = own.head_dim,
      .n_ctx = attention.n_ctx,
      .eps = (float)(c->qk_norm_eps != 0 ? c->qk_norm_eps : c->norm_eps),
      .kv = s->options.kv,
      .q_norm = before ? NULL : l->q_norm,
      .k_norm = before ? NULL : l->k_norm,
      .rope_table = own.rope == ROPE_NONE ? NULL : s->rope_tables[own.rope],
      .pos = s->rows.pos,
      .pages = attention.pages,
      .projections = rows_queries(s, layer),
      .stride = (size_t)s->projection_stride,
      .query_step = own.q_outputs / own.n_heads,
      .q = s->q,
      .k_cache = s->layers[layer].cache[KEYS],
      .v_cache = s->layers[layer].cache[VALUES],
      .k_scales = s->layers[layer].cache[KEY_SCALES],
      .v_scales = s->layers[layer].cache[VALUE_SCALES],
      .rotary_dim = own.rope == ROPE_NONE ? 0 : 2 * m->ropes[own.rope].n_pairs,
      .neighbours = c->rope.neighbours,
      .norm_after_rope = c->qk_norm_after_rope,
      .plain_qk_norm = own.qk_norm == QK_NORM_PLAIN,
      .v_norm = c->v_norm,
      .k_as_v = own.k_as_v,
      .query_scale_beta = (float)own.query_scale_beta,
      .query_scale_step = (float)c->query_scale_step,
      .query_scale_ahead = c->query_scale_nope,
  };
}

/* True if a matmul's epilogue can compute norm and rope of heads of this layer's sizes and arithmetic. */
static bool heads_are_tiles(const DeviceLayer *l, const QkvHeads *heads) {
  return l->forms >> FORM_HEAD_TILES & 1 && heads->head_dim == 128 && heads->rotary_dim == 128 &&
         heads->query_step == 128;
}

Status rows_project_heads(BackendState *s, int layer, int n_rows, bool *done, Error *err) {
  const BackendModel *m = s->loaded;
  const DeviceLayer *l = &m->layers[layer];
  const DeviceProjections *qkv = &l->qkv;
  const QkvHeads heads = heads_of(s, layer);
  LinearCall call = products_call(s, qkv->parts, s->h, s->h_stride, n_rows, LINEAR_TO_F32, s->projections,
                                  s->projection_stride);
  const bool narrow = narrow_fit(s, layer, n_rows, NARROW_QKV, &call);
  *done = heads_are_tiles(l, &heads) &&
          (narrow ? heads.kv == KV_F16
                  : qkv->n_parts == 1 && qkv->parts->n_in == m->model->config.hidden &&
                        qkv->parts->n_out == (heads.n_heads + 2 * heads.n_kv_heads) * 128 &&
                        heads.kv != KV_F32 && !qkv->parts->host &&
                        linear_makes_heads(m->linear, qkv->parts, call.act, n_rows, call.kernel));
  if (*done) call.next = (LinearNext){.kind = LINEAR_NEXT_HEADS, .heads = &heads};
  if (narrow) return products_run(s, &call, err);
  if (!*done)
    return residual_project(s, qkv, attn_input_norm(l), n_rows, s->projections, s->projection_stride, err);
  TRY(residual_norm_input(s, attn_input_norm(l), n_rows, err));
  return products_run(s, &call, err);
}

/* Widens V of all rows in place: each KV head from value_dim numbers to head_dim. Also multiplies V by
 * value_scale. */
static Status spread_values(BackendState *s, int layer, int n_rows, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const LayerConfig own = config_layer(c, layer);
  const ValueHeads heads = {own.n_kv_heads, own.value_dim, own.head_dim};
  float *values = s->projections + own.q_outputs + own.n_kv_heads * own.head_dim;
  return ops_spread_values(&heads, (float)c->value_scale, values, (size_t)s->projection_stride, n_rows,
                           s->loaded->stream, err);
}

Status rows_append(BackendState *s, int layer, int n_rows, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const LayerConfig own = config_layer(c, layer);
  if (c->qkv_clip != 0)
    TRY(ops_clip(s->projections, (size_t)s->projection_stride, qkv_outputs(&own), (float)c->qkv_clip, n_rows,
                 s->loaded->stream, err));
  if (c->value_dim > 0) TRY(spread_values(s, layer, n_rows, err));
  if (own.qk_norm > QK_NORM_HEADS) TRY(norm_q_k(s, layer, n_rows, err));
  const QkvHeads heads = heads_of(s, layer);
  TRY(ops_qk_norm_rope_append(&heads, n_rows, s->loaded->stream, err));
  const DeviceLayer *l = &s->loaded->layers[layer];
  const int n = own.n_heads * own.head_dim;
  if (!l->query_factors) return STATUS_OK;
  TRY(ops_multiply(s->q, true, (size_t)n, n, l->query_factors, 0, n_rows, s->loaded->stream, err));
  return ops_multiply(s->projections + qkv_outputs(&own), false, (size_t)s->projection_stride, n,
                      l->attn_gate_factors, 0, n_rows, s->loaded->stream, err);
}
