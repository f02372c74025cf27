/* drafter.h - guesses of the tokens that come next, so that one step computes several of them.
 *
 * A step that computes the last token and n guesses after it makes n + 1 rows of logits. The session picks
 * from row after row as it would without guesses; while the pick is the guess, the next row is valid and
 * costs nothing. So a drafter changes no token, whatever it guesses, if the backend gives a row the same
 * bits in steps of one and of several rows (a GPU may round otherwise). guessing.h decides how many guesses
 * a step takes. At temperature > 0 a drafter that knows probabilities draws its guesses with the target's
 * next random numbers. Where drafter and target have the same probabilities, they then pick the same token.
 *
 * A drafter follows one text at a time. It may read hidden states of the target (taps): before the next
 * guesses are asked for, take() gets the states of the rows computed since, except rows that are dropped. */
#pragma once

#include "engine/backend.h"

enum {
  DRAFT_MOST = GUESS_ROWS, /* the most guesses of a step */
  DRAFT_RANKS = 4,         /* kinds of guesses whose success is measured apart */
  MODEL_RANK = 2,          /* the rank of a model's guesses */
};

/* Hidden states of the tokens at positions pos .. pos + n - 1: Backend.read_taps() gives them as rows row ..
 * row + n - 1 of the target, until the target's next step. The text may have been cut at pos: the drafter
 * forgets all states from pos on. */
typedef struct {
  BackendState *target;
  const int32_t *ids; /* [n] the tokens at these positions */
  int pos, row, n;
} DraftRows;

/* A text to be continued. */
typedef struct {
  const int32_t *ids; /* [n] */
  int n;
  int n_computed;         /* < n: tokens that the target has computed; take() got their newest states */
  int n_unchanged;        /* ids[0 .. n_unchanged) are what they were at the last call of propose() */
  const Sampler *sampler; /* the target's: its settings, and the number of the next draw (sampler_draws()) */
} DraftText;

typedef struct {
  int32_t ids[DRAFT_MOST];
  int n;     /* 0: no guess */
  int rank;  /* < DRAFT_RANKS: guesses of a higher rank are more likely right */
  double ms; /* the time they took */
} Guesses;

typedef struct Drafter {
  const char *name; /* for messages and statistics: "text", "model", "eagle3" */
  TapList taps;     /* if taps.n is 0, take() is not called and may be NULL */
  double cost;      /* time of making a guess, in steps of the target; 0: guesses cost nothing */
  void *self;
  Status (*take)(void *self, const DraftRows *rows, Error *err);
  /* Guesses at most `most` (1 .. DRAFT_MOST) tokens after the text. Before the call guesses->n is 0. */
  Status (*propose)(void *self, const DraftText *text, int most, Guesses *guesses, Error *err);
  void (*forget)(void *self); /* called before another text, whose n_unchanged is 0; or NULL */
  void (*close)(void *self);
} Drafter;

/* Drafters of one kind, for several texts at once. */
typedef struct {
  TapList taps;                                                        /* of each drafter */
  Status (*open)(void *user, int n_ctx, Drafter *drafter, Error *err); /* NULL: no drafters */
  size_t (*bytes)(const void *user, int n_ctx); /* about the memory that open() takes */
  bool on_device;                               /* open() takes the backend's memory, not the host's */
  void *user;
} DraftSource;

static inline void drafter_close(Drafter *drafter) {
  if (drafter->close) drafter->close(drafter->self);
  *drafter = (Drafter){.name = NULL};
}
