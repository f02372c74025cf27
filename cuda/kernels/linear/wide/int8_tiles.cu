/* int8_tiles.cu - many tokens with int8 activations on Hopper (--act int8): weights less their zero points as
 * the int8 register operand of wgmma, sums exact in int32.
 *
 *     y[m][o] = sum_p s[p][o] d[m][p] sum_k (q[k][o] - z[p][o]) X[m][k]     x ~ d X, d = max |x| / 127
 *
 * One kernel quantises x, or the RMSNorm of rows (LinearCall.norm); the next multiplies. Its blocks, their
 * ring and epilogues are those of wgmma_tiles.cuh. A unit is 128 inputs in kParts parts with a scale
 * each. A product sums one part of the inputs for a slice of 64 tokens, and a warpgroup has two sets of
 * registers: while it scales the sums of one slice and adds them to y, the next slice's product runs.
 *
 * A tile has 128 tokens, or 256, so that weights are unpacked half as often. ptxas waits for all
 * products before the branch at the end of a loop. So a turn of the loop of 128 tokens is several units in
 * one run of instructions, and only its end waits for all. For 256 tokens registers do not suffice for that:
 * a turn is one unit (multiply_long()).
 *
 * x in a stage: a unit for each 128 tokens (quantise.cuh), whose sums of integers are not filled. Nor are
 * tokens past the last; their results are dropped.
 * PRECOND  group % kBlockIn == 0, kBlockIn = 128 / kParts: 128 or 64; tiles of 256 tokens: kParts == 1.
 * READS    weights once for every kTokens tokens, x once for every 128 outputs. */
#include "cuda/kernels/linear/quantise.cuh"
#include "cuda/kernels/linear/tile_times.h"
#include "cuda/kernels/linear/wide/wgmma_tiles.cuh"
#include "cuda/kernels/ptx/block_sum.cuh"

