/* draft.c - see draft.h.
 *
 * Always true: rows of the target's hidden states are fp32 on the device, divided by the target's
 *              residual_scale unless its final norm made them. For DRAFT_DFLASH they are also divided by
 *              STATES_DIVISOR before they become fp16, whose range ends at 65504; the norm after W_states
 *              cancels the divisor. */
#include "cuda/one/draft.h"

#include "cuda/kernels/ops/norm_rope.h"
#include "cuda/kernels/ptx/device.h"
#include "cuda/one/products.h"
#include "cuda/one/residual.h"
#include "cuda/one/rows.h"

static const float STATES_DIVISOR = 16; /* a power of two: only subnormal numbers lose bits */

Status draft_load(BackendModel *loaded, Error *err) {
  if (!loaded->target || !loaded->model->draft.round_head || !linear_can_round(&loaded->target->head))
    return STATUS_OK;
  return linear_round(&loaded->target->head, &loaded->head, &loaded->rounded_head, loaded->stream, err);
}

void draft_unload(BackendModel *loaded) {
  cudaFree(loaded->rounded_head);
}

/* A layer's k and v, and up to 15 outputs of q before them: linear_outputs_from() takes multiples of 16. */
static DeviceProjections keys_and_values(const BackendModel *m, int layer) {
  const ModelConfig *c = &m->model->config;
  const LayerConfig own = config_layer(c, layer);
  const DeviceProjections *all = &m->layers[layer].qkv;
  const int n_queries = own.q_outputs;
  DeviceProjections some = {.n_parts = 0};
  for (int i = 0; i < all->n_parts; i++) {
    const DeviceLinear *part = &all->parts[i];
    if (all->first[i] + part->n_out <= n_queries) continue;
    const int skipped = all->first[i] < n_queries ? (n_queries - all->first[i]) / 16 * 16 : 0;
    some.first[some.n_parts] = all->first[i] + skipped;
    some.parts[some.n_parts++] = linear_outputs_from(part, skipped);
  }
  return some;
}

Status draft_prepare(BackendModel *loaded, int max_tokens, Error *err) {
  const ModelConfig *c = &loaded->model->config;
  if (!c->draft.kind) return STATUS_OK;
  for (int layer = 0; c->draft.kind == DRAFT_DFLASH && layer < c->n_layers; layer++) {
    const DeviceProjections some = keys_and_values(loaded, layer);
    for (int i = 0; i < some.n_parts; i++)
      TRY(linear_prepare(loaded->linear, &some.parts[i], loaded->act, max_tokens, loaded->kernel, err));
  }
  if (loaded->draft_out.n_out > 0)
    TRY(linear_prepare(loaded->linear, &loaded->draft_out, ACT_F16, max_tokens, NULL, err));
  const DeviceLinear *first = loaded->draft_join.n_out > 0 ? &loaded->draft_join : &loaded->draft_states;
  return linear_prepare(loaded->linear, first, ACT_F16, max_tokens, NULL, err);
}

static int row_floats(const BackendState *s) {
  const DraftConfig *draft = &s->loaded->model->config.draft;
  return draft->n_states * draft->target_hidden;
}

static float *draft_row(const BackendState *s, int row) {
  return s->draft_rows + (size_t)row * (size_t)row_floats(s);
}

static Status copy_floats(BackendState *s, const float *from, size_t n, float *to, Error *err) {
  return cuda_status(cudaMemcpyAsync(to, from, n * sizeof *to, cudaMemcpyDeviceToDevice, s->loaded->stream),
                     "cannot copy hidden states", err);
}

/* out = rmsnorm(from) * weight, n_rows rows of n numbers in fp32. */
static Status norm_rows(BackendState *s, const float *from, float eps, const float *weight, int n, int n_rows,
                        float *out, Error *err) {
  const size_t bytes = (size_t)n_rows * (size_t)n * sizeof(float);
  const AddNorm add = {.y = from, .weight = weight, .eps = eps, .n = n, .x = out};
  TRY(cuda_status(cudaMemsetAsync(out, 0, bytes, s->loaded->stream), "cannot clear memory", err));
  return ops_add_rms_norm(&add, n_rows, s->loaded->stream, err);
}

