/* forced.c - the only way in which a text can go on, as bytes and as tokens; see constraint.h. Called by:
 * commands/form/bound.c. */
#include <string.h>

#include "base/utf8.h"
#include "constrain/constraint.h"
#include "constrain/lex.h"

enum {
  MAX_FORCED = 4096, /* bytes that one call looks ahead */
  SEVERAL = 256,     /* in place of a byte: several bytes may follow */
  NO_BYTE = -1
};

/* The state after the constraint's text and some further bytes. */
typedef struct {
  Constraint *c;
  JsonState state;
  uint32_t place; /* the grammar's state */
} Ahead;

/* --- the bytes that may follow */

/* True if the byte may follow in a string. Escapes are left out: they write the same characters. */
static bool string_may_go_on(Machine *m, const JsonState *state, unsigned char byte) {
  if (byte == '"') return lex_may_end(m, state->lex);
  return byte >= 0x20 && byte != '\\' && lex_next(m, state->lex, byte) != LEX_NONE;
}

static bool may_follow(const Ahead *ahead, unsigned char byte) {
  Constraint *c = ahead->c;
  Machine *m = &c->machine;
  const JsonState *state = &ahead->state;
  if (c->grammar) return grammar_next(c->grammar, ahead->place, byte) != GRAMMAR_DEAD;
  const bool in_string = state->phase == PHASE_STRING || state->phase == PHASE_KEY_STRING;
  if (in_string && m->lexes[state->lex].escape == 0) return string_may_go_on(m, state, byte);
  /* constraint_write_plainly() leaves out white space before a colon. */
  if (c->escapes && state->phase == PHASE_COLON && byte != ':') return false;
  JsonState next = *state;
  const ArenaMark mark = machine_mark(m);
  const bool may = machine_push(m, &next, byte);
  machine_release(m, mark);
  return may;
}

/* True if the text may end here, or may go on with a token that the grammar names by its id. */
static bool is_free(const Ahead *ahead) {
  Constraint *c = ahead->c;
  if (!c->grammar) return machine_may_end(&c->machine, &ahead->state);
  return grammar_may_end(c->grammar, ahead->place) || grammar_takes_tokens(c->grammar, ahead->place);
}

/* The only byte that may follow, SEVERAL or NO_BYTE. */
static int only_byte(const Ahead *ahead) {
  int found = NO_BYTE;
  for (int byte = 0; byte < 256; byte++) {
    if (!may_follow(ahead, (unsigned char)byte)) continue;
    if (found != NO_BYTE) return SEVERAL;
    found = byte;
  }
  return found;
}

static bool go_on(Ahead *ahead, unsigned char byte) {
  Constraint *c = ahead->c;
  if (!c->grammar) return machine_push(&c->machine, &ahead->state, byte);
  ahead->place = grammar_next(c->grammar, ahead->place, byte);
  return ahead->place != GRAMMAR_DEAD;
}

/* Appends the forced bytes and moves `ahead` past them. Callers release what this takes of the machine's
 * arena. */
static Status force(Ahead *ahead, Buffer *bytes, Error *err) {
  const size_t start = bytes->size;
  while (bytes->size - start < MAX_FORCED && !is_free(ahead)) {
    const int byte = only_byte(ahead);
    if (byte == NO_BYTE || byte == SEVERAL || !go_on(ahead, (unsigned char)byte)) break;
    const char text = (char)byte;
    TRY(buffer_append(bytes, &text, 1, err));
  }
  return STATUS_OK;
}

static Status check(const Constraint *c, Error *err) {
  return c->grammar ? grammar_check(c->grammar, err) : machine_check(&c->machine, err);
}

Status constraint_forced(Constraint *constraint, Buffer *bytes, Error *err) {
  Machine *m = &constraint->machine;
  const ArenaMark mark = machine_mark(m);
  const size_t start = bytes->size;
  Ahead ahead = {constraint, constraint->state, constraint->place};
  Status status = force(&ahead, bytes, err);
  machine_release(m, mark);
  /* Half a character is not forced text. */
  if (bytes->size > start) bytes->size = start + utf8_valid_prefix(bytes->data + start, bytes->size - start);
  return status == STATUS_OK ? check(constraint, err) : status;
}

