/* planes_wgmma.cu - x as int8 planes and 4-bit weights on Hopper: weights are the register operand of wgmma,
 * sums are exact in int32.
 *
 *     y[m][o] = sum_p s[p][o] d[m][p] (sum_k q X - z[p][o] sum_k X)     x ~ d X, parts p: quantise.cuh
 *
 *   planes_wgmma  9 to 64 tokens, two planes: x to 16 bits, d = max |x| / 32512
 *   int8_wgmma    9 tokens and more, one plane: x to 8 bits, d = max |x| / 127 (--act int8)
 *
 * One kernel quantises x, unless it came as planes; the next multiplies. A block has warpgroups that
 * multiply, 64 outputs each, two warps that load weights, scales and zeros before x is there, and one that
 * loads x. A unit is 128 inputs of the block's outputs. With kInGroups = 2 half of the warpgroups multiply
 * every other unit, the rest the others. A product is the sums of kChunk tokens over one part of a unit.
 * Three or four warps on a scheduler take turns: one waits for wgmma while others unpack or scale.
 *
 *   stage  a unit of x; weights [2 tiles][kTileRows][512]; scales and zeros [kTileRows][kParts][48]
 *
 * The units of all tiles, tile after tile, are cut evenly (stream-K, stream_k.cuh); with two planes all
 * tokens are in one tile, so the bits of a row do not depend on the rows beside it. A block that does not
 * begin the first tile it works on sends its sums of it through the mailbox to the block that does: the
 * values are their own flags, since 0 says that there is none yet. The first block of a tile adds them in the
 * order of k. All blocks are resident, and a block sends before it waits.
 * PRECOND  group % kBlockIn == 0, kBlockIn = 128 / kParts: 128 or 64; as many blocks as SMs at most.
 * READS    weights once for each token tile, x once for every 64 kOutGroups outputs. */
#include "cuda/linear/kernel.cuh"
#include "cuda/linear/quantise.cuh"
#include "cuda/linear/stream_k.cuh"
#include "cuda/linear/weight_stage.cuh"
#include "cuda/ptx/tensor_map.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace {

/* A warp quantises a unit of one token. Padding tokens and inputs become 0. */
template <int kTokens, int kParts, int kPlanes>
__global__ void quantise_x(const __half *x, int x_stride, int n_tokens, int n_in, int n_units,
                           unsigned char *to) {
  int lane = threadIdx.x % 32, i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, unit = i % n_units,
      token = i / n_units;
  begin_overlapping();
  if (token >= (n_tokens + kTokens - 1) / kTokens * kTokens) return;
  LaneInputs in = {{0, 0}};
  if (token < n_tokens) in = read_inputs<false>(x + (size_t)token * x_stride, unit * kUnitIn, n_in, lane);
  float v[4];
  in.floats(v);
  PlanesUnit<kTokens, kParts, kPlanes>::store(to, token / kTokens * n_units + unit, token % kTokens, lane, v);
}

