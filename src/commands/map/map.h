/* map.h - answers the records of a file or pipe one after another (--map). */
#pragma once

#include "commands/answer/choose.h"

typedef struct {
  const char *input;  /* --map FILE|-, or NULL */
  bool json;          /* records are JSON values */
  bool nul;           /* records and text results end in NUL */
  const char *resume; /* --resume OUT */
  bool retry_errors;
} MapFlags; /* zero-initialise it */

extern const Flag map_flags[5];
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
