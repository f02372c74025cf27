/* constraint.c - opens a schema or a grammar and takes tokens; see constraint.h. */
#include "constrain/constraint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "constrain/closing.h"
#include "constrain/frames.h"
#include "constrain/key_order.h"
#include "constrain/lex.h"

enum {
  MAX_BLANKS = 40,   /* bytes of white space between two values, with constraint_write_plainly() */
  TIDY_BYTES = 1024, /* bytes between two calls of machine_tidy() */
};

/* --- schemas without texts */

enum { MAX_BLAMED = 16 }; /* nested schemas that refuse_dead() looks at */

static bool has_text(const SchemaSet *set, uint32_t number) {
  return number == SCHEMA_TRUE || (number != SCHEMA_FALSE && set->schemas[number].is_proven);
}

/* The schema of the first required member whose schema has no text; SCHEMA_NONE: there is none. */
static uint32_t dead_member(const SchemaSet *set, uint32_t number) {
  for (size_t i = 0; i < set->schemas[number].required.count; i++) {
    const uint32_t key = set->schemas[number].required.items[i];
    const KeyList *properties = &set->schemas[number].properties;
    for (size_t k = 0; k < properties->count; k++)
      if (properties->items[k].key == key && !has_text(set, properties->items[k].schema))
        return properties->items[k].schema;
  }
  return SCHEMA_NONE;
}

/* Writes ": " and the names of a schema's keywords, except those that only describe the schema. */
static void append_keywords(const Json *schema, char *out, size_t size) {
  static const char *const others[] = {"title",    "description", "$schema",  "$id",   "id",
                                       "$comment", "default",     "examples", "$defs", "definitions"};
  size_t n = 0;
  if (!json_is_object(schema)) return;
  for (const Json *it = json_first(schema); it; it = json_next(it)) {
    bool tells = true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) tells &= strcmp(json_key(it), others[i]) != 0;
    const size_t more = tells ? strlen(json_key(it)) + 2 : 0;
    if (more == 0 || n + more + 4 > size) continue;
    snprintf(out + n, size - n, "%s%s", n ? ", " : ": ", json_key(it));
    n += more;
  }
}

/* Fails, and names a schema without a text: the innermost one to which required members and allOf lead. */
static Status refuse_dead(const SchemaSet *set, Error *err) {
  uint32_t number = set->root, next = number;
  int depth = 0;
  for (; next > SCHEMA_TRUE && next != SCHEMA_NONE && depth < MAX_BLAMED; depth++) {
    number = next;
    next = dead_member(set, number);
    const NumberList *parts = &set->schemas[number].all_of;
    for (size_t i = 0; i < parts->count && next == SCHEMA_NONE; i++)
      if (!has_text(set, parts->items[i])) next = parts->items[i];
  }
  const char *pointer = number > SCHEMA_TRUE ? set->schemas[number].pointer : "#";
  if (depth == MAX_BLAMED)
    return error_set(err, STATUS_USAGE,
                     "no text satisfies the schema: %s needs a value in itself without end", pointer);
  if (number == SCHEMA_FALSE || next == SCHEMA_FALSE)
    return error_set(err, STATUS_USAGE, "no text satisfies the schema: %s %s", pointer,
                     number == SCHEMA_FALSE ? "is false" : "needs what is false");
  char keywords[160] = "";
  append_keywords(set->schemas[number].json, keywords, sizeof keywords);
  return error_set(err, STATUS_USAGE,
                   "no text satisfies the schema: the keywords of %s exclude one another%s", pointer,
                   keywords);
}

/* --- schemas that are too hard */

enum { MANY_PARTS = 64 }; /* a schema with fewer parts is not tried, unless it is the root */

/* True if the schema has so many subschemas and keys that a search in its arrays or objects may be hard. */
static bool has_many_parts(const Schema *s) {
  return s->any_of.count + s->one_of.count + s->all_of.count + s->constants.count + s->dependents.count +
             s->needed_keys.count + s->properties.count >=
         MANY_PARTS;
}

