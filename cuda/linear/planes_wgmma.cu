/* planes_wgmma.cu - 9 tokens and more on Hopper: x as two int8 planes, 4-bit weights as register operand
 * of wgmma, exact sums in int32.
 *
 *     x[m][k] ~ d[m][p] X[m][k], X = 256 high + low       a part p: kBlockIn inputs that share a scale
 *     y[m][o] = sum_p s[p][o] d[m][p] (sum_k q X - z[p][o] sum_k X)       d = max |x| / 32512
 *
 * One kernel quantises x; the next multiplies. A block is two warpgroups, each 64 outputs by kTokens tokens,
 * two warps that load weights, scales and zeros before x is there, and one that loads x. A unit is 128 inputs
 * of the block's outputs, a product the sums of kChunk tokens over one part of it: a warpgroup scales the
 * sums of one product while the next one runs.
 *
 *   x      [token tile][n_in / 128] of a unit:  planes [2 kTokens][128 bytes], 128-byte swizzle
 *                                               [kTokens / 2][kParts]{scale d[2], sum of X[2]}
 *   stage  a unit of x; weights [2 tiles][8 tile rows][512]; scales and zeros [8][kParts][48]
 *
 * Columns 2t and 2t + 1 of blocks of 8 columns 2m and 2m + 1 are planes of tokens 8m + 2t and 8m + 2t + 1,
 * so a lane's tokens are those of an mma fragment of 8 tokens. Inputs lie in the order of the weights.
 *
 * Stream-K cuts outputs and inputs alone, all tokens alike, so the bits of a row do not depend on the rows
 * beside it.
 * PRECOND  group % kBlockIn == 0, kBlockIn = 128 / kParts: 128 or 64.
 * READS    weights once for every kTokens tokens, x once for every 128 outputs. */
#include <algorithm>
#include <iterator>

#include "cuda/linear/kernel.cuh"
#include "cuda/linear/quantise.cuh"
#include "cuda/linear/stream_k.cuh"
#include "cuda/linear/weight_stage.cuh"
#include "cuda/ptx/tensor_map.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace {

constexpr int kConsumers = 256;
constexpr int kTileRows = 8; /* of a block */
constexpr int kUnitIn = 128, kPlanes = 2;

/* One unit of kTokens tokens of x, in the workspace and in shared memory. */
template <int kTokens, int kParts> struct UnitOfX {
  static constexpr int kPlaneBytes = kTokens * kPlanes * kUnitIn, kPairWords = 4 * kParts;
  static constexpr int kBytes = kPlaneBytes + kTokens / 2 * kPairWords * 4;

  /* Row of a token's high plane, which the low one follows. */
  static __device__ __forceinline__ int row_of(int token) {
    return token / 8 * 16 + token % 2 * 8 + token % 8 / 2 * 2;
  }
};

/* A warp quantises a unit of one token. Padding tokens and inputs become 0. */
template <int kTokens, int kParts>
__global__ void quantise_x(const __half *x, int x_stride, int n_tokens, int n_in, int n_units,
                           int n_token_tiles, unsigned char *to) {
  typedef UnitOfX<kTokens, kParts> Unit;
  constexpr int kPartLanes = 32 / kParts;
  int lane = threadIdx.x % 32, i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, unit = i % n_units,
      token = i / n_units;
  begin_overlapping();
  if (token >= n_token_tiles * kTokens) return;
  LaneInputs in = {{0, 0}};
  if (token < n_tokens) in = read_inputs<false>(x + (size_t)token * x_stride, unit * kUnitIn, n_in, lane);
  float v[4];
  uint32_t word[kPlanes];
  int sum;
  in.floats(v);
  const float d = quantise_values<kPlanes, kUnitIn / kParts>(v, word, &sum);
  unsigned char *at = to + ((size_t)(token / kTokens) * n_units + unit) * Unit::kBytes;
  token %= kTokens;
#pragma unroll
  for (int p = 0; p < kPlanes; p++) {
    int row = Unit::row_of(token) + p;
    *(uint32_t *)(at + row * kUnitIn + (lane / 4 ^ row % 8) * 16 + lane % 4 * 4) = word[p];
  }
  if (lane % kPartLanes > 0) return;
  uint32_t *pair =
      (uint32_t *)(at + Unit::kPlaneBytes) + token / 2 * Unit::kPairWords + lane / kPartLanes * 4;
  pair[token % 2] = __float_as_uint(d);
  pair[2 + token % 2] = (uint32_t)sum;
}

