/* test_charsmap.c - what the normalizer Precompiled replaces as one: graphemes of less than six bytes.
 *
 * The reference is the Python package tokenizers 0.23.3, whose texts are expected here; test_small.c has
 * random tables. */
#include "small.h"
#include "test/tests.h"

/* Base64 of a table whose strings are these single bytes, all replaced by "x". */
static void table(const char *bytes, Buffer *out) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  uint32_t units[770] = {768 * 4, 256 << 10}; /* children at 256 ^ byte, the value 0 of each at 512 ^ byte */
  for (const char *at = bytes; *at; at++) units[1 + (256 ^ (uint8_t)*at)] = 768u << 10 | 256 | (uint8_t)*at;
  units[769] = 'x';
  const uint8_t *from = (const uint8_t *)units; /* little endian, as the format is; size % 3 == 2 */
  for (size_t i = 0; i < sizeof units - 2; i += 3) {
    const uint32_t word =
        (uint32_t)from[i] << 16 | (uint32_t)from[i + 1] << 8 | (i + 2 < sizeof units ? from[i + 2] : 0);
    for (int shift = 18; shift >= 0; shift -= 6) buffer_append(out, &digits[word >> shift & 63], 1, NULL);
  }
}

static Tokenizer *with_table(const char *bytes, const char *added) {
  Buffer json = {0};
  buffer_printf(&json, NULL, "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"");
  table(bytes, &json);
  buffer_append(&json, "\"}", 3, NULL);
  char *vocab = byte_vocab(NULL);
  Tokenizer *t = make((Parts){.added = added,
                              .normalizer = json.data,
                              .pre_tokenizer = BYTE_LEVEL,
                              .decoder = BYTE_LEVEL,
                              .vocab = vocab});
  free(vocab);
  buffer_release(&json);
  return t;
}

static void becomes(const char *bytes, const char *text, const char *expected) {
  Buffer decoded = {0};
  IdList ids = {0};
  Error err = {{0}};
  Tokenizer *t = with_table(bytes, NULL);
  assert_int_equal(tokenizer_encode(t, text, strlen(text), PLAIN, &ids, &err), STATUS_OK);
  assert_int_equal(tokenizer_decode(t, ids.ids, ids.count, false, &decoded, &err), STATUS_OK);
  assert_int_equal(buffer_append(&decoded, "", 1, &err), STATUS_OK);
  assert_string_equal(decoded.data, expected);
  tokenizer_close(t);
  id_list_release(&ids);
  buffer_release(&decoded);
}

#define ACUTE     "\u0301"
#define JOINER    "\u200d"
#define COPYRIGHT "\u00a9"

TEST(short_graphemes_are_replaced_as_one) {
  becomes("a", "ab" ACUTE "a", "xb" ACUTE "x");
  becomes("a", "a" ACUTE "b", "xb");
  becomes("a", "a" ACUTE ACUTE, "x");
  becomes("a", "a" ACUTE "\u20d0", "x" ACUTE "\u20d0"); /* 6 bytes */
  becomes("a", "a" ACUTE ACUTE ACUTE, "x" ACUTE ACUTE ACUTE);
  becomes("a", "\u0600a", "\u0600x");
  becomes("\xd8", "\u0600a\u0600\n", "xx\n");
  becomes("\r\n", "\r\n\n\r", "xxx");
  becomes("\n", "\r\n\n" ACUTE, "\rxx" ACUTE);
}

TEST(pictographs_with_joiners_are_one) {
  becomes("\xc2", COPYRIGHT JOINER "b", "xb");
  becomes("\xc2", COPYRIGHT JOINER COPYRIGHT, "x" JOINER "x");
  becomes("\xc2", COPYRIGHT JOINER COPYRIGHT ACUTE, "x" JOINER "x" ACUTE);
  becomes("\xc2", COPYRIGHT ACUTE JOINER COPYRIGHT ACUTE, "x" ACUTE JOINER "x" ACUTE);
  becomes("\xc2", COPYRIGHT JOINER JOINER COPYRIGHT ACUTE, "x" JOINER JOINER "x");
  becomes("\xc2", COPYRIGHT "\u093e" JOINER COPYRIGHT ACUTE, "x\u093e" JOINER "x");
}

/* One character replaces two: trust is that of the text before. */
TEST(trust_is_traced_through_replacements) {
  static const PromptPiece pieces[] = {{"a" ACUTE, 3, false}, {"<s>", 3, true}, {"<s>", 3, false}};
  char token[TOKEN_SIZE], added[TOKEN_SIZE + 2];
  IdList ids = {0};
  size_t found = 0;
  snprintf(added, sizeof added, "[%s]", token_json(token, "<s>", "sn"));
  Tokenizer *t = with_table("a", added);
  assert_int_equal(tokenizer_encode_pieces(t, pieces, 3, false, &ids, NULL), STATUS_OK);
  for (size_t i = 0; i < ids.count; i++) found += ids.ids[i] == 256;
  assert_int_equal(found, 1);
  tokenizer_close(t);
  id_list_release(&ids);
}
