/* random_cache.cuh - a random KV cache in 8 bits, and the halves that it stands for. */
#pragma once

#include <cuda_fp16.h>

#include "cuda/attention/attention.h"
#include "cuda/attention/q8.cuh"
#include "test/cuda/check.cuh"

/* Random numbers and scales, and the halves of q * scale. A thread makes a row. Scales of keys have 4 bits,
 * so that their halves are exact: some families round keys to halves, others do not. */
static __global__ void random_rows_8(size_t n_rows, int head_dim, int scales_of_row, unsigned seed,
                                     uint8_t *numbers, __half *scales, __half *halves) {
  const size_t row = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= n_rows) return;
  unsigned x = (unsigned)row * 2654435761u + seed;
  for (int d = 0; d < head_dim; d++) {
    const int at = scales_of_row == 1 ? 0 : d / KEY_SCALE_DIMS;
    x = x * 1664525u + 1013904223u;
    if (scales_of_row == 1 ? d == 0 : d % KEY_SCALE_DIMS == 0)
      scales[row * scales_of_row + at] = /* 0.002 to 0.008; of values with 7 bits */
          __ushort_as_half(
              (unsigned short)(0x1800 + (scales_of_row == 1 ? (x >> 25) * 16 : (x >> 28) * 128)));
    x = x * 1664525u + 1013904223u;
    const int q = (int)((x >> 8) % 255) - 127;
    numbers[row * head_dim + d] = (uint8_t)(q + 128);
    halves[row * head_dim + d] = __float2half_rn((float)q * __half2float(scales[row * scales_of_row + at]));
  }
}

struct RandomCache8 {
  uint8_t *k, *v;
  __half *k_scales, *v_scales, *k_halves, *v_halves;

  void use(Attention *a) const {
    a->k = k, a->v = v, a->k_scales = k_scales, a->v_scales = v_scales;
    a->k_halves = k_halves, a->v_halves = v_halves;
  }
  void release() {
    for (void *p :
         {(void *)k, (void *)v, (void *)k_scales, (void *)v_scales, (void *)k_halves, (void *)v_halves})
      CHECK(cudaFree(p));
  }
};

/* k, v: fp16 [n_rows][head_dim] on the device, which the cache stands for. They stay NaN where they are
 * unpacked to a place that no token sees. */
static RandomCache8 random_cache_8(size_t n_rows, int head_dim, __half *k, __half *v) {
  RandomCache8 c;
  const size_t n = n_rows * head_dim;
  CHECK(cudaMalloc(&c.k, n));
  CHECK(cudaMalloc(&c.v, n));
  CHECK(cudaMalloc(&c.k_scales, n_rows * key_scales(head_dim) * KV_SCALE_BYTES));
  CHECK(cudaMalloc(&c.v_scales, n_rows * KV_SCALE_BYTES));
  CHECK(cudaMalloc(&c.k_halves, n * 2));
  CHECK(cudaMalloc(&c.v_halves, n * 2));
  CHECK(cudaMemset(c.k_halves, 0xff, n * 2));
  CHECK(cudaMemset(c.v_halves, 0xff, n * 2));
  const unsigned blocks = (unsigned)((n_rows + 63) / 64);
  random_rows_8<<<blocks, 64>>>(n_rows, head_dim, key_scales(head_dim), 1, c.k, c.k_scales, k);
  random_rows_8<<<blocks, 64>>>(n_rows, head_dim, 1, 2, c.v, c.v_scales, v);
  CHECK(cudaDeviceSynchronize());
  return c;
}
