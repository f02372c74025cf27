/* guess.h - the drafter of a command: what its flags say about guessed tokens, and the model of --draft. */
#pragma once

#include "commands/device.h"
#include "commands/model_flags.h"
#include "engine/drafters/published.h"
#include "engine/session.h"

typedef struct {
  int most; /* --guess; -1: not given */
  const char *draft;
} GuessFlags;
extern const Flag guess_flags[2];
#define GUESS_NOT_GIVEN                                                                                      \
  { .most = -1 }
#define GUESS_FLAG_GROUP(Struct, member) FLAG_GROUP_IN("Guesses", guess_flags, Struct, member, GuessFlags)

typedef struct {
  const GuessFlags *flags;
  ModelFlags place_flags; /* of the draft model */
  ModelPlace place;
  Model *model; /* NULL: guesses are made from the text */
  Device device;
  Drafter drafter; /* for the session; opened by guesser_start() */
  /* Options for opening drafters. */
  PublishedOptions published; /* for a drafter trained for the target; its `loaded` is NULL before loading */
  KvType kv;                  /* this and the next three: for any other draft model */
  SamplerSettings sampler;
  int target_vocab;
  double cost; /* time of one guess, as a fraction of the target's step */
} Guesser;     /* starts zeroed */

/* Opens the draft model, if there is one. A model that was not trained for the target must have the target's
 * tokens, or it is refused (tokenizer NULL: any tokens will do). */
Status guesser_open(const GuessFlags *flags, const Model *target, const Tokenizer *tokenizer,
                    const Device *device, Guesser *guesser, Error *err);
/* Sets the session's drafter and its number of guesses, before the session's sizes are known. */
void guesser_choose(Guesser *guesser, const Backend *backend, SessionOptions *options);
/* A source of drafters for several texts at once (batch.h). It can open drafters after guesser_load(). */
DraftSource guesser_source(Guesser *guesser, const Model *target, const Device *device,
                           const SessionOptions *options);
/* The reason why there can be only one drafter at a time; NULL: there can be several. */
const char *guesser_is_for_one(const Guesser *guesser, const ModelConfig *target);
size_t guesser_weights(const Guesser *guesser); /* bytes; 0 without a model */
/* Loads the model of --draft, if there is one, for n drafters. PRECOND the target is loaded on `device`, and
 * options->n_ctx is known */
Status guesser_load(Guesser *guesser, const Model *target, const Device *device,
                    const SessionOptions *options, int n, Error *err);
/* Calls guesser_load() for one drafter, and opens the session's drafter. PRECOND as for guesser_load() */
Status guesser_start(Guesser *guesser, const Model *target, const Device *device,
                     const SessionOptions *options, Error *err);
void guesser_release(Guesser *guesser); /* after session and batch are closed; a zeroed one is fine */
