/* test_next.cu - matmuls whose epilogue makes the next kernel's operand (LinearCall.next), against the same
 * matmuls with kernels of their own for that.
 *
 * planes_wgmma: residual stream, gated products after a norm, queries, keys and values are equal to the bit,
 * since the same arithmetic makes them. Results of down: a gated product of 256 rows a tile is summed in
 * another order, so that one in some hundred rounds to the other of two fp16 numbers, and scales are those of
 * other planes: NMSE 1e-7, a tenth of what rounding to fp16 itself costs. Without `few` the same calls are
 * repeated, and all results must keep their bits: a stage that is filled again too early shows itself once in
 * some hundred.
 * awq_wgmma: values are equal to the bit. The squares of a query or key are summed in another order, so its
 * scale differs by some 2^-23: one number in some thousand rounds to the other of two fp16 numbers (NMSE
 * 1e-7 / 1000), or of two bytes (1e-5 / 1000, as the numbers of a scale are some 50 units in the mean).
 * Needs a GPU of 9.0; `few`: what an emulated one can do. Prints a line for each failing case and
 * `N passed, N failed`. */
#include <string.h>
#include <vector>

#include "cuda/kernels/ops/norm_rope.h"
#include "test/cuda/pairs.cuh"
#include "test/cuda/random_linear.cuh"

static int passed, failed;
static cudaStream_t stream;
static LinearContext *context;

struct Sizes {
  int hidden, intermediate, heads, kv_heads, n_tokens;
};

static void judge(bool good, const char *what, const Sizes &s) {
  good ? passed++ : failed++;
  if (!good)
    printf("FAIL %s: hidden %d, intermediate %d, %d heads, %d tokens\n", what, s.hidden, s.intermediate,
           s.heads, s.n_tokens);
}

