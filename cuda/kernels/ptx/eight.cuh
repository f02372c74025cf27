/* eight.cuh - eight neighbouring weights of a dense row, for kernels that multiply rows on CUDA cores. */
#pragma once

#include <cuda_bf16.h>
#include <type_traits>

#include "cuda/kernels/ptx/halves.cuh"
#include "cuda/kernels/ptx/ptx.cuh"

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

__device__ __forceinline__ void unpack_halves(float (&to)[8], uint4 from) {
  const Eight<__half> halves = {{from}};
  halves.floats(to);
}
