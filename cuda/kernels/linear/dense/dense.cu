/* dense.cu - weights that were never quantised, lm_head among them: fp16, bf16 or fp32 by fp16 activations, 1
 * to 8 tokens on CUDA cores in fp32.
 *
 *     y[m][o] = sum_i w[o][i] x[m][i]
 *
 * The work is cut into units: 256 inputs of two rows that the epilogue needs together, g and g + 8 of a tile
 * row (g < 8). A block has consecutive row pairs. Each warp has an equal, contiguous part of the block's
 * units, whether or not rows end there:
 *
 *     units | row pair 0: u u u u u u | row pair 1: u u u u u u | ...
 *     warps |---- 0 ----|---- 1 ----|---- 2 ----| ...
 *
 * A warp has kDepth units in flight in registers, and requests the first of them before x is available. It
 * stores the row pairs that it has whole. Parts of other row pairs are added in shared memory, in the order
 * of warps.
 *
 * READS  the weights once. */
#include "cuda/kernels/linear/kernel.cuh"
#include "cuda/kernels/ptx/block_sum.cuh"
#include "cuda/kernels/ptx/eight.cuh"
#include "cuda/kernels/ptx/lanes.cuh"

namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32, kUnitIn = DENSE_UNIT, kTilePairs = kTileOut / 2;

struct Args {
  const void *w;
  size_t stride;
  const __half *x;
  int x_stride, n_tokens, n_in; /* summed experts: n_tokens counts experts, each with a row of x */
  int row_units, pair_units;    /* units of a row; units of a row pair, over all experts if summed */
  int each, longer;             /* row pairs of a block: each + 1 in the first `longer` blocks, else `each` */
  Epilogue out;
  LinearNorm norm;      /* only with one token */
  ChosenExperts chosen; /* set if kExperts */

  __device__ __forceinline__ int first_pair(int block) const { return block * each + min(block, longer); }
};

/* Copies x of all tokens to shared memory [rows][padded], zero past n_in and n_tokens. */
__device__ __forceinline__ void load_x(const Args &a, __half *x, int rows, int padded) {
  for (int i = threadIdx.x; i < rows * padded / 8; i += blockDim.x) {
    int token = i / (padded / 8), k = i % (padded / 8) * 8;
    uint4 v = make_uint4(0, 0, 0, 0);
    const __half *from = a.x + (size_t)token * a.x_stride + k;
    if (token < a.n_tokens && k + 8 <= a.n_in) {
      v = __ldcg((const uint4 *)from);
    } else if (token < a.n_tokens) {
      for (int j = 0; j < 8; j++)
        if (k + j < a.n_in) ((__half *)&v)[j] = from[j];
    }
    *(uint4 *)(x + (size_t)token * padded + k) = v;
  }
}

/* Four numbers from i on, 0 past the last. PRECOND n % 4 == 0. */
__device__ __forceinline__ float4 four_of(const float *from, int i, int n) {
  return i < n ? __ldcg((const float4 *)(from + i)) : make_float4(0, 0, 0, 0);
}

/* Copies the norm's weights to shared memory [padded], for normalise(), while the kernel waits for x. */
__device__ __forceinline__ void load_norm(const Args &a, float *weights, int padded) {
  for (int i = 4 * threadIdx.x; i < padded; i += 4 * kThreads)
    *(float4 *)(weights + i) = four_of(a.norm.weight, i, a.n_in);
}

/* Fills x [padded] with the RMSNorm of a token's row. scaled: the norm's weights, which each thread replaces
 * by the products with its inputs. */
