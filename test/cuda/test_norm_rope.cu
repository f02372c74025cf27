/* test_norm_rope.cu - the operations of norm_rope.h, short_conv.h and values.h against the same formulas in
 * double on the host.
 *
 * Tolerances are relative to the largest number of a result: fp16 rounds to 2^-11 of each, fp32 sums and fast
 * functions err by some 2^-20; so 2^-10 for fp16 and 2^-17 for fp32. 8 bits err by half of a 127th. Memory
 * after the results stays unchanged. Needs a GPU; prints `N passed, N failed`. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <string.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "cuda/kernels/cache/q8.cuh"
#include "cuda/kernels/ops/add_norm.h"
#include "cuda/kernels/ops/norm_rope.h"
#include "cuda/kernels/ops/short_conv.h"
#include "cuda/kernels/ops/values.h"
#include "test/cuda/device_copy.cuh"
#include "test/cuda/random_numbers.cuh"

typedef std::vector<double> Row;

static const double HALF = 0x1p-10, SINGLE = 0x1p-17, EIGHT_BITS = 1 / 250.0;
static const float UNTOUCHED = -7.75f;
static int passed, failed;

static std::vector<__half> untouched_halves(size_t n) {
  return std::vector<__half>(n, __float2half_rn(UNTOUCHED));
}

/* Compares got and want, of equal size, to `tolerance` of the largest number wanted. */
static void expect(const char *what, int number, const Row &got, const Row &want, double tolerance) {
  double most = 0, worst = 0;
  size_t where = 0;
  for (double v : want) most = std::max(most, fabs(v));
  for (size_t i = 0; i < want.size(); i++) {
    const double off = fabs(got[i] - want[i]);
    if (!(off <= worst)) worst = off, where = i; /* NaN stays */
  }
  const bool good = got.size() == want.size() && worst <= tolerance * most;
  if (!good)
    printf("FAILED %s %d: number %zu of %zu is %.9g, expected %.9g\n", what, number, where, want.size(),
           got[where], want[where]);
  good ? passed++ : failed++;
}

/* Inputs of matmuls: fp16 rows with a gap after each. */
struct Rows {
  int n, n_tokens, stride;
  Device<__half> memory;
  Rows(int n_, int n_tokens_)
      : n(n_), n_tokens(n_tokens_), stride(n_ + 8), memory(untouched_halves((size_t)stride * n_tokens_)) {}
  void expect_numbers(const char *what, int number, const Row &want) const {
    const std::vector<__half> got = memory.host();
    Row numbers, gaps;
    for (size_t i = 0; i < got.size(); i++)
      ((int)(i % stride) < n ? numbers : gaps).push_back(__half2float(got[i]));
    expect(what, number, numbers, want, HALF);
    expect("what follows the rows of", number, gaps, Row(gaps.size(), UNTOUCHED), 0);
  }
};

static double scale_of(const float *x, int n, double eps) {
  double squares = 0;
  for (int i = 0; i < n; i++) squares += (double)x[i] * x[i];
  return 1 / sqrt(squares / n + eps);
}

static Row converted(const Floats &from) {
  return Row(from.begin(), from.end());
}

/* The sum times a scalar, and its own norm: x = 0.375 * (sum + normed). */
static void test_next_norm(AddNorm add, const Floats &sum, const Row &normed) {
  const int n = add.n, n_tokens = (int)sum.size() / n;
  const Floats weight = random_numbers(n, 0.5f, 1.5f), scalar = {0.375f};
  Device<float> x(sum), weight_device(weight), scalar_device(scalar);
  Rows next(n, n_tokens);
  Row added, want;
  Floats rounded;
  for (size_t i = 0; i < sum.size(); i++) added.push_back((sum[i] + normed[i]) * scalar[0]);
  for (double v : added) rounded.push_back((float)v);
  add.x = x.at, add.scalar = scalar_device.at, add.next_weight = weight_device.at, add.next_eps = 0.25f;
  add.out = next.memory.at, add.out_stride = next.stride;
  MUST(ops_add_rms_norm(&add, n_tokens, 0, &error));
  for (size_t i = 0; i < sum.size(); i++)
    want.push_back(added[i] * scale_of(&rounded[i / n * n], n, 0.25) * weight[i % n]);
  expect("ops_add_rms_norm, scaled", n, converted(x.host()), added, SINGLE);
  next.expect_numbers("the norm after ops_add_rms_norm", n, want);
}

/* The same norm with a bias and without one, as halves, as floats, and as both. */
static void test_norm_rows(int n, int n_tokens, float eps, const Device<float> &x,
                           const Device<float> &weight, const Row &normed) {
  const Floats bias = random_numbers(n, -1, 1);
  Device<float> bias_device(bias), wide(Floats(normed.size(), 7));
  Rows halves(n, n_tokens), more(n, n_tokens);
  Row biased;
  for (size_t i = 0; i < normed.size(); i++) biased.push_back(normed[i] + bias[i % n]);
  NormRows call = {};
  call.x = x.at, call.weight = weight.at, call.x_stride = n, call.eps = eps, call.factor = 1, call.n = n;
  call.out_stride = halves.stride;
  call.bias = bias_device.at, call.out = halves.memory.at;
  MUST(ops_norm_rows(&call, n_tokens, 0, &error));
  halves.expect_numbers("ops_norm_rows", n, biased);
  call.wide = wide.at, call.out = NULL;
  MUST(ops_norm_rows(&call, n_tokens, 0, &error));
  expect("ops_norm_rows in fp32", n, converted(wide.host()), biased, SINGLE);
  call.bias = NULL, call.out = more.memory.at;
  MUST(ops_norm_rows(&call, n_tokens, 0, &error));
  more.expect_numbers("ops_norm_rows without a bias", n, normed);
  expect("ops_norm_rows without a bias in fp32", n, converted(wide.host()), normed, SINGLE);
}

/* eps is large relative to the squares, so that leaving it out shows. The sizes cover each norm kernel: rows
 * in the registers of 512 and of 1,024 threads, ends that are no multiple of the block, rows that are read
 * twice. */
