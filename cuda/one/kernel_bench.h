/* kernel_bench.h - times each kernel of the dispatch table with those matrices of a model that the kernel
 * takes.
 *
 * table.c has these functions in its BackendProbe (contracts: engine/probe.h). Each matrix is random and has
 * more copies than L2 holds. A captured graph cycles through the copies; the median over its launches is
 * reported. Very small matrices stay in L2 even so: the number of copies is limited. */
#pragma once

#include "engine/probe.h"

Status kernel_bench(const Model *model, const BackendOptions *options, const KernelTimesOptions *times,
                    KernelTimeSink sink, void *user, Error *err);

/* Measures only the machine's rates, which kernel_bench() reports first. */
Status kernel_bench_machine(const BackendOptions *options, MachineRates *rates, Error *err);
