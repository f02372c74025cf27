/* repetition.h - whether an answer has begun to go in circles: its last tokens are one passage, again and
 * again.
 *
 * Small models, and large ones that always take the likeliest token, can fall into a text that makes itself
 * likelier with each round; only the end of the context would end it. An answer goes in circles when one
 * passage of up to REPETITION_PASSAGE tokens has come back without a difference REPETITION_ROUNDS times in a
 * row, and for REPETITION_LEAST tokens at least; of long passages REPETITION_MOST tokens are enough:
 *
 *   tokens of the passage             1 .. 16    17 .. 64    65 .. 256
 *   tokens that have come back            256   272 .. 1024      1,024
 *   times that it has come back     256 .. 16            16    15 .. 4
 *
 * An answer that is cut wrongly is worse than a long circle: a row of dashes, a list of a hundred zeros and a
 * table of ten equal lines stay below these bounds. A limit of their own (-n) lets longer ones be. */
#ifndef AUK_COMMANDS_ANSWER_REPETITION_H
#define AUK_COMMANDS_ANSWER_REPETITION_H

#include <stdbool.h>
#include <stdint.h>

enum { REPETITION_PASSAGE = 256, REPETITION_ROUNDS = 16, REPETITION_LEAST = 256, REPETITION_MOST = 1024 };

typedef struct {
  int32_t last[REPETITION_PASSAGE];    /* token i at i % REPETITION_PASSAGE */
  int n_equal[REPETITION_PASSAGE + 1]; /* [p] how many of the last tokens are those p before them */
  int n;                               /* tokens so far, or REPETITION_PASSAGE */
  int at;                              /* where the next one goes */
} Repetition;                          /* starts zeroed */

/* Takes the next token: whether the answer goes in circles by now. */
bool repetition_push(Repetition *repetition, int32_t id);

#endif
