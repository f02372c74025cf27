/* chunks.h - divides the outputs of a matrix among threads. Private to src/quantize. */
#pragma once

#include "quantize/matrix.h"

enum { CHUNK = 96 }; /* most outputs of one call of compute() */
_Static_assert(CHUNK % ROUND_OUTPUTS == 0 && CHUNK % TILE_ROWS == 0, "chunks of whole blocks and tiles");

/* The arguments of a pass over a matrix; each pass sets the members that it needs. */
typedef struct {
  const Products *products;
  const Weights *weights;
  const float *h;
  const Recipe *recipe;
  const GroupSearch *search;
  const float *lower, *importance; /* lower: of matrix_round(); importance: [n_in] the inputs' mean squares */
  const float *factors, *inverse;  /* of matrix_trial(); inverse: 1 / factors */
  const Target *target;
  const Rounded *rounded;
} Work;

/* Computes outputs first .. first + n_rows - 1, n_rows <= CHUNK; scratch is the thread's own. Returns its
 * summand of run_chunks()'s *loss. */
typedef double ChunkWork(const Work *work, int first, int n_rows, float *scratch);

/* Calls compute() for all outputs, with `floats` floats of scratch memory for each thread. *loss = the sum of
 * its results, added in the order of the outputs; loss may be NULL. */
Status run_chunks(const Work *work, size_t floats, ChunkWork *compute, double *loss, Error *err);

/* to[i][o] = from[o][i] for `group` inputs and ROUND_OUTPUTS outputs, 0 for outputs from n on. */
static inline void transpose_in(const float *from, size_t stride, int n, int group, float *to) {
  for (int o = 0; o < ROUND_OUTPUTS; o++)
    for (int i = 0; i < group; i++)
      to[i * ROUND_OUTPUTS + o] = o < n ? from[(size_t)o * stride + (size_t)i] : 0;
}

static inline void transpose_out(const float *from, int n, int group, float *to, size_t stride) {
  for (int o = 0; o < n; o++)
    for (int i = 0; i < group; i++) to[(size_t)o * stride + (size_t)i] = from[i * ROUND_OUTPUTS + o];
}
