/* tile_end.cuh - the epilogue of the wgmma kernels of many tokens: a warpgroup's sums of 64 outputs
 * become rows of y.
 *
 * The sums are fragments of groups of 8 tokens. wgmma leaves c[4 n + i] for row g (i < 2) or g + 8 of the
 * warp's 16 and for token 8 n + 2 t + i % 2, (g, t) = (lane / 4, lane % 4). The sums become rows of tokens in
 * shared memory, so stores are of 16 bytes and full lines. Code that runs once a tile is kept short:
 * fetching it takes about eight cycles an instruction (LOG.md, "The end of a tile").
 *
 *   staging  [tokens][kRowBytes / 16 vectors, swizzled], of a warpgroup
 *
 *     warpgroup   sums -> staging | sync_group() | staging -> y | sync_group() | next sums -> staging
 *
 * Included by wgmma_tiles.cuh and experts_mma.cu. int8_gemm.cuh calls store_groups() as well. */
#pragma once

#include "cuda/kernels/linear/kernel.cuh"
#include "cuda/kernels/ptx/wgmma.cuh"

namespace wgmma_tiles {

constexpr int kStagingBytes = 16384; /* for a warpgroup's results */

/* True if every 16 bytes of a row of y begin at a multiple of 16. */
inline bool whole_vectors(const Epilogue &out) {
  return (uintptr_t)out.y % 16 == 0 && out.stride * output_bytes(out.kind) % 16 == 0;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Where the results of the calling warpgroup go. */
struct Place {
  const Epilogue &out;
  bool vectors;   /* rows of y are 16-byte aligned */
  int row0;       /* first of 64 rows of the matrix, or of the expert */
  int token0;     /* row of y of token 0 of the tile */
  int begin, end; /* tokens of the tile that are stored */
};

/* Barrier of the warpgroup: 2, 3, 4 or 5; 1 is the barrier of all consumers. */
template <int kWarpgroups> __device__ __forceinline__ void sync_group() {
  if (threadIdx.x < 128)
    named_barrier_sync<2, 128>();
  else if (kWarpgroups == 2 || threadIdx.x < 256)
    named_barrier_sync<3, 128>();
  else if (kWarpgroups == 3 || threadIdx.x < 384)
    named_barrier_sync<4, 128>();
  else
    named_barrier_sync<5, 128>();
}

__device__ __forceinline__ int warp_of_group() {
  return threadIdx.x / 32 % 4;
}

/* Two fp16, clamped to their finite range; NaN stays NaN. */
__device__ __forceinline__ uint32_t pack_clamped(float low, float high) {
  return (uint32_t)__half_as_ushort(clamp_half(low)) | (uint32_t)__half_as_ushort(clamp_half(high)) << 16;
}

/* Each form of a result below has:
 *   kRowBytes     bytes in staging of a token's results of the warpgroup
 *   kRows         rows of the matrix that one vector of 16 bytes comes from
 *   swizzle       where vector v of a token lies, so that stores and loads hit all banks
 *   stage<kN>     puts the fragments of kN groups into staging */
struct Halves {
  typedef __half Element;
  static constexpr int kRowBytes = 128, kRows = 8;
  static __device__ __forceinline__ int swizzle(int token, int v) { return v ^ token % 8; }

  template <int kN> static __device__ __forceinline__ void stage(const float *c, unsigned char *staging) {
    int lane = threadIdx.x % 32, matrix = lane / 8, token = lane % 8;
    uint32_t to = shared_address(staging) + (matrix / 2 * 8 + token) * kRowBytes +
                  swizzle(token, warp_of_group() * 2 + matrix % 2) * 16;
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      const float *f = c + 4 * n, *next = n + 1 < kN ? f + 4 : f; /* kN may be odd */
      store_matrices_transposed(to + n * 8 * kRowBytes, pack_clamped(f[0], f[1]), pack_clamped(f[2], f[3]),
                                pack_clamped(next[0], next[1]), pack_clamped(next[2], next[3]));
    }
  }
};

/* Rows g and g + 8 of a tile row are gate and up of an output. kDone: gate's place already holds
 * activation(gate) * up, from multiply_gates(). Else SwiGLU is computed here. */
template <bool kDone> struct Gated {
  typedef __half Element;
  static constexpr int kRowBytes = 64, kRows = 16;
  static __device__ __forceinline__ int swizzle(int token, int v) { return v ^ token / 2 % 4; }

  template <int kN> static __device__ __forceinline__ void stage(const float *c, unsigned char *staging) {
    int lane = threadIdx.x % 32, matrix = lane / 8, token = lane % 8;
    uint32_t to =
        shared_address(staging) + (matrix * 8 + token) * kRowBytes + swizzle(token, warp_of_group()) * 16;
#pragma unroll
    for (int n = 0; n < kN; n += 4) {
      uint32_t p[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        p[i] = 0;
        if (n + i >= kN) continue; /* kN may be no multiple of 4 */
        const float *f = c + 4 * (n + i);
        p[i] = kDone ? pack_clamped(f[0], f[1]) : pack_clamped(silu(f[0]) * f[2], silu(f[1]) * f[3]);
      }
      store_matrices_transposed(to + n * 8 * kRowBytes, p[0], p[1], p[2], p[3]);
    }
  }
};

struct Floats {
  typedef float Element;
  static constexpr int kRowBytes = 256, kRows = 4;
  static __device__ __forceinline__ int swizzle(int token, int v) { return v ^ token % 8; }

