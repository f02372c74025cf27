/* against.h - the logits of a second model beside those of the first: how far two checkpoints of one model
 * differ. */
#pragma once

#include "commands/device.h"
#include "commands/model_flags.h"
#include "engine/session.h"

/* A model that tokens are fed to, in windows. Starts zeroed. */
typedef struct {
  ModelFlags flags;
  ModelPlace place;
  Model *model;
  Device device;
  Session *session;
} Evaluated;

/* Opens the model at `path` for windows of `window` tokens; `device` must outlive it. evaluated_close() it,
 * also after a failure. */
Status evaluated_open(const char *path, const DeviceFlags *device, int window, Evaluated *e, Error *err);
void evaluated_close(Evaluated *e);
enum { EVALUATED_ROWS = 64 }; /* rows of logits in memory: 64 rows of 150,000 are 38 MB */
/* Loads a model on its device, and opens a session for windows. chunk: tokens computed at once, 0: the
 * device's default. PRECOND device_fit() */
Status evaluated_session(Device *device, Model *model, int window, int chunk, Session **session, Error *err);

typedef struct {
  Evaluated second;
  const int32_t *ids; /* [n] the current window */
  int n;
  float *logits; /* [EVALUATED_ROWS][vocab_size] of rows first .. first + n_rows - 1 */
  int first, n_rows;
  double *divergences; /* [n_taken] KL of each row */
  size_t n_taken, capacity, n_same, n_scored;
  double nll, first_nll; /* sums of -ln p over the scored tokens, by the second and the first model */
} Against;               /* starts zeroed; close it also after a failure */

/* Opens the model at `path` for windows of `window` tokens. Refuses a vocabulary of another size than that of
 * `first`. */
Status against_open(const char *path, const DeviceFlags *device, const Model *first, int window,
                    Against *against, Error *err);
/* Refuses a model whose tokenizer decodes the tokens to another text than `first`'s, if both have one. */
Status against_check_text(const Against *against, const Model *first, const int32_t *ids, size_t n,
                          Error *err);
void against_close(Against *against);
/* Begins a window: the tokens ids[0..n), which must stay valid until the next window or the end. */
Status against_begin(Against *against, const int32_t *ids, int n, Error *err);
/* Takes the first model's logits of the next row of the window; `user` is the Against. */
Status against_take(void *user, int row, const float *logits, Error *err);

/* The second model's distribution is p, the first one's q: KL = sum of p ln(p / q). */
typedef struct {
  double mean, most_of_99; /* KL: mean over all rows; value that 99 % of them do not exceed */
  double same_top;         /* share of rows whose likeliest token is the same (or as likely) */
  double nll, first_nll;   /* mean -ln p of the second and of the first model */
} Differences;
Differences against_differences(Against *against);
