/* decode.c - turns tokens into text as they arrive; see decode.h.
 *
 * A whole text is decoded as a stream too, so both always agree. Each step takes a token and passes on what
 * is certain. Tokens stay separate up to the first step that joins all of them (ByteLevel, Fuse). After it
 * there is one token, whose text arrives in parts of whole characters. After such a join ByteLevel,
 * ByteFallback and Replace by a regular expression cannot work on parts: they wait for the end. */
#include "tokenizer/decode.h"

#include <string.h>

#include "base/utf8.h"

static const char replacement_character[] = "\xef\xbf\xbd"; /* U+FFFD */

/* --- from step to step */

static Status feed(Decoding *d, size_t i, const char *text, size_t size, Buffer *out, Error *err);

static Status feed_part(Decoding *d, size_t i, const char *text, size_t size, Buffer *out, Error *err) {
  return size > 0 ? feed(d, i, text, size, out, err) : STATUS_OK;
}

/* Passes bytes on as text: whole characters, and U+FFFD for invalid sequences. `end`: nothing follows. */
static Status feed_lossy(Decoding *d, size_t i, Buffer *held, bool end, Buffer *out, Error *err) {
  size_t done = 0, at = 0;
  if (held->size == 0) return STATUS_OK;
  while (at < held->size) {
    uint32_t code;
    int length = utf8_decode(held->data + at, held->size - at, &code);
    if (length == 0 && !end) break;
    if (length > 0) {
      at += (size_t)length;
      continue;
    }
    TRY(feed_part(d, i, held->data + done, at - done, out, err));
    TRY(feed_part(d, i, replacement_character, 3, out, err));
    at += utf8_bad_length(held->data + at, held->size - at);
    done = at;
  }
  TRY(feed_part(d, i, held->data + done, at - done, out, err));
  if (at < held->size) memmove(held->data, held->data + at, held->size - at);
  held->size -= at;
  return STATUS_OK;
}

/* --- ByteLevel */

Status append_mapped(Buffer *bytes, const char *token, size_t size, Error *err) {
  size_t before = bytes->size;
  for (size_t at = 0; at < size;) {
    uint32_t code;
    int length = utf8_decode(token + at, size - at, &code);
    int byte = length > 0 ? byte_level_byte(code) : -1;
    if (byte < 0) {
      bytes->size = before;
      return buffer_append(bytes, token, size, err);
    }
    const char c = (char)byte;
    TRY(buffer_append(bytes, &c, 1, err));
    at += (size_t)length;
  }
  return STATUS_OK;
}

/* --- Metaspace */

Status append_replaced(Buffer *buffer, const char *text, size_t size, const char *from, size_t from_size,
                       const char *to, size_t to_size, Error *err) {
  for (const char *at = text, *end = text + size; at < end;) {
    const char *hit = memmem(at, (size_t)(end - at), from, from_size), *until = hit ? hit : end;
    TRY(buffer_append(buffer, at, (size_t)(until - at), err));
    if (hit) TRY(buffer_append(buffer, to, to_size, err));
    at = hit ? until + from_size : end;
  }
  return STATUS_OK;
}

static Status metaspace(Decoding *d, size_t i, const char *text, size_t size, Buffer *out, Error *err) {
  const Step *step = &d->decoder->steps[i];
  DecodeState *state = &d->states[i];
  bool drop = step->scheme != PREPEND_NEVER && (step->fused || !state->seen);
  state->seen = true;
  OWNED(buffer_release) Buffer token = {0};
  TRY(append_replaced(&token, text, size, step->mark, step->mark_size, " ", drop ? 0 : 1, err));
  return feed(d, i + 1, token.data ? token.data : "", token.size, out, err);
}

/* --- Replace */

static Status replace_token(Decoding *d, size_t i, const char *text, size_t size, Buffer *out, Error *err) {
  const Step *step = &d->decoder->steps[i];
  OWNED(buffer_release) Buffer token = {0};
  d->regex.text_size = d->came;
  Status status = pattern_replace(&step->pattern, &d->regex, text, size, step->content, step->content_size,
                                  growth_of(d->decoder->where.text, d->came), &token, err);
  regex_pause(&d->regex);
  return status ? status : feed(d, i + 1, token.data ? token.data : "", token.size, out, err);
}

/* How many bytes at the end of text[0 .. size) can be the beginning of the literal. */
static size_t begun_literal(const Pattern *pattern, const char *text, size_t size) {
  size_t n = size < pattern->size - 1 ? size : pattern->size - 1;
  while (n > 0 && memcmp(text + size - n, pattern->literal, n) != 0) n--;
  return n;
}

