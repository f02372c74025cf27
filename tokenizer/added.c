/* added.c - finds added tokens in texts; see added.h.
 *
 * Called by: encode.c, tokenizer.c, load.c. The rules are those of the reference (added_vocabulary.rs):
 * matches are the leftmost and then the longest; one that then does not count (no single word, or special
 * where special tokens are text) takes its place all the same; lstrip and rstrip widen a match over white
 * space after it was found. */
#include "tokenizer/added.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/fields.h"
#include "tokenizer/hash.h"

static void trie_release(Trie *trie) {
  free(trie->edges);
  free(trie->token);
  *trie = (Trie){0};
}

void added_release(AddedTokens *added) {
  for (size_t i = 0; i < added->count; i++) {
    free(added->tokens[i].content);
    free(added->tokens[i].normal);
  }
  free(added->tokens);
  free(added->by_id);
  trie_release(&added->plain);
  trie_release(&added->normal);
  trie_release(&added->contents);
  *added = (AddedTokens){0};
}

void added_parts_release(AddedParts *parts) {
  free(parts->items);
  *parts = (AddedParts){0};
}

/* --- the trie */

static TrieEdge *seek_edge(const Trie *trie, uint32_t node, uint8_t byte) {
  uint64_t key = ((uint64_t)node << 8 | byte) + 1;
  size_t at = hash_word(trie->seed, key) & trie->mask;
  while (trie->edges[at].key && trie->edges[at].key != key) at = (at + 1) & trie->mask;
  return &trie->edges[at];
}

static Status add_node(Trie *trie, Error *err) {
  void *token = trie->token;
  TRY(mem_grow(&token, &trie->capacity, trie->n_nodes + 1, sizeof *trie->token, "added tokens", err));
  trie->token = token;
  trie->token[trie->n_nodes++] = -1;
  return STATUS_OK;
}

static Status grow_edges(Trie *trie, Error *err) {
  size_t old_size = trie->edges ? trie->mask + 1 : 0, size = old_size ? old_size * 2 : 256;
  TrieEdge *old = trie->edges, *edges = mem_alloc(size, sizeof *edges, "added tokens", err);
  if (!edges) return STATUS_FAILED;
  trie->edges = edges;
  trie->mask = size - 1;
  for (size_t i = 0; i < old_size; i++)
    if (old[i].key) *seek_edge(trie, (uint32_t)((old[i].key - 1) >> 8), (uint8_t)(old[i].key - 1)) = old[i];
  free(old);
  return STATUS_OK;
}

/* Adds a string; *before is what it was there for already, or -1. PRECOND size > 0 */
static Status trie_add(Trie *trie, const char *bytes, size_t size, int32_t token, int32_t *before,
                       Error *err) {
  if (!trie->edges) {
    trie->seed = hash_seed();
    TRY(add_node(trie, err));
  }
  uint32_t node = 0;
  for (size_t i = 0; i < size; i++) {
    if (!trie->edges || trie->n_edges * 2 > trie->mask) TRY(grow_edges(trie, err));
    TrieEdge *edge = seek_edge(trie, node, (uint8_t)bytes[i]);
    if (!edge->key) {
      if (trie->n_nodes > UINT32_MAX / 2) return error_set(err, STATUS_FAILED, "too many added tokens");
      TRY(add_node(trie, err));
      *edge = (TrieEdge){((uint64_t)node << 8 | (uint8_t)bytes[i]) + 1, (uint32_t)(trie->n_nodes - 1)};
      trie->n_edges++;
    }
    node = edge->child;
  }
  *before = trie->token[node];
  trie->token[node] = token;
  trie->begins[(uint8_t)bytes[0]] = true;
  return STATUS_OK;
}

/* The longest string at bytes[0 .. size): its token and length, or -1. */
static int32_t trie_longest(const Trie *trie, const char *bytes, size_t size, size_t *length) {
  int32_t found = -1;
  uint32_t node = 0;
  for (size_t i = 0; i < size; i++) {
    const TrieEdge *edge = seek_edge(trie, node, (uint8_t)bytes[i]);
    if (!edge->key) break;
    node = edge->child;
    if (trie->token[node] < 0) continue;
    found = trie->token[node];
    *length = i + 1;
  }
  return found;
}

/* --- cutting */

static bool has_flag(uint32_t code, uint32_t flag) {
  return unicode_value(&unicode_flags, code) & flag;
}

/* Where the character before `at` begins, and what it is. PRECOND at > 0 */
static size_t step_back(const char *text, size_t at, uint32_t *code) {
  size_t start = utf8_before(text, at);
  utf8_decode(text + start, at - start, code);
  return start;
}

static bool is_single_word(const Traced *text, size_t start, size_t end) {
  uint32_t code;
  if (start > 0) {
    step_back(text->text, start, &code);
    if (has_flag(code, CHAR_RUST_WORD)) return false;
  }
  if (end == text->size) return true;
  utf8_decode(text->text + end, text->size - end, &code);
  return !has_flag(code, CHAR_RUST_WORD);
}

