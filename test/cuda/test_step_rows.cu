/* test_step_rows.cu - fused decode steps of several tokens, of one sequence and of several, against the same
 * layers in double on the host, token after token.
 *
 * The kernel rounds what a step of one token rounds (test_step.cu), so the tolerance is the same. Also
 * tested: two runs, a run with fewer loads in flight, and one for the last token's logits only, give the
 * same bits. Needs a GPU with clusters; prints `N passed, N failed`. */
#include "test/cuda/step_fixture.cuh"

/* The logits of tokens first .. n - 1, one after another. */
static Row device_step(Fixture &f, Step *step, int pos, const std::vector<int> &ids, int first,
                       bool watched) {
  const int n = (int)ids.size(), n_logits = (n - first) * f.c.vocab;
  int *ids_device = to_device(ids);
  float *logits = to_device(std::vector<float>(n_logits, NAN));
  run_step(f, step, f.call(pos, n, ids_device, first, logits), watched);
  std::vector<float> got = to_host<float>(logits, n_logits);
  cudaFree(ids_device), cudaFree(logits);
  return Row(got.begin(), got.end());
}

/* A step of n tokens by the kernel for up to `rows` tokens. */
static void run_case(const Case &c, int rows, int n, const std::vector<int> &positions, int n_ctx,
                     int shared) {
  Fixture f(c, n_ctx);
  void *memory[2];
  Step *usual = open_step(f, rows, shared, 0, &memory[0]),
       *narrow = open_step(f, rows, shared, 1, &memory[1]);
  char name[200];
  snprintf(name, sizeof name, "%s, %d of %d rows", c.name, n, rows);
  int id = 3;
  for (int pos : positions) {
    std::vector<int> ids;
    for (int row = 0; row < n; row++) ids.push_back(id = (id * 7 + 1) % c.vocab);
    const Row got = device_step(f, usual, pos, ids, 0, !few);
    const auto keys = f.numbers_of(f.k, f.k_scales), values = f.numbers_of(f.v, f.v_scales);
    for (int row = 0; row < n; row++) {
      const Row want = host_step(f, pos + row, ids[row]),
                mine(&got[row * c.vocab], &got[row * c.vocab] + c.vocab);
      expect_row(f, name, f.tolerance(), mine, want, keys, values, pos + row);
    }
    if (!few || pos == 0)
      expect(device_step(f, usual, pos, ids, 0, few) == got, name, "two runs differ at", pos);
    const Row last(&got[(n - 1) * c.vocab], &got[(n - 1) * c.vocab] + c.vocab);
    expect(device_step(f, narrow, pos, ids, n - 1, false) == last, name,
           "with one load at a time it differs at", pos);
    expect_taps(f, name, f.tolerance(), shared, n);
    f.keys = f.numbers_of(f.k, f.k_scales), f.values = f.numbers_of(f.v, f.v_scales);
  }
  step_close(usual), step_close(narrow);
  for (void *m : memory) cudaFree(m);
}

/* The rows of a sequence, the first one at pos. */
struct Rows {
  int pos, n;
};

/* The logits of so many rows of a step. */
static std::vector<float> logits_of(const Fixture &f, const Step *step, const StepCall &call, bool watched) {
  const size_t n = (size_t)(call.n_tokens - call.first_logit) * f.c.vocab;
  CHECK(cudaMemset(call.logits, 0xff, n * sizeof(float)));
  run_step(f, step, call, watched);
  return to_host<float>(call.logits, n);
}

/* Steps of the first sequence alone and of all of them share counts of launches and sums. */
static void expect_same_after_one(const Fixture &f, const char *name, const Step *step, const StepCall &call,
                                  const std::vector<float> &got) {
  StepCall one = call;
  one.n_parts = 1, one.n_tokens = 1;
  logits_of(f, step, one, false);
  expect(logits_of(f, step, call, false) == got, name, "after a step of one sequence it differs", 0);
}

