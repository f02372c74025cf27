/* lex_masks.c - walks the tokens with the states of a string; see lex_masks.h. Called by: masks.c.
 *
 * Most tokens need no walk. Most states have classes of characters that may follow one another freely, as
 * letters follow letters: the tokens of such characters alone are one bit set. Below a node of the trie a
 * walk then looks only for tokens with another character that may follow. */
#include "constrain/lex_masks.h"

#include <stdlib.h>
#include <string.h>

#include "constrain/lex.h"

#define KEPT_BYTES    ((size_t)32 << 20) /* of all masks: then they are made anew */
#define MAX_PLANNED   128                /* states that a plan looks at */
#define MAX_DEPTH     20                 /* characters that it looks ahead */
#define MIN_DEPTH     8                  /* characters after which a plan may end rather than lose a class */
#define MAX_PLANS     6                  /* made for one mask */
#define MIN_PLAN_NODE 64                 /* nodes below for which one is made */
#define FEW_IDS       2048               /* tokens that need no bit set */

void lex_masks_release(LexMasks *masks) {
  for (size_t i = 0; i < masks->n_made; i++) {
    if (!masks->made[i]) continue;
    free(masks->made[i]->tokens);
    free(masks->made[i]->exits);
    free(masks->made[i]);
    masks->made[i] = NULL;
  }
  for (size_t i = 0; i < masks->n_bases; i++) free(masks->bases[i].tokens);
  masks->n_bases = masks->kept_bytes = 0;
  masks->generation++;
}

void lex_masks_close(LexMasks *masks) {
  lex_masks_release(masks);
  free(masks->made);
  free(masks->bases);
  *masks = (LexMasks){.m = NULL};
}

static bool no_memory(LexMasks *masks) {
  machine_fail(masks->m, "out of memory");
  return false;
}

/* The entry of a state, empty at first. */
static LexMask *entry(LexMasks *masks, uint32_t lex) {
  if (lex >= masks->n_made) {
    size_t n = masks->n_made;
    if (mem_grow(&masks->made, &n, lex + 64, sizeof *masks->made, "masks", NULL))
      return no_memory(masks), NULL;
    memset(masks->made + masks->n_made, 0, (n - masks->n_made) * sizeof *masks->made);
    masks->n_made = n;
  }
  if (!masks->made[lex]) {
    masks->made[lex] = calloc(1, sizeof **masks->made);
    if (!masks->made[lex]) return no_memory(masks), NULL;
    masks->kept_bytes += sizeof **masks->made;
  }
  return masks->made[lex];
}

/* --- which classes may follow one another */

typedef struct {
  LexMasks *masks;
  uint64_t whole, others;
  uint32_t depth, n;
  uint32_t states[MAX_PLANNED], at[MAX_PLANNED]; /* [n] and after how many characters they are reached */
} Plan;

static uint64_t weight_of(const Vocabulary *v, uint64_t classes) {
  uint64_t weight = 0;
  for (; classes; classes &= classes - 1) weight += v->class_weights[__builtin_ctzll(classes)];
  return weight;
}

/* Adds the state after a character of the class; false if the plan's classes had to change. */
static bool plan_state(Plan *p, uint32_t state, uint32_t at, int class) {
  const Vocabulary *v = p->masks->v;
  for (uint32_t i = 0; i < p->n; i++)
    if (p->states[i] == state) return true;
  const uint64_t missing = p->whole & ~lex_classes(p->masks->m, state)->all;
  if (missing && at < MIN_DEPTH) {
    p->whole &= weight_of(v, missing) > v->class_weights[class] ? ~CLASS_BIT(class) : ~missing;
    return false;
  }
  if (missing || p->n == MAX_PLANNED || at >= MAX_DEPTH) {
    if (at < p->depth) p->depth = at;
    return true;
  }
  p->states[p->n] = state;
  p->at[p->n++] = at;
  return true;
}

/* Adds a state unless it is there; false if there are too many. */
static bool add_state(Plan *p, uint32_t state) {
  for (uint32_t i = 0; i < p->n; i++)
    if (p->states[i] == state) return true;
  if (p->n == MAX_PLANNED) return false;
  p->states[p->n++] = state;
  return true;
}

/* The states after each character of a class, one after the other without repetition. */
typedef struct {
  unsigned byte, last;
  uint32_t before;
} AfterClass;

