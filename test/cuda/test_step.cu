/* test_step.cu - a fused decode step of one token against the same layers in double on the host.
 *
 * The reference rounds keys and values to fp16, as the cache does. The kernel also rounds activations to 16
 * bits of their group's maximum (a normalised error of some 1e-9 a matmul), and to fp16 queries, weights of
 * keys, the outputs of warps and of blocks, and x of lm_head: five times 2^-22 / 3 = 8e-8 at most. Later
 * layers amplify errors of earlier ones; with these shapes the factor stays near 1. So NMSE < 2e-6 for
 * logits and for the new keys and values.
 *
 * Also tested: two runs, and a run with fewer loads in flight, give the same bits; a row with a NaN
 * leaves no number in the logits, and the next step is as before; a step that picks its token itself is the
 * step of that token; a step that reads lm_head in 8 bits has the same best logits, also among rows that are
 * the same or nearly so. The all-reduce (allreduce.cuh) is tested alone: its parts are rounded to 2^-26.
 * Needs a GPU with clusters; prints `N passed, N failed`. */
#include <algorithm>
#include <set>

#include "test/cuda/step_fixture.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#include "cuda/kernels/fused/allreduce.cuh"
#endif

static Row device_step(Fixture &f, Step *step, int pos, int id, bool watched, int n_best = 0) {
  const Case &c = f.c;
  CHECK(cudaMemcpy(f.ids, &id, 4, cudaMemcpyHostToDevice));
  CHECK(cudaMemset(f.logits, 0xff, (size_t)c.vocab * 4));
  StepCall call = f.call(pos, 1, f.ids, 0, f.logits);
  call.n_best = n_best, call.head_x = f.head_x;
  run_step(f, step, call, watched);
  std::vector<float> got = to_host<float>(f.logits, c.vocab);
  return Row(got.begin(), got.end());
}

/* Logits of a step at pos + 1 that may start while the step at pos runs, and must not read that step's key
 * and value before they are there. */
static Row second_of_two(Fixture &f, Step *step, int pos, int id) {
  device_step(f, step, pos, (id + 1) % f.c.vocab, false); /* leaves another key and value there */
  CHECK(cudaMemcpy(f.ids, &id, 4, cudaMemcpyHostToDevice));
  for (int i = 0; i < 2; i++) {
    const StepCall call = f.call(pos + i, 1, f.ids, 0, f.logits);
    MUST(step_run(step, &call, NULL, 0, &error));
  }
  std::vector<float> got = to_host<float>(f.logits, f.c.vocab);
  return Row(got.begin(), got.end());
}

/* A step that takes its token from the logits of the step before (StepPick) is the step of that token,
 * want.id, and gives it to the host. After logits of NaN the token is 0. */
static void expect_pick(Fixture &f, Step *step, int pos, int id, Sampled want) {
  Sampled *slot;
  CHECK(cudaHostAlloc(&slot, sizeof *slot, cudaHostAllocMapped));
  *slot = {};
  device_step(f, step, pos, id, false, f.c.vocab % 2);
  StepCall call = f.call(pos + 1, 1, f.ids, 0, f.logits);
  call.pick = {f.ids, slot};
  run_step(f, step, call, false);
  const std::vector<float> got = to_host<float>(f.logits, f.c.vocab);
  const char *name = f.c.name;
  expect(to_host<int>(f.ids, 1)[0] == want.id, name, "the step before was not picked from:", want.id);
  expect(slot->id == want.id && slot->kind == want.kind, name, "the host gets another pick than", want.id);
  if (want.kind == SAMPLED_TOKEN)
    expect(device_step(f, step, pos + 1, want.id, false) == Row(got.begin(), got.end()), name,
           "after its own pick it differs at", pos + 1);
  CHECK(cudaFreeHost(slot));
}

