/* planes_wgmma.cu - x as int8 planes and 4-bit weights on Hopper: weights are the register operand of wgmma,
 * sums are exact in int32.
 *
 *     y[m][o] = sum_p s[p][o] d[m][p] (sum_k q X - z[p][o] sum_k X)     x ~ d X, parts p: quantise.cuh
 *
 *   planes_wgmma  up to 32 tokens, two planes: x to 16 bits, d = max |x| / 32512
 *   int8_wgmma    9 tokens and more, one plane: x to 8 bits, d = max |x| / 127 (--act int8)
 *
 * The first of two kernels quantises x, or with LinearCall.norm the residual stream times the norm's weight.
 * It does not run if x comes as LinearCall.planes. The second multiplies. Its blocks and its ring are those
 * of wgmma_parts.cuh; with a norm it multiplies its sums by 1 / rms. A unit is 128 inputs. A product sums one
 * part of a unit for kChunk tokens. The four consumer warps on a scheduler take turns: one waits for wgmma
 * while others unpack or scale.
 *
 *   stage  a unit of x (quantise.cuh); then as wgmma_parts.cuh
 *
 * PRECOND  group % kBlockIn == 0, kBlockIn = 128 / kParts: 128 or 64; at most as many blocks as SMs.
 * READS    weights once for each token tile, x once for every 64 kOutGroups outputs. */
#include "cuda/kernels/linear/narrow/next.cuh"
#include "cuda/kernels/linear/narrow/wgmma_parts.cuh"
#include "cuda/kernels/linear/quantise.cuh"

namespace {

using namespace wgmma_parts;

/* A warp quantises a unit of one token. Padding tokens and inputs become 0. */
template <int kTokens, int kParts, int kPlanes>
__global__ void quantise_x(const __half *x, int x_stride, int n_tokens, int n_in, int n_units,
                           unsigned char *to) {
  int lane = threadIdx.x % 32, i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, unit = i % n_units,
      token = i / n_units;
  begin_overlapping();
  if (token >= (n_tokens + kTokens - 1) / kTokens * kTokens) return;
  LaneInputs in = {{0, 0}};
  if (token < n_tokens) in = read_inputs<false>(x + (size_t)token * x_stride, unit * kUnitIn, n_in, lane);
  float v[4];
  in.floats(v);
  PlanesUnit<kTokens, kParts, kPlanes>::store(to, token / kTokens * n_units + unit, token % kTokens, lane, v);
}

/* quantise_x() of fp32 rows times the weight of their RMSNorm. squares [n_tokens][n_units]: each unit's sum
 * of squares. From these the matmul computes 1 / rms, by which it multiplies its sums. The weight is read
 * before the wait. */
template <int kTokens, int kParts>
__global__ void quantise_rows(const float *x, const float *weight, int n_tokens, int n_in, int n_units,
                              unsigned char *to, float *squares) {
  const int lane = threadIdx.x % 32, i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32,
            unit = i % n_units, token = i / n_units;
  dependents_may_start();
  const int k = unit * kUnitIn + first_input_of(lane);
  float2 w[2], v[2];
  read_pairs(weight, k, n_in, w);
  wait_for_previous();
  if (token >= (n_tokens + kTokens - 1) / kTokens * kTokens) return;
#pragma unroll
  for (int j = 0; j < 2; j++)
    v[j] = token < n_tokens && k + 8 * j < n_in
               ? __ldcg((const float2 *)(x + (size_t)token * n_in + k + 8 * j))
               : make_float2(0, 0);
  const float sum =
      store_normed_unit<kTokens, kParts>(to, token / kTokens * n_units + unit, token % kTokens, v, w);
  if (lane == 0 && token < n_tokens) squares[i] = sum;
}

template <int kTokens, int kParts, int kPlanes_, int kOutGroups, int kInGroups, int kChunk_>
struct Shape : ShapeOf<Bits4, kTokens, kUnitIn, kParts, kOutGroups, kInGroups,
                       PlanesUnit<kTokens, kParts, kPlanes_>::kBytes, 176> {
  static constexpr int kPlanes = kPlanes_, kConsumers = 128 * kOutGroups * kInGroups;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL /* nvcc refuses constants that the code for another chip does not use */
  static constexpr bool kMovesRegisters = false;
  static constexpr int kChunk = kChunk_, kColumns = kChunk * kPlanes, kSums = kColumns / 2;
  static constexpr int kProducts = kTokens / kChunk * kParts; /* products of a unit */
  static_assert(kTokens % kChunk == 0 && kChunk % 8 == 0, "whole fragments");
  static constexpr bool kPairsEarly = kPlanes == 1 && kTokens <= 32; /* else registers do not suffice */
#endif
  typedef PlanesUnit<kTokens, kParts, kPlanes> X;
  static constexpr int kThreads = kConsumers + 96;

  static __device__ __forceinline__ int first_token(int, int token_tile) {
    return token_tile * kTokens;
  }
};

constexpr int kMostTokens = LINEAR_MOST_PLANES; /* most tokens of a call with two planes */

struct Args : PartArgs {
  const unsigned char *x;
  const float *squares; /* of a norm's rows, by quantise_rows() or the kernel that made the planes; or NULL */
  float eps;
  NextArgs next;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* State of a consumer thread. Shared addresses are 32-bit numbers, and a lane's offsets are computed once:
 * the compiler would compute them again for each unit. */
template <class S> struct Consumer : StageCursor<S, S::kInGroups> {
  const float *inverse; /* [tokens] 1 / rms in shared memory, or NULL */
  using StageCursor<S, S::kInGroups>::stage;
  using StageCursor<S, S::kInGroups>::full;
  using StageCursor<S, S::kInGroups>::parity;
  using StageCursor<S, S::kInGroups>::advance;
  const uint32_t weights_at, groups_at, pairs_at;
  uint32_t x_at; /* the address of the stage; uniform (from a shuffle) where registers suffice */
  uint32_t q[4][4], scale[S::kParts], zero[S::kParts];
  float y[S::kSumFloats]; /* as store_fragments() takes it */

  __device__ __forceinline__ Consumer(const Ring &ring, int first_slot)
      : StageCursor<S, S::kInGroups>(ring, first_slot),
        weights_at(opaque((int)(S::kWAt + threadIdx.x % S::kGroupThreads * 16))),
        groups_at(
            opaque((int)(S::kGroupsAt + tile_row<S>() * S::kParts * Bits4::kMetaBytes + group_row() * 4))),
        pairs_at(opaque((int)(S::X::kPlaneBytes + threadIdx.x % 4 * S::kParts * 16))) {}

  static __device__ __forceinline__ int group_row() { return threadIdx.x % 32 / 4; }

  /* Waits for the next unit and reads its weights. */
  __device__ __forceinline__ void take() {
    x_at = S::kProducts == 1 && S::kPlanes == 2 ? __shfl_sync(~0u, stage, 0) : stage;
    barrier_wait(full, parity);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const uint4 v[1] = {load_shared_16(stage + weights_at + i * S::kTileRows * 512)};
      Bits4::bytes(v, 0, q[2 * i]);
      Bits4::bytes(v, 1, q[2 * i + 1]);
    }
#pragma unroll
    for (int p = 0; p < S::kParts; p++) {
      scale[p] = load_shared_4(stage + groups_at + p * Bits4::kMetaBytes);
      zero[p] = load_shared_1(stage + groups_at + p * Bits4::kMetaBytes + 32 - 3 * group_row());
    }
  }

