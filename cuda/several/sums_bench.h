/* sums_bench.h - how long a sum over the GPUs that share a model takes. Called by: several.c. */
#pragma once

#include "engine/backend.h"

/* microseconds[i] = the time of one sum of rows[i] rows by the separate kernels of a step, with the addition
 * to the residual stream and the next RMSNorm. Each is the median of some runs of a graph of sums. states:
 * [n_gpus] of one session, whose max_chunk is at least every rows[i]. */
Status sums_bench(BackendState *const *states, int n_gpus, const int *rows, int n, double *microseconds,
                  Error *err);
