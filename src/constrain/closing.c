/* closing.c - searches whether open arrays and objects can close; see closing.h.
 *
 * A step of the search begins a member or an item and chooses one set of verdicts for it. The step writes no
 * value: it asks whether a value with these verdicts exists. Where items may not repeat, values matter, too.
 * There the search tries each value of a language with few values. It assumes that a language with many
 * values has an unused one. Members are tried in one order (KeyOrder), which never changes the result. */
#include "constrain/closing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash64.h"
#include "constrain/frames.h"
#include "constrain/key_order.h"
#include "constrain/lang/lang_list.h"
#include "constrain/lang/numbers.h"
#include "constrain/store/few.h"

enum {
  MAX_STEPS = 120,   /* calls of search() for one mask or byte */
  MAX_DEPTH = 60,    /* nested calls of search(), with_member() and closing_child_need() */
  MAX_LEAVES = 100,  /* sets of verdicts that are judged for one child */
  MAX_CELLS = 6,     /* languages of keys: each combination of them (2^6) is tried */
  MAX_NAMED = 256,   /* keys of one object or language that are tried one by one */
  MAX_EXAMPLE = 200, /* bytes of a key that the search makes up */
  MAX_SCANNED = 512, /* last strings or numbers of the text that drop_written() tries as the child */
};
#define MAX_KEPT     ((size_t)1 << 16) /* answers in Machine.closings */
#define MAX_SEARCHED (MAX_WORK / 32)   /* work of the searches for a mask; the mask itself needs more */

static Closing worse(Closing a, Closing b) {
  return a < b ? a : b;
}

static Closing better(Closing a, Closing b) {
  return a > b ? a : b;
}

static bool is_at_limit(const Machine *m) {
  const Langs *l = &m->set->langs;
  return m->search_depth >= MAX_DEPTH || m->search_left == 0 || l->steps > LANG_MAX_STEPS / 4 ||
         l->failure.work > MAX_SEARCHED || formulas_of(m)->failure.work > MAX_SEARCHED;
}

void closing_begin_work(Machine *m) {
  langs_begin_work(&m->set->langs);
  failure_begin_work(&m->set->formulas.failure);
  m->search_left = MAX_STEPS;
}

/* --- the values of a child */

typedef struct {
  Machine *m;
  JsonKind kind;
  uint32_t n; /* texts taken out so far */
  Closing best;
  const Frame *frame;
  const bool *verdicts;
  Lang texts; /* without_dead_ends(): what is left of the texts or keys */
  bool keys;  /* the texts are keys of the frame's members, not values */
  bool many;  /* begins_others(): a text that is a prefix of others need not be taken out */
} Values;

static Closing after_child(Machine *m, const Frame *frame, const bool *verdicts, uint64_t hash) {
  const ArenaMark mark = machine_mark(m);
  const Frame *after = frame_after_child(m, frame, verdicts, hash);
  const Closing closing = after ? closing_of(m, after) : CLOSE_NEVER;
  machine_release(m, mark);
  return closing;
}

static bool try_value(void *user, const char *bytes, size_t size) {
  Values *v = user;
  uint64_t hash;
  if (machine_text_hash(v->kind, bytes, size, &hash))
    v->best = better(v->best, after_child(v->m, v->frame, v->verdicts, hash));
  return v->best != CLOSE_SURE;
}

/* The best Closing that the frame has after a child in `texts`. */
static Closing after_texts(Machine *m, const Frame *frame, const bool *verdicts, JsonKind kind, Lang texts) {
  Langs *l = &m->set->langs;
  Values values = {.m = m, .kind = kind, .frame = frame, .verdicts = verdicts};
  texts = kind == JSON_STRING ? lang_text(l, texts) : lang_and(l, texts, closing_plain_number(m));
  if (!lang_is_alive(l, texts)) return CLOSE_NEVER;
  const uint64_t parts[] = {frame->count, frame->seen ? frame->seen->sum : 0, kind};
  if (!closing_has_few(m, texts)) return after_child(m, frame, verdicts, hash64(parts, sizeof parts, 21));
  lang_list(l, texts, try_value, &values);
  return values.best;
}

/* --- the verdicts of a child */

/* The values of the child that have the verdicts chosen so far. */
typedef struct {
  Lang strings, numbers;
  unsigned scalars; /* KIND_BIT() of null, false and true */
  Formula need;     /* the verdicts so far, as a formula over ATOM_GOAL */
  uint32_t n_true, n_false;
} Cube;

/* Results of searches. Each formula over ATOM_GOAL is true for the sets of verdicts (which goals the child
 * satisfies) that had this result. */
typedef struct {
  Formula sure;   /* the frame can close */
  Formula unsure; /* a search ended without an answer */
  Formula cut;    /* no search began, since the limit was reached */
} Found;

typedef struct {
  Machine *m;
  const Frame *frame, *before;
  bool *verdicts; /* [n_children] */
  bool any;       /* one set of verdicts is enough */
  uint32_t n_leaves;
} Split;

static const Found nothing = {FORMULA_FALSE, FORMULA_FALSE, FORMULA_FALSE};

