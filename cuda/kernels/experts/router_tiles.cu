/* router_tiles.cu - the router for many tokens, on tensor cores: logits as exact as in fp32, scores, choice
 * of the experts and their weights.
 *
 * A block has 16 tokens, all experts, and some chunks of kChunk inputs. If one block for every 16 tokens
 * would leave SMs without work, several blocks share the chunks. The last of them to finish adds their sums
 * and chooses. A block normalises a chunk of its tokens at a time. It cuts each number of x into parts of 16
 * bits: three bf16 add up to it, two fp16 to 22 of its 24 bits. It multiplies the parts by the weights as
 * they are stored: such a product is exact in fp32. Tensor cores cut sums off where fp32 arithmetic rounds
 * them. So a sum by tensor cores is over 128 inputs at most, and such sums are added in fp32.
 *
 *   x      in shared memory: [two chunks][part][kTokens][kRowNumbers]; chunks take turns, with one
 *          __syncthreads() between writing a chunk and reading it
 *   warp   normalises a token, and in the end chooses for it; in between multiplies 16 experts by all tokens
 *          or, with at most half as many tiles of 16 experts as warps, by 8 of the tokens
 *   slice  [n_tokens][n_experts, shared gate] sums of some chunks in device memory: of one chunk, or of all
 *          if a block has all. The sums of a chunk are complete before they are added, chunk after chunk, so
 *          a token's bits depend neither on how chunks are divided nor on the number of tokens
 *
 * PRECOND  the router's weights are fp16 or bf16; hidden % 8 == 0.
 * READS    the router once for 16 tokens; x once for the norm in each block, then once for each kWarps tiles
 *          of 16 experts. */
#include <algorithm>

#include "cuda/kernels/experts/router.cuh"
#include "cuda/kernels/ptx/eight.cuh"
#include "cuda/kernels/ptx/launch.cuh"

namespace {

using namespace router;

constexpr int kTokens = 16, kWarps = 16, kThreads = 32 * kWarps, kChunk = 256;
constexpr int kRowNumbers = kChunk + 32; /* four lanes' 16 bytes in each of two rows fill all banks */
constexpr int kPartNumbers = kTokens * kRowNumbers; /* of a part of a chunk */
static_assert(kTokens == kWarps, "a warp normalises a token, and chooses for it");
static_assert(kChunk == kPad, "hidden is rounded up to whole chunks");

/* PartsOf: how a number of x is cut into parts. Two fp16 hold 22 bits of a number below 2^15. The second part
 * is stored times 2^11, because it would be subnormal otherwise. */
template <class T> struct PartsOf {
  static constexpr int kN = 2;
  static constexpr bool kScaled = true;
  static __device__ __forceinline__ constexpr float factor(int part) { return part == 0 ? 1 : 0x1p-11f; }
  static __device__ __forceinline__ void cut(float v, T (&to)[kN]) {
    to[0] = __float2half_rn(v), to[1] = __float2half_rn((v - __half2float(to[0])) * 0x1p11f);
  }
  static __device__ __forceinline__ float whole(const T (&of)[kN]) {
    return __half2float(of[0]) + __half2float(of[1]) * 0x1p-11f;
  }
  static __device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                                  uint32_t b1) {
    mma_f16_m16n8k16(c, a, b0, b1);
  }
};

/* Three bf16 hold all 24 bits of a float. */
template <> struct PartsOf<__nv_bfloat16> {
  static constexpr int kN = 3;
  static constexpr bool kScaled = false;
  static __device__ __forceinline__ constexpr float factor(int) { return 1; }
  static __device__ __forceinline__ void cut(float v, __nv_bfloat16 (&to)[kN]) {
#pragma unroll
    for (int i = 0; i < kN; i++) to[i] = __float2bfloat16_rn(v), v -= __bfloat162float(to[i]);
  }
  static __device__ __forceinline__ float whole(const __nv_bfloat16 (&of)[kN]) {
    return __bfloat162float(of[0]) + (__bfloat162float(of[1]) + __bfloat162float(of[2]));
  }
  static __device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                                  uint32_t b1) {
    mma_bf16_m16n8k16(c, a, b0, b1);
  }
};

template <class T> constexpr size_t kChunkBytes = sizeof(T[2][PartsOf<T>::kN][kPartNumbers]);

/* A warp's token: its norm and scale, its inputs on their way to shared memory, and its product with the
 * shared gate.
 * PRECOND  hidden % 8 == 0 */
