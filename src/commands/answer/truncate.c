/* truncate.c - see truncate.h. Called by: prompt.c. The length of a cut prompt is known only after encoding
 * it, because tokens merge across the seam and with the surrounding text. So each round cuts as many further
 * tokens as are still too many, divided by n_places and rounded up; in practice there are one or two
 * rounds. */
#include "commands/answer/truncate.h"

#include <stdlib.h>
#include <string.h>

/* A text's tokens and their ends: ends[i] bytes precede token i + 1. */
typedef struct {
  IdList ids;
  size_t *ends; /* [ids.count] */
} Tokens;

/* For a text that the tokenizer changes (normalises, inserts a space): assumes tokens of equal length. */
static void guess_ends(const char *text, size_t size, Tokens *tokens) {
  for (size_t i = 0; i < tokens->ids.count; i++) {
    size_t at = (size_t)((double)size * (double)(i + 1) / (double)tokens->ids.count);
    while (at < size && ((unsigned char)text[at] & 0xc0) == 0x80) at++;
    tokens->ends[i] = at < size ? at : size;
  }
}

static Status find_ends(const Tokenizer *tokenizer, const char *text, size_t size, Tokens *tokens,
                        Error *err) {
  OWNED(tokenizer_stream_release) TokenizerStream *stream = NULL;
  OWNED(buffer_release) Buffer decoded = {0};
  TRY(tokenizer_stream_open(tokenizer, false, &stream, err));
  for (size_t i = 0; i < tokens->ids.count; i++) {
    TRY(tokenizer_stream_push(stream, tokens->ids.ids[i], &decoded, err));
    tokens->ends[i] = decoded.size;
  }
  TRY(tokenizer_stream_end(stream, &decoded, err));
  bool same = decoded.size == size && (size == 0 || memcmp(decoded.data, text, size) == 0);
  if (!same) guess_ends(text, size, tokens);
  if (tokens->ids.count) tokens->ends[tokens->ids.count - 1] = size;
  return STATUS_OK;
}

/* Sets `left` to the text without tokens [first, first + n_cut). */
static Status cut(const Tokens *tokens, const char *text, size_t size, size_t first, size_t n_cut,
                  TruncationResult *result, Buffer *left, Error *err) {
  result->n_cut = n_cut;
  result->begin = first ? tokens->ends[first - 1] : 0;
  result->end = n_cut ? tokens->ends[first + n_cut - 1] : result->begin;
  left->size = 0;
  TRY(buffer_append(left, text, result->begin, err));
  return buffer_append(left, text + result->end, size - result->end, err);
}

static Status cut_until_it_fits(const Truncator *t, const Tokens *tokens, const char *text, size_t size,
                                Buffer *left, IdList *ids, TruncationResult *result, Error *err) {
  const size_t n = tokens->ids.count;
  size_t n_cut = 0;
  while (ids->count > t->room) {
    size_t excess = ids->count - t->room;
    if (n_cut == n)
      return error_set(
          err, STATUS_USAGE,
          "the prompt has %zu tokens even without its text, more than the %zu that are left beside the "
          "answer",
          ids->count, t->room);
    n_cut += (excess + t->n_places - 1) / t->n_places;
    if (n_cut > n) n_cut = n;
    TRY(cut(tokens, text, size, t->middle ? (n - n_cut + 1) / 2 : 0, n_cut, result, left, err));
    ids->count = 0;
    TRY(t->encode(t->user, left->data ? left->data : "", left->size, ids, err));
  }
  return STATUS_OK;
}

static void tokens_release(Tokens *tokens) {
  id_list_release(&tokens->ids);
  free(tokens->ends);
}

Status truncate_text(const Truncator *t, const char *text, size_t size, IdList *ids, TruncationResult *result,
                     Error *err) {
  *result = (TruncationResult){.n_before = ids->count};
  OWNED(tokens_release) Tokens tokens = {0};
  OWNED(buffer_release) Buffer left = {0};
  TRY(tokenizer_encode(t->tokenizer, text, size, (EncodeOptions){0}, &tokens.ids, err));
  TRY(NEW(tokens.ends, tokens.ids.count + 1, "the places of tokens", err));
  TRY(find_ends(t->tokenizer, text, size, &tokens, err));
  return cut_until_it_fits(t, &tokens, text, size, &left, ids, result, err);
}
