/* test_bench_roofline.c - the roofline of a test is that of its steps: how they are cut, what bounds each. */
#include <math.h>

#include "commands/measure/bench_roofline.h"
#include "engine/step_cost.h"
#include "model/model.h"
#include "test/tests.h"

static int open_stories(void **state) {
  Error err = {{0}};
  Model *model = NULL;
  if (model_open("test/data/stories260K-awq", NULL, &model, &err) != STATUS_OK) fail_msg("%s", err.text);
  *state = model;
  return 0;
}

static int close_stories(void **state) {
  model_close(*state);
  return 0;
}

/* Milliseconds: 1 GB/s is 1e6 bytes in one, 1 TFLOP/s 1e9 operations. */
static double bound_ms(const StepCost *cost, const MachineRates *rates, int n_rows) {
  const double reading = cost->bytes / (rates->read_gbps * 1e6);
  const double computing = n_rows > 1 ? cost->flop / (rates->fp16_tflops * 1e9) : 0;
  return reading > computing ? reading : computing;
}

/* Sums of doubles in the same order: what differs is the rounding of products, 1e-15 each. */
static void assert_wall(TestRoofline got, int n_steps, double bytes, double ms) {
  assert_int_equal(got.n_steps, n_steps);
  assert_true(got.bytes == bytes);
  assert_true(fabs(got.ideal_ms / ms - 1) < 1e-12);
}

TEST_WITH(NULL, NULL, a_prefill_is_cut_into_chunks_and_gives_the_last_logits) {
  const Model *model = *state;
  static const MachineRates machines[] = {{.read_gbps = 3, .fp16_tflops = 1000},
                                          {.read_gbps = 1000, .fp16_tflops = 1}};
  static const int cases[][4] = {/* tokens before, tokens, chunk, steps */
                                 {0, 1, 64, 1},   {0, 64, 64, 1},  {20, 65, 64, 2},
                                 {5, 128, 64, 2}, {0, 130, 64, 3}, {100, 7, 1, 7}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (int m = 0; m < 2; m++) {
      for (int kv = 0; kv < 2; kv++) {
        const int *c = cases[i];
        double bytes = 0, ms = 0;
        for (int done = 0; done < c[1]; done += c[2]) {
          const int n = c[1] - done < c[2] ? c[1] - done : c[2];
          const StepCost cost = step_cost(model, (KvType)kv, c[0] + done, n, done + n == c[1] ? 1 : 0);
          bytes += cost.bytes;
          ms += bound_ms(&cost, &machines[m], n);
        }
        assert_wall(roofline_of_prefill(model, (KvType)kv, &machines[m], c[0], c[1], c[2]), c[3], bytes, ms);
      }
    }
  }
}

TEST_WITH(NULL, NULL, decoding_reads_all_for_each_token) {
  const Model *model = *state;
  const MachineRates machine = {.read_gbps = 1000, .fp16_tflops = 0.001};
  for (int behind = 1; behind < 300; behind += 99) {
    double bytes = 0;
    for (int i = 0; i < 9; i++) bytes += step_cost(model, KV_F16, behind + i, 1, 1).bytes;
    assert_wall(roofline_of_decode(model, KV_F16, &machine, behind, 9, 0), 9, bytes, bytes / 1e9);
    const double less = bytes - 9 * 100;
    assert_wall(roofline_of_decode(model, KV_F16, &machine, behind, 9, 100), 9, less, less / 1e9);
  }
}

/* Not the arithmetic, where a machine did not measure it: then only what single rows need is known. */
TEST_WITH(NULL, NULL, what_was_not_measured_bounds_nothing) {
  const Model *model = *state;
  const MachineRates reads = {.read_gbps = 10}, nothing = {0}, computes = {.fp16_tflops = 1};
  assert_true(isnan(roofline_of_prefill(model, KV_F16, &reads, 0, 2, 64).ideal_ms));
  assert_false(isnan(roofline_of_prefill(model, KV_F16, &reads, 0, 1, 64).ideal_ms));
  assert_false(isnan(roofline_of_decode(model, KV_F16, &reads, 1, 2, 0).ideal_ms));
  assert_true(isnan(roofline_of_decode(model, KV_F16, &nothing, 1, 2, 0).ideal_ms));
  assert_true(isnan(roofline_of_prefill(model, KV_F16, &computes, 0, 2, 64).ideal_ms));
  assert_true(roofline_of_decode(model, KV_F16, &nothing, 1, 2, 0).bytes > 0);
}

static CMFixtureFunction before_all = open_stories, after_all = close_stories;
