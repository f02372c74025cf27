/* kernels.h - the arithmetic of the CPU backend: one table of functions for each instruction set.
 *
 * kernels.c and the headers it includes are compiled once for each set; load.c takes the fastest table that
 * dispatch.c finds usable. A kernel is single-threaded, allocates nothing (it takes less than 100 KB of
 * stack) and gives a row the same bits whatever the other rows are. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/backend.h"
#include "model/model.h"

enum {
  ALIGN_FLOATS = 16,   /* rows of activations and of V are padded with zeros to a multiple of this */
  KEY_BLOCK = 16,      /* keys whose dimensions are interleaved in the KV cache */
  PAGE_TOKENS = 32,    /* positions of a page: a multiple of KEY_BLOCK, a divisor of SEGMENT */
  SEGMENT = 256,       /* positions of one softmax block; a multiple of KEY_BLOCK */
  MAX_QUERIES = 24,    /* queries that share one pass over a segment */
  TILE_ROWS = 6,       /* rows of the register tile in outer.h */
  FEW_ROWS = 16,       /* most rows of one matmul_few() */
  MATMUL_ROWS = 132,   /* most rows of one matmul_rows(); whole tiles */
  MATMUL_COLUMNS = 64, /* most columns of one matmul_rows() */
  MATMUL_UNIT = 16,    /* `first` of a matmul is a multiple of this */
  MATMUL_SIZE = MATMUL_ROWS * MATMUL_COLUMNS,
  ROUND_OUTPUTS = 16, /* outputs of search_group(), round_group(), move_group(): whole vectors of any width */
  MAX_SPLITS = 16,    /* most splits of a matrix's inputs (split-K); see matmul_splits() */
  SPLIT_UNIT = 32,    /* a split begins at a multiple of this many inputs */
  LINE_BYTES = 64,    /* cache line, for prefetching */
  FETCH_AHEAD = 16384, /* bytes of weights between prefetch and use */
};
_Static_assert(PAGE_TOKENS % KEY_BLOCK == 0 && SEGMENT % PAGE_TOKENS == 0, "a segment is whole pages");
_Static_assert(MATMUL_ROWS % TILE_ROWS == 0, "a task's rows are rounded up to whole tiles");

/* True if the weights lie output by output: threads share the matrix by outputs. */
static inline bool matmul_by_outputs(const Linear *w) {
  return !linear_is_by_inputs(w);
}

/* The number of splits of n_in inputs (split-K): threads share the splits if weights lie input by input and x
 * has a few rows. The number decides the order of sums, so it depends on the matrix only. There is a split
 * for each 1,024 inputs, at least 4, at most MAX_SPLITS, and at most one for each SPLIT_UNIT inputs. */
static inline int matmul_splits_of(int n_in) {
  int n_units = (n_in - 1) / SPLIT_UNIT + 1, n = (n_in - 1) / 1024 + 1;
  n = n < 4 ? 4 : n > MAX_SPLITS ? MAX_SPLITS : n;
  return n < n_units ? n : n_units;
}

static inline int matmul_splits(const Linear *w) {
  return matmul_by_outputs(w) ? 1 : matmul_splits_of(w->n_in);
}

/* The first input of a split; n_in for the split after the last. */
static inline int matmul_split_begin(const Linear *w, int split) {
  int64_t n_units = (w->n_in - 1) / SPLIT_UNIT + 1, begin = n_units * split / matmul_splits(w) * SPLIT_UNIT;
  return begin < w->n_in ? (int)begin : w->n_in;
}

/* The weights that a thread reads after a call, and prefetches during it: rows of `width` bytes, `step` bytes
 * apart. start NULL: none. */
typedef struct {
  const void *start;
  size_t width, step;
} NextWeights;

/* A few rows of activations. */
typedef struct {
  const float *x; /* [n][stride], each row followed by zeros up to a multiple of ALIGN_FLOATS */
  size_t stride;
  int n; /* 1 .. FEW_ROWS */
} InputRows;

