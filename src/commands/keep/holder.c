/* holder.c - see holder.h: the process, its socket and its clients (connected auk processes).
 * Called by: keep.c; holder_listen() by holder_job.c.
 * Always true: the socket is made under another name and renamed, so that a process which finds it can
 *              connect. Connections of other users are closed without a message. Standard streams are used
 *              until the model is ready, and not afterwards. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/output.h"
#include "commands/common.h"
#include "commands/keep/holder_internal.h"
#include "commands/keep/place.h"
#include "model/identity.h"

/* --- the socket */

static Status listen_at(Holder *h, const char *path, Error *err) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  char made[sizeof address.sun_path];
  const int length = snprintf(made, sizeof made, "%s.%d", path, (int)getpid());
  if (length < 0 || (size_t)length >= sizeof made)
    return error_set(err, STATUS_FAILED, "%s: too long a name for a socket (XDG_RUNTIME_DIR)", path);
  memcpy(address.sun_path, made, sizeof made);
  h->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (h->listener < 0) return system_error(path, "make a socket", err);
  struct stat state = {0};
  const int lock = keep_lock_names(path); /* keeps others from removing the temporary name as a leftover */
  unlink(made);
  const bool listens = bind(h->listener, (struct sockaddr *)&address, sizeof address) == 0 &&
                       chmod(made, 0600) == 0 && stat(made, &state) == 0 &&
                       listen(h->listener, SOMAXCONN) == 0;
  if (listens) h->mark = keep_mark_holder(path, state.st_ino);
  Status status = listens && rename(made, path) == 0 ? STATUS_OK : system_error(path, "make a socket", err);
  if (status) unlink(made);
  if (lock >= 0) close(lock);
  h->inode = status ? 0 : state.st_ino;
  return status;
}

static bool has_name(const Holder *h) {
  struct stat named;
  return h->path && h->inode && stat(h->path, &named) == 0 && named.st_ino == h->inode;
}

/* Removes the socket's name, unless the name is another process's by now. */
static void leave_name(Holder *h) {
  const int lock = h->path ? keep_lock_names(h->path) : -1;
  if (lock >= 0 && has_name(h)) unlink(h->path);
  if (lock >= 0) close(lock);
  free(h->path);
  h->path = NULL;
}

/* --- clients */

enum {
  GREETING_MS = 2000, /* time for a client to send HELLO, LOOK or STOP, and to leave after its last LOOK */
  DEAF_MS = 100
};

/* Accepts the connections that wait. If memory or descriptors run out, this process continues: a connection
 * is closed, or waits until other clients have gone. */
static void accept_calls(Holder *h) {
  for (;;) {
    pid_t pid;
    const int socket = accept4(h->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    const bool lacks =
        socket < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM);
    if (lacks) h->deaf_until_ms = clock_ms() + DEAF_MS;
    if (socket < 0) return;
    Caller *caller = wire_is_own(socket, &pid) ? mem_alloc(1, sizeof *caller, "a call", NULL) : NULL;
    if (!caller ||
        mem_grow(&h->callers, &h->callers_capacity, h->n_callers + 1, sizeof(Caller *), "calls", NULL)) {
      close(socket);
      free(caller);
      continue;
    }
    caller->wire = wire_on(socket);
    caller->wire.largest = WIRE_LARGEST_GREETING;
    caller->heard_ms = clock_ms();
    h->callers[h->n_callers++] = caller;
  }
}

static void close_call(Holder *h, size_t index) {
  Caller *caller = h->callers[index];
  holder_drop(h, caller);
  if (caller->greeted) h->used_ms = clock_ms();
  wire_close(&caller->wire);
  free(caller);
  h->callers[index] = h->callers[--h->n_callers];
}

static int n_greeted(const Holder *h) {
  int n = 0;
  for (size_t i = 0; i < h->n_callers; i++) n += h->callers[i]->greeted;
  return n;
}

/* --- messages */

/* The bytes of a device's own memory that the model takes; on a CPU the resident memory of this process,
 * mapped weights included. */
