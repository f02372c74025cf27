/* charsmap.c - replaces characters as a table in the file says; see compose.h.
 *
 * Called by: normalize.c, load/load_normalizer.c. SentencePiece makes the table: a trie of the strings to be
 * replaced (a double array of darts-clone), and their replacements.
 *
 *   bytes of the trie (4, little endian) | its units, 4 bytes each | texts, each followed by a NUL
 *
 * A unit has its label in bits 0-7 and 31, and an offset in bits 10-30, times 256 if bit 9 is set. The child
 * by byte c of the node at `at` is at (at ^ offset ^ c), if its label is c. If bit 8 is set, a string ends at
 * the node: bits 0-30 of the unit at (at ^ offset) say where its replacement begins.
 *
 * As in the reference (crate spm_precompiled) a grapheme of less than 6 bytes is replaced as a whole, by the
 * replacement of the SHORTEST string that begins it. Without such a string, and in longer graphemes, each
 * character is looked up by itself. Letters of Hangul, the two letters of a flag and Indic conjuncts are not
 * joined here. That makes no difference: a joined grapheme would have 6 bytes or more, so its characters
 * would be looked up one by one, and the usual table (nmt_nfkc) replaces none of them. */
#include "tokenizer/compose.h"

#include <string.h>

#include "base/utf8.h"
#include "tokenizer/stop.h"

enum { GRAPHEME_BYTES = 6 }; /* graphemes of at least this size are looked up character by character */

/* --- loading */

static int base64_digit(char c) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const char *at = c ? strchr(digits, c) : NULL;
  return at ? (int)(at - digits) : -1;
}

/* Decodes base64 text[0 .. size); '=' at the end may be missing. */
static Status decode(const char *where, const char *text, size_t size, Buffer *out, Error *err) {
  uint32_t bits = 0;
  int n_bits = 0;
  for (int i = 0; i < 2 && size > 0 && text[size - 1] == '='; i++) size--;
  for (size_t i = 0; i < size; i++) {
    const int digit = base64_digit(text[i]);
    if (digit < 0)
      return error_set(err, STATUS_MODEL, "%s: precompiled_charsmap is no base64 at character %zu", where, i);
    bits = bits << 6 | (uint32_t)digit;
    n_bits += 6;
    if (n_bits < 8) continue;
    n_bits -= 8;
    const char byte = (char)(bits >> n_bits);
    TRY(buffer_append(out, &byte, 1, err));
  }
  if (n_bits < 6 && (bits & ((1u << n_bits) - 1)) == 0) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "%s: precompiled_charsmap ends within a byte", where);
}

static uint32_t unit(const Step *step, size_t i) {
  const unsigned char *at = (const unsigned char *)step->content + i * 4;
  return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

Status charsmap_load(const char *where, const char *base64, size_t size, Step *step, Error *err) {
  Buffer map = {0};
  Status status = decode(where, base64, size, &map, err);
  step->content = map.data;
  step->content_size = map.size;
  if (status != STATUS_OK) return status;
  const uint32_t bytes = map.size >= 4 ? unit(step, 0) : 0;
  if (bytes == 0 || bytes % 4 != 0 || bytes > map.size - 4)
    return error_set(err, STATUS_MODEL, "%s: precompiled_charsmap has %zu bytes, its trie %lu", where,
                     map.size, (unsigned long)bytes);
  step->n_units = bytes / 4;
  const size_t texts = map.size - 4 - bytes;
  if (utf8_valid_prefix(map.data + 4 + bytes, texts) == texts) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "%s: precompiled_charsmap has texts that are not UTF-8", where);
}

/* --- looking up */

/* Reads unit i of the trie, which begins at byte 4 of the table. False beyond the last unit. */
static bool trie_unit(const Step *step, size_t i, uint32_t *out) {
  if (i >= step->n_units) return false;
  *out = unit(step, i + 1);
  return true;
}

