/* kernel_bench.h - the dispatch table by the clock: every row that can run on every matrix of a model.
 *
 * Called by: backend.c, whose time_kernels and measure_machine these are (engine/probe.h has the
 * contracts). Matrices are made at random in as many copies as the L2 cache cannot hold, calls go round
 * them inside one captured graph, and what is told is the median over launches of that graph. Very small
 * matrices stay in the cache even so. */
#ifndef AUK_CUDA_BENCH_KERNEL_BENCH_H
#define AUK_CUDA_BENCH_KERNEL_BENCH_H

#include "engine/probe.h"

Status kernel_bench(const Model *model, const BackendOptions *options, const KernelTimesOptions *times,
                    KernelTimeSink sink, void *user, Error *err);

/* What the first two rows of that table are made of. */
Status kernel_bench_machine(const BackendOptions *options, MachineRates *rates, Error *err);

#endif
