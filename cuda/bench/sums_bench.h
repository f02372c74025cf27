/* sums_bench.h - how long a sum over the GPUs that share a model takes. Called by: backend.c's probe. */
#pragma once

#include "engine/backend.h"

/* microseconds[i] = one of several sums one after another, in a graph, of rows[i] rows, as the separate
 * kernels of a step make them: with the addition to the residual stream and the next RMSNorm. The median of a
 * few runs. PRECOND loaded is shared by several GPUs. */
Status sums_bench(BackendModel *loaded, const int *rows, int n, double *microseconds, Error *err);
