/* kernels_grouped.h - matmuls with weights of 4 or 8 bits in groups along the input.
 *
 * Part of kernels.c. The LANES (16, 8 or 4) columns of a vector of 4-bit weights lie in 2 words, 1 word or
 * half a word of AutoAWQ's layout. The words are broadcast to all lanes, and each lane masks its own nibble
 * without shifting it:
 *
 *   nibble of a word      7 6 5 4 3 2 1 0      column 8c + i of word c sits in nibble [0,4,1,5,2,6,3,7][i]
 *   holds column          7 5 3 1 6 4 2 0
 *
 * A nibble at bit b is 2^b times too large; its lane's scale is divided by 2^b, which is exact. With fp16 or
 * bf16 scales, q s and z s have at most 20 significant bits, so w = q s - z s is exact in fp32; with other
 * scales z s is rounded. A weight is the same number in every kernel.
 *
 * Sums: y = sum over splits of inputs (matmul_splits), in order, of a chain of fused multiply-adds over the
 * split's inputs, in order. Chains may be stored between bands of inputs: fp32 in memory loses nothing. */
#pragma once

#include "base/half.h"
#include "cpu/outer.h"

enum {
  PANEL_INPUTS = 128,           /* inputs of a panel of unpacked weights: 32 KB with MATMUL_COLUMNS */
  BAND_INPUTS = 32,             /* most inputs of a band, which is read one run of columns after another */
  UNIT = LANES < 8 ? 8 : LANES, /* columns that are whole vectors and whole words */
  UNIT_VECTORS = UNIT / LANES,
#if LANES > 4 || defined(__aarch64__)
  RUN_VECTORS = 8, /* most vectors of columns in a run: sums, scales, shifts stay in registers */
#else
  RUN_VECTORS = 4,
#endif
  RUN_UNITS = RUN_VECTORS / UNIT_VECTORS,
#if LANES > 4 || defined(__aarch64__)
  TOGETHER = 8, /* most rows of x in one band() */
#else
  TOGETHER = 4,
#endif
};

/* How many vectors of columns a run() of n_rows rows has, so that sums, scales and shifts stay in
 * registers. */
INLINE int run_vectors(const int n_rows) {
#if LANES == 16 || defined(__aarch64__)
  return n_rows == 1 ? RUN_VECTORS : n_rows <= 4 ? 4 : 2;
#elif LANES == 8
  return n_rows == 1 ? RUN_VECTORS : n_rows <= 4 ? 2 : 1;
#else
  return n_rows == 1 ? RUN_VECTORS : 2;
#endif
}

/* The storage of a matrix; a compile-time constant in every loop. */
typedef enum { AWQ, GROUPED4, GROUPED8 } Form;

INLINE Form form_of(const Linear *w) {
  return w->kind == LINEAR_AWQ ? AWQ : w->bits == 4 ? GROUPED4 : GROUPED8;
}

INLINE size_t form_bytes(const Form form, size_t columns) {
  return form == GROUPED8 ? columns : columns / 2;
}

/* With 16 lanes, lane l holds column l / 2 of word l % 2 (one 64-bit broadcast copies both words). */
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

/* The 4-bit codes of vector v at `words`, each divided by its lane's awq_unit(). last_half: only the first 8
 * columns of a 16-lane vector exist. */
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
  int32_t word;
  memcpy(&word, words + 4 * v, sizeof word);
  const __m256i mask =
      _mm256_setr_epi32(0xf, 0xf0000, 0xf0, 0xf00000, 0xf00, 0xf000000, 0xf000, (int)0xf0000000);
  /* AVX2 cannot convert unsigned integers: the top nibble is read as q - 8, for weights and zeros alike. */
  const __m256i sign = _mm256_setr_epi32(0, 0, 0, 0, 0, 0, 0, INT32_MIN);
  return (vf)_mm256_cvtepi32_ps(_mm256_xor_si256(_mm256_and_si256(_mm256_set1_epi32(word), mask), sign));
#else
  /* An even vector has nibbles 0, 4, 1, 5. An odd one has 2, 6, 3, 7, which a shift by 8 bits moves to 0, 4,
   * 1, 5. */
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

