/* test_sample.cu - the sampler on the GPU picks the token that engine/sampler.c picks, for many settings and
 * logits.
 *
 * Vocabulary sizes around the blocks' runs, logits of several shapes (flat, peaked, full of ties, with
 * -infinity), all filters alone and together, penalties with a text that grows, masks of many and of few
 * tokens, and many picks at once. Tokens must be equal. Needs a GPU; prints a line per failing case and `N
 * passed, N failed`. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "cuda/kernels/ops/sample.h"
#include "engine/sampler.h"
#include "test/cuda/check.cuh"

static int passed, failed;
static bool few; /* `test_sample few` has fewer cases, for emulated GPUs */
static unsigned long long state = 88172645463325252ull;

static double uniform(void) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (double)(state >> 11) / 9007199254740992.0;
}

static void make_logits(std::vector<float> &logits, int kind) {
  float falling = 0;
  for (float &value : logits) {
    double normal = uniform() + uniform() + uniform() + uniform() - 2;
    value = kind == 0   ? (float)(normal * 4)
            : kind == 1 ? (float)(normal * 30)
            : kind == 2 ? (float)floor(normal * 3) /* ties everywhere */
            : kind == 3 ? (uniform() < 0.9 ? -INFINITY : (float)normal)
            : kind == 4 ? 1.5f /* all the same */
                        : (falling -= 1e-5f);
  }
}

static SamplerSettings settings_of(double temperature, int top_k, double top_p, double min_p) {
  SamplerSettings settings = {};
  settings.temperature = temperature, settings.top_k = top_k, settings.top_p = top_p, settings.min_p = min_p;
  settings.repetition_penalty = 1, settings.seed = 42;
  return settings;
}

/* A third of the steps has a mask, of the few every second one: of half of the tokens, of few, of one. NULL:
 * the step has none. */
static const uint64_t *make_mask(int vocab, int step, uint64_t *mask) {
  const double densities[] = {0.5, 0.02, 0};
  const int period = few ? 2 : 3;
  if (step % period != period - 1) return NULL;
  memset(mask, 0, (vocab + 63) / 64 * sizeof *mask);
  for (int id = 0; id < vocab; id++)
    mask[id / 64] |= (uint64_t)(uniform() < densities[step / period % 3]) << (id % 64);
  const int one = (int)(uniform() * vocab);
  mask[one / 64] |= 1ull << (one % 64);
  return mask;
}

static std::vector<void *> on_device; /* the arrays of the open sampler */

static void *zeros(size_t bytes) {
  void *memory;
  CHECK(cudaMalloc(&memory, bytes));
  CHECK(cudaMemset(memory, 0, bytes));
  on_device.push_back(memory);
  return memory;
}

static DeviceSampler open_sampler(int vocab, int n) {
  const size_t n_words = (vocab + 63) / 64, sequences = n;
  DeviceSampler s = {};
  s.vocab_size = vocab;
  s.scores = (float *)zeros(sequences * vocab * sizeof *s.scores);
  s.notes = (uint32_t *)zeros(sequences * vocab * sizeof *s.notes);
  s.allowed = (uint64_t *)zeros(sequences * n_words * sizeof *s.allowed);
  s.controls = zeros(sequences * device_sampler_control_bytes());
  s.picks = zeros(sequences * device_sampler_pick_bytes());
  s.tokens = (int32_t *)zeros(sequences * sizeof *s.tokens);
  for (void *&pinned : s.pinned)
    CHECK(cudaHostAlloc(&pinned, sequences * device_sampler_pick_bytes(), cudaHostAllocDefault));
  MUST(device_sampler_reset(&s, n, 0, &error));
  return s;
}

static void close_sampler(const DeviceSampler &s) {
  for (void *memory : on_device) CHECK(cudaFree(memory));
  for (void *pinned : s.pinned) CHECK(cudaFreeHost(pinned));
  on_device.clear();
}

