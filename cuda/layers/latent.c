/* latent.c - see latent.h.   Calls: ops/latent.h, products.h, residual.h, rows.h. */
#include "cuda/layers/latent.h"

#include "cuda/ops/latent.h"
#include "cuda/products.h"
#include "cuda/residual.h"
#include "cuda/rows.h"

enum { MOST_PLACES = 1 << 15 }; /* n_heads * rows at once, which bounds head_x and head_y */

static int query_numbers(const ModelConfig *c) {
  return c->n_heads * (c->latent.nope_dim + c->latent.rope_dim);
}

int latent_inputs(const ModelConfig *c) {
  const LatentConfig *latent = &c->latent;
  if (latent->kv_rank == 0) return 0;
  return (latent->q_rank ? latent->q_rank : query_numbers(c)) + latent->kv_rank + latent->rope_dim;
}

int latent_rows(const ModelConfig *c, int max_chunk) {
  const int most = c->n_heads < MOST_PLACES ? MOST_PLACES / c->n_heads : 1;
  return max_chunk < most ? max_chunk : most;
}

/* The operations' argument for the step's rows from `first` on. */
static Latent rows_from(const BackendState *s, int layer, int first) {
  const ModelConfig *c = &s->loaded->model->config;
  const DeviceLayer *l = &s->loaded->layers[layer];
  const size_t row = (size_t)first;
  const int n_queries = query_numbers(c), in_stride = padded_row(latent_inputs(c));
  const float *in = s->latent_in + row * (size_t)in_stride;
  return (Latent){.sizes = c->latent,
                  .n_heads = c->n_heads,
                  .in = in,
                  .in_stride = (size_t)in_stride,
                  .q_norm = l->q_a_norm,
                  .kv_norm = l->kv_a_norm,
                  .q_latents = s->q_latents,
                  .q_stride = padded_row(c->latent.q_rank),
                  .queries = c->latent.q_rank ? s->latent_queries + row * (size_t)n_queries : in,
                  .query_stride = (size_t)(c->latent.q_rank ? n_queries : in_stride),
                  .rows = s->projections + row * (size_t)s->projection_stride,
                  .row_stride = (size_t)s->projection_stride,
                  .x = s->head_x,
                  .x_stride = s->head_x_stride,
                  .begins = s->head_begins};
}

/* head_y = each place of head_x times its head's matrix, `width` numbers each. */
static Status multiply_heads(BackendState *s, const DeviceLinear *heads, int n_rows, int width, Error *err) {
  const LinearExperts places = {.begins = s->head_begins, .gathered = true};
  LinearCall call = products_call(s, heads, s->head_x, s->head_x_stride, n_rows * heads->n_experts,
                                  LINEAR_TO_F32, s->head_y, width);
  call.experts = &places;
  return products_run(s, &call, err);
}

Status latent_project(BackendState *s, int layer, int n_rows, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const DeviceLayer *l = &m->layers[layer];
  const int step = latent_rows(c, s->options.max_chunk);
  const Latent all = rows_from(s, layer, 0);
  TRY(residual_norm_input(s, l->attn_norm, n_rows, err));
  TRY(products_project(s, &l->qkv, 0, n_rows, s->latent_in, (int)all.in_stride, err));
  TRY(ops_latent_norms(&all, n_rows, m->stream, err));
  if (c->latent.q_rank)
    TRY(products_matmul(s, &l->q, s->q_latents, all.q_stride, n_rows, LINEAR_TO_F32, s->latent_queries,
                        query_numbers(c), err));
  for (int first = 0; first < n_rows; first += step) {
    const int n = n_rows - first < step ? n_rows - first : step;
    const Latent part = rows_from(s, layer, first);
    TRY(ops_latent_queries(&part, n, m->stream, err));
    TRY(multiply_heads(s, &l->key_heads, n, c->latent.kv_rank, err));
    TRY(ops_latent_keys(&part, s->head_y, n, m->stream, err));
  }
  return rows_append(s, layer, n_rows, err);
}

Status latent_values(BackendState *s, int layer, int n_rows, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const DeviceLayer *l = &m->layers[layer];
  const int step = latent_rows(c, s->options.max_chunk), out_stride = padded_row(l->o.n_in);
  const size_t width = (size_t)c->n_heads * (size_t)c->latent.kv_rank;
  for (int first = 0; first < n_rows; first += step) {
    const int n = n_rows - first < step ? n_rows - first : step;
    const Latent part = rows_from(s, layer, first);
    /* In place: an output row is no wider than an input row (value_dim <= kv_rank: supported.c), so the
     * outputs of earlier parts end before this part's inputs. */
    TRY(ops_latent_outputs(&part, (const char *)s->a + (size_t)first * width * 2, n, m->stream, err));
    TRY(multiply_heads(s, &l->value_heads, n, c->latent.value_dim, err));
    TRY(ops_latent_values(&part, s->head_y, n, (char *)s->a + (size_t)first * (size_t)out_stride * 2,
                          out_stride, m->stream, err));
  }
  return STATUS_OK;
}
