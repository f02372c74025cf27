/* start.c - see start.h. Called by: answer/assistant.c, keep.c. */
#include "commands/keep/start.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "commands/common.h"
#include "commands/keep/launch.h"

Status keep_asked(const AssistantFlags *flags, int *seconds, Error *err) {
  const char *variable = getenv("AUK_KEEP");
  *seconds = -1;
  if (flags->keep.time) return keep_time("--keep", flags->keep.time, seconds, err);
  return variable && *variable ? keep_time("AUK_KEEP", variable, seconds, err) : STATUS_OK;
}

/* --- finding */

static Status find(const char *directory, const Buffer *key, const WireHello *hello, Remote **remote,
                   bool *silent, Error *err) {
  OWNED(mem_release) char *path = NULL;
  int socket = -1;
  *remote = NULL;
  *silent = false;
  TRY(keep_path(directory, key, ".sock", &path, err));
  TRY(keep_connect(path, &socket, err));
  *silent = socket < 0 && errno == EAGAIN;
  if (*silent) return watch_failure(keep_holder(path), err);
  return socket < 0 ? STATUS_OK : remote_open(socket, key, hello, remote, silent, err);
}

Status keep_find(const AssistantFlags *flags, const Model *model, int n_ctx, int seconds, Remote **remote,
                 bool *silent, Error *err) {
  const WireHello hello = {seconds, n_ctx};
  OWNED(mem_release) char *directory = NULL;
  OWNED(buffer_release) Buffer key = {0};
  *remote = NULL;
  *silent = false;
  TRY(keep_directory(false, &directory, err));
  TRY(keep_key(flags, model, &key, err));
  return find(directory, &key, &hello, remote, silent, err);
}

/* --- starting */

/* Waits for the lock of this key, or for the holder that another client starts while it has the lock. */
static Status lock_or_find(int lock, const char *directory, const Buffer *key, const WireHello *hello,
                           Remote **remote, Error *err) {
  enum { TRY_MS = 50 };
  for (;;) {
    bool silent;
    const bool locked = flock(lock, LOCK_EX | LOCK_NB) == 0;
    if (!locked && errno != EWOULDBLOCK && errno != EINTR)
      return error_set(err, STATUS_FAILED, "cannot lock the start of a process: %s", strerror(errno));
    TRY(find(directory, key, hello, remote, &silent, err));
    if (locked || *remote) return STATUS_OK;
    if (interrupt_came()) return error_set(err, STATUS_INTERRUPTED, "interrupted");
    poll(NULL, 0, TRY_MS);
  }
}

/* Starts the process and greets it, with the lock of this key held. */
static Status start_locked(const AssistantFlags *flags, const ModelPlace *place, const char *directory,
                           const Buffer *key, const WireHello *hello, Remote **remote, Error *err) {
  bool silent;
  TRY(launch(flags, place, hello, err));
  TRY(find(directory, key, hello, remote, &silent, err));
  if (*remote) return STATUS_OK;
  return error_set(err, STATUS_FAILED,
                   "the process that keeps the model has another model: it has just changed");
}

Status keep_start(const AssistantFlags *flags, const ModelPlace *place, const Model *model, int n_ctx,
                  int seconds, Remote **remote, Error *err) {
  const WireHello hello = {seconds, n_ctx};
  OWNED(mem_release) char *directory = NULL, *lock = NULL;
  OWNED(buffer_release) Buffer key = {0};
  *remote = NULL;
  TRY(keep_directory(true, &directory, err));
  TRY(keep_key(flags, model, &key, err));
  TRY(keep_path(directory, &key, ".lock", &lock, err));
  OWNED(descriptor_release)
  const int descriptor = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor < 0) return system_error(lock, "open", err);
  OWNED(spinner_end) Spinner spinner = loading_spinner(true);
  spinner_begin(&spinner);
  spinner_say(&spinner, "loading");
  TRY(lock_or_find(descriptor, directory, &key, &hello, remote, err));
  return *remote ? STATUS_OK : start_locked(flags, place, directory, &key, &hello, remote, err);
}

/* --- all holders of this user */

static Status visit_socket(const char *path, KeepVisit *visit, void *user, Error *err) {
  int socket = -1;
  if (keep_connect(path, &socket, NULL) != STATUS_OK) return STATUS_OK;
  if (socket >= 0 || errno == EAGAIN) return visit(user, path, socket, err);
  if (errno == ECONNREFUSED) keep_remove_stale(path);
  return STATUS_OK;
}

Status keep_each(KeepVisit *visit, void *user, Error *err) {
  OWNED(mem_release) char *directory = NULL;
  TRY(keep_directory(false, &directory, err));
  keep_remove_leftovers(directory);
  OWNED(listing_release) DIR *entries = opendir(directory);
  for (struct dirent *entry; entries && (entry = readdir(entries));) {
    if (!name_ends_with(entry->d_name, ".sock")) continue;
    OWNED(mem_release) char *path = path_join(directory, entry->d_name, err);
    if (!path) return STATUS_FAILED;
    TRY(visit_socket(path, visit, user, err));
  }
  return STATUS_OK;
}

Status keep_tell(Wire *wire, WireKind kind, const WireStop *stop, WireState *state, KeepReply *reply,
                 Error *err) {
  WireKind kind_of_reply;
  const char *body;
  size_t size;
  bool came, silent;
  *reply = wire->socket < 0 ? KEEP_IS_SILENT : KEEP_ENDS;
  if (wire->socket < 0) return STATUS_OK;
  TRY(wire_put(wire, kind, stop, stop ? sizeof *stop : 0, NULL, 0, err));
  Status status = wire_await(wire, &kind_of_reply, &body, &size, &came, &silent, err);
  if (silent) *reply = KEEP_IS_SILENT;
  if (silent) return STATUS_OK;
  if (status || !came || kind_of_reply != WIRE_STATE) return status;
  *reply = size == sizeof *state ? KEEP_REPLIED : KEEP_IS_OTHER;
  if (*reply == KEEP_IS_OTHER) return STATUS_OK;
  memcpy(state, body, sizeof *state);
  state->model[sizeof state->model - 1] = state->backend[sizeof state->backend - 1] = 0;
  return STATUS_OK;
}

bool keep_await_end(Wire *wire, int ms) {
  const double start = clock_ms();
  WireKind kind;
  const char *body;
  size_t size;
  while (!wire->ended && !interrupt_came() && clock_ms() - start < ms)
    wire_wait(wire, 100, &kind, &body, &size, NULL);
  return wire->ended;
}

static Status end_idle(void *user, const char *path, int socket, Error *err) {
  enum { END_MS = 10000 };
  const WireStop stop = {.if_idle = true};
  OWNED(wire_close) Wire wire = wire_on(socket);
  WireState state;
  KeepReply reply;
  TRY(keep_tell(&wire, WIRE_STOP, &stop, &state, &reply, err));
  *(int *)user += reply == KEEP_REPLIED && state.stops && keep_await_end(&wire, END_MS);
  return STATUS_OK;
}

int keep_make_room(void) {
  int n = 0;
  Error unused;
  keep_each(end_idle, &n, &unused);
  return n;
}