static uint64_t memory_bytes(const Holder *h) {
  unsigned long long total = 0, resident = 0;
  if (h->device_bytes) return h->device_bytes;
  FILE *file = fopen("/proc/self/statm", "re");
  if (file && fscanf(file, "%llu %llu", &total, &resident) != 2) resident = 0;
  if (file) fclose(file);
  return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static double left_ms(const Holder *h) {
  return h->used_ms + h->keep_seconds * 1e3 - clock_ms();
}

static Status put_state(Holder *h, Caller *caller, WireKind kind, Error *err) {
  const Assistant *a = h->assistant;
  WireState state;
  memset(&state, 0, sizeof state);
  state.pid = (int32_t)getpid();
  state.n_ctx = assistant_n_ctx(a);
  state.n_sequences = a->batch_options.n_sequences;
  state.vocab_size = a->model->config.vocab_size;
  state.n_calls = n_greeted(h);
  state.n_running = h->n_running;
  state.keep_seconds = h->keep_seconds;
  state.left_seconds = state.n_calls ? -1 : left_ms(h) > 0 ? (int32_t)(left_ms(h) / 1e3) : 0;
  state.stops = h->stops;
  state.guesses = a->session_options.n_guesses > 0;
  state.n_answered = h->n_answered;
  state.memory_bytes = memory_bytes(h);
  state.since = h->since;
  snprintf(state.backend, sizeof state.backend, "%s", a->device.backend->name);
  snprintf(state.model, sizeof state.model, "%s", a->place.name);
  return wire_put(&caller->wire, kind, &state, sizeof state, NULL, 0, err);
}

/* True if the context is as long as a client needs (WireHello). */
static bool has_context(const Holder *h, int needed) {
  const Assistant *a = h->assistant;
  const int n_ctx = assistant_n_ctx(a);
  if (needed != WHOLE_CONTEXT) return needed <= n_ctx;
  return a->flags->answer.context == NOT_GIVEN || n_ctx == a->model->config.max_position;
}

static Status greet(Holder *h, Caller *caller, const char *body, size_t size, bool *broken, Error *err) {
  WireHello hello;
  *broken = size < sizeof hello;
  if (*broken) return STATUS_OK;
  memcpy(&hello, body, sizeof hello);
  const bool same =
      size - sizeof hello == h->key.size && memcmp(body + sizeof hello, h->key.data, h->key.size) == 0;
  if (!same || h->stops || !has_context(h, hello.n_ctx) || !model_is_unchanged(h->assistant->model))
    return wire_put(&caller->wire, WIRE_REFUSED, NULL, 0, NULL, 0, err);
  if (hello.keep_seconds >= 0) h->keep_seconds = hello.keep_seconds;
  caller->greeted = true;
  caller->wire.largest = WIRE_LARGEST;
  TRY(put_state(h, caller, WIRE_WELCOME, err));
  wire_send_descriptor(&caller->wire, h->image);
  return STATUS_OK;
}

static Status stop(Holder *h, Caller *caller, const char *body, size_t size, bool *broken, Error *err) {
  WireStop message;
  *broken = size != sizeof message;
  if (*broken) return STATUS_OK;
  memcpy(&message, body, sizeof message);
  if (!message.if_idle || n_greeted(h) == 0) h->stops = true;
  return put_state(h, caller, WIRE_STATE, err);
}

static Status take_messages(Holder *h, Caller *caller, Error *err) {
  WireKind kind;
  const char *body;
  size_t size;
  bool broken = false;
  while (!broken && wire_take(&caller->wire, &kind, &body, &size)) {
    caller->heard_ms = clock_ms();
    if (kind == WIRE_HELLO && !caller->greeted) {
      TRY(greet(h, caller, body, size, &broken, err));
    } else if (kind == WIRE_LOOK) {
      TRY(put_state(h, caller, WIRE_STATE, err));
    } else if (kind == WIRE_STOP) {
      TRY(stop(h, caller, body, size, &broken, err));
    } else if (caller->greeted && (kind == WIRE_ASK || kind == WIRE_REPLY || kind == WIRE_CANCEL)) {
      TRY(holder_take_request(h, caller, kind, body, size, &broken, err));
    } else {
      broken = true;
    }
  }
  caller->wire.ended |= broken;
  return STATUS_OK;
}

/* True for a client that got no WELCOME, and has sent nothing for GREETING_MS. While this process stops,
 * such a client may stay to wait for the end. */
static bool has_no_business(const Holder *h, const Caller *caller) {
  return !caller->greeted && !h->stops && clock_ms() - caller->heard_ms > GREETING_MS;
}

Status holder_listen(Holder *h, int ms, Error *err) {
  OWNED(mem_release) struct pollfd *entries = NULL;
  const size_t n = h->n_callers;
  TRY(NEW(entries, n + 1, "calls", err));
  const bool is_deaf = clock_ms() < h->deaf_until_ms;
  entries[0] = (struct pollfd){is_deaf ? -1 : h->listener, POLLIN, 0};
  if (is_deaf && ms > DEAF_MS) ms = DEAF_MS;
  for (size_t i = 0; i < n; i++) {
    Wire *wire = &h->callers[i]->wire;
    wire_send(wire);
    entries[i + 1] = (struct pollfd){wire->socket, (short)(POLLIN | (wire_is_full(wire) ? POLLOUT : 0)), 0};
    if (!h->callers[i]->greeted && ms > GREETING_MS) ms = GREETING_MS;
    if (wire->ended) ms = 0;
  }
  const int n_ready = poll(entries, n + 1, ms);
  for (size_t i = n; i-- > 0;) {
    Caller *caller = h->callers[i];
    const bool came = n_ready > 0 && entries[i + 1].revents;
    if ((came && wire_receive(&caller->wire, NULL)) || take_messages(h, caller, NULL))
      caller->wire.ended = true;
    wire_send(&caller->wire);
    if (caller->wire.ended || has_no_business(h, caller)) close_call(h, i);
  }
  if (n_ready > 0 && entries[0].revents) accept_calls(h);
  return STATUS_OK;
}

/* --- the process */

/* Makes the image that later clients open their tokenizers from; the first client opens its tokenizer
 * itself. */
static void make_image(Holder *h) {
  Error unused;
  h->image_tried = true;
  if (!h->assistant->model->tokenizer_path) return;
  if (tokenizer_image_make(h->assistant->model->tokenizer_path, &h->image, &unused) != STATUS_OK)
    h->image = -1;
}

static bool is_over(const Holder *h) {
  if (*h->assistant->interrupted) return true;
  if (h->n_requests > 0) return false;
  if (h->stops) return true;
  return n_greeted(h) == 0 && left_ms(h) <= 0;
}

static Status serve(Holder *h, Error *err) {
  /* interval of checks that the model's files and the socket's name are unchanged */
  enum { LOOK_MS = 10000 };
  while (!is_over(h)) {
    if (h->n_requests == 0) {
      if (!h->image_tried && n_greeted(h) == 0) make_image(h);
      const double left = left_ms(h);
      const int ms = n_greeted(h) || left > LOOK_MS ? LOOK_MS : left > 0 ? (int)left + 1 : 0;
      TRY(holder_listen(h, ms, err));
      h->stops |= n_greeted(h) == 0 && (!model_is_unchanged(h->assistant->model) || !has_name(h));
    }
    if (h->n_requests > 0) TRY(holder_compute(h, err));
  }
  return STATUS_OK;
}

/* Says that the model is ready; `quiet`: also gives up the standard output, standard error and directory of
 * the client that started this process. */
static Status announce(const Holder *h, const HolderOptions *options, Error *err) {
  const Assistant *a = h->assistant;
  if (options->quiet)
    TRY(output_printf(err, "ready\n"));
  else
    print_note("%s is kept on %s: context %d, %d sequences at once", a->place.name, a->device.backend->name,
               assistant_n_ctx(a), a->batch_options.n_sequences);
  if (!options->quiet) return STATUS_OK;
  if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
    return system_error("/dev/null", "open", err);
  return chdir("/") == 0 ? STATUS_OK : system_error("/", "enter", err);
}

static Status open_holder(Holder *h, const AssistantFlags *flags, Error *err) {
  Assistant *a = h->assistant;
  OWNED(mem_release) char *directory = NULL;
  TRY(assistant_open_engine(flags, a, err));
  TRY(keep_key(flags, a->model, &h->key, err));
  TRY(assistant_start_holder(a, err));
  h->device_bytes = assistant_device_bytes(a);
  TRY(keep_directory(true, &directory, err));
  keep_remove_leftovers(directory);
  TRY(keep_path(directory, &h->key, ".sock", &h->path, err));
  return listen_at(h, h->path, err);
}

static void close_holder(Holder *h) {
  leave_name(h);
  if (h->listener >= 0) close(h->listener);
  assistant_release(h->assistant); /* first: to clients, a closed connection means free memory */
  while (h->n_callers > 0) close_call(h, h->n_callers - 1);
  if (h->image >= 0) close(h->image);
  if (h->mark >= 0) close(h->mark);
  free(h->callers);
  free(h->requests);
  buffer_release(&h->key);
}

Status holder_run(const AssistantFlags *flags, const HolderOptions *options, Assistant *assistant,
                  Error *err) {
  OWNED(close_holder)
  Holder holder = {.assistant = assistant,
                   .keep_seconds = options->keep_seconds,
                   .listener = -1,
                   .mark = -1,
                   .image = -1,
                   .since = (int64_t)time(NULL)};
  signal(SIGPIPE, SIG_IGN);
  TRY(open_holder(&holder, flags, err));
  holder.used_ms = clock_ms();
  TRY(announce(&holder, options, err));
  return serve(&holder, err);
}