/* LANES bytes as floats. last_half: only the first 8 of 16 bytes exist; the other lanes are 0. */
INLINE vf bytes_load(const uint8_t *bytes, bool last_half) {
#if LANES == 16
  uint64_t half;
  if (last_half) {
    memcpy(&half, bytes, sizeof half);
    return (vf)_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_cvtsi64_si128((long long)half)));
  }
  return (vf)_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i_u *)bytes)));
#elif LANES == 8
  long long eight;
  memcpy(&eight, bytes, sizeof eight);
  return (vf)_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(eight)));
#else
  uint8_t four __attribute__((vector_size(LANES)));
  memcpy(&four, bytes, sizeof four);
  return __builtin_convertvector(__builtin_convertvector(four, vi), vf);
#endif
}

/* Brings columns from memory's order to that of a vector: awq_to_lanes() for 4 bits; no change for 8. */
INLINE vf to_lanes(const Form form, vf natural) {
  return form == GROUPED8 ? natural : awq_to_lanes(natural);
}

INLINE vf to_natural(const Form form, vf lanes) {
  return form == GROUPED8 ? lanes : awq_to_natural(lanes);
}

INLINE vf codes_of(const Form form, const uint8_t *row, int v, bool last_half) {
  return form == GROUPED8 ? bytes_load(row + v * LANES, last_half) : awq_codes(row, v, last_half);
}

/* A matrix from column `first` of columns_of() on. */
typedef struct {
  const uint8_t *words, *zeros, *scales;
  size_t words_step, zeros_step, scales_step; /* bytes of a row of qweight, qzeros, scales */
  int n_in, group;
} Columns;

INLINE Columns columns_of(const Form form, const Linear *w, int first) {
  const size_t at = (size_t)first, width = (size_t)w->n_out + (size_t)w->skip, scale = form == AWQ ? 2 : 4;
  return (Columns){(const uint8_t *)w->qweight + form_bytes(form, at),
                   (const uint8_t *)w->qzeros + (form == AWQ ? at / 2 : at),
                   (const uint8_t *)w->scales + at * scale,
                   form_bytes(form, width),
                   form == AWQ ? width / 2 : width,
                   width * scale,
                   w->n_in,
                   w->group};
}

/* Sets scale, and shift = zero * scale, of group g for n_vectors vectors of columns. */
INLINE void awq_group(const int n_vectors, const bool last_half, Columns w, int g, vf *scale, vf *shift) {
  const uint8_t *scales = w.scales + (size_t)g * w.scales_step, *zeros = w.zeros + (size_t)g * w.zeros_step;
  UNROLL for (int v = 0; v < n_vectors; v++) {
    uint16_t some[UNIT] = {0};
    if (last_half) memcpy(some, scales, 16);
    vf natural = last_half ? vf_load_f16(some) : vf_load_f16(scales + (size_t)v * LANES * 2);
    scale[v] = awq_to_lanes(natural) * awq_unit();
    shift[v] = awq_codes(zeros, v, last_half) * scale[v];
  }
}

/* awq_group() for byte zeros and fp32 scales. */
INLINE void plain_group(const Form form, const int n_vectors, const bool last_half, Columns w, int g,
                        vf *scale, vf *shift) {
  const uint8_t *scales = w.scales + (size_t)g * w.scales_step, *zeros = w.zeros + (size_t)g * w.zeros_step;
  UNROLL for (int v = 0; v < n_vectors; v++) {
    float some[UNIT] = {0};
    if (last_half) memcpy(some, scales, 32);
    vf natural = vf_load(last_half ? (const uint8_t *)some : scales + (size_t)v * LANES * 4);
    vf zero = bytes_load(zeros + v * LANES, last_half);
    scale[v] = to_lanes(form, natural);
    shift[v] = to_lanes(form, zero * natural);
    if (form == GROUPED8) continue;
#if LANES == 8
    shift[v] -= (vf){0, 0, 0, 0, 0, 0, 0, 8} * scale[v]; /* awq_codes() reads the top nibble as q - 8 */
#endif
    scale[v] *= awq_unit();
  }
}

