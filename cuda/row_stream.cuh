/* row_stream.cuh - the product of a few rows of x, bound by reading the weights: one skeleton, three arithmetics.
 *
 *     y[m][o] = sum_i (q[i][o] - z[g(i)][o]) s[g(i)][o] x[m][i],   m < kTokens
 *
 * A block owns consecutive tile rows (16 outputs each) and, where the matrix has too few of them to fill the chip, a
 * share of the inputs. Its weights are one contiguous run of units, a unit being 16 outputs x 128 inputs (1 KB at 4
 * bits); each warp streams an equal, contiguous part of the run through a ring of registers, requested before x is
 * even there:
 *
 *     units   | tile row 0: u u u u u u u u | tile row 1: u u u u u u u u | ...
 *     warps   |---- 0 ----|---- 1 ----|---- 2 ----|---- 3 ----| ...
 *
 * x is held in shared memory as int8 planes (planes.cuh), quantised by the block itself. What a warp has summed when
 * it leaves a tile row goes to shared memory; the sums over warps, and over blocks that share a tile row, are taken
 * in a fixed order at the end (the last block to finish takes them, nobody waits).
 *
 * The arithmetic is a class (DotProducts, MmaPlanes below): how a unit is multiplied, and which lane ends with what.
 * PRECOND  group % F == 0 and F as group_block() says, kTokens >= n_tokens, shared memory as plan() says.
 * READS    n_in * n_out * bits / 8 + n_in / group * n_out * (2 + bits / 8) bytes. */
#ifndef AUK_CUDA_ROW_STREAM_CUH
#define AUK_CUDA_ROW_STREAM_CUH

#include "cuda/launch.cuh"
#include "cuda/planes.cuh"