/* The pick of the last step by a kernel of its own. */
static void expect_best(Fixture &f, Step *step, Sampled want) {
  Sampled *slot;
  CHECK(cudaHostAlloc(&slot, sizeof *slot, cudaHostAllocMapped));
  *slot = {};
  MUST(step_pick(step, {f.ids, slot}, 0, &error));
  CHECK(cudaDeviceSynchronize());
  expect(to_host<int>(f.ids, 1)[0] == want.id && slot->id == want.id && slot->kind == want.kind, f.c.name,
         "the step's best token is not", want.id);
  CHECK(cudaFreeHost(slot));
}

/* A step that wants n of the best logits: these are the same, the others are too or -infinity, and most are
 * -infinity; the best token is the same. It leaves the input of lm_head, from which the host makes the
 * logits. */
static void expect_screened(Fixture &f, Step *step, int pos, int id, int n) {
  const Case &c = f.c;
  const Row logits = device_step(f, step, pos, id, false);
  const Sampled best = {(int)(std::max_element(logits.begin(), logits.end()) - logits.begin()),
                        SAMPLED_TOKEN};
  expect_best(f, step, best);
  Row ranking = logits;
  std::sort(ranking.rbegin(), ranking.rend());
  const double least = ranking[std::min(n, c.vocab) - 1];
  CHECK(cudaMemset(f.head_x, 0xff, (size_t)c.hidden * 2));
  const Row got = device_step(f, step, pos, id, false, n);
  expect_best(f, step, best);
  const std::vector<__half> halves = to_host<__half>(f.head_x, c.hidden);
  const auto w = to_host<__half>(f.head.dense, (size_t)c.vocab * c.hidden);
  double error_ = 0, all = 0;
  int wrong = 0, left = 0;
  for (int row = 0; row < c.vocab; row++) {
    double dot = 0;
    for (int i = 0; i < c.hidden; i++)
      dot += (double)__half2float(w[(size_t)row * c.hidden + i]) * __half2float(halves[i]);
    error_ += (dot - logits[row]) * (dot - logits[row]), all += dot * dot;
    wrong += got[row] != logits[row] && (got[row] != -INFINITY || logits[row] >= least);
    left += got[row] != -INFINITY;
  }
  expect(wrong == 0, c.name, "of the best logits not the same", wrong);
  if (c.vocab > 1000) expect(left < n + c.vocab / 8, c.name, "rows left by lm_head in 8 bits", left);
  expect(error_ < 1e-10 * all, c.name, "NMSE of logits from the input that was left", error_ / all);
  MUST(screen_all_logits(&f.head, f.head_x, f.logits, 0, &error));
  const std::vector<float> again = to_host<float>(f.logits, c.vocab);
  expect(Row(again.begin(), again.end()) == logits, c.name, "logits made afterwards differ at", pos);
}

/* The same with the best row three times more, and with one that is better by the least that fp16 can be. */
static void expect_screened_ties(Fixture &f, Step *step, int pos, int id) {
  const Case &c = f.c;
  const size_t bytes = (size_t)c.vocab * c.hidden * 2;
  const auto kept = to_host<__half>(f.head.dense, (size_t)c.vocab * c.hidden);
  auto w = kept;
  auto put = [&](const std::vector<__half> &from) {
    CHECK(cudaMemcpy((void *)f.head.dense, from.data(), bytes, cudaMemcpyHostToDevice));
    MUST(screen_make(&f.head, f.screen, 0, &error));
  };
  const Row logits = device_step(f, step, pos, id, false);
  const int best = (int)(std::max_element(logits.begin(), logits.end()) - logits.begin());
  for (int to : {(best + 1) % c.vocab, (best + c.vocab / 2) % c.vocab, (best + c.vocab - 1) % c.vocab})
    std::copy(&kept[(size_t)best * c.hidden], &kept[(size_t)best * c.hidden] + c.hidden,
              &w[(size_t)to * c.hidden]);
  put(w);
  for (int n : {1, 3}) expect_screened(f, step, pos, id, n);
  __half &one = w[(size_t)((best + 1) % c.vocab) * c.hidden + c.hidden / 2];
  uint16_t bits;
  memcpy(&bits, &one, 2), bits++, memcpy(&one, &bits, 2);
  put(w);
  for (int n : {1, 20, (int)STEP_MOST_BEST}) expect_screened(f, step, pos, id, n);
  put(kept);
}

