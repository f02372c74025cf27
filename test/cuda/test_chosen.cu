/* test_chosen.cu - the choice of positions (ops/index.h), and attention to them (attention/chosen.h), against
 * the same formulas in double on the host.
 *
 * A case is a step of rows of several sequences after a prompt of each, whose index keys a step before has
 * appended. Caches begin as NaN, and so do the keys and values of positions that no row has chosen: what is
 * read besides shows in the results. Checked are
 *   raw keys    to the bit
 *   block keys  2^-11 of each for fp16, and 2^-18 of its largest part for the fp32 sum, norm and rope
 *   scores      2^-24 of the sum of all terms for each addition, as many as dimensions and heads, and 32
 *               more for norm and rope
 *   the choice  exactly, from the scores that the device wrote
 *   outputs     fp16 rounds by at most 2^-11, evenly: the mean square is at most 2^-22 / 3 = 8e-8 of theirs
 * and that nothing else has changed, that a second run has the same bits, and each row alone as well.
 * `test_chosen few` has fewer cases, for emulated GPUs; prints `N passed, N failed`. */
#include <cuda_fp16.h>
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cuda/kernels/attention/chosen.h"
#include "cuda/kernels/ops/index.h"
#include "test/cuda/device_copy.cuh"
#include "test/cuda/random_numbers.cuh"

static const double TOLERANCE = 1e-7;     /* NMSE of outputs */
static const uint16_t UNTOUCHED = 0x7e5a; /* a NaN that no kernel makes */
static const float EPS = 0.01f, FACTOR = 1.25f;
static int passed, failed;

typedef std::vector<uint16_t> Halves;
typedef std::vector<double> Doubles;

static double number(uint16_t half) {
  return (double)__half2float(__ushort_as_half(half));
}
static uint16_t rounded(float x) {
  return __half_as_ushort(__float2half_rn(x));
}

static Halves random_halves(size_t n, float most) {
  Halves out(n);
  for (uint16_t &x : out) x = rounded(random_number(-most, most));
  return out;
}

enum Numbers { ANY, TIES, WITH_NAN }; /* of index queries and keys */

struct Case {
  const char *what;
  IndexerConfig sizes;
  int n_pairs, width;
  int n_kv_heads, group, head_dim;
  bool paged;
  Numbers numbers;
};

/* n rows at positions from `pos` on; sequence -1: padding. */
struct Part {
  int sequence, pos, n;
};

struct RowPlace {
  int sequence, pos;
};

static void expect(bool good, const Case &c, const char *what) {
  if (!good)
    printf("FAILED %s, index %d heads of %d, blocks of %d, budget %d, heads %d x %d of %d%s: %s\n", c.what,
           c.sizes.n_heads, c.sizes.head_dim, c.sizes.block, c.sizes.budget, c.n_kv_heads, c.group,
           c.head_dim, c.paged ? ", pages" : "", what);
  good ? passed++ : failed++;
}

/* The caches' places: pages in random order, or one page. */
struct Places {
  bool paged;
  int n_ctx, n_pages, n_ctx_all = 0;
  std::vector<std::vector<int>> tables;

