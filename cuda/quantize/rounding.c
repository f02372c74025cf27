/* rounding.c - losses and roundings of matrices on a GPU: those of matrix.c, refine.c and target.c in
 * src/quantize. Called by: state.c's table.
 *
 * Outputs are independent of one another, so they are computed part by part, which bounds the memory. */
#include "cuda/quantize/state.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/kernels/ptx/device.h"

enum { MOST_ROWS = 2048, MOST_FLOATS = 1 << 25 };

/* Outputs [first, first + n_rows) of a matrix. */
typedef struct {
  Gpu *gpu;
  const Weights *weights;
  float *w, *h; /* in GPU memory: [n_rows][n], [n][n] */
  int first, n_rows, n, group, n_groups;
  size_t stride, floats; /* stride: n; floats: n_rows * n */
} Part;

static Part part_of(Gpu *gpu, const Weights *weights, const float *h, int first) {
  const int n = weights->n_in, fitting = MOST_FLOATS / n < 1 ? 1 : MOST_FLOATS / n,
            most = fitting < MOST_ROWS ? fitting : MOST_ROWS,
            n_rows = weights->n_out - first < most ? weights->n_out - first : most;
  return (Part){.gpu = gpu,
                .weights = weights,
                .w = weights->w + (size_t)first * (size_t)n,
                .h = (float *)(uintptr_t)h,
                .first = first,
                .n_rows = n_rows,
                .n = n,
                .group = weights->group,
                .n_groups = n / weights->group,
                .stride = (size_t)n,
                .floats = (size_t)n_rows * (size_t)n};
}

static Rows at(const Part *p, float *rows, int row, int column) {
  return (Rows){rows + (size_t)row * p->stride + (size_t)column, p->stride};
}

/* --- losses */

/* loss += the sum over rows of d H d^T. H is symmetric: blocks on one side of its diagonal are enough, and
 * count twice. Uses SCRATCH_C and SCRATCH_VECTORS. */
static Status add_loss(const Part *p, float *d, double *loss, Error *err) {
  const int block = p->n <= 1024 ? p->n : p->n / 8 < 512 ? 512 : p->n / 8;
  double *sums;
  OWNED(mem_release) double *here = NULL;
  float *products = NULL;
  TRY(NEW(here, (size_t)p->n_rows, "a loss", err));
  TRY(gpu_scratch(p->gpu, SCRATCH_C, p->floats, sizeof *products, &products, err));
  TRY(gpu_scratch(p->gpu, SCRATCH_VECTORS, (size_t)p->n_rows, sizeof *sums, &sums, err));
  for (int i = 0; i < p->n; i += block) {
    const int n = p->n - i < block ? p->n - i : block, next = i + n;
    TRY(gpu_product(p->gpu, at(p, d, 0, next), p->n_rows, at(p, p->h, i, next), n, p->n - next, 0,
                    at(p, products, 0, i), err));
    TRY(gpu_product(p->gpu, at(p, d, 0, i), p->n_rows, at(p, p->h, i, i), n, n, next < p->n ? 2 : 0,
                    at(p, products, 0, i), err));
  }
  TRY(rounding_dots(p->n_rows, p->n, d, products, sums, p->gpu->stream, err));
  TRY(gpu_fetch(p->gpu, here, sums, (size_t)p->n_rows * sizeof *sums, err));
  for (int r = 0; r < p->n_rows; r++) *loss += here[r];
  return STATUS_OK;
}

static RoundingSearch search_of(const GroupSearch *search) {
  RoundingSearch to = {.n_shifts = search->n_shifts, .n_shrinks = search->n_shrinks, .fits = search->fits};
  memcpy(to.shifts, search->shifts, (size_t)search->n_shifts * sizeof *to.shifts);
  memcpy(to.shrinks, search->shrinks, (size_t)search->n_shrinks * sizeof *to.shrinks);
  return to;
}

/* Sets there[3][n], in GPU memory: the importance of each input divided by its factor (H's diagonal /
 * factors^2), then the factors, then their inverses. */
static Status send_factors(Gpu *gpu, int n, const float *h, const float *factors, float *there, Error *err) {
  const size_t size = (size_t)n;
  OWNED(mem_release) float *here = NULL;
  TRY(NEW(here, 3 * size, "rounding", err));
  TRY(rounding_diagonal(n, h, there, gpu->stream, err));
  TRY(gpu_fetch(gpu, here, there, size * sizeof *here, err));
  for (size_t i = 0; i < size; i++) {
    here[size + i] = factors[i];
    here[2 * size + i] = 1 / factors[i];
    here[i] *= here[2 * size + i] * here[2 * size + i];
  }
  return gpu_send(gpu, there, here, 3 * size * sizeof *here, err);
}

