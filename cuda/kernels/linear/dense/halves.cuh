/* halves.cuh - fp16 and bf16 weights as fp16, for tensor cores with fp16 activations.
 * Included by dense_tensorcore.cu and dense_wgmma.cu. */
#pragma once

#include <cuda_fp16.h>
#include <type_traits>

#include "cuda/kernels/ptx/ptx.cuh"

/* Two weights of type T, fp16 or bf16, as fp16. */
template <class T> __device__ __forceinline__ uint32_t halves(uint32_t two) {
  if (std::is_same<T, __half>::value) return two;
  return pack_half2(__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000u));
}
