/* layout.cuh - how quantised weights lie in device memory, and how a lane unpacks its part.
 *
 * One layout serves every kernel. A slab is 8 output rows; two slabs are a tile row of 16. A tile has 64
 * inputs: exactly four steps of mma m16n8k16, or two of m16n8k32. Within a tile the sixteen bytes of lane
 * (g, t) = (lane / 4, lane % 4) are what the tensor cores want from that lane:
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
 * Int8 weights with one scale per output lie as rows: [n_out rounded up to 16][n_in / 64][64 bytes]. wgmma
 * reads these rows too. Byte 16t + 4j + i has k = tile_k(j, t, i). Scales are fp32 [n_out rounded up to 16].
 *
 * FP8 (E4M3) lies as 8 bits do, without zeros. FP4 (E2M1) has tiles of 512 bytes. Their words hold the same
 * weights as with 4 bits; left shifts and a mask turn the bits into fp16. Each 16 inputs of FP4 have a scale.
 * Both types have a factor for each output; it multiplies the finished sum (epilogue.cuh):
 *     w = number(code) * scale[group] * factor[output]
 *
 *   FP4 word j, each half of 16 bits (k 2t and 8+2t, k 2t+1 and 9+2t of 16 j), s: sign, n: the other bits
 *     bit   15 14 13 12 | 11 10 9 | 8 7 6   | 5 4 3   | 2 1 0       a0: row g, k    a1: row g + 8, k
 *     of     s0 s3 s2 s1|  n of a0| n of a1 | n of a2 | n of a3     a2: row g, k+8  a3: row g + 8, k+8
 *     where s2 and n of a2 are stored ^ bits 9 and 9 8 7, s3 and n of a3 ^ bits 6 and 10 9 8, so that bits
 *     15 and 11 10 9 of w << 6 ^ w << 2 are those of a2, and of w << 9 ^ w << 1 those of a3
 *   FP4 scales [n_out / 16][n_in / 64][8 g][4 groups][2 rows] u8: the bits of an fp16 from bit 7 on (E4M3
 *     with a fifth bit of exponent in place of the sign), so an E4M3 code is read as 1 / 256 of its number
 *   factors    [n_out rounded up to 16] fp32
 *
 * n_in is padded to 128, n_groups with it, n_out to 16. All padding is zero bytes: padded rows and groups
 * have scale 0. Every kernel takes x as 0 for padded inputs. A word masked by 0x000f000f is the half2 at k
 * 2t, 2t+1. The word shifted right by 8, masked likewise, is the half2 at k 8+2t, 9+2t. That is the natural
 * order of ldmatrix and wgmma operands. */
#pragma once

#include "cuda/kernels/ptx/halves.cuh"
#include "cuda/kernels/ptx/ptx.cuh"

constexpr int kTileIn = 64, kTileOut = 16;
constexpr int kPadIn = 128; /* n_in is padded to two tiles: whole units of skinny_gemm.cuh */

/* k, within its tile, of byte i in word j of lane t. */
__host__ __device__ constexpr int tile_k(int j, int t, int i) {
  return 16 * j + 2 * t + (i & 1) * 8 + (i >> 1);
}

struct QuantView {
  const uint4 *tiles;
  const uint32_t *scales;
  const void *zeros;      /* NULL: FP8 and FP4 */
  int n_in;               /* of the model, without padding */
  int n_tiles_out;        /* n_out / 16, rounded up */
  int n_tiles_in;         /* n_in / 64, rounded up to an even number */
  uint32_t group_inverse; /* rounded_inverse() of the group */
  int n_groups;           /* padding included */
};

/* 2^32 / d, rounded up. n / d is the high word of the result times n, while n * d < 2^32. For d = 1 the
 * result is 0: the caller must treat it apart (linear_lay_out() refuses groups of 1). */
inline uint32_t rounded_inverse(int d) {
  return UINT32_MAX / (uint32_t)d + 1;
}

/* Group of input k, padding included: k / group by a multiplication. It is exact because k * group < 2^32
 * (linear_lay_out). */
__device__ __forceinline__ int group_of(const QuantView &w, int k) {
  return (int)__umulhi((unsigned)k, w.group_inverse);
}

