/* chain_mma.cu - up to 32 tokens on Hopper, for LINEAR_INVARIANT: each output is summed in one fixed chain,
 * so that a token's results do not depend on how many tokens there are.
 *
 *     y[m][o] = sum_i (q[i][o] - z[g(i)][o]) s[g(i)][o] x[m][i]
 *
 * A warp has 8 outputs of all tokens. It adds their products by mma m16n8k16, from the first input to the
 * last, 16 inputs at a time. For more tokens awq_wgmma in whole tiles computes the same chain: mma and wgmma
 * give the same bits, whichever operand the weights are. (narrow_wgmma is faster, because it divides the
 * inputs among warps and blocks.)
 *
 * A chain is bound by latency: each product waits for the one before and for its weights to be dequantised.
 * So x is operand a (16 tokens) and the weights are operand b (8 outputs). A warp then dequantises half as
 * many weights as with 16 outputs, and there are twice as many warps. Two warps share a tile row: one has
 * rows 0 .. 7, the other rows 8 .. 15. At the end they exchange sums through shared memory, because the
 * epilogue wants rows g and g + 8 (gate and up of an output) in one lane.
 *
 *   stage  of 256 inputs: x [4][tokens][128 bytes], 128-byte swizzle; weights [rows][4 tiles]; scales and
 *          zeros [rows][kParts]. The last stage can be partly filled; past n_in x is 0
 *
 * The ring; t is the turn of the stage's slot (ptx/cluster.cuh):
 *
 *   a thread           wait empty, parity (t + 1) % 2 -> x, weights: 1 arrival, their bytes --+
 *   a warp             wait empty, parity (t + 1) % 2 -> scales, zeros: an arrival a lane ----+-> full: 33
 *                           ^                                                                     |
 *   2 * rows warps          +--- empty: 1 a warp <--- the stage is in registers <--- wait full, parity t % 2
 *
 * The weights of the first turn come before wait_for_previous(), x after it.
 *
 * Weights have 4 bits, FP4 or FP8; the epilogue multiplies by the factors of FP4 and FP8.
 * PRECOND  n_tokens <= CHAIN_TOKENS; at most CHAIN_ROWS tile rows for each SM; group % 32 == 0 (4 bits) or
 *          group % 64 == 0 (FP8); x 16-byte aligned, x_stride % 8 == 0.
 * READS    weights once, x once in each block. */
#include <algorithm>

#include "cuda/kernels/linear/maps.cuh"
#include "cuda/kernels/linear/weight_stage.cuh"
#include "cuda/kernels/ptx/ring.cuh"
#include "cuda/kernels/ptx/wgmma.cuh"

