/* linear_reference.cuh - the matmul that test_linear.cu compares kernels with: weights as the checkpoint
 * stores them, activations as each kernel takes them, both in double, multiplied in the plainest way. */
#pragma once

#include "test/cuda/random_linear.cuh"

/* w[k][row0 + o ..] of a part, in double; dense matrices are stored [o][k]. */
static __global__ void expand(Stored s, double *w, int n_rows, int row0) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < (size_t)s.n_in * s.n_out;
       i += (size_t)gridDim.x * blockDim.x) {
    int k = (int)(i / s.n_out), o = (int)(i % s.n_out);
    double v;
    size_t dense = (size_t)o * s.n_in + k;
    if (s.type == WEIGHT_F32)
      v = ((const float *)s.weights)[dense];
    else if (s.type == WEIGHT_F16)
      v = __half2float(((const __half *)s.weights)[dense]);
    else if (s.type == WEIGHT_INT8)
      v = ((const int8_t *)s.weights)[dense] * (double)((const float *)s.scales)[o];
    else if (s.type == WEIGHT_BF16)
      v = __uint_as_float((uint32_t)((const uint16_t *)s.weights)[dense] << 16);
    else
      v = stored_weight(s, s.weights, s.zeros, s.scales, k, o);
    w[(size_t)k * n_rows + row0 + o] = v;
  }
}

/* y[m][o] = sum_k x[m][k] w[k][o]: tiles of 64 x 64 through shared memory, 4 x 4 a thread. */
static __global__ void multiply_double(const double *w, const double *x, double *y, int n_in, int n_out,
                                       int n_tokens) {
  __shared__ double ws[16][64], xs[16][65];
  int o0 = blockIdx.x * 64, m0 = blockIdx.y * 64, tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  double sum[4][4] = {};
  for (int k0 = 0; k0 < n_in; k0 += 16) {
    for (int i = threadIdx.x; i < 1024; i += 256) {
      int k = k0 + i / 64, o = o0 + i % 64;
      ws[i / 64][i % 64] = k < n_in && o < n_out ? w[(size_t)k * n_out + o] : 0;
      k = k0 + i % 16;
      int m = m0 + i / 16;
      xs[i % 16][i / 16] = k < n_in && m < n_tokens ? x[(size_t)m * n_in + k] : 0;
    }
    __syncthreads();
    for (int k = 0; k < 16; k++)
      for (int a = 0; a < 4; a++)
        if (m0 + ty + 16 * a < n_tokens)
          for (int b = 0; b < 4; b++) sum[a][b] += xs[k][ty + 16 * a] * ws[k][tx + 16 * b];
    __syncthreads();
  }
  for (int a = 0; a < 4; a++)
    for (int b = 0; b < 4; b++)
      if (m0 + ty + 16 * a < n_tokens && o0 + tx + 16 * b < n_out)
        y[(size_t)(m0 + ty + 16 * a) * n_out + o0 + tx + 16 * b] = sum[a][b];
}

/* The definitions of int8_act.cu, for blocks of inputs, and of int8_token.cu, for whole tokens. */
__device__ static float int8_step(float top, bool whole) {
  return whole ? top > 0 ? top / 127.5f : 0x1p-23f : top / 127.0f;
}

__device__ static float int8_rounded(float v, float top, bool whole) {
  return whole ? fminf(rintf(v / int8_step(top, true)), 127.0f) : top > 0 ? rintf(v * (127.0f / top)) : 0.0f;
}

/* x in double; quantised to int8 in blocks of `block` inputs if block > 0, per token if block < 0. */
static __global__ void expand_x(const __half *x, int stride, double *to, int n_in, int n_tokens, int block) {
  int width = block > 0 ? block : block ? n_in : 128, n_blocks = (n_in + width - 1) / width;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n_blocks * n_tokens; i += gridDim.x * blockDim.x) {
    int token = i / n_blocks, k0 = i % n_blocks * width, k1 = min(n_in, k0 + width);
    const __half *row = x + (size_t)token * stride;
    float top = 0;
    for (int k = k0; k < k1; k++) top = fmaxf(top, fabsf(__half2float(row[k])));
    float d = int8_step(top, block < 0);
    for (int k = k0; k < k1; k++) {
      float v = __half2float(row[k]);
      to[(size_t)token * n_in + k] = block ? (double)d * int8_rounded(v, top, block < 0) : v;
    }
  }
}

/* Mixes the bits of the index in `bits` of n numbers, n a multiple of the number with the highest of them. */
__device__ static void mix_bits(double *v, int n, int bits) {
  for (int step = 1; step <= bits; step *= 2)
    for (int k = 0; bits & step && k < n; k++) {
      if (k & step) continue;
      const double a = v[k], b = v[k + step];
      v[k] = a + b, v[k + step] = a - b;
    }
}

