/* lang_lengths.c - the shortest string of a language, and languages without limits on length or counts; see
 * lang.h. Called by: closing.c, lang.c, lex.c. */
#include <stdlib.h>
#include <string.h>

#include "constrain/lang/lang_internal.h"

#define MAX_MEASURED      ((size_t)1 << 12) /* expressions in a search for the shortest string */
#define MAX_RELAXED_DEPTH 200               /* lang_relaxed() leaves deeper expressions as they are */
#define MAX_RELAXED_PARTS 16                /* most parts of an OR or AND that lang_relaxed() changes */

static bool begins_character(int byte) {
  return byte < 0x80 || byte > 0xbf;
}

/* lang_shortest() of languages made without AND, NOT and MULTIPLE. */
static uint32_t shortest_plain(Langs *langs, Lang a);

static uint32_t keep_shortest(Langs *langs, Lang a, uint64_t shortest) {
  if (shortest > UINT32_MAX - 2) shortest = UINT32_MAX - 2;
  langs->nodes[a].shortest = (uint32_t)shortest + 1;
  return (uint32_t)shortest;
}

/* shortest_plain() of a THEN. Also keeps the length of each THEN in its chain of second parts. */
static uint32_t shortest_then(Langs *langs, Lang a) {
  const size_t start = langs->n_stack;
  const LangNode *node = &langs->nodes[a];
  for (; node->kind == THEN && !node->has_empty && !node->shortest; node = &langs->nodes[a = node->b])
    if (!lang_push(langs, a)) return langs->n_stack = start, 0;
  uint32_t made = shortest_plain(langs, a);
  while (langs->n_stack > start) {
    a = langs->stack[--langs->n_stack];
    made = keep_shortest(langs, a, (uint64_t)made + shortest_plain(langs, langs->nodes[a].a));
  }
  return made;
}

static uint32_t shortest_plain(Langs *langs, Lang a) {
  const LangNode node = langs->nodes[a];
  if (node.has_empty) return 0;
  if (node.shortest) return node.shortest - 1;
  uint64_t made = 0;
  switch ((LangKind)node.kind) {
  case SET:
    made = 1;
    for (int byte = 0x80; byte <= 0xbf; byte++)
      if (byte_set_has(&langs->sets[node.a], (unsigned)byte)) made = 0;
    break;
  case THEN: return shortest_then(langs, a);
  case OR:
    made = UINT32_MAX;
    for (uint32_t i = 0; i < node.b; i++) {
      uint32_t part = shortest_plain(langs, langs->lists[node.a + i]);
      if (part < made) made = part;
    }
    break;
  case REPEAT: made = (uint64_t)node.min * shortest_plain(langs, node.a); break;
  default: break;
  }
  return keep_shortest(langs, a, made);
}

/* An item of the breadth-first search for the shortest string. */
typedef struct {
  Lang lang;
  uint32_t from;       /* index of the item before it on the path */
  uint32_t characters; /* read so far */
} Measured;

typedef struct {
  Langs *langs;
  Measured *items; /* [count] */
  size_t count, capacity;
  uint32_t best,
      best_from; /* best: characters of the shortest string so far; best_from: index of its last item */
} Measure;

/* Sets *shortest to lang_shortest() if that number is known without a search. False if it is not. */
static bool known_shortest(Langs *langs, Lang a, uint32_t *shortest) {
  const LangNode *node = &langs->nodes[a];
  if (!node->has_empty && !node->plain && (node->shortest == 0 || node->shortest == LANG_UNKNOWN))
    return false;
  *shortest = node->has_empty ? 0 : node->plain ? shortest_plain(langs, a) : node->shortest - 1;
  return true;
}

/* Adds the derivatives of item `at` by bytes that begin a character (`begins`) or that continue one. If the
 * shortest string of a derivative is known, the derivative is not added; it may lower `best`. */
static void measure_next(Measure *m, uint32_t at, bool begins) {
  Langs *langs = m->langs;
  const uint32_t characters = m->items[at].characters + begins;
  Lang last = LANG_NONE;
  for (uint32_t class = 0; class < langs->classes.n; class ++) {
    const unsigned char byte = langs->classes.first[class];
    if (begins_character(byte) != begins) continue;
    const Lang next = lang_next(langs, m->items[at].lang, byte);
    if (next == LANG_NONE || next == last || langs->nodes[next].round == langs->round) continue;
    uint32_t rest;
    last = next;
    langs->nodes[next].round = langs->round;
    if (!known_shortest(langs, next, &rest)) {
      if (!failure_grow(&langs->failure, &m->items, &m->capacity, m->count + 1, sizeof *m->items)) return;
      m->items[m->count++] = (Measured){next, at, characters};
    } else if (characters + rest < m->best) {
      m->best = characters + rest;
      m->best_from = at;
    }
  }
}

/* Keeps lang_shortest() of all items that the shortest string goes through. */
static void keep_lengths(const Measure *m) {
  for (uint32_t at = m->best_from;; at = m->items[at].from) {
    m->langs->nodes[m->items[at].lang].shortest = m->best - m->items[at].characters + 1;
    if (at == 0) return;
  }
}