static void test_norms() {
  const float eps = 0.75f;
  for (int n : {4, 64, 516, 4096, 4100, 8192, 8196, 30, 1001}) {
    const int n_tokens = 3;
    const Floats x = random_numbers((size_t)n * n_tokens, -2, 3), weight = random_numbers(n, 0.5f, 1.5f);
    const Floats sum = random_numbers(x.size(), -1, 1);
    Device<float> x_device(x), weight_device(weight), sum_device(sum);
    Row normed, rounded, added;
    for (size_t i = 0; i < x.size(); i++) {
      normed.push_back(x[i] * scale_of(&x[i / n * n], n, eps) * weight[i % n]);
      rounded.push_back(x[i] * 0.125);
      added.push_back(sum[i] + normed[i]);
    }
    Rows norm(n, n_tokens), round(n, n_tokens);
    MUST(ops_rms_norm(x_device.at, weight_device.at, eps, n, n_tokens, norm.memory.at, norm.stride, 0,
                      &error));
    norm.expect_numbers("ops_rms_norm", n, normed);
    test_norm_rows(n, n_tokens, eps, x_device, weight_device, normed);
    MUST(ops_round(x_device.at, n, 0.125f, n, n_tokens, round.memory.at, round.stride, 0, &error));
    round.expect_numbers("ops_round", n, rounded);
    AddNorm add = {};
    add.y = x_device.at, add.weight = weight_device.at, add.eps = eps, add.n = n, add.x = sum_device.at;
    MUST(ops_add_rms_norm(&add, n_tokens, 0, &error));
    expect("ops_add_rms_norm", n, converted(sum_device.host()), added, SINGLE);
    test_next_norm(add, sum, normed);
    for (size_t i = 0; i < x.size(); i++) normed[i] *= 1.5 / weight[i % n];
    const NormRows plain = {x_device.at, NULL, NULL, (size_t)n, eps, 1.5f, n, (float *)x_device.at, NULL, 0};
    MUST(ops_norm_rows(&plain, n_tokens, 0, &error));
    expect("ops_norm_rows in place, without weights", n, converted(x_device.host()), normed, SINGLE);
    MUST(ops_centre((float *)x_device.at, n, n_tokens, 0, &error));
    for (int row = 0; row < n_tokens; row++) {
      const auto first = normed.begin() + (size_t)row * n;
      const double mean = std::accumulate(first, first + n, 0.0) / n;
      for (int i = 0; i < n; i++) first[i] -= mean;
    }
    expect("ops_centre", n, converted(x_device.host()), normed, SINGLE);
    MUST(ops_clip((float *)x_device.at, n, n - 1, 0.5f, n_tokens, 0, &error));
    for (size_t i = 0; i < normed.size(); i++)
      if (i % n < (size_t)n - 1) normed[i] = std::max(-0.5, std::min(0.5, normed[i]));
    expect("ops_clip", n, converted(x_device.host()), normed, SINGLE);
  }
}

static void test_norm_q_k() {
  const int n_q = 700, n_k = 130, stride = 990, n_tokens = 3;
  const float eps = 0.5f;
  const Floats rows = random_numbers((size_t)stride * n_tokens, -2, 2);
  const Floats q = random_numbers(n_q, 0.5f, 1.5f), k = random_numbers(n_k, 0.5f, 1.5f);
  Device<float> device(rows), q_device(q), k_device(k);
  MUST(ops_rms_norm_qk(device.at, stride, n_q, n_k, q_device.at, k_device.at, eps, n_tokens, 0, &error));
  Row want = converted(rows);
  for (int row = 0; row < n_tokens; row++) {
    const float *from = &rows[(size_t)row * stride];
    for (int i = 0; i < n_q + n_k; i++)
      want[(size_t)row * stride + i] *=
          i < n_q ? scale_of(from, n_q, eps) * q[i] : scale_of(from + n_q, n_k, eps) * k[i - n_q];
  }
  expect("ops_rms_norm_qk", n_q, converted(device.host()), want, SINGLE);
}

/* Heads far from a mean of 0, each with weights of its own, in rows that hold other numbers after them. */
static void test_centred_heads() {
  const int n_q = 3, n_k = 2, n_tokens = 3;
  const float eps = 0.5f;
  for (int dim : {8, 64, 128, 192}) {
    const int n = (n_q + n_k) * dim, stride = n + 5;
    const Floats rows = random_numbers((size_t)stride * n_tokens, 1, 4);
    const Floats q = random_numbers((size_t)n_q * dim, 0.5f, 1.5f),
                 k = random_numbers((size_t)n_k * dim, 0.5f, 1.5f);
    Device<float> device(rows), q_device(q), k_device(k);
    MUST(ops_centred_norm_heads(device.at, stride, n_q, n_k, dim, q_device.at, k_device.at, eps, n_tokens, 0,
                                &error));
    Row want = converted(rows);
    for (int row = 0; row < n_tokens; row++)
      for (int head = 0; head < n_q + n_k; head++) {
        double *x = &want[(size_t)row * stride + (size_t)head * dim], mean = 0, squares = 0;
        for (int i = 0; i < dim; i++) mean += x[i] / dim;
        for (int i = 0; i < dim; i++) squares += (x[i] - mean) * (x[i] - mean);
        for (int i = 0; i < dim; i++)
          x[i] = (x[i] - mean) / sqrt(squares / dim + eps) *
                 (head < n_q ? q[(size_t)head * dim + i] : k[(size_t)(head - n_q) * dim + i]);
      }
    expect("ops_centred_norm_heads", dim, converted(device.host()), want, SINGLE);
  }
}

