/* decode.h - the decoders ByteLevel, Metaspace, Replace, ByteFallback, Fuse and Strip, chained over tokens
 * as they arrive. */
#pragma once

#include "tokenizer/split.h"

typedef enum {
  DECODE_BYTE_LEVEL,
  DECODE_METASPACE,
  DECODE_REPLACE,
  DECODE_BYTE_FALLBACK,
  DECODE_FUSE,
  DECODE_STRIP,
} DecodeKind;

/* Loads the JSON of a decoder (NULL: none). Release it also after a failure. */
Status decoder_load(const char *where, const Json *json, Steps *decoder, Error *err);

/* A step's state between tokens. */
typedef struct {
  Buffer held;      /* text or bytes that wait for more */
  size_t checked;   /* BYTE_FALLBACK: length of the valid prefix of `held` */
  bool invalid;     /* BYTE_FALLBACK: the run of bytes is broken */
  bool seen;        /* METASPACE: a token has come */
  int64_t stripped; /* STRIP: characters stripped at the start so far; -1: the start is over */
} DecodeState;

/* The state of decoding one text. Zero-initialise all but the decoder. */
typedef struct {
  const Steps *decoder;
  DecodeState states[MAX_STEPS];
  RegexScratch regex;
  bool seen; /* a token has come; used without a decoder */
  /* Sums of (bytes + 1): `came` over the tokens, `work` over all texts given to a step or to `out`. */
  size_t came, work;
} Decoding;

/* Appends the bytes that a token stands for under ByteLevel. If a character of the token is outside of the
 * alphabet, appends the token itself. */
Status append_mapped(Buffer *bytes, const char *token, size_t size, Error *err);
/* The byte of the token "<0xNN>", or -1. The reference's number reader also takes "+N". */
int fallback_byte(const char *token, size_t size);
/* Appends a text in which `to` replaces each `from`. PRECOND from_size > 0 */
Status append_replaced(Buffer *buffer, const char *text, size_t size, const char *from, size_t from_size,
                       const char *to, size_t to_size, Error *err);

/* Appends the whole characters that are certain after the next token: token[0 .. size), as in the vocabulary.
 * STATUS_MODEL if the steps make more text than growth_of() allows. */
Status decoding_push(Decoding *decoding, const char *token, size_t size, Buffer *out, Error *err);
/* Appends the rest and prepares for a new text. */
Status decoding_end(Decoding *decoding, Buffer *out, Error *err);
void decoding_release(Decoding *decoding);