static void run_case(int vocab, const SamplerSettings &settings, int kind) {
  Error err = {{0}};
  Sampler *host = NULL;
  if (sampler_open(&settings, vocab, &host, &err) != STATUS_OK) {
    printf("%s\n", err.text);
    exit(1);
  }
  DeviceSampler device = open_sampler(vocab, 1);
  float *logits_device;
  int32_t *token;
  Sampled *slot;
  uint32_t *notes;
  uint64_t *mask;
  CHECK(cudaMalloc(&logits_device, vocab * sizeof(float)));
  CHECK(cudaMalloc(&token, sizeof *token));
  CHECK(cudaHostAlloc(&slot, sizeof *slot, cudaHostAllocMapped));
  CHECK(cudaHostAlloc(&notes, vocab * sizeof *notes, cudaHostAllocDefault));
  CHECK(cudaHostAlloc(&mask, (vocab + 63) / 64 * sizeof *mask, cudaHostAllocDefault));
  for (int i = 0; i < vocab / 7; i++) sampler_count_token(host, (int32_t)(uniform() * vocab), false);
  sampler_token_counts(host, notes);
  MUST(device_sampler_set_notes(&device, 0, notes, 0, &error));
  std::vector<float> logits(vocab);
  bool good = true;
  for (int step = 0; step < (few ? 6 : 12) && good; step++) {
    make_logits(logits, kind);
    CHECK(cudaMemcpy(logits_device, logits.data(), vocab * sizeof(float), cudaMemcpyHostToDevice));
    slot->kind = SAMPLED_NOTHING;
    const uint64_t *allowed = make_mask(vocab, step, mask);
    sampler_allow(host, allowed);
    MUST(device_sampler_allow(&device, allowed, 0, &error));
    MUST(device_sampler_pick(&device, &settings, step, logits_device, token, slot, 0, &error));
    CHECK(cudaDeviceSynchronize());
    int32_t want = -1, there;
    Status status = sampler_pick(host, logits.data(), &want, &err);
    CHECK(cudaMemcpy(&there, token, sizeof there, cudaMemcpyDeviceToHost));
    good = status == STATUS_OK ? slot->kind == SAMPLED_TOKEN && slot->id == want && there == want
                               : slot->kind == SAMPLED_NOTHING_FINITE; /* kind 3 may make such logits */
    if (!good)
      printf("FAILED vocab %d kind %d step %d temp %g top-k %d top-p %g min-p %g penalties %g %g %g: "
             "%d (kind %d), expected %d\n",
             vocab, kind, step, settings.temperature, settings.top_k, settings.top_p, settings.min_p,
             settings.repetition_penalty, settings.presence_penalty, settings.frequency_penalty, slot->id,
             slot->kind, want);
    if (status != STATUS_OK) break;
    if (good) sampler_count_token(host, want, true);
  }
  good ? passed++ : failed++;
  sampler_close(host);
  close_sampler(device);
  CHECK(cudaFree(logits_device));
  CHECK(cudaFree(token));
  CHECK(cudaFreeHost(slot));
  CHECK(cudaFreeHost(notes));
  CHECK(cudaFreeHost(mask));
}

/* Picks of many sequences in one launch: settings of all kinds side by side, rows in another order than
 * sequences, masks of some, and rows of logits that nothing is picked from. */
