/* owned.h - what a function owns says at its declaration how it is released. */
#pragma once

#include <stdlib.h>
#include <string.h>

/* mem_alloc() of n items for the pointer variable `items`, as a Status. */
#define NEW(items, n, what, err)                                                                             \
  (((items) = mem_alloc(n, sizeof *(items), what, err)) ? STATUS_OK : STATUS_FAILED)

/* Appends a value to the growing array `items` of n items, as a Status. */
#define APPEND(items, n, capacity, what, err, ...)                                                           \
  (mem_grow(&(items), &(capacity), (n) + 1, sizeof *(items), what, err)                                      \
       ? STATUS_FAILED                                                                                       \
       : ((items)[(n)++] = (__VA_ARGS__), STATUS_OK))

/* Whatever ends the scope of the variable, TRY() too, calls release(&variable); of several variables in the
 * reverse order. The variable is initialised where it is declared, and emptied by TAKE() when another one
 * takes over what it holds.
 *   OWNED(buffer_release) Buffer text = {0};
 *   OWNED(mem_release) char *path = NULL; */
#define OWNED(release) __attribute__((cleanup(release)))

/* For OWNED: frees the memory at a pointer, whose address is given. */
static inline void mem_release(void *pointer) {
  void *memory;
  memcpy(&memory, pointer, sizeof memory); /* the caller's pointer is of any type */
  free(memory);
}

/* The value of a variable, which is left empty. */
#define TAKE(variable)                                                                                       \
  ({                                                                                                         \
    __typeof__(variable) taken_ = (variable);                                                                \
    (variable) = (__typeof__(variable)){0};                                                                  \
    taken_;                                                                                                  \
  })

/* Defines release(&pointer) for OWNED: close(pointer), unless that is NULL. */
#define RELEASE_BY(release, Type, close)                                                                     \
  static inline void release(Type **pointer) {                                                               \
    if (*pointer) close(*pointer);                                                                           \
  }
