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

template <int kR, bool kDebug, int kKind> struct Loader : Copier<Block<kR, kDebug>, kKind> {
  using Base = Copier<Block<kR, kDebug>, kKind>;
  using Base::b, Base::kUnit, Base::piece, Base::Base;

  /* A lane copies for a tile row. `base`: of this kind, the matrix. */
  __device__ __forceinline__ void matrix(int which, const unsigned char *base) {
    const Share &share = b.share(which);
    const int n_rows = share.n_rows, n_groups = share.n_groups, span = b.args().plan.span;
    base += (size_t)share.group * kUnit;
#pragma unroll 1
    for (int row0 = 0; row0 < n_rows; row0 += STEP_WARPS)
#pragma unroll 1
      for (int g0 = 0; g0 < n_groups; g0 += span) {
        const int groups = min(span, n_groups - g0);
        int at = kKind == 0 ? 0 : STEP_TEAM_WARPS * groups * (kKind == 1 ? 1024 : 1024 + 32);
        int stride = groups * kUnit, before = 0, bytes = stride;
        if (kKind == 2) {
          stride = zeros_stride(groups);
          before = zeros_are_odd(share, g0) ? 8 : 0, bytes = (before + bytes + 15) & ~15;
        }
        at += b.lane() * stride;
        const int end = min(n_rows, row0 + STEP_WARPS);
#pragma unroll 1
        for (int row = row0; row < end; row += STEP_TEAM_WARPS) {
          const int copies = min(STEP_TEAM_WARPS, end - row),
                    mine = tile_row(share, row + min(b.lane(), copies - 1));
          piece(at, base + ((size_t)mine * share.all_groups + g0) * kUnit - before, bytes, copies);
        }
      }
  }

  __device__ __forceinline__ void head(int first, int end) {
    const StepRowsPlan &p = b.args().plan;
    const int bytes = p.head_width * 2, row_bytes = p.shape.hidden * 2;
    const int mine = kKind + b.lane() * STEP_LOADERS;
#pragma unroll 1
    for (int i0 = first; i0 < end; i0 += STEP_TEAMS)
#pragma unroll 1
      for (int at = 0; at < row_bytes; at += bytes)
#pragma unroll 1
        for (int i = i0; i < min(end, i0 + STEP_TEAMS); i++) {
          const int row0 = i * STEP_HEAD_ROWS, n = min(STEP_HEAD_ROWS, p.shape.vocab_size - row0);
          piece(mine * (bytes + STEP_HEAD_PAD),
                b.args().head + (size_t)(row0 + min(mine, n - 1)) * row_bytes + at, bytes,
                max(0, (n - kKind + STEP_LOADERS - 1) / STEP_LOADERS));
        }
  }
};

template <int kKind, int kR, bool kDebug> __device__ __forceinline__ void load_all(Block<kR, kDebug> &b) {
  const StepRowsPlan &p = b.args().plan;
  const int pos = *b.args().call.pos;
  Loader<kR, kDebug, kKind> loader(b, min(b.args().in_flight + (pos >= STEP_LONG), b.args().most_in_flight));
  load_layers<kKind>(loader, b, pos, p.keys);
  loader.head(first_head_block(p, blockIdx.x), first_head_block(p, blockIdx.x + 1));
}

} // namespace rows
} // namespace step

#endif
