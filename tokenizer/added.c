/* added.c - finds added tokens in texts; see added.h.
 *
 * Called by: encode.c, tokenizer.c, load.c. The rules are those of the reference, Hugging Face's tokenizers
 * (added_vocabulary.rs). The leftmost match wins; of matches at one offset the longest. A match does not
 * count if it is a single_word token inside a longer word, or a special token in untrusted text. Such a match
 * consumes its bytes all the same, but see is_trusted(). lstrip and rstrip widen a match over white space
 * once it is found. */
#include "tokenizer/added.h"

#include <stdlib.h>
#include <string.h>

#include "base/size_text.h"
#include "base/utf8.h"
#include "tokenizer/load/fields.h"

void added_release(AddedTokens *added) {
  for (size_t i = 0; i < added->count; i++) {
    free(added->tokens[i].content);
    free(added->tokens[i].normal);
  }
  free(added->tokens);
  free(added->by_id);
  matcher_release(&added->plain);
  matcher_release(&added->normal);
  vocab_release(&added->indices);
  *added = (AddedTokens){0};
}

void added_parts_release(AddedParts *parts) {
  free(parts->items);
  *parts = (AddedParts){0};
}

/* --- cutting */

static bool has_flag(uint32_t code, uint32_t flag) {
  return unicode_value(&unicode_flags, code) & flag;
}

/* Returns where the character before `at` begins; *code is that character. PRECOND at > 0 */
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

/* The first border after `at`, or SIZE_MAX; *trusted says whether the text at `at` is trusted. */
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

/* Returns whether text[start .. end) is trusted. If not, the search continues at *resume. That is after the
 * match, as in the reference when it recognises no special tokens, or at the next border if this comes first.
 * So a person's text cannot swallow a token of the template. */
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
  return APPEND(parts->items, parts->count, parts->capacity, "parts of a text", err,
                (AddedPart){(uint32_t)start, (uint32_t)end, token});
}

/* The string to search for: the normal form of a token that is looked for in normalized text, else the
 * content. */
static const char *wanted_of(const AddedToken *token, size_t *size) {
  bool normal = token->normalized && token->normal;
  *size = normal ? token->normal_size : token->size;
  return normal ? token->normal : token->content;
}

/* Cuts the text at the matches, which are listed from the last to the first. */
static Status cut_at(const AddedTokens *added, const MatchList *matches, const Traced *text, size_t shift,
                     const Trust *trust, AddedParts *parts, Error *err) {
  /* `done` can move back, as in the reference: a token can lie in white space that the previous token
   * stripped. `spaces_end` is the end of the last white space stripped to the right and never moves back.
   * Otherwise each of a thousand matches inside that white space would scan the rest of it again. */
  size_t at = 0, done = 0, spaces_end = 0;
  for (size_t i = matches->count; i-- > 0;) {
    if (matches->items[i].at < at) continue; /* begins within the previous match */
    int32_t index = matches->items[i].number;
    const AddedToken *token = &added->tokens[index];
    size_t length, start = matches->items[i].at;
    wanted_of(token, &length);
    size_t end = start + length;
    at = end;
    if (token->special && !is_trusted(text, shift, trust, start, end, &at)) continue;
    if (token->single_word && !is_single_word(text, start, end)) continue;
    if (token->lstrip) start = widen_left(text, start, done);
    if (token->rstrip) end = spaces_end = widen_right(text, end < spaces_end ? spaces_end : end);
    if (done < start) TRY(add_part(parts, done, start, -1, err));
    /* Nothing is left of a token with lstrip that lies wholly in what the previous token stripped. */
    if (start < end) TRY(add_part(parts, start, end, index, err));
    done = end;
  }
  return done < text->size ? add_part(parts, done, text->size, -1, err) : STATUS_OK;
}

Status added_cut(const AddedTokens *added, const Matcher *matcher, const Traced *text, size_t shift,
                 const Trust *trust, const volatile int *interrupted, AddedParts *parts, Error *err) {
  OWNED(match_list_release) MatchList matches = {0};
  TRY(matcher_find(matcher, text->text, text->size, interrupted, &matches, err));
  return cut_at(added, &matches, text, shift, trust, parts, err);
}

/* --- loading */

static AddedToken *find_token(const AddedTokens *added, const char *content, size_t size) {
  int32_t index = vocab_find(&added->indices, content, size);
  return index < 0 ? NULL : &added->tokens[index];
}

