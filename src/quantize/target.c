/* target.c - see target.h. Called by: layer.c through cpu_quantizer.c.
 *
 * The least squares solution of GPTAQ (Li et al., arXiv:2504.02692), for a share of the gains g. The gains
 * include the residual stream's drift. The W' with the least E|W' a - (W a + share g)|^2 is
 * W + share E[g a^T] H^-1. */
#include "quantize/target.h"

#include <string.h>

#include "quantize/chunks.h"

typedef struct {
  const Products *products;
  const Target *target;
  float *w;
  size_t n;
} Correction;

/* W += share * gains U^T U, with gains = residual * drifts / scales + W changes^T. U^T (`lower`) has zeros
 * above the diagonal, U below it: both products leave out the blocks of zeros. */
static double correct_chunk(const void *context, int first, int n_rows, float *scratch) {
  const Correction *c = context;
  const size_t at = (size_t)first * c->n, floats = (size_t)n_rows * c->n;
  const Target *t = c->target;
  const Rows gains = {scratch, c->n}, half = {scratch + CHUNK * c->n, c->n}, w = {c->w + at, c->n},
             lower = {(float *)(uintptr_t)t->lower, c->n};
  const int n = (int)c->n;
  memset(scratch, 0, 2 * CHUNK * c->n * sizeof *scratch);
  for (size_t i = 0; t->drifts && i < floats; i++)
    gains.at[i] = (float)t->residual * t->drifts[at + i] / (t->scales ? t->scales[i % c->n] : 1);
  if (t->changes)
    product_add_transposed(c->products, w, n_rows, (Rows){(float *)(uintptr_t)t->changes, c->n}, n, n, 1,
                           gains);
  for (int i = 0, n_k; i < n; i += n_k) {
    n_k = n - i < 2 * PRODUCT_BLOCK ? n - i : 2 * PRODUCT_BLOCK;
    float *below = lower.at + (size_t)i * c->n;
    product_add(c->products, (Rows){gains.at + i, c->n}, n_rows, (Rows){below, c->n}, i + n_k, n_k,
                (float)t->share, half);
  }
  for (int i = 0, n_k; i < n; i += n_k) {
    n_k = n - i < 2 * PRODUCT_BLOCK ? n - i : 2 * PRODUCT_BLOCK;
    float *below = lower.at + (size_t)i * c->n;
    product_add_transposed(c->products, half, n_rows, (Rows){below, c->n}, n_k, i + n_k, 1,
                           (Rows){w.at + i, c->n});
  }
  return 0;
}

Status target_correct(const Products *products, const Target *target, const Weights *weights, Error *err) {
  const size_t n = (size_t)weights->n_in;
  const Correction c = {products, target, weights->w, n};
  return run_chunks(products, weights->n_out, 2 * CHUNK * n, correct_chunk, &c, NULL, err);
}
