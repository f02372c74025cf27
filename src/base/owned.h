/* owned.h - local variables whose declaration says how they are released. */
#pragma once

#include <stdlib.h>
#include <string.h>

/* When the variable's scope ends, also by TRY(), release(&variable) is called; several variables are released
 * in the reverse order of their declarations. PRECOND the variable is initialised where it is declared.
 * TAKE() empties it when its value passes to another owner.
 *   OWNED(buffer_release) Buffer text = {0};
 *   OWNED(mem_release) char *path = NULL; */
#define OWNED(release) __attribute__((cleanup(release)))

/* For OWNED: frees what a pointer variable points to; `pointer` is the variable's address. */
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
