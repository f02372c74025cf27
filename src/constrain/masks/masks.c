/* masks.c - walks the tries of the vocabulary with the machine; see masks.h. Called by: constraint.c.
 *
 * Most tokens are parts of strings. If a string may hold anything, or any text of some length, its mask was
 * made with the vocabulary. lex_masks.c finds the masks of other strings. Tokens that end a string alike
 * differ only in the rest, which follows the quote. For each such end the rests are walked once. White space
 * changes nothing between values, so tokens that begin with it are walked without it.
 *
 * Whole masks are kept by a hash of all that they depend on (frame_print()): a member or item like an earlier
 * one costs a copy. */
#include "constrain/masks/masks.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash64.h"
#include "constrain/frames.h"
#include "constrain/lex.h"
#include "constrain/store/few.h"

#define KEPT_BYTES  ((size_t)12 << 20) /* of a KnownTable's values; if they take more, all are released */
#define MAX_TELLING 16
#define MAX_EARLY   4096 /* compute_first() stops once it has made this many expressions (lang.h) */
#define FEW_QUOTES  4    /* in groups of up to so many tokens, rests that are not kept are tried one by one */

static bool no_memory(Masks *masks) {
  machine_fail(masks->m, "out of memory");
  return false;
}

static void known_clear(KnownTable *table) {
  key_table_release(&table->table);
  arena_release(&table->memory);
}

/* Adds a language of keys to masks->telling (masks.h), unless it is there. Beyond MAX_TELLING it only notes
 * that there are more. */
static void add_telling(Masks *masks, Lang lang) {
  masks->tells &= few_add(masks->telling, &masks->n_telling, MAX_TELLING, lang);
}

void masks_close(Masks *masks) {
  lex_masks_close(&masks->lex);
  free(masks->rests);
  free(masks->telling);
  known_clear(&masks->masks_by_state);
  known_clear(&masks->rests_by_end);
  *masks = (Masks){.m = NULL};
}

/* --- what is known already */

static void known_add(Masks *masks, KnownTable *known, uint64_t key, const void *value) {
  if (!key_table_add(&known->table, (KeyEntry){key, {.pointer = value}})) no_memory(masks);
}

/* Keeps the words of the mask that differ from the base. */
static void keep_mask(Masks *masks, uint64_t key, const uint64_t *base, const uint64_t *mask) {
  KnownTable *table = &masks->masks_by_state;
  if (table->memory.total > KEPT_BYTES) known_clear(table);
  const uint32_t n_words = masks->v->n_words;
  uint32_t n = 0;
  for (uint32_t i = 0; i < n_words; i++) n += mask[i] != (base ? base[i] : 0);
  KnownMask *known =
      arena_alloc(&table->memory, 1, sizeof *known + n * (sizeof(uint64_t) + sizeof(uint32_t)), NULL);
  if (!known) {
    no_memory(masks);
    return;
  }
  *known = (KnownMask){.base = base, .words = (uint64_t *)(known + 1)};
  known->indices = (uint32_t *)(known->words + n);
  for (uint32_t i = 0; i < n_words; i++) {
    if (mask[i] == (base ? base[i] : 0)) continue;
    known->indices[known->n] = i;
    known->words[known->n++] = mask[i];
  }
  known_add(masks, table, key, known);
}

static void begin_mask(const Masks *masks, const uint64_t *base, uint64_t *mask) {
  if (base) {
    memcpy(mask, base, masks->v->n_words * sizeof *mask);
  } else {
    memset(mask, 0, masks->v->n_words * sizeof *mask);
  }
}

static void take_known(const Masks *masks, const KnownMask *known, uint64_t *mask) {
  begin_mask(masks, known->base, mask);
  for (uint32_t i = 0; i < known->n; i++) mask[known->indices[i]] = known->words[i];
}

/* A hash of all that the mask depends on; 0: the mask is not to be kept. */
static uint64_t state_key(const Masks *masks, const JsonState *state) {
  const Machine *m = masks->m;
  const bool in_text = state->phase >= PHASE_STRING && state->phase <= PHASE_NUMBER;
  if (in_text && state->phase != PHASE_KEY_STRING && state->top->hashing) return 0;
  const uint64_t parts[] = {frame_print(m, state->top),
                            (uint64_t)state->phase << 32 | (in_text ? state->lex : 0),
                            state->phase == PHASE_LITERAL ? (uint64_t)state->kind << 8 | state->at : 0};
  uint64_t key = hash64(parts, sizeof parts, 11);
  if (state->phase == PHASE_KEY_STRING)
    key = hash64(m->text + state->start, state->n_text - state->start, key);
  return key ? key : 1;
}

