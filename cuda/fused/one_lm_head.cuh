/* one_lm_head.cuh - the fp16 lm_head for one token, from stages of whole rows in the ring.
 *
 *     logits[o] = sum over k of head[o][k] * half(x[k] / rms)
 *
 * A stage belongs to a warpgroup. Its warps divide each row into spans of 256 inputs, hold x of their
 * spans in registers for all rows, and add up through shared memory, with one barrier of the warpgroup a
 * stage. READS  2 * hidden * vocab_size bytes in all. */
#ifndef AUK_CUDA_FUSED_ONE_LM_HEAD_CUH
#define AUK_CUDA_FUSED_ONE_LM_HEAD_CUH

#include "cuda/fused/weight_ring.cuh"
#include "cuda/ptx/attention_ptx.cuh"
#include "cuda/ptx/lanes.cuh"

namespace step {

constexpr int kHeadChunk = 256, kHeadChunks = STEP_MAX_HIDDEN / kHeadChunk / STEP_TEAM_WARPS, kHeadRows = 8;

__device__ __forceinline__ void sync_team(int team) {
  constexpr int kThreads = 32 * STEP_TEAM_WARPS;
  switch (team) {
  case 0: return sync_some<2, kThreads>();
  case 1: return sync_some<3, kThreads>();
  case 2: return sync_some<4, kThreads>();
  default: return sync_some<5, kThreads>();
  }
}

__device__ __forceinline__ void add_products(float &low, float &high, uint32_t w, uint32_t x) {
  low += scale_low(w) * scale_low(x);
  high += scale_high(w) * scale_high(x);
}

template <bool kDebug> __device__ __forceinline__ void head(Block<kDebug> &b) {
  const float inverse = inverse_of_x(b);
  const StepPlan &p = b.args().plan;
  const int team = b.warp() >> 2, mate = b.warp() & 3;
  const int chunks = p.shape.hidden / kHeadChunk, row_bytes = p.shape.hidden * 2;
  uint4 x[kHeadChunks];
#pragma unroll
  for (int i = 0; i < kHeadChunks; i++) {
    const int chunk = mate + i * STEP_TEAM_WARPS;
    x[i] = make_uint4(0, 0, 0, 0);
    if (chunk >= chunks) continue;
    const float4 *from = (const float4 *)(b.x() + chunk * kHeadChunk) + 2 * b.lane();
    const float4 low = from[0], high = from[1];
    x[i] = make_uint4(
        pack_half2(low.x * inverse, low.y * inverse), pack_half2(low.z * inverse, low.w * inverse),
        pack_half2(high.x * inverse, high.y * inverse), pack_half2(high.z * inverse, high.w * inverse));
  }
  const int first = first_head_piece(p, blockIdx.x), n = first_head_piece(p, blockIdx.x + 1) - first;
  RingAt at = b.next();
  at.move(team, p.n_slots);
#pragma unroll 1
  for (int i = team, turn = 0; i < n; i += STEP_TEAMS, turn ^= 1) {
    const int row0 = (first + i) * p.head_rows, rows = min(p.head_rows, p.shape.vocab_size - row0);
    b.take_piece(at);
    const unsigned char *piece = b.slot(at.slot) + b.lane() * 16;
    float *sums = b.head_sums() + (turn * STEP_TEAMS + team) * STEP_TEAM_WARPS * kHeadRows;
#pragma unroll 1
    for (int row = 0; row < rows; row++) {
      float low = 0, high = 0;
#pragma unroll
      for (int c = 0; c < kHeadChunks; c++) {
        const int chunk = mate + c * STEP_TEAM_WARPS;
        if (chunk >= chunks) continue;
        const uint4 w = *(const uint4 *)(piece + row * row_bytes + chunk * (kHeadChunk * 2));
        add_products(low, high, w.x, x[c].x);
        add_products(low, high, w.y, x[c].y);
        add_products(low, high, w.z, x[c].z);
        add_products(low, high, w.w, x[c].w);
      }
      const float sum = warp_sum(low + high);
      if (b.lane() == 0) sums[mate * kHeadRows + row] = sum;
    }
    __syncwarp();
    if (b.lane() == 0) barrier_arrive(&b.barriers()->empty[at.slot]);
    sync_team(team);
    if (mate == 0 && b.lane() < rows)
      b.args().call.logits[row0 + b.lane()] =
          (sums[b.lane()] + sums[kHeadRows + b.lane()]) +
          (sums[2 * kHeadRows + b.lane()] + sums[3 * kHeadRows + b.lane()]);
    at.move(STEP_TEAMS, p.n_slots);
  }
}

} // namespace step

#endif
