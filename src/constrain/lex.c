/* lex.c - makes and derives the states of lex.h. */
#include "constrain/lex.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash64.h"
#include "base/utf8.h"
#include "constrain/lang/byte_classes.h"
#include "constrain/masks/vocabulary.h"
#include "tokenizer/unicode/unicode.h"

static const Lang *langs_of(const Machine *m, const Lex *lex) {
  return m->lex_langs + lex->langs;
}

static uint64_t hash_of(const Machine *m, const Lex *lex) {
  return hash64(langs_of(m, lex), lex->n * sizeof(Lang),
                (uint64_t)lex->left << 32 ^
                    ((uint64_t)lex->code << 8 | (uint64_t)lex->escape << 1 | lex->number));
}

static bool equal(const Machine *m, const Lex *x, const Lex *y) {
  return x->number == y->number && x->escape == y->escape && x->code == y->code && x->n == y->n &&
         x->left == y->left && memcmp(langs_of(m, x), langs_of(m, y), x->n * sizeof(Lang)) == 0;
}

static uint32_t find(Machine *m, Lex lex) {
  const uint64_t hash = hash_of(m, &lex);
  const KeyTable *known = &m->lexes_by_content;
  for (const KeyEntry *e = key_table_find(known, hash); e; e = key_table_next(known, e))
    if (equal(m, &m->lexes[e->value.number], &lex)) return e->value.number;
  if (!failure_grow(&m->failure, &m->lexes, &m->lexes_capacity, m->n_lexes + 2, sizeof lex)) return LEX_NONE;
  if (m->n_lexes == 0) m->lexes[m->n_lexes++] = (Lex){.n = 0};
  return key_table_append(&m->lexes_by_content, hash, &m->lexes, &m->n_lexes, &m->lexes_capacity, &lex,
                          sizeof lex, &m->failure);
}

/* find() for languages at the end of lex_langs; they stay only if the state is new. */
static uint32_t find_with_langs(Machine *m, Lex lex) {
  uint32_t found = find(m, lex);
  if (found == LEX_NONE || m->lexes[found].langs != lex.langs) m->lex_langs_count = lex.langs;
  return found;
}

uint32_t lex_begin(Machine *m, bool number, const Lang *langs, uint32_t n) {
  Lex lex = {.number = number, .langs = (uint32_t)m->lex_langs_count, .n = n, .left = LANG_NO_END};
  const Lang allowed = number ? langs[0] : lang_without_max(&m->set->langs, langs[0], &lex.left);
  if (!lang_ends_within(&m->set->langs, allowed, lex.left)) return LEX_NONE;
  if (mem_grow(&m->lex_langs, &m->lex_langs_capacity, m->lex_langs_count + n, sizeof(Lang), "a constraint",
               NULL))
    return machine_fail(m, "out of memory"), LEX_NONE;
  memcpy(m->lex_langs + m->lex_langs_count, langs, n * sizeof(Lang));
  m->lex_langs[lex.langs] = allowed;
  m->lex_langs_count += n;
  return find_with_langs(m, lex);
}

uint32_t lex_forget(Machine *m, uint32_t kept) {
  Lex lex = m->lexes[kept];
  Lang *langs = malloc(lex.n * sizeof *langs);
  if (!langs) return machine_fail(m, "out of memory"), LEX_NONE;
  memcpy(langs, langs_of(m, &lex), lex.n * sizeof *langs);
  for (size_t i = 0; i < m->n_lexes; i++) free(m->lexes[i].next);
  key_table_reset(&m->lexes_by_content);
  m->n_lexes = 0;
  memcpy(m->lex_langs, langs, lex.n * sizeof *langs);
  free(langs);
  m->lex_langs_count = lex.n;
  m->lex_generation++;
  lex.langs = 0;
  lex.next = NULL;
  lex.classed = false;
  return find(m, lex);
}

