/* repetition.h - whether an answer has begun to go in circles: its last tokens are one passage, again and
 * again.
 *
 * Small models, and large ones that are asked for the likeliest token always, can fall into a text that makes
 * itself likelier with each round; nothing but the end of the context would end it. A passage of up to
 * REPETITION_PASSAGE tokens that has come back without a difference for REPETITION_ROUNDS tokens is such a
 * text, or one that somebody wants: of those that people want (a row of dots, a table of zeros, a line to be
 * written a hundred times) few are that long, and a limit of their own (-n) lets them be. */
#ifndef AUK_COMMANDS_ANSWER_REPETITION_H
#define AUK_COMMANDS_ANSWER_REPETITION_H

#include <stdbool.h>
#include <stdint.h>

enum { REPETITION_PASSAGE = 256, REPETITION_ROUNDS = 1024 };

typedef struct {
  int32_t last[REPETITION_PASSAGE];    /* token i at i % REPETITION_PASSAGE */
  int n_equal[REPETITION_PASSAGE + 1]; /* [p] how many of the last tokens are those p before them */
  int n;                               /* tokens so far, or REPETITION_PASSAGE */
  int at;                              /* where the next one goes */
} Repetition;                          /* starts zeroed */

/* Takes the next token: whether the answer goes in circles by now. */
bool repetition_push(Repetition *repetition, int32_t id);

#endif
