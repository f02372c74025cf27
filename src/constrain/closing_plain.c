/* closing_plain.c - formulas and values that need no search; see closing.h. */
#include <stdlib.h>
#include <string.h>

#include "constrain/closing.h"
#include "constrain/frames.h"
#include "constrain/key_order.h"
#include "constrain/lang/lang_list.h"
#include "constrain/lang/regular_expression.h"
#include "constrain/schema_internal.h"

/* --- formulas that need no search */

enum { MARK_PLAIN = 1, MARK_JOINED = 2 };
enum { MAX_JUDGES = 16, MAX_MEMBERS = 256 }; /* ATOM_MEMBERS in one AND; keys that these name */

/* The subschemas that judge the members of an object together. */
typedef struct {
  uint32_t schemas[MAX_JUDGES]; /* [n] */
  uint32_t n;
  bool too_many;
} Judges;

static void add_judge(const FormulaNode *part, Judges *judges) {
  if (part->kind != FORMULA_ATOM || part->atom != ATOM_MEMBERS) return;
  judges->too_many |= judges->n == MAX_JUDGES;
  if (!judges->too_many) judges->schemas[judges->n++] = part->a;
}

/* The schema that a judge has for a member with the key; SCHEMA_NONE: it has none, so any value fits. PRECOND
 * the judge has no patterns */
static uint32_t member_schema(const Machine *m, uint32_t judge, uint32_t key) {
  const Schema *s = &m->set->schemas[judge];
  const KeySchema *named = schema_property(s, key);
  return named ? named->schema : s->additional;
}

/* True if some value of a member with the key is known to satisfy all judges. Also true if one judge allows
 * no such member and the key is not required. `key` UINT32_MAX: a key that no judge names. */
static bool key_is_free(Machine *m, const Judges *judges, uint32_t key, bool required) {
  Langs *l = &m->set->langs;
  Lang strings = LANG_ALL, numbers = LANG_ALL;
  uint32_t first = SCHEMA_NONE, n = 0;
  bool scalar[JSON_TRUE + 1] = {true, true, true};
  for (uint32_t i = 0; i < judges->n; i++) {
    const uint32_t schema = member_schema(m, judges->schemas[i], key);
    if (schema == SCHEMA_TRUE || schema == SCHEMA_NONE || schema == first) continue;
    if (schema_is_refused(m->set, schema)) return !required;
    first = schema;
    n++;
  }
  if (n <= 1) return true;
  for (uint32_t i = 0; i < judges->n; i++) {
    const uint32_t schema = member_schema(m, judges->schemas[i], key);
    if (schema == SCHEMA_NONE) continue;
    strings = lang_and(l, strings, schema_strings(m->set, schema));
    numbers = lang_and(l, numbers, schema_numbers(m->set, schema));
    for (JsonKind kind = JSON_NULL; kind <= JSON_TRUE; kind++)
      scalar[kind] &= schema_takes_scalar(m->set, schema, kind);
  }
  return scalar[JSON_NULL] || scalar[JSON_FALSE] || scalar[JSON_TRUE] ||
         lang_is_alive(l, lang_text(l, strings)) ||
         lang_is_alive(l, lang_and(l, numbers, m->set->bounded_number));
}

/* True if no required key is judged by several patterns, or by a pattern and an entry of `properties`. */
static bool required_are_free(Machine *m, const Schema *judge, const FormulaNode *lists[2]) {
  const Formulas *f = formulas_of(m);
  for (int i = 0; i < 2 && judge->patterns.count > 0; i++)
    for (uint32_t j = 0; lists[i] && j < lists[i]->b; j++) {
      const FormulaNode *part = &f->nodes[f->lists[lists[i]->a + j]];
      if (part->kind != FORMULA_ATOM || part->atom != ATOM_HAS_KEY) continue;
      const Key *key = &m->set->keys[part->a];
      uint32_t n = schema_property(judge, part->a) != NULL;
      for (size_t k = 0; k < judge->patterns.count; k++)
        n += lang_contains(&m->set->langs, judge->patterns.items[k].key, key->bytes, key->size);
      if (n > 1) return false;
    }
  return true;
}

