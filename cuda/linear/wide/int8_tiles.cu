/* int8_tiles.cu - many tokens with int8 activations on Hopper (--act int8): weights less their zero points as
 * the int8 register operand of wgmma, sums exact in int32.
 *
 *     y[m][o] = sum_p s[p][o] d[m][p] sum_k (q[k][o] - z[p][o]) X[m][k]     x ~ d X, d = max |x| / 127
 *
 * One kernel quantises x; the next multiplies. Its blocks, their loads and the ends of tiles are those of
 * wgmma_tiles.cuh. A unit is 128 inputs in kParts parts with a scale each. A product is the sums over a part
 * of half of the tokens, and a warpgroup has two sets of registers for them: while it scales the sums of one
 * half and adds them to y, the other half's product runs, and then its own of the next part.
 *
 * ptxas waits for all products before the branch at the end of a loop. So a turn of the loop is several units
 * in one run of instructions, and only its end waits for all.
 *
 * x in a stage: a unit of a token tile (quantise.cuh).
 * PRECOND  group % kBlockIn == 0, kBlockIn = 128 / kParts: 128 or 64.
 * READS    weights once for every kTokens tokens, x once for every 128 outputs. */
#include "cuda/linear/quantise.cuh"
#include "cuda/linear/wide/wgmma_tiles.cuh"

namespace {

using namespace wgmma_tiles;

constexpr int kTokens = 128, kUnitsAtOnce = 4;

/* A warp quantises kUnitsAtOnce units of one token. Padding tokens and inputs become 0. */
template <int kParts>
__global__ void quantise_x(const __half *x, int x_stride, int n_tokens, int n_in, int n_units,
                           unsigned char *to) {
  const int lane = threadIdx.x % 32, token = blockIdx.x;
  const int first = (int)(blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32) * kUnitsAtOnce;
  begin_overlapping();
  LaneInputs in[kUnitsAtOnce];
#pragma unroll
  for (int i = 0; i < kUnitsAtOnce; i++) {
    in[i] = {{0, 0}};
    if (token < n_tokens && first + i < n_units)
      in[i] = read_inputs<false>(x + (size_t)token * x_stride, (first + i) * kUnitIn, n_in, lane);
  }
#pragma unroll
  for (int i = 0; i < kUnitsAtOnce; i++) {
    if (first + i >= n_units) return;
    float v[4];
    in[i].floats(v);
    PlanesUnit<kTokens, kParts, 1>::store(to, token / kTokens * n_units + first + i, token % kTokens, lane,
                                          v);
  }
}

template <int kParts_>
struct Shape : ShapeOf<Bits4, kTokens, kUnitIn / kTileIn, PlanesUnit<kTokens, kParts_, 1>::kBytes, 1, 8> {
  static constexpr int kParts = kParts_;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL /* nvcc refuses numbers that the code for another chip does not use */
  static constexpr int kSteps = 4 / kParts, kTiles = 2 / kParts; /* of a part */
  static constexpr int kUnits = 8 / kParts;                      /* of a turn of the loop */
#endif
  typedef PlanesUnit<kTokens, kParts, 1> X;

