/* awq_wgmma.cu - many tokens on Hopper: dequantised weights as the register operand of wgmma, x by tensor
 * copies.
 *
 *     y[m][o] = sum_i (q[i][o] - z[g(i)][o]) s[g(i)][o] x[m][i]
 *
 * A block is two consumer warpgroups, each 64 kM outputs by kTokens tokens, and two producer warps that load
 * kStages stages of 64 kK inputs ahead. A lane's 16 bytes of a tile are its register operand of four wgmma
 * m64nNk16; while one runs, the lane dequantises the next 16 inputs into the other of two sets of registers.
 *
 *   stage  x [kK][kTokens][128 bytes], 128-byte swizzle; weights [8 kM tile rows][kK][tile]; scales and zeros
 *   full   completes when x, the weights and 32 lanes' copies of scales and zeros have landed
 *   empty  completes when the 8 consumer warps have read the stage
 *
 * Stream-K divides the work. 4-bit weights.
 * PRECOND  group % F == 0, F = 32 or 64; x 16-byte aligned, x_stride % 8 == 0.
 * READS    weights once for every kTokens tokens, x once for every 128 kM outputs. */
#include <cuda.h>

#include "cuda/linear/kernel.cuh"
#include "cuda/linear/stream_k.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace {

constexpr int kMetaBytes = 48, kConsumers = 256, kThreads = kConsumers + 128;

/* Registers of a producer and of a consumer thread. A block gets kRegisters at its start; setmaxnreg would
 * wait forever for more. */
constexpr int kLoadRegisters = 40, kMultiplyRegisters = 232, kRegisters = 65536 / kThreads / 8 * 8 * kThreads;
static_assert(kLoadRegisters * 128 + kMultiplyRegisters * kConsumers <= kRegisters, "setmaxnreg would block");

template <int kM_, int kTokens_, int kK_, int kStages_> struct Shape {
  static constexpr int kM = kM_, kTokens = kTokens_, kK = kK_, kStages = kStages_;
  static constexpr int kTileRows = 8 * kM;
  static constexpr int kXBytes = kK * kTokens * 128, kWBytes = kTileRows * kK * 512;
  static constexpr int kStageBytes =
      (kXBytes + kWBytes + kTileRows * kK * 2 * kMetaBytes + 1023) / 1024 * 1024;
  static constexpr size_t kSharedBytes = (size_t)kStages * kStageBytes + 1024; /* to align it to 1024 */
  static_assert(kTokens % 8 == 0, "rows of x are whole swizzle rows");
  static_assert(kSharedBytes <= 226 * 1024, "shared memory of compute capability 9.0");
};

