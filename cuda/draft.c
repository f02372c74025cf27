/* draft.c - see draft.h.   Calls: norm_rope.h, products.h, rows.h.
 *
 * Always true: rows of states are fp32 on the device; where a norm follows W_states, they are divided by
 *              STATES_DIVISOR before it, since a few numbers of a residual stream may exceed fp16. */
#include "cuda/draft.h"

#include "cuda/device.h"
#include "cuda/ops/norm_rope.h"
#include "cuda/products.h"
#include "cuda/rows.h"

static const float STATES_DIVISOR = 16; /* a power of two: no bit is lost but of subnormal numbers */

Status draft_check(const Model *model, Error *err) {
  const DraftKind kind = model->config.draft.kind;
  if (draft_kind_on_gpus(kind)) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "%s: drafters of the kind %s run on the CPU alone (--device cpu)",
                   model_path(model), draft_kind_name(kind));
}

Status draft_prepare(BackendModel *loaded, int max_tokens, Error *err) {
  if (!loaded->model->config.draft.kind) return STATUS_OK;
  return linear_prepare(loaded->linear, &loaded->draft.states, ACT_F16, max_tokens, NULL, err);
}

static int row_floats(const BackendState *s) {
  const DraftConfig *draft = &s->loaded->model->config.draft;
  return draft->n_states * draft->target_hidden;
}

static float *kept_row(const BackendState *s, int row) {
  return s->draft_rows + (size_t)row * (size_t)row_floats(s);
}

Status draft_take(BackendState *s, BackendState *target, int row, int n, const int *taps, int to,
                  Error *err) {
  const DraftConfig *draft = &s->loaded->model->config.draft;
  const size_t width = (size_t)draft->target_hidden, n_taps = (size_t)target->options.taps.n;
  if (row < 0 || n < 1 || n > target->options.max_chunk - row || to + n > s->options.max_chunk + 1)
    return error_set(err, STATUS_FAILED, "hidden states of %d rows from %d on, the session keeps %d", n, row,
                     n_taps ? target->options.max_chunk : 0);
  for (int i = 0; i < draft->n_states; i++)
    TRY(cuda_status(cudaMemcpy2DAsync(kept_row(s, to) + (size_t)i * width,
                                      (size_t)row_floats(s) * sizeof(float),
                                      target->taps + ((size_t)row * n_taps + (size_t)taps[i]) * width,
                                      n_taps * width * sizeof(float), width * sizeof(float), (size_t)n,
                                      cudaMemcpyDeviceToDevice, s->loaded->stream),
                    "cannot copy hidden states", err));
  return STATUS_OK;
}

Status draft_move(BackendState *s, int from, int to, Error *err) {
  return cuda_status(cudaMemcpyAsync(kept_row(s, to), kept_row(s, from),
                                     (size_t)row_floats(s) * sizeof(float), cudaMemcpyDeviceToDevice,
                                     s->loaded->stream),
                     "cannot copy hidden states", err);
}

/* draft_h = n rows of states, normalised where the drafter does so, else divided. */
static Status round_states(BackendState *s, int n_rows, int first, float divisor, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const float *const *norms = s->loaded->draft.states_norm;
  const int n = row_floats(s), stride = padded_row(n), width = c->draft.target_hidden;
  const float eps = (float)c->norm_eps;
  cudaStream_t stream = s->loaded->stream;
  if (c->draft.states_norm == STATES_AS_THEY_ARE)
    return ops_round(kept_row(s, first), 1 / divisor, n, n_rows, s->draft_h, stride, stream, err);
  if (c->draft.states_norm == STATES_NORM_WHOLE)
    return ops_rms_norm(kept_row(s, first), norms[0], eps, n, n_rows, s->draft_h, stride, stream, err);
  for (int row = 0; row < n_rows; row++)
    for (int i = 0; i < c->draft.n_states; i++)
      TRY(ops_rms_norm(kept_row(s, first + row) + i * width, norms[i], eps, width, 1,
                       (char *)s->draft_h + 2 * ((size_t)row * (size_t)stride + (size_t)(i * width)), width,
                       stream, err));
  return STATUS_OK;
}

/* x = W_states of rows / divisor, fp32 [n_rows][hidden]. */
static Status make_states(BackendState *s, int n_rows, int first, float divisor, Error *err) {
  TRY(round_states(s, n_rows, first, divisor, err));
  return products_matmul(s, &s->loaded->draft.states, s->draft_h, padded_row(row_floats(s)), n_rows,
                         LINEAR_TO_F32, s->x, s->loaded->model->config.hidden, err);
}

