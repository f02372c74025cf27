/* one_lm_head.cuh - the fp16 lm_head for one token, from stages of whole rows in the ring.
 *
 *     logits[o] = sum over k of head[o][k] * half(x[k] / rms)
 *
 * A stage belongs to a warpgroup. Its warps divide each row into spans of 256 inputs, hold x of their
 * spans in registers for all rows, and add up through shared memory, with one barrier of the warpgroup a
 * stage. READS  2 * hidden * vocab_size bytes in all. */
#pragma once

#include "cuda/fused/one_residual.cuh"
#include "cuda/fused/weight_ring.cuh"
#include "cuda/ptx/lanes.cuh"
#include "cuda/ptx/ptx.cuh"

namespace step::one {

constexpr int kSpan = 256,
              kSpans = STEP_MAX_HIDDEN / kSpan / STEP_WARPGROUP_WARPS; /* inputs; a warp's spans */

/* The block's stages of lm_head: first, first + step, ... Blocks take stages in turn, so that all of them
 * together read one run of memory after the other; where steps make no picks, each has a run of its own. */
struct HeadStages {
  int first, step, end;
};
template <class B> __device__ __forceinline__ HeadStages head_stages(const B &b) {
  const StepPlan &p = b.plan;
  if (B::kPicks) return {(int)blockIdx.x, p.shape.n_clusters * STEP_BLOCKS, p.n_lm_head_stages};
  return {first_lm_head_stage(p, blockIdx.x), 1, first_lm_head_stage(p, blockIdx.x + 1)};
}

/* Loads this block's stages of lm_head, by the first loading warp. */
template <class B, int kKind> __device__ __forceinline__ void load_lm_head(Copier<B, kKind> &loader) {
  const B &b = loader.b;
  const StepPlan &p = b.plan;
  const int row = p.shape.hidden * 2;
  const HeadStages own = head_stages(b);
#pragma unroll 1
  for (int i = own.first; i < own.end; i += own.step) {
    const int bytes = min(p.lm_head_rows, p.shape.vocab_size - i * p.lm_head_rows) * row;
    loader.stage(0, b.args.lm_head + (size_t)i * p.lm_head_rows * row, bytes, kKind == TILES && b.lane() == 0,
                 kKind == TILES ? bytes : 0);
  }
}

/* Leaves the best of the block's logits for the next step's pick: each lane of the first warp of a warpgroup
 * has seen some of them. */
template <class B>
__device__ __forceinline__ void keep_best(const B &b, unsigned long long greatest, unsigned int lowest) {
  StepBest *of_warpgroups = (StepBest *)b.exchange(); /* free since the last down */
  if ((b.warp() & 3) == 0) {
    sampling::warp_extremes(&greatest, &lowest);
    if (b.lane() == 0) of_warpgroups[b.warp() >> 2] = {greatest, lowest};
  }
  b.sync();
  if (b.warp() > 0) return;
  greatest = of_warpgroups[b.lane() & 3].greatest, lowest = of_warpgroups[b.lane() & 3].lowest;
  sampling::warp_extremes(&greatest, &lowest);
  if (b.lane() == 0) b.args.best[blockIdx.x] = {greatest, lowest};
}

__device__ __forceinline__ void add_products(float &low, float &high, uint32_t w, uint32_t x) {
  low += f16_low(w) * f16_low(x);
  high += f16_high(w) * f16_high(x);
}

template <class B> __device__ __forceinline__ void lm_head(B &b) {
  b.wait(b.barriers().x, b.x_before(QKV) & 1, STEP_AT_X);
  const float inverse = inverse_of_x(b);
  const StepPlan &p = b.plan;
  const int warpgroup = b.warp() >> 2, wg_warp = b.warp() & 3;
  const int spans = p.shape.hidden / kSpan, row_bytes = p.shape.hidden * 2;
  uint4 x[kSpans];
#pragma unroll
  for (int i = 0; i < kSpans; i++) {
    const int span = wg_warp + i * STEP_WARPGROUP_WARPS;
    x[i] = make_uint4(0, 0, 0, 0);
    if (span >= spans) continue;
    const float4 *from = (const float4 *)(b.x() + span * kSpan) + 2 * b.lane();
    const float4 low = from[0], high = from[1];
    x[i] = make_uint4(
        pack_half2(low.x * inverse, low.y * inverse), pack_half2(low.z * inverse, low.w * inverse),
        pack_half2(high.x * inverse, high.y * inverse), pack_half2(high.z * inverse, high.w * inverse));
  }
  const HeadStages own = head_stages(b);
  RingCursor cursor = b.next();
  cursor.move(warpgroup, p.n_slots);
  unsigned long long greatest = 0;
  unsigned int lowest = ~0u;
#pragma unroll 1
  for (int i = own.first + warpgroup * own.step, turn = 0; i < own.end;
       i += STEP_WARPGROUPS * own.step, turn ^= 1) {
    const int row0 = i * p.lm_head_rows, rows = min(p.lm_head_rows, p.shape.vocab_size - row0);
    b.wait_for_stage(cursor);
    const unsigned char *stage = b.stage(cursor) + b.lane() * 16;
    float *sums =
        b.lm_head_sums() + (turn * STEP_WARPGROUPS + warpgroup) * STEP_WARPGROUP_WARPS * STEP_LM_HEAD_ROWS;
#pragma unroll 1
    for (int row = 0; row < rows; row++) {
      float low = 0, high = 0;
#pragma unroll
      for (int c = 0; c < kSpans; c++) {
        const int span = wg_warp + c * STEP_WARPGROUP_WARPS;
        if (span >= spans) break;
        const uint4 w = *(const uint4 *)(stage + row * row_bytes + span * (kSpan * 2));
        add_products(low, high, w.x, x[c].x);
        add_products(low, high, w.y, x[c].y);
        add_products(low, high, w.z, x[c].z);
        add_products(low, high, w.w, x[c].w);
      }
      const float sum = warp_sum(low + high);
      if (b.lane() == 0) sums[wg_warp * STEP_LM_HEAD_ROWS + row] = sum;
    }
    __syncwarp();
    if (b.lane() == 0) barrier_arrive(&b.barriers().empty[cursor.slot]);
    sync_warpgroup(warpgroup);
    if (wg_warp == 0 && b.lane() < rows) {
      const float logit = (sums[b.lane()] + sums[STEP_LM_HEAD_ROWS + b.lane()]) +
                          (sums[2 * STEP_LM_HEAD_ROWS + b.lane()] + sums[3 * STEP_LM_HEAD_ROWS + b.lane()]);
      b.args.call.logits[row0 + b.lane()] = logit;
      if (B::kPicks) sampling::judge_token(logit, row0 + b.lane(), &greatest, &lowest);
    }
    cursor.move(STEP_WARPGROUPS, p.n_slots);
  }
  if (B::kPicks) keep_best(b, greatest, lowest);
}

} // namespace step::one
