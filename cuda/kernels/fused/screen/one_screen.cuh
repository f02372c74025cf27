/* one_screen.cuh - lm_head of a step of one token if only the n greatest logits are needed (StepCall.n_best):
 * a greedy pick needs one, a draw from the 20 best tokens 20. The step reads lm_head in 8 bits (screen.h),
 * half as many bytes, and the n greatest logits are those that fp16 gives, to the bit.
 *
 * A row w of lm_head has bytes q, scale s, error `lost`, and `norm`, a bound of its length (screen.h). The
 * input x in fp16 has integers z and scale t. The triangle inequality and that of Cauchy and Schwarz give
 *
 *     |w x - s t q z| = |(w - s q) x + s q (x - t z)| <= lost |x| + norm |x - t z|
 *
 * A warp's sum q z is exact up to its rounding to fp32. The errors of rounding sums to fp32, the logit's
 * included, add up to less than 2^-16 norm |x| (screen_input()). So each logit lies between two bounds. Each
 * warpgroup publishes the greatest of its rows' lower bounds. These reports are of different rows, so at
 * least n logits are as great as the n-th greatest report. A row whose upper bound is less than this report
 * cannot be among the n greatest. All other rows are candidates, and multiplied in fp16 (row_logit.cuh): with
 * random weights up to some ten in a block. More candidates take longer, but change no result. A bound of
 * NaN, from a NaN or an infinity, makes a row a candidate.
 *
 * READS  (hidden + 16) * vocab_size bytes, and 2 * hidden for each candidate. */
#pragma once

#include "cuda/kernels/fused/one_lm_head.cuh"

namespace step::one {

constexpr int kMostZ = 127 * 128 - 1; /* greatest |z|; z = 128 * high + low, |high| <= 127, -64 <= low < 64 */

/* A warp's part of the input: eight neighbouring z a lane in each span, in two planes of bytes. The other
 * fields are the same in all warps of a warpgroup. */
struct ScreenInput {
  uint2 high[kSpans], low[kSpans];
  /* t: scale of z; length: |x|; rounding: bound of |x - t z| + (fp32 rounding) / norm. */
  float t, length, rounding;
};

/* Numbers that the block's warps exchange, in the memory of Thread::exchange(): it is free by then. */
struct ScreenScratch {
  union {
    float2 of_warps[STEP_WARPS]; /* {maximum, sum of squares} of x */
    StepBest best[STEP_WARPS];   /* keep_best() */
  };
  float bound; /* reported_bound() */
  /* q z of each warp's spans; stages use the two buffers in turn */
  float sums[2][STEP_WARPGROUPS][STEP_WARPGROUP_WARPS][STEP_SCREEN_ROWS];
};
static_assert(sizeof(ScreenScratch) <= STEP_SCREEN_SCRATCH, "it fits");

template <class B> __device__ __forceinline__ ScreenScratch &screen_scratch(const B &b) {
  return *(ScreenScratch *)b.exchange();
}

/* Adds two z to a word of each plane, as bytes `at` and `at` + 1. */
__device__ __forceinline__ void add_planes(uint32_t pair, float inverse_t, int at, uint32_t &high,
                                           uint32_t &low) {
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int z = __float2int_rn((i ? f16_high(pair) : f16_low(pair)) * inverse_t), upper = (z + 64) >> 7;
    high |= (uint32_t)(upper & 255) << 8 * (at + i);
    low |= (uint32_t)((z - 128 * upper) & 255) << 8 * (at + i);
  }
}

/* Makes the warp's input, and writes x to args.call.head_x. */
template <class B> __device__ __forceinline__ ScreenInput screen_input(const B &b, float inverse) {
  const int warpgroup = b.warp() >> 2, wg_warp = b.warp() & 3, spans = spans_of(b);
  ScreenInput to;
  uint4 x[kSpans];
  float most = 0, squares = 0;
#pragma unroll
  for (int c = 0; c < kSpans; c++) {
    const int span = wg_warp + c * STEP_WARPGROUP_WARPS, first = span * kSpan + 8 * b.lane();
    x[c] = make_uint4(0, 0, 0, 0);
    if (span >= spans || !has_inputs(b, span)) continue;
    x[c] = eight_inputs(b, first, inverse);
    if (blockIdx.x == 0 && warpgroup == 0) *(uint4 *)((__half *)b.args.call.head_x + first) = x[c];
    const uint32_t *pairs = &x[c].x;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float low = f16_low(pairs[i]), high = f16_high(pairs[i]);
      most = fmaxf(most, fmaxf(fabsf(low), fabsf(high)));
      squares += low * low + high * high;
    }
  }
  float2 *of_warps = screen_scratch(b).of_warps + warpgroup * STEP_WARPGROUP_WARPS;
  most = lanes_max<16, 8, 4, 2, 1>(most), squares = warp_sum(squares);
  if (b.lane() == 0) of_warps[wg_warp] = make_float2(most, squares);
  sync_warpgroup(warpgroup);
  squares = 0;
