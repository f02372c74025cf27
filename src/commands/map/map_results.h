/* map_results.h - where the results of --map go, and how a file of them is gone on with.
 *
 * A result is written by one write() of all its bytes, its end among them, so that whatever ends the process
 * leaves whole results and at most one torn one behind them, which is cut off when it goes on. That a result
 * belongs to a record is told by the record's hash: in JSON it is the result's "input"; beside results that
 * are text it stands in a file of its own, OUT.resume,
 *
 *     auk --map lines:\n          17 bytes, as every line of it; "texts" where results are between NULs
 *     0123456789abcdef\n          of the first record
 *     ...
 *
 * whose line is written before the result is. One process at a time has the file: it is locked. */
#ifndef AUK_COMMANDS_MAP_MAP_RESULTS_H
#define AUK_COMMANDS_MAP_MAP_RESULTS_H

#include "base/file.h"
#include "commands/map/map_records.h"

typedef enum {
  RESULTS_LINES, /* text; \n, \r and \\ for newlines, CRs and backslashes in it; \! begins an error */
  RESULTS_NUL,   /* text as it is, a NUL behind it, U+FFFD for one in it; what begins with \! is an error */
  RESULTS_JSON   /* an object a line, its first members "index" and "input"; an error has a member "error" */
} ResultsFormat;

typedef struct {
  const char *path; /* NULL: standard output */
  ResultsFormat format;
  bool resume; /* what is in the file stays; otherwise it is emptied */
  bool retry;  /* with resume: errors in it are made again */
  int input;   /* a descriptor that must not be the same file, or -1 */
} ResultsOptions;

typedef struct {
  uint64_t input; /* the record's hash */
  bool is_error;
} EarlierResult;

typedef struct {
  bool is_open;
  ResultsOptions options;
  int descriptor; /* of the file; -1: standard output */
  int inputs;     /* of OUT.resume, or -1 */
  char *inputs_path;
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
/* A result with its end behind it. A failed write leaves none of it. */
Status results_add(Results *results, uint64_t input, const Buffer *result, Error *err);
/* Sees to it that the disk has it all. A zeroed one is fine. */
Status results_close(Results *results, Error *err);

/* Appends what a result is as text, and what an error is. */
Status result_text(ResultsFormat format, const char *text, size_t size, Buffer *out, Error *err);
Status result_error(ResultsFormat format, const char *message, Buffer *out, Error *err);
/* Begins an object: {"index": N, "input": "HASH" */
Status result_object(size_t index, uint64_t input, Buffer *out, Error *err);

#endif
