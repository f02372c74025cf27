/* few_ring.cuh - the loading warps for several tokens, as in weight_ring.cuh; each loads every third row
 * of lm_head. */
#ifndef AUK_CUDA_FUSED_FEW_RING_CUH
#define AUK_CUDA_FUSED_FEW_RING_CUH

#include "cuda/fused/few_block.cuh"
#include "cuda/fused/weight_ring.cuh"

namespace step {
namespace rows {

__device__ __forceinline__ PieceAt piece_of(const Share &share, int i) {
  const int wave = i / (STEP_TEAMS * share.parts), row0 = wave * STEP_WARPS;
  const int teams = teams_of(share, row0);
  i -= wave * STEP_TEAMS * share.parts;
  const int part = i / teams, row = row0 + (i - part * teams) * STEP_TEAM_WARPS;
  return {row, min((int)STEP_TEAM_WARPS, share.n_rows - row), part * share.span,
          min(share.span, share.n_groups - part * share.span)};
}

template <int kKind, int kR, bool kDebug> __device__ __forceinline__ void load_all(Block<kR, kDebug> &b) {
  const StepPlan &p = b.args().plan;
  const int pos = b.pos();
  Copier<Block<kR, kDebug>, kKind> loader(
      b, min(b.args().in_flight + (pos >= STEP_LONG), b.args().most_in_flight));
  load_layers(
      loader, pos, STEP_KEYS, [&](int matrix) { return 1 << b.share(matrix).log_rows; },
      [&](int matrix) { return b.share(matrix).span; });
  const int bytes = p.head_width * 2, row_bytes = p.shape.hidden * 2;
  const int first = first_head_piece(p, blockIdx.x), end = first_head_piece(p, blockIdx.x + 1);
  const int mine = kKind + b.lane() * STEP_LOADERS;
#pragma unroll 1
  for (int i0 = first; i0 < end; i0 += STEP_TEAMS)
#pragma unroll 1
    for (int at = 0; at < row_bytes; at += bytes)
#pragma unroll 1
      for (int i = i0; i < min(end, i0 + STEP_TEAMS); i++) {
        const int row0 = i * STEP_HEAD_ROWS, n = min(STEP_HEAD_ROWS, p.shape.vocab_size - row0);
        loader.piece(mine * (bytes + STEP_HEAD_PAD),
                     b.args().head + (size_t)(row0 + min(mine, n - 1)) * row_bytes + at, bytes, mine < n,
                     max(0, (n - kKind + STEP_LOADERS - 1) / STEP_LOADERS) * bytes);
      }
}

} // namespace rows
} // namespace step

#endif
