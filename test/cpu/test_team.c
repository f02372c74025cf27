/* test_team.c - threads that wait awake: each has its part of every piece of work, team_wait() holds all
 * until the last has come, and threads that fell asleep are woken. */
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "cpu_test.h"

#include "base/clock.h"
#include "cpu/team.h"
#include "test/tests.h"

enum { MOST = 9, STEPS = 5 };

typedef struct {
  Team *team;
  atomic_int parts[MOST];  /* how often thread `me` had work */
  atomic_int there[STEPS]; /* threads that came to a step */
  atomic_int early;        /* threads that went on before all had come */
} Work;

static void part(void *given, int me, int n) {
  Work *work = given;
  atomic_fetch_add(&work->parts[me], 1);
  for (int step = 0; step < STEPS; step++) {
    atomic_fetch_add(&work->there[step], 1);
    team_wait(work->team);
    if (atomic_load(&work->there[step]) % n != 0) atomic_fetch_add(&work->early, 1);
    team_wait(work->team); /* so that none comes to the step of the next round before all have looked */
  }
}

static void rest_ms(long ms) {
  const struct timespec pause = {.tv_nsec = ms * 1000000};
  nanosleep(&pause, NULL);
}

static void run(int n, int rounds, long pause_ms) {
  static Work work;
  Error err;
  work = (Work){0};
  assert_int_equal(team_open(n, &work.team, &err), STATUS_OK);
  for (int round = 1; round <= rounds; round++) {
    team_run(work.team, part, &work);
    for (int me = 0; me < MOST; me++) assert_int_equal(atomic_load(&work.parts[me]), me < n ? round : 0);
    for (int step = 0; step < STEPS; step++) assert_int_equal(atomic_load(&work.there[step]), n * round);
    if (pause_ms > 0) rest_ms(pause_ms);
  }
  assert_int_equal(atomic_load(&work.early), 0);
  team_close(work.team);
}

TEST(all_threads_have_a_part_of_each_work) {
  for (int n = 1; n <= MOST; n++) run(n, 20, 0);
}

TEST(threads_that_sleep_are_woken) {
  for (int n = 2; n <= MOST; n += 3) run(n, 8, 2 + n); /* they sleep after 3 ms without work */
  run(4, 200, 3);                                      /* about when they fall asleep */
}

static double process_ms(void) {
  return clock_of(CLOCK_PROCESS_CPUTIME_ID);
}

static void slow_part(void *given, int me, int n) {
  (void)given, (void)n;
  if (me == 0) rest_ms(100);
}

/* Without work, and while one thread's part takes long. */
TEST(threads_that_wait_long_sleep) {
  Team *team;
  Error err;
  assert_int_equal(team_open(MOST, &team, &err), STATUS_OK);
  team_run(team, slow_part, NULL);
  const double begin = process_ms();
  rest_ms(100);
  const double resting = process_ms() - begin;
  team_run(team, slow_part, NULL);
  const double waiting = process_ms() - begin - resting;
  assert_true(resting < 10.0 * MOST); /* of 100 ms a thread */
  assert_true(waiting < 10.0 * MOST);
  team_close(team);
}

TEST(a_team_is_closed_awake_asleep_or_unused) {
  Team *team;
  Error err;
  for (long ms = 0; ms <= 8; ms += 4) {
    assert_int_equal(team_open(4, &team, &err), STATUS_OK);
    rest_ms(ms);
    team_close(team);
  }
  team_close(NULL);
}

static int end_if_late(void **state) {
  alarm(60); /* ends the test where a thread is not woken */
  return 0;
}

static CMFixtureFunction before_all = end_if_late;
