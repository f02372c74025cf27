/* lang.c - makes, simplifies and derives expressions of regular languages; see lang.h.
 *
 * The derivative of an expression by a byte (Brzozowski 1964) is computed together with its cell: the set of
 * bytes that have the same derivative. So a state costs one computation for each cell. */
#include "constrain/lang/lang.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash64.h"
#include "constrain/lang/byte_classes.h"
#include "constrain/store/few.h"

#define MAX_EXPRESSIONS        ((size_t)1 << 21)
#define MAX_PARTS_KEPT         ((size_t)1 << 25) /* parts of all unions and intersections */
#define MAX_DEPTH              2000              /* nesting of expressions, into which functions recurse */
#define MAX_ROW_BYTES          ((size_t)1 << 27) /* bytes of transitions at which langs_tidy() drops them */
#define MAX_SEARCHED           ((size_t)1 << 15) /* expressions in a search for a string */
#define MAX_SEARCHED_MULTIPLES ((size_t)1 << 11) /* the same, if a MULTIPLE (multipleOf) is in them */
#define MAX_WITNESSES          ((size_t)1 << 8)  /* expressions of a search that has_witness() tries */
#define MAX_WORD               ((size_t)1 << 12) /* bytes of a string that lang_without() follows */
#define MAX_RUNS               64                /* join_runs() leaves unions of more parts as they are */

void langs_fail(Langs *langs, Status status, const char *message) {
  failure_set(&langs->failure, status, message);
}

Status langs_check(const Langs *langs, Error *err) {
  return failure_check(&langs->failure, err);
}

/* Records that a limit on work is passed. */
static void fail_limit(Langs *langs, const char *limit) {
  Error message;
  error_set(&message, STATUS_USAGE,
            "%s (fewer patterns, multipleOf and counts that hold at once, by allOf, not or side by side, are "
            "easier)",
            limit);
  langs->failure.too_hard |= !has_failed(&langs->failure);
  langs_fail(langs, STATUS_USAGE, message.text);
}

/* --- hash-consing */

static uint64_t hash_of(const Langs *langs, const LangNode *node) {
  const uint32_t key[4] = {node->kind, node->a, node->b, node->min};
  if ((node->kind != OR && node->kind != AND) || node->b == 0) return hash64(key, sizeof key, 0);
  return hash64(langs->lists + node->a, node->b * sizeof(uint32_t), node->kind);
}

static bool equal(const Langs *langs, const LangNode *x, const LangNode *y) {
  if (x->kind != y->kind || x->b != y->b) return false;
  if ((x->kind == OR || x->kind == AND) && x->b > 0)
    return memcmp(langs->lists + x->a, langs->lists + y->a, x->b * sizeof(uint32_t)) == 0;
  return x->a == y->a && x->min == y->min;
}

/* Sets the node's depth and `multiples` from its parts; false if it is too deep. */
static bool measure(Langs *langs, LangNode *node) {
  const bool list = node->kind == OR || node->kind == AND;
  if (node->kind == MULTIPLE) node->multiples = true;
  if (node->kind < THEN || node->kind == MULTIPLE) return true;
  for (uint32_t i = 0; i < (list ? node->b : 1); i++) {
    const LangNode *part = &langs->nodes[list ? langs->lists[node->a + i] : node->a];
    if (part->depth >= node->depth) node->depth = part->depth + 1;
    node->multiples |= part->multiples;
  }
  if (node->kind == THEN && langs->nodes[node->b].depth > node->depth)
    node->depth = langs->nodes[node->b].depth;
  if (node->kind == THEN) node->multiples |= langs->nodes[node->b].multiples;
  if (node->depth <= MAX_DEPTH) return true;
  fail_limit(langs, "expressions lie inside one another over 2,000 deep");
  return false;
}

Lang lang_node(Langs *langs, LangNode node) {
  if (!langs_work(langs, 16)) return LANG_NONE;
  const uint64_t hash = hash_of(langs, &node);
  const KeyTable *known = &langs->by_content;
  for (const KeyEntry *e = key_table_find(known, hash); e; e = key_table_next(known, e))
    if (equal(langs, &langs->nodes[e->value.number], &node)) return e->value.number;
  if (langs->count > 0 && !measure(langs, &node)) return LANG_NONE;
  if (langs->count >= MAX_EXPRESSIONS) {
    fail_limit(langs, "the automaton grows over 2,097,152 states");
    return LANG_NONE;
  }
  return key_table_append(&langs->by_content, hash, &langs->nodes, &langs->count, &langs->capacity, &node,
                          sizeof node, &langs->failure);
}

/* --- constructors */

