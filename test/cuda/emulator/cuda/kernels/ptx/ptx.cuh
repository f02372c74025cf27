/* ptx.cuh - the emulator's form of kernels/ptx/ptx.cuh, as its comments and the PTX ISA 9.0 define it. */
#pragma once

#include <cuda_fp16.h>
#include <stdint.h>

inline uint32_t shared_address(const void *p) {
  return emulator::shared_address(p);
}

inline int opaque(int v) {
  return v;
}

inline void compiler_fence() {}

inline uint4 load_shared_16(uint32_t address) {
  return *(const uint4 *)emulator::shared_pointer(address);
}

inline uint2 load_shared_8(uint32_t address) {
  return *(const uint2 *)emulator::shared_pointer(address);
}

inline uint32_t load_shared_4(uint32_t address) {
  return *(const uint32_t *)emulator::shared_pointer(address);
}

inline uint32_t load_shared_1(uint32_t address) {
  return *(const uint8_t *)emulator::shared_pointer(address);
}

inline uint32_t load_past_l1(const void *from) {
  return *(const uint32_t *)from;
}

inline void store_shared(uint32_t address, float v) {
  *(float *)emulator::shared_pointer(address) = v;
}

inline void store_shared_4(uint32_t address, uint32_t v) {
  *(volatile uint32_t *)emulator::shared_pointer(address) = v;
}

template <uint32_t mask, uint32_t bits> uint32_t lop3_and_or(uint32_t v) {
  return (v & mask) | bits;
}

template <uint32_t selector> uint32_t prmt(uint32_t a, uint32_t b) {
  uint64_t both = (uint64_t)b << 32 | a;
  uint32_t r = 0;
  for (int i = 0; i < 4; i++) {
    uint32_t pick = selector >> 4 * i & 15, byte = (uint32_t)(both >> 8 * (pick & 7)) & 0xff;
    if (pick & 8) byte = byte & 0x80 ? 0xff : 0;
    r |= byte << 8 * i;
  }
  return r;
}

inline int dp4a_u8s8(uint32_t u, uint32_t s, int acc) {
  for (int i = 0; i < 4; i++) acc += (int)(uint8_t)(u >> 8 * i) * (int8_t)(s >> 8 * i);
  return acc;
}

inline int dp4a_s8s8(uint32_t a, uint32_t b, int acc) {
  for (int i = 0; i < 4; i++) acc += (int)(int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
  return acc;
}

namespace emulator {

/* A lane's operands of an mma, and the address of its sums. */
template <class T> struct Fragments {
  uint32_t a[4], b[2];
  T *c;
};

/* c[16][8] += a[16][16] b[16][8] of halves, of bf16, and of bytes (tensor.cpp). */
void multiply_halves(unsigned char (*values)[64]);
void multiply_bf16(unsigned char (*values)[64]);
template <class Byte> void multiply_bytes(unsigned char (*values)[64]);

} // namespace emulator

inline void mma_f16_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emulator::Fragments<float> f = {{a[0], a[1], a[2], a[3]}, {b0, b1}, c};
  emulator::meet(~0u, &f, sizeof f, emulator::multiply_halves, "mma m16n8k16");
}

inline void mma_bf16_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emulator::Fragments<float> f = {{a[0], a[1], a[2], a[3]}, {b0, b1}, c};
  emulator::meet(~0u, &f, sizeof f, emulator::multiply_bf16, "mma m16n8k16");
}

/* The halves of all e4m3 codes. */
inline const uint16_t *halves_of_e4m3() {
  static uint16_t table[256];
  static const bool made = [] {
    for (uint32_t code = 0; code < 256; code++) {
      const uint32_t magnitude = code & 127;
      const float number = magnitude == 127 ? NAN
                                            : ldexpf((float)(magnitude & 7) + (magnitude >> 3 ? 8 : 0),
                                                     (int)(magnitude >> 3 ? magnitude >> 3 : 1) - 10);
      table[code] = __half_as_ushort(__float2half(code & 128 ? -number : number));
    }
    return true;
  }();
  (void)made;
  return table;
}

inline void e4m3_halves(uint32_t word, uint32_t (&h)[2]) {
  const uint16_t *of = halves_of_e4m3();
  for (int i = 0; i < 2; i++)
    h[i] = of[word >> 16 * i & 255] | (uint32_t)of[word >> (16 * i + 8) & 255] << 16;
}

inline void mma_u8s8_m16n8k32(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emulator::Fragments<int> f = {{a[0], a[1], a[2], a[3]}, {b0, b1}, c};
  emulator::meet(~0u, &f, sizeof f, emulator::multiply_bytes<uint8_t>, "mma m16n8k32");
}

inline void mma_s8s8_m16n8k32(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emulator::Fragments<int> f = {{a[0], a[1], a[2], a[3]}, {b0, b1}, c};
  emulator::meet(~0u, &f, sizeof f, emulator::multiply_bytes<int8_t>, "mma m16n8k32");
}

/* Lane l gets row l / 4, halves 2 (l % 4) and the next, of each of the four matrices. */
inline void ldmatrix_x4(uint32_t (&r)[4], uint32_t address) {
  unsigned char(*rows)[64] = emulator::meet(~0u, &address, sizeof address, nullptr, "ldmatrix");
  unsigned lane = emulated_lane();
  for (int i = 0; i < 4; i++) {
    const unsigned char *row =
        (const unsigned char *)emulator::shared_pointer(*(uint32_t *)rows[8 * i + lane / 4]);
    r[i] = *(const uint32_t *)(row + lane % 4 * 4);
  }
}

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

inline float reciprocal(float x) {
  return 1 / x;
}

inline float max_or_nan(float a, float b) {
  return a > b || a != a ? a : b;
}

inline void copy_async_16(void *to, const void *from, int valid) {
  emulator::copy_later(to, from, valid, 16);
}

inline void copy_async_16(uint32_t to, const void *from) {
  emulator::copy_later(emulator::shared_pointer(to), from, 16, 16);
}

inline void copy_async_8(uint32_t to, const void *from) {
  emulator::copy_later(emulator::shared_pointer(to), from, 8, 8);
}

inline void copy_async_8(void *to, const void *from) {
  emulator::copy_later(to, from, 8, 8);
}

inline void copy_async_4(void *to, const void *from) {
  emulator::copy_later(to, from, 4, 4);
}

inline void copy_async_commit() {
  emulator::copies_commit();
}

template <int n> void copy_async_wait() {
  emulator::copies_wait(n);
}

inline uint4 load_once(const uint4 *p) {
  return *p;
}
inline uint2 load_once(const uint2 *p) {
  return *p;
}

inline void prefetch_l1(const void *) {}

inline unsigned count_up(unsigned *counter) {
  return atomicAdd(counter, 1u);
}

inline void dependents_may_start() {}
inline void wait_for_previous() {}
