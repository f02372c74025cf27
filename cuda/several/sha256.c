/* sha256.c - see sha256.h. The names are those of FIPS 180-4. */
#include "cuda/several/sha256.h"

#include <string.h>

enum { BLOCK = SHA256_BLOCK };

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
  uint32_t w[64];
  for (int t = 0; t < 16; t++)
    w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 | (uint32_t)block[4 * t + 2] << 8 |
           block[4 * t + 3];
  for (int t = 16; t < 64; t++) {
    const uint32_t s0 = rotr(w[t - 15], 7) ^ rotr(w[t - 15], 18) ^ w[t - 15] >> 3,
                   s1 = rotr(w[t - 2], 17) ^ rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6],
           h = state[7];
  for (int t = 0; t < 64; t++) {
    const uint32_t s1 = rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25), ch = (e & f) ^ (~e & g),
                   t1 = h + s1 + ch + k[t] + w[t], s0 = rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22),
                   maj = (a & b) ^ (a & c) ^ (b & c);
    h = g, g = f, f = e, e = d + t1;
    d = c, c = b, b = a, a = t1 + s0 + maj;
  }
  state[0] += a, state[1] += b, state[2] += c, state[3] += d;
  state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

void sha256_begin(Sha256 *h) {
  static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memcpy(h->state, first, sizeof first);
  h->n = 0;
}

void sha256_add(Sha256 *h, const void *bytes, size_t size) {
  const uint8_t *at = bytes;
  while (size > 0) {
    const size_t used = h->n % BLOCK, n = size < BLOCK - used ? size : BLOCK - used;
    memcpy(h->block + used, at, n);
    h->n += n;
    if (used + n == BLOCK) add_block(h->state, h->block);
    at += n;
    size -= n;
  }
}

void sha256_end(Sha256 *h, uint8_t out[SHA256_BYTES]) {
  const uint64_t bits = h->n * 8;
  const uint8_t one = 0x80, zero = 0;
  uint8_t length[8];
  for (int i = 0; i < 8; i++) length[i] = (uint8_t)(bits >> (56 - 8 * i));
  sha256_add(h, &one, 1);
  while (h->n % BLOCK != BLOCK - sizeof length) sha256_add(h, &zero, 1);
  sha256_add(h, length, sizeof length);
  for (int i = 0; i < SHA256_BYTES; i++) out[i] = (uint8_t)(h->state[i / 4] >> (24 - 8 * (i % 4)));
}

void sha256(const void *bytes, size_t size, uint8_t out[SHA256_BYTES]) {
  Sha256 h;
  sha256_begin(&h);
  sha256_add(&h, bytes, size);
  sha256_end(&h, out);
}

void hmac_key(const uint8_t key[SHA256_BYTES], HmacKey *out) {
  uint8_t pad[BLOCK];
  for (int i = 0; i < BLOCK; i++) pad[i] = (i < SHA256_BYTES ? key[i] : 0) ^ 0x36;
  sha256_begin(&out->inner);
  sha256_add(&out->inner, pad, BLOCK);
  for (int i = 0; i < BLOCK; i++) pad[i] ^= 0x36 ^ 0x5c;
  sha256_begin(&out->outer);
  sha256_add(&out->outer, pad, BLOCK);
}

void hmac_end(const HmacKey *key, Sha256 *message, uint8_t out[SHA256_BYTES]) {
  uint8_t inner[SHA256_BYTES];
  Sha256 outer = key->outer;
  sha256_end(message, inner);
  sha256_add(&outer, inner, sizeof inner);
  sha256_end(&outer, out);
}

void hmac_sha256(const uint8_t key[SHA256_BYTES], const void *bytes, size_t size, uint8_t out[SHA256_BYTES]) {
  HmacKey keyed;
  hmac_key(key, &keyed);
  Sha256 message = keyed.inner;
  sha256_add(&message, bytes, size);
  hmac_end(&keyed, &message, out);
}
