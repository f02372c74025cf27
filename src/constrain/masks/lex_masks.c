/* lex_masks.c - walks the tokens with the states of a string; see lex_masks.h. Called by: masks.c,
 * grammar/grammar.c.
 *
 * Most tokens need no walk. In most states, characters of some classes may follow one another freely, as
 * letters follow letters. The tokens of such characters alone are one bit set. Below a node of the trie a
 * walk then looks only for tokens with another character that may follow. */
#include "constrain/masks/lex_masks.h"

#include <stdlib.h>
#include <string.h>

#include "constrain/lex.h"

#define KEPT_BYTES    ((size_t)32 << 20) /* bytes of all masks; if they take more, they are released */
#define MAX_PLANNED   128                /* states that one plan (LexPlan) passes */
#define MAX_DEPTH     20                 /* characters that a plan looks ahead */
#define MIN_DEPTH     8    /* before this many characters, plans[0] gives up classes instead of ending */
#define MAX_PLANS     6    /* plans made in the walk for one mask */
#define MIN_PLAN_NODE 64   /* a plan is made for a subtree of the trie with at least this many nodes */
#define FEW_NODES     4    /* a subtree of fewer nodes is walked even if there is a plan */
#define FEW_IDS       2048 /* most tokens of a plan that are kept as a list; more are kept as a bitmap */

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
  uint64_t whole, others; /* LexPlan.whole, LexMask.others */
  uint32_t mark;          /* Lex.mark of the states in the list */
  uint32_t min_depth;     /* before this many characters, the plan gives up classes instead of ending */
  uint32_t depth, n;
  bool ends;                                     /* the string may end in a state that is reached */
  uint32_t states[MAX_PLANNED], at[MAX_PLANNED]; /* [n]; at: characters after which a state is reached */
} Plan;

static uint64_t weight_of(const Vocabulary *v, uint64_t classes) {
  uint64_t weight = 0;
  for (; classes; classes &= classes - 1) weight += v->class_weights[__builtin_ctzll(classes)];
  return weight;
}

/* Adds `state`, to which the plan's at-th character leads; that character is of `class`. The plan ends at
 * this state if the list is full, after MAX_DEPTH characters, or if some of its classes may not follow in
 * whole. Before min_depth characters the plan gives up such classes instead (or `class`, if that has fewer
 * tokens), and the result is false. */
static bool plan_state(Plan *p, uint32_t state, uint32_t at, int class) {
  const Vocabulary *v = p->masks->v;
  p->ends |= lex_may_end(p->masks->m, state);
  if (p->masks->m->lexes[state].mark == p->mark) return true;
  const uint64_t missing = p->whole & ~lex_classes(p->masks->m, state)->all;
  if (missing && at < p->min_depth) {
    p->whole &= weight_of(v, missing) > v->class_weights[class] ? ~CLASS_BIT(class) : ~missing;
    return false;
  }
  if (missing || p->n == MAX_PLANNED || at >= MAX_DEPTH) {
    if (at < p->depth) p->depth = at;
    return true;
  }
  p->masks->m->lexes[state].mark = p->mark;
  p->states[p->n] = state;
  p->at[p->n++] = at;
  return true;
}

/* Begins the list of states: with `state`, or empty if that is LEX_NONE. */
static void begin_states(Plan *p, uint32_t state) {
  p->mark = ++p->masks->m->lex_mark;
  p->n = 0;
  if (state == LEX_NONE) return;
  p->masks->m->lexes[state].mark = p->mark;
  p->states[p->n++] = state;
}

/* Adds a state unless it is in the list; false if the list is full. */
static bool add_state(Plan *p, uint32_t state) {
  if (p->masks->m->lexes[state].mark == p->mark) return true;
  if (p->n == MAX_PLANNED) return false;
  p->masks->m->lexes[state].mark = p->mark;
  p->states[p->n++] = state;
  return true;
}

