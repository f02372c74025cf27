/* test_kept_chat.c - chats in their folder: names, two writers, removal, what cannot be written. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands/conversation/kept_chat.h"
#include "test/directory.h"
#include "test/tests.h"

static const ConversationHead of_m = {.model = (char *)"m"};

static int make_place(void **state) {
  make_own_directory(state);
  return setenv("XDG_STATE_HOME", own_directory, 1);
}

static void begin(Conversation *c, const char *text) {
  conversation_release(c);
  assert_int_equal(conversation_add(c, ROLE_USER, text, strlen(text), NULL), STATUS_OK);
  assert_int_equal(conversation_add(c, ROLE_ASSISTANT, "yes", 3, NULL), STATUS_OK);
}

static bool keep(KeptChat *kept, const Conversation *c) {
  Error err = {{0}};
  bool moved;
  if (kept_save(kept, c, of_m, &moved, &err) != STATUS_OK) fail_msg("%s", err.text);
  return moved;
}

/* The name after the time. */
static const char *words_of(const KeptChat *kept) {
  const char *name = strrchr(kept->path, '/') + 1;
  assert_true(strlen(name) >= 15);
  return name + 15;
}

static size_t count_chats(void) {
  KeptList list = {0};
  assert_int_equal(kept_list(&list, NULL), STATUS_OK);
  const size_t n = list.count;
  kept_list_release(&list);
  return n;
}

static size_t count_messages(const char *name) {
  KeptChat kept = {0};
  Conversation c = {0};
  ConversationHead head = {0};
  Error err = {{0}};
  if (kept_open(name, &kept, &c, &head, &err) != STATUS_OK) fail_msg("%s", err.text);
  const size_t n = c.count;
  conversation_head_release(&head);
  conversation_release(&c);
  kept_release(&kept);
  return n;
}