/* The index of a set in langs->sets. */
static uint32_t set_index(Langs *langs, const ByteSet *set) {
  const uint64_t hash = hash64(set, sizeof *set, 0);
  const KeyTable *known = &langs->sets_by_content;
  for (const KeyEntry *e = key_table_find(known, hash); e; e = key_table_next(known, e))
    if (memcmp(&langs->sets[e->value.number], set, sizeof *set) == 0) return e->value.number;
  byte_classes_divide(&langs->classes, set);
  return key_table_append(&langs->sets_by_content, hash, &langs->sets, &langs->sets_count,
                          &langs->sets_capacity, set, sizeof *set, &langs->failure);
}

static Lang set_of(Langs *langs, ByteSet set) {
  if (!(set.bits[0] | set.bits[1] | set.bits[2] | set.bits[3])) return LANG_NONE;
  const bool ascii = !(set.bits[2] | set.bits[3]);
  return lang_node(langs, (LangNode){.kind = SET, .plain = true, .text = ascii, .a = set_index(langs, &set)});
}

Lang lang_bytes(Langs *langs, unsigned char first, unsigned char last) {
  ByteSet set = byte_set_none();
  for (unsigned byte = first; byte <= last; byte++) byte_set_add(&set, byte);
  return set_of(langs, set);
}

Lang lang_byte(Langs *langs, unsigned char byte) {
  return lang_bytes(langs, byte, byte);
}

static Lang then(Langs *langs, Lang a, Lang b) {
  const LangNode first = langs->nodes[a], rest = langs->nodes[b];
  return lang_node(langs, (LangNode){.kind = THEN,
                                     .has_empty = first.has_empty && rest.has_empty,
                                     .plain = first.plain && rest.plain,
                                     .text = first.text && rest.text,
                                     .counts = first.counts || rest.counts,
                                     .a = a,
                                     .b = b});
}

Lang lang_then(Langs *langs, Lang a, Lang b) {
  if (a == LANG_NONE || b == LANG_NONE) return LANG_NONE;
  if (a == LANG_EMPTY) return b;
  if (b == LANG_EMPTY) return a;
  if (langs->nodes[a].kind != THEN) return then(langs, a, b);
  const size_t start = langs->n_stack;
  for (; langs->nodes[a].kind == THEN; a = langs->nodes[a].b)
    if (!lang_push(langs, langs->nodes[a].a)) return langs->n_stack = start, LANG_NONE;
  Lang made = then(langs, a, b);
  while (langs->n_stack > start && made != LANG_NONE)
    made = then(langs, langs->stack[--langs->n_stack], made);
  langs->n_stack = start;
  return made;
}

Lang lang_sequence(Langs *langs, size_t start) {
  Lang made = LANG_EMPTY;
  while (langs->n_stack > start) made = lang_then(langs, langs->stack[--langs->n_stack], made);
  return made;
}

/* Sorts numbers, which are few or nearly in order most of the time. */
static void sort_numbers(uint32_t *list, size_t n) {
  if (n > 64) {
    qsort(list, n, sizeof *list, number_order);
    return;
  }
  for (size_t i = 1; i < n; i++) {
    const uint32_t number = list[i];
    size_t at = i;
    for (; at > 0 && list[at - 1] > number; at--) list[at] = list[at - 1];
    list[at] = number;
  }
}

/* Appends `a` to langs->lists. If `a` is of this kind itself, appends its parts instead. */
static bool add_parts(Langs *langs, LangKind kind, Lang a) {
  const LangNode *node = &langs->nodes[a];
  bool nested = node->kind == kind;
  size_t n = nested ? node->b : 1;
  if (!langs_work(langs, n)) return false;
  if (langs->lists_count + n > MAX_PARTS_KEPT)
    return fail_limit(langs, "unions and intersections have over 33,554,432 parts"), false;
  if (!failure_grow(&langs->failure, &langs->lists, &langs->lists_capacity, langs->lists_count + n,
                    sizeof *langs->lists))
    return false;
  for (size_t i = 0; i < n; i++)
    langs->lists[langs->lists_count + i] = nested ? langs->lists[node->a + i] : a;
  langs->lists_count += n;
  return true;
}

/* Unites or intersects the sets in list[0..n) into one. Returns the new n; -1 for an AND whose sets have no
 * byte in common. */
static ptrdiff_t join_sets(Langs *langs, LangKind kind, uint32_t *list, size_t n) {
  size_t kept = 0, n_sets = 0;
  ByteSet all = byte_set_none();
  for (size_t i = 0; i < n; i++) n_sets += langs->nodes[list[i]].kind == SET;
  if (n_sets < 2) return (ptrdiff_t)n;
  n_sets = 0;
  for (size_t i = 0; i < n; i++) {
    const LangNode *node = &langs->nodes[list[i]];
    if (node->kind != SET) {
      list[kept++] = list[i];
      continue;
    }
    const ByteSet set = langs->sets[node->a];
    if (n_sets++ == 0) all = set;
    for (int w = 0; w < 4; w++)
      all.bits[w] = kind == OR ? all.bits[w] | set.bits[w] : all.bits[w] & set.bits[w];
  }
  Lang joined = set_of(langs, all);
  if (joined == LANG_NONE) return -1;
  list[kept++] = joined;
  sort_numbers(list, kept);
  return (ptrdiff_t)kept;
}

