/* bound.h - an answer in progress that has a form: which tokens may be next, and its text. */
#pragma once

#include "commands/form/form.h"
#include "engine/request.h"

enum { BOUND_LAST = 4 };

typedef struct {
  AnswerForm *form;   /* or NULL: the answer is free, and nothing below is used */
  const IdList *ends; /* end tokens */
  uint64_t *mask;     /* [n_words] a bit for each token of model and tokenizer */
  size_t n_words;
  bool begun;               /* some token was taken */
  bool ended;               /* nothing may follow */
  Buffer held;              /* bytes of an incomplete character */
  int32_t last[BOUND_LAST]; /* the tokens taken last, in the last n_last entries */
  int n_last;
  IdList forced; /* forced tokens; n_forced of them are still to be taken */
  size_t n_forced;
} Bound; /* starts zeroed; release with bound_release() */

/* Begins an answer, which is free unless form->given. PRECOND a given form is open, or consists
 * of calls that are written in parts (written_calls.h) */
Status bound_begin(Bound *bound, AnswerForm *form, const IdList *ends, Error *err);
void bound_release(Bound *bound);

/* Returns `status`. A failure gets the form's flag and `inner` as its message. STATUS_USAGE becomes
 * STATUS_CUT_SHORT: the form became too hard within an answer, so the command line is not at fault. */
Status bound_check(const Bound *bound, Status status, const Error *inner, Error *err);
/* Sets *mask to the tokens that may be next: tokens of the form, end tokens where the answer may end (nowhere
 * if the form is of calls), and `also` (-1: none). With `space`, adds tokens of white space. STATUS_CUT_SHORT
 * where no token is left. */
Status bound_mask(Bound *bound, int32_t also, bool space, const uint64_t **mask, Error *err);
/* Sets *mask for a thought, which is free: all tokens but the end tokens. */
void bound_mask_thought(Bound *bound, const uint64_t **mask);
/* Sets *mask to `also` (-1: none); if `space`, tokens of white space too; if `ends`, end tokens too. */
void bound_mask_few(Bound *bound, int32_t also, bool space, bool ends, const uint64_t **mask);
/* Adds a token to the mask that was set last. */
void bound_allow(Bound *bound, int32_t id);
/* Sets *mask to the tokens that fit the form, and to all tokens whose text, after white space, does not begin
 * with `first`. */
Status bound_mask_or_text(Bound *bound, char first, const uint64_t **mask, Error *err);
/* Restarts the form, for another part of the same answer. */
Status bound_restart(Bound *bound, Error *err);
/* Takes a token of the answer and appends its text, in whole characters. */
Status bound_take(Bound *bound, int32_t id, Buffer *text, Error *err);
/* Sets reply->forced to the tokens that must come next, if there is no choice and all tokens that were forced
 * earlier have been taken. */
Status bound_forced(Bound *bound, TokenReply *reply, Error *err);
/* True for a token of white space alone. */
bool bound_is_space(const Bound *bound, int32_t id);