/* Pushes each byte of first..last onto a copy of the state. */
static void try_bytes(Machine *m, const JsonState *state, int first, int last) {
  for (int byte = first; byte <= last; byte++) {
    JsonState next = *state;
    const ArenaMark mark = machine_mark(m);
    machine_push(m, &next, (unsigned char)byte);
    machine_release(m, mark);
  }
}

/* Begins an object and a first key, then a member with the first key in `properties` of its schemas. */
static void try_object(Machine *m, JsonState state) {
  if (!machine_push(m, &state, '{')) return;
  const Frame *object = state.top;
  const KeyOrder *order = key_order_of(m, frame_goal_schemas(object), object->n_goals);
  const Key *key = order && order->keys.count > 0 ? &m->set->keys[order->keys.items[0]] : NULL;
  machine_push(m, &state, '"');
  if (key) frame_next_member(m, object, key->bytes, key->size);
}

/* Begins an object, array, string and number of the schema, up to the first member or item. The caller asks
 * machine_check() whether that met a limit of the machine. */
static void try_beginnings(Machine *m, uint32_t schema) {
  JsonState begun, next;
  machine_release(m, (ArenaMark){0, 0});
  if (!machine_begin_with(m, schema, &begun)) return;
  try_object(m, begun);
  next = begun;
  if (machine_push(m, &next, '[')) try_bytes(m, &next, '"', '{');
  next = begun;
  if (machine_push(m, &next, '"')) try_bytes(m, &next, ' ', 255);
  next = begun;
  if (machine_push(m, &next, '1')) try_bytes(m, &next, '.', '9');
}

/* Tries schemas that are likely to be too hard, so that they are refused now and not within an answer. If
 * texts are only judged (Machine.is_judging), the schemas are tried with their keys in order, even where
 * options.ordered_keys is not set. */
static Status try_hard_schemas(Machine *m, Error *err) {
  SchemaSet *set = m->set;
  const bool ordered = set->options.ordered_keys;
  uint64_t work = 0;
  Status status = STATUS_OK;
  set->options.ordered_keys |= m->is_judging;
  for (uint32_t i = SCHEMA_TRUE + 1; i < set->count && work < MAX_WORK / 2 && status == STATUS_OK; i++) {
    Error inner;
    if (!set->schemas[i].is_proven || (i != set->root && !has_many_parts(&set->schemas[i]))) continue;
    closing_begin_work(m);
    try_beginnings(m, i);
    status = machine_check(m, &inner);
    if (status != STATUS_OK) error_set(err, status, "%s: %s", set->schemas[i].pointer, inner.text);
    work += set->langs.failure.work + set->formulas.failure.work;
  }
  set->options.ordered_keys = ordered;
  return status;
}

/* Makes and keeps the first mask, so that a constraint that is too hard is refused now. */
static Status try_first_mask(Constraint *c, Error *err) {
  OWNED(mem_release) uint64_t *mask = NULL;
  TRY(NEW(mask, c->vocabulary->n_words, "masks", err));
  return constraint_mask(c, mask, err);
}

/* --- opening */

void constraint_heed(const volatile int *interrupted) {
  failure_heed(interrupted);
}

Status constraint_begin(Constraint *constraint, Error *err) {
  Machine *m = &constraint->machine;
  constraint->n_space = constraint->has_newline = 0;
  if (constraint->grammar) {
    constraint->place = grammar_begin(constraint->grammar);
    return grammar_check(constraint->grammar, err);
  }
  machine_release(m, (ArenaMark){0, 0});
  bool possible = machine_begin(m, &constraint->state);
  TRY(machine_check(m, err));
  return possible ? STATUS_OK : refuse_dead(&constraint->set, err);
}