template <int kTokens_, int kParts_> struct Shape {
  static constexpr int kTokens = kTokens_, kParts = kParts_;
  static constexpr int kChunk = kTokens <= 32 ? kTokens : kTokens % 32 == 0 ? 32 : 24;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL /* nvcc refuses numbers that the code for another chip does not use */
  static constexpr int kBlockIn = kUnitIn / kParts;
  static constexpr int kColumns = kChunk * kPlanes, kSums = kColumns / 2;
  static constexpr int kProducts = kTokens / kChunk * kParts; /* of a unit */
  static constexpr int kUnits = kTokens <= 32 ? 4 : 2;        /* in a turn of the main loop */
#endif
  typedef UnitOfX<kTokens, kParts> X;
  static constexpr int kWBytes = kTileRows * 2 * 512, kGroupBytes = kTileRows * kParts * Bits4::kMetaBytes;
  static constexpr int kWAt = (X::kBytes + 127) / 128 * 128, kGroupsAt = kWAt + kWBytes;
  static constexpr int kStageBytes = (kGroupsAt + kGroupBytes + 1023) / 1024 * 1024;
  /* Few tokens leave shared memory and registers to the small kernels before and after. */
  static constexpr int kFitting = (kTokens <= 32 ? 160 : 215) * 1024 / kStageBytes;
  static constexpr int kStages = kFitting < 12 ? kFitting : 12;
  static constexpr int kRegisterThreads = kTokens <= 16 ? 512 : 384;
  /* Many need setmaxnreg, so their loaders are a whole warpgroup. */
  static constexpr bool kMovesRegisters = kTokens > 32;
  static constexpr int kThreads = kConsumers + (kMovesRegisters ? 128 : 96);
  static constexpr size_t kSharedBytes = (size_t)kStages * kStageBytes + 1024; /* to align it to 1024 */
  static_assert(kTokens % kChunk == 0 && kChunk % 8 == 0, "whole fragments");
};

