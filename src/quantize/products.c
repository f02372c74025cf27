/* products.c - see products.h. */
#include "quantize/products.h"

Products products_make(int n_threads) {
  int n;
  const Kernels *const *usable = kernels_usable(&n);
  return (Products){usable[n - 1], n_threads};
}

static int least(int a, int b) {
  return a < b ? a : b;
}

/* to[k][r] = x[r][first + k] for r < n_rows and k < n. */
static void take_columns(Rows x, int n_rows, int first, int n, float *to, size_t stride) {
  for (size_t r = 0; r < (size_t)n_rows; r++)
    for (size_t k = 0; k < (size_t)n; k++) to[k * stride + r] = x.at[r * x.stride + (size_t)first + k];
}

void product_add(const Products *products, Rows a, int n_rows, Rows b, int n, int n_k, float factor, Rows c) {
  for (int k = 0; k < n_k; k += PRODUCT_BLOCK)
    products->kernels->add_product(a.at + k, a.stride, n_rows, b.at + (size_t)k * b.stride, b.stride, n,
                                   least(n_k - k, PRODUCT_BLOCK), factor, c.at, c.stride);
}

void product_add_transposed(const Products *products, Rows a, int n_rows, Rows b, int n, int n_k,
                            float factor, Rows c) {
  float block[PRODUCT_BLOCK * PRODUCT_BLOCK] __attribute__((aligned(64)));
  for (int k = 0; k < n_k; k += PRODUCT_BLOCK)
    for (int i = 0; i < n; i += PRODUCT_BLOCK) {
      const int columns = least(n - i, PRODUCT_BLOCK), n_in = least(n_k - k, PRODUCT_BLOCK);
      take_columns((Rows){b.at + (size_t)i * b.stride, b.stride}, columns, k, n_in, block, PRODUCT_BLOCK);
      products->kernels->add_product(a.at + k, a.stride, n_rows, block, PRODUCT_BLOCK, columns, n_in, factor,
                                     c.at + i, c.stride);
    }
}

Status sums_add(const Products *products, int n_a, Rows a, int n_b, Rows b, int n_rows, float *sums,
                Error *err) {
  const bool same = a.at == b.at;
  const size_t stride = (size_t)n_rows;
  const int n_blocks = (n_a + PRODUCT_BLOCK - 1) / PRODUCT_BLOCK;
  OWNED(mem_release) float *columns = NULL;
  TRY(NEW(columns, (size_t)n_a * stride, "inputs", err));
#pragma omp parallel for num_threads(products->n_threads) schedule(dynamic, 1)
  for (int block = n_blocks - 1; block >= 0; block--) { /* the longest rows of a triangle first */
    const int first = block * PRODUCT_BLOCK, rows = least(n_a - first, PRODUCT_BLOCK);
    float *own = columns + (size_t)first * stride;
    take_columns(a, n_rows, first, rows, own, stride);
    product_add(products, (Rows){own, stride}, rows, b, same ? first + rows : n_b, n_rows, 1,
                (Rows){sums + (size_t)first * (size_t)n_b, (size_t)n_b});
  }
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
