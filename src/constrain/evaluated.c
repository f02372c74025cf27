/* evaluated.c - evaluated members and items as formulas; see evaluated.h. Called by: frames.c. */
#include "constrain/evaluated.h"

/* A member or an item. */
typedef struct {
  Machine *m;
  const Frame *frame;
  bool is_member;
  uint32_t number; /* number of the key, or index of the item */
  const char *bytes;
  size_t size;
} Place;

static Formula evaluated(const Place *p, uint32_t schema, bool outermost);

static bool own_member(const Place *p, const Schema *s, bool outermost) {
  if (s->additional != SCHEMA_NONE || (!outermost && s->open_members != SCHEMA_NONE)) return true;
  for (size_t i = 0; i < s->properties.count; i++)
    if (s->properties.items[i].key == p->number) return true;
  for (size_t i = 0; i < s->patterns.count; i++)
    if (lang_contains(&p->m->set->langs, s->patterns.items[i].key, p->bytes, p->size)) return true;
  return false;
}

static bool own_item(const Place *p, const Schema *s, bool outermost) {
  return p->number < s->prefix.count || s->rest != SCHEMA_NONE ||
         (!outermost && s->open_items != SCHEMA_NONE);
}

static Formula where(const Place *p, uint32_t schema) {
  Formulas *f = &p->m->set->formulas;
  Formula same = schema <= SCHEMA_TRUE ? schema : formula_atom(f, ATOM_SAME, schema, 0);
  return formula_and(f, same, evaluated(p, schema, false));
}

static Formula key_present(const Place *p, uint32_t key) {
  if (key == p->number) return FORMULA_TRUE;
  for (const Seen *seen = p->frame->seen; seen; seen = seen->before)
    if (schema_key(p->m->set, seen->bytes, seen->size, false) == key) return FORMULA_TRUE;
  return formula_atom(&p->m->set->formulas, ATOM_HAS_KEY, key, 0);
}

static Formula evaluated(const Place *p, uint32_t schema, bool outermost) {
  Formulas *f = &p->m->set->formulas;
  const Schema *s = &p->m->set->schemas[schema];
  if (schema <= SCHEMA_TRUE) return FORMULA_FALSE;
  if (p->is_member ? own_member(p, s, outermost) : own_item(p, s, outermost)) return FORMULA_TRUE;
  Formula made = FORMULA_FALSE;
  if (!p->is_member && s->contains != SCHEMA_NONE && s->draft >= DRAFT_2020)
    made = s->contains <= SCHEMA_TRUE ? s->contains : formula_atom(f, ATOM_CHILD, s->contains, 0);
  for (size_t i = 0; i < s->all_of.count; i++)
    made = formula_or(f, made, evaluated(p, s->all_of.items[i], false));
  for (size_t i = 0; i < s->any_of.count; i++) made = formula_or(f, made, where(p, s->any_of.items[i]));
  for (size_t i = 0; i < s->one_of.count; i++) made = formula_or(f, made, where(p, s->one_of.items[i]));
  if (s->if_schema != SCHEMA_NONE) {
    Formula when = s->if_schema <= SCHEMA_TRUE ? s->if_schema : formula_atom(f, ATOM_SAME, s->if_schema, 0);
    Formula then = evaluated(p, s->if_schema, false), other = FORMULA_FALSE;
    if (s->then_schema != SCHEMA_NONE) then = formula_or(f, then, evaluated(p, s->then_schema, false));
    if (s->else_schema != SCHEMA_NONE) other = evaluated(p, s->else_schema, false);
    made = formula_or(f, made, formula_and(f, when, then));
    made = formula_or(f, made, formula_and(f, formula_not(f, when), other));
  }
  for (size_t i = 0; p->is_member && i < s->dependents.count; i++)
    made = formula_or(f, made,
                      formula_and(f, key_present(p, s->dependents.items[i].key),
                                  evaluated(p, s->dependents.items[i].schema, false)));
  return made;
}

Formula evaluated_member(Machine *m, const Frame *frame, uint32_t schema, uint32_t key, const char *bytes,
                         size_t size) {
  const Place p = {m, frame, true, key, bytes, size};
  return evaluated(&p, schema, true);
}

Formula evaluated_item(Machine *m, uint32_t schema, uint32_t index) {
  const Place p = {.m = m, .number = index};
  return evaluated(&p, schema, true);
}

static Status add_goal(Machine *m, uint32_t schema, NumberList *schemas, Error *err) {
  if (schema <= SCHEMA_TRUE) return STATUS_OK;
  for (size_t i = 0; i < schemas->count; i++)
    if (schemas->items[i] == schema) return STATUS_OK;
  TRY(number_list_add(schemas, schema, err));
  return evaluated_goals(m, schema, schemas, err);
}

Status evaluated_goals(Machine *m, uint32_t schema, NumberList *schemas, Error *err) {
  const Schema *s = &m->set->schemas[schema];
  for (size_t i = 0; i < s->all_of.count; i++) TRY(evaluated_goals(m, s->all_of.items[i], schemas, err));
  for (size_t i = 0; i < s->any_of.count; i++) TRY(add_goal(m, s->any_of.items[i], schemas, err));
  for (size_t i = 0; i < s->one_of.count; i++) TRY(add_goal(m, s->one_of.items[i], schemas, err));
  for (size_t i = 0; i < s->dependents.count; i++)
    TRY(evaluated_goals(m, s->dependents.items[i].schema, schemas, err));
  if (s->not_schema != SCHEMA_NONE) TRY(evaluated_goals(m, s->not_schema, schemas, err));
  if (s->if_schema != SCHEMA_NONE) TRY(add_goal(m, s->if_schema, schemas, err));
  if (s->then_schema != SCHEMA_NONE) TRY(evaluated_goals(m, s->then_schema, schemas, err));
  if (s->else_schema != SCHEMA_NONE) TRY(evaluated_goals(m, s->else_schema, schemas, err));
  return STATUS_OK;
}
