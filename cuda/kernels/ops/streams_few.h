/* streams_few.h - a mix of residual streams (ops/streams.h) for one or two rows as two launches, its matmuls
 * included. ops_streams_few() only enqueues. */
#pragma once

#include <cuda_runtime_api.h>

#include "base/status.h"

C_BEGIN

enum {
  STREAMS_FEW_ROWS = 2
}; /* with up to 2 rows faster than ops/streams.h, with 7 slower (LOG.md, "Streams and n-grams") */

/* First the output x of the attention or MLP before is injected (INJECT in operations.def): next_streams =
 * streams + factors * x. If x is NULL, nothing is injected. Then ranks, new_factors and h are made as in
 * ops/streams.h. S = n * hidden. */
typedef struct {
  int n, hidden, rank;
  const float *streams;     /* [n_rows][S] */
  float *next_streams;      /* [n_rows][S], other memory than `streams`: the new streams; NULL without x */
  const float *x, *factors; /* [n_rows][hidden], [n_rows][n] */
  /* down [rank][S], inject [n][S] (read if new_factors is set), up [S][rank]: all of fp16 or all of bf16,
   * each with its stride in numbers, a multiple of 8. */
  bool bf16;
  const void *down, *inject, *up;
  size_t down_stride, inject_stride, up_stride;
  const float *norm; /* [S] */
  float eps;
  float *inverses, *ranks; /* [n_rows][n], [n_rows][rank] */
  float *new_factors;      /* [n_rows][n], other memory than `factors` */
  void *h;                 /* f16 [n_rows][h_stride] */
  int h_stride;
  float *mixed, *zeroed; /* fp32 [n_rows][hidden] or NULL. mixed: gets h; zeroed: gets zeros */
} FewMix;

/* True if the kernels take these sizes and n_rows rows. */
bool ops_streams_few_supports(const FewMix *call, int n_rows);
Status ops_streams_few(const FewMix *call, int n_rows, cudaStream_t stream, Error *err);

C_END
