/* choice.cuh - the choice of experts: the best of numbered items, by a warp. For router.cuh. */
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>

/* An integer, at least 1, that is ordered as the float is. NaN is the largest; with its sign set it is the
 * smallest. */
__device__ __forceinline__ uint32_t ordered(float v) {
  const uint32_t bits = __float_as_uint(v);
  return max(bits & 0x80000000u ? ~bits : bits | 0x80000000u, 1u);
}

/* The largest of the warp's numbers. */
__device__ __forceinline__ uint32_t warp_most(uint32_t v) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(~0u, v);
#else
  for (int o = 16; o; o /= 2) v = max(v, __shfl_xor_sync(~0u, v, o));
  return v;
#endif
}

/* 32-bit words of best_of()'s list for n_items items. */
__host__ __device__ constexpr int best_of_words(int n_items) {
  return 2 * n_items + 8 > 32 ? 2 * n_items + 8 : 32;
}

/* Calls take(rank, item) once for each of the n_best <= 32 best items, in some lane. The first of equal items
 * counts as the best. key(i), i < n_own: the key of item 32 i + lane, at least 1; 0 if there is no such item.
 *
 * Pruning: `least` is the n_best-th largest of the 32 lanes' maxima. At least n_best items are >= `least`,
 * usually few more. They are written to `list` in the order of the items. Then each lane ranks some entries:
 * it counts the entries that are larger, or equal and earlier.
 *
 * list: room for {key, item} of all items and four more (best_of_words()), 16-byte aligned. Called by a whole
 * warp. */
template <int kUnroll, class Key, class Take>
__device__ __forceinline__ void best_of(int n_best, int n_own, const Key &key, uint2 *list,
                                        const Take &take) {
  const int lane = threadIdx.x % 32;
  uint32_t most = 0, *best = (uint32_t *)list;
#pragma unroll kUnroll
  for (int i = 0; i < n_own; i++) most = max(most, key(i));
  best[lane] = most;
  __syncwarp();
  int n_better = 0;
#pragma unroll 4
  for (int i = 0; i < 32; i += 4) {
    const uint4 v = *(const uint4 *)(best + i);
    n_better += (v.x > most) + (v.y > most) + (v.z > most) + (v.w > most);
  }
  const uint32_t least = max(~warp_most(n_better < n_best ? ~most : 0u), 1u);
  int n = 0;
#pragma unroll kUnroll
  for (int i = 0; i < n_own; i++) {
    const uint32_t own = key(i), those = __ballot_sync(~0u, own >= least);
    if (own >= least) list[n + __popc(those & ((1u << lane) - 1))] = make_uint2(own, 32 * i + lane);
    n += __popc(those);
  }
  if (lane < 4) list[n + lane] = make_uint2(0, 0);
  __syncwarp();
#pragma unroll 1
  for (int own = lane; own < n; own += 32) {
    const uint2 mine = list[own];
    int rank = 0;
#pragma unroll 1
    for (int i = 0; i < n; i += 4)
#pragma unroll
      for (int j = 0; j < 4; j++) rank += list[i + j].x > mine.x - (i + j < own);
    if (rank < n_best) take(rank, (int)mine.y);
  }
  __syncwarp();
}