/* Rows of nGPT: x on its sphere, and rows that are multiplied or made to length 1 between other numbers. */
static void test_sphere() {
  const float eps = 0.5f;
  const int n_tokens = 3;
  for (int n : {6, 300, 1200}) {
    const int stride = n + 6;
    const Floats x = random_numbers((size_t)n * n_tokens, -2, 2), rates = random_numbers(n, 0, 1);
    Device<float> x_device(x), rates_device(rates), start(x);
    Row want = converted(x), sum = converted(x);
    const auto norm = [&](const Floats *by) {
      for (int row = 0; row < n_tokens; row++) {
        double squares = 0;
        for (int i = 0; i < n; i++) squares += want[(size_t)row * n + i] * want[(size_t)row * n + i];
        for (int i = 0; i < n; i++)
          want[(size_t)row * n + i] *= (by ? 1 - (*by)[i] : 1) / sqrt(squares / n + eps);
      }
    };
    MUST(ops_norm_plus(x_device.at, rates_device.at, NULL, false, eps, n, n_tokens, 0, &error));
    norm(&rates);
    expect("ops_norm_plus with rates", n, converted(x_device.host()), want, SINGLE);
    for (bool first : {true, false}) {
      MUST(ops_norm_plus(x_device.at, NULL, start.at, first, eps, n, n_tokens, 0, &error));
      norm(NULL);
      if (first) sum = want;
      for (size_t i = 0; i < want.size(); i++) want[i] += sum[i];
      expect("ops_norm_plus at a loop", n, converted(x_device.host()), want, SINGLE);
      expect("start of loops", n, converted(start.host()), sum, SINGLE);
    }
    const Floats rows = random_numbers((size_t)stride * n_tokens, -2, 2);
    std::vector<__half> halves;
    const auto as_numbers = [](const Device<__half> &from) {
      Row numbers;
      for (__half number : from.host()) numbers.push_back(__half2float(number));
      return numbers;
    };
    for (float number : rows) halves.push_back(__float2half(number));
    Device<float> rows_device(rows);
    Device<__half> halves_device(halves), length_device(halves);
    MUST(ops_multiply(rows_device.at, false, stride, n, rates_device.at, 0, n_tokens, 0, &error));
    MUST(ops_multiply(halves_device.at, true, stride, n, rates_device.at, 0, n_tokens, 0, &error));
    MUST(ops_multiply(length_device.at, true, stride, n, NULL, eps, n_tokens, 0, &error));
    Row multiplied = converted(rows), lengths = converted(rows);
    for (int row = 0; row < n_tokens; row++) {
      const float *from = &rows[(size_t)row * stride];
      double squares = 0;
      for (int i = 0; i < n; i++) squares += from[i] * from[i];
      for (int i = 0; i < n; i++) {
        multiplied[(size_t)row * stride + i] *= rates[i];
        lengths[(size_t)row * stride + i] /= sqrt(squares + eps);
      }
    }
    expect("ops_multiply", n, converted(rows_device.host()), multiplied, SINGLE);
    expect("ops_multiply of halves", n, as_numbers(halves_device), multiplied, HALF);
    expect("ops_multiply without factors", n, as_numbers(length_device), lengths, HALF);
  }
}

template <class T> static void test_embed(Dtype dtype, float scale) {
  const int hidden = 300, stride = 308, vocab = 9;
  const std::vector<int> ids = {8, 0, 5};
  const Floats numbers = random_numbers((size_t)stride * vocab, -2, 2);
  std::vector<T> table;
  for (float v : numbers) table.push_back((T)v);
  Device<T> device(table);
  Device<int> ids_device(ids);
  Device<float> x(Floats(hidden * ids.size() + 16, UNTOUCHED));
  MUST(ops_embed(device.at, dtype, hidden, stride, ids_device.at, (int)ids.size(), scale, x.at, 0, &error));
  Row want;
  for (int id : ids)
    for (int i = 0; i < hidden; i++) want.push_back((double)(float)table[(size_t)id * stride + i] * scale);
  want.insert(want.end(), 16, UNTOUCHED);
  expect("ops_embed", (int)dtype, converted(x.host()), want, 0x1p-23);
  /* Here a row of the table has `stride` numbers. A negative index stands for row 0. */
  const std::vector<int> rows = {-1, 8, 2};
  Device<int> rows_device(rows);
  Device<float> sum(Floats(stride * rows.size(), 0.5f));
  MUST(ops_add_rows(device.at, dtype, stride, rows_device.at, (int)rows.size(), sum.at, 0, &error));
  want.clear();
  for (int row : {0, 8, 2})
    for (int i = 0; i < stride; i++) want.push_back(0.5 + (double)(float)table[(size_t)row * stride + i]);
  expect("ops_add_rows", (int)dtype, converted(sum.host()), want, 0x1p-23);
}

static void test_place_and_rope() {
  Device<int> pos({1, 1, 1}), ids({2, 3, 4});
  const int32_t new_ids[] = {7, 8};
  MUST(ops_set_step(pos.at, 41, 1, ids.at, NULL, 0, 0, &error));
  expect("ops_set_step, no id", 0, {(double)pos.host()[0], (double)ids.host()[0]}, {41, 2}, 0);
  expect("ops_set_step, one row", 0, {(double)pos.host()[1]}, {1}, 0);
  const int half = 70, n_tokens = 3;
  MUST(ops_set_step(pos.at, 1000, n_tokens, ids.at, new_ids, 2, 0, &error));
  expect("ops_set_step", 0, {(double)pos.host()[0], (double)pos.host()[2]}, {1000, 1002}, 0);
  expect("ops_set_step, ids", 0, {(double)ids.host()[0], (double)ids.host()[1], (double)ids.host()[2]},
         {7, 8, 4}, 0);
  const Floats frequencies = random_numbers(half, 0.0001f, 1);
  Device<float> device(frequencies), table(Floats(2 * half * n_tokens + 2, UNTOUCHED));
  const Floats long_frequencies = random_numbers(half, 0.0001f, 1);
  Device<float> long_device(long_frequencies);
  Device<int> is_long({0, 1, 0});
  for (bool by_row : {false, true}) {
    RopeAngles angles = {};
    angles.frequencies = device.at, angles.long_frequencies = long_device.at, angles.half = half;
    angles.attention_factor = 1.25f, angles.long_factor = 0.75f, angles.pos = pos.at;
    angles.is_long = by_row ? is_long.at : NULL;
    MUST(ops_rope_table(&angles, n_tokens, table.at, 0, &error));
    Row want;
    for (int row = 0; row < n_tokens; row++)
      for (int i = 0; i < half; i++) {
        const bool other = by_row && row == 1;
        const float angle = (float)(1000 + row) * (other ? long_frequencies : frequencies)[i];
        const double factor = other ? 0.75 : 1.25;
        want.push_back(cos((double)angle) * factor), want.push_back(sin((double)angle) * factor);
      }
    want.push_back(UNTOUCHED), want.push_back(UNTOUCHED);
    expect("ops_rope_table", half, converted(table.host()), want, SINGLE);
  }
  const Floats x = random_numbers(4 * 300, -1, 1);
  Device<float> x_device(x), gathered(Floats(2 * 300 + 1, UNTOUCHED));
  Device<int> rows({3, 1});
  MUST(ops_gather_rows(x_device.at, rows.at, 300, 2, gathered.at, 0, &error));
  Row of_rows(x.begin() + 900, x.end());
  of_rows.insert(of_rows.end(), x.begin() + 300, x.begin() + 600), of_rows.push_back(UNTOUCHED);
  expect("ops_gather_rows", 300, converted(gathered.host()), of_rows, 0);
}

