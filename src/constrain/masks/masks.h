/* masks.h - which tokens may come next: a bit for each. */
#pragma once

#include "base/arena.h"
#include "constrain/machine.h"
#include "constrain/masks/lex_masks.h"
#include "constrain/masks/vocabulary.h"
#include "constrain/store/key_table.h"

/* Answers of one type. Each is kept by a hash of all that it depends on. */
typedef struct {
  KeyTable table;
  Arena memory; /* of the values */
} KnownTable;

/* A mask as the words that differ from `base`. */
typedef struct {
  const uint64_t *base; /* [v->n_words], NULL: no token */
  uint32_t n;
  uint64_t *words;   /* [n] */
  uint32_t *indices; /* [n] */
} KnownMask;

/* Computes masks of one machine over one vocabulary. Keeps what states have in common. */
typedef struct {
  Machine *m;
  const Vocabulary *v;
  LexMasks lex;
  uint32_t rest_words; /* v->n_rests / 64 + 1 */
  uint64_t *rests;     /* [rest_words] a bit for each of Vocabulary.rests that may follow the quote */
  Lang *telling;       /* [n_telling] languages of keys in patternProperties and propertyNames */
  uint32_t n_telling;
  /* telling[] has all such languages (false: there are too many). Two keys that no keyword names then have
   * the same effect if each of the languages has both or neither. */
  bool tells;

  uint32_t lex_generation;   /* machine.lex_generation when the masks were made */
  KnownTable masks_by_state; /* values: KnownMask */
  KnownTable rests_by_end;   /* values: [rest_words] rests; NULL: the string or key may not end */
} Masks;

Status masks_open(Machine *machine, const Vocabulary *vocabulary, Masks *masks, Error *err);
void masks_close(Masks *masks);
/* Fills mask[0 .. v->n_words). The end of the text is no token here: machine_may_end(). */
void masks_compute(Masks *masks, const JsonState *state, uint64_t *mask);
