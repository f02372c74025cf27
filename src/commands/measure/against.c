/* against.c - see against.h. Called by: eval.c. Calls: engine/session.h, engine/sampler.h. */
#include "commands/measure/against.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEP_ROWS = 64 }; /* rows of logits in memory: 64 rows of 150,000 are 38 MB */

Status against_open(const char *path, const DeviceFlags *device, const Model *first, int window, Against *a,
                    Error *err) {
  const int vocab = first->config.vocab_size;
  a->flags.path = path;
  TRY(model_place_find(&a->flags, &a->place, err));
  TRY(device_choose(device, &a->device, err));
  TRY(model_place_open_known(&a->place, &a->flags, &a->model, err));
  if (a->model->config.vocab_size != vocab)
    return error_set(err, STATUS_MODEL,
                     "%s has %d tokens, but %s has %d: logits of the same tokens are compared", a->place.path,
                     a->model->config.vocab_size, model_path(first), vocab);
  if (window > a->model->config.max_position)
    return error_set(err, STATUS_USAGE, "a window of %d tokens is more than the %d positions of %s", window,
                     a->model->config.max_position, a->place.path);
  TRY(device_fit(&a->device, a->model, err));
  const SessionOptions session = {.n_ctx = window,
                                  .chunk = window < STEP_ROWS ? window : STEP_ROWS,
                                  .kv = (KvType)device->kv,
                                  .max_logit_rows = STEP_ROWS,
                                  .sampler = {.top_p = 1, .repetition_penalty = 1}};
  const StateOptions sizes = session_sizes(&session, a->device.backend, &a->model->config);
  TRY(device_check_memory(&a->device, a->model, &sizes, err));
  TRY(device_load(&a->device, a->model, err));
  a->logits = mem_alloc(STEP_ROWS, (size_t)vocab * sizeof *a->logits, "logits", err);
  if (!a->logits) return STATUS_FAILED;
  return session_open(a->device.backend, a->device.loaded, a->model, &session, &a->session, err);
}

void against_close(Against *a) {
  session_close(a->session);
  device_release(&a->device);
  model_close(a->model);
  model_place_release(&a->place);
  free(a->logits);
  free(a->divergences);
}

Status against_begin(Against *a, const int32_t *ids, int n, Error *err) {
  a->ids = ids;
  a->n = n;
  a->first = a->n_rows = 0;
  return session_evaluate_begin(a->session, ids, n, err);
}

/* Keeps a row of the second model's logits. */
static Status keep(void *user, int row, const float *logits, Error *err) {
  (void)err;
  Against *a = user;
  const size_t vocab = (size_t)a->model->config.vocab_size;
  if (a->n_rows == 0) a->first = row;
  memcpy(a->logits + (size_t)a->n_rows++ * vocab, logits, vocab * sizeof *logits);
  return STATUS_OK;
}

static int likeliest(const float *logits, int n) {
  int top = 0;
  for (int i = 1; i < n; i++)
    if (logits[i] > logits[top]) top = i;
  return top;
}

Status against_take(Against *a, int row, const float *logits, int32_t next, Error *err) {
  const int vocab = a->model->config.vocab_size;
  if (row >= a->first + a->n_rows) {
    a->n_rows = 0;
    TRY(session_evaluate_step(a->session, a->ids, a->n, keep, a, err));
  }
  const float *own = a->logits + (size_t)(row - a->first) * (size_t)vocab;
  const int top = likeliest(logits, vocab), own_top = likeliest(own, vocab);
  const double sum = (double)logits[top] - log_probability(logits, vocab, top),
               own_sum = (double)own[own_top] - log_probability(own, vocab, own_top);
  double divergence = 0;
  for (int i = 0; i < vocab; i++) {
    const double p = (double)own[i] - own_sum, q = (double)logits[i] - sum;
    divergence += exp(p) * (p - q);
  }
  if (!isfinite(divergence))
    return error_set(err, STATUS_FAILED, "the logits of row %d hold a NaN or an infinity", row);
  TRY(mem_grow(&a->divergences, &a->capacity, a->n_taken + 1, sizeof *a->divergences, "divergences", err));
  a->divergences[a->n_taken++] = divergence;
  a->n_same += logits[own_top] == logits[top];
  if (next < 0) return STATUS_OK;
  a->nll += own_sum - (double)own[next];
  a->n_scored++;
  return STATUS_OK;
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

Differences against_differences(Against *a) {
  Differences d = {.same_top = (double)a->n_same / (double)a->n_taken, .nll = a->nll / (double)a->n_scored};
  for (size_t i = 0; i < a->n_taken; i++) d.mean += a->divergences[i] / (double)a->n_taken;
  qsort(a->divergences, a->n_taken, sizeof *a->divergences, compare);
  d.most_of_99 = a->divergences[(a->n_taken * 99 + 99) / 100 - 1];
  return d;
}