uint32_t lang_shortest(Langs *langs, Lang a) {
  uint32_t known;
  if (has_failed(&langs->failure)) return 0;
  if (known_shortest(langs, a, &known)) return known;
  if (langs->nodes[a].shortest == LANG_UNKNOWN) return LANG_UNKNOWN;
  Measure m = {.langs = langs, .best = UINT32_MAX};
  ++langs->round;
  if (failure_grow(&langs->failure, &m.items, &m.capacity, 64, sizeof *m.items))
    m.items[m.count++] = (Measured){a, 0, 0};
  size_t first = 0, end;
  for (uint32_t n = 0; first < m.count && n < m.best && m.count <= MAX_MEASURED; n++, first = end) {
    for (size_t at = first; at < m.count; at++) measure_next(&m, (uint32_t)at, false);
    end = m.count;
    for (size_t at = first; at < end; at++) measure_next(&m, (uint32_t)at, true);
  }
  const bool found = !has_failed(&langs->failure) && m.count <= MAX_MEASURED && m.best < UINT32_MAX;
  if (found)
    keep_lengths(&m);
  else
    langs->nodes[a].shortest = LANG_UNKNOWN;
  free(m.items);
  return found ? m.best : LANG_UNKNOWN;
}

bool lang_example(Langs *langs, Lang a, char *out, size_t capacity, size_t *size) {
  uint32_t missing = lang_shortest(langs, a), rest;
  for (*size = 0; !langs->nodes[a].has_empty && *size < capacity; missing = rest) {
    Lang next = LANG_NONE;
    for (uint32_t class = 0; class < langs->classes.n && next == LANG_NONE; class ++) {
      const unsigned char byte = langs->classes.first[class];
      next = lang_next(langs, a, byte);
      if (next != LANG_NONE && known_shortest(langs, next, &rest) && rest + begins_character(byte) == missing)
        out[*size] = (char)byte;
      else
        next = LANG_NONE;
    }
    if (next == LANG_NONE) return false;
    ++*size;
    a = next;
  }
  return langs->nodes[a].has_empty;
}

/* True if langs->ending is a string of `a` with at most `left` characters. */
static bool takes_ending(Langs *langs, Lang a, uint32_t left) {
  for (size_t i = 0; i < langs->ending_size && a != LANG_NONE; i++) {
    if (begins_character(langs->ending[i]) && left-- == 0) return false;
    a = lang_next(langs, a, langs->ending[i]);
  }
  return langs->nodes[a].has_empty;
}

bool lang_ends_within(Langs *langs, Lang a, uint32_t left) {
  uint32_t shortest;
  if (a == LANG_NONE || langs->nodes[a].alive == 2) return false;
  if (left == LANG_NO_END) return lang_is_alive(langs, a);
  if (known_shortest(langs, a, &shortest)) return shortest <= left;
  if (takes_ending(langs, a, left)) return langs->nodes[a].alive = 1, true;
  if (!lang_is_alive(langs, a)) return false;
  shortest = lang_shortest(langs, a);
  if (!lang_example(langs, a, (char *)langs->ending, sizeof langs->ending, &langs->ending_size))
    langs->ending_size = 0;
  return shortest == LANG_UNKNOWN || shortest <= left;
}

/* True for S{min,max} with a max, where S is a set of characters. */
static bool is_bounded(Langs *langs, Lang a) {
  const LangNode *node = &langs->nodes[a];
  return node->kind == REPEAT && node->b != LANG_NO_END && lang_is_character_set(langs, node->a);
}

Lang lang_without_max(Langs *langs, Lang a, uint32_t *max) {
  const LangNode node = langs->nodes[a];
  *max = LANG_NO_END;
  if (is_bounded(langs, a)) {
    *max = node.b;
    return lang_repeat(langs, node.a, node.min, LANG_NO_END);
  }
  bool bounded = false;
  for (uint32_t i = 0; node.kind == AND && i < node.b; i++)
    bounded |= is_bounded(langs, langs->lists[node.a + i]);
  if (!bounded) return a;
  Lang made = langs->any_text;
  for (uint32_t i = 0; i < node.b; i++) {
    uint32_t part_max;
    Lang part = lang_without_max(langs, langs->lists[node.a + i], &part_max);
    if (part_max < *max) *max = part_max;
    made = lang_and(langs, made, part);
  }
  return made;
}

/* --- less counting */

static Lang relax(Langs *langs, Lang a, int depth) {
  const LangNode node = langs->nodes[a];
  if (!node.counts || depth == MAX_RELAXED_DEPTH) return a;
  if (node.relaxed) return node.relaxed - 1;
  Lang made = a;
  if (node.kind == REPEAT) {
    const bool endless = is_relaxable(langs->nodes[node.a].text, node.b);
    made = lang_repeat(langs, relax(langs, node.a, depth + 1), node.min, endless ? LANG_NO_END : node.b);
  } else if (node.kind == THEN) {
    made = lang_then(langs, relax(langs, node.a, depth + 1), relax(langs, node.b, depth + 1));
  } else if (node.kind == OR || node.kind == AND) {
    Lang parts[MAX_RELAXED_PARTS];
    if (node.b > MAX_RELAXED_PARTS) return a;
    memcpy(parts, langs->lists + node.a, node.b * sizeof *parts);
    for (uint32_t i = 0; i < node.b; i++) parts[i] = relax(langs, parts[i], depth + 1);
    made = node.kind == OR ? lang_or_all(langs, parts, node.b) : parts[0];
    for (uint32_t i = 1; i < node.b && node.kind == AND; i++) made = lang_and(langs, made, parts[i]);
  }
  langs->nodes[a].relaxed = made + 1;
  return made;
}

Lang lang_relaxed(Langs *langs, Lang a) {
  return relax(langs, a, 0);
}
