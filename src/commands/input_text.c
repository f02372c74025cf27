/* input_text.c - see input_text.h. */
#include "commands/input_text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/output.h"
#include "base/utf8.h"
#include "commands/common.h"

static bool is_standard_input(const char *path) {
  return !path || strcmp(path, "-") == 0;
}

const char *text_name(const char *path) {
  return is_standard_input(path) ? "standard input" : path;
}

void text_note_terminal(void) {
  if (isatty(STDIN_FILENO)) print_note("reading the terminal, Ctrl-D ends");
}

void text_note_empty(const char *path, size_t size) {
  if (size == 0) print_note("%s is empty", text_name(path));
}

/* The length of a byte order mark at the beginning of text[0..size), or 0. */
static size_t mark_size(const char *text, size_t size) {
  static const char mark[] = "\xef\xbb\xbf";
  const size_t length = sizeof mark - 1;
  return size >= length && memcmp(text, mark, length) == 0 ? length : 0;
}

/* Drops a byte order mark at byte `start`, where a file begins: some editors write one. */
static void drop_mark(Buffer *text, size_t start) {
  const size_t length = text->size > start ? mark_size(text->data + start, text->size - start) : 0;
  if (length == 0) return;
  text->size -= length;
  memmove(text->data + start, text->data + start + length, text->size - start);
}

/* Refuses what is no text, and says what it is. */
static Status check_text(const char *name, const char *text, size_t size, bool may_have_nul, Error *err) {
  const char *nul = may_have_nul ? NULL : memchr(text, 0, size);
  TRY(content_expect_text(name, text, size, may_have_nul, STATUS_USAGE, err));
  TRY(text_check_bytes(name, text, size, err));
  if (!nul) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "%s is no text: it has a NUL at offset %td", name, nul - text);
}

static Status read_text(const char *path, bool may_have_nul, Buffer *out, Error *err) {
  const char *name = text_name(path);
  size_t start = out->size;
  /* A signal before the first read would not interrupt it. */
  if (interrupt_came()) return error_set(err, STATUS_INTERRUPTED, "interrupted");
  if (is_standard_input(path)) text_note_terminal();
  TRY(is_standard_input(path) ? stream_read(stdin, name, TEXT_LIMIT, out, err)
                              : file_read(path, TEXT_LIMIT, out, err));
  /* A SIGINT that arrives with the end of the input interrupts no read. */
  if (interrupt_came()) return error_set(err, STATUS_INTERRUPTED, "interrupted");
  if (out->size == start) return STATUS_OK;
  return check_text(name, out->data + start, out->size - start, may_have_nul, err);
}

Status text_read(const char *path, Buffer *out, Error *err) {
  const size_t start = out->size;
  TRY(read_text(path, false, out, err));
  drop_mark(out, start);
  return STATUS_OK;
}

Status text_read_with_nul(const char *path, Buffer *out, Error *err) {
  return read_text(path, true, out, err);
}

Status text_read_source(const char *path, Buffer *out, Error *err) {
  const size_t start = out->size;
  TRY(file_read(path, TEXT_LIMIT, out, err));
  drop_mark(out, start);
  return content_expect_text(path, out->data ? out->data + start : "", out->size - start, false, STATUS_USAGE,
                             err);
}

Status text_check_bytes(const char *what, const char *text, size_t size, Error *err) {
  size_t valid = utf8_valid_prefix(text, size);
  if (valid == size) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "%s is not valid UTF-8: byte 0x%02x at offset %zu", what,
                   (unsigned char)text[valid], valid);
}

Status text_check(const char *what, const char *text, Error *err) {
  return text_check_bytes(what, text, strlen(text), err);
}

bool text_is_blank(const char *text, size_t size) {
  while (size && text[size - 1] && strchr(" \t\r\n", text[size - 1])) size--;
  return size == 0;
}

void text_drop_newline(Buffer *text) {
  if (text->size == 0 || text->data[text->size - 1] != '\n') return;
  text->size--;
  if (text->size && text->data[text->size - 1] == '\r') text->size--;
}

Status ids_parse(const char *name, const Buffer *text, IdList *ids, Error *err) {
  static const char between[] = " \t\r\n\v\f,[]";
  if (text->size == 0) return STATUS_OK;
  const char *at = text->data + mark_size(text->data, text->size), *end = text->data + text->size;
  while (at < end) {
    if (memchr(between, *at, sizeof between - 1)) {
      at++;
      continue;
    }
    const char *start = at;
    int64_t value = 0;
    for (; at < end && *at >= '0' && *at <= '9' && value <= INT32_MAX; at++) value = value * 10 + (*at - '0');
    bool whole = at > start && (at == end || memchr(between, *at, sizeof between - 1));
    if (!whole || value > INT32_MAX) {
      int shown = 0;
      while (shown < 16 && start + shown < end && !memchr(between, start[shown], sizeof between - 1)) shown++;
      return error_set(err, STATUS_USAGE,
                       "%s: token %zu, at byte %td, is \"%.*s\", expected an id (a number)", name, ids->count,
                       start - text->data, shown, start);
    }
    TRY(id_list_append(ids, (int32_t)value, err));
  }
  return STATUS_OK;
}

/* --- lines */

Status text_begin_lines(const char *name, Buffer *first, Error *err) {
  drop_mark(first, 0);
  return content_expect_text(name, first->data ? first->data : "", first->size, false, STATUS_USAGE, err);
}

Status line_append_member(const char *name, const char *text, size_t size, Buffer *out, Error *err) {
  TRY(buffer_append(out, "{", 1, err));
  TRY(json_put_text((JsonWriter){out, err}, name, text, size));
  return buffer_append_string(out, "}\n", err);
}

static Status answer_line(LineAnswer answer, void *user, const char *where, const Buffer *line, bool *failed,
                          Error *err) {
  OWNED(buffer_release) Buffer out = {0};
  Error wrong = {{0}};
  *failed = answer(user, where, line, &out, &wrong) != STATUS_OK;
  if (*failed) {
    out.size = 0;
    TRY(line_append_member("error", wrong.text, strlen(wrong.text), &out, err));
  }
  return output_write(out.data, out.size, err);
}

static Status answer_lines(FILE *input, const char *name, LineAnswer answer, void *user, const char *what,
                           Error *err) {
  OWNED(buffer_release) Buffer line = {0};
  size_t n_lines = 0, n_failed = 0, first_failed = 0;
  for (;;) {
    bool found, failed;
    char where[320];
    TRY(stream_read_line(input, name, TEXT_LIMIT, &line, &found, err));
    if (!found) break;
    if (n_lines == 0) TRY(text_begin_lines(name, &line, err));
    snprintf(where, sizeof where, "%.280s: line %zu", name, ++n_lines);
    TRY(answer_line(answer, user, where, &line, &failed, err));
    if (failed && n_failed++ == 0) first_failed = n_lines;
  }
  if (n_failed == 0) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "%s: %zu of %zu lines %s, line %zu first", name, n_failed, n_lines,
                   what, first_failed);
}

Status lines_answer(const char *path, LineAnswer answer, void *user, const char *what, Error *err) {
  if (is_standard_input(path)) {
    text_note_terminal();
    return answer_lines(stdin, text_name(path), answer, user, what, err);
  }
  TRY(file_refuse_url(path, err));
  OWNED(stream_release) FILE *input = fopen(path, "re");
  if (!input) return error_set(err, STATUS_FAILED, "cannot open %s: %s", path, strerror(errno));
  return answer_lines(input, path, answer, user, what, err);
}