/* A first token of NaN leaves no number in its logits and none of it in the others', nor in the next step,
 * which reads its key and value. */
static void expect_nan_alone(Fixture &f, const char *name, const Step *step, StepCall call,
                             std::vector<int> ids, const std::vector<float> &got) {
  const int vocab = f.c.vocab;
  CHECK(cudaMemset(f.embedding_device + f.embedding_at(vocab - 1, 7), 0xff, 4)); /* NaN in all types */
  ids[0] = vocab - 1;
  int *ids_device = to_device(ids);
  call.ids = ids_device;
  for (int i = 0; i < 2; i++) {
    const std::vector<float> now = logits_of(f, step, call, false);
    int numbers = 0, changed = 0;
    for (int k = 0; k < vocab; k++) numbers += now[k] == now[k];
    for (size_t k = vocab; k < got.size(); k++) changed += now[k] != got[k];
    expect(i == 1 || numbers == 0, name, "numbers that a NaN left", numbers);
    expect(changed == 0, name, "numbers of other sequences that a NaN changed", changed);
    const int next = 1;
    CHECK(cudaMemcpy(ids_device, &next, sizeof next, cudaMemcpyHostToDevice));
    call.parts[0].pos++;
  }
  cudaFree(ids_device);
}

/* A step of several sequences by the kernel for up to `rows` tokens. Each has its part of the cache's
 * positions, which are in pages. */
static void run_sequences(const Case &c, int rows, const std::vector<Rows> &sequences, int shared) {
  int longest = 0, n = 0;
  for (const Rows &s : sequences) longest = std::max(longest, s.pos + s.n), n += s.n;
  const int pages = longest / KV_PAGE_TOKENS + 1, positions = pages * KV_PAGE_TOKENS;
  Fixture f(c, positions * (int)sequences.size());
  void *memory[2];
  Step *usual = open_step(f, rows, shared, 0, &memory[0], true),
       *narrow = open_step(f, rows, shared, 1, &memory[1], true);
  std::vector<int> ids;
  for (int row = 0; row < n; row++) ids.push_back((11 + row * 7) % (c.vocab - 1));
  int *ids_device = to_device(ids);
  float *logits = to_device(std::vector<float>(n * c.vocab, NAN));
  StepCall call = f.call(0, n, ids_device, 0, logits);
  call.n_parts = 0;
  for (int first = 0; call.n_parts < (int)sequences.size(); first += sequences[call.n_parts++].n)
    call.parts[call.n_parts] = {sequences[call.n_parts].pos, first, call.n_parts * pages};
  char name[200];
  snprintf(name, sizeof name, "%s, %d sequences, %d of %d rows", c.name, call.n_parts, n, rows);
  const std::vector<float> got = logits_of(f, usual, call, !few);
  const auto keys = f.numbers_of(f.k, f.k_scales), values = f.numbers_of(f.v, f.v_scales);
  int changed = 0;
  for (size_t i = 0; i < keys.size(); i++)
    changed += memcmp(&keys[i], &f.keys[i], sizeof keys[i]) != 0 ||
               memcmp(&values[i], &f.values[i], sizeof values[i]) != 0;
  expect(changed <= n * c.n_layers * c.n_kv_heads * c.head_dim, name, "more keys and values changed",
         changed);
  for (int i = 0, row = 0; i < call.n_parts; i++) {
    f.base = i * positions;
    for (int j = 0; j < sequences[i].n; j++, row++) {
      const Row want = host_step(f, sequences[i].pos + j, ids[row]),
                mine(&got[row * c.vocab], &got[row * c.vocab] + c.vocab);
      expect_row(f, name, f.tolerance(), mine, want, keys, values, sequences[i].pos + j);
    }
  }
  StepCall last = call;
  last.first_logit = n - 1;
  expect(logits_of(f, narrow, last, false) == std::vector<float>(got.end() - c.vocab, got.end()), name,
         "with one load at a time it differs from", n);
  expect_same_after_one(f, name, usual, call, got);
  if (sequences[0].n == 1) expect_nan_alone(f, name, usual, call, ids, got);
  step_close(usual), step_close(narrow);
  for (void *m : memory) cudaFree(m);
  cudaFree(ids_device), cudaFree(logits);
}

