/* kernels_awq.h - products with 4-bit weights, straight from AutoAWQ's layout.
 *
 * Part of kernels.c. A vector of weights is made from the 2, 1 or half a word that hold its LANES columns:
 * the word is copied to all lanes and each lane keeps its own nibble, where it is in the word:
 *
 *   nibble of a word      7 6 5 4 3 2 1 0      column 8c + i of word c sits in nibble [0,4,1,5,2,6,3,7][i]
 *   holds column          7 5 3 1 6 4 2 0
 *
 * A nibble kept at bit b counts 2^b too much, which its scale takes back (exactly: powers of two). q s and z
 * s have 16 significant bits at most, so w = q s - z s is exact in fp32, and a weight is the same number in
 * every kernel.
 *
 * Sums: y = sum over pieces of inputs (product_pieces), in order, of a chain of fused sums over the piece's
 * inputs, in order. Pieces are what threads can share of one row; where there are several rows their chains
 * go through memory, as they do here from one band of rows to the next, which loses nothing. */
#ifndef AUK_CPU_KERNELS_AWQ_H
#define AUK_CPU_KERNELS_AWQ_H

#include "base/half.h"
#include "cpu/outer.h"

enum {
  PANEL_INPUTS = 128,           /* rows of weights unpacked together for several rows of x: 32 KB */
  BAND_INPUTS = 32,             /* most rows of weights that one row of x meets before their next columns */
  UNIT = LANES < 8 ? 8 : LANES, /* columns: whole vectors and whole words */
  UNIT_VECTORS = UNIT / LANES,
#if LANES > 4 || defined(__aarch64__)
  RUN_VECTORS = 8, /* columns that one pass over a band takes: sums, scales and shifts in registers */
#else
  RUN_VECTORS = 4,
#endif
  RUN_UNITS = RUN_VECTORS / UNIT_VECTORS,
};

/* With 16 lanes, lane l holds word l % 2, column l / 2 of it (one 64-bit broadcast copies both words). */
INLINE vf awq_to_lanes(vf natural) {
#if LANES == 16
  const __m512i from = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
  return (vf)_mm512_permutexvar_ps(from, (__m512)natural);
#else
  return natural;
#endif
}

INLINE vf awq_to_natural(vf lanes) {
#if LANES == 16
  const __m512i from = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  return (vf)_mm512_permutexvar_ps(from, (__m512)lanes);
#else
  return lanes;
#endif
}

/* The codes of vector v behind `words`, each times 1 / awq_unit() of its lane. last_half: only the first 8
 * columns of a 16-lane vector are there. */
INLINE vf awq_codes(const uint8_t *words, int v, bool last_half) {
#if LANES == 16
  const __m512i mask =
      _mm512_setr_epi32(0xf, 0xf, 0xf0000, 0xf0000, 0xf0, 0xf0, 0xf00000, 0xf00000, 0xf00, 0xf00, 0xf000000,
                        0xf000000, 0xf000, 0xf000, (int)0xf0000000, (int)0xf0000000);
  if (last_half) {
    int32_t word;
    memcpy(&word, words + 8 * v, sizeof word);
    return (vf)_mm512_cvtepu32_ps(_mm512_and_si512(_mm512_set1_epi32(word), mask));
  }
  long long pair;
  memcpy(&pair, words + 8 * v, sizeof pair);
  return (vf)_mm512_cvtepu32_ps(_mm512_and_si512(_mm512_set1_epi64(pair), mask));
#elif LANES == 8
  (void)last_half;
  int32_t word;
  memcpy(&word, words + 4 * v, sizeof word);
  const __m256i mask =
      _mm256_setr_epi32(0xf, 0xf0000, 0xf0, 0xf00000, 0xf00, 0xf000000, 0xf000, (int)0xf0000000);
  /* There is no conversion from unsigned: the top nibble becomes q - 8, of weights and of zeros, which is as
   * good. */
  const __m256i sign = _mm256_setr_epi32(0, 0, 0, 0, 0, 0, 0, INT32_MIN);
  return (vf)_mm256_cvtepi32_ps(_mm256_xor_si256(_mm256_and_si256(_mm256_set1_epi32(word), mask), sign));
#else
  /* The even vector has nibbles 0, 4, 1, 5, the odd one 2, 6, 3, 7: the same after a shift. */
  (void)last_half;
  uint32_t word;
  memcpy(&word, words + 4 * (v / 2), sizeof word);
  vi codes = ((vi){0} + (int32_t)(v % 2 ? word >> 8 : word)) & (vi){0xf, 0xf0000, 0xf0, 0xf00000};
  return __builtin_convertvector(codes, vf);
#endif
}

