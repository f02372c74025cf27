/* explain.c - walks a value and the subschemas that judge it, and says which rules fail; see explain.h.
 *
 * Called by: commands/schema.c. Strings and numbers are judged keyword by keyword, with the machine's own
 * languages. Arrays and objects are judged by the fields of Schema. A subschema marks in `seen` the members
 * or items that it evaluates, for unevaluatedProperties and unevaluatedItems. */
#include "constrain/explain.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "constrain/lang/numbers.h"
#include "constrain/schema_internal.h"

#define MAX_STEPS   ((size_t)3000000) /* subschemas applied and values compared */
#define MAX_NESTING 4000              /* subschemas within one another */
#define SHOWN_BYTES 60                /* bytes of a value that a message shows */

/* Where a value is: the key or index below `up`; NULL is the whole value. */
typedef struct Place {
  const struct Place *up;
  const char *key; /* [size], or NULL: an item */
  size_t size, index;
  int depth; /* the whole value has no Place, its children have depth 1 */
} Place;

static int depth_of(const Place *place) {
  return place ? place->depth : 0;
}

/* A value; or a key, judged as a string by propertyNames. */
typedef struct {
  JsonKind kind;
  const Json *json;  /* NULL for a key */
  const char *bytes; /* [size] of a string or number */
  size_t size;
} Value;

typedef enum { BROKEN, NO_CONSTANT, NO_TYPE } Weight;

typedef struct {
  char *line;
  size_t expected_at, expected_size; /* where the line says what is expected; size 0: nowhere */
  int depth;                         /* depth of the value's Place */
  Weight weight;
} Reason;

typedef struct {
  SchemaSet *set;
  Reason *reasons; /* [n] */
  size_t n, capacity;
  size_t n_steps;
  int nesting, quiet; /* quiet > 0: only the verdict is wanted */
  bool gave_up;       /* the verdicts are no longer right */
  Status status;
  Error *err;
} Explainer;

static bool check(Explainer *e, uint32_t schema, const Value *v, const Place *place, bool *seen);

static bool too_long(Explainer *e) {
  e->gave_up |= ++e->n_steps > MAX_STEPS || e->nesting > MAX_NESTING || e->status != STATUS_OK;
  return e->gave_up;
}

static void keep(Explainer *e, Status status) {
  if (e->status == STATUS_OK) e->status = status;
}

/* --- values */

static Value value_of(const Json *json) {
  Value v = {.kind = json_kind(json), .json = json};
  if (v.kind == JSON_NUMBER) v.bytes = json_number(json, &v.size);
  if (v.kind == JSON_STRING) v.bytes = json_string(json, &v.size);
  return v;
}

static void key_bytes(Explainer *e, const Json *member, Buffer *decoded, const char **bytes, size_t *size) {
  keep(e, json_key_bytes(member, decoded, bytes, size, e->err));
}

static bool numbers_are_equal(const Value *a, const Value *b) {
  Decimal x, y;
  if (!decimal_read(a->bytes, a->size, &x) || !decimal_read(b->bytes, b->size, &y)) return false;
  return x.negative == y.negative && x.n == y.n && x.exponent == y.exponent &&
         memcmp(x.digits, y.digits, (size_t)x.n) == 0;
}

static bool are_equal(Explainer *e, const Json *one, const Json *other) {
  const Value a = value_of(one), b = value_of(other);
  if (too_long(e) || a.kind != b.kind) return false;
  if (a.kind == JSON_NUMBER) return numbers_are_equal(&a, &b);
  if (a.kind == JSON_STRING) return a.size == b.size && memcmp(a.bytes, b.bytes, a.size) == 0;
  if (a.kind < JSON_ARRAY) return true;
  if (json_count(one) != json_count(other)) return false;
  const Json *y = json_first(other);
  for (const Json *x = json_first(one); x; x = json_next(x)) {
    if (a.kind == JSON_OBJECT) y = schema_find(other, json_key(x));
    if (!y || !are_equal(e, x, y)) return false;
    y = json_next(y);
  }
  return true;
}

/* --- messages */

static void append_text(Explainer *e, Buffer *out, const char *text) {
  keep(e, buffer_append_string(out, text, e->err));
}

