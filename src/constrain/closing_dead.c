/* closing_dead.c - subschemas that no value satisfies; see closing.h. Called by: constraint.c. */
#include "constrain/closing.h"
#include "constrain/frames.h"
#include "constrain/schema_internal.h"

/* True if a value of the schema is found, or the search ends before it is known. */
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

static void forget_number(const SchemaSet *set, uint32_t *schema) {
  if (*schema != SCHEMA_NONE && *schema > SCHEMA_TRUE && !set->schemas[*schema].is_proven)
    *schema = SCHEMA_FALSE;
}

static void forget_keys(const SchemaSet *set, KeyList *list) {
  for (size_t i = 0; i < list->count; i++) forget_number(set, &list->items[i].schema);
}

/* Names `false` wherever the schema names one for its members or items that is not proven. */
static void forget_dead(const SchemaSet *set, Schema *s) {
  uint32_t *others[] = {&s->additional, &s->names, &s->open_members, &s->rest, &s->open_items, &s->contains};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) forget_number(set, others[i]);
  for (size_t i = 0; i < s->prefix.count; i++) forget_number(set, &s->prefix.items[i]);
  forget_keys(set, &s->properties);
  forget_keys(set, &s->patterns);
  s->member_keys = LANG_UNKNOWN;
}

void closing_find_dead(Machine *m) {
  SchemaSet *set = m->set;
  bool more = true, dead = false;
  set->is_proving = true;
  while (more) {
    more = dead = false;
    for (size_t i = set->count; i-- > 2 && machine_check(m, NULL) == STATUS_OK;) {
      if (set->schemas[i].is_proven) continue;
      closing_begin_work(m);
      set->schemas[i].is_proven = is_proven(m, (uint32_t)i);
      more |= set->schemas[i].is_proven;
      dead |= !set->schemas[i].is_proven;
    }
    more &= dead;
  }
  set->is_proving = false;
  if (set->root > SCHEMA_TRUE && !set->schemas[set->root].is_proven) return; /* to be refused */
  for (size_t i = 2; i < set->count && dead; i++) forget_dead(set, &set->schemas[i]);
}
