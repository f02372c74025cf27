/* l2_prefetch.cuh - the warp that prefetches weights into L2. While the other warps wait for results of other
 * blocks and the ring is full, memory is idle. This warp then brings the next stages' tiles to where its SM
 * reads them at almost twice the memory's rate.
 *
 * That place is the SM's own half of L2. Data stays there after a load, but not after a prefetch instruction
 * or cp.async (LOG.md, "L2 and prefetches"). So this warp loads a word of each 32 bytes into a register. It
 * brings one stage at a time, because the exchange between clusters queues after the loads. */
#pragma once

#include "cuda/kernels/fused/stages.cuh"
#include "cuda/kernels/ptx/lanes.cuh"

namespace step::one {

/* The address of the lane-th KB of a stage's tiles. Lanes past the last KB get the address of the first
 * KB. */
__device__ __forceinline__ unsigned long long tiles_of_lane(uint32_t stage, const unsigned char *tiles,
                                                            int lane) {
  const uint32_t first = load_shared_4(stage);
  const int groups = first & 31, row = lane / groups;
  const uint32_t own = row < kStageRows ? load_shared_4(stage + row * 4) : 0;
  const int index = own & 31 ? (int)(own >> 5) + lane - row * groups : (int)(first >> 5);
  return (unsigned long long)tiles + (size_t)index * 1024;
}

/* Reads the kN KB whose addresses are in lanes first, first + 1, ... No load has a condition, so all are in
 * flight before the first wait. */
template <int kN>
__device__ __forceinline__ uint32_t load_lines(unsigned long long from, int first, int lane) {
  uint32_t word[kN], all = 0;
#pragma unroll
  for (int i = 0; i < kN; i++)
    word[i] = load_past_l1((const unsigned char *)__shfl_sync(~0u, from, first + i) + lane * 32);
#pragma unroll
  for (int i = 0; i < kN; i++) all ^= word[i];
  return all;
}

constexpr uint32_t kStalled = 2000; /* cycles without a load after which loading counts as stalled */

/* The last warp's work: prefetches stages of weights, up to prefetch_stages after the next stage to be
 * loaded, while loading has stalled. */
template <class B> __device__ __forceinline__ void prefetch_stages(B &b) {
  const int most = b.args.prefetch_stages;
  if (kInBytes<B::kParts> || kIsHalf<B::kParts> || most == 0) return;
  const int n_layers = b.plan.shape.n_layers;
  const int o = b.share(QKV).stages, gate_up = o + b.share(O).stages,
            down = gate_up + b.share(GATE_UP).stages, end = down + b.share(DOWN).stages;
  const int first = b.has_kv_head() ? 0 : gate_up,
            keys = b.has_kv_head() ? key_stages(b, 0, b.vars().pos) : 0;
  constexpr int kZeros = B::kParts == 1 || kIsFp4<B::kParts> ? 16 : kZeroBytes<B::kParts>;
  constexpr int kMost = 16 * (1024 + kScaleBytes<B::kParts> + kZeros);
  const bool large = b.plan.slot_bytes > kMost; /* more than 16 KB of tiles */
  int before = 0;                               /* stages of earlier layers */
  uint32_t all = 0, last = 0, since = (uint32_t)clock64();
#pragma unroll 1
  for (int layer = 0; layer < n_layers; layer++) {
    const Layer &l = b.args.layers[layer];
#pragma unroll 1
    for (int i = first; i < end;) {
      /* The next stage of this layer to be loaded. Stages of keys count as if they came after o. */
      const unsigned loaded = __shfl_sync(~0u, *(volatile unsigned *)&b.vars().loaded, 0); /* in all lanes */
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
      const unsigned long long mine = tiles_of_lane(stage_entry(b, i), l.matrices[matrix].tiles, b.lane());
      all ^= load_lines<16>(mine, 0, b.lane());
      if (large) all ^= load_lines<4>(mine, 16, b.lane());
      i++;
    }
    before += end - first + keys;
  }
  all = warp_sum(all);
  if (b.lane() == 0) b.vars().sink = all; /* so the loads have a use */
}

} // namespace step::one
