/* schema_meaning.c - a subschema with its in-place subschemas as languages and formulas; see schema.h.
 *
 * In-place subschemas ($ref, $dynamicRef, allOf, anyOf, oneOf, not, if, then, else, dependentSchemas) judge
 * the same value. For strings and numbers they are unions, intersections and complements; for arrays and
 * objects they are formulas. */
#include <stdlib.h>
#include <string.h>

#include "constrain/schema_internal.h"
#include "constrain/store/few.h"

enum { UNKNOWN, BEING_MADE, MADE };
enum { MAX_DEPTH = 1000 }; /* recursion from a schema to the schemas whose meaning it needs */

/* True if the meaning is still to be made. A schema whose meaning needs itself is refused (langs_fail()). */
static bool begin(SchemaSet *set, uint32_t schema, JsonKind kind) {
  Schema *s = &set->schemas[schema];
  if (s->state[kind] == MADE || !langs_work(&set->langs, 1)) return false;
  if (set->depth == MAX_DEPTH) {
    langs_fail(&set->langs, STATUS_USAGE, "schemas refer to one another over 1,000 deep");
    return false;
  }
  if (s->state[kind] == BEING_MADE) {
    Error err;
    error_set(&err, STATUS_USAGE, "%s: $ref: the schema refers to itself for the same value", s->pointer);
    langs_fail(&set->langs, STATUS_USAGE, err.text);
    return false;
  }
  s->state[kind] = BEING_MADE;
  set->depth++;
  return true;
}

static void end(SchemaSet *set, uint32_t schema, JsonKind kind) {
  set->schemas[schema].state[kind] = MADE;
  set->depth--;
}

/* --- languages of strings and numbers */

static Lang meaning(SchemaSet *set, uint32_t schema, JsonKind kind);

/* one: strings that are in exactly one of several languages; any: in at least one. */
typedef struct {
  Lang one, any;
} Exactly;

static Exactly either(Langs *l, Exactly x, Exactly y) {
  const Lang first = lang_and(l, x.one, lang_not(l, y.any)), second = lang_and(l, y.one, lang_not(l, x.any));
  return (Exactly){lang_or(l, first, second), lang_or(l, x.any, y.any)};
}

static Exactly exactly(Langs *l, const Lang *parts, size_t n) {
  if (n == 0 || !langs_work(l, 1)) return (Exactly){LANG_NONE, LANG_NONE};
  if (n == 1) return (Exactly){*parts, *parts};
  return either(l, exactly(l, parts, n / 2), exactly(l, parts + n / 2, n - n / 2));
}

/* Strings that exactly one of the languages contains. A language of one value (lang_is_single()) adds nothing
 * if it occurs twice in the list: its strings are in two languages. */
static Lang exactly_one(Langs *l, const Lang *parts, size_t n) {
  size_t n_others = 0, n_once = 0, n_single = 0;
  Exactly singles;
  Lang *sorted = calloc(3 * n + 1, sizeof *sorted);
  if (!sorted) return langs_fail(l, STATUS_FAILED, "out of memory"), LANG_NONE;
  Lang *single = sorted + n, *once = single + n;
  for (size_t i = 0; i < n; i++) {
    if (!lang_is_single(l, parts[i])) {
      sorted[n_others++] = parts[i];
    } else {
      single[n_single++] = parts[i];
    }
  }
  qsort(sorted, n_others, sizeof *sorted, number_order);
  qsort(single, n_single, sizeof *single, number_order);
  singles.any = lang_or_many(l, single, n_single);
  for (size_t i = 0; i < n_single; i++)
    if ((i == 0 || single[i - 1] != single[i]) && (i + 1 == n_single || single[i + 1] != single[i]))
      once[n_once++] = single[i];
  singles.one = lang_or_many(l, once, n_once);
  const Exactly others = exactly(l, sorted, n_others);
  free(sorted);
  return either(l, singles, others).one;
}

