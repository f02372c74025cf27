/* test_regex.c - regular expressions match what the reference's match, and what is not supported is refused.
 *
 * The reference's answers are in test/data/tokenizers/regex.jsonl, made by make_regex_cases.py. */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "small.h"
#include "test/tests.h"
#include "test/transcript.h"
#include "tokenizer/regex/pattern.h"

static size_t looks;    /* how often the clock of the time limit was read */
static int64_t look_ns; /* what each reading adds to the clock; 0: the real one */
static int64_t fake_ns = 1;

/* Replaces the library's function in this program, and counts. */
int clock_gettime(clockid_t clock_id, struct timespec *time) {
  bool limit = clock_id == CLOCK_THREAD_CPUTIME_ID;
  looks += limit;
  if (!limit || look_ns == 0) return (int)syscall(SYS_clock_gettime, clock_id, time);
  fake_ns += look_ns;
  *time = (struct timespec){.tv_sec = fake_ns / 1000000000, .tv_nsec = fake_ns % 1000000000};
  return 0;
}

/* The members of a line's JSON that are strings. */
static const char *member(const Json *line, const char *key, size_t *size) {
  const Json *value = json_member(line, key);
  assert_true(json_is_string(value));
  return json_string(value, size);
}

static void check_case(const Json *line) {
  size_t pattern_size, text_size, expected_size;
  const char *pattern = member(line, "pattern", &pattern_size), *text = member(line, "text", &text_size);
  const char *expected = member(line, "replaced", &expected_size);
  Pattern compiled = {0};
  Error err = {{0}};
  if (regex_compile("case", pattern, pattern_size, &compiled.regex, &err) != STATUS_OK)
    fail_msg("%s is refused: %s", pattern, err.text);
  static const uint32_t aheads[] = {0, 1, 2, 5}; /* as usual; and so few that most matches are watched */
  for (size_t i = 0; i < sizeof aheads / sizeof *aheads; i++) {
    RegexScratch scratch = {.ahead = aheads[i]};
    Buffer out = {0};
    assert_int_equal(
        pattern_replace(&compiled, &scratch, text, text_size, "#", 1, (Growth){"test", SIZE_MAX}, &out, &err),
        STATUS_OK);
    if (out.size != expected_size || (expected_size > 0 && memcmp(out.data, expected, expected_size) != 0))
      fail_msg("/%s/ in \"%s\" gives \"%.*s\", expected \"%s\"", pattern, text, (int)out.size, out.data,
               expected);
    buffer_release(&out);
    regex_scratch_release(&scratch);
  }
  pattern_release(&compiled);
}

TEST(matches_what_the_reference_matches) {
  MappedFile file;
  Error err = {{0}};
  assert_int_equal(file_map("test/data/tokenizers/regex.jsonl", STATUS_FAILED, &file, &err), STATUS_OK);
  const char *at = (const char *)file.data, *end = at + file.size;
  int n = 0;
  while (at < end) {
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    Json *line;
    assert_non_null(newline);
    assert_int_equal(json_parse("case", STATUS_FAILED, at, (size_t)(newline - at), NULL, 0, &line, &err),
                     STATUS_OK);
    check_case(line);
    json_free(line);
    at = newline + 1;
    n++;
  }
  assert_true(n > 150);
  file_unmap(&file);
}

/* test/data/transcripts/regexes: below each /pattern/ is why it is refused, or whether it can match no
 * character. */
static void write_patterns(const char *old, FILE *out) {
  char line[TRANSCRIPT_LINE];
  while (transcript_next_line(&old, line)) {
    if (*line == ' ') continue;
    fprintf(out, "%s\n", line);
    if (*line != '/') continue;
    Regex *regex = NULL;
    Error err = {{0}};
    const Status status = regex_compile("where", line + 1, strlen(line) - 2, &regex, &err);
    if (status != STATUS_OK)
      fprintf(out, "    status %d: %s\n", status, err.text);
    else
      fprintf(out, "    %s\n", regex_matches_empty(regex) ? "can match no character" : "matches a character");
    regex_free(regex);
  }
}

TEST(patterns_are_taken_as_their_transcript_says) {
  check_transcripts("test/data/transcripts/regexes", write_patterns);
}

