/* wgmma_tiles.cuh - what the wgmma kernels of many tokens share: the producers of weights, scales and zeros,
 * and the loop over the tiles of a block.
 *
 * A block is kWarpgroups consumer warpgroups, each 64 outputs by kTokens tokens, and two producer warps that
 * load kStages stages of 64 kK inputs ahead. The caller chooses how blocks divide tiles (TileWork.whole):
 * they take whole tiles in turn, or stream-K cuts the tiles evenly (stream_k.cuh). Experts (linear.h) have
 * tiles of their own, never cut (expert_tiles.cuh); x is gathered by places, so a tile's rows lie one after
 * another. A low tile has at most 64 rows of an expert and takes as long as dequantising its weights. So four
 * warpgroups share that work.
 *
 *   stage  x, as the kernel has it; weights [kTileRows][kK][tile]; scales and zeros [kTileRows][blocks]
 *
 * The ring; t is the turn of the stage's slot (ptx/cluster.cuh):
 *
 *   producer thread   wait empty, parity (t + 1) % 2 -> x, weights: 1 arrival, their bytes --+
 *   producer warp     wait empty, parity (t + 1) % 2 -> scales, zeros: an arrival a lane ----+-> full: 33
 *                          ^                                                                     |
 *   consumer warps         +--- empty: 1 a warp <--- products <--- wait full, parity t % 2 <-----+
 *
 * A warp arrives at `empty` when its products of the stage are complete. Its products of the next stage run
 * meanwhile. In pairs (InPairs) half of x's bytes come from the other block, and a warp arrives at `empty` of
 * both blocks, so `empty` counts twice as many arrivals.
 *
 *   named barriers   1: all consumers, for sums of cut tiles (stream_k.cuh) and heads_end.cuh
 *                    2 to 5: a warpgroup, for its staging memory (tile_end.cuh)
 *   after the ring   at the start, experts: scratch of list.fill()
 *                    in the epilogue: staging of each warpgroup, or the heads of all (heads_end.cuh)
 *
 * Where no tile is cut and best_wave() divides the tiles into waves, blocks can be pairs: clusters of two
 * (InPairs) with the same tokens. Each block copies half of a stage's x to both, and a stage is empty when
 * both have read it. So L2 is read half as often for x. That saves energy, which limits the clock where many
 * tokens are multiplied.
 *
 * A Shape S has: W (layout.cuh), kTokens, kK, kXBytes, first_token(), and what ShapeOf derives from them.
 * Included by awq_wgmma.cu and int8_gemm.cuh. */
#pragma once

#include <type_traits>

#include "cuda/kernels/linear/maps.cuh"
#include "cuda/kernels/linear/stream_k.cuh"
#include "cuda/kernels/linear/weight_stage.cuh"
#include "cuda/kernels/linear/wgmma_stages.cuh"
#include "cuda/kernels/linear/wide/expert_tiles.cuh"
#include "cuda/kernels/linear/wide/heads_end.cuh"
#include "cuda/kernels/linear/wide/tile_end.cuh"

