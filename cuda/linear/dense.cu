/* dense.cu - weights that were never quantised, lm_head among them: fp16, bf16 or fp32 by fp16 activations.
 *
 *     y[m][o] = sum_i w[o][i] x[m][i]
 *
 * dense_rows    1 to 8 tokens, any type, CUDA cores in fp32: bound by reading the weights
 * dense_cublas  any number of tokens; bf16 weights are converted to fp16 part by part (their 8 bits of
 *               mantissa fit; |w| < 2^-14 loses the bits below 2^-25), x to fp32 for fp32 weights
 * READS  the weights once (dense_rows). */
#include <cuda_bf16.h>
#include <type_traits>

#include "cuda/linear/cublas.cuh"

namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32, kChunk = 256; /* inputs of a warp at once, 8 a lane */

struct Args {
  const void *w;
  size_t stride;
  const __half *x;
  int x_stride, n_tokens, n_in, n_tiles_out;
  Epilogue out;
};

/* Eight weights as stored, and as floats. */
template <class T> struct Eight {
  uint4 v[sizeof(T) / 2];
  __device__ __forceinline__ void load(const T *from, bool inside) {
#pragma unroll
    for (int i = 0; i < (int)sizeof(T) / 2; i++)
      v[i] = inside ? load_once((const uint4 *)from + i) : make_uint4(0, 0, 0, 0);
  }
  __device__ __forceinline__ void floats(float (&f)[8]) const {
    const uint32_t *u = (const uint32_t *)v;
#pragma unroll
    for (int i = 0; i < 8; i++) {
      if (std::is_same<T, float>::value)
        f[i] = __uint_as_float(u[i % (2 * sizeof(T))]);
      else if (std::is_same<T, __nv_bfloat16>::value)
        f[i] = __uint_as_float(i % 2 ? u[i / 2] & 0xffff0000u : u[i / 2] << 16);
      else
        f[i] = i % 2 ? f16_high(u[i / 2]) : f16_low(u[i / 2]);
    }
  }
};

/* Copies x of all tokens to shared memory [kTokens][padded], zero past n_in and n_tokens. */
template <int kTokens>
__device__ __forceinline__ void load_x(const Args &a, __half *x, int pitch, int padded) {
  for (int i = threadIdx.x; i < kTokens * padded / 8; i += blockDim.x) {
    int token = i / (padded / 8), k = i % (padded / 8) * 8;
    uint4 v = make_uint4(0, 0, 0, 0);
    const __half *from = a.x + (size_t)token * a.x_stride + k;
    if (token < a.n_tokens && k + 8 <= a.n_in) {
      v = __ldcg((const uint4 *)from);
    } else if (token < a.n_tokens) {
      for (int j = 0; j < 8; j++)
        if (k + j < a.n_in) ((__half *)&v)[j] = from[j];
    }
    *(uint4 *)(x + (size_t)token * pitch + k) = v;
  }
}

/* A warp computes rows g and g + 8 of a tile at a time, with kDeep loads of 256 inputs of each in flight. */
template <class T, int kTokens, int kDeep>
__global__ void __launch_bounds__(kThreads, 1) rows_kernel(const __grid_constant__ Args a) {
  extern __shared__ __align__(16) __half x[];
  int lane = threadIdx.x % 32, padded = (a.n_in + kChunk * kDeep - 1) / (kChunk * kDeep) * (kChunk * kDeep);
  dependents_may_start();
  wait_for_previous();
  load_x<kTokens>(a, x, padded, padded);
  __syncthreads();
  for (int pair = blockIdx.x + threadIdx.x / 32 * gridDim.x; pair < a.n_tiles_out * 8;
       pair += gridDim.x * kWarps) {
    const T *low = (const T *)a.w + (size_t)(pair / 8 * kTileOut + pair % 8) * a.stride,
            *high = low + 8 * a.stride;
    float sum[kTokens][2] = {};
    for (int k0 = 0; k0 < padded; k0 += kChunk * kDeep) {
      Eight<T> v[kDeep][2];
#pragma unroll
      for (int d = 0; d < kDeep; d++) {
        int k = k0 + d * kChunk + lane * 8;
        v[d][0].load(low + k, k < (int)a.stride);
        v[d][1].load(high + k, k < (int)a.stride);
      }
#pragma unroll
      for (int d = 0; d < kDeep; d++) {
        float w[2][8];
        v[d][0].floats(w[0]);
        v[d][1].floats(w[1]);
#pragma unroll
        for (int m = 0; m < kTokens; m++) {
          uint4 xv = *(const uint4 *)(x + (size_t)m * padded + k0 + d * kChunk + lane * 8);
          const uint32_t *u = (const uint32_t *)&xv;
#pragma unroll
          for (int i = 0; i < 8; i++) {
            float f = i % 2 ? f16_high(u[i / 2]) : f16_low(u[i / 2]);
            sum[m][0] += w[0][i] * f;
            sum[m][1] += w[1][i] * f;
          }
        }
      }
    }
#pragma unroll
    for (int m = 0; m < kTokens; m++) {
#pragma unroll
      for (int o = 16; o; o /= 2) {
        sum[m][0] += __shfl_xor_sync(~0u, sum[m][0], o);
        sum[m][1] += __shfl_xor_sync(~0u, sum[m][1], o);
      }
      if (lane == 0 && m < a.n_tokens) store_row_pair(a.out, m, pair / 8, pair % 8, sum[m][0], sum[m][1]);
    }
  }
}

