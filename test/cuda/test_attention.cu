/* test_attention.cu - every attention family against attention in double, over shapes, positions and windows.
 *
 * The reference runs on the GPU, one thread per head of a token, from the same fp16 queries, keys and values.
 * Tolerance: the families round the weights p of the softmax (at most 1) and the result to fp16, each
 * with a relative error of at most 2^-11, uniform and independent, so a variance of 2^-24 / 3 of the value
 * squared each; scores are fp32 sums of exact products. NMSE <= 2 * 2^-22 / 3 ~ 1.6e-7; 5e-7 leaves room for
 * cancelling sums of v. Needs a GPU; prints a line per failing case and `N passed, N failed`. */
#include <cuda_fp16.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmath>
#include <vector>

#include "cuda/kernels/attention/attention.h"
#include "test/cuda/check.cuh"
#include "test/cuda/random_cache.cuh"

static const double TOLERANCE = 5e-7;
static const char *const family_names[ATTENTION_FAMILIES] = {"decode", "wgmma", "prefill", "plain"};

template <typename T> __device__ double number(T value) {
  return (double)(float)value;
}

template <typename T>
__global__ void reference(const __half *q, const T *k, const T *v, double *out, int n_tokens, int n_heads,
                          int n_kv_heads, int head_dim, int value_dims, int n_ctx, int window, int chunk,
                          int pos, double scale, double cap, const float *sinks, bool whole) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= n_tokens * n_heads) return;
  int row = at / n_heads, head = at % n_heads, kv_head = head / (n_heads / n_kv_heads);
  const __half *query = q + (size_t)at * head_dim;
  const size_t first_row = (size_t)kv_head * n_ctx * head_dim;
  const T *keys = k + first_row, *values = v + first_row + head_dim - value_dims;
  int last = pos + (whole ? n_tokens - 1 : row), first = chunk > 0 ? last - last % chunk
                                                         : window > 0 && last + 1 > window ? last + 1 - window
                                                                                           : 0;
  double high = -1e300, total = 0;
  double *o = out + (size_t)at * value_dims;
  for (int d = 0; d < value_dims; d++) o[d] = 0;
  for (int key = first; key <= last; key++) {
    double score = 0;
    for (int d = 0; d < head_dim; d++) score += number(query[d]) * number(keys[(size_t)key * head_dim + d]);
    score *= scale;
    if (cap != 0) score = cap * tanh(score / cap);
    double now = score > high ? score : high, keep = exp(high - now), p = exp(score - now);
    high = now, total = total * keep + p;
    for (int d = 0; d < value_dims; d++) o[d] = o[d] * keep + p * number(values[(size_t)key * head_dim + d]);
  }
  if (sinks) total += exp((double)sinks[head] - high);
  for (int d = 0; d < value_dims; d++) o[d] /= total;
}

/* Approximately normal numbers from the index: sums of four uniform ones. */
template <typename T> __global__ void fill(T *to, size_t n, unsigned seed, float scale) {
  size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned x = (unsigned)i * 2654435761u ^ seed;
  float total = 0;
  for (int k = 0; k < 4; k++) {
    x ^= x << 13, x ^= x >> 17, x ^= x << 5;
    x = x * 1664525u + 1013904223u;
    total += (float)(x >> 8) / (1 << 24) - 0.5f;
  }
  to[i] = (T)(total * 1.7f * scale);
}

struct Shape {
  int n_heads, n_kv_heads, head_dim;
  int value_dims; /* of latent attention, else 0: Attention.value_dims */
};

static void set_positions(int *device, int pos, int n) {
  std::vector<int> positions;
  for (int i = 0; i < n; i++) positions.push_back(pos + i);
  CHECK(cudaMemcpy(device, positions.data(), n * 4, cudaMemcpyHostToDevice));
}

static int passed, failed, wgmma_sms;
static bool few; /* `test_attention few` has fewer settings, for emulated GPUs */

struct Setting {
  int n_tokens, pos, window, chunk;
};
static std::vector<Setting> only; /* these, if any */
static bool fewer; /* of the few: of many heads, and on smaller chips, where kernels have other sizes */

/* The few have two KV heads at most: what a block computes depends on a head's size and on the query heads
 * of a KV head. */
static Shape few_heads(Shape s) {
  if (!few || s.n_kv_heads <= 2) return s;
  return {s.n_heads / s.n_kv_heads * 2, 2, s.head_dim, s.value_dims};
}

/* The few: windows that begin in the first tile of 64 keys and in the second; tokens that see all of a tile
 * beside tokens that do not; fewer tokens than a block takes, and more. */