/* A copy of the frame with `need` as its child_need; NULL after a failure. */
static const Frame *with_need(Machine *m, const Frame *frame, Formula need) {
  Frame *made = frame_copy(m, frame, frame->n_goals, frame->n_children);
  if (!made) return NULL;
  memcpy(made->numbers, frame->numbers, (2 * (size_t)frame->n_goals + frame->n_children) * sizeof(uint32_t));
  made->child_need = need;
  return made;
}

/* The better Closing of an array and of an object, each one that is the child and has the cube's verdicts. */
static Closing container_exists(Machine *m, const Frame *frame, const Cube *cube) {
  Closing best = CLOSE_NEVER;
  const ArenaMark mark = machine_mark(m);
  const Frame *made = with_need(m, frame, cube->need);
  if (!made) return best;
  for (FrameKind kind = FRAME_ARRAY; kind <= FRAME_OBJECT && best != CLOSE_SURE; kind++) {
    const Frame *inside = frame_inside(m, made, kind);
    if (inside) best = better(best, closing_of(m, inside));
  }
  machine_release(m, mark);
  return best;
}

static bool text_exists(Machine *m, const Cube *cube) {
  Langs *l = &m->set->langs;
  return cube->scalars || lang_is_alive(l, lang_text(l, cube->strings)) ||
         lang_is_alive(l, lang_and(l, cube->numbers, m->set->bounded_number));
}

/* The Closing of the frame after its child. In a search, a child that changes no goal brings the frame no
 * nearer to its end, so the result is CLOSE_NEVER, unless prefixItems has further items or goals name counts.
 * In an array such a child stands for several items: the count rises to just below the next count that a goal
 * names. */
static Closing after_any(const Split *s, const Frame *at) {
  Machine *m = s->m;
  const Formulas *f = formulas_of(m);
  Frame *after = frame_copy(m, at, at->n_goals, 0);
  if (!after) return CLOSE_NEVER;
  after->child_need = FORMULA_TRUE;
  bool same = s->before->n_goals == after->n_goals &&
              memcmp(frame_goals(s->before), frame_goals(after), after->n_goals * sizeof(Formula)) == 0;
  if (after->kind == FRAME_ARRAY) same &= s->before->count >= m->max_prefix;
  if (same && m->is_searching && !(frame_atoms(m, after) & COUNT_ATOMS)) return CLOSE_NEVER;
  uint32_t next = UINT32_MAX;
  for (uint32_t i = 0; same && after->kind == FRAME_ARRAY && i < after->n_goals; i++) {
    const FormulaNode *goal = &f->nodes[frame_goals(after)[i]];
    const bool has_list = goal->kind == FORMULA_AND || goal->kind == FORMULA_OR;
    for (uint32_t j = 0; j < (has_list ? goal->b : 1); j++) {
      const FormulaNode *part = has_list ? &f->nodes[f->lists[goal->a + j]] : goal;
      if (!(part->atoms & COUNT_ATOMS)) continue;
      if (part->kind != FORMULA_ATOM) next = 0;
      if (part->a > after->count && part->a < next) next = part->a;
    }
  }
  const uint32_t count = after->count;
  if (next == UINT32_MAX || next <= count + 1) return closing_of(m, after);
  after->count = next - 1;
  const Closing found = closing_of(m, after);
  if (found == CLOSE_SURE || !(frame_atoms(m, after) & ATOM_BIT(ATOM_MAX_COUNT))) return found;
  after->count = count; /* below maxItems, another goal may need the items that were skipped */
  after->print = 0;
  return better(found, closing_of(m, after));
}

static Closing judge_hashed(const Split *s, const Cube *cube) {
  Machine *m = s->m;
  Closing best = CLOSE_NEVER;
  for (JsonKind kind = JSON_NULL; kind <= JSON_TRUE && best != CLOSE_SURE; kind++)
    if (cube->scalars & KIND_BIT(kind))
      best = better(best, after_child(m, s->frame, s->verdicts, machine_literal_hash(kind)));
  if (best != CLOSE_SURE)
    best = better(best, after_texts(m, s->frame, s->verdicts, JSON_STRING, cube->strings));
  if (best != CLOSE_SURE)
    best = better(best, after_texts(m, s->frame, s->verdicts, JSON_NUMBER, cube->numbers));
  return best == CLOSE_SURE ? best : better(best, container_exists(m, s->frame, cube));
}

/* The Closing of the frame after a child that has the cube's verdicts; CLOSE_NEVER if no such child exists.
 * `at` is the frame with these verdicts put into its goals. */
static Closing judge(const Split *s, const Frame *at, const Cube *cube) {
  Machine *m = s->m;
  if (s->frame->hashing) return judge_hashed(s, cube);
  const bool proven = cube->n_false == 0 && cube->n_true <= 1; /* a schema that is not `false` has a value */
  const bool exists = proven || text_exists(m, cube);
  const Closing after = after_any(s, at);
  if (exists || after == CLOSE_NEVER) return after;
  return worse(after, container_exists(m, s->frame, cube));
}

typedef struct {
  uint32_t schema;
  bool verdict;
} Verdict;

static Formula put_verdict(void *user, const FormulaNode *atom, Formula itself) {
  const Verdict *v = user;
  return atom->a == v->schema ? (Formula)v->verdict : itself;
}

/* The frame with the verdict of the child's `schema` put into its goals. It is the frame itself if no goal
 * names `schema`, or after a failure. */