__device__ __forceinline__ void normalise(const Args &a, float *scaled, __half *x, int padded) {
  float squares = 0;
  for (int i = 4 * threadIdx.x; i < padded; i += 4 * kThreads) {
    const float4 v = four_of(a.norm.rows, i, a.n_in), w = *(const float4 *)(scaled + i);
    squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    *(float4 *)(scaled + i) = make_float4(v.x * w.x, v.y * w.y, v.z * w.z, v.w * w.w);
  }
  const float scale = rsqrtf(block_sum<kThreads>(squares) / (float)a.n_in + a.norm.eps);
  for (int i = 4 * threadIdx.x; i < padded; i += 4 * kThreads) {
    const float4 v = *(const float4 *)(scaled + i);
    *(uint2 *)(x + i) =
        make_uint2(pack_half2(v.x * scale, v.y * scale), pack_half2(v.z * scale, v.w * scale));
  }
}

/* Adds the products of eight inputs of a row pair for all tokens; x: the lane's inputs of the first token. */
template <class T, int kTokens>
__device__ __forceinline__ void multiply(const Eight<T> (&v)[2], const __half *x, int padded,
                                         float (&sum)[kTokens][2]) {
  float w[2][8];
  v[0].floats(w[0]);
  v[1].floats(w[1]);
#pragma unroll
  for (int m = 0; m < kTokens; m++) {
    uint4 xv = *(const uint4 *)(x + (size_t)m * padded);
    const uint32_t *u = (const uint32_t *)&xv;
#pragma unroll
    for (int i = 0; i < 8; i++) {
      float f = i % 2 ? f16_high(u[i / 2]) : f16_low(u[i / 2]);
      sum[m][0] += w[0][i] * f;
      sum[m][1] += w[1][i] * f;
    }
  }
}

/* Where a warp's next unit lies. */
template <class T, bool kExperts> struct Source {
  const Args &a;
  const int *ids; /* of the chosen experts, in shared memory */
  const T *low;   /* the unit's first weight of row g */
  int pair, unit; /* row pair, and unit of the row pair */
  int left = 0;   /* units of the row from this one on; 0: `low` is not known yet */

  __device__ __forceinline__ Source(const Args &args, const int *chosen, int first_pair, int at)
      : a(args), ids(chosen) {
    pair = at / a.pair_units;
    unit = at - pair * a.pair_units;
    pair += first_pair;
  }

  __device__ __forceinline__ void find() {
    int row = pair / kTilePairs, within = unit; /* row: tile row; within: unit of the row */
    if constexpr (kExperts) {
      const ChosenExperts &c = a.chosen;
      const int slot = c.summed ? unit / a.row_units : row / c.tile_rows;
      if (c.summed)
        within -= slot * a.row_units;
      else
        row -= slot * c.tile_rows;
      row += ids[slot] * c.tile_rows;
    }
    low = (const T *)a.w + (size_t)(row * kTileOut + pair % kTilePairs) * a.stride + within * kUnitIn;
    left = a.row_units - within;
  }

  /* Loads the lane's part of the unit from both rows, and moves on to the next unit. */
  __device__ __forceinline__ void load(Eight<T> (&to)[2]) {
    if (left == 0) find();
    const int lane_in = (int)threadIdx.x % 32 * 8;
    const bool inside = (a.row_units - left) * kUnitIn + lane_in < (int)a.stride;
    to[0].load(low + lane_in, inside);
    to[1].load(low + 8 * a.stride + lane_in, inside);
    low += kUnitIn;
    left--;
    if (++unit == a.pair_units) unit = 0, pair++;
  }
};

/* Stores the sums of a row pair for one token. */
template <bool kExperts>
__device__ __forceinline__ void store_pair(const Args &a, const int *ids, int pair, int token, float low,
                                           float high) {
  const int tile_row = pair / kTilePairs, g = pair % kTilePairs;
  if constexpr (kExperts)
    a.chosen.store(a.out, ids, tile_row, g, low, high);
  else
    store_row_pair(a.out, token, tile_row, g, low, high);
}

/* Sums of row pairs that several warps share. */
template <int kTokens> struct Parts {
  float head[kWarps][kTokens][2]; /* sums of the pair that began in an earlier warp; 0 if there is none */
  float tail[kWarps][kTokens][2]; /* sums of the pair that began here and ends in a later warp */
};