struct Args {
  CUtensorMap x;
  QuantView w;
  int n_tokens, n_token_tiles, box_tokens; /* tokens that one copy of x brings */
  stream_k::Work work;
  Epilogue out;
  float *partial;
  unsigned *counters;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* First token of a tile. The last tile ends with the last token and computes some of the tile before again,
 * because a copy of tokens past the end takes longer (cuda/NOTES.md). */
template <class S> __device__ __forceinline__ int first_row(const Args &a, int column) {
  return max(0, min(column * S::kTokens, a.n_tokens - S::kTokens));
}

struct Barriers {
  uint64_t *full, *empty;
};

/* Producer warp of x and weights: loads each step of the block's part once its stage is free. A lane loads
 * one tile row. Past the matrix the last tile row is loaded again; its results are dropped. */
template <class S>
__device__ __forceinline__ void load_tiles(const Args &a, unsigned char *stages, const Barriers &bar,
                                           int begin, int end) {
  int x_bytes = S::kK * a.box_tokens * 128;
  int lane = threadIdx.x % 32, slot = 0, phase = 1;
  stream_k::Cursor at(a.work, a.n_token_tiles, begin);
  const uint4 *from = nullptr;
  for (int step = begin; step < end; step++) {
    if (step == begin || at.step == 0) {
      int tile_row = min(at.row * S::kTileRows + lane, a.w.n_tiles_out - 1);
      from = a.w.tiles + ((size_t)tile_row * a.w.n_tiles_in + at.step * S::kK) * 32;
    }
    unsigned char *stage = stages + slot * S::kStageBytes;
    barrier_wait(bar.empty + slot, phase);
    if (lane == 0) {
      barrier_expect(bar.full + slot, x_bytes + S::kWBytes);
#pragma unroll
      for (int kk = 0; kk < S::kK; kk++) {
        int k = (at.step * S::kK + kk) * kTileIn;
        copy_box(stage + kk * S::kTokens * 128, &a.x, bar.full + slot, k, first_row<S>(a, at.column));
      }
    }
    __syncwarp();
    if (lane < S::kTileRows)
      copy_bulk(stage + S::kXBytes + lane * S::kK * 512, from, S::kK * 512, bar.full + slot);
    from += S::kK * 32;
    at.advance(a.work, a.n_token_tiles);
    if (++slot == S::kStages) slot = 0, phase ^= 1;
  }
}

/* Producer warp of scales and zeros: three copies per tile row and group. */
template <class S, int F>
__device__ __forceinline__ void load_groups(const Args &a, unsigned char *stages, const Barriers &bar,
                                            int begin, int end) {
  constexpr int kGroups = S::kK * kTileIn / F;
  int lane = threadIdx.x % 32, slot = 0, phase = 1;
  stream_k::Cursor at(a.work, a.n_token_tiles, begin);
  for (int step = begin; step < end; step++) {
    unsigned char *stage = stages + slot * S::kStageBytes + S::kXBytes + S::kWBytes;
    int tile_row0 = at.row * S::kTileRows;
    barrier_wait(bar.empty + slot, phase);
#pragma unroll
    for (int c = lane; c < S::kTileRows * kGroups * 3; c += 32) {
      int row = c / (kGroups * 3), f = c / 3 % kGroups, piece = c % 3;
      int group = min(tile_row0 + row, a.w.n_tiles_out - 1) * a.w.n_groups +
                  group_of(a.w, at.step * S::kK * kTileIn + f * F);
      unsigned char *to = stage + (row * kGroups + f) * kMetaBytes;
      if (piece < 2)
        copy_async_16(to + 16 * piece, a.w.scales + (size_t)group * 8 + 4 * piece, 16);
      else
        copy_async_8(to + 32, (const unsigned char *)a.w.zeros + (size_t)group * 8);
    }
    barrier_arrive_after_copies(bar.full + slot);
    at.advance(a.work, a.n_token_tiles);
    if (++slot == S::kStages) slot = 0, phase ^= 1;
  }
}

/* Position of a consumer warp in the ring. */
struct Ring {
  int slot, phase;
};

/* Frees the stage before the current one. */
template <class S> __device__ __forceinline__ void release_before(const Barriers &bar, int slot) {
  if (threadIdx.x % 32 == 0) barrier_arrive(bar.empty + (slot == 0 ? S::kStages - 1 : slot - 1));
}

/* Adds n_steps steps to acc. */
template <class S, int F>
__device__ __forceinline__ void multiply_steps(float (&acc)[S::kM][S::kTokens / 2], unsigned char *stages,
                                               const Barriers &bar, Ring &ring, int n_steps) {
  /* wgmma gives each warp of a warpgroup 16 of its 64 rows. */
  int lane = threadIdx.x % 32, g = lane / 4, row0 = threadIdx.x / 128 * 4 * S::kM + threadIdx.x / 32 % 4;
  constexpr int kPerTile = kTileIn / F, kWordsOfGroup = 4 / kPerTile;
  uint32_t q[2][S::kM][4];
  for (int step = 0; step < n_steps; step++) {
    const unsigned char *stage = stages + ring.slot * S::kStageBytes, *weights = stage + S::kXBytes;
    const unsigned char *meta = weights + S::kWBytes;
    barrier_wait(bar.full + ring.slot, ring.phase);
#pragma unroll
    for (int kk = 0; kk < S::kK; kk++) {
      uint64_t b = operand_b(stage + kk * S::kTokens * 128);
      uint4 v[S::kM][1];
      uint32_t scale[S::kM][kPerTile];
      Bits4::HalfZeros zero[S::kM][kPerTile];
#pragma unroll
      for (int m = 0; m < S::kM; m++) {
        int row = row0 + 4 * m;
        v[m][0] = *(const uint4 *)(weights + (row * S::kK + kk) * 512 + lane * 16);
#pragma unroll
        for (int f = 0; f < kPerTile; f++) {
          const unsigned char *of = meta + ((row * S::kK + kk) * kPerTile + f) * kMetaBytes;
          scale[m][f] = *(const uint32_t *)(of + 4 * g);
          zero[m][f] = Bits4::half_zeros(of[32 + g]);
        }
      }
#pragma unroll
      for (int j = 0; j < 4; j++) {
#pragma unroll
        for (int m = 0; m < S::kM; m++) {
          Bits4::halves(v[m], j, zero[m][j / kWordsOfGroup], q[j % 2][m]);
          scale_halves(scale[m][j / kWordsOfGroup], q[j % 2][m]);
        }
        wgmma_fence();
#pragma unroll
        for (int m = 0; m < S::kM; m++)
          wgmma_f16<S::kTokens>(acc[m], q[j % 2][m], b + 2 * j, step > 0 || kk > 0 || j > 0);
        wgmma_commit();
        wgmma_wait<1>();
        if (kk == 0 && j == 0 && step > 0) release_before<S>(bar, ring.slot);
      }
    }
    if (++ring.slot == S::kStages) ring.slot = 0, ring.phase ^= 1;
  }
  wgmma_wait<0>();
  release_before<S>(bar, ring.slot);
}

template <class S>
__device__ __forceinline__ void store_tile(const Args &a, int tile_row0, int column,
                                           float (&acc)[S::kM][S::kTokens / 2]) {
  int row0 = threadIdx.x / 128 * 4 * S::kM + threadIdx.x / 32 % 4;
#pragma unroll
  for (int m = 0; m < S::kM; m++)
    store_fragments<S::kTokens / 8>(a.out, tile_row0 + row0 + 4 * m, first_row<S>(a, column),
                                    column * S::kTokens, a.n_tokens, acc[m]);
}

template <class S, int F>
__device__ __forceinline__ void multiply_tiles(const Args &a, unsigned char *stages, const Barriers &bar,
                                               int begin, int end) {
  __shared__ int last;
  float acc[S::kM][S::kTokens / 2];
  float(&flat)[S::kM * S::kTokens / 2] = reinterpret_cast<float(&)[S::kM * S::kTokens / 2]>(acc);
  Ring ring = {0, 0};
  stream_k::Cursor at(a.work, a.n_token_tiles, begin);
  while (begin < end) {
    int n_steps = min(end - begin, a.work.n_steps - at.step);
    multiply_steps<S, F>(acc, stages, bar, ring, n_steps);
    if (stream_k::combine<S::kM * S::kTokens / 2, kConsumers>(
            flat, a.work, blockIdx.x, at.tile, begin, begin + n_steps, threadIdx.x, a.partial, a.counters,
            &last, [] { named_barrier_sync<1, kConsumers>(); }))
      store_tile<S>(a, at.row * S::kTileRows, at.column, acc);
    begin += n_steps;
    at = stream_k::Cursor(a.work, a.n_token_tiles, begin);
  }
}

#endif

template <class S, int F>
__global__ void __launch_bounds__(kThreads, 1) kernel(const __grid_constant__ Args a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char shared[];
  __shared__ uint64_t full[S::kStages], empty[S::kStages];
  unsigned char *stages = shared + (1024 - shared_address(shared) % 1024) % 1024;
  int begin = stream_k::first_step(a.work, blockIdx.x), end = stream_k::first_step(a.work, blockIdx.x + 1);
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; i++) {
      barrier_init(full + i, 33);
      barrier_init(empty + i, 8);
    }
    barrier_init_fence();
  }
  __syncthreads();
  dependents_may_start();
  wait_for_previous();
  Barriers bar = {full, empty};
  if (threadIdx.x >= kConsumers) {
    registers_down_to<kLoadRegisters>();
    if (threadIdx.x < kConsumers + 32)
      load_tiles<S>(a, stages, bar, begin, end);
    else if (threadIdx.x < kConsumers + 64)
      load_groups<S, F>(a, stages, bar, begin, end);
  } else {
    registers_up_to<kMultiplyRegisters>();
    multiply_tiles<S, F>(a, stages, bar, begin, end);
  }
