/* fuzz_encode.c - hostile texts and ids for tokenizers of several kinds.
 *
 * The first byte picks a tokenizer and options, the second one how the text is cut into trusted and other
 * pieces; the rest is the text, and then ids. Checked: text that is not UTF-8 is refused and all other text
 * encoded; one piece and several trusted ones give the same ids; ids decode to valid UTF-8; and a stream of
 * any ids gives the same text at once and in pieces, each push whole characters. Some tokenizers encode the
 * text repeated until it is long: what takes more than linear time shows as a slow unit. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/split.h"
#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BYTE_LEVEL                                                                                           \
  "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}"
#define ADDED                                                                                                \
  "[{\"id\":0,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":true,\"rstrip\":false,\"normalized\":"    \
  "false,\"special\":true},"                                                                                 \
  "{\"id\":3,\"content\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\",\"single_word\":false,\"lstrip\":false,"       \
  "\"rstrip\":"                                                                                              \
  "false,\"normalized\":true,\"special\":false},"                                                            \
  "{\"id\":1,\"content\":\"<t>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":true,\"normalized\":"     \
  "true,\"special\":true},"                                                                                  \
  "{\"id\":2,\"content\":\"ab\",\"single_word\":true,\"lstrip\":false,\"rstrip\":false,\"normalized\":true," \
  "\"special\":false}]"

static const struct {
  const char *normalizer, *pre_tokenizer, *decoder, *options;
} kinds[] = {
    {"null", BYTE_LEVEL, BYTE_LEVEL, "\"ignore_merges\":true,"},
    {"{\"type\":\"NFC\"}", BYTE_LEVEL, BYTE_LEVEL, ""},
    {"{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKD\"},{\"type\":\"Lowercase\"}]}",
     "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"first\"}",
     "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"first\"}",
     "\"unk_token\":\"a\",\"fuse_unk\":true,"},
    {"{\"type\":\"Prepend\",\"prepend\":\"_\"}", "null",
     "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":"
     "\" \"},"
     "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" "
     "\",\"start\":1,\"stop\":1}]}",
     "\"byte_fallback\":true,"},
    {"{\"type\":\"NFKC\"}",
     "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\s+(?!\\\\S)|"
     "\\\\p{L}+\"},"
     "\"behavior\":\"MergedWithNext\",\"invert\":false},{\"type\":\"Digits\",\"individual_digits\":false},"
     "{\"type\":\"Punctuation\"}]}",
     "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"Replace\",\"pattern\":{\"String\":"
     "\"aa\"},"
     "\"content\":\"b\"}]}",
     "\"continuing_subword_prefix\":\"\","},
};

enum { KINDS = sizeof kinds / sizeof *kinds };
static Tokenizer *tokenizers[KINDS];

static void require(bool condition) {
  if (!condition) abort();
}

static void write_vocab(Buffer *json) {
  for (int b = 0; b < 256; b++) {
    char bytes[4];
    int n = utf8_encode(byte_level_char((uint8_t)b), bytes);
    buffer_printf(json, NULL, "%c", b ? ',' : '{');
    json_write_string(json, bytes, (size_t)n, NULL);
    buffer_printf(json, NULL, ":%d,\"<0x%02X>\":%d", b, (unsigned)b, 256 + b);
  }
  buffer_append_string(json, ",\"_\\u0120\":512,\"aa\":513,\"aaa\":514,\"th\":515,\"the\":516,\"aaaa\":517}",
                       NULL);
}

static void open_all(void) {
  for (int i = 0; i < KINDS; i++) {
    Buffer json = {0};
    Error err;
    buffer_printf(
        &json, NULL,
        "{\"added_tokens\":%s,\"normalizer\":%s,\"pre_tokenizer\":%s,\"decoder\":%s,\"model\":{%s\"merges\":"
        "[\"a a\",\"aa a\",\"aa aa\",\"t h\",\"th e\"],\"vocab\":",
        ADDED, kinds[i].normalizer, kinds[i].pre_tokenizer, kinds[i].decoder, kinds[i].options);
    write_vocab(&json);
    buffer_append_string(&json, "}}", NULL);
    require(tokenizer_parse("fuzz", json.data, json.size, &tokenizers[i], &err) == STATUS_OK);
    buffer_release(&json);
  }
}

static void check_stream(const Tokenizer *t, const int32_t *ids, size_t n, bool skip) {
  Buffer whole = {0}, pushed = {0};
  Error err;
  TokenizerStream *stream;
  require(tokenizer_decode(t, ids, n, skip, &whole, &err) == STATUS_OK);
  require(utf8_valid_prefix(whole.data, whole.size) == whole.size);
  require(tokenizer_stream_open(t, skip, &stream, &err) == STATUS_OK);
  for (size_t i = 0; i < n; i++) {
    require(tokenizer_stream_push(stream, ids[i], &pushed, &err) == STATUS_OK);
    require(utf8_valid_prefix(pushed.data, pushed.size) == pushed.size);
    require(pushed.size <= whole.size &&
            (pushed.size == 0 || memcmp(pushed.data, whole.data, pushed.size) == 0));
  }
  require(tokenizer_stream_end(stream, &pushed, &err) == STATUS_OK);
  require(pushed.size == whole.size && (whole.size == 0 || memcmp(pushed.data, whole.data, whole.size) == 0));
  tokenizer_stream_close(stream);
  buffer_release(&whole);
  buffer_release(&pushed);
}

/* The text in pieces cut where characters begin, all of them trusted as the text was. */
static void check_pieces(const Tokenizer *t, const char *text, size_t size, uint8_t cuts,
                         EncodeOptions options, const IdList *expected) {
  PromptPiece pieces[9];
  size_t n = 0, from = 0;
  for (int i = 0; i < 8; i++) {
    size_t to = size * (size_t)(i + 1) / 9;
    while (to < size && ((unsigned char)text[to] & 0xc0) == 0x80) to++;
    if (!(cuts >> i & 1) || to < from) continue;
    pieces[n++] = (PromptPiece){text + from, to - from, options.parse_special};
    from = to;
  }
  pieces[n++] = (PromptPiece){text + from, size - from, options.parse_special};
  IdList ids = {0};
  Error err;
  require(tokenizer_encode_pieces(t, pieces, n, options.add_special, &ids, &err) == STATUS_OK);
  require(ids.count == expected->count);
  require(ids.count == 0 || memcmp(ids.ids, expected->ids, ids.count * sizeof *ids.ids) == 0);
  for (size_t i = 0; i < n; i += 2)
    pieces[i].trusted = !pieces[i].trusted; /* mixed: only that nothing breaks */
  require(tokenizer_encode_pieces(t, pieces, n, options.add_special, &ids, &err) == STATUS_OK);
  id_list_release(&ids);
}