namespace wgmma_tiles {

/* Tokens [first, first + n) of a call as a call of their own. PRECOND it is no call of experts. */
inline LinearArgs tokens_of(const LinearArgs &args, int first, int n) {
  LinearArgs part = args;
  part.n_tokens = n;
  if (args.x) part.x += (size_t)first * args.x_stride;
  if (args.norm.rows) part.norm.rows += (size_t)first * args.w->n_in;
  part.out.y = (unsigned char *)args.out.y + (size_t)first * args.out.stride * output_bytes(args.out.kind);
  if (args.out.row_factors) part.out.row_factors += first;
  return part;
}

/* Sizes that follow from a shape's sizes. kBlocks: blocks of inputs with a scale of their own in a tile. */
template <class W_, int kTokens_, int kK_, int kXBytes_, int kBlocks, int kStages_, int kWarpgroups_ = 2>
struct ShapeOf {
  typedef W_ W;
  static constexpr int kTokens = kTokens_, kK = kK_, kTileBytes = 512 * W::kVectors;
  static constexpr int kWarpgroups = kWarpgroups_, kConsumers = 128 * kWarpgroups,
                       kThreads = kConsumers + 128;
  typedef std::false_type MakesHeads; /* its epilogue makes heads (heads_end.cuh) */
  typedef std::false_type InPairs;    /* its blocks are pairs, their tiles come in waves (best_wave()) */
  /* Products (16 inputs each) that are waited for together. With two of them a single warpgroup waits less;
   * so do the four warpgroups of a low tile. */
  static constexpr int kBatch = kWarpgroups == 2 || kWarpgroups == 3 ? 1 : 2;
  static constexpr int kTileRows = 4 * kWarpgroups; /* of a block */
  /* Staging memory of a warpgroup. Low tiles need half: they are stored in pieces of at most 32 rows. */
  static constexpr int kStaging = kWarpgroups == 4 ? kStagingBytes / 2 : kStagingBytes,
                       kEndBytes = kWarpgroups * kStaging;
  static constexpr int kXBytes = kXBytes_, kWBytes = kTileRows * kK * kTileBytes;
  static constexpr int kGroupBytes = kTileRows * kK * kBlocks * W::kMetaBytes;
  static constexpr int kStageBytes = (kXBytes + kWBytes + kGroupBytes + 1023) / 1024 * 1024;
  static constexpr bool kIsLow = kWarpgroups == 4; /* low tiles, which only experts have */
  static constexpr int kListBytes = kIsLow ? sizeof(ExpertTiles<kTokens>) : 0;
  static constexpr int kFitting = (226 * 1024 - 1024 - kEndBytes - kListBytes) / kStageBytes; /* on sm_90 */
  static constexpr int kStages = kStages_ < kFitting ? kStages_ : kFitting;
  static_assert(kStages > 1, "a stage is loaded while others are read");
  /* Registers of a producer and of a consumer thread. A block gets kRegisters at its start; setmaxnreg would
   * wait forever for more. A single consumer warpgroup has enough registers without setmaxnreg. */
  static constexpr int kLoadRegisters = kWarpgroups == 2 ? 40 : 32,
                       kMultiplyRegisters = kWarpgroups == 2   ? 232
                                            : kWarpgroups == 3 ? 160
                                                               : 112,
                       kRegisters = 65536 / kThreads / 8 * 8 * kThreads;
  static_assert(kLoadRegisters * 128 + kMultiplyRegisters * kConsumers <= kRegisters,
                "setmaxnreg would block");
  static constexpr size_t kSharedBytes =
      (size_t)kStages * kStageBytes + kEndBytes + 1024; /* 1024: to align the stages */
};

/* The arguments that all kernels have. */
struct TileWork {
  QuantView w;
  CUtensorMap tiles; /* w.tiles in pieces of 512 bytes: 16 bytes of each lane */
  int n_tokens, n_token_tiles;
  stream_k::Work work;
  bool early;      /* the first weights are loaded before wait_for_previous() */
  bool whole;      /* block b has tiles b, b + n_blocks, ...; else stream-K cuts them */
  int wave_tokens; /* set if InPairs: best_wave() */
  Epilogue out;
  bool vectors; /* rows of y are 16-byte aligned */
  float *partial;
  unsigned *counters;
  GroupedExperts experts; /* set if kExperts; work.n_tiles then counts tiles of outputs only */
  QkvHeads heads;         /* set if MakesHeads */
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Sums of one consumer thread: 128 threads share 64 rows by S::kTokens. */
template <typename S> constexpr int kSums = S::kTokens / 2;

struct TileRing : Ring {
  uint32_t empty_of_pair; /* with InPairs: peer_address() of `empty` in block lane % 2 of the pair */
};

/* The part of a tile that a block computes: its steps step .. step + n_steps - 1. token0: the tile's first
 * token, or for experts its first place. Tokens (places) token0 + begin .. token0 + end - 1 are stored.
 * The matrix, or the expert, is tile rows first_row .. end_row - 1. */
struct Area {
  int out_tile, token_tile, step, n_steps, token0, begin, end, first_row, end_row;
};

/* The experts' tiles of places; empty for other matrices. */
template <class S, bool kExperts> struct TileList {};
template <class S> struct TileList<S, true> : ExpertTiles<S::kTokens> {};

/* Calls work(area) for each tile, or part of a tile, that the block has. For all lanes of a warp. */
template <class S, bool kExperts, class Work>
__device__ __forceinline__ void for_each_area(const TileWork &a, const TileList<S, kExperts> &list,
                                              Work work) {
  if constexpr (kExperts) {
    const int across = a.work.n_tiles, tiles = (int)gridDim.x / across, outs = (int)gridDim.x % across;
    int place = 0, tile = (int)blockIdx.x / across, out = (int)blockIdx.x % across;
    while (tile < list.n_tiles) {
      place = list.place_of(tile, place);
      const ExpertTile rows = list.tile(a.experts, tile, place);
      work(Area{out, 0, 0, a.work.n_steps, rows.place, 0, rows.end - rows.place, rows.tile_row,
                rows.tile_row + a.experts.tile_rows});
      tile += tiles, out += outs; /* gridDim.x further, without dividing again */
      if (out >= across) out -= across, tile++;
    }
  } else if constexpr (S::InPairs::value) {
    const stream_k::Work &w = a.work;
    const int pair = (int)blockIdx.x / 2, wave_outs = w.n_blocks / a.wave_tokens,
              across = a.n_token_tiles / a.wave_tokens; /* how many waves have the same outputs */
    /* Every second group of outputs takes the tokens backwards: it begins with x that L2 still has. */
    for (int wave = 0; wave < w.n_tiles / w.n_blocks; wave++) {
      const int out_group = wave / across, nth = wave % across,
                token_group = out_group % 2 ? across - 1 - nth : nth,
                out_tile = out_group * wave_outs + pair / a.wave_tokens * 2 + (int)blockIdx.x % 2,
                token_tile = token_group * a.wave_tokens + pair % a.wave_tokens,
                first = S::first_token(a.n_tokens, token_tile);
      work(Area{out_tile, token_tile, 0, w.n_steps, first, token_tile * S::kTokens - first,
                min(a.n_tokens - first, S::kTokens), 0, a.w.n_tiles_out});
    }
  } else {
    const stream_k::Work &w = a.work;
    const int end = a.whole ? stream_k::total_steps(w) : stream_k::first_step(w, blockIdx.x + 1);
    for (int begin = a.whole ? (int)blockIdx.x * w.n_steps : stream_k::first_step(w, blockIdx.x);
         begin < end;) {
      const stream_k::Cursor at(w, a.n_token_tiles, begin);
      const int n_steps = min(end - begin, w.n_steps - at.step),
                first = S::first_token(a.n_tokens, at.token_tile);
      work(Area{at.out_tile, at.token_tile, at.step, n_steps, first, at.token_tile * S::kTokens - first,
                min(a.n_tokens - first, S::kTokens), 0, a.w.n_tiles_out});
      begin += a.whole ? w.n_blocks * w.n_steps : n_steps;
    }
  }
}

/* Producer warp of x and weights: loads each step of the block's part when its stage is free. One tensor copy
 * brings the weights: a bulk copy for each tile row takes 5% longer. Results of tile rows past the matrix or
 * the expert are dropped. copy_x(to, full, area, step) starts copies of x. This block's stage receives
 * x_bytes(area) bytes of x; in a pair the other block's copies bring half of them. With `early` the first
 * stages' weights, but not x, are requested while the kernel before this one still runs. */
template <class S, bool kExperts, class XBytes, class CopyX>
__device__ __forceinline__ void load_tiles(const TileWork &a, const TileList<S, kExperts> &list,
                                           const Ring &ring, XBytes x_bytes, CopyX copy_x) {
  const int lane = threadIdx.x % 32;
  RingProducer producer(ring);
  int n_early = kExperts ? 0 : -1; /* stages whose weights are loaded already; -1: at the start */
  for_each_area<S, kExperts>(a, list, [&](const Area &area) {
    const int bytes = x_bytes(area), row = area.first_row + area.out_tile * S::kTileRows;
    const auto load_weights = [&](unsigned char *stage, uint64_t *full, int step) {
      barrier_expect(full, bytes + S::kWBytes);
      copy_box(stage + S::kXBytes, &a.tiles, full, 0, step * S::kK * S::W::kVectors, row);
    };
    if (!kExperts && n_early < 0) {
      n_early = a.early ? min(S::kStages, area.n_steps) : 0;
      if (lane == 0)
        for (int i = 0; i < n_early; i++) load_weights(ring.stage(i), ring.full + i, area.step + i);
      __syncwarp();
      wait_for_previous();
    }
    for (int step = area.step; step < area.step + area.n_steps; step++)
      producer.fill([&](unsigned char *stage, uint64_t *full) {
        if (lane == 0) {
          if (n_early == 0) load_weights(stage, full, step);
          copy_x(stage, full, area, step);
        }
        n_early -= n_early > 0;
        __syncwarp();
      });
  });
  if constexpr (S::InPairs::value)
    /* The pair's other block arrives at this block's barriers: this block must not end before the last
     * arrival. */
    for (int i = 0; i < S::kStages; i++) producer.fill([](unsigned char *, uint64_t *) {});
}

/* Producer warp of scales and zeros. A lane brings the same pieces in every stage of a tile. It keeps their
 * addresses for the first group of inputs, and adds the distance to the current one; low tiles have too many
 * pieces for that. Past the matrix or the expert the last tile row is read again. */
template <class S, int kBlockIn, bool kExperts>
__device__ __forceinline__ void load_groups(const TileWork &a, const TileList<S, kExperts> &list,
                                            const Ring &ring) {
  typedef typename S::W W;
  constexpr int kGroups = S::kK * kTileIn / kBlockIn, kCopies = W::kMetaCopies,
                kAll = S::kTileRows * kGroups * kCopies, kOwn = (kAll + 31) / 32;
  const int lane = threadIdx.x % 32;
  RingProducer producer(ring);
  for_each_area<S, kExperts>(a, list, [&](const Area &area) {
    const int row = area.first_row + area.out_tile * S::kTileRows;
    const unsigned char *from[kOwn];
    if constexpr (!S::kIsLow) {
#pragma unroll
      for (int i = 0; i < kOwn; i++) {
        const int c = lane + 32 * i;
        const int tile_row = min(row + c / (kGroups * kCopies), area.end_row - 1);
        from[i] = W::piece(a.w, tile_row * W::n_blocks(a.w), c % kCopies);
      }
    }
    for (int step = area.step; step < area.step + area.n_steps; step++)
      producer.fill([&](unsigned char *stage, uint64_t *full) {
        unsigned char *const groups = stage + S::kXBytes + S::kWBytes;
        const int k = step * S::kK * kTileIn;
        if constexpr (S::kIsLow) {
          copy_groups<W, S::kTileRows, kGroups, kBlockIn>(a.w, row, area.end_row - 1, k, groups);
        } else {
#pragma unroll
          for (int i = 0; i < kOwn; i++) {
            const int c = lane + 32 * i, piece = c % kCopies,
                      block = W::block_of(a.w, k + c / kCopies % kGroups * kBlockIn);
            if (c >= kAll) continue;
            W::copy_piece(groups + c / kCopies * W::kMetaBytes + 16 * piece,
                          from[i] + block * W::piece_step(piece), piece);
          }
        }
        barrier_arrive_after_copies(full);
      });
  });
}

/* Frees a stage. In a pair both blocks copy into it, so lanes 0 and 1 arrive at one block's barrier each.
 * This must stay one instruction under one condition. With peer_address() called here, or a predicate inside
 * the asm, ptxas makes each product wait for the one before (note C7513 of ptxas). The arrival at a pair can
 * be relaxed: all that was read from the stage has gone into products that have been waited for. */
template <class S> __device__ __forceinline__ void release(const TileRing &ring, int slot) {
  const int lane = threadIdx.x % 32;
  if constexpr (S::InPairs::value) {
    if (lane < 2) barrier_arrive_at_peer(ring.empty_of_pair + slot * sizeof(uint64_t));
  } else {
    if (lane == 0) barrier_arrive(ring.empty + slot);
  }
}
/* Frees the stage before the current one. */
template <class S> __device__ __forceinline__ void release_before(const TileRing &ring, int slot) {
  release<S>(ring, slot == 0 ? S::kStages - 1 : slot - 1);
}

/* The tile row of the calling warp: wgmma gives it 16 of its warpgroup's 64 rows. */
__device__ __forceinline__ int warp_tile_row() {
  return (int)threadIdx.x / 32;
}

/* The cursor of a low tile. Its stages are short, so it keeps the lane's arguments of add_stages(). */
template <class S> struct LowCursor : StageCursor<S> {
  const uint32_t weights;
  /* the groups of the block's first tile row, as if the stage began at address 0; a warp adds its own row */
  const unsigned char *const groups;

  __device__ __forceinline__ explicit LowCursor(const Ring &ring)
      : StageCursor<S>(ring, 0),
        weights(opaque(S::kXBytes + warp_tile_row() * S::kK * S::kTileBytes + (int)threadIdx.x % 32 * 16)),
        groups(ring.stages + opaque(S::kXBytes + S::kWBytes - (int)shared_address(ring.stages))) {}
};

/* The first stage that a consumer warp reads. */
template <class S> __device__ __forceinline__ auto first_stage(const Ring &ring) {
  if constexpr (S::kIsLow)
    return LowCursor<S>(ring);
  else
    return RingCursor{};
}

/* Stores the calling warpgroup's results of a tile. Tiles of experts are stored in pieces of kRows rows;
 * pieces past the tile's last row are left out. */
template <class S, bool kExperts>
__device__ __forceinline__ void store_tile(const TileWork &a, const Area &area, float (&acc)[kSums<S>],
                                           unsigned char *staging) {
  const int row = (area.out_tile * S::kTileRows + threadIdx.x / 128 * 4) * kTileOut;
  if constexpr (kExperts) {
    const Epilogue out = expert_epilogue(a.out, area.first_row);
    const Place place = {out, a.vectors, row, area.token0, area.begin, area.end};
    constexpr int kRows = S::kTokens % 64 ? 24 : S::kIsLow ? 32 : 64;
#pragma unroll
    for (int first = 0; first < S::kTokens; first += kRows)
      if (first < area.end)
        store_groups<S::kWarpgroups, kRows / 8, true>(
            place, first, reinterpret_cast<float(&)[kRows / 2]>(acc[first / 2]), staging);
  } else {
    const Place place = {a.out, a.vectors, row, area.token0, area.begin, area.end};
    if constexpr (S::MakesHeads::value) {
      static_assert(heads_end::kSharedBytes == S::kEndBytes && heads_end::kWarps * 32 == S::kConsumers,
                    "all consumers finish heads in the memory of all results");
      if (a.out.factors || a.out.bias)
        factors_and_biases<S::kTokens / 8, false>(a.out, lane_row(place), 0, 0, acc);
      float *const of_block = (float *)(staging - threadIdx.x / 128 * kStagingBytes);
      heads_end::store_heads<S::kTokens>(a.heads, area.out_tile, acc, area.token0, area.begin, area.end,
                                         of_block, [] { named_barrier_sync<1, S::kConsumers>(); });
    } else {
      store_groups<S::kWarpgroups, S::kTokens / 8, false>(place, 0, acc, staging);
    }
  }
}

/* Multiplies and stores all tiles of the block. multiply(sums, ring, at, area) sums the steps of an area. */
template <class S, bool kExperts, class Multiply>
__device__ __forceinline__ void multiply_tiles(const TileWork &a, const TileList<S, kExperts> &list,
                                               const TileRing &ring, Multiply multiply) {
  __shared__ int last;
  float acc[kSums<S>];
  auto at = first_stage<S>(ring);
  unsigned char *staging = ring.stage(S::kStages) + threadIdx.x / 128 * S::kStaging;
  for_each_area<S, kExperts>(a, list, [&](const Area &area) {
    if constexpr (kExperts) set_zero(acc);
    multiply(acc, ring, at, area);
    if constexpr (!kExperts && !S::InPairs::value) {
      const int tile = area.out_tile * a.n_token_tiles + area.token_tile,
                begin = tile * a.work.n_steps + area.step;
      if (!stream_k::combine<kSums<S>, S::kConsumers>(
              acc, a.work, blockIdx.x, tile, begin, begin + area.n_steps, threadIdx.x, a.partial, a.counters,
              &last, [] { named_barrier_sync<1, S::kConsumers>(); }))
        return;
    }
    store_tile<S, kExperts>(a, area, acc, staging);
  });
}

/* The lane's weights of one tile, with the scales and zeros of its block or blocks of kBlockIn inputs. */
template <class S, int kBlockIn> struct LaneTile {
  typedef typename S::W W;
  static constexpr int kPerTile = kBlockIn < kTileIn ? kTileIn / kBlockIn : 1; /* blocks of a tile */
  uint4 v[W::kVectors];
  typename W::Meta meta[kPerTile];

  /* Reads tile number `tile` of a stage's `weights`. same_block: the tile before has the same scales and
   * zeros. */
  __device__ __forceinline__ void take(const unsigned char *weights, int tile, bool same_block) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < W::kVectors; i++)
      v[i] = *(const uint4 *)(weights + tile * S::kTileBytes + i * 512 + lane * 16);
    if (same_block) return;
#pragma unroll
    for (int f = 0; f < kPerTile; f++)
      meta[f] =
          W::staged_meta(weights + S::kWBytes + (tile * kTileIn / kBlockIn + f) * W::kMetaBytes, lane / 4);
  }

