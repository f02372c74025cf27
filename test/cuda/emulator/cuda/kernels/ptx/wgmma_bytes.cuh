/* wgmma_bytes.cuh - the emulator's form of cuda/kernels/ptx/wgmma_bytes.cuh; the work is in tensor.cpp. */
#pragma once

#include "cuda/kernels/ptx/wgmma.cuh"

template <int columns> void wgmma_s8s8_shared(int (&c)[columns / 2], uint64_t a, uint64_t b, int add) {
  static_assert(columns >= 16 && columns <= 256 && columns % 16 == 0, "m64nNk32");
  emulator::wgmma(c, columns, a, b, add != 0);
}

inline void set_bits(uint32_t *p, uint32_t bits) {
  __atomic_fetch_or(p, bits, __ATOMIC_RELAXED);
}