static void check_long(const Tokenizer *t, const char *text, size_t size, EncodeOptions options) {
  Buffer repeated = {0};
  IdList ids = {0};
  Error err;
  while (repeated.size + size < 1 << 16) require(buffer_append(&repeated, text, size, &err) == STATUS_OK);
  require(tokenizer_encode(t, repeated.data, repeated.size, options, &ids, &err) == STATUS_OK);
  id_list_release(&ids);
  buffer_release(&repeated);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!tokenizers[0]) open_all();
  if (size < 2) return 0;
  const Tokenizer *t = tokenizers[data[0] % KINDS];
  const EncodeOptions options = {.add_special = false, .parse_special = data[0] / KINDS & 1};
  const char *text = (const char *)data + 2;
  IdList ids = {0};
  Error err = {{0}};
  Status status = tokenizer_encode(t, text, size - 2, options, &ids, &err);
  bool valid = utf8_valid_prefix(text, size - 2) == size - 2;
  require(status == (valid ? STATUS_OK : STATUS_USAGE));
  if (valid) check_pieces(t, text, size - 2, data[1], options, &ids);
  if (valid && size > 2 && size < 1 << 15 && data[1] % 32 == 7) check_long(t, text, size - 2, options);
  check_stream(t, ids.ids, ids.count, data[0] & 128);
  ids.count = 0;
  for (size_t i = 2; i + 1 < size; i += 2)
    require(id_list_append(&ids, (data[i] << 8 | data[i + 1]) % 560 - 20, &err) == STATUS_OK);
  check_stream(t, ids.ids, ids.count, data[0] & 64);
  id_list_release(&ids);
  return 0;
}
