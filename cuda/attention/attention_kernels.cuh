/* attention_kernels.cuh - what the attention families share: their argument and their entry points. */
#ifndef AUK_CUDA_ATTENTION_ATTENTION_KERNELS_CUH
#define AUK_CUDA_ATTENTION_ATTENTION_KERNELS_CUH

#include <cuda_fp16.h>

#include "cuda/attention/attention.h"

/* Attention of attention.h as kernels take it, by value. */
struct AttentionKernel {
  int n_heads, n_kv_heads, head_dim, n_ctx, window;
  float scale_log2; /* from q k to a score as an exponent of two, or score_log2()'s */
  const int *pos;
  const void *q, *k, *v;
  __half *out;
  int *tickets;        /* [n_kv_heads] zero between launches */
  void *partials;      /* decode: see there */
  size_t shared_limit; /* bytes a block may take: which of its forms a family launches */
  float cap_log2;      /* of scores as exponents of two; 0: none */
  int first_row;       /* decode: row 0 is at *pos + first_row */
};

/* A score from q k as an exponent of two. CAPPED: cap tanh(scale q k / cap) = cap (1 - 2 / (1 + e^u)) with
 * u = 2 scale q k / cap = ln(2) scale_log2 q k; near 0 it errs by cap_log2 2^-24, some 1e-5 at Gemma's 50. */
template <bool CAPPED> __device__ __forceinline__ float score_log2(const AttentionKernel &a, float q_k) {
  if (!CAPPED) return q_k * a.scale_log2;
  return a.cap_log2 - __fdividef(2 * a.cap_log2, 1 + exp2f(q_k * a.scale_log2));
}

constexpr int ATTENTION_MAX_SPLITS = 64; /* runs of keys that the decode family can join */

/* What every chip since sm_75 has for a block. */
constexpr size_t ATTENTION_LEAST_SHARED = 64 << 10;

/* Unreachable where attention_can_run() was asked first. */
inline Status refuse_form(const AttentionKernel &a, Error *err) {
  return error_set(err, STATUS_FAILED, "attention: no kernel for heads of %d", a.head_dim);
}

/* Bytes of shared memory that the smallest form of a family takes. */
size_t attention_decode_shared(const AttentionKernel &a, int n_tokens);
size_t attention_prefill_shared(const AttentionKernel &a);

Status attention_decode(const AttentionKernel &a, int n_tokens, int n_splits, cudaStream_t stream,
                        Error *err);
Status attention_prefill(const AttentionKernel &a, int n_tokens, cudaStream_t stream, Error *err);
Status attention_plain(const AttentionKernel &a, KvType kv, int n_tokens, cudaStream_t stream, Error *err);

#endif