/* The state after bytes of the decoded text, which step all languages. LEX_NONE: the bytes are refused. */
static uint32_t step(Machine *m, uint32_t index, const void *bytes, size_t size) {
  Lex lex = m->lexes[index];
  const uint32_t from = lex.langs;
  lex.langs = (uint32_t)m->lex_langs_count;
  lex.escape = 0;
  lex.code = 0;
  lex.next = NULL;
  lex.classed = false;
  if (mem_grow(&m->lex_langs, &m->lex_langs_capacity, m->lex_langs_count + lex.n, sizeof(Lang),
               "a constraint", NULL))
    return machine_fail(m, "out of memory"), LEX_NONE;
  for (size_t j = 0; j < size && lex.left != LANG_NO_END && !lex.number; j++) {
    if ((((const unsigned char *)bytes)[j] & 0xc0) == 0x80) continue;
    if (lex.left-- == 0) return LEX_NONE;
  }
  for (uint32_t i = 0; i < lex.n; i++) {
    Lang lang = m->lex_langs[from + i];
    for (size_t j = 0; j < size && lang != LANG_NONE; j++)
      lang = lang_next(&m->set->langs, lang, ((const unsigned char *)bytes)[j]);
    m->lex_langs[lex.langs + i] = lang;
    if (i == 0 && !lang_ends_within(&m->set->langs, lang, lex.left)) return LEX_NONE;
  }
  m->lex_langs_count += lex.n;
  return find_with_langs(m, lex);
}

/* True if a string of `a` begins with a character first..last and then has at most `left` characters. The
 * character's UTF-8 is `prefix` | its high bits, then n_more continuation bytes. */
static bool takes_sequence(Machine *m, Lang a, uint32_t left, unsigned prefix, uint32_t first, uint32_t last,
                           int n_more) {
  Langs *l = &m->set->langs;
  const uint32_t low = (1u << 6 * n_more) - 1;
  Lang before = LANG_NONE;
  bool before_whole = false;
  for (uint32_t high = first >> 6 * n_more; high <= last >> 6 * n_more; high++) {
    const Lang next = lang_next(l, a, (unsigned char)(prefix | high));
    const uint32_t from = high == first >> 6 * n_more ? first & low : 0;
    const uint32_t to = high == last >> 6 * n_more ? last & low : low;
    const bool whole = from == 0 && to == low;
    if (next == LANG_NONE || (next == before && before_whole)) continue;
    before = next, before_whole = whole;
    if (n_more == 0 ? lang_ends_within(&m->set->langs, next, left)
                    : takes_sequence(m, next, left, 0x80, from, to, n_more - 1))
      return true;
  }
  return false;
}

/* True if some character first..last may follow; surrogates are no characters. */
static bool takes_characters(Machine *m, uint32_t index, uint32_t first, uint32_t last) {
  const Lang a = langs_of(m, &m->lexes[index])[0];
  uint32_t left = m->lexes[index].left;
  if (left == 0) return false;
  if (left != LANG_NO_END) left--;
  static const uint32_t ends[] = {0x7f, 0x7ff, 0xffff, 0x10ffff};
  static const unsigned prefixes[] = {0, 0xc0, 0xe0, 0xf0};
  for (int i = 0; i < 4; i++) {
    const uint32_t least = i == 0 ? 0 : ends[i - 1] + 1;
    const uint32_t from = first > least ? first : least, to = last < ends[i] ? last : ends[i];
    if (from <= to && takes_sequence(m, a, left, prefixes[i], from, to, i)) return true;
  }
  return false;
}

/* True if a \uXXXX from first to last may follow; a high surrogate begins any of 1,024 characters. */
static bool takes_range(Machine *m, uint32_t index, uint32_t first, uint32_t last) {
  const Lang allowed = langs_of(m, &m->lexes[index])[0];
  if (allowed == lang_any_text(&m->set->langs))
    return m->lexes[index].left > 0 && !(first >= 0xdc00 && last <= 0xdfff);
  if (takes_characters(m, index, first, last)) return true;
  if (first < 0xd800) first = 0xd800;
  if (last > 0xdbff) last = 0xdbff;
  return first <= last && takes_characters(m, index, 0x10000 + ((first - 0xd800) << 10),
                                           0x10000 + ((last - 0xd800) << 10) + 0x3ff);
}