static const Frame *with_verdict(Machine *m, const Frame *frame, uint32_t schema, bool verdict) {
  Verdict v = {schema, verdict};
  Frame *made = frame_copy(m, frame, frame->n_goals, 0);
  bool changed = false;
  if (!made) return frame;
  for (uint32_t i = 0; i < made->n_goals; i++) {
    made->numbers[i] = formula_map(formulas_of(m), made->numbers[i], ATOM_BIT(ATOM_CHILD), put_verdict, &v);
    changed |= made->numbers[i] != frame->numbers[i];
  }
  return changed ? made : frame;
}

/* The texts of `from` that are in `by` or, without `verdict`, not in `by`. Two languages of one value each
 * are equal or disjoint. */
static Lang with_lang_verdict(Langs *l, Lang from, Lang by, bool verdict) {
  if (lang_is_single(l, from) && lang_is_single(l, by)) return (from == by) == verdict ? from : LANG_NONE;
  return lang_and(l, from, verdict ? by : lang_not(l, by));
}

/* Narrows the cube by a verdict of the schema frame_children()[child]; false if no value is left. */
static bool narrow(const Split *s, uint32_t child, bool verdict, Cube *cube) {
  Machine *m = s->m;
  Langs *l = &m->set->langs;
  const uint32_t schema = frame_children(s->frame)[child];
  if (verdict && schema_is_refused(m->set, schema)) return false;
  cube->strings = with_lang_verdict(l, cube->strings, schema_strings(m->set, schema), verdict);
  cube->numbers = with_lang_verdict(l, cube->numbers, schema_numbers(m->set, schema), verdict);
  for (JsonKind kind = JSON_NULL; kind <= JSON_TRUE; kind++)
    if (schema_takes_scalar(m->set, schema, kind) != verdict) cube->scalars &= ~KIND_BIT(kind);
  const Formula goal = formula_atom(formulas_of(m), ATOM_GOAL, child, 0);
  cube->need = formula_and(formulas_of(m), cube->need, verdict ? goal : formula_not(formulas_of(m), goal));
  *(verdict ? &cube->n_true : &cube->n_false) += 1;
  if (cube->n_false == 0 && cube->n_true == 1) return true;
  if (text_exists(m, cube)) return true;
  /* Containers are judged by their formulas only: judge() searches them in the end. */
  const ArenaMark mark = machine_mark(m);
  const Frame *made = with_need(m, s->frame, cube->need);
  const bool may = made && (frame_inside(m, made, FRAME_ARRAY) || frame_inside(m, made, FRAME_OBJECT));
  machine_release(m, mark);
  return may;
}

/* `with` if the goal comes true, `without` if not. */
static Formula by_verdict(Formulas *f, Formula goal, Formula with, Formula without) {
  if (with == without) return with;
  return formula_or(f, formula_and(f, goal, with), formula_and(f, formula_not(f, goal), without));
}

static Found split(Split *s, const Frame *at, uint32_t child, Cube cube) {
  Machine *m = s->m;
  Formulas *f = formulas_of(m);
  const Frame *with[2] = {at, at};
  if (s->n_leaves >= MAX_LEAVES || is_at_limit(m))
    return (Found){FORMULA_FALSE, FORMULA_FALSE, s->frame->child_need};
  for (; child < s->frame->n_children; child++) {
    const uint32_t schema = frame_children(s->frame)[child];
    s->verdicts[child] = false;
    with[1] = with_verdict(m, at, schema, true);
    if (with[1] == at) continue;
    break;
  }
  if (child == s->frame->n_children) {
    s->n_leaves++;
    const Closing found = judge(s, at, &cube);
    return (Found){found == CLOSE_SURE, found == CLOSE_UNSURE, FORMULA_FALSE};
  }
  Found parts[2] = {nothing, nothing};
  for (int verdict = 1; verdict >= 0; verdict--) {
    Cube narrowed = cube;
    if (s->any && parts[1].sure != FORMULA_FALSE) break;
    if (!verdict) with[0] = with_verdict(m, at, frame_children(s->frame)[child], false);
    if (!frame_is_possible(m, with[verdict]) || !narrow(s, child, verdict, &narrowed)) continue;
    s->verdicts[child] = verdict;
    parts[verdict] = split(s, with[verdict], child + 1, narrowed);
  }
  const Formula goal = formula_atom(f, ATOM_GOAL, child, 0);
  return (Found){by_verdict(f, goal, parts[1].sure, parts[0].sure),
                 by_verdict(f, goal, parts[1].unsure, parts[0].unsure),
                 by_verdict(f, goal, parts[1].cut, parts[0].cut)};
}

Formula closing_child_need(Machine *m, const Frame *frame, const Frame *before, bool *unsure) {
  Split s = {m, frame, before, calloc(frame->n_children + 1, sizeof(bool)), m->search_depth > 0, 0};
  const Cube all = {LANG_ALL,     LANG_ALL, KIND_BIT(JSON_NULL) | KIND_BIT(JSON_FALSE) | KIND_BIT(JSON_TRUE),
                    FORMULA_TRUE, 0,        0};
  Found found = nothing;
  if (!s.verdicts) return machine_fail(m, "out of memory"), FORMULA_FALSE;
  const ArenaMark mark = machine_mark(m);
  m->search_depth++;
  found = split(&s, frame, 0, all);
  m->search_depth--;
  machine_release(m, mark);
  free(s.verdicts);
  Formulas *f = formulas_of(m);
  *unsure = found.sure == FORMULA_FALSE;
  Formula need = formula_or(f, found.sure, found.cut);
  if (*unsure || m->is_judging) need = formula_or(f, need, found.unsure);
  return need;
}

