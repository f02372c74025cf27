/* place.c - see place.h. */
#include "commands/keep/place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash64.h"
#include "commands/common.h"
#include "commands/keep/wire.h"
#include "model/identity.h"

/* --- the key */

static Status add_stamp(Buffer *key, const char *what, const char *path, Error *err) {
  FileStamp stamp;
  if (!path || file_stamp(path, &stamp, NULL) != STATUS_OK) return buffer_printf(key, err, "%s none\n", what);
  TRY(buffer_printf(key, err, "%s ", what));
  TRY(file_stamp_write(&stamp, key, err));
  return buffer_append(key, "\n", 1, err);
}

/* Adds niceness and cores of this process: a holder that it starts inherits them and may not be able to
 * change them. */
static Status add_share(Buffer *key, Error *err) {
  enum { MOST_CORES = 1 << 16 };
  unsigned long cores[MOST_CORES / 8 / sizeof(unsigned long)] = {0};
  const long size = syscall(SYS_sched_getaffinity, 0, sizeof cores, cores); /* bytes in use */
  TRY(buffer_printf(key, err, "nice %d cores", getpriority(PRIO_PROCESS, 0)));
  for (long i = 0; i < size / (long)sizeof *cores; i++) TRY(buffer_printf(key, err, " %lx", cores[i]));
  return buffer_append(key, "\n", 1, err);
}

/* Adds the stamps of tokenizer.json and of the files beside it that add tokens
 * (tokenizer/load/declared.h). */
static Status add_tokenizer(Buffer *key, const char *path, Error *err) {
  static const char *const names[] = {"tokenizer_config.json", "added_tokens.json",
                                      "special_tokens_map.json"};
  TRY(add_stamp(key, "tokenizer", path, err));
  OWNED(mem_release) char *directory = path ? path_directory(path, err) : NULL;
  if (!directory) return path ? STATUS_FAILED : STATUS_OK;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    OWNED(mem_release) char *beside = path_join(directory, names[i], err);
    TRY(beside ? add_stamp(key, names[i], beside, err) : STATUS_FAILED);
  }
  return STATUS_OK;
}

Status keep_key(const AssistantFlags *flags, const Model *model, Buffer *key, Error *err) {
  DeviceFlags device = flags->device;
  const ModelOverrides *o = &flags->model.overrides;
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  TRY(buffer_printf(key, err, "auk %s\n", AUK_VERSION));
  TRY(add_stamp(key, "program", "/proc/self/exe", err));
  TRY(model_stamps(model, key, err));
  TRY(add_tokenizer(key, model->tokenizer_path, err));
  TRY(add_share(key, err));
  TRY(buffer_printf(key, err, "rope %a eps %a\n", o->rope_theta, o->norm_eps));
  TRY(buffer_printf(key, err, "visible %s\n", visible ? visible : ""));
  if (device.split && strcmp(device.split, "1") == 0) device.split = NULL; /* the default */
  TRY(flags_write(device_flags, sizeof device_flags / sizeof *device_flags, &device, key, err));
  return flags_write(invariant_flags, 1, &device, key, err);
}

/* --- the directory */

static Status check_directory(const char *path, bool make, Error *err) {
  struct stat state;
  if (make && mkdir(path, 0700) != 0 && errno != EEXIST) return system_error(path, "make the directory", err);
  if (!make && lstat(path, &state) != 0) return STATUS_OK;
  if (lstat(path, &state) != 0) return system_error(path, "look at the directory", err);
  if (S_ISDIR(state.st_mode) && state.st_uid == geteuid() && (state.st_mode & 077) == 0) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "%s is not a directory that this user alone may enter (mode 0700)",
                   path);
}

Status keep_directory(bool make, char **path, Error *err) {
  const char *runtime = getenv("XDG_RUNTIME_DIR");
  OWNED(buffer_release) Buffer text = {0};
  *path = NULL;
  if (runtime && runtime[0] == '/' && file_is_directory(runtime))
    TRY(buffer_printf(&text, err, "%s/auk%c", runtime, 0));
  else
    TRY(buffer_printf(&text, err, "/tmp/auk-%llu%c", (unsigned long long)geteuid(), 0));
  TRY(check_directory(text.data, make, err));
  *path = text.data;
  text = (Buffer){0};
  return STATUS_OK;
}

Status keep_path(const char *directory, const Buffer *key, const char *ending, char **path, Error *err) {
  char name[64];
  snprintf(name, sizeof name, "%016llx%s", (unsigned long long)hash64(key->data, key->size, 0), ending);
  *path = path_join(directory, name, err);
  return *path ? STATUS_OK : STATUS_FAILED;
}

