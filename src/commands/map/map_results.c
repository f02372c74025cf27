/* map_results.c - see map_results.h.
 * Always true: `end` is the offset of the next result, and anything after it is cut off before writing;
 *              nothing is written before the existing content is verified, or after another program has
 *              changed it. */
#include "commands/map/map_results.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/output.h"
#include "commands/common.h"

static const size_t result_limit = (size_t)256 << 20;

static Status refuse(const char *path, const char *why, Error *err) {
  return error_set(err, STATUS_USAGE, "%s: %s", path, why);
}

static bool is_only_read(const ResultsOptions *options) {
  return options->merged_with || options->is_block;
}

/* --- checks for other programs */

static bool same_file(int descriptor, const struct stat *info) {
  struct stat other;
  return descriptor >= 0 && fstat(descriptor, &other) == 0 && other.st_dev == info->st_dev &&
         other.st_ino == info->st_ino;
}

Status results_check_file(int descriptor, const char *path, uint64_t size, Error *err) {
  struct stat named, info;
  if (fstat(descriptor, &info) != 0) return system_error(path, "examine", err);
  if (stat(path, &named) != 0 || !same_file(descriptor, &named))
    return error_set(err, STATUS_FAILED, "%s: another program has moved, removed or replaced it", path);
  if ((uint64_t)info.st_size == size) return STATUS_OK;
  return error_set(err, STATUS_FAILED,
                   "%s has %jd bytes, expected the %" PRIu64 " that were written: another program changed it",
                   path, (intmax_t)info.st_size, size);
}

/* --- opening */

/* Locks the file, which must still have its name: a process that rewrites the file replaces it. */
static Status lock(const char *path, int descriptor, bool shared, Error *err) {
  struct stat named;
  bool locked = flock(descriptor, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0;
  if (!locked && errno != EWOULDBLOCK) return system_error(path, "lock", err);
  if (locked && stat(path, &named) == 0 && same_file(descriptor, &named)) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "%s: another process is writing it", path);
}

/* Prepares reading the existing results, and for --retry-errors the file that replaces them. */
static Status open_earlier(Results *results, bool has_results, Error *err) {
  const ResultsOptions *options = &results->options;
  const RecordRules rules = {.end = options->format == RESULTS_NUL ? 0 : '\n',
                             .verbatim = true,
                             .limit = result_limit,
                             .hash = RECORD_HASH_START};
  const bool retry = options->retry;
  const int among_others = CONTEXT_MAY_DIFFER | SHARD_MAY_DIFFER;
  const ResumeRules agreed = {.format = options->format,
                              .settings = options->settings,
                              .tolerance = options->merged_with ? among_others
                                           : retry              ? CONTEXT_MAY_DIFFER
                                                                : 0,
                              .other = options->merged_with};
  if (!options->is_block) TRY(map_resume_open(options->path, &agreed, has_results, &results->resume, err));
  TRY(record_reader_attach(results->descriptor, options->path, rules, &results->earlier, err));
  results->reading = true;
  results->read_hash = options->block_hash;
  if (!retry || !has_results) return STATUS_OK;
  TRY(atomic_file_open(options->path, &results->rewritten, err));
  if (atomic_file_is_new(&results->rewritten)) return STATUS_OK;
  return refuse(options->path, "it is this process's own output", err);
}

