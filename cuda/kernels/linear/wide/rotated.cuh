/* rotated.cuh - rows of numbers as bytes with a scale each, after an orthogonal rotation that spreads
 * outliers (Hadamard rotations of QuaRot, Ashkboos et al., arXiv:2404.00456). Weights of 4 bits and their
 * activations are both rotated, so that y = W x = (W R) (R^T x).
 *
 *     X[m][k] = (R^T x[m])[k] / d[m], rounded        d = max |R^T x| / 127
 *     R = diag(s) H      H: Walsh-Hadamard matrices of B inputs each, orthonormal
 *
 * B is the largest power of 2 that divides n_in, from kLeastMixed to kMostMixed. The signs are s[k] =
 * (-1)^(bits 0 and 1, 3 and 4, 2 and 5, 6 and 7, 8 and 9 of k, each pair ANDed, then added). This is a bent
 * function of the ten bits: a constant row becomes flat, where H alone would make one outlier of it.
 *
 * A tile of 256 inputs is a matrix of 16 by 16. mma multiplies it from both sides by the Hadamard matrix of
 * 16. First (H / 16) x, which cannot exceed fp16's range, is rounded to fp16. Then (H x / 16) H is made in
 * fp32. If B spans several tiles, they are added and subtracted in registers. A warp has kMostTiles tiles.
 *
 *   lane (g, t) = (lane / 4, lane % 4) reads inputs 32 g + 8 t + i of a tile: one 16-byte load
 *   first mma    sums over bits 0, 1, 3, 4 of the input (i and t), second over bits 2, 5, 6, 7 (i and g)
 *   bytes        the lane's 8 results are the tile's bytes from 64 t + 8 g on: with B = 64 or 128 a last,
 *                partial tile has its padding at its end. Which result is which byte is the same for W and x,
 *                and does not matter beyond that.
 *
 * PRECOND  rotation_fits(n_in); rows 16-byte aligned. */
#pragma once

#include "cuda/kernels/linear/wide/int8_operands.cuh"

namespace int8_gemm {

constexpr int kMixedTile = 256, kMostTiles = 8, kMostMixed = kMixedTile * kMostTiles, kLeastMixed = 64;
constexpr int kMostRotateWarps = 16;

/* B of n_in inputs. */
inline int mixed_inputs(int n_in) {
  return std::min(n_in & -n_in, kMostMixed);
}

inline bool rotation_fits(int n_in) {
  return mixed_inputs(n_in) >= kLeastMixed && n_in <= kMostRotateWarps * kMostMixed;
}

struct Rotation {
  int n_tiles, mixed;
  float orthonormal; /* factor by which results must be multiplied */
};

inline Rotation rotation_of(int n_in) {
  const int mixed = mixed_inputs(n_in);
  return {ceil_div(n_in, kMixedTile), mixed, 16 / sqrtf((float)mixed)};
}

/* A lane's part of the Hadamard matrices: operand a of the first mma, operands b of the second. */
struct Hadamard {
  uint32_t a[4], b[2][2];

  /* +-`one` or 0 in fp16: entry (row, column) of the Hadamard matrix over the bits in `mask` and the identity
   * over the other bits. An odd `flips` changes the sign. */
  static __device__ __forceinline__ uint32_t entry(int row, int column, int mask, uint32_t one, int flips) {
    if ((row ^ column) & ~mask) return 0;
    return one | (uint32_t)((__popc(row & column & mask) + flips) & 1) << 15;
  }