#endif
}

/* The driver's tensor map encoder, found at run time so that the program does not link the driver. */
typedef CUresult (*EncodeTiled)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                const cuuint64_t *, const cuuint32_t *, const cuuint32_t *,
                                CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill);

/* Tokens that one copy brings: a tile's, or all if there are fewer. */
template <class S> int box_tokens(int n_tokens) {
  return n_tokens < S::kTokens ? ceil_div(n_tokens, 8) * 8 : S::kTokens;
}

/* Tensor map of x in boxes of 64 inputs by `rows` tokens; out of bounds reads as 0. */
Status map_x(const LinearArgs &args, int rows, CUtensorMap *map, Error *err) {
  void *encode = nullptr;
  cudaDriverEntryPointQueryResult found;
  TRY(cuda_status(
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &found),
      args.w->name, err));
  cuuint64_t size[2] = {(cuuint64_t)args.w->n_in, (cuuint64_t)args.n_tokens},
             stride[1] = {(cuuint64_t)args.x_stride * sizeof(__half)};
  cuuint32_t box[2] = {kTileIn, (cuuint32_t)rows}, step[2] = {1, 1};
  CUresult r =
      encode ? ((EncodeTiled)encode)(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, (void *)args.x, size, stride,
                                     box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                     CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
             : CUDA_ERROR_NOT_FOUND;
  return r ? error_set(err, STATUS_FAILED, "%s: the driver refuses a tensor map (%d)", args.w->name, (int)r)
           : STATUS_OK;
}