struct Args {
  CUtensorMap tiles; /* boxes of a tile of kTileRows rows */
  QuantView w;
  const unsigned char *x;
  int n_tokens;
  int n_token_tiles;
  stream_k::Work work; /* of one token tile: a block does its part for each of them */
  Epilogue out;
  float *partial; /* [n_token_tiles][partial_floats] */
  size_t partial_floats;
  unsigned *counters; /* [n_token_tiles][n_tiles] */
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Calls part(tile, token tile, first step, steps) for the parts of this block in order. */
template <class Part> __device__ __forceinline__ void for_each_part(const Args &a, Part part) {
  int begin = stream_k::first_step(a.work, blockIdx.x), end = stream_k::first_step(a.work, blockIdx.x + 1);
  while (begin < end) {
    int tile = begin / a.work.n_steps, n_steps = min(end, (tile + 1) * a.work.n_steps) - begin;
    for (int token_tile = 0; token_tile < a.n_token_tiles; token_tile++)
      part(tile, token_tile, begin % a.work.n_steps, n_steps);
    begin += n_steps;
  }
}

template <class S> struct Barriers { uint64_t full[S::kStages], empty[S::kStages]; };

/* The next stage to fill or to read. */
struct Ring {
  int slot, phase;
  template <class S> __device__ __forceinline__ void advance() {
    if (++slot == S::kStages) slot = 0, phase ^= 1;
  }
};

/* One thread loads weights by two tensor copies a unit: one bulk copy a tile row takes longer than memory.
 * Rows past the matrix are 0. */
template <class S>
__device__ __forceinline__ void load_weights(const Args &a, unsigned char *stages, Barriers<S> &bar) {
  Ring ring = {0, 1};
  for_each_part(a, [&](int tile, int, int first, int n_steps) {
    for (int unit = first; unit < first + n_steps; unit++) {
      unsigned char *to = stages + ring.slot * S::kStageBytes + S::kWAt;
      barrier_wait(bar.empty + ring.slot, ring.phase);
      barrier_expect(bar.full + ring.slot, S::kWBytes);
#pragma unroll
      for (int i = 0; i < 2; i++)
        copy_box(to + i * kTileRows * 512, &a.tiles, bar.full + ring.slot, (unit * 2 + i) * 256,
                 tile * kTileRows);
      ring.advance<S>();
    }
  });
}

/* A warp loads scales and zeros, past the matrix those of the last tile row; results there are dropped. */
template <class S>
__device__ __forceinline__ void load_groups(const Args &a, unsigned char *stages, Barriers<S> &bar) {
  constexpr int kCopies = Bits4::kMetaCopies;
  int lane = threadIdx.x % 32;
  Ring ring = {0, 1};
  for_each_part(a, [&](int tile, int, int first, int n_steps) {
    for (int unit = first; unit < first + n_steps; unit++) {
      unsigned char *to = stages + ring.slot * S::kStageBytes + S::kGroupsAt;
      barrier_wait(bar.empty + ring.slot, ring.phase);
#pragma unroll
      for (int c = lane; c < kTileRows * S::kParts * kCopies; c += 32) {
        int row = c / (S::kParts * kCopies), p = c / kCopies % S::kParts;
        copy_meta<Bits4>(a.w, tile * kTileRows + row, unit * kUnitIn + p * S::kBlockIn, c % kCopies,
                         to + (row * S::kParts + p) * Bits4::kMetaBytes);
      }
      barrier_arrive_after_copies(bar.full + ring.slot);
      ring.advance<S>();
    }
  });
}

template <class S>
__device__ __forceinline__ void load_x(const Args &a, unsigned char *stages, Barriers<S> &bar) {
  Ring ring = {0, 1};
  for_each_part(a, [&](int, int token_tile, int first, int n_steps) {
    const unsigned char *from = a.x + ((size_t)token_tile * a.work.n_steps + first) * S::X::kBytes;
    for (int i = 0; i < n_steps; i++, from += S::X::kBytes) {
      barrier_wait(bar.empty + ring.slot, ring.phase);
      barrier_expect(bar.full + ring.slot, S::X::kBytes);
      copy_bulk(stages + ring.slot * S::kStageBytes, from, S::X::kBytes, bar.full + ring.slot);
      ring.advance<S>();
    }
  });
}

/* State of a consumer thread: of two units in turn the weights, and of two products in turn the sums. */
template <class S> struct Consumer {
  unsigned char *stages;
  Barriers<S> &bar;
  Ring ring;
  uint32_t q[2][4][4], scale[2][S::kParts], zero[2][S::kParts];
  const unsigned char *stage[2];
  uint64_t *empty[2];
  int sums[2][S::kSums];
  float y[S::kTokens / 2]; /* as store_fragments() takes it */

  __device__ __forceinline__ Consumer(unsigned char *shared, Barriers<S> &barriers)
      : stages(shared), bar(barriers), ring{0, 0}, sums{} {}

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < S::kTokens / 2; i++) y[i] = 0;
  }

  /* Reads the weights of the next unit. wgmma gives a warp 16 of its warpgroup's 64 rows. */
  template <int kOf> __device__ __forceinline__ void take() {
    int lane = threadIdx.x % 32, tile_row = threadIdx.x / 32;
    stage[kOf] = stages + ring.slot * S::kStageBytes;
    empty[kOf] = bar.empty + ring.slot;
    barrier_wait(bar.full + ring.slot, ring.phase);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const uint4 v[1] = {
          *(const uint4 *)(stage[kOf] + S::kWAt + (i * kTileRows + tile_row) * 512 + lane * 16)};
      Bits4::bytes(v, 0, q[kOf][2 * i]);
      Bits4::bytes(v, 1, q[kOf][2 * i + 1]);
    }
