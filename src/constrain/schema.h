/* schema.h - a JSON Schema, compiled. Each of its subschemas has a number, languages of strings and numbers,
 * and formulas over the members or items of objects and arrays.
 *
 * Schemas 0 and 1 are `false` and `true`. A subschema is compiled once, however often it is referred to. The
 * keywords are those of the draft that `$schema` names, or of 2020-12. */
#pragma once

#include "base/json.h"
#include "constrain/formula.h"
#include "constrain/lang/lang.h"
#include "constrain/store/key_table.h"

typedef enum { DRAFT_4 = 4, DRAFT_6 = 6, DRAFT_7 = 7, DRAFT_2019 = 8, DRAFT_2020 = 9 } Draft;

typedef enum {
  JSON_NULL,
  JSON_FALSE,
  JSON_TRUE,
  JSON_NUMBER,
  JSON_STRING,
  JSON_ARRAY,
  JSON_OBJECT,
  JSON_KINDS
} JsonKind;
#define KIND_BIT(kind) (1u << (kind))
#define ALL_KINDS      ((1u << JSON_KINDS) - 1)

enum { SCHEMA_FALSE, SCHEMA_TRUE, SCHEMA_NONE = UINT32_MAX };

/* A key, or a pattern of keys, and its schema. In Schema.needed_keys `schema` is another number: the key that
 * `key` requires. */
typedef struct {
  uint32_t key; /* number of the key; of a pattern: its Lang */
  uint32_t schema;
} KeySchema;

typedef struct {
  uint32_t *items; /* [count] */
  size_t count, capacity;
} NumberList;

typedef struct {
  KeySchema *items; /* [count] */
  size_t count, capacity;
} KeyList;

/* Values of absent keywords: 0 for a minimum (1 for minContains beside contains), UINT32_MAX for a maximum,
 * SCHEMA_NONE for a schema. */
typedef struct {
  const Json *json; /* NULL for schemas 0 and 1; of a constant: the value */
  bool is_constant; /* only a value equal to `json` satisfies the schema */
  bool compiled;
  bool lost_patterns; /* patternProperties is not enforced for some patterns (SchemaSet.let_go) */
  uint8_t abundance;  /* is_abundant() of closing_plain.c: 0 unknown, 1 true, 2 false */
  bool is_proven;     /* some value satisfies the schema, or the search gave no answer: closing_find_dead() */
  bool widened;       /* it or a subschema has a keyword in SchemaSet.let_go: it allows more than it says */
  Draft draft;
  uint32_t resource;   /* index of the resource that gives the schema its base URI */
  char *pointer;       /* JSON pointer, for messages */
  unsigned kinds;      /* KIND_BIT() of the kinds that the schema's own keywords allow */
  Lang string, number; /* restrictions by the schema's own keywords; LANG_ALL: none */
  KeyList properties;  /* sorted by key */
  NumberList order;    /* keys of properties in the order of the schema's text */
  KeyList patterns;
  uint32_t additional, names, open_members; /* names: propertyNames; open_members: unevaluatedProperties */
  NumberList required;
  uint32_t min_members, max_members;
  KeyList needed_keys; /* (key, another key that the first requires) */
  KeyList dependents;  /* (key, schema of the object if the key is present) */
  NumberList prefix;   /* schemas of the first items */
  uint32_t rest, open_items, contains, min_items, max_items, min_contains, max_contains;
  bool unique;
  NumberList all_of, any_of, one_of, constants; /* constants: the arrays and objects of enum */
  uint32_t const_container;                     /* the array or object of const */
  bool has_any_of, has_one_of, has_constants;
  uint32_t not_schema, if_schema, then_schema, else_schema;

  /* The meaning of the whole schema, in-place subschemas included. state: 0 unknown, 1 being made, 2 made */
  uint8_t state[JSON_KINDS];
  Lang string_all, number_all;
  Formula formula[JSON_KINDS]; /* unused for JSON_STRING and JSON_NUMBER */
  Lang member_keys;            /* schema_member_keys(); LANG_UNKNOWN: not made yet */
} Schema;

typedef struct {
  char *uri; /* absolute, without a fragment */
  const Json *json;
  Draft draft;
} Resource;

typedef struct {
  uint32_t resource;
  char *name;
  const Json *json;
  bool dynamic;
} Anchor;

typedef struct {
  char *bytes; /* [size] */
  size_t size;
} Key;

typedef struct {
  bool exponents;      /* restricted numbers may have an exponent: 1.5e+3 */
  bool ignore_formats; /* formats are annotations */
  bool ordered_keys;   /* keys of `properties` come in their order, other keys after them */
  bool plain_integers; /* restricted numbers have no fraction of zeros: 2, not 2.0 */
  bool lenient;        /* a keyword that cannot be enforced exactly is ignored: SchemaSet.let_go lists it */
} SchemaOptions;

