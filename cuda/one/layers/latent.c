/* latent.c - see latent.h.
 *
 *     residual -norm-> q_a, kv_a -norm-> q -+-> rotated part ---------------> q -+
 *                             |             +-> x -key_heads-> the rest of q ----+
 *                             +-norm, rope-> a row of the cache -----------------+-> attention
 *     attention -value_heads-> a */
#include "cuda/one/layers/latent.h"

#include "cuda/kernels/ops/latent.h"
#include "cuda/kernels/ops/norm_rope.h"
#include "cuda/one/products.h"
#include "cuda/one/residual.h"

Status latent_gate(BackendState *s, int n_rows, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const int n = state_latent_inputs(c);
  const HeadGates gates = {.gates = s->latent_in + n - c->n_heads,
                           .stride = (size_t)padded_row(n),
                           .step = 1,
                           .by_head = true,
                           .softplus = c->attn_gate_softplus,
                           .n_heads = c->n_heads,
                           .head_dim = c->latent.kv_rank};
  return ops_gate_heads(&gates, n_rows, s->head_x, s->loaded->stream, err);
}

static Latent latent_call(const BackendState *s, int layer) {
  const ModelConfig *c = &s->loaded->model->config;
  const DeviceLayer *l = &s->loaded->layers[layer];
  const Attention attention = state_attention(s, layer);
  const LayerConfig own = config_layer(c, layer);
  const int in_stride = padded_row(state_latent_inputs(c));
  return (Latent){.sizes = c->latent,
                  .n_heads = c->n_heads,
                  .in = s->latent_in,
                  .in_stride = (size_t)in_stride,
                  .kv_norm = l->kv_a_norm,
                  .queries = c->latent.q_rank ? s->latent_queries : s->latent_in,
                  .query_stride = (size_t)(c->latent.q_rank ? own.q_outputs : in_stride),
                  .x = s->head_x,
                  .x_step = (int)linear_heads_stride(c->latent.nope_dim),
                  .q = s->q,
                  .rope_table = own.rope == ROPE_NONE ? NULL : s->rope_tables[own.rope],
                  .neighbours = c->rope.neighbours,
                  .query_scale_beta = (float)own.query_scale_beta,
                  .query_scale_step = (float)c->query_scale_step,
                  .pos = s->rows.pos,
                  .pages = attention.pages,
                  .n_ctx = attention.n_ctx,
                  .kv = s->options.kv,
                  .cache = s->layers[layer].cache[KEYS],
                  .k_scales = s->layers[layer].cache[KEY_SCALES]};
}

Status latent_project(BackendState *s, int layer, int n_rows, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const LatentConfig *latent = &c->latent;
  const DeviceLayer *l = &m->layers[layer];
  const Latent call = latent_call(s, layer);
  TRY(residual_project(s, &l->qkv, attn_input_norm(l), n_rows, s->latent_in, (int)call.in_stride, err));
  if (latent->q_rank) {
    const int stride = padded_row(latent->q_rank);
    const NormRows norm = {.x = s->latent_in,
                           .weight = l->q_a_norm,
                           .x_stride = call.in_stride,
                           .eps = (float)LATENT_EPS,
                           .factor = 1,
                           .n = latent->q_rank,
                           .out = s->q_latents,
                           .out_stride = stride};
    TRY(ops_norm_rows(&norm, n_rows, m->stream, err));
    TRY(products_matmul(s, &l->q, s->q_latents, stride, n_rows, LINEAR_TO_F32, s->latent_queries,
                        (int)call.query_stride, err));
  }
  TRY(ops_latent_rows(&call, n_rows, m->stream, err));
  const int width = latent->rope_dim + latent->kv_rank;
  const LinearHeads keys = {.w = l->key_halves,
                            .n_heads = c->n_heads,
                            .n_in = latent->nope_dim,
                            .n_out = latent->kv_rank,
                            .w_stride = call.x_step,
                            .x = s->head_x,
                            .x_stride = c->n_heads * call.x_step,
                            .x_step = call.x_step,
                            .y = (char *)s->q + (size_t)latent->rope_dim * 2,
                            .y_stride = c->n_heads * width,
                            .y_step = width,
                            .n_tokens = n_rows};
  return linear_run_heads(m->linear, &keys, products_kernel(s), err);
}

Status latent_values(BackendState *s, int layer, int n_rows, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const LatentConfig *latent = &c->latent;
  const DeviceLayer *l = &m->layers[layer];
  const LinearHeads values = {.w = l->value_halves,
                              .n_heads = c->n_heads,
                              .n_in = latent->kv_rank,
                              .n_out = latent->value_dim,
                              .w_stride = latent->kv_rank,
                              .x = s->head_x,
                              .x_stride = c->n_heads * latent->kv_rank,
                              .x_step = latent->kv_rank,
                              .y = s->a,
                              .y_stride = padded_row(l->o.n_in),
                              .y_step = latent->value_dim,
                              .n_tokens = n_rows};
  return linear_run_heads(m->linear, &values, products_kernel(s), err);
}