  /* Operand a of inputs 16 j .. 16 j + 15. */
  __device__ __forceinline__ void dequantise(int j, uint32_t (&q)[4]) const {
    W::template operand<true>(v, j, meta[j * kPerTile / 4], q);
  }
};

/* acc = (kAdd: acc +=) the sums of the tile's first kRows tokens over the next n_steps steps, 64 kK fp16
 * inputs each. A stage is freed while products of the next stage run. */
template <class S, int kBlockIn, int kRows = S::kTokens, bool kAdd = false>
__device__ __forceinline__ void multiply_steps(float (&acc)[kSums<S>], const TileRing &ring, RingCursor &at,
                                               int n_steps) {
  uint32_t q[2][S::kBatch][4];
  for (int step = 0; step < n_steps; step++) {
    const int slot = __shfl_sync(~0u, at.slot, 0); /* so the compiler knows that the slot is uniform */
    const unsigned char *stage = ring.stage(slot);
    barrier_wait(ring.full + slot, at.parity);
    LaneTile<S, kBlockIn> tile;
#pragma unroll
    for (int kk = 0; kk < S::kK; kk++) {
      uint64_t b = operand_b(stage + kk * S::kTokens * 128);
      tile.take(stage + S::kXBytes, warp_tile_row() * S::kK + kk, kk * kTileIn % kBlockIn != 0);
#pragma unroll
      for (int j = 0; j < 4; j += S::kBatch) {
        uint32_t(&to)[S::kBatch][4] = q[(4 * kk + j) / S::kBatch % 2];
#pragma unroll
        for (int i = 0; i < S::kBatch; i++) tile.dequantise(j + i, to[i]);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < S::kBatch; i++)
          wgmma_f16<kRows>(reinterpret_cast<float(&)[kRows / 2]>(acc), to[i], b + 2 * (j + i),
                           kAdd || step > 0 || kk > 0 || j + i > 0);
        wgmma_commit();
        wgmma_wait<1>();
        if (kk == 0 && j == 0 && step > 0) release_before<S>(ring, at.slot);
      }
    }
    at.advance(ring.n_stages);
  }
  wgmma_wait<0>();
  release_before<S>(ring, at.slot);
}