/* --- keys */

#define MAX_NAMES 64

typedef struct {
  uint32_t keys[MAX_NAMES]; /* [n] of ATOM_HAS_KEY and, below `not`, of `properties` */
  uint32_t n;
  Lang langs[MAX_CELLS]; /* [n_langs] of patternProperties and propertyNames */
  uint32_t n_langs;
  bool wants_more; /* members with other keys may help */
  bool too_many;   /* not all keys and languages were collected */
} Mentioned;

static void add_lang(Mentioned *found, Lang lang) {
  found->too_many |= !few_add(found->langs, &found->n_langs, MAX_CELLS, lang);
}

static void add_key(Mentioned *found, uint32_t key) {
  found->too_many |= !few_add(found->keys, &found->n, MAX_NAMES, key);
}

enum { MAX_NESTED = 16 }; /* in-place subschemas within one another */

/* Adds the patterns by which a schema and its in-place subschemas evaluate members. */
static void mention_evaluated(Machine *m, uint32_t schema, int depth, Mentioned *found) {
  if (schema <= SCHEMA_TRUE) return;
  if (depth == MAX_NESTED) {
    found->too_many = true;
    return;
  }
  const Schema *s = &m->set->schemas[schema];
  for (size_t i = 0; i < s->patterns.count; i++) add_lang(found, s->patterns.items[i].key);
  const uint32_t *part;
  for (size_t i = 0; (part = schema_part(s, PART_EVALUATES, i)); i++)
    mention_evaluated(m, *part, depth + 1, found);
}

static void mention_atom(Machine *m, const FormulaNode *atom, bool positive, bool negated, Mentioned *found) {
  const Schema *s = &m->set->schemas[atom->a];
  switch ((AtomKind)atom->atom) {
  case ATOM_HAS_KEY: add_key(found, atom->a); return;
  case ATOM_MIN_COUNT: found->wants_more |= positive; return;
  case ATOM_OPEN_MEMBERS: mention_evaluated(m, atom->a, 0, found); break;
  case ATOM_MEMBERS:
    for (size_t i = 0; i < s->patterns.count; i++) add_lang(found, s->patterns.items[i].key);
    for (size_t i = 0; negated && i < s->properties.count; i++) /* below `not`: no KeyOrder has these keys */
      add_key(found, s->properties.items[i].key);
    break;
  case ATOM_NAMES: add_lang(found, schema_strings(m->set, s->names)); break;
  default: break;
  }
  found->wants_more |= !positive;
}

/* Collects the keys and languages that the formula mentions. `positive`: below an even number of NOTs;
 * `negated`: below at least one. Below a FORMULA_ONE both signs count. */
static void mention(Machine *m, Formula formula, bool positive, bool negated, Mentioned *found) {
  const Formulas *f = formulas_of(m);
  const FormulaNode node = f->nodes[formula];
  if (node.kind == FORMULA_ATOM) mention_atom(m, &node, positive, negated, found);
  if (node.kind == FORMULA_NOT) mention(m, node.a, !positive, true, found);
  for (uint32_t i = 0; node.kind >= FORMULA_AND && i < node.b; i++) {
    mention(m, f->lists[node.a + i], positive, negated, found);
    if (node.kind == FORMULA_ONE) mention(m, f->lists[node.a + i], !positive, negated, found);
  }
}

/* The Closing of the frame if a member with this key begins. */
static Closing with_member(Machine *m, const Frame *frame, const char *key, size_t size) {
  if (is_at_limit(m)) return CLOSE_UNSURE;
  const ArenaMark mark = machine_mark(m);
  m->search_depth++; /* if above 0, closing_child_need() stops at the first verdicts with CLOSE_SURE */
  const Frame *next = frame_next_member(m, frame, key, size);
  m->search_depth--;
  const Closing closing = !next ? CLOSE_NEVER : next->is_unsure ? CLOSE_UNSURE : CLOSE_SURE;
  machine_release(m, mark);
  return closing;
}

static Closing with_key(Machine *m, const Frame *frame, uint32_t key) {
  const Key *it = &m->set->keys[key];
  return frame_has_had(frame, it->bytes, it->size) ? CLOSE_NEVER : with_member(m, frame, it->bytes, it->size);
}

/* The keys of `within` that are in each language with a bit in `cell`, and in no other language. */
static Lang cell_lang(Machine *m, const Mentioned *found, uint32_t cell, Lang within) {
  Langs *l = &m->set->langs;
  for (uint32_t i = 0; i < found->n_langs; i++)
    within = lang_and(l, within, cell >> i & 1 ? found->langs[i] : lang_not(l, found->langs[i]));
  return lang_text(l, within);
}

/* A key of a language. `rest` is the language without this key and the examples before it. */
typedef struct {
  Lang rest;
  uint32_t size;
  char bytes[];
} Example;