  template <int kN> static __device__ __forceinline__ void stage(const float *c, unsigned char *staging) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int token = 2 * t + i % 2, v = warp_of_group() * 4 + i / 2 * 2 + g / 4;
      unsigned char *to = staging + token * kRowBytes + swizzle(token, v) * 16 + g % 4 * 4;
#pragma unroll
      for (int n = 0; n < kN; n++) *(float *)(to + n * 8 * kRowBytes) = c[4 * n + i];
    }
  }
};

/* Stores one vector of a token's results, or adds it with LINEAR_ADD_F32. Only its first `inside` rows exist;
 * the others are left out. */
__device__ __forceinline__ void store_vector(const Place &p, __half *y, int inside, const uint4 &value) {
  if (inside >= 8 && p.vectors) {
    *(uint4 *)y = value;
    return;
  }
  const uint32_t words[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
  for (int i = 0; i < 8; i++)
    if (i < inside) y[i] = __ushort_as_half((unsigned short)(words[i / 2] >> i % 2 * 16));
}

__device__ __forceinline__ void store_vector(const Place &p, float *y, int inside, const uint4 &value) {
  float4 v = *(const float4 *)&value;
  bool add = p.out.kind == LINEAR_ADD_F32;
  if (inside >= 4 && p.vectors) {
    if (add)
      add_4(y, v);
    else
      *(float4 *)y = v;
    return;
  }
  const float each[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; i++)
    if (i < inside) y[i] = each[i] + (add ? y[i] : 0.0f);
}

/* Stores the staged tokens [begin, end) of the tile; staging begins with token `first`. */
template <class Form>
__device__ __forceinline__ void store_staged(const Place &p, int first, int begin, int end,
                                             const unsigned char *staging) {
  typedef typename Form::Element Element;
  constexpr int kVectors = Form::kRowBytes / 16, kStep = 128 / kVectors;
  int v = threadIdx.x % kVectors, row = p.row0 + v * Form::kRows, inside = p.out.n_out - row;
  if (inside <= 0) return;
  int token = begin + threadIdx.x % 128 / kVectors;
  Element *y = (Element *)p.out.y + (size_t)(p.token0 + token) * p.out.stride +
               (sizeof(Element) == 2 && Form::kRows == 16 ? row / 2 : row);
#pragma unroll 4
  for (; token < end; token += kStep, y += kStep * p.out.stride)
    store_vector(
        p, y, inside,
        *(const uint4 *)(staging + (token - first) * Form::kRowBytes + Form::swizzle(token - first, v) * 16));
}

/* Stores the fragments of kN groups of 8 tokens, which begin with token `first` of the tile. */
template <int kWarpgroups, class Form, int kN>
__device__ __forceinline__ void store_form(const Place &p, int first, const float *c,
                                           unsigned char *staging) {
  constexpr int kMost = kStagingBytes / Form::kRowBytes / 8, kRest = kN % kMost;
#pragma unroll
  for (int n = 0; n < kN; n += kMost) {
    if (n + kMost <= kN)
      Form::template stage < kMost<kN ? kMost : kN>(c + 4 * n, staging);
    else
      Form::template stage<kRest ? kRest : kMost>(c + 4 * n, staging);
    sync_group<kWarpgroups>();
    int at = first + 8 * n;
    store_staged<Form>(p, at, max(p.begin, at), min(p.end, at + 8 * min(kMost, kN - n)), staging);
    sync_group<kWarpgroups>();
  }
}

/* The factor of the thread's i-th token (row of y) among its fragments; 1 if `factors` is NULL. */
__device__ __forceinline__ float factor_of(const Place &p, const float *factors, int first, int i) {
  const int token = first + i / 2 * 8 + (int)threadIdx.x % 4 * 2 + i % 2;
  return factors ? __ldg(factors + p.token0 + min(token, p.end - 1)) : 1.0f;
}

/* Replaces each gate by activation(gate) * up * its row's factor; with ACTIVATION_RELU each sum is both gate
 * and up. The activation is a template parameter: a branch for each number would keep latencies from
 * overlapping. With branches the epilogue took a third of the time of the tile's products. */
template <Activation kActivation, int kN>
__device__ __forceinline__ void multiply_gates(const Place &p, int first, float (&c)[4 * kN]) {
#pragma unroll
  for (int i = 0; i < 2 * kN; i++) {
    float *at = c + i / 2 * 4 + i % 2;
    const bool ungated = kActivation == ACTIVATION_RELU;
    const float factor = factor_of(p, p.out.row_factors, first, i);
    at[0] = gated_product(kActivation, at[0], ungated ? at[0] : at[2], p.out.limit) * factor;
    if (ungated) at[2] = gated_product(kActivation, at[2], at[2], 0) * factor;
  }
}

/* Sets sums to zero, and keeps the compiler from doing so later (compute_now()). */
template <int kN> __device__ __forceinline__ void set_zero(float (&sums)[kN]) {
#pragma unroll
  for (float &sum : sums) sum = 0;
  compute_now(sums);
}

/* Row of the matrix, or of the expert, that is row g of the calling warp's 16. */
__device__ __forceinline__ int lane_row(const Place &p) {
  return p.row0 + warp_of_group() * kTileOut + (int)threadIdx.x % 32 / 4;
}

/* Applies factors, biases and the activation to the fragments of kN groups, and stores them. */
template <int kWarpgroups, int kN, bool kExperts>
__device__ __forceinline__ void store_groups(const Place &p, int first, float (&c)[4 * kN],
                                             unsigned char *staging) {
  const Epilogue &out = p.out;
  if (out.factors || out.bias)
    factors_and_biases<kN, kExperts>(out, lane_row(p), p.token0 + first, p.token0 + p.end, c);
  if (kExperts && out.gated == ACTIVATION_RELU) multiply_gates<ACTIVATION_RELU, kN>(p, first, c);
  if (kExperts ? out.gated == ACTIVATION_RELU : out.kind == LINEAR_TO_F16)
    return store_form<kWarpgroups, Halves, kN>(p, first, c, staging);
  if (out.kind == LINEAR_SWIGLU_F16 && (kExperts || out.row_factors || out.gated != ACTIVATION_SILU)) {
    if (out.gated == ACTIVATION_SILU)
      multiply_gates<ACTIVATION_SILU, kN>(p, first, c);
    else if (out.gated == ACTIVATION_GELU_TANH)
      multiply_gates<ACTIVATION_GELU_TANH, kN>(p, first, c);
    else if (out.gated == ACTIVATION_LIMITED)
      multiply_gates<ACTIVATION_LIMITED, kN>(p, first, c);
    else
      multiply_gates<ACTIVATION_CLAMPED, kN>(p, first, c);
    store_form<kWarpgroups, Gated<true>, kN>(p, first, c, staging);
  } else if (out.kind == LINEAR_SWIGLU_F16)
    store_form<kWarpgroups, Gated<false>, kN>(p, first, c, staging);
  else
    store_form<kWarpgroups, Floats, kN>(p, first, c, staging);
}

#endif

} // namespace wgmma_tiles