Status gpu_trial(const QuantizerState *state, const GroupSearch *search, const Weights *weights,
                 const float *h, const float *factors, double *loss, Error *err) {
  Gpu *gpu = state->gpu;
  const size_t n = (size_t)weights->n_in;
  float *d, *vectors;
  *loss = 0;
  TRY(gpu_scratch(gpu, SCRATCH_SCALES, 3 * n, sizeof *vectors, &vectors, err));
  TRY(send_factors(gpu, weights->n_in, h, factors, vectors, err));
  for (int first = 0; first < weights->n_out;) {
    const Part p = part_of(gpu, weights, h, first);
    TRY(gpu_scratch(gpu, SCRATCH_A, p.floats, sizeof *d, &d, err));
    const RoundingGroups groups = {.n_out = p.n_rows,
                                   .group = p.group,
                                   .n_groups = p.n_groups,
                                   .w = p.w,
                                   .stride = n,
                                   .importance = vectors,
                                   .factors = vectors + n,
                                   .inverse = vectors + 2 * n,
                                   .search = search_of(search),
                                   .errors = d,
                                   .errors_stride = n};
    TRY(rounding_groups(&groups, gpu->stream, err));
    TRY(add_loss(&p, d, loss, err));
    first += p.n_rows;
  }
  return STATUS_OK;
}

/* Takes memory for a part's levels. SCRATCH_A: the levels. SCRATCH_SCALES: its scales, then its zero points,
 * then p->stride floats for round_part(). */
static Status make_levels(const Part *p, RoundingLevels *l, Error *err) {
  const size_t n_scales = (size_t)p->n_groups * (size_t)p->n_rows;
  *l = (RoundingLevels){.n_out = p->n_rows, .n_in = p->n, .group = p->group, .row = (size_t)p->n_rows};
  TRY(gpu_scratch(p->gpu, SCRATCH_A, p->floats, sizeof *l->levels, &l->levels, err));
  TRY(gpu_scratch(p->gpu, SCRATCH_SCALES, 2 * n_scales + p->stride, sizeof *l->scales, &l->scales, err));
  l->zeros = l->scales + n_scales;
  return STATUS_OK;
}

/* Copies a part's scales or zero points: [n_groups][n_rows] on the device; on the host each group has a row
 * for all outputs of the matrix. */
static Status copy_scales(const Part *p, float *there, float *here, bool send, Error *err) {
  const size_t row = rounded_row(p->weights->n_out) * sizeof *here, own = (size_t)p->n_rows * sizeof *here;
  here += p->first;
  const cudaError_t error = send ? cudaMemcpy2DAsync(there, own, here, row, own, (size_t)p->n_groups,
                                                     cudaMemcpyHostToDevice, p->gpu->stream)
                                 : cudaMemcpy2DAsync(here, row, there, own, own, (size_t)p->n_groups,
                                                     cudaMemcpyDeviceToHost, p->gpu->stream);
  TRY(cuda_status(error, "scales", err));
  return cuda_status(cudaStreamSynchronize(p->gpu->stream), "scales", err);
}

/* *d = the rounded weights minus the weights, in SCRATCH_B. */
static Status take_rounded(const Part *p, const Rounded *rounded, float **d, Error *err) {
  RoundingLevels l;
  uint8_t *codes;
  TRY(make_levels(p, &l, err));
  TRY(gpu_scratch(p->gpu, SCRATCH_B, p->floats, sizeof **d, d, err));
  TRY(gpu_scratch(p->gpu, SCRATCH_CODES, p->floats, sizeof *codes, &codes, err));
  TRY(gpu_send(p->gpu, codes, rounded->codes + (size_t)p->first * p->stride, p->floats, err));
  TRY(copy_scales(p, l.scales, rounded->scales, true, err));
  TRY(copy_scales(p, l.zeros, rounded->zeros, true, err));
  TRY(rounding_take_levels(&l, codes, p->gpu->stream, err));
  return rounding_differences(&l, p->w, *d, p->gpu->stream, err);
}

Status gpu_loss(const QuantizerState *state, const Weights *weights, const float *h, const Rounded *rounded,
                double *loss, Error *err) {
  *loss = 0;
  for (int first = 0; first < weights->n_out;) {
    const Part p = part_of(state->gpu, weights, h, first);
    float *d = p.w;
    if (rounded) TRY(take_rounded(&p, rounded, &d, err));
    TRY(add_loss(&p, d, loss, err));
    first += p.n_rows;
  }
  return STATUS_OK;
}

/* --- rounding */

/* Rounds a part, group by group: codes[n_rows][n], and the levels' scales and zero points. Uses SCRATCH_B,
 * SCRATCH_ERRORS and SCRATCH_BLOCKS. */
