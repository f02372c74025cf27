/* test_prompt.c - where the text of a prompt comes from, and how -p stands around it: against a plain search
 * for places, for random patterns. */
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "commands/answer/prompt.h"
#include "test/directory.h"
#include "test/standard_streams.h"
#include "test/tests.h"

static int awaited_ms = -1, n_ready = 1; /* of the last poll() */

/* In place of the C library's: what it is asked, and an answer at once. */
int poll(struct pollfd *files, nfds_t n, int timeout) {
  assert_int_equal(n, 1);
  assert_int_equal(files->fd, STDIN_FILENO);
  awaited_ms = timeout;
  return n_ready;
}

static void put_file(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(text, file);
  assert_int_equal(fclose(file), 0);
}

/* The prompt that -p TEXT and a file make. */
static void join(const char *text, const char *file, Buffer *out) {
  const char *path = in_directory(own_directory, "text");
  PromptFlags flags = {.texts = {.items = &text, .count = text != NULL}};
  Prompt prompt = {0};
  Error err = {{0}};
  if (file) put_file(path, file);
  if (file) assert_int_equal(string_list_add(&flags.files, path, NULL), STATUS_OK);
  if (prompt_read(&flags, &prompt, &err) != STATUS_OK) fail_msg("%s", err.text);
  assert_int_equal(
      prompt_join(&prompt, prompt.input.data ? prompt.input.data : "", prompt.input.size, out, NULL),
      STATUS_OK);
  assert_int_equal(buffer_append(out, "", 1, NULL), STATUS_OK);
  prompt_release(&prompt);
  string_list_release(&flags.files);
}

static void put_char(char *text, char c) {
  text += strlen(text);
  text[0] = c;
  text[1] = 0;
}

/* The reference, as prompt.h says it, by two passes: one that looks for a place, one that writes. */
static void plain_join(const char *text, const char *file, char *out) {
  bool has_place = false;
  *out = 0;
  for (int pass = 0; pass < 2; pass++) {
    if (pass && !has_place) strcat(strcat(out, file), *file ? "\n" : "");
    for (const char *at = text; *at;) {
      if (strncmp(at, "{{}}", 4) == 0) {
        if (pass) strcat(out, "{}");
        at += 4;
      } else if (strncmp(at, "{}", 2) == 0) {
        has_place = true;
        if (pass) strcat(out, file);
        at += 2;
      } else {
        if (pass) put_char(out, *at);
        at++;
      }
    }
  }
}

TEST(text_takes_the_place_of_braces) {
  uint64_t random = 1;
  put_input("", 0);
  for (int c = 0; c < 400; c++) {
    char text[16] = "", want[200];
    for (uint32_t n = random_below(&random, 12); n > 0; n--)
      put_char(text, "{}{}x"[random_below(&random, 5)]);
    const char *file = c % 5 == 0 ? "" : c % 3 ? "{}" : "ab";
    Buffer got = {0};
    if (!*text && !*file) continue; /* nothing at all is no prompt */
    plain_join(text, file, want);
    join(text, file, &got);
    if (strcmp(got.data, want) != 0) fail_msg("\"%s\": \"%s\", expected \"%s\"", text, got.data, want);
    buffer_release(&got);
    if (!*text) continue;
    join(text, NULL, &got); /* alone it is what it is */
    assert_string_equal(got.data, text);
    buffer_release(&got);
  }
}

/* The prompts of one call do not depend on one another: each is what the call makes of it alone. */
TEST(each_of_several_prompts_is_what_it_is_alone) {
  static const char *const named[] = {NULL, "name", "name {}"}, *const texts[] = {"x", "", "y {}"};
  enum { N = sizeof texts / sizeof *texts };
  put_input("", 0);
  for (size_t c = 0; c < sizeof named / sizeof *named * N * N; c++) {
    const char *both[] = {texts[c / N % N], texts[c % N]}, *name = named[c / N / N];
    Buffer alone = {0}, together = {0};
    Status status = STATUS_OK;
    PromptFlags flags = {.name = name, .named = {.data = (char *)name}};
    for (int i = 0; i < 2 && !status; i++) {
      flags.texts = (StringList){.items = &both[i], .count = 1};
      status = prompt_read_all(&flags, &alone, NULL);
    }
    flags.texts = (StringList){.items = both, .count = 2};
    assert_int_equal(prompt_read_all(&flags, &together, NULL), status);
    if (!status && (alone.size != together.size || memcmp(alone.data, together.data, alone.size) != 0))
      fail_msg("-P \"%s\" -p \"%s\" -p \"%s\": \"%s\" and \"%s\"", name ? name : "", both[0], both[1],
               together.data, together.data + strlen(together.data) + 1);
    buffer_release(&alone);
    buffer_release(&together);
  }
}