/* An integer from 0 to 2^23 - 1 as a float, without the slow conversion. */
__device__ __forceinline__ float small_float(int n) {
  return __int_as_float(n | 0x4b000000) - 8388608.0f;
}

__device__ __forceinline__ __half2 half2_bits(uint32_t bits) {
  return *reinterpret_cast<__half2 *>(&bits);
}

__device__ __forceinline__ uint32_t bits_half2(__half2 h) {
  return *reinterpret_cast<uint32_t *>(&h);
}

/* Multiplies operand a of mma_f16 by the scales of rows g and g + 8, rounding once. a holds q - z, FP8
 * numbers or FP4 numbers. */
__device__ __forceinline__ void scale_halves(uint32_t scale, uint32_t (&a)[4]) {
  __half2 low = __half2half2(__ushort_as_half((unsigned short)scale));
  __half2 high = __half2half2(__ushort_as_half((unsigned short)(scale >> 16)));
#pragma unroll
  for (int i = 0; i < 4; i++) a[i] = bits_half2(__hmul2(half2_bits(a[i]), i % 2 ? high : low));
}

struct HalfZeros {
  __half2 low, high;
};

/* Each type W of weights below has:
 *   Meta               the scales and zeros of rows g and g + 8 for a block of inputs, in registers: for one
 *                      group (FP4: one tile)
 *   kMetaBytes         bytes of scales (kScaleBytes) and zeros of a tile row and block in shared memory;
 *                      kMetaCopies calls of copy_meta() bring a piece of at most 16 bytes each, 16 apart
 *   n_blocks, block_of how many blocks a tile row has (groups; FP4: tiles), and the block of input k
 *   piece, copy_piece  for a warp that brings the same pieces of many blocks: the address of piece i of a
 *                      block, and its copy. Blocks are numbered tile row after tile row; piece i of the next
 *                      block is piece_step(i) bytes further
 *   staged_meta, meta  read a Meta from shared memory, and from the matrix for the block of input k
 *   operand            operand a of mma_f16 for k 16j .. 16j + 15 of a tile, with or without the scales
 *   weights            row g's and g + 8's weight of byte i in word j, without the factor, in fp32
 * `v` are a lane's vectors of a tile, `lane` is their address. */
struct GroupMeta {
  uint32_t scale; /* fp16 of row g in the low half, of g + 8 in the high half */
  HalfZeros zero;
};

