/* drafter_pool.h - the drafters of a batch, and what a sequence has of its own.
 *
 * There may be fewer drafters than sequences: then none has one while too many are in use. */
#pragma once

#include "engine/drafters/guessing.h"

typedef struct {
  Drafter *drafters; /* [n] of one kind */
  Drafter **idle;    /* [n_idle] */
  int n, n_idle;
} DrafterPool; /* starts zeroed */

/* A failure leaves what drafter_pool_close() takes. */
Status drafter_pool_open(const DraftSource *source, int n, int n_ctx, DrafterPool *pool, Error *err);
void drafter_pool_close(DrafterPool *pool);

/* A sequence's. A step gives it `n_tapped` rows of hidden states, of the tokens from `step_pos` on, which are
 * rows first_row on of the step. */
typedef struct {
  Drafter *drafter; /* NULL: none */
  Guessing guessing;
  Guesses guesses; /* of this step: rows after the sequence's own */
  int n_right;     /* of the guesses: they are in the text */
  int n_same;      /* tokens of the text that the drafter has seen */
  int n_told;      /* tokens before which it needs no more hidden states */
  int step_pos, first_row, n_tapped;
} Drafting;

/* Gives the sequence an idle drafter, if it has none. n_past: tokens that are computed. PRECOND one is
 * idle */
void drafting_lend(DrafterPool *pool, Drafting *d, int n_past);
/* Gives the sequence's back, if it has one. */
void drafting_return(DrafterPool *pool, Drafting *d);
/* Forgets the tokens from n_past on, and which rows the last step had. */
void drafting_cut(Drafting *d, int n_past);
/* Passes on the hidden states that the last step of `target` gave of ids[0 .. n_past). */
Status drafting_tell(Drafting *d, BackendState *target, const int32_t *ids, int n_past, Error *err);
/* Asks for as many guesses as pay, up to `most`. */
Status drafting_guess(Drafting *d, const DraftText *text, int most, Error *err);
