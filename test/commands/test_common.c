/* test_common.c - what every command shares: interruptions, seeds, notes, which terminals take escapes. */
#include <signal.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commands/common.h"
#include "test/standard_streams.h"
#include "test/tests.h"

static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};

/* A process that the first signal interrupts and the second one ends: how it ended. */
static int interrupt_twice(int first, int second, bool ignores_hangups) {
  pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 3; i++) signal(numbers[i], SIG_DFL);
    if (ignores_hangups) signal(SIGHUP, SIG_IGN);
    const volatile int *interrupted = interrupt_catch();
    if (*interrupted || interrupt_came()) _exit(1);
    raise(first);
    if (!*interrupted || !interrupt_came()) _exit(2);
    raise(second);
    _exit(3);
  }
  int how;
  assert_int_equal(waitpid(child, &how, 0), child);
  return how;
}

TEST(the_first_interruption_is_told_and_the_second_ends_the_program) {
  for (int a = 0; a < 3; a++)
    for (int b = 0; b < 3; b++) {
      int how = interrupt_twice(numbers[a], numbers[b], false);
      assert_true(WIFSIGNALED(how));
      assert_int_equal(WTERMSIG(how), numbers[b]);
    }
}

/* As nohup starts a program. */
TEST(a_hangup_that_was_ignored_is_ignored) {
  int how = interrupt_twice(SIGHUP, SIGHUP, true);
  assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 2); /* it was not interrupted */
  how = interrupt_twice(SIGINT, SIGHUP, true);
  assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 3);
}

/* JSON's numbers are doubles for many of its readers. */
TEST(random_seeds_have_53_bits) {
  uint64_t all = 0, seeds[64];
  for (int i = 0; i < 64; i++) {
    assert_int_equal(random_seed(&seeds[i], NULL), STATUS_OK);
    all |= seeds[i];
    if (i) assert_true(seeds[i] != seeds[i - 1]);
  }
  assert_true(all == (UINT64_C(1) << 53) - 1); /* each bit is set in one of 64, but for one time of 10^17 */
}

TEST(a_note_is_one_line_that_steers_nothing) {
  tell_begin();
  print_note("%s: %d", "a\033[2J\nb", 3);
  assert_string_equal(note_end(), "auk: a?[2J?b: 3\n");
}

TEST(a_command_tells_its_failure_once) {
  static const struct {
    Status status;
    const char *text, *told;
  } cases[] = {{STATUS_OK, "x", ""},
               {STATUS_FAILED, "x", "auk: x\n"},
               {STATUS_USAGE, "x", "auk: x\n"},
               {STATUS_MODEL, "x", "auk: x\n"},
               {STATUS_CUT_SHORT, "x", "auk: x\n"},
               {STATUS_CHOICE, "", ""},
               {STATUS_INTERRUPTED, "x", ""},
               {STATUS_PIPE, "x", ""},
               {STATUS_FAILED, "", ""}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Error err;
    snprintf(err.text, sizeof err.text, "%s", cases[i].text);
    tell_begin();
    int status = command_finish(cases[i].status, &err);
    assert_string_equal(note_end(), cases[i].told);
    assert_int_equal(status, cases[i].status);
  }
}

TEST(terminals_take_escapes_unless_they_are_dumb) {
  int terminal = posix_openpt(O_RDWR | O_NOCTTY), ends[2];
  assert_true(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0 && pipe(ends) == 0);
  int other = open(ptsname(terminal), O_RDWR | O_NOCTTY);
  static const char *const names[] = {"xterm", "dumb", "", "dumber"};
  for (int i = 0; i < 4; i++) {
    setenv("TERM", names[i], 1);
    assert_int_equal(terminal_takes_escapes(other), i == 0 || i == 3);
    assert_false(terminal_takes_escapes(ends[1]));
  }
  unsetenv("TERM");
  assert_false(terminal_takes_escapes(other));
  close(ends[0]);
  close(ends[1]);
  close(other);
  close(terminal);
}

TEST(standard_streams_are_no_files) {
  Error err = {{0}};
  assert_int_equal(file_name_check("/save", NULL, NULL), STATUS_OK);
  assert_int_equal(file_name_check("/save", "./-", NULL), STATUS_OK);
  assert_int_equal(file_name_check("/save", "--", NULL), STATUS_OK);
  assert_int_equal(file_name_check("/save", "-", &err), STATUS_USAGE);
  assert_string_equal(err.text, "/save is \"-\", expected a file (one of this name: ./-)");
}