namespace {

using namespace wgmma_tiles;

constexpr int kUnitTokens = 128, kUnitsAtOnce = 4; /* units that a warp quantises */

template <int kParts> using Unit = PlanesUnit<kUnitTokens, kParts, 1>;

/* Reads eight inputs of a row from k on; zeros past the row's end. */
__device__ __forceinline__ uint4 read_eight(const __half *row, int k, int n_in) {
  if (k + 8 <= n_in) return __ldcg((const uint4 *)(row + k));
  uint32_t pair[4];
#pragma unroll
  for (int i = 0; i < 4; i++, k += 2)
    pair[i] = (k < n_in ? __half_as_ushort(row[k]) : 0u) |
              (k + 1 < n_in ? (uint32_t)__half_as_ushort(row[k + 1]) << 16 : 0u);
  return make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

__device__ __forceinline__ uint4 from_neighbour(const uint4 &v) {
  return make_uint4(__shfl_xor_sync(~0u, v.x, 1), __shfl_xor_sync(~0u, v.y, 1), __shfl_xor_sync(~0u, v.z, 1),
                    __shfl_xor_sync(~0u, v.w, 1));
}

/* A warp quantises kUnitsAtOnce units of one token. Padding inputs become 0. A lane reads inputs
 * 8 lane .. 8 lane + 7 of the first two units, then of the last two. An even lane and the next have 16
 * inputs, which become 16 bytes of a plane: bytes of the first two units in the even lane, of the last two in
 * the odd lane. */
template <int kParts>
__global__ void quantise_x(const __half *x, int x_stride, int n_in, int n_units, unsigned char *to) {
  typedef Unit<kParts> X;
  const int lane = threadIdx.x % 32, token = blockIdx.x, row = token % kUnitTokens;
  const int first = (int)(blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32) * kUnitsAtOnce;
  const bool odd = lane % 2;
  begin_overlapping();
  uint4 read[2];
#pragma unroll
  for (int i = 0; i < 2; i++)
    read[i] = read_eight(x + (size_t)token * x_stride, (first + 2 * i) * kUnitIn + 8 * lane, n_in);
  const uint4 other = from_neighbour(odd ? read[0] : read[1]), low = odd ? other : read[0],
              high = odd ? read[1] : other;
  const LaneInputs in[4] = {{{low.x, high.x}}, {{low.y, high.y}}, {{low.z, high.z}}, {{low.w, high.w}}};
  float v[4][4], top = 0;
#pragma unroll
  for (int t = 0; t < 4; t++) {
    in[t].floats(v[t]);
#pragma unroll
    for (int i = 0; i < 4; i++) top = fmaxf(top, fabsf(v[t][i]));
  }
#pragma unroll
  for (int o = 8 / kParts; o > 1; o /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, o));
  const float inverse = inverse_scale<1>(top);
  uint32_t word[4][1];
#pragma unroll
  for (int t = 0; t < 4; t++) quantise_by<1>(inverse, v[t], word[t]);
  const int unit = first + 2 * odd + lane / 16, chunk = lane / 2 % 8;
  if (unit >= n_units) return;
  unsigned char *at = to + ((size_t)(token / kUnitTokens) * n_units + unit) * X::kBytes;
  *(uint4 *)(at + row * kUnitIn + (chunk ^ row % 8) * 16) =
      make_uint4(word[0][0], word[1][0], word[2][0], word[3][0]);
  if (chunk % (8 / kParts) == 0)
    X::pair_of(at, row, chunk / (8 / kParts))[row % 2] = __float_as_uint(top * (1.0f / 127));
}

/* quantise_x() of the RMSNorm of rows in fp32, rounded to fp16 as RMSNorm's own kernel does. A block has a
 * row in registers: n % 128 == 0, n <= 8 kThreads. Lanes 4 c .. 4 c + 3 make bytes 16 c .. 16 c + 15 of a
 * unit. */
template <int kParts, int kThreads>
__global__ void __launch_bounds__(kThreads)
    quantise_norm(const float4 *rows, const float4 *weight, float eps, int n, unsigned char *to) {
  typedef Unit<kParts> X;
  dependents_may_start();
  const int pieces = n / 4, token = blockIdx.x, row = token % kUnitTokens, lane = threadIdx.x % 32;
  float4 w[2], v[2];
#pragma unroll
  for (int c = 0; c < 2; c++) {
    const int i = c * kThreads + threadIdx.x;
    w[c] = i < pieces ? weight[i] : make_float4(0, 0, 0, 0);
  }
  wait_for_previous();
  float squares = 0;
#pragma unroll
  for (int c = 0; c < 2; c++) {
    const int i = c * kThreads + threadIdx.x;
    v[c] = i < pieces ? rows[(size_t)token * pieces + i] : make_float4(0, 0, 0, 0);
    squares += v[c].x * v[c].x + v[c].y * v[c].y + v[c].z * v[c].z + v[c].w * v[c].w;
  }
  const float scale = rsqrtf(block_sum<kThreads>(squares) / n + eps);
#pragma unroll
  for (int c = 0; c < 2; c++) {
    const int i = c * kThreads + threadIdx.x;
    if (i >= pieces) continue; /* whole warps */
    const __half2 pair[2] = {__floats2half2_rn(v[c].x * scale * w[c].x, v[c].y * scale * w[c].y),
                             __floats2half2_rn(v[c].z * scale * w[c].z, v[c].w * scale * w[c].w)};
    const LaneInputs in = from_neighbours(pair);
    float x[4];
    uint32_t word[1];
    in.floats(x);
    const float top =
        segment_max<32 / kParts>(fmaxf(fmaxf(fabsf(x[0]), fabsf(x[1])), fmaxf(fabsf(x[2]), fabsf(x[3]))));
    quantise_by<1>(inverse_scale<1>(top), x, word);
    unsigned char *at = to + ((size_t)(token / kUnitTokens) * (n / kUnitIn) + i / 32) * X::kBytes;
    *(uint32_t *)(at + row * kUnitIn + (lane / 4 ^ row % 8) * 16 + lane % 4 * 4) = word[0];
    if (lane % (32 / kParts) == 0)
      X::pair_of(at, row, lane / (32 / kParts))[row % 2] = __float_as_uint(top * (1.0f / 127));
  }
}

template <int kTokens, int kParts_>
struct Shape
    : ShapeOf<Bits4, kTokens, kUnitIn / kTileIn, kTokens / kUnitTokens * Unit<kParts_>::kBytes, 1, 8> {
  static constexpr int kParts = kParts_;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL /* nvcc refuses constants that the code for another chip does not use */
  static constexpr bool kLong = kTokens > kUnitTokens; /* a thread then has 128 registers of y, 64 of Sums */
  static constexpr int kLoadRegisters = kLong ? 24 : 40, kMultiplyRegisters = kLong ? 240 : 232;
  static constexpr int kSteps = 4 / kParts, kTiles = 2 / kParts; /* of a part */
#endif
  typedef Unit<kParts> X;

  static __device__ __forceinline__ int first_token(int, int token_tile) {
    return token_tile * kTokens;
  }
};

struct Args : TileWork {
  const unsigned char *x;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr int kSlice = 64; /* tokens of a product */
typedef int Sums[kSlice / 2];

/* A lane's weights of a part, as they lie in a stage. */
template <class S> struct Packed {
  uint4 v[S::kTiles];
  uint32_t scales, zeros;

  __device__ __forceinline__ Packed(uint32_t stage, int part) {
    const int lane = threadIdx.x % 32, row = warp_tile_row();
    const uint32_t meta = stage + S::kXBytes + S::kWBytes + (row * S::kParts + part) * S::W::kMetaBytes;
    scales = load_shared_4(meta + lane / 4 * 4), zeros = load_shared_1(meta + 32 + lane / 4);
#pragma unroll
    for (int i = 0; i < S::kTiles; i++)
      v[i] = load_shared_16(stage + S::kXBytes + (row * 2 + part + i) * S::kTileBytes + lane * 16);
  }
};

/* A lane's weights of a part: q[j] is operand A for k 32 j .. 32 j + 31. scale: of rows g and g + 8. */
template <class S> struct Weights {
  uint32_t q[S::kSteps][4];
  float scale[2];

  /* Bytes: (q + 128 - z) ^ 128 is q - z; no byte carries into the next. */
  __device__ __forceinline__ void unpack(const Packed<S> &from) {
    scale[0] = f16_low(from.scales), scale[1] = f16_high(from.scales);
    const uint32_t low = 0x80808080u - (from.zeros & 15) * 0x01010101u,
                   high = 0x80808080u - (from.zeros >> 4) * 0x01010101u;
#pragma unroll
    for (int i = 0; i < S::kTiles; i++) {
      const uint32_t word[4] = {from.v[i].x, from.v[i].y, from.v[i].z, from.v[i].w};
#pragma unroll
      for (int j = 0; j < 4; j++) {
        uint32_t *to = &q[2 * i + j / 2][j % 2 * 2];
        to[0] = ((word[j] & 0x0f0f0f0fu) + low) ^ 0x80808080u;
        to[1] = ((word[j] >> 4 & 0x0f0f0f0fu) + high) ^ 0x80808080u;
      }
    }
  }
};

/* Starts the product of a part with a slice of the tokens. */
template <class S>
__device__ __forceinline__ void start(uint32_t stage, const Weights<S> &w, int part, int slice, Sums &c) {
  const uint32_t x = stage + slice / 2 * S::X::kBytes + slice % 2 * kSlice * kUnitIn;
  touch(c);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < S::kSteps; k++)
    wgmma_s8s8<kSlice>(c, w.q[k], operand_b_at(x, part * S::kSteps + k), k > 0);
  wgmma_commit();
}

/* Scales the sums of a part and a slice, and adds them to y. Returns a combination of the scales of x, for
 * barrier_arrive_after_reads(). */
template <class S, class Sum>
__device__ __forceinline__ uint32_t add(uint32_t stage, const float (&scale)[2], int part, int slice,
                                        const Sum (&c)[kSlice / 2], float (&y)[kSums<S>]) {
  constexpr int kGroupBytes = 4 * S::kParts * 16; /* scales of 8 tokens */
  const uint32_t scales = stage + slice / 2 * S::X::kBytes + S::X::kPlaneBytes +
                          (threadIdx.x % 4 * S::kParts + part) * 16 + slice % 2 * (kSlice / 8) * kGroupBytes;
  uint32_t read = 0;
#pragma unroll
  for (int m = 0; m < kSlice / 8; m++) {
    const uint2 d = load_shared_8(scales + m * kGroupBytes);
    read |= d.x;
#pragma unroll
    for (int r = 0; r < 4; r++) {
      float &to = y[slice * (kSlice / 2) + 4 * m + r];
      to = fmaf(scale[r / 2], __fmul_rn(__uint_as_float(r % 2 ? d.y : d.x), (float)c[4 * m + r]), to);
    }
  }
  return read;
}

/* Waits for the next stage, and returns where it lies; by the shuffle the compiler knows that the address is
 * uniform. */
__device__ __forceinline__ uint32_t next_stage(const Ring &ring, const RingCursor &at) {
  barrier_wait(ring.full + at.slot, at.parity);
  return shared_address(ring.stages) + __shfl_sync(~0u, at.slot, 0) * ring.stage_bytes;
}

/* Adds the next kUnits units to y, in one run of instructions without branches: no product is in flight at
 * its start or its end. */
template <class S, int kUnits>
__device__ __forceinline__ void multiply_units(float (&y)[kSums<S>], const Ring &ring, RingCursor &at) {
  Weights<S> w[2];
  Sums c[2];
  uint32_t stage = next_stage(ring, at);
  w[0].unpack(Packed<S>(stage, 0));
#pragma unroll
  for (int slice = 0; slice < 2; slice++) start<S>(stage, w[0], 0, slice, c[slice]);
#pragma unroll
  for (int i = 0; i < kUnits * S::kParts; i++) {
    const int slot = at.slot, part = i % S::kParts, next_part = (i + 1) % S::kParts;
    const uint32_t own = stage;
    const bool more = i + 1 < kUnits * S::kParts;
    Weights<S> &now = w[i % 2], &next = w[(i + 1) % 2];
    if (next_part == 0) at.advance(ring.n_stages);
    if (more) {
      if (next_part == 0) stage = next_stage(ring, at);
      next.unpack(Packed<S>(stage, next_part));
    }
    uint32_t read = 0; /* add()'s result for the second slice, whose scales are read last */
#pragma unroll
    for (int slice = 0; slice < 2; slice++) {
      if (more || slice == 0)
        wgmma_wait<1>();
      else
        wgmma_wait<0>();
      touch(c[slice]);
      read = add<S>(own, now.scale, part, slice, c[slice], y);
      if (more) start<S>(stage, next, next_part, slice, c[slice]);
    }
    if (next_part > 0) continue;
    __syncwarp();
    barrier_arrive_after_reads(ring.empty + slot, threadIdx.x % 32 == 0, read);
  }
}

/* Adds the next n units to y, with fewer registers than multiply_units(): one set of weights. At the end of a
 * turn no product is in flight. The sums of its last slice are copied to floats before the branch: if
 * registers that wgmma wrote crossed it, ptxas would serialise all products. These sums are scaled while the
 * next unit's first product runs, and only then is their stage freed. */
template <class S>
__device__ __forceinline__ void multiply_long(float (&y)[kSums<S>], const Ring &ring, RingCursor &at, int n) {
  constexpr int kSlices = S::kTokens / kSlice, kLast = kSlices - 1;
  Weights<S> w;
  Sums c[2];
  float done[kSlice / 2] = {};
  uint32_t scales = 0;
  bool first = true;
  const auto end_unit = [&](int slot) {
    const float scale[2] = {f16_low(scales), f16_high(scales)};
    return add<S>(shared_address(ring.stages) + slot * S::kStageBytes, scale, 0, kLast, done, y);
  };
  const auto release = [&](int slot, bool arrives, uint32_t read) {
    __syncwarp();
    barrier_arrive_after_reads(ring.empty + slot, threadIdx.x % 32 == 0 && arrives, read);
  };
#pragma unroll 1
  for (; n > 0; n--) {
    const uint32_t stage = next_stage(ring, at);
    const Packed<S> packed(stage, 0);
    w.unpack(packed);
    start<S>(stage, w, 0, 0, c[0]);
    const int before = (at.slot + S::kStages - 1) % S::kStages;
    const uint32_t read = end_unit(first ? at.slot : before);
    start<S>(stage, w, 0, 1, c[1]);
    release(before, !first, read);
    scales = packed.scales;
#pragma unroll
    for (int slice = 0; slice < kLast; slice++) {
      wgmma_wait<1>();
      touch(c[slice % 2]);
      add<S>(stage, w.scale, 0, slice, c[slice % 2], y);
      if (slice + 2 < kSlices) start<S>(stage, w, 0, slice + 2, c[slice % 2]);
    }
    wgmma_wait<0>();
    touch(c[kLast % 2]);
#pragma unroll
    for (int i = 0; i < kSlice / 2; i++) done[i] = (float)c[kLast % 2][i];
    first = false;
    at.advance(ring.n_stages);
  }
  const int before = (at.slot + S::kStages - 1) % S::kStages;
  release(before, true, end_unit(before));
}

/* y = the sums over the next n units, n > 0. */
template <class S>
__device__ __forceinline__ void multiply(float (&y)[kSums<S>], const Ring &ring, RingCursor &at, int n) {
#pragma unroll
  for (int i = 0; i < kSums<S>; i++) y[i] = 0;
  if constexpr (S::kLong) {
    multiply_long<S>(y, ring, at, n);
  } else {
    constexpr int kUnits = 8 / S::kParts; /* of a turn of the loop */
#pragma unroll 1
    for (; n >= kUnits; n -= kUnits) multiply_units<S, kUnits>(y, ring, at);
#pragma unroll 1
    for (; n > 0; n--) multiply_units<S, 1>(y, ring, at);
  }
}

#endif

template <class S> __global__ void __launch_bounds__(S::kThreads, 1) kernel(const __grid_constant__ Args a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  run_block<S, kUnitIn / S::kParts, false>(
      a, [](const Area &) { return S::kXBytes; },
      [&](unsigned char *to, uint64_t *full, const Area &area, int step) {
        constexpr int kBytes = S::X::kBytes, kUnits = S::kXBytes / kBytes;
        for (int i = 0; i < kUnits; i++)
          copy_bulk(to + i * kBytes,
                    a.x + ((size_t)(area.token_tile * kUnits + i) * a.work.n_steps + step) * kBytes, kBytes,
                    full);
      },
      [](float(&sums)[kSums<S>], const TileRing &ring, RingCursor &at, const Area &area) {
        multiply<S>(sums, ring, at, area.n_steps);
      });
#endif
}

typedef Shape<128, 1> Short;
typedef Shape<256, 1> Long;

size_t x_bytes(const DeviceLinear *w, int n_tokens) {
  const size_t unit = w->group % kUnitIn == 0 ? Unit<1>::kBytes : Unit<2>::kBytes;
  const int units = ceil_div(n_tokens, Long::kTokens) * (Long::kTokens / kUnitTokens);
  return align_up((size_t)units * (size_t)(quant_tiles_in(*w) / 2) * unit);
}

size_t workspace(const DeviceLinear *w, int n_tokens, const DeviceLimits &device) {
  return x_bytes(w, n_tokens) + stream_k::partial_bytes(device.n_sms, Long::kConsumers, Long::kTokens / 2);
}

template <int kParts> Status quantise(const LinearArgs &args, int units, Error *err) {
  const int n = args.w->n_in, tokens = args.n_tokens;
  if (!args.norm.rows)
    return launch(quantise_x<kParts>, dim3((unsigned)tokens, (unsigned)ceil_div(units, 8 * kUnitsAtOnce)),
                  256, 0, args.stream, args.dependent, args.w->name, err, args.x, args.x_stride, n, units,
                  args.workspace);
  const bool one = n <= 4096; /* threads as in ops_rms_norm() */
  return launch(one ? quantise_norm<kParts, 512> : quantise_norm<kParts, 1024>, tokens, one ? 512 : 1024, 0,
                args.stream, args.dependent, args.w->name, err, (const float4 *)args.norm.rows,
                (const float4 *)args.norm.weight, args.norm.eps, n, args.workspace);
}

template <class S> Status launch_shape(const LinearArgs &args, Error *err) {
  const int units = quant_tiles_in(*args.w) / 2;
  Args a = {};
  TRY(set_tile_work<S>(args, false, a, err));
  a.x = args.workspace;
  a.partial = (float *)(args.workspace + x_bytes(args.w, args.n_tokens));
  TRY(quantise<S::kParts>(args, units, err));
  return launch(kernel<S>, dim3((unsigned)a.work.n_blocks), S::kThreads, S::kSharedBytes, args.stream,
                args.dependent, args.w->name, err, a);
}

/* Microseconds of the block with the most work, by tile_times.h. Whole tiles take less, since blocks read the
 * same x at the same time. */
template <class S> double expected_us(const LinearArgs &args) {
  const stream_k::Work work = work_of(args, S::kTileRows, S::kTokens, S::kK);
  const int steps = S::kK * ceil_div(stream_k::total_steps(work), work.n_blocks);
  const bool cut = work.n_tiles % work.n_blocks;
#define TILE(outputs, tokens, tiles, stages, us, cut_us, fixup_us)                                           \
  if (S::kTokens == tokens) return cut ? cut_us * steps + fixup_us : us * steps;
  INT8_TILES_TILES(TILE)
#undef TILE
  return 0;
}

/* Launches tiles of 128 tokens (variant 1), of 256 (2), or those expected to be faster (0: 256 only from 512
 * tokens on); where kUnitIn does not divide the groups, always tiles of 128. */
Status launch_tokens(const LinearArgs &args, Error *err) {
  if (args.w->group % kUnitIn != 0) return launch_shape<Shape<128, 2>>(args, err);
  /* With fewer than 2560 inputs the epilogue of a tile of 256 tokens takes too much of its time. */
  const bool longer =
      args.n_tokens >= 512 && args.w->n_in >= 2560 && expected_us<Long>(args) < expected_us<Short>(args);
  return args.variant == 2 || (args.variant == 0 && longer) ? launch_shape<Long>(args, err)
                                                            : launch_shape<Short>(args, err);
}

Status launch_int8_tiles(const LinearArgs &args, Error *err) {
  const int at_once = most_tokens(args, Short::kTileRows * kTileOut, Short::kTokens);
  TRY(check_variant(args, args.w->group % kUnitIn != 0 ? 1 : 2, err));
  for (int first = 0; first < args.n_tokens; first += at_once)
    TRY(launch_tokens(tokens_of(args, first, std::min(args.n_tokens - first, at_once)), err));
  return STATUS_OK;
}

} // namespace

const LinearKernel int8_tiles_kernel = {workspace, launch_int8_tiles, false};
