/* bench_kernels.h - times single kernels for `auk bench`. */
#pragma once

#include "commands/measure/bench_subject.h"
#include "engine/probe.h"

/* Prints the table of `auk bench --kernels`. If times->n_counts is 0, the counts of rows are the powers of
 * two from 1 to 4,096. Refuses (STATUS_FAILED) a device that has no choice of kernels. */
Status bench_kernels(BenchSubject *subject, const KernelTimesOptions *times, Error *err);