INLINE void group_of(const Form form, const int n_vectors, const bool last_half, Columns w, int g, vf *scale,
                     vf *shift) {
  if (form == AWQ)
    awq_group(n_vectors, last_half, w, g, scale, shift);
  else
    plain_group(form, n_vectors, last_half, w, g, scale, shift);
}

/* A prefetch cursor, FETCH_AHEAD bytes before use: it fetches the rows of a stretch of weights, line by line,
 * and then the thread's next weights. Hardware prefetchers cannot follow the order of use, which
 * is run by run of columns. */
typedef struct {
  uintptr_t at, row_end; /* row_end: end of the used columns in the row of `at` */
  uintptr_t last_end;    /* row_end of the last row */
  size_t width, step;    /* width: bytes of a row's used columns; step: of the whole row */
  NextWeights next;
} Prefetch;

/* Goes on to the thread's next weights. */
INLINE void prefetch_next(Prefetch *ahead) {
  ahead->width = ahead->next.width;
  ahead->step = ahead->next.step;
  ahead->at = (uintptr_t)ahead->next.start;
  ahead->row_end = ahead->at + ahead->width;
  ahead->last_end = UINTPTR_MAX; /* never reached: the call ends before */
}

/* The cursor starts at least a band ahead, since a run of columns reads all rows of the band. If it
 * starts after the last row, the previous call has prefetched all rows. */
INLINE Prefetch prefetch_begin(uintptr_t start, size_t width, size_t step, int n_rows, NextWeights next) {
  size_t rows = (size_t)n_rows, row = FETCH_AHEAD / width > BAND_INPUTS ? FETCH_AHEAD / width : BAND_INPUTS;
  uintptr_t at = start + row * step;
  Prefetch ahead = {at, at + width, start + (rows - 1) * step + width, width, step, next};
  if (!next.start)
    ahead.next = (NextWeights){(const void *)start, width, step}; /* prefetches this call's start again */
  if (row >= rows) prefetch_next(&ahead);
  return ahead;
}

INLINE void prefetch_advance(Prefetch *ahead, size_t bytes) {
  for (size_t line = 0; line < bytes; line += LINE_BYTES)
    __builtin_prefetch((const void *)(ahead->at + line));
  ahead->at += bytes;
  if (ahead->at < ahead->row_end) return;
  if (ahead->row_end == ahead->last_end) {
    prefetch_next(ahead);
  } else {
    ahead->at = ahead->row_end + ahead->step - ahead->width;
    ahead->row_end += ahead->step;
  }
}

/* Prefetches the scales and zeros of group g. */
INLINE void fetch_group(const Form form, const int n_vectors, Columns w, int g) {
  const uint8_t *scales = w.scales + (size_t)g * w.scales_step;
  const int bytes = n_vectors * LANES * (form == AWQ ? 2 : 4);
  for (int byte = 0; byte < bytes; byte += LINE_BYTES) __builtin_prefetch(scales + byte);
  __builtin_prefetch(w.zeros + (size_t)g * w.zeros_step);
}

/* Continues the chains sum[r][v] over inputs [begin, end) of the first n_rows rows of x. PRECOND the inputs
 * are in one group */
INLINE void chain(const Form form, const int n_rows, const int n_vectors, const bool last_half, Columns w,
                  InputRows x, int begin, int end, Prefetch *ahead, vf sum[][RUN_VECTORS]) {
  vf scale[RUN_VECTORS], shift[RUN_VECTORS];
  group_of(form, n_vectors, last_half, w, begin / w.group, scale, shift);
  if (end < w.n_in && end % w.group == 0) fetch_group(form, n_vectors, w, end / w.group);
  const uint8_t *row = w.words + (size_t)begin * w.words_step;
  for (int i = begin; i < end; i++, row += w.words_step) {
    if (ahead) prefetch_advance(ahead, form_bytes(form, (size_t)n_vectors * LANES));
    vf input[TOGETHER];
    UNROLL for (int r = 0; r < n_rows; r++) input[r] = vf_set(x.x[(size_t)r * x.stride + (size_t)i]);
    UNROLL for (int v = 0; v < n_vectors; v++) {
      vf weight = vf_fma(codes_of(form, row, v, last_half), scale[v], -shift[v]);
      UNROLL for (int r = 0; r < n_rows; r++) sum[r][v] = vf_fma(input[r], weight, sum[r][v]);
    }
  }
}

