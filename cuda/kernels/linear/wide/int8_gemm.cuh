/* int8_gemm.cuh - y = W x of integers on Hopper, both operands from shared memory, sums exact in int32.
 *
 *     y[m][o] = s[o] d[m] sum_k W[o][k] X[m][k]
 *
 * s is a scale for each output, d one for each token. W and X are bytes. Integers add up to the same in any
 * order. So a row's bits depend neither on where tiles are cut nor on other rows.
 *
 * A block is two consumer warpgroups, each 64 outputs by kTokens tokens, and a producer thread that loads
 * kStages parts of 128 inputs ahead. work_of() divides the tiles among blocks.
 *
 *   W, X   rows of [n_in / 128][128 bytes], both in the same order
 *   stage  W [128][128 bytes], X [kTokens][128 bytes], in the 128-byte swizzle
 *
 * The ring; t is the turn of the stage's slot (ptx/cluster.cuh):
 *
 *   producer thread   wait empty, parity (t + 1) % 2 -> W, X: 1 arrival, their bytes -> full: 1
 *                          ^                                                              |
 *   8 consumer warps       +--- empty: 1 a warp <- products <- wait full, parity t % 2 <--+
 *
 * A warp arrives at `empty` when its products of the stage are complete. Its products of the next stage run
 * meanwhile. Named barriers and the staging memory are those of wgmma_tiles.cuh; a warpgroup's barrier also
 * guards its d.
 *
 * PRECOND  n_in * 2^14 < 2^31, which linear_lay_out() sees to.
 * READS    W once for every kTokens tokens, X once for every 128 outputs. */
#pragma once

#include <algorithm>

#include "cuda/kernels/linear/wgmma_stages.cuh"
#include "cuda/kernels/linear/wide/wgmma_tiles.cuh"