  /* Frees the unit's stage, and goes on to this thread's next unit. `read` combines the scales that add()
   * read. barrier_arrive_after_reads() takes it as a fake operand, so it arrives after the reads. */
  __device__ __forceinline__ void release(uint32_t read) {
    __syncwarp();
    barrier_arrive_after_reads(full + S::kStages * 8, threadIdx.x % 32 == 0, read);
    advance();
  }

  /* Starts product i: chunk i / kParts of the tokens, part i % kParts of the inputs. */
  __device__ __forceinline__ void start(int i, int (&c)[S::kSums]) {
    constexpr int kSteps = 4 / S::kParts;
    touch(c);
    wgmma_fence();
    const uint32_t x = x_at + i / S::kParts * S::kColumns * kUnitIn;
#pragma unroll
    for (int k = 0; k < kSteps; k++) {
      int step = i % S::kParts * kSteps + k;
      wgmma_u8s8<S::kColumns>(c, q[step], operand_b_at(x, step), k > 0);
    }
    wgmma_commit();
  }

  /* Scales and sums of the lane's tokens 8m + 2t and 8m + 2t + 1 for product i. */
  __device__ __forceinline__ uint4 pair(int i, int m) const {
    return load_shared_16(stage + pairs_at +
                          ((i / S::kParts * (S::kChunk / 8) + m) * 4 * S::kParts + i % S::kParts) * 16);
  }

