/* dense_wgmma.cu - fp16 or bf16 weights by fp16 activations on Hopper, any number of tokens, with sums in an
 * order that does not depend on that number. Also a matrix for each head by the head's own part of x
 * (LinearHeads), in fp16.
 *
 *     y[m][o] = sum_i w[o][i] x[m][i]          heads:  y[m][h][o] = sum_i w[h][o][i] x[m][h][i]
 *
 * An output is one chain of wgmma in the order of k, whatever the tile: no tile is cut. Blocks are
 * persistent, and each takes every gridDim.x-th tile. A producer thread loads kStages stages of 64 inputs
 * ahead, also across the end of a tile. One or two consumer warpgroups have 64 outputs each. If there are
 * two, the producer's warpgroup gives them registers. fp16 weights are multiplied from shared memory, as x
 * is. bf16 weights become fp16 in registers (cublas_matmul.cu says what that loses).
 *
 *   stage  w [kRows][128 bytes], x [kTokens][128 bytes], both in the 128-byte swizzle of the tensor copy
 *
 * The ring; t is the turn of the stage's slot (ptx/cluster.cuh):
 *
 *   producer thread   wait empty, parity (t + 1) % 2 -> w, x: 1 arrival, their bytes -> full: 1
 *                          ^                                                              |
 *   consumer warps         +--- empty: 1 a warp <- products <- wait full, parity t % 2 <--+
 *
 * A warp arrives at `empty` when its products of the stage are complete. Its products of the next stage run
 * meanwhile.
 *
 * PRECOND  w and x 16-byte aligned, their strides multiples of 8.
 * READS    the weights once for every kTokens tokens, x once for every kRows outputs; reference: dense.cu. */
#include <algorithm>
#include <cuda_bf16.h>
#include <iterator>
#include <type_traits>

#include "cuda/kernels/linear/dense/halves.cuh"
#include "cuda/kernels/linear/dense/heads.h"
#include "cuda/kernels/linear/maps.cuh"
#include "cuda/kernels/linear/tile_times.h"
#include "cuda/kernels/linear/wgmma_stages.cuh"
#include "cuda/kernels/ptx/lanes.cuh"