namespace int8_gemm {

using wgmma_tiles::kStagingBytes;

constexpr int kPart = 128; /* inputs of a part, and bytes of a row of a stage */

template <int kTokens_> struct Shape {
  static constexpr int kTokens = kTokens_, kWarpgroups = 2;
  static constexpr int kRows = 64 * kWarpgroups, kConsumers = 128 * kWarpgroups, kThreads = kConsumers + 128;
  static constexpr int kTileRows = 4 * kWarpgroups;
  static constexpr int kWBytes = kRows * kPart, kXBytes = kTokens * kPart, kStageBytes = kWBytes + kXBytes;
  static constexpr int kEndBytes = kWarpgroups * (kStagingBytes + kTokens * 4);
  static constexpr int kStages = (226 * 1024 - 1024 - kEndBytes) / kStageBytes;
  static constexpr size_t kSharedBytes = (size_t)kStages * kStageBytes + kEndBytes + 1024;
  static constexpr int kLoadRegisters = 24, kMultiplyRegisters = 240; /* of a thread, as in ShapeOf */
};

constexpr int kPadTokens = 256; /* rows of X are padded to a multiple of this: whole tiles of any shape */

struct Args {
  CUtensorMap w, x; /* boxes of 128 bytes: w of kRows rows, x of kTokens rows */
  const float *w_scales, *x_scales;
  int n_tokens, n_token_tiles;
  stream_k::Work work;
  Epilogue out;
  bool vectors; /* rows of y are 16-byte aligned */
  int *partial;
  unsigned *counters;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Calls work(at, n) for each tile, or part of a tile, that the block has, in order: n steps from the cursor
 * `at` on. Whole tiles are taken in rounds: each block has one tile of a round. So blocks read the same W and
 * x at about the same time, and L2 holds all W that a round reads. */
template <class Work> __device__ __forceinline__ void for_each_part(const Args &a, Work work) {
  const stream_k::Work &w = a.work;
  const bool whole = w.n_blocks <= w.n_tiles;
  const int end = whole ? stream_k::total_steps(w) : stream_k::first_step(w, blockIdx.x + 1);
  for (int begin = whole ? (int)blockIdx.x * w.n_steps : stream_k::first_step(w, blockIdx.x); begin < end;) {
    const stream_k::Cursor at(w, a.n_token_tiles, begin);
    const int n = min(end - begin, w.n_steps - at.step);
    work(at, n);
    begin += whole ? w.n_blocks * w.n_steps : n;
  }
}

/* The producer thread: loads the stages of the block's steps. */
template <class S> __device__ __forceinline__ void load_tiles(const Args &a, const Ring &ring) {
  RingProducer producer(ring);
  for_each_part(a, [&](const stream_k::Cursor &at, int n) {
    const int token = at.token_tile * S::kTokens, row = at.out_tile * S::kRows;
    for (int part = at.step; part < at.step + n; part++)
      producer.fill([&](unsigned char *stage, uint64_t *full) {
        barrier_expect(full, S::kStageBytes);
        copy_box(stage, &a.w, full, part * (kPart / 2), row);
        copy_box(stage + S::kWBytes, &a.x, full, part * (kPart / 2), token);
      });
  });
}

/* y = the products of the next n stages, n > 0. */
template <class S>
__device__ __forceinline__ void multiply(int (&y)[S::kTokens / 2], const Ring &ring, RingCursor &at, int n) {
  multiply_stages(ring, at, n, [&](unsigned char *stage, int i) {
    const uint32_t x = shared_address(stage) + S::kWBytes,
                   w = shared_address(stage) + warp_of_block() / 4 * (64 * kPart);
    touch(y);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kPart / 32; k++)
      wgmma_s8s8_shared<S::kTokens>(y, operand_b_at(w, k), operand_b_at(x, k), i > 0 || k > 0);
    wgmma_commit();
  });
  touch(y);
}

/* Multiplies the sums by both scales and stores them, as many tokens at a time as registers allow. d: scales
 * of the tile's tokens. The loop is not unrolled: its instructions are fetched once a tile, and gate and up
 * take 1 to 3% less time (H200, 512 to 2,048 tokens). Pieces of 64 and 32 tokens take 4 and 19% more. Each
 * piece's sums move to the first registers, so y is lost. */
template <class S>
__device__ __forceinline__ void store(const Args &a, const stream_k::Cursor &at, const float (&scale)[2],
                                      const float *d, int (&y)[S::kTokens / 2], unsigned char *staging) {
  constexpr int kAtOnce = 128;
  const int row0 = (at.out_tile * S::kTileRows + threadIdx.x / 128 * 4) * kTileOut;
#pragma unroll 1
  for (int part = 0; part < S::kTokens / kAtOnce; part++) {
    const int token0 = at.token_tile * S::kTokens + part * kAtOnce;
    if (token0 >= a.n_tokens) return;
    float v[kAtOnce / 2];
#pragma unroll
    for (int n = 0; n < kAtOnce / 8; n++) {
      const float2 by = *(const float2 *)(d + part * kAtOnce + n * 8 + threadIdx.x % 4 * 2);
#pragma unroll
      for (int i = 0; i < 4; i++)
        v[4 * n + i] = __fmul_rn((float)y[4 * n + i], __fmul_rn(i % 2 ? by.y : by.x, scale[i / 2]));
    }
    wgmma_tiles::store_groups<S::kWarpgroups, kAtOnce / 8, false>(
        wgmma_tiles::Place{a.out, a.vectors, row0, token0, 0, min(a.n_tokens - token0, kAtOnce)}, 0, v,
        staging);
#pragma unroll
    for (int i = 0; i < (S::kTokens - kAtOnce) / 2; i++) y[i] = y[i + kAtOnce / 2];
  }
}

/* Multiplies and stores all tiles of the block. */
template <class S> __device__ __forceinline__ void multiply_tiles(const Args &a, const Ring &ring) {
  __shared__ int last;
  constexpr int kSums = S::kTokens / 2;
  int y[kSums];
  RingCursor from = {};
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
  unsigned char *staging = ring.stage(S::kStages) + group * (kStagingBytes + S::kTokens * 4);
  float *d = (float *)(staging + kStagingBytes);
  for_each_part(a, [&](const stream_k::Cursor &at, int n) {
    const int begin = at.tile * a.work.n_steps + at.step;
    const int row = (at.out_tile * S::kTileRows + threadIdx.x / 32) * kTileOut + threadIdx.x % 32 / 4;
    const float scale[2] = {row < a.out.n_out ? __ldcg(a.w_scales + row) : 0.0f,
                            row + 8 < a.out.n_out ? __ldcg(a.w_scales + row + 8) : 0.0f};
    float2 of_tokens = make_float2(0, 0);
    if (2 * thread < S::kTokens)
      of_tokens = __ldcg((const float2 *)(a.x_scales + at.token_tile * S::kTokens) + thread);
    multiply<S>(y, ring, from, n);
    if (2 * thread < S::kTokens) ((float2 *)d)[thread] = of_tokens;
    wgmma_tiles::sync_group<S::kWarpgroups>();
    if (stream_k::combine<kSums, S::kConsumers>(y, a.work, blockIdx.x, at.tile, begin, begin + n, threadIdx.x,
                                                a.partial, a.counters, &last,
                                                [] { named_barrier_sync<1, S::kConsumers>(); }))
      store<S>(a, at, scale, d, y, staging);
    wgmma_tiles::sync_group<S::kWarpgroups>(); /* before d is written again */
  });
}

#endif

template <class S> __global__ void __launch_bounds__(S::kThreads, 1) kernel(const __grid_constant__ Args a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char shared[];
  __shared__ uint64_t full[S::kStages], empty[S::kStages];
  const Ring ring = {align_for_copies(shared), full, empty, S::kStages, S::kStageBytes};
  ring.open(1, S::kConsumers / 32);
  dependents_may_start();
  wait_for_previous();
  if (warp_of_block() < S::kConsumers / 32) {
    registers_up_to<S::kMultiplyRegisters>();
    multiply_tiles<S>(a, ring);
  } else {
    registers_down_to<S::kLoadRegisters>();
    if (threadIdx.x == S::kConsumers) load_tiles<S>(a, ring);
  }
#endif
}

/* A call's operands in device memory. */
struct Operands {
  const void *w;         /* [n_out rounded up to 16][parts][128] */
  const float *w_scales; /* [n_out] */
  const void *x;         /* [padded_tokens()][parts][128] */
  const float *x_scales; /* [padded_tokens()] */
  int *partial;
};

inline int padded_tokens(int n_tokens) {
  return ceil_div(n_tokens, kPadTokens) * kPadTokens;
}

/* Bytes of workspace for partial sums of the largest shape. */
inline size_t partial_bytes(const DeviceLimits &device) {
  typedef Shape<256> S;
  return stream_k::partial_bytes(device.n_sms, S::kConsumers, S::kTokens / 2);
}

/* Fewest steps of a tile that is cut, and of a part of such a tile. */
constexpr int kCutSteps = 64, kPartSteps = 16;

/* Tiles are cut, each into the same number of parts, only if they are at most half as many as SMs and have
 * many steps. Else blocks have whole tiles, as evenly as they go. Microseconds (H200): 96 tiles of down of
 * Qwen3-8B (384 tokens) 60.7 by stream-K, 42.8 whole; 336 tiles of qkv (896 tokens) 57.3 by stream-K, 42.9
 * whole; 64 tiles of down 41.8 whole, 36.1 in halves. */
template <class S> stream_k::Work work_of(const LinearArgs &args) {
  const int n_tiles = ceil_div(args.w->n_out, S::kRows) * ceil_div(args.n_tokens, S::kTokens),
            n_steps = ceil_div(args.w->n_in, kPart), n_sms = args.device.n_sms;
  const int n_parts = std::min(n_sms / n_tiles, n_steps / kPartSteps);
  if (n_parts > 1 && n_steps >= kCutSteps) return {n_tiles, n_steps, n_parts * n_tiles};
  return {n_tiles, n_steps, ceil_div(n_tiles, ceil_div(n_tiles, n_sms))};
}

template <class S> Status launch_gemm(const LinearArgs &args, const Operands &of, Error *err) {
  const DeviceLinear *w = args.w;
  Args a = {};
  a.work = work_of<S>(args);
  a.n_tokens = args.n_tokens, a.n_token_tiles = ceil_div(args.n_tokens, S::kTokens);
  a.w_scales = of.w_scales, a.x_scales = of.x_scales, a.partial = of.partial;
  a.counters = args.counters, a.out = args.out, a.vectors = wgmma_tiles::whole_vectors(args.out);
  const cuuint64_t halves = (cuuint64_t)ceil_div(w->n_in, kPart) * (kPart / 2);
  TRY(map_boxes(of.w, {halves, (cuuint64_t)ceil_div(w->n_out, kTileOut) * kTileOut, 0}, {halves * 2, 0},
                {kPart / 2, S::kRows, 1}, CU_TENSOR_MAP_SWIZZLE_128B, w->name, &a.w, err));
  TRY(map_boxes(of.x, {halves, (cuuint64_t)padded_tokens(args.n_tokens), 0}, {halves * 2, 0},
                {kPart / 2, S::kTokens, 1}, CU_TENSOR_MAP_SWIZZLE_128B, w->name, &a.x, err));
  return launch(kernel<S>, dim3((unsigned)a.work.n_blocks), S::kThreads, S::kSharedBytes, args.stream,
                args.dependent, w->name, err, a);
}

} // namespace int8_gemm