/* Steps right after each other, each with its own n, end as the last one alone does. */
static void expect_screened_in_turn(Fixture &f, Step *step, int pos, int id) {
  const Row want = device_step(f, step, pos, id, false, 20);
  for (int n : few ? std::vector<int>{1, 0, 20} : std::vector<int>{1, 20, 0, 20}) {
    StepCall call = f.call(pos, 1, f.ids, 0, f.logits);
    call.n_best = n, call.head_x = f.head_x;
    MUST(step_run(step, &call, NULL, 0, &error));
  }
  const std::vector<float> got = to_host<float>(f.logits, f.c.vocab);
  expect(Row(got.begin(), got.end()) == want, f.c.name, "after other steps the best logits differ at", pos);
}

/* True for the first case of its kind, and without `few` for all. */
static bool is_first(std::set<std::vector<int>> &seen, const std::vector<int> &kind) {
  return seen.insert(kind).second || !few;
}

/* Steps right after each other; a NaN, and the step after it. With `ends` also several steps that want some
 * of the best logits, and steps that pick: after the last layer kernels of the same weights have the same
 * code. */
static void expect_in_turn(Fixture &f, Step *step, int pos, int id, bool ends) {
  const Case &c = f.c;
  Row of_two;
  if (pos > 0) of_two = second_of_two(f, step, pos - 1, id);
  const Row before = device_step(f, step, pos, id, false);
  const int best = (int)(std::max_element(before.begin(), before.end()) - before.begin());
  if (pos > 0) expect(of_two == before, c.name, "right after another step it differs at", pos);
  if (ends) expect_screened_in_turn(f, step, pos, id), expect_pick(f, step, pos, id, {best, SAMPLED_TOKEN});
  CHECK(cudaMemset(f.embedding_device + f.embedding_at(c.vocab - 1, 7), 0xff, 4)); /* NaN in all types */
  if (id == c.vocab - 1) return;
  for (int n : {0, 1, 20}) {
    if (n > 0 && (!ends || (few && n == 1 + c.vocab % 2 * 19))) continue;
    int numbers = 0;
    for (double v : device_step(f, step, pos, c.vocab - 1, n == 0 && !few, n)) numbers += v == v;
    expect(numbers == 0, c.name, "numbers that a NaN left, if so many are wanted (0: all)", n);
    expect_best(f, step, {0, SAMPLED_NAN});
  }
  if (ends) expect_pick(f, step, pos, c.vocab - 1, {0, SAMPLED_NAN});
  expect(device_step(f, step, pos, id, false) == before, c.name,
         "after a step whose input was NaN it differs at", pos);
}

static void run_case(const Case &c, const std::vector<int> &positions, int n_ctx, int shared) {
  Fixture f(c, n_ctx);
  void *memory[2];
  Step *usual = open_step(f, 1, shared, 0, &memory[0]), *narrow = open_step(f, 1, shared, 1, &memory[1]);
  static std::set<std::vector<int>> kernels, weights;
  const bool is_new = is_first(kernels, {c.group, c.head_dim, c.q8, c.n_experts > 0}),
             ends = is_first(weights, {f.weights(), c.n_experts > 0});
  int id = 3;
  for (int pos : positions) {
    const Row got = device_step(f, usual, pos, id, !few);
    const auto keys = f.numbers_of(f.k, f.k_scales), values = f.numbers_of(f.v, f.v_scales);
    const int changed =
        changed_elsewhere(f, keys, f.keys, pos, 1) + changed_elsewhere(f, values, f.values, pos, 1);
    expect(changed == 0, c.name, "keys and values of other positions that changed", changed);
    const Row want = host_step(f, pos, id);
    expect_row(f, c.name, f.tolerance(), got, want, keys, values, pos);
    if (!few || (is_new && pos == positions[0]))
      expect(device_step(f, usual, pos, id, few) == got, c.name, "two runs differ at", pos);
    expect(device_step(f, narrow, pos, id, false) == got, c.name, "with one load at a time it differs at",
           pos);
    expect_taps(f, c.name, f.tolerance(), shared, 1);
    f.keys = f.numbers_of(f.k, f.k_scales), f.values = f.numbers_of(f.v, f.v_scales);
    id = (id * 7 + 1) % c.vocab;
  }
  const int pos = positions.back();
  few ? expect_screened(f, usual, pos, id, c.vocab % 4 * 5 + 1) : expect_screened_ties(f, usual, pos, id);
  if (is_new) expect_in_turn(f, usual, pos, id, ends);
  step_close(usual), step_close(narrow);
  for (void *m : memory) cudaFree(m);
}