/* --- walking a trie with the whole machine */

typedef struct {
  Machine *m;
  const Trie *trie;
  uint64_t *mask; /* a bit for each value of the trie */
} Walk;

static void take_values(const Walk *w, uint32_t node) {
  for (uint32_t i = w->trie->entries[node]; i < w->trie->entries[node + 1]; i++)
    mask_add(w->mask, w->trie->values[i]);
}

/* Walks nodes first..last-1, which follow `state`. */
static void walk(const Walk *w, uint32_t first, uint32_t last, const JsonState *state) {
  const Trie *t = w->trie;
  const bool in_text = state->phase >= PHASE_STRING && state->phase <= PHASE_NUMBER;
  const bool any_text = in_text && lex_takes_any_text(w->m, state->lex);
  const uint64_t special = CLASS_BIT(CLASS_CONTROL) | CLASS_BIT(CLASS_MIDDLE) | CLASS_BIT(CLASS_PARTIAL) |
                           CLASS_BIT(class_of_byte('"')) | CLASS_BIT(class_of_byte('\\'));
  for (uint32_t node = first; node < last; node = t->skip[node]) {
    if (any_text && !(t->below[node] & special)) {
      for (uint32_t i = t->entries[node]; i < t->entries[t->skip[node]]; i++) mask_add(w->mask, t->values[i]);
      continue;
    }
    const unsigned char byte = t->bytes[node];
    JsonState next = *state;
    uint32_t lex = in_text ? lex_next(w->m, state->lex, byte) : LEX_NONE;
    if (lex != LEX_NONE) {
      next.lex = lex;
      if (!machine_write(w->m, next.n_text++, byte)) return;
      take_values(w, node);
      walk(w, node + 1, t->skip[node], &next);
      continue;
    }
    ArenaMark mark = machine_mark(w->m);
    if (machine_push(w->m, &next, byte)) {
      take_values(w, node);
      walk(w, node + 1, t->skip[node], &next);
    }
    machine_release(w->m, mark);
  }
}

static void walk_trie(Machine *m, const Trie *trie, uint64_t *mask, const JsonState *state) {
  const Walk w = {m, trie, mask};
  walk(&w, 0, trie->n, state);
}

/* Adds the tokens that may come between values. These are tokens of white space alone, and tokens whose bytes
 * after leading white space (Vocabulary.unspaced) the machine accepts. */
static void between_values(Masks *masks, const JsonState *state, uint64_t *mask) {
  for (uint32_t i = 0; i < masks->v->n_words; i++) mask[i] |= masks->v->space[i];
  if (state->phase != PHASE_END) walk_trie(masks->m, &masks->v->unspaced, mask, state);
}

/* --- the ends of strings and keys */

static void add_group(const Vocabulary *v, uint32_t group, const uint64_t *rests, uint64_t *mask) {
  for (uint32_t i = v->groups[group].first; i < v->groups[group].last; i++)
    if (mask_has(rests, (int32_t)v->quotes[i].rest)) mask_add(mask, v->quotes[i].id);
}

/* Adds the tokens of a small group whose rests the machine takes. `state` is after the quote. */
static void add_few(Masks *masks, const JsonState *state, uint32_t group, uint64_t *mask) {
  const Vocabulary *v = masks->v;
  for (uint32_t i = v->groups[group].first; i < v->groups[group].last; i++) {
    size_t size, at = v->quotes[i].size + 1;
    const char *bytes = vocabulary_bytes(v, v->quotes[i].id, &size);
    JsonState next = *state;
    ArenaMark mark = machine_mark(masks->m);
    while (at < size && machine_push(masks->m, &next, (unsigned char)bytes[at])) at++;
    if (at == size) mask_add(mask, v->quotes[i].id);
    machine_release(masks->m, mark);
  }
}

/* Keeps masks->rests; without `ends`, keeps that the string or key may not end. */
static void keep_rests(Masks *masks, uint64_t key, bool ends) {
  KnownTable *table = &masks->rests_by_end;
  if (table->memory.total > KEPT_BYTES) known_clear(table);
  const size_t size = masks->rest_words * sizeof *masks->rests;
  uint64_t *kept = ends ? arena_alloc(&table->memory, 1, size, NULL) : NULL;
  if (kept) memcpy(kept, masks->rests, size);
  if (ends && !kept) {
    no_memory(masks);
  } else {
    known_add(masks, table, key, kept);
  }
}

