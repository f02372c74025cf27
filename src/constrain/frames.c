/* frames.c - what an open array or object still needs, step by step; see frames.h. */
#include "constrain/frames.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash64.h"
#include "constrain/closing.h"
#include "constrain/evaluated.h"
#include "constrain/key_order.h"

static Formula child_atom(const Machine *m, uint32_t schema) {
  return schema <= SCHEMA_TRUE ? schema : formula_atom(formulas_of(m), ATOM_CHILD, schema, 0);
}

Frame *frame_copy(Machine *m, const Frame *frame, uint32_t n_goals, uint32_t n_children) {
  Frame *made = machine_alloc(m, sizeof *made + (2 * (size_t)n_goals + n_children) * sizeof(uint32_t));
  if (!made) return NULL;
  *made = *frame;
  made->n_goals = n_goals;
  made->n_children = n_children;
  made->print = 0;
  made->is_unsure = false;
  made->searched = 0;
  for (int i = 0; i < 3; i++) made->lex[i] = LANG_UNKNOWN;
  if (n_goals == frame->n_goals)
    memcpy(made->numbers, frame->numbers, 2 * (size_t)n_goals * sizeof(uint32_t));
  return made;
}

/* --- the places of children */

/* The index of a schema in children[0..n), the list last stored by keep_places() or collect_children(); n if
 * it is absent. An index from an earlier list is recognised: it finds another schema in children[]. */
static uint32_t place_of(const Machine *m, const uint32_t *children, uint32_t n, uint32_t schema) {
  const uint32_t at = m->places[schema];
  return at < n && children[at] == schema ? at : n;
}

/* Stores the indices of the list's schemas, so that place_of() need not scan thousands. */
static void keep_places(Machine *m, const uint32_t *children, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) m->places[children[i]] = i;
}

/* --- what is still possible */

/* The goals of a frame, and the schemas that the goals' atoms name for the frame's open child. */
typedef struct {
  Machine *m;
  const Frame *frame;
  const Formula *goals;
  uint32_t children[MAX_GOALS]; /* [n] */
  uint32_t n;
} Relax;

static Formula relaxed(Relax *r, Formula formula, bool positive);

/* True if ATOM_MEMBERS of the schema leaves keys for n more members. */
static bool has_keys_left(const Relax *r, uint32_t schema, uint32_t n) {
  const SchemaSet *set = r->m->set;
  const Schema *s = &set->schemas[schema];
  if (!schema_is_refused(set, s->additional) || s->patterns.count > 0) return true;
  for (size_t i = 0; i < s->properties.count && n > 0; i++) {
    const KeySchema *it = &s->properties.items[i];
    if (schema_is_refused(set, it->schema)) continue;
    if (r->frame->order && key_order_rank(r->frame->order, it->key) <= r->frame->rank) continue;
    n -= !frame_has_had(r->frame, set->keys[it->key].bytes, set->keys[it->key].size);
  }
  return n == 0;
}

/* True if ATOM_ITEMS of the schema refuses some item that must still come to reach `min` items. */
static bool refuses_items(const Relax *r, uint32_t schema, uint32_t min) {
  const SchemaSet *set = r->m->set;
  const uint32_t n_prefix = (uint32_t)set->schemas[schema].prefix.count;
  for (uint32_t i = r->frame->count; i < min && i < n_prefix; i++)
    if (schema_is_refused(set, schema_item(set, schema, i))) return true;
  return min > n_prefix && min > r->frame->count && schema_is_refused(set, schema_item(set, schema, min - 1));
}

/* True if two parts of an AND exclude each other, or more keys are required than may still come. */
static bool contradicts(const Relax *r, const FormulaNode *list) {
  const Formulas *f = formulas_of(r->m);
  const Formula *parts = f->lists + list->a;
  const uint32_t all = list->atoms, counted = ATOM_BIT(ATOM_HAS_KEY) | ATOM_BIT(ATOM_MIN_COUNT);
  if (r->frame->kind == FRAME_OBJECT && !(all & counted)) return false;
  uint32_t required = 0, max = UINT32_MAX, min = 0;
  for (uint32_t i = 0; i < list->b; i++) {
    const FormulaNode *part = &f->nodes[parts[i]];
    if (part->kind != FORMULA_ATOM) continue;
    required += part->atom == ATOM_HAS_KEY;
    if (part->atom == ATOM_MAX_COUNT && part->a < max) max = part->a;
    if (part->atom == ATOM_MIN_COUNT && part->a > min) min = part->a;
  }
  if (min > max || (uint64_t)required + r->frame->count > max) return true;
  for (uint32_t i = 0; i < list->b; i++) {
    const FormulaNode *part = &f->nodes[parts[i]];
    if (part->kind != FORMULA_ATOM) continue;
    if (part->atom == ATOM_ITEMS && refuses_items(r, part->a, min)) return true;
    if (part->atom != ATOM_MEMBERS) continue;
    if (min > r->frame->count && !has_keys_left(r, part->a, min - r->frame->count)) return true;
    if (required == 0) continue;
    for (uint32_t j = 0; j < list->b; j++) {
      const FormulaNode *key = &f->nodes[parts[j]];
      if (key->kind != FORMULA_ATOM || key->atom != ATOM_HAS_KEY) continue;
      if (schema_refuses_key(r->m->set, part->a, key->a)) return true;
    }
  }
  return false;
}