/* The languages of a list of schemas, joined. */
static Lang of_list(SchemaSet *set, const NumberList *list, JsonKind kind,
                    Lang (*join)(Langs *, const Lang *, size_t)) {
  const size_t start = set->langs.n_stack;
  for (size_t i = 0; i < list->count; i++) lang_push(&set->langs, meaning(set, list->items[i], kind));
  return lang_join_pushed(&set->langs, start, join);
}

static Lang make_lang(SchemaSet *set, uint32_t schema, JsonKind kind) {
  Langs *l = &set->langs;
  const Schema *s = &set->schemas[schema];
  if (!(s->kinds & KIND_BIT(kind)) || !langs_work(l, 1)) return LANG_NONE;
  Lang made = kind == JSON_STRING ? s->string : s->number;
  made = lang_and(l, made, of_list(set, &s->all_of, kind, lang_and_all));
  if (s->has_any_of) made = lang_and(l, made, of_list(set, &s->any_of, kind, lang_or_many));
  if (s->has_one_of) made = lang_and(l, made, of_list(set, &s->one_of, kind, exactly_one));
  if (s->not_schema != SCHEMA_NONE) made = lang_and(l, made, lang_not(l, meaning(set, s->not_schema, kind)));
  if (s->if_schema != SCHEMA_NONE) {
    Lang when = meaning(set, s->if_schema, kind);
    Lang then = s->then_schema == SCHEMA_NONE ? LANG_ALL : meaning(set, s->then_schema, kind);
    Lang other = s->else_schema == SCHEMA_NONE ? LANG_ALL : meaning(set, s->else_schema, kind);
    if (then != LANG_ALL) made = lang_and(l, made, lang_or(l, lang_not(l, when), then));
    if (other != LANG_ALL) made = lang_and(l, made, lang_or(l, when, other));
  }
  return made;
}

/* The strings or the numbers of a schema, made once. */
static Lang meaning(SchemaSet *set, uint32_t schema, JsonKind kind) {
  const bool strings = kind == JSON_STRING;
  if (begin(set, schema, kind)) {
    const Lang made = make_lang(set, schema, kind);
    *(strings ? &set->schemas[schema].string_all : &set->schemas[schema].number_all) = made;
    end(set, schema, kind);
  }
  return strings ? set->schemas[schema].string_all : set->schemas[schema].number_all;
}

Lang schema_strings(SchemaSet *set, uint32_t schema) {
  return meaning(set, schema, JSON_STRING);
}

Lang schema_numbers(SchemaSet *set, uint32_t schema) {
  return meaning(set, schema, JSON_NUMBER);
}

/* --- formulas of arrays and objects, and of null, false and true, which are constants */

static Formula atom(SchemaSet *set, AtomKind kind, uint32_t a) {
  return formula_atom(&set->formulas, kind, a, 0);
}

/* The formulas pushed on langs.stack since n_stack was `start`, joined; takes them off the stack. */
static Formula join_pushed(SchemaSet *set, FormulaKind how, size_t start) {
  const size_t n = set->langs.n_stack - start;
  const Formula *parts = n > 0 ? set->langs.stack + start : NULL;
  set->langs.n_stack = start;
  return how == FORMULA_ONE ? formula_one(&set->formulas, parts, n)
                            : formula_join(&set->formulas, how, parts, n);
}

static Formula all_keys(SchemaSet *set, const NumberList *keys) {
  const size_t start = set->langs.n_stack;
  for (size_t i = 0; i < keys->count; i++) lang_push(&set->langs, atom(set, ATOM_HAS_KEY, keys->items[i]));
  return join_pushed(set, FORMULA_AND, start);
}