/* Continues the chains y[r][c], or begins them if `fresh`, over inputs [begin, end) of one group. */
INLINE void run(const Form form, const int n_rows, const int n_vectors, Columns w, InputRows x, int begin,
                int end, bool fresh, Prefetch *ahead, float *y, size_t y_stride) {
  vf sum[TOGETHER][RUN_VECTORS];
  UNROLL for (int r = 0; r < n_rows; r++) {
    UNROLL for (int v = 0; v < n_vectors; v++) {
      sum[r][v] = fresh ? (vf){0} : to_lanes(form, vf_load(y + (size_t)r * y_stride + v * LANES));
    }
  }
  chain(form, n_rows, n_vectors, false, w, x, begin, end, ahead, sum);
  UNROLL for (int r = 0; r < n_rows; r++) {
    UNROLL for (int v = 0; v < n_vectors; v++) {
      vf_store(y + (size_t)r * y_stride + v * LANES, to_natural(form, sum[r][v]));
    }
  }
}

/* run() for the last 8 columns if they are half a vector; one row at a time. */
INLINE void run_half(const Form form, const int n_rows, Columns w, InputRows x, int begin, int end,
                     bool fresh, Prefetch *ahead, float *y, size_t y_stride) {
  for (int r = 0; r < n_rows; r++, x.x += x.stride, y += y_stride) {
    float natural[UNIT] = {0};
    if (!fresh) memcpy(natural, y, 8 * sizeof *y);
    vf sum[1][RUN_VECTORS] = {{to_lanes(form, vf_load(natural))}};
    chain(form, 1, 1, true, w, x, begin, end, r == 0 ? ahead : NULL, sum);
    vf_store(natural, to_natural(form, sum[0][0]));
    memcpy(y, natural, 8 * sizeof *y);
  }
}

/* run() of one row for any number of units up to RUN_UNITS. */
INLINE void run_of(const Form form, int n_units, Columns w, InputRows x, int begin, int end, bool fresh,
                   Prefetch *ahead, float *y) {
  switch (n_units) {
  case 1: run(form, 1, 1 * UNIT_VECTORS, w, x, begin, end, fresh, ahead, y, 0); break;
  case 2: run(form, 1, 2 * UNIT_VECTORS, w, x, begin, end, fresh, ahead, y, 0); break;
#if LANES > 4 || defined(__aarch64__)
  case 3: run(form, 1, 3 * UNIT_VECTORS, w, x, begin, end, fresh, ahead, y, 0); break;
  case 4: run(form, 1, 4 * UNIT_VECTORS, w, x, begin, end, fresh, ahead, y, 0); break;
#endif
#if LANES > 4
  case 5: run(form, 1, 5 * UNIT_VECTORS, w, x, begin, end, fresh, ahead, y, 0); break;
  case 6: run(form, 1, 6 * UNIT_VECTORS, w, x, begin, end, fresh, ahead, y, 0); break;
  case 7: run(form, 1, 7 * UNIT_VECTORS, w, x, begin, end, fresh, ahead, y, 0); break;
  case 8: run(form, 1, 8 * UNIT_VECTORS, w, x, begin, end, fresh, ahead, y, 0); break;
#endif
  }
}

/* The end of the group of input `begin`, at most `end`. */
INLINE int group_end(int begin, int end, int group) {
  int left = group - begin % group;
  return end - begin < left ? end : begin + left;
}

/* Multiplies one row by a band's columns that are whole units, in runs of nearly equal width: a run of fewer
 * than four vectors takes hardly less time than one of four. Returns the number of columns. */
