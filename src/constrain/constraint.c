/* constraint.c - opens a schema's parts and takes tokens; see constraint.h. Called by: commands/schema.c. */
#include "constrain/constraint.h"

Status constraint_begin(Constraint *constraint, Error *err) {
  Machine *m = &constraint->machine;
  machine_release(m, (ArenaMark){0, 0});
  bool possible = machine_begin(m, &constraint->state);
  TRY(machine_check(m, err));
  return possible ? STATUS_OK : error_set(err, STATUS_USAGE, "no text satisfies the schema");
}

Status constraint_open(const char *name, const char *text, size_t size, SchemaOptions options,
                       const Vocabulary *vocabulary, Constraint *constraint, Error *err) {
  Constraint *c = constraint;
  *c = (Constraint){.vocabulary = vocabulary};
  TRY(schema_open(name, text, size, options, &c->set, err));
  Status status = machine_open(&c->set, &c->machine, err);
  if (status == STATUS_OK && vocabulary) status = masks_open(&c->machine, vocabulary, &c->masks, err);
  Error inner;
  if (status == STATUS_OK && (status = constraint_begin(c, &inner)) != STATUS_OK)
    error_set(err, status, "%s: %s", name, inner.text);
  if (status != STATUS_OK) constraint_close(c);
  return status;
}

void constraint_close(Constraint *constraint) {
  if (constraint->vocabulary && constraint->masks.m) masks_close(&constraint->masks);
  machine_close(&constraint->machine);
  schema_close(&constraint->set);
}

Status constraint_mask(Constraint *constraint, uint64_t *mask, Error *err) {
  masks_compute(&constraint->masks, &constraint->state, mask);
  return machine_check(&constraint->machine, err);
}

Status constraint_take_bytes(Constraint *constraint, const char *bytes, size_t size, bool *allowed,
                             size_t *taken, Error *err) {
  Machine *m = &constraint->machine;
  const ArenaMark mark = machine_mark(m);
  JsonState state = constraint->state;
  size_t at = 0;
  while (at < size && machine_push(m, &state, (unsigned char)bytes[at])) at++;
  *allowed = at == size;
  if (taken) *taken = at;
  if (*allowed) {
    constraint->state = state;
  } else {
    machine_release(m, mark);
  }
  return machine_check(m, err);
}

Status constraint_take(Constraint *constraint, int32_t id, bool *allowed, Error *err) {
  size_t size = 0;
  const Vocabulary *v = constraint->vocabulary;
  if (constraint->machine.set) {
    machine_tidy(&constraint->machine, &constraint->state);
    TRY(machine_check(&constraint->machine, err));
  }
  const char *bytes = id >= 0 && id < v->n_ids ? vocabulary_bytes(v, id, &size) : NULL;
  *allowed = false;
  return size > 0 ? constraint_take_bytes(constraint, bytes, size, allowed, NULL, err) : STATUS_OK;
}

bool constraint_may_end(Constraint *constraint) {
  return machine_may_end(&constraint->machine, &constraint->state);
}
