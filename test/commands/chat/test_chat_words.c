/* test_chat_words.c - what is a command of a chat, and what is text. */
#include "commands/chat/chat_words.h"
#include "test/tests.h"

static ChatLine parse(const char *line) {
  return chat_parse(line, strlen(line));
}

TEST(every_command_is_found_by_its_name) {
  for (int i = 0; i < WORD_TEXT; i++) {
    char line[64] = "/";
    strcat(line, chat_commands[i].name);
    assert_int_equal(parse(line).word, i);
    assert_int_equal(parse(line).size, 0);
    strcat(line, " \t\n"); /* pasted with its newline */
    assert_int_equal(parse(line).word, i);
    assert_int_equal(parse(line).size, 0);
  }
  assert_int_equal(parse("/quit").word, WORD_EXIT);
  assert_int_equal(parse("/bye").word, WORD_EXIT);
  assert_int_equal(parse("/HELP").word, WORD_HELP);
  assert_int_equal(parse("/?").word, WORD_HELP);
  assert_int_equal(parse("/retry").word, WORD_REGEN);
  assert_int_equal(parse("/reset").word, WORD_CLEAR);
}

TEST(arguments_have_no_blanks_around_them) {
  ChatLine line = parse("/save  a file.json \n");
  assert_int_equal(line.word, WORD_SAVE);
  assert_int_equal(line.size, 11);
  assert_memory_equal(line.argument, "a file.json", 11);
  line = parse("/system You are terse.\nVery.");
  assert_int_equal(line.word, WORD_SYSTEM);
  assert_memory_equal(line.argument, "You are terse.\nVery.", line.size);
}

TEST(other_lines_are_text) {
  static const char *const texts[] = {
      "",
      "/",
      "//",
      "/ help",
      " /help",
      "help",
      "/usr/bin/env is what?",
      "/var/log",
      "/dev/null",
      "/help/me",
      "/2 apples",
      "/load a\nand b", /* a command has one line */
      "/clear\nthe table",
      "/\xe4\xb8\xad\xe6\x96\x87",
      "/exit!",
      "/foo bar\nand more",
      "/-a",
      "/a.txt",
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (parse(texts[i]).word != WORD_TEXT) fail_msg("\"%s\" is taken for a command", texts[i]);
}

TEST(a_mistyped_command_is_not_sent) {
  static const char *const words[][2] = {{"/hlep", "help"},  {"/hel", "help"},    {"/exti", "exit"},
                                         {"/cler", "clear"}, {"/regn", "regen"},  {"/tokns", "tokens"},
                                         {"/Undoo", "undo"}, {"/stat ", "stats"}, {"/hlep me", "help"},
                                         {"/tmp", NULL},     {"/foo bar", NULL},  {"/show_it", NULL}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    ChatLine line = parse(words[i][0]);
    assert_int_equal(line.word, WORD_UNKNOWN);
    assert_int_equal(line.name_size, strcspn(words[i][0] + 1, " "));
    assert_memory_equal(line.name, words[i][0] + 1, line.name_size);
    assert_int_equal(!line.nearest, !words[i][1]);
    if (words[i][1]) assert_string_equal(line.nearest, words[i][1]);
  }
}

TEST(words_of_other_programs_have_a_hint) {
  static const char *const words[][2] = {
      {"exit", "/exit"}, {"quit", "/exit"}, {"QUIT ", "/exit"}, {"help\t", "/help"}, {"!ls", "Ctrl-Z"}};
  static const char *const texts[] = {"",      "exit now", " exit", "helpful", "bye",  "exi", "/exit",
                                      "help?", "!",        "!!!",   "!ls -l",  " !ls", "!5"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    const char *hint = chat_bare_word(words[i][0], strlen(words[i][0]));
    assert_non_null(hint);
    assert_int_equal(strncmp(hint, words[i][1], strlen(words[i][1])), 0);
  }
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    assert_null(chat_bare_word(texts[i], strlen(texts[i])));
}
