/* small.h - shared by the tests of this room: small tokenizers from JSON, and ids as text. */
#pragma once

#include <malloc.h>

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "test/unit.h"
#include "tokenizer/split.h"
#include "tokenizer/tokenizer.h"

/* A tokenizer.json of the given parts, which are JSON; NULL: the part is null. */
typedef struct {
  const char *added, *normalizer, *pre_tokenizer, *post_processor, *decoder;
  const char *options;        /* members of the model, each followed by ',' */
  const char *vocab, *merges; /* a vocab that is an array: of the model Unigram */
} Parts;

static inline const char *or_null(const char *part) {
  return part ? part : "null";
}

static inline Status open_parts(Parts p, Tokenizer **tokenizer, Error *err) {
  Buffer json = {0};
  const bool unigram = p.vocab && p.vocab[0] == '[';
  Status status = buffer_printf(
      &json, err,
      "{\"version\": \"1.0\", \"added_tokens\": %s, \"normalizer\": %s, \"pre_tokenizer\": %s, "
      "\"post_processor\": %s, \"decoder\": %s, \"model\": {\"type\": \"%s\", %s \"vocab\": %s, \"merges\": "
      "%s}}",
      or_null(p.added), or_null(p.normalizer), or_null(p.pre_tokenizer), or_null(p.post_processor),
      or_null(p.decoder), unigram ? "Unigram" : "BPE", p.options ? p.options : "", p.vocab ? p.vocab : "{}",
      p.merges  ? p.merges
      : unigram ? "null"
                : "[]");
  if (status == STATUS_OK) status = tokenizer_parse("file", json.data, json.size, tokenizer, err);
  buffer_release(&json);
  return status;
}

static inline Tokenizer *make(Parts parts) {
  Tokenizer *tokenizer = NULL;
  Error err = {{0}};
  if (open_parts(parts, &tokenizer, &err) != STATUS_OK) fail_msg("refused: %s", err.text);
  return tokenizer;
}

/* A vocabulary of all of ByteLevel's characters, byte b having the id b, followed by the members `more`
 * (each after a ','). */
static inline char *byte_vocab(const char *more) {
  Buffer json = {0};
  for (int b = 0; b < 256; b++) {
    char bytes[4];
    size_t n = (size_t)utf8_encode(byte_level_char((uint8_t)b), bytes);
    assert_int_equal(buffer_printf(&json, NULL, "%c", b ? ',' : '{'), STATUS_OK);
    assert_int_equal(json_write_string(&json, bytes, n, NULL), STATUS_OK);
    assert_int_equal(buffer_printf(&json, NULL, ":%d", b), STATUS_OK);
  }
  assert_int_equal(buffer_printf(&json, NULL, "%s}", more ? more : ""), STATUS_OK);
  assert_int_equal(buffer_append(&json, "", 1, NULL), STATUS_OK);
  return json.data;
}

#define BYTE_LEVEL                                                                                           \
  "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": false}"

/* A byte-level tokenizer without merges: ids are bytes, and the added tokens from 256 on. */
static inline Tokenizer *make_bytes(const char *added) {
  char *vocab = byte_vocab(NULL);
  Tokenizer *tokenizer =
      make((Parts){.added = added, .pre_tokenizer = BYTE_LEVEL, .decoder = BYTE_LEVEL, .vocab = vocab});
  free(vocab);
  return tokenizer;
}

/* An added token as JSON. The tokenizer assigns its id; flags are a string of s(pecial) n(ormalized) w
 * (single word) l(strip) r(strip). */
#define TOKEN_SIZE 256
static inline const char *token_json(char out[TOKEN_SIZE], const char *content, const char *flags) {
  snprintf(out, TOKEN_SIZE,
           "{\"id\": 0, \"content\": \"%s\", \"single_word\": %s, \"lstrip\": %s, \"rstrip\": %s, "
           "\"normalized\": %s, "
           "\"special\": %s}",
           content, strchr(flags, 'w') ? "true" : "false", strchr(flags, 'l') ? "true" : "false",
           strchr(flags, 'r') ? "true" : "false", strchr(flags, 'n') ? "true" : "false",
           strchr(flags, 's') ? "true" : "false");
  return out;
}

/* Ids are bytes, and these special tokens from 256 on. */
static inline Tokenizer *with_controls(const char *const *controls, size_t n) {
  Buffer json = {0};
  for (size_t i = 0; i < n; i++) {
    char token[TOKEN_SIZE];
    buffer_printf(&json, NULL, "%c%s", i ? ',' : '[', token_json(token, controls[i], "s"));
  }
  buffer_append(&json, "]", 2, NULL);
  Tokenizer *tokenizer = make_bytes(json.data);
  buffer_release(&json);
  return tokenizer;
}

/* Appends the JSON string at *at to out, and moves *at to what follows. */
static inline void read_string(const char **at, Buffer *out) {
  const char *end = *at + 1;
  Json *tree;
  size_t size;
  while (*end != '"') end += *end == '\\' ? 2 : 1;
  end++;
  assert_int_equal(json_parse("text", STATUS_FAILED, *at, (size_t)(end - *at), NULL, 0, &tree, NULL),
                   STATUS_OK);
  const char *text = json_string(tree, &size);
  assert_int_equal(buffer_append(out, text, size, NULL), STATUS_OK);
  json_free(tree);
  *at = end;
}

/* "1 2 3" of ids. */
static inline const char *ids_text(const IdList *ids, char *out, size_t size) {
  size_t n = 0;
  out[0] = '\0';
  for (size_t i = 0; i < ids->count && n < size; i++)
    n += (size_t)snprintf(out + n, size - n, "%s%d", i ? " " : "", (int)ids->ids[i]);
  return out;
}

static inline void assert_ids(const Tokenizer *tokenizer, const char *text, EncodeOptions options,
                              const char *expected) {
  IdList ids = {0};
  Error err = {{0}};
  char found[4096];
  if (tokenizer_encode(tokenizer, text, strlen(text), options, &ids, &err) != STATUS_OK)
    fail_msg("%s: %s", text, err.text);
  assert_string_equal(ids_text(&ids, found, sizeof found), expected);
  id_list_release(&ids);
}

/* Bytes of the heap in use, including the allocator's reserve; 0 if unknown. */
static inline size_t heap_in_use(void) {
#if defined __GLIBC__ && __GLIBC_PREREQ(2, 33) && !defined __SANITIZE_ADDRESS__
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
#else
  return 0;
#endif
}

/* Repeating an operation must not take more memory in the end: nothing may leak, not even a smallest block
 * each time. At first the allocator's reserve grows. */
static inline void assert_nothing_stays(const char *what, void (*once)(void *), void *user) {
  enum { ROUNDS = 32, SMALLEST = 24, ATTEMPTS = 12 };
  size_t grown = 0;
  for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
    const size_t before = heap_in_use();
    for (int i = 0; i < ROUNDS; i++) once(user);
    const size_t after = heap_in_use();
    if (after < before + ROUNDS * SMALLEST) return;
    grown = after - before;
  }
  fail_msg("%s: %zu bytes stay", what, grown);
}

#define PLAIN ((EncodeOptions){.add_special = false, .parse_special = true})
