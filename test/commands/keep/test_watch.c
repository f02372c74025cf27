/* test_watch.c - when a process at the other end counts as silent. */
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "commands/keep/watch.h"
#include "test/tests.h"

enum { MOST_MS = 30000 };

/* A watch of this process, which computes, as one that began so long ago. */
static Watch watch_own(double began_ms, double since_ms) {
  int sockets[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  Watch watch = watch_begin(sockets[0]);
  close(sockets[0]);
  close(sockets[1]);
  assert_int_equal(watch.pid, getpid());
  watch.begin_ms -= began_ms;
  watch.since_ms -= since_ms;
  return watch;
}

TEST(one_that_computes_is_waited_for_to_a_limit) {
  Watch watch = watch_own(0, 0);
  assert_false(watch_is_silent(&watch, MOST_MS));
  watch = watch_own(3000, 3000);
  assert_false(watch_is_silent(&watch, MOST_MS));
  assert_true(clock_ms() - watch.since_ms < 1000); /* it was seen to compute */
  watch = watch_own(MOST_MS + 1000, 3000);
  assert_true(watch_is_silent(&watch, MOST_MS));
  watch = watch_own(MOST_MS + 1000, 3000);
  assert_false(watch_is_silent(&watch, 0)); /* without a limit */
  watch = watch_own(MOST_MS + 1000, 1000);
  assert_false(watch_is_silent(&watch, MOST_MS)); /* it was heard of a moment ago */
}

TEST(one_that_sleeps_or_is_stopped_is_silent) {
  for (int stopped = 0; stopped < 2; stopped++) {
    int status;
    const pid_t child = fork();
    if (child == 0) {
      if (stopped) raise(SIGSTOP);
      for (;;) pause();
    }
    if (stopped) assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    Watch watch = {.pid = child}; /* its progress is of long ago */
    assert_int_equal(watch_is_silent(&watch, 0), stopped);
    assert_int_equal(process_is_stopped(child), stopped);
    const double began = clock_ms();
    do { /* it sleeps once it has begun */
      assert_true(clock_ms() - began < 5000);
      watch.since_ms -= 3000;
    } while (!watch_is_silent(&watch, 0));
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
  }
  Watch none = {.pid = 0}; /* another user's, which cannot be seen */
  assert_true(watch_is_silent(&none, 0));
}

/* A connection that has ended owes nothing. */
TEST(who_has_gone_is_not_waited_for) {
  int sockets[2];
  WireKind kind;
  const char *body;
  size_t size;
  Error err;
  for (int read_before = 0; read_before < 2; read_before++) {
    bool came = true, silent = true;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    Wire wire = wire_on(sockets[0]);
    close(sockets[1]);
    if (read_before) assert_int_equal(wire_receive(&wire, &err), STATUS_OK);
    assert_int_equal(wire_await(&wire, &kind, &body, &size, &came, read_before ? NULL : &silent, &err),
                     STATUS_OK);
    assert_false(came);
    assert_int_equal(silent, read_before);
    wire_close(&wire);
  }
}

TEST(what_it_computes_is_seen) {
  Watch watch = watch_own(0, 0);
  const unsigned long long before = watch.progress;
  assert_true(before > 0);
  const clock_t began = clock();
  while (clock() - began < CLOCKS_PER_SEC / 20) continue;
  watch.since_ms -= 3000;
  assert_false(watch_is_silent(&watch, 0));
  assert_true(watch.progress > before);
}
