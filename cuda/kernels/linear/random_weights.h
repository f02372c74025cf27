/* random_weights.h - for measuring speed: random weights on the device instead of a checkpoint's, and a
 * kernel that only reads memory, whose bandwidth no matmul can exceed.
 *
 * Numbers are made as a checkpoint would store them, and laid out by linear_fill_*(). A seed and a size of
 * the staging memory give the same numbers on any device. Outputs of a matmul have about the variance of its
 * inputs, as with model/dummy.c. */
#pragma once

#include "cuda/kernels/linear/linear.h"

C_BEGIN

/* Fewest bytes of staging memory with which random_linear() can fill this matrix; some MB make it fast. */
size_t random_staging_bytes(const DeviceLinear *linear);

/* Fills a placed matrix: any weights and zero points, positive scales, a small bias. `staging` is 256-byte
 * aligned device memory, in use until the stream has done the work. */
Status random_linear(const DeviceLinear *linear, void *staging, size_t staging_bytes, uint64_t seed,
                     cudaStream_t stream, Error *err);

/* Fills n elements of fp16, bf16 or fp32 with uniform numbers from low to high. */
Status random_numbers(void *to, WeightType type, size_t n, float low, float high, uint64_t seed,
                      cudaStream_t stream, Error *err);

/* Reads `bytes` of `from` (both multiples of 16) once, at memory bandwidth: the ceiling of the kernels.
 * never: 4 bytes of device memory for an unused result. Without it the compiler would drop the reads. */
Status streaming_read(const void *from, size_t bytes, int n_sms, unsigned *never, cudaStream_t stream,
                      Error *err);

C_END