INLINE int band_of_row(const Form form, const Linear *linear, InputRows x, int begin, int end, bool fresh,
                       int first, int n, Prefetch *ahead, float *y) {
  int n_units = n / UNIT, n_runs = (n_units + RUN_UNITS - 1) / RUN_UNITS;
  for (int run = 0, from = 0; run < n_runs; run++) {
    int to = from + (n_units - from) / (n_runs - run);
    run_of(form, to - from, columns_of(form, linear, first + from * UNIT), x, begin, end, fresh, ahead,
           y + from * UNIT);
    from = to;
  }
  return n_units * UNIT;
}

/* All columns of a band for n_rows rows; n_rows is a constant. */
INLINE void band(const Form form, const int n_rows, const Linear *linear, InputRows x, int begin, int end,
                 bool fresh, int first, int n, Prefetch *ahead, float *y, size_t y_stride) {
  const int n_vectors = run_vectors(n_rows), width = n_vectors * LANES;
  int c = 0;
  if (n_rows == 1) {
    c = band_of_row(form, linear, x, begin, end, fresh, first, n, ahead, y);
  } else {
    for (; c + width <= n; c += width)
      run(form, n_rows, n_vectors, columns_of(form, linear, first + c), x, begin, end, fresh, ahead, y + c,
          y_stride);
    for (; width > UNIT && c + UNIT <= n; c += UNIT)
      run(form, n_rows, UNIT_VECTORS, columns_of(form, linear, first + c), x, begin, end, fresh, ahead, y + c,
          y_stride);
  }
  if (c < n)
    run_half(form, n_rows, columns_of(form, linear, first + c), x, begin, end, fresh, ahead, y + c, y_stride);
}

/* band() for two rows or more: up to TOGETHER at a time, so that later rows find the band in the caches. */
INLINE void band_of_rows(const Form form, const Linear *linear, InputRows x, int begin, int end, bool fresh,
                         int first, int n, Prefetch *ahead, float *y, size_t y_stride) {
#define BAND(n_rows)                                                                                         \
  case n_rows: band(form, n_rows, linear, x, begin, end, fresh, first, n, ahead, y, y_stride); break;
  for (int left = x.n, some; left > 0; left -= some) {
    some = pass_rows(left, TOGETHER);
    switch (some) {
      BAND(2)
      BAND(3)
      BAND(4)
#if LANES > 4 || defined(__aarch64__)
      BAND(5)
      BAND(6)
      BAND(7)
      BAND(8)
#endif
    }
    x.x += (size_t)some * x.stride;
    y += (size_t)some * y_stride;
    ahead = NULL;
  }
#undef BAND
}

/* Multiplies a few rows of x, band by band of weights; a band lies in one group. `one`, true if x has one
 * row, is a compile-time constant: with it the prefetch cursor stays in registers. */
INLINE void grouped_few(const Form form, const bool one, const Linear *linear, InputRows x, int split,
                        int splits_end, int first, int n, NextWeights next, PartialSums y) {
  Columns w = columns_of(form, linear, first);
  int begin = matmul_split_begin(linear, split), last = matmul_split_begin(linear, splits_end);
  uintptr_t from = (uintptr_t)w.words + (size_t)begin * w.words_step;
  Prefetch ahead = prefetch_begin(from, form_bytes(form, (size_t)n), w.words_step, last - begin, next);
  for (; split < splits_end; split++, y.at += y.split_stride) {
    int start = begin, stop = matmul_split_begin(linear, split + 1);
    while (begin < stop) {
      int end = group_end(begin, stop - begin < BAND_INPUTS ? stop : begin + BAND_INPUTS, w.group);
      if (one)
        band(form, 1, linear, x, begin, end, begin == start, first, n, &ahead, y.at, 0);
      else
        band_of_rows(form, linear, x, begin, end, begin == start, first, n, &ahead, y.at, y.row_stride);
      begin = end;
    }
  }
}

/* panel[i - begin][0 .. UNIT) = the weights of UNIT columns for inputs [begin, end). half: only half of the
 * columns exist; the others get scales, and so weights, of 0. */