static void after_class_begin(AfterClass *after, int class) {
  static const unsigned char first[] = {'0', 'a', 'g', 'A', 'G'}, last[] = {'9', 'f', 'z', 'F', 'Z'};
  const int place = class - CLASS_ASCII;
  *after = (AfterClass){0, 0, LEX_NONE};
  if (class < CLASS_CONTROL) {
    after->byte = first[class], after->last = last[class];
  } else if (class < CLASS_WIDE) {
    after->byte = (unsigned)(place < 16   ? ' ' + place
                             : place < 23 ? ':' + place - 16
                             : place < 29 ? '[' + place - 23
                                          : '{' + place - 29);
    after->last = after->byte;
  }
}

/* The next of them; LEX_NONE: that was all. */
static uint32_t after_class_next(AfterClass *after, Machine *m, uint32_t state, int class) {
  if (class >= CLASS_WIDE) {
    const bool first = after->last == 0;
    after->last = 1;
    return first ? m->lexes[state].wide[class - CLASS_WIDE] : LEX_NONE;
  }
  while (after->byte <= after->last) {
    const uint32_t next = lex_next(m, state, (unsigned char)after->byte++);
    if (next == after->before) continue;
    return after->before = next;
  }
  return LEX_NONE;
}

static bool plan_class(Plan *p, uint32_t i, int class) {
  const uint32_t state = p->states[i], at = p->at[i] + 1;
  AfterClass after;
  after_class_begin(&after, class);
  for (uint32_t next; (next = after_class_next(&after, p->masks->m, state, class)) != LEX_NONE;)
    if (!plan_state(p, next, at, class)) return false;
  return true;
}

static bool plan_whole(Plan *p, uint32_t lex) {
  p->n = 1;
  p->states[0] = lex;
  p->at[0] = 0;
  p->depth = UINT32_MAX;
  p->others = 0;
  for (uint32_t i = 0; i < p->n; i++) {
    p->others |= lex_classes(p->masks->m, p->states[i])->any;
    for (uint64_t classes = p->whole; classes; classes &= classes - 1)
      if (!plan_class(p, i, __builtin_ctzll(classes))) return false;
  }
  p->others &= ~p->whole;
  return true;
}

static void make_plan(LexMasks *masks, uint32_t lex, LexMask *made) {
  const uint64_t never = CLASS_BIT(CLASS_CONTROL) | CLASS_BIT(class_of_byte('"')) |
                         CLASS_BIT(class_of_byte('\\')) | CLASS_BIT(CLASS_MIDDLE) | CLASS_BIT(CLASS_PARTIAL);
  Plan p = {.masks = masks};
  p.whole = lex_classes(masks->m, lex)->all & ~never;
  while (!plan_whole(&p, lex)) continue;
  made->planned = true;
  made->whole = p.whole;
  made->others = p.others;
  made->depth = p.depth;
}

/* Replaces the states by those after one more character of the plan's classes; false if they are too many. */
static bool next_layer(Plan *p) {
  Plan next = {.masks = p->masks, .whole = p->whole, .depth = UINT32_MAX};
  for (uint32_t i = 0; i < p->n; i++)
    for (uint64_t classes = p->whole; classes; classes &= classes - 1) {
      const int class = __builtin_ctzll(classes);
      AfterClass after;
      after_class_begin(&after, class);
      lex_classes(p->masks->m, p->states[i]);
      for (uint32_t state; (state = after_class_next(&after, p->masks->m, p->states[i], class)) != LEX_NONE;)
        if (!add_state(&next, state)) return false;
    }
  *p = next;
  return true;
}

static uint32_t most_needed(const Plan *p) {
  uint32_t most = 0;
  for (uint32_t i = 0; i < p->n; i++) {
    const uint32_t shortest = lex_shortest(p->masks->m, p->states[i]);
    if (shortest > most) most = shortest;
  }
  return most;
}

/* Finds the most characters that a string needs to end after the plan's classes: after n of them, and after
 * any number. */
static void measure_plan(LexMasks *masks, uint32_t lex, LexMask *made) {
  Plan p = {.masks = masks, .whole = made->whole};
  plan_whole(&p, lex);
  made->beyond = most_needed(&p);
  p.n = 1;
  bool known = true;
  for (uint32_t n = 0; n < N_ENOUGH; n++) {
    if (n > 0 && n <= made->depth) known = known && next_layer(&p);
    made->enough[n] = n + (known && n <= made->depth ? most_needed(&p) : made->beyond);
  }
  made->measured = true;
}

