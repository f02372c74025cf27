/* schema.c - `auk schema`: checks a JSON Schema and texts against it, and measures masks for lines of JSON.
 * Always true: a text is called valid exactly if a model could have written it, from the first byte to the
 * last, as an answer under the schema. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "commands/commands.h"
#include "commands/common.h"
#include "commands/form/form.h"
#include "commands/input_text.h"
#include "commands/model_flags.h"
#include "constrain/constraint.h"
#include "constrain/explain.h"

typedef struct {
  ModelFlags model; /* the path may also be a tokenizer.json */
  const char *schema, *file;
  bool jsonl, times, ignore_formats, lenient;
  int key_order;
} Options;

enum { ORDER_ANY, ORDER_SCHEMA };

static SchemaOptions schema_options(const Options *options) {
  const bool ordered = options->key_order == ORDER_SCHEMA;
  return (SchemaOptions){.exponents = !ordered,
                         .ignore_formats = options->ignore_formats,
                         .ordered_keys = ordered,
                         .lenient = options->lenient};
}

/* --- one text */

/* Appends a C string for each rule that a text breaks, or one string that says why the text is no JSON.
 * Appends nothing if the text is refused for something else (the order of keys, numbers of over 400
 * digits). */
static Status find_reasons(Constraint *constraint, const char *name, const char *text, size_t size,
                           Buffer *reasons, bool *is_json, Error *err) {
  OWNED(json_release) Json *tree = NULL;
  Error wrong;
  *is_json = json_parse(name, STATUS_USAGE, text, size, NULL, 0, &tree, &wrong) == STATUS_OK;
  if (!*is_json) return buffer_append(reasons, wrong.text, strlen(wrong.text) + 1, err);
  return schema_explain(&constraint->set, tree, reasons, err);
}

/* Refuses a text that does not fit the schema from byte `at` on. no_json, which says why the text is not JSON
 * (NULL: it is), becomes the message if it is about the same byte or a duplicate key. */
static Status refuse_place(const char *name, const Buffer *text, size_t at, const char *no_json, Error *err) {
  size_t line = 1, column = 1;
  for (size_t i = 0; i < at; i++) {
    column += (text->data[i] & 0xc0) != 0x80;
    if (text->data[i] == '\n') line++, column = 1;
  }
  if (at == text->size)
    return error_set(err, STATUS_FAILED, "%s: the text ends too early, after byte %zu", name, at);
  error_set(err, STATUS_FAILED, "%s:%zu:%zu: ", name, line, column);
  if (no_json && (strncmp(no_json, err->text, strlen(err->text)) == 0 || strstr(no_json, ": duplicate key ")))
    return error_set(err, STATUS_FAILED, "%s", no_json);
  return error_set(err, STATUS_FAILED, "%s:%zu:%zu: does not fit the schema: \"%.*s\"", name, line, column,
                   (int)(text->size - at < 20 ? text->size - at : 20), text->data + at);
}

/* Says why the text is refused: the last reason is the error, those before it are notes. */
static Status refuse_text(Constraint *constraint, const char *name, const Buffer *text, size_t at,
                          Error *err) {
  OWNED(buffer_release) Buffer reasons = {0};
  bool is_json;
  TRY(find_reasons(constraint, name, text->data ? text->data : "", text->size, &reasons, &is_json, err));
  if (!is_json || reasons.size == 0) return refuse_place(name, text, at, is_json ? NULL : reasons.data, err);
  for (size_t i = 0;;) {
    const size_t n = strlen(reasons.data + i) + 1;
    if (i + n == reasons.size) return error_set(err, STATUS_FAILED, "%s: %s", name, reasons.data + i);
    print_note("%s: %s", name, reasons.data + i);
    i += n;
  }
}

/* True if TEXT is JSON itself: it looks so, and no file has that name. */
static bool is_inline_text(const char *text) {
  static const char *const words[] = {"true", "false", "null"};
  bool is_json = *text && strchr("{[\"-0123456789", *text);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) is_json |= strcmp(text, words[i]) == 0;
  return is_json && strcmp(text, "-") != 0 && !file_exists(text);
}

static Status read_json(const char *text, Buffer *out, Error *err) {
  if (is_inline_text(text)) return buffer_append_string(out, text, err);
  return text_read(text, out, err);
}

static Status check_text(const Options *options, Constraint *constraint, Buffer *out, Error *err) {
  const char *file = options->file ? options->file : "-";
  const char *name = is_inline_text(file) ? "the text" : text_name(file);
  OWNED(buffer_release) Buffer text = {0};
  bool allowed = false;
  size_t taken = 0;
  TRY(read_json(file, &text, err));
  TRY(constraint_take_bytes(constraint, text.data, text.size, &allowed, &taken, err));
  if (!allowed || !constraint_may_end(constraint))
    return refuse_text(constraint, name, &text, allowed ? text.size : taken, err);
  return buffer_append_string(out, "valid\n", err);
}