  Places(const std::vector<Part> &parts, bool paged_) : paged(paged_) {
    int n_sequences = 0;
    for (const Part &p : parts) {
      n_sequences = std::max(n_sequences, p.sequence + 1);
      n_ctx_all = std::max(n_ctx_all, p.pos + p.n + 9);
    }
    n_ctx = paged ? KV_PAGE_TOKENS : n_ctx_all;
    const int of_each = (n_ctx_all + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    n_pages = paged ? n_sequences * of_each + 1 : 1;
    std::vector<int> order;
    for (int i = 0; i < n_pages; i++) order.insert(order.begin() + (int)random_number(0, i + 0.99f), i);
    for (int s = 0; s < n_sequences && paged; s++)
      tables.push_back({order.begin() + s * of_each, order.begin() + (s + 1) * of_each});
  }
  size_t at(int sequence, int position, int n_kv_heads = 1, int kv_head = 0) const {
    if (!paged) return (size_t)kv_head * n_ctx + position;
    const size_t page = tables[sequence][position / KV_PAGE_TOKENS];
    return (page * n_kv_heads + kv_head) * KV_PAGE_TOKENS + position % KV_PAGE_TOKENS;
  }
  std::vector<int> all_tables() const {
    std::vector<int> out;
    for (const std::vector<int> &table : tables) out.insert(out.end(), table.begin(), table.end());
    return out;
  }
  std::vector<int> firsts(const std::vector<RowPlace> &rows) const {
    std::vector<int> out;
    for (const RowPlace &r : rows)
      out.push_back(paged && r.sequence >= 0 ? r.sequence * (int)tables[0].size() : 0);
    return out;
  }
};

static std::vector<RowPlace> rows_of(const std::vector<Part> &parts) {
  std::vector<RowPlace> out;
  for (const Part &p : parts)
    for (int i = 0; i < p.n; i++) out.push_back({p.sequence, p.sequence < 0 ? -1 : p.pos + i});
  return out;
}

static std::vector<RowPlace> rows_before(const std::vector<Part> &parts) {
  std::vector<RowPlace> out;
  for (const Part &p : parts)
    for (int i = 0; i < p.pos && p.sequence >= 0; i++) out.push_back({p.sequence, i});
  return out;
}

static std::vector<int> positions_of(const std::vector<RowPlace> &rows) {
  std::vector<int> out;
  for (const RowPlace &r : rows) out.push_back(r.pos);
  return out;
}

/* x normalised and rotated. sizes: for each number the sum of the magnitudes of its parts. */
static Doubles turned(const Doubles &x, const float *weight, const Floats &frequencies, int pos,
                      Doubles *sizes) {
  const int n = (int)x.size(), n_pairs = (int)frequencies.size();
  double squares = 0;
  for (double v : x) squares += v * v;
  Doubles out(n);
  for (int i = 0; i < n; i++) out[i] = x[i] / sqrt(squares / n + (double)EPS) * (double)weight[i];
  *sizes = out;
  for (double &size : *sizes) size = fabs(size);
  for (int i = 0; i < n_pairs; i++) {
    const double angle = (double)((float)pos * frequencies[i]), c = cos(angle) * (double)FACTOR,
                 s = sin(angle) * (double)FACTOR, low = out[i], high = out[i + n_pairs];
    out[i] = low * c - high * s, out[i + n_pairs] = high * c + low * s;
    (*sizes)[i] = (*sizes)[i + n_pairs] = (fabs(low) + fabs(high)) * (double)FACTOR;
  }
  return out;
}

/* The numbers of a step: one row is index queries and the key, and a gap. */
static Floats index_numbers(const Case &c, const std::vector<RowPlace> &rows, int stride) {
  const int dim = c.sizes.head_dim, n = (c.sizes.n_heads + 1) * dim;
  Floats out = random_numbers(rows.size() * stride, -2, 2);
  static const Floats alike = random_numbers(3 * INDEX_MAX_HEAD_DIM, -2, 2);
  for (size_t r = 0; r < rows.size(); r++) {
    float *key = &out[r * stride + (size_t)c.sizes.n_heads * dim];
    const int kind = rows[r].pos / c.sizes.block % 3;
    for (int d = 0; d < dim && c.numbers == TIES; d++) key[d] = alike[kind * INDEX_MAX_HEAD_DIM + d];
    for (int i = n; i < stride; i++) out[r * stride + i] = NAN;
    if (c.numbers == WITH_NAN && r % 2) out[r * stride] = NAN;
  }
  return out;
}

/* The weights and caches of index keys, on the device. */
struct Index {
  const Case &c;
  const Places &places;
  int stride;
  Floats q_norm, k_norm, frequencies;
  Device<float> q_norm_device, k_norm_device, frequencies_device;
  Device<int> tables;
  Device<uint16_t> raw, keys;

