/* halves.cuh - numbers in fp16, two to a word. */
#pragma once

#include <cuda_fp16.h>
#include <stdint.h>

/* The low, and the high, of two fp16 in a word. */
__device__ __forceinline__ float f16_low(uint32_t f16x2) {
  return __half2float(__ushort_as_half((unsigned short)f16x2));
}

__device__ __forceinline__ float f16_high(uint32_t f16x2) {
  return __half2float(__ushort_as_half((unsigned short)(f16x2 >> 16)));
}
