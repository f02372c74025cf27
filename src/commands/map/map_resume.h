/* map_resume.h - OUT.resume, the file beside the results of --resume OUT: what they were made with, and which
 * record and which bytes each of them is.
 *
 *     auk --map lines 2:\n                              "texts" where results end in NUL, "objects" for JSON
 *     5f70bf18a0860070 -n 4\n                           the settings (map_settings.h)
 *     ...
 *     \n
 *     0123456789abcdef 0123456789abcdef\n              hash of the first record, hash of its result
 *     ...                                              (not for JSON, whose results say it themselves)
 *
 * A result's line is written before the result. A result that --retry-errors makes has dashes for its hash:
 * its line is written while the error that it replaces is still in OUT, and must fit both. */
#ifndef AUK_COMMANDS_MAP_MAP_RESUME_H
#define AUK_COMMANDS_MAP_MAP_RESUME_H

#include <stdint.h>

#include "commands/map/map_settings.h"

typedef enum {
  RESULTS_LINES, /* text; \n, \r and \\ for newlines, CRs and backslashes in it; \! begins an error */
  RESULTS_NUL,   /* text as it is, a NUL after it, U+FFFD for one in it; what begins with \! is an error */
  RESULTS_JSON   /* an object a line, its first members "index" and "input"; an error has a member "error" */
} ResultsFormat;

typedef struct {
  ResultsFormat format;
  const MapSettings *settings; /* NULL: there is no such file, and every call does nothing */
  const char *results_path;
  char *path;
  int descriptor;         /* -1: it is not there yet */
  uint64_t head;          /* bytes before the first result's line */
  bool keeps_head;        /* what is there is gone on with */
  bool has_remade;        /* by map_resume_write_any() */
  bool has_other_context; /* its head has another -c, until a result is made with this one */
  size_t n_told;          /* results that it told of when it was opened */
} MapResume;              /* zeroed but for descriptor -1 */

/* Opens what is there and changes nothing. Refused (STATUS_USAGE): a file of another form, other settings (-c
 * may differ where `retry`), and none where there are results of text. Close it also after a failure. */
Status map_resume_open(const char *results_path, ResultsFormat format, const MapSettings *settings,
                       bool has_results, bool retry, MapResume *resume, Error *err);
void map_resume_close(MapResume *resume);

/* The hash of the index-th result's record. A result with another hash than it had when it was written is
 * refused (STATUS_USAGE). */
Status map_resume_read(const MapResume *resume, size_t index, uint64_t result, uint64_t *record, Error *err);
/* Makes the file tell of n results; makes the file where there is none. */
Status map_resume_cut(MapResume *resume, size_t n, Error *err);
Status map_resume_write(MapResume *resume, size_t index, uint64_t record, uint64_t result, Error *err);
Status map_resume_write_any(MapResume *resume, size_t index, uint64_t record, Error *err);
/* Refuses (STATUS_FAILED) to go on where another program has changed it: it must tell of n results. */
Status map_resume_check(const MapResume *resume, size_t n, Error *err);

#endif
