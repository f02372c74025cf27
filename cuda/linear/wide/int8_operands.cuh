/* int8_operands.cuh - the activations of int8_gemm.cuh: rows of bytes with a scale for each token.
 *
 *     X[m][k] = x[m][k] / d[m], rounded        d = max |x| / 127 / 2^j      X = 128 high + low
 *
 * j is 0, so that X is a byte, if rounding then costs a token at most kMostCost of its sum of squares, as it
 * does without outliers. Else j is the least with which it costs at most kFineCost. |X| <= 127 has high = 0,
 * so that other inputs than the outliers are still a byte. |sum| < 2^31, since X has a root mean square of at
 * most 1 / sqrt(12 kFineCost / 4), and W and n_in are at most 127 and 65,408.
 *
 * Order of the bytes of 64 inputs: byte 16 t + 4 j + i is input tile_k(j, t, i), as a lane of the weights'
 * layout has them (layout.cuh). */
#pragma once

#include <float.h>

#include "cuda/linear/quantise.cuh"
#include "cuda/linear/wide/int8_gemm.cuh"
#include "cuda/ptx/block_sum.cuh"

namespace int8_gemm {

enum Rounding { kPlanes, kToken }; /* round_planes(), round_token() */

/* The rows that are rounded: fp16, or if `norm` the RMSNorm of fp32, rounded to fp16. */
struct Rows {
  const __half *x;
  size_t stride; /* of x; norm: n_in */
  LinearNorm norm;
  int n_in;
};

struct RoundedTo {
  unsigned char *x; /* [padded][n_parts][128] low bytes, then as many high ones */
  float *scales;
  uint32_t *flags; /* int8_gemm.cuh; 0 before */
  int padded, n_parts, n_words;
};

/* A token's rounding costs d^2 / 12 for each input. */
constexpr float kMostCost = 1e-3f, kFineCost = 2.5e-4f;

/* 2^j, from the largest of a row and its sum of squares. */
__device__ __forceinline__ float fineness(float top, float squares, int n_in) {
  float cost = (float)n_in * (1.0f / 12) * (top * (1.0f / 127)) * (top * (1.0f / 127)), fine = 1;
  if (!(cost > kMostCost * squares)) return 1;
  for (; cost > kFineCost * squares && fine < 128; cost *= 0.25f) fine *= 2;
  return fine;
}

__device__ __forceinline__ float largest(const float (&v)[4]) {
  return fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3])));
}

/* Inputs of part p of a normalised row: lanes of a warp have four neighbours each, and then those of
 * LaneInputs. */
__device__ __forceinline__ LaneInputs normed_inputs(const Rows &from, float4 v, int k, float scale) {
  const int lane = threadIdx.x % 32, t = lane % 4;
  const float4 w = k < from.n_in ? *(const float4 *)(from.norm.weight + k) : make_float4(0, 0, 0, 0);
  const __half2 pair[2] = {__floats2half2_rn(v.x * scale * w.x, v.y * scale * w.y),
                           __floats2half2_rn(v.z * scale * w.z, v.w * scale * w.w)};
  LaneInputs in; /* inputs 2 t, 2 t + 1 of the 16, and those 8 further */
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int other = lane / 4 * 4 + 2 * h + t / 2;
    const uint32_t even = __shfl_sync(~0u, *(const uint32_t *)&pair[0], other),
                   odd = __shfl_sync(~0u, *(const uint32_t *)&pair[1], other);
    in.f16x2[h] = t % 2 ? odd : even;
  }
  return in;
}

/* Inputs of a token in registers: a warp has every kThreads / 32-th part, at most kMost. Padding inputs are
 * 0. */