/* Stream-K work in tiles of 128 outputs by `tokens` tokens and steps of `tiles` x 64 inputs. Fewer than 256
 * inputs in a block are all pipeline ramp. */
stream_k::Work cut(int n_out, int n_tokens, int n_tiles_in, int tokens, int tiles, int n_sms) {
  return stream_k::even_work(ceil_div(n_out, 128) * ceil_div(n_tokens, tokens), n_tiles_in / tiles, n_sms,
                             4 / tiles);
}

template <class S> Status launch_shape(const LinearArgs &args, Error *err) {
  static_assert(S::kM == 1, "cut() has tiles of 128 outputs");
  Args a = {};
  a.w = quant_view(*args.w);
  a.n_tokens = args.n_tokens;
  a.n_token_tiles = ceil_div(args.n_tokens, S::kTokens);
  a.work = cut(args.w->n_out, args.n_tokens, a.w.n_tiles_in, S::kTokens, S::kK, args.device.n_sms);
  a.out = args.out;
  a.partial = (float *)args.workspace;
  a.counters = args.counters;
  a.box_tokens = box_tokens<S>(args.n_tokens);
  TRY(map_x(args, a.box_tokens, &a.x, err));
  void (*function)(const Args) = args.w->group % 64 == 0 ? kernel<S, 64> : kernel<S, 32>;
  TRY(cuda_status(
      cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)S::kSharedBytes),
      args.w->name, err));
  cudaLaunchAttribute overlapping = {};
  overlapping.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlapping.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3((unsigned)a.work.n_blocks);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = S::kSharedBytes;
  config.stream = args.stream;
  config.attrs = &overlapping;
  config.numAttrs = args.dependent ? 1 : 0;
  return cuda_status(cudaLaunchKernelEx(&config, function, a), args.w->name, err);
}

