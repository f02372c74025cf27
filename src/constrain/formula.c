/* formula.c - makes and simplifies boolean formulas; see formula.h. */
#include "constrain/formula.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash64.h"
#include "constrain/store/few.h"

#define MAX_FORMULAS ((size_t)1 << 22)

static void fail(Formulas *f, Status status, const char *message) {
  failure_set(&f->failure, status, message);
}

Status formulas_check(const Formulas *formulas, Error *err) {
  return failure_check(&formulas->failure, err);
}

/* --- hash-consing */

static bool has_list(uint8_t kind) {
  return kind >= FORMULA_AND;
}

static uint64_t hash_of(const Formulas *f, const FormulaNode *node) {
  const uint32_t key[4] = {node->kind, node->atom, node->a, node->b};
  if (!has_list(node->kind)) return hash64(key, sizeof key, 0);
  return hash64(f->lists + node->a, node->b * sizeof(Formula), node->kind);
}

static bool equal(const Formulas *f, const FormulaNode *x, const FormulaNode *y) {
  if (x->kind != y->kind || x->atom != y->atom || x->b != y->b) return false;
  return has_list(x->kind) ? memcmp(f->lists + x->a, f->lists + y->a, x->b * sizeof(Formula)) == 0
                           : x->a == y->a;
}

static Formula add(Formulas *f, FormulaNode node) {
  if (!failure_work(&f->failure, 8)) return FORMULA_FALSE;
  const uint64_t hash = hash_of(f, &node);
  for (const KeyEntry *e = key_table_find(&f->by_content, hash); e; e = key_table_next(&f->by_content, e))
    if (equal(f, &f->nodes[e->value.number], &node)) return e->value.number;
  if (f->count >= MAX_FORMULAS)
    return fail(f, STATUS_USAGE, "the constraint grows over 4,194,304 formulas"), FORMULA_FALSE;
  return key_table_append(&f->by_content, hash, &f->nodes, &f->count, &f->capacity, &node, sizeof node,
                          &f->failure);
}

Formula formula_atom(Formulas *formulas, AtomKind kind, uint32_t a, uint32_t b) {
  return add(
      formulas,
      (FormulaNode){.kind = FORMULA_ATOM, .atom = (uint8_t)kind, .atoms = ATOM_BIT(kind), .a = a, .b = b});
}

Formula formula_not(Formulas *formulas, Formula a) {
  if (a <= FORMULA_TRUE) return !a;
  const FormulaNode *node = &formulas->nodes[a];
  if (node->kind == FORMULA_NOT) return node->a;
  return add(formulas, (FormulaNode){.kind = FORMULA_NOT, .atoms = node->atoms, .a = a});
}

/* Makes a node of the list at the end of `lists`. The list is kept only if the node is new. */
static Formula add_list(Formulas *f, FormulaKind kind, size_t start, size_t n) {
  FormulaNode node = {.kind = (uint8_t)kind, .a = (uint32_t)start, .b = (uint32_t)n};
  for (size_t i = 0; i < n; i++) node.atoms |= f->nodes[f->lists[start + i]].atoms;
  size_t before = f->count;
  f->lists_count = start + n;
  Formula made = add(f, node);
  if (f->count == before) f->lists_count = start;
  return made;
}

Formula formula_join(Formulas *formulas, FormulaKind kind, const Formula *parts, size_t n) {
  Formulas *f = formulas;
  const Formula neutral = kind == FORMULA_AND, absorbing = !neutral;
  const size_t start = f->lists_count;
  size_t count = 0;
  for (size_t i = 0; i < n; i++) {
    const FormulaNode *node = &f->nodes[parts[i]];
    if (parts[i] == absorbing) return f->lists_count = start, absorbing;
    if (parts[i] == neutral) continue;
    size_t more = node->kind == kind ? node->b : 1;
    if (!failure_work(&f->failure, 4 * more)) return f->lists_count = start, FORMULA_FALSE;
    if (!failure_grow(&f->failure, &f->lists, &f->lists_capacity, start + count + more, sizeof(Formula)))
      return FORMULA_FALSE;
    for (size_t j = 0; j < more; j++)
      f->lists[start + count + j] = node->kind == kind ? f->lists[node->a + j] : parts[i];
    count += more;
    f->lists_count = start + count;
  }
  f->lists_count = start;
  if (count == 0) return neutral;
  Formula *list = f->lists + start;
  if (count > 1) qsort(list, count, sizeof *list, number_order);
  size_t kept = 0;
  for (size_t i = 0; i < count; i++)
    if (kept == 0 || list[kept - 1] != list[i]) list[kept++] = list[i];
  for (size_t i = 0; i < kept; i++)
    if (f->nodes[list[i]].kind == FORMULA_NOT &&
        bsearch(&f->nodes[list[i]].a, list, kept, sizeof *list, number_order))
      return absorbing;
  return kept == 0 ? neutral : kept == 1 ? list[0] : add_list(f, kind, start, kept);
}

