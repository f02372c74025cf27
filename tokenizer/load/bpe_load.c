/* bpe_load.c - loads the model "BPE" from its JSON: options, merge rules and the tables derived from them. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/bpe.h"
#include "tokenizer/hash.h"
#include "tokenizer/load/fields.h"
#include "tokenizer/split.h"

void bpe_release(Bpe *bpe) {
  free(bpe->merges);
  free(bpe->code_ids);
  free(bpe->joints.near);
  free(bpe->joints.far);
  free(bpe->prefix);
  free(bpe->suffix);
  free(bpe->unk);
  *bpe = (Bpe){0};
}

/* --- merge rules */

static Merge *seek_merge(const Bpe *bpe, uint64_t pair) {
  size_t at = hash_word(bpe->seed, pair) & bpe->merge_mask;
  while (bpe->merges[at].pair != NO_PAIR && bpe->merges[at].pair != pair) at = (at + 1) & bpe->merge_mask;
  return &bpe->merges[at];
}

const Merge *bpe_merge(const Bpe *bpe, int32_t left, int32_t right) {
  const Merge *merge = seek_merge(bpe, (uint64_t)(uint32_t)left << 32 | (uint32_t)right);
  return merge->pair == NO_PAIR ? NULL : merge;
}

static Status grow_merges(Bpe *bpe, size_t size, Error *err) {
  Merge *old = bpe->merges, *merges;
  TRY(NEW(merges, size, "merge rules", err));
  size_t old_size = old ? bpe->merge_mask + 1 : 0;
  memset(merges, 0xff, size * sizeof *merges);
  bpe->merges = merges;
  bpe->merge_mask = size - 1;
  for (size_t i = 0; i < old_size; i++)
    if (old[i].pair != NO_PAIR) *seek_merge(bpe, old[i].pair) = old[i];
  free(old);
  return STATUS_OK;
}

/* A rule while it is read: three strings, then their ids. */
typedef struct {
  Buffer text; /* left, right, and product where that is not left + right */
  size_t size[3], at[3];
  uint32_t hash[3];
  int32_t id[3];
  uint32_t rank;
} MergeText;

enum { LEFT, RIGHT, PRODUCT, BATCH = 16 };

/* The reader of the array of merges. Lookups miss the CPU caches, so rules are looked up BATCH at a time,
 * and each step prefetches what the next one reads. */
typedef struct {
  const char *where;
  Bpe *bpe;
  Buffer unescaped[2];
  MergeText rules[BATCH];
  size_t n_rules;
  uint32_t rank; /* rank of the next rule */
  char form;     /* '"' or '[': form of the first element; 0: none read yet */
} MergeReader;

static const char *rule_text(const MergeText *rule, int which) {
  return rule->text.data ? rule->text.data + rule->at[which] : "";
}

static Status find_ids(MergeReader *r, MergeText *rule, Error *err) {
  for (int i = 0; i < 3; i++) {
    rule->id[i] = vocab_find_hashed(r->bpe->vocab, rule_text(rule, i), rule->size[i], rule->hash[i]);
    if (rule->id[i] >= 0) continue;
    return error_set(err, STATUS_MODEL, "%s: merge %u: \"%.*s\" is not in the vocabulary", r->where,
                     (unsigned)rule->rank, (int)(rule->size[i] < 80 ? rule->size[i] : 80),
                     rule_text(rule, i));
  }
  return STATUS_OK;
}

static uint64_t rule_pair(const MergeText *rule) {
  return (uint64_t)(uint32_t)rule->id[LEFT] << 32 | (uint32_t)rule->id[RIGHT];
}

