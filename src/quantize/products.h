/* products.h - products of fp32 matrices in memory, by the CPU's kernels. Any number of threads gives the
 * same bits: each number of a result is one chain of sums. */
#pragma once

#include "cpu/kernels.h"

/* Products of one machine; copy it freely. */
typedef struct {
  const Kernels *kernels;
  int n_threads;
} Products;

Products products_make(int n_threads);

/* Rows of numbers in memory. */
typedef struct {
  float *at;
  size_t stride;
} Rows;

/* The blocks of columns in which products of a part of a row are computed. */
enum { PRODUCT_BLOCK = 64 };

/* c[r][i] += factor * sum over k < n_k of a[r][k] b[i][k], for r < n_rows and i < n, in this thread alone.
 * PRECOND n_k % ALIGN_FLOATS == 0; b.stride is a multiple of n_k, or both are of PRODUCT_BLOCK. */
void product_add(const Products *products, Rows a, int n_rows, Rows b, int n, int n_k, float factor, Rows c);

/* moments[n][n] += the sum over rows of x[r][i] x[r][j], the lower triangle alone. With `originals`, rows
 * like x, also changes[i][j] += the sum of x[r][i] (originals[r][j] - x[r][j]). By all threads; `scratch` has
 * room for moments_scratch() floats. */
size_t moments_scratch(int n, int n_rows);
void moments_add(const Products *products, Rows x, int n_rows, int n, const float *originals, float *scratch,
                 float *moments, float *changes);
/* Copies the lower triangle of square[n][n], times a factor, to both. */
void mirror(const Products *products, float factor, int n, float *square);
