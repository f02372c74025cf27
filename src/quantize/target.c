/* target.c - see target.h. Called by: layer.c through cpu_quantizer.c.
 *
 * The least squares solution of GPTAQ (Li et al., arXiv:2504.02692), for a share of the gains g. The gains
 * include the residual stream's drift. The W' with the least E|W' a - (W a + share g)|^2 is
 * W + share E[g a^T] H^-1. */
#include "quantize/target.h"

#include <string.h>

#include "quantize/chunks.h"

/* W += share * gains U^T U, with gains = residual * drifts / scales + W changes^T. U^T (`lower`) has zeros
 * above the diagonal, U below it: both products leave out the blocks of zeros. */
static double correct_chunk(const Work *work, int first, int n_rows, float *scratch) {
  const int n = work->weights->n_in;
  const size_t n_in = (size_t)n, at = (size_t)first * n_in, floats = (size_t)n_rows * n_in;
  const Target *t = work->target;
  const Rows gains = {scratch, n_in}, half = {scratch + CHUNK * n_in, n_in},
             w = {work->weights->w + at, n_in}, lower = {(float *)(uintptr_t)t->lower, n_in};
  memset(scratch, 0, 2 * CHUNK * n_in * sizeof *scratch);
  for (size_t i = 0; t->drifts && i < floats; i++)
    gains.at[i] = (float)t->residual * t->drifts[at + i] / (t->scales ? t->scales[i % n_in] : 1);
  if (t->changes)
    product_add_transposed(work->products, w, n_rows, (Rows){(float *)(uintptr_t)t->changes, n_in}, n, n, 1,
                           gains);
  for (int i = 0, n_k; i < n; i += n_k) {
    n_k = n - i < 2 * PRODUCT_BLOCK ? n - i : 2 * PRODUCT_BLOCK;
    float *below = lower.at + (size_t)i * n_in;
    product_add(work->products, (Rows){gains.at + i, n_in}, n_rows, (Rows){below, n_in}, i + n_k, n_k,
                (float)t->share, half);
  }
  for (int i = 0, n_k; i < n; i += n_k) {
    n_k = n - i < 2 * PRODUCT_BLOCK ? n - i : 2 * PRODUCT_BLOCK;
    float *below = lower.at + (size_t)i * n_in;
    product_add_transposed(work->products, half, n_rows, (Rows){below, n_in}, n_k, i + n_k, 1,
                           (Rows){w.at + i, n_in});
  }
  return 0;
}

Status target_correct(const Products *products, const Target *target, const Weights *weights, Error *err) {
  const Work work = {.products = products, .weights = weights, .target = target};
  return run_chunks(&work, 2 * CHUNK * (size_t)weights->n_in, correct_chunk, NULL, err);
}