static Status open_file(Results *results, Error *err) {
  const ResultsOptions *options = &results->options;
  struct stat info;
  if (!*options->path) return error_set(err, STATUS_USAGE, "the name of the file to write is empty");
  bool special = stat(options->path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
  if (special && options->resume)
    return refuse(options->path, "only a regular file can be gone on with", err);
  int mode = is_only_read(options) ? O_RDONLY : special ? O_WRONLY : O_RDWR | O_CREAT;
  results->descriptor = open(options->path, mode | O_CLOEXEC | O_NOCTTY, 0666);
  if (results->descriptor < 0 && errno == EINTR) /* a fifo without a reader */
    return error_set(err, STATUS_INTERRUPTED, "%s: opening was interrupted", options->path);
  if (results->descriptor < 0 || fstat(results->descriptor, &info) != 0)
    return system_error(options->path, "open", err);
  if (special) return STATUS_OK;
  TRY(lock(options->path, results->descriptor, is_only_read(options), err));
  if (fstat(results->descriptor, &info) != 0) return system_error(options->path, "examine", err);
  results->opened_size = (uint64_t)info.st_size; /* another process may have appended before the lock */
  if (options->resume) return open_earlier(results, info.st_size > 0, err);
  if (ftruncate(results->descriptor, 0) != 0) return system_error(options->path, "empty", err);
  results->adds = true;
  return STATUS_OK;
}

Status results_open(const ResultsOptions *options, Results *results, Error *err) {
  *results = (Results){.is_open = true,
                       .options = *options,
                       .descriptor = -1,
                       .resume = {.descriptor = -1},
                       .rewritten = {.descriptor = -1}};
  return options->path ? open_file(results, err) : STATUS_OK;
}

/* --- existing results */

/* True if an object's settings have this hash. */
static bool has_settings(const Json *tree, uint64_t expected) {
  char hash[RESULT_HASH_SIZE + 1];
  const Json *settings = json_member(tree, "settings");
  snprintf(hash, sizeof hash, "%016" PRIx64, expected);
  return settings && json_is_string(settings) && json_string_is(settings, hash);
}

/* The index of a line's result among the results of all shares. */
static size_t index_of(const ResultsOptions *options, const Record *line) {
  return record_index(&options->share, options->n_copies, line->index);
}

/* Reads an existing object: its record's hash, whether it is an error, and whether it was made with other
 * settings. False: the line is no object of --map, or has another index. */
static bool read_object(const Record *line, const ResultsOptions *options, EarlierResult *earlier,
                        bool *others) {
  Json *tree;
  size_t size = 0;
  int64_t index = -1;
  bool ours = false;
  if (json_parse("", STATUS_USAGE, line->text, line->size, NULL, 0, &tree, NULL) != STATUS_OK) return false;
  const Json *input = json_member(tree, "input"), *number = json_member(tree, "index");
  const char *hash = input && json_is_string(input) ? json_string(input, &size) : "";
  if (number && json_int64(number, &index) && index == (int64_t)index_of(options, line) &&
      size == RESULT_HASH_SIZE && strspn(hash, "0123456789abcdef") == size)
    ours = sscanf(hash, "%" SCNx64, &earlier->input) == 1;
  earlier->is_error = json_member(tree, "error") != NULL;
  *others = !has_settings(tree, options->settings->hash);
  json_free(tree);
  return ours;
}

/* Appends the beginning of an object, up to the hash of its record. */
static Status begin_object(size_t index, Buffer *out, Error *err) {
  return buffer_printf(out, err, "{\"index\": %zu, \"input\": \"", index);
}

/* True if an incomplete line can be the beginning of the object that --map writes there. */
static bool begins_object(const Record *line, const ResultsOptions *options, Error *err) {
  OWNED(buffer_release) Buffer object = {0};
  if (begin_object(index_of(options, line), &object, err) != STATUS_OK) return false;
  return memcmp(line->text, object.data, line->size < object.size ? line->size : object.size) == 0;
}

static Status read_earlier_object(const Results *results, EarlierResult *earlier, Error *err) {
  const Record *line = &results->last;
  const char *path = results->options.path;
  bool others = false, ours = line->ended ? read_object(line, &results->options, earlier, &others)
                                          : begins_object(line, &results->options, err);
  if (!ours)
    return error_set(err, STATUS_USAGE, "%s: line %zu is not what --map --json has written there", path,
                     line->index + 1);
  if (!others) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "%s: line %zu was made with another model or other settings", path,
                   line->index + 1);
}

static Status read_earlier(Results *results, EarlierResult *earlier, Error *err) {
  const Record *line = &results->last;
  if (line->cut)
    return error_set(err, STATUS_USAGE, "%s: result %zu has no end", results->options.path, line->index + 1);
  if (results->options.format == RESULTS_JSON) return read_earlier_object(results, earlier, err);
  earlier->is_error = line->size >= 2 && memcmp(line->text, "\\!", 2) == 0;
  if (!line->ended || results->options.is_block) return STATUS_OK;
  return map_resume_read(&results->resume, line->index, line->hash, &earlier->input, err);
}

/* Replaces the file by the rewritten one, which is locked before it becomes visible. */
static Status take_rewritten(Results *results, Error *err) {
  const char *path = results->options.path;
  int descriptor = fcntl(results->rewritten.descriptor, F_DUPFD_CLOEXEC, 3);
  if (descriptor < 0 || flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (descriptor >= 0) close(descriptor);
    return system_error(path, "lock", err);
  }
  close(results->descriptor);
  results->descriptor = descriptor;
  return atomic_file_commit(&results->rewritten, err);
}

/* Ends the reading after the last complete result. From here on results are appended, unless the file is only
 * read. */