  Index(const Case &c_, const Places &places_)
      : c(c_), places(places_), stride((c.sizes.n_heads + 1) * c.sizes.head_dim + 3),
        q_norm(random_numbers(c.sizes.head_dim, 0.5f, 1.5f)),
        k_norm(random_numbers(c.sizes.head_dim, 0.5f, 1.5f)), frequencies(frequencies_of(c)),
        q_norm_device(q_norm), k_norm_device(k_norm), frequencies_device(frequencies),
        tables(places.all_tables()), raw(Halves((size_t)places.n_pages * places.n_ctx * c.width, UNTOUCHED)),
        keys(Halves(raw.n, UNTOUCHED)) {}

  /* Keys of other positions are alike only if nothing turns them. */
  static Floats frequencies_of(const Case &c) {
    Floats out(c.n_pairs);
    for (int i = 0; i < c.n_pairs; i++) out[i] = c.numbers == TIES ? 0 : powf(100, -(float)i / c.n_pairs);
    return out;
  }
  IndexCall call(const Device<float> &rows, const Device<int> &pos, const Device<int> &firsts) const {
    IndexCall a = {};
    a.sizes = c.sizes, a.eps = EPS, a.rows = rows.at, a.stride = stride;
    a.q_norm = q_norm_device.at, a.k_norm = k_norm_device.at, a.frequencies = frequencies_device.at;
    a.n_pairs = c.n_pairs, a.attention_factor = FACTOR, a.pos = pos.at;
    a.pages = {places.paged ? tables.at : NULL, firsts.at, places.n_pages};
    a.n_ctx = places.n_ctx, a.raw = raw.at, a.keys = keys.at, a.width = c.width;
    return a;
  }
};

/* The caches after the rows were appended to those before. */
static void check_caches(const Index &index, const std::vector<RowPlace> &rows, const Floats &numbers,
                         const Halves &raw_before, const Halves &keys_before) {
  const IndexerConfig &sizes = index.c.sizes;
  const int dim = sizes.head_dim, width = index.c.width;
  const Halves raw = index.raw.host(), keys = index.keys.host();
  Halves want_raw = raw_before, others = keys_before;
  for (size_t r = 0; r < rows.size(); r++)
    for (int d = 0; d < dim && rows[r].pos >= 0; d++)
      want_raw[index.places.at(rows[r].sequence, rows[r].pos) * width + d] =
          rounded(numbers[r * index.stride + (size_t)sizes.n_heads * dim + d]);
  expect(raw == want_raw, index.c, "raw keys");
  bool close = true;
  for (const RowPlace &row : rows) {
    if (row.pos < 0 || (row.pos + 1) % sizes.block != 0) continue;
    Doubles mean(dim), parts;
    const int first = row.pos + 1 - sizes.block;
    for (int p = first; p <= row.pos; p++)
      for (int d = 0; d < dim; d++)
        mean[d] += number(raw[index.places.at(row.sequence, p) * width + d]) / sizes.block;
    const Doubles want = turned(mean, index.k_norm.data(), index.frequencies, first, &parts);
    for (int d = 0; d < dim; d++) {
      const size_t at = index.places.at(row.sequence, row.pos) * width + d;
      others[at] = keys[at];
      const double off = fabs(number(keys[at]) - want[d]);
      close = close && off <= fabs(want[d]) * 0x1p-11 + parts[d] * 0x1p-18 + 0x1p-24;
    }
  }
  expect(close, index.c, "block keys");
  expect(keys == others, index.c, "keys besides those of blocks changed");
}

struct Choice {
  Floats scores;
  std::vector<int> chosen, n_chosen;
  bool operator==(const Choice &b) const {
    return chosen == b.chosen && n_chosen == b.n_chosen && scores.size() == b.scores.size() &&
           memcmp(scores.data(), b.scores.data(), scores.size() * sizeof(float)) == 0;
  }
};

static Choice choose(const IndexCall &call, int n_rows, int n_ctx_all) {
  const size_t row_scores = index_row_scores(&call.sizes, n_ctx_all), most = index_most_chosen(&call.sizes);
  Device<float> scores(Floats(n_rows * row_scores, -7));
  Device<int> chosen(std::vector<int>(n_rows * most, -7)), n_chosen(std::vector<int>(n_rows, -7));
  MUST(index_choose(&call, n_rows, n_ctx_all, scores.at, chosen.at, n_chosen.at, 0, &error));
  return {scores.host(), chosen.host(), n_chosen.host()};
}

/* A row's scores against those in double, from the device's keys. */
static bool scores_are_close(const Index &index, const RowPlace &row, const float *numbers,
                             const Halves &keys, int n_blocks, const float *got) {
  const int dim = index.c.sizes.head_dim, n_heads = index.c.sizes.n_heads;
  bool close = true, has_nan = false;
  for (int i = 0; i < n_heads * dim; i++) has_nan = has_nan || std::isnan(numbers[i]);
  Doubles want(n_blocks), terms(n_blocks), parts;
  for (int h = 0; h < n_heads && !has_nan; h++) {
    const Doubles q = turned(Doubles(numbers + h * dim, numbers + (h + 1) * dim), index.q_norm.data(),
                             index.frequencies, row.pos, &parts);
    for (int b = 0; b < n_blocks; b++) {
      const uint16_t *key =
          &keys[index.places.at(row.sequence, (b + 1) * index.c.sizes.block - 1) * index.c.width];
      double product = 0;
      for (int d = 0; d < dim; d++)
        product += q[d] * number(key[d]), terms[b] += parts[d] * fabs(number(key[d]));
      want[b] += product < 0 ? 0 : product;
    }
  }
  for (int b = 0; b < n_blocks; b++)
    close = close && fabs((double)got[b] - want[b]) <= terms[b] * (dim + n_heads + 32) * 0x1p-24;
  return close;
}

/* The positions that a row sees, from its scores. */
static std::vector<int> positions_seen(const IndexerConfig &sizes, int pos, const float *scores) {
  const int n_blocks = (pos + 1) / sizes.block, n_best = sizes.budget / sizes.block;
  std::vector<int> order(n_blocks), out;
  for (int b = 0; b < n_blocks; b++) order[b] = b;
  if (n_blocks > n_best) {
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return scores[a] > scores[b]; });
    order.resize(n_best);
    std::sort(order.begin(), order.end());
  }
  for (int b : order)
    for (int i = 0; i < sizes.block; i++) out.push_back(b * sizes.block + i);
  for (int p = n_blocks * sizes.block; p <= pos; p++) out.push_back(p);
  return out;
}