/* Ends the string or key that is open and adds the group's tokens. `key` is a hash of all that the end
 * depends on; 0: the result is not kept. */
static void end_group(Masks *masks, const JsonState *state, uint32_t group, uint64_t key, uint64_t *mask) {
  const KeyEntry *known = key ? key_table_find(&masks->rests_by_end.table, key) : NULL;
  if (known) {
    if (known->value.pointer) add_group(masks->v, group, known->value.pointer, mask);
    return;
  }
  const bool few = masks->v->groups[group].last - masks->v->groups[group].first <= FEW_QUOTES;
  JsonState ended = *state;
  ArenaMark mark = machine_mark(masks->m);
  bool ends = machine_end_text(masks->m, &ended);
  ended.n_text++;
  if (ends && few && !key) add_few(masks, &ended, group, mask);
  if (ends && (key || !few)) {
    memset(masks->rests, 0, masks->rest_words * sizeof *masks->rests);
    mask_add(masks->rests, 0);
    walk_trie(masks->m, &masks->v->rests, masks->rests, &ended);
    add_group(masks->v, group, masks->rests, mask);
  }
  machine_release(masks->m, mark);
  if (key) keep_rests(masks, key, ends);
}

static uint64_t end_key(const Masks *masks, const JsonState *state, uint64_t what, uint64_t which) {
  const uint64_t parts[] = {frame_print(masks->m, state->top), what, which};
  uint64_t key = hash64(parts, sizeof parts, 12);
  return key ? key : 1;
}

enum { END_STRING, END_NAMED_KEY, END_OTHER_KEY };

/* Writes the content of a group after the text; *next is the state that follows, but for its lex. */
static bool write_content(Masks *masks, const JsonState *state, uint32_t group, JsonState *next) {
  const QuoteToken *quote = &masks->v->quotes[masks->v->groups[group].first];
  size_t size;
  const char *bytes = vocabulary_bytes(masks->v, quote->id, &size);
  *next = *state;
  for (uint32_t i = 0; i < quote->size; i++)
    if (!machine_write(masks->m, next->n_text++, (unsigned char)bytes[i])) return false;
  return true;
}

/* Adds the group's tokens that may end the string. `lex` is the string's state after the group's content. */
static void end_string(Masks *masks, const JsonState *state, uint32_t group, uint32_t lex, uint64_t *mask) {
  JsonState next;
  if (!write_content(masks, state, group, &next)) return;
  next.lex = lex;
  uint64_t key = 0;
  if (!state->top->hashing) key = end_key(masks, state, END_STRING, lex_verdict_hash(masks->m, lex));
  end_group(masks, &next, group, key, mask);
}

/* A bit for each language of masks->telling; it is set if the language has this key. */
static uint64_t key_signature(Masks *masks, const char *key, size_t size) {
  uint64_t bits = 0;
  for (uint32_t i = 0; i < masks->n_telling; i++)
    if (lang_contains(&masks->m->set->langs, masks->telling[i], key, size)) bits |= UINT64_C(1) << i;
  return bits;
}

/* end_string() of a key. Its result is kept, and used again for keys with the same effect. If `alike`, all
 * keys that no keyword names have the same effect. Otherwise those with the same key_signature() have it, if
 * telling[] of masks.h is complete. */
static void end_key_string(Masks *masks, const JsonState *state, uint32_t group, uint32_t lex, bool alike,
                           uint64_t *mask) {
  Machine *m = masks->m;
  JsonState next;
  if (!write_content(masks, state, group, &next)) return;
  next.lex = lex;
  const char *key = m->text + next.start;
  size_t size = next.n_text - next.start;
  if (memchr(key, '\\', size)) {
    if (!machine_decode(m, &next)) return;
    key = m->decoded.data ? m->decoded.data : "", size = m->decoded.size;
  }
  if (frame_has_had(state->top, key, size)) return;
  const uint32_t number = schema_key(m->set, key, size, false);
  const QuoteGroup *quotes = &masks->v->groups[group];
  uint64_t known_by = 0;
  if (number != UINT32_MAX) {
    if (quotes->last - quotes->first > FEW_QUOTES) known_by = end_key(masks, state, END_NAMED_KEY, number);
  } else if (alike || masks->tells) {
    known_by = end_key(masks, state, END_OTHER_KEY, alike ? 0 : key_signature(masks, key, size));
  }
  end_group(masks, &next, group, known_by, mask);
}

