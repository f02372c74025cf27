/* tokenizer.h - text to token ids and back, from tokenizer.json and what the files beside it declare.
 *
 * The reference is Hugging Face's tokenizers (0.23): the same text always gets the same ids. Anything in a
 * file that is not known here is refused by name. A Tokenizer is read-only after loading, so threads can
 * share it. Encoding takes time linear in its input (n log n inside one word), whatever the input. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/json.h"
#include "base/status.h"

typedef struct Tokenizer Tokenizer;

/* Loads a tokenizer.json. If the file has this name, tokens that it lacks are added from
 * tokenizer_config.json, added_tokens.json and special_tokens_map.json beside it, as AutoTokenizer does.
 * Failures are STATUS_MODEL, or STATUS_FAILED without memory, here and below unless a comment says otherwise.
 * Close with tokenizer_close() (NULL is fine). */
Status tokenizer_open(const char *path, Tokenizer **tokenizer, Error *err);
/* Loads a tokenizer from the text of a tokenizer.json alone, for tests and fuzzing; `name` is for
 * messages. */
Status tokenizer_parse(const char *name, const char *text, size_t size, Tokenizer **tokenizer, Error *err);
/* All tokens that the files beside tokenizer.json declare, as JSON, for hashes; size 0 if there are none. */
JsonSpan tokenizer_declared(const Tokenizer *tokenizer);
void tokenizer_close(Tokenizer *tokenizer);
RELEASE_BY(tokenizer_release, Tokenizer, tokenizer_close)

/* Loads the tokenizer.json at `path` for other processes of this build. *descriptor, which the caller closes,
 * is a sealed memfd with an image of the loaded tables; -1 after a failure. */
Status tokenizer_image_make(const char *path, int *descriptor, Error *err);
/* Opens an image; the descriptor may be closed afterwards. `name` is for messages. PRECOND the image was
 * made by tokenizer_image_make() in a process of this user */
Status tokenizer_image_open(const char *name, int descriptor, Tokenizer **tokenizer, Error *err);

/* From now on encoding ends with STATUS_INTERRUPTED within a fraction of a second once a signal handler has
 * set *interrupted. NULL, the initial state: never. PRECOND no other thread uses the tokenizer */
void tokenizer_heed(Tokenizer *tokenizer, const volatile int *interrupted);

/* One more than the largest id of the vocabulary and the added tokens. */
int tokenizer_n_ids(const Tokenizer *tokenizer);
/* The id of a token by its exact content (added tokens first), or -1. */
int32_t tokenizer_find(const Tokenizer *tokenizer, const char *content);
/* The content of a token as in the vocabulary (byte-level tokens in their printable alphabet), NULL if no
 * token has this id. Belongs to the tokenizer. */
const char *tokenizer_content(const Tokenizer *tokenizer, int32_t id, size_t *size);
bool tokenizer_is_special(const Tokenizer *tokenizer, int32_t id);
/* Replaces `out` by the bytes, not always whole characters, that the token stands for in the middle of a
 * text. *is_text is false, and `out` empty, for special tokens and ids without a token. */
Status tokenizer_token_bytes(const Tokenizer *tokenizer, int32_t id, Buffer *out, bool *is_text, Error *err);

typedef struct {
  bool add_special;   /* let the post-processor add its tokens (BOS, ...) */
  bool parse_special; /* recognise special added tokens in the text; false: they are ordinary text. Other
                         added tokens are always recognised, as in Hugging Face */
} EncodeOptions;

/* Appends the ids of text[0..size) to `ids`. Text must be valid UTF-8 (STATUS_USAGE names the offset). */
Status tokenizer_encode(const Tokenizer *tokenizer, const char *text, size_t size, EncodeOptions options,
                        IdList *ids, Error *err);

/* A piece of a prompt: a template's own text, in which special tokens are recognised, or a person's text, in
 * which they are ordinary text. */
typedef struct {
  const char *text; /* [size] */
  size_t size;
  bool trusted;
} PromptPiece;

/* Encodes the pieces as ONE text: merges and split patterns reach across their borders, as if the template
 * had been rendered to a string. But special added tokens are recognised only where they lie wholly inside
 * trusted pieces. Every piece must be valid UTF-8 by itself. tokenizer_encode() does the same with one
 * piece. */
Status tokenizer_encode_pieces(const Tokenizer *tokenizer, const PromptPiece *pieces, size_t n_pieces,
                               bool add_special, IdList *ids, Error *err);

/* Decodes all ids, as Hugging Face's decode() does. Ids outside the vocabulary are skipped. */
Status tokenizer_decode(const Tokenizer *tokenizer, const int32_t *ids, size_t n, bool skip_special,
                        Buffer *text, Error *err);

/* Streaming decoding: all that tokenizer_stream_push() and tokenizer_stream_end() append equals
 * tokenizer_decode() of all ids. Each push appends whole UTF-8 characters only, as early as they are
 * certain. */
typedef struct TokenizerStream TokenizerStream;
Status tokenizer_stream_open(const Tokenizer *tokenizer, bool skip_special, TokenizerStream **stream,
                             Error *err);
Status tokenizer_stream_push(TokenizerStream *stream, int32_t id, Buffer *text, Error *err);
Status tokenizer_stream_end(TokenizerStream *stream, Buffer *text, Error *err); /* then ready again */
void tokenizer_stream_close(TokenizerStream *stream);
RELEASE_BY(tokenizer_stream_release, TokenizerStream, tokenizer_stream_close)