Formula formula_and(Formulas *formulas, Formula a, Formula b) {
  if (a == FORMULA_TRUE || a == b) return b;
  if (b == FORMULA_TRUE) return a;
  return formula_join(formulas, FORMULA_AND, (const Formula[]){a, b}, 2);
}

Formula formula_or(Formulas *formulas, Formula a, Formula b) {
  if (a == FORMULA_FALSE || a == b) return b;
  if (b == FORMULA_FALSE) return a;
  return formula_join(formulas, FORMULA_OR, (const Formula[]){a, b}, 2);
}

/* formula_one() of parts[0..n) that are neither true nor false; sorts them. */
static Formula one_of_open(Formulas *f, Formula *parts, size_t n) {
  Formula twice = FORMULA_TRUE;
  size_t kept = 0;
  if (n > 1) qsort(parts, n, sizeof *parts, number_order);
  for (size_t i = 0, end; i < n; i = end) {
    for (end = i + 1; end < n && parts[end] == parts[i];) end++;
    const Formula part = parts[i];
    if (end == i + 1) {
      parts[kept++] = part;
    } else { /* equal parts are true together: if exactly one is true, they are false */
      twice = formula_and(f, twice, formula_not(f, part));
    }
  }
  Formula one = kept == 0 ? FORMULA_FALSE : parts[0];
  if (kept > 1) {
    const size_t start = f->lists_count;
    if (!failure_grow(&f->failure, &f->lists, &f->lists_capacity, start + kept, sizeof(Formula)))
      return FORMULA_FALSE;
    memcpy(f->lists + start, parts, kept * sizeof *parts);
    one = add_list(f, FORMULA_ONE, start, kept);
  }
  return formula_and(f, twice, one);
}

Formula formula_one(Formulas *formulas, const Formula *parts, size_t n) {
  Formulas *f = formulas;
  Formula few[32], *open = few;
  size_t count = 0, n_true = 0;
  if (n > 32 && !(open = malloc(n * sizeof *open)))
    return fail(f, STATUS_FAILED, "out of memory"), FORMULA_FALSE;
  for (size_t i = 0; i < n; i++) {
    n_true += parts[i] == FORMULA_TRUE;
    if (parts[i] > FORMULA_TRUE) open[count++] = parts[i];
  }
  Formula made = n_true <= 1;
  if (n_true == 0) made = one_of_open(f, open, count);
  for (size_t i = 0; n_true == 1 && i < count; i++) made = formula_and(f, made, formula_not(f, open[i]));
  if (open != few) free(open);
  return made;
}

/* --- replacing atoms */

typedef struct {
  Formulas *formulas;
  uint32_t atoms, round;
  AtomReplace replace;
  void *user;
} Map;

static Formula map(const Map *m, Formula formula);

static Formula map_list(const Map *m, FormulaNode node) {
  Formulas *f = m->formulas;
  Formula few[16], *parts = few, made;
  if (node.b > 16 && !(parts = malloc(node.b * sizeof *parts)))
    return fail(f, STATUS_FAILED, "out of memory"), FORMULA_FALSE;
  for (uint32_t i = 0; i < node.b; i++) parts[i] = map(m, f->lists[node.a + i]);
  made = node.kind == FORMULA_ONE ? formula_one(f, parts, node.b) : formula_join(f, node.kind, parts, node.b);
  if (parts != few) free(parts);
  return made;
}

static Formula map(const Map *m, Formula formula) {
  Formulas *f = m->formulas;
  if (!failure_work(&f->failure, 1)) return FORMULA_FALSE;
  const FormulaNode node = f->nodes[formula];
  if (!(node.atoms & m->atoms)) return formula;
  if (node.round == m->round) return node.mapped;
  Formula made;
  switch ((FormulaKind)node.kind) {
  case FORMULA_ATOM: made = m->replace(m->user, &node, formula); break;
  case FORMULA_NOT: made = formula_not(f, map(m, node.a)); break;
  default: made = map_list(m, node); break;
  }
  f->nodes[formula].round = m->round;
  f->nodes[formula].mapped = made;
  return made;
}

Formula formula_map(Formulas *formulas, Formula formula, uint32_t atoms, AtomReplace replace, void *user) {
  const Map m = {formulas, atoms, ++formulas->round, replace, user};
  return map(&m, formula);
}

Status formulas_open(Formulas *formulas, Error *err) {
  *formulas = (Formulas){.round = 0};
  add(formulas, (FormulaNode){.kind = FORMULA_CONSTANT, .a = FORMULA_FALSE});
  add(formulas, (FormulaNode){.kind = FORMULA_CONSTANT, .a = FORMULA_TRUE});
  return formulas_check(formulas, err);
}

void formulas_close(Formulas *formulas) {
  free(formulas->nodes);
  key_table_release(&formulas->by_content);
  free(formulas->lists);
  *formulas = (Formulas){.round = 0};
}
