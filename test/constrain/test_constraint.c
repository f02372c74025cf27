/* test_constraint.c - schemas over bytes and tokens: numbers, references, drafts, formulas, masks and memory.
 * Single texts and refusals are in test_transcripts.c. */
#include <time.h>
#include <unistd.h>

#include "constrain/constraint.h"
#include "test/constrain/own_vocabulary.h"
#include "test/constrain/small_vocabulary.h"
#include "test/tests.h"

/* Processor time of a form that would take minutes if members were searched one by one. */
#ifdef __SANITIZE_ADDRESS__
enum { MOST_SECONDS = 40 };
#else
enum { MOST_SECONDS = 4 };
#endif

static const SchemaOptions any_order = {.exponents = true};
static SchemaOptions options = {.exponents = true};

/* Bytes of the text that are taken; one more than its size if it may end there. */
static size_t taken_of(const char *schema, const char *text) {
  Constraint c;
  Error err;
  bool allowed;
  size_t taken;
  if (constraint_open("schema", schema, strlen(schema), options, NULL, &c, &err)) fail_msg("%s", err.text);
  assert_int_equal(constraint_take_bytes(&c, text, strlen(text), &allowed, &taken, &err), STATUS_OK);
  if (allowed && constraint_may_end(&c)) taken++;
  constraint_close(&c);
  return taken;
}

#define OBJECT                                                                                               \
  "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": {\"enum\": [\"x\", "       \
  "\"yy\"]}}, "                                                                                              \
  "\"required\": [\"a\"], \"additionalProperties\": false}"

/* Numbers of one value are one, whether a rule speaks of the value or of its type, and answers have some of
 * the texts that fit. Only an exponent has to be normalised beside a rule. */
TEST(numbers_fit_by_their_values) {
  static const char *const schemas[] = {
      "{\"type\": \"integer\"}",
      "{\"type\": \"integer\", \"minimum\": 0, \"maximum\": 100}",
      "{\"type\": \"integer\", \"multipleOf\": 5}",
      "{\"type\": \"number\", \"minimum\": 0}",
      "{\"enum\": [0, 100]}",
      "{\"enum\": [-0, 1e2, \"a\"]}",
      "{\"enum\": [-0.0, 100.0, 1, 2, 3]}",
      "{\"anyOf\": [{\"const\": 0}, {\"const\": 1e2}]}",
  };
  static const struct {
    const char *text;
    bool fits, written;
  } numbers[] = {
      {"0", true, true},        {"-0", true, true},        {"0.0", true, false},  {"-0.00", true, false},
      {"100", true, true},      {"100.00", true, false},   {"1e2", true, false},  {"1E+2", true, false},
      {"1.00e02", true, false}, {"10e1", false, false},    {"0e1", false, false}, {"-100", false, false},
      {"0.5", false, false},    {"1000e-1", false, false},
  };
  for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++)
    for (size_t j = 0; j < 2 * sizeof numbers / sizeof *numbers; j++) {
      const char *text = numbers[j / 2].text;
      options = j % 2 == 0 ? any_order : (SchemaOptions){.plain_integers = true};
      const bool fits = taken_of(schemas[i], text) == strlen(text) + 1;
      options = any_order;
      const bool any = i == 3 && strcmp(text, "0.5") == 0,
                 below = strcmp(text, "-100") == 0 && (i == 0 || i == 2);
      if (fits != ((j % 2 == 0 ? numbers[j / 2].fits : numbers[j / 2].written) || any || below))
        fail_msg("%s: %s %s", schemas[i], text, j % 2 == 0 ? "as a text" : "as an answer");
    }
}

/* A value fits a list of types if it fits one of them, in whichever order the list has them. */
TEST(a_list_of_types_allows_what_each_of_them_does) {
  static const struct {
    const char *type, *takes; /* marks of the texts that fit */
  } types[] = {{"null", "n"},   {"boolean", "b"}, {"integer", "i"}, {"number", "ir"},
               {"string", "s"}, {"array", "a"},   {"object", "o"}};
  static const char *const texts[] = {"nnull", "btrue",  "bfalse", "i7",
                                      "r7.5",  "s\"7\"", "a[7]",   "o{\"a\": 7}"};
  enum { N = sizeof types / sizeof *types };
  for (int tuple = 0; tuple < N * N * N; tuple++)
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
      const int which[3] = {tuple % N, tuple / N % N, tuple / N / N};
      char schema[80];
      bool fits = false;
      snprintf(schema, sizeof schema, "{\"type\": [\"%s\", \"%s\", \"%s\"]}", types[which[0]].type,
               types[which[1]].type, types[which[2]].type);
      for (int i = 0; i < 3; i++) fits |= strchr(types[which[i]].takes, *texts[t]) != NULL;
      if ((taken_of(schema, texts[t] + 1) == strlen(texts[t])) != fits)
        fail_msg("%s: %s", schema, texts[t] + 1);
    }
}

/* 30,000 objects are looked at one by one, not each with all others. */
TEST(many_objects_open_in_little_time) {
  Buffer text = {0};
  Error err;
  assert_int_equal(buffer_printf(&text, &err, "{\"properties\": {\"x\": {}"), STATUS_OK);
  for (int i = 0; i < 30000; i++)
    assert_int_equal(buffer_printf(&text, &err, ", \"p%d\": {\"const\": {\"k%d\": 1}}", i, i), STATUS_OK);
  assert_int_equal(buffer_printf(&text, &err, "}}"), STATUS_OK);
  const SchemaOptions ordered = {.ordered_keys = true};
  Constraint c;
  bool allowed;
  const clock_t start = clock();
  assert_int_equal(constraint_open("schema", text.data, text.size, ordered, NULL, &c, &err), STATUS_OK);
  assert_int_equal(constraint_take_bytes(&c, "{\"p9\": {\"k9\": 1}}", 17, &allowed, NULL, &err), STATUS_OK);
  assert_true(allowed && constraint_may_end(&c));
  assert_true((clock() - start) / CLOCKS_PER_SEC < MOST_SECONDS);
  constraint_close(&c);
  buffer_release(&text);
}

/* Constants of one key keep branches apart only where all of them require it: an object without the key may
 * be of several others. */
TEST(constants_keep_branches_apart_where_they_are_required) {
  for (unsigned needs = 0; needs < 8; needs++) {
    char schema[600] = "{\"type\": \"object\", \"oneOf\": [";
    int n_without = 0;
    for (unsigned i = 0; i < 3; i++) {
      const bool need = needs >> i & 1;
      n_without += !need;
      snprintf(schema + strlen(schema), 120, "{\"properties\": {\"k\": {\"const\": \"%c\"}}%s}%s",
               'a' + (int)i, need ? ", \"required\": [\"k\"]" : "", i < 2 ? ", " : "]}");
    }
    assert_int_equal(taken_of(schema, "{\"k\": \"b\"}"), 11);
    assert_int_equal(taken_of(schema, "{}") == 3, n_without == 1);
    assert_int_equal(taken_of(schema, "{\"j\": 1}") == 9, n_without == 1);
  }
}

/* A keyword that is let go makes no valid text invalid, however deep it lies in what is negated or
 * counted. */