static uint32_t escaped(Machine *m, uint32_t index, uint8_t escape, uint32_t code) {
  Lex lex = m->lexes[index];
  lex.escape = escape;
  lex.code = code;
  lex.next = NULL;
  lex.classed = false;
  return find(m, lex);
}

/* The state after a digit of \uXXXX; `escape`, 2..5, says which of its digits. */
static uint32_t hex_next(Machine *m, uint32_t index, unsigned char byte) {
  const Lex lex = m->lexes[index];
  const int digit = digit_value((char)byte);
  if (digit > 15) return LEX_NONE;
  const uint32_t code = lex.code << 4 | (uint32_t)digit;
  const int missing = 4 * (5 - lex.escape);
  if (!takes_range(m, index, code << missing, (code << missing) + (1u << missing) - 1)) return LEX_NONE;
  if (lex.escape < 5) return escaped(m, index, (uint8_t)(lex.escape + 1), code);
  if (code >= 0xd800 && code <= 0xdbff) return escaped(m, index, 6, code - 0xd800);
  unsigned char bytes[4];
  int size = utf8_encode(code, bytes);
  return step(m, index, bytes, (size_t)size);
}

/* The state after a digit of the low surrogate. `code`: ten bits of the high one, then the digits. */
static uint32_t low_next(Machine *m, uint32_t index, unsigned char byte) {
  const Lex lex = m->lexes[index];
  const int digit = digit_value((char)byte);
  if (digit > 15 || (lex.escape == 8 && digit != 13) || (lex.escape == 9 && digit < 12)) return LEX_NONE;
  const uint32_t value = lex.escape == 8 ? 0 : lex.escape == 9 ? (uint32_t)digit - 12 : (uint32_t)digit;
  const uint32_t code = lex.escape == 8 ? lex.code : lex.code << (lex.escape == 9 ? 2 : 4) | value;
  const int missing = lex.escape == 8 ? 10 : 4 * (11 - lex.escape);
  const uint32_t first = 0x10000 + (code << missing);
  if (!takes_characters(m, index, first, first + (1u << missing) - 1)) return LEX_NONE;
  if (lex.escape < 11) return escaped(m, index, (uint8_t)(lex.escape + 1), code);
  unsigned char bytes[4];
  int size = utf8_encode(0x10000 + code, bytes);
  return step(m, index, bytes, (size_t)size);
}

