/* test_link.c - the connections of --split auto: who is let in, whatever else connects, and that a message
 * which is not the other end's next one is refused. The processes are threads of this one. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>

#include "base/clock.h"
#include "cuda/several/link.h"
#include "test/tests.h"

enum { N = 3, RELAYED = 1 << 16 };

static bool never(void) {
  return false;
}

static LinkOptions options_of(int rank, int n) {
  static int n_jobs;
  if (rank == 0) n_jobs++;
  return (LinkOptions){.host = "127.0.0.1",
                       .port = 20000 + (getpid() * 8 + n_jobs * 4) % 12000,
                       .n_ports = 4,
                       .here = true,
                       .job = "a test",
                       .key = {1, 2, 3},
                       .rank = rank,
                       .n = n,
                       .timeout_s = 8,
                       .interrupted = never};
}

typedef struct {
  LinkOptions options;
  Link links[N];
  Status status;
  Error err;
  double took_ms;
  pthread_t thread;
} End;

static void *join(void *user) {
  End *end = user;
  const double began = clock_ms();
  end->status = end->options.rank == 0 ? link_listen(&end->options, end->links, &end->err)
                                       : link_connect(&end->options, end->links, &end->err);
  end->took_ms = clock_ms() - began;
  return NULL;
}

static void start(End *end, LinkOptions options) {
  *end = (End){.options = options};
  for (int i = 0; i < N; i++) end->links[i].socket = -1;
  assert_int_equal(pthread_create(&end->thread, NULL, join, end), 0);
}

static void finish(End *end) {
  assert_int_equal(pthread_join(end->thread, NULL), 0);
}

static void close_all(End *end) {
  for (int i = 0; i < N; i++) link_close(&end->links[i]);
}

/* Connects as another program would; waits until rank 0 listens. */
static int call(int port) {
  const struct sockaddr_in at = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  const int s = socket(AF_INET, SOCK_STREAM, 0);
  for (int i = 0; i < 1000 && connect(s, (const struct sockaddr *)&at, sizeof at) != 0; i++) usleep(5000);
  return s;
}

static int listen_at(int port) {
  const struct sockaddr_in at = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  const int s = socket(AF_INET, SOCK_STREAM, 0);
  assert_int_equal(bind(s, (const struct sockaddr *)&at, sizeof at), 0);
  assert_int_equal(listen(s, 8), 0);
  return s;
}

