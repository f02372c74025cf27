/* sha256.h - HMAC-SHA256 (FIPS 180-4, RFC 2104), by which processes that share a model prove that they
 * have the same key. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32 };

void sha256(const void *bytes, size_t size, uint8_t out[SHA256_BYTES]);
void hmac_sha256(const uint8_t key[SHA256_BYTES], const void *bytes, size_t size, uint8_t out[SHA256_BYTES]);
