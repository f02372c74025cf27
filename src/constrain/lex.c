/* lex.c - makes and derives the states of lex.h. Called by: machine.c, masks.c. */
#include "constrain/lex.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash64.h"
#include "base/utf8.h"
#include "constrain/lang/lang_internal.h"

static const Lang *langs_of(const Machine *m, const Lex *lex) {
  return m->lex_langs + lex->langs;
}

static uint64_t hash_of(const Machine *m, const Lex *lex) {
  return hash64(langs_of(m, lex), lex->n * sizeof(Lang),
                (uint64_t)lex->code << 8 | (uint64_t)lex->escape << 1 | lex->number);
}

static bool equal(const Machine *m, const Lex *x, const Lex *y) {
  return x->number == y->number && x->escape == y->escape && x->code == y->code && x->n == y->n &&
         memcmp(langs_of(m, x), langs_of(m, y), x->n * sizeof(Lang)) == 0;
}

static bool rehash(Machine *m) {
  size_t n = m->n_lex_slots ? m->n_lex_slots * 2 : 256;
  uint32_t *slots = calloc(n, sizeof *slots);
  if (!slots) return machine_fail(m, "out of memory"), false;
  for (size_t i = 1; i < m->n_lexes; i++) {
    size_t at = hash_of(m, &m->lexes[i]) & (n - 1);
    while (slots[at]) at = (at + 1) & (n - 1);
    slots[at] = (uint32_t)i + 1;
  }
  free(m->lex_slots);
  m->lex_slots = slots;
  m->n_lex_slots = n;
  return true;
}

static uint32_t find(Machine *m, Lex lex) {
  if (m->n_lexes * 2 >= m->n_lex_slots && !rehash(m)) return LEX_NONE;
  size_t at = hash_of(m, &lex) & (m->n_lex_slots - 1);
  for (; m->lex_slots[at]; at = (at + 1) & (m->n_lex_slots - 1)) {
    if (equal(m, &m->lexes[m->lex_slots[at] - 1], &lex)) return m->lex_slots[at] - 1;
  }
  if (mem_grow(&m->lexes, &m->lexes_capacity, m->n_lexes + 2, sizeof *m->lexes, "a constraint", NULL))
    return machine_fail(m, "out of memory"), LEX_NONE;
  if (m->n_lexes == 0) m->lexes[m->n_lexes++] = (Lex){.n = 0};
  m->lexes[m->n_lexes] = lex;
  m->lex_slots[at] = (uint32_t)m->n_lexes + 1;
  return (uint32_t)m->n_lexes++;
}

/* find() for languages that are the last ones of lex_langs; they stay only if the state is new. */
static uint32_t find_with_langs(Machine *m, Lex lex) {
  uint32_t found = find(m, lex);
  if (m->lexes[found].langs != lex.langs) m->lex_langs_count = lex.langs;
  return found;
}

uint32_t lex_begin(Machine *m, bool number, const Lang *langs, uint32_t n) {
  const Lex lex = {.number = number, .langs = (uint32_t)m->lex_langs_count, .n = n};
  if (!lang_is_alive(&m->set->langs, langs[0])) return LEX_NONE;
  if (mem_grow(&m->lex_langs, &m->lex_langs_capacity, m->lex_langs_count + n, sizeof(Lang), "a constraint",
               NULL))
    return machine_fail(m, "out of memory"), LEX_NONE;
  memcpy(m->lex_langs + m->lex_langs_count, langs, n * sizeof(Lang));
  m->lex_langs_count += n;
  return find_with_langs(m, lex);
}

/* The state after decoded bytes, all languages stepped. */
static uint32_t step(Machine *m, uint32_t index, const void *bytes, size_t size) {
  Lex lex = m->lexes[index];
  const uint32_t from = lex.langs;
  lex.langs = (uint32_t)m->lex_langs_count;
  lex.escape = 0;
  lex.code = 0;
  lex.next = NULL;
  if (mem_grow(&m->lex_langs, &m->lex_langs_capacity, m->lex_langs_count + lex.n, sizeof(Lang),
               "a constraint", NULL))
    return machine_fail(m, "out of memory"), LEX_NONE;
  for (uint32_t i = 0; i < lex.n; i++) {
    Lang lang = m->lex_langs[from + i];
    for (size_t j = 0; j < size && lang != LANG_NONE; j++)
      lang = lang_next(&m->set->langs, lang, ((const unsigned char *)bytes)[j]);
    m->lex_langs[lex.langs + i] = lang;
    if (i == 0 && !lang_is_alive(&m->set->langs, lang)) return LEX_NONE;
  }
  m->lex_langs_count += lex.n;
  return find_with_langs(m, lex);
}

static bool takes_code(Machine *m, const Lex *lex, uint32_t code) {
  unsigned char bytes[4];
  Lang lang = langs_of(m, lex)[0];
  int size = utf8_encode(code, bytes);
  for (int i = 0; i < size && lang != LANG_NONE; i++) lang = lang_next(&m->set->langs, lang, bytes[i]);
  return lang_is_alive(&m->set->langs, lang);
}