static std::vector<Setting> settings(void) {
  if (!only.empty()) return only;
  if (few && fewer) return {{1, 100, 16}, {3, 62, 0}, {70, 30, 16}};
  if (few)
    return {{1, 0, 0},      {1, 70, 16},    {1, 100, 0},     {1, 100, 16},    {3, 0, 16},
            {3, 62, 0},     {3, 100, 16},   {20, 100, 110},  {70, 30, 16},    {1, 100, 0, 32},
            {3, 62, 0, 64}, {3, 94, 0, 32}, {20, 100, 0, 8}, {70, 30, 0, 16}, {1, 64, 0, 64}};
  std::vector<Setting> all;
  for (int n_tokens : {1, 2, 3, 5, 8, 17, 64, 65, 200})
    for (int pos : {0, 1, 15, 63, 64, 500, 1023, 2000})
      for (int window : {0, 1, 16, 100, 1024}) {
        all.push_back({n_tokens, pos, window, 0});
        if (window > 0) all.push_back({n_tokens, pos, 0, window == 100 ? 128 : window});
      }
  return all;
}

template <typename T>
static void run_shape(Shape s, KvType kv, size_t shared_bytes, double scale = 0, double cap = 0,
                      bool with_sinks = false, bool whole = false) {
  s = few_heads(s);
  if (scale == 0) scale = 1 / sqrt((double)s.head_dim);
  const int n_ctx = !only.empty() ? 1088 : few ? 128 : 2304, max_tokens = few ? 70 : 200;
  size_t cache = (size_t)s.n_kv_heads * n_ctx * s.head_dim,
         rows = (size_t)max_tokens * s.n_heads * s.head_dim;
  __half *q, *out;
  T *k, *v;
  double *want;
  float *sinks;
  RandomCache8 small = {};
  int *pos_device;
  void *workspace;
  size_t workspace_bytes = attention_workspace_bytes(s.n_heads, s.n_kv_heads, s.head_dim, s.value_dims, 0);
  CHECK(cudaMalloc(&q, rows * 2));
  CHECK(cudaMalloc(&out, rows * 2));
  CHECK(cudaMalloc(&k, cache * sizeof(T)));
  CHECK(cudaMalloc(&v, cache * sizeof(T)));
  CHECK(cudaMalloc(&want, rows * 8));
  CHECK(cudaMalloc(&pos_device, max_tokens * 4));
  CHECK(cudaMalloc(&sinks, s.n_heads * 4));
  CHECK(cudaMalloc(&workspace, workspace_bytes));
  CHECK(cudaMemset(workspace, 0, workspace_bytes));
  fill<<<(rows + 255) / 256, 256>>>(q, rows, 1, 2.0f);
  fill<<<(cache + 255) / 256, 256>>>(k, cache, 2, 1.0f);
  fill<<<(cache + 255) / 256, 256>>>(v, cache, 3, 1.0f);
  fill<<<(s.n_heads + 255) / 256, 256>>>(sinks, s.n_heads, 4, 3.0f);
  if constexpr (sizeof(T) == sizeof(__half)) /* k and v become the numbers of a cache in 8 bits */
    if (kv == KV_Q8) small = random_cache_8((size_t)s.n_kv_heads * n_ctx, s.head_dim, k, v);
  CHECK(cudaDeviceSynchronize());
  std::vector<__half> got(rows), again(rows);
  std::vector<double> of_numbers(rows), of_exact(rows);
  const std::vector<Setting> all = settings();
  for (const Setting &setting : all) {
    const int n_tokens = setting.n_tokens, pos = setting.pos, window = setting.window, chunk = setting.chunk;
    if (whole && window + chunk > 0) continue;
    /* Latent attention has no windows, and long rows. */
    if (s.value_dims > 0 &&
        (window + chunk > 0 || (!few && n_tokens != 1 && n_tokens != 3 && n_tokens != 65)))
      continue;
    Attention a = {};
    a.whole = whole ? n_tokens : 0;
    a.n_heads = s.n_heads, a.n_kv_heads = s.n_kv_heads, a.head_dim = s.head_dim, a.n_ctx = n_ctx;
    a.window = window, a.chunk = chunk, a.kv = kv, a.shared_bytes = shared_bytes, a.scale = scale,
    a.cap = cap;
    a.sinks = with_sinks ? sinks : NULL, a.wgmma_sms = wgmma_sms, a.past = pos;
    a.pos = pos_device, a.q = q, a.k = k, a.v = v, a.out = out, a.workspace = workspace;
    if (kv == KV_Q8) small.use(&a);
    a.value_dims = s.value_dims;
    if (s.value_dims > 0) a.v = a.v_scales = NULL;
    set_positions(pos_device, pos, n_tokens);
    const int outputs = n_tokens * s.n_heads, n_values = s.value_dims > 0 ? s.value_dims : s.head_dim;
    size_t n = (size_t)outputs * n_values;
    const auto refer = [&](const auto *keys, const auto *values, std::vector<double> &to) {
      reference<<<(outputs + 31) / 32, 32>>>(q, keys, s.value_dims > 0 ? keys : values, want, n_tokens,
                                             s.n_heads, s.n_kv_heads, s.head_dim, n_values, n_ctx, window,
                                             chunk, pos, scale, cap, a.sinks, whole);
      CHECK(cudaMemcpy(to.data(), want, n * 8, cudaMemcpyDeviceToHost));
    };
    refer(k, v, of_numbers);
    /* Decode takes q * scale of 8 bits as it is; the other families round it to halves. */
    const bool is_exact = kv == KV_Q8 && attention_can_run(ATTENTION_DECODE, &a, n_tokens);
    if (is_exact) refer(small.k_exact, small.v_exact, of_exact);
    for (int family = 0; family < ATTENTION_FAMILIES; family++) {
      if (!attention_can_run((AttentionFamily)family, &a, n_tokens)) continue;
      /* An emulated chip repeats its sums: there what a launch leaves in the workspace is seen by the next
       * setting, and by a second run of the first. */
      const bool twice = !few || &setting == &all[0];
      const std::vector<double> &expected = is_exact && family == ATTENTION_DECODE ? of_exact : of_numbers;
      for (std::vector<__half> *to : {&got, &again}) {
        if (to == &again && !twice) continue;
        CHECK(cudaMemset(out, 0xff, rows * 2)); /* NaN shows outputs that are not written */
        MUST(attention_run((AttentionFamily)family, &a, n_tokens, 0, &error));
        CHECK(cudaMemcpy(to->data(), out, n * 2, cudaMemcpyDeviceToHost));
      }
      double error = 0, norm = 0;
      bool same = !twice || memcmp(got.data(), again.data(), n * 2) == 0;
      for (size_t i = 0; i < n; i++) {
        double d = (double)__half2float(got[i]) - expected[i];
        error += d * d, norm += expected[i] * expected[i];
      }
      bool good = error <= TOLERANCE * norm && same; /* NaN fails */
      if (!good)
        printf("FAILED %s %s heads %d/%d head_dim %d tokens %d pos %d window %d chunk %d: NMSE %.3g%s\n",
               kv_type_name(kv), family_names[family], s.n_heads, s.n_kv_heads, s.head_dim, n_tokens, pos,
               window, chunk, error / norm, same ? "" : ", and two runs differ");
      good ? passed++ : failed++;
    }
  }
  for (void *p : {(void *)q, (void *)out, (void *)k, (void *)v, (void *)want, (void *)pos_device,
                  (void *)sinks, workspace})
    CHECK(cudaFree(p));
  small.release();
}

