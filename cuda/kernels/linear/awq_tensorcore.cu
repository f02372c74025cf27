/* awq_tensorcore.cu - up to some hundred tokens, for experts any number, on fp16 tensor cores; weights are
 * dequantised in registers.
 *
 *     y[m][o] = sum_i (q[i][o] - z[g(i)][o]) s[g(i)][o] x[m][i]
 *
 * FP8 and FP4 have no z; the epilogue multiplies by their factors. The weights are the sixteen-row operand of
 * mma m16n8k16 and x is the eight-column one, so few tokens waste little. A lane's 16 bytes of a tile are its
 * own operand for 64 inputs (layout.cuh). Shared memory only keeps many copies in flight. lop3 and one packed
 * half instruction turn a word into q - z, exactly. ldmatrix loads x. With few tokens per stage the sums of a
 * group are scaled in fp32; with many, scaling the operand (one rounding to fp16) is cheaper.
 *
 *   block: 16 kTileRows outputs x kTokens tokens
 *   warps: kWarpsM x kWarpsN, each 16 kR outputs x 8 kN tokens
 *   stage: x [kK][kTokens][128 bytes], 16-byte vector c of token r at c ^ (r % 8): no bank conflicts
 *          weights, scales and zeros as in weight_stage.cuh
 *
 * Stream-K divides the work over all SMs. Experts (linear.h) have tiles of tokens of their own, as many as
 * their tokens need; the rows of x of a tile are looked up.
 * PRECOND  group % kBlockIn == 0 with kBlockIn = 32 or 64; FP4 and Sixteens: group % 16 == 0, kBlockIn = 64
 *          (a tile's inputs, each 16 of them with a scale); x 16-byte aligned, x_stride % 8 == 0.
 * READS    weights once for every kTokens tokens, x once for every 16 kTileRows outputs. */
#include "cuda/kernels/linear/tile_kernel.cuh"
#include "cuda/kernels/linear/weight_stage.cuh"

