/* test_console.c - the terminal's settings and signals while a person chats, and signals and keys that
 * come at once. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>

#include "terminal/console.h"
#include "test/tests.h"

static int comes_late; /* the signal whose handler runs when poll() has looked at the keys; 0: none */

/* In place of the C library's: as the kernel returns what was ready, and runs handlers on the way back. */
int poll(struct pollfd *files, nfds_t n, int timeout_ms) {
  struct timespec limit = {timeout_ms / 1000, timeout_ms % 1000 * 1000000};
  int n_ready = (int)syscall(SYS_ppoll, files, n, timeout_ms < 0 ? NULL : &limit, NULL, 0);
  int number = comes_late;
  comes_late = 0;
  if (number) raise(number);
  return n_ready;
}

static int open_terminal(void) {
  int main_side = posix_openpt(O_RDWR | O_NOCTTY);
  assert_true(main_side >= 0);
  assert_int_equal(grantpt(main_side), 0);
  assert_int_equal(unlockpt(main_side), 0);
  int terminal = open(ptsname(main_side), O_RDWR | O_NOCTTY);
  assert_true(terminal >= 0);
  assert_int_equal(dup2(terminal, STDIN_FILENO), STDIN_FILENO);
  close(terminal);
  return main_side;
}

static tcflag_t local_modes(void) {
  struct termios now;
  assert_int_equal(tcgetattr(STDIN_FILENO, &now), 0);
  return now.c_lflag;
}

TEST(an_answer_has_no_echo_and_the_rest_stays) {
  int main_side = open_terminal();
  struct termios found;
  assert_int_equal(tcgetattr(STDIN_FILENO, &found), 0);
  found.c_lflag |= ECHONL;
  assert_int_equal(tcsetattr(STDIN_FILENO, TCSANOW, &found), 0);
  assert_int_equal(console_begin(STDIN_FILENO, true, NULL), STATUS_OK);
  assert_int_equal(local_modes(), found.c_lflag);
  for (int round = 0; round < 2; round++) {
    console_mode(CONSOLE_ANSWERING);
    assert_int_equal(local_modes(), (found.c_lflag & ~(tcflag_t)(ECHO | ECHONL | ICANON)) | NOFLSH);
    console_mode(CONSOLE_IDLE);
    assert_int_equal(local_modes(), found.c_lflag);
  }
  console_mode(CONSOLE_ANSWERING);
  console_end();
  assert_int_equal(local_modes(), found.c_lflag);
  console_mode(CONSOLE_ANSWERING); /* it has no terminal any more */
  assert_int_equal(local_modes(), found.c_lflag);
  close(main_side);
}

static void on_any(int number) {
  (void)number;
}

TEST(signals_and_descriptors_are_given_back) {
  static const int numbers[] = {SIGINT,  SIGTERM, SIGHUP,  SIGWINCH, SIGTSTP, SIGCONT,
                                SIGQUIT, SIGABRT, SIGSEGV, SIGBUS,   SIGILL,  SIGFPE};
  enum { N = sizeof numbers / sizeof *numbers };
  int main_side = open_terminal(), next = dup(STDIN_FILENO);
  struct sigaction now, before[N], ours = {.sa_handler = on_any};
  close(next);
  for (int i = 0; i < N; i++) sigaction(numbers[i], &ours, &before[i]);
  assert_int_equal(console_begin(STDIN_FILENO, true, NULL), STATUS_OK);
  for (int i = 0; i < N; i++) {
    sigaction(numbers[i], NULL, &now);
    assert_true(now.sa_handler != on_any);
  }
  assert_true(fcntl(next, F_GETFD) & FD_CLOEXEC);
  console_end();
  for (int i = 0; i < N; i++) {
    sigaction(numbers[i], &before[i], &now);
    assert_true(now.sa_handler == on_any);
  }
  const int again = dup(STDIN_FILENO);
  assert_int_equal(again, next); /* neither end of the pipe is left open */
  assert_int_equal(fcntl(next + 1, F_GETFD), -1);
  close(again);
  close(main_side);
}

/* nohup ignores SIGHUP, a shell without jobs SIGTSTP; another that was ignored is taken all the same. */
TEST(what_was_ignored_on_purpose_stays_ignored) {
  static const int numbers[] = {SIGHUP, SIGTSTP, SIGINT};
  int main_side = open_terminal();
  for (int i = 0; i < 3; i++) signal(numbers[i], SIG_IGN);
  assert_int_equal(console_begin(STDIN_FILENO, true, NULL), STATUS_OK);
  for (int i = 0; i < 3; i++) {
    struct sigaction now;
    sigaction(numbers[i], NULL, &now);
    assert_int_equal(now.sa_handler == SIG_IGN, i < 2);
  }
  console_end();
  for (int i = 0; i < 3; i++) signal(numbers[i], SIG_DFL);
  close(main_side);
}

