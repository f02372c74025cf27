/* forced.c - the bytes that follow whatever is chosen; see constraint_forced() in constraint.h. */
#include <string.h>

#include "base/utf8.h"
#include "constrain/constraint.h"
#include "constrain/lex.h"

#define MAX_FORCED 4096

/* The only byte that may follow inside the string or key that is open, escapes apart; -1: there is none. */
static int forced_in_string(Machine *m, const JsonState *state) {
  int found = -1;
  if (m->lexes[state->lex].escape > 0) return -1;
  if (lex_may_end(m, state->lex)) found = '"';
  for (int byte = 0x20; byte < 0x100; byte++) {
    if (byte == '"' || byte == '\\' || lex_next(m, state->lex, (unsigned char)byte) == LEX_NONE) continue;
    if (found >= 0) return -1;
    found = byte;
  }
  return found;
}

/* The same between values, in numbers and in literals; white space apart. */
static int forced_elsewhere(Machine *m, const JsonState *state) {
  int found = -1;
  for (const char *at = "{}[]\",:-0123456789.eE+abcdfilnrstu"; *at; at++) {
    JsonState next = *state;
    const ArenaMark mark = machine_mark(m);
    const bool may = machine_push(m, &next, (unsigned char)*at);
    machine_release(m, mark);
    if (may && found >= 0) return -1;
    if (may) found = (unsigned char)*at;
  }
  return found;
}

Status constraint_forced(Constraint *constraint, Buffer *bytes, Error *err) {
  Machine *m = &constraint->machine;
  const ArenaMark mark = machine_mark(m);
  const size_t start = bytes->size;
  JsonState state = constraint->state;
  Status status = STATUS_OK;
  while (status == STATUS_OK && bytes->size - start < MAX_FORCED && !machine_may_end(m, &state)) {
    const bool in_string = state.phase == PHASE_STRING || state.phase == PHASE_KEY_STRING;
    const int byte = in_string ? forced_in_string(m, &state) : forced_elsewhere(m, &state);
    if (byte < 0 || !machine_push(m, &state, (unsigned char)byte)) break;
    const char text = (char)byte;
    status = buffer_append(bytes, &text, 1, err);
  }
  machine_release(m, mark);
  /* Half a character is not forced text. */
  if (bytes->size > start) bytes->size = start + utf8_valid_prefix(bytes->data + start, bytes->size - start);
  return status == STATUS_OK ? machine_check(m, err) : status;
}