template <bool kNorm, int kThreads, int kMost>
__device__ __forceinline__ void read_row(const Rows &from, LaneInputs (&in)[kMost]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, token = blockIdx.x;
  if constexpr (kNorm) {
    float4 v[kMost];
    float squares = 0;
#pragma unroll
    for (int c = 0; c < kMost; c++) {
      const int k = (c * (kThreads / 32) + warp) * kPart + lane * 4;
      v[c] = k < from.n_in ? *(const float4 *)(from.norm.rows + (size_t)token * from.n_in + k)
                           : make_float4(0, 0, 0, 0);
      squares += v[c].x * v[c].x + v[c].y * v[c].y + v[c].z * v[c].z + v[c].w * v[c].w;
    }
    const float scale = rsqrtf(block_sum<kThreads>(squares) / from.n_in + from.norm.eps);
    __syncthreads(); /* before the next sum of the block */
#pragma unroll
    for (int c = 0; c < kMost; c++)
      in[c] = normed_inputs(from, v[c], (c * (kThreads / 32) + warp) * kPart + lane * 4, scale);
  } else {
#pragma unroll
    for (int c = 0; c < kMost; c++)
      in[c] = read_inputs<false>(from.x + (size_t)token * from.stride, (c * (kThreads / 32) + warp) * kPart,
                                 from.n_in, lane);
  }
}

/* Stores the word that a lane made of its LaneInputs of a part; plane 1: high bytes. */
__device__ __forceinline__ void store_word(const RoundedTo &to, int plane, int part, uint32_t word) {
  const int lane = threadIdx.x % 32;
  unsigned char *at = to.x + ((size_t)(plane * to.padded + blockIdx.x) * to.n_parts + part) * kPart;
  *(uint32_t *)(at + lane / 16 * 64 + lane % 4 * 16 + lane / 4 % 4 * 4) = word;
}

/* The largest number of any thread of a block, none below 0. */
template <int kThreads> __device__ float block_max(float v) {
  __shared__ float tops[kThreads / 32];
  v = segment_max<32>(v);
  if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = v;
  __syncthreads();
  for (int w = 0; w < kThreads / 32; w++) v = fmaxf(v, tops[w]);
  return v;
}

/* A block rounds one token to bytes, those of outliers with high ones. */
template <bool kNorm, int kThreads, int kMost>
__global__ void __launch_bounds__(kThreads)
    round_planes(const __grid_constant__ Rows from, const __grid_constant__ RoundedTo to) {
  LaneInputs in[kMost];
  float top = 0, squares = 0;
  begin_overlapping();
  read_row<kNorm, kThreads>(from, in);
#pragma unroll
  for (int c = 0; c < kMost; c++) {
    float v[4];
    in[c].floats(v);
    top = fmaxf(top, largest(v));
    squares += v[0] * v[0] + v[1] * v[1] + v[2] * v[2] + v[3] * v[3];
  }
  top = fmaxf(block_max<kThreads>(top), 1e-30f);
  squares = block_sum<kThreads>(squares);
  const float fine = fineness(top, squares, from.n_in), inverse = __fdiv_rn(127.0f * fine, top);
#pragma unroll
  for (int c = 0; c < kMost; c++) {
    const int part = c * (kThreads / 32) + (int)threadIdx.x / 32;
    if (part >= to.n_parts) break;
    float v[4];
    uint32_t low = 0, high = 0;
    in[c].floats(v);
#pragma unroll
    for (int i = 0; i < 4; i++) { /* the low bits of the sum are the nearest integer */
      const int q = (int)(__float_as_uint(__fadd_rn(__fmul_rn(v[i], inverse), kIntBias)) -
                          (unsigned)kIntBiasBits),
                h = abs(q) <= 127 ? 0 : (q + 64) >> 7;
      low |= (uint32_t)((q - 128 * h) & 255) << (8 * i);
      high |= (uint32_t)(h & 255) << (8 * i);
    }
    store_word(to, 0, part, low);
    store_word(to, 1, part, high);
    if (fine > 1 && !__all_sync(~0u, high == 0) && threadIdx.x % 32 == 0)
      set_bits(to.flags + (size_t)(blockIdx.x / kFlagTokens) * to.n_words + part / 32, 1u << part % 32);
  }
  /* The squares are infinite or NaN if any input is. */
  if (threadIdx.x == 0)
    to.scales[blockIdx.x] = squares <= FLT_MAX ? top * (1.0f / 127) / fine : __uint_as_float(0x7fffffffu);
}

