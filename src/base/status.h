/* status.h - the result of a function that can fail, and its one message.
 *
 * A function that can fail returns a Status. Unless this is STATUS_OK, the caller's Error has one line that
 * names the file, the place, what was expected and what was found. The command prints that line once; nothing
 * below src/commands prints. The values are the program's exit codes. */
#pragma once

#include <stddef.h>

#include "base/owned.h"

/* Declarations between C_BEGIN and C_END have C linkage, also in CUDA's C++. */
#ifdef __cplusplus
#define C_BEGIN extern "C" {
#define C_END   }
#else
#define C_BEGIN
#define C_END
#endif

C_BEGIN

typedef enum {
  STATUS_OK = 0,
  STATUS_FAILED = 1,        /* input or output, memory, a device; -x (--extract) found no code block */
  STATUS_USAGE = 2,         /* flags, or a prompt that cannot be taken */
  STATUS_MODEL = 3,         /* a checkpoint or tokenizer that is refused */
  STATUS_CUT_SHORT = 4,     /* answer cut in its form, tool call or -x block; --require-stop: cut anywhere */
  STATUS_CHOICE = 10,       /* the first of --choose with --exit-choice; 11 the second, and so on */
  STATUS_INTERRUPTED = 130, /* SIGINT, SIGTERM, SIGHUP */
  STATUS_PIPE = 141,        /* the reader of our output went away; not reported */
} Status;

typedef struct {
  char text[1024]; /* NUL-terminated, one line of valid UTF-8 that steers no terminal */
} Error;

/* Formats the message (printf style) and returns `status`, so that a failure is one statement:
 *   return error_set(err, STATUS_MODEL, "%s: tensor %s is missing", path, name);
 * The message may hold names from hostile files: characters that steer a terminal (terminal_text.h) and
 * broken UTF-8 become '?'. err may be NULL. */
Status error_set(Error *err, Status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Allocates n zeroed items of `size` bytes, or gives NULL with err set ("out of memory: WHAT needs N bytes").
 * The product is checked; n * size == 0 gives a valid pointer. Free with free(). */
void *mem_alloc(size_t n, size_t size, const char *what, Error *err);

/* Grows (never shrinks) an array, by half at least, to room for `need` items of `size` bytes. `items` is the
 * address of the pointer to the array, *capacity the room in items. On failure both are unchanged. */
Status mem_grow(void *items, size_t *capacity, size_t need, size_t size, const char *what, Error *err);

/* mem_alloc() of n items for the pointer variable `items`, as a Status. */
#define NEW(items, n, what, err)                                                                             \
  (((items) = mem_alloc(n, sizeof *(items), what, err)) ? STATUS_OK : STATUS_FAILED)

/* Appends a value to the growing array `items` of n items, as a Status. */
#define APPEND(items, n, capacity, what, err, ...)                                                           \
  (mem_grow(&(items), &(capacity), (n) + 1, sizeof *(items), what, err)                                      \
       ? STATUS_FAILED                                                                                       \
       : ((items)[(n)++] = (__VA_ARGS__), STATUS_OK))

/* Returns from the function if `call` fails; variables that are OWNED() (owned.h) are then released. */
#define TRY(call)                                                                                            \
  do {                                                                                                       \
    Status try_status_ = (call);                                                                             \
    if (try_status_ != STATUS_OK) return try_status_;                                                        \
  } while (0)

C_END