template <class T> struct Token {
  const float *x;
  bool inside, first; /* first: this pass over x also stores h and multiplies the shared gate */
  float factor;       /* factor of the norm */
  float by;           /* factor of x before it is cut: a power of two */
  float gate;
  float4 raw[2]; /* the lane's numbers of the next chunk */

  __device__ __forceinline__ Token(const Args &a, int token)
      : x(a.x + (size_t)min(token, a.n_tokens - 1) * a.hidden), inside(token < a.n_tokens), first(true),
        by(1), gate(0) {
    constexpr int kAtOnce = 8;
    const float *weights = a.router_scale ? a.router_scale : a.norm;
    float sum = 0, most = 0;
    for (int k0 = (int)threadIdx.x % 32 * 4; k0 < a.hidden; k0 += 128 * kAtOnce) {
      float4 v[kAtOnce], w[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; i++) {
        const int k = min(k0 + 128 * i, a.hidden - 4);
        v[i] = __ldcg((const float4 *)(x + k));
        if (PartsOf<T>::kScaled) w[i] = weights_at(weights, k);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; i++) {
        if (k0 + 128 * i >= a.hidden) break;
        sum += (v[i].x * v[i].x + v[i].y * v[i].y) + (v[i].z * v[i].z + v[i].w * v[i].w);
        if (!PartsOf<T>::kScaled) continue;
        const float4 m = times(v[i], w[i]);
        most = fmaxf(most, fmaxf(fmaxf(fabsf(m.x), fabsf(m.y)), fmaxf(fabsf(m.z), fabsf(m.w))));
      }
    }
    factor = weights ? rsqrtf(warp_sum(sum) / (float)a.hidden + a.eps) : a.x_factor;
    if (!PartsOf<T>::kScaled) return;
    most = lanes_max<16, 8, 4, 2, 1>(most) * fabsf(factor);
    if (most > 0 && most < INFINITY) by = exp2f((float)min(14 - ilogbf(most), 100));
  }

  /* Loads inputs k .. k + 7 of x, for cut(). */
  __device__ __forceinline__ void load(const Args &a, int k) {
#pragma unroll
    for (int i = 0; i < 2; i++)
      raw[i] = inside && k < a.hidden ? __ldcg((const float4 *)(x + k) + i) : make_float4(0, 0, 0, 0);
  }

  /* Cuts the loaded inputs, k .. k + 7, into parts, from `to` on. In the first pass also stores h and
   * experts_h, and adds to the shared gate's product. */
  __device__ __forceinline__ void cut(const Args &a, int token, int k, T *to) {
    T parts[8][PartsOf<T>::kN];
    const int at = min(k, a.hidden - 8);
    const size_t h = (size_t)token * a.h_stride + k;
    const bool stores = first && inside && k < a.hidden;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const float4 v = times(raw[i], factor), normed = times(v, weights_at(a.norm, at + 4 * i));
      const float4 w = a.router_scale ? times(v, weights_at(a.router_scale, at + 4 * i)) : normed;
      if (stores) store_four(a.h + h + 4 * i, normed, 0, 4);
      if (stores && a.experts_norm)
        store_four(a.experts_h + h + 4 * i, times(v, weights_at(a.experts_norm, at + 4 * i)), 0, 4);
      const float each[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int j = 0; j < 4; j++) PartsOf<T>::cut(each[j] * by, parts[4 * i + j]);
    }
#pragma unroll
    for (int p = 0; p < PartsOf<T>::kN; p++) {
      alignas(16) T eight[8];
#pragma unroll
      for (int i = 0; i < 8; i++) eight[i] = parts[i][p];
      *(uint4 *)(to + p * kPartNumbers) = *(const uint4 *)eight;
    }
    if (!stores || !a.shared_gate.data) return;
    with_gate_type(a, [&](auto weight) { add_gate<decltype(weight)>(a.shared_gate, k, parts); });
  }

  template <class G>
  __device__ __forceinline__ void add_gate(const Rows &w, int k, const T (&parts)[8][PartsOf<T>::kN]) {
    Eight<G> eight;
    float v[8];
    eight.load((const G *)w.data + k, k < (int)w.stride);
    eight.floats(v);
#pragma unroll
    for (int i = 0; i < 8; i++) gate += v[i] * PartsOf<T>::whole(parts[i]);
  }
};

/* A lane's weights of four steps of 32 inputs: lane 4 g + t holds inputs 8 t .. 8 t + 7 of rows g and g + 8
 * of 16 experts. */