static size_t widen_left(const Traced *text, size_t start, size_t least) {
  while (start > least) {
    uint32_t code;
    size_t before = step_back(text->text, start, &code);
    if (!has_flag(code, CHAR_SPACE)) break;
    start = before;
  }
  return start < least ? least : start;
}

static size_t widen_right(const Traced *text, size_t end) {
  while (end < text->size) {
    uint32_t code;
    int length = utf8_decode(text->text + end, text->size - end, &code);
    if (!has_flag(code, CHAR_SPACE)) break;
    end += (size_t)length;
  }
  return end;
}

/* The first border behind `at`, or SIZE_MAX; *trusted: whether the text at `at` is. */
static size_t next_border(const Trust *trust, size_t at, bool *trusted) {
  size_t low = 0, high = trust->n_borders; /* borders[0 .. low) are at or before `at` */
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (trust->borders[middle] <= at) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  *trusted = trust->first ^ (low & 1);
  return low < trust->n_borders ? trust->borders[low] : SIZE_MAX;
}

static size_t original(const Traced *text, size_t shift, size_t at) {
  return text->origin ? text->origin[at] : shift + at;
}

/* Whether text[start .. end) is trusted. Where it is not, *resume is where to go on looking: behind it, as
 * the reference does where no special token counts, but not beyond the next border, so that a person's
 * text cannot take a token of the template with it. */
static bool is_trusted(const Traced *text, size_t shift, const Trust *trust, size_t start, size_t end,
                       size_t *resume) {
  bool trusted;
  size_t border = next_border(trust, original(text, shift, start), &trusted);
  if (trusted && original(text, shift, end - 1) < border) return true;
  *resume = start + 1;
  while (*resume < end && original(text, shift, *resume) < border) ++*resume;
  return false;
}

static Status add_part(AddedParts *parts, size_t start, size_t end, int32_t token, Error *err) {
  void *items = parts->items;
  TRY(mem_grow(&items, &parts->capacity, parts->count + 1, sizeof *parts->items, "parts of a text", err));
  parts->items = items;
  parts->items[parts->count++] = (AddedPart){(uint32_t)start, (uint32_t)end, token};
  return STATUS_OK;
}

Status added_cut(const AddedTokens *added, const Trie *trie, const Traced *text, size_t shift,
                 const Trust *trust, AddedParts *parts, Error *err) {
  /* done can go back where a token lies in what the one before it stripped, as in the reference;
   * spaces_end, of the last white space that was stripped to the right, does not, or each of a thousand
   * matches within it would walk over the rest of it again. */
  size_t done = 0, spaces_end = 0;
  for (size_t at = 0; trie->edges && at < text->size;) {
    if (!trie->begins[(uint8_t)text->text[at]]) {
      at++;
      continue;
    }
    size_t length = 0;
    int32_t index = trie_longest(trie, text->text + at, text->size - at, &length);
    if (index < 0) {
      at++;
      continue;
    }
    const AddedToken *token = &added->tokens[index];
    size_t start = at, end = at + length;
    at = end;
    if (token->special && !is_trusted(text, shift, trust, start, end, &at)) continue;
    if (token->single_word && !is_single_word(text, start, end)) continue;
    if (token->lstrip) start = widen_left(text, start, done);
    if (token->rstrip) end = spaces_end = widen_right(text, end < spaces_end ? spaces_end : end);
    if (done < start) TRY(add_part(parts, done, start, -1, err));
    /* Of a token that lies wholly in what the one before it stripped nothing is left. */
    if (start < end) TRY(add_part(parts, start, end, index, err));
    done = end;
  }
  return done < text->size ? add_part(parts, done, text->size, -1, err) : STATUS_OK;
}

/* --- loading */

static AddedToken *find_token(const AddedTokens *added, const char *content, size_t size) {
  size_t length = 0;
  if (size == 0 || !added->contents.edges) return NULL;
  int32_t index = trie_longest(&added->contents, content, size, &length);
  return index >= 0 && length == size ? &added->tokens[index] : NULL;
}

const AddedToken *added_find(const AddedTokens *added, const char *content, size_t size) {
  return find_token(added, content, size);
}

static Status read_token(const char *where, const Json *json, AddedToken *token, Error *err) {
  int64_t id;
  TRY(field_known(where, json, "id content single_word lstrip rstrip normalized special", err));
  TRY(field_count(where, json, "id", MAX_ID, &id, err));
  TRY(field_string(where, json, "content", &token->content, &token->size, err));
  TRY(field_bool(where, json, "single_word", &token->single_word, err));
  TRY(field_bool(where, json, "lstrip", &token->lstrip, err));
  TRY(field_bool(where, json, "rstrip", &token->rstrip, err));
  TRY(field_bool(where, json, "normalized", &token->normalized, err));
  return field_bool(where, json, "special", &token->special, err);
}

/* Sets what to look for in normalized text. */
static Status normalize_content(const Normalizer *normalizer, AddedToken *token, Error *err) {
  NormalScratch scratch = {0};
  RegexScratch regex = {0};
  Traced text = {token->content, token->size, NULL};
  Status status = normalize(normalizer, &scratch, &regex, &text, err);
  if (status == STATUS_OK &&
      (text.size != token->size || memcmp(text.text, token->content, text.size) != 0)) {
    token->normal = mem_alloc(text.size + 1, 1, "added tokens", err);
    if (token->normal) {
      memcpy(token->normal, text.text, text.size);
      token->normal_size = text.size;
    } else {
      status = STATUS_FAILED;
    }
  }
  normal_scratch_release(&scratch);
  regex_scratch_release(&regex);
  return status;
}

