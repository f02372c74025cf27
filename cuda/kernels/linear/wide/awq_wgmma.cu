/* awq_wgmma.cu - many tokens on Hopper: dequantised weights as the register operand of wgmma, x by tensor
 * copies.
 *
 *     y[m][o] = sum_i (q[i][o] - z[g(i)][o]) s[g(i)][o] x[m][i]
 *
 * The blocks, the ring and the epilogues are those of wgmma_tiles.cuh. A lane's bytes of a tile (16; FP8: 32)
 * are its register operand of four wgmma m64nNk16. While one wgmma runs, the lane dequantises the next 16
 * inputs into the other of two sets of registers. (With one or four warpgroups two wgmma run, and the lane
 * dequantises 32 inputs.) x in a stage: [kK][kTokens][128 bytes], 128-byte swizzle. Rows of x past an
 * expert's last are another expert's; their results are dropped. Weights are 4-bit integers, FP4 or FP8; the
 * epilogue multiplies by the factors of FP4 and FP8.
 * PRECOND  group % kBlockIn == 0; kBlockIn is 32, 64 or 128 inputs (FP4: 64, a tile with four groups); x
 *          16-byte aligned, x_stride % 8 == 0.
 * READS    from L2: weights once for every kTokens tokens, x once a tile of outputs (InPairs: two tiles). */
#include <algorithm>
#include <iterator>
#include <type_traits>

#include "cuda/kernels/linear/tile_times.h"
#include "cuda/kernels/linear/wide/wgmma_tiles.cuh"

namespace {

using namespace wgmma_tiles;

template <class W, int kTokens, int kK, int kStages, int kWarpgroups, bool kHeads = false,
          bool kPairs = false>
struct Shape : ShapeOf<W, kTokens, kK, kK * kTokens * 128, kTileIn / W::kLeastBlockIn, kStages, kWarpgroups> {
  static_assert(kTokens % 8 == 0, "tokens are whole swizzle rows");
  typedef std::bool_constant<kHeads> MakesHeads;
  typedef std::bool_constant<kPairs> InPairs;

