/* show.c - see show.h.   Called by: reply.c, map_answer.c, chat*.c, dialogue.c.   Calls: output.c. */
#include "commands/answer/show.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/output.h"
#include "base/terminal_text.h"
#include "commands/common.h"

#define DIM     "\033[2m"
#define NOT_DIM "\033[22m"

bool terminal_has_colours(int descriptor) {
  const char *no_colour = getenv("NO_COLOR");
  return !(no_colour && *no_colour) && terminal_takes_escapes(descriptor);
}

/* --- an answer */

Show show_to(const Assistant *assistant, int descriptor) {
  const ChatFlags *flags = &assistant->flags->chat;
  bool terminal = isatty(descriptor);
  return (Show){.terminal = terminal,
                .dim = terminal_has_colours(descriptor),
                .thoughts = flags->show_thinking || (terminal && !flags->hide_thinking),
                .open = assistant->thinking.open,
                .close = assistant->thinking.close};
}

void show_begin(Show *show) {
  show->kind = TEXT_ANSWER;
  show->begun = show->ends_line = false;
}

static Status send(Show *show, Error *err) {
  if (show->out.size == 0) return STATUS_OK;
  show->begun = true;
  Status status = show->write ? show->write(show->user, show->out.data, show->out.size, err)
                              : output_write_shown(show->out.data, show->out.size, err);
  show->out.size = 0;
  return status;
}

/* Appends the mark between answer and thought. */
static Status put_border(Show *show, TextKind kind, Error *err) {
  Buffer *out = &show->out;
  if (kind == TEXT_THOUGHT) return show->dim ? STATUS_OK : buffer_printf(out, err, "%s\n", show->open);
  if (show->dim) return buffer_append(out, "\n\n", 2, err);
  return buffer_printf(out, err, "\n%s\n\n", show->close);
}

Status show_text(Show *show, TextKind kind, const char *text, size_t size, Error *err) {
  if (kind == TEXT_THOUGHT && !show->thoughts) return STATUS_OK;
  if (kind != show->kind) TRY(put_border(show, kind, err));
  show->kind = kind;
  bool dim = show->dim && kind == TEXT_THOUGHT;
  if (dim) TRY(buffer_append_string(&show->out, DIM, err));
  TRY(show->terminal ? terminal_text(&show->out, text, size, err)
                     : buffer_append(&show->out, text, size, err));
  if (dim) TRY(buffer_append_string(&show->out, NOT_DIM, err));
  if (size) show->ends_line = text[size - 1] == '\n';
  return send(show, err);
}

Status show_end(Show *show, Error *err) {
  if (!show->terminal || show->ends_line) return STATUS_OK;
  TRY(buffer_append(&show->out, "\n", 1, err));
  show->ends_line = true;
  return send(show, err);
}

void show_release(Show *show) {
  buffer_release(&show->out);
}
