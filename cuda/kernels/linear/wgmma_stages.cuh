/* wgmma_stages.cuh - the loops of warps that multiply the stages of a ring by wgmma: with both operands in
 * shared memory, and with weights that a lane dequantises into its register operand.
 *
 * Included by dense_wgmma.cu, wide/int8_gemm.cuh, wide/wgmma_tiles.cuh and narrow/wgmma_parts.cuh. */
#pragma once

#include "cuda/kernels/linear/layout.cuh"
#include "cuda/kernels/ptx/ring.cuh"
#include "cuda/kernels/ptx/wgmma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Multiplies the next n > 0 stages of a ring. start(stage, i) starts the products of the i-th stage, as one
 * group. A stage is freed while the products of the next one run. For all lanes of a warp. */
template <class Start>
__device__ __forceinline__ void multiply_stages(const Ring &ring, RingCursor &at, int n, Start start) {
  int used = 0;
#pragma unroll 1
  for (int i = 0; i < n; i++) {
    barrier_wait(ring.full + at.slot, at.parity);
    start(ring.stage(__shfl_sync(~0u, at.slot, 0)), i); /* so the compiler knows that the slot is uniform */
    wgmma_wait<1>();
    if (i > 0 && threadIdx.x % 32 == 0) barrier_arrive(ring.empty + used);
    used = at.slot;
    at.advance(ring.n_stages);
  }
  wgmma_wait<0>();
  if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty + used);
}

/* Tells the compiler that the sums have changed: wgmma writes to their registers without its knowledge.
 * Called before wgmma and after wgmma_wait<>(): else a use could move above the wait. */
template <int kN> __device__ __forceinline__ void touch(int (&c)[kN]) {
#pragma unroll
  for (int i = 0; i < kN; i++) c[i] = opaque(c[i]);
}

/* Cursor over every kStep-th stage of a ring: shared addresses of the next stage to read and of its `full`
 * barrier. It is for stages so short that computing the addresses anew would take a fifth of their time. The
 * `empty` barrier of a stage lies S::kStages barriers after its `full` one. */
template <class S, int kStep = 1> struct StageCursor {
  uint32_t stage, full;
  int parity;
  uint32_t end; /* address past the last `full` barrier */

  __device__ __forceinline__ StageCursor(const Ring &ring, int first)
      : stage(opaque((int)shared_address(ring.stage(first)))),
        full(opaque((int)shared_address(ring.full + first))), parity(0),
        end(opaque((int)shared_address(ring.full + S::kStages))) {}

  __device__ __forceinline__ void advance() {
    stage += kStep * S::kStageBytes;
    full += kStep * 8;
    if (full < end) return;
    stage -= S::kStages * S::kStageBytes;
    full -= S::kStages * 8;
    parity ^= 1;
  }

  /* Frees the stage whose `full` barrier is `of`. */
  static __device__ __forceinline__ void release(uint32_t of) {
    if (threadIdx.x % 32 == 0) barrier_arrive(of + S::kStages * 8);
  }
};

/* acc += the products of the next n stages, kTiles x 64 inputs each, with the first kRows tokens. A lane
 * dequantises S::kBatch steps of 16 inputs into one of two sets of registers while wgmma reads the other. A
 * stage is freed while products of the next one run.
 *
 *   stage    x [kTiles][S::kTokens][128 bytes], 128-byte swizzle; then weights, scales and zeros
 *   weights  where the lane's vectors lie in a stage, kVectorStep bytes apart
 *   groups   where the lane's scales and zeros of each kBlockIn inputs lie, if the stage lay at address 0 */
template <class S, int kTiles, int kBlockIn, int kVectorStep, int kRows, int kSums, class Cursor>
__device__ __forceinline__ void add_stages(float (&acc)[kSums], Cursor &from, uint32_t weights,
                                           const unsigned char *groups, int n) {
  typedef typename S::W W;
  constexpr int kGroups = kTiles * kTileIn / kBlockIn;
  const int g = threadIdx.x % 32 / 4;
  uint32_t q[2][S::kBatch][4], used = 0;
  for (int i = 0; i < n; i++) {
    const uint32_t x = __shfl_sync(~0u, from.stage, 0); /* uniform: so are the addresses made from it */
    uint4 v[kTiles][W::kVectors];
    typename W::Meta meta[kGroups];
    barrier_wait(from.full, from.parity);
#pragma unroll
    for (int k = 0; k < kTiles; k++)
#pragma unroll
      for (int j = 0; j < W::kVectors; j++)
        v[k][j] = load_shared_16(from.stage + weights + (k * W::kVectors + j) * kVectorStep);
#pragma unroll
    for (int p = 0; p < kGroups; p++) meta[p] = W::staged_meta(groups + from.stage + p * W::kMetaBytes, g);
#pragma unroll
    for (int k = 0; k < kTiles; k++)
#pragma unroll
      for (int j = 0; j < 4; j += S::kBatch) {
        uint32_t(&to)[S::kBatch][4] = q[(4 * k + j) / S::kBatch % 2];
#pragma unroll
        for (int b = 0; b < S::kBatch; b++)
          W::template operand<true>(v[k], j + b, meta[(k * kTileIn + (j + b) * 16) / kBlockIn], to[b]);
        wgmma_fence();
#pragma unroll
        for (int b = 0; b < S::kBatch; b++)
          wgmma_f16<kRows>(reinterpret_cast<float(&)[kRows / 2]>(acc), to[b],
                           operand_b_at(x + k * S::kTokens * 128, j + b), 1);
        wgmma_commit();
        wgmma_wait<1>();
        if (k == 0 && j == 0 && i > 0) Cursor::release(used);
      }
    used = from.full;
    from.advance();
  }
  wgmma_wait<0>();
  if (n > 0) Cursor::release(used);
}

#endif