TEST(what_is_let_go_refuses_nothing) {
  static const struct {
    const char *before, *after, *text_before, *text_after;
  } cases[] = {
      {"{\"not\": ", "}", "", ""},
      {"{\"if\": ", ", \"then\": false}", "", ""},
      {"{\"oneOf\": [", ", {\"type\": [\"object\", \"string\"]}]}", "", ""},
      {"{\"contains\": ", ", \"minContains\": 0, \"maxContains\": 0}", "[", "]"},
      {"{\"items\": {\"not\": ", "}}", "[", "]"},
      {"{\"not\": {\"not\": {\"not\": ", "}}}", "", ""},
  };
  static const char *const wraps[][2] = {{"{\"properties\": {\"a\": ", "}}"},
                                         {"{\"allOf\": [{\"properties\": {\"a\": ", "}}]}"}};
  const SchemaOptions before = options;
  options.lenient = true;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (size_t w = 0; w < 2; w++)
      for (int depth = 0; depth <= 4; depth++) {
        char schema[1000] = "", text[200] = "";
        strcat(schema, cases[i].before), strcat(text, cases[i].text_before);
        for (int d = 0; d < depth; d++) strcat(schema, wraps[w][0]), strcat(text, "{\"a\": ");
        strcat(schema, "{\"pattern\": \"\\\\bx\"}"), strcat(text, "\"y\"");
        for (int d = 0; d < depth; d++) strcat(schema, wraps[w][1]), strcat(text, "}");
        strcat(schema, cases[i].after), strcat(text, cases[i].text_after);
        if (taken_of(schema, text) != strlen(text) + 1) fail_msg("%s refuses %s", schema, text);
      }
  options = before;
}

/* Wherever a subschema may lie, `not` is let go with a keyword of that subschema. */
TEST(what_is_negated_is_let_go_from_each_place) {
  static const char *const places[] = {"\"additionalProperties\": %s",
                                       "\"propertyNames\": %s",
                                       "\"unevaluatedProperties\": %s",
                                       "\"items\": %s",
                                       "\"unevaluatedItems\": %s",
                                       "\"contains\": %s",
                                       "\"not\": %s",
                                       "\"if\": %s, \"then\": false",
                                       "\"if\": true, \"then\": %s",
                                       "\"if\": false, \"else\": %s",
                                       "\"prefixItems\": [true, %s]",
                                       "\"allOf\": [true, %s]",
                                       "\"anyOf\": [false, %s]",
                                       "\"oneOf\": [false, %s]",
                                       "\"properties\": {\"a\": true, \"b\": %s}",
                                       "\"patternProperties\": {\"a\": %s}",
                                       "\"dependentSchemas\": {\"a\": %s}",
                                       "\"$ref\": \"#/not/$defs/r\", \"$defs\": {\"r\": %s}"};
  const SchemaOptions lenient = {.exponents = true, .lenient = true};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++)
    for (int lets_go = 0; lets_go < 2; lets_go++) {
      char place[200], schema[300];
      SchemaSet set;
      Error err;
      snprintf(place, sizeof place, places[i],
               lets_go ? "{\"pattern\": \"\\\\bx\"}" : "{\"pattern\": \"x\"}");
      snprintf(schema, sizeof schema, "{\"not\": {%s}}", place);
      if (schema_open("schema", schema, strlen(schema), lenient, &set, &err))
        fail_msg("%s: %s", schema, err.text);
      bool found = false;
      for (size_t at = 0; at < set.let_go.size; at += strlen(set.let_go.data + at) + 1)
        found |= strncmp(set.let_go.data + at, "#/not: ", 7) == 0;
      if (found != lets_go) fail_msg("%s: %d", schema, found);
      schema_close(&set);
    }
}

