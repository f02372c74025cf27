/* test_lang.c - regular languages: numbers against strtod(), expressions against PCRE2, and their work.
 * Single texts and messages are in test_transcripts.c. */
#include "test/tests.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/hash64.h"
#include "base/utf8.h"
#include "constrain/lang/lang_internal.h"
#include "constrain/lang/numbers.h"
#include "constrain/lang/regular_expression.h"

static Langs langs;

static int open_langs(void **state) {
  Error err;
  return langs_open(&langs, &err);
}

static int close_langs(void **state) {
  langs_close(&langs);
  return 0;
}

static bool has(Lang lang, const char *text) {
  return lang_contains(&langs, lang, text, strlen(text));
}

/* --- numbers */

/* Two that are not equal differ by more than a double resolves, so that strtod() orders them rightly. */
TEST_WITH(open_langs, close_langs, numbers_compare_as_strtod_has_it) {
  static const char *const bounds[] = {"0",   "5",     "-5",    "10",   "1.5",  "-0.25", "100",
                                       "1e3", "12e-2", "0.001", "1e-5", "-1e2", "3.0",   "99.99"};
  static const char *const texts[] = {
      "0",    "-0",    "0.0",    "1",     "5",      "5.0",     "5.01",  "4.99",  "-5",      "-5.1",
      "-4.9", "10",    "9.99",   "100",   "1.5",    "1.50",    "1.51",  "-0.25", "-0.2500", "-0.3",
      "1e3",  "1.0e3", "1000",   "999.9", "1.2e-1", "0.12",    "0.119", "1e-5",  "0.00001", "2e-5",
      "9e-6", "1e-05", "1.1e+2", "9.9e1", "-1e2",   "-1.01e2", "-99",   "3",     "2.999",   "12345"};
  const Numbers numbers = {&langs, true};
  for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
    Decimal d;
    assert_true(decimal_read(bounds[i], strlen(bounds[i]), &d));
    const double bound = strtod(bounds[i], NULL);
    const Lang sets[] = {numbers_above(numbers, &d, false), numbers_above(numbers, &d, true),
                         numbers_below(numbers, &d, false), numbers_below(numbers, &d, true),
                         numbers_equal(numbers, &d)};
    for (size_t j = 0; j < sizeof texts / sizeof *texts; j++) {
      const double x = strtod(texts[j], NULL);
      const bool expected[] = {x > bound, x >= bound, x < bound, x <= bound, x == bound};
      for (size_t k = 0; k < 5; k++) assert_int_equal(has(sets[k], texts[j]), expected[k]);
    }
  }
}

/* The reference are whole numbers: m * 10^(K - k), for mantissas with zeros at their ends and within. */
TEST_WITH(open_langs, close_langs, multiples_are_those_of_whole_numbers) {
  static const char *const fractions[] = {"",      ".0",    ".5",   ".05",  ".50",   ".500",
                                          ".0203", ".1002", ".010", ".001", ".1250", ".0000",
                                          ".3003", ".0500", ".25",  ".9090"};
  static const struct {
    uint32_t divisor;
    unsigned scale;
  } of[] = {{1, 0}, {3, 0}, {7, 0}, {12, 0}, {1, 1}, {3, 1}, {1, 2}, {25, 2}, {999, 3}, {1, 5}, {10, 0}};
  enum { SCALE = 12 }; /* of all values */
  for (size_t d = 0; d < sizeof of / sizeof *of; d++) {
    const Lang multiple = numbers_multiple((Numbers){&langs, true}, of[d].divisor, of[d].scale);
    __int128 divisor = of[d].divisor;
    for (unsigned i = of[d].scale; i < SCALE; i++) divisor *= 10;
    for (size_t f = 0; f < sizeof fractions / sizeof *fractions; f++)
      for (int first = 1; first <= 9; first++)
        for (int exponent = -6; exponent <= 6; exponent++) {
          char text[40];
          const int n = snprintf(text, sizeof text, "%d%s", first, fractions[f]);
          if (exponent) snprintf(text + n, sizeof text - (size_t)n, "e%d", exponent);
          __int128 value = first;
          for (const char *c = fractions[f]; *c; c++)
            if (*c != '.') value = value * 10 + (*c - '0');
          const int k = fractions[f][0] ? (int)strlen(fractions[f]) - 1 : 0;
          for (int i = k - exponent; i < SCALE; i++) value *= 10;
          if (has(multiple, text) != (value % divisor == 0))
            fail_msg("%s as a multiple of %u / 10^%u", text, of[d].divisor, of[d].scale);
        }
  }
}

