/* random_cache.cuh - a random KV cache in 8 bits, the numbers that it stands for, and these as halves. */
#pragma once

#include <cuda_fp16.h>

#include "cuda/kernels/attention/attention.h"
#include "cuda/kernels/cache/q8.cuh"
#include "test/cuda/check.cuh"

/* Random numbers and scales, q * scale, and the halves of that. A thread makes a row. */
static __global__ void random_rows_8(size_t n_rows, int head_dim, int scales_of_row, unsigned seed,
                                     uint8_t *numbers, __half *scales, float *exact, __half *halves) {
  const size_t row = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= n_rows) return;
  unsigned x = (unsigned)row * 2654435761u + seed;
  for (int d = 0; d < head_dim; d++) {
    const int at = scales_of_row == 1 ? 0 : d / KEY_SCALE_DIMS;
    x = x * 1664525u + 1013904223u;
    if (scales_of_row == 1 ? d == 0 : d % KEY_SCALE_DIMS == 0)
      scales[row * scales_of_row + at] =
          __ushort_as_half((unsigned short)(0x1800 + (x >> 25) * 16)); /* 0.002 to 0.008, of 7 bits */
    x = x * 1664525u + 1013904223u;
    const int q = (int)((x >> 8) % 255) - 127;
    numbers[row * head_dim + d] = (uint8_t)(q + 128);
    exact[row * head_dim + d] = (float)q * __half2float(scales[row * scales_of_row + at]);
    halves[row * head_dim + d] = __float2half_rn(exact[row * head_dim + d]);
  }
}

struct RandomCache8 {
  uint8_t *k, *v;
  __half *k_scales, *v_scales, *k_halves, *v_halves;
  float *k_exact, *v_exact; /* q * scale */

  void use(Attention *a) const {
    a->k = k, a->v = v, a->k_scales = k_scales, a->v_scales = v_scales;
    a->k_halves = k_halves, a->v_halves = v_halves;
  }
  void release() {
    for (void *p : {(void *)k, (void *)v, (void *)k_scales, (void *)v_scales, (void *)k_halves,
                    (void *)v_halves, (void *)k_exact, (void *)v_exact})
      CHECK(cudaFree(p));
  }
};

/* k, v: fp16 [n_rows][head_dim] on the device, the halves of what the cache stands for. They stay NaN where
 * they are unpacked to a place that no token sees. */
static RandomCache8 random_cache_8(size_t n_rows, int head_dim, __half *k, __half *v) {
  RandomCache8 c;
  const size_t n = n_rows * head_dim;
  CHECK(cudaMalloc(&c.k, n));
  CHECK(cudaMalloc(&c.v, n));
  CHECK(cudaMalloc(&c.k_scales, n_rows * key_scales(head_dim) * KV_SCALE_BYTES));
  CHECK(cudaMalloc(&c.v_scales, n_rows * KV_SCALE_BYTES));
  CHECK(cudaMalloc(&c.k_halves, n * 2));
  CHECK(cudaMalloc(&c.v_halves, n * 2));
  CHECK(cudaMalloc(&c.k_exact, n * sizeof(float)));
  CHECK(cudaMalloc(&c.v_exact, n * sizeof(float)));
  CHECK(cudaMemset(c.k_halves, 0xff, n * 2));
  CHECK(cudaMemset(c.v_halves, 0xff, n * 2));
  const unsigned blocks = (unsigned)((n_rows + 63) / 64);
  random_rows_8<<<blocks, 64>>>(n_rows, head_dim, key_scales(head_dim), 1, c.k, c.k_scales, c.k_exact, k);
  random_rows_8<<<blocks, 64>>>(n_rows, head_dim, 1, 2, c.v, c.v_scales, c.v_exact, v);
  CHECK(cudaDeviceSynchronize());
  return c;
}