TEST(names_are_times_and_words) {
  static const char *const cases[][2] = {
      {"Why is the sky blue?", "-why-is-the-sky-blue.json"},
      {"  **Bold** & more: what is it, and why?", "-bold-more-what-is-it.json"},
      {"\xe7\x8c\xab", ".json"},
      {"../../etc/passwd", "-etc-passwd.json"},
      {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa b", "-aaaaaaaaaaaaaaaaaaaaaaaa.json"},
  };
  Conversation c = {0};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    KeptChat kept = {0};
    struct stat info;
    begin(&c, cases[i][0]);
    assert_false(keep(&kept, &c));
    assert_string_equal(words_of(&kept), cases[i][1]);
    assert_int_equal(stat(kept.path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    kept_release(&kept);
  }
  conversation_release(&c);
}

TEST(two_writers_have_a_file_each) {
  KeptChat one = {0}, other = {0};
  Conversation c = {0}, again = {0};
  ConversationHead head = {0};
  begin(&c, "twice");
  assert_false(keep(&one, &c));
  assert_int_equal(kept_open("twice", &other, &again, &head, NULL), STATUS_OK);
  assert_string_equal(other.path, one.path);
  assert_int_equal(conversation_add(&again, ROLE_USER, "more", 4, NULL), STATUS_OK);
  assert_false(keep(&other, &again));
  assert_true(keep(&one, &c)); /* the other one was faster */
  assert_string_not_equal(other.path, one.path);
  assert_string_equal(words_of(&one), "-twice-2.json");
  assert_false(keep(&one, &c));
  assert_false(keep(&other, &again));
  assert_int_equal(count_messages("twice-2"), 2);
  KeptChat third = {0};
  assert_false(keep(&third, &c)); /* a new chat of the same words and minute */
  assert_true(strncmp(words_of(&third), "-twice", 6) == 0);
  assert_string_not_equal(third.path, one.path);
  kept_release(&one);
  kept_release(&other);
  kept_release(&third);
  conversation_head_release(&head);
  conversation_release(&c);
  conversation_release(&again);
}

TEST(a_removed_chat_comes_back_with_its_next_turn) {
  KeptChat kept = {0};
  Conversation c = {0};
  const size_t before = count_chats();
  begin(&c, "removed");
  keep(&kept, &c);
  assert_int_equal(unlink(kept.path), 0);
  assert_false(keep(&kept, &c));
  assert_int_equal(count_chats(), before + 1);
  conversation_truncate(&c, 0); /* /undo of all there is */
  assert_false(keep(&kept, &c));
  assert_null(kept.path);
  assert_int_equal(count_chats(), before);
  kept_release(&kept);
  conversation_release(&c);
}

/* A chat without turns goes, but not what another process has made of it. */
TEST(an_undone_chat_goes_unless_it_is_anothers) {
  for (int changed = 0; changed < 2; changed++) {
    KeptChat kept = {0};
    Conversation c = {0};
    const size_t before = count_chats();
    begin(&c, "undone");
    keep(&kept, &c);
    FILE *file = changed ? fopen(kept.path, "a") : NULL;
    if (file) fputs("\n", file);
    if (file) assert_int_equal(fclose(file), 0);
    conversation_truncate(&c, 0);
    assert_false(keep(&kept, &c));
    assert_int_equal(count_chats(), before + (size_t)changed);
    kept_release(&kept);
    conversation_release(&c);
  }
}

/* A file whose head was changed by hand. */
TEST(no_more_is_forgotten_than_there_is) {
  static const struct {
    const char *n;
    size_t n_forgotten, n_left;
  } cases[] = {{"0", 0, 4}, {"2", 2, 2}, {"3", 3, 1}, {"4", 3, 1}, {"1000000", 3, 1}, {"-1", 0, 4}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    KeptChat kept = {0};
    Conversation c = {0};
    ConversationHead head = {0};
    char path[400];
    snprintf(path, sizeof path, "%s/auk/chats/by-hand.json", own_directory);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "{\"forgotten\": %s, \"messages\": [{\"role\": \"system\", \"content\": \"s\"}, ",
            cases[i].n);
    for (int k = 0; k < 3; k++)
      fprintf(file, "{\"role\": \"user\", \"content\": \"%d\"}%s", k, k < 2 ? ", " : "]}");
    assert_int_equal(fclose(file), 0);
    assert_int_equal(kept_open("by-hand", &kept, &c, &head, NULL), STATUS_OK);
    assert_int_equal(kept.forgotten.count, cases[i].n_forgotten);
    assert_int_equal(c.count, cases[i].n_left);
    assert_int_equal(unlink(path), 0);
    kept_release(&kept);
    conversation_release(&c);
    conversation_head_release(&head);
  }
}

TEST(forgotten_turns_stay_in_the_file) {
  KeptChat kept = {0}, again = {0};
  Conversation c = {0}, read = {0};
  ConversationHead head = {0};
  begin(&c, "the old turn");
  assert_int_equal(conversation_set_system(&c, "Be kind.", 8, NULL), STATUS_OK);
  assert_int_equal(conversation_append(&kept.forgotten, &c, 1, 3, NULL), STATUS_OK);
  conversation_drop(&c, 1, 2);
  assert_int_equal(conversation_add(&c, ROLE_USER, "new", 3, NULL), STATUS_OK);
  keep(&kept, &c);
  assert_string_equal(words_of(&kept), "-the-old-turn.json");
  assert_int_equal(kept_open("the-old-turn", &again, &read, &head, NULL), STATUS_OK);
  assert_int_equal(again.forgotten.count, 2);
  assert_int_equal(read.count, 2);
  assert_int_equal(head.n_turns, 2);
  assert_memory_equal(read.messages[1].text.data, "new", 3);
  kept_release(&kept);
  kept_release(&again);
  conversation_head_release(&head);
  conversation_release(&c);
  conversation_release(&read);
}

/* A conversation whose turns are all forgotten still has them in its file, which goes only when no turn is
 * left. */
TEST(a_chat_of_forgotten_turns_alone_stays) {
  for (int with_system = 0; with_system < 2; with_system++) {
    KeptChat kept = {0}, again = {0};
    Conversation c = {0}, read = {0};
    ConversationHead head = {0};
    const size_t before = count_chats();
    begin(&c, "all forgotten");
    if (with_system) assert_int_equal(conversation_set_system(&c, "Be kind.", 8, NULL), STATUS_OK);
    const size_t leading = (size_t)with_system;
    keep(&kept, &c);
    assert_int_equal(conversation_append(&kept.forgotten, &c, leading, leading + 2, NULL), STATUS_OK);
    conversation_drop(&c, leading, 2);
    assert_false(keep(&kept, &c));
    assert_int_equal(count_chats(), before + 1);
    assert_non_null(kept.path);
    assert_int_equal(kept_open("all-forgotten", &again, &read, &head, NULL), STATUS_OK);
    assert_string_equal(again.path, kept.path);
    assert_int_equal(read.count, leading);
    assert_int_equal(again.forgotten.count, 2);
    assert_memory_equal(again.forgotten.messages[0].text.data, "all forgotten", 13);
    assert_int_equal(head.n_turns, 1);
    assert_int_equal(conversation_add(&read, ROLE_USER, "new", 3, NULL), STATUS_OK);
    assert_false(keep(&again, &read));
    assert_int_equal(count_messages("all-forgotten"), leading + 1);
    conversation_truncate(&again.forgotten, 0);
    conversation_truncate(&read, leading);
    assert_false(keep(&again, &read));
    assert_int_equal(count_chats(), before);
    kept_release(&kept);
    kept_release(&again);
    conversation_head_release(&head);
    conversation_release(&c);
    conversation_release(&read);
  }
}

TEST(parts_of_names_must_be_unique) {
  Conversation c = {0};
  KeptChat a = {0}, b = {0};
  Error err;
  char *path;
  begin(&c, "apples red");
  keep(&a, &c);
  /* Both files could otherwise have the same time: a clock of files moves in steps of some milliseconds. */
  assert_int_equal(utimensat(AT_FDCWD, a.path, (const struct timespec[]){{1, 0}, {1, 0}}, 0), 0);
  begin(&c, "apples green");
  keep(&b, &c);
  assert_int_equal(kept_find("red", false, &path, &err), STATUS_OK);
  assert_string_equal(path, a.path);
  free(path);
  assert_int_equal(kept_find(NULL, false, &path, &err), STATUS_OK); /* the last one */
  assert_string_equal(path, b.path);
  free(path);
  assert_int_equal(kept_find("apples", false, &path, &err), STATUS_USAGE);
  assert_non_null(strstr(err.text, "\"apples\" is part of the names of 2 chats: "));
  assert_int_equal(kept_find("red", true, &path, &err), STATUS_USAGE);
  assert_non_null(strstr(err.text, "did you mean "));
  assert_int_equal(kept_find("", false, &path, &err), STATUS_USAGE);
  assert_string_equal(err.text, "there is no chat named \"\" (auk chats lists them)");
  assert_int_equal(kept_find("../history", false, &path, &err), STATUS_USAGE);
  assert_string_equal(err.text, "there is no chat named \"../history\" (auk chats lists them)");
  kept_release(&a);
  kept_release(&b);
  conversation_release(&c);
}

/* Three names are shown, and that there are more where there are. */
TEST(names_that_are_not_shown_are_hinted_at) {
  Conversation c = {0};
  Error err;
  char *path;
  for (int n = 1; n <= 4; n++) {
    char title[20];
    KeptChat kept = {0};
    snprintf(title, sizeof title, "pears %d", n);
    begin(&c, title);
    keep(&kept, &c);
    kept_release(&kept);
    if (n < 3) continue;
    assert_int_equal(kept_find("pears", false, &path, &err), STATUS_USAGE);
    assert_int_equal(strstr(err.text, ", ...") != NULL, n > 3);
  }
  conversation_release(&c);
}

/* The time of a file that another program wrote is taken if it has room; else it is that of the next save. */
TEST(a_time_that_is_too_long_is_none) {
  static const char *const times[] = {"2026-11-22T15:10:00.00Z", "2026-11-22T15:10:00.000Z"};
  for (int i = 0; i < 2; i++) {
    KeptChat kept = {0}, again = {0};
    Conversation c = {0};
    ConversationHead head = {.model = (char *)"m", .began = (char *)times[i]};
    Buffer text = {0};
    Error err;
    begin(&c, i ? "too long" : "long");
    keep(&kept, &c);
    assert_int_equal(conversation_write(&c, &head, &text, &err), STATUS_OK);
    FILE *file = fopen(kept.path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text.data, 1, text.size, file), text.size);
    assert_int_equal(fclose(file), 0);
    conversation_release(&c);
    head = (ConversationHead){0};
    const char *name = strrchr(kept.path, '/') + 1;
    char part[80];
    snprintf(part, sizeof part, "%.*s", (int)(strlen(name) - 5), name);
    assert_int_equal(kept_open(part, &again, &c, &head, &err), STATUS_OK);
    assert_string_equal(again.began, i ? "" : times[i]);
    assert_int_equal(c.count, 2);
    conversation_head_release(&head);
    conversation_release(&c);
    kept_release(&kept);
    kept_release(&again);
    buffer_release(&text);
  }
}

