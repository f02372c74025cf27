/* link.c - see link.h. */
#include "cuda/several/link.h"

#include <errno.h>
#include <fcntl.h>
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

enum { NONCE = 16, GREETING_S = 3, MOST_CALLERS = 128 };

static const char magic[8] = "auk 2\n";

/* Rank 0 sends Challenge. The other rank sends Hello, whose mac proves the key. Rank 0 answers with its own
 * proof. The proofs contain the port on which the two ranks met: a program that listens on another port and
 * relays messages is noticed. */
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

/* A message is Head, bytes, and a mac of the message's number, Head and bytes. */
typedef struct {
  uint32_t kind, size;
} Head;

/* --- proofs */

/* The facts that both ends of a connection know. */
typedef struct {
  const LinkOptions *options;
  int32_t port;
  Challenge challenge;
  Hello hello;
} Greeting;

/* mac = HMAC(key, who | hash of the job | port | both nonces | rank | n | host). */
static void prove(const Greeting *g, const char *who, const char host[LINK_HOST], uint8_t mac[SHA256_BYTES]) {
  HmacKey key;
  uint8_t job[SHA256_BYTES];
  hmac_key(g->options->key, &key);
  sha256(g->options->job, strlen(g->options->job), job);
  Sha256 text = key.inner;
  sha256_add(&text, who, strlen(who) + 1);
  sha256_add(&text, job, sizeof job);
  sha256_add(&text, &g->port, sizeof g->port);
  sha256_add(&text, g->challenge.nonce, NONCE);
  sha256_add(&text, g->hello.nonce, NONCE);
  sha256_add(&text, &g->hello.rank, sizeof g->hello.rank);
  sha256_add(&text, &g->hello.n, sizeof g->hello.n);
  sha256_add(&text, host, LINK_HOST);
  hmac_end(&key, &text, mac);
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

/* Makes the link of a connection whose other end is proved. Each direction has a key of its own, which no
 * other connection has. */
static void open_link(Link *link, int s, const char host[LINK_HOST], const Greeting *g) {
  static const char none[LINK_HOST];
  const bool first = g->options->rank == 0;
  uint8_t key[SHA256_BYTES];
  *link = (Link){.socket = s, .heard_ms = clock_ms()};
  prove(g, "key from first", none, key);
  hmac_key(key, first ? &link->out_key : &link->in_key);
  prove(g, "key from rank", none, key);
  hmac_key(key, first ? &link->in_key : &link->out_key);
  memcpy(link->host, host, LINK_HOST);
  link->host[LINK_HOST - 1] = 0;
  pthread_mutex_init(&link->sending, NULL);
  set_up(s, g->options->timeout_s);
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

/* Listens for IPv6 and IPv4; with options->here only on the IPv4 loopback address. */
static int listen_on(const LinkOptions *options, int port) {
  const struct sockaddr_in6 all = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
  const struct sockaddr_in all_4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  struct sockaddr_in here = all_4;
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int six = options->here ? -1 : listen_at((const struct sockaddr *)&all, sizeof all);
  if (six >= 0 || (!options->here && errno == EADDRINUSE))
    return six; /* -1: the port is in use. After another failure IPv6 may be missing: IPv4 is tried below */
  return listen_at((const struct sockaddr *)(options->here ? &here : &all_4), sizeof here);
}

/* A connection that has not proved anything yet. */
typedef struct {
  int socket;
  double since_ms;
  size_t n; /* bytes of greeting.hello that have come */
  Greeting greeting;
} Caller;

typedef struct {
  const LinkOptions *options;
  int port, n_here;
  Link *links;
  Caller callers[MOST_CALLERS]; /* [n_callers] the oldest first */
  int n_callers;
  int n_refused, n_silent;
} Reception;

static void drop(Reception *r, int i, int *counter) {
  if (counter) {
    close(r->callers[i].socket);
    ++*counter;
  }
  memmove(&r->callers[i], &r->callers[i + 1], (size_t)(--r->n_callers - i) * sizeof *r->callers);
}

/* Takes a new connection, in place of the oldest if there are too many. */
static void greet(Reception *r, int listening) {
  if (r->n_callers == MOST_CALLERS) drop(r, 0, &r->n_silent);
  Caller *caller = &r->callers[r->n_callers];
  Challenge *challenge = &caller->greeting.challenge;
  *caller = (Caller){.since_ms = clock_ms(), .greeting = {.options = r->options, .port = r->port}};
  memcpy(challenge->magic, magic, sizeof magic);
  caller->socket = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (caller->socket < 0 && r->n_callers > 0 && errno != EAGAIN)
    drop(r, 0, &r->n_silent); /* too many open files */
  if (caller->socket < 0) return;
  r->n_callers++;
  if (getrandom(challenge->nonce, NONCE, 0) != NONCE || !put(caller->socket, challenge, sizeof *challenge))
    drop(r, r->n_callers - 1, &r->n_silent);
}

/* True if the caller has proved to be a missing rank, which is then linked. */
static bool join(Reception *r, const Caller *caller) {
  const Greeting *g = &caller->greeting;
  const Hello *hello = &g->hello;
  Welcome welcome;
  uint8_t mac[SHA256_BYTES];
  prove(g, "rank", hello->host, mac);
  if (!same(mac, hello->mac) || hello->n != r->options->n || hello->rank < 1 || hello->rank >= r->options->n)
    return false;
  if (r->links[hello->rank].socket >= 0) return false;
  own_host(welcome.host);
  prove(g, "first", welcome.host, welcome.mac);
  if (fcntl(caller->socket, F_SETFL, 0) != 0) return false; /* from here on calls on the socket block */
  set_wait(caller->socket, GREETING_S);
  if (!put(caller->socket, &welcome, sizeof welcome)) return false;
  open_link(&r->links[hello->rank], caller->socket, hello->host, g);
  r->n_here++;
  return true;
}

/* Reads what a caller has sent. False if it is no caller any more: it became a rank's link, or was closed. */
static bool hear(Reception *r, int i) {
  Caller *caller = &r->callers[i];
  Hello *hello = &caller->greeting.hello;
  const ssize_t n = recv(caller->socket, (char *)hello + caller->n, sizeof *hello - caller->n, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n > 0) caller->n += (size_t)n;
  if (n > 0 && caller->n < sizeof *hello) return true;
  if (n <= 0)
    drop(r, i, &r->n_silent);
  else if (join(r, caller))
    drop(r, i, NULL);
  else
    drop(r, i, &r->n_refused);
  return false;
}

/* Waits for all callers at once: a silent caller delays no other caller. */
static void receive(Reception *r, int listening, int wait_ms) {
  struct pollfd ready[MOST_CALLERS + 1];
  const int n = r->n_callers;
  for (int i = 0; i < n; i++) ready[i] = (struct pollfd){.fd = r->callers[i].socket, .events = POLLIN};
  ready[n] = (struct pollfd){.fd = listening, .events = POLLIN};
  if (poll(ready, (nfds_t)n + 1, wait_ms) < 0) return;
  for (int i = n - 1; i >= 0; i--) {
    if (ready[i].revents && !hear(r, i)) continue;
    if (clock_ms() - r->callers[i].since_ms > GREETING_S * 1e3) drop(r, i, &r->n_silent);
  }
  if (ready[n].revents) greet(r, listening);
}

/* Names the ranks that have not connected: "ranks 1 3", or "rank 2". */
static void name_missing(const LinkOptions *options, const Link *links, char *out, size_t size) {
  int n = 0;
  char text[64] = "";
  for (int i = 1; i < options->n; i++)
    if (links[i].socket < 0) n += snprintf(text + strlen(text), sizeof text - strlen(text), " %d", i) > 0;
  snprintf(out, size, "rank%s%s", n > 1 ? "s" : "", text);
}

/* Appends text about n > 0 connections that were no rank's, such as "; 2 connections had another key". */
static void add_others(char *out, size_t size, int n, const char *what) {
  const size_t used = strlen(out);
  if (n > 0) snprintf(out + used, size - used, "; %d connection%s %s", n, n > 1 ? "s" : "", what);
}

static Status accept_all(Reception *r, int listening, Error *err) {
  const LinkOptions *options = r->options;
  const double end = clock_ms() + options->timeout_s * 1e3;
  while (r->n_here < options->n - 1) {
    const double left = end - clock_ms();
    if (options->interrupted()) return error_set(err, STATUS_INTERRUPTED, "interrupted");
    if (left <= 0) {
      char missing[80], others[200] = "";
      name_missing(options, r->links, missing, sizeof missing);
      add_others(others, sizeof others, r->n_refused, "had another key or job (AUK_RANKS_KEY)");
      for (int i = 0; i < r->n_callers; i++) r->n_silent += clock_ms() - r->callers[i].since_ms > 500;
      add_others(others, sizeof others, r->n_silent, "sent no greeting");
      return error_set(err, STATUS_FAILED,
                       "--split auto: %s did not connect to rank 0, port %d, within %d s%s", missing, r->port,
                       options->timeout_s, others);
    }
    receive(r, listening, left < 200 ? (int)left + 1 : 200);
  }
  return STATUS_OK;
}

Status link_listen(const LinkOptions *options, Link *links, Error *err) {
  int listening = -1, port = options->port;
  for (int i = 0; i < options->n_ports && listening < 0; i++)
    listening = listen_on(options, port = options->port + i);
  if (listening < 0)
    return error_set(err, STATUS_FAILED,
                     "--split auto: cannot listen on port %d: %s (MASTER_PORT names another)", port,
                     strerror(errno));
  Reception reception = {.options = options, .port = port, .links = links};
  const Status status = accept_all(&reception, listening, err);
  while (reception.n_callers > 0) drop(&reception, 0, &reception.n_silent);
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

static Outcome introduce(const LinkOptions *options, int port, int s, Link *link) {
  Greeting g = {.options = options, .port = port, .hello = {.rank = options->rank, .n = options->n}};
  Welcome welcome;
  uint8_t mac[SHA256_BYTES];
  if (!take(s, &g.challenge, sizeof g.challenge) || memcmp(g.challenge.magic, magic, sizeof magic) != 0)
    return ANOTHER_THERE;
  if (getrandom(g.hello.nonce, NONCE, 0) != NONCE) return NOTHING_THERE;
  own_host(g.hello.host);
  prove(&g, "rank", g.hello.host, g.hello.mac);
  if (!put(s, &g.hello, sizeof g.hello) || !take(s, &welcome, sizeof welcome)) return ANOTHER_THERE;
  prove(&g, "first", welcome.host, mac);
  if (!same(mac, welcome.mac)) return ANOTHER_THERE;
  open_link(link, s, welcome.host, &g);
  return JOINED;
}

static bool may_try(const LinkOptions *options, double end_ms) {
  return clock_ms() < end_ms && !options->interrupted();
}

/* Tries each port at each of the host's addresses; an address that does not answer takes GREETING_S. Returns
 * the best outcome, `best` being the best outcome of earlier rounds. */
static Outcome try_all(const LinkOptions *options, const struct addrinfo *addresses, double end_ms,
                       Outcome best, Link *link) {
  for (int i = 0; i < options->n_ports; i++)
    for (const struct addrinfo *at = addresses; at && may_try(options, end_ms); at = at->ai_next) {
      const int s = connect_to(at, options->port + i);
      if (s < 0) continue;
      const Outcome outcome = introduce(options, options->port + i, s, link);
      if (outcome == JOINED) return JOINED;
      close(s);
      if (outcome > best) best = outcome;
    }
  return best;
}

Status link_connect(const LinkOptions *options, Link *link, Error *err) {
  static const struct timespec pause = {.tv_nsec = 100000000};
  const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  struct addrinfo *found;
  const int error = getaddrinfo(options->host, NULL, &hints, &found);
  if (error)
    return error_set(err, STATUS_FAILED, "rank %d: no address of rank 0's host %s: %s", options->rank,
                     options->host, gai_strerror(error));
  const double end = clock_ms() + options->timeout_s * 1e3;
  Outcome outcome = try_all(options, found, end, NOTHING_THERE, link);
  while (outcome != JOINED && may_try(options, end)) {
    nanosleep(&pause, NULL);
    outcome = try_all(options, found, end, outcome, link);
  }
  freeaddrinfo(found);
  if (outcome == JOINED) return STATUS_OK;
  if (options->interrupted()) return error_set(err, STATUS_INTERRUPTED, "interrupted");
  return error_set(err, STATUS_FAILED, "rank %d: rank 0 at %s, port %d, %s for %d s%s", options->rank,
                   options->host, options->port,
                   outcome == ANOTHER_THERE ? "has not taken this rank" : "did not answer",
                   options->timeout_s,
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

/* The mac of message `number`, whose bytes are a, then b. */
static void sign(const HmacKey *key, uint64_t number, const Head *head, const void *a, size_t a_size,
                 const void *b, size_t b_size, uint8_t mac[SHA256_BYTES]) {
  Sha256 text = key->inner;
  sha256_add(&text, &number, sizeof number);
  sha256_add(&text, head, sizeof *head);
  sha256_add(&text, a, a_size);
  sha256_add(&text, b, b_size);
  hmac_end(key, &text, mac);
}

bool link_send(Link *link, uint32_t kind, const void *a, size_t a_size, const void *b, size_t b_size,
               bool only_now) {
  Head head = {kind, (uint32_t)(a_size + b_size)};
  uint8_t mac[SHA256_BYTES];
  struct iovec parts[] = {{&head, sizeof head}, {(void *)a, a_size}, {(void *)b, b_size}, {mac, sizeof mac}};
  if (link->socket < 0 || a_size + b_size > LINK_LARGEST) return false;
  if (only_now && pthread_mutex_trylock(&link->sending) != 0) return true;
  if (!only_now) pthread_mutex_lock(&link->sending);
  sign(&link->out_key, link->n_sent++, &head, a, a_size, b, b_size, mac);
  const bool sent = send_all(link->socket, parts, 4);
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
  uint8_t mac[SHA256_BYTES];
  const size_t left = link->in.size - *used;
  if (link->is_forged || left < sizeof head) return false;
  memcpy(&head, link->in.data + *used, sizeof head);
  link->is_forged = head.size > LINK_LARGEST;
  if (link->is_forged || left < sizeof head + head.size + sizeof mac) return false;
  *kind = head.kind;
  *size = head.size;
  *bytes = link->in.data + *used + sizeof head;
  sign(&link->in_key, link->n_taken++, &head, *bytes, *size, NULL, 0, mac);
  link->is_forged = !same(mac, (const uint8_t *)*bytes + *size);
  *used += sizeof head + head.size + sizeof mac;
  return !link->is_forged;
}

void link_drop(Link *link, size_t used) {
  if (used == 0) return;
  memmove(link->in.data, link->in.data + used, link->in.size - used);
  link->in.size -= used;
}