/* Zeros of a fraction that is too long are counted to 24; a fraction of as many digits as the divisor's needs
 * an exponent unless it is a multiple. */
TEST_WITH(open_langs, close_langs, zeros_of_a_fraction_are_counted_to_a_limit) {
  const Lang third = lang_multiple(&langs, 3, 0), cent = lang_multiple(&langs, 1, 2),
             half = lang_multiple(&langs, 5, 1);
  Lang zeros = lang_next(&langs, lang_next(&langs, third, '3'), '.'), before = zeros;
  for (int i = 0; i < 24; i++) before = zeros, zeros = lang_next(&langs, zeros, '0');
  assert_true(before != zeros);
  for (int i = 0; i < 60; i++) assert_int_equal(lang_next(&langs, zeros, '0'), zeros);
  assert_true(has(third, "3.000e1") && !has(third, "3.0001") && has(cent, "0.011e1") && !has(cent, "1e-3"));
  Lang digits = lang_next(&langs, lang_next(&langs, lang_next(&langs, cent, '.'), '2'), '5');
  assert_false(multiple_needs_exponent(&langs, langs.nodes[digits]));
  digits = lang_next(&langs, digits, '1');
  assert_true(multiple_needs_exponent(&langs, langs.nodes[digits]));
  digits = lang_next(&langs, lang_next(&langs, half, '.'), '3');
  assert_true(multiple_needs_exponent(&langs, langs.nodes[digits]));
}

TEST_WITH(open_langs, close_langs, an_interval_without_integers_is_known_to_be_empty) {
  Decimal low, high;
  assert_true(decimal_read("1.5", 3, &low) && decimal_read("1.6", 3, &high));
  const Numbers numbers = {&langs, true};
  Lang between = lang_and(&langs, numbers_above(numbers, &low, true), numbers_below(numbers, &high, true));
  assert_true(lang_is_alive(&langs, between));
  assert_false(lang_is_alive(&langs, lang_and(&langs, between, numbers_integers(numbers))));
}

/* A fraction of up to 16 digits needs an exponent at least as large; zeros at its end need none. */
TEST_WITH(open_langs, close_langs, integers_have_exponents_for_their_fractions) {
  const Lang integers = numbers_integers((Numbers){&langs, true}),
             plain = numbers_integers((Numbers){&langs, false}),
             without = numbers_without_fraction((Numbers){&langs, true});
  for (int n = 0; n <= 16; n++)
    for (int zeros = 0; zeros < 3; zeros++)
      for (int exponent = n - 2; exponent <= n + 2; exponent++)
        for (int form = 0; form < 6; form++) {
          static const char *const exponents[] = {"e%d", "E%d", "e%+d", "e%03d", "e+0%d", ""};
          char text[60] = "-9";
          if (n + zeros > 0) strcat(text, ".");
          strncat(text, "1203040506070809", (size_t)n);
          if (n > 0) text[strlen(text) - 1] = '7';
          strncat(text, "00", (size_t)zeros);
          if (form == 4 && exponent < 0) continue; /* e+0-1 */
          snprintf(text + strlen(text), 20, exponents[form], exponent);
          const bool is = form == 5 ? n == 0 : exponent >= n;
          if (has(integers, text) != is || has(integers, text + 1) != is) fail_msg("%s as an integer", text);
          assert_int_equal(has(plain, text), form == 5 && n == 0);
          assert_int_equal(has(without, text), form == 5 && n == 0 && zeros == 0);
        }
}