static bool lists_have(const uint32_t *list, size_t n, uint32_t value) {
  return bsearch(&value, list, n, sizeof value, number_order) != NULL;
}

/* Simplifies the sorted list; returns the number of parts kept, or -1 if the whole is `absorbing`. */
static ptrdiff_t tidy(Langs *langs, LangKind kind, uint32_t *list, size_t n) {
  const Lang neutral = kind == OR ? LANG_NONE : LANG_ALL, absorbing = kind == OR ? LANG_ALL : LANG_NONE;
  size_t kept = 0;
  bool has_empty = false, has_text = false;
  for (size_t i = 0; i < n; i++) {
    if (list[i] == absorbing) return -1;
    if (list[i] == neutral || (kept && list[kept - 1] == list[i])) continue;
    list[kept++] = list[i];
    has_empty |= list[i] != LANG_EMPTY && langs->nodes[list[i]].has_empty;
    has_text |= list[i] != langs->any_text && langs->nodes[list[i]].text;
  }
  ptrdiff_t joined = join_sets(langs, kind, list, kept);
  if (joined < 0) return -1;
  n = (size_t)joined;
  kept = 0;
  for (size_t i = 0; i < n; i++) {
    if (kind == OR && list[i] == LANG_EMPTY && has_empty) continue;
    if (kind == AND && list[i] == langs->any_text && has_text) continue;
    list[kept++] = list[i];
  }
  for (size_t i = 0; i < kept; i++)
    if (langs->nodes[list[i]].kind == NOT && lists_have(list, kept, langs->nodes[list[i]].a)) return -1;
  return (ptrdiff_t)kept;
}

/* A repetition and what follows it: `a`{min,max} rest. */
typedef struct {
  Lang a, rest;
  uint32_t min, max;
} Run;

static bool read_run(const Langs *langs, Lang lang, Run *run) {
  const LangNode *node = &langs->nodes[lang];
  const Lang rest = node->kind == THEN ? node->b : LANG_EMPTY;
  if (node->kind == THEN) node = &langs->nodes[node->a];
  *run = (Run){node->a, rest, node->min, node->b};
  return node->kind == REPEAT;
}

/* Unites runs in list[0..n) that differ only in min and max, if their ranges join. Returns the new n. So
 * derivatives of repetitions grow with the text, not with the number of ways to read it. */
static size_t join_runs(Langs *langs, uint32_t *list, size_t n) {
  Run x, y;
  for (size_t i = 0; i < n; i++) {
    if (!read_run(langs, list[i], &x)) continue;
    for (size_t j = i + 1; j < n; j++) {
      if (!read_run(langs, list[j], &y) || x.a != y.a || x.rest != y.rest) continue;
      if ((x.max != LANG_NO_END && y.min > x.max + 1) || (y.max != LANG_NO_END && x.min > y.max + 1))
        continue;
      if (y.min < x.min) x.min = y.min;
      if (y.max > x.max) x.max = y.max;
      list[i] = lang_then(langs, lang_repeat(langs, x.a, x.min, x.max), x.rest);
      list[j] = list[--n];
      j = i; /* the wider run may join others */
    }
  }
  sort_numbers(list, n);
  return n;
}

static Lang join(Langs *langs, LangKind kind, const Lang *parts, size_t n) {
  const Lang absorbing = kind == OR ? LANG_ALL : LANG_NONE;
  if (has_failed(&langs->failure)) return LANG_NONE;
  const size_t start = langs->lists_count;
  for (size_t i = 0; i < n; i++)
    if (!add_parts(langs, kind, parts[i])) return LANG_NONE;
  size_t n_list = langs->lists_count - start;
  if (n_list == 0) return kind == OR ? LANG_NONE : LANG_ALL;
  sort_numbers(langs->lists + start, n_list);
  if (kind == OR && n_list > 1 && n_list <= MAX_RUNS) n_list = join_runs(langs, langs->lists + start, n_list);
  ptrdiff_t kept = tidy(langs, kind, langs->lists + start, n_list);
  langs->lists_count = start;
  if (kept < 0) return absorbing;
  const uint32_t *list = langs->lists + start;
  if (kept == 0) return kind == OR ? LANG_NONE : LANG_ALL;
  if (kept == 1) return list[0];
  LangNode node = {.kind = (uint8_t)kind, .a = (uint32_t)start, .b = (uint32_t)kept};
  bool all_empty = true, any_empty = false, all_text = true, any_text = false, plain = kind == OR;
  for (ptrdiff_t i = 0; i < kept; i++) {
    const LangNode *part = &langs->nodes[list[i]];
    all_empty &= part->has_empty, any_empty |= part->has_empty;
    all_text &= part->text, any_text |= part->text;
    plain &= part->plain;
    node.counts |= part->counts;
    if (kind == AND && list[i] == LANG_EMPTY) node.min = 1;
  }
  if (node.min) return all_empty ? LANG_EMPTY : LANG_NONE;
  node.has_empty = kind == OR ? any_empty : all_empty;
  node.text = kind == OR ? all_text : any_text;
  node.plain = plain;
  size_t before = langs->count;
  langs->lists_count = start + (size_t)kept;
  Lang made = lang_node(langs, node);
  if (langs->count == before) langs->lists_count = start;
  return made;
}

