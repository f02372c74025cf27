/* test_console.c - signals and keys that come at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "terminal/console.h"

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

/* Keys that follow Ctrl-C belong to the line after the one that it drops. */
static void an_interrupt_comes_before_the_keys_behind_it(void **state) {
  (void)state;
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

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(an_interrupt_comes_before_the_keys_behind_it)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