/* acc += the sums over the next n_steps steps for a tile of n_rows rows of experts. The rows are multiplied
 * as ExpertTiles::height(n_rows) rows. */
template <class S, int kBlockIn, class Cursor, int kRows = S::kTokens>
__device__ __forceinline__ void add_steps(float (&acc)[kSums<S>], const TileRing &ring, Cursor &at,
                                          int n_steps, int n_rows) {
  typedef ExpertTiles<S::kTokens> Tiles;
  if constexpr (kRows > Tiles::kLeast)
    if (n_rows <= kRows - Tiles::kStep)
      return add_steps<S, kBlockIn, Cursor, kRows - Tiles::kStep>(acc, ring, at, n_steps, n_rows);
  if constexpr (S::kIsLow) {
    constexpr int kGroupBytes = S::kK * kTileIn / kBlockIn * S::W::kMetaBytes; /* of a tile row */
    add_stages<S, S::kK, kBlockIn, 512, kRows>(acc, at, at.weights,
                                               at.groups + opaque(warp_tile_row() * kGroupBytes), n_steps);
  } else {
    multiply_steps<S, kBlockIn, kRows, true>(acc, ring, at, n_steps);
  }
}

/* Does the work of a block. copy_x and x_bytes: see load_tiles(); multiply(sums, ring, at, area) sums the
 * steps of an area for the warpgroup. */
