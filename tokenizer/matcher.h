/* matcher.h - many strings looked for at once: the longest one that begins at each place of a text. */
#ifndef AUK_TOKENIZER_MATCHER_H
#define AUK_TOKENIZER_MATCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct {
  const char *bytes; /* [size], not empty; not needed after matcher_build() */
  size_t size;
  int32_t number; /* the caller's, not negative */
} MatchString;

/* Two strings that are the same, by their numbers: first < second. */
typedef struct {
  bool found;
  int32_t first, second;
} MatchTwins;

/* An Aho-Corasick automaton over the strings read from their ends: a text is read from its end too, so the
 * state at a place tells what begins there. Read-only once built. Zero-initialise it: it holds no string
 * then. */
typedef struct {
  uint32_t n_nodes; /* node 0 is the root; the nodes of a level follow each other */
  uint8_t *byte;    /* [n_nodes] on the way from the parent */
  uint32_t
      *first; /* [n_nodes + 1] children of node i, in order of their bytes, are first[i] .. first[i + 1] */
  uint32_t *fail;     /* [n_nodes] the node of the longest string that this node's string begins with */
  int32_t *longest;   /* [n_nodes] the longest of the strings that this node's string begins with, or -1 */
  uint32_t root[256]; /* the root's child by each byte, or 0 */
} Matcher;

/* Takes strings[0 .. n), whose order it changes, and 21 bytes of memory for each of theirs. Where some are
 * the same, nothing is built, and *twins names two: the second is the first string, in order of the
 * numbers, that repeats an earlier one. Release it also after a failure. */
Status matcher_build(MatchString *strings, size_t n, Matcher *matcher, MatchTwins *twins, Error *err);
void matcher_release(Matcher *matcher);

/* A string that begins at `at`. */
typedef struct {
  uint32_t at;
  int32_t number;
} Match;

typedef struct {
  Match *items; /* [count] */
  size_t count, capacity;
} MatchList;
void match_list_release(MatchList *list);

/* Appends the longest string at each place of text[0 .. size) where any begins, the LAST place first.
 * Takes time proportional to the text, whatever the strings. `interrupted`: see tokenizer_heed(). PRECOND
 * size <= UINT32_MAX */
Status matcher_find(const Matcher *matcher, const char *text, size_t size, const volatile int *interrupted,
                    MatchList *list, Error *err);

#endif