static void run_many(int vocab, int steps) {
  const int n = 7, n_rows = 9, words = (vocab + 63) / 64;
  std::vector<SamplerSettings> settings = {settings_of(0, 0, 1, 0),      settings_of(0.7, 20, 0.9, 0),
                                           settings_of(0.7, 0, 1, 0.05), settings_of(1, 0, 0.8, 0),
                                           settings_of(1, 65, 1, 0),     settings_of(0.8, 100, 0.95, 0),
                                           settings_of(0, 0, 1, 0)};
  for (int i : {1, 3, 6}) settings[i].repetition_penalty = 1.1, settings[i].presence_penalty = 0.3;
  std::vector<Sampler *> host(n);
  float *logits_device;
  Sampled *slots;
  uint32_t *notes;
  uint64_t *masks;
  DeviceSampler device = open_sampler(vocab, n);
  CHECK(cudaMalloc(&logits_device, (size_t)n_rows * vocab * sizeof(float)));
  CHECK(cudaHostAlloc(&slots, n * sizeof *slots, cudaHostAllocMapped));
  CHECK(cudaHostAlloc(&notes, vocab * sizeof *notes, cudaHostAllocDefault));
  CHECK(cudaHostAlloc(&masks, (size_t)n * words * sizeof *masks, cudaHostAllocDefault));
  for (int i = 0; i < n; i++) {
    settings[i].seed = (uint64_t)i;
    MUST(sampler_open(&settings[i], vocab, &host[i], &error));
    for (int k = 0; k < vocab / 5; k++) sampler_count_token(host[i], (int32_t)(uniform() * vocab), false);
    sampler_token_counts(host[i], notes);
    MUST(device_sampler_set_notes(&device, i, notes, 0, &error));
    CHECK(cudaDeviceSynchronize());
  }
  std::vector<float> logits((size_t)n_rows * vocab), row(vocab);
  bool good = true;
  for (int step = 0; step < steps && good; step++) {
    std::vector<RowPick> picks;
    for (int r = 0; r < n_rows; r++) {
      make_logits(row, (r + step) % 3);
      std::copy(row.begin(), row.end(), logits.begin() + (size_t)r * vocab);
      const int sequence = (r + step) % n;
      const uint64_t *mask = r < n ? make_mask(vocab, r + step, masks + (size_t)sequence * words) : NULL;
      if (r >= n) continue;
      sampler_allow(host[sequence], mask);
      picks.push_back({&settings[sequence], (uint64_t)step, r, sequence, mask != NULL, NULL});
    }
    picks.erase(picks.begin() + step % n); /* its draw is missing, too */
    for (size_t i = 0; i < picks.size(); i++) picks[i].slot = &slots[i];
    CHECK(cudaMemcpy(logits_device, logits.data(), logits.size() * sizeof(float), cudaMemcpyHostToDevice));
    MUST(device_sampler_allow_all(&device, 0, masks, n, 0, &error));
    MUST(device_sampler_pick_rows(&device, picks.data(), (int)picks.size(), logits_device, 0, &error));
    CHECK(cudaDeviceSynchronize());
    for (size_t i = 0; i < picks.size(); i++) {
      Sampler *own = host[picks[i].sequence];
      int32_t want = -1;
      sampler_return_draws(own,
                           sampler_take_draw(own) + 1 - (uint64_t)step); /* the next draw is number `step` */
      MUST(sampler_pick(own, &logits[(size_t)picks[i].row * vocab], &want, &error));
      sampler_count_token(own, want, true);
      if (slots[i].kind == SAMPLED_TOKEN && slots[i].id == want) continue;
      printf("FAILED many: vocab %d step %d row %d sequence %d: %d (kind %d), expected %d\n", vocab, step,
             picks[i].row, picks[i].sequence, slots[i].id, slots[i].kind, want);
      good = false;
    }
  }
  good ? passed++ : failed++;
  for (Sampler *s : host) sampler_close(s);
  close_sampler(device);
  CHECK(cudaFree(logits_device));
  for (void *p : {(void *)slots, (void *)notes, (void *)masks}) CHECK(cudaFreeHost(p));
}

/* Broken logits are reported as the host reports them, and the next pick works. */
static void broken(float bad, bool everywhere, SampledKind want, double temperature, int top_k) {
  SamplerSettings settings = settings_of(temperature, top_k, 1, 0);
  const int vocab = 1000;
  DeviceSampler device = open_sampler(vocab, 1);
  float *logits_device;
  int32_t *token;
  Sampled *slot;
  CHECK(cudaMalloc(&logits_device, vocab * sizeof(float)));
  CHECK(cudaMalloc(&token, sizeof *token));
  CHECK(cudaHostAlloc(&slot, sizeof *slot, cudaHostAllocMapped));
  std::vector<float> logits(vocab, everywhere ? bad : 1.0f);
  logits[777] = bad;
  bool good = true;
  for (int round = 0; round < 2; round++) {
    slot->kind = SAMPLED_NOTHING;
    CHECK(cudaMemcpy(logits_device, logits.data(), vocab * sizeof(float), cudaMemcpyHostToDevice));
    MUST(device_sampler_pick(&device, &settings, 0, logits_device, token, slot, 0, &error));
    CHECK(cudaDeviceSynchronize());
    good = good && slot->kind == (round ? SAMPLED_TOKEN : want);
    for (float &value : logits) value = 2.0f;
  }
  if (!good) printf("FAILED broken logits %g, temperature %g, top-k %d\n", bad, temperature, top_k);
  good ? passed++ : failed++;
  close_sampler(device);
  CHECK(cudaFree(logits_device));
  CHECK(cudaFree(token));
  CHECK(cudaFreeHost(slot));
}

