/* map_results.c - see map_results.h.   Called by: map.c, map_answer.c.
 *
 * Always true: `end` is where the next result goes, and what lay behind it was cut off before one does;
 * nothing is written before what is there was found to be ours. */
#include "commands/map/map_results.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/output.h"

enum { INPUT_LINE = 17 }; /* bytes: a hash and its newline */
static const char inputs_heads[][INPUT_LINE + 1] = {
    [RESULTS_LINES] = "auk --map lines:\n", [RESULTS_NUL] = "auk --map texts:\n"};
static const size_t result_limit = (size_t)256 << 20;

static Status system_error(const char *path, const char *what, Error *err) {
  return error_set(err, STATUS_FAILED, "%s: cannot %s: %s", path, what, strerror(errno));
}

static Status refuse(const char *path, const char *why, Error *err) {
  return error_set(err, STATUS_USAGE, "%s: %s", path, why);
}

/* --- OUT.resume */

static bool has_inputs(const ResultsOptions *options) {
  return options->resume && options->format != RESULTS_JSON;
}

static off_t input_place(size_t index) {
  return (off_t)INPUT_LINE * ((off_t)index + 1);
}

/* Opens it; one that is there must be ours, and must be there where there are results. */
static Status open_inputs(Results *results, bool has_results, Error *err) {
  char head[INPUT_LINE];
  Buffer path = {0};
  TRY(buffer_printf(&path, err, "%s.resume", results->options.path));
  results->inputs_path = path.data;
  results->inputs = open(path.data, O_RDWR | O_CLOEXEC | O_NOCTTY | (has_results ? 0 : O_CREAT), 0666);
  if (results->inputs < 0 && errno == ENOENT)
    return error_set(err, STATUS_USAGE,
                     "%s: there is no %s beside it that says of which input it is (results of --json say so "
                     "themselves)",
                     results->options.path, path.data);
  if (results->inputs < 0) return system_error(path.data, "open", err);
  ssize_t n = pread(results->inputs, head, sizeof head, 0);
  if (n < 0) return system_error(path.data, "read", err);
  const char *expected = inputs_heads[results->options.format];
  bool ours = memcmp(head, expected, (size_t)n) == 0 && (n == INPUT_LINE || !has_results);
  return ours ? STATUS_OK
              : refuse(path.data, "this is not what --map has made beside results of this form", err);
}

static Status read_input(const Results *results, size_t index, uint64_t *input, Error *err) {
  char line[INPUT_LINE + 1] = {0};
  ssize_t n = pread(results->inputs, line, INPUT_LINE, input_place(index));
  if (n < 0) return system_error(results->inputs_path, "read", err);
  if (n == INPUT_LINE && strspn(line, "0123456789abcdef") == INPUT_LINE - 1 && line[INPUT_LINE - 1] == '\n' &&
      sscanf(line, "%" SCNx64, input) == 1)
    return STATUS_OK;
  return error_set(err, STATUS_USAGE, "%s: line %zu is no hash of a record, though there is a result of it",
                   results->inputs_path, index + 2);
}

static Status write_input(const Results *results, size_t index, uint64_t input, Error *err) {
  char line[INPUT_LINE + 1];
  snprintf(line, sizeof line, "%016" PRIx64 "\n", input);
  for (size_t done = 0; done < INPUT_LINE;) { /* after a short write the next one says why */
    ssize_t n = pwrite(results->inputs, line + done, INPUT_LINE - done, input_place(index) + (off_t)done);
    if (n < 0 && errno != EINTR) return system_error(results->inputs_path, "write", err);
    if (n > 0) done += (size_t)n;
  }
  return STATUS_OK;
}

/* What it tells of results that are not there any more goes. */
static Status cut_inputs(const Results *results, Error *err) {
  if (ftruncate(results->inputs, input_place(results->n_results)) != 0 ||
      pwrite(results->inputs, inputs_heads[results->options.format], INPUT_LINE, 0) != INPUT_LINE)
    return system_error(results->inputs_path, "write", err);
  return STATUS_OK;
}

/* --- opening */

static bool same_file(int descriptor, const struct stat *info) {
  struct stat other;
  return descriptor >= 0 && fstat(descriptor, &other) == 0 && other.st_dev == info->st_dev &&
         other.st_ino == info->st_ino;
}

/* The locked file must still be the one that has the name: who rewrites it puts another in its place. */
static Status lock(const char *path, int descriptor, Error *err) {
  struct stat named;
  bool locked = flock(descriptor, LOCK_EX | LOCK_NB) == 0;
  if (!locked && errno != EWOULDBLOCK) return system_error(path, "lock", err);
  if (locked && stat(path, &named) == 0 && same_file(descriptor, &named)) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "%s: another process is writing it", path);
}

