/* drafter_pool.h - the drafters of a batch, and the state of guessing of each sequence, a session's included.
 *
 * While a batch has more sequences than drafters, no sequence has a drafter. */
#pragma once

#include "engine/drafters/guessing.h"

typedef struct {
  Drafter *drafters; /* [n] of one kind */
  Drafter **idle;    /* [n_idle] */
  int n, n_idle;
} DrafterPool; /* starts zeroed */

/* Opens n >= 0 drafters. Release with drafter_pool_close(), also after a failure. */
Status drafter_pool_open(const DraftSource *source, int n, int n_ctx, DrafterPool *pool, Error *err);
void drafter_pool_close(DrafterPool *pool);

/* A sequence's state of guessing. The last step made hidden states of n_tap_rows of the sequence's tokens,
 * from position step_pos on, in the step's rows from first_row on. */
typedef struct {
  Drafter *drafter; /* NULL: none */
  Guessing guessing;
  Guesses guesses;    /* of this step: their rows follow the sequence's own */
  int n_accepted;     /* guesses that turned out right: these tokens are in the text */
  int n_unchanged;    /* tokens of the text that the drafter has seen */
  int n_drafter_seen; /* the drafter needs the hidden states of the tokens from here on */
  int step_pos, first_row, n_tap_rows;
} Drafting;

/* Gives the sequence an idle drafter, if it has none. n_past: tokens that are computed. PRECOND a drafter is
 * idle */
void drafting_lend(DrafterPool *pool, Drafting *d, int n_past);
/* Returns the sequence's drafter to the pool, if it has one. */
void drafting_return(DrafterPool *pool, Drafting *d);
void drafting_forget(Drafting *d); /* forgets the guesses of the last step */
/* Forgets them, and notes that the tokens from n_past on, and their hidden states, are no longer those that
 * the drafter has seen. */
void drafting_cut(Drafting *d, int n_past);
/* Passes on to the drafter the hidden states of ids[0 .. n_past) that the last step of `target` made. */
Status drafting_tell(Drafting *d, BackendState *target, const int32_t *ids, int n_past, Error *err);
/* `id` is the next token of the text. True if it is the next guess: this guess then counts as taken. A wrong
 * guess makes all later guesses wrong. */
bool drafting_judge(Drafting *d, int32_t id);
/* Gets as many guesses as pay, at most `most`. PRECOND the sequence has a drafter, guesses.n is 0 */
Status drafting_guess(Drafting *d, const DraftText *text, int most, Error *err);