template <int kTokens_, int kParts_, int kPlanes_, int kOutGroups, int kInGroups_, int kChunk_> struct Shape {
  static constexpr int kTokens = kTokens_, kParts = kParts_, kPlanes = kPlanes_;
  static constexpr int kInGroups = kInGroups_, kTileRows = 4 * kOutGroups; /* of a block */
  static constexpr int kGroupThreads = 128 * kOutGroups, kConsumers = kInGroups * kGroupThreads;
  static constexpr int kHalf =
      (kTokens / 8 + kInGroups - 1) / kInGroups; /* fragments that a thread finishes */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL /* nvcc refuses numbers that the code for another chip does not use */
  static constexpr int kSumFloats = 4 * kHalf * kInGroups;
  static constexpr int kChunk = kChunk_, kBlockIn = kUnitIn / kParts;
  static constexpr int kColumns = kChunk * kPlanes, kSums = kColumns / 2;
  static constexpr int kProducts = kTokens / kChunk * kParts; /* of a unit */
  static_assert(kTokens % kChunk == 0 && kChunk % 8 == 0, "whole fragments");
#endif
  typedef PlanesUnit<kTokens, kParts, kPlanes> X;
  static constexpr int kWBytes = kTileRows * 2 * 512, kGroupBytes = kTileRows * kParts * Bits4::kMetaBytes;
  static constexpr int kWAt = (X::kBytes + 127) / 128 * 128, kGroupsAt = kWAt + kWBytes;
  static constexpr int kStageBytes = (kGroupsAt + kGroupBytes + 1023) / 1024 * 1024;
  static constexpr int kExchangeBytes = kInGroups > 1 ? 16 * kHalf *kConsumers : 0;
  /* Few tokens leave shared memory and registers to the small kernels before and after. */
  static constexpr bool kFew = kTokens * kPlanes <= 64;
  static constexpr int kFitting = ((kFew ? 176 : 224) * 1024 - kExchangeBytes) / kStageBytes;
  static constexpr int kStages = kFitting < 12 ? kFitting : 12;
  /* Many tokens need more registers, so the loaders are a whole warpgroup, which gives some. */
  static constexpr bool kMovesRegisters = !kFew;
  static constexpr int kThreads = kConsumers + (kMovesRegisters ? 128 : 96);
  static constexpr size_t kSharedBytes = (size_t)kStages * kStageBytes + kExchangeBytes + 1024; /* to align */
};

/* Units of all tiles, cut evenly: blocks below n_longer have one more than n_units. */
struct Cut {
  int n_blocks, n_units, n_longer;
};

