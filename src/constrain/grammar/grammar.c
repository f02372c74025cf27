/* grammar.c - see grammar.h. */
#include "constrain/grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash64.h"
#include "constrain/grammar/productions.h"
#include "constrain/lang/regular_expression.h"
#include "constrain/lex.h"
#include "constrain/masks/lex_masks.h"
#include "constrain/store/key_table.h"

enum {
  MAX_PLACES = 4096,    /* places of a state; also stacks that expand() meets for one state */
  MAX_STACKS = 1 << 22, /* entries of Grammar.stacks */
  MAX_STATES = 1 << 22,
  KEPT_STATES = 1 << 16, /* above this many states grammar_settle() forgets them */
  KEPT_LEXES = 1 << 14,  /* above this many lex states of parts, grammar_settle() forgets them */
  N_MASKS = 64,
};

/* The text after a part: the symbols from `at` on, then the stack `below` (0: the end of the text). */
typedef struct {
  uint32_t at, below;
} Stack;

typedef struct {
  Lang lang; /* the rest of the part, never LANG_EMPTY or LANG_NONE; or PLACE_TOKEN | a TokenSet */
  uint32_t stack;
} Place;
#define PLACE_TOKEN (UINT32_C(1) << 31)

static bool place_takes(Place place, int32_t id) {
  if (!(place.lang & PLACE_TOKEN)) return false;
  const TokenSet token = place.lang & ~PLACE_TOKEN;
  return (token >> 1 == (uint32_t)id) != (token & 1);
}

typedef struct {
  uint32_t first, n; /* its places are Grammar.places[first .. first + n) */
  bool accepts;      /* the text may end */
} State;

typedef struct {
  uint32_t state; /* GRAMMAR_DEAD: none */
  uint64_t *bits; /* [n_words] */
} KeptMask;

struct Grammar {
  SchemaSet set; /* only set.langs is used */
  Productions productions;
  Stack *stacks; /* [n_stacks] number 0 is the end of the text */
  size_t n_stacks, stacks_capacity;
  KeyTable stacks_by_content;
  State *states; /* [n_states] number 0 is GRAMMAR_DEAD */
  size_t n_states, states_capacity;
  KeyTable states_by_content;
  Place *places; /* [n_places] of all states */
  size_t n_places, places_capacity;
  KeyTable transitions;    /* key: state and byte, plus one */
  KeptMask masks[N_MASKS]; /* the mask of state s is at s % N_MASKS */
  Machine machine;         /* only the machine's lex states are used */
  LexMasks last, parts;    /* masks of parts: `last` where the part ends the text, else `parts` */

  /* The state that is being made. */
  Place *made; /* [n_made] */
  size_t n_made, made_capacity;
  Stack *expanded; /* [n_expanded] stacks that expand() has met */
  size_t n_expanded, expanded_capacity;
  bool accepts;

  Failure failure;
};

static void fail(Grammar *g, Status status, const char *message) {
  failure_set(&g->failure, status, message);
}

Status grammar_check(const Grammar *g, Error *err) {
  TRY(failure_check(&g->failure, err));
  return machine_check(&g->machine, err);
}

/* --- stacks */

/* The number of the stack {at, below}; `below` if no symbols are at `at`. */
static uint32_t make_stack(Grammar *g, uint32_t at, uint32_t below) {
  const Stack stack = {at, below};
  if (g->productions.symbols[at].kind == SYMBOL_END) return below;
  const uint64_t hash = hash64(&stack, sizeof stack, 0);
  const KeyTable *known = &g->stacks_by_content;
  for (const KeyEntry *e = key_table_find(known, hash); e; e = key_table_next(known, e))
    if (memcmp(&g->stacks[e->value.number], &stack, sizeof stack) == 0) return e->value.number;
  if (g->n_stacks == MAX_STACKS)
    return fail(g, STATUS_FAILED, "the text is too deep for the grammar: over 4,194,304 stacks"), 0;
  return key_table_append(&g->stacks_by_content, hash, &g->stacks, &g->n_stacks, &g->stacks_capacity, &stack,
                          sizeof stack, &g->failure);
}

/* --- states */

static void expand(Grammar *g, Stack stack);

/* Adds a place. If its language has the empty string, also adds what follows the place. Languages with the
 * same stack are united. */