const AddedToken *added_find(const AddedTokens *added, const char *content, size_t size) {
  return find_token(added, content, size);
}

static Status read_token(const char *where, const Json *json, bool declared, AddedToken *token, Error *err) {
  int64_t id;
  if (!declared) {
    TRY(field_known(where, json, "id content single_word lstrip rstrip normalized special", err));
    TRY(field_count(where, json, "id", MAX_ID, &id, err));
  }
  TRY(field_string(where, json, "content", &token->content, &token->size, err));
  TRY(field_bool(where, json, "single_word", &token->single_word, err));
  TRY(field_bool(where, json, "lstrip", &token->lstrip, err));
  TRY(field_bool(where, json, "rstrip", &token->rstrip, err));
  TRY(field_bool(where, json, "special", &token->special, err));
  if (!declared) return field_bool(where, json, "normalized", &token->normalized, err);
  token->special |= json_member(json, "named") != NULL;
  return field_bool_or(where, json, "normalized", !token->special, &token->normalized, err);
}

/* The loader's state. One scratch serves all tokens, so that they share one time limit. */
typedef struct {
  const char *where;
  const Vocab *vocab;
  const Steps *normalizer;
  AddedTokens *added;
  int32_t next_id;
  size_t n_listed; /* tokens of tokenizer.json itself */
  size_t n_known;  /* n_listed, plus tokens declared with an id */
  NormalScratch scratch;
  RegexScratch regex;
} AddedLoader;

static Status count_bytes(AddedLoader *l, size_t bytes, Error *err) {
  l->added->bytes += bytes;
  if (l->added->bytes <= MAX_ADDED_BYTES) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "%s: all together have more than %s", l->where,
                   size_text(MAX_ADDED_BYTES).text);
}

/* Sets token->normal, unless the content normalizes to itself. */
static Status normalize_content(AddedLoader *l, AddedToken *token, Error *err) {
  Traced text = {token->content, token->size, NULL};
  l->regex.text_size += token->size;
  TRY(normalize(l->normalizer, &l->scratch, &l->regex, &text, err));
  if (text.size == token->size && memcmp(text.text, token->content, text.size) == 0) return STATUS_OK;
  TRY(count_bytes(l, text.size, err));
  TRY(NEW(token->normal, text.size + 1, "added tokens", err));
  memcpy(token->normal, text.text, text.size);
  token->normal_size = text.size;
  return STATUS_OK;
}

/* Enters the token in by_id. If the vocabulary has gaps, another added token can have the id already. As in
 * the reference the new token then gets a copy of the other's normal form, unless it has its own. */
static Status take_id(AddedTokens *added, size_t index, Error *err) {
  AddedToken *token = &added->tokens[index];
  int32_t *owner = &added->by_id[token->id];
  const AddedToken *before = *owner >= 0 ? &added->tokens[*owner] : NULL;
  *owner = (int32_t)index;
  if (!before || before == token || token->normal || !before->normal) return STATUS_OK;
  TRY(NEW(token->normal, before->normal_size + 1, "added tokens", err));
  memcpy(token->normal, before->normal, before->normal_size);
  token->normal_size = before->normal_size;
  return STATUS_OK;
}

/* Merges a token that is listed twice: the later entry counts, but `special` and a normal form stay once
 * set. */
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

static Status add_token(AddedLoader *l, AddedToken *token, Error *err) {
  AddedTokens *added = l->added;
  TRY(count_bytes(l, token->size, err));
  if (token->normalized) TRY(normalize_content(l, token, err));
  AddedToken *same = find_token(added, token->content, token->size);
  if (same) {
    replace_token(same, token);
    return take_id(added, (size_t)(same - added->tokens), err);
  }
  token->id = vocab_find(l->vocab, token->content, token->size);
  if (token->id < 0) token->id = l->next_id++;
  TRY(mem_grow(&added->tokens, &added->capacity, added->count + 1, sizeof *token, "added tokens", err));
  TRY(vocab_add(&added->indices, token->content, token->size, (int32_t)added->count, err));
  added->tokens[added->count++] = TAKE(*token);
  return take_id(added, added->count - 1, err);
}

static bool are_alike(const AddedToken *a, const AddedToken *b) {
  return a->single_word == b->single_word && a->lstrip == b->lstrip && a->rstrip == b->rstrip &&
         a->normalized == b->normalized && a->special == b->special;
}

