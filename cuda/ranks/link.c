/* link.c - see link.h. */
#include "cuda/ranks/link.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum { NONCE = 16, GREETING_S = 3 };

static const char magic[8] = "auk 1\n";

/* Rank 0 sends Challenge; the other one Hello, whose mac proves the key; rank 0 answers with its own
 * proof. */
typedef struct {
  char magic[8];
  uint8_t nonce[NONCE];
} Challenge;
typedef struct {
  int32_t rank, n;
  uint8_t nonce[NONCE];
  char host[LINK_HOST];
  uint8_t mac[SHA256_BYTES];
} Hello;
typedef struct {
  uint8_t mac[SHA256_BYTES];
  char host[LINK_HOST];
} Welcome;

typedef struct {
  uint32_t kind, size;
} Head;

/* --- proofs */

/* mac = HMAC(key, who | job | both nonces | rank | n). */
static void prove(const LinkPlace *place, const char *who, const Challenge *c, const Hello *h,
                  uint8_t mac[SHA256_BYTES]) {
  uint8_t text[8 + SHA256_BYTES + 2 * NONCE + 8] = {0}, *at = text + 8;
  memcpy(text, who, strlen(who));
  sha256(place->job, strlen(place->job), at);
  memcpy(at += SHA256_BYTES, c->nonce, NONCE);
  memcpy(at += NONCE, h->nonce, NONCE);
  memcpy(at += NONCE, &h->rank, 4);
  memcpy(at + 4, &h->n, 4);
  hmac_sha256(place->key, text, sizeof text, mac);
}

/* A comparison in constant time. */
static bool same(const uint8_t a[SHA256_BYTES], const uint8_t b[SHA256_BYTES]) {
  unsigned other = 0;
  for (int i = 0; i < SHA256_BYTES; i++) other |= a[i] ^ b[i];
  return other == 0;
}

static void own_host(char out[LINK_HOST]) {
  memset(out, 0, LINK_HOST);
  if (gethostname(out, LINK_HOST - 1) != 0) snprintf(out, LINK_HOST, "unknown");
}

/* --- sockets */