Lang lang_or(Langs *langs, Lang a, Lang b) {
  if (a == b || b == LANG_NONE) return a;
  if (a == LANG_NONE) return b;
  return join(langs, OR, (const Lang[]){a, b}, 2);
}

Lang lang_or_all(Langs *langs, const Lang *parts, size_t n) {
  return join(langs, OR, parts, n);
}

Lang lang_and_all(Langs *langs, const Lang *parts, size_t n) {
  return join(langs, AND, parts, n);
}

Lang lang_and(Langs *langs, Lang a, Lang b) {
  if (a == b || b == LANG_ALL) return a;
  if (a == LANG_ALL) return b;
  return join(langs, AND, (const Lang[]){a, b}, 2);
}

Lang lang_not(Langs *langs, Lang a) {
  if (has_failed(&langs->failure)) return LANG_NONE;
  const LangNode *node = &langs->nodes[a];
  if (node->kind == NOT) return node->a;
  return lang_node(langs, (LangNode){.kind = NOT, .has_empty = !node->has_empty, .a = a});
}

Lang lang_repeat(Langs *langs, Lang a, uint32_t min, uint32_t max) {
  if (max == 0 || a == LANG_EMPTY) return LANG_EMPTY;
  if (a == LANG_NONE) return min == 0 ? LANG_EMPTY : LANG_NONE;
  if (a == LANG_ALL) return LANG_ALL;
  if (min == 1 && max == 1) return a;
  const LangNode node = langs->nodes[a];
  if (node.has_empty) min = 0;
  if (node.kind == REPEAT && node.min == 0 && node.b == LANG_NO_END) return a;
  return lang_node(langs, (LangNode){.kind = REPEAT,
                                     .has_empty = min == 0,
                                     .plain = node.plain,
                                     .text = node.text,
                                     .counts = node.counts || is_relaxable(node.text, max),
                                     .a = a,
                                     .b = max,
                                     .min = min});
}

Lang lang_literal(Langs *langs, const void *bytes, size_t size) {
  Lang made = LANG_EMPTY;
  while (size > 0) made = lang_then(langs, lang_byte(langs, ((const unsigned char *)bytes)[--size]), made);
  return made;
}

/* --- text */

Lang lang_declare_text(Langs *langs, Lang a) {
  if (!has_failed(&langs->failure) && a > LANG_ALL) langs->nodes[a].text = true;
  return a;
}

Lang lang_declare_single(Langs *langs, Lang a) {
  if (!has_failed(&langs->failure)) langs->nodes[a].single = true;
  return a;
}

bool lang_is_single(const Langs *langs, Lang a) {
  return langs->nodes[a].single;
}

Lang lang_any_character(Langs *langs) {
  return langs->any_character;
}

Lang lang_any_text(Langs *langs) {
  return langs->any_text;
}

Lang lang_text(Langs *langs, Lang a) {
  return langs->nodes[a].text ? a : lang_and(langs, a, langs->any_text);
}

/* --- derivatives */

static Lang derive(Langs *langs, Lang a, unsigned char byte, ByteSet *cell);

static Lang derive_and(Langs *langs, LangNode node, unsigned char byte, ByteSet *cell) {
  const size_t start = langs->n_stack;
  bool pushed = true;
  for (uint32_t i = 0; i < node.b && pushed; i++)
    pushed = lang_push(langs, derive(langs, langs->lists[node.a + i], byte, cell));
  const Lang made = pushed ? join(langs, AND, langs->stack + start, node.b) : LANG_NONE;
  langs->n_stack = start;
  return made;
}

/* Pushes the alternatives of the derivative of `a`. A collection takes each expression once, even if it is a
 * part of many unions in `a`. */
static void collect(Langs *langs, Lang a, unsigned char byte, ByteSet *cell, uint32_t collection) {
  while (langs_work(langs, 1)) {
    const LangNode node = langs->nodes[a];
    const bool known = node.derivation == langs->derivation;
    if (node.collection == collection) return;
    langs->nodes[a].collection = collection;
    if (known || (node.kind != THEN && node.kind != OR)) {
      lang_push(langs, known ? node.derived : derive(langs, a, byte, cell));
      return;
    }
    for (uint32_t i = 0; node.kind == OR && i < node.b; i++)
      collect(langs, langs->lists[node.a + i], byte, cell, collection);
    if (node.kind == OR) return;
    lang_push(langs, lang_then(langs, derive(langs, node.a, byte, cell), node.b));
    if (!langs->nodes[node.a].has_empty) return;
    a = node.b;
  }
}

