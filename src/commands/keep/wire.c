/* wire.c - see wire.h. */
#include "commands/keep/wire.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

Wire wire_on(int socket) {
  return (Wire){.socket = socket, .descriptor = -1, .largest = WIRE_LARGEST};
}

void wire_close(Wire *wire) {
  if (wire->socket >= 0) close(wire->socket);
  if (wire->descriptor >= 0) close(wire->descriptor);
  buffer_release(&wire->in);
  buffer_release(&wire->out);
  *wire = wire_on(-1);
  wire->ended = true;
}

/* Empties a buffer. A holder lives long, so memory of a large message goes back to the system. */
static void empty(Buffer *buffer) {
  enum { SMALL = 1 << 20 };
  buffer->size = 0;
  if (buffer->capacity <= SMALL) return;
  buffer_release(buffer);
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

/* --- sending */

Status wire_put(Wire *wire, WireKind kind, const void *body, size_t size, const void *more, size_t more_size,
                Error *err) {
  const WireHead head = {(uint32_t)kind, (uint32_t)(size + more_size)};
  if (size + more_size > WIRE_LARGEST)
    return error_set(err, STATUS_USAGE, "a message of %zu bytes, the limit is %d", size + more_size,
                     WIRE_LARGEST);
  /* Makes room for the whole message first. A head without its body would make the other end read the next
   * message as this body. */
  TRY(mem_grow(&wire->out.data, &wire->out.capacity, wire->out.size + sizeof head + size + more_size, 1,
               "a message", err));
  TRY(buffer_append(&wire->out, &head, sizeof head, err));
  if (size) TRY(buffer_append(&wire->out, body, size, err));
  return more_size ? buffer_append(&wire->out, more, more_size, err) : STATUS_OK;
}

bool wire_is_full(const Wire *wire) {
  return wire->out_sent < wire->out.size;
}

static void drop_sent(Wire *wire) {
  if (wire_is_full(wire)) return;
  wire->out_sent = 0;
  empty(&wire->out);
}

void wire_send(Wire *wire) {
  while (!wire->ended && wire_is_full(wire)) {
    const ssize_t n = send(wire->socket, wire->out.data + wire->out_sent, wire->out.size - wire->out_sent,
                           MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) wire->out_sent += (size_t)n;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    /* The output is dropped, but `ended` stays false: messages that the other end sent before it closed must
     * still be read. wire_receive() sets `ended` after them. */
    if (n < 0 && errno != EINTR) wire->out_sent = wire->out.size;
  }
  drop_sent(wire);
}

void wire_send_descriptor(Wire *wire, int descriptor) {
  if (descriptor >= 0 && !wire->ended && wire_is_full(wire)) {
    union {
      struct cmsghdr header;
      char room[CMSG_SPACE(sizeof(int))];
    } control = {.room = {0}};
    struct iovec part = {wire->out.data + wire->out_sent, wire->out.size - wire->out_sent};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.room};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    const ssize_t n = sendmsg(wire->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) wire->out_sent += (size_t)n;
  }
  wire_send(wire);
}

/* --- receiving */

static void keep_descriptor(Wire *wire, struct msghdr *message) {
  for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    if (wire->descriptor >= 0) close(wire->descriptor);
    memcpy(&wire->descriptor, CMSG_DATA(header), sizeof wire->descriptor);
  }
}

Status wire_receive(Wire *wire, Error *err) {
  enum { MOST_AT_ONCE = 1 << 20, PART = 1 << 14 };
  const size_t before = wire->in.size;
  while (!wire->ended && wire->in.size - before < MOST_AT_ONCE) {
    /* Makes room first: the socket gives each byte only once. */
    TRY(mem_grow(&wire->in.data, &wire->in.capacity, wire->in.size + PART, 1, "a message", err));
    union {
      struct cmsghdr header;
      char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {wire->in.data + wire->in.size, PART};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = CMSG_LEN(sizeof(int))}; /* no padding, so no second fd */
    const ssize_t n = recvmsg(wire->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return STATUS_OK;
    if (n < 0 && errno == EINTR) continue;
    wire->ended = n <= 0;
    if (n <= 0) return STATUS_OK;
    keep_descriptor(wire, &message);
    wire->in.size += (size_t)n;
    if (n < PART) return STATUS_OK;
  }
  return STATUS_OK;
}

static void drop_taken(Wire *wire) {
  if (wire->in_used == 0) return;
  wire->in.size -= wire->in_used;
  memmove(wire->in.data, wire->in.data + wire->in_used, wire->in.size);
  wire->in_used = 0;
  if (wire->in.size == 0) empty(&wire->in);
}

bool wire_take(Wire *wire, WireKind *kind, const char **body, size_t *size) {
  WireHead head = {0};
  const size_t left = wire->in.size - wire->in_used;
  const bool has_head = left >= sizeof head;
  if (has_head) memcpy(&head, wire->in.data + wire->in_used, sizeof head);
  wire->ended |= has_head && head.size > wire->largest;
  if (!has_head || head.size > wire->largest || left - sizeof head < head.size) {
    drop_taken(wire);
    return false;
  }
  *kind = (WireKind)head.kind;
  *body = wire->in.data + wire->in_used + sizeof head;
  *size = head.size;
  wire->in_used += sizeof head + head.size;
  return true;
}

bool wire_wait(Wire *wire, int ms, WireKind *kind, const char **body, size_t *size, Error *err) {
  if (wire_take(wire, kind, body, size)) return true;
  wire_send(wire);
  struct pollfd entry = {wire->socket, (short)(POLLIN | (wire_is_full(wire) ? POLLOUT : 0)), 0};
  if (wire->ended || poll(&entry, 1, ms) <= 0) return false;
  wire_send(wire);
  return wire_receive(wire, err) == STATUS_OK && wire_take(wire, kind, body, size);
}

bool wire_is_own(int socket, pid_t *pid) {
  struct ucred peer;
  socklen_t size = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid()) return false;
  *pid = peer.pid;
  return true;
}
