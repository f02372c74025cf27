/* stages.cuh - a table in shared memory of where each stage of a layer's weights is loaded from. It is the
 * same for every layer and made once, which keeps the loop of the loading warps short (STEP.md).
 *
 *     [stages of qkv, o, gate and up, down][4 tile rows]  uint32 {27 bits first group, 5 bits groups}
 *
 * The first group is counted from the matrix's first, tile row by tile row: units of 1024 bytes of
 * tiles, 32 of scales, 8 of zeros. An entry has 0 groups if the stage has fewer tile rows. */
#ifndef AUK_CUDA_FUSED_STAGES_CUH
#define AUK_CUDA_FUSED_STAGES_CUH

#include "cuda/fused/block.cuh"

namespace step {

constexpr int kPieceRows = STEP_PIECE_BYTES / 4;

/* A stage's tile rows and groups within its share. */
struct PieceAt {
  int row, rows, group, groups;
};

template <class BlockOf> __device__ __forceinline__ uint32_t piece_address(const BlockOf &b, int piece) {
  return shared_address(b.state) + b.args().plan.at.pieces + piece * STEP_PIECE_BYTES;
}

/* Called by all threads of the block after make_share(). piece_at(share, i) is the share's i-th stage. */
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
