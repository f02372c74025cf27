/* schema.c - opens a schema and keeps its subschemas and keys by number; see schema.h. */
#include "constrain/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash64.h"
#include "constrain/lang/numbers.h"
#include "constrain/lang/regular_expression.h"
#include "constrain/schema_internal.h"

#define MAX_SCHEMAS 200000

/* --- small containers */

const Json *schema_find(const Json *object, const char *key) {
  if (!json_is_object(object)) return NULL;
  for (const Json *member = json_first(object); member; member = json_next(member))
    if (strcmp(json_key(member), key) == 0) return member;
  return NULL;
}

JsonKind json_kind(const Json *json) {
  bool truth;
  if (json_bool(json, &truth)) return truth ? JSON_TRUE : JSON_FALSE;
  return json_is_number(json)   ? JSON_NUMBER
         : json_is_string(json) ? JSON_STRING
         : json_is_array(json)  ? JSON_ARRAY
         : json_is_object(json) ? JSON_OBJECT
                                : JSON_NULL;
}

Status number_list_add(NumberList *list, uint32_t number, Error *err) {
  return APPEND(list->items, list->count, list->capacity, "a schema", err, number);
}

Status key_list_add(KeyList *list, uint32_t key, uint32_t schema, Error *err) {
  return APPEND(list->items, list->count, list->capacity, "a schema", err, (KeySchema){key, schema});
}

/* --- keys */

uint32_t schema_key(SchemaSet *set, const char *bytes, size_t size, bool add) {
  const uint64_t hash = hash64(bytes, size, 0);
  const KeyTable *known = &set->keys_by_bytes;
  for (const KeyEntry *e = key_table_find(known, hash); e; e = key_table_next(known, e)) {
    const Key *key = &set->keys[e->value.number];
    if (key->size == size && memcmp(key->bytes, bytes, size) == 0) return e->value.number;
  }
  if (!add) return UINT32_MAX;
  const Key key = {arena_alloc(&set->key_bytes, size + 1, 1, NULL), size};
  if (!key.bytes) return langs_fail(&set->langs, STATUS_FAILED, "out of memory"), UINT32_MAX;
  memcpy(key.bytes, bytes, size);
  return key_table_append(&set->keys_by_bytes, hash, &set->keys, &set->n_keys, &set->keys_capacity, &key,
                          sizeof key, &set->langs.failure);
}

/* --- schemas */

#define AT(member) offsetof(Schema, member)
static const struct {
  enum { ONE, LIST, KEYED } form;
  size_t at; /* offset in Schema. ONE: of a number (SCHEMA_NONE: none), LIST: NumberList, KEYED: KeyList */
  unsigned parts;
} parts[] = {
    /* The order of the rows decides the order of an object's keys (key_order.c): after the schema's own
     * keys come those of parts with PART_ORDERS, row by row. */
    {KEYED, AT(properties), PART_CHILD},
    {KEYED, AT(patterns), PART_CHILD},
    {ONE, AT(additional), PART_CHILD},
    {ONE, AT(names), PART_CHILD},
    {ONE, AT(open_members), PART_CHILD},
    {LIST, AT(prefix), PART_CHILD},
    {ONE, AT(rest), PART_CHILD},
    {ONE, AT(open_items), PART_CHILD},
    {ONE, AT(contains), PART_CHILD},
    {LIST, AT(all_of), PART_EVALUATES | PART_ORDERS},
    {LIST, AT(any_of), PART_EVALUATES | PART_ORDERS},
    {LIST, AT(one_of), PART_EVALUATES | PART_ORDERS},
    {LIST, AT(constants), PART_ORDERS},
    {ONE, AT(const_container), PART_ORDERS},
    {ONE, AT(not_schema), PART_EVALUATES},
    {ONE, AT(if_schema), PART_EVALUATES | PART_ORDERS},
    {ONE, AT(then_schema), PART_EVALUATES | PART_ORDERS},
    {ONE, AT(else_schema), PART_EVALUATES | PART_ORDERS},
    {KEYED, AT(dependents), PART_EVALUATES | PART_ORDERS},
};
enum { N_PARTS = sizeof parts / sizeof *parts };

uint32_t *schema_part(const Schema *schema, unsigned wanted, size_t i) {
  for (int row = 0; row < N_PARTS; row++) {
    if (!(parts[row].parts & wanted)) continue;
    void *place = (char *)schema + parts[row].at;
    uint32_t *one = place;
    const NumberList *list = place;
    const KeyList *keyed = place;
    const size_t n = parts[row].form == ONE    ? *one != SCHEMA_NONE
                     : parts[row].form == LIST ? list->count
                                               : keyed->count;
    if (i >= n)
      i -= n;
    else
      return parts[row].form == ONE    ? one
             : parts[row].form == LIST ? &list->items[i]
                                       : &keyed->items[i].schema;
  }
  return NULL;
}

