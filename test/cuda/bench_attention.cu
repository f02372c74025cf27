/* bench_attention.cu - microseconds of every attention family on the heads of Qwen3-8B, and with `gemma4` on
 * those of Gemma-4-31B: of layers with a window of 1,024, and without one; with `sequences [N KEYS]` a token
 * of each of N sequences of so many keys, or of several sizes; with `append` norm, rope and append, and the
 * unpacking of caches in 8 bits; with `q8` caches are in 8 bits. Calls are captured into one graph over
 * several layers' caches, so that no cache is in L2; medians of 20 replays. Prints GB/s of cache read for few
 * rows, TFLOP/s for many, and their share of 800, what cuBLAS reaches on an H200. */
#include <cuda_fp16.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <vector>

#include "cuda/kernels/attention/attention_kernels.cuh"
#include "cuda/kernels/ops/norm_rope.h"
#include "cuda/kernels/ptx/ceil_div.h"
#include "test/cuda/check.cuh"

static const char *const family_names[ATTENTION_FAMILIES] = {"decode", "wgmma", "prefill", "plain"};
struct Shape {
  int n_heads, n_kv_heads, head_dim, window;
};

static Shape shape = {32, 8, 128, 0};
static bool q8; /* the type of the cache */

/* Bytes of a position of one KV head. */
static double cache_bytes() {
  const KvType kv = q8 ? KV_Q8 : KV_F16;
  return (double)kv_key_bytes(kv, shape.head_dim) + (double)kv_value_bytes(kv, shape.head_dim);
}

/* Lets the keys and values of layer `layer`, in memory as large as an fp16 cache of `numbers` numbers a
 * layer, be those of the type: in 8 bits scales follow the numbers. */
static void use_cache(Attention *a, __half *k, __half *v, size_t numbers, int layer) {
  a->k = k + numbers * layer, a->v = v + numbers * layer;
  a->kv = q8 ? KV_Q8 : KV_F16;
  if (!q8) return;
  a->k_scales = (const uint8_t *)a->k + numbers, a->v_scales = (const uint8_t *)a->v + numbers;
  static void *halves;
  static size_t n_halves;
  if (numbers > n_halves) {
    CHECK(cudaFree(halves));
    CHECK(cudaMalloc(&halves, numbers * 4));
    n_halves = numbers;
  }
  a->k_halves = halves, a->v_halves = (__half *)halves + numbers;
}

