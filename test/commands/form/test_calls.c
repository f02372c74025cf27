/* test_calls.c - where white space may stand around calls that are JSON between two marks. */
#include "commands/form/calls.h"
#include "test/constrain/small_vocabulary.h"
#include "test/tests.h"

static const char schema[] =
    "{\"type\": \"object\", \"properties\": {\"name\": {\"const\": \"f\"}, \"arguments\": {\"const\": {}}}, "
    "\"required\": [\"name\", \"arguments\"], \"additionalProperties\": false}";
static const ToolFormat format = {.begin = "b", .end = "e", .arguments = "arguments"};
static const int32_t end_token = 2;

typedef struct {
  AnswerForm form;
  Bound bound;
  Tools tools;
  Calls calls;
  Buffer lines;
  TokenReply reply;
  bool is_call, ended;
} Case;

static void begin(Case *it) {
  static const IdList ends = {.ids = (int32_t *)&end_token, .count = 1};
  Error err = {{0}};
  *it = (Case){.is_call = false};
  if (form_open(&(FormFlags){.schema = schema}, tokenizer, 512, &it->form, &err) != STATUS_OK)
    fail_msg("%s", err.text);
  it->form.is_calls = true;
  assert_int_equal(bound_begin(&it->bound, &it->form, &ends, NULL), STATUS_OK);
  it->tools = (Tools){.given = true, .format = &format, .begin = tokenizer_find(tokenizer, "b")};
  it->calls = (Calls){.tools = &it->tools, .bound = &it->bound};
}

static void end(Case *it) {
  calls_release(&it->calls);
  bound_release(&it->bound);
  form_release(&it->form);
  buffer_release(&it->lines);
}

static void take(Case *it, int32_t id) {
  Error err = {{0}};
  it->reply = (TokenReply){.n_forced = 0};
  if (calls_take(&it->calls, id, &it->is_call, &it->lines, &it->ended, &it->reply, &err) != STATUS_OK)
    fail_msg("%s", err.text);
}

static int32_t byte_token(char byte) {
  char name[8];
  snprintf(name, sizeof name, "<0x%02X>", (unsigned char)byte);
  return tokenizer_find(tokenizer, name);
}

static bool may_follow(Case *it, int32_t id) {
  const uint64_t *mask;
  assert_int_equal(calls_mask(&it->calls, &mask, NULL), STATUS_OK);
  return mask[id / 64] >> id % 64 & 1;
}

/* Two line ends, and no third. */
static void take_blanks(Case *it) {
  const int32_t newline = byte_token('\n');
  assert_true(bound_is_space(&it->bound, newline));
  for (int n = 0; n < 2; n++) {
    assert_true(may_follow(it, newline));
    take(it, newline);
    assert_true(it->is_call);
  }
  assert_false(may_follow(it, newline));
}

/* White space is counted from each mark on: that between two calls takes nothing from the second. */
TEST(each_call_may_have_white_space_around_it) {
  static const char call[] = "{\"name\":\"f\",\"arguments\":{}}",
                    line[] = "{\"name\": \"f\", \"arguments\": {}}\n";
  Case it;
  begin(&it);
  for (size_t n = 1; n <= 3; n++) {
    assert_int_equal(calls_is_inside(&it.calls), false);
    take(&it, it.tools.begin);
    assert_true(it.is_call && calls_is_inside(&it.calls));
    take_blanks(&it);
    assert_false(may_follow(&it, end_token));
    for (const char *at = call; *at; at++) take(&it, byte_token(*at));
    assert_int_equal(it.lines.size, n * strlen(line));
    assert_memory_equal(it.lines.data + it.lines.size - strlen(line), line, strlen(line));
    const TokenReply mark = it.reply;
    assert_true(mark.n_forced > 0);
    for (int i = 0; i < mark.n_forced; i++) take(&it, it.calls.marks.ids[i]);
    take_blanks(&it);
    assert_true(may_follow(&it, it.tools.begin) && may_follow(&it, end_token) && !it.ended);
  }
  end(&it);
}

static CMFixtureFunction before_all = open_vocabulary, after_all = close_vocabulary;
