/* prompt.c - see prompt.h. */
#include "commands/answer/prompt.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/output.h"
#include "commands/answer/named_prompt.h"
#include "commands/answer/truncate.h"
#include "commands/input_text.h"

const Flag prompt_flags[] = {
    FLAG_STRINGS("-p, --prompt", "TEXT", PromptFlags, texts,
                 "the prompt; text from standard input and files comes before it, or where {} stands in it; "
                 "may be repeated: an answer to each, an empty line between them (-0: NUL, --json: objects)"),
    FLAG_OF(
        KIND_STRING, const char *, "-P, --named-prompt", "NAME", PromptFlags, name,
        "the prompt of this name (auk prompts lists yours), or the file NAME if it has a /; {} in it is the "
        "place of all other text, -p included",
        .hint = VALUE_PROMPT),
    FLAG_FILES("-f, --file", "FILE", PromptFlags, files,
               "a file with text of the prompt, - for standard input; may be repeated"),
    FLAG_FILE("--messages", "FILE", PromptFlags, messages,
              "a conversation in place of a prompt: a JSON array of messages as chat templates take them, "
              "{\"role\", \"content\"}, with calls of --tools in \"tool_calls\" and their results in "
              "messages of the role tool"),
    FLAG_CHOICE("--truncate", "none|start|middle", PromptFlags, truncate,
                "cuts a prompt that is too long at its start or in its middle (default none: refuses it)"),
};

/* --- available input */

/* True if standard input should be read although no flag names it. It must be no terminal. Beside other text
 * (beside_others) it must be a pipe, a socket or a file, which was connected deliberately. */
static bool input_is_piped(bool beside_others) {
  struct stat kind;
  if (isatty(STDIN_FILENO) || fstat(STDIN_FILENO, &kind) != 0) return false;
  if ((fcntl(STDIN_FILENO, F_GETFL) & O_ACCMODE) == O_WRONLY) return false; /* was closed: output_begin() */
  return !beside_others || S_ISREG(kind.st_mode) || S_ISFIFO(kind.st_mode) || S_ISSOCK(kind.st_mode);
}

bool prompt_asks_for_input(const PromptFlags *flags) {
  for (size_t i = 0; i < flags->files.count; i++)
    if (strcmp(flags->files.items[i], "-") == 0) return true;
  return false;
}

Status prompt_read_named(PromptFlags *flags, Error *err) {
  return flags->name ? named_prompt_read(flags->name, &flags->named, &flags->named_path, err) : STATUS_OK;
}

void prompt_flags_release(PromptFlags *flags) {
  buffer_release(&flags->named);
  free(flags->named_path);
  flags->named_path = NULL;
}

const char *prompt_text(const PromptFlags *flags) {
  if (flags->name) return flags->named.data;
  return flags->texts.count ? flags->texts.items[0] : NULL;
}

bool prompt_is_given(const PromptFlags *flags) {
  return flags->texts.count || flags->name || flags->messages || flags->files.count || input_is_piped(false);
}

Status prompt_check_output(const PromptFlags *flags, const WrittenFile *output, Error *err) {
  for (size_t i = 0; i < flags->files.count; i++)
    TRY(written_file_is_not(output, "-f", flags->files.items[i], err));
  TRY(written_file_is_not(output, "--messages", flags->messages, err));
  TRY(written_file_is_not(output, "-P", flags->named_path, err));
  return written_file_is_not(output, "", "-", err);
}

/* --- reading it */

/* Prints a hint if standard input stays open and silent for 2 s (10 s if standard error is no terminal): this
 * looks like a hang. */
static void note_waiting(void) {
  struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
  if (poll(&input, 1, progress_is_terminal() ? 2000 : 10000) == 0)
    fprintf(stderr, "auk: waiting for standard input to end (`< /dev/null` goes without)\n");
}