/* Steps of several sequences, of one row each and of more. Some sequences are new, others long; the keys of
 * some end with a stage or a page, and the queries of some lie in two sets of eight. */
static void run_all_sequences(int clusters, int shared) {
  const std::vector<Rows> two = {{70, 1}, {0, 1}}, four = {{31, 1}, {300, 1}, {64, 1}},
                          mixed = {{0, 3}, {129, 1}, {63, 2}, {1, 1}},
                          eight = {{5, 1}, {32, 1}, {0, 1}, {257, 1}, {96, 1}, {1, 1}, {190, 1}, {33, 1}};
  const struct {
    Case c;
    int rows;
    std::vector<Rows> sequences;
    bool in_few;
  } cases[] = {
      {{"four heads", 1024, 512, 2, 4, 1, 19, 2, false, true, 0, 128, 128, false, true}, 8, eight, false},
      {{"four heads", 1024, 512, 2, 4, 1, 19, 2, false, true, 0, 128, 128, false, true}, 8, mixed, false},
      {{"four heads", 1024, 512, 1, 4, 1, 19, 2, false, true, 0, 128, 128, false, true}, 4, four, false},
      {{"four heads", 1024, 512, 1, 4, 1, 19, 2, false, true, 0, 128, 128, false, true}, 2, two, false},
      {{"three heads", 1024, 512, 1, 6, 2, 19, 2, true, true, 5, 128, 128, false, true}, 8, eight, false},
      {{"three heads", 1024, 512, 1, 6, 2, 19, 2, true, true, 5, 128, 128, false, true}, 8, mixed, true},
      {{"three heads", 1024, 512, 1, 6, 2, 19, 2, true, true, 5, 128, 128, false, true}, 4, four, false},
      {{"two heads", 1024, 512, 1, 2, 1, 19, 2, true, true, 0, 128, 128, false, true}, 8, eight, false},
      {{"two heads", 1024, 512, 1, 2, 1, 19, 2, true, true, 0, 128, 128, false, true}, 2, two, true},
      {{"eight heads", 2048, 768, 1, 8, 1, 30, 1, false, true, 0, 128, 128, false, true}, 4, four, false},
      {{"seven heads", 1024, 512, 1, 14, 2, 67, 3, true, false, 5, 128, 128, false, true}, 4, four, true},
      {{"seven heads", 1024, 512, 1, 14, 2, 67, 3, true, false, 5, 128, 128, false, true}, 2, two, false},
      {{"heads of 64", 1024, 512, 2, 4, 1, 19, 2, true, true, 0, 128, 64, false, true}, 8, eight, false},
      {{"heads of 64", 1024, 512, 1, 8, 2, 19, 2, true, true, 0, 32, 64, false, true}, 4, four, false},
      {{"8 bits", 1024, 512, 2, 4, 1, 19, 2, true, true, 0, 128, 128, true, true}, 8, eight, true},
      {{"8 bits", 1024, 512, 1, 2, 1, 19, 2, true, true, 0, 128, 128, true, true}, 8, mixed, false},
      {{"8 bits, heads of 64", 1024, 512, 1, 4, 1, 19, 2, true, true, 0, 128, 64, true, true},
       4,
       four,
       false},
      {{"FP4", 1024, 512, 1, 4, 1, 19, 2, true, true, 0, STEP_FP4_GROUP, 128, false, true}, 8, eight, false},
      {{"long ones", 1024, 512, 1, 4, 1, 9, 1, true, true, 5, 128, 128, false, true},
       8,
       {{3000, 1}, {40, 1}, {2111, 1}, {1023, 1}, {0, 1}, {1024, 1}},
       false},
      /* A warp passes over more stages than there are slots. */
      {{"long ones, few slots", 1024, 512, 1, 4, 1, 9, 1, true, true, 5, 128, 128, false, true},
       8,
       {{700, 1}, {710, 1}, {720, 1}, {730, 1}, {740, 1}, {750, 1}, {760, 1}, {600, 1}},
       true},
      {{"Qwen3-8B, two layers", 4096, 12288, 2, 32, 8, 2048, 15, false, true, 0, 128, 128, false, true},
       8,
       eight,
       false},
  };
  for (const auto &s : cases)
    if (s.c.clusters <= clusters && (s.in_few || !few)) run_sequences(s.c, s.rows, s.sequences, shared);
}