/* Groups with scales and zeros: Bits4 and Bits8. */
template <class W> struct GroupsOfIntegers {
  typedef GroupMeta Meta;
  static constexpr int kLeastBlockIn = 32; /* fewest inputs of a block in tile kernels */
  static constexpr int kScaleBytes = 32, kMetaBytes = 48, kMetaCopies = 3; /* zeros: 8 or 16 bytes */
  static constexpr bool kAlwaysScaled = false;

  static __device__ __forceinline__ void copy_meta(const QuantView &w, int tile_row, int k, int i,
                                                   unsigned char *to) {
    int at = tile_row * w.n_groups + group_of(w, k);
    if (i < 2)
      copy_async_16(to + 16 * i, w.scales + (size_t)at * 8 + 4 * i, 16);
    else if (W::kBits == 4)
      copy_async_8(to + 32, (const unsigned char *)w.zeros + (size_t)at * 8);
    else
      copy_async_16(to + 32, (const unsigned char *)w.zeros + (size_t)at * 16, 16);
  }

  /* Two pieces of scales, then one of zeros: 8 bytes with 4-bit weights, 16 with 8-bit ones. */
  static __device__ __forceinline__ int piece_step(int i) { return i < 2 ? 32 : 2 * W::kBits; }
  static __device__ __forceinline__ const unsigned char *piece(const QuantView &w, int block, int i) {
    return i < 2 ? (const unsigned char *)(w.scales + (size_t)block * 8 + 4 * i)
                 : (const unsigned char *)w.zeros + (size_t)block * (2 * W::kBits);
  }
  static __device__ __forceinline__ void copy_piece(unsigned char *to, const unsigned char *from, int i) {
    if (W::kBits == 4 && i == 2)
      copy_async_8(to, from);
    else
      copy_async_16(to, from, 16);
  }
  static __device__ __forceinline__ int n_blocks(const QuantView &w) { return w.n_groups; }
  static __device__ __forceinline__ int block_of(const QuantView &w, int k) { return group_of(w, k); }

  static __device__ __forceinline__ GroupMeta staged_meta(const unsigned char *at, int g) {
    typedef typename W::Zero Zero;
    return {*(const uint32_t *)(at + 4 * g), W::half_zeros(*(const Zero *)(at + 32 + sizeof(Zero) * g))};
  }

  static __device__ __forceinline__ GroupMeta meta(const QuantView &w, int tile_row, int k, int g) {
    size_t at = ((size_t)tile_row * w.n_groups + group_of(w, k)) * 8 + g;
    return {__ldg(w.scales + at), W::half_zeros(__ldg((const typename W::Zero *)w.zeros + at))};
  }

  template <bool kScaled, int kVectors>
  static __device__ __forceinline__ void operand(const uint4 (&v)[kVectors], int j, const GroupMeta &meta,
                                                 uint32_t (&a)[4]) {
    W::halves(v, j, meta.zero, a);
    if (kScaled) scale_halves(meta.scale, a);
  }

  static __device__ __forceinline__ void weights(const QuantView &w, const uint4 *lane, int tile_row,
                                                 int tile_in, int j, int i, int g, float (&out)[2]) {
    int k = tile_in * kTileIn + tile_k(j, threadIdx.x % 4, i), q[2];
    size_t at = ((size_t)tile_row * w.n_groups + group_of(w, k)) * 8 + g;
    uint32_t s = w.scales[at], z = ((const typename W::Zero *)w.zeros)[at];
    W::unpack((const uint32_t *)lane, j, i, q);
    out[0] = (float)(q[0] - W::zero_low(z)) * f16_low(s);
    out[1] = (float)(q[1] - W::zero_high(z)) * f16_high(s);
  }
};

/* 4 bits. As bytes for the integer units, weights of row g + 8 are not shifted, so 16 times too large; kHigh
 * corrects their sum. As halves the weights are exact. q in the low four bits of 0x6400 is 1024 + q. q in the
 * next four bits is 1024 + 16 q; times 1 / 16 that is 64 + q. */
struct Bits4 : GroupsOfIntegers<Bits4> {
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

  /* Operand a of mma_f16 for k 16j .. 16j + 15 as fp16 subnormals: row g as q * 2^-24, row g + 8 as q *
   * 2^-20. */
  static __device__ __forceinline__ void numbers(const uint4 (&v)[1], int j, uint32_t (&a)[4]) {
    uint32_t w = j == 0 ? v[0].x : j == 1 ? v[0].y : j == 2 ? v[0].z : v[0].w;
    a[0] = w & 0x000f000fu;
    a[1] = w & 0x00f000f0u;
    w >>= 8;
    a[2] = w & 0x000f000fu;
    a[3] = w & 0x00f000f0u;
  }

  /* Zero points of rows g and g + 8 times the powers of two of numbers(). */
  static __device__ __forceinline__ void small_zeros(uint32_t z, float (&zero)[2]) {
    zero[0] = f16_low(z & 0x0fu);
    zero[1] = f16_low(z & 0xf0u);
  }

  /* Zero points as halves that cancel the offset: 1024 + z, and -(64 + z). */
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

/* 8 bits. The bytes are the integer operand. A byte q below the high byte 0x64 is the half 1024 + q. */
struct Bits8 : GroupsOfIntegers<Bits8> {
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

  /* Operand a of mma_f16 for k 16j .. 16j + 15 as fp16 subnormals: q * 2^-24. */
  static __device__ __forceinline__ void numbers(const uint4 (&v)[2], int j, uint32_t (&a)[4]) {
    const uint4 &u = v[j / 2];
    uint32_t low = j % 2 ? u.z : u.x, high = j % 2 ? u.w : u.y;
    a[0] = prmt<0x4240>(low, 0u);
    a[1] = prmt<0x4240>(high, 0u);
    a[2] = prmt<0x4341>(low, 0u);
    a[3] = prmt<0x4341>(high, 0u);
  }