/* Appends a value. An array or object is cut where `out` is over `end` bytes, a string or number after
 * SHOWN_BYTES. */
static void append_until(Explainer *e, Buffer *out, const Value *v, size_t end) {
  static const char *const names[] = {[JSON_NULL] = "null", [JSON_FALSE] = "false", [JSON_TRUE] = "true"};
  if (v->kind >= JSON_ARRAY) {
    Buffer decoded = {0};
    append_text(e, out, v->kind == JSON_ARRAY ? "[" : "{");
    for (const Json *child = json_first(v->json); child; child = json_next(child)) {
      const Value value = value_of(child);
      if (child != json_first(v->json)) append_text(e, out, ", ");
      if (out->size > end || e->status != STATUS_OK) {
        append_text(e, out, "...");
        break;
      }
      if (v->kind == JSON_OBJECT) {
        const char *key;
        size_t size;
        key_bytes(e, child, &decoded, &key, &size);
        keep(e, json_write_string(out, key, size, e->err));
        append_text(e, out, ": ");
      }
      append_until(e, out, &value, end);
    }
    buffer_release(&decoded);
    append_text(e, out, v->kind == JSON_ARRAY ? "]" : "}");
  } else if (v->kind != JSON_STRING && v->kind != JSON_NUMBER) {
    append_text(e, out, names[v->kind]);
  } else {
    size_t shown = v->size;
    if (shown > SHOWN_BYTES)
      for (shown = SHOWN_BYTES; shown > 0 && (v->bytes[shown] & 0xc0) == 0x80;) shown--;
    keep(e, v->kind == JSON_STRING ? json_write_string(out, v->bytes, shown, e->err)
                                   : buffer_append(out, v->bytes, shown, e->err));
    if (shown < v->size) append_text(e, out, "...");
  }
}

static void append_value(Explainer *e, Buffer *out, const Value *v) {
  append_until(e, out, v, out->size + SHOWN_BYTES);
}

static void append_pointer(Explainer *e, Buffer *out, const Place *place) {
  if (!place) return;
  append_pointer(e, out, place->up);
  append_text(e, out, "/");
  if (!place->key) keep(e, buffer_printf(out, e->err, "%zu", place->index));
  for (size_t i = 0; place->key && i < place->size; i++) {
    const char *escape = place->key[i] == '~'   ? "~0"
                         : place->key[i] == '/' ? "~1"
                         : place->key[i]        ? NULL
                                                : "\\0";
    keep(e, buffer_append(out, escape ? escape : place->key + i, escape ? 2 : 1, e->err));
  }
}

/* Adds a reason: the place, then `v` (unless NULL), then the text. Returns false: the verdict. */
static bool __attribute__((format(printf, 5, 6)))
say(Explainer *e, const Place *place, const Value *v, Weight weight, const char *format, ...) {
  Buffer line = {0};
  char text[600];
  va_list args;
  if (e->quiet || e->gave_up || e->n >= EXPLAIN_MAX_REASONS) return false;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  append_pointer(e, &line, place);
  if (place) append_text(e, &line, ": ");
  if (v && !v->json) append_text(e, &line, "the key ");
  if (v) append_value(e, &line, v);
  keep(e, buffer_printf(&line, e->err, "%s%s%c", v ? " " : "", text, 0));
  keep(e, mem_grow(&e->reasons, &e->capacity, e->n + 1, sizeof *e->reasons, "reasons", e->err));
  if (e->status == STATUS_OK) {
    e->reasons[e->n++] = (Reason){.line = line.data, .depth = depth_of(place), .weight = weight};
  } else {
    buffer_release(&line);
  }
  return false;
}

/* Adds "expected EXPECTED, found VALUE". */
static bool say_expected(Explainer *e, const Place *place, const Value *v, Weight weight,
                         const char *expected, size_t size) {
  Buffer found = {0};
  const size_t n = e->n;
  if (!v->json) append_text(e, &found, "the key ");
  append_value(e, &found, v);
  say(e, place, NULL, weight, "expected %.*s, found %.*s", (int)size, expected, (int)found.size,
      found.size ? found.data : "");
  buffer_release(&found);
  if (e->n > n) {
    Reason *reason = &e->reasons[n];
    reason->expected_at = (size_t)(strstr(reason->line, "expected ") - reason->line) + strlen("expected ");
    reason->expected_size = size;
  }
  return false;
}

