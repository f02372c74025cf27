/* normalize.h - the normalizers NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip and Precompiled,
 * applied in order. */
#pragma once

#include "tokenizer/load/steps.h"

/* The kind of a normalizer's step. With NFC to NFKD, Step.role (load/steps.h) has two bits for a character:
 * NORMAL_KNOWN, and 1 if the character is unsafe in this form. */
typedef enum {
  NORMAL_NFC,
  NORMAL_NFD,
  NORMAL_NFKC,
  NORMAL_NFKD,
  NORMAL_LOWERCASE,
  NORMAL_PREPEND,
  NORMAL_REPLACE,
  NORMAL_STRIP,
  NORMAL_CHARSMAP,
} NormalKind;

/* Loads the JSON of a normalizer (NULL: none). Release it also after a failure. */
Status normalizer_load(const char *where, const Json *json, Steps *normalizer, Error *err);

/* A text and, for each byte, where its character begins in the original text. */
typedef struct {
  const char *text; /* [size] valid UTF-8 */
  size_t size;
  const uint32_t *origin; /* [size], not decreasing; NULL: not needed */
} Traced;

/* The output of a step. */
typedef struct {
  Buffer text;
  Growth growth;                   /* limits text.size */
  const volatile int *interrupted; /* see tokenizer_heed() */
  uint32_t *origin;                /* [text.size] if traced */
  size_t capacity;
} TracedBuffer;

/* Appends bytes[0 .. size), whole characters. If `from` is traced, the origin of byte i is
 * from->origin[origin_at + i] or, without `each`, from->origin[origin_at]. STATUS_USAGE beyond 4 GiB,
 * STATUS_MODEL beyond the growth's limit, STATUS_INTERRUPTED if interrupted. */
Status traced_put(TracedBuffer *out, const char *bytes, size_t size, const Traced *from, size_t origin_at,
                  bool each, Error *err);
/* Empties the buffer, keeping its memory, and sets its growth to growth_of(where, size). */
void traced_clear(TracedBuffer *buffer, const char *where, size_t size, const volatile int *interrupted);
void traced_release(TracedBuffer *buffer); /* leaves the buffer empty */

/* A character of a run that is decomposed and composed (compose.c) or replaced (charsmap.c). */
typedef struct {
  uint32_t code;
  uint8_t class;  /* canonical combining class */
  int32_t change; /* characters added minus characters removed: 1 if decomposing inserted this character, -1
                   * if two were composed to it */
} Composed;

/* Working memory of one thread. Zero-initialise it. */
typedef struct {
  TracedBuffer buffers[2];
  Composed *run; /* [n_run] */
  size_t n_run, capacity;
} NormalScratch;
void normal_scratch_release(NormalScratch *scratch);

/* Replaces *text by its normal form, which is in the scratch or, if no step but Strip changed the text, is a
 * part of that text. */
Status normalize(const Steps *normalizer, NormalScratch *scratch, RegexScratch *regex, Traced *text,
                 Error *err);
