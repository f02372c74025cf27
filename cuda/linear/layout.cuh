/* layout.cuh - how quantised weights lie in device memory, and how a lane unpacks its part.
 *
 * One layout serves every kernel. Output rows come in slabs of 8, two slabs make a tile row of 16; inputs
 * come in tiles of 64, each exactly four steps of mma m16n8k16 or two of m16n8k32. Within a tile the sixteen
 * bytes of lane (g, t) = (lane / 4, lane % 4) are what the tensor cores want from that lane:
 *
 *   4 bits, 512 bytes a tile          8 bits, 1024 bytes: two vectors of 512, for k < 32 and k >= 32
 *     word j: k = 16j + {2t, 8+2t, 2t+1, 9+2t}      vector h: words  0        1          2            3
 *     low nibbles  row g                             row           g        g + 8      g            g + 8
 *     high nibbles row g + 8                         k of word j =  2h       2h         2h + 1       2h + 1
 *
 *   tiles  [n_out / 16][n_in / 64][512 or 1024 bytes]
 *   scales [n_out / 16][n_groups][8] u32: fp16 of row g in the low half, of row g + 8 in the high half
 *   zeros  [n_out / 16][n_groups][8] u8: row g in the low nibble, g + 8 in the high (8 bits: u16, two bytes)
 *
 * int8 weights with one scale per output lie as 8 bits do, signed, without groups and zeros; scales fp32
 * [n_out rounded up to 16].
 *
 * n_in is padded to 128, n_groups with it, and n_out to 16, with zero bytes everywhere: padded rows and
 * groups have scale 0, and every kernel takes x as 0 for padded inputs. Bytes are ordered so that a word
 * masked by 0x000f000f is the half2 at k 2t, 2t+1 and, shifted by 8, the one at k 8+2t, 9+2t: the natural
 * order of ldmatrix and wgmma operands. */
#pragma once

#include "cuda/ptx/ptx.cuh"

constexpr int kTileIn = 64, kTileOut = 16;
constexpr int kPadIn = 128; /* n_in is padded to two tiles: whole units of skinny_gemm.cuh */

/* k, within its tile, of byte i in word j of lane t. */
__host__ __device__ constexpr int tile_k(int j, int t, int i) {
  return 16 * j + 2 * t + (i & 1) * 8 + (i >> 1);
}

struct QuantView {
  const uint4 *tiles;
  const uint32_t *scales;
  const void *zeros;
  int n_in;               /* of the model, without padding */
  int n_tiles_out;        /* n_out / 16, rounded up */
  int n_tiles_in;         /* n_in / 64, rounded up to an even number */
  uint32_t group_inverse; /* 2^32 / group, rounded up */
  int n_groups;           /* padding included */
};

/* Group of input k, padding included: k / group by a multiplication, exact as k * group < 2^32
 * (linear_lay_out). */
__device__ __forceinline__ int group_of(const QuantView &w, int k) {
  return (int)__umulhi((unsigned)k, w.group_inverse);
}

/* An integer below 2^23 as a float, without the slow conversion. */
__device__ __forceinline__ float small_float(int n) {
  return __int_as_float(n | 0x4b000000) - 8388608.0f;
}

/* The low, and the high, of two fp16 in a word. */
__device__ __forceinline__ float f16_low(uint32_t f16x2) {
  return __half2float(__ushort_as_half((unsigned short)f16x2));
}

__device__ __forceinline__ float f16_high(uint32_t f16x2) {
  return __half2float(__ushort_as_half((unsigned short)(f16x2 >> 16)));
}

__device__ __forceinline__ __half2 half2_bits(uint32_t bits) {
  return *reinterpret_cast<__half2 *>(&bits);
}

__device__ __forceinline__ uint32_t bits_half2(__half2 h) {
  return *reinterpret_cast<uint32_t *>(&h);
}

/* Multiplies q - z by the scales of rows g and g + 8: operand a of mma_f16, rounded once. */
__device__ __forceinline__ void scale_halves(uint32_t scale, uint32_t (&a)[4]) {
  __half2 low = __half2half2(__ushort_as_half((unsigned short)scale));
  __half2 high = __half2half2(__ushort_as_half((unsigned short)(scale >> 16)));
#pragma unroll
  for (int i = 0; i < 4; i++) a[i] = bits_half2(__hmul2(half2_bits(a[i]), i % 2 ? high : low));
}

/* 4 bits. As bytes for the integer units the weights of row g + 8 are 16 times too large (no shift); the sum
 * is multiplied by kHigh. As halves they are exact: 1024 + q has q in its low mantissa bits, 64 + q / 16
 * likewise. */