namespace row_stream {

constexpr int kWarps = 16, kThreads = 32 * kWarps, kUnitIn = 128;

struct Plan {
  int blocks, splits;  /* grid: blocks over tile rows, splits over inputs */
  int n_units;         /* units of one tile row */
  int max_units;       /* ... of one split of it */
  int slots;           /* tile rows that one warp may touch */
  size_t shared_bytes; /* planes, block scales, partial sums */
  size_t partial_bytes;
};

struct Args {
  QuantView w;
  const __half *x;
  int x_stride, n_tokens;
  Plan plan;
  Epilogue out;
  float *partial; /* [n_tiles_out][splits][kTokens][16] */
  unsigned *counters;
};

/* The longest block of inputs that is inside one group everywhere: 128, 64 or 32. */
inline int group_block(int group) {
  return group % 128 == 0 ? 128 : group % 64 == 0 ? 64 : 32;
}

/* The inputs are split where whole tile rows would leave SMs idle: the split that finishes first, a second hand-over
 * of partial sums being worth about an eighth of a tile row of 4096 inputs (32 units). */
inline Plan plan(const QuantView &w, int n_sms, int planes, int tokens, int F) {
  Plan p = {};
  p.n_units = ceil_div(w.n_tiles_in, 2);
  p.splits = 1;
  double best = 1e30;
  for (int s = 1; s <= 8 && s <= p.n_units && s <= n_sms; s *= 2) {
    double rows = ceil_div(w.n_tiles_out, n_sms / s);
    double cost = rows * ceil_div(p.n_units, s) + (s > 1 ? 4.0 : 0.0);
    if (cost < best) {
      best = cost;
      p.splits = s;
    }
  }
  p.blocks = n_sms / p.splits;
  if (p.blocks > w.n_tiles_out) p.blocks = w.n_tiles_out;
  p.max_units = ceil_div(p.n_units, p.splits);
  int tile_rows = ceil_div(w.n_tiles_out, p.blocks), least_units = p.n_units / p.splits;
  p.slots = ceil_div((long)tile_rows * p.max_units, kWarps) / least_units + 2;
  if (p.slots > tile_rows) p.slots = tile_rows;
  size_t x = (size_t)p.max_units * 2 * kTileIn * planes * tokens;
  size_t scales = (size_t)p.max_units * (kUnitIn / F) * tokens * sizeof(float2);
  p.shared_bytes = x + scales + (size_t)kWarps * p.slots * tokens * kTileOut * 4;
  p.partial_bytes = p.splits == 1 ? 0 : (size_t)w.n_tiles_out * p.splits * tokens * kTileOut * 4;
  return p;
}

/* One unit in registers, with its scales and zeros for each block of F inputs. */
template <class W, int F> struct Unit {
  uint4 v[2][W::kVectors];
  uint32_t scale[kUnitIn / F], zero[kUnitIn / F];
};

template <class W, int F>
__device__ __forceinline__ void load_unit(Unit<W, F> &unit, const QuantView &w, int tile, int u, int lane) {
  const uint4 *from = w.tiles + ((size_t)tile * w.n_tiles_in + 2 * u) * (32 * W::kVectors) + lane;
#pragma unroll
  for (int half = 0; half < 2; half++)
#pragma unroll
    for (int i = 0; i < W::kVectors; i++)
      unit.v[half][i] = 2 * u + half < w.n_tiles_in ? load_once(from + (half * W::kVectors + i) * 32)
                                                    : make_uint4(0, 0, 0, 0);
#pragma unroll
  for (int f = 0; f < kUnitIn / F; f++) {
    int group = w.group == F ? min(u * (kUnitIn / F) + f, w.n_groups - 1) : group_of(w, u * kUnitIn + f * F);
    size_t at = ((size_t)tile * w.n_groups + group) * 8 + lane / 4;
    unit.scale[f] = __ldg(w.scales + at);
    unit.zero[f] = __ldg((const typename W::Zero *)w.zeros + at);
  }
}

/* Fills planes [units][2 tiles][kTokens][kPlanes][64] and scales [units][kUnitIn / F][kTokens] {d, d * sum}. */
template <int kPlanes, int kTokens, int F>
__device__ void quantise_rows(const Args &a, int first_unit, int n_units, unsigned char *planes,
                              float2 *scales) {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = warp; i < n_units * kTokens; i += kWarps) {
    int token = i % kTokens, u = i / kTokens;
    const __half *row = token < a.n_tokens ? a.x + (size_t)token * a.x_stride : nullptr;
    uint32_t word[kPlanes];
    int sum;
    float d =
        quantise_inputs<kPlanes, F>(read_inputs(row, (first_unit + u) * kUnitIn, a.w.n_in, lane), word, &sum);
    unsigned char *to = planes + (size_t)((2 * u + lane / 16) * kTokens + token) * kPlanes * kTileIn;
#pragma unroll
    for (int p = 0; p < kPlanes; p++)
      *(uint32_t *)(to + p * kTileIn + lane % 4 * 16 + lane / 4 % 4 * 4) = word[p];
    if (lane % (F / 4) == 0)
      scales[(u * (kUnitIn / F) + lane / (F / 4)) * kTokens + token] = make_float2(d, d * (float)sum);
  }
}