/* How heads differ from Qwen3's: pairs of neighbours, norms after the rope, queries scaled by position. */
struct Kind {
  bool neighbours, norm_after;
  float beta;
  bool plain_norms, k_as_v; /* norms of q, k and v without weights; v is k before its norm */
};

static void normalise(Row &head, const float *weight, double eps) {
  double squares = 0;
  for (double v : head) squares += v * v;
  const double scale = 1 / sqrt(squares / (double)head.size() + eps);
  for (size_t i = 0; i < head.size(); i++) head[i] *= scale * (weight ? weight[i] : 1);
}

/* One head after norm and rope; weight NULL: no norm, unless norms have no weights. */
static Row head_of(const float *from, int head_dim, int rotary, const float *weight, double eps,
                   const float *turns, const Kind &kind) {
  Row head(from, from + head_dim);
  const bool has_norm = weight || kind.plain_norms;
  if (has_norm && !kind.norm_after) normalise(head, weight, eps);
  for (int i = 0; i < rotary / 2; i++) {
    const int one = kind.neighbours ? 2 * i : i, other = kind.neighbours ? 2 * i + 1 : i + rotary / 2;
    const double low = head[one], high = head[other], c = turns[2 * i], s = turns[2 * i + 1];
    head[one] = low * c - high * s;
    head[other] = high * c + low * s;
  }
  if (has_norm && kind.norm_after) normalise(head, weight, eps);
  return head;
}

/* n_kv KV heads with two query heads each; the cache has positions before and after the step's. With norms,
 * other numbers follow each query, as gates do. Pages: the cache has three, and the sequence has the last and
 * the first of them; row 1 belongs to no sequence. */
template <class T>
static void test_heads_of(KvType kv, int head_dim, int rotary, bool norms, const Kind &kind, int n_kv,
                          int n_tokens, bool paged = false) {
  const int n_heads = 2 * n_kv, all = n_heads + 2 * n_kv, n_ctx = paged ? KV_PAGE_TOKENS : n_tokens + 5,
            pos = paged ? 62 : 3, step = 4;
  const std::vector<int> pages = {7, 2, 0};
  const float eps = 0.5f;
  const int query_step = norms ? 2 * head_dim : head_dim,
            stride = n_heads * query_step + (kind.k_as_v ? 1 : 2) * n_kv * head_dim + (norms ? 5 : 0);
  const Floats from = random_numbers((size_t)n_tokens * stride, -2, 2),
               turns = random_numbers((size_t)n_tokens * rotary + 1, -1, 1),
               q_norm = random_numbers(head_dim, 0.5f, 1.5f), k_norm = random_numbers(head_dim, 0.5f, 1.5f);
  const size_t cache = (size_t)n_kv * n_ctx * head_dim * (paged ? 3 : 1);
  Device<float> from_device(from), turns_device(turns), q_device(q_norm), k_device(k_norm);
  const float zero = sizeof(T) == 1 ? 128 : 0; /* how the cache keeps 0 */
  const T untouched = sizeof(T) == 1 ? (T)(128 + (int)UNTOUCHED) : (T)UNTOUCHED;
  Device<T> keys(std::vector<T>(cache, untouched)), values(std::vector<T>(cache, untouched));
  const size_t n_rows = cache / head_dim, n_scales = kv_key_scales(kv, head_dim);
  Device<__half> k_scales(std::vector<__half>(n_rows * n_scales + 1, __float2half_rn(1))),
      v_scales(std::vector<__half>(n_rows + 1, __float2half_rn(1)));
  std::vector<int> positions, first(n_tokens, 1);
  for (int row = 0; row < n_tokens; row++) positions.push_back(paged && row == 1 ? -1 : pos + row);
  Device<int> pos_device(positions), pages_device(pages), first_device(first);
  const size_t width = (size_t)n_heads * head_dim;
  Device<__half> q(untouched_halves(n_tokens * width));
  QkvHeads heads = {};
  heads.n_heads = n_heads, heads.n_kv_heads = n_kv, heads.head_dim = head_dim, heads.n_ctx = n_ctx;
  heads.eps = eps, heads.kv = kv, heads.rotary_dim = rotary, heads.rope_table = turns_device.at;
  heads.pos = pos_device.at, heads.projections = from_device.at, heads.q = q.at;
  heads.stride = (size_t)stride, heads.query_step = query_step;
  heads.k_cache = keys.at, heads.v_cache = values.at;
  heads.k_scales = k_scales.at, heads.v_scales = v_scales.at;
  heads.neighbours = kind.neighbours, heads.norm_after_rope = kind.norm_after;
  heads.query_scale_beta = kind.beta, heads.query_scale_step = step;
  heads.plain_qk_norm = heads.v_norm = kind.plain_norms, heads.k_as_v = kind.k_as_v;
  if (norms) heads.q_norm = q_device.at, heads.k_norm = k_device.at;
  if (paged) heads.pages = {pages_device.at, first_device.at, 3};
  MUST(ops_qk_norm_rope_append(&heads, n_tokens, 0, &error));
  Row want_q, want_k(cache, (double)((float)untouched - zero)), want_v(want_k), got_q;
  for (int row = 0; row < n_tokens; row++)
    for (int h = 0; h < all; h++) {
      const bool is_q = h < n_heads, is_v = h >= n_heads + n_kv;
      const float *in =
          &from[(size_t)row * stride] +
          (is_q ? h * query_step
                : n_heads * query_step + (h - n_heads - (is_v && kind.k_as_v ? n_kv : 0)) * head_dim);
      const float *weight = !norms ? NULL : is_q ? q_norm.data() : k_norm.data();
      Row head = Row(in, in + head_dim);
      if (is_v && kind.plain_norms) normalise(head, NULL, eps);
      if (!is_v) head = head_of(in, head_dim, rotary, weight, eps, &turns[(size_t)row * rotary], kind);
      for (double &v : head)
        if (is_q) v *= 1 + (double)kind.beta * log(1 + floor((double)(pos + row) / step));
      const int kv_head = h - n_heads - (is_v ? n_kv : 0);
      if (paged && row == 1) {
        if (is_q) want_q.insert(want_q.end(), head.begin(), head.end());
        continue;
      }
      const size_t at =
          paged ? ((size_t)pages[1 + (pos + row) / n_ctx] * n_kv + kv_head) * n_ctx + (pos + row) % n_ctx
                : (size_t)kv_head * n_ctx + pos + row;
      if (is_q)
        want_q.insert(want_q.end(), head.begin(), head.end());
      else
        std::copy(head.begin(), head.end(), (is_v ? want_v : want_k).begin() + at * head_dim);
    }
  for (__half v : q.host()) got_q.push_back(__half2float(v));
  const double tolerance = kv == KV_F32 ? SINGLE : kv == KV_Q8 ? EIGHT_BITS : HALF;
  const std::vector<T> k = keys.host(), v = values.host();
  const std::vector<__half> k_scale = k_scales.host(), v_scale = v_scales.host();
  Row got_k, got_v;
  for (size_t i = 0; i < cache; i++) {
    const size_t row = i / head_dim, group = i % head_dim / KEY_SCALE_DIMS;
    got_k.push_back(((float)k[i] - zero) * (n_scales ? __half2float(k_scale[row * n_scales + group]) : 1));
    got_v.push_back(((float)v[i] - zero) * (n_scales ? __half2float(v_scale[row]) : 1));
  }
  expect("ops_qk_norm_rope_append, queries of", head_dim, got_q, want_q, HALF);
  expect("ops_qk_norm_rope_append, keys of", head_dim, got_k, want_k, tolerance);
  expect("ops_qk_norm_rope_append, values of", head_dim, got_v, want_v, tolerance);
}

