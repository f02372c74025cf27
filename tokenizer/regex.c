/* regex.c - compiles regular expressions for PCRE2 and finds their matches; see regex.h.
 *
 * Called by: pattern.c, load_split.c; its scratch and spans by all that match. Always true: what PCRE2 sees
 * are kinds, never text, in a pattern without captures; a match that runs out of the just-in-time compiler's
 * stack is done again with a large one and then by the interpreter, whose memory is the heap, so the length
 * of a text is never the reason for a failure. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/regex.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tokenizer/kinds.h"
#include "tokenizer/regex_parse.h"

/* An expression that backtracks more often than this for one match is given up: some hundredths of a second
 * for a short text, as in the reference, some seconds for the longest. Splitting patterns stay below a few
 * steps a character. */
static uint32_t match_limit(size_t size) {
  if (size > 1000000) return 1000000000;
  return size > 10000 ? 1000 * (uint32_t)size : 10000000;
}

struct Regex {
  char *where;
  KindMap map;
  pcre2_code *code;
  bool jit;
};

/* --- compiling */

static Status append_kinds(Buffer *pattern, const KindSet *members, int n_kinds, Error *err) {
  int n = 0;
  for (int k = 0; k < n_kinds; k++) n += members->has[k];
  if (n == 0) return buffer_append_string(pattern, "(?!)", err); /* nothing belongs to it */
  if (n != 1) TRY(buffer_append_string(pattern, "[", err));
  for (int k = 0; k < n_kinds; k++)
    if (members->has[k]) TRY(buffer_printf(pattern, err, "\\x%02x", (unsigned)k));
  return n == 1 ? STATUS_OK : buffer_append_string(pattern, "]", err);
}

/* The pattern in PCRE2's language, each set as the kinds that it is made of. */
static Status write_pattern(const RegexParser *p, KindMap *map, Buffer *pattern, Error *err) {
  KindSet *members = mem_alloc(p->n_sets, sizeof *members, "a regular expression", err);
  if (!members) return STATUS_FAILED;
  Status status = kind_map_build(p->where, p->sets, p->n_sets, map, members, err);
  for (size_t i = 0; i < p->n_units && status == STATUS_OK; i++) {
    uint32_t unit = p->units[i];
    if (unit >= UNIT_SET) {
      status = append_kinds(pattern, &members[unit - UNIT_SET], map->n_kinds, err);
    } else {
      const char byte = (char)unit;
      status = buffer_append(pattern, &byte, 1, err);
    }
  }
  free(members);
  return status;
}

static Status compile_pattern(Regex *regex, const Buffer *pattern, Error *err) {
  int error;
  PCRE2_SIZE offset;
  regex->code = pcre2_compile((PCRE2_SPTR)(pattern->data ? pattern->data : ""), pattern->size,
                              PCRE2_USE_OFFSET_LIMIT, &error, &offset, NULL);
  if (!regex->code) {
    char message[160];
    if (pcre2_get_error_message(error, (PCRE2_UCHAR *)message, sizeof message) < 0)
      strcpy(message, "not supported");
    return error_set(err, STATUS_MODEL, "%s: regular expression: %s", regex->where, message);
  }
  regex->jit = pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE) == 0;
  return STATUS_OK;
}

Status regex_compile(const char *where, const char *pattern, size_t size, Regex **out, Error *err) {
  *out = NULL;
  Regex *regex = mem_alloc(1, sizeof *regex, "a regular expression", err);
  if (!regex) return STATUS_FAILED;
  RegexParser parser = {.where = where, .text = (const unsigned char *)pattern, .size = size};
  Buffer written = {0};
  Status status = STATUS_FAILED;
  regex->where = strdup(where);
  if (!regex->where) {
    error_set(err, STATUS_FAILED, "out of memory: a regular expression");
    goto done;
  }
  if ((status = regex_parse(&parser, err))) goto done;
  if ((status = write_pattern(&parser, &regex->map, &written, err))) goto done;
  status = compile_pattern(regex, &written, err);
done:
  buffer_release(&written);
  for (size_t i = 0; i < parser.n_sets; i++) charset_release(&parser.sets[i]);
  free(parser.sets);
  free(parser.units);
  if (status == STATUS_OK) {
    *out = regex;
  } else {
    regex_free(regex);
  }
  return status;
}

void regex_free(Regex *regex) {
  if (!regex) return;
  pcre2_code_free(regex->code);
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
  void *kinds = scratch->kinds;
  TRY(mem_grow(&kinds, &scratch->capacity, size, 1, "text to split", err));
  scratch->kinds = kinds;
  if (!scratch->match_data) scratch->match_data = pcre2_match_data_create(1, NULL);
  if (!scratch->match_context) scratch->match_context = pcre2_match_context_create(NULL);
  if (!scratch->match_data || !scratch->match_context)
    return error_set(err, STATUS_FAILED, "out of memory: regular expressions");
  pcre2_set_match_limit(scratch->match_context, match_limit(size));
  pcre2_set_depth_limit(scratch->match_context, UINT32_MAX);
  pcre2_set_heap_limit(scratch->match_context, UINT32_MAX);
  return STATUS_OK;
}

