/* bench_step.cu - times fused decode steps by clusters, tokens, bytes in flight, slots and context, and shows
 * where the cycles of a layer go. Needs a GPU with clusters.
 *
 *   bench_step [key=value ...]
 *     model=Qwen3-8B         one of the table below    context=512,8192,32768
 *     rows=1                 the kernel for 1, 2, 4 or 8 tokens
 *     group=128              inputs that share a scale: 32, 64 or 128; 16: FP4, 8: FP8, 4: int8
 *     clusters=8,12,15       (all that run at once)    in_flight=34,51,68,103   KB in flight in a block
 *     slots=0                slots of the ring; 0: all that fit
 *     ahead=0                stages to prefetch into L2; 0: the default, -1: none
 *     layers=N               fewer than the model's    steps=20                 timed, one after another
 *     profile=1              instead: cycles from mark to mark and waits for loads, medians over layers
 *     q8=1                   a KV cache in 8 bits
 *     apart=1                each row is a sequence of its own, with pages of its own
 *     patience=N             a wait of so many cycles ends the step, which reports its place (profile: 2e9)
 *
 * Weights are random, the cache is zero. "wall": reading weights, lm_head and cache at 4,650 GB/s
 * (LOG.md, "Walls"). */
#include <algorithm>
#include <functional>
#include <string.h>
#include <string>
#include <vector>

#include "cuda/kernels/cache/pages.h"
#include "cuda/kernels/fused/step.h"
extern "C" {
#include "cuda/one/fused.h"
}
#include "test/cuda/random_linear.cuh"

struct Sizes {
  const char *name;
  int hidden, intermediate, n_layers, n_heads, n_kv_heads, vocab, head_dim = 128;
  int n_experts = 0, n_chosen = 0; /* varied experts (plan.h): `intermediate` is the width of one */
};

static const Sizes models[] = {
    {"Qwen3-8B", 4096, 12288, 36, 32, 8, 151936},
    {"Llama-3.1-8B", 4096, 14336, 32, 32, 8, 128256},
    {"Qwen2.5-7B", 3584, 18944, 28, 28, 4, 152064},
    {"Qwen3-4B", 2560, 9728, 36, 32, 8, 151936},
    {"Qwen3-14B", 5120, 17408, 40, 40, 8, 151936},
    {"Qwen3-32B", 5120, 25600, 64, 64, 8, 151936},
    {"Qwen3-1.7B", 2048, 6144, 28, 16, 8, 151936},
    {"Qwen3-0.6B", 1024, 3072, 28, 16, 8, 151936},
    {"Llama-3.2-1B", 2048, 8192, 16, 32, 8, 128256, 64},
    {"tiny", 1024, 1024, 2, 4, 2, 300},
    {"gpt-oss-20b", 2880, 2880, 24, 64, 8, 201088, 64, 32, 4},
};

static std::vector<int> numbers(const char *text) {
  std::vector<int> out;
  for (std::string s = text; !s.empty(); s = s.find(',') == s.npos ? "" : s.substr(s.find(',') + 1))
    out.push_back(atoi(s.c_str()));
  return out;
}

static cudaStream_t stream;

/* A model of random weights, and a cache. */
struct Loaded {
  std::vector<DeviceLayer> layers;
  DeviceLinear head;
  float *ones;
  void *embedding, *k, *v, *k_scales, *v_scales;
  float *frequencies;
  int *ids, *pages; /* pages: of sequences one after another, or NULL */
  float *logits;
  double bytes; /* weights */
};

static int group = 128;

static DeviceLinear random_matrix(int n_in, std::vector<int> n_outs, bool interleaved, uint64_t seed,
                                  double *bytes) {
  std::vector<Stored> parts;
  for (int n : n_outs) {
    if (group == STEP_FP8_GROUP || group == STEP_INT8_GROUP) {
      const WeightType type = group == STEP_FP8_GROUP ? WEIGHT_FP8 : WEIGHT_INT8;
      parts.push_back(stored_random(type, n_in, n, STEP_GROUP, seed++));
      *bytes += (double)n_in * n;
      continue;
    }
    const bool fp4 = group == STEP_FP4_GROUP;
    parts.push_back(stored_random(fp4 ? WEIGHT_FP4 : WEIGHT_AWQ4, n_in, n, group, seed++));
    *bytes += (double)n_in * n / 2 + (double)n_in / group * n * (fp4 ? 1 : 2.5);
  }
  DeviceLinear w;
  place(&w, parts.data(), (int)parts.size(), interleaved, NULL, "matrix", stream);
  CHECK(cudaStreamSynchronize(stream));
  for (Stored &s : parts) stored_free(&s);
  return w;
}