/* --- lm_head in 8 bits */

/* Rows that are special or random lose not more in 8 bits than their tails say, and hardly less. */
static void run_screen_rows() {
  const int n_in = 1024;
  const std::vector<float> first = {0, 6e-8f, 65504, -65504, 1000, 1, NAN, INFINITY, -INFINITY},
                           rest = {0, 1.2e-7f, 65504, 3, 1, 0.01f, 1, 1, 1};
  const int n_special = (int)first.size(), n_out = n_special + 20;
  std::vector<__half> w;
  for (int row = 0; row < n_out; row++)
    for (int i = 0; i < n_in; i++)
      w.push_back(__float2half_rn(row >= n_special ? activation(9, row, i)
                                  : i == 77        ? first[row]
                                                   : rest[row] * (i % 3 - 1)));
  DeviceLinear head = {};
  head.n_in = n_in, head.n_out = n_out, head.dense = to_device(w);
  const size_t bytes = (size_t)n_out * (n_in + STEP_SCREEN_TAIL);
  void *rows = to_device(std::vector<char>(bytes));
  MUST(screen_make(&head, rows, 0, &error));
  const std::vector<int8_t> q = to_host<int8_t>(rows, bytes);
  for (int row = 0; row < n_out; row++) {
    float tail[4];
    memcpy(tail, &q[(size_t)n_out * n_in + (size_t)row * STEP_SCREEN_TAIL], sizeof tail);
    double lost = 0, all = 0;
    int most = 0;
    for (int i = 0; i < n_in; i++) {
      const double v = __half2float(w[(size_t)row * n_in + i]),
                   kept = (double)tail[0] * q[(size_t)row * n_in + i];
      lost += (v - kept) * (v - kept), all += v * v;
      most = std::max(most, abs(q[(size_t)row * n_in + i]));
    }
    lost = sqrt(lost), all = sqrt(all);
    if (!(all < INFINITY)) {
      expect(tail[1] != tail[1], "lm_head in 8 bits", "no number is lost of row", row);
      continue;
    }
    /* The kernel's own rounding is 2^-23 of a number, for which a step allows 2^-16 of the norm. */
    expect(tail[1] + all * 1e-6 >= lost && tail[1] <= lost * 1.002 + all * 1e-6, "lm_head in 8 bits",
           "lost of row", row);
    expect(tail[2] >= all && tail[2] <= (all + 2 * lost) * 1.002, "lm_head in 8 bits", "norm of row", row);
    expect(most == (all > 0 ? 127 : 0), "lm_head in 8 bits", "greatest number", most);
    expect(lost <= 0.501 * tail[0] * sqrt(n_in), "lm_head in 8 bits", "more than half a unit is lost of row",
           row);
  }
  for (void *p : {(void *)head.dense, rows}) CHECK(cudaFree(p));
}

/* --- all-reduce across clusters: a block is a contributor, a thread has a word */

__global__ void contribute_all(const float *parts, uint64_t *totals) {
#if __CUDA_ARCH__ >= 900
  step::contribute(totals + threadIdx.x, parts[blockIdx.x * blockDim.x + threadIdx.x]);
#endif
}