static void forget_reasons(Explainer *e, size_t from, size_t to) {
  for (size_t i = from; i < to; i++) free(e->reasons[i].line);
  for (size_t i = to; i < e->n; i++) e->reasons[from + i - to] = e->reasons[i];
  e->n -= to - from;
}

/* --- keywords of single values */

/* Writes a number in the form that the languages of numbers contain. */
static void plain_number(Explainer *e, const Value *v, Buffer *out) {
  Decimal d;
  out->size = 0;
  if (lang_contains(&e->set->langs, e->set->bounded_number, v->bytes, v->size) ||
      !decimal_read(v->bytes, v->size, &d)) {
    keep(e, buffer_append(out, v->bytes, v->size, e->err));
    return;
  }
  const int low = d.exponent - d.n + 1 < 0 ? d.exponent - d.n + 1 : 0; /* exponent of the last digit */
  append_text(e, out, d.negative ? "-" : "");
  for (int at = d.exponent > 0 ? d.exponent : 0; at >= low; at--) {
    const int i = d.exponent - at;
    keep(e, buffer_printf(out, e->err, "%c%s", i >= 0 && i < d.n ? d.digits[i] : '0',
                          at == 0 && low < 0 ? "." : ""));
  }
}

/* Judges a string by `strings`, a number by `numbers`; true for values of other kinds. */
static bool langs_take(Explainer *e, const Value *v, Lang strings, Lang numbers) {
  Langs *l = &e->set->langs;
  langs_begin_work(l);
  if (v->kind == JSON_STRING) return strings == LANG_ALL || lang_contains(l, strings, v->bytes, v->size);
  if (v->kind != JSON_NUMBER || numbers == LANG_ALL) return true;
  Buffer text = {0};
  plain_number(e, v, &text);
  const bool takes = lang_contains(l, numbers, text.data ? text.data : "", text.size);
  buffer_release(&text);
  return takes;
}

static size_t characters(const Value *v) {
  size_t n = 0;
  for (size_t i = 0; i < v->size; i++) n += (v->bytes[i] & 0xc0) != 0x80;
  return n;
}

/* Adds a reason for a value that breaks type, enum or const: "expected EXPECTED, found VALUE". */
static bool refuse_value(Explainer *e, const Json *keyword, const Value *v, const Place *place) {
  const bool is_type = strcmp(json_key(keyword), "type") == 0;
  const bool is_list = strcmp(json_key(keyword), "const") != 0 && json_is_array(keyword);
  const size_t n = is_list ? json_count(keyword) : 1;
  Buffer expected = {0};
  const Json *one = is_list ? json_first(keyword) : keyword;
  for (size_t i = 0; i < n && expected.size < 200; one = json_next(one), i++) {
    const Value value = value_of(one);
    if (i > 0) append_text(e, &expected, i + 1 == n ? " or " : ", ");
    if (is_type) {
      keep(e, buffer_append(&expected, value.bytes, value.size, e->err));
    } else {
      append_value(e, &expected, &value);
    }
  }
  if (one && is_list) append_text(e, &expected, ", ...");
  if (n == 0) append_text(e, &expected, "nothing");
  say_expected(e, place, v, is_type ? NO_TYPE : NO_CONSTANT, expected.data ? expected.data : "",
               expected.size);
  buffer_release(&expected);
  return false;
}

/* True if a value is what enum or const wants. */
static bool is_constant(Explainer *e, const Json *keyword, const Value *v) {
  const bool is_const = strcmp(json_key(keyword), "const") == 0;
  const Json *one = is_const ? keyword : json_first(keyword);
  for (; one; one = is_const ? NULL : json_next(one)) {
    const Value value = value_of(one);
    if (v->json ? are_equal(e, one, v->json)
                : value.kind == JSON_STRING && value.size == v->size &&
                      memcmp(value.bytes, v->bytes, v->size) == 0)
      return true;
  }
  return false;
}

