/* dense_wgmma.cu - fp16 weights by fp16 activations on Hopper, any number of tokens, with sums in an order
 * that does not depend on that number.
 *
 *     y[m][o] = sum_i w[o][i] x[m][i]
 *
 * An output is one chain of wgmma in the order of k, whatever the tile: no tile is cut. Blocks stay and take
 * every n-th tile; a producer thread loads kStages stages of 64 inputs ahead, also over the end of a tile;
 * its warpgroup gives registers to the others. Two warpgroups have 64 outputs each; both operands come from
 * shared memory.
 *
 *   stage  w [128][128 bytes], x [kTokens][128 bytes], both in the 128-byte swizzle of the tensor copy
 *   full   completes when w and x have landed
 *   empty  completes when the 8 consumer warps have read the stage
 *
 * PRECOND  w and x 16-byte aligned, their strides multiples of 8.
 * READS    the weights once for every kTokens tokens, x once for every 128 outputs; reference: dense.cu. */
#include <algorithm>
#include <iterator>

#include "cuda/linear/maps.cuh"
#include "cuda/ptx/lanes.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace {

constexpr int kRows = 128, kIn = 64, kConsumers = 256, kThreads = kConsumers + 128;

template <int kTokens_> struct Shape {
  static constexpr int kTokens = kTokens_, kWBytes = kRows * kIn * 2, kXBytes = kTokens * kIn * 2;
  static constexpr int kStageBytes = kWBytes + kXBytes, kStages = 192 * 1024 / kStageBytes;
  static constexpr size_t kSharedBytes = (size_t)kStages * kStageBytes + 1024; /* to align it to 1024 */
};