/* Over-approximates FORMULA_ONE by an OR over i: part i holds, and none of the others. The negation is: no
 * part holds, or at least two do. Long lists are simplified, which only allows more: with more than 16 parts
 * "none of the others" is left out, and with more than 8 the negation is FORMULA_TRUE. */
static Formula relaxed_one(Relax *r, FormulaNode node, bool positive) {
  Formulas *f = formulas_of(r->m);
  if (!positive && node.b > 8) return FORMULA_TRUE;
  Formula made = FORMULA_FALSE, none = FORMULA_TRUE;
  for (uint32_t i = 0; i < node.b; i++) {
    Formula with = relaxed(r, f->lists[node.a + i], true);
    if (!positive) none = formula_and(f, none, relaxed(r, f->lists[node.a + i], false));
    for (uint32_t j = 0; j < node.b && with != FORMULA_FALSE && node.b <= 16; j++) {
      if (positive && j != i) with = formula_and(f, with, relaxed(r, f->lists[node.a + j], false));
    }
    if (positive) {
      made = formula_or(f, made, with);
      continue;
    }
    for (uint32_t j = i + 1; j < node.b && with != FORMULA_FALSE; j++)
      made = formula_or(f, made, formula_and(f, with, relaxed(r, f->lists[node.a + j], true)));
  }
  return formula_or(f, made, positive ? FORMULA_FALSE : none);
}

/* relaxed() of a list of parts: all must hold or, without `all`, one. The parts are joined in one call,
 * because each call sorts the whole list. */
static Formula relaxed_parts(Relax *r, const FormulaNode *node, bool all, bool positive) {
  Formulas *f = formulas_of(r->m);
  Formula few[16], *parts = node->b <= 16 ? few : malloc(node->b * sizeof *parts), made = !all;
  if (!parts) return machine_fail(r->m, "out of memory"), FORMULA_FALSE;
  uint32_t n = 0;
  while (n < node->b && (parts[n] = relaxed(r, f->lists[node->a + n], positive)) != (Formula)!all) n++;
  if (n == node->b) made = formula_join(f, all ? FORMULA_AND : FORMULA_OR, parts, n);
  if (parts != few) free(parts);
  return made;
}

/* Over-approximates the formula (its negation without `positive`) by a formula over goals of the open child.
 * Atoms that the rest of the text may still decide count as true. FORMULA_FALSE: the formula can no longer
 * become true. */
static Formula relaxed(Relax *r, Formula formula, bool positive) {
  Formulas *f = formulas_of(r->m);
  if (!failure_work(&f->failure, 8)) return FORMULA_FALSE;
  const FormulaNode node = f->nodes[formula];
  switch ((FormulaKind)node.kind) {
  case FORMULA_CONSTANT: return (formula == FORMULA_TRUE) == positive;
  case FORMULA_NOT: return relaxed(r, node.a, !positive);
  case FORMULA_ONE: return relaxed_one(r, node, positive);
  case FORMULA_AND:
  case FORMULA_OR: {
    bool both = (node.kind == FORMULA_AND) == positive;
    if (both && positive && contradicts(r, &node)) return FORMULA_FALSE;
    return relaxed_parts(r, &node, both, positive);
  }
  case FORMULA_ATOM: break;
  }
  if (node.atom == ATOM_GOAL) return relaxed(r, r->goals[node.a], positive);
  if (node.atom != ATOM_CHILD) return FORMULA_TRUE;
  const uint32_t at = place_of(r->m, r->children, r->n, node.a);
  if (at == r->n) return FORMULA_TRUE;
  const Formula goal = formula_atom(f, ATOM_GOAL, at, 0);
  return positive ? goal : formula_not(f, goal);
}

