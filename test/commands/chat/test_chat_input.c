/* test_chat_input.c - lines and blocks of standard input as messages. */
#include "commands/chat/chat_input.h"
#include "test/standard_streams.h"
#include "test/tests.h"

#define Q "\"\"\""

/* The inputs that were read: 'l' is a line, 'b' a block, 'e' the end, 'x' a refusal, each followed by its
 * text. */
typedef struct {
  const char *input;
  const char *want[6];
} Case;

static const Case cases[] = {
    {"", {"e"}},
    {"\n", {"l", "e"}},
    {"one\ntwo", {"lone", "ltwo", "e"}},
    {"one\r\n\r\ntwo\r\r\n", {"lone", "l", "ltwo\r", "e"}},
    {" /x \n", {"l /x ", "e"}},
    {Q "one" Q "\ntwo\n", {"bone", "ltwo", "e"}},
    {Q "\none\ntwo\n" Q "\n", {"bone\ntwo", "e"}},
    {Q "\n\none\n\n" Q "\n", {"b\none\n", "e"}},
    {Q "one\n" Q " \t\nmore\n", {"bone", "lmore", "e"}},
    {Q Q "\n", {"b", "e"}},
    {Q "\n" Q "\n", {"b", "e"}},
    {Q "\n\n" Q "\n", {"b", "e"}},
    {Q " one " Q "\n", {"b one ", "e"}},
    {Q "a" Q "b\nc" Q "\n", {"ba" Q "b\nc", "e"}},
    {"\"\"one\n", {"l\"\"one", "e"}},
    {"one" Q "\n", {"lone" Q, "e"}},
    {Q "one\r\n" Q "\r\n", {"bone", "e"}},
    {Q "one\n", {"xstandard input ends within a block that " Q " began"}},
    {Q, {"xstandard input ends within a block that " Q " began"}},
    {"\xef\xbb\xbf/x\n\xef\xbb\xbfy\n", {"l/x", "l\xef\xbb\xbfy", "e"}},
    {"\x89PNG\r\n", {"xstandard input is a PNG image, expected text"}},
    {"ab\xff\n", {"xstandard input is not valid UTF-8: byte 0xff at offset 2 of a line"}},
    {"a\n" Q "\n\xc3\n", {"la", "xstandard input is not valid UTF-8: byte 0xc3 at offset 0 of a line"}},
};

TEST(lines_are_messages_and_so_are_blocks) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ChatInput input = {0};
    Buffer text = {0};
    put_input(cases[i].input, strlen(cases[i].input));
    for (const char *const *want = cases[i].want; *want; want++) {
      LineResult result = LINE_INTERRUPTED;
      Error err = {{0}};
      Status status = chat_input_read(&input, &text, &result, &err);
      assert_int_equal(status, **want == 'x' ? STATUS_USAGE : STATUS_OK);
      if (status) assert_string_equal(err.text, *want + 1);
      if (status) continue;
      assert_int_equal(result, **want == 'l' ? LINE_ENTERED : **want == 'b' ? LINE_BLOCK : LINE_END);
      if (text.size != strlen(*want + 1) || (text.size && memcmp(text.data, *want + 1, text.size) != 0))
        fail_msg("case %zu: \"%.*s\", expected \"%s\"", i, (int)text.size, text.data, *want + 1);
    }
    chat_input_close(&input);
    buffer_release(&text);
  }
}

TEST(a_script_is_asked_nothing) {
  ChatInput input = {0};
  bool yes = true;
  put_input("y\n", 2);
  assert_int_equal(chat_input_ask(&input, "Really? ", &yes, NULL), STATUS_OK);
  assert_false(yes);
}