/* For each key that requires another key, or a schema: the key is absent, or what it requires holds. */
static Formula dependencies(SchemaSet *set, uint32_t schema) {
  Formulas *f = &set->formulas;
  const size_t n_keys = set->schemas[schema].needed_keys.count,
               n = n_keys + set->schemas[schema].dependents.count, start = set->langs.n_stack;
  for (size_t i = 0; i < n; i++) {
    const Schema *s = &set->schemas[schema];
    const KeySchema pair = i < n_keys ? s->needed_keys.items[i] : s->dependents.items[i - n_keys];
    const Formula absent = formula_not(f, atom(set, ATOM_HAS_KEY, pair.key));
    const Formula wanted =
        i < n_keys ? atom(set, ATOM_HAS_KEY, pair.schema) : schema_formula(set, pair.schema, JSON_OBJECT);
    lang_push(&set->langs, formula_or(f, absent, wanted));
  }
  return join_pushed(set, FORMULA_AND, start);
}

static Formula own_of_object(SchemaSet *set, uint32_t schema) {
  Formulas *f = &set->formulas;
  const Schema *s = &set->schemas[schema];
  Formula made = all_keys(set, &s->required);
  if (s->min_members > 0) made = formula_and(f, made, atom(set, ATOM_MIN_COUNT, s->min_members));
  if (s->max_members != UINT32_MAX) made = formula_and(f, made, atom(set, ATOM_MAX_COUNT, s->max_members));
  bool restricts = false;
  for (size_t i = 0; i < s->properties.count; i++) restricts |= s->properties.items[i].schema != SCHEMA_TRUE;
  for (size_t i = 0; i < s->patterns.count; i++) restricts |= s->patterns.items[i].schema != SCHEMA_TRUE;
  if (restricts || (s->additional != SCHEMA_NONE && s->additional != SCHEMA_TRUE))
    made = formula_and(f, made, atom(set, ATOM_MEMBERS, schema));
  if (s->names != SCHEMA_NONE) made = formula_and(f, made, atom(set, ATOM_NAMES, schema));
  if (s->open_members != SCHEMA_NONE) made = formula_and(f, made, atom(set, ATOM_OPEN_MEMBERS, schema));
  made = formula_and(f, made, dependencies(set, schema));
  return made;
}

static Formula own_of_array(SchemaSet *set, uint32_t schema) {
  Formulas *f = &set->formulas;
  const Schema *s = &set->schemas[schema];
  Formula made = FORMULA_TRUE;
  if (s->min_items > 0) made = formula_and(f, made, atom(set, ATOM_MIN_COUNT, s->min_items));
  if (s->max_items != UINT32_MAX) made = formula_and(f, made, atom(set, ATOM_MAX_COUNT, s->max_items));
  if (s->prefix.count || (s->rest != SCHEMA_NONE && s->rest != SCHEMA_TRUE))
    made = formula_and(f, made, atom(set, ATOM_ITEMS, schema));
  if (s->contains != SCHEMA_NONE) made = formula_and(f, made, formula_atom(f, ATOM_CONTAINS, schema, 0));
  if (s->open_items != SCHEMA_NONE) made = formula_and(f, made, atom(set, ATOM_OPEN_ITEMS, schema));
  if (s->unique) made = formula_and(f, made, atom(set, ATOM_UNIQUE, 0));
  return made;
}

const KeySchema *schema_property(const Schema *s, uint32_t key) {
  const KeySchema wanted = {key, 0};
  if (s->properties.count == 0) return NULL;
  return bsearch(&wanted, s->properties.items, s->properties.count, sizeof wanted, schema_by_key);
}

/* --- schemas that exclude one another */

enum {
  MAX_EXCLUSIVE = 48, /* up to this many branches are compared pair by pair */
  MAX_TAGS = 8,       /* required keys that are tried as tags: are_tagged_by() */
  MAX_IN_PLACE = 4    /* allOf and $ref below one another */
};

static unsigned kinds_of(const SchemaSet *set, uint32_t schema, int depth) {
  unsigned kinds = set->schemas[schema].kinds;
  const NumberList *parts = &set->schemas[schema].all_of;
  for (size_t i = 0; i < parts->count && depth < MAX_IN_PLACE; i++)
    kinds &= kinds_of(set, parts->items[i], depth + 1);
  return schema == SCHEMA_TRUE ? ALL_KINDS : kinds;
}

