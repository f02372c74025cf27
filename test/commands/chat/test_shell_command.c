/* test_shell_command.c - a command whose output is read: it ends with its shell, and interrupts reach it. */
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "commands/chat/shell_command.h"
#include "test/tests.h"

/* Runs it; the output without its last newline is in `out`. */
static double run(const char *command, int *how, Buffer *out) {
  const double start = clock_ms();
  const ShellOptions options = {.output = out, .most = 1 << 16};
  Error err;
  out->size = 0;
  assert_int_equal(shell_command(command, &options, how, &err), STATUS_OK);
  assert_int_equal(buffer_append(out, "", 1, &err), STATUS_OK);
  out->data[strcspn(out->data, "\n")] = 0;
  return clock_ms() - start;
}

/* Sends this process an interrupt after each of n times; the process that does so is to be waited for. */
static pid_t interrupt_after(int n, int ms) {
  const pid_t self = getpid(), child = fork();
  if (child) return child;
  for (int i = 0; i < n; i++) {
    usleep((useconds_t)ms * 1000);
    kill(self, SIGINT);
  }
  _exit(0);
}

TEST(it_ends_with_its_shell) {
  Buffer out = {0};
  int how;
  assert_true(run("(sleep 20 &); echo ok", &how, &out) < 5000);
  assert_string_equal(out.data, "ok");
  assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
  run("exec >&-; sleep 0.2; exit 7", &how, &out); /* and not before */
  assert_int_equal(WEXITSTATUS(how), 7);
  run("(sleep 0.04; echo late) & :", &how, &out); /* last words */
  assert_string_equal(out.data, "late");
  run("printf %s \"$(yes | head -c 50000)\" | tr -d '\\n'", &how, &out); /* more than a pipe takes at once */
  assert_int_equal(strlen(out.data), 25000);
  buffer_release(&out);
}

TEST(the_first_interrupt_is_the_command_s) {
  Buffer out = {0};
  int how;
  const pid_t other = interrupt_after(1, 300);
  run("trap 'echo caught; exit 3' INT; while :; do sleep 0.05; done", &how, &out);
  assert_string_equal(out.data, "caught");
  assert_int_equal(WEXITSTATUS(how), 3);
  waitpid(other, NULL, 0);
  buffer_release(&out);
}

/* All that the command has begun is killed with it. */
TEST(the_second_interrupt_ends_all) {
  Buffer out = {0};
  int how;
  const pid_t other = interrupt_after(2, 300);
  assert_true(run("trap '' INT TERM; echo $$; sleep 20; echo done", &how, &out) < 5000);
  assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
  const pid_t group = atoi(out.data);
  assert_true(group > 1);
  for (int i = 0; i < 200 && kill(-group, 0) == 0; i++) {
    while (waitpid(-group, NULL, WNOHANG) > 0) continue;
    usleep(10000);
  }
  assert_int_not_equal(kill(-group, SIGKILL), 0);
  waitpid(other, NULL, 0);
  buffer_release(&out);
}

/* A command may ask the user, in a chat that has the terminal before and afterwards. */
TEST(a_command_may_read_the_terminal) {
  const int screen = posix_openpt(O_RDWR | O_NOCTTY);
  assert_true(screen >= 0 && grantpt(screen) == 0 && unlockpt(screen) == 0);
  const pid_t child = fork();
  if (child == 0) {
    Buffer out = {0};
    const ShellOptions options = {.output = &out, .most = 1 << 16};
    Error err;
    int how, terminal;
    setsid();
    if ((terminal = open(ptsname(screen), O_RDWR)) < 0) _exit(9); /* it becomes the controlling one */
    if (shell_command("read a </dev/tty; printf %s \"$a\"", &options, &how, &err) != STATUS_OK) _exit(8);
    if (out.size != 3 || memcmp(out.data, "yes", 3) != 0) _exit(7);
    _exit(tcgetpgrp(terminal) == getpgrp() ? 0 : 6);
  }
  int how = -1;
  assert_int_equal(write(screen, "yes\n", 4), 4);
  for (int i = 0; i < 1000 && waitpid(child, &how, WNOHANG) == 0; i++) usleep(10000);
  kill(child, SIGKILL);
  assert_true(WIFEXITED(how));
  assert_int_equal(WEXITSTATUS(how), 0);
  close(screen);
}

/* Processes that a command leaves running become children of this one. */
static int adopt_orphans(void **state) {
  return prctl(PR_SET_CHILD_SUBREAPER, 1);
}

static CMFixtureFunction before_all = adopt_orphans;
