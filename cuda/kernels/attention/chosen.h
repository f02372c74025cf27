/* chosen.h - sparse attention: each row attends only to the positions that its index queries have chosen
 * (ops/index.h), with a KV cache in fp16: softmax(scale * q k) v. Reference: src/cpu/mixers/sparse.c.
 *
 * Grids depend only on the number of rows and on sizes. Kernels read positions from device memory. So a
 * captured launch serves every step. A row gets the same bits whatever other rows are in the step. A row of
 * position -1 is padding: nothing is written for it. */
#pragma once

#include <cuda_runtime_api.h>
#include <stddef.h>

#include "base/status.h"
#include "cuda/kernels/cache/pages.h"

C_BEGIN

typedef struct {
  int n_heads, n_kv_heads; /* n_heads % n_kv_heads == 0, n_heads / n_kv_heads <= 16 */
  int head_dim;            /* 16 .. 256, a multiple of 16 */
  float scale;             /* > 0 */
  const void *q;           /* device: fp16 [n_rows][q_stride], each row n_heads heads, after rope */
  const void *k, *v;       /* device: fp16 [n_pages][n_kv_heads][n_ctx][head_dim] */
  AttentionPages pages;
  int n_ctx;                          /* positions of a page */
  const int *pos, *chosen, *n_chosen; /* device: pos, n_chosen [n_rows]; chosen [n_rows][most_chosen] */
  int most_chosen;
  void *out;                /* device: fp16 [n_rows][out_stride] */
  int q_stride, out_stride; /* multiples of 8 */
  float *workspace;         /* device: chosen_workspace_bytes() */
} ChosenAttention;

/* chosen_workspace_bytes(): bytes for partial results of at most max_rows rows. More rows than CHOSEN_ROWS
 * need no more bytes. */
enum { CHOSEN_ROWS = 32 };
size_t chosen_workspace_bytes(int n_heads, int head_dim, int most_chosen, int max_rows);

/* Enqueues; takes CHOSEN_ROWS rows at a time, so that the workspace stays small. */
Status chosen_attend(const ChosenAttention *call, int n_rows, cudaStream_t stream, Error *err);

C_END