static Lang derive_or(Langs *langs, Lang a, unsigned char byte, ByteSet *cell) {
  const size_t start = langs->n_stack;
  collect(langs, a, byte, cell, ++langs->collection);
  size_t kept = start;
  for (size_t i = start; i < langs->n_stack; i++)
    if (langs->stack[i] != LANG_NONE) langs->stack[kept++] = langs->stack[i];
  langs->n_stack = kept;
  return lang_join_pushed(langs, start, lang_or_all);
}

static Lang derive_new(Langs *langs, Lang a, unsigned char byte, ByteSet *cell) {
  const LangNode node = langs->nodes[a];
  switch ((LangKind)node.kind) {
  case EMPTY: return LANG_NONE;
  case SET: {
    const ByteSet *set = &langs->sets[node.a];
    bool has = byte_set_has(set, byte);
    byte_set_keep(cell, set, !has);
    return has ? LANG_EMPTY : LANG_NONE;
  }
  case THEN:
    if (langs->nodes[node.a].has_empty) return derive_or(langs, a, byte, cell);
    return lang_then(langs, derive(langs, node.a, byte, cell), node.b);
  case OR: return derive_or(langs, a, byte, cell);
  case AND: return derive_and(langs, node, byte, cell);
  case NOT: return lang_not(langs, derive(langs, node.a, byte, cell));
  case REPEAT: {
    uint32_t min = node.min ? node.min - 1 : 0, max = node.b == LANG_NO_END ? LANG_NO_END : node.b - 1;
    Lang first = derive(langs, node.a, byte, cell);
    return first == LANG_NONE ? LANG_NONE : lang_then(langs, first, lang_repeat(langs, node.a, min, max));
  }
  case MULTIPLE: return multiple_next(langs, node, byte, cell);
  }
  return LANG_NONE;
}

/* The derivative of `a`. Keeps in `cell` only bytes with the same derivative. An expression that this
 * derivation has met before has already narrowed `cell`. */
static Lang derive(Langs *langs, Lang a, unsigned char byte, ByteSet *cell) {
  if (!langs_work(langs, 4)) return LANG_NONE;
  if (langs->nodes[a].derivation == langs->derivation) return langs->nodes[a].derived;
  const Lang made = derive_new(langs, a, byte, cell);
  langs->nodes[a].derivation = langs->derivation;
  langs->nodes[a].derived = made;
  return made;
}

/* Begins a derivation with a new number; clears all marks before numbers repeat. */
static void begin_derivation(Langs *langs) {
  if (++langs->derivation > 0 && langs->collection < UINT32_MAX / 2) return;
  for (size_t i = 0; i < langs->count; i++) langs->nodes[i].derivation = langs->nodes[i].collection = 0;
  langs->derivation = 1;
  langs->collection = 0;
}

#define MAX_PARTS 16

/* The derivative of an AND or a NOT, made from the cached derivatives of its parts (lang_next()). Fills
 * next[] for each class in which every part is known to have the same derivative as for `byte`. */
static Lang next_by_parts(Langs *langs, Lang a, unsigned char byte, uint32_t *next) {
  const LangNode node = langs->nodes[a];
  const uint32_t n = node.kind == NOT ? 1 : node.b;
  Lang parts[MAX_PARTS], after[MAX_PARTS];
  memcpy(parts, node.kind == NOT ? &node.a : langs->lists + node.a, n * sizeof *parts);
  for (uint32_t i = 0; i < n; i++) after[i] = lang_next(langs, parts[i], byte);
  const Lang made = node.kind == NOT ? lang_not(langs, after[0]) : join(langs, AND, after, n);
  if (has_failed(&langs->failure)) return LANG_NONE;
  const ByteClasses *classes = &langs->classes;
  for (uint32_t class = 0; class < next[0]; class ++) {
    bool same = true;
    for (uint32_t i = 0; i < n && same; i++)
      same = *byte_row_entry(classes, langs->nodes[parts[i]].next, classes->first[class]) == after[i];
    if (same) next[1 + class] = made;
  }
  return made;
}

