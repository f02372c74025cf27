/* tokenizer.c - opening, looking up and decoding; see tokenizer.h. Encoding is in encode.c. */
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/file.h"
#include "tokenizer/internal.h"
#include "tokenizer/load/declared.h"

/* Loads a tokenizer from `text` and the tokens of declared.h; takes ownership of the memory of `declared`. */
static Status load(const char *name, const char *text, size_t size, Buffer *declared, Tokenizer **out,
                   Error *err) {
  *out = NULL;
  OWNED(tokenizer_release) Tokenizer *tokenizer = NULL;
  TRY(NEW(tokenizer, 1, "a tokenizer", err));
  tokenizer->declared = TAKE(*declared);
  TRY(tokenizer_load(name, text, size, tokenizer, err));
  *out = TAKE(tokenizer);
  return STATUS_OK;
}

Status tokenizer_parse(const char *name, const char *text, size_t size, Tokenizer **out, Error *err) {
  return load(name, text, size, &(Buffer){0}, out, err);
}

Status tokenizer_open(const char *path, Tokenizer **tokenizer, Error *err) {
  *tokenizer = NULL;
  OWNED(file_unmap) MappedFile file = {0};
  OWNED(buffer_release) Buffer declared = {0};
  TRY(file_map(path, STATUS_MODEL, &file, err));
  TRY(content_expect_text(path, file.data, file.size, false, STATUS_MODEL, err));
  TRY(content_expect_no_pointer(path, file.data, file.size, err));
  TRY(declared_read(path, &declared, err));
  return load(path, (const char *)file.data, file.size, &declared, tokenizer, err);
}

JsonSpan tokenizer_declared(const Tokenizer *tokenizer) {
  return (JsonSpan){tokenizer->declared.data, tokenizer->declared.size};
}

static void model_release(Model *model) {
  if (model->image) {
    munmap((void *)(uintptr_t)model->image, model->image_bytes);
    return;
  }
  vocab_release(&model->vocab);
  bpe_release(&model->bpe);
  unigram_release(&model->unigram);
}

void tokenizer_close(Tokenizer *tokenizer) {
  if (!tokenizer) return;
  steps_release(&tokenizer->normalizer);
  steps_release(&tokenizer->pre_tokenizer);
  model_release(&tokenizer->model);
  buffer_release(&tokenizer->declared);
  added_release(&tokenizer->added);
  steps_release(&tokenizer->decoder);
  id_list_release(&tokenizer->template_ids);
  free(tokenizer->skipped);
  free(tokenizer);
}

void tokenizer_heed(Tokenizer *tokenizer, const volatile int *interrupted) {
  tokenizer->interrupted = interrupted;
}

/* --- look-up */

int tokenizer_n_ids(const Tokenizer *tokenizer) {
  return tokenizer->n_ids;
}

int32_t tokenizer_find(const Tokenizer *tokenizer, const char *content) {
  const AddedToken *token = added_find(&tokenizer->added, content, strlen(content));
  return token ? token->id : vocab_find(&tokenizer->model.vocab, content, strlen(content));
}

/* The added token with this id, or NULL. */
static const AddedToken *added_token(const Tokenizer *tokenizer, int32_t id) {
  const AddedTokens *added = &tokenizer->added;
  return id >= 0 && id < added->n_ids && added->by_id[id] >= 0 ? &added->tokens[added->by_id[id]] : NULL;
}

const char *tokenizer_content(const Tokenizer *tokenizer, int32_t id, size_t *size) {
  const AddedToken *token = added_token(tokenizer, id);
  if (!token) return vocab_content(&tokenizer->model.vocab, id, size);
  *size = token->size;
  return token->content;
}

bool tokenizer_is_special(const Tokenizer *tokenizer, int32_t id) {
  const AddedToken *token = added_token(tokenizer, id);
  return token && token->special;
}

/* --- decoding */

struct TokenizerStream {
  const Tokenizer *tokenizer;
  bool skip_special;
  Decoding decoding;
};

Status tokenizer_stream_open(const Tokenizer *tokenizer, bool skip_special, TokenizerStream **stream,
                             Error *err) {
  TRY(NEW(*stream, 1, "decoding", err));
  (*stream)->tokenizer = tokenizer;
  (*stream)->skip_special = skip_special;
  (*stream)->decoding.decoder = &tokenizer->decoder;
  return STATUS_OK;
}

const char *decoded_content(const Tokenizer *tokenizer, int32_t id, bool skip_special, size_t *size) {
  const AddedToken *token = added_token(tokenizer, id);
  if (!token) return vocab_content(&tokenizer->model.vocab, id, size);
  if (skip_special && tokenizer->skipped[tokenizer->added.by_id[id]]) return NULL;
  *size = token->normal ? token->normal_size : token->size;
  return token->normal ? token->normal : token->content;
}

Status tokenizer_stream_push(TokenizerStream *stream, int32_t id, Buffer *text, Error *err) {
  size_t size;
  const char *content = decoded_content(stream->tokenizer, id, stream->skip_special, &size);
  return content ? decoding_push(&stream->decoding, content, size, text, err) : STATUS_OK;
}

Status tokenizer_stream_end(TokenizerStream *stream, Buffer *text, Error *err) {
  return decoding_end(&stream->decoding, text, err);
}

void tokenizer_stream_close(TokenizerStream *stream) {
  if (!stream) return;
  decoding_release(&stream->decoding);
  free(stream);
}

Status tokenizer_decode(const Tokenizer *tokenizer, const int32_t *ids, size_t n, bool skip_special,
                        Buffer *text, Error *err) {
  OWNED(tokenizer_stream_release) TokenizerStream *stream = NULL;
  TRY(tokenizer_stream_open(tokenizer, skip_special, &stream, err));
  for (size_t i = 0; i < n; i++) TRY(tokenizer_stream_push(stream, ids[i], text, err));
  return tokenizer_stream_end(stream, text, err);
}
