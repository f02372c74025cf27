/* reference.h - logits of public implementations for the drafters of test/data/drafters
 * (scripts/make_drafters.py), and how far others are from them. Also compiled as C++. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdio.h>

#define DRAFTERS "test/data/drafters/"

/* The reference has rounds: a number of computed tokens, then guesses; the next round keeps none of the
 * guesses. */
typedef struct {
  Safetensors file;
  const int32_t *ids, *rounds; /* of the text; [n_rounds] tokens that are computed before a round's guesses */
  const float *logits;         /* [n_rounds][n_guesses][n_vocab] */
  int n_rounds, n_guesses, n_vocab;
} Reference;

/* Opens the reference of a drafter; safetensors_close(&r->file) closes it. */
static inline Status open_reference(const char *name, Reference *r, Error *err) {
  char path[256];
  snprintf(path, sizeof path, DRAFTERS "references/%s.safetensors", name);
  TRY(safetensors_open(path, &r->file, err));
  const StoredTensor *logits = safetensors_find(&r->file, "logits");
  r->ids = (const int32_t *)safetensors_find(&r->file, "ids")->data;
  r->rounds = (const int32_t *)safetensors_find(&r->file, "rounds")->data;
  r->logits = (const float *)logits->data;
  r->n_rounds = (int)logits->shape[0];
  r->n_guesses = (int)logits->shape[1];
  r->n_vocab = (int)logits->shape[2];
  return STATUS_OK;
}

/* The KL divergence of the softmax of `got` from that of `want`, in nats. */
static inline double kl(const float *want, const float *got, int n) {
  double most_want = want[0], most_got = got[0], sum_want = 0, sum_got = 0, sum = 0;
  for (int i = 1; i < n; i++) most_want = fmax(most_want, want[i]), most_got = fmax(most_got, got[i]);
  for (int i = 0; i < n; i++) sum_want += exp(want[i] - most_want), sum_got += exp(got[i] - most_got);
  for (int i = 0; i < n; i++) {
    const double p = want[i] - most_want - log(sum_want), q = got[i] - most_got - log(sum_got);
    sum += exp(p) * (p - q);
  }
  return sum;
}
