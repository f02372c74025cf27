/* launch.c - see launch.h.
 *
 * The process is the grandchild of the client (another auk process), in a session of its own: a terminal that
 * closes does not end it, no process has to wait for it, and it inherits no descriptors, so that a reader of
 * the client's output sees end of file. It executes the program again, since neither OpenMP's threads nor a
 * CUDA context outlive a fork. Other clients use it too, so it inherits no variables, limits or ignored
 * signals that would harm them. Niceness and cores stay, as they are part of the key
 * (place.h). */
#include "commands/keep/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commands/common.h"
#include "commands/keep/watch.h"

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

/* Adds a flag whose value is word `index` of `words`; nothing for 0, the default. */
static Status put_choice(Arguments *a, const char *flag, const char *words, int index, Error *err) {
  Word word = {"", 0};
  char text[32];
  for (int i = 0; i <= index; i++)
    if (!flag_next_choice(&words, &word)) return STATUS_OK;
  snprintf(text, sizeof text, "%.*s", (int)word.size, word.text);
  return index ? put(a, flag, text, err) : STATUS_OK;
}

/* Adds a flag with a path, made absolute since the process changes its directory. */
static Status put_path(Arguments *a, const char *flag, const char *path, Error *err) {
  OWNED(mem_release) char *whole = realpath(path, NULL);
  return put(a, flag, whole ? whole : path, err);
}

static Status put_all(Arguments *a, const AssistantFlags *flags, const ModelPlace *place,
                      const WireHello *hello, Error *err) {
  const DeviceFlags *d = &flags->device;
  const ModelOverrides *o = &flags->model.overrides;
  TRY(put(a, "auk", "keep", err));
  TRY(put(a, "--detached", NULL, err));
  TRY(put(a, "--no-config", NULL, err)); /* the flags include this client's settings */
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

/* --- the environment and the limits */

/* Variables that the process gets: those that it and its libraries read, and no secret of the client. A name
 * that ends in '_' stands for all names with this prefix. */
static const char *const passed[] = {
    "HOME",          "PATH",    "TMPDIR", "LANG",   "LC_",   "XDG_",    "TZ",
    "LD_",           "OMP_",    "GOMP_",  "KMP_",   "CUDA_", "NVIDIA_", "MALLOC_",
    "HF_HUB_CACHE",  "HF_HOME", "ASAN_",  "UBSAN_", "LSAN_", "TSAN_",   "HUGGINGFACE_HUB_CACHE",
    "GLIBC_TUNABLES"};

static bool is_passed(const char *variable) {
  for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
    const size_t n = strlen(passed[i]);
    if (strncmp(variable, passed[i], n) == 0 && (passed[i][n - 1] == '_' || variable[n] == '=')) return true;
  }
  return false;
}

/* The passed variables in a new list; its strings still belong to the environment. */
static char **passed_environment(Error *err) {
  size_t n = 0;
  while (environ[n]) n++;
  char **list = mem_alloc(n + 1, sizeof *list, "an environment", err);
  n = 0;
  for (char **variable = environ; list && *variable; variable++)
    if (is_passed(*variable)) list[n++] = *variable;
  return list;
}

/* Raises this process's soft limits (memory, ...) to the hard limits; the limit of open files, to at most
 * MOST_FILES. Limits of stacks (threads.c) and core files stay as they are. */
static void raise_limits(void) {
  enum { MOST_FILES = 1 << 16 };
  static const int limits[] = {RLIMIT_CPU,    RLIMIT_AS,      RLIMIT_DATA,  RLIMIT_FSIZE,
                               RLIMIT_NOFILE, RLIMIT_MEMLOCK, RLIMIT_NPROC, RLIMIT_RSS};
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    struct rlimit limit;
    if (getrlimit(limits[i], &limit) != 0) continue;
    const bool files = limits[i] == RLIMIT_NOFILE && limit.rlim_max > MOST_FILES;
    const rlim_t most = files ? MOST_FILES : limit.rlim_max;
    if (limit.rlim_cur < most) limit.rlim_cur = most;
    setrlimit(limits[i], &limit);
  }
}

