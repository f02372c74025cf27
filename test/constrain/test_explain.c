/* test_explain.c - the reasons why a value does not fit a schema: their limits, and that they agree with the
 * verdicts. Each reason is in test_transcripts.c. */
#include "constrain/constraint.h"
#include "constrain/explain.h"
#include "test/constrain/random_schemas.h"
#include "test/tests.h"

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

/* A failure of the languages gives no reasons, and no wrong ones; texts after it are judged as before. */
TEST(what_is_too_hard_to_explain_fails_nothing) {
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
TEST(work_is_bounded) {
  char schema[4000] = "{\"$ref\": \"#/$defs/0\", \"$defs\": {";
  for (int i = 0; i < 40; i++)
    sprintf(schema + strlen(schema),
            "\"%d\": {\"allOf\": [{\"$ref\": \"#/$defs/%d\"}, {\"$ref\": \"#/$defs/%d\"}]}, ", i, i + 1,
            i + 1);
  strcat(schema, "\"40\": {\"type\": \"null\"}}}");
  assert_reasons(schema, "1", "");
}

TEST(at_most_a_thousand_reasons_are_given) {
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

TEST(the_reasons_agree_with_the_verdicts_of_the_suite) {
  static char line[1 << 16];
  size_t n = 0;
  FILE *file = popen("gzip -dc test/data/schemas/suite.jsonl.gz", "r");
  assert_non_null(file);
  while (fgets(line, sizeof line, file)) n += take_group(line, strlen(line));
  assert_int_equal(pclose(file), 0);
  assert_int_equal(n, 2125); /* those of schemas that refer to documents elsewhere are not judged */
}

static void put_value(Buffer *out, int depth, uint64_t *seed) {
  static const char *const scalars[] = {"0",   "1",  "0.5", "\"\"",  "\"a\"", "\"ba\"",  "null",       "true",
                                        "1.0", "-0", "2e0", "false", "3",     "\"abc\"", "\"\\u0061\""};
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
TEST(identifiers_are_strings) {
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
TEST(what_names_a_schema_lies_where_schemas_do) {
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
TEST(later_members_decide_what_is_evaluated) {
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
TEST(texts_that_are_taken_are_json) {
  static const char bytes[] = "{}[],:\"\\0123-+.eEtrufalsn /\n";
  uint64_t seed = 1;
  Buffer text = {0};
  Constraint c;
  Error err;
  int n_taken = 0;
  assert_int_equal(constraint_open("schema", "true", 4, (SchemaOptions){.exponents = true}, NULL, &c, &err),
                   STATUS_OK);
  for (int i = 0; i < SAMPLE(20000); i++) {
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
  assert_true(n_taken > SAMPLE(2000));
  constraint_close(&c);
  buffer_release(&text);
}

/* The rules are judged twice in this room: byte by byte, and by the value. Neither knows of the other. */
TEST(the_reasons_agree_with_the_verdicts_of_random_schemas) {
  uint64_t seed = 1;
  const SchemaOptions options = {.exponents = true};
  Buffer schema = {0}, text = {0}, got = {0};
  Error err;
  size_t n_taken = 0, n_refused = 0;
  for (int i = 0; i < SAMPLE(6000); i++) {
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
  assert_true(n_taken > SAMPLE(20000) && n_refused > SAMPLE(20000));
  buffer_release(&schema);
  buffer_release(&text);
  buffer_release(&got);
}

/* One schema for a member of a branch. */
static const char *const members[] = {"{\"const\": \"a\"}",
                                      "{\"const\": \"b\"}",
                                      "{\"enum\": [\"a\", \"b\"]}",
                                      "{\"const\": 1}",
                                      "{\"type\": \"number\", \"minimum\": 1}",
                                      "{\"type\": \"number\", \"maximum\": 1}",
                                      "{\"type\": \"null\"}",
                                      "{\"type\": [\"null\", \"boolean\"]}",
                                      "{\"type\": \"string\"}",
                                      "{\"type\": \"array\"}",
                                      "{\"type\": \"array\", \"maxItems\": 0}",
                                      "true",
                                      "false",
                                      "{\"$ref\": \"#/$defs/a\"}"};

/* Values in classes: two are equal if and only if they are of one class. */
static const struct {
  int of;
  const char *text;
} pool[] = {{0, "null"},
            {1, "true"},
            {2, "false"},
            {3, "0"},
            {3, "-0.0"},
            {3, "0e7"},
            {4, "1"},
            {4, "1.00"},
            {4, "10e-1"},
            {5, "-1"},
            {5, "-0.1e1"},
            {6, "10"},
            {6, "1e1"},
            {7, "-10"},
            {8, "0.1"},
            {8, "1e-1"},
            {9, "12"},
            {10, "1.2"},
            {11, "123"},
            {12, "\"\""},
            {13, "\"1\""},
            {14, "\"a\""},
            {14, "\"\\u0061\""},
            {15, "\"ab\""},
            {16, "\"b\""},
            {17, "\"a\\u0000\""},
            {18, "\"null\""},
            {19, "\"/\""},
            {19, "\"\\/\""},
            {20, "\"\\\\/\""},
            {21, "[]"},
            {22, "[1]"},
            {22, "[1.0]"},
            {23, "[1, 1]"},
            {24, "[1, 2]"},
            {25, "[2, 1]"},
            {26, "[2]"},
            {27, "[2, 2]"},
            {28, "[1, 2, 2]"},
            {29, "[[]]"},
            {30, "[[1], 2]"},
            {31, "[[1, 2]]"},
            {32, "[[1], [2]]"},
            {33, "[\"1\"]"},
            {34, "[null]"},
            {35, "[false]"},
            {36, "{}"},
            {37, "[{}]"},
            {38, "[{}, {}]"},
            {39, "{\"a\": 1}"},
            {39, "{\"\\u0061\": 1e0}"},
            {40, "{\"a\": 2}"},
            {41, "{\"b\": 1}"},
            {42, "{\"a\": 1, \"b\": 2}"},
            {42, "{\"b\": 2, \"a\": 1}"},
            {43, "{\"a\": 2, \"b\": 1}"},
            {44, "{\"a\": 1, \"b\": 1}"},
            {45, "{\"a\": {\"b\": 1}}"},
            {46, "{\"a\": {\"b\": 2}}"},
            {47, "{\"a\": {}}"},
            {48, "{\"a\": []}"},
            {49, "{\"a\": null}"},
            {50, "{\"a\": [1, 2]}"},
            {51, "{\"a\": [2, 1]}"},
            {52, "{\"a\": 1, \"b\": 2, \"c\": 3}"},
            {52, "{\"c\": 3, \"a\": 1, \"b\": 2}"},
            {53, "{\"\": 1}"},
            {54, "[[1, 2], 3]"},
            {55, "[[2, 2], 3]"},
            {56, "{\"a\\u0000\": 1}"},
            {57, "{\"a\\u0000\": 2}"},
            {58, "{\"a\\u0000b\": 1}"}};
enum { N_POOL = sizeof pool / sizeof *pool };

/* Judges a text by value and, with c, by its bytes. */
static void assert_both(SchemaSet *set, Constraint *c, const char *schema, const char *text, bool is) {
  Buffer got = {0};
  reasons_of(set, text, &got);
  if ((got.size == 1) != is) fail_msg("%s: %s has the reasons \"%s\"", schema, text, got.data);
  if (c && fits(c, text) != is) fail_msg("%s: %s is %s", schema, text, is ? "refused" : "taken");
  buffer_release(&got);
}

static void open_both(const char *schema, SchemaSet *set, Constraint *c) {
  const SchemaOptions options = {.exponents = true};
  Error err;
  if (schema_open("schema", schema, strlen(schema), options, set, &err) ||
      constraint_open("schema", schema, strlen(schema), options, NULL, c, &err))
    fail_msg("%s: %s", schema, err.text);
}

static void close_both(SchemaSet *set, Constraint *c) {
  constraint_close(c);
  schema_close(set);
}

/* const, enum and uniqueItems, at the root and further within, have one equality of values. */
TEST(values_are_equal_as_json_has_it) {
  SchemaSet set;
  Constraint c;
  char schema[300], text[300];
  open_both("{\"uniqueItems\": true}", &set, &c);
  for (int i = 0; i < N_POOL; i++)
    for (int j = 0; j < N_POOL; j++) {
      const bool same = pool[i].of == pool[j].of;
      snprintf(text, sizeof text, "[%s, %s]", pool[i].text, pool[j].text);
      assert_both(&set, &c, "unique", text, !same);
      snprintf(text, sizeof text, "[[%s], 77, [%s]]", pool[i].text, pool[j].text);
      assert_both(&set, &c, "unique", text, !same);
    }
  close_both(&set, &c);
  for (int i = 0; i < N_POOL; i++)
    for (int form = 0; form < 3; form++) {
      static const char *const forms[] = {"{\"const\": %s}", "{\"enum\": [\"x\", %s, 77]}",
                                          "{\"properties\": {\"k\": {\"const\": [%s]}}}"};
      snprintf(schema, sizeof schema, forms[form], pool[i].text);
      open_both(schema, &set, &c);
      for (int j = 0; j < N_POOL; j++) {
        snprintf(text, sizeof text, form == 2 ? "{\"k\": [%s]}" : "%s", pool[j].text);
        /* By its bytes a constant has few of the exponents that a number may be written with. */
        const char *e = strpbrk(pool[j].text, "e");
        const bool has_exponent = e && e > pool[j].text && strchr("0123456789", e[-1]);
        assert_both(&set, has_exponent ? NULL : &c, schema, text, pool[i].of == pool[j].of);
      }
      close_both(&set, &c);
    }
}

/* Wherever a schema names a key, the key may have a NUL. */
TEST(keys_may_have_a_nul) {
  static const struct {
    const char *schema, *fits, *does_not;
  } cases[] = {
      {"{\"required\": [\"a\\u0000\"]}", "{\"a\\u0000\": 1}", "{\"a\": 1}"},
      {"{\"properties\": {\"a\\u0000\": {\"type\": \"null\"}}}", "{\"a\": 1}", "{\"a\\u0000\": 1}"},
      {"{\"properties\": {\"a\\u0000\": true}, \"additionalProperties\": false}", "{\"a\\u0000\": 1}",
       "{\"a\": 1}"},
      {"{\"patternProperties\": {\"\\u0000\": {\"type\": \"null\"}}}", "{\"a\": 1}", "{\"a\\u0000\": 1}"},
      {"{\"dependentRequired\": {\"a\\u0000\": [\"b\"]}}", "{\"a\\u0000\": 1, \"b\": 1}",
       "{\"a\\u0000\": 1}"},
      {"{\"dependentRequired\": {\"b\": [\"a\\u0000\"]}}", "{\"a\\u0000\": 1, \"b\": 1}", "{\"b\": 1}"},
      {"{\"dependentSchemas\": {\"a\\u0000\": {\"maxProperties\": 1}}}", "{\"a\\u0000\": 1}",
       "{\"a\\u0000\": 1, \"b\": 1}"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    SchemaSet set;
    Constraint c;
    open_both(cases[i].schema, &set, &c);
    assert_both(&set, &c, cases[i].schema, cases[i].fits, true);
    assert_both(&set, &c, cases[i].schema, cases[i].does_not, false);
    close_both(&set, &c);
  }
  assert_reasons("{\"const\": {\"a\\u0000\": 1}}", "{\"b\\u0000\": 2}",
                 "expected {\"a\\u0000\": 1}, found {\"b\\u0000\": 2}\n");
}

/* Appends a branch of oneOf that is likely to exclude others by its members. */
static void put_branch(Buffer *out, uint64_t *seed) {
  enum { N = sizeof members / sizeof *members };
  const bool in_place = random_below(seed, 4) == 0, is_object = random_below(seed, 3);
  if (in_place) put_text(out, "{\"allOf\": [");
  put_text(out, is_object ? "{\"type\": \"object\"" : "{\"minProperties\": 0");
  put_text(out, ", \"properties\": {\"k\": ");
  put_text(out, members[random_below(seed, random_below(seed, 2) ? 3 : N)]);
  if (random_below(seed, 2)) put_text(out, ", \"l\": "), put_text(out, members[random_below(seed, N)]);
  put_text(out, "}");
  static const char *const required[] = {", \"required\": [\"k\"]",
                                         ", \"required\": [\"k\"]",
                                         ", \"required\": [\"k\", \"l\"]",
                                         ", \"required\": [\"l\"]",
                                         ", \"patternProperties\": {\"^k\": {\"maximum\": 3}}",
                                         ""};
  put_text(out, required[random_below(seed, 6)]);
  if (random_below(seed, 4) == 0) put_text(out, ", \"additionalProperties\": false");
  put_text(out, "}");
  if (in_place) put_text(out, random_below(seed, 2) ? ", {\"required\": [\"k\"]}]}" : "]}");
}

/* Branches that are tagged by constants, or by members that exclude one another, or nearly so. */
TEST(exactly_one_branch_fits) {
  static const char *const values[] = {"\"a\"", "\"b\"", "\"c\"", "1", "2", "0", "null", "true", "[]", "[1]"};
  enum { N_VALUES = sizeof values / sizeof *values };
  uint64_t seed = 1;
  int n_taken = 0, n_refused = 0;
  Buffer schema = {0}, got = {0};
  Error err;
  for (int i = 0; i < SAMPLE(2500); i++) {
    SchemaSet set;
    Constraint c;
    schema.size = 0;
    put_text(&schema, "{\"$defs\": {\"a\": {\"const\": \"a\"}}, \"oneOf\": [");
    for (uint32_t n = 2 + random_below(&seed, 3), k = 0; k < n; k++) {
      if (k) put_text(&schema, ", ");
      put_branch(&schema, &seed);
    }
    put_text(&schema, "]}");
    assert_int_equal(buffer_append(&schema, "", 1, &err), STATUS_OK);
    const SchemaOptions options = {.exponents = true};
    const size_t size = schema.size - 1;
    if (schema_open("schema", schema.data, size, options, &set, &err))
      fail_msg("%s: %s", schema.data, err.text);
    const bool has_texts = constraint_open("schema", schema.data, size, options, NULL, &c, &err) == STATUS_OK;
    if (!has_texts && !strstr(err.text, "no text satisfies")) fail_msg("%s: %s", schema.data, err.text);
    for (uint32_t v = 0; v < (N_VALUES + 1) * 4; v++) {
      static const char *const others[] = {"", "\"l\": 1", "\"l\": \"a\"", "\"m\": null"};
      char text[60];
      const bool has_key = v / 4 < N_VALUES;
      snprintf(text, sizeof text, "{%s%s%s%s}", has_key ? "\"k\": " : "", has_key ? values[v / 4] : "",
               has_key && v % 4 ? ", " : "", others[v % 4]);
      got.size = 0;
      reasons_of(&set, text, &got);
      const bool taken = has_texts && fits(&c, text);
      if (taken != (got.size == 1)) fail_msg("%s: %s\n%s", schema.data, text, got.data);
      n_taken += taken, n_refused += !taken;
    }
    if (has_texts) constraint_close(&c);
    schema_close(&set);
  }
  assert_true(n_taken > SAMPLE(5000) && n_refused > SAMPLE(5000));
  buffer_release(&schema);
  buffer_release(&got);
}
