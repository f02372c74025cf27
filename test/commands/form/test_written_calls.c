/* test_written_calls.c - calls that are written in parts: the values of their arguments as JSON. */
#include "commands/form/written_calls.h"
#include "test/constrain/small_vocabulary.h"
#include "test/unit.h"

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

static void values_are_those_of_their_schemas(void **state) {
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

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(values_are_those_of_their_schemas)};
  return cmocka_run_group_tests(tests, open_vocabulary, close_vocabulary);
}