/* The n-th key of the language; NULL: none of at most MAX_EXAMPLE bytes is found. */
static const Example *example_of(Machine *m, Lang keys, uint32_t n) {
  Langs *l = &m->set->langs;
  const uint32_t parts[2] = {keys, n};
  const uint64_t key = hash64(parts, sizeof parts, 23);
  const KeyEntry *known = key_table_find(&m->few, key);
  if (known) return known->value.pointer;
  const Example *before = n > 0 ? example_of(m, keys, n - 1) : NULL;
  Lang rest = n > 0 ? (before ? before->rest : LANG_NONE) : keys;
  Example *made = NULL;
  char bytes[MAX_EXAMPLE];
  size_t size;
  if (lang_is_alive(l, rest) && lang_example(l, rest, bytes, sizeof bytes, &size)) {
    made = arena_alloc(&m->examples, 1, sizeof *made + size, NULL);
    if (!made) return machine_fail(m, "out of memory"), NULL;
    rest = lang_and(l, rest, lang_not(l, lang_literal(l, bytes, size)));
    *made = (Example){.rest = rest, .size = (uint32_t)size};
    memcpy(made->bytes, bytes, size);
  }
  if (!key_table_add(&m->few, (KeyEntry){key, {.pointer = made}})) machine_fail(m, "out of memory");
  return made;
}

/* The results of trying new keys of a language. A named key is one that a keyword of any schema names: its
 * member may have another effect than that of an unnamed key. */
typedef struct {
  Closing unnamed, named; /* the Closing after an unnamed key; the best after the named keys */
  Lang may_begin;         /* the named keys with which a member may begin */
} OtherKeys;

static OtherKeys with_other_keys(Machine *m, const Frame *frame, Lang keys) {
  Langs *l = &m->set->langs;
  OtherKeys after = {CLOSE_NEVER, CLOSE_NEVER, LANG_NONE};
  char key[24];
  for (int i = 0; keys == lang_any_text(l); i++) {
    const size_t size = (size_t)snprintf(key, sizeof key, "%d", i);
    if (schema_key(m->set, key, size, false) == UINT32_MAX && !frame_has_had(frame, key, size))
      return (OtherKeys){with_member(m, frame, key, size), CLOSE_NEVER, LANG_NONE};
  }
  for (uint32_t n = 0; n < MAX_NAMED; n++) {
    const Example *example = example_of(m, keys, n);
    if (!example) return after;
    if (frame_has_had(frame, example->bytes, example->size)) continue;
    const bool is_named = schema_key(m->set, example->bytes, example->size, false) != UINT32_MAX;
    const Closing closing = with_member(m, frame, example->bytes, example->size);
    if (!is_named) return (OtherKeys){closing, after.named, after.may_begin};
    if (closing != CLOSE_NEVER)
      after.may_begin = lang_or(l, after.may_begin, lang_literal(l, example->bytes, example->size));
    after.named = better(after.named, closing);
  }
  after.unnamed = CLOSE_UNSURE;
  return after;
}

/* The frame with an order for its keys, in which the search tries them. */
static const Frame *in_order(Machine *m, const Frame *frame) {
  if (frame->order) return frame;
  Frame *made = frame_copy(m, frame, frame->n_goals, 0);
  if (!made) return frame;
  made->rank = 0;
  made->order = key_order_of(m, frame_goal_schemas(frame), frame->n_goals);
  return made->order ? made : frame;
}

/* Keys and languages that frame_rest() mentions. If the rest has ATOM_SAME, other goals of the value decide
 * which members are evaluated. Then the formulas of all goals and their negations count, too. */
static Mentioned mentioned_of(Machine *m, const Frame *frame) {
  Mentioned found = {.n = 0};
  const Formula rest = frame_rest(m, frame);
  const bool on_others = formulas_of(m)->nodes[rest].atoms & ATOM_BIT(ATOM_SAME);
  mention(m, rest, true, false, &found);
  for (uint32_t i = 0; on_others && i < frame->n_goals; i++)
    for (int positive = 0; positive < 2; positive++)
      mention(m, frame_goals(frame)[i], positive, true, &found);
  return found;
}

static Closing search_object(Machine *m, const Frame *frame) {
  Mentioned found = mentioned_of(m, frame);
  found.wants_more |= frame->hashing; /* another member makes another value */
  Closing best = found.too_many ? CLOSE_UNSURE : CLOSE_NEVER;
  frame = in_order(m, frame);
  if (!frame->order) return CLOSE_NEVER;
  const NumberList *order = &frame->order->keys;
  for (size_t i = frame->rank; i < order->count && best != CLOSE_SURE; i++) {
    bool wanted = found.wants_more;
    for (uint32_t j = 0; j < found.n && !wanted; j++) wanted = found.keys[j] == order->items[i];
    if (wanted) best = better(best, with_key(m, frame, order->items[i]));
  }
  for (uint32_t i = 0; i < found.n && best != CLOSE_SURE; i++)
    if (key_order_rank(frame->order, found.keys[i]) > order->count)
      best = better(best, with_key(m, frame, found.keys[i]));
  for (uint32_t cell = 0; found.wants_more && cell < 1u << found.n_langs && best != CLOSE_SURE; cell++) {
    const OtherKeys after = with_other_keys(m, frame, cell_lang(m, &found, cell, LANG_ALL));
    best = better(best, better(after.unnamed, after.named));
  }
  return best;
}