/* Returns whether a declared token is to be added. There are three reasons against it: an added token has the
 * same content and flags; `item` has "unless_known" and one of the first n_known added tokens has the same
 * content ("promotes" makes that token special); tokenizer.json lists a token with the id "unless_id". */
static bool counts(const AddedLoader *l, const Json *item, const AddedToken *token) {
  AddedToken *same = find_token(l->added, token->content, token->size);
  int64_t id;
  if (same && are_alike(same, token)) return false;
  if (same && json_member(item, "unless_known") && same < l->added->tokens + l->n_known) {
    same->special |= json_member(item, "promotes") != NULL;
    return false;
  }
  if (!json_int64(json_member(item, "unless_id"), &id)) return true;
  return id >= l->added->n_ids || l->added->by_id[id] < 0 || (size_t)l->added->by_id[id] >= l->n_listed;
}

static Status load_tokens(AddedLoader *l, const Json *json, bool declared, Error *err) {
  size_t i = 0;
  for (const Json *item = json_first(json); item; item = json_next(item), i++) {
    Where here = where_in(l->where, NULL, i);
    AddedToken token = {0};
    Status status = read_token(here.text, item, declared, &token, err);
    const bool adds = status == STATUS_OK && token.size > 0 && (!declared || counts(l, item, &token));
    if (adds) status = add_token(l, &token, err);
    if (!json_member(item, "unless_known")) l->n_known = l->added->count;
    free(token.content);
    free(token.normal);
    if (status != STATUS_OK) return status;
  }
  return STATUS_OK;
}

/* Lists in `strings` (room for all) the tokens to look for: in normalized text or, if `normalized` is false,
 * in the original text. A token whose id another one has taken is left out. */
static Status gather(const char *where, const AddedTokens *added, bool normalized, MatchString *strings,
                     size_t *n, Error *err) {
  *n = 0;
  for (size_t i = 0; i < added->count; i++) {
    const AddedToken *token = &added->tokens[i];
    if (token->normalized != normalized || added->by_id[token->id] != (int32_t)i) continue;
    size_t size;
    const char *wanted = wanted_of(token, &size);
    if (size == 0) /* the reference would cut the text into single bytes */
      return error_set(err, STATUS_MODEL, "%s: \"%.80s\" is nothing when normalized", where, token->content);
    strings[(*n)++] = (MatchString){wanted, size, (int32_t)i};
  }
  return STATUS_OK;
}

static Status build_matcher(const char *where, const AddedTokens *added, bool normalized, Matcher *matcher,
                            Error *err) {
  OWNED(mem_release) MatchString *strings = NULL;
  TRY(NEW(strings, added->count, "added tokens", err));
  MatchTwins twins = {0};
  size_t n = 0;
  TRY(gather(where, added, normalized, strings, &n, err));
  TRY(matcher_build(strings, n, matcher, &twins, err));
  if (!twins.found) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "%s: \"%.80s\" and \"%.80s\" are the same when normalized", where,
                   added->tokens[twins.first].content, added->tokens[twins.second].content);
}

Status added_load(const char *where, const Json *json, const Json *declared, const Vocab *vocab,
                  const Steps *normalizer, AddedTokens *added, Error *err) {
  *added = (AddedTokens){0};
  if (!json && !declared) return STATUS_OK;
  if (json && !json_is_array(json)) return field_expected(where, NULL, json, "an array", err);
  added->n_ids = vocab->n_ids + (int32_t)json_count(json) + (int32_t)json_count(declared);
  TRY(NEW(added->by_id, (size_t)added->n_ids, "added tokens", err));
  memset(added->by_id, 0xff, (size_t)added->n_ids * sizeof *added->by_id);
  AddedLoader loading = {.where = where,
                         .vocab = vocab,
                         .normalizer = normalizer,
                         .added = added,
                         .next_id = (int32_t)vocab->count};
  Status status = load_tokens(&loading, json, false, err);
  loading.n_listed = added->count;
  for (size_t i = 0; i < added->count; i++) /* raises next_id above the ids of all listed tokens */
    if (added->tokens[i].id >= loading.next_id) loading.next_id = added->tokens[i].id + 1;
  if (status == STATUS_OK) status = load_tokens(&loading, declared, true, err);
  normal_scratch_release(&loading.scratch);
  regex_scratch_release(&loading.regex);
  if (status != STATUS_OK) return status;
  TRY(build_matcher(where, added, false, &added->plain, err));
  return build_matcher(where, added, true, &added->normal, err);
}
