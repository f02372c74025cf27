/* experts_mma.cu - experts of few rows each on Hopper: dequantised weights as operand a of mma m16n8k16.
 *
 *     y[p][o] = sum_i (q[i][o] - z[g(i)][o]) s[g(i)][o] x[p][i]       p: places of the expert of output o
 *
 * A product of 16 outputs costs 8.6 cycles for each 8 rows; wgmma takes 32 cycles for up to 64 rows. So
 * experts of few rows (fewest_rows() in awq_wgmma.cu) are faster here. Their bits are those of awq_wgmma:
 * both kernels add the same operands from the first input to the last, 16 inputs at a time. A warp has kRows
 * tile rows by all rows of its tile.
 *
 *   stage  x [kK][kMost][128 bytes], 128-byte swizzle; weights [kTileRows][kK][tile]; scales and zeros
 *          [kTileRows][kParts]
 *
 * The ring; t is the turn of the stage's slot (ptx/cluster.cuh):
 *
 *   a thread      wait empty, parity (t + 1) % 2 -> x, weights: 1 arrival, their bytes --+
 *   a warp        wait empty, parity (t + 1) % 2 -> scales, zeros: an arrival a lane ----+-> full: 33
 *                      ^                                                                     |
 *   kWarps warps       +--- empty: 1 a warp <--- products <--- wait full, parity t % 2 <-----+
 *
 * Blocks take the tiles of expert_tiles.cuh in turn; the ring does not drain between them.
 *
 * PRECOND  as awq_wgmma; x has a row for each place.
 * READS    weights once for each kMost rows of an expert, x once for each tile of outputs. */
#include <algorithm>
#include <type_traits>

#include "cuda/kernels/linear/maps.cuh"
#include "cuda/kernels/linear/weight_stage.cuh"
#include "cuda/kernels/linear/wide/expert_tiles.cuh"
#include "cuda/kernels/linear/wide/tile_end.cuh"
#include "cuda/kernels/ptx/ring.cuh"
#include "cuda/kernels/ptx/wgmma.cuh"

