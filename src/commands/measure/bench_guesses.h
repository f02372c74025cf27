/* bench_guesses.h - times steps with guessed tokens for `auk bench --accept`. */
#pragma once

#include "commands/measure/bench_subject.h"

/* Refuses (STATUS_USAGE) tests longer than the model's context. The model need not be loaded. */
Status bench_guesses_check(const BenchSubject *subject, Error *err);

/* Prints a row for each combination of guesses, depths and answers, but no row for answers of 0 tokens. */
Status bench_guesses(BenchSubject *subject, Error *err);