  static __device__ __forceinline__ void small_zeros(uint32_t z, float (&zero)[2]) {
    zero[0] = f16_low(z & 0x00ffu);
    zero[1] = f16_low(z >> 8);
  }

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

/* The weights of byte i of a word (tile_k()) in rows g and g + 8, from the result of Fp8's or Fp4's
 * numbers(). */
__device__ __forceinline__ void pick_weights(const uint32_t (&a)[4], int i, float (&out)[2]) {
#pragma unroll
  for (int r = 0; r < 2; r++) {
    uint32_t pair = i % 2 ? a[2 + r] : a[r];
    out[r] = i / 2 ? f16_high(pair) : f16_low(pair);
  }
}

/* piece_step(), piece() and copy_piece() of Fp8 and Fp4, which have scales but no zeros. */
template <class W> struct PiecesOfScales {
  static __device__ __forceinline__ int piece_step(int) { return W::kMetaBytes; }
  static __device__ __forceinline__ const unsigned char *piece(const QuantView &w, int block, int i) {
    return (const unsigned char *)w.scales + (size_t)block * W::kMetaBytes + 16 * i;
  }
  static __device__ __forceinline__ void copy_piece(unsigned char *to, const unsigned char *from, int) {
    copy_async_16(to, from, 16);
  }
};

/* FP8: the bits of E4M3, shifted to their places in fp16, are 1 / 256 of the number. */
struct Fp8 : PiecesOfScales<Fp8> {
  static constexpr int kBits = 8, kVectors = 2, kLeastBlockIn = 64, kScaleBytes = 32, kMetaBytes = 32,
                       kMetaCopies = 2;
  static constexpr bool kAlwaysScaled = false;
  static constexpr float kOfScale = 1.0f; /* see Fp4 */
  struct Meta {
    uint32_t scale; /* as in GroupMeta */
  };

  static __device__ __forceinline__ size_t meta_at(const QuantView &w, int tile_row, int k) {
    return ((size_t)tile_row * w.n_groups + group_of(w, k)) * 8;
  }

  static __device__ __forceinline__ void copy_meta(const QuantView &w, int tile_row, int k, int i,
                                                   unsigned char *to) {
    copy_async_16(to + 16 * i, w.scales + meta_at(w, tile_row, k) + 4 * i, 16);
  }

  static __device__ __forceinline__ int n_blocks(const QuantView &w) { return w.n_groups; }
  static __device__ __forceinline__ int block_of(const QuantView &w, int k) { return group_of(w, k); }

  static __device__ __forceinline__ Meta staged_meta(const unsigned char *at, int g) {
    return {*(const uint32_t *)(at + 4 * g)};
  }

  static __device__ __forceinline__ Meta meta(const QuantView &w, int tile_row, int k, int g) {
    return {__ldg(w.scales + meta_at(w, tile_row, k) + g)};
  }

  /* 1 / 256 of the numbers of inputs 16j .. 16j + 15 as operand a of mma_f16. */
  static __device__ __forceinline__ void numbers(const uint4 (&v)[2], int j, uint32_t (&a)[4]) {
    const uint4 &u = v[j / 2];
    uint32_t word[2] = {j % 2 ? u.z : u.x, j % 2 ? u.w : u.y};
#pragma unroll
    for (int r = 0; r < 2; r++) {
      a[r] = (word[r] << 8 & 0x80008000u) | (word[r] << 7 & 0x3f803f80u);
      a[2 + r] = (word[r] & 0x80008000u) | (word[r] >> 1 & 0x3f803f80u);
    }
  }

  template <bool kScaled>
  static __device__ __forceinline__ void operand(const uint4 (&v)[2], int j, const Meta &meta,
                                                 uint32_t (&a)[4]) {
    numbers(v, j, a);
    if (kScaled) scale_halves(meta.scale, a);
  }

