/* schema_compile.c - the keywords of JSON Schema: the table `keywords` has a function for each; see
 * schema_internal.h.
 *
 * A keyword that the schema's draft does not know is an annotation, like any unknown keyword. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "constrain/lang/formats.h"
#include "constrain/lang/numbers.h"
#include "constrain/lang/regular_expression.h"
#include "constrain/schema_internal.h"

#define AT(member) offsetof(Schema, member)

/* The keyword that is being compiled. Schemas move in memory when one is added: own() gives the present
 * address. */
typedef struct {
  SchemaSet *set;
  uint32_t number;
  const Json *json;  /* the whole schema */
  const char *key;   /* the keyword */
  size_t place;      /* offset in Schema, from the row of `keywords` */
  const Json *value; /* the keyword's value */
  Error *err;
} Keyword;

static Schema *own(const Keyword *k) {
  return &k->set->schemas[k->number];
}

static Status refuse(const Keyword *k, const char *expected) {
  char found[64];
  return error_set(k->err, STATUS_USAGE, "%s/%s is %s, expected %s", own(k)->pointer, k->key,
                   json_describe(k->value, found), expected);
}

/* Puts the keyword's JSON pointer before the message of a failed call. */
static Status blame(const Keyword *k, Status status, const Error *inner) {
  return status == STATUS_OK ? status
                             : error_set(k->err, status, "%s/%s: %s", own(k)->pointer, k->key, inner->text);
}

/* Appends the key `token` to the JSON pointer out[0..size); cuts what does not fit. */
static void append_token(char *out, size_t size, const char *token) {
  size_t n = strlen(out);
  for (; *token && n + 4 < size; token++) {
    if (*token == '~' || *token == '/') {
      out[n++] = '~';
      out[n++] = *token == '~' ? '0' : '1';
    } else {
      out[n++] = *token;
    }
  }
  out[n] = '\0';
}

/* Adds the subschema `json`. It is the keyword's value or, with `key`, the member or element `key` of that
 * value. */
static Status subschema(const Keyword *k, const Json *json, const char *key, uint32_t *number) {
  char pointer[512];
  const Schema *s = own(k);
  snprintf(pointer, sizeof pointer - 200, "%s/%s%s", s->pointer, k->key, key ? "/" : "");
  if (key) append_token(pointer, sizeof pointer, key);
  return schema_add(k->set, json, s->resource, s->draft, pointer, number, k->err);
}

/* The field of the Schema that the keyword fills. */
static void *place_of(const Keyword *k) {
  return (char *)own(k) + k->place;
}

static Status key_of(SchemaSet *set, const Json *member, uint32_t *key, Error *err) {
  OWNED(buffer_release) Buffer decoded = {0};
  const char *bytes;
  size_t size;
  TRY(json_key_bytes(member, &decoded, &bytes, &size, err));
  *key = schema_key(set, bytes, size, true);
  return langs_check(&set->langs, err);
}

static Status key_of_string(const Keyword *k, const Json *value, uint32_t *key) {
  size_t size;
  if (!json_is_string(value)) return refuse(k, "an array of strings");
  const char *bytes = json_string(value, &size);
  *key = schema_key(k->set, bytes, size, true);
  return langs_check(&k->set->langs, k->err);
}

/* --- types and values */

static const struct {
  const char *name;
  unsigned kinds;
} types[] = {{"null", KIND_BIT(JSON_NULL)},     {"boolean", KIND_BIT(JSON_FALSE) | KIND_BIT(JSON_TRUE)},
             {"number", KIND_BIT(JSON_NUMBER)}, {"string", KIND_BIT(JSON_STRING)},
             {"array", KIND_BIT(JSON_ARRAY)},   {"object", KIND_BIT(JSON_OBJECT)},
             {"integer", KIND_BIT(JSON_NUMBER)}};

static Status add_type(const Keyword *k, const Json *name, unsigned *kinds, bool *integer) {
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    if (!json_is_string(name) || !json_string_is(name, types[i].name)) continue;
    bool is_integer = strcmp(types[i].name, "integer") == 0;
    if (is_integer && !(*kinds & KIND_BIT(JSON_NUMBER))) *integer = true;
    if (!is_integer && types[i].kinds == KIND_BIT(JSON_NUMBER)) *integer = false;
    *kinds |= types[i].kinds;
    return STATUS_OK;
  }
  return refuse(k, "null, boolean, object, array, number, integer or string, or an array of them");
}