/* Qwen3-8B's heads: a decode launch takes 8 tokens; after a long past several launches take more. A GPU with
 * wgmma (132 SMs) takes it for all but one token and short texts. */
static void check_choice(void) {
  const struct {
    int n_tokens, past, window;
    AttentionFamily family;
    int sms;
  } cases[] = {{1, 0, 0, ATTENTION_DECODE},         {2, 159, 0, ATTENTION_PREFILL},
               {2, 160, 0, ATTENTION_DECODE},       {8, 639, 0, ATTENTION_PREFILL},
               {8, 640, 0, ATTENTION_DECODE},       {8, 8192, 100, ATTENTION_PREFILL},
               {16, 2400, 0, ATTENTION_PREFILL},    {16, 2412, 0, ATTENTION_DECODE},
               {32, 5400, 0, ATTENTION_PREFILL},    {32, 5508, 0, ATTENTION_DECODE},
               {64, 15300, 0, ATTENTION_PREFILL},   {64, 15408, 0, ATTENTION_DECODE},
               {16, 8192, 1024, ATTENTION_PREFILL}, {65, 100000, 0, ATTENTION_PREFILL},
               {1, 8192, 0, ATTENTION_DECODE, 132}, {64, 64, 0, ATTENTION_PREFILL, 132},
               {64, 65, 0, ATTENTION_WGMMA, 132},   {65, 0, 0, ATTENTION_WGMMA, 132},
               {2, 8192, 0, ATTENTION_WGMMA, 132},  {2048, 0, 1024, ATTENTION_WGMMA, 132}};
  for (auto c : cases) {
    Attention a = {};
    a.n_heads = 32, a.n_kv_heads = 8, a.head_dim = 128, a.n_ctx = 1 << 17, a.window = c.window;
    a.kv = KV_F16, a.shared_bytes = 227 << 10, a.scale = 1, a.past = c.past, a.wgmma_sms = c.sms;
    AttentionFamily family = attention_choose(&a, c.n_tokens);
    bool good = family == c.family;
    if (!good)
      printf("FAILED %d tokens after %d, window %d: %s\n", c.n_tokens, c.past, c.window,
             family_names[family]);
    good ? passed++ : failed++;
  }
}

