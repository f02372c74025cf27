/* rounding.h - the kernels of `auk quantize`: weights rounded to 4 bits, and square matrices of second
 * moments (src/quantize). Called by cuda/quantize.
 *
 * Pointers are the device's, and matrices are row-major, without gaps between their rows unless a stride is
 * given. Each function enqueues one kernel, and each sum has one order: the same call gives the same bits.
 * References: the CPU's kernels of the same names (cpu/kernels.h), and src/quantize. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

C_BEGIN

enum { ROUNDING_CANDIDATES = 8, ROUNDING_MOST_GROUP = 128 };

/* --- groups.cu: groups of weights */

/* Candidates for a group's zero point and scale: GroupSearch (cpu/kernels.h) by value. */
typedef struct {
  float shifts[ROUNDING_CANDIDATES], shrinks[ROUNDING_CANDIDATES];
  int n_shifts, n_shrinks;
  bool fits;
} RoundingSearch;

/* search_group(), then round_group(), for n_groups neighbouring groups of `group` inputs (16, 32, 64 or 128)
 * of n_out outputs. If u is given, n_groups is 1. */
typedef struct {
  int n_out, group, n_groups;
  const float *w; /* [n_out][stride] */
  size_t stride;
  const float *importance;        /* [n_groups * group] */
  const float *factors, *inverse; /* [n_groups * group] factors multiply w, inverse the errors; NULL: ones */
  const float *u;                 /* [group][group] diagonal block of U (quantize/factor.h), or NULL */
  RoundingSearch search;
  uint8_t *codes;        /* [n_out][stride], or NULL: codes, scales and zeros are not wanted */
  float *scales, *zeros; /* [n_groups][row] */
  size_t row;            /* at least n_out */
  float *errors;         /* [n_out][errors_stride]; if u is given, negated and divided by u[j][j] */
  size_t errors_stride;
} RoundingGroups;
Status rounding_groups(const RoundingGroups *groups, cudaStream_t stream, Error *err);

/* Weights as levels k = code - zero: w = k scale. */
typedef struct {
  int n_out, n_in, group;
  float *levels;         /* [n_out][n_in] */
  float *scales, *zeros; /* [n_in / group][row] */
  size_t row;
} RoundingLevels;

/* move_group() for group g. slopes[n_out][n_in]: the loss's derivatives by the weights (the CPU's have the
 * opposite sign). changes[n_out][group]: by how much weights grew; the caller then adds changes times the
 * group's rows of h[n_in][n_in] to the slopes. */
Status rounding_move(const RoundingLevels *l, int g, const float *h, const float *slopes, float *changes,
                     cudaStream_t stream, Error *err);
/* Levels from codes[n_out][n_in], and back. */
Status rounding_take_levels(const RoundingLevels *l, const uint8_t *codes, cudaStream_t stream, Error *err);
Status rounding_put_levels(const RoundingLevels *l, uint8_t *codes, cudaStream_t stream, Error *err);
/* d = levels * scales - w */
Status rounding_differences(const RoundingLevels *l, const float *w, float *d, cudaStream_t stream,
                            Error *err);

/* --- scales.cu: the best scales of given levels (refine.c) */

/* a[o][g][h] = sum over i of group h of products[o][i] levels[o][i], for h <= g; products[n_out][n_in]: the
 * levels of group g times H */
Status rounding_fold(const RoundingLevels *l, int g, const float *products, float *a, cudaStream_t stream,
                     Error *err);
/* b[o][g] = - sum over i of group g of slopes[o][i] levels[o][i] */
Status rounding_right_sides(const RoundingLevels *l, const float *slopes, float *b, cudaStream_t stream,
                            Error *err);
/* solve_scales() with a and b; `factor` has room for n_out * groups * (groups + 1) doubles. */
Status rounding_solve(const RoundingLevels *l, const float *a, const float *b, double *factor,
                      cudaStream_t stream, Error *err);

/* --- squares.cu */

/* to[c][r] = from[r][c] */
Status rounding_transpose(const float *from, size_t stride, int n_rows, int n_columns, float *to,
                          size_t to_stride, cudaStream_t stream, Error *err);
Status rounding_multiply(size_t n, float factor, float *numbers, cudaStream_t stream, Error *err);
/* Copies the lower triangle to the upper one. */
Status rounding_mirror(int n, float *square, cudaStream_t stream, Error *err);
Status rounding_dampen(int n, float more, float *square, cudaStream_t stream, Error *err);
/* Quantizer.rescale(); lower: or NULL. */
Status rounding_rescale(int n, const float *scales, float *square, float *lower, cudaStream_t stream,
                        Error *err);
/* to[r][i] = share * from[r][i] / scales[i]; scales NULL: ones */
Status rounding_shares(int n_rows, int n, float share, const float *from, const float *scales, float *to,
                       cudaStream_t stream, Error *err);
/* to[i] = square[i][i] */
Status rounding_diagonal(int n, const float *square, float *to, cudaStream_t stream, Error *err);
/* u[g][i][j] = lower[g * group + j][g * group + i]: the blocks on the diagonal of U (factor_make()). */
Status rounding_blocks(int n, int group, const float *lower, float *u, cudaStream_t stream, Error *err);
/* sums[r] = sum over i of a[r][i] b[r][i] */
Status rounding_dots(int n_rows, int n, const float *a, const float *b, double *sums, cudaStream_t stream,
                     Error *err);

/* --- factor.cu: the steps of factor.c, in blocks of ROUNDING_BLOCK columns */
enum { ROUNDING_BLOCK = 64 };

/* c[size][size] = J H J (H with its inputs in reverse order), plus `more` on the diagonal. Rows and columns
 * from n on are those of the identity. size % ROUNDING_BLOCK == 0 */
Status rounding_reverse(int n, const float *h, double more, int size, float *c, cudaStream_t stream,
                        Error *err);
/* Factors the block on the diagonal at column k; sets *indefinite to 1 if it is not positive definite. */
Status rounding_factor_block(int size, int k, float *c, int *indefinite, cudaStream_t stream, Error *err);
/* For rows `first` to end - 1 of m[size][size]: let b be the row's numbers in columns k to k + ROUNDING_BLOCK
 * - 1. They become the solution x of L x = b, where L is c's block on the diagonal at k. negated [end -
 * first] [ROUNDING_BLOCK] = -x, unless NULL. With `identity`, rows before k take -b for b; rows from k on
 * take their row of the identity matrix. */
Status rounding_solve_rows(int size, int k, const float *c, int first, int end, bool identity, float *m,
                           float *negated, cudaStream_t stream, Error *err);
/* lower[n][n] from the transposed inverse t[size][size] of the factor of J H J. */
Status rounding_lower(int n, int size, const float *t, float *lower, cudaStream_t stream, Error *err);

C_END