  __device__ __forceinline__ explicit Hadamard(int mixed) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int mask = mixed >= kMixedTile ? 15 : mixed == 128 ? 7 : 3; /* which of bits 2, 5, 6, 7 are mixed */
    const auto signs = [](int v) { return (v & (v >> 1) & 1) + ((v >> 2) & (v >> 3) & 1); };
#pragma unroll
    for (int r = 0; r < 4; r++) { /* r % 2: row g or g + 8; r / 2: bit 1 of the inputs */
      a[r] = 0;
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const int from = i | r / 2 << 1 | t << 2;
        a[r] |= entry(g + r % 2 * 8, from, 15, 0x2c00, signs(from)) << (16 * i); /* 1 / 16 */
      }
    }
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        b[h][r] = 0;
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const int from = r | (2 * t + i) << 1, to = h | g << 1;
          b[h][r] |= entry(from, to, mask, 0x3c00, signs(from)) << (16 * i);
        }
      }
  }

  /* Applies the part of R within a tile to x, the lane's eight inputs of the tile; y: its eight results. */
  __device__ __forceinline__ void mix(const uint4 &x, float (&y)[2][4]) const {
    float first[2][4] = {};
    mma_f16_m16n8k16(first[0], a, x.x, x.y);
    mma_f16_m16n8k16(first[1], a, x.z, x.w);
    uint32_t half[4];
#pragma unroll
    for (int r = 0; r < 4; r++) half[r] = pack_half2(first[r / 2][r % 2 * 2], first[r / 2][r % 2 * 2 + 1]);
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
      for (int i = 0; i < 4; i++) y[h][i] = 0;
      mma_f16_m16n8k16(y[h], half, b[h][0], b[h][1]);
    }
  }
};

/* Applies the part of R between tiles, over input bits 8 and higher, with its signs. */
__device__ __forceinline__ void mix_tiles(float (&y)[kMostTiles][2][4], int mixed) {
#pragma unroll
  for (int step = 1; step < kMostTiles; step *= 2) {
    if (step * kMixedTile >= mixed) break;
#pragma unroll
    for (int tile = 0; tile < kMostTiles; tile++) {
      if (tile & step) continue;
#pragma unroll
      for (int i = 0; i < 8; i++) {
        const bool flip = step == 1 && (tile & 2); /* input bits 8 and 9 */
        const float even = y[tile][i / 4][i % 4], odd = y[tile + step][i / 4][i % 4];
        y[tile][i / 4][i % 4] = flip ? even - odd : even + odd;
        y[tile + step][i / 4][i % 4] = flip ? even + odd : even - odd;
      }
    }
  }
}

/* Reads a lane's inputs of the warp's tiles; zeros past the end. */
template <bool kNorm>
__device__ __forceinline__ void read_tiles(const Rows &from, float *sums, uint4 (&x)[kMostTiles]) {
  const int k0 = (int)threadIdx.x / 32 * kMostMixed + (int)threadIdx.x % 32 * 8, token = blockIdx.x;
  if constexpr (kNorm) {
    float4 v[kMostTiles][2];
    float squares = 0;
#pragma unroll
    for (int tile = 0; tile < kMostTiles; tile++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int k = k0 + tile * kMixedTile + 4 * h;
        v[tile][h] = k < from.n_in ? *(const float4 *)(from.norm.rows + (size_t)token * from.n_in + k)
                                   : make_float4(0, 0, 0, 0);
        squares += v[tile][h].x * v[tile][h].x + v[tile][h].y * v[tile][h].y + v[tile][h].z * v[tile][h].z +
                   v[tile][h].w * v[tile][h].w;
      }
    squares = warp_sum(squares);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = squares;
    __syncthreads();
    squares = 0;
    for (int w = 0; w < (int)blockDim.x / 32; w++) squares += sums[w];
    const float scale = rsqrtf(squares / from.n_in + from.norm.eps);
#pragma unroll
    for (int tile = 0; tile < kMostTiles; tile++) {
      uint32_t pair[4];
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int k = k0 + tile * kMixedTile + 4 * h;
        const float4 w = k < from.n_in ? *(const float4 *)(from.norm.weight + k) : make_float4(0, 0, 0, 0);
        pair[2 * h] = bits_half2(__floats2half2_rn(v[tile][h].x * scale * w.x, v[tile][h].y * scale * w.y));
        pair[2 * h + 1] =
            bits_half2(__floats2half2_rn(v[tile][h].z * scale * w.z, v[tile][h].w * scale * w.w));
      }
      x[tile] = make_uint4(pair[0], pair[1], pair[2], pair[3]);
    }
  } else {
#pragma unroll
    for (int tile = 0; tile < kMostTiles; tile++) {
      const int k = k0 + tile * kMixedTile;
      x[tile] = k < from.n_in ? __ldcg((const uint4 *)(from.x + (size_t)token * from.stride + k))
                              : make_uint4(0, 0, 0, 0);
    }
  }
}