/* Partial sums: those of row r and split s begin at `at` + s * split_stride + r * row_stride. */
typedef struct {
  float *at;
  size_t split_stride, row_stride;
} PartialSums;

/* Rows of activations rounded to int8, each with its scale. */
typedef struct {
  int16_t *numbers; /* [n_rows][stride], -128 .. 127; after the row's end: undefined */
  float *scales;    /* [n_rows] */
  size_t stride;    /* a multiple of ROUNDED_ALIGN */
} RoundedRows;

enum { ROUNDED_ALIGN = 32 }; /* numbers */

/* The cache of one KV head of one layer. A vector of K holds one dimension of several keys, so that scores
 * need no sums across lanes; a vector of V holds several dimensions of one key:
 *
 *   k   block 0: d = 0: [key 0 .. 15]  d = 1: [key 0 .. 15]  ...    block 1: d = 0: [key 16 .. 31] ...
 *   v   key 0: [d = 0 .. head_dim - 1, zeros]   key 1: ...
 *
 * The keys here are numbered by their places in the cache: position p of a sequence lies at kv_place(p). */
typedef struct {
  KvType type;
  int head_dim;
  int v_width;          /* head_dim rounded up to ALIGN_FLOATS */
  void *k;              /* [places / KEY_BLOCK rounded up][head_dim][KEY_BLOCK] */
  void *v;              /* [places][v_width] */
  uint16_t *k_scales;   /* fp16, with KV_Q8 [places / KEY_BLOCK rounded up][kv_key_scales()][KEY_BLOCK] */
  uint16_t *v_scales;   /* fp16, with KV_Q8 [places] */
  const int32_t *pages; /* the sequence's page table; NULL: kv_place() is the position */
} KvHead;

static inline int kv_place(const KvHead *kv, int position) {
  return kv->pages ? kv->pages[position / PAGE_TOKENS] * PAGE_TOKENS + position % PAGE_TOKENS : position;
}

/* The end of the run of positions that begins at `from` and lies in consecutive places; at most `to`. */
static inline int kv_run_end(const KvHead *kv, int from, int to) {
  if (!kv->pages) return to;
  int page = from / PAGE_TOKENS, end = (page + 1) * PAGE_TOKENS;
  for (; end < to && kv->pages[page + 1] == kv->pages[page] + 1; page++) end += PAGE_TOKENS;
  return end < to ? end : to;
}

/* Queries of one KV head. */
typedef struct {
  int n;                 /* 1 .. MAX_QUERIES */
  int low[MAX_QUERIES];  /* the first position that each query attends to */
  int high[MAX_QUERIES]; /* the last one */
  float cap;             /* soft cap of the scores; 0: none */
  const float *q;        /* [n][head_dim], already times attention_scale */
} QueryTile;

/* Candidates for the zero point and the scale of a group of weights. */
typedef struct {
  const float *shifts, *shrinks; /* [n_shifts], [n_shrinks] */
  int n_shifts, n_shrinks;
  bool fits; /* each candidate's scale is replaced by the scale with the least error for the same codes */
} GroupSearch;

/* Online softmax of one query: the largest score and the sum of e^(score - max). Functions pass it with
 * out[v_width], the sum of e^(score - max) v; out / sum is the output of attention. sum == 0: no key yet. */
typedef struct {
  float max, sum;
} SoftmaxSum;

/* A token of one head of the gated delta rule. */
typedef struct {
  const float *q, *k; /* [key_dim] normalised */
  const float *v;     /* [n_columns] */
  float decay, beta;
  const float *decays; /* [key_dim] factors of `decay`, one for each number of k; NULL: all are 1 */
  bool only_adds;      /* Mamba-2: does not subtract the state's value for k */
} DeltaToken;