INLINE vf awq_unit(void) {
#if LANES == 16
  return (vf){1,       1,       0x1p-16f, 0x1p-16f, 0x1p-4f,  0x1p-4f,  0x1p-20f, 0x1p-20f,
              0x1p-8f, 0x1p-8f, 0x1p-24f, 0x1p-24f, 0x1p-12f, 0x1p-12f, 0x1p-28f, 0x1p-28f};
#elif LANES == 8
  return (vf){1, 0x1p-16f, 0x1p-4f, 0x1p-20f, 0x1p-8f, 0x1p-24f, 0x1p-12f, 0x1p-28f};
#else
  return (vf){1, 0x1p-16f, 0x1p-4f, 0x1p-20f};
#endif
}

/* Where column `first` of a matrix begins, and how far its rows are apart, in bytes. */
typedef struct {
  const uint8_t *words, *zeros, *scales;
  size_t words_step, scales_step; /* a row of qweight or qzeros; a row of scales */
  int n_in, group;
} AwqColumns;

INLINE AwqColumns awq_columns(const Linear *w, int first) {
  size_t at = (size_t)first;
  return (AwqColumns){(const uint8_t *)w->qweight + at / 2,
                      (const uint8_t *)w->qzeros + at / 2,
                      (const uint8_t *)w->scales + at * 2,
                      ((size_t)w->n_out + (size_t)w->skip) / 2,
                      ((size_t)w->n_out + (size_t)w->skip) * 2,
                      w->n_in,
                      w->group};
}

/* Scales, and zeros times scales, of group g for n_vectors vectors of columns. */
INLINE void awq_group(const int n_vectors, const bool last_half, AwqColumns w, int g, vf *scale, vf *shift) {
  const uint8_t *scales = w.scales + (size_t)g * w.scales_step, *zeros = w.zeros + (size_t)g * w.words_step;
  UNROLL for (int v = 0; v < n_vectors; v++) {
    uint16_t some[UNIT] = {0};
    if (last_half) memcpy(some, scales, 16);
    vf natural = last_half ? vf_load_f16(some) : vf_load_f16(scales + (size_t)v * LANES * 2);
    scale[v] = awq_to_lanes(natural) * awq_unit();
    shift[v] = awq_codes(zeros, v, last_half) * scale[v];
  }
}

/* What is fetched FETCH_AHEAD bytes before its use: the rows of a stretch of weights, one behind the other,
 * then what the thread reads next. Line by line in memory's order is what the hardware's own prefetching
 * follows; column by column, as the words are used, it does not. */
typedef struct {
  uintptr_t at, row_end; /* row_end: behind the columns in use of the row that `at` is in */
  uintptr_t last_end;    /* of the stretch's last row */
  uintptr_t next;
  size_t width, step; /* of those columns, and from row to row */
} Ahead;

/* A band is used column by column, so that all of it has to be there when it begins. */
INLINE Ahead ahead_of(uintptr_t start, size_t width, size_t step, int n_rows, const void *next) {
  size_t rows = (size_t)n_rows, row = FETCH_AHEAD / width > BAND_INPUTS ? FETCH_AHEAD / width : BAND_INPUTS;
  if (!next) next = (const void *)start; /* there already, where nothing is to be fetched */
  if (row >= rows) return (Ahead){(uintptr_t)next + (row - rows) * width, UINTPTR_MAX, 0, 0, 0, 0};
  uintptr_t at = start + row * step;
  return (Ahead){at, at + width, start + (rows - 1) * step + width, (uintptr_t)next, width, step};
}

INLINE void ahead_fetch(Ahead *ahead, size_t bytes) {
  __builtin_prefetch((const void *)ahead->at);
  ahead->at += bytes;
  if (ahead->at < ahead->row_end) return;
  if (ahead->row_end == ahead->last_end) {
    ahead->at = ahead->next;
    ahead->row_end = UINTPTR_MAX;
  } else {
    ahead->at += ahead->step - ahead->width;
    ahead->row_end += ahead->step;
  }
}