/* --- tokens */

/* The children of one node of a trie: `first`, then skip[] of each node, up to `end`. */
typedef struct {
  uint32_t first, end;
} Siblings;

static Siblings below(const Trie *trie, Siblings at, unsigned char byte) {
  for (uint32_t node = at.first; node < at.end; node = trie->skip[node])
    if (trie->bytes[node] == byte) return (Siblings){node + 1, trie->skip[node]};
  return (Siblings){0, 0};
}

/* True if some token begins with bytes[0..size) and then has a byte that may follow. */
static bool may_be_longer(const Ahead *ahead, const char *bytes, size_t size) {
  const Trie *trie = &ahead->c->vocabulary->tokens;
  Siblings at = {0, trie->n};
  for (size_t i = 0; i < size && at.first < at.end; i++) at = below(trie, at, (unsigned char)bytes[i]);
  for (uint32_t node = at.first; node < at.end; node = trie->skip[node])
    if (may_follow(ahead, trie->bytes[node])) return true;
  return false;
}

/* The number of leading bytes whose tokens are the same whatever follows. No token that begins within them
 * reaches beyond bytes[0..size). */
static size_t settled(const Ahead *ahead, const char *bytes, size_t size) {
  size_t at = size > MAX_TOKEN_BYTES ? size - MAX_TOKEN_BYTES : 0;
  while (at < size && !may_be_longer(ahead, bytes + at, size - at)) at++;
  return at;
}

/* Appends the ids of text[n_before..size). *found is false, and nothing is appended, unless text[0..n_before)
 * alone has the ids with which text[0..size) begins. */
static Status encode_after(const Tokenizer *tokenizer, const char *text, size_t n_before, size_t size,
                           IdList *ids, bool *found, Error *err) {
  OWNED(id_list_release) IdList before = {0}, all = {0};
  const EncodeOptions options = {0};
  TRY(tokenizer_encode(tokenizer, text, n_before, options, &before, err));
  TRY(tokenizer_encode(tokenizer, text, size, options, &all, err));
  *found = before.count < all.count &&
           (before.count == 0 || memcmp(before.ids, all.ids, before.count * sizeof *all.ids) == 0);
  for (size_t i = before.count; *found && i < all.count; i++) TRY(id_list_append(ids, all.ids[i], err));
  return STATUS_OK;
}

/* Keeps the ids before `start`, and then those whose bytes are within bytes[0..n_settled). */
static void keep_settled(const Vocabulary *v, const char *bytes, size_t n_settled, size_t start,
                         IdList *ids) {
  size_t at = 0, kept = start;
  for (; kept < ids->count; kept++) {
    size_t size = 0;
    const int32_t id = ids->ids[kept];
    const char *token = id < v->n_ids ? vocabulary_bytes(v, id, &size) : NULL;
    if (size == 0 || size > n_settled - at || memcmp(token, bytes + at, size) != 0) break;
    at += size;
  }
  ids->count = kept;
}

Status constraint_forced_tokens(Constraint *constraint, const Tokenizer *tokenizer, const char *before,
                                size_t n_before, IdList *ids, Error *err) {
  Machine *m = &constraint->machine;
  const ArenaMark mark = machine_mark(m);
  const size_t start = ids->count;
  Ahead ahead = {constraint, constraint->state, constraint->place};
  Buffer text = {0};
  bool found = false;
  Status status = buffer_append(&text, before, n_before, err);
  if (status == STATUS_OK) status = force(&ahead, &text, err);
  const size_t size = text.size - n_before;
  const size_t n_settled = size ? settled(&ahead, text.data + n_before, size) : 0;
  machine_release(m, mark);
  if (status == STATUS_OK) status = check(constraint, err);
  const size_t whole = n_settled ? utf8_valid_prefix(text.data, text.size) : 0;
  if (status == STATUS_OK && n_settled && whole >= n_before)
    status = encode_after(tokenizer, text.data, n_before, whole, ids, &found, err);
  if (found) keep_settled(constraint->vocabulary, text.data + n_before, n_settled, start, ids);
  if (status != STATUS_OK) ids->count = start;
  buffer_release(&text);
  return status;
}
