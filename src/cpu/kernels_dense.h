/* kernels_dense.h - products with unquantised weights (the inputs of an output are contiguous), and with
 * weights that were widened to fp32.
 *
 * Part of kernels.c. Lanes hold inputs, so each block of inputs needs a sum across lanes:
 *   y = sum over blocks of DENSE_BLOCK inputs, in order, of vf_sum(chain over vectors of inputs). */
#pragma once

#include "base/half.h"
#include "cpu/kernels.h"
#include "cpu/vector.h"

enum {
  DENSE_BLOCK = 1024,
  PANEL_OUTPUTS = 16, /* rows of W that are widened to fp32 together: 64 KB */
  FEW_OUTPUTS = 8,    /* most rows of W in one dense_few() */
  PASS_ROWS = 8,      /* most rows of x in one dense_few() */
#if LANES == 16 || defined(__aarch64__)
  DOT_ROWS = 6,
  DOT_OUTPUTS = 4,
#else
  DOT_ROWS = 3,
  DOT_OUTPUTS = 4,
#endif
};

/* The distance between neighbouring rows of W, in rows of the stored matrix. */
INLINE size_t row_step(const Linear *w) {
  return 1 + (size_t)w->row_skip;
}

/* Bytes from one row of W to the next; numbers have `size` bytes. */
INLINE size_t dense_step(const Linear *w, size_t size) {
  return (size_t)w->n_in * size * row_step(w);
}

INLINE vf dense_load(const Dtype dtype, const uint8_t *p) {
  switch (dtype) {
  case DTYPE_F16: return vf_load_f16(p);
  case DTYPE_BF16: return vf_load_bf16(p);
  default: return vf_load(p);
  }
}

/* The n < LANES numbers at p, followed by zeros. */
INLINE vf dense_load_some(const Dtype dtype, const uint8_t *p, int n) {
  uint8_t some[LANES * 4] = {0};
  memcpy(some, p, (size_t)n * (dtype == DTYPE_F32 ? 4 : 2));
  return dense_load(dtype, some);
}

/* How many rows of W one dense_few() of n_rows rows of x takes, so that the sums stay in registers. */
INLINE int few_outputs(const int n_rows) {
#if LANES == 16 || defined(__aarch64__)
  return n_rows <= 2 ? FEW_OUTPUTS : n_rows <= 6 ? 4 : 2;
#else
  return n_rows == 1 ? FEW_OUTPUTS : n_rows == 2 ? 4 : n_rows <= 4 ? 2 : 1;
#endif
}

/* y[r][o] for n_outputs rows of W and n_rows rows of x; prefetches the next n_outputs rows of W. */
INLINE void dense_few(const Dtype dtype, const int n_rows, const int n_outputs, const Linear *w, InputRows x,
                      int first, float *y, size_t y_stride) {
  const size_t size = dtype == DTYPE_F32 ? 4 : 2, step = dense_step(w, size);
  const uint8_t *rows = (const uint8_t *)w->weight + (size_t)first * step;
  uintptr_t ahead = (uintptr_t)rows + (size_t)n_outputs * step;
  for (int begin = 0; begin < w->n_in; begin += DENSE_BLOCK) {
    int end = w->n_in - begin < DENSE_BLOCK ? w->n_in : begin + DENSE_BLOCK, i = begin;
    vf sum[PASS_ROWS][FEW_OUTPUTS], weight[FEW_OUTPUTS];
    UNROLL for (int r = 0; r < n_rows; r++) {
      UNROLL for (int o = 0; o < n_outputs; o++) sum[r][o] = (vf){0};
    }
    for (; i < end; i += LANES) {
      const uint8_t *at = rows + (size_t)i * size;
      if (i + LANES <= end) {
        UNROLL for (int o = 0; o < n_outputs; o++) weight[o] = dense_load(dtype, at + (size_t)o * step);
      } else {
        UNROLL for (int o = 0; o < n_outputs; o++) {
          weight[o] = dense_load_some(dtype, at + (size_t)o * step, end - i);
        }
      }
      UNROLL for (int r = 0; r < n_rows; r++) {
        const vf input = vf_load(x.x + (size_t)r * x.stride + i);
        UNROLL for (int o = 0; o < n_outputs; o++) sum[r][o] = vf_fma(weight[o], input, sum[r][o]);
      }
      UNROLL for (size_t line = 0; line < (size_t)n_outputs * LANES * size; line += 64) {
        __builtin_prefetch((const void *)(ahead + line));
      }
      ahead += (size_t)n_outputs * LANES * size;
    }
    UNROLL for (int r = 0; r < n_rows; r++) {
      UNROLL for (int o = 0; o < n_outputs; o++) {
        float part = vf_sum(sum[r][o]), *to = y + (size_t)r * y_stride + o;
        *to = begin == 0 ? part : *to + part;
      }
    }
  }
}