namespace {

constexpr int kUnitTiles = 4, kMostStages = 12;
constexpr int kMostThreads = 32 * (2 * CHAIN_ROWS + 2);

template <class W_, int kGroups_, int kBlockIn_> struct Shape {
  typedef W_ W;
  static constexpr int kGroups = kGroups_, kTokens = 16 * kGroups, kBlockIn = kBlockIn_;
  static constexpr int kParts = kUnitTiles * kTileIn / kBlockIn; /* scales of a row in a stage */
  static constexpr int kXBytes = kUnitTiles * kTokens * 128;
  static constexpr int kTileBytes = W::kVectors * 512, kRowBytes = kUnitTiles * kTileBytes;
  static constexpr int kExchange = CHAIN_ROWS * kTileOut * kTokens; /* sums of a block */
  /* Shared memory left for stages on sm_90: 227 KB less static memory and the 1,024 bytes that align them. */
  static constexpr int kMostBytes = 227 * 1024 - 16 * kMostStages - kExchange * 4 - 1024;
};

struct Args {
  CUtensorMap tiles, x; /* tiles: boxes of a stage's weights; x: boxes of 64 inputs of all tokens */
  QuantView w;
  int n_tokens, rows, n_stages, stage_bytes; /* rows: tile rows of a block */
  Epilogue out;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

__device__ __forceinline__ int n_steps(const Args &a) {
  return (a.w.n_tiles_in + kUnitTiles - 1) / kUnitTiles;
}

/* One thread loads weights and x. Weights of the first stages come while the kernel before this one runs. */
template <class S> __device__ __forceinline__ void load_tiles(const Args &a, const Ring &ring) {
  const int bytes = kUnitTiles * a.n_tokens * 128 + a.rows * S::kRowBytes,
            n_early = min(a.n_stages, n_steps(a));
  const auto load_weights = [&](unsigned char *stage, uint64_t *full, int step) {
    barrier_expect(full, bytes);
    copy_box(stage + S::kXBytes, &a.tiles, full, 0, step * kUnitTiles * S::W::kVectors,
             (int)blockIdx.x * a.rows);
  };
  for (int step = 0; step < n_early; step++) load_weights(ring.stage(step), ring.full + step, step);
  prefetch_map(&a.x);
  wait_for_previous();
  RingProducer producer(ring);
  for (int step = 0; step < n_steps(a); step++)
    producer.fill([&](unsigned char *stage, uint64_t *full) {
      if (step >= n_early) load_weights(stage, full, step);
#pragma unroll
      for (int i = 0; i < kUnitTiles; i++)
        copy_box(stage + i * S::kTokens * 128, &a.x, full, (step * kUnitTiles + i) * kTileIn, 0);
    });
}

/* A warp loads scales and zeros. Past the matrix it loads those of the last tile row again; the results are
 * dropped. */
template <class S> __device__ __forceinline__ void load_groups(const Args &a, const Ring &ring) {
  typedef typename S::W W;
  constexpr int kCopies = S::kParts * W::kMetaCopies; /* of a tile row */
  RingProducer producer(ring);
  for (int step = 0; step < n_steps(a); step++)
    producer.fill([&](unsigned char *stage, uint64_t *full) {
      unsigned char *const to = stage + S::kXBytes + a.rows * S::kRowBytes;
      for (int c = threadIdx.x % 32; c < a.rows * kCopies; c += 32) {
        const int row = (int)blockIdx.x * a.rows + c / kCopies, part = c / W::kMetaCopies % S::kParts;
        const int k = min(step * kUnitTiles * kTileIn + part * S::kBlockIn, a.w.n_tiles_in * kTileIn - 1);
        copy_meta<W>(a.w, row, k, c % W::kMetaCopies, to + c / W::kMetaCopies * W::kMetaBytes);
      }
      barrier_arrive_after_copies(full);
    });
}

/* Scales and zeros as they lie in a stage. Zeros of integers become halves only where they are used: a
 * conversion right after the read would stall the warp. */
template <class W> struct Staged {
  typename W::Meta meta;
  __device__ __forceinline__ void read(const unsigned char *at, int g) { meta = W::staged_meta(at, g); }
  __device__ __forceinline__ typename W::Meta unpacked() const { return meta; }
};
template <> struct Staged<Bits4> {
  uint32_t scale, zero;
  __device__ __forceinline__ void read(const unsigned char *at, int g) {
    scale = *(const uint32_t *)(at + 4 * g);
    zero = at[32 + g];
  }
  __device__ __forceinline__ GroupMeta unpacked() const { return {scale, Bits4::half_zeros(zero)}; }
};

/* A lane's weights of 64 inputs, and its operands a of four products for each group of 16 tokens. */
template <class S> struct Tile {
  typedef typename S::W W;
  uint4 v[W::kVectors];
  uint32_t x[S::kGroups][4][4];

  /* weights, x_at: the lane's addresses in shared memory. */
  __device__ __forceinline__ void read(uint32_t weights, uint32_t x_at) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < W::kVectors; j++) v[j] = load_shared_16(weights + j * 512);
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
      for (int m = 0; m < S::kGroups; m++)
        ldmatrix_x4(x[m][j], x_at + (uint32_t)(m * 16 * 128 + ((2 * j + lane / 16) ^ (lane % 8)) * 16));
  }

