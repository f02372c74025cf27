/* test_written_calls.c - calls that are written in parts: the values of their arguments as JSON, which words
 * may follow, and functions that cannot be written so. */
#include "commands/form/written_calls.h"
#include "test/constrain/small_vocabulary.h"
#include "test/tests.h"

static const CallMarks marks = {.before_name = "",
                                .after_name = ">",
                                .before_key = "<",
                                .after_key = "=",
                                .after_value = ";",
                                .end = "</>"};

typedef struct {
  const char *schema; /* of the argument "a" */
  const char *text;   /* as the model writes it */
  const char *value;  /* as JSON */
} Case;

/* Strings stand as they are, also where they look like JSON; a text is another JSON value only where the
 * schema has it and no white space is around it. */
static const Case cases[] = {
    {"{\"type\": \"string\"}", "Paris", "\"Paris\""},
    {"{\"type\": \"string\"}", "", "\"\""},
    {"{\"type\": \"string\"}", "null", "\"null\""},
    {"{\"type\": \"string\"}", "7", "\"7\""},
    {"{\"type\": \"string\"}", "\"Paris\"", "\"\\\"Paris\\\"\""},
    {"{\"type\": [\"string\", \"null\"]}", "null", "null"},
    {"{\"type\": [\"string\", \"null\"]}", "nul", "\"nul\""},
    {"{\"type\": [\"string\", \"null\"]}", "null ", "\"null \""},
    {"{\"type\": [\"string\", \"null\"]}", "\"null\"", "\"\\\"null\\\"\""},
    {"{\"type\": \"integer\"}", "12", "12"},
    {"{\"type\": \"array\"}", "[ 1, \"a b\" ]", "[1,\"a b\"]"},
};

/* Takes a part, which is not the last. */
static void take(WrittenCall *call, AnswerForm *form, const char *text, Buffer *lines, bool ends) {
  Error err = {{0}};
  bool done;
  if (written_call_take(call, form, text, strlen(text), &done, lines, &err))
    fail_msg("%s: %s", text, err.text);
  assert_int_equal(done, ends);
}

/* The schema of an argument is found whatever its key. */
static const char *const keys[] = {"a", "a b", "a/b~0c", "50%25", "\303\244#", "{A}9_", "~1"};

TEST(values_are_those_of_their_schemas) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases * (sizeof keys / sizeof *keys); i++) {
    const Case *it = &cases[i % (sizeof cases / sizeof *cases)];
    const char *key = keys[i / (sizeof cases / sizeof *cases)];
    WrittenFunctions functions = {.marks = &marks};
    WrittenCall call = {.functions = NULL};
    AnswerForm form = {.given = false};
    Buffer schema = {0}, lines = {0}, text = {0}, want = {0};
    Error err = {{0}};
    assert_int_equal(buffer_printf(&schema, &err, "{\"properties\": {\"%s\": %s}, \"required\": [\"%s\"]}",
                                   key, it->schema, key),
                     STATUS_OK);
    assert_int_equal(
        buffer_printf(&want, &err, "{\"name\": \"f\", \"arguments\": {\"%s\":%s}}\n", key, it->value),
        STATUS_OK);
    assert_int_equal(form_open_calls(&(FormFlags){.key_order = 0}, NULL, tokenizer, 512, &form, &err),
                     STATUS_OK);
    if (written_functions_add(&functions, "f.json", (JsonSpan){"\"f\"", 3},
                              (JsonSpan){schema.data, schema.size}, &schema, form_schema_options(&form),
                              &err) ||
        written_call_begin(&call, &functions, &form, &err))
      fail_msg("%s: %s", it->schema, err.text);
    char begin[40];
    snprintf(begin, sizeof begin, "f><%s=", key);
    take(&call, &form, begin, &lines, false);
    /* JSON ends by itself, a string where the mark comes, which is in its form. */
    const bool is_text = call.part == WRITTEN_TEXT;
    assert_int_equal(buffer_printf(&text, &err, "%s%s%c", it->text, is_text ? marks.after_value : "", 0),
                     STATUS_OK);
    take(&call, &form, text.data, &lines, false);
    take(&call, &form, "</>", &lines, true);
    if (lines.size != want.size || memcmp(lines.data, want.data, want.size) != 0)
      fail_msg("%s is %.*s", it->text, (int)lines.size, lines.data);
    written_call_release(&call);
    written_functions_release(&functions);
    form_release(&form);
    buffer_release(&schema);
    buffer_release(&lines);
    buffer_release(&text);
    buffer_release(&want);
  }
}