/* Makes some heads hard to round: numbers half between two of the cache, of very different size, too small or
 * too large for a scale, or not finite. */
static void make_hard(float *head, int head_dim, int kind, int seed) {
  for (int d = 0; d < head_dim; d++) {
    float &x = head[d];
    const float scale = ldexpf((float)(64 + seed % 64), -9), sign = x < 0 ? -1.0f : 1.0f;
    if (kind == 1) x = sign * scale * (d % KEY_SCALE_DIMS == 0 ? 127 : (float)((d * 5 + seed) % 127) + 0.5f);
    if (kind == 2) x = ldexpf(x, (d * 7 + seed) % 60 - 50);
    if (kind == 3 && d / KEY_SCALE_DIMS % 2 == 0) x = 0;
    if (kind == 4) x *= seed % 2 ? 1e-5f : 1e9f;
    if (kind == 5 && d == seed % head_dim) x = seed % 2 ? NAN : INFINITY;
  }
}

/* Numbers, scales and what lies between are the same to the bit as by the CPU backend's formula, from
 * projections that no norm or rope changes. */
static void test_eight_bits(int head_dim, int n_tokens) {
  const int n_kv = 4, all = 3 * n_kv, n_scales = key_scales(head_dim);
  Floats from = random_numbers((size_t)n_tokens * all * head_dim, -2, 2);
  for (int i = n_kv; i < n_tokens * all; i++) make_hard(&from[(size_t)i * head_dim], head_dim, i % 6, i);
  std::vector<int> positions(n_tokens);
  std::iota(positions.begin(), positions.end(), 0);
  Device<float> from_device(from);
  Device<int> pos(positions);
  const size_t rows = (size_t)n_kv * n_tokens;
  Device<__half> q(untouched_halves(rows * head_dim)), k_scales(untouched_halves(rows * n_scales + 1)),
      v_scales(untouched_halves(rows + 1));
  Device<uint8_t> k(std::vector<uint8_t>(rows * head_dim + 1, 9)), v(k.host());
  QkvHeads heads = {};
  heads.n_heads = heads.n_kv_heads = n_kv, heads.head_dim = heads.query_step = head_dim;
  heads.n_ctx = n_tokens, heads.kv = KV_Q8, heads.pos = pos.at;
  heads.projections = from_device.at, heads.stride = (size_t)all * head_dim, heads.q = q.at;
  heads.k_cache = k.at, heads.v_cache = v.at, heads.k_scales = k_scales.at, heads.v_scales = v_scales.at;
  MUST(ops_qk_norm_rope_append(&heads, n_tokens, 0, &error));
  for (bool is_value : {false, true}) {
    const int each = is_value ? head_dim : KEY_SCALE_DIMS, n = is_value ? 1 : n_scales;
    std::vector<uint8_t> want(rows * head_dim + 1, 9);
    Row want_scales(rows * n + 1, UNTOUCHED), got_scales;
    for (size_t i = 0; i < rows * n; i++) {
      const size_t row = i / n, first = i % n * each, end = std::min<size_t>(first + each, head_dim);
      const float *x = &from[(row % n_tokens * all + (is_value ? 2 : 1) * n_kv + row / n_tokens) * head_dim];
      float largest = 0, strange = 0;
      for (size_t d = first; d < end; d++) largest = std::max(largest, fabsf(x[d])), strange += x[d] - x[d];
      const float wanted = strange == 0 ? largest / 127 : NAN;
      __half scale = __float2half_rn(wanted);
      const unsigned bits = __half_as_ushort(scale) + (__half2float(scale) < wanted);
      if (strange == 0) scale = __ushort_as_half((unsigned short)((bits + 15) & ~15u));
      const float s = __half2float(scale);
      want_scales[i] = strange == 0 ? s : -1;
      for (size_t d = first; d < end; d++)
        want[row * head_dim + d] = (uint8_t)(128 + (s > 0 ? (int)rintf(x[d] / s) : 0));
    }
    for (__half scale : (is_value ? v_scales : k_scales).host())
      got_scales.push_back(std::isnan(__half2float(scale)) ? -1 : __half2float(scale));
    for (double &scale : want_scales) scale = std::min(scale, 1e6); /* infinite ones are compared, too */
    for (double &scale : got_scales) scale = std::min(scale, 1e6);
    const std::vector<uint8_t> got = (is_value ? v : k).host();
    expect("ops_qk_norm_rope_append, scales to the bit of", head_dim, got_scales, want_scales, 0);
    expect("ops_qk_norm_rope_append, 8 bits to the bit of", head_dim, Row(got.begin(), got.end()),
           Row(want.begin(), want.end()), 0);
  }
}

