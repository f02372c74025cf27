/* compose.c - Unicode's normal forms by utf8proc's data, as far as the reference knows them; see compose.h.
 *
 * Called by: normalize.c. The reference (crate unicode-normalization-alignments) is of Unicode 9. What it knows is
 * in unicode_normal; every other character stays as it is and parts what is around it, whatever utf8proc says.
 * For those that it knows all versions of Unicode agree (its stability policy).
 *
 * A text is copied but for its unsafe runs: characters that can change or make their neighbours change. In the
 * composed forms the character before a run belongs to it, for the run may compose with it. */
#include "tokenizer/compose.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"

static bool composes(const NormalStep *step) {
  return step->kind == NORMAL_NFC || step->kind == NORMAL_NFKC;
}

Status form_load(const char *where, NormalStep *step, Error *err) {
  static const uint32_t unsafe_bits[] = {NORMAL_NFC_UNSAFE, NORMAL_NFD_UNSAFE, NORMAL_NFKC_UNSAFE,
                                         NORMAL_NFKD_UNSAFE};
  CharSet sets[2] = {{0}, {0}};
  KindSet members[2];
  Status status = charset_add_flags(&sets[0], &unicode_normal, unsafe_bits[step->kind - NORMAL_NFC], err);
  if (status == STATUS_OK) status = charset_add_flags(&sets[1], &unicode_normal, NORMAL_KNOWN, err);
  if (status == STATUS_OK) status = kind_map_build(where, sets, 2, &step->forms, members, err);
  if (status == STATUS_OK) {
    for (int k = 0; k < step->forms.n_kinds; k++)
      step->flags[k] = (uint8_t)((members[0].has[k] ? 1 : 0) | (members[1].has[k] ? NORMAL_KNOWN : 0));
  }
  charset_release(&sets[0]);
  charset_release(&sets[1]);
  return status;
}

static uint8_t flags_of(const NormalStep *step, uint32_t code) {
  return step->flags[kind_of(&step->forms, code)];
}

/* --- a run, decomposed */

static Status push_code(NormalScratch *s, uint32_t code, uint8_t class, uint32_t origin, Error *err) {
  if (s->n_codes == s->capacity) {
    size_t capacity[3] = {s->capacity, s->capacity, s->capacity}, need = s->n_codes + 1;
    void *codes = s->codes, *origins = s->codes_origin, *classes = s->classes;
    Status status = mem_grow(&codes, &capacity[0], need, sizeof *s->codes, "characters to compose", err);
    s->codes = codes;
    if (status == STATUS_OK)
      status = mem_grow(&origins, &capacity[1], need, sizeof *s->codes_origin, "characters to compose", err);
    s->codes_origin = origins;
    if (status == STATUS_OK) status = mem_grow(&classes, &capacity[2], need, 1, "characters to compose", err);
    s->classes = classes;
    if (status != STATUS_OK) return status;
    s->capacity = capacity[0];
  }
  s->codes[s->n_codes] = code;
  s->classes[s->n_codes] = class;
  s->codes_origin[s->n_codes++] = origin;
  return STATUS_OK;
}

static uint8_t combining_class(const NormalStep *step, uint32_t code) {
  if (!(flags_of(step, code) & NORMAL_KNOWN)) return 0;
  return (uint8_t)utf8proc_get_property((utf8proc_int32_t)code)->combining_class;
}

static Status push_decomposed(const NormalStep *step, NormalScratch *s, uint32_t code, uint32_t origin,
                              Error *err) {
  if (!(flags_of(step, code) & NORMAL_KNOWN)) return push_code(s, code, 0, origin, err);
  bool compatible = step->kind == NORMAL_NFKC || step->kind == NORMAL_NFKD;
  utf8proc_int32_t parts[32]; /* the longest, U+FDFA, has 18 */
  int bound = 0;
  utf8proc_ssize_t n = utf8proc_decompose_char(
      (utf8proc_int32_t)code, parts, 32,
      (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0)), &bound);
  if (n < 0 || n > 32) return push_code(s, code, 0, origin, err);
  for (utf8proc_ssize_t i = 0; i < n; i++)
    TRY(push_code(s, (uint32_t)parts[i], combining_class(step, (uint32_t)parts[i]), origin, err));
  return STATUS_OK;
}

/* Sorts marks codes[from .. to) by class, those of a class in the order they had: insertion for the few that there
 * are in real text, counting for what was made to be slow. Origins stay where they are, as in the reference. */
