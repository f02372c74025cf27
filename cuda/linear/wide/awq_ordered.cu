/* awq_ordered.cu - many tokens on Hopper with the bits of few: the sums of narrow_wgmma, in its order.
 *
 *     y[m][o] = sum_i (q[i][o] - z[g(i)][o]) s[g(i)][o] x[m][i]
 *
 * For up to 128 tokens (FP8: 48) and in tiles of 128 outputs narrow_wgmma cuts the inputs of a tile into
 * parts, a block's each, and two groups of warps multiply every other unit of 128 inputs of a part
 * (wgmma_parts.cuh). Here a block has the whole tile of 128 outputs by kTokens tokens and computes these
 * chains one after another: in each part the units of the first group, then those of the second, each from
 * zero; the two are added, and the parts in their order. The second chain starts while the last products of
 * the first one run, so only a part's end waits. Stages are loaded in the same order. The rest is as in
 * awq_wgmma.cu.
 *
 * Blocks stay and take every n-th tile; tiles of the same outputs follow each other. Where it is faster,
 * narrow_wgmma itself takes 128 tokens at a time.
 * PRECOND  group % 64 == 0 (FP4: a tile's 64 inputs with four groups); x 16-byte aligned, x_stride % 8 == 0.
 * READS    weights once for every kTokens tokens, x once for every 128 outputs. */
#include <algorithm>
#include <iterator>

#include "cuda/linear/narrow/wgmma_parts.cuh"
#include "cuda/linear/wide/wgmma_tiles.cuh"

