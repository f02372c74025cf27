/* against.c - see against.h. Called by: eval.c, quantize.c. */
#include "commands/measure/against.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

Status evaluated_session(Device *device, Model *model, int window, int chunk, Session **session, Error *err) {
  const SessionOptions options = {.n_ctx = window,
                                  .chunk = chunk,
                                  .kv = (KvType)device->flags->kv,
                                  .max_logit_rows = EVALUATED_ROWS,
                                  .sampler = {.top_p = 1, .repetition_penalty = 1}};
  const StateOptions sizes = session_sizes(&options, device->backend, &model->config);
  TRY(device_check_memory(device, model, &sizes, err));
  TRY(device_load(device, model, err));
  return session_open(device->backend, device->loaded, model, &options, session, err);
}

Status evaluated_open(const char *path, const DeviceFlags *device, int window, Evaluated *e, Error *err) {
  e->flags.path = path;
  TRY(model_place_find(&e->flags, &e->place, err));
  TRY(device_choose(device, &e->device, err));
  TRY(model_place_open_known(&e->place, &e->flags, &e->model, err));
  if (window > e->model->config.max_position)
    return error_set(err, STATUS_USAGE, "a window of %d tokens is more than the %d positions of %s", window,
                     e->model->config.max_position, e->place.path);
  TRY(device_fit(&e->device, e->model, err));
  return evaluated_session(&e->device, e->model, window,
                           window < EVALUATED_ROWS ? window : (int)EVALUATED_ROWS, &e->session, err);
}

void evaluated_close(Evaluated *e) {
  session_close(e->session);
  device_release(&e->device);
  model_close(e->model);
  model_place_release(&e->place);
}

Status against_open(const char *path, const DeviceFlags *device, const Model *first, int window, Against *a,
                    Error *err) {
  const int vocab = first->config.vocab_size;
  TRY(evaluated_open(path, device, window, &a->second, err));
  if (a->second.model->config.vocab_size != vocab)
    return error_set(err, STATUS_MODEL,
                     "%s has %d tokens, but %s has %d: logits of the same tokens are compared",
                     a->second.place.path, a->second.model->config.vocab_size, model_path(first), vocab);
  a->logits = mem_alloc(EVALUATED_ROWS, (size_t)vocab * sizeof *a->logits, "logits", err);
  return a->logits ? STATUS_OK : STATUS_FAILED;
}

Status against_check_text(const Against *a, const Model *first, const int32_t *ids, size_t n, Error *err) {
  const Model *second = a->second.model;
  OWNED(tokenizer_release) Tokenizer *own = NULL, *other = NULL;
  OWNED(buffer_release) Buffer text = {0}, other_text = {0};
  if (!first->tokenizer_path || !second->tokenizer_path) return STATUS_OK;
  TRY(tokenizer_open(first->tokenizer_path, &own, err));
  TRY(tokenizer_open(second->tokenizer_path, &other, err));
  TRY(tokenizer_decode(own, ids, n, true, &text, err));
  TRY(tokenizer_decode(other, ids, n, true, &other_text, err));
  if (text.size == other_text.size && (text.size == 0 || memcmp(text.data, other_text.data, text.size) == 0))
    return STATUS_OK;
  return error_set(err, STATUS_MODEL, "%s has another tokenizer than %s: these tokens are another text to it",
                   model_path(second), model_path(first));
}

void against_close(Against *a) {
  evaluated_close(&a->second);
  free(a->logits);
  free(a->divergences);
}

Status against_begin(Against *a, const int32_t *ids, int n, Error *err) {
  a->ids = ids;
  a->n = n;
  a->first = a->n_rows = 0;
  session_keep(a->second.session, 0);
  return session_rewind(a->second.session, ids, n, err);
}

/* Keeps a row of the second model's logits. */
static Status keep(void *user, int row, const float *logits, Error *err) {
  Against *a = user;
  const size_t vocab = (size_t)a->second.model->config.vocab_size;
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

Status against_take(void *user, int row, const float *logits, Error *err) {
  Against *a = user;
  const int vocab = a->second.model->config.vocab_size;
  if (row >= a->first + a->n_rows) {
    a->n_rows = 0;
    TRY(session_evaluate_step(a->second.session, keep, a, err));
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
  TRY(APPEND(a->divergences, a->n_taken, a->capacity, "divergences", err, divergence));
  a->n_same += logits[own_top] == logits[top];
  if (row + 1 == a->n) return STATUS_OK;
  a->nll += own_sum - (double)own[a->ids[row + 1]];
  a->first_nll += sum - (double)logits[a->ids[row + 1]];
  a->n_scored++;
  return STATUS_OK;
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

Differences against_differences(Against *a) {
  Differences d = {.same_top = (double)a->n_same / (double)a->n_taken,
                   .nll = a->nll / (double)a->n_scored,
                   .first_nll = a->first_nll / (double)a->n_scored};
  for (size_t i = 0; i < a->n_taken; i++) d.mean += a->divergences[i] / (double)a->n_taken;
  qsort(a->divergences, a->n_taken, sizeof *a->divergences, compare);
  d.most_of_99 = a->divergences[(a->n_taken * 99 + 99) / 100 - 1];
  return d;
}
