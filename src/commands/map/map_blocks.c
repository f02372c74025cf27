/* map_blocks.c - see map_blocks.h.   Called by: map.c, merge/merge_parts.c. */
#include "commands/map/map_blocks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  size_t block, n_left; /* n_left: results that the block still lacks */
} HeldBlock;

struct Blocks {
  BlocksOptions options;
  Claims *claims;
  HeldBlock *held; /* [n_held] in the order of claiming */
  size_t n_held, capacity;
  size_t n_to_read; /* records of the last held block that were not read yet, each copy counted */
  size_t n_given;   /* results in blocks that this process has completed */
  Buffer results;   /* results of held[0] so far */
};

static const char blocks_name[] = "blocks";

Status blocks_settings(const Survey *s, MapSettings *settings, Error *err) {
  char what[SETTING_LIMIT];
  snprintf(what, sizeof what, "of %zu records", s->block);
  return map_settings_add(settings, blocks_name, what, strlen(what), NULL, err);
}

bool blocks_size(const MapSettings *settings, size_t *size) {
  char what[SETTING_LIMIT];
  int end = 0;
  return map_settings_find(settings, blocks_name, what) && !strpbrk(what, "+-") &&
         sscanf(what, "of %9zu records%n", size, &end) == 1 && end > 0 && what[end] == 0 && *size > 0;
}

Status blocks_open(const BlocksOptions *options, Blocks **out, Error *err) {
  TRY(NEW(*out, 1, "blocks of records", err));
  (*out)->options = *options;
  return claims_open(&options->claim, &(*out)->claims, err);
}

Status blocks_check_end(const Blocks *b, Error *err) {
  return claims_check_end(b->claims, err);
}

void blocks_close(Blocks *b) {
  if (!b) return;
  claims_close(b->claims);
  buffer_release(&b->results);
  free(b->held);
  free(b);
}

/* --- records */

static size_t results_of(const Blocks *b, size_t block) {
  const Survey *s = b->options.survey;
  const size_t last = s->n_records - block * s->block, n = last < s->block ? last : s->block;
  return n * (b->options.n_copies > 1 ? (size_t)b->options.n_copies : 1);
}

static Status begin_block(Blocks *b, size_t block, Error *err) {
  TRY(mem_grow(&b->held, &b->capacity, b->n_held + 1, sizeof *b->held, "blocks of records", err));
  TRY(record_reader_return(b->options.reader, &b->options.survey->places[block], err));
  b->n_to_read = results_of(b, block);
  b->held[b->n_held++] = (HeldBlock){block, b->n_to_read};
  return STATUS_OK;
}

/* Fails, at the end of a block, if its records are not those that the survey read. */
static Status check_input(const Blocks *b, bool found, Error *err) {
  const Survey *s = b->options.survey;
  const size_t next = b->held[b->n_held - 1].block + 1;
  const uint64_t expected = next < s->n_blocks ? s->places[next].hash : s->hash;
  if (found && b->options.reader->hash == expected) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "%s has changed since this run began", b->options.reader->name);
}

Status blocks_read(Blocks *b, bool may_wait, Record *record, bool *found, bool *at_end, Error *err) {
  *at_end = false;
  *found = b->n_to_read > 0;
  if (!*found) {
    size_t block;
    TRY(claims_next(b->claims, may_wait, &block, found, at_end, err));
    if (!*found) return STATUS_OK;
    TRY(begin_block(b, block, err));
  }
  TRY(record_reader_next(b->options.reader, record, found, err));
  if (!*found || --b->n_to_read == 0) return check_input(b, *found, err);
  return STATUS_OK;
}

/* --- results */

Status blocks_add(Blocks *b, const Buffer *result, size_t *block, bool *lost, Error *err) {
  bool given;
  HeldBlock *first = b->held;
  *lost = false;
  TRY(buffer_append(&b->results, result->data, result->size, err));
  if (--first->n_left > 0) return STATUS_OK;
  *block = first->block;
  TRY(claims_give(b->claims, first->block, b->results.data, b->results.size, &given, err));
  *lost = !given;
  b->n_given += given ? results_of(b, first->block) : 0;
  b->results.size = 0;
  memmove(b->held, b->held + 1, --b->n_held * sizeof *b->held);
  return STATUS_OK;
}

size_t blocks_elsewhere(const Blocks *b) {
  size_t n = 0;
  for (size_t i = 0; i < b->options.survey->n_blocks; i++)
    if (claims_is_done(b->claims, i)) n += results_of(b, i);
  return n - b->n_given;
}