/* The largest and the least exponents. */
TEST_WITH(open_langs, close_langs, multiples_have_exponents_up_to_a_limit) {
  const Numbers numbers = {&langs, true};
  const Lang one = numbers_multiple(numbers, 1, 0), seven = numbers_multiple(numbers, 7, 0),
             tiny = numbers_multiple(numbers, 1, 60);
  assert_true(has(one, "1e999") && has(one, "9E+0999") && !has(one, "1e1000") && !has(one, "1e-1"));
  assert_true(has(seven, "7e999") && !has(seven, "8e999") && has(seven, "1.4e1") && !has(seven, "1.4e2e1"));
  assert_true(has(tiny, "1e-60") && !has(tiny, "1e-61") && has(tiny, "1e999") && has(tiny, "0.5"));
}

static Lang number_enum(Numbers numbers, const char *const *texts, size_t n) {
  NumberSet set = {.n_words = 0};
  Error err;
  for (size_t i = 0; i < n; i++) {
    Decimal d;
    assert_true(decimal_read(texts[i], strlen(texts[i]), &d));
    assert_int_equal(number_set_add(numbers, &set, &d, &err), STATUS_OK);
  }
  const Lang made = number_set_lang(numbers, &set);
  number_set_release(&set);
  return made;
}

/* A set has the texts of each of its numbers, whatever the others are, and no others. */
TEST_WITH(open_langs, close_langs, a_set_of_numbers_is_the_union_of_each) {
  static const char *const all[] = {"0",    "7",    "-7",     "70",     "7.5",    "-0.25", "1e3",
                                    "1000", "1e-5", "123456", "12e100", "-3e-40", "10.01", "0.001"};
  static const char *const texts[] = {"0",      "-0",    "0.0",     "7",       "7.0",    "70.00", "-7",
                                      "7.5",    "7.50",  "75",      "-0.25",   "0.25",   "1e3",   "1.0e+03",
                                      "1000.0", "1e-05", "1.2e101", "0.00001", "-3e-40", "7.5e0", "12"};
  for (int exponents = 0; exponents < 2; exponents++) {
    const Numbers numbers = {&langs, exponents};
    for (size_t n = 0; n <= sizeof all / sizeof *all; n++) {
      const Lang set = number_enum(numbers, all, n);
      for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        bool is = false;
        for (size_t j = 0; j < n; j++) {
          Decimal d;
          assert_true(decimal_read(all[j], strlen(all[j]), &d));
          is |= has(numbers_equal(numbers, &d), texts[i]);
        }
        assert_int_equal(has(set, texts[i]), is);
      }
    }
  }
}

/* --- bounds of work */

/* 50,000 numbers take some work for each digit, not for each pair of numbers. */
TEST_WITH(open_langs, close_langs, many_numbers_take_little_work) {
  const Numbers numbers = {&langs, true};
  NumberSet set = {.n_words = 0};
  Error err;
  for (int i = 0; i < 50000; i++) {
    char text[8];
    Decimal d;
    assert_true(decimal_read(text, (size_t)snprintf(text, sizeof text, "%d", i), &d));
    assert_int_equal(number_set_add(numbers, &set, &d, &err), STATUS_OK);
  }
  const Lang made = number_set_lang(numbers, &set);
  number_set_release(&set);
  assert_true(has(made, "49999") && has(made, "4.9999e4") && !has(made, "50000"));
  assert_true(langs.failure.work < MAX_WORK / 10);
}

/* Sequences of a million parts are neither deep nor quadratic. */
TEST_WITH(open_langs, close_langs, long_sequences_need_no_stack) {
  Lang many = lang_maybe(&langs, lang_byte(&langs, 'a')), one = lang_byte(&langs, 'b');
  for (int i = 0; i < 20; i++) one = lang_then(&langs, one, one);
  assert_int_equal(lang_shortest(&langs, one), 1 << 20);
  assert_int_equal(lang_shortest(&langs, lang_next(&langs, one, 'b')), (1 << 20) - 1);
  for (int i = 0; i < 10; i++) many = lang_then(&langs, many, many);
  many = lang_then(&langs, many, one);
  assert_true(lang_next(&langs, many, 'a') != LANG_NONE && lang_next(&langs, many, 'b') != LANG_NONE);
  assert_int_equal(lang_shortest(&langs, many), 1 << 20);
  assert_true(lang_without(&langs, one, "bb", 2) == one && !lang_takes_any_beginning(&langs, one));
  assert_int_equal(langs_check(&langs, NULL), STATUS_OK);
}