namespace {

using namespace wgmma_tiles;

constexpr int kUnitTiles = 2; /* tiles of 64 inputs of a unit */

template <class W, int kTokens>
struct Shape : ShapeOf<W, kTokens, kUnitTiles, kUnitTiles * kTokens * 128, kTileIn / 64, 7> {
  /* As in awq_wgmma.cu. */
  static __device__ __forceinline__ int first_token(int n_tokens, int token_tile) {
    return max(0, min(token_tile * kTokens, n_tokens - kTokens));
  }
};

struct Args {
  CUtensorMap x;
  QuantView w;
  int box_tokens, n_tokens, n_token_tiles, n_tiles, n_units; /* units of a tile */
  wgmma_parts::Cut cut;                                      /* narrow_wgmma's */
  Epilogue out;
  bool vectors; /* 16 bytes of a row of y are aligned */
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr int kGroups = 2; /* of warps in narrow_wgmma */

/* Units of one group of warps in a part of a tile: `first` and every kGroups-th after it. */
struct Chain {
  int first, n; /* n may be 0 */
};

/* Calls work(chains) for the parts of a tile in their order, with a chain of each group. */
template <class Work> __device__ __forceinline__ void for_each_part(const Args &a, int out_tile, Work work) {
  const wgmma_parts::Cut &cut = a.cut;
  const int begin = out_tile * a.n_units, end = begin + a.n_units;
  const int longer = cut.n_longer * (cut.n_units + 1);
  int block = begin < longer ? begin / (cut.n_units + 1) : cut.n_longer + (begin - longer) / cut.n_units;
  for (int at = begin; at < end; block++) {
    const int before = at - wgmma_parts::first_unit(cut, block),
              n = min(wgmma_parts::first_unit(cut, block + 1), end) - at;
    Chain chains[kGroups];
#pragma unroll
    for (int group = 0; group < kGroups; group++) {
      const int first = (group - before) & (kGroups - 1);
      chains[group] = {at - begin + first, (n - first + kGroups - 1) / kGroups};
    }
    work(chains);
    at += n;
  }
}

/* Calls load(stage, full, out_tile, token_tile, unit) for the block's stages in their order, once each is
 * free. */
template <class S, class Load>
__device__ __forceinline__ void for_each_stage(const Args &a, unsigned char *stages, const Barriers &bar,
                                               Load load) {
  int slot = 0, phase = 1;
  for (int tile = blockIdx.x; tile < a.n_tiles; tile += gridDim.x) {
    const int out_tile = tile / a.n_token_tiles, token_tile = tile % a.n_token_tiles;
    for_each_part(a, out_tile, [&](const Chain(&chains)[kGroups]) {
      for (const Chain &chain : chains)
        for (int k = 0; k < chain.n; k++) {
          barrier_wait(bar.empty + slot, phase);
          load(stages + slot * S::kStageBytes, bar.full + slot, out_tile, token_tile,
               chain.first + kGroups * k);
          if (++slot == S::kStages) slot = 0, phase ^= 1;
        }
    });
  }
}

/* Past the matrix the last tile row is loaded again; its results are dropped. */
template <class S> __device__ __forceinline__ int existing_row(const Args &a, int out_tile, int row) {
  return min(out_tile * S::kTileRows + row, a.w.n_tiles_out - 1);
}

template <class S>
__device__ __forceinline__ void load_x_and_weights(const Args &a, unsigned char *stages,
                                                   const Barriers &bar) {
  const int lane = threadIdx.x % 32;
  for_each_stage<S>(
      a, stages, bar, [&](unsigned char *to, uint64_t *full, int out_tile, int token_tile, int unit) {
        if (lane == 0) {
          barrier_expect(full, S::kK * a.box_tokens * 128 + S::kWBytes);
#pragma unroll
          for (int i = 0; i < S::kK; i++)
            copy_box(to + i * S::kTokens * 128, &a.x, full, (unit * S::kK + i) * kTileIn,
                     S::first_token(a.n_tokens, token_tile));
        }
        __syncwarp();
        const uint4 *from =
            a.w.tiles + ((size_t)existing_row<S>(a, out_tile, lane) * a.w.n_tiles_in + unit * S::kK) * 32 *
                            S::W::kVectors;
        if (lane < S::kTileRows)
          copy_bulk(to + S::kXBytes + lane * S::kK * S::kTileBytes, from, S::kK * S::kTileBytes, full);
      });
}

template <class S>
__device__ __forceinline__ void load_metas(const Args &a, unsigned char *stages, const Barriers &bar) {
  typedef typename S::W W;
  constexpr int kCopies = W::kMetaCopies;
  for_each_stage<S>(a, stages, bar, [&](unsigned char *to, uint64_t *full, int out_tile, int, int unit) {
#pragma unroll
    for (int c = threadIdx.x % 32; c < S::kTileRows * S::kK * kCopies; c += 32) {
      const int row = c / (S::kK * kCopies), tile = c / kCopies % S::kK;
      copy_meta<W>(a.w, out_tile * S::kTileRows + row, (unit * S::kK + tile) * kTileIn, c % kCopies,
                   to + S::kXBytes + S::kWBytes + (row * S::kK + tile) * W::kMetaBytes);
    }
    barrier_arrive_after_copies(full);
  });
}

/* Multiplies the block's tiles. The second chain of a part begins while the last products of the first one
 * run. */
template <class S>
__device__ __forceinline__ void multiply_tiles(const Args &a, unsigned char *stages, const Barriers &bar) {
  Ring ring = {0, 0};
  unsigned char *staging = stages + S::kStages * S::kStageBytes + threadIdx.x / 128 * kStagingBytes;
  for (int tile = blockIdx.x; tile < a.n_tiles; tile += gridDim.x) {
    const int out_tile = tile / a.n_token_tiles, token_tile = tile % a.n_token_tiles;
    uint32_t q[2][S::kBatch][4];
    float even[kSums<S>], odd[kSums<S>], total[kSums<S>];
#pragma unroll
    for (int k = 0; k < kSums<S>; k++) total[k] = -0.0f; /* -0 + x is x for 0, too */
    for_each_part(a, out_tile, [&](const Chain(&chains)[kGroups]) {
      multiply_chain<S, kTileIn>(even, q, stages, bar, ring, chains[0].n, false);
      multiply_chain<S, kTileIn>(odd, q, stages, bar, ring, chains[1].n, chains[0].n > 0);
      finish_chains<S>(bar, ring);
      if (chains[0].n == 0) set_zero(even);
      if (chains[1].n == 0) set_zero(odd);
#pragma unroll
      for (int k = 0; k < kSums<S>; k++) total[k] += even[k] + odd[k];
    });
    const int token0 = S::first_token(a.n_tokens, token_tile),
              row = (out_tile * S::kTileRows + (int)threadIdx.x / 128 * 4) * kTileOut;
    const Place place = {a.out,
                         a.vectors,
                         row,
                         token0,
                         token_tile * S::kTokens - token0,
                         min(a.n_tokens - token0, S::kTokens)};
    store_groups<S::kWarpgroups, S::kTokens / 8, false>(place, 0, total, staging);
  }
}

#endif

template <class S> __global__ void __launch_bounds__(S::kThreads, 1) kernel(const __grid_constant__ Args a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char shared[];
  __shared__ uint64_t full[S::kStages], empty[S::kStages];
  unsigned char *stages = align_for_copies(shared);
  open_ring(full, empty, S::kStages, 33,
            S::kConsumers / 32); /* x and weights, and copies of scales and zeros */
  dependents_may_start();
  wait_for_previous();
  const Barriers bar = {full, empty};
  if (threadIdx.x >= S::kConsumers) {
    registers_down_to<S::kLoadRegisters>();
    if (threadIdx.x < S::kConsumers + 32)
      load_x_and_weights<S>(a, stages, bar);
    else if (threadIdx.x < S::kConsumers + 64)
      load_metas<S>(a, stages, bar);
  } else {
    registers_up_to<S::kMultiplyRegisters>();
    multiply_tiles<S>(a, stages, bar);
  }
#endif
}

template <class S> Status launch_shape(const LinearArgs &args, Error *err) {
  const QuantView w = quant_view(*args.w);
  const int n_units = w.n_tiles_in / S::kK, n_out_tiles = ceil_div(w.n_tiles_out, S::kTileRows),
            total = n_out_tiles * n_units, n_token_tiles = ceil_div(args.n_tokens, S::kTokens),
            blocks = wgmma_parts::divide(n_out_tiles, n_units, 4 / S::kK, args.device.n_sms).n_blocks;
  Args a = {{},
            w,
            std::min(ceil_div(args.n_tokens, 8) * 8, S::kTokens),
            args.n_tokens,
            n_token_tiles,
            n_out_tiles * n_token_tiles,
            n_units,
            {blocks, total / blocks, total % blocks},
            args.out,
            whole_vectors(args.out)};
  TRY(map_boxes(args.x, {(cuuint64_t)args.w->n_in, (cuuint64_t)args.n_tokens, 0},
                {(cuuint64_t)args.x_stride * sizeof(__half), 0}, {kTileIn, (cuuint32_t)a.box_tokens, 1},
                CU_TENSOR_MAP_SWIZZLE_128B, args.w->name, &a.x, err));
  return launch(kernel<S>, dim3((unsigned)std::min(a.n_tiles, args.device.n_sms)), S::kThreads,
                S::kSharedBytes, args.stream, args.dependent, args.w->name, err, a);
}

template <int kTokens> Status launch_weights(const LinearArgs &args, Error *err) {
  switch (args.w->type) {
  case WEIGHT_FP4: return launch_shape<Shape<Fp4, kTokens>>(args, err);
  case WEIGHT_FP8: return launch_shape<Shape<Fp8, kTokens>>(args, err);
  default: return launch_shape<Shape<Bits4, kTokens>>(args, err);
  }
}

/* Launches of kMostNarrow tokens by narrow_wgmma itself. */
Status launch_narrow(const LinearArgs &args, Error *err) {
  for (int first = 0; first < args.n_tokens; first += kMostNarrow) {
    LinearArgs part = tokens_of(args, first, std::min(args.n_tokens - first, kMostNarrow));
    part.variant = LINEAR_OF_128;
    TRY(narrow_wgmma_kernel.launch(part, err));
  }
  return STATUS_OK;
}

double narrow_launches_us(const LinearArgs &args) {
  double us = 0;
  for (int first = 0; first < args.n_tokens; first += kMostNarrow)
    us += 1.5 + narrow_us(args, std::min(args.n_tokens - first, kMostNarrow)); /* 1.5: tiles of 128 outputs */
  return us;
}

/* A tile shape, or launches of narrow_wgmma. */
struct Way {
  Status (*launch)(const LinearArgs &args, Error *err);
  int tokens;
  double unit_us, end_us; /* 128 inputs of a tile; the end of a tile */
};

/* Times as measured on an H200 (cuda/LOG.md). */
constexpr Way ways[] = {{launch_weights<64>, 64, 0.66, 2.7},
                        {launch_weights<128>, 128, 0.82, 3.7},
                        {launch_narrow, kMostNarrow, 0, 0}};

/* Time of a launch and of the block with the most tiles. With FP8 narrow_wgmma has another order beyond 48
 * tokens, and is never chosen. */
double expected_us(const Way &way, const LinearArgs &args) {
  if (way.launch == launch_narrow) return args.w->type == WEIGHT_FP8 ? 1e9 : narrow_launches_us(args);
  const int n_tiles = ceil_div(args.w->n_out, 128) * ceil_div(args.n_tokens, way.tokens),
            n_units = ceil_div(args.w->n_in, kUnitTiles * kTileIn);
  return 3 + ceil_div(n_tiles, args.device.n_sms) * (n_units * way.unit_us + way.end_us);
}

/* Launches the `variant`-th way, or the one expected to be the fastest. */
Status launch_awq_ordered(const LinearArgs &args, Error *err) {
  if (args.variant > (int)std::size(ways))
    return error_set(err, STATUS_USAGE, "%s: there is no tile shape %d", args.w->name, args.variant);
  if (args.variant > 0) return ways[args.variant - 1].launch(args, err);
  const Way *fastest = std::min_element(std::begin(ways), std::end(ways), [&](const Way &a, const Way &b) {
    return expected_us(a, args) < expected_us(b, args);
  });
  return fastest->launch(args, err);
}

} // namespace

const LinearKernel awq_ordered_kernel = {NULL, launch_awq_ordered, false};
