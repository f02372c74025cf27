/* map.h - answers many prompts, one after another or many at once: the records of a file or pipe (--map), or
 * several -p. Each prompt gets one answer, or several (--n-best). */
#pragma once

#include "commands/answer/choose.h"

typedef struct {
  const char *input;  /* --map FILE|-, or NULL: the records are the prompts of -p */
  bool json;          /* records are JSON values */
  bool nul;           /* records and text results end in NUL */
  const char *resume; /* --resume OUT */
  int parallel;       /* --parallel: records at once; 0: choose */
  int states;         /* --states: StatesType */
  bool no_invariant;  /* --no-invariant: assistant_prefer_invariant() is not called */
  bool unordered;     /* each result is written when it is complete, in any order */
  bool retry_errors;
  int n_best;        /* answers to each prompt; 0 means 1 */
  const char *shard; /* --shard I/N|auto, or NULL */
  const char *claim; /* --claim DIR, or NULL */
  int lease;         /* --lease: seconds; 0: LEASE_S */
} MapFlags;          /* zero-initialise it */

enum { MAX_PARALLEL = MOST_SEQUENCES, LEASE_S = 60 };

extern const Flag map_flags[13];
#define MAP_FLAG_GROUP(Struct, member) FLAG_GROUP_IN("Many inputs", map_flags, Struct, member, MapFlags)

/* The flags of `auk run` that --map uses. */
typedef struct {
  const MapFlags *map;
  const ChooseFlags *choose;
  const PromptFlags *prompt;
  const ReplyFlags *reply;
  const AssistantFlags *assistant;
} MapJob;

/* True if map_run() has to answer: --map, several -p, or --n-best above 1. */
bool map_is_asked(const MapFlags *map, const PromptFlags *prompt);

/* Answers the records; the assistant starts zeroed. With seed S, answer i is the one that a single prompt
 * gets with seed S + i, whatever the earlier records are: to the bit on a CPU, and on a GPU if both runs have
 * --invariant. With --n-best, a record's answers have consecutive i. A record that cannot be answered gets an
 * error as its result; standard error reports it too. Any error makes the final status STATUS_FAILED, even
 * one that --resume found in the output. */
Status map_run(const MapJob *job, Assistant *assistant, Error *err);