/* True if it is known that no value satisfies both schemas. */
static bool values_differ(SchemaSet *set, uint32_t a, uint32_t b) {
  Langs *l = &set->langs;
  const unsigned both = kinds_of(set, a, 0) & kinds_of(set, b, 0);
  if (both & (KIND_BIT(JSON_ARRAY) | KIND_BIT(JSON_OBJECT)) || l->steps > LANG_MAX_STEPS / 8) return false;
  for (JsonKind kind = JSON_NULL; kind <= JSON_TRUE; kind++)
    if (schema_takes_scalar(set, a, kind) && schema_takes_scalar(set, b, kind)) return false;
  return !lang_is_alive(l, lang_text(l, lang_and(l, schema_strings(set, a), schema_strings(set, b)))) &&
         !lang_is_alive(l, lang_and(l, schema_numbers(set, a), schema_numbers(set, b)));
}

static bool requires(const SchemaSet *set, uint32_t schema, uint32_t key, int depth) {
  const Schema *s = &set->schemas[schema];
  for (size_t i = 0; i < s->required.count; i++)
    if (s->required.items[i] == key) return true;
  for (size_t i = 0; i < s->all_of.count && depth < MAX_IN_PLACE; i++)
    if (requires(set, s->all_of.items[i], key, depth + 1)) return true;
  return false;
}

/* True if it is known that no member with this key can satisfy both `a` and `b`. */
static bool members_differ(SchemaSet *set, uint32_t a, uint32_t b, uint32_t key, int depth) {
  const KeySchema *mine = schema_property(&set->schemas[a], key),
                  *other = schema_property(&set->schemas[b], key);
  if (schema_refuses_key(set, b, key)) return true;
  if (mine && other && values_differ(set, mine->schema, other->schema)) return true;
  for (size_t i = 0; i < set->schemas[a].all_of.count && depth < MAX_IN_PLACE; i++)
    if (members_differ(set, set->schemas[a].all_of.items[i], b, key, depth + 1)) return true;
  for (size_t i = 0; i < set->schemas[b].all_of.count && depth < MAX_IN_PLACE; i++)
    if (members_differ(set, a, set->schemas[b].all_of.items[i], key, depth + 1)) return true;
  return false;
}

/* True if some key shows that no object satisfies both `a` and `b`. Only keys that `part` requires are tried;
 * `part` is `a` or an allOf subschema within it. */
static bool are_kept_apart(SchemaSet *set, uint32_t a, uint32_t part, uint32_t b, int depth) {
  for (size_t i = 0; i < set->schemas[part].required.count; i++) {
    const uint32_t key = set->schemas[part].required.items[i];
    if (schema_refuses_key(set, b, key)) return true;
    if (requires(set, b, key, 0) && members_differ(set, a, b, key, 0)) return true;
  }
  for (size_t i = 0; i < set->schemas[part].all_of.count && depth < MAX_IN_PLACE; i++)
    if (are_kept_apart(set, a, set->schemas[part].all_of.items[i], b, depth + 1)) return true;
  return false;
}

/* True if all schemas require the key, each with a constant string of its own. This is quick even for a list
 * too long to be compared pair by pair. */
static bool are_tagged_by(SchemaSet *set, const NumberList *list, uint32_t key) {
  const size_t start = set->langs.n_stack, n = list->count;
  bool tagged = true;
  for (size_t i = 0; i < n && tagged; i++) {
    const uint32_t branch = list->items[i];
    const KeySchema *member = schema_property(&set->schemas[branch], key);
    tagged = member && member->schema > SCHEMA_TRUE && requires(set, branch, key, MAX_IN_PLACE) &&
             set->schemas[member->schema].kinds == KIND_BIT(JSON_STRING) &&
             lang_is_single(&set->langs, schema_strings(set, member->schema)) &&
             lang_push(&set->langs, schema_strings(set, member->schema));
  }
  Lang *constants = n > 0 ? set->langs.stack + start : NULL;
  if (tagged && n > 0) qsort(constants, n, sizeof *constants, number_order);
  for (size_t i = 1; i < n && tagged; i++) tagged = constants[i] != constants[i - 1];
  set->langs.n_stack = start;
  return tagged;
}

