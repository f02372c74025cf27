/* test_sha256.c - SHA-256 and HMAC against the examples of FIPS 180-4 and RFC 4231. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cuda/several/sha256.h"
#include "test/tests.h"

static void assert_hash(const uint8_t hash[SHA256_BYTES], const char *want) {
  char text[2 * SHA256_BYTES + 1];
  for (int i = 0; i < SHA256_BYTES; i++) snprintf(text + 2 * i, 3, "%02x", hash[i]);
  assert_string_equal(text, want);
}

TEST(hashes_are_those_of_the_standard) {
  uint8_t hash[SHA256_BYTES];
  const char *two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  sha256("", 0, hash);
  assert_hash(hash, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  sha256("abc", 3, hash);
  assert_hash(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  sha256(two_blocks, strlen(two_blocks), hash);
  assert_hash(hash, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

/* A key shorter than SHA256_BYTES is the same key with zeros after it. */
TEST(proofs_are_those_of_the_standard) {
  uint8_t key[SHA256_BYTES] = {0}, hash[SHA256_BYTES];
  memset(key, 0x0b, 20);
  hmac_sha256(key, "Hi There", 8, hash);
  assert_hash(hash, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  memset(key, 0, sizeof key);
  memcpy(key, "Jefe", 4);
  hmac_sha256(key, "what do ya want for nothing?", 28, hash);
  assert_hash(hash, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}