/* Deep nesting is refused before the stack ends; many kinds are refused by number. */
TEST(refuses_what_is_too_large) {
  Buffer pattern = {0};
  Regex *regex;
  Error err = {{0}};
  for (int i = 0; i < 10000; i++) assert_int_equal(buffer_append(&pattern, "(", 1, &err), STATUS_OK);
  assert_int_equal(regex_compile("where", pattern.data, pattern.size, &regex, &err), STATUS_MODEL);
  assert_non_null(strstr(err.text, "nested too deep"));
  pattern.size = 0;
  for (uint32_t code = 0x4e00; code < 0x4e00 + 300; code++) {
    char bytes[4];
    assert_int_equal(buffer_append(&pattern, bytes, (size_t)utf8_encode(code, bytes), &err), STATUS_OK);
  }
  assert_int_equal(regex_compile("where", pattern.data, pattern.size, &regex, &err), STATUS_MODEL);
  assert_non_null(strstr(err.text, "tells more than 256 kinds of characters apart"));
  for (uint32_t code = 0x4e00 + 300; code < 0x4e00 + 1025; code++) {
    char bytes[4];
    assert_int_equal(buffer_append(&pattern, bytes, (size_t)utf8_encode(code, bytes), &err), STATUS_OK);
  }
  assert_int_equal(regex_compile("where", pattern.data, pattern.size, &regex, &err), STATUS_MODEL);
  assert_non_null(strstr(err.text, "more than 1024 sets of characters"));
  pattern.size = 0;
  for (int i = 0; i < 17; i++)
    assert_int_equal(buffer_append(&pattern, "a*" + (i > 0), i ? 1 : 2, &err), STATUS_OK);
  assert_int_equal(regex_compile("where", pattern.data, pattern.size, &regex, &err), STATUS_MODEL);
  assert_non_null(strstr(err.text, "byte 17: repeated more than 16 times over"));
  assert_int_equal(regex_compile("where", pattern.data, pattern.size - 1, &regex, &err), STATUS_OK);
  regex_free(regex);
  pattern.size = 0;
  for (int i = 0; i < 16385; i++)
    assert_int_equal(buffer_append(&pattern, i == 0 ? "[" : i == 16383 ? "]" : "a", 1, &err), STATUS_OK);
  assert_int_equal(regex_compile("where", pattern.data, pattern.size, &regex, &err), STATUS_MODEL);
  assert_non_null(strstr(err.text, "byte 0: 16385 bytes are more than 16384"));
  assert_int_equal(regex_compile("where", pattern.data, pattern.size - 1, &regex, &err), STATUS_OK);
  regex_free(regex);
  buffer_release(&pattern);
}

static Regex *compiled(const char *pattern) {
  Regex *regex = NULL;
  Error err = {{0}};
  if (regex_compile("where", pattern, strlen(pattern), &regex, &err) != STATUS_OK) fail_msg("%s", err.text);
  return regex;
}

/* 199 nested groups or classes are the most; one after the other any number may come. */
TEST(so_many_levels_and_repetitions_and_no_more) {
  static const char *const brackets[][2] = {{"(", ")"}, {"(?i:", ")"}, {"(?=", ")"}, {"[", "]"}};
  for (size_t i = 0; i < sizeof brackets / sizeof *brackets; i++)
    for (int depth = 199; depth <= 200; depth++) {
      Buffer pattern = {0};
      Regex *regex;
      Error err = {{0}};
      for (int k = 0; k < 50; k++) buffer_printf(&pattern, NULL, "%sa%s", brackets[i][0], brackets[i][1]);
      for (int k = 0; k < depth; k++) buffer_append_string(&pattern, brackets[i][0], NULL);
      buffer_append_string(&pattern, "a", NULL);
      for (int k = 0; k < depth; k++) buffer_append_string(&pattern, brackets[i][1], NULL);
      assert_int_equal(regex_compile("where", pattern.data, pattern.size, &regex, &err),
                       depth < 200 ? STATUS_OK : STATUS_MODEL);
      if (depth == 200) assert_non_null(strstr(err.text, ": nested too deep"));
      regex_free(regex);
      buffer_release(&pattern);
    }
  regex_free(compiled("a{65535}"));
  regex_free(compiled("a{0,65535}"));
}

