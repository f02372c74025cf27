/* thinking.c - see thinking.h.   Called by: text_chain.c, filters.c. */
#include "commands/answer/filters/thinking.h"

#include <string.h>

static bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static size_t count_spaces(const char *text, size_t size) {
  size_t n = 0;
  while (n < size && is_space(text[n])) n++;
  return n;
}

void thinking_begin(ThinkingSplitter *s, const char *open, const char *close, bool inside) {
  s->open = open;
  s->close = close;
  s->begun = false;
  s->held.size = 0;
  s->state = !open || !close ? THINKING_ANSWER : inside ? THINKING_INSIDE : THINKING_UNKNOWN;
}

static void drop(Buffer *held, size_t size) {
  held->size -= size;
  if (size && held->size) memmove(held->data, held->data + size, held->size);
}

static bool begins_with(const char *text, size_t size, const char *mark) {
  size_t length = strlen(mark);
  return size >= length && memcmp(text, mark, length) == 0;
}

static bool could_become(const char *text, size_t size, const char *mark) {
  return size < strlen(mark) && memcmp(text, mark, size) == 0;
}

/* Decides whether the text begins with a thought. A closing mark alone ends a thought that began unseen. */
static void decide(ThinkingSplitter *s) {
  size_t spaces = count_spaces(s->held.data, s->held.size), size = s->held.size - spaces;
  const char *text = s->held.data + spaces;
  if (begins_with(text, size, s->open)) {
    s->state = THINKING_INSIDE;
    drop(&s->held, spaces + strlen(s->open));
  } else if (begins_with(text, size, s->close)) {
    s->state = THINKING_AFTER;
    drop(&s->held, spaces + strlen(s->close));
  } else if (size && !could_become(text, size, s->open) && !could_become(text, size, s->close)) {
    s->state = THINKING_ANSWER;
  }
}

/* Offset of the closing mark in `held`, or held.size without one; the mark does not begin before `from`. */
static size_t find_close(const ThinkingSplitter *s, size_t from) {
  const char *at = memmem(s->held.data + from, s->held.size - from, s->close, strlen(s->close));
  return at ? (size_t)(at - s->held.data) : s->held.size;
}

/* Size of the part of `held` that is certainly thought: all except trailing white space and a possible
 * beginning of the mark. */
static size_t known_thought(const ThinkingSplitter *s) {
  size_t length = strlen(s->close) - 1;
  if (length > s->held.size) length = s->held.size;
  while (length && memcmp(s->held.data + s->held.size - length, s->close, length) != 0) length--;
  size_t size = s->held.size - length;
  while (size && is_space(s->held.data[size - 1])) size--;
  return size;
}

static Status pass_thought(ThinkingSplitter *s, size_t size, Buffer *thought, Error *err) {
  size_t skip = s->begun ? 0 : count_spaces(s->held.data, size);
  if (skip < size) {
    TRY(buffer_append(thought, s->held.data + skip, size - skip, err));
    s->begun = true;
  }
  drop(&s->held, size);
  return STATUS_OK;
}

/* Takes text of a thought. The closing mark cannot begin before `from`: earlier text was searched already. */
static Status think(ThinkingSplitter *s, size_t from, Buffer *thought, Error *err) {
  size_t at = find_close(s, from);
  if (at == s->held.size) return pass_thought(s, known_thought(s), thought, err);
  size_t end = at;
  while (end && is_space(s->held.data[end - 1])) end--;
  TRY(pass_thought(s, end, thought, err));
  drop(&s->held, at - end + strlen(s->close));
  s->state = THINKING_AFTER;
  return STATUS_OK;
}

Status thinking_push(ThinkingSplitter *s, const char *text, size_t size, Buffer *thought, Buffer *answer,
                     Error *err) {
  if (size == 0) return STATUS_OK;
  if (s->state == THINKING_ANSWER) return buffer_append(answer, text, size, err);
  size_t before = s->held.size;
  TRY(buffer_append(&s->held, text, size, err));
  if (s->state == THINKING_UNKNOWN) {
    decide(s);
    before = 0;
  }
  if (s->state == THINKING_INSIDE) {
    size_t length = strlen(s->close);
    TRY(think(s, before < length ? 0 : before - length + 1, thought, err));
  }
  if (s->state == THINKING_AFTER) {
    drop(&s->held, count_spaces(s->held.data, s->held.size));
    if (s->held.size) s->state = THINKING_ANSWER;
  }
  if (s->state != THINKING_ANSWER) return STATUS_OK;
  TRY(buffer_append(answer, s->held.data, s->held.size, err));
  s->held.size = 0;
  return STATUS_OK;
}

Status thinking_end(ThinkingSplitter *s, Buffer *thought, Buffer *answer, Error *err) {
  size_t size = s->held.size;
  if (s->state == THINKING_INSIDE) {
    while (size && is_space(s->held.data[size - 1])) size--;
    TRY(pass_thought(s, size, thought, err));
  } else if (size) {
    TRY(buffer_append(answer, s->held.data, size, err));
  }
  s->held.size = 0;
  return STATUS_OK;
}

void thinking_release(ThinkingSplitter *s) {
  buffer_release(&s->held);
}