#pragma unroll
    for (int p = 0; p < S::kParts; p++) {
      const unsigned char *at = stage[kOf] + S::kGroupsAt + (tile_row * S::kParts + p) * Bits4::kMetaBytes;
      scale[kOf][p] = *(const uint32_t *)(at + lane / 4 * 4);
      zero[kOf][p] = at[32 + lane / 4];
    }
    ring.advance<S>();
  }

  /* Registers of sums that wgmma is about to write, or has written. */
  static __device__ __forceinline__ void touch(int (&c)[S::kSums]) {
#pragma unroll
    for (int i = 0; i < S::kSums; i++) c[i] = opaque(c[i]);
  }

  template <int kOf> static constexpr __device__ int buffer(int product) {
    return (kOf * S::kProducts + product) % 2;
  }

  /* Starts product i of unit kOf: chunk i / kParts of the tokens, part i % kParts of the inputs. */
  template <int kOf> __device__ __forceinline__ void start(int i) {
    constexpr int kSteps = 4 / S::kParts;
    int(&c)[S::kSums] = sums[buffer<kOf>(i)];
    touch(c);
    wgmma_fence();
    const uint64_t b = operand_b(stage[kOf] + i / S::kParts * S::kColumns * kUnitIn);
#pragma unroll
    for (int k = 0; k < kSteps; k++) {
      int step = i % S::kParts * kSteps + k;
      wgmma_u8s8<S::kColumns>(c, q[kOf][step], b + 2 * step, k > 0);
    }
    wgmma_commit();
  }

  /* Scales and sums of the lane's tokens 8 m + 2 t and 8 m + 2 t + 1 for product i. */
  template <int kOf> __device__ __forceinline__ void read_pairs(int i, uint4 (&x)[S::kChunk / 8]) const {
    const uint4 *pairs = (const uint4 *)(stage[kOf] + S::X::kPlaneBytes) + threadIdx.x % 4 * S::kParts;
#pragma unroll
    for (int m = 0; m < S::kChunk / 8; m++)
      x[m] = pairs[(i / S::kParts * (S::kChunk / 8) + m) * 4 * S::kParts + i % S::kParts];
  }

  /* Adds the finished sums of product i to y. The sums of row g + 8 are 16 times too large. */
  template <int kOf> __device__ __forceinline__ void add(int i, const uint4 (&pair)[S::kChunk / 8]) {
    int(&c)[S::kSums] = sums[buffer<kOf>(i)];
    const int part = i % S::kParts, first = i / S::kParts * (S::kChunk / 8);
    touch(c);
    const float s[2] = {f16_low(scale[kOf][part]), f16_high(scale[kOf][part]) * Bits4::kHigh};
    const int z[2] = {(int)(zero[kOf][part] & 15), (int)(zero[kOf][part] & 0xf0)};
#pragma unroll
    for (int m = 0; m < S::kChunk / 8; m++) {
      const uint4 x = pair[m];
#pragma unroll
      for (int j = 0; j < 2; j++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
          const int *at = c + 4 * (2 * m + j) + 2 * r;
          int v = 256 * at[0] + at[1] - z[r] * (int)(j ? x.w : x.z);
          float &to = y[4 * (first + m) + 2 * r + j];
          to = fmaf(s[r], __fmul_rn(__uint_as_float(j ? x.y : x.x), (float)v), to);
        }
    }
  }

  /* Finishes unit kOf, whose first product runs. Unless it is last, the first product of the next one runs
   * then. */
  template <int kOf, bool kIsLast> __device__ __forceinline__ void finish_unit() {
#pragma unroll
    for (int i = 0; i < S::kProducts; i++) {
      if (i + 1 < S::kProducts) {
        start<kOf>(i + 1);
      } else if (!kIsLast) {
        take<1 - kOf>();
        start<1 - kOf>(0);
      }
      uint4 x[S::kChunk / 8];
      read_pairs<kOf>(i, x);
      if (i + 1 < S::kProducts || !kIsLast)
        wgmma_wait<1>();
      else
        wgmma_wait<0>();
      add<kOf>(i, x);
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(empty[kOf]);
  }

  template <int kOf, int kUnits> __device__ __forceinline__ void finish_units() {
    finish_unit<kOf, kUnits == 1>();
    if constexpr (kUnits > 1) finish_units<1 - kOf, kUnits - 1>();
  }

  /* No wgmma runs from one turn of a loop to the next, because ptxas would serialise all of them. */
  template <int kUnits> __device__ __forceinline__ void multiply_some(int &n_units) {
    for (; n_units >= kUnits; n_units -= kUnits) {
      take<0>();
      start<0>(0);
      finish_units<0, kUnits>();
    }
  }

  __device__ __forceinline__ void multiply(int n_units) {
    multiply_some<S::kUnits>(n_units);
    multiply_some<1>(n_units);
  }
};

