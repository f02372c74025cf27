/* chat_input.c - see chat_input.h. Called by: chat.c, chat_commands.c, dialogue.c. */
#include "commands/chat/chat_input.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/terminal_text.h"
#include "base/utf8.h"
#include "commands/chat/chat_complete.h"
#include "commands/chat/history.h"
#include "commands/input_text.h"

static const char quotes[] = "\"\"\"";
enum { N_QUOTES = sizeof quotes - 1 };

/* --- history */

static Status take_entry(void *user, const char *text, size_t size, Error *err) {
  return line_editor_remember(user, text, size, err);
}

static void note_no_history(ChatInput *input, const Error *err) {
  if (!input->history_fails)
    fprintf(stderr, "auk: no history is kept: %s (--no-history says nothing)\n", err->text);
  input->history_fails = true;
}

/* True if the terminal is known to reflow lines when its width changes; xterm and the console cut them. */
static bool terminal_rewraps(void) {
  static const char *const marks[] = {
      "VTE_VERSION", "KITTY_WINDOW_ID", "ALACRITTY_WINDOW_ID", "KONSOLE_VERSION",
      "WT_SESSION",  "WEZTERM_PANE",    "TERM_PROGRAM",        "TMUX"};
  for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
    if (getenv(marks[i])) return true;
  return false;
}

static bool terminal_marks_pastes(bool ansi) {
  const char *name = getenv("TERM");
  return ansi && name && strcmp(name, "linux") != 0;
}

Status chat_input_open(ChatInput *input, FILE *screen, bool ansi, TextStyle style, bool with_history,
                       Error *err) {
  input->screen = screen;
  input->style = style;
  TRY(line_editor_open(screen, ansi, terminal_rewraps(), terminal_marks_pastes(ansi), style, chat_complete,
                       &input->editor, err));
  if (!with_history) return STATUS_OK;
  Error why = {{0}};
  Status status = history_path(&input->history, &why);
  if (status == STATUS_OK && input->history)
    status = history_read(input->history, take_entry, input->editor, &why);
  if (status) note_no_history(input, &why);
  return STATUS_OK;
}

void chat_input_close(ChatInput *input) {
  line_editor_close(input->editor);
  free(input->history);
  buffer_release(&input->line);
  buffer_release(&input->last);
  buffer_release(&input->kept);
  *input = (ChatInput){0};
}

Status chat_input_remember(ChatInput *input, const char *text, size_t size, Error *err) {
  bool again = size == input->last.size && (size == 0 || memcmp(text, input->last.data, size) == 0);
  if (!input->editor || size == 0 || again) return STATUS_OK;
  input->last.size = 0;
  TRY(buffer_append(&input->last, text, size, err));
  TRY(line_editor_remember(input->editor, text, size, err));
  Error why = {{0}};
  if (input->history && history_add(input->history, text, size, &why)) note_no_history(input, &why);
  return STATUS_OK;
}

/* --- lines */

static Status show_after(const ChatInput *input, const char *prompt, const char *text, size_t size,
                         Error *err) {
  OWNED(buffer_release) Buffer shown = {0};
  TRY(terminal_text(&shown, text, size, err));
  fprintf(input->screen, "%s%s%.*s%s\n", style_begin(input->style), prompt, (int)shown.size,
          shown.data ? shown.data : "", style_end(input->style));
  fflush(input->screen);
  return STATUS_OK;
}

static const char usual_prompt[] = "> ";

Status chat_input_show(const ChatInput *input, const char *text, size_t size, Error *err) {
  return show_after(input, usual_prompt, text, size, err);
}

/* Takes the first saved line and shows it. */
static Status take_kept(ChatInput *input, const char *prompt, Error *err) {
  size_t size = strlen(input->kept.data);
  input->line.size = 0;
  TRY(buffer_append(&input->line, input->kept.data, size, err));
  input->kept.size -= size + 1;
  memmove(input->kept.data, input->kept.data + size + 1, input->kept.size);
  return show_after(input, prompt, input->line.data ? input->line.data : "", size, err);
}

static Status read_line(ChatInput *input, const char *prompt, LineResult *result, Error *err) {
  if (input->kept.size) {
    *result = LINE_ENTERED;
    return take_kept(input, prompt, err);
  }
  if (input->editor) return line_editor_read(input->editor, prompt, &input->line, result, err);
  bool found;
  TRY(stream_read_line(stdin, "standard input", TEXT_LIMIT, &input->line, &found, err));
  *result = found ? LINE_ENTERED : LINE_END;
  if (!input->begun) TRY(text_begin_lines("standard input", &input->line, err));
  input->begun = true;
  size_t size = input->line.size;
  if (size && input->line.data[size - 1] == '\r') size = --input->line.size;
  if (size == 0) return STATUS_OK;
  const char *line = input->line.data, *nul = memchr(line, 0, size);
  size_t valid = utf8_valid_prefix(line, size);
  if (valid < size)
    return error_set(err, STATUS_USAGE,
                     "standard input is not valid UTF-8: byte 0x%02x at offset %zu of a line",
                     (unsigned char)line[valid], valid);
  if (!nul) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "standard input is no text: it has a NUL at offset %td of a line",
                   nul - line);
}

