/* calls.c - see calls.h. Called by: filters.c.
 *
 *   text  <tool_call> \n {"name": ...}  \n</tool_call>  \n <tool_call> ...
 *   NONE  | INSIDE                      | MARKS         | BETWEEN | INSIDE
 *
 * A call in parts is in INSIDE during each part, and in MARKS during forced tokens between two parts. */
#include "commands/form/calls.h"

#include <string.h>

enum { MOST_SPACES = 2 }; /* tokens of white space between a mark and a call */

void calls_release(Calls *c) {
  buffer_release(&c->call);
  id_list_release(&c->marks);
  id_list_release(&c->exit);
  written_call_release(&c->written);
  *c = (Calls){.tools = NULL};
}

bool calls_is_inside(const Calls *c) {
  return c->state == CALLS_INSIDE || (c->state == CALLS_MARKS && c->after == CALLS_INSIDE);
}

/* The token that ends the current part of a call, if the part may end here, else -1. */
static int32_t exit_of(const Calls *c) {
  const Bound *bound = c->bound;
  const bool may = c->exit.count > 0 && bound->begun && constraint_may_end(&bound->form->constraint);
  return may ? c->exit.ids[0] : -1;
}

/* --- masks */

Status calls_mask(Calls *c, const uint64_t **mask, Error *err) {
  Bound *bound = c->bound;
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
  case CALLS_INSIDE:
    if (tools->format->marks) return bound_mask(bound, exit_of(c), false, mask, err);
    return bound_mask(bound, -1, space && !bound->begun, mask, err);
  default: bound_mask_few(bound, tools->begin, space, true, mask);
  }
  return STATUS_OK;
}

/* --- tokens */

/* The first byte in a token's text that is not white space; 0: there is none. */
static char first_byte(const Calls *c, int32_t id) {
  const Vocabulary *v = c->bound->form->vocabulary;
  size_t size = 0;
  const char *bytes = id >= 0 && id < v->n_ids ? vocabulary_bytes(v, id, &size) : "";
  for (size_t i = 0; i < size; i++)
    if (!strchr(" \t\r\n", bytes[i])) return bytes[i];
  return '\0';
}

/* Forces the tokens of c->marks from `first` on, after which the state is `after`. */
static void force_marks(Calls *c, size_t first, CallsState after, TokenReply *reply) {
  c->n_marks = c->marks.count - first;
  c->state = c->n_marks > 0 ? CALLS_MARKS : after;
  c->after = after;
  if (c->n_marks == 0) return;
  reply->forced = c->marks.ids + first;
  reply->n_forced = (int)c->n_marks;
}

static Status encode_mark(const Calls *c, const char *before, const char *mark, IdList *ids, Error *err) {
  const PromptPiece pieces[] = {{before, strlen(before), true}, {mark, strlen(mark), true}};
  ids->count = 0;
  return tokenizer_encode_pieces(c->bound->form->tokenizer, pieces, 2, false, ids, err);
}

/* Begins a part of a call; written_calls.c has set the form of the part. */
static Status begin_part(Calls *c, Error *err) {
  const char *after = written_call_after(&c->written);
  c->call.size = c->exit.count = 0;
  if (after) TRY(encode_mark(c, "", after, &c->exit, err));
  return bound_restart(c->bound, err);
}

static Status begin_call(Calls *c, TokenReply *reply, Error *err) {
  const CallMarks *marks = c->tools->format->marks;
  c->state = CALLS_INSIDE;
  c->n_spaces = 0;
  c->call.size = 0;
  if (!marks) return bound_restart(c->bound, err);
  Error inner;
  AnswerForm *form = c->bound->form;
  TRY(bound_check(c->bound, written_call_begin(&c->written, &c->tools->written, form, &inner), &inner, err));
  TRY(begin_part(c, err));
  TRY(encode_mark(c, "", marks->before_name, &c->marks, err));
  force_marks(c, 0, CALLS_INSIDE, reply);
  return STATUS_OK;
}

/* Forces the mark that ends a call, on a line of its own, as templates write it. */
static Status close_call(Calls *c, TokenReply *reply, Error *err) {
  const bool on_line = c->call.size > 0 && c->call.data[c->call.size - 1] == '\n';
  TRY(encode_mark(c, on_line ? "" : "\n", c->tools->format->end, &c->marks, err));
  force_marks(c, 0, CALLS_BETWEEN, reply);
  return STATUS_OK;
}

/* Ends a part of a call. n_taken: how many tokens of c->exit were taken already. */
static Status end_part(Calls *c, size_t n_taken, Buffer *lines, TokenReply *reply, Error *err) {
  const IdList exit = c->exit;
  bool done;
  Error inner;
  c->exit = c->marks;
  c->marks = exit;
  const char *text = c->call.data ? c->call.data : "";
  AnswerForm *form = c->bound->form;
  TRY(bound_check(c->bound, written_call_take(&c->written, form, text, c->call.size, &done, lines, &inner),
                  &inner, err));
  if (!done) TRY(begin_part(c, err));
  c->n_spaces = 0;
  force_marks(c, n_taken, done ? CALLS_BETWEEN : CALLS_INSIDE, reply);
  return STATUS_OK;
}

static Status take_part(Calls *c, int32_t id, Buffer *lines, TokenReply *reply, Error *err) {
  if (id == exit_of(c)) return end_part(c, 1, lines, reply, err);
  TRY(bound_take(c->bound, id, &c->call, err));
  return c->bound->ended ? end_part(c, 0, lines, reply, err) : bound_forced(c->bound, reply, err);
}

static Status take_inside(Calls *c, int32_t id, Buffer *lines, bool *ended, TokenReply *reply, Error *err) {
  Bound *bound = c->bound;
  if (c->tools->format->marks) return take_part(c, id, lines, reply, err);
  if (!bound->begun && bound_is_space(bound, id)) {
    c->n_spaces++;
    return STATUS_OK;
  }
  TRY(bound_take(bound, id, &c->call, err));
  if (!bound->ended) return bound_forced(bound, reply, err);
  TRY(tools_read_calls(c->tools, c->call.data, c->call.size, lines, err));
  *ended = !c->tools->format->end;
  return *ended ? STATUS_OK : close_call(c, reply, err);
}

Status calls_take(Calls *c, int32_t id, bool *is_call, Buffer *lines, bool *ended, TokenReply *reply,
                  Error *err) {
  const bool is_mark = id == c->tools->begin && id >= 0;
  *is_call = true;
  switch (c->state) {
  case CALLS_INSIDE: return take_inside(c, id, lines, ended, reply, err);
  case CALLS_MARKS:
    c->n_spaces = 0;
    if (--c->n_marks == 0) c->state = c->after;
    return STATUS_OK;
  case CALLS_BETWEEN:
    if (is_mark) return begin_call(c, reply, err);
    c->n_spaces++;
    return STATUS_OK;
  case CALLS_NONE: break;
  }
  const char first = first_byte(c, id);
  const bool is_bare = c->tools->format->bare && !c->begun && first == '{';
  if (is_mark || is_bare) TRY(begin_call(c, reply, err));
  if (is_bare) return take_inside(c, id, lines, ended, reply, err);
  *is_call = is_mark;
  c->begun |= first != '\0';
  return STATUS_OK;
}