struct Args {
  CUtensorMap w, x; /* boxes of 64 inputs of kRows rows, of box_tokens tokens */
  int box_tokens, n_tokens, n_token_tiles, n_tiles, n_steps;
  Epilogue out;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* The last tile ends with the last token and computes some of the tile before again, because a copy of tokens
 * past the end takes longer. Tiles of the same outputs follow each other. */
template <class S> __device__ __forceinline__ int first_token(const Args &a, int tile) {
  return max(0, min(tile % a.n_token_tiles * S::kTokens, a.n_tokens - S::kTokens));
}

template <class S>
__device__ __forceinline__ void load_tiles(const Args &a, unsigned char *stages, uint64_t *full,
                                           uint64_t *empty) {
  int slot = 0, phase = 1;
  for (int tile = blockIdx.x; tile < a.n_tiles; tile += gridDim.x)
    for (int step = 0; step < a.n_steps; step++) {
      unsigned char *stage = stages + slot * S::kStageBytes;
      barrier_wait(empty + slot, phase);
      barrier_expect(full + slot, S::kWBytes + a.box_tokens * kIn * 2);
      copy_box(stage, &a.w, full + slot, step * kIn, tile / a.n_token_tiles * kRows);
      copy_box(stage + S::kWBytes, &a.x, full + slot, step * kIn, first_token<S>(a, tile));
      if (++slot == S::kStages) slot = 0, phase ^= 1;
    }
}

/* Multiplies and stores the block's tiles. A stage is free when the products of the next one run. */
template <class S>
__device__ __forceinline__ void multiply_tiles(const Args &a, unsigned char *stages, uint64_t *full,
                                               uint64_t *empty) {
  const int group = warp_of_block() / 4;
  int slot = 0, phase = 0;
  for (int tile = blockIdx.x; tile < a.n_tiles; tile += gridDim.x) {
    float acc[S::kTokens / 2];
    int used = 0;
    for (int step = 0; step < a.n_steps; step++) {
      unsigned char *stage = stages + __shfl_sync(~0u, slot, 0) * S::kStageBytes;
      const uint64_t w = operand_b(stage + group * (S::kWBytes / 2)), x = operand_b(stage + S::kWBytes);
      barrier_wait(full + slot, phase);
      wgmma_fence();
#pragma unroll
      for (int j = 0; j < kIn / 16; j++)
        wgmma_f16_shared<S::kTokens>(acc, w + 2 * j, x + 2 * j, step > 0 || j > 0);
      wgmma_commit();
      wgmma_wait<1>();
      if (step > 0 && threadIdx.x % 32 == 0) barrier_arrive(empty + used);
      used = slot;
      if (++slot == S::kStages) slot = 0, phase ^= 1;
    }
    wgmma_wait<0>();
    if (threadIdx.x % 32 == 0) barrier_arrive(empty + used);
    const int token0 = first_token<S>(a, tile);
#pragma unroll
    for (int n = 0; n < S::kTokens; n += 64) /* store_fragments() copies its sums */
      store_fragments<8>(a.out, tile / a.n_token_tiles * (kRows / kTileOut) + warp_of_block(), token0 + n,
                         tile % a.n_token_tiles * S::kTokens, min(a.n_tokens, token0 + S::kTokens),
                         acc + n / 2);
  }
}

#endif

template <class S> __global__ void __launch_bounds__(kThreads, 1) kernel(const __grid_constant__ Args a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char shared[];
  __shared__ uint64_t full[S::kStages], empty[S::kStages];
  unsigned char *stages = align_for_copies(shared);
  open_ring(full, empty, S::kStages, 1, kConsumers / 32);
  dependents_may_start();
  wait_for_previous();
  if (warp_of_block() < kConsumers / 32) {
    registers_up_to<232>();
    multiply_tiles<S>(a, stages, full, empty);
  } else {
    registers_down_to<40>();
    if (threadIdx.x == kConsumers) load_tiles<S>(a, stages, full, empty);
  }
#endif
}

template <int kTokens> Status launch_shape(const LinearArgs &args, Error *err) {
  typedef Shape<kTokens> S;
  const DeviceLinear *w = args.w;
  Args a = {};
  a.box_tokens = std::min(ceil_div(args.n_tokens, 8) * 8, kTokens), a.n_tokens = args.n_tokens;
  a.n_token_tiles = ceil_div(args.n_tokens, kTokens), a.n_steps = ceil_div(w->n_in, kIn), a.out = args.out;
  a.n_tiles = ceil_div(w->n_out, kRows) * a.n_token_tiles;
  TRY(map_boxes(w->dense, {(cuuint64_t)w->n_in, (cuuint64_t)w->n_out, 0}, {(cuuint64_t)w->stride * 2, 0},
                {kIn, kRows, 1}, CU_TENSOR_MAP_SWIZZLE_128B, w->name, &a.w, err));
  TRY(map_x(args, args.n_tokens, a.box_tokens, &a.x, err));
  return launch(kernel<S>, dim3((unsigned)std::min(a.n_tiles, args.device.n_sms)), kThreads, S::kSharedBytes,
                args.stream, args.dependent, w->name, err, a);
}

struct TimedShape {
  Status (*launch)(const LinearArgs &args, Error *err);
  int tokens;
  double step_us; /* 64 inputs of a tile, on an H200 (cuda/LOG.md) */
};

constexpr TimedShape shapes[] = {
    {launch_shape<64>, 64, 0.236}, {launch_shape<128>, 128, 0.32}, {launch_shape<256>, 256, 0.62}};

/* Time of 64 inputs in the block with the most tiles: all shapes have as many of them. */
double expected_us(const TimedShape &s, const LinearArgs &args) {
  const int n_tiles = ceil_div(args.w->n_out, kRows) * ceil_div(args.n_tokens, s.tokens);
  return ceil_div(n_tiles, args.device.n_sms) * s.step_us;
}

/* Launches the `variant`-th shape, or the one that is expected to be the fastest. */
Status launch_dense_wgmma(const LinearArgs &args, Error *err) {
  if (args.variant > (int)std::size(shapes))
    return error_set(err, STATUS_USAGE, "%s: there is no tile shape %d", args.w->name, args.variant);
  if (args.variant > 0) return shapes[args.variant - 1].launch(args, err);
  return std::min_element(std::begin(shapes), std::end(shapes),
                          [&](const TimedShape &a, const TimedShape &b) {
                            return expected_us(a, args) < expected_us(b, args);
                          })
      ->launch(args, err);
}

} // namespace

const LinearKernel dense_wgmma_kernel = {NULL, launch_dense_wgmma, false};
