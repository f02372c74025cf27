/* bench_guesses.h - times steps with guessed tokens for `auk bench --accept`. */
#pragma once

#include "commands/measure/bench_subject.h"

typedef struct {
  BenchSubject *subject;
  const char *draft;                        /* the draft model, or NULL: guesses cost nothing */
  const IdList *guesses, *depths, *answers; /* guesses per step; tokens before the answer, and in it */
  double accept;                            /* the chance that a guess is right */
} GuessTests;

/* Refuses (STATUS_USAGE) tests longer than the model's context. The model need not be loaded. */
Status bench_guesses_check(const GuessTests *tests, Error *err);

/* Prints a row for each combination of guesses, depths and answers; none for answers of 0 tokens. */
Status bench_guesses(const GuessTests *tests, Error *err);
