/* fp8.cuh - E4M3 to fp16 on chips that convert it themselves: compute capability 8.9 and later. PTX ISA 9.0,
 * section 9.7.9 "cvt". */
#pragma once

#include <stdint.h>

/* low = the numbers of bytes 0 and 1 of a word, high those of bytes 2 and 3, as pairs of fp16. Code 127 is
 * NaN. */
__device__ __forceinline__ void halves_of_e4m3(uint32_t word, uint32_t &low, uint32_t &high) {
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, l;\ncvt.rn.f16x2.e4m3x2 %1, h;\n}"
      : "=r"(low), "=r"(high)
      : "r"(word));
}
