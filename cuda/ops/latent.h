/* latent.h - the steps between the matmuls of multi-head latent attention (LatentConfig,
 * model/config/config.h).
 * Called by: layers/latent.c.   Reference: src/cpu/latent.c.
 *
 * Heads are multiplied by matrices of their own, as experts are (linear.h): place h * n_tokens + t is head h
 * of token t. H: rope_dim + kv_rank, the width of a row of the cache. */
#pragma once

#include <cuda_runtime_api.h>

#include "base/status.h"
#include "model/config/config.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  LatentConfig sizes;
  int n_heads;
  const float *in; /* [n_tokens][in_stride]: q_a's outputs (or without q_rank all queries), then kv_a's */
  size_t in_stride;
  const float *q_norm, *kv_norm; /* [q_rank], [kv_rank] */
  void *q_latents;               /* f16 [n_tokens][q_stride]: normalised; not used if q_rank is 0 */
  int q_stride;
  const float *queries; /* [n_tokens][query_stride], each head nope_dim + rope_dim numbers */
  size_t query_stride;
  float *rows; /* [n_tokens][row_stride]: n_heads queries of H numbers, then one key of H */
  size_t row_stride;
  void *x;      /* f16 [n_heads * n_tokens][x_stride] by places */
  int x_stride; /* at least nope_dim and kv_rank */
  int *begins;  /* [n_heads + 1] LinearExperts' */
} Latent;

/* Normalises the latents: q_latents, and the key of `rows`, without its rope. */
Status ops_latent_norms(const Latent *call, int n_tokens, cudaStream_t stream, Error *err);
/* x = each query's part without a rope; its other part goes to `rows`. Sets begins. */
Status ops_latent_queries(const Latent *call, int n_tokens, cudaStream_t stream, Error *err);
/* The queries of `rows` from rope_dim on = y, fp32 [n_heads * n_tokens][kv_rank] by places. */
Status ops_latent_keys(const Latent *call, const float *y, int n_tokens, cudaStream_t stream, Error *err);
/* x[place] = a[t][h], the weighted sum of latents; a f16 [n_tokens][n_heads][kv_rank]. Sets begins. */
Status ops_latent_outputs(const Latent *call, const void *a, int n_tokens, cudaStream_t stream, Error *err);
/* out = y, fp32 [n_heads * n_tokens][value_dim] by places; out f16 [n_tokens][out_stride]. */
Status ops_latent_values(const Latent *call, const float *y, int n_tokens, void *out, int out_stride,
                         cudaStream_t stream, Error *err);

#ifdef __cplusplus
}
#endif
