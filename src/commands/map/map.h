/* map.h - one answer after the other for the records of a file or a pipe (--map). */
#ifndef AUK_COMMANDS_MAP_MAP_H
#define AUK_COMMANDS_MAP_MAP_H

#include "commands/answer/choose.h"

typedef struct {
  const char *input;  /* --map FILE|-, or NULL */
  bool json;          /* each record is a JSON value */
  bool nul;           /* records and results that are text end in NUL */
  const char *resume; /* --resume OUT */
  bool retry_errors;
} MapFlags; /* zero-initialise it */

extern const Flag map_flags[5];
#define MAP_FLAG_GROUP(Struct, member) FLAG_GROUP_IN("Many inputs", map_flags, Struct, member, MapFlags)

/* What the flags of `auk run` ask for beside --map. */
typedef struct {
  const MapFlags *map;
  const ChooseFlags *choose;
  const PromptFlags *prompt;
  const ReplyFlags *reply;
  const AssistantFlags *assistant;
} MapJob;

/* Answers every record; the assistant starts zeroed. With seed S the i-th record (from 0) is answered as one
 * shot with seed S + i is, whatever came before it. A record that cannot be answered is an error in its
 * place, told on standard error too; where there was one, also of those that --resume found, the end is
 * STATUS_FAILED. */
Status map_run(const MapJob *job, Assistant *assistant, Error *err);

#endif
