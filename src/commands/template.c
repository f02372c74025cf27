/* template.c - `auk template`: renders conversations, one JSON object a line, by a chat template.
 * Always true: every input line has one output line; of a checkpoint only the files with its template and
 *              special tokens are read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/json.h"
#include "base/output.h"
#include "base/owned.h"
#include "commands/commands.h"
#include "commands/common.h"
#include "commands/form/messages.h"
#include "commands/input_text.h"
#include "commands/model_flags.h"
#include "tokenizer/chat/chat.h"

typedef struct {
  ModelFlags model;
  const char *choice, *file;
} Options;

/* --- one line */

/* Parses "2024-07-26" as seconds since the epoch; false for any other form and for days that do not exist. */
static bool parse_date(const char *text, int64_t *seconds) {
  struct tm day = {0};
  char again[48];
  if (!strptime(text, "%Y-%m-%d", &day)) return false;
  *seconds = timegm(&day); /* turns 30 February into 1 March */
  snprintf(again, sizeof again, "%04d-%02d-%02d", day.tm_year + 1900, day.tm_mon + 1, day.tm_mday);
  return strcmp(text, again) == 0 && day.tm_year > -1900;
}

static Status read_now(const Json *line, int64_t *now, Error *err) {
  const Json *date = json_member(line, "now");
  *now = chat_now();
  if (!date) return STATUS_OK;
  size_t size = 0;
  if (json_is_string(date) && parse_date(json_string(date, &size), now) && size == 10) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "now is expected to be a day, \"YYYY-MM-DD\"");
}

static Status render_line(const Chat *chat, const Json *line, TrustedText *text, bool *raised, Error *err) {
  int64_t now;
  *raised = false;
  if (!json_is_object(line))
    return error_set(err, STATUS_USAGE, "expected a JSON object, such as {\"messages\": [...]}");
  TRY(read_now(line, &now, err));
  return chat_render_json(chat, line, now, text, raised, err);
}

static Status write_member(const char *name, const char *text, size_t size, Error *err) {
  OWNED(buffer_release) Buffer out = {0};
  TRY(buffer_append(&out, "{", 1, err));
  TRY(append_json_member(&out, name, text, size, err));
  TRY(buffer_append_string(&out, "}\n", err));
  return output_write(out.data, out.size, err);
}

/* Parses a line, and brings its messages into the form that templates read (messages_append()). */
static Status parse_line(const char *where, const Buffer *line, Json **json, Error *err) {
  const JsonSpan text = {line->data ? line->data : "", line->size};
  OWNED(buffer_release) Buffer given = {0};
  *json = NULL;
  TRY(json_parse(where, STATUS_USAGE, text.text, text.size, NULL, 0, NULL, err));
  JsonCursor cursor = json_cursor(text);
  Error inner;
  const Status status = messages_append(json_cursor_value(&cursor), &given, &inner);
  if (status != STATUS_OK) return error_set(err, status, "%s: %s", where, inner.text);
  return json_parse(where, STATUS_USAGE, given.data, given.size, NULL, 0, json, err);
}

static bool begins_object(const Buffer *line) {
  size_t at = 0;
  while (at < line->size && strchr(" \t\r", line->data[at])) at++;
  return at < line->size && line->data[at] == '{';
}

/* Writes the answer to one line; *refused: the line is not valid input for a template. */
static Status take_line(void *user, const char *name, size_t number, const Buffer *line, bool *refused,
                        Error *err) {
  const Chat *chat = user;
  Json *json = NULL;
  TrustedText text = {0};
  Error wrong = {{0}};
  bool raised = false;
  char where[320];
  snprintf(where, sizeof where, "%.280s: line %zu", name, number);
  Status status = parse_line(where, line, &json, &wrong);
  if (status == STATUS_OK) status = render_line(chat, json, &text, &raised, &wrong);
  *refused = status == STATUS_USAGE && !raised;
  if (*refused) {
    const Error reason = wrong;
    error_set(&wrong, status, "%s%s%s%s", json ? where : "", json ? ": " : "", reason.text,
              begins_object(line) ? "" : " (a line is {\"messages\": [...]})");
  }
  json_free(json);
  if (status == STATUS_OK || raised)
    status = write_member(raised ? "error" : "rendered", text.text.data, text.text.size, err);
  else
    status = write_member("error", wrong.text, strlen(wrong.text), err);
  trusted_text_release(&text);
  return status;
}