template <class T> struct FourSteps {
  uint4 v[4][2];

  /* Loads the weights from input k on; zeros past the rows' end. */
  __device__ __forceinline__ void load(const T *const (&rows)[2], int k, int stride) {
    k += (int)threadIdx.x % 4 * 8;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int r = 0; r < 2; r++)
        v[i][r] = k + 32 * i < stride ? __ldg((const uint4 *)(rows[r] + k + 32 * i)) : make_uint4(0, 0, 0, 0);
  }

  /* sum[m] += products of the weights with x of tokens 8 m .. 8 m + 7, for m from `first` to `last`. x:
   * address of token 0's number for the steps' first input. */
  __device__ __forceinline__ void multiply(const T *x, int first, int last, float (&sum)[2][4]) const {
    const T *own = x + (int)threadIdx.x % 32 / 4 * kRowNumbers + (int)threadIdx.x % 4 * 8;
#pragma unroll
    for (int m = 0; m < 2; m++) {
      if (m < first || m > last) continue;
      float part[PartsOf<T>::kN][4] = {};
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const uint4 &low = v[i][0], &high = v[i][1];
        const uint32_t even[4] = {low.x, high.x, low.y, high.y}, odd[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
        for (int p = 0; p < PartsOf<T>::kN; p++) {
          const uint4 b = *(const uint4 *)(own + p * kPartNumbers + 8 * m * kRowNumbers + 32 * i);
          PartsOf<T>::multiply(part[p], even, b.x, b.y);
          PartsOf<T>::multiply(part[p], odd, b.z, b.w);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int p = 0; p < PartsOf<T>::kN; p++) sum[m][i] += part[p][i] * PartsOf<T>::factor(p);
    }
  }
};

/* Row of `token` in a slice (see the file's head). */
__device__ __forceinline__ float *slice_row(const Args &a, int slice, int token) {
  const size_t row = (size_t)slice * (size_t)a.n_tokens + (size_t)token;
  return a.slices + row * (size_t)(a.config.n_experts + 1);
}

/* A token's product with the router's row `column`, summed over all slices; if `column` is n_experts, with
 * the shared gate. */
__device__ __forceinline__ float sum_of_slices(const Args &a, int token, int column) {
  const float *from = slice_row(a, 0, token) + column;
  const size_t step = (size_t)a.n_tokens * (size_t)(a.config.n_experts + 1);
  float sum = 0;
#pragma unroll 8
  for (int i = 0; i < a.n_slices; i++) sum += __ldcg(from + (size_t)i * step);
  return sum;
}

