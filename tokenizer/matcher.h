/* matcher.h - finds many strings at once: the longest string that begins at each offset of a text. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct {
  const char *bytes; /* [size], not empty; not needed after matcher_build() */
  size_t size;
  int32_t number; /* the caller's number, not negative */
} MatchString;

/* The numbers of two equal strings: first < second. */
typedef struct {
  bool found;
  int32_t first, second;
} MatchTwins;

/* An Aho-Corasick automaton over the reversed strings. Texts are read backwards too, so that the state at
 * an offset stands for the strings that begin there. Read-only once built. Zero-initialised it holds no
 * string. */
typedef struct {
  uint32_t n_nodes;   /* node 0 is the root; nodes are numbered level by level */
  uint8_t *byte;      /* [n_nodes] on the edge from the parent */
  uint32_t *first;    /* [n_nodes + 1] children of node i, sorted by byte: first[i] .. first[i + 1] - 1 */
  uint32_t *fail;     /* [n_nodes] the longest proper prefix of this node's string that has a node */
  int32_t *longest;   /* [n_nodes] number of the longest string that is a prefix of this node's, or -1 */
  uint32_t root[256]; /* the root's child by each byte, or 0 */
} Matcher;

/* Builds the automaton of strings[0 .. n), and reorders them; takes at most 21 bytes of memory for each byte
 * of the strings. If some strings are equal, nothing is built, and *twins names two of them: twins->second is
 * the lowest number whose string has a lower number, too, which is twins->first. Release *matcher also after
 * a failure. */
Status matcher_build(MatchString *strings, size_t n, Matcher *matcher, MatchTwins *twins, Error *err);
void matcher_release(Matcher *matcher);

/* An occurrence of string `number`, which begins at offset `at`. */
typedef struct {
  uint32_t at;
  int32_t number;
} Match;

typedef struct {
  Match *items; /* [count] */
  size_t count, capacity;
} MatchList;
void match_list_release(MatchList *list);

/* Appends the longest string at each offset of text[0 .. size) where a string begins, the LAST offset first.
 * Takes time linear in the text, however many strings there are. `interrupted`: see tokenizer_heed().
 * PRECOND size <= UINT32_MAX */
Status matcher_find(const Matcher *matcher, const char *text, size_t size, const volatile int *interrupted,
                    MatchList *list, Error *err);
