/* lang_utf8.c - ranges of code points as languages of their UTF-8 bytes; see lang.h. */
#include <string.h>

#include "base/hash64.h"
#include "base/utf8.h"
#include "constrain/lang/lang.h"

/* The byte strings from first[0..n) to last[0..n): characters in UTF-8, or their last n bytes:
 *   first E0 A4 80, last E2 82 AC:   E0 (A4 80 .. BF BF) | E1 any any | E2 (80 80 .. 82 AC) */
static Lang between(Langs *langs, const unsigned char *first, const unsigned char *last, int n) {
  if (n == 1) return lang_bytes(langs, *first, *last);
  if (*first == *last)
    return lang_then(langs, lang_byte(langs, *first), between(langs, first + 1, last + 1, n - 1));
  static const unsigned char lowest[3] = {0x80, 0x80, 0x80}, highest[3] = {0xbf, 0xbf, 0xbf};
  const size_t rest = (size_t)n - 1;
  bool whole_first = memcmp(first + 1, lowest, rest) == 0, whole_last = memcmp(last + 1, highest, rest) == 0;
  Lang made = LANG_NONE;
  if (!whole_first)
    made = lang_then(langs, lang_byte(langs, *first), between(langs, first + 1, highest, n - 1));
  int from = *first + !whole_first, until = *last - !whole_last;
  if (from <= until) {
    Lang any = between(langs, lowest, highest, n - 1);
    made = lang_or(langs, made,
                   lang_then(langs, lang_bytes(langs, (unsigned char)from, (unsigned char)until), any));
  }
  if (!whole_last)
    made = lang_or(langs, made,
                   lang_then(langs, lang_byte(langs, *last), between(langs, lowest, last + 1, n - 1)));
  return made;
}

Lang lang_characters(Langs *langs, uint32_t first, uint32_t last) {
  static const uint32_t ends[] = {0x7f, 0x7ff, 0xd7ff, 0xdfff, 0xffff, 0x10ffff};
  Lang made = LANG_NONE;
  uint32_t begin = 0;
  for (size_t i = 0; i < sizeof ends / sizeof *ends; begin = ends[i++] + 1) {
    uint32_t low = first > begin ? first : begin, high = last < ends[i] ? last : ends[i];
    if (low > high || ends[i] == 0xdfff) continue;
    unsigned char a[4], b[4];
    int n = utf8_encode(low, a);
    utf8_encode(high, b);
    made = lang_or(langs, made, between(langs, a, b, n));
  }
  return lang_declare_text(langs, made);
}

/* A set of characters whose language is made. */
typedef struct {
  Lang lang;
  size_t count;
  CharRange ranges[]; /* [count] */
} KnownSet;

Lang lang_charset(Langs *langs, const CharSet *set) {
  const CharRange none = {0}, *ranges = set->count ? set->ranges : &none;
  const size_t size = set->count * sizeof *ranges, start = langs->n_stack;
  const uint64_t hash = hash64(ranges, size, 0);
  for (const KeyEntry *e = key_table_find(&langs->charsets, hash); e;
       e = key_table_next(&langs->charsets, e)) {
    const KnownSet *known = e->value.pointer;
    if (known->count == set->count && memcmp(known->ranges, ranges, size) == 0) return known->lang;
  }
  for (size_t i = 0; i < set->count; i++)
    lang_push(langs, lang_characters(langs, ranges[i].first, ranges[i].last));
  const Lang made = lang_declare_text(langs, lang_join_pushed(langs, start, lang_or_all));
  KnownSet *kept = arena_alloc(&langs->charset_ranges, 1, sizeof *kept + size, NULL);
  if (!kept) return made;
  *kept = (KnownSet){.lang = made, .count = set->count};
  memcpy(kept->ranges, ranges, size);
  key_table_add(&langs->charsets, (KeyEntry){hash, {kept}});
  return made;
}
