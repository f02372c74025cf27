/* test_decode.c - each decoder, and that streamed text equals the text decoded at once. */
#include "small.h"

#define REPLACE(pattern, content)                                                                            \
  "{\"type\": \"Replace\", \"pattern\": " pattern ", \"content\": \"" content "\"}"
#define STRIP(content, start, stop)                                                                          \
  "{\"type\": \"Strip\", \"content\": \"" content "\", \"start\": " #start ", \"stop\": " #stop "}"
#define FUSE     "{\"type\": \"Fuse\"}"
#define FALLBACK "{\"type\": \"ByteFallback\"}"
#define METASPACE(scheme)                                                                                    \
  "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"" scheme "\", \"split\": true}"
#define SEQUENCE(list) "{\"type\": \"Sequence\", \"decoders\": [" list "]}"

/* ids: 0 "_a", 1 "_", 2 "b_b", 3 "<0xC3>", 4 "<0xA9>", 5 " ", 6 "é", 7 "<0x41>", 8 "a", 9 "  b  ", 10 "ab",
 * 11 "Ã" (ByteLevel's C3), 12 "©" (A9), 13 "x中" (not all of it ByteLevel's), 14 <s> special */
static const char vocab[] = "{\"_a\":0,\"_\":1,\"b_b\":2,\"<0xC3>\":3,\"<0xA9>\":4,\" "
                            "\":5,\"\xc3\xa9\":6,\"<0x41>\":7,\"a\":8,\"  b  \":9,"
                            "\"ab\":10,\"\xc3\x83\":11,\"\xc2\xa9\":12,\"x\xe4\xb8\xad\":13}";

static Tokenizer *with_decoder(const char *decoder) {
  char token[TOKEN_SIZE], added[TOKEN_SIZE + 8];
  snprintf(added, sizeof added, "[%s]", token_json(token, "<s>", "s"));
  return make((Parts){.added = added, .decoder = decoder, .vocab = vocab});
}

static void decode(const Tokenizer *t, const int32_t *ids, size_t n, bool skip, Buffer *text) {
  Error err;
  assert_int_equal(tokenizer_decode(t, ids, n, skip, text, &err), STATUS_OK);
  assert_int_equal(buffer_append(text, "", 1, &err), STATUS_OK);
}

typedef struct {
  const char *decoder;
  int32_t ids[10]; /* up to -1 */
  const char *text;
} Case;