Status draft_take(BackendState *s, BackendState *target, int row, int n, const int *taps, int to,
                  Error *err) {
  const DraftConfig *draft = &s->loaded->model->config.draft;
  const size_t width = (size_t)draft->target_hidden, n_taps = (size_t)target->options.taps.n;
  if (row < 0 || n < 1 || n > target->options.max_chunk - row || to + n > s->options.max_chunk + 1)
    return error_set(err, STATUS_FAILED, "hidden states of %d rows from %d on, the session keeps %d", n, row,
                     n_taps ? target->options.max_chunk : 0);
  if (draft_joins(draft)) /* one state, which is the target's only tap */
    return norm_rows(s, target->taps + (size_t)row * width, residual_eps(&target->loaded->model->config),
                     target->loaded->final_norm, (int)width, n, draft_row(s, to), err);
  bool in_order = target->options.taps.n == draft->n_states;
  for (int i = 0; i < draft->n_states; i++) in_order = in_order && taps[i] == i;
  if (in_order)
    return copy_floats(s, target->taps + (size_t)row * n_taps * width, (size_t)n * n_taps * width,
                       draft_row(s, to), err);
  for (int i = 0; i < draft->n_states; i++)
    TRY(cuda_status(cudaMemcpy2DAsync(draft_row(s, to) + (size_t)i * width,
                                      (size_t)row_floats(s) * sizeof(float),
                                      target->taps + ((size_t)row * n_taps + (size_t)taps[i]) * width,
                                      n_taps * width * sizeof(float), width * sizeof(float), (size_t)n,
                                      cudaMemcpyDeviceToDevice, s->loaded->stream),
                    "cannot copy hidden states", err));
  return STATUS_OK;
}

Status draft_move(BackendState *s, int from, int to, Error *err) {
  return copy_floats(s, draft_row(s, from), (size_t)row_floats(s), draft_row(s, to), err);
}

/* draft_h = n_rows rows of the target's states from `first` on, normalised if the drafter has norms for
 * states, else times residual_scale / divisor. */
static Status round_states(BackendState *s, int n_rows, int first, float divisor, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const float *const *norms = s->loaded->draft_states_norm;
  const int n = row_floats(s), stride = padded_row(n), width = c->draft.target_hidden;
  const double r = s->loaded->target->model->config.residual_scale;
  const float eps = (float)(c->norm_eps / (r * r));
  cudaStream_t stream = s->loaded->stream;
  if (c->draft.states_norm == STATES_AS_THEY_ARE)
    return ops_round(draft_row(s, first), n, (float)r / divisor, n, n_rows, s->draft_h, stride, stream, err);
  if (c->draft.states_norm == STATES_NORM_WHOLE)
    return ops_rms_norm(draft_row(s, first), norms[0], eps, n, n_rows, s->draft_h, stride, stream, err);
  for (int row = 0; row < n_rows; row++)
    for (int i = 0; i < c->draft.n_states; i++)
      TRY(ops_rms_norm(draft_row(s, first + row) + i * width, norms[i], eps, width, 1,
                       (char *)s->draft_h + 2 * ((size_t)row * (size_t)stride + (size_t)(i * width)), width,
                       stream, err));
  return STATUS_OK;
}

/* x = W_states times the rows of round_states(), fp32 [n_rows][hidden]. */
static Status make_states(BackendState *s, int n_rows, int first, float divisor, Error *err) {
  TRY(round_states(s, n_rows, first, divisor, err));
  return products_matmul(s, &s->loaded->draft_states, s->draft_h, padded_row(row_floats(s)), n_rows,
                         LINEAR_TO_F32, s->x, s->loaded->model->config.hidden, err);
}

/* x = rmsnorm(x) * weight; `branch` changes, too. */
static Status norm_x(BackendState *s, const float *weight, int n_rows, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  TRY(copy_floats(s, s->x, (size_t)n_rows * (size_t)c->hidden, s->branch, err));
  return norm_rows(s, s->branch, (float)c->norm_eps, weight, c->hidden, n_rows, s->x, err);
}

/* EAGLE-3: the embeddings and the states, each normalised, are the input h of the first layer. On entry x
 * is the states; with norm_before_residual it becomes the normalised states. */
static Status make_pairs(BackendState *s, int n_rows, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const float eps = (float)c->norm_eps;
  char *state_half = (char *)s->h + (size_t)c->hidden * 2;
  TRY(ops_embed(m->embedding, m->embedding_type, c->hidden, m->embedding_stride, s->rows.ids, n_rows,
                (float)c->embedding_scale, s->branch, m->stream, err));
  TRY(ops_rms_norm(s->branch, m->layers[0].attn_norm, eps, c->hidden, n_rows, s->h, s->h_stride, m->stream,
                   err));
  TRY(ops_rms_norm(s->x, m->draft_state_norm, eps, c->hidden, n_rows, state_half, s->h_stride, m->stream,
                   err));
  s->ready = READY_IN_H;
  return c->draft.norm_before_residual ? norm_x(s, m->draft_state_norm, n_rows, err) : STATUS_OK;
}

/* Without states of the target, the state is the drafter's own after its last step, which had one row: x as
 * the last layer left it, normalised with norm_output. */
