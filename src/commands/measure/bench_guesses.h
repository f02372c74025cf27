/* bench_guesses.h - times steps with guessed tokens for `auk bench --accept`. */
#pragma once

#include "commands/device.h"
#include "commands/measure/bench_table.h"

typedef struct {
  const Device *device; /* loaded */
  const Model *model;
  const char *model_name;
  const char *draft;                        /* the draft model, or NULL: guesses cost nothing */
  const IdList *guesses, *depths, *answers; /* of a step; tokens before; tokens to generate */
  double accept;                            /* the chance that a guess is right */
  const SamplerSettings *sampler;
  KvType kv;
  int repetitions;
  const volatile int *interrupted;
} GuessTests;

/* Refuses (STATUS_USAGE) tests longer than the model's context. The model need not be loaded. */
Status bench_guesses_check(const GuessTests *tests, Error *err);

/* Prints a row for each number of guesses, of tokens before, and of tokens to generate. */
Status bench_guesses(const GuessTests *tests, TableForm form, Error *err);