/* True if required members, or kinds, show that no object satisfies two of the schemas. For objects, oneOf
 * then means anyOf. */
static bool exclude_one_another(SchemaSet *set, const NumberList *list) {
  const NumberList *required = list->count > 0 ? &set->schemas[list->items[0]].required : NULL;
  for (size_t i = 0; required && i < required->count && i < MAX_TAGS; i++)
    if (are_tagged_by(set, list, required->items[i])) return true;
  if (list->count > MAX_EXCLUSIVE) return false;
  for (size_t i = 0; i < list->count; i++)
    for (size_t j = 0; j < i; j++) {
      const uint32_t a = list->items[i], b = list->items[j];
      const bool both = kinds_of(set, a, 0) & kinds_of(set, b, 0) & KIND_BIT(JSON_OBJECT);
      if (a <= SCHEMA_TRUE || b <= SCHEMA_TRUE) return false;
      if (both && !are_kept_apart(set, a, a, b, 0) && !are_kept_apart(set, b, b, a, 0)) return false;
    }
  return true;
}

static Formula list_formula(SchemaSet *set, const NumberList *list, FormulaKind how, JsonKind kind) {
  const size_t start = set->langs.n_stack;
  for (size_t i = 0; i < list->count; i++) lang_push(&set->langs, schema_formula(set, list->items[i], kind));
  if (how == FORMULA_ONE && kind == JSON_OBJECT && exclude_one_another(set, list)) how = FORMULA_OR;
  return join_pushed(set, how, start);
}

static Formula make_formula(SchemaSet *set, uint32_t schema, JsonKind kind) {
  Formulas *f = &set->formulas;
  const Schema *s = &set->schemas[schema];
  if (!(s->kinds & KIND_BIT(kind))) return FORMULA_FALSE;
  Formula made = kind == JSON_OBJECT  ? own_of_object(set, schema)
                 : kind == JSON_ARRAY ? own_of_array(set, schema)
                                      : FORMULA_TRUE;
  made = formula_and(f, made, list_formula(set, &s->all_of, FORMULA_AND, kind));
  if (s->has_any_of) made = formula_and(f, made, list_formula(set, &s->any_of, FORMULA_OR, kind));
  if (s->has_one_of) made = formula_and(f, made, list_formula(set, &s->one_of, FORMULA_ONE, kind));
  if (s->const_container != SCHEMA_NONE)
    made = formula_and(f, made, schema_formula(set, s->const_container, kind));
  if (s->has_constants && kind >= JSON_ARRAY)
    made = formula_and(f, made, list_formula(set, &s->constants, FORMULA_OR, kind));
  if (s->not_schema != SCHEMA_NONE)
    made = formula_and(f, made, formula_not(f, schema_formula(set, s->not_schema, kind)));
  if (s->if_schema != SCHEMA_NONE) {
    Formula when = schema_formula(set, s->if_schema, kind);
    const uint32_t branches[2] = {s->then_schema, s->else_schema};
    Formula then = FORMULA_TRUE, other = FORMULA_TRUE;
    if (branches[0] != SCHEMA_NONE && when != FORMULA_FALSE) then = schema_formula(set, branches[0], kind);
    if (branches[1] != SCHEMA_NONE && when != FORMULA_TRUE) other = schema_formula(set, branches[1], kind);
    made = formula_and(f, made, formula_or(f, formula_not(f, when), then));
    made = formula_and(f, made, formula_or(f, when, other));
  }
  return made;
}