#pragma unroll
  for (int i = 0; i < STEP_WARPGROUP_WARPS; i++) most = fmaxf(most, of_warps[i].x), squares += of_warps[i].y;
  to.t = most / kMostZ, to.length = sqrtf(squares);
  /* Each number errs by t / 2, and a little more because x / t is rounded. The fp32 sums of a logit and of
   * its bounds have fewer than 64 roundings, each of at most 2^-24 |w| |x|; four times as much is safe. */
  to.rounding = 0.51f * to.t * sqrtf((float)b.width()) + 0x1p-16f * to.length;
  const float inverse_t = most > 0 ? kMostZ / most : 0;
#pragma unroll
  for (int c = 0; c < kSpans; c++) {
    to.high[c] = to.low[c] = make_uint2(0, 0);
    add_planes(x[c].x, inverse_t, 0, to.high[c].x, to.low[c].x);
    add_planes(x[c].y, inverse_t, 2, to.high[c].x, to.low[c].x);
    add_planes(x[c].z, inverse_t, 0, to.high[c].y, to.low[c].y);
    add_planes(x[c].w, inverse_t, 2, to.high[c].y, to.low[c].y);
  }
  return to;
}

/* q z of the warp's spans of a row, in every lane. ScreenInput.rounding allows for rounding the sum to
 * fp32. */
template <class B>
__device__ __forceinline__ float screen_dot(const B &b, const unsigned char *row, const ScreenInput &x) {
  const int wg_warp = b.warp() & 3, spans = spans_of(b);
  int high = 0, low = 0;
#pragma unroll
  for (int c = 0; c < kSpans; c++) {
    const int span = wg_warp + c * STEP_WARPGROUP_WARPS;
    if (span >= spans || !has_inputs(b, span)) break;
    const uint2 q = *(const uint2 *)(row + span * kSpan + 8 * b.lane());
    high = dp4a_s8s8(q.y, x.high[c].y, dp4a_s8s8(q.x, x.high[c].x, high));
    low = dp4a_s8s8(q.y, x.low[c].y, dp4a_s8s8(q.x, x.low[c].x, low));
  }
  high = __reduce_add_sync(~0u, high), low = __reduce_add_sync(~0u, low);
  return 128 * (float)high + (float)low;
}

/* Writes the upper bounds of the block's rows into `logits`. Returns the greatest of the lower bounds that
 * the lane has seen. */
template <class B> __device__ __forceinline__ float make_bounds(B &b, const ScreenInput &x) {
  const StepPlan &p = b.plan;
  const int warpgroup = b.warp() >> 2, wg_warp = b.warp() & 3, hidden = b.width();
  RingCursor cursor = b.next();
  cursor.move(warpgroup, p.n_slots);
  float greatest = -INFINITY;
#pragma unroll 1
  for (int i = blockIdx.x + warpgroup * head_turn(b), turn = 0; i < p.n_screen_stages;
       i += STEP_WARPGROUPS * head_turn(b), turn ^= 1) {
    const int row0 = i * p.screen_rows, rows = min(p.screen_rows, p.shape.vocab_size - row0);
    float(*sums)[STEP_SCREEN_ROWS] = screen_scratch(b).sums[turn][warpgroup];
    b.wait_for_stage(cursor);
    const unsigned char *stage = b.stage(cursor);
#pragma unroll 1
    for (int row = 0; row < rows; row++) {
      const float dot = screen_dot(b, stage + row * hidden, x);
      if (b.lane() == 0) sums[wg_warp][row] = dot;
    }
    const float4 tail =
        *(const float4 *)(stage + p.screen_rows * hidden + min(b.lane(), rows - 1) * STEP_SCREEN_TAIL);
    __syncwarp();
    barrier_arrive_after_reads(&b.barriers().empty[cursor.slot], b.lane() == 0, __float_as_uint(tail.x));
    sync_warpgroup(warpgroup);
    if (wg_warp == 0 && b.lane() < rows) {
      const int row = b.lane();
      const float dot = (sums[0][row] + sums[1][row]) + (sums[2][row] + sums[3][row]),
                  middle = dot * (tail.x * x.t), slack = tail.y * x.length + tail.z * x.rounding;
      b.args.call.logits[row0 + row] = middle + slack;
      greatest = fmaxf(greatest, middle - slack);
    }
    cursor.move(STEP_WARPGROUPS, p.n_slots);
  }
  return greatest;
}