/* Expressions that share parts, which their derivatives are made of once. */
TEST_WITH(open_langs, close_langs, shared_parts_are_derived_once) {
  Lang lang = lang_byte(&langs, 'a');
  for (int i = 0; i < 60; i++) lang = lang_or(&langs, lang, lang_then(&langs, lang, lang_byte(&langs, 'b')));
  assert_true(has(lang, "abbb") && !has(lang, "ba") && !has(lang, "aa"));
  assert_false(lang_takes_any_beginning(&langs, lang));
  assert_int_equal(lang_next_class(&langs, lang, WIDE_E1), LANG_UNKNOWN); /* too many ways to look */
  const Lang others = lang_without(&langs, lang, "ab", 2);
  assert_true(!has(others, "ab") && has(others, "abb"));
  const Lang ab = lang_literal(&langs, "ab", 2), any = lang_any_text(&langs), a = lang_byte(&langs, 'a'),
             some = lang_or(&langs, ab, lang_then(&langs, a, any)), /* endless parts stay as they are */
      few = lang_without(&langs, lang_and(&langs, some, lang_or(&langs, ab, a)), "ab", 2);
  assert_true(!has(few, "ab") && has(few, "a"));
  assert_true(langs.failure.work < MAX_WORK / 100);
}

TEST_WITH(open_langs, close_langs, many_alternatives_share_their_beginnings) {
  Lang parts[1000];
  char text[8];
  for (int i = 0; i < 1000; i++)
    parts[i] = lang_literal(&langs, text, (size_t)snprintf(text, sizeof text, "%03d-x", i));
  const Lang lang = lang_or_many(&langs, parts, 1000);
  for (int i = 0; i < 1000; i += 37) {
    snprintf(text, sizeof text, "%03d-x", i);
    assert_true(has(lang, text));
  }
  assert_true(!has(lang, "12-x") && !has(lang, "0000-x") && !has(lang, "999-"));
  assert_true(langs.steps < 500);
  assert_int_equal(lang_or_many(&langs, parts, 0), LANG_NONE);
  assert_int_equal(lang_or_many(&langs, parts, 1), parts[0]);
}

static void assert_refused(Lang lang, const char *why) {
  Error err;
  assert_int_equal(lang, LANG_NONE);
  assert_int_equal(langs_check(&langs, &err), STATUS_USAGE);
  assert_non_null(strstr(err.text, why));
}

TEST_WITH(open_langs, close_langs, too_much_is_refused) {
  Lang lang = lang_byte(&langs, 'a');
  for (int i = 0; i < 30; i++) lang = lang_then(&langs, lang, lang);
  assert_refused(lang, "2,097,152 states");
  assert_true(langs.failure.too_hard);
}

TEST_WITH(open_langs, close_langs, expressions_that_lie_too_deep_are_refused) {
  Lang lang = lang_byte(&langs, 'a');
  for (int i = 0; i < 1900; i++)
    lang = lang_repeat(&langs, lang_then(&langs, lang, lang_byte(&langs, 'b')), 2, 3);
  assert_refused(lang, "2,000 deep");
}

/* Bytes that words share lie no deeper than one byte would. */
TEST_WITH(open_langs, close_langs, words_within_words_are_refused_where_they_lie_too_deep) {
  static char bytes[5000];
  static LangWord words[2500];
  memset(bytes, 'a', sizeof bytes);
  for (size_t i = 0; i < 2500; i++) words[i] = (LangWord){bytes, 2 * i, LANG_EMPTY};
  const Lang some = lang_words(&langs, words, 1500);
  assert_true(lang_contains(&langs, some, bytes, 2998) && !lang_contains(&langs, some, bytes, 3000));
  assert_refused(lang_words(&langs, words, 2500), "over 2,000 words are beginnings of one another");
}

