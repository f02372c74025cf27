/* one_lm_head.cuh - the fp16 lm_head for one token, from stages of whole rows in the ring.
 *
 *     logits[o] = sum over k of head[o][k] * half(x[k] / rms)
 *
 * A stage belongs to a warpgroup. Its warps divide each row into spans of 256 inputs, and hold x of their
 * spans in registers for all rows. They add up their sums through shared memory, with one barrier of the
 * warpgroup a stage.
 * READS  2 * hidden * vocab_size bytes in all. */
#pragma once

#include "cuda/kernels/fused/one_residual.cuh"
#include "cuda/kernels/fused/screen/row_logit.cuh"
#include "cuda/kernels/fused/weight_ring.cuh"

namespace step::one {

constexpr int kSpans = STEP_MAX_HIDDEN / kSpan / STEP_WARPGROUP_WARPS; /* spans of a warp, at most */

/* Blocks take stages of lm_head in turns: a block has every head_turn()-th stage, from blockIdx.x on. So all
 * blocks together read one range of memory. */
template <class B> __device__ __forceinline__ int head_turn(const B &b) {
  return b.plan.shape.n_clusters * STEP_BLOCKS;
}

/* True if the step reads lm_head in 8 bits (one_screen.cuh). */
template <class B> __device__ __forceinline__ bool screens(const B &b) {
  return b.args.call.n_best > 0;
}

/* Loads this block's stages of lm_head, by the first loading warp. With lm_head in 8 bits the second loading
 * warp loads the rows' tails. In a stage the tails follow all rows. */
template <class B, int kKind> __device__ __forceinline__ void load_lm_head(Copier<B, kKind> &loader) {
  const B &b = loader.b;
  const StepPlan &p = b.plan;
  const bool of_screen = screens(b), is_tail = kKind == SCALES && of_screen;
  const int n = of_screen ? p.n_screen_stages : p.n_lm_head_stages,
            rows = of_screen ? p.screen_rows : p.lm_head_rows,
            row = is_tail     ? STEP_SCREEN_TAIL
                  : of_screen ? b.width()
                              : b.width() * 2,
            to = is_tail ? rows * b.width() : 0;
  const unsigned char *from = is_tail     ? b.args.screen + screen_tails_at(p.shape.vocab_size, b.width())
                              : of_screen ? b.args.screen
                                          : b.args.lm_head;
  const bool mine = (kKind == TILES || is_tail) && b.lane() == 0;
#pragma unroll 1
  for (int i = blockIdx.x; i < n; i += head_turn(b)) {
    const int bytes = min(rows, p.shape.vocab_size - i * rows) * row;
    loader.stage(to, from + (size_t)i * rows * row, bytes, mine, kKind == TILES || is_tail ? bytes : 0);
  }
}

/* Leaves the best of the block's logits for the pick. greatest, lowest: the best ranked() and the least key
 * of the lane's logits (ranking.cuh); 0 and ~0 if the lane has none. */
template <class B>
__device__ __forceinline__ void keep_best(const B &b, unsigned long long greatest, unsigned int lowest) {
  StepBest *of_warps = (StepBest *)b.exchange(); /* free since the last down */
  sampling::warp_extremes(&greatest, &lowest);
  if (b.lane() == 0) of_warps[b.warp()] = {greatest, lowest};
  b.sync();
  if (b.warp() > 0) return;
  const StepBest of_warp = of_warps[b.lane() % STEP_WARPS];
  greatest = of_warp.greatest, lowest = of_warp.lowest;
  sampling::warp_extremes(&greatest, &lowest);
  if (b.lane() == 0) leave_best(b.args.peers, b.args.best_at, b.args.turn, {greatest, lowest});
}

/* x of eight inputs of lm_head from `first` on, times `inverse`, as halves. */
template <class B> __device__ __forceinline__ uint4 eight_inputs(const B &b, int first, float inverse) {
  const float4 *from = (const float4 *)(b.x() + first), low = from[0], high = from[1];
  return make_uint4(
      pack_half2(low.x * inverse, low.y * inverse), pack_half2(low.z * inverse, low.w * inverse),
      pack_half2(high.x * inverse, high.y * inverse), pack_half2(high.z * inverse, high.w * inverse));
}

/* Spans of a row of lm_head. has_inputs(): true if the row has the lane's inputs of a span; with varied
 * experts the last span may be shorter. */
template <class B> __device__ __forceinline__ int spans_of(const B &b) {
  return (b.width() + (B::kVaried ? kSpan - 1 : 0)) / kSpan;
}
template <class B> __device__ __forceinline__ bool has_inputs(const B &b, int span) {
  return !B::kVaried || span * kSpan + 8 * b.lane() < b.width();
}

/* Computes this block's logits. PRECOND the last x has come. */
template <class B> __device__ __forceinline__ void multiply_lm_head(B &b) {
  const float inverse = inverse_of_x(b);
  const StepPlan &p = b.plan;
  const int warpgroup = b.warp() >> 2, wg_warp = b.warp() & 3;
  const int spans = spans_of(b), row_bytes = b.width() * 2;
  uint4 x[kSpans];
#pragma unroll
  for (int i = 0; i < kSpans; i++) {
    const int span = wg_warp + i * STEP_WARPGROUP_WARPS;
    x[i] = make_uint4(0, 0, 0, 0);
    if (span < spans) x[i] = eight_inputs(b, span * kSpan + 8 * b.lane(), inverse);
  }
  RingCursor cursor = b.next();
  cursor.move(warpgroup, p.n_slots);
  unsigned long long greatest = 0;
  unsigned int lowest = ~0u;
#pragma unroll 1
  for (int i = blockIdx.x + warpgroup * head_turn(b), turn = 0; i < p.n_lm_head_stages;
       i += STEP_WARPGROUPS * head_turn(b), turn ^= 1) {
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
        if (B::kVaried && !has_inputs(b, span)) break; /* for this lane: the last span may be shorter */
        add_products(low, high, *(const uint4 *)(stage + row * row_bytes + span * (kSpan * 2)), x[c]);
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
      sampling::judge_token(logit, b.first_token() + row0 + b.lane(), &greatest, &lowest);
    }
    cursor.move(STEP_WARPGROUPS, p.n_slots);
  }
  keep_best(b, greatest, lowest);
}

} // namespace step::one