template <class S, int kBlockIn, bool kExperts, class XBytes, class CopyX, class Multiply>
__device__ __forceinline__ void run_block(const TileWork &a, XBytes x_bytes, CopyX copy_x,
                                          Multiply multiply) {
  extern __shared__ unsigned char shared[];
  __shared__ uint64_t full[2 * S::kStages];
  uint64_t *const empty = full + S::kStages;
  __shared__ TileList<S, kExperts> list;
  static_assert(S::kSharedBytes + sizeof list + 1024 <= 227 * 1024, "shared memory of sm_90");
  const TileRing ring = {{align_for_copies(shared), full, empty, S::kStages, S::kStageBytes},
                         S::InPairs::value ? peer_address(empty, threadIdx.x % 2) : 0};
  ring.open(33, S::kConsumers / 32 * (S::InPairs::value ? 2 : 1));
  if constexpr (S::InPairs::value) cluster_sync(); /* both blocks' barriers are ready */
  dependents_may_start();
  if (kExperts || !a.early) wait_for_previous();
  static_assert(!kExperts || 16 * LINEAR_MAX_EXPERTS <= S::kEndBytes, "the list's scratch memory");
  if constexpr (kExperts) list.fill(a.experts, ring.stage(S::kStages));
  if (threadIdx.x >= S::kConsumers) {
    if constexpr (S::kWarpgroups > 1) registers_down_to<S::kLoadRegisters>();
    if (threadIdx.x < S::kConsumers + 32)
      load_tiles<S, kExperts>(a, list, ring, x_bytes, copy_x);
    else if (threadIdx.x < S::kConsumers + 64)
      load_groups<S, kBlockIn, kExperts>(a, list, ring);
  } else {
    if constexpr (S::kWarpgroups > 1) registers_up_to<S::kMultiplyRegisters>();
    if constexpr (!kExperts) wait_for_previous();
    multiply_tiles<S, kExperts>(a, list, ring, multiply);
  }
}

