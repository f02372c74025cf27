/* attention_kernels.cuh - what the attention families share: their argument and their entry points. */
#ifndef AUK_CUDA_ATTENTION_ATTENTION_KERNELS_CUH
#define AUK_CUDA_ATTENTION_ATTENTION_KERNELS_CUH

#include <cuda_fp16.h>
#include <type_traits>

#include "cuda/attention/attention.h"
#include "cuda/ptx/ptx.cuh"

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

template <int N> using HeadSize = std::integral_constant<int, N>;

/* What every chip since sm_75 has for a block. */
constexpr size_t ATTENTION_LEAST_SHARED = 64 << 10;

/* Unreachable where attention_can_run() was asked first. */
inline Status refuse_form(const AttentionKernel &a, Error *err) {
  return error_set(err, STATUS_FAILED, "attention: no kernel for heads of %d", a.head_dim);
}

/* The kernel for heads of this size: run(size, capped), both as types of a constant. Kernels with a cap exist
 * for the head sizes of models that cap scores (Gemma 2). */
template <class Run> Status with_head_size(const AttentionKernel &a, Error *err, Run run) {
  std::false_type no;
  std::true_type yes;
  const bool capped = a.cap_log2 != 0;
  switch (a.head_dim) {
  case 128: return capped ? run(HeadSize<128>(), yes) : run(HeadSize<128>(), no);
  case 256: return capped ? run(HeadSize<256>(), yes) : run(HeadSize<256>(), no);
  case 64: return capped ? refuse_form(a, err) : run(HeadSize<64>(), no);
  case 80: return capped ? refuse_form(a, err) : run(HeadSize<80>(), no);
  case 96: return capped ? refuse_form(a, err) : run(HeadSize<96>(), no);
  default: return refuse_form(a, err);
  }
}

/* In shared memory a head's rows begin in different banks, 16-byte aligned: halves from one to the next. */
__host__ __device__ constexpr int padded_row(int head_dim) {
  return head_dim + 8;
}

/* Copies N rows of halves, zeros from row `end` on, into padded rows by all THREADS of a block. */
template <int HEAD_DIM, int N, int THREADS>
__device__ __forceinline__ void load_rows(__half *shared, const __half *from, size_t from_stride, int first,
                                          int end) {
  constexpr int CHUNKS = HEAD_DIM / 8;
  for (int i = threadIdx.x; i < N * CHUNKS; i += THREADS) {
    int row = i / CHUNKS, chunk = i % CHUNKS;
    bool valid = first + row < end;
    copy_async_16(shared + row * padded_row(HEAD_DIM) + chunk * 8,
                  from + (size_t)(valid ? first + row : first) * from_stride + chunk * 8, valid ? 16 : 0);
  }
}

/* Bytes of shared memory that the smallest form of a family takes. */
size_t attention_decode_shared(const AttentionKernel &a, int n_tokens);
size_t attention_prefill_shared(const AttentionKernel &a);

Status attention_decode(const AttentionKernel &a, int n_tokens, int n_splits, cudaStream_t stream,
                        Error *err);
Status attention_prefill(const AttentionKernel &a, int n_tokens, cudaStream_t stream, Error *err);
Status attention_plain(const AttentionKernel &a, KvType kv, int n_tokens, cudaStream_t stream, Error *err);

#endif
