/* token_bytes.c - the bytes that a single token stands for in a text; see tokenizer.h.
 *
 * Called by: constrain/masks/vocabulary.c, reply.c and channels.c of commands. Applies the decoders that work
 * on each token by itself, to added tokens too. Left out are Replace by a regular expression, and changes at
 * the beginning or end of a text (Strip, Metaspace's first mark): the token is in the middle. */
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/internal.h"

static Status replace_all(Buffer *bytes, const char *from, size_t from_size, const char *to, size_t to_size,
                          Error *err) {
  OWNED(buffer_release) Buffer before = TAKE(*bytes);
  return append_replaced(bytes, before.data, before.size, from, from_size, to, to_size, err);
}

static Status decode_byte_level(Buffer *bytes, Error *err) {
  OWNED(buffer_release) Buffer before = TAKE(*bytes);
  return append_mapped(bytes, before.data, before.size, err);
}

static void decode_fallback(Buffer *bytes) {
  const int byte = fallback_byte(bytes->data, bytes->size);
  if (byte < 0) return;
  bytes->data[0] = (char)byte;
  bytes->size = 1;
}

Status tokenizer_token_bytes(const Tokenizer *tokenizer, int32_t id, Buffer *out, bool *is_text, Error *err) {
  size_t size;
  const char *content = decoded_content(tokenizer, id, true, &size);
  out->size = 0;
  *is_text = content && !tokenizer_is_special(tokenizer, id);
  if (!*is_text) return STATUS_OK;
  TRY(buffer_append(out, content, size, err));
  for (size_t i = 0; i < tokenizer->decoder.count && out->size > 0; i++) {
    const Step *step = &tokenizer->decoder.steps[i];
    if (step->kind == DECODE_BYTE_LEVEL) TRY(decode_byte_level(out, err));
    if (step->kind == DECODE_METASPACE) TRY(replace_all(out, step->mark, step->mark_size, " ", 1, err));
    if (step->kind == DECODE_REPLACE && step->pattern.literal)
      TRY(replace_all(out, step->pattern.literal, step->pattern.size, step->content, step->content_size,
                      err));
    if (step->kind == DECODE_BYTE_FALLBACK) decode_fallback(out);
  }
  return STATUS_OK;
}