/* Without splits of the keys the wgmma family gives a token the same bits in every step, whichever tokens are
 * beside it: 70 tokens after 30 at once, and as 1, 38 and 31. */
static void check_same_bits(Shape s, int window) {
  const int n_tokens = 70, pos = 30, n_ctx = 128;
  const size_t row = (size_t)s.n_heads * s.head_dim, rows = n_tokens * row,
               cache = (size_t)s.n_kv_heads * n_ctx * s.head_dim;
  __half *q, *k, *v, *out;
  int *pos_device;
  CHECK(cudaMalloc(&q, rows * 2));
  CHECK(cudaMalloc(&out, rows * 4));
  CHECK(cudaMalloc(&k, cache * 2));
  CHECK(cudaMalloc(&v, cache * 2));
  CHECK(cudaMalloc(&pos_device, n_tokens * 4));
  fill<<<(rows + 255) / 256, 256>>>(q, rows, 1, 2.0f);
  fill<<<(cache + 255) / 256, 256>>>(k, cache, 2, 1.0f);
  fill<<<(cache + 255) / 256, 256>>>(v, cache, 3, 1.0f);
  Attention a = {};
  a.n_heads = s.n_heads, a.n_kv_heads = s.n_kv_heads, a.head_dim = s.head_dim, a.n_ctx = n_ctx;
  a.window = window, a.kv = KV_F16, a.shared_bytes = 227 << 10, a.scale = 1 / sqrt((double)s.head_dim);
  a.wgmma_sms = wgmma_sms, a.pos = pos_device, a.k = k, a.v = v;
  const int begins[] = {0, 0, 1, 39}, sizes[] = {n_tokens, 1, 38, 31};
  for (int i = 0; i < 4 && attention_can_run(ATTENTION_WGMMA, &a, sizes[i]); i++) {
    const int at = pos + begins[i];
    a.q = q + begins[i] * row, a.out = out + (i > 0 ? rows : 0) + begins[i] * row, a.past = at;
    set_positions(pos_device, at, sizes[i]);
    MUST(attention_run(ATTENTION_WGMMA, &a, sizes[i], 0, &error));
  }
  std::vector<__half> got(2 * rows);
  CHECK(cudaMemcpy(got.data(), out, rows * 4, cudaMemcpyDeviceToHost));
  const bool good = memcmp(got.data(), got.data() + rows, rows * 2) == 0;
  if (!good && wgmma_sms > 0)
    printf("FAILED heads of %d, window %d: bits depend on the tokens beside\n", s.head_dim, window);
  good || wgmma_sms == 0 ? passed++ : failed++;
  for (void *p : {(void *)q, (void *)k, (void *)v, (void *)out, (void *)pos_device}) CHECK(cudaFree(p));
}