/* True if members can be written independently of one another: those that some judge names, and those that
 * one of the two lists requires. */
static bool judges_are_free(Machine *m, const Judges *judges, const FormulaNode *lists[2]) {
  const Formulas *f = formulas_of(m);
  size_t n_keys = 0;
  if (judges->n == 1) return required_are_free(m, &m->set->schemas[judges->schemas[0]], lists);
  if (judges->n == 0) return true;
  for (uint32_t i = 0; i < judges->n; i++) {
    const Schema *s = &m->set->schemas[judges->schemas[i]];
    if (s->patterns.count > 0 || (n_keys += s->properties.count) > MAX_MEMBERS) return false;
  }
  if (!key_is_free(m, judges, UINT32_MAX, false)) return false;
  for (uint32_t i = 0; i < judges->n; i++) {
    const Schema *s = &m->set->schemas[judges->schemas[i]];
    for (size_t j = 0; j < s->properties.count; j++)
      if (!key_is_free(m, judges, s->properties.items[j].key, false)) return false;
  }
  for (int i = 0; i < 2; i++)
    for (uint32_t j = 0; lists[i] && j < lists[i]->b; j++) {
      const FormulaNode *part = &f->nodes[f->lists[lists[i]->a + j]];
      if (part->kind == FORMULA_ATOM && part->atom == ATOM_HAS_KEY && !key_is_free(m, judges, part->a, true))
        return false;
    }
  return true;
}

/* True if each choice of an OR can be satisfied together with the judges of the AND around it. */
static bool or_is_free(Machine *m, const FormulaNode *list, const Judges *outer, const FormulaNode *choices) {
  const Formulas *f = formulas_of(m);
  for (uint32_t i = 0; i < choices->b; i++) {
    const Formula formula = f->lists[choices->a + i];
    const FormulaNode choice = f->nodes[formula];
    Judges judges = *outer;
    const uint32_t own = judges.n;
    if (choice.kind == FORMULA_ATOM) add_judge(&choice, &judges);
    for (uint32_t j = 0; choice.kind == FORMULA_AND && j < choice.b; j++)
      add_judge(&f->nodes[f->lists[choice.a + j]], &judges);
    if (choice.kind == FORMULA_OR || judges.too_many) return false;
    const FormulaNode one = {.a = choices->a + i, .b = 1};
    const FormulaNode *lists[2] = {list, choice.kind == FORMULA_AND ? &choice : &one};
    if (judges.n == own && judges.n == 1) { /* required keys that the one judge may refuse */
      for (uint32_t j = 0; j < lists[1]->b; j++) {
        const FormulaNode *part = &f->nodes[f->lists[lists[1]->a + j]];
        if (part->kind == FORMULA_ATOM && part->atom == ATOM_HAS_KEY &&
            schema_refuses_key(m->set, judges.schemas[0], part->a))
          return false;
      }
    } else if (!judges_are_free(m, &judges, lists)) {
      return false;
    }
  }
  return true;
}

static bool and_is_plain(Machine *m, FormulaNode node) {
  const Formulas *f = formulas_of(m);
  Judges judges = {.n = 0};
  uint32_t n_items = 0, n_choices = 0;
  if (!(~node.atoms & (ATOM_BIT(ATOM_HAS_KEY) | ATOM_BIT(ATOM_MAX_COUNT)))) return false;
  for (uint32_t i = 0; i < node.b; i++) {
    const Formula part = f->lists[node.a + i];
    if (!closing_is_plain(m, part)) return false;
    const FormulaNode *it = &f->nodes[part];
    add_judge(it, &judges);
    n_items += it->kind == FORMULA_ATOM && it->atom == ATOM_ITEMS;
    n_choices += it->kind == FORMULA_OR && it->atoms & ATOM_BIT(ATOM_MEMBERS);
    if (it->kind == FORMULA_OR && it->atoms & (COUNT_ATOMS | ATOM_BIT(ATOM_ITEMS))) return false;
  }
  if (n_items > 1 || n_choices > 1 || judges.too_many) return false;
  if ((judges.n > 1 || n_choices) && node.atoms & COUNT_ATOMS) return false;
  const FormulaNode *lists[2] = {&node, NULL};
  if (!judges_are_free(m, &judges, lists)) return false;
  for (uint32_t i = 0; i < node.b; i++) {
    const FormulaNode part = f->nodes[f->lists[node.a + i]];
    if (part.kind == FORMULA_OR &&
        (node.atoms & ATOM_BIT(ATOM_MAX_COUNT) || !or_is_free(m, &node, &judges, &part)))
      return false;
  }
  return true;
}