typedef struct {
  SchemaOptions options;
  Json *tree;
  Langs langs;
  Formulas formulas;
  Schema *schemas; /* [count] */
  size_t count, capacity;
  size_t n_compiled;
  Resource *resources; /* [n_resources]; the first is the root */
  size_t n_resources, resources_capacity;
  Anchor *anchors; /* [n_anchors] */
  size_t n_anchors, anchors_capacity;
  Key *keys; /* [n_keys] */
  size_t n_keys, keys_capacity;
  Arena key_bytes;
  KeyTable keys_by_bytes, schemas_by_json;
  KeyTable members; /* members of the objects that JSON pointers lead through, by a hash of object and key */
  uint32_t root;
  int depth;            /* recursion depth: schemas whose meaning is being made, one inside another */
  bool is_proving;      /* schemas that are not is_proven count as `false` (schema_is_refused()) */
  bool hides_evaluated; /* a keyword in let_go could evaluate members or items */
  Buffer let_go;        /* a C string for each keyword that is not enforced: its JSON pointer and why */
  Lang any_number, bounded_number, integers; /* of numbers.h; LANG_UNKNOWN: not made yet */
} SchemaSet;

/* Compiles a schema's text. A refusal is STATUS_USAGE; if a keyword is refused, the message has its JSON
 * pointer. A text that is no valid schema is refused, even with options.lenient. */
Status schema_open(const char *name, const char *text, size_t size, SchemaOptions options, SchemaSet *set,
                   Error *err);
void schema_close(SchemaSet *set);

/* Appends to a list. */
Status number_list_add(NumberList *list, uint32_t number, Error *err);
Status key_list_add(KeyList *list, uint32_t key, uint32_t schema, Error *err);

/* Kinds of subschemas, to choose which of them schema_part() gives: */
enum {
  PART_CHILD = 1,     /* those that judge members, keys or items */
  PART_EVALUATES = 2, /* those that judge the value itself, and may evaluate its members or items */
  PART_ORDERS = 4,    /* those that judge the value itself, and whose properties order its keys */
  PART_ANY = 7,
};
/* Address of the number of the i-th subschema that `parts` (PART_...) selects; NULL: there are no more. */
uint32_t *schema_part(const Schema *schema, unsigned parts, size_t i);

/* The number of a key. A new key gets a number with `add`; without it the result is UINT32_MAX. After a
 * failure of set->langs the result means nothing. */
uint32_t schema_key(SchemaSet *set, const char *bytes, size_t size, bool add);

/* --- the meaning of a schema; recursive over in-place subschemas */
Lang schema_strings(SchemaSet *set, uint32_t schema);
/* The failure of set->langs, if any; a limit on work is reported with the schema's pointer. */
Status schema_check_strings(const SchemaSet *set, uint32_t schema, Error *err);
Lang schema_numbers(SchemaSet *set, uint32_t schema);
Formula schema_formula(SchemaSet *set, uint32_t schema, JsonKind kind); /* not JSON_STRING, JSON_NUMBER */
/* True if the schema takes the value `kind`: null, false or true, whose formulas are constants. */
static inline bool schema_takes_scalar(SchemaSet *set, uint32_t schema, JsonKind kind) {
  return schema_formula(set, schema, kind) == FORMULA_TRUE;
}
/* An AND of ATOM_CHILD: the schemas that properties, patternProperties and additionalProperties give a member
 * with this key. */
Formula schema_member(SchemaSet *set, uint32_t schema, uint32_t key, const char *bytes, size_t size);
/* True if properties, patternProperties and additionalProperties allow no member with this key. */
bool schema_refuses_key(SchemaSet *set, uint32_t schema, uint32_t key);
/* The schema that prefixItems and items give the item at `index`. */
uint32_t schema_item(const SchemaSet *set, uint32_t schema, uint32_t index);
/* Keys that properties, patternProperties and additionalProperties allow. If only `properties` refuses some,
 * the result is all keys. */
Lang schema_member_keys(SchemaSet *set, uint32_t schema);
static inline bool schema_is_false(uint32_t schema) {
  return schema == SCHEMA_FALSE;
}
/* True for schema `false` and, while set->is_proving, for schemas that are not proven yet. */
static inline bool schema_is_refused(const SchemaSet *set, uint32_t schema) {
  return schema_is_false(schema) || (set->is_proving && schema != SCHEMA_TRUE && schema != SCHEMA_NONE &&
                                     !set->schemas[schema].is_proven);
}