template <class S>
__device__ __forceinline__ void multiply_parts(const Args &a, unsigned char *stages, Barriers<S> &bar) {
  __shared__ int last;
  Consumer<S> c(stages, bar);
  for_each_part(a, [&](int tile, int token_tile, int first, int n_steps) {
    const int begin = tile * a.work.n_steps + first;
    c.clear();
    c.multiply(n_steps);
    if (stream_k::combine<S::kTokens / 2, kConsumers>(c.y, a.work, blockIdx.x, tile, begin, begin + n_steps,
                                                      threadIdx.x, a.partial + token_tile * a.partial_floats,
                                                      a.counters + token_tile * a.work.n_tiles, &last,
                                                      [] { named_barrier_sync<1, kConsumers>(); }))
      store_fragments<S::kTokens / 8>(a.out, tile * kTileRows + threadIdx.x / 32, token_tile * S::kTokens, 0,
                                      a.n_tokens, c.y);
  });
}

#endif

template <class S>
__global__ void __launch_bounds__(S::kRegisterThreads, 1) kernel(const __grid_constant__ Args a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char shared[];
  __shared__ Barriers<S> bar;
  unsigned char *stages = shared + (1024 - shared_address(shared) % 1024) % 1024;
  const int warp = warp_of_block();
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; i++) {
      barrier_init(bar.full + i, 2 + 32); /* x, weights, and copies of scales and zeros */
      barrier_init(bar.empty + i, kConsumers / 32);
    }
    barrier_init_fence();
  }
  __syncthreads();
  dependents_may_start();
  if (warp < kConsumers / 32) {
    if constexpr (S::kMovesRegisters) registers_up_to<232>();
    wait_for_previous();
    multiply_parts<S>(a, stages, bar);
  } else {
    if constexpr (S::kMovesRegisters) registers_down_to<40>();
    if (warp == kConsumers / 32 + 1) {
      load_groups<S>(a, stages, bar);
    } else if (threadIdx.x % 32 == 0) {
      if (warp == kConsumers / 32) load_weights<S>(a, stages, bar);
      if (warp == kConsumers / 32 + 2) {
        wait_for_previous();
        load_x<S>(a, stages, bar);
      }
    }
  }
#endif
}

/* Work of n_tiles tiles. Where the tiles are not even over the blocks, every j blocks get k tiles if it keeps
 * nearly all SMs: then few blocks have parts of two tiles (gate and up of Qwen3-8B: three tiles for two
 * blocks). Fewer than 256 inputs in a block are all pipeline ramp. */
stream_k::Work divide(int n_tiles, int n_units, int n_sms) {
  stream_k::Work work = stream_k::even_work(n_tiles, n_units, n_sms, 2);
  if (work.n_blocks < n_sms) return work;
  for (int j = 2; j <= 8; j *= 2) {
    int k = ceil_div(n_tiles * j, n_sms), blocks = n_tiles * j / k;
    if (n_tiles * j % k == 0 && 20 * blocks >= 19 * n_sms) {
      work.n_blocks = blocks;
      return work;
    }
  }
  return work;
}

stream_k::Work work_of(const DeviceLinear *w, const DeviceLimits &device) {
  return divide(ceil_div(ceil_div(w->n_out, kTileOut), kTileRows), quant_tiles_in(*w) / 2, device.n_sms);
}