static Status add(SchemaSet *set, Schema schema, const char *pointer, uint32_t *number, Error *err) {
  const void *json = schema.json;
  const uint64_t hash = hash64(&json, sizeof json, schema.is_constant);
  const KeyTable *known = &set->schemas_by_json;
  for (const KeyEntry *e = json ? key_table_find(known, hash) : NULL; e; e = key_table_next(known, e)) {
    *number = e->value.number;
    if (set->schemas[*number].json == json && set->schemas[*number].is_constant == schema.is_constant)
      return STATUS_OK;
  }
  if (set->count >= MAX_SCHEMAS) return error_set(err, STATUS_USAGE, "over %d subschemas", MAX_SCHEMAS);
  TRY(mem_grow(&set->schemas, &set->capacity, set->count + 1, sizeof *set->schemas, "a schema", err));
  *number = (uint32_t)set->count;
  const bool added = !json || key_table_add(&set->schemas_by_json, (KeyEntry){hash, {.number = *number}});
  if (!added || !(schema.pointer = strdup(pointer))) return error_set(err, STATUS_FAILED, "out of memory");
  schema.kinds = ALL_KINDS;
  schema.string = schema.number = LANG_ALL;
  for (int row = 0; row < N_PARTS; row++)
    if (parts[row].form == ONE) *(uint32_t *)(void *)((char *)&schema + parts[row].at) = SCHEMA_NONE;
  schema.max_members = schema.max_items = schema.max_contains = UINT32_MAX;
  schema.member_keys = LANG_UNKNOWN;
  set->schemas[set->count++] = schema;
  return STATUS_OK;
}

Status schema_add(SchemaSet *set, const Json *json, uint32_t resource, Draft draft, const char *pointer,
                  uint32_t *number, Error *err) {
  bool value;
  if (json_bool(json, &value)) {
    *number = value ? SCHEMA_TRUE : SCHEMA_FALSE;
    return STATUS_OK;
  }
  if (json_is_object(json) && json_count(json) == 0) {
    *number = SCHEMA_TRUE;
    return STATUS_OK;
  }
  char found[64];
  if (!json_is_object(json))
    return error_set(err, STATUS_USAGE, "%s is %s, expected a schema", pointer, json_describe(json, found));
  schema_enter(set, json, &resource, &draft);
  return add(set, (Schema){.json = json, .resource = resource, .draft = draft}, pointer, number, err);
}

Status schema_add_constant(SchemaSet *set, const Json *value, const char *pointer, uint32_t *number,
                           Error *err) {
  return add(set, (Schema){.json = value, .is_constant = true, .draft = DRAFT_2020}, pointer, number, err);
}

/* --- opening */

Status schema_check_strings(const SchemaSet *set, uint32_t schema, Error *err) {
  Error inner;
  const Status status = langs_check(&set->langs, &inner);
  if (status == STATUS_OK) return status;
  if (!set->langs.failure.too_hard) return error_set(err, status, "%s", inner.text);
  return error_set(err, status, "%s: the strings or numbers that fit here are too hard to find: %s",
                   set->schemas[schema].pointer, inner.text);
}

#define MAX_SEARCHED_NOW ((size_t)4000) /* expressions after which search_numbers() ends */

/* Finds which first bytes of restricted numbers lead nowhere. Otherwise the first mask would search for
 * them. */
static Status search_numbers(SchemaSet *set, Error *err) {
  Langs *l = &set->langs;
  const size_t start = l->count;
  if (l->divisors_count > 0) return STATUS_OK; /* multipleOf makes too many expressions */
  for (uint32_t i = 0; i < set->count && l->count - start < MAX_SEARCHED_NOW; i++) {
    const Lang own = schema_numbers(set, i);
    if (own == LANG_ALL || own == LANG_NONE) continue;
    const Lang numbers = lang_and(l, own, set->bounded_number);
    if (!lang_is_alive(l, numbers)) continue;
    const Lang negative = lang_next(l, numbers, '-');
    for (const char *byte = "-0123456789"; *byte && l->count - start < MAX_SEARCHED_NOW; byte++) {
      lang_is_alive(l, lang_next(l, numbers, (unsigned char)*byte));
      lang_is_alive(l, lang_next(l, negative, (unsigned char)*byte));
    }
    TRY(schema_check_strings(set, i, err));
  }
  return STATUS_OK;
}