/* --- the socket */

int keep_lock_names(const char *path) {
  enum { TRIES = 100, TRY_MS = 10 };
  char *directory = path_directory(path, NULL);
  const int lock = directory ? open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  free(directory);
  for (int i = 0; lock >= 0 && i < TRIES; i++) {
    if (flock(lock, LOCK_EX | LOCK_NB) == 0) return lock;
    if (errno != EWOULDBLOCK) break;
    poll(NULL, 0, TRY_MS);
  }
  if (lock >= 0) close(lock);
  return -1;
}

void keep_remove_stale(const char *path) {
  int socket = -1;
  const int lock = keep_lock_names(path);
  if (lock < 0) return;
  if (keep_connect(path, &socket, NULL) == STATUS_OK && socket < 0 && errno == ECONNREFUSED) unlink(path);
  if (socket >= 0) close(socket);
  close(lock);
}

void keep_remove_leftovers(const char *directory) {
  OWNED(listing_release) DIR *entries = opendir(directory);
  struct dirent *entry;
  while (entries && (entry = readdir(entries))) {
    OWNED(mem_release)
    char *path = strstr(entry->d_name, ".sock.") ? path_join(directory, entry->d_name, NULL) : NULL;
    if (path) keep_remove_stale(path);
  }
}

/* Opens KEY.lock. *byte describes the holder's record lock in that file: one byte, at an offset made from the
 * inode number of its socket. The kernel reports a lock's owner, and drops the lock when the owner ends.
 * (A client that starts a holder locks the whole file with flock(), which sees no record locks.) */
static int open_for_holder(const char *path, ino_t inode, struct flock *byte) {
  char name[sizeof((struct sockaddr_un *)0)->sun_path];
  const size_t n = strlen(path) - strlen(".sock");
  *byte = (struct flock){
      .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)(inode & INT64_MAX) - 1, .l_len = 1};
  snprintf(name, sizeof name, "%.*s.lock", (int)n, path);
  return open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
}

int keep_mark_holder(const char *path, ino_t inode) {
  struct flock byte;
  const int descriptor = open_for_holder(path, inode, &byte);
  if (descriptor >= 0) fcntl(descriptor, F_SETLK, &byte);
  return descriptor;
}

pid_t keep_holder(const char *path) {
  struct stat state;
  struct flock byte;
  if (stat(path, &state) != 0) return 0;
  OWNED(descriptor_release) const int descriptor = open_for_holder(path, state.st_ino, &byte);
  const bool told = descriptor >= 0 && fcntl(descriptor, F_GETLK, &byte) == 0 && byte.l_type != F_UNLCK;
  return told ? byte.l_pid : 0;
}

Status keep_connect(const char *path, int *out, Error *err) {
  static const struct timeval longest = {.tv_sec = 2}; /* longest wait for room in the queue of connections */
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  pid_t pid;
  *out = -1;
  if (strlen(path) >= sizeof address.sun_path)
    return error_set(err, STATUS_FAILED, "%s: too long a name for a socket (XDG_RUNTIME_DIR)", path);
  strcpy(address.sun_path, path);
  const int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connection < 0) return system_error(path, "connect", err);
  setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof longest);
  int failed;
  do failed = connect(connection, (struct sockaddr *)&address, sizeof address);
  while (failed && errno == EINTR && !interrupt_came());
  if (failed) {
    const int why = errno;
    close(connection);
    errno = why;
    return STATUS_OK;
  }
  if (!wire_is_own(connection, &pid)) {
    close(connection);
    return error_set(err, STATUS_FAILED, "%s: another user's process listens there", path);
  }
  *out = connection;
  return STATUS_OK;
}

/* --- times */

Status keep_time(const char *name, const char *text, int *seconds, Error *err) {
  static const char units[] = "smhd";
  static const int sizes[] = {1, 60, 3600, 86400};
  char *end;
  const bool digit = *text >= '0' && *text <= '9';
  const double value = digit ? strtod(text, &end) : NAN;
  const char *unit = digit && *end ? strchr(units, *end) : units;
  const bool whole = digit && unit && (!*end || !end[1]);
  const double all = whole ? value * sizes[unit - units] : NAN;
  if (!whole || !(all >= 0 && all <= 1e9))
    return error_set(err, STATUS_USAGE,
                     "%s is \"%s\", expected a time such as 90s, 10m or 2h, from 0 (not at all) to 11574d",
                     name, text);
  *seconds = (int)ceil(all);
  return STATUS_OK;
}
