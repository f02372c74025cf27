/* launch.c - see launch.h.
 *
 * The process is the grandchild of the client (another auk process), in a session of its own: a terminal that
 * closes does not end it, and no process has to wait for it. It inherits no descriptors, so a reader of the
 * client's output sees end of file. It executes the program again: neither OpenMP's threads nor a CUDA
 * context outlive a fork. Other clients use it too, so it inherits no variables, limits or ignored signals
 * that would harm them. Niceness and cores stay: they are part of the key (place.h). */
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

/* Appends the arguments, each with a NUL after it. Paths are absolute: the process changes its directory. */
static Status put_all(Buffer *line, const AssistantFlags *flags, const ModelPlace *place,
                      const WireHello *hello, Error *err) {
  const DeviceFlags *device = &flags->device;
  ModelFlags model = flags->model;
  const char *tokenizer = model.overrides.tokenizer;
  OWNED(mem_release) char *whole_tokenizer = tokenizer ? realpath(tokenizer, NULL) : NULL;
  OWNED(mem_release) char *path = strcmp(place->given, place->path) == 0 ? realpath(place->path, NULL) : NULL;
  model.path = path ? path : place->given;
  if (whole_tokenizer) model.overrides.tokenizer = whole_tokenizer;
  /* --no-config: the flags include this client's settings */
  TRY(buffer_printf(line, err, "auk%ckeep%c--detached%c--no-config%c--keep%c%d%c", 0, 0, 0, 0, 0,
                    hello->keep_seconds, 0));
  TRY(flags_write(model_flags, sizeof model_flags / sizeof *model_flags, &model, line, err));
  if (hello->n_ctx > 0) TRY(buffer_printf(line, err, "-c%c%d%c", 0, hello->n_ctx, 0));
  TRY(flags_write(device_flags, sizeof device_flags / sizeof *device_flags, device, line, err));
  return flags_write(invariant_flags, 1, device, line, err);
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

/* Raises this process's soft limits (memory, ...) to the hard limits, the limit of open files to at most
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

/* Reads the pid from the first pipe (standard output), then waits for "ready" there. If that pipe closes
 * first, the second pipe (standard error) has the reason. */
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
  OWNED(buffer_release) Buffer line = {0};
  TRY(check_limits(err));
  TRY(put_all(&line, flags, place, hello, err));
  OWNED(mem_release) char **arguments = mem_alloc(line.size + 1, sizeof *arguments, "arguments", err);
  OWNED(mem_release) char **environment = passed_environment(err);
  if (!arguments || !environment) return STATUS_FAILED;
  char *at = line.data;
  for (size_t n = 0; at < line.data + line.size; at += strlen(at) + 1) arguments[n++] = at;
  return start_process(arguments, environment, err);
}
