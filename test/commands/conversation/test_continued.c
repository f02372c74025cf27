/* test_continued.c - what a chat that goes on takes from its file, and what from the call. */
#include "commands/conversation/continued.h"
#include "test/directory.h"

static int make_place(void **state) {
  make_own_directory(state);
  return setenv("XDG_STATE_HOME", own_directory, 1);
}

/* Keeps a chat with this head. */
static void keep_chat(ConversationHead head) {
  KeptChat kept = {0};
  Conversation c = {0};
  Error err = {{0}};
  bool moved;
  assert_int_equal(conversation_add(&c, ROLE_USER, "first words", 11, &err), STATUS_OK);
  assert_int_equal(conversation_add(&c, ROLE_ASSISTANT, "yes", 3, &err), STATUS_OK);
  if (kept_save(&kept, &c, head, &moved, &err) != STATUS_OK) fail_msg("%s", err.text);
  conversation_release(&c);
  kept_release(&kept);
}

typedef struct {
  ConversationHead head; /* of the file */
  const char *model, *chat_template;
  bool think, no_think, think_is_usual; /* of the call */
  const char *then_model, *then_template;
  bool then_think, then_no_think, model_is_chats;
} Case;

#define IN_FILE(think_)                                                                                      \
  .head = {.model = (char *)"its", .chat_template = (char *)"chatml", .think = THINK_##think_}

/* The call's own flags go first; the template and --think of another model are not taken. */
static void the_file_says_what_the_call_does_not(void **state) {
  static const Case cases[] = {
      {IN_FILE(YES), .then_model = "its", .then_template = "chatml", .then_think = true,
       .model_is_chats = true},
      {IN_FILE(NO), .then_model = "its", .then_template = "chatml", .then_no_think = true,
       .model_is_chats = true},
      {IN_FILE(YES), .model = "another", .then_model = "another"},
      {IN_FILE(YES), .chat_template = "llama2", .then_model = "its", .then_template = "llama2",
       .then_think = true, .model_is_chats = true},
      {IN_FILE(YES), .no_think = true, .then_model = "its", .then_template = "chatml", .then_no_think = true,
       .model_is_chats = true},
      {IN_FILE(YES), .no_think = true, .think_is_usual = true, .then_model = "its", .then_template = "chatml",
       .then_think = true, .model_is_chats = true},
      {.head = {.chat_template = (char *)"chatml"},
       .model = "any",
       .then_model = "any",
       .then_template = "chatml"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const Case *it = &cases[i];
    const OptionalText last = {.given = true};
    const AssistantFlags flags = {.model = {.path = it->model},
                                  .chat = {.chat_template = it->chat_template,
                                           .think = it->think,
                                           .no_think = it->no_think,
                                           .think_is_usual = it->think_is_usual}};
    Continued c = {.keeps = false};
    Conversation conversation = {0};
    Error err = {{0}};
    keep_chat(it->head);
    if (continued_open(&c, &last, &flags, &conversation, &err) != STATUS_OK) fail_msg("%s", err.text);
    assert_true(c.goes_on && conversation.count == 2);
    assert_string_equal(c.flags.model.path, it->then_model);
    assert_int_equal(c.model_is_chats, it->model_is_chats);
    assert_string_equal(c.flags.chat.chat_template ? c.flags.chat.chat_template : "",
                        it->then_template ? it->then_template : "");
    assert_int_equal(c.flags.chat.think, it->then_think);
    assert_int_equal(c.flags.chat.no_think, it->then_no_think);
    conversation_release(&conversation);
    continued_release(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_file_says_what_the_call_does_not)};
  return cmocka_run_group_tests(tests, make_place, remove_own_directory);
}
