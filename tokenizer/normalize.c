/* normalize.c - runs a text through its normalizers; see normalize.h.
 *
 * Always true: a step reads one of the scratch's two buffers (or the caller's text) and writes the other
 * one. Strip writes nothing, nor do NFC, NFD, NFKC and NFKD for a text in which no character can change. */
#include "tokenizer/normalize.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/compose.h"
#include "tokenizer/stop.h"

/* --- traced text */

Status traced_put(TracedBuffer *out, const char *bytes, size_t size, const Traced *from, size_t origin_at,
                  bool each, Error *err) {
  if (size == 0) return STATUS_OK;
  TRY(stop_check(out->interrupted, err));
  if (size > UINT32_MAX - out->text.size) return error_set(err, STATUS_USAGE, "a text grows beyond 4 GiB");
  if (size > out->growth.limit - out->text.size) return growth_refused(out->growth, err);
  if (from->origin) {
    TRY(mem_grow(&out->origin, &out->capacity, out->text.size + size, sizeof *out->origin, "a text's origin",
                 err));
    uint32_t *at = out->origin + out->text.size;
    if (each) {
      memcpy(at, from->origin + origin_at, size * sizeof *at);
    } else {
      for (size_t i = 0; i < size; i++) at[i] = from->origin[origin_at];
    }
  }
  return buffer_append(&out->text, bytes, size, err);
}

void traced_clear(TracedBuffer *buffer, const char *where, size_t size, const volatile int *interrupted) {
  buffer->text.size = 0;
  buffer->growth = growth_of(where, size);
  buffer->interrupted = interrupted;
}

void traced_release(TracedBuffer *buffer) {
  buffer_release(&buffer->text);
  free(buffer->origin);
  *buffer = (TracedBuffer){0};
}

void normal_scratch_release(NormalScratch *scratch) {
  traced_release(&scratch->buffers[0]);
  traced_release(&scratch->buffers[1]);
  free(scratch->run);
  *scratch = (NormalScratch){0};
}

/* --- steps */

static Status lowercase(const Traced *text, TracedBuffer *out, Error *err) {
  for (size_t at = 0; at < text->size;) {
    uint32_t code;
    int length = utf8_decode(text->text + at, text->size - at, &code);
    char bytes[4];
    int n = utf8_encode(code == 0x130 ? 'i' : unicode_case(&unicode_lower, code), bytes);
    TRY(traced_put(out, bytes, (size_t)n, text, at, false, err));
    if (code == 0x130) TRY(traced_put(out, "\xcc\x87", 2, text, at, false, err)); /* U+0307 */
    at += (size_t)length;
  }
  return STATUS_OK;
}

static Status replace(const Step *step, RegexScratch *regex, const Traced *text, TracedBuffer *out,
                      Error *err) {
  if (!text->origin)
    return pattern_replace(&step->pattern, regex, text->text, text->size, step->content, step->content_size,
                           out->growth, &out->text, err);
  OWNED(byte_span_list_release) ByteSpanList spans = {0};
  TRY(pattern_spans(&step->pattern, regex, text->text, text->size, 0, &spans, err));
  for (size_t i = 0; i < spans.count; i++) {
    ByteSpan s = spans.items[i];
    /* New characters get the origin of the last character that they replace, as in the reference. */
    TRY(s.match ? traced_put(out, step->content, step->content_size, text, s.end - 1u, false, err)
                : traced_put(out, text->text + s.start, s.end - s.start, text, s.start, true, err));
  }
  return STATUS_OK;
}

static bool is_space(uint32_t code) {
  return unicode_value(&unicode_flags, code) & CHAR_SPACE;
}

static void strip(const Step *step, Traced *text) {
  while (step->left && text->size > 0) {
    uint32_t code;
    int length = utf8_decode(text->text, text->size, &code);
    if (!is_space(code)) break;
    text->text += length;
    text->size -= (size_t)length;
    if (text->origin) text->origin += length;
  }
  while (step->right && text->size > 0) {
    size_t at = utf8_before(text->text, text->size);
    uint32_t code;
    utf8_decode(text->text + at, text->size - at, &code);
    if (!is_space(code)) break;
    text->size = at;
  }
}

static Status run_step(const Step *step, NormalScratch *scratch, RegexScratch *regex, const Traced *text,
                       TracedBuffer *out, bool *changed, Error *err) {
  *changed = true;
  switch ((NormalKind)step->kind) {
  case NORMAL_NFC:
  case NORMAL_NFD:
  case NORMAL_NFKC:
  case NORMAL_NFKD: return form_apply(step, scratch, text, out, changed, err);
  case NORMAL_LOWERCASE: return lowercase(text, out, err);
  case NORMAL_PREPEND:
    if (text->size == 0) break;
    TRY(traced_put(out, step->content, step->content_size, text, 0, false, err));
    return traced_put(out, text->text, text->size, text, 0, true, err);
  case NORMAL_REPLACE: return replace(step, regex, text, out, err);
  case NORMAL_CHARSMAP: return charsmap_apply(step, scratch, text, out, err);
  case NORMAL_STRIP: break; /* needs no buffer */
  }
  return STATUS_OK;
}

Status normalize(const Steps *normalizer, NormalScratch *scratch, RegexScratch *regex, Traced *text,
                 Error *err) {
  size_t which = 0, size = text->size;
  for (size_t i = 0; i < normalizer->count; i++) {
    const Step *step = &normalizer->steps[i];
    if (step->kind == NORMAL_STRIP) {
      strip(step, text);
      continue;
    }
    TracedBuffer *out = &scratch->buffers[which];
    bool changed;
    traced_clear(out, normalizer->where.text, size, regex->interrupted);
    TRY(run_step(step, scratch, regex, text, out, &changed, err));
    if (!changed) continue;
    *text = (Traced){out->text.data ? out->text.data : "", out->text.size, text->origin ? out->origin : NULL};
    which ^= 1;
  }
  return STATUS_OK;
}
