/* l2_prefetch.cuh - the warp that prefetches weights into L2. While the other warps wait for values and the
 * ring is full, memory is idle. This warp then brings the next stages' tiles to where its SM reads them at
 * almost twice the memory's rate.
 *
 * That is the SM's own half of L2. Data stays there after a load, but not after a prefetch (of either
 * kind) or cp.async (STEP.md), so this warp loads a word of each 32 bytes into a register. It brings one
 * stage at a time, since the exchange between clusters queues after the loads. */
#ifndef AUK_CUDA_FUSED_L2_PREFETCH_CUH
#define AUK_CUDA_FUSED_L2_PREFETCH_CUH

#include "cuda/fused/stages.cuh"

namespace step {

/* The address of the lane-th KB of a stage's tiles; past the last one, of the first. */
__device__ __forceinline__ unsigned long long tiles_of_lane(uint32_t piece, const unsigned char *tiles,
                                                            int lane) {
  const uint32_t first = load_shared_4(piece);
  const int groups = first & 31, row = lane / groups;
  const uint32_t own = row < kPieceRows ? load_shared_4(piece + row * 4) : 0;
  const int index = own & 31 ? (int)(own >> 5) + lane - row * groups : (int)(first >> 5);
  return (unsigned long long)tiles + (size_t)index * 1024;
}

/* Reads kN KB whose addresses lanes `first` and on hold. No load has a condition, so that all are in
 * flight before one is waited for. */
template <int kN> __device__ __forceinline__ uint32_t bring(unsigned long long from, int first, int lane) {
  uint32_t word[kN], all = 0;
#pragma unroll
  for (int i = 0; i < kN; i++)
    word[i] = load_past_l1((const unsigned char *)__shfl_sync(~0u, from, first + i) + lane * 32);
#pragma unroll
  for (int i = 0; i < kN; i++) all ^= word[i];
  return all;
}

constexpr uint32_t kStalled = 2000; /* cycles without a load after which loading has stalled */

/* Prefetches stages of weights, up to `most` after the next one to be loaded, while loading has stalled.
 * key_pieces: stages of keys in a layer. */
template <class BlockOf> __device__ __forceinline__ void go_ahead(BlockOf &b, int most, int key_pieces) {
  const int n_layers = b.args().plan.shape.n_layers;
  const int o = b.share(QKV).pieces, gate_up = o + b.share(O).pieces,
            down = gate_up + b.share(GATE_UP).pieces, end = down + b.share(DOWN).pieces;
  const int first = b.has_kv_head() ? 0 : gate_up, keys = b.has_kv_head() ? key_pieces : 0;
  const bool large = b.args().plan.slot_bytes > 16 * (1024 + 32 + 16); /* more than 16 KB of tiles */
  int before = 0;                                                      /* stages of earlier layers */
  uint32_t all = 0, last = 0, since = (uint32_t)clock64();
#pragma unroll 1
  for (int layer = 0; layer < n_layers; layer++) {
    const Layer &l = b.args().layers[layer];
#pragma unroll 1
    for (int i = first; i < end;) {
      /* The next stage of this layer to be loaded. Stages of keys count as if they came after o. */
      const unsigned loaded =
          __shfl_sync(~0u, *(volatile unsigned *)&b.loaded(), 0); /* the same in all lanes */
      int next = (int)loaded - before + first;
      if (next >= gate_up) next = max(gate_up, next - keys);
      if (next >= end) break;
      if (loaded != last) last = loaded, since = (uint32_t)clock64();
      i = max(i, next);
      const bool busy = __shfl_sync(~0u, (uint32_t)clock64() - since < kStalled, 0);
      if (busy || i - next >= most) {
        __nanosleep(100);
        continue;
      }
      const int matrix = i >= down ? DOWN : i >= gate_up ? GATE_UP : i >= o ? O : QKV;
      const unsigned long long mine = tiles_of_lane(piece_address(b, i), l.matrices[matrix].tiles, b.lane());
      all ^= bring<16>(mine, 0, b.lane());
      if (large) all ^= bring<4>(mine, 16, b.lane());
      i++;
    }
    before += end - first + keys;
  }
  *(volatile uint32_t *)(b.state + STEP_FORGET_AT + b.lane() * 4) = all; /* so the loads have a use */
}

} // namespace step

#endif