/* Each escape is its character: in keys and strings, as constants and where values repeat. */
TEST(escapes_are_their_characters) {
  static const char letters[] = "\"\\/bfnrt";
  static const unsigned char codes[] = {'"', '\\', '/', 8, 12, 10, 13, 9};
  static const struct {
    const char *schema; /* with %1$04x for the character */
    const char *text;   /* with %2$c for the letter of the escape */
    bool fits;
  } cases[] = {
      {"{\"const\": \"\\u%1$04x\"}", "\"\\%2$c\"", true},
      {"{\"const\": \"\\u%1$04x\"}", "\"\\u%1$04X\"", true},
      {"{\"const\": \"\\u%1$04x\"}", "\"\\u0041\"", false},
      {"{\"properties\": {\"\\u%1$04x\": {\"type\": \"null\"}}}", "{\"\\%2$c\":null}", true},
      {"{\"properties\": {\"\\u%1$04x\": {\"type\": \"null\"}}}", "{\"\\%2$c\":1}", false},
      {"{\"properties\": {\"\\u%1$04x\": {\"type\": \"null\"}}}", "{\"\\u%1$04x\":1}", false},
      {"{\"required\": [\"\\u%1$04x\"]}", "{\"\\%2$c\":1}", true},
      {"{}", "{\"\\%2$c\":1,\"\\u%1$04x\":1}", false},
      {"{}", "{\"\\%2$c\":1,\"\\u0041\":1,\"\\u%1$04x1\":1}", true},
      {"{\"uniqueItems\": true}", "[\"\\%2$c\",\"\\u%1$04x\"]", false},
      {"{\"uniqueItems\": true}", "[\"\\%2$c\",\"\\u0042\",\"\\u%1$04x \"]", true},
      {"{\"uniqueItems\": true}", "[{\"\\%2$c\":1},{\"\\u%1$04x\":1}]", false},
      {"{\"propertyNames\": {\"pattern\": \"^\\\\x%1$02x$\"}}", "{\"\\%2$c\":1}", true},
      {"{\"maxLength\": 1}", "\"\\%2$c\"", true},
      {"{\"minLength\": 2}", "\"\\%2$c\"", false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int k = 0; k < 8; k++) {
      char schema[200], text[100];
      snprintf(schema, sizeof schema, cases[i].schema, (unsigned)codes[k], letters[k]);
      snprintf(text, sizeof text, cases[i].text, (unsigned)codes[k], letters[k]);
      if ((taken_of(schema, text) == strlen(text) + 1) != cases[i].fits) fail_msg("%s: %s", schema, text);
    }
}

/* Behind the first half of a surrogate pair only the second: DC00 to DFFF. */
TEST(second_halves_of_pairs_follow_first_ones) {
  for (int digit = 0; digit < 16; digit++) {
    char text[20];
    snprintf(text, sizeof text, "\"\\ud8ff\\ud%x", (unsigned)digit);
    assert_int_equal(taken_of("{}", text), digit < 12 ? 10 : 11);
  }
}

/* The tokens that follow `text` by force, as their text; a token ends where `expected` has a bar. */
static void assert_forced_tokens(const char *schema, const char *text, const char *expected) {
  Constraint c;
  Error err;
  IdList ids = {0};
  Buffer found = {0};
  bool allowed;
  const size_t n = strlen(text), from = n < 4 ? 0 : n - 4;
  assert_int_equal(constraint_open("schema", schema, strlen(schema), any_order, &vocabulary, &c, &err),
                   STATUS_OK);
  assert_int_equal(constraint_write_plainly(&c, &err), STATUS_OK);
  assert_int_equal(constraint_take_bytes(&c, text, n, &allowed, NULL, &err), STATUS_OK);
  assert_true(allowed);
  assert_int_equal(constraint_forced_tokens(&c, tokenizer, text + from, n - from, &ids, &err), STATUS_OK);
  for (size_t i = 0; i < ids.count; i++) {
    size_t size;
    const char *bytes = vocabulary_bytes(&vocabulary, ids.ids[i], &size);
    assert_int_equal(buffer_append(&found, bytes, size, &err), STATUS_OK);
    assert_int_equal(buffer_append(&found, "|", 1, &err), STATUS_OK);
  }
  assert_int_equal(buffer_append(&found, "", 1, &err), STATUS_OK);
  assert_string_equal(found.data, expected);
  buffer_release(&found);
  id_list_release(&ids);
  constraint_close(&c);
}

/* They are the tokenizer's own, and end where a longer one could hold what comes next as well. */
TEST_WITH(open_vocabulary, close_vocabulary, forced_tokens_are_those_of_the_tokenizer) {
  assert_forced_tokens("{\"enum\": [\"the mother went\", \"at\"]}", "\"the", " m|ot|her| w|ent|\"|");
  assert_forced_tokens("{\"enum\": [\"the mother\", \"the mother and\"]}", "\"the", " m|ot|her|");
  assert_forced_tokens("{\"type\": \"string\", \"pattern\": \"^the mother w\"}", "\"the", " m|ot|her|");
  assert_forced_tokens("{\"type\": \"string\"}", "\"a ", "");
}

/* minContains is a keyword from 2019-09 on: before, one item has to fit whatever it says. */
TEST(how_many_items_must_fit_depends_on_the_draft) {
  static const struct {
    const char *draft, *n;
    size_t taken[3]; /* of [], [1] and [1, 1] */
  } cases[] = {
      {"https://json-schema.org/draft/2020-12/schema", "0", {3, 4, 7}},
      {"https://json-schema.org/draft/2020-12/schema", "2", {1, 2, 7}},
      {"https://json-schema.org/draft/2019-09/schema", "2", {1, 2, 7}},
      {"http://json-schema.org/draft-07/schema#", "0", {1, 4, 7}},
      {"http://json-schema.org/draft-07/schema#", "2", {1, 4, 7}},
  };
  static const char *const texts[] = {"[]", "[1]", "[1, 1]"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (size_t t = 0; t < 6; t++) { /* whichever keyword comes first */
      char schema[200], count[40];
      snprintf(count, sizeof count, "\"minContains\": %s, ", cases[i].n);
      snprintf(schema, sizeof schema, "{\"$schema\": \"%s\", %s\"contains\": {\"const\": 1}, %s\"x\": 1}",
               cases[i].draft, t < 3 ? count : "", t < 3 ? "" : count);
      assert_int_equal(taken_of(schema, texts[t % 3]), cases[i].taken[t % 3]);
    }
}

/* The draft decides whether a member is a keyword, and its meaning. */
TEST(keywords_mean_what_their_draft_says) {
  static const char *const uris[] = {
      "http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-06/schema#",
      "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2019-09/schema",
      "https://json-schema.org/draft/2020-12/schema"};
  static const struct {
    const char *keywords, *text, *fits; /* '1' or '0' for each draft; '-': the schema is refused there */
  } cases[] = {
      {"\"type\": \"integer\"", "1.0", "01111"},
      {"\"const\": 1", "2", "10000"},
      {"\"allOf\": []", "2", "----1"},
      {"\"type\": [\"null\"], \"oneOf\": []", "null", "-----"},
      {"\"minContains\": 3, \"maxContains\": 1", "[]", "11111"},
      {"\"contains\": {\"const\": 1}, \"maxContains\": 0, \"minContains\": 0", "[1]", "11100"},
      {"\"dependencies\": {\"a\": \"b\"}", "{\"a\": 1}", "0--11"},
      {"\"dependencies\": {\"a\": true}", "{\"a\": 1}", "11111"},
      {"\"dependencies\": {\"a\": {\"required\": [\"b\"]}}", "{\"a\": 1}", "00011"},
      {"\"dependentRequired\": {\"a\": {}}", "{\"a\": 1}", "11111"},
      {"\"$recursiveRef\": \"#\"", "1", "111-1"},
      {"\"$dynamicRef\": \"#a\", \"$defs\": {\"x\": {\"$dynamicAnchor\": \"a\", \"const\": 2}}", "1",
       "11110"},
      {"\"allOf\": [{\"$ref\": \"#a\"}], \"$defs\": {\"x\": {\"$anchor\": \"a\", \"const\": 2}}", "1",
       "---00"},
      {"\"allOf\": [{\"$ref\": \"#a\"}], \"definitions\": {\"x\": {\"$id\": \"#a\", \"enum\": [2]}}", "1",
       "-00--"},
      {"\"allOf\": [{\"$ref\": \"#a\"}], \"definitions\": {\"x\": {\"id\": \"#a\", \"enum\": [2]}}", "1",
       "0----"},
      {"\"exclusiveMaximum\": 1", "1", "10000"},
      {"\"exclusiveMaximum\": false, \"maximum\": 1", "1", "1----"},
      {"\"exclusiveMinimum\": true, \"maximum\": 1", "1", "1----"},
      {"\"exclusiveMinimum\": true, \"minimum\": 1", "1", "0----"},
      {"\"exclusiveMinimum\": 1", "1", "10000"},
      {"\"contains\": {\"const\": 1}", "[2]", "10000"},
      {"\"propertyNames\": {\"maxLength\": 1}", "{\"ab\": 1}", "10000"},
      {"\"if\": {\"minimum\": 5}, \"then\": false", "5", "11000"},
      {"\"items\": [{\"type\": \"null\"}]", "[1]", "0000-"},
      {"\"items\": [true], \"additionalItems\": false", "[1, 2]", "0000-"},
      {"\"items\": true, \"additionalItems\": false", "[1, 2]", "11111"},
      {"\"prefixItems\": [{\"type\": \"null\"}]", "[1]", "11110"},
      {"\"dependencies\": {\"a\": [\"b\"]}", "{\"a\": 1}", "00011"},
      {"\"dependentRequired\": {\"a\": [\"b\"]}", "{\"a\": 1}", "11100"},
      {"\"dependentSchemas\": {\"a\": false}", "{\"a\": 1}", "11100"},
      {"\"unevaluatedProperties\": false", "{\"a\": 1}", "11100"},
      {"\"unevaluatedItems\": false", "[1]", "11100"},
      {"\"contains\": {\"const\": 1}, \"unevaluatedItems\": false", "[1]", "11101"},
      {"\"contains\": {\"const\": 1}, \"unevaluatedItems\": {\"const\": 2}", "[2, 1]", "11101"},
      {"\"contains\": {\"const\": 1}, \"unevaluatedItems\": {\"const\": 2}", "[1, 3]", "11100"},
      {"\"allOf\": [{\"contains\": {\"const\": 1}}], \"unevaluatedItems\": false", "[1, 1]", "11101"},
      {"\"contains\": {\"const\": 1}, \"maxContains\": 1", "[1, 1]", "11100"},
      {"\"allOf\": [{\"$ref\": \"#/x\", \"maximum\": 3}], \"x\": {\"minimum\": 1}", "4", "11100"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (size_t draft = 0; draft < sizeof uris / sizeof *uris; draft++) {
      Constraint c;
      Error err;
      char schema[300];
      const char *text = cases[i].text;
      snprintf(schema, sizeof schema, "{\"$schema\": \"%s\", %s}", uris[draft], cases[i].keywords);
      const Status status = constraint_open("schema", schema, strlen(schema), any_order, NULL, &c, &err);
      if ((status == STATUS_USAGE) != (cases[i].fits[draft] == '-')) fail_msg("%s: %d", schema, status);
      if (status != STATUS_OK) continue;
      constraint_close(&c);
      if ((taken_of(schema, text) == strlen(text) + 1) != (cases[i].fits[draft] == '1'))
        fail_msg("%s: %s", schema, text);
    }
}

/* References that lie deep, or that double what is looked at, are refused and not followed without end. */
TEST(references_are_followed_to_a_limit) {
  static const char *const parts[][2] = {
      {"{\"$ref\": \"#/$defs/d%d\"}", "over 1,000 deep"},
      {"{\"oneOf\": [{\"$ref\": \"#/$defs/d%d\"}, {\"required\": [\"k%d\"], \"type\": \"object\"}]}",
       "takes too long"}};
  for (size_t i = 0; i < 2; i++) {
    Buffer schema = {0};
    Constraint c;
    Error err;
    const int n = i == 0 ? 60000 : 400;
    const clock_t start = clock();
    assert_int_equal(buffer_printf(&schema, &err, "{\"$ref\": \"#/$defs/d0\", \"$defs\": {"), STATUS_OK);
    for (int j = 0; j < n; j++) {
      char part[120];
      snprintf(part, sizeof part, parts[i][0], j + 1, j);
      assert_int_equal(buffer_printf(&schema, &err, "\"d%d\": %s, ", j, part), STATUS_OK);
    }
    assert_int_equal(buffer_printf(&schema, &err, "\"d%d\": {\"type\": \"object\"}}}", n), STATUS_OK);
    assert_int_equal(constraint_open("schema", schema.data, schema.size, any_order, NULL, &c, &err),
                     STATUS_USAGE);
    if (!strstr(err.text, parts[i][1])) fail_msg("%s", err.text);
    if (i == 0)
      assert_true((clock() - start) / CLOCKS_PER_SEC <
                  MOST_SECONDS); /* members are not searched one by one */
    buffer_release(&schema);
  }
}

/* Objects with the same keys, keys that a pointer escapes, and keys that are not there. */
TEST(references_lead_to_members_of_their_own_object) {
  static const struct {
    const char *reference, *text; /* the one text of two that the schema takes; NULL: it leads nowhere */
  } cases[] = {{"#/$defs/a/$defs/k", "1"}, {"#/$defs/b/$defs/k", "2"},  {"#/$defs/k", "3"},
               {"#/$defs/s~1~0t", "4"},    {"#/$defs/%C3%A4", "5"},     {"#/$defs/l/anyOf/1", "7"},
               {"#/$defs/l/x/9", "8"},     {"#/$defs/", "9"},           {"#/$defs/a/$defs/b", NULL},
               {"#/$defs/K", NULL},        {"#/$defs/l/anyOf/2", NULL}, {"#/$defs/k/", NULL},
               {"#/$defs/l/anyOf/", NULL}, {"#/$defs/l/anyOf/1x", NULL}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char schema[800];
    Constraint c;
    Error err;
    /* The first references have led through all objects when the last one is looked up. */
    snprintf(
        schema, sizeof schema,
        "{\"allOf\": [{\"anyOf\": [{\"$ref\": \"#/$defs/a/$defs/k\"}, {\"$ref\": \"#/$defs/b/$defs/k\"}, "
        "{\"$ref\": \"#/$defs/l/x/9\"}, {}]}, {\"$ref\": \"%s\"}], \"$defs\": {"
        "\"a\": {\"$defs\": {\"k\": {\"const\": 1}}}, \"b\": {\"$defs\": {\"k\": {\"const\": 2}}}, "
        "\"k\": {\"const\": 3}, \"s/~t\": {\"const\": 4}, \"\u00e4\": {\"const\": 5}, "
        "\"l\": {\"anyOf\": [{\"const\": 6}, {\"const\": 7}], \"x\": {\"9\": {\"const\": 8}}}, "
        "\"\": {\"const\": 9}}}",
        cases[i].reference);
    const Status status = constraint_open("schema", schema, strlen(schema), any_order, NULL, &c, &err);
    if (!cases[i].text) {
      assert_int_equal(status, STATUS_USAGE);
      if (!strstr(err.text, "leads nowhere")) fail_msg("%s: %s", cases[i].reference, err.text);
      continue;
    }
    if (status != STATUS_OK) fail_msg("%s", err.text);
    for (char digit = '1'; digit <= '9'; digit++) {
      bool allowed;
      size_t taken;
      Constraint one;
      assert_int_equal(constraint_open("schema", schema, strlen(schema), any_order, NULL, &one, &err),
                       STATUS_OK);
      assert_int_equal(constraint_take_bytes(&one, &digit, 1, &allowed, &taken, &err), STATUS_OK);
      if (allowed != (digit == *cases[i].text)) fail_msg("%s takes %c", cases[i].reference, digit);
      constraint_close(&one);
    }
    constraint_close(&c);
  }
}

/* A pointer may lead into a document within the schema: what lies there has that document's URI and draft. */
TEST(references_are_of_the_document_that_a_pointer_leads_into) {
  static const char rest[] =
      "\"$defs\": {\"k\": {\"$id\": \"k\", \"const\": 1}, "
      "\"in\": {\"$id\": \"in/\", \"$defs\": {\"k\": {\"$id\": \"k\", \"const\": 2}, "
      "\"a\": {\"$ref\": \"k\"}, \"b\": {\"allOf\": [{\"$ref\": \"../k\"}]}, "
      "\"c\": {\"$ref\": \"#/$defs/d\"}, \"d\": {\"const\": 3}, \"e\": {\"$ref\": \"#f\"}, "
      "\"f\": {\"$anchor\": \"f\", \"const\": 4}, "
      "\"old\": {\"$id\": \"old/\", \"$schema\": \"http://json-schema.org/draft-07/schema#\", "
      "\"definitions\": {\"g\": {\"const\": 5}, \"h\": {\"$ref\": \"#/definitions/g\", \"maximum\": 0}, "
      "\"i\": {\"$ref\": \"../k\"}, \"j\": {\"items\": [{\"const\": 6}]}}}}}, "
      "\"d\": {\"const\": 7}, \"f\": {\"$anchor\": \"f\", \"const\": 8}}}";
  static const struct {
    const char *reference, *text; /* the only digit that the schema takes */
  } cases[] = {
      {"#/$defs/in/$defs/a", "2"},
      {"#/$defs/in/$defs/b", "1"},
      {"#/$defs/in/$defs/b/allOf/0", "1"},
      {"#/$defs/in/$defs/c", "3"},
      {"#/$defs/in/$defs/e", "4"},
      {"#/$defs/in/$defs/k", "2"},
      {"in/#/$defs/a", "2"},
      {"#/$defs/in/$defs/old/definitions/h", "5"},
      {"#/$defs/in/$defs/old/definitions/i", "2"},
      {"#/$defs/in/$defs/old/definitions/j/items/0", "6"},
      {"#/$defs/d", "7"},
      {"#f", "8"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (char digit = '1'; digit <= '9'; digit++) {
      char schema[1000];
      const char text[] = {digit, 0};
      snprintf(schema, sizeof schema, "{\"$id\": \"http://example.com/s/\", \"$ref\": \"%s\", %s",
               cases[i].reference, rest);
      if ((taken_of(schema, text) == 2) != (digit == *cases[i].text))
        fail_msg("%s: %s", cases[i].reference, text);
    }
}

/* The examples of RFC 3986, 5.4, and some of bases with other parts: a reference that meant another document
 * would lead nowhere. */
TEST(references_are_resolved_as_uris_are) {
  static const char rfc[] = "http://a/b/c/d;p?q";
  static const struct {
    const char *base, *reference, *means;
  } cases[] = {
      {rfc, "g:h", "g:h"},
      {rfc, "g", "http://a/b/c/g"},
      {rfc, "./g", "http://a/b/c/g"},
      {rfc, "g/", "http://a/b/c/g/"},
      {rfc, "/g", "http://a/g"},
      {rfc, "//g", "http://g"},
      {rfc, "?y", "http://a/b/c/d;p?y"},
      {rfc, "g?y", "http://a/b/c/g?y"},
      {rfc, "#s", "http://a/b/c/d;p?q"},
      {rfc, "g#s", "http://a/b/c/g"},
      {rfc, ";x", "http://a/b/c/;x"},
      {rfc, "g;x?y#s", "http://a/b/c/g;x?y"},
      {rfc, ".", "http://a/b/c/"},
      {rfc, "./", "http://a/b/c/"},
      {rfc, "..", "http://a/b/"},
      {rfc, "../", "http://a/b/"},
      {rfc, "../g", "http://a/b/g"},
      {rfc, "../..", "http://a/"},
      {rfc, "../../", "http://a/"},
      {rfc, "../../g", "http://a/g"},
      {rfc, "../../../g", "http://a/g"},
      {rfc, "/./g", "http://a/g"},
      {rfc, "/../g", "http://a/g"},
      {rfc, "g.", "http://a/b/c/g."},
      {rfc, ".g", "http://a/b/c/.g"},
      {rfc, "g..", "http://a/b/c/g.."},
      {rfc, "..g", "http://a/b/c/..g"},
      {rfc, "./../g", "http://a/b/g"},
      {rfc, "./g/.", "http://a/b/c/g/"},
      {rfc, "g/./h", "http://a/b/c/g/h"},
      {rfc, "g/../h", "http://a/b/c/h"},
      {rfc, "g;x=1/./y", "http://a/b/c/g;x=1/y"},
      {rfc, "g;x=1/../y", "http://a/b/c/y"},
      {rfc, "g?y/./x", "http://a/b/c/g?y/./x"},
      {rfc, "g?y:z", "http://a/b/c/g?y:z"},
      {rfc, "g/a:b", "http://a/b/c/g/a:b"},
      {"http://a", "g", "http://a/g"},
      {"http://a", "?y", "http://a?y"},
      {"http://a", "g/..", "http://a/"},
      {"http://a?q:r", "g", "http://a/g"},
      {"http://a/b/", "..", "http://a/"},
      {"http://a/b/d", "c/..", "http://a/b/"},
      {"urn:a:b", "#s", "urn:a:b"},
      {"urn:a:b?c", "?d", "urn:a:b?d"},
      {"a:b/c", "d", "a:b/d"},
      {"/x/y", "z", "/x/z"},
      {"x", "y", "y"},
      {"http://a/b#", "c#", "http://a/c"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    static const char anchor[] = "\"$defs\": {\"s\": {\"$anchor\": \"s\", \"const\": ";
    char schema[600];
    const char *means = cases[i].means, *fragment = strstr(cases[i].reference, "#s");
    const bool is_own = *cases[i].reference == '#';
    snprintf(
        schema, sizeof schema,
        "{\"$id\": \"%s\", \"$ref\": \"%s\", \"$defs\": {\"t\": {\"$id\": \"%s\", \"enum\": [1, 2], %s2}}}, "
        "\"u\": {%s3}}}}}",
        cases[i].base, cases[i].reference, is_own ? "other:" : means, anchor, anchor);
    for (char digit = '1'; digit <= '4'; digit++) {
      const bool fits = is_own ? digit == '3' : digit == '2' || (digit == '1' && !fragment);
      if ((taken_of(schema, (const char[]){digit, 0}) == 2) != fits)
        fail_msg("%s from %s does not mean %s: %c", cases[i].reference, cases[i].base, means, digit);
    }
  }
}

/* --- counts */

/* A text fits exactly if its count is between the least and the most, as keywords of one schema or of two; a
 * schema with a least above the most is refused. */
TEST(counts_are_between_their_limits) {
  static const struct {
    const char *min, *max, *rest, *parts[4], *open, *close;
  } kinds[] = {
      {"minItems", "maxItems", "", {"1", ",2", ",3", ",4"}, "[", "]"},
      {"minItems", "maxItems", "\"prefixItems\": [true, true], ", {"1", ",2", ",3", ",4"}, "[", "]"},
      {"minItems", "maxItems", "\"uniqueItems\": true, ", {"1", ",2", ",3", ",4"}, "[", "]"},
      {"minProperties", "maxProperties", "", {"\"a\":1", ",\"b\":1", ",\"c\":1", ",\"d\":1"}, "{", "}"},
      {"minProperties",
       "maxProperties",
       "\"properties\": {\"a\": {}, \"b\": {}}, ",
       {"\"a\":1", ",\"b\":1", ",\"c\":1", ",\"d\":1"},
       "{",
       "}"},
      {"minLength", "maxLength", "", {"a", "\u00e9", "\\n", "\\ud83d\\ude00"}, "\"", "\""},
      {"minLength",
       "maxLength",
       "\"pattern\": \"^[^x]*$\", ",
       {"a", "\u00e9", "\\n", "\\ud83d\\ude00"},
       "\"",
       "\""},
      {"minContains",
       "maxContains",
       "\"contains\": {\"enum\": [1, 2, 3, 4]}, ",
       {"1", ",2", ",3", ",4"},
       "[",
       "]"},
  };
  static const char *const forms[] = {"{\"type\": \"%s\", %s\"%s\": %d, \"%s\": %d}",
                                      "{\"type\": \"%s\", %s\"%s\": %d, \"allOf\": [{\"%s\": %d}]}"};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
    for (int turn = 0; turn < 2 * 5 * 5; turn++) {
      const int min = turn / 2 % 5, max = turn / 10;
      char schema[200];
      Constraint c;
      Error err;
      const char *type = *kinds[k].open == '[' ? "array" : *kinds[k].open == '{' ? "object" : "string";
      if (k == 7 && turn % 2) continue; /* contains of another schema is another */
      snprintf(schema, sizeof schema, forms[turn % 2], type, kinds[k].rest, kinds[k].min, min, kinds[k].max,
               max);
      const Status status = constraint_open("s", schema, strlen(schema), any_order, NULL, &c, &err);
      if ((status == STATUS_OK) != (min <= max)) fail_msg("%s: %d", schema, status);
      if (status != STATUS_OK) continue;
      for (int n = 0; n <= 4; n++) {
        char text[80];
        bool allowed;
        strcpy(text, kinds[k].open);
        for (int i = 0; i < n; i++) strcat(text, kinds[k].parts[i]);
        strcat(text, kinds[k].close);
        assert_int_equal(constraint_begin(&c, &err), STATUS_OK);
        assert_int_equal(constraint_take_bytes(&c, text, strlen(text), &allowed, NULL, &err), STATUS_OK);
        if (allowed != (n >= min && n <= max)) fail_msg("%s: %s", schema, text);
      }
      constraint_close(&c);
    }
}

/* Values lie within one another to a limit. */
TEST(values_are_nested_to_a_limit) {
  enum { MOST = 512 };
  for (int object = 0; object < 2; object++)
    for (int n = MOST; n <= MOST + 1; n++) {
      char text[6 * (MOST + 1) + 2] = "";
      for (int i = 0; i < n; i++) strcat(text, object ? "{\"a\":" : "[");
      const size_t size = strlen(text), taken = taken_of("true", text);
      assert_int_equal(taken, n == MOST ? size : size - (object ? 5 : 1));
    }
}

/* --- formulas */

static Formula first_only(void *user, const FormulaNode *atom, Formula itself) {
  (void)user, (void)itself;
  return atom->a == 0;
}

TEST(exactly_one_with_a_true_part_keeps_its_parts) {
  Formulas f;
  Error err;
  Formula atoms[6];
  assert_int_equal(formulas_open(&f, &err), STATUS_OK);
  for (uint32_t i = 0; i < 6; i++) atoms[i] = formula_atom(&f, ATOM_CHILD, i, 0);
  const Formula parts[] = {FORMULA_TRUE, formula_and(&f, atoms[0], atoms[1]), atoms[2], atoms[3]};
  Formula one = formula_one(&f, parts, 4);
  formula_join(&f, FORMULA_OR, (const Formula[]){atoms[0], atoms[4], atoms[5]}, 3);
  assert_int_equal(formula_map(&f, one, ATOM_BIT(ATOM_CHILD), first_only, NULL), FORMULA_TRUE);
  formulas_close(&f);
}

/* Replaces one atom by a constant. */
typedef struct {
  uint32_t number;
  bool value;
} Known;

static Formula put_known(void *user, const FormulaNode *atom, Formula itself) {
  const Known *known = user;
  return atom->a == known->number ? (Formula)known->value : itself;
}

/* Joins of four parts, equal and opposite ones among them, are true where so many of the parts are, whichever
 * of the atoms is known first. */
TEST(formulas_are_true_where_their_parts_say_so) {
  enum { N = 8, KINDS = 3 };
  Formulas f;
  Error err;
  assert_int_equal(formulas_open(&f, &err), STATUS_OK);
  const Formula x = formula_atom(&f, ATOM_CHILD, 0, 0), y = formula_atom(&f, ATOM_CHILD, 1, 0);
  const Formula all[N] = {FORMULA_FALSE,
                          FORMULA_TRUE,
                          x,
                          y,
                          formula_not(&f, x),
                          formula_and(&f, x, y),
                          formula_or(&f, x, formula_not(&f, y)),
                          formula_one(&f, (const Formula[]){x, y}, 2)};
  for (unsigned tuple = 0; tuple < N * N * N * N; tuple++)
    for (int kind = 0; kind < KINDS; kind++) {
      const unsigned which[4] = {tuple % N, tuple / N % N, tuple / N / N % N, tuple / N / N / N};
      const Formula parts[4] = {all[which[0]], all[which[1]], all[which[2]], all[which[3]]};
      const Formula made = kind == 0   ? formula_join(&f, FORMULA_AND, parts, 4)
                           : kind == 1 ? formula_join(&f, FORMULA_OR, parts, 4)
                                       : formula_one(&f, parts, 4);
      for (unsigned values = 0; values < 8; values++) { /* of x, of y; the third bit: y is known first */
        const bool a = values & 1, b = values >> 1 & 1;
        const bool truths[N] = {false, true, a, b, !a, a && b, a || !b, a != b};
        int n = 0;
        for (int i = 0; i < 4; i++) n += truths[which[i]];
        Known known[2] = {{0, a}, {1, b}};
        Formula left = made;
        for (unsigned i = 0; i < 2; i++)
          left = formula_map(&f, left, ATOM_BIT(ATOM_CHILD), put_known, &known[values >> 2 ? 1 - i : i]);
        assert_int_equal(left, kind == 0 ? n == 4 : kind == 1 ? n > 0 : n == 1);
      }
    }
  assert_int_equal(formulas_check(&f, &err), STATUS_OK);
  formulas_close(&f);
}

/* --- masks */

/* Compares the mask after each byte of the text with what the machine makes of every token. */
static void check_masks(const char *schema, const char *text) {
  Constraint c;
  Error err;
  bool allowed;
  uint64_t *mask = calloc(vocabulary.n_words, sizeof *mask);
  assert_int_equal(constraint_open("schema", schema, strlen(schema), any_order, &vocabulary, &c, &err),
                   STATUS_OK);
  for (size_t at = 0; text[at]; at++) {
    assert_int_equal(constraint_mask(&c, mask, &err), STATUS_OK);
    for (int32_t id = 0; id < vocabulary.n_ids; id++) {
      const JsonState state = c.state;
      const ArenaMark mark = machine_mark(&c.machine);
      assert_int_equal(constraint_take(&c, id, &allowed, &err), STATUS_OK);
      if (allowed != mask_has(mask, id)) fail_msg("token %d after \"%.*s\" of %s", id, (int)at, text, schema);
      c.state = state;
      machine_release(&c.machine, mark);
    }
    assert_int_equal(constraint_take_bytes(&c, text + at, 1, &allowed, NULL, &err), STATUS_OK);
    assert_true(allowed);
  }
  assert_true(constraint_may_end(&c));
  constraint_close(&c);
  free(mask);
}

TEST_WITH(open_vocabulary, close_vocabulary, masks_allow_exactly_what_the_machine_takes) {
  check_masks("true", "{\"a\\\"\\u00e9\": [1.5e3, -2, true, null, \"x\u00e9\"], \"b\": {}}");
  check_masks(OBJECT, " { \"a\" : 12 , \"b\":\"yy\"}");
  check_masks("{\"items\": {\"maxLength\": 3, \"minLength\": 2}, \"maxItems\": 2}",
              "[\"ab\", \"\u00e9\\\\c\"]");
  check_masks("{\"items\": {\"pattern\": \"^[a-z ]+$\"}, \"uniqueItems\": true}", "[\"a b\", \"the\"]");
  check_masks("{\"items\": {\"enum\": [\"on\", \"one\", \"a\", 1, 12]}, \"uniqueItems\": true}",
              "[\"on\", 1, \"a\", 12]");
  check_masks("{\"items\": {\"maxLength\": 9}, \"uniqueItems\": true}", "[\"the\", \"the.\", \"the,\"]");
  check_masks("{\"uniqueItems\": true}", "[\"the\", \"the.\", \"the,\"]");
  check_masks("{\"type\": \"object\"}", "{\"the\": 1, \"a\": 2, \"was\": 3}");
  check_masks("{\"properties\": {\"the\": {\"type\": \"number\"}}, \"patternProperties\": {\"^x\": false}, "
              "\"propertyNames\": {\"maxLength\": 4}}",
              "{\"the\": 1, \"a\": \"on\"}");
  check_masks("{\"anyOf\": [{\"const\": \"one\"}, {\"type\": \"array\", \"contains\": {\"const\": \"a\"}}]}",
              "[1, \"a\"]");
  check_masks("{\"type\": \"string\", \"not\": {\"pattern\": \"e\"}}", "\"a was\"");
  check_masks("{\"items\": {\"pattern\": \"^(\\\\S+\\\\s+){0,2}\\\\S+$\", \"maxLength\": 9}}",
              "[\"it was\", \"\u3042\u00e9 \\u0041\\n to\", \"the\\\\ .\"]");
  check_masks("{\"items\": {\"pattern\": \"the|[a-z]{3}-\"}}", "[\"\\nthe\", \"was- .\"]");
  check_masks("{\"items\": {\"pattern\": \"^[A-Z][a-z ]{0,12}.$\"}}", "[\"On the boat\", \"T\u00c9\"]");
  check_masks("{\"items\": {\"anyOf\": [{\"format\": \"date\"}, {\"maxLength\": 4}, {\"pattern\": \"x$\"}]}}",
              "[\"2024-02-29\", \"the\", \"was x\"]");
  check_masks("{\"items\": {\"pattern\": \"[0-9]{4}\", \"maxLength\": 5}}", "[\"a2024\", \"20245\"]");
  check_masks("{\"items\": {\"pattern\": \"^(?!.*://)((.{1,3}\\\\.){1,80}[a-z0-9-]+)$\", \"maxLength\": 90}}",
              "[\"the.b:.was\"]");
  check_masks("{\"items\": {\"pattern\": \"^(\\\\S+\\\\s){0,70}\\\\S+$\"}}", "[\"it was\"]");
  check_masks("{\"items\": {\"multipleOf\": 0.01}}", "[99.900, -0.5]");
  check_masks(
      "{\"additionalProperties\": {\"enum\": [\"on\", \"one\"]}, \"patternProperties\": {\"^[a-c]+$\": "
      "{\"type\": \"null\"}, \"d\": true}, \"maxProperties\": 3}",
      "{\"ab\": null, \"the\": \"one\", \"d\\\\\": [{\"on\": \"on\"}]}");
}

/* Where a token's end needs more or fewer characters than the string has left. */
TEST_WITH(open_vocabulary, close_vocabulary, masks_know_how_much_is_left) {
  static const char *const cases[][2] = {
      {"^[a-z ]*$", "the end"},           {"^t.*e$", "to be e"},       {"^[a-z]+( [a-z]+)*$", "a b c d"},
      {"^([a-c]{2}|the )*x$", "the abx"}, {"^(a|[^a]{3})*$", "aonea"}, {"e$|^on", "one te"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (size_t more = 0; more < 5; more++) {
      char schema[100], text[40];
      snprintf(schema, sizeof schema, "{\"pattern\": \"%s\", \"maxLength\": %zu, \"type\": \"string\"}",
               cases[i][0], strlen(cases[i][1]) + more);
      snprintf(text, sizeof text, "\"%s\"", cases[i][1]);
      check_masks(schema, text);
    }
}

/* --- writing plainly */

/* Tokens that begin a string and an escape at once, among others. */
static const char escaping[] = "\"\\\"\": 0, \"\\\\\": 1, \"\\\"\\\\\": 2, \"\\\\u\": 3, \"\\\"\\\\u\": 4, "
                               "\"k\": 5, \"k\\\\\": 6, \"u\": 7, "
                               "\"0\": 8, \"1\": 9, \"/\": 10, \"\\\\/\": 11, \"n\": 12, \"\\u010a\": 13, "
                               "\"\\u0120\": 14, \"\\u0120\\u010a\": "
                               "15, \"{\": 16, \"\\u0120{\": 17";

/* The ids that may come after the text, whose bytes are taken one by one, as a set of bits. */
static uint64_t plain_ids(const char *schema, const char *text) {
  Own own;
  Constraint c;
  Error err;
  bool allowed;
  uint64_t mask[2] = {0, 0};
  open_own(escaping, &own);
  assert_int_equal(constraint_open("schema", schema, strlen(schema), any_order, &own.vocabulary, &c, &err),
                   STATUS_OK);
  assert_int_equal(constraint_write_plainly(&c, &err), STATUS_OK);
  for (; *text; text++) {
    assert_int_equal(constraint_take_bytes(&c, text, 1, &allowed, NULL, &err), STATUS_OK);
    assert_true(allowed);
  }
  assert_int_equal(constraint_mask(&c, mask, &err), STATUS_OK);
  constraint_close(&c);
  close_own(&own);
  return mask[0];
}

#define ID(id) (UINT64_C(1) << (id))

/* \u and \/ stand only where nothing else can: neither at once with the quote, nor in two steps. */
TEST(escapes_are_written_only_where_they_must_be) {
  assert_int_equal(plain_ids("{\"const\": \"k\"}", ""), ID(0));
  assert_int_equal(plain_ids("{\"const\": \"k\"}", "\""), ID(5));
  assert_int_equal(plain_ids("{\"const\": \"\\n\"}", ""), ID(0) | ID(2));
  assert_int_equal(plain_ids("{\"const\": \"\\n\"}", "\""), ID(1));
  assert_int_equal(plain_ids("{\"const\": \"\\n\"}", "\"\\"), ID(12));
  assert_int_equal(plain_ids("{\"const\": \"k\\n\"}", "\""), ID(5) | ID(6));
  assert_int_equal(plain_ids("{\"const\": \"/\"}", "\""), ID(10));
  assert_int_equal(plain_ids("{\"enum\": [\"/\", \"\\n\"]}", "\"\\"), ID(12));
  assert_int_equal(plain_ids("{\"enum\": [\"/\", \"\\n\"]}", "\""), ID(1) | ID(10));
  /* U+0001 has no other way. */
  assert_int_equal(plain_ids("{\"const\": \"k\\u0001\"}", "\"k"), ID(1) | ID(3));
  assert_int_equal(plain_ids("{\"const\": \"k\\u0001\"}", "\"k\\"), ID(7));
  assert_int_equal(plain_ids("{\"const\": \"k\\u0001\"}", "\"k\\u00"), ID(8));
}

/* Between two values there is one end of a line and 40 blanks; before the first, none. */
TEST(white_space_is_written_within_limits) {
  static const char schema[] = "{\"type\": \"object\", \"required\": [\"k\"], \"additionalProperties\": "
                               "false, \"properties\": {\"k\": true}}";
  const uint64_t any = ID(0) | ID(13) | ID(14) | ID(15), no_line = ID(0) | ID(14);
  char text[80] = "{";
  assert_int_equal(plain_ids(schema, ""), ID(16) | ID(17));
  assert_int_equal(plain_ids(schema, "{"), any);
  assert_int_equal(plain_ids(schema, "{ "), any);
  assert_int_equal(plain_ids(schema, "{\n"), no_line);
  assert_int_equal(plain_ids(schema, "{\n "), no_line);
  assert_int_equal(plain_ids(schema, "{ \n  "), no_line);
  for (int n = 1; n <= 41; n++) {
    strcat(text, " ");
    assert_int_equal(plain_ids(schema, text), n < 40 ? any : ID(0));
  }
  /* Lines before a value count nothing after it. */
  assert_true(plain_ids(schema, "{\n\"k\": [1") & ID(13));
  assert_int_equal(plain_ids(schema, "{\n\"k\": [\n") & (ID(13) | ID(14)), ID(14));
}

/* The token of each byte that has one. */
static void single_bytes(int32_t ids[256]) {
  for (int32_t id = 0; id < vocabulary.n_ids; id++) {
    size_t size;
    const char *bytes = vocabulary_bytes(&vocabulary, id, &size);
    if (size == 1) ids[(unsigned char)*bytes] = id;
  }
}

/* Memory does not grow with the text: neither of frames nor of states of strings. */
TEST_WITH(open_vocabulary, close_vocabulary, long_texts_need_no_more_memory) {
  const char *schema = "{\"items\": {\"pattern\": \"^(ab?)*$\", \"maxLength\": 60000}}";
  Constraint c;
  Error err;
  bool allowed = true;
  assert_int_equal(constraint_open("schema", schema, strlen(schema), any_order, &vocabulary, &c, &err),
                   STATUS_OK);
  int32_t ids[256];
  single_bytes(ids);
  uint64_t *mask = malloc((vocabulary.n_words + 1) * sizeof *mask);
  assert_non_null(mask);
  assert_int_equal(constraint_take(&c, ids['['], &allowed, &err), STATUS_OK);
  for (int i = 0; i < SAMPLE(150000) && allowed; i++)
    assert_int_equal(constraint_take(&c, ids[i % 2 ? ',' : '1'], &allowed, &err), STATUS_OK);
  assert_true(allowed && c.machine.n_chunks < 160);
  assert_int_equal(constraint_take(&c, ids['"'], &allowed, &err), STATUS_OK);
  for (int i = 0; i < 60001; i++) {
    if (i % 1000 == 0 || i > 59990) {
      assert_int_equal(constraint_mask(&c, mask, &err), STATUS_OK);
      assert_int_equal(mask_has(mask, ids['a']), i < 60000);
    }
    assert_int_equal(constraint_take(&c, ids['a'], &allowed, &err), STATUS_OK);
    assert_int_equal(allowed, i < 60000);
    assert_true(c.machine.n_lexes < 40000);
  }
  free(mask);
  constraint_close(&c);
}

/* The states of strings are forgotten where they have become many: also between two values, where a mask has
 * just found those of the next one. */
TEST_WITH(open_vocabulary, close_vocabulary, strings_begin_right_after_states_were_forgotten) {
  enum { MANY = 1 << 15 };
  const char *schema = "{\"prefixItems\": [{\"pattern\": \"^(ab?)*$\", \"maxLength\": 60000}, {\"pattern\": "
                       "\"^[bc]d\"}]}";
  static const char second[] = "\", \"cd\"]", others[] = "abe";
  int32_t ids[256];
  int n_forgotten = 0;
  single_bytes(ids);
  uint64_t *mask = malloc((vocabulary.n_words + 1) * sizeof *mask);
  assert_non_null(mask);
  for (size_t before = SANITIZED; before < 6; before += SANITIZED ? 3 : 1) {
    Constraint c;
    Error err;
    bool allowed = true;
    assert_int_equal(constraint_open("schema", schema, strlen(schema), any_order, &vocabulary, &c, &err),
                     STATUS_OK);
    assert_int_equal(constraint_take_bytes(&c, "[\"", 2, &allowed, NULL, &err), STATUS_OK);
    while (allowed && c.machine.n_lexes < MANY - before)
      assert_int_equal(constraint_take_bytes(&c, "a", 1, &allowed, NULL, &err), STATUS_OK);
    for (size_t at = 0; at < sizeof second - 1; at++) {
      const size_t n_lexes = c.machine.n_lexes;
      assert_int_equal(constraint_mask(&c, mask, &err), STATUS_OK);
      assert_true(mask_has(mask, ids[(unsigned char)second[at]]));
      for (int i = 0; others[i]; i++) /* in the first string; as the beginning of the second, and after it */
        assert_int_equal(mask_has(mask, ids[(unsigned char)others[i]]),
                         (at == 0 && i < 2) || (at == 4 && i == 1) || at == 6);
      assert_int_equal(constraint_take(&c, ids[(unsigned char)second[at]], &allowed, &err), STATUS_OK);
      assert_true(allowed);
      n_forgotten += at > 0 && c.machine.n_lexes < n_lexes;
    }
    assert_true(constraint_may_end(&c));
    constraint_close(&c);
  }
  assert_true(n_forgotten > 0);
  free(mask);
}

/* Text in one piece needs no more memory than token by token, and what follows a refusal is as before it. */
TEST(long_pieces_need_no_more_memory) {
  const char *schema = "{\"items\": {\"properties\": {\"a\": {\"type\": \"integer\"}}}}";
  const size_t n = 100000;
  char *text = malloc(8 * n + 2);
  Constraint c;
  Error err;
  bool allowed;
  size_t taken;
  assert_non_null(text);
  *text = '[';
  for (size_t i = 0; i < n; i++) memcpy(text + 1 + 8 * i, "{\"a\":1},", 9);
  assert_int_equal(constraint_open("schema", schema, strlen(schema), any_order, NULL, &c, &err), STATUS_OK);
  assert_int_equal(constraint_take_bytes(&c, "[{\"a\":", 6, &allowed, NULL, &err), STATUS_OK);
  assert_true(allowed);
  for (int turn = 0; turn < 2; turn++) {
    text[8 * n - 1] = ']';
    memcpy(text, "2},", 3);
    memset(text + 3, ' ', 6);
    assert_int_equal(constraint_take_bytes(&c, text, 8 * n, &allowed, &taken, &err), STATUS_OK);
    assert_true(!allowed && taken == 8 * n - 1 && c.machine.n_chunks < 300);
  }
  assert_int_equal(constraint_take_bytes(&c, "\"", 1, &allowed, NULL, &err), STATUS_OK);
  assert_false(allowed);
  assert_int_equal(constraint_take_bytes(&c, "3}]", 3, &allowed, NULL, &err), STATUS_OK);
  assert_true(allowed && constraint_may_end(&c));
  constraint_close(&c);
  free(text);
}

/* Items and keys that the text had are known after memory was tidied. Nested values fill it sooner. */
TEST(what_was_is_known_in_long_texts) {
  enum { N = 6000 };
  static const struct {
    const char *schema, *first, *more, *again, *other; /* all of `again` but its last byte is allowed */
  } cases[] = {
      {"{\"uniqueItems\": true}", "[[[[[%d]]]]", ",[[[[%d]]]]", ",[[[[7]]]]", ",[[[[-7]]]]]"},
      {"{\"minProperties\": 1}", "{\"%d\":[[[[1]]]]", ",\"%d\":[[[[1]]]]", ",\"7\"", ",\"x\":1}"},
  };
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    Constraint c;
    Error err;
    Buffer text = {0};
    bool allowed;
    size_t taken;
    for (int i = 0; i < N; i++) {
      char item[40];
      const int size = snprintf(item, sizeof item, i ? cases[k].more : cases[k].first, i);
      assert_int_equal(buffer_append(&text, item, (size_t)size, &err), STATUS_OK);
    }
    const char *schema = cases[k].schema, *again = cases[k].again, *other = cases[k].other;
    assert_int_equal(constraint_open("schema", schema, strlen(schema), any_order, NULL, &c, &err), STATUS_OK);
    assert_int_equal(constraint_take_bytes(&c, text.data, text.size, &allowed, NULL, &err), STATUS_OK);
    assert_true(allowed && c.machine.tidy_at > 0);
    assert_int_equal(constraint_take_bytes(&c, again, strlen(again), &allowed, &taken, &err), STATUS_OK);
    assert_true(!allowed && taken == strlen(again) - 1);
    assert_int_equal(constraint_take_bytes(&c, other, strlen(other), &allowed, NULL, &err), STATUS_OK);
    assert_true(allowed && constraint_may_end(&c));
    constraint_close(&c);
    buffer_release(&text);
  }
}
