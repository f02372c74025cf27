/* quantise.cuh - activations as integers: a block of inputs shares one scale, each value becomes an int8 or
 * an int16.
 *
 * An int16 is two int8: x = d (256 high + low), d = max |x| / 32512. The matmul with integer weights is exact
 * in int32. So the only error is that of rounding x, at most max / 65024. For near-normal x and blocks of 128
 * the normalised error is (2.7 / 32512)^2 / 12 = 6e-10, far below fp16's. An int8 (int8_act.cu) has
 * d = max |x| / 127.
 *
 * A block is kBlockIn inputs (32, 64 or 128), never longer than a weight group. For each, kernels keep d and
 * the sum of the integers X, or d times that sum:
 *     sum_k (q - z) s x = s (d * sum_k q X - z * d * sum_k X)
 * Bytes of 64 inputs are permuted like the weights (layout.cuh): byte 16t + 4j + i holds k = tile_k(j, t, i),
 * so the operands of a lane are 16 contiguous bytes. */
#pragma once

#include "cuda/kernels/linear/layout.cuh"
#include "cuda/kernels/ptx/lanes.cuh"

/* segment_max() (of numbers >= 0) and segment_sum() reduce over kWidth (8, 16 or 32) neighbouring lanes; each
 * gets the result. A whole warp uses `redux`, one instruction. For segments of a warp `redux` would run once
 * for each segment, so these use shuffles. */
template <int kWidth> __device__ __forceinline__ float segment_max(float v) {
#if __CUDA_ARCH__ >= 800
  if constexpr (kWidth == 32) return __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(v)));
  constexpr int kFirst = kWidth == 32 ? 0 : kWidth / 2;
#else
  constexpr int kFirst = kWidth / 2;
#endif
#pragma unroll
  for (int o = kFirst; o; o /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
  return v;
}

template <int kWidth> __device__ __forceinline__ int segment_sum(int v) {
#if __CUDA_ARCH__ >= 800
  if constexpr (kWidth == 32) return __reduce_add_sync(~0u, v);
  constexpr int kFirst = kWidth == 32 ? 0 : kWidth / 2;
#else
  constexpr int kFirst = kWidth / 2;
#endif
#pragma unroll
  for (int o = kFirst; o; o /= 2) v += __shfl_xor_sync(~0u, v, o);
  return v;
}

/* Four inputs of a lane as loaded: fp16 k and k + 1, then k + 8 and k + 9. */
struct LaneInputs {
  uint32_t f16x2[2];
  /* k, k + 8, k + 1, k + 9 */
  __device__ __forceinline__ void floats(float (&v)[4]) const {
    v[0] = f16_low(f16x2[0]), v[1] = f16_low(f16x2[1]), v[2] = f16_high(f16x2[0]), v[3] = f16_high(f16x2[1]);
  }
};

/* Exchanges 16 inputs among four lanes: lane t brings 4 t .. 4 t + 3, and gets 2 t, 2 t + 1, 8 + 2 t, 9 + 2
 * t. All lanes of a warp take part. */
__device__ __forceinline__ LaneInputs from_neighbours(const __half2 (&pair)[2]) {
  const int lane = threadIdx.x % 32, t = lane % 4;
  LaneInputs in;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int other = lane / 4 * 4 + 2 * h + t / 2;
    const uint32_t even = __shfl_sync(~0u, bits_half2(pair[0]), other),
                   odd = __shfl_sync(~0u, bits_half2(pair[1]), other);
    in.f16x2[h] = t % 2 ? odd : even;
  }
  return in;
}

/* A warp reads 128 inputs of one token from k0 on: lane l takes word j = l / 4 % 4 of tile l / 16 for t = l %
 * 4. Inputs past n_in are 0; kWhole promises that there are none. */
