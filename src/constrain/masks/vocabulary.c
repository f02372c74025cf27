/* vocabulary.c - builds the tries of vocabulary.h. */
#include "constrain/masks/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "constrain/store/key_table.h"

/* --- tries */

typedef struct {
  const uint8_t *bytes; /* [size] */
  uint32_t size;
  int32_t value;
} Word;

/* Compares words that share their bytes before `at`; equal words are compared by value. */
static int order_from(const Word *x, const Word *y, uint32_t at) {
  const uint32_t size = x->size < y->size ? x->size : y->size;
  for (; at < size; at++)
    if (x->bytes[at] != y->bytes[at]) return x->bytes[at] - y->bytes[at];
  if (x->size != y->size) return x->size < y->size ? -1 : 1;
  return (x->value > y->value) - (x->value < y->value);
}

static int by_bytes(const void *a, const void *b) {
  return order_from(a, b, 0);
}

/* Sorts words that share their bytes before `at`; spare[0..n) is free. Equal words keep their order. PRECOND
 * equal words are in the order of their values */
static void sort_words(Word *words, Word *spare, uint32_t n, uint32_t at) {
  if (n < 24) {
    for (uint32_t i = 1; i < n; i++) {
      const Word word = words[i];
      uint32_t place = i;
      for (; place > 0 && order_from(&words[place - 1], &word, at) > 0; place--)
        words[place] = words[place - 1];
      words[place] = word;
    }
    return;
  }
  uint32_t ends[258] = {0}; /* where groups begin: words that end at `at`, then words with byte 0, 1, ... */
  for (uint32_t i = 0; i < n; i++) ends[words[i].size > at ? 2 + words[i].bytes[at] : 1]++;
  for (int i = 1; i < 258; i++) ends[i] += ends[i - 1];
  for (uint32_t i = 0; i < n; i++) spare[ends[words[i].size > at ? 1 + words[i].bytes[at] : 0]++] = words[i];
  memcpy(words, spare, n * sizeof *words);
  for (int i = 1; i < 257; i++) /* by now each is where its group ends */
    if (ends[i] - ends[i - 1] > 1)
      sort_words(words + ends[i - 1], spare + ends[i - 1], ends[i] - ends[i - 1], at + 1);
}

/* Appends the nodes of sorted words. All words share their bytes before `at` and have more than `at`
 * bytes. */
static void add_nodes(Trie *trie, const Word *words, uint32_t n, uint32_t at) {
  for (uint32_t i = 0; i < n;) {
    uint32_t end = i;
    const uint8_t byte = words[i].bytes[at];
    while (end < n && words[end].bytes[at] == byte) end++;
    const uint32_t node = trie->n++;
    trie->bytes[node] = byte;
    trie->entries[node] = trie->n_values;
    while (i < end && words[i].size == at + 1) trie->values[trie->n_values++] = words[i++].value;
    add_nodes(trie, words + i, end - i, at + 1);
    trie->skip[node] = trie->n;
    i = end;
  }
}

static Status trie_make(Word *words, uint32_t n, Trie *trie, Error *err) {
  Word *spare;
  TRY(NEW(spare, (size_t)n + 1, "tokens", err));
  sort_words(words, spare, n, 0);
  free(spare);
  size_t n_nodes = 0;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t common = 0;
    if (i > 0)
      while (common < words[i].size && common < words[i - 1].size &&
             words[i].bytes[common] == words[i - 1].bytes[common])
        common++;
    n_nodes += words[i].size - common;
  }
  *trie = (Trie){.n = 0};
  TRY(NEW(trie->bytes, n_nodes + 1, "a trie of tokens", err));
  TRY(NEW(trie->skip, n_nodes + 1, "a trie of tokens", err));
  TRY(NEW(trie->entries, n_nodes + 1, "a trie of tokens", err));
  TRY(NEW(trie->values, n + 1, "a trie of tokens", err));
  uint32_t empty = 0;
  while (empty < n && words[empty].size == 0) empty++;
  add_nodes(trie, words + empty, n - empty, 0);
  trie->entries[trie->n] = trie->n_values;
  return STATUS_OK;
}

static void trie_release(Trie *trie) {
  free(trie->bytes);
  free(trie->skip);
  free(trie->below);
  free(trie->entries);
  free(trie->values);
}

/* --- tokens as parts of JSON strings */