static Status round_part(const Part *p, const GroupSearch *search, const float *lower, RoundingLevels *l,
                         uint8_t *codes, Error *err) {
  float *w, *errors, *u, *importance = l->zeros + (size_t)p->n_groups * l->row;
  TRY(gpu_scratch(p->gpu, SCRATCH_B, p->floats, sizeof *w, &w, err));
  TRY(gpu_scratch(p->gpu, SCRATCH_ERRORS, (size_t)p->n_rows * (size_t)p->group, sizeof *errors, &errors,
                  err));
  TRY(gpu_scratch(p->gpu, SCRATCH_BLOCKS, p->stride * (size_t)p->group, sizeof *u, &u, err));
  TRY(cuda_status(cudaMemcpyAsync(w, p->w, p->floats * sizeof *w, cudaMemcpyDeviceToDevice, p->gpu->stream),
                  "weights", err));
  TRY(rounding_diagonal(p->n, p->h, importance, p->gpu->stream, err));
  RoundingGroups groups = {.n_out = p->n_rows,
                           .group = p->group,
                           .n_groups = p->n_groups,
                           .w = w,
                           .stride = p->stride,
                           .importance = importance,
                           .search = search_of(search),
                           .codes = codes,
                           .scales = l->scales,
                           .zeros = l->zeros,
                           .row = l->row,
                           .errors = w, /* unread without `lower`; a warp overwrites only what it has read */
                           .errors_stride = p->stride};
  if (!lower) return rounding_groups(&groups, p->gpu->stream, err);
  TRY(rounding_blocks(p->n, p->group, lower, u, p->gpu->stream, err));
  groups.n_groups = 1;
  groups.errors = errors;
  groups.errors_stride = (size_t)p->group;
  for (int i = 0; i < p->n; i += p->group) {
    const int next = i + p->group;
    const size_t g = (size_t)(i / p->group);
    groups.w = w + i;
    groups.importance = importance + i;
    groups.u = u + g * (size_t)(p->group * p->group);
    groups.codes = codes + i;
    groups.scales = l->scales + g * l->row;
    groups.zeros = l->zeros + g * l->row;
    TRY(rounding_groups(&groups, p->gpu->stream, err));
    TRY(gpu_product(p->gpu, (Rows){errors, (size_t)p->group}, p->n_rows,
                    at(p, (float *)(uintptr_t)lower, next, i), p->n - next, p->group, 1, at(p, w, 0, next),
                    err));
  }
  return STATUS_OK;
}

/* A part while its codes and scales are refined. */
typedef struct {
  const Part *part;
  RoundingLevels levels;
  float *slopes, *products, *changes; /* [n_rows][n], [n_rows][n], [n_rows][group] */
  float *a, *b;                       /* [n_rows][n_groups][n_groups], [n_rows][n_groups] */
  double *factor;                     /* [n_rows][n_groups][n_groups + 1] */
} Refinement;

/* slopes = (q - w) H */
static Status make_slopes(const Refinement *r, Error *err) {
  const Part *p = r->part;
  TRY(rounding_differences(&r->levels, p->w, r->products, p->gpu->stream, err));
  return gpu_product(p->gpu, at(p, r->products, 0, 0), p->n_rows, at(p, p->h, 0, 0), p->n, p->n, 0,
                     at(p, r->slopes, 0, 0), err);
}

/* The scales become the best ones for the levels. Only the lower triangle of r->a is computed. */
static Status fit_scales(const Refinement *r, Error *err) {
  const Part *p = r->part;
  for (int g = 0; g < p->n_groups; g++) {
    const int i = g * p->group;
    TRY(gpu_product(p->gpu, at(p, r->levels.levels, 0, i), p->n_rows, at(p, p->h, 0, i), i + p->group,
                    p->group, 0, at(p, r->products, 0, 0), err));
    TRY(rounding_fold(&r->levels, g, r->products, r->a, p->gpu->stream, err));
  }
  TRY(rounding_right_sides(&r->levels, r->slopes, r->b, p->gpu->stream, err));
  return rounding_solve(&r->levels, r->a, r->b, r->factor, p->gpu->stream, err);
}

static Status sweep(const Refinement *r, Error *err) {
  const Part *p = r->part;
  for (int g = 0; g < p->n_groups; g++) {
    TRY(rounding_move(&r->levels, g, p->h, r->slopes, r->changes, p->gpu->stream, err));
    TRY(gpu_product(p->gpu, (Rows){r->changes, (size_t)p->group}, p->n_rows, at(p, p->h, 0, g * p->group),
                    p->n, p->group, 1, at(p, r->slopes, 0, 0), err));
  }
  return STATUS_OK;
}

