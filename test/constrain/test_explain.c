/* test_explain.c - the reasons why a value does not fit a schema, and that they agree with the verdicts. */
#include "constrain/constraint.h"
#include "constrain/explain.h"
#include "test/constrain/random_schemas.h"
#include "test/unit.h"

/* The reasons, each followed by '\n'. */
static void reasons_of(SchemaSet *set, const char *text, Buffer *out) {
  Error err;
  Json *value = NULL;
  assert_int_equal(json_parse("text", STATUS_USAGE, text, strlen(text), NULL, 0, &value, &err), STATUS_OK);
  assert_int_equal(schema_explain(set, value, out, &err), STATUS_OK);
  json_free(value);
  for (size_t i = 0; i < out->size; i++)
    if (!out->data[i]) out->data[i] = '\n';
  assert_int_equal(buffer_append(out, "", 1, &err), STATUS_OK);
}

static void assert_reasons(const char *schema, const char *text, const char *expected) {
  SchemaSet set;
  Error err;
  Buffer got = {0};
  const SchemaOptions options = {.exponents = true};
  assert_int_equal(schema_open("schema", schema, strlen(schema), options, &set, &err), STATUS_OK);
  reasons_of(&set, text, &got);
  assert_string_equal(got.data, expected);
  buffer_release(&got);
  schema_close(&set);
}

#define DRAFT_4_URI    "\"$schema\": \"http://json-schema.org/draft-04/schema#\", "
#define DRAFT_2019_URI "\"$schema\": \"https://json-schema.org/draft/2019-09/schema\", "
#define DRAFT_7_URI    "\"$schema\": \"http://json-schema.org/draft-07/schema#\", "

