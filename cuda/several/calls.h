/* calls.h - the calls of a Backend that rank 0 makes and the other ranks repeat, each with its part of the
 * model.
 *
 * Called by: several.c on rank 0, before it makes the call itself; commands/ranks/join.c on the other ranks.
 * Nothing comes back: rank 0 picks the tokens, from logits that NCCL brings to it. The watching thread
 * (ranks.h) reports failures. */
#pragma once

#include "cuda/several/ranks.h"
#include "engine/backend.h"

/* *state: the number of the new session, which the other calls take. */
Status calls_open(Ranks *ranks, const StateOptions *options, int *state, Error *err);
void calls_close(Ranks *ranks, int state);
Status calls_step(Ranks *ranks, int state, TokenRange span, Error *err);
Status calls_logits(Ranks *ranks, int state, TokenRange span, Error *err);
Status calls_set_pages(Ranks *ranks, int state, int sequence, int first, const int32_t *pages, int n,
                       Error *err);
Status calls_copy_page(Ranks *ranks, int state, int from, int to, Error *err);
/* Save the recurrent states to a slot, and restore them from it. */
Status calls_save(Ranks *ranks, int state, int slot, Error *err);
Status calls_restore(Ranks *ranks, int state, int slot, Error *err);

/* Repeats rank 0's calls of a backend until rank 0 ends; then this process ends too. Returns only after a
 * failure. */
Status calls_repeat(Ranks *ranks, const Backend *backend, BackendModel *loaded, Error *err);