/* --- which words may follow */

enum { MOST_KEYS = 4 };

/* A function with the arguments a, b, ...; bits of `required` say which are required. */
static void add_function(WrittenFunctions *functions, const char *name, int n_keys, unsigned required) {
  Buffer schema = {0};
  Error err = {{0}};
  assert_int_equal(buffer_append_string(&schema, "{\"properties\": {", &err), STATUS_OK);
  for (int k = 0; k < n_keys; k++)
    buffer_printf(&schema, &err, "%s\"%c\": {\"type\": \"string\"}", k ? ", " : "", 'a' + k);
  buffer_append_string(&schema, "}, \"required\": [", &err);
  for (int k = 0, n = 0; k < n_keys; k++)
    if (required >> k & 1) buffer_printf(&schema, &err, "%s\"%c\"", n++ ? ", " : "", 'a' + k);
  assert_int_equal(buffer_append_string(&schema, "]}", &err), STATUS_OK);
  const SchemaOptions options = {.plain_integers = true};
  if (written_functions_add(functions, "f.json", (JsonSpan){name, strlen(name)},
                            (JsonSpan){schema.data, schema.size}, &schema, options, &err))
    fail_msg("%s", err.text);
  buffer_release(&schema);
}

/* The keys that may follow those of `used`, as bits; bit MOST_KEYS: the end. In order, no key comes after a
 * later one, and none while a required one before it is missing. */
static unsigned may_follow(int n_keys, unsigned required, unsigned used, bool any_order) {
  unsigned may = 0;
  for (int k = 0; k < n_keys; k++) {
    const unsigned before = (1u << k) - 1;
    const bool follows = any_order || (!(used >> k) && !(required & before & ~used));
    if (follows && !(used >> k & 1)) may |= 1u << k;
  }
  return (required & ~used) == 0 ? may | 1u << MOST_KEYS : may;
}

static unsigned words_of(const WrittenCall *call, size_t function) {
  unsigned found = 0;
  for (size_t i = 0; i < call->n_words; i++) {
    const WrittenWord *word = &call->word_list[i];
    if (word->function != function) continue;
    const unsigned bit = 1u << (word->key == WRITTEN_NO_KEY ? MOST_KEYS : word->key);
    assert_false(found & bit);
    found |= bit;
  }
  return found;
}

/* Writes keys `path[0 .. n)` of a function, and checks the words before each and at the end. */
static void follow(const WrittenFunctions *functions, AnswerForm *form, size_t function, int n_keys,
                   unsigned required, const int *path, int n) {
  WrittenCall call = {.functions = NULL};
  Buffer lines = {0}, want = {0};
  Error err = {{0}};
  unsigned used = 0;
  char word[40];
  if (written_call_begin(&call, functions, form, &err)) fail_msg("%s", err.text);
  buffer_printf(&want, NULL, "{\"name\": \"%c\", \"arguments\": {", function ? 'g' : 'f');
  for (int i = 0; i <= n; i++) {
    const unsigned may = may_follow(n_keys, required, used, form->any_order);
    if (words_of(&call, function) != may)
      fail_msg("%d keys, required %x: after %x come %x, expected %x", n_keys, required, used,
               words_of(&call, function), may);
    const bool ends = i == n;
    if (ends && !(may >> MOST_KEYS)) break;
    snprintf(word, sizeof word, "%c>", function ? 'g' : 'f');
    if (i > 0) *word = 0;
    if (ends)
      strcat(word, "</>");
    else
      sprintf(word + strlen(word), "<%c=", 'a' + path[i]);
    take(&call, form, word, &lines, ends);
    if (ends) break;
    take(&call, form, "v;", &lines, false);
    buffer_printf(&want, NULL, "%s\"%c\":\"v\"", i ? "," : "", 'a' + path[i]);
    used |= 1u << path[i];
  }
  buffer_append_string(&want, "}}\n", NULL);
  if (lines.size) {
    assert_int_equal(lines.size, want.size);
    assert_memory_equal(lines.data, want.data, want.size);
  }
  written_call_release(&call);
  buffer_release(&lines);
  buffer_release(&want);
}