static Numbers numbers_of(const Keyword *k) {
  return (Numbers){&k->set->langs, k->set->options.exponents};
}

static void restrict_number(const Keyword *k, Lang to) {
  own(k)->number = lang_and(&k->set->langs, own(k)->number, to);
}

static void restrict_string(const Keyword *k, Lang to) {
  own(k)->string = lang_and(&k->set->langs, own(k)->string, to);
}

static Status take_type(const Keyword *k) {
  unsigned kinds = 0;
  bool integer = false;
  if (json_is_array(k->value)) {
    for (const Json *name = json_first(k->value); name; name = json_next(name))
      TRY(add_type(k, name, &kinds, &integer));
  } else {
    TRY(add_type(k, k->value, &kinds, &integer));
  }
  own(k)->kinds &= kinds;
  if (integer && k->set->integers == LANG_UNKNOWN) k->set->integers = numbers_integers(numbers_of(k));
  if (integer)
    restrict_number(k, own(k)->draft <= DRAFT_4 ? numbers_without_fraction(numbers_of(k)) : k->set->integers);
  return STATUS_OK;
}

static Status read_decimal(const Keyword *k, const Json *value, Decimal *d) {
  size_t size;
  if (!json_is_number(value)) return refuse(k, "a number");
  const char *text = json_number(value, &size);
  return decimal_read(text, size, d) ? STATUS_OK : refuse(k, "a number of at most 400 digits and exponent");
}

/* Takes n values from `first` on: the values of enum, or the value of const. */
static Status take_values(const Keyword *k, const Json *first, size_t n) {
  Langs *l = &k->set->langs;
  unsigned kinds = 0;
  size_t n_words = 0, i = 0;
  OWNED(number_set_release) NumberSet values = {.n_words = 0};
  OWNED(mem_release) LangWord *words = NULL;
  TRY(NEW(words, n + 1, "a schema", k->err));
  for (const Json *value = first; i < n; value = json_next(value), i++) {
    const unsigned kind = KIND_BIT(json_kind(value));
    kinds |= kind;
    if (kind == KIND_BIT(JSON_STRING)) {
      words[n_words].bytes = json_string(value, &words[n_words].size);
      words[n_words].rest = LANG_EMPTY;
      n_words++;
    } else if (kind == KIND_BIT(JSON_NUMBER)) {
      Decimal d;
      TRY(read_decimal(k, value, &d));
      TRY(number_set_add(numbers_of(k), &values, &d, k->err));
    } else if (kind & (KIND_BIT(JSON_ARRAY) | KIND_BIT(JSON_OBJECT))) {
      uint32_t constant;
      TRY(schema_add_constant(k->set, value, own(k)->pointer, &constant, k->err));
      if (strcmp(k->key, "const") == 0)
        own(k)->const_container = constant;
      else
        TRY(number_list_add(&own(k)->constants, constant, k->err));
    }
  }
  own(k)->kinds &= kinds;
  const Lang strings = lang_words(l, words, n_words), number = number_set_lang(numbers_of(k), &values);
  if (n == 1) lang_declare_single(l, n_words ? strings : number);
  restrict_string(k, strings);
  restrict_number(k, number);
  own(k)->has_constants |= strcmp(k->key, "enum") == 0;
  return STATUS_OK;
}

static Status take_enum(const Keyword *k) {
  if (!json_is_array(k->value)) return refuse(k, "an array of values");
  return take_values(k, json_first(k->value), json_count(k->value));
}

/* --- strings */

static Status read_count(const Keyword *k, uint32_t *count) {
  Decimal d;
  TRY(read_decimal(k, k->value, &d));
  uint64_t value = 0;
  for (int i = 0; i <= d.exponent && value < UINT32_MAX; i++)
    value = value * 10 + (uint64_t)(i < d.n ? d.digits[i] - '0' : 0);
  if (d.negative || (d.n && d.n > d.exponent + 1)) return refuse(k, "a non-negative integer");
  *count = value >= UINT32_MAX ? UINT32_MAX - 1 : (uint32_t)value;
  return STATUS_OK;
}