static Status read_input(const PromptFlags *flags, Buffer *input, bool *given, Error *err) {
  bool named = flags->texts.count || flags->name || flags->files.count;
  for (size_t i = 0; i < flags->texts.count; i++) TRY(text_check("-p", flags->texts.items[i], err));
  *given = flags->files.count > 0;
  if (!prompt_asks_for_input(flags) && input_is_piped(named)) {
    note_waiting();
    TRY(text_read("-", input, err));
    if (named) text_note_empty("-", input->size);
    *given = *given || input->size;
  }
  for (size_t i = 0; i < flags->files.count; i++) {
    if (input->size && input->data[input->size - 1] != '\n') TRY(buffer_append(input, "\n", 1, err));
    const size_t start = input->size;
    TRY(text_read(flags->files.items[i], input, err));
    text_note_empty(flags->files.items[i], input->size - start);
  }
  text_drop_newline(input);
  return STATUS_OK;
}

/* Length of {{}} or {} at `at`, or 0. */
static size_t place_at(const char *at) {
  return strncmp(at, "{{}}", 4) == 0 ? 4 : strncmp(at, "{}", 2) == 0 ? 2 : 0;
}

static size_t count_places(const char *frame) {
  size_t n = 0;
  for (size_t length; *frame; frame += length ? length : 1) {
    length = place_at(frame);
    n += length == 2;
  }
  return n;
}

/* Takes `text`, the value of one -p or the text of -P (NULL: none). If there is an input, `text` becomes the
 * frame of the prompt; otherwise it becomes the input. STATUS_USAGE if text and input are both empty. */
static Status set_text(const char *text, bool has_input, Prompt *prompt, Error *err) {
  const bool is_empty = prompt->input.size == 0 && (!text || !*text);
  if (is_empty && text)
    return error_set(err, STATUS_USAGE, "-p is empty, and there is no other text (is a variable unset?)");
  if (is_empty)
    return error_set(err, STATUS_USAGE,
                     "no prompt: give -p TEXT or -f FILE, or pipe a text in (--help lists more)");
  prompt->frame = has_input ? text : NULL;
  prompt->n_places = prompt->frame ? count_places(text) : 0;
  return has_input ? STATUS_OK : buffer_append_string(&prompt->input, text, err);
}

/* Sets the parts of the prompt. `text` is the value of one -p, or NULL. With -P, `text` is appended to the
 * input. */
static Status set_parts(const PromptFlags *flags, const char *text, bool has_input, Prompt *prompt,
                        Error *err) {
  if (!flags->name) return set_text(text, has_input, prompt, err);
  Buffer *input = &prompt->input;
  if (text && input->size && input->data[input->size - 1] != '\n') TRY(buffer_append(input, "\n", 1, err));
  if (text) TRY(buffer_append_string(input, text, err));
  has_input = has_input || (text && *text);
  TRY(set_text(flags->named.data, has_input, prompt, err));
  if (has_input || count_places(flags->named.data) == 0) return STATUS_OK;
  return error_set(
      err, STATUS_USAGE,
      "the prompt %s has a place for a text, but there is none: -p TEXT, -f FILE and standard input are "
      "empty or not given",
      flags->name);
}

Status prompt_read(const PromptFlags *flags, Prompt *prompt, Error *err) {
  bool given;
  TRY(read_input(flags, &prompt->input, &given, err));
  return set_parts(flags, flags->texts.count ? flags->texts.items[0] : NULL, given, prompt, err);
}

static Status add_prompt(const PromptFlags *flags, const char *text, bool has_input, Prompt *prompt,
                         Buffer *prompts, Error *err) {
  const size_t size = has_input ? prompt->input.size : 0; /* bytes of the input that all prompts share */
  prompt->input.size = size;
  TRY(set_parts(flags, text, has_input, prompt, err));
  const char *input = prompt->input.data ? prompt->input.data : "";
  const size_t start = prompts->size;
  TRY(prompt_join(prompt, input, prompt->input.size, prompts, err));
  prompt->input.size = size;
  if (memchr(prompts->data + start, 0, prompts->size - start))
    return error_set(err, STATUS_USAGE, "the text of the prompts has a NUL");
  return buffer_append(prompts, "", 1, err);
}