static Status embed_eagle(BackendState *s, TokenRange span, int states, Error *err) {
  const BackendModel *m = s->loaded;
  if (states >= 0)
    TRY(make_states(s, span.n_tokens, states, 1, err));
  else if (m->model->config.draft.norm_output)
    TRY(norm_x(s, m->final_norm, 1, err));
  return make_pairs(s, states >= 0 ? span.n_tokens : 1, err);
}

/* out = rmsnorm(from) * weight in fp16; weight NULL: `from` in fp16. */
static Status round_half(BackendState *s, const float *from, const float *weight, int n_rows, void *out,
                         Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const int width = c->draft.target_hidden, stride = padded_row(2 * width);
  if (!weight) return ops_round(from, width, 1, width, n_rows, out, stride, s->loaded->stream, err);
  return ops_rms_norm(from, weight, (float)c->norm_eps, width, n_rows, out, stride, s->loaded->stream, err);
}

/* *state = the drafter's own state after its last step, which had one row and left x and normalised x. For an
 * assistant the state is W_out of normalised x, for an MTP layer rmsnorm(x). */
static Status make_own_state(BackendState *s, const float **state, Error *err) {
  const BackendModel *m = s->loaded;
  if (m->draft_out.n_out == 0) {
    *state = s->x;
    return norm_x(s, m->final_norm, 1, err);
  }
  *state = s->branch;
  return products_matmul(s, &m->draft_out, s->lm_head_in, s->h_stride, 1, LINEAR_TO_F32, s->branch,
                         m->draft_out.n_out, err);
}

/* DRAFT_MTP and DRAFT_ASSISTANT: x = W_join [embedding, state], which for MTP are normalised first. */
static Status embed_joined(BackendState *s, TokenRange span, int states, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const int n = span.n_tokens, width = c->draft.target_hidden, stride = padded_row(2 * width);
  const float *state = states < 0 ? NULL : draft_row(s, states);
  if (!state) TRY(make_own_state(s, &state, err));
  TRY(round_half(s, state, m->draft_state_norm, n, (char *)s->draft_h + (size_t)width * 2, err));
  TRY(ops_embed(m->embedding, m->embedding_type, width, m->embedding_stride, s->rows.ids, n,
                (float)c->embedding_scale, s->branch, m->stream, err));
  TRY(round_half(s, s->branch, m->draft_embedding_norm, n, s->draft_h, err));
  return products_matmul(s, &m->draft_join, s->draft_h, stride, n, LINEAR_TO_F32, s->x, c->hidden, err);
}

Status cuda_draft_embed(BackendState *s, TokenRange span, int layer, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  if (span.states >= 0) TRY(rows_set(s, span, err)); /* else begin_step() has set the rows */
  s->ready = READY_NONE;
  if (c->draft.kind == DRAFT_EAGLE3)
    TRY(embed_eagle(s, span, span.states, err));
  else if (draft_joins(&c->draft))
    TRY(embed_joined(s, span, span.states, err));
  else
    TRY(ops_embed(m->embedding, m->embedding_type, c->hidden, m->embedding_stride, s->rows.ids, span.n_tokens,
                  (float)c->embedding_scale, s->x, m->stream, err));
  return rows_rope_tables(s, span, err);
}

/* The part of draft_context() that a graph can replay: it reads positions from device memory. */
static Status append_context(BackendState *s, TokenRange span, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const int n = span.n_tokens;
  const float eps = (float)(c->norm_eps / (STATES_DIVISOR * STATES_DIVISOR)); /* of the divided numbers */
  TRY(rows_rope_tables(s, span, err));
  TRY(make_states(s, n, span.states, STATES_DIVISOR, err));
  TRY(ops_rms_norm(s->x, m->draft_state_norm, eps, c->hidden, n, s->h, s->h_stride, m->stream, err));
  for (int layer = 0; layer < c->n_layers; layer++) {
    const DeviceProjections some = keys_and_values(m, layer);
    TRY(products_project(s, &some, 0, n, s->projections, s->projection_stride, err));
    TRY(rows_append(s, layer, n, err));
  }
  return STATUS_OK;
}

/* With span.states 0 each number of rows up to STEP_GRAPHS has a CUDA graph; most prompts have more rows. */
Status draft_context(BackendState *s, TokenRange span, Error *err) {
  const BackendModel *m = s->loaded;
  const StepKey key = {.n_tokens = span.n_tokens, .workspace = linear_workspace(m->linear)};
  bool replayed = false;
  span.ids = NULL; /* no ids are read */
  TRY(rows_set(s, span, err));
  if (!m->graphs || span.states != 0 || span.n_tokens > STEP_GRAPHS) return append_context(s, span, err);
  TRY(step_graphs_begin(&s->draft_graphs, &key, 2, m->stream, &replayed, err));
  if (replayed) return STATUS_OK;
  return step_graphs_end(&s->draft_graphs, append_context(s, span, err), m->stream, err);
}