static Status sort_marks(NormalScratch *s, size_t from, size_t to, Error *err) {
  if (to - from <= 32) {
    for (size_t i = from + 1; i < to; i++) {
      uint32_t code = s->codes[i];
      uint8_t class = s->classes[i];
      size_t at = i;
      for (; at > from && s->classes[at - 1] > class; at--) {
        s->codes[at] = s->codes[at - 1];
        s->classes[at] = s->classes[at - 1];
      }
      s->codes[at] = code;
      s->classes[at] = class;
    }
    return STATUS_OK;
  }
  size_t begin[257] = {0};
  for (size_t i = from; i < to; i++) begin[s->classes[i] + 1]++;
  for (size_t c = 1; c < 257; c++) begin[c] += begin[c - 1];
  uint32_t *sorted = mem_alloc(to - from, sizeof *sorted, "characters to compose", err);
  if (!sorted) return STATUS_FAILED;
  size_t end[256];
  memcpy(end, begin, sizeof end);
  for (size_t i = from; i < to; i++) sorted[end[s->classes[i]]++] = s->codes[i];
  memcpy(s->codes + from, sorted, (to - from) * sizeof *sorted);
  for (size_t c = 0; c < 256; c++) memset(s->classes + from + begin[c], (int)c, begin[c + 1] - begin[c]);
  free(sorted);
  return STATUS_OK;
}

static Status reorder(NormalScratch *s, Error *err) {
  for (size_t i = 0; i < s->n_codes;) {
    size_t from = i;
    while (i < s->n_codes && s->classes[i] != 0) i++;
    if (i - from > 1) TRY(sort_marks(s, from, i, err));
    if (i < s->n_codes) i++;
  }
  return STATUS_OK;
}

/* Composes codes[from ..) and writes the run. */
static Status write_run(const NormalStep *step, NormalScratch *s, size_t from, const Traced *text,
                        TracedBuffer *out, Error *err) {
  size_t n = s->n_codes;
  if (composes(step) && n - from > 1) {
    utf8proc_ssize_t kept =
        utf8proc_normalize_utf32((utf8proc_int32_t *)s->codes + from, (utf8proc_ssize_t)(n - from),
                                 (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (kept < 0) return error_set(err, STATUS_FAILED, "cannot compose text: %s", utf8proc_errmsg(kept));
    n = from + (size_t)kept;
  }
  size_t lost = s->n_codes - n; /* what composed is taken to have been at the front */
  for (size_t i = 0; i < n; i++) {
    char bytes[4];
    int length = utf8_encode(s->codes[i], bytes);
    size_t at = s->codes_origin[i <= from ? i : i + lost];
    TRY(traced_put(out, bytes, (size_t)length, text, at, false, err));
  }
  s->n_codes = 0;
  return STATUS_OK;
}

/* --- whole texts */

/* The first unsafe character at or behind `at`, or the size. */
static size_t next_unsafe(const NormalStep *step, const Traced *text, size_t at) {
  const unsigned char *bytes = (const unsigned char *)text->text;
  /* Nothing below U+0300 is unsafe in NFC, nothing of ASCII in the others. */
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

/* Where the character before `at` begins. PRECOND at > 0 */
static size_t character_before(const char *text, size_t at) {
  do at--;
  while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80);
  return at;
}

Status form_apply(const NormalStep *step, NormalScratch *scratch, const Traced *text, TracedBuffer *out,
                  bool *changed, Error *err) {
  size_t done = 0, unsafe = next_unsafe(step, text, 0);
  *changed = unsafe < text->size;
  if (!*changed) return STATUS_OK;
  while (unsafe < text->size) {
    size_t at = composes(step) && unsafe > done ? character_before(text->text, unsafe) : unsafe, alone = 0;
    TRY(traced_put(out, text->text + done, at - done, text, done, true, err));
    bool inside = true; /* the character before the run was taken, or what we are at is unsafe */
    for (bool first = true; at < text->size; first = false) {
      uint32_t code;
      int length = utf8_decode(text->text + at, text->size - at, &code);
      uint8_t flags = flags_of(step, code);
      inside = (flags & 1) || (first && at < unsafe);
      if (!inside) break;
      if (first && at < unsafe && !(flags & NORMAL_KNOWN)) alone = 1; /* nothing composes with it */
      TRY(push_decomposed(step, scratch, code, (uint32_t)at, err));
      at += (size_t)length;
    }
    TRY(reorder(scratch, err));
    TRY(write_run(step, scratch, alone, text, out, err));
    done = at;
    unsafe = next_unsafe(step, text, done);
  }
  return traced_put(out, text->text + done, text->size - done, text, done, true, err);
}
