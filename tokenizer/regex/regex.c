/* regex.c - compiles regular expressions for PCRE2 and finds their matches; see regex.h.
 *
 * Always true: PCRE2 sees kinds (kinds.h), never text, in a pattern without captures. A match that exhausts
 * the JIT stack is repeated with a large stack, then by the interpreter, whose memory is the heap. So the
 * length of a text never causes a failure.
 *
 * Apart from such repeats a match is tried twice at most. The first, hurried try can look a few thousand
 * characters ahead and take a few dozen steps. That is enough for nearly all matches of real expressions. It
 * takes a fraction of a millisecond from each start position, whatever the expression. If it does not decide,
 * the match is watched: the expression runs with a callout before each of its items, which checks the clock
 * and the interruption. Only a watched match can take long. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/regex/regex.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tokenizer/regex/kinds.h"
#include "tokenizer/regex/regex_parse.h"
#include "tokenizer/stop.h"

/* Limits of a hurried match. A step reads AHEAD characters in some microseconds at most. So a start position
 * takes a fraction of a millisecond, and the clock is read every few hundredths of a second. */
enum {
  STARTS = 128,    /* start positions of one call of PCRE2 */
  AHEAD = 4096,    /* characters after the last start position that the match may look at */
  FEW_STEPS = 32,  /* PCRE2's steps from one start position */
  CLOCK_EACH = 64, /* the clock is read after this many start positions or soon after */
};
/* Limits of a watched match: the work between two readings of the clock, some hundredths of a second. A
 * callout's work is CALLOUT_WORK plus the characters between its position and the previous callout's. */
#define CLOCK_WORK   ((uint64_t)1 << 24)
#define CALLOUT_WORK ((uint64_t)1 << 8)
/* Time limit of all matching for one text. Real expressions take some 20 ns per byte, or 300 ns without
 * JIT if each byte is a match. */
#define LIMIT_NS      ((int64_t)500000000)
#define LIMIT_BYTE_NS ((int64_t)1200)
/* The time that a hurried match is assumed to take from one start position while no clock runs. */
#define PLACE_NS ((int64_t)50)

struct Regex {
  char *where;
  KindMap map;
  pcre2_code *code;    /* for hurried matches */
  pcre2_code *watched; /* the same expression with callouts */
  bool jit;            /* the JIT compiled both */
};

/* --- compiling */

static Status append_kinds(Buffer *pattern, const KindSet *members, int n_kinds, Error *err) {
  int n = 0;
  for (int k = 0; k < n_kinds; k++) n += members->has[k];
  if (n == 0) return buffer_append_string(pattern, "(?!)", err); /* the set is empty */
  if (n != 1) TRY(buffer_append_string(pattern, "[", err));
  for (int k = 0; k < n_kinds; k++)
    if (members->has[k]) TRY(buffer_printf(pattern, err, "\\x%02x", (unsigned)k));
  return n == 1 ? STATUS_OK : buffer_append_string(pattern, "]", err);
}

/* Writes the pattern in PCRE2's language, each set as a class of its kinds. */
static Status write_pattern(const RegexParser *p, KindMap *map, Buffer *pattern, Error *err) {
  OWNED(mem_release) KindSet *members = NULL;
  TRY(NEW(members, p->n_sets, "a regular expression", err));
  TRY(kind_map_build(p->where, p->sets, p->n_sets, map, members, err));
  for (size_t i = 0; i < p->n_units; i++) {
    uint32_t unit = p->units[i];
    if (unit >= UNIT_SET) {
      TRY(append_kinds(pattern, &members[unit - UNIT_SET], map->n_kinds, err));
    } else {
      const char byte = (char)unit;
      TRY(buffer_append(pattern, &byte, 1, err));
    }
  }
  return STATUS_OK;
}

static Status compile_code(const Regex *regex, const Buffer *pattern, uint32_t options, pcre2_code **code,
                           Error *err) {
  int error;
  PCRE2_SIZE offset;
  *code = pcre2_compile((PCRE2_SPTR)(pattern->data ? pattern->data : ""), pattern->size,
                        PCRE2_USE_OFFSET_LIMIT | options, &error, &offset, NULL);
  if (*code) return STATUS_OK;
  char message[160];
  if (pcre2_get_error_message(error, (PCRE2_UCHAR *)message, sizeof message) < 0)
    strcpy(message, "not supported");
  return error_set(err, STATUS_MODEL, "%s: regular expression: %s", regex->where, message);
}

static Status compile_pattern(Regex *regex, const Buffer *pattern, Error *err) {
  TRY(compile_code(regex, pattern, 0, &regex->code, err));
  TRY(compile_code(regex, pattern, PCRE2_AUTO_CALLOUT, &regex->watched, err));
  regex->jit = pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0 &&
               pcre2_jit_compile(regex->watched, PCRE2_JIT_COMPLETE) == 0;
  return STATUS_OK;
}

static void parser_release(RegexParser *parser) {
  for (size_t i = 0; i < parser->n_sets; i++) charset_release(&parser->sets[i]);
  free(parser->sets);
  free(parser->units);
}

