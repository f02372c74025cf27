/* lang_words.c - unions of many words, or of other languages, as prefix trees; see lang.h. */
#include <stdlib.h>
#include <string.h>

#include "constrain/lang/lang_internal.h"

enum {
  MAX_BRANCHES = 2000, /* branches of the tree along one word: recursion of words_from() */
  FEW = 16,            /* up to this many parts are united without a tree */
  MAX_SHARED = 256,    /* sets of bytes in the longest prefix that parts share: recursion of unite() */
};

/* --- words */

static int by_bytes(const void *a, const void *b) {
  const LangWord *x = a, *y = b;
  int order = memcmp(x->bytes, y->bytes, x->size < y->size ? x->size : y->size);
  return order ? order : (x->size > y->size) - (x->size < y->size);
}

/* The union of sorted words, each with its rest, without their first `at` bytes, which are the same. */
static Lang words_from(Langs *langs, const LangWord *words, size_t n, size_t at, int depth) {
  const size_t start = langs->n_stack;
  size_t i = 0;
  if (!langs_work(langs, n)) return LANG_NONE;
  if (depth == MAX_BRANCHES) {
    langs_fail(langs, STATUS_USAGE, "over 2,000 words are beginnings of one another");
    return LANG_NONE;
  }
  if (n == 1 && words->size > at)
    return lang_then(langs, lang_literal(langs, words->bytes + at, words->size - at), words->rest);
  for (; i < n && words[i].size == at; i++)
    if (i == 0 || words[i].rest != words[i - 1].rest) lang_push(langs, words[i].rest);
  while (i < n) {
    size_t end = i + 1, common = at + 1;
    while (end < n && words[end].bytes[at] == words[i].bytes[at]) end++;
    const LangWord *first = &words[i], *last = &words[end - 1];
    while (common < first->size && common < last->size && first->bytes[common] == last->bytes[common])
      common++;
    const Lang rest = words_from(langs, words + i, end - i, common, depth + 1);
    lang_push(langs, lang_then(langs, lang_literal(langs, first->bytes + at, common - at), rest));
    i = end;
  }
  return lang_join_pushed(langs, start, lang_or_all);
}

Lang lang_words(Langs *langs, LangWord *words, size_t n) {
  if (n == 0) return LANG_NONE;
  qsort(words, n, sizeof *words, by_bytes);
  return lang_declare_text(langs, words_from(langs, words, n, 0, 0));
}

/* --- other parts */

/* A part as its first set of bytes and what follows it. */
typedef struct {
  Lang first, rest; /* first LANG_NONE: the part is no THEN that begins with a SET; rest is then all of it */
} Split;

static int by_first(const void *a, const void *b) {
  const Split *x = a, *y = b;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return (x->rest > y->rest) - (x->rest < y->rest);
}

/* The union of the parts splits[i].rest, i < n; overwrites splits[0..n). */
static Lang unite(Langs *langs, Split *splits, size_t n, int depth) {
  const size_t start = langs->n_stack;
  const bool shares = n > FEW && depth < MAX_SHARED;
  if (!langs_work(langs, 16 * n)) return LANG_NONE;
  for (size_t i = 0; i < n && shares; i++) {
    const LangNode *node = &langs->nodes[splits[i].rest];
    const bool split = node->kind == THEN && langs->nodes[node->a].kind == SET;
    splits[i] = split ? (Split){node->a, node->b} : (Split){LANG_NONE, splits[i].rest};
  }
  if (shares) qsort(splits, n, sizeof *splits, by_first);
  for (size_t i = 0, end; i < n; i = end) {
    const Lang first = shares ? splits[i].first : LANG_NONE;
    end = i + 1;
    while (end < n && first != LANG_NONE && splits[end].first == first) end++;
    const Lang rest = end - i > 1 ? unite(langs, splits + i, end - i, depth + 1) : splits[i].rest;
    lang_push(langs, first == LANG_NONE ? rest : lang_then(langs, first, rest));
  }
  return lang_join_pushed(langs, start, lang_or_all);
}

Lang lang_or_many(Langs *langs, const Lang *parts, size_t n) {
  if (n <= FEW) return lang_or_all(langs, parts, n);
  Split *splits = malloc(n * sizeof *splits);
  if (!splits) return langs_fail(langs, STATUS_FAILED, "out of memory"), LANG_NONE;
  for (size_t i = 0; i < n; i++) splits[i] = (Split){LANG_NONE, parts[i]};
  const Lang made = unite(langs, splits, n, 0);
  free(splits);
  return made;
}
