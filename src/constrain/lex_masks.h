/* lex_masks.h - the tokens that stay inside a string of a restricted language, by the state of its text. */
#pragma once

#include "constrain/machine.h"
#include "constrain/vocabulary.h"

/* A quote that ends the string, in a mask that began within a character or an escape. */
typedef struct {
  uint32_t node;     /* of the tokens' trie */
  uint32_t lex;      /* state before the quote */
  uint32_t n_before; /* bytes of the token before the quote */
} LexExit;

/* A token that stays inside. */
typedef struct {
  int32_t id;
  uint32_t enough; /* strings of so many characters can hold it and end; UINT32_MAX: unknown */
} LexToken;

#define N_ENOUGH 24

/* The tokens that stay inside a string without limit on its characters (lex_alone()). */
typedef struct {
  bool made, planned;
  bool measured; /* `enough` and `beyond` are known */
  /* Strings of up to `depth` characters of the classes `whole` may all follow. Among them no character of
   * other classes than `others` may. */
  uint64_t whole, others;
  uint32_t depth;
  uint32_t enough[N_ENOUGH]; /* strings of so many characters can begin with n such ones and end */
  uint32_t beyond;           /* characters that at most are needed after them to end */
  const uint64_t *base;      /* [n_words] tokens of such strings; NULL: all are in `tokens` */
  LexToken *tokens;          /* [n_tokens] further ones */
  size_t n_tokens, tokens_capacity;
  LexExit *exits; /* [n_exits] only where the state is not between characters */
  size_t n_exits, exits_capacity;
} LexMask;

/* Tokens of up to `depth` characters of some classes, made once. */
typedef struct {
  uint64_t whole;
  uint32_t depth;
  uint64_t *tokens; /* [n_words] */
} LexBase;

typedef struct {
  Machine *m;
  const Vocabulary *v;
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
/* The mask of a state; `measured`: with the characters that tokens need for the string to end.
 * PRECOND between characters: a state of lex_alone(). NULL on failure, which the machine keeps. It stays
 * until the next call. */
const LexMask *lex_mask(LexMasks *masks, uint32_t lex, bool measured);
/* Strings of so many characters can begin with n of `whole` and end. */
uint32_t lex_enough(const LexMask *made, uint32_t n_characters);
/* True if a string goes on with the token and can end after at most `left` characters. */
bool lex_takes_token(LexMasks *masks, uint32_t lex, int32_t id, uint32_t left);