/* True if a code point first..last may follow; surrogates stand for all characters above U+FFFF. */
static bool takes_range(Machine *m, uint32_t index, uint32_t first, uint32_t last) {
  const Lang allowed = langs_of(m, &m->lexes[index])[0];
  if (allowed == lang_any_text(&m->set->langs)) return true;
  for (uint32_t code = first; code <= last; code++) {
    if (code >= 0xd800 && code <= 0xdbff) {
      for (unsigned char lead = 0xf0; lead <= 0xf4; lead++)
        if (lang_is_alive(&m->set->langs, lang_next(&m->set->langs, allowed, lead))) return true;
      code = 0xdbff;
    } else if (code >= 0xdc00 && code <= 0xdfff) {
      code = 0xdfff;
    } else if (takes_code(m, &m->lexes[index], code)) {
      return true;
    }
  }
  return false;
}

static uint32_t escaped(Machine *m, uint32_t index, uint8_t escape, uint32_t code) {
  Lex lex = m->lexes[index];
  lex.escape = escape;
  lex.code = code;
  lex.next = NULL;
  return find(m, lex);
}

static int hex_value(unsigned char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

/* After a digit of \uXXXX; `escape` 2..5 is its place. */
static uint32_t hex_next(Machine *m, uint32_t index, unsigned char byte) {
  const Lex lex = m->lexes[index];
  const int digit = hex_value(byte);
  if (digit < 0) return LEX_NONE;
  const uint32_t code = lex.code << 4 | (uint32_t)digit;
  const int missing = 4 * (5 - lex.escape);
  if (!takes_range(m, index, code << missing, (code << missing) + (1u << missing) - 1)) return LEX_NONE;
  if (lex.escape < 5) return escaped(m, index, (uint8_t)(lex.escape + 1), code);
  if (code >= 0xd800 && code <= 0xdbff) return escaped(m, index, 6, code - 0xd800);
  unsigned char bytes[4];
  int size = utf8_encode(code, bytes);
  return step(m, index, bytes, (size_t)size);
}

/* After a digit of the low surrogate; `code` holds the high one's ten bits and the digits so far. */
static uint32_t low_next(Machine *m, uint32_t index, unsigned char byte) {
  const Lex lex = m->lexes[index];
  const int digit = hex_value(byte);
  if (digit < 0 || (lex.escape == 8 && digit != 13) || (lex.escape == 9 && digit < 12)) return LEX_NONE;
  const uint32_t value = lex.escape == 8 ? 0 : lex.escape == 9 ? (uint32_t)digit - 12 : (uint32_t)digit;
  const uint32_t code = lex.escape == 8 ? lex.code : lex.code << (lex.escape == 9 ? 2 : 4) | value;
  const int missing = lex.escape == 8 ? 10 : 4 * (11 - lex.escape);
  const uint32_t first = 0x10000 + (code << missing);
  bool takes = false;
  for (uint32_t i = 0; i < 1u << missing && !takes; i++) takes = takes_code(m, &m->lexes[index], first + i);
  if (!takes) return LEX_NONE;
  if (lex.escape < 11) return escaped(m, index, (uint8_t)(lex.escape + 1), code);
  unsigned char bytes[4];
  int size = utf8_encode(0x10000 + code, bytes);
  return step(m, index, bytes, (size_t)size);
}

static uint32_t string_next(Machine *m, uint32_t index, unsigned char byte) {
  static const char escapes[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
  const uint8_t escape = m->lexes[index].escape;
  if (escape == 0) {
    if (byte < 0x20 || byte == '"') return LEX_NONE;
    if (byte == '\\') return takes_range(m, index, 0, 0xffff) ? escaped(m, index, 1, 0) : LEX_NONE;
    return step(m, index, &byte, 1);
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

uint32_t lex_next(Machine *m, uint32_t index, unsigned char byte) {
  Lex *lex = &m->lexes[index];
  if (lex->next && lex->next[byte] != LANG_UNKNOWN) return lex->next[byte];
  if (!lex->next) {
    lex->next = malloc(256 * sizeof *lex->next);
    if (!lex->next) return machine_fail(m, "out of memory"), LEX_NONE;
    memset(lex->next, 0xff, 256 * sizeof *lex->next);
  }
  uint32_t made = lex->number ? step(m, index, &byte, 1) : string_next(m, index, byte);
  m->lexes[index].next[byte] = made;
  return made;
}

bool lex_may_end(const Machine *m, uint32_t lex) {
  return m->lexes[lex].escape == 0 && lang_has_empty(&m->set->langs, langs_of(m, &m->lexes[lex])[0]);
}

void lex_verdicts(const Machine *m, uint32_t index, bool *verdicts, uint32_t n) {
  const Lex *lex = &m->lexes[index];
  for (uint32_t i = 0; i < n; i++)
    verdicts[i] = lex->n == 1 || lang_has_empty(&m->set->langs, langs_of(m, lex)[1 + i]);
}

bool lex_is_counter(const Machine *m, uint32_t index, uint32_t *min, uint32_t *max) {
  const Lex *lex = &m->lexes[index];
  const Langs *l = &m->set->langs;
  const Lang lang = langs_of(m, lex)[0];
  const LangNode *node = &l->nodes[lang];
  bool one = lang == l->any_character, none = lang == LANG_EMPTY;
  *min = one ? 1 : none ? 0 : node->min;
  *max = one ? 1 : none ? 0 : node->b;
  return !lex->number && lex->escape == 0 &&
         (one || none || (node->kind == REPEAT && node->a == l->any_character));
}

bool lex_is_indifferent(const Machine *m, uint32_t index) {
  const Lex *lex = &m->lexes[index];
  for (uint32_t i = 1; i < lex->n; i++) {
    const Lang lang = langs_of(m, lex)[i];
    if (lang != LANG_ALL && lang != LANG_NONE && lang != m->set->langs.any_text) return false;
  }
  return true;
}