/* In whatever order the members of a class come, they are sorted once. */
TEST(large_classes_are_read_in_linear_time) {
  Buffer pattern = {0};
  Regex *regex;
  Error err = {{0}};
  assert_int_equal(buffer_append(&pattern, "[", 1, &err), STATUS_OK);
  for (uint32_t code = 0x4e00 + 10800; code > 0x4e00; code -= 2) {
    char bytes[4];
    assert_int_equal(buffer_append(&pattern, bytes, (size_t)utf8_encode(code, bytes), &err), STATUS_OK);
  }
  assert_int_equal(buffer_append(&pattern, "]+", 2, &err), STATUS_OK);
  clock_t begin = clock();
  if (regex_compile("where", pattern.data, pattern.size, &regex, &err) != STATUS_OK) fail_msg("%s", err.text);
  /* 5400 sorts take 0.2 s and one takes 0.001 s, of the processor's time. */
  assert_true(clock() - begin < CLOCKS_PER_SEC / 10);
  RegexScratch scratch = {0};
  ByteSpanList spans = {0};
  static const char text[] = "\xe4\xb8\x82\xe4\xb8\x84\xe4\xb8\x83"; /* U+4E02 U+4E04 U+4E03 */
  assert_int_equal(regex_spans(regex, &scratch, text, 9, 0, &spans, &err), STATUS_OK);
  assert_int_equal(spans.count, 2);
  assert_true(spans.items[0].match && spans.items[0].end == 6);
  byte_span_list_release(&spans);
  regex_scratch_release(&scratch);
  regex_free(regex);
  buffer_release(&pattern);
}

/* Each looks through all that follows again and again, in many short matches or in one that does not end.
 * All together may take 0.5 s and 1.2 us a byte, in CPU time of this thread. */
TEST(what_takes_too_long_is_refused_in_time) {
  enum { SIZE = 600000, PARTS = 100 };
  static const char *const patterns[] = {"(?<=a)a*c", "(?=(?:a*b)?)a"};
  char *text = malloc(SIZE);
  assert_non_null(text);
  memset(text, 'a', SIZE);
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
    for (int parts = 1; parts <= PARTS;
         parts += PARTS - 1) { /* the text as one, and in parts that share the limit */
      Regex *regex;
      Error err = {{0}};
      ByteSpanList spans = {0};
      RegexScratch scratch = {.text_size = SIZE};
      Status status = STATUS_OK;
      assert_int_equal(regex_compile("where", patterns[i], strlen(patterns[i]), &regex, &err), STATUS_OK);
      clock_t begin = clock();
      for (int part = 0; part < parts && status == STATUS_OK; part++)
        status = regex_spans(regex, &scratch, text, SIZE / (size_t)parts, 0, &spans, &err);
      double took = (double)(clock() - begin) / CLOCKS_PER_SEC;
      if (status != STATUS_OK) {
        assert_int_equal(status, STATUS_MODEL);
        assert_string_equal(err.text, "where: regular expression: matching takes too long");
      }
      assert_true(parts > 1 || status != STATUS_OK);
      if (took > 2) fail_msg("/%s/ takes %.1f s", patterns[i], took);
      byte_span_list_release(&spans);
      regex_scratch_release(&scratch);
      regex_free(regex);
    }
  free(text);
}

/* Each part takes some 0.1 ms and ends before its work is worth a reading of the clock. The limit of all
 * together is 0.75 s. */
TEST(pauses_do_not_hide_the_time_of_short_parts) {
  static const char part[] = "aaaaaa";
  enum { SIZE = sizeof part - 1, PARTS = 35000 };
  Regex *regex = compiled("(?:a|a|a)*(?:c|d)");
  RegexScratch scratch = {.text_size = SIZE * PARTS};
  ByteSpanList spans = {0};
  Error err = {{0}};
  Status status = STATUS_OK;
  clock_t begin = clock();
  double took = 0;
  for (int i = 0; i < PARTS && status == STATUS_OK && took < 2; i++) {
    status = regex_spans(regex, &scratch, part, SIZE, 0, &spans, &err);
    regex_pause(&scratch);
    took = (double)(clock() - begin) / CLOCKS_PER_SEC;
  }
  if (status != STATUS_MODEL) fail_msg("goes on for %.1f s", took);
  assert_string_equal(err.text, "where: regular expression: matching takes too long");
  byte_span_list_release(&spans);
  regex_scratch_release(&scratch);
  regex_free(regex);
}

/* The first text is measured, as it has a watched match; the next one does not count the time of the
 * pause. */