/* --- tokens of whole classes */

static bool add_token(LexMasks *masks, LexMask *made, LexToken token) {
  if (made->n_tokens == made->tokens_capacity &&
      mem_grow(&made->tokens, &made->tokens_capacity, made->n_tokens + 64, sizeof *made->tokens, "masks",
               NULL))
    return no_memory(masks);
  made->tokens[made->n_tokens++] = token;
  return true;
}

static void fill_base(const Vocabulary *v, uint64_t whole, uint32_t depth, uint64_t *tokens) {
  memcpy(tokens, vocabulary_inside(v, depth), v->n_words * sizeof *tokens);
  for (int c = 0; c < N_CLASSES; c++) {
    if (whole & CLASS_BIT(c) || v->class_weights[c] == 0) continue;
    const uint64_t *has = v->has_class + (size_t)c * v->n_words;
    for (uint32_t i = 0; i < v->n_words; i++) tokens[i] &= ~has[i];
  }
}

static const uint64_t *find_base(LexMasks *masks, uint64_t whole, uint32_t depth) {
  const Vocabulary *v = masks->v;
  if (depth > v->max_characters) depth = v->max_characters;
  for (size_t i = 0; i < masks->n_bases; i++)
    if (masks->bases[i].whole == whole && masks->bases[i].depth == depth) return masks->bases[i].tokens;
  uint64_t *tokens = malloc(v->n_words * sizeof *tokens);
  if (!tokens || mem_grow(&masks->bases, &masks->bases_capacity, masks->n_bases + 1, sizeof *masks->bases,
                          "masks", NULL)) {
    free(tokens);
    return no_memory(masks), NULL;
  }
  fill_base(v, whole, depth, tokens);
  masks->bases[masks->n_bases++] = (LexBase){whole, depth, tokens};
  masks->kept_bytes += v->n_words * sizeof *tokens;
  return tokens;
}

uint32_t lex_enough(const LexMask *made, uint32_t n_characters) {
  return n_characters < N_ENOUGH ? made->enough[n_characters] : n_characters + made->beyond;
}

/* Adds the tokens that the plan allows. */
static bool add_whole(LexMasks *masks, LexMask *made) {
  const Vocabulary *v = masks->v;
  uint32_t n = 0;
  for (uint32_t i = 0; i < v->n_class_sets && n <= FEW_IDS; i++)
    if (!(v->class_sets[i].classes & ~made->whole)) n += v->class_sets[i].n;
  if (n > FEW_IDS) return (made->base = find_base(masks, made->whole, made->depth)) != NULL;
  for (uint32_t i = 0; i < v->n_class_sets; i++) {
    const ClassSet *set = &v->class_sets[i];
    if (set->classes & ~made->whole) continue;
    for (uint32_t j = set->first; j < set->first + set->n; j++) {
      const int32_t id = v->class_ids[j];
      const uint32_t n_characters = v->characters[id];
      if (n_characters <= made->depth &&
          !add_token(masks, made, (LexToken){id, lex_enough(made, n_characters)}))
        return false;
    }
  }
  return true;
}

/* --- walking the others */

typedef struct {
  LexMasks *masks;
  LexMask *made;
  const Trie *trie;
  bool exits; /* note the quotes that end the string */
  bool measured;
  int plans_left;
} Inside;

static bool add_values(const Inside *in, uint32_t first, uint32_t last, uint32_t enough) {
  const Trie *t = in->trie;
  for (uint32_t i = t->entries[first]; i < t->entries[last]; i++)
    if (!add_token(in->masks, in->made, (LexToken){t->values[i], enough})) return false;
  return true;
}

/* Characters with which a string can end after n bytes of a token, in this state. */
static uint32_t enough_after(const Inside *in, uint32_t lex, uint32_t n) {
  if (!in->measured || in->masks->m->lexes[lex].escape) return UINT32_MAX;
  return n + lex_shortest(in->masks->m, lex);
}

static bool add_exit(LexMasks *masks, LexMask *made, LexExit exit) {
  if (mem_grow(&made->exits, &made->exits_capacity, made->n_exits + 1, sizeof *made->exits, "masks", NULL))
    return no_memory(masks);
  made->exits[made->n_exits++] = exit;
  return true;
}