typedef struct {
  bool legal; /* the bytes before the first quote (without a quote: all bytes) may stand inside a string */
  bool quote; /* a quote follows the first `size` bytes */
  uint32_t size, n_characters;
} Inside;

static bool is_one_of(char c, const char *all) {
  return c && strchr(all, c);
}

/* Bytes of the escape at text[0..size). 0 if it is cut short, -1 if it is invalid or a surrogate. Tokens with
 * surrogates are left to the machine, because a string's language may refuse them. */
static int escape_length(const char *text, size_t size) {
  if (size < 2) return 0;
  if (text[1] != 'u') return is_one_of(text[1], "\"\\/bfnrt") ? 2 : -1;
  if (size > 3 && is_one_of(text[2], "dD") && is_one_of(text[3], "cdefCDEF")) return -1; /* a low surrogate */
  for (size_t i = 2; i < 6; i++) {
    if (i >= size) return 0;
    if (!is_one_of(text[i], "0123456789abcdefABCDEF")) return -1;
  }
  return is_one_of(text[2], "dD") && is_one_of(text[3], "89abAB") ? -1 : 6;
}

static Inside inside_of(const char *text, size_t size) {
  Inside in = {.legal = true};
  while (in.size < size) {
    const unsigned char c = (unsigned char)text[in.size];
    in.quote = c == '"';
    if (in.quote) return in;
    uint32_t code;
    const int length = c == '\\'  ? escape_length(text + in.size, size - in.size)
                       : c < 0x80 ? 1
                                  : utf8_decode(text + in.size, size - in.size, &code);
    in.legal = c >= 0x20 && length >= 0;
    if (!in.legal) return in;
    in.size = length == 0 ? (uint32_t)size : in.size + (uint32_t)length;
    in.n_characters++;
  }
  return in;
}

static int by_content(const void *a, const void *b, void *vocabulary) {
  const QuoteToken *x = a, *y = b;
  size_t size;
  const Vocabulary *v = vocabulary;
  int order = memcmp(vocabulary_bytes(v, x->id, &size), vocabulary_bytes(v, y->id, &size),
                     x->size < y->size ? x->size : y->size);
  return order ? order : (x->size > y->size) - (x->size < y->size);
}

static Status add_string_parts(Vocabulary *v, Word *words, uint32_t *n_words, Error *err) {
  size_t capacity = 0;
  for (int32_t id = 0; id < v->n_ids; id++) {
    size_t size;
    const char *bytes = vocabulary_bytes(v, id, &size);
    if (size == 0) continue;
    Inside in = inside_of(bytes, size);
    if (!in.legal) continue;
    if (!in.quote) {
      v->characters[id] = (uint8_t)in.n_characters;
      if (in.n_characters > v->max_characters) v->max_characters = in.n_characters;
      continue;
    }
    TRY(APPEND(v->quotes, v->n_quotes, capacity, "tokens", err, (QuoteToken){.id = id, .size = in.size}));
  }
  if (v->n_quotes > 0) qsort_r(v->quotes, v->n_quotes, sizeof *v->quotes, by_content, v);
  for (uint32_t i = 0; i < v->n_quotes; i++) {
    size_t size;
    const char *rest = vocabulary_bytes(v, v->quotes[i].id, &size) + v->quotes[i].size + 1;
    words[(*n_words)++] = (Word){(const uint8_t *)rest, (uint32_t)size - v->quotes[i].size - 1, (int32_t)i};
  }
  return STATUS_OK;
}

static Status add_groups(Vocabulary *v, Error *err) {
  TRY(NEW(v->groups, v->n_quotes + 1, "tokens", err));
  for (uint32_t i = 0; i < v->n_quotes; i++) {
    if (i == 0 || by_content(&v->quotes[i - 1], &v->quotes[i], v) != 0)
      v->groups[v->n_groups++] = (QuoteGroup){i, i};
    v->groups[v->n_groups - 1].last = i + 1;
  }
  return STATUS_OK;
}

/* Numbers the rests: equal rests share a number, 0 is the empty rest. */
static Status add_rests(Vocabulary *v, Word *words, uint32_t n, Error *err) {
  qsort(words, n, sizeof *words, by_bytes);
  v->n_rests = 1;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < n; i++) {
    const Word *last = kept ? &words[kept - 1] : NULL;
    uint32_t number = 0;
    bool same = last && last->size == words[i].size && memcmp(last->bytes, words[i].bytes, last->size) == 0;
    const int32_t quote = words[i].value;
    if (same) {
      number = (uint32_t)last->value;
    } else if (words[i].size > 0) {
      number = v->n_rests++;
      words[kept] = words[i];
      words[kept++].value = (int32_t)number;
    }
    v->quotes[quote].rest = number;
  }
  return trie_make(words, kept, &v->rests, err);
}

