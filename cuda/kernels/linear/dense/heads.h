/* heads.h - one matrix for each head; it multiplies the head's own part of x.
 *
 *     y[t][h][o] = sum over i of w[h][o][i] x[t][h][i]
 *
 * Called by: linear.cu, and layers/latent.c through it. Nothing waits; a graph can capture a run. */
#pragma once

#include "cuda/kernels/linear/cublas.h"
#include "cuda/kernels/linear/linear.h"

C_BEGIN

/* True if steps of max_tokens tokens are faster with cuBLAS. */
bool linear_heads_want_library(int max_tokens);

/* cublas: NULL if cuBLAS is not loaded; many tokens are then slower. invariant: a token's bits must not
 * depend on how many tokens there are. */
Status linear_heads_run(const Cublas *cublas, const LinearHeads *call, bool invariant,
                        const DeviceLimits *device, cudaStream_t stream, Error *err);

/* linear_heads_run() with `invariant` on sm_90a, for any number of tokens: dense_wgmma.cu. */
Status heads_wgmma(const LinearHeads *call, int n_sms, cudaStream_t stream, Error *err);

C_END