/* One match in kinds[0 .. n) from `from` on; PCRE2's result. */
static int match_once(const Regex *regex, RegexScratch *scratch, size_t n, size_t from) {
  int result = PCRE2_ERROR_JIT_STACKLIMIT;
  if (regex->jit) {
    result =
        pcre2_jit_match(regex->code, scratch->kinds, n, from, 0, scratch->match_data, scratch->match_context);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT && !scratch->jit_stack) {
      scratch->jit_stack = pcre2_jit_stack_create((size_t)1 << 20, (size_t)256 << 20, NULL);
      pcre2_jit_stack_assign(scratch->match_context, NULL, scratch->jit_stack);
      result = pcre2_jit_match(regex->code, scratch->kinds, n, from, 0, scratch->match_data,
                               scratch->match_context);
    }
  }
  if (result == PCRE2_ERROR_JIT_STACKLIMIT)
    result = pcre2_match(regex->code, scratch->kinds, n, from, PCRE2_NO_JIT, scratch->match_data,
                         scratch->match_context);
  return result;
}

/* What all matches of a text may take together, in time of this thread: each may look at all that follows, as
 * /a(?=a*b)/ does, which no limit of a single match sees. Splitting takes some ten nanoseconds a byte. */
typedef struct {
  size_t size;    /* bytes of the text */
  int64_t at_ns;  /* 0: not begun */
  unsigned tries; /* the clock is looked at for every 16th */
} Deadline;

static Status check_time(const Regex *regex, Deadline *deadline, Error *err) {
  if (++deadline->tries % 16 != 0) return STATUS_OK;
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  int64_t now_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
  if (deadline->at_ns == 0) deadline->at_ns = now_ns + 1000000000 + 10000 * (int64_t)deadline->size;
  if (now_ns <= deadline->at_ns) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "%s: regular expression: matching takes too long", regex->where);
}

/* Finds the next match at or behind `from`, looking for its beginning in a thousand characters at a time:
 * false in *found where there is none. */
static Status find(const Regex *regex, RegexScratch *scratch, size_t n, size_t from, Deadline *deadline,
                   bool *found, size_t *start, size_t *end, Error *err) {
  int result;
  for (size_t until = from + 1000;; until += 1000, from = until - 999) {
    pcre2_set_offset_limit(scratch->match_context, until < n ? until : n);
    result = match_once(regex, scratch, n, from);
    if (result != PCRE2_ERROR_NOMATCH || until >= n) break;
    TRY(check_time(regex, deadline, err));
  }
  *found = result >= 0;
  if (result == PCRE2_ERROR_NOMATCH) return STATUS_OK;
  if (result == PCRE2_ERROR_MATCHLIMIT || result == PCRE2_ERROR_JIT_STACKLIMIT)
    return error_set(err, STATUS_MODEL, "%s: regular expression: a match takes too many steps", regex->where);
  if (result < 0)
    return error_set(err, STATUS_FAILED, "%s: regular expression: matching ended with PCRE2 error %d",
                     regex->where, result);
  const PCRE2_SIZE *offsets = pcre2_get_ovector_pointer(scratch->match_data);
  *start = offsets[0];
  *end = offsets[1];
  return STATUS_OK;
}

/* Behind `n` characters of valid UTF-8. */
static const char *pass_characters(const char *at, size_t n) {
  for (; n > 0; n--) {
    unsigned char lead = (unsigned char)*at;
    at += lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  }
  return at;
}

Status regex_spans(const Regex *regex, RegexScratch *scratch, const char *text, size_t size, size_t shift,
                   SpanList *spans, Error *err) {
  if (size == 0) return STATUS_OK;
  TRY(prepare(scratch, size, err));
  size_t n = kinds_of_text(&regex->map, text, size, scratch->kinds);
  bool ascii = n == size, matched = false; /* matched: done is the end of a match */
  const char *at = text;                   /* the byte of character `done` */
  size_t done = 0, from = 0;
  Deadline deadline = {.size = size};
  while (from <= n) {
    TRY(check_time(regex, &deadline, err));
    bool found;
    size_t start = n, end = n;
    TRY(find(regex, scratch, n, from, &deadline, &found, &start, &end, err));
    if (!found) break;
    if (start == end && matched && end == done) { /* an empty match right behind a match */
      from = end + 1;
      continue;
    }
    const char *start_at = ascii ? text + start : pass_characters(at, start - done);
    const char *end_at = ascii ? text + end : pass_characters(start_at, end - start);
    if (start > done)
      TRY(span_add(spans, shift + (size_t)(at - text), shift + (size_t)(start_at - text), false, err));
    TRY(span_add(spans, shift + (size_t)(start_at - text), shift + (size_t)(end_at - text), true, err));
    at = end_at;
    done = from = end;
    matched = true;
  }
  if (done < n) TRY(span_add(spans, shift + (size_t)(at - text), shift + size, false, err));
  return STATUS_OK;
}

Status span_add(SpanList *list, size_t start, size_t end, bool match, Error *err) {
  if (list->count == list->capacity) {
    void *items = list->items;
    TRY(mem_grow(&items, &list->capacity, list->count + 1, sizeof *list->items, "parts of a text", err));
    list->items = items;
  }
  list->items[list->count++] = (Span){(uint32_t)start, (uint32_t)end, match};
  return STATUS_OK;
}

void span_list_release(SpanList *list) {
  free(list->items);
  *list = (SpanList){0};
}