static void check_choice(const Index &index, const std::vector<RowPlace> &rows, const Floats &numbers,
                         const Choice &choice) {
  const IndexerConfig &sizes = index.c.sizes;
  const size_t row_scores = index_row_scores(&sizes, index.places.n_ctx_all),
               most = index_most_chosen(&sizes);
  const Halves keys = index.keys.host();
  bool close = true, exact = true, untouched = true, tied = false;
  for (size_t r = 0; r < rows.size(); r++) {
    const float *scores = &choice.scores[r * row_scores];
    const int *chosen = &choice.chosen[r * most];
    std::vector<int> seen;
    int n_scores = 0;
    if (rows[r].pos >= 0) {
      const int n_blocks = (rows[r].pos + 1) / sizes.block;
      if (n_blocks > sizes.budget / sizes.block) n_scores = n_blocks;
      close = close && scores_are_close(index, rows[r], &numbers[r * index.stride], keys, n_scores, scores);
      seen = positions_seen(sizes, rows[r].pos, scores);
      exact = exact && choice.n_chosen[r] == (int)seen.size() && std::equal(seen.begin(), seen.end(), chosen);
      for (int b = 3; b < n_scores; b++) tied = tied || (scores[b] > 0 && scores[b] == scores[b - 3]);
    }
    untouched = untouched && (rows[r].pos >= 0 || choice.n_chosen[r] == -7);
    for (size_t i = seen.size(); i < most; i++) untouched = untouched && chosen[i] == -7;
    for (size_t i = n_scores; i < row_scores; i++) untouched = untouched && scores[i] == -7;
  }
  expect(close, index.c, "scores");
  expect(exact, index.c, "the choice");
  expect(untouched, index.c, "memory besides the choice changed");
  if (index.c.numbers == TIES) expect(tied, index.c, "no scores are equal");
}

