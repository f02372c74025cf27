/* dense.cu - weights that were never quantised, lm_head among them: fp16, bf16 or fp32 by fp16 activations, 1
 * to 8 tokens on CUDA cores in fp32.
 *
 *     y[m][o] = sum_i w[o][i] x[m][i]
 *
 * READS  the weights once. */
#include "cuda/linear/eight.cuh"
#include "cuda/linear/kernel.cuh"

namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32, kWarpIn = 256; /* inputs of a warp at once, 8 a lane */

struct Args {
  const void *w;
  size_t stride;
  const __half *x;
  int x_stride, n_tokens, n_in, n_tiles_out; /* experts: rows of x; all tile rows that are chosen */
  Epilogue out;
  ChosenExperts chosen; /* of kernels with kExperts */
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

/* Adds eight inputs of a row pair for all tokens; x: the lane's inputs of the first token. */
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

/* Adds a warp's products of rows g and g + 8 of a tile with x to `sum`: kDeep loads of 256 inputs of each row
 * are in flight. low: the beginning of row g. */
template <class T, int kTokens, int kDeep>
__device__ __forceinline__ void multiply_rows(const Args &a, const T *low, const __half *x, int padded,
                                              float (&sum)[kTokens][2]) {
  const int lane = threadIdx.x % 32;
  const T *high = low + 8 * a.stride;
  for (int k0 = 0; k0 < padded; k0 += kWarpIn * kDeep) {
    Eight<T> v[kDeep][2];
#pragma unroll
    for (int d = 0; d < kDeep; d++) {
      int k = k0 + d * kWarpIn + lane * 8;
      v[d][0].load(low + k, k < (int)a.stride);
      v[d][1].load(high + k, k < (int)a.stride);
    }
#pragma unroll
    for (int d = 0; d < kDeep; d++) multiply<T, kTokens>(v[d], x + k0 + d * kWarpIn + lane * 8, padded, sum);
  }
}

template <class T, int kTokens, int kDeep, bool kExperts>
__global__ void __launch_bounds__(kThreads, 1) rows_kernel(const __grid_constant__ Args a) {
  extern __shared__ __align__(16) __half x[];
  int lane = threadIdx.x % 32,
      padded = (a.n_in + kWarpIn * kDeep - 1) / (kWarpIn * kDeep) * (kWarpIn * kDeep);
  __shared__ int ids[kExperts ? kMaxChosen : 1];
  if constexpr (kExperts) {
    wait_for_previous();
    dependents_may_start(); /* which know then that the choice is complete */
    a.chosen.read_ids(ids);
  } else {
    begin_overlapping();
  }
  load_x(a, x, kExperts ? a.n_tokens : kTokens, padded);
  __syncthreads();
  for (int row_pair = blockIdx.x + threadIdx.x / 32 * gridDim.x; row_pair < a.n_tiles_out * 8;
       row_pair += gridDim.x * kWarps) {
    const int tile_row = row_pair / 8, g = row_pair % 8;
    float sum[kTokens][2] = {};
    if constexpr (kExperts) {
      const ChosenExperts &c = a.chosen;
      const int slot = c.summed ? 0 : tile_row / c.tile_rows, end = c.summed ? c.n_chosen : slot + 1,
                own_row = tile_row - slot * c.tile_rows;
      for (int s = slot; s < end; s++)
        multiply_rows<T, kTokens, kDeep>(
            a, (const T *)a.w + ((size_t)(ids[s] * c.tile_rows + own_row) * kTileOut + g) * a.stride,
            x + (c.summed ? s * padded : 0), padded, sum);
    } else {
      multiply_rows<T, kTokens, kDeep>(a, (const T *)a.w + (size_t)(tile_row * kTileOut + g) * a.stride, x,
                                       padded, sum);
    }
#pragma unroll
    for (int m = 0; m < kTokens; m++) {
#pragma unroll
      for (int o = 16; o; o /= 2) {
        sum[m][0] += __shfl_xor_sync(~0u, sum[m][0], o);
        sum[m][1] += __shfl_xor_sync(~0u, sum[m][1], o);
      }
      if (lane == 0 && m < a.n_tokens) {
        if constexpr (kExperts)
          a.chosen.store(a.out, ids, tile_row, g, sum[m][0], sum[m][1]);
        else
          store_row_pair(a.out, m, tile_row, g, sum[m][0], sum[m][1]);
      }
    }
  }
}

template <class T, int kTokens> Status launch_rows(const LinearArgs &args, Error *err) {
  constexpr int kDeep = kTokens > 2 || sizeof(T) == 4 ? 4 : 8;
  const DeviceLinear *w = args.w;
  Args a = {w->dense, w->stride, args.x, args.x_stride, args.n_tokens, w->n_in, ceil_div(w->n_out, kTileOut),
            args.out, {}};
  size_t padded = (size_t)ceil_div(w->n_in, kWarpIn * kDeep) * kWarpIn * kDeep;
  return launch(rows_kernel<T, kTokens, kDeep, false>, dim3((unsigned)args.device.n_sms), kThreads,
                padded * kTokens * sizeof(__half), args.stream, args.dependent, w->name, err, a);
}

/* One token's experts. */
template <class T> Status launch_experts(const LinearArgs &args, Error *err) {
  constexpr int kDeep = DENSE_EXPERT_UNIT / kWarpIn;
  const DeviceLinear *w = args.w;
  Args a = {w->dense, w->stride, args.x,   args.x_stride,       w->summed ? w->n_chosen : 1,
            w->n_in,  0,         args.out, chosen_experts(args)};
  a.n_tiles_out = a.chosen.n_tile_rows();
  a.out.n_out = w->n_out / w->n_experts;
  const size_t padded = align_up((size_t)w->n_in, DENSE_EXPERT_UNIT);
  return launch(rows_kernel<T, 1, kDeep, true>, dim3((unsigned)args.device.n_sms), kThreads,
                padded * (size_t)a.n_tokens * sizeof(__half), args.stream, args.dependent, w->name, err, a);
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