  static __device__ __forceinline__ int first_token(int, int token_tile) {
    return token_tile * kTokens;
  }
};

struct Args : TileWork {
  const unsigned char *x;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr int kHalf = kTokens / 2;
typedef int Sums[kHalf / 2];

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

/* The same as operands of k 32 j .. 32 j + 31, and the scales of rows g and g + 8. */
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

/* Registers of sums that wgmma is about to write, or has written. */
__device__ __forceinline__ void touch(Sums &c) {
#pragma unroll
  for (int i = 0; i < kHalf / 2; i++) c[i] = opaque(c[i]);
}

/* Starts the product of a part with a half of the tokens. */
template <class S>
__device__ __forceinline__ void start(uint32_t stage, const Weights<S> &w, int part, int half, Sums &c) {
  touch(c);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < S::kSteps; k++)
    wgmma_s8s8<kHalf>(c, w.q[k], operand_b_at(stage + half * kHalf * kUnitIn, part * S::kSteps + k), k > 0);
  wgmma_commit();
}

/* Scales the sums of a part and a half, and adds them to y. */
template <class S>
__device__ __forceinline__ void add(uint32_t stage, const float (&scale)[2], int part, int half, Sums &c,
                                    float (&y)[kSums<S>]) {
  constexpr int kGroupBytes = 4 * S::kParts * 16; /* scales of 8 tokens */
  const uint32_t scales = stage + S::X::kPlaneBytes + (threadIdx.x % 4 * S::kParts + part) * 16 +
                          half * (kHalf / 8) * kGroupBytes;
  touch(c);
#pragma unroll
  for (int m = 0; m < kHalf / 8; m++) {
    const uint2 d = load_shared_8(scales + m * kGroupBytes);
#pragma unroll
    for (int r = 0; r < 4; r++) {
      float &to = y[half * (kHalf / 2) + 4 * m + r];
      to = fmaf(scale[r / 2], __fmul_rn(__uint_as_float(r % 2 ? d.y : d.x), (float)c[4 * m + r]), to);
    }
  }
}

/* Where a slot of the ring lies; the shuffle shows that it is uniform. */
template <class S> __device__ __forceinline__ uint32_t stage_at(uint32_t stages, int slot) {
  return stages + __shfl_sync(~0u, slot, 0) * S::kStageBytes;
}

/* Adds the next kUnits units to y, in one run of instructions without branches: no product is in flight at
 * its begin and its end. */
template <class S, int kUnits>
__device__ __forceinline__ void multiply_units(float (&y)[kSums<S>], uint32_t stages, const Barriers &bar,
                                               Ring &ring) {
  Weights<S> w[2];
  Sums c[2];
  barrier_wait(bar.full + ring.slot, ring.phase);
  uint32_t stage = stage_at<S>(stages, ring.slot);
  w[0].unpack(Packed<S>(stage, 0));
#pragma unroll
  for (int half = 0; half < 2; half++) start<S>(stage, w[0], 0, half, c[half]);
#pragma unroll
  for (int i = 0; i < kUnits * S::kParts; i++) {
    const int slot = ring.slot, part = i % S::kParts, next_part = (i + 1) % S::kParts;
    const uint32_t own = stage;
    const bool more = i + 1 < kUnits * S::kParts;
    Weights<S> &now = w[i % 2], &next = w[(i + 1) % 2];
    if (next_part == 0 && ++ring.slot == S::kStages) ring.slot = 0, ring.phase ^= 1;
    if (more) {
      if (next_part == 0) {
        barrier_wait(bar.full + ring.slot, ring.phase);
        stage = stage_at<S>(stages, ring.slot);
      }
      next.unpack(Packed<S>(stage, next_part));
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
      if (more || half == 0)
        wgmma_wait<1>();
      else
        wgmma_wait<0>();
      add<S>(own, now.scale, part, half, c[half], y);
      if (more) start<S>(stage, next, next_part, half, c[half]);
    }
    if (next_part > 0) continue;
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(bar.empty + slot);
  }
}

/* y = the sums over the next n units, n > 0. */
template <class S>
__device__ __forceinline__ void multiply(float (&y)[kSums<S>], unsigned char *first_stage,
                                         const Barriers &bar, Ring &ring, int n) {
  const uint32_t stages = shared_address(first_stage);
#pragma unroll
  for (int i = 0; i < kSums<S>; i++) y[i] = 0;
#pragma unroll 1
  for (; n >= S::kUnits; n -= S::kUnits) multiply_units<S, S::kUnits>(y, stages, bar, ring);
#pragma unroll 1
  for (; n > 0; n--) multiply_units<S, 1>(y, stages, bar, ring);
}

#endif

template <class S> __global__ void __launch_bounds__(kThreads, 1) kernel(const __grid_constant__ Args a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  run_block<S, kUnitIn / S::kParts, false>(
      a, S::kXBytes,
      [&](unsigned char *to, uint64_t *full, const stream_k::Cursor &at, int) {
        copy_bulk(to, a.x + ((size_t)at.token_tile * a.work.n_steps + at.step) * S::kXBytes, S::kXBytes,
                  full);
      },
      [](float(&sums)[kSums<S>], unsigned char *stages, const Barriers &bar, Ring &ring, int n_units) {
        multiply<S>(sums, stages, bar, ring, n_units);
      });
#endif
}

size_t x_bytes(const DeviceLinear *w, int n_tokens) {
  const size_t unit = w->group % kUnitIn == 0 ? Shape<1>::kXBytes : Shape<2>::kXBytes;
  return align_up((size_t)ceil_div(n_tokens, kTokens) * (size_t)(quant_tiles_in(*w) / 2) * unit);
}

size_t workspace(const DeviceLinear *w, int n_tokens, const DeviceLimits &device) {
  return x_bytes(w, n_tokens) + stream_k::partial_bytes(device.n_sms, kConsumers, kTokens / 2);
}

template <int kParts> Status launch_parts(const LinearArgs &args, Error *err) {
  typedef Shape<kParts> S;
  const int units = quant_tiles_in(*args.w) / 2;
  Args a = {};
  TRY(set_tile_work<S>(args, a, err));
  a.x = args.workspace;
  a.partial = (float *)(args.workspace + x_bytes(args.w, args.n_tokens));
  TRY(launch(
      quantise_x<kParts>,
      dim3((unsigned)align_up((size_t)args.n_tokens, kTokens), (unsigned)ceil_div(units, 8 * kUnitsAtOnce)),
      256, 0, args.stream, args.dependent, args.w->name, err, args.x, args.x_stride, args.n_tokens,
      args.w->n_in, units, args.workspace));
  return launch(kernel<S>, dim3((unsigned)a.work.n_blocks), kThreads, S::kSharedBytes, args.stream,
                args.dependent, args.w->name, err, a);
}

Status launch_int8_tiles(const LinearArgs &args, Error *err) {
  return args.w->group % kUnitIn == 0 ? launch_parts<1>(args, err) : launch_parts<2>(args, err);
}

} // namespace

const LinearKernel int8_tiles_kernel = {workspace, launch_int8_tiles, false};