/* The scales and zeros of the group behind this one. */
INLINE void awq_fetch_group(const int n_vectors, AwqColumns w, int g) {
  const uint8_t *scales = w.scales + (size_t)g * w.scales_step;
  for (int byte = 0; byte < n_vectors * LANES * 2; byte += LINE_BYTES) __builtin_prefetch(scales + byte);
  __builtin_prefetch(w.zeros + (size_t)g * w.words_step);
}

/* sum[v] goes on as a chain over inputs [begin, end) of one row of x, which share a group. */
INLINE void awq_chain(const int n_vectors, const bool last_half, AwqColumns w, const float *x, int begin,
                      int end, Ahead *ahead, vf *sum) {
  vf scale[RUN_VECTORS], shift[RUN_VECTORS];
  awq_group(n_vectors, last_half, w, begin / w.group, scale, shift);
  if (end < w.n_in && end % w.group == 0) awq_fetch_group(n_vectors, w, end / w.group);
  const uint8_t *row = w.words + (size_t)begin * w.words_step;
  for (int i = begin; i < end; i++, row += w.words_step) {
    ahead_fetch(ahead, (size_t)n_vectors * LANES / 2);
    vf input = vf_set(x[i]);
    UNROLL for (int v = 0; v < n_vectors; v++) {
      vf weight = vf_fma(awq_codes(row, v, last_half), scale[v], -shift[v]);
      sum[v] = vf_fma(input, weight, sum[v]);
    }
  }
}

/* y[c] goes on, or begins where `fresh`, as chains over inputs [begin, end), which share a group. */
INLINE void awq_run(const int n_vectors, AwqColumns w, const float *x, int begin, int end, bool fresh,
                    Ahead *ahead, float *y) {
  vf sum[RUN_VECTORS];
  UNROLL for (int v = 0; v < n_vectors; v++) sum[v] = fresh ? (vf){0} : awq_to_lanes(vf_load(y + v * LANES));
  awq_chain(n_vectors, false, w, x, begin, end, ahead, sum);
  UNROLL for (int v = 0; v < n_vectors; v++) vf_store(y + v * LANES, awq_to_natural(sum[v]));
}

/* The last 8 columns where they are no whole vector. */
INLINE void awq_run_half(AwqColumns w, const float *x, int begin, int end, bool fresh, Ahead *ahead,
                         float *y) {
  float natural[UNIT] = {0};
  if (!fresh) memcpy(natural, y, 8 * sizeof *y);
  vf sum[RUN_VECTORS] = {awq_to_lanes(vf_load(natural))};
  awq_chain(1, true, w, x, begin, end, ahead, sum);
  vf_store(natural, awq_to_natural(sum[0]));
  memcpy(y, natural, 8 * sizeof *y);
}

static void awq_run_of(int n_units, AwqColumns w, const float *x, int begin, int end, bool fresh,
                       Ahead *ahead, float *y) {
  switch (n_units) {
  case 1: awq_run(1 * UNIT_VECTORS, w, x, begin, end, fresh, ahead, y); break;
  case 2: awq_run(2 * UNIT_VECTORS, w, x, begin, end, fresh, ahead, y); break;
#if LANES > 4 || defined(__aarch64__)
  case 3: awq_run(3 * UNIT_VECTORS, w, x, begin, end, fresh, ahead, y); break;
  case 4: awq_run(4 * UNIT_VECTORS, w, x, begin, end, fresh, ahead, y); break;
#endif
#if LANES > 4
  case 5: awq_run(5 * UNIT_VECTORS, w, x, begin, end, fresh, ahead, y); break;
  case 6: awq_run(6 * UNIT_VECTORS, w, x, begin, end, fresh, ahead, y); break;
  case 7: awq_run(7 * UNIT_VECTORS, w, x, begin, end, fresh, ahead, y); break;
  case 8: awq_run(8 * UNIT_VECTORS, w, x, begin, end, fresh, ahead, y); break;
#endif
  }
}

/* The first of [begin, end) that is in another group than begin, or end. */
INLINE int awq_group_end(int begin, int end, int group) {
  int left = group - begin % group;
  return end - begin < left ? end : begin + left;
}

/* A band of rows, all columns; they are cut into runs as even as can be, since a run's time hardly falls
 * below that of four vectors. */