/* Adds the rules read so far to the table. */
static Status add_rules(MergeReader *r, Error *err) {
  Bpe *bpe = r->bpe;
  if ((r->rank + (size_t)BATCH) * 2 > bpe->merge_mask) TRY(grow_merges(bpe, (bpe->merge_mask + 1) * 2, err));
  for (size_t i = 0; i < r->n_rules && bpe->vocab->count > 0; i++)
    for (int k = 0; k < 3; k++) vocab_prefetch(bpe->vocab, r->rules[i].hash[k], false);
  for (size_t i = 0; i < r->n_rules && bpe->vocab->count > 0; i++)
    for (int k = 0; k < 3; k++) vocab_prefetch(bpe->vocab, r->rules[i].hash[k], true);
  for (size_t i = 0; i < r->n_rules; i++) {
    TRY(find_ids(r, &r->rules[i], err));
    __builtin_prefetch(&bpe->merges[hash_word(bpe->seed, rule_pair(&r->rules[i])) & bpe->merge_mask]);
  }
  for (size_t i = 0; i < r->n_rules; i++) {
    const MergeText *rule = &r->rules[i];
    /* If a pair occurs twice, the later rank counts. */
    *seek_merge(bpe, rule_pair(rule)) = (Merge){rule_pair(rule), rule->rank, rule->id[PRODUCT]};
  }
  r->n_rules = 0;
  return STATUS_OK;
}

static Status take_rule(MergeReader *r, const char *left, size_t left_size, const char *right,
                        size_t right_size, Error *err) {
  const Bpe *bpe = r->bpe;
  MergeText *rule = &r->rules[r->n_rules];
  if (right_size < bpe->prefix_size)
    return error_set(err, STATUS_MODEL,
                     "%s: merge %u: its right side is shorter than continuing_subword_prefix", r->where,
                     (unsigned)r->rank);
  rule->rank = r->rank++;
  rule->text.size = 0;
  rule->size[LEFT] = left_size, rule->size[RIGHT] = right_size;
  rule->size[PRODUCT] = left_size + right_size - bpe->prefix_size;
  rule->at[RIGHT] = left_size; /* the other offsets are 0, unless the product is stored separately */
  TRY(buffer_append(&rule->text, left, left_size, err));
  TRY(buffer_append(&rule->text, right, right_size, err));
  if (bpe->prefix_size > 0) {
    rule->at[PRODUCT] = rule->text.size;
    TRY(buffer_append(&rule->text, left, left_size, err));
    TRY(buffer_append(&rule->text, right + bpe->prefix_size, right_size - bpe->prefix_size, err));
  }
  for (int k = 0; k < 3; k++) {
    rule->hash[k] = vocab_hash(bpe->vocab, rule_text(rule, k), rule->size[k]);
    if (bpe->vocab->count > 0) __builtin_prefetch(vocab_slot(bpe->vocab, rule->hash[k]));
  }
  return ++r->n_rules == BATCH ? add_rules(r, err) : STATUS_OK;
}

/* Reads "left right" with exactly one space; skips header lines of merges.txt. */
static Status read_line(MergeReader *r, JsonCursor *cursor, Error *err) {
  const char *line = "";
  size_t size = 0;
  bool is_string;
  TRY(read_string(cursor, &r->unescaped[0], &line, &size, &is_string, err));
  if (size >= 8 && memcmp(line, "#version", 8) == 0) return STATUS_OK;
  const char *space = memchr(line, ' ', size);
  size_t left = space ? (size_t)(space - line) : size;
  if (!space || memchr(space + 1, ' ', size - left - 1))
    return error_set(err, STATUS_MODEL, "%s: merge %u: \"%.*s\" is not two tokens with a space between them",
                     r->where, (unsigned)r->rank, (int)(size < 80 ? size : 80), line);
  return take_rule(r, line, left, space + 1, size - left - 1, err);
}

/* Reads ["left", "right"]. */
static Status read_pair(MergeReader *r, JsonCursor *cursor, Error *err) {
  const char *sides[2] = {"", ""};
  size_t sizes[2] = {0, 0}, n = 0;
  bool strings = true;
  json_cursor_enter(cursor, '[');
  for (bool first = true; strings && json_cursor_next(cursor, &first); n++) {
    strings = n < 2;
    if (strings) TRY(read_string(cursor, &r->unescaped[n], &sides[n], &sizes[n], &strings, err));
  }
  if (n != 2 || !strings)
    return error_set(err, STATUS_MODEL, "%s: merge %u is not a pair of strings", r->where, (unsigned)r->rank);
  return take_rule(r, sides[0], sizes[0], sides[1], sizes[1], err);
}