/* Microseconds of a layer's run(layer, stream); those of all layers are one graph. */
template <class Run> static double median_us(int layers, Run run) {
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int layer = 0; layer < layers; layer++) run(layer, stream);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = 0; i < 23; i++) {
    CHECK(cudaEventRecord(begin, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    float ms;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    if (i >= 3) times.push_back(ms * 1000 / layers);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

/* Device memory with a copy of `from`, or with halves of 0.065. */
static void *on_device(const void *from, size_t bytes) {
  void *to;
  CHECK(cudaMalloc(&to, bytes));
  if (from)
    CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
  else
    CHECK(cudaMemset(to, 0x2c, bytes));
  return to;
}

static void run_case(AttentionFamily family, int n_tokens, int pos) {
  int n_ctx = (pos + n_tokens + 63) / 64 * 64;
  size_t cache = (size_t)shape.n_kv_heads * n_ctx * shape.head_dim,
         rows = (size_t)n_tokens * shape.n_heads * shape.head_dim;
  int layers = (int)std::min<size_t>(36, std::max<size_t>(4, (256u << 20) / (cache * 4)));
  __half *q, *out, *k, *v;
  int *pos_device;
  void *workspace;
  size_t workspace_bytes = attention_workspace_bytes(shape.n_heads, shape.n_kv_heads, shape.head_dim, 0, 0);
  CHECK(cudaMalloc(&q, rows * 2));
  CHECK(cudaMalloc(&out, rows * 2));
  CHECK(cudaMalloc(&k, cache * 2 * layers));
  CHECK(cudaMalloc(&v, cache * 2 * layers));
  CHECK(cudaMalloc(&pos_device, n_tokens * 4));
  CHECK(cudaMalloc(&workspace, workspace_bytes));
  CHECK(cudaMemset(workspace, 0, workspace_bytes));
  CHECK(cudaMemset(q, 0x2c, rows * 2)); /* 0x2c2c: 0.065; the arithmetic does not depend on the values */
  CHECK(cudaMemset(k, 0x2c, cache * 2 * layers));
  CHECK(cudaMemset(v, 0x2c, cache * 2 * layers));
  std::vector<int> positions;
  for (int i = 0; i < n_tokens; i++) positions.push_back(pos + i);
  CHECK(cudaMemcpy(pos_device, positions.data(), n_tokens * 4, cudaMemcpyHostToDevice));
  Attention probe = {};
  probe.n_heads = shape.n_heads, probe.n_kv_heads = shape.n_kv_heads, probe.head_dim = shape.head_dim;
  probe.n_ctx = n_ctx, probe.window = shape.window;
  probe.shared_bytes = 227 << 10, probe.scale = 0.0884, probe.pos = pos_device;
  probe.past = pos;
  MUST(attention_wgmma_sms(0, &probe.wgmma_sms, &error));
  probe.q = q, probe.out = out, probe.workspace = workspace;
  use_cache(&probe, k, v, cache, 0);
  if (!attention_can_run(family, &probe, n_tokens)) return;
  const double us = median_us(layers, [&](int layer, cudaStream_t stream) {
    Attention a = probe;
    use_cache(&a, k, v, cache, layer);
    MUST(attention_run(family, &a, n_tokens, stream, &error));
  });
  double pairs = 0, seen = 0; /* keys of each token, and of all together */
  for (int t = 0; t < n_tokens; t++) {
    const int keys = pos + t + 1;
    pairs += shape.window > 0 ? std::min(keys, shape.window) : keys;
    seen = shape.window > 0 ? std::min(keys, shape.window + t) : keys;
  }
  const double tflops = 4.0 * pairs * shape.n_heads * shape.head_dim / us * 1e-6;
  printf("| %-7s | %4d | %6d | %9.2f | %7.0f | %7.1f | %4.2f |\n", family_names[family], n_tokens, pos, us,
         seen * shape.n_kv_heads * cache_bytes() / us * 1e-3, tflops, tflops / 800);
  fflush(stdout);
  for (void *p : {(void *)q, (void *)out, (void *)k, (void *)v, (void *)pos_device, workspace})
    CHECK(cudaFree(p));
}

/* A token of each of n sequences with `length` keys, the last one with `longest`; their pages in random
 * order. */
static void run_many_sequences(int n, int length, int longest) {
  const int head_dim = shape.head_dim, kv = shape.n_kv_heads, per = (length - 1) / KV_PAGE_TOKENS + 1;
  const int n_pages = (n - 1) * per + (longest - 1) / KV_PAGE_TOKENS + 1;
  const size_t cache = (size_t)n_pages * kv * KV_PAGE_TOKENS * head_dim;
  const int layers = (int)std::max<size_t>(2, std::min<size_t>(36, (1u << 30) / (cache * 4)));
  std::vector<int> pages(n_pages), first(n), pos(n);
  std::vector<AttentionUnit> units;
  for (int i = 0; i < n_pages; i++) pages[i] = i;
  for (int i = n_pages - 1; i > 0; i--)
    std::swap(pages[i], pages[(int)((i * 2654435761u) % (unsigned)(i + 1))]);
  const long long n_keys = (long long)(n - 1) * length + longest;
  const int unit_keys = attention_unit_keys(kv, n_keys);
  for (int i = 0, partial = 0; i < n; i++) {
    const int own = i == n - 1 ? longest : length,
              splits = std::min(ATTENTION_SPLITS + 0, (own - 1) / unit_keys + 1);
    first[i] = i * per, pos[i] = own - 1;
    for (int k = 0; k < splits; k++) units.push_back({i, k, splits, splits > 1 ? partial : 0});
    if (splits > 1) partial += splits;
  }
  const size_t rows = (size_t)n * shape.n_heads * head_dim * 2,
               workspace = attention_workspace_bytes(shape.n_heads, kv, head_dim, 0, 0);
  Attention a = {};
  a.n_heads = shape.n_heads, a.n_kv_heads = kv, a.head_dim = head_dim, a.n_ctx = KV_PAGE_TOKENS;
  a.window = shape.window, a.shared_bytes = 227 << 10, a.scale = 0.0884;
  a.q = on_device(NULL, rows), a.out = on_device(NULL, rows), a.workspace = on_device(NULL, workspace);
  __half *k = (__half *)on_device(NULL, cache * 2 * layers),
         *v = (__half *)on_device(NULL, cache * 2 * layers);
  CHECK(cudaMemset(a.workspace, 0, workspace));
  a.pos = (const int *)on_device(pos.data(), n * 4);
  a.pages = {(const int *)on_device(pages.data(), n_pages * 4), (const int *)on_device(first.data(), n * 4),
             n_pages};
  MUST(attention_wgmma_sms(0, &a.wgmma_sms, &error));
  use_cache(&a, k, v, cache, 0);
  const AttentionWork work = {(const AttentionUnit *)on_device(units.data(), units.size() * sizeof units[0]),
                              NULL,
                              (int)units.size(),
                              0,
                              n_keys,
                              0};
  const double us = median_us(layers, [&](int layer, cudaStream_t stream) {
    Attention own = a;
    use_cache(&own, k, v, cache, layer);
    MUST(attention_run_many(&own, &work, n, stream, &error));
  });
  printf("| %4d sequences of %6d keys, one of %6d | %4zu units | %9.2f us | %6.0f GB/s |\n", n, length,
         longest, units.size(), us, (double)n_keys * kv * cache_bytes() / us * 1e-3);
  fflush(stdout);
  for (const void *p : {a.q, (const void *)a.out, (const void *)a.workspace, (const void *)k, (const void *)v,
                        (const void *)a.pos, (const void *)a.pages.table, (const void *)a.pages.first,
                        (const void *)work.units})
    CHECK(cudaFree((void *)p));
}

static void run_sequences(void) {
  for (int n : {8, 32, 128, 256})
    for (int length : {192, 1500, 4096}) run_many_sequences(n, length, length);
  run_many_sequences(127, 192, 32768);
  run_many_sequences(256, 192, 4096);
}

/* Kernels of a step of n_tokens rows, prompts of 512 tokens (the last one of the rest) in pages in reverse
 * order: norm, rope and append, and the unpacking of a cache in 8 bits. */
static void run_append(int n_tokens) {
  const int prompt = 512, dim = shape.head_dim, kv = shape.n_kv_heads, layers = 4,
            n_pages = ceil_div(n_tokens, KV_PAGE_TOKENS), width = (shape.n_heads + 2 * kv) * dim;
  const size_t cache = (size_t)n_pages * kv * KV_PAGE_TOKENS * dim, inputs = (size_t)n_tokens * width,
               queries = (size_t)n_tokens * shape.n_heads * dim;
  Attention a = {};
  a.n_heads = shape.n_heads, a.n_kv_heads = kv, a.head_dim = dim, a.n_ctx = KV_PAGE_TOKENS;
  a.shared_bytes = 227 << 10;
  MUST(attention_wgmma_sms(0, &a.wgmma_sms, &error));
  const int in_tile = std::max(1, attention_tile_tokens(&a));
  std::vector<int> pages(n_pages), first(n_tokens), pos(n_tokens);
  std::vector<AttentionTile> tiles;
  for (int i = 0; i < n_pages; i++) pages[i] = n_pages - 1 - i;
  for (int t = 0; t < n_tokens; t++) pos[t] = t % prompt, first[t] = t / prompt * (prompt / KV_PAGE_TOKENS);
  for (int t = 0; t < n_tokens; t += in_tile) {
    const int end = std::min(n_tokens, t / prompt * prompt + prompt);
    const int n = std::min(in_tile, end - t);
    tiles.push_back({t, n, pos[end - 1] + 1, pos[t] + n});
  }
  const void *const pos_device = on_device(pos.data(), n_tokens * 4),
                    *const tiles_device = on_device(tiles.data(), tiles.size() * sizeof tiles[0]),
                    *const pages_device = on_device(pages.data(), n_pages * 4),
                    *const first_device = on_device(first.data(), n_tokens * 4),
                    *const turns = on_device(NULL, (size_t)n_tokens * dim * 4),
                    *const norms = on_device(NULL, dim * 4);
  float *projections = (float *)on_device(NULL, inputs * 4 * layers);
  __half *q = (__half *)on_device(NULL, queries * 2 * layers);
  __half *k = (__half *)on_device(NULL, cache * 2 * layers),
         *v = (__half *)on_device(NULL, cache * 2 * layers);
  a.pos = (const int *)pos_device;
  a.pages = {(const int *)pages_device, (const int *)first_device, n_pages};
  const bool as_told = q8;
  for (bool small : {false, true}) {
    q8 = small;
    use_cache(&a, k, v, cache, 0); /* its memory is not to be allocated while a graph is captured */
    const double us = median_us(layers, [&](int layer, cudaStream_t stream) {
      Attention own = a;
      use_cache(&own, k, v, cache, layer);
      QkvHeads heads = {};
      heads.n_heads = a.n_heads, heads.n_kv_heads = kv, heads.head_dim = heads.query_step = dim;
      heads.rotary_dim = dim, heads.n_ctx = a.n_ctx, heads.eps = 1e-6f, heads.kv = own.kv;
      heads.q_norm = heads.k_norm = (const float *)norms, heads.rope_table = turns;
      heads.pos = a.pos, heads.pages = a.pages, heads.stride = width;
      heads.projections = projections + inputs * layer, heads.q = q + queries * layer;
      heads.k_cache = (void *)own.k, heads.v_cache = (void *)own.v;
      heads.k_scales = (void *)own.k_scales, heads.v_scales = (void *)own.v_scales;
      MUST(ops_qk_norm_rope_append(&heads, n_tokens, stream, &error));
    });
    const double bytes = (double)inputs * 4 + (double)queries * 2 + n_tokens * kv * cache_bytes();
    printf("| append, %-3s | %4d rows | %7.2f us | %6.0f GB/s |\n", q8 ? "q8" : "f16", n_tokens, us,
           bytes / us * 1e-3);
  }
  const double us = median_us(layers, [&](int layer, cudaStream_t stream) {
    Attention own = a;
    use_cache(&own, k, v, cache, layer);
    AttentionArgs args = {};
    args.n_heads = a.n_heads, args.n_kv_heads = kv, args.head_dim = dim, args.n_ctx = a.n_ctx;
    args.unseen_back = 1, args.kv_sharers = 1, args.pos = a.pos, args.pages = a.pages;
    args.k = own.k, args.v = own.v;
    args.k_scales = (const __half *)own.k_scales, args.v_scales = (const __half *)own.v_scales;
    args.tiles = (const AttentionTile *)tiles_device;
    MUST(attention_unpack(args, n_tokens, (int)tiles.size(), own.k_halves, own.v_halves, stream, &error));
  });
  printf("| unpack      | %4d rows | %7.2f us | %6.0f GB/s |\n", n_tokens, us,
         n_tokens * kv * (cache_bytes() + 4.0 * dim) / us * 1e-3);
  fflush(stdout);
  q8 = as_told;
  for (const void *p : {pos_device, tiles_device, pages_device, first_device, turns, norms,
                        (const void *)projections, (const void *)q, (const void *)k, (const void *)v})
    CHECK(cudaFree((void *)p));
}

/* The family that a GPU with wgmma takes for several tokens, and the one that others take. */
static void run_many(int n_tokens, int pos) {
  run_case(ATTENTION_WGMMA, n_tokens, pos);
  run_case(ATTENTION_PREFILL, n_tokens, pos);
}

static void run_gemma4(void) {
  for (Shape s : {Shape{32, 16, 256, 1024}, Shape{32, 4, 512, 0}}) {
    shape = s;
    printf("%d heads, %d kv heads of %d, window %d\n", s.n_heads, s.n_kv_heads, s.head_dim, s.window);
    for (int pos : {127, 1023, 8191, 32767}) run_case(ATTENTION_DECODE, 1, pos);
    for (int n_tokens : {16, 512, 2048}) run_many(n_tokens, 0);
    run_many(16, 8192);
    run_many(2048, 8192);
  }
}

int main(int argc, char **argv) {
  q8 = argc > 1 && strcmp(argv[argc - 1], "q8") == 0;
  argc -= q8;
  if (argc > 1 && strcmp(argv[1], "append") == 0) {
    for (int n_tokens : {1, 16, 64, 256, 2048}) run_append(n_tokens);
    return 0;
  }
  printf("| family  | rows | pos    | us        | GB/s    | TFLOP/s | of 800 "
         "|\n|---|---|---|---|---|---|---|\n");
  if (argc > 1 && strcmp(argv[1], "gemma4") == 0) return run_gemma4(), 0;
  if (argc > 1 && strcmp(argv[1], "sequences") == 0) {
    if (argc > 3)
      run_many_sequences(atoi(argv[2]), atoi(argv[3]), atoi(argv[3]));
    else
      run_sequences();
    return 0;
  }
  for (int pos : {127, 511, 2047, 8191, 32767})
    for (int n_tokens : {1, 2, 4, 8}) run_case(ATTENTION_DECODE, n_tokens, pos);
  run_case(ATTENTION_PLAIN, 1, 511);
  for (int n_tokens : {2, 16, 64, 128, 512, 2048}) run_many(n_tokens, 0);
  for (int pos : {2048, 8192, 32768}) {
    for (int n_tokens : {2, 8, 16, 64, 128, 512, 2048}) run_many(n_tokens, pos);
    for (int n_tokens : {16, 64}) run_case(ATTENTION_DECODE, n_tokens, pos);
  }
  run_case(ATTENTION_PLAIN, 512, 0);
  return 0;
}