/* Follows all sequences of keys that are allowed. */
static int follow_all(const WrittenFunctions *functions, AnswerForm *form, size_t function, int n_keys,
                      unsigned required, int *path, int n) {
  unsigned used = 0;
  int n_ways = 1;
  for (int i = 0; i < n; i++) used |= 1u << path[i];
  follow(functions, form, function, n_keys, required, path, n);
  for (int k = 0; k < n_keys; k++) {
    if (!(may_follow(n_keys, required, used, form->any_order) >> k & 1)) continue;
    path[n] = k;
    n_ways += follow_all(functions, form, function, n_keys, required, path, n + 1);
  }
  return n_ways;
}

TEST(keys_come_as_their_order_and_their_need_allow) {
  for (int any_order = 0; any_order < 2; any_order++) {
    AnswerForm form = {.given = false};
    Error err = {{0}};
    assert_int_equal(form_open_calls(&(FormFlags){.key_order = any_order}, NULL, tokenizer, 512, &form, &err),
                     STATUS_OK);
    assert_int_equal(form.any_order, any_order);
    for (int n_keys = 0; n_keys <= 3; n_keys++)
      for (unsigned required = 0; required < 1u << n_keys; required++) {
        WrittenFunctions functions = {.marks = &marks};
        int path[MOST_KEYS];
        add_function(&functions, "\"f\"", n_keys, required);
        add_function(&functions, "\"g\"", 2, 2);
        const int n = follow_all(&functions, &form, 0, n_keys, required, path, 0);
        if (n_keys == 3 && required == 0) assert_int_equal(n, any_order ? 16 : 8);
        follow_all(&functions, &form, 1, 2, 2, path, 0);
        written_functions_release(&functions);
      }
    form_release(&form);
  }
}

/* --- all arguments as one object */

/* The name, an id if the format has one, and an object, which is written without the white space between its
 * values. */
TEST(an_object_has_all_arguments) {
  for (int has_id = 0; has_id < 2; has_id++) {
    const CallMarks object_marks = {
        .before_name = "", .after_name = "", .before_id = has_id ? "[ID]" : NULL, .before_object = "[ARGS]"};
    WrittenFunctions functions = {.marks = &object_marks};
    WrittenCall call = {.functions = NULL};
    AnswerForm form = {.given = false};
    Buffer lines = {0};
    Error err = {{0}};
    assert_int_equal(form_open_calls(&(FormFlags){.key_order = 0}, NULL, tokenizer, 512, &form, &err),
                     STATUS_OK);
    add_function(&functions, "\"f\"", 2, 1);
    add_function(&functions, "\"ff\"", 1, 1);
    for (int turn = 0; turn < 2; turn++) { /* nothing of the first call is in the second */
      if (written_call_begin(&call, &functions, &form, &err)) fail_msg("%s", err.text);
      assert_int_equal(call.part, WRITTEN_NAME);
      assert_int_equal(call.n_words, 2);
      assert_string_equal(written_call_after(&call), has_id ? "[ID]" : "[ARGS]");
      take(&call, &form, turn ? "f" : "ff", &lines, false);
      if (has_id) {
        assert_int_equal(call.part, WRITTEN_ID);
        assert_string_equal(written_call_after(&call), "[ARGS]");
        take(&call, &form, "abcdef123", &lines, false);
      }
      assert_int_equal(call.part, WRITTEN_OBJECT);
      assert_null(written_call_after(&call));
      take(&call, &form, turn ? "{ \"a\": \"x y\" }" : "{\"a\" : \"1\"}", &lines, true);
    }
    assert_int_equal(buffer_append(&lines, "", 1, &err), STATUS_OK);
    assert_string_equal(lines.data, "{\"name\": \"ff\", \"arguments\": {\"a\":\"1\"}}\n"
                                    "{\"name\": \"f\", \"arguments\": {\"a\":\"x y\"}}\n");
    assert_int_equal(written_call_begin(&call, &functions, &form, &err), STATUS_OK);
    bool done;
    assert_int_equal(written_call_take(&call, &form, "fff", 3, &done, &lines, &err), STATUS_FAILED);
    written_call_release(&call);
    written_functions_release(&functions);
    form_release(&form);
    buffer_release(&lines);
  }
}

/* --- functions that cannot be written so */