/* A title has more words than the name, and its own case of letters. */
TEST(a_chat_is_found_by_its_title) {
  Conversation c = {0};
  KeptChat ship = {0}, sail = {0};
  Error err;
  char *path;
  begin(&c, "Write a very long story about a Ship");
  keep(&ship, &c);
  begin(&c, "Describe the colour of the sails of a ship and a boat, in the light of\nan early  MORNING");
  keep(&sail, &c);
  assert_int_equal(kept_find("of an early morning", false, &path, &err),
                   STATUS_OK); /* beyond what lists have */
  assert_string_equal(path, sail.path);
  free(path);
  assert_int_equal(kept_find("a ship and", false, &path, &err), STATUS_OK);
  assert_string_equal(path, sail.path);
  free(path);
  assert_int_equal(kept_find("about a ship", false, &path, &err), STATUS_OK);
  assert_string_equal(path, ship.path);
  free(path);
  assert_int_equal(kept_find("ship", false, &path, &err), STATUS_USAGE);
  assert_non_null(strstr(err.text, "\"ship\" is part of the titles of 2 chats: "));
  assert_int_equal(kept_find("about a ship", true, &path, &err), STATUS_USAGE);
  assert_non_null(strstr(err.text, "did you mean "));
  assert_int_equal(kept_find("about a shop", false, &path, &err), STATUS_USAGE);
  assert_string_equal(err.text,
                      "there is no chat named \"about a shop\" (auk chats lists them; a prompt follows -p)");
  kept_release(&ship);
  kept_release(&sail);
  conversation_release(&c);
}

