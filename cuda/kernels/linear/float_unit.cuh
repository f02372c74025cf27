/* float_unit.cuh - how a warp's lanes hold the scales of FP8 and FP4 weights for one token: a word a lane for
 * each unit of 16 outputs by 128 inputs. Included by float_mma.cu and float_experts.cu. */
#pragma once

#include "cuda/kernels/linear/skinny_gemm.cuh"

namespace skinny_gemm {

/* Column c of the product holds the sums of inputs 16 c .. 16 c + 15 of the unit (float_mma.cu).
 *   at     where the words of a warp begin
 *   own    the offset of the lane's word from `at`
 *   get    the scales of rows g and g + 8 for columns 2t and 2t + 1, from that word
 * (g, t) = (lane / 4, lane % 4). */
template <class W> struct UnitScale;

/* One scale for the unit. */
template <> struct UnitScale<Fp8> {
  static __device__ __forceinline__ const uint32_t *at(const QuantView &w, int tile_row, int unit) {
    return w.scales + Fp8::meta_at(w, tile_row, unit * kUnitIn);
  }

  static __device__ __forceinline__ int own() { return threadIdx.x % 32 / 4; }

  static __device__ __forceinline__ void get(uint32_t word, float2 (&of)[2]) {
    of[0] = of[1] = make_float2(f16_low(word), f16_high(word));
  }
};

/* Two scales of 8 bits for each column. */
template <> struct UnitScale<Fp4> {
  static __device__ __forceinline__ const uint32_t *at(const QuantView &w, int tile_row, int unit) {
    return (const uint32_t *)Fp4::meta_at(w, tile_row, 2 * unit);
  }

  static __device__ __forceinline__ int own() {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    return t / 2 * (Fp4::kMetaBytes / 4) + 2 * g + t % 2;
  }

  static __device__ __forceinline__ void get(uint32_t word, float2 (&of)[2]) {
    const uint32_t even = prmt<0x4140>(word, 0u) << 7, odd = prmt<0x4342>(word, 0u) << 7;
    of[0] = make_float2(f16_low(even), f16_high(even));
    of[1] = make_float2(f16_low(odd), f16_high(odd));
  }
};

} // namespace skinny_gemm

/* float_mma's launch of one token's experts. */
Status launch_float_experts(const LinearArgs &args, Error *err);
