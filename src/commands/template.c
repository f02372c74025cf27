/* template.c - `auk template`: renders conversations, one JSON object a line, by a chat template.
 * Always true: every input line has one output line; of a checkpoint only the files with its template and
 *              special tokens are read. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/json.h"
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
  *seconds = timegm(&day); /* turns 30 February into 1 or 2 March */
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

/* Renders a line. A line that is no valid input is a failure; an error of the template is an answer. */
static Status take_line(void *user, const char *where, const Buffer *line, Buffer *out, Error *err) {
  OWNED(json_release) Json *json = NULL;
  OWNED(trusted_text_release) TrustedText text = {0};
  bool raised = false;
  Status status = parse_line(where, line, &json, err);
  if (status == STATUS_OK) status = render_line(user, json, &text, &raised, err);
  if (status == STATUS_OK || raised)
    return line_append_member(raised ? "error" : "rendered", text.text.data, text.text.size, out, err);
  const Error reason = *err;
  if (status != STATUS_USAGE) return line_append_member("error", reason.text, strlen(reason.text), out, err);
  return error_set(err, status, "%s%s%s%s", json ? where : "", json ? ": " : "", reason.text,
                   begins_object(line) ? "" : " (a line is {\"messages\": [...]})");
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

/* The checkpoint's directory, or the packed file's; NULL if a template is named, but no model. */
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
  OWNED(chat_release) Chat *chat = NULL;
  OWNED(mem_release) char *directory = NULL;
  TRY(find_directory(options, &directory, err));
  TRY(chat_open(directory, options->choice, NULL, &chat, err));
  if (!chat)
    return error_set(err, STATUS_MODEL, "%s has no chat template (--chat-template names one)", directory);
  return lines_answer(options->file, take_line, chat, "are no conversations", err);
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