Lang lang_next(Langs *langs, Lang a, unsigned char byte) {
  uint32_t *next = langs->nodes[a].next;
  const ByteClasses *classes = &langs->classes;
  if (next) {
    const Lang known = *byte_row_entry(classes, next, byte);
    if (known != LANG_UNKNOWN) return known;
  } else if (!(next = langs->nodes[a].next = byte_row_make(langs))) {
    return LANG_NONE;
  }
  const LangNode *node = &langs->nodes[a];
  langs->steps += node->kind == AND || node->kind == OR ? node->b : 1;
  if (langs->steps > LANG_MAX_STEPS)
    return fail_limit(langs, "over 800,000 steps of automata at once"), LANG_NONE;
  if (node->kind == NOT || (node->kind == AND && node->b <= MAX_PARTS))
    return next_by_parts(langs, a, byte, next);
  ByteSet cell = {{~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0)}};
  begin_derivation(langs);
  Lang made = derive(langs, a, byte, &cell);
  if (has_failed(&langs->failure)) return LANG_NONE;
  for (uint32_t class = 0; class < next[0]; class ++)
    if (byte_set_has(&cell, classes->first[class])) next[1 + class] = made;
  return made;
}

void langs_tidy(Langs *langs) {
  if (langs->rows.total < MAX_ROW_BYTES) return;
  for (size_t i = 0; i < langs->count; i++) langs->nodes[i].next = NULL;
  arena_release(&langs->rows);
}

bool lang_has_empty(const Langs *langs, Lang a) {
  return langs->nodes[a].has_empty;
}

bool lang_is_plain(const Langs *langs, Lang a) {
  return langs->nodes[a].plain;
}

bool lang_contains(Langs *langs, Lang a, const void *bytes, size_t size) {
  for (size_t i = 0; i < size && a != LANG_NONE; i++)
    a = lang_next(langs, a, ((const unsigned char *)bytes)[i]);
  return langs->nodes[a].has_empty;
}

/* --- emptiness */

typedef struct {
  Lang lang;
  uint32_t from; /* index of the item before it on the path */
} Reached;

static void mark_path(Langs *langs, const Reached *reached, size_t at) {
  for (;; at = reached[at].from) {
    langs->nodes[reached[at].lang].alive = 1;
    if (at == 0) return;
  }
}

/* The part of an expression that is a MULTIPLE; false: there is none. */
static bool multiple_part(const Langs *langs, Lang a, LangNode *part) {
  const LangNode node = langs->nodes[a];
  *part = node;
  for (uint32_t i = 0; node.kind == AND && i < node.b && part->kind != MULTIPLE; i++)
    *part = langs->nodes[langs->lists[node.a + i]];
  return part->kind == MULTIPLE;
}

/* True if `a` has a text of multiple_witness(). A breadth-first search would find such a text late. */
static bool has_witness(Langs *langs, Lang a) {
  LangNode part;
  if (!multiple_part(langs, a, &part)) return false;
  char text[80];
  size_t size;
  for (int i = 0; multiple_witness(langs, part, i, text, &size); i++)
    if (size > 0 && lang_contains(langs, a, text, size)) return true;
  return false;
}

/* `a` with LANG_ALL or LANG_NONE in place of each part that has a MULTIPLE. With `above` the result contains
 * `a`; otherwise `a` contains the result. Without `exponents`, a MULTIPLE that needs one is LANG_NONE. */
static Lang without_multiples(Langs *langs, Lang a, bool above, bool exponents) {
  const LangNode node = langs->nodes[a];
  if (!node.multiples) return a;
  if (node.kind == NOT) return lang_not(langs, without_multiples(langs, node.a, !above, exponents));
  if (node.kind != OR && node.kind != AND)
    return above && (exponents || node.kind != MULTIPLE || !multiple_needs_exponent(langs, node)) ? LANG_ALL
                                                                                                  : LANG_NONE;
  Lang made = node.kind == OR ? LANG_NONE : LANG_ALL;
  for (uint32_t i = 0; i < node.b; i++) {
    const Lang part = without_multiples(langs, langs->lists[node.a + i], above, exponents);
    made = node.kind == OR ? lang_or(langs, made, part) : lang_and(langs, made, part);
  }
  return made;
}

/* False if `a` has no string, even if every number is taken as a multiple that can still become one. A number
 * that needs an exponent counts only where digits and an exponent can follow. */
static bool may_be_alive(Langs *langs, Lang a) {
  const Lang e = lang_or(langs, lang_byte(langs, 'e'), lang_byte(langs, 'E'));
  const Lang digits = lang_repeat(langs, lang_bytes(langs, '0', '9'), 0, LANG_NO_END);
  const Lang exponents = lang_then(langs, digits, lang_then(langs, e, LANG_ALL));
  return lang_is_alive(langs, without_multiples(langs, a, true, false)) ||
         lang_is_alive(langs, lang_and(langs, without_multiples(langs, a, true, true), exponents));
}

/* True if three things hold: `part` of `a` is a MULTIPLE of whole numbers; the other parts take any digits up
 * to some length; no such digits make a multiple. */
