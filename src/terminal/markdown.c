/* markdown.c - see markdown.h. Marks (#, fences, runs of ` and *) open and close as in CommonMark 0.31,
 * sections 4.2, 4.5, 6.1 and 6.2, as far as that is certain before the end of the line.
 *
 * Called by: commands/answer/show.c, commands/chat/dialogue.c.
 * Always true: a character is either written or held in `begun`, in the mark (`run`), in `partial` or by
 *              word_wrap.c. */
#include "terminal/markdown.h"

#include <string.h>

#include "base/utf8.h"

enum {
  FENCE = 3 /* least number of characters */,
  DEEPEST_HEADING = 6,
  HELD_BYTES = 512 /* a longer line is not held back as a fence */
};

static bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == 0;
}

static bool is_letter(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static Status put(Markdown *m, const char *text, size_t size, TextStyle style, Error *err) {
  if (m->is_plain) style = STYLE_NONE;
  if (m->is_dim) style = STYLE_DIM;
  const bool keep = m->line == LINE_CODE || m->line == LINE_TABLE;
  return word_wrap_put(&m->wrap, text, size, style, keep, err);
}

/* --- within a line */

static TextStyle style_now(const Markdown *m) {
  if (m->line == LINE_CODE || m->n_ticks) return STYLE_CODE;
  return m->line == LINE_HEADING || m->is_bold ? STYLE_BOLD : STYLE_NONE;
}

/* Opens or closes what the mark in `run` stands for. Returns the style of the text inside, in which the mark
 * is shown, too. */
static TextStyle take_mark(Markdown *m, char next) {
  if (m->run == '`') {
    const bool closes = m->n_ticks == m->run_length;
    if (m->n_ticks == 0) m->n_ticks = m->run_length;
    const TextStyle style = style_now(m);
    if (closes) m->n_ticks = 0;
    return style;
  }
  const bool is_strong = m->run_length == 2 || m->run_length == 3; /* ***x*** is strong too */
  if (is_strong && m->is_bold && !is_blank(m->before_run)) {
    m->is_bold = false;
    return STYLE_BOLD;
  }
  if (is_strong && !m->is_bold && !is_blank(next) && !is_letter(m->before_run)) m->is_bold = true;
  return style_now(m);
}

/* Writes the mark that ends before the character `next`. */
static Status end_mark(Markdown *m, char next, Error *err) {
  if (m->run_length == 0) return STATUS_OK;
  const TextStyle style = take_mark(m, next);
  for (; m->run_length; m->run_length--) TRY(put(m, &m->run, 1, style, err));
  return STATUS_OK;
}

static Status put_inline(Markdown *m, const char *text, size_t size, Error *err) {
  const char c = *text;
  const bool goes_on = m->run_length && m->run == c;
  if (!goes_on) TRY(end_mark(m, c, err));
  const bool begins = !goes_on && !m->escaped && (c == '`' || (c == '*' && !m->n_ticks));
  if (begins) {
    m->run = c;
    m->before_run = m->before;
  }
  m->run_length += goes_on || begins;
  m->escaped = c == '\\' && !m->escaped && !m->n_ticks;
  m->before = c;
  return goes_on || begins ? STATUS_OK : put(m, text, size, style_now(m), err);
}

static Status put_character(Markdown *m, const char *text, size_t size, Error *err) {
  return m->line == LINE_CODE ? put(m, text, size, STYLE_CODE, err) : put_inline(m, text, size, err);
}

static Status put_all(Markdown *m, const char *text, size_t size, TextStyle style, bool is_inline,
                      Error *err) {
  for (size_t at = 0; at < size;) {
    uint32_t code;
    const int decoded = utf8_decode(text + at, size - at, &code);
    const size_t length = decoded > 0 ? (size_t)decoded : 1;
    TRY(is_inline ? put_character(m, text + at, length, err) : put(m, text + at, length, style, err));
    at += length;
  }
  return STATUS_OK;
}

/* --- the beginning of a line */

/* The beginning of a line: the first character after the indentation, how many times in a row it stands
 * there (`length`), and the text after that. */
typedef struct {
  char character;
  size_t length;
  const char *rest; /* [n_rest] */
  size_t n_rest;
} Run;

/* The Run at the beginning of a line; its character is 0 if the line has only blanks. */
static Run first_run(const Buffer *line) {
  const char *text = line->data ? line->data : "";
  size_t start = 0;
  while (start < line->size && (text[start] == ' ' || text[start] == '\t')) start++;
  size_t end = start;
  while (end < line->size && text[end] == text[start]) end++;
  return (Run){start < line->size ? text[start] : 0, end - start, text + end, line->size - end};
}

static bool only_blanks(const Run *run) {
  for (size_t i = 0; i < run->n_rest; i++)
    if (!is_blank(run->rest[i])) return false;
  return true;
}

/* True if a line with this beginning may still be a fence. */
static bool may_be_fence(const Markdown *m, const Run *run) {
  if (m->begun.size > HELD_BYTES) return false;
  if (run->character == 0) return true;
  if (m->fence)
    return run->character == m->fence &&
           (run->n_rest == 0 || (run->length >= m->fence_length && only_blanks(run)));
  if (run->character != '`' && run->character != '~') return false;
  if (run->n_rest && run->length < FENCE) return false;
  return run->character == '~' || !memchr(run->rest, '`', run->n_rest);
}

static bool is_fence(const Markdown *m, const Run *run) {
  return run->character && run->length >= (m->fence ? m->fence_length : FENCE) && may_be_fence(m, run);
}

static bool may_be_heading(const Run *run) {
  return run->character == '#' && run->length <= DEEPEST_HEADING && run->n_rest == 0;
}

/* Writes the beginning of a line whose kind is now known. */
static Status begin_line(Markdown *m, LineKind kind, Error *err) {
  m->line = kind;
  Status status = m->begun.size ? put_all(m, m->begun.data, m->begun.size, STYLE_NONE, true, err) : STATUS_OK;
  m->begun.size = 0;
  return status;
}

/* Writes a line that has turned out to be a fence; all of it was held back until now. */
static Status put_fence(Markdown *m, const Run *run, Error *err) {
  const bool closes = m->fence != 0;
  m->fence = closes ? 0 : run->character;
  m->fence_length = run->length;
  m->line = LINE_CODE; /* code is not wrapped */
  Status status = put_all(m, m->begun.data, m->begun.size, STYLE_DIM, false, err);
  m->begun.size = 0;
  return status;
}

/* Holds a character back until the line's kind is known. */
static Status begin_with(Markdown *m, const char *text, size_t size, Error *err) {
  TRY(buffer_append(&m->begun, text, size, err));
  const Run run = first_run(&m->begun);
  if (may_be_fence(m, &run)) return STATUS_OK;
  if (m->fence) return begin_line(m, LINE_CODE, err);
  if (may_be_heading(&run)) return STATUS_OK;
  if (run.character == '#' && run.length <= DEEPEST_HEADING && is_blank(*run.rest))
    return begin_line(m, LINE_HEADING, err);
  return begin_line(m, run.character == '|' ? LINE_TABLE : LINE_TEXT, err);
}

/* Ends the marks of a line, and decides the line's kind if that is still open. */
static Status end_line(Markdown *m, Error *err) {
  if (m->line == LINE_BEGINS) {
    const Run run = first_run(&m->begun);
    if (is_fence(m, &run))
      TRY(put_fence(m, &run, err));
    else
      TRY(begin_line(m, m->fence ? LINE_CODE : may_be_heading(&run) ? LINE_HEADING : LINE_TEXT, err));
  }
  TRY(end_mark(m, '\n', err));
  m->is_bold = m->escaped = false;
  m->n_ticks = 0;
  m->before = 0;
  return STATUS_OK;
}

/* --- */

static Status take_character(Markdown *m, const char *text, size_t size, Error *err) {
  if (*text == '\n') {
    TRY(end_line(m, err));
    TRY(put(m, text, size, STYLE_NONE, err));
    m->line = LINE_BEGINS;
    return STATUS_OK;
  }
  return m->line == LINE_BEGINS ? begin_with(m, text, size, err) : put_character(m, text, size, err);
}

Status markdown_push(Markdown *m, const char *text, size_t size, Error *err) {
  for (size_t i = 0; i < size; i++) {
    uint32_t code;
    m->partial[m->n_partial++] = text[i];
    if (utf8_decode(m->partial, m->n_partial, &code) == 0) continue;
    const size_t length = m->n_partial;
    m->n_partial = 0;
    TRY(take_character(m, m->partial, length, err));
  }
  return word_wrap_rest(&m->wrap, err);
}

Status markdown_end(Markdown *m, Error *err) {
  TRY(end_line(m, err));
  TRY(word_wrap_end(&m->wrap, err));
  m->line = LINE_BEGINS;
  m->fence = 0;
  m->n_partial = 0;
  return word_wrap_rest(&m->wrap, err);
}

void markdown_release(Markdown *m) {
  word_wrap_release(&m->wrap);
  buffer_release(&m->begun);
  *m = (Markdown){0};
}
