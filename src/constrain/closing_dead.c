/* closing_dead.c - subschemas that no value satisfies; see closing.h. Called by: constraint.c. */
#include <stdlib.h>

#include "constrain/closing.h"
#include "constrain/frames.h"

/* True if a value of the schema is found, or the search ends without an answer. */
static bool is_proven(Machine *m, uint32_t schema) {
  SchemaSet *set = m->set;
  const ArenaMark mark = machine_mark(m);
  const Frame none = {.kind = FRAME_ROOT};
  Frame *root = frame_copy(m, &none, 1, 1);
  if (!root) return true;
  root->numbers[0] = formula_atom(formulas_of(m), ATOM_CHILD, schema, 0);
  root->numbers[1] = SCHEMA_NONE;
  root->numbers[2] = schema;
  root->need = root->child_need = formula_atom(formulas_of(m), ATOM_GOAL, 0, 0);
  bool proven =
      schema_strings(set, schema) != LANG_NONE && lang_is_plain(&set->langs, schema_strings(set, schema));
  for (JsonKind kind = JSON_NULL; kind <= JSON_TRUE; kind++) proven |= schema_takes_scalar(set, schema, kind);
  for (FrameKind kind = FRAME_ARRAY; kind <= FRAME_OBJECT && !proven; kind++)
    proven = frame_open(m, root, kind) != NULL;
  proven = proven || frame_child_text_is_possible(m, root);
  machine_release(m, mark);
  return proven;
}

/* Puts `false` in place of each schema for members, keys or items that is not proven. */
static void forget_dead(const SchemaSet *set, Schema *s) {
  uint32_t *part;
  for (size_t i = 0; (part = schema_part(s, PART_CHILD, i)); i++)
    if (*part > SCHEMA_TRUE && !set->schemas[*part].is_proven) *part = SCHEMA_FALSE;
  s->member_keys = LANG_UNKNOWN;
}

typedef struct {
  uint32_t schema;
  size_t next; /* index of the next schema_part() */
} Visit;

/* The numbers of all subschemas but `true` and `false`. Each comes after those that it names, except in
 * cycles. NULL without memory. */
static uint32_t *inner_first(const SchemaSet *set) {
  uint32_t *order = malloc(set->count * sizeof *order), n_order = 0;
  Visit *visits = malloc(set->count * sizeof *visits);
  bool *met = calloc(set->count, sizeof *met);
  for (uint32_t root = 2; order && visits && met && root < set->count; root++) {
    size_t depth = 0;
    if (!met[root]) visits[depth++] = (Visit){root, 0};
    met[root] = true;
    while (depth > 0) {
      Visit *visit = &visits[depth - 1];
      const uint32_t *named = schema_part(&set->schemas[visit->schema], PART_ANY, visit->next++);
      if (!named) {
        order[n_order++] = visit->schema;
        depth--;
      } else if (*named > SCHEMA_TRUE && !met[*named]) {
        met[*named] = true;
        visits[depth++] = (Visit){*named, 0};
      }
    }
  }
  const bool made = visits && met;
  free(visits);
  free(met);
  if (!made) free(order);
  return made ? order : NULL;
}

enum { PROOF_WORK = 64 }; /* units of work (failure.h) assumed for a proof, beside what the stores count */

void closing_find_dead(Machine *m) {
  SchemaSet *set = m->set;
  uint64_t work = 0;
  bool more = true, dead = false;
  uint32_t *order = inner_first(set);
  if (!order) {
    machine_fail(m, "out of memory");
    return;
  }
  set->is_proving = true;
  while (more) {
    more = dead = false;
    for (size_t i = 0; i < set->count - 2 && machine_check(m, NULL) == STATUS_OK; i++) {
      Schema *s = &set->schemas[order[i]];
      if (s->is_proven) continue;
      closing_begin_work(m);
      s->is_proven = work > MAX_WORK / 2 || is_proven(m, order[i]);
      work += set->langs.failure.work + set->formulas.failure.work + PROOF_WORK;
      more |= s->is_proven;
      dead |= !s->is_proven;
    }
    more &= dead;
  }
  free(order);
  set->is_proving = false;
  if (set->root > SCHEMA_TRUE && !set->schemas[set->root].is_proven) return; /* the schema will be refused */
  for (size_t i = 2; i < set->count && dead; i++) forget_dead(set, &set->schemas[i]);
}
