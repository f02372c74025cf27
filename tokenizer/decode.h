/* decode.h - the decoders: ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip, in a row, over tokens
 * as they come. */
#ifndef AUK_TOKENIZER_DECODE_H
#define AUK_TOKENIZER_DECODE_H

#include "tokenizer/pattern.h"
#include "tokenizer/split.h"

#define MAX_DECODERS 64

typedef enum {
  DECODE_BYTE_LEVEL,
  DECODE_METASPACE,
  DECODE_REPLACE,
  DECODE_BYTE_FALLBACK,
  DECODE_FUSE,
  DECODE_STRIP,
} DecodeKind;

typedef struct {
  DecodeKind kind;
  Pattern pattern; /* REPLACE */
  char *content;   /* [content_size] REPLACE: by what */
  size_t content_size;
  char mark[5]; /* [mark_size] METASPACE: the replacement; STRIP: the character */
  size_t mark_size;
  bool drop_first;     /* METASPACE: marks of the first token vanish */
  int64_t start, stop; /* STRIP: how many at most */
  bool fused;          /* the tokens before this step were joined to one: it comes in parts */
} DecodeStep;

/* A Sequence of them, nested ones laid flat. Read-only once loaded. */
typedef struct {
  DecodeStep *steps; /* [count] */
  size_t count, capacity;
  bool absent; /* no decoder at all: tokens are joined by spaces */
  Where where; /* begins the messages */
} Decoder;

/* From the JSON of a decoder (NULL: none). Release it also after a failure. */
Status decoder_load(const char *where, const Json *json, Decoder *decoder, Error *err);
void decoder_release(Decoder *decoder);

/* What a step remembers between tokens. */
typedef struct {
  Buffer held;      /* text or bytes that wait for what comes next */
  size_t checked;   /* BYTE_FALLBACK: so much of `held` is valid */
  bool invalid;     /* BYTE_FALLBACK: the run of bytes is broken */
  bool seen;        /* METASPACE: there was a token */
  int64_t stripped; /* STRIP: so many so far; -1: something else came */
} DecodeState;

/* One text being decoded. Zero-initialise it, but for the decoder. */
typedef struct {
  const Decoder *decoder;
  DecodeState states[MAX_DECODERS];
  RegexScratch regex;
  bool seen;         /* a token, where there is no decoder */
  size_t came, work; /* bytes of tokens, and bytes that were handed from step to step for them */
} Decoding;

/* Appends what is certain once the next token has come, token[0 .. size) as in the vocabulary: whole
 * characters. STATUS_MODEL where the steps make more of it than growth_of() allows each of them. */
Status decoding_push(Decoding *decoding, const char *token, size_t size, Buffer *out, Error *err);
/* Appends what is left; ready for a new text then. */
Status decoding_end(Decoding *decoding, Buffer *out, Error *err);
void decoding_release(Decoding *decoding);

#endif