Status regex_compile(const char *where, const char *pattern, size_t size, Regex **out, Error *err) {
  *out = NULL;
  OWNED(regex_release) Regex *regex = NULL;
  OWNED(buffer_release) Buffer written = {0};
  OWNED(parser_release)
  RegexParser parser = {.where = where, .text = (const unsigned char *)pattern, .size = size};
  TRY(NEW(regex, 1, "a regular expression", err));
  regex->where = strdup(where);
  if (!regex->where) return error_set(err, STATUS_FAILED, "out of memory: a regular expression");
  TRY(regex_parse(&parser, err));
  TRY(write_pattern(&parser, &regex->map, &written, err));
  TRY(compile_pattern(regex, &written, err));
  *out = TAKE(regex);
  return STATUS_OK;
}

void regex_free(Regex *regex) {
  if (!regex) return;
  pcre2_code_free(regex->code);
  pcre2_code_free(regex->watched);
  kind_map_release(&regex->map);
  free(regex->where);
  free(regex);
}

bool regex_matches_empty(const Regex *regex) {
  uint32_t empty = 1;
  pcre2_pattern_info(regex->code, PCRE2_INFO_MATCHEMPTY, &empty);
  return empty != 0;
}

/* --- matching */

void regex_scratch_release(RegexScratch *scratch) {
  free(scratch->kinds);
  pcre2_match_data_free(scratch->match_data);
  pcre2_match_context_free(scratch->match_context);
  pcre2_jit_stack_free(scratch->jit_stack);
  *scratch = (RegexScratch){0};
}

static Status prepare(RegexScratch *scratch, size_t size, Error *err) {
  TRY(mem_grow(&scratch->kinds, &scratch->capacity, size, 1, "text to split", err));
  if (scratch->text_size < size) scratch->text_size = size;
  if (!scratch->match_data) scratch->match_data = pcre2_match_data_create(1, NULL);
  if (!scratch->match_context) scratch->match_context = pcre2_match_context_create(NULL);
  if (!scratch->match_data || !scratch->match_context)
    return error_set(err, STATUS_FAILED, "out of memory: regular expressions");
  pcre2_set_depth_limit(scratch->match_context, UINT32_MAX);
  pcre2_set_heap_limit(scratch->match_context, UINT32_MAX);
  return STATUS_OK;
}

/* --- the limit of time */

static int64_t thread_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Reads the clock: adds to the time spent and returns whether time is left. Inlined it would make each match
 * some percent slower. */
__attribute__((noinline, cold)) static bool has_time(RegexScratch *s) {
  int64_t now_ns = thread_ns();
  s->spent_ns += s->looked_ns != 0 ? now_ns - s->looked_ns : PLACE_NS * (int64_t)s->places;
  s->looked_ns = now_ns;
  s->places = 0;
  s->work = 0;
  s->watched = false;
  return s->spent_ns <= LIMIT_NS + LIMIT_BYTE_NS * (int64_t)s->text_size;
}

/* Called after each part of a text. Reading the clock at both ends of a short part would take longer than
 * matching it. So the time since the last reading is measured after a watched match; else it is estimated
 * from the number of start positions. */
void regex_pause(RegexScratch *scratch) {
  if (scratch->watched) {
    (void)has_time(scratch); /* if no time is left, the next watched match refuses */
  } else {
    scratch->spent_ns += PLACE_NS * (int64_t)scratch->places;
    scratch->places = 0;
  }
  scratch->looked_ns = 0;
}

/* Counts `places` more start positions and checks the time. All matches of a text share the limit, since each
 * can look at all the text that follows, as /a(?=a*b)/ does. No limit of a single match would catch that. */
static Status check_time(const Regex *regex, RegexScratch *scratch, size_t places, Error *err) {
  scratch->places += (uint32_t)places;
  if (scratch->places < CLOCK_EACH && scratch->work < CLOCK_WORK) return STATUS_OK;
  TRY(stop_check(scratch->interrupted, err));
  if (has_time(scratch)) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "%s: regular expression: matching takes too long", regex->where);
}

typedef struct {
  RegexScratch *scratch;
  size_t at; /* the previous callout's position in the text */
} Watch;

static int on_callout(pcre2_callout_block *block, void *user) {
  Watch *watch = user;
  RegexScratch *s = watch->scratch;
  size_t at = block->current_position;
  s->work += CALLOUT_WORK + (at > watch->at ? at - watch->at : watch->at - at);
  watch->at = at;
  if (s->work < CLOCK_WORK) return 0;
  if (!has_time(s) || (s->interrupted && *s->interrupted)) return PCRE2_ERROR_CALLOUT;
  s->watched = true;
  return 0;
}

/* --- one match in kinds[0 .. n), beginning in [from, until]; PCRE2's result */