/* Rotates and rounds a row as rotated.cuh does, with its rounding to fp16 between the two mma. The order of
 * the results is that of the inputs. */
__device__ static void rotate_row(double *v, int n) {
  const int mixed = min(n & -n, 2048);
  double top = 0;
  for (int k = 0; k < n; k++) {
    const int pairs = __popc(k & k >> 1 & 0x149) + (k >> 2 & k >> 5 & 1);
    if (pairs % 2) v[k] = -v[k];
  }
  mix_bits(v, n, 0x1b);
  for (int k = 0; k < n; k++) v[k] = __half2float(__float2half_rn((float)(v[k] / 16)));
  mix_bits(v, n, 0xe4 & (mixed - 1));
  mix_bits(v, n, 0x700 & (mixed - 1));
  for (int k = 0; k < n; k++) v[k] = (double)(float)v[k], top = fmax(top, fabs(v[k]));
  const float inverse = 127.0f / fmaxf((float)top, 1e-30f);
  for (int k = 0; k < n; k++) v[k] = rintf((float)v[k] * inverse) * top / 127 * (16 / sqrt((double)mixed));
}

/* Weights of 4 bits as linear_rotate() makes bytes of them, times their output's scale. A thread has an
 * output. scratch: [s.n_out][n_in] */
static __global__ void expand_rotated(Stored s, double *scratch, double *w, int n_rows, int row0) {
  const int o = blockIdx.x * blockDim.x + threadIdx.x;
  if (o >= s.n_out) return;
  double *v = scratch + (size_t)o * s.n_in;
  for (int k = 0; k < s.n_in; k++)
    v[k] = __half2float(__float2half_rn((float)stored_weight(s, s.weights, s.zeros, s.scales, k, o)));
  rotate_row(v, s.n_in);
  for (int k = 0; k < s.n_in; k++) w[(size_t)k * n_rows + row0 + o] = v[k];
}

/* x in double, rotated and rounded by rotated.cuh's rules. A thread has a token. */
static __global__ void expand_x_rotated(const __half *x, int stride, double *to, int n_in, int n_tokens) {
  const int token = blockIdx.x * blockDim.x + threadIdx.x;
  if (token >= n_tokens) return;
  double *v = to + (size_t)token * n_in;
  for (int k = 0; k < n_in; k++) v[k] = __half2float(x[(size_t)token * stride + k]);
  rotate_row(v, n_in);
}

/* result[0] += sum (y - ref)^2, result[1] += sum ref^2, result[2] += differing bits of y and again,
 * result[3] += writes outside. y and again are [n_tokens + 1][stride] with n_out columns of results, the
 * rest and the last row untouched. */
static __global__ void compare(const float *y, const float *again, const double *ref, int n_out, int stride,
                               int n_tokens, double *result) {
  double s[4] = {};
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < (size_t)(n_tokens + 1) * stride;
       i += (size_t)gridDim.x * blockDim.x) {
    int m = (int)(i / stride), o = (int)(i % stride);
    s[2] += __float_as_uint(y[i]) != __float_as_uint(again[i]);
    if (m == n_tokens || o >= n_out) {
      s[3] += __float_as_uint(y[i]) != 0xffffffffu;
      continue;
    }
    double r = ref[(size_t)m * n_out + o], d = y[i] - r;
    s[0] += isnan(d) ? 1e300 : d * d;
    s[1] += r * r;
  }
  for (int i = 0; i < 4; i++) {
    for (int o = 16; o; o /= 2) s[i] += __shfl_xor_sync(~0u, s[i], o);
    if (threadIdx.x % 32 == 0 && s[i] != 0) atomicAdd(result + i, s[i]);
  }
}

/* For check_norm(): rows [n_tokens][n_in], the fp16 numbers times powers of 2, and after them the weight of
 * their norm. by[m]: the factor by which the norm of row m is larger than the fp16 numbers. */
static inline void normed_rows(const std::vector<__half> &x, int x_stride, int n_tokens, int n_in,
                               std::vector<float> &rows, double *by) {
  for (int k = 0; k < n_in; k++) rows[(size_t)n_tokens * n_in + k] = ldexpf(1, k % 3 - 1);
  for (int m = 0; m < n_tokens; m++) {
    double squares = 0;
    for (int k = 0; k < n_in; k++) {
      const float v = ldexpf(__half2float(x[(size_t)m * x_stride + k]), m % 5 - 2 - (k % 3 - 1));
      rows[(size_t)m * n_in + k] = v, squares += (double)v * v;
    }
    by[m] = ldexp(1, m % 5 - 2) / sqrt(squares / n_in + 1e-6);
  }
}
