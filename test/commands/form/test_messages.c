/* test_messages.c - messages as clients write them, and what templates get of them. The reference for
 * thoughts and nulls is transformers 5.24 (_alias_reasoning_fields(), _normalize_chat_messages()), for
 * arguments vLLM (chat_utils.py). */
#include "commands/form/messages.h"
#include "test/tests.h"

static JsonSpan span(const char *text) {
  assert_int_equal(json_parse("text", STATUS_USAGE, text, strlen(text), NULL, 0, NULL, NULL), STATUS_OK);
  return (JsonSpan){text, strlen(text)};
}

static void assert_text(Buffer *out, const char *want) {
  assert_int_equal(buffer_append(out, "", 1, NULL), STATUS_OK);
  assert_string_equal(out->data, want);
  span(out->data);
  buffer_release(out);
}

TEST(arguments_become_an_object) {
  static const char *const cases[][2] = {
      {"\"{\\\"a\\\": [1.0, \\\"\\\\u00e9\\\"]}\"", "{\"a\": [1.0, \"\\u00e9\"]}"},
      {"\" \\n{} \"", " \n{} "},
      {"\"\"", "{}"},
      {"\" \\t\"", "{}"},
      {"null", "{}"},
      {"{\"a\": \"{}\"}", "{\"a\": \"{}\"}"},
      {"[1]", "[1]"}, /* left to the template */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char calls[200], want[200];
    for (int flat = 0; flat < 2; flat++) {
      const char *open = flat ? "" : "{\"type\": \"function\", \"function\": ", *close = flat ? "" : "}";
      Buffer out = {0};
      snprintf(calls, sizeof calls, "[%s{\"arguments\": %s, \"name\": \"f\"}%s]", open, cases[i][0], close);
      snprintf(want, sizeof want, "[%s{\"arguments\": %s, \"name\": \"f\"}%s]", open, cases[i][1], close);
      assert_int_equal(message_append_calls(span(calls), 3, &out, NULL), STATUS_OK);
      assert_text(&out, want);
    }
  }
}

TEST(missing_arguments_are_none) {
  static const char *const cases[][2] = {
      {"[{\"function\": {\"name\": \"f\"}, \"id\": \"x\"}, {\"name\": \"g\"}]",
       "[{\"function\": {\"name\": \"f\", \"arguments\": {}}, \"id\": \"x\"}, {\"name\": \"g\", "
       "\"arguments\": {}}]"},
      {"[]", "[]"},
      {"[1, {}, {\"function\": \"f\", \"arguments\": \"{}\"}]",
       "[1, {}, {\"function\": \"f\", \"arguments\": {}}]"},
      /* Only a call's own arguments, not those of the same name beside a function. */
      {"[{\"function\": {\"name\": \"f\", \"arguments\": {\"arguments\": \"{}\"}}, \"arguments\": \"{}\"}]",
       "[{\"function\": {\"name\": \"f\", \"arguments\": {\"arguments\": \"{}\"}}, \"arguments\": \"{}\"}]"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Buffer out = {0};
    assert_int_equal(message_append_calls(span(cases[i][0]), 0, &out, NULL), STATUS_OK);
    assert_text(&out, cases[i][1]);
  }
}

TEST(other_strings_are_refused) {
  static const char *const strings[] = {
      "x", "1", "[1]", "{", "{} {}", "{'a': 1}", "{\\\"a\\\": 1, \\\"a\\\": 2}"};
  for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
    char calls[200];
    Buffer out = {0};
    Error err = {{0}};
    snprintf(calls, sizeof calls,
             "[{\"name\": \"f\"}, {\"function\": {\"name\": \"g\", \"arguments\": \"%s\"}}]", strings[i]);
    assert_int_equal(message_append_calls(span(calls), 4, &out, &err), STATUS_USAGE);
    assert_string_equal(err.text, "message 4 has a call 1, of \"g\", whose arguments are a string without a "
                                  "JSON object");
    buffer_release(&out);
  }
  Buffer out = {0};
  Error err = {{0}};
  assert_int_equal(message_append_calls(span("[{\"arguments\": \"x\"}]"), 0, &out, &err), STATUS_USAGE);
  assert_non_null(strstr(err.text, "call 0, of no name,"));
  buffer_release(&out);
}

TEST(thoughts_have_every_name) {
  static const char *const cases[][2] = {
      {"{\"reasoning\": \"a\"}", "{\"reasoning\": \"a\", \"reasoning_content\": \"a\", \"thinking\": \"a\"}"},
      {"{\"thinking\": \"a\"}", "{\"thinking\": \"a\", \"reasoning_content\": \"a\", \"reasoning\": \"a\"}"},
      {"{\"reasoning_content\": \"a\", \"x\": 1}",
       "{\"reasoning_content\": \"a\", \"x\": 1, \"thinking\": \"a\", \"reasoning\": \"a\"}"},
      {"{\"reasoning_content\": null, \"thinking\": \"a\", \"reasoning\": \"b\"}",
       "{\"thinking\": \"a\", \"reasoning\": \"b\", \"reasoning_content\": \"a\"}"},
      {"{\"reasoning\": \"c\", \"thinking\": \"b\", \"reasoning_content\": \"a\"}",
       "{\"reasoning\": \"c\", \"thinking\": \"b\", \"reasoning_content\": \"a\"}"},
      {"{\"reasoning\": \"\"}", "{\"reasoning\": \"\", \"reasoning_content\": \"\", \"thinking\": \"\"}"},
      {"{\"role\": \"user\", \"content\": null, \"thinking\": null}", "{\"role\": \"user\"}"},
      {"{\"content\": \"a\", \"tool_calls\": [ ], \"annotations\": []}",
       "{\"content\": \"a\", \"annotations\": []}"},
      {"{}", "{}"},
      {"{\"tool_calls\": [{\"name\": \"f\", \"arguments\": \"{}\"}]}",
       "{\"tool_calls\": [{\"name\": \"f\", \"arguments\": {}}]}"},
      {"{\"tool_calls\": \"x\", \"arguments\": \"{}\"}", "{\"tool_calls\": \"x\", \"arguments\": \"{}\"}"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char given[300], want[300];
    Buffer out = {0};
    snprintf(given, sizeof given, "{\"x\": null, \"messages\": [1, %s], \"tool_calls\": \"{}\"}",
             cases[i][0]);
    snprintf(want, sizeof want, "{\"x\": null, \"messages\": [1, %s], \"tool_calls\": \"{}\"}", cases[i][1]);
    assert_int_equal(messages_append(span(given), &out, NULL), STATUS_OK);
    assert_text(&out, want);
  }
  static const char *const others[] = {"[1]", "{\"messages\": 1}", "{\"messages\": []}", "{}", "\"x\""};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    Buffer out = {0};
    assert_int_equal(messages_append(span(others[i]), &out, NULL), STATUS_OK);
    assert_text(&out, others[i]);
  }
}

TEST(an_error_names_the_message) {
  Buffer out = {0};
  Error err = {{0}};
  const JsonSpan line =
      span("{\"messages\": [{}, {\"tool_calls\": [{\"name\": \"f\", \"arguments\": \"x\"}]}]}");
  assert_int_equal(messages_append(line, &out, &err), STATUS_USAGE);
  assert_non_null(strstr(err.text, "message 1 has a call 0, of \"f\","));
  buffer_release(&out);
}