/* Makes every language and formula, so that a schema that is too hard is refused now. */
static Status make_all(SchemaSet *set, Error *err) {
  for (uint32_t i = 0; i < set->count; i++) {
    for (JsonKind kind = JSON_NULL; kind <= JSON_TRUE; kind++) schema_formula(set, i, kind);
    schema_strings(set, i);
    schema_numbers(set, i);
    schema_formula(set, i, JSON_ARRAY);
    schema_formula(set, i, JSON_OBJECT);
    schema_member_keys(set, i);
    TRY(schema_check_strings(set, i, err));
  }
  TRY(search_numbers(set, err));
  TRY(formulas_check(&set->formulas, err));
  return langs_check(&set->langs, err);
}

/* The texts of `numbers` that do not end with a fraction of zeros. */
static Lang without_zero_fraction(Langs *l, Lang numbers) {
  return lang_and(l, numbers, lang_not(l, lang_pattern(l, "[-.0-9]*\\.0+")));
}

static Status compile_all(SchemaSet *set, Error *err) {
  const Numbers numbers = {&set->langs, set->options.exponents};
  uint32_t number;
  TRY(langs_open(&set->langs, err));
  TRY(formulas_open(&set->formulas, err));
  set->bounded_number = numbers_bounded(numbers);
  if (set->options.plain_integers)
    set->bounded_number = without_zero_fraction(&set->langs, set->bounded_number);
  set->any_number = set->integers = LANG_UNKNOWN;
  TRY(add(set, (Schema){.compiled = true}, "", &number, err));
  TRY(add(set, (Schema){.compiled = true}, "", &number, err));
  set->schemas[SCHEMA_FALSE].kinds = 0;
  TRY(schema_find_resources(set, err));
  TRY(schema_add(set, set->tree, 0, set->resources[0].draft, "#", &set->root, err));
  for (; set->n_compiled < set->count; set->n_compiled++) {
    uint32_t at = (uint32_t)set->n_compiled;
    if (set->schemas[at].compiled) continue;
    if (!langs_work(&set->langs, 500)) return langs_check(&set->langs, err); /* interrupted, or too much */
    TRY(set->schemas[at].is_constant ? schema_compile_constant(set, at, err) : schema_compile(set, at, err));
    set->schemas[at].compiled = true;
    TRY(langs_check(&set->langs, err));
  }
  TRY(schema_widen(set, err));
  return make_all(set, err);
}

/* Refuses the object around a schema that OpenAI's response_format has: none of its members is a keyword, so
 * any JSON would fit it. */
static Status check_is_bare(const Json *tree, Error *err) {
  static const char *const around[] = {"name", "schema", "strict", "description"};
  if (!json_is_object(json_member(tree, "schema")) || !json_is_string(json_member(tree, "name")))
    return STATUS_OK;
  for (const Json *member = json_first(tree); member; member = json_next(member)) {
    bool known = false;
    for (size_t i = 0; i < sizeof around / sizeof *around; i++)
      known = known || strcmp(json_key(member), around[i]) == 0;
    if (!known) return STATUS_OK;
  }
  return error_set(err, STATUS_USAGE,
                   "this is a name with a schema, as in OpenAI's response_format: the schema is its member "
                   "\"schema\" (jq .schema)");
}

Status schema_open(const char *name, const char *text, size_t size, SchemaOptions options, SchemaSet *set,
                   Error *err) {
  *set = (SchemaSet){.options = options};
  Status status = json_parse(name, STATUS_USAGE, text, size, NULL, 0, &set->tree, err);
  Error inner;
  if (status == STATUS_OK && ((status = check_is_bare(set->tree, &inner)) != STATUS_OK ||
                              (status = compile_all(set, &inner)) != STATUS_OK))
    error_set(err, status, "%s: %s", name, inner.text);
  if (status != STATUS_OK) schema_close(set);
  return status;
}

void schema_close(SchemaSet *set) {
  for (size_t i = 0; i < set->count; i++) {
    Schema *s = &set->schemas[i];
    for (int row = 0; row < N_PARTS; row++) {
      void *place = (char *)s + parts[row].at;
      if (parts[row].form == LIST) free(((NumberList *)place)->items);
      if (parts[row].form == KEYED) free(((KeyList *)place)->items);
    }
    free(s->order.items);
    free(s->required.items);
    free(s->needed_keys.items);
    free(s->pointer);
  }
  for (size_t i = 0; i < set->n_resources; i++) free(set->resources[i].uri);
  for (size_t i = 0; i < set->n_anchors; i++) free(set->anchors[i].name);
  free(set->schemas);
  free(set->keys);
  arena_release(&set->key_bytes);
  key_table_release(&set->keys_by_bytes);
  key_table_release(&set->schemas_by_json);
  key_table_release(&set->members);
  free(set->resources);
  free(set->anchors);
  buffer_release(&set->let_go);
  formulas_close(&set->formulas);
  langs_close(&set->langs);
  json_free(set->tree);
  *set = (SchemaSet){.count = 0};
}