static const struct {
  const char *key, *says; /* `says` is the text before the keyword's value */
} limits[] = {
    {"minimum", "is below the minimum"},
    {"maximum", "is above the maximum"},
    {"exclusiveMinimum", "is not above the exclusive minimum"},
    {"exclusiveMaximum", "is not below the exclusive maximum"},
    {"multipleOf", "is not a multiple of"},
    {"minLength", "is shorter than the minimum length"},
    {"maxLength", "is longer than the maximum length"},
    {"pattern", "does not match the pattern"},
    {"format", "does not have the format"},
};

/* Judges a value by a keyword of schema `number`, if the keyword is about strings or numbers. */
static bool check_limit(Explainer *e, uint32_t number, const Json *keyword, const Value *v,
                        const Place *place) {
  size_t row = 0;
  const char *key = json_key(keyword);
  while (row < sizeof limits / sizeof *limits && strcmp(key, limits[row].key) != 0) row++;
  if (row == sizeof limits / sizeof *limits) return true;
  unsigned kinds;
  Lang strings, numbers;
  if (!schema_keyword_langs(e->set, number, keyword, &kinds, &strings, &numbers)) return true;
  double length = 0;
  /* minLength and maxLength share one language: to know which one is broken, characters are counted. */
  const bool is_length = strstr(key, "Length") && json_double(keyword, &length);
  const double n = is_length ? (double)characters(v) : 0;
  if (is_length ? v->kind != JSON_STRING || (strcmp(key, "minLength") == 0 ? n >= length : n <= length)
                : langs_take(e, v, strings, numbers))
    return true;
  bool exclusive = false; /* draft 4: a boolean member exclusiveMinimum, exclusiveMaximum */
  if (row < 2) json_bool(schema_find(e->set->schemas[number].json, limits[row + 2].key), &exclusive);
  Buffer limit = {0};
  const Value value = value_of(keyword);
  append_value(e, &limit, &value);
  say(e, place, v, BROKEN, "%s %.*s", limits[exclusive ? row + 2 : row].says, (int)limit.size,
      limit.data ? limit.data : "");
  buffer_release(&limit);
  return false;
}

static bool check_type(Explainer *e, uint32_t number, const Json *keyword, const Value *v,
                       const Place *place) {
  unsigned kinds;
  Lang strings, numbers;
  return !schema_keyword_langs(e->set, number, keyword, &kinds, &strings, &numbers) ||
         ((kinds & KIND_BIT(v->kind)) && langs_take(e, v, strings, numbers)) ||
         refuse_value(e, keyword, v, place);
}

/* Judges a value by type, enum, const and the keywords about strings and numbers. */
static bool check_single(Explainer *e, uint32_t number, const Value *v, const Place *place) {
  const Schema *s = &e->set->schemas[number];
  const bool has_constants = v->kind >= JSON_ARRAY && (s->has_constants || s->const_container != SCHEMA_NONE);
  bool fits = (s->kinds & KIND_BIT(v->kind)) && langs_take(e, v, s->string, s->number);
  if (fits && !has_constants) return true;
  const size_t n = e->n;
  bool constants = true;
  for (const Json *it = json_first(s->json); it; it = json_next(it)) {
    const char *key = json_key(it);
    if (!schema_has_keyword(e->set, number, it)) continue;
    if (strcmp(key, "enum") == 0 || strcmp(key, "const") == 0) {
      constants &= is_constant(e, it, v) || refuse_value(e, it, v, place);
    } else if (strcmp(key, "type") == 0) {
      check_type(e, number, it, v, place);
    } else if (!fits) {
      check_limit(e, number, it, v, place);
    }
  }
  fits &= constants;
  if (!fits && e->n == n) say(e, place, v, BROKEN, "does not fit %s", s->pointer);
  return fits;
}

/* --- members and items */