template <class T, int kTokens> Status launch_rows(const LinearArgs &args, Error *err) {
  constexpr int kDeep = kTokens > 2 || sizeof(T) == 4 ? 4 : 8;
  const DeviceLinear *w = args.w;
  Args a = {w->dense, w->stride, args.x, args.x_stride, args.n_tokens, w->n_in, ceil_div(w->n_out, kTileOut),
            args.out};
  size_t padded = (size_t)ceil_div(w->n_in, kChunk * kDeep) * kChunk * kDeep;
  return launch(rows_kernel<T, kTokens, kDeep>, dim3((unsigned)args.device.n_sms), kThreads,
                padded * kTokens * sizeof(__half), args.stream, args.dependent, w->name, err, a);
}

template <class T> Status launch_rows_tokens(const LinearArgs &args, Error *err) {
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

/* --- many tokens, by cuBLAS */

constexpr size_t kPieceBytes = 64 << 20;

struct Pieces {
  int rows;                /* of one cuBLAS call */
  size_t weights, x, sums; /* bytes of scratch, each aligned */
};

Pieces pieces_of(const DeviceLinear *w, int n_tokens, size_t piece_bytes) {
  Pieces p = {w->n_out, 0, 0, 0};
  size_t most = (size_t)w->n_out;
  if (w->type == WEIGHT_BF16 && piece_bytes / (w->stride * 2) < most) most = piece_bytes / (w->stride * 2);
  if (needs_scratch(w) && piece_bytes / ((size_t)n_tokens * 4) < most)
    most = piece_bytes / ((size_t)n_tokens * 4);
  if (most < (size_t)w->n_out) p.rows = most < 256 ? 256 : (int)(most / 256 * 256);
  if (p.rows > w->n_out) p.rows = w->n_out;
  if (w->type == WEIGHT_BF16) p.weights = ((size_t)p.rows * w->stride * 2 + 255) / 256 * 256;
  if (w->type == WEIGHT_F32) p.x = ((size_t)n_tokens * w->stride * 4 + 255) / 256 * 256;
  if (needs_scratch(w)) p.sums = (size_t)p.rows * (size_t)n_tokens * 4;
  return p;
}

size_t cublas_workspace(const DeviceLinear *w, int n_tokens, const DeviceLimits &) {
  Pieces p = pieces_of(w, n_tokens, kPieceBytes);
  return p.weights + p.x + p.sums;
}

__global__ void bf16_to_f16(const __nv_bfloat162 *from, __half2 *to, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < n) to[i] = __float22half2_rn(__bfloat1622float2(from[i]));
}

__global__ void widen_x(const __half *x, int x_stride, float *to, int to_stride, int n_in) {
  for (int i = threadIdx.x; i < n_in; i += blockDim.x)
    to[(size_t)blockIdx.x * to_stride + i] = __half2float(x[(size_t)blockIdx.x * x_stride + i]);
}

Status launch_dense_cublas(const LinearArgs &args, Error *err) {
  const DeviceLinear *w = args.w;
  Pieces pieces = pieces_of(w, args.n_tokens, kPieceBytes >> args.variant);
  unsigned char *weights = args.workspace, *x = weights + pieces.weights;
  float *sums = (float *)(x + pieces.x);
  size_t element = w->type == WEIGHT_F32 ? 4 : 2;
  if (w->type == WEIGHT_F32)
    TRY(launch(widen_x, dim3((unsigned)args.n_tokens), 256, 0, args.stream, false, w->name, err, args.x,
               args.x_stride, (float *)x, (int)w->stride, w->n_in));
  for (int first = 0; first < w->n_out; first += pieces.rows) {
    int n = w->n_out - first < pieces.rows ? w->n_out - first : pieces.rows;
    const unsigned char *from = (const unsigned char *)w->dense + (size_t)first * w->stride * element;
    Gemm p = {from, args.x,     CUDA_R_16F, n,    args.n_tokens, w->n_in, w->stride, (size_t)args.x_stride,
              NULL, CUDA_R_32F, 0,          false};
    if (w->type == WEIGHT_BF16) {
      size_t pairs = (size_t)n * w->stride / 2;
      TRY(launch(bf16_to_f16, dim3((unsigned)ceil_div((long)pairs, 256)), 256, 0, args.stream, false, w->name,
                 err, (const __nv_bfloat162 *)from, (__half2 *)weights, pairs));
      p.w = weights;
    } else if (w->type == WEIGHT_F32) {
      p.x = x;
      p.type = CUDA_R_32F;
      p.x_stride = w->stride;
    }
    TRY(cublas_matmul(args, p, first, sums, err));
  }
  return STATUS_OK;
}

} // namespace

const LinearKernel dense_rows_kernel = {nullptr, launch_dense_rows, false};
const LinearKernel dense_cublas_kernel = {cublas_workspace, launch_dense_cublas, true};
