/* test_wire.c - messages between calls and the process that keeps a model, over a pair of sockets. */
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "commands/keep/wire.h"
#include "test/tests.h"

static void open_pair(Wire wires[2]) {
  int sockets[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  wires[0] = wire_on(sockets[0]), wires[1] = wire_on(sockets[1]);
}

static void expect_text(Wire *wire, const char *text) {
  WireKind kind;
  const char *body;
  size_t size;
  Error err;
  assert_true(wire_wait(wire, 1000, &kind, &body, &size, &err));
  assert_int_equal(kind, WIRE_REFUSED);
  assert_int_equal(size, strlen(text));
  assert_memory_equal(body, text, size);
}

static void put_text(Wire *wire, const char *text) {
  Error err;
  assert_int_equal(wire_put(wire, WIRE_REFUSED, text, strlen(text), NULL, 0, &err), STATUS_OK);
  wire_send(wire);
}

/* A call that slept answers a holder that has dropped it meanwhile: it reads why. */
TEST(what_was_sent_before_the_end_is_read) {
  WireKind kind;
  const char *body;
  size_t size;
  Wire wires[2];
  Error err;
  open_pair(wires);
  put_text(&wires[0], "why");
  wire_close(&wires[0]);
  put_text(&wires[1], "here is your answer");
  assert_false(wires[1].ended);
  assert_false(wire_is_full(&wires[1]));
  expect_text(&wires[1], "why");
  assert_false(wire_wait(&wires[1], 1000, &kind, &body, &size, &err));
  assert_true(wires[1].ended);
  wire_close(&wires[1]);
}

TEST(messages_arrive_in_order) {
  Wire wires[2];
  open_pair(wires);
  put_text(&wires[0], "one");
  put_text(&wires[0], "");
  put_text(&wires[0], "three");
  expect_text(&wires[1], "one");
  expect_text(&wires[1], "");
  expect_text(&wires[1], "three");
  wire_close(&wires[0]);
  wire_close(&wires[1]);
}

static size_t count_descriptors(void) {
  size_t n = 0;
  for (int i = 0; i < 256; i++) n += fcntl(i, F_GETFD) >= 0;
  return n;
}

/* Sends n descriptors beside a message. */
static void send_descriptors(const Wire *wire, int descriptor, size_t n) {
  char bytes[] = {0};
  union {
    struct cmsghdr header;
    char room[CMSG_SPACE(4 * sizeof(int))];
  } control = {.room = {0}};
  struct iovec part = {bytes, sizeof bytes};
  struct msghdr message = {.msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = &control,
                           .msg_controllen = CMSG_SPACE(n * sizeof(int))};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(n * sizeof(int));
  for (size_t i = 0; i < n; i++) memcpy(CMSG_DATA(header) + i * sizeof(int), &descriptor, sizeof descriptor);
  assert_int_equal(sendmsg(wire->socket, &message, 0), 1);
}

/* The last descriptor is kept, and no other stays open, also where several come at once. */
TEST(one_descriptor_is_kept) {
  Wire wires[2];
  Error err;
  open_pair(wires);
  const int sent = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const size_t before = count_descriptors();
  assert_int_equal(wires[1].descriptor, -1);
  for (size_t n = 1; n <= 4; n++) {
    send_descriptors(&wires[0], sent, n);
    assert_int_equal(wire_receive(&wires[1], &err), STATUS_OK);
    assert_true(fcntl(wires[1].descriptor, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(count_descriptors(), before + 1);
  }
  wire_close(&wires[1]);
  assert_int_equal(count_descriptors(), before - 1);
  wire_close(&wires[0]);
  close(sent);
}

/* No buffer can grow beyond PTRDIFF_MAX. */
TEST(a_message_that_finds_no_memory_is_received_later) {
  Wire wires[2];
  Error err;
  open_pair(wires);
  put_text(&wires[0], "later");
  const Buffer in = wires[1].in;
  wires[1].in.size = wires[1].in.capacity = PTRDIFF_MAX;
  assert_int_equal(wire_receive(&wires[1], &err), STATUS_FAILED);
  wires[1].in = in;
  expect_text(&wires[1], "later");
  wire_close(&wires[0]);
  wire_close(&wires[1]);
}

/* A holder lives for days: memory of a large message is given back when it was taken, and none is taken for
 * what is only announced. */
TEST(memory_grows_with_what_was_sent_and_shrinks) {
  enum { BYTES = 5 << 20 };
  static char text[BYTES];
  WireKind kind;
  const char *body;
  size_t size;
  Wire wires[2];
  Error err;
  open_pair(wires);
  assert_int_equal(wire_put(&wires[0], WIRE_ASK, text, sizeof text, NULL, 0, &err), STATUS_OK);
  while (wire_is_full(&wires[0])) {
    const size_t before = wires[1].in.size;
    wire_send(&wires[0]);
    assert_int_equal(wire_receive(&wires[1], &err), STATUS_OK);
    assert_true(wires[1].in.size - before <= (1 << 20) + (1 << 14));
  }
  assert_int_equal(wires[0].out.capacity, 0);
  while (!wire_take(&wires[1], &kind, &body, &size))
    assert_int_equal(wire_receive(&wires[1], &err), STATUS_OK);
  assert_int_equal(size, BYTES);
  assert_false(wire_take(&wires[1], &kind, &body, &size));
  assert_int_equal(wires[1].in.capacity, 0);
  assert_false(wires[1].ended);
  wire_close(&wires[0]);
  wire_close(&wires[1]);
}

/* The limit is that of both parts together; a message over it puts nothing. */
TEST(a_message_that_is_too_large_is_not_put) {
  static const size_t parts[][2] = {
      {WIRE_LARGEST + 1, 0}, {0, WIRE_LARGEST + 1}, {WIRE_LARGEST, 1}, {1, WIRE_LARGEST}};
  Wire wires[2];
  Error err;
  open_pair(wires);
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    assert_int_equal(wire_put(&wires[0], WIRE_REFUSED, "", parts[i][0], "", parts[i][1], &err), STATUS_USAGE);
    assert_false(wire_is_full(&wires[0]));
  }
  put_text(&wires[0], "as before");
  expect_text(&wires[1], "as before");
  wire_close(&wires[0]);
  wire_close(&wires[1]);
}

/* The message before one that is too large is taken. */
TEST(a_message_that_is_too_large_ends_the_connection) {
  const WireHead heads[] = {{WIRE_REFUSED, 0}, {WIRE_HELLO, 101}};
  WireKind kind;
  const char *body;
  size_t size;
  Wire wires[2];
  for (size_t largest = 100; largest <= 101; largest++) {
    open_pair(wires);
    wires[1].largest = largest;
    assert_int_equal(send(wires[0].socket, heads, sizeof heads, 0), sizeof heads);
    expect_text(&wires[1], "");
    assert_false(wire_take(&wires[1], &kind, &body, &size));
    assert_int_equal(wires[1].ended, largest == 100);
    wire_close(&wires[0]);
    wire_close(&wires[1]);
  }
}

/* Random messages of up to the largest size, sent in pieces of any size: each arrives whole, in its order. */
TEST(messages_cut_anywhere_arrive_whole) {
  enum { MOST = 40000, N = 60 };
  static char bytes[N][MOST];
  uint32_t seed = 1, sizes[N];
  Wire wires[2];
  Error err;
  open_pair(wires);
  wires[1].largest = MOST;
  for (int i = 0; i < N; i++) {
    seed = seed * 1664525 + 1013904223;
    sizes[i] = i % 4 == 0 ? MOST : i % 4 == 1 ? 16384 - sizeof(WireHead) : (seed >> 16) % 99;
    memset(bytes[i], 'a' + i % 26, sizes[i]);
    const size_t first = sizes[i] ? (seed >> 8) % (sizes[i] + 1) : 0;
    assert_int_equal(wire_put(&wires[0], (WireKind)(1 + i % WIRE_STOP), bytes[i], first, bytes[i] + first,
                              sizes[i] - first, &err),
                     STATUS_OK);
  }
  const Buffer *out = &wires[0].out;
  int n = 0;
  for (size_t at = 0; n < N;) {
    seed = seed * 1664525 + 1013904223;
    size_t piece = seed >> 30 ? (seed >> 16) % 30000 : 1 + (seed >> 16) % 9;
    if (piece > out->size - at) piece = out->size - at;
    if (piece) assert_int_equal(send(wires[0].socket, out->data + at, piece, 0), piece);
    at += piece;
    WireKind kind;
    const char *body;
    size_t size;
    bool came = wire_wait(&wires[1], piece ? 1000 : 0, &kind, &body, &size, &err);
    for (; came; came = wire_take(&wires[1], &kind, &body, &size), n++) {
      assert_int_equal(kind, 1 + n % WIRE_STOP);
      assert_int_equal(size, sizes[n]);
      if (size) assert_memory_equal(body, bytes[n], size);
    }
  }
  assert_int_equal(wires[1].in.size, 0);
  assert_false(wires[1].ended);
  wire_close(&wires[0]);
  wire_close(&wires[1]);
}
