/* test_pages.cu - attention of many sequences at once, whose keys and values lie in pages, against attention
 * in double; the division of the work among units and tiles; copies of pages.
 *
 * Each case is a step of several sequences at different positions, some of one row and some of many, a row
 * that is none, and pages in a random order, some of them shared. Positions that no sequence has are NaN. The
 * tolerance is that of test_attention.cu. `test_pages few` has fewer cases, for emulated GPUs; prints `N
 * passed, N failed`. */
#include <cuda_fp16.h>
#include <stdio.h>
#include <string.h>

#include <cmath>
#include <vector>

#include "cuda/kernels/attention/attention.h"
#include "cuda/kernels/cache/q8.cuh"
#include "test/cuda/check.cuh"

extern "C" {
#include "cuda/one/sequences.h"
}

static const double TOLERANCE = 5e-7;

struct Shape {
  int n_heads, n_kv_heads, head_dim;
  int value_dims; /* of latent attention, else 0: Attention.value_dims */

  int n_values() const { return value_dims > 0 ? value_dims : head_dim; }
};
struct Part {
  int pos, n;
};

static int passed, failed, skipped;
static bool only_wgmma; /* `few` on a chip with wgmma: other kernels are the same code on an emulated 8.0 */
static uint32_t random_state = 1;

static uint32_t random_below(uint32_t n) {
  random_state = random_state * 1664525u + 1013904223u;
  return (uint32_t)((uint64_t)random_state * n >> 32);
}

static float random_number(float scale) {
  float sum = 0;
  for (int i = 0; i < 4; i++) sum += (float)random_below(1 << 16) / (1 << 16) - 0.5f;
  return sum * 1.7f * scale;
}