/* Iterates over the states that the characters of a class lead to; neighbouring equal states count once. */
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
  } else if (class == CLASS_DELETE) {
    after->byte = after->last = 0x7f;
  } else if (class < CLASS_WIDE) {
    after->byte = (unsigned)(place < 16   ? ' ' + place
                             : place < 23 ? ':' + place - 16
                             : place < 29 ? '[' + place - 23
                                          : '{' + place - 29);
    after->last = after->byte;
  }
}

/* The next state; LEX_NONE: there are no more. */
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

/* Classes that no plan has: the quote, the backslash, control characters, bytes of UTF-8 after the first, and
 * partial characters. */
#define NEVER_WHOLE                                                                                          \
  (CLASS_BIT(CLASS_CONTROL) | CLASS_BIT(class_of_byte('"')) | CLASS_BIT(class_of_byte('\\')) |               \
   CLASS_BIT(CLASS_MIDDLE) | CLASS_BIT(CLASS_PARTIAL))

static bool plan_class(Plan *p, uint32_t i, int class) {
  const uint32_t state = p->states[i], at = p->at[i] + 1;
  AfterClass after;
  after_class_begin(&after, class);
  for (uint32_t next; (next = after_class_next(&after, p->masks->m, state, class)) != LEX_NONE;)
    if (!plan_state(p, next, at, class)) return false;
  return true;
}

static bool plan_whole(Plan *p, uint32_t lex) {
  begin_states(p, lex);
  p->at[0] = 0;
  p->depth = UINT32_MAX;
  p->others = 0;
  p->ends = false;
  for (uint32_t i = 0; i < p->n; i++) {
    p->others |= lex_classes(p->masks->m, p->states[i])->any;
    for (uint64_t classes = p->whole; classes; classes &= classes - 1)
      if (!plan_class(p, i, __builtin_ctzll(classes))) return false;
  }
  p->others &= ~p->whole;
  return true;
}

static void make_plan(LexMasks *masks, uint32_t lex, LexMask *made) {
  Plan p = {.masks = masks, .whole = lex_classes(masks->m, lex)->all & ~NEVER_WHOLE};
  for (int i = 0; i < 2; i++) {
    p.min_depth = i == 0 ? MIN_DEPTH : MAX_DEPTH;
    while ((i == 0 || made->plans[0].depth < MAX_DEPTH) && !plan_whole(&p, lex)) continue;
    made->plans[i] = (LexPlan){.whole = p.whole, .depth = p.depth};
    if (i == 0) made->others = p.others;
    made->ends |= p.ends;
  }
  /* Only walks find the ends of a part of a grammar. So there are no plans if ends are wanted (masks->ends)
   * and one of the plans' states may be such an end. */
  if (masks->ends && made->ends) made->plans[0] = made->plans[1] = (LexPlan){.whole = 0};
  made->planned = true;
}

static bool same_plans(const LexMask *made) {
  return made->plans[0].whole == made->plans[1].whole && made->plans[0].depth == made->plans[1].depth;
}

