/* factor.c - the factor of src/quantize/factor.c on a GPU. Called by: state.c's table.
 *
 * The Cholesky factor is made one block of columns at a time: the block on the diagonal is factored, the rows
 * below that block are solved for, and their products are subtracted from the columns to the right. The
 * inverse is made from left to right too: before a block of columns is solved for, the products of all
 * earlier blocks are added. */
#include "cuda/quantize/state.h"

#include <stdlib.h>

#include "cuda/kernels/ptx/device.h"

enum { BLOCK = ROUNDING_BLOCK, UPDATE_ROWS = 2048 };

typedef struct {
  Gpu *gpu;
  int n, size; /* size: n, rounded up to whole blocks */
  size_t stride;
  float *c, *t, *negated; /* c, t: [size][size]; negated: [size][BLOCK] */
  int *indefinite;
} Factor;

static Rows at(const Factor *f, float *square, int row, int column) {
  return (Rows){square + (size_t)row * f->stride + (size_t)column, f->stride};
}

static Status factor_columns(const Factor *f, int k, Error *err) {
  const int next = k + BLOCK;
  TRY(rounding_factor_block(f->size, k, f->c, f->indefinite, f->gpu->stream, err));
  if (next == f->size) return STATUS_OK;
  TRY(rounding_solve_rows(f->size, k, f->c, next, f->size, false, f->c, f->negated, f->gpu->stream, err));
  for (int row = next; row < f->size; row += UPDATE_ROWS) {
    const int rows = f->size - row < UPDATE_ROWS ? f->size - row : UPDATE_ROWS;
    const Rows panel = {f->negated + (size_t)(row - next) * BLOCK, BLOCK};
    TRY(gpu_product(f->gpu, panel, rows, at(f, f->c, next, k), row + rows - next, BLOCK, 1,
                    at(f, f->c, row, next), err));
  }
  return STATUS_OK;
}

/* Factors J H J (H with its inputs in reverse order) with `more` added to the diagonal; *failed is 1 if the
 * sum is not positive definite, else 0. */
static Status factor(const Factor *f, const float *h, double more, int *failed, Error *err) {
  TRY(cuda_status(cudaMemsetAsync(f->indefinite, 0, sizeof *f->indefinite, f->gpu->stream), "a factor", err));
  TRY(rounding_reverse(f->n, h, more, f->size, f->c, f->gpu->stream, err));
  for (int k = 0; k < f->size; k += BLOCK) TRY(factor_columns(f, k, err));
  return gpu_fetch(f->gpu, failed, f->indefinite, sizeof *failed, err);
}

static Status invert(const Factor *f, Error *err) {
  for (int k = 0; k < f->size; k += BLOCK) {
    TRY(gpu_product(f->gpu, at(f, f->t, 0, 0), k, at(f, f->c, k, 0), BLOCK, k, 0, at(f, f->t, 0, k), err));
    TRY(rounding_solve_rows(f->size, k, f->c, 0, k + BLOCK, true, f->t, NULL, f->gpu->stream, err));
  }
  return STATUS_OK;
}

/* The mean of H's diagonal. */
static Status mean_square(const Factor *f, const float *h, double *mean, Error *err) {
  OWNED(mem_release) float *squares = NULL;
  TRY(NEW(squares, (size_t)f->n, "a factor of inputs", err));
  TRY(rounding_diagonal(f->n, h, f->negated, f->gpu->stream, err));
  TRY(gpu_fetch(f->gpu, squares, f->negated, (size_t)f->n * sizeof *squares, err));
  *mean = 0;
  for (int i = 0; i < f->n; i++) *mean += (double)squares[i] / f->n;
  return STATUS_OK;
}

Status gpu_factor(const QuantizerState *state, const float *h, int n, float *lower, Error *err) {
  const int size = (n + BLOCK - 1) / BLOCK * BLOCK;
  const size_t floats = (size_t)size * (size_t)size;
  Factor f = {.gpu = state->gpu, .n = n, .size = size, .stride = (size_t)size};
  int failed;
  double mean, more = 0;
  TRY(gpu_scratch(f.gpu, SCRATCH_A, floats, sizeof *f.c, &f.c, err));
  TRY(gpu_scratch(f.gpu, SCRATCH_B, floats, sizeof *f.t, &f.t, err));
  TRY(gpu_scratch(f.gpu, SCRATCH_ERRORS, f.stride * BLOCK, sizeof *f.negated, &f.negated, err));
  TRY(gpu_scratch(f.gpu, SCRATCH_VECTORS, 1, sizeof *f.indefinite, &f.indefinite, err));
  TRY(mean_square(&f, h, &mean, err));
  for (failed = 1; failed; more = more > 0 ? 10 * more : 1e-3) TRY(factor(&f, h, more * mean, &failed, err));
  TRY(cuda_status(cudaMemsetAsync(f.t, 0, floats * sizeof *f.t, f.gpu->stream), "a factor of inputs", err));
  TRY(invert(&f, err));
  return rounding_lower(n, size, f.t, lower, f.gpu->stream, err);
}
