/* against.h - the logits of a second model beside those of the first: how far two checkpoints of one model
 * differ. */
#pragma once

#include "commands/device.h"
#include "commands/model_flags.h"
#include "engine/session.h"

typedef struct {
  ModelFlags flags;
  ModelPlace place;
  Model *model;
  Device device;
  Session *session;
  const int32_t *ids; /* [n] the current window */
  int n;
  float *logits; /* [rows of a step][vocab_size] of rows first .. first + n_rows - 1 */
  int first, n_rows;
  double *divergences; /* [n_taken] KL of each row */
  size_t n_taken, capacity, n_same, n_scored;
  double nll; /* sum of -ln p over the scored tokens, by the second model */
} Against;    /* starts zeroed; close it also after a failure */

/* Opens the model at `path` for windows of `window` tokens. Refuses another vocabulary than that of `first`.
 * */
Status against_open(const char *path, const DeviceFlags *device, const Model *first, int window,
                    Against *against, Error *err);
void against_close(Against *against);
/* Begins a window of tokens, which the caller keeps. */
Status against_begin(Against *against, const int32_t *ids, int n, Error *err);
/* Takes the first model's logits of the next row of the window. `next`: the token that follows, -1: none. */
Status against_take(Against *against, int row, const float *logits, int32_t next, Error *err);

/* The second model's distribution is p, the first one's q: KL = sum of p ln(p / q). */
typedef struct {
  double mean, most_of_99; /* of KL over all rows; the value that 99 % of the rows do not exceed */
  double same_top;         /* share of rows whose likeliest token is the same (or as likely) */
  double nll;              /* mean, by the second model */
} Differences;
Differences against_differences(Against *against);