static void collect_children(Relax *r, Formula formula) {
  const Formulas *f = formulas_of(r->m);
  const FormulaNode *node = &f->nodes[formula];
  if (!(node->atoms & ATOM_BIT(ATOM_CHILD))) return;
  if (node->kind == FORMULA_NOT) {
    collect_children(r, node->a);
  } else if (node->kind != FORMULA_ATOM) {
    for (uint32_t i = 0; i < node->b; i++) collect_children(r, f->lists[node->a + i]);
  } else if (place_of(r->m, r->children, r->n, node->a) == r->n) {
    if (r->n == MAX_GOALS) {
      machine_limit(r->m, "over 4,096 subschemas judge one value");
    } else {
      r->m->places[node->a] = r->n;
      r->children[r->n++] = node->a;
    }
  }
}

static bool child_is_possible(Machine *m, const Frame *frame);

/* Completes `frame`, in which a child begins and whose goals are set. `before` is the frame before the child.
 * Adds child_need, and the schemas of the child that the goals name. NULL if the goals or the child have
 * become impossible. */
static const Frame *with_child(Machine *m, Frame *frame, const Frame *before) {
  Relax *r = malloc(sizeof *r);
  if (!r) return machine_fail(m, "out of memory"), NULL;
  r->m = m, r->frame = frame, r->goals = frame_goals(frame), r->n = 0;
  for (uint32_t i = 0; i < frame->n_goals; i++) collect_children(r, frame_goals(frame)[i]);
  Formula need = relaxed(r, frame->need, true);
  Frame *made = need == FORMULA_FALSE ? NULL : frame_copy(m, frame, frame->n_goals, r->n);
  if (made) {
    memcpy(made->numbers + 2 * (size_t)made->n_goals, r->children, r->n * sizeof(uint32_t));
    made->child_need = need;
  }
  const uint32_t n_children = r->n;
  free(r);
  if (!made) return NULL;
  if (closing_is_searched(m, made)) {
    bool unsure = false;
    need = closing_child_need(m, made, before, &unsure);
    made->child_need = need;
    made->is_unsure = unsure;
    return need == FORMULA_FALSE ? NULL : made;
  }
  return n_children == 0 || child_is_possible(m, made) ? made : NULL;
}

bool frame_is_possible(Machine *m, const Frame *frame) {
  Relax r;
  r.m = m, r.frame = frame, r.goals = frame_goals(frame), r.n = 0;
  return frame->n_goals == 0 || relaxed(&r, frame->need, true) != FORMULA_FALSE;
}

static Formula formula_of_goal(void *user, const FormulaNode *atom, Formula itself) {
  const Formula *goals = user;
  return goals[atom->a];
}

Formula frame_rest(Machine *m, const Frame *frame) {
  return formula_map(formulas_of(m), frame->need, ATOM_BIT(ATOM_GOAL), formula_of_goal,
                     (void *)frame_goals(frame));
}

/* --- the open child */

typedef struct {
  const bool *values;
} Values;

static Formula value_of_goal(void *user, const FormulaNode *atom, Formula itself) {
  return ((const Values *)user)->values[atom->a];
}

/* True if child_need allows the open child to have these verdicts. */
static bool frame_allows(Machine *m, const Frame *frame, const bool *verdicts) {
  Values values = {verdicts};
  return formula_map(formulas_of(m), frame->child_need, ATOM_BIT(ATOM_GOAL), value_of_goal, &values) !=
         FORMULA_FALSE;
}

bool frame_child_scalar(Machine *m, const Frame *frame, JsonKind kind, bool *verdicts) {
  for (uint32_t i = 0; i < frame->n_children; i++)
    verdicts[i] = schema_takes_scalar(m->set, frame_children(frame)[i], kind);
  return frame_allows(m, frame, verdicts);
}

/* The formula, child_need or a part of it, with each goal replaced by the language of its schema. */
static Lang lang_of(Machine *m, const Frame *frame, Formula formula, JsonKind kind) {
  const Formulas *f = formulas_of(m);
  Langs *l = &m->set->langs;
  const FormulaNode node = f->nodes[formula];
  switch ((FormulaKind)node.kind) {
  case FORMULA_CONSTANT: return formula == FORMULA_TRUE ? LANG_ALL : LANG_NONE;
  case FORMULA_NOT: return lang_not(l, lang_of(m, frame, node.a, kind));
  case FORMULA_ATOM: {
    uint32_t schema = frame_children(frame)[node.a];
    return kind == JSON_STRING ? schema_strings(m->set, schema) : schema_numbers(m->set, schema);
  }
  case FORMULA_AND:
  case FORMULA_OR: {
    const size_t start = l->n_stack;
    for (uint32_t i = 0; i < node.b; i++) lang_push(l, lang_of(m, frame, f->lists[node.a + i], kind));
    return lang_join_pushed(l, start, node.kind == FORMULA_AND ? lang_and_all : lang_or_many);
  }
  case FORMULA_ONE: break; /* relaxed() makes none */
  }
  return LANG_ALL;
}