static bool lacks_multiple(Langs *langs, Lang a, LangNode part) {
  char text[80];
  size_t size;
  if (part.kind != MULTIPLE || !multiple_is_whole(langs, part)) return false;
  Lang rest = without_multiples(langs, a, true, true);
  if (lang_next(langs, rest, '-') != LANG_NONE) return false;
  for (int i = 0; lang_next(langs, rest, 'e') == LANG_NONE && multiple_witness(langs, part, i, text, &size);
       i += 2) {
    if (lang_has_empty(langs, rest) && (size > 0 || part.has_empty)) return false;
    const Lang next = lang_next(langs, rest, '0');
    for (unsigned char digit = '1'; digit <= '9'; digit++)
      if (lang_next(langs, rest, digit) != next) return false;
    if (next == LANG_NONE) return true;
    rest = next;
  }
  return false;
}

/* LangNode.alive of an expression; 0: only a search can find it. `witnesses`: has_witness() and
 * lacks_multiple() are tried, too. */
static uint8_t alive_by_multiples(Langs *langs, Lang a, bool witnesses) {
  const LangNode node = langs->nodes[a];
  if (!node.multiples || node.alive) return node.alive;
  if (node.has_empty || (witnesses && has_witness(langs, a))) return 1;
  bool dead = !may_be_alive(langs, a);
  for (uint32_t i = 0; witnesses && !dead && i < (node.kind == AND ? node.b : 1); i++)
    dead = lacks_multiple(langs, a, langs->nodes[node.kind == AND ? langs->lists[node.a + i] : a]);
  return dead && !has_failed(&langs->failure) ? 2 : 0;
}

bool lang_is_alive(Langs *langs, Lang a) {
  const LangNode *start = &langs->nodes[a];
  if (a == LANG_NONE || start->alive == 2 || has_failed(&langs->failure)) return false;
  if (start->plain || start->has_empty || start->alive == 1) return true;
  if (lang_takes_any_beginning(langs, a)) return langs->nodes[a].alive = 1, true;
  uint32_t max;
  const Lang unlimited = lang_without_max(langs, a, &max);
  if (max != LANG_NO_END) {
    const bool found = lang_ends_within(langs, unlimited, max);
    if (!has_failed(&langs->failure)) langs->nodes[a].alive = found ? 1 : 2;
    return found;
  }
  const uint8_t alive = alive_by_multiples(langs, a, true);
  if (alive) return (langs->nodes[a].alive = alive) == 1;
  const size_t most = langs->nodes[a].multiples ? MAX_SEARCHED_MULTIPLES : MAX_SEARCHED;
  Reached *reached = NULL;
  size_t count = 0, capacity = 0;
  uint32_t round = ++langs->round;
  bool found = false;
  if (!failure_grow(&langs->failure, &reached, &capacity, 64, sizeof *reached)) return false;
  reached[count++] = (Reached){a, 0};
  langs->nodes[a].round = round;
  for (size_t at = 0; at < count && !found && !has_failed(&langs->failure); at++) {
    Lang last = LANG_NONE;
    for (uint32_t class = 0; class < langs->classes.n && !found; class ++) {
      Lang next = lang_next(langs, reached[at].lang, langs->classes.first[class]);
      if (next == last) continue;
      last = next;
      if (next == LANG_NONE || langs->nodes[next].alive == 2 || langs->nodes[next].round == round) continue;
      const uint8_t known = alive_by_multiples(langs, next, count < MAX_WITNESSES);
      LangNode *node = &langs->nodes[next];
      if (known) node->alive = known;
      if (node->alive == 2) continue;
      node->round = round;
      found = node->plain || node->has_empty || node->alive == 1;
      if (found) {
        mark_path(langs, reached, at);
      } else if (failure_grow(&langs->failure, &reached, &capacity, count + 1, sizeof *reached)) {
        reached[count++] = (Reached){next, (uint32_t)at};
      }
    }
    if (count <= most) continue;
    if (most < MAX_SEARCHED) { /* Assume a multiple: without one the number is refused at its end. */
      found = true;
      mark_path(langs, reached, at);
    } else {
      fail_limit(langs, "an intersection or complement has over 32,768 states");
    }
  }
  for (size_t i = 0; !found && i < count && !has_failed(&langs->failure); i++)
    langs->nodes[reached[i].lang].alive = 2;
  free(reached);
  return found;
}

/* --- beginnings */

/* True if `a` is n or more of any characters, for some n, perhaps followed by a further expression; or if `a`
 * is a union with such a part. Every text then begins a string of `a`. */
static bool takes_any_beginning(const Langs *langs, Lang a) {
  LangNode *node = &langs->nodes[a];
  if (node->takes_any) return node->takes_any == 1;
  bool takes = false;
  if (node->kind == REPEAT) takes = node->a == langs->any_character && node->b == LANG_NO_END;
  if (node->kind == THEN) takes = node->plain && takes_any_beginning(langs, node->a);
  for (uint32_t i = 0; node->kind == OR && i < node->b && !takes; i++)
    takes = takes_any_beginning(langs, langs->lists[node->a + i]);
  node->takes_any = takes ? 1 : 2;
  return takes;
}

