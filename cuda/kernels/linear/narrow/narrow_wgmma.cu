/* narrow_wgmma.cu - up to 128 tokens on Hopper: dequantised weights as the register operand of wgmma, x by
 * tensor copies.
 *
 *     y[m][o] = sum_i (q[i][o] - z[g(i)][o]) s[g(i)][o] x[m][i]
 *
 * The cuts, the ring and the mailbox are those of wgmma_parts.cuh. A block has four warpgroups. Two of them
 * multiply each unit of 128 outputs. In matrices of few tiles a unit has 64 outputs, and one warpgroup
 * multiplies it. The warpgroups take turns at the tensor cores. They multiply by add_stages()
 * (wgmma_stages.cuh).
 *
 *   stage  x [kTiles][kTokens][128 bytes], 128-byte swizzle; then as wgmma_parts.cuh
 *
 * Weights have 4 bits, FP4 or FP8; the epilogue multiplies by the factors of FP4 and FP8. Up to 64 tokens
 * (FP8: 48) a row's bits do not depend on other rows: one tile holds all rows, and it is cut into the same
 * units.
 * PRECOND  group % kBlockIn == 0; x 16-byte aligned; x_stride % 8 == 0; at most as many blocks as SMs.
 *          kBlockIn is 16, 32, 64, or 128 in units of two tiles. FP4: kBlockIn = 64, a tile's inputs, which
 *          have four groups.
 * READS    weights once for every kTokens tokens, x once for every 64 kOutGroups outputs. */
#include <algorithm>

#include "cuda/kernels/linear/maps.cuh"
#include "cuda/kernels/linear/narrow/wgmma_parts.cuh"