__global__ void poll_all(const uint64_t *totals, uint64_t *last, int contributors, float *sums) {
#if __CUDA_ARCH__ >= 900
  const int i = threadIdx.x;
  sums[i] = step::is_complete(totals[i], last[i], contributors)
                ? step::sum_since(totals[i], last[i], contributors)
                : 1e30f;
  last[i] = totals[i];
#endif
}

/* Words begin where they overflow now, or soon. */
static void run_totals(int contributors) {
  const std::vector<float> firsts = {0,    0.3f,  -0.3f,  1e-9f, 4194303,  -4194303,  4194304,
                                     1e9f, 3e38f, -3e38f, NAN,   INFINITY, -INFINITY, 1e6f};
  const int n_firsts = (int)firsts.size(), n = 2 * n_firsts;
  std::vector<float> parts;
  for (int g = 0; g < contributors; g++)
    for (int i = 0; i < n; i++) /* special for the first contributor, then for all */
      parts.push_back(g == 0 || i >= n_firsts ? firsts[i % n_firsts] : activation(5, g, i) * 10);
  std::vector<uint64_t> words;
  for (int i = 0; i < n; i++) words.push_back(i % 3 == 0 ? ~0ull - i : i % 3 == 1 ? ~0ull >> 1 : 0);
  float *parts_device = to_device(parts), *sums = to_device(std::vector<float>(n));
  uint64_t *totals = to_device(words), *last = to_device(words);
  for (int round = 0; round < 5; round++) { /* more contributions than the count holds */
    contribute_all<<<contributors, n>>>(parts_device, totals);
    poll_all<<<1, n>>>(totals, last, contributors, sums);
    CHECK(cudaDeviceSynchronize());
    const std::vector<float> got = to_host<float>(sums, n);
    for (int i = 0; i < n; i++) {
      double want = 0;
      bool proper = true;
      for (int g = 0; g < contributors; g++) {
        const float part = parts[g * n + i];
        proper &= fabsf(part) < 4194304, want += part;
      }
      /* each part is rounded to half a unit, the sum to a float */
      const double most = contributors * 0x1p-27 + fabs(want) * 0x1p-24;
      expect(proper ? fabs(got[i] - want) <= most : got[i] != got[i], "sums over clusters", "number", i);
    }
  }
  for (void *p : {(void *)parts_device, (void *)sums, (void *)totals, (void *)last}) CHECK(cudaFree(p));
}