static size_t offset_of(uint32_t unit) {
  return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

/* The replacement of the shortest string that begins text[0 .. size), or NULL. */
static Status find(const Step *step, const char *where, const char *text, size_t size, const char **found,
                   size_t *n, Error *err) {
  uint32_t node = 0;
  *found = NULL;
  bool good = trie_unit(step, 0, &node);
  size_t at = offset_of(node);
  for (size_t i = 0; i < size && text[i] && good; i++) {
    const uint8_t byte = (uint8_t)text[i];
    at ^= byte;
    good = trie_unit(step, at, &node);
    if (good && (node & (1u << 31 | 0xff)) != byte) return STATUS_OK;
    at ^= good ? offset_of(node) : 0;
    if (!good || !(node & 1u << 8)) continue;
    const char *texts = step->content + 4 + step->n_units * 4;
    const size_t texts_size = step->content_size - 4 - step->n_units * 4;
    good = trie_unit(step, at, &node);
    const size_t from = node & ~(1u << 31);
    good = good && from <= texts_size && (from == texts_size || ((unsigned char)texts[from] & 0xc0) != 0x80);
    if (!good) break;
    *found = texts + from;
    *n = strnlen(*found, texts_size - from);
    return STATUS_OK;
  }
  return good ? STATUS_OK
              : error_set(err, STATUS_MODEL, "%s: precompiled_charsmap leads out of its bytes", where);
}

static uint32_t grapheme_flags(uint32_t code) {
  return code >= ' ' && code < 0x7f ? 0 : unicode_value(&unicode_graphemes, code);
}

/* Where the grapheme that begins at `at` ends. */
static size_t grapheme_end(const Traced *text, size_t at) {
  uint32_t before, code;
  size_t end = at + (size_t)utf8_decode(text->text + at, text->size - at, &before);
  uint32_t flags = grapheme_flags(before), next;
  /* picture: a pictograph is before `end`; linked: a pictograph and then U+200D. */
  bool picture = flags & GRAPHEME_PICTURE, linked = false;
  for (; end < text->size; before = code, flags = next) {
    const size_t n = (size_t)utf8_decode(text->text + end, text->size - end, &code);
    next = grapheme_flags(code);
    bool joined = next & GRAPHEME_JOINS || flags & GRAPHEME_PREPENDED || (linked && next & GRAPHEME_PICTURE);
    if ((flags | next) & GRAPHEME_BREAKS) joined = before == '\r' && code == '\n';
    if (!joined) break;
    linked = picture && code == 0x200d;
    picture = next & GRAPHEME_PICTURE || (picture && !linked && !(next & GRAPHEME_SPACING));
    end += n;
  }
  return end;
}

/* --- replacing */

static size_t n_characters(const char *text, size_t size) {
  size_t n = 0;
  for (size_t i = 0; i < size; i++) n += ((unsigned char)text[i] & 0xc0) != 0x80;
  return n;
}

/* Appends text[0 .. size) in place of n_old characters. As in the reference, new characters beyond n_old
 * count as added. If there are fewer new characters, the run's last character also replaces the remaining old
 * ones. */
static Status put(NormalScratch *s, size_t n_old, const char *text, size_t size, Growth growth, Error *err) {
  if (size > growth.limit - s->n_run) return growth_refused(growth, err); /* refused before it is in memory */
  const size_t n_new = n_characters(text, size);
  size_t i = 0;
  for (size_t at = 0; at < size; i++) {
    uint32_t code;
    at += (size_t)utf8_decode(text + at, size - at, &code);
    TRY(composed_push(s, (Composed){code, 0, i >= n_old}, err));
  }
  if (n_new < n_old && s->n_run > 0) s->run[s->n_run - 1].change -= (int32_t)(n_old - n_new);
  return STATUS_OK;
}

Status charsmap_apply(const Step *step, NormalScratch *s, const Traced *text, TracedBuffer *out, Error *err) {
  s->n_run = 0;
  for (size_t at = 0, end; at < text->size; at = end) {
    const char *from = text->text + at, *found = NULL;
    size_t n = 0;
    end = grapheme_end(text, at);
    TRY(stop_check(out->interrupted, err));
    if (end - at < GRAPHEME_BYTES) TRY(find(step, out->growth.where, from, end - at, &found, &n, err));
    if (found) {
      TRY(put(s, n_characters(from, end - at), found, n, out->growth, err));
      continue;
    }
    for (size_t i = 0, length; i < end - at; i += length) {
      uint32_t code;
      length = (size_t)utf8_decode(from + i, end - at - i, &code);
      TRY(find(step, out->growth.where, from + i, length, &found, &n, err));
      TRY(put(s, 1, found ? found : from + i, found ? n : length, out->growth, err));
    }
  }
  return composed_write(s, text, 0, text->size, out, err);
}
