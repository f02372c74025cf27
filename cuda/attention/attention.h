/* attention.h - causal attention over the KV cache on a GPU: a[row] = softmax(cap(scale * q k)) v, where
 * cap(s) = cap * tanh(s / cap), or s.
 *
 * Three families, chosen by attention_choose() (host only, no GPU needed) and forced by number for tests:
 *   decode   few rows of queries, tensor cores, the keys split over the whole GPU, combined in the same
 *            launch
 *   prefill  many rows of queries, tensor cores, FlashAttention's online softmax, one block for 64 rows of
 *            a head
 *   plain    any even head_dim up to 256, any number of rows, either type of cache: readable, and the
 *            reference
 * Position and length come from device memory, so a captured launch serves every step. */
#ifndef AUK_CUDA_ATTENTION_ATTENTION_H
#define AUK_CUDA_ATTENTION_ATTENTION_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { ATTENTION_DECODE, ATTENTION_PREFILL, ATTENTION_PLAIN, ATTENTION_FAMILIES } AttentionFamily;

typedef struct {
  int n_heads, n_kv_heads, head_dim;
  int n_ctx;  /* positions in the cache */
  int window; /* a row sees itself and window - 1 positions before; 0: all */
  KvType kv;
  size_t shared_bytes; /* of shared memory that one block may take on this device */
  const int *pos;      /* device: position of row 0; row r is at *pos + r, and sees keys 0 .. *pos + r */
  const void *q;       /* device: fp16 [n_tokens][n_heads][head_dim], after rope */
  const void *k, *v; /* device: fp16 or fp32 [n_kv_heads][n_ctx][head_dim], one layer, rows 16-byte aligned */
  void *out;         /* device: fp16 [n_tokens][n_heads][head_dim] */
  void *workspace;   /* device: attention_workspace_bytes(), zeroed once when it was allocated */
  double scale;      /* > 0 */
  double cap;        /* of scores; 0: none */
  int past;          /* *pos, as far as the host knows it: attention_choose() goes by it */
} Attention;

/* The family for n_tokens rows: decode for one, and for up to 64 where what they see is long, since only
 * decode cuts the keys into parts for all of the GPU; else prefill. Both need an fp16 cache and a head_dim of
 * 64, 80, 96, 128 or 256 (128 or 256 where scores are capped), decode at most 32 query heads of a KV head (16
 * for 256); it takes so many columns, rows x query heads of a KV head, at once, and more one after the other.
 * Plain for everything else, and where a block of the others has not enough shared memory. */
AttentionFamily attention_choose(const Attention *attention, int n_tokens);
bool attention_can_run(AttentionFamily family, const Attention *attention, int n_tokens);
const char *attention_family_name(AttentionFamily family);

/* Bytes that the decode family needs for partial results, at most, for one layer at a time. */
size_t attention_workspace_bytes(int n_kv_heads, int head_dim);

/* Enqueues. PRECOND attention_can_run(family, ...). */
Status attention_run(AttentionFamily family, const Attention *attention, int n_tokens, cudaStream_t stream,
                     Error *err);

#ifdef __cplusplus
}
#endif
#endif