/* From 65 tokens on a warp takes several heads, if their counts allow it. */
template <class T> static void test_heads(KvType kv, int head_dim, int rotary, bool norms, const Kind &kind) {
  test_heads_of<T>(kv, head_dim, rotary, norms, kind, 3, 2);
  if (norms && kind.beta == 0) test_heads_of<T>(kv, head_dim, rotary, norms, kind, 3, 4, true);
  if (norms && kv != KV_F32 && (rotary == 64 || rotary == 124 || rotary == 128))
    test_heads_of<T>(kv, head_dim, rotary, norms, kind, 4, 65);
}

/* Gates among the queries, as a layer of their own, and one for each head; rows with a gap. As sigmoids and
 * as softplus, also of gates so large that e^gate is infinite in fp32 or a product more than fp16 holds. */
static void test_gate_heads() {
  const int n_heads = 3, n_tokens = 2;
  for (int head_dim : {2, 34, 256})
    for (int form = 0; form < 6; form++) {
      const bool by_head = form % 3 == 2, softplus = form >= 3;
      const int step = by_head ? 1 : form % 3 == 0 ? 2 * head_dim : head_dim, stride = n_heads * step + 3;
      Floats gates = random_numbers((size_t)n_tokens * stride, -4, 4);
      if (softplus) gates[0] = form == 3 ? 1e9f : 100;
      Device<float> gates_device(gates);
      std::vector<__half> a;
      Row want, got;
      for (float v : random_numbers((size_t)n_tokens * n_heads * head_dim, -2, 2))
        a.push_back(__float2half_rn(v));
      for (size_t i = 0; i < a.size(); i++) {
        const int head = (int)i / head_dim % n_heads, row = (int)i / head_dim / n_heads;
        const float gate = gates[(size_t)row * stride + head * step + (by_head ? 0 : i % head_dim)];
        const double factor =
            softplus ? fmax(gate, 0) + log1p(exp(-fabs((double)gate))) : 1 / (1 + exp(-(double)gate));
        const double product = __half2float(a[i]) * factor;
        want.push_back(fmin(fmax(product, -65504), 65504));
      }
      Device<__half> device(a);
      const HeadGates all = {gates_device.at, (size_t)stride, step, by_head, softplus, n_heads, head_dim};
      MUST(ops_gate_heads(&all, n_tokens, device.at, 0, &error));
      for (__half v : device.host()) got.push_back(__half2float(v));
      expect("ops_gate_heads", head_dim, got, want, HALF);
    }
}

/* Queries alone, as in a layer that shares keys and values, are the same as with keys and values. */
static void test_queries_alone() {
  const int n_heads = 5, n_kv = 2, head_dim = 64, n_tokens = 2, stride = (n_heads + 2 * n_kv) * head_dim;
  const Floats from = random_numbers((size_t)n_tokens * stride, -2, 2),
               turns = random_numbers(n_tokens * 64, -1, 1);
  Device<float> from_device(from), turns_device(turns);
  Device<__half> cache(untouched_halves((size_t)n_kv * n_tokens * head_dim));
  Device<int> pos({0, 1});
  Row got[2];
  for (int with_keys = 0; with_keys < 2; with_keys++) {
    Device<__half> q(untouched_halves((size_t)n_tokens * n_heads * head_dim));
    QkvHeads heads = {};
    heads.n_heads = n_heads, heads.n_kv_heads = with_keys ? n_kv : 0, heads.head_dim = head_dim;
    heads.n_ctx = n_tokens, heads.rotary_dim = head_dim, heads.rope_table = turns_device.at;
    heads.pos = pos.at, heads.projections = from_device.at, heads.q = q.at;
    heads.stride = (size_t)stride, heads.query_step = head_dim;
    if (with_keys) heads.k_cache = heads.v_cache = cache.at;
    MUST(ops_qk_norm_rope_append(&heads, n_tokens, 0, &error));
    for (__half v : q.host()) got[with_keys].push_back(__half2float(v));
  }
  expect("ops_qk_norm_rope_append, queries alone of", head_dim, got[0], got[1], 0);
}

template <class T> static void test_layer_inputs(Dtype dtype) {
  const int n_layers = 3, width = 150, vocab = 6;
  const float eps = 0.5f;
  const std::vector<int> ids = {5, 0, 7}; /* 7 is beyond the table, and has row 0 */
  const Floats numbers = random_numbers((size_t)vocab * n_layers * width, -2, 2),
               p = random_numbers(ids.size() * n_layers * width, -2, 2),
               weight = random_numbers(width, 0.5f, 1.5f);
  std::vector<T> table;
  for (float v : numbers) table.push_back((T)v);
  Device<T> table_device(table);
  Device<int> ids_device(ids);
  Device<float> p_device(p), weight_device(weight);
  const LayerInputs call = {table_device.at, dtype,         n_layers,         width,
                            vocab,           ids_device.at, weight_device.at, eps};
  MUST(ops_layer_inputs(&call, (int)ids.size(), p_device.at, 0, &error));
  Row want;
  for (size_t i = 0; i < p.size(); i++) {
    const size_t part = i / width * width, row = i / (n_layers * width), column = i % (n_layers * width);
    const double normed = p[i] * scale_of(&p[part], width, eps) * weight[i % width];
    want.push_back((normed + sqrt(width) * (double)(float)table[ids[row] % 7 * n_layers * width + column]) /
                   sqrt(2));
  }
  expect("ops_layer_inputs", (int)dtype, converted(p_device.host()), want, SINGLE);
}

static void test_gated() {
  const int n_tokens = 2;
  for (int n : {40, 41, 256, 300})
    for (Activation activation : {ACTIVATION_SILU, ACTIVATION_GELU_TANH, ACTIVATION_RELU,
                                  ACTIVATION_GELU_ALONE, ACTIVATION_GELU_EXACT, ACTIVATION_LIMITED}) {
      const Floats x = random_numbers((size_t)n_tokens * 2 * n, -4, 4);
      Device<float> device(x);
      Rows out(n, n_tokens);
      const float factor = n == 300 ? 0.5f : 1, up_factor = n == 300 ? 1.5f : 1;
      const bool alone = is_ungated(activation);
      Gated call = {activation,    factor,        up_factor, device.at,     device.at + (alone ? 0 : n),
                    2 * (size_t)n, 2 * (size_t)n, n,         out.memory.at, out.stride};
      call.limit = 0.75f;
      MUST(ops_gated(&call, n_tokens, 0, &error));
      Row want;
      for (int row = 0; row < n_tokens; row++)
        for (int i = 0; i < n; i++) {
          const double g = factor * x[(size_t)row * 2 * n + i],
                       up = up_factor * x[(size_t)row * 2 * n + n + i];
          const double silu = g / (1 + exp(-g)),
                       gelu = g / 2 * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
          want.push_back(activation == ACTIVATION_GELU_ALONE   ? gelu
                         : activation == ACTIVATION_GELU_EXACT ? g / 2 * erfc(-g / sqrt(2.0))
                         : activation == ACTIVATION_RELU       ? std::max(g, 0.0) * (up_factor / factor * g)
                         : activation == ACTIVATION_SILU       ? silu * up
                         : activation == ACTIVATION_LIMITED
                             ? std::min(silu, 0.75) * std::clamp(up, -0.75, 0.75)
                             : gelu * up);
        }
      out.expect_numbers("ops_gated", n, want);
    }
}

