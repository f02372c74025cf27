/* bpe.c - encodes pieces by merging symbols; see bpe.h.
 *
 * A piece becomes one symbol per character. Then the neighbouring pair with the lowest rank merges, leftmost
 * first, until no pair has a rule. Short words scan all pairs; long words use a heap, so that n symbols take
 * n log n steps. A long word is first cut where no merge can join its parts (Joints). The ids stay the same,
 * and the word cache also works for texts without spaces. */
#include "tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/hash.h"
#include "tokenizer/split.h"
#include "tokenizer/stop.h"

/* Up to this many symbols a scan of all pairs is faster than a heap. */
enum { FEW_SYMBOLS = 48 };
/* Words of at least this many bytes are cut first. Words of real text are shorter. */
enum { LONG_WORD = 64 };

#define GONE UINT32_MAX /* rank of a symbol that was merged into its left neighbour */

void bpe_scratch_release(BpeScratch *scratch) {
  word_cache_release(&scratch->words);
  buffer_release(&scratch->text);
  id_list_release(&scratch->symbols);
  free(scratch->ranks);
  free(scratch->next);
  free(scratch->prev);
  free(scratch->heap);
  *scratch = (BpeScratch){0};
}

/* --- symbols */

static int32_t code_symbol(const Bpe *bpe, const char *character, size_t size, uint32_t code) {
  return code < 0x10000 ? bpe->code_ids[code] : vocab_find(bpe->vocab, character, size);
}

/* The state of reading a word. As in the reference an unknown token waits (unk_waits) until the next known
 * character, the next unknown one (unless fuse_unk) or the end of the word. Byte tokens that come meanwhile
 * are put before it. */
typedef struct {
  const Bpe *bpe;
  IdList *symbols;
  bool unk_waits;
  const volatile int *interrupted;
} SymbolReader;

static Status put_known(SymbolReader *r, int32_t id, Error *err) {
  if (r->unk_waits) {
    r->unk_waits = false;
    TRY(id_list_append(r->symbols, r->bpe->unk_id, err));
  }
  return id_list_append(r->symbols, id, err);
}

static Status put_unknown(SymbolReader *r, const char *symbol, size_t size, Error *err) {
  const Bpe *bpe = r->bpe;
  bool all = bpe->byte_fallback;
  for (size_t i = 0; i < size && all; i++) all = bpe->fallback_ids[(unsigned char)symbol[i]] >= 0;
  if (all) {
    for (size_t i = 0; i < size; i++)
      TRY(id_list_append(r->symbols, bpe->fallback_ids[(unsigned char)symbol[i]], err));
    return STATUS_OK;
  }
  if (!bpe->has_unk) return STATUS_OK; /* the character is dropped */
  if (bpe->unk_id < 0)
    return error_set(err, STATUS_MODEL,
                     "%s: unk_token \"%.80s\" is needed for \"%.*s\" but not in the vocabulary", bpe->where,
                     bpe->unk, (int)size, symbol);
  if (r->unk_waits && !bpe->fuse_unk) TRY(id_list_append(r->symbols, bpe->unk_id, err));
  r->unk_waits = true;
  return STATUS_OK;
}

/* Reads the bytes of a word as symbols. PRECOND bpe->bytes, no prefix or suffix */
static Status read_bytes(SymbolReader *r, const char *word, size_t size, Error *err) {
  for (size_t i = 0; i < size; i++) {
    if (i % STOP_EACH == 0) TRY(stop_check(r->interrupted, err));
    uint8_t byte = (uint8_t)word[i];
    int32_t id = r->bpe->byte_ids[byte];
    if (id >= 0) {
      TRY(put_known(r, id, err));
      continue;
    }
    char mapped[4];
    size_t n = (size_t)utf8_encode(byte_level_char(byte), mapped);
    TRY(put_unknown(r, mapped, n, err));
  }
  return STATUS_OK;
}

static Status read_characters(SymbolReader *r, const char *word, size_t size, Error *err) {
  for (size_t at = 0; at < size;) {
    if (at % STOP_EACH < 4) TRY(stop_check(r->interrupted, err)); /* a character has 4 bytes at most */
    uint32_t code;
    size_t n = (size_t)utf8_decode(word + at, size - at, &code);
    int32_t id = code_symbol(r->bpe, word + at, n, code);
    TRY(id >= 0 ? put_known(r, id, err) : put_unknown(r, word + at, n, err));
    at += n;
  }
  return STATUS_OK;
}

