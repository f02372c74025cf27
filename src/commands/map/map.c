/* map.c - `auk -m MODEL -p "... {} ..." --map FILE`: answers many records (map_many.c). Without --map,
 * several -p are the records.
 * Called by: run.c; map_many.c for results.
 * Always true: results are in the order of the records, except with --unordered; each result is written
 *              in full.
 *
 * The common beginning of the prompts is computed once. A session keeps the longest prefix that the next
 * prompt shares, or, if map_begin() says so, only the prefix that all prompts share. Sequences of a batch
 * share the KV pages of equal prefixes. */
#include "commands/map/map.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/output.h"
#include "commands/common.h"
#include "commands/input_text.h"
#include "commands/map/map_job.h"
#include "commands/map/map_run.h"

const Flag map_flags[] = {
    FLAG_FILE(
        "--map", "FILE", MapFlags, input,
        "answers each line of the file ('-': standard input), which stands where {} does in -p, or is the "
        "prompt; each result is one line: \\n, \\r and \\\\ stand for newlines, CRs and backslashes in it, "
        "\\! begins an error"),
    FLAG_SWITCH(
        "--map-json", MapFlags, json,
        "the lines are JSON: {NAME} in -p is a member, {} all of it; without -p, \"prompt\" or \"messages\""),
    FLAG_SWITCH("-0, --map-nul", MapFlags, nul,
                "records end with a NUL in place of a newline, and so do results that are text"),
    FLAG_FILE("--resume", "OUT", MapFlags, resume,
              "adds the results to this file, and begins with the first record that has none there"),
    FLAG_SWITCH("--retry-errors", MapFlags, retry_errors,
                "with --resume: also answers the records again whose results are errors"),
    FLAG_INT("--parallel, -np", "N", MapFlags, parallel, 0, MAX_PARALLEL,
             "records that are answered at once (default 0: what suits the device and its memory)"),
    FLAG_CHOICE(
        "--states", STATES_WORDS, MapFlags, states,
        "with --map: type of the states of linear attention and Mamba-2 (default f32); those of 16 bits "
        "take half of a GPU's memory, f16 is more exact than bf16"),
    FLAG_SWITCH("--no-invariant", MapFlags, no_invariant,
                "with --map on a GPU: faster, but an answer may get another token beside other records where "
                "two tokens are nearly as likely (see --invariant)"),
    FLAG_SWITCH("--unordered", MapFlags, unordered,
                "writes each result as soon as it is there, in any order; its \"index\" tells the record"),
    FLAG_INT("--n-best", "N", MapFlags, n_best, 1, MAX_PARALLEL,
             "N answers to each prompt, with the seeds S, S + 1, ... where -s S gives the first"),
    FLAG_STRING("--shard", "I/N", MapFlags, shard,
                "with --resume OUT: answers every N-th record from the I-th on, in OUT.I-of-N (auk merge "
                "puts the files together); auto: as srun, mpirun or torchrun says"),
    FLAG_DIRECTORY(
        "--claim", "DIR", MapFlags, claim,
        "answers the records that no other process with this directory has taken; the results go there "
        "too (auk merge DIR puts them together)"),
    FLAG_INT("--lease", "S", MapFlags, lease, 1, 86400,
             "with --claim: seconds without a sign of life after which a process's records are taken over "
             "(default 60; the longer time of two processes counts)"),
};

/* Refuses flags that do not go together; run.c has the rules that depend only on which flags are given. */
static Status check(const MapJob *job, Error *err) {
  if (!job->map->input && job->prompt->truncate)
    return error_set(err, STATUS_USAGE, "--truncate does not go with several prompts or --n-best");
  if (!job->map->input) return file_name_check("-o", job->reply->path, err);
  if (job->prompt->name && job->prompt->texts.count)
    return error_set(err, STATUS_USAGE, "-p does not go with -P and --map: each record is the text of -P");
  if (job->prompt->texts.count > 1)
    return error_set(err, STATUS_USAGE, "-p is given %zu times, expected one with --map",
                     job->prompt->texts.count);
  if (strcmp(job->map->input, "-") == 0 && prompt_asks_for_input(job->prompt))
    return error_set(err, STATUS_USAGE, "-f - does not go with --map -");
  TRY(file_name_check("--resume", job->map->resume, err));
  if (job->prompt->truncate && job->prompt->files.count)
    return error_set(err, STATUS_USAGE, "--truncate does not go with -f and --map");
  return STATUS_OK;
}