static void add_place(Grammar *g, Lang lang, uint32_t stack) {
  const bool is_token = lang & PLACE_TOKEN;
  if (!is_token && lang_has_empty(&g->set.langs, lang)) {
    if (stack == 0) g->accepts = true;
    if (stack > 0) expand(g, g->stacks[stack]);
  }
  if (lang == LANG_EMPTY || lang == LANG_NONE || !langs_work(&g->set.langs, 1 + g->n_made)) return;
  for (size_t i = 0; i < g->n_made; i++) {
    Place *other = &g->made[i];
    if (other->stack != stack || (is_token ? other->lang != lang : (other->lang & PLACE_TOKEN) != 0))
      continue;
    if (!is_token) other->lang = lang_or(&g->set.langs, other->lang, lang);
    return;
  }
  if (g->n_made == MAX_PLACES) {
    fail(g, STATUS_USAGE, "the grammar is too ambiguous: a text can be read in over 4,096 ways");
  } else if (failure_grow(&g->failure, &g->made, &g->made_capacity, g->n_made + 1, sizeof *g->made)) {
    g->made[g->n_made++] = (Place){lang, stack};
  }
}

/* Adds the places with which the symbols of a stack begin. */
static void expand(Grammar *g, Stack stack) {
  if (!langs_work(&g->set.langs, 1 + g->n_expanded)) return;
  for (size_t i = 0; i < g->n_expanded; i++)
    if (memcmp(&g->expanded[i], &stack, sizeof stack) == 0) return;
  if (has_failed(&g->failure) || g->n_expanded == MAX_PLACES) {
    fail(g, STATUS_USAGE, "the grammar is too ambiguous: a text can be read in over 4,096 ways");
    return;
  }
  if (!failure_grow(&g->failure, &g->expanded, &g->expanded_capacity, g->n_expanded + 1, sizeof *g->expanded))
    return;
  g->expanded[g->n_expanded++] = stack;
  const Productions *p = &g->productions;
  const Symbol symbol = p->symbols[stack.at];
  if (symbol.kind == SYMBOL_END) { /* an empty alternative */
    if (stack.below == 0) g->accepts = true;
    if (stack.below > 0) expand(g, g->stacks[stack.below]);
    return;
  }
  const uint32_t after = make_stack(g, stack.at + 1, stack.below);
  if (symbol.kind != SYMBOL_RULE) {
    add_place(g, symbol.kind == SYMBOL_TOKEN ? PLACE_TOKEN | symbol.number : symbol.number, after);
    return;
  }
  for (uint32_t a = p->rules[symbol.number].first; a != NO_ALTERNATIVE; a = p->alternatives[a].next)
    expand(g, (Stack){p->alternatives[a].start, after});
}

static int by_stack(const void *a, const void *b) {
  const Place *x = a, *y = b;
  if (x->stack == y->stack) return (x->lang > y->lang) - (x->lang < y->lang);
  return x->stack > y->stack ? 1 : -1;
}

static bool same_state(const Grammar *g, const State *s) {
  return s->n == g->n_made && s->accepts == g->accepts &&
         (s->n == 0 || memcmp(g->places + s->first, g->made, s->n * sizeof *g->made) == 0);
}

/* The number of the state with the places g->made[0..n_made) and g->accepts; a new state is added.
 * GRAMMAR_DEAD if there are no places and the text may not end, or after a failure. */
static uint32_t intern(Grammar *g) {
  const size_t n = g->n_made;
  if (has_failed(&g->failure) || langs_check(&g->set.langs, NULL) != STATUS_OK) return GRAMMAR_DEAD;
  if (n == 0 && !g->accepts) return GRAMMAR_DEAD;
  if (n > 0) qsort(g->made, n, sizeof *g->made, by_stack);
  const uint64_t hash = hash64(n ? (const void *)g->made : "", n * sizeof *g->made, g->accepts);
  const KeyTable *known = &g->states_by_content;
  for (const KeyEntry *e = key_table_find(known, hash); e; e = key_table_next(known, e))
    if (same_state(g, &g->states[e->value.number])) return e->value.number;
  if (g->n_states == MAX_STATES)
    return fail(g, STATUS_USAGE, "the grammar is too large: over 4,194,304 states"), GRAMMAR_DEAD;
  if (!failure_grow(&g->failure, &g->places, &g->places_capacity, g->n_places + n, sizeof *g->places))
    return GRAMMAR_DEAD;
  const State state = {(uint32_t)g->n_places, (uint32_t)n, g->accepts};
  if (n > 0) memcpy(g->places + g->n_places, g->made, n * sizeof *g->made);
  g->n_places += n;
  return key_table_append(&g->states_by_content, hash, &g->states, &g->n_states, &g->states_capacity, &state,
                          sizeof state, &g->failure);
}