struct Choice {
  Status (*launch)(const LinearArgs &args, Error *err);
  int tokens, tiles;        /* tokens of a tile, tiles of 64 inputs in a step */
  size_t floats;            /* sums of a thread */
  double fixup_us, step_us; /* combining parts of a tile; 64 inputs of a tile */
};

template <int kM, int kTokens, int kK, int kStages> constexpr Choice choice(double fixup_us, double step_us) {
  return {launch_shape<Shape<kM, kTokens, kK, kStages>>,
          kTokens,
          kK,
          (size_t)kM * kTokens / 2,
          fixup_us,
          step_us};
}

/* Times as measured on an H200 (cuda/LOG.md). */
constexpr Choice choices[] = {
    /* kM, kTokens, kK, kStages; fixup_us, step_us */
    choice<1, 64, 2, 7>(6, 0.36),   choice<1, 96, 2, 6>(7, 0.38),   choice<1, 128, 2, 5>(8, 0.465),
    choice<1, 160, 2, 4>(10, 0.55), choice<1, 192, 2, 3>(12, 0.64), choice<1, 256, 1, 5>(16.5, 0.78),
};

/* Time of the block with the most work. */
double expected_us(const Choice &c, const DeviceLinear *w, int n_tokens, int n_sms) {
  stream_k::Work work = cut(w->n_out, n_tokens, quant_view(*w).n_tiles_in, c.tokens, c.tiles, n_sms);
  int steps = ceil_div(stream_k::total_steps(work), work.n_blocks) * c.tiles;
  return (work.n_tiles % work.n_blocks ? c.fixup_us : 0) + c.step_us * steps;
}

/* The tile shape expected to be the fastest, or the `variant`-th; NULL if there is no such shape. */
const Choice *choose(const DeviceLinear *w, int n_tokens, int n_sms, int variant) {
  constexpr int n = sizeof choices / sizeof *choices;
  if (variant > 0) return variant <= n ? &choices[variant - 1] : nullptr;
  const Choice *best = nullptr;
  double best_us = 0;
  for (const Choice &c : choices) {
    double us = expected_us(c, w, n_tokens, n_sms);
    if (best && us >= best_us) continue;
    best = &c, best_us = us;
  }
  return best;
}

size_t workspace(const DeviceLinear *, int, const DeviceLimits &device) {
  size_t most = 0;
  for (const Choice &c : choices)
    if (c.floats > most) most = c.floats;
  return stream_k::partial_bytes(device.n_sms, kConsumers, (int)most);
}

/* A gated matmul of more tokens than this would push x out of L2 by its results, which are as large. */
constexpr int kGatedTokens = 2048;

Status launch_awq_wgmma(const LinearArgs &args, Error *err) {
  LinearArgs part = args;
  int at_once = args.w->interleaved ? kGatedTokens : args.n_tokens;
  for (int first = 0; first < args.n_tokens; first += at_once) {
    part.n_tokens = args.n_tokens - first < at_once ? args.n_tokens - first : at_once;
    part.x = args.x + (size_t)first * args.x_stride;
    if (args.w->interleaved) part.out.y = (__half *)args.out.y + (size_t)first * args.out.stride;
    const Choice *c = choose(args.w, part.n_tokens, args.device.n_sms, args.variant);
    if (!c) return error_set(err, STATUS_USAGE, "%s: there is no tile shape %d", args.w->name, args.variant);
    TRY(c->launch(part, err));
  }
  return STATUS_OK;
}

} // namespace

const LinearKernel awq_wgmma_kernel = {workspace, launch_awq_wgmma, false};
