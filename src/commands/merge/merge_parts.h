/* merge_parts.h - the parts of a --map run that `auk merge` puts together: the files of --shard, or the
 * directory of --claim. */
#pragma once

#include "commands/flags.h"
#include "commands/map/map_results.h"

/* A file with the results of some of the records. */
typedef struct {
  char *path; /* NULL: a shard that is not among the files */
  RecordShare share;
  size_t expected, n; /* results that the part must have, and has */
  Results results;
  size_t n_read; /* results that merge.c has copied so far */
} MergePart;

typedef struct {
  const char *name; /* the first file or the directory, whose settings all parts must have */
  ResultsFormat format;
  MapSettings settings;
  size_t n_records, n_copies;
  MergePart *parts; /* [n_parts] */
  size_t n_parts;
  size_t block; /* --claim: number of adjacent records in a part, fewer in the last one; 0 (--shard): part i
                 * has every n_parts-th record */
} MergeParts;   /* starts zeroed */

/* Opens the parts, and counts their results. Refuses (STATUS_USAGE) files that are no parts, and parts that
 * differ in model, settings, prompt or input. */
Status merge_parts_open(const char *const *paths, size_t n_paths, MergeParts *parts, Error *err);
/* Says on standard error which results are missing, and how they are made; STATUS_FAILED if any are
 * missing. */
Status merge_parts_check(const MergeParts *parts, Error *err);
void merge_parts_release(MergeParts *parts);

/* The part with the results to record number `record`. */
MergePart *merge_part_of(MergeParts *parts, size_t record);
/* Opens the part's file, unless it is open. */
Status merge_part_open(const MergeParts *parts, MergePart *part, Error *err);
