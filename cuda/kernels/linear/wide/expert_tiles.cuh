/* expert_tiles.cuh - tiles of the rows of experts, each only as high as its rows need.
 *
 * Tensor cores take as long for an empty row of a tile as for a full one, and experts differ in their number
 * of rows. So a tile has one of several heights, multiples of kStep rows up to kMost. An expert of n rows has
 * t = ceil(n / kMost) tiles: t - 1 of n / t rows each, rounded up to whole steps, and a last one of the rows
 * that remain.
 *
 * All tiles, of rows by outputs, lie in one sequence, the highest first. Block b of B computes tiles b,
 * b + B, b + 2 B and so on. So blocks compute equally high tiles at the same time, and no block has much more
 * work than another. */
#pragma once

#include "cuda/kernels/linear/kernel.cuh"

template <int kMost_, int kFine = 16> struct ExpertTiles {
  /* Heights of a tile in rows: the largest; the step from one height to the next; the smallest (fewer rows
   * take no less time). kFine: the step, and the smallest height, if kMost is at most 64. */
  static constexpr int kMost = kMost_, kStep = kMost > 64 ? 32 : kFine, kLeast = kMost > 64 ? 64 : kFine;
  static_assert(kMost % kStep == 0 && kLeast % kStep == 0, "heights are multiples of the step");
  static constexpr int kHeights = (kMost - kLeast) / kStep + 1;
  static constexpr int kEntries = 2 * LINEAR_MAX_EXPERTS;

  /* The list, in shared memory, sorted by height. Entry 2 e stands for all tiles of expert e except the last
   * one, entry 2 e + 1 for the last one. Entries without tiles are left out. */
  int first[kEntries + 1]; /* number of tiles before those of each entry; first[n_entries] is n_tiles */
  unsigned short entries[kEntries];
  int n_tiles, n_entries;

  static __device__ __forceinline__ int whole_steps(int n_rows) {
    return (n_rows + kStep - 1) / kStep * kStep;
  }
  static __device__ __forceinline__ int height(int n_rows) { return max(whole_steps(n_rows), kLeast); }
  /* Index of height(n_rows) among the heights, the lowest first. */
  static __device__ __forceinline__ int which_height(int n_rows) { return (height(n_rows) - kLeast) / kStep; }

  /* How n rows are divided. */
  struct Division {
    int n_tiles, rows; /* rows of each tile but the last */
    __device__ __forceinline__ explicit Division(int n) : n_tiles((n + kMost - 1) / kMost), rows(0) {
      if (n_tiles > 0) rows = whole_steps((n + n_tiles - 1) / n_tiles);
    }
  };

  /* Fills the list. For all threads of the block; scratch: shared memory of 16 bytes for each expert. */
  __device__ __forceinline__ void fill(const GroupedExperts &experts, void *scratch) {
    int2 *found = (int2 *)scratch; /* of an entry: {key, tiles}; the key sorts by height, then by entry */
    if (threadIdx.x == 0) n_entries = 0;
    __syncthreads();
    const auto add = [&](int entry, int rows, int tiles) {
      if (tiles > 0)
        found[atomicAdd(&n_entries, 1)] = make_int2((height(rows) + 1) * kEntries - 1 - entry, tiles);
    };
    for (int e = threadIdx.x; e < experts.n_experts; e += blockDim.x) {
      const int n_rows = experts.begins[e + 1] - experts.begins[e];
      const Division d(n_rows);
      add(2 * e, d.rows, d.n_tiles - 1);
      add(2 * e + 1, n_rows - (d.n_tiles - 1) * d.rows, n_rows > 0);
    }
    __syncthreads();
    const int n = n_entries;
    for (int own = threadIdx.x; own < n; own += blockDim.x) {
      const int key = found[own].x;
      int place = 0, before = 0, sum = 0;
#pragma unroll 8
      for (int i = 0; i < n; i++) {
        const int2 other = found[i];
        const bool is_before = other.x > key;
        place += is_before, before += is_before ? other.y : 0, sum += other.y;
      }
      first[place] = before;
      entries[place] = (unsigned short)(kEntries - 1 - key % kEntries);
      if (place == 0) first[n] = n_tiles = sum;
    }
    __syncthreads();
  }

  /* Index in the list of the entry of `tile`; searches from index `from` on, 32 entries at a time. Past the
   * list's end `first` is undefined, but an earlier lane has found the entry. For all lanes of a warp. */
  __device__ __forceinline__ int place_of(int tile, int from) const {
    for (;; from += 32) {
      const int next = min(from + 1 + (int)threadIdx.x % 32, kEntries);
      const uint32_t after = __ballot_sync(~0u, first[next] > tile);
      if (after) return from + __ffs((int)after) - 1;
    }
  }

  /* Tile number `tile`; place: index of the entry to which this tile belongs. */
  __device__ __forceinline__ ExpertTile tile(const GroupedExperts &experts, int tile, int place) const {
    const int expert = entries[place] / 2, begin = experts.begins[expert], end = experts.begins[expert + 1];
    const Division d(end - begin);
    const int whole = entries[place] % 2 ? d.n_tiles - 1 : tile - first[place], at = begin + whole * d.rows;
    return {at, entries[place] % 2 ? end : at + d.rows, expert * experts.tile_rows};
  }
};
