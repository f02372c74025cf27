/* tensor_dump.h - a dump of tensors: a line of text for each. A transcript keeps of each dump its number of
 * lines and a hash of them. With DUMP=MODEL in the environment the dumps of this model are printed instead:
 * test/cpu/test_tensors.c says how two trees are compared. Also for C++. */
#pragma once

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash64.h"

/* Drafters in directories of their own, and their targets. */
static const struct {
  const char *name, *target;
} dump_drafters[] = {{"drafters/dflash", "drafters/target"},
                     {"drafters/dflash-speculators", "drafters/target"},
                     {"drafters/eagle3", "drafters/target"},
                     {"drafters/eagle3-norm-before-fc", "drafters/target"},
                     {"drafters/eagle3-speculators", "drafters/target"},
                     {"drafters/gemma4-assistant", "miniatures/gemma4-bf16"}};
enum { N_DUMP_DRAFTERS = sizeof dump_drafters / sizeof *dump_drafters };

typedef struct {
  const char *model; /* "miniatures/qwen3-awq" */
  FILE *out;         /* a line for each stage */
  int n;             /* lines of the stage so far, and their hash */
  uint64_t hash;
} Dump;

/* The model whose dumps are printed, or NULL. */
static inline const char *dump_printed(void) {
  return getenv("DUMP");
}

/* True if the model's dumps are needed. */
static inline bool dump_wants(const char *model) {
  return !dump_printed() || strcmp(dump_printed(), model) == 0;
}

static inline void dump_begin(Dump *dump, const char *stage) {
  dump->n = 0;
  dump->hash = 0;
  if (dump_printed()) printf("\n%s, %s\n", dump->model, stage);
}

__attribute__((format(printf, 2, 3))) static inline void dump_line(Dump *dump, const char *format, ...) {
  char line[1000];
  va_list arguments;
  va_start(arguments, format);
  const int n = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  const size_t size = n < (int)sizeof line ? (size_t)n : sizeof line - 1;
  dump->hash = hash64(line, size, dump->hash);
  dump->n++;
  if (dump_printed()) puts(line);
}

static inline void dump_end(const Dump *dump, const char *stage) {
  fprintf(dump->out, " %s: %d, %016" PRIx64 "\n", stage, dump->n, dump->hash);
}