static Status replace_part(Decoding *d, size_t i, const char *text, size_t size, Buffer *out, Error *err) {
  const Step *step = &d->decoder->steps[i];
  Buffer *held = &d->states[i].held;
  if (size == 0) return STATUS_OK; /* `held` may have no memory yet */
  TRY(buffer_append(held, text, size, err));
  size_t at = 0;
  for (const char *hit;
       (hit = memmem(held->data + at, held->size - at, step->pattern.literal, step->pattern.size));) {
    TRY(feed_part(d, i + 1, held->data + at, (size_t)(hit - held->data) - at, out, err));
    TRY(feed_part(d, i + 1, step->content, step->content_size, out, err));
    at = (size_t)(hit - held->data) + step->pattern.size;
  }
  size_t keep = begun_literal(&step->pattern, held->data + at, held->size - at);
  TRY(feed_part(d, i + 1, held->data + at, held->size - at - keep, out, err));
  memmove(held->data, held->data + held->size - keep, keep);
  held->size = keep;
  return STATUS_OK;
}

/* --- ByteFallback */

int fallback_byte(const char *token, size_t size) {
  if (size != 6 || memcmp(token, "<0x", 3) != 0 || token[5] != '>') return -1;
  int high = token[3] == '+' ? 0 : digit_value(token[3]), low = digit_value(token[4]);
  return high > 15 || low > 15 ? -1 : high << 4 | low;
}

/* Passes the held bytes on as one token of text. If `invalid`, or if their last character is not whole,
 * passes on a U+FFFD for each byte instead. */
static Status flush_bytes(Decoding *d, size_t i, Buffer *out, Error *err) {
  DecodeState *state = &d->states[i];
  if (state->held.size > 0 && !state->invalid && state->checked == state->held.size) {
    TRY(feed(d, i + 1, state->held.data, state->held.size, out, err));
  } else {
    for (size_t n = state->held.size; n > 0; n--) TRY(feed(d, i + 1, replacement_character, 3, out, err));
  }
  state->held.size = state->checked = 0;
  return STATUS_OK;
}

static Status byte_fallback(Decoding *d, size_t i, const char *token, size_t size, Buffer *out, Error *err) {
  DecodeState *state = &d->states[i];
  int byte = fallback_byte(token, size);
  if (byte < 0) {
    TRY(flush_bytes(d, i, out, err));
    state->invalid = false;
    return feed(d, i + 1, token, size, out, err);
  }
  const char c = (char)byte;
  TRY(buffer_append(&state->held, &c, 1, err));
  int length = 0;
  uint32_t code;
  while (!state->invalid && (length = utf8_decode(state->held.data + state->checked,
                                                  state->held.size - state->checked, &code)) > 0)
    state->checked += (size_t)length;
  state->invalid |= length < 0;
  return state->invalid ? flush_bytes(d, i, out, err) : STATUS_OK;
}

/* --- Strip */

static bool at_mark(const Step *step, const char *text, size_t size) {
  return size >= step->mark_size && memcmp(text, step->mark, step->mark_size) == 0;
}

static Status strip_token(Decoding *d, size_t i, const char *text, size_t size, Buffer *out, Error *err) {
  const Step *step = &d->decoder->steps[i];
  for (int64_t n = 0; n < step->start && at_mark(step, text, size); n++) {
    text += step->mark_size;
    size -= step->mark_size;
  }
  for (int64_t n = 0; n < step->stop && size >= step->mark_size &&
                      at_mark(step, text + size - step->mark_size, step->mark_size);
       n++)
    size -= step->mark_size;
  return feed(d, i + 1, text, size, out, err);
}