  /* Waits for product i, multiplies its sums by their scales and adds them to y. Sums of rows 8 to 15 of a
   * tile are 16 times too large, so their scales are multiplied by kHigh, 1 / 16. Returns the scales that it
   * read, combined, for release(). */
  __device__ __forceinline__ uint32_t add(int i, int (&c)[S::kSums]) {
    const int part = i % S::kParts, first = i / S::kParts * (S::kChunk / 8);
    const float s[2] = {f16_low(scale[part]), f16_high(scale[part]) * Bits4::kHigh};
    const int z[2] = {-(int)(zero[part] & 15), -(int)(zero[part] & 0xf0)};
    uint32_t read = scale[part] | zero[part];
    uint4 pairs[S::kChunk / 8];
    if constexpr (S::kPairsEarly) {
#pragma unroll
      for (int m = 0; m < S::kChunk / 8; m++) pairs[m] = pair(i, m);
    }
    wgmma_wait<0>();
    touch(c);
#pragma unroll
    for (int m = 0; m < S::kChunk / 8; m++) {
      const uint4 x = S::kPairsEarly ? pairs[m] : pair(i, m);
      read |= x.x;
#pragma unroll
      for (int j = 0; j < 2; j++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
          const int *at = S::kPlanes == 2 ? c + 4 * (2 * m + j) + 2 * r : c + 4 * m + 2 * r + j;
          const int v = (S::kPlanes == 2 ? 256 * at[0] + at[1] : at[0]) + z[r] * (int)(j ? x.w : x.z);
          float &to = y[4 * (first + m) + 2 * r + j];
          to = fmaf(s[r], __fmul_rn(__uint_as_float(j ? x.y : x.x), (float)v), to);
        }
    }
    return read;
  }

  /* Computes 1 / rms of all tokens, a warp each, for normalise(). */
  __device__ __forceinline__ void read_norm(const Args &a, float *to) {
    inverse = a.squares ? to : nullptr;
    if (!a.squares) return;
    for (int token = threadIdx.x / 32; token < a.n_tokens; token += S::kConsumers / 32) {
      float sum = 0;
      for (int unit = threadIdx.x % 32; unit < a.n_units; unit += 32)
        sum += __ldcg(a.squares + token * a.n_units + unit);
      sum = warp_sum(sum);
      if (threadIdx.x % 32 == 0) to[token] = rsqrtf(sum / (float)a.w.n_in + a.eps);
    }
    if constexpr (S::kInGroups == 1) named_barrier_sync<S::kConsumers>(3); /* else exchange_sums() syncs */
  }

  /* Multiplies the finished sums of kN fragments, which begin with token `first`, by each token's 1 / rms. */
  template <int kN> __device__ __forceinline__ void normalise(float *sums, int first) const {
    if constexpr (S::kPlanes == 1) return;
    if (!inverse) return;
#pragma unroll
    for (int n = 0; n < kN; n++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const float by = inverse[first + 8 * n + threadIdx.x % 4 * 2 + i];
        sums[4 * n + i] *= by, sums[4 * n + i + 2] *= by;
      }
  }

