/* steps.c - reads lists of steps from their JSON; see steps.h. */
#include "tokenizer/load/steps.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  Steps *steps;
  const StepType *types;
  const char *plural;
} StepReader;

static Status add_step(void *owner, const char *where, const char *type, const Json *json, Error *err) {
  const StepReader *r = owner;
  Steps *s = r->steps;
  const StepType *known = r->types;
  while (known->type && strcmp(known->type, type) != 0) known++;
  if (!known->type) return field_unknown_type(where, type, err);
  if (s->count == MAX_STEPS)
    return error_set(err, STATUS_MODEL, "%s: more than %d %s", where, MAX_STEPS, r->plural);
  TRY(APPEND(s->steps, s->count, s->capacity, r->plural, err, (Step){.kind = known->kind}));
  Where here = where_in(where, type, 0);
  if (known->members) TRY(field_known(here.text, json, known->members, err));
  return known->load ? known->load(here.text, json, &s->steps[s->count - 1], err) : STATUS_OK;
}

Status steps_load(const char *where, const Json *json, const char *list, const char *plural,
                  const StepType *types, Steps *steps, Error *err) {
  *steps = (Steps){.absent = !json, .where = where_copy(where)};
  StepReader reader = {steps, types, plural};
  return json ? field_components(where, json, list, 0, add_step, &reader, err) : STATUS_OK;
}

void steps_release(Steps *steps) {
  for (size_t i = 0; i < steps->count; i++) {
    pattern_release(&steps->steps[i].pattern);
    kind_map_release(&steps->steps[i].map);
    free(steps->steps[i].content);
  }
  free(steps->steps);
  *steps = (Steps){0};
}

Status metaspace_load(const char *where, const Json *json, Step *step, Error *err) {
  static const char *const names[] = {"always", "first", "never"};
  TRY(field_known(where, json, "replacement add_prefix_space prepend_scheme split str_rep", err));
  TRY(field_character(where, json, "replacement", step->mark, &step->mark_size, err));
  TRY(field_bool_or(where, json, "split", true, &step->split, err));
  const char *name;
  TRY(json_get_string((JsonSource){where, STATUS_MODEL}, json, "prepend_scheme", &name, err));
  step->scheme = PREPEND_ALWAYS;
  bool known = !name;
  for (size_t i = 0; name && i < sizeof names / sizeof *names; i++) {
    if (strcmp(name, names[i]) != 0) continue;
    step->scheme = (PrependScheme)i;
    known = true;
  }
  if (!known)
    return error_set(err, STATUS_MODEL, "%s: prepend_scheme is %.80s, expected always, first or never", where,
                     name);
  bool prefix; /* a member of older files, which the reference compares with prepend_scheme, too */
  TRY(field_bool_or(where, json, "add_prefix_space", true, &prefix, err));
  if (!prefix && step->scheme != PREPEND_NEVER)
    return error_set(err, STATUS_MODEL, "%s: add_prefix_space is false, but prepend_scheme is not never",
                     where);
  return STATUS_OK;
}

/* Reads the component's "type"; refused if `json` is not an object or has none. */
static Status read_type(const char *where, const Json *json, const char **type, Error *err) {
  if (!json_is_object(json)) return field_expected(where, NULL, json, "an object", err);
  TRY(json_get_string((JsonSource){where, STATUS_MODEL}, json, "type", type, err));
  return *type ? STATUS_OK : error_set(err, STATUS_MODEL, "%s: type is missing", where);
}

Status field_components(const char *where, const Json *json, const char *list, int depth, AddComponent *add,
                        void *owner, Error *err) {
  const char *type;
  const Json *items;
  if (depth > 32) return error_set(err, STATUS_MODEL, "%s: nested too deep", where);
  TRY(read_type(where, json, &type, err));
  if (strcmp(type, "Sequence") != 0) return add(owner, where, type, json, err);
  Where here = where_in(where, type, 0);
  TRY(field_known(here.text, json, list, err));
  TRY(field_array(here.text, json, list, &items, err));
  size_t i = 0;
  for (const Json *item = json_first(items); item; item = json_next(item), i++)
    TRY(field_components(where_in(here.text, NULL, i).text, item, list, depth + 1, add, owner, err));
  return STATUS_OK;
}
