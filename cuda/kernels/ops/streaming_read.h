/* streaming_read.h - the ceiling of all kernels: memory read once. Called by: kernel_bench.c. */
#pragma once

#include <cuda_runtime_api.h>
#include <stddef.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads `bytes` of `from` (both multiples of 16) once, at memory bandwidth: the ceiling of the kernels.
 * `never` is 4 bytes of device memory for an unused result, without which the compiler would drop the
 * reads. */
Status streaming_read(const void *from, size_t bytes, int n_sms, unsigned *never, cudaStream_t stream,
                      Error *err);

#ifdef __cplusplus
}
#endif
