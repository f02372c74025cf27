/* test_conversation_file.c - conversations to files and back, whole; files of others are left as they are. */
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "commands/conversation/conversation_file.h"
#include "test/directory.h"
#include "test/tests.h"

static char path[300];

static int make_place(void **state) {
  make_own_directory(state);
  snprintf(path, sizeof path, "%s/talk.json", own_directory);
  return 0;
}

static void put(const char *text) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(text, file);
  assert_int_equal(fclose(file), 0);
}

static void assert_file(const char *want) {
  Buffer got = {0};
  assert_int_equal(file_read(path, 1 << 20, &got, NULL), STATUS_OK);
  if (got.size != strlen(want) || memcmp(got.data, want, got.size) != 0)
    fail_msg("the file holds %.*s, expected %s", (int)got.size, got.data, want);
  buffer_release(&got);
}

/* Messages as one text: "user:Hi|assistant:(thought)answer|" */
static void assert_talk(const Conversation *c, const char *want) {
  Buffer got = {0};
  for (size_t i = 0; i < c->count; i++) {
    const Message *m = &c->messages[i];
    assert_int_equal(buffer_printf(&got, NULL, "%s:", role_name(m->role)), STATUS_OK);
    if (m->thinking.size) buffer_printf(&got, NULL, "(%.*s)", (int)m->thinking.size, m->thinking.data);
    if (m->text.size) buffer_append(&got, m->text.data, m->text.size, NULL);
    buffer_append(&got, "|", 1, NULL);
  }
  if (got.size != strlen(want) || (got.size && memcmp(got.data, want, got.size) != 0))
    fail_msg("\"%.*s\", expected \"%s\"", (int)got.size, got.data, want);
  buffer_release(&got);
}

static void load(const char *text, const char *want) {
  Conversation c = {0};
  Error err = {{0}};
  put(text);
  if (conversation_load(path, &c, NULL, &err) != STATUS_OK) fail_msg("%s: %s", text, err.text);
  assert_talk(&c, want);
  conversation_release(&c);
}

static const ConversationHead of_m = {.model = (char *)"m"};

TEST(what_is_saved_comes_back) {
  static const char text[] =
      "{\"model\": \"a \\\"m\\\"\", \"messages\": [\n"
      "  {\"role\": \"system\", \"content\": \"Be\\nkind.\"},\n"
      "  {\"role\": \"user\", \"content\": \"\"},\n"
      "  {\"role\": \"assistant\", \"reasoning_content\": \"hm\", \"content\": \"Yes\"},\n"
      "  {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\":[{\"id\": \"a\", \"function\": {}}]},\n"
      "  {\"role\": \"tool\", \"content\": \"\xc3\xa9\", \"tool_call_id\":\"a\",\"name\":\"f\"}\n"
      "]}\n";
  const ConversationHead head = {.model = (char *)"a \"m\""};
  Conversation c = {0};
  put(text);
  assert_int_equal(conversation_load(path, &c, NULL, NULL), STATUS_OK);
  assert_talk(&c, "system:Be\nkind.|user:|assistant:(hm)Yes|assistant:|tool:\xc3\xa9|");
  put("[]");
  assert_int_equal(conversation_save(&c, &head, path, NULL), STATUS_OK);
  assert_file(text);
  conversation_truncate(&c, 0);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(conversation_save(&c, &of_m, path, NULL), STATUS_OK);
  assert_file("{\"model\": \"m\", \"messages\": [\n]}\n");
  conversation_release(&c);
}

/* A new file is for the user's eyes, whatever the umask; an existing one keeps its mode. */
TEST(a_new_file_is_private) {
  static const mode_t modes[] = {0600, 0644};
  Conversation c = {0};
  struct stat info;
  const mode_t before = umask(0);
  unlink(path);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(conversation_save(&c, &of_m, path, NULL), STATUS_OK);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, modes[i]);
    assert_int_equal(chmod(path, modes[1]), 0);
  }
  umask(before);
}