/* Adds the tokens with which the string or key ends. */
static void ends_of_text(Masks *masks, const JsonState *state, uint64_t *mask) {
  const Vocabulary *v = masks->v;
  Machine *m = masks->m;
  const bool is_key = state->phase == PHASE_KEY_STRING;
  const bool alike = is_key && frame_keys_are_alike(m, state->top);
  for (uint32_t i = 0; i < v->n_groups; i++) {
    const QuoteToken *quote = &v->quotes[v->groups[i].first];
    size_t size;
    const char *bytes = vocabulary_bytes(v, quote->id, &size);
    uint32_t lex = state->lex;
    for (uint32_t j = 0; j < quote->size && lex != LEX_NONE; j++)
      lex = lex_next(m, lex, (unsigned char)bytes[j]);
    if (lex == LEX_NONE || !lex_may_end(m, lex)) continue;
    if (is_key) {
      end_key_string(masks, state, i, lex, alike, mask);
    } else {
      end_string(masks, state, i, lex, mask);
    }
  }
}

/* --- strings of restricted languages */

/* Adds the tokens of made->exits. They end a string whose state is within a character or an escape. */
static void ends_within(Masks *masks, const LexMask *made, const JsonState *state, uint64_t *mask) {
  Machine *m = masks->m;
  const Trie *t = &masks->v->tokens;
  const Walk w = {m, t, mask};
  for (size_t i = 0; i < made->n_exits; i++) {
    const uint32_t node = made->exits[i].node;
    JsonState next = *state;
    next.lex = made->exits[i].lex;
    next.n_text += made->exits[i].n_before;
    /* The bytes before the quote are those on the way to the node. */
    for (uint32_t back = made->exits[i].n_before, at = node; back-- > 0;) {
      do at--;
      while (t->skip[at] <= node);
      if (!machine_write(m, state->n_text + back, t->bytes[at])) return;
    }
    ArenaMark mark = machine_mark(m);
    if (machine_push(m, &next, '"')) {
      take_values(&w, node);
      walk(&w, node + 1, t->skip[node], &next);
    }
    machine_release(m, mark);
  }
}

/* Fills the mask with the tokens that stay inside the string or key. Its state `lex` is between characters.
 * Returns the base of begin_mask(). */
static const uint64_t *stay_inside(Masks *masks, uint32_t lex, uint64_t *mask) {
  Machine *m = masks->m;
  const uint32_t left = m->lexes[lex].left;
  const uint32_t exact = lex_alone(m, lex), relaxed = lex_relaxed(m, exact);
  const bool limited = relaxed != exact || left != LANG_NO_END;
  const LexMask *made = lex_mask(&masks->lex, relaxed, limited);
  if (!made) return NULL;
  begin_mask(masks, limited ? NULL : made->base, mask);
  if (!limited) {
    for (size_t i = 0; i < made->n_tokens; i++) mask_add(mask, made->tokens[i].id);
    return made->base;
  }
  const bool near = relaxed != exact && left > LANG_RELAXED;
  lex_mask_limited(&masks->lex, made, relaxed, near ? LANG_RELAXED : left, mask);
  if (near) lex_mask_rest(&masks->lex, made, exact, left, mask);
  return NULL;
}

/* compute() in a string or key of a restricted language. */
static const uint64_t *in_restricted(Masks *masks, const JsonState *state, uint64_t *mask) {
  if (lex_classes(masks->m, state->lex)->between) {
    const uint64_t *base = stay_inside(masks, state->lex, mask);
    ends_of_text(masks, state, mask);
    return base;
  }
  const LexMask *made = lex_mask(&masks->lex, state->lex, false);
  if (!made) return NULL;
  begin_mask(masks, NULL, mask);
  for (size_t i = 0; i < made->n_tokens; i++) mask_add(mask, made->tokens[i].id);
  ends_within(masks, made, state, mask);
  return NULL;
}

/* --- the whole */

