/* repetition.h - detects an answer that loops: its last tokens repeat one passage again and again.
 *
 * Small models, and greedy decoding with large ones, can fall into a text that gets likelier with each round,
 * until the context is full. An answer loops when a passage of up to REPETITION_PASSAGE tokens has repeated
 * exactly, REPETITION_ROUNDS times in a row, over at least REPETITION_LEAST tokens; for long passages
 * REPETITION_MOST tokens suffice:
 *
 *   tokens of the passage             1 .. 16    17 .. 64    65 .. 256
 *   tokens that have come back            256   272 .. 1024      1,024
 *   times that it has come back     256 .. 16            16    15 .. 4
 *
 * The bounds are high because a wrong cut is worse than a long loop: a row of dashes, a list of a hundred
 * zeros and a table of ten equal lines pass. An explicit limit (-n) allows longer loops. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { REPETITION_PASSAGE = 256, REPETITION_ROUNDS = 16, REPETITION_LEAST = 256, REPETITION_MOST = 1024 };

typedef struct {
  int32_t last[REPETITION_PASSAGE];    /* token i at i % REPETITION_PASSAGE */
  int n_equal[REPETITION_PASSAGE + 1]; /* [p] how many last tokens equal the token p positions earlier */
  int n;                               /* number of tokens so far, at most REPETITION_PASSAGE */
  int at;                              /* index for the next token */
} Repetition;                          /* starts zeroed */

/* Adds a token; true: the answer loops. */
bool repetition_push(Repetition *repetition, int32_t id);