static Status take_length(const Keyword *k) {
  uint32_t count;
  Langs *l = &k->set->langs;
  TRY(read_count(k, &count));
  bool min = strcmp(k->key, "minLength") == 0;
  if (min) {
    /* minLength and maxLength together make one repetition. */
    const Json *other = schema_find(k->json, "maxLength");
    Keyword both = *k;
    uint32_t max = LANG_NO_END;
    both.key = "maxLength";
    both.value = other;
    if (other) TRY(read_count(&both, &max));
    restrict_string(k, max < count ? LANG_NONE : lang_repeat(l, lang_any_character(l), count, max));
  } else if (!schema_find(k->json, "minLength")) {
    restrict_string(k, lang_repeat(l, lang_any_character(l), 0, count));
  }
  return STATUS_OK;
}

static Status parse_pattern(const Keyword *k, const char *text, size_t size, Lang *out) {
  Error inner;
  return blame(k, regular_expression_parse(&k->set->langs, text, size, REGEX_SOMEWHERE, out, &inner), &inner);
}

static Status take_pattern(const Keyword *k) {
  size_t size;
  Lang lang;
  if (!json_is_string(k->value)) return refuse(k, "a regular expression");
  const char *text = json_string(k->value, &size);
  TRY(parse_pattern(k, text, size, &lang));
  restrict_string(k, lang);
  return STATUS_OK;
}

static Status take_format(const Keyword *k) {
  size_t size;
  bool known;
  Lang lang;
  Error inner;
  if (k->set->options.ignore_formats || !json_is_string(k->value)) return STATUS_OK;
  const char *name = json_string(k->value, &size);
  TRY(blame(k, format_lang(&k->set->langs, name, &known, &lang, &inner), &inner));
  if (known) restrict_string(k, lang);
  return STATUS_OK;
}

/* --- numbers */

/* minimum, maximum and their exclusive forms. In draft 4 a boolean member beside minimum or maximum says
 * whether it is exclusive. */
static Status take_bound(const Keyword *k) {
  Decimal d;
  const bool above = strstr(k->key, "inimum");
  bool exclusive = k->key[0] == 'e';
  TRY(read_decimal(k, k->value, &d));
  if (own(k)->draft <= DRAFT_4)
    json_bool(schema_find(k->json, above ? "exclusiveMinimum" : "exclusiveMaximum"), &exclusive);
  restrict_number(k, (above ? numbers_above : numbers_below)(numbers_of(k), &d, !exclusive));
  return STATUS_OK;
}

static Status take_multiple(const Keyword *k) {
  Decimal d;
  uint32_t divisor;
  unsigned scale;
  TRY(read_decimal(k, k->value, &d));
  if (d.negative || d.n == 0) return refuse(k, "a positive number");
  k->set->langs.unsupported = !decimal_divisor(&d, &divisor, &scale);
  if (k->set->langs.unsupported) return refuse(k, "at most 9 significant digits");
  restrict_number(k, numbers_multiple(numbers_of(k), divisor, scale));
  return STATUS_OK;
}

/* --- objects */

static Status take_properties(const Keyword *k) {
  if (!json_is_object(k->value)) return refuse(k, "an object of schemas");
  for (const Json *member = json_first(k->value); member; member = json_next(member)) {
    uint32_t key, number;
    TRY(key_of(k->set, member, &key, k->err));
    TRY(subschema(k, member, json_key(member), &number));
    TRY(key_list_add(&own(k)->properties, key, number, k->err));
    TRY(number_list_add(&own(k)->order, key, k->err));
  }
  return STATUS_OK;
}

static Status take_patterns(const Keyword *k) {
  if (!json_is_object(k->value)) return refuse(k, "an object of schemas");
  OWNED(buffer_release) Buffer decoded = {0};
  for (const Json *member = json_first(k->value); member; member = json_next(member)) {
    const char *pattern;
    size_t size;
    uint32_t number;
    Lang lang;
    TRY(json_key_bytes(member, &decoded, &pattern, &size, k->err));
    TRY(parse_pattern(k, pattern, size, &lang));
    TRY(subschema(k, member, json_key(member), &number));
    TRY(key_list_add(&own(k)->patterns, lang, number, k->err));
  }
  return STATUS_OK;
}

static Status take_required(const Keyword *k) {
  if (!json_is_array(k->value)) return refuse(k, "an array of strings");
  for (const Json *name = json_first(k->value); name; name = json_next(name)) {
    uint32_t key;
    TRY(key_of_string(k, name, &key));
    TRY(number_list_add(&own(k)->required, key, k->err));
  }
  return STATUS_OK;
}