/* Products on the integer units, any chip from sm_61 on: a lane sums its own 16 inputs of each 64 for rows g, g + 8. */
template <class W, int F, int kPlanes, int kTokens> struct DotProducts {
  static constexpr int kPlanesOfX = kPlanes, kTokensOfX = kTokens;
  float y[kTokens][2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int m = 0; m < kTokens; m++) y[m][0] = y[m][1] = 0;
  }

  __device__ __forceinline__ void multiply(const Unit<W, F> &unit, const unsigned char *planes,
                                           const float2 *scales, int lane) {
    int t = lane % 4;
#pragma unroll
    for (int f = 0; f < kUnitIn / F; f++) {
      float s_low = scale_low(unit.scale[f]), s_high = scale_high(unit.scale[f]) * W::kHigh;
      /* The zero's share counts once for the four lanes t; it is not among what comes 16 times too large. */
      float z_low = t == 0 ? (float)W::zero_low(unit.zero[f]) : 0.0f;
      float z_high = t == 0 ? (float)W::zero_high(unit.zero[f]) / W::kHigh : 0.0f;
#pragma unroll
      for (int m = 0; m < kTokens; m++) {
        int acc[kPlanes][2] = {};
#pragma unroll
        for (int h = f * F / 32; h < (f + 1) * F / 32; h++) {
          uint32_t a[4];
          W::bytes(unit.v[h / 2], h % 2, a);
#pragma unroll
          for (int p = 0; p < kPlanes; p++) {
            uint2 b = *(const uint2 *)(planes + ((h / 2 * kTokens + m) * kPlanes + p) * kTileIn + t * 16 +
                                       h % 2 * 8);
            acc[p][0] = dp4a_u8s8(a[2], b.y, dp4a_u8s8(a[0], b.x, acc[p][0]));
            acc[p][1] = dp4a_u8s8(a[3], b.y, dp4a_u8s8(a[1], b.x, acc[p][1]));
          }
        }
        float2 d = scales[f * kTokens + m];
#pragma unroll
        for (int r = 0; r < 2; r++) {
          float sum = (float)(kPlanes == 2 ? 256 * acc[0][r] + acc[kPlanes - 1][r] : acc[0][r]);
          y[m][r] += (r ? s_high : s_low) * (d.x * sum - (r ? z_high : z_low) * d.y);
        }
      }
    }
  }

  /* Sums of the tile row to to[kTokens][16]. */
  __device__ __forceinline__ void store(float *to, int lane) {
#pragma unroll
    for (int m = 0; m < kTokens; m++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        float v = y[m][r];
        v += __shfl_xor_sync(~0u, v, 1);
        v += __shfl_xor_sync(~0u, v, 2);
        if (lane % 4 == 0) to[m * kTileOut + lane / 4 + 8 * r] = v;
      }
  }
};

/* Products on the integer tensor cores: the planes of the rows of x are the eight columns of mma_u8s8, two to a row,
 * so one row costs what four do, and eight rows take two instructions. The accumulators start at 1.5 * 2^23 in
 * integer form: read as a float, minus 1.5 * 2^23, they are the sum, since |sum| <= 128 * 255 * 128 < 2^22. */
template <class W, int F, int kPlanes, int kTokens> struct MmaPlanes {
  static_assert(kPlanes == 2, "two columns a row of x");
  static constexpr int kPlanesOfX = kPlanes, kTokensOfX = kTokens;
  static constexpr int kColumns = 2 * kTokens < 8 ? 2 * kTokens : 8, kBlocks = (2 * kTokens + 7) / 8;
  static constexpr int kLaneTokens = kTokens < 4 ? kTokens : 4; /* rows of x that lanes t = 0 .. hold */
  float y[kBlocks][2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int b = 0; b < kBlocks; b++) y[b][0] = y[b][1] = 0;
  }

  __device__ __forceinline__ void multiply(const Unit<W, F> &unit, const unsigned char *planes,
                                           const float2 *scales, int lane) {
    constexpr int kStart = 0x4b400000;
    constexpr float kStartFloat = 12582912.0f;
    int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int f = 0; f < kUnitIn / F; f++) {
      int acc[kBlocks][4];
#pragma unroll
      for (int b = 0; b < kBlocks; b++) acc[b][0] = acc[b][1] = acc[b][2] = acc[b][3] = kStart;
#pragma unroll
      for (int h = f * F / 32; h < (f + 1) * F / 32; h++) {
        uint32_t a[4];
        W::bytes(unit.v[h / 2], h % 2, a);
#pragma unroll
        for (int b = 0; b < kBlocks; b++) {
          uint2 x = *(const uint2 *)(planes + (h / 2 * 2 * kTokens + 8 * b + g % kColumns) * kTileIn +
                                     t * 16 + h % 2 * 8);
          mma_u8s8_m16n8k32(acc[b], a, x.x, x.y);
        }
      }
      float s_low = scale_low(unit.scale[f]), s_high = scale_high(unit.scale[f]);
      float z_low = (float)W::zero_low(unit.zero[f]), z_high = (float)W::zero_high(unit.zero[f]);
#pragma unroll
      for (int b = 0; b < kBlocks; b++) {
        float v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] = __int_as_float(acc[b][i]) - kStartFloat;
        float2 d = scales[f * kTokens + 4 * b + t % kLaneTokens];
        y[b][0] += s_low * (d.x * (256.0f * v[0] + v[1]) - z_low * d.y);
        y[b][1] += s_high * (d.x * W::kHigh * (256.0f * v[2] + v[3]) - z_high * d.y);
      }
    }
  }

  __device__ __forceinline__ void store(float *to, int lane) {
    int g = lane / 4, t = lane % 4;
    if (t >= kLaneTokens) return;
#pragma unroll
    for (int b = 0; b < kBlocks; b++) {
      to[(4 * b + t) * kTileOut + g] = y[b][0];
      to[(4 * b + t) * kTileOut + g + 8] = y[b][1];
    }
  }
};

