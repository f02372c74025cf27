/* awq_wgmma.cu - many rows of x on Hopper: dequantised weights as the register operand of wgmma, x by tensor
 * copies.
 *
 *     y[m][o] = sum_i (q[i][o] - z[g(i)][o]) s[g(i)][o] x[m][i]
 *
 * A block is two warpgroups that multiply, each 64 kM outputs by kTokens rows of x, and two warps that bring
 * what they need, kStages steps of 64 kK inputs ahead. A lane's 16 bytes of a tile are its register operand
 * of four wgmma m64nNk16; while one is under way the lane dequantises the next 16 inputs into the other of
 * two sets of registers. x goes from memory to all blocks of a cluster at once (each brings its share),
 * since they differ in outputs only.
 *
 *   stage  x [kK][kTokens][128 bytes], 128-byte swizzle; weights [8 kM tile rows][kK][tile]; scales and zeros
 *   full   when 32 lanes' copies of scales and zeros and the bytes of x and weights have come
 *   empty  when the 8 multiplying warps of every block of the cluster are done
 *
 * Work is cut by stream-K over clusters. 4-bit weights.
 * PRECOND  group % F == 0, F = 32 or 64; x 16-byte aligned, x_stride % 8 == 0.
 * READS    weights once for every kTokens rows of x, x once for every 128 kM kCluster outputs. */
#include <cuda.h>

#include "cuda/launch.cuh"
#include "cuda/stream_k.cuh"
#include "cuda/wgmma.cuh"