static Status needed_keys(const Keyword *k, uint32_t key, const Json *names) {
  for (const Json *name = json_first(names); name; name = json_next(name)) {
    uint32_t other;
    TRY(key_of_string(k, name, &other));
    TRY(key_list_add(&own(k)->needed_keys, key, other, k->err));
  }
  return STATUS_OK;
}

/* dependencies, dependentRequired and dependentSchemas. They give each key an array of keys, a schema or, in
 * draft 4, one key. */
static Status take_dependencies(const Keyword *k) {
  if (!json_is_object(k->value)) return refuse(k, "an object");
  for (const Json *member = json_first(k->value); member; member = json_next(member)) {
    uint32_t key, number;
    TRY(key_of(k->set, member, &key, k->err));
    if (json_is_array(member)) {
      TRY(needed_keys(k, key, member));
    } else if (json_is_string(member) && own(k)->draft <= DRAFT_4) {
      TRY(key_of_string(k, member, &number));
      TRY(key_list_add(&own(k)->needed_keys, key, number, k->err));
    } else {
      TRY(subschema(k, member, json_key(member), &number));
      TRY(key_list_add(&own(k)->dependents, key, number, k->err));
    }
  }
  return STATUS_OK;
}

/* --- keywords whose value is a count, a schema or a list of schemas */

static Status take_count(const Keyword *k) {
  return read_count(k, place_of(k));
}

static Status take_schema(const Keyword *k) {
  uint32_t number;
  TRY(subschema(k, k->value, NULL, &number));
  *(uint32_t *)place_of(k) = number;
  const bool counts = own(k)->draft >= DRAFT_2019 && schema_find(k->json, "minContains");
  if (k->place == AT(contains) && !counts) own(k)->min_contains = 1;
  return STATUS_OK;
}

static Status take_schemas(const Keyword *k) {
  if (!json_is_array(k->value) || (json_count(k->value) == 0 && own(k)->draft < DRAFT_2020))
    return refuse(k, "an array of schemas");
  size_t i = 0;
  for (const Json *json = json_first(k->value); json; json = json_next(json)) {
    char index[24];
    uint32_t number;
    snprintf(index, sizeof index, "%zu", i++);
    TRY(subschema(k, json, index, &number));
    TRY(number_list_add(place_of(k), number, k->err));
  }
  own(k)->has_any_of |= k->place == AT(any_of);
  own(k)->has_one_of |= k->place == AT(one_of);
  return STATUS_OK;
}

static Status take_items(const Keyword *k) {
  uint32_t number;
  if (json_is_array(k->value)) {
    if (own(k)->draft >= DRAFT_2020) return refuse(k, "a schema (an array is prefixItems in this draft)");
    TRY(take_schemas(k));
    const Json *additional = schema_find(k->json, "additionalItems");
    if (!additional) return STATUS_OK;
    Keyword rest = *k;
    rest.key = "additionalItems";
    TRY(subschema(&rest, additional, NULL, &number));
  } else {
    TRY(subschema(k, k->value, NULL, &number));
  }
  own(k)->rest = number;
  return STATUS_OK;
}

static Status take_unique(const Keyword *k) {
  if (!json_is_bool(k->value)) return refuse(k, "true or false");
  json_bool(k->value, &own(k)->unique);
  return STATUS_OK;
}

static Status take_ref(const Keyword *k) {
  size_t size;
  uint32_t number;
  if (!json_is_string(k->value)) return refuse(k, "a reference");
  const char *reference = json_string(k->value, &size);
  bool dynamic = strcmp(k->key, "$dynamicRef") == 0;
  TRY(schema_resolve(k->set, own(k)->resource, reference, dynamic, own(k)->pointer, &number, k->err));
  return number_list_add(&own(k)->all_of, number, k->err);
}

static Status take_const(const Keyword *k) {
  return take_values(k, k->value, 1);
}

static Status refuse_keyword(const Keyword *k) {
  k->set->langs.unsupported = true;
  return error_set(k->err, STATUS_USAGE, "%s/%s is not supported ($ref can name the schema that is meant)",
                   own(k)->pointer, k->key);
}