/* A matrix in fp16 with a bias of `ones`. */
static DeviceLinear random_halves(int n_in, std::vector<int> n_outs, const float *ones, uint64_t seed,
                                  double *bytes) {
  std::vector<Stored> parts;
  for (int n : n_outs) {
    parts.push_back(stored_random(WEIGHT_F16, n_in, n, 0, seed++));
    *bytes += 2.0 * n_in * n;
  }
  DeviceLinear w;
  place(&w, parts.data(), (int)parts.size(), false, ones, "matrix", stream);
  CHECK(cudaStreamSynchronize(stream));
  for (Stored &s : parts) stored_free(&s);
  return w;
}

/* MXFP4 of all experts; a step reads n_chosen of them. */
static DeviceLinear random_experts(const Sizes &s, int n_in, int n_out, bool gate_up, const float *ones,
                                   uint64_t seed, double *bytes) {
  DeviceLinear w;
  size_t all;
  void *memory;
  const int n = gate_up ? 2 : 1;
  MUST(linear_lay_out(&w, "experts", WEIGHT_FP4, n_in, s.n_experts * n * n_out, 32, gate_up, true, &all,
                      &error));
  MUST(linear_lay_out_experts(&w, s.n_experts, s.n_chosen, !gate_up, &error));
  CHECK(cudaMalloc(&memory, all));
  MUST(linear_place(&w, memory, stream, &error));
  std::vector<Stored> parts;
  for (int i = 0; i < n; i++) parts.push_back(stored_random(WEIGHT_FP4, n_in, n_out, 32, seed + i));
  for (int e = 0; e < s.n_experts; e++) { /* all alike */
    const DeviceLinear own = linear_expert(&w, e);
    fill_parts(&own, parts.data(), n, ones, stream);
  }
  CHECK(cudaStreamSynchronize(stream));
  for (Stored &part : parts) stored_free(&part);
  *bytes += (double)all / s.n_experts * s.n_chosen;
  return w;
}

static void *zeroed(size_t bytes) {
  void *p;
  CHECK(cudaMalloc(&p, bytes));
  CHECK(cudaMemset(p, 0, bytes));
  return p;
}

static Loaded make_model(const Sizes &s, int n_ctx, int n_sequences) {
  Loaded m = {};
  std::vector<float> ones(s.hidden + 2 * s.intermediate + 8192, 1.0f); /* norms and biases */
  m.ones = (float *)zeroed(ones.size() * 4);
  CHECK(cudaMemcpy(m.ones, ones.data(), ones.size() * 4, cudaMemcpyHostToDevice));
  const int q = s.n_heads * s.head_dim, k = s.n_kv_heads * s.head_dim;
  for (int i = 0; i < s.n_layers; i++) {
    DeviceLayer l = {};
    l.attn_norm = l.mlp_norm = m.ones;
    l.q_norm = l.k_norm = s.hidden >= 128 ? m.ones : NULL;
    l.qkv.n_parts = l.gate_up.n_parts = 1;
    if (s.n_experts > 0) {
      l.q_norm = l.k_norm = NULL, l.sinks = m.ones;
      l.qkv.parts[0] = random_halves(s.hidden, {q, k, k}, m.ones, 100 * i, &m.bytes);
      l.o = random_halves(q, {s.hidden}, m.ones, 100 * i + 10, &m.bytes);
      l.router = random_halves(s.hidden, {s.n_experts}, m.ones, 100 * i + 20, &m.bytes);
      l.experts.gate_up = random_experts(s, s.hidden, s.intermediate, true, m.ones, 100 * i + 30, &m.bytes);
      l.experts.down = random_experts(s, s.intermediate, s.hidden, false, m.ones, 100 * i + 40, &m.bytes);
      m.layers.push_back(l);
      continue;
    }
    l.qkv.parts[0] = random_matrix(s.hidden, {q, k, k}, false, 100 * i, &m.bytes);
    l.o = random_matrix(q, {s.hidden}, false, 100 * i + 10, &m.bytes);
    l.gate_up.parts[0] =
        random_matrix(s.hidden, {s.intermediate, s.intermediate}, true, 100 * i + 20, &m.bytes);
    l.down = random_matrix(s.intermediate, {s.hidden}, false, 100 * i + 30, &m.bytes);
    m.layers.push_back(l);
  }
  Stored head = stored_random(WEIGHT_F16, s.hidden, s.vocab, 0, 99);
  place(&m.head, &head, 1, false, NULL, "head", stream);
  CHECK(cudaStreamSynchronize(stream));
  stored_free(&head);
  m.bytes += 2.0 * s.hidden * s.vocab;
  const size_t cache = (size_t)s.n_layers * s.n_kv_heads * n_ctx * n_sequences * s.head_dim * 2;
  m.k = zeroed(cache), m.v = zeroed(cache);
  m.k_scales = zeroed(cache / KEY_SCALE_DIMS), m.v_scales = zeroed(cache / KEY_SCALE_DIMS);
  m.embedding = (void *)m.head.dense;
  m.frequencies = (float *)zeroed(STEP_MAX_HEAD_DIM / 2 * sizeof(float));
  m.ids = (int *)zeroed(STEP_MAX_TOKENS * 4);
  m.logits = (float *)zeroed((size_t)s.vocab * STEP_MAX_TOKENS * 4);
  return m;
}

