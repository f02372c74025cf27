/* map_results.h - where the results of --map go, and how a file of them is gone on with.
 *
 * A result is written by one write() of all its bytes, its end among them, so that whatever ends the process
 * leaves whole results and at most one torn one after them, which is cut off when it goes on. What a result
 * belongs to stands in the result itself where that is JSON ("input", the record's hash, and "settings"), and
 * beside it in OUT.resume (map_resume.h). One process at a time has the file: it is locked; before each write
 * it is looked at whether another program has changed it all the same. */
#ifndef AUK_COMMANDS_MAP_MAP_RESULTS_H
#define AUK_COMMANDS_MAP_MAP_RESULTS_H

#include "base/file.h"
#include "commands/map/map_records.h"
#include "commands/map/map_resume.h"

typedef struct {
  const char *path; /* NULL: standard output */
  ResultsFormat format;
  bool resume;                 /* what is in the file stays; otherwise it is emptied */
  bool retry;                  /* with resume: errors in it are made again */
  const MapSettings *settings; /* NULL only for text without resume */
} ResultsOptions;

typedef struct {
  uint64_t input; /* the record's hash */
  bool is_error;
} EarlierResult;

typedef struct {
  bool is_open;
  ResultsOptions options;
  int descriptor;       /* of the file; -1: standard output */
  bool is_regular;      /* a file, and not a fifo or a device */
  bool adds;            /* a regular file that ends where the next result goes */
  uint64_t opened_size; /* its bytes when it was locked */
  MapResume told;       /* OUT.resume */
  RecordReader earlier; /* reads what was there */
  Record last;          /* the one it gave */
  bool reading;         /* it has not come to its end */
  AtomicFile rewritten; /* with retry, until then: what takes the file's place */
  size_t n_results;     /* that are settled: kept or added */
  uint64_t end;         /* the bytes they take */
} Results;              /* starts zeroed */

/* Opens and locks. Refused before anything is changed (STATUS_USAGE): a file that is no results of this
 * format. Close with results_close(), also after a failure. */
Status results_open(const ResultsOptions *options, Results *results, Error *err);
/* The next of the results that were there, which is then kept or, with retry, added anew. With the last one
 * *found is false, and what lay behind it is gone; then come new ones. */
Status results_earlier(Results *results, EarlierResult *earlier, bool *found, Error *err);
Status results_keep(Results *results, Error *err);
/* A result with its end after it. A failed write leaves none of it. A file that another program has changed,
 * moved or replaced since the last call is STATUS_FAILED, and stays as it is. */
Status results_add(Results *results, uint64_t input, const Buffer *result, Error *err);
/* Sees to it that the disk has it all, and that another program has not changed it. A zeroed one is fine. */
Status results_close(Results *results, Error *err);

/* Appends what a result is as text, and what an error is. */
Status result_text(ResultsFormat format, const char *text, size_t size, Buffer *out, Error *err);
Status result_error(ResultsFormat format, const char *message, Buffer *out, Error *err);
/* Begins an object: {"index": N, "input": "HASH", "settings": "HASH" */
Status result_object(size_t index, uint64_t input, uint64_t settings, Buffer *out, Error *err);

/* Refuses (STATUS_FAILED) an open file that has no longer this name and size. */
Status results_check_file(int descriptor, const char *path, uint64_t size, Error *err);

#endif
