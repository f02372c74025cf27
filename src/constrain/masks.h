/* masks.h - which tokens may come next: a bit for each. */
#pragma once

#include "constrain/machine.h"
#include "constrain/vocabulary.h"

typedef struct LexMask LexMask;

/* Computes masks of one machine over one vocabulary, and keeps what strings of a state have in common. */
typedef struct {
  Machine *m;
  const Vocabulary *v;
  LexMask *lex_masks; /* [n_lex_masks] by the number of the state; without ids where not made */
  size_t n_lex_masks;
  size_t kept_bytes; /* of all lex_masks */
  bool *rests;       /* [v->n_rests] what may follow the quote of the string or key that is open */
  bool *few_rests;   /* [v->n_rests] what may follow one that is a key with a name of its own */
  uint64_t serial;   /* of the frame whose string or key `rests` are of; 0: none */
  bool ends;         /* that string or key may end */
} Masks;

Status masks_open(Machine *machine, const Vocabulary *vocabulary, Masks *masks, Error *err);
void masks_close(Masks *masks);
/* Fills mask[0 .. v->n_words). The end of the text is no token here: machine_may_end(). */
void masks_compute(Masks *masks, const JsonState *state, uint64_t *mask);