/* Adds up what the splits of a tile row left, in their order, and stores it: the block that comes last does. */
template <int kTokens> __device__ void combine_splits(const Args &a, int first_tile, int n_tiles) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned before = atomicAdd(a.counters + blockIdx.x, 1);
    last = before == gridDim.y - 1;
    if (last) a.counters[blockIdx.x] = 0;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  for (int i = threadIdx.x; i < n_tiles * kTokens * 8; i += kThreads) {
    int g = i % 8, token = i / 8 % kTokens, tile = first_tile + i / 8 / kTokens;
    float low = 0, high = 0;
    for (int s = 0; s < (int)gridDim.y; s++) {
      const float *from = a.partial + (((size_t)tile * gridDim.y + s) * kTokens + token) * kTileOut + g;
      low += __ldcg(from);
      high += __ldcg(from + 8);
    }
    if (token < a.n_tokens) store_pair(a.out, token, tile, g, low, high);
  }
}

template <class W, class Math, int F, int kDepth>
__global__ void __launch_bounds__(kThreads, 1) kernel(const __grid_constant__ Args a) {
  constexpr int kPlanes = Math::kPlanesOfX, kTokens = Math::kTokensOfX;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ int first_row[kWarps], last_row[kWarps]; /* tile rows of the block that each warp touches */
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int tile0 = (int)((long)blockIdx.x * a.w.n_tiles_out / gridDim.x);
  int n_tiles = (int)((long)(blockIdx.x + 1) * a.w.n_tiles_out / gridDim.x) - tile0;
  int unit0 = (int)((long)blockIdx.y * a.plan.n_units / gridDim.y);
  int n_units = (int)((long)(blockIdx.y + 1) * a.plan.n_units / gridDim.y) - unit0;
  unsigned char *planes = shared;
  float2 *scales = (float2 *)(planes + (size_t)a.plan.max_units * 2 * kTileIn * kPlanes * kTokens);
  float *sums = (float *)(scales + a.plan.max_units * (kUnitIn / F) * kTokens);

  dependents_may_start();
  int total = n_tiles * n_units, begin = warp * total / kWarps, end = (warp + 1) * total / kWarps;
  int row = begin / n_units, u = begin % n_units, next_row = row, next_u = u, ahead = begin;
  if (lane == 0) {
    first_row[warp] = row;
    last_row[warp] = end > begin ? (end - 1) / n_units : -1;
  }
  Unit<W, F> ring[kDepth];
#pragma unroll
  for (int d = 0; d < kDepth; d++)
    if (ahead < end) {
      load_unit(ring[d], a.w, tile0 + next_row, unit0 + next_u, lane);
      ahead++;
      if (++next_u == n_units) next_u = 0, next_row++;
    }
  wait_for_previous();
  quantise_rows<kPlanes, kTokens, F>(a, unit0, n_units, planes, scales);
  __syncthreads();

  Math math;
  math.clear();
  float *mine = sums + (size_t)warp * a.plan.slots * kTokens * kTileOut;
  for (int i = begin; i < end; i += kDepth)
#pragma unroll
    for (int d = 0; d < kDepth; d++) {
      if (i + d >= end) break;
      math.multiply(ring[d], planes + (size_t)u * 2 * kTileIn * kPlanes * kTokens,
                    scales + u * (kUnitIn / F) * kTokens, lane);
      if (ahead < end) {
        load_unit(ring[d], a.w, tile0 + next_row, unit0 + next_u, lane);
        ahead++;
        if (++next_u == n_units) next_u = 0, next_row++;
      }
      if (++u == n_units || i + d + 1 == end) {
        math.store(mine, lane);
        math.clear();
        mine += kTokens * kTileOut;
        u = 0;
      }
    }
  __syncthreads();

  for (int i = threadIdx.x; i < n_tiles * kTokens * 8; i += kThreads) {
    int g = i % 8, token = i / 8 % kTokens, r = i / 8 / kTokens;
    float low = 0, high = 0;
#pragma unroll 4
    for (int w = 0; w < kWarps; w++) {
      if (r < first_row[w] || r > last_row[w]) continue;
      const float *from =
          sums + ((size_t)(w * a.plan.slots + r - first_row[w]) * kTokens + token) * kTileOut + g;
      low += from[0];
      high += from[8];
    }
    if (gridDim.y == 1) {
      if (token < a.n_tokens) store_pair(a.out, token, tile0 + r, g, low, high);
    } else {
      float *to =
          a.partial + (((size_t)(tile0 + r) * gridDim.y + blockIdx.y) * kTokens + token) * kTileOut + g;
      to[0] = low;
      to[8] = high;
    }
  }
  if (gridDim.y > 1) combine_splits<kTokens>(a, tile0, n_tiles);
}

