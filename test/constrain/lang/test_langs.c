/* test_langs.c - random languages against sets of strings: all strings of up to four characters, which are of
 * four kinds, one to four bytes long. */
#include "constrain/lang/lang_internal.h"
#include "constrain/lang/lang_list.h"
#include "test/constrain/random_schemas.h"
#include "test/tests.h"

enum { N_LETTERS = 4, MOST = 4, N_STRINGS = 1 + 4 + 16 + 64 + 256, N_LANGS = 1500, N_WORDS = 24 };

static const char *const letters[N_LETTERS] = {"a", "\u00e9", "\u20ac", "\U0001f600"};
static const WideClass classes[N_LETTERS] = {N_WIDE, WIDE_OTHER, WIDE_E2, WIDE_OTHER};

/* A string by its letters; its number is that of (4^n - 1) / 3 shorter ones and its own among those of n. */
typedef struct {
  char bytes[4 * MOST + 1];
  size_t size;
  int n, letters[MOST];
} String;
static String strings[N_STRINGS];

typedef struct {
  Lang lang;
  bool has[N_STRINGS];
} Set;

static Langs langs;
static uint64_t seed = 1;

static int number_of(const int *of, int n) {
  int number = 0, before = 0;
  for (int i = 0, power = 1; i < n; i++, power *= N_LETTERS)
    number = number * N_LETTERS + of[i], before += power;
  return before + number;
}

static void make_strings(void) {
  for (int i = 0; i < N_STRINGS; i++) {
    String *s = &strings[i];
    int n = 0, left = i;
    for (int power = 1; left >= power; power *= N_LETTERS) left -= power, n++;
    *s = (String){.n = n};
    for (int at = n; at-- > 0; left /= N_LETTERS) s->letters[at] = left % N_LETTERS;
    for (int at = 0; at < n; at++) strcat(s->bytes, letters[s->letters[at]]);
    s->size = strlen(s->bytes);
    assert_int_equal(number_of(s->letters, n), i);
  }
}

static Set set_of(Lang lang, bool all) {
  Set made = {.lang = lang};
  memset(made.has, all, sizeof made.has);
  return made;
}

static Set single(int i) {
  Set made = set_of(lang_literal(&langs, strings[i].bytes, strings[i].size), false);
  made.has[i] = true;
  return made;
}

/* The parts are text, which no character lies across. */
static Set then(const Set *a, const Set *b) {
  Set made = set_of(lang_then(&langs, lang_text(&langs, a->lang), lang_text(&langs, b->lang)), false);
  for (int i = 0; i < N_STRINGS; i++)
    for (int at = 0; at <= strings[i].n && !made.has[i]; at++)
      made.has[i] = a->has[number_of(strings[i].letters, at)] &&
                    b->has[number_of(strings[i].letters + at, strings[i].n - at)];
  return made;
}

static Set repeat(const Set *a, uint32_t min, uint32_t max) {
  Set made = set_of(LANG_NONE, false), power = single(0);
  for (uint32_t n = 0; n <= max && n <= min + MOST; n++) {
    for (int i = 0; i < N_STRINGS && n >= min; i++) made.has[i] |= power.has[i];
    power = then(&power, a);
  }
  made.lang = lang_repeat(&langs, lang_text(&langs, a->lang), min, max);
  return made;
}

/* Words with what may follow them, by lang_words() or by lang_or_many(). */
static Set words_of(const Set *rest) {
  LangWord words[N_WORDS];
  Lang parts[N_WORDS];
  Set made = set_of(LANG_NONE, false);
  const uint32_t n = random_below(&seed, N_WORDS + 1);
  const bool is_tree = random_below(&seed, 2);
  for (uint32_t w = 0; w < n; w++) {
    const Set word = single((int)random_below(&seed, N_STRINGS)),
              more = random_below(&seed, 4) ? single(0) : *rest;
    const Set whole = then(&word, &more);
    for (int i = 0; i < N_STRINGS; i++) {
      made.has[i] |= whole.has[i];
      if (word.has[i]) words[w] = (LangWord){strings[i].bytes, strings[i].size, lang_text(&langs, more.lang)};
    }
    parts[w] = whole.lang;
  }
  made.lang = is_tree ? lang_words(&langs, words, n) : lang_or_many(&langs, parts, n);
  return made;
}