static Status read_merges(MergeReader *r, JsonSpan span, Error *err) {
  JsonCursor cursor = json_cursor(span);
  json_cursor_enter(&cursor, '[');
  for (bool first = true; json_cursor_next(&cursor, &first);) {
    char form = *cursor.at;
    if (!r->form) r->form = form;
    if (form != r->form || (form != '"' && form != '['))
      return error_set(err, STATUS_MODEL, "%s: merge %u: merges are all strings or all pairs of strings",
                       r->where, (unsigned)r->rank);
    TRY(form == '[' ? read_pair(r, &cursor, err) : read_line(r, &cursor, err));
  }
  return STATUS_OK;
}

static Status load_merges(const char *where, JsonSpan span, Bpe *bpe, Error *err) {
  char found[64];
  if (!span.text || *json_cursor(span).at != '[')
    return error_set(err, STATUS_MODEL, "%s is %s, expected an array", where,
                     json_cursor_describe(json_cursor(span), found));
  bpe->seed = hash_seed();
  size_t size = 1024; /* most files have about as many rules as tokens */
  while (size < bpe->vocab->count * 2) size *= 2;
  TRY(grow_merges(bpe, size, err));
  MergeReader reader = {.where = where, .bpe = bpe};
  Status status = read_merges(&reader, span, err);
  if (status == STATUS_OK) status = add_rules(&reader, err);
  buffer_release(&reader.unescaped[0]);
  buffer_release(&reader.unescaped[1]);
  for (size_t i = 0; i < BATCH; i++) buffer_release(&reader.rules[i].text);
  return status;
}

/* --- where words can be cut */

/* *symbol = the last (or first) character of a token or, if pieces are bytes, the byte that the character
 * stands for. False if no piece can contain it. */
static bool edge_symbol(const Bpe *bpe, int32_t id, bool last, uint32_t *symbol) {
  size_t size;
  const char *content = vocab_content(bpe->vocab, id, &size);
  if (size == 0) return false;
  size_t at = last ? utf8_before(content, size) : 0;
  if (utf8_decode(content + at, size - at, symbol) <= 0) return false;
  if (!bpe->bytes) return true;
  int byte = byte_level_byte(*symbol);
  *symbol = (uint32_t)byte;
  return byte >= 0;
}

/* True unless the token is unk or a byte fallback, which stand for other text. If a rule has such a token,
 * words are never cut. */
static bool stands_for_itself(const Bpe *bpe, int32_t id) {
  if (bpe->has_unk && id == bpe->unk_id) return false;
  size_t size;
  const char *content = vocab_content(bpe->vocab, id, &size);
  if (!bpe->byte_fallback || size != 6 || memcmp(content, "<0x", 3) != 0) return true;
  for (int b = 0; b < 256; b++)
    if (bpe->fallback_ids[b] == id) return false;
  return true;
}

static Status add_far(Bpe *bpe, uint64_t joint, Error *err) {
  Joints *j = &bpe->joints;
  if (!j->far || j->n_far * 2 > j->far_mask) {
    size_t size = j->far ? (j->far_mask + 1) * 2 : 1024;
    uint64_t *far;
    TRY(NEW(far, size, "merge rules", err));
    for (size_t i = 0; j->far && i <= j->far_mask; i++) {
      if (!j->far[i]) continue;
      size_t at = hash_word(bpe->seed, j->far[i]) & (size - 1);
      while (far[at]) at = (at + 1) & (size - 1);
      far[at] = j->far[i];
    }
    free(j->far);
    j->far = far;
    j->far_mask = size - 1;
  }
  size_t at = hash_word(bpe->seed, joint) & j->far_mask;
  while (j->far[at] && j->far[at] != joint) at = (at + 1) & j->far_mask;
  j->n_far += j->far[at] == 0;
  j->far[at] = joint;
  return STATUS_OK;
}