#endif

/* Stream-K work in tiles of 16 tile_rows outputs by `tokens` tokens and steps of `tiles` x 64 inputs. A block
 * gets at least 256 inputs, or all if x has fewer. With fewer a block would only fill its pipeline. */
inline stream_k::Work work_of(const LinearArgs &args, int tile_rows, int tokens, int tiles) {
  const QuantView w = quant_view(*args.w);
  return stream_k::even_work(ceil_div(w.n_tiles_out, tile_rows) * ceil_div(args.n_tokens, tokens),
                             w.n_tiles_in / tiles, args.device.n_sms, 4 / tiles);
}

constexpr int kMostNarrow = 128; /* most tokens that narrow_wgmma is meant for */

/* Microseconds of narrow_wgmma for n_tokens, rounded up to 16, fitted to an H200 (LOG.md, "Rows left to
 * narrow_wgmma"). */
inline double narrow_us(const LinearArgs &args, int n_tokens) {
  const double weights = (double)args.w->n_in * args.w->n_out * 1e-6, n = ceil_div(n_tokens, 16) * 16;
  return 3 + 0.04 * n + weights * ((args.w->type == WEIGHT_FP8 ? 0.23 : 0.12) + 0.0022 * n);
}

/* How many tiles of tokens a wave of pairs has; 0 if the tiles cannot be divided into waves.
 *
 * In a wave each block computes one whole tile. The tiles of a wave are a rectangle: t tiles of tokens (the
 * result) by n_blocks / t tiles of outputs. A pair has two neighbouring tiles of outputs and the same tokens.
 * Blocks with the same outputs read the same weights at about the same time; blocks with the same tokens read
 * the same x. So L2 serves most of what a wave reads. The next wave has the next tokens and the same outputs.
 * After the last tokens come the next outputs, with the tokens in reverse order.
 *
 * Where several rectangles divide the tiles evenly, this takes the one whose wave reads the fewest bytes. For
 * a tile of 256 tokens x is eight times as many bytes as 4-bit weights of 128 outputs. (With 8-bit weights it
 * is four times, which hardly changes the choice.) */
