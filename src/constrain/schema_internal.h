/* schema_internal.h - what the files schema*.c share. */
#pragma once

#include "constrain/schema.h"

/* The member of an object, even one whose value is null; NULL if absent. */
const Json *schema_find(const Json *object, const char *key);

JsonKind json_kind(const Json *json);

/* Gives the number of the schema `json`. A new one is added uncompiled. `pointer` is its JSON pointer. */
Status schema_add(SchemaSet *set, const Json *json, uint32_t resource, Draft draft, const char *pointer,
                  uint32_t *number, Error *err);
Status schema_add_constant(SchemaSet *set, const Json *value, const char *pointer, uint32_t *number,
                           Error *err);

/* If some keywords are not enforced (SchemaSet.let_go), drops those that depend on them, such as `not` with a
 * subschema that now allows more. Each schema then allows no less than it says. PRECOND all schemas are
 * compiled */
Status schema_widen(SchemaSet *set, Error *err);
/* Compiles the keywords of set->schemas[number]. */
Status schema_compile(SchemaSet *set, uint32_t number, Error *err);
Status schema_compile_constant(SchemaSet *set, uint32_t number, Error *err);

/* True if `keyword`, a member of the schema's json, belongs to its draft, and no $ref beside it silences
 * it. */
bool schema_has_keyword(const SchemaSet *set, uint32_t number, const Json *keyword);
/* Gives what one keyword about single values (type, pattern, minimum and their like) allows by itself. But
 * minLength includes maxLength, and a maxLength beside minLength allows all. False if the keyword is refused
 * or does not apply. */
bool schema_keyword_langs(SchemaSet *set, uint32_t number, const Json *keyword, unsigned *kinds,
                          Lang *strings, Lang *numbers);
int schema_by_key(const void *a, const void *b); /* for qsort() of KeySchema */
/* The entry of `properties` for a key, or NULL. */
const KeySchema *schema_property(const Schema *s, uint32_t key);

/* Finds the documents and anchors within the schema. */
Status schema_find_resources(SchemaSet *set, Error *err);
/* The schema that `reference` means in a resource; refuses remote references. */
Status schema_resolve(SchemaSet *set, uint32_t resource, const char *reference, bool dynamic,
                      const char *pointer, uint32_t *number, Error *err);
/* If a resource begins at `json`, sets *resource and *draft to its own. */
void schema_enter(const SchemaSet *set, const Json *json, uint32_t *resource, Draft *draft);
