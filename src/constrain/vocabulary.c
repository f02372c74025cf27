/* vocabulary.c - builds the tries of vocabulary.h. Called by: constraint.c. */
#include "constrain/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

/* --- tries */

typedef struct {
  const uint8_t *bytes; /* [size] */
  uint32_t size;
  int32_t value;
} Word;

static int by_bytes(const void *a, const void *b) {
  const Word *x = a, *y = b;
  int order = memcmp(x->bytes, y->bytes, x->size < y->size ? x->size : y->size);
  if (order == 0) order = (x->size > y->size) - (x->size < y->size);
  return order ? order : (x->value > y->value) - (x->value < y->value);
}

/* Appends the nodes of sorted words that share their bytes up to `at`, all longer than that. */
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
  qsort(words, n, sizeof *words, by_bytes);
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
  trie->bytes = mem_alloc(n_nodes + 1, 1, "a trie of tokens", err);
  trie->skip = trie->bytes ? mem_alloc(n_nodes + 1, sizeof(uint32_t), "a trie of tokens", err) : NULL;
  trie->entries = trie->skip ? mem_alloc(n_nodes + 1, sizeof(uint32_t), "a trie of tokens", err) : NULL;
  trie->values = trie->entries ? mem_alloc(n + 1, sizeof(int32_t), "a trie of tokens", err) : NULL;
  if (!trie->values) return STATUS_FAILED;
  uint32_t empty = 0;
  while (empty < n && words[empty].size == 0) empty++;
  add_nodes(trie, words + empty, n - empty, 0);
  trie->entries[trie->n] = trie->n_values;
  return STATUS_OK;
}

static void trie_release(Trie *trie) {
  free(trie->bytes);
  free(trie->skip);
  free(trie->entries);
  free(trie->values);
}

/* --- tokens as parts of JSON strings */

typedef struct {
  bool legal;      /* the bytes up to `size` may stand inside a string */
  bool quote;      /* a quote follows them */
  bool unfinished; /* they end within a character or an escape */
  uint32_t size, n_characters;
} Inside;

/* Bytes of the escape at text[0..size), 0 if it is cut short, -1 if there is none such. Surrogates are
 * left to the machine: they make a token no part of every string. */
static int escape_length(const char *text, size_t size) {
  if (size < 2) return 0;
  if (text[1] != 'u') return strchr("\"\\/bfnrt", text[1]) ? 2 : -1;
  for (size_t i = 2; i < 6; i++) {
    if (i >= size) return 0;
    if (!strchr("0123456789abcdefABCDEF", text[i])) return -1;
  }
  return (text[2] == 'd' || text[2] == 'D') && strchr("89abcdefABCDEF", text[3]) ? -1 : 6;
}