/* A search among multiples, wherever these lie, ends early and takes for granted that there is one. */
TEST_WITH(open_langs, close_langs, a_search_among_multiples_is_short) {
  const Lang one = lang_multiple(&langs, 999983, 0), other = lang_multiple(&langs, 999979, 0);
  const Lang digits = lang_repeat(&langs, lang_bytes(&langs, '1', '9'), 9, 12), end = lang_byte(&langs, 'z');
  const Lang parts[] = {lang_or(&langs, one, other), lang_then(&langs, one, end),
                        lang_then(&langs, lang_maybe(&langs, end), one),
                        lang_not(&langs, lang_not(&langs, one))};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    const Lang texts = i == 1 ? lang_then(&langs, digits, end) : digits;
    assert_true(lang_is_alive(&langs, lang_and(&langs, parts[i], texts)));
    assert_int_equal(langs_check(&langs, NULL), STATUS_OK);
  }
}

TEST_WITH(open_langs, close_langs, an_interruption_ends_the_work) {
  volatile int interrupted = 0;
  failure_heed(&interrupted);
  langs_begin_work(&langs);
  assert_true(lang_byte(&langs, 'y') != LANG_NONE);
  interrupted = 1;
  langs_begin_work(&langs);
  assert_int_equal(lang_byte(&langs, 'z'), LANG_NONE);
  assert_int_equal(langs_check(&langs, NULL), STATUS_INTERRUPTED);
  failure_heed(NULL);
}

/* --- regular expressions */

static Lang expression(const char *text) {
  Error err;
  Lang made;
  assert_int_equal(regular_expression_parse(&langs, text, strlen(text), REGEX_WHOLE, &made, &err), STATUS_OK);
  return made;
}

TEST_WITH(open_langs, close_langs, many_assertions_take_little_work) {
  static char text[200000];
  size_t n = 0;
  for (int i = 0; i < 8000; i++) n += (size_t)snprintf(text + n, sizeof text - n, "(?!%d$)", i);
  snprintf(text + n, sizeof text - n, "(?=.*7)(?=9)\\d+");
  const Lang lang = expression(text);
  assert_true(langs.lists_count < 20000);
  assert_true(has(lang, "9007") && has(lang, "97000"));
  assert_true(!has(lang, "979") && !has(lang, "8007") && !has(lang, "9000") && !has(lang, "7a"));
}

/* Sets are found by a hash for which equal hashes can be made: these two have one. */
TEST_WITH(open_langs, close_langs, sets_of_equal_hash_are_two) {
  static CharRange ranges[2][8] = {
      {{0x2613, 0x4acc}, {0x9000, 0x9001}, {0x9003, 0x9004}, {0x9006, 0x9007}, {0x25a55, 0xf5e7f}},
      {{0x2830, 0x334e}, {0x9000, 0x9001}, {0x9003, 0x9004}, {0x9006, 0x9007}, {0x10000, 0x90000}}};
  for (int i = 0; i < 6; i++)
    ranges[i % 2][5 + i / 2].first = ranges[i % 2][5 + i / 2].last = 0x10f001 + i / 2 * 2;
  assert_int_equal(hash64(ranges[0], sizeof ranges[0], 0), hash64(ranges[1], sizeof ranges[1], 0));
  const CharSet wide = {ranges[0], 8, 8}, narrow = {ranges[1], 8, 8};
  const Lang first = lang_charset(&langs, &wide), second = lang_charset(&langs, &narrow);
  assert_true(has(first, "\u3900") && !has(second, "\u3900"));
  assert_true(first == lang_charset(&langs, &wide) && second == lang_charset(&langs, &narrow));
}