struct Args {
  CUtensorMap tiles; /* boxes of a tile of kTileRows rows */
  QuantView w;
  const unsigned char *x;
  int n_tokens, n_token_tiles, n_units; /* of a tile */
  Cut cut;
  Epilogue out;
  float *mailbox; /* [blocks][kHalf][kConsumers][4], 0 before and after */
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

__device__ __forceinline__ int first_unit(const Cut &cut, int block) {
  return block * cut.n_units + min(block, cut.n_longer);
}

/* The block that has the given unit. */
__device__ __forceinline__ int block_of(const Cut &cut, int unit) {
  const int longer = cut.n_longer * (cut.n_units + 1);
  return unit < longer ? unit / (cut.n_units + 1) : cut.n_longer + (unit - longer) / cut.n_units;
}

/* Part of a tile. */
struct Part {
  int tile, first, n_units; /* its units are [first, first + n_units) of the tile */
  bool last;                /* of the block */
};

/* Calls work(part) for the parts of this block in order. */
template <class Work> __device__ __forceinline__ void for_each_part(const Args &a, Work work) {
  int begin = first_unit(a.cut, blockIdx.x), left = first_unit(a.cut, blockIdx.x + 1) - begin;
  int tile = begin / a.n_units, first = begin - tile * a.n_units;
  while (left > 0) {
    const int n = min(left, a.n_units - first);
    left -= n;
    work(Part{tile, first, n, left == 0});
    tile++, first = 0;
  }
}

/* Tiles of the same outputs follow each other. */
__device__ __forceinline__ int out_tile(const Args &a, int tile) {
  return a.n_token_tiles == 1 ? tile : tile / a.n_token_tiles;
}

__device__ __forceinline__ int token_tile(const Args &a, int tile) {
  return a.n_token_tiles == 1 ? 0 : tile % a.n_token_tiles;
}

template <class S> struct Barriers { uint64_t full[S::kStages], empty[S::kStages]; };

/* The next stage to fill or to read. */
struct Ring {
  int slot, phase;
  template <class S> __device__ __forceinline__ void advance(int by) {
    slot += by;
    if (slot >= S::kStages) slot -= S::kStages, phase ^= 1;
  }
};

/* One thread loads weights by two tensor copies a unit: one bulk copy a tile row takes longer than memory.
 * Rows past the matrix are 0. */
template <class S>
__device__ __forceinline__ void load_weights(const Args &a, unsigned char *stages, Barriers<S> &bar) {
  Ring ring = {0, 1};
  for_each_part(a, [&](const Part &part) {
    const int row = out_tile(a, part.tile) * S::kTileRows;
    for (int unit = part.first; unit < part.first + part.n_units; unit++) {
      unsigned char *to = stages + ring.slot * S::kStageBytes + S::kWAt;
      barrier_wait(bar.empty + ring.slot, ring.phase);
      barrier_expect(bar.full + ring.slot, S::kWBytes);
#pragma unroll
      for (int i = 0; i < 2; i++)
        copy_box(to + i * S::kTileRows * 512, &a.tiles, bar.full + ring.slot, (unit * 2 + i) * 256, row);
      ring.advance<S>(1);
    }
  });
}

/* A warp loads scales and zeros, past the matrix those of the last tile row; results there are dropped. */
template <class S>
__device__ __forceinline__ void load_groups(const Args &a, unsigned char *stages, Barriers<S> &bar) {
  constexpr int kCopies = Bits4::kMetaCopies;
  int lane = threadIdx.x % 32;
  Ring ring = {0, 1};
  for_each_part(a, [&](const Part &part) {
    const int row0 = out_tile(a, part.tile) * S::kTileRows;
    for (int unit = part.first; unit < part.first + part.n_units; unit++) {
      unsigned char *to = stages + ring.slot * S::kStageBytes + S::kGroupsAt;
      barrier_wait(bar.empty + ring.slot, ring.phase);
#pragma unroll
      for (int c = lane; c < S::kTileRows * S::kParts * kCopies; c += 32) {
        int row = c / (S::kParts * kCopies), p = c / kCopies % S::kParts;
        copy_meta<Bits4>(a.w, row0 + row, unit * kUnitIn + p * S::kBlockIn, c % kCopies,
                         to + (row * S::kParts + p) * Bits4::kMetaBytes);
      }
      barrier_arrive_after_copies(bar.full + ring.slot);
      ring.advance<S>(1);
    }
  });
}

template <class S>
__device__ __forceinline__ void load_x(const Args &a, unsigned char *stages, Barriers<S> &bar) {
  Ring ring = {0, 1};
  for_each_part(a, [&](const Part &part) {
    const unsigned char *from =
        a.x + ((size_t)token_tile(a, part.tile) * a.n_units + part.first) * S::X::kBytes;
    for (int i = 0; i < part.n_units; i++, from += S::X::kBytes) {
      barrier_wait(bar.empty + ring.slot, ring.phase);
      barrier_expect(bar.full + ring.slot, S::X::kBytes);
      copy_bulk(stages + ring.slot * S::kStageBytes, from, S::X::kBytes, bar.full + ring.slot);
      ring.advance<S>(1);
    }
  });
}

/* State of a consumer thread. Shared memory is addressed by numbers of 32 bits, with what a lane adds to all
 * of them computed once: the compiler would do it again for each unit. */
template <class S> struct Consumer {
  uint32_t stage, full; /* addresses of the next unit, and of its barrier: `empty` lies S::kStages further */
  int phase;
  const uint32_t ring_end, weights_at, groups_at, pairs_at;
  uint32_t q[4][4], scale[S::kParts], zero[S::kParts];
  float y[S::kSumFloats]; /* as store_fragments() takes it */

  __device__ __forceinline__ Consumer(unsigned char *stages, Barriers<S> &bar, int first_slot)
      : stage(opaque((int)shared_address(stages + first_slot * S::kStageBytes))),
        full(opaque((int)shared_address(bar.full + first_slot))), phase(0),
        ring_end(opaque((int)shared_address(bar.empty))),
        weights_at(opaque((int)(S::kWAt + threadIdx.x % S::kGroupThreads * 16))),
        groups_at(opaque((int)(S::kGroupsAt + tile_row() * S::kParts * Bits4::kMetaBytes + group_row() * 4))),
        pairs_at(opaque((int)(S::X::kPlaneBytes + threadIdx.x % 4 * S::kParts * 16))) {}

  static __device__ __forceinline__ int tile_row() { return threadIdx.x / 32 % S::kTileRows; }
  static __device__ __forceinline__ int group_row() { return threadIdx.x % 32 / 4; }

  /* Waits for the next unit and reads its weights. wgmma gives a warp 16 of its warpgroup's 64 rows. */
  __device__ __forceinline__ void take() {
    barrier_wait(full, phase);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const uint4 v[1] = {load_shared_16(stage + weights_at + i * S::kTileRows * 512)};
      Bits4::bytes(v, 0, q[2 * i]);
      Bits4::bytes(v, 1, q[2 * i + 1]);
    }
#pragma unroll
    for (int p = 0; p < S::kParts; p++) {
      scale[p] = load_shared_4(stage + groups_at + p * Bits4::kMetaBytes);
      zero[p] = load_shared_1(stage + groups_at + p * Bits4::kMetaBytes + 32 - 3 * group_row());
    }
  }