/* Judges the member or item at `at` by the schema that `keyword` gives it. */
static bool check_child(Explainer *e, uint32_t schema, const Json *child, const Place *at,
                        const char *keyword) {
  if (!schema_is_false(schema)) {
    const Value v = value_of(child);
    return check(e, schema, &v, at, NULL);
  }
  Buffer key = {0};
  const Value name = {.kind = JSON_STRING, .bytes = at->key, .size = at->size};
  if (at->key) append_value(e, &key, &name);
  if (at->key) {
    say(e, at->up, NULL, BROKEN, "%.*s is not allowed (%s)", (int)key.size, key.data ? key.data : "",
        keyword);
  } else {
    say(e, at->up, NULL, BROKEN, "item %zu is not allowed (%s)", at->index, keyword);
  }
  buffer_release(&key);
  return false;
}

/* Judges one member by properties, patternProperties, additionalProperties and propertyNames. */
static bool check_member(Explainer *e, const Schema *s, const Json *member, const Place *at, bool *seen) {
  bool fits = true, matched = false;
  const uint32_t key = schema_key(e->set, at->key, at->size, false);
  const KeySchema *found = key == UINT32_MAX ? NULL : schema_property(s, key);
  if (found) {
    matched = true;
    fits &= check_child(e, found->schema, member, at, "properties");
  }
  for (size_t i = 0; i < s->patterns.count; i++) {
    langs_begin_work(&e->set->langs);
    if (!lang_contains(&e->set->langs, s->patterns.items[i].key, at->key, at->size)) continue;
    matched = true;
    fits &= check_child(e, s->patterns.items[i].schema, member, at, "patternProperties");
  }
  if (!matched && s->additional != SCHEMA_NONE)
    fits &= check_child(e, s->additional, member, at, "additionalProperties");
  if (seen) *seen |= matched || s->additional != SCHEMA_NONE;
  if (s->names != SCHEMA_NONE) {
    const Value name = {.kind = JSON_STRING, .bytes = at->key, .size = at->size};
    fits &= check(e, s->names, &name, at->up, NULL);
  }
  return fits;
}

static bool has_key(Explainer *e, const Json *object, uint32_t key) {
  const Key *k = &e->set->keys[key];
  Buffer decoded = {0};
  bool found = false;
  for (const Json *member = json_first(object); member && !found; member = json_next(member)) {
    const char *bytes;
    size_t size;
    key_bytes(e, member, &decoded, &bytes, &size);
    found = size == k->size && memcmp(bytes, k->bytes, size) == 0;
  }
  buffer_release(&decoded);
  return found;
}

static bool check_required(Explainer *e, uint32_t key, uint32_t because, const Value *v, const Place *place) {
  Buffer text = {0};
  if (has_key(e, v->json, key)) return true;
  const Value name = {.kind = JSON_STRING, .bytes = e->set->keys[key].bytes, .size = e->set->keys[key].size};
  append_value(e, &text, &name);
  append_text(e, &text, " is required");
  if (because != UINT32_MAX) {
    const Key *k = &e->set->keys[because];
    const Value reason = {.kind = JSON_STRING, .bytes = k->bytes, .size = k->size};
    append_text(e, &text, " beside ");
    append_value(e, &text, &reason);
  }
  say(e, place, NULL, BROKEN, "%.*s", (int)text.size, text.data ? text.data : "");
  buffer_release(&text);
  return false;
}

static bool check_count(Explainer *e, size_t n, const char *what, uint32_t min, uint32_t max,
                        const Place *place) {
  if (n >= min && n <= max) return true;
  return say(e, place, NULL, BROKEN, "%zu %s%s, expected at %s %u", n, what, n == 1 ? "" : "s",
             n < min ? "least" : "most", n < min ? min : max);
}