static Status choose_shard(Map *map, Error *err) {
  const MapFlags *flags = map->mapping.job->map;
  if (!flags->shard) return STATUS_OK;
  TRY(shard_choose(flags->shard, &map->shard, err));
  return shard_path(&map->shard, flags->resume, &map->shard_path, err);
}

/* --- where progress is shown */

/* True if progress and a summary are shown: standard error is a terminal, and no results appear on a
 * terminal. */
static bool shows_progress(const Map *map) {
  return progress_is_terminal() && !map->mapping.to_terminal;
}

static bool draws_progress(const Map *map) {
  return shows_progress(map) && terminal_takes_escapes(STDERR_FILENO);
}

/* Shows "loading" until the first record; a note may overwrite it. */
static void show_loading(Map *map) {
  map->on_screen = draws_progress(map);
  if (map->on_screen) fprintf(stderr, "loading\033[K\r");
}

static void clear_progress(Map *map) {
  if (map->on_screen) progress_clear();
  map->on_screen = false;
}

/* --- opening */

static Status read_files(Map *map, const StringList *files, Error *err) {
  for (size_t i = 0; i < files->count; i++) {
    const size_t start = map->before.size;
    TRY(text_read(files->items[i], &map->before, err));
    text_note_empty(files->items[i], map->before.size - start);
    text_drop_newline(&map->before);
    TRY(buffer_append(&map->before, "\n", 1, err));
  }
  if (map->before.size == 0) return STATUS_OK;
  return prompt_pattern_begin(&map->mapping.pattern, map->before.data, map->before.size, err);
}

static const char *output_path(const Map *map) {
  const MapJob *job = map->mapping.job;
  const char *path = map->shard.count   ? map->shard_path.data
                     : job->map->resume ? job->map->resume
                                        : job->reply->path;
  return path && (job->map->resume || strcmp(path, "-") != 0) ? path : NULL;
}

/* Results must not overwrite an input. Standard output is only compared with the file of --map: results
 * appended to that file would be read as records, without end. */
static Status check_output(const Map *map, const Assistant *a, Error *err) {
  const MapJob *job = map->mapping.job;
  const char *path = output_path(map);
  const WrittenFile output =
      path ? written_file(job->map->resume ? "--resume" : "-o", path) : written_standard_output();
  if (path) TRY(prompt_check_output(job->prompt, &output, err));
  if (path) TRY(assistant_check_output(a, &output, err));
  if (!job->map->input) return STATUS_OK;
  return written_file_is_not(&output, "--map", job->map->input, err);
}

/* Makes a record of each -p, joined with standard input and the files of -f, and opens these records. */
static Status open_prompts(Map *map, const MapJob *job, Error *err) {
  const RecordRules rules = {.verbatim = true, .limit = RECORD_LIMIT, .n_copies = job->map->n_best};
  OWNED(buffer_release) Buffer prompts = {0};
  TRY(prompt_read_all(job->prompt, &prompts, err));
  return record_reader_open_texts(&prompts, "prompt", rules, &map->reader, err);
}

static Status open_records(Map *map, RecordRules rules, Error *err) {
  const MapJob *job = map->mapping.job;
  if (!job->map->input) return open_prompts(map, job, err);
  return record_reader_open(job->map->input, rules, map->mapping.assistant->interrupted, &map->reader, err);
}

/* Surveys the whole input. Adds to the settings how the records are divided: this output's shard, or the
 * block size of --claim. */
static Status open_part(Map *map, const RecordRules *rules, const char *text, Error *err) {
  const MapFlags *flags = map->mapping.job->map;
  MapSettings *settings = &map->mapping.settings;
  OWNED(buffer_release) Buffer what = {0};
  TRY(survey_records(flags->input, rules, flags->claim ? "--claim" : "--shard",
                     map->mapping.assistant->interrupted, &map->survey, err));
  TRY(survey_settings(&map->survey, rules->hash, text, settings, err));
  if (flags->claim) {
    TRY(blocks_settings(&map->survey, settings, err));
  } else {
    TRY(shard_write(&map->shard, &what, err));
    TRY(map_settings_add(settings, "shard", what.data, what.size, NULL, err));
  }
  return map_settings_seal(settings, err);
}