/* The expected texts are the reference's (tokenizers 0.23.3). */
static const Case cases[] = {
    {NULL, {0, 2, 8, -1}, "_a b_b a"},
    {SEQUENCE(""), {0, 2, 8, -1}, "_ab_ba"},
    {METASPACE("always"), {0, 0, 2, -1}, "a ab b"},
    {METASPACE("first"), {1, 0, -1}, " a"},
    {METASPACE("never"), {0, 0, -1}, " a a"},
    {METASPACE("always"), {14, 0, -1}, "<s> a"},
    {SEQUENCE(FUSE "," METASPACE("always")), {0, 0, -1}, "aa"},
    {FALLBACK,
     {3, 4, 8, -1},
     "\xc3\xa9"
     "a"},
    {FALLBACK,
     {3, 8, 4, -1},
     "\xef\xbf\xbd"
     "a\xef\xbf\xbd"},
    {FALLBACK, {3, 4, 3, -1}, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    {FALLBACK,
     {7, 7, 4, 7, 8, 7, -1},
     "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
     "aA"},
    {STRIP(" ", 1, 0), {9, 9, 5, -1}, " b   b  "},
    {STRIP(" ", 0, 1), {9, 9, -1}, "  b   b "},
    {SEQUENCE(FUSE "," STRIP(" ", 1, 0)), {9, 9, -1}, " b    b  "},
    {SEQUENCE(FUSE "," STRIP(" ", 3, 1)), {5, 9, 5, 5, -1}, "b   "},
    {SEQUENCE(FUSE "," STRIP(" ", 0, 2)), {9, 8, 5, 5, 5, -1}, "  b  a "},
    {REPLACE("{\"String\": \"b\"}", "xy"), {2, 10, -1}, "xy_xyaxy"},
    {REPLACE("{\"Regex\": \"^b\"}", "x"), {2, 10, 2, -1}, "x_babx_b"},
    {SEQUENCE(FUSE "," REPLACE("{\"String\": \"ab\"}", "-")), {8, 2, 10, -1}, "-_b-"},
    {SEQUENCE(FUSE "," REPLACE("{\"String\": \"aab\"}", "-")), {8, 8, 10, 8, 8, -1}, "a-aa"},
    /* the first part that reaches Replace is empty */
    {SEQUENCE(FUSE "," METASPACE("always") "," REPLACE("{\"String\": \"ab\"}", "-")), {1, 10, -1}, "-"},
    {SEQUENCE(FUSE "," REPLACE("{\"Regex\": \"a+$\"}", "-")), {8, 10, 8, 8, -1}, "aab-"},
    {BYTE_LEVEL,
     {11, 12, 8, -1},
     "\xc3\xa9"
     "a"},
    {BYTE_LEVEL,
     {11, 8, 11, -1},
     "\xef\xbf\xbd"
     "a\xef\xbf\xbd"},
    {BYTE_LEVEL, {12, 12, -1}, "\xef\xbf\xbd\xef\xbf\xbd"},
    {BYTE_LEVEL, {13, 11, -1}, "x\xe4\xb8\xad\xef\xbf\xbd"},
    {BYTE_LEVEL, {5, 14, -1}, " <s>"},
    {SEQUENCE(BYTE_LEVEL "," STRIP("a", 1, 1)),
     {8, 11, 12, 8, 8, -1},
     "\xc3\xa9"
     "a"},
    {SEQUENCE(FUSE "," FALLBACK), {7, -1}, "A"},
    {SEQUENCE(FUSE "," FALLBACK), {7, 7, -1}, "<0x41><0x41>"},
    {SEQUENCE(FUSE "," BYTE_LEVEL),
     {11, 12, 8, -1},
     "\xc3\xa9"
     "a"},
    {SEQUENCE(FUSE "," BYTE_LEVEL), {13, 11, -1}, "x\xe4\xb8\xad\xc3\x83"},
    {SEQUENCE(REPLACE("{\"String\": \"_\"}", " ") "," FALLBACK "," FUSE "," STRIP(" ", 1, 0)),
     {0, 3, 4, 0, -1},
     "a\xc3\xa9 a"},
};

static void decodes_as_the_reference(void **state) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Tokenizer *t = with_decoder(cases[i].decoder);
    size_t n = 0;
    while (cases[i].ids[n] >= 0) n++;
    Buffer text = {0};
    decode(t, cases[i].ids, n, false, &text);
    if (strcmp(text.data, cases[i].text) != 0)
      fail_msg("case %zu: \"%s\", expected \"%s\"", i, text.data, cases[i].text);
    buffer_release(&text);
    tokenizer_close(t);
  }
}

/* For random ids, what was pushed up to each border, plus the end, equals decoding them at once; no push
 * ends within a character. */
static void check_stream(const Tokenizer *t, const int32_t *ids, size_t n, bool skip) {
  TokenizerStream *stream;
  Error err;
  assert_int_equal(tokenizer_stream_open(t, skip, &stream, &err), STATUS_OK);
  for (size_t border = 0; border <= n; border++) {
    Buffer whole = {0}, pushed = {0};
    decode(t, ids, border, skip, &whole);
    for (size_t i = 0; i < border; i++) {
      assert_int_equal(tokenizer_stream_push(stream, ids[i], &pushed, &err), STATUS_OK);
      assert_int_equal(utf8_valid_prefix(pushed.data, pushed.size), pushed.size);
    }
    assert_int_equal(tokenizer_stream_end(stream, &pushed, &err), STATUS_OK); /* and ready for the next one */
    assert_int_equal(pushed.size, whole.size - 1);
    if (pushed.size) assert_memory_equal(pushed.data, whole.data, pushed.size);
    buffer_release(&whole);
    buffer_release(&pushed);
  }
  tokenizer_stream_close(stream);
}

static void a_stream_gives_the_same(void **state) {
  uint32_t random = 7;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Tokenizer *t = with_decoder(cases[i].decoder);
    for (int round = 0; round < 40; round++) {
      int32_t ids[12];
      size_t n = 0;
      while (n < 12) {
        random = random * 1664525u + 1013904223u;
        ids[n++] = (int32_t)(random >> 8) % 17 - 1; /* some are none */
      }
      check_stream(t, ids, n, round % 2);
    }
    tokenizer_close(t);
  }
}

