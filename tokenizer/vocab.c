/* vocab.c - the vocabulary; see vocab.h.
 *
 * Always true after loading: no two tokens have the same id (the reference accepts that, but then decodes
 * unpredictably) or the same content (JSON with duplicate keys is refused). */
#include "tokenizer/vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/hash.h"

void vocab_release(Vocab *vocab) {
  buffer_release(&vocab->bytes);
  free(vocab->tokens);
  free(vocab->slots);
  free(vocab->token_of);
  *vocab = (Vocab){0};
}

uint32_t vocab_hash(const Vocab *vocab, const char *content, size_t size) {
  return (uint32_t)hash_bytes(vocab->seed, content, size);
}

/* The slot of the content, or the empty slot where it belongs. */
static VocabSlot *seek(const Vocab *vocab, const char *content, size_t size, uint32_t hash) {
  size_t at = hash & vocab->mask;
  for (;; at = (at + 1) & vocab->mask) {
    VocabSlot *slot = &vocab->slots[at];
    if (slot->token < 0) return slot;
    if (slot->hash != hash) continue;
    const VocabToken *token = &vocab->tokens[slot->token];
    if (token->size == size && memcmp(vocab->bytes.data + token->offset, content, size) == 0) return slot;
  }
}

int32_t vocab_find_hashed(const Vocab *vocab, const char *content, size_t size, uint32_t hash) {
  if (vocab->count == 0) return -1;
  int32_t token = seek(vocab, content, size, hash)->token;
  return token < 0 ? -1 : vocab->tokens[token].id;
}

int32_t vocab_find(const Vocab *vocab, const char *content, size_t size) {
  return vocab_find_hashed(vocab, content, size, vocab_hash(vocab, content, size));
}

const char *vocab_content(const Vocab *vocab, int32_t id, size_t *size) {
  if (id < 0 || id >= vocab->n_ids || vocab->token_of[id] < 0) return NULL;
  const VocabToken *token = &vocab->tokens[vocab->token_of[id]];
  *size = token->size;
  return vocab->bytes.data + token->offset;
}

void vocab_fallback_ids(const Vocab *vocab, bool wanted, int32_t ids[256]) {
  for (unsigned b = 0; b < 256; b++) {
    char content[8];
    snprintf(content, sizeof content, "<0x%02X>", b);
    ids[b] = wanted ? vocab_find(vocab, content, 6) : -1;
  }
}

/* --- loading */

static const char *pass_space(const char *at, const char *end) {
  while (at < end && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r')) at++;
  return at;
}

Status read_string(JsonCursor *cursor, Buffer *unescaped, const char **bytes, size_t *size, bool *is_string,
                   Error *err) {
  const char *at = cursor->at, *end = cursor->end;
  *is_string = at < end && *at == '"';
  if (!*is_string) return STATUS_OK;
  const char *from = ++at;
  while (at < end && *at != '"' && *at != '\\') at++;
  if (at < end && *at == '"') {
    *bytes = from;
    *size = (size_t)(at - from);
    at = pass_space(at + 1, end);
    if (at < end && *at == ':') at = pass_space(at + 1, end);
    cursor->at = at;
    return STATUS_OK;
  }
  unescaped->size = 0;
  TRY(json_cursor_string(cursor, unescaped, is_string, err));
  *bytes = unescaped->data ? unescaped->data : "";
  *size = unescaped->size;
  return STATUS_OK;
}

/* Grows the table, so that it is at most half full with one more token. */
static Status rehash(Vocab *v, Error *err) {
  size_t size = v->slots ? (v->mask + 1) * 4 : 1024;
  VocabSlot *slots;
  TRY(NEW(slots, size, "the vocabulary", err));
  if (!v->slots) v->seed = hash_seed();
  free(v->slots);
  v->slots = slots;
  v->mask = size - 1;
  memset(slots, 0xff, size * sizeof *slots);
  for (size_t i = 0; i < v->count; i++) {
    size_t at = v->tokens[i].hash & v->mask;
    while (slots[at].token >= 0) at = (at + 1) & v->mask;
    slots[at] = (VocabSlot){v->tokens[i].hash, (int32_t)i};
  }
  return STATUS_OK;
}

static const char *content_of(const Vocab *v, size_t token) {
  return v->bytes.data + v->tokens[token].offset;
}

Status vocab_add(Vocab *v, const char *content, size_t size, int32_t id, Error *err) {
  if (!v->slots || v->count * 2 > v->mask) TRY(rehash(v, err));
  TRY(mem_grow(&v->tokens, &v->capacity, v->count + 1, sizeof *v->tokens, "the vocabulary", err));
  uint32_t hash = vocab_hash(v, content, size);
  *seek(v, content, size, hash) = (VocabSlot){hash, (int32_t)v->count};
  v->tokens[v->count++] = (VocabToken){(uint32_t)v->bytes.size, (uint32_t)size, hash, id};
  if (id >= v->n_ids) v->n_ids = id + 1;
  TRY(buffer_append(&v->bytes, content, size, err));
  return buffer_append(&v->bytes, "", 1, err);
}

Status vocab_index_ids(const char *where, Vocab *v, Error *err) {
  TRY(NEW(v->token_of, (size_t)v->n_ids, "the vocabulary", err));
  memset(v->token_of, 0xff, (size_t)v->n_ids * sizeof *v->token_of);
  for (size_t i = 0; i < v->count; i++) {
    int32_t *token = &v->token_of[v->tokens[i].id];
    if (*token >= 0)
      return error_set(err, STATUS_MODEL, "%s: \"%.80s\" and \"%.80s\" have the same id %d", where,
                       content_of(v, (size_t)*token), content_of(v, i), (int)v->tokens[i].id);
    *token = (int32_t)i;
  }
  return STATUS_OK;
}

static Status read_tokens(const char *where, JsonCursor cursor, Buffer *unescaped, Vocab *v, Error *err) {
  for (bool first = true; json_cursor_next(&cursor, &first);) {
    const char *content = "";
    size_t size = 0;
    bool is_string;
    int64_t id;
    TRY(read_string(&cursor, unescaped, &content, &size, &is_string, err));
    const JsonCursor at = cursor;
    char found[64];
    if (!json_cursor_int64(&cursor, &id) || id < 0 || id > MAX_ID)
      return error_set(err, STATUS_MODEL, "%s: the id of \"%.*s\" is %s, expected an integer from 0 to %d",
                       where, (int)(size < 80 ? size : 80), content, json_cursor_describe(at, found), MAX_ID);
    TRY(vocab_add(v, content, size, (int32_t)id, err));
  }
  return STATUS_OK;
}

Status vocab_load(const char *where, JsonSpan span, Vocab *v, Error *err) {
  *v = (Vocab){0};
  JsonCursor cursor = json_cursor(span);
  char found[64];
  if (!span.text || !json_cursor_enter(&cursor, '{'))
    return error_set(err, STATUS_MODEL, "%s is %s, expected an object", where,
                     json_cursor_describe(cursor, found));
  OWNED(buffer_release) Buffer unescaped = {0};
  TRY(read_tokens(where, cursor, &unescaped, v, err));
  return vocab_index_ids(where, v, err);
}