Lang frame_child_lang(Machine *m, const Frame *frame, JsonKind kind) {
  return lang_of(m, frame, frame->child_need, kind);
}

/* True if an array or object, as `kind` says, may be the child. */
static bool container_is_possible(Machine *m, const Frame *frame, FrameKind kind) {
  const ArenaMark mark = machine_mark(m);
  const bool may = frame_open(m, frame, kind) != NULL;
  machine_release(m, mark);
  return may;
}

static Formula if_proven(void *user, const FormulaNode *atom, Formula itself) {
  const Relax *r = user;
  return schema_is_refused(r->m->set, frame_children(r->frame)[atom->a]) ? FORMULA_FALSE : itself;
}

bool frame_child_text_is_possible(Machine *m, const Frame *frame) {
  Langs *l = &m->set->langs;
  bool verdicts[MAX_GOALS];
  for (JsonKind kind = JSON_NULL; kind <= JSON_TRUE; kind++)
    if (frame_child_scalar(m, frame, kind, verdicts)) return true;
  const Lang strings = frame_child_lang(m, frame, JSON_STRING);
  if (strings == LANG_ALL || lang_is_alive(l, lang_text(l, strings))) return true;
  const Lang numbers = frame_child_lang(m, frame, JSON_NUMBER);
  return lang_is_alive(l, lang_and(l, numbers, m->set->bounded_number));
}

/* True if some value may be the open child. PRECOND child_need has no NOT. */
static bool child_is_possible(Machine *m, const Frame *frame) {
  Frame *made = (Frame *)frame;
  const Relax r = {.m = m, .frame = frame};
  const Formula need = frame->child_need;
  if (m->set->is_proving)
    made->child_need = formula_map(formulas_of(m), need, ATOM_BIT(ATOM_GOAL), if_proven, (void *)&r);
  /* A need that is a single goal can come true: schemas without values have become `false`
   * (closing_find_dead()). */
  bool may = formulas_of(m)->nodes[made->child_need].kind == FORMULA_ATOM;
  if (!may && made->child_need != FORMULA_FALSE)
    may = frame_child_text_is_possible(m, frame) || container_is_possible(m, frame, FRAME_OBJECT) ||
          container_is_possible(m, frame, FRAME_ARRAY);
  made->child_need = need;
  return may;
}

/* --- opening */

const Frame *frame_root(Machine *m, uint32_t schema) {
  const Frame none = {.kind = FRAME_ROOT};
  Frame *made = frame_copy(m, &none, 1, 0);
  if (!made) return NULL;
  made->numbers[0] = child_atom(m, schema);
  made->numbers[1] = SCHEMA_NONE;
  made->need = formula_atom(formulas_of(m), ATOM_GOAL, 0, 0);
  return with_child(m, made, &none);
}

const Frame *frame_open(Machine *m, const Frame *parent, FrameKind kind) {
  const Frame *made = frame_inside(m, parent, kind);
  return made && closing_of(m, made) != CLOSE_NEVER ? made : NULL;
}

const Frame *frame_inside(Machine *m, const Frame *parent, FrameKind kind) {
  NumberList schemas = {0};
  Error err;
  const JsonKind json = kind == FRAME_OBJECT ? JSON_OBJECT : JSON_ARRAY;
  const uint32_t *children = frame_children(parent);
  Status status = STATUS_OK;
  for (uint32_t i = 0; i < parent->n_children && status == STATUS_OK; i++)
    status = number_list_add(&schemas, children[i], &err);
  for (uint32_t i = 0; i < parent->n_children && status == STATUS_OK && m->has_open; i++)
    status = evaluated_goals(m, children[i], &schemas, &err);
  const Frame start = {
      .up = parent, .kind = (uint8_t)kind, .hashing = parent->hashing, .need = parent->child_need};
  Frame *made = status == STATUS_OK ? frame_copy(m, &start, (uint32_t)schemas.count, 0) : NULL;
  for (uint32_t i = 0; made && i < made->n_goals; i++) {
    made->numbers[i] = schema_formula(m->set, schemas.items[i], json);
    made->numbers[made->n_goals + i] = schemas.items[i];
    made->hashing |= (formulas_of(m)->nodes[made->numbers[i]].atoms & ATOM_BIT(ATOM_UNIQUE)) != 0;
  }
  if (made && kind == FRAME_OBJECT && m->set->options.ordered_keys)
    made->order = key_order_of(m, schemas.items, (uint32_t)schemas.count);
  free(schemas.items);
  if (status != STATUS_OK) machine_fail(m, err.text);
  return made && frame_is_possible(m, made) ? made : NULL;
}

