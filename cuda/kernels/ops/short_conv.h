/* short_conv.h - layers that are a short convolution (operations.def, norm_short_conv), from the
 * projections to the input of o. Called by table.c. */
#pragma once

#include <cuda_runtime_api.h>

#include "base/status.h"
#include "cuda/kernels/ops/segment.h"

C_BEGIN

/* out[r][i] = c[r][i] * (bias[i] + sum over t of taps[i][t] * p[r - n_taps + 1 + t][i]), p = b * u. Rows of p
 * before the step are those that earlier steps kept, and zeros before position 0. */
typedef struct {
  int hidden, n_taps;
  const int *pos;           /* device: position of the first token; not read with segments */
  const float *projections; /* device: [n_tokens][stride], in each row b, c and u [hidden] */
  int stride, out_stride;
  const float *taps; /* device: [hidden][n_taps], the last tap for the token itself */
  const float *bias; /* device: [hidden] or NULL */
  float *kept;       /* device: [n_taps][hidden], p of a position in row position % n_taps */
  void *out;         /* device: fp16 [n_tokens][out_stride] */
  Segments segments; /* with segments, `kept` is that of sequence 0 */
} ShortConv;

enum { SHORT_CONV_TOKENS = 16 };
/* Enqueues one kernel. It enqueues two if one sequence has more than SHORT_CONV_TOKENS tokens, or if some
 * segments are not single rows (Segments.n_singles). */
Status ops_short_conv(const ShortConv *conv, int n_tokens, cudaStream_t stream, Error *err);

C_END