/* Replaces the states by those after one more character of the plan. False if there are too many. */
static bool next_layer(Plan *p) {
  Plan next = {.masks = p->masks, .whole = p->whole, .depth = UINT32_MAX};
  begin_states(&next, LEX_NONE);
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

/* `n` characters and `end` more, which suffice to end after them. LANG_UNKNOWN if either is unknown. */
static uint32_t with_end(uint32_t n, uint32_t end) {
  return end > UINT32_MAX - n ? LANG_UNKNOWN : n + end;
}

static uint32_t most_needed(const Plan *p) {
  uint32_t most = 0;
  for (uint32_t i = 0; i < p->n; i++) {
    const uint32_t shortest = lex_shortest(p->masks->m, p->states[i]);
    if (shortest > most) most = shortest;
  }
  return most;
}

/* Sets LexPlan.beyond of both plans: after any characters of the plan, a string can end within that many
 * more. */
static void bound_plans(LexMasks *masks, uint32_t lex, LexMask *made) {
  Plan p = {.masks = masks};
  for (int i = 0; i < 2; i++) {
    p.whole = made->plans[i].whole;
    p.min_depth = i == 0 ? MIN_DEPTH : MAX_DEPTH;
    if (i == 0 || !same_plans(made)) plan_whole(&p, lex);
    made->plans[i].beyond = most_needed(&p);
  }
  made->bounded = true;
}

/* Sets enough[n]: n, plus the most characters that a string needs to end after any n characters of the first
 * plan. It is n plus `beyond` if n is over the plan's depth, or if some number of characters up to n leads to
 * too many states. */
static void measure_plan(LexMasks *masks, uint32_t lex, LexMask *made) {
  const LexPlan *plan = &made->plans[0];
  Plan p = {.masks = masks, .whole = plan->whole};
  bool known = true;
  if (!made->bounded) bound_plans(masks, lex, made);
  begin_states(&p, lex);
  for (uint32_t n = 0; n < N_ENOUGH; n++) {
    if (n > 0 && n <= plan->depth) known = known && next_layer(&p);
    made->enough[n] = with_end(n, known && n <= plan->depth ? most_needed(&p) : plan->beyond);
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

/* Adds the tokens of up to `depth` characters, all of the classes `whole`. */
static void fill_base(const Vocabulary *v, uint64_t whole, uint32_t depth, uint64_t *tokens) {
  const uint64_t *inside = vocabulary_inside(v, depth);
  const uint64_t *has[N_CLASSES] = {NULL};
  int n = 0;
  for (int c = 0; c < N_CLASSES; c++)
    if (!(whole & CLASS_BIT(c)) && v->class_weights[c]) has[n++] = v->has_class + (size_t)c * v->n_words;
  for (uint32_t i = 0; i < v->n_words; i++) {
    uint64_t others = 0;
    for (int c = 0; c < n; c++) others |= has[c][i];
    tokens[i] |= inside[i] & ~others;
  }
}

/* The bit set of the tokens that plan `a` or plan `b` has. It is made once. */
static const uint64_t *find_base(LexMasks *masks, const LexPlan *a, const LexPlan *b) {
  const Vocabulary *v = masks->v;
  for (size_t i = 0; i < masks->n_bases; i++) {
    const LexBase *base = &masks->bases[i];
    if (base->whole[0] == a->whole && base->depth[0] == a->depth && base->whole[1] == b->whole &&
        base->depth[1] == b->depth)
      return base->tokens;
  }
  uint64_t *tokens = calloc(v->n_words, sizeof *tokens);
  if (!tokens || mem_grow(&masks->bases, &masks->bases_capacity, masks->n_bases + 1, sizeof *masks->bases,
                          "masks", NULL)) {
    free(tokens);
    return no_memory(masks), NULL;
  }
  fill_base(v, a->whole, a->depth, tokens);
  if (a->whole != b->whole || a->depth != b->depth) fill_base(v, b->whole, b->depth, tokens);
  masks->bases[masks->n_bases++] = (LexBase){{a->whole, b->whole}, {a->depth, b->depth}, tokens};
  masks->kept_bytes += v->n_words * sizeof *tokens;
  return tokens;
}

/* A length that suffices for any n characters of the plan's classes and the string's end (LexMask.enough). */
static uint32_t enough_for(const LexMask *made, const LexPlan *plan, uint32_t n) {
  return plan == made->plans && n < N_ENOUGH ? made->enough[n] : with_end(n, plan->beyond);
}

/* Adds the tokens of a plan. Few tokens are added one by one, many as a bit set. */
static bool add_plan(LexMasks *masks, LexMask *made, LexPlan *plan) {
  const Vocabulary *v = masks->v;
  uint32_t n = 0;
  for (uint32_t i = 0; i < v->n_class_sets && n <= FEW_IDS; i++)
    if (!(v->class_sets[i].classes & ~plan->whole)) n += v->class_sets[i].n;
  if (n > FEW_IDS) return (plan->words = find_base(masks, plan, plan)) != NULL;
  for (uint32_t i = 0; i < v->n_class_sets; i++) {
    const ClassSet *set = &v->class_sets[i];
    if (set->classes & ~plan->whole) continue;
    for (uint32_t j = set->first; j < set->first + set->n; j++) {
      const int32_t id = v->class_ids[j];
      const uint32_t n_characters = v->characters[id];
      if (n_characters <= plan->depth &&
          !add_token(masks, made, (LexToken){id, enough_for(made, plan, n_characters)}))
        return false;
    }
  }
  return true;
}

static bool add_plans(LexMasks *masks, LexMask *made) {
  LexPlan *wide = &made->plans[0], *deep = &made->plans[1];
  if (!add_plan(masks, made, wide)) return false;
  if (same_plans(made)) {
    made->base = deep->words = wide->words;
    return true;
  }
  if (!add_plan(masks, made, deep)) return false;
  made->base = wide->words ? wide->words : deep->words;
  return !wide->words || !deep->words || (made->base = find_base(masks, wide, deep)) != NULL;
}

/* True if add_plans() adds the tokens of n characters from `classes`. */
static bool in_plans(const LexMask *made, uint64_t classes, uint32_t n) {
  classes &= ~CLASS_BIT(CLASS_MIDDLE);
  return (!(classes & ~made->plans[0].whole) && n <= made->plans[0].depth) ||
         (!(classes & ~made->plans[1].whole) && n <= made->plans[1].depth);
}

/* --- walking the others */

typedef struct {
  LexMasks *masks;
  LexMask *made;
  const Trie *trie;
  bool exits; /* quotes that end the string are to be noted */
  bool ends;  /* the nodes at which the part of a grammar may end are to be noted */
  bool measured;
  int plans_left;
} Inside;

static bool add_values(const Inside *in, uint32_t first, uint32_t last, uint32_t enough) {
  const Trie *t = in->trie;
  for (uint32_t i = t->entries[first]; i < t->entries[last]; i++)
    if (!add_token(in->masks, in->made, (LexToken){t->values[i], enough})) return false;
  return true;
}

/* n bytes of a token have led to state `lex`. Returns an upper bound of the characters that a string needs to
 * hold these bytes and then end; LANG_UNKNOWN if there is none. */
static uint32_t enough_after(const Inside *in, uint32_t lex, uint32_t n) {
  if (!in->measured || in->masks->m->lexes[lex].escape) return LANG_UNKNOWN;
  return with_end(n, lex_shortest(in->masks->m, lex));
}

static bool add_exit(LexMasks *masks, LexMask *made, LexExit exit) {
  if (mem_grow(&made->exits, &made->exits_capacity, made->n_exits + 1, sizeof *made->exits, "masks", NULL))
    return no_memory(masks);
  made->exits[made->n_exits++] = exit;
  return true;
}

/* True if all tokens at and below the node may follow. *enough characters then suffice for such a token, from
 * the node on, and the string's end. */
static bool takes_all(Inside *in, uint32_t node, uint32_t lex, uint32_t *enough) {
  const Vocabulary *v = in->masks->v;
  LexMask *here = lex < in->masks->n_made ? in->masks->made[lex] : NULL;
  if (!here || !here->planned) {
    if (in->trie->skip[node] - node < MIN_PLAN_NODE || in->plans_left == 0) return false;
    if (!lex_classes(in->masks->m, lex)->between || !(here = entry(in->masks, lex))) return false;
    in->plans_left--;
    make_plan(in->masks, lex, here);
  }
  if (in->ends && here->ends) return false;
  if (in->measured && !here->bounded) bound_plans(in->masks, lex, here);
  const uint64_t below = v->tokens.below[node];
  const uint32_t height = v->height[node];
  for (int i = 0; i < 2; i++) {
    const LexPlan *plan = &here->plans[i];
    if (below & ~plan->whole || height > plan->depth) continue;
    *enough = in->measured ? with_end(height, plan->beyond) : LANG_UNKNOWN;
    return true;
  }
  return false;
}

#define NO_CLASSES  0
#define ALL_CLASSES (~UINT64_C(0))

/* Adds the tokens of nodes first..last-1 that add_plans() has not added. The nodes follow n_before bytes of a
 * token; `path` has the classes of their characters. ALL_CLASSES: add_plans() has added none. */
static bool walk_inside(Inside *in, uint32_t first, uint32_t last, uint32_t lex, uint32_t n_before,
                        uint64_t path) {
  const Trie *t = in->trie;
  const Vocabulary *v = in->masks->v;
  Machine *m = in->masks->m;
  const LexMask *made = in->made;
  const LexPlan *wide = &made->plans[0];
  const uint32_t *row = m->lexes[lex].next;
  const bool in_wide = !(path & ~wide->whole), in_deep = !(path & ~made->plans[1].whole);
  for (uint32_t node = first; node < last; node = t->skip[node]) {
    const unsigned char byte = t->bytes[node];
    if (in_wide || in_deep) {
      const uint64_t below = v->tokens.below[node];
      const uint32_t height = n_before + v->height[node];
      if ((in_wide && !(below & ~wide->whole & made->others) && height <= wide->depth) ||
          in_plans(made, path | below, height))
        continue;
    }
    uint32_t enough;
    if (t == &v->tokens && t->skip[node] - node >= FEW_NODES && takes_all(in, node, lex, &enough)) {
      if (!add_values(in, node, t->skip[node], with_end(n_before, enough))) return false;
      continue;
    }
    const uint32_t next = row && row[byte] != LANG_UNKNOWN ? row[byte] : lex_next(m, lex, byte);
    if (next == LEX_NONE) {
      if (in->exits && byte == '"' && lex_may_end(m, lex) &&
          !add_exit(in->masks, in->made, (LexExit){node, lex, n_before}))
        return false;
      continue;
    }
    const uint64_t classes = path | CLASS_BIT(v->class_of[byte]);
    const bool adds = t->entries[node] < t->entries[node + 1] && !in_plans(made, classes, n_before + 1);
    if (adds && !add_values(in, node, node + 1, enough_after(in, next, n_before + 1))) return false;
    if (in->ends && lex_may_end(m, next) && !add_exit(in->masks, in->made, (LexExit){node, next, n_before}))
      return false;
    if (t->skip[node] > node + 1 &&
        !walk_inside(in, node + 1, t->skip[node], next, n_before + 1, classes & ~CLASS_BIT(CLASS_MIDDLE)))
      return false;
  }
  return true;
}

/* --- strings with a limit on their characters */

/* The state of lex_alone() after a byte of a string with *left characters left, which are counted down.
 * LEX_NONE if the byte may not follow or no end is within reach. PRECOND no escape begins with the byte */
static uint32_t limited_next(Machine *m, uint32_t lex, unsigned char byte, uint32_t *left) {
  const uint32_t next = lex_next(m, lex, byte);
  if (next == LEX_NONE) return next;
  if (*left == LANG_NO_END) return next;
  if ((byte & 0xc0) != 0x80 && (*left)-- == 0) return LEX_NONE;
  return lex_ends_within(m, next, *left) ? next : LEX_NONE;
}

/* Adds the tokens of nodes first..last-1 by states that count characters themselves. Used for escapes, which
 * are few. */
static void walk_counting(LexMasks *masks, uint32_t first, uint32_t last, uint32_t lex, uint64_t *mask) {
  const Trie *t = &masks->v->tokens;
  for (uint32_t node = first; node < last; node = t->skip[node]) {
    const uint32_t next = lex_next(masks->m, lex, t->bytes[node]);
    if (next == LEX_NONE) continue;
    for (uint32_t i = t->entries[node]; i < t->entries[node + 1]; i++) mask_add(mask, t->values[i]);
    walk_counting(masks, node + 1, t->skip[node], next, mask);
  }
}

/* Adds the tokens of nodes first..last-1, which follow `lex` with `left` characters left. Tokens with at most
 * `sure` more characters, all of classes in plans[0], are in the mask already. After a character of another
 * class `sure` is 0: then no token that follows is in the mask yet. */
static void walk_limited(Inside *in, uint32_t first, uint32_t last, uint32_t lex, uint32_t left,
                         uint32_t sure, uint64_t *mask) {
  const Trie *t = in->trie;
  const Vocabulary *v = in->masks->v;
  const LexMask *made = in->made;
  Machine *m = in->masks->m;
  for (uint32_t node = first; node < last; node = t->skip[node]) {
    const unsigned char byte = t->bytes[node];
    if (v->height[node] <= sure && !(t->below[node] & ~made->plans[0].whole & made->others)) continue;
    if (byte == '\\') {
      walk_counting(in->masks, node, node + 1, lex_with_left(m, lex, left), mask);
      continue;
    }
    uint32_t after = left, enough;
    if (t->skip[node] - node >= FEW_NODES && takes_all(in, node, lex, &enough) && enough <= left) {
      for (uint32_t i = t->entries[node]; i < t->entries[t->skip[node]]; i++) mask_add(mask, t->values[i]);
      continue;
    }
    const uint32_t next = limited_next(m, lex, byte, &after);
    if (next == LEX_NONE) continue;
    for (uint32_t i = t->entries[node]; i < t->entries[node + 1]; i++) mask_add(mask, t->values[i]);
    const int class = v->class_of[byte];
    const bool still = sure > 0 && (class == CLASS_MIDDLE || made->plans[0].whole & CLASS_BIT(class));
    walk_limited(in, node + 1, t->skip[node], next, after, still ? sure - 1 : 0, mask);
  }
}

/* True if a string goes on with the token and can end after at most `left` characters. */
static bool takes_token(LexMasks *masks, uint32_t lex, int32_t id, uint32_t left) {
  Machine *m = masks->m;
  size_t size, at = 0;
  const char *bytes = vocabulary_bytes(masks->v, id, &size);
  for (; at < size && lex != LEX_NONE && bytes[at] != '\\'; at++)
    lex = limited_next(m, lex, (unsigned char)bytes[at], &left);
  if (at < size && lex != LEX_NONE) lex = lex_with_left(m, lex, left);
  for (; at < size && lex != LEX_NONE; at++) lex = lex_next(m, lex, (unsigned char)bytes[at]);
  return lex != LEX_NONE;
}

#define MAX_TRIED 4096 /* tokens that are tried one by one */

/* The largest n, up to Vocabulary.max_characters, such that `left` characters suffice for any n characters of
 * the plan and an end of the string after them. */
static uint32_t surely_enough(const LexMasks *masks, const LexMask *made, const LexPlan *plan,
                              uint32_t left) {
  uint32_t sure = 0;
  while (sure < masks->v->max_characters && enough_for(made, plan, sure + 1) <= left) sure++;
  return sure;
}

/* Adds the tokens that need no trial and counts the others; with `try`, tries the others. */
static uint32_t add_surely(LexMasks *masks, const LexMask *made, uint32_t lex, uint32_t left, bool try,
                           uint64_t *mask) {
  const Vocabulary *v = masks->v;
  uint32_t n = 0;
  const uint64_t *inside = vocabulary_inside(v, left), *words[2], *surely[2];
  for (int i = 0; i < 2; i++) {
    words[i] = made->plans[i].words ? made->plans[i].words : v->inside; /* inside[0] has no token */
    surely[i] = vocabulary_inside(v, surely_enough(masks, made, &made->plans[i], left));
  }
  for (uint32_t i = 0; i < v->n_words && made->base; i++) {
    const uint64_t sure = (words[0][i] & surely[0][i]) | (words[1][i] & surely[1][i]);
    mask[i] |= sure;
    for (uint64_t rest = made->base[i] & inside[i] & ~sure; rest; rest &= rest - 1) {
      const int32_t id = (int32_t)(i * 64) + __builtin_ctzll(rest);
      if (++n > MAX_TRIED && !try) break;
      if (try && takes_token(masks, lex, id, left)) mask_add(mask, id);
    }
  }
  for (size_t i = 0; i < made->n_tokens; i++) {
    const LexToken *token = &made->tokens[i];
    n += token->enough > left;
    if (token->enough <= left || (try && takes_token(masks, lex, token->id, left))) mask_add(mask, token->id);
  }
  return n;
}

void lex_mask_limited(LexMasks *masks, const LexMask *made, uint32_t lex, uint32_t left, uint64_t *mask) {
  const Vocabulary *v = masks->v;
  const uint32_t n = add_surely(masks, made, lex, left, false, mask);
  if (n == 0) return;
  if (n <= MAX_TRIED) {
    add_surely(masks, made, lex, left, true, mask);
  } else {
    uint32_t sure = surely_enough(masks, made, made->plans, left);
    if (sure > made->plans[0].depth) sure = made->plans[0].depth;
    Inside in = {masks, (LexMask *)made, &v->tokens, false, false, true, MAX_PLANS};
    walk_limited(&in, 0, v->tokens.n, lex, left, sure, mask);
  }
}

/* takes_token() that makes no states for the bytes on the way, unless the token has an escape. */
static bool takes_rest(LexMasks *masks, uint32_t exact, int32_t id, uint32_t left) {
  size_t size;
  const char *bytes = vocabulary_bytes(masks->v, id, &size);
  return memchr(bytes, '\\', size) ? takes_token(masks, exact, id, left)
                                   : lex_takes_plainly(masks->m, exact, bytes, size, left);
}

void lex_mask_rest(LexMasks *masks, const LexMask *made, uint32_t exact, uint32_t left, uint64_t *mask) {
  const Vocabulary *v = masks->v;
  const uint64_t *inside = vocabulary_inside(v, left);
  for (uint32_t i = 0; i < v->n_words && made->base; i++)
    for (uint64_t rest = made->base[i] & inside[i] & ~mask[i]; rest; rest &= rest - 1) {
      const int32_t id = (int32_t)(i * 64) + __builtin_ctzll(rest);
      if (takes_rest(masks, exact, id, left)) mask_add(mask, id);
    }
  for (size_t i = 0; i < made->n_tokens; i++) {
    const int32_t id = made->tokens[i].id;
    if (!mask_has(mask, id) && takes_rest(masks, exact, id, left)) mask_add(mask, id);
  }
}

const LexMask *lex_mask(LexMasks *masks, uint32_t lex, bool measured) {
  const Vocabulary *v = masks->v;
  if (masks->kept_bytes > KEPT_BYTES) lex_masks_release(masks);
  LexMask *made = entry(masks, lex);
  if (!made || (made->made && (made->measured || !measured))) return made;
  const Lex *state = lex_classes(masks->m, lex);
  const bool between = state->between, exits = !between && !state->number;
  Inside in = {masks, made, &v->tokens, exits, masks->ends, measured && between, MAX_PLANS};
  made->n_tokens = made->n_exits = 0;
  if (between) {
    if (!made->planned) make_plan(masks, lex, made);
    if (measured) measure_plan(masks, lex, made);
    if (!add_plans(masks, made)) return NULL;
  }
  if (!walk_inside(&in, 0, v->tokens.n, lex, 0, between ? NO_CLASSES : ALL_CLASSES)) return NULL;
  in.trie = &v->partial;
  in.ends = false; /* v->tokens has these tokens too: its walk has noted their exits */
  if (between && !walk_inside(&in, 0, v->partial.n, lex, 0, ALL_CLASSES)) return NULL;
  made->made = true;
  masks->kept_bytes +=
      made->tokens_capacity * sizeof *made->tokens + made->exits_capacity * sizeof *made->exits;
  return made;
}
