/* products.h - products of fp32 matrices in memory, by the CPU's kernels. Any number of threads gives the
 * same bits: each number of a result is one chain of sums. */
#pragma once

#include "quantize/quantizer.h"

/* The CPU's QuantizerState; copy it freely. */
struct QuantizerState {
  const Kernels *kernels;
  int n_threads;
};
typedef struct QuantizerState Products;

Products products_make(int n_threads);

/* The functions below add to c in blocks of PRODUCT_BLOCK values of k: that many rows of b, one SIMD vector
 * wide, fit the L1 cache. */
enum { PRODUCT_BLOCK = 64 };

/* c[r][i] += factor * sum over k < n_k of a[r][k] b[k][i], for r < n_rows and i < n, in this thread alone.
 * PRECOND n % ALIGN_FLOATS == 0, factor != 0 */
void product_add(const Products *products, Rows a, int n_rows, Rows b, int n, int n_k, float factor, Rows c);

/* c[r][i] += factor * sum over k < n_k of a[r][k] b[i][k]: product_add() of blocks of b, which are transposed
 * first. PRECOND as for product_add() */
void product_add_transposed(const Products *products, Rows a, int n_rows, Rows b, int n, int n_k,
                            float factor, Rows c);

/* Quantizer.add() and finish(), by all threads. */
Status sums_add(const Products *products, int n_a, Rows a, int n_b, Rows b, int n_rows, float *sums,
                Error *err);
Status square_finish(const Products *products, float factor, int n, float *square, Error *err);