/* --- classes of characters */

int class_of_byte(unsigned char byte) {
  if (byte >= '0' && byte <= '9') return CLASS_DIGITS;
  if (byte >= 'a' && byte <= 'z') return byte <= 'f' ? CLASS_LOWER_HEX : CLASS_LOWER;
  if (byte >= 'A' && byte <= 'Z') return byte <= 'F' ? CLASS_UPPER_HEX : CLASS_UPPER;
  if (byte < 0x20) return CLASS_CONTROL;
  if (byte == 0x7f) return CLASS_DELETE;
  if (byte < '0') return CLASS_ASCII + byte - ' ';
  if (byte < 'A') return CLASS_ASCII + 16 + byte - ':';
  if (byte < 'a') return CLASS_ASCII + 23 + byte - '[';
  if (byte < 0x7f) return CLASS_ASCII + 29 + byte - '{';
  switch (byte) {
  case 0xc2: return CLASS_WIDE_C2;
  case 0xe1: return CLASS_WIDE_E1;
  case 0xe2: return CLASS_WIDE_E2;
  case 0xe3: return CLASS_WIDE_E3;
  case 0xef: return CLASS_WIDE_EF;
  default: return byte < 0xc2 || byte > 0xf4 ? CLASS_MIDDLE : CLASS_WIDE;
  }
}

/* The classes of a token's characters. */
static uint64_t classes_of(const char *bytes, size_t size) {
  uint64_t classes = 0;
  uint32_t code;
  for (size_t at = 0, step; at < size; at += step) {
    const int length = (unsigned char)bytes[at] < 0x80 ? 1 : utf8_decode(bytes + at, size - at, &code);
    classes |= CLASS_BIT(length > 0 ? class_of_byte((unsigned char)bytes[at]) : CLASS_PARTIAL);
    step = length > 0 ? (size_t)length : 1;
  }
  return classes;
}

/* True if the continuation byte may not follow the first byte `lead` of a character. */
static bool is_overlong(unsigned char lead, unsigned char byte) {
  return (lead == 0xe0 && byte < 0xa0) || (lead == 0xed && byte > 0x9f) || (lead == 0xf0 && byte < 0x90) ||
         (lead == 0xf4 && byte > 0x8f);
}

/* Fills `below` for the nodes first..last-1 and for all nodes below these. They follow the byte `lead`, after
 * which a character still lacks `missing` bytes. Returns the classes of all these nodes; a continuation byte
 * adds no CLASS_MIDDLE. */
static uint64_t find_below(Trie *t, uint32_t first, uint32_t last, int missing, unsigned char lead) {
  uint64_t all = 0;
  for (uint32_t node = first; node < last; node = t->skip[node]) {
    const unsigned char byte = t->bytes[node];
    const bool middle = byte >= 0x80 && byte <= 0xbf;
    const int more = middle ? missing - 1 : byte < 0xc2 ? 0 : byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
    uint64_t own = middle ? 0 : CLASS_BIT(class_of_byte(byte));
    if (middle != (missing > 0) || (middle && is_overlong(lead, byte))) own |= CLASS_BIT(CLASS_PARTIAL);
    if (more > 0 && t->entries[node + 1] > t->entries[node]) own |= CLASS_BIT(CLASS_PARTIAL);
    own |= find_below(t, node + 1, t->skip[node], more > 0 ? more : 0, byte);
    t->below[node] = middle ? own | CLASS_BIT(CLASS_MIDDLE) : own;
    all |= own;
  }
  return all;
}

static Status add_below(Trie *trie, Error *err) {
  TRY(NEW(trie->below, (size_t)trie->n + 1, "a trie of tokens", err));
  find_below(trie, 0, trie->n, 0, 0);
  return STATUS_OK;
}

static void find_heights(Vocabulary *v) {
  const Trie *t = &v->tokens;
  for (uint32_t node = t->n; node-- > 0;) {
    uint8_t height = 0;
    for (uint32_t child = node + 1; child < t->skip[node]; child = t->skip[child])
      if (v->height[child] > height) height = v->height[child];
    v->height[node] = (uint8_t)(height + 1);
  }
}

