/* lang_list.c - walks the automaton of a language for its strings; see lang_list.h. Called by: closing.c,
 * closing_plain.c. */
#include "constrain/lang/lang_list.h"

#include <stdlib.h>

#include "constrain/lang/lang_internal.h"

enum {
  MAX_LISTED = 120,   /* bytes of a string; with a longer one the language counts as endless */
  MAX_VISITED = 4096, /* beginnings of strings that one lang_list() visits */
  MAX_REACHED = 2048, /* expressions in the search of lang_example() */
};

typedef struct {
  Langs *langs;
  LangTake take;
  void *user;
  Lang path[MAX_LISTED + 1]; /* [depth + 1] expressions on the way; an expression that repeats shows a loop */
  char bytes[MAX_LISTED];
  uint32_t n_visited;
  bool ended, endless;
} List;

static void list(List *l, size_t depth) {
  Langs *langs = l->langs;
  const Lang a = l->path[depth];
  for (size_t i = 0; i < depth && !l->endless; i++) l->endless = l->path[i] == a;
  if (!l->endless && lang_has_empty(langs, a) && !l->take(l->user, l->bytes, depth)) l->ended = true;
  for (int byte = 0; byte < 256 && !l->ended && !l->endless; byte++) {
    const Lang next = lang_next(langs, a, (unsigned char)byte);
    if (next == LANG_NONE || !lang_is_alive(langs, next)) continue;
    l->endless = depth == MAX_LISTED || ++l->n_visited > MAX_VISITED;
    if (l->endless) return;
    l->bytes[depth] = (char)byte;
    l->path[depth + 1] = next;
    list(l, depth + 1);
  }
}

bool lang_list(Langs *langs, Lang a, LangTake take, void *user) {
  List l = {.langs = langs, .take = take, .user = user, .path = {a}};
  if (a != LANG_NONE) list(&l, 0);
  return !l.endless;
}

typedef struct {
  Lang lang;
  uint32_t from;
  unsigned char byte;
} Step;

bool lang_example(Langs *langs, Lang a, char *out, size_t capacity, size_t *size) {
  Step *steps = malloc(MAX_REACHED * sizeof *steps);
  size_t count = 1, found = MAX_REACHED;
  const uint32_t round = ++langs->round;
  if (!steps) return langs_fail(langs, STATUS_FAILED, "out of memory"), false;
  steps[0] = (Step){a, 0, 0};
  for (size_t at = 0; at < count && found == MAX_REACHED; at++) {
    if (lang_has_empty(langs, steps[at].lang)) found = at;
    for (uint32_t class = 0; class < langs->classes.n && found == MAX_REACHED; class ++) {
      const unsigned char byte = langs->classes.first[class];
      const Lang next = lang_next(langs, steps[at].lang, byte);
      if (next == LANG_NONE || langs->nodes[next].round == round || count == MAX_REACHED) continue;
      langs->nodes[next].round = round;
      steps[count++] = (Step){next, (uint32_t)at, byte};
    }
  }
  size_t n = 0;
  for (size_t at = found; found < MAX_REACHED && at > 0; at = steps[at].from) n++;
  const bool fits = found < MAX_REACHED && n <= capacity;
  *size = n;
  for (size_t at = found; fits && at > 0; at = steps[at].from) out[--n] = (char)steps[at].byte;
  free(steps);
  return fits;
}