/* --- standard input that was not named */

typedef enum { FROM_FILE, FROM_PIPE, FROM_SOCKET, FROM_DEVICE, FROM_NOWHERE } Source;

static void connect_input(Source source) {
  int ends[2] = {-1, -1};
  put_input("x\n", 2);
  if (source == FROM_PIPE) assert_int_equal(pipe(ends), 0);
  if (source == FROM_SOCKET) assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  if (source == FROM_DEVICE) ends[0] = open("/dev/null", O_RDWR);
  if (source == FROM_NOWHERE) ends[0] = open("/dev/null", O_WRONLY);
  if (ends[1] >= 0) assert_int_equal(write(ends[1], "x\n", 2), 2);
  if (ends[1] >= 0) close(ends[1]);
  if (ends[0] >= 0) dup2(ends[0], STDIN_FILENO);
  if (ends[0] >= 0) close(ends[0]);
}

TEST(what_a_shell_connects_on_purpose_is_read) {
  static const struct {
    Source source;
    bool counts, counts_alone, is_awaited;
  } cases[] = {{FROM_FILE, true, true, true},
               {FROM_PIPE, true, true, true},
               {FROM_SOCKET, true, true, true},
               {FROM_DEVICE, false, true, true},
               {FROM_NOWHERE, false, false, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *text = "-p";
    PromptFlags beside = {.texts = {.items = &text, .count = 1}}, alone = {0};
    Prompt prompt = {0};
    connect_input(cases[i].source);
    assert_true(prompt_is_given(&beside));
    assert_int_equal(prompt_is_given(&alone), cases[i].counts_alone);
    assert_int_equal(prompt_read(&beside, &prompt, NULL), STATUS_OK);
    if (cases[i].counts) assert_string_equal(prompt.frame, "-p");
    if (!cases[i].counts) assert_null(prompt.frame);
    assert_int_equal(prompt.input.size, cases[i].counts ? 1 : 2);
    prompt_release(&prompt);
    connect_input(cases[i].source);
    awaited_ms = -1;
    Status status = prompt_read(&alone, &prompt, NULL);
    assert_int_equal(status, cases[i].counts ? STATUS_OK : STATUS_USAGE);
    assert_int_equal(awaited_ms >= 0, cases[i].is_awaited);
    prompt_release(&prompt);
  }
}

/* The hint that standard input is read comes soon on a terminal, late in a log, and not at all if a flag
 * names standard input. */
TEST(what_is_awaited_for_long_is_told) {
  const char *text = "-p";
  PromptFlags flags = {.texts = {.items = &text, .count = 1}};
  for (n_ready = 0; n_ready < 2; n_ready++) {
    Prompt prompt = {0};
    connect_input(FROM_PIPE);
    tell_begin();
    assert_int_equal(prompt_read(&flags, &prompt, NULL), STATUS_OK);
    assert_string_equal(
        note_end(), n_ready ? "" : "auk: waiting for standard input to end (`< /dev/null` goes without)\n");
    assert_int_equal(awaited_ms, 10000);
    prompt_release(&prompt);
  }
  n_ready = 1;
  int terminal = posix_openpt(O_RDWR | O_NOCTTY), before = dup(STDERR_FILENO);
  assert_true(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
  int other = open(ptsname(terminal), O_RDWR | O_NOCTTY);
  Prompt prompt = {0};
  connect_input(FROM_PIPE);
  dup2(other, STDERR_FILENO);
  Status status = prompt_read(&flags, &prompt, NULL);
  dup2(before, STDERR_FILENO);
  close(before);
  close(other);
  close(terminal);
  assert_int_equal(status, STATUS_OK);
  assert_int_equal(awaited_ms, 2000);
  prompt_release(&prompt);
  connect_input(FROM_PIPE);
  awaited_ms = -1;
  assert_int_equal(string_list_add(&flags.files, "-", NULL), STATUS_OK);
  assert_int_equal(prompt_read(&flags, &prompt, NULL), STATUS_OK);
  assert_int_equal(awaited_ms, -1);
  prompt_release(&prompt);
  string_list_release(&flags.files);
}

static CMFixtureFunction before_all = make_own_directory, after_all = remove_own_directory;
