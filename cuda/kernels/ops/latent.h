/* latent.h - the steps between the matmuls of multi-head latent attention (LatentConfig,
 * base/arithmetic.h).
 * Called by: layers/latent.c.   Reference: src/cpu/mixers/latent.c. The function only enqueues.
 *
 * H = rope_dim + kv_rank, the width of a row of the cache. A key is its rotated part, then the normalised
 * latent. A query of each head is laid out likewise. */
#pragma once

#include <cuda_runtime_api.h>

#include "base/arithmetic.h"
#include "base/status.h"
#include "cuda/kernels/cache/pages.h"

C_BEGIN

typedef struct {
  LatentConfig sizes;
  int n_heads;
  const float *in; /* [n_tokens][in_stride]: q_a's outputs (or without q_rank all queries), then kv_a's */
  size_t in_stride;
  const float *kv_norm; /* [kv_rank] */
  const float *queries; /* [n_tokens][query_stride], each head nope_dim + rope_dim numbers */
  size_t query_stride;
  void *x; /* f16 [n_tokens][n_heads][x_step]: queries without their rotated parts, then zeros */
  int x_step;
  void *q;                /* f16 [n_tokens][n_heads][H] */
  const void *rope_table; /* float2 [n_tokens][rope_dim / 2] {cosine, sine}; NULL: no rope */
  bool neighbours;        /* pairs (2 i, 2 i + 1), else (i, i + rope_dim / 2) */
  float query_scale_beta, query_scale_step; /* ModelConfig's; beta 0: no factor */
  const int *pos;                           /* [n_tokens]; negative: padding, nothing is cached */
  AttentionPages pages;
  int n_ctx; /* positions of a page */
  KvType kv;
  void *cache;    /* of type kv [n_pages][n_ctx][H] */
  void *k_scales; /* with KV_Q8, as in Attention */
} Latent;

/* Sets the tokens' rows in the cache, x, and the rotated part (the first rope_dim numbers) of each head of
 * q. */
Status ops_latent_rows(const Latent *call, int n_tokens, cudaStream_t stream, Error *err);

C_END