/* A link may lead to a file that is not the user's: neither it nor a folder is a chat. */
TEST(only_files_are_chats) {
  Conversation c = {0};
  KeptChat kept = {0};
  Error err;
  Buffer link = {0};
  char *path;
  begin(&c, "Linked to");
  keep(&kept, &c);
  const size_t n = count_chats();
  const int folder = (int)(strrchr(kept.path, '/') - kept.path);
  assert_int_equal(buffer_printf(&link, &err, "%.*s/elsewhere.json%c", folder, kept.path, 0), STATUS_OK);
  assert_int_equal(symlink(kept.path, link.data), 0);
  assert_int_equal(count_chats(), n);
  assert_int_equal(kept_find("elsewhere", false, &path, &err), STATUS_USAGE);
  assert_int_equal(unlink(link.data), 0);
  assert_int_equal(mkdir(link.data, 0700), 0);
  assert_int_equal(count_chats(), n);
  assert_int_equal(rmdir(link.data), 0);
  buffer_release(&link);
  kept_release(&kept);
  conversation_release(&c);
}

TEST(no_place_is_a_line) {
  Conversation c = {0};
  KeptChat kept = {0};
  Error err;
  bool moved;
  char *path;
  begin(&c, "nowhere");
  assert_int_equal(setenv("XDG_STATE_HOME", "/dev/null", 1), 0);
  assert_int_equal(kept_save(&kept, &c, of_m, &moved, &err), STATUS_FAILED);
  assert_string_equal(err.text, "/dev/null/auk/chats: cannot make the directory: File exists");
  assert_int_equal(unsetenv("XDG_STATE_HOME"), 0);
  assert_int_equal(unsetenv("HOME"), 0);
  assert_int_equal(kept_save(&kept, &c, of_m, &moved, &err), STATUS_FAILED);
  assert_string_equal(err.text, "neither XDG_STATE_HOME nor HOME names a place for chats");
  assert_int_equal(kept_find(NULL, false, &path, &err), STATUS_USAGE);
  assert_non_null(strstr(err.text, "there is no chat to go on with: auk chat begins one"));
  assert_int_equal(setenv("XDG_STATE_HOME", own_directory, 1), 0);
  kept_release(&kept);
  conversation_release(&c);
}

static CMFixtureFunction before_all = make_place, after_all = remove_own_directory;