TEST(a_kept_chat_says_what_it_is) {
  static const char text[] =
      "{\"title\": \"a b\", \"began\": \"then\", \"turns\": 1, \"model\": \"m\", \"chat_template\": "
      "\"chatml\", \"think\": false, \"forgotten\": 2, \"messages\": [\n"
      "  {\"role\": \"user\", \"content\": \" a\\n\\n b\"},\n"
      "  {\"role\": \"assistant\", \"model\": \"other\", \"content\": \"c\"},\n"
      "  {\"role\": \"assistant\", \"content\": \"d\"}\n"
      "]}\n";
  Conversation c = {0};
  ConversationHead head = {0}, alone = {0};
  put(text);
  assert_int_equal(conversation_load(path, &c, &head, NULL), STATUS_OK);
  assert_int_equal(c.messages[1].model.size, 5);
  assert_int_equal(c.messages[2].model.size, 1); /* the head's */
  assert_int_equal(conversation_load_head(path, &alone, NULL), STATUS_OK);
  for (int i = 0; i < 2; i++) {
    const ConversationHead *h = i ? &alone : &head;
    assert_string_equal(h->model, "m");
    assert_string_equal(h->chat_template, "chatml");
    assert_string_equal(h->title, "a b");
    assert_string_equal(h->began, "then");
    assert_true(h->think == THINK_NO && h->n_turns == 1 && h->n_forgotten == 2);
  }
  assert_int_equal(conversation_save(&c, &head, path, NULL), STATUS_OK);
  assert_file(text);
  conversation_head_release(&head);
  conversation_head_release(&alone);
  conversation_release(&c);
}

/* A head may have any order, or none at all. */
TEST(the_head_of_another_programs_file_is_found) {
  static const char *const texts[] = {
      "[{\"role\": \"user\", \"content\": \"hi\"}]",
      "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"x\": 1}",
      "{\"messages\":[{\"role\": \"user\", \"content\": \"hi\"}]}",
      "{\"title\": \"hi\", \"messages\": [{\"role\": \"user\", \"content\": \"no\"}]}",
      "{\"turns\": 1, \"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}",
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    ConversationHead head = {0};
    put(texts[i]);
    assert_int_equal(conversation_load_head(path, &head, NULL), STATUS_OK);
    assert_string_equal(head.title, "hi");
    assert_int_equal(head.n_turns, 1);
    conversation_head_release(&head);
  }
  ConversationHead head = {0};
  put("{\"messages\": [");
  assert_int_equal(conversation_load_head(path, &head, NULL), STATUS_USAGE);
  conversation_head_release(&head);
}

TEST(a_title_is_a_line) {
  char title[CONVERSATION_TITLE], long_text[500];
  Conversation c = {0};
  conversation_title(&c, title);
  assert_string_equal(title, "");
  for (int i = 0; i < 100; i++) memcpy(long_text + 4 * i, "\xf0\x9f\x98\x80", 4);
  assert_int_equal(conversation_add(&c, ROLE_USER, long_text, 400, NULL), STATUS_OK);
  conversation_title(&c, title);
  assert_int_equal(strlen(title), 60 * 4 + 3);
  assert_string_equal(title + 240, "...");
  conversation_release(&c);
  /* Dots stand for words that are left out, not for blanks. */
  static const char *const rests[] = {"", " ", "\n\n \t", "\n.", "  x"};
  for (size_t i = 0; i < sizeof rests / sizeof *rests; i++) {
    snprintf(long_text, sizeof long_text, "%.60s%s",
             "abcdefghijklmnopqrstuvwxyz 0123456789 ABCDEFGHIJKLMNOPQRSTUVWXYZ", rests[i]);
    assert_int_equal(conversation_add(&c, ROLE_USER, long_text, strlen(long_text), NULL), STATUS_OK);
    conversation_title(&c, title);
    assert_memory_equal(title, long_text, 60);
    assert_string_equal(title + 60, i < 3 ? "" : "...");
    conversation_release(&c);
  }
}

TEST(blanks_in_a_title_are_one) {
  static const char text[] = "  a  b \n\t c\x01 d!\r\n";
  char title[CONVERSATION_TITLE];
  Conversation c = {0};
  assert_int_equal(conversation_add(&c, ROLE_USER, text, strlen(text), NULL), STATUS_OK);
  conversation_title(&c, title);
  assert_string_equal(title, "a b c d!");
  conversation_release(&c);
}

