/* unigram_load.c - loads the model "Unigram" from its JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tokenizer/load/fields.h"
#include "tokenizer/unigram.h"

#define UNKNOWN_PENALTY 10.0 /* SentencePiece's kUnkPenalty */

void unigram_release(Unigram *unigram) {
  matcher_release(&unigram->matcher);
  free(unigram->shorter);
  free(unigram->scores);
  *unigram = (Unigram){0};
}

/* --- scores */

enum { N_POWERS = 309 };

/* Reads a number as the reference (serde_json) does: the digits that 64 bits can hold, times or divided by a
 * power of ten. The result can miss the nearest double. The last bit matters: it decides whether sums of
 * scores are equal. */
static bool read_score(JsonSpan number, const double powers[N_POWERS], double *score) {
  const char *at = number.text, *end = at + number.size;
  const bool negative = *at == '-';
  int64_t exponent = 0, given = 0;
  uint64_t digits = 0;
  bool fraction = false, full = false;
  at += negative;
  if (at == end || *at < '0' || *at > '9') return false;
  for (; at < end && *at != 'e' && *at != 'E'; at++) {
    const unsigned digit = (unsigned)(*at - '0');
    if (*at == '.') {
      fraction = true;
      continue;
    }
    full |= digits > (UINT64_MAX - digit) / 10;
    if (!full) digits = digits * 10 + digit;
    exponent += full ? !fraction : -(int)fraction;
  }
  const char *sign = at < end ? ++at : at;
  if (at < end && (*at == '-' || *at == '+')) at++;
  for (; at < end && given < INT32_MAX; at++) given = given * 10 + (*at - '0');
  exponent += sign < end && *sign == '-' ? -given : given;
  double value = (double)digits;
  for (; exponent <= -N_POWERS && value != 0; exponent += N_POWERS - 1) value /= powers[N_POWERS - 1];
  if (value != 0 && exponent >= N_POWERS) return false;
  if (value != 0) value = exponent < 0 ? value / powers[-exponent] : value * powers[exponent];
  *score = negative ? -value : value;
  return isfinite(value);
}

/* --- pieces */

/* Reads [piece, score] at the cursor. */
static Status read_piece(const char *where, JsonCursor *cursor, const double powers[N_POWERS],
                         Buffer *unescaped, Vocab *vocab, double *score, Error *err) {
  const char *piece = "";
  size_t size = 0, n = 0;
  bool good = json_cursor_enter(cursor, '[');
  char found[64];
  JsonCursor at = *cursor;
  for (bool first = true; good && json_cursor_next(cursor, &first); n++) {
    at = *cursor;
    good = n < 2;
    if (n == 0) TRY(read_string(cursor, unescaped, &piece, &size, &good, err));
    if (n == 1 && !read_score(json_cursor_value(cursor), powers, score))
      return error_set(err, STATUS_MODEL, "%s: the score of \"%.*s\" is %s, expected a number", where,
                       (int)(size < 80 ? size : 80), piece, json_cursor_describe(at, found));
  }
  if (!good || n != 2)
    return error_set(err, STATUS_MODEL, "%s[%zu] is not a pair of a piece and its score", where,
                     vocab->count);
  if (vocab->count > MAX_ID)
    return error_set(err, STATUS_MODEL, "%s: more than %d pieces", where, MAX_ID + 1);
  return vocab_add(vocab, piece, size, (int32_t)vocab->count, err);
}

static Status read_pieces(const char *where, JsonCursor cursor, Buffer *unescaped, Vocab *vocab, Unigram *u,
                          Error *err) {
  double powers[N_POWERS], lowest = INFINITY;
  size_t capacity = 0;
  for (int i = 0; i < N_POWERS; i++) {
    char text[8];
    snprintf(text, sizeof text, "1e%d", i);
    powers[i] = strtod(text, NULL);
  }
  for (bool first = true; json_cursor_next(&cursor, &first);) {
    const size_t i = vocab->count;
    TRY(mem_grow(&u->scores, &capacity, i + 1, sizeof *u->scores, "scores", err));
    TRY(read_piece(where, &cursor, powers, unescaped, vocab, &u->scores[i], err));
    lowest = fmin(lowest, u->scores[i]);
  }
  u->unk_score = lowest - UNKNOWN_PENALTY;
  return STATUS_OK;
}

static Status build_matcher(const char *where, const Vocab *vocab, Unigram *u, Error *err) {
  size_t n = 0;
  MatchTwins twins;
  OWNED(mem_release) MatchString *strings = NULL;
  TRY(NEW(strings, vocab->count, "pieces", err));
  for (size_t i = 0; i < vocab->count; i++) {
    const VocabToken *token = &vocab->tokens[i];
    if (token->size > 0) /* an empty piece, which the reference accepts, never matches */
      strings[n++] = (MatchString){vocab->bytes.data + token->offset, token->size, token->id};
  }
  TRY(matcher_build(strings, n, &u->matcher, &twins, err));
  if (!twins.found) return STATUS_OK;
  size_t size;
  return error_set(err, STATUS_MODEL, "%s: pieces %d and %d are both \"%.80s\"", where, (int)twins.first,
                   (int)twins.second, vocab_content(vocab, twins.first, &size));
}

/* Sets u->shorter. A piece ends at a node if m->longest differs between the node and its fail link. */
static Status link_pieces(const Vocab *vocab, Unigram *u, Error *err) {
  const Matcher *m = &u->matcher;
  TRY(NEW(u->shorter, vocab->count, "pieces", err));
  for (uint32_t node = 1; node < m->n_nodes; node++) {
    const int32_t shorter = m->longest[m->fail[node]];
    if (m->longest[node] != shorter) u->shorter[m->longest[node]] = shorter;
  }
  return STATUS_OK;
}

Status unigram_load(const char *where, const Json *json, JsonSpan pieces, bool bytes, Vocab *vocab,
                    Unigram *u, Error *err) {
  *u = (Unigram){.where = where, .vocab = vocab, .bytes = bytes};
  const Where in_vocab = where_in(where, "vocab", 0);
  JsonCursor cursor = json_cursor(pieces);
  char found[64];
  bool fallback;
  TRY(field_known(where, json, "unk_id byte_fallback vocab", err));
  if (!pieces.text || !json_cursor_enter(&cursor, '['))
    return error_set(err, STATUS_MODEL, "%s is %s, expected an array", in_vocab.text,
                     json_cursor_describe(cursor, found));
  Buffer unescaped = {0};
  Status status = read_pieces(in_vocab.text, cursor, &unescaped, vocab, u, err);
  buffer_release(&unescaped);
  if (status != STATUS_OK) return status;
  if (vocab->count == 0) return error_set(err, STATUS_MODEL, "%s is empty", in_vocab.text);
  TRY(vocab_index_ids(in_vocab.text, vocab, err));
  int64_t unk_id;
  TRY(json_get_int((JsonSource){where, STATUS_MODEL}, json, "unk_id", 0, vocab->n_ids - 1, -1, &unk_id, err));
  u->unk_id = (int32_t)unk_id;
  TRY(field_bool_or(where, json, "byte_fallback", false, &fallback, err));
  vocab_fallback_ids(vocab, fallback, u->fallback_ids);
  TRY(build_matcher(in_vocab.text, vocab, u, err));
  return link_pieces(vocab, u, err);
}