/* Adds the sums of a warp's lanes for all tokens, and stores them: into y if the row pair is whole, else into
 * the warp's `part`. */
template <int kTokens, bool kExperts>
__device__ __forceinline__ void finish_pair(const Args &a, const int *ids, int pair, bool whole,
                                            float (&sum)[kTokens][2], float (*part)[2]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int m = 0; m < kTokens; m++) {
    const float low = warp_sum(sum[m][0]), high = warp_sum(sum[m][1]);
    sum[m][0] = sum[m][1] = 0;
    if (lane != m) continue;
    if (!whole)
      part[m][0] = low, part[m][1] = high;
    else if (m < a.n_tokens)
      store_pair<kExperts>(a, ids, pair, m, low, high);
  }
}

/* Prefetches into L1 what the epilogue reads. */
__device__ __forceinline__ void prefetch_rows(const float *of, int first_pair, int n_pairs) {
  const int first = first_pair / kTilePairs, n = (first_pair + n_pairs - 1) / kTilePairs + 1 - first;
  for (int i = threadIdx.x; i < n; i += kThreads) prefetch_l1(of + (first + i) * kTileOut);
}

/* Units that a warp has in flight: so few that blocks of the previous and the next kernel find registers on
 * the same SM. */
template <class T, int kTokens> constexpr int kDepth = (kTokens > 2 ? 8 : 12) / (int)sizeof(T);

template <class T, int kTokens, bool kExperts>
__global__ void __launch_bounds__(kThreads, 1) rows_kernel(const __grid_constant__ Args a) {
  constexpr int kAhead = kDepth<T, kTokens>;
  extern __shared__ __align__(16) __half x[];
  __shared__ int ids[kExperts ? kMaxChosen : 1];
  __shared__ Parts<kTokens> parts;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, padded = a.row_units * kUnitIn,
            pair0 = a.first_pair(blockIdx.x), n_pairs = a.first_pair(blockIdx.x + 1) - pair0,
            total = n_pairs * a.pair_units, begin = warp * total / kWarps, end = (warp + 1) * total / kWarps;
  if (kExperts) {
    if (!a.chosen.known) wait_for_previous();
    a.chosen.read_ids(ids);
  } else {
    dependents_may_start();
  }
  Source<T, kExperts> source(a, ids, pair0, begin);
  Eight<T> v[kAhead][2];
#pragma unroll
  for (int i = 0; i < kAhead; i++)
    if (begin + i < end) source.load(v[i]);
  if (!kExperts && a.out.bias) prefetch_rows(a.out.bias, pair0, n_pairs);
  float *scaled = (float *)(x + padded); /* only with a.norm */
  if (!kExperts && kTokens == 1 && a.norm.rows) load_norm(a, scaled, padded);
  if (!kExperts || a.chosen.known) wait_for_previous();
  if (kExperts) dependents_may_start(); /* after wait_for_previous(): dependents may read `ids` at once */
  if (!kExperts && kTokens == 1 && a.out.kind == LINEAR_ADD_F32)
    prefetch_rows((const float *)a.out.y, pair0, n_pairs);
  if (!kExperts && kTokens == 1 && a.norm.rows)
    normalise(a, scaled, x, padded);
  else
    load_x(a, x, kExperts ? a.n_tokens : kTokens, padded);
  if (lane < kTokens) parts.head[warp][lane][0] = parts.head[warp][lane][1] = 0;
  __syncthreads();

  int pair = begin / a.pair_units, unit = begin - pair * a.pair_units;
  bool began = unit == 0;
  float sum[kTokens][2] = {};
  for (int at = begin; at < end; at += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; i++) {
      if (at + i >= end) break;
      multiply<T, kTokens>(v[i], x + unit * kUnitIn + lane * 8, padded, sum);
      if (at + i + kAhead < end) source.load(v[i]);
      const bool ends = ++unit == a.pair_units;
      if (!ends && at + i + 1 < end) continue;
      finish_pair<kTokens, kExperts>(a, ids, pair0 + pair, began && ends, sum,
                                     began ? parts.tail[warp] : parts.head[warp]);
      if (ends) began = true, unit = 0, pair++;
    }
  }
  __syncthreads();
  /* The warp in which a row pair began adds up the parts of later warps. */
  if (unit == 0 || !began || lane >= kTokens || lane >= a.n_tokens || begin == end) return;
  float low = parts.tail[warp][lane][0], high = parts.tail[warp][lane][1];
  for (int w = warp + 1; w < kWarps; w++) {
    low += parts.head[w][lane][0];
    high += parts.head[w][lane][1];
    if ((w + 1) * total / kWarps >= (pair + 1) * a.pair_units) break;
  }
  store_pair<kExperts>(a, ids, pair0 + pair, lane, low, high);
}

