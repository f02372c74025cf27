/* attention_kernels.cuh - argument, head sizes and entry points of the attention kernels. */
#pragma once

#include <cuda_fp16.h>
#include <type_traits>

#include "cuda/attention/attention.h"
#include "cuda/ptx/ptx.cuh"

/* Attention (attention.h) as a kernel's argument, by value. */
struct AttentionArgs {
  int n_heads, n_kv_heads, head_dim, n_ctx, window;
  float scale_log2; /* log2(e) * scale; with a cap: see score_log2() */
  const int *pos;
  const void *q, *k, *v;
  __half *out;
  int *tickets;        /* [n_kv_heads] zero between launches */
  void *partials;      /* decode: see Partials */
  size_t shared_limit; /* bytes that a block may take: decides the number of stages */
  float cap_log2;      /* log2(e) * cap; 0: no cap */
  const float *sinks;  /* [n_heads] or NULL */
  int kv_sharers;  /* decode: n_kv_heads counts each KV head so often, each time for as many query heads */
  int first_token; /* decode: the launch's first token is at *pos + first_token */
};

/* A score times log2(e), from q k. kCapped: cap tanh(scale q k / cap) = cap (1 - 2 / (1 + e^u)) with
 * u = 2 scale q k / cap = ln(2) scale_log2 q k; near 0 it errs by cap_log2 2^-24, some 1e-5 at Gemma's 50. */
template <bool kCapped> __device__ __forceinline__ float score_log2(const AttentionArgs &a, float q_k) {
  if (!kCapped) return q_k * a.scale_log2;
  return a.cap_log2 - __fdividef(2 * a.cap_log2, 1 + exp2f(q_k * a.scale_log2));
}

/* The part of a head's sink in the sum of its softmax, whose scores are relative to `shift`. */
__device__ __forceinline__ float sink_weight(const AttentionArgs &a, int head, float shift) {
  constexpr float kLog2E = 1.4426950408889634f;
  return a.sinks ? power_of_2(a.sinks[head] * kLog2E - shift) : 0;
}

constexpr int kMaxSplits = 64;   /* most splits of the keys in a launch */
constexpr int kSplitUnits = 132; /* wgmma: most tiles of queries times splits; the SMs of an H200 */

template <int N> using HeadSize = std::integral_constant<int, N>;

/* Shared memory that a block can have on every chip since sm_75. */
constexpr size_t kLeastShared = 64 << 10;

/* Calls run(head_dim, capped), both as integral_constant, so that they select a kernel's template. Kernels
 * with a cap are compiled for the head sizes of models that cap scores (Gemma 2). */
template <class Run> Status with_head_size(const AttentionArgs &a, Error *err, Run run) {
  std::false_type no;
  std::true_type yes;
  const bool capped = a.cap_log2 != 0;
  switch (capped && a.head_dim < 128 ? 0 : a.head_dim) {
  case 64: return run(HeadSize<64>(), no);
  case 80: return run(HeadSize<80>(), no);
  case 96: return run(HeadSize<96>(), no);
  case 128: return capped ? run(HeadSize<128>(), yes) : run(HeadSize<128>(), no);
  case 256: return capped ? run(HeadSize<256>(), yes) : run(HeadSize<256>(), no);
  case 512:
    if (!capped) return run(HeadSize<512>(), no);
  }
  return error_set(err, STATUS_FAILED, "attention: no kernel for heads of %d", a.head_dim);
}

/* Stride, in halves, of a head's rows in shared memory: 16-byte aligned, neighbours in different banks. */
__host__ __device__ constexpr int padded_stride(int head_dim) {
  return head_dim + 8;
}

/* All kThreads of a block copy N rows, from `first` on, into padded rows; rows from `end` on become zeros. */
template <int kHeadDim, int N, int kThreads>
__device__ __forceinline__ void load_rows(__half *shared, const __half *from, size_t from_stride, int first,
                                          int end) {
  constexpr int kChunks = kHeadDim / 8;
  for (int i = threadIdx.x; i < N * kChunks; i += kThreads) {
    int row = i / kChunks, chunk = i % kChunks;
    bool valid = first + row < end;
    copy_async_16(shared + row * padded_stride(kHeadDim) + chunk * 8,
                  from + (size_t)(valid ? first + row : first) * from_stride + chunk * 8, valid ? 16 : 0);
  }
}

/* Loads N keys and, after them, N values. */
template <int kHeadDim, int N, int kThreads>
__device__ __forceinline__ void load_tile(__half *stage, const __half *k, const __half *v, int first,
                                          int end) {
  load_rows<kHeadDim, N, kThreads>(stage, k, kHeadDim, first, end);
  load_rows<kHeadDim, N, kThreads>(stage + N * padded_stride(kHeadDim), v, kHeadDim, first, end);
}

/* Bytes of shared memory that a family takes with one stage. */
size_t attention_decode_shared(const AttentionArgs &a, int n_tokens);
size_t attention_prefill_shared(const AttentionArgs &a);

size_t attention_wgmma_shared(int head_dim);

/* Rows of the wgmma family's tile, tokens x query heads per KV head. */
int attention_wgmma_rows(int head_dim);

Status attention_decode(const AttentionArgs &a, int n_tokens, int n_splits, cudaStream_t stream, Error *err);
Status attention_prefill(const AttentionArgs &a, int n_tokens, cudaStream_t stream, Error *err);
/* Splits of the keys that attention_wgmma() chooses. */
int attention_wgmma_splits(const AttentionArgs &a, int n_tokens, int past);
/* past: *a.pos, or a guess, which only divides the work. */
Status attention_wgmma(const AttentionArgs &a, int n_tokens, int past, int n_sms, cudaStream_t stream,
                       Error *err);
Status attention_plain(const AttentionArgs &a, KvType kv, int n_tokens, cudaStream_t stream, Error *err);
