/* machine.c - JSON's grammar over bytes; see machine.h. */
#include "constrain/machine.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash64.h"
#include "constrain/closing.h"
#include "constrain/frames.h"
#include "constrain/key_order.h"
#include "constrain/lang/numbers.h"
#include "constrain/lex.h"

#define CHUNK_BYTES ((size_t)1 << 16)
#define MAX_CHUNKS  4096
#define TIDY_CHUNKS 128
#define MAX_LEXES   ((size_t)1 << 15) /* if there are more, machine_tidy() keeps one; each may have 1 KB */
#define MAX_DEPTH   512

static const char *const literals[] = {[JSON_NULL] = "null", [JSON_FALSE] = "false", [JSON_TRUE] = "true"};

/* --- memory */

void machine_fail(Machine *machine, const char *message) {
  failure_set(&machine->failure, STATUS_FAILED, message);
}

void machine_limit(Machine *machine, const char *limit) {
  failure_set(&machine->failure, STATUS_USAGE, limit);
}

Status machine_check(const Machine *machine, Error *err) {
  TRY(failure_check(&machine->failure, err));
  TRY(langs_check(&machine->set->langs, err));
  return formulas_check(&machine->set->formulas, err);
}

void *machine_alloc(Machine *machine, size_t size) {
  size = (size + 7) & ~(size_t)7;
  if (size > CHUNK_BYTES) return machine_limit(machine, "a value has over 65,536 bytes of state"), NULL;
  if (machine->mark.chunk == 0 || machine->mark.used + size > CHUNK_BYTES) {
    if (machine->mark.chunk == machine->n_chunks) {
      if (machine->n_chunks == MAX_CHUNKS)
        return machine_limit(machine, "the text needs over 256 MB of state"), NULL;
      char *chunk = malloc(CHUNK_BYTES);
      if (!chunk || mem_grow(&machine->chunks, &machine->chunks_capacity, machine->n_chunks + 1, sizeof chunk,
                             "a constraint", NULL))
        return free(chunk), machine_fail(machine, "out of memory"), NULL;
      machine->chunks[machine->n_chunks++] = chunk;
    }
    machine->mark = (ArenaMark){machine->mark.chunk + 1, 0};
  }
  void *made = machine->chunks[machine->mark.chunk - 1] + machine->mark.used;
  machine->mark.used += size;
  return made;
}

/* Copies the list and its keys, in the same order, to fresh memory. */
static const Seen *copy_seen(Machine *m, const Seen *seen) {
  const Seen *first = NULL;
  const Seen **link = &first;
  for (; seen; seen = seen->before) {
    Seen *made = machine_alloc(m, sizeof *made);
    char *bytes = made && seen->bytes ? machine_alloc(m, seen->size + 1) : NULL;
    if (!made || (seen->bytes && !bytes)) return NULL;
    *made = *seen;
    if (bytes) memcpy(bytes, seen->bytes, seen->size);
    made->bytes = bytes;
    *link = made;
    link = &made->before;
  }
  return first;
}

/* Copies the frame and the frames above it to fresh memory, without lex states. */
static const Frame *copy_frames(Machine *m, const Frame *frame) {
  if (!frame) return NULL;
  const Frame *up = copy_frames(m, frame->up);
  const size_t size = sizeof *frame + (2 * (size_t)frame->n_goals + frame->n_children) * sizeof(uint32_t);
  Frame *made = machine_alloc(m, size);
  if (!made) return NULL;
  memcpy(made, frame, size);
  made->up = up;
  made->seen = copy_seen(m, frame->seen);
  for (int i = 0; i < 3; i++) made->lex[i] = LANG_UNKNOWN;
  return made;
}

bool machine_tidy(Machine *machine, JsonState *state) {
  Machine *m = machine;
  const bool many_lexes = m->n_lexes > MAX_LEXES;
  langs_tidy(&m->set->langs);
  if (many_lexes) {
    const bool in_text = state->phase >= PHASE_STRING && state->phase <= PHASE_NUMBER;
    state->lex = lex_forget(m, in_text ? state->lex : 1);
  }
  if (!many_lexes && m->mark.chunk < (m->tidy_at ? m->tidy_at : TIDY_CHUNKS)) return false;
  char **chunks = m->chunks;
  const size_t n = m->n_chunks;
  m->chunks = NULL;
  m->n_chunks = m->chunks_capacity = 0;
  m->mark = (ArenaMark){0, 0};
  state->top = copy_frames(m, state->top);
  m->tidy_at = 2 * m->n_chunks + TIDY_CHUNKS;
  for (size_t i = 0; i < n; i++) free(chunks[i]);
  free(chunks);
  return true;
}