/* A block rotates and rounds one row, a warp kMostTiles tiles of it. Memory bounds the kernel: reading
 * Hadamard from a table takes a sixth fewer instructions, but only 2 to 4% less time (H200, 2,048 rows: 28.3
 * us instead of 29.5 with 12,288 inputs, 12.8 instead of 13.1 with 4,096 and a norm). */
template <bool kNorm>
__global__ void __launch_bounds__(32 * kMostRotateWarps)
    round_rotated(const __grid_constant__ Rows from, const __grid_constant__ Rotation rotation,
                  const __grid_constant__ RoundedTo to) {
  __shared__ float sums[kMostRotateWarps];
  __shared__ unsigned tops[kMostRotateWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = warp * kMostTiles;
  const Hadamard hadamard(rotation.mixed);
  uint4 x[kMostTiles];
  float y[kMostTiles][2][4];
  begin_overlapping();
  read_tiles<kNorm>(from, sums, x);
#pragma unroll
  for (int tile = 0; tile < kMostTiles; tile++) hadamard.mix(x[tile], y[tile]);
  mix_tiles(y, rotation.mixed);
  unsigned top = 0; /* bits of the largest magnitude; as bits, infinity and NaN are above any number */
#pragma unroll
  for (int tile = 0; tile < kMostTiles; tile++)
#pragma unroll
    for (int i = 0; i < 8; i++) top = max(top, __float_as_uint(fabsf(y[tile][i / 4][i % 4])));
#pragma unroll
  for (int o = 16; o; o /= 2) top = max(top, __shfl_xor_sync(~0u, top, o));
  if (lane == 0) tops[warp] = top;
  __syncthreads();
  for (int w = 0; w < (int)blockDim.x / 32; w++) top = max(top, tops[w]);
  const float inverse = __fdiv_rn(127.0f, fmaxf(__uint_as_float(top), 1e-30f));
  unsigned char *row = to.x + (size_t)blockIdx.x * to.n_parts * kPart;
#pragma unroll
  for (int tile = 0; tile < kMostTiles; tile++) {
    const int at = (first + tile) * kMixedTile + lane % 4 * 64 + lane / 4 * 8;
    uint32_t word[2];
#pragma unroll
    for (int h = 0; h < 2; h++) { /* the low bits of the sums are the nearest integers */
      uint32_t q[4];
#pragma unroll
      for (int i = 0; i < 4; i++)
        q[i] = __float_as_uint(__fadd_rn(__fmul_rn(y[tile][h][i], inverse), kIntBias));
      word[h] = gather_bytes<0>(q);
    }
    if (at < to.n_parts * kPart) *(uint2 *)(row + at) = make_uint2(word[0], word[1]);
  }
  if (threadIdx.x == 0)
    to.scales[blockIdx.x] = top < 0x7f800000u ? __uint_as_float(top) * (1.0f / 127) * rotation.orthonormal
                                              : __uint_as_float(0x7fffffffu);
}

inline Status round_rotated_rows(const Rows &from, int n, const RoundedTo &to, cudaStream_t stream,
                                 bool dependent, const char *name, Error *err) {
  const Rotation rotation = rotation_of(from.n_in);
  const unsigned threads = 32 * (unsigned)ceil_div(from.n_in, kMostMixed);
  return launch(from.norm.rows ? round_rotated<true> : round_rotated<false>, dim3((unsigned)n), threads, 0,
                stream, dependent, name, err, from, rotation, to);
}

} // namespace int8_gemm