/* Bytes are ids here. The texts are the reference's (tokenizers 0.23.3), which writes one U+FFFD for bytes
 * that begin a character. */
static void a_cut_character_is_one_replacement_character(void **state) {
  static const struct {
    int32_t bytes[5];
    size_t n;
    const char *text;
  } cut[] = {
      {{0xe4, 0xb8, 'x'}, 3, "\xef\xbf\xbdx"},
      {{0xf0, 0x9f, 0x98, 'x'}, 4, "\xef\xbf\xbdx"},
      {{0xe4, 0xb8}, 2, "\xef\xbf\xbd"},
      {{0xf0, 0x9f, 0x98}, 3, "\xef\xbf\xbd"},
      {{0xe4, 0xb8, 0xe4, 0xb8, 0xad}, 5, "\xef\xbf\xbd\xe4\xb8\xad"},
      {{0xe4, 0xb8, 0xc3}, 3, "\xef\xbf\xbd\xef\xbf\xbd"},
      {{0xf0, 0x9f, 0xff}, 3, "\xef\xbf\xbd\xef\xbf\xbd"},
      {{0xf0, 0x80, 'x'}, 3, "\xef\xbf\xbd\xef\xbf\xbdx"}, /* no character begins with it */
      {{0xed, 0xa0, 0x80}, 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
  };
  Tokenizer *t = make_bytes("[]");
  for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
    Buffer text = {0};
    decode(t, cut[i].bytes, cut[i].n, false, &text);
    assert_string_equal(text.data, cut[i].text);
    buffer_release(&text);
    check_stream(t, cut[i].bytes, cut[i].n, false);
  }
  tokenizer_close(t);
}

/* Certain text comes at once. */
static void text_comes_as_early_as_can_be(void **state) {
  static const struct {
    const char *decoder;
    int32_t id;
    const char *text; /* of this push */
  } pushes[] = {
      {BYTE_LEVEL, 11, ""},
      {BYTE_LEVEL, 12, "\xc3\xa9"},
      {BYTE_LEVEL, 11, ""},
      {BYTE_LEVEL, 8,
       "\xef\xbf\xbd"
       "a"},
      {FALLBACK, 3, ""},
      {FALLBACK, 4, ""},
      {FALLBACK, 8,
       "\xc3\xa9"
       "a"},
      {FALLBACK, 3, ""},
      {FALLBACK, 7, "\xef\xbf\xbd\xef\xbf\xbd"},
      {FALLBACK, 4, "\xef\xbf\xbd"},
      {FALLBACK, 8, "a"},
  };
  Tokenizer *t = NULL;
  TokenizerStream *stream = NULL;
  const char *decoder = NULL;
  Error err;
  for (size_t i = 0; i < sizeof pushes / sizeof *pushes; i++) {
    if (pushes[i].decoder != decoder) {
      decoder = pushes[i].decoder;
      tokenizer_stream_close(stream);
      tokenizer_close(t);
      t = with_decoder(decoder);
      assert_int_equal(tokenizer_stream_open(t, false, &stream, &err), STATUS_OK);
    }
    Buffer text = {0};
    assert_int_equal(tokenizer_stream_push(stream, pushes[i].id, &text, &err), STATUS_OK);
    assert_int_equal(buffer_append(&text, "", 1, &err), STATUS_OK);
    assert_string_equal(text.data, pushes[i].text);
    buffer_release(&text);
  }
  tokenizer_stream_close(stream);
  tokenizer_close(t);
}

static void special_tokens_and_unknown_ids_are_left_out(void **state) {
  Tokenizer *t = with_decoder(METASPACE("always"));
  const int32_t ids[] = {14, 0, 15, -1, 1 << 30, INT32_MIN, 0};
  Buffer text = {0};
  decode(t, ids, 7, true, &text);
  assert_string_equal(text.data, "a a"); /* the first token is the first that counts */
  text.size = 0;
  decode(t, ids, 7, false, &text);
  assert_string_equal(text.data, "<s> a a");
  buffer_release(&text);
  tokenizer_close(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(decodes_as_the_reference),
      cmocka_unit_test(a_stream_gives_the_same),
      cmocka_unit_test(a_cut_character_is_one_replacement_character),
      cmocka_unit_test(text_comes_as_early_as_can_be),
      cmocka_unit_test(special_tokens_and_unknown_ids_are_left_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
