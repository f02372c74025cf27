/* guess.h - the drafter of a command: what its flags say about guessed tokens, and the model of --draft. */
#pragma once

#include "commands/device.h"
#include "commands/model_flags.h"
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
  Drafter drafter;
} Guesser; /* starts zeroed */

/* Opens the draft model, if there is one, and refuses one whose tokens are not the target's (tokenizer NULL:
 * any). */
Status guesser_open(const GuessFlags *flags, const Model *target, const Tokenizer *tokenizer,
                    const Device *device, Guesser *guesser, Error *err);
/* Sets the session's drafter and its number of guesses, before the session's sizes are known. */
void guesser_choose(Guesser *guesser, const Backend *backend, SessionOptions *options);
/* Loads the draft model. PRECOND the target is loaded on `device`, and options->n_ctx is known */
Status guesser_start(Guesser *guesser, const Model *target, const Device *device,
                     const SessionOptions *options, Error *err);
void guesser_release(Guesser *guesser); /* after the session is closed; a zeroed one is fine */