template <class T> struct Memory {
  T *at;
  size_t n;
  explicit Memory(size_t n_) : n(n_) {
    CHECK(cudaMalloc((void **)&at, n * sizeof(T)));
    CHECK(cudaMemset(at, 0, n * sizeof(T)));
  }
  ~Memory() { cudaFree(at); }
  void put(const std::vector<T> &from) {
    CHECK(cudaMemcpy(at, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  std::vector<T> get() const {
    std::vector<T> to(n);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(to.data(), at, n * sizeof(T), cudaMemcpyDeviceToHost));
    return to;
  }
  bool same(const Memory &other) const {
    const std::vector<T> a = get(), b = other.get();
    return memcmp(a.data(), b.data(), n * sizeof(T)) == 0;
  }
};

struct Weights {
  DeviceLinear w;
  void *memory;
  std::vector<Stored> parts;
  Weights(int n_in, std::vector<int> n_out, bool interleaved, const char *name, int seed) {
    for (int n : n_out) parts.push_back(stored_random(WEIGHT_AWQ4, n_in, n, 128, seed++));
    memory = place(&w, parts.data(), (int)parts.size(), interleaved, NULL, name, stream);
    MUST(linear_prepare(context, &w, ACT_F16, LINEAR_MOST_PLANES, "planes_wgmma", &error));
  }
  ~Weights() {
    for (Stored &s : parts) stored_free(&s);
    cudaFree(memory);
  }
};

static LinearCall call_of(const Weights &m, const void *x, int n_tokens, LinearOutput output, void *y,
                          int stride) {
  LinearCall call = {&m.w, x, m.w.n_in, n_tokens, output, y, stride, ACT_F16, true, "planes_wgmma", 0};
  return call;
}

static std::vector<float> random_floats(size_t n, int seed, float plus = 0) {
  std::vector<float> to(n);
  for (size_t i = 0; i < n; i++) to[i] = plus + activation(seed, (int)(i % 1000), (int)(i / 1000 % 100000));
  return to;
}

/* Repeats of a chain of calls: none, or some hundred on a GPU. */
static int repeats;

/* o, gate and up, down. */
static void check_mlp(const Sizes &s) {
  const int n = s.n_tokens, h = s.hidden, wide = s.intermediate, from = s.heads * 128;
  Weights o(from, {h}, false, "o", 1), gate_up(h, {wide, wide}, true, "gate and up", 2),
      down(wide, {h}, false, "down", 4);
  Memory<__half> x((size_t)n * from), g1((size_t)n * wide), g2((size_t)n * wide);
  Memory<float> r1((size_t)n * h), r2((size_t)n * h), weight(h), y1((size_t)n * h), y2((size_t)n * h);
  Memory<unsigned char> of_h(linear_planes_bytes(h, n)), of_g(linear_planes_bytes(wide, n)),
      of_y(linear_planes_bytes(h, n));
  const std::vector<float> start = random_floats(r1.n, 8);
  random_activations<<<64, 256, 0, stream>>>(x.at, n, from, from, 7);
  r1.put(start), r2.put(start), weight.put(random_floats(h, 9, 1));

  LinearCall first = call_of(o, x.at, n, LINEAR_ADD_F32, r1.at, h);
  MUST(linear_run(context, &first, &error));
  LinearCall second = call_of(gate_up, NULL, n, LINEAR_SWIGLU_F16, g1.at, wide);
  second.norm = {r1.at, weight.at, 1e-6f};
  MUST(linear_run(context, &second, &error));
  LinearCall third = call_of(down, g1.at, n, LINEAR_ADD_F32, y1.at, h);
  MUST(linear_run(context, &third, &error));

  first.y = r2.at, first.next = {LINEAR_NEXT_NORM, of_h.at, weight.at, NULL};
  MUST(linear_run(context, &first, &error));
  judge(r1.same(r2), "the residual stream", s);
  second.y = g2.at, second.planes = of_h.at;
  MUST(linear_run(context, &second, &error));
  judge(g1.same(g2), "the gated product after a norm", s);
  second.next = {LINEAR_NEXT_GATED, of_g.at, NULL, NULL};
  MUST(linear_run(context, &second, &error));
  third.planes = of_g.at, third.y = y2.at;
  third.next = {LINEAR_NEXT_NORM, of_y.at, weight.at, NULL};
  MUST(linear_run(context, &third, &error));
  const std::vector<float> a = y1.get(), b = y2.get();
  double off = 0, all = 0;
  for (size_t i = 0; i < a.size(); i++)
    off += (a[i] - b[i]) * (double)(a[i] - b[i]), all += a[i] * (double)a[i];
  judge(off <= 1e-7 * all, "down", s);
  if (!(off <= 1e-7 * all)) printf("NMSE %.2e\n", off / all);

  int same = 0;
  for (int i = 0; i < repeats; i++) {
    r2.put(start), y2.put(std::vector<float>(y2.n));
    for (LinearCall *call : {&first, &second, &third}) MUST(linear_run(context, call, &error));
    same += r1.same(r2) && y2.get() == b;
  }
  if (repeats) judge(same == repeats, "the same again", s);
}

/* gain: factor of the norm's weights; 1e5: values beyond fp16, which the cache has as its largest numbers. */
static void check_heads(const Sizes &s, float gain) {
  const int n = s.n_tokens, h = s.hidden, all = s.heads + 2 * s.kv_heads, n_ctx = 64;
  Weights qkv(h, {s.heads * 128, s.kv_heads * 128, s.kv_heads * 128}, false, "qkv", 11);
  Memory<float> rows((size_t)n * h), weight(h), projections((size_t)n * all * 128), norms(256);
  Memory<float> table((size_t)n * 128);
  Memory<int> pos(n);
  Memory<__half> q1((size_t)n * s.heads * 128), q2(q1.n), k1((size_t)s.kv_heads * n_ctx * 128), k2(k1.n),
      v1(k1.n), v2(k1.n);
  std::vector<float> weights = random_floats(h, 13, 1);
  for (float &w : weights) w *= gain;
  rows.put(random_floats(rows.n, 12)), weight.put(weights), norms.put(random_floats(256, 14, 1));
  table.put(random_floats(table.n, 15));
  std::vector<int> at(n);
  for (int i = 0; i < n; i++) at[i] = i == n - 1 ? -1 : 5 + i;
  pos.put(at);
  QkvHeads heads = {};
  heads.n_heads = s.heads, heads.n_kv_heads = s.kv_heads, heads.head_dim = 128, heads.n_ctx = n_ctx;
  heads.eps = 1e-6f, heads.kv = KV_F16, heads.q_norm = norms.at, heads.k_norm = norms.at + 128;
  heads.rope_table = table.at, heads.pos = pos.at, heads.projections = projections.at;
  heads.stride = (size_t)all * 128, heads.query_step = 128, heads.rotary_dim = 128;
  heads.q = q1.at, heads.k_cache = k1.at, heads.v_cache = v1.at;
  LinearCall call = call_of(qkv, NULL, n, LINEAR_TO_F32, projections.at, all * 128);
  call.norm = {rows.at, weight.at, 1e-6f};
  MUST(linear_run(context, &call, &error));
  MUST(ops_qk_norm_rope_append(&heads, n, stream, &error));
  heads.q = q2.at, heads.k_cache = k2.at, heads.v_cache = v2.at;
  call.next.kind = LINEAR_NEXT_HEADS, call.next.heads = &heads;
  Memory<unsigned char> unused(linear_planes_bytes(h, n));
  call.next.planes = unused.at;
  MUST(linear_run(context, &call, &error));
  judge(q1.same(q2), "queries", s);
  judge(k1.same(k2), "keys", s);
  judge(v1.same(v2), "values", s);
}

/* Heads by awq_wgmma, of two sequences whose pages are in turn, the second one from position 70 on; the last
 * token has no position. */
static void check_wide_heads(const Sizes &s, int variant, KvType kv, bool with_norms) {
  const int n = s.n_tokens, h = s.hidden, all = s.heads + 2 * s.kv_heads, own = (n - 1) / 3,
            n_pages = 2 * ((n + 70) / KV_PAGE_TOKENS + 1);
  Weights qkv(h, {s.heads * 128, s.kv_heads * 128, s.kv_heads * 128}, false, "qkv", 21);
  MUST(linear_prepare(context, &qkv.w, ACT_F16, n, "awq_wgmma", &error));
  const size_t rows = (size_t)n_pages * s.kv_heads * KV_PAGE_TOKENS,
               bytes = rows * 128 * (kv == KV_F16 ? 2 : 1);
  Memory<__half> x((size_t)n * h), k_scales1(rows * 8), k_scales2(rows * 8), v_scales1(rows), v_scales2(rows);
  Memory<float> projections((size_t)n * all * 128), norms(256), table((size_t)n * 128);
  Memory<int> pos(n), first(n), pages(n_pages);
  Memory<unsigned char> q1((size_t)n * s.heads * 256), q2(q1.n), k1(bytes), k2(bytes), v1(bytes), v2(bytes);
  random_activations<<<64, 256, 0, stream>>>(x.at, n, h, h, 22);
  norms.put(random_floats(256, 24, 1)), table.put(random_floats(table.n, 25));
  std::vector<int> at(n), from(n), order(n_pages);
  for (int i = 0; i < n_pages; i++) order[i] = i / (n_pages / 2) + i % (n_pages / 2) * 2;
  for (int i = 0; i < n; i++)
    at[i] = i == n - 1 ? -1 : i < own ? i : 70 + i - own, from[i] = i < own ? 0 : n_pages / 2;
  pos.put(at), first.put(from), pages.put(order);
  QkvHeads heads = {};
  heads.n_heads = s.heads, heads.n_kv_heads = s.kv_heads, heads.head_dim = 128, heads.n_ctx = KV_PAGE_TOKENS;
  heads.eps = 1e-6f, heads.kv = kv;
  if (with_norms) heads.q_norm = norms.at, heads.k_norm = norms.at + 128;
  heads.rope_table = table.at, heads.pos = pos.at, heads.projections = projections.at;
  heads.pages = {pages.at, first.at, n_pages};
  heads.stride = (size_t)all * 128, heads.query_step = 128, heads.rotary_dim = 128;
  heads.q = q1.at, heads.k_cache = k1.at, heads.v_cache = v1.at;
  heads.k_scales = k_scales1.at, heads.v_scales = v_scales1.at;
  LinearCall call = call_of(qkv, x.at, n, LINEAR_TO_F32, projections.at, all * 128);
  call.kernel = "awq_wgmma", call.variant = variant;
  judge(linear_makes_heads(context, &qkv.w, ACT_F16, n, "awq_wgmma"), "awq_wgmma makes heads", s);
  MUST(linear_run(context, &call, &error));
  MUST(ops_qk_norm_rope_append(&heads, n, stream, &error));
  heads.q = q2.at, heads.k_cache = k2.at, heads.v_cache = v2.at;
  heads.k_scales = k_scales2.at, heads.v_scales = v_scales2.at;
  call.y = NULL, call.next.kind = LINEAR_NEXT_HEADS, call.next.heads = &heads;
  MUST(linear_run(context, &call, &error));
  judge(q1.same(q2), "queries of awq_wgmma", s);
  judge(k1.same(k2) && k_scales1.same(k_scales2), "keys of awq_wgmma", s);
  judge(v1.same(v2) && v_scales1.same(v_scales2), "values of awq_wgmma", s);
}

int main(int argc, char **argv) {
  const bool few = argc > 1 && !strcmp(argv[1], "few");
  if (few) setenv("EMULATED_SMS", "7", 0);
  repeats = few ? 0 : 400;
  int major = 0, minor = 0;
  CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
  if (major != 9 || minor != 0) {
    printf("1 skipped: needs a GPU with wgmma (compute capability 9.0)\n0 passed, 0 failed, 1 skipped\n");
    return 0;
  }
  CHECK(cudaStreamCreate(&stream));
  MUST(linear_open(0, stream, &context, &error));
  for (int n : {9, 16, 17, 24, 31, 32}) {
    if (few && n % 8 == 0 && n != 32) continue;
    const Sizes even = few ? Sizes{384, 640, 3, 1, n} : Sizes{4096, 12288, 32, 8, n};
    check_heads(even, 1);
    check_mlp(even);
    const Sizes odd = few ? Sizes{256, 256, 2, 2, n} : Sizes{5120, 17408, 40, 8, n};
    check_heads(odd, 1);
    check_heads(odd, 1e5f);
    check_mlp(odd);
  }
  /* Tokens and a tile shape of awq_wgmma for them: 128 cut and whole, 160 cut, 256 whole and by pairs. */
  const int wide[][2] = {{129, 3}, {160, 17}, {300, 4}, {1000, 20}, {2048, 6}};
  for (const int(&w)[2] : wide) {
    if (few && w[0] > 160) continue;
    for (KvType kv : {KV_F16, KV_Q8})
      for (bool with_norms : {false, true})
        check_wide_heads(few ? Sizes{512, 0, 2, 1, w[0]} : Sizes{4096, 0, 32, 8, w[0]}, w[1], kv, with_norms);
  }
  const long before = copies_to_pairs();
  const Sizes of_pairs = {512, 0, 4, 1, 500};
  for (KvType kv : {KV_F16, KV_Q8})
    if (few) check_wide_heads(of_pairs, 6, kv, true);
  if (few && before >= 0) judge(copies_to_pairs() > before, "pairs of blocks that share x", of_pairs);
  printf("%d passed, %d failed\n", passed, failed);
  linear_close(context);
  return failed != 0;
}