/* More than rank 0 keeps at once: the oldest make room. */
TEST(callers_that_say_nothing_delay_no_rank) {
  enum { IDLE = 150 };
  static End ends[N];
  const LinkOptions options = options_of(0, N);
  int idle[IDLE];
  start(&ends[0], options);
  for (int i = 0; i < IDLE; i++) idle[i] = call(options.port);
  assert_int_equal(send(idle[IDLE - 1], "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL), 18);
  for (int rank = 1; rank < N; rank++) start(&ends[rank], options_of(rank, N));
  for (int rank = 0; rank < N; rank++) finish(&ends[rank]);
  for (int rank = 0; rank < N; rank++) {
    assert_int_equal(ends[rank].status, STATUS_OK);
    assert_true(ends[rank].took_ms < 2500); /* less than one of them is waited for */
    close_all(&ends[rank]);
  }
  for (int i = 0; i < IDLE; i++) close(idle[i]);
}

TEST(what_has_come_in_place_of_a_rank_is_said) {
  static End first, others[N];
  LinkOptions options = options_of(0, 2);
  char want[300];
  options.timeout_s = 1;
  start(&first, options);
  const int idle[] = {call(options.port), call(options.port)};
  finish(&first);
  snprintf(
      want, sizeof want,
      "--split auto: rank 1 did not connect to rank 0, port %d, within 1 s; 2 connections sent no greeting",
      options.port);
  assert_int_equal(first.status, STATUS_FAILED);
  assert_string_equal(first.err.text, want);
  close(idle[0]), close(idle[1]);
  options = options_of(0, 2);
  options.timeout_s = 1;
  start(&first, options);
  for (int what = 0; what < N; what++) { /* another key, job, number of ranks */
    LinkOptions wrong = options_of(1, what == 2 ? 3 : 2);
    wrong.timeout_s = 1;
    if (what == 0) wrong.key[31] = 1;
    if (what == 1) wrong.job = "another";
    start(&others[what], wrong);
  }
  finish(&first);
  for (int what = 0; what < N; what++) {
    finish(&others[what]);
    assert_int_equal(others[what].status, STATUS_FAILED);
  }
  assert_non_null(strstr(first.err.text, " had another key or job (AUK_RANKS_KEY)"));
  assert_null(strstr(first.err.text, "greeting"));
}

/* --- another program in between */

typedef struct {
  int listening, port;
} Relay;

static bool pass_on(int from, int to) {
  char bytes[4096];
  const ssize_t n = recv(from, bytes, sizeof bytes, 0);
  return n > 0 && send(to, bytes, (size_t)n, MSG_NOSIGNAL) == n;
}

/* Passes on, unchanged, what a rank and rank 0 say, until one of them has hung up. */
static void *relay(void *user) {
  const Relay *r = user;
  const int rank = accept(r->listening, NULL, NULL), first = call(r->port);
  struct pollfd ready[] = {{.fd = rank, .events = POLLIN}, {.fd = first, .events = POLLIN}};
  bool goes_on = true;
  while (goes_on && poll(ready, 2, 5000) > 0) {
    if (ready[0].revents) goes_on = pass_on(rank, first);
    if (goes_on && ready[1].revents) goes_on = pass_on(first, rank);
  }
  close(rank), close(first);
  return NULL;
}

TEST(a_program_in_between_is_not_let_in) {
  static End first, other;
  LinkOptions options = options_of(0, 2), at_relay = options_of(1, 2);
  Relay between = {listen_at(options.port),
                   options.port + 1}; /* it has the first port, rank 0 the second one */
  pthread_t thread;
  options.timeout_s = at_relay.timeout_s = 1;
  at_relay.n_ports = 1;
  assert_int_equal(pthread_create(&thread, NULL, relay, &between), 0);
  start(&first, options);
  start(&other, at_relay);
  finish(&first);
  close(between.listening);
  finish(&other);
  pthread_join(thread, NULL);
  assert_int_equal(first.status, STATUS_FAILED);
  assert_non_null(strstr(first.err.text, "1 connection had another key or job"));
  assert_int_equal(other.status, STATUS_FAILED);
}

/* --- messages */

static End first, other; /* connected */

static int connect_two(void **state) {
  start(&first, options_of(0, 2));
  start(&other, options_of(1, 2));
  finish(&first);
  finish(&other);
  return first.status || other.status;
}

static int close_two(void **state) {
  close_all(&first);
  close_all(&other);
  return 0;
}

/* A message as it is on the way. */
static size_t capture(Link *from, Link *to, const char *text, char out[RELAYED]) {
  assert_true(link_send(from, 7, text, strlen(text), "!", 1, false));
  ssize_t n = recv(to->socket, out, RELAYED, 0);
  assert_true(n > (ssize_t)strlen(text));
  return (size_t)n;
}

/* True if the bytes, put in place of what has come, are the message. */
static bool is_taken(Link *link, const char *bytes, size_t size, const char *text) {
  const char *got;
  uint32_t kind;
  size_t n, used = 0;
  link->in.size = 0;
  assert_int_equal(buffer_append(&link->in, bytes, size, NULL), STATUS_OK);
  if (!link_next(link, &kind, &got, &n, &used)) return false;
  assert_int_equal(kind, 7);
  assert_int_equal(n, strlen(text));
  assert_memory_equal(got, text, n);
  link_drop(link, used);
  return true;
}

TEST_WITH(connect_two, close_two, messages_come_as_they_were_sent) {
  static char bytes[RELAYED];
  for (int i = 0; i < 3; i++) {
    Link *from = i % 2 ? &other.links[0] : &first.links[1], *to = i % 2 ? &first.links[1] : &other.links[0];
    assert_true(is_taken(to, bytes, capture(from, to, "text", bytes), "text!"));
    assert_false(to->is_forged);
  }
}

TEST_WITH(connect_two, close_two, a_message_that_was_changed_is_refused) {
  static char bytes[RELAYED];
  Link *to = &other.links[0];
  const size_t n = capture(&first.links[1], to, "a prompt", bytes);
  for (size_t i = 0; i < n; i++) {
    Link copy = *to;
    copy.in = (Buffer){0};
    bytes[i] ^= 4;
    assert_false(is_taken(&copy, bytes, n, "a prompt!"));
    assert_true(copy.is_forged || i / 4 == 1); /* the size may ask for more bytes */
    bytes[i] ^= 4;
    buffer_release(&copy.in);
  }
  const size_t cut = n - 1;
  assert_false(is_taken(to, bytes, cut, "a prompt!"));
  assert_false(to->is_forged); /* more may come */
  assert_true(is_taken(to, bytes, n, "a prompt!"));
}

TEST_WITH(connect_two, close_two, a_message_of_another_place_is_refused) {
  static char one[RELAYED], two[RELAYED], back[RELAYED];
  for (int what = 0; what < 3; what++) {
    Link *to = &other.links[0], *from = &first.links[1];
    const size_t n_one = capture(from, to, "one", one), n_two = capture(from, to, "two", two);
    const size_t n_back = capture(to, from, "back", back);
    if (what == 0) {
      assert_true(is_taken(to, one, n_one, "one!"));
      assert_false(is_taken(to, one, n_one, "one!")); /* once more */
    } else if (what == 1) {
      assert_false(is_taken(to, two, n_two, "two!")); /* the first is left out */
    } else {
      assert_false(is_taken(to, back, n_back, "back!")); /* its own */
    }
    assert_true(to->is_forged);
    assert_false(is_taken(to, one, n_one, "one!") || is_taken(to, two, n_two, "two!")); /* nothing any more */
    close_two(NULL);
    connect_two(NULL);
    assert_false(is_taken(&other.links[0], one, n_one, "one!")); /* an earlier connection's */
    close_two(NULL);
    connect_two(NULL);
  }
}

TEST_WITH(connect_two, close_two, a_message_that_is_too_large_is_refused_at_once) {
  const uint32_t head[2] = {7, LINK_LARGEST + 1};
  assert_false(is_taken(&other.links[0], (const char *)head, sizeof head, ""));
  assert_true(other.links[0].is_forged);
}