/* --- steps */

typedef struct {
  Machine *m;
  const Frame *frame;
  uint32_t count; /* members or items, including the one that begins */
  uint32_t key;   /* number of the member's key; UINT32_MAX: no keyword names it */
  uint32_t rank;  /* rank of the key in frame->order; 0: frame->order is NULL */
  const char *bytes;
  size_t size;
} Step;

static Formula count_atom(const FormulaNode *atom, uint32_t count, Formula itself) {
  if (atom->atom == ATOM_MIN_COUNT) return count >= atom->a ? FORMULA_TRUE : itself;
  return count > atom->a ? FORMULA_FALSE : itself;
}

static Formula true_child(void *user, const FormulaNode *atom, Formula itself) {
  return atom->a <= SCHEMA_TRUE ? atom->a : itself;
}

static Formula member_begins(void *user, const FormulaNode *atom, Formula itself) {
  const Step *s = user;
  Formulas *f = formulas_of(s->m);
  const Schema *schema = &s->m->set->schemas[atom->a];
  switch ((AtomKind)atom->atom) {
  case ATOM_HAS_KEY:
    if (atom->a == s->key) return FORMULA_TRUE;
    return s->rank && key_order_rank(s->frame->order, atom->a) < s->rank ? FORMULA_FALSE : itself;
  case ATOM_MEMBERS: {
    Formula member = schema_member(s->m->set, atom->a, s->key, s->bytes, s->size);
    return formula_and(f, formula_map(f, member, ATOM_BIT(ATOM_CHILD), true_child, NULL), itself);
  }
  case ATOM_NAMES:
    return lang_contains(&s->m->set->langs, schema_strings(s->m->set, schema->names), s->bytes, s->size)
               ? itself
               : FORMULA_FALSE;
  case ATOM_OPEN_MEMBERS: {
    Formula done = evaluated_member(s->m, s->frame, atom->a, s->key, s->bytes, s->size);
    return formula_and(f, formula_or(f, done, child_atom(s->m, schema->open_members)), itself);
  }
  default: return count_atom(atom, s->count, itself);
  }
}

/* ATOM_CONTAINS after n items that fit. */
static Formula contains(const Machine *m, uint32_t schema, uint32_t n) {
  const Schema *s = &m->set->schemas[schema];
  if (n > s->max_contains) return FORMULA_FALSE;
  if (n >= s->min_contains && s->max_contains == UINT32_MAX) return FORMULA_TRUE;
  return formula_atom(formulas_of(m), ATOM_CONTAINS, schema, n);
}

static Formula item_begins(void *user, const FormulaNode *atom, Formula itself) {
  const Step *s = user;
  Formulas *f = formulas_of(s->m);
  const Schema *schema = &s->m->set->schemas[atom->a];
  switch ((AtomKind)atom->atom) {
  case ATOM_ITEMS:
    return formula_and(f, child_atom(s->m, schema_item(s->m->set, atom->a, s->count - 1)), itself);
  case ATOM_CONTAINS: {
    Formula fits = child_atom(s->m, schema->contains);
    Formula one_more = formula_and(f, fits, contains(s->m, atom->a, atom->b + 1));
    return formula_or(f, one_more, formula_and(f, formula_not(f, fits), contains(s->m, atom->a, atom->b)));
  }
  case ATOM_OPEN_ITEMS: {
    Formula done = evaluated_item(s->m, atom->a, s->count - 1);
    return formula_and(f, formula_or(f, done, child_atom(s->m, schema->open_items)), itself);
  }
  default: return count_atom(atom, s->count, itself);
  }
}

#define ITEM_ATOMS (COUNT_ATOMS | ATOM_BIT(ATOM_ITEMS) | ATOM_BIT(ATOM_CONTAINS) | ATOM_BIT(ATOM_OPEN_ITEMS))
#define MEMBER_ATOMS                                                                                         \
  (COUNT_ATOMS | ATOM_BIT(ATOM_HAS_KEY) | ATOM_BIT(ATOM_MEMBERS) | ATOM_BIT(ATOM_NAMES) |                    \
   ATOM_BIT(ATOM_OPEN_MEMBERS))

