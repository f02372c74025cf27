/* merge.c - `auk merge OUT.*` and `auk merge DIR`: puts the results of --shard or --claim together.
 *
 * Called by: main.c through the table of commands.c.
 * Always true: the output is, byte for byte, what one run with --resume over all records writes. Nothing is
 *              written unless every result is there. A file (-o) appears whole. */
#include <sys/resource.h>

#include "base/file.h"
#include "base/output.h"
#include "commands/commands.h"
#include "commands/common.h"
#include "commands/merge/merge_parts.h"
#include "commands/written_file.h"

typedef struct {
  const char *path; /* -o, or NULL: standard output */
} Options;

static const Flag flags[] = {
    FLAG_FILE("-o, --output", "FILE", Options, path, "where the results go (default: standard output)"),
};
static const FlagGroup groups[] = {FLAG_GROUP("Flags", flags)};

typedef struct {
  MergeParts parts;
  AtomicFile file; /* -o */
  Buffer bytes;    /* bytes not written yet */
  size_t n_errors;
} Merge;

/* --- writing */

static Status flush(Merge *m, Error *err) {
  const size_t size = m->bytes.size;
  m->bytes.size = 0;
  if (size == 0) return STATUS_OK;
  return m->file.path ? atomic_file_write(&m->file, m->bytes.data, size, err)
                      : output_write(m->bytes.data, size, err);
}

/* Reads the part's next result. Without `expected` the part must end here; for a block that also checks its
 * hash. Fails if the part has changed since it was counted. */
static Status read_result(MergePart *part, bool expected, EarlierResult *earlier, Error *err) {
  bool found;
  TRY(results_earlier(&part->results, earlier, &found, err));
  if (found == expected) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "%s has changed since it was counted", part->path);
}

static Status copy_result(Merge *m, MergePart *part, Error *err) {
  enum { CHUNK = 1 << 16 };
  Results *results = &part->results;
  EarlierResult earlier;
  TRY(read_result(part, true, &earlier, err));
  m->n_errors += earlier.is_error;
  TRY(buffer_append(&m->bytes, results->last.text, results->last.size, err));
  TRY(buffer_append(&m->bytes, m->parts.format == RESULTS_NUL ? "" : "\n", 1, err));
  return m->bytes.size < CHUNK ? STATUS_OK : flush(m, err);
}

/* Copies all results of one record, then closes the part's file if that was the part's last record. */
static Status copy_record(Merge *m, size_t record, Error *err) {
  MergePart *part = merge_part_of(&m->parts, record);
  TRY(merge_part_open(&m->parts, part, err));
  for (size_t i = 0; i < m->parts.n_copies; i++, part->n_read++) TRY(copy_result(m, part, err));
  if (part->n_read < part->expected) return STATUS_OK;
  EarlierResult none;
  TRY(read_result(part, false, &none, err));
  return results_close(&part->results, err);
}

static Status copy_all(Merge *m, Error *err) {
  const volatile int *interrupted = interrupt_catch();
  for (size_t i = 0; i < m->parts.n_records; i++) {
    if (*interrupted) return error_set(err, STATUS_INTERRUPTED, "interrupted");
    TRY(copy_record(m, i, err));
  }
  return flush(m, err);
}

/* --- the command */

static Status check_output(const Merge *m, const char *path, Error *err) {
  const WrittenFile output = path ? written_file("-o", path) : written_standard_output();
  for (size_t i = 0; i < m->parts.n_parts; i++)
    TRY(written_file_is_not(&output, "merge", m->parts.parts[i].path, err));
  return STATUS_OK;
}

/* Raises the limit on open files: all shards are open at once. */
static void allow_many_files(void) {
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

static Status merge(Merge *m, const CommandCall *call, Error *err) {
  const Options *options = call->options;
  allow_many_files();
  TRY(merge_parts_open(call->operands, call->n_operands, &m->parts, err));
  TRY(check_output(m, options->path, err));
  TRY(merge_parts_check(&m->parts, err));
  if (options->path) TRY(atomic_file_open(options->path, &m->file, err));
  TRY(copy_all(m, err));
  if (options->path) TRY(atomic_file_commit(&m->file, err));
  if (m->n_errors == 0) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "%zu of %zu records are errors", m->n_errors,
                   m->parts.n_records * m->parts.n_copies);
}

static Status run(CommandCall *call, Error *err) {
  const Options *options = call->options;
  if (call->n_operands == 0)
    return error_set(err, STATUS_USAGE,
                     "no results: name the files of --shard (OUT.*) or the directory of --claim");
  TRY(file_name_check("-o", options->path, err));
  Merge m = {0};
  Status status = merge(&m, call, err);
  atomic_file_abort(&m.file);
  merge_parts_release(&m.parts);
  buffer_release(&m.bytes);
  return status;
}

static const char about[] =
    "Puts the results of several `auk --map` together, in the order of the records: those of --shard, which\n"
    "are files (what lies beside them, OUT.*.resume, is passed over), or those of --claim, which are a\n"
    "directory. The output is what one run over all records would have written. If results are missing,\n"
    "standard error names them and the command that makes them, and nothing is written. Files that were\n"
    "made with different models, settings, prompts or inputs are refused. Exit status: 0 done, 1 failed, or\n"
    "some records are errors, 2 usage.";

const Interface merge_interface = {
    .usage = "auk merge OUT.* [-o FILE]\nauk merge DIR [-o FILE]",
    .about = about,
    .examples = "auk -m MODEL --map lines.txt -p \"Sort: {}\" -n 9 --resume sorted --shard 1/2\n"
                "auk -m MODEL --map lines.txt -p \"Sort: {}\" -n 9 --resume sorted --shard 2/2\n"
                "auk merge sorted.* > sorted.txt\n"
                "auk -m MODEL --map lines.txt -p \"Sort: {}\" -n 9 --claim claims  # processes\n"
                "auk merge claims -o sorted.txt",
    INTERFACE_GROUPS(groups),
    .max_operands = 1 << 20,
    .operands = VALUE_FILE,
    .options_size = sizeof(Options),
    .run = run,
};