static Status load_joints(Bpe *bpe, Error *err) {
  Joints *j = &bpe->joints;
  TRY(NEW(j->near, 256 * 256 / 8, "merge rules", err));
  if (bpe->prefix_size || bpe->suffix_size) return STATUS_OK; /* symbols depend on their offset in the word */
  for (size_t i = 0; i <= bpe->merge_mask; i++) {
    if (bpe->merges[i].pair == NO_PAIR) continue;
    int32_t left = (int32_t)(bpe->merges[i].pair >> 32), right = (int32_t)(bpe->merges[i].pair & UINT32_MAX);
    if (!stands_for_itself(bpe, left) || !stands_for_itself(bpe, right)) return STATUS_OK;
    uint32_t before, after;
    if (!edge_symbol(bpe, left, true, &before) || !edge_symbol(bpe, right, false, &after)) continue;
    if (before < 256 && after < 256) {
      j->near[(before << 8 | after) / 8] |= (uint8_t)(1u << after % 8);
    } else {
      TRY(add_far(bpe, (uint64_t)before << 32 | after, err));
    }
  }
  j->known = true;
  return STATUS_OK;
}

/* --- symbols */

static int32_t find_code(const Bpe *bpe, uint32_t code) {
  char bytes[4];
  return vocab_find(bpe->vocab, bytes, (size_t)utf8_encode(code, bytes));
}

static Status load_symbols(Bpe *bpe, Error *err) {
  for (int b = 0; b < 256; b++)
    bpe->byte_ids[b] = bpe->bytes ? find_code(bpe, byte_level_char((uint8_t)b)) : -1;
  vocab_fallback_ids(bpe->vocab, bpe->byte_fallback, bpe->fallback_ids);
  bpe->unk_id = bpe->has_unk ? vocab_find(bpe->vocab, bpe->unk, bpe->unk_size) : -1;
  if (bpe->bytes) return STATUS_OK;
  TRY(NEW(bpe->code_ids, 0x10000, "the vocabulary", err));
  memset(bpe->code_ids, 0xff, 0x10000 * sizeof *bpe->code_ids);
  for (size_t i = 0; i < bpe->vocab->count; i++) {
    const VocabToken *token = &bpe->vocab->tokens[i];
    uint32_t code;
    if (token->size > 0 && token->size <= 3 &&
        utf8_decode(bpe->vocab->bytes.data + token->offset, token->size, &code) == (int)token->size)
      bpe->code_ids[code] = token->id;
  }
  return STATUS_OK;
}

/* --- options */

static Status string_or_empty(const char *where, const Json *json, const char *key, char **out, size_t *size,
                              Error *err) {
  if (json_member(json, key)) return field_string(where, json, key, out, size, err);
  *size = 0;
  return NEW(*out, 1, key, err);
}

static Status load_options(const char *where, const Json *json, Bpe *bpe, Error *err) {
  double dropout;
  TRY(field_known(where, json,
                  "dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk byte_fallback "
                  "ignore_merges vocab merges",
                  err));
  TRY(json_get_double((JsonSource){where, STATUS_MODEL}, json, "dropout", 0, 1, 0, &dropout, err));
  if (dropout != 0)
    return error_set(err, STATUS_MODEL, "%s: dropout is %g: its encodings are chance", where, dropout);
  TRY(field_bool_or(where, json, "fuse_unk", false, &bpe->fuse_unk, err));
  TRY(field_bool_or(where, json, "byte_fallback", false, &bpe->byte_fallback, err));
  TRY(field_bool_or(where, json, "ignore_merges", false, &bpe->ignore_merges, err));
  TRY(string_or_empty(where, json, "continuing_subword_prefix", &bpe->prefix, &bpe->prefix_size, err));
  TRY(string_or_empty(where, json, "end_of_word_suffix", &bpe->suffix, &bpe->suffix_size, err));
  bpe->has_unk = json_member(json, "unk_token") != NULL;
  return string_or_empty(where, json, "unk_token", &bpe->unk, &bpe->unk_size, err);
}

Status bpe_load(const char *where, const Json *json, const Vocab *vocab, JsonSpan merges, bool bytes,
                Bpe *bpe, Error *err) {
  *bpe = (Bpe){.where = where, .vocab = vocab, .bytes = bytes};
  TRY(load_options(where, json, bpe, err));
  TRY(load_merges(where_in(where, "merges", 0).text, merges, bpe, err));
  TRY(load_symbols(bpe, err));
  return load_joints(bpe, err);
}
