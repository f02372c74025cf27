/* matcher.c - builds and runs the automaton; see matcher.h.
 *
 * Called by: added.c, unigram.c, unigram_load.c. Strings and texts are read from their ends. With the strings
 * "ab" and "b":
 *
 *   node      0 root ── b ──▶ 1 "b" ── a ──▶ 2 "ab"        fail of 1 and 2: 0
 *   text      x  a  b
 *   state     0  2  1     ◀── read this way: "ab" begins at 1, "b" at 2
 *
 * If a node has no child for a byte, the byte is tried at the node's fail link, whose string is shorter. Each
 * byte of a text goes down one level at most, so fail links are followed at most once per byte in all. */
#include "tokenizer/matcher.h"

#include <stdlib.h>

#include "tokenizer/stop.h"

void matcher_release(Matcher *matcher) {
  free(matcher->byte);
  free(matcher->first);
  free(matcher->fail);
  free(matcher->longest);
  *matcher = (Matcher){0};
}

void match_list_release(MatchList *list) {
  free(list->items);
  *list = (MatchList){0};
}

/* --- building */

static uint8_t byte_from_end(const MatchString *string, size_t i) {
  return (uint8_t)string->bytes[string->size - 1 - i];
}

/* The length of the longest common suffix. */
static size_t common_end(const MatchString *a, const MatchString *b) {
  size_t n = 0, least = a->size < b->size ? a->size : b->size;
  while (n < least && byte_from_end(a, n) == byte_from_end(b, n)) n++;
  return n;
}

static int compare_ends(const void *left, const void *right) {
  const MatchString *a = left, *b = right;
  size_t n = common_end(a, b);
  if (n < a->size && n < b->size) return byte_from_end(a, n) < byte_from_end(b, n) ? -1 : 1;
  if (a->size != b->size) return a->size < b->size ? -1 : 1;
  return a->number < b->number ? -1 : 1;
}

/* Counts the nodes of sorted strings and finds equal ones. */
static Status count_nodes(const MatchString *strings, size_t n, size_t *n_nodes, MatchTwins *twins,
                          Error *err) {
  *n_nodes = 1;
  *twins = (MatchTwins){0};
  for (size_t i = 0; i < n; i++) {
    size_t common = i > 0 ? common_end(&strings[i - 1], &strings[i]) : 0;
    *n_nodes += strings[i].size - common;
    bool same = i > 0 && common == strings[i].size && common == strings[i - 1].size;
    if (same && (!twins->found || strings[i].number < twins->second))
      *twins = (MatchTwins){true, strings[i - 1].number, strings[i].number};
  }
  return *n_nodes < UINT32_MAX ? STATUS_OK : error_set(err, STATUS_FAILED, "too many added tokens");
}

/* The strings[low .. high) that pass through a node. */
typedef struct {
  uint32_t low, high;
} StringRange;

/* Makes the nodes level by level. A string that ends at a node sorts before the others that pass through
 * it. */
static void make_nodes(const MatchString *strings, size_t n, Matcher *m, StringRange *ranges) {
  uint32_t count = 1, level_end = 1;
  size_t depth = 0;
  ranges[0] = (StringRange){0, (uint32_t)n};
  for (uint32_t node = 0; node < m->n_nodes; node++) {
    if (node == level_end) {
      depth++;
      level_end = count;
    }
    uint32_t at = ranges[node].low, high = ranges[node].high;
    m->first[node] = count;
    m->longest[node] = at < high && strings[at].size == depth ? strings[at++].number : -1;
    while (at < high) {
      uint32_t from = at;
      uint8_t byte = byte_from_end(&strings[at], depth);
      while (at < high && byte_from_end(&strings[at], depth) == byte) at++;
      m->byte[count] = byte;
      ranges[count++] = (StringRange){from, at};
    }
  }
  m->first[m->n_nodes] = count;
}

/* The node's child by this byte, or 0. */
static uint32_t child_of(const Matcher *m, uint32_t node, uint8_t byte) {
  if (node == 0) return m->root[byte];
  uint32_t low = m->first[node], high = m->first[node + 1];
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    if (m->byte[middle] <= byte) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low < high && m->byte[low] == byte ? low : 0;
}

static uint32_t step(const Matcher *m, uint32_t node, uint8_t byte) {
  uint32_t next;
  while ((next = child_of(m, node, byte)) == 0 && node != 0) node = m->fail[node];
  return next;
}

/* Sets fail links, level by level: a node's link points to a level above it, which is complete by then. */
static void link_nodes(Matcher *m) {
  for (uint32_t child = m->first[0]; child < m->first[1]; child++) m->root[m->byte[child]] = child;
  for (uint32_t node = 0; node < m->n_nodes; node++)
    for (uint32_t child = m->first[node]; child < m->first[node + 1]; child++) {
      m->fail[child] = node == 0 ? 0 : step(m, m->fail[node], m->byte[child]);
      if (m->longest[child] < 0) m->longest[child] = m->longest[m->fail[child]];
    }
}

Status matcher_build(MatchString *strings, size_t n, Matcher *m, MatchTwins *twins, Error *err) {
  size_t n_nodes;
  *m = (Matcher){0};
  *twins = (MatchTwins){0};
  if (n == 0) return STATUS_OK;
  qsort(strings, n, sizeof *strings, compare_ends);
  TRY(count_nodes(strings, n, &n_nodes, twins, err));
  if (twins->found) return STATUS_OK;
  OWNED(mem_release) StringRange *ranges = NULL;
  TRY(NEW(ranges, n_nodes, "added tokens", err));
  TRY(NEW(m->byte, n_nodes, "added tokens", err));
  TRY(NEW(m->first, n_nodes + 1, "added tokens", err));
  TRY(NEW(m->fail, n_nodes, "added tokens", err));
  TRY(NEW(m->longest, n_nodes, "added tokens", err));
  m->n_nodes = (uint32_t)n_nodes;
  make_nodes(strings, n, m, ranges);
  link_nodes(m);
  return STATUS_OK;
}

/* --- finding */

static Status add_match(MatchList *list, size_t at, int32_t number, Error *err) {
  return APPEND(list->items, list->count, list->capacity, "added tokens of a text", err,
                (Match){(uint32_t)at, number});
}

Status matcher_find(const Matcher *m, const char *text, size_t size, const volatile int *interrupted,
                    MatchList *list, Error *err) {
  if (m->n_nodes == 0) return STATUS_OK;
  const uint8_t *bytes = (const uint8_t *)text;
  uint32_t node = 0;
  for (size_t at = size; at > 0;) {
    if (at % STOP_EACH == 0) TRY(stop_check(interrupted, err));
    at--;
    if (node == 0) /* most of a text: no string ends here */
      while (m->root[bytes[at]] == 0 && at > 0) at--;
    node = step(m, node, bytes[at]);
    if (m->longest[node] >= 0) TRY(add_match(list, at, m->longest[node], err));
  }
  return STATUS_OK;
}
