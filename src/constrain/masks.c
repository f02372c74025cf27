/* masks.c - walks the tries of the vocabulary with the machine; see masks.h. Called by: constraint.c.
 *
 * Most tokens are parts of strings. Inside a string that may hold anything, or any text of some length,
 * the mask is one made with the vocabulary; of other strings, the tokens that stay inside are found once
 * for each lex state. White space changes nothing between values, so that tokens that begin with it are
 * walked without it. */
#include "constrain/masks.h"

#include <stdlib.h>
#include <string.h>

#include "constrain/frames.h"
#include "constrain/lex.h"

#define KEPT_BYTES ((size_t)32 << 20) /* of all lex masks: then they are made anew */

struct LexMask {
  int32_t *ids;    /* [n_ids] tokens that stay inside; NULL: not made */
  uint32_t *exits; /* [n_exits] nodes of the quotes that end the string, after n_before[i] bytes */
  uint32_t *lexes; /* [n_exits] state before the quote */
  uint8_t *n_before;
  size_t n_ids, ids_capacity, n_exits, exits_capacity, lexes_capacity, before_capacity;
};

Status masks_open(Machine *machine, const Vocabulary *vocabulary, Masks *masks, Error *err) {
  *masks = (Masks){.m = machine, .v = vocabulary};
  masks->rests = mem_alloc(2 * (size_t)vocabulary->n_rests + 2, sizeof *masks->rests, "masks", err);
  if (!masks->rests) return STATUS_FAILED;
  masks->few_rests = masks->rests + vocabulary->n_rests + 1;
  return STATUS_OK;
}

static void lex_masks_release(Masks *masks) {
  for (size_t i = 0; i < masks->n_lex_masks; i++) {
    free(masks->lex_masks[i].ids);
    free(masks->lex_masks[i].exits);
    free(masks->lex_masks[i].lexes);
    free(masks->lex_masks[i].n_before);
  }
  free(masks->lex_masks);
  masks->lex_masks = NULL;
  masks->n_lex_masks = masks->kept_bytes = 0;
}

void masks_close(Masks *masks) {
  lex_masks_release(masks);
  free(masks->rests);
  *masks = (Masks){.m = NULL};
}

/* --- walking a trie with the whole machine */

typedef struct {
  Machine *m;
  const Trie *trie;
  uint64_t *mask; /* of tokens, or NULL */
  bool *flags;    /* of values, where there is no mask */
} Walk;

static void take_values(const Walk *w, uint32_t node) {
  for (uint32_t i = w->trie->entries[node]; i < w->trie->entries[node + 1]; i++) {
    if (w->mask) {
      mask_add(w->mask, w->trie->values[i]);
    } else {
      w->flags[w->trie->values[i]] = true;
    }
  }
}