namespace {

/* kWarps: warps that multiply. kBlockIn: inputs that share a scale (FP4: 64, with four scales). */
template <class W_, int kBlockIn_, int kWarps_> struct Shape {
  typedef W_ W;
  static constexpr int kMost = 48, kRows = 2; /* kMost: rows of a tile; kRows: tile rows of a warp */
  typedef ExpertTiles<kMost, 8> Tiles;
  static constexpr int kBlockIn = kBlockIn_, kWarps = kWarps_, kTileRows = kRows * kWarps;
  static constexpr int kK = W::kVectors > 1 ? 1 : 2; /* tiles of 64 inputs in a stage */
  static constexpr int kParts = kK * kTileIn / kBlockIn, kTileBytes = 512 * W::kVectors;
  static_assert(kParts * kBlockIn == kK * kTileIn, "a stage has whole blocks of inputs");
  static constexpr int kWeightsAt = kK * kMost * 128, kWBytes = kTileRows * kK * kTileBytes,
                       kGroupsAt = kWeightsAt + kWBytes;
  static constexpr int kStageBytes = (kGroupsAt + kTileRows * kParts * W::kMetaBytes + 1023) / 1024 * 1024;
  static constexpr int kStages = (226 * 1024 - 1024 - (int)sizeof(Tiles)) / kStageBytes; /* on sm_90 */
  static_assert(kStages > 1, "a stage is loaded while others are read");
  static constexpr int kThreads = 32 * kWarps + 128;
  static constexpr size_t kSharedBytes = (size_t)kStages * kStageBytes + 1024; /* 1024: to align the stages */
};

template <class S> struct Args {
  CUtensorMap tiles, x[S::Tiles::kHeights]; /* x: a map for each height of a tile, boxes of 64 inputs */
  QuantView w;
  int across; /* tiles of outputs of an expert */
  Epilogue out;
  GroupedExperts experts;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Rows `place` .. place + n_rows - 1 of x and y by kTileRows tile rows of an expert, from number `out` on.
 * The expert's first tile row in the matrix is first_row. */
struct Tile {
  int place, n_rows, out, first_row;
};

/* Calls work(tile) for the block's tiles in order. For all lanes of a warp. */
template <class S, class Work>
__device__ __forceinline__ void for_each_tile(const Args<S> &a, const typename S::Tiles &list, Work work) {
  const int tiles = (int)gridDim.x / a.across, outs = (int)gridDim.x % a.across;
  int place = 0, tile = (int)blockIdx.x / a.across, out = (int)blockIdx.x % a.across;
  while (tile < list.n_tiles) {
    place = list.place_of(tile, place);
    const ExpertTile rows = list.tile(a.experts, tile, place);
    work(Tile{rows.place, rows.end - rows.place, out * S::kTileRows, rows.tile_row});
    tile += tiles, out += outs; /* gridDim.x further, without dividing again */
    if (out >= a.across) out -= a.across, tile++;
  }
}

template <class S> __device__ __forceinline__ int n_steps(const Args<S> &a) {
  return a.w.n_tiles_in / S::kK;
}

/* A warp loads weights and x. Results of tile rows past the expert are dropped. */
template <class S>
__device__ __forceinline__ void load_tiles(const Args<S> &a, const typename S::Tiles &list,
                                           const Ring &ring) {
  RingProducer producer(ring);
  for_each_tile<S>(a, list, [&](const Tile &tile) {
    const int bytes = S::kWBytes + S::kK * 128 * S::Tiles::height(tile.n_rows);
    const CUtensorMap *const x = a.x + S::Tiles::which_height(tile.n_rows);
    for (int step = 0; step < n_steps<S>(a); step++)
      producer.fill([&](unsigned char *stage, uint64_t *full) {
        if (threadIdx.x % 32 == 0) {
          barrier_expect(full, bytes);
          copy_box(stage + S::kWeightsAt, &a.tiles, full, 0, step * S::kK * S::W::kVectors,
                   tile.first_row + tile.out);
#pragma unroll
          for (int kk = 0; kk < S::kK; kk++)
            copy_box(stage + kk * S::kMost * 128, x, full, (step * S::kK + kk) * kTileIn, tile.place);
        }
        __syncwarp();
      });
  });
}

/* A warp loads scales and zeros. Past the expert it loads those of the last tile row again. */
template <class S>
__device__ __forceinline__ void load_groups(const Args<S> &a, const typename S::Tiles &list,
                                            const Ring &ring) {
  RingProducer producer(ring);
  for_each_tile<S>(a, list, [&](const Tile &tile) {
    const int last = tile.first_row + a.experts.tile_rows - 1;
    for (int step = 0; step < n_steps<S>(a); step++)
      producer.fill([&](unsigned char *stage, uint64_t *full) {
        copy_groups<typename S::W, S::kTileRows, S::kParts, S::kBlockIn>(
            a.w, tile.first_row + tile.out, last, step * S::kK * kTileIn, stage + S::kGroupsAt);
        barrier_arrive_after_copies(full);
      });
  });
}

/* acc += the products of n steps with the tile's first 8 kT rows, fragments as mma leaves them. */
template <class S, int kT>
__device__ __forceinline__ void add_steps(float (&acc)[S::kRows][4 * kT], const Ring &ring, RingCursor &at,
                                          int n) {
  typedef typename S::W W;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4;
  const uint32_t stages = opaque((int)shared_address(ring.stages)),
                 full = opaque((int)shared_address(ring.full)),
                 weights = opaque(S::kWeightsAt + warp * S::kRows * S::kK * S::kTileBytes + lane * 16),
                 /* the lane's offsets of x for ldmatrix: of the first and the second 32 inputs of a tile */
      x[2] = {(uint32_t)opaque(lane % 8 * 128 + (lane / 8 ^ lane % 8) * 16),
              (uint32_t)opaque(lane % 8 * 128 + ((4 + lane / 8) ^ lane % 8) * 16)};
  const unsigned char *const groups =
      ring.stages + opaque(S::kGroupsAt + warp * S::kRows * S::kParts * W::kMetaBytes);
#pragma unroll 1
  for (int step = 0; step < n; step++) {
    const int stage = at.slot * S::kStageBytes;
    uint4 v[S::kRows][S::kK][W::kVectors];
    typename W::Meta meta[S::kRows][S::kParts];
    barrier_wait(full + at.slot * 8, at.parity);
#pragma unroll
    for (int r = 0; r < S::kRows; r++)
#pragma unroll
      for (int kk = 0; kk < S::kK; kk++)
#pragma unroll
        for (int i = 0; i < W::kVectors; i++)
          v[r][kk][i] = load_shared_16(stages + stage + weights + (r * S::kK + kk) * S::kTileBytes + i * 512);
#pragma unroll
    for (int r = 0; r < S::kRows; r++)
#pragma unroll
      for (int p = 0; p < S::kParts; p++)
        meta[r][p] = W::staged_meta(groups + stage + (r * S::kParts + p) * W::kMetaBytes, g);
    uint32_t read = 0; /* combines results of the last loads */
#pragma unroll
    for (int h = 0; h < 2 * S::kK; h++) { /* 32 inputs */
      uint32_t b[kT][4];
#pragma unroll
      for (int t = 0; t < kT; t++)
        ldmatrix_x4(b[t], stages + stage + x[h % 2] + h / 2 * S::kMost * 128 + t * 1024);
#pragma unroll
      for (int r = 0; r < S::kRows; r++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
          uint32_t q[4];
          W::template operand<true>(v[r][h / 2], 2 * (h % 2) + j, meta[r][(32 * h + 16 * j) / S::kBlockIn],
                                    q);
#pragma unroll
          for (int t = 0; t < kT; t++)
            mma_f16_m16n8k16(reinterpret_cast<float(&)[4]>(acc[r][4 * t]), q, b[t][2 * j], b[t][2 * j + 1]);
        }
      if (h + 1 < 2 * S::kK) continue;
#pragma unroll
      for (int t = 0; t < kT; t++) read ^= b[t][3];
    }
    barrier_arrive_after_reads(full + (S::kStages + at.slot) * 8, lane == 0, read);
    at.advance(S::kStages);
  }
}

/* Applies the epilogue to a warp's sums of a tile, and stores them. row: the expert's output that the first
 * sum is of. */
template <class S, int kT>
__device__ __forceinline__ void store_tile(const Epilogue &out, const Tile &tile, int row,
                                           float (&acc)[S::kRows][4 * kT]) {
  const wgmma_tiles::Place place = {out, false, 0, tile.place, 0, tile.n_rows};
  const int g = threadIdx.x % 32 / 4, token = threadIdx.x % 4 * 2;
  const auto multiply_gates = [&](auto activation) {
#pragma unroll
    for (int r = 0; r < S::kRows; r++)
      wgmma_tiles::multiply_gates<decltype(activation)::value, kT>(place, 0, acc[r]);
  };
#pragma unroll
  for (int r = 0; r < S::kRows; r++)
    if (out.factors || out.bias)
      factors_and_biases<kT>(out, row + r * kTileOut + g, place.token0, place.token0 + place.end, acc[r]);
  const bool gated = out.kind == LINEAR_SWIGLU_F16, ungated = out.gated == ACTIVATION_RELU;
  if (gated && out.gated == ACTIVATION_SILU)
    multiply_gates(std::integral_constant<Activation, ACTIVATION_SILU>());
  else if (gated && out.gated == ACTIVATION_GELU_TANH)
    multiply_gates(std::integral_constant<Activation, ACTIVATION_GELU_TANH>());
  else if (gated && out.gated == ACTIVATION_LIMITED)
    multiply_gates(std::integral_constant<Activation, ACTIVATION_LIMITED>());
  else if (ungated)
    multiply_gates(std::integral_constant<Activation, ACTIVATION_RELU>());
  else if (gated)
    multiply_gates(std::integral_constant<Activation, ACTIVATION_CLAMPED>());
#pragma unroll
  for (int r = 0; r < S::kRows; r++, row += kTileOut) {
    if (row >= out.n_out) break;
#pragma unroll
    for (int i = 0; i < 2 * kT; i++) {
      const int own = token + i / 2 * 8 + i % 2;
      const size_t at = (size_t)(tile.place + own) * out.stride;
      const float *const sum = acc[r] + i / 2 * 4 + i % 2;
      if (own >= tile.n_rows) continue;
      if (ungated) {
        ((__half *)out.y)[at + row + g] = clamp_half(sum[0]);
        ((__half *)out.y)[at + row + g + 8] = clamp_half(sum[2]);
      } else if (gated) {
        ((__half *)out.y)[at + row / 2 + g] = clamp_half(sum[0]);
      } else {
        ((float *)out.y)[at + row + g] = sum[0];
        ((float *)out.y)[at + row + g + 8] = sum[2];
      }
    }
  }
}

/* Multiplies and stores a tile of at most 8 kT rows. */
template <class S, int kT>
__device__ __forceinline__ void multiply_tile(const Args<S> &a, const Ring &ring, RingCursor &at,
                                              const Tile &tile) {
  if constexpr (kT > 1)
    if (tile.n_rows <= 8 * (kT - 1)) return multiply_tile<S, kT - 1>(a, ring, at, tile);
  float acc[S::kRows][4 * kT] = {};
  add_steps<S, kT>(acc, ring, at, n_steps<S>(a));
  const int row = (tile.out + (int)threadIdx.x / 32 * S::kRows) * kTileOut;
  store_tile<S, kT>(expert_epilogue(a.out, tile.first_row), tile, row, acc);
}

#endif

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1) kernel(const __grid_constant__ Args<S> a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char shared[];
  __shared__ uint64_t full[2 * S::kStages];
  __shared__ typename S::Tiles list;
  static_assert(16 * LINEAR_MAX_EXPERTS <= S::kStages * S::kStageBytes, "the list's scratch memory");
  const Ring ring = {align_for_copies(shared), full, full + S::kStages, S::kStages, S::kStageBytes};
  ring.open(33, S::kWarps);
  begin_overlapping();
  list.fill(a.experts, ring.stages);
  constexpr bool kMoves = S::kWarps == 16; /* registers go from loading warps to the others */
  const int warp = threadIdx.x / 32;
  if (warp >= S::kWarps) {
    if constexpr (kMoves) registers_down_to<32>();
    if (warp == S::kWarps)
      load_tiles<S>(a, list, ring);
    else if (warp == S::kWarps + 1)
      load_groups<S>(a, list, ring);
  } else {
    if constexpr (kMoves) registers_up_to<112>();
    RingCursor at = {};
    for_each_tile<S>(a, list, [&](const Tile &tile) { multiply_tile<S, S::kMost / 8>(a, ring, at, tile); });
  }
#endif
}

template <class S> Status launch_shape(const LinearArgs &args, Error *err) {
  Args<S> a = {};
  const int n_places = args.n_tokens * args.w->n_chosen;
  a.w = quant_view(*args.w);
  a.experts = grouped_experts(args);
  a.across = ceil_div(a.experts.tile_rows, S::kTileRows);
  a.out = args.out;
  a.out.n_out = args.w->n_out / args.w->n_experts;
  for (int i = 0; i < S::Tiles::kHeights; i++)
    TRY(map_x(args, n_places, S::Tiles::kLeast + i * S::Tiles::kStep, a.x + i, err));
  TRY(map_tiles(args, S::W::kVectors, S::kK, S::kTileRows, &a.tiles, err));
  const int n_blocks = std::min(a.across * a.experts.most_tiles(n_places, S::kMost), args.device.n_sms);
  return launch(kernel<S>, dim3((unsigned)n_blocks), S::kThreads, S::kSharedBytes, args.stream,
                args.dependent, args.w->name, err, a);
}

/* Most tile rows that an SM multiplies if a tile has tile_rows of them. Assumes that one tile holds all of an
 * expert's rows of x. */
int rows_of_sm(const LinearArgs &args, int tile_rows) {
  const int of_expert = args.w->n_out / args.w->n_experts / kTileOut;
  return ceil_div(ceil_div(of_expert, tile_rows) * args.w->n_experts, args.device.n_sms) * tile_rows;
}

/* Tiles of 512 outputs read x half as often; tiles of 256 divide some matrices more evenly. */
template <class W, int kBlockIn> Status launch_weights(const LinearArgs &args, Error *err) {
  typedef Shape<W, kBlockIn, 16> Wide;
  typedef Shape<W, kBlockIn, 8> Narrow;
  return rows_of_sm(args, Wide::kTileRows) <= rows_of_sm(args, Narrow::kTileRows)
             ? launch_shape<Wide>(args, err)
             : launch_shape<Narrow>(args, err);
}

} // namespace

Status launch_experts_mma(const LinearArgs &args, Error *err) {
  switch (args.w->type) {
  case WEIGHT_FP8: return launch_weights<Fp8, 64>(args, err);
  case WEIGHT_FP4: return launch_weights<Fp4, 64>(args, err);
  default:
    return args.w->group % 128 == 0 ? launch_weights<Bits4, 128>(args, err)
                                    : launch_weights<Bits4, 32>(args, err);
  }
}
