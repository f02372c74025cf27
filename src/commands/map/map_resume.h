/* map_resume.h - OUT.resume, the file beside the results of --resume OUT: the settings they were made with,
 * and hashes of the record and the content of each result.
 *
 *     auk --map lines 2:\n                              "texts" if results end in NUL, "objects" for JSON
 *     5f70bf18a0860070 -n 4\n                           the settings (map_settings.h)
 *     ...
 *     \n
 *     0123456789abcdef 0123456789abcdef\n              hash of the first record, hash of its result
 *     ...                                              (not for JSON: its results contain the hashes)
 *
 * A result's line is written before the result. With --retry-errors, the line of a result that replaces an
 * error has dashes in place of the result's hash. It is written while OUT still has the error, and must fit
 * both the error and the result. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "commands/map/map_settings.h"

typedef enum {
  RESULTS_LINES, /* text; \n, \r and \\ stand for newlines, CRs and backslashes in it; \! begins an error */
  RESULTS_NUL,   /* unchanged text, then a NUL; U+FFFD replaces NULs in it; \! begins an error */
  RESULTS_JSON,  /* one object per line, beginning with "index" and "input"; an error has a member "error" */
  RESULTS_TEXTS  /* results of several -p: unchanged text, a newline unless it ends in one, and an empty line
                  * between results */
} ResultsFormat;

typedef struct {
  ResultsFormat format;
  const MapSettings *settings; /* NULL: there is no OUT.resume; cutting, writing and checking do nothing */
  const char *results_path;
  char *path;
  int descriptor;         /* -1: the file does not exist yet */
  uint64_t head;          /* size of the head, before the first result's line */
  bool keeps_head;        /* the existing content is continued */
  bool has_remade;        /* map_resume_write_any() was called */
  bool has_other_context; /* the head has another -c, until a result is made with the current -c */
  size_t n_listed;        /* results listed in the file when it was opened */
} MapResume;              /* zeroed, except descriptor: -1 */

/* The form and settings that the file must agree with. */
typedef struct {
  ResultsFormat format;
  const MapSettings *settings;
  int tolerance;     /* SettingsTolerance */
  const char *other; /* the file of results that has these settings; NULL: they are this run's */
} ResumeRules;

/* Opens the OUT.resume beside results_path, if it is there, without changing it. Refuses (STATUS_USAGE) a
 * file of another kind. With has_results (OUT has results) it also refuses another format, other settings
 * and, unless results are JSON, a missing OUT.resume. Close it also after a failure. */
Status map_resume_open(const char *results_path, const ResumeRules *rules, bool has_results,
                       MapResume *resume, Error *err);
void map_resume_close(MapResume *resume);

enum { HEAD_LIMIT = 1 << 16 };
/* Reads format and settings from the head at the beginning of text[0..size). *valid is false if the text
 * begins with no head. No head is longer than HEAD_LIMIT bytes. */
Status map_resume_head(const char *text, size_t size, ResultsFormat *format, MapSettings *settings,
                       bool *valid, Error *err);
/* Appends the first HEAD_LIMIT bytes of a file. */
Status map_resume_read_head(const char *path, Buffer *text, Error *err);
/* Appends a head. */
Status map_resume_write_head(ResultsFormat format, const MapSettings *settings, Buffer *out, Error *err);

/* Reads the record hash of a result. Refuses (STATUS_USAGE) a result whose hash, `result`, is not the one
 * listed (dashes match any). */
Status map_resume_read(const MapResume *resume, size_t index, uint64_t result, uint64_t *record, Error *err);
/* Truncates the list to n results; creates the file if needed. */
Status map_resume_cut(MapResume *resume, size_t n, Error *err);
/* Lists a result that is about to be written; map_resume_write_any(): with dashes in place of its hash. */
Status map_resume_write(MapResume *resume, size_t index, uint64_t record, uint64_t result, Error *err);
Status map_resume_write_any(MapResume *resume, size_t index, uint64_t record, Error *err);
/* Refuses (STATUS_FAILED) a file that another program has changed: it must list exactly n results. */
Status map_resume_check(const MapResume *resume, size_t n, Error *err);