template <class T> struct Numbers {
  std::vector<T> host;
  T *device = NULL;
  Numbers(size_t n, float scale) : host(n) {
    for (T &x : host) x = (T)random_number(scale);
  }
  void copy() {
    CHECK(cudaMalloc(&device, host.size() * sizeof(T)));
    CHECK(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~Numbers() { cudaFree(device); }
};

/* The cache of one layer, and the page tables of its sequences. */
template <class T> struct Pool {
  Shape s;
  int n_pages;
  Numbers<T> k, v;
  std::vector<std::vector<int>> tables;
  /* Empty but for a cache in 8 bits: its numbers and scales, which stand for the numbers of k and v, and
   * memory to unpack them to. */
  struct Small {
    Numbers<uint8_t> numbers;
    Numbers<__half> scales, halves;
    Small(size_t n, size_t n_scales, size_t n_halves)
        : numbers(n, 70), scales(n_scales, 0.02f), halves(n_halves, 0) {
      for (__half &x : halves.host) x = __float2half(NAN);
      for (__half &x : scales.host) x = __ushort_as_half(__half_as_ushort(x) & ~15); /* 7 bits */
    }
  } small_k, small_v;

  size_t at(int sequence, int kv_head, int position) const {
    const int page = tables[sequence][position / KV_PAGE_TOKENS];
    return (((size_t)page * s.n_kv_heads + kv_head) * KV_PAGE_TOKENS + position % KV_PAGE_TOKENS) *
           s.head_dim;
  }

  /* Pages in random order; every second sequence shares its first page with the one before if both are
   * full. */
  Pool(Shape shape, const std::vector<Part> &parts, bool small)
      : s(shape), n_pages(count(parts)), k((size_t)n_pages * s.n_kv_heads * KV_PAGE_TOKENS * s.head_dim, 1),
        v(k.host.size(), 1),
        small_k(small * k.host.size(), small * k.host.size() / s.head_dim * key_scales(s.head_dim),
                small * k.host.size()),
        small_v(small * k.host.size(), small * k.host.size() / s.head_dim, small * k.host.size()) {
    std::vector<int> order;
    for (int i = 0; i < n_pages; i++) order.insert(order.begin() + random_below((uint32_t)i + 1), i);
    std::vector<bool> used(k.host.size() / s.head_dim);
    for (size_t i = 0; i < parts.size(); i++) {
      tables.push_back({});
      const bool shares = i % 2 && parts[i].pos >= KV_PAGE_TOKENS && parts[i - 1].pos >= KV_PAGE_TOKENS;
      for (int p = 0; p * KV_PAGE_TOKENS < parts[i].pos + parts[i].n; p++) {
        tables[i].push_back(shares && p == 0 ? tables[i - 1][0] : order.back());
        if (!shares || p > 0) order.pop_back();
      }
      for (int position = 0; position < parts[i].pos + parts[i].n; position++)
        for (int h = 0; h < s.n_kv_heads; h++) used[at((int)i, h, position) / s.head_dim] = true;
    }
    for (size_t row = 0; row < used.size(); row++)
      for (int d = 0; d < s.head_dim && !used[row]; d++)
        k.host[row * s.head_dim + d] = v.host[row * s.head_dim + d] = (T)NAN;
    if (small) take_small(small_k, k, used, key_scales(s.head_dim)), take_small(small_v, v, used, 1);
    k.copy(), v.copy();
  }

  /* Numbers become those of the cache in 8 bits. */
  void take_small(Small &from, Numbers<T> &to, const std::vector<bool> &used, int n_scales) {
    for (size_t i = 0; i < to.host.size(); i++) {
      const size_t row = i / s.head_dim, dim = i % s.head_dim;
      __half &scale = from.scales.host[row * n_scales + (n_scales > 1 ? dim / KEY_SCALE_DIMS : 0)];
      if (!used[row]) scale = __float2half(NAN);
      to.host[i] = (T)((float)(from.numbers.host[i] - 128) * __half2float(scale));
    }
    from.numbers.copy(), from.scales.copy(), from.halves.copy();
  }

  static int count(const std::vector<Part> &parts) {
    int n = 2;
    for (const Part &p : parts) n += (p.pos + p.n - 1) / KV_PAGE_TOKENS + 1;
    return n;
  }
};

struct Kind {
  int window;
  double cap;
  bool sinks;
  size_t shared_bytes;
};

static double number(float x) {
  return (double)x;
}

template <class T>
static void reference(const Pool<T> &pool, const Kind &kind, const __half *q, const float *sinks,
                      int sequence, int pos, double scale, double *out) {
  const Shape &s = pool.s;
  const int first = kind.window > 0 && pos + 1 > kind.window ? pos + 1 - kind.window : 0;
  const Numbers<T> &values = s.value_dims > 0 ? pool.k : pool.v;
  const int n_values = s.n_values();
  for (int head = 0; head < s.n_heads; head++, q += s.head_dim, out += n_values) {
    const int kv_head = head / (s.n_heads / s.n_kv_heads);
    double high = sinks ? number(sinks[head]) : -INFINITY, total = 0;
    std::vector<double> score(pos + 1);
    for (int key = first; key <= pos; key++) {
      const T *k = &pool.k.host[pool.at(sequence, kv_head, key)];
      for (int d = 0; d < s.head_dim; d++) score[key] += number(__half2float(q[d])) * number((float)k[d]);
      score[key] *= scale;
      if (kind.cap != 0) score[key] = kind.cap * tanh(score[key] / kind.cap);
      high = fmax(high, score[key]);
    }
    if (sinks) total = exp(number(sinks[head]) - high);
    for (int d = 0; d < n_values; d++) out[d] = 0;
    for (int key = first; key <= pos; key++) {
      const T *v = &values.host[pool.at(sequence, kv_head, key) + s.head_dim - n_values];
      const double p = exp(score[key] - high);
      total += p;
      for (int d = 0; d < n_values; d++) out[d] += p * number((float)v[d]);
    }
    for (int d = 0; d < n_values; d++) out[d] /= total;
  }
}

static std::vector<SequenceRows> rows_of(const std::vector<Part> &parts, bool invariant) {
  std::vector<SequenceRows> all;
  for (size_t i = 0; i < parts.size(); i++)
    all.push_back({(int)i, parts[i].pos, parts[i].n, false, invariant && parts[i].n > 1});
  return all;
}

/* A step of the given rows of the pool's sequences, as sequences.c describes it. */
struct Step {
  Sequences sequences = {};
  StepRows rows = {};
  void *memory = NULL;
  char *pinned[2] = {};
  StateOptions options = {};

  template <class T>
  Step(const Attention &a, const Pool<T> &pool, const std::vector<SequenceRows> &all, bool invariant) {
    TokenRange range = {};
    for (const SequenceRows &part : all) range.n_tokens += part.n_tokens;
    for (const std::vector<int> &table : pool.tables)
      options.n_ctx = std::max(options.n_ctx, (int)table.size() * KV_PAGE_TOKENS);
    options.n_sequences = (int)pool.tables.size() + 1, options.n_pages = pool.n_pages;
    options.invariant = invariant;
    options.max_chunk = range.n_tokens + PADDED_ROWS, options.max_logit_rows = options.n_sequences;
    const size_t bytes = step_rows_point(&rows, &options, NULL);
    CHECK(cudaMalloc(&memory, bytes));
    for (char *&own : pinned) CHECK(cudaMallocHost((void **)&own, bytes));
    step_rows_point(&rows, &options, memory);
    MUST(sequences_add_tile_size(&sequences, attention_tile_tokens(&a), &error));
    sequences.unit_blocks = attention_tile_tokens(&a) > 0 ? attention_unit_blocks(&a) : 0;
    MUST(sequences_open(&sequences, &options, pinned, &error));
    for (size_t i = 0; i < pool.tables.size(); i++)
      MUST(sequences_set_pages(&sequences, (int)i, 0, pool.tables[i].data(), (int)pool.tables[i].size(),
                               &error));
    range.parts = all.data(), range.n_parts = (int)all.size();
    const std::vector<int> ids(range.n_tokens);
    const int32_t logit_row = range.n_tokens - 1;
    range.logit_rows = &logit_row, range.n_logit_rows = 1, range.ids = ids.data();
    MUST(sequences_set_step(&sequences, &rows, range, 0, &error));
  }
  ~Step() {
    sequences_close(&sequences);
    for (char *own : pinned) cudaFreeHost(own);
    cudaFree(memory);
  }
};

/* True, and counts it, if only_wgmma leaves out the attention of parts. */
static bool is_skipped(const Attention &a, const std::vector<Part> &parts) {
  bool by_wgmma = a.value_dims > 0;
  for (const Part &p : parts) by_wgmma |= p.n > 1;
  if (!only_wgmma || (by_wgmma && attention_can_run(ATTENTION_WGMMA, &a, 1))) return false;
  skipped++;
  return true;
}

template <class T>
static void run(const char *what, Shape s, KvType kv, const std::vector<Part> &parts, Kind kind, int sms) {
  const Pool<T> pool(s, parts, kv == KV_Q8);
  int n_tokens = 0;
  for (const Part &p : parts) n_tokens += p.n;
  const size_t q_row = (size_t)s.n_heads * s.head_dim, row = (size_t)s.n_heads * s.n_values(),
               n_rows = (size_t)(n_tokens + PADDED_ROWS), n = n_rows * row;
  Numbers<__half> q(n_rows * q_row, 2), out(n, 0);
  Numbers<float> sinks(s.n_heads, 3);
  for (__half &x : out.host) x = __float2half(NAN);
  q.copy(), out.copy(), sinks.copy();
  Attention a = {};
  a.n_heads = s.n_heads, a.n_kv_heads = s.n_kv_heads, a.head_dim = s.head_dim, a.n_ctx = KV_PAGE_TOKENS;
  a.window = kind.window, a.kv = kv, a.shared_bytes = kind.shared_bytes, a.wgmma_sms = sms;
  a.scale = kind.cap != 0 ? 1 : 1 / sqrt((double)s.head_dim), a.cap = kind.cap;
  a.sinks = kind.sinks ? sinks.device : NULL;
  a.q = q.device, a.k = pool.k.device, a.v = pool.v.device, a.out = out.device;
  if (kv == KV_Q8) {
    a.k = pool.small_k.numbers.device, a.k_scales = pool.small_k.scales.device;
    a.v = pool.small_v.numbers.device, a.v_scales = pool.small_v.scales.device;
    a.k_halves = pool.small_k.halves.device, a.v_halves = pool.small_v.halves.device;
  }
  a.value_dims = s.value_dims;
  if (s.value_dims > 0) a.v = a.v_scales = a.v_halves = NULL;
  if (is_skipped(a, parts)) return;
  const size_t bytes = attention_workspace_bytes(s.n_heads, s.n_kv_heads, s.head_dim, s.value_dims, 0);
  CHECK(cudaMalloc(&a.workspace, bytes));
  CHECK(cudaMemset(a.workspace, 0, bytes));
  Step step(a, pool, rows_of(parts, false), false);
  const Sequences &sequences = step.sequences;
  a.pos = step.rows.pos, a.pages = {step.rows.pages, step.rows.first_page, pool.n_pages};
  const AttentionWork work = {step.rows.units,      step.rows.tiles[0],  sequences.n_units,
                              sequences.n_tiles[0], sequences.unit_keys, sequences.tile_keys[0]};
  std::vector<__half> got(n), again(n);
  for (std::vector<__half> *to : {&got, &again}) {
    MUST(attention_run_many(&a, &work, sequences.n_rows, 0, &error));
    CHECK(cudaMemcpy(to->data(), out.device, n * 2, cudaMemcpyDeviceToHost));
  }
  double off = 0, norm = 0;
  std::vector<double> want(row);
  int at = 0;
  for (size_t i = 0; i < parts.size(); i++)
    for (int r = 0; r < parts[i].n; r++, at++) {
      reference(pool, kind, &q.host[at * q_row], kind.sinks ? sinks.host.data() : NULL, (int)i,
                parts[i].pos + r, a.scale, want.data());
      for (size_t j = 0; j < row; j++) {
        const double d = number(__half2float(got[at * row + j])) - want[j];
        off += d * d, norm += want[j] * want[j];
      }
    }
  const bool same = memcmp(got.data(), again.data(), at * row * 2) == 0;
  bool untouched = true;
  for (size_t i = at * row; i < n; i++) untouched = untouched && std::isnan(__half2float(got[i]));
  const bool good = off <= TOLERANCE * norm && same && untouched;
  if (!good)
    printf("FAILED %s, heads %d/%d of %d, window %d, cap %g, %d rows, %d units, %d tiles: NMSE %.3g%s%s\n",
           what, s.n_heads, s.n_kv_heads, s.head_dim, kind.window, kind.cap, at, sequences.n_units,
           sequences.n_tiles[0], off / norm, same ? "" : ", two runs differ",
           untouched ? "" : ", rows that are none were written");
  good ? passed++ : failed++;
  CHECK(cudaFree(a.workspace));
}

/* Enqueues attention of the rows, whose queries and outputs begin with row `at`. */
template <class T>
static void attend(Attention a, const Pool<T> &pool, const std::vector<SequenceRows> &rows, int at) {
  Step step(a, pool, rows, true);
  const Sequences &sequences = step.sequences;
  const size_t first = (size_t)at * a.n_heads * a.head_dim;
  a.q = (const __half *)a.q + first, a.out = (__half *)a.out + first;
  a.pos = step.rows.pos, a.pages = {step.rows.pages, step.rows.first_page, pool.n_pages};
  a.unit_partials =
      attention_fixed_partials(attention_unit_blocks(&a), step.options.n_sequences, step.options.n_ctx);
  const size_t bytes =
      attention_workspace_bytes(a.n_heads, a.n_kv_heads, a.head_dim, a.value_dims, a.unit_partials);
  CHECK(cudaMalloc(&a.workspace, bytes));
  CHECK(cudaMemset(a.workspace, 0, bytes));
  const AttentionWork work = {step.rows.units,      step.rows.tiles[0],  sequences.n_units,
                              sequences.n_tiles[0], sequences.unit_keys, sequences.tile_keys[0]};
  MUST(attention_run_many(&a, &work, sequences.n_rows, 0, &error));
  CHECK(cudaFree(a.workspace));
}

/* With StateOptions.invariant a row has the same bits beside all others, alone, and where a prompt is divided
 * into other steps. */
template <class T>
static void check_alone(Shape s, KvType kv, const std::vector<Part> &parts, Kind kind, int sms) {
  const Pool<T> pool(s, parts, kv == KV_Q8);
  int n_tokens = PADDED_ROWS;
  for (const Part &p : parts) n_tokens += p.n;
  const size_t row = (size_t)s.n_heads * s.head_dim, n = (size_t)n_tokens * row;
  Numbers<__half> q(n, 2), out(n, 0);
  q.copy(), out.copy();
  Attention a = {};
  a.n_heads = s.n_heads, a.n_kv_heads = s.n_kv_heads, a.head_dim = s.head_dim, a.n_ctx = KV_PAGE_TOKENS;
  a.window = kind.window, a.kv = kv, a.shared_bytes = kind.shared_bytes, a.wgmma_sms = sms, a.scale = 0.1;
  a.q = q.device, a.k = pool.k.device, a.v = pool.v.device, a.out = out.device;
  if (kv == KV_Q8) {
    a.k = pool.small_k.numbers.device, a.k_scales = pool.small_k.scales.device;
    a.v = pool.small_v.numbers.device, a.v_scales = pool.small_v.scales.device;
    a.k_halves = pool.small_k.halves.device, a.v_halves = pool.small_v.halves.device;
  }
  if (is_skipped(a, parts)) return;
  std::vector<__half> together(n), alone(n);
  attend(a, pool, rows_of(parts, true), 0);
  CHECK(cudaMemcpy(together.data(), out.device, n * 2, cudaMemcpyDeviceToHost));
  for (int i = 0, at = 0; i < (int)parts.size(); at += parts[i++].n) {
    const Part p = parts[i];
    const int cut = p.n == 1 ? 0 : p.n % 3 == 1 ? 1 : p.n / 2; /* a prompt's first or last row may be alone */
    if (cut > 0) attend(a, pool, {{i, p.pos, cut, false, true}}, at);
    attend(a, pool, {{i, p.pos + cut, p.n - cut, false, p.n > 1}}, at + cut);
  }
  CHECK(cudaMemcpy(alone.data(), out.device, n * 2, cudaMemcpyDeviceToHost));
  int differ = 0;
  for (int i = 0; i < n_tokens - PADDED_ROWS; i++)
    differ += memcmp(&together[i * row], &alone[i * row], row * 2) != 0;
  if (differ)
    printf("FAILED heads %d/%d of %d, window %d: %d rows are others alone\n", s.n_heads, s.n_kv_heads,
           s.head_dim, kind.window, differ);
  differ ? failed++ : passed++;
}

/* Units of a long sequence beside short ones are many, and never more than the workspace has places for. */
static void check_units() {
  bool good = attention_unit_keys(8, 128) == 128 && attention_unit_keys(8, 264 * 1024) == 8192 / 8 * 8;
  for (int blocks : {1, 2, 8, 40})
    for (int n : {1, 7, 256}) {
      long long n_keys = 0, split = 0;
      std::vector<int> lengths;
      for (int i = 0; i < n; i++) lengths.push_back(1 + (int)random_below(i % 17 ? 700 : 40000));
      for (int length : lengths) n_keys += length;
      const int keys = attention_unit_keys(blocks, n_keys);
      for (int length : lengths)
        if (length > keys) split += (length - 1) / keys + 1;
      good = good && keys % KV_PAGE_TOKENS == 0 && split * blocks <= ATTENTION_UNITS;
    }
  if (!good) printf("FAILED the division into units\n");
  good ? passed++ : failed++;
}

/* Keys of two layers with pages of different sizes, and of one without a cache of its own; then values. */
static void check_copy() {
  const size_t page[] = {KV_PAGE_TOKENS * 34, 0, KV_PAGE_TOKENS * 256}, n_pages = 3;
  std::vector<PagedArray> arrays;
  size_t all = 0;
  for (int values = 0; values < 2; values++)
    for (size_t bytes : page) arrays.push_back({all, bytes}), all += bytes * n_pages;
  std::vector<unsigned char> want(all), got(all);
  for (unsigned char &b : want) b = (unsigned char)random_below(256);
  unsigned char *device;
  PagedArray *arrays_device;
  CHECK(cudaMalloc(&device, all));
  CHECK(cudaMalloc(&arrays_device, sizeof(PagedArray) * arrays.size()));
  CHECK(cudaMemcpy(device, want.data(), all, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(arrays_device, arrays.data(), sizeof(PagedArray) * arrays.size(), cudaMemcpyHostToDevice));
  MUST(attention_copy_page(device, arrays_device, (int)arrays.size(), 2, 0, 0, &error));
  for (const PagedArray &p : arrays) memcpy(&want[p.first], &want[p.first + 2 * p.page_bytes], p.page_bytes);
  CHECK(cudaMemcpy(got.data(), device, all, cudaMemcpyDeviceToHost));
  const bool good = got == want;
  if (!good) printf("FAILED copy of a page\n");
  good ? passed++ : failed++;
  for (void *p : {(void *)device, (void *)arrays_device}) CHECK(cudaFree(p));
}

int main(int argc, char **argv) {
  const bool few = argc > 1 && strcmp(argv[1], "few") == 0;
  int shared = 0, sms = 0;
  MUST(attention_wgmma_sms(0, &sms, &error));
  CHECK(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  only_wgmma = few && sms > 0;
  check_units();
  if (!only_wgmma) check_copy();
  const Kind plain = {0, 0, false, (size_t)shared};
  /* Ends of pages and of tiles; sequences that begin, and that go on inside of a page. */
  const std::vector<Part> singles = {{0, 1},   {63, 1},  {64, 1}, {65, 1}, {127, 1},
                                     {200, 1}, {130, 1}, {2, 1},  {1, 1}},
                          mixed = {{0, 1},   {0, 70},  {100, 1}, {60, 5},
                                   {64, 64}, {127, 2}, {129, 1}, {30, 100}},
                          uneven = {{1500, 1}, {10, 1}, {70, 1}};
  std::vector<Shape> shapes = {{9, 3, 64}, {32, 8, 128}, {8, 4, 256}, {16, 2, 512}, {4, 2, 80}, {16, 1, 128}};
  if (few) shapes = {{3, 1, 64}, {8, 2, 128}};
  for (Shape s : shapes) {
    for (int n : {0, sms}) { /* prefill for tiles, then wgmma */
      if (n == 0 && sms > 0 && few) continue;
      run<__half>("mixed", s, KV_F16, mixed, plain, n);
      run<__half>("mixed, window", s, KV_F16, mixed, {40, 0, false, (size_t)shared}, n);
      run<__half>("mixed, sinks", s, KV_F16, mixed, {0, 0, true, (size_t)shared}, n);
      check_alone<__half>(s, KV_F16, mixed, plain, n);
      check_alone<__half>(s, KV_F16, mixed, {40, 0, false, (size_t)shared}, n);
      if (sms == 0) break;
    }
    check_alone<__half>(s, KV_F16, uneven, plain, sms);
    check_alone<__half>(s, KV_Q8, uneven, plain, sms);
    check_alone<__half>(s, KV_Q8, mixed, plain, sms);
    for (int n : {0, sms}) {
      if (n == 0 && sms > 0 && few) continue;
      run<__half>("mixed, 8 bits", s, KV_Q8, mixed, plain, n);
      run<__half>("mixed, 8 bits, window", s, KV_Q8, mixed, {40, 0, false, (size_t)shared}, n);
      if (sms == 0) break;
    }
    run<__half>("singles, 8 bits", s, KV_Q8, singles, {70, 0, true, (size_t)shared}, sms);
    run<__half>("uneven, 8 bits", s, KV_Q8, uneven, plain, sms);
    run<__half>("singles", s, KV_F16, singles, plain, sms);
    run<__half>("singles, window", s, KV_F16, singles, {70, 0, true, (size_t)shared}, sms);
    run<__half>("uneven", s, KV_F16, uneven, plain, sms);
    run<__half>("uneven, window", s, KV_F16, uneven, {600, 0, true, (size_t)shared}, sms);
  }
  for (Shape s : {Shape{8, 4, 256}, Shape{8, 2, 128}}) {
    if (few && s.head_dim == 256) continue;
    run<__half>("mixed, cap", s, KV_F16, mixed, {0, 20, false, (size_t)shared}, sms);
    run<__half>("uneven, cap", s, KV_F16, uneven, {0, 20, false, (size_t)shared}, sms);
    run<__half>("mixed, less shared memory", s, KV_F16, mixed, {0, 0, false, 64 << 10}, 0);
  }
  /* Latent attention: tiles of 3 and 4 tokens; heads of a token in two tiles; a size that only the plain
   * kernel takes. */
  std::vector<Shape> latents = {{20, 1, 576, 512}, {32, 1, 320, 256}, {128, 1, 576, 512}, {6, 1, 40, 32}};
  std::vector<Part> some = mixed; /* for emulated GPUs a fourth of the rows */
  if (few)
    latents = {{only_wgmma ? 66 : 3, 1, 576, 512}, {only_wgmma ? 32 : 3, 1, 320, 256}},
    some = {{0, 9}, {60, 5}, {127, 2}, {129, 1}, {30, 41}};
  for (Shape s : latents)
    for (KvType kv : {KV_F16, KV_Q8}) {
      run<__half>("mixed, latents", s, kv, some, plain, sms);
      run<__half>("uneven, latents", s, kv, uneven, plain, sms);
    }
  /* Heads that only the plain kernel takes, and its other type. */
  for (Shape s : {Shape{4, 4, 34}, Shape{2, 1, 2}})
    for (KvType kv : {KV_F16, KV_Q8}) run<__half>("plain", s, kv, mixed, {50, 0, true, 0}, sms);
  run<float>("fp32", {4, 2, 64}, KV_F32, mixed, {0, 0, true, (size_t)shared}, sms);
  check_alone<float>({4, 2, 64}, KV_F32, mixed, plain, sms);
  if (skipped) printf("%d skipped: kernels that are the same code on an emulated GPU of 8.0\n", skipped);
  printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
  return failed != 0;
}