int main(int argc, char **argv) {
  typedef std::vector<double> Numbers;
  typedef std::vector<int> Integers;
  few = argc > 1 && strcmp(argv[1], "few") == 0;
  for (int vocab : few ? Integers{1, 97, 1000} : Integers{1, 2, 95, 96, 97, 1000, 32000, 151936})
    for (int kind = 0; kind < 6; kind++)
      for (double temperature : few ? Numbers{0, 0.7} : Numbers{0, 0.7, 1, 3})
        for (int top_k : few ? Integers{0, 20} : Integers{0, 1, 2, 20, 64, 65, 40000})
          for (double top_p : few ? Numbers{1, 0.95} : Numbers{1, 0.95, 0.3, 0})
            for (double min_p : {0.0, 0.05}) {
              if (few && kind > 0 && (vocab < 1000 || min_p > 0)) continue;
              if (kind == 3 && vocab < 95) continue; /* nothing may be finite */
              if (temperature == 0 && (top_k || top_p < 1 || min_p > 0)) continue;
              bool penalties = (top_k + (int)(top_p * 100) + kind) % 2;
              SamplerSettings settings = settings_of(temperature, top_k, top_p, min_p);
              if (penalties)
                settings.repetition_penalty = 1.1, settings.presence_penalty = 0.3,
                settings.frequency_penalty = 0.2;
              run_case(vocab, settings, kind);
            }
  if (few) /* a top-k too large for sample_top_k.cu, with and without ties at the border */
    for (int kind = 0; kind < 6; kind++)
      for (double min_p : {0.0, 0.3}) run_case(1000, settings_of(0.7, 100, kind % 2 ? 0.95 : 1, min_p), kind);
  for (double frequency : {0.0, 0.2, -0.2}) /* few tokens, which are picked often: their counts matter */
    for (double temperature : {0.0, 0.7}) {
      SamplerSettings settings = settings_of(temperature, 0, 1, 0);
      settings.frequency_penalty = frequency;
      if (frequency == 0) settings.repetition_penalty = 1.1, settings.presence_penalty = 0.3;
      run_case(4, settings, 4);
    }
  for (int top_k : {4, 8}) /* weights that reach top-p exactly: the next one is out */
    for (double top_p : {0.25, 0.5, 0.75}) run_case(1000, settings_of(0.7, top_k, top_p, 0), 4);
  for (int kind :
       {4, 5}) /* more than kCapacity tokens reach sample_top_k.cu's bound: 64 of 768 groups hold them */
    run_case(few ? 13000 : 20000, settings_of(0.7, 64, 0.95, 0), kind);
  run_many(1000, few ? 3 : 12);
  if (!few) run_many(151936, 5);
  struct {
    double temperature;
    int top_k;
  } const ways[] = {{0, 0}, {0.8, 0}, {0.8, 20}};
  for (auto way : ways) {
    broken(NAN, false, SAMPLED_NAN, way.temperature, way.top_k);
    broken(-NAN, false, SAMPLED_NAN, way.temperature, way.top_k);
    broken(INFINITY, false, SAMPLED_NAN, way.temperature, way.top_k);
    broken(-INFINITY, true, SAMPLED_NOTHING_FINITE, way.temperature, way.top_k);
  }
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