static uint32_t string_next(Machine *m, uint32_t index, unsigned char byte) {
  static const char escapes[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
  const uint8_t escape = m->lexes[index].escape;
  if (escape == 0) {
    /* Only '\\' comes here: lex_next() takes the other bytes. */
    return byte == '\\' && takes_range(m, index, 0, 0xffff) ? escaped(m, index, 1, 0) : LEX_NONE;
  }
  if (escape == 1) {
    if (byte == 'u') return escaped(m, index, 2, 0);
    for (size_t i = 0; escapes[i]; i += 2)
      if ((unsigned char)escapes[i] == byte) return step(m, index, &escapes[i + 1], 1);
    return LEX_NONE;
  }
  if (escape <= 5) return hex_next(m, index, byte);
  if (escape == 6) return byte == '\\' ? escaped(m, index, 7, m->lexes[index].code) : LEX_NONE;
  if (escape == 7) return byte == 'u' ? escaped(m, index, 8, m->lexes[index].code) : LEX_NONE;
  return low_next(m, index, byte);
}

/* Makes a row that is LANG_UNKNOWN everywhere. For a string outside of escapes, control characters and the
 * quote are LEX_NONE. False on failure. */
static bool make_row(Machine *m, uint32_t index) {
  const bool plain = !m->lexes[index].number && m->lexes[index].escape == 0;
  uint32_t *next = malloc(256 * sizeof *next);
  if (!next) return machine_fail(m, "out of memory"), false;
  memset(next, 0xff, 256 * sizeof *next);
  for (int byte = 0; byte < 0x20 && plain; byte++) next[byte] = LEX_NONE;
  if (plain) next['"'] = LEX_NONE;
  m->lexes[index].next = next;
  return true;
}

/* Fills the row for a byte outside of escapes. If the state has one language, also fills it for all bytes
 * known to lead to the same state. */
static uint32_t fill_cell(Machine *m, uint32_t index, unsigned char byte) {
  const uint32_t made = step(m, index, &byte, 1);
  const Lex *lex = &m->lexes[index];
  uint32_t *next = lex->next;
  next[byte] = made;
  if (lex->n > 1) return made;
  const ByteClasses *classes = &m->set->langs.classes;
  uint32_t *after = m->set->langs.nodes[langs_of(m, lex)[0]].next;
  const uint32_t kept = next['\\'];
  const uint32_t like = after ? *byte_row_entry(classes, after, byte) : LANG_UNKNOWN;
  bool same[256] = {false};
  for (uint32_t class = 0; class < classes->n && like != LANG_UNKNOWN; class ++)
    same[class] = *byte_row_class(classes, after, class) == like;
  const bool middle = (byte & 0xc0) == 0x80; /* continuation bytes do not count as characters */
  const int first = middle ? 0x80 : 0, last = middle ? 0xc0 : 256;
  for (int i = first; i < last && like != LANG_UNKNOWN; i++)
    if (same[classes->of[i]] && (middle || (i & 0xc0) != 0x80)) next[i] = made;
  if (lex->number) return made;
  memset(next, 0, 0x20 * sizeof *next);
  next['"'] = LEX_NONE;
  next['\\'] = kept;
  return made;
}

uint32_t lex_next(Machine *m, uint32_t index, unsigned char byte) {
  Lex *lex = &m->lexes[index];
  if (!lex->next && !make_row(m, index)) return LEX_NONE;
  lex = &m->lexes[index];
  if (lex->next[byte] != LANG_UNKNOWN) return lex->next[byte];
  if (lex->number || (lex->escape == 0 && byte != '\\')) return fill_cell(m, index, byte);
  uint32_t made = string_next(m, index, byte);
  m->lexes[index].next[byte] = made;
  return made;
}

uint32_t lex_with_left(Machine *m, uint32_t index, uint32_t left) {
  Lex lex = m->lexes[index];
  if (lex.n == 1 && lex.left == left) return index;
  lex.n = 1;
  lex.left = left;
  lex.next = NULL;
  lex.classed = false;
  return find(m, lex);
}

uint32_t lex_alone(Machine *m, uint32_t index) {
  return lex_with_left(m, index, LANG_NO_END);
}

uint32_t lex_relaxed(Machine *m, uint32_t index) {
  const Lang relaxed = lang_relaxed(&m->set->langs, langs_of(m, &m->lexes[index])[0]);
  if (relaxed == langs_of(m, &m->lexes[index])[0]) return index;
  return lex_begin(m, false, &relaxed, 1);
}

bool lex_takes_plainly(Machine *m, uint32_t index, const char *bytes, size_t size, uint32_t left) {
  Langs *l = &m->set->langs;
  Lang lang = langs_of(m, &m->lexes[index])[0];
  for (size_t i = 0; i < size && lang != LANG_NONE; i++) {
    const unsigned char byte = (unsigned char)bytes[i];
    if (left != LANG_NO_END && (byte & 0xc0) != 0x80 && left-- == 0) return false;
    lang = lang_next(l, lang, byte);
  }
  return lang_ends_within(&m->set->langs, lang, left);
}

bool lex_ends_within(Machine *m, uint32_t index, uint32_t left) {
  return lang_ends_within(&m->set->langs, langs_of(m, &m->lexes[index])[0], left);
}

uint32_t lex_shortest(Machine *m, uint32_t index) {
  return lang_shortest(&m->set->langs, langs_of(m, &m->lexes[index])[0]);
}

/* --- classes of characters */

/* Finds what follows characters above U+007F, class by class. */
static void find_wide(Machine *m, uint32_t index) {
  static const char *const characters[] = {"\u00e9", "\u00a9", "\u1000", "\u20ac", "\u3042", "\uff00"};
  Langs *l = &m->set->langs;
  for (int class = 0; class < N_WIDE; class ++) {
    const uint64_t bit = CLASS_BIT(CLASS_WIDE + class);
    bool same = true;
    for (uint32_t i = 0; i < m->lexes[index].n && same; i++) {
      const Lang next = lang_next_class(l, langs_of(m, &m->lexes[index])[i], (WideClass) class);
      same = next != LANG_UNKNOWN;
      if (i == 0 && next == LANG_NONE) break;
      if (i == 0) m->lexes[index].any |= bit;
    }
    if (!same || !(m->lexes[index].any & bit)) continue;
    const uint32_t after = step(m, index, characters[class], strlen(characters[class]));
    m->lexes[index].wide[class] = after;
    if (after != LEX_NONE) m->lexes[index].all |= bit;
  }
}

const Lex *lex_classes(Machine *m, uint32_t index) {
  if (m->lexes[index].classed) return &m->lexes[index];
  uint64_t none = 0, any = 0;
  for (int byte = m->lexes[index].number ? 0 : 0x20; byte < 0xc0; byte++) {
    const uint64_t bit = CLASS_BIT(class_of_byte((unsigned char)byte));
    if (lex_next(m, index, (unsigned char)byte) != LEX_NONE) {
      any |= bit;
    } else {
      none |= bit;
    }
  }
  Lex *lex = &m->lexes[index];
  lex->classed = true;
  lex->between = lex->escape == 0 && !(any & CLASS_BIT(CLASS_MIDDLE));
  lex->any = any;
  lex->all = any & ~none & ~CLASS_BIT(CLASS_MIDDLE);
  if (lex->between) find_wide(m, index);
  return &m->lexes[index];
}

bool lex_may_end(const Machine *m, uint32_t lex) {
  return m->lexes[lex].escape == 0 && lang_has_empty(&m->set->langs, langs_of(m, &m->lexes[lex])[0]);
}

void lex_verdicts(const Machine *m, uint32_t index, bool *verdicts, uint32_t n) {
  const Lex *lex = &m->lexes[index];
  for (uint32_t i = 0; i < n; i++)
    verdicts[i] = lex->n == 1 || lang_has_empty(&m->set->langs, langs_of(m, lex)[1 + i]);
}

uint64_t lex_verdict_hash(const Machine *m, uint32_t index) {
  const Lex *lex = &m->lexes[index];
  uint64_t hash = lex->n;
  for (uint32_t i = 1; i < lex->n; i++) {
    hash = rotate64(hash, 1) ^ lang_has_empty(&m->set->langs, langs_of(m, lex)[i]);
    if (i % 32 == 0) hash *= UINT64_C(0x9e3779b97f4a7c15);
  }
  return hash;
}

bool lex_is_counter(const Machine *m, uint32_t index, uint32_t *min, uint32_t *max) {
  const Lex *lex = &m->lexes[index];
  const Langs *l = &m->set->langs;
  const Lang lang = langs_of(m, lex)[0];
  const LangNode *node = &l->nodes[lang];
  bool one = lang == l->any_character, none = lang == LANG_EMPTY;
  *min = one ? 1 : none ? 0 : node->min;
  *max = one ? 1 : none ? 0 : node->b;
  if (lex->left < *max) *max = lex->left;
  return !lex->number && lex->escape == 0 &&
         (one || none || (node->kind == REPEAT && node->a == l->any_character));
}

bool lex_takes_any_text(const Machine *m, uint32_t index) {
  const Lex *lex = &m->lexes[index];
  return !lex->number && lex->escape == 0 && lex->left == LANG_NO_END &&
         lang_takes_any_beginning(&m->set->langs, langs_of(m, lex)[0]);
}
