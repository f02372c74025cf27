/* faults.c - makes one call of the C library fail: linked into build/torture with ld's --wrap, so that every
 * call of NAME in this program (and in libraries that are linked in whole) comes to __wrap_NAME() here.
 *
 * Driven by: scripts/torture.py, through the environment:
 *   AUK_FAULT=KIND:N   the Nth call of this kind fails: alloc, open, read, map, write, sync, rename
 *   AUK_FAULT_TOLD=F   this file appears when it did
 * Always true: what does not fail is passed on untouched. The thread library's and the sanitizers' own calls
 * are not
 *              wrapped: they end a program in their own words. cJSON, a shared library, is given our
 *              functions. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef enum {
  KIND_NONE,
  KIND_ALLOC,
  KIND_OPEN,
  KIND_READ,
  KIND_MAP,
  KIND_WRITE,
  KIND_SYNC,
  KIND_RENAME
} Kind;

static const char *const kind_names[] = {"none", "alloc", "open", "read", "map", "write", "sync", "rename"};

static Kind wanted;
static long which;
static const char *told;
static atomic_long calls;

static bool fails(Kind kind, int error) {
  if (kind != wanted || atomic_fetch_add(&calls, 1) + 1 != which) return false;
  if (told) syscall(SYS_close, syscall(SYS_openat, AT_FDCWD, told, O_CREAT | O_WRONLY, 0600));
  errno = error;
  return true;
}

/* --- memory */

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size) {
  return fails(KIND_ALLOC, ENOMEM) ? NULL : __real_malloc(size);
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size) {
  return fails(KIND_ALLOC, ENOMEM) ? NULL : __real_calloc(n, size);
}

void *__real_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size) {
  return fails(KIND_ALLOC, ENOMEM) ? NULL : __real_realloc(memory, size);
}

char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text) {
  return fails(KIND_ALLOC, ENOMEM) ? NULL : __real_strdup(text);
}

/* Runs before main(); until then nothing fails. */
__attribute__((constructor)) static void read_environment(void) {
  cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = __wrap_malloc, .free_fn = free});
  const char *fault = getenv("AUK_FAULT");
  told = getenv("AUK_FAULT_TOLD");
  const char *colon = fault ? strchr(fault, ':') : NULL;
  if (!colon) return;
  which = atol(colon + 1);
  for (Kind kind = KIND_ALLOC; kind <= KIND_RENAME; kind++)
    if (strncmp(fault, kind_names[kind], (size_t)(colon - fault)) == 0) wanted = kind;
}

/* --- files */

static mode_t mode_of(int flags, va_list list) {
  return flags & (O_CREAT | __O_TMPFILE) ? (mode_t)va_arg(list, int) : 0;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  mode_t mode = mode_of(flags, list);
  va_end(list);
  return fails(KIND_OPEN, EMFILE) ? -1 : __real_open(path, flags, mode);
}

int __real_openat(int directory, const char *path, int flags, ...);
int __wrap_openat(int directory, const char *path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  mode_t mode = mode_of(flags, list);
  va_end(list);
  return fails(KIND_OPEN, EMFILE) ? -1 : __real_openat(directory, path, flags, mode);
}

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode) {
  return fails(KIND_OPEN, EMFILE) ? NULL : __real_fopen(path, mode);
}

/* The flag that ferror() asks for, as glibc has it: libio.h, _IO_ERR_SEEN. */
enum { STREAM_ERROR = 0x20 };

size_t __real_fread(void *bytes, size_t size, size_t n, FILE *stream);
size_t __wrap_fread(void *bytes, size_t size, size_t n, FILE *stream) {
  if (!fails(KIND_READ, EIO)) return __real_fread(bytes, size, n, stream);
  stream->_flags |= STREAM_ERROR;
  return 0;
}

ssize_t __real_getline(char **line, size_t *capacity, FILE *stream);
ssize_t __wrap_getline(char **line, size_t *capacity, FILE *stream) {
  if (!fails(KIND_READ, EIO)) return __real_getline(line, capacity, stream);
  stream->_flags |= STREAM_ERROR;
  return -1;
}

ssize_t __real_read(int descriptor, void *bytes, size_t size);
ssize_t __wrap_read(int descriptor, void *bytes, size_t size) {
  return fails(KIND_READ, EIO) ? -1 : __real_read(descriptor, bytes, size);
}

ssize_t __real_pread(int descriptor, void *bytes, size_t size, off_t offset);
ssize_t __wrap_pread(int descriptor, void *bytes, size_t size, off_t offset) {
  return fails(KIND_READ, EIO) ? -1 : __real_pread(descriptor, bytes, size, offset);
}

void *__real_mmap(void *at, size_t size, int protection, int flags, int descriptor, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int descriptor, off_t offset) {
  if (fails(KIND_MAP, ENOMEM)) return MAP_FAILED;
  return __real_mmap(at, size, protection, flags, descriptor, offset);
}

ssize_t __real_write(int descriptor, const void *bytes, size_t size);
ssize_t __wrap_write(int descriptor, const void *bytes, size_t size) {
  return fails(KIND_WRITE, ENOSPC) ? -1 : __real_write(descriptor, bytes, size);
}

ssize_t __real_pwrite(int descriptor, const void *bytes, size_t size, off_t offset);
ssize_t __wrap_pwrite(int descriptor, const void *bytes, size_t size, off_t offset) {
  return fails(KIND_WRITE, ENOSPC) ? -1 : __real_pwrite(descriptor, bytes, size, offset);
}

int __real_fsync(int descriptor);
int __wrap_fsync(int descriptor) {
  return fails(KIND_SYNC, EIO) ? -1 : __real_fsync(descriptor);
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to) {
  return fails(KIND_RENAME, EACCES) ? -1 : __real_rename(from, to);
}

int __real_linkat(int from_directory, const char *from, int to_directory, const char *to, int flags);
int __wrap_linkat(int from_directory, const char *from, int to_directory, const char *to, int flags) {
  return fails(KIND_RENAME, EACCES) ? -1 : __real_linkat(from_directory, from, to_directory, to, flags);
}