/* Attention of the rows to what they have chosen. */
struct Attended {
  const Case &c;
  const Places &places;
  const std::vector<RowPlace> &rows;
  int n_heads, q_stride, out_stride;
  Halves q, k, v;

  Attended(const Case &c_, const Places &places_, const std::vector<RowPlace> &rows_, const Choice &choice)
      : c(c_), places(places_), rows(rows_), n_heads(c.n_kv_heads * c.group),
        q_stride(n_heads * c.head_dim + 8), out_stride(n_heads * c.head_dim + 16),
        q(random_halves(rows.size() * q_stride, 3)),
        k((size_t)places.n_pages * c.n_kv_heads * places.n_ctx * c.head_dim, UNTOUCHED), v(k) {
    const size_t most = index_most_chosen(&c.sizes);
    for (size_t r = 0; r < rows.size(); r++)
      for (int i = 0; i < choice.n_chosen[r]; i++)
        for (int h = 0; h < c.n_kv_heads; h++) {
          const size_t at =
              places.at(rows[r].sequence, choice.chosen[r * most + i], c.n_kv_heads, h) * c.head_dim;
          for (int d = 0; d < c.head_dim && k[at + d] == UNTOUCHED; d++)
            k[at + d] = rounded(random_number(-2, 2)), v[at + d] = rounded(random_number(-2, 2));
        }
  }
  double scale() const { return 1 / sqrt((double)c.head_dim); }

  Doubles reference(size_t row, const Choice &choice) const {
    Doubles out((size_t)n_heads * c.head_dim);
    const int *chosen = &choice.chosen[row * index_most_chosen(&c.sizes)], n = choice.n_chosen[row];
    for (int h = 0; h < n_heads; h++) {
      Doubles scores(n);
      double high = -INFINITY, total = 0;
      for (int i = 0; i < n; i++) {
        const uint16_t *key =
            &k[places.at(rows[row].sequence, chosen[i], c.n_kv_heads, h / c.group) * c.head_dim];
        for (int d = 0; d < c.head_dim; d++)
          scores[i] += scale() * number(q[row * q_stride + h * c.head_dim + d]) * number(key[d]);
        high = std::max(high, scores[i]);
      }
      for (int i = 0; i < n; i++) {
        const uint16_t *value =
            &v[places.at(rows[row].sequence, chosen[i], c.n_kv_heads, h / c.group) * c.head_dim];
        const double weight = exp(scores[i] - high);
        total += weight;
        for (int d = 0; d < c.head_dim; d++) out[h * c.head_dim + d] += weight * number(value[d]);
      }
      for (int d = 0; d < c.head_dim; d++) out[h * c.head_dim + d] /= total;
    }
    return out;
  }

  void check(const Halves &got, const Choice &choice) const {
    double off = 0, norm = 0;
    bool untouched = true;
    for (size_t r = 0; r < rows.size(); r++) {
      const Doubles want = rows[r].pos < 0 ? Doubles() : reference(r, choice);
      for (size_t i = 0; i < want.size(); i++) {
        const double d = number(got[r * out_stride + i]) - want[i];
        off += d * d, norm += want[i] * want[i];
      }
      for (int i = (int)want.size(); i < out_stride; i++)
        untouched = untouched && got[r * out_stride + i] == UNTOUCHED;
    }
    if (!(off <= TOLERANCE * norm)) printf("NMSE %g\n", off / norm);
    expect(off <= TOLERANCE * norm, c, "outputs");
    expect(untouched, c, "memory besides the outputs changed");
  }
};

