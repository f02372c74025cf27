/* wgmma.cuh - the emulator's form of cuda/kernels/ptx/wgmma.cuh; the work is in tensor.cpp. */
#pragma once

#include "cuda/kernels/ptx/cluster.cuh"

inline void copy_box(void *to, const void *map, uint64_t *barrier, int column, int row) {
  emulator::copy_box(to, map, barrier, column, row, 0);
}

inline void copy_box_to_pair(void *to, const void *map, uint64_t *barrier, int column, int row) {
  emulator::copy_box_to_pair(to, map, barrier, column, row);
}

inline void copy_box(void *to, const void *map, uint64_t *barrier, int column, int row, int plane) {
  emulator::copy_box(to, map, barrier, column, row, plane);
}

inline void add_4(float *p, float4 v) {
  p[0] += v.x;
  p[1] += v.y;
  p[2] += v.z;
  p[3] += v.w;
}

/* Lane l has rows 2 (l % 4) and the next, column l / 4. */
inline void store_matrices_transposed(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  unsigned char(*rows)[64] = emulator::meet(~0u, &address, sizeof address, nullptr, "stmatrix.trans");
  const uint32_t pairs[4] = {a, b, c, d};
  unsigned lane = emulated_lane();
  for (int i = 0; i < 8; i++) {
    uint32_t row = *(uint32_t *)rows[8 * (i / 2) + lane % 4 * 2 + i % 2];
    ((uint16_t *)emulator::shared_pointer(row))[lane / 4] = (uint16_t)(pairs[i / 2] >> i % 2 * 16);
  }
}

inline void prefetch_map(const void *) {}

inline void fence_stores_for_wgmma() {}

inline uint64_t operand_b(const void *rows) {
  return (uint64_t)(shared_address(rows) >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)64 << 32 |
         (uint64_t)1 << 62;
}

inline uint64_t operand_b_at(uint32_t rows, int i) {
  return (uint64_t)(0x40000000u | 64u) << 32 | ((rows >> 4 | 1u << 16) + 2 * i);
}

inline uint64_t operand_b_columns(const void *rows, int next) {
  return (uint64_t)(shared_address(rows) >> 4 & 0x3fff) | (uint64_t)(next >> 4) << 16 | (uint64_t)64 << 32 |
         (uint64_t)1 << 62;
}

inline void wgmma_fence() {
  emulator::wgmma_fence();
}

inline void wgmma_commit() {
  emulator::wgmma_commit();
}

template <int n> void wgmma_wait() {
  emulator::wgmma_wait(n);
}

template <int n> void compute_now(float (&)[n]) {}

template <int columns> void wgmma_f16(float (&c)[columns / 2], const uint32_t (&a)[4], uint64_t b, int add) {
  static_assert(columns >= 8 && columns <= 256 && columns % 8 == 0, "m64nNk16");
  emulator::wgmma(c, columns, a, 0, b, false, add != 0);
}

template <int columns>
void wgmma_f16_columns(float (&c)[columns / 2], const uint32_t (&a)[4], uint64_t b, int add) {
  static_assert(columns >= 8 && columns <= 256 && columns % 8 == 0, "m64nNk16");
  emulator::wgmma(c, columns, a, 0, b, true, add != 0);
}

template <int columns> void wgmma_f16_shared(float (&c)[columns / 2], uint64_t a, uint64_t b, int add) {
  static_assert(columns >= 8 && columns <= 256 && columns % 8 == 0, "m64nNk16");
  emulator::wgmma(c, columns, nullptr, a, b, false, add != 0);
}

template <int columns> void wgmma_u8s8(int (&c)[columns / 2], const uint32_t (&a)[4], uint64_t b, int add) {
  static_assert(columns >= 16 && columns <= 256 && columns % 16 == 0, "m64nNk32");
  emulator::wgmma(c, columns, a, b, add != 0);
}

template <int columns> void wgmma_s8s8_shared(int (&c)[columns / 2], uint64_t a, uint64_t b, int add) {
  static_assert(columns >= 16 && columns <= 256 && columns % 16 == 0, "m64nNk32");
  emulator::wgmma(c, columns, a, b, add != 0);
}