/* Walks nodes first..last-1, which follow `state`. */
static void walk(const Walk *w, uint32_t first, uint32_t last, const JsonState *state) {
  const Trie *t = w->trie;
  const bool in_text = state->phase >= PHASE_STRING && state->phase <= PHASE_NUMBER;
  for (uint32_t node = first; node < last; node = t->skip[node]) {
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
  const Walk w = {m, trie, mask, NULL};
  walk(&w, 0, trie->n, state);
}

/* Between values: tokens after their white space. */
static void between_values(Masks *masks, const JsonState *state, uint64_t *mask) {
  for (uint32_t i = 0; i < masks->v->n_words; i++) mask[i] |= masks->v->space[i];
  if (state->phase != PHASE_END) walk_trie(masks->m, &masks->v->unspaced, mask, state);
}

/* --- strings of anything, or of anything of some length */

static void inside_counter(const Vocabulary *v, uint32_t max, uint64_t *mask) {
  const uint64_t *inside = vocabulary_inside(v, max);
  for (uint32_t i = 0; i < v->n_words; i++) mask[i] |= inside[i];
}

/* Adds the tokens that close the string after min to max characters, each as the machine takes it. */
static void exits_each(Masks *masks, const JsonState *state, uint32_t min, uint32_t max, uint64_t *mask) {
  const Vocabulary *v = masks->v;
  for (uint32_t i = 0; i < v->n_quotes; i++) {
    const QuoteToken *token = &v->quotes[i];
    if (token->n_characters < min || token->n_characters > max) continue;
    size_t size, at = 0;
    const char *bytes = vocabulary_bytes(v, token->id, &size);
    JsonState next = *state;
    ArenaMark mark = machine_mark(masks->m);
    while (at < size && machine_push(masks->m, &next, (unsigned char)bytes[at])) at++;
    if (at == size) mask_add(mask, token->id);
    machine_release(masks->m, mark);
  }
}

/* Marks in `rests` what may follow after the string has ended. */
static void rests_after(Masks *masks, const JsonState *state, bool *rests) {
  const Walk w = {masks->m, &masks->v->rests, NULL, rests};
  memset(rests, 0, masks->v->n_rests * sizeof *rests);
  rests[0] = true;
  walk(&w, 0, masks->v->rests.n, state);
}

/* Ends the string or key that is open, and marks what may follow; false if it may not end. */
static bool end_with(Masks *masks, const JsonState *state, bool *rests) {
  JsonState ended = *state;
  ArenaMark mark = machine_mark(masks->m);
  bool ends = machine_end_text(masks->m, &ended);
  ended.n_text++;
  if (ends) rests_after(masks, &ended, rests);
  machine_release(masks->m, mark);
  return ends;
}

/* A string whose text does not matter, only its length: its end is the same for all tokens of it. */
static void exits_counter(Masks *masks, const JsonState *state, uint32_t min, uint32_t max, uint64_t *mask) {
  const Vocabulary *v = masks->v;
  if (masks->serial != state->top->serial) {
    masks->serial = state->top->serial;
    masks->ends = end_with(masks, state, masks->rests);
  }
  if (!masks->ends) return;
  for (uint32_t i = 0; i < v->n_quotes; i++) {
    const QuoteToken *token = &v->quotes[i];
    if (token->n_characters >= min && token->n_characters <= max && masks->rests[token->rest])
      mask_add(mask, token->id);
  }
}

/* --- keys */

static void add_quotes(const Vocabulary *v, uint32_t first, uint32_t last, const bool *rests,
                       uint64_t *mask) {
  for (uint32_t i = first; i < last; i++)
    if (rests[v->quotes[i].rest]) mask_add(mask, v->quotes[i].id);
}

/* The end of quotes with the same content as the first one. */
static uint32_t group_end(const Vocabulary *v, uint32_t first) {
  const QuoteToken *token = &v->quotes[first];
  size_t size;
  const char *bytes = vocabulary_bytes(v, token->id, &size);
  uint32_t i = first + 1;
  while (i < v->n_quotes && v->quotes[i].size == token->size &&
         memcmp(vocabulary_bytes(v, v->quotes[i].id, &size), bytes, token->size) == 0)
    i++;
  return i;
}

/* An open key ends with the content of each token. Keys that no keyword names have one effect, found once
 * for the frame; the others are taken one by one. PRECOND any text may be a key */
static void exits_key(Masks *masks, const JsonState *state, uint64_t *mask) {
  Machine *m = masks->m;
  const Vocabulary *v = masks->v;
  const size_t n_before = state->n_text - state->start;
  const bool alike = frame_keys_are_alike(m, state->top) && !memchr(m->text + state->start, '\\', n_before);
  for (uint32_t i = 0, end; i < v->n_quotes; i = end) {
    const QuoteToken *token = &v->quotes[i];
    size_t size;
    const char *bytes = vocabulary_bytes(v, token->id, &size);
    end = group_end(v, i);
    JsonState next = *state;
    for (uint32_t j = 0; j < token->size; j++)
      if (!machine_write(m, next.n_text++, (unsigned char)bytes[j])) return;
    const char *key = m->text + state->start;
    const size_t key_size = n_before + token->size;
    bool named = !alike || token->escaped || schema_key(m->set, key, key_size, false) != UINT32_MAX ||
                 frame_has_had(state->top, key, key_size);
    if (named) {
      if (end_with(masks, &next, masks->few_rests)) add_quotes(v, i, end, masks->few_rests, mask);
      continue;
    }
    if (masks->serial != state->top->serial) {
      masks->serial = state->top->serial;
      masks->ends = end_with(masks, &next, masks->rests);
    }
    if (masks->ends) add_quotes(v, i, end, masks->rests, mask);
  }
}

/* --- other strings */

static bool lex_mask_add(Masks *masks, LexMask *made, const Trie *t, uint32_t node) {
  uint32_t n = t->entries[node + 1] - t->entries[node];
  if (n && mem_grow(&made->ids, &made->ids_capacity, made->n_ids + n, sizeof *made->ids, "masks", NULL))
    return machine_fail(masks->m, "out of memory"), false;
  for (uint32_t i = 0; i < n; i++) made->ids[made->n_ids++] = t->values[t->entries[node] + i];
  return true;
}

static bool lex_mask_exit(Masks *masks, LexMask *made, uint32_t node, uint32_t lex, uint8_t n_before) {
  if (mem_grow(&made->exits, &made->exits_capacity, made->n_exits + 1, sizeof *made->exits, "masks", NULL) ||
      mem_grow(&made->lexes, &made->lexes_capacity, made->n_exits + 1, sizeof *made->lexes, "masks", NULL) ||
      mem_grow(&made->n_before, &made->before_capacity, made->n_exits + 1, 1, "masks", NULL))
    return machine_fail(masks->m, "out of memory"), false;
  made->exits[made->n_exits] = node;
  made->lexes[made->n_exits] = lex;
  made->n_before[made->n_exits++] = n_before;
  return true;
}

/* Adds the tokens below the node that may stand inside any string. */
static bool add_below(Masks *masks, LexMask *made, uint32_t node) {
  const Trie *t = &masks->v->tokens;
  const uint64_t *inside = vocabulary_inside(masks->v, UINT32_MAX);
  const uint32_t first = t->entries[node], last = t->entries[t->skip[node]];
  if (mem_grow(&made->ids, &made->ids_capacity, made->n_ids + last - first, sizeof *made->ids, "masks", NULL))
    return machine_fail(masks->m, "out of memory"), false;
  for (uint32_t i = first; i < last; i++)
    if (mask_has(inside, t->values[i])) made->ids[made->n_ids++] = t->values[i];
  return true;
}

/* Adds the quotes below the node, where the string may be anything. */
static bool add_exits_below(Masks *masks, LexMask *made, uint32_t node, uint32_t lex, uint8_t n_before) {
  const Trie *t = &masks->v->tokens;
  if (!masks->v->has_quote[node]) return true;
  for (uint32_t child = node + 1; child < t->skip[node]; child = t->skip[child]) {
    uint32_t next = t->bytes[child] == '"' && lex_may_end(masks->m, lex)
                        ? LEX_NONE
                        : lex_next(masks->m, lex, t->bytes[child]);
    if (t->bytes[child] == '"' && lex_may_end(masks->m, lex)) {
      if (!lex_mask_exit(masks, made, child, lex, n_before)) return false;
    } else if (next != LEX_NONE && !add_exits_below(masks, made, child, next, (uint8_t)(n_before + 1))) {
      return false;
    }
  }
  return true;
}

/* Nodes first..last-1 follow a string's state. `whole`: the token began between characters, as tokens of
 * vocabulary_inside() do. */
static bool walk_inside(Masks *masks, LexMask *made, uint32_t first, uint32_t last, uint32_t lex,
                        uint8_t n_before, bool whole) {
  const Trie *t = &masks->v->tokens;
  for (uint32_t node = first; node < last; node = t->skip[node]) {
    const unsigned char byte = t->bytes[node];
    uint32_t next = lex_next(masks->m, lex, byte);
    const bool between = whole && !(n_before == 0 && byte >= 0x80 && byte <= 0xbf);
    uint32_t min, max;
    if (between && next != LEX_NONE && lex_is_counter(masks->m, next, &min, &max) && max == LANG_NO_END) {
      if (!add_below(masks, made, node)) return false;
      if (!add_exits_below(masks, made, node, next, (uint8_t)(n_before + 1))) return false;
    } else if (next != LEX_NONE) {
      if (!lex_mask_add(masks, made, t, node)) return false;
      if (!walk_inside(masks, made, node + 1, t->skip[node], next, (uint8_t)(n_before + 1), between))
        return false;
    } else if (byte == '"' && lex_may_end(masks->m, lex)) {
      if (!lex_mask_exit(masks, made, node, lex, n_before)) return false;
    }
  }
  return true;
}

static const LexMask *lex_mask(Masks *masks, uint32_t lex) {
  if (masks->kept_bytes > KEPT_BYTES) lex_masks_release(masks);
  if (lex >= masks->n_lex_masks) {
    size_t n = masks->n_lex_masks, need = lex + 64;
    if (mem_grow(&masks->lex_masks, &n, need, sizeof *masks->lex_masks, "masks", NULL))
      return machine_fail(masks->m, "out of memory"), NULL;
    memset(masks->lex_masks + masks->n_lex_masks, 0, (n - masks->n_lex_masks) * sizeof *masks->lex_masks);
    masks->n_lex_masks = n;
  }
  LexMask *made = &masks->lex_masks[lex];
  if (made->ids) return made;
  if (mem_grow(&made->ids, &made->ids_capacity, 1, sizeof *made->ids, "masks", NULL))
    return machine_fail(masks->m, "out of memory"), NULL;
  const bool whole = masks->m->lexes[lex].escape == 0;
  if (!walk_inside(masks, made, 0, masks->v->tokens.n, lex, 0, whole)) return NULL;
  masks->kept_bytes += made->ids_capacity * 4 + made->exits_capacity * 9;
  return made;
}

/* A string or key of a restricted language. */
static void inside_restricted(Masks *masks, const JsonState *state, uint64_t *mask) {
  const Trie *t = &masks->v->tokens;
  const LexMask *made = lex_mask(masks, state->lex);
  if (!made) return;
  for (size_t i = 0; i < made->n_ids; i++) mask_add(mask, made->ids[i]);
  const Walk w = {masks->m, t, mask, NULL};
  for (size_t i = 0; i < made->n_exits; i++) {
    const uint32_t node = made->exits[i];
    JsonState next = *state;
    next.lex = made->lexes[i];
    /* The bytes before the quote are those on the way to the node. */
    uint32_t at = node, before = made->n_before[i];
    next.n_text += before;
    for (uint32_t back = before; back-- > 0;) {
      do at--;
      while (t->skip[at] <= node);
      if (!machine_write(masks->m, state->n_text + back, t->bytes[at])) return;
    }
    ArenaMark mark = machine_mark(masks->m);
    if (machine_push(masks->m, &next, '"')) {
      take_values(&w, node);
      walk(&w, node + 1, t->skip[node], &next);
    }
    machine_release(masks->m, mark);
  }
}

/* --- the whole */

static void in_number(Masks *masks, const JsonState *state, uint64_t *mask) {
  const Trie *t = &masks->v->tokens;
  const Walk w = {masks->m, t, mask, NULL};
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

void masks_compute(Masks *masks, const JsonState *state, uint64_t *mask) {
  Machine *m = masks->m;
  memset(mask, 0, masks->v->n_words * sizeof *mask);
  uint32_t min, max;
  switch ((Phase)state->phase) {
  case PHASE_STRING:
  case PHASE_KEY_STRING:
    if (!lex_is_counter(m, state->lex, &min, &max)) {
      inside_restricted(masks, state, mask);
      return;
    }
    inside_counter(masks->v, max, mask);
    if (state->phase == PHASE_STRING && lex_is_indifferent(m, state->lex) && !state->top->hashing) {
      exits_counter(masks, state, min, max, mask);
    } else if (state->phase == PHASE_KEY_STRING && min == 0 && max == LANG_NO_END) {
      exits_key(masks, state, mask);
    } else {
      exits_each(masks, state, min, max, mask);
    }
    return;
  case PHASE_NUMBER: in_number(masks, state, mask); return;
  case PHASE_LITERAL: walk_trie(m, &masks->v->tokens, mask, state); return;
  default: between_values(masks, state, mask); return;
  }
}