static Status open_blocks(Map *map, Error *err) {
  const MapFlags *flags = map->mapping.job->map;
  const BlocksOptions options = {.claim = {.directory = flags->claim,
                                           .lease_s = flags->lease ? flags->lease : LEASE_S,
                                           .format = map->mapping.format,
                                           .settings = &map->mapping.settings,
                                           .n_blocks = map->survey.n_blocks,
                                           .interrupted = map->mapping.assistant->interrupted},
                                 .survey = &map->survey,
                                 .n_copies = flags->n_best,
                                 .reader = &map->reader};
  return blocks_open(&options, &map->blocks, err);
}

static Status open_streams(Map *map, const MapJob *job, Error *err) {
  /* Seed of the record hashes: the same record in another prompt has another hash. All else that a result
   * depends on is in the settings. */
  uint64_t hash = record_hash(RECORD_HASH_START, job->map->json ? "json" : "text", 4);
  const char *text = prompt_text(job->prompt);
  if (text) hash = record_hash(hash, text, strlen(text) + 1);
  const RecordRules rules = {.end = job->map->nul ? 0 : '\n',
                             .passes_blank = job->map->json,
                             .limit = RECORD_LIMIT,
                             .hash = record_hash(hash, map->before.data, map->before.size),
                             .n_copies = job->map->n_best,
                             .share = shard_share(&map->shard)};
  const ResultsOptions options = {.path = output_path(map),
                                  .format = map->mapping.format,
                                  .resume = job->map->resume != NULL,
                                  .retry = job->map->retry_errors,
                                  .settings = &map->mapping.settings,
                                  .share = rules.share,
                                  .n_copies = rules.n_copies};
  map->mapping.to_terminal = !options.path && !job->map->claim && output_is_terminal();
  show_loading(map);
  if (options.resume || job->map->claim || (options.format == RESULTS_JSON && job->map->input))
    TRY(map_job_settings(job, map->mapping.assistant, &map->mapping.choices, &map->mapping.settings, err));
  if (map->shard.count || job->map->claim) TRY(open_part(map, &rules, text, err));
  TRY(open_records(map, rules, err));
  map->resuming = options.resume;
  return job->map->claim ? open_blocks(map, err) : results_open(&options, &map->results, err);
}

static Status open_map(Map *map, const MapJob *job, Assistant *a, Error *err) {
  Mapping *m = &map->mapping;
  m->assistant = a;
  m->pattern.json = job->map->json;
  m->format = job->reply->json  ? RESULTS_JSON
              : job->map->nul   ? RESULTS_NUL
              : job->map->input ? RESULTS_LINES
                                : RESULTS_TEXTS;
  if (choose_is_given(job->choose)) TRY(choices_open(job->choose, &m->choices, err));
  a->many = true;
  TRY(assistant_open(job->assistant, a, err));
  if (a->cache && a->device.n_gpus > 1)
    return error_set(err, STATUS_USAGE, "--cache does not go with several GPUs (--gpu)");
  TRY(check_output(map, a, err));
  if (m->choices.n) choices_prepare(a);
  if (job->map->input && !job->map->no_invariant) assistant_prefer_invariant(a, job->map->parallel);
  cache_expect_many(a->cache);
  m->seed = a->sampler.seed;
  if (job->map->n_best > 1 && a->sampler.temperature == 0)
    return error_set(
        err, STATUS_USAGE,
        "--n-best %d with temperature 0 gives the same answer %d times: --temp X above 0 gives others",
        job->map->n_best, job->map->n_best);
  if (job->map->input) TRY(read_files(map, &job->prompt->files, err));
  const char *text = job->map->input ? prompt_text(job->prompt) : NULL, *name;
  int size;
  TRY(prompt_pattern_parse(&m->pattern, text, err));
  if (text && !m->pattern.json && (name = prompt_find_name(text, &size)) != NULL)
    print_note("%.*s in %s is text: with --map-json it is a member of each record", size, name,
               job->prompt->name ? "-P" : "-p");
  return open_streams(map, job, err);
}

