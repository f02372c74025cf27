/* map_blocks.h - the records and results of a --map run with --claim: blocks of records that this process
 * takes one after another, and gives as whole files. */
#pragma once

#include "commands/map/map_claim.h"
#include "commands/map/map_part.h"

typedef struct Blocks Blocks;

typedef struct {
  ClaimOptions claim;
  const Survey *survey; /* of the reader's input */
  int n_copies;         /* answers to each record; 0: one */
  RecordReader *reader; /* from here on only blocks_read() moves it */
} BlocksOptions;

/* Adds the line "blocks", by which processes agree on where blocks begin. */
Status blocks_settings(const Survey *survey, MapSettings *settings, Error *err);
/* Reads the number of records of a block from that line. */
bool blocks_size(const MapSettings *settings, size_t *size);

Status blocks_open(const BlocksOptions *options, Blocks **blocks, Error *err);
/* The next record of this process; *at_end: no process has any to do but this one those that it has read.
 * may_wait as for claims_next(). STATUS_FAILED if the input is not what it was at the beginning. */
Status blocks_read(Blocks *blocks, bool may_wait, Record *record, bool *found, bool *at_end, Error *err);
/* Adds a result; those of all records come in the order in which they were read. *lost: it was the last one
 * of block *block, which another process has taken over: the results are dropped. */
Status blocks_add(Blocks *blocks, const Buffer *result, size_t *block, bool *lost, Error *err);
/* Results of other processes that were seen; of this one those that count are not among them. */
size_t blocks_elsewhere(const Blocks *blocks);
/* As claims_check_end(). */
Status blocks_check_end(const Blocks *blocks, Error *err);
/* Lets others take what is not complete. NULL is fine. */
void blocks_close(Blocks *blocks);