static Set leaf(void) {
  static const uint32_t ends[] = {0,     'a',    'b',    0x7f,    0x80,    0xe9,    0xea,
                                  0x800, 0x20ac, 0x20ad, 0x1f5ff, 0x1f600, 0x10ffff};
  static const uint32_t codes[N_LETTERS] = {'a', 0xe9, 0x20ac, 0x1f600};
  switch (random_below(&seed, 8)) {
  case 0: return set_of(LANG_NONE, false);
  case 1: return set_of(random_below(&seed, 2) ? LANG_ALL : lang_any_text(&langs), true);
  case 2: return single(0);
  case 3:
  case 4: return single((int)random_below(&seed, N_STRINGS));
  default: break;
  }
  const uint32_t x = ends[random_below(&seed, 13)], y = ends[random_below(&seed, 13)];
  const uint32_t first = x < y ? x : y, last = x < y ? y : x;
  Set made = set_of(lang_characters(&langs, first, last), false);
  for (int i = 1; i <= N_LETTERS; i++) made.has[i] = codes[i - 1] >= first && codes[i - 1] <= last;
  return made;
}

/* Joins up to four sets. */
static Set join(const Set *parts, size_t n, bool all) {
  Lang list[4];
  Set made = set_of(LANG_NONE, all);
  for (size_t k = 0; k < n; k++) {
    list[k] = parts[k].lang;
    for (int i = 0; i < N_STRINGS; i++)
      made.has[i] = all ? made.has[i] && parts[k].has[i] : made.has[i] || parts[k].has[i];
  }
  made.lang = n == 2 ? (all ? lang_and : lang_or)(&langs, list[0], list[1])
                     : (all ? lang_and_all : lang_or_all)(&langs, list, n);
  return made;
}

static Set random_set(int depth) {
  static const uint32_t counts[] = {0, 0, 1, 2, 3, 4, 47, 48, 60, LANG_NO_END};
  if (depth == 0 || random_below(&seed, 6) == 0) return leaf();
  Set parts[4] = {random_set(depth - 1), set_of(LANG_NONE, false)};
  const uint32_t min = counts[random_below(&seed, 9)], max = counts[random_below(&seed, 10)],
                 kind = random_below(&seed, 9);
  if (kind < 5) parts[1] = random_set(depth - 1);
  const size_t n = 2 + random_below(&seed, 3);
  for (size_t i = 2; i < n && kind < 3; i++) parts[i] = random_set(depth - 1);
  if (kind < 3) return join(parts, n, kind == 2);
  if (kind < 5) return then(&parts[0], &parts[1]);
  if (kind < 7) return repeat(&parts[0], min > 4 ? 0 : min, max < min && min <= 4 ? min : max);
  if (kind == 7) return words_of(&parts[0]);
  Set made = set_of(lang_not(&langs, parts[0].lang), false);
  for (int i = 0; i < N_STRINGS; i++) made.has[i] = !parts[0].has[i];
  return made;
}

static bool contains(Lang lang, int i) {
  return lang_contains(&langs, lang, strings[i].bytes, strings[i].size);
}

static Lang after(Lang lang, int i) {
  for (size_t at = 0; at < strings[i].size; at++)
    lang = lang_next(&langs, lang, (unsigned char)strings[i].bytes[at]);
  return lang;
}

static bool unlist(void *user, const char *bytes, size_t size) {
  bool *left = user;
  for (int i = 0; i < N_STRINGS; i++)
    if (strings[i].size == size && memcmp(strings[i].bytes, bytes, size) == 0 && left[i])
      return left[i] = false, true;
  fail_msg("%.*s is listed", (int)size, bytes);
  return false;
}