int main(int argc, char **argv) {
  few = argc > 1 && strcmp(argv[1], "few") == 0;
  int shared = 0;
  CHECK(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  const int clusters = step_clusters(0, (size_t)shared);
  if (!clusters) return without_clusters();
  /* hidden, intermediate, layers, heads, KV heads, vocabulary, clusters, bias, q/k norm, slots, group,
   * head_dim */
  const Case small[] = {
      {"two clusters", 512, 512, 2, 4, 2, 101, 2, false, true, 0},
      {"a cluster without KV head, bias, odd layers", 1024, 1024, 3, 14, 2, 67, 3, true, false, 5},
      {"one KV head of eight, uneven units", 512, 1280, 1, 8, 1, 40, 4, false, true, 5},
      {"fifteen clusters, eight with KV heads", 1024, 3072, 1, 16, 8, 301, 15, false, true, 0},
      {"inputs in two parts, three pieces of the head a team", 2560, 256, 1, 2, 1, 216, 1, true, true, 0},
      {"columns of two rounds", 5120, 512, 1, 2, 1, 30, 2, false, true, 0},
      {"inputs in four parts", 3584, 512, 1, 6, 1, 19, 2, false, false, 6},
      {"inputs from an odd group on, fewer rows of the head than blocks", 512, 4352, 1, 6, 2, 9, 2, false,
       true, 0},
      {"three parts, which share no team", 1536, 1280, 1, 2, 1, 30, 1, false, true, 0},
      {"groups of 32", 1536, 1280, 2, 6, 1, 30, 2, false, true, 0, 32},
      {"groups of 64, inputs from an odd group on", 512, 2816, 1, 6, 2, 9, 2, true, false, 5, 64},
      {"heads of 64, norms and bias", 1024, 1280, 2, 8, 2, 30, 3, true, true, 0, 128, 64},
      {"FP4, heads of 64", 512, 1280, 1, 8, 2, 30, 2, true, true, 0, STEP_FP4_GROUP, 64},
      {"FP4, inputs in two parts, bias", 2560, 1280, 1, 6, 2, 30, 2, true, true, 5, STEP_FP4_GROUP},
      {"groups of 32, heads of 64", 512, 1280, 1, 8, 2, 30, 2, true, true, 0, 32, 64},
      {"groups of 64, heads of 64", 512, 1280, 1, 8, 2, 30, 2, false, true, 0, 64, 64},
      {"8 bits", 512, 512, 2, 4, 2, 101, 2, false, true, 0, 128, 128, true},
      {"8 bits, heads of 64", 1024, 1280, 2, 8, 2, 30, 3, true, true, 0, 128, 64, true},
      {"pages", 512, 512, 2, 4, 2, 101, 2, false, true, 0, 128, 128, false, true},
      {"pages, heads of 64", 1024, 1280, 2, 8, 2, 30, 3, true, true, 0, 128, 64, false, true},
      {"pages, 8 bits", 512, 512, 2, 4, 2, 101, 2, false, true, 0, 128, 128, true, true},
      {"the largest hidden size", STEP_MAX_HIDDEN, 512, 1, 4, 1, 19, 2, false, false, 0},
      {"FP8", 512, 512, 2, 4, 2, 41, 2, true, true, 0, STEP_FP8_GROUP},
      {"FP8, fewer inputs than a stage's, heads of 64", 512, 1280, 1, 8, 2, 30, 2, false, true, 5,
       STEP_FP8_GROUP, 64},
      {"int8", 512, 512, 2, 4, 2, 41, 2, true, true, 0, STEP_INT8_GROUP},
      {"int8, heads of 64, 8 bits", 512, 4352, 1, 8, 2, 30, 2, false, true, 5, STEP_INT8_GROUP, 64, true},
      {"fp16", 512, 512, 2, 4, 2, 41, 2, true, true, 0, STEP_HALF_GROUP},
      {"fp16, nine groups, heads of 64, 8 bits", 1536, 2304, 1, 8, 2, 30, 2, false, true, 5, STEP_HALF_GROUP,
       64, true},
      {"varied experts, pages", 1088, 192, 3, 8, 1, 31, 2, true, false, 5, STEP_FP4_GROUP, 64, false, true,
       16, 2, 40},
      /* 28 FFN blocks in five clusters: a last group may have half the inputs, and a group two experts. Four
       * clusters attend, two and a half blocks of each have columns, and lm_head's last span is short. */
      {"varied experts", 320, 448, 2, 16, 2, 41, 5, true, false, 0, STEP_FP4_GROUP, 64, false, false, 8, 4,
       33},
  };
  const Case large[] = {
      {"Qwen3-8B, two layers", 4096, 12288, 2, 32, 8, 2048, 15, false, true, 0},
      {"Qwen3-8B, two layers, 8 bits", 4096, 12288, 2, 32, 8, 2048, 15, false, true, 0, 128, 128, true},
      {"Qwen3-8B in groups of 32, one layer, 8 bits", 4096, 12288, 1, 32, 8, 2048, 15, false, true, 0, 32,
       128, true},
      {"Qwen2.5-7B, two layers", 3584, 18944, 2, 28, 4, 2048, 15, true, false, 0},
      {"Qwen3-14B, one layer", 5120, 17408, 1, 40, 8, 999, 13, false, true, 0},
      {"Qwen3-32B, one layer, eight clusters", 5120, 25600, 1, 64, 8, 999, 8, false, true, 0},
      {"Qwen3-0.6B, three layers", 1024, 3072, 3, 16, 8, 5001, 15, false, true, 0},
      {"Qwen3-4B, one layer", 2560, 9728, 1, 32, 8, 1003, 15, false, true, 0},
      {"Qwen3-8B in groups of 32, two layers", 4096, 12288, 2, 32, 8, 2048, 15, false, true, 0, 32},
      {"Qwen3-4B in groups of 64, one layer", 2560, 9728, 1, 32, 8, 1003, 15, false, true, 0, 64},
      {"Qwen3-8B in FP4, two layers", 4096, 12288, 2, 32, 8, 2048, 15, false, true, 0, STEP_FP4_GROUP},
      {"Llama-3.2-1B, two layers", 2048, 8192, 2, 32, 8, 1003, 15, false, false, 0, 128, 64},
      {"Llama-3.2-1B in groups of 32, two layers", 2048, 8192, 2, 32, 8, 1003, 15, false, false, 0, 32, 64},
      {"Llama-3.2-1B in groups of 64, two layers", 2048, 8192, 2, 32, 8, 1003, 15, false, false, 0, 64, 64},
      {"Llama-3.2-1B in FP4, two layers", 2048, 8192, 2, 32, 8, 1003, 15, false, false, 0, STEP_FP4_GROUP,
       64},
      {"Qwen3-8B in FP8, two layers", 4096, 12288, 2, 32, 8, 2048, 15, false, true, 0, STEP_FP8_GROUP},
      {"Qwen3-8B in int8, two layers", 4096, 12288, 2, 32, 8, 2048, 15, false, true, 0, STEP_INT8_GROUP},
      {"Qwen2.5-7B in FP8, one layer, 8 bits", 3584, 18944, 1, 28, 4, 2048, 15, true, false, 0,
       STEP_FP8_GROUP, 128, true},
      {"Qwen3-8B in fp16, one layer", 4096, 12288, 1, 32, 8, 2048, 15, false, true, 0, STEP_HALF_GROUP},
      {"Llama-3.2-1B in fp16, two layers", 2048, 8192, 2, 32, 8, 1003, 15, false, false, 0, STEP_HALF_GROUP,
       64},
      {"Qwen3-14B in fp16, one layer", 5120, 17408, 1, 40, 8, 999, 15, false, true, 0, STEP_HALF_GROUP},
      {"gpt-oss-20b, two layers", 2880, 2880, 2, 64, 8, 2048, 15, true, false, 0, STEP_FP4_GROUP, 64, false,
       false, 32, 4, 128},
  };
  /* Positions, two for each case: a stage of keys less one, a whole one, and one more; half a stage; as
   * many stages as blocks. 4,100 gives every warp several stages, a last stage of 4 keys, and one more
   * load in flight. */
  const std::vector<int> of_few[] = {
      {0, 70},  {1, 256}, {0, 4100}, {33, 257}, {0, 32}, {63, 64}, {0, 31}, {15, 255}, {0},       {40},
      {70},     {300},    {40},      {33},      {0},     {31},     {0, 70}, {63, 530}, {63, 320}, {64, 130},
      {0, 127}, {257},    {0, 70},   {33},      {0, 70}, {0, 127}, {0, 70}, {127},     {40, 300}, {0, 70}};
  for (const Case &c : small) {
    if (c.clusters > clusters) continue;
    const std::vector<int> positions =
        few ? of_few[&c - small] : std::vector<int>{0, 1, 31, 32, 255, 256, 700, 2100, 4100};
    run_case(c, positions, c.q8 ? (positions.back() + 75) / 64 * 64 : positions.back() + 12, shared);
  }
  if (!few)
    for (const Case &c : large)
      if (c.clusters <= clusters) run_case(c, {0, 300, 1500}, 2048, shared);
  run_screen_rows();
  for (int contributors : {1, 8, 15, 16, 24}) run_totals(contributors);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