namespace {

constexpr int kIn = 64;

template <class T, int kRows_, int kTokens_> struct Shape {
  typedef T Weight;
  static constexpr int kRows = kRows_, kConsumers = 2 * kRows, kThreads = kConsumers + 128;
  static constexpr int kTokens = kTokens_, kWBytes = kRows * kIn * 2, kXBytes = kTokens * kIn * 2;
  static constexpr int kStageBytes = kWBytes + kXBytes, kStages = 192 * 1024 / kStageBytes;
  static constexpr size_t kSharedBytes = (size_t)kStages * kStageBytes + 1024; /* 1024: to align the stages */
};

struct Args {
  CUtensorMap w, x; /* all heads, in boxes of 64 inputs: by kRows rows (w), by box_tokens tokens (x) */
  int box_tokens, n_tokens, n_token_tiles, n_row_tiles, n_tiles, n_steps; /* n_row_tiles: of a head */
  int y_step;   /* fp16 numbers from a head of y to the next */
  Epilogue out; /* of the first head */
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Tiles are numbered by head, then row tile, then token tile (fastest). */
template <class S> struct Tile {
  int head, row_tile, token_tile, first; /* first: the tile's first token */

  __device__ __forceinline__ Tile(const Args &a, int tile)
      : head(tile / a.n_token_tiles / a.n_row_tiles), row_tile(tile / a.n_token_tiles % a.n_row_tiles),
        token_tile(tile % a.n_token_tiles), first(first_of_tile(a.n_tokens, token_tile, S::kTokens)) {}
};

template <class S> __device__ __forceinline__ void load_tiles(const Args &a, const Ring &ring) {
  RingProducer producer(ring);
  for (int at = blockIdx.x; at < a.n_tiles; at += gridDim.x) {
    const Tile<S> tile(a, at);
    for (int step = 0; step < a.n_steps; step++)
      producer.fill([&](unsigned char *stage, uint64_t *full) {
        barrier_expect(full, S::kWBytes + a.box_tokens * kIn * 2);
        copy_box(stage, &a.w, full, step * kIn, tile.row_tile * S::kRows, tile.head);
        copy_box(stage + S::kWBytes, &a.x, full, step * kIn, tile.first, tile.head);
      });
  }
}

constexpr int kBatch = 2; /* bf16: products, of 16 inputs each, that are waited for together */

/* A stage's bf16 weights as operands in registers. */
typedef uint32_t Operands[kIn / 16][4];

/* acc = the products of a stage, or acc += them with `add`. bf16 is converted a batch ahead of wgmma. */
template <class S>
__device__ __forceinline__ void multiply_stage(float (&acc)[S::kTokens / 2], Operands &operands,
                                               const unsigned char *stage, bool add) {
  const uint64_t x = operand_b(stage + S::kWBytes);
  if constexpr (std::is_same<typename S::Weight, __half>::value) {
    const uint64_t w = operand_b(stage + warp_of_block() / 4 * (64 * kIn * 2));
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < kIn / 16; j++) wgmma_f16_shared<S::kTokens>(acc, w + 2 * j, x + 2 * j, add || j > 0);
    wgmma_commit();
  } else {
    const int lane = threadIdx.x % 32, row = warp_of_block() * kTileOut + lane % 16;
    const uint32_t at = shared_address(stage) + row * 128;
    Operands stored; /* read while the last products of the previous stage run */
#pragma unroll
    for (int j = 0; j < kIn / 16; j++) ldmatrix_x4(stored[j], at + ((2 * j + lane / 16) ^ (row % 8)) * 16);
#pragma unroll
    for (int first = 0; first < kIn / 16; first += kBatch) {
#pragma unroll
      for (int j = first; j < first + kBatch; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) operands[j][i] = halves<typename S::Weight>(stored[j][i]);
      wgmma_fence();
#pragma unroll
      for (int j = first; j < first + kBatch; j++)
        wgmma_f16<S::kTokens>(acc, operands[j], x + 2 * j, add || j > 0);
      wgmma_commit();
      if (first + kBatch < kIn / 16) wgmma_wait<1>();
    }
  }
}

/* Multiplies and stores the block's tiles. */
template <class S> __device__ __forceinline__ void multiply_tiles(const Args &a, const Ring &ring) {
  RingCursor from = {};
  for (int at = blockIdx.x; at < a.n_tiles; at += gridDim.x) {
    const Tile<S> tile(a, at);
    float acc[S::kTokens / 2];
    Operands operands;
    multiply_stages(ring, from, a.n_steps, [&](unsigned char *stage, int step) {
      multiply_stage<S>(acc, operands, stage, step > 0);
    });
    Epilogue out = a.out;
    out.y = (__half *)out.y + (size_t)tile.head * a.y_step;
#pragma unroll
    for (int n = 0; n < S::kTokens; n += 64) /* in parts: store_fragments() copies its sums */
      store_fragments<8>(out, tile.row_tile * (S::kRows / kTileOut) + warp_of_block(), tile.first + n,
                         tile.token_tile * S::kTokens, min(a.n_tokens, tile.first + S::kTokens), acc + n / 2);
  }
}

#endif

template <class S> __global__ void __launch_bounds__(S::kThreads, 1) kernel(const __grid_constant__ Args a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char shared[];
  __shared__ uint64_t full[S::kStages], empty[S::kStages];
  const Ring ring = {align_for_copies(shared), full, empty, S::kStages, S::kStageBytes};
  ring.open(1, S::kConsumers / 32);
  dependents_may_start();
  wait_for_previous();
  if (warp_of_block() < S::kConsumers / 32) {
    if constexpr (S::kConsumers > 128) registers_up_to<232>(); /* one warpgroup has enough without */
    multiply_tiles<S>(a, ring);
  } else {
    if constexpr (S::kConsumers > 128) registers_down_to<40>();
    if (threadIdx.x == S::kConsumers) load_tiles<S>(a, ring);
  }
#endif
}

/* A product's operands and result, of all heads. */
struct Product {
  const void *w, *x;
  size_t w_stride;                                    /* numbers from a row to the next */
  int n_heads, n_in, n_out, x_stride, x_step, y_step; /* x_step, y_step: from a head to the next */
  int n_tokens;
  Epilogue out;
  int n_sms;
  cudaStream_t stream;
  bool dependent;
  const char *name;
};

template <class T, int kRows, int kTokens> Status launch_shape(const Product &p, Error *err) {
  typedef Shape<T, kRows, kTokens> S;
  Args a = {};
  a.box_tokens = std::min(ceil_div(p.n_tokens, 8) * 8, kTokens), a.n_tokens = p.n_tokens;
  a.n_token_tiles = ceil_div(p.n_tokens, kTokens), a.n_steps = ceil_div(p.n_in, kIn);
  a.n_row_tiles = ceil_div(p.n_out, kRows), a.n_tiles = p.n_heads * a.n_row_tiles * a.n_token_tiles;
  a.y_step = p.y_step, a.out = p.out;
  TRY(map_boxes(p.w, {(cuuint64_t)p.n_in, (cuuint64_t)p.n_out, (cuuint64_t)p.n_heads},
                {p.w_stride * 2, p.w_stride * 2 * (cuuint64_t)p.n_out}, {kIn, kRows, 1},
                CU_TENSOR_MAP_SWIZZLE_128B, p.name, &a.w, err));
  TRY(map_boxes(p.x, {(cuuint64_t)p.n_in, (cuuint64_t)p.n_tokens, (cuuint64_t)p.n_heads},
                {(cuuint64_t)p.x_stride * 2, (cuuint64_t)p.x_step * 2}, {kIn, (cuuint32_t)a.box_tokens, 1},
                CU_TENSOR_MAP_SWIZZLE_128B, p.name, &a.x, err));
  return launch(kernel<S>, dim3((unsigned)std::min(a.n_tiles, p.n_sms)), S::kThreads, S::kSharedBytes,
                p.stream, p.dependent, p.name, err, a);
}

struct TimedShape {
  Status (*of_halves)(const Product &p, Error *err);
  Status (*of_bfloats)(const Product &p, Error *err);
  int rows, tokens;
  double us; /* tile_times.h, in fp16 */
};

#define TILE(rows, tokens, tiles, stages, us, fixup_us)                                                      \
  {launch_shape<__half, rows, tokens>, launch_shape<__nv_bfloat16, rows, tokens>, rows, tokens, us},
constexpr TimedShape shapes[] = {DENSE_WGMMA_TILES(TILE)};
#undef TILE

/* The shape with the least expected time: the most tiles of a block times the time of a step of 64 inputs.
 * A tile has equally many steps in all shapes. */
const TimedShape &fastest(const Product &p) {
  const auto us = [&](const TimedShape &s) {
    const int n_tiles = p.n_heads * ceil_div(p.n_out, s.rows) * ceil_div(p.n_tokens, s.tokens);
    return ceil_div(n_tiles, p.n_sms) * s.us;
  };
  return *std::min_element(std::begin(shapes), std::end(shapes),
                           [&](const TimedShape &a, const TimedShape &b) { return us(a) < us(b); });
}

/* Launches shape `variant`, counted from 1, or with 0 the fastest. */
Status launch_dense_wgmma(const LinearArgs &args, Error *err) {
  const DeviceLinear *w = args.w;
  TRY(check_variant(args, (int)std::size(shapes), err));
  const Product p = {w->dense,    args.x,         w->stride,     1,
                     w->n_in,     w->n_out,       args.x_stride, args.x_stride,
                     0,           args.n_tokens,  args.out,      args.device.n_sms,
                     args.stream, args.dependent, w->name};
  const TimedShape &s = args.variant > 0 ? shapes[args.variant - 1] : fastest(p);
  return (w->type == WEIGHT_F16 ? s.of_halves : s.of_bfloats)(p, err);
}

} // namespace

Status heads_wgmma(const LinearHeads *a, int n_sms, cudaStream_t stream, Error *err) {
  Product p = {};
  p.w = a->w, p.w_stride = (size_t)a->w_stride, p.x = a->x, p.x_stride = a->x_stride, p.x_step = a->x_step;
  p.n_heads = a->n_heads, p.n_in = a->w_stride, p.n_out = a->n_out, p.n_tokens = a->n_tokens;
  p.y_step = a->y_step, p.out.y = a->y, p.out.stride = (size_t)a->y_stride, p.out.n_out = a->n_out;
  p.out.kind = LINEAR_TO_F16;
  p.n_sms = n_sms, p.stream = stream, p.dependent = true, p.name = "heads";
  return fastest(p).of_halves(p, err);
}

const LinearKernel dense_wgmma_kernel = {NULL, launch_dense_wgmma, false};