/* A step on the device: twice with all rows, then each row alone. */
static void check_attention(const Case &c, const Places &places, const std::vector<RowPlace> &rows,
                            const IndexCall &index, const Choice &choice) {
  const Attended host(c, places, rows, choice);
  const int n_rows = (int)rows.size();
  Device<uint16_t> q(host.q), k(host.k), v(host.v);
  Device<uint16_t> out(Halves((size_t)n_rows * host.out_stride, UNTOUCHED)), alone(out.host());
  Device<int> chosen(choice.chosen), n_chosen(choice.n_chosen);
  const int most = (int)index_most_chosen(&c.sizes);
  ChosenAttention a = {};
  a.n_heads = host.n_heads, a.n_kv_heads = c.n_kv_heads, a.head_dim = c.head_dim;
  a.scale = (float)host.scale(), a.q = q.at, a.k = k.at, a.v = v.at;
  a.pages = index.pages, a.n_ctx = index.n_ctx, a.pos = index.pos, a.chosen = chosen.at;
  a.n_chosen = n_chosen.at, a.most_chosen = most;
  a.out = out.at, a.q_stride = host.q_stride, a.out_stride = host.out_stride;
  const size_t bytes = chosen_workspace_bytes(host.n_heads, c.head_dim, most, n_rows);
  const Floats guarded(bytes / sizeof(float) + 64, NAN);
  Device<float> workspace(guarded);
  a.workspace = workspace.at;
  MUST(chosen_attend(&a, n_rows, 0, &error));
  const Halves got = out.host();
  host.check(got, choice);
  const Floats after = workspace.host();
  expect(memcmp(&after[bytes / sizeof(float)], &guarded[bytes / sizeof(float)], 64 * sizeof(float)) == 0, c,
         "memory after the workspace changed");
  MUST(chosen_attend(&a, n_rows, 0, &error));
  expect(out.host() == got, c, "outputs of a second run");
  for (int r = 0; r < n_rows; r++) {
    ChosenAttention one = a;
    one.q = q.at + (size_t)r * host.q_stride, one.out = alone.at + (size_t)r * host.out_stride;
    one.pos += r, one.pages.first += r, one.chosen += r * most, one.n_chosen += r;
    MUST(chosen_attend(&one, 1, 0, &error));
  }
  expect(alone.host() == got, c, "outputs of rows alone");
  expect(k.host() == host.k && v.host() == host.v, c, "keys or values changed");
}

static void run(const Case &c, const std::vector<Part> &parts) {
  const Places places(parts, c.paged);
  Index index(c, places);
  const std::vector<RowPlace> before = rows_before(parts), rows = rows_of(parts);
  const Floats numbers_before = index_numbers(c, before, index.stride),
               numbers = index_numbers(c, rows, index.stride);
  const int n_rows = (int)rows.size();
  const Halves empty = index.raw.host();
  if (!before.empty()) {
    Device<float> device(numbers_before);
    Device<int> pos(positions_of(before)), firsts(places.firsts(before));
    const IndexCall call = index.call(device, pos, firsts);
    MUST(index_append(&call, (int)before.size(), 0, &error));
    check_caches(index, before, numbers_before, empty, empty);
  }
  const Halves raw_before = index.raw.host(), keys_before = index.keys.host();
  Device<float> device(numbers);
  Device<int> pos(positions_of(rows)), firsts(places.firsts(rows));
  const IndexCall call = index.call(device, pos, firsts);
  const auto row_call = [&](int r) {
    IndexCall one = call;
    one.rows += (size_t)r * index.stride, one.pos += r, one.pages.first += r;
    return one;
  };
  MUST(index_append(&call, n_rows, 0, &error));
  check_caches(index, rows, numbers, raw_before, keys_before);
  const Halves raw = index.raw.host(), keys = index.keys.host();
  const Choice choice = choose(call, n_rows, places.n_ctx_all);
  check_choice(index, rows, numbers, choice);
  expect(choose(call, n_rows, places.n_ctx_all) == choice, c, "the choice of a second run");
  index.raw.set(raw_before), index.keys.set(keys_before);
  Choice alone;
  for (int r = 0; r < n_rows; r++) {
    const IndexCall one = row_call(r);
    MUST(index_append(&one, 1, 0, &error));
    const Choice own = choose(one, 1, places.n_ctx_all);
    alone.scores.insert(alone.scores.end(), own.scores.begin(), own.scores.end());
    alone.chosen.insert(alone.chosen.end(), own.chosen.begin(), own.chosen.end());
    alone.n_chosen.insert(alone.n_chosen.end(), own.n_chosen.begin(), own.n_chosen.end());
  }
  expect(index.raw.host() == raw && index.keys.host() == keys, c, "keys of rows alone");
  expect(alone == choice, c, "the choice of rows alone");
  check_attention(c, places, rows, call, choice);
}