static void begin_state(Grammar *g) {
  g->n_made = g->n_expanded = 0;
  g->accepts = false;
}

uint32_t grammar_begin(Grammar *g) {
  const Productions *p = &g->productions;
  begin_state(g);
  for (uint32_t a = p->rules[0].first; a != NO_ALTERNATIVE; a = p->alternatives[a].next)
    expand(g, (Stack){p->alternatives[a].start, 0});
  return intern(g);
}

/* --- transitions */

static uint32_t make_next(Grammar *g, uint32_t state, unsigned char byte) {
  begin_state(g);
  for (uint32_t i = 0; i < g->states[state].n; i++) {
    const Place place = g->places[g->states[state].first + i];
    if (place.lang & PLACE_TOKEN) continue;
    const Lang next = lang_next(&g->set.langs, place.lang, byte);
    if (next != LANG_NONE && lang_is_alive(&g->set.langs, next)) add_place(g, next, place.stack);
  }
  return intern(g);
}

uint32_t grammar_next(Grammar *g, uint32_t state, unsigned char byte) {
  const uint64_t key = ((uint64_t)state << 8 | byte) + 1;
  if (state == GRAMMAR_DEAD) return GRAMMAR_DEAD;
  const KeyEntry *known = key_table_find(&g->transitions, key);
  if (!langs_work(&g->set.langs, 4)) return GRAMMAR_DEAD;
  if (known) return known->value.number;
  const uint32_t next = make_next(g, state, byte);
  if (!key_table_add(&g->transitions, (KeyEntry){key, {.number = next}}))
    return fail(g, STATUS_FAILED, "out of memory"), GRAMMAR_DEAD;
  return next;
}

/* Adds the places of a stack; stack 0: the text may end. */
static void add_stack(Grammar *g, uint32_t stack) {
  if (stack == 0) g->accepts = true;
  if (stack > 0) expand(g, g->stacks[stack]);
}

uint32_t grammar_next_token(Grammar *g, uint32_t state, int32_t id, const char *bytes, size_t size) {
  uint32_t by_bytes = size > 0 ? state : GRAMMAR_DEAD;
  for (size_t i = 0; i < size && by_bytes != GRAMMAR_DEAD; i++)
    by_bytes = grammar_next(g, by_bytes, (unsigned char)bytes[i]);
  if (!grammar_takes_tokens(g, state)) return by_bytes;
  begin_state(g);
  for (uint32_t i = 0; i < g->states[state].n; i++) {
    const Place place = g->places[g->states[state].first + i];
    if (place_takes(place, id)) add_stack(g, place.stack);
  }
  for (uint32_t i = 0; i < g->states[by_bytes].n; i++) {
    const Place place = g->places[g->states[by_bytes].first + i];
    add_place(g, place.lang, place.stack);
  }
  g->accepts |= g->states[by_bytes].accepts;
  return intern(g);
}

bool grammar_takes_tokens(const Grammar *g, uint32_t state) {
  for (uint32_t i = 0; i < g->states[state].n; i++)
    if (g->places[g->states[state].first + i].lang & PLACE_TOKEN) return true;
  return false;
}

bool grammar_has_tokens(const Grammar *g) {
  for (size_t i = 0; i < g->productions.n_symbols; i++)
    if (g->productions.symbols[i].kind == SYMBOL_TOKEN) return true;
  return false;
}

bool grammar_names_token(const Grammar *g, int32_t id) {
  const Symbol named = {SYMBOL_TOKEN, (uint32_t)id << 1};
  for (size_t i = 0; i < g->productions.n_symbols; i++)
    if (memcmp(&g->productions.symbols[i], &named, sizeof named) == 0) return true;
  return false;
}

bool grammar_may_end(const Grammar *g, uint32_t state) {
  return g->states[state].accepts;
}

