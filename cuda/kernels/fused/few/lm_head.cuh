/* few/lm_head.cuh - the fp16 lm_head for several tokens, from stages of eight of its rows.
 *
 *     logits[r][o] = sum over k of head[o][k] * half(x[r][k] / rms[r])
 *
 * Tensor cores take tokens as rows and lm_head's rows as columns: S [16 x 8] = X [16 x 16] W^T. Results of
 * rows past the tokens are discarded. The order of k does not matter: a lane takes 16 bytes of a row of
 * lm_head, 8 t .. 8 t + 7 of 32 inputs, as operand b of two mma. The warps of a warpgroup take every fourth
 * 32 inputs of each stage, and add up after a row's last stage.
 * READS  2 * hidden * vocab_size bytes in all. */
#pragma once

#include "cuda/kernels/fused/few/residual.cuh"
#include "cuda/kernels/fused/weight_ring.cuh"
#include "cuda/kernels/ptx/ptx.cuh"

namespace step::few {

/* Loads this block's stages of lm_head: each loading warp copies every third row. */
template <class B, int kKind> __device__ __forceinline__ void load_lm_head(Copier<B, kKind> &loader) {
  const B &b = loader.b;
  const StepPlan &p = b.plan;
  const int bytes = p.lm_head_width * 2, row_bytes = p.shape.hidden * 2;
  const int first = first_lm_head_stage(p, blockIdx.x), end = first_lm_head_stage(p, blockIdx.x + 1);
  const int mine = kKind + b.lane() * STEP_LOADERS;
#pragma unroll 1
  for (int i0 = first; i0 < end; i0 += STEP_WARPGROUPS)
#pragma unroll 1
    for (int at = 0; at < row_bytes; at += bytes)
#pragma unroll 1
      for (int i = i0; i < min(end, i0 + STEP_WARPGROUPS); i++) {
        const int row0 = i * STEP_LM_HEAD_ROWS, n = min(STEP_LM_HEAD_ROWS, p.shape.vocab_size - row0);
        loader.stage(mine * (bytes + STEP_LM_HEAD_PAD),
                     b.args.lm_head + (size_t)(row0 + min(mine, n - 1)) * row_bytes + at, bytes, mine < n,
                     max(0, (n - kKind + STEP_LOADERS - 1) / STEP_LOADERS) * bytes);
      }
}

/* Turns quantised x into halves, divided by rms, in place. A group becomes [4 x 32 inputs][token][64
 * bytes]. */
template <class B> __device__ __forceinline__ void make_halves(const B &b) {
  constexpr int kTokens = B::kTokens;
  constexpr int kParts = B::kParts;
  const int lane = b.lane(), g = lane >> 2, t = lane & 3, part = kIsFp4<kParts> ? 0 : lane / (32 / kParts);
  float inverse[kTokens];
#pragma unroll
  for (int r = 0; r < kTokens; r++) inverse[r] = inverse_of(b, r);
#pragma unroll 1
  for (int group = b.warp(); group < b.plan.shape.hidden / STEP_GROUP; group += STEP_WARPS) {
    unsigned char *planes = b.smem + b.plan.off.x + group * B::kGroup;
    uint32_t high[kTokens], low[kTokens]; /* bytes of four values; FP4: two values each */
#pragma unroll
    for (int r = 0; r < kTokens; r++) {
      const unsigned char *from = planes + B::word_at(lane) + B::token_at(r);
      high[r] = *(const uint32_t *)from;
      low[r] = *(const uint32_t *)(from + (kIsFp4<kParts> ? 4 : B::kPlane));
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < kTokens; r++) {
      const float2 *scales = (const float2 *)(b.smem + b.plan.off.x_scales);
      const float d = scales[(group * kXScales<kParts> + part) * kTokens + r].x * inverse[r];
      float v[4]; /* k, k + 8, k + 1, k + 9 */
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (kIsFp4<kParts>)
          v[i] = d / Fp4::kOfScale *
                 (i / 2 ? f16_high(i % 2 ? low[r] : high[r]) : f16_low(i % 2 ? low[r] : high[r]));
        else
          v[i] =
              d * (float)(256 * (int)(signed char)(high[r] >> 8 * i) + (int)(signed char)(low[r] >> 8 * i));
      unsigned char *to = planes + ((g >> 1) * kTokens + r) * 64 + (g & 1) * 32 + t * 4;
      *(uint32_t *)to = pack_half2(v[0], v[2]);
      *(uint32_t *)(to + 16) = pack_half2(v[1], v[3]);
    }
  }
}

template <class B> __device__ __forceinline__ void lm_head(B &b) {
  constexpr int kTokens = B::kTokens;
  const StepPlan &p = b.plan;
  const StepCall &c = b.args.call;
  b.wait(b.barriers().x, 0, STEP_AT_X);
  make_halves(b);
  b.sync();
  const int warpgroup = b.warp() >> 2, wg_warp = b.warp() & 3, g = b.lane() >> 2, t = b.lane() & 3;
  const int k_steps = p.lm_head_width / 32, splits = p.shape.hidden / p.lm_head_width;
  const int row_stride = p.lm_head_width * 2 + STEP_LM_HEAD_PAD;
  const uint32_t x = shared_address(b.smem) + p.off.x + min(g, kTokens - 1) * 64 + t * 16;
  const int first = first_lm_head_stage(p, blockIdx.x), n = first_lm_head_stage(p, blockIdx.x + 1) - first;
  RingCursor wave = b.next();
#pragma unroll 1
  for (int i0 = 0, turn = 0; i0 < n; i0 += STEP_WARPGROUPS, turn ^= 1) {
    const int warpgroups = min(STEP_WARPGROUPS, n - i0);
    if (warpgroup < warpgroups) {
      float acc[4] = {0, 0, 0, 0};
      RingCursor cursor = wave;
      cursor.move(warpgroup, p.n_slots);
#pragma unroll 1
      for (int split = 0; split < splits; split++) {
        const uint32_t stage = b.wait_for_stage(cursor) + g * row_stride + t * 16,
                       mine = x + split * k_steps * (kTokens * 64);
#pragma unroll 2
        for (int k_step = wg_warp; k_step < k_steps; k_step += STEP_WARPGROUP_WARPS) {
          const uint4 w = load_shared_16(stage + k_step * 64),
                      v = load_shared_16(mine + k_step * (kTokens * 64));
          const uint32_t one[4] = {v.x, 0, v.y, 0}, two[4] = {v.z, 0, v.w, 0};
          mma_f16_m16n8k16(acc, one, w.x, w.y);
          mma_f16_m16n8k16(acc, two, w.z, w.w);
        }
        __syncwarp();
        if (b.lane() == 0) barrier_arrive(&b.barriers().empty[cursor.slot]);
        cursor.move(warpgroups, p.n_slots);
      }
      float *sums = b.exchange() + (turn * STEP_WARPGROUPS + warpgroup) *
                                       (STEP_WARPGROUP_WARPS * kTokens * STEP_LM_HEAD_ROWS);
      if (g < kTokens)
        *(float2 *)(sums + (wg_warp * kTokens + g) * STEP_LM_HEAD_ROWS + 2 * t) = make_float2(acc[0], acc[1]);
      sync_warpgroup(warpgroup);
      const int wg_thread = wg_warp * 32 + b.lane(), token = wg_thread / STEP_LM_HEAD_ROWS,
                stride = kTokens * STEP_LM_HEAD_ROWS;
      const int output = (first + i0 + warpgroup) * STEP_LM_HEAD_ROWS + wg_thread % STEP_LM_HEAD_ROWS;
      if (token >= c.first_logit && token < min(kTokens, c.n_tokens) && output < p.shape.vocab_size)
        c.logits[(size_t)(token - c.first_logit) * p.shape.vocab_size + output] =
            (sums[wg_thread] + sums[stride + wg_thread]) +
            (sums[2 * stride + wg_thread] + sums[3 * stride + wg_thread]);
    }
#pragma unroll 1
    for (int i = 0; i < splits; i++) wave.move(warpgroups, p.n_slots);
  }
  /* All blocks have read `launches`, because x of lm_head contains sums from each block. */
  if (blockIdx.x == 0 && threadIdx.x == 0) *b.args.launches = b.vars().launches + 1;
}

} // namespace step::few
