/* wgmma_parts.cuh - what the wgmma kernels of few tokens share: how the work is cut, the loaders of weights,
 * and how blocks add up the sums of a tile.
 *
 * A block has kInGroups x kOutGroups warpgroups that multiply, 64 outputs each. A unit is kUnit inputs of the
 * block's outputs; each of the kInGroups groups multiplies every kInGroups-th unit. The units of all tiles,
 * tile after tile, are cut evenly over the blocks (stream-K, stream_k.cuh). A block that begins in the middle
 * of a tile sends its sums of that tile through the mailbox to the block in which the tile begins. That block
 * adds the sums of all blocks in the order of k. A value in the mailbox is its own flag: 0 means that the
 * value has not come yet. All blocks are resident, and a block sends before it waits.
 *
 *   stage  x of a unit; weights [tiles x vectors][kTileRows][512]; scales and zeros [kTileRows][kParts]
 *
 * The ring; t is the turn of the stage's slot (ptx/cluster.cuh). Group g has slots g, g + kInGroups, ...
 *
 *   a thread          wait empty, parity (t + 1) % 2 -> weights: 1 arrival, their bytes -----+
 *   a warp            wait empty, parity (t + 1) % 2 -> scales, zeros: an arrival a lane ----+-> full: 34
 *   another thread    wait empty, parity (t + 1) % 2 -> x: 1 arrival, its bytes -------------+       |
 *                          ^                                                                         |
 *   warps of a group       +--- empty: 1 a warp, 4 kOutGroups <- products <- wait full, parity t % 2 <-+
 *
 * The loaders of weights and of scales fill kEarly stages, and then wait for phase 0 of full[0], that is,
 * until x of the first stage has come.
 *
 *   named barriers   1: all consumers have written a round's sums; 2: they have read them (exchange_sums())
 *                    3: 1 / rms (planes_wgmma.cu); 4 and 5: a group's staging memory (next.cuh)
 *   mailbox          0 -> a block's sums, sent at most once a launch -> 0, by the thread that has read them
 *
 * A Shape S is derived from ShapeOf; kParts are the parts of a unit with a scale each. S adds kMovesRegisters
 * and first_token(n_tokens, token_tile), the first token of a tile. Included by narrow_wgmma.cu,
 * planes_wgmma.cu and next.cuh. */
#pragma once

#include "cuda/kernels/linear/kernel.cuh"
#include "cuda/kernels/linear/stream_k.cuh"
#include "cuda/kernels/linear/weight_stage.cuh"
#include "cuda/kernels/linear/wgmma_stages.cuh"
#include "cuda/kernels/ptx/lanes.cuh"
#include "cuda/kernels/ptx/tensor_map.cuh"
#include "cuda/kernels/ptx/wgmma.cuh"