/* Values of 8 numbers in rows of other numbers become 12, and back. */
static void test_values() {
  const ValueHeads heads = {3, 8, 12};
  const int n_rows = 4, first = 5, stride = 47, n = heads.n_heads * heads.head_dim;
  const Floats rows = random_numbers((size_t)n_rows * stride, -2, 2);
  Device<float> device(rows);
  MUST(ops_spread_values(&heads, 0.5f, device.at + first, stride, n_rows, 0, &error));
  Row want = converted(rows);
  for (int r = 0; r < n_rows; r++)
    for (int i = 0; i < n; i++) {
      const int head = i / heads.head_dim, d = i % heads.head_dim;
      const double from = rows[(size_t)r * stride + first + head * heads.value_dim + d % heads.value_dim];
      want[(size_t)r * stride + first + i] = d < heads.value_dim ? 0.5 * from : 0;
    }
  expect("ops_spread_values", n, converted(device.host()), want, 0);

  std::vector<__half> from;
  Row joined;
  for (int i = 0; i < n_rows * n; i++) {
    from.push_back(__float2half_rn((float)i));
    if (i % heads.head_dim < heads.value_dim) joined.push_back(i);
  }
  Device<__half> from_device(from), to(untouched_halves(joined.size()));
  MUST(ops_join_values(&heads, from_device.at, n_rows, to.at, 0, &error));
  Row got;
  for (__half number : to.host()) got.push_back(__half2float(number));
  expect("ops_join_values", n, got, joined, 0);
}

/* With the numbers of a layer, and without the two that may be missing. */
static void test_xielu() {
  const int n = 300, n_tokens = 2;
  const Floats x = random_numbers((size_t)n_tokens * n, -4, 4);
  Device<float> device(x), own(Floats{0.7f, -0.4f, 0.3f, -0.125f});
  for (bool all : {true, false}) {
    Rows out(n, n_tokens);
    const double beta = all ? 0.3f : 0.5f, eps = all ? -0.125f : -1e-6f;
    Gated call = {};
    call.activation = ACTIVATION_XIELU;
    call.factor = call.up_factor = 1;
    call.gate = call.up = device.at;
    call.gate_stride = call.up_stride = call.n = n;
    call.out = out.memory.at;
    call.out_stride = out.stride;
    call.xielu = {own.at, own.at + 1, all ? own.at + 2 : NULL, all ? own.at + 3 : NULL};
    MUST(ops_gated(&call, n_tokens, 0, &error));
    Row want;
    for (float u : x) {
      const double alpha_p = log1p(exp(0.7f)), alpha_n = beta + log1p(exp(-0.4f));
      const double below = expm1(std::min((double)u, eps)) - u;
      want.push_back(u > 0 ? alpha_p * u * u + beta * u : alpha_n * below + beta * u);
    }
    out.expect_numbers("ops_gated of xielu", n, want);
  }
}

/* A text in steps of several lengths, from what earlier ones kept; whatever the memory held before, a text
 * begins without inputs. */
static void test_short_conv(int hidden, int n_taps, bool biased) {
  const int n_tokens = 90, stride = 3 * hidden + 5, steps[] = {1, 2, 1, 16, 17, 1, 33, 3, 16};
  const Floats rows = random_numbers((size_t)n_tokens * stride, -2, 2);
  const Floats taps = random_numbers((size_t)hidden * n_taps, -1, 1), bias = random_numbers(hidden, -1, 1);
  Device<float> rows_device(rows), taps_device(taps), bias_device(bias);
  Device<float> kept(Floats((size_t)n_taps * hidden, NAN));
  int pos = 0;
  for (int n : steps) {
    Device<int> pos_device(std::vector<int>{pos});
    Rows out(hidden, n);
    const ShortConv conv = {hidden,  n_taps,       pos_device.at,  rows_device.at + (size_t)pos * stride,
                            stride,  out.stride,   taps_device.at, biased ? bias_device.at : NULL,
                            kept.at, out.memory.at};
    MUST(ops_short_conv(&conv, n, 0, &error));
    Row want;
    for (int token = pos; token < pos + n; token++)
      for (int i = 0; i < hidden; i++) {
        double sum = biased ? bias[i] : 0;
        for (int t = 0; t < n_taps; t++) {
          const int from = token - n_taps + 1 + t;
          const float *row = &rows[(size_t)std::max(from, 0) * stride];
          if (from >= 0) sum += (double)taps[i * n_taps + t] * row[i] * row[2 * hidden + i];
        }
        want.push_back(sum * rows[(size_t)token * stride + hidden + i]);
      }
    out.expect_numbers("ops_short_conv of taps", n_taps, want);
    pos += n;
  }
}

/* Segments of four sequences in one step have the bits of a step for each: single rows first in the table, a
 * row of padding, then longer segments, and a single row that is listed among these. */
