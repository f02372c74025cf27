/* lang_classes.c - derivatives by whole classes of characters above U+007F; see lang.h. Called by: lex.c,
 * lang_lengths.c.
 *
 * A set of characters is a SET of ASCII, a sequence of SETs, or an OR of such parts. Within a language it is
 * treated as one letter. The derivative by a class is LANG_UNKNOWN if the set has only some characters of the
 * class. */
#include "constrain/lang/lang_internal.h"

static bool is_in_class(unsigned lead, WideClass class) {
  static const unsigned char leads[] = {
      [WIDE_C2] = 0xc2, [WIDE_E1] = 0xe1, [WIDE_E2] = 0xe2, [WIDE_E3] = 0xe3, [WIDE_EF] = 0xef};
  if (class != WIDE_OTHER) return lead == leads[class];
  for (int i = WIDE_C2; i < N_WIDE; i++)
    if (lead == leads[i]) return false;
  return lead >= 0xc2 && lead <= 0xf4;
}

/* The length of the strings of `a`, if all have the same and consist of continuation bytes of UTF-8. 0 if
 * not, or if the expression does not show it. */
static int middle_bytes(const Langs *langs, Lang a) {
  const LangNode *node = &langs->nodes[a];
  if (node->kind == SET) {
    const ByteSet *set = &langs->sets[node->a];
    return !set->bits[0] && !set->bits[1] && !set->bits[3];
  }
  if (node->kind == THEN) {
    int first = middle_bytes(langs, node->a), rest = first ? middle_bytes(langs, node->b) : 0;
    return rest ? first + rest : 0;
  }
  if (node->kind != OR || node->b == 0) return 0;
  int n = middle_bytes(langs, langs->lists[node->a]);
  for (uint32_t i = 1; i < node->b; i++)
    if (middle_bytes(langs, langs->lists[node->a + i]) != n) return 0;
  return n;
}

/* True if each string of `a` is one character; false where the expression does not show that. */
static bool is_character_set(const Langs *langs, Lang a) {
  const LangNode *node = &langs->nodes[a];
  if (node->kind == SET) return !langs->sets[node->a].bits[2] && !langs->sets[node->a].bits[3];
  if (node->kind == THEN && langs->nodes[node->a].kind == SET) {
    const ByteSet *set = &langs->sets[langs->nodes[node->a].a];
    const uint64_t leads[] = {0, UINT64_C(0xffffffff), UINT64_C(0xffff) << 32, UINT64_C(0x1f) << 48};
    const int n = middle_bytes(langs, node->b);
    return n > 0 && n < 4 && !(set->bits[0] | set->bits[1] | set->bits[2]) && !(set->bits[3] & ~leads[n]);
  }
  if (node->kind != OR || node->b == 0) return false;
  for (uint32_t i = 0; i < node->b; i++)
    if (!is_character_set(langs, langs->lists[node->a + i])) return false;
  return true;
}

/* The derivative of `a` by any n continuation bytes, the first of them in first..last. LANG_UNKNOWN if at
 * some step two bytes lead to different expressions. */
static Lang after_middle(Langs *l, Lang a, unsigned first, unsigned last, int n) {
  const Lang next = lang_next(l, a, (unsigned char)first);
  for (unsigned byte = first + 1; byte <= last; byte++)
    if (lang_next(l, a, (unsigned char)byte) != next) return LANG_UNKNOWN;
  return n == 1 ? next : after_middle(l, next, 0x80, 0xbf, n - 1);
}

static Lang after_character(Langs *l, Lang a, unsigned lead) {
  const Lang begun = lang_next(l, a, (unsigned char)lead);
  switch (lead) {
  case 0xe0: return after_middle(l, begun, 0xa0, 0xbf, 2);
  case 0xed: return after_middle(l, begun, 0x80, 0x9f, 2);
  case 0xf0: return after_middle(l, begun, 0x90, 0xbf, 3);
  case 0xf4: return after_middle(l, begun, 0x80, 0x8f, 3);
  default: return after_middle(l, begun, 0x80, 0xbf, lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3);
  }
}

enum { NOT_LOOKED, NO_SET, CHARACTER_SET };

