/* altup.c - see altup.h.
 *
 * Always true: s->h is attention's input from norm_qkv_rope_append() to add_laurel(); residual_scale is 1. */
#include "cuda/one/layers/altup.h"

#include <math.h>

#include "cuda/kernels/ops/altup.h"
#include "cuda/kernels/ops/norm_rope.h"
#include "cuda/one/products.h"

static size_t row_of_streams(const ModelConfig *c) {
  return (size_t)c->altup.n * (size_t)c->hidden;
}

static AltupStreams streams_of(const BackendState *s) {
  const ModelConfig *c = &s->loaded->model->config;
  return (AltupStreams){
      .n = c->altup.n, .hidden = c->hidden, .eps = (float)c->norm_eps, .streams = s->altup_streams};
}

/* The matmuls' input is x / sqrt(hidden): its numbers fit fp16, like the embedding's. */
Status altup_begin(BackendState *s, int n_rows, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const AltupStreams call = streams_of(s);
  const float divisor = sqrtf((float)c->hidden);
  TRY(ops_round(s->x, c->hidden, 1 / divisor, c->hidden, n_rows, s->h, s->h_stride, m->stream, err));
  for (int i = 1; i < c->altup.n; i++)
    TRY(products_matmul(s, &m->streams_in[i - 1], s->h, s->h_stride, n_rows, LINEAR_TO_F32,
                        call.streams + (size_t)i * (size_t)c->hidden, (int)row_of_streams(c), err));
  return ops_altup_begin(&call, s->x, divisor, n_rows, m->stream, err);
}

Status cuda_predict_streams(BackendState *s, TokenRange span, int layer, Error *err) {
  const DeviceLayer *own = &s->loaded->layers[layer];
  const AltupStreams call = streams_of(s);
  const AltupRouter router = {own->altup_norm, own->small[SMALL_ROUTER], own->small[SMALL_PREDICT]};
  s->ready = READY_NONE;
  return ops_altup_predict(&call, &router, s->x, rows_of(s, span), s->loaded->stream, err);
}

Status cuda_add_laurel(BackendState *s, TokenRange span, int layer, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const DeviceLayer *l = &m->layers[layer];
  const int n_rows = rows_of(s, span), stride = padded_row(c->altup.laurel_rank);
  const Laurel laurel = {.hidden = c->hidden,
                         .eps = (float)c->norm_eps,
                         .l = s->branch,
                         .attn_norm = l->attn_norm,
                         .laurel_norm = l->laurel_norm,
                         .x = s->x};
  TRY(products_matmul(s, &l->laurel_left, s->h, s->h_stride, n_rows, LINEAR_TO_F16, s->altup_ranks, stride,
                      err));
  TRY(products_matmul(s, &l->laurel_right, s->altup_ranks, stride, n_rows, LINEAR_TO_F32, s->branch,
                      c->hidden, err));
  return ops_add_laurel(&laurel, n_rows, m->stream, err);
}

Status cuda_correct_streams(BackendState *s, TokenRange span, int layer, Error *err) {
  const DeviceLayer *own = &s->loaded->layers[layer];
  const AltupStreams call = streams_of(s);
  const AltupRouter router = {own->altup_norm, own->small[SMALL_ROUTER], own->small[SMALL_CORRECT]};
  return ops_altup_correct(&call, &router, own->altup_output_scale, s->x, rows_of(s, span), s->loaded->stream,
                           err);
}

Status altup_add_input(BackendState *s, int layer, int n_rows, Error *err) {
  const DeviceLayer *l = &s->loaded->layers[layer];
  const ModelConfig *c = &s->loaded->model->config;
  const AltupStreams call = streams_of(s);
  TRY(products_matmul(s, &l->input_projection, s->g, padded_row(c->per_layer_width), n_rows, LINEAR_TO_F32,
                      s->branch, c->hidden, err));
  return ops_altup_add(&call, s->branch, l->input_norm, n_rows, s->loaded->stream, err);
}

Status altup_join(BackendState *s, TokenRange span, int first_row, int n_rows, void *out, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const AltupStreams call = streams_of(s);
  const AltupRows rows = {span.parts ? s->rows.logit_rows : NULL, first_row};
  for (int i = 1; i < c->altup.n; i++) { /* `out` holds each matmul's input, and in the end lm_head's */
    TRY(ops_altup_unit(&call, rows, i, n_rows, out, s->h_stride, m->stream, err));
    TRY(products_matmul(s, &m->streams_out[i - 1], out, s->h_stride, n_rows, LINEAR_TO_F32,
                        s->altup_projected + (size_t)i * (size_t)c->hidden, (int)row_of_streams(c), err));
  }
  return ops_altup_join(&call, rows, s->altup_projected, m->final_norm, n_rows, out, s->h_stride, m->stream,
                        err);
}
