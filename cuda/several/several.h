/* split.h - a model on several GPUs that compute each layer together (tensor parallel).
 *
 * Called by: backend.c, whose table has these functions. With BackendOptions.split GPUs, `parts` of a
 * BackendModel or BackendState are the models or states of the GPUs; for a model on one GPU each function
 * calls its counterpart in backend.c, state.c or tokens.c. Each part is an ordinary model (model/slice.h)
 * with a stream and graphs of its own:
 *   a step    a thread for each GPU runs forward() over its part. The results of o and down are added
 *             up, and the logits gathered, by kernels that wait for each other (ops/add_norm.h)
 *   a pick    each GPU picks the token itself, from the same logits and by the same random number
 *   a cache   each GPU has the keys and values of its own heads, at the same pages
 * If the GPUs do not reach each other's memory, or on request, NCCL (ranks/nccl.h) makes the sums; the first
 * GPU then gets all logits and picks for all.
 * With BackendOptions.ranks each GPU has a process (ranks/ranks.h): `parts` then has this process's part
 * alone, and rank 0 sends each call to the other ranks before it makes the call itself.
 * A GPU that fails or hangs makes the others give up, so that nothing waits for ever. */
#pragma once

#include "cuda/one/state.h"

/* backend.c: these functions for one GPU. `rank`: which of several GPUs it is. */
Status cuda_load(const Model *model, const BackendOptions *options, BackendModel **loaded, Error *err);
void cuda_unload(BackendModel *loaded);
Status cuda_open(BackendModel *loaded, const StateOptions *options, int rank, BackendState **state,
                 Error *err);
Status cuda_fused_step(BackendState *s, TokenRange span, bool *done, Error *err);
Status cuda_arithmetic(const BackendModel *loaded, char *out, size_t size, Error *err);

/* Steps of a part, for backend.c; they do nothing on one GPU. split_begin_sums() precedes a step with n_sums
 * sums in memory. split_take_pick() brings the token that the first GPU has picked. split_gather_logits()
 * exchanges the logits that the GPUs have made; in memory it counts as sum number `sum`. */
Status split_begin_sums(BackendState *part, int n_sums, Error *err);
Status split_take_pick(BackendState *part, Error *err);
Status split_gather_logits(BackendState *part, int sum, int n_rows, Error *err);

/* The first of the logits that a GPU makes itself. */
static inline int split_first_logit(const BackendState *part) {
  return part->peers.n > 0 ? part->peers.first_logit[part->peers.rank] : 0;
}

/* The shares of BackendProbe. */
Status split_shares(const Model *model, int n, size_t *weights, Error *err);

/* The functions of Backend. */
Status split_memory(const Model *model, const BackendOptions *options, DeviceMemory *memory, Error *err);
Status split_load(const Model *model, const BackendOptions *options, BackendModel **loaded, Error *err);
void split_unload(BackendModel *loaded);
Status split_open(BackendModel *loaded, const StateOptions *options, BackendState **state, Error *err);
void split_close(BackendState *s);
Status split_fused_step(BackendState *s, TokenRange span, bool *done, Error *err);
/* OP_LOGITS after a step that did not make these logits. */
Status split_norm_logits(BackendState *s, TokenRange span, Error *err);
/* The drafter's functions: each part takes the states of the same part of its target. */
Status split_draft_step(BackendState *s, TokenRange span, bool *done, Error *err);
Status split_draft_take(BackendState *s, BackendState *target, int row, int n, const int *taps, int to,
                        Error *err);
Status split_draft_move(BackendState *s, int from, int to, Error *err);
Status split_draft_context(BackendState *s, TokenRange span, Error *err);
Status split_sample(BackendState *s, Sampler *sampler, int row, int32_t *id, Error *err);
Status split_sample_rows(BackendState *s, Sampler *const *samplers, int n, int32_t *ids, Error *err);
Status split_wait_token(BackendState *s, int32_t *id, Error *err);
Status split_drain(BackendState *s, Error *err);
Status split_read_logits(BackendState *s, int row, float *out, Error *err);
Status split_read_taps(BackendState *s, int row, int n, float *out, Error *err);
Status split_kv_read(BackendState *s, TokenRange span, int layer, void *out, Error *err);
Status split_kv_write(BackendState *s, TokenRange span, int layer, int n_stored, const void *from,
                      Error *err);
Status split_state_save(BackendState *s, int slot, Error *err);
Status split_state_restore(BackendState *s, int slot, Error *err);
Status split_state_read(BackendState *s, int slot, int layer, void *out, Error *err);
Status split_state_write(BackendState *s, int slot, int layer, const void *from, Error *err);
Status split_set_pages(BackendState *s, int sequence, int first, const int32_t *pages, int n, Error *err);
Status split_copy_page(BackendState *s, int from, int to, Error *err);
Status split_arithmetic(const BackendModel *loaded, char *out, size_t size, Error *err);
