/* stages.cuh - a table in shared memory of what the pieces of a layer's weights are loaded from, the
 * same for each layer: made once, so that the warps that load have little to work out for each (LOG.md).
 *
 *     [pieces of qkv, o, gate and up, down][4 tile rows]  uint32 {27 bits tile row and group, 5 bits groups}
 *
 * Tile row and group: from the matrix's first, in units of a group's 1024 bytes of tiles, 32 of scales, 8 of
 * zeros. 0 groups where a piece has no such row. */
#ifndef AUK_CUDA_FUSED_STAGES_CUH
#define AUK_CUDA_FUSED_STAGES_CUH

#include "cuda/fused/block.cuh"

namespace step {

constexpr int kPieceRows = STEP_PIECE_BYTES / 4;

/* Tile rows and groups of a share that a piece has. */
struct PieceAt {
  int row, rows, group, groups;
};

template <class BlockOf> __device__ __forceinline__ uint32_t piece_address(const BlockOf &b, int piece) {
  return shared_address(b.state) + b.args().plan.at.pieces + piece * STEP_PIECE_BYTES;
}

/* By all threads of the block, when all shares are there. piece_at(share, i): the i-th of a share. */
template <class BlockOf, class At>
__device__ __forceinline__ void make_pieces(const BlockOf &b, At piece_at) {
  uint32_t *to = (uint32_t *)(b.state + b.args().plan.at.pieces);
#pragma unroll 1
  for (int matrix = 0; matrix < MATRICES; matrix++) {
    const auto &share = b.share(matrix);
#pragma unroll 1
    for (int i = threadIdx.x; i < share.pieces * kPieceRows; i += STEP_ALL_THREADS) {
      const PieceAt piece = piece_at(share, i / kPieceRows);
      const int row = i % kPieceRows;
      const uint32_t index = tile_row(share, piece.row + row) * share.all_groups + share.group + piece.group;
      to[i] = row < piece.rows ? index << 5 | piece.groups : 0;
    }
    to += share.pieces * kPieceRows;
  }
}

} // namespace step

#endif