static Inside inside_of(const char *text, size_t size) {
  Inside in = {.legal = true};
  while (in.size < size) {
    const unsigned char c = (unsigned char)text[in.size];
    in.quote = c == '"';
    if (in.quote) return in;
    uint32_t code;
    int length = c == '\\' ? escape_length(text + in.size, size - in.size)
                           : utf8_decode(text + in.size, size - in.size, &code);
    in.legal = c >= 0x20 && length >= 0;
    in.unfinished = length == 0;
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

static Status add_string_parts(Vocabulary *v, Word *words, uint32_t *n_words, uint8_t *characters,
                               Error *err) {
  size_t capacity = 0;
  for (int32_t id = 0; id < v->n_ids; id++) {
    size_t size;
    const char *bytes = vocabulary_bytes(v, id, &size);
    if (size == 0) continue;
    Inside in = inside_of(bytes, size);
    if (!in.legal) continue;
    if (!in.quote) {
      characters[id] = (uint8_t)in.n_characters;
      if (in.n_characters > v->max_characters) v->max_characters = in.n_characters;
      continue;
    }
    TRY(mem_grow(&v->quotes, &capacity, v->n_quotes + 1, sizeof *v->quotes, "tokens", err));
    v->quotes[v->n_quotes++] =
        (QuoteToken){id, 0, in.n_characters, in.size, memchr(bytes, '\\', in.size) != NULL};
  }
  if (v->n_quotes > 0) qsort_r(v->quotes, v->n_quotes, sizeof *v->quotes, by_content, v);
  for (uint32_t i = 0; i < v->n_quotes; i++) {
    size_t size;
    const char *rest = vocabulary_bytes(v, v->quotes[i].id, &size) + v->quotes[i].size + 1;
    words[(*n_words)++] = (Word){(const uint8_t *)rest, (uint32_t)size - v->quotes[i].size - 1, (int32_t)i};
  }
  return STATUS_OK;
}

/* Numbers the rests: equal ones share a number, 0 is the empty one. */
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

/* --- opening */

static Status read_bytes(const Tokenizer *tokenizer, Vocabulary *v, Error *err) {
  Buffer all = {0}, token = {0};
  Status status = STATUS_OK;
  for (int32_t id = 0; id < v->n_ids && status == STATUS_OK; id++) {
    bool is_text;
    status = tokenizer_token_bytes(tokenizer, id, &token, &is_text, err);
    if (status == STATUS_OK && is_text && token.size <= MAX_TOKEN_BYTES)
      status = buffer_append(&all, token.data ? token.data : "", token.size, err);
    v->offsets[id + 1] = (uint32_t)all.size;
  }
  buffer_release(&token);
  if (status == STATUS_OK) status = buffer_append(&all, "", 1, err);
  v->bytes = all.data;
  return status;
}

/* characters[id]: of the token inside a string, 0: it may not stand there. */
static Status add_inside(Vocabulary *v, const uint8_t *characters, Error *err) {
  const size_t n_words = v->n_words;
  v->inside = mem_alloc(v->max_characters + 1, n_words * sizeof *v->inside, "masks", err);
  if (!v->inside) return STATUS_FAILED;
  for (int32_t id = 0; id < v->n_ids; id++)
    if (characters[id]) mask_add(v->inside + n_words * characters[id], id);
  for (size_t i = n_words; i < (v->max_characters + 1) * n_words; i++) v->inside[i] |= v->inside[i - n_words];
  return STATUS_OK;
}

static Status find_quotes(Vocabulary *v, Error *err) {
  const Trie *t = &v->tokens;
  v->has_quote = mem_alloc(t->n + 1, sizeof *v->has_quote, "masks", err);
  if (!v->has_quote) return STATUS_FAILED;
  for (uint32_t node = t->n; node-- > 0;)
    for (uint32_t child = node + 1; child < t->skip[node] && !v->has_quote[node]; child = t->skip[child])
      v->has_quote[node] = t->bytes[child] == '"' || v->has_quote[child];
  return STATUS_OK;
}

static bool is_space(uint8_t byte) {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

static Status make_tries(Vocabulary *v, Word *words, Error *err) {
  uint32_t n = 0, n_unspaced = 0, n_rests = 0;
  size_t size;
  for (int32_t id = 0; id < v->n_ids; id++) {
    const char *bytes = vocabulary_bytes(v, id, &size);
    if (size > 0) words[n++] = (Word){(const uint8_t *)bytes, (uint32_t)size, id};
  }
  TRY(trie_make(words, n, &v->tokens, err));
  for (int32_t id = 0; id < v->n_ids; id++) {
    const char *bytes = vocabulary_bytes(v, id, &size);
    if (size == 0) continue;
    while (size > 0 && is_space((uint8_t)*bytes)) bytes++, size--;
    if (size == 0) mask_add(v->space, id);
    if (size > 0) words[n_unspaced++] = (Word){(const uint8_t *)bytes, (uint32_t)size, id};
  }
  TRY(trie_make(words, n_unspaced, &v->unspaced, err));
  uint8_t *characters = mem_alloc((size_t)v->n_ids + 1, 1, "tokens", err);
  Status status = characters ? add_string_parts(v, words, &n_rests, characters, err) : STATUS_FAILED;
  if (status == STATUS_OK) status = add_inside(v, characters, err);
  free(characters);
  if (status == STATUS_OK) status = find_quotes(v, err);
  if (status != STATUS_OK) return status;
  return add_rests(v, words, n_rests, err);
}

Status vocabulary_open(const Tokenizer *tokenizer, Vocabulary *vocabulary, Error *err) {
  Vocabulary *v = vocabulary;
  *v = (Vocabulary){.n_ids = tokenizer_n_ids(tokenizer)};
  const size_t n = (size_t)v->n_ids;
  v->n_words = (uint32_t)((n + 63) / 64);
  v->offsets = mem_alloc(n + 1, sizeof *v->offsets, "tokens", err);
  v->space = v->offsets ? mem_alloc(v->n_words, sizeof *v->space, "tokens", err) : NULL;
  Word *words = v->space ? mem_alloc(n + 1, sizeof *words, "tokens", err) : NULL;
  Status status = words ? read_bytes(tokenizer, v, err) : STATUS_FAILED;
  if (status == STATUS_OK) status = make_tries(v, words, err);
  free(words);
  if (status != STATUS_OK) vocabulary_close(v);
  return status;
}

void vocabulary_close(Vocabulary *vocabulary) {
  Vocabulary *v = vocabulary;
  trie_release(&v->tokens);
  trie_release(&v->unspaced);
  trie_release(&v->rests);
  free(v->bytes);
  free(v->offsets);
  free(v->space);
  free(v->inside);
  free(v->has_quote);
  free(v->quotes);
  *v = (Vocabulary){.n_ids = 0};
}