static void set_wait(int s, int seconds) {
  const struct timeval limit = {.tv_sec = seconds};
  setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

static void set_up(int s, int timeout_s) {
  const int one = 1;
  setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  set_wait(s, timeout_s);
}

static bool take(int s, void *out, size_t size) {
  return recv(s, out, size, MSG_WAITALL) == (ssize_t)size;
}

static bool put(int s, const void *bytes, size_t size) {
  return send(s, bytes, size, MSG_NOSIGNAL) == (ssize_t)size;
}

static void open_link(Link *link, int s, const char *host, const LinkPlace *place) {
  *link = (Link){.socket = s, .heard_ms = clock_ms()};
  memcpy(link->host, host, LINK_HOST);
  link->host[LINK_HOST - 1] = 0;
  pthread_mutex_init(&link->sending, NULL);
  set_up(s, place->timeout_s);
}

void link_close(Link *link) {
  if (link->socket < 0) return;
  close(link->socket);
  link->socket = -1;
  buffer_release(&link->in);
  pthread_mutex_destroy(&link->sending);
}

/* --- rank 0 */

static int listen_at(const struct sockaddr *at, socklen_t size) {
  const int zero = 0, one = 1, s = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (s < 0) return -1;
  setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (at->sa_family == AF_INET6) setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
  if (bind(s, at, size) == 0 && listen(s, 64) == 0) return s;
  close(s);
  return -1;
}

/* Listens for IPv6 and IPv4, or for this machine alone (place->here). */
static int listen_on(const LinkPlace *place, int port) {
  const struct sockaddr_in6 all = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
  const struct sockaddr_in all_4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  struct sockaddr_in here = all_4;
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int six = place->here ? -1 : listen_at((const struct sockaddr *)&all, sizeof all);
  if (six >= 0) return six;
  return listen_at((const struct sockaddr *)(place->here ? &here : &all_4), sizeof here);
}

/* Takes a connection, if it proves itself to be a rank that is missing. */
static bool greet(const LinkPlace *place, int s, Link *links) {
  Challenge challenge = {0};
  Hello hello;
  Welcome welcome;
  uint8_t mac[SHA256_BYTES];
  memcpy(challenge.magic, magic, sizeof magic);
  if (getrandom(challenge.nonce, NONCE, 0) != NONCE) return false;
  set_wait(s, GREETING_S);
  if (!put(s, &challenge, sizeof challenge) || !take(s, &hello, sizeof hello)) return false;
  prove(place, "rank", &challenge, &hello, mac);
  if (!same(mac, hello.mac) || hello.n != place->n || hello.rank < 1 || hello.rank >= place->n) return false;
  if (links[hello.rank].socket >= 0) return false;
  prove(place, "first", &challenge, &hello, welcome.mac);
  own_host(welcome.host);
  if (!put(s, &welcome, sizeof welcome)) return false;
  open_link(&links[hello.rank], s, hello.host, place);
  return true;
}

/* "ranks 1 and 3", or "rank 2". */
static void name_missing(const LinkPlace *place, const Link *links, char *out, size_t size) {
  int n = 0;
  char text[64] = "";
  for (int i = 1; i < place->n; i++)
    if (links[i].socket < 0) n += snprintf(text + strlen(text), sizeof text - strlen(text), " %d", i) > 0;
  snprintf(out, size, "rank%s%s", n > 1 ? "s" : "", text);
}

static Status accept_all(const LinkPlace *place, int listening, int port, Link *links, Error *err) {
  const double end = clock_ms() + place->timeout_s * 1e3;
  int n_here = 0, n_refused = 0;
  while (n_here < place->n - 1) {
    struct pollfd ready = {.fd = listening, .events = POLLIN};
    const double left = end - clock_ms();
    if (place->interrupted()) return error_set(err, STATUS_INTERRUPTED, "interrupted");
    if (left > 0 && poll(&ready, 1, left < 200 ? (int)left + 1 : 200) <= 0) continue;
    if (left <= 0) {
      char missing[80], refused[128] = "";
      name_missing(place, links, missing, sizeof missing);
      if (n_refused > 0)
        snprintf(refused, sizeof refused, "; %d connection%s another key or job (AUK_RANKS_KEY)", n_refused,
                 n_refused > 1 ? "s had" : " had");
      return error_set(err, STATUS_FAILED,
                       "--split auto: %s did not connect to rank 0, port %d, within %d s%s", missing, port,
                       place->timeout_s, refused);
    }
    const int s = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    if (s < 0) continue;
    if (greet(place, s, links)) {
      n_here++;
    } else {
      n_refused++;
      close(s);
    }
  }
  return STATUS_OK;
}

Status link_listen(const LinkPlace *place, Link *links, Error *err) {
  int listening = -1, port = place->port;
  for (int i = 0; i < place->n_ports && listening < 0; i++)
    listening = listen_on(place, port = place->port + i);
  if (listening < 0)
    return error_set(err, STATUS_FAILED,
                     "--split auto: cannot listen on port %d: %s (MASTER_PORT names another)", port,
                     strerror(errno));
  const Status status = accept_all(place, listening, port, links, err);
  close(listening);
  return status;
}

/* --- another rank */

static int connect_to(const struct addrinfo *at, int port) {
  struct sockaddr_storage address;
  memcpy(&address, at->ai_addr, at->ai_addrlen);
  if (at->ai_family == AF_INET6)
    ((struct sockaddr_in6 *)&address)->sin6_port = htons((uint16_t)port);
  else
    ((struct sockaddr_in *)&address)->sin_port = htons((uint16_t)port);
  const int s = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (s < 0) return -1;
  set_wait(s, GREETING_S);
  if (connect(s, (const struct sockaddr *)&address, at->ai_addrlen) == 0) return s;
  close(s);
  return -1;
}

typedef enum { NOTHING_THERE, ANOTHER_THERE, JOINED } Outcome;

static Outcome introduce(const LinkPlace *place, int s, Link *link) {
  Challenge challenge;
  Welcome welcome;
  Hello hello = {.rank = place->rank, .n = place->n};
  uint8_t mac[SHA256_BYTES];
  if (!take(s, &challenge, sizeof challenge) || memcmp(challenge.magic, magic, sizeof magic) != 0)
    return ANOTHER_THERE;
  if (getrandom(hello.nonce, NONCE, 0) != NONCE) return NOTHING_THERE;
  own_host(hello.host);
  prove(place, "rank", &challenge, &hello, hello.mac);
  if (!put(s, &hello, sizeof hello) || !take(s, &welcome, sizeof welcome)) return ANOTHER_THERE;
  prove(place, "first", &challenge, &hello, mac);
  if (!same(mac, welcome.mac)) return ANOTHER_THERE;
  open_link(link, s, welcome.host, place);
  return JOINED;
}

static bool may_try(const LinkPlace *place, double end_ms) {
  return clock_ms() < end_ms && !place->interrupted();
}

/* On each port, at each of the host's addresses; one that does not answer takes GREETING_S. Returns the best
 * outcome so far: `best` is that of earlier rounds. */
static Outcome try_all(const LinkPlace *place, const struct addrinfo *addresses, double end_ms, Outcome best,
                       Link *link) {
  for (int i = 0; i < place->n_ports; i++)
    for (const struct addrinfo *at = addresses; at && may_try(place, end_ms); at = at->ai_next) {
      const int s = connect_to(at, place->port + i);
      if (s < 0) continue;
      const Outcome outcome = introduce(place, s, link);
      if (outcome == JOINED) return JOINED;
      close(s);
      if (outcome > best) best = outcome;
    }
  return best;
}

Status link_connect(const LinkPlace *place, Link *link, Error *err) {
  static const struct timespec pause = {.tv_nsec = 100000000};
  const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  struct addrinfo *found;
  const int error = getaddrinfo(place->host, NULL, &hints, &found);
  if (error)
    return error_set(err, STATUS_FAILED, "rank %d: no address of rank 0's host %s: %s", place->rank,
                     place->host, gai_strerror(error));
  const double end = clock_ms() + place->timeout_s * 1e3;
  Outcome outcome = try_all(place, found, end, NOTHING_THERE, link);
  while (outcome != JOINED && may_try(place, end)) {
    nanosleep(&pause, NULL);
    outcome = try_all(place, found, end, outcome, link);
  }
  freeaddrinfo(found);
  if (outcome == JOINED) return STATUS_OK;
  if (place->interrupted()) return error_set(err, STATUS_INTERRUPTED, "interrupted");
  return error_set(err, STATUS_FAILED, "rank %d: rank 0 at %s, port %d, %s for %d s%s", place->rank,
                   place->host, place->port,
                   outcome == ANOTHER_THERE ? "has not taken this rank" : "did not answer", place->timeout_s,
                   outcome == ANOTHER_THERE ? ": another key or job (AUK_RANKS_KEY, MASTER_PORT)" : "");
}

/* --- messages */

static bool send_all(int s, struct iovec *parts, int n) {
  while (n > 0) {
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)n};
    ssize_t sent = sendmsg(s, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return false;
    for (; n > 0 && (size_t)sent >= parts->iov_len; parts++, n--) sent -= (ssize_t)parts->iov_len;
    if (n > 0) parts->iov_base = (char *)parts->iov_base + sent, parts->iov_len -= (size_t)sent;
  }
  return true;
}

