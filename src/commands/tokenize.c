/* tokenize.c - `auk tokenize`: text to token ids, ids to text, and both for lines of JSON.
 * Always true: standard output carries only ids and text; the input text is used unchanged, to its last
 *              newline. */
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/output.h"
#include "commands/commands.h"
#include "commands/input_text.h"
#include "commands/model_flags.h"
#include "model/model.h"

typedef struct {
  ModelFlags model; /* the path may also be a tokenizer.json */
  const char *text, *file;
  bool decode, jsonl;
  bool no_add_special, no_parse_special, skip_special;
} Options;

/* --- ids as text */

static Status write_ids(const IdList *ids, const char *separator, Buffer *out, Error *err) {
  size_t between = strlen(separator);
  for (size_t i = 0; i < ids->count; i++) {
    char digits[16], *at = digits + sizeof digits;
    uint32_t id = (uint32_t)ids->ids[i]; /* ids are never negative */
    do *--at = (char)('0' + id % 10);
    while ((id /= 10) > 0);
    if (i > 0) TRY(buffer_append(out, separator, between, err));
    TRY(buffer_append(out, at, (size_t)(digits + sizeof digits - at), err));
  }
  return STATUS_OK;
}

/* Refuses ids without a token: decoding would skip them silently, as Hugging Face's decoding does. */
static Status check_ids(const Tokenizer *tokenizer, const IdList *ids, Error *err) {
  for (size_t i = 0; i < ids->count; i++) {
    size_t size;
    if (!tokenizer_content(tokenizer, ids->ids[i], &size))
      return error_set(err, STATUS_USAGE, "no token has the id %d (all are below %d)", ids->ids[i],
                       tokenizer_n_ids(tokenizer));
  }
  return STATUS_OK;
}

/* --- one text */

static Status decode_text(const Tokenizer *tokenizer, const Options *options, const Buffer *input,
                          Buffer *out, Error *err) {
  OWNED(id_list_release) IdList ids = {0};
  TRY(ids_parse("the ids", input, &ids, err));
  TRY(check_ids(tokenizer, &ids, err));
  TRY(tokenizer_decode(tokenizer, ids.ids, ids.count, options->skip_special, out, err));
  /* On a terminal, keeps the shell's prompt off the text's line; a file gets the text alone. */
  return output_is_terminal() ? buffer_append_string(out, "\n", err) : STATUS_OK;
}

static Status encode_text(const Tokenizer *tokenizer, const Options *options, const Buffer *input,
                          Buffer *out, Error *err) {
  const EncodeOptions encode = {!options->no_add_special, !options->no_parse_special};
  OWNED(id_list_release) IdList ids = {0};
  TRY(tokenizer_encode(tokenizer, input->data ? input->data : "", input->size, encode, &ids, err));
  TRY(write_ids(&ids, " ", out, err));
  return buffer_append_string(out, "\n", err);
}

static Status run_text(const Tokenizer *tokenizer, const Options *options, Buffer *out, Error *err) {
  OWNED(buffer_release) Buffer input = {0};
  TRY(options->text ? buffer_append_string(&input, options->text, err)
                    : text_read_with_nul(options->file ? options->file : "-", &input, err));
  return options->decode ? decode_text(tokenizer, options, &input, out, err)
                         : encode_text(tokenizer, options, &input, out, err);
}

/* --- lines of JSON */

static Status write_decoded(const Tokenizer *tokenizer, const IdList *ids, bool skip, Buffer *out,
                            Error *err) {
  OWNED(buffer_release) Buffer text = {0};
  TRY(tokenizer_decode(tokenizer, ids->ids, ids->count, skip, &text, err));
  return json_write_string(out, text.data ? text.data : "", text.size, err);
}

static Status ids_of_json(const Json *list, IdList *ids, Error *err) {
  for (const Json *item = json_first(list); item; item = json_next(item)) {
    int64_t id;
    if (!json_int64(item, &id) || id < 0 || id > INT32_MAX)
      return error_set(err, STATUS_USAGE, "an id is no integer from 0 to %d", INT32_MAX);
    TRY(id_list_append(ids, (int32_t)id, err));
  }
  return STATUS_OK;
}

/* Takes the ids in the line, or encodes the line's text. */
static Status ids_of_line(const Tokenizer *tokenizer, const Json *line, IdList *ids, Error *err) {
  const JsonSource source = {"line", STATUS_USAGE};
  const Json *text = json_member(line, "text"), *list = json_member(line, "ids");
  if (!text && json_is_array(list)) return ids_of_json(list, ids, err);
  if (!json_is_string(text)) return error_set(err, STATUS_USAGE, "no string \"text\" and no array \"ids\"");
  EncodeOptions options;
  TRY(json_get_bool(source, line, "add_special", false, &options.add_special, err));
  TRY(json_get_bool(source, line, "parse_special", true, &options.parse_special, err));
  size_t size;
  const char *bytes = json_string(text, &size);
  return tokenizer_encode(tokenizer, bytes, size, options, ids, err);
}

static Status answer_line(const Tokenizer *tokenizer, const Json *line, Buffer *out, Error *err) {
  OWNED(id_list_release) IdList ids = {0};
  TRY(ids_of_line(tokenizer, line, &ids, err));
  TRY(buffer_append_string(out, "{\"ids\": [", err));
  TRY(write_ids(&ids, ", ", out, err));
  TRY(buffer_append_string(out, "], \"decoded\": ", err));
  TRY(write_decoded(tokenizer, &ids, false, out, err));
  TRY(buffer_append_string(out, ", \"decoded_skip\": ", err));
  TRY(write_decoded(tokenizer, &ids, true, out, err));
  return buffer_append_string(out, "}\n", err);
}