int main(int argc, char **argv) {
  few = argc > 1 && strcmp(argv[1], "few") == 0;
  int shared = 0;
  CHECK(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  const int clusters = step_clusters(0, (size_t)shared);
  if (!clusters) return without_clusters();
  const std::vector<int> positions = {0, 1, 31, 32, 255, 256, 700, 2100}, of_few[] = {{0, 70}, {70}};
  /* hidden, intermediate, layers, heads, KV heads, vocabulary, clusters, bias, q/k norm, slots, group,
   * head_dim */
  const struct {
    Case c;
    int rows, n;
  } small[] = {
      {{"two clusters", 1024, 512, 2, 4, 2, 101, 2, false, true, 0}, 4, 2},
      {{"two clusters", 1024, 512, 2, 4, 2, 101, 2, false, true, 0}, 2, 2},
      {{"a cluster without KV head, bias, odd layers", 1024, 1024, 3, 14, 2, 67, 3, true, false, 5}, 4, 4},
      {{"a cluster without KV head, bias, odd layers", 1024, 1024, 3, 14, 2, 67, 3, true, false, 5}, 2, 1},
      {{"one KV head, uneven units", 1024, 1280, 1, 4, 1, 40, 4, false, true, 5}, 4, 4},
      {{"one KV head, uneven units", 1024, 1280, 1, 4, 1, 40, 4, false, true, 5}, 4, 3},
      {{"one KV head of eight, two groups a block", 2048, 768, 1, 8, 1, 30, 1, false, true, 0}, 4, 3},
      {{"columns of two and three groups", 2560, 512, 1, 2, 1, 19, 2, true, false, 0}, 2, 2},
      {{"one KV head of two", 1024, 512, 1, 2, 1, 33, 2, false, true, 0}, 4, 3},
      {{"two clusters", 1024, 512, 2, 4, 2, 101, 2, false, true, 0}, 8, 8},
      {{"a cluster without KV head, bias, odd layers", 1024, 1024, 3, 6, 2, 67, 3, true, false, 5}, 8, 7},
      {{"one KV head, uneven units", 1024, 1280, 1, 4, 1, 40, 4, false, true, 5}, 8, 5},
      {{"columns of two and three groups", 2560, 512, 1, 2, 1, 19, 2, true, false, 0}, 8, 8},
      {{"columns of two and three groups", 2560, 512, 1, 2, 1, 19, 2, true, false, 0}, 4, 4},
      {{"as many units as chunks, and more", 1024, 2304, 2, 2, 1, 33, 1, false, true, 0}, 8, 6},
      {{"more heads than chunks of a turn, uneven units", 1024, 2816, 2, 8, 1, 33, 2, false, true, 0}, 4, 4},
  };
  /* On the emulator one position each, and some of them. */
  const struct {
    Case c;
    int rows, n;
    bool in_few;
  } forms[] = {
      {{"groups of 32", 1024, 512, 1, 2, 1, 19, 2, true, false, 0, 32}, 2, 2, true},
      {{"groups of 32", 1024, 512, 1, 4, 1, 19, 2, false, true, 0, 32}, 4, 3, true},
      {{"groups of 32", 1024, 512, 1, 2, 1, 19, 2, true, true, 0, 32}, 8, 7, true},
      {{"groups of 64", 1024, 512, 1, 2, 1, 19, 2, true, true, 0, 64}, 2, 2, false},
      {{"groups of 64", 1024, 512, 1, 2, 1, 19, 2, true, true, 0, 64}, 4, 4, true},
      {{"groups of 64", 1024, 512, 1, 2, 1, 19, 2, true, true, 0, 64}, 8, 6, false},
      {{"heads of 64", 1024, 512, 1, 8, 2, 19, 2, true, true, 0, 128, 64}, 2, 2, true},
      {{"heads of 64", 1024, 768, 1, 4, 1, 19, 2, true, true, 0, 128, 64}, 4, 3, false},
      {{"heads of 64", 1024, 512, 1, 4, 1, 19, 2, false, false, 0, 128, 64}, 8, 7, true},
      {{"groups of 32, heads of 64", 1024, 512, 1, 4, 1, 19, 2, true, true, 0, 32, 64}, 2, 2, true},
      {{"groups of 32, heads of 64", 1024, 512, 1, 4, 1, 19, 2, true, true, 0, 32, 64}, 4, 3, false},
      {{"groups of 32, heads of 64", 1024, 512, 1, 4, 1, 19, 2, true, true, 0, 32, 64}, 8, 7, false},
      {{"groups of 64, heads of 64", 1024, 512, 1, 4, 1, 19, 2, true, true, 0, 64, 64}, 2, 2, false},
      {{"groups of 64, heads of 64", 1024, 512, 1, 4, 1, 19, 2, true, true, 0, 64, 64}, 4, 3, true},
      {{"groups of 64, heads of 64", 1024, 512, 1, 4, 1, 19, 2, true, true, 0, 64, 64}, 8, 7, false},
      {{"FP4", 1024, 512, 1, 2, 1, 19, 2, true, false, 0, STEP_FP4_GROUP}, 2, 2, true},
      {{"FP4", 1024, 768, 1, 4, 1, 19, 2, false, true, 0, STEP_FP4_GROUP}, 4, 3, true},
      {{"FP4", 1024, 512, 1, 2, 1, 19, 2, true, true, 0, STEP_FP4_GROUP}, 8, 7, true},
      {{"FP4, heads of 64", 1024, 768, 1, 8, 2, 19, 2, true, true, 0, STEP_FP4_GROUP, 64}, 2, 1, false},
      {{"FP4, heads of 64", 1024, 512, 1, 4, 1, 19, 2, false, false, 0, STEP_FP4_GROUP, 64}, 4, 4, true},
      {{"FP4, heads of 64", 1024, 512, 1, 4, 1, 19, 2, true, true, 0, STEP_FP4_GROUP, 64}, 8, 8, false},
      {{"FP4, columns of two and three groups", 2560, 1280, 2, 2, 1, 19, 2, true, true, 5, STEP_FP4_GROUP},
       2,
       2,
       false},
      {{"FP4, columns of two and three groups", 2560, 1280, 2, 2, 1, 19, 2, true, true, 5, STEP_FP4_GROUP},
       4,
       4,
       false},
      {{"FP4, columns of two and three groups", 2560, 1280, 2, 2, 1, 19, 2, true, true, 5, STEP_FP4_GROUP},
       8,
       5,
       false},
      {{"8 bits", 1024, 512, 1, 2, 1, 19, 2, true, true, 0, 128, 128, true}, 2, 2, true},
      {{"8 bits", 1024, 512, 1, 4, 1, 19, 2, true, true, 0, 128, 128, true}, 8, 7, true},
      {{"8 bits, heads of 64", 1024, 512, 1, 4, 1, 19, 2, true, true, 0, 128, 64, true}, 4, 3, true},
      {{"pages", 1024, 512, 2, 2, 1, 19, 2, true, true, 0, 128, 128, false, true}, 8, 7, true},
      {{"pages, 8 bits", 1024, 512, 2, 4, 2, 19, 2, true, true, 0, 128, 128, true, true}, 4, 3, true},
  };
  const Case large[] = {
      {"Qwen3-8B, two layers", 4096, 12288, 2, 32, 8, 2048, 15, false, true, 0},
      {"Qwen3-8B, two layers, 8 bits", 4096, 12288, 2, 32, 8, 2048, 15, false, true, 0, 128, 128, true},
      {"Qwen3-14B, one layer", 5120, 17408, 1, 40, 8, 999, 13, false, true, 0},
      {"Qwen3-32B, one layer, ten clusters", 5120, 25600, 1, 64, 8, 999, 10, false, true, 0},
      {"Qwen3-0.6B, three layers", 1024, 3072, 3, 16, 8, 5001, 15, false, true, 0},
      {"Qwen3-4B, one layer", 2560, 9728, 1, 32, 8, 1003, 15, false, true, 0},
      {"Qwen2.5-7B, two layers", 3584, 18944, 2, 28, 4, 2048, 15, true, false, 0},
      {"Qwen3-1.7B, one layer, bias", 2048, 6144, 1, 16, 8, 1003, 15, true, true, 0},
      {"Qwen3-8B in groups of 32, two layers", 4096, 12288, 2, 32, 8, 2048, 15, false, true, 0, 32},
      {"Qwen3-4B in groups of 64, one layer", 2560, 9728, 1, 32, 8, 1003, 15, false, true, 0, 64},
      {"Llama-3.2-1B, two layers", 2048, 8192, 2, 32, 8, 1003, 15, false, false, 0, 128, 64},
      {"Llama-3.2-1B in groups of 32, two layers", 2048, 8192, 2, 32, 8, 1003, 15, false, false, 0, 32, 64},
      {"Qwen3-8B in FP4, two layers", 4096, 12288, 2, 32, 8, 2048, 15, false, true, 0, STEP_FP4_GROUP},
      {"Qwen3-32B in FP4, one layer", 5120, 25600, 1, 64, 8, 999, 15, false, true, 0, STEP_FP4_GROUP},
      {"Llama-3.2-1B in FP4, one layer", 2048, 8192, 1, 32, 8, 1003, 15, false, false, 0, STEP_FP4_GROUP, 64},
  };
  for (const auto &s : small)
    if (s.c.clusters <= clusters) {
      const std::vector<int> &some = few ? of_few[(&s - small) % 2] : positions;
      run_case(s.c, s.rows, s.n, some, some.back() + 12, shared);
    }
  for (const auto &s : forms)
    if (s.c.clusters <= clusters && (s.in_few || !few))
      run_case(s.c, s.rows, s.n, few ? std::vector<int>{70} : positions, few ? 128 : 2112, shared);
  /* More stages of keys than sets of warps and slots; tile rows of more than one wave, with few slots. */
  run_case({"keys of many pieces", 1024, 512, 1, 6, 1, 9, 1, true, true, 5}, 4, 4, {1100}, 1112, shared);
  run_case({"keys of many pieces", 1024, 512, 1, 4, 1, 9, 1, true, true, 5}, 8, 8, {1100}, 1112, shared);
  /* Chunks that are added up in several turns; inputs in an odd number of stages. */
  run_case({"sums at several times", 2560, 3072, 1, 2, 1, 11, 2, true, false, 0}, 2, 2, {40}, 64, shared);
  run_case({"five pieces of the inputs", 2560, 512, 1, 6, 1, 11, 2, true, true, 0}, 4, 4, {40}, 64, shared);
  run_case({"two waves", 1536, 2560, 2, 2, 1, 17, 2, false, false, 5}, 2, 2, {40}, 64, shared);
  if (!few)
    for (const Case &c : large)
      for (int rows : {2, 4, 8})
        if (c.clusters <= clusters && c.n_heads / c.n_kv_heads * rows <= STEP_MAX_QUERIES)
          run_case(c, rows, rows, {0, 300, 1500}, 2048, shared);
  run_all_sequences(clusters, shared);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