  static __device__ __forceinline__ int first_token(int n_tokens, int token_tile) {
    return first_of_tile(n_tokens, token_tile, kTokens);
  }
};

template <class S, bool kExperts> struct Args : TileWork {
  /* boxes of 64 inputs; experts: a map for each height */
  CUtensorMap x[kExperts ? ExpertTiles<S::kTokens>::kHeights : 1];
  int box_tokens; /* tokens of one copy of x, if not for experts */
};

template <class S, int kBlockIn, bool kExperts>
__global__ void __launch_bounds__(S::kThreads, 1) kernel(const __grid_constant__ Args<S, kExperts> a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  run_block<S, kBlockIn, kExperts>(
      a,
      [&](const Area &area) {
        const int boxes = S::InPairs::value ? 2 : 1;
        return S::kK * 128 * boxes * (kExperts ? ExpertTiles<S::kTokens>::height(area.end) : a.box_tokens);
      },
      [&](unsigned char *to, uint64_t *full, const Area &area, int step) {
        if constexpr (S::InPairs::value) {
          static_assert(S::kK == 1, "half of the tokens are one box");
          const int half = cluster_rank() * (S::kTokens / 2);
          copy_box_to_pair(to + half * 128, a.x, full, step * kTileIn, area.token0 + half);
          return;
        }
        const CUtensorMap *x = a.x + (kExperts ? ExpertTiles<S::kTokens>::which_height(area.end) : 0);
#pragma unroll
        for (int kk = 0; kk < S::kK; kk++)
          copy_box(to + kk * S::kTokens * 128, x, full, (step * S::kK + kk) * kTileIn, area.token0);
      },
      [](float(&sums)[kSums<S>], const TileRing &ring, auto &at, const Area &area) {
        if constexpr (kExperts)
          add_steps<S, kBlockIn>(sums, ring, at, area.n_steps, __shfl_sync(~0u, area.end, 0));
        else
          multiply_steps<S, kBlockIn>(sums, ring, at, area.n_steps);
      });
#endif
}

/* Sets the work of experts. n_tiles counts tiles of outputs only: the number of tiles of rows is known only
 * on the device. */
template <class S> Status set_experts(const LinearArgs &args, Args<S, true> &a, Error *err) {
  typedef ExpertTiles<S::kTokens> Tiles;
  const int n_places = args.n_tokens * args.w->n_chosen;
  a.experts = grouped_experts(args);
  if (!a.experts.by_place || args.out.kind == LINEAR_TO_F16)
    return error_set(err, STATUS_FAILED, "%s: %d rows, expected by places, and sums in fp32 or gated",
                     args.w->name, n_places);
  a.out.n_out = args.w->n_out / args.w->n_experts;
  a.work.n_tiles = ceil_div(a.experts.tile_rows, S::kTileRows);
  a.work.n_blocks = std::min(a.work.n_tiles * a.experts.most_tiles(n_places, S::kTokens), args.device.n_sms);
  for (int i = 0; i < Tiles::kHeights; i++)
    TRY(map_x(args, n_places, Tiles::kLeast + i * Tiles::kStep, a.x + i, err));
  return STATUS_OK;
}

/* Shapes of up to kFewTokens tokens with one or three warpgroups are for few rows with LINEAR_WHOLE. */
constexpr int kFewTokens = 64;

/* True for shapes that exist only for 4 bits in groups of a multiple of 128 inputs: other groups were not
 * measured. */
constexpr bool needs_groups_of_128(int tokens, int warpgroups) {
  return warpgroups == 1 ? tokens > kFewTokens : warpgroups == 3 && tokens > kFewTokens && tokens < 128;
}

/* Up to this many tokens a block loads its first weights before the previous kernel has ended. With more,
 * that kernel became slower (LOG.md, "Early loads"). */
constexpr int kMostEarly = 256;

template <class S, bool kExperts> Status launch_shape(const LinearArgs &args, bool whole, Error *err) {
  Args<S, kExperts> a = {};
  TRY(set_tile_work<S>(args, whole, a, err));
  if constexpr (kExperts) {
    TRY(set_experts<S>(args, a, err));
  } else {
    if constexpr (S::MakesHeads::value) a.heads = *args.next.heads;
    a.early = args.n_tokens <= kMostEarly;
    a.box_tokens = S::InPairs::value ? S::kTokens / 2 : std::min(ceil_div(args.n_tokens, 8) * 8, S::kTokens);
    TRY(map_x(args, args.n_tokens, a.box_tokens, a.x, err));
  }
  constexpr int kWide = S::kK * kTileIn; /* the largest kBlockIn: a stage's inputs have one scale */
  const auto run = [&](auto kernel) {
    cudaLaunchAttribute attributes[2] = {cluster_attribute(2)};
    return launch_with(attributes, S::InPairs::value ? 1 : 0, kernel, dim3((unsigned)a.work.n_blocks),
                       S::kThreads, S::kSharedBytes, args.stream, args.dependent, args.w->name, err, a);
  };
  if constexpr (needs_groups_of_128(S::kTokens, S::kWarpgroups))
    return run(kernel<S, kWide, kExperts>);
  else if constexpr (S::W::kLeastBlockIn == 32)
    return args.w->group % kWide == 0 ? run(kernel<S, kWide, kExperts>) : run(kernel<S, 32, kExperts>);
  else
    return run(kernel<S, kTileIn, kExperts>);
}

/* Only tiles of at least kLeastHeadTokens tokens have a kernel whose epilogue makes heads (heads_end.cuh). */
constexpr int kLeastHeadTokens = 128;

/* Only tiles of exactly kPairTokens tokens are computed by pairs of blocks (wgmma_tiles.cuh). */
constexpr int kPairTokens = 256;

/* Launches pairs of blocks if best_wave() can divide the tiles among pairs and there are several tiles of
 * tokens: half of a single tile could lie past the last token. Pairs, and epilogues that make heads, are
 * kernels of their own. If one kernel held all forms, ptxas would let no two products overlap. */
template <class W, int kTokens, int kK, int kStages, int kWarpgroups, bool kHeads>
Status launch_pairs_or_blocks(const LinearArgs &args, bool whole, Error *err) {
  if constexpr (kTokens == kPairTokens) {
    const int n_token_tiles = ceil_div(args.n_tokens, kTokens);
    if (n_token_tiles > 1 && best_wave(work_of(args, 4 * kWarpgroups, kTokens, kK), n_token_tiles) > 0)
      return launch_shape<Shape<W, kTokens, kK, kStages, kWarpgroups, kHeads, true>, false>(args, false, err);
  }
  return launch_shape<Shape<W, kTokens, kK, kStages, kWarpgroups, kHeads>, false>(args, whole, err);
}

/* Launches the kernel whose epilogue makes what the call asks for: heads, or y. */
template <class W, int kTokens, int kK, int kStages, int kWarpgroups>
Status launch_ends(const LinearArgs &args, bool whole, Error *err) {
  if constexpr (kWarpgroups == 2 && kTokens >= kLeastHeadTokens)
    if (args.next.kind)
      return launch_pairs_or_blocks<W, kTokens, kK, kStages, kWarpgroups, true>(args, whole, err);
  if (args.next.kind)
    return error_set(err, STATUS_USAGE, "%s: tiles of this shape do not end as heads", args.w->name);
  return launch_pairs_or_blocks<W, kTokens, kK, kStages, kWarpgroups, false>(args, whole, err);
}

/* True for shapes that exist for all types of weights. */
constexpr bool takes_all_types(int tokens, int warpgroups) {
  return warpgroups == 2 || tokens <= kFewTokens;
}

/* Launches the shape for the matrix's type of weights. Shapes of more than kFewTokens tokens with one or
 * three warpgroups exist only for 4 bits. */
template <int kTokens, int kK, int kStages, int kWarpgroups>
Status launch_weights(const LinearArgs &args, bool whole, Error *err) {
  if constexpr (takes_all_types(kTokens, kWarpgroups)) {
    if (args.w->type == WEIGHT_FP4)
      return launch_ends<Fp4, kTokens, kK, kStages, kWarpgroups>(args, whole, err);
    if (args.w->type == WEIGHT_FP8)
      return launch_ends<Fp8, kTokens, kK, kStages, kWarpgroups>(args, whole, err);
  } else if (args.w->type != WEIGHT_AWQ4 ||
             (needs_groups_of_128(kTokens, kWarpgroups) && args.w->group % 128 != 0)) {
    return error_set(err, STATUS_USAGE, "%s: tiles of %d outputs are of 4-bit weights, some in groups of 128",
                     args.w->name, 64 * kWarpgroups);
  }
  return launch_ends<Bits4, kTokens, kK, kStages, kWarpgroups>(args, whole, err);
}

struct TimedShape {
  Status (*launch)(const LinearArgs &args, bool whole, Error *err);
  int tile_rows, tokens, tiles; /* tile rows and tokens of a tile, tiles of 64 inputs in a step */
  double us, fixup_us;          /* tile_times.h, with 4 bits in groups of 128 */
};

/* clang-format off */
#define TILE(outputs, tokens, tiles, stages, us, fixup) \
  {launch_weights<tokens, tiles, stages, outputs / 64>, outputs / kTileOut, tokens, tiles, us, fixup},
/* clang-format on */
constexpr TimedShape shapes[] = {AWQ_WGMMA_TILES(TILE)};
#undef TILE

/* A shape, how its tiles are divided among blocks, and the expected time until the last block ends. */
struct Choice {
  const TimedShape *shape;
  bool whole; /* TileWork.whole */
  double us;
};

constexpr double kLaunchUs = 3; /* of a launch of any shape: filling the pipeline, storing the last tile */

Choice fastest_division(const TimedShape &s, const LinearArgs &args) {
  const Choice never = {&s, false, 1e9};
  /* A head has 128 outputs. The second and the third line leave out what launch_weights() lacks. */
  if (s.tile_rows != 8 && args.next.kind) return never;
  if (!takes_all_types(s.tokens, s.tile_rows / 4) && args.w->type != WEIGHT_AWQ4) return never;
  if (needs_groups_of_128(s.tokens, s.tile_rows / 4) && args.w->group % 128 != 0) return never;
  if (args.next.kind && s.tokens < kLeastHeadTokens) return never;
  const stream_k::Work work = work_of(args, s.tile_rows, s.tokens, s.tiles);
  const int rounds = ceil_div(work.n_tiles, args.device.n_sms),
            cut_steps = ceil_div(stream_k::total_steps(work), work.n_blocks);
  const double whole = kLaunchUs + s.us * s.tiles * rounds * work.n_steps,
               cut = kLaunchUs + s.us * s.tiles * cut_steps + (work.n_tiles % work.n_blocks ? s.fixup_us : 0);
  const bool is_whole = whole <= cut || args.variant == LINEAR_WHOLE;
  return {&s, is_whole, is_whole ? whole : cut};
}

/* By an expert's rows on average: below fewest_rows() experts_mma.cu; below kFewRows low tiles of up to 48
 * rows; below kLowRows low tiles of up to 64 rows; else high tiles (LOG.md, "Experts of many tokens"). */
constexpr int kLowRows = 40, kFewRows = 33;

template <class W> int fewest_rows(int group) {
  return W::kBits == 8 ? 9 : W::kLeastBlockIn > 32 ? 11 : group % 128 == 0 ? 15 : 20;
}

/* Launches experts_mma.cu or low tiles if experts have few rows on average, else high tiles. A stage has 128
 * inputs; with FP8 64: its weights take twice the memory, so too few stages of 128 would fit. */
template <class W> Status launch_experts_of(const LinearArgs &args, Error *err) {
  constexpr int kK = W::kVectors > 1 ? 1 : 2;
  const int rows = args.n_tokens * args.w->n_chosen, n = args.w->n_experts,
            fastest = rows < fewest_rows<W>(args.w->group) * n ? 1
                      : rows < kFewRows * n                    ? 2
                      : rows < kLowRows * n                    ? 3
                                                               : 4;
  switch (args.variant ? args.variant : fastest) {
  case 1: return launch_experts_mma(args, err);
  case 2: return launch_shape<Shape<W, 48, kK, 12 / kK, 4>, true>(args, false, err);
  case 3: return launch_shape<Shape<W, 64, kK, 12 / kK, 4>, true>(args, false, err);
  default: return launch_shape<Shape<W, 192, kK, 6 / kK, 2>, true>(args, false, err);
  }
}

Status launch_experts(const LinearArgs &args, Error *err) {
  switch (args.w->type) {
  case WEIGHT_FP8: return launch_experts_of<Fp8>(args, err);
  case WEIGHT_FP4: return launch_experts_of<Fp4>(args, err);
  default: return launch_experts_of<Bits4>(args, err);
  }
}

/* The shape that is expected to be the fastest; if several are, the first. */
Choice fastest_of(const LinearArgs &args) {
  Choice best = fastest_division(shapes[0], args);
  for (const TimedShape &s : shapes) {
    const Choice next = fastest_division(s, args);
    if (next.us < best.us) best = next;
  }
  return best;
}

/* Variants 1 .. n: the shapes with tiles cut by stream-K. n + 1 .. 2 n: the same shapes with whole tiles. 0:
 * the variant that is expected to be the fastest; LINEAR_WHOLE: the fastest with whole tiles. Experts: 1 is
 * experts_mma.cu, 2 and 3 are low tiles, 4 is high ones. */
Status launch_best_shape(const LinearArgs &args, Error *err) {
  const int n = (int)std::size(shapes);
  TRY(check_variant(args, args.experts ? 4 : 2 * n, err));
  if (args.experts) return launch_experts(args, err);
  if (args.variant > 0) return shapes[(args.variant - 1) % n].launch(args, args.variant > n, err);
  const Choice fastest = fastest_of(args);
  return fastest.shape->launch(args, fastest.whole, err);
}

constexpr double kWorthWhile = 0.96; /* a second launch must bring the time down to this share */

/* How many of the last tokens narrow_wgmma multiplies because they would fill little of a tile. Four tiles of
 * 256 leave 32 of 1,056 tokens; for these, all weights would be dequantised once more. 0 for a forced shape,
 * for experts, and for heads, which narrow_wgmma does not make. 0 if the best shape's tiles are full: then
 * tile_times.h is not exact enough for a choice. */
int tokens_left(const LinearArgs &args) {
  if (args.experts || args.variant != 0 || args.next.kind) return 0;
  const Choice all = fastest_of(args);
  if (args.n_tokens % all.shape->tokens == 0) return 0;
  double least = kWorthWhile * (all.us - kLaunchUs);
  int left = 0;
  for (int tile : {128, 256}) {
    LinearArgs most = args;
    const int rest = args.n_tokens % tile;
    most.n_tokens -= rest;
    if (rest == 0 || rest > kMostNarrow) continue;
    const double us = narrow_us(args, rest) + (most.n_tokens > 0 ? fastest_of(most).us - kLaunchUs : 0);
    if (us < least) least = us, left = rest;
  }
  return left;
}

size_t workspace(const DeviceLinear *w, int, const DeviceLimits &device) {
  if (w->n_experts > 0) return 0; /* tiles of experts are not cut */
  size_t most = 0;
  for (const TimedShape &s : shapes)
    most = std::max(most, stream_k::partial_bytes(device.n_sms, s.tile_rows * 32, s.tokens / 2));
  return most;
}

/* Most tokens of a launch of a gated matmul: the results of more tokens would push x out of L2. */
constexpr int kGatedTokens = 2048;

Status launch_awq_wgmma(const LinearArgs &args, Error *err) {
  if (args.experts) return launch_best_shape(args, err);
  const int at_once = args.w->interleaved ? kGatedTokens : args.n_tokens;
  for (int first = 0; first < args.n_tokens; first += at_once) {
    const LinearArgs part = tokens_of(args, first, std::min(args.n_tokens - first, at_once));
    const int left = args.n_tokens > kMostNarrow ? tokens_left(part) : 0, n = part.n_tokens - left;
    if (n > 0) TRY(launch_best_shape(tokens_of(part, 0, n), err));
    if (left > 0) TRY(narrow_wgmma_kernel.launch(tokens_of(part, n, left), err));
  }
  return STATUS_OK;
}

} // namespace

/* Microseconds that heads in the epilogue save: a kernel's start, and fp32 results to memory and back. */
static double heads_us(int n_out, int n_tokens) {
  const double bytes_per_us = 5e6; /* of L2 and memory together: results lie in both */
  return 3 + 8.0 * n_out * n_tokens / bytes_per_us;
}

bool awq_wgmma_makes_heads(const DeviceLinear *w, int n_tokens, bool whole, const DeviceLimits &device) {
  LinearArgs args = {};
  args.w = w, args.n_tokens = n_tokens, args.device = device, args.variant = whole ? LINEAR_WHOLE : 0;
  const double us = fastest_of(args).us;
  args.next.kind = LINEAR_NEXT_HEADS;
  return fastest_of(args).us <= us + heads_us(w->n_out, n_tokens);
}

const LinearKernel awq_wgmma_kernel = {workspace, launch_awq_wgmma, false};