/* Returns `keys` without the unnamed keys with which no member may begin. Unnamed keys are those that no
 * keyword of the frame's schemas names. *all: no unnamed key was taken out, so the result is `keys`.
 * Otherwise the result lacks the named keys, too, unless `keys` is LANG_ALL. */
static Lang unnamed_keys(Machine *m, const Frame *frame, const Mentioned *found, const KeyOrder *order,
                         Lang keys, bool *all) {
  Langs *l = &m->set->langs;
  Lang made = LANG_NONE;
  *all = true;
  if (found->too_many) return keys;
  const Lang unnamed = keys == LANG_ALL ? keys : lang_and(l, keys, lang_not(l, order->words));
  for (uint32_t cell = 0; cell < 1u << found->n_langs; cell++) {
    const Lang within = cell_lang(m, found, cell, unnamed);
    if (!lang_is_alive(l, within)) continue;
    const OtherKeys after = with_other_keys(m, frame, within);
    const bool may = after.unnamed != CLOSE_NEVER;
    *all &= may;
    made = lang_or(l, made, may ? within : after.may_begin);
  }
  return *all ? keys : made;
}

/* Computes closing_keys(). */
static Lang judge_keys(Machine *m, const Frame *frame, const KeyOrder *order, Lang keys) {
  Langs *l = &m->set->langs;
  const Mentioned found = mentioned_of(m, frame);
  const size_t n_ordered = frame->order ? 0 : order->keys.count;
  if (n_ordered > MAX_NAMED) return keys;
  LangWord words[MAX_NAMED + MAX_NAMES];
  size_t n_words = 0;
  bool all;
  Lang made = unnamed_keys(m, frame, &found, order, keys, &all);
  if (all && lang_is_endless(l, keys))
    return keys; /* each beginning of a refused key also begins allowed keys: it is no dead end */
  for (size_t i = 0; i < n_ordered + found.n; i++) {
    const uint32_t number = i < n_ordered ? order->keys.items[i] : found.keys[i - n_ordered];
    const Key *key = &m->set->keys[number];
    if (i >= n_ordered && key_order_rank(order, number) <= order->keys.count) continue;
    if (frame_has_had(frame, key->bytes, key->size) || !lang_contains(l, keys, key->bytes, key->size))
      continue;
    const bool may = with_key(m, frame, number) != CLOSE_NEVER;
    if (may && !all) words[n_words++] = (LangWord){key->bytes, key->size, LANG_EMPTY};
    if (!may) made = lang_without(l, made, key->bytes, key->size);
  }
  return n_words ? lang_or(l, made, lang_words(l, words, n_words)) : made;
}

/* --- the search */

/* A hash of everything on which the frame's closing depends. */
static uint64_t print_of(const Machine *m, const Frame *frame) {
  uint64_t sum = 0;
  if (frame->hashing) return frame_print(m, frame);
  for (const Seen *seen = frame->seen; seen; seen = seen->before) {
    const uint32_t key = frame->order ? schema_key(m->set, seen->bytes, seen->size, false) : 0;
    const uint32_t rank = frame->order ? key_order_rank(frame->order, key) : UINT32_MAX;
    if (rank > frame->rank || rank > frame->order->keys.count) /* others cannot come again */
      sum += hash64(&seen->hash, sizeof seen->hash, 7);
  }
  const uint64_t order = (uint64_t)(uintptr_t)frame->order;
  const uint32_t atoms = frame_atoms(m, frame);
  uint32_t count = 0;
  if (atoms & (ATOM_BIT(ATOM_ITEMS) | ATOM_BIT(ATOM_OPEN_ITEMS)))
    count = frame->count < m->max_prefix ? frame->count : m->max_prefix;
  if (atoms & COUNT_ATOMS) count = frame->count;
  const uint64_t parts[] = {frame->kind, frame->need, frame->n_goals, frame->rank, order, sum, count};
  const uint64_t print = hash64(frame->numbers, 2 * (size_t)frame->n_goals * sizeof *frame->numbers,
                                hash64(parts, sizeof parts, 22));
  return print ? print : 1;
}

Lang closing_keys(Machine *m, const Frame *frame, const KeyOrder *order, Lang keys) {
  const uint64_t parts[] = {print_of(m, frame), (uint64_t)(uintptr_t)order, keys};
  const uint64_t print = hash64(parts, sizeof parts, 24);
  KnownKeys *known = &m->known_keys[print % N_KNOWN_KEYS];
  if (known->print != print) {
    const Lang made = judge_keys(m, frame, order, keys);
    *known = (KnownKeys){print, made};
  }
  return known->keys;
}

/* CLOSE_SURE if the value may end here. In a uniqueItems array the values around it, up to that array, must
 * be able to close after it, too. */
static Closing ending(Machine *m, const Frame *frame) {
  bool verdicts[MAX_GOALS];
  Closing closing = frame_may_end(m, frame, verdicts) ? CLOSE_SURE : CLOSE_NEVER;
  if (closing == CLOSE_SURE && frame->up->hashing)
    closing = after_child(m, frame->up, verdicts, frame_value_hash(frame));
  return closing;
}

