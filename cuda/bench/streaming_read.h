/* streaming_read.h - a kernel that only reads, at memory bandwidth: the ceiling of the others. */
#ifndef AUK_CUDA_BENCH_STREAMING_READ_H
#define AUK_CUDA_BENCH_STREAMING_READ_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads `bytes` of `from` (both multiples of 16) once. `never` is 4 bytes of device memory for an unused
 * result, without which the compiler would drop the reads. */
Status streaming_read(const void *from, size_t bytes, int n_sms, unsigned *never, cudaStream_t stream,
                      Error *err);

#ifdef __cplusplus
}
#endif
#endif