/* True if all tokens at and below the node may follow. */
static bool takes_all(Inside *in, uint32_t node, uint32_t lex) {
  const Vocabulary *v = in->masks->v;
  LexMask *here = lex < in->masks->n_made ? in->masks->made[lex] : NULL;
  if (!here || !here->planned) {
    if (in->trie->skip[node] - node < MIN_PLAN_NODE || in->plans_left == 0) return false;
    if (!lex_classes(in->masks->m, lex)->between || !(here = entry(in->masks, lex))) return false;
    in->plans_left--;
    make_plan(in->masks, lex, here);
  }
  if (in->measured && !here->measured) measure_plan(in->masks, lex, here);
  return !(v->tokens.below[node] & ~here->whole) && v->height[node] <= here->depth;
}

/* Nodes first..last-1 follow n_before bytes of a token. `root`: these are of the classes of the mask's
 * plan. */
static bool walk_inside(Inside *in, uint32_t first, uint32_t last, uint32_t lex, uint32_t n_before,
                        bool root) {
  const Trie *t = in->trie;
  const Vocabulary *v = in->masks->v;
  Machine *m = in->masks->m;
  const LexMask *made = in->made;
  const uint32_t *row = m->lexes[lex].next;
  for (uint32_t node = first; node < last; node = t->skip[node]) {
    const unsigned char byte = t->bytes[node];
    if (root && !(v->tokens.below[node] & ~made->whole & made->others) &&
        n_before + v->height[node] <= made->depth)
      continue;
    const uint32_t next = row && row[byte] != LANG_UNKNOWN ? row[byte] : lex_next(m, lex, byte);
    if (next == LEX_NONE) {
      if (in->exits && byte == '"' && lex_may_end(m, lex) &&
          !add_exit(in->masks, in->made, (LexExit){node, lex, n_before}))
        return false;
      continue;
    }
    if (t == &v->tokens && !root && takes_all(in, node, lex)) {
      const uint32_t most = n_before + v->height[node] + in->masks->made[lex]->beyond;
      if (!add_values(in, node, t->skip[node], in->measured ? most : UINT32_MAX)) return false;
      continue;
    }
    const int class = v->class_of[byte];
    const bool still = root && (class == CLASS_MIDDLE || made->whole & CLASS_BIT(class));
    const bool adds = t->entries[node] < t->entries[node + 1] && !(still && n_before < made->depth);
    if (adds && !add_values(in, node, node + 1, enough_after(in, next, n_before + 1))) return false;
    if (t->skip[node] > node + 1 && !walk_inside(in, node + 1, t->skip[node], next, n_before + 1, still))
      return false;
  }
  return true;
}

bool lex_takes_token(LexMasks *masks, uint32_t lex, int32_t id, uint32_t left) {
  Machine *m = masks->m;
  size_t size;
  const char *bytes = vocabulary_bytes(masks->v, id, &size);
  uint32_t at = lex_with_left(m, lex, left);
  for (size_t i = 0; i < size && at != LEX_NONE; i++) at = lex_next(m, at, (unsigned char)bytes[i]);
  return at != LEX_NONE;
}

const LexMask *lex_mask(LexMasks *masks, uint32_t lex, bool measured) {
  const Vocabulary *v = masks->v;
  if (masks->kept_bytes > KEPT_BYTES) lex_masks_release(masks);
  LexMask *made = entry(masks, lex);
  if (!made || (made->made && (made->measured || !measured))) return made;
  const bool between = lex_classes(masks->m, lex)->between;
  Inside in = {masks, made, &v->tokens, !between, measured && between, MAX_PLANS};
  made->n_tokens = made->n_exits = 0;
  if (between) {
    if (!made->planned) make_plan(masks, lex, made);
    if (measured) measure_plan(masks, lex, made);
    if (made->whole && !add_whole(masks, made)) return NULL;
  }
  if (!walk_inside(&in, 0, v->tokens.n, lex, 0, between)) return NULL;
  in.trie = &v->partial;
  if (between && !walk_inside(&in, 0, v->partial.n, lex, 0, false)) return NULL;
  made->made = true;
  masks->kept_bytes +=
      made->tokens_capacity * sizeof *made->tokens + made->exits_capacity * sizeof *made->exits;
  return made;
}