static bool check_object(Explainer *e, uint32_t schema, const Value *v, const Place *place, bool *seen) {
  const Schema *s = &e->set->schemas[schema];
  bool fits = true;
  size_t i = 0;
  Buffer decoded = {0};
  for (size_t k = 0; k < s->required.count; k++)
    fits &= check_required(e, s->required.items[k], UINT32_MAX, v, place);
  fits &= check_count(e, json_count(v->json), "member", s->min_members, s->max_members, place);
  for (const Json *member = json_first(v->json); member; member = json_next(member), i++) {
    Place at = {.up = place, .depth = depth_of(place) + 1};
    key_bytes(e, member, &decoded, &at.key, &at.size);
    fits &= check_member(e, s, member, &at, seen ? &seen[i] : NULL);
  }
  for (size_t k = 0; k < s->needed_keys.count; k++) {
    const KeySchema *pair = &s->needed_keys.items[k];
    if (has_key(e, v->json, pair->key)) fits &= check_required(e, pair->schema, pair->key, v, place);
  }
  for (size_t k = 0; k < s->dependents.count; k++)
    if (has_key(e, v->json, s->dependents.items[k].key))
      fits &= check(e, s->dependents.items[k].schema, v, place, seen);
  buffer_release(&decoded);
  return fits;
}

static bool check_unique(Explainer *e, const Value *v, const Place *place) {
  size_t i = 0, j;
  for (const Json *one = json_first(v->json); one; one = json_next(one), i++) {
    j = i + 1;
    for (const Json *other = json_next(one); other && !e->gave_up; other = json_next(other), j++)
      if (are_equal(e, one, other))
        return say(e, place, NULL, BROKEN, "items %zu and %zu are equal, expected unique ones", i, j);
  }
  return true;
}

/* Judges by contains, minContains and maxContains. */
static bool check_contains(Explainer *e, const Schema *s, const Value *v, const Place *place, bool *seen) {
  size_t i = 0, n = 0;
  e->quiet++;
  for (const Json *item = json_first(v->json); item; item = json_next(item), i++) {
    const Place at = {.up = place, .index = i, .depth = depth_of(place) + 1};
    const Value child = value_of(item);
    const bool fits = check(e, s->contains, &child, &at, NULL);
    n += fits;
    if (seen && s->draft >= DRAFT_2020) seen[i] |= fits;
  }
  e->quiet--;
  if (n >= s->min_contains && n <= s->max_contains) return true;
  return say(e, place, NULL, BROKEN, "%zu item%s fit%s contains, expected at %s %u", n, n == 1 ? "" : "s",
             n == 1 ? "s" : "", n < s->min_contains ? "least" : "most",
             n < s->min_contains ? s->min_contains : s->max_contains);
}

static bool check_array(Explainer *e, uint32_t schema, const Value *v, const Place *place, bool *seen) {
  const Schema *s = &e->set->schemas[schema];
  bool fits = check_count(e, json_count(v->json), "item", s->min_items, s->max_items, place);
  size_t i = 0;
  for (const Json *item = json_first(v->json); item; item = json_next(item), i++) {
    const Place at = {.up = place, .index = i, .depth = depth_of(place) + 1};
    if (i < s->prefix.count || s->rest != SCHEMA_NONE)
      fits &= check_child(e, schema_item(e->set, schema, (uint32_t)i), item, &at, "items");
    if (seen) seen[i] |= i < s->prefix.count || s->rest != SCHEMA_NONE;
  }
  if (s->contains != SCHEMA_NONE) fits &= check_contains(e, s, v, place, seen);
  return s->unique ? check_unique(e, v, place) && fits : fits;
}

/* Judges by `keyword` (unevaluatedProperties or unevaluatedItems) the members or items that `seen` lacks. */
static bool check_open(Explainer *e, uint32_t schema, const char *keyword, const Value *v, const Place *place,
                       bool *seen) {
  bool fits = true;
  size_t i = 0;
  Buffer decoded = {0};
  for (const Json *child = json_first(v->json); child; child = json_next(child), i++) {
    Place at = {.up = place, .index = i, .depth = depth_of(place) + 1};
    if (v->kind == JSON_OBJECT) key_bytes(e, child, &decoded, &at.key, &at.size);
    if (!seen[i]) fits &= check_child(e, schema, child, &at, keyword);
    seen[i] = true;
  }
  buffer_release(&decoded);
  return fits;
}

/* --- subschemas of the same value */

static bool *new_seen(Explainer *e, const Value *v) {
  bool *seen = mem_alloc(json_count(v->json) + 1, sizeof *seen, "reasons", e->err);
  if (!seen) keep(e, STATUS_FAILED);
  return seen;
}