typedef struct {
  uint64_t classes;
  int32_t id;
} ClassedToken;

/* The number of the set with these classes. A new set is added. */
static Status find_set(Vocabulary *v, KeyTable *sets, size_t *capacity, uint64_t classes, uint32_t *number,
                       Error *err) {
  const KeyEntry *known = key_table_find(sets, classes);
  if (known) return *number = known->value.number, STATUS_OK;
  TRY(mem_grow(&v->class_sets, capacity, v->n_class_sets + 1, sizeof *v->class_sets, "tokens", err));
  *number = v->n_class_sets;
  if (!key_table_add(sets, (KeyEntry){classes, {.number = *number}}))
    return error_set(err, STATUS_FAILED, "out of memory");
  v->n_class_sets++;
  v->class_sets[*number] = (ClassSet){.classes = classes};
  return STATUS_OK;
}

static Status add_class_sets(Vocabulary *v, const ClassedToken *tokens, uint32_t n, Error *err) {
  OWNED(key_table_release) KeyTable sets = {0};
  OWNED(mem_release) uint32_t *numbers = NULL;
  size_t capacity = 0;
  TRY(NEW(numbers, (size_t)n + 1, "tokens", err));
  TRY(NEW(v->class_ids, (size_t)n + 1, "tokens", err));
  for (uint32_t i = 0; i < n; i++) {
    TRY(find_set(v, &sets, &capacity, tokens[i].classes, &numbers[i], err));
    v->class_sets[numbers[i]].n++;
  }
  for (uint32_t i = 1; i < v->n_class_sets; i++)
    v->class_sets[i].first = v->class_sets[i - 1].first + v->class_sets[i - 1].n;
  for (uint32_t i = 0; i < v->n_class_sets; i++) v->class_sets[i].n = 0;
  for (uint32_t i = 0; i < n; i++) {
    ClassSet *set = &v->class_sets[numbers[i]];
    v->class_ids[set->first + set->n++] = tokens[i].id;
  }
  return STATUS_OK;
}

static Status add_classes(Vocabulary *v, Word *words, Error *err) {
  const size_t n_nodes = v->tokens.n + 1;
  OWNED(mem_release) ClassedToken *tokens = NULL;
  TRY(NEW(v->height, n_nodes, "tokens", err));
  TRY(NEW(v->has_class, (size_t)N_CLASSES * v->n_words, "masks", err));
  TRY(NEW(tokens, (size_t)v->n_ids + 1, "tokens", err));
  for (int byte = 0; byte < 256; byte++) v->class_of[byte] = (uint8_t)class_of_byte((unsigned char)byte);
  TRY(add_below(&v->tokens, err));
  TRY(add_below(&v->rests, err));
  find_heights(v);
  uint32_t n = 0, n_partial = 0;
  for (int32_t id = 0; id < v->n_ids; id++) {
    size_t size;
    const char *bytes = vocabulary_bytes(v, id, &size);
    const uint64_t classes = classes_of(bytes, size);
    if (classes & CLASS_BIT(CLASS_PARTIAL)) {
      words[n_partial++] = (Word){(const uint8_t *)bytes, (uint32_t)size, id};
    } else if (size > 0) {
      tokens[n++] = (ClassedToken){classes, id};
    }
    for (uint64_t rest = classes; rest; rest &= rest - 1) {
      const int c = __builtin_ctzll(rest);
      mask_add(v->has_class + (size_t)c * v->n_words, id);
      v->class_weights[c]++;
    }
  }
  TRY(add_class_sets(v, tokens, n, err));
  return trie_make(words, n_partial, &v->partial, err);
}

/* --- opening */

static Status read_bytes(const Tokenizer *tokenizer, Vocabulary *v, Error *err) {
  OWNED(buffer_release) Buffer all = {0}, token = {0};
  for (int32_t id = 0; id < v->n_ids; id++) {
    bool is_text;
    TRY(tokenizer_token_bytes(tokenizer, id, &token, &is_text, err));
    if (is_text && token.size <= MAX_TOKEN_BYTES)
      TRY(buffer_append(&all, token.data ? token.data : "", token.size, err));
    v->offsets[id + 1] = (uint32_t)all.size;
  }
  TRY(buffer_append(&all, "", 1, err));
  v->bytes = TAKE(all.data);
  return STATUS_OK;
}