Status constraint_open(const char *name, const char *text, size_t size, SchemaOptions options,
                       const Vocabulary *vocabulary, Constraint *constraint, Error *err) {
  Constraint *c = constraint;
  *c = (Constraint){.vocabulary = vocabulary};
  TRY(schema_open(name, text, size, options, &c->set, err));
  Error inner;
  langs_begin_work(&c->set.langs);
  failure_begin_work(&c->set.formulas.failure);
  Status status = machine_open(&c->set, &c->machine, &inner);
  if (status == STATUS_OK) {
    c->machine.is_judging = !vocabulary;
    closing_find_dead(&c->machine);
    status = machine_check(&c->machine, &inner);
  }
  closing_begin_work(&c->machine);
  if (status == STATUS_OK && !has_text(&c->set, c->set.root)) status = refuse_dead(&c->set, &inner);
  if (status == STATUS_OK) status = try_hard_schemas(&c->machine, &inner);
  closing_begin_work(&c->machine);
  if (status == STATUS_OK && vocabulary) status = masks_open(&c->machine, vocabulary, &c->masks, &inner);
  if (status == STATUS_OK) status = constraint_begin(c, &inner);
  if (status == STATUS_OK && vocabulary) status = try_first_mask(c, &inner);
  if (status != STATUS_OK) {
    error_set(err, status, "%s: %s", name, inner.text);
    constraint_close(c);
  }
  return status;
}

Status constraint_open_grammar(const char *name, Grammar *grammar, const Vocabulary *vocabulary,
                               Constraint *constraint, Error *err) {
  *constraint = (Constraint){.vocabulary = vocabulary, .grammar = grammar};
  Error inner;
  Status status = constraint_begin(constraint, &inner);
  if (status == STATUS_OK && vocabulary) status = try_first_mask(constraint, &inner);
  if (status == STATUS_OK) return STATUS_OK;
  constraint_close(constraint);
  return error_set(err, status, "%s: %s", name, inner.text);
}

void constraint_close(Constraint *constraint) {
  grammar_close(constraint->grammar);
  constraint->grammar = NULL;
  free(constraint->escapes);
  constraint->escapes = NULL;
  if (constraint->vocabulary && constraint->masks.m) masks_close(&constraint->masks);
  machine_close(&constraint->machine);
  schema_close(&constraint->set);
}

/* --- writing plainly */

static bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Adds the token to the sets ESCAPE_WORDY and ESCAPE_OPEN if it belongs there. */
static void add_escapes(uint64_t *escapes, uint32_t n_words, int32_t id, const char *bytes, size_t size) {
  for (size_t i = 0; i < size; i++) {
    if (bytes[i] != '\\') continue;
    if (++i == size) mask_add(escapes + ESCAPE_OPEN * n_words, id);
    if (i < size && (bytes[i] == 'u' || bytes[i] == '/')) mask_add(escapes + ESCAPE_WORDY * n_words, id);
  }
}

Status constraint_write_plainly(Constraint *constraint, Error *err) {
  const Vocabulary *v = constraint->vocabulary;
  uint64_t *escapes;
  TRY(NEW(escapes, N_ESCAPES * (size_t)v->n_words + 1, "masks", err));
  for (int32_t id = 0; id < v->n_ids; id++) {
    size_t size;
    const char *bytes = vocabulary_bytes(v, id, &size);
    add_escapes(escapes, v->n_words, id, bytes, size);
  }
  constraint->escapes = escapes;
  return STATUS_OK;
}

/* Updates n_space and has_newline after the text has taken bytes[0..size). */
static void count_space(Constraint *c, const char *bytes, size_t size) {
  size_t n = 0;
  const bool inside = c->state.phase >= PHASE_STRING && c->state.phase <= PHASE_LITERAL;
  while (!inside && n < size && is_space(bytes[size - 1 - n])) n++;
  if (n < size) c->n_space = c->has_newline = 0;
  c->n_space += (uint32_t)n;
  c->has_newline |= memchr(bytes + size - n, '\n', n) != NULL;
}

/* True if the text has nothing but white space. */
static bool is_at_start(const Constraint *c) {
  return c->state.n_text == c->n_space;
}

/* True if constraint_write_plainly() leaves the token out because its white space is of no use. */
static bool is_wasteful(const Constraint *c, int32_t id) {
  size_t size, n = 0;
  const char *bytes = vocabulary_bytes(c->vocabulary, id, &size);
  while (n < size && is_space(bytes[n])) n++;
  if (n == 0) return false;
  if (is_at_start(c)) return n == size;
  return c->state.phase == PHASE_COLON || c->n_space >= MAX_BLANKS ||
         (c->has_newline && memchr(bytes, '\n', n));
}

