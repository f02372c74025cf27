/* map_run.h - a --map run: what map.c shares with map_many.c, which answers the records. */
#pragma once

#include "commands/map/map_answer.h"
#include "commands/map/map_blocks.h"
#include "commands/map/map_shard.h"

typedef struct {
  Mapping mapping;
  Buffer before; /* texts of -f, in front of every prompt */
  RecordReader reader;
  Shard shard;       /* --shard */
  Buffer shard_path; /* OUT.I-of-N, where the shard's results go */
  Survey survey;     /* survey of the whole input, with --shard or --claim, or if records were counted */
  Blocks *blocks;    /* --claim: where results go, or NULL */
  Results results;
  Record record;
  bool resuming;                    /* `record` may have a result already */
  size_t n_found, n_errors, n_done; /* results kept from OUT; results that are errors; results kept or made */
  size_t n_running;                 /* records that are being answered together */
  size_t n_waiting;                 /* results that wait until an earlier result is written */
  double start_ms, shown_ms;
  bool on_screen; /* a progress line is on standard error */
} Map;

/* Reads the next record into map->record; *at_end: there is none. Without may_wait, *found and *at_end are
 * both false if the record has not come yet. */
Status map_read_record(Map *map, bool may_wait, bool *found, bool *at_end, Error *err);
/* *stays: the current record has an earlier result that can stay; the caller then calls map_keep_result().
 * `found` is false at the end of the records. */
Status map_look_for_result(Map *map, bool found, bool *stays, Error *err);
Status map_keep_result(Map *map, Error *err);
/* Writes a result; `input` is its record's hash. `note`, about the record at `line`, goes to standard error,
 * unless it is empty. */
Status map_add_result(Map *map, uint64_t input, const Buffer *result, size_t line, const char *note,
                      Error *err);
/* Draws the line of progress on a terminal; without at_once, only if it was not drawn a moment ago. */
void map_show_progress(Map *map, bool at_once);
/* Prints a note to standard error, in place of the line of progress. */
void map_say(Map *map, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Writes to `what` how an answer is cut or incomplete, if the user should know of it; else "". */
void map_describe_cut(const Map *map, const AnswerResult *result, char what[128]);

/* Answers all remaining records with the assistant's engine, and on the other GPUs too if --gpu names
 * several. has_record: map->record is the first one. */
Status map_many(Map *map, bool has_record, Error *err);
