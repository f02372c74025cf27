/* map_part.h - what a process that answers a part of the records (--shard, --claim) knows of the whole input:
 * the number of records, their hash, and where blocks of records begin. Number and hash must be equal in all
 * processes. */
#pragma once

#include "commands/map/map_records.h"
#include "commands/map/map_settings.h"

/* The records of an input, in blocks: a process claims one block at a time. */
typedef struct {
  size_t n_records;
  uint64_t hash;       /* hash of the hashes of all records */
  size_t block;        /* records of a block; the last block may have fewer */
  RecordPlace *places; /* [n_blocks] where each block begins */
  size_t n_blocks, capacity;
} Survey; /* starts zeroed */

/* Reads all records of the input. It must be a regular file: other processes read it too. `flag` is for
 * messages. */
Status survey_records(const char *path, const RecordRules *rules, const char *flag,
                      const volatile int *interrupted, Survey *survey, Error *err);
void survey_release(Survey *survey);

/* Adds the settings "prompt" and "input". `hash` is the hash of the text around each record, `text` the text
 * of -p, or NULL. */
Status survey_settings(const Survey *survey, uint64_t hash, const char *text, MapSettings *settings,
                       Error *err);
/* Reads the number of records from the setting "input"; false: there is no such setting. */
bool survey_read(const MapSettings *settings, size_t *n_records);