/* Takes wasteful tokens out of the mask, unless no other token is left. */
static void drop_wasteful(const Constraint *c, uint64_t *mask) {
  for (int turn = 0; turn < 2; turn++) {
    bool left = false;
    for (uint32_t word = 0; word < c->vocabulary->n_words; word++)
      for (uint64_t bits = mask[word]; bits; bits &= bits - 1) {
        const int bit = __builtin_ctzll(bits);
        const bool wasteful = is_wasteful(c, (int32_t)(word * 64) + bit);
        left |= !wasteful;
        if (turn == 1 && wasteful) mask[word] &= ~(UINT64_C(1) << bit);
      }
    if (!left) return;
  }
}

/* Takes `tokens` out of the mask, unless no other token is left. */
static void drop_tokens(const Constraint *c, const uint64_t *tokens, uint64_t *mask) {
  uint64_t left = 0;
  for (uint32_t word = 0; word < c->vocabulary->n_words; word++) left |= mask[word] & ~tokens[word];
  for (uint32_t word = 0; word < c->vocabulary->n_words && left; word++) mask[word] &= ~tokens[word];
}

/* True if the string or key may go on with an escape of two characters other than \/. `lex` is its state
 * after the backslash. */
static bool may_escape(Constraint *c, uint32_t lex) {
  for (const char *at = "\"\\bfnrt"; *at; at++)
    if (lex_next(&c->machine, lex, (unsigned char)*at) != LEX_NONE) return true;
  return false;
}

static bool is_in_string(const JsonState *state) {
  return state->phase == PHASE_STRING || state->phase == PHASE_KEY_STRING;
}

/* The token ends with the backslash of an escape. True if only u or / may follow it. */
static bool needs_wordy_escape(Constraint *c, int32_t id) {
  Machine *m = &c->machine;
  size_t size, at = 0;
  const char *bytes = vocabulary_bytes(c->vocabulary, id, &size);
  JsonState next = c->state;
  const ArenaMark mark = machine_mark(m);
  while (at < size && machine_push(m, &next, (unsigned char)bytes[at])) at++;
  const bool needs =
      at == size && is_in_string(&next) && m->lexes[next.lex].escape == 1 && !may_escape(c, next.lex);
  machine_release(m, mark);
  return needs;
}

/* drop_tokens() for tokens with \u or \/, whose backslash may be the end of the text so far. Tokens after
 * which only such tokens may come are dropped, too. */
static void drop_escapes(Constraint *c, uint64_t *mask) {
  const uint32_t n_words = c->vocabulary->n_words;
  const bool after_backslash = is_in_string(&c->state) && c->machine.lexes[c->state.lex].escape == 1;
  const uint64_t *wordy = c->escapes + ESCAPE_WORDY * n_words, *open = c->escapes + ESCAPE_OPEN * n_words;
  uint64_t *left_out = c->escapes + ESCAPE_LEFT_OUT * n_words;
  memcpy(left_out, wordy, n_words * sizeof *left_out);
  for (uint32_t word = 0; word < n_words; word++) {
    for (uint64_t bits = mask[word] & open[word] & ~wordy[word]; bits; bits &= bits - 1) {
      const int32_t id = (int32_t)(word * 64) + __builtin_ctzll(bits);
      if (needs_wordy_escape(c, id)) mask_add(left_out, id);
    }
    for (uint64_t bits = after_backslash ? mask[word] : 0; bits; bits &= bits - 1) {
      size_t size;
      const int32_t id = (int32_t)(word * 64) + __builtin_ctzll(bits);
      const char first = *vocabulary_bytes(c->vocabulary, id, &size);
      if (first == 'u' || first == '/') mask_add(left_out, id);
    }
  }
  drop_tokens(c, left_out, mask);
}

static void drop_wordy(Constraint *c, uint64_t *mask) {
  const Phase phase = (Phase)c->state.phase;
  if (phase != PHASE_END) drop_escapes(c, mask);
  if (is_at_start(c) || phase == PHASE_COLON || c->has_newline || c->n_space >= MAX_BLANKS)
    drop_wasteful(c, mask);
}

/* --- tokens */

