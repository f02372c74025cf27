/* sha256.c - see sha256.h. The names are those of FIPS 180-4. */
#include "cuda/ranks/sha256.h"

#include <string.h>

enum { BLOCK = 64 };

static const uint32_t k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotr(uint32_t x, int n) {
  return x >> n | x << (32 - n);
}

static void add_block(uint32_t state[8], const uint8_t *block) {
  uint32_t w[64], v[8];
  for (int t = 0; t < 16; t++)
    w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 | (uint32_t)block[4 * t + 2] << 8 |
           block[4 * t + 3];
  for (int t = 16; t < 64; t++) {
    const uint32_t s0 = rotr(w[t - 15], 7) ^ rotr(w[t - 15], 18) ^ w[t - 15] >> 3,
                   s1 = rotr(w[t - 2], 17) ^ rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  memcpy(v, state, sizeof v);
  for (int t = 0; t < 64; t++) {
    const uint32_t s1 = rotr(v[4], 6) ^ rotr(v[4], 11) ^ rotr(v[4], 25), ch = (v[4] & v[5]) ^ (~v[4] & v[6]),
                   t1 = v[7] + s1 + ch + k[t] + w[t], s0 = rotr(v[0], 2) ^ rotr(v[0], 13) ^ rotr(v[0], 22),
                   maj = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
    memmove(v + 1, v, 7 * sizeof *v);
    v[4] += t1;
    v[0] = t1 + s0 + maj;
  }
  for (int i = 0; i < 8; i++) state[i] += v[i];
}

/* The hash of `size` bytes after `before` bytes that the state already has, a multiple of BLOCK. */
static void finish(uint32_t state[8], size_t before, const uint8_t *bytes, size_t size,
                   uint8_t out[SHA256_BYTES]) {
  uint8_t last[2 * BLOCK] = {0};
  const uint64_t bits = (uint64_t)(before + size) * 8;
  for (; size >= BLOCK; bytes += BLOCK, size -= BLOCK) add_block(state, bytes);
  if (size) memcpy(last, bytes, size);
  last[size] = 0x80;
  const size_t n = size < BLOCK - 8 ? BLOCK : 2 * BLOCK;
  for (size_t i = 0; i < 8; i++) last[n - 1 - i] = (uint8_t)(bits >> 8 * i);
  for (size_t i = 0; i < n; i += BLOCK) add_block(state, last + i);
  for (int i = 0; i < SHA256_BYTES; i++) out[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
}

static void begin(uint32_t state[8]) {
  static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memcpy(state, first, sizeof first);
}

void sha256(const void *bytes, size_t size, uint8_t out[SHA256_BYTES]) {
  uint32_t state[8];
  begin(state);
  finish(state, 0, bytes, size, out);
}

void hmac_sha256(const uint8_t key[SHA256_BYTES], const void *bytes, size_t size, uint8_t out[SHA256_BYTES]) {
  uint32_t state[8];
  uint8_t pad[BLOCK], inner[SHA256_BYTES];
  for (int i = 0; i < BLOCK; i++) pad[i] = (i < SHA256_BYTES ? key[i] : 0) ^ 0x36;
  begin(state);
  add_block(state, pad);
  finish(state, BLOCK, bytes, size, inner);
  for (int i = 0; i < BLOCK; i++) pad[i] ^= 0x36 ^ 0x5c;
  begin(state);
  add_block(state, pad);
  finish(state, BLOCK, inner, sizeof inner, out);
}