/* Reads characters, with continuing_subword_prefix before all but the first and end_of_word_suffix after
 * the last. */
static Status read_affixed(SymbolReader *r, const char *word, size_t size, Error *err) {
  const Bpe *bpe = r->bpe;
  OWNED(buffer_release) Buffer symbol = {0};
  for (size_t at = 0; at < size;) {
    uint32_t code;
    size_t n = (size_t)utf8_decode(word + at, size - at, &code);
    symbol.size = 0;
    if (at % STOP_EACH < 4) TRY(stop_check(r->interrupted, err));
    if (at > 0) TRY(buffer_append(&symbol, bpe->prefix, bpe->prefix_size, err));
    TRY(buffer_append(&symbol, word + at, n, err));
    at += n;
    if (at == size) TRY(buffer_append(&symbol, bpe->suffix, bpe->suffix_size, err));
    int32_t id = vocab_find(bpe->vocab, symbol.data, symbol.size);
    TRY(id >= 0 ? put_known(r, id, err) : put_unknown(r, symbol.data, symbol.size, err));
  }
  return STATUS_OK;
}

static Status read_symbols(const Bpe *bpe, BpeScratch *scratch, const char *word, size_t size, Error *err) {
  SymbolReader reader = {bpe, &scratch->symbols, false, scratch->interrupted};
  scratch->symbols.count = 0;
  if (bpe->prefix_size || bpe->suffix_size) {
    if (bpe->bytes) {
      TRY(byte_level_map(word, size, &scratch->text, err));
      word = scratch->text.data;
      size = scratch->text.size;
    }
    TRY(read_affixed(&reader, word, size, err));
  } else {
    TRY(bpe->bytes ? read_bytes(&reader, word, size, err) : read_characters(&reader, word, size, err));
  }
  return reader.unk_waits ? id_list_append(&scratch->symbols, bpe->unk_id, err) : STATUS_OK;
}

/* --- merging */

static Status reserve(BpeScratch *s, size_t n, Error *err) {
  if (n <= s->capacity) return STATUS_OK;
  free(s->ranks);
  free(s->next);
  free(s->prev);
  free(s->heap);
  s->capacity = 0;
  s->ranks = mem_alloc(n, sizeof *s->ranks, "symbols to merge", err);
  s->next = mem_alloc(n, sizeof *s->next, "symbols to merge", err);
  s->prev = mem_alloc(n, sizeof *s->prev, "symbols to merge", err);
  s->heap = mem_alloc(n, 2 * sizeof *s->heap, "symbols to merge", err);
  if (!s->ranks || !s->next || !s->prev || !s->heap) return STATUS_FAILED;
  s->capacity = n;
  return STATUS_OK;
}

static uint32_t rank_of(const Bpe *bpe, int32_t left, int32_t right) {
  const Merge *merge = bpe_merge(bpe, left, right);
  return merge ? merge->rank : NO_RANK;
}

/* Merges ids[0 .. n) in place and returns how many are left. PRECOND n <= FEW_SYMBOLS */
static size_t merge_few(const Bpe *bpe, int32_t *ids, size_t n) {
  uint32_t ranks[FEW_SYMBOLS]; /* ranks[i] of ids[i] and ids[i + 1] */
  for (size_t i = 0; i + 1 < n; i++) ranks[i] = rank_of(bpe, ids[i], ids[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; i++)
      if (ranks[i] < ranks[best]) best = i;
    if (ranks[best] == NO_RANK) break;
    ids[best] = bpe_merge(bpe, ids[best], ids[best + 1])->product;
    n--;
    memmove(ids + best + 1, ids + best + 2, (n - best - 1) * sizeof *ids);
    memmove(ranks + best, ranks + best + 1, (n - best - 1) * sizeof *ranks);
    if (best + 1 < n) ranks[best] = rank_of(bpe, ids[best], ids[best + 1]);
    if (best > 0) ranks[best - 1] = rank_of(bpe, ids[best - 1], ids[best]);
  }
  return n;
}

