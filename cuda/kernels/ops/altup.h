/* altup.h - AltUp's residual streams, LAuReL and sparse gates (operations.def, predict_streams), without the
 * matmuls of large matrices. Called by: layers/altup.c, layers/mlp.c.
 *
 * All functions only enqueue. A token has n streams of `hidden` numbers, one after the other: S = n * hidden.
 * All numbers are fp32 unless a comment says f16. */
#pragma once

#include <cuda_runtime_api.h>

#include "base/arithmetic.h"
#include "base/status.h"

C_BEGIN

/* Sizes and memory that all calls share. */
typedef struct {
  int n, hidden;  /* n: 2 .. MAX_STREAMS */
  float eps;      /* of norms */
  float *streams; /* [n_rows][S] */
} AltupStreams;

/* Ends embed(). Stream 0 = x [n_rows][hidden]. On entry every other stream holds a matmul of x / divisor. The
 * stream becomes that matmul times divisor, scaled to the RMS of x. */
Status ops_altup_begin(const AltupStreams *call, const float *x, float divisor, int n_rows,
                       cudaStream_t stream, Error *err);

/* The weights from which a row's coefficients c are made: c = coefficients m,
 * m = tanh(router (x * rsqrt(mean(x^2) + eps) norm) / hidden). */
typedef struct {
  const float *norm;         /* [hidden] */
  const float *router;       /* [n][hidden] */
  const float *coefficients; /* [n * n][n] of a prediction, [n][n] of a correction */
} AltupRouter;

/* predict_streams(). x [n_rows][hidden] = the new stream 0. */
Status ops_altup_predict(const AltupStreams *call, const AltupRouter *router, float *x, int n_rows,
                         cudaStream_t stream, Error *err);
/* correct_streams(). Reads x, then sets it to stream 0 times scale [hidden]. */
Status ops_altup_correct(const AltupStreams *call, const AltupRouter *router, const float *scale, float *x,
                         int n_rows, cudaStream_t stream, Error *err);
/* Every stream but the first += rmsnorm(y) * norm; y [n_rows][hidden]. */
Status ops_altup_add(const AltupStreams *call, const float *y, const float *norm, int n_rows,
                     cudaStream_t stream, Error *err);

/* x = (x + rmsnorm(x) * attn_norm + rmsnorm(l) * laurel_norm) / sqrt(2); x and l [n_rows][hidden]. */
typedef struct {
  int hidden;
  float eps;
  const float *l, *attn_norm, *laurel_norm;
  float *x;
} Laurel;
Status ops_add_laurel(const Laurel *call, int n_rows, cudaStream_t stream, Error *err);

/* The rows of a step whose logits are wanted. */
typedef struct {
  const int *rows; /* [n_rows]; NULL: rows from first_row on */
  int first_row;
} AltupRows;
/* out, f16 [n_rows][out_stride] = stream number `index` in each row, divided by the root of its mean square,
 * for a matmul. */
Status ops_altup_unit(const AltupStreams *call, AltupRows rows, int index, int n_rows, void *out,
                      int out_stride, cudaStream_t stream, Error *err);
/* out, f16 [n_rows][out_stride] = rmsnorm(mean) * norm. The mean is over stream 0 and, for each other stream,
 * its matmul scaled to the RMS of stream 0. projected [n_rows][S]: at streams 1 and up the matmuls of
 * ops_altup_unit()'s results; stream 0's place is overwritten. */
Status ops_altup_join(const AltupStreams *call, AltupRows rows, float *projected, const float *norm,
                      int n_rows, void *out, int out_stride, cudaStream_t stream, Error *err);

/* gates = max(gates - c, 0) in place. c is the mean of a row's gates plus `deviations` times their standard
 * deviation. Rows have n gates and are `stride` apart. */
Status ops_cut_gates(float *gates, size_t stride, int n, float deviations, int n_rows, cudaStream_t stream,
                     Error *err);

C_END