int main(int argc, char **argv) {
  const bool few = argc > 1 && strcmp(argv[1], "few") == 0;
  /* The first rows see all, others choose; the last block of a row ends with it, or has begun. */
  const std::vector<Part> mixed = {{0, 0, 1}, {1, 37, 3}, {-1, 0, 1}, {2, 143, 1}, {3, 12, 2}, {-1, 0, 2}},
                          single = {{0, 150, 1}}, prompt = {{0, 0, 45}}, later = {{0, 61, 5}, {-1, 0, 1}};
  /* Block, budget, index heads, their dimensions; pairs, width; KV heads, query heads of each, head_dim. */
  std::vector<Case> cases = {
      {"a block of one", {1, 20, 3, 12}, 4, 12, 2, 1, 16, true, ANY},
      {"wide keys", {4, 16, 4, 64}, 16, 64, 1, 8, 128, true, ANY},
      {"a wider cache", {4, 32, 2, 12}, 6, 24, 2, 2, 64, true, ANY},
      {"many heads", {16, 32, 18, 128}, 64, 128, 1, 2, 256, true, ANY},
      {"ties", {4, 40, 3, 64}, 8, 64, 1, 11, 32, true, TIES},
      {"ties, blocks of one", {1, 33, 5, 12}, 6, 20, 1, 1, 80, true, TIES},
      {"queries with NaN", {4, 16, 2, 12}, 2, 16, 2, 3, 48, true, WITH_NAN},
      {"an odd head without a rope", {3, 9, 1, 7}, 0, 7, 1, 4, 16, true, ANY},
      {"all are seen", {4, 400, 2, 12}, 6, 12, 1, 4, 64, true, ANY},
  };
  for (const Case &c : cases) {
    run(c, mixed);
    Case one_page = c;
    one_page.paged = false;
    run(one_page, single);
    run(one_page, later);
    if (!few || c.head_dim == 64) run(one_page, prompt); /* more rows than CHOSEN_ROWS */
  }
  /* Several parts of attention, several thread blocks of scores. */
  run({"several parts", {1, 150, 2, 12}, 6, 16, 1, 2, 64, true, ANY}, {{0, 301, 1}, {1, 190, 2}});
  run({"several parts, ties", {4, 200, 2, 12}, 6, 16, 1, 9, 256, true, TIES}, {{0, 1201, 1}});
  /* All sizes with each other, or with `few` each pair of an index' dimension and block with some heads. */
  int n = 0;
  for (int dim : {12, 64, 128, 256})
    for (int block : {1, 4, 16, 64, 80})
      for (int budget : {block, 16 * block})
        for (int head_dim : {16, 64, 128, 256})
          for (int group : {1, 2, 8, 16}) {
            if (few && (n++ % 11 != 0 || block > 64)) continue;
            const Case c = {
                "sweep", {block, budget, 4 + group % 3, dim}, dim / 4, dim, 2, group, head_dim, true, ANY};
            run(c, {{0, 5, 1}, {1, 250 + block, 2}, {-1, 0, 1}, {2, 20 * block - 2, 3}});
          }
  if (!few) {
    run({"a long text", {4, 2048, 4, 64}, 16, 64, 2, 8, 256, true, ANY}, {{0, 131000, 1}, {1, 40003, 2}});
    run({"a long text, ties", {1, 2048, 4, 64}, 16, 64, 2, 8, 256, true, TIES}, {{0, 20000, 1}});
  }
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
