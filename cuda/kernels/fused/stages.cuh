/* stages.cuh - a table in shared memory of where each stage of a layer's weights is loaded from. It is the
 * same for every layer and made once. So the loop of the loading warps is short: each of its instructions
 * delays a copy by some six cycles (LOG.md, "L2 and prefetches").
 *
 *     [stages of all shares, in the order of share_at()][4 tile rows]
 *         uint32 {27 bits first group, 5 bits groups}
 *
 * The first group is given by its number in the matrix, counted tile row by tile row; a group of 128 inputs
 * in 4 bits is 1024 bytes of tiles, 32 of scales and 8 of zeros. An entry has 0 groups if the stage has fewer
 * tile rows.
 *
 * A mixture of experts has a table [stages][2 parts][4 tile rows] of two words, because a stage of down can
 * begin with the last groups of one choice and end with the first of the next. An entry: {the first word as
 * for expert 0, 28 bits groups of an expert, 4 bits choice}. For gate and up and for down the loading warps
 * add the groups before the chosen expert's (group_of_entry()); the second word of other matrices is 0.
 * Entries of varied experts' down count half groups, each the inputs of one FFN block. */
#pragma once

#include "cuda/kernels/fused/block.cuh"

namespace step {

constexpr int kStageRows = STEP_ENTRY_BYTES / 4;

/* Number of a stage's entries. A warp issues at most one copy for each. */
template <class B> constexpr int kStageCopies = B::kExperts ? 2 * kStageRows : kStageRows;

/* A stage's tile rows and groups within its share. */
struct StageTiles {
  int row, rows, group, groups;
};

/* Bytes of a copy's entry. */
template <class B> constexpr int kCopyBytes = B::kExperts ? 8 : 4;

template <class B> __device__ __forceinline__ uint32_t stage_entry(const B &b, int stage) {
  return shared_address(b.smem) + b.plan.off.stage_table + stage * kStageCopies<B> * kCopyBytes<B>;
}

/* A copy's entry in the table, and its first word. */
template <class B> using Entry = std::conditional_t<B::kExperts, uint2, uint32_t>;
template <class B> __device__ __forceinline__ Entry<B> load_entry(uint32_t at) {
  if constexpr (B::kExperts)
    return load_shared_8(at);
  else
    return load_shared_4(at);
}
__device__ __forceinline__ uint32_t first_word(const uint2 &entry) {
  return entry.x;
}
__device__ __forceinline__ uint32_t first_word(uint32_t entry) {
  return entry;
}

/* The first group and the number of groups of a copy, from its entry. With experts the entry is that of
 * expert 0, and the groups before the chosen expert's are added: call this after the choice. */
template <class B> __device__ __forceinline__ uint32_t group_of_entry(const B &b, const uint2 &entry) {
  return entry.x + ((uint32_t)b.ids()[entry.y & 15] * (entry.y >> 4) << 5); /* 0, 0: no copy */
}
template <class B> __device__ __forceinline__ uint32_t group_of_entry(const B &, uint32_t entry) {
  return entry;
}

/* The index in the matrix of the share's tile row i. */
__device__ __forceinline__ int tile_row(const Share &share, int i) {
  const bool second = i >= share.split;
  if (second) i -= share.split;
  return share.tile[second] + (i >> share.log_run) * share.stride[second] + (i & ((1 << share.log_run) - 1));
}

/* The index in the matrix of tile row i of `share`, which is share_at(index). In qkv a hybrid's block has
 * tile row rank() of each of the cluster's packs. */
template <class B> __device__ __forceinline__ int tile_of(const B &b, int index, const Share &share, int i) {
  if constexpr (B::kHybrid) {
    const bool delta = index >= MATRICES;
    if (index == QKV || index == MATRICES + QKV) {
      const StepMix mix = b.mix_vars().mixes[delta];
      return mix.n == 0 ? 0 : 8 * step_mix_pack(&b.plan.shape, mix, delta, i) + b.rank();
    }
  }
  return tile_row(share, i);
}

/* The entry of a copy of groups first .. first + groups - 1 of the expert of `choice`. of_expert: the number
 * of groups of one expert. */
__device__ __forceinline__ uint2 entry_of_groups(int first, int groups, int of_expert, int choice) {
  static_assert(STEP_MAX_CHOSEN <= 16, "a choice has 4 bits");
  return make_uint2(first << 5 | groups, of_expert << 4 | choice);
}

/* The entry of tile row `row` of a stage of gate and up or of down: part 0 is from the stage's first expert,
 * part 1 from the second. */
template <class B>
__device__ __forceinline__ uint2 entry_in_expert(const B &b, int matrix, const Share &share,
                                                 const StageTiles &stage, int row, int part) {
  const int blocks = b.plan.expert_blocks, tile = tile_row(share, stage.row + row);
  if (row >= stage.rows) return make_uint2(0, 0);
  if (matrix == GATE_UP) {
    const int rows = B::kFeatures / 8 * blocks, choice = tile / rows,
              index = (tile - choice * rows) * share.all_groups;
    return part ? make_uint2(0, 0)
                : entry_of_groups(index + stage.group, stage.groups, rows * share.all_groups, choice);
  }
  if constexpr (B::kVaried) { /* a stage, or even a group, may belong to two experts */
    const int begin = 2 * stage.group, n = min(2 * stage.groups, b.n_blocks() - begin),
              block = share.group + begin, choice = block / blocks, row_blocks = share.all_groups,
              first = min(n, (choice + 1) * blocks - block), all = b.width() / 16 * row_blocks;
    return part == 0   ? entry_of_groups(tile * row_blocks + block - choice * blocks, first, all, choice)
           : first < n ? entry_of_groups(tile * row_blocks, n - first, all, choice + 1)
                       : make_uint2(0, 0);
  }
  const int block = share.group + stage.group, choice = block / blocks,
            first = min(stage.groups, (choice + 1) * blocks - block), all = b.plan.shape.hidden / 16 * blocks;
  return part == 0              ? entry_of_groups(tile * blocks + block - choice * blocks, first, all, choice)
         : first < stage.groups ? entry_of_groups(tile * blocks, stage.groups - first, all, choice + 1)
                                : make_uint2(0, 0);
}

/* Makes the table of stages. All threads of the block call it after make_share(). stage_of(b, share, i) is
 * the share's i-th stage. */
template <class B> __device__ __forceinline__ void make_stages(const B &b) {
  constexpr int kCopies = kStageCopies<B>;
  uint32_t *to = (uint32_t *)(b.smem + b.plan.off.stage_table);
#pragma unroll 1
  for (int matrix = 0, all = 0; matrix < B::kShares; matrix++) {
    const Share &share = b.share_at(matrix);
    if constexpr (B::kHybrid) {
      if (threadIdx.x == 0) b.mix_vars().first_stage[matrix] = all;
      all += share.stages;
    }
    if constexpr (B::kLatent) {
      if (threadIdx.x == 0) b.latent_vars().first_stage[matrix] = all;
      all += share.stages;
    }
#pragma unroll 1
    for (int i = threadIdx.x; i < share.stages * kCopies; i += STEP_ALL_THREADS) {
      const StageTiles stage = stage_of(b, share, i / kCopies);
      const int row = i % kStageRows, part = i % kCopies / kStageRows;
      const uint32_t index =
          tile_of(b, matrix, share, stage.row + row) * share.all_groups + share.group + stage.group;
      const uint32_t own = row < stage.rows && part == 0 ? index << 5 | stage.groups : 0;
      if constexpr (B::kExperts)
        ((uint2 *)to)[i] = matrix == GATE_UP || matrix == DOWN
                               ? entry_in_expert(b, matrix, share, stage, row, part)
                               : make_uint2(own, 0);
      else
        to[i] = own;
    }
    to += share.stages * kCopies * (kCopyBytes<B> / 4);
  }
}

} // namespace step
