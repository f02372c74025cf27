/* bench_parallel.h - times many sequences at once for `auk bench --parallel`. */
#pragma once

#include "commands/measure/bench_subject.h"

/* Refuses (STATUS_USAGE) a 0 in any list, tests longer than the model's context, and a device that computes
 * one sequence at a time. Refuses (STATUS_FAILED) tests that the device's memory does not hold. The model
 * need not be loaded. */
Status bench_parallel_check(const BenchSubject *subject, Error *err);

/* Prints a row for each combination of counts, prompts and answers. */
Status bench_parallel(BenchSubject *subject, Error *err);