/* --- progress and summary */

/* Bytes of a file whose records are counted in about a tenth of a second. */
static const uint64_t MOST_COUNTED = (uint64_t)64 << 20;

/* Counts the records of the input, for the progress, if it is a file of at most MOST_COUNTED bytes. */
static void count_records(Map *map, const volatile int *interrupted) {
  const char *input = map->mapping.job->map->input;
  const RecordReader *reader = &map->reader;
  if (!input || map->survey.n_records || reader->n_total == 0 || reader->n_total > MOST_COUNTED) return;
  if (survey_records(input, &reader->rules, "progress", interrupted, &map->survey, NULL) != STATUS_OK)
    survey_release(&map->survey);
}

/* The expected number of results; 0: unknown. If not *counted, it is estimated from the bytes read. */
static size_t expected_results(const Map *map, bool *counted) {
  const RecordReader *reader = &map->reader;
  const int n_best = map->mapping.job->map->n_best;
  *counted = map->survey.n_records > 0;
  if (*counted) return shard_size(&map->shard, map->survey.n_records) * (n_best > 1 ? (size_t)n_best : 1);
  if (reader->n_total == 0 || reader->n_consumed == 0) return 0;
  *counted = reader->n_consumed >= reader->n_total;
  const double share = *counted ? 1 : (double)reader->n_consumed / (double)reader->n_total;
  return (size_t)((double)reader->n_records / share + 0.5);
}

static void describe_progress(const Map *map, double seconds, Buffer *line) {
  bool counted;
  const size_t n_answered = map->n_done + map->n_waiting, n_made = n_answered - map->n_found;
  const size_t n_all = expected_results(map, &counted);
  const size_t n_elsewhere = map->blocks ? blocks_elsewhere(map->blocks) : 0;
  buffer_printf(line, NULL, "%zu", n_answered + n_elsewhere);
  if (n_all) buffer_printf(line, NULL, " of %s%zu", counted ? "" : "about ", n_all);
  buffer_printf(line, NULL, " records");
  if (map->n_running) buffer_printf(line, NULL, ", %zu running", map->n_running);
  if (map->n_errors) buffer_printf(line, NULL, ", %zu errors", map->n_errors);
  if (n_made == 0) return;
  buffer_printf(line, NULL, ", %.1f/s", (double)n_made / seconds);
  if (map->mapping.n_generated)
    buffer_printf(line, NULL, ", %.0f tokens/s", (double)map->mapping.n_generated / seconds);
  if (n_all == 0 || map->blocks) return; /* the speed of the other processes is not known */
  const double n_left = n_all > n_answered ? (double)(n_all - n_answered) : 0;
  const int left = (int)(seconds * n_left / (double)n_made + 0.5);
  if (left >= 3600) buffer_printf(line, NULL, ", %d:%02d:%02d left", left / 3600, left / 60 % 60, left % 60);
  if (left < 3600) buffer_printf(line, NULL, ", %d:%02d left", left / 60, left % 60);
}

void map_show_progress(Map *map, bool at_once) {
  enum { EVERY_MS = 200 };
  const double now = clock_ms();
  OWNED(buffer_release) Buffer line = {0};
  if (!draws_progress(map) || (!at_once && now - map->shown_ms < EVERY_MS)) return;
  map->on_screen = true;
  map->shown_ms = now;
  describe_progress(map, (now - map->start_ms) / 1e3, &line);
  progress_show("%.*s", (int)line.size, line.data ? line.data : "");
}

static void print_summary(const Map *map) {
  const Mapping *m = &map->mapping;
  const MapJob *job = m->job;
  if (!shows_progress(map) && !job->reply->usage && !job->assistant->answer.verbose) return;
  double seconds = map->start_ms > 0 ? (clock_ms() - map->start_ms) / 1e3 : 0;
  const size_t n_made = map->n_done - map->n_found; /* results written; more may have been answered */
  fprintf(stderr, "auk: %zu records answered in %.1f s", m->n_answered < n_made ? m->n_answered : n_made,
          seconds);
  if (map->n_found) fprintf(stderr, ", %zu were there", map->n_found);
  if (map->n_errors) fprintf(stderr, ", %zu errors", map->n_errors);
  fprintf(stderr, "; prompts %llu tokens (%llu known)", (unsigned long long)m->n_prompt,
          (unsigned long long)m->n_reused);
  if (m->n_generated)
    fprintf(stderr, ", answers %llu (%.1f/s)", (unsigned long long)m->n_generated,
            (double)m->n_generated / seconds);
  fprintf(stderr, "\n");
}

