/* test_continued.c - what a chat that goes on takes from its file, and what from the call. */
#include "commands/conversation/continued.h"
#include "test/directory.h"
#include "test/tests.h"

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
TEST(the_file_says_what_the_call_does_not) {
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

/* The call's own system message replaces that of the chat; one from the settings, which is usual, only begins
 * a new chat; without one, that of the chat stays. */
TEST(the_system_message_is_the_call_s_or_the_chat_s) {
  for (int i = 0; i < 16; i++) {
    const bool goes_on = i & 1, is_usual = i & 2, has_system = i & 4, had_system = i & 8;
    AssistantFlags flags = {.chat = {.system_is_usual = is_usual},
                            .model = {.path = "test/data/stories260K-f32"}};
    Assistant a = {.flags = &flags, .has_system = has_system};
    Continued c = {.flags = flags, .goes_on = goes_on};
    Conversation conversation = {0};
    Error note, err = {{0}};
    assert_int_equal(model_place_find(&flags.model, &a.place, &err), STATUS_OK);
    assert_int_equal(buffer_append(&a.system, "new", 3, &err), STATUS_OK);
    if (had_system) assert_int_equal(conversation_set_system(&conversation, "old one", 7, &err), STATUS_OK);
    assert_int_equal(conversation_add(&conversation, ROLE_USER, "x", 1, &err), STATUS_OK);
    if (continued_begin(&c, &a, &conversation, &note, &err) != STATUS_OK) fail_msg("%s", err.text);
    assert_string_equal(note.text, "");
    const Message *system = conversation_system(&conversation);
    const char *want = has_system && !(goes_on && is_usual) ? "new" : had_system ? "old one" : NULL;
    assert_int_equal(system != NULL, want != NULL);
    assert_int_equal(conversation.count, 1 + (want != NULL));
    if (want) assert_int_equal(system->text.size, strlen(want));
    if (want) assert_memory_equal(system->text.data, want, strlen(want));
    assert_non_null(c.head.model);
    conversation_release(&conversation);
    continued_release(&c);
    model_place_release(&a.place);
    buffer_release(&a.system);
  }
}

/* An answer is added with its thought, and with the model that wrote it. */
TEST(answers_say_which_model_wrote_them) {
  for (int i = 0; i < 4; i++) {
    Continued c = {.head = {.model = i & 1 ? strdup("its") : NULL}};
    Conversation conversation = {0};
    AnswerText said = {0};
    Error err = {{0}};
    assert_int_equal(buffer_append(&said.text, "yes", 3, &err), STATUS_OK);
    if (i & 2) assert_int_equal(buffer_append(&said.thinking, "hm", 2, &err), STATUS_OK);
    assert_int_equal(conversation_add(&conversation, ROLE_USER, "x", 1, &err), STATUS_OK);
    assert_int_equal(continued_add_answer(&c, &conversation, &said, &err), STATUS_OK);
    assert_int_equal(conversation.count, 2);
    const Message *answer = &conversation.messages[1];
    assert_int_equal(answer->role, ROLE_ASSISTANT);
    assert_true(answer->text.size == 3 && memcmp(answer->text.data, "yes", 3) == 0);
    assert_int_equal(answer->thinking.size, i & 2 ? 2 : 0);
    assert_int_equal(answer->model.size, i & 1 ? 3 : 0);
    conversation_release(&conversation);
    continued_release(&c);
    answer_text_release(&said);
  }
}

/* Only a model that could not be opened, and that the chat chose, is blamed on the chat. */
TEST(the_chat_s_model_is_blamed_for_itself_alone) {
  static const Status statuses[] = {STATUS_OK, STATUS_FAILED, STATUS_USAGE, STATUS_MODEL};
  for (int i = 0; i < 8; i++) {
    const Continued c = {.model_is_chats = i / 4};
    const Status status = statuses[i % 4];
    Error err = {{0}};
    error_set(&err, status, "no such model");
    assert_int_equal(continued_refuse(&c, status, &err), status);
    assert_int_equal(strstr(err.text, "the model of this chat") != NULL, i == 7);
    assert_non_null(strstr(err.text, "no such model"));
  }
}

static CMFixtureFunction before_all = make_place, after_all = remove_own_directory;