template <bool kWhole>
__device__ __forceinline__ LaneInputs read_inputs(const __half *x, int k0, int n_in, int lane) {
  LaneInputs in = {{0, 0}};
  int k = k0 + lane / 4 * 16 + 2 * (lane % 4);
#pragma unroll
  for (int i = 0; i < 2; i++, k += 8) {
    if (kWhole || k + 1 < n_in)
      in.f16x2[i] = __ldcg((const unsigned *)(x + k));
    else if (k < n_in)
      in.f16x2[i] = __half_as_ushort(x[k]);
  }
  return in;
}

/* Packs byte kN of each of four words, the first lowest. */
template <int kN> __device__ __forceinline__ uint32_t gather_bytes(const uint32_t (&v)[4]) {
  constexpr uint32_t kTwo = kN | (4 + kN) << 4;
  return prmt<0x5410>(prmt<kTwo>(v[0], v[1]), prmt<kTwo>(v[2], v[3]));
}

/* 1.5 * 2^23 and its bits. Floats of this size have an integer in their low mantissa bits. Adding kIntBias to
 * v, |v| < 2^22, rounds v to an integer. An int32 sum that started at kIntBiasBits, read as a float, is the
 * sum + kIntBias. */
constexpr float kIntBias = 12582912.0f;
constexpr int kIntBiasBits = 0x4b400000;

/* The factor that makes integers of a block's values; top: their largest magnitude. int8 divides exactly,
 * because int8_act.cu's definition fixes the integers. For an int16 a fast division is accurate enough. A
 * block of zeros gets some factor and integers 0. */
template <int kIntBytes> __device__ __forceinline__ float inverse_scale(float top) {
  const float least = fmaxf(top, 1e-30f);
  return kIntBytes == 2 ? __fdividef(32512.0f, least) : __fdiv_rn(127.0f, least);
}

/* Converts four values (k, k + 8, k + 1, k + 9) to one word of bytes, or to words of their high and low
 * bytes. Returns the sum of their integers. An int16 is 128 too large at first: so bits 8 .. 15 are its
 * rounded high byte. */
template <int kIntBytes>
__device__ __forceinline__ int quantise_by(float inverse, const float (&v)[4], uint32_t (&word)[kIntBytes]) {
  constexpr int kHalf = kIntBytes == 2 ? 128 : 0, kStart = kIntBiasBits + kHalf;
  uint32_t q[4];
  int total = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float scaled =
        kIntBytes == 2 ? fmaf(v[i], inverse, kIntBias) : __fadd_rn(__fmul_rn(v[i], inverse), kIntBias);
    q[i] = __float_as_uint(scaled) + kHalf;
    total += (int)q[i] - kStart;
  }
  if (kIntBytes == 2) {
    word[0] = gather_bytes<1>(q);
    word[kIntBytes - 1] = gather_bytes<0>(q) ^ 0x80808080u; /* subtracts the 128 */
  } else {
    word[0] = gather_bytes<0>(q);
  }
  return total;
}

/* quantise_by() for a block of values in kBlockIn / 4 neighbouring lanes; all lanes of the warp take part.
 * Returns the scale d of the lane's block and sets *sum to the sum of its integers. */
template <int kIntBytes, int kBlockIn>
__device__ __forceinline__ float quantise_values(const float (&v)[4], uint32_t (&word)[kIntBytes], int *sum) {
  constexpr float kLargest = kIntBytes == 2 ? 32512.0f : 127.0f;
  float top = fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3])));
  top = segment_max<kBlockIn / 4>(top);
  *sum = segment_sum<kBlockIn / 4>(quantise_by<kIntBytes>(inverse_scale<kIntBytes>(top), v, word));
  return top * (1.0f / kLargest);
}

