/* map_results.h - writes the results of --map, and continues a file of them. One write() takes a result with
 * its end. So an aborted process leaves complete results and at most one torn result, which --resume cuts
 * off. A JSON result has the hashes of its record and settings ("input" and "settings"). For text, OUT.resume
 * has the hash of each result's record (map_resume.h). The file is locked, so that only one process writes
 * it. It is checked before each write for changes by other programs. */
#pragma once

#include "base/file.h"
#include "commands/map/map_records.h"
#include "commands/map/map_resume.h"

enum { RESULT_HASH_SIZE = 16 }; /* hexadecimal digits */

typedef struct {
  const char *path; /* NULL: standard output */
  ResultsFormat format;
  bool resume;                 /* keep the content of the file; otherwise empty the file */
  bool retry;                  /* with resume: errors in the file are answered again */
  const MapSettings *settings; /* NULL only for text without resume */
  RecordShare share;           /* the records that have results in the file */
  int n_copies;                /* results of each record; 0 means 1 */
  const char *merged_with;     /* in a merge, the file with `settings`, and `path` is only read; else NULL */
  bool is_block;               /* a block of --claim: it is only read, ends in a hash, has no OUT.resume */
  uint64_t block_hash;         /* with is_block: value of claims_hash_start() */
} ResultsOptions;

typedef struct {
  uint64_t input; /* the record's hash */
  bool is_error;
} EarlierResult;

typedef struct {
  bool is_open;
  ResultsOptions options;
  int descriptor;       /* descriptor of the file; -1: standard output */
  bool adds;            /* the file is regular, and ends where the next result goes */
  uint64_t opened_size; /* the file's size when it was locked */
  MapResume resume;     /* OUT.resume */
  RecordReader earlier; /* reads the existing results */
  Record last;          /* the last existing result read */
  bool reading;         /* more existing results may follow */
  uint64_t read_hash;   /* with is_block: hash of the bytes of all results read */
  AtomicFile rewritten; /* with retry: replaces the file once all existing results are read */
  size_t n_results;     /* results kept or added */
  uint64_t end;         /* bytes of all results kept or added */
} Results;              /* starts zeroed */

/* Opens and locks the file. With `resume` refuses (STATUS_USAGE) an OUT.resume of another format or settings,
 * before changing anything. Close with results_close(), also after a failure. */
Status results_open(const ResultsOptions *options, Results *results, Error *err);
/* Reads the next existing result. The caller then keeps it (results_keep()) or, with retry, replaces it
 * (results_add()). At the end *found is false; what follows the last complete result is cut off, unless the
 * file is only read. Refuses (STATUS_USAGE) what --map has not written there with these settings. */
Status results_earlier(Results *results, EarlierResult *earlier, bool *found, Error *err);
Status results_keep(Results *results, Error *err);
/* Appends a result with its end; `input` is its record's hash. If the write fails, the written part is cut
 * off, at once or by the next --resume. STATUS_FAILED if another program has changed, moved or replaced the
 * file since the last call; the file is then left alone. */
Status results_add(Results *results, uint64_t input, const Buffer *result, Error *err);
/* Syncs the file to disk and checks once more for changes by another program. Zeroed results are fine. */
Status results_close(Results *results, Error *err);

/* Appends the text form of a result, or of an error. */
Status result_text(ResultsFormat format, const char *text, size_t size, Buffer *out, Error *err);
Status result_error(ResultsFormat format, const char *message, Buffer *out, Error *err);
/* Begins an object: {"index": N, "input": "HASH", "settings": "HASH" */
Status result_object(size_t index, uint64_t input, uint64_t settings, Buffer *out, Error *err);

/* Refuses (STATUS_FAILED) an open file that has lost this name or has another size. */
Status results_check_file(int descriptor, const char *path, uint64_t size, Error *err);
