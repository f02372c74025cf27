/* calls.c - see calls.h. Called by: answer.c. Calls: bound.h, tools.h.
 *
 *   text  <tool_call> \n {"name": ...}  \n</tool_call>  \n <tool_call> ...
 *   NONE  | INSIDE                      | CLOSED        | BETWEEN | INSIDE
 */
#include "commands/form/calls.h"

#include <string.h>

enum { MOST_SPACES = 2 }; /* tokens of white space between a mark and a call */

void calls_release(Calls *c) {
  buffer_release(&c->call);
  id_list_release(&c->closing);
  *c = (Calls){.tools = NULL};
}

/* --- masks */

Status calls_mask(Calls *c, Bound *bound, const uint64_t **mask, Error *err) {
  const Tools *tools = c->tools;
  const bool space = c->n_spaces < MOST_SPACES;
  *mask = NULL;
  switch (c->state) {
  case CALLS_NONE:
    if (c->begun) return STATUS_OK;
    if (!tools->format->bare) {
      if (tools->required) bound_mask_few(bound, tools->begin, false, false, mask);
      return STATUS_OK;
    }
    if (tools->required) return bound_mask(bound, tools->begin, false, mask, err);
    return bound_mask_or_text(bound, '{', mask, err);
  case CALLS_INSIDE: return bound_mask(bound, -1, space && !bound->begun, mask, err);
  default: bound_mask_few(bound, tools->begin, space, true, mask);
  }
  return STATUS_OK;
}

/* --- tokens */

/* The first byte of a token that is not white space; 0: there is none. */
static char first_byte(const Bound *bound, int32_t id) {
  const Vocabulary *v = bound->form->vocabulary;
  size_t size = 0;
  const char *bytes = id >= 0 && id < v->n_ids ? vocabulary_bytes(v, id, &size) : "";
  for (size_t i = 0; i < size; i++)
    if (!strchr(" \t\r\n", bytes[i])) return bytes[i];
  return '\0';
}

static Status begin_call(Calls *c, Bound *bound, Error *err) {
  c->state = CALLS_INSIDE;
  c->n_spaces = 0;
  c->call.size = 0;
  return bound_restart(bound, err);
}

/* The second mark stands on a line of its own, as templates write it. */
static Status close_call(Calls *c, const Tokenizer *tokenizer, const int32_t **forced, int *n_forced,
                         Error *err) {
  const char *end = c->tools->format->end;
  const bool on_line = c->call.size > 0 && c->call.data[c->call.size - 1] == '\n';
  const PromptPiece pieces[] = {{"\n", on_line ? 0 : 1, true}, {end, strlen(end), true}};
  c->closing.count = 0;
  TRY(tokenizer_encode_pieces(tokenizer, pieces, 2, false, &c->closing, err));
  c->state = CALLS_CLOSED;
  c->n_closing = c->closing.count;
  *forced = c->closing.ids;
  *n_forced = (int)c->closing.count;
  return STATUS_OK;
}

static Status take_inside(Calls *c, Bound *bound, const Tokenizer *tokenizer, int32_t id, Buffer *lines,
                          bool *ended, const int32_t **forced, int *n_forced, Error *err) {
  if (!bound->begun && bound_is_space(bound, id)) {
    c->n_spaces++;
    return STATUS_OK;
  }
  TRY(bound_take(bound, id, &c->call, err));
  if (!bound->ended) return bound_forced(bound, tokenizer, forced, n_forced, err);
  TRY(tools_read_calls(c->tools, c->call.data, c->call.size, lines, err));
  *ended = !c->tools->format->end;
  return *ended ? STATUS_OK : close_call(c, tokenizer, forced, n_forced, err);
}

Status calls_take(Calls *c, Bound *bound, const Tokenizer *tokenizer, int32_t id, bool *is_call,
                  Buffer *lines, bool *ended, const int32_t **forced, int *n_forced, Error *err) {
  const bool is_mark = id == c->tools->begin && id >= 0;
  *is_call = true;
  switch (c->state) {
  case CALLS_INSIDE: return take_inside(c, bound, tokenizer, id, lines, ended, forced, n_forced, err);
  case CALLS_CLOSED:
    c->n_spaces = 0;
    if (--c->n_closing == 0) c->state = CALLS_BETWEEN;
    return STATUS_OK;
  case CALLS_BETWEEN:
    if (is_mark) return begin_call(c, bound, err);
    c->n_spaces++;
    return STATUS_OK;
  case CALLS_NONE: break;
  }
  const char first = first_byte(bound, id);
  const bool is_bare = c->tools->format->bare && !c->begun && first == '{';
  if (is_mark || is_bare) TRY(begin_call(c, bound, err));
  if (is_bare) return take_inside(c, bound, tokenizer, id, lines, ended, forced, n_forced, err);
  *is_call = is_mark;
  c->begun |= first != '\0';
  return STATUS_OK;
}