namespace {

using namespace wgmma_parts;

/* Tiles of 64 inputs in a unit: two, where the ring then has enough stages. */
template <class W> constexpr int tiles_of(int tokens, int out_groups) {
  return (tokens > 64 && out_groups == 1) || (tokens >= 64 && W::kVectors > 1) ? 1 : 2;
}

/* kBatch steps of 16 inputs are dequantised at a time (add_stages()). With more than 64 tokens registers
 * suffice for one step only. */
template <class W, int kTokens, int kBlockIn, int kOutGroups>
struct Shape : ShapeOf<W, kTokens, tiles_of<W>(kTokens, kOutGroups) * kTileIn,
                       tiles_of<W>(kTokens, kOutGroups) * kTileIn / kBlockIn, kOutGroups, 4 / kOutGroups,
                       tiles_of<W>(kTokens, kOutGroups) * kTokens * 128, kTokens <= 32 ? 176 : 224> {
  static constexpr int kConsumers = 512;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL /* nvcc refuses constants that the code for another chip does not use */
  static constexpr int kTiles = tiles_of<W>(kTokens, kOutGroups), kBatch = kTokens > 64 ? 1 : 2;
#endif
  /* The sums of many tokens need registers. So the loaders are a whole warpgroup, which gives up some of its
   * registers. */
  static constexpr bool kMovesRegisters = kTokens >= 48;
  static constexpr int kThreads = kConsumers + (kMovesRegisters ? 128 : 96);

  static __device__ __forceinline__ int first_token(int n_tokens, int token_tile) {
    return first_of_tile(n_tokens, token_tile, kTokens);
  }
};

struct Args : PartArgs {
  CUtensorMap x; /* boxes of 64 inputs of box_tokens tokens */
  int box_tokens;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* State of a consumer thread. */
template <class S> struct Consumer : StageCursor<S, S::kInGroups> {
  const uint32_t weights;            /* offset of the lane's weights in a stage */
  const unsigned char *const groups; /* scales and zeros in a stage, as add_stages() takes them */
  float y[S::kSumFloats];            /* as store_fragments() takes it */

  __device__ __forceinline__ Consumer(const Ring &ring, int first_slot)
      : StageCursor<S, S::kInGroups>(ring, first_slot),
        weights(opaque((int)(S::kWAt + threadIdx.x % S::kGroupThreads * 16))),
        groups(ring.stages + (int)opaque((int)(S::kGroupsAt + tile_row<S>() * S::kParts * S::W::kMetaBytes -
                                               shared_address(ring.stages)))) {}

  template <int kN> static __device__ __forceinline__ void normalise(float *, int) {}

  /* y = the sums over this thread's next n units. */
  __device__ __forceinline__ void multiply(int n) {
#pragma unroll
    for (int i = 0; i < S::kSumFloats; i++) y[i] = 0;
    add_stages<S, S::kTiles, S::kBlockIn, S::kTileRows * 512, S::kTokens>(y, *this, weights, groups, n);
  }
};

#endif

template <class S> __global__ void __launch_bounds__(S::kThreads, 1) kernel(const __grid_constant__ Args a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  run_block<S, Consumer<S>>(
      a, &a.x,
      [&](const Part &part) {
        const int token0 = S::first_token(a.n_tokens, token_tile_of(a, part.tile));
        return [&a, token0](int unit, unsigned char *stage, uint64_t *full) {
          barrier_expect(full, S::kTiles * a.box_tokens * 128);
#pragma unroll
          for (int i = 0; i < S::kTiles; i++)
            copy_box(stage + i * S::kTokens * 128, &a.x, full, unit * S::kUnit + i * kTileIn, token0);
        };
      },
      [](Consumer<S> &) {},
      [&](const Ring &, const Consumer<S> &c, float(&y)[4 * S::kMine], const Part &part, int group) {
        finish<S>(a, c, y, part, group);
      });
#endif
}

template <class S> Status launch_shape(const LinearArgs &args, Error *err) {
  Args a = {};
  TRY(part_args<S>(args, &a, err));
  a.box_tokens = std::min(ceil_div(args.n_tokens, 8) * 8, S::kTokens);
  TRY(map_x(args, args.n_tokens, a.box_tokens, &a.x, err));
  return launch_resident(kernel<S>, dim3((unsigned)a.cut.n_blocks), S::kThreads, S::kSharedBytes, args.stream,
                         args.dependent, args.w->name, err, a);
}

template <int kTokens, int kOutGroups> Status launch_weights(const LinearArgs &args, Error *err) {
  switch (args.w->type) {
  case WEIGHT_FP4: return launch_shape<Shape<Fp4, kTokens, 64, kOutGroups>>(args, err);
  case WEIGHT_FP8: return launch_shape<Shape<Fp8, kTokens, 64, kOutGroups>>(args, err);
  default: break;
  }
  constexpr int kMostBlockIn = tiles_of<Bits4>(kTokens, kOutGroups) * kTileIn;
  if (args.w->group % kMostBlockIn == 0)
    return launch_shape<Shape<Bits4, kTokens, kMostBlockIn, kOutGroups>>(args, err);
  if (args.w->group % 64 == 0) return launch_shape<Shape<Bits4, kTokens, 64, kOutGroups>>(args, err);
  return args.w->group % 32 == 0 ? launch_shape<Shape<Bits4, kTokens, 32, kOutGroups>>(args, err)
                                 : launch_shape<Shape<Bits4, kTokens, 16, kOutGroups>>(args, err);
}

typedef Status (*Launch)(const LinearArgs &args, Error *err);

struct TokenShape {
  int tokens;
  Launch launch[2]; /* tiles of 64 and of 128 outputs */
};

template <int kTokens> constexpr TokenShape shape() {
  return {kTokens, {launch_weights<kTokens, 1>, launch_weights<kTokens, 2>}};
}

constexpr TokenShape shapes[] = {shape<16>(), shape<32>(), shape<48>(),
                                 shape<64>(), shape<96>(), shape<128>()};
constexpr int kShapes = sizeof shapes / sizeof *shapes;

/* Replaces a tile of 96 or 128 tokens by two of 48 or 64 where these are faster (LOG.md, "Two tiles of
 * tokens"): with 4 bits in groups of a multiple of 128, and with FP4 above 96 tokens. Tiles of 128 outputs
 * must be fewer than SMs, and each new tile must get its own SM. *wide: tiles of 128 outputs, else of 64. */
void divide_tokens(const LinearArgs &args, const TokenShape **shape, bool *wide) {
  const TokenShape *s = *shape;
  const int n_wide = ceil_div(args.w->n_out, 128), n_sms = args.device.n_sms;
  const bool of_128 = 3 * n_wide >= n_sms; /* 2 n_wide blocks on two thirds of the SMs are enough */
  const bool fits =
      args.w->type == WEIGHT_FP4 ? s->tokens > 96 : args.w->type == WEIGHT_AWQ4 && args.w->group % 128 == 0;
  if (*wide || !fits || s->tokens <= 64 || s->tokens < args.n_tokens) return;
  if (2 * (of_128 ? n_wide : ceil_div(args.w->n_out, 64)) > n_sms) return;
  while (2 * s[-1].tokens >= args.n_tokens) s--;
  *shape = s, *wide = of_128;
}

/* Launches shape `variant`, counted from 1: for each number of tokens, tiles of 64 outputs, then of 128. 0:
 * the smallest shape that holds all tokens, or the largest if none does, unless divide_tokens() replaces it.
 * Its tiles have 128 outputs if there are at least as many such tiles as SMs, else 64. */
Status launch_narrow_wgmma(const LinearArgs &args, Error *err) {
  TRY(check_variant(args, 2 * kShapes, err));
  const TokenShape *s = shapes;
  while (s + 1 < shapes + kShapes && s->tokens < args.n_tokens) s++;
  bool wide = ceil_div(args.w->n_out, 128) * ceil_div(args.n_tokens, s->tokens) >= args.device.n_sms;
  divide_tokens(args, &s, &wide);
  if (args.variant > 0) s = &shapes[(args.variant - 1) / 2], wide = args.variant % 2 == 0;
  return s->launch[wide](args, err);
}

} // namespace

const LinearKernel narrow_wgmma_kernel = {NULL, launch_narrow_wgmma, false};