INLINE void unpack_unit(const Form form, const bool half, Columns w, int begin, int end, float *panel) {
  for (int i = begin; i < end;) {
    vf scale[UNIT_VECTORS], shift[UNIT_VECTORS];
    int g = i / w.group, stop = group_end(i, end, w.group);
    group_of(form, UNIT_VECTORS, half, w, g, scale, shift);
    const uint8_t *row = w.words + (size_t)i * w.words_step;
    for (; i < stop; i++, row += w.words_step, panel += MATMUL_COLUMNS) {
      UNROLL for (int v = 0; v < UNIT_VECTORS; v++) {
        vf_store(panel + v * LANES,
                 to_natural(form, vf_fma(codes_of(form, row, v, half), scale[v], -shift[v])));
      }
    }
  }
}

/* panel[i - begin][MATMUL_COLUMNS] = the weights of columns [first, first + n), then zeros. */
INLINE void unpack(const Form form, const Linear *linear, int first, int n, int begin, int end,
                   float *panel) {
  if (n < MATMUL_COLUMNS) memset(panel, 0, (size_t)(end - begin) * MATMUL_COLUMNS * sizeof *panel);
  int c = 0;
  for (; c + UNIT <= n; c += UNIT)
    unpack_unit(form, false, columns_of(form, linear, first + c), begin, end, panel + c);
  if (c < n) unpack_unit(form, true, columns_of(form, linear, first + c), begin, end, panel + c);
}

/* Several rows of x: the weights of PANEL_INPUTS inputs are unpacked to `panel`, in the L1 cache, for all
 * rows. */
INLINE void grouped_rows(const Form form, const Linear *linear, const float *x, size_t x_stride, int n_rows,
                         int first, int n, float *panel, float *chains, float *y, size_t y_stride) {
  OuterB b = {.data = panel, .type = KV_F32, .step = MATMUL_COLUMNS, .across = LANES};
  for (int split = 0; split < matmul_splits(linear); split++) {
    int start = matmul_split_begin(linear, split), stop = matmul_split_begin(linear, split + 1);
    for (int begin = start, end; begin < stop; begin = end) {
      end = stop - begin < PANEL_INPUTS ? stop : begin + PANEL_INPUTS;
      unpack(form, linear, first, n, begin, end, panel);
      OuterC c = {.from = begin > start ? chains : NULL,
                  .to = chains,
                  .from_stride = MATMUL_COLUMNS,
                  .stride = MATMUL_COLUMNS};
      if (end == stop) c = (OuterC){c.from, y, start > 0, MATMUL_COLUMNS, y_stride};
      outer_matmul(x + begin, x_stride, n_rows, b, MATMUL_COLUMNS / LANES, end - begin, c);
    }
  }
}

INLINE void grouped_matmul_few_of(const Form form, const Linear *w, InputRows x, int split, int splits_end,
                                  int first, int n, NextWeights next, PartialSums y) {
  if (x.n == 1)
    grouped_few(form, true, w, x, split, splits_end, first, n, next, y);
  else
    grouped_few(form, false, w, x, split, splits_end, first, n, next, y);
}

static void grouped_matmul_few(const Linear *w, InputRows x, int split, int splits_end, int first, int n,
                               NextWeights next, PartialSums y) {
  switch (form_of(w)) {
  case AWQ: grouped_matmul_few_of(AWQ, w, x, split, splits_end, first, n, next, y); break;
  case GROUPED4: grouped_matmul_few_of(GROUPED4, w, x, split, splits_end, first, n, next, y); break;
  case GROUPED8: grouped_matmul_few_of(GROUPED8, w, x, split, splits_end, first, n, next, y); break;
  }
}

static void grouped_matmul_rows(const Linear *w, const float *x, size_t x_stride, int n_rows, int first,
                                int n, float *y, size_t y_stride) {
  float panel[PANEL_INPUTS * MATMUL_COLUMNS] __attribute__((aligned(64)));
  float chains[MATMUL_SIZE] __attribute__((aligned(64)));
  const Form form = form_of(w);
  if (form == AWQ)
    grouped_rows(AWQ, w, x, x_stride, n_rows, first, n, panel, chains, y, y_stride);
  else if (form == GROUPED4)
    grouped_rows(GROUPED4, w, x, x_stride, n_rows, first, n, panel, chains, y, y_stride);
  else
    grouped_rows(GROUPED8, w, x, x_stride, n_rows, first, n, panel, chains, y, y_stride);
}