TEST(other_work_in_a_pause_does_not_count) {
  Regex *regex = compiled("(?:a|b)+c|a");
  RegexScratch scratch = {0};
  ByteSpanList spans = {0};
  Error err = {{0}};
  for (int i = 0; i < 2; i++) {
    assert_int_equal(
        regex_spans(regex, &scratch, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 40, 0, &spans, &err),
        STATUS_OK);
    assert_true(scratch.watched);
    regex_pause(&scratch);
    for (clock_t begin = clock(); clock() - begin < CLOCKS_PER_SEC / 10;) continue;
  }
  assert_true(scratch.spent_ns > 0);
  assert_true(scratch.spent_ns < 50000000);
  byte_span_list_release(&spans);
  regex_scratch_release(&scratch);
  regex_free(regex);
}

/* The clock is read after each 128 places and at the end: eight times in 1000 characters without a match.
 * The time before the first reading counts as 50 ns for each of 128 places, so the seven intervals have the
 * rest of 0.5 s and of 1.2 us for each byte. */
TEST(the_limit_of_time_is_half_a_second_and_some_for_each_byte) {
  char text[1000];
  memset(text, 'a', sizeof text);
  Regex *regex = compiled("b");
  static const struct {
    size_t size, text_size; /* of the part that is matched, and of the text of the limit */
    int64_t limit;
  } cases[] = {
      {1000, 0, 501200000}, {1000, 1000, 501200000}, {1000, 500, 501200000}, {1000, 60000, 572000000}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int more = 0; more <= 1; more++) {
      RegexScratch scratch = {.text_size = cases[i].text_size};
      ByteSpanList spans = {0};
      Error err = {{0}};
      looks = 0;
      look_ns = (cases[i].limit - 128 * 50) / 7 + more;
      Status status = regex_spans(regex, &scratch, text, cases[i].size, 0, &spans, &err);
      look_ns = 0;
      assert_int_equal(looks, 8);
      assert_int_equal(status, more ? STATUS_MODEL : STATUS_OK);
      if (more) assert_string_equal(err.text, "where: regular expression: matching takes too long");
      byte_span_list_release(&spans);
      regex_scratch_release(&scratch);
    }
  regex_free(regex);
}

/* Each part has 41 places, the last one after its last character: too few for a reading of the clock. */
TEST(parts_without_a_match_count_and_can_be_interrupted) {
  enum { SIZE = 40, PARTS = 10 };
  char text[2 * SIZE];
  memset(text, 'a', sizeof text);
  Regex *regex = compiled("b");
  const volatile int interrupted = 1;
  RegexScratch scratch = {.interrupted = &interrupted};
  ByteSpanList spans = {0};
  Error err = {{0}};
  for (int i = 0; i < PARTS; i++) {
    assert_int_equal(regex_spans(regex, &scratch, text, SIZE, 0, &spans, &err), STATUS_OK);
    regex_pause(&scratch);
  }
  assert_int_equal(scratch.spent_ns, PARTS * (SIZE + 1) * 50);
  assert_int_equal(regex_spans(regex, &scratch, text, 2 * SIZE, 0, &spans, &err), STATUS_INTERRUPTED);
  byte_span_list_release(&spans);
  regex_scratch_release(&scratch);
  regex_free(regex);
}

/* The text is searched 128 places at a time, and a hurried match may look 4096 characters beyond them. */
TEST(matches_are_found_at_all_distances) {
  enum { SIZE = 9000 };
  static const struct {
    const char *pattern;
    size_t before, size; /* where the match begins before the one "b", and how long it is */
  } cases[] = {{"b", 0, 1},           {"ab", 1, 2},     {"(?=b)", 0, 0},     {"(?<=a)b", 0, 1},
               {"\\bb", 0, 1},        {"b|c+", 0, 1},   {"b$|x", 0, 1},      {"[bx]c*\\b", 0, 1},
               {"aa(?=b)", 2, 0 + 2}, {"b(?!b)", 0, 1}, {"(?<!b)b\\z", 0, 1}};
  char *text = malloc(SIZE);
  assert_non_null(text);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Regex *regex = compiled(cases[i].pattern);
    RegexScratch scratch = {0};
    for (size_t n = 2; n < SIZE; n += n < 400 || (n > 4080 && n < 4240) ? 1 : 97) {
      Error err = {{0}};
      ByteSpanList spans = {0};
      memset(text, strstr(cases[i].pattern, "\\b") ? ' ' : 'a', n);
      text[n] = 'b';
      scratch.spent_ns = 0;
      if (regex_spans(regex, &scratch, text, n + 1, 3, &spans, &err)) fail_msg("%s", err.text);
      size_t start = n - cases[i].before, end = start + cases[i].size;
      ByteSpan found = {0};
      for (size_t k = 0; k < spans.count; k++)
        if (spans.items[k].match) found = spans.items[k];
      if (found.start != start + 3 || found.end != end + 3 || spans.items[0].start != 3 ||
          spans.items[spans.count - 1].end != n + 4)
        fail_msg("/%s/ at %zu: [%u, %u)", cases[i].pattern, n, found.start, found.end);
      byte_span_list_release(&spans);
    }
    regex_scratch_release(&scratch);
    regex_free(regex);
  }
  free(text);
}

