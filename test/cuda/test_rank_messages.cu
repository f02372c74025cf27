/* test_rank_messages.cu - messages between the processes of --split auto as another build of auk would send
 * them, and numbers of sessions that were not opened. The processes are threads of this one, and no GPU is
 * used. Prints `N passed, N failed`. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <functional>
#include <thread>

extern "C" {
#include "cuda/several/calls.h"
#include "model/slice.h"
}
#include "test/cuda/check.cuh"

enum { FACTS = 2, JOIN = 5 }; /* Says in ranks.c */

static int passed, failed;

static void expect(bool good, const char *what, const Error &err) {
  if (!good) printf("FAILED %s: %s\n", what, err.text);
  good ? passed++ : failed++;
}

static bool is_another_build(Status status, const Error &err) {
  return status == STATUS_FAILED && strstr(err.text, "is another build of auk than rank");
}

static bool never(void) {
  return false;
}

/* The process goes on: its watching thread then has nothing to do. */
static void end_nothing(int, Status, const char *) {}

static RanksOptions options_of(int rank, int n) {
  static int n_jobs;
  static char job[32];
  RanksOptions options = {};
  if (rank == 0) snprintf(job, sizeof job, "%d %d", (int)getpid(), n_jobs++);
  options.link.host = "127.0.0.1";
  options.link.port = 20000 + (int)getpid() % 20000;
  options.link.n_ports = 8;
  options.link.here = true;
  options.link.job = job;
  options.link.rank = rank;
  options.link.n = n;
  options.link.timeout_s = 20;
  options.link.interrupted = never;
  options.end = end_nothing;
  return options;
}

/* Rank 1, connected, does `work`. */
static std::thread other_rank(std::function<void(Ranks *)> work) {
  return std::thread([work, options = options_of(1, 2)] {
    Ranks *ranks;
    MUST(ranks_join(&options, &ranks, &error));
    work(ranks);
    ranks_end(ranks);
  });
}

static Status agree(Ranks *ranks, const char *lines, Error *err) {
  RankFacts facts = {};
  size_t least;
  facts.gpu[0] = (uint8_t)ranks_rank(ranks);
  return ranks_agree(ranks, &facts, lines, &least, err);
}

/* Rank 0's result where the ranks have these lines. */
static Status compare(const char *own, const char *other, Error *err) {
  const RanksOptions options = options_of(0, 2);
  Ranks *ranks;
  std::thread one = other_rank([other](Ranks *its) {
    Error ignored;
    agree(its, other, &ignored);
  });
  MUST(ranks_join(&options, &ranks, &error));
  const Status status = agree(ranks, own, err);
  ranks_end(ranks);
  one.join();
  return status;
}

static void check_lines(void) {
  Error err = {};
  expect(compare("a: 1\n", "a: 1\n", &err) == STATUS_OK, "the same lines", err);
  expect(is_another_build(compare("a: 1\n", "a: 1\nb: 2\n", &err), err), "a line more", err);
  expect(is_another_build(compare("a: 1\nb: 2\n", "a: 1\n", &err), err), "a line less", err);
}

/* Rank 1, connected, does `work` without a watching thread, and goes when rank 0 has. */
static std::thread other_link(std::function<void(Link *)> work) {
  return std::thread([work, options = options_of(1, 2)] {
    Link link;
    Error err;
    MUST(link_connect(&options.link, &link, &err));
    work(&link);
    link_close(&link);
  });
}

static void check_facts(void) {
  const RanksOptions options = options_of(0, 2);
  Error err = {};
  Ranks *ranks;
  std::thread one = other_link([](Link *link) {
    link_send(link, FACTS, "x", 1, NULL, 0, false);
    while (link_receive(link)) usleep(1000);
  });
  MUST(ranks_join(&options, &ranks, &error));
  expect(is_another_build(agree(ranks, "a: 1\n", &err), err), "facts of one byte", err);
  ranks_end(ranks);
  one.join();
}

static void check_join(void) {
  const RanksOptions options = options_of(0, 2);
  Link links[MAX_SPLIT];
  Status status = STATUS_OK;
  Error err = {};
  for (Link &link : links) link.socket = -1;
  std::thread one = other_rank([&](Ranks *its) {
    Reduce *nccl;
    status = ranks_join_nccl(its, &nccl, &err);
  });
  MUST(link_listen(&options.link, links, &error));
  link_send(&links[1], JOIN, "x", 1, NULL, 0, false);
  one.join();
  link_close(&links[1]);
  expect(is_another_build(status, err), "an id of one byte", err);
}

/* Facts where a call was due. */
static void check_call(void) {
  const RanksOptions options = options_of(0, 2);
  Link links[MAX_SPLIT];
  Buffer call = {};
  Status status = STATUS_OK;
  Error err = {};
  for (Link &link : links) link.socket = -1;
  std::thread one = other_rank([&](Ranks *its) { status = ranks_take_call(its, &call, &err); });
  MUST(link_listen(&options.link, links, &error));
  link_send(&links[1], FACTS, "x", 1, NULL, 0, false);
  one.join();
  link_close(&links[1]);
  expect(status == STATUS_FAILED && strstr(err.text, "an unexpected message") && call.size == 0,
         "facts for a call", err);
}

static void check_numbers(void) {
  const RanksOptions alone = options_of(0, 1);
  StateOptions options = {};
  Error err = {};
  Ranks *ranks;
  int number = -1, n_refused = 0;
  MUST(ranks_join(&alone, &ranks, &error));
  options.taps.n = 1;
  for (int i = 0; i < RANKS_NUMBERS; i++)
    n_refused += calls_open(ranks, &options, &number, &err) != STATUS_OK;
  options.taps.n = 0;
  const Status status = calls_open(ranks, &options, &number, &err);
  expect(n_refused == RANKS_NUMBERS && status == STATUS_OK && number == 0, "a session after drafts", err);
  ranks_end(ranks);
}

static void check_numbers_of_the_lost(void) {
  const RanksOptions options = options_of(0, 2);
  const StateOptions of_session = {};
  Error err = {};
  Ranks *ranks;
  int number = -1;
  std::thread one = other_link([](Link *) {});
  MUST(ranks_join(&options, &ranks, &error));
  one.join();
  while (ranks_check(ranks, true, &err) == STATUS_OK) {
  }
  for (int i = 0; i < RANKS_NUMBERS; i++) calls_open(ranks, &of_session, &number, &err);
  const Status status = calls_open(ranks, &of_session, &number, &err);
  expect(status == STATUS_FAILED && strstr(err.text, "it has ended"), "a session without the others", err);
  ranks_end(ranks);
}

int main(void) {
  check_lines();
  check_facts();
  check_join();
  check_call();
  check_numbers();
  check_numbers_of_the_lost();
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