constexpr int kUnitIn = 128;
/* x as planes of int8, in the order in which planes_wgmma.cu reads it.
 *
 *     x[m][k] ~ d[m][p] X[m][k]       part p: kUnitIn / kParts inputs that share d
 *     X = 256 high + low, or with one plane an int8
 *
 *   x  [token tile][unit of 128 inputs]:  planes [kPlanes kTokens][128 bytes], 128-byte swizzle
 *                                         [kTokens / 2][kParts]{d[2], sum of X[2]}
 *
 * With two planes, rows 2t and 2t + 1 of block 2i of 8 rows are the planes of token 8i + 2t. The same rows of
 * block 2i + 1 are the planes of token 8i + 2t + 1. So a lane has both planes' sums of two neighbouring
 * tokens, as in an mma fragment of 8 tokens. Inputs lie in the order of the weights. Padding tokens hold any
 * integers and finite scales: their results are dropped. */

template <int kTokens, int kParts, int kPlanes = 2> struct PlanesUnit {
  static constexpr int kPlaneBytes = kTokens * kPlanes * kUnitIn, kPairWords = 4 * kParts;
  static constexpr int kBytes = kPlaneBytes + kTokens / 2 * kPairWords * 4;

  /* Row of a token's high plane; the low plane is the next row. */
  static __device__ __forceinline__ int row_of(int token) {
    return kPlanes == 1 ? token : token / 8 * 16 + token % 2 * 8 + token % 8 / 2 * 2;
  }

  /* A part of a token and of its neighbour (token ^ 1): their scales, then their sums of integers. */
  static __device__ __forceinline__ uint32_t *pair_of(unsigned char *unit, int token, int part) {
    return (uint32_t *)(unit + kPlaneBytes) + token / 2 * kPairWords + part * 4;
  }

  /* A warp quantises a unit of one token: v is a lane's LaneInputs::floats(). */
  static __device__ __forceinline__ void store(unsigned char *x, int unit, int token, int lane,
                                               const float (&v)[4]) {
    constexpr int kPartLanes = 32 / kParts;
    uint32_t word[kPlanes];
    int sum;
    const float d = quantise_values<kPlanes, kUnitIn / kParts>(v, word, &sum);
    unsigned char *at = x + (size_t)unit * kBytes;
#pragma unroll
    for (int p = 0; p < kPlanes; p++) {
      int row = row_of(token) + p;
      *(uint32_t *)(at + row * kUnitIn + (lane / 4 ^ row % 8) * 16 + lane % 4 * 4) = word[p];
    }
    if (lane % kPartLanes > 0) return;
    uint32_t *pair = pair_of(at, token, lane / kPartLanes);
    pair[token % 2] = __float_as_uint(d);
    pair[2 + token % 2] = (uint32_t)sum;
  }
};

/* First of a lane's four inputs of a unit; the other three are 1, 8 and 9 further. */
__device__ __forceinline__ int first_input_of(int lane) {
  return lane / 4 * 16 + lane % 4 * 2;
}

/* Reads numbers k, k + 1, k + 8 and k + 9 of a row of n; 0 from n on. */
__device__ __forceinline__ void read_pairs(const float *row, int k, int n, float2 (&v)[2]) {
#pragma unroll
  for (int j = 0; j < 2; j++) v[j] = k + 8 * j < n ? *(const float2 *)(row + k + 8 * j) : make_float2(0, 0);
}

/* For a warp: stores planes of a unit of one token, for the matmul after a norm. Their values are v, the
 * lane's inputs, times w, the norm's weights. Returns the unit's sum of the squares of v, from which the
 * matmul computes 1 / rms. */
template <int kTokens, int kParts>
__device__ __forceinline__ float store_normed_unit(unsigned char *planes, int unit, int token,
                                                   const float2 (&v)[2], const float2 (&w)[2]) {
  const float sum = warp_sum(v[0].x * v[0].x + v[0].y * v[0].y + v[1].x * v[1].x + v[1].y * v[1].y);
  const float product[4] = {v[0].x * w[0].x, v[1].x * w[1].x, v[0].y * w[0].y, v[1].y * w[1].y};
  PlanesUnit<kTokens, kParts, 2>::store(planes, unit, token, (int)threadIdx.x % 32, product);
  return sum;
}
