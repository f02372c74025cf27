/* planes.cuh - activations as integers: a block of inputs shares one scale, each value becomes one or two int8.
 *
 * Two planes hold 16 bits: x = d (256 high + low) with d = max |x| / 32512, so that the product with integer weights
 * is exact in int32 and the only error is x's own rounding, max / 65024 at most: with |x| near-normal and blocks of
 * 128 the normalised error is (2.7 / 32512)^2 / 12 = 6e-10, far below fp16's. One plane is W4A8: d = max |x| / 127.
 *
 * A block is F inputs (32, 64 or 128), never longer than a weight group, so that with {d, d * sum of its integers}
 *     sum_k (q - z) s x = s (d * sum_k q X - z * d * sum_k X)
 * Bytes of 64 inputs are permuted like the weights (layout.cuh): byte 16t + 4j + i holds k = tile_k(j, t, i), so a
 * lane's share is 16 contiguous bytes. */
#ifndef AUK_CUDA_PLANES_CUH
#define AUK_CUDA_PLANES_CUH

#include "cuda/layout.cuh"

/* Maximum and sum over `width` neighbouring lanes (a power of two), in every lane of them. */
template <int width> __device__ __forceinline__ float segment_max(float v) {
#pragma unroll
  for (int o = width / 2; o; o /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
  return v;
}

template <int width> __device__ __forceinline__ int segment_sum(int v) {
#pragma unroll
  for (int o = width / 2; o; o /= 2) v += __shfl_xor_sync(~0u, v, o);
  return v;
}

/* Four inputs of a lane, as they lie in one permuted word. */
struct LaneInputs {
  float v[4]; /* k, k + 8, k + 1, k + 9 */
};

/* A warp reads 128 inputs of one row from k0 on: lane l takes word j = l / 4 % 4 of tile l / 16 for t = l % 4.
 * Inputs past n_in are 0, and so are all where x is NULL. */
__device__ __forceinline__ LaneInputs read_inputs(const __half *x, int k0, int n_in, int lane) {
  LaneInputs in = {{0, 0, 0, 0}};
  if (!x) return in;
#pragma unroll
  for (int pair = 0; pair < 2; pair++) {
    int k = k0 + lane / 4 * 16 + 2 * (lane % 4) + 8 * pair;
    if (k + 1 < n_in) {
      uint32_t both = __ldcg((const unsigned *)(x + k));
      in.v[pair] = scale_low(both);
      in.v[pair + 2] = scale_high(both);
    } else if (k < n_in) {
      in.v[pair] = __half2float(x[k]);
    }
  }
  return in;
}

/* The four values as one word of each plane; *sum is the sum of integers over the block of F inputs the lane is in
 * and the return value is its scale d. All lanes of the warp take part. */
template <int kPlanes, int F>
__device__ __forceinline__ float quantise_inputs(const LaneInputs &in, uint32_t (&word)[kPlanes], int *sum) {
  constexpr float kLargest = kPlanes == 2 ? 32512.0f : 127.0f;
  float top = fmaxf(fmaxf(fabsf(in.v[0]), fabsf(in.v[1])), fmaxf(fabsf(in.v[2]), fabsf(in.v[3])));
  top = segment_max<F / 4>(top);
  float inverse = top > 0 ? kLargest / top : 0.0f, d = top / kLargest;
  int total = 0;
#pragma unroll
  for (int p = 0; p < kPlanes; p++) word[p] = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    int q = __float2int_rn(in.v[i] * inverse);
    total += q;
    if (kPlanes == 2) {
      word[0] |= (uint32_t)((q + 128) >> 8 & 255) << (8 * i);
      word[kPlanes - 1] |= (uint32_t)(q & 255) << (8 * i);
    } else {
      word[0] |= (uint32_t)(q & 255) << (8 * i);
    }
  }
  *sum = segment_sum<F / 4>(total);
  return d;
}

#endif