/* Prepares the reading of what is there, and the file that takes its place. */
static Status open_earlier(Results *results, bool has_results, Error *err) {
  const ResultsOptions *options = &results->options;
  const RecordRules rules = {.end = options->format == RESULTS_NUL ? 0 : '\n',
                             .verbatim = true,
                             .limit = result_limit,
                             .hash = RECORD_HASH_START};
  if (has_inputs(options)) TRY(open_inputs(results, has_results, err));
  TRY(record_reader_attach(results->descriptor, options->path, rules, &results->earlier, err));
  results->reading = true;
  if (!options->retry || !has_results) return STATUS_OK;
  TRY(atomic_file_open(options->path, &results->rewritten, err));
  if (results->rewritten.temporary || results->rewritten.unnamed) return STATUS_OK;
  return refuse(options->path, "it is this process's own output", err);
}

static Status open_file(Results *results, Error *err) {
  const ResultsOptions *options = &results->options;
  struct stat info;
  if (!*options->path) return error_set(err, STATUS_USAGE, "the name of the file to write is empty");
  bool special = stat(options->path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
  if (special && options->resume)
    return refuse(options->path, "only a regular file can be gone on with", err);
  int mode = special ? O_WRONLY : O_RDWR | O_CREAT | O_APPEND;
  results->descriptor = open(options->path, mode | O_CLOEXEC | O_NOCTTY, 0666);
  if (results->descriptor < 0 && errno == EINTR) /* a fifo that nobody reads yet */
    return error_set(err, STATUS_INTERRUPTED, "%s: opening was interrupted", options->path);
  if (results->descriptor < 0 || fstat(results->descriptor, &info) != 0)
    return system_error(options->path, "open", err);
  if (special) return STATUS_OK;
  if (same_file(options->input, &info)) return refuse(options->path, "this is the input itself", err);
  TRY(lock(options->path, results->descriptor, err));
  if (options->resume) return open_earlier(results, info.st_size > 0, err);
  return ftruncate(results->descriptor, 0) == 0 ? STATUS_OK : system_error(options->path, "empty", err);
}

Status results_open(const ResultsOptions *options, Results *results, Error *err) {
  *results = (Results){
      .is_open = true, .options = *options, .descriptor = -1, .inputs = -1, .rewritten = {.descriptor = -1}};
  if (options->path) return open_file(results, err);
  struct stat info; /* of results behind the records: each would be a record in turn, for ever */
  if (fstat(STDOUT_FILENO, &info) == 0 && S_ISREG(info.st_mode) && same_file(options->input, &info))
    return refuse("standard output", "this is the input itself", err);
  return STATUS_OK;
}

/* --- what was there */

/* Of an object: the record it belongs to, which must be the index-th, and whether it is an error. */
static bool read_object(const Record *line, EarlierResult *earlier) {
  Json *tree;
  size_t size = 0;
  int64_t index = -1;
  bool ours = false;
  if (json_parse("", STATUS_USAGE, line->text, line->size, NULL, 0, &tree, NULL) != STATUS_OK) return false;
  const Json *input = json_member(tree, "input"), *number = json_member(tree, "index");
  const char *hash = input && json_is_string(input) ? json_string(input, &size) : "";
  if (number && json_int64(number, &index) && index == (int64_t)line->index && size == INPUT_LINE - 1 &&
      strspn(hash, "0123456789abcdef") == size)
    ours = sscanf(hash, "%" SCNx64, &earlier->input) == 1;
  earlier->is_error = json_member(tree, "error") != NULL;
  json_free(tree);
  return ours;
}

/* Whether a torn line can be the beginning of our next object. */
static bool begins_object(const Record *line, Error *err) {
  Buffer object = {0};
  bool ours = result_object(line->index, 0, &object, err) == STATUS_OK;
  size_t known = object.size - INPUT_LINE; /* up to the hash, which could be any */
  ours = ours && memcmp(line->text, object.data, line->size < known ? line->size : known) == 0;
  buffer_release(&object);
  return ours;
}

static Status read_earlier(Results *results, EarlierResult *earlier, Error *err) {
  const Record *line = &results->last;
  const char *path = results->options.path;
  if (line->cut) return error_set(err, STATUS_USAGE, "%s: result %zu has no end", path, line->index);
  if (results->options.format == RESULTS_JSON) {
    if (line->ended ? read_object(line, earlier) : begins_object(line, err)) return STATUS_OK;
    return error_set(err, STATUS_USAGE, "%s: line %zu is not what --map --json has written there", path,
                     line->index + 1);
  }
  earlier->is_error = line->size >= 2 && memcmp(line->text, "\\!", 2) == 0;
  return line->ended ? read_input(results, line->index, &earlier->input, err) : STATUS_OK;
}

/* The file that was made of the earlier results takes their place, locked before anybody can see it. */
static Status take_rewritten(Results *results, Error *err) {
  const char *path = results->options.path;
  int descriptor = fcntl(results->rewritten.descriptor, F_DUPFD_CLOEXEC, 3);
  if (descriptor < 0 || fcntl(descriptor, F_SETFL, O_APPEND) != 0 ||
      flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (descriptor >= 0) close(descriptor);
    return system_error(path, "lock", err);
  }
  close(results->descriptor);
  results->descriptor = descriptor;
  return atomic_file_commit(&results->rewritten, err);
}

/* Behind the last whole one: from here on new ones are added. */
static Status end_earlier(Results *results, Error *err) {
  results->reading = false;
  record_reader_close(&results->earlier);
  if (results->rewritten.path) TRY(take_rewritten(results, err));
  if (ftruncate(results->descriptor, (off_t)results->end) != 0)
    return system_error(results->options.path, "cut off what is torn", err);
  return results->inputs >= 0 ? cut_inputs(results, err) : STATUS_OK;
}

Status results_earlier(Results *results, EarlierResult *earlier, bool *found, Error *err) {
  *found = false;
  *earlier = (EarlierResult){0};
  if (!results->reading) return STATUS_OK;
  TRY(record_reader_next(&results->earlier, &results->last, found, err));
  if (*found) TRY(read_earlier(results, earlier, err));
  *found = *found && results->last.ended;
  return *found ? STATUS_OK : end_earlier(results, err);
}

/* --- writing */

static Status write_all(Results *results, const void *bytes, size_t size, Error *err) {
  if (results->rewritten.path) return atomic_file_write(&results->rewritten, bytes, size, err);
  if (results->descriptor < 0) return output_write(bytes, size, err);
  Status status = output_write_to(results->descriptor, results->options.path, bytes, size, err);
  /* Where the disk is full a part was written. If it stays, the next one to go on cuts it off. */
  if (status != STATUS_OK && ftruncate(results->descriptor, (off_t)results->end) != 0) return status;
  return status;
}

Status results_keep(Results *results, Error *err) {
  const Record *line = &results->last;
  if (results->rewritten.path) {
    const char *end = &results->earlier.rules.end;
    TRY(atomic_file_write(&results->rewritten, line->text, line->size, err));
    TRY(atomic_file_write(&results->rewritten, end, 1, err));
  }
  results->end += line->size + 1;
  results->n_results++;
  return STATUS_OK;
}

Status results_add(Results *results, uint64_t input, const Buffer *result, Error *err) {
  if (results->inputs >= 0) TRY(write_input(results, results->n_results, input, err));
  TRY(write_all(results, result->data, result->size, err));
  results->end += result->size;
  results->n_results++;
  return STATUS_OK;
}

Status results_close(Results *results, Error *err) {
  const char *path = results->options.path;
  struct stat info;
  Status status = STATUS_OK;
  if (!results->is_open) return STATUS_OK;
  if (results->reading) record_reader_close(&results->earlier);
  atomic_file_abort(&results->rewritten);
  if (results->descriptor >= 0) {
    bool on_disk = fstat(results->descriptor, &info) == 0 && S_ISREG(info.st_mode);
    if (on_disk && fsync(results->descriptor) != 0) status = system_error(path, "write to disk", err);
    /* close() reports what a network file system could not store. EINTR leaves it closed on Linux. */
    if (close(results->descriptor) != 0 && errno != EINTR && status == STATUS_OK)
      status = system_error(path, "write", err);
  }
  if (results->inputs >= 0) close(results->inputs);
  free(results->inputs_path);
  *results = (Results){0};
  return status;
}

/* --- what a result looks like */

Status result_text(ResultsFormat format, const char *text, size_t size, Buffer *out, Error *err) {
  size_t from = 0;
  for (size_t i = 0; i < size; i++) {
    const char *instead = NULL;
    if (format == RESULTS_NUL && text[i] == 0) instead = "\xef\xbf\xbd";
    if (format == RESULTS_LINES && text[i] == '\n') instead = "\\n";
    if (format == RESULTS_LINES && text[i] == '\r') instead = "\\r";
    if (format == RESULTS_LINES && text[i] == '\\') instead = "\\\\";
    if (!instead) continue;
    TRY(buffer_append(out, text + from, i - from, err));
    TRY(buffer_append_string(out, instead, err));
    from = i + 1;
  }
  TRY(buffer_append(out, text + from, size - from, err));
  return buffer_append(out, format == RESULTS_NUL ? "" : "\n", 1, err);
}

Status result_error(ResultsFormat format, const char *message, Buffer *out, Error *err) {
  TRY(buffer_append_string(out, "\\!", err));
  return result_text(format, message, strlen(message), out, err);
}

Status result_object(size_t index, uint64_t input, Buffer *out, Error *err) {
  return buffer_printf(out, err, "{\"index\": %zu, \"input\": \"%016" PRIx64 "\"", index, input);
}