/* After dots the expression has one counter, not one for each way to divide the text. */
TEST_WITH(open_langs, close_langs, counters_that_overlap_are_one) {
  Lang lang = lang_relaxed(&langs, expression("(.{1,63}\\.){1,99}[a-z]+"));
  for (const char *at = "a.b..c"; *at; at++) lang = lang_next(&langs, lang, (unsigned char)*at);
  const size_t before = langs.count;
  for (const char *at = ".d.e"; *at; at++) lang = lang_next(&langs, lang, (unsigned char)*at);
  assert_true(langs.count - before < 40);
  const Lang runs[] = {expression("a{2,4}b"), expression("a{5,7}b"), expression("a{9,11}b")};
  const Lang united = lang_or_all(&langs, runs, 3);
  assert_int_equal(united, lang_or(&langs, expression("a{2,7}b"), runs[2]));
  assert_true(has(united, "aaaaaaab") && !has(united, "aaaaaaaab") && has(united, "aaaaaaaaab"));
}

TEST_WITH(open_langs, close_langs, short_strings_know_no_high_counts) {
  const Lang lang = expression("(a{1,80}b){0,64}"), relaxed = lang_relaxed(&langs, lang);
  char text[130];
  memset(text, 'a', sizeof text);
  text[80] = 'b';
  assert_true(lang_contains(&langs, lang, text, 81) && lang_contains(&langs, relaxed, text, 81));
  text[80] = 'a', text[81] = 'b';
  assert_true(!lang_contains(&langs, lang, text, 82) && lang_contains(&langs, relaxed, text, 82));
  assert_int_equal(relaxed, lang_relaxed(&langs, relaxed));
  assert_int_equal(expression("(a{1,47}b)*"), lang_relaxed(&langs, expression("(a{1,47}b)*")));
}

/* Characters of the shortest string, also from states whose searches met others. */
TEST_WITH(open_langs, close_langs, the_shortest_string_is_found) {
  static const struct {
    const char *expression;
    uint32_t characters;
  } cases[] = {{"(?=.{7})(ab|\u3042c)*", 8}, {"(?!.{0,4}$).*x", 5}, {"(?=.*9)[a-z9]{3,}", 3}, {"(?!a)", 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Lang lang = lang_text(&langs, expression(cases[i].expression));
    assert_int_equal(lang_shortest(&langs, lang), cases[i].characters);
    assert_int_equal(lang_shortest(&langs, lang), cases[i].characters);
  }
  const Lang lang = lang_text(&langs, expression("(?=.{7})(ab|\u3042c)*"));
  assert_int_equal(lang_shortest(&langs, lang_next(&langs, lang, 'a')), 7);
  assert_int_equal(lang_shortest(&langs, lang_next(&langs, lang, 0xe3)), 7);
}

/* 17,017 characters, which a search does not reach: their number is unknown, not 0, and may be within any
 * limit. */
TEST_WITH(open_langs, close_langs, a_length_that_no_search_finds_is_unknown) {
  const Lang lang = expression("^(?=(a{7})*$)(?=(a{11})*$)(?=(a{13})*$)(?=(a{17})*$)a+$");
  for (int turn = 0; turn < 2; turn++) {
    assert_int_equal(lang_shortest(&langs, lang), LANG_UNKNOWN);
    assert_true(lang_ends_within(&langs, lang, 100));
  }
  assert_int_equal(lang_shortest(&langs, expression("^(?=(a{7})*$)(?=(a{11})*$)a+$")), 77);
}

/* The answers are those of searches, whatever string was found before. */
TEST_WITH(open_langs, close_langs, ends_are_found_within_a_limit) {
  const Lang lang = lang_text(&langs, expression("^(?!.*x)(?=.*9).{4,60}$")),
             other = expression("^(?=.{6})[a-f]*$");
  for (int turn = 0; turn < 2; turn++) {
    assert_true(!lang_ends_within(&langs, lang, 3) && lang_ends_within(&langs, lang, 4));
    assert_true(!lang_ends_within(&langs, other, 5) && lang_ends_within(&langs, other, 6));
    assert_true(!lang_ends_within(&langs, lang_next(&langs, lang, 'a'), 2));
    assert_true(lang_ends_within(&langs, lang_next(&langs, lang, 'a'), LANG_NO_END));
    assert_false(lang_ends_within(&langs, lang_next(&langs, lang, 'x'), LANG_NO_END));
  }
}

/* The end that was found last is tried first, with each limit: it has six characters. */
TEST_WITH(open_langs, close_langs, an_end_that_is_kept_counts_its_characters) {
  for (uint32_t left = 0; left < 10; left++) {
    close_langs(state);
    assert_int_equal(open_langs(state), 0);
    assert_true(lang_ends_within(&langs, lang_text(&langs, expression("(?=.*9)[a-z9]{6,7}b?")), 6));
    assert_int_equal(langs.ending_size, 6);
    const Lang other = lang_text(&langs, expression("(?=.*9)[a-y9]{6,8}c?"));
    assert_int_equal(lang_ends_within(&langs, other, left), left >= 6);
  }
}

static uint64_t seed = 1;

static unsigned below(unsigned n) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)(seed >> 33) % n;
}