bool lang_takes_any_beginning(const Langs *langs, Lang a) {
  const LangNode *node = &langs->nodes[a];
  const Lang *parts = langs->lists + node->a;
  if (node->kind != AND) return takes_any_beginning(langs, a);
  return node->b == 2 && ((parts[0] == langs->any_text && takes_any_beginning(langs, parts[1])) ||
                          (parts[1] == langs->any_text && takes_any_beginning(langs, parts[0])));
}

bool lang_is_endless(const Langs *langs, Lang a) {
  while (langs->nodes[a].kind == THEN && langs->nodes[a].plain) a = langs->nodes[a].b;
  LangNode *node = &langs->nodes[a];
  if (node->endless) return node->endless == 1;
  bool endless = a == LANG_ALL || (node->plain && node->kind == REPEAT && node->b == LANG_NO_END);
  if (node->plain && node->kind == OR) endless = node->b > 0;
  for (uint32_t i = 0; node->kind == OR && i < node->b && endless; i++)
    endless = lang_is_endless(langs, langs->lists[node->a + i]);
  node->endless = endless ? 1 : 2;
  return endless;
}

/* lang_without() of an OR, where all parts lose the string, or of an AND, where one part does. */
static Lang list_without(Langs *langs, LangNode node, const char *bytes, size_t size) {
  Lang made = node.kind == OR ? LANG_NONE : LANG_ALL;
  Lang *parts = malloc(node.b * sizeof *parts);
  if (!parts) return langs_fail(langs, STATUS_FAILED, "out of memory"), LANG_NONE;
  memcpy(parts, langs->lists + node.a, node.b * sizeof *parts);
  bool done = false;
  for (uint32_t i = 0; i < node.b && !done; i++) {
    const LangKind kind = langs->nodes[parts[i]].kind;
    if (node.kind == AND && kind != OR && kind != THEN && kind != SET) continue;
    parts[i] = lang_without(langs, parts[i], bytes, size);
    /* lang_without() keeps the string if the part, or a part of it, is endless */
    done = node.kind == AND && !lang_contains(langs, parts[i], bytes, size);
  }
  made = join(langs, node.kind, parts, node.b);
  free(parts);
  if (node.kind == AND && !done)
    made = lang_and(langs, made, lang_not(langs, lang_literal(langs, bytes, size)));
  return made;
}

Lang lang_without(Langs *langs, Lang a, const char *bytes, size_t size) {
  const LangNode node = langs->nodes[a];
  const unsigned char byte = size > 0 ? (unsigned char)*bytes : 0;
  if (a == LANG_NONE || lang_is_endless(langs, a) || !langs_work(langs, 4)) return a;
  const LangNode *first = node.kind == THEN ? &langs->nodes[node.a] : &node;
  const ByteSet *set = first->kind == SET ? &langs->sets[first->a] : NULL;
  if (size > MAX_WORD) set = NULL;
  if (set && (size == 0 || !byte_set_has(set, byte))) return a;
  const Lang alone = set ? lang_byte(langs, byte) : LANG_NONE;
  if (node.kind == EMPTY) return size == 0 ? LANG_NONE : a;
  if (node.kind == SET && size > 1) return a;
  if (node.kind == SET && alone == a) return LANG_NONE;
  if (node.kind == THEN && set && alone == node.a)
    return lang_then(langs, node.a, lang_without(langs, node.b, bytes + 1, size - 1));
  if (node.kind == OR && size <= MAX_WORD) return list_without(langs, node, bytes, size);
  if (node.kind == AND) return list_without(langs, node, bytes, size);
  return lang_and(langs, a, lang_not(langs, lang_literal(langs, bytes, size)));
}

/* --- the store */

Status langs_open(Langs *langs, Error *err) {
  *langs = (Langs){.round = 0};
  byte_classes_begin(&langs->classes);
  lang_node(langs, (LangNode){.kind = OR, .plain = true, .text = true, .alive = 2});
  lang_node(langs, (LangNode){.kind = EMPTY, .has_empty = true, .plain = true, .text = true});
  lang_node(langs, (LangNode){.kind = NOT, .has_empty = true, .plain = true, .a = LANG_NONE});
  langs->any_text = langs->any_character = LANG_UNKNOWN;
  langs->any_character = lang_characters(langs, 0, 0x10ffff);
  langs->any_text = lang_repeat(langs, langs->any_character, 0, LANG_NO_END);
  return langs_check(langs, err);
}

void langs_close(Langs *langs) {
  free(langs->nodes);
  arena_release(&langs->rows);
  key_table_release(&langs->by_content);
  free(langs->lists);
  free(langs->sets);
  key_table_release(&langs->sets_by_content);
  key_table_release(&langs->charsets);
  arena_release(&langs->charset_ranges);
  free(langs->divisors);
  free(langs->stack);
  *langs = (Langs){.round = 0};
}
