/* fuzz_map.c - hostile records, prompts and files of results of --map: a record is an error or a prompt of
 * whole characters; a result keeps to its line whatever is in it; and a file is refused, or gone on with.
 *
 * The input is a byte of options, the text of -p, a NUL, and the records, which are taken for results too. */
#include "memory_files.h"

#include <fcntl.h>

#include "base/utf8.h"
#include "commands/map/map_prompt.h"
#include "commands/map/map_results.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { JSON = 1, NUL = 2, NO_PATTERN = 4, SHORT = 8, RETRY = 16, GO_ON = 96 };

static void check_prompt(const PromptPattern *pattern, const Record *record, MapPrompt *prompt) {
  Error err = {{0}};
  Status status = map_prompt_fill(pattern, record, prompt, &err);
  require(status == STATUS_OK || (status == STATUS_USAGE && err.text[0]));
  if (status != STATUS_OK) return;
  const char *text = prompt->text.size ? prompt->text.data : "";
  require(utf8_valid_prefix(text, prompt->text.size) == prompt->text.size);
  for (size_t i = 0; prompt->is_chat && i < prompt->n_messages; i++) {
    const ChatMessage *m = &prompt->messages[i];
    require(m->text >= text && m->text + m->size <= text + prompt->text.size && m->role != NULL);
  }
}

static void check_result(ResultsFormat format, const char *text, size_t size) {
  Buffer line = {0};
  require(result_text(format, text, size, &line, NULL) == STATUS_OK);
  char end = format == RESULTS_NUL ? 0 : '\n';
  require(line.size > 0 && memchr(line.data, end, line.size) == line.data + line.size - 1);
  require(format == RESULTS_NUL || !memchr(line.data, '\r', line.size));
  buffer_release(&line);
}

static void read_records(uint8_t options, const char *pattern_text, const char *records, size_t size) {
  RecordRules rules = {.end = options & NUL ? 0 : '\n',
                       .passes_blank = options & JSON,
                       .limit = options & SHORT ? 16 : RECORD_LIMIT,
                       .hash = RECORD_HASH_START};
  int descriptor = memory_file(0, "records", records, size);
  RecordReader reader = {0};
  PromptPattern pattern = {.json = options & JSON};
  MapPrompt prompt = {0};
  Error err = {{0}};
  bool usable = prompt_pattern_parse(&pattern, pattern_text, &err) == STATUS_OK;
  require(record_reader_attach(descriptor, "records", rules, &reader, &err) == STATUS_OK);
  Record record;
  bool found = true;
  for (size_t n = 0;; n++) {
    const Status status = record_reader_next(&reader, &record, &found, &err);
    require(status == STATUS_OK ||
            (status == STATUS_USAGE && n == 0 && err.text[0])); /* another kind of file */
    if (status != STATUS_OK || !found) break;
    require(record.index == n && record.size <= rules.limit && n <= size);
    if (usable) check_prompt(&pattern, &record, &prompt);
    check_result(options & NUL ? RESULTS_NUL : RESULTS_LINES, record.size ? record.text : "", record.size);
  }
  map_prompt_release(&prompt);
  prompt_pattern_release(&pattern);
  record_reader_close(&reader);
}

static Status go_on(const ResultsOptions *options, Error *err) {
  Results results = {0};
  Status status = results_open(options, &results, err);
  EarlierResult earlier;
  bool found = true;
  while (status == STATUS_OK && found) {
    status = results_earlier(&results, &earlier, &found, err);
    if (status == STATUS_OK && found && !(options->retry && earlier.is_error))
      status = results_keep(&results, err);
    else if (status == STATUS_OK && found)
      found = false;
  }
  Status closed = results_close(&results, err);
  return status == STATUS_OK ? closed : status;
}

/* Files of results are renamed and cut: no link to one in memory is as good. */
static void take_results(uint8_t options, const char *bytes, size_t size) {
  char path[512], inputs[560];
  snprintf(path, sizeof path, "%s", memory_path("results"));
  snprintf(inputs, sizeof inputs, "%s.resume", path);
  FILE *file = fopen(path, "wb");
  require(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
  const MapSettings settings = {.hash = 1};
  ResultsOptions choice = {.path = path,
                           .settings = &settings,
                           .format = options & JSON  ? RESULTS_JSON
                                     : options & NUL ? RESULTS_NUL
                                                     : RESULTS_LINES,
                           .resume = true,
                           .retry = options & RETRY};
  Error err = {{0}};
  Status status = go_on(&choice, &err);
  require(status == STATUS_OK || (err.text[0] && status != STATUS_MODEL));
  unlink(path);
  unlink(inputs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2) return 0;
  const char *text = (const char *)data + 1, *nul = memchr(text, 0, size - 1);
  if (!nul) return 0;
  size_t n = size - 1 - (size_t)(nul + 1 - text);
  read_records(data[0], data[0] & NO_PATTERN ? NULL : text, nul + 1, n);
  if ((data[0] & GO_ON) == GO_ON) take_results(data[0], nul + 1, n);
  return 0;
}
