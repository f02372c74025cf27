/* did_you_mean.c - see did_you_mean.h. */
#include "commands/did_you_mean.h"

#include <stdbool.h>

enum { LONGEST = 40, MOST_EDITS = 2 }; /* LONGEST: bytes; longer words are not compared */

static char folded(char c) {
  if (c == '_') return '-';
  return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static int least(int a, int b) {
  return a < b ? a : b;
}

/* Edit distance of a and b: insertions, deletions, substitutions and swaps of neighbours (optimal string
 * alignment, a restricted Damerau-Levenshtein distance). Substituting the first letter costs two. */
static int edits(const char *a, size_t n_a, const char *b, size_t n_b) {
  int rows[3][LONGEST + 1]; /* rows i - 2, i - 1 and i of the matrix, in turn */
  for (size_t i = 0; i <= n_a; i++) {
    int *row = rows[i % 3], *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
    for (size_t k = 0; k <= n_b; k++) {
      if (i == 0 || k == 0) {
        row[k] = (int)(i + k);
        continue;
      }
      bool same = folded(a[i - 1]) == folded(b[k - 1]);
      int replaced = same ? 0 : i == 1 && k == 1 ? 2 : 1;
      row[k] = least(above[k - 1] + replaced, least(above[k], row[k - 1]) + 1);
      if (i > 1 && k > 1 && folded(a[i - 1]) == folded(b[k - 2]) && folded(a[i - 2]) == folded(b[k - 1]))
        row[k] = least(row[k], two_above[k - 2] + 1);
    }
  }
  return rows[n_a % 3][n_b];
}

static bool begins(const char *a, size_t n_a, const char *b, size_t n_b) {
  size_t n = 0;
  while (n < n_a && n < n_b && folded(a[n]) == folded(b[n])) n++;
  return n == n_a;
}

static size_t leading_dashes(const char *text, size_t size) {
  size_t n = 0;
  while (n < size && text[n] == '-') n++;
  return n;
}

Suggestion suggestion_begin(const char *text, size_t size) {
  return (Suggestion){.text = text, .size = size};
}

void suggestion_consider(Suggestion *nearest, const char *word, size_t size) {
  size_t text_dashes = leading_dashes(nearest->text, nearest->size), dashes = leading_dashes(word, size);
  const char *a = nearest->text + text_dashes, *b = word + dashes;
  size_t n_a = nearest->size - text_dashes, n_b = size - dashes;
  if (n_a == 0 || n_b == 0 || n_a > LONGEST || n_b > LONGEST) return;
  if (dashes && n_b == 1) return;
  bool is_begun = (n_a >= 3 || text_dashes == 2) && begins(a, n_a, b, n_b);
  int n_edits = edits(a, n_a, b, n_b);
  if (!is_begun && n_edits > least(MOST_EDITS, (int)(n_a + 1) / 3)) return;
  int other_dashes = text_dashes != dashes, more = (int)(n_b - n_a);
  int cost = !is_begun ? 3 * LONGEST * n_edits + other_dashes : more ? LONGEST * other_dashes + more : 0;
  if (nearest->word && nearest->cost <= cost) return;
  nearest->word = word;
  nearest->word_size = size;
  nearest->cost = cost;
}