/* Says how to go on with an interrupted run of --resume or --claim, even if no progress is shown. */
static void say_how_to_go_on(Map *map) {
  const MapFlags *flags = map->mapping.job->map;
  bool counted;
  count_records(map, NULL);
  const size_t n_all = expected_results(map, &counted);
  if (flags->claim)
    print_note("interrupted: the same command goes on with what is missing in %s", flags->claim);
  else if (flags->resume && n_all && counted)
    print_note("interrupted: %s has %zu of %zu results: the same command goes on", output_path(map),
               map->n_done, n_all);
  else if (flags->resume)
    print_note("interrupted: %s has %zu results: the same command goes on", output_path(map), map->n_done);
}

/* --- the records */

static Status start(Map *map, Error *err) {
  Assistant *a = map->mapping.assistant;
  TRY(assistant_start_many(a, map->mapping.job->map->parallel, err));
  if (a->engine && engine_session(a->engine)) TRY(map_begin(&map->mapping, err));
  map->start_ms = clock_ms();
  return STATUS_OK;
}

void map_describe_cut(const Map *map, const AnswerResult *result, char what[128]) {
  snprintf(what, 128, "%s", answer_lack(result, map->mapping.assistant).text);
  if (*what) return;
  if (result->reason == FINISH_CONTEXT)
    snprintf(what, 128, "the answer is cut: the context of %d tokens is full",
             map->mapping.assistant->session_options.n_ctx);
  else if (result->reason == FINISH_REPETITION)
    snprintf(what, 128, "the answer is cut: it repeats itself (give -n N to allow that)");
}

void map_say(Map *map, const char *format, ...) {
  char text[sizeof(Error) + 256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  clear_progress(map);
  print_note("%s", text);
}

static Status add_to_block(Map *map, const Buffer *result, Error *err) {
  size_t block = 0;
  bool lost;
  TRY(blocks_add(map->blocks, result, &block, &lost, err));
  if (!lost) return STATUS_OK;
  map_say(map,
          "--claim: block %zu was taken over by another process, whose results count: this one gave no sign "
          "of life for too long (--lease)",
          block);
  return STATUS_OK;
}

Status map_add_result(Map *map, uint64_t input, const Buffer *result, size_t line, const char *note,
                      Error *err) {
  if (*note) map_say(map, "%s:%zu: %s", map->reader.name, line, note);
  TRY(map->blocks ? add_to_block(map, result, err) : results_add(&map->results, input, result, err));
  map->n_done++;
  map_show_progress(map, false);
  return STATUS_OK;
}

/* Reports results that have vanished. OUT.resume may legitimately list one result more than OUT has, if a
 * process was killed between the two writes. */
static void note_lost_results(Map *map) {
  size_t n_listed = map->results.resume.n_listed, n_there = map->results.n_results;
  if (n_listed <= n_there + 1) return;
  map_say(map, "%s: %zu of the %zu results that were written are gone: they are made again",
          map->results.options.path, n_listed - n_there, n_listed);
}

Status map_keep_result(Map *map, Error *err) {
  TRY(results_keep(&map->results, err));
  map->n_done++;
  map_show_progress(map, false);
  return STATUS_OK;
}

Status map_look_for_result(Map *map, bool found, bool *stays, Error *err) {
  EarlierResult earlier;
  bool there;
  *stays = false;
  TRY(results_earlier(&map->results, &earlier, &there, err));
  map->resuming = there;
  if (!there) {
    note_lost_results(map);
    return STATUS_OK;
  }
  const char *path = map->results.options.path;
  if (!found)
    return error_set(
        err, STATUS_USAGE,
        "%s has more results than %s has records, so it is of another input: give another file to "
        "--resume, or remove this one",
        path, map->reader.name);
  if (earlier.input != map->record.hash)
    return error_set(err, STATUS_USAGE,
                     "%s: result %zu is of another record than %s:%zu, or of another prompt (-p, -f): give "
                     "another file to --resume, or remove this one",
                     path, map->record.index + 1, map->reader.name, map->record.line);
  if (map->results.options.retry && earlier.is_error) return STATUS_OK;
  *stays = true;
  map->n_found++;
  map->n_errors += earlier.is_error;
  return STATUS_OK;
}

/* At the end of a shard's input, fails if the input is no longer what the survey found. */
static Status check_survey(const Map *map, Error *err) {
  if (map->shard.count == 0 || map->reader.hash == map->survey.hash) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "%s has changed since this run began", map->reader.name);
}