TEST(events_come_one_by_one) {
  int main_side = open_terminal();
  assert_int_equal(console_begin(STDIN_FILENO, true, NULL), STATUS_OK);
  console_mode(CONSOLE_EDITING);
  assert_int_equal(write(main_side, "key\n", 4), 4);
  raise(SIGWINCH);
  raise(SIGCONT);
  raise(SIGINT);
  assert_int_equal(*console_interrupted(), 1);
  assert_int_equal(console_wait(), CONSOLE_INTERRUPT);
  assert_int_equal(*console_interrupted(), 0);
  assert_int_equal(console_wait(), CONSOLE_RESUMED);
  assert_int_equal(console_wait(), CONSOLE_RESIZED);
  assert_int_equal(console_wait(), CONSOLE_KEYS);
  assert_int_equal(console_wait(), CONSOLE_KEYS); /* they were not read */
  raise(SIGINT);
  raise(SIGINT);
  assert_int_equal(*console_interrupted(), 2);
  console_attend();
  assert_int_equal(*console_interrupted(), 0);
  assert_int_equal(console_wait(), CONSOLE_KEYS); /* what was attended to is no event any more */
  console_mode(CONSOLE_ANSWERING);
  struct termios other;
  tcgetattr(STDIN_FILENO, &other);
  other.c_lflag |= ECHO;
  tcsetattr(STDIN_FILENO, TCSANOW, &other);
  raise(SIGCONT); /* the shell has changed the terminal */
  assert_false(local_modes() & ECHO);
  assert_int_equal(console_wait(), CONSOLE_RESUMED);
  console_end();
  close(main_side);
}

/* How a child ends that is given these signals: its exit status, or minus the signal that it died of. */
static int end_by(const int *numbers, int n) {
  int status;
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    /* A shell script's background job inherits them ignored. */
    signal(SIGINT, SIG_DFL), signal(SIGQUIT, SIG_DFL);
    int main_side = open_terminal();
    if (console_begin(STDIN_FILENO, false, NULL) != STATUS_OK) _exit(99);
    console_mode(CONSOLE_ANSWERING);
    for (int i = 0; i < n; i++) {
      raise(numbers[i]);
      if (i == 0 && !*console_interrupted()) _exit(98);
      if (numbers[i] == SIGTERM || numbers[i] == SIGHUP) console_attend();
    }
    if (!(local_modes() & ECHO)) console_attend();
    const int left = *console_interrupted();
    if (console_leaving() != (left != 0)) _exit(97);
    const ConsoleEvent event = console_leaving() ? console_wait() : CONSOLE_IDLE;
    if (console_leaving() && event != CONSOLE_LEAVE) _exit(96);
    close(main_side);
    _exit(console_leaving());
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(a_third_interruption_and_a_second_request_end_the_program) {
  static const int interrupts[] = {SIGINT, SIGINT, SIGINT}, ends[] = {SIGTERM, SIGTERM},
                   hangups[] = {SIGHUP, SIGHUP}, mixed[] = {SIGHUP, SIGTERM}, quit[] = {SIGQUIT};
  assert_int_equal(end_by(interrupts, 2), 0);
  assert_int_equal(end_by(interrupts, 3), -SIGINT);
  assert_int_equal(end_by(ends, 1), 1);
  assert_int_equal(end_by(ends, 2), -SIGTERM);
  assert_int_equal(end_by(hangups, 1), 1);
  assert_int_equal(end_by(hangups, 2), -SIGHUP);
  assert_int_equal(end_by(mixed, 2), -SIGTERM);
  assert_int_equal(end_by(quit, 1), -SIGQUIT);
}

TEST(a_screen_that_says_no_size_has_80_by_24) {
  static const unsigned short sizes[][4] = {/* rows, columns; what is taken for them */
                                            {0, 0, 24, 80},     {1, 1, 1, 80},     {1, 2, 1, 2},
                                            {50, 132, 50, 132}, {0, 100, 24, 100}, {2, 0, 2, 80}};
  int main_side = open_terminal();
  assert_int_equal(console_begin(STDIN_FILENO, true, NULL), STATUS_OK);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    struct winsize size = {.ws_row = sizes[i][0], .ws_col = sizes[i][1]};
    assert_int_equal(ioctl(main_side, TIOCSWINSZ, &size), 0);
    assert_int_equal(console_rows(), sizes[i][2]);
    assert_int_equal(console_columns(), sizes[i][3]);
  }
  console_end();
  close(main_side);
}

/* Keys that follow Ctrl-C belong to the line after the one that it drops. The last test: it leaves. */
TEST(an_interrupt_comes_before_the_keys_behind_it) {
  int main_side = open_terminal();
  Error err;
  assert_int_equal(console_begin(STDIN_FILENO, true, &err), STATUS_OK);
  console_mode(CONSOLE_EDITING);
  comes_late = SIGINT;
  assert_int_equal(write(main_side, "next\n", 5), 5);
  assert_int_equal(console_wait(), CONSOLE_INTERRUPT);
  assert_int_equal(console_wait(), CONSOLE_KEYS);
  comes_late = SIGTERM;
  assert_int_equal(console_wait(), CONSOLE_LEAVE);
  console_end();
  close(main_side);
}