  /* Tells the loaders that the unit is used, and goes on to this thread's next one. */
  __device__ __forceinline__ void release() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(full + S::kStages * 8);
    stage += S::kInGroups * S::kStageBytes;
    full += S::kInGroups * 8;
    if (full < ring_end) return;
    stage -= S::kStages * S::kStageBytes;
    full -= S::kStages * 8;
    phase ^= 1;
  }

  /* Registers of sums that wgmma is about to write, or has written. */
  static __device__ __forceinline__ void touch(int (&c)[S::kSums]) {
#pragma unroll
    for (int i = 0; i < S::kSums; i++) c[i] = opaque(c[i]);
  }

  /* Starts product i: chunk i / kParts of the tokens, part i % kParts of the inputs. */
  __device__ __forceinline__ void start(int i, int (&c)[S::kSums]) {
    constexpr int kSteps = 4 / S::kParts;
    touch(c);
    wgmma_fence();
    const uint32_t x = stage + i / S::kParts * S::kColumns * kUnitIn;
#pragma unroll
    for (int k = 0; k < kSteps; k++) {
      int step = i % S::kParts * kSteps + k;
      wgmma_u8s8<S::kColumns>(c, q[step], operand_b_at(x, step), k > 0);
    }
    wgmma_commit();
  }

  /* Scales and sums of the lane's tokens 8m + 2t and 8m + 2t + 1 for product i. */
  __device__ __forceinline__ uint4 pair(int i, int m) const {
    return load_shared_16(stage + pairs_at +
                          ((i / S::kParts * (S::kChunk / 8) + m) * 4 * S::kParts + i % S::kParts) * 16);
  }

  /* Adds the sums of product i, once they are there, to y. Sums of row g + 8 are 16 times too large. */
  __device__ __forceinline__ void add(int i, int (&c)[S::kSums]) {
    const int part = i % S::kParts, first = i / S::kParts * (S::kChunk / 8);
    const float s[2] = {f16_low(scale[part]), f16_high(scale[part]) * Bits4::kHigh};
    const int z[2] = {-(int)(zero[part] & 15), -(int)(zero[part] & 0xf0)};
    wgmma_wait<0>();
    touch(c);
#pragma unroll
    for (int m = 0; m < S::kChunk / 8; m++) {
      const uint4 x = pair(i, m);
#pragma unroll
      for (int j = 0; j < 2; j++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
          const int *at = S::kPlanes == 2 ? c + 4 * (2 * m + j) + 2 * r : c + 4 * m + 2 * r + j;
          int v = (S::kPlanes == 2 ? 256 * at[0] + at[1] : at[0]) + z[r] * (int)(j ? x.w : x.z);
          float &to = y[4 * (first + m) + 2 * r + j];
          to = fmaf(s[r], __fmul_rn(__uint_as_float(j ? x.y : x.x), (float)v), to);
        }
    }
  }

  /* y = the sums over this thread's next n units. */
  __device__ __forceinline__ void multiply(int n) {
#pragma unroll
    for (int i = 0; i < S::kSumFloats; i++) y[i] = 0;
    for (; n > 0; n--) {
      take();
#pragma unroll
      for (int i = 0; i < S::kProducts; i++) {
        int sums[S::kSums] = {};
        start(i, sums);
        add(i, sums);
      }
      release();
    }
  }
};