Status map_read_record(Map *map, bool may_wait, bool *found, bool *at_end, Error *err) {
  if (map->blocks) return blocks_read(map->blocks, may_wait, &map->record, found, at_end, err);
  *found = *at_end = false;
  if (!may_wait && !record_reader_is_ready(&map->reader)) return STATUS_OK;
  TRY(record_reader_next(&map->reader, &map->record, found, err));
  *at_end = !*found;
  return *at_end ? check_survey(map, err) : STATUS_OK;
}

/* Finds the first record that is to be answered, and leaves it in map->record. */
static Status find_first(Map *map, bool *found, Error *err) {
  bool at_end, stays;
  do {
    TRY(map_read_record(map, true, found, &at_end, err));
    stays = false;
    if (map->resuming) TRY(map_look_for_result(map, *found, &stays, err));
    if (*found && stays) TRY(map_keep_result(map, err));
  } while (*found && stays);
  return STATUS_OK;
}

/* With --resume or --claim there may be nothing left to do: weights are loaded only for a record. */
static Status run_records(Map *map, Error *err) {
  bool found = false;
  if (map->resuming || map->blocks) {
    TRY(find_first(map, &found, err));
    if (!found) return STATUS_OK;
  }
  TRY(start(map, err));
  return map_many(map, found, err);
}

static Status finish(Map *map, Error *err) {
  TRY(results_close(&map->results, err));
  if (map->blocks) TRY(blocks_check_end(map->blocks, err));
  if (map->n_errors)
    return error_set(err, STATUS_FAILED, "%zu of %zu %s are errors", map->n_errors, map->n_done,
                     map->mapping.job->map->input ? "records" : "answers");
  const Mapping *m = &map->mapping;
  if (m->n_cut && m->job->reply->require_stop)
    return error_set(err, STATUS_CUT_SHORT, "%zu answers were cut short (--require-stop)", m->n_cut);
  if (m->n_incomplete)
    return error_set(err, STATUS_CUT_SHORT, "%zu of %zu answers were cut before %s was complete",
                     m->n_incomplete, m->n_answered,
                     m->job->reply->code           ? "their code"
                     : m->assistant->form.is_calls ? "a call"
                                                   : "their form");
  return STATUS_OK;
}

bool map_is_asked(const MapFlags *map, const PromptFlags *prompt) {
  return map->input || map->n_best > 1 || prompt->texts.count > 1;
}

Status map_run(const MapJob *job, Assistant *assistant, Error *err) {
  Map map = {0};
  map.mapping.job = job;
  TRY(check(job, err));
  TRY(choose_shard(&map, err));
  Status status = open_map(&map, job, assistant, err);
  if (status == STATUS_OK) {
    if (draws_progress(&map)) count_records(&map, assistant->interrupted);
    status = run_records(&map, err);
    clear_progress(&map);
    if (status == STATUS_OK || status == STATUS_INTERRUPTED) print_summary(&map);
    if (status == STATUS_INTERRUPTED) say_how_to_go_on(&map);
  }
  clear_progress(&map);
  if (status == STATUS_OK) status = finish(&map, err);
  results_close(&map.results, NULL);
  blocks_close(map.blocks);
  survey_release(&map.survey);
  buffer_release(&map.shard_path);
  record_reader_close(&map.reader);
  mapping_release(&map.mapping);
  buffer_release(&map.before);
  return status;
}