static Status take_line(void *user, const char *where, const Buffer *text, Buffer *out, Error *err) {
  OWNED(json_release) Json *line = NULL;
  Status status =
      json_parse("line", STATUS_USAGE, text->data ? text->data : "", text->size, NULL, 0, &line, err);
  if (status == STATUS_OK) status = answer_line(user, line, out, err);
  if (json_is_object(line)) return status;
  const Error reason = *err;
  return error_set(err, status, "%s (a line is {\"text\": \"...\"} or {\"ids\": [...]})", reason.text);
}

static const char about[] =
    "Writes the ids of a text on one line: of TEXT, -p TEXT, -f FILE or standard input, taken as it is,\n"
    "to the last newline. What the tokenizer adds around a text (BOS, ...) is added, and special tokens\n"
    "in it are recognised, as Hugging Face's encode() does; two flags turn that off.\n"
    "\n"
    "--decode writes the text of ids (numbers between spaces or commas), nothing behind it but a newline\n"
    "on a terminal.\n"
    "\n"
    "--jsonl answers each line of JSON as it comes:\n"
    "  {\"text\": \"Hi\", \"add_special\": false, \"parse_special\": true}  (flags optional)\n"
    "  {\"ids\": [1, 2]}\n"
    "by {\"ids\": [...], \"decoded\": \"...\", \"decoded_skip\": \"...\"} (without special tokens) or "
    "{\"error\": \"...\"};\n"
    "where there was an error the exit status is 1 in the end. Ids without a token decode to nothing there.";

static const Flag flags[] = {
    FLAG_MODEL("-m, --model", Options, model.path, model.usual,
               "a checkpoint, or a tokenizer.json itself (default: $AUK_MODEL)"),
    FLAG_FILE("--tokenizer", "FILE", Options, model.overrides.tokenizer,
              "a tokenizer.json in place of the model's own"),
    FLAG_STRING_ONCE("-p, --prompt", "TEXT", Options, text, "the text, or the ids"),
    FLAG_FILE("-f, --file", "FILE", Options, file, "where the text, the ids or the lines are ('-': stdin)"),
    FLAG_SWITCH("--no-add-special, --no-bos", Options, no_add_special, "add nothing around the text"),
    FLAG_SWITCH("--no-parse-special", Options, no_parse_special, "special tokens in the text are text"),
    FLAG_SWITCH("--decode", Options, decode, "ids to text"),
    FLAG_SWITCH("--skip-special", Options, skip_special, "with --decode: leave special tokens out"),
    FLAG_SWITCH("--jsonl", Options, jsonl, "line after line of JSON"),
};
static const FlagGroup groups[] = {FLAG_GROUP("Flags", flags)};

static const FlagRule rules[] = {
    {"-p", EXCLUDES, "-f", NULL},
    {"--skip-special", NEEDS, "--decode", NULL},
    {"--decode, -p", EXCLUDES, "--jsonl", "its lines say what they are"},
    {"--no-add-special, --no-parse-special", EXCLUDES, "--jsonl", "its lines say what they want"},
    {"--no-add-special, --no-parse-special", EXCLUDES, "--decode", NULL},
};

/* A text is a single operand; ids are any number of operands, which are joined by spaces. */
static Status take_operands(Options *options, Buffer *joined, const char *const *operands, size_t n,
                            Error *err) {
  if ((n > 0) + !!options->text + !!options->file > 1)
    return error_set(err, STATUS_USAGE, "more than one of TEXT, -p and -f");
  if (n > 1 && !options->decode)
    return error_set(err, STATUS_USAGE,
                     "unexpected argument \"%s\" (a text of several words stands in quotes)", operands[1]);
  for (size_t i = 0; i < n; i++) {
    if (i) TRY(buffer_append(joined, " ", 1, err));
    TRY(buffer_append_string(joined, operands[i], err));
  }
  if (n == 0) return STATUS_OK;
  TRY(buffer_append(joined, "", 1, err));
  options->text = joined->data;
  return STATUS_OK;
}

static Status run(CommandCall *call, Error *err) {
  Options *options = call->options;
  OWNED(tokenizer_release) Tokenizer *tokenizer = NULL;
  OWNED(buffer_release) Buffer operands = {0};
  TRY(take_operands(options, &operands, call->operands, call->n_operands, err));
  if (options->jsonl && options->text)
    return error_set(err, STATUS_USAGE, "--jsonl takes lines from -f or standard input");
  TRY(tokenizer_place_open(&options->model, &tokenizer, err));
  return options->jsonl ? lines_answer(options->file, take_line, tokenizer, "failed", err)
                        : run_text(tokenizer, options, &call->out, err);
}

const Interface tokenize_interface = {
    .usage = "auk tokenize -m MODEL [TEXT] [FLAGS]",
    .about = about,
    .examples = "auk tokenize -m MODEL \"some text\"                # its ids\n"
                "auk tokenize -m MODEL -f book.txt | wc -w         # how many\n"
                "auk tokenize -m MODEL --decode 9707 11 1879       # their text",
    INTERFACE_GROUPS(groups),
    INTERFACE_RULES(rules),
    .max_operands = 1 << 20, /* more than fit on a command line */
    .options_size = sizeof(Options),
    .run = run,
};
