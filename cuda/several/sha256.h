/* sha256.h - HMAC-SHA256 (FIPS 180-4, RFC 2104), by which processes that share a model prove that they
 * have the same key, and sign what they send. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_BLOCK = 64 };

/* A hash of bytes that come one after another. */
typedef struct {
  uint32_t state[8];
  uint64_t n; /* bytes so far; block[0 .. n % SHA256_BLOCK) are not in the state yet */
  uint8_t block[SHA256_BLOCK];
} Sha256;
void sha256_begin(Sha256 *hash);
void sha256_add(Sha256 *hash, const void *bytes, size_t size);
void sha256_end(Sha256 *hash, uint8_t out[SHA256_BYTES]);

/* A key for many messages: the hash of each message begins as a copy of `inner`. */
typedef struct {
  Sha256 inner, outer;
} HmacKey;
void hmac_key(const uint8_t key[SHA256_BYTES], HmacKey *out);
void hmac_end(const HmacKey *key, Sha256 *message, uint8_t out[SHA256_BYTES]);

void sha256(const void *bytes, size_t size, uint8_t out[SHA256_BYTES]);
void hmac_sha256(const uint8_t key[SHA256_BYTES], const void *bytes, size_t size, uint8_t out[SHA256_BYTES]);