/* Checks what is known of the strings of few characters alone. */
static void check_short(const Set *set, Lang few) {
  bool left[N_STRINGS];
  int n = 0, shortest = MOST + 1;
  char example[4 * MOST];
  size_t size;
  memcpy(left, set->has, sizeof left);
  for (int i = 0; i < N_STRINGS; i++) {
    n += set->has[i];
    if (set->has[i] && strings[i].n < shortest) shortest = strings[i].n;
    bool goes_on = false;
    for (int j = i; j < N_STRINGS && !goes_on; j++)
      goes_on = set->has[j] && strings[j].n >= strings[i].n &&
                memcmp(strings[j].letters, strings[i].letters, (size_t)strings[i].n * sizeof(int)) == 0;
    if (i % 3 == 0) assert_int_equal(lang_is_alive(&langs, after(few, i)), goes_on);
  }
  if (!lang_is_alive(&langs, few)) return;
  const int without = (int)random_below(&seed, N_STRINGS);
  const Lang others = lang_without(&langs, few, strings[without].bytes, strings[without].size);
  for (int i = 0; i < N_STRINGS; i++) assert_int_equal(contains(others, i), set->has[i] && i != without);
  assert_int_equal(lang_shortest(&langs, few), shortest);
  for (uint32_t most = 0; most <= MOST; most++)
    assert_int_equal(lang_ends_within(&langs, few, most), (uint32_t)shortest <= most);
  if (lang_list(&langs, few, unlist, left))
    for (int i = 0; i < N_STRINGS; i++) assert_false(left[i]);
  assert_true(lang_example(&langs, few, example, sizeof example, &size));
  assert_true(lang_contains(&langs, few, example, size));
  for (size_t i = 0; i < size; i++) shortest -= (example[i] & 0xc0) != 0x80;
  assert_int_equal(shortest, 0);
  assert_int_equal(lang_example(&langs, few, example, size - (size > 0), &size), size == 0);
  assert_false(lang_is_endless(&langs, few));
}

static void check(const Set *set, Lang letters_only) {
  const Lang lang = set->lang, few = lang_and(&langs, lang, letters_only),
             relaxed = lang_relaxed(&langs, lang);
  uint32_t max;
  const Lang unlimited = lang_without_max(&langs, lang_text(&langs, lang), &max);
  const int without = (int)random_below(&seed, N_STRINGS);
  const Lang others = lang_without(&langs, lang, strings[without].bytes, strings[without].size);
  Lang next[N_LETTERS];
  for (int c = 1; c < N_LETTERS; c++) next[c] = lang_next_class(&langs, lang, classes[c]);
  for (int i = 0; i < N_STRINGS; i++) {
    const String *s = &strings[i];
    if (contains(lang, i) != set->has[i]) fail_msg("\"%s\": expected %d", s->bytes, set->has[i]);
    assert_int_equal(contains(relaxed, i), set->has[i]);
    assert_int_equal(contains(unlimited, i) && (uint32_t)s->n <= max, set->has[i]);
    if (i != without || !set->has[i]) assert_int_equal(contains(others, i), set->has[i]);
    if (lang_takes_any_beginning(&langs, lang)) assert_true(lang_is_alive(&langs, after(lang, i)));
    if (s->n > 0 && s->letters[0] > 0 && next[s->letters[0]] != LANG_UNKNOWN)
      assert_int_equal(contains(next[s->letters[0]], number_of(s->letters + 1, s->n - 1)), set->has[i]);
  }
  if (lang_is_plain(&langs, lang)) assert_int_equal(lang_is_alive(&langs, lang), lang != LANG_NONE);
  check_short(set, few);
}

TEST(languages_are_sets_of_strings) {
  Error err;
  make_strings();
  for (int i = 0; i < SAMPLE(N_LANGS); i++) {
    if (i % 50 == 0) assert_int_equal(langs_open(&langs, &err), STATUS_OK);
    Lang parts[N_LETTERS];
    for (int c = 0; c < N_LETTERS; c++) parts[c] = lang_literal(&langs, letters[c], strlen(letters[c]));
    const Lang some = lang_repeat(&langs, lang_or_all(&langs, parts, N_LETTERS), 0, MOST);
    langs_begin_work(&langs);
    const Set set = random_set(3);
    check(&set, some);
    assert_int_equal(langs_check(&langs, &err), STATUS_OK);
    if (i % 50 == 49) langs_close(&langs);
  }
}
