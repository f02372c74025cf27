/* factor.c - see factor.h. Called by: layer.c through cpu_quantizer.c.
 *
 * With J, which reverses the order: J H J = C C^T (Cholesky), so H = R R^T with R = J C J upper triangular,
 * H^-1 = R^-T R^-1, and U = R^-1 = J C^-1 J. Columns are taken in blocks of BLOCK: sums within a block are in
 * double, all others are fp32 products. */
#include "quantize/factor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = PRODUCT_BLOCK };

typedef struct {
  const Products *products;
  int n;         /* a multiple of BLOCK */
  size_t stride; /* n */
  float *c;      /* [n][n] J H J, then its factor in the lower triangle */
  float *t;      /* [n][n] the transposed inverse of that factor, upper triangular */
} Factor;

static void factor_release(Factor *f) {
  free(f->c);
  free(f->t);
}

/* Factors the block on the diagonal at column k; false: it is not positive definite. */
static bool factor_diagonal(const Factor *f, int k) {
  float *block = f->c + (size_t)k * f->stride + (size_t)k;
  for (size_t i = 0; i < BLOCK; i++)
    for (size_t j = 0; j <= i; j++) {
      double sum = block[i * f->stride + j];
      for (size_t m = 0; m < j; m++)
        sum -= (double)block[i * f->stride + m] * (double)block[j * f->stride + m];
      if (i == j && !(sum > 0)) return false;
      block[i * f->stride + j] = (float)(i == j ? sqrt(sum) : sum / (double)block[j * f->stride + j]);
    }
  return true;
}

/* row[BLOCK] = the solution x of block x = row, block being lower triangular. */
static void solve_forward(const Factor *f, const float *block, float *row) {
  for (size_t j = 0; j < BLOCK; j++) {
    double sum = row[j];
    for (size_t m = 0; m < j; m++) sum -= (double)row[m] * (double)block[j * f->stride + m];
    row[j] = (float)(sum / (double)block[j * f->stride + j]);
  }
}

static bool factor(const Factor *f) {
  for (int k = 0; k < f->n; k += BLOCK) {
    const float *block = f->c + (size_t)k * f->stride + (size_t)k;
    if (!factor_diagonal(f, k)) return false;
#pragma omp parallel num_threads(f->products->n_threads)
    {
#pragma omp for schedule(static)
      for (int i = k + BLOCK; i < f->n; i++)
        solve_forward(f, block, f->c + (size_t)i * f->stride + (size_t)k);
#pragma omp for schedule(dynamic, 1)
      for (int i = k + BLOCK; i < f->n; i += BLOCK) {
        const Rows rows = {f->c + (size_t)i * f->stride + (size_t)k, f->stride},
                   columns = {f->c + (size_t)(k + BLOCK) * f->stride + (size_t)k, f->stride},
                   to = {f->c + (size_t)i * f->stride + (size_t)(k + BLOCK), f->stride};
        product_add_transposed(f->products, rows, BLOCK, columns, i - k, BLOCK, -1, to);
      }
    }
  }
  return true;
}

/* Fills rows [j, j + BLOCK) of t: row j of t is column j of C^-1. */
static void invert_rows(const Factor *f, int j) {
  float *rows = f->t + (size_t)j * f->stride;
  for (int i = j; i < f->n; i += BLOCK) {
    const float *block = f->c + (size_t)i * f->stride + (size_t)i;
    /* right-hand side: the identity, minus the columns solved so far times C^T */
    for (size_t r = 0; r < BLOCK && i == j; r++) rows[r * f->stride + (size_t)i + r] = 1;
    product_add_transposed(f->products, (Rows){rows + j, f->stride}, BLOCK,
                           (Rows){f->c + (size_t)i * f->stride + (size_t)j, f->stride}, BLOCK, i - j, -1,
                           (Rows){rows + i, f->stride});
    for (size_t r = 0; r < BLOCK; r++) solve_forward(f, block, rows + r * f->stride + (size_t)i);
  }
}

/* Sets c to J H J, and adds `more` times the mean of H's diagonal to each number on the diagonal. Rows from n
 * on fill the last block; they are those of the identity. */
static void take(const Factor *f, const float *h, int n, double more) {
  double mean = 0;
  for (size_t i = 0; i < (size_t)n; i++) mean += (double)h[i * (size_t)n + i] / n;
  for (size_t i = 0; i < (size_t)f->n; i++)
    for (size_t j = 0; j <= i; j++) {
      float *to = f->c + i * f->stride + j;
      if (i >= (size_t)n)
        *to = i == j;
      else
        *to = h[((size_t)n - 1 - i) * (size_t)n + (size_t)n - 1 - j] + (i == j ? (float)(more * mean) : 0);
    }
}

Status factor_make(const Products *products, const float *h, int n, float *lower, Error *err) {
  const int size = (n + BLOCK - 1) / BLOCK * BLOCK;
  OWNED(factor_release) Factor f = {.products = products, .n = size, .stride = (size_t)size};
  TRY(NEW(f.c, (size_t)size * f.stride, "a factor of inputs", err));
  TRY(NEW(f.t, (size_t)size * f.stride, "a factor of inputs", err));
  double more = 0;
  do take(&f, h, n, more);
  while (!factor(&f) && (more = more > 0 ? 10 * more : 1e-3) > 0);
#pragma omp parallel for num_threads(products->n_threads) schedule(dynamic, 1)
  for (int j = 0; j < size; j += BLOCK) invert_rows(&f, j);
#pragma omp parallel for num_threads(products->n_threads)
  for (int j = 0; j < n; j++)
    for (int i = 0; i < n; i++)
      lower[(size_t)j * (size_t)n + (size_t)i] =
          i > j ? 0 : f.t[(size_t)(n - 1 - j) * f.stride + (size_t)(n - 1 - i)];
  return STATUS_OK;
}
