/* shared.c - see shared.h. */
#include "cuda/one/shared.h"

Status shared_begin_sums(BackendState *s, int n_sums, Error *err) {
  return shared_in_memory(s) ? peers_begin_step(s->first_tag, n_sums, s->loaded->stream, err) : STATUS_OK;
}

Status shared_add(BackendState *s, float *x, int n_rows, Error *err) {
  Reduce *reduce = s->loaded->reduce;
  const size_t n = (size_t)n_rows * (size_t)s->loaded->model->config.hidden;
  return reduce->sum(reduce, x, n, s->loaded->stream, err);
}

Status shared_take_pick(BackendState *s, Error *err) {
  Reduce *reduce = s->loaded->reduce;
  return reduce ? reduce->take_from_first(reduce, s->rows.ids, 1, s->loaded->stream, err) : STATUS_OK;
}

Status shared_gather_logits(BackendState *s, int sum, int n_rows, Error *err) {
  Reduce *reduce = s->loaded->reduce;
  const Peers *peers = &s->peers;
  if (peers->n == 0) return STATUS_OK;
  return reduce ? reduce->gather(reduce, s->logits, peers->first_logit, n_rows, s->loaded->stream, err)
                : peers_gather_logits(peers, sum, n_rows, s->loaded->stream, err);
}