template <int kTokens> size_t x_bytes(const DeviceLinear *w, int n_tokens) {
  return align_up((size_t)ceil_div(n_tokens, kTokens) * (size_t)(quant_tiles_in(*w) / 2) *
                  UnitOfX<kTokens, 2>::kBytes);
}

template <int kTokens> size_t workspace_of(const DeviceLinear *w, int n_tokens, const DeviceLimits &device) {
  return x_bytes<kTokens>(w, n_tokens) +
         (size_t)ceil_div(n_tokens, kTokens) * stream_k::partial_bytes(device.n_sms, kConsumers, kTokens / 2);
}

template <class S> Status launch_shape(const LinearArgs &args, Error *err) {
  const QuantView w = quant_view(*args.w);
  const int n_units = w.n_tiles_in / 2, n_token_tiles = ceil_div(args.n_tokens, S::kTokens);
  const stream_k::Work work = work_of(args.w, args.device);
  Args a = {{},
            w,
            args.workspace,
            args.n_tokens,
            n_token_tiles,
            work,
            args.out,
            (float *)(args.workspace + x_bytes<S::kTokens>(args.w, args.n_tokens)),
            stream_k::partial_bytes(args.device.n_sms, kConsumers, S::kTokens / 2) / sizeof(float),
            args.counters};
  const cuuint64_t row = (cuuint64_t)w.n_tiles_in * 256;
  TRY(map_boxes(w.tiles, {row, (cuuint64_t)w.n_tiles_out, 0}, {2 * row, 0}, {256, kTileRows, 1},
                CU_TENSOR_MAP_SWIZZLE_NONE, args.w->name, &a.tiles, err));
  TRY(launch(quantise_x<S::kTokens, S::kParts>,
             dim3((unsigned)ceil_div((long)n_units * n_token_tiles * S::kTokens, 8)), 256, 0, args.stream,
             args.dependent, args.w->name, err, args.x, args.x_stride, args.n_tokens, w.n_in, n_units,
             n_token_tiles, args.workspace));
  return launch(kernel<S>, dim3((unsigned)work.n_blocks), S::kThreads, S::kSharedBytes, args.stream,
                args.dependent, args.w->name, err, a);
}

template <int kTokens> Status launch_tokens(const LinearArgs &args, Error *err) {
  return args.w->group % 128 == 0 ? launch_shape<Shape<kTokens, 1>>(args, err)
                                  : launch_shape<Shape<kTokens, 2>>(args, err);
}

struct TokenShape {
  int tokens;
  Status (*launch)(const LinearArgs &args, Error *err);
  size_t (*workspace)(const DeviceLinear *w, int n_tokens, const DeviceLimits &device);
};

template <int kTokens> constexpr TokenShape shape() {
  return {kTokens, launch_tokens<kTokens>, workspace_of<kTokens>};
}

constexpr TokenShape shapes[] = {shape<16>(), shape<24>(), shape<32>(), shape<48>(),
                                 shape<64>(), shape<96>(), shape<128>()};

size_t workspace(const DeviceLinear *w, int n_tokens, const DeviceLimits &device) {
  size_t most = 0;
  for (const TokenShape &s : shapes) most = std::max(most, s.workspace(w, n_tokens, device));
  return most;
}

/* Launches the `variant`-th shape, or the smallest that holds all tokens, or the largest. */
Status launch_planes_wgmma(const LinearArgs &args, Error *err) {
  if (args.variant > (int)(sizeof shapes / sizeof *shapes))
    return error_set(err, STATUS_USAGE, "%s: there is no tile shape %d", args.w->name, args.variant);
  const TokenShape *s = shapes;
  while (s + 1 < std::end(shapes) && s->tokens < args.n_tokens) s++;
  if (args.variant > 0) s = &shapes[args.variant - 1];
  return s->launch(args, err);
}

} // namespace

const LinearKernel planes_wgmma_kernel = {workspace, launch_planes_wgmma, false};
