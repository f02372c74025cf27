/* index.h - index keys, and the choice of the positions that a row attends to (config.h, IndexerConfig),
 * with a cache in fp16. attention/chosen.h attends to these positions.
 * Reference: src/cpu/mixers/sparse.c. Everything only enqueues.
 *
 *   index_append    the raw index key of each row, and the keys of the blocks of positions that end at a row
 *   index_choose    scores of blocks, then the positions that each row attends to
 *
 * Grids depend only on the number of rows and on sizes, and kernels read positions from device memory. So a
 * captured launch serves every step. A row's bits do not depend on the step's other rows. A row of position
 * -1 is padding: nothing is written for it. */
#pragma once

#include <cuda_runtime_api.h>
#include <stddef.h>

#include "base/arithmetic.h"
#include "base/status.h"
#include "cuda/kernels/cache/pages.h"

C_BEGIN

enum { INDEX_MAX_HEAD_DIM = 256 };

/* The index queries and keys of a step's rows, and the caches `raw` and `keys`. Each cache is one KV head,
 * [n_pages][n_ctx][width] in fp16. Numbers of a row after the first head_dim are neither read nor written. */
typedef struct {
  IndexerConfig sizes; /* head_dim 1 .. INDEX_MAX_HEAD_DIM; budget a multiple of block, not 0 */
  float eps;
  const float *rows;            /* [n_rows][stride]: n_heads index queries, then the index key */
  size_t stride;                /* >= (n_heads + 1) * head_dim */
  const float *q_norm, *k_norm; /* [head_dim] */
  const float *frequencies;     /* of the rope [n_pairs] */
  int n_pairs;                  /* the rope turns dimensions i and i + n_pairs; 2 * n_pairs <= head_dim */
  float attention_factor;
  const int *pos;       /* device: [n_rows] */
  AttentionPages pages; /* table NULL: one page of n_ctx positions */
  int n_ctx;            /* positions of a page */
  void *raw;            /* index keys as the matrix gives them */
  /* In the row of a block's last position, the block's key: the mean of the block's raw keys, normalised,
   * rotated to the block's first position. Other rows are not used. */
  void *keys;
  int width; /* >= head_dim */
} IndexCall;

/* PRECOND a block that ends at one of the rows has its other positions in the cache or among the rows. */
Status index_append(const IndexCall *call, int n_rows, cudaStream_t stream, Error *err);

/* Most positions that a row attends to: budget + block - 1. */
size_t index_most_chosen(const IndexerConfig *sizes);

/* Floats of a row of scores: one for each block, or more. n_ctx_all: most positions of a sequence. */
size_t index_row_scores(const IndexerConfig *sizes, int n_ctx_all);

/* Writes the positions that each row attends to, ascending, to chosen[n_rows][index_most_chosen()], and their
 * number to n_chosen[n_rows]. A row with at most budget / block whole blocks attends to all positions up to
 * its own; its scores are not written. A score is the sum over index queries q of max(q . key, 0), or 0
 * instead of NaN. Among blocks with the same score the first are taken. PRECOND index_append() for these
 * rows. scores: device [n_rows][index_row_scores()]. */
Status index_choose(const IndexCall *call, int n_rows, int n_ctx_all, float *scores, int *chosen,
                    int *n_chosen, cudaStream_t stream, Error *err);

C_END
