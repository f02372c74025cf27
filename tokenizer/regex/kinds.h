/* kinds.h - text as a string of kinds: classes of characters that a group of sets does not distinguish.
 *
 * A regular expression only asks whether a character belongs to one of its sets ('\p{L}', '[\r\n]', 'a').
 * So all code points fall into a few kinds, and a text becomes one byte per character. Matching runs over
 * these bytes: our own tables decide on Unicode here, and the matching engine needs to know nothing of it.
 *
 *   text   l'étè ...        kinds of /'(?i:s)|\p{L}+/:  0 all else, 1 ', 2 other letters, 3 s S U+017F
 *   kinds  2 1 2 2 2 */
#pragma once

#include "tokenizer/regex/charset.h"

#define MAX_KINDS 256

typedef struct {
  uint16_t *block_of;     /* [UNICODE_END / 256] the block with the kinds of 256 code points */
  uint8_t (*blocks)[256]; /* [n_blocks], equal blocks are stored once */
  size_t n_blocks, capacity;
  int n_kinds; /* 1 .. MAX_KINDS */
} KindMap;

/* The kinds that make up a set. */
typedef struct {
  bool has[MAX_KINDS];
} KindSet;

/* Divides all code points by membership in sets[0 .. n_sets); members[i] (room for n_sets) gets the kinds
 * that make up sets[i]. STATUS_MODEL (`where` begins the message) if there are more than MAX_KINDS kinds.
 * Release *map also after a failure. */
Status kind_map_build(const char *where, const CharSet *sets, size_t n_sets, KindMap *map, KindSet *members,
                      Error *err);

/* A kind whose code points have `flag` in a table gets `bit` in kind_map_flags(). */
typedef struct {
  uint32_t flag;
  uint8_t bit;
} KindFlag;
/* Divides all code points by two flags, or by one if the second is 0. bits[kind] gets the bits of the flags
 * that the kind has. Otherwise as kind_map_build(). */
Status kind_map_flags(const char *where, const RunTable *table, const KindFlag flags[2], KindMap *map,
                      uint8_t bits[4], Error *err);
void kind_map_release(KindMap *map);

static inline uint8_t kind_of(const KindMap *map, uint32_t code) {
  return map->blocks[map->block_of[code >> 8]][code & 0xff];
}

/* Writes the kinds of text[0 .. size), valid UTF-8, to kinds (room for size); returns the number of
 * characters. */
size_t kinds_of_text(const KindMap *map, const char *text, size_t size, uint8_t *kinds);
