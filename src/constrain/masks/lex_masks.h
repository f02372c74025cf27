/* lex_masks.h - the tokens that stay inside a string of a restricted language, by the state of its text. Also
 * the tokens that stay inside a part of a grammar. Such a part has no escapes, so lex.h treats it as a
 * number. */
#pragma once

#include "constrain/machine.h"
#include "constrain/masks/vocabulary.h"

/* Where a string or a part of a grammar ends inside a token. A string ends at its quote; masks have these
 * ends only for states within a character or an escape. A part of a grammar ends at its last byte. */
typedef struct {
  uint32_t node;     /* node of the tokens' trie */
  uint32_t lex;      /* state before the quote, or after the part */
  uint32_t n_before; /* bytes of the token before the quote, or before the part's last byte */
} LexExit;

/* A token that stays inside the string, or inside the part of a grammar. */
typedef struct {
  int32_t id;
  uint32_t enough; /* characters that suffice for the token and an end after it, or LANG_UNKNOWN */
} LexToken;

#define N_ENOUGH 24

/* All strings of up to `depth` characters of the classes `whole` may follow a state. */
typedef struct {
  uint64_t whole;
  uint32_t depth;
  /* If LexMask.bounded: characters that suffice to end after any such string, or LANG_UNKNOWN. */
  uint32_t beyond;
  const uint64_t *words; /* [n_words] tokens of such strings; NULL: LexMask.tokens has them */
} LexPlan;

/* The tokens that stay inside a string or a part of a grammar, for one of its states. */
typedef struct {
  /* made: the tokens are filled in; planned: the plans; bounded: LexPlan.beyond; measured: enough[]. */
  bool made, planned, bounded, measured;
  bool ends;        /* the string may end in a state that a plan passes */
  LexPlan plans[2]; /* plans[1]: more characters of fewer classes than plans[0], or equal to it */
  uint64_t others;  /* further classes whose characters may follow within plans[0] */
  /* If measured: a string of enough[n] characters can hold any n characters of plans[0] and end;
   * LANG_UNKNOWN: no such number is known. */
  uint32_t enough[N_ENOUGH];
  const uint64_t *base; /* [n_words] the tokens of the plans that have `words`, or NULL */
  LexToken *tokens;     /* [n_tokens] further tokens */
  size_t n_tokens, tokens_capacity;
  LexExit *exits; /* [n_exits] for a string only if the state is within a character or an escape */
  size_t n_exits, exits_capacity;
} LexMask;

/* Tokens of up to depth[i] characters, all of the classes whole[i], for i = 0 or 1. They are made once. */
typedef struct {
  uint64_t whole[2];
  uint32_t depth[2];
  uint64_t *tokens; /* [n_words] */
} LexBase;

typedef struct {
  Machine *m;
  const Vocabulary *v;
  bool ends;      /* the states are of parts of a grammar, and exits are wanted */
  LexMask **made; /* [n_made] by the number of the state; NULL where not made */
  size_t n_made;
  LexBase *bases; /* [n_bases] */
  size_t n_bases, bases_capacity;
  size_t kept_bytes;
  uint32_t generation; /* grows when what was made is released */
} LexMasks;

void lex_masks_close(LexMasks *masks);
/* Forgets all masks. */
void lex_masks_release(LexMasks *masks);
/* The mask of a state; `measured`: with enough[] and LexToken.enough. NULL on failure, which the machine
 * keeps. The mask is valid until the next call. PRECOND a state between characters is one of lex_alone() */
const LexMask *lex_mask(LexMasks *masks, uint32_t lex, bool measured);
/* Adds those tokens of `made`, a measured mask of `lex`, with which a string can go on and end within `left`
 * characters. */
void lex_mask_limited(LexMasks *masks, const LexMask *made, uint32_t lex, uint32_t left, uint64_t *mask);
/* Adds those tokens of `made` with which a string in the state `exact` can go on and end within `left`
 * characters. PRECOND the state of `made` takes all strings that `exact` takes */
void lex_mask_rest(LexMasks *masks, const LexMask *made, uint32_t exact, uint32_t left, uint64_t *mask);
