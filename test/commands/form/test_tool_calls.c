/* test_tool_calls.c - the calls of an answer on their way to a conversation: read from the text of their
 * format, with ids, and as members of messages. */
#include "commands/form/tools.h"
#include "test/tests.h"

static JsonSpan span(const char *text) {
  assert_int_equal(json_parse("text", STATUS_USAGE, text, strlen(text), NULL, 0, NULL, NULL), STATUS_OK);
  return (JsonSpan){text, strlen(text)};
}

static void end_text(Buffer *text) {
  assert_int_equal(buffer_append(text, "", 1, NULL), STATUS_OK);
}

/* A line for each call, whatever its format names the arguments, without the white space between values. */
TEST(calls_are_lines_of_one_form) {
  static const ToolFormat formats[] = {
      {.arguments = "arguments"}, {.arguments = "parameters"}, {.arguments = "arguments", .is_list = true}};
  static const struct {
    int format;
    const char *text, *lines;
  } cases[] = {
      {0, "{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": \"x y\"}}",
       "{\"name\": \"f\", \"arguments\": {\"a\":1,\"b\":\"x y\"}}\n"},
      {0, "{\"arguments\":{},\"name\":\"f\"}", "{\"name\": \"f\", \"arguments\": {}}\n"},
      {0, "\n{\"name\": \"f\", \"parameters\": {\"z\": 0}, \"arguments\": {\n \"s\": \"\\\" \\\\\"\n}}",
       "{\"name\": \"f\", \"arguments\": {\"s\":\"\\\" \\\\\"}}\n"},
      {1, "{\"name\": \"g\", \"parameters\": {\"arguments\": {\"a\": [1, 2]}}}",
       "{\"name\": \"g\", \"arguments\": {\"arguments\":{\"a\":[1,2]}}}\n"},
      {2, "[{\"name\": \"f\", \"arguments\": {}}]", "{\"name\": \"f\", \"arguments\": {}}\n"},
      {2,
       "[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"id\": \"x\", \"arguments\": {}}]",
       "{\"name\": \"f\", \"arguments\": {\"a\":1}}\n{\"name\": \"g\", \"arguments\": {}}\n"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const Tools tools = {.format = &formats[cases[i].format]};
    Buffer lines = {0};
    assert_int_equal(tools_read_calls(&tools, cases[i].text, strlen(cases[i].text), &lines, NULL), STATUS_OK);
    end_text(&lines);
    assert_string_equal(lines.data, cases[i].lines);
    buffer_release(&lines);
  }
}

/* The ids in a list of calls, NUL-terminated; each has nine letters and digits. */
static size_t ids_of(JsonSpan list, char ids[][10]) {
  JsonCursor cursor = json_cursor(list);
  size_t n = 0;
  assert_true(json_cursor_enter(&cursor, '['));
  for (bool first = true; json_cursor_next(&cursor, &first); n++) {
    const JsonSpan id = json_span_member(json_cursor_value(&cursor), "id");
    assert_int_equal(id.size, 11);
    memcpy(ids[n], id.text + 1, 9);
    ids[n][9] = 0;
    assert_int_equal(strspn(ids[n], "0123456789abcdefghijklmnopqrstuvwxyz"), 9);
  }
  return n;
}

/* A result has the id of its call: equal calls of an answer have different ids, and the same answer has the
 * same ids each time. */
TEST(each_call_has_an_id_of_its_own) {
  enum { N = 60, KINDS = 3 };
  static char ids[2][N][10];
  Buffer lines = {0};
  for (int i = 0; i < N; i++)
    assert_int_equal(buffer_printf(&lines, NULL, "{\"name\": \"f%d\", \"arguments\": {}}\n", i % KINDS),
                     STATUS_OK);
  for (int turn = 0; turn < 2; turn++) {
    Buffer out = {0};
    assert_int_equal(tools_write_calls(&lines, &out, NULL), STATUS_OK);
    end_text(&out);
    assert_int_equal(ids_of(span(out.data), ids[turn]), N);
    buffer_release(&out);
  }
  assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
  for (int i = 0; i < N; i++)
    for (int j = 0; j < i; j++) assert_string_not_equal(ids[0][i], ids[0][j]);
  buffer_release(&lines);
}

TEST(calls_are_functions_in_their_order) {
  static const char *const lines[] = {
      "", "{\"name\": \"f\", \"arguments\": {\"a\":1}}\n",
      "{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"g\", \"arguments\": {}}\n"};
  static const char *const names[] = {"", "f", "fg"};
  for (size_t i = 0; i < 3; i++) {
    Buffer calls = {0}, out = {0};
    size_t n = 0;
    assert_int_equal(buffer_append_string(&calls, lines[i], NULL), STATUS_OK);
    assert_int_equal(tools_write_calls(&calls, &out, NULL), STATUS_OK);
    end_text(&out);
    JsonCursor cursor = json_cursor(span(out.data));
    assert_true(json_cursor_enter(&cursor, '['));
    for (bool first = true; json_cursor_next(&cursor, &first); n++) {
      const JsonSpan call = json_cursor_value(&cursor), function = json_span_member(call, "function"),
                     name = json_span_member(function, "name"), type = json_span_member(call, "type");
      assert_true(type.size == 10 && memcmp(type.text, "\"function\"", 10) == 0);
      assert_true(name.size == 3 && name.text[1] == names[i][n]);
      assert_non_null(json_span_member(function, "arguments").text);
    }
    assert_int_equal(n, strlen(names[i]));
    buffer_release(&calls);
    buffer_release(&out);
  }
}

/* Members of a message that say of calls; null is as if the member were not there. */
TEST(members_of_messages_are_checked) {
  static const struct {
    const char *message, *members; /* NULL: refused */
  } cases[] = {
      {"{\"role\": \"user\", \"content\": \"x\"}", ""},
      {"{\"tool_calls\": null, \"tool_call_id\": null, \"name\": null}", ""},
      {"{\"name\": \"f\", \"tool_call_id\": \"a b\"}", "\"tool_call_id\":\"a b\",\"name\":\"f\""},
      {"{\"tool_calls\": []}", "\"tool_calls\":[]"},
      {"{\"tool_call_id\": \"x\", \"tool_calls\": [{\"name\": \"f\", \"arguments\": \"{}\"}]}",
       "\"tool_calls\":[{\"name\": \"f\", \"arguments\": {}}],\"tool_call_id\":\"x\""},
      {"{\"tool_calls\": {}}", NULL},
      {"{\"tool_calls\": \"[]\"}", NULL},
      {"{\"tool_call_id\": 1}", NULL},
      {"{\"name\": [\"f\"]}", NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Buffer out = {0};
    Error err = {{0}};
    const Status status = tools_append_members(span(cases[i].message), 7, &out, &err);
    assert_int_equal(status, cases[i].members ? STATUS_OK : STATUS_USAGE);
    end_text(&out);
    if (cases[i].members)
      assert_string_equal(out.data, cases[i].members);
    else
      assert_non_null(strstr(err.text, "message 7"));
    buffer_release(&out);
  }
}