/* check(), but marks in `seen` only if the value fits the subschema. */
static bool check_branch(Explainer *e, uint32_t schema, const Value *v, const Place *place, bool *seen) {
  bool *own = seen ? new_seen(e, v) : NULL;
  if (seen && !own) return false;
  const bool fits = check(e, schema, v, place, own);
  for (size_t i = 0, n = seen && fits ? json_count(v->json) : 0; i < n; i++) seen[i] |= own[i];
  free(own);
  return fits;
}

/* True if the reason is that the value at `place` itself has an unexpected type. */
static bool is_of_other_type(const Reason *reason, const Place *place) {
  return reason->weight == NO_TYPE && reason->depth == depth_of(place);
}

/* How far a value is from a branch. It is farthest from a branch of another type. A branch with another
 * constant is probably not the one that was meant. */
static size_t distance(const Explainer *e, size_t from, size_t to, const Place *place) {
  size_t sum = 0;
  for (size_t i = from; i < to; i++)
    sum += is_of_other_type(&e->reasons[i], place) ? 10000 : e->reasons[i].weight == NO_CONSTANT ? 30 : 1;
  return sum;
}

/* If n > 1, appends "(nearest of N in KEYWORD)" to the lines of the reasons from `from` on. */
static void mark_nearest(Explainer *e, size_t from, size_t n, const char *keyword) {
  for (size_t i = from; i < e->n && n > 1; i++) {
    Buffer line = {0};
    Status status =
        buffer_printf(&line, e->err, "%s (nearest of %zu in %s)%c", e->reasons[i].line, n, keyword, 0);
    keep(e, status);
    if (status != STATUS_OK) return buffer_release(&line);
    free(e->reasons[i].line);
    e->reasons[i].line = line.data;
  }
}

/* Appends to the list `expected` ("A or B") what the reason's line expects, unless the list has it. */
static void add_expected(Explainer *e, const Reason *reason, Buffer *expected) {
  const char *more = reason->line + reason->expected_at;
  if (expected->size && memmem(expected->data, expected->size, more, reason->expected_size)) return;
  keep(e, buffer_printf(expected, e->err, "%s%.*s", expected->size ? " or " : "", (int)reason->expected_size,
                        more));
}

/* anyOf and oneOf. Keeps the reasons of the branch with the least distance(). If all branches expect another
 * type, one reason names all these types. */
static bool check_branches(Explainer *e, const NumberList *list, const char *keyword, const Value *v,
                           const Place *place, bool *seen) {
  const bool one = strcmp(keyword, "oneOf") == 0;
  const size_t start = e->n;
  size_t n_fit = 0, first = 0, second = 0;
  bool only_types = true;
  Buffer expected = {0};
  for (size_t i = 0; i < list->count; i++) {
    const size_t from = e->n;
    if (check_branch(e, list->items[i], v, place, seen)) {
      if (n_fit == 0) first = i;
      if (n_fit++ == 1) second = i;
      continue;
    }
    only_types &= e->n == from + 1 && is_of_other_type(&e->reasons[from], place);
    if (only_types) add_expected(e, &e->reasons[from], &expected);
    if (from == start) continue;
    const bool nearer = distance(e, from, e->n, place) < distance(e, start, from, place);
    forget_reasons(e, nearer ? start : from, nearer ? from : e->n);
  }
  const bool fits = one ? n_fit == 1 : n_fit > 0;
  if (n_fit > 0 || only_types) forget_reasons(e, start, e->n);
  if (n_fit > 1 && one) {
    say(e, place, v, BROKEN, "fits %zu schemas of oneOf (%zu and %zu), expected one", n_fit, first, second);
  } else if (!fits && only_types) {
    say_expected(e, place, v, NO_TYPE, expected.data ? expected.data : "nothing",
                 expected.size ? expected.size : 7);
  } else if (!fits) {
    mark_nearest(e, start, list->count, keyword);
  }
  buffer_release(&expected);
  return fits;
}

