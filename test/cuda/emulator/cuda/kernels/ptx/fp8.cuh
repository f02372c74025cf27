/* fp8.cuh - the emulator's form of cuda/kernels/ptx/fp8.cuh. */
#pragma once

#include "base/half.h"

inline uint32_t half_of_e4m3(uint32_t code) {
  return float_to_f16(e4m3_to_float((uint8_t)code));
}

inline void halves_of_e4m3(uint32_t word, uint32_t &low, uint32_t &high) {
  low = half_of_e4m3(word & 255) | half_of_e4m3(word >> 8 & 255) << 16;
  high = half_of_e4m3(word >> 16 & 255) | half_of_e4m3(word >> 24) << 16;
}
