/* order.h - x permuted as a matrix's inputs are (act-order, Linear.order).   Called by: products.c. */
#pragma once

#include <cuda_runtime_api.h>

#include "base/status.h"

C_BEGIN

/* out[row][i] = x[row][order[i]] for i < n, fp16. PRECOND n and out_stride are even, out is 4-byte
 * aligned. */
Status ops_order_inputs(const void *x, int x_stride, const int *order, int n, int n_rows, void *out,
                        int out_stride, cudaStream_t stream, Error *err);

C_END