static void in_number(Masks *masks, const JsonState *state, uint64_t *mask) {
  const Trie *t = &masks->v->tokens;
  const Walk w = {masks->m, t, mask};
  for (uint32_t node = 0; node < t->n; node = t->skip[node])
    if (t->bytes[node] && strchr("0123456789.eE+-", t->bytes[node])) {
      JsonState next = *state;
      next.lex = lex_next(masks->m, state->lex, t->bytes[node]);
      if (next.lex == LEX_NONE || !machine_write(masks->m, next.n_text++, t->bytes[node])) continue;
      take_values(&w, node);
      walk(&w, node + 1, t->skip[node], &next);
    }
  JsonState ended = *state;
  ArenaMark mark = machine_mark(masks->m);
  if (lex_may_end(masks->m, state->lex) && machine_end_text(masks->m, &ended))
    between_values(masks, &ended, mask);
  machine_release(masks->m, mark);
}

/* Computes the mask; returns the base of begin_mask(). */
static const uint64_t *compute(Masks *masks, const JsonState *state, uint64_t *mask) {
  Machine *m = masks->m;
  uint32_t min, max;
  if (state->phase == PHASE_STRING || state->phase == PHASE_KEY_STRING) {
    const bool any = lex_takes_any_text(m, state->lex);
    if (!any && !lex_is_counter(m, state->lex, &min, &max)) return in_restricted(masks, state, mask);
    const uint64_t *base = vocabulary_inside(masks->v, any ? UINT32_MAX : max);
    begin_mask(masks, base, mask);
    ends_of_text(masks, state, mask);
    return base;
  }
  begin_mask(masks, NULL, mask);
  switch ((Phase)state->phase) {
  case PHASE_NUMBER: in_number(masks, state, mask); break;
  case PHASE_LITERAL: walk_trie(m, &masks->v->tokens, mask, state); break;
  default: between_values(masks, state, mask); break;
  }
  return NULL;
}

/* Computes the first masks of strings whose automata are intersections or complements: these take longest. */
static Status compute_first(Masks *masks, Error *err) {
  Machine *m = masks->m;
  Langs *l = &m->set->langs;
  const size_t start = l->count;
  OWNED(mem_release) uint64_t *mask = NULL;
  TRY(NEW(mask, masks->v->n_words, "masks", err));
  for (uint32_t i = 0; i < m->set->count && l->count - start < MAX_EARLY; i++) {
    const Lang strings = schema_strings(m->set, i);
    if (lang_is_plain(l, strings)) continue;
    const Lang text = lang_text(l, strings);
    const uint32_t lex = lex_begin(m, false, &text, 1);
    uint32_t min, max;
    if (lex != LEX_NONE && !lex_takes_any_text(m, lex) && !lex_is_counter(m, lex, &min, &max))
      stay_inside(masks, lex, mask);
    TRY(schema_check_strings(m->set, i, err));
  }
  return machine_check(m, err);
}

Status masks_open(Machine *machine, const Vocabulary *vocabulary, Masks *masks, Error *err) {
  SchemaSet *set = machine->set;
  *masks = (Masks){.m = machine, .v = vocabulary, .lex = {.m = machine, .v = vocabulary}, .tells = true};
  masks->rest_words = vocabulary->n_rests / 64 + 1;
  masks->rests = mem_alloc(masks->rest_words, sizeof *masks->rests, "masks", err);
  masks->telling = masks->rests ? mem_alloc(MAX_TELLING, sizeof *masks->telling, "masks", err) : NULL;
  if (!masks->telling) return masks_close(masks), STATUS_FAILED;
  for (uint32_t i = 0; i < set->count && masks->tells; i++) {
    for (size_t j = 0; j < set->schemas[i].patterns.count; j++)
      add_telling(masks, set->schemas[i].patterns.items[j].key);
    if (set->schemas[i].names != SCHEMA_NONE) add_telling(masks, schema_strings(set, set->schemas[i].names));
  }
  const Status status = compute_first(masks, err);
  if (status != STATUS_OK) masks_close(masks);
  return status;
}

void masks_compute(Masks *masks, const JsonState *state, uint64_t *mask) {
  if (masks->lex_generation != masks->m->lex_generation) {
    lex_masks_release(&masks->lex);
    known_clear(&masks->masks_by_state);
    masks->lex_generation = masks->m->lex_generation;
  }
  const uint64_t key = state_key(masks, state);
  const KeyEntry *known = key ? key_table_find(&masks->masks_by_state.table, key) : NULL;
  if (known) {
    take_known(masks, known->value.pointer, mask);
    return;
  }
  const uint32_t generation = masks->lex.generation;
  const uint64_t *base = compute(masks, state, mask);
  if (generation != masks->lex.generation) known_clear(&masks->masks_by_state);
  if (key && !has_failed(&masks->m->failure)) keep_mask(masks, key, base, mask);
}