Status prompt_read_all(const PromptFlags *flags, Buffer *prompts, Error *err) {
  OWNED(prompt_release) Prompt prompt = {0};
  bool given;
  TRY(read_input(flags, &prompt.input, &given, err));
  if (flags->texts.count == 0) TRY(add_prompt(flags, NULL, given, &prompt, prompts, err));
  for (size_t i = 0; i < flags->texts.count; i++)
    TRY(add_prompt(flags, flags->texts.items[i], given, &prompt, prompts, err));
  return STATUS_OK;
}

void prompt_release(Prompt *prompt) {
  buffer_release(&prompt->input);
}

/* --- joining */

static Status fill_places(const char *frame, const char *input, size_t size, Buffer *out, Error *err) {
  while (*frame) {
    size_t plain = 0, length = 0;
    while (frame[plain] && !(length = place_at(frame + plain))) plain++;
    TRY(buffer_append(out, frame, plain, err));
    if (length == 2) TRY(buffer_append(out, input, size, err));
    if (length == 4) TRY(buffer_append(out, "{}", 2, err));
    frame += plain + length;
  }
  return STATUS_OK;
}

Status prompt_join(const Prompt *prompt, const char *input, size_t size, Buffer *out, Error *err) {
  if (prompt->n_places == 0) TRY(buffer_append(out, input, size, err));
  if (!prompt->frame) return STATUS_OK;
  if (prompt->n_places == 0 && size) TRY(buffer_append(out, "\n", 1, err));
  return fill_places(prompt->frame, input, size, out, err);
}

/* --- its ids */

typedef struct {
  const Prompt *prompt;
  const Assistant *assistant;
} Encoding;

static Status encode_input(void *user, const char *input, size_t size, IdList *ids, Error *err) {
  const Encoding *encoding = user;
  OWNED(buffer_release) Buffer text = {0};
  TRY(prompt_join(encoding->prompt, input, size, &text, err));
  return assistant_encode_prompt(encoding->assistant, text.data, text.size, ids, err);
}

/* Number of context tokens that a prompt may take. */
static Status room_for_prompt(const Assistant *a, size_t *room, Error *err) {
  int n_ctx;
  TRY(assistant_context(a, 0, &n_ctx, err));
  int answer = a->max_tokens < 0 ? n_ctx / 4 : a->max_tokens < n_ctx / 2 ? a->max_tokens : n_ctx / 2;
  *room = (size_t)(n_ctx - answer);
  return STATUS_OK;
}

Status prompt_encode(const Prompt *prompt, const Assistant *a, Truncation truncation, IdList *ids,
                     Error *err) {
  Encoding encoding = {prompt, a};
  const char *input = prompt->input.data ? prompt->input.data : "";
  TRY(encode_input(&encoding, input, prompt->input.size, ids, err));
  if (truncation == TRUNCATE_NONE) return STATUS_OK;
  size_t room;
  TRY(room_for_prompt(a, &room, err));
  if (ids->count <= room) return STATUS_OK;
  Truncator truncator = {.tokenizer = a->tokenizer,
                         .middle = truncation == TRUNCATE_MIDDLE,
                         .n_places = prompt->n_places ? prompt->n_places : 1,
                         .room = room,
                         .encode = encode_input,
                         .user = &encoding};
  TruncationResult cut;
  TRY(truncate_text(&truncator, input, prompt->input.size, ids, &cut, err));
  fprintf(stderr,
          "auk: the prompt has %zu tokens, %zu more than the %zu that are left beside the answer: %zu "
          "tokens of the text, its bytes %zu to %zu of %zu, were cut\n",
          cut.n_before, cut.n_before - room, room, cut.n_cut, cut.begin, cut.end, prompt->input.size);
  return STATUS_OK;
}
