/* test_split_gain.c - the gain of two GPUs that `auk inspect --split 2` names: of the measured model that is
 * nearest in size and of the same kind. */
#include "commands/models/inspect.h"
#include "test/tests.h"

static const SplitGain *gain_of(int n, double gigabytes, int n_experts) {
  DeviceShares shares = {.n = n};
  const ModelConfig whole = {.experts = {.n_experts = n_experts}};
  for (int i = 0; i < n; i++) shares.weights[i] = (size_t)(gigabytes * 1e9 / n);
  return inspect_split_gain(&shares, &whole);
}

TEST(the_nearest_is_named) {
  assert_string_equal(gain_of(2, 7, 0)->model, "Qwen3-8B");
  assert_string_equal(gain_of(2, 30, 0)->model, "a 70B");
  assert_string_equal(gain_of(2, 17, 128)->model, "Qwen3-30B-A3B");
  assert_true(gain_of(2, 17, 128)->decode < 1);
}

TEST(others_were_not_measured) {
  assert_null(gain_of(2, 1, 0));
  assert_null(gain_of(2, 200, 0));
  assert_null(gain_of(2, 7, 8));
  assert_null(gain_of(4, 7, 0));
}
