/* test_scores.c - a token's log-probability and those of the best in its place, against a sort in doubles. */
#include <math.h>

#include "engine/sampler.h"
#include "test/tests.h"

enum { N = 40, MOST = 45 };

/* How many ids stand before `id`: larger logits, and of equal ones those with a smaller id. */
static int rank_of(const float *logits, int id) {
  int rank = 0;
  for (int i = 0; i < N; i++) rank += logits[i] > logits[id] || (logits[i] == logits[id] && i < id);
  return rank;
}

/* Logits of few different values, so that many are equal, and more scores than there are tokens. */
TEST(the_best_come_in_their_order) {
  static const int counts[] = {0, 1, 2, 7, N - 1, N, MOST};
  uint32_t seed = 5;
  for (int round = 0; round < 50; round++) {
    float logits[N];
    double sum = 0;
    for (int i = 0; i < N; i++) {
      seed = seed * 1664525u + 1013904223u;
      logits[i] = (float)(seed >> 28) - 8;
      sum += exp((double)logits[i]);
    }
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
      TokenScore scores[MOST + 2] = {[MOST + 1] = {.id = 77}};
      const int n = counts[c], id = round % N;
      scores[n + 1].id = 77;
      log_probabilities(logits, N, id, n, scores);
      assert_int_equal(scores[0].id, id);
      assert_int_equal(scores[n + 1].id, 77); /* nothing is written after them */
      for (int i = 0; i <= n; i++) {
        if (i > N) assert_int_equal(scores[i].id, -1);
        if (i > N) continue;
        if (i > 0) assert_int_equal(rank_of(logits, scores[i].id), i - 1);
        assert_float_equal(scores[i].log_p, (double)logits[scores[i].id] - log(sum), 1e-12);
      }
    }
  }
}