bool grammar_must_end(const Grammar *g, uint32_t state) {
  return g->states[state].accepts && g->states[state].n == 0;
}

/* --- masks: the union over the state's places
 *
 * Most tokens end within a regular part of the grammar, such as a string. Only that part decides which of
 * them are allowed: lex_masks.c finds them, and the nodes of the trie at which the part may end. Below these
 * nodes the state after the part decides. */

/* Adds the tokens of nodes first..last-1, and of the nodes below, whose bytes may follow `state`. */
static void walk(Grammar *g, const Trie *t, uint32_t first, uint32_t last, uint32_t state, uint64_t *mask) {
  for (uint32_t node = first; node < last; node = t->skip[node]) {
    const uint32_t next = grammar_next(g, state, t->bytes[node]);
    if (next == GRAMMAR_DEAD) continue;
    for (uint32_t i = t->entries[node]; i < t->entries[node + 1]; i++) mask_add(mask, t->values[i]);
    walk(g, t, node + 1, t->skip[node], next, mask);
  }
}

static void add_mask_of_token(const Vocabulary *v, Place place, uint64_t *mask) {
  for (int32_t id = 0; id < v->n_ids; id++)
    if (place_takes(place, id)) mask_add(mask, id);
}

static void add_mask_of_place(Grammar *g, const Vocabulary *v, Place place, uint64_t *mask) {
  if (place.lang & PLACE_TOKEN) {
    add_mask_of_token(v, place, mask);
    return;
  }
  LexMasks *masks = place.stack == 0 ? &g->last : &g->parts;
  const uint32_t lex = lex_begin(&g->machine, true, &place.lang, 1);
  const LexMask *inside = lex == LEX_NONE ? NULL : lex_mask(masks, lex, false);
  if (!inside) return;
  for (uint32_t i = 0; i < v->n_words && inside->base; i++) mask[i] |= inside->base[i];
  for (size_t i = 0; i < inside->n_tokens; i++) mask_add(mask, inside->tokens[i].id);
  if (inside->n_exits == 0) return;
  begin_state(g);
  expand(g, g->stacks[place.stack]);
  const uint32_t after = intern(g);
  const Trie *t = &v->tokens;
  for (size_t i = 0; i < inside->n_exits && after != GRAMMAR_DEAD; i++)
    walk(g, t, inside->exits[i].node + 1, t->skip[inside->exits[i].node], after, mask);
}

void grammar_mask(Grammar *g, const Vocabulary *v, uint32_t state, uint64_t *mask) {
  KeptMask *kept = &g->masks[state % N_MASKS];
  langs_begin_work(&g->set.langs);
  if (!kept->bits) kept->bits = mem_alloc(v->n_words, sizeof *kept->bits, "masks", NULL);
  if (!kept->bits) {
    fail(g, STATUS_FAILED, "out of memory");
    return;
  }
  g->last.v = g->parts.v = v;
  if (kept->state != state) {
    kept->state = state;
    memset(kept->bits, 0, v->n_words * sizeof *kept->bits);
    for (uint32_t i = 0; i < g->states[state].n; i++)
      add_mask_of_place(g, v, g->places[g->states[state].first + i], kept->bits);
  }
  for (uint32_t i = 0; i < v->n_words; i++) mask[i] |= kept->bits[i];
}

/* --- opening */

static void forget_states(Grammar *g) {
  key_table_reset(&g->states_by_content);
  key_table_release(&g->transitions);
  g->n_places = 0;
  g->n_states = 1;
  for (int i = 0; i < N_MASKS; i++) g->masks[i].state = GRAMMAR_DEAD;
}

static void forget_parts(Grammar *g) {
  lex_masks_release(&g->last);
  lex_masks_release(&g->parts);
  lex_forget(&g->machine, 1);
}

uint32_t grammar_settle(Grammar *g, uint32_t state) {
  langs_begin_work(&g->set.langs);
  langs_tidy(&g->set.langs);
  if (g->machine.n_lexes > KEPT_LEXES) forget_parts(g);
  if (g->n_states <= KEPT_STATES) return state;
  const State kept = g->states[state];
  begin_state(g);
  if (!failure_grow(&g->failure, &g->made, &g->made_capacity, kept.n + 1, sizeof *g->made))
    return GRAMMAR_DEAD;
  if (kept.n) memcpy(g->made, g->places + kept.first, kept.n * sizeof *g->made);
  g->n_made = kept.n;
  g->accepts = kept.accepts;
  forget_states(g);
  return intern(g);
}

