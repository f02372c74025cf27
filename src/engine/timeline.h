/* timeline.h - a text that is being computed, as a session (session.c) or as a sequence of a batch (batch.c),
 * with the guesses that its steps compute after it.
 *
 * Always true: the keys and values of ids[0 .. n_past) are in the cache. */
#pragma once

#include "engine/drafters/drafter_pool.h"

typedef struct {
  const ModelConfig *config;
  Sampler *sampler;
  bool counts;       /* false: the sampler needs no counts, which for many texts exceed a CPU's caches */
  int32_t *ids;      /* [n_ids] computed tokens, then tokens that are to be computed */
  int n_past;        /* computed tokens */
  int n_ids;         /* at most n_ctx */
  int n_ctx;         /* most tokens */
  bool long_rope;    /* the cached keys use LongRoPE's long factors (rope_original_context()) */
  int logits_row;    /* row of the last step's logits that the next token is picked from; -1: there is none */
  Drafting drafting; /* drafting.drafter NULL: no guesses */
} Timeline;

/* True if a text of n tokens needs other factors of LongRoPE than the cached keys have. All of its tokens are
 * then to be computed again. */
bool timeline_changes_rope(const Timeline *t, int n);
/* Only ids[0 .. n) are computed from now on, and the state has no logits of them. */
void timeline_cut(Timeline *t, int n);
/* Has the sampler count ids[from .. end) as seen; is_answer: they were generated. */
void timeline_count(Timeline *t, int from, int end, bool is_answer);
/* Appends a generated token to those that are to be computed. PRECOND n_ids < n_ctx */
void timeline_append(Timeline *t, int32_t id);
/* Accepts guesses that equal the next of ids[n_past .. n_ids). The last step has computed these tokens, and
 * the logits after each are in the row after logits_row. Returns the number of accepted guesses. */
int timeline_accept(Timeline *t);
/* The most guesses after ids[0 .. n_ids), up to n: as many as the drafter may give and as fit into the n_more
 * tokens (-1: any number) that may follow, into the context, and into LongRoPE's original context while the
 * keys have short factors. 0 or less: none. */
int timeline_room(const Timeline *t, int n, int n_more);
/* Asks the drafter for at most `most` guesses after ids[0 .. n_ids). */
Status timeline_guess(Timeline *t, int most, Error *err);