/* The token takes its id, from another one where the vocabulary has gaps. The reference keeps the normal
 * form that an id had. */
static Status take_id(AddedTokens *added, size_t index, Error *err) {
  AddedToken *token = &added->tokens[index];
  int32_t *owner = &added->by_id[token->id];
  const AddedToken *before = *owner >= 0 ? &added->tokens[*owner] : NULL;
  *owner = (int32_t)index;
  if (!before || before == token || token->normal || !before->normal) return STATUS_OK;
  token->normal = mem_alloc(before->normal_size + 1, 1, "added tokens", err);
  if (!token->normal) return STATUS_FAILED;
  memcpy(token->normal, before->normal, before->normal_size);
  token->normal_size = before->normal_size;
  return STATUS_OK;
}

/* A token that comes twice: the later one counts, but stays special once it was, and normal once it had a
 * form. */
static void replace_token(AddedToken *old, AddedToken *token) {
  bool special = old->special || token->special;
  char *normal = token->normal ? token->normal : old->normal;
  size_t normal_size = token->normal ? token->normal_size : old->normal_size;
  if (token->normal) free(old->normal);
  free(token->content);
  token->content = old->content;
  token->id = old->id;
  *old = *token;
  old->special = special;
  old->normal = normal;
  old->normal_size = normal_size;
  *token = (AddedToken){0};
}

static Status add_token(const Vocab *vocab, const Normalizer *normalizer, AddedTokens *added,
                        AddedToken *token, int32_t *next_id, Error *err) {
  if (token->normalized) TRY(normalize_content(normalizer, token, err));
  AddedToken *same = find_token(added, token->content, token->size);
  if (same) {
    replace_token(same, token);
    return take_id(added, (size_t)(same - added->tokens), err);
  }
  token->id = vocab_find(vocab, token->content, token->size);
  if (token->id < 0) token->id = (*next_id)++;
  void *tokens = added->tokens;
  TRY(mem_grow(&tokens, &added->capacity, added->count + 1, sizeof *token, "added tokens", err));
  added->tokens = tokens;
  int32_t before = -1;
  TRY(trie_add(&added->contents, token->content, token->size, (int32_t)added->count, &before, err));
  added->tokens[added->count++] = *token;
  *token = (AddedToken){0};
  return take_id(added, added->count - 1, err);
}

static Status load_tokens(const char *where, const Json *json, const Vocab *vocab,
                          const Normalizer *normalizer, AddedTokens *added, Error *err) {
  int32_t next_id = (int32_t)vocab->count;
  size_t i = 0;
  for (const Json *item = json_first(json); item; item = json_next(item), i++) {
    Where here = where_in(where, NULL, i);
    AddedToken token = {0};
    Status status = read_token(here.text, item, &token, err);
    if (status == STATUS_OK && token.size > 0)
      status = add_token(vocab, normalizer, added, &token, &next_id, err);
    free(token.content);
    free(token.normal);
    if (status != STATUS_OK) return status;
  }
  return STATUS_OK;
}

/* What to look for in texts. */
static Status add_pattern(const char *where, AddedTokens *added, size_t index, Error *err) {
  const AddedToken *token = &added->tokens[index];
  bool normal = token->normalized && token->normal;
  const char *wanted = normal ? token->normal : token->content;
  size_t size = normal ? token->normal_size : token->size;
  if (size == 0) /* the reference then cuts the text into single bytes */
    return error_set(err, STATUS_MODEL, "%s: \"%.80s\" is nothing when normalized", where, token->content);
  int32_t before = -1;
  TRY(trie_add(token->normalized ? &added->normal : &added->plain, wanted, size, (int32_t)index, &before,
               err));
  if (before < 0) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "%s: \"%.80s\" and \"%.80s\" are the same when normalized", where,
                   added->tokens[before].content, token->content);
}

Status added_load(const char *where, const Json *json, const Vocab *vocab, const Normalizer *normalizer,
                  AddedTokens *added, Error *err) {
  *added = (AddedTokens){0};
  if (!json) return STATUS_OK;
  if (!json_is_array(json)) return field_expected(where, NULL, json, "an array", err);
  added->n_ids = vocab->n_ids + (int32_t)json_count(json);
  added->by_id = mem_alloc((size_t)added->n_ids, sizeof *added->by_id, "added tokens", err);
  if (!added->by_id) return STATUS_FAILED;
  memset(added->by_id, 0xff, (size_t)added->n_ids * sizeof *added->by_id);
  TRY(load_tokens(where, json, vocab, normalizer, added, err));
  for (size_t i = 0; i < added->count; i++)
    if (added->by_id[added->tokens[i].id] == (int32_t)i) TRY(add_pattern(where, added, i, err));
  return STATUS_OK;
}