static void each_rule_says_why_it_fails(void **state) {
  static const struct {
    const char *schema, *text, *reasons;
  } rows[] = {
      {"{\"type\": [\"string\", \"null\"]}", "5", "expected string or null, found 5\n"},
      {"{\"type\": \"integer\"}", "1.5", "expected integer, found 1.5\n"},
      {"{\"type\": \"integer\"}", "1.50e1", ""},
      {"{" DRAFT_4_URI "\"type\": \"integer\"}", "1.0", "expected integer, found 1.0\n"},
      {"{\"enum\": [\"a\", 1, null, [2]]}", "true", "expected \"a\", 1, null or [2], found true\n"},
      {"{\"enum\": [[1, {\"a\": 10}]]}", "[1.0, {\"a\": 1e1}]", ""},
      {"{\"enum\": [[1, {\"a\": 10}]]}", "[1, {\"a\": -10}]",
       "expected [1, {\"a\": 10}], found [1, {\"a\": -10}]\n"},
      {"{\"const\": {\"a\": \"x\"}}", "{\"a\": \"y\"}", "expected {\"a\": \"x\"}, found {\"a\": \"y\"}\n"},
      {"{\"const\": {\"a\": \"x\"}}", "{\"b\": \"x\"}", "expected {\"a\": \"x\"}, found {\"b\": \"x\"}\n"},
      {"{\"const\": [1]}", "[1, 2]", "expected [1], found [1, 2]\n"},
      {"{\"minLength\": 3}", "\"\\u00e4b\"", "\"\303\244b\" is shorter than the minimum length 3\n"},
      {"{\"minLength\": 1, \"maxLength\": 3}", "\"abcd\"", "\"abcd\" is longer than the maximum length 3\n"},
      {"{\"minLength\": 1, \"maxLength\": 3}", "\"\\u00e4\\u00e4\\u00e4\"", ""},
      {"{\"pattern\": \"^a\", \"minLength\": 2}", "\"b\"",
       "\"b\" does not match the pattern \"^a\"\n\"b\" is shorter than the minimum length 2\n"},
      {"{\"format\": \"date\"}", "\"2020-13-01\"", "\"2020-13-01\" does not have the format \"date\"\n"},
      {"{\"minimum\": 0, \"maximum\": 120}", "200", "200 is above the maximum 120\n"},
      {"{\"minimum\": 0, \"maximum\": 120}", "-0.5", "-0.5 is below the minimum 0\n"},
      {"{\"exclusiveMinimum\": 5}", "5.0", "5.0 is not above the exclusive minimum 5\n"},
      {"{\"exclusiveMaximum\": 5}", "5", "5 is not below the exclusive maximum 5\n"},
      {"{" DRAFT_4_URI "\"minimum\": 5, \"exclusiveMinimum\": true}", "5",
       "5 is not above the exclusive minimum 5\n"},
      {"{" DRAFT_4_URI "\"maximum\": 5, \"exclusiveMaximum\": false}", "6", "6 is above the maximum 5\n"},
      {"{" DRAFT_4_URI "\"maximum\": 5, \"exclusiveMaximum\": true}", "5",
       "5 is not below the exclusive maximum 5\n"},
      {"{" DRAFT_4_URI "\"const\": 1}", "2", ""},
      {"{\"multipleOf\": 0.01}", "0.075", "0.075 is not a multiple of 0.01\n"},
      {"{\"not\": {\"minimum\": 1000}}", "100E-1", ""},
      {"{\"not\": {\"minimum\": 1000}}", "100e1", "100e1 fits the schema of \"not\"\n"},
      {"{\"maximum\": 0.001}", "0.1e-3", ""},
      {"{\"maximum\": 0.001}", "-12.5e-1", ""},
      {"{\"maximum\": 0.001}", "12.5E-3", "12.5E-3 is above the maximum 0.001\n"},
      {"{\"required\": [\"a/b\"], \"properties\": {\"a/b\": {\"type\": \"null\"}}}", "{\"a/b\": [0]}",
       "/a~1b: expected null, found [0]\n"},
      {"{\"properties\": {\"o\": {\"required\": [\"a\", \"b\"]}}}", "{\"o\": {\"a\": 1}}",
       "/o: \"b\" is required\n"},
      {"{\"minProperties\": 2}", "{\"a\": 1}", "1 member, expected at least 2\n"},
      {"{\"maxProperties\": 1}", "{\"a\": 1, \"b\": 1}", "2 members, expected at most 1\n"},
      {"{\"properties\": {\"a\": {}}, \"patternProperties\": {\"^x\": {\"type\": \"null\"}}, "
       "\"additionalProperties\": false}",
       "{\"a\": 1, \"x\": 2, \"b\": 3}",
       "/x: expected null, found 2\n\"b\" is not allowed (additionalProperties)\n"},
      {"{\"additionalProperties\": {\"type\": \"null\"}}", "{\"a\": {}, \"b\": null}",
       "/a: expected null, found {}\n"},
      {"{\"properties\": {\"a\": false}}", "{\"a\": 1}", "\"a\" is not allowed (properties)\n"},
      {"{\"properties\": {\"a\\u0000b\": false}}", "{\"a\\u0000b\": 1}", ""},
      {"{\"propertyNames\": {\"pattern\": \"^a\"}}", "{\"b\": 1}",
       "the key \"b\" does not match the pattern \"^a\"\n"},
      {"{\"propertyNames\": {\"enum\": [\"a\"]}}", "{\"b\": 1, \"a\": 1}",
       "expected \"a\", found the key \"b\"\n"},
      {"{\"dependentRequired\": {\"card\": [\"name\"]}}", "{\"card\": 1}",
       "\"name\" is required beside \"card\"\n"},
      {"{\"dependentSchemas\": {\"card\": {\"required\": [\"b\"]}}}", "{\"card\": 1}", "\"b\" is required\n"},
      {"{\"dependentSchemas\": {\"card\": {\"required\": [\"b\"]}}}", "{\"c\": 1}", ""},
      {"{" DRAFT_7_URI "\"dependencies\": {\"a\": [\"b\"], \"c\": {\"minProperties\": 3}}}",
       "{\"a\": 1, \"c\": 1}", "\"b\" is required beside \"a\"\n2 members, expected at least 3\n"},
      {"{" DRAFT_4_URI "\"dependencies\": {\"a\": \"b\"}}", "{\"a\": 1}", "\"b\" is required beside \"a\"\n"},
      {"{" DRAFT_4_URI "\"dependencies\": {\"a\": \"b\"}}", "{\"b\": 1}", ""},
      {"{\"minItems\": 1}", "[]", "0 items, expected at least 1\n"},
      {"{\"maxItems\": 1}", "[1, 1]", "2 items, expected at most 1\n"},
      {"{\"prefixItems\": [{\"type\": \"null\"}], \"items\": {\"type\": \"string\"}}", "[1, 2, \"\"]",
       "/0: expected null, found 1\n/1: expected string, found 2\n"},
      {"{\"prefixItems\": [true], \"items\": false}", "[1, 2]", "item 1 is not allowed (items)\n"},
      {"{" DRAFT_7_URI "\"items\": [{\"type\": \"null\"}], \"additionalItems\": false}", "[1, 2]",
       "/0: expected null, found 1\nitem 1 is not allowed (items)\n"},
      {"{\"uniqueItems\": true}", "[1, [2, {\"a\": 1, \"b\": 2}], true, [2.0, {\"b\": 2, \"a\": 1}]]",
       "items 1 and 3 are equal, expected unique ones\n"},
      {"{\"uniqueItems\": true}", "[1, \"1\", true, [1], {\"a\": 1}, {\"a\": 2}, -1, 10]", ""},
      {"{\"contains\": {\"const\": 1}}", "[0, 2]", "0 items fit contains, expected at least 1\n"},
      {"{\"contains\": {\"const\": 1}, \"minContains\": 2}", "[1]",
       "1 item fits contains, expected at least 2\n"},
      {"{\"contains\": {\"const\": 1}, \"maxContains\": 1}", "[1, 1]",
       "2 items fit contains, expected at most 1\n"},
      {"{\"properties\": {\"a\": {}}, \"unevaluatedProperties\": false}", "{\"a\": 1, \"b\": 2}",
       "\"b\" is not allowed (unevaluatedProperties)\n"},
      {"{\"prefixItems\": [{}], \"unevaluatedItems\": {\"type\": \"null\"}}", "[1, 2]",
       "/1: expected null, found 2\n"},
      {"{\"contains\": {\"const\": 1}, \"unevaluatedItems\": false}", "[1, 2]",
       "item 1 is not allowed (unevaluatedItems)\n"},
      {"{" DRAFT_2019_URI "\"contains\": {\"const\": 1}, \"unevaluatedItems\": false}", "[1]",
       "item 0 is not allowed (unevaluatedItems)\n"},
      {"{\"not\": {\"required\": [\"a\"]}}", "{\"a\": 1}", "{\"a\": 1} fits the schema of \"not\"\n"},
      {"{\"oneOf\": [{\"minimum\": 1}, {\"type\": \"null\"}, {\"maximum\": 9}]}", "5",
       "5 fits 2 schemas of oneOf (0 and 2), expected one\n"},
      {"{\"if\": {\"type\": \"number\"}, \"then\": {\"minimum\": 3}, \"else\": {\"type\": \"null\"}}", "2",
       "2 is below the minimum 3\n"},
      {"{\"if\": {\"type\": \"number\"}, \"then\": {\"minimum\": 3}, \"else\": {\"type\": \"null\"}}", "\"\"",
       "expected null, found \"\"\n"},
      {"{\"$ref\": \"#/$defs/a\", \"maximum\": 3, \"$defs\": {\"a\": {\"minimum\": 5}}}", "4",
       "4 is above the maximum 3\n4 is below the minimum 5\n"},
      {"{" DRAFT_7_URI
       "\"$ref\": \"#/definitions/a\", \"maximum\": 3, \"definitions\": {\"a\": {\"minimum\": 5}}}",
       "4", "4 is below the minimum 5\n"},
      {"{\"$dynamicRef\": \"#n\", \"$defs\": {\"n\": {\"$dynamicAnchor\": \"n\", \"type\": \"null\"}}}", "4",
       "expected null, found 4\n"},
      {"{\"allOf\": [{\"required\": [\"a\"]}, {\"required\": [\"a\", \"b\"]}]}", "{}",
       "\"a\" is required\n\"b\" is required\n"},
      {"{\"items\": {\"items\": false}}", "[[], [1]]", "/1: item 0 is not allowed (items)\n"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    assert_reasons(rows[i].schema, rows[i].text, rows[i].reasons);
}

#define PETS                                                                                                 \
  "{\"anyOf\": [{\"type\": \"object\", \"properties\": {\"kind\": {\"const\": \"cat\"}, \"lives\": "         \
  "{\"maximum\": 9}}}, {\"type\": \"object\", \"properties\": {\"kind\": {\"const\": \"dog\"}, \"legs\": "   \
  "{\"maximum\": 4}, \"age\": {\"minimum\": 0}}}, {\"type\": \"null\"}]}"

/* The branch with another type or another constant is not the one that was meant. */
static void the_reasons_of_any_of_are_those_of_the_nearest_branch(void **state) {
  assert_reasons(PETS, "{\"kind\": \"dog\", \"legs\": 5, \"age\": -1}",
                 "/legs: 5 is above the maximum 4 (nearest of 3 in anyOf)\n"
                 "/age: -1 is below the minimum 0 (nearest of 3 in anyOf)\n");
  assert_reasons(PETS, "{\"kind\": \"cat\", \"lives\": 10, \"legs\": 5}",
                 "/lives: 10 is above the maximum 9 (nearest of 3 in anyOf)\n");
  assert_reasons(PETS, "5", "expected object or null, found 5\n");
  assert_reasons("{\"anyOf\": [{\"items\": {\"type\": \"null\"}}, {\"type\": \"string\"}]}", "[1]",
                 "/0: expected null, found 1 (nearest of 2 in anyOf)\n");
  assert_reasons("{\"oneOf\": [{\"minimum\": 7}]}", "5", "5 is below the minimum 7\n");
}

/* Members that only a sibling or a failed branch evaluates are unevaluated. */
static void unevaluated_members_are_those_that_no_fitting_subschema_evaluates(void **state) {
  const char *branches = "{\"anyOf\": [{\"properties\": {\"a\": {\"const\": 1}}, \"required\": [\"a\"]}, "
                         "{\"properties\": {\"b\": {\"const\": 2}}, \"required\": [\"b\"]}], "
                         "\"unevaluatedProperties\": false}";
  assert_reasons(branches, "{\"a\": 1}", "");
  assert_reasons(branches, "{\"a\": 1, \"b\": 2}", "");
  assert_reasons(branches, "{\"a\": 1, \"b\": 3}", "\"b\" is not allowed (unevaluatedProperties)\n");
  /* Where no branch fits, it is not known which members were meant to be evaluated. */
  assert_reasons(branches, "{\"a\": 2, \"c\": 3}", "\"b\" is required (nearest of 2 in anyOf)\n");
  assert_reasons("{\"properties\": {\"a\": {}}, \"allOf\": [{\"unevaluatedProperties\": false}]}",
                 "{\"a\": 1}", "\"a\" is not allowed (unevaluatedProperties)\n");
  assert_reasons(
      "{\"if\": {\"properties\": {\"a\": {\"const\": 1}}}, \"then\": {\"properties\": {\"b\": {}}}, "
      "\"else\": {\"properties\": {\"c\": {}}}, \"unevaluatedProperties\": false}",
      "{\"a\": 2, \"b\": 1, \"c\": 1}",
      "\"a\" is not allowed (unevaluatedProperties)\n\"b\" is not allowed (unevaluatedProperties)\n");
}

static void a_long_value_is_cut(void **state) {
  char text[204] = "\"", expected[200];
  for (int i = 0; i < 100; i++) strcat(text, "\303\244");
  strcat(text, "\"");
  sprintf(expected, "expected null, found \"%.60s\"...\n", text + 1);
  assert_reasons("{\"type\": \"null\"}", text, expected);
  assert_reasons("{\"type\": \"null\"}",
                 "[11111111, 22222222, 33333333, 44444444, 55555555, 66666666, 77777777, 8]",
                 "expected null, found [11111111, 22222222, 33333333, 44444444, 55555555, 66666666, ...]\n");
}

/* A failure of the languages gives no reasons, and no wrong ones; texts after it are judged as before. */
static void what_is_too_hard_to_explain_fails_nothing(void **state) {
  SchemaSet set;
  Error err;
  Buffer got = {0};
  const char *schema = "{\"pattern\": \"^a\"}";
  const SchemaOptions options = {.exponents = true};
  assert_int_equal(schema_open("schema", schema, strlen(schema), options, &set, &err), STATUS_OK);
  static const volatile int interrupted = 1;
  failure_heed(&interrupted);
  reasons_of(&set, "\"b\"", &got);
  assert_string_equal(got.data, "");
  failure_heed(NULL);
  got.size = 0;
  reasons_of(&set, "\"b\"", &got);
  assert_string_equal(got.data, "\"b\" does not match the pattern \"^a\"\n");
  assert_int_equal(langs_check(&set.langs, &err), STATUS_OK);
  buffer_release(&got);
  schema_close(&set);
}

/* A search without end gives no reasons either. */
static void work_is_bounded(void **state) {
  char schema[4000] = "{\"$ref\": \"#/$defs/0\", \"$defs\": {";
  for (int i = 0; i < 40; i++)
    sprintf(schema + strlen(schema),
            "\"%d\": {\"allOf\": [{\"$ref\": \"#/$defs/%d\"}, {\"$ref\": \"#/$defs/%d\"}]}, ", i, i + 1,
            i + 1);
  strcat(schema, "\"40\": {\"type\": \"null\"}}}");
  assert_reasons(schema, "1", "");
}

static void at_most_a_thousand_reasons_are_given(void **state) {
  SchemaSet set;
  Error err;
  Buffer text = {0}, got = {0};
  const SchemaOptions options = {.exponents = true};
  assert_int_equal(schema_open("schema", "{\"items\": {\"type\": \"null\"}}", 27, options, &set, &err),
                   STATUS_OK);
  for (int i = 0; i < 2000; i++)
    assert_int_equal(buffer_printf(&text, &err, "%c%d", i ? ',' : '[', i), STATUS_OK);
  assert_int_equal(buffer_append(&text, "]", 2, &err), STATUS_OK);
  reasons_of(&set, text.data, &got);
  size_t n = 0;
  for (size_t i = 0; i < got.size; i++) n += got.data[i] == '\n';
  assert_int_equal(n, EXPLAIN_MAX_REASONS);
  buffer_release(&text);
  buffer_release(&got);
  schema_close(&set);
}

/* True if the machine takes all of the text, and it may end there. */
static bool fits(Constraint *c, const char *text) {
  Error err;
  bool allowed;
  assert_int_equal(constraint_begin(c, &err), STATUS_OK);
  assert_int_equal(constraint_take_bytes(c, text, strlen(text), &allowed, NULL, &err), STATUS_OK);
  return allowed && constraint_may_end(c);
}

/* One schema of JSON-Schema-Test-Suite: a reason for each text that is invalid, none for any other, and the
 * machine takes those alone. */
static size_t take_group(const char *line, size_t size) {
  SchemaSet set;
  Error err;
  Json *group = NULL;
  size_t n = 0, ignored;
  const SchemaOptions options = {.exponents = true, .ignore_formats = true};
  JsonSkip schema = {"schema", {NULL, 0}};
  assert_int_equal(json_parse("suite", STATUS_USAGE, line, size, &schema, 1, &group, &err), STATUS_OK);
  const bool opened =
      schema_open("schema", schema.span.text, schema.span.size, options, &set, &err) == STATUS_OK;
  Constraint c;
  const bool has_texts = opened && constraint_open("schema", schema.span.text, schema.span.size, options,
                                                   NULL, &c, &err) == STATUS_OK;
  if (opened && !has_texts && !strstr(err.text, "no text satisfies")) fail_msg("%s", err.text);
  const Json *test = opened ? json_first(json_member(group, "tests")) : NULL;
  for (; test; test = json_next(test), n++) {
    Buffer got = {0};
    bool valid = false;
    const char *text = json_string(json_member(test, "text"), &ignored);
    reasons_of(&set, text, &got);
    json_bool(json_member(test, "valid"), &valid);
    if (valid != (got.size == 1)) print_error("%.*s\n%s\n%s", (int)size, line, text, got.data);
    assert_true(valid == (got.size == 1));
    if (valid != (has_texts && fits(&c, text))) fail_msg("%.*s\n%s", (int)size, line, text);
    buffer_release(&got);
  }
  if (has_texts) constraint_close(&c);
  if (opened) schema_close(&set);
  json_free(group);
  return n;
}

static void the_reasons_agree_with_the_verdicts_of_the_suite(void **state) {
  static char line[1 << 16];
  size_t n = 0;
  FILE *file = popen("gzip -dc test/data/schemas/suite.jsonl.gz", "r");
  assert_non_null(file);
  while (fgets(line, sizeof line, file)) n += take_group(line, strlen(line));
  assert_int_equal(pclose(file), 0);
  assert_int_equal(n, 2125); /* those of schemas that refer to documents elsewhere are not judged */
}

static void put_value(Buffer *out, int depth, uint64_t *seed) {
  static const char *const scalars[] = {"0", "1", "0.5", "\"\"", "\"a\"", "\"ba\"", "null", "true"};
  static const char *const keys[] = {"\"a\": ", "\"b\": ", "\"bc\": "};
  const uint32_t kind = depth ? random_below(seed, 3) : 0;
  if (kind == 0) put_text(out, scalars[random_below(seed, sizeof scalars / sizeof *scalars)]);
  if (kind == 0) return;
  put_text(out, kind == 1 ? "[" : "{");
  const uint32_t n = random_below(seed, 4), first = random_below(seed, 3);
  for (uint32_t i = 0; i < n; i++) {
    if (i) put_text(out, ", ");
    if (kind == 2) put_text(out, keys[(first + i) % 3]);
    put_value(out, depth - 1, seed);
  }
  put_text(out, kind == 1 ? "]" : "}");
}

static bool schema_fits(const char *schema, const char *text) {
  Constraint c;
  Error err;
  const SchemaOptions options = {.exponents = true};
  if (constraint_open("schema", schema, strlen(schema), options, NULL, &c, &err) != STATUS_OK)
    fail_msg("%s: %s", schema, err.text);
  const bool taken = fits(&c, text);
  constraint_close(&c);
  return taken;
}

/* Identifiers of another type than they should have name nothing. */
static void identifiers_are_strings(void **state) {
  static const char *const words[] = {"$id", "id", "$anchor", "$dynamicAnchor", "$schema"};
  static const char *const values[] = {"5", "[\"a\"]", "{\"a\": \"b\"}", "null", "true"};
  static const char *const drafts[] = {"", DRAFT_4_URI, DRAFT_7_URI, DRAFT_2019_URI};
  for (int i = 0; i < 5 * 5 * 4; i++) {
    char schema[400];
    const char *keyword = words[i % 5], *value = values[i / 5 % 5];
    if (i / 25 > 0 && strcmp(keyword, "$schema") == 0) continue;
    snprintf(schema, sizeof schema,
             "{%s\"%s\": %s, \"allOf\": [{\"$ref\": \"#/definitions/x\"}], "
             "\"definitions\": {\"x\": {\"%s\": %s, \"type\": \"null\"}}}",
             drafts[i / 25], keyword, value, keyword, value);
    if (!schema_fits(schema, "null") || schema_fits(schema, "5")) fail_msg("%s", schema);
  }
}

/* An anchor or an identifier names a schema wherever one may lie, and nothing where none does. A resource may
 * have a draft of its own. */
static void what_names_a_schema_lies_where_schemas_do(void **state) {
  static const char *const places[] = {"\"additionalProperties\": %s",
                                       "\"contains\": %s",
                                       "\"propertyNames\": %s",
                                       "\"not\": %s",
                                       "\"if\": %s",
                                       "\"then\": %s",
                                       "\"else\": %s",
                                       "\"items\": %s",
                                       "\"unevaluatedItems\": %s",
                                       "\"unevaluatedProperties\": %s",
                                       "\"contentSchema\": %s",
                                       "\"allOf\": [true, %s]",
                                       "\"anyOf\": [true, %s]",
                                       "\"oneOf\": [true, %s]",
                                       "\"prefixItems\": [true, %s]",
                                       "\"properties\": {\"x\": %s}",
                                       "\"patternProperties\": {\"x\": %s}",
                                       "\"$defs\": {\"x\": %s}",
                                       "\"definitions\": {\"x\": %s}",
                                       "\"dependentSchemas\": {\"x\": %s}"};
  static const char *const others[] = {"\"const\": %s",   "\"enum\": [%s]",
                                       "\"default\": %s", "\"examples\": [%s]",
                                       "\"x\": %s",       "\"x\": {\"properties\": {\"x\": %s}}",
                                       "\"x\": [%s]"};
  static const char *const names[][2] = {{"\"$anchor\": \"a\"", "#a"},
                                         {"\"$id\": \"http://e/a\"", "http://e/a"},
                                         {"\"$anchor\": \"a\"", "#a"}}; /* of draft 2019-09 */
  enum { N_PLACES = sizeof places / sizeof *places, N_OTHERS = sizeof others / sizeof *others };
  for (size_t i = 0; i < N_PLACES + N_OTHERS; i++)
    for (int by = 0; by < 3; by++) {
      char named[100], place[300], schema[500];
      Constraint c;
      Error err;
      snprintf(named, sizeof named, "{%s, \"type\": \"null\"}", names[by][0]);
      snprintf(place, sizeof place, i < N_PLACES ? places[i] : others[i - N_PLACES], named);
      snprintf(schema, sizeof schema, "{%s\"allOf\": [{\"$ref\": \"%s\"}], \"$defs\": {\"y\": {%s}}}",
               by == 2 ? DRAFT_2019_URI : "", names[by][1], place);
      const bool opened = constraint_open("schema", schema, strlen(schema),
                                          (SchemaOptions){.exponents = true}, NULL, &c, &err) == STATUS_OK;
      if (opened != (i < N_PLACES)) fail_msg("%s: %s", schema, opened ? "is found" : err.text);
      if (!opened) continue;
      assert_true(fits(&c, "null"));
      assert_false(fits(&c, "1"));
      constraint_close(&c);
    }
  static const char own_draft[] =
      "{\"allOf\": [{\"$ref\": \"http://e/a\"}], \"$defs\": {\"a\": {" DRAFT_7_URI
      "\"$id\": \"http://e/a\", \"items\": [{\"type\": \"null\"}], \"additionalItems\": "
      "{\"minimum\": 2}}}}";
  assert_true(schema_fits(own_draft, "[null, 2]"));
  assert_false(schema_fits(own_draft, "[1]"));
  assert_false(schema_fits(own_draft, "[null, 1]"));
}

/* A branch evaluates the first member, and later members decide whether that branch fits. */
static void later_members_decide_what_is_evaluated(void **state) {
  static const char *const rest[] = {"false", "{\"enum\": [0]}", "{\"type\": \"null\"}"};
  static const char *const conditions[] = {"\"minProperties\": 2", "\"required\": [\"c\"]",
                                           "\"not\": {\"maxProperties\": 1}"};
  static const char *const evaluates[] = {
      "\"additionalProperties\": true", "\"unevaluatedProperties\": {\"minLength\": 1}",
      "\"properties\": {\"b\": {}, \"c\": {}}", "\"patternProperties\": {\"^[bc]$\": true}"};
  static const char *const joins[] = {"\"anyOf\": [{}, {%s, %s}]", "\"oneOf\": [false, {%s, %s}]",
                                      "\"if\": {%s}, \"then\": {%s}", "\"if\": {%s, %s}",
                                      "\"anyOf\": [{\"allOf\": [{%s, %s}]}, {\"required\": [\"x\"]}]"};
  for (int i = 0; i < 3 * 3 * 4 * 5; i++) {
    char schema[400], join[300];
    const int which = i / 36;
    snprintf(join, sizeof join, joins[which], conditions[i / 3 % 3], evaluates[i / 9 % 4]);
    snprintf(schema, sizeof schema, "{\"unevaluatedProperties\": %s, %s}", rest[i % 3], join);
    if (!schema_fits(schema, "{\"b\": \"ba\", \"c\": 0}")) fail_msg("%s takes no two members", schema);
    if (schema_fits(schema, "{\"b\": \"ba\"}")) fail_msg("%s takes one member", schema);
    assert_reasons(schema, "{\"b\": \"ba\", \"c\": 0}", "");
  }
}

/* Texts with a byte more, less or another are taken where the parser of JSON takes them; keys that come twice
 * are not. */
static void texts_that_are_taken_are_json(void **state) {
  static const char bytes[] = "{}[],:\"\\0123-+.eEtrufalsn /\n";
  uint64_t seed = 1;
  Buffer text = {0};
  Constraint c;
  Error err;
  int n_taken = 0;
  assert_int_equal(constraint_open("schema", "true", 4, (SchemaOptions){.exponents = true}, NULL, &c, &err),
                   STATUS_OK);
  for (int i = 0; i < 20000; i++) {
    Json *value = NULL;
    text.size = 0;
    put_value(&text, 3, &seed);
    put_text(&text, "  ");
    for (uint32_t n = 1 + random_below(&seed, 2); n > 0; n--) {
      const uint32_t at = random_below(&seed, (uint32_t)text.size - 1), kind = random_below(&seed, 3);
      char *place = text.data + at;
      if (kind == 0) memmove(place, place + 1, text.size-- - at - 1);
      if (kind == 1) memmove(place + 1, place, text.size - at - 1);
      if (kind > 0) *place = bytes[random_below(&seed, sizeof bytes - 1)];
    }
    assert_int_equal(buffer_append(&text, "", 1, &err), STATUS_OK);
    const size_t size = strlen(text.data);
    const bool is_json =
        json_parse("text", STATUS_USAGE, text.data, size, NULL, 0, &value, &err) == STATUS_OK;
    const bool taken = fits(&c, text.data);
    if (is_json ? !taken && !strchr(text.data, '{') : taken) fail_msg("%s: taken %d", text.data, taken);
    n_taken += taken;
    json_free(value);
  }
  assert_true(n_taken > 2000);
  constraint_close(&c);
  buffer_release(&text);
}

/* The rules are judged twice in this room: byte by byte, and by the value. Neither knows of the other. */
static void the_reasons_agree_with_the_verdicts_of_random_schemas(void **state) {
  uint64_t seed = 1;
  const SchemaOptions options = {.exponents = true};
  Buffer schema = {0}, text = {0}, got = {0};
  Error err;
  size_t n_taken = 0, n_refused = 0;
  for (int i = 0; i < 4000; i++) {
    SchemaSet set;
    Constraint c;
    schema.size = 0;
    put_text(&schema, "{\"allOf\": [");
    put_schema(&schema, 2, &seed);
    put_text(&schema, "]}");
    if (schema_open("schema", schema.data, schema.size, options, &set, &err) != STATUS_OK)
      fail_msg("%.*s: %s", (int)schema.size, schema.data, err.text);
    const bool has_texts =
        constraint_open("schema", schema.data, schema.size, options, NULL, &c, &err) == STATUS_OK;
    if (!has_texts && !strstr(err.text, "no text satisfies"))
      fail_msg("%.*s: %s", (int)schema.size, schema.data, err.text);
    for (int j = 0; j < 40; j++) {
      text.size = got.size = 0;
      put_value(&text, 2, &seed);
      assert_int_equal(buffer_append(&text, "", 1, &err), STATUS_OK);
      reasons_of(&set, text.data, &got);
      const bool taken = has_texts && fits(&c, text.data);
      if (taken != (got.size == 1))
        fail_msg("%.*s\n%s is %s\n%s", (int)schema.size, schema.data, text.data, taken ? "taken" : "refused",
                 got.data);
      n_taken += taken;
      n_refused += !taken;
    }
    if (has_texts) constraint_close(&c);
    schema_close(&set);
  }
  assert_true(n_taken > 20000 && n_refused > 20000);
  buffer_release(&schema);
  buffer_release(&text);
  buffer_release(&got);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_rule_says_why_it_fails),
      cmocka_unit_test(the_reasons_of_any_of_are_those_of_the_nearest_branch),
      cmocka_unit_test(unevaluated_members_are_those_that_no_fitting_subschema_evaluates),
      cmocka_unit_test(a_long_value_is_cut),
      cmocka_unit_test(what_is_too_hard_to_explain_fails_nothing),
      cmocka_unit_test(work_is_bounded),
      cmocka_unit_test(at_most_a_thousand_reasons_are_given),
      cmocka_unit_test(the_reasons_agree_with_the_verdicts_of_the_suite),
      cmocka_unit_test(identifiers_are_strings),
      cmocka_unit_test(what_names_a_schema_lies_where_schemas_do),
      cmocka_unit_test(later_members_decide_what_is_evaluated),
      cmocka_unit_test(the_reasons_agree_with_the_verdicts_of_random_schemas),
      cmocka_unit_test(texts_that_are_taken_are_json),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
