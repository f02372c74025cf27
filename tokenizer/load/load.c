/* load.c - loads a tokenizer from the text of a tokenizer.json.
 *
 * Called by: tokenizer.c, image.c. The order of loading matters: added tokens are normalized, and the
 * model needs to know whether its pieces are bytes. truncation and padding are ignored: as in transformers
 * they are the caller's choice. */
#include <stdio.h>
#include <string.h>

#include "tokenizer/internal.h"
#include "tokenizer/load/fields.h"

/* --- post-processors */

enum { MAX_PIECES = 256 }; /* pieces of a template: each is looked up among its special tokens */

static Status add_template_token(const char *where, const Json *piece, const Json *specials, IdList *ids,
                                 Error *err) {
  const char *name;
  TRY(json_get_string((JsonSource){where, STATUS_MODEL}, piece, "id", &name, err));
  const Json *special = name ? json_member(specials, name) : NULL;
  const Json *list = json_member(special, "ids");
  if (!json_is_array(list))
    return error_set(err, STATUS_MODEL, "%s: special token \"%.80s\" is not in special_tokens", where,
                     name ? name : "");
  for (const Json *item = json_first(list); item; item = json_next(item)) {
    int64_t id;
    char found[64];
    if (!json_int64(item, &id) || id < 0 || id > MAX_ID)
      return error_set(err, STATUS_MODEL, "%s: an id of \"%.80s\" is %s, expected an integer from 0 to %d",
                       where, name, json_describe(item, found), MAX_ID);
    TRY(id_list_append(ids, (int32_t)id, err));
  }
  return STATUS_OK;
}

static Status load_template(const char *where, const Json *json, Tokenizer *t, Error *err) {
  if (t->has_template)
    return error_set(err, STATUS_MODEL, "%s: a second TemplateProcessing is not supported", where);
  t->has_template = true;
  TRY(field_known(where, json, "single pair special_tokens", err));
  const Json *single;
  TRY(field_array(where, json, "single", &single, err));
  if (json_count(single) > MAX_PIECES)
    return error_set(err, STATUS_MODEL, "%s: single has more than %d pieces", where, MAX_PIECES);
  for (const Json *item = json_first(single); item; item = json_next(item)) {
    const Json *token = json_member(item, "SpecialToken"), *sequence = json_member(item, "Sequence");
    if (token) {
      TRY(add_template_token(where, token, json_member(json, "special_tokens"), &t->template_ids, err));
    } else if (sequence && json_member(sequence, "id") && json_string_is(json_member(sequence, "id"), "A")) {
      TRY(id_list_append(&t->template_ids, TEMPLATE_TEXT, err));
    } else {
      return error_set(err, STATUS_MODEL,
                       "%s: single has a piece that is neither SpecialToken nor Sequence A", where);
    }
  }
  return STATUS_OK;
}

static Status add_post_processor(void *owner, const char *where, const char *type, const Json *json,
                                 Error *err) {
  Where here = where_in(where, type, 0);
  if (strcmp(type, "TemplateProcessing") == 0) return load_template(here.text, json, owner, err);
  if (strcmp(type, "ByteLevel") == 0) /* trims offsets, which are not used here */
    return field_known(here.text, json, "add_prefix_space trim_offsets use_regex", err);
  return field_unknown_type(where, type, err);
}

/* --- the model */

static Status load_model(const char *name, const Json *json, JsonSpan vocab, JsonSpan merges, bool bytes,
                         Model *model, Error *err) {
  model->where = where_copy(name);
  const char *type, *where = model->where.text;
  if (model->image) return STATUS_OK;
  TRY(json_get_string((JsonSource){where, STATUS_MODEL}, json, "type", &type, err));
  /* Older files omit the type; the reference then goes by the members that are there. */
  if (!type) type = vocab.text && *json_cursor(vocab).at == '[' ? "Unigram" : "BPE";
  model->is_unigram = strcmp(type, "Unigram") == 0;
  if (model->is_unigram) return unigram_load(where, json, vocab, bytes, &model->vocab, &model->unigram, err);
  if (strcmp(type, "BPE") != 0) return field_unknown_type(where, type, err);
  TRY(vocab_load(where_in(where, "vocab", 0).text, vocab, &model->vocab, err));
  return bpe_load(where, json, &model->vocab, merges, bytes, &model->bpe, err);
}

/* --- the whole file */

static Status index_added(Tokenizer *t, Error *err) {
  t->n_ids = t->model.vocab.n_ids;
  for (size_t i = 0; i < t->added.count; i++)
    if (t->added.tokens[i].id >= t->n_ids) t->n_ids = t->added.tokens[i].id + 1;
  TRY(NEW(t->skipped, t->added.count, "added tokens", err));
  for (size_t i = 0; i < t->added.count; i++) {
    const AddedToken *token = &t->added.tokens[i];
    t->normal_special |= token->special && token->normalized;
    /* As in the reference, the token is skipped if it decodes to a special token's content. */
    const AddedToken *decoded =
        token->normal ? added_find(&t->added, token->normal, token->normal_size) : token;
    t->skipped[i] = decoded && decoded->special;
  }
  return STATUS_OK;
}

/* "FILE: part", for messages. */
static Where part_of(const char *name, const char *part) {
  Where where;
  snprintf(where.text, sizeof where.text, "%.200s: %s", name, part);
  return where;
}

static Status load_parts(const char *name, const Json *root, const Json *declared, const JsonSkip skips[2],
                         Tokenizer *t, Error *err) {
  const Json *version = json_member(root, "version");
  if (!json_is_object(root)) return field_expected(name, "its JSON", root, "an object", err);
  if (version && !json_string_is(version, "1.0"))
    return field_expected(name, "version", version, "\"1.0\"", err);
  const Json *model = json_member(root, "model");
  if (!model) return error_set(err, STATUS_MODEL, "%s: model is missing", name);
  if (!json_is_object(model)) return field_expected(name, "model", model, "an object", err);
  TRY(normalizer_load(part_of(name, "normalizer").text, json_member(root, "normalizer"), &t->normalizer,
                      err));
  TRY(pre_tokenizer_load(part_of(name, "pre_tokenizer").text, json_member(root, "pre_tokenizer"),
                         &t->pre_tokenizer, err));
  const Steps *cut = &t->pre_tokenizer;
  const bool bytes = cut->count > 0 && cut->steps[cut->count - 1].kind == SPLIT_BYTE_LEVEL;
  TRY(load_model(part_of(name, "model").text, model, skips[0].span, skips[1].span, bytes, &t->model, err));
  TRY(added_load(part_of(name, "added_tokens").text, json_member(root, "added_tokens"), declared,
                 &t->model.vocab, &t->normalizer, &t->added, err));
  TRY(decoder_load(part_of(name, "decoder").text, json_member(root, "decoder"), &t->decoder, err));
  const Json *post = json_member(root, "post_processor");
  if (post)
    TRY(field_components(part_of(name, "post_processor").text, post, "processors", 0, add_post_processor, t,
                         err));
  return index_added(t, err);
}

Status tokenizer_load(const char *name, const char *text, size_t size, Tokenizer *tokenizer, Error *err) {
  JsonSkip skips[2] = {TOKENIZER_SKIPS};
  const Buffer *declared = &tokenizer->declared;
  OWNED(json_release) Json *root = NULL, *tokens = NULL;
  TRY(json_parse(name, STATUS_MODEL, text, size, skips, 2, &root, err));
  if (declared->size)
    TRY(json_parse(name, STATUS_MODEL, declared->data, declared->size, NULL, 0, &tokens, err));
  return load_parts(name, root, tokens, skips, tokenizer, err);
}