bool link_send(Link *link, uint32_t kind, const void *a, size_t a_size, const void *b, size_t b_size,
               bool only_now) {
  Head head = {kind, (uint32_t)(a_size + b_size)};
  struct iovec parts[] = {{&head, sizeof head}, {(void *)a, a_size}, {(void *)b, b_size}};
  if (link->socket < 0 || a_size + b_size > LINK_LARGEST) return false;
  if (only_now && pthread_mutex_trylock(&link->sending) != 0) return true;
  if (!only_now) pthread_mutex_lock(&link->sending);
  const bool sent = send_all(link->socket, parts, 3);
  pthread_mutex_unlock(&link->sending);
  return sent;
}

bool link_receive(Link *link) {
  char piece[1 << 16];
  const ssize_t n = recv(link->socket, piece, sizeof piece, MSG_DONTWAIT);
  if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  if (n == 0) return false;
  link->heard_ms = clock_ms();
  return buffer_append(&link->in, piece, (size_t)n, NULL) == STATUS_OK;
}

bool link_next(Link *link, uint32_t *kind, const char **bytes, size_t *size, size_t *used) {
  Head head;
  const size_t left = link->in.size - *used;
  if (left < sizeof head) return false;
  memcpy(&head, link->in.data + *used, sizeof head);
  if (left - sizeof head < head.size) return false;
  *kind = head.kind;
  *size = head.size;
  *bytes = link->in.data + *used + sizeof head;
  *used += sizeof head + head.size;
  return true;
}

void link_drop(Link *link, size_t used) {
  if (used == 0) return;
  memmove(link->in.data, link->in.data + used, link->in.size - used);
  link->in.size -= used;
}