static StepHang *hang;

static void finish(const char *what) {
  cudaError_t failed = cudaStreamSynchronize(stream);
  if (failed == cudaSuccess) return;
  printf("%s: %s; block %d warp %d lane %d layer %d waits at place %d, number %d, parity %d\n", what,
         cudaGetErrorString(failed), hang->block, hang->warp, hang->lane, hang->layer, hang->event,
         hang->number, hang->parity);
  exit(1);
}

static const char *const mark_names[] = {"begin",
                                         "weights of norm",
                                         "sum of down, x sent",
                                         "x there",
                                         "qkv",
                                         "qkv sent",
                                         "q k v there",
                                         "heads",
                                         "keys",
                                         "states sent",
                                         "states",
                                         "merged",
                                         "o",
                                         "o stored",
                                         "weights of norm",
                                         "sum of o, x sent",
                                         "x there",
                                         "gate, up",
                                         "gated sent",
                                         "gated there",
                                         "down",
                                         "down stored"};
static const char *const waited_names[] = {"qkv", "o", "gate, up", "down", "keys"};
static_assert(sizeof mark_names / sizeof *mark_names == STEP_MARKS, "one each");

static long long median(std::vector<long long> v) {
  if (v.empty()) return -1;
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

/* Medians over layers of one block: cycles since the previous mark that it has. */
static void print_profile(const std::vector<long long> &marks, int block, int n_layers) {
  const long long *of = marks.data() + (size_t)block * n_layers * STEP_NUMBERS;
  const int first = n_layers > 4 ? 2 : 0;
  printf("block %d:", block);
  std::vector<long long> whole;
  for (int l = first; l + 1 < n_layers; l++)
    whole.push_back(of[(l + 1) * STEP_NUMBERS] - of[l * STEP_NUMBERS]);
  for (int k = 1; k < STEP_MARKS; k++) {
    std::vector<long long> cycles;
    for (int l = first; l < n_layers; l++) {
      const long long *layer = of + l * STEP_NUMBERS;
      int before = k - 1;
      while (before > 0 && !layer[before]) before--;
      if (layer[k] && layer[before]) cycles.push_back(layer[k] - layer[before]);
    }
    if (!cycles.empty()) printf(" %s %lld |", mark_names[k], median(cycles));
  }
  printf(" a layer %lld; waited for loads:", median(whole));
  for (int k = 0; k < 5; k++) {
    std::vector<long long> cycles;
    for (int l = first; l < n_layers; l++) cycles.push_back(of[l * STEP_NUMBERS + STEP_WAITED + k]);
    printf(" %s %lld", waited_names[k], median(cycles));
  }
  printf("\n");
}

/* One of the kernels, ready to run. */
struct Opened {
  int n_slots;
  void *memory;
  std::function<Status(int pos, const StepDebug *)> run;
  std::function<void()> close;
};

/* False if the kernel does not serve the shape. */
static bool open_kernel(const Loaded &m, const Sizes &s, const StepShape &shape, int rows, int in_flight,
                        int prefetch_stages, int n_ctx, Opened *to) {
  std::vector<StepLayer> layers;
  for (const DeviceLayer &layer : m.layers) layers.push_back(fused_layer(&layer));
  StepModel model = {};
  model.in_flight = in_flight;
  model.prefetch_stages = prefetch_stages;
  model.layers = layers.data();
  model.lm_head = &m.head;
  model.final_norm = m.ones;
  model.embedding = m.embedding;
  model.embedding_stride = s.hidden;
  model.embedding_type = DTYPE_F16;
  model.several = m.pages != NULL;
  model.embedding_scale = 1;
  model.norm_eps = 1e-6;
  model.attention_scale = 1 / sqrt(s.head_dim);
  model.renormalise = s.n_experts > 0;
  model.window = 128;
  for (int i = 0; i < s.n_layers && s.n_experts > 0; i += 2) model.windows |= UINT64_C(1) << i;
  StepPlan plan;
  if (step_plan(&shape, rows, &plan, &error) != STATUS_OK) return false;
  Step *step;
  to->n_slots = plan.n_slots;
  to->memory = zeroed(step_bytes(&shape, rows));
  MUST(step_open(&model, &plan, to->memory, stream, &step, &error));
  StepCall call = {};
  call.n_parts = 1;
  call.ids = m.ids, call.n_tokens = rows;
  call.frequencies = m.frequencies, call.attention_factor = 1;
  call.k = m.k, call.v = m.v, call.k_scales = m.k_scales, call.v_scales = m.v_scales;
  call.n_ctx = n_ctx, call.n_pages = 1, call.logits = m.logits;
  if (m.pages) {
    call.n_parts = rows, call.pages = m.pages;
    call.n_ctx = KV_PAGE_TOKENS, call.n_pages = rows * (n_ctx / KV_PAGE_TOKENS);
  }
  to->run = [=](int pos, const StepDebug *debug) {
    StepCall at = call;
    for (int i = 0; i < at.n_parts; i++) at.parts[i] = {pos, i, i * (n_ctx / KV_PAGE_TOKENS)};
    return step_run(step, &at, debug, stream, &error);
  };
  to->close = [=] { step_close(step); };
  return true;
}

int main(int argc, char **argv) {
  std::string name = "Qwen3-8B";
  std::vector<int> contexts = {512, 8192, 32768}, clusters, in_flight = {34, 51, 68, 103}, slots = {0},
                   rows = {1}, prefetch_stages = {0};
  int layers = 0, steps = 20;
  bool profile = false, q8 = false, apart = false;
  long long patience = 0;
  for (int i = 1; i < argc; i++) {
    char *value = strchr(argv[i], '=');
    if (!value) return printf("bench_step: %s: expected key=value\n", argv[i]), 2;
    *value++ = 0;
    std::string key = argv[i];
    if (key == "model")
      name = value;
    else if (key == "context")
      contexts = numbers(value);
    else if (key == "group")
      group = atoi(value);
    else if (key == "clusters")
      clusters = numbers(value);
    else if (key == "rows")
      rows = numbers(value);
    else if (key == "in_flight")
      in_flight = numbers(value);
    else if (key == "ahead")
      prefetch_stages = numbers(value);
    else if (key == "slots")
      slots = numbers(value);
    else if (key == "layers")
      layers = atoi(value);
    else if (key == "steps")
      steps = atoi(value);
    else if (key == "profile")
      profile = atoi(value) != 0;
    else if (key == "q8")
      q8 = atoi(value) != 0;
    else if (key == "apart")
      apart = atoi(value) != 0;
    else if (key == "patience")
      patience = atoll(value);
    else
      return printf("bench_step: no key %s\n", key.c_str()), 2;
  }
  const Sizes *found = NULL;
  for (const Sizes &s : models)
    if (name == s.name) found = &s;
  if (!found) return printf("bench_step: no model %s\n", name.c_str()), 2;
  Sizes s = *found;
  if (layers) s.n_layers = layers;
  int shared = 0;
  CHECK(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  const int most = step_clusters(0, (size_t)shared);
  if (!most) return printf("no clusters here\n"), 0;
  if (clusters.empty()) clusters = {most};
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaHostAlloc(&hang, sizeof *hang, cudaHostAllocMapped));
  memset(hang, 0, sizeof *hang);
  const int n_ctx = (*std::max_element(contexts.begin(), contexts.end()) + 127) / 64 * 64;
  const int n_sequences = apart ? *std::max_element(rows.begin(), rows.end()) : 1;
  Loaded m = make_model(s, n_ctx, n_sequences);
  if (apart) {
    std::vector<int> pages(n_sequences * (n_ctx / KV_PAGE_TOKENS));
    for (size_t i = 0; i < pages.size(); i++) pages[i] = (int)(pages.size() - 1 - i);
    m.pages = (int *)zeroed(pages.size() * sizeof pages[0]);
    CHECK(cudaMemcpy(m.pages, pages.data(), pages.size() * sizeof pages[0], cudaMemcpyHostToDevice));
  }
  printf("%s, %d layers, %.3f GB of weights, %d clusters run at once\n", s.name, s.n_layers, m.bytes / 1e9,
         most);
  cudaEvent_t a, b;
  CHECK(cudaEventCreate(&a));
  CHECK(cudaEventCreate(&b));
  for (int n_clusters : clusters)
    for (int n_rows : rows)
      for (int n_slots : slots)
        for (int kb : in_flight)
          for (int n_ahead : prefetch_stages) {
            const bool varied = s.n_experts > 0;
            const int unit = STEP_VARIED_COLUMNS;
            const StepShape shape = {.hidden = varied ? ceil_div(s.hidden, unit) * unit : s.hidden,
                                     .intermediate = s.intermediate * (varied ? s.n_chosen : 1),
                                     .n_layers = s.n_layers,
                                     .n_heads = s.n_heads,
                                     .n_kv_heads = s.n_kv_heads,
                                     .vocab_size = s.vocab,
                                     .group = varied ? STEP_FP4_GROUP : group,
                                     .head_dim = s.head_dim,
                                     .n_clusters = n_clusters,
                                     .width = varied ? s.hidden : 0,
                                     .shared_bytes = (size_t)shared,
                                     .max_slots = n_slots,
                                     .n_experts = s.n_experts,
                                     .n_chosen = s.n_chosen,
                                     .q8 = q8,
                                     .attn_group = varied ? STEP_HALF_GROUP : 0};
            Opened kernel;
            if (n_clusters > most || !open_kernel(m, s, shape, n_rows, kb * 1024, n_ahead, n_ctx, &kernel))
              continue;
            for (int context : contexts) {
              StepDebug debug = {hang, patience ? patience : 2000000000ll, NULL, NULL};
              const int n_blocks = n_clusters * STEP_BLOCKS;
              if (profile) {
                const size_t n = (size_t)n_blocks * s.n_layers * STEP_NUMBERS;
                debug.marks = (long long *)zeroed(n * 8);
                debug.whole_marks = (long long *)zeroed((size_t)n_blocks * 3 * 8);
                std::vector<long long> marks(n), whole(n_blocks * 3);
                for (int i = 0; i < 3; i++) MUST(kernel.run(context, &debug));
                finish("profile");
                CHECK(cudaMemcpy(marks.data(), debug.marks, n * 8, cudaMemcpyDeviceToHost));
                CHECK(cudaMemcpy(whole.data(), debug.whole_marks, whole.size() * 8, cudaMemcpyDeviceToHost));
                printf("rows %d, clusters %d, slots %d, in flight %d KB, ahead %d, context %d: layers %lld "
                       "cycles, head "
                       "%lld\n",
                       n_rows, n_clusters, kernel.n_slots, kb, n_ahead, context, whole[1] - whole[0],
                       whole[2] - whole[1]);
                print_profile(marks, 5, s.n_layers);
                print_profile(marks, 3 * 8 % n_blocks, s.n_layers);
                print_profile(marks, n_blocks - 1, s.n_layers);
                CHECK(cudaFree(debug.marks));
                CHECK(cudaFree(debug.whole_marks));
                continue;
              }
              std::vector<float> times;
              for (int round = 0; round < 6; round++) {
                CHECK(cudaEventRecord(a, stream));
                for (int i = 0; i < steps; i++) MUST(kernel.run(context, patience ? &debug : NULL));
                CHECK(cudaEventRecord(b, stream));
                finish("step");
                float ms;
                CHECK(cudaEventElapsedTime(&ms, a, b));
                if (round) times.push_back(ms / steps);
              }
              std::sort(times.begin(), times.end());
              const double ms = times[times.size() / 2],
                           cache = (double)s.n_layers * s.n_kv_heads * context * (apart ? n_rows : 1) *
                                   (kv_key_bytes(q8 ? KV_Q8 : KV_F16, s.head_dim) +
                                    kv_value_bytes(q8 ? KV_Q8 : KV_F16, s.head_dim));
              printf("rows %d, clusters %2d, slots %2d, in flight %3d KB, ahead %d, context %5d: %.3f ms, "
                     "%.0f steps/s, "
                     "%.1f%% of "
                     "the wall\n",
                     n_rows, n_clusters, kernel.n_slots, kb, n_ahead, context, ms, 1e3 / ms,
                     (m.bytes + cache) / 4.65e9 / ms * 100);
              fflush(stdout);
            }
            kernel.close();
            CHECK(cudaFree(kernel.memory));
          }
  return 0;
}