/* A min-heap of rank << 32 | position: the lowest rank is on top and, among equal ranks, the leftmost. */
static void heap_sink(uint64_t *heap, size_t n, size_t at) {
  uint64_t key = heap[at];
  for (size_t child; (child = at * 2 + 1) < n; at = child) {
    if (child + 1 < n && heap[child + 1] < heap[child]) child++;
    if (key <= heap[child]) break;
    heap[at] = heap[child];
  }
  heap[at] = key;
}

static void heap_push(uint64_t *heap, size_t *n, uint64_t key) {
  size_t at = (*n)++;
  for (; at > 0 && heap[(at - 1) / 2] > key; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
  heap[at] = key;
}

static uint64_t heap_pop(uint64_t *heap, size_t *n) {
  uint64_t top = heap[0];
  heap[0] = heap[--*n];
  if (*n > 0) heap_sink(heap, *n, 0);
  return top;
}

/* Recomputes the rank of the pair at position i. A heap entry with the old rank becomes stale. 2 n entries
 * suffice: there are fewer than n merges, and each removes one entry and adds at most two. */
static void renew(const Bpe *bpe, BpeScratch *s, const int32_t *ids, uint32_t i, size_t end,
                  size_t *heap_size) {
  uint32_t j = s->next[i];
  s->ranks[i] = j < end ? rank_of(bpe, ids[i], ids[j]) : NO_RANK;
  if (s->ranks[i] != NO_RANK) heap_push(s->heap, heap_size, (uint64_t)s->ranks[i] << 32 | i);
}

static Status merge_many(const Bpe *bpe, BpeScratch *s, int32_t *ids, size_t n, size_t *left, Error *err) {
  TRY(reserve(s, n, err));
  size_t heap_size = 0;
  for (size_t i = 0; i < n; i++) {
    if (i % STOP_EACH == 0) TRY(stop_check(s->interrupted, err));
    s->next[i] = (uint32_t)i + 1;
    s->prev[i] = (uint32_t)i - 1; /* UINT32_MAX for the first symbol */
    s->ranks[i] = i + 1 < n ? rank_of(bpe, ids[i], ids[i + 1]) : NO_RANK;
    if (s->ranks[i] != NO_RANK) s->heap[heap_size++] = (uint64_t)s->ranks[i] << 32 | i;
  }
  for (size_t i = heap_size / 2; i-- > 0;) heap_sink(s->heap, heap_size, i);
  for (size_t round = 0; heap_size > 0; round++) {
    if (round % STOP_EACH == 0) TRY(stop_check(s->interrupted, err));
    uint64_t key = heap_pop(s->heap, &heap_size);
    uint32_t i = (uint32_t)key, rank = (uint32_t)(key >> 32);
    if (s->ranks[i] != rank) continue; /* a stale entry */
    uint32_t j = s->next[i];
    ids[i] = bpe_merge(bpe, ids[i], ids[j])->product;
    ids[j] = -1;
    s->ranks[j] = GONE;
    s->next[i] = s->next[j];
    if (s->next[i] < n) s->prev[s->next[i]] = i;
    renew(bpe, s, ids, i, n, &heap_size);
    if (s->prev[i] < n) renew(bpe, s, ids, s->prev[i], n, &heap_size);
  }
  *left = 0;
  for (size_t i = 0; i < n; i = s->next[i]) ids[(*left)++] = ids[i];
  return STATUS_OK;
}

/* Leaves the ids of a word in scratch->symbols. */
static Status merge_word(const Bpe *bpe, BpeScratch *scratch, const char *word, size_t size, Error *err) {
  TRY(read_symbols(bpe, scratch, word, size, err));
  IdList *symbols = &scratch->symbols;
  if (symbols->count <= FEW_SYMBOLS) {
    symbols->count = merge_few(bpe, symbols->ids, symbols->count);
    return STATUS_OK;
  }
  return merge_many(bpe, scratch, symbols->ids, symbols->count, &symbols->count, err);
}

static Status append_ids(IdList *out, const int32_t *ids, size_t n, Error *err) {
  if (n == 0) return STATUS_OK;
  TRY(mem_grow(&out->ids, &out->capacity, out->count + n, sizeof *out->ids, "token ids", err));
  memcpy(out->ids + out->count, ids, n * sizeof *ids);
  out->count += n;
  return STATUS_OK;
}

/* With ignore_merges, a word in the vocabulary is that token, whatever the merges would make of it. */
static Status find_whole(const Bpe *bpe, BpeScratch *scratch, const char *word, size_t size, int32_t *id,
                         Error *err) {
  *id = -1;
  if (!bpe->ignore_merges) return STATUS_OK;
  if (bpe->bytes) {
    TRY(byte_level_map(word, size, &scratch->text, err));
    word = scratch->text.data;
    size = scratch->text.size;
  }
  *id = vocab_find(bpe->vocab, word, size);
  return STATUS_OK;
}

/* Appends the ids of a word. `whole`: the word is not a part of a longer word. */
static Status encode_word(const Bpe *bpe, BpeScratch *scratch, const char *word, size_t size, bool whole,
                          IdList *ids, Error *err) {
  TRY(stop_check(scratch->interrupted, err));
  WordSlot *slot = NULL;
  uint64_t hash = 0;
  if (size <= WORD_CACHE_LONGEST) {
    hash = hash_bytes(bpe->seed, word, size) ^ (whole ? 0 : UINT64_MAX);
    slot = word_cache_seek(&scratch->words, word, size, hash);
    if (slot && slot->key_size > 0)
      return slot->n_ids ? append_ids(ids, scratch->words.ids.ids + slot->ids, slot->n_ids, err) : STATUS_OK;
  }
  int32_t id = -1;
  if (whole) TRY(find_whole(bpe, scratch, word, size, &id, err));
  if (id >= 0) {
    scratch->symbols.count = 0;
    TRY(id_list_append(&scratch->symbols, id, err));
  } else {
    TRY(merge_word(bpe, scratch, word, size, err));
  }
  const IdList *symbols = &scratch->symbols;
  if (slot) word_cache_fill(&scratch->words, slot, word, size, hash, symbols->ids, symbols->count);
  return append_ids(ids, symbols->ids, symbols->count, err);
}

/* --- long words */

/* Returns whether a merge can join text across these two neighbouring symbols. */
static bool can_meet(const Bpe *bpe, uint32_t left, uint32_t right) {
  const Joints *j = &bpe->joints;
  if (left < 256 && right < 256) return j->near[(left << 8 | right) / 8] >> right % 8 & 1;
  if (!j->far) return false;
  uint64_t joint = (uint64_t)left << 32 | right;
  size_t at = hash_word(bpe->seed, joint) & j->far_mask;
  while (j->far[at] && j->far[at] != joint) at = (at + 1) & j->far_mask;
  return j->far[at] == joint;
}

/* Reads the symbol at word[at ..) and returns its length; *known: the symbol is in the vocabulary by
 * itself. */
static size_t read_symbol(const Bpe *bpe, const char *word, size_t size, size_t at, uint32_t *symbol,
                          bool *known) {
  if (bpe->bytes) {
    *symbol = (uint8_t)word[at];
    *known = bpe->byte_ids[*symbol] >= 0;
    return 1;
  }
  size_t n = (size_t)utf8_decode(word + at, size - at, symbol);
  *known = code_symbol(bpe, word + at, n, *symbol) >= 0;
  return n;
}

static Status encode_parts(const Bpe *bpe, BpeScratch *scratch, const char *word, size_t size, IdList *ids,
                           Error *err) {
  uint32_t left = 0;
  bool left_known = false;
  size_t from = 0;
  for (size_t at = 0; at < size;) {
    uint32_t symbol;
    bool known;
    size_t n = read_symbol(bpe, word, size, at, &symbol, &known);
    if (left_known && known && !can_meet(bpe, left, symbol)) {
      TRY(encode_word(bpe, scratch, word + from, at - from, false, ids, err));
      from = at;
    }
    left = symbol;
    left_known = known;
    at += n;
  }
  return encode_word(bpe, scratch, word + from, size - from, false, ids, err);
}

Status bpe_encode(const Bpe *bpe, BpeScratch *scratch, const char *piece, size_t size, IdList *ids,
                  Error *err) {
  if (size == 0) return STATUS_OK;
  if (size < LONG_WORD || !bpe->joints.known) return encode_word(bpe, scratch, piece, size, true, ids, err);
  int32_t id;
  TRY(find_whole(bpe, scratch, piece, size, &id, err));
  return id >= 0 ? id_list_append(ids, id, err) : encode_parts(bpe, scratch, piece, size, ids, err);
}
