/* draft.c - the inputs of a drafter's step: embeddings of tokens, and hidden states (config.h, DraftKind).
 *
 * Called by: forward.c and published.c through cpu_backend.
 * Always true: a row's hidden state is the target's. Only a step of one row that follows a step of one row
 *              may use the drafter's own hidden state: row 0 of state->x and, normalised, of state->h. */
#include <string.h>

#include "cpu/cpu.h"

/* The widths of an embedding and, in state->pairs, of a hidden state. */
static int embedding_width(const BackendState *state) {
  return state->loaded->model->embedding.n_columns;
}

static int state_width(const BackendState *state) {
  const BackendModel *loaded = state->loaded;
  return loaded->draft_states.linear ? loaded->model->config.hidden
                                     : loaded->model->config.draft.target_hidden;
}

/* A row of the target's hidden states that were kept by cpu_draft_take(). */
static float *kept_row(const BackendState *state, int row) {
  const DraftConfig *draft = &state->loaded->model->config.draft;
  return state->kept_rows + (size_t)row * (size_t)draft->n_states * (size_t)draft->target_hidden;
}

Status cpu_draft_take(BackendState *state, BackendState *target, int row, int n, const int *taps, int to,
                      Error *err) {
  const BackendModel *loaded = state->loaded, *from = target->loaded;
  const DraftConfig *draft = &loaded->model->config.draft;
  const size_t width = (size_t)draft->target_hidden, n_taps = (size_t)target->options.taps.n;
  if (row < 0 || n < 1 || n > target->options.max_chunk - row || to + n > state->options.max_chunk + 1)
    return error_set(err, STATUS_FAILED, "hidden states of %d rows from %d on, the session keeps %d", n, row,
                     n_taps ? target->options.max_chunk : 0);
  for (int r = 0; r < n; r++)
    for (int i = 0; i < draft->n_states; i++) {
      const float *tap = target->taps + ((size_t)(row + r) * n_taps + (size_t)taps[i]) * width;
      float *out = kept_row(state, to + r) + (size_t)i * width;
      if (draft_joins(draft))
        loaded->kernels->rms_norm(tap, from->final_norm, (int)width, from->model->config.norm_eps, out);
      else
        memcpy(out, tap, width * sizeof *out);
    }
  return STATUS_OK;
}

Status cpu_draft_move(BackendState *state, int from, int to, Error *err) {
  memcpy(kept_row(state, to), kept_row(state, from),
         (size_t)(kept_row(state, 1) - kept_row(state, 0)) * sizeof(float));
  return STATUS_OK;
}

/* Copies a row of the target's states to state->states, normalised as draft->states_norm says. */
static void place_states(BackendState *state, int row, const float *from) {
  const BackendModel *loaded = state->loaded;
  const DraftConfig *draft = &loaded->model->config.draft;
  const float *const *norms = loaded->draft_states_norm;
  const int width = draft->target_hidden, n = draft->n_states * width;
  const double eps = loaded->model->config.norm_eps;
  float *to = state->states + (size_t)row * (size_t)state->plan.states;
  if (draft->states_norm == STATES_AS_THEY_ARE) memcpy(to, from, (size_t)n * sizeof *to);
  if (draft->states_norm == STATES_NORM_WHOLE) loaded->kernels->rms_norm(from, norms[0], n, eps, to);
  for (int i = 0; draft->states_norm == STATES_NORM_EACH && i < draft->n_states; i++)
    loaded->kernels->rms_norm(from + i * width, norms[i], width, eps, to + i * width);
}

/* Makes each row's hidden state: the target's, from kept row `first` on, or with first < 0 the drafter's own
 * after its last step. Returns the states, [n_rows][*stride]. */
static const float *make_states(BackendState *state, int n_rows, int first, int *stride) {
  const BackendModel *loaded = state->loaded;
  const DraftConfig *draft = &loaded->model->config.draft;
  *stride = state->plan.hidden;
  if (first < 0 && loaded->draft_out.linear) {
    run_matmul(state, loaded->draft_out, state->h, *stride, 1, state->states, state->plan.states);
    *stride = state->plan.states;
    return state->states;
  }
  if (first < 0) return draft->kind == DRAFT_EAGLE3 && !draft->norm_output ? state->x : state->h;
  for (int r = 0; r < n_rows; r++) place_states(state, r, kept_row(state, first + r));
  if (loaded->draft_states.linear) {
    run_matmul(state, loaded->draft_states, state->states, state->plan.states, n_rows, state->x, *stride);
    return state->x;
  }
  *stride = state->plan.states;
  return state->states;
}