/* A match that takes, or looks at, some 4096 characters after a place in the first 128. */
TEST(matches_of_all_lengths_are_whole) {
  enum { SIZE = 8600 };
  static const char *const patterns[] = {"ca*", "c(?=a*b)", "ca*b", "c(?!a*x)", "c(?:a|b)+?b", "c(?>a+)b"};
  char *text = malloc(SIZE);
  assert_non_null(text);
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
    Regex *regex = compiled(patterns[i]);
    RegexScratch scratch = {0};
    for (size_t at = 0; at <= 128; at += at < 126 ? 126 : 1)
      for (size_t n = 1; n < SIZE - 200; n += n < 3 || n / 13 == 314 || n / 13 == 324 ? 1 : 13) {
        Error err = {{0}};
        ByteSpanList spans = {0};
        memset(text, 'x', at);
        text[at] = 'c';
        memset(text + at + 1, 'a', n);
        text[at + 1 + n] = 'b';
        scratch.spent_ns = 0;
        if (regex_spans(regex, &scratch, text, at + n + 2, 0, &spans, &err)) fail_msg("%s", err.text);
        size_t end = i == 0 ? at + 1 + n : i == 1 || i == 3 ? at + 1 : at + n + 2;
        const ByteSpan *found = &spans.items[at ? 1 : 0];
        if (!found->match || found->start != at || found->end != end)
          fail_msg("/%s/ at %zu, %zu: [%u, %u)", patterns[i], at, n, found->start, found->end);
        byte_span_list_release(&spans);
      }
    regex_scratch_release(&scratch);
    regex_free(regex);
  }
  free(text);
}

/* 20 million characters; the first million is a match of half a million callouts. */
TEST(the_clock_is_looked_at_seldom_in_long_texts_too) {
  const size_t n = 20000000, begun = 1000000;
  char *text = malloc(n);
  assert_non_null(text);
  for (size_t i = 0; i < n; i++) text[i] = i >= begun ? 'c' : i % 2 ? 'b' : 'a';
  Regex *regex = compiled("(?:ab)+");
  RegexScratch scratch = {0};
  ByteSpanList spans = {0};
  Error err = {{0}};
  looks = 0;
  if (regex_spans(regex, &scratch, text, n, 0, &spans, &err) != STATUS_OK) fail_msg("%s", err.text);
  assert_int_equal(spans.count, 2);
  assert_int_equal(spans.items[0].end, begun);
  /* One for each 128 places, and some of the match. */
  if (looks == 0 || looks > n / 128 + 1000) fail_msg("%zu looks at the clock", looks);
  byte_span_list_release(&spans);
  regex_scratch_release(&scratch);
  regex_free(regex);
  free(text);
}

/* A million repetitions of a group need more than the JIT's own stack. */
TEST(long_matches_do_not_run_out_of_stack) {
  const size_t n = 1000000;
  char *text = malloc(n);
  assert_non_null(text);
  memset(text, 'a', n);
  static const char *const patterns[] = {"(?:a|b)+", "(?:a+?)+b|a", "(?>(?:a|aa)*)", "(?:(?:a){1,3})*"};
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
    Regex *regex;
    Error err = {{0}};
    ByteSpanList spans = {0};
    RegexScratch scratch = {0};
    size_t size = i == 1 ? 20 : n; /* this one alone takes exponential time */
    assert_int_equal(regex_compile("where", patterns[i], strlen(patterns[i]), &regex, &err), STATUS_OK);
    if (regex_spans(regex, &scratch, text, size, 0, &spans, &err) != STATUS_OK) fail_msg("%s", err.text);
    assert_int_equal(spans.items[spans.count - 1].end, size);
    if (i != 1) assert_int_equal(spans.count, 1);
    byte_span_list_release(&spans);
    regex_scratch_release(&scratch);
    regex_free(regex);
  }
  free(text);
}