/* Finds whether the expression is a set of characters, and which classes the set has in whole and in part. */
static void look(Langs *langs, Lang a) {
  if (!is_character_set(langs, a)) {
    langs->nodes[a].character_set = NO_SET;
    return;
  }
  uint8_t all = 0, any = 0;
  const bool ascii = langs->nodes[a].kind == SET; /* ASCII is in no class */
  for (int class = 0; class < N_WIDE && !ascii; class ++) {
    bool in = true, out = true;
    for (unsigned lead = 0xc2; lead <= 0xf4; lead++) {
      if (!is_in_class(lead, (WideClass) class)) continue;
      const Lang after = after_character(langs, a, lead);
      in &= after == LANG_EMPTY;
      out &= after == LANG_NONE && lang_next(langs, a, (unsigned char)lead) == LANG_NONE;
    }
    all |= (uint8_t)(in << class);
    any |= (uint8_t)(!out << class);
  }
  langs->nodes[a].character_set = CHARACTER_SET;
  langs->nodes[a].wide_all = all;
  langs->nodes[a].wide_any = any;
}

bool lang_is_character_set(Langs *langs, Lang a) {
  if (langs->nodes[a].character_set == NOT_LOOKED) look(langs, a);
  return langs->nodes[a].character_set == CHARACTER_SET;
}

enum { MAX_LOOKED = 1000 }; /* expressions that one lang_next_class() may look at */

static Lang next_class(Langs *langs, Lang a, WideClass class, int *looked);

static Lang next_of_list(Langs *langs, LangNode node, WideClass class, int *looked) {
  Lang made = node.kind == OR ? LANG_NONE : LANG_ALL;
  for (uint32_t i = 0; i < node.b; i++) {
    const Lang part = next_class(langs, langs->lists[node.a + i], class, looked);
    if (part == LANG_UNKNOWN) return LANG_UNKNOWN;
    made = node.kind == OR ? lang_or(langs, made, part) : lang_and(langs, made, part);
  }
  return made;
}

static Lang next_class(Langs *langs, Lang a, WideClass class, int *looked) {
  if (++*looked > MAX_LOOKED) return LANG_UNKNOWN;
  const bool is_set = lang_is_character_set(langs, a);
  const LangNode node = langs->nodes[a];
  if (is_set) {
    if (node.wide_all >> class & 1) return LANG_EMPTY;
    return node.wide_any >> class & 1 ? LANG_UNKNOWN : LANG_NONE;
  }
  switch ((LangKind)node.kind) {
  case EMPTY: return LANG_NONE;
  case SET:
    for (unsigned lead = 0xc2; lead <= 0xf4; lead++)
      if (is_in_class(lead, class) && byte_set_has(&langs->sets[node.a], lead)) return LANG_UNKNOWN;
    return LANG_NONE;
  case THEN: {
    const Lang first = next_class(langs, node.a, class, looked);
    if (first == LANG_UNKNOWN) return LANG_UNKNOWN;
    const Lang made = lang_then(langs, first, node.b);
    if (!langs->nodes[node.a].has_empty) return made;
    const Lang rest = next_class(langs, node.b, class, looked);
    return rest == LANG_UNKNOWN ? LANG_UNKNOWN : lang_or(langs, made, rest);
  }
  case OR:
  case AND: return next_of_list(langs, node, class, looked);
  case NOT: {
    const Lang part = next_class(langs, node.a, class, looked);
    return part == LANG_UNKNOWN ? LANG_UNKNOWN : lang_not(langs, part);
  }
  case REPEAT: {
    const uint32_t min = node.min ? node.min - 1 : 0, max = node.b == LANG_NO_END ? LANG_NO_END : node.b - 1;
    const Lang first = next_class(langs, node.a, class, looked);
    if (first == LANG_UNKNOWN || first == LANG_NONE) return first;
    return lang_then(langs, first, lang_repeat(langs, node.a, min, max));
  }
  case MULTIPLE: return LANG_UNKNOWN;
  }
  return LANG_UNKNOWN;
}

Lang lang_next_class(Langs *langs, Lang a, WideClass class) {
  int looked = 0;
  return next_class(langs, a, class, &looked);
}
