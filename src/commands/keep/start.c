/* start.c - see start.h. Called by: answer/assistant.c, keep.c.
 *
 * The process is the grandchild of the call, in a session of its own: a terminal that closes does not end it,
 * no process has to wait for it, and of the call's descriptors it has none, so that a reader of the call's
 * output sees its end. It is executed anew, since neither OpenMP's threads nor a CUDA context outlive a
 * fork. */
#include "commands/keep/start.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "commands/common.h"

Status keep_asked(const AssistantFlags *flags, int *seconds, Error *err) {
  const char *variable = getenv("AUK_KEEP");
  *seconds = -1;
  if (flags->keep.time) return keep_time("--keep", flags->keep.time, seconds, err);
  return variable && *variable ? keep_time("AUK_KEEP", variable, seconds, err) : STATUS_OK;
}

/* --- finding */

static Status find(const char *directory, const Buffer *key, const WireHello *hello, Remote **remote,
                   Error *err) {
  char *path = NULL;
  int socket = -1;
  pid_t pid;
  *remote = NULL;
  TRY(keep_path(directory, key, ".sock", &path, err));
  Status status = keep_connect(path, &socket, &pid, err);
  free(path);
  TRY(status);
  return socket < 0 ? STATUS_OK : remote_open(socket, key, hello, remote, err);
}

Status keep_find(const AssistantFlags *flags, const Model *model, int n_ctx, int seconds, Remote **remote,
                 Error *err) {
  const WireHello hello = {seconds, n_ctx};
  char *directory = NULL;
  Buffer key = {0};
  *remote = NULL;
  Status status = keep_directory(false, &directory, err);
  if (status == STATUS_OK) status = keep_key(flags, model, &key, err);
  if (status == STATUS_OK) status = find(directory, &key, &hello, remote, err);
  buffer_release(&key);
  free(directory);
  return status;
}

/* --- the command line of the process */

enum { MOST_ARGUMENTS = 40 };

typedef struct {
  char *items[MOST_ARGUMENTS + 1]; /* NULL after the last */
  int n;
} Arguments;

static Status put(Arguments *a, const char *flag, const char *value, Error *err) {
  const char *const both[] = {flag, value};
  for (int i = 0; i < 2; i++) {
    if (!both[i]) continue;
    if (a->n == MOST_ARGUMENTS || !(a->items[a->n] = strdup(both[i])))
      return error_set(err, STATUS_FAILED, "out of memory: arguments");
    a->n++;
  }
  return STATUS_OK;
}

static Status put_int(Arguments *a, const char *flag, int value, Error *err) {
  char text[32];
  snprintf(text, sizeof text, "%d", value);
  return put(a, flag, text, err);
}

static Status put_double(Arguments *a, const char *flag, double value, Error *err) {
  char text[40];
  snprintf(text, sizeof text, "%.17g", value);
  return value > 0 ? put(a, flag, text, err) : STATUS_OK;
}

/* The word of a choice's index. */
static Status put_choice(Arguments *a, const char *flag, const char *words, int index, Error *err) {
  Word word = {"", 0};
  char text[32];
  for (int i = 0; i <= index; i++)
    if (!flag_next_choice(&words, &word)) return STATUS_OK;
  snprintf(text, sizeof text, "%.*s", (int)word.size, word.text);
  return index ? put(a, flag, text, err) : STATUS_OK;
}

/* A path that is as good in another directory. */
static Status put_path(Arguments *a, const char *flag, const char *path, Error *err) {
  char *whole = realpath(path, NULL);
  Status status = put(a, flag, whole ? whole : path, err);
  free(whole);
  return status;
}

static Status put_all(Arguments *a, const AssistantFlags *flags, const ModelPlace *place,
                      const WireHello *hello, Error *err) {
  const DeviceFlags *d = &flags->device;
  const ModelOverrides *o = &flags->model.overrides;
  TRY(put(a, "auk", "keep", err));
  TRY(put(a, "--detached", NULL, err));
  TRY(put(a, "--no-config", NULL, err)); /* its settings are those of this call */
  TRY(put_int(a, "--keep", hello->keep_seconds, err));
  if (strcmp(place->given, place->path) == 0)
    TRY(put_path(a, "-m", place->path, err));
  else
    TRY(put(a, "-m", place->given, err));
  if (o->tokenizer) TRY(put_path(a, "--tokenizer", o->tokenizer, err));
  TRY(put_double(a, "--rope-theta", o->rope_theta, err));
  TRY(put_double(a, "--norm-eps", o->norm_eps, err));
  if (hello->n_ctx) TRY(put_int(a, "-c", hello->n_ctx, err));
  TRY(put_int(a, "-t", d->threads, err));
  TRY(put_choice(a, "--kv", KV_WORDS, d->kv, err));
  TRY(put_choice(a, "--device", DEVICE_WORDS, d->device, err));
  if (d->gpu) TRY(put(a, "--gpu", d->gpu, err));
  if (d->split) TRY(put(a, "--split", d->split, err));
  TRY(put_choice(a, "--split-by", SPLIT_BY_WORDS, d->split_by, err));
  if (d->gpu_memory) TRY(put(a, "--gpu-memory", d->gpu_memory, err));
  TRY(put_choice(a, "--act", ACT_WORDS, d->act, err));
  if (d->kernel) TRY(put(a, "--kernel", d->kernel, err));
  if (d->no_graphs) TRY(put(a, "--no-graphs", NULL, err));
  if (d->invariant) TRY(put(a, "--invariant", NULL, err));
  return put_choice(a, "--decode-step", DECODE_STEP_WORDS, d->decode_step, err);
}