static Closing search(Machine *m, const Frame *frame) {
  const Closing ends = ending(m, frame);
  if (ends == CLOSE_SURE) return ends;
  if (is_at_limit(m)) return CLOSE_UNSURE;
  const bool was_searching = m->is_searching;
  m->search_left--;
  m->search_depth++;
  m->is_searching = true;
  Closing found = CLOSE_NEVER;
  const ArenaMark mark = machine_mark(m);
  if (frame->kind == FRAME_OBJECT) {
    found = search_object(m, frame);
  } else {
    const Frame *next = frame_next_item(m, frame);
    if (next) found = next->is_unsure ? CLOSE_UNSURE : CLOSE_SURE;
  }
  machine_release(m, mark);
  m->search_depth--;
  m->is_searching = was_searching;
  return better(found, ends);
}

/* For CLOSE_UNSURE, Machine.closings keeps the budget_of() that the search had: KEPT_UNSURE, which is more
 * than any Closing, plus how many quarters (FEWER_STEPS) of MAX_STEPS were left. A search with no larger
 * budget would not find more. */
enum { KEPT_UNSURE = 16, FEWER_STEPS = 4 };

static uint32_t budget_of(const Machine *m) {
  return KEPT_UNSURE + m->search_left / (MAX_STEPS / FEWER_STEPS);
}

static void keep(Machine *m, uint64_t print, uint32_t answer) {
  KeyEntry *known = (KeyEntry *)key_table_find(&m->closings, print);
  if (known) {
    known->value.number = answer;
    return;
  }
  if (m->closings.count > MAX_KEPT) key_table_release(&m->closings);
  if (!key_table_add(&m->closings, (KeyEntry){print, {.number = answer}})) machine_fail(m, "out of memory");
}

/* True if uniqueItems can only exclude values: it is below no NOT and no FORMULA_ONE. */
static bool narrows_by_unique(const Formulas *f, Formula formula) {
  const FormulaNode *node = &f->nodes[formula];
  if (!(node->atoms & ATOM_BIT(ATOM_UNIQUE)) || node->kind == FORMULA_ATOM) return true;
  if (node->kind != FORMULA_AND && node->kind != FORMULA_OR) return false;
  for (uint32_t i = 0; i < node->b; i++)
    if (!narrows_by_unique(f, f->lists[node->a + i])) return false;
  return true;
}

/* False if the array could not close even with items that repeat. This test is cheaper than the search. */
static bool closes_repeating(Machine *m, const Frame *frame, Formula rest) {
  if (!narrows_by_unique(formulas_of(m), rest)) return true;
  const ArenaMark mark = machine_mark(m);
  Frame *made = frame_copy(m, frame, frame->n_goals, 0);
  if (!made) return false;
  made->hashing = false;
  for (uint32_t i = 0; i < made->n_goals; i++) made->numbers[i] = closing_without_unique(m, made->numbers[i]);
  const bool closes = closing_of(m, made) != CLOSE_NEVER;
  machine_release(m, mark);
  return closes;
}

Closing closing_of(Machine *m, const Frame *frame) {
  if (frame->kind == FRAME_ROOT) return frame_rest(m, frame) == FORMULA_TRUE ? CLOSE_SURE : CLOSE_NEVER;
  const Formula rest = frame_rest(m, frame);
  if (rest == FORMULA_FALSE) return CLOSE_NEVER;
  if (rest == FORMULA_TRUE && !frame->up->hashing) return CLOSE_SURE;
  if (frame->hashing ? closing_never_runs_out(m, frame) : closing_is_plain(m, rest))
    return frame_is_possible(m, frame) ? CLOSE_SURE : CLOSE_NEVER;
  if (frame->hashing && !frame->up->hashing && !closes_repeating(m, frame, rest)) return CLOSE_NEVER;
  const uint64_t print = print_of(m, frame);
  const KeyEntry *known = m->set->is_proving ? NULL : key_table_find(&m->closings, print);
  if (known && known->value.number < KEPT_UNSURE) return (Closing)known->value.number;
  const uint32_t budget = budget_of(m);
  if (known && budget <= known->value.number) return CLOSE_UNSURE;
  const Closing found = frame_is_possible(m, frame) ? search(m, frame) : CLOSE_NEVER;
  if (!m->set->is_proving) keep(m, print, found == CLOSE_UNSURE ? budget : found);
  return found;
}

/* --- texts that may not repeat */

/* True if the frame, or a frame around it, could not close after the text bytes[0..size). If v->keys is set,
 * the bytes are a key: true if it could not close after a member with that key. */
static bool is_dead_end(Values *v, const char *bytes, size_t size) {
  Machine *m = v->m;
  uint64_t hash;
  bool verdicts[MAX_GOALS];
  if (v->keys) return with_member(m, v->frame, bytes, size) == CLOSE_NEVER;
  if (!machine_text_hash(v->kind, bytes, size, &hash)) return false;
  for (uint32_t i = 0; i < v->frame->n_children; i++) {
    const uint32_t schema = frame_children(v->frame)[i];
    const Lang own = v->kind == JSON_STRING ? schema_strings(m->set, schema) : schema_numbers(m->set, schema);
    verdicts[i] = lang_contains(&m->set->langs, own, bytes, size);
  }
  return after_child(m, v->frame, verdicts, hash) == CLOSE_NEVER;
}