namespace {

constexpr int kMetaBytes = 48, kConsumers = 256, kThreads = kConsumers + 128;

/* The registers a block has at its start, shared out anew between those that load and those that multiply.
 * More than there are would be waited for without end. */
constexpr int kLoadRegisters = 40, kMultiplyRegisters = 232, kRegisters = 65536 / kThreads / 8 * 8 * kThreads;
static_assert(kLoadRegisters * 128 + kMultiplyRegisters * kConsumers <= kRegisters, "setmaxnreg would block");

template <int kM_, int kTokens_, int kK_, int kStages_, int kCluster_> struct Shape {
  static constexpr int kM = kM_, kTokens = kTokens_, kK = kK_, kStages = kStages_, kCluster = kCluster_;
  static constexpr int kTileRows = 8 * kM; /* of a block */
  static constexpr int kXBytes = kK * kTokens * 128, kWBytes = kTileRows * kK * 512;
  static constexpr int kStageBytes =
      (kXBytes + kWBytes + kTileRows * kK * 2 * kMetaBytes + 1023) / 1024 * 1024;
  static constexpr size_t kSharedBytes = (size_t)kStages * kStageBytes + 1024; /* to align by 1024 */
  static_assert(kTokens / kCluster % 8 == 0, "a block's share of x is whole swizzle rows");
  static_assert(kSharedBytes <= 226 * 1024, "shared memory of compute capability 9.0");
};

struct Args {
  CUtensorMap x;
  QuantView w;
  int n_tokens, n_token_tiles;
  stream_k::Work work;
  Epilogue out;
  float *partial;
  unsigned *counters;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

struct Barriers {
  uint64_t *full, *empty;
};

/* The warp that loads x and weights: for each step of the cluster's share, once the slot is free in all its
 * blocks. A lane brings one tile row; rows past the matrix are the last one again, their results are
 * dropped. */
template <class S>
__device__ __forceinline__ void load_tiles(const Args &a, unsigned char *stages, const Barriers &bar,
                                           int begin, int end, int rank) {
  constexpr int kShare = S::kTokens / S::kCluster;
  int lane = threadIdx.x % 32, slot = 0, phase = 1;
  stream_k::Cursor at(a.work, a.n_token_tiles, begin);
  const uint4 *from = nullptr;
  for (int step = begin; step < end; step++) {
    if (step == begin || at.step == 0) {
      int tile_row = min((at.row * S::kCluster + rank) * S::kTileRows + lane, a.w.n_tiles_out - 1);
      from = a.w.tiles + ((size_t)tile_row * a.w.n_tiles_in + at.step * S::kK) * 32;
    }
    unsigned char *stage = stages + slot * S::kStageBytes;
    barrier_wait(bar.empty + slot, phase);
    if (lane == 0) {
      barrier_expect(bar.full + slot, S::kXBytes + S::kWBytes);
#pragma unroll
      for (int kk = 0; kk < S::kK; kk++) {
        unsigned char *to = stage + (kk * S::kTokens + rank * kShare) * 128;
        int k = (at.step * S::kK + kk) * kTileIn, row = at.column * S::kTokens + rank * kShare;
        if (S::kCluster == 1)
          copy_box(to, &a.x, bar.full + slot, k, row);
        else
          copy_box_to_cluster(to, &a.x, bar.full + slot, k, row, (uint16_t)((1 << S::kCluster) - 1));
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

/* The warp that loads scales and zeros: three pieces a tile row and group. */
template <class S, int F>
__device__ __forceinline__ void load_groups(const Args &a, unsigned char *stages, const Barriers &bar,
                                            int begin, int end, int rank) {
  constexpr int kGroups = S::kK * kTileIn / F;
  int lane = threadIdx.x % 32, slot = 0, phase = 1;
  stream_k::Cursor at(a.work, a.n_token_tiles, begin);
  for (int step = begin; step < end; step++) {
    unsigned char *stage = stages + slot * S::kStageBytes + S::kXBytes + S::kWBytes;
    int tile_row0 = (at.row * S::kCluster + rank) * S::kTileRows;
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

/* Where a multiplying warp is in the ring. */
struct Ring {
  int slot, phase;
};

/* Frees the slot before the current one, in every block of the cluster. */
template <class S> __device__ __forceinline__ void release_before(const Barriers &bar, int slot) {
  if (threadIdx.x % 32 < S::kCluster)
    barrier_arrive_at(bar.empty + (slot == 0 ? S::kStages - 1 : slot - 1), threadIdx.x % 32);
}

/* Sums n_steps steps in acc. */
template <class S, int F>
__device__ __forceinline__ void multiply_steps(float (&acc)[S::kM][S::kTokens / 2], unsigned char *stages,
                                               const Barriers &bar, Ring &ring, int n_steps) {
  /* The warps of a warpgroup take the sixteen-row parts of 64 in turn. */
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
__device__ __forceinline__ void store_tile(const Args &a, int tile_row0, int token0,
                                           float (&acc)[S::kM][S::kTokens / 2]) {
  int row0 = threadIdx.x / 128 * 4 * S::kM + threadIdx.x / 32 % 4;
#pragma unroll
  for (int m = 0; m < S::kM; m++)
    store_fragments<S::kTokens / 8>(a.out, tile_row0 + row0 + 4 * m, token0, a.n_tokens, acc[m]);
}

template <class S, int F>
__device__ __forceinline__ void multiply_tiles(const Args &a, unsigned char *stages, const Barriers &bar,
                                               int begin, int end, int rank) {
  __shared__ int last;
  float acc[S::kM][S::kTokens / 2];
  float(&flat)[S::kM * S::kTokens / 2] = reinterpret_cast<float(&)[S::kM * S::kTokens / 2]>(acc);
  Ring ring = {0, 0};
  stream_k::Cursor at(a.work, a.n_token_tiles, begin);
  int block = blockIdx.x / S::kCluster;
  /* Each block of a cluster has its own parts and counters. */
  float *partial = a.partial + (size_t)rank * a.work.n_blocks * 2 * kConsumers * (S::kM * S::kTokens / 2);
  while (begin < end) {
    int n_steps = min(end - begin, a.work.n_steps - at.step);
    multiply_steps<S, F>(acc, stages, bar, ring, n_steps);
    if (stream_k::combine<S::kM * S::kTokens / 2, kConsumers>(
            flat, a.work, block, at.tile, begin, begin + n_steps, threadIdx.x, partial,
            a.counters + rank * a.work.n_tiles, &last, [] { sync_some<1, kConsumers>(); }))
      store_tile<S>(a, (at.row * S::kCluster + rank) * S::kTileRows, at.column * S::kTokens, acc);
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
  int rank = S::kCluster == 1 ? 0 : cluster_rank(), cluster = blockIdx.x / S::kCluster;
  int begin = stream_k::first_step(a.work, cluster), end = stream_k::first_step(a.work, cluster + 1);
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; i++) {
      barrier_init(full + i, 33);
      barrier_init(empty + i, 8 * S::kCluster);
    }
    barrier_init_fence();
  }
  if (S::kCluster == 1)
    __syncthreads();
  else
    cluster_sync();
  dependents_may_start();
  wait_for_previous();
  Barriers bar = {full, empty};
  if (threadIdx.x >= kConsumers) {
    registers_down_to<kLoadRegisters>();
    if (threadIdx.x < kConsumers + 32)
      load_tiles<S>(a, stages, bar, begin, end, rank);
    else if (threadIdx.x < kConsumers + 64)
      load_groups<S, F>(a, stages, bar, begin, end, rank);
  } else {
    registers_up_to<kMultiplyRegisters>();
    multiply_tiles<S, F>(a, stages, bar, begin, end, rank);
  }
  if (S::kCluster > 1) cluster_sync(); /* nobody leaves while another may still write to it */
#endif
}

/* The driver's encoder of tensor maps, found at run time so that the program does not link the driver. */
typedef CUresult (*EncodeTiled)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                const cuuint64_t *, const cuuint32_t *, const cuuint32_t *,
                                CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill);

/* x as boxes of 64 inputs by `rows` rows; what is outside reads as 0. */
Status map_x(const LinearArgs &args, int rows, CUtensorMap *map, Error *err) {
  void *encode = nullptr;
  cudaDriverEntryPointQueryResult found;
  TRY(cuda_check(
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

template <class S> Status launch_shape(const LinearArgs &args, Error *err) {
  Args a = {};
  a.w = quant_view(*args.w);
  a.n_tokens = args.n_tokens;
  a.n_token_tiles = ceil_div(args.n_tokens, S::kTokens);
  /* A block with less than 256 inputs is all ramp. */
  a.work = stream_k::even_work(ceil_div(a.w.n_tiles_out, S::kTileRows * S::kCluster) * a.n_token_tiles,
                               a.w.n_tiles_in / S::kK, args.device.n_sms / S::kCluster, 4 / S::kK);
  a.out = args.out;
  a.partial = (float *)args.workspace;
  a.counters = args.counters;
  TRY(map_x(args, S::kTokens / S::kCluster, &a.x, err));
  void (*function)(const Args) = args.w->group % 64 == 0 ? kernel<S, 64> : kernel<S, 32>;
  TRY(cuda_check(
      cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)S::kSharedBytes),
      args.w->name, err));
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {S::kCluster, 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3((unsigned)(a.work.n_blocks * S::kCluster));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = S::kSharedBytes;
  config.stream = args.stream;
  config.attrs = attributes;
  config.numAttrs = args.dependent ? 2 : 1;
  return cuda_check(cudaLaunchKernelEx(&config, function, a), args.w->name, err);
}

struct Choice {
  int max_tokens;
  Status (*launch)(const LinearArgs &args, Error *err);
  size_t floats; /* sums of a thread */
};

template <int kM, int kTokens, int kK, int kStages, int kCluster> constexpr Choice choice(int max_tokens) {
  return {max_tokens, launch_shape<Shape<kM, kTokens, kK, kStages, kCluster>>, (size_t)kM * kTokens / 2};
}

/* By rows of x; the thresholds are measured (cuda/NOTES.md). */
constexpr Choice choices[] = {
    /*   64 outputs a warpgroup, rows of x, tiles a stage, stages, blocks a cluster */
    choice<1, 64, 2, 7, 1>(64),
    choice<1, 128, 1, 8, 1>(128),
    choice<1, 256, 1, 5, 1>(384),
    choice<1, 256, 1, 5, 2>(1 << 30),
};

const Choice *choose(int n_tokens, int variant) {
  if (variant > 0)
    return variant <= (int)(sizeof choices / sizeof *choices) ? &choices[variant - 1] : nullptr;
  const Choice *c = choices;
  while (n_tokens > c->max_tokens) c++;
  return c;
}

size_t workspace(const DeviceLinear *, int, const DeviceLimits &device) {
  size_t most = 0;
  for (const Choice &c : choices)
    if (c.floats > most) most = c.floats;
  return stream_k::partial_bytes(device.n_sms, kConsumers, (int)most);
}

/* Of a gated product of more rows of x than this the results (as much as x again) would push x out of L2. */
constexpr int kGatedTokens = 2048;

Status launch_awq_wgmma(const LinearArgs &args, Error *err) {
  LinearArgs part = args;
  int at_once = args.w->paired ? kGatedTokens : args.n_tokens;
  for (int first = 0; first < args.n_tokens; first += at_once) {
    part.n_tokens = args.n_tokens - first < at_once ? args.n_tokens - first : at_once;
    part.x = args.x + (size_t)first * args.x_stride;
    if (args.w->paired) part.out.y = (__half *)args.out.y + (size_t)first * args.out.stride;
    const Choice *c = choose(part.n_tokens, args.variant);
    if (!c) return error_set(err, STATUS_USAGE, "%s: there is no tile shape %d", args.w->name, args.variant);
    TRY(c->launch(part, err));
  }
  return STATUS_OK;
}

} // namespace

const LinearKernel awq_wgmma_kernel = {workspace, launch_awq_wgmma, false};