/* panel[o][DENSE_BLOCK] = inputs [begin, end) of rows [first, first + n) of W, zero-padded to whole
 * vectors. */
INLINE void dense_widen(const Dtype dtype, const Linear *w, int first, int n, int begin, int end,
                        float *panel) {
  const size_t size = dtype == DTYPE_F32 ? 4 : 2;
  for (int o = 0; o < n; o++, panel += DENSE_BLOCK) {
    const uint8_t *row = (const uint8_t *)w->weight + (size_t)(first + o) * dense_step(w, size);
    int i = begin;
    for (; i + LANES <= end; i += LANES)
      vf_store(panel + i - begin, dense_load(dtype, row + (size_t)i * size));
    if (i < end) vf_store(panel + i - begin, dense_load_some(dtype, row + (size_t)i * size, end - i));
  }
}

/* y[r][o] = (with add: +=) the sum over a block of n inputs (rounded up to LANES). */
INLINE void dot_tile(const int n_rows, const int n_outputs, const float *x, size_t x_stride,
                     const float *panel, int n, bool add, float *y, size_t y_stride) {
  vf sum[DOT_ROWS][DOT_OUTPUTS];
  UNROLL for (int r = 0; r < n_rows; r++) {
    UNROLL for (int o = 0; o < n_outputs; o++) sum[r][o] = (vf){0};
  }
  for (int i = 0; i < n; i += LANES) {
    vf weight[DOT_OUTPUTS];
    UNROLL for (int o = 0; o < n_outputs; o++) weight[o] = vf_load(panel + o * DENSE_BLOCK + i);
    UNROLL for (int r = 0; r < n_rows; r++) {
      vf input = vf_load(x + (size_t)r * x_stride + i);
      UNROLL for (int o = 0; o < n_outputs; o++) sum[r][o] = vf_fma(weight[o], input, sum[r][o]);
    }
  }
  UNROLL for (int r = 0; r < n_rows; r++) {
    UNROLL for (int o = 0; o < n_outputs; o++) {
      float *to = y + (size_t)r * y_stride + o, part = vf_sum(sum[r][o]);
      *to = add ? *to + part : part;
    }
  }
}

static void dot_rows(const float *x, size_t x_stride, int n_rows, const float *panel, int n_outputs, int n,
                     bool add, float *y, size_t y_stride) {
  for (int r = 0; r < n_rows;) {
    int rows = n_rows - r < DOT_ROWS ? 1 : DOT_ROWS, o = 0;
    const float *from = x + (size_t)r * x_stride;
    float *to = y + (size_t)r * y_stride;
    for (; o + DOT_OUTPUTS <= n_outputs; o += DOT_OUTPUTS) {
      const float *weights = panel + o * DENSE_BLOCK;
      if (rows == 1)
        dot_tile(1, DOT_OUTPUTS, from, x_stride, weights, n, add, to + o, y_stride);
      else
        dot_tile(DOT_ROWS, DOT_OUTPUTS, from, x_stride, weights, n, add, to + o, y_stride);
    }
    for (; o < n_outputs; o++) {
      for (int i = 0; i < rows; i++) {
        dot_tile(1, 1, from + (size_t)i * x_stride, 0, panel + o * DENSE_BLOCK, n, add,
                 to + (size_t)i * y_stride + o, 0);
      }
    }
    r += rows;
  }
}
