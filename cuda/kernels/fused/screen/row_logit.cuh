/* row_logit.cuh - a logit of lm_head in fp16 by one warp, with the same bits wherever it is made.
 *
 * The row is cut into spans of 256 inputs, and a lane has eight neighbouring inputs of each span. Four sums,
 * each of every fourth span, are added up over the lanes and then to each other. multiply_lm_head()
 * (one_lm_head.cuh) gives each of the four sums to a warp. */
#pragma once

#include "cuda/kernels/fused/plan.h"
#include "cuda/kernels/ptx/halves.cuh"
#include "cuda/kernels/ptx/lanes.cuh"

namespace step {

constexpr int kSpan = 256; /* inputs of a span */

__device__ __forceinline__ void add_products(float &low, float &high, uint32_t w, uint32_t x) {
  low += f16_low(w) * f16_low(x);
  high += f16_high(w) * f16_high(x);
}
__device__ __forceinline__ void add_products(float &low, float &high, const uint4 &w, const uint4 &x) {
  add_products(low, high, w.x, x.x);
  add_products(low, high, w.y, x.y);
  add_products(low, high, w.z, x.z);
  add_products(low, high, w.w, x.w);
}

/* The logit of a row in device memory, in every lane. inputs(i) is the eight inputs from the i-th on, in
 * fp16. PRECOND rows begin at multiples of 16 bytes, and hidden is a multiple of kSpan (if
 * kPart: of 8). */
template <bool kPart, class Inputs>
__device__ __forceinline__ float row_logit(const unsigned char *row, int hidden, int lane, Inputs inputs) {
  constexpr int kSums = STEP_WARPGROUP_WARPS;
  const int spans = (hidden + (kPart ? kSpan - 1 : 0)) / kSpan;
  float low[kSums] = {}, high[kSums] = {}, sums[kSums];
#pragma unroll 2
  for (int first = 0; first < spans; first += kSums) {
    uint4 w[kSums];
#pragma unroll
    for (int i = 0; i < kSums; i++)
      w[i] = __ldg((const uint4 *)(row + (kPart ? min((first + i) * (kSpan * 2) + 16 * lane, hidden * 2 - 16)
                                                : min(first + i, spans - 1) * (kSpan * 2) + 16 * lane)));
#pragma unroll
    for (int i = 0; i < kSums; i++)
      if (kPart ? (first + i) * kSpan + 8 * lane < hidden : first + i < spans)
        add_products(low[i], high[i], w[i], inputs((first + i) * kSpan + 8 * lane));
  }
#pragma unroll
  for (int i = 0; i < kSums; i++) sums[i] = warp_sum(low[i] + high[i]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

} // namespace step
