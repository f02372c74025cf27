/* products.c - see products.h. Called by: the other files of src/quantize. Calls: the CPU's kernels. */
#include "quantize/products.h"

#include <stdlib.h>
#include <string.h>

Products products_make(int n_threads) {
  int n;
  const Kernels *const *usable = kernels_usable(&n);
  return (Products){usable[n - 1], n_threads};
}

/* c += factor * a bT for a block of rows and a block of columns, all of k at once. */
static void add_tile(const Products *products, Rows a, int n_rows, const Linear *b, int n, float factor,
                     Rows c) {
  float tile[MATMUL_SIZE] __attribute__((aligned(64)));
  products->kernels->matmul_rows(b, a.at, a.stride, n_rows, 0, n, tile, MATMUL_COLUMNS);
  for (size_t r = 0; r < (size_t)n_rows; r++)
    for (size_t i = 0; i < (size_t)n; i++) c.at[r * c.stride + i] += factor * tile[r * MATMUL_COLUMNS + i];
}

static int least(int a, int b) {
  return a < b ? a : b;
}

void product_add(const Products *products, Rows a, int n_rows, Rows b, int n, int n_k, float factor, Rows c) {
  if (n_k == 0) return;
  const int piece = b.stride % (size_t)n_k == 0 ? n_k : PRODUCT_BLOCK;
  for (int k = 0; k < n_k; k += piece)
    for (int r = 0; r < n_rows; r += MATMUL_ROWS)
      for (int i = 0; i < n; i += MATMUL_COLUMNS) {
        const Linear part = {.kind = LINEAR_DENSE,
                             .dtype = DTYPE_F32,
                             .n_in = piece,
                             .n_out = n - i,
                             .row_skip = (int)(b.stride / (size_t)piece) - 1,
                             .weight = b.at + (size_t)i * b.stride + (size_t)k};
        add_tile(products, (Rows){a.at + (size_t)r * a.stride + (size_t)k, a.stride},
                 least(n_rows - r, MATMUL_ROWS), &part, least(n - i, MATMUL_COLUMNS), factor,
                 (Rows){c.at + (size_t)r * c.stride + (size_t)i, c.stride});
      }
}

static size_t padded(int n) {
  return ((size_t)n + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
}

enum { COLUMNS = ALIGN_FLOATS }; /* a line of memory */

/* to[k] = column first + k of x, for k < n <= COLUMNS, with zeros up to `stride`. */
static void take_columns(Rows x, int n_rows, int first, int n, float *to, size_t stride) {
  for (size_t r = 0; r < (size_t)n_rows; r++)
    for (size_t k = 0; k < (size_t)n; k++) to[k * stride + r] = x.at[r * x.stride + (size_t)first + k];
  for (size_t k = 0; k < (size_t)n; k++)
    memset(to + k * stride + n_rows, 0, (stride - (size_t)n_rows) * sizeof *to);
}

Status sums_add(const Products *products, int n_a, Rows a, int n_b, Rows b, int n_rows, float *sums,
                Error *err) {
  const size_t stride = padded(n_rows);
  const bool same = a.at == b.at;
  const int n_blocks = (n_a + PRODUCT_BLOCK - 1) / PRODUCT_BLOCK;
  float *columns = mem_alloc((size_t)(same ? n_a : n_a + n_b), stride * sizeof *columns, "inputs", err);
  if (!columns) return STATUS_FAILED;
  const Rows others = {same ? columns : columns + (size_t)n_a * stride, stride};
#pragma omp parallel num_threads(products->n_threads)
  {
#pragma omp for schedule(static) nowait
    for (int i = 0; i < n_a; i += COLUMNS)
      take_columns(a, n_rows, i, least(n_a - i, COLUMNS), columns + (size_t)i * stride, stride);
#pragma omp for schedule(static)
    for (int i = 0; i < (same ? 0 : n_b); i += COLUMNS)
      take_columns(b, n_rows, i, least(n_b - i, COLUMNS), others.at + (size_t)i * stride, stride);
#pragma omp for schedule(dynamic, 1)
    for (int block = n_blocks - 1; block >= 0; block--) { /* the longest rows of a triangle first */
      const int first = block * PRODUCT_BLOCK, rows = least(n_a - first, PRODUCT_BLOCK);
      product_add(products, (Rows){columns + (size_t)first * stride, stride}, rows, others,
                  same ? first + rows : n_b, (int)stride, 1,
                  (Rows){sums + (size_t)first * (size_t)n_b, (size_t)n_b});
    }
  }
  free(columns);
  return STATUS_OK;
}

Status square_finish(const Products *products, float factor, int n, float *square, Error *err) {
  const size_t size = (size_t)n;
#pragma omp parallel for num_threads(products->n_threads) schedule(dynamic, 16)
  for (size_t i = 0; i < size; i++)
    for (size_t j = 0; j <= i; j++) {
      square[i * size + j] *= factor;
      square[j * size + i] = square[i * size + j];
    }
  return STATUS_OK;
}