int main(int argc, char **argv) {
  few = argc > 1 && strcmp(argv[1], "few") == 0;
  int shared = 0;
  check_choice();
  MUST(attention_wgmma_sms(0, &wgmma_sms, &error));
  CHECK(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  for (Shape s : {Shape{9, 3, 64}, Shape{8, 8, 64}, Shape{32, 8, 128}, Shape{28, 4, 128}, Shape{16, 1, 128},
                  Shape{4, 2, 80}, Shape{6, 2, 96}, Shape{8, 4, 256}, Shape{16, 2, 512}, Shape{4, 4, 34},
                  Shape{2, 1, 2}, Shape{4, 2, 250}, Shape{2, 1, 258}})
    run_shape<__half>(s, KV_F16, (size_t)shared);
  for (Shape s : {Shape{9, 3, 64}, Shape{4, 4, 34}, Shape{2, 1, 512}})
    run_shape<float>(s, KV_F32, (size_t)shared);
  for (Shape s : {Shape{9, 3, 64}, Shape{32, 8, 128}, Shape{16, 1, 128}, Shape{4, 2, 80}, Shape{6, 2, 96},
                  Shape{8, 4, 256}, Shape{4, 1, 512}, Shape{4, 4, 34}, Shape{2, 1, 258}})
    run_shape<__half>(s, KV_Q8, (size_t)shared);
  /* Latent attention: sizes of published models, and another. V3's 128 heads are two tiles. */
  for (Shape s : {Shape{20, 1, 576, 512}, Shape{32, 1, 320, 256}, Shape{6, 1, 40, 32}})
    for (KvType kv : {KV_F16, KV_Q8}) run_shape<__half>(s, kv, (size_t)shared);
  run_shape<float>(Shape{6, 1, 40, 32}, KV_F32, (size_t)shared);
  run_shape<__half>(Shape{few ? 66 : 128, 1, 576, 512}, KV_F16, (size_t)shared);
  /* More query heads of a KV head than a block of decode has columns. */
  fewer = true;
  for (Shape s : {Shape{16, 1, 512}, Shape{36, 2, 256}}) run_shape<__half>(s, KV_F16, (size_t)shared);
  fewer = false;
  for (Shape s : {Shape{4, 1, 64}, Shape{8, 2, 128}, Shape{2, 1, 256}, Shape{4, 1, 512}})
    check_same_bits(s, 0);
  check_same_bits(Shape{8, 2, 128}, 40);
  /* Keys split by the wgmma family, and fewer of them than there are splits. */
  only = {{3, 400, 0}, {3, 550, 450}, {3, 280, 0}};
  for (Shape s : {Shape{3, 1, 64}, Shape{8, 2, 128}, Shape{2, 1, 256}, Shape{2, 1, 512}})
    run_shape<__half>(s, KV_F16, (size_t)shared);
  /* Rows of a tile, and tiles times splits, in odd numbers. */
  for (Shape s : {Shape{5, 1, 128}, Shape{3, 1, 576, 512}}) run_shape<__half>(s, KV_F16, (size_t)shared);
  run_shape<__half>(Shape{2, 1, 128}, KV_F16, (size_t)shared, 0, 20.0, true);
  run_shape<__half>(Shape{8, 2, 128}, KV_F16, (size_t)shared, 0, 0, false, true);
  /* 8 bits: more tiles than those after which decode subtracts the constant of its values; scores of some 10,
   * so that its shifts are raised more than once. */
  only = {{1, 1070, 0}, {3, 1000, 200}};
  for (Shape s : {Shape{4, 1, 128}, Shape{4, 1, 80}}) {
    run_shape<__half>(s, KV_Q8, (size_t)shared);
    run_shape<__half>(s, KV_Q8, (size_t)shared, 1.5);
    run_shape<__half>(s, KV_F16, (size_t)shared, 0.5);
  }
  only.clear();
  /* Sinks, in each family and type of cache. */
  for (Shape s : {Shape{9, 3, 64}, Shape{4, 4, 34}}) run_shape<__half>(s, KV_F16, (size_t)shared, 0, 0, true);
  run_shape<float>(Shape{4, 2, 32}, KV_F32, (size_t)shared, 0, 0, true);
  /* Blocks that are seen as a whole. */
  for (Shape s : {Shape{32, 8, 128}, Shape{4, 4, 34}})
    run_shape<__half>(s, KV_F16, (size_t)shared, 0, 0, false, true);
  run_shape<float>(Shape{8, 2, 128}, KV_F32, (size_t)shared, 0, 0, false, true);
  run_shape<__half>(Shape{4, 4, 34}, KV_F16, (size_t)shared, 1.0, 20.0, false, true);
  run_shape<__half>(Shape{9, 3, 64}, KV_Q8, (size_t)shared, 0, 0, true);
  /* Scores of about 30 and a cap of 20; head sizes that prefill and decode cap, and others. */
  for (Shape s : {Shape{8, 4, 256}, Shape{32, 16, 128}, Shape{4, 1, 256}, Shape{4, 2, 32}})
    run_shape<__half>(s, KV_F16, (size_t)shared, 1.0, 20.0);
  run_shape<float>(Shape{4, 2, 32}, KV_F32, (size_t)shared, 1.0, 20.0);
  run_shape<__half>(Shape{8, 4, 256}, KV_Q8, (size_t)shared, 1.0, 20.0);
  run_shape<__half>(Shape{32, 16, 128}, KV_F16, (size_t)shared, 0.03, 0);
  /* Smaller chips: a block has 64 KB of shared memory on sm_75, 99 KB on sm_86 and sm_89. */
  fewer = true;
  for (size_t kilobytes : {64, 99})
    for (Shape s : {Shape{28, 4, 128}, Shape{6, 2, 96}, Shape{8, 4, 256}})
      for (double cap : {0.0, 20.0})
        for (KvType kv : {KV_F16, KV_Q8}) run_shape<__half>(s, kv, kilobytes << 10, 0, cap);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