  /* One word of each load, combined. Code that depends on it cannot come before any of the loads. */
  __device__ __forceinline__ uint32_t some_bits() const {
    uint32_t bits = 0;
#pragma unroll
    for (int j = 0; j < W::kVectors; j++) bits ^= v[j].x;
#pragma unroll
    for (int m = 0; m < S::kGroups; m++)
#pragma unroll
      for (int j = 0; j < 4; j++) bits ^= x[m][j][0];
    return bits;
  }

  /* sums += x times rows 0 .. 7 (kHalf = 0) or 8 .. 15 of the tile. i: the tile's number in its stage. */
  template <int kHalf>
  __device__ __forceinline__ void multiply(float (&sums)[S::kGroups][4], int i,
                                           const typename W::Meta (&meta)[S::kParts]) const {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      uint32_t q[4]; /* two are used; the compiler drops the others */
      W::template operand<true>(v, j, meta[(i * kTileIn + j * 16) / S::kBlockIn], q);
#pragma unroll
      for (int m = 0; m < S::kGroups; m++) mma_f16_m16n8k16(sums[m], x[m][j], q[kHalf], q[2 + kHalf]);
    }
  }
};

/* A warp multiplies half of a tile row. Each tile is read while the one before is multiplied. After the last
 * stage its first tile is read again: without a branch the compiler overlaps more. */
template <class S, int kHalf>
__device__ __forceinline__ void multiply_half(const Args &a, const Ring &ring, int row,
                                              float (&sums)[S::kGroups][4]) {
  typedef typename S::W W;
  const int lane = threadIdx.x % 32, n = n_steps(a);
  const uint32_t stages_at = shared_address(ring.stages), x_at = stages_at + lane % 16 * 128,
                 weights = stages_at + S::kXBytes + row * S::kRowBytes + lane * 16;
  const uint32_t full_at = opaque((int)shared_address(ring.full)),
                 empty_at = opaque((int)shared_address(ring.empty));
  const unsigned char *metas =
      ring.stages + S::kXBytes + a.rows * S::kRowBytes + row * S::kParts * W::kMetaBytes;
  Tile<S> tile[2];
  Staged<W> staged[S::kParts];
  RingCursor from = {};
  const auto read_first = [&] {
    const int at = from.slot * a.stage_bytes;
    barrier_wait(full_at + from.slot * 8, from.parity);
    tile[0].read(weights + at, x_at + at);
#pragma unroll
    for (int p = 0; p < S::kParts; p++) staged[p].read(metas + at + p * W::kMetaBytes, lane / 4);
    __syncwarp(); /* keeps the reads here: the compiler would move them to where they are used */
  };
  read_first();
  for (int step = 0; step < n; step++) {
    const uint32_t freed = empty_at + from.slot * 8;
    const int at = from.slot * a.stage_bytes;
    typename W::Meta meta[S::kParts];
#pragma unroll
    for (int p = 0; p < S::kParts; p++) meta[p] = staged[p].unpacked();
#pragma unroll
    for (int i = 0; i < kUnitTiles; i++) {
      if (i + 1 < kUnitTiles) {
        tile[(i + 1) % 2].read(weights + at + (i + 1) * S::kTileBytes,
                               x_at + at + (i + 1) * S::kTokens * 128);
        __syncwarp();
      } else {
        if (step + 1 < n) from.advance(a.n_stages);
        read_first();
      }
      tile[i % 2].template multiply<kHalf>(sums, i, meta);
    }
    barrier_arrive_after_reads(freed, lane == 0, tile[(kUnitTiles - 1) % 2].some_bits());
  }
}

/* Multiplies the warp's half of a tile row. Then one of the two warps stores the results of the first 16
 * tokens, the other those of the next 16. store_fragments() wants rows g and g + 8 of a tile in a lane. */