static const Frame *begin_child(Machine *m, const Frame *frame, Step *step, Seen *seen) {
  Frame *made = frame_copy(m, frame, frame->n_goals, 0);
  if (!made) return NULL;
  made->count++;
  made->rank = step->rank;
  if (seen) made->seen = seen;
  bool member = frame->kind == FRAME_OBJECT;
  for (uint32_t i = 0; i < made->n_goals; i++)
    made->numbers[i] = formula_map(formulas_of(m), made->numbers[i], member ? MEMBER_ATOMS : ITEM_ATOMS,
                                   member ? member_begins : item_begins, step);
  return with_child(m, made, frame);
}

const Frame *frame_next_item(Machine *m, const Frame *frame) {
  Step step = {.m = m, .frame = frame, .count = frame->count + 1};
  return begin_child(m, frame, &step, NULL);
}

static uint64_t sum_with(const Seen *before, uint64_t hash) {
  return (before ? before->sum : 0) + hash64(&hash, sizeof hash, 7);
}

const Frame *frame_next_member(Machine *m, const Frame *frame, const char *key, size_t size) {
  uint64_t hash = hash64(key, size, 1);
  if (frame_has_had(frame, key, size)) return NULL;
  Step step = {.m = m,
               .frame = frame,
               .count = frame->count + 1,
               .key = schema_key(m->set, key, size, false),
               .size = size};
  if (frame->order) step.rank = key_order_rank(frame->order, step.key);
  if (step.rank < frame->rank ||
      (step.rank == frame->rank && step.rank > 0 && step.rank <= frame->order->keys.count))
    return NULL;
  Seen *seen = machine_alloc(m, sizeof *seen);
  char *bytes = machine_alloc(m, size + 1);
  if (!seen || !bytes) return NULL;
  memcpy(bytes, key, size);
  *seen = (Seen){
      .before = frame->seen, .hash = hash, .sum = sum_with(frame->seen, hash), .bytes = bytes, .size = size};
  step.bytes = bytes;
  return begin_child(m, frame, &step, seen);
}

static Formula skipped(void *user, const FormulaNode *atom, Formula itself) {
  const Step *s = user;
  return key_order_rank(s->frame->order, atom->a) <= s->rank ? FORMULA_FALSE : itself;
}

bool frame_may_skip(Machine *m, const Frame *frame, uint32_t rank) {
  Step step = {.m = m, .frame = frame, .rank = rank};
  const ArenaMark mark = machine_mark(m);
  Frame *made = frame_copy(m, frame, frame->n_goals, 0);
  bool changed = false;
  if (made) made->rank = rank;
  for (uint32_t i = 0; made && i < made->n_goals; i++) {
    made->numbers[i] = formula_map(formulas_of(m), made->numbers[i], ATOM_BIT(ATOM_HAS_KEY), skipped, &step);
    changed |= made->numbers[i] != frame->numbers[i];
    changed |= (formulas_of(m)->nodes[made->numbers[i]].atoms & ATOM_BIT(ATOM_MIN_COUNT)) != 0;
  }
  bool may = made && (!changed || frame_is_possible(m, made));
  if (may && changed && closing_is_searched(m, made)) may = closing_of(m, made) != CLOSE_NEVER;
  machine_release(m, mark);
  return may;
}

typedef struct {
  const Machine *m;
  const Frame *frame;
  const bool *verdicts;
  bool repeated;
} Ended;

static Formula child_verdict(void *user, const FormulaNode *atom, Formula itself) {
  const Ended *e = user;
  if (atom->atom == ATOM_UNIQUE) return e->repeated ? FORMULA_FALSE : itself;
  const uint32_t at = place_of(e->m, frame_children(e->frame), e->frame->n_children, atom->a);
  return at < e->frame->n_children ? (Formula)e->verdicts[at] : itself;
}

const Frame *frame_child_ended(Machine *m, const Frame *frame, const bool *verdicts, uint64_t hash) {
  const Frame *made = frame_after_child(m, frame, verdicts, hash);
  if (!made || made->kind == FRAME_ROOT) return made;
  return closing_of(m, made) != CLOSE_NEVER ? made : NULL;
}

