/* fuzz_tokenizer.c - hostile tokenizer.json: it is refused with a message, or gives a tokenizer that
 * encodes and decodes.
 *
 * Checked of what is accepted: a text of all kinds of characters is encoded without a fault; its ids are
 * below tokenizer_n_ids() unless a template gives others; and they decode to valid UTF-8. Long texts of
 * parts of its own longest token are encoded too: what takes more than linear time for them shows as a
 * slow unit. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char text[] = "The  a\u0301b1 \u4e2d\n\n<s>_a_\t\u00e9\U0001f600 x<|im_end|>..\u00a0ab";

static void require(bool condition) {
  if (!condition) abort();
}

static void use(const Tokenizer *tokenizer) {
  for (int options = 0; options < 4; options++) {
    IdList ids = {0};
    Buffer decoded = {0};
    Error err = {{0}};
    Status status = tokenizer_encode(
        tokenizer, text, sizeof text - 1,
        (EncodeOptions){.add_special = options & 1, .parse_special = options & 2}, &ids, &err);
    require(status == STATUS_OK || err.text[0]);
    if (status == STATUS_OK) {
      for (size_t i = 0; i < ids.count; i++)
        require(ids.ids[i] >= 0 && ((options & 1) || ids.ids[i] < tokenizer_n_ids(tokenizer)));
      status = tokenizer_decode(tokenizer, ids.ids, ids.count, false, &decoded, &err);
      require(status == STATUS_OK || err.text[0]);
      require(utf8_valid_prefix(decoded.data, decoded.size) == decoded.size);
    }
    buffer_release(&decoded);
    id_list_release(&ids);
  }
}

/* The longest token of the first few thousand ids, where the added ones of a small vocabulary are. */
static const char *longest_token(const Tokenizer *tokenizer, size_t *longest) {
  const char *found = NULL;
  *longest = 0;
  for (int id = 0; id < tokenizer_n_ids(tokenizer) && id < 4096; id++) {
    size_t n;
    const char *content = tokenizer_content(tokenizer, id, &n);
    if (!content || n <= *longest) continue;
    found = content;
    *longest = n;
  }
  return found;
}

/* A part of a text, again and again. */
static void encode_repeated(const Tokenizer *tokenizer, const char *part, size_t size) {
  enum { LENGTH = 1 << 16 };
  Buffer repeated = {0};
  IdList ids = {0};
  Error err = {{0}};
  while (size > 0 && repeated.size + size < LENGTH)
    require(buffer_append(&repeated, part, size, &err) == STATUS_OK);
  Status status = tokenizer_encode(tokenizer, repeated.size ? repeated.data : "", repeated.size,
                                   (EncodeOptions){.parse_special = true}, &ids, &err);
  require(status == STATUS_OK || err.text[0]);
  id_list_release(&ids);
  buffer_release(&repeated);
}

static void use_long_texts(const Tokenizer *tokenizer) {
  size_t size;
  const char *token = longest_token(tokenizer, &size);
  if (!token || size < 2) return;
  size_t first = 1, last = utf8_before(token, size);
  while (first < size && ((unsigned char)token[first] & 0xc0) == 0x80) first++;
  encode_repeated(tokenizer, token, first); /* "aaaa..." for "aaab" */
  encode_repeated(tokenizer, token, last);  /* "<|im_<|im_..." */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Tokenizer *tokenizer;
  Error err = {{0}};
  Status status = tokenizer_parse("fuzz", (const char *)data, size, &tokenizer, &err);
  require(status == STATUS_OK ? tokenizer != NULL : tokenizer == NULL && err.text[0]);
  if (status == STATUS_OK) use(tokenizer);
  if (status == STATUS_OK) use_long_texts(tokenizer);
  tokenizer_close(tokenizer);
  return 0;
}