/* A block rounds one token as int8_token.cu does: with one scale, max |x| / 127.5. */
template <bool kNorm, int kThreads, int kMost>
__global__ void __launch_bounds__(kThreads)
    round_token(const __grid_constant__ Rows from, const __grid_constant__ RoundedTo to) {
  __shared__ unsigned of_warps[kThreads / 32];
  LaneInputs in[kMost];
  unsigned top = 0; /* as bits, which order infinity and NaN above any number */
  begin_overlapping();
  read_row<kNorm, kThreads>(from, in);
#pragma unroll
  for (int c = 0; c < kMost; c++) {
    float v[4];
    in[c].floats(v);
#pragma unroll
    for (int i = 0; i < 4; i++) top = max(top, __float_as_uint(fabsf(v[i])));
  }
#pragma unroll
  for (int o = 16; o; o /= 2) top = max(top, __shfl_xor_sync(~0u, top, o));
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = top;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kThreads / 32; w++) top = max(top, of_warps[w]);
  const bool finite = top < 0x7f800000u;
  float scale = __fdiv_rn(__uint_as_float(top), 127.5f);
  if (scale == 0) scale = FLT_EPSILON;
#pragma unroll
  for (int c = 0; c < kMost; c++) {
    const int part = c * (kThreads / 32) + (int)threadIdx.x / 32;
    if (part >= to.n_parts) break;
    float v[4];
    uint32_t word = 0;
    in[c].floats(v);
#pragma unroll
    for (int i = 0; i < 4; i++) { /* the low bits of the sum are the nearest integer */
      int p = (int)(__float_as_uint(__fadd_rn(__fdiv_rn(v[i], scale), kIntBias)) - (unsigned)kIntBiasBits);
      word |= (finite ? (uint32_t)(min(p, 127) & 255) : 0u) << (8 * i);
    }
    store_word(to, 0, part, word);
  }
  if (threadIdx.x == 0) to.scales[blockIdx.x] = finite ? scale : __uint_as_float(0x7fffffffu);
}

template <int kValue> using Number = std::integral_constant<int, kValue>;

/* Launches round_planes() or round_token() for all tokens of a call. */
template <Rounding kRounding> Status round_tokens(const LinearArgs &args, const RoundedTo &to, Error *err) {
  const Rows from = {args.x, (size_t)args.x_stride, args.norm, args.w->n_in};
  const auto run = [&](auto kernel, unsigned threads) {
    return launch(kernel, dim3((unsigned)args.n_tokens), threads, 0, args.stream, args.dependent,
                  args.w->name, err, from, to);
  };
  const auto with = [&](auto norm, auto threads, auto most) {
    constexpr bool kNorm = decltype(norm)::value;
    constexpr int kThreads = decltype(threads)::value, kMost = decltype(most)::value;
    if constexpr (kRounding == kPlanes)
      return run(round_planes<kNorm, kThreads, kMost>, kThreads);
    else
      return run(round_token<kNorm, kThreads, kMost>, kThreads);
  };
  const Number<512> few;
  const int parts = ceil_div(to.n_parts, 16);
  if (args.norm.rows) /* threads as ops_rms_norm() has them, so that sums of squares are the same */
    return parts <= 2 ? with(Number<1>(), few, Number<2>()) : with(Number<1>(), Number<1024>(), Number<2>());
  if (parts <= 2) return with(Number<0>(), few, Number<2>());
  if (parts <= 4) return with(Number<0>(), few, Number<4>());
  if (parts <= 8) return with(Number<0>(), few, Number<8>());
  return with(Number<0>(), few, Number<32>()); /* 65,536 inputs */
}

} // namespace int8_gemm
