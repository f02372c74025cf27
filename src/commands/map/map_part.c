/* map_part.c - see map_part.h.   Called by: map.c, merge/merge_parts.c. */
#include "commands/map/map_part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Each block has one record at first. The block size doubles, up to BLOCK_LIMIT records, whenever there would
 * be more than BLOCKS blocks. With small blocks a process that dies loses little, and all processes end at
 * about the same time. With few blocks there are few files. */
enum { BLOCKS = 256, BLOCK_LIMIT = 64 };

static void merge_blocks(Survey *s) {
  for (size_t i = 0; 2 * i < s->n_blocks; i++) s->places[i] = s->places[2 * i];
  s->n_blocks = (s->n_blocks + 1) / 2;
  s->block *= 2;
}

static Status add_place(Survey *s, const RecordPlace *place, Error *err) {
  if (s->n_blocks == BLOCKS && s->block < BLOCK_LIMIT) merge_blocks(s);
  if (place->number % s->block != 0) return STATUS_OK;
  return APPEND(s->places, s->n_blocks, s->capacity, "blocks of records", err, *place);
}

static Status survey_all(RecordReader *reader, Survey *s, Error *err) {
  Record record;
  s->block = 1;
  for (;;) {
    const RecordPlace place = record_reader_place(reader);
    bool found;
    TRY(record_reader_next(reader, &record, &found, err));
    s->hash = reader->hash;
    if (!found) return STATUS_OK;
    s->n_records++;
    TRY(add_place(s, &place, err));
  }
}

Status survey_records(const char *path, const RecordRules *rules, const char *flag,
                      const volatile int *interrupted, Survey *survey, Error *err) {
  struct stat info;
  if (strcmp(path, "-") == 0 || (stat(path, &info) == 0 && !S_ISREG(info.st_mode)))
    return error_set(err, STATUS_USAGE,
                     "%s needs a file for --map, which every process can read from its beginning, not %s",
                     flag, strcmp(path, "-") == 0 ? "standard input" : path);
  RecordRules once = *rules;
  once.n_copies = 0;
  once.share = (RecordShare){0};
  OWNED(record_reader_close) RecordReader reader = {0};
  TRY(record_reader_open(path, once, interrupted, &reader, err));
  return survey_all(&reader, survey, err);
}

void survey_release(Survey *s) {
  free(s->places);
  *s = (Survey){0};
}

/* --- settings */

static const char input_name[] = "input";

Status survey_settings(const Survey *s, uint64_t hash, const char *text, MapSettings *settings, Error *err) {
  char what[SETTING_LIMIT];
  snprintf(what, sizeof what, "%zu records", s->n_records);
  TRY(map_settings_add(settings, "prompt", &hash, sizeof hash, text ? text : "without -p", err));
  return map_settings_add(settings, input_name, &s->hash, sizeof s->hash, what, err);
}

bool survey_read(const MapSettings *settings, size_t *n_records) {
  char what[SETTING_LIMIT];
  int end = 0;
  return map_settings_find(settings, input_name, what) && !strpbrk(what, "+-") &&
         sscanf(what, "%12zu records%n", n_records, &end) == 1 && end > 0 && what[end] == 0;
}
