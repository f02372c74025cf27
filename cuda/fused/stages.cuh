/* stages.cuh - a table in shared memory of where each stage of a layer's weights is loaded from. It is the
 * same for every layer and made once, which keeps the loop of the loading warps short (LOG.md).
 *
 *     [stages of qkv, o, gate and up, down][4 tile rows]  uint32 {27 bits first group, 5 bits groups}
 *
 * The first group is counted from the matrix's first, tile row by tile row: units of 1024 bytes of tiles,
 * 32 of scales, 8 of zeros. An entry has 0 groups if the stage has fewer tile rows. */
#pragma once

#include "cuda/fused/block.cuh"

namespace step {

constexpr int kStageRows = STEP_ENTRY_BYTES / 4;

/* A stage's tile rows and groups within its share. */
struct StageTiles {
  int row, rows, group, groups;
};

template <class B> __device__ __forceinline__ uint32_t stage_entry(const B &b, int stage) {
  return shared_address(b.smem) + b.plan.off.stage_table + stage * STEP_ENTRY_BYTES;
}

/* The number in the matrix of the share's tile row i. */
__device__ __forceinline__ int tile_row(const Share &share, int i) {
  const bool second = i >= share.split;
  if (second) i -= share.split;
  return share.tile[second] + (i >> share.log_run) * share.stride[second] + (i & ((1 << share.log_run) - 1));
}

/* Called by all threads of the block after make_share(). stage_of(b, share, i) is the share's i-th stage. */
template <class B> __device__ __forceinline__ void make_stages(const B &b) {
  uint32_t *to = (uint32_t *)(b.smem + b.plan.off.stage_table);
#pragma unroll 1
  for (int matrix = 0; matrix < MATRICES; matrix++) {
    const Share &share = b.share(matrix);
#pragma unroll 1
    for (int i = threadIdx.x; i < share.stages * kStageRows; i += STEP_ALL_THREADS) {
      const StageTiles stage = stage_of(b, share, i / kStageRows);
      const int row = i % kStageRows;
      const uint32_t index = tile_row(share, stage.row + row) * share.all_groups + share.group + stage.group;
      to[i] = row < stage.rows ? index << 5 | stage.groups : 0;
    }
    to += share.stages * kStageRows;
  }
}

} // namespace step
