/* test_did_you_mean.c - the word that a mistyped one was meant to be, against a plain recursive distance. */
#include <ctype.h>

#include "commands/did_you_mean.h"
#include "test/tests.h"

static bool same(char a, char b) {
  a = a == '_' ? '-' : a;
  b = b == '_' ? '-' : b;
  return tolower(a) == tolower(b);
}

static size_t smaller(size_t a, size_t b) {
  return a < b ? a : b;
}

/* Edits that make the first n_b letters of b of the first n_a of a. */
static size_t distance(const char *a, size_t n_a, const char *b, size_t n_b) {
  if (n_a == 0 || n_b == 0) return n_a + n_b;
  size_t replaced = same(a[n_a - 1], b[n_b - 1]) ? 0 : n_a == 1 && n_b == 1 ? 2 : 1;
  size_t best = distance(a, n_a - 1, b, n_b - 1) + replaced;
  best = smaller(best, distance(a, n_a - 1, b, n_b) + 1);
  best = smaller(best, distance(a, n_a, b, n_b - 1) + 1);
  if (n_a > 1 && n_b > 1 && same(a[n_a - 1], b[n_b - 2]) && same(a[n_a - 2], b[n_b - 1]))
    best = smaller(best, distance(a, n_a - 2, b, n_b - 2) + 1);
  return best;
}

static bool begins(const char *text, const char *word) {
  size_t n = 0;
  while (text[n] && word[n] && same(text[n], word[n])) n++;
  return !text[n];
}

/* How near a word is by did_you_mean.h, the nearest first; SIZE_MAX: not near. */
static size_t rank(const char *text, const char *word) {
  size_t text_dashes = strspn(text, "-"), dashes = strspn(word, "-");
  const char *a = text + text_dashes, *b = word + dashes;
  size_t n_a = strlen(a), n_b = strlen(b), other = text_dashes != dashes;
  if (!n_a || !n_b || (dashes && n_b == 1)) return SIZE_MAX;
  if ((n_a >= 3 || text_dashes == 2) && begins(a, b))
    return n_b == n_a ? 0 : 100 * other + (n_b - n_a); /* the same word comes first, whatever its dashes */
  size_t n_edits = distance(a, n_a, b, n_b);
  return n_edits <= 2 && n_edits <= (n_a + 1) / 3 ? 10000 * n_edits + other : SIZE_MAX;
}

static void random_word(uint64_t *random, char *word) {
  static const char letters[] = "abcA_-";
  size_t dashes = random_below(random, 3), n = random_below(random, 6);
  memset(word, '-', dashes);
  for (size_t i = 0; i < n; i++) word[dashes + i] = letters[random_below(random, i ? sizeof letters - 1 : 4)];
  word[dashes + n] = 0;
}

TEST(the_nearest_of_any_words_is_found) {
  uint64_t random = 1;
  size_t n_found = 0;
  for (int c = 0; c < 4000; c++) {
    char text[12], words[4][12];
    size_t best = SIZE_MAX, which = 0;
    random_word(&random, text);
    Suggestion nearest = suggestion_begin(text, strlen(text));
    for (size_t i = 0; i < 4; i++) {
      random_word(&random, words[i]);
      suggestion_consider(&nearest, words[i], strlen(words[i]));
      size_t own = rank(text, words[i]);
      if (own < best) which = i;
      best = smaller(best, own);
    }
    if (best == SIZE_MAX && nearest.word) fail_msg("%s: %s is not near", text, nearest.word);
    if (best == SIZE_MAX) continue;
    n_found++;
    if (nearest.word != words[which])
      fail_msg("%s: found %s, expected %s", text, nearest.word ? nearest.word : "nothing", words[which]);
    assert_int_equal(nearest.word_size, strlen(words[which]));
  }
  assert_in_range(n_found, 900, 4000);
}

TEST(words_of_more_than_forty_letters_are_not_compared) {
  char text[48], word[48];
  memset(text, 'a', sizeof text);
  memset(word, 'a', sizeof word);
  for (size_t n_text = 39; n_text <= 41; n_text++) {
    for (size_t n_word = 39; n_word <= 41; n_word++) {
      Suggestion nearest = suggestion_begin(text, n_text);
      suggestion_consider(&nearest, word, n_word);
      assert_int_equal(nearest.word != NULL, n_text <= 40 && n_word <= 40);
    }
  }
}