Status constraint_mask(Constraint *constraint, uint64_t *mask, Error *err) {
  Constraint *c = constraint;
  if (c->grammar) {
    memset(mask, 0, c->vocabulary->n_words * sizeof *mask);
    grammar_mask(c->grammar, c->vocabulary, c->place, mask);
    return grammar_check(c->grammar, err);
  }
  closing_begin_work(&c->machine);
  masks_compute(&c->masks, &c->state, mask);
  if (c->escapes) drop_wordy(c, mask);
  return machine_check(&c->machine, err);
}

static Status take_token_by_grammar(Constraint *c, int32_t id, const char *bytes, size_t size, bool *allowed,
                                    Error *err) {
  const uint32_t next = grammar_next_token(c->grammar, c->place, id, bytes, size);
  *allowed = next != GRAMMAR_DEAD;
  if (*allowed) c->place = grammar_settle(c->grammar, next);
  return grammar_check(c->grammar, err);
}

static Status take_by_grammar(Constraint *c, const char *bytes, size_t size, bool *allowed, size_t *taken,
                              Error *err) {
  size_t at = 0;
  uint32_t place = c->place;
  for (uint32_t next; at < size && (next = grammar_next(c->grammar, place, (unsigned char)bytes[at])); at++)
    place = next;
  *allowed = at == size;
  if (taken) *taken = at;
  if (*allowed) c->place = grammar_settle(c->grammar, place);
  return grammar_check(c->grammar, err);
}

/* Takes bytes until one is refused; returns how many were taken. *tidied is set if earlier states and marks
 * are no longer valid. */
static size_t push_bytes(Machine *m, JsonState *state, const char *bytes, size_t size, bool *tidied) {
  size_t at = 0;
  for (; at < size; at++) {
    closing_begin_work(m);
    if (at % TIDY_BYTES == TIDY_BYTES - 1) *tidied |= machine_tidy(m, state);
    if (!machine_push(m, state, (unsigned char)bytes[at])) break;
  }
  return at;
}

Status constraint_take_bytes(Constraint *constraint, const char *bytes, size_t size, bool *allowed,
                             size_t *taken, Error *err) {
  Machine *m = &constraint->machine;
  if (constraint->grammar) return take_by_grammar(constraint, bytes, size, allowed, taken, err);
  const ArenaMark mark = machine_mark(m);
  JsonState state = constraint->state;
  bool tidied = false;
  const size_t at = push_bytes(m, &state, bytes, size, &tidied);
  *allowed = at == size;
  if (taken) *taken = at;
  if (*allowed) {
    constraint->state = state;
    count_space(constraint, bytes, size);
  } else if (!tidied) {
    machine_release(m, mark);
  } else { /* takes the text before `bytes` again, which m->text still has */
    const uint32_t before = constraint->state.n_text;
    machine_release(m, (ArenaMark){0, 0});
    if (machine_begin(m, &constraint->state)) push_bytes(m, &constraint->state, m->text, before, &tidied);
  }
  return machine_check(m, err);
}

Status constraint_take(Constraint *constraint, int32_t id, bool *allowed, Error *err) {
  size_t size = 0;
  const Vocabulary *v = constraint->vocabulary;
  if (constraint->machine.set) {
    closing_begin_work(&constraint->machine);
    machine_tidy(&constraint->machine, &constraint->state);
    TRY(machine_check(&constraint->machine, err));
  }
  const char *bytes = id >= 0 && id < v->n_ids ? vocabulary_bytes(v, id, &size) : NULL;
  *allowed = false;
  if (constraint->grammar) return take_token_by_grammar(constraint, id, bytes, size, allowed, err);
  return size > 0 ? constraint_take_bytes(constraint, bytes, size, allowed, NULL, err) : STATUS_OK;
}

bool constraint_may_end(Constraint *constraint) {
  if (constraint->grammar) return grammar_may_end(constraint->grammar, constraint->place);
  return machine_may_end(&constraint->machine, &constraint->state);
}

bool constraint_must_end(Constraint *constraint) {
  if (constraint->grammar) return grammar_must_end(constraint->grammar, constraint->place);
  return constraint->state.phase == PHASE_END;
}