static bool begins_block(const Buffer *line) {
  return line->size >= N_QUOTES && memcmp(line->data, quotes, N_QUOTES) == 0;
}

/* Removes the closing quotes and blanks after them from the end of `text`; false if there are no quotes. */
static bool end_block(Buffer *text) {
  size_t size = text->size;
  while (size && strchr(" \t\n", text->data[size - 1])) size--;
  if (size < N_QUOTES || memcmp(text->data + size - N_QUOTES, quotes, N_QUOTES) != 0) return false;
  text->size = size - N_QUOTES;
  return true;
}

static Status read_block(ChatInput *input, Buffer *text, LineResult *result, Error *err) {
  const Buffer *line = &input->line;
  TRY(buffer_append(text, line->data + N_QUOTES, line->size - N_QUOTES, err));
  while (!end_block(text)) {
    TRY(read_line(input, "... ", result, err));
    if (*result == LINE_END && !input->editor)
      return error_set(err, STATUS_USAGE, "standard input ends within a block that \"\"\" began");
    if (*result != LINE_ENTERED) return STATUS_OK;
    TRY(buffer_append(text, "\n", 1, err));
    TRY(buffer_append(text, line->data ? line->data : "", line->size, err));
  }
  *result = LINE_BLOCK;
  /* Newlines that only separate the quotes from the text do not belong to it. */
  if (text->size && text->data[text->size - 1] == '\n') text->size--;
  if (text->size && text->data[0] == '\n') memmove(text->data, text->data + 1, --text->size);
  return STATUS_OK;
}

/* Adds a block to the history in a form that is read back as the same text. */
static Status remember_block(ChatInput *input, const Buffer *text, Error *err) {
  bool plain = text->size && text->data[0] != '/' && !begins_block(text);
  if (plain) return chat_input_remember(input, text->data, text->size, err);
  OWNED(buffer_release) Buffer quoted = {0};
  TRY(buffer_append(&quoted, quotes, N_QUOTES, err));
  if (text->size) TRY(buffer_append(&quoted, text->data, text->size, err));
  TRY(buffer_append(&quoted, quotes, N_QUOTES, err));
  return chat_input_remember(input, quoted.data, quoted.size, err);
}

Status chat_input_read(ChatInput *input, Buffer *text, LineResult *result, Error *err) {
  text->size = 0;
  TRY(read_line(input, usual_prompt, result, err));
  if (*result != LINE_ENTERED) return STATUS_OK;
  if (begins_block(&input->line)) {
    TRY(read_block(input, text, result, err));
    return *result == LINE_BLOCK ? remember_block(input, text, err) : STATUS_OK;
  }
  TRY(buffer_append(text, input->line.data ? input->line.data : "", input->line.size, err));
  return chat_input_remember(input, text->data, text->size, err);
}

/* --- questions */

static bool is_word(const Buffer *line, const char *letter, const char *word) {
  size_t from = 0, end = line->size;
  while (from < end && line->data[from] == ' ') from++;
  while (end > from && line->data[end - 1] == ' ') end--;
  size_t size = end - from;
  return (size == 1 && strncasecmp(line->data + from, letter, 1) == 0) ||
         (size == strlen(word) && strncasecmp(line->data + from, word, size) == 0);
}

Status chat_input_ask(ChatInput *input, const char *question, bool *yes, Error *err) {
  *yes = false;
  if (!input->editor) return STATUS_OK;
  const Buffer *line = &input->line;
  char after_early[160], after_other[160];
  snprintf(after_early, sizeof after_early, "(Typed before the question, sent after it.) %s", question);
  snprintf(after_other, sizeof after_other, "(Please answer y or n.) %s", question);
  line_editor_mark(input->editor);
  for (const char *prompt = question;;) {
    LineResult result;
    TRY(line_editor_read(input->editor, prompt, &input->line, &result, err));
    if (result == LINE_INTERRUPTED) input->kept.size = 0; /* as elsewhere, Ctrl-C discards typed lines */
    *yes = result == LINE_ENTERED && is_word(line, "y", "yes");
    if (*yes || result != LINE_ENTERED || is_word(line, "n", "no")) return STATUS_OK;
    const bool is_kept = line->size && line_editor_was_early(input->editor);
    prompt = line->size == 0 ? question : is_kept ? after_early : after_other;
    if (!is_kept) continue;
    TRY(buffer_append(&input->kept, line->data, line->size, err));
    TRY(buffer_append(&input->kept, "", 1, err));
  }
}
