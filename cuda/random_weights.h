/* random_weights.h - random numbers on the device where a checkpoint's weights would be, for measuring speed.
 *
 * Called by: weights.c for a model made from a config alone, kernel_bench.c. The same seed gives the same
 * numbers on any device. A product has about its input's variance, as with those of src/model/dummy.c. */
#ifndef AUK_CUDA_RANDOM_WEIGHTS_H
#define AUK_CUDA_RANDOM_WEIGHTS_H

#include "cuda/linear.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All of a placed matrix: any weights and zero points, positive scales, a small bias. Padded rows keep
 * scale 0, padded columns of dense rows 0; padded inputs of quantised ones meet an x of 0 (layout.cuh). */
Status random_linear(const DeviceLinear *linear, uint64_t seed, cudaStream_t stream, Error *err);

/* n numbers of fp16, bf16 or fp32 from low to high, evenly distributed. */
Status random_numbers(void *to, WeightType type, size_t n, float low, float high, uint64_t seed,
                      cudaStream_t stream, Error *err);

#ifdef __cplusplus
}
#endif
#endif