namespace wgmma_parts {

/* Sizes that follow from a shape's sizes. kMost: KB of shared memory for the ring and exchange_sums(). */
template <class W_, int kTokens_, int kUnit_, int kParts_, int kOutGroups, int kInGroups_, int kXBytes_,
          int kMost>
struct ShapeOf {
  typedef W_ W;
  static constexpr int kTokens = kTokens_, kUnit = kUnit_, kParts = kParts_, kInGroups = kInGroups_;
  static constexpr int kTileRows = 4 * kOutGroups; /* tile rows of a block */
  static constexpr int kGroupThreads = 128 * kOutGroups, kConsumers = kInGroups * kGroupThreads;
  static constexpr int kSumFloats = kTokens / 2, kBlockIn = kUnit / kParts;
  /* Groups exchange their sums in rounds of kRound fragments (8 tokens each): at most 8, or 4 with four
   * groups or large stages. Each group finishes kOwn fragments of a round, kMine in all. */
  static constexpr int kMostOfRound = kInGroups == 4 || (kTokens > 64 && kXBytes_ > kTokens * 128) ? 4 : 8;
  static constexpr int kRounds = (kTokens / 8 + kMostOfRound - 1) / kMostOfRound;
  static constexpr int kRound = kTokens / 8 / kRounds, kOwn = (kRound + kInGroups - 1) / kInGroups;
  static constexpr int kMine = kRounds * kOwn;
  static_assert(kTokens % (8 * kRounds) == 0, "whole fragments");
  static constexpr int kBoxes = kUnit / kTileIn * W::kVectors, kWBytes = kTileRows * kBoxes * 512;
  static constexpr int kGroupBytes = kTileRows * kParts * W::kMetaBytes;
  static constexpr int kXBytes = kXBytes_;
  static constexpr int kWAt = (kXBytes + 127) / 128 * 128, kGroupsAt = kWAt + kWBytes;
  static constexpr int kStageBytes = (kGroupsAt + kGroupBytes + 1023) / 1024 * 1024;
  static constexpr int kExchangeBytes = kInGroups > 1 ? 16 * kOwn *kInGroups *kConsumers : 0;
  static constexpr int kFitting = (kMost * 1024 - kExchangeBytes) / kStageBytes;
  /* A slot always serves the same group. If groups shared it, one could wait for phase n + 1 of `full` while
   * phase n is incomplete. That wait would end at once: phase n - 1 has the same parity. A group needs two
   * slots, because add_stages() releases one only after it has the next. */
  static constexpr int kStages = (kFitting < 16 ? kFitting : 16) / kInGroups * kInGroups;
  /* kEarly stages of weights are loaded before x of the first stage has come. These loads slow the small
   * kernels before this one and the first x. So with at most 16 tokens they are at most 48 KB. With more
   * tokens, loading all stages pays nevertheless (LOG.md, "Early loads"). */
  static constexpr int kFew = 48 * 1024 / kWBytes, kEarly = kTokens <= 16 && kFew < kStages ? kFew : kStages;
  static constexpr size_t kSharedBytes = (size_t)kStages * kStageBytes + kExchangeBytes + 1024; /* to align */
  static_assert(kStages >= 2 * kInGroups || kInGroups == 1, "two stages for each group");
  static_assert(4 * kMine * kConsumers <= kMailboxFloats, "the mailbox holds a block's sums");
};

/* Units of all tiles, cut evenly: n_units + 1 for each of the first n_longer blocks, else n_units. */
struct Cut {
  int n_blocks, n_units, n_longer;
};

struct PartArgs {
  CUtensorMap tiles; /* boxes of 512 bytes (a vector of each lane) of kTileRows tile rows */
  QuantView w;
  int n_tokens, n_token_tiles, n_units; /* n_units: of a tile */
  Cut cut;
  Epilogue out;
  float *mailbox; /* [blocks][kMine][kConsumers][4], 0 before and after a launch */
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

__device__ __forceinline__ int first_unit(const Cut &cut, int block) {
  return block * cut.n_units + min(block, cut.n_longer);
}

/* The block that has unit end - 1: `block` or one of the few after it. */
__device__ __forceinline__ int last_block(const Cut &cut, int block, int end) {
  while (first_unit(cut, block + 1) < end) block++;
  return block;
}

/* Part of a tile. */
struct Part {
  int tile, first, n_units; /* its units are [first, first + n_units) of the tile */
  bool last;                /* the block's last part */
};

/* Calls work(part) for the parts of this block in order. */
template <class Work> __device__ __forceinline__ void for_each_part(const PartArgs &a, Work work) {
  int begin = first_unit(a.cut, blockIdx.x), left = first_unit(a.cut, blockIdx.x + 1) - begin;
  int tile = begin / a.n_units, first = begin - tile * a.n_units;
  while (left > 0) {
    const int n = min(left, a.n_units - first);
    left -= n;
    work(Part{tile, first, n, left == 0});
    tile++, first = 0;
  }
}

/* Position of a tile along the outputs: tiles of the same outputs follow each other. */
__device__ __forceinline__ int out_tile(const PartArgs &a, int tile) {
  return a.n_token_tiles == 1 ? tile : tile / a.n_token_tiles;
}

__device__ __forceinline__ int token_tile_of(const PartArgs &a, int tile) {
  return a.n_token_tiles == 1 ? 0 : tile % a.n_token_tiles;
}

/* Fills stages with the units of this block. load_of(part) returns load(unit, stage, full), which loads a
 * unit of the part. kEarly > 0: waits for x of the first stage before it fills more than kEarly stages. */
template <int kEarly, class LoadOf>
__device__ __forceinline__ void fill_ring(const PartArgs &a, const Ring &ring, LoadOf load_of) {
  RingProducer producer(ring);
  int early = kEarly;
  for_each_part(a, [&](const Part &part) {
    auto load = load_of(part);
    for (int unit = part.first; unit < part.first + part.n_units; unit++) {
      if (kEarly > 0 && early-- == 0) barrier_wait(ring.full, 0);
      producer.fill([&](unsigned char *stage, uint64_t *full) { load(unit, stage, full); });
    }
  });
}

/* One thread loads weights by tensor copies. Bulk copies, one for each tile row, would not keep up with
 * memory. Rows past the matrix are 0. */
template <class S> __device__ __forceinline__ void load_weights(const PartArgs &a, const Ring &ring) {
  fill_ring<S::kEarly>(a, ring, [&](const Part &part) {
    return [&a, row = out_tile(a, part.tile) * S::kTileRows](int unit, unsigned char *stage, uint64_t *full) {
      barrier_expect(full, S::kWBytes);
#pragma unroll
      for (int i = 0; i < S::kBoxes; i++)
        copy_box(stage + S::kWAt + i * S::kTileRows * 512, &a.tiles, full, (unit * S::kBoxes + i) * 256, row);
    };
  });
}

/* A warp loads scales and zeros. Past the matrix it loads those of the last tile row again; the results are
 * dropped. */
template <class S> __device__ __forceinline__ void load_groups(const PartArgs &a, const Ring &ring) {
  typedef typename S::W W;
  constexpr int kCopies = W::kMetaCopies;
  fill_ring<S::kEarly>(a, ring, [&](const Part &part) {
    return
        [&a, row0 = out_tile(a, part.tile) * S::kTileRows](int unit, unsigned char *stage, uint64_t *full) {
#pragma unroll
          for (int c = threadIdx.x % 32; c < S::kTileRows * S::kParts * kCopies; c += 32) {
            int row = c / (S::kParts * kCopies), p = c / kCopies % S::kParts;
            copy_meta<W>(a.w, row0 + row, unit * S::kUnit + p * S::kBlockIn, c % kCopies,
                         stage + S::kGroupsAt + (row * S::kParts + p) * W::kMetaBytes);
          }
          barrier_arrive_after_copies(full);
        };
  });
}

/* Tile row of the calling warp in its block: wgmma gives it 16 of its warpgroup's 64 rows. */
template <class S> __device__ __forceinline__ int tile_row() {
  return threadIdx.x / 32 % S::kTileRows;
}

/* The sums of block `block`. They lie in its part of the mailbox until another block has read them. */
template <class S> struct Mail {
  float *at;

  __device__ __forceinline__ Mail(float *mailbox, int block)
      : at(mailbox + ((size_t)block * S::kMine * S::kConsumers + threadIdx.x) * 4) {}

  __device__ __forceinline__ float *vector(int i) const { return at + (size_t)i * S::kConsumers * 4; }

  /* Two sums as a word, with -0 for 0: 0 would mean that a sum has not come. */
  static __device__ __forceinline__ uint64_t two(float low, float high) {
    return (uint64_t)__float_as_uint(low == 0 ? -0.0f : low) |
           (uint64_t)__float_as_uint(high == 0 ? -0.0f : high) << 32;
  }

  __device__ __forceinline__ void send(const float *y) const {
#pragma unroll
    for (int i = 0; i < S::kMine; i++, y += 4)
      store_relaxed_16(vector(i), ulonglong2{two(y[0], y[1]), two(y[2], y[3])});
  }
};

/* Adds to y the sums of blocks first .. last. Waits for each sum to come, and sets it to 0 in the mailbox. */
template <class S>
__device__ __forceinline__ void collect(float (&y)[4 * S::kMine], float *mailbox, int first, int last) {
  constexpr int kAtOnce = S::kMine % 4 == 0 ? 4 : S::kMine % 3 == 0 ? 3 : S::kMine;
  constexpr int kBlocks = S::kInGroups == 4 ? 2 : 3;
#pragma unroll
  for (int i = 0; i < S::kMine; i += kAtOnce)
    for (int b = first; b <= last; b += kBlocks) {
      ulonglong2 v[kBlocks][kAtOnce];
      bool all;
      do {
        all = true;
#pragma unroll
        for (int k = 0; k < kBlocks; k++)
#pragma unroll
          for (int j = 0; j < kAtOnce; j++)
            v[k][j] = load_relaxed_16(Mail<S>(mailbox, min(b + k, last)).vector(i + j));
#pragma unroll
        for (int k = 0; k < kBlocks; k++)
#pragma unroll
          for (int j = 0; j < kAtOnce; j++)
            all &= (uint32_t)v[k][j].x && (uint32_t)(v[k][j].x >> 32) && (uint32_t)v[k][j].y &&
                   (uint32_t)(v[k][j].y >> 32);
      } while (!all);
#pragma unroll
      for (int k = 0; k < kBlocks; k++)
        if (b + k <= last)
#pragma unroll
          for (int j = 0; j < kAtOnce; j++) {
            float *to = y + 4 * (i + j);
            to[0] += __uint_as_float((uint32_t)v[k][j].x);
            to[1] += __uint_as_float((uint32_t)(v[k][j].x >> 32));
            to[2] += __uint_as_float((uint32_t)v[k][j].y);
            to[3] += __uint_as_float((uint32_t)(v[k][j].y >> 32));
            store_relaxed_16(Mail<S>(mailbox, b + k).vector(i + j), ulonglong2{0, 0});
          }
    }
}

/* Finishes kMine fragments of a part of a tile; y has the block's sums. If the part does not begin its tile,
 * sends y to the block that has the tile's first unit. c.normalise() can multiply finished sums by a number
 * for each token. */
template <class S, class Consumer>
__device__ __forceinline__ void finish(const PartArgs &a, const Consumer &c, float (&y)[4 * S::kMine],
                                       const Part &part, int group) {
  if (part.first > 0) {
    Mail<S>(a.mailbox, blockIdx.x).send(y);
    return;
  }
  if (part.n_units < a.n_units)
    collect<S>(y, a.mailbox, blockIdx.x + 1, last_block(a.cut, blockIdx.x, (part.tile + 1) * a.n_units));
  const int token_tile = token_tile_of(a, part.tile), token0 = S::first_token(a.n_tokens, token_tile);
#pragma unroll
  for (int round = 0; round < S::kRounds; round++) {
    const int first = token0 + (round * S::kRound + group * S::kOwn) * 8;
    float *sums = y + 4 * S::kOwn * round;
    c.template normalise<S::kOwn>(sums, first);
    store_fragments<S::kOwn>(a.out, out_tile(a, part.tile) * S::kTileRows + tile_row<S>(), first,
                             token_tile * S::kTokens, min(a.n_tokens, token0 + S::kTokens), sums);
  }
}

/* Adds up the groups' sums in the order of the groups, round by round. y gets the sums that this group
 * finishes; the group's own contribution to y stays in registers. last: this block multiplies no further
 * part. */
template <class S>
__device__ __forceinline__ void exchange_sums(const float (&sums)[S::kSumFloats], float (&y)[4 * S::kMine],
                                              const Ring &ring, int group, bool last) {
  constexpr int kGiven = 1, kTaken = 2, kGroups = S::kInGroups;
  float4 *exchange = (float4 *)ring.stage(S::kStages) + threadIdx.x % S::kGroupThreads;
#pragma unroll
  for (int round = 0; round < S::kRounds; round++) {
    const float *from = sums + 4 * S::kRound * round;
    float *to = y + 4 * S::kOwn * round;
#pragma unroll
    for (int i = 0; i < S::kRound; i++) {
      if (i / S::kOwn == group) {
#pragma unroll
        for (int j = 0; j < 4; j++) to[i % S::kOwn * 4 + j] = from[4 * i + j];
      } else {
        exchange[(i * kGroups + group) * S::kGroupThreads] = {from[4 * i], from[4 * i + 1], from[4 * i + 2],
                                                              from[4 * i + 3]};
      }
    }
    named_barrier_sync<kGiven, S::kConsumers>();
#pragma unroll
    for (int i = 0; i < S::kOwn; i++) {
      const float4 *at = exchange + (group * S::kOwn + i) * kGroups * S::kGroupThreads;
      const float4 own = {to[4 * i], to[4 * i + 1], to[4 * i + 2], to[4 * i + 3]};
      float4 v = group == 0 ? own : at[0];
#pragma unroll
      for (int g = 1; g < kGroups; g++) {
        const float4 w = group == g ? own : at[g * S::kGroupThreads];
        v.x += w.x, v.y += w.y, v.z += w.z, v.w += w.w;
      }
      to[4 * i] = v.x, to[4 * i + 1] = v.y, to[4 * i + 2] = v.z, to[4 * i + 3] = v.w;
    }
    if (round + 1 < S::kRounds || !last) named_barrier_sync<kTaken, S::kConsumers>();
  }
}

/* Multiplies and finishes all parts of this block: c.multiply(n) sums this thread's next n units in c.y;
 * end(ring, c, y, part, group) finishes them, as finish() does. */
template <class S, class Consumer, class End>
__device__ __forceinline__ void multiply_parts(const PartArgs &a, const Ring &ring, Consumer &c, End end) {
  const int group = S::kInGroups == 1 ? 0 : warp_of_block() / S::kTileRows;
  const auto of_group = [&](int n) { return (n + S::kInGroups - 1 - group) / S::kInGroups; };
  int n_before = 0; /* units of the block's parts before this one */
  for_each_part(a, [&](const Part &part) {
    c.multiply(of_group(n_before + part.n_units) - of_group(n_before));
    n_before += part.n_units;
    if constexpr (S::kInGroups == 1) {
      end(ring, c, c.y, part, group);
    } else {
      float y[4 * S::kMine] = {};
      exchange_sums<S>(c.y, y, ring, group, part.last);
      if (group * S::kOwn < S::kRound) end(ring, c, y, part, group);
    }
  });
}

/* The work of a block. Its first warps are the consumers; they wait for the previous kernel before begin().
 * Three warps follow. One thread of the first loads weights. The second loads scales and zeros. One thread of
 * the third waits for the previous kernel and loads x. Weights do not depend on that kernel, so the first of
 * them are loaded at once. load_x_of: as in fill_ring(); x_map: the tensor map of x, or NULL. */
template <class S, class Consumer, class LoadXOf, class Begin, class End>
__device__ __forceinline__ void run_block(const PartArgs &a, const void *x_map, LoadXOf load_x_of,
                                          Begin begin, End end) {
  extern __shared__ unsigned char shared[];
  __shared__ uint64_t barriers[2 * S::kStages];
  const Ring ring = {align_for_copies(shared), barriers, barriers + S::kStages, S::kStages, S::kStageBytes};
  const int warp = warp_of_block();
  ring.open(2 + 32, S::kGroupThreads / 32); /* full: x, weights, and copies of scales and zeros */
  dependents_may_start();
  if (warp < S::kConsumers / 32) {
    if constexpr (S::kMovesRegisters) registers_up_to<112>();
    wait_for_previous();
    Consumer c(ring, S::kInGroups == 1 ? 0 : warp / S::kTileRows);
    begin(c);
    multiply_parts<S>(a, ring, c, end);
  } else {
    if constexpr (S::kMovesRegisters) registers_down_to<32>();
    if (warp == S::kConsumers / 32 + 1) {
      load_groups<S>(a, ring);
    } else if (threadIdx.x % 32 == 0) {
      if (warp == S::kConsumers / 32) load_weights<S>(a, ring);
      if (warp == S::kConsumers / 32 + 2) {
        if (x_map) prefetch_map(x_map);
        wait_for_previous();
        fill_ring<0>(a, ring, load_x_of);
      }
    }
  }
}

#endif

/* Divides n_tiles tiles among the blocks. If n_sms blocks cannot have equally many tiles, every j blocks get
 * k tiles, provided that this uses at least 95% of the SMs. Then few blocks have parts of two tiles (gate and
 * up of Qwen3-8B: three tiles for two blocks). With fewer than least_units units a block would only fill its
 * pipeline. */
inline stream_k::Work divide(int n_tiles, int n_units, int least_units, int n_sms) {
  stream_k::Work work = stream_k::even_work(n_tiles, n_units, n_sms, least_units);
  if (work.n_blocks < n_sms) return work;
  for (int j = 2; j <= 8; j *= 2) {
    int k = ceil_div(n_tiles * j, n_sms), blocks = n_tiles * j / k;
    if (n_tiles * j % k == 0 && 20 * blocks >= 19 * n_sms) {
      work.n_blocks = blocks;
      return work;
    }
  }
  return work;
}

/* Sets *a for a call by shape S: its work, and the map of the weights. */
template <class S> Status part_args(const LinearArgs &args, PartArgs *a, Error *err) {
  const QuantView w = quant_view(*args.w);
  const int n_token_tiles = ceil_div(args.n_tokens, S::kTokens), n_units = w.n_tiles_in * kTileIn / S::kUnit,
            n_tiles = ceil_div(w.n_tiles_out, S::kTileRows) * n_token_tiles, total = n_tiles * n_units,
            blocks = divide(n_tiles, n_units, 256 / S::kUnit, args.device.n_sms).n_blocks;
  *a = {
      {},       w,           args.n_tokens, n_token_tiles, n_units, {blocks, total / blocks, total % blocks},
      args.out, args.mailbox};
  const cuuint64_t row = (cuuint64_t)w.n_tiles_in * S::W::kVectors * 256;
  return map_boxes(w.tiles, {row, (cuuint64_t)w.n_tiles_out, 0}, {2 * row, 0}, {256, S::kTileRows, 1},
                   CU_TENSOR_MAP_SWIZZLE_NONE, args.w->name, &a->tiles, err);
}

} // namespace wgmma_parts