/* Appends a random expression over "ab" with assertions in it, and perhaps a count of it. */
static void random_expression(char *out, int depth) {
  static const char *const atoms[] = {"^",     "$",         "a",      "b",      "a",    "b",
                                      ".",     "[^a]",      "[a-b]",  "[^a-b]", "[ba]", "[^ca]",
                                      "\\x61", "[^c-db-b]", "[\\da]", "\\W",    "\\w",  "[^\\Wb]"};
  static const char *const groups[] = {"(", "(", "(?:", "(?=", "(?!"};
  static const char *const counts[] = {"",      "",      "",      "?",      "*",   "+",      "{2}",
                                       "{0,2}", "{1,2}", "{2,3}", "{0,20}", "{0}", "{1,20}", "{2,18}"};
  const unsigned what = below(depth > 0 ? 10 : 6);
  if (what < 6) {
    const unsigned atom = below(sizeof atoms / sizeof *atoms);
    strcat(out, atoms[atom]);
    if (atom > 1) strcat(out, counts[below(14)]);
  } else if (what < 8) {
    const unsigned group = below(5);
    strcat(out, groups[group]);
    random_expression(out, depth - 1);
    if (below(2)) strcat(out, "|");
    random_expression(out, depth - 1);
    strcat(out, ")");
    if (group < 3) strcat(out, counts[below(14)]);
  } else {
    random_expression(out, depth - 1);
    random_expression(out, depth - 1);
  }
}

/* Expressions whose assertions are repeated, alternatives of one another or after what may be empty match as
 * PCRE2 has it, or are refused. All texts of up to five letters are tried. */
TEST_WITH(open_langs, close_langs, assertions_hold_where_another_matcher_has_them) {
  int n_taken = 0;
  pcre2_match_context *limits = pcre2_match_context_create(NULL);
  pcre2_set_match_limit(limits, 1000);
  for (int i = 0; i < SAMPLE(6000); i++) {
    char text[2000] = "";
    const bool whole = i % 2;
    Lang lang;
    Error err;
    int code;
    size_t at;
    random_expression(text, 3);
    if (regular_expression_parse(&langs, text, strlen(text), whole ? REGEX_WHOLE : REGEX_SOMEWHERE, &lang,
                                 &err) != STATUS_OK) {
      assert_true(langs.unsupported);
      continue;
    }
    n_taken++;
    char anchored[2010];
    snprintf(anchored, sizeof anchored, whole ? "^(?:%s)$" : "%s", text);
    pcre2_code *other = pcre2_compile((PCRE2_SPTR)anchored, PCRE2_ZERO_TERMINATED,
                                      PCRE2_DOLLAR_ENDONLY | PCRE2_NO_START_OPTIMIZE, &code, &at, NULL);
    if (!other && code == PCRE2_ERROR_PATTERN_TOO_LARGE) continue;
    if (!other) fail_msg("%s: error %d of PCRE2", text, code);
    pcre2_match_data *match = pcre2_match_data_create_from_pattern(other, NULL);
    for (unsigned bits = 1; bits < 64; bits++) {
      char letters[8];
      size_t n = 0;
      for (unsigned left = bits; left > 1; left >>= 1) letters[n++] = left & 1 ? 'b' : 'a';
      const int found = pcre2_match(other, (PCRE2_SPTR)letters, n, 0, 0, match, limits);
      const bool matches = found >= 0;
      if (found < PCRE2_ERROR_NOMATCH) continue; /* it has tried for too long */
      if (lang_contains(&langs, lang, letters, n) != matches)
        fail_msg("%s and \"%.*s\": expected %d", text, (int)n, letters, matches);
    }
    pcre2_match_data_free(match);
    pcre2_code_free(other);
  }
  pcre2_match_context_free(limits);
  assert_true(n_taken > SAMPLE(1000));
}

