/* regex.h - the regular expressions of tokenizer.json: Oniguruma's language, matched by PCRE2 over kinds.
 *
 * The reference matches with Oniguruma (syntax ONIG_SYNTAX_ONIGURUMA, UTF-8, Unicode 16). Here an
 * expression is parsed by that language's rules, and its character sets are computed from our own tables.
 * PCRE2 gets an expression over kinds (kinds.h), one byte per character, without any Unicode. Constructs
 * that PCRE2 lacks are refused with their position. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

/* A part of a text, in bytes. */
typedef struct {
  uint32_t start, end;
  bool match;
} ByteSpan;

typedef struct {
  ByteSpan *items; /* [count] */
  size_t count, capacity;
} ByteSpanList;

/* Appends a span. PRECOND start <= end <= UINT32_MAX */
Status byte_span_add(ByteSpanList *list, size_t start, size_t end, bool match, Error *err);
void byte_span_list_release(ByteSpanList *list);

typedef struct Regex Regex; /* read-only once compiled: threads may share it */

/* Working memory of one thread, for any number of expressions. Zero-initialise it. */
typedef struct RegexScratch {
  uint8_t *kinds;
  size_t capacity;
  void *match_data, *match_context, *jit_stack; /* PCRE2's */

  const volatile int *interrupted; /* see tokenizer_heed() */
  /* The time limit grows with these bytes. The caller sets the size of a whole text that is matched in
   * parts; regex_spans() raises it to the size of a larger part. */
  size_t text_size;
  int64_t spent_ns;  /* CPU time of all matching so far */
  int64_t looked_ns; /* the clock's last reading; 0: regex_pause() stopped the clock */
  uint64_t work;     /* work that callouts counted since the last reading */
  uint32_t places;   /* start positions at which a match was tried since the last reading */
  bool watched;      /* since the last reading a match ran with callouts (regex.c) */
  uint32_t ahead;    /* characters that a match without callouts may look ahead; 0: AHEAD (regex.c) */
} RegexScratch;
void regex_scratch_release(RegexScratch *scratch);
/* Stops the clock before other work. The time spent so far still counts. */
void regex_pause(RegexScratch *scratch);

/* Compiles an expression. `where` begins the messages: "FILE: pre_tokenizer". Failures are STATUS_MODEL,
 * or STATUS_FAILED without memory. */
Status regex_compile(const char *where, const char *pattern, size_t size, Regex **regex, Error *err);
void regex_free(Regex *regex);
RELEASE_BY(regex_release, Regex, regex_free)

/* True if the expression can match the empty string. */
bool regex_matches_empty(const Regex *regex);

/* Appends the matches in text[0 .. size) and the text between them, in order: together they cover the text. A
 * match can be empty, the text between cannot. As in the reference an empty match right after a match does
 * not count. The text is valid UTF-8 shorter than 4 GiB; `shift` is added to offsets. STATUS_MODEL if all
 * matching with this scratch takes more than 0.5 s plus 1.2 us per byte of scratch->text_size, in CPU time of
 * this thread. */
Status regex_spans(const Regex *regex, RegexScratch *scratch, const char *text, size_t size, size_t shift,
                   ByteSpanList *spans, Error *err);
