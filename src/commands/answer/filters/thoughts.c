/* thoughts.c - see thoughts.h.   Called by: filters.c. */
#include "commands/answer/filters/thoughts.h"

#include <string.h>

Status thoughts_are_open(const Assistant *a, const int32_t *ids, size_t n, bool *inside, Error *err) {
  *inside = false;
  if (!a->thinking.open) return STATUS_OK;
  size_t length = strlen(a->thinking.open),
         last = length + 8; /* a token has at least one byte; 8 for white space */
  if (last > n) last = n;
  Buffer text = {0};
  Status status = tokenizer_decode(a->tokenizer, ids + n - last, last, false, &text, err);
  while (text.size && strchr(" \t\r\n", text.data[text.size - 1])) text.size--;
  *inside = text.size >= length && memcmp(text.data + text.size - length, a->thinking.open, length) == 0;
  buffer_release(&text);
  return status;
}

static Status encode_after(const Assistant *a, const char *before, IdList *ids, Error *err) {
  const char *mark = a->thinking.close;
  const PromptPiece pieces[] = {
      {before, strlen(before), true}, {"\n", 1, true}, {mark, strlen(mark), true}, {"\n\n", 2, true}};
  return tokenizer_encode_pieces(a->tokenizer, pieces, sizeof pieces / sizeof *pieces, false, ids, err);
}

/* A tokenizer may insert a space at the beginning of a text. To avoid that, this encodes "a" and the mark,
 * and drops the ids of "a" if they are a proper prefix. */
Status thoughts_close(const Assistant *a, IdList *ids, Error *err) {
  IdList letter = {0}, whole = {0};
  Status status = tokenizer_encode(a->tokenizer, "a", 1, (EncodeOptions){0}, &letter, err);
  if (status == STATUS_OK) status = encode_after(a, "a", &whole, err);
  size_t n = letter.count;
  bool apart = n < whole.count && (n == 0 || memcmp(letter.ids, whole.ids, n * sizeof *whole.ids) == 0);
  for (size_t i = n; apart && i < whole.count && status == STATUS_OK; i++)
    status = id_list_append(ids, whole.ids[i], err);
  if (!apart && status == STATUS_OK) status = encode_after(a, "", ids, err);
  id_list_release(&letter);
  id_list_release(&whole);
  return status;
}
