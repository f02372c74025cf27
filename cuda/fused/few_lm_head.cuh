/* few_lm_head.cuh - the fp16 lm_head for several tokens, from stages of eight of its rows.
 *
 *     logits[r][o] = sum over k of head[o][k] * half(x[r][k] / rms[r])
 *
 * Tensor cores take tokens as rows and lm_head's rows as columns: S [16 x 8] = X [16 x 16] W^T; results
 * of rows past the tokens are discarded. The order of k does not matter, so a lane takes 16 bytes of a
 * row of lm_head, 8 t .. 8 t + 7 of 32 inputs, as operand b of two mma. The warps of a warpgroup take
 * every fourth 32 inputs of each stage, and add up after a row's last stage. READS  2 * hidden *
 * vocab_size bytes in all. */
#ifndef AUK_CUDA_FUSED_FEW_LM_HEAD_CUH
#define AUK_CUDA_FUSED_FEW_LM_HEAD_CUH

#include "cuda/fused/few_residual.cuh"
#include "cuda/fused/few_ring.cuh"
#include "cuda/fused/one_lm_head.cuh"
#include "cuda/ptx/attention_ptx.cuh"

namespace step {
namespace rows {

/* Turns integers of x into halves / rms in place. A group becomes [32 inputs][token][64 bytes]. */
template <int kR, bool kDebug> __device__ __forceinline__ void make_halves(const Block<kR, kDebug> &b) {
  const int lane = b.lane(), g = lane >> 2, t = lane & 3, j = g & 3;
  float inverse[kR];
#pragma unroll
  for (int r = 0; r < kR; r++) inverse[r] = inverse_of(b, r);
#pragma unroll 1
  for (int group = b.warp(); group < b.args().plan.shape.hidden / STEP_GROUP; group += STEP_WARPS) {
    unsigned char *planes = b.state + b.places().x + group * Planes<kR>::kGroup;
    uint32_t high[kR], low[kR];
#pragma unroll
    for (int r = 0; r < kR; r++) {
      const unsigned char *from =
          planes + (g >> 2) * Planes<kR>::kHalf + Planes<kR>::row_at(r) + t * 16 + (j & 1) * 8 + (j & 2) * 2;
      high[r] = *(const uint32_t *)from, low[r] = *(const uint32_t *)(from + Planes<kR>::kPlane);
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < kR; r++) {
      const float d = ((const float2 *)(b.state + b.places().x_notes))[group * kR + r].x * inverse[r];
      float v[4]; /* k, k + 8, k + 1, k + 9 */
#pragma unroll
      for (int i = 0; i < 4; i++)
        v[i] = d * (float)(256 * (int)(signed char)(high[r] >> 8 * i) + (int)(signed char)(low[r] >> 8 * i));
      unsigned char *to = planes + ((g >> 1) * kR + r) * 64 + (g & 1) * 32 + t * 4;
      *(uint32_t *)to = pack_half2(v[0], v[2]);
      *(uint32_t *)(to + 16) = pack_half2(v[1], v[3]);
    }
  }
}

template <int kR, bool kDebug> __device__ __forceinline__ void head(Block<kR, kDebug> &b) {
  const StepPlan &p = b.args().plan;
  const StepCall &c = b.args().call;
  make_halves(b);
  b.sync();
  const int team = b.warp() >> 2, mate = b.warp() & 3, g = b.lane() >> 2, t = b.lane() & 3;
  const int chunks = p.head_width / 32, parts = p.shape.hidden / p.head_width;
  const int row_stride = p.head_width * 2 + STEP_HEAD_PAD;
  const uint32_t x = shared_address(b.state) + p.at.x + min(g, kR - 1) * 64 + t * 16;
  const int first = first_head_piece(p, blockIdx.x), n = first_head_piece(p, blockIdx.x + 1) - first;
  RingAt wave = b.next();
#pragma unroll 1
  for (int i0 = 0, turn = 0; i0 < n; i0 += STEP_TEAMS, turn ^= 1) {
    const int teams = min(STEP_TEAMS, n - i0);
    if (team < teams) {
      float acc[4] = {0, 0, 0, 0};
      RingAt at = wave;
      at.move(team, p.n_slots);
#pragma unroll 1
      for (int part = 0; part < parts; part++) {
        const uint32_t piece = b.take_piece(at) + g * row_stride + t * 16,
                       mine = x + part * chunks * (kR * 64);
#pragma unroll 2
        for (int chunk = mate; chunk < chunks; chunk += STEP_TEAM_WARPS) {
          const uint4 w = load_shared_16(piece + chunk * 64), v = load_shared_16(mine + chunk * (kR * 64));
          const uint32_t one[4] = {v.x, 0, v.y, 0}, two[4] = {v.z, 0, v.w, 0};
          mma_f16_m16n8k16(acc, one, w.x, w.y);
          mma_f16_m16n8k16(acc, two, w.z, w.w);
        }
        __syncwarp();
        if (b.lane() == 0) barrier_arrive(&b.barriers()->empty[at.slot]);
        at.move(teams, p.n_slots);
      }
      float *sums = b.exchange() + (turn * STEP_TEAMS + team) * (STEP_TEAM_WARPS * kR * STEP_HEAD_ROWS);
      if (g < kR) *(float2 *)(sums + (mate * kR + g) * STEP_HEAD_ROWS + 2 * t) = make_float2(acc[0], acc[1]);
      sync_team(team);
      const int of_team = mate * 32 + b.lane(), row = of_team / STEP_HEAD_ROWS, stride = kR * STEP_HEAD_ROWS;
      const int output = (first + i0 + team) * STEP_HEAD_ROWS + of_team % STEP_HEAD_ROWS;
      if (row >= c.first_logit_row && row < min(kR, c.n_rows) && output < p.shape.vocab_size)
        c.logits[(size_t)(row - c.first_logit_row) * p.shape.vocab_size + output] =
            (sums[of_team] + sums[stride + of_team]) +
            (sums[2 * stride + of_team] + sums[3 * stride + of_team]);
    }
#pragma unroll 1
    for (int i = 0; i < parts; i++) wave.move(teams, p.n_slots);
  }
}

} // namespace rows
} // namespace step

#endif