/* The numbers that activations take from the model. */
typedef struct {
  float limit; /* of ACTIVATION_LIMITED */
  Xielu xielu; /* of ACTIVATION_XIELU */
} ActivationNumbers;

typedef struct {
  const char *name; /* "baseline", "avx2", "avx512" */
  int few_rows;     /* the most rows, up to FEW_ROWS, for which matmul_few() was faster than matmul_rows() */

  /* A few rows of x, as partial sums over splits of the inputs. In y, element
   * [c - first] of row r and split p - split becomes
   *   the sum over the inputs i of split p of w[i][c] x[r][i],
   * for p in [split, splits_end), c in [first, first + n). The sums of all splits, added in order, are W x.
   * Each weight is read from memory once; the bits of y do not depend on the number of rows. If w lies
   * input by input, the weights at `next`, which this thread reads afterwards, are prefetched.
   * PRECOND w is not LINEAR_INT8; first % MATMUL_UNIT == 0 */
  void (*matmul_few)(const Linear *w, InputRows x, int split, int splits_end, int first, int n,
                     NextWeights next, PartialSums y);

  /* y[c] = sum over p of parts[p][c], in order. */
  void (*join)(const float *parts, size_t stride, int n_parts, int n, float *y);

  /* y[r][c - first] = sum_i w[i][c] x[r][i], c in [first, first + n), without the bias. The bits are those of
   * matmul_few() and join().
   * PRECOND as for matmul_few(); n_rows <= MATMUL_ROWS, n <= MATMUL_COLUMNS <= y_stride;
   *         y[r][n .. y_stride) may be overwritten. */
  void (*matmul_rows)(const Linear *w, const float *x, size_t x_stride, int n_rows, int first, int n,
                      float *y, size_t y_stride);

  /* out[i] = x[i] / scale rounded as model.h specifies for LINEAR_INT8; returns the scale, NaN if a number is
   * not finite. PRECOND x is followed by zeros up to a multiple of ALIGN_FLOATS; out is written up to
   * there. */
  float (*round_row)(const float *x, int n, int16_t *out);

  /* Finds the zero point (0 .. 15) and the scale (a number of fp16, > 0) for a group of n weights of
   * ROUND_OUTPUTS outputs, w[n][ROUND_OUTPUTS]. Takes the candidates with the least sum of importance[i]
   * (scale k[i] - w[i])^2, where k[i] = round(w[i] / scale) clamped to -zero .. 15 - zero. Candidates: zero =
   * shift + round(-15 low / (high - low)) clamped to 0 .. 15, where low and high are the ends of the group's
   * range, 0 included; scale = shrink * the least scale that clips nothing. */
  void (*search_group)(const float *w, const float *importance, int n, const GroupSearch *search,
                       float *scales, float *zeros);

  /* Rounds n weights of ROUND_OUTPUTS outputs, one after another, by scales[ROUND_OUTPUTS] and zeros:
   *   k = as in search_group();  codes[j] = k + zero;  errors[j] = (w[j] - scale k) / u[j][j]
   *   w[i] -= u[j][i] * errors[j] for i > j
   * u NULL: errors[j] = w[j] - scale k, and w stays. */
  void (*round_group)(float *w, int n, const float *u, size_t u_stride, const float *scales,
                      const float *zeros, uint8_t *codes, float *errors);

  /* Moves levels k = code - zero of a group of n weights of ROUND_OUTPUTS outputs, one after another, to
   * lower a loss. h[n][n]: the loss's second derivatives; slopes: minus its first derivatives. For each j:
   *   k = round(levels[j] + slopes[j] / (scale h[j][j])) clamped to -zero .. 15 - zero
   *   changes[j] = scale (k - levels[j]);  levels[j] = k;  slopes[i] -= h[j][i] changes[j] for all i */
  void (*move_group)(float *levels, float *slopes, int n, const float *h, const float *scales,
                     const float *zeros, float *changes);

  /* c[r][i] += factor * sum over k < n_k of a[r][k] b[k][i], for r < n_rows and i < n.
   * PRECOND n % ALIGN_FLOATS == 0, factor != 0 */
  void (*add_product)(const float *a, size_t a_stride, int n_rows, const float *b, size_t b_stride, int n,
                      int n_k, float factor, float *c, size_t c_stride);

  /* y[r][c - first] = scale of row r * scale of output c * sum_i w[i][c] x[r][i] for LINEAR_INT8, without the
   * bias. The sum is exact. */
  void (*matmul_int8)(const Linear *w, RoundedRows x, int n_rows, int first, int n, float *y,
                      size_t y_stride);

  /* out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i]; out may be x. */
  void (*rms_norm)(const float *x, const float *weight, int n, double eps, float *out);

  /* gate[i] becomes g of config.h, "Activation", for gate[i] and up[i]. `up` may be `gate`. `own` may be
   * NULL, except for ACTIVATION_LIMITED and ACTIVATION_XIELU. */
  void (*activate)(Activation how, const ActivationNumbers *own, float *gate, const float *up, int n);

  /* x[i] = 1 / (1 + e^-x[i]) */
  void (*sigmoid)(float *x, int n);

  /* out[i] = silu(bias[i] + sum over t of taps[t * stride + i] * x[t][i]); bias may be NULL. out may
   * be a row of x. PRECOND n % ALIGN_FLOATS == 0 */
  void (*convolve)(const float *const *x, int n_taps, const float *taps, size_t stride, int n,
                   const float *bias, float *out);

  /* out[i] = gates[i] * (bias[i] + the sum of convolve()); bias is not NULL. PRECOND as for convolve() */
  void (*gated_convolve)(const float *const *x, int n_taps, const float *taps, size_t stride, int n,
                         const float *gates, const float *bias, float *out);

  /* One token of the gated delta rule, or of Mamba-2, in some columns of one head's state:
   *   d[j] = (v[j] - decay * sum_i state[i][j] k[i]) * beta, or with only_adds v[j] * beta
   *   state[i][j] = decay * state[i][j] + k[i] * d[j];   out[j] = sum_i state[i][j] q[i]
   * With decays, decay * decays[i] replaces decay in row i.
   * PRECOND n_columns % ALIGN_FLOATS == 0 */
  void (*delta_rule)(const DeltaToken *token, int n_keys, int n_columns, float *state, size_t stride,
                     float *out);

  /* x[i] = cap * tanh(x[i] / cap) */
  void (*soft_cap)(float *x, int n, float cap);

  /* RoPE of the pairs (i, i + half) of a head; multiplies all of its dim numbers by scale. half == 0: no
   * rotation. */
  void (*rotate)(float *head, const float *cosines, const float *sines, int half, int dim, float scale);

  /* rotate() for the pairs (2 i, 2 i + 1), i < half. */
  void (*rotate_neighbours)(float *head, const float *cosines, const float *sines, int half, int dim,
                            float scale);

  /* Puts the key and value of `position` into the KV cache. PRECOND k and v hold head_dim numbers. */
  void (*append)(const KvHead *kv, int position, const float *k, const float *v);

  /* sums[i] and out[i][v_width] = the online softmax of query i over those keys that it attends to among the
   * SEGMENT positions from segment * SEGMENT on; sum == 0 if there are none. PRECOND some query attends to a
   * key of the segment */
  void (*attend)(const KvHead *kv, int segment, const QueryTile *tile, SoftmaxSum *sums, float *out);

  /* Merges the softmax of a later segment into a query's. */
  void (*merge)(SoftmaxSum *sum, float *out, SoftmaxSum later, const float *later_out, int v_width);
} Kernels;

extern const Kernels kernels_baseline;
#if defined(__x86_64__)
extern const Kernels kernels_avx2, kernels_avx512;
#endif

/* The *n tables that this machine can run, slowest first. */
const Kernels *const *kernels_usable(int *n);