/* --- the process */

/* Becomes the holder; only calls that are safe after fork(). */
static void become(const int pipes[2][2], char **arguments) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  const int nothing = open("/dev/null", O_RDWR);
  if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(pipes[0][1], STDOUT_FILENO) < 0 ||
      dup2(pipes[1][1], STDERR_FILENO) < 0)
    _exit(STATUS_FAILED);
  if (syscall(SYS_close_range, 3, ~0u, 0) != 0)
    for (int i = 3; i < 4096; i++) close(i);
  execv("/proc/self/exe", arguments);
  _exit(STATUS_FAILED);
}

static Status launch(int pipes[2][2], char **arguments, Error *err) {
  const pid_t child = fork();
  if (child < 0) return system_error("a process that keeps the model", "start", err);
  if (child == 0) {
    if (setsid() < 0) _exit(STATUS_FAILED);
    const pid_t grandchild = fork();
    if (grandchild != 0) _exit(grandchild < 0);
    become((const int(*)[2])pipes, arguments);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return status == 0 ? STATUS_OK
                     : error_set(err, STATUS_FAILED, "cannot start a process that keeps the model");
}

/* Waits for "ready" on the first pipe. If it closes before, the second has the reason. */
static Status await_ready(const int pipes[2][2], Error *err) {
  char text[sizeof err->text] = "", unused[64];
  size_t n = 0;
  struct pollfd entries[2] = {{pipes[0][0], POLLIN, 0}, {pipes[1][0], POLLIN, 0}};
  while (entries[0].fd >= 0 || entries[1].fd >= 0) {
    if (interrupt_came()) return error_set(err, STATUS_INTERRUPTED, "interrupted");
    if (poll(entries, 2, 100) <= 0) continue;
    if (entries[1].fd >= 0 && entries[1].revents) {
      const ssize_t got = read(entries[1].fd, text + n, sizeof text - 1 - n);
      if (got > 0) n += (size_t)got;
      if (got <= 0 || n == sizeof text - 1) entries[1].fd = -1;
    }
    if (entries[0].fd >= 0 && entries[0].revents) {
      if (read(entries[0].fd, unused, sizeof unused) > 0) return STATUS_OK;
      entries[0].fd = -1;
    }
  }
  text[n] = 0;
  char *begin = strncmp(text, "auk: ", 5) == 0 ? text + 5 : text;
  begin[strcspn(begin, "\n")] = 0;
  return error_set(err, STATUS_FAILED, "%s",
                   *begin ? begin : "the process that keeps the model did not start");
}

static Status start_process(char **arguments, Error *err) {
  int pipes[2][2] = {{-1, -1}, {-1, -1}};
  Status status = STATUS_OK;
  for (int i = 0; i < 2 && status == STATUS_OK; i++)
    if (pipe2(pipes[i], O_CLOEXEC) != 0) status = system_error("a pipe", "make", err);
  if (status == STATUS_OK) status = launch(pipes, arguments, err);
  for (int i = 0; i < 2; i++) {
    if (pipes[i][1] >= 0) close(pipes[i][1]);
    pipes[i][1] = -1;
  }
  if (status == STATUS_OK) status = await_ready((const int(*)[2])pipes, err);
  for (int i = 0; i < 2; i++)
    if (pipes[i][0] >= 0) close(pipes[i][0]);
  return status;
}

/* Starts the process and greets it, with the lock of this key held. */
static Status start_locked(const AssistantFlags *flags, const ModelPlace *place, const char *directory,
                           const Buffer *key, const WireHello *hello, Remote **remote, Error *err) {
  Arguments arguments = {.n = 0};
  TRY(find(directory, key, hello, remote, err)); /* another call was first */
  if (*remote) return STATUS_OK;
  Status status = put_all(&arguments, flags, place, hello, err);
  if (status == STATUS_OK) status = start_process(arguments.items, err);
  for (int i = 0; i < arguments.n; i++) free(arguments.items[i]);
  if (status == STATUS_OK) status = find(directory, key, hello, remote, err);
  if (status == STATUS_OK && !*remote)
    status = error_set(err, STATUS_FAILED,
                       "the process that keeps the model has another model: it has just changed");
  return status;
}

Status keep_start(const AssistantFlags *flags, const ModelPlace *place, const Model *model, int n_ctx,
                  int seconds, Remote **remote, Error *err) {
  const WireHello hello = {seconds, n_ctx == NOT_GIVEN ? 0 : n_ctx};
  char *directory = NULL, *lock = NULL;
  Buffer key = {0};
  int descriptor = -1;
  *remote = NULL;
  Status status = keep_directory(true, &directory, err);
  if (status == STATUS_OK) status = keep_key(flags, model, &key, err);
  if (status == STATUS_OK) status = keep_path(directory, &key, ".lock", &lock, err);
  Spinner spinner = loading_spinner(true);
  if (status == STATUS_OK && (descriptor = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) < 0)
    status = system_error(lock, "open", err);
  spinner_begin(&spinner);
  spinner_say(&spinner, "loading");
  if (status == STATUS_OK && flock(descriptor, LOCK_EX) != 0)
    status = interrupt_came() ? error_set(err, STATUS_INTERRUPTED, "interrupted")
                              : system_error(lock, "lock", err);
  if (status == STATUS_OK) status = start_locked(flags, place, directory, &key, &hello, remote, err);
  spinner_end(&spinner);
  if (descriptor >= 0) close(descriptor);
  free(lock);
  free(directory);
  buffer_release(&key);
  return status;
}

/* --- all holders of this user */

static Status visit_socket(const char *path, KeepVisit *visit, void *user, Error *err) {
  int socket = -1;
  pid_t pid;
  if (keep_connect(path, &socket, &pid, NULL) != STATUS_OK) return STATUS_OK;
  if (socket >= 0) return visit(user, socket, err);
  if (errno == ECONNREFUSED) unlink(path);
  return STATUS_OK;
}

Status keep_each(KeepVisit *visit, void *user, Error *err) {
  char *directory = NULL;
  TRY(keep_directory(false, &directory, err));
  DIR *open_directory = opendir(directory);
  struct dirent *entry;
  Status status = STATUS_OK;
  while (open_directory && status == STATUS_OK && (entry = readdir(open_directory))) {
    if (!name_ends_with(entry->d_name, ".sock")) continue;
    char *path = path_join(directory, entry->d_name, err);
    status = path ? visit_socket(path, visit, user, err) : STATUS_FAILED;
    free(path);
  }
  if (open_directory) closedir(open_directory);
  free(directory);
  return status;
}

Status keep_tell(Wire *wire, WireKind kind, const WireStop *stop, WireState *state, bool *replied,
                 Error *err) {
  WireKind came;
  const char *body;
  size_t size;
  *replied = false;
  TRY(wire_put(wire, kind, stop, stop ? sizeof *stop : 0, NULL, 0, err));
  while (!wire->ended) {
    if (interrupt_came()) return error_set(err, STATUS_INTERRUPTED, "interrupted");
    if (!wire_wait(wire, 100, &came, &body, &size, err)) continue;
    if (came != WIRE_STATE || size != sizeof *state) return STATUS_OK;
    memcpy(state, body, sizeof *state);
    state->model[sizeof state->model - 1] = state->backend[sizeof state->backend - 1] = 0;
    *replied = true;
    return STATUS_OK;
  }
  return STATUS_OK;
}

bool keep_await_end(Wire *wire, int ms) {
  const double start = clock_ms();
  WireKind kind;
  const char *body;
  size_t size;
  while (!wire->ended && !interrupt_came() && (ms < 0 || clock_ms() - start < ms))
    wire_wait(wire, 100, &kind, &body, &size, NULL);
  return wire->ended;
}

static Status end_idle(void *user, int socket, Error *err) {
  enum { END_MS = 10000 };
  const WireStop stop = {.if_idle = true};
  Wire wire = wire_on(socket);
  WireState state;
  bool replied;
  Status status = keep_tell(&wire, WIRE_STOP, &stop, &state, &replied, err);
  if (status == STATUS_OK && replied && state.stops && keep_await_end(&wire, END_MS)) ++*(int *)user;
  wire_close(&wire);
  return status;
}

int keep_make_room(void) {
  int n = 0;
  Error unused;
  keep_each(end_idle, &n, &unused);
  return n;
}