/* The keywords, with the first and the last draft that know each. */
static const struct {
  const char *key;
  Draft first, last;
  Status (*take)(const Keyword *k);
  size_t place; /* offset in Schema of the field that `take` fills; 0 if `take` needs none */
} keywords[] = {
    {"$ref", DRAFT_4, DRAFT_2020, take_ref, 0},
    {"$dynamicRef", DRAFT_2020, DRAFT_2020, take_ref, 0},
    {"$recursiveRef", DRAFT_2019, DRAFT_2019, refuse_keyword, 0},
    {"type", DRAFT_4, DRAFT_2020, take_type, 0},
    {"enum", DRAFT_4, DRAFT_2020, take_enum, 0},
    {"const", DRAFT_6, DRAFT_2020, take_const, 0},
    {"minLength", DRAFT_4, DRAFT_2020, take_length, 0},
    {"maxLength", DRAFT_4, DRAFT_2020, take_length, 0},
    {"pattern", DRAFT_4, DRAFT_2020, take_pattern, 0},
    {"format", DRAFT_4, DRAFT_2020, take_format, 0},
    {"minimum", DRAFT_4, DRAFT_2020, take_bound, 0},
    {"maximum", DRAFT_4, DRAFT_2020, take_bound, 0},
    {"exclusiveMinimum", DRAFT_6, DRAFT_2020, take_bound, 0},
    {"exclusiveMaximum", DRAFT_6, DRAFT_2020, take_bound, 0},
    {"multipleOf", DRAFT_4, DRAFT_2020, take_multiple, 0},
    {"properties", DRAFT_4, DRAFT_2020, take_properties, 0},
    {"patternProperties", DRAFT_4, DRAFT_2020, take_patterns, 0},
    {"additionalProperties", DRAFT_4, DRAFT_2020, take_schema, AT(additional)},
    {"propertyNames", DRAFT_6, DRAFT_2020, take_schema, AT(names)},
    {"required", DRAFT_4, DRAFT_2020, take_required, 0},
    {"minProperties", DRAFT_4, DRAFT_2020, take_count, AT(min_members)},
    {"maxProperties", DRAFT_4, DRAFT_2020, take_count, AT(max_members)},
    {"dependencies", DRAFT_4, DRAFT_7, take_dependencies, 0},
    {"dependentRequired", DRAFT_2019, DRAFT_2020, take_dependencies, 0},
    {"dependentSchemas", DRAFT_2019, DRAFT_2020, take_dependencies, 0},
    {"unevaluatedProperties", DRAFT_2019, DRAFT_2020, take_schema, AT(open_members)},
    {"prefixItems", DRAFT_2020, DRAFT_2020, take_schemas, AT(prefix)},
    {"items", DRAFT_4, DRAFT_2020, take_items, AT(prefix)},
    {"contains", DRAFT_6, DRAFT_2020, take_schema, AT(contains)},
    {"minContains", DRAFT_2019, DRAFT_2020, take_count, AT(min_contains)},
    {"maxContains", DRAFT_2019, DRAFT_2020, take_count, AT(max_contains)},
    {"minItems", DRAFT_4, DRAFT_2020, take_count, AT(min_items)},
    {"maxItems", DRAFT_4, DRAFT_2020, take_count, AT(max_items)},
    {"uniqueItems", DRAFT_4, DRAFT_2020, take_unique, 0},
    {"unevaluatedItems", DRAFT_2019, DRAFT_2020, take_schema, AT(open_items)},
    {"allOf", DRAFT_4, DRAFT_2020, take_schemas, AT(all_of)},
    {"anyOf", DRAFT_4, DRAFT_2020, take_schemas, AT(any_of)},
    {"oneOf", DRAFT_4, DRAFT_2020, take_schemas, AT(one_of)},
    {"not", DRAFT_4, DRAFT_2020, take_schema, AT(not_schema)},
    {"if", DRAFT_7, DRAFT_2020, take_schema, AT(if_schema)},
    {"then", DRAFT_7, DRAFT_2020, take_schema, AT(then_schema)},
    {"else", DRAFT_7, DRAFT_2020, take_schema, AT(else_schema)},
};

/* --- keywords that are not enforced: they are "let go" */