TEST(what_cannot_be_written_in_parts_is_refused) {
  static const CallMarks of_object = {.before_name = "", .after_name = "", .before_object = "[ARGS]"};
  static const struct {
    const char *name, *schema, *why; /* why NULL: it is taken */
    int n_arguments;
    bool of_object; /* it is taken where all arguments are one object */
  } functions_of[] = {
      {"\"f\"", "{\"properties\": {\"a\": {}, \"b\": {}}, \"required\": [\"b\"]}", NULL, 2, true},
      {"\"f\"", "{\"properties\": {\"a\": false, \"b\": true}}", NULL, 1, true},
      {"\"f\"", "{}", NULL, 0, true},
      {"\"f\"", "{\"properties\": {\"a\": {\"enum\": []}, \"b\": {}}}", NULL, 1, true},
      {"\"f\"", "{\"properties\": {\"a\": {\"enum\": []}}, \"required\": [\"a\"]}", "no text satisfies", 0,
       true},
      {"\"f\"", "{\"properties\": {\"a\": {}}, \"required\": [\"a\", \"c\"]}",
       "#/required has an argument that `properties` has not", 0, true},
      {"\"f\"", "{\"properties\": {\"a\": false}, \"required\": [\"a\"]}",
       "#/required has an argument that `properties` has not", 0, true},
      {"\"f\"", "{\"properties\": {\"\": {}}}", "the name of an argument is empty", 0, true},
      {"\"f\"", "{\"properties\": {\"a<\": {}}}", "the name of an argument is empty", 0, true},
      {"\"f\"", "{\"properties\": {\"a>b\": {}}}", "the name of an argument is empty", 0, true},
      {"\"f\"", "{\"properties\": {\"a\\n\": {}}}", "the name of an argument is empty", 0, true},
      {"\"f\"", "{\"properties\": {\"\\r\": {}}}", "the name of an argument is empty", 0, true},
      {"\"f>\"", "{}", "the name of tool 1 has <, > or a line end", 0, false},
      {"\"f\\n\"", "{}", "the name of tool 1 has <, > or a line end", 0, false},
      {"\"<\"", "{}", "the name of tool 1 has <, > or a line end", 0, false},
  };
  static const char *const joint[] = {"$ref",
                                      "$dynamicRef",
                                      "$recursiveRef",
                                      "allOf",
                                      "anyOf",
                                      "oneOf",
                                      "not",
                                      "if",
                                      "enum",
                                      "const",
                                      "dependencies",
                                      "minProperties",
                                      "dependentRequired",
                                      "dependentSchemas",
                                      "maxProperties",
                                      "patternProperties",
                                      "propertyNames"};
  enum { N = sizeof functions_of / sizeof *functions_of, N_JOINT = sizeof joint / sizeof *joint };
  const SchemaOptions options = {.plain_integers = true};
  for (size_t i = 0; i < 2 * (N + N_JOINT); i++) {
    const bool as_object = i % 2;
    const size_t k = i / 2;
    WrittenFunctions functions = {.marks = as_object ? &of_object : &marks};
    Buffer schema = {0};
    Error err = {{0}};
    char why[100];
    snprintf(why, sizeof why, "%s", k < N && functions_of[k].why ? functions_of[k].why : "");
    if (k >= N) snprintf(why, sizeof why, "#/%s: this model writes arguments one by one", joint[k - N]);
    if (k < N)
      assert_int_equal(buffer_append_string(&schema, functions_of[k].schema, &err), STATUS_OK);
    else
      assert_int_equal(buffer_printf(&schema, &err, "{\"properties\": {\"a\": {}}, \"%s\": 1}", joint[k - N]),
                       STATUS_OK);
    const char *name = k < N ? functions_of[k].name : "\"f\"";
    const bool taken = as_object ? k >= N || functions_of[k].of_object : k < N && !functions_of[k].why;
    const Status status = written_functions_add(&functions, "f.json", (JsonSpan){name, strlen(name)},
                                                (JsonSpan){schema.data, schema.size}, &schema, options, &err);
    if (taken ? status != STATUS_OK : status != STATUS_USAGE || !strstr(err.text, why))
      fail_msg("%s: \"%s\"", schema.data, err.text);
    if (taken)
      assert_int_equal(functions.items[0].n_arguments, as_object || k >= N ? 0 : functions_of[k].n_arguments);
    written_functions_release(&functions);
    buffer_release(&schema);
  }
}

static CMFixtureFunction before_all = open_vocabulary, after_all = close_vocabulary;