static Status end_earlier(Results *results, Error *err) {
  const char *path = results->options.path;
  results->reading = false;
  record_reader_close(&results->earlier);
  if (is_only_read(&results->options)) return STATUS_OK;
  TRY(results_check_file(results->descriptor, path, results->opened_size, err));
  if (results->rewritten.path) TRY(take_rewritten(results, err));
  if (ftruncate(results->descriptor, (off_t)results->end) != 0 ||
      lseek(results->descriptor, (off_t)results->end, SEEK_SET) < 0)
    return system_error(path, "cut off what is torn", err);
  TRY(map_resume_cut(&results->resume, results->n_results, err));
  results->adds = true;
  return STATUS_OK;
}

/* `last` follows the results. Ends the reading of a block if `last` is their hash, else fails. */
static Status end_block(Results *results, const Record *last, Error *err) {
  char hash[RESULT_HASH_SIZE + 1];
  snprintf(hash, sizeof hash, "%016" PRIx64, results->read_hash);
  if (last && last->size == RESULT_HASH_SIZE && memcmp(last->text, hash, RESULT_HASH_SIZE) == 0)
    return end_earlier(results, err);
  return refuse(results->options.path,
                "this is not what --claim wrote there: the file was changed since; remove it, and run the "
                "command again",
                err);
}

static void hash_result(Results *results) {
  const uint64_t hash = record_hash(results->read_hash, results->last.text, results->last.size);
  results->read_hash = record_hash(hash, &results->earlier.rules.end, 1);
}

Status results_earlier(Results *results, EarlierResult *earlier, bool *found, Error *err) {
  *found = false;
  *earlier = (EarlierResult){0};
  if (!results->reading) return STATUS_OK;
  TRY(record_reader_next(&results->earlier, &results->last, found, err));
  if (results->options.is_block && !(*found && results->last.ended)) {
    const Record *last = *found ? &results->last : NULL;
    *found = false;
    return end_block(results, last, err);
  }
  if (*found) hash_result(results);
  if (*found) TRY(read_earlier(results, earlier, err));
  *found = *found && results->last.ended;
  return *found ? STATUS_OK : end_earlier(results, err);
}

/* --- writing */

/* Checks that the file still has its name, and the size of what was written to it. */
static Status check_written(const Results *results, Error *err) {
  if (!results->adds) return STATUS_OK;
  TRY(results_check_file(results->descriptor, results->options.path, results->end, err));
  return map_resume_check(&results->resume, results->n_results, err);
}

static Status write_all(Results *results, const void *bytes, size_t size, Error *err) {
  if (results->rewritten.path) return atomic_file_write(&results->rewritten, bytes, size, err);
  if (results->descriptor < 0) return output_write(bytes, size, err);
  Status status = output_write_to(results->descriptor, results->options.path, bytes, size, err);
  /* A failed write may leave a part of the result. It is cut off here, or else by the next --resume. */
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
  const size_t index = results->n_results;
  TRY(check_written(results, err));
  uint64_t hash = record_hash(RECORD_HASH_START, result->data, result->size - 1);
  if (results->rewritten.path)
    TRY(map_resume_write_any(&results->resume, index, input, err));
  else
    TRY(map_resume_write(&results->resume, index, input, hash, err));
  TRY(write_all(results, result->data, result->size, err));
  results->end += result->size;
  results->n_results++;
  return STATUS_OK;
}

static Status close_file(Results *results, Error *err) {
  const char *path = results->options.path;
  Status status = check_written(results, err);
  if (results->adds && fsync(results->descriptor) != 0 && status == STATUS_OK)
    status = system_error(path, "write to disk", err);
  /* close() reports what a network file system could not store. On Linux the file is closed after EINTR. */
  if (close(results->descriptor) != 0 && errno != EINTR && status == STATUS_OK)
    status = system_error(path, "write", err);
  return status;
}

Status results_close(Results *results, Error *err) {
  if (!results->is_open) return STATUS_OK;
  if (results->reading) record_reader_close(&results->earlier);
  atomic_file_abort(&results->rewritten);
  Status status = results->descriptor >= 0 ? close_file(results, err) : STATUS_OK;
  map_resume_close(&results->resume);
  *results = (Results){0};
  return status;
}

/* --- the form of a result */

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
  if (format == RESULTS_TEXTS && size && text[size - 1] == '\n') return STATUS_OK;
  return buffer_append(out, format == RESULTS_NUL ? "" : "\n", 1, err);
}

Status result_error(ResultsFormat format, const char *message, Buffer *out, Error *err) {
  TRY(buffer_append_string(out, "\\!", err));
  return result_text(format, message, strlen(message), out, err);
}

Status result_object(size_t index, uint64_t input, uint64_t settings, Buffer *out, Error *err) {
  TRY(begin_object(index, out, err));
  return buffer_printf(out, err, "%016" PRIx64 "\", \"settings\": \"%016" PRIx64 "\"", input, settings);
}
