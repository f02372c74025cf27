/* shared.h - what GPUs that share a model exchange in a step: partial sums, the token, the logits. On one GPU
 * (peers.n is 0) all functions but shared_add() do nothing. All only enqueue.
 *
 * Sums go through the GPUs' memory (ops/add_norm.h), or through loaded->reduce if there is one. */
#pragma once

#include "cuda/one/state.h"

/* True if the GPUs exchange partial sums through each other's memory, not by loaded->reduce. */
static inline bool shared_in_memory(const BackendState *s) {
  return s->peers.n > 0 && !s->loaded->reduce;
}

/* The first of the logits that this GPU makes itself. */
static inline int shared_first_logit(const BackendState *s) {
  return s->peers.n > 0 ? s->peers.first_logit[s->peers.rank] : 0;
}

/* Call before a step's sums through memory, which use n_sums tags (peers_begin_step()). */
static inline Status shared_begin_sums(BackendState *s, int n_sums, Error *err) {
  return shared_in_memory(s) ? peers_begin_step(s->first_tag, n_sums, s->loaded->stream, err) : STATUS_OK;
}

/* x = the sum of all GPUs' x; n_rows rows. PRECOND loaded->reduce */
static inline Status shared_add(BackendState *s, float *x, int n_rows, Error *err) {
  Reduce *reduce = s->loaded->reduce;
  const size_t n = (size_t)n_rows * (size_t)s->loaded->model->config.hidden;
  return reduce->sum(reduce, x, n, s->loaded->stream, err);
}

/* With loaded->reduce only the first GPU picks: rows.ids[0] = its token. Without it each GPU picks the same
 * token itself, and nothing is done. */
static inline Status shared_broadcast_pick(BackendState *s, Error *err) {
  Reduce *reduce = s->loaded->reduce;
  return reduce ? reduce->broadcast(reduce, s->rows.ids, 1, s->loaded->stream, err) : STATUS_OK;
}

/* Exchanges the logits that the GPUs have made. Through memory this is exchange number `sum` of the step, and
 * all GPUs get all logits. By loaded->reduce only the first GPU gets them. */
static inline Status shared_gather_logits(BackendState *s, int sum, int n_rows, Error *err) {
  Reduce *reduce = s->loaded->reduce;
  const Peers *peers = &s->peers;
  if (peers->n == 0) return STATUS_OK;
  return reduce ? reduce->gather(reduce, s->logits, peers->first_logit, n_rows, s->loaded->stream, err)
                : peers_gather_logits(peers, sum, n_rows, s->loaded->stream, err);
}
