/* attention_kernels.cuh - what the attention families share: their argument and their entry points. */
#ifndef AUK_CUDA_ATTENTION_KERNELS_CUH
#define AUK_CUDA_ATTENTION_KERNELS_CUH

#include <cuda_fp16.h>

#include "cuda/attention.h"

/* Attention of attention.h as kernels take it, by value. */
struct AttentionKernel {
  int n_heads, n_kv_heads, head_dim, n_ctx, window;
  float scale_log2; /* log2(e) / sqrt(head_dim): scores are exponents of two */
  const int *pos;
  const void *q, *k, *v;
  __half *out;
  int *tickets;        /* [n_kv_heads] zero between launches */
  void *partials;      /* decode: see there */
  size_t shared_limit; /* bytes a block may take: which of its forms a family launches */
};

constexpr int ATTENTION_MAX_SPLITS = 64; /* runs of keys that the decode family can join */

/* What every chip since sm_75 has for a block. */
constexpr size_t ATTENTION_LEAST_SHARED = 64 << 10;

/* Bytes of shared memory that the smallest form of a family takes. */
size_t attention_decode_shared(const AttentionKernel &a, int n_tokens);
size_t attention_prefill_shared(const AttentionKernel &a);

cudaError_t attention_decode(const AttentionKernel &a, int n_tokens, int n_splits, cudaStream_t stream);
cudaError_t attention_prefill(const AttentionKernel &a, int n_tokens, cudaStream_t stream);
cudaError_t attention_plain(const AttentionKernel &a, KvType kv, int n_tokens, cudaStream_t stream);

#endif