static Status run_text(const Options *options, Buffer *out, Error *err) {
  OWNED(buffer_release) Buffer schema = {0};
  Constraint constraint;
  const bool is_text = form_schema_is_inline(options->schema);
  const char *name = is_text ? "the schema" : options->schema;
  TRY(is_text ? buffer_append_string(&schema, options->schema, err)
              : text_read_source(options->schema, &schema, err));
  TRY(constraint_open(name, schema.data ? schema.data : "", schema.size, schema_options(options), NULL,
                      &constraint, err));
  form_note_let_go(name, &constraint);
  Status status = check_text(options, &constraint, out, err);
  constraint_close(&constraint);
  return status;
}

/* --- lines of JSON */

typedef struct {
  const Options *options;
  const Tokenizer *tokenizer;
  Vocabulary vocabulary;
  uint64_t *mask; /* [vocabulary.n_words] */
} Lines;

/* CPU microseconds for each token of a line: for constraint_mask() and constraint_take() together. */
typedef struct {
  double *items; /* [count] */
  size_t count, capacity;
} Times;

static void times_release(Times *times) {
  free(times->items);
}

static int by_time(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Takes the tokens of a text one by one, each only if its bit is set in the mask before it. */
static Status take_ids(Lines *lines, Constraint *c, const IdList *ids, Times *times, bool *accepted,
                       Error *err) {
  *accepted = true;
  for (size_t i = 0; i < ids->count && *accepted; i++) {
    double start = clock_thread_ms();
    TRY(constraint_mask(c, lines->mask, err));
    bool allowed = mask_has(lines->mask, ids->ids[i]);
    if (allowed) TRY(constraint_take(c, ids->ids[i], accepted, err));
    TRY(APPEND(times->items, times->count, times->capacity, "times", err, (clock_thread_ms() - start) * 1e3));
    *accepted &= allowed;
  }
  *accepted = *accepted && constraint_may_end(c);
  return STATUS_OK;
}

/* True if the tokens spell the text: a tokenizer that normalises changes some texts. */
static bool spells(const Vocabulary *v, const IdList *ids, const char *text, size_t size) {
  size_t at = 0, n;
  for (size_t i = 0; i < ids->count; i++, at += n) {
    const char *bytes = vocabulary_bytes(v, ids->ids[i], &n);
    if (n > size - at || memcmp(bytes, text + at, n) != 0) return false;
  }
  return at == size;
}

static Status take_text(Lines *lines, Constraint *c, const char *text, size_t size, Times *times,
                        bool *accepted, Error *err) {
  const EncodeOptions plain = {false, false};
  OWNED(id_list_release) IdList ids = {0};
  size_t taken;
  TRY(tokenizer_encode(lines->tokenizer, text, size, plain, &ids, err));
  TRY(constraint_begin(c, err));
  TRY(take_ids(lines, c, &ids, times, accepted, err));
  if (!*accepted || spells(&lines->vocabulary, &ids, text, size)) return STATUS_OK;
  TRY(constraint_begin(c, err));
  TRY(constraint_take_bytes(c, text, size, accepted, &taken, err));
  *accepted = *accepted && constraint_may_end(c);
  return STATUS_OK;
}

static Status write_times(Times *times, bool all, Buffer *out, Error *err) {
  double sum = 0;
  size_t n = times->count;
  if (n > 0) qsort(times->items, n, sizeof *times->items, by_time);
  for (size_t i = 0; i < n; i++) sum += times->items[i];
  TRY(buffer_printf(
      out, err, ", \"masks\": %zu, \"mask_us_mean\": %.2f, \"mask_us_p99\": %.2f, \"mask_us_max\": %.2f", n,
      n ? sum / (double)n : 0, n ? times->items[(n - 1) * 99 / 100] : 0, n ? times->items[n - 1] : 0));
  if (!all) return STATUS_OK;
  TRY(buffer_append_string(out, ", \"mask_us\": [", err));
  for (size_t i = 0; i < n; i++) TRY(buffer_printf(out, err, i ? ", %.2f" : "%.2f", times->items[i]));
  return buffer_append_string(out, "]", err);
}

/* Appends the list of reasons why a text is refused, with a comma before it if `out` has a list already. */
static Status write_reasons(Constraint *c, const char *text, size_t size, bool accepted, Buffer *out,
                            Error *err) {
  OWNED(buffer_release) Buffer reasons = {0};
  bool is_json;
  TRY(buffer_append_string(out, out->size ? ", [" : "[", err));
  if (!accepted) TRY(find_reasons(c, "text", text, size, &reasons, &is_json, err));
  for (size_t at = 0, n; at < reasons.size; at += n + 1) {
    n = strlen(reasons.data + at);
    if (at > 0) TRY(buffer_append_string(out, ", ", err));
    TRY(json_write_string(out, reasons.data + at, n, err));
  }
  return buffer_append_string(out, "]", err);
}

static Status take_tests(Lines *lines, Constraint *c, const Json *tests, Buffer *out, Error *err) {
  OWNED(times_release) Times times = {0};
  OWNED(buffer_release) Buffer list = {0}, reasons = {0};
  for (const Json *test = json_first(tests); test; test = json_next(test)) {
    const Json *text = json_is_object(test) ? json_member(test, "text") : test;
    bool accepted = false;
    size_t size;
    if (!json_is_string(text))
      return error_set(err, STATUS_USAGE, "a test is no string and has no string \"text\"");
    const char *bytes = json_string(text, &size);
    TRY(take_text(lines, c, bytes, size, &times, &accepted, err));
    TRY(buffer_printf(&list, err, "%s%s", list.size ? ", " : "", accepted ? "true" : "false"));
    TRY(write_reasons(c, bytes, size, accepted, &reasons, err));
  }
  TRY(write_times(&times, lines->options->times, out, err));
  TRY(buffer_printf(out, err, ", \"accepted\": [%.*s], \"reasons\": [", (int)list.size,
                    list.size ? list.data : ""));
  if (reasons.size) TRY(buffer_append(out, reasons.data, reasons.size, err));
  return buffer_append_string(out, "]", err);
}

/* Appends the list of the keywords that --schema-lenient ignored, if there are any. */
static Status write_let_go(const Buffer *let_go, Buffer *out, Error *err) {
  for (size_t at = 0; at < let_go->size; at += strlen(let_go->data + at) + 1) {
    TRY(buffer_append_string(out, at ? ", " : ", \"let_go\": [", err));
    TRY(json_write_string(out, let_go->data + at, strlen(let_go->data + at), err));
  }
  return let_go->size ? buffer_append_string(out, "]", err) : STATUS_OK;
}

/* Compiles a line's schema, runs the line's tests with it, and appends the results. A refused schema is an
 * answer, not a failure. */
static Status answer_line(Lines *lines, const Json *line, JsonSpan schema, Buffer *out, Error *err) {
  Constraint constraint;
  Error refused = {{0}};
  size_t size = 0;
  const Json *name = json_member(line, "name");
  const char *bytes = name && json_is_string(name) ? json_string(name, &size) : "";
  if (!schema.text) return error_set(err, STATUS_USAGE, "no member \"schema\"");
  double start = clock_thread_ms();
  Status status = constraint_open("schema", schema.text, schema.size, schema_options(lines->options),
                                  &lines->vocabulary, &constraint, &refused);
  double microseconds = (clock_thread_ms() - start) * 1e3;
  TRY(buffer_append_string(out, "{", err));
  Status written = json_put_text((JsonWriter){out, err}, "name", bytes, size);
  if (written == STATUS_OK)
    written =
        buffer_printf(out, err, ", \"compiled\": %s, \"error\": ", status == STATUS_OK ? "true" : "false");
  if (written == STATUS_OK)
    written = status == STATUS_OK ? buffer_append_string(out, "null", err)
                                  : json_write_string(out, refused.text, strlen(refused.text), err);
  if (written == STATUS_OK) written = buffer_printf(out, err, ", \"compile_us\": %.0f", microseconds);
  if (status != STATUS_OK) return written == STATUS_OK ? buffer_append_string(out, "}\n", err) : written;
  if (written == STATUS_OK) written = write_let_go(&constraint.set.let_go, out, err);
  if (written == STATUS_OK) written = take_tests(lines, &constraint, json_member(line, "tests"), out, err);
  constraint_close(&constraint);
  return written == STATUS_OK ? buffer_append_string(out, "}\n", err) : written;
}

static Status take_line(void *user, const char *where, const Buffer *text, Buffer *out, Error *err) {
  OWNED(json_release) Json *line = NULL;
  JsonSkip schema = {"schema", {NULL, 0}};
  Status status =
      json_parse("line", STATUS_USAGE, text->data ? text->data : "", text->size, &schema, 1, &line, err);
  if (status == STATUS_OK) status = answer_line(user, line, schema.span, out, err);
  if (json_is_object(line)) return status;
  const Error reason = *err;
  return error_set(err, status, "%s (a line is {\"schema\": {...}, \"tests\": [\"...\"]})", reason.text);
}

static Status run_lines(const Options *options, Error *err) {
  Lines lines = {.options = options};
  OWNED(tokenizer_release) Tokenizer *tokenizer = NULL;
  OWNED(mem_release) uint64_t *mask = NULL;
  TRY(tokenizer_place_open(&options->model, &tokenizer, err));
  lines.tokenizer = tokenizer;
  TRY(vocabulary_open(tokenizer, &lines.vocabulary, err));
  Status status = NEW(mask, lines.vocabulary.n_words + 1, "masks", err);
  lines.mask = mask;
  if (status == STATUS_OK) status = lines_answer(options->file, take_line, &lines, "failed", err);
  vocabulary_close(&lines.vocabulary);
  return status;
}

static const char about[] =
    "SCHEMA and TEXT are files, or JSON themselves: '{...}'. Checks whether TEXT (default: standard input) "
    "fits\n"
    "the JSON Schema (drafts 4, 6, 7, 2019-09 and 2020-12, by its $schema): \"valid\",\n"
    "or a line for each rule that fails, with the JSON pointer of the value: /age: 200 is above the maximum "
    "120.\n"
    "A text that is no JSON, or not all of one, is refused by the line and column after which no text fits. "
    "A\n"
    "schema that cannot be held to exactly is refused, with the keyword and its JSON pointer.\n"
    "\n"
    "--jsonl answers each line {\"name\": ..., \"schema\": ..., \"tests\": [TEXT or {\"text\": TEXT}, ...]} "
    "by a line with\n"
    "whether the schema compiles, how long that took, how long the masks of the texts' tokens took, which\n"
    "texts are accepted (each token allowed in its turn, then the end), and the reasons for each that is "
    "not.\n"
    "That needs a tokenizer.";

static const Flag flags[] = {
    FLAG_MODEL("-m, --model", Options, model.path, model.usual,
               "a checkpoint, or a tokenizer.json itself (default: $AUK_MODEL)"),
    FLAG_FILE("--tokenizer", "FILE", Options, model.overrides.tokenizer,
              "a tokenizer.json in place of the model's own"),
    FLAG_FILE("--schema, --json-schema", "FILE", Options, schema, "the same as SCHEMA"),
    FLAG_FILE("-f, --file", "FILE", Options, file,
              "the same as TEXT, or where the lines are ('-': stdin, the default)"),
    FLAG_SWITCH("--jsonl", Options, jsonl, "line after line of JSON"),
    FLAG_SWITCH("--times", Options, times, "with --jsonl also mask_us: the time of each mask, sorted"),
    FLAG_CHOICE("--key-order", "any|schema", Options, key_order,
                "the order of an object's keys (default any; schema: as `properties` has them, then others)"),
    FLAG_SWITCH(
        "--schema-lenient", Options, lenient,
        "keywords that cannot be held to exactly are let go, each with a note; with --jsonl in \"let_go\""),
    FLAG_SWITCH("--ignore-formats", Options, ignore_formats, "`format` says nothing of what is valid"),
};
static const FlagGroup groups[] = {FLAG_GROUP("Flags", flags)};

static const FlagRule rules[] = {
    {"--schema", EXCLUDES, "--jsonl", "its lines have their own"},
    {"-m, --tokenizer, --times", NEEDS, "--jsonl", NULL},
};

static Status run(CommandCall *call, Error *err) {
  Options *options = call->options;
  const char *file = call->n_operands ? call->operands[0] : NULL;
  if (call->n_operands == 2 && options->file)
    return error_set(err, STATUS_USAGE, "%s cannot stand beside --file, which has the text",
                     call->operands[1]);
  if (call->n_operands == 2) options->file = call->operands[1];
  if (file && (options->schema || options->jsonl))
    return error_set(err, STATUS_USAGE, "%s cannot stand beside %s, which has the schema", file,
                     options->jsonl ? "--jsonl" : "--schema");
  if (options->jsonl) return run_lines(options, err);
  if (file) options->schema = file;
  if (!options->schema)
    return error_set(err, STATUS_USAGE,
                     "no schema: auk schema SCHEMA TEXT, each a file or JSON (without TEXT: standard input)");
  return run_text(options, &call->out, err);
}

const Interface schema_interface = {
    .usage = "auk schema SCHEMA [TEXT]\nauk schema -m MODEL --jsonl [-f FILE]",
    .about = about,
    .examples = "auk schema person.json answer.json       # valid, or why not\n"
                "auk schema '{\"maximum\": 9}' 5         # both given as JSON\n"
                "auk schema -m MODEL --jsonl < schemas.jsonl       # many, with times",
    INTERFACE_GROUPS(groups),
    INTERFACE_RULES(rules),
    .max_operands = 2,
    .operands = VALUE_FILE,
    .options_size = sizeof(Options),
    .run = run,
};