/* The sums of block `block`, which lie in its part of the mailbox until they are taken. */
template <class S> struct Mail {
  float *at;

  __device__ __forceinline__ Mail(float *mailbox, int block)
      : at(mailbox + ((size_t)block * S::kHalf * S::kConsumers + threadIdx.x) * 4) {}

  __device__ __forceinline__ float *vector(int i) const { return at + (size_t)i * S::kConsumers * 4; }

  /* -0 for 0, which would say that there is none. */
  static __device__ __forceinline__ uint64_t two(float low, float high) {
    return (uint64_t)__float_as_uint(low == 0 ? -0.0f : low) |
           (uint64_t)__float_as_uint(high == 0 ? -0.0f : high) << 32;
  }

  __device__ __forceinline__ void send(const float *y) const {
#pragma unroll
    for (int i = 0; i < S::kHalf; i++, y += 4)
      store_relaxed_16(vector(i), ulonglong2{two(y[0], y[1]), two(y[2], y[3])});
  }
};

/* Adds to y the sums of blocks first .. last. */
template <class S>
__device__ __forceinline__ void collect(float (&y)[4 * S::kHalf], float *mailbox, int first, int last) {
  constexpr int kAtOnce = S::kHalf % 4 == 0 ? 4 : S::kHalf % 3 == 0 ? 3 : S::kHalf, kBlocks = 3;
#pragma unroll
  for (int i = 0; i < S::kHalf; i += kAtOnce)
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

/* Finishes kHalf fragments of a part of a tile: y has all sums of the block. */
template <class S>
__device__ __forceinline__ void finish(const Args &a, float (&y)[4 * S::kHalf], const Part &part, int half) {
  if (part.first > 0) {
    Mail<S>(a.mailbox, blockIdx.x).send(y);
    return;
  }
  if (part.n_units < a.n_units)
    collect<S>(y, a.mailbox, blockIdx.x + 1, block_of(a.cut, (part.tile + 1) * a.n_units - 1));
  const int token0 = token_tile(a, part.tile) * S::kTokens;
  store_fragments<S::kHalf>(a.out, out_tile(a, part.tile) * S::kTileRows + threadIdx.x / 32 % S::kTileRows,
                            token0 + half * S::kHalf * 8, 0, min(a.n_tokens, token0 + S::kTokens), y);
}

/* Two groups of warpgroups give each other half of their sums. */
template <class S>
__device__ __forceinline__ void multiply_parts(const Args &a, unsigned char *stages, Barriers<S> &bar) {
  constexpr int kGiven = 1, kTaken = 2;
  const int group = S::kInGroups == 1 ? 0 : warp_of_block() / S::kTileRows;
  auto half = [](const float(&y)[S::kSumFloats], int which, int i) {
    return which == 0 ? y[i] : y[i + 4 * S::kHalf];
  };
  float4 *exchange = (float4 *)(stages + S::kStages * S::kStageBytes) + threadIdx.x % S::kGroupThreads;
  Consumer<S> c(stages, bar, group);
  int n_before = 0; /* units of this block */
  for_each_part(a, [&](const Part &part) {
    if constexpr (S::kInGroups == 1) {
      c.multiply(part.n_units);
      finish<S>(a, c.y, part, 0);
    } else {
      const int n_after = n_before + part.n_units;
      c.multiply((n_after + 1 - group) / 2 - (n_before + 1 - group) / 2);
      n_before = n_after;
      float y[4 * S::kHalf];
#pragma unroll
      for (int i = 0; i < S::kHalf; i++) {
        exchange[(group * S::kHalf + i) * S::kGroupThreads] = {
            half(c.y, 1 - group, 4 * i), half(c.y, 1 - group, 4 * i + 1), half(c.y, 1 - group, 4 * i + 2),
            half(c.y, 1 - group, 4 * i + 3)};
      }
      named_barrier_sync<kGiven, S::kConsumers>();
#pragma unroll
      for (int i = 0; i < S::kHalf; i++) {
        const float4 v = exchange[((1 - group) * S::kHalf + i) * S::kGroupThreads];
        y[4 * i] = half(c.y, group, 4 * i) + v.x, y[4 * i + 1] = half(c.y, group, 4 * i + 1) + v.y;
        y[4 * i + 2] = half(c.y, group, 4 * i + 2) + v.z, y[4 * i + 3] = half(c.y, group, 4 * i + 3) + v.w;
      }
      if (!part.last) named_barrier_sync<kTaken, S::kConsumers>();
      finish<S>(a, y, part, group);
    }
  });
}

#endif

template <class S> __global__ void __launch_bounds__(S::kThreads, 1) kernel(const __grid_constant__ Args a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char shared[];
  __shared__ Barriers<S> bar;
  unsigned char *stages = shared + (1024 - shared_address(shared) % 1024) % 1024;
  const int warp = warp_of_block();
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; i++) {
      barrier_init(bar.full + i, 2 + 32); /* x, weights, and copies of scales and zeros */
      barrier_init(bar.empty + i, S::kGroupThreads / 32);
    }
    barrier_init_fence();
  }
  __syncthreads();
  dependents_may_start();
  if (warp < S::kConsumers / 32) {
    if constexpr (S::kMovesRegisters) registers_up_to<S::kConsumers == 384 ? 160 : 112>();
    wait_for_previous();
    multiply_parts<S>(a, stages, bar);
  } else {
    if constexpr (S::kMovesRegisters) registers_down_to<32>();
    if (warp == S::kConsumers / 32 + 1) {
      load_groups<S>(a, stages, bar);
    } else if (threadIdx.x % 32 == 0) {
      if (warp == S::kConsumers / 32) load_weights<S>(a, stages, bar);
      if (warp == S::kConsumers / 32 + 2) {
        wait_for_previous();
        load_x<S>(a, stages, bar);
      }
    }
  }