Formula schema_formula(SchemaSet *set, uint32_t schema, JsonKind kind) {
  Formula *made = &set->schemas[schema].formula[kind];
  if (!begin(set, schema, kind)) return *made;
  *made = make_formula(set, schema, kind);
  end(set, schema, kind);
  return *made;
}

/* --- members and items */

Formula schema_member(SchemaSet *set, uint32_t schema, uint32_t key, const char *bytes, size_t size) {
  Formulas *f = &set->formulas;
  const Schema *s = &set->schemas[schema];
  Formula made = FORMULA_TRUE;
  bool matched = false;
  const KeySchema *found = schema_property(s, key);
  if (found) {
    matched = true;
    made = formula_atom(f, ATOM_CHILD, found->schema, 0);
  }
  for (size_t i = 0; i < s->patterns.count; i++) {
    if (!lang_contains(&set->langs, s->patterns.items[i].key, bytes, size)) continue;
    matched = true;
    made = formula_and(f, made, formula_atom(f, ATOM_CHILD, s->patterns.items[i].schema, 0));
  }
  if (!matched && s->additional != SCHEMA_NONE) made = formula_atom(f, ATOM_CHILD, s->additional, 0);
  return made;
}

bool schema_refuses_key(SchemaSet *set, uint32_t schema, uint32_t key) {
  const Schema *s = &set->schemas[schema];
  const Key *k = &set->keys[key];
  const KeySchema *found = schema_property(s, key);
  bool matched = found != NULL;
  if (found && schema_is_refused(set, found->schema)) return true;
  for (size_t i = 0; i < s->patterns.count; i++) {
    if (!lang_contains(&set->langs, s->patterns.items[i].key, k->bytes, k->size)) continue;
    if (schema_is_refused(set, s->patterns.items[i].schema)) return true;
    matched = true;
  }
  return !matched && schema_is_refused(set, s->additional);
}

uint32_t schema_item(const SchemaSet *set, uint32_t schema, uint32_t index) {
  const Schema *s = &set->schemas[schema];
  if (index < s->prefix.count) return s->prefix.items[index];
  return s->rest == SCHEMA_NONE ? SCHEMA_TRUE : s->rest;
}

static Lang keys_lang(SchemaSet *set, const Schema *s, bool allowed) {
  LangWord *words = malloc((s->properties.count + 1) * sizeof *words);
  if (!words) return langs_fail(&set->langs, STATUS_FAILED, "out of memory"), LANG_NONE;
  size_t n = 0;
  for (size_t i = 0; i < s->properties.count; i++) {
    const Key *key = &set->keys[s->properties.items[i].key];
    if (schema_is_false(s->properties.items[i].schema) != allowed)
      words[n++] = (LangWord){key->bytes, key->size, LANG_EMPTY};
  }
  Lang made = lang_words(&set->langs, words, n);
  free(words);
  return made;
}

Lang schema_member_keys(SchemaSet *set, uint32_t schema) {
  Langs *l = &set->langs;
  const Schema *s = &set->schemas[schema];
  if (s->member_keys != LANG_UNKNOWN) return s->member_keys;
  Lang refused = LANG_NONE, made = LANG_ALL, matched = LANG_NONE;
  const size_t start = l->n_stack;
  for (size_t i = 0; i < s->patterns.count; i++) {
    Lang pattern = s->patterns.items[i].key;
    lang_push(l, pattern);
    if (schema_is_false(s->patterns.items[i].schema)) refused = lang_or(l, refused, pattern);
  }
  matched = lang_join_pushed(l, start, lang_or_many);
  if (schema_is_false(s->additional)) made = lang_or(l, matched, keys_lang(set, s, true));
  /* If all other keys are allowed, every beginning of a key can become an allowed key. Then single refused
   * keys are not taken out here: they are refused where they end. */
  if (made != LANG_ALL || refused != LANG_NONE) refused = lang_or(l, refused, keys_lang(set, s, false));
  if (refused != LANG_NONE) made = lang_and(l, made, lang_not(l, refused));
  set->schemas[schema].member_keys = made;
  return made;
}