namespace {

/* Integers in groups of a multiple of 16 inputs but not of 32: each 16 of a tile's 64 inputs have scales and
 * zeros of their own, as with FP4. */
template <class W> struct Sixteens {
  typedef typename W::Zero Zero;
  static constexpr int kVectors = W::kVectors, kLeastBlockIn = kTileIn;
  static constexpr int kSteps = kTileIn / 16, kZeroBytes = 8 * sizeof(Zero), kZerosAt = kSteps * 32;
  static constexpr int kMetaBytes = kZerosAt + kSteps * kZeroBytes, kMetaCopies = kSteps * 3;
  static constexpr bool kAlwaysScaled = true;
  struct Meta {
    uint32_t scales[kSteps];
    Zero zeros[kSteps];
    uint32_t scale; /* 0, unused: kAlwaysScaled */
  };

  static __device__ __forceinline__ void copy_meta(const QuantView &w, int tile_row, int k, int i,
                                                   unsigned char *to) {
    const int step = i / 3;
    const size_t at = (size_t)(tile_row * w.n_groups + group_of(w, k + 16 * step)) * 8;
    if (i % 3 < 2)
      copy_async_16(to + 32 * step + 16 * (i % 3), w.scales + at + 4 * (i % 3), 16);
    else if (W::kBits == 4)
      copy_async_8(to + kZerosAt + kZeroBytes * step, (const Zero *)w.zeros + at);
    else
      copy_async_16(to + kZerosAt + kZeroBytes * step, (const Zero *)w.zeros + at, 16);
  }

  static __device__ __forceinline__ Meta staged_meta(const unsigned char *at, int g) {
    Meta meta;
#pragma unroll
    for (int j = 0; j < kSteps; j++) {
      meta.scales[j] = *(const uint32_t *)(at + 32 * j + 4 * g);
      meta.zeros[j] = *(const Zero *)(at + kZerosAt + kZeroBytes * j + sizeof(Zero) * g);
    }
    meta.scale = 0;
    return meta;
  }

  template <bool kScaled>
  static __device__ __forceinline__ void operand(const uint4 (&v)[kVectors], int j, const Meta &meta,
                                                 uint32_t (&a)[4]) {
    W::halves(v, j, W::half_zeros(meta.zeros[j]), a);
    scale_halves(meta.scales[j], a);
  }
};

template <class W_, int kR, int kWarpsM, int kWarpsN, int kN, int kK_, int kStages_, int kBlocks_,
          bool kScaled_>
struct Shape : WarpGrid<kR, kWarpsM, kWarpsN, kN> {
  typedef W_ W;
  typedef WarpGrid<kR, kWarpsM, kWarpsN, kN> Grid;
  static constexpr int kK = kK_, kStages = W::kVectors > 1 ? 3 : kStages_; /* 8 bits: twice the bytes */
  static constexpr int kBlocks = kBlocks_;                                 /* blocks per SM */
  /* True: multiplies the operand by the scales, in fp16; false: the sums, in fp32. */
  static constexpr bool kScaled = kScaled_ || W::kAlwaysScaled;
  static constexpr int kXBytes = kK * Grid::kTokens * 128;
  template <int kBlockIn> using Weights = WeightStage<W, Grid::kTileRows, kK, kBlockIn, Grid::kThreads>;
  template <int kBlockIn> static __host__ __device__ constexpr int stage_bytes() {
    return kXBytes + Weights<kBlockIn>::kBytes;
  }
  static constexpr size_t shared_bytes() { return (size_t)kStages * stage_bytes<W::kLeastBlockIn>(); }
};

struct Args {
  QuantView w;
  const __half *x;
  int x_stride;
  TileArgs<float> tiles;
  GroupedExperts experts; /* set if kExperts */
};

/* Copies x of one stage to shared memory: a thread copies the same 8 inputs of every kTokenStep-th token. */
template <class S, bool kExperts> struct XStage {
  static constexpr int kTokenVectors = S::kK * 8, kTokenStep = S::kThreads / kTokenVectors;
  static constexpr int kThreadTokens = (S::kTokens + kTokenStep - 1) / kTokenStep;
  static_assert(kTokenStep % 8 == 0 || kThreadTokens == 1, "a thread's tokens have one swizzle");
  const uint4 *from;            /* the thread's vector of row 0 of x */
  uint32_t rows[kThreadTokens]; /* distance, in vectors, from `from` to each token of the thread */
  int k, to;

  /* end: one past x's last token; experts: one past the tile's last place. Tokens from `end` on read the last
   * row again, and their sums are not stored. */
  __device__ __forceinline__ void start(const Args &a, int token0, int end, int tile_in) {
    const int token = threadIdx.x / kTokenVectors, vector = threadIdx.x % kTokenVectors;
    k = tile_in * kTileIn + vector * 8;
    from = (const uint4 *)(a.x + k);
#pragma unroll
    for (int i = 0; i < kThreadTokens; i++) {
      const int at = min(token0 + token + i * kTokenStep, end - 1);
      rows[i] = (uint32_t)(kExperts ? a.experts.row_of(at) : at) * (uint32_t)(a.x_stride / 8);
    }
    to = (vector / 8 * S::kTokens + token) * 128 + ((vector % 8) ^ (token % 8)) * 16;
  }

  __device__ __forceinline__ void load(const Args &a, unsigned char *stage) {
    const int valid = 2 * (a.w.n_in - k); /* bytes from the vector to the end of the inputs */
    if (valid >= 16)
      copy(stage, 16); /* a constant size: otherwise it costs two instructions a copy */
    else
      copy(stage, max(valid, 0));
    from += S::kK * kTileIn / 8;
    k += S::kK * kTileIn;
  }

  __device__ __forceinline__ void copy(unsigned char *stage, int bytes) const {
#pragma unroll
    for (int i = 0; i < kThreadTokens; i++)
      if (S::kTokens % kTokenStep == 0 || threadIdx.x / kTokenVectors + i * kTokenStep < S::kTokens)
        copy_async_16(stage + to + i * kTokenStep * 128, from + rows[i], bytes);
  }
};

/* Adds the products of inputs 32 h .. 32 h + 31 of a tile to sum[kR][kN]; x: address of the lane's first row
 * of ldmatrix. */
template <class S>
__device__ __forceinline__ void multiply_half_tile(const uint4 (&v)[S::kR][S::W::kVectors],
                                                   const typename S::W::Meta (&meta)[S::kR], uint32_t x,
                                                   int h, typename S::Sums &sum) {
  int lane = threadIdx.x % 32;
  uint32_t q[S::kR][2][4];
#pragma unroll
  for (int r = 0; r < S::kR; r++)
#pragma unroll
    for (int j = 0; j < 2; j++) S::W::template operand<S::kScaled>(v[r], 2 * h + j, meta[r], q[r][j]);
#pragma unroll
  for (int n = 0; n < S::kN; n++) {
    uint32_t b[4];
    ldmatrix_x4(b, x + (uint32_t)(n * 8 * 128 + ((h * 4 + lane / 8) ^ (lane % 8)) * 16));
#pragma unroll
    for (int r = 0; r < S::kR; r++) {
      mma_f16_m16n8k16(sum[r * S::kN + n], q[r][0], b[0], b[1]);
      mma_f16_m16n8k16(sum[r * S::kN + n], q[r][1], b[2], b[3]);
    }
  }
}

/* acc[kR][kN] += the scales of the rows times the sums of a group. */
template <class S>
__device__ __forceinline__ void add_scaled(const typename S::W::Meta (&meta)[S::kR],
                                           const typename S::Sums &group_sum, typename S::Sums &acc) {
#pragma unroll
  for (int r = 0; r < S::kR; r++)
#pragma unroll
    for (int n = 0; n < S::kN; n++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        acc[r * S::kN + n][i] +=
            (i < 2 ? f16_low(meta[r].scale) : f16_high(meta[r].scale)) * group_sum[r * S::kN + n][i];
}

/* Adds the products of one stage to acc[kR][kN], sums as mma_f16 leaves them. */
template <class S, int kBlockIn>
__device__ __forceinline__ void multiply_stage(const unsigned char *stage, typename S::Sums &acc) {
  typedef typename S::W W;
  typedef typename S::template Weights<kBlockIn> Weights;
  constexpr int kPerTile = kTileIn < kBlockIn ? 1 : kTileIn / kBlockIn; /* groups of a tile, at least 1 */
  const unsigned char *weights = stage + S::kXBytes;
  int lane = threadIdx.x % 32, tile_row0 = S::warp_tile_row();
  uint32_t x0 = shared_address(stage) + (uint32_t)(S::warp_token() + lane % 8) * 128;
#pragma unroll
  for (int kk = 0; kk < S::kK; kk++) {
    uint4 v[S::kR][W::kVectors];
#pragma unroll
    for (int r = 0; r < S::kR; r++) Weights::vectors(weights, tile_row0 + r, kk, lane, v[r]);
#pragma unroll
    for (int f = 0; f < kPerTile; f++) {
      typename W::Meta meta[S::kR];
#pragma unroll
      for (int r = 0; r < S::kR; r++)
        meta[r] = Weights::meta(weights, tile_row0 + r, kk * kPerTile + f, lane / 4);
      typename S::Sums group_sum = {};
#pragma unroll
      for (int h = f * 2 / kPerTile; h < (f + 1) * 2 / kPerTile; h++)
        multiply_half_tile<S>(v, meta, x0 + kk * S::kTokens * 128, h, S::kScaled ? acc : group_sum);
      if (!S::kScaled) add_scaled<S>(meta, group_sum, acc);
    }
  }
}

/* Experts: the number of tiles is known only on the device, and work.n_tiles counts tiles of outputs only. */
template <class S, int kBlockIn, bool kExperts>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks) kernel(const __grid_constant__ Args a) {
  extern __shared__ __align__(128) unsigned char shared[];
  int *const first_tile = (int *)(shared + S::kStages * S::template stage_bytes<kBlockIn>()); /* of experts */
  XStage<S, kExperts> x;
  typename S::template Weights<kBlockIn> weights;
  typename S::Sums acc = {};
  float(&flat)[S::kR * S::kN * 4] = reinterpret_cast<float(&)[S::kR * S::kN * 4]>(acc);
  stream_k::Work work = a.tiles.work;
  int n_token_tiles = a.tiles.n_token_tiles;
  QuantView w = a.w; /* experts: ends at the last tile row of the expert that is loaded */
  if constexpr (kExperts) {
    begin_overlapping();
    a.experts.count_tiles(S::kTokens, first_tile);
    n_token_tiles = first_tile[a.experts.n_experts];
    work.n_tiles *= n_token_tiles;
    /* The host launches blocks for the most tiles that there can be. n_blocks must not count blocks without a
     * step: combine() would expect parts from them. */
    work.n_blocks = min(work.n_blocks, stream_k::total_steps(work));
    if ((int)blockIdx.x >= work.n_blocks) return;
  }
  const auto tile_of = [&](const stream_k::Cursor &at) -> ExpertTile {
    if constexpr (kExperts) return a.experts.tile(at.token_tile, S::kTokens, first_tile);
    return {at.token_tile * S::kTokens, a.tiles.n_tokens, 0};
  };
  stream_k::run<S::kStages, S::template stage_bytes<kBlockIn>(), S::kThreads>(
      work, n_token_tiles, shared, a.tiles.partial, a.tiles.counters,
      [&](unsigned char *stage, const stream_k::Cursor &at, bool jumps) {
        if (jumps) {
          const int tile_row = tile_of(at).tile_row;
          if (kExperts) w.n_tiles_out = tile_row + a.experts.tile_rows;
          weights.start(w, tile_row + at.out_tile * S::kTileRows, at.step * S::kK);
        }
        weights.load(w, stage + S::kXBytes);
      },
      [&](unsigned char *stage, const stream_k::Cursor &at, bool jumps) {
        if (jumps) {
          const ExpertTile tile = tile_of(at);
          x.start(a, tile.place, tile.end, at.step * S::kK);
        }
        x.load(a, stage);
      },
      [&](const unsigned char *stage) { multiply_stage<S, kBlockIn>(stage, acc); },
      [&](const stream_k::Cursor &at, auto whole) {
        if (whole(flat)) {
          const ExpertTile tile = tile_of(at);
          S::store(kExperts ? expert_epilogue(a.tiles.out, tile.tile_row) : a.tiles.out,
                   at.out_tile * S::kTileRows, tile.place, tile.end, acc);
        }
#pragma unroll
        for (float &sum : flat) sum = 0;
      });
}

template <class S, bool kExperts> Status launch_kernel(const LinearArgs &args, const Args &a, Error *err) {
  const auto run = [&](auto kernel, size_t stage_bytes) {
    return launch(kernel, dim3((unsigned)a.tiles.work.n_blocks), S::kThreads,
                  S::kStages * stage_bytes + tile_list_bytes(args), args.stream, args.dependent, args.w->name,
                  err, a);
  };
  if constexpr (S::W::kLeastBlockIn == 32)
    if (args.w->group % 64 != 0) return run(kernel<S, 32, kExperts>, S::template stage_bytes<32>());
  return run(kernel<S, 64, kExperts>, S::template stage_bytes<64>());
}

template <class S> Status launch_experts(const LinearArgs &args, Error *err) {
  const QuantView w = quant_view(*args.w);
  const GroupedExperts experts = grouped_experts(args);
  const int n_tiles = ceil_div(experts.tile_rows, S::kTileRows), n_places = args.n_tokens * args.w->n_chosen,
            most = n_tiles * experts.most_tiles(n_places, S::kTokens), n_steps = w.n_tiles_in / S::kK;
  const int blocks = args.device.n_sms * S::kBlocks;
  const stream_k::Work work = {n_tiles, n_steps, blocks < most ? blocks : most};
  Args a = {w,
            args.x,
            args.x_stride,
            {work, n_places, 1, args.out, (float *)args.workspace, args.counters},
            experts};
  a.tiles.out.n_out = args.w->n_out / args.w->n_experts;
  return launch_kernel<S, true>(args, a, err);
}

template <class S> Status launch_shape(const LinearArgs &args, Error *err) {
  if (args.experts) return launch_experts<S>(args, err);
  /* With fewer than 256 inputs a block would only fill its pipeline. */
  constexpr int kLeastSteps = 256 / (S::kK * kTileIn);
  const QuantView w = quant_view(*args.w);
  const Args a = {w, args.x, args.x_stride,
                  tile_args<S>(args, w.n_tiles_in / S::kK, kLeastSteps, (float *)args.workspace)};
  return launch_kernel<S, false>(args, a, err);
}

template <class S> size_t workspace(const DeviceLinear *, int, const DeviceLimits &device) {
  return stream_k::partial_bytes(device.n_sms * S::kBlocks, S::kThreads, S::kR * S::kN * 4);
}

/* S: a Shape for each kind of weights, in the order of tile_weights(). */
template <class... S> constexpr TileShape shape_of(int max_tokens) {
  return {max_tokens, {S::shared_bytes()...}, {launch_shape<S>...}, {workspace<S>...}};
}

template <auto... kSizes> constexpr TileShape shape(int max_tokens) {
  return shape_of<Shape<Bits4, kSizes...>, Shape<Bits8, kSizes...>, Shape<Fp4, kSizes...>,
                  Shape<Fp8, kSizes...>, Shape<Sixteens<Bits4>, kSizes...>,
                  Shape<Sixteens<Bits8>, kSizes...>>(max_tokens);
}

/* Order and thresholds are measured (LOG.md, "Shapes of awq_tensorcore"). */
constexpr TileShape shapes[] = {
    /* kR, kWarpsM, kWarpsN, kN, kK, kStages, kBlocks, kScaled */
    shape<2, 4, 1, 1, 2, 5, 2, false>(8),      shape<2, 4, 1, 2, 2, 5, 3, false>(16),
    shape<2, 4, 1, 4, 2, 3, 3, false>(32),     shape<2, 4, 1, 6, 2, 3, 2, true>(48),
    shape<2, 4, 1, 8, 2, 3, 2, true>(64),      shape<2, 4, 1, 6, 2, 3, 2, true>(96),
    shape<2, 4, 1, 8, 2, 3, 2, true>(1 << 30),
};

} // namespace

const LinearKernel awq_tensorcore_kernel = tile_kernel<shapes>;
