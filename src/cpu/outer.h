/* outer.h - C = A B as a sum of outer products, in register tiles.
 *
 * Part of kernels.c. A is fp32 rows; B is fp32, fp16 or int8, vectors of LANES columns for each k. Each
 * element of C is one chain of fused multiply-adds over k in order, so it has the same bits in a tile of any
 * shape. */
#pragma once

#include "cpu/kernels.h"
#include "cpu/vector.h"

/* B[k][v] lies at data + (k * step + v * across) elements. In fp16 and int8 B is rows of the KV cache: the
 * iteration for k then prefetches a tile's vectors at data + ahead + k * ahead_step bytes. */
typedef struct {
  const void *data;
  KvType type;
  size_t step, across;
  size_t ahead, ahead_step; /* bytes */
} OuterB;

/* The accumulators start with the numbers at `from` (NULL: 0). They are stored at `to` or, if `add` is not 0,
 * multiplied by `add` and added to the numbers there. Strides are from row to row. */
typedef struct {
  const float *from;
  float *to;
  float add;
  size_t from_stride, stride;
} OuterC;

INLINE vf outer_load(OuterB b, KvType type, size_t offset) {
  switch (type) {
  case KV_F16: return vf_load_f16((const uint16_t *)b.data + offset);
  case KV_Q8: return vf_load_int8((const int8_t *)b.data + offset);
  default: return vf_load((const float *)b.data + offset);
  }
}

INLINE OuterC outer_right(OuterC c, int columns) {
  return (OuterC){c.from ? c.from + columns : NULL, c.to + columns, c.add, c.from_stride, c.stride};
}

INLINE OuterC outer_down(OuterC c, int rows) {
  size_t n = (size_t)rows;
  return (OuterC){c.from ? c.from + n * c.from_stride : NULL, c.to + n * c.stride, c.add, c.from_stride,
                  c.stride};
}

/* One tile. Callers pass constants for n_rows, n_vectors and type. */
INLINE void outer_tile(const int n_rows, const int n_vectors, const KvType type, const float *a,
                       size_t a_stride, OuterB b, int n_k, OuterC c) {
  vf sum[TILE_ROWS][TILE_VECTORS];
  UNROLL for (int r = 0; r < n_rows; r++) {
    UNROLL for (int v = 0; v < n_vectors; v++) {
      sum[r][v] = c.from ? vf_load(c.from + (size_t)r * c.from_stride + v * LANES) : (vf){0};
    }
  }
  for (int k = 0; k < n_k; k++) {
    vf column[TILE_VECTORS];
    if (type != KV_F32) {
      uintptr_t ahead = (uintptr_t)b.data + b.ahead + (size_t)k * b.ahead_step;
      const size_t bytes = (size_t)n_vectors * LANES * kv_number_bytes(type);
      for (size_t byte = 0; byte < bytes; byte += LINE_BYTES)
        __builtin_prefetch((const void *)(ahead + byte));
    }
    UNROLL for (int v = 0; v < n_vectors; v++) {
      column[v] = outer_load(b, type, (size_t)k * b.step + (size_t)v * b.across);
    }
    UNROLL for (int r = 0; r < n_rows; r++) {
      vf x = vf_set(a[(size_t)r * a_stride + (size_t)k]);
      UNROLL for (int v = 0; v < n_vectors; v++) sum[r][v] = vf_fma(x, column[v], sum[r][v]);
    }
  }
  UNROLL for (int r = 0; r < n_rows; r++) {
    UNROLL for (int v = 0; v < n_vectors; v++) {
      float *to = c.to + (size_t)r * c.stride + v * LANES;
      vf_store(to, c.add != 0 ? vf_fma(vf_set(c.add), sum[r][v], vf_load(to)) : sum[r][v]);
    }
  }
}

INLINE void outer_rows(const int n_vectors, const KvType type, const float *a, size_t a_stride, int n_rows,
                       OuterB b, int n_k, OuterC c) {
  for (; n_rows >= TILE_ROWS; n_rows -= TILE_ROWS) {
    outer_tile(TILE_ROWS, n_vectors, type, a, a_stride, b, n_k, c);
    a += TILE_ROWS * a_stride;
    c = outer_down(c, TILE_ROWS);
  }
  switch (n_rows) {
  case 1: outer_tile(1, n_vectors, type, a, a_stride, b, n_k, c); break;
  case 2: outer_tile(2, n_vectors, type, a, a_stride, b, n_k, c); break;
  case 3: outer_tile(3, n_vectors, type, a, a_stride, b, n_k, c); break;
  case 4: outer_tile(4, n_vectors, type, a, a_stride, b, n_k, c); break;
  case 5: outer_tile(5, n_vectors, type, a, a_stride, b, n_k, c); break;
  }
}

INLINE void outer_columns(const KvType type, const float *a, size_t a_stride, int n_rows, OuterB b,
                          int n_vectors, int n_k, OuterC c) {
  const size_t size = kv_number_bytes(type);
  for (; n_vectors >= TILE_VECTORS; n_vectors -= TILE_VECTORS) {
    outer_rows(TILE_VECTORS, type, a, a_stride, n_rows, b, n_k, c);
    b.data = (const uint8_t *)b.data + TILE_VECTORS * b.across * size;
    c = outer_right(c, TILE_VECTORS * LANES);
  }
  for (; n_vectors > 0; n_vectors--) {
    outer_rows(1, type, a, a_stride, n_rows, b, n_k, c);
    b.data = (const uint8_t *)b.data + b.across * size;
    c = outer_right(c, LANES);
  }
}

/* C[n_rows][n_vectors * LANES] = A[n_rows][n_k] B. Not inlined, so that the tiles are compiled once. */
static __attribute__((noinline)) void outer_matmul(const float *a, size_t a_stride, int n_rows, OuterB b,
                                                   int n_vectors, int n_k, OuterC c) {
  if (b.type == KV_F16)
    outer_columns(KV_F16, a, a_stride, n_rows, b, n_vectors, n_k, c);
  else if (b.type == KV_Q8)
    outer_columns(KV_Q8, a, a_stride, n_rows, b, n_vectors, n_k, c);
  else
    outer_columns(KV_F32, a, a_stride, n_rows, b, n_vectors, n_k, c);
}