static bool check_in_place(Explainer *e, const Schema *s, const Value *v, const Place *place, bool *seen) {
  bool fits = true;
  for (size_t i = 0; i < s->all_of.count; i++) fits &= check(e, s->all_of.items[i], v, place, seen);
  if (s->has_any_of) fits &= check_branches(e, &s->any_of, "anyOf", v, place, seen);
  if (s->has_one_of) fits &= check_branches(e, &s->one_of, "oneOf", v, place, seen);
  if (s->not_schema != SCHEMA_NONE) {
    e->quiet++;
    const bool refused = check(e, s->not_schema, v, place, NULL);
    e->quiet--;
    if (refused) fits = say(e, place, v, BROKEN, "fits the schema of \"not\"");
  }
  if (s->if_schema != SCHEMA_NONE) {
    e->quiet++;
    const bool holds = check_branch(e, s->if_schema, v, place, seen);
    e->quiet--;
    const uint32_t then = holds ? s->then_schema : s->else_schema;
    if (then != SCHEMA_NONE) fits &= check(e, then, v, place, seen);
  }
  return fits;
}

static bool check_rules(Explainer *e, uint32_t schema, const Value *v, const Place *place, bool *seen) {
  const Schema *s = &e->set->schemas[schema];
  bool fits = check_single(e, schema, v, place);
  if (v->kind == JSON_OBJECT) fits &= check_object(e, schema, v, place, seen);
  if (v->kind == JSON_ARRAY) fits &= check_array(e, schema, v, place, seen);
  /* `knows` is false if an in-place rule is broken. Then it is not known which branch of anyOf, oneOf or `if`
   * was meant, nor which members are evaluated: unevaluatedProperties and unevaluatedItems are not judged. */
  const bool knows = check_in_place(e, s, v, place, seen);
  const uint32_t open = v->kind == JSON_OBJECT  ? s->open_members
                        : v->kind == JSON_ARRAY ? s->open_items
                                                : SCHEMA_NONE;
  if (open != SCHEMA_NONE && knows)
    fits &= check_open(e, open, v->kind == JSON_OBJECT ? "unevaluatedProperties" : "unevaluatedItems", v,
                       place, seen);
  return fits && knows;
}

/* True if the value fits the schema; otherwise the reasons are added. Marks the members or items that the
 * schema evaluates in `seen`, unless it is NULL. */
static bool check(Explainer *e, uint32_t schema, const Value *v, const Place *place, bool *seen) {
  if (too_long(e) || schema == SCHEMA_TRUE) return true;
  if (schema == SCHEMA_FALSE) return say(e, place, v, BROKEN, "is not allowed");
  const Schema *s = &e->set->schemas[schema];
  /* To this schema, members or items that only sibling schemas evaluate are unevaluated: hence `own`. */
  const bool asks = v->json && (s->open_members != SCHEMA_NONE || s->open_items != SCHEMA_NONE);
  bool *own = asks ? new_seen(e, v) : NULL;
  if (asks && !own) return true;
  e->nesting++;
  const bool fits = check_rules(e, schema, v, place, asks ? own : seen);
  e->nesting--;
  for (size_t i = 0, n = asks && seen ? json_count(v->json) : 0; i < n; i++) seen[i] |= own[i];
  free(own);
  return fits;
}

/* True if an earlier reason has the same line: two subschemas may have the same rule. */
static bool is_repeated(const Explainer *e, size_t at) {
  for (size_t i = 0; i < at; i++)
    if (strcmp(e->reasons[i].line, e->reasons[at].line) == 0) return true;
  return false;
}

Status schema_explain(SchemaSet *set, const Json *value, Buffer *lines, Error *err) {
  Explainer e = {.set = set, .err = err};
  const Failure failure = set->langs.failure;
  const Value v = value_of(value);
  check(&e, set->root, &v, NULL, NULL);
  /* If this walk meets a limit on work, the texts that follow must not fail for it. */
  Error ignored;
  if (langs_check(&set->langs, &ignored) != STATUS_OK) e.gave_up = true;
  set->langs.failure = failure;
  for (size_t i = 0; i < e.n && !e.gave_up; i++)
    if (!is_repeated(&e, i))
      keep(&e, buffer_append(lines, e.reasons[i].line, strlen(e.reasons[i].line) + 1, err));
  forget_reasons(&e, 0, e.n);
  free(e.reasons);
  return e.status;
}