inline int best_wave(const stream_k::Work &work, int n_token_tiles) {
  const int n_out_tiles = work.n_tiles / n_token_tiles, pairs = work.n_blocks / 2;
  if (work.n_tiles % work.n_blocks || work.n_blocks % 2) return 0;
  int best = 0;
  const auto cost = [&](int tokens) { return 8 * tokens + work.n_blocks / tokens; };
  for (int tokens = 1; tokens <= n_token_tiles; tokens++)
    if (n_token_tiles % tokens == 0 && pairs % tokens == 0 && n_out_tiles % (pairs / tokens * 2) == 0 &&
        (best == 0 || cost(tokens) < cost(best)))
      best = tokens;
  return best;
}

/* Number of blocks for whole tiles: the fewest such that no block has more tiles than with n_sms blocks. */
inline int blocks_of_whole(const stream_k::Work &work, int n_sms) {
  return ceil_div(work.n_tiles, ceil_div(work.n_tiles, n_sms));
}

/* Sets the TileWork of a call for shape S. whole: tiles are not cut (TileWork.whole). */
template <class S> Status set_tile_work(const LinearArgs &args, bool whole, TileWork &to, Error *err) {
  const QuantView w = quant_view(*args.w);
  to.w = w;
  to.n_tokens = args.n_tokens;
  to.n_token_tiles = ceil_div(args.n_tokens, S::kTokens);
  to.work = work_of(args, S::kTileRows, S::kTokens, S::kK);
  to.whole = whole;
  if (whole) to.work.n_blocks = blocks_of_whole(to.work, args.device.n_sms);
  if (S::InPairs::value) to.wave_tokens = best_wave(to.work, to.n_token_tiles);
  to.out = args.out;
  to.vectors = whole_vectors(args.out);
  to.partial = (float *)args.workspace;
  to.counters = args.counters;
  return map_tiles(args, S::W::kVectors, S::kK, S::kTileRows, &to.tiles, err);
}

} // namespace wgmma_tiles
