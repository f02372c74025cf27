/* bench_attention.cu - microseconds of every attention family on the heads of Qwen3-8B, and with `gemma4` on
 * those of Gemma-4-31B: of layers with a window of 1,024 and of those without. Calls are captured into one
 * graph over several layers' caches, so that no cache is in L2; medians of 20 replays. Prints GB/s of cache
 * read for few rows, TFLOP/s for many, and their share of 800, what cuBLAS reaches on an H200. */
#include <cuda_fp16.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <vector>

#include "cuda/attention/attention.h"
#include "test/cuda/check.cuh"

static const char *const family_names[ATTENTION_FAMILIES] = {"decode", "wgmma", "prefill", "plain"};
struct Shape {
  int n_heads, n_kv_heads, head_dim, window;
};

static Shape shape = {32, 8, 128, 0};

static void run_case(AttentionFamily family, int n_tokens, int pos) {
  int n_ctx = pos + n_tokens;
  size_t cache = (size_t)shape.n_kv_heads * n_ctx * shape.head_dim,
         rows = (size_t)n_tokens * shape.n_heads * shape.head_dim;
  int layers = (int)std::min<size_t>(36, std::max<size_t>(4, (256u << 20) / (cache * 4)));
  __half *q, *out, *k, *v;
  int *pos_device;
  void *workspace;
  size_t workspace_bytes = attention_workspace_bytes(shape.n_heads, shape.n_kv_heads, shape.head_dim);
  CHECK(cudaMalloc(&q, rows * 2));
  CHECK(cudaMalloc(&out, rows * 2));
  CHECK(cudaMalloc(&k, cache * 2 * layers));
  CHECK(cudaMalloc(&v, cache * 2 * layers));
  CHECK(cudaMalloc(&pos_device, 4));
  CHECK(cudaMalloc(&workspace, workspace_bytes));
  CHECK(cudaMemset(workspace, 0, workspace_bytes));
  CHECK(cudaMemset(q, 0x2c, rows * 2)); /* 0x2c2c: 0.065; the arithmetic does not depend on the values */
  CHECK(cudaMemset(k, 0x2c, cache * 2 * layers));
  CHECK(cudaMemset(v, 0x2c, cache * 2 * layers));
  CHECK(cudaMemcpy(pos_device, &pos, 4, cudaMemcpyHostToDevice));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  Attention probe = {};
  probe.n_heads = shape.n_heads, probe.n_kv_heads = shape.n_kv_heads, probe.head_dim = shape.head_dim;
  probe.n_ctx = n_ctx, probe.window = shape.window;
  probe.kv = KV_F16, probe.shared_bytes = 227 << 10, probe.scale = 0.0884, probe.pos = pos_device;
  probe.past = pos;
  MUST(attention_wgmma_sms(0, &probe.wgmma_sms, &error));
  probe.q = q, probe.k = k, probe.v = v, probe.out = out, probe.workspace = workspace;
  if (!attention_can_run(family, &probe, n_tokens)) return;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int layer = 0; layer < layers; layer++) {
    Attention a = probe;
    a.k = k + cache * layer, a.v = v + cache * layer;
    MUST(attention_run(family, &a, n_tokens, stream, &error));
  }
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
  double us = times[times.size() / 2], pairs = 0, seen = 0; /* keys of each token, and of all together */
  for (int t = 0; t < n_tokens; t++) {
    const int keys = pos + t + 1;
    pairs += shape.window > 0 ? std::min(keys, shape.window) : keys;
    seen = shape.window > 0 ? std::min(keys, shape.window + t) : keys;
  }
  const double tflops = 4.0 * pairs * shape.n_heads * shape.head_dim / us * 1e-6;
  printf("| %-7s | %4d | %6d | %9.2f | %7.0f | %7.1f | %4.2f |\n", family_names[family], n_tokens, pos, us,
         seen * shape.n_kv_heads * shape.head_dim * 4 / us * 1e-3, tflops, tflops / 800);
  fflush(stdout);
  for (void *p : {(void *)q, (void *)out, (void *)k, (void *)v, (void *)pos_device, workspace})
    CHECK(cudaFree(p));
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
  printf("| family  | rows | pos    | us        | GB/s    | TFLOP/s | of 800 "
         "|\n|---|---|---|---|---|---|---|\n");
  if (argc > 1 && strcmp(argv[1], "gemma4") == 0) return run_gemma4(), 0;
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