Args args_of(const LinearArgs &args, int n_tile_rows, int n_blocks) {
  const DeviceLinear *w = args.w;
  Args a = {};
  a.w = w->dense, a.stride = w->stride;
  a.x = args.x, a.x_stride = args.x_stride, a.n_tokens = args.n_tokens, a.n_in = w->n_in;
  a.row_units = a.pair_units = ceil_div(w->n_in, kUnitIn);
  a.each = n_tile_rows * kTilePairs / n_blocks, a.longer = n_tile_rows * kTilePairs % n_blocks;
  a.out = args.out, a.norm = args.norm;
  return a;
}

template <class T, int kTokens> Status launch_rows(const LinearArgs &args, Error *err) {
  const DeviceLinear *w = args.w;
  const Args a = args_of(args, ceil_div(w->n_out, kTileOut), args.device.n_sms);
  const size_t of_input = kTokens * sizeof(__half) + (a.norm.rows ? sizeof(float) : 0);
  return launch(rows_kernel<T, kTokens, false>, dim3((unsigned)args.device.n_sms), kThreads,
                (size_t)a.row_units * kUnitIn * of_input, args.stream, args.dependent, w->name, err, a);
}

/* One token's experts. */
template <class T> Status launch_experts(const LinearArgs &args, Error *err) {
  const DeviceLinear *w = args.w;
  const ChosenExperts chosen = chosen_experts(args);
  Args a = args_of(args, chosen.n_tile_rows(), args.device.n_sms);
  a.chosen = chosen;
  a.n_tokens = w->summed ? w->n_chosen : 1;
  a.pair_units = a.row_units * a.n_tokens;
  a.out.n_out = w->n_out / w->n_experts;
  return launch(rows_kernel<T, 1, true>, dim3((unsigned)args.device.n_sms), kThreads,
                (size_t)a.pair_units * kUnitIn * sizeof(__half), args.stream, args.dependent, w->name, err,
                a);
}

template <class T> Status launch_rows_tokens(const LinearArgs &args, Error *err) {
  if (args.experts) return launch_experts<T>(args, err);
  return args.n_tokens == 1   ? launch_rows<T, 1>(args, err)
         : args.n_tokens == 2 ? launch_rows<T, 2>(args, err)
         : args.n_tokens <= 4 ? launch_rows<T, 4>(args, err)
                              : launch_rows<T, 8>(args, err);
}

Status launch_dense_rows(const LinearArgs &args, Error *err) {
  return args.w->type == WEIGHT_F16    ? launch_rows_tokens<__half>(args, err)
         : args.w->type == WEIGHT_BF16 ? launch_rows_tokens<__nv_bfloat16>(args, err)
                                       : launch_rows_tokens<float>(args, err);
}

} // namespace

const LinearKernel dense_rows_kernel = {nullptr, launch_dense_rows, false};