/* Sets a row of state->pairs: the token's embedding and its hidden state `from`, each normalised if the
 * drafter has a norm for it. */
static void make_pair(BackendState *state, int row, int32_t id, const float *from) {
  const BackendModel *loaded = state->loaded;
  const ModelConfig *config = &loaded->model->config;
  const float *norm =
      config->draft.kind == DRAFT_EAGLE3 ? loaded->layers[0].attn_norm : loaded->draft_embedding_norm;
  const int width = embedding_width(state), n = state_width(state);
  const float scale = (float)config->embedding_scale;
  float *e = state->pairs + (size_t)row * (size_t)state->plan.pairs, *c = e + width;
  cpu_read_embedding(state, id, e);
  for (int i = 0; scale != 1 && i < width; i++) e[i] *= scale;
  if (norm) loaded->kernels->rms_norm(e, norm, width, config->norm_eps, e);
  if (loaded->draft_state_norm)
    loaded->kernels->rms_norm(from, loaded->draft_state_norm, n, config->norm_eps, c);
  else
    memcpy(c, from, (size_t)n * sizeof *c);
}

static Status check_ids(const BackendState *state, TokenRange range, Error *err) {
  const int n = state->loaded->model->embedding.n_rows;
  for (int r = 0; r < range.n_tokens; r++)
    if (range.ids[r] < 0 || range.ids[r] >= n)
      return error_set(err, STATUS_FAILED, "token %d is outside the drafter's vocabulary of %d",
                       (int)range.ids[r], n);
  return STATUS_OK;
}

/* Sets x for a DFlash block: embeddings alone. */
static void embed_block(BackendState *state, TokenRange range) {
  const float scale = (float)state->loaded->model->config.embedding_scale;
  for (int r = 0; r < range.n_tokens; r++) {
    float *x = state->x + (size_t)r * (size_t)state->plan.hidden;
    cpu_read_embedding(state, range.ids[r], x);
    for (int i = 0; scale != 1 && i < embedding_width(state); i++) x[i] *= scale;
  }
}

Status cpu_draft_embed(BackendState *state, TokenRange range, int layer, Error *err) {
  const BackendModel *loaded = state->loaded;
  const DraftConfig *draft = &loaded->model->config.draft;
  const int hidden = loaded->model->config.hidden, stride = state->plan.hidden;
  TRY(check_ids(state, range, err));
  cpu_place_rows(state, range);
  if (draft->kind == DRAFT_DFLASH) {
    embed_block(state, range);
    return STATUS_OK;
  }
  int from_stride;
  const float *from = make_states(state, range.n_tokens, range.states, &from_stride);
  for (int r = 0; r < range.n_tokens; r++)
    make_pair(state, r, range.ids[r], from + (size_t)r * (size_t)from_stride);
  if (loaded->draft_join.linear) {
    run_matmul(state, loaded->draft_join, state->pairs, state->plan.pairs, range.n_tokens, state->x, stride);
    return STATUS_OK;
  }
  for (int r = 0; r < range.n_tokens; r++) {
    const float *pair = state->pairs + (size_t)r * (size_t)state->plan.pairs + embedding_width(state);
    const float *begin = draft->norm_before_residual ? pair : from + (size_t)r * (size_t)from_stride;
    float *x = state->x + (size_t)r * (size_t)stride;
    if (x != begin) memcpy(x, begin, (size_t)hidden * sizeof *x);
  }
  return STATUS_OK;
}

Status cpu_draft_context(BackendState *state, TokenRange range, Error *err) {
  const BackendModel *loaded = state->loaded;
  const ModelConfig *config = &loaded->model->config;
  int stride;
  cpu_place_rows(state, range);
  const float *from = make_states(state, range.n_tokens, range.states, &stride);
  cpu_norm_rows(state, from, stride, range.n_tokens, loaded->draft_state_norm, config->hidden,
                config->norm_eps, state->h, state->plan.hidden);
  for (int layer = 0; layer < config->n_layers; layer++) {
    const CpuLayer *weights = &loaded->layers[layer];
    const Matmul matmuls[] = {{.w = weights->k, .y = state->k, .y_stride = (size_t)state->plan.kv_heads},
                              {.w = weights->v, .y = state->v, .y_stride = (size_t)state->plan.kv_heads}};
    run_matmuls(state, state->h, state->plan.hidden, range.n_tokens, matmuls, 2);
    cpu_append(state, range, layer);
  }
  return STATUS_OK;
}
