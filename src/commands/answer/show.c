/* show.c - see show.h. */
#include "commands/answer/show.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/output.h"
#include "base/terminal_text.h"
#include "commands/common.h"
#include "terminal/cells.h"
#include "terminal/console.h"

bool terminal_has_colours(int descriptor) {
  const char *no_colour = getenv("NO_COLOR");
  return !(no_colour && *no_colour) && terminal_takes_escapes(descriptor);
}

/* --- an answer */

Show show_to(const Assistant *assistant, int descriptor) {
  const ChatFlags *chat = &assistant->flags->chat;
  const AnswerFlags *answer = &assistant->flags->answer;
  const bool terminal = isatty(descriptor), counts = terminal && cells_begin();
  return (Show){.terminal = terminal,
                .screen = counts && !answer->no_wrap ? descriptor : -1,
                .styles = terminal_has_colours(descriptor) && !answer->plain,
                .source = assistant->form.given || assistant->tools.given,
                .thoughts = chat->show_thinking || (terminal && !chat->hide_thinking),
                .open = assistant->thinking.open,
                .close = assistant->thinking.close};
}

void show_begin(Show *show) {
  show->kind = TEXT_ANSWER;
  show->begun = show->ends_line = false;
  markdown_release(&show->markdown); /* an answer that failed may have left text */
}

static Status send(Show *show, Error *err) {
  if (show->out.size == 0) return STATUS_OK;
  show->begun = true;
  Status status = show->write ? show->write(show->user, show->out.data, show->out.size, err)
                              : output_write_shown(show->out.data, show->out.size, err);
  show->out.size = 0;
  return status;
}

/* --- on a terminal */

/* Moves the formatted text to `out`. */
static Status take_shown(Show *show, Error *err) {
  Buffer *shown = &show->markdown.wrap.out;
  Status status = shown->size ? buffer_append(&show->out, shown->data, shown->size, err) : STATUS_OK;
  shown->size = 0;
  return status;
}

static Status push(Show *show, const char *text, size_t size, Error *err) {
  Markdown *m = &show->markdown;
  const bool thought = show->kind == TEXT_THOUGHT, source = show->source && !thought;
  m->is_plain = source || thought;
  m->is_dim = thought && show->styles;
  m->wrap.styles = show->styles;
  m->wrap.columns = show->screen >= 0 && !source ? terminal_columns(show->screen) : 0;
  show->safe.size = 0;
  TRY(terminal_text(&show->safe, text, size, err));
  return show->safe.size ? markdown_push(m, show->safe.data, show->safe.size, err) : STATUS_OK;
}

static Status append(Show *show, const char *text, size_t size, Error *err) {
  if (!show->terminal) return buffer_append(&show->out, text, size, err);
  TRY(push(show, text, size, err));
  return take_shown(show, err);
}

/* Ends the text of a kind: formats the text that is still held back. */
static Status end_kind(Show *show, Error *err) {
  if (!show->terminal) return STATUS_OK;
  TRY(markdown_end(&show->markdown, err));
  return take_shown(show, err);
}

/* Appends what separates answer and thought: the model's mark (such as <think>), or empty lines. */
static Status put_border(Show *show, TextKind kind, Error *err) {
  OWNED(buffer_release) Buffer mark = {0};
  TRY(end_kind(show, err));
  if (kind == TEXT_THOUGHT && !show->styles)
    TRY(buffer_printf(&mark, err, "%s\n", show->open));
  else if (kind == TEXT_ANSWER)
    TRY(show->styles ? buffer_append_string(&mark, "\n\n", err)
                     : buffer_printf(&mark, err, "\n%s\n\n", show->close));
  if (mark.size) TRY(append(show, mark.data, mark.size, err));
  return end_kind(show, err);
}

/* --- */

/* Calls are lines of the answer, after its text. */
Status show_text(Show *show, TextKind kind, const char *text, size_t size, Error *err) {
  if (size == 0 || (kind == TEXT_THOUGHT && !show->thoughts)) return STATUS_OK;
  const bool begun = show->begun || show->markdown.begun.size > 0,
             ends_text = kind == TEXT_CALL && show->kind == TEXT_ANSWER && begun && !show->ends_line;
  if (kind == TEXT_CALL) kind = TEXT_ANSWER;
  if (ends_text) TRY(append(show, "\n", 1, err));
  if (kind != show->kind) TRY(put_border(show, kind, err));
  show->kind = kind;
  TRY(append(show, text, size, err));
  show->ends_line = text[size - 1] == '\n';
  return send(show, err);
}

Status show_answer(Show *show, const AnswerText *a, Error *err) {
  const Buffer *text = a->extracts ? &a->code : &a->text;
  TRY(show_text(show, TEXT_THOUGHT, a->thinking.data, a->thinking.size, err));
  TRY(show_text(show, TEXT_ANSWER, text->data, text->size, err));
  return show_text(show, TEXT_CALL, a->calls.data, a->calls.size, err);
}

Status show_end(Show *show, Error *err) {
  TRY(end_kind(show, err));
  if (!show->ends_line && !(show->exact && !show->terminal)) TRY(buffer_append(&show->out, "\n", 1, err));
  show->ends_line = true;
  return send(show, err);
}

void show_release(Show *show) {
  markdown_release(&show->markdown);
  buffer_release(&show->safe);
  buffer_release(&show->out);
}
