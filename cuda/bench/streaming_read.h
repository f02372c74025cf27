/* streaming_read.h - a kernel that only reads, as fast as memory gives: the measure of the others. */
#ifndef AUK_CUDA_BENCH_STREAMING_READ_H
#define AUK_CUDA_BENCH_STREAMING_READ_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads `bytes` of `from` (both multiples of 16) once. `never` is device memory of 4 bytes, for a result that
 * nobody needs and the compiler must not know. */
Status streaming_read(const void *from, size_t bytes, int n_sms, unsigned *never, cudaStream_t stream,
                      Error *err);

#ifdef __cplusplus
}
#endif
#endif