/* Records in set->let_go that a keyword is not enforced, and why; marks the schema as widened. */
static Status let_go(SchemaSet *set, uint32_t number, const char *key, const char *why, Error *err) {
  static const char *const evaluating[] = {"patternProperties", "$ref", "$dynamicRef", "$recursiveRef", "if"};
  Schema *s = &set->schemas[number];
  const size_t n = strlen(s->pointer);
  const bool has_place = strncmp(why, s->pointer, n) == 0 && why[n] == '/';
  for (size_t i = 0; i < sizeof evaluating / sizeof *evaluating; i++)
    set->hides_evaluated |= strcmp(key, evaluating[i]) == 0;
  s->widened = true;
  if (has_place) return buffer_printf(&set->let_go, err, "%s%c", why, 0);
  return buffer_printf(&set->let_go, err, "%s/%s: %s%c", s->pointer, key, why, 0);
}

static bool is_widened(const SchemaSet *set, uint32_t number) {
  return number != SCHEMA_NONE && set->schemas[number].widened;
}

static bool list_is_widened(const SchemaSet *set, const NumberList *list) {
  for (size_t i = 0; i < list->count; i++)
    if (is_widened(set, list->items[i])) return true;
  return false;
}

static bool has_widened(const SchemaSet *set, const Schema *s) {
  const uint32_t *part;
  for (size_t i = 0; (part = schema_part(s, PART_ANY, i)); i++)
    if (is_widened(set, *part)) return true;
  return false;
}

/* Drops keywords that could allow too little because one of their subschemas allows more than it says. oneOf
 * becomes anyOf if the schema has no anyOf. */
static Status widen_around(SchemaSet *set, uint32_t number, Error *err) {
  static const char why[] = "depends on a keyword that was let go";
  Schema *s = &set->schemas[number];
  if (is_widened(set, s->not_schema)) {
    s->not_schema = SCHEMA_NONE;
    TRY(let_go(set, number, "not", why, err));
  }
  if (is_widened(set, s->if_schema)) {
    s->if_schema = s->then_schema = s->else_schema = SCHEMA_NONE;
    TRY(let_go(set, number, "if", why, err));
  }
  if (s->has_one_of && list_is_widened(set, &s->one_of)) {
    const NumberList branches = s->one_of;
    if (!s->has_any_of) s->one_of = s->any_of, s->any_of = branches;
    s->has_any_of = true;
    s->has_one_of = false;
    TRY(let_go(set, number, "oneOf", "several may hold, since one depends on a keyword that was let go",
               err));
  }
  if (s->max_contains != UINT32_MAX && is_widened(set, s->contains)) {
    s->max_contains = UINT32_MAX;
    TRY(let_go(set, number, "maxContains", why, err));
  }
  return STATUS_OK;
}

static Status forget_unevaluated(SchemaSet *set, Error *err) {
  static const char why[] = "what is evaluated depends on a keyword that was let go";
  for (uint32_t i = 0; i < set->count; i++) {
    Schema *s = &set->schemas[i];
    const bool members = s->open_members != SCHEMA_NONE, items = s->open_items != SCHEMA_NONE;
    s->open_members = s->open_items = SCHEMA_NONE;
    if (members) TRY(let_go(set, i, "unevaluatedProperties", why, err));
    if (items) TRY(let_go(set, i, "unevaluatedItems", why, err));
  }
  return STATUS_OK;
}

Status schema_widen(SchemaSet *set, Error *err) {
  if (set->let_go.size == 0) return STATUS_OK;
  for (bool more = true; more;) {
    more = false;
    for (uint32_t i = 0; i < set->count; i++) {
      Schema *s = &set->schemas[i];
      if (s->widened || !has_widened(set, s)) continue;
      s->widened = more = true;
    }
  }
  for (uint32_t i = 0; i < set->count; i++) TRY(widen_around(set, i, err));
  return set->hides_evaluated ? forget_unevaluated(set, err) : STATUS_OK;
}

int schema_by_key(const void *a, const void *b) {
  const KeySchema *x = a, *y = b;
  return (x->key > y->key) - (x->key < y->key);
}

/* The row of `keywords` that applies to a member of the schema's JSON; -1: none. */
static int find_keyword(const Schema *s, const Json *member) {
  size_t row = 0;
  while (row < sizeof keywords / sizeof *keywords && strcmp(json_key(member), keywords[row].key) != 0) row++;
  if (row == sizeof keywords / sizeof *keywords || s->draft < keywords[row].first ||
      s->draft > keywords[row].last)
    return -1;
  const bool alone = s->draft <= DRAFT_7 && schema_find(s->json, "$ref");
  return alone && strcmp(keywords[row].key, "$ref") != 0 ? -1 : (int)row;
}

