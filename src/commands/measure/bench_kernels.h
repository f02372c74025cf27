/* bench_kernels.h - times single kernels for `auk bench`. */
#pragma once

#include "commands/measure/bench_subject.h"
#include "engine/probe.h"

/* Prints the table of `auk bench --kernels`; empty times->n_tokens: powers of two from 1 to 4,096. Refused
 * (STATUS_FAILED) if the device has no choice of kernels. */
Status bench_kernels(BenchSubject *subject, const KernelTimesOptions *times, Error *err);
