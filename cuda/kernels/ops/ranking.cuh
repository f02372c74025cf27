/* ranking.cuh - the order of tokens by their logits, and the check for NaN and infinite logits. For the
 * samplers, and for fused steps, which find the best token themselves. All arithmetic is of integers
 * (sampler_math.h). */
#pragma once

#include "base/sampler_math.h"
#include "cuda/kernels/ops/sample.h"

namespace sampling {

/* Orders tokens by key, equal keys by lower id: the better token has the greater number. */
__device__ __forceinline__ unsigned long long ranked(uint32_t key, int id) {
  return (unsigned long long)key << 32 | (uint32_t)~id;
}
__device__ __forceinline__ uint32_t ranked_key(unsigned long long number) {
  return (uint32_t)(number >> 32);
}
__device__ __forceinline__ int ranked_id(unsigned long long number) {
  return (int)~(uint32_t)number;
}

/* Updates the extremes by a token: *greatest is the best token's ranked(), *lowest the least key. */
__device__ __forceinline__ void judge_token(float logit, int id, unsigned long long *greatest,
                                            unsigned int *lowest) {
  const uint32_t key = sampler_key(logit);
  const unsigned long long number = ranked(key, id);
  *greatest = number > *greatest ? number : *greatest;
  *lowest = min(*lowest, key);
}

/* Maximum and minimum over the warp, in every lane. */
__device__ __forceinline__ void warp_extremes(unsigned long long *greatest, unsigned int *lowest) {
  for (int step = 16; step; step /= 2) {
    unsigned long long other = __shfl_xor_sync(~0u, *greatest, step);
    *greatest = other > *greatest ? other : *greatest;
    *lowest = min(*lowest, __shfl_xor_sync(~0u, *lowest, step));
  }
}

/* Judges logits by their greatest and lowest key; SAMPLED_TOKEN: the logits are fine. */
__device__ __forceinline__ SampledKind kind_of(uint32_t greatest, uint32_t lowest) {
  if (lowest < SAMPLER_KEY_LOWEST || greatest >= SAMPLER_KEY_INFINITE) return SAMPLED_NAN;
  return greatest <= SAMPLER_KEY_LOWEST ? SAMPLED_NOTHING_FINITE : SAMPLED_TOKEN;
}

/* Writes a pick to *slot in host memory, unless slot is NULL. One store: a fence between two stores would
 * wait for the host's memory. */
__device__ __forceinline__ void tell_host(Sampled *slot, int32_t id, int kind) {
  if (slot) *(volatile unsigned long long *)slot = (unsigned long long)kind << 32 | (uint32_t)id;
}

} // namespace sampling