/* Makes a grammar without productions, with state 0 and stack 0. The grammar takes over *langs. */
static Status open_empty(Langs *langs, Grammar **grammar, Error *err) {
  Grammar *g = *grammar = mem_alloc(1, sizeof *g, "a grammar", err);
  if (!g) return langs_close(langs), STATUS_FAILED;
  g->set.langs = *langs;
  *langs = (Langs){.round = 0};
  TRY(machine_open(&g->set, &g->machine, err));
  g->last = (LexMasks){.m = &g->machine};
  g->parts = (LexMasks){.m = &g->machine, .ends = true};
  TRY(mem_grow(&g->states, &g->states_capacity, 64, sizeof *g->states, "a grammar", err));
  TRY(mem_grow(&g->stacks, &g->stacks_capacity, 64, sizeof *g->stacks, "a grammar", err));
  g->states[0] = (State){0};
  g->n_states = g->n_stacks = 1;
  return STATUS_OK;
}

/* Ends the opening of a grammar. Closes it after a failure, or if no text fits it. */
static Status finish(Grammar **grammar, const char *name, Status status, Error *err) {
  Error inner;
  if (status == STATUS_OK && grammar_begin(*grammar) == GRAMMAR_DEAD) {
    status = grammar_check(*grammar, &inner);
    status = status == STATUS_OK ? error_set(err, STATUS_USAGE, "%s: no text fits it", name)
                                 : error_set(err, status, "%s: %s", name, inner.text);
  }
  if (status == STATUS_OK) return status;
  grammar_close(*grammar);
  *grammar = NULL;
  return status;
}

Status grammar_open(const char *name, const char *text, size_t size, const Tokenizer *tokenizer,
                    Grammar **grammar, Error *err) {
  GbnfTree tree = {0};
  Langs langs;
  Status opened = langs_open(&langs, err), status = open_empty(&langs, grammar, err);
  if (opened != STATUS_OK) status = opened;
  if (status == STATUS_OK)
    status = gbnf_parse(&(*grammar)->set.langs, name, text, size, tokenizer, &tree, err);
  if (status == STATUS_OK)
    status = productions_make(&(*grammar)->set.langs, name, &tree, &(*grammar)->productions, err);
  gbnf_release(&tree);
  return finish(grammar, name, status, err);
}

Status grammar_open_lang(const char *name, Langs *langs, Lang lang, Grammar **grammar, Error *err) {
  Error inner;
  Status status = open_empty(langs, grammar, err);
  if (status == STATUS_OK) {
    Langs *own = &(*grammar)->set.langs;
    if (!lang_is_alive(own, lang)) lang = LANG_NONE;
    status = langs_check(own, &inner);
    if (status != STATUS_OK) error_set(err, status, "%s: %s", name, inner.text);
  }
  if (status == STATUS_OK) status = productions_make_lang(lang, &(*grammar)->productions, err);
  return finish(grammar, name, status, err);
}

Status grammar_open_regular_expression(const char *name, const char *text, size_t size, Grammar **grammar,
                                       Error *err) {
  Error inner;
  Langs langs;
  Lang lang = LANG_NONE;
  *grammar = NULL;
  Status status = langs_open(&langs, &inner);
  if (status == STATUS_OK) status = regular_expression_parse(&langs, text, size, REGEX_WHOLE, &lang, &inner);
  if (status == STATUS_OK) return grammar_open_lang(name, &langs, lang_text(&langs, lang), grammar, err);
  langs_close(&langs);
  return error_set(err, status, "%s: %s", name, inner.text);
}

void grammar_close(Grammar *g) {
  if (!g) return;
  for (int i = 0; i < N_MASKS; i++) free(g->masks[i].bits);
  lex_masks_close(&g->last);
  lex_masks_close(&g->parts);
  machine_close(&g->machine);
  productions_release(&g->productions);
  langs_close(&g->set.langs);
  free(g->stacks);
  key_table_release(&g->stacks_by_content);
  free(g->states);
  key_table_release(&g->states_by_content);
  free(g->places);
  key_table_release(&g->transitions);
  free(g->made);
  free(g->expanded);
  free(g);
}