  /* y = the sums over this thread's next n units. */
  __device__ __forceinline__ void multiply(int n) {
#pragma unroll
    for (int i = 0; i < S::kSumFloats; i++) y[i] = 0;
    for (; n > 0; n--) {
      uint32_t read = 0;
      take();
#pragma unroll
      for (int i = 0; i < S::kProducts; i++) {
        int sums[S::kSums] = {};
        start(i, sums);
        read |= add(i, sums);
      }
      release(read);
    }
  }
};

#endif

template <class S, LinearNextKind kNext>
__global__ void __launch_bounds__(S::kThreads, 1) kernel(const __grid_constant__ Args a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __shared__ float inverse[S::kPlanes == 1 ? 1 : kMostTokens];
  run_block<S, Consumer<S>>(
      a, nullptr,
      [&](const Part &part) {
        const size_t first = (size_t)token_tile_of(a, part.tile) * a.n_units + part.first;
        return [x = a.x + first * S::X::kBytes](int, unsigned char *stage, uint64_t *full) mutable {
          barrier_expect(full, S::X::kBytes);
          copy_bulk(stage, x, S::X::kBytes, full);
          x += S::X::kBytes;
        };
      },
      [&](Consumer<S> &c) {
        if constexpr (S::kPlanes == 2) c.read_norm(a, inverse);
      },
      [&](const Ring &ring, const Consumer<S> &c, float(&y)[4 * S::kMine], const Part &part, int group) {
        if constexpr (kNext == LINEAR_NEXT_NORM)
          finish_next<S, NormEnd<S>>(a, a.next, ring, c, y, part, group);
        else if constexpr (kNext == LINEAR_NEXT_GATED)
          finish_next<S, GatedEnd<S>>(a, a.next, ring, c, y, part, group);
        else if constexpr (kNext == LINEAR_NEXT_HEADS)
          finish_next<S, HeadsEnd<S>>(a, a.next, ring, c, y, part, group);
        else
          finish<S>(a, c, y, part, group);
      });
#endif
}

/* kParts of a matrix with groups of `group` inputs, a multiple of 64. */
int parts_of(int group) {
  return group % kUnitIn == 0 ? 1 : 2;
}

template <int kTokens, int kPlanes> Status launch_quantise(const LinearArgs &args, Error *err) {
  const int n_units = quant_tiles_in(*args.w) / 2;
  const long warps = (long)n_units * ceil_div(args.n_tokens, kTokens) * kTokens;
  const bool whole = parts_of(args.w->group) == 1;
  return launch(whole ? quantise_x<kTokens, 1, kPlanes> : quantise_x<kTokens, 2, kPlanes>,
                dim3((unsigned)ceil_div(warps, 8)), 256, 0, args.stream, args.dependent, args.w->name, err,
                args.x, args.x_stride, args.n_tokens, args.w->n_in, n_units, args.workspace);
}

constexpr int kTileMultiple = 96; /* tokens: a multiple of the tiles of all shapes with two planes */

/* Bytes of x for tokens rounded up to `tile`, a multiple of each shape's tile: any shape may be forced. */
size_t x_bytes(const DeviceLinear *w, int n_tokens, int tile, int n_planes) {
  return (size_t)(quant_tiles_in(*w) / 2) * align_up((size_t)n_tokens, (size_t)tile) *
         (size_t)(n_planes * kUnitIn + 8 * parts_of(w->group));
}

template <int kTokens> Status launch_quantise_rows(const LinearArgs &args, float *squares, Error *err) {
  const int n_units = quant_tiles_in(*args.w) / 2;
  const long warps = (long)n_units * ceil_div(args.n_tokens, kTokens) * kTokens;
  return launch(parts_of(args.w->group) == 1 ? quantise_rows<kTokens, 1> : quantise_rows<kTokens, 2>,
                dim3((unsigned)ceil_div(warps, 4)), 128, 0, args.stream, args.dependent, args.w->name, err,
                args.norm.rows, args.norm.weight, args.n_tokens, args.w->n_in, n_units, args.workspace,
                squares);
}

/* Offset of the sums of squares in memory of linear_planes_bytes(). */
size_t squares_at(int n_in) {
  return (size_t)ceil_div(n_in, kUnitIn) * kMostTokens * (2 * kUnitIn + 16);
}

/* Sets the operand of a call: the planes that it has, or x, which a launch quantises first. */
template <int kTokens, int kPlanes> Status prepare_x(const LinearArgs &args, Args &a, Error *err) {
  if (args.planes) {
    a.x = (const unsigned char *)args.planes, a.eps = args.norm.eps;
    if (args.norm.rows) a.squares = linear_planes_squares((void *)args.planes, args.w->n_in);
    return STATUS_OK;
  }
  a.x = args.workspace;
  if (kPlanes == 1 || !args.norm.rows) return launch_quantise<kTokens, kPlanes>(args, err);
  float *squares = (float *)(args.workspace + x_bytes(args.w, args.n_tokens, kTileMultiple, 2));
  a.squares = squares, a.eps = args.norm.eps;
  return launch_quantise_rows<kTokens>(args, squares, err);
}

/* LinearCall.next as arguments of the kernel. */
NextArgs next_args(const LinearArgs &args) {
  const LinearNext &next = args.next;
  NextArgs a = {};
  if (next.kind == LINEAR_NEXT_HEADS) a.heads = *next.heads;
  if (next.kind != LINEAR_NEXT_NORM && next.kind != LINEAR_NEXT_GATED) return a;
  const int n = next.kind == LINEAR_NEXT_GATED ? args.w->n_out / 2 : args.w->n_out;
  a.planes = (unsigned char *)next.planes;
  a.squares = linear_planes_squares(next.planes, n);
  a.norm = next.norm, a.n_units = ceil_div(n, kUnitIn);
  return a;
}

template <class S, LinearNextKind kNext = LINEAR_NEXT_NONE>
Status launch_shape(const LinearArgs &args, Error *err) {
  Args a = {};
  TRY(part_args<S>(args, &a, err));
  TRY((prepare_x<S::kTokens, S::kPlanes>(args, a, err)));
  a.next = next_args(args);
  return launch_resident(kernel<S, kNext>, dim3((unsigned)a.cut.n_blocks), S::kThreads,
                         S::kSharedBytes + (kNext ? staging_bytes<S>() : 0), args.stream, args.dependent,
                         args.w->name, err, a);
}

/* Launches a call with LinearCall.next or planes. */
template <int kTokens> Status launch_next(const LinearArgs &args, Error *err) {
  typedef Shape<kTokens, 1, 2, 2, 2, kTokens> S;
  typedef Shape<kTokens, 1, 2, 4, 1, kTokens> Wide; /* a tile has 128 gated products, a unit of down's x */
  switch (args.next.kind) {
  case LINEAR_NEXT_NORM: return launch_shape<S, LINEAR_NEXT_NORM>(args, err);
  case LINEAR_NEXT_HEADS: return launch_shape<S, LINEAR_NEXT_HEADS>(args, err);
  case LINEAR_NEXT_GATED: return launch_shape<Wide, LINEAR_NEXT_GATED>(args, err);
  default: return launch_shape<S>(args, err);
  }
}

template <int kTokens, int kPlanes, int kOutGroups, int kInGroups, int kChunk>
Status launch_tokens(const LinearArgs &args, Error *err) {
  constexpr int kOfHalves =
      kPlanes == 2 && kTokens > 24 ? 16 : kTokens; /* groups of 64: a tile of 32 needs too many registers */
  constexpr int kHalfChunk = kOfHalves < kChunk ? kOfHalves : kChunk;
  return parts_of(args.w->group) == 1
             ? launch_shape<Shape<kTokens, 1, kPlanes, kOutGroups, kInGroups, kChunk>>(args, err)
             : launch_shape<Shape<kOfHalves, 2, kPlanes, kOutGroups, kInGroups, kHalfChunk>>(args, err);
}

struct TokenShape {
  int tokens;
  Status (*launch)(const LinearArgs &args, Error *err);
};

template <int kTokens, int kPlanes, int kOutGroups, int kInGroups, int kChunk> constexpr TokenShape shape() {
  return {kTokens, launch_tokens<kTokens, kPlanes, kOutGroups, kInGroups, kChunk>};
}

constexpr TokenShape two_planes[] = {shape<16, 2, 2, 2, 16>(), shape<24, 2, 2, 2, 24>(),
                                     shape<32, 2, 2, 2, 32>()};

constexpr TokenShape one_plane[] = {shape<32, 1, 2, 2, 32>(), shape<64, 1, 2, 2, 32>()};

size_t two_planes_workspace(const DeviceLinear *w, int n_tokens, const DeviceLimits &) {
  return x_bytes(w, n_tokens, kTileMultiple, 2) + kMostTokens * quant_tiles_in(*w) / 2 * sizeof(float);
}

size_t one_plane_workspace(const DeviceLinear *w, int n_tokens, const DeviceLimits &) {
  return x_bytes(w, n_tokens, 64, 1);
}

/* Launches shape `variant`, counted from 1; 0: the smallest that holds all tokens, or the largest if none
 * does. */
template <int kShapes>
Status launch_one_of(const TokenShape (&shapes)[kShapes], const LinearArgs &args, Error *err) {
  const TokenShape *s = shapes;
  while (s + 1 < shapes + kShapes && s->tokens < args.n_tokens) s++;
  TRY(check_variant(args, kShapes, err));
  if (args.variant > 0) s = &shapes[args.variant - 1];
  return s->launch(args, err);
}

Status launch_two_planes(const LinearArgs &args, Error *err) {
  if (args.next.kind || args.planes) {
    if (parts_of(args.w->group) > 1)
      return error_set(err, STATUS_FAILED, "%s: planes of whole units need groups of 128", args.w->name);
    return args.n_tokens <= 16   ? launch_next<16>(args, err)
           : args.n_tokens <= 24 ? launch_next<24>(args, err)
                                 : launch_next<32>(args, err);
  }
  return launch_one_of(two_planes, args, err);
}

Status launch_one_plane(const LinearArgs &args, Error *err) {
  return launch_one_of(one_plane, args, err);
}

} // namespace

const LinearKernel planes_wgmma_kernel = {two_planes_workspace, launch_two_planes, false};
const LinearKernel int8_wgmma_kernel = {one_plane_workspace, launch_one_plane, false};

size_t linear_planes_bytes(int n_in, int n_tokens) {
  return squares_at(n_in) + (size_t)n_tokens * ceil_div(n_in, kUnitIn) * sizeof(float);
}

float *linear_planes_squares(void *planes, int n_in) {
  return (float *)((unsigned char *)planes + squares_at(n_in));
}

int linear_planes_tokens(int n_tokens) {
  return n_tokens <= 16 ? 16 : n_tokens <= 24 ? 24 : 32;
}
