/* int8_operands.cuh - the activations of W8A8 for int8_gemm.cuh: rows of bytes with a scale for each token,
 * as int8_token.cu makes them.
 *
 *     X[m][k] = x[m][k] / d[m], rounded        d = max |x| / 127.5
 *
 * Order of the bytes of 64 inputs: byte 16 t + 4 j + i is input tile_k(j, t, i), as a lane of the weights'
 * layout has them (layout.cuh). */
#pragma once

#include <float.h>

#include "cuda/kernels/linear/quantise.cuh"
#include "cuda/kernels/linear/wide/int8_gemm.cuh"
#include "cuda/kernels/ptx/block_sum.cuh"

namespace int8_gemm {

/* Rows to round: x in fp16, or with norm.rows (fp32) their RMSNorm, rounded to fp16. */
struct Rows {
  const __half *x;
  size_t stride; /* numbers between rows of x; norm: n_in */
  LinearNorm norm;
  int n_in;
};

struct RoundedTo {
  unsigned char *x; /* [rows][n_parts][128] */
  float *scales;    /* [rows] */
  int n_parts;
};

/* Normalises 128 inputs of a row: a lane has k .. k + 3 of them in v, and gets its LaneInputs. */
__device__ __forceinline__ LaneInputs normed_inputs(const Rows &from, float4 v, int k, float scale) {
  const float4 w = k < from.n_in ? *(const float4 *)(from.norm.weight + k) : make_float4(0, 0, 0, 0);
  const __half2 pair[2] = {__floats2half2_rn(v.x * scale * w.x, v.y * scale * w.y),
                           __floats2half2_rn(v.z * scale * w.z, v.w * scale * w.w)};
  return from_neighbours(pair);
}

/* Reads a token's inputs into registers, kPart inputs a warp in turn: warp w has parts w, w + n_warps, ...,
 * at most kMost. Padding inputs are 0. */
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
    __syncthreads(); /* before another block_sum() */
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

/* Stores the word that a lane made of its LaneInputs of a part. */
__device__ __forceinline__ void store_word(const RoundedTo &to, int part, uint32_t word) {
  const int lane = threadIdx.x % 32;
  unsigned char *at = to.x + ((size_t)blockIdx.x * to.n_parts + part) * kPart;
  *(uint32_t *)(at + lane / 16 * 64 + lane % 4 * 16 + lane / 4 % 4 * 4) = word;
}

/* A block rounds one token as int8_token.cu does: with one scale, max |x| / 127.5. */
template <bool kNorm, int kThreads, int kMost>
__global__ void __launch_bounds__(kThreads)
    round_token(const __grid_constant__ Rows from, const __grid_constant__ RoundedTo to) {
  __shared__ unsigned of_warps[kThreads / 32];
  LaneInputs in[kMost];
  unsigned top = 0; /* bits of the largest |x|; as bits, infinity and NaN are above any number */
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
    store_word(to, part, word);
  }
  if (threadIdx.x == 0) to.scales[blockIdx.x] = finite ? scale : __uint_as_float(0x7fffffffu);
}

template <int kValue> using Number = std::integral_constant<int, kValue>;

inline Status round_tokens(const LinearArgs &args, const Rows &from, const RoundedTo &to, Error *err) {
  const auto with = [&](auto norm, auto threads, auto most) {
    constexpr int kThreads = decltype(threads)::value;
    return launch(round_token<decltype(norm)::value, kThreads, decltype(most)::value>,
                  dim3((unsigned)args.n_tokens), kThreads, 0, args.stream, args.dependent, args.w->name, err,
                  from, to);
  };
  const Number<512> few;
  const int parts = ceil_div(to.n_parts, 16);
  if (args.norm.rows) /* threads as ops_rms_norm() has them, so that sums of squares are the same */
    return parts <= 2 ? with(Number<1>(), few, Number<2>()) : with(Number<1>(), Number<1024>(), Number<2>());
  if (parts <= 2) return with(Number<0>(), few, Number<2>());
  if (parts <= 4) return with(Number<0>(), few, Number<4>());
  if (parts <= 8) return with(Number<0>(), few, Number<8>());
  return with(Number<0>(), few, Number<32>()); /* up to 65,536 inputs */
}

} // namespace int8_gemm