static Keyword keyword_of(SchemaSet *set, uint32_t number, int row, const Json *value, Error *err) {
  return (Keyword){set,   number, set->schemas[number].json, keywords[row].key, keywords[row].place,
                   value, err};
}

bool schema_has_keyword(const SchemaSet *set, uint32_t number, const Json *keyword) {
  return find_keyword(&set->schemas[number], keyword) >= 0;
}

bool schema_keyword_langs(SchemaSet *set, uint32_t number, const Json *keyword, unsigned *kinds,
                          Lang *strings, Lang *numbers) {
  Error ignored;
  Schema *s = &set->schemas[number];
  const Schema whole = *s;
  const int row = find_keyword(s, keyword);
  const Keyword k = keyword_of(set, number, row < 0 ? 0 : row, keyword, &ignored);
  s->kinds = ALL_KINDS;
  s->string = s->number = LANG_ALL;
  const bool taken = row >= 0 && keywords[row].take(&k) == STATUS_OK;
  *kinds = s->kinds;
  *strings = s->string;
  *numbers = s->number;
  *s = whole;
  return taken;
}

Status schema_compile(SchemaSet *set, uint32_t number, Error *err) {
  const Json *json = set->schemas[number].json;
  for (const Json *member = json_first(json); member; member = json_next(member)) {
    const int row = find_keyword(&set->schemas[number], member);
    if (row < 0) continue;
    Error refused;
    const Keyword k = keyword_of(set, number, row, member, &refused);
    set->langs.unsupported = false;
    Status status = keywords[row].take(&k);
    if (status == STATUS_USAGE && set->langs.unsupported && set->options.lenient)
      status = let_go(set, number, keywords[row].key, refused.text, &refused);
    set->schemas[number].lost_patterns |=
        set->langs.unsupported && strcmp(keywords[row].key, "patternProperties") == 0;
    if (status != STATUS_OK) return error_set(err, status, "%s", refused.text);
  }
  Schema *s = &set->schemas[number];
  if (s->lost_patterns && s->additional != SCHEMA_NONE) {
    s->additional = SCHEMA_NONE; /* otherwise it would judge keys that the lost patterns match */
    TRY(let_go(set, number, "additionalProperties", "depends on a keyword that was let go", err));
  }
  KeyList *properties = &s->properties;
  if (properties->count)
    qsort(properties->items, properties->count, sizeof *properties->items, schema_by_key);
  return STATUS_OK;
}

/* Compiles a constant as a schema that only this value satisfies. An array becomes prefixItems of its
 * elements, an object required properties of its members, any other value a const. */
Status schema_compile_constant(SchemaSet *set, uint32_t number, Error *err) {
  const Json *value = set->schemas[number].json;
  uint32_t child;
  if (!json_is_array(value) && !json_is_object(value)) {
    const Keyword k = {
        .set = set, .number = number, .json = value, .key = "const", .value = value, .err = err};
    return take_values(&k, value, 1);
  }
  bool array = json_is_array(value);
  char pointer[400];
  snprintf(pointer, sizeof pointer, "%s", set->schemas[number].pointer);
  for (const Json *part = json_first(value); part; part = json_next(part)) {
    TRY(schema_add_constant(set, part, pointer, &child, err));
    if (array) {
      TRY(number_list_add(&set->schemas[number].prefix, child, err));
      continue;
    }
    uint32_t key;
    TRY(key_of(set, part, &key, err));
    TRY(key_list_add(&set->schemas[number].properties, key, child, err));
    TRY(number_list_add(&set->schemas[number].order, key, err));
    TRY(number_list_add(&set->schemas[number].required, key, err));
  }
  Schema *s = &set->schemas[number];
  s->kinds = array ? KIND_BIT(JSON_ARRAY) : KIND_BIT(JSON_OBJECT);
  if (array) {
    s->rest = SCHEMA_FALSE;
    s->min_items = s->max_items = (uint32_t)s->prefix.count;
  } else {
    s->additional = SCHEMA_FALSE;
    if (s->properties.count)
      qsort(s->properties.items, s->properties.count, sizeof *s->properties.items, schema_by_key);
  }
  return STATUS_OK;
}
