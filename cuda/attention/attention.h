/* attention.h - causal attention over the KV cache on a GPU: a[row] = softmax(cap(scale * q k)) v, where
 * cap(s) = cap * tanh(s / cap), or s.
 *
 * Four families, chosen by attention_choose() (host only, no GPU needed) and forced by number for tests:
 *   decode   few tokens; tensor cores; keys split over the whole GPU, merged in the same launch
 *   wgmma    many tokens, or some after a long past, on sm_90a; FlashAttention-3; keys split if tiles are few
 *   prefill  many tokens; tensor cores of all chips; FlashAttention-2, one block for 64 tokens of a head
 *   plain    any even head_dim up to 512, any number of tokens, either type of cache; the reference
 * Kernels read the position from device memory, so a captured launch serves every step. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  ATTENTION_DECODE,
  ATTENTION_WGMMA,
  ATTENTION_PREFILL,
  ATTENTION_PLAIN,
  ATTENTION_FAMILIES
} AttentionFamily;

typedef struct {
  int n_heads, n_kv_heads, head_dim;
  int n_ctx;  /* positions in the cache */
  int window; /* a token sees itself and window - 1 positions before; 0: all */
  KvType kv;
  size_t shared_bytes; /* most dynamic shared memory that a block may opt in to */
  int wgmma_sms;       /* attention_wgmma_sms() of the GPU */
  const int *pos;      /* device: token t is at position *pos + t, and sees keys 0 .. *pos + t */
  const void *q;       /* device: fp16 [n_tokens][n_heads][head_dim], after rope */
  const void *k, *v; /* device: fp16 or fp32 [n_kv_heads][n_ctx][head_dim], one layer, rows 16-byte aligned */
  void *out;         /* device: fp16 [n_tokens][n_heads][head_dim] */
  void *workspace;   /* device: attention_workspace_bytes(), zeroed once when it was allocated */
  double scale;      /* > 0 */
  double cap;        /* soft cap of scores; 0: none */
  const float *sinks; /* device: [n_heads] one more logit of each head's softmax, its value 0; or NULL */
  int past;           /* *pos, known to the host: decides the family, and how wgmma splits the keys */
} Attention;

/* The fastest family that can run: decode for one token; for more wgmma, or, without it, decode for up to 64
 * after a long past, since it splits the keys over the whole GPU, else prefill. All three need an fp16 cache
 * and a head_dim of 64, 80 (not wgmma), 96 (not wgmma), 128, 256 or 512 (128 or 256 if scores are capped). A
 * launch of decode takes 32 columns, tokens x query heads per KV head (16 for a head_dim of 256, 8 for 512);
 * more columns take several launches, or several blocks for each KV head. Plain runs everything else, and
 * chips with too little shared memory for the others. */
AttentionFamily attention_choose(const Attention *attention, int n_tokens);
bool attention_can_run(AttentionFamily family, const Attention *attention, int n_tokens);

/* A number that two steps of as many tokens share only if the same launches serve them: the family, and how
 * it divides the keys. */
int attention_division(const Attention *attention, int n_tokens);

/* SMs of a GPU that runs the wgmma family, else 0. */
Status attention_wgmma_sms(int gpu, int *n_sms, Error *err);

/* Most bytes that a family needs for partial results of one layer. Layers of all sizes share the
 * largest of their workspaces. */
size_t attention_workspace_bytes(int n_heads, int n_kv_heads, int head_dim);

/* Enqueues. PRECOND attention_can_run(family, ...). */
Status attention_run(AttentionFamily family, const Attention *attention, int n_tokens, cudaStream_t stream,
                     Error *err);

#ifdef __cplusplus
}
#endif