template <class S>
__device__ __forceinline__ void multiply_row(const Args &a, const Ring &ring, int row, int half,
                                             float *exchange) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  float sums[S::kGroups][4] = {};
  if (half == 0)
    multiply_half<S, 0>(a, ring, row, sums);
  else
    multiply_half<S, 1>(a, ring, row, sums);
  float *const of_row = exchange + row * kTileOut * S::kTokens; /* [output][token] */
#pragma unroll
  for (int m = 0; m < S::kGroups; m++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      of_row[(half * 8 + 2 * t + i % 2) * S::kTokens + m * 16 + i / 2 * 8 + g] = sums[m][i];
  wait_for_previous();
  __syncthreads();
  if (half >= S::kGroups) return;
  float y[8];
#pragma unroll
  for (int n = 0; n < 2; n++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      y[4 * n + i] = of_row[(i / 2 * 8 + g) * S::kTokens + half * 16 + n * 8 + 2 * t + i % 2];
  store_fragments<2>(a.out, (int)blockIdx.x * a.rows + row, half * 16, 0, a.n_tokens, y);
}

#endif

template <class S> __global__ void __launch_bounds__(kMostThreads, 1) kernel(const __grid_constant__ Args a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char shared[];
  __shared__ uint64_t full[kMostStages], empty[kMostStages];
  __shared__ float exchange[S::kExchange];
  const Ring ring = {align_for_copies(shared), full, empty, a.n_stages, a.stage_bytes};
  ring.open(33, 2 * a.rows); /* 33 arrivals: loads of x and weights, and copies by 32 lanes */
  dependents_may_start();
  const int warp = (int)threadIdx.x / 32, loader = warp - 2 * a.rows;
  if (loader < 0) {
    multiply_row<S>(a, ring, warp / 2, warp % 2, exchange);
  } else {
    if (loader == 1)
      load_groups<S>(a, ring);
    else if (threadIdx.x % 32 == 0)
      load_tiles<S>(a, ring);
    __syncwarp();
    __syncthreads(); /* with the warps that multiply */
  }
#endif
}

template <class S> Status launch_shape(const LinearArgs &args, Error *err) {
  typedef typename S::W W;
  Args a = {};
  a.w = quant_view(*args.w);
  a.n_tokens = args.n_tokens;
  a.out = args.out;
  a.rows = ceil_div(a.w.n_tiles_out, args.device.n_sms);
  a.stage_bytes = (int)align_up(S::kXBytes + a.rows * (S::kRowBytes + S::kParts * W::kMetaBytes), 1024);
  a.n_stages = std::min(kMostStages, S::kMostBytes / a.stage_bytes);
  TRY(map_tiles(args, W::kVectors, kUnitTiles, a.rows, &a.tiles, err));
  TRY(map_x(args, args.n_tokens, args.n_tokens, &a.x, err));
  return launch(kernel<S>, dim3((unsigned)ceil_div(a.w.n_tiles_out, a.rows)), 32 * (2 * a.rows + 2),
                (size_t)a.n_stages * a.stage_bytes + 1024, args.stream, args.dependent, args.w->name, err, a);
}

template <int kGroups> Status launch_weights(const LinearArgs &args, Error *err) {
  switch (args.w->type) {
  case WEIGHT_FP4: return launch_shape<Shape<Fp4, kGroups, 64>>(args, err);
  case WEIGHT_FP8: return launch_shape<Shape<Fp8, kGroups, 64>>(args, err);
  default:
    return args.w->group % 128 == 0 ? launch_shape<Shape<Bits4, kGroups, 128>>(args, err)
                                    : launch_shape<Shape<Bits4, kGroups, 32>>(args, err);
  }
}

Status launch_chain_mma(const LinearArgs &args, Error *err) {
  TRY(check_variant(args, 0, err));
  return args.n_tokens <= 16 ? launch_weights<1>(args, err) : launch_weights<2>(args, err);
}

} // namespace

const LinearKernel chain_mma_kernel = {NULL, launch_chain_mma, false};