static Status add_inside(Vocabulary *v, Error *err) {
  const size_t n_words = v->n_words;
  v->inside = mem_alloc(v->max_characters + 1, n_words * sizeof *v->inside, "masks", err);
  if (!v->inside) return STATUS_FAILED;
  for (int32_t id = 0; id < v->n_ids; id++)
    if (v->characters[id]) mask_add(v->inside + n_words * v->characters[id], id);
  for (size_t i = n_words; i < (v->max_characters + 1) * n_words; i++) v->inside[i] |= v->inside[i - n_words];
  return STATUS_OK;
}

static bool is_space(uint8_t byte) {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

/* Makes `space`, and the trie of tokens without their leading white space. */
static Status make_unspaced(Vocabulary *v, Error *err) {
  OWNED(mem_release) Word *words = NULL;
  TRY(NEW(words, (size_t)v->n_ids + 1, "tokens", err));
  uint32_t n = 0;
  for (int32_t id = 0; id < v->n_ids; id++) {
    size_t size;
    const char *bytes = vocabulary_bytes(v, id, &size);
    if (size == 0) continue;
    while (size > 0 && is_space((uint8_t)*bytes)) bytes++, size--;
    if (size == 0) mask_add(v->space, id);
    if (size > 0) words[n++] = (Word){(const uint8_t *)bytes, (uint32_t)size, id};
  }
  TRY(trie_make(words, n, &v->unspaced, err));
  return add_below(&v->unspaced, err);
}

static Status make_tries(Vocabulary *v, Word *words, Error *err) {
  uint32_t n = 0, n_rests = 0;
  size_t size;
  for (int32_t id = 0; id < v->n_ids; id++) {
    const char *bytes = vocabulary_bytes(v, id, &size);
    if (size > 0) words[n++] = (Word){(const uint8_t *)bytes, (uint32_t)size, id};
  }
  TRY(trie_make(words, n, &v->tokens, err));
  TRY(NEW(v->characters, (size_t)v->n_ids + 1, "tokens", err));
  TRY(add_string_parts(v, words, &n_rests, err));
  TRY(add_inside(v, err));
  TRY(add_groups(v, err));
  TRY(add_rests(v, words, n_rests, err));
  return add_classes(v, words, err);
}

/* Makes all tries, with two threads. */
static Status make_all(Vocabulary *v, Error *err) {
  Error errors[2];
  Status statuses[2];
#pragma omp parallel sections num_threads(2)
  {
#pragma omp section
    {
      OWNED(mem_release) Word *words = NULL;
      statuses[0] = NEW(words, (size_t)v->n_ids + 1, "tokens", &errors[0]);
      if (words) statuses[0] = make_tries(v, words, &errors[0]);
    }
#pragma omp section
    statuses[1] = make_unspaced(v, &errors[1]);
  }
  const int failed = statuses[0] == STATUS_OK;
  if (statuses[failed] != STATUS_OK) error_set(err, statuses[failed], "%s", errors[failed].text);
  return statuses[failed];
}

Status vocabulary_open(const Tokenizer *tokenizer, Vocabulary *vocabulary, Error *err) {
  Vocabulary *v = vocabulary;
  *v = (Vocabulary){.n_ids = tokenizer_n_ids(tokenizer)};
  const size_t n = (size_t)v->n_ids;
  v->n_words = (uint32_t)((n + 63) / 64);
  Status status = NEW(v->offsets, n + 1, "tokens", err);
  if (status == STATUS_OK) status = NEW(v->space, v->n_words, "tokens", err);
  if (status == STATUS_OK) status = read_bytes(tokenizer, v, err);
  if (status == STATUS_OK) status = make_all(v, err);
  if (status != STATUS_OK) vocabulary_close(v);
  return status;
}

void vocabulary_close(Vocabulary *vocabulary) {
  Vocabulary *v = vocabulary;
  trie_release(&v->tokens);
  trie_release(&v->unspaced);
  trie_release(&v->rests);
  trie_release(&v->partial);
  free(v->bytes);
  free(v->offsets);
  free(v->space);
  free(v->inside);
  free(v->characters);
  free(v->quotes);
  free(v->groups);
  free(v->height);
  free(v->has_class);
  free(v->class_sets);
  free(v->class_ids);
  *v = (Vocabulary){.n_ids = 0};
}
