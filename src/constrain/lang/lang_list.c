/* lang_list.c - walks the automaton of a language for its strings; see lang_list.h. Called by: closing.c,
 * closing_plain.c. */
#include "constrain/lang/lang_list.h"

#include "constrain/lang/lang_internal.h"

enum {
  MAX_LISTED = 120,   /* bytes of a string; with a longer one the language counts as endless */
  MAX_VISITED = 4096, /* beginnings of strings that one lang_list() visits */
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
