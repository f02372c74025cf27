/* random_weights.h - random numbers on the device where a checkpoint's weights would be, for measuring speed.
 *
 * Called by: weights.c for a model made from a config alone, kernel_bench.c. Numbers are made as a checkpoint
 * would store them and laid out by linear_fill_*(), so that padding is what it always is. The same seed gives
 * the same numbers on any device. A product has about its input's variance, as with model/dummy.c's. */
#ifndef AUK_CUDA_BENCH_RANDOM_WEIGHTS_H
#define AUK_CUDA_BENCH_RANDOM_WEIGHTS_H

#include "cuda/linear/linear.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of device memory that random_linear() needs at least for this matrix; with some MB it is fast. */
size_t random_staging_bytes(const DeviceLinear *linear);

/* All of a placed matrix: any weights and zero points, positive scales, a small bias. `staging` is 256-byte
 * aligned device memory that is the stream's until it has got here. */
Status random_linear(const DeviceLinear *linear, void *staging, size_t staging_bytes, uint64_t seed,
                     cudaStream_t stream, Error *err);

/* n numbers of fp16, bf16 or fp32 from low to high, evenly distributed. */
Status random_numbers(void *to, WeightType type, size_t n, float low, float high, uint64_t seed,
                      cudaStream_t stream, Error *err);

#ifdef __cplusplus
}
#endif
#endif
