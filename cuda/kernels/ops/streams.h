/* streams.h - residual streams and n-grams of tokens (operations.def, MIX_FOR_..., INJECT, add_ngrams),
 * without their matmuls.
 *
 * All functions only enqueue. A token has n streams of `hidden` numbers, one after another. S = n * hidden */
#pragma once

#include <cuda_runtime_api.h>

#include "base/status.h"
#include "cuda/kernels/ops/segment.h"

C_BEGIN

/* Each stream becomes the token's embedding. x fp32 [n_rows][hidden], streams fp32 [n_rows][S]. */
Status ops_streams_begin(const float *x, int n, int hidden, int n_rows, float *streams, cudaStream_t stream,
                         Error *err);

/* Rows of streams, each stream normalised by itself: u = s / rms(s) * norm. */
typedef struct {
  int n, hidden;
  const float *streams; /* fp32 [..][S] */
  const int *rows;      /* device: the rows of `streams` to take; NULL: rows from first_row on */
  int first_row;
  const float *norm; /* [S] */
  float eps;
  float *inverses; /* [n_rows][n] 1 / rms */
} StreamRows;
/* Sets u, fp16 [n_rows][u_stride], and inverses. */
Status ops_streams_norm(const StreamRows *call, int n_rows, void *u, int u_stride, cudaStream_t stream,
                        Error *err);
/* ranks = silu(sums / n) of each row's first `rank` sums, fp16 [n_rows][ranks_stride]. factors = 2
 * sigmoid(sums / n) of each row's last n sums, fp32 [n_rows][n]. sums: fp32 [n_rows][rank + n], or
 * [n_rows][rank] if factors is NULL. */
Status ops_streams_ranks(const float *sums, int n, int rank, int n_rows, void *ranks, int ranks_stride,
                         float *factors, cudaStream_t stream, Error *err);
/* h = the mean of the streams u, each times sigmoid(weights); weights fp32 [n_rows][S]. h is fp16
 * [n_rows][h_stride]; `mixed`, unless NULL, gets h in fp32 [n_rows][hidden]; x, unless NULL, becomes 0.
 * PRECOND ops_streams_norm() for these rows. */
Status ops_streams_mix(const StreamRows *call, const float *weights, int n_rows, void *h, int h_stride,
                       float *mixed, float *x, cudaStream_t stream, Error *err);
/* streams += factors * x; x fp32 [n_rows][hidden], factors fp32 [n_rows][n]. */
Status ops_streams_inject(const float *x, const float *factors, int n, int hidden, int n_rows, float *streams,
                          cudaStream_t stream, Error *err);

/* A layer's n-grams. The state of a sequence: fp32 [n_tail][S], n_tail = (taps - 1) * longest, with the
 * convolution's input at position p in row p % n_tail. Then [longest - 1] tokens as int32, with the token of
 * position p at p % (longest - 1). */
typedef struct {
  int n, hidden, longest, taps; /* n: streams; longest, taps: NgramConfig's */
  int empty;                    /* the id that stands for tokens before the text */
  const int *ids, *pos;         /* device [n_rows] */
  float *state;                 /* of the rows' sequence; with segments: of sequence 0 */
  Segments segments;
  const float *conv;  /* [S][taps] */
  const float *gated; /* fp32 [n_rows][S] c of ops_ngram_gate() */
  const float *input; /* fp32 [n_rows][S] norm(c) */
  float *streams;     /* fp32 [n_rows][S] */
} Ngrams;
/* Floats of the state of one layer and sequence. */
size_t ops_ngram_state_floats(int longest, int taps, int n, int hidden);
/* tokens[n_rows][longest], in mapped or pinned host memory: tokens[row][j] is the token j positions before
 * the row's token. */
Status ops_ngram_tokens(const Ngrams *call, int n_rows, int32_t *tokens, cudaStream_t stream, Error *err);
/* streams += c + silu(convolution), and the state keeps the rows' inputs and tokens. */
Status ops_ngram_add(const Ngrams *call, int n_rows, cudaStream_t stream, Error *err);

/* gated = c = gate * values, and input = norm(c), as in Ngrams. The n-grams' keys are fp32 [n_rows][S], their
 * values fp32 [n_rows][hidden]. Each of the norms is [S]. */
typedef struct {
  int n, hidden;
  float eps;
  const float *keys, *values, *streams;
  const float *key_norm, *query_norm, *conv_norm;
  float *gated, *input;
} NgramGates;
Status ops_ngram_gate(const NgramGates *call, int n_rows, cudaStream_t stream, Error *err);

C_END
