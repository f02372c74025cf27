/* chunks.h - divides the outputs of a matrix among threads. Private to src/quantize. */
#pragma once

#include "quantize/matrix.h"

enum { CHUNK = 96 }; /* most outputs of one call of work() */
_Static_assert(CHUNK % ROUND_OUTPUTS == 0 && CHUNK % TILE_ROWS == 0, "chunks of whole blocks and tiles");

/* Computes outputs first .. first + n_rows - 1, n_rows <= CHUNK; scratch is the thread's own. Returns its
 * summand of run_chunks()'s *loss. */
typedef double ChunkWork(const void *context, int first, int n_rows, float *scratch);

/* Calls work() for all n_out outputs, with `floats` floats of scratch memory for each thread. *loss = the sum
 * of its results, added in the order of the outputs; loss may be NULL. */
Status run_chunks(const Products *products, int n_out, size_t floats, ChunkWork *work, const void *context,
                  double *loss, Error *err);