static void test_conv_segments(int hidden, int n_taps) {
  const int n_sequences = 4, length = 40, stride = 3 * hidden + 5;
  const size_t step = (size_t)n_taps * hidden + 3;
  const Floats rows = random_numbers((size_t)n_sequences * length * stride, -2, 2);
  Device<float> taps(random_numbers((size_t)hidden * n_taps, -1, 1)), bias(random_numbers(hidden, -1, 1));
  Device<float> kept(Floats(n_sequences * step, NAN)), alone(Floats(n_sequences * step, NAN));
  int pos[4] = {};
  for (const std::vector<int> &lengths : {std::vector<int>{1, 3, 17, 1}, std::vector<int>{2, 1, 1, 5}}) {
    Floats all;
    std::vector<Segment> singles, others;
    std::vector<int> of_row;
    Row want;
    for (int i = 0; i < n_sequences; i++) {
      const int n = lengths[i], row = (int)of_row.size();
      const Floats own(&rows[(size_t)(i * length + pos[i]) * stride],
                       &rows[(size_t)(i * length + pos[i] + n) * stride]);
      Device<float> projections(own);
      Device<int> first(std::vector<int>{pos[i]});
      Rows out(hidden, n);
      const ShortConv conv = {hidden,     n_taps,  first.at, projections.at,      stride,
                              out.stride, taps.at, bias.at,  alone.at + i * step, out.memory.at};
      MUST(ops_short_conv(&conv, n, 0, &error));
      const std::vector<__half> got = out.memory.host();
      for (int at = 0; at < n * out.stride; at++)
        if (at % out.stride < hidden) want.push_back(__half2float(got[at]));
      all.insert(all.end(), own.begin(), own.end());
      (n == 1 && i < 3 ? singles : others).push_back({row, n, i, pos[i], 0});
      of_row.resize(row + n), pos[i] += n;
    }
    const int n_rows = (int)of_row.size();
    of_row.push_back((int)singles.size());
    singles.push_back({-1, 0, 0, 0, 0});
    const int n_singles = (int)singles.size();
    singles.insert(singles.end(), others.begin(), others.end());
    for (int i = 0; i < (int)singles.size(); i++)
      for (int token = 0; token < singles[i].n_tokens; token++) of_row[singles[i].row + token] = i;
    all.resize(all.size() + stride);
    Device<float> projections(all);
    Device<Segment> table(singles);
    Device<int> rows_table(of_row);
    Rows out(hidden, n_rows + 1);
    const ShortConv conv = {hidden,
                            n_taps,
                            NULL,
                            projections.at,
                            stride,
                            out.stride,
                            taps.at,
                            bias.at,
                            kept.at,
                            out.memory.at,
                            {table.at, NULL, rows_table.at, n_singles, (int)singles.size(), step}};
    MUST(ops_short_conv(&conv, n_rows + 1, 0, &error));
    Row got;
    const std::vector<__half> halves = out.memory.host();
    for (int at = 0; at < n_rows * out.stride; at++)
      if (at % out.stride < hidden) got.push_back(__half2float(halves[at]));
    expect("ops_short_conv of segments", n_taps, got, want, 0);
    const Floats kept_now = kept.host(), kept_alone = alone.host();
    expect("what ops_short_conv keeps of segments", n_taps,
           {(double)memcmp(kept_now.data(), kept_alone.data(), kept_now.size() * sizeof(float))}, {0}, 0);
  }
}

/* Numbers beyond fp16 become its largest one; NaN stays. */
static void test_limits() {
  const Floats x = {1e6f, -1e6f, 65504, -65519, NAN, 3};
  Device<float> device(x);
  Rows out(6, 1);
  MUST(ops_round(device.at, 6, 1, 6, 1, out.memory.at, out.stride, 0, &error));
  const std::vector<__half> got = out.memory.host();
  const double expected[] = {65504, -65504, 65504, -65504, 0, 3};
  Row numbers, want;
  for (int i : {0, 1, 2, 3, 5}) numbers.push_back(__half2float(got[i])), want.push_back(expected[i]);
  expect("ops_round, limits of", 6, numbers, want, 0);
  expect("ops_round, NaN of", 6, {(double)std::isnan(__half2float(got[4]))}, {1}, 0);
  for (Activation activation : {ACTIVATION_SILU, ACTIVATION_GELU_TANH}) {
    Device<float> gate_up(Floats{300, 300, -300, NAN, 300, -300, 300, 1});
    Rows gated(4, 1);
    const Gated call = {activation, 1, 1, gate_up.at, gate_up.at + 4, 8, 8, 4, gated.memory.at, gated.stride};
    MUST(ops_gated(&call, 1, 0, &error));
    const std::vector<__half> of = gated.memory.host();
    const double nan = std::isnan(__half2float(of[3]));
    expect("ops_gated, limits of", 4, {__half2float(of[0]), __half2float(of[1]), __half2float(of[2]), nan},
           {65504, -65504, 0, 1}, 0);
  }
}

static void test_logits() {
  for (float cap : {0.0f, 5.0f}) {
    const Floats logits = random_numbers(3 * 1111, -20, 20);
    Device<float> device(logits);
    MUST(ops_finish_logits(device.at, 1111, 3, 1.5f, cap, 0, &error));
    Row want;
    for (float v : logits) want.push_back(cap != 0 ? cap * tanh(v / 1.5 / cap) : v / 1.5);
    expect("ops_finish_logits", (int)cap, converted(device.host()), want, SINGLE);
  }
}

int main() {
  test_norms();
  test_norm_q_k();
  test_centred_heads();
  test_sphere();
  for (float scale : {1.0f, 1.5f}) {
    test_embed<float>(DTYPE_F32, scale);
    test_embed<__half>(DTYPE_F16, scale);
    test_embed<__nv_bfloat16>(DTYPE_BF16, scale);
  }
  test_place_and_rope();
  for (bool norms : {false, true})
    for (int head_dim : {2, 64, 80, 128, 250, 256, 512})
      for (int rotary : {head_dim, head_dim / 4 * 2, 0}) {
        for (const Kind &kind : {Kind{}, Kind{true, false, 0}, Kind{false, true, 0.5f}, Kind{true, true, 2},
                                 Kind{false, false, 0, true, true}}) {
          test_heads<__half>(KV_F16, head_dim, rotary, norms, kind);
          test_heads<float>(KV_F32, head_dim, rotary, norms, kind);
          test_heads<uint8_t>(KV_Q8, head_dim, rotary, norms, kind);
        }
      }
  for (int head_dim : {2, 64, 80, 128, 250, 256, 512})
    for (int n_tokens : {3, 65}) test_eight_bits(head_dim, n_tokens);
  test_gate_heads();
  test_queries_alone();
  test_layer_inputs<float>(DTYPE_F32);
  test_layer_inputs<__nv_bfloat16>(DTYPE_BF16);
  test_gated();
  test_xielu();
  test_values();
  for (int n_taps : {1, 3, 4, 7, 16})
    for (int hidden : {2, 32, 300}) {
      test_short_conv(hidden, n_taps, n_taps % 2 == 0);
      test_conv_segments(hidden, n_taps);
    }
  test_limits();
  test_logits();
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
