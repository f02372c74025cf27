/* pairs.cuh - rows of numbers that products read, each of fp16 or a pair of it: rounded, and 2^11 times what
 * that leaves, rounded again.
 *
 *     v = high + low / 2048        of a pair; it errs by at most 2^-23 |v|, below 2^-14 by 2^-36
 *
 * low is at most half of high, and has fp16's whole precision as long as high has. A row of pairs is all of
 * its highs and, half its stride behind them, all of its lows: to what copies rows these are two matrices.
 * Written by: layer.cu, attention_plain.cu, epilogue.cuh.   Multiplied by: awq_tensorcore.cu. */
#ifndef AUK_CUDA_PAIRS_CUH
#define AUK_CUDA_PAIRS_CUH

#include <cuda_fp16.h>

constexpr float kPairScale = 2048;

/* fp16 without overflow: no real activation is infinite. NaN stays NaN. */
__device__ __forceinline__ __half clamp_half(float v) {
  return __float2half_rn(fabsf(v) > 65504.0f ? copysignf(65504.0f, v) : v);
}

/* A row to write to or to read from. */
template <bool kPairs> struct ActRow {
  __half *high;
  size_t to_low;

  __device__ __forceinline__ ActRow(const void *rows, size_t row, size_t stride)
      : high((__half *)rows + row * stride), to_low(stride / 2) {}

  __device__ __forceinline__ float load(int i) const {
    float v = __half2float(high[i]);
    return kPairs ? v + __half2float(high[to_low + i]) * (1 / kPairScale) : v;
  }

  /* v limited to fp16's range. */
  __device__ __forceinline__ void store_limited(int i, float v) const {
    __half rounded = clamp_half(v);
    high[i] = rounded;
    if (!kPairs) return;
    float left = fabsf(v) > 65504.0f ? 0.0f : v - __half2float(rounded);
    high[to_low + i] = __float2half_rn(left * kPairScale);
  }

  /* The same of numbers that are known to be within it. */
  __device__ __forceinline__ void store(int i, float v) const {
    if (kPairs)
      store_limited(i, v);
    else
      high[i] = __float2half_rn(v);
  }
};

#endif