/* x = rmsnorm(c) * weight in fp32. */
static Status norm_to_x(BackendState *s, const float *c, float eps, const float *weight, int n_rows,
                        Error *err) {
  const ModelConfig *config = &s->loaded->model->config;
  const size_t bytes = (size_t)n_rows * (size_t)config->hidden * sizeof(float);
  const AddNorm add = {.y = c, .weight = weight, .eps = eps, .n = config->hidden, .x = s->x};
  TRY(cuda_status(cudaMemsetAsync(s->x, 0, bytes, s->loaded->stream), "cannot clear memory", err));
  return ops_add_rms_norm(&add, n_rows, s->loaded->stream, err);
}

/* EAGLE-3: the embeddings and the states c, each normalised, are the input h of the first layer; x begins as
 * c, or as normalised c. c lies in x. */
static Status make_pairs(BackendState *s, int n_rows, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const float eps = (float)c->norm_eps;
  char *state_half = (char *)s->h + (size_t)c->hidden * 2;
  TRY(ops_embed(m->embedding, m->embedding_type, c->hidden, m->embedding_stride, s->rows.ids, n_rows,
                (float)c->embedding_scale, s->branch, m->stream, err));
  TRY(ops_rms_norm(s->branch, m->layers[0].attn_norm, eps, c->hidden, n_rows, s->h, s->h_stride, m->stream,
                   err));
  TRY(ops_rms_norm(s->x, m->draft.state_norm, eps, c->hidden, n_rows, state_half, s->h_stride, m->stream,
                   err));
  s->normed = true;
  if (!c->draft.norm_before_residual) return STATUS_OK;
  const size_t bytes = (size_t)n_rows * (size_t)c->hidden * sizeof(float);
  TRY(cuda_status(cudaMemcpyAsync(s->branch, s->x, bytes, cudaMemcpyDeviceToDevice, m->stream),
                  "cannot copy hidden states", err));
  return norm_to_x(s, s->branch, eps, m->draft.state_norm, n_rows, err);
}

/* After a step of one row x still is what left the last layer. */
static Status embed_eagle(BackendState *s, TokenRange span, int states, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  if (states >= 0) {
    TRY(make_states(s, span.n_tokens, states, 1, err));
    return make_pairs(s, span.n_tokens, err);
  }
  if (c->draft.norm_output) {
    TRY(cuda_status(cudaMemcpyAsync(s->branch, s->x, (size_t)c->hidden * sizeof(float),
                                    cudaMemcpyDeviceToDevice, m->stream),
                    "cannot copy hidden states", err));
    TRY(norm_to_x(s, s->branch, (float)c->norm_eps, m->final_norm, 1, err));
  }
  return make_pairs(s, 1, err);
}

Status draft_embed(BackendState *s, TokenRange span, const int32_t *ids, int states, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  if (states >= 0) TRY(rows_set(s, span, ids, err)); /* else begin_step() did it */
  s->normed = false;
  if (c->draft.kind == DRAFT_EAGLE3)
    TRY(embed_eagle(s, span, states, err));
  else
    TRY(ops_embed(m->embedding, m->embedding_type, c->hidden, m->embedding_stride, s->rows.ids, span.n_tokens,
                  (float)c->embedding_scale, s->x, m->stream, err));
  return rows_rope_table(s, span, ROPE_GLOBAL, err);
}

/* Where q, k and v are one matrix, queries are made, too, without a use. */
Status draft_context(BackendState *s, TokenRange span, int states, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const int n = span.n_tokens;
  const float eps =
      (float)(c->norm_eps / (STATES_DIVISOR * STATES_DIVISOR)); /* of numbers that were divided */
  TRY(rows_set(s, span, NULL, err));
  TRY(rows_rope_table(s, span, ROPE_GLOBAL, err));
  TRY(make_states(s, n, states, STATES_DIVISOR, err));
  TRY(ops_rms_norm(s->x, m->draft.state_norm, eps, c->hidden, n, s->h, s->h_stride, m->stream, err));
  for (int layer = 0; layer < c->n_layers; layer++) {
    TRY(products_project(s, &m->layers[layer].qkv, 0, n, s->projections, s->projection_stride, err));
    TRY(rows_append(s, layer, n, err));
  }
  return STATUS_OK;
}