const Frame *frame_after_child(Machine *m, const Frame *frame, const bool *verdicts, uint64_t hash) {
  Ended ended = {m, frame, verdicts, false};
  Frame *made = frame_copy(m, frame, frame->n_goals, 0);
  if (!made) return NULL;
  made->child_need = FORMULA_TRUE;
  if (frame->hashing && frame->kind == FRAME_ARRAY) {
    for (const Seen *seen = frame->seen; seen && !ended.repeated; seen = seen->before)
      ended.repeated = seen->hash == hash;
    Seen *seen = machine_alloc(m, sizeof *seen);
    if (!seen) return NULL;
    *seen = (Seen){.before = frame->seen, .hash = hash, .sum = sum_with(frame->seen, hash)};
    made->seen = seen;
    made->hash = (rotate64(made->hash, 5) ^ hash) * UINT64_C(0x9e3779b97f4a7c15);
  } else if (frame->hashing && frame->kind == FRAME_OBJECT) {
    const uint64_t pair[2] = {frame->seen->hash, hash};
    made->hash += hash64(pair, sizeof pair, 2);
  }
  const uint32_t atoms = ATOM_BIT(ATOM_CHILD) | ATOM_BIT(ATOM_UNIQUE);
  keep_places(m, frame_children(frame), frame->n_children);
  for (uint32_t i = 0; i < made->n_goals; i++)
    made->numbers[i] = formula_map(formulas_of(m), made->numbers[i], atoms, child_verdict, &ended);
  return frame_is_possible(m, made) ? made : NULL;
}

/* --- the end */

uint64_t frame_value_hash(const Frame *frame) {
  const uint64_t parts[2] = {frame->hash, frame->count};
  return frame->hashing ? hash64(parts, sizeof parts, 5 + frame->kind) : 0;
}

static Formula at_end(void *user, const FormulaNode *atom, Formula itself) {
  const Step *s = user;
  const Schema *schema = &s->m->set->schemas[atom->a];
  switch ((AtomKind)atom->atom) {
  case ATOM_HAS_KEY: return FORMULA_FALSE;
  case ATOM_MIN_COUNT: return s->count >= atom->a;
  case ATOM_MAX_COUNT: return s->count <= atom->a;
  case ATOM_CONTAINS: return atom->b >= schema->min_contains && atom->b <= schema->max_contains;
  case ATOM_SAME: return itself;
  default: return FORMULA_TRUE;
  }
}

/* The verdict of the value's goal with the atom's schema; `itself`: unknown; FORMULA_FALSE: no such goal. */
static Formula same_value(void *user, const FormulaNode *atom, Formula itself) {
  const Frame *frame = user;
  for (uint32_t i = 0; i < frame->n_goals; i++)
    if (frame_goal_schemas(frame)[i] == atom->a)
      return frame_goals(frame)[i] <= FORMULA_TRUE ? frame_goals(frame)[i] : itself;
  return FORMULA_FALSE;
}

bool frame_may_end(Machine *m, const Frame *frame, bool *verdicts) {
  Step step = {.m = m, .frame = frame, .count = frame->count};
  ArenaMark mark = machine_mark(m);
  Frame *made = frame_copy(m, frame, frame->n_goals, 0);
  if (!made) return false;
  const uint32_t ends = UINT32_MAX & ~ATOM_BIT(ATOM_SAME);
  for (uint32_t i = 0; i < made->n_goals; i++)
    made->numbers[i] = formula_map(formulas_of(m), made->numbers[i], ends, at_end, &step);
  for (uint32_t round = 0; m->has_open && round < made->n_goals; round++)
    for (uint32_t i = 0; i < made->n_goals; i++)
      made->numbers[i] = formula_map(formulas_of(m), made->numbers[i], ATOM_BIT(ATOM_SAME), same_value, made);
  for (uint32_t i = 0; i < frame->up->n_children; i++) verdicts[i] = made->numbers[i] == FORMULA_TRUE;
  bool may = frame_allows(m, frame->up, verdicts);
  machine_release(m, mark);
  return may;
}

/* --- keys */

static Lang keys_of(Machine *m, const Frame *frame, Formula formula, bool positive) {
  const Formulas *f = formulas_of(m);
  Langs *l = &m->set->langs;
  const FormulaNode node = f->nodes[formula];
  switch ((FormulaKind)node.kind) {
  case FORMULA_CONSTANT: return (formula == FORMULA_TRUE) == positive ? LANG_ALL : LANG_NONE;
  case FORMULA_NOT: return keys_of(m, frame, node.a, !positive);
  case FORMULA_ONE:
    if (!positive) return LANG_ALL;
    __attribute__((fallthrough));
  case FORMULA_AND:
  case FORMULA_OR: {
    bool both = (node.kind == FORMULA_AND) == positive;
    Lang made = both ? LANG_ALL : LANG_NONE;
    for (uint32_t i = 0; i < node.b && made != (both ? LANG_NONE : LANG_ALL); i++) {
      Lang part = keys_of(m, frame, f->lists[node.a + i], positive);
      made = both ? lang_and(l, made, part) : lang_or(l, made, part);
    }
    return made;
  }
  case FORMULA_ATOM: break;
  }
  if (node.atom == ATOM_GOAL) return keys_of(m, frame, frame_goals(frame)[node.a], positive);
  if (!positive) return LANG_ALL;
  if (node.atom == ATOM_MEMBERS) return schema_member_keys(m->set, node.a);
  if (node.atom == ATOM_NAMES) return schema_strings(m->set, m->set->schemas[node.a].names);
  if (node.atom == ATOM_MAX_COUNT && frame->count >= node.a) return LANG_NONE;
  return LANG_ALL;
}