  static __device__ __forceinline__ void weights(const QuantView &w, const uint4 *lane, int tile_row,
                                                 int tile_in, int j, int i, int g, float (&out)[2]) {
    const uint4 v[2] = {lane[0], lane[32]};
    uint32_t a[4];
    const uint32_t scale = meta(w, tile_row, tile_in * kTileIn + tile_k(j, threadIdx.x % 4, i), g).scale;
    numbers(v, j, a);
    pick_weights(a, i, out);
    out[0] *= f16_low(scale);
    out[1] *= f16_high(scale);
  }
};

/* FP4: the bits of E2M1, shifted to their places in fp16, are 2^-14 of the number. That times 2^8 (kOfScale)
 * times a scale is exact in fp16: at most six bits, the lowest at least 2^-24. */
struct Fp4 : PiecesOfScales<Fp4> {
  static constexpr int kBits = 4, kVectors = 1, kLeastBlockIn = 64, kScaleBytes = 64, kMetaBytes = 64,
                       kMetaCopies = 4;
  static constexpr bool kAlwaysScaled = true; /* four groups a tile: scaling sums would cost more */
  static constexpr float kOfScale = 256.0f;
  struct Meta {
    uint2 scales;   /* of a tile: groups 0 and 1, then 2 and 3; rows g and g + 8 in turn */
    uint32_t scale; /* 0, unused: kAlwaysScaled */
  };

  /* Address of a tile's scales. */
  static __device__ __forceinline__ const unsigned char *meta_at(const QuantView &w, int tile_row,
                                                                 int tile_in) {
    return (const unsigned char *)w.scales + ((size_t)tile_row * w.n_tiles_in + tile_in) * kMetaBytes;
  }

  static __device__ __forceinline__ void copy_meta(const QuantView &w, int tile_row, int k, int i,
                                                   unsigned char *to) {
    copy_async_16(to + 16 * i, meta_at(w, tile_row, k / kTileIn) + 16 * i, 16);
  }

  static __device__ __forceinline__ int n_blocks(const QuantView &w) { return w.n_tiles_in; }
  static __device__ __forceinline__ int block_of(const QuantView &, int k) { return k / kTileIn; }

  static __device__ __forceinline__ Meta staged_meta(const unsigned char *at, int g) {
    return {*(const uint2 *)(at + 8 * g), 0};
  }

  static __device__ __forceinline__ Meta meta(const QuantView &w, int tile_row, int k, int g) {
    return {__ldg((const uint2 *)(meta_at(w, tile_row, k / kTileIn) + 8 * g)), 0};
  }

  /* 2^-14 times the numbers of inputs 16j .. 16j + 15 as operand a of mma_f16. */
  static __device__ __forceinline__ void numbers(const uint4 (&v)[1], int j, uint32_t (&a)[4]) {
    uint32_t w = j == 0 ? v[0].x : j == 1 ? v[0].y : j == 2 ? v[0].z : v[0].w;
    a[0] = w & 0x8e008e00u;
    a[1] = w << 3 & 0x8e008e00u;
    a[2] = (w << 6 ^ w << 2) & 0x8e008e00u;
    a[3] = (w << 9 ^ w << 1) & 0x8e008e00u;
  }

  /* Scales of rows g and g + 8 for inputs 16j .. 16j + 15: fp16 in the low and the high half. */
  static __device__ __forceinline__ uint32_t scales_of(const Meta &meta, int j) {
    uint32_t word = j < 2 ? meta.scales.x : meta.scales.y;
    return (j % 2 ? prmt<0x4342>(word, 0u) : prmt<0x4140>(word, 0u)) << 7;
  }

  template <bool kScaled>
  static __device__ __forceinline__ void operand(const uint4 (&v)[1], int j, const Meta &meta,
                                                 uint32_t (&a)[4]) {
    numbers(v, j, a);
    const __half2 wide = half2_bits(0x5c005c00u); /* kOfScale */
    scale_halves(bits_half2(__hmul2(half2_bits(scales_of(meta, j)), wide)), a);
  }

  static __device__ __forceinline__ void weights(const QuantView &w, const uint4 *lane, int tile_row,
                                                 int tile_in, int j, int i, int g, float (&out)[2]) {
    const uint4 v[1] = {lane[0]};
    uint32_t a[4];
    const uint32_t scales = scales_of(meta(w, tile_row, tile_in * kTileIn, g), j);
    numbers(v, j, a);
    pick_weights(a, i, out);
    out[0] *= f16_low(scales) * kOfScale;
    out[1] *= f16_high(scales) * kOfScale;
  }
};
