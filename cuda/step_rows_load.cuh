/* step_rows_load.cuh - the warps that load, as step_load.cuh, in the order of step_rows_plan.h: pieces of the
 * teams of a wave in turns. Of the head each copies every third row. */
#ifndef AUK_CUDA_STEP_ROWS_LOAD_CUH
#define AUK_CUDA_STEP_ROWS_LOAD_CUH

#include "cuda/step_load.cuh"
#include "cuda/step_rows_block.cuh"

namespace step {
namespace rows {

/* Pieces of the cache that are a block's: rank, rank + 8, ... */
__device__ __forceinline__ int key_pieces(const StepRowsPlan &p, int pos, int rank) {
  return ((pos + p.keys - 1) / p.keys - rank + STEP_BLOCKS - 1) / STEP_BLOCKS;
}

/* Of the head a block has pieces of rows from this block of 8 on. */
__device__ __forceinline__ int first_head_block(const StepRowsPlan &p, int block) {
  return (int)((long long)block * p.n_head_blocks / (p.shape.n_clusters * STEP_BLOCKS));
}

/* Of waves of `teams` times four tile rows: the first groups of each, then the next, to the last. */
__device__ __forceinline__ PieceAt piece_of(const Share &share, int span, int i) {
  const int parts = (share.n_groups + span - 1) / span,
            blocks = (share.n_rows + STEP_TEAM_WARPS - 1) / STEP_TEAM_WARPS;
  const int wave = i / (STEP_TEAMS * parts), teams = min(STEP_TEAMS, blocks - wave * STEP_TEAMS);
  i -= wave * STEP_TEAMS * parts;
  const int part = i / teams, row = (wave * STEP_TEAMS + i - part * teams) * STEP_TEAM_WARPS;
  return {row, min(STEP_TEAM_WARPS, share.n_rows - row), part * span,
          min(span, share.n_groups - part * span)};
}

template <int kKind, int kR, bool kDebug> __device__ __forceinline__ void load_all(Block<kR, kDebug> &b) {
  const StepRowsPlan &p = b.args().plan;
  const int pos = *b.args().call.pos;
  Copier<Block<kR, kDebug>, kKind> loader(
      b, min(b.args().in_flight + (pos >= STEP_LONG), b.args().most_in_flight));
  load_layers(
      loader, pos, p.keys, [](int) { return (int)STEP_TEAM_WARPS; }, [&](int) { return p.span; });
  const int bytes = p.head_width * 2, row_bytes = p.shape.hidden * 2;
  const int first = first_head_block(p, blockIdx.x), end = first_head_block(p, blockIdx.x + 1);
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
