/* map.h - answers the records of a file or pipe, one after another or many at once (--map). */
#pragma once

#include "commands/answer/choose.h"

typedef struct {
  const char *input;  /* --map FILE|-, or NULL */
  bool json;          /* records are JSON values */
  bool nul;           /* records and text results end in NUL */
  const char *resume; /* --resume OUT */
  int parallel;       /* --parallel: records at once; 0: choose */
  bool unordered;     /* results as they come */
  bool retry_errors;
} MapFlags; /* zero-initialise it */

enum { MAX_PARALLEL = 256 };

extern const Flag map_flags[7];
#define MAP_FLAG_GROUP(Struct, member) FLAG_GROUP_IN("Many inputs", map_flags, Struct, member, MapFlags)

/* The flags of `auk run` that --map uses. */
typedef struct {
  const MapFlags *map;
  const ChooseFlags *choose;
  const PromptFlags *prompt;
  const ReplyFlags *reply;
  const AssistantFlags *assistant;
} MapJob;

/* Answers every record; the assistant starts zeroed. With seed S the record with index i is answered exactly
 * as a single prompt with seed S + i, independent of earlier records. A record that cannot be answered
 * becomes an error in its place, also reported on standard error. Any error, including those that --resume
 * found, makes the final status STATUS_FAILED. */
Status map_run(const MapJob *job, Assistant *assistant, Error *err);