/* Strips the beginning of the text. Holds back the characters that will be stripped if the text ends here. */
static Status strip_part(Decoding *d, size_t i, const char *text, size_t size, Buffer *out, Error *err) {
  const Step *step = &d->decoder->steps[i];
  DecodeState *state = &d->states[i];
  while (state->stripped >= 0 && size > 0) {
    if (state->stripped == step->start || !at_mark(step, text, size)) {
      state->stripped = -1;
      break;
    }
    state->stripped++;
    text += step->mark_size;
    size -= step->mark_size;
  }
  if (step->stop == 0 || size == 0) return feed_part(d, i + 1, text, size, out, err);
  size_t marks = 0; /* bytes of marks at the end of the part */
  while (size - marks >= step->mark_size &&
         at_mark(step, text + size - marks - step->mark_size, step->mark_size))
    marks += step->mark_size;
  if (marks < size) { /* the held text is not at the end */
    TRY(feed_part(d, i + 1, state->held.data, state->held.size, out, err));
    state->held.size = 0;
    TRY(feed_part(d, i + 1, text, size - marks, out, err));
  }
  TRY(buffer_append(&state->held, text + size - marks, marks, err));
  size_t most =
      (size_t)step->stop > SIZE_MAX / step->mark_size ? SIZE_MAX : (size_t)step->stop * step->mark_size;
  if (state->held.size <= most) return STATUS_OK;
  size_t early = state->held.size - most;
  TRY(feed_part(d, i + 1, state->held.data, early, out, err));
  state->held.size = most; /* `held` holds only marks, so its beginning equals its end */
  return STATUS_OK;
}

/* --- any step */

/* Returns whether the step waits for the end of a joined text. */
static bool waits(const Step *step) {
  return step->fused && (step->kind == DECODE_BYTE_LEVEL || step->kind == DECODE_BYTE_FALLBACK ||
                         (step->kind == DECODE_REPLACE && step->pattern.regex));
}

static Status run_token(Decoding *d, size_t i, const char *text, size_t size, Buffer *out, Error *err) {
  Buffer *held = &d->states[i].held;
  switch ((DecodeKind)d->decoder->steps[i].kind) {
  case DECODE_BYTE_LEVEL:
    TRY(append_mapped(held, text, size, err));
    return feed_lossy(d, i + 1, held, false, out, err);
  case DECODE_METASPACE: return metaspace(d, i, text, size, out, err);
  case DECODE_REPLACE: return replace_token(d, i, text, size, out, err);
  case DECODE_BYTE_FALLBACK: return byte_fallback(d, i, text, size, out, err);
  case DECODE_FUSE: return feed_part(d, i + 1, text, size, out, err);
  case DECODE_STRIP: return strip_token(d, i, text, size, out, err);
  }
  return STATUS_OK;
}

static Status feed(Decoding *d, size_t i, const char *text, size_t size, Buffer *out, Error *err) {
  const Growth growth = growth_of(d->decoder->where.text, d->came);
  d->work += size + 1;
  if (d->work / (d->decoder->count + 1) > growth.limit) return growth_refused(growth, err);
  if (i == d->decoder->count) return buffer_append(out, text, size, err);
  const Step *step = &d->decoder->steps[i];
  if (waits(step)) return buffer_append(&d->states[i].held, text, size, err);
  if (step->fused && step->kind == DECODE_REPLACE) return replace_part(d, i, text, size, out, err);
  if (step->fused && step->kind == DECODE_STRIP) return strip_part(d, i, text, size, out, err);
  return run_token(d, i, text, size, out, err);
}

/* Passes on what step i still holds, once the previous step has ended. */
static Status finish(Decoding *d, size_t i, Buffer *out, Error *err) {
  const Step *step = &d->decoder->steps[i];
  Buffer *held = &d->states[i].held;
  if (waits(step) && held->size > 0) {
    OWNED(buffer_release) Buffer token = TAKE(*held);
    TRY(run_token(d, i, token.data, token.size, out, err));
  }
  switch (step->kind) {
  case DECODE_BYTE_LEVEL: return feed_lossy(d, i + 1, held, true, out, err);
  case DECODE_BYTE_FALLBACK: return flush_bytes(d, i, out, err);
  case DECODE_REPLACE: return feed_part(d, i + 1, held->data, held->size, out, err);
  default: return STATUS_OK; /* the text that Strip holds is stripped */
  }
}

Status decoding_push(Decoding *d, const char *token, size_t size, Buffer *out, Error *err) {
  if (d->decoder->absent && d->seen) TRY(buffer_append(out, " ", 1, err));
  d->seen = true;
  d->came += size + 1;
  return feed(d, 0, token, size, out, err);
}

Status decoding_end(Decoding *d, Buffer *out, Error *err) {
  for (size_t i = 0; i < d->decoder->count; i++) {
    TRY(finish(d, i, out, err));
    Buffer held = d->states[i].held;
    held.size = 0;
    d->states[i] = (DecodeState){.held = held};
  }
  d->seen = false;
  d->came = d->work = 0;
  d->regex.spent_ns = 0;
  return STATUS_OK;
}

void decoding_release(Decoding *d) {
  for (size_t i = 0; i < MAX_STEPS; i++) buffer_release(&d->states[i].held);
  regex_scratch_release(&d->regex);
}
