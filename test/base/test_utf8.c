/* test_utf8.c - UTF-8 against an oracle that knows nothing of its rules but how a code point is encoded.
 *
 * The oracle encodes every Unicode scalar value arithmetically and notes which bytes begin one: a sequence is
 * valid where it is in that set, incomplete where something longer begins with it, and else broken. */
#include "base/utf8.h"
#include "test/tests.h"

/* begins[n][s]: the n + 1 bytes of s, the first one highest, begin some character, or are one. */
static unsigned char *begins[3];

static int oracle_encode(uint32_t code, unsigned char out[4]) {
  if (code < 0x80) return out[0] = (unsigned char)code, 1;
  int length = code < 1u << 11 ? 2 : code < 1u << 16 ? 3 : 4;
  for (int i = length; --i > 0; code >>= 6) out[i] = (unsigned char)(0x80 + code % 64);
  out[0] = (unsigned char)((0xff00 >> length) % 256 + code);
  return length;
}

static bool is_scalar(uint32_t code) {
  return code < 0x110000 && !(code >= 0xd800 && code < 0xe000);
}

static int set_up(void **state) {
  for (int n = 0; n < 3; n++) begins[n] = calloc((size_t)1 << (8 * (n + 1)), 1);
  for (uint32_t code = 0; code < 0x110000; code++) {
    unsigned char bytes[4];
    int length = is_scalar(code) ? oracle_encode(code, bytes) : 0;
    uint32_t word = 0;
    for (int i = 0; i < length && i < 3; i++) begins[i][word = word << 8 | bytes[i]] = 1;
  }
  return 0;
}

static int tear_down(void **state) {
  for (int n = 0; n < 3; n++) free(begins[n]);
  return 0;
}

/* How many bytes at text[0..size) are the whole of a character (then *code is it), or 0. */
static int oracle_whole(const unsigned char *text, size_t size, uint32_t *code) {
  for (int length = 1; length <= 4 && (size_t)length <= size; length++) {
    /* the only code these bytes can encode: the bits after the length's mark */
    uint32_t value = length == 1 ? text[0] : text[0] & (0x7fu >> length);
    for (int i = 1; i < length; i++) value = value << 6 | (text[i] & 0x3fu);
    unsigned char again[4];
    if (is_scalar(value) && oracle_encode(value, again) == length &&
        memcmp(text, again, (size_t)length) == 0) {
      *code = value;
      return length;
    }
  }
  return 0;
}

/* The most bytes, at most 3, of text[0..size) that begin some character. */
static int oracle_begun(const unsigned char *text, size_t size) {
  uint32_t word = 0;
  int n = 0;
  while (n < 3 && (size_t)n < size && begins[n][word = word << 8 | text[n]]) n++;
  return n;
}

static void compare(const unsigned char *text, size_t size) {
  uint32_t code = 0, want_code = 0;
  int whole = oracle_whole(text, size, &want_code), begun = oracle_begun(text, size);
  int want = whole ? whole : (size_t)begun == size ? 0 : -1;
  int got = utf8_decode(text, size, &code);
  if (got != want || (want > 0 && code != want_code))
    fail_msg("%02x %02x %02x %02x of %zu: length %d, expected %d", text[0], text[1], text[2], text[3], size,
             got, want);
  if (want <= 0 && size > 0) assert_int_equal(utf8_bad_length(text, size), begun ? begun : 1);
  size_t valid = 0;
  for (int length; valid < size && (length = oracle_whole(text + valid, size - valid, &want_code)) > 0;)
    valid += (size_t)length;
  assert_int_equal(utf8_valid_prefix(text, size), valid);
}

TEST(every_code_point_is_encoded_and_decoded) {
  for (uint32_t code = 0; code < 0x110000; code++) {
    if (!is_scalar(code)) continue;
    unsigned char want[4], got[4];
    uint32_t decoded;
    int length = oracle_encode(code, want);
    assert_int_equal(utf8_encode(code, got), length);
    assert_memory_equal(got, want, (size_t)length);
    assert_int_equal(utf8_decode(want, (size_t)length, &decoded), length);
    assert_int_equal(decoded, code);
  }
}

TEST(sequences_of_up_to_two_bytes_are_all_judged_right) {
  for (unsigned word = 0; word < 0x10000; word++) {
    unsigned char text[4] = {(unsigned char)(word >> 8), (unsigned char)word};
    for (size_t size = 0; size <= 2; size++) compare(text, size);
  }
}

/* Both ends of every class of bytes in RFC 3629, and one from the middle. */
TEST(sequences_of_three_and_four_bytes_of_each_class_are_judged_right) {
  static const unsigned char bytes[] = {0x00, 0x41, 0x7f, 0x80, 0x85, 0x8f, 0x90, 0x9a, 0x9f, 0xa0,
                                        0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee,
                                        0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xf8, 0xfe, 0xff};
  const size_t n = sizeof bytes;
  for (size_t i = 0; i < n * n * n * n; i++) {
    unsigned char text[4] = {bytes[i / n / n / n], bytes[i / n / n % n], bytes[i / n % n], bytes[i % n]};
    compare(text, 4);
    if (i % n == 0) compare(text, 3);
  }
}

TEST(characters_are_found_from_behind) {
  static const char text[] = "a\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80";
  static const size_t starts[] = {6, 3, 1, 0};
  size_t at = sizeof text - 1;
  for (int i = 0; i < 4; i++) assert_int_equal(at = utf8_before(text, at), starts[i]);
  assert_int_equal(utf8_before("\x80\x80", 2), 0); /* it stops where the text does */
}

static CMFixtureFunction before_all = set_up, after_all = tear_down;