template <class T> __global__ void __launch_bounds__(kThreads, 1) kernel(const __grid_constant__ Args a) {
  extern __shared__ __align__(16) float room[];
  __shared__ float inverse[kTokens]; /* 1 / Token.by of each token */
  T *const x = (T *)room;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, token0 = blockIdx.x * kTokens,
            n = a.config.n_experts, n_tiles = (n + 15) / 16;
  const bool halved = 2 * n_tiles <= kWarps;
  const int first_half = halved ? warp % 2 : 0, last_half = halved ? first_half : 1,
            tile0 = halved ? warp / 2 : warp;
  const int begin = (int)blockIdx.y * a.block_inputs, end = min(begin + a.block_inputs, a.padded);
  dependents_may_start();
  for (const float *by : {a.norm, a.experts_norm, a.router_scale})
    for (int i = threadIdx.x * 32; by && i < a.hidden; i += kThreads * 32) prefetch_l1(by + i);
  for (int i = lane; i < 16 * kChunk / 64 && tile0 < n_tiles;
       i += 32) { /* lines of the first chunk's weights */
    const int row = 16 * tile0 + i % 16, k = begin + i / 16 * 64;
    if (row < n && k < a.hidden) prefetch_l1((const T *)a.router.data + (size_t)row * a.router.stride + k);
  }
  wait_for_previous();
  Token<T> token(a, token0 + warp);
  if (lane == 0) inverse[warp] = 1 / token.by;
  float gate_sum = 0;
  for (int at = 0; at < n_tiles; at += kWarps) {
    const int tile = at + tile0, row = 16 * tile + lane / 4;
    const T *const rows[2] = {(const T *)a.router.data + (size_t)min(row, n - 1) * a.router.stride,
                              (const T *)a.router.data + (size_t)min(row + 8, n - 1) * a.router.stride};
    float sum[2][4] = {};
    int half = 0;
    token.load(a, begin + lane * 8);
    for (int k = begin; k < end; k += kChunk, half ^= 1) {
      T *chunk = x + half * (PartsOf<T>::kN * kPartNumbers);
      FourSteps<T> weights;
      if (tile < n_tiles) weights.load(rows, k, (int)a.router.stride);
      token.cut(a, token0 + warp, k + lane * 8, chunk + warp * kRowNumbers + lane * 8);
      if (k + kChunk < end) token.load(a, k + kChunk + lane * 8);
      __syncthreads();
      float own[2][4] = {};
      if (tile < n_tiles) {
        weights.multiply(chunk, first_half, last_half, own);
        weights.load(rows, k + 128, (int)a.router.stride);
        weights.multiply(chunk + 128, first_half, last_half, own);
      }
#pragma unroll
      for (int i = 0; i < 8; i++) sum[i / 4][i % 4] += own[i / 4][i % 4];
      const bool stores = a.n_slices > 1 || k + kChunk >= end; /* else the next chunk adds to the sums */
      const int slice = a.n_slices > 1 ? k / kChunk : 0;
      if (token.first && a.shared_gate.data) {
        gate_sum += warp_sum(token.gate) / token.by, token.gate = 0;
        if (stores && token.inside && lane == 0)
          slice_row(a, slice, token0 + warp)[n] = gate_sum, gate_sum = 0;
      }
      if (!stores) continue;
#pragma unroll
      for (int i = 0; i < 8; i++) {
        const int m = 8 * (i / 4) + lane % 4 * 2 + i % 2, e = row + i % 4 / 2 * 8;
        const bool is_own = tile < n_tiles && i / 4 >= first_half && i / 4 <= last_half;
        if (is_own && e < n && token0 + m < a.n_tokens)
          slice_row(a, slice, token0 + m)[e] = sum[i / 4][i % 4] * inverse[m];
        sum[i / 4][i % 4] = 0;
      }
    }
    token.first = false;
    __syncthreads(); /* the next pass writes x again */
  }
  if (gridDim.y > 1 && !is_last_block(a.to.counters + blockIdx.x, gridDim.y)) return;
  if (!token.inside) return;
  const float shared_factor =
      a.shared_gate.data ? shared_factor_of(a, sum_of_slices(a, token0 + warp, n)) : 1.0f;
  if (lane == 0 && a.shared_gate.data) a.to.shared_factors[token0 + warp] = shared_factor;
  choose(
      a, token0 + warp, room + (size_t)warp * choice_floats(n),
      [&](int e) { return logit_of(a, e, sum_of_slices(a, token0 + warp, e)); }, shared_factor);
}

/* Shared memory of a block: the larger of chunks of x and what the choices need. */
template <class T> size_t shared_bytes(const Args &a) {
  return std::max(kChunkBytes<T>, (size_t)kWarps * (size_t)choice_floats(a.config.n_experts) * sizeof(float));
}

template <class T> Status launch_type(Args a, int n_sms, cudaStream_t stream, Error *err) {
  const int groups = ceil_div(a.n_tokens, kTokens), n_chunks = a.padded / kChunk;
  const bool fit = (size_t)n_chunks * (size_t)(a.config.n_experts + 1) <= a.slice_floats;
  const int chunks = fit ? ceil_div(n_chunks, std::max(1, n_sms / groups)) : n_chunks,
            parts = ceil_div(n_chunks, chunks);
  a.block_inputs = chunks * kChunk;
  a.n_slices = parts > 1 ? n_chunks : 1;
  return launch(kernel<T>, dim3((unsigned)groups, (unsigned)parts), kThreads, shared_bytes<T>(a), stream,
                true, "router", err, a);
}

} // namespace

bool router::tiles_apply(const Args &a, size_t most_bytes) {
  constexpr size_t kStatic = 256, kOfTuring = 64 << 10; /* kOfTuring: refuses Turing, which lacks bf16 mma */
  if (a.hidden % 8 != 0 || most_bytes <= kOfTuring) return false;
  if (a.router.type == WEIGHT_F16) return shared_bytes<__half>(a) + kStatic <= most_bytes;
  return a.router.type == WEIGHT_BF16 && shared_bytes<__nv_bfloat16>(a) + kStatic <= most_bytes;
}

Status router::launch_tiles(const Args &a, int n_sms, cudaStream_t stream, Error *err) {
  return a.router.type == WEIGHT_F16 ? launch_type<__half>(a, n_sms, stream, err)
                                     : launch_type<__nv_bfloat16>(a, n_sms, stream, err);
}