#endif
}

/* Work of n_tiles tiles. Where the tiles are not even over the blocks, every j blocks get k tiles if it keeps
 * nearly all SMs: then few blocks have parts of two tiles (gate and up of Qwen3-8B: three tiles for two
 * blocks). Fewer than 256 inputs in a block are all pipeline ramp. */
stream_k::Work divide(int n_tiles, int n_units, int n_sms) {
  stream_k::Work work = stream_k::even_work(n_tiles, n_units, n_sms, 2);
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

/* Cuts n_tiles tiles of n_units units. */
Cut cut_of(int n_tiles, int n_units, const DeviceLimits &device) {
  const int blocks = divide(n_tiles, n_units, device.n_sms).n_blocks, total = n_tiles * n_units;
  return {blocks, total / blocks, total % blocks};
}

template <int kTokens, int kPlanes> Status launch_quantise(const LinearArgs &args, void *to, Error *err) {
  const int n_units = quant_tiles_in(*args.w) / 2;
  const long warps = (long)n_units * ceil_div(args.n_tokens, kTokens) * kTokens;
  const bool whole = planes_parts(args.w->group) == 1;
  return launch(whole ? quantise_x<kTokens, 1, kPlanes> : quantise_x<kTokens, 2, kPlanes>,
                dim3((unsigned)ceil_div(warps, 8)), 256, 0, args.stream, args.dependent, args.w->name, err,
                args.x, args.x_stride, args.n_tokens, args.w->n_in, n_units, (unsigned char *)to);
}

template <class S> Status launch_shape(const LinearArgs &args, Error *err) {
  const QuantView w = quant_view(*args.w);
  const unsigned char *x = (const unsigned char *)args.planes;
  const int n_token_tiles = ceil_div(args.n_tokens, S::kTokens), n_units = w.n_tiles_in / 2;
  const Cut cut = cut_of(ceil_div(w.n_tiles_out, S::kTileRows) * n_token_tiles, n_units, args.device);
  static_assert(4 * S::kHalf * S::kConsumers <= kMailboxFloats, "the mailbox holds a block's sums");
  Args a = {{},       w,           x ? x : args.workspace, args.n_tokens, n_token_tiles, n_units, cut,
            args.out, args.mailbox};
  const cuuint64_t row = (cuuint64_t)w.n_tiles_in * 256;
  TRY(map_boxes(w.tiles, {row, (cuuint64_t)w.n_tiles_out, 0}, {2 * row, 0}, {256, S::kTileRows, 1},
                CU_TENSOR_MAP_SWIZZLE_NONE, args.w->name, &a.tiles, err));
  if (!x) TRY((launch_quantise<S::kTokens, S::kPlanes>(args, args.workspace, err)));
  return launch_resident(kernel<S>, dim3((unsigned)cut.n_blocks), S::kThreads, S::kSharedBytes, args.stream,
                         args.dependent, args.w->name, err, a);
}

template <int kTokens, int kPlanes, int kOutGroups, int kInGroups, int kChunk>
Status launch_tokens(const LinearArgs &args, Error *err) {
  return planes_parts(args.w->group) == 1
             ? launch_shape<Shape<kTokens, 1, kPlanes, kOutGroups, kInGroups, kChunk>>(args, err)
             : launch_shape<Shape<kTokens, 2, kPlanes, kOutGroups, kInGroups, kChunk>>(args, err);
}

struct TokenShape {
  int tokens;
  Status (*launch)(const LinearArgs &args, Error *err);
};

template <int kTokens, int kPlanes, int kOutGroups, int kInGroups, int kChunk> constexpr TokenShape shape() {
  return {kTokens, launch_tokens<kTokens, kPlanes, kOutGroups, kInGroups, kChunk>};
}

constexpr TokenShape two_planes[] = {shape<16, 2, 2, 2, 16>(), shape<24, 2, 2, 2, 24>(),
                                     shape<32, 2, 2, 2, 32>(), shape<48, 2, 2, 2, 24>(),
                                     shape<64, 2, 2, 2, 32>()};

constexpr TokenShape one_plane[] = {shape<32, 1, 2, 2, 32>(), shape<64, 1, 2, 2, 32>(),
                                    shape<128, 1, 3, 1, 64>()};

/* Bytes of x in tiles of `tile` tokens. */
size_t x_bytes(const DeviceLinear *w, int n_tokens, int tile, int n_planes) {
  return (size_t)(quant_tiles_in(*w) / 2) * align_up((size_t)n_tokens, (size_t)tile) *
         (size_t)(n_planes * kUnitIn + 8 * planes_parts(w->group));
}

size_t two_planes_workspace(const DeviceLinear *w, int n_tokens, const DeviceLimits &) {
  return x_bytes(w, n_tokens, 192, 2); /* whole tiles of every shape: any may be forced */
}

size_t one_plane_workspace(const DeviceLinear *w, int n_tokens, const DeviceLimits &) {
  return x_bytes(w, n_tokens, 128, 1);
}

/* Launches the `variant`-th shape, or the smallest that holds all tokens, or the largest. */
template <int kShapes>
Status launch_one_of(const TokenShape (&shapes)[kShapes], const LinearArgs &args, Error *err) {
  const TokenShape *s = shapes;
  while (s + 1 < shapes + kShapes && s->tokens < args.n_tokens) s++;
  if (args.variant > 0 && args.variant <= kShapes) s = &shapes[args.variant - 1];
  if (args.variant > kShapes || (args.planes && s->tokens != planes_tokens(args.n_tokens)))
    return error_set(err, STATUS_USAGE, "%s: there is no tile shape %d", args.w->name, args.variant);
  return s->launch(args, err);
}

Status launch_two_planes(const LinearArgs &args, Error *err) {
  return launch_one_of(two_planes, args, err);
}

Status launch_one_plane(const LinearArgs &args, Error *err) {
  return launch_one_of(one_plane, args, err);
}

} // namespace

Status quantise_planes(const LinearArgs &args, void *planes, Error *err) {
  switch (planes_tokens(args.n_tokens)) {
  case 16: return launch_quantise<16, 2>(args, planes, err);
  case 24: return launch_quantise<24, 2>(args, planes, err);
  case 32: return launch_quantise<32, 2>(args, planes, err);
  case 48: return launch_quantise<48, 2>(args, planes, err);
  case 64: return launch_quantise<64, 2>(args, planes, err);
  }
  return error_set(err, STATUS_FAILED, "%s: %d rows as planes", args.w->name, args.n_tokens);
}

const LinearKernel planes_wgmma_kernel = {two_planes_workspace, launch_two_planes, false};
const LinearKernel int8_wgmma_kernel = {one_plane_workspace, launch_one_plane, false};