bool closing_is_plain(Machine *m, Formula formula) {
  Formulas *f = formulas_of(m);
  const FormulaNode node = f->nodes[formula];
  static const uint32_t simple = ATOM_BIT(ATOM_CHILD) | ATOM_BIT(ATOM_HAS_KEY) | ATOM_BIT(ATOM_MIN_COUNT) |
                                 ATOM_BIT(ATOM_MAX_COUNT) | ATOM_BIT(ATOM_MEMBERS) | ATOM_BIT(ATOM_ITEMS);
  if (node.mark) return node.mark == MARK_PLAIN;
  bool plain = !(node.atoms & ~simple);
  if (node.kind == FORMULA_NOT || node.kind == FORMULA_ONE) plain = false;
  if (node.kind == FORMULA_AND && plain) plain = and_is_plain(m, node);
  for (uint32_t i = 0; node.kind == FORMULA_OR && plain && i < node.b; i++)
    plain = closing_is_plain(m, f->lists[node.a + i]);
  if (!m->set->is_proving) f->nodes[formula].mark = plain ? MARK_PLAIN : MARK_JOINED;
  return plain;
}

/* --- languages with few strings */

static bool count_value(void *user, const char *bytes, size_t size) {
  return ++*(uint32_t *)user <= CLOSING_FEW;
}

bool closing_has_few(Machine *m, Lang texts) {
  uint32_t n = 0;
  const uint64_t key = (uint64_t)texts + 1;
  const KeyEntry *known = key_table_find(&m->few, key);
  if (known) return known->value.number;
  if (lang_takes_any_beginning(&m->set->langs, texts)) return false;
  const bool few = lang_list(&m->set->langs, texts, count_value, &n) && n <= CLOSING_FEW;
  if (!key_table_add(&m->few, (KeyEntry){key, {.number = few}})) machine_fail(m, "out of memory");
  return few;
}

Lang closing_plain_number(Machine *m) {
  Langs *l = &m->set->langs;
  if (m->plain_number != LANG_UNKNOWN) return m->plain_number;
  return m->plain_number = lang_pattern(l, "(?!-0$)-?(?:0|[1-9][0-9]*)(?:\\.[0-9]*[1-9])?");
}

/* --- values that never run out */

static bool is_abundant(Machine *m, uint32_t schema, int depth);

static Formula ever_unique(void *user, const FormulaNode *atom, Formula itself) {
  return FORMULA_TRUE;
}

Formula closing_without_unique(Machine *m, Formula rest) {
  return formula_map(formulas_of(m), rest, ATOM_BIT(ATOM_UNIQUE), ever_unique, NULL);
}

/* True if an array or object with the formula `rest` can close in endlessly many ways: by further members or
 * items, or by one child that is_abundant(). `frame`: the open array or object; NULL: not begun. */