static Status refine_part(const Part *p, int refinements, const RoundingLevels *levels, uint8_t *codes,
                          Error *err) {
  const size_t rows = (size_t)p->n_rows, n = (size_t)p->n_groups, numbers = rows * n * (n + 1);
  Refinement r = {.part = p, .levels = *levels};
  TRY(gpu_scratch(p->gpu, SCRATCH_B, p->floats, sizeof *r.products, &r.products, err));
  TRY(gpu_scratch(p->gpu, SCRATCH_C, p->floats, sizeof *r.slopes, &r.slopes, err));
  TRY(gpu_scratch(p->gpu, SCRATCH_ERRORS, rows * (size_t)p->group, sizeof *r.changes, &r.changes, err));
  TRY(gpu_scratch(p->gpu, SCRATCH_EQUATIONS, numbers, sizeof *r.a + sizeof *r.factor, &r.factor, err));
  r.a = (float *)(r.factor + numbers);
  r.b = r.a + rows * n * n;
  TRY(rounding_take_levels(levels, codes, p->gpu->stream, err));
  TRY(make_slopes(&r, err));
  for (int i = 0; i < refinements; i++) {
    TRY(fit_scales(&r, err));
    TRY(make_slopes(&r, err));
    TRY(sweep(&r, err));
  }
  TRY(fit_scales(&r, err));
  return rounding_put_levels(levels, codes, p->gpu->stream, err);
}

Status gpu_round(const QuantizerState *state, const Recipe *recipe, const Weights *weights, const float *h,
                 const float *lower, const Rounded *rounded, Error *err) {
  Gpu *gpu = state->gpu;
  for (int first = 0; first < weights->n_out;) {
    const Part p = part_of(gpu, weights, h, first);
    RoundingLevels l;
    uint8_t *codes;
    TRY(make_levels(&p, &l, err));
    TRY(gpu_scratch(gpu, SCRATCH_CODES, p.floats, sizeof *codes, &codes, err));
    TRY(round_part(&p, &recipe->search, lower, &l, codes, err));
    if (recipe->refinements > 0) TRY(refine_part(&p, recipe->refinements, &l, codes, err));
    TRY(gpu_fetch(gpu, rounded->codes + (size_t)first * p.stride, codes, p.floats, err));
    TRY(copy_scales(&p, l.scales, rounded->scales, false, err));
    TRY(copy_scales(&p, l.zeros, rounded->zeros, false, err));
    first += p.n_rows;
  }
  return STATUS_OK;
}

/* --- targets */

/* Sets gains[n_rows][n], in GPU memory: for output o of a part and input i the sum over tokens of (what o
 * should gain) * (input i); see target.h. */
static Status make_gains(const Part *p, const Target *t, const float *divisors, float *gains, Error *err) {
  const size_t at = (size_t)p->first * p->stride;
  if (t->drifts)
    TRY(rounding_shares(p->n_rows, p->n, (float)t->residual, t->drifts + at, divisors, gains, p->gpu->stream,
                        err));
  if (!t->changes) return STATUS_OK;
  return gpu_product(p->gpu, (Rows){p->w, p->stride}, p->n_rows,
                     (Rows){(float *)(uintptr_t)t->changes, p->stride}, p->n, p->n, t->drifts ? 1 : 0,
                     (Rows){gains, p->stride}, err);
}

Status gpu_correct(const QuantizerState *state, const Target *target, const Weights *weights, Error *err) {
  Gpu *gpu = state->gpu;
  const size_t n = (size_t)weights->n_in;
  const float *scales = target->scales, *lower = target->lower;
  float *a, *b, *upper, *divisors = NULL;
  TRY(gpu_scratch(gpu, SCRATCH_C, n * n, sizeof *upper, &upper, err));
  TRY(gpu_scratch(gpu, SCRATCH_VECTORS, n, sizeof *divisors, &divisors, err));
  if (scales) TRY(gpu_send(gpu, divisors, scales, n * sizeof *scales, err));
  TRY(rounding_transpose(lower, n, weights->n_in, weights->n_in, upper, n, gpu->stream, err));
  for (int first = 0; first < weights->n_out;) {
    const Part p = part_of(gpu, weights, lower, first);
    TRY(gpu_scratch(gpu, SCRATCH_A, p.floats, sizeof *a, &a, err));
    TRY(gpu_scratch(gpu, SCRATCH_B, p.floats, sizeof *b, &b, err));
    TRY(make_gains(&p, target, scales ? divisors : NULL, a, err));
    TRY(gpu_product(gpu, (Rows){a, n}, p.n_rows, (Rows){upper, n}, p.n, p.n, 0, (Rows){b, n}, err));
    TRY(rounding_multiply(p.floats, (float)target->share, b, gpu->stream, err));
    TRY(gpu_product(gpu, (Rows){b, n}, p.n_rows, (Rows){p.h, n}, p.n, p.n, 1, (Rows){p.w, n}, err));
    first += p.n_rows;
  }
  return STATUS_OK;
}