static const char about[] =
    "Renders conversations by a checkpoint's chat template, as Hugging Face's apply_chat_template() does.\n"
    "Each line of standard input is a JSON object with what the template is given:\n"
    "  {\"messages\": [{\"role\":\"user\",\"content\":\"Hi\"}], \"add_generation_prompt\": true}\n"
    "and any other variable (tools, documents, enable_thinking, ...). Arguments of calls may be a string\n"
    "with JSON, as in OpenAI's API. \"now\": \"YYYY-MM-DD\" is the day for templates that ask for it. Each\n"
    "has one line of answer, {\"rendered\": \"...\"} or, where the template raises an exception or fails,\n"
    "{\"error\": \"...\"}. A line that is no JSON object gets an error too; then the exit status is 1 in\n"
    "the end.\n"
    "\n"
    "Of MODEL only chat_template.jinja, tokenizer_config.json, special_tokens_map.json and\n"
    "chat_template.json are read, of which none has to be there with --chat-template.";

static const Flag flags[] = {
    FLAG_MODEL("-m, --model", Options, model.path, model.usual,
               "a directory, or a packed file with these beside it (default: $AUK_MODEL)"),
    FLAG_FILE_OR(
        CHAT_BUILTINS, "--chat-template", "NAME|FILE", Options, choice,
        "chatml, llama2, llama3, mistral, deepseek, gemma or phi, a name in the checkpoint's own list, "
        "or a file"),
    FLAG_FILE("-f, --file", "FILE", Options, file, "where the lines are ('-': stdin)"),
};
static const FlagGroup groups[] = {FLAG_GROUP("Flags", flags)};

/* The checkpoint's directory, or the directory that contains a packed file; NULL if no model is named. */
static Status find_directory(const Options *options, char **directory, Error *err) {
  OWNED(model_place_release) ModelPlace place = {0};
  const Status status = model_place_find(&options->model, &place, err);
  if (status == STATUS_USAGE && options->choice) return STATUS_OK; /* a named template needs no checkpoint */
  TRY(status);
  TRY(model_place_check(&place, err));
  if (!file_exists(place.path))
    return error_set(err, STATUS_MODEL, "%s: cannot open: No such file or directory", place.path);
  *directory =
      file_is_directory(place.path) ? path_join("", place.path, err) : path_directory(place.path, err);
  return *directory ? STATUS_OK : STATUS_FAILED;
}

static Status run(CommandCall *call, Error *err) {
  const Options *options = call->options;
  Chat *chat = NULL;
  char *directory = NULL;
  Status status = find_directory(options, &directory, err);
  if (status == STATUS_OK) status = chat_open(directory, options->choice, NULL, &chat, err);
  if (status == STATUS_OK && !chat)
    status = error_set(err, STATUS_MODEL, "%s has no chat template (--chat-template names one)", directory);
  free(directory);
  if (status == STATUS_OK) status = lines_take(options->file, take_line, chat, "are no conversations", err);
  chat_close(chat);
  return status;
}

const Interface template_interface = {
    .usage = "auk template -m MODEL [FLAGS] < LINES",
    .about = about,
    .examples = "echo '{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}' | auk template -m MODEL",
    INTERFACE_GROUPS(groups),
    INTERFACE_MODEL_OPERAND,
    .options_size = sizeof(Options),
    .run = run,
};