static int run_code(const Regex *regex, const pcre2_code *code, RegexScratch *s, size_t n, size_t from,
                    uint32_t options) {
  int result = PCRE2_ERROR_JIT_STACKLIMIT;
  if (regex->jit) result = pcre2_jit_match(code, s->kinds, n, from, options, s->match_data, s->match_context);
  if (regex->jit && result == PCRE2_ERROR_JIT_STACKLIMIT && !s->jit_stack) {
    s->jit_stack = pcre2_jit_stack_create((size_t)1 << 20, (size_t)256 << 20, NULL);
    pcre2_jit_stack_assign(s->match_context, NULL, s->jit_stack);
    result = pcre2_jit_match(code, s->kinds, n, from, options, s->match_data, s->match_context);
  }
  if (result == PCRE2_ERROR_JIT_STACKLIMIT)
    result = pcre2_match(code, s->kinds, n, from, options | PCRE2_NO_JIT, s->match_data, s->match_context);
  return result;
}

/* The watched match starts with the clock running, so that the next reading counts all of it. */
__attribute__((noinline)) static int match_watched(const Regex *regex, RegexScratch *s, size_t n,
                                                   size_t from) {
  if (s->looked_ns == 0 && !has_time(s)) return PCRE2_ERROR_CALLOUT;
  s->watched = true;
  Watch watch = {s, from};
  pcre2_set_match_limit(s->match_context, UINT32_MAX);
  pcre2_set_callout(s->match_context, on_callout, &watch);
  int result = run_code(regex, regex->watched, s, n, from, 0);
  pcre2_set_callout(s->match_context, NULL, NULL);
  return result;
}

static int match_once(const Regex *regex, RegexScratch *s, size_t n, size_t from, size_t until) {
  size_t ahead = s->ahead ? s->ahead : AHEAD, end = n - until > ahead ? until + ahead : n;
  pcre2_set_offset_limit(s->match_context, until);
  pcre2_set_match_limit(s->match_context, FEW_STEPS);
  /* A match that looks beyond `end` is a partial match. */
  int result = run_code(regex, regex->code, s, end, from, end < n ? PCRE2_PARTIAL_HARD : 0);
  if (result >= 0 || result == PCRE2_ERROR_NOMATCH) return result;
  return match_watched(regex, s, n, from);
}

/* Finds the next match at or after `from`; *found is false without one. */
static Status find(const Regex *regex, RegexScratch *scratch, size_t n, size_t from, bool *found,
                   size_t *start, size_t *end, Error *err) {
  int result;
  for (;; from += STARTS) {
    size_t until = n - from < STARTS ? n : from + STARTS - 1;
    result = match_once(regex, scratch, n, from, until);
    *found = result >= 0;
    if (result != PCRE2_ERROR_NOMATCH) break;
    TRY(check_time(regex, scratch, until - from + 1, err));
    if (until >= n) return STATUS_OK;
  }
  if (result == PCRE2_ERROR_CALLOUT) return check_time(regex, scratch, CLOCK_EACH, err);
  if (result < 0)
    return error_set(err, STATUS_FAILED, "%s: regular expression: matching ended with PCRE2 error %d",
                     regex->where, result);
  const PCRE2_SIZE *offsets = pcre2_get_ovector_pointer(scratch->match_data);
  *start = offsets[0];
  *end = offsets[1];
  return check_time(regex, scratch, 1 + *start - from, err);
}

/* Skips `n` characters of valid UTF-8. */
static const char *pass_characters(const char *at, size_t n) {
  for (; n > 0; n--) {
    unsigned char lead = (unsigned char)*at;
    at += lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  }
  return at;
}

Status regex_spans(const Regex *regex, RegexScratch *scratch, const char *text, size_t size, size_t shift,
                   ByteSpanList *spans, Error *err) {
  if (size == 0) return STATUS_OK;
  TRY(prepare(scratch, size, err));
  size_t n = kinds_of_text(&regex->map, text, size, scratch->kinds);
  bool ascii = n == size, matched = false; /* matched: a match ends at done */
  const char *at = text;                   /* the byte of character `done` */
  size_t done = 0, from = 0;
  while (from <= n) {
    bool found;
    size_t start = n, end = n;
    TRY(find(regex, scratch, n, from, &found, &start, &end, err));
    if (!found) break;
    if (start == end && matched && end == done) { /* an empty match right after a match */
      from = end + 1;
      continue;
    }
    const char *start_at = ascii ? text + start : pass_characters(at, start - done);
    const char *end_at = ascii ? text + end : pass_characters(start_at, end - start);
    if (start > done)
      TRY(byte_span_add(spans, shift + (size_t)(at - text), shift + (size_t)(start_at - text), false, err));
    TRY(byte_span_add(spans, shift + (size_t)(start_at - text), shift + (size_t)(end_at - text), true, err));
    at = end_at;
    done = from = end;
    matched = true;
  }
  if (done < n) TRY(byte_span_add(spans, shift + (size_t)(at - text), shift + size, false, err));
  return STATUS_OK;
}

Status byte_span_add(ByteSpanList *list, size_t start, size_t end, bool match, Error *err) {
  if (list->count == list->capacity) {
    TRY(mem_grow(&list->items, &list->capacity, list->count + 1, sizeof *list->items, "parts of a text",
                 err));
  }
  list->items[list->count++] = (ByteSpan){(uint32_t)start, (uint32_t)end, match};
  return STATUS_OK;
}

void byte_span_list_release(ByteSpanList *list) {
  free(list->items);
  *list = (ByteSpanList){0};
}