Status machine_open(SchemaSet *set, Machine *machine, Error *err) {
  *machine = (Machine){.set = set, .plain_number = LANG_UNKNOWN};
  TRY(NEW(machine->places, set->count, "a constraint", err));
  for (size_t i = 0; i < set->count; i++) {
    const Schema *s = &set->schemas[i];
    machine->has_open |= s->open_items != SCHEMA_NONE || s->open_members != SCHEMA_NONE;
    if (s->prefix.count > machine->max_prefix) machine->max_prefix = (uint32_t)s->prefix.count;
  }
  return STATUS_OK;
}

void machine_close(Machine *machine) {
  for (size_t i = 0; i < machine->n_lexes; i++) free(machine->lexes[i].next);
  for (size_t i = 0; i < machine->n_chunks; i++) free(machine->chunks[i]);
  free(machine->chunks);
  key_orders_close(machine);
  free(machine->lexes);
  key_table_release(&machine->lexes_by_content);
  free(machine->lex_langs);
  free(machine->places);
  free(machine->text);
  key_table_release(&machine->closings);
  key_table_release(&machine->few);
  arena_release(&machine->examples);
  buffer_release(&machine->decoded);
  *machine = (Machine){.set = NULL};
}

static uint32_t frame_lex(Machine *m, const Frame *frame, int which, uint32_t n_text);

/* --- the end of a value */

/* True if the object or array may end now, or have another member or item. */
static bool may_go_on(Machine *m, const Frame *frame) {
  bool ends[MAX_GOALS];
  if (closing_is_searched(m, frame) || frame_may_end(m, frame, ends)) return true;
  ArenaMark mark = machine_mark(m);
  bool goes_on =
      frame->kind == FRAME_ARRAY ? frame_next_item(m, frame) != NULL : frame_lex(m, frame, 2, 0) != LEX_NONE;
  machine_release(m, mark);
  return goes_on;
}

/* Steps state->top, the parent, after a value in it has ended; false if the text cannot go on. */
static bool child_ended(Machine *m, JsonState *state, const bool *verdicts, uint64_t hash) {
  const Frame *frame = frame_child_ended(m, state->top, verdicts, hash);
  if (!frame) return false;
  state->top = frame;
  state->phase = frame->kind == FRAME_ROOT ? PHASE_END : PHASE_AFTER;
  if (frame->kind == FRAME_ROOT) return frame_goals(frame)[0] == FORMULA_TRUE;
  return may_go_on(m, frame);
}

bool machine_decode(Machine *machine, const JsonState *state) {
  Error err;
  machine->decoded.size = 0;
  const char *text = machine->text + state->start;
  if (json_unescape(text, state->n_text - state->start, &machine->decoded, &err) == STATUS_OK) return true;
  return machine_fail(machine, err.text), false;
}

bool machine_text_hash(JsonKind kind, const char *bytes, size_t size, uint64_t *hash) {
  Decimal d;
  if (kind == JSON_STRING) return *hash = hash64(bytes, size, 4), true;
  if (!decimal_read(bytes, size, &d)) return false;
  *hash = hash64(d.digits, (size_t)d.n, (uint64_t)(d.exponent + 1000) << 4 | (uint64_t)d.negative << 3 | 3);
  return true;
}

bool machine_end_text(Machine *machine, JsonState *state) {
  Machine *m = machine;
  const Frame *frame = state->top;
  const bool number = state->phase == PHASE_NUMBER, key = state->phase == PHASE_KEY_STRING;
  const char *bytes = m->text + state->start;
  size_t size = state->n_text - state->start;
  uint64_t hash = 0;
  if (!number && (key || frame->hashing)) {
    if (!machine_decode(m, state)) return false;
    bytes = m->decoded.data ? m->decoded.data : "";
    size = m->decoded.size;
  }
  if (key) {
    state->phase = PHASE_COLON;
    return (state->top = frame_next_member(m, frame, bytes, size)) != NULL;
  }
  if (frame->hashing && !machine_text_hash(number ? JSON_NUMBER : JSON_STRING, bytes, size, &hash))
    return false;
  bool verdicts[MAX_GOALS];
  lex_verdicts(m, state->lex, verdicts, frame->n_children);
  return child_ended(m, state, verdicts, hash);
}

static bool container_ends(Machine *m, JsonState *state) {
  bool verdicts[MAX_GOALS];
  const Frame *frame = state->top;
  if (!frame_may_end(m, frame, verdicts)) return false;
  state->top = frame->up;
  return child_ended(m, state, verdicts, frame_value_hash(frame));
}

/* --- the beginning of a value */

uint64_t machine_literal_hash(JsonKind kind) {
  return 6 + (uint64_t)kind;
}