template <class W, template <class, int, int, int> class Math, int kPlanes, int kTokens, int F>
Status launch_block(const LinearArgs &args, Error *err) {
  Args a = {quant_view(*args.w),     args.x,       args.x_stride, args.n_tokens, {}, args.out,
            (float *)args.workspace, args.counters};
  a.plan = plan(a.w, args.device.n_sms, kPlanes, kTokens, F);
  constexpr int kDepth = W::kBits == 4 ? 4 : 2;
  return launch(kernel<W, Math<W, F, kPlanes, kTokens>, F, kDepth>,
                dim3((unsigned)a.plan.blocks, (unsigned)a.plan.splits), kThreads, a.plan.shared_bytes,
                args.stream, args.dependent, args.w->name, err, a);
}

template <class W, template <class, int, int, int> class Math, int kPlanes, int kTokens>
Status launch_group(const LinearArgs &args, Error *err) {
  switch (group_block(args.w->group)) {
  case 128: return launch_block<W, Math, kPlanes, kTokens, 128>(args, err);
  case 64: return launch_block<W, Math, kPlanes, kTokens, 64>(args, err);
  default: return launch_block<W, Math, kPlanes, kTokens, 32>(args, err);
  }
}

template <template <class, int, int, int> class Math, int kPlanes, int kTokens>
Status launch_tokens(const LinearArgs &args, Error *err) {
  if (args.w->type == WEIGHT_AWQ4) return launch_group<Bits4, Math, kPlanes, kTokens>(args, err);
  return launch_group<Bits8, Math, kPlanes, kTokens>(args, err);
}

inline int rounded_tokens(int n) {
  return n <= 2 ? n : n <= 4 ? 4 : 8;
}

/* Workspace of any of them. */
template <int kPlanes> size_t workspace(const DeviceLinear *w, int n_tokens, const DeviceLimits &device) {
  return plan(quant_view(*w), device.n_sms, kPlanes, rounded_tokens(n_tokens < 8 ? n_tokens : 8), 32)
      .partial_bytes;
}

} // namespace row_stream

#endif
