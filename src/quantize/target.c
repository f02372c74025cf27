/* target.c - see target.h. Called by: layer.c through cpu_quantizer.c. Calls: products.c.
 *
 * The least squares solution of GPTAQ (Li et al., arXiv:2504.02692), for another difference: the W' with the
 * least E|W' a - (W a + share d)|^2 is W + share E[d a^T] H^-1. */
#include "quantize/target.h"

#include <stdlib.h>
#include <string.h>

#include "quantize/chunks.h"

typedef struct {
  const Products *products;
  float share, *w;
  size_t n;
  const float *cross, *scales, *lower, *upper;
} Correction;

/* The two products: the cross moments times U^T, times U. */
static double correct_chunk(const void *context, int first, int n_rows, float *scratch) {
  const Correction *c = context;
  const size_t at = (size_t)first * c->n, floats = (size_t)n_rows * c->n;
  const Rows cross = {scratch, c->n}, half = {scratch + CHUNK * c->n, c->n};
  const int n = (int)c->n;
  for (size_t i = 0; i < floats; i++) cross.at[i] = c->cross[at + i] / (c->scales ? c->scales[i % c->n] : 1);
  memset(half.at, 0, floats * sizeof *half.at);
  product_add(c->products, cross, n_rows, (Rows){(float *)(uintptr_t)c->upper, c->n}, n, n, c->share, half);
  product_add(c->products, half, n_rows, (Rows){(float *)(uintptr_t)c->lower, c->n}, n, n, 1,
              (Rows){c->w + at, c->n});
  return 0;
}

/* to[n][n] = the transposed `from`. */
static void transpose(const Products *products, const float *from, size_t n, float *to) {
#pragma omp parallel for num_threads(products->n_threads)
  for (size_t i = 0; i < n; i++)
    for (size_t j = 0; j < n; j++) to[i * n + j] = from[j * n + i];
}

Status target_correct(const Products *products, double share, const float *cross, const float *scales,
                      const float *lower, const Weights *weights, Error *err) {
  const size_t n = (size_t)weights->n_in;
  float *upper = mem_alloc(n * n, sizeof *upper, "a factor of inputs", err);
  if (!upper) return STATUS_FAILED;
  transpose(products, lower, n, upper);
  const Correction c = {products, (float)share, weights->w, n, cross, scales, lower, upper};
  Status status = run_chunks(products, weights->n_out, 2 * CHUNK * n, correct_chunk, &c, NULL, err);
  free(upper);
  return status;
}