/* Refuses a hard limit of CPU time: it would end the process in the middle of another client's answer. */
static Status check_limits(Error *err) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_CPU, &limit) != 0 || limit.rlim_max == RLIM_INFINITY) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "the CPU time of processes is limited here to %llu s each (ulimit -t)",
                   (unsigned long long)limit.rlim_max);
}

/* --- the process */

/* Becomes the holder; uses only functions that are safe after fork(). */
static void become(const int pipes[2][2], char **arguments, char **environment) {
  static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
  const pid_t self = getpid();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) signal(signals[i], SIG_DFL);
  raise_limits();
  const int nothing = open("/dev/null", O_RDWR);
  if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(pipes[0][1], STDOUT_FILENO) < 0 ||
      dup2(pipes[1][1], STDERR_FILENO) < 0)
    _exit(STATUS_FAILED);
  if (syscall(SYS_close_range, 3, ~0u, 0) != 0)
    for (int i = 3; i < 4096; i++) close(i);
  if (write(STDOUT_FILENO, &self, sizeof self) == (ssize_t)sizeof self)
    execve("/proc/self/exe", arguments, environment);
  _exit(STATUS_FAILED);
}

static Status fork_twice(int pipes[2][2], char **arguments, char **environment, Error *err) {
  const pid_t child = fork();
  if (child < 0) return system_error("a process that keeps the model", "start", err);
  if (child == 0) {
    if (setsid() < 0) _exit(STATUS_FAILED);
    const pid_t grandchild = fork();
    if (grandchild != 0) _exit(grandchild < 0);
    become((const int(*)[2])pipes, arguments, environment);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return status == 0 ? STATUS_OK
                     : error_set(err, STATUS_FAILED, "cannot start a process that keeps the model");
}

/* Waits for "ready" on the first pipe (standard output), after the pid. If that pipe closes first, the second
 * one (standard error) has the reason. */
static Status await_ready(const int pipes[2][2], Error *err) {
  char text[sizeof err->text] = "", unused[64];
  size_t n = 0;
  pid_t pid = 0;
  while (read(pipes[0][0], &pid, sizeof pid) < 0 && errno == EINTR) continue;
  struct pollfd entries[2] = {{pipes[0][0], POLLIN, 0}, {pipes[1][0], POLLIN, 0}};
  while (entries[0].fd >= 0 || entries[1].fd >= 0) {
    if (interrupt_came()) return error_set(err, STATUS_INTERRUPTED, "interrupted");
    if (poll(entries, 2, 100) <= 0) {
      if (!process_is_stopped(pid)) continue;
      return error_set(err, STATUS_FAILED, "the process that keeps the model (%d) was stopped while it began",
                       (int)pid);
    }
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
  char *own = strstr(text, "auk: "), *begin = own ? own + 5 : text + strspn(text, "\n");
  begin[strcspn(begin, "\n")] = 0;
  return error_set(err, STATUS_FAILED, "%s",
                   *begin ? begin : "the process that keeps the model did not start");
}

static Status start_process(char **arguments, char **environment, Error *err) {
  int pipes[2][2] = {{-1, -1}, {-1, -1}};
  Status status = STATUS_OK;
  for (int i = 0; i < 2 && status == STATUS_OK; i++)
    if (pipe2(pipes[i], O_CLOEXEC) != 0) status = system_error("a pipe", "make", err);
  if (status == STATUS_OK) status = fork_twice(pipes, arguments, environment, err);
  for (int i = 0; i < 2; i++) {
    if (pipes[i][1] >= 0) close(pipes[i][1]);
    pipes[i][1] = -1;
  }
  if (status == STATUS_OK) status = await_ready((const int(*)[2])pipes, err);
  for (int i = 0; i < 2; i++)
    if (pipes[i][0] >= 0) close(pipes[i][0]);
  return status;
}

Status launch(const AssistantFlags *flags, const ModelPlace *place, const WireHello *hello, Error *err) {
  Arguments arguments = {.n = 0};
  TRY(check_limits(err));
  char **environment = passed_environment(err);
  Status status = environment ? put_all(&arguments, flags, place, hello, err) : STATUS_FAILED;
  if (status == STATUS_OK) status = start_process(arguments.items, environment, err);
  for (int i = 0; i < arguments.n; i++) free(arguments.items[i]);
  free(environment);
  return status;
}
