/* several.h - a model on several GPUs that compute each layer together (tensor parallel): a backend whose
 * model and sessions hold those of each GPU (one/), ordinary ones of a part of the model (model/slice.h) with
 * a stream and graphs of their own:
 *   a step    a thread for each GPU runs forward() over its part. The results of o and down are added
 *             up, and the logits gathered, by kernels that wait for each other (ops/add_norm.h)
 *   a pick    each GPU picks the token itself, from the same logits and by the same random number
 *   a cache   each GPU has the keys and values of its own heads, at the same pages
 * If the GPUs do not reach each other's memory, or on request, each gets a sum and a gather by NCCL (nccl.h,
 * one/reduce.h); the first GPU then gets all logits and picks for all.
 * With BackendOptions.ranks each GPU has a process (ranks.h): `parts` then has this process's part alone, and
 * rank 0 sends each call to the other ranks before it makes the call itself.
 * A GPU that fails or hangs makes the others give up, so that nothing waits for ever.
 *
 * Called by: backend.c, whose table has these functions; sums_bench.c. */
#pragma once

#include "cuda/one/state.h"
#include "cuda/several/ranks.h"

/* If processes share the model, `parts` has only the part number first_part, that of this process, and rank 0
 * has `ranks`. */
typedef struct {
  const Model *model;
  BackendModel **parts; /* [n_parts] */
  int n_parts, first_part;
  Ranks *ranks;
} SeveralModel;

typedef struct {
  const SeveralModel *loaded;
  BackendState **parts; /* [n_parts] */
  int n_parts;
  int number; /* with loaded->ranks: the session's number among the processes (calls.h) */
} SeveralState;

static inline SeveralModel *several_model(const BackendModel *loaded) {
  return (SeveralModel *)loaded;
}
static inline SeveralState *several_state(const BackendState *state) {
  return (SeveralState *)state;
}

/* The shares of BackendProbe. */
Status several_shares(const Model *model, int n, size_t *weights, Error *err);

/* The functions of Backend, whose BackendModel and BackendState are a SeveralModel and a SeveralState. */
Status several_memory(const Model *model, const BackendOptions *options, DeviceMemory *memory, Error *err);
Status several_load(const Model *model, const BackendOptions *options, BackendModel **loaded, Error *err);
void several_unload(BackendModel *loaded);
Status several_open(BackendModel *loaded, const StateOptions *options, BackendState **state, Error *err);
void several_close(BackendState *s);
Status several_fused_step(BackendState *s, TokenRange span, bool *done, Error *err);
/* OP_LOGITS after a step that did not make these logits; a step runs all other operations itself. */
Status several_logits(BackendState *s, TokenRange span, int layer, Error *err);
/* The drafter's functions: each part takes the states of the same part of its target. */
Status several_draft_step(BackendState *s, TokenRange span, bool *done, Error *err);
Status several_draft_take(BackendState *s, BackendState *target, int row, int n, const int *taps, int to,
                          Error *err);
Status several_draft_move(BackendState *s, int from, int to, Error *err);
Status several_draft_context(BackendState *s, TokenRange span, Error *err);
Status several_sample(BackendState *s, Sampler *sampler, int row, int32_t *id, Error *err);
Status several_sample_rows(BackendState *s, Sampler *const *samplers, int n, int32_t *ids, Error *err);
Status several_wait_token(BackendState *s, int32_t *id, Error *err);
Status several_drain(BackendState *s, Error *err);
Status several_read_logits(BackendState *s, int row, float *out, Error *err);
Status several_read_taps(BackendState *s, int row, int n, float *out, Error *err);
Status several_kv_read(BackendState *s, TokenRange span, int layer, void *out, Error *err);
Status several_kv_write(BackendState *s, TokenRange span, int layer, int n_stored, const void *from,
                        Error *err);
Status several_state_save(BackendState *s, int slot, Error *err);
Status several_state_restore(BackendState *s, int slot, Error *err);
Status several_state_read(BackendState *s, int slot, int layer, void *out, Error *err);
Status several_state_write(BackendState *s, int slot, int layer, const void *from, Error *err);
Status several_set_pages(BackendState *s, int sequence, int first, const int32_t *pages, int n, Error *err);
Status several_copy_page(BackendState *s, int from, int to, Error *err);
Status several_arithmetic(const BackendModel *loaded, char *out, size_t size, Error *err);
const double *several_row_costs(const BackendModel *loaded);