static bool is_space_of_ecma(uint32_t c) {
  static const uint32_t others[] = {9,      10,     11,     12,     13,     32,     0xa0,
                                    0x1680, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000, 0xfeff};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (c == others[i]) return true;
  return c >= 0x2000 && c <= 0x200a;
}

/* Every character is in a class or in its opposite, as ECMAScript has it. */
TEST_WITH(open_langs, close_langs, classes_have_their_characters) {
  static const char *const expressions[] = {"\\s", "\\S", "\\d",       "\\D",      "\\w",
                                            "\\W", ".",   "[^\\s\\w]", "[\\d\\S]", "[\\u0100-\\u{20000}]"};
  Lang made[10];
  for (int i = 0; i < 10; i++) made[i] = expression(expressions[i]);
  for (uint32_t c = 0; c <= 0x10ffff; c += c > 0x11000 ? 37 : 1) {
    unsigned char bytes[4];
    if (c >= 0xd800 && c <= 0xdfff) continue;
    const size_t size = (size_t)utf8_encode(c, bytes);
    const bool space = is_space_of_ecma(c), digit = c >= '0' && c <= '9',
               word = digit || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool expected[] = {space,
                             !space,
                             digit,
                             !digit,
                             word,
                             !word,
                             c != 10 && c != 13 && c != 0x2028 && c != 0x2029,
                             !space && !word,
                             digit || !space,
                             c >= 0x100 && c <= 0x20000};
    for (int i = 0; i < 10; i++)
      if (lang_contains(&langs, made[i], bytes, size) != expected[i])
        fail_msg("%s and U+%04X", expressions[i], c);
  }
}

/* Long sequences with assertions, many classes, and alternatives need neither stack nor much work; what
 * would is refused. */
TEST_WITH(open_langs, close_langs, large_expressions_are_bounded) {
  static char text[400000];
  Error err;
  Lang lang;
  static const struct {
    const char *before, *part, *after;
    Status status;
  } cases[] = {{"^", "ab", "$", STATUS_OK},      {"(?=a)", ".", "", STATUS_OK},
               {"(?:", "^", ")", STATUS_OK},     {"a", "|", "", STATUS_OK},
               {"", "\\p{L}", "", STATUS_USAGE}, {"[", "\\p{L}", "]", STATUS_USAGE},
               {"", "(", "", STATUS_USAGE}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    size_t n = (size_t)snprintf(text, sizeof text, "%s", cases[i].before);
    const size_t part = strlen(cases[i].part);
    for (int j = 0; j < 60000; j++, n += part) memcpy(text + n, cases[i].part, part);
    n += (size_t)snprintf(text + n, sizeof text - n, "%s", cases[i].after);
    langs_begin_work(&langs);
    assert_int_equal(regular_expression_parse(&langs, text, n, REGEX_WHOLE, &lang, &err), cases[i].status);
    assert_true(langs.failure.work < MAX_WORK / 10);
  }
  char nest[4000] = "";
  for (int i = 0; i < 150; i++) strcat(nest, "(^a|b");
  for (int i = 0; i < 150; i++) strcat(nest, "){0,9}");
  assert_int_equal(regular_expression_parse(&langs, nest, strlen(nest), REGEX_WHOLE, &lang, &err),
                   STATUS_USAGE);
}
