/* quantise.cuh - activations as integers: a block of inputs shares one scale, each value becomes one int8 or
 * two.
 *
 * Two int8 planes hold 16 bits: x = d (256 high + low) with d = max |x| / 32512. The product with integer
 * weights is exact in int32, so the only error is x's own rounding, max / 65024 at most: with |x| near-normal
 * and blocks of 128 the normalised error is (2.7 / 32512)^2 / 12 = 6e-10, far below fp16's. One plane is
 * W4A8: d = max |x| / 127.
 *
 * A block is F inputs (32, 64 or 128), never longer than a weight group. With {d, d * sum of the block's
 * integers}
 *     sum_k (q - z) s x = s (d * sum_k q X - z * d * sum_k X)
 * Bytes of 64 inputs are permuted like the weights (layout.cuh): byte 16t + 4j + i holds k = tile_k(j, t, i),
 * so the operands of a lane are 16 contiguous bytes. */
#ifndef AUK_CUDA_LINEAR_QUANTISE_CUH
#define AUK_CUDA_LINEAR_QUANTISE_CUH

#include "cuda/linear/layout.cuh"

/* Maximum of non-negative numbers, and sum, over `width` neighbouring lanes (8, 16 or 32); each of them gets
 * it. */
template <int width> __device__ __forceinline__ float segment_max(float v) {
#if __CUDA_ARCH__ >= 800
  unsigned mask = width == 32 ? ~0u : ((1u << width % 32) - 1) << (threadIdx.x % 32 / width * width);
  return __uint_as_float(__reduce_max_sync(mask, __float_as_uint(v)));
#else
#pragma unroll
  for (int o = width / 2; o; o /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
  return v;
#endif
}

template <int width> __device__ __forceinline__ int segment_sum(int v) {
#if __CUDA_ARCH__ >= 800
  unsigned mask = width == 32 ? ~0u : ((1u << width % 32) - 1) << (threadIdx.x % 32 / width * width);
  return __reduce_add_sync(mask, v);
#else
#pragma unroll
  for (int o = width / 2; o; o /= 2) v += __shfl_xor_sync(~0u, v, o);
  return v;
#endif
}

/* Four inputs of a lane as loaded: fp16 k and k + 1, then k + 8 and k + 9. */
struct LaneInputs {
  uint32_t pair[2];
};

/* A warp reads 128 inputs of one token from k0 on: lane l takes word j = l / 4 % 4 of tile l / 16 for t = l %
 * 4. Inputs past n_in are 0; kWhole promises that there are none. */
template <bool kWhole>
__device__ __forceinline__ LaneInputs read_inputs(const __half *x, int k0, int n_in, int lane) {
  LaneInputs in = {{0, 0}};
  int k = k0 + lane / 4 * 16 + 2 * (lane % 4);
#pragma unroll
  for (int i = 0; i < 2; i++, k += 8) {
    if (kWhole || k + 1 < n_in)
      in.pair[i] = __ldcg((const unsigned *)(x + k));
    else if (k < n_in)
      in.pair[i] = __half_as_ushort(x[k]);
  }
  return in;
}

/* Index of the warp in its block; the shuffle shows the compiler that it is uniform in the warp. */
__device__ __forceinline__ int warp_of_block() {
  return __shfl_sync(~0u, threadIdx.x / 32, 0);
}

/* Packs byte `n` of each of four words, the first lowest. */
template <int n> __device__ __forceinline__ uint32_t gather_bytes(const uint32_t (&v)[4]) {
  constexpr uint32_t kPair = n | (4 + n) << 4;
  return prmt<0x5410>(prmt<kPair>(v[0], v[1]), prmt<kPair>(v[2], v[3]));
}

/* Converts four values (k, k + 8, k + 1, k + 9) to one word per plane. Returns the scale d of the lane's
 * block of F inputs and sets *sum to the sum of its integers; all lanes of the warp take part. It rounds by
 * adding 1.5 * 2^23: the low bits of that float are the integer. Two planes add 128 more, so that bits 8 ..
 * 15 are the rounded high plane. */
template <int kIntBytes, int F>
__device__ __forceinline__ float quantise_values(const float (&v)[4], uint32_t (&word)[kIntBytes], int *sum) {
  constexpr float kLargest = kIntBytes == 2 ? 32512.0f : 127.0f;
  constexpr int kHalf = kIntBytes == 2 ? 128 : 0, kStart = 0x4b400000 + kHalf;
  float top = fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3])));
  top = segment_max<F / 4>(top);
  /* One plane divides exactly, because int8_act.cu's definition fixes the integers. With two planes a fast
   * division is accurate enough. A block of zeros gets some scale and integers 0. */
  float least = fmaxf(top, 1e-30f),
        inverse = kIntBytes == 2 ? __fdividef(kLargest, least) : __fdiv_rn(kLargest, least);
  uint32_t q[4];
  int total = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float scaled =
        kIntBytes == 2 ? fmaf(v[i], inverse, 12582912.0f) : __fadd_rn(__fmul_rn(v[i], inverse), 12582912.0f);
    q[i] = __float_as_uint(scaled) + kHalf;
    total += (int)q[i] - kStart;
  }
  if (kIntBytes == 2) {
    word[0] = gather_bytes<1>(q);
    word[kIntBytes - 1] = gather_bytes<0>(q) ^ 0x80808080u; /* subtracts the 128 */
  } else {
    word[0] = gather_bytes<0>(q);
  }
  *sum = segment_sum<F / 4>(total);
  return top * (1.0f / kLargest);
}

template <int kIntBytes, int F>
__device__ __forceinline__ float quantise_inputs(const LaneInputs &in, uint32_t (&word)[kIntBytes],
                                                 int *sum) {
  const float v[4] = {f16_low(in.pair[0]), f16_low(in.pair[1]), f16_high(in.pair[0]), f16_high(in.pair[1])};
  return quantise_values<kIntBytes, F>(v, word, sum);
}

#endif