struct Bits4 {
  static constexpr int kBits = 4, kVectors = 1; /* vectors of 16 bytes per lane and tile */
  static constexpr float kHigh = 0.0625f;
  typedef uint8_t Zero;
  static __device__ __forceinline__ int zero_low(uint32_t z) { return (int)(z & 15); }
  static __device__ __forceinline__ int zero_high(uint32_t z) { return (int)(z >> 4); }

  /* q of rows g and g + 8 in byte i of word j; `words`: the lane's first vector of a tile. */
  static __device__ __forceinline__ void unpack(const uint32_t *words, int j, int i, int (&q)[2]) {
    q[0] = words[j] >> (8 * i) & 15;
    q[1] = words[j] >> (8 * i + 4) & 15;
  }

  /* Operand a of mma_u8s8 for k 32h .. 32h + 31. */
  static __device__ __forceinline__ void bytes(const uint4 (&v)[1], int h, uint32_t (&a)[4]) {
    uint32_t w0 = h ? v[0].z : v[0].x, w1 = h ? v[0].w : v[0].y;
    a[0] = w0 & 0x0f0f0f0f;
    a[1] = w0 & 0xf0f0f0f0;
    a[2] = w1 & 0x0f0f0f0f;
    a[3] = w1 & 0xf0f0f0f0;
  }

  /* Zero points as halves that cancel the offset: 1024 + z, and -(64 + z). */
  struct HalfZeros {
    __half2 low, high;
  };
  static __device__ __forceinline__ HalfZeros half_zeros(uint32_t z) {
    return {half2_bits((z & 15) * 0x10001u | 0x64006400u), half2_bits((z & 0xf0) * 0x10001u | 0xd400d400u)};
  }

  /* Operand a of mma_f16 for k 16j .. 16j + 15: q - z, exact. */
  static __device__ __forceinline__ void halves(const uint4 (&v)[1], int j, const HalfZeros &z,
                                                uint32_t (&a)[4]) {
    uint32_t w = j == 0 ? v[0].x : j == 1 ? v[0].y : j == 2 ? v[0].z : v[0].w;
    const __half2 sixteenth = half2_bits(0x2c002c00u);
    a[0] = bits_half2(__hsub2(half2_bits(lop3_and_or<0x000f000fu, 0x64006400u>(w)), z.low));
    a[1] = bits_half2(__hfma2(half2_bits(lop3_and_or<0x00f000f0u, 0x64006400u>(w)), sixteenth, z.high));
    w >>= 8;
    a[2] = bits_half2(__hsub2(half2_bits(lop3_and_or<0x000f000fu, 0x64006400u>(w)), z.low));
    a[3] = bits_half2(__hfma2(half2_bits(lop3_and_or<0x00f000f0u, 0x64006400u>(w)), sixteenth, z.high));
  }
};

/* 8 bits: the bytes are the integer operand; under 0x64 each is the half 1024 + q. */
struct Bits8 {
  static constexpr int kBits = 8, kVectors = 2;
  static constexpr float kHigh = 1.0f;
  typedef uint16_t Zero;
  static __device__ __forceinline__ int zero_low(uint32_t z) { return (int)(z & 255); }
  static __device__ __forceinline__ int zero_high(uint32_t z) { return (int)(z >> 8); }

  static __device__ __forceinline__ void unpack(const uint32_t *words, int j, int i, int (&q)[2]) {
    q[0] = words[j / 2 * 128 + j % 2 * 2] >> (8 * i) & 255;
    q[1] = words[j / 2 * 128 + j % 2 * 2 + 1] >> (8 * i) & 255;
  }

  static __device__ __forceinline__ void bytes(const uint4 (&v)[2], int h, uint32_t (&a)[4]) {
    a[0] = v[h].x;
    a[1] = v[h].y;
    a[2] = v[h].z;
    a[3] = v[h].w;
  }

  struct HalfZeros {
    __half2 low, high;
  };
  static __device__ __forceinline__ HalfZeros half_zeros(uint32_t z) {
    return {half2_bits((z & 255) * 0x10001u | 0x64006400u), half2_bits((z >> 8) * 0x10001u | 0x64006400u)};
  }

  static __device__ __forceinline__ void halves(const uint4 (&v)[2], int j, const HalfZeros &z,
                                                uint32_t (&a)[4]) {
    const uint4 &u = v[j / 2];
    uint32_t low = j % 2 ? u.z : u.x, high = j % 2 ? u.w : u.y;
    a[0] = bits_half2(__hsub2(half2_bits(prmt<0x4240>(low, 0x64646464u)), z.low));
    a[1] = bits_half2(__hsub2(half2_bits(prmt<0x4240>(high, 0x64646464u)), z.high));
    a[2] = bits_half2(__hsub2(half2_bits(prmt<0x4341>(low, 0x64646464u)), z.low));
    a[3] = bits_half2(__hsub2(half2_bits(prmt<0x4341>(high, 0x64646464u)), z.high));
  }
};