/* The lex state of the open child, a string or number that begins after n_text bytes. */
static uint32_t text_lex(Machine *m, const Frame *frame, JsonKind kind, uint32_t n_text) {
  Langs *l = &m->set->langs;
  Lang langs[1 + MAX_GOALS];
  uint32_t n = frame->n_children;
  bool judged = false; /* some schema takes only some of the texts */
  for (uint32_t i = 0; i < n; i++) {
    langs[1 + i] = kind == JSON_STRING ? schema_strings(m->set, frame_children(frame)[i])
                                       : schema_numbers(m->set, frame_children(frame)[i]);
    judged |= langs[1 + i] != LANG_ALL && langs[1 + i] != LANG_NONE;
  }
  langs[0] = frame_child_lang(m, frame, kind);
  if (kind == JSON_STRING) {
    langs[0] = langs[0] == LANG_ALL ? lang_any_text(l) : lang_text(l, langs[0]);
  } else if (langs[0] == LANG_ALL && !judged) {
    if (m->set->any_number == LANG_UNKNOWN)
      m->set->any_number = numbers_any((Numbers){l, m->set->options.exponents});
    langs[0] = m->set->any_number;
  } else { /* verdicts are right only for numbers in bounded_number */
    langs[0] = lang_and(l, langs[0], m->set->bounded_number);
  }
  if (frame->hashing && langs[0] != LANG_NONE) langs[0] = closing_texts(m, frame, kind, langs[0], n_text);
  const FormulaNode *need = &m->set->formulas.nodes[frame->child_need];
  bool alone = n == 0 || (n == 1 && need->kind == FORMULA_ATOM);
  return lex_begin(m, kind == JSON_NUMBER, langs, alone ? 1 : 1 + n);
}

/* The lex state of a string (`which` 0), number (1) or key (2) that begins. It is made on first use. */
static uint32_t frame_lex(Machine *m, const Frame *frame, int which, uint32_t n_text) {
  uint32_t *lex = &((Frame *)frame)->lex[which];
  if (*lex == LANG_UNKNOWN && which < 2)
    *lex = text_lex(m, frame, which == 0 ? JSON_STRING : JSON_NUMBER, n_text);
  if (*lex == LANG_UNKNOWN) {
    Lang keys = lang_text(&m->set->langs, frame_next_keys(m, frame));
    if (frame->hashing && keys != LANG_NONE) keys = closing_unrepeated_keys(m, frame, keys, n_text);
    *lex = lex_begin(m, false, &keys, 1);
  }
  return *lex;
}

static bool text_begins(Machine *m, JsonState *state, JsonKind kind) {
  state->lex = frame_lex(m, state->top, kind == JSON_STRING ? 0 : 1, state->n_text);
  state->phase = kind == JSON_STRING ? PHASE_STRING : PHASE_NUMBER;
  state->start = state->n_text;
  if (state->lex == LEX_NONE || m->lexes[state->lex].n > 1 || state->top->hashing)
    return state->lex != LEX_NONE;
  /* With one language, all strings (numbers) that the state allows fit the same subschemas. So it can be
   * tried now whether the value may end. */
  bool verdicts[MAX_GOALS];
  const ArenaMark mark = machine_mark(m);
  lex_verdicts(m, state->lex, verdicts, state->top->n_children);
  const bool may_end = frame_child_ended(m, state->top, verdicts, 0) != NULL;
  machine_release(m, mark);
  return may_end;
}

static bool literal_begins(Machine *m, JsonState *state, JsonKind kind) {
  bool verdicts[MAX_GOALS];
  if (!frame_child_scalar(m, state->top, kind, verdicts)) return false;
  JsonState ended = *state;
  const ArenaMark mark = machine_mark(m);
  const bool may_end = child_ended(m, &ended, verdicts, machine_literal_hash(kind));
  machine_release(m, mark);
  if (!may_end) return false;
  state->phase = PHASE_LITERAL;
  state->kind = (uint8_t)kind;
  state->at = 1;
  return true;
}

static bool container_begins(Machine *m, JsonState *state, FrameKind kind) {
  int depth = 0;
  for (const Frame *up = state->top; up; up = up->up) depth++;
  if (depth > MAX_DEPTH) return false;
  const Frame *frame = frame_open(m, state->top, kind);
  if (!frame) return false;
  state->top = frame;
  state->phase = kind == FRAME_OBJECT ? PHASE_FIRST_KEY : PHASE_FIRST_ITEM;
  return may_go_on(m, frame);
}

static bool value_begins(Machine *m, JsonState *state, unsigned char byte) {
  switch (byte) {
  case 'n': return literal_begins(m, state, JSON_NULL);
  case 'f': return literal_begins(m, state, JSON_FALSE);
  case 't': return literal_begins(m, state, JSON_TRUE);
  case '"': return text_begins(m, state, JSON_STRING) && (state->start++, true);
  case '[': return container_begins(m, state, FRAME_ARRAY);
  case '{': return container_begins(m, state, FRAME_OBJECT);
  default: break;
  }
  if (byte != '-' && (byte < '0' || byte > '9')) return false;
  if (!text_begins(m, state, JSON_NUMBER)) return false;
  state->lex = lex_next(m, state->lex, byte);
  return state->lex != LEX_NONE;
}

