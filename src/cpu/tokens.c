/* tokens.c - from logits to tokens: the backend's read_logits, sample and sample_rows.
 *
 * Called by: session.c, batch.c and published.c through cpu_backend. */
#include <string.h>

#include "cpu/cpu.h"

Status cpu_read_logits(BackendState *state, int row, float *out, Error *err) {
  if (row < 0 || row >= state->n_logit_rows)
    return error_set(err, STATUS_FAILED, "logits of row %d were asked for, the last step made %d", row,
                     state->n_logit_rows);
  size_t n = (size_t)state->loaded->model->config.vocab_size;
  memcpy(out, state->logits + (size_t)row * n, n * sizeof *out);
  return STATUS_OK;
}

Status cpu_sample(BackendState *state, Sampler *sampler, int row, int32_t *id, Error *err) {
  if (row < 0 || row >= state->n_logit_rows)
    return error_set(err, STATUS_FAILED, "a token was asked for before its logits");
  size_t n = (size_t)state->loaded->model->config.vocab_size;
  TRY(sampler_pick(sampler, state->logits + (size_t)row * n, &state->last_id, err));
  if (id) *id = state->last_id;
  return STATUS_OK;
}

Status cpu_sample_rows(BackendState *state, Sampler *const *samplers, int n, int32_t *ids, Error *err) {
  const size_t vocab = (size_t)state->loaded->model->config.vocab_size;
  int failed = n; /* the first row that failed; n: none did */
  if (n > state->n_logit_rows)
    return error_set(err, STATUS_FAILED, "tokens of %d rows were asked for, the last step made logits of %d",
                     n, state->n_logit_rows);
#pragma omp parallel for schedule(dynamic) num_threads(state->loaded->n_threads)
  for (int i = 0; i < n; i++) {
    Error own = {{0}};
    if (!samplers[i] || !sampler_pick(samplers[i], state->logits + (size_t)i * vocab, &ids[i], &own))
      continue;
#pragma omp critical
    if (i < failed) {
      failed = i;
      if (err) *err = own;
    }
  }
  return failed < n ? STATUS_FAILED : STATUS_OK;
}
