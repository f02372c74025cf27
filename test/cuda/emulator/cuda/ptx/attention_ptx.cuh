/* attention_ptx.cuh - the emulator's form of cuda/ptx/attention_ptx.cuh. */
#ifndef AUK_CUDA_ATTENTION_PTX_CUH
#define AUK_CUDA_ATTENTION_PTX_CUH

#include "cuda/ptx/ptx.cuh"

/* Lane l gets column l / 4, rows 2 (l % 4) and the next. */
inline void ldmatrix_x4_transposed(uint32_t (&r)[4], uint32_t address) {
  unsigned char(*rows)[64] = emulator::meet(~0u, &address, sizeof address, nullptr, "ldmatrix.trans");
  unsigned lane = emulated_lane();
  for (int i = 0; i < 4; i++) {
    uint32_t pair = 0;
    for (int e = 0; e < 2; e++) {
      uint32_t row = *(uint32_t *)rows[8 * i + lane % 4 * 2 + e];
      pair |= (uint32_t)((const uint16_t *)emulator::shared_pointer(row))[lane / 4] << 16 * e;
    }
    r[i] = pair;
  }
}

inline uint32_t transpose_matrix(uint32_t value) {
  unsigned char(*rows)[64] = emulator::meet(~0u, &value, sizeof value, nullptr, "movmatrix");
  unsigned lane = emulated_lane();
  uint32_t pair = 0;
  for (int e = 0; e < 2; e++) {
    uint32_t from = *(uint32_t *)rows[(lane % 4 * 2 + e) * 4 + lane / 8];
    pair |= (from >> 16 * (lane / 4 % 2) & 0xffff) << 16 * e;
  }
  return pair;
}

inline uint32_t pack_half2(float low, float high) {
  return bits_as<uint32_t>(__floats2half2_rn(low, high));
}

inline float power_of_2(float x) {
  return exp2f(x);
}

#endif