static void awq_band(const Linear *linear, const float *x, int begin, int end, bool fresh, int first, int n,
                     Ahead *ahead, float *y) {
  int n_units = n / UNIT, n_runs = (n_units + RUN_UNITS - 1) / RUN_UNITS;
  for (int run = 0, from = 0; run < n_runs; run++) {
    int to = from + (n_units - from) / (n_runs - run);
    awq_run_of(to - from, awq_columns(linear, first + from * UNIT), x, begin, end, fresh, ahead,
               y + from * UNIT);
    from = to;
  }
  int c = n_units * UNIT;
  if (c < n) awq_run_half(awq_columns(linear, first + c), x, begin, end, fresh, ahead, y + c);
}

/* One row of x, in bands of rows that are small enough for the first-level cache and stay in one group. */
static void awq_product_row(const Linear *linear, const float *x, int piece, int pieces_end, int first, int n,
                            const void *next, float *y, size_t y_stride) {
  AwqColumns w = awq_columns(linear, first);
  int begin = product_piece_begin(linear, piece), last = product_piece_begin(linear, pieces_end);
  uintptr_t from = (uintptr_t)w.words + (size_t)begin * w.words_step;
  Ahead ahead = ahead_of(from, (size_t)n / 2, w.words_step, last - begin, next);
  for (; piece < pieces_end; piece++, y += y_stride) {
    int start = begin, stop = product_piece_begin(linear, piece + 1);
    while (begin < stop) {
      int end = awq_group_end(begin, stop - begin < BAND_INPUTS ? stop : begin + BAND_INPUTS, w.group);
      awq_band(linear, x, begin, end, begin == start, first, n, &ahead, y);
      begin = end;
    }
  }
}

/* panel[i - begin][0 .. UNIT) = the weights of a unit of columns, inputs [begin, end); where only half of it
 * is there the rest comes out as zeros, as its scales are. */
INLINE void awq_unpack_unit(const bool half, AwqColumns w, int begin, int end, float *panel) {
  for (int i = begin; i < end;) {
    vf scale[UNIT_VECTORS], shift[UNIT_VECTORS];
    int g = i / w.group, stop = awq_group_end(i, end, w.group);
    awq_group(UNIT_VECTORS, half, w, g, scale, shift);
    const uint8_t *row = w.words + (size_t)i * w.words_step;
    for (; i < stop; i++, row += w.words_step, panel += PRODUCT_COLUMNS) {
      UNROLL for (int v = 0; v < UNIT_VECTORS; v++) {
        vf_store(panel + v * LANES, awq_to_natural(vf_fma(awq_codes(row, v, half), scale[v], -shift[v])));
      }
    }
  }
}

/* The panel of columns [first, first + n), with zeros behind them. */
static void awq_unpack(const Linear *linear, int first, int n, int begin, int end, float *panel) {
  if (n < PRODUCT_COLUMNS) memset(panel, 0, (size_t)(end - begin) * PRODUCT_COLUMNS * sizeof *panel);
  int c = 0;
  for (; c + UNIT <= n; c += UNIT)
    awq_unpack_unit(false, awq_columns(linear, first + c), begin, end, panel + c);
  if (c < n) awq_unpack_unit(true, awq_columns(linear, first + c), begin, end, panel + c);
}

/* Several rows: some rows of weights are unpacked to the first-level cache and serve all rows of x. */
static void awq_product_rows(const Linear *linear, const float *x, size_t x_stride, int n_rows, int first,
                             int n, float *y, size_t y_stride) {
  float panel[PANEL_INPUTS * PRODUCT_COLUMNS] __attribute__((aligned(64)));
  float chains[PRODUCT_SIZE] __attribute__((aligned(64)));
  OuterB b = {.data = panel, .type = KV_F32, .step = PRODUCT_COLUMNS, .across = LANES};
  for (int piece = 0; piece < product_pieces(linear); piece++) {
    int start = product_piece_begin(linear, piece), stop = product_piece_begin(linear, piece + 1);
    for (int begin = start, end; begin < stop; begin = end) {
      end = stop - begin < PANEL_INPUTS ? stop : begin + PANEL_INPUTS;
      awq_unpack(linear, first, n, begin, end, panel);
      OuterC c = {.from = begin > start ? chains : NULL,
                  .to = chains,
                  .from_stride = PRODUCT_COLUMNS,
                  .stride = PRODUCT_COLUMNS};
      if (end == stop) c = (OuterC){c.from, y, start > 0, PRODUCT_COLUMNS, y_stride};
      outer_product(x + begin, x_stride, n_rows, b, PRODUCT_COLUMNS / LANES, end - begin, c);
    }
  }
}

#endif