Lang frame_keys_unseen(Machine *m, Lang keys, const Seen *last) {
  size_t n = 0;
  for (const Seen *seen = last; seen && seen->keys != keys; seen = seen->before) n++;
  if (n == 0) return last ? last->other_keys : keys;
  const Seen **path = malloc(n * sizeof *path);
  if (!path) return machine_fail(m, "out of memory"), LANG_NONE;
  const Seen *seen = last;
  for (size_t i = n; i-- > 0; seen = seen->before) path[i] = seen;
  Lang made = seen ? seen->other_keys : keys;
  for (size_t i = 0; i < n; i++) {
    made = lang_without(&m->set->langs, made, path[i]->bytes, path[i]->size);
    ((Seen *)path[i])->keys = keys;
    ((Seen *)path[i])->other_keys = made;
  }
  free(path);
  return made;
}

Lang frame_next_keys(Machine *m, const Frame *frame) {
  Lang keys = keys_of(m, frame, frame->need, true);
  if (keys == LANG_NONE) return keys;
  if (!frame->order && closing_is_searched(m, frame)) {
    const KeyOrder *order = key_order_of(m, frame_goal_schemas(frame), frame->n_goals);
    if (order) keys = closing_keys(m, frame, order, keys);
  }
  if (frame->order) return key_order_next(m, frame, keys);
  return keys == LANG_ALL ? keys : frame_keys_unseen(m, keys, frame->seen);
}

static bool alike(const Machine *m, Formula formula) {
  const Formulas *f = &m->set->formulas;
  const FormulaNode *node = &f->nodes[formula];
  const uint32_t telling = ATOM_BIT(ATOM_MEMBERS) | ATOM_BIT(ATOM_NAMES) | ATOM_BIT(ATOM_OPEN_MEMBERS);
  if (!(node->atoms & telling)) return true;
  if (node->kind == FORMULA_ATOM)
    return node->atom == ATOM_MEMBERS && m->set->schemas[node->a].patterns.count == 0;
  if (node->kind == FORMULA_NOT) return alike(m, node->a);
  for (uint32_t i = 0; i < node->b; i++)
    if (!alike(m, f->lists[node->a + i])) return false;
  return true;
}

bool frame_keys_are_alike(const Machine *m, const Frame *frame) {
  for (uint32_t i = 0; i < frame->n_goals; i++)
    if (!alike(m, frame_goals(frame)[i])) return false;
  return true;
}

bool frame_has_had(const Frame *frame, const char *key, size_t size) {
  uint64_t hash = hash64(key, size, 1);
  for (const Seen *seen = frame->seen; seen; seen = seen->before)
    if (seen->hash == hash && seen->size == size && memcmp(seen->bytes, key, size) == 0) return true;
  return false;
}

uint32_t frame_atoms(const Machine *m, const Frame *frame) {
  uint32_t atoms = 0;
  for (uint32_t i = 0; i < frame->n_goals; i++) atoms |= formulas_of(m)->nodes[frame_goals(frame)[i]].atoms;
  return atoms;
}

uint64_t frame_print(const Machine *m, const Frame *frame) {
  if (frame->print) return frame->print;
  const uint32_t atoms = frame_atoms(m, frame);
  const uint32_t by_place = ATOM_BIT(ATOM_ITEMS) | ATOM_BIT(ATOM_OPEN_ITEMS);
  uint64_t count = 0;
  if (atoms & by_place) count = frame->count < m->max_prefix ? frame->count : m->max_prefix;
  if (frame->hashing || (atoms & COUNT_ATOMS)) count = frame->count;
  const uint64_t parts[] = {frame->up ? frame_print(m, frame->up) : 0,
                            (uint64_t)frame->kind << 1 | frame->hashing,
                            (uint64_t)frame->need << 32 | frame->child_need,
                            (uint64_t)frame->n_goals << 32 | frame->n_children,
                            (uint64_t)frame->rank << 32 | count,
                            frame->seen ? frame->seen->sum : 0,
                            frame->hashing ? frame->hash : 0};
  const size_t n = 2 * (size_t)frame->n_goals + frame->n_children;
  uint64_t print = hash64(frame->numbers, n * sizeof *frame->numbers, hash64(parts, sizeof parts, 0));
  ((Frame *)frame)->print = print ? print : 1;
  return frame->print;
}