TEST(every_form_of_a_message_is_read) {
  load("[]", "");
  load("{\"messages\": []}", "");
  load("[{\"role\": \"user\", \"content\": null}, {\"role\": \"user\"}]", "user:|user:|");
  load("[{\"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"text\": \"b\", \"type\": \"text\"}], "
       "\"role\": \"tool\"}, {\"role\": \"user\", \"content\": []}]",
       "tool:ab|user:|");
  load("[{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": []}]", "assistant:a|");
  load("[{\"role\": \"assistant\", \"thinking\": \"hm\"}, {\"role\": \"assistant\", \"reasoning\": \"so\"}]",
       "assistant:(hm)|assistant:(so)|");
  /* A thought is an assistant's. */
  load("[{\"role\": \"user\", \"content\": \"a\", \"reasoning_content\": \"hm\"}, {\"role\": \"assistant\", "
       "\"content\": \"b\", \"reasoning_content\": \"\"}]",
       "user:a|assistant:b|");
}

TEST(arguments_are_kept_as_an_object) {
  Conversation c = {0};
  put("[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": "
      "\"{\\\"a\\\": 1}\"}}]}]");
  assert_int_equal(conversation_load(path, &c, NULL, NULL), STATUS_OK);
  assert_int_equal(buffer_append(&c.messages[0].members, "", 1, NULL), STATUS_OK);
  assert_string_equal(c.messages[0].members.data,
                      "\"tool_calls\":[{\"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1}}}]");
  conversation_release(&c);
}

TEST(what_cannot_be_kept_is_refused_with_its_number) {
#define GOOD "{\"role\": \"user\", \"content\": \"a\"}, "
  static const char *const cases[][2] = {
      {"[" GOOD "1]", "message 1 is no object"},
      {"[" GOOD GOOD "{\"content\": \"a\"}]", "message 2 has no role"},
      {"[" GOOD "{\"role\": \"a role of more than forty bytes, which is cut\"}]",
       "message 1 has the role \"a role of more than forty bytes, which i\", expected system, user, "
       "assistant or "
       "tool"},
      {"[" GOOD "{\"role\": \"user\", \"content\": {}}]",
       "message 1 has a content that is neither a string nor a list"},
      {"[" GOOD "{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]",
       "message 1 has a part of another type than \"text\" in its content"},
      {"[" GOOD "{\"role\": \"user\", \"content\": [{\"text\": \"a\"}]}]",
       "message 1 has a part of another type than \"text\" in its content"},
      {"[" GOOD "{\"role\": \"user\", \"content\": [\"a\"]}]",
       "message 1 has a part of another type than \"text\" in its content"},
      {"[" GOOD "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": 1}]",
       "message 1 has tool_calls that is no list"},
      {"[" GOOD "{\"role\": \"user\", \"content\": \"\", \"reasoning_content\": []}]",
       "message 1 has a reasoning_content (or thinking, or reasoning) that is no string"},
      {"[" GOOD "{\"role\": \"assistant\", \"tool_calls\": [{\"name\": \"f\", \"arguments\": \"x\"}]}]",
       "message 1 has a call 0, of \"f\", whose arguments are a string without a JSON object"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Conversation c = {0};
    Error err = {{0}};
    char want[700];
    put(cases[i][0]);
    assert_int_equal(conversation_load(path, &c, NULL, &err), STATUS_USAGE);
    snprintf(want, sizeof want, "%s: %s", path, cases[i][1]);
    assert_string_equal(err.text, want);
    conversation_release(&c);
  }
}

TEST(files_of_others_are_left_as_they_are) {
  static const char *const texts[] = {"notes", "", "{}", "{\"messages\": 1}", "\"messages\"", "[", "1"};
  Conversation c = {0};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    Error err = {{0}};
    put(texts[i]);
    assert_int_equal(conversation_save(&c, &of_m, path, &err), STATUS_USAGE);
    assert_non_null(strstr(err.text, "is there already and holds no conversation: it is left as it is"));
    assert_file(texts[i]);
  }
  assert_int_equal(conversation_save(&c, &of_m, own_directory, NULL), STATUS_USAGE);
}

static CMFixtureFunction before_all = make_place, after_all = remove_own_directory;
