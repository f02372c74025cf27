/* kinds.c - divides the code points, and texts, into kinds; see kinds.h. */
#include "tokenizer/regex/kinds.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum { BLOCKS = UNICODE_END / 256 };

/* A code point at which membership in a set begins or ends. */
typedef struct {
  uint32_t code;
  uint32_t set;
} Edge;

/* The combinations of sets seen so far; the index of a combination is its kind. */
typedef struct {
  uint8_t *signatures; /* [MAX_KINDS][bytes] a bit for each set */
  size_t bytes;
  uint8_t *current; /* [bytes] at the current code point of the sweep */
} Signatures;

static int by_code(const void *a, const void *b) {
  const Edge *x = a, *y = b;
  return (x->code > y->code) - (x->code < y->code);
}

static Status current_kind(const Signatures *s, const char *where, KindMap *map, uint8_t *kind, Error *err) {
  for (int k = 0; k < map->n_kinds; k++) {
    if (memcmp(s->signatures + (size_t)k * s->bytes, s->current, s->bytes) == 0) {
      *kind = (uint8_t)k;
      return STATUS_OK;
    }
  }
  if (map->n_kinds == MAX_KINDS)
    return error_set(err, STATUS_MODEL, "%s: tells more than %d kinds of characters apart", where, MAX_KINDS);
  memcpy(s->signatures + (size_t)map->n_kinds * s->bytes, s->current, s->bytes);
  *kind = (uint8_t)map->n_kinds++;
  return STATUS_OK;
}

/* Appends a block, or finds an equal one. */
static Status add_block(KindMap *map, const uint8_t *block, uint16_t *index, Error *err) {
  for (size_t i = map->n_blocks; i > 0; i--) {
    if (memcmp(map->blocks[i - 1], block, sizeof *map->blocks) == 0) {
      *index = (uint16_t)(i - 1);
      return STATUS_OK;
    }
  }
  TRY(mem_grow(&map->blocks, &map->capacity, map->n_blocks + 1, sizeof *map->blocks, "kinds of characters",
               err));
  memcpy(map->blocks[map->n_blocks], block, sizeof *map->blocks);
  *index = (uint16_t)map->n_blocks++;
  return STATUS_OK;
}

/* The sweep's output: code points below `done` have their kind. */
typedef struct {
  uint32_t done;
  uint8_t block[256]; /* kinds of the code points from done & ~255 on */
} Filler;

static Status fill(KindMap *map, Filler *filler, uint32_t end, uint8_t kind, Error *err) {
  while (filler->done < end) {
    uint32_t start = filler->done & 0xff, base = filler->done >> 8;
    uint32_t stop = (end >> 8) == base ? end & 0xff : 256;
    memset(filler->block + start, kind, stop - start);
    filler->done = (base << 8) + stop;
    if (stop < 256) break;
    TRY(add_block(map, filler->block, &map->block_of[base], err));
    uint32_t whole = (end >> 8) - (base + 1); /* further blocks of this kind alone */
    if (whole > 0) {
      memset(filler->block, kind, 256);
      uint16_t index;
      TRY(add_block(map, filler->block, &index, err));
      for (uint32_t i = 1; i <= whole; i++) map->block_of[base + i] = index;
      filler->done += whole << 8;
    }
  }
  return STATUS_OK;
}

static Status sweep(const char *where, const Edge *edges, size_t n_edges, const Signatures *signatures,
                    KindMap *map, Error *err) {
  Filler filler = {0};
  for (size_t i = 0; i <= n_edges;) {
    uint32_t end = i < n_edges ? edges[i].code : UNICODE_END;
    if (end > filler.done) {
      uint8_t kind = 0;
      TRY(current_kind(signatures, where, map, &kind, err));
      TRY(fill(map, &filler, end, kind, err));
    }
    if (i == n_edges) break;
    for (; i < n_edges && edges[i].code == end; i++)
      signatures->current[edges[i].set / 8] ^= (uint8_t)(1u << edges[i].set % 8);
  }
  return STATUS_OK;
}

Status kind_map_build(const char *where, const CharSet *sets, size_t n_sets, KindMap *map, KindSet *members,
                      Error *err) {
  *map = (KindMap){0};
  size_t n_edges = 0;
  for (size_t i = 0; i < n_sets; i++) n_edges += 2 * sets[i].count;
  Signatures s = {.bytes = n_sets / 8 + 1};
  OWNED(mem_release) Edge *edges = NULL;
  OWNED(mem_release) uint8_t *signatures = NULL;
  TRY(NEW(edges, n_edges, "a regular expression's sets", err));
  TRY(NEW(signatures, (MAX_KINDS + 1) * s.bytes, "kinds of characters", err));
  TRY(NEW(map->block_of, BLOCKS, "kinds of characters", err));
  s.signatures = signatures;
  s.current = signatures + MAX_KINDS * s.bytes;
  size_t at = 0;
  for (size_t i = 0; i < n_sets; i++) {
    for (size_t r = 0; r < sets[i].count; r++) {
      edges[at++] = (Edge){sets[i].ranges[r].first, (uint32_t)i};
      edges[at++] = (Edge){sets[i].ranges[r].last + 1, (uint32_t)i};
    }
  }
  qsort(edges, n_edges, sizeof *edges, by_code);
  while (n_edges > 0 && edges[n_edges - 1].code == UNICODE_END) n_edges--;
  TRY(sweep(where, edges, n_edges, &s, map, err));
  for (size_t i = 0; i < n_sets; i++) {
    for (int k = 0; k < MAX_KINDS; k++)
      members[i].has[k] = k < map->n_kinds && (s.signatures[(size_t)k * s.bytes + i / 8] >> i % 8 & 1);
  }
  return STATUS_OK;
}

Status kind_map_flags(const char *where, const RunTable *table, const KindFlag flags[2], KindMap *map,
                      uint8_t bits[4], Error *err) {
  OWNED(charset_release) CharSet first = {0}, second = {0};
  KindSet members[2];
  TRY(charset_add_flags(&first, table, flags[0].flag, err));
  if (flags[1].flag) TRY(charset_add_flags(&second, table, flags[1].flag, err));
  TRY(kind_map_build(where, (const CharSet[]){first, second}, 2, map, members, err));
  for (int k = 0; k < map->n_kinds; k++)
    bits[k] = (members[0].has[k] ? flags[0].bit : 0) | (members[1].has[k] ? flags[1].bit : 0);
  return STATUS_OK;
}

void kind_map_release(KindMap *map) {
  free(map->block_of);
  free(map->blocks);
  *map = (KindMap){0};
}

size_t kinds_of_text(const KindMap *map, const char *text, size_t size, uint8_t *kinds) {
  const uint8_t *ascii = map->blocks[map->block_of[0]];
  const unsigned char *at = (const unsigned char *)text, *end = at + size;
  uint8_t *out = kinds;
  while (at < end) {
    if (*at < 0x80) {
      *out++ = ascii[*at++];
      continue;
    }
    uint32_t code;
    at += utf8_decode(at, (size_t)(end - at), &code);
    *out++ = kind_of(map, code);
  }
  return (size_t)(out - kinds);
}
