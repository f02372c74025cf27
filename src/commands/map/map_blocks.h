/* map_blocks.h - the records and results of a --map run with --claim. This process takes blocks of records
 * one after another, and writes the results of each as a whole file. */
#pragma once

#include "commands/map/map_claim.h"
#include "commands/map/map_part.h"

typedef struct Blocks Blocks;

typedef struct {
  ClaimOptions claim;
  const Survey *survey; /* survey of the reader's input */
  int n_copies;         /* answers to each record; 0 means 1 */
  RecordReader *reader; /* only blocks_read() reads from it after blocks_open() */
} BlocksOptions;

/* Adds the setting "blocks", which makes processes agree on where blocks begin. */
Status blocks_settings(const Survey *survey, MapSettings *settings, Error *err);
/* Reads the number of records of a block from the setting "blocks"; false: there is no such setting. */
bool blocks_size(const MapSettings *settings, size_t *size);

Status blocks_open(const BlocksOptions *options, Blocks **blocks, Error *err);
/* Reads this process's next record. *at_end: this process has read all records of its own blocks, and
 * claims_next() is at its end. may_wait as for claims_next(). STATUS_FAILED if the input has changed since it
 * was surveyed. */
Status blocks_read(Blocks *blocks, bool may_wait, Record *record, bool *found, bool *at_end, Error *err);
/* Adds a result; results come in the order in which the records were read. *lost: this result completes block
 * *block, but another process has taken it over or written its results. This process drops its own. */
Status blocks_add(Blocks *blocks, const Buffer *result, size_t *block, bool *lost, Error *err);
/* The number of results in blocks that other processes have completed, as far as this process has seen. */
size_t blocks_elsewhere(const Blocks *blocks);
/* Calls claims_check_end(). */
Status blocks_check_end(const Blocks *blocks, Error *err);
/* Lets other processes take blocks that are not complete. NULL is fine. */
void blocks_close(Blocks *blocks);
