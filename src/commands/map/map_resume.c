/* map_resume.c - see map_resume.h.   Called by: map_results.c, map_claim.c, merge/merge_parts.c. */
#include "commands/map/map_resume.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands/common.h"
#include "commands/map/map_results.h"

enum { HASH_SIZE = 16, LINE_SIZE = 2 * HASH_SIZE + 2 };
static const char any_hash[] = "----------------", digits[] = "0123456789abcdef";
static const char *const first_lines[] = {[RESULTS_LINES] = "auk --map lines 2:\n",
                                          [RESULTS_NUL] = "auk --map texts 2:\n",
                                          [RESULTS_JSON] = "auk --map objects 2:\n"};

static uint64_t place_of(const MapResume *r, size_t index) {
  return r->head + (uint64_t)LINE_SIZE * index;
}

static bool has_lines(const MapResume *r) {
  return r->settings && r->format != RESULTS_JSON;
}

static Status write_at(const MapResume *r, const char *bytes, size_t size, uint64_t at, Error *err) {
  while (size > 0) {
    ssize_t n = pwrite(r->descriptor, bytes, size, (off_t)at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return system_error(r->path, "write", err);
    bytes += n;
    at += (uint64_t)n;
    size -= (size_t)n;
  }
  return STATUS_OK;
}

/* --- opening */

static bool begins_with(const char *text, size_t size, const char *line) {
  return size >= strlen(line) && memcmp(text, line, strlen(line)) == 0;
}

/* True if the text, possibly incomplete, begins like an OUT.resume of any format. */
static bool is_ours(const char *text, size_t size) {
  for (size_t i = 0; i < sizeof first_lines / sizeof *first_lines; i++) {
    size_t n = strlen(first_lines[i]);
    if (memcmp(text, first_lines[i], size < n ? size : n) == 0) return true;
  }
  return false;
}

/* Finds the end of the head and the number of results listed in the file. */
static void measure(MapResume *r, const char *text, size_t size) {
  struct stat info;
  const char *end = memmem(text, size, "\n\n", 2);
  if (!end || !begins_with(text, size, first_lines[r->format]) || fstat(r->descriptor, &info) != 0) return;
  r->head = (uint64_t)(end + 2 - text);
  r->n_listed = (size_t)((uint64_t)info.st_size - r->head) / LINE_SIZE;
}

static Status check_head(MapResume *r, const char *text, size_t size, const ResumeRules *rules,
                         bool has_results, Error *err) {
  const char *first = first_lines[r->format];
  measure(r, text, size);
  if (!is_ours(text, size) || (has_results && !r->head))
    return error_set(err, STATUS_USAGE, "%s: this is not what --map has made beside results of this form",
                     r->path);
  r->keeps_head = has_results;
  if (!has_results) return STATUS_OK;
  const char *lines = text + strlen(first);
  const size_t n_lines = (size_t)r->head - 1 - strlen(first);
  TRY(map_settings_compare(r->settings, lines, n_lines, rules->tolerance, r->results_path, rules->other,
                           err));
  const Buffer *now = &r->settings->lines;
  r->has_other_context = rules->tolerance && (now->size != n_lines || memcmp(now->data, lines, n_lines) != 0);
  return STATUS_OK;
}

static Status read_head(MapResume *r, const ResumeRules *rules, bool has_results, Error *err) {
  OWNED(mem_release) char *text = mem_alloc(HEAD_LIMIT, 1, "the head of OUT.resume", err);
  if (!text) return STATUS_FAILED;
  ssize_t n = pread(r->descriptor, text, HEAD_LIMIT, 0);
  return n < 0 ? system_error(r->path, "read", err) : check_head(r, text, (size_t)n, rules, has_results, err);
}

Status map_resume_open(const char *results_path, const ResumeRules *rules, bool has_results, MapResume *r,
                       Error *err) {
  Buffer path = {0};
  *r = (MapResume){
      .format = rules->format, .settings = rules->settings, .results_path = results_path, .descriptor = -1};
  TRY(buffer_printf(&path, err, "%s.resume", results_path));
  r->path = path.data;
  TRY(file_refuse_waiting(r->path, err));
  r->descriptor = open(r->path, (rules->other ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOCTTY);
  if (r->descriptor >= 0) return read_head(r, rules, has_results, err);
  if (errno != ENOENT) return system_error(r->path, "open", err);
  if (!has_results || rules->format == RESULTS_JSON) return STATUS_OK;
  return error_set(err, STATUS_USAGE,
                   "%s: there is no %s beside it that says of which input it is (results of --json say so "
                   "themselves)",
                   results_path, r->path);
}

/* --- heads */

Status map_resume_head(const char *text, size_t size, ResultsFormat *format, MapSettings *settings,
                       bool *valid, Error *err) {
  const char *end = memmem(text, size, "\n\n", 2);
  *valid = false;
  for (size_t i = 0; end && i < sizeof first_lines / sizeof *first_lines; i++) {
    const size_t n = strlen(first_lines[i]);
    if (!begins_with(text, size, first_lines[i]) || (size_t)(end + 1 - text) < n) continue;
    *format = (ResultsFormat)i;
    return map_settings_read(text + n, (size_t)(end + 1 - text) - n, settings, valid, err);
  }
  return STATUS_OK;
}

Status map_resume_read_head(const char *path, Buffer *text, Error *err) {
  TRY(file_refuse_waiting(path, err));
  OWNED(mem_release) char *bytes = mem_alloc(HEAD_LIMIT, 1, "the head of OUT.resume", err);
  if (!bytes) return STATUS_FAILED;
  OWNED(descriptor_release) const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (descriptor < 0) return system_error(path, "open", err);
  const ssize_t n = pread(descriptor, bytes, HEAD_LIMIT, 0);
  return n < 0 ? system_error(path, "read", err) : buffer_append(text, bytes, (size_t)n, err);
}

Status map_resume_write_head(ResultsFormat format, const MapSettings *settings, Buffer *out, Error *err) {
  TRY(buffer_append_string(out, first_lines[format], err));
  TRY(buffer_append(out, settings->lines.data, settings->lines.size, err));
  return buffer_append(out, "\n", 1, err);
}

void map_resume_close(MapResume *r) {
  if (r->descriptor >= 0) close(r->descriptor);
  free(r->path);
  *r = (MapResume){.descriptor = -1};
}

/* --- lines */

static bool read_hash(const char *text, uint64_t *hash) {
  char copy[HASH_SIZE + 1] = {0};
  memcpy(copy, text, HASH_SIZE);
  return strspn(copy, digits) == HASH_SIZE && sscanf(copy, "%" SCNx64, hash) == 1;
}

Status map_resume_read(const MapResume *r, size_t index, uint64_t result, uint64_t *record, Error *err) {
  char line[LINE_SIZE] = {0};
  uint64_t hash = result;
  ssize_t n = pread(r->descriptor, line, LINE_SIZE, (off_t)place_of(r, index));
  if (n < 0) return system_error(r->path, "read", err);
  const char *second = line + HASH_SIZE + 1;
  bool whole = n == LINE_SIZE && line[HASH_SIZE] == ' ' && line[LINE_SIZE - 1] == '\n' &&
               read_hash(line, record) &&
               (memcmp(second, any_hash, HASH_SIZE) == 0 || read_hash(second, &hash));
  if (!whole)
    return error_set(err, STATUS_USAGE, "%s tells nothing of result %zu, which is there", r->path, index + 1);
  if (hash == result) return STATUS_OK;
  return error_set(err, STATUS_USAGE,
                   "%s: result %zu is not what --map wrote there: the file was changed since",
                   r->results_path, index + 1);
}

/* --- writing */

static Status copy_lines(const MapResume *r, size_t n, AtomicFile *file, Error *err) {
  char chunk[LINE_SIZE * 128];
  const uint64_t end = place_of(r, has_lines(r) ? n : 0);
  for (uint64_t at = r->head; at < end;) {
    const size_t wanted = end - at < sizeof chunk ? (size_t)(end - at) : sizeof chunk;
    const ssize_t n_read = pread(r->descriptor, chunk, wanted, (off_t)at);
    if (n_read <= 0) return system_error(r->path, "read", err);
    TRY(atomic_file_write(file, chunk, (size_t)n_read, err));
    at += (uint64_t)n_read;
  }
  return STATUS_OK;
}

static Status write_again(const MapResume *r, size_t n, AtomicFile *file, Error *err) {
  OWNED(buffer_release) Buffer head = {0};
  TRY(map_resume_write_head(r->format, r->settings, &head, err));
  TRY(atomic_file_write(file, head.data, head.size, err));
  return copy_lines(r, n, file, err);
}

/* Rewrites the file, which lists n results, with this run's -c in its head. */
static Status replace_head(MapResume *r, size_t n, Error *err) {
  OWNED(atomic_file_abort) AtomicFile file = {0};
  TRY(atomic_file_open(r->path, &file, err));
  TRY(write_again(r, n, &file, err));
  TRY(atomic_file_commit(&file, err));
  close(r->descriptor);
  r->descriptor = open(r->path, O_RDWR | O_CLOEXEC | O_NOCTTY);
  if (r->descriptor < 0) return system_error(r->path, "open", err);
  r->head = strlen(first_lines[r->format]) + r->settings->lines.size + 1;
  r->has_other_context = false;
  return STATUS_OK;
}

static Status begin_file(MapResume *r, Error *err) {
  OWNED(buffer_release) Buffer head = {0};
  if (ftruncate(r->descriptor, 0) != 0) return system_error(r->path, "write", err);
  TRY(map_resume_write_head(r->format, r->settings, &head, err));
  r->head = head.size;
  return write_at(r, head.data, head.size, 0, err);
}

Status map_resume_cut(MapResume *r, size_t n, Error *err) {
  if (!r->settings) return STATUS_OK;
  if (r->descriptor < 0) r->descriptor = open(r->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
  if (r->descriptor < 0) return system_error(r->path, "open", err);
  if (!r->keeps_head) TRY(begin_file(r, err));
  if (r->has_other_context && r->has_remade) TRY(replace_head(r, n, err));
  bool cut = ftruncate(r->descriptor, (off_t)place_of(r, has_lines(r) ? n : 0)) == 0;
  return cut ? STATUS_OK : system_error(r->path, "write", err);
}

static Status write_line(const MapResume *r, size_t index, uint64_t record, const char *result, Error *err) {
  char line[LINE_SIZE + 1];
  if (!has_lines(r)) return STATUS_OK;
  snprintf(line, sizeof line, "%016" PRIx64 " %s\n", record, result);
  return write_at(r, line, LINE_SIZE, place_of(r, index), err);
}

Status map_resume_write(MapResume *r, size_t index, uint64_t record, uint64_t result, Error *err) {
  char hash[HASH_SIZE + 1];
  if (r->has_other_context) TRY(replace_head(r, index, err));
  snprintf(hash, sizeof hash, "%016" PRIx64, result);
  return write_line(r, index, record, hash, err);
}

Status map_resume_write_any(MapResume *r, size_t index, uint64_t record, Error *err) {
  r->has_remade = true;
  return write_line(r, index, record, any_hash, err);
}

Status map_resume_check(const MapResume *r, size_t n, Error *err) {
  if (!r->settings) return STATUS_OK;
  return results_check_file(r->descriptor, r->path, place_of(r, has_lines(r) ? n : 0), err);
}
