/* compose.c - Unicode's normal forms from utf8proc's data, as far as the reference knows them; see
 * compose.h.
 *
 * The reference (crate unicode-normalization-alignments) implements Unicode 9. unicode_normal lists the
 * characters of Unicode 9; every other character stays as it is and separates its neighbours, whatever
 * utf8proc says. About the listed characters all versions of Unicode agree (its stability policy).
 *
 * A text is copied except for its unsafe runs: characters that can change or make their neighbours change.
 * In NFC and NFKC the character before such a run belongs to the run, since the two can compose. */
#include "tokenizer/compose.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "tokenizer/stop.h"

static bool composes(const Step *step) {
  return step->kind == NORMAL_NFC || step->kind == NORMAL_NFKC;
}

Status form_load(const char *where, Step *step, Error *err) {
  static const uint32_t unsafe_bits[] = {NORMAL_NFC_UNSAFE, NORMAL_NFD_UNSAFE, NORMAL_NFKC_UNSAFE,
                                         NORMAL_NFKD_UNSAFE};
  const KindFlag flags[2] = {{unsafe_bits[step->kind - NORMAL_NFC], 1}, {NORMAL_KNOWN, NORMAL_KNOWN}};
  return kind_map_flags(where, &unicode_normal, flags, &step->map, step->role, err);
}

static uint8_t flags_of(const Step *step, uint32_t code) {
  return step->role[kind_of(&step->map, code)];
}

/* --- decomposing a run */

Status composed_push(NormalScratch *s, Composed character, Error *err) {
  return APPEND(s->run, s->n_run, s->capacity, "characters to compose", err, character);
}

static uint8_t combining_class(const Step *step, uint32_t code) {
  if (!(flags_of(step, code) & NORMAL_KNOWN)) return 0;
  return (uint8_t)utf8proc_get_property((utf8proc_int32_t)code)->combining_class;
}

static Status push_decomposed(const Step *step, NormalScratch *s, uint32_t code, Error *err) {
  if (!(flags_of(step, code) & NORMAL_KNOWN)) return composed_push(s, (Composed){code, 0, 0}, err);
  bool compatible = step->kind == NORMAL_NFKC || step->kind == NORMAL_NFKD;
  int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  utf8proc_int32_t parts[32]; /* the longest, U+FDFA, has 18 */
  int bound = 0;
  utf8proc_ssize_t n =
      utf8proc_decompose_char((utf8proc_int32_t)code, parts, 32, (utf8proc_option_t)options, &bound);
  if (n < 0 || n > 32) return composed_push(s, (Composed){code, 0, 0}, err);
  for (utf8proc_ssize_t i = 0; i < n; i++) {
    uint32_t part = (uint32_t)parts[i];
    TRY(composed_push(s, (Composed){part, combining_class(step, part), i > 0}, err));
  }
  return STATUS_OK;
}

/* Sorts the marks run[0 .. n) stably by class: by insertion for the few of real text, by counting for
 * hostile text. */
static Status sort_marks(Composed *run, size_t n, Error *err) {
  if (n <= 32) {
    for (size_t i = 1; i < n; i++) {
      Composed mark = run[i];
      size_t at = i;
      for (; at > 0 && run[at - 1].class > mark.class; at--) run[at] = run[at - 1];
      run[at] = mark;
    }
    return STATUS_OK;
  }
  size_t next[257] = {0}; /* where the next mark of each class goes */
  for (size_t i = 0; i < n; i++) next[run[i].class + 1]++;
  for (size_t c = 1; c < 257; c++) next[c] += next[c - 1];
  Composed *sorted;
  TRY(NEW(sorted, n, "characters to compose", err));
  for (size_t i = 0; i < n; i++) sorted[next[run[i].class]++] = run[i];
  memcpy(run, sorted, n * sizeof *run);
  free(sorted);
  return STATUS_OK;
}

static Status reorder(NormalScratch *s, Error *err) {
  for (size_t i = 0; i < s->n_run; i++) {
    size_t from = i;
    while (i < s->n_run && s->run[i].class != 0) i++;
    TRY(sort_marks(s->run + from, i - from, err));
  }
  return STATUS_OK;
}