static bool rest_is_abundant(Machine *m, const Frame *frame, Formula rest, FrameKind kind, int depth) {
  const Formulas *f = formulas_of(m);
  const Formula others = closing_without_unique(m, rest);
  const FormulaNode node = f->nodes[others];
  const bool unique = others != rest;
  if (others == FORMULA_TRUE) return !unique;
  if (others == FORMULA_FALSE || node.atoms & ATOM_BIT(ATOM_MAX_COUNT) || !closing_is_plain(m, others))
    return false;
  if (node.kind == FORMULA_OR) {
    for (uint32_t i = 0; i < node.b; i++)
      if (!rest_is_abundant(m, frame, f->lists[node.a + i], kind, depth)) return false;
    return true;
  }
  const uint32_t n = node.kind == FORMULA_AND ? node.b : 1;
  bool has_judge = false, open = true, found = false;
  for (uint32_t i = 0; i < n; i++) {
    const FormulaNode part = node.kind == FORMULA_AND ? f->nodes[f->lists[node.a + i]] : node;
    if (part.kind == FORMULA_OR && part.atoms & ATOM_BIT(ATOM_MEMBERS)) return false;
    if (part.kind != FORMULA_ATOM || (part.atom != ATOM_MEMBERS && part.atom != ATOM_ITEMS)) continue;
    const Schema *s = &m->set->schemas[part.a];
    if (kind == FRAME_ARRAY) {
      open &= unique ? s->prefix.count == 0 && is_abundant(m, s->rest, depth + 1)
                     : !schema_is_refused(m->set, s->rest);
      has_judge = true;
      continue;
    }
    open &= s->additional == SCHEMA_NONE || !schema_is_refused(m->set, s->additional);
    for (size_t j = 0; j < s->properties.count && !has_judge && !found; j++) {
      const KeySchema *it = &s->properties.items[j];
      const Key *key = &m->set->keys[it->key];
      if (frame && (frame_has_had(frame, key->bytes, key->size) ||
                    (frame->order && key_order_rank(frame->order, it->key) <= frame->rank)))
        continue;
      found = is_abundant(m, it->schema, depth + 1);
    }
    if (has_judge) found = false; /* this schema may refuse the member that was found */
    has_judge = true;
  }
  return open || found;
}

enum { ABUNDANT_UNKNOWN, ABUNDANT, SCARCE };

/* True if the schema is known to have endlessly many values, or over CLOSING_FEW strings or numbers. */
static bool is_abundant(Machine *m, uint32_t schema, int depth) {
  Langs *l = &m->set->langs;
  if (schema == SCHEMA_TRUE || schema == SCHEMA_NONE) return true;
  if (schema == SCHEMA_FALSE || depth > 4) return false;
  if (m->set->schemas[schema].abundance) return m->set->schemas[schema].abundance == ABUNDANT;
  const Lang strings = schema_strings(m->set, schema), numbers = schema_numbers(m->set, schema);
  const Lang plain = numbers == LANG_NONE ? numbers : lang_and(l, numbers, closing_plain_number(m));
  bool found = strings == LANG_ALL || numbers == LANG_ALL;
  found = found || (lang_is_alive(l, lang_text(l, strings)) && !closing_has_few(m, lang_text(l, strings)));
  found = found || (lang_is_alive(l, plain) && !closing_has_few(m, plain));
  for (int i = 0; i < 2 && !found; i++) {
    const Formula formula = schema_formula(m->set, schema, i == 0 ? JSON_OBJECT : JSON_ARRAY);
    found = rest_is_abundant(m, NULL, formula, i == 0 ? FRAME_OBJECT : FRAME_ARRAY, depth);
  }
  if (depth <= 1) m->set->schemas[schema].abundance = found ? ABUNDANT : SCARCE;
  return found;
}

bool closing_never_runs_out(Machine *m, const Frame *frame) {
  return rest_is_abundant(m, frame, frame_rest(m, frame), (FrameKind)frame->kind, 0);
}

bool closing_is_searched(Machine *m, const Frame *frame) {
  uint8_t *known = &((Frame *)frame)->searched;
  if (frame->kind == FRAME_ROOT) return false;
  if (*known == 0 || m->set->is_proving) {
    const bool joined =
        frame->hashing ? !closing_never_runs_out(m, frame) : !closing_is_plain(m, frame_rest(m, frame));
    *known = joined ? 2 : 1;
  }
  return *known == 2;
}