/* `texts` without the spellings of a number. */
static Lang without_number(Machine *m, Lang texts, const Decimal *d) {
  Langs *l = &m->set->langs;
  return lang_and(l, texts, lang_not(l, numbers_equal((Numbers){l, m->set->options.exponents}, d)));
}

/* True if another text of v->texts begins with this one. Then this one need not be taken out: it may be
 * written as the beginning of that text. A number must go on as another number, not as another spelling. */
static bool begins_others(const Values *v, const char *bytes, size_t size) {
  static const char zeros[] = ".000000000000000000000000000000";
  Langs *l = &v->m->set->langs;
  Lang longer = v->texts;
  for (size_t i = 0; i < size; i++) longer = lang_next(l, longer, (unsigned char)bytes[i]);
  if (v->kind != JSON_NUMBER) return lang_is_alive(l, lang_and(l, longer, lang_not(l, LANG_EMPTY)));
  if (memchr(bytes, 'e', size) || memchr(bytes, 'E', size)) return false;
  for (const char *at = zeros + (memchr(bytes, '.', size) != NULL); *at; at++)
    longer = lang_next(l, longer, (unsigned char)*at);
  for (unsigned char digit = '1'; digit <= '9'; digit++) /* makes it another number */
    if (lang_is_alive(l, lang_next(l, longer, digit))) return true;
  return false;
}

/* Takes a text out of v->texts if it is a dead end. False after CLOSING_FEW texts have been taken out. */
static bool drop_text(void *user, const char *bytes, size_t size) {
  Values *v = user;
  Machine *m = v->m;
  Langs *l = &m->set->langs;
  if (!lang_contains(l, v->texts, bytes, size) || (v->many && begins_others(v, bytes, size))) return true;
  const Lang without = lang_without(l, v->texts, bytes, size);
  if (without == v->texts) return true; /* endless: lang_without() keeps the text */
  if (is_dead_end(v, bytes, size)) {
    Decimal d;
    v->n++;
    v->texts = without;
    if (v->kind == JSON_NUMBER && decimal_read(bytes, size, &d)) v->texts = without_number(m, without, &d);
  }
  return v->n < CLOSING_FEW;
}

typedef struct {
  uint32_t start, size;
} Written;

static int longest_first(const void *a, const void *b) {
  const Written *x = a, *y = b;
  return (x->size < y->size) - (x->size > y->size);
}

/* Calls drop_text() for the last MAX_SCANNED strings or numbers of the text, long ones first: a text may stay
 * if a longer one that begins with it was not taken out. */
static void drop_written(Machine *m, Values *values, uint32_t text_size) {
  Written written[MAX_SCANNED];
  uint32_t n = 0;
  for (uint32_t at = 0; at < text_size;) {
    const uint32_t start = at;
    const bool string = m->text[at] == '"',
               number = m->text[at] == '-' || (m->text[at] >= '0' && m->text[at] <= '9');
    if (string) {
      for (at++; at < text_size && m->text[at] != '"'; at++) at += m->text[at] == '\\';
    } else if (number) {
      while (at + 1 < text_size && strchr("0123456789+-.eE", m->text[at + 1])) at++;
    }
    at++;
    if (!(values->kind == JSON_STRING ? string : number) || at > text_size) continue;
    written[n++ % MAX_SCANNED] = string ? (Written){start + 1, at - start - 2} : (Written){start, at - start};
  }
  const uint32_t n_kept = n < MAX_SCANNED ? n : MAX_SCANNED;
  if (n_kept > 1) qsort(written, n_kept, sizeof *written, longest_first);
  for (uint32_t i = 0; i < n_kept; i++) {
    const char *bytes = m->text + written[i].start;
    size_t size = written[i].size;
    if (values->kind == JSON_STRING && size > 0 && memchr(bytes, '\\', size)) {
      const JsonState state = {.start = written[i].start, .n_text = written[i].start + written[i].size};
      if (!machine_decode(m, &state)) return;
      bytes = m->decoded.data ? m->decoded.data : "", size = m->decoded.size;
    }
    if (!drop_text(values, bytes, size)) return;
  }
}

static Lang without_dead_ends(Values values, uint32_t text_size) {
  Machine *m = values.m;
  Langs *l = &m->set->langs;
  if (lang_is_endless(l, values.texts)) return values.texts;
  const Lang plain =
      values.kind == JSON_NUMBER ? lang_and(l, values.texts, closing_plain_number(m)) : values.texts;
  if (closing_has_few(m, plain)) {
    lang_list(l, plain, drop_text, &values);
  } else {
    values.many = true;
    drop_written(m, &values, text_size);
  }
  return values.texts;
}

Lang closing_texts(Machine *m, const Frame *frame, JsonKind kind, Lang texts, uint32_t text_size) {
  return without_dead_ends((Values){.m = m, .kind = kind, .frame = frame, .texts = texts}, text_size);
}

Lang closing_unrepeated_keys(Machine *m, const Frame *frame, Lang keys, uint32_t text_size) {
  const Values values = {.m = m, .kind = JSON_STRING, .frame = frame, .texts = keys, .keys = true};
  return closing_is_searched(m, frame) ? without_dead_ends(values, text_size) : keys;
}