/* --- composing a run */

/* Composes two characters to one; false if they do not compose. */
static bool compose_pair(const Step *step, uint32_t first, uint32_t second, uint32_t *composed) {
  if (!(flags_of(step, first) & NORMAL_KNOWN) || !(flags_of(step, second) & NORMAL_KNOWN)) return false;
  utf8proc_int32_t pair[3] = {(utf8proc_int32_t)first, (utf8proc_int32_t)second, 0};
  if (utf8proc_normalize_utf32(pair, 2, (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE)) != 1)
    return false;
  *composed = (uint32_t)pair[0];
  return true;
}

/* Unicode's canonical composition: a character composes with the last starter unless a mark of the same or a
 * higher class is between them. */
static void compose(const Step *step, NormalScratch *s) {
  size_t kept = 0, starter = SIZE_MAX;
  int last_class = -1; /* class of the last mark since the starter; -1: none */
  for (size_t i = 0; i < s->n_run; i++) {
    Composed c = s->run[i];
    uint32_t both;
    if (starter != SIZE_MAX && last_class < c.class &&
        compose_pair(step, s->run[starter].code, c.code, &both)) {
      s->run[starter].code = both;
      s->run[starter].change += c.change - 1;
      continue;
    }
    if (c.class == 0) {
      starter = kept;
      last_class = -1;
    } else {
      last_class = c.class;
    }
    s->run[kept++] = c;
  }
  s->n_run = kept;
}

Status composed_write(NormalScratch *s, const Traced *text, size_t start, size_t end, TracedBuffer *out,
                      Error *err) {
  size_t at = start, before = start; /* the next character of the text and the previous one */
  for (size_t i = 0; i < s->n_run; i++) {
    char bytes[4];
    int length = utf8_encode(s->run[i].code, bytes);
    bool added = s->run[i].change > 0 || at == end;
    TRY(traced_put(out, bytes, (size_t)length, text, added ? before : at, false, err));
    for (int32_t n = added ? 1 : s->run[i].change; n <= 0 && at < end; n++) {
      uint32_t code;
      before = at;
      at += (size_t)utf8_decode(text->text + at, end - at, &code);
    }
  }
  s->n_run = 0;
  return STATUS_OK;
}

/* --- whole texts */

/* The first unsafe character at or after `at`, or the size. */
static size_t next_unsafe(const Step *step, const Traced *text, size_t at) {
  const unsigned char *bytes = (const unsigned char *)text->text;
  /* Nothing below U+0300 is unsafe in NFC, and no ASCII character in the other forms. */
  unsigned char safe = step->kind == NORMAL_NFC ? 0xcc : 0x80;
  while (at < text->size) {
    if (bytes[at] < safe) {
      at++;
      continue;
    }
    uint32_t code;
    int length = utf8_decode(bytes + at, text->size - at, &code);
    if (flags_of(step, code) & 1) return at;
    at += (size_t)length;
  }
  return at;
}

Status form_apply(const Step *step, NormalScratch *scratch, const Traced *text, TracedBuffer *out,
                  bool *changed, Error *err) {
  size_t done = 0, unsafe = next_unsafe(step, text, 0);
  *changed = unsafe < text->size;
  if (!*changed) return STATUS_OK;
  while (unsafe < text->size) {
    size_t start = composes(step) && unsafe > done ? utf8_before(text->text, unsafe) : unsafe, at = start;
    TRY(traced_put(out, text->text + done, start - done, text, done, true, err));
    while (at < text->size) {
      uint32_t code;
      int length = utf8_decode(text->text + at, text->size - at, &code);
      if (at >= unsafe && !(flags_of(step, code) & 1)) break;
      TRY(stop_check(out->interrupted, err));
      TRY(push_decomposed(step, scratch, code, err));
      at += (size_t)length;
    }
    TRY(reorder(scratch, err));
    if (composes(step)) compose(step, scratch);
    TRY(composed_write(scratch, text, start, at, out, err));
    done = at;
    unsafe = next_unsafe(step, text, done);
  }
  return traced_put(out, text->text + done, text->size - done, text, done, true, err);
}