/* The n-th greatest of the lower bounds that warpgroups have published in this step; -infinity if there are
 * fewer. Called by one warp. With n = 1 it does not wait for missing reports: without them the bound is only
 * looser. So the candidates may differ from run to run. With n > 1 it waits for all reports. */
template <class B> __device__ __forceinline__ float reported_bound(const B &b, int n) {
  constexpr int kOfLane = STEP_MAX_CLUSTERS * STEP_BLOCKS * STEP_WARPGROUPS / 32;
  const int n_reports = head_turn(b) * STEP_WARPGROUPS;
  const long long since = B::kIsDebug ? clock64() : 0;
  uint32_t keys[kOfLane];
  for (;;) {
    bool whole = true;
#pragma unroll
    for (int i = 0; i < kOfLane; i++) {
      const int at = 32 * i + b.lane();
      const uint64_t word = at < n_reports ? load_relaxed_8(b.args.bounds + at) : (uint64_t)b.args.turn << 32;
      const bool came = (uint32_t)(word >> 32) == b.args.turn;
      keys[i] = came ? (uint32_t)word : 0, whole &= came;
    }
    if (n == 1 || __all_sync(~0u, whole)) break;
    if (B::kIsDebug && !whole) b.check_patience(since, STEP_AT_VALUES, -1, 0);
    backoff();
  }
  uint32_t key = 0; /* made bit by bit: the greatest number that at least n keys reach */
#pragma unroll 1
  for (uint32_t bit = 1u << 31; bit; bit >>= 1) {
    int count = 0;
#pragma unroll
    for (int i = 0; i < kOfLane; i++) count += keys[i] >= (key | bit);
    if (__reduce_add_sync(~0u, count) >= n) key |= bit;
  }
  return key ? sampler_key_score(key) : -INFINITY;
}

/* Makes the logits of the block's candidates: the rows whose upper bounds are not below `bound`. All other
 * logits become -infinity. Then stores the block's best logit for the pick (keep_best()). */
template <class B> __device__ __forceinline__ void multiply_candidates(B &b, float bound, float inverse) {
  const StepPlan &p = b.plan;
  const int n = (p.n_screen_stages - 1 - (int)blockIdx.x + head_turn(b)) / head_turn(b) * p.screen_rows;
  unsigned long long greatest = 0;
  unsigned int lowest = ~0u;
#pragma unroll 1
  for (int first = b.warp() * 32; first < n; first += STEP_THREADS) {
    const int i = first + b.lane(), stage = i / p.screen_rows,
              row = (blockIdx.x + stage * head_turn(b)) * p.screen_rows + i - stage * p.screen_rows;
    const bool is_row = i < n && row < p.shape.vocab_size;
    float logit = is_row ? b.args.call.logits[row] : 0; /* the upper bound */
    const bool is_candidate = is_row && !(logit < bound);
    if (!is_candidate) logit = -INFINITY;
    unsigned candidates = __ballot_sync(~0u, is_candidate);
#pragma unroll 1
    for (; candidates; candidates &= candidates - 1) {
      const int of_lane = __ffs((int)candidates) - 1, own = __shfl_sync(~0u, row, of_lane);
      const float v = row_logit<B::kVaried>(b.args.lm_head + (size_t)own * b.width() * 2, b.width(), b.lane(),
                                            [&](int first) { return eight_inputs(b, first, inverse); });
      sampling::judge_token(v, b.first_token() + own, &greatest, &lowest);
      if (b.lane() == of_lane) logit = v;
    }
    if (is_row) b.args.call.logits[row] = logit;
  }
  keep_best(b, greatest, lowest);
}

template <class B> __device__ __forceinline__ void screen_lm_head(B &b) {
  const float inverse = inverse_of_x(b);
  const float lower = lanes_max<16, 8, 4, 2, 1>(make_bounds(b, screen_input(b, inverse)));
  if ((b.warp() & 3) == 0 && b.lane() == 0)
    store_relaxed_8(b.args.bounds + blockIdx.x * STEP_WARPGROUPS + (b.warp() >> 2),
                    (uint64_t)b.args.turn << 32 | sampler_key(lower));
  b.sync(); /* the upper bounds are written */
  if (b.warp() == 0) {
    const float bound = reported_bound(b, b.args.call.n_best);
    if (b.lane() == 0) screen_scratch(b).bound = bound;
  }
  b.sync();
  multiply_candidates(b, screen_scratch(b).bound, inverse);
}

template <class B> __device__ __forceinline__ void lm_head(B &b) {
  b.wait(b.barriers().x, b.x_before(QKV) & 1, STEP_AT_X);
  if (screens(b))
    screen_lm_head(b);
  else
    multiply_lm_head(b);
}

} // namespace step::one