static bool item_begins(Machine *m, JsonState *state, unsigned char byte) {
  const Frame *frame = frame_next_item(m, state->top);
  if (!frame) return false;
  state->top = frame;
  return value_begins(m, state, byte);
}

static bool key_begins(Machine *m, JsonState *state) {
  state->lex = frame_lex(m, state->top, 2, 0);
  state->phase = PHASE_KEY_STRING;
  state->start = state->n_text + 1;
  return state->lex != LEX_NONE;
}

static bool comma(Machine *m, JsonState *state) {
  if (state->top->kind == FRAME_OBJECT) {
    state->phase = PHASE_KEY;
    return frame_lex(m, state->top, 2, 0) != LEX_NONE;
  }
  state->top = frame_next_item(m, state->top);
  state->phase = PHASE_VALUE;
  return state->top != NULL;
}

/* --- bytes */

static bool literal_goes_on(Machine *m, JsonState *state, unsigned char byte) {
  const char *text = literals[state->kind];
  if ((unsigned char)text[state->at] != byte) return false;
  if (text[++state->at]) return true;
  bool verdicts[MAX_GOALS];
  frame_child_scalar(m, state->top, state->kind, verdicts);
  return child_ended(m, state, verdicts, machine_literal_hash((JsonKind)state->kind));
}

static bool structure(Machine *m, JsonState *state, unsigned char byte) {
  if (byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r') return true;
  const bool object = state->top->kind == FRAME_OBJECT;
  switch ((Phase)state->phase) {
  case PHASE_VALUE: return value_begins(m, state, byte);
  case PHASE_FIRST_ITEM: return byte == ']' ? container_ends(m, state) : item_begins(m, state, byte);
  case PHASE_FIRST_KEY: return byte == '}' ? container_ends(m, state) : byte == '"' && key_begins(m, state);
  case PHASE_KEY: return byte == '"' && key_begins(m, state);
  case PHASE_COLON: state->phase = PHASE_VALUE; return byte == ':';
  case PHASE_AFTER:
    if (byte == ',') return comma(m, state);
    return byte == (object ? '}' : ']') && container_ends(m, state);
  default: return false;
  }
}

static bool take(Machine *m, JsonState *state, unsigned char byte) {
  switch ((Phase)state->phase) {
  case PHASE_STRING:
  case PHASE_KEY_STRING:
    if (byte == '"' && m->lexes[state->lex].escape == 0)
      return lex_may_end(m, state->lex) && machine_end_text(m, state);
    state->lex = lex_next(m, state->lex, byte);
    return state->lex != LEX_NONE;
  case PHASE_NUMBER: {
    uint32_t next = lex_next(m, state->lex, byte);
    if (next != LEX_NONE) {
      state->lex = next;
      return true;
    }
    return lex_may_end(m, state->lex) && machine_end_text(m, state) && structure(m, state, byte);
  }
  case PHASE_LITERAL: return literal_goes_on(m, state, byte);
  default: return structure(m, state, byte);
  }
}

bool machine_write(Machine *machine, uint32_t at, unsigned char byte) {
  if ((size_t)at + 8 > machine->text_capacity &&
      mem_grow(&machine->text, &machine->text_capacity, (size_t)at + 64, 1, "a constraint", NULL) !=
          STATUS_OK)
    return machine_fail(machine, "out of memory"), false;
  machine->text[at] = (char)byte;
  return true;
}

bool machine_push(Machine *machine, JsonState *state, unsigned char byte) {
  if (!machine_write(machine, state->n_text, byte) || !take(machine, state, byte)) return false;
  state->n_text++;
  return !has_failed(&machine->failure);
}

bool machine_begin_with(Machine *machine, uint32_t schema, JsonState *state) {
  *state = (JsonState){.top = frame_root(machine, schema), .phase = PHASE_VALUE};
  return state->top != NULL;
}

bool machine_begin(Machine *machine, JsonState *state) {
  return machine_begin_with(machine, machine->set->root, state);
}

bool machine_may_end(Machine *machine, const JsonState *state) {
  if (state->phase == PHASE_END) return true;
  if (state->phase != PHASE_NUMBER || state->top->kind != FRAME_ROOT) return false;
  JsonState copy = *state;
  ArenaMark mark = machine_mark(machine);
  bool ends = lex_may_end(machine, state->lex) && machine_end_text(machine, &copy);
  machine_release(machine, mark);
  return ends;
}
