/* attention_kernels.cuh - argument, head sizes and entry points of the attention kernels. */
#pragma once

#include <cuda_fp16.h>
#include <type_traits>

#include "cuda/kernels/attention/attention.h"
#include "cuda/kernels/cache/cache_rows.cuh"
#include "cuda/kernels/ptx/ptx.cuh"

/* Attention (attention.h) as a kernel's argument, by value. */
struct AttentionArgs {
  int n_heads, n_kv_heads, head_dim, n_ctx;
  int unseen_mask, unseen_back; /* newest_unseen() */
  float scale_log2;             /* log2(e) * scale; with a cap: see score_log2() */
  const int *pos;
  const void *q, *k, *v;
  const __half *k_scales, *v_scales; /* of a cache in 8 bits (q8.cuh); else NULL */
  AttentionPages pages;
  int value_dims; /* Attention.value_dims; > 0: the last numbers of a key are its value */
  /* decode, and wgmma with value_dims: the units of the launch; NULL: one token, or several at consecutive
   * positions */
  const AttentionUnit *units;
  const AttentionTile *tiles; /* wgmma, prefill: tiles of several sequences; or NULL */
  __half *out;
  unsigned char *planes; /* Attention.planes: int8 planes that are written instead of out, or NULL */
  int planes_tokens;
  int *tickets;        /* [the larger of MAX_HEADS and unit_partials], zero between launches */
  void *partials;      /* decode, wgmma: see Partials of their files */
  size_t shared_limit; /* bytes that a block may take: decides the number of stages */
  float cap_log2;      /* log2(e) * cap; 0: no cap */
  int whole;           /* Attention.whole; not in prefill */
  const float *sinks;  /* [n_heads] or NULL */
  bool is_beside;      /* decode: runs beside the launch before, whose results it does not need */
  int kv_sharers;      /* blocks that share a KV head, each for some of its query heads. n_kv_heads counts
                   * a head once for each such block: kv_head / kv_sharers is its index in the cache */
  union {
    int first_token;   /* decode: the launch's first token */
    int unit_partials; /* with units: most partial results, of all KV heads, that fit `partials` */
  };
};

/* The newest position before the window or chunk of a token at `pos`; negative: none. A window of w: pos - w.
 * A chunk of c, a power of two: (pos & -c) - 1. Neither: -1. */
__host__ __device__ __forceinline__ int newest_unseen(const AttentionArgs &a, int pos) {
  return (pos & a.unseen_mask) - a.unseen_back;
}

/* The oldest position that a token at `pos` sees, rounded down to a multiple of kKeys. */
template <int kKeys> __device__ __forceinline__ int first_step(const AttentionArgs &a, int pos) {
  return max(0, newest_unseen(a, pos) + 1) / kKeys * kKeys;
}

/* A score times log2(e), from q k. kCapped: cap tanh(scale q k / cap) = cap (1 - 2 / (1 + e^u)) with
 * u = 2 scale q k / cap = ln(2) scale_log2 q k. Near 0 it errs by some cap_log2 2^-23: 1e-5 at Gemma's 50. */
template <bool kCapped> __device__ __forceinline__ float score_log2(const AttentionArgs &a, float q_k) {
  if (!kCapped) return q_k * a.scale_log2;
  return a.cap_log2 - __fdividef(2 * a.cap_log2, 1 + exp2f(q_k * a.scale_log2));
}

/* A head's sink as a term of its softmax's sum; `shift` has been subtracted from the scores. */
__device__ __forceinline__ float sink_weight(const AttentionArgs &a, int head, float shift) {
  constexpr float kLog2E = 1.4426950408889634f;
  return a.sinks ? power_of_2(a.sinks[head] * kLog2E - shift) : 0;
}

constexpr int kPlanesHead = 128; /* head_dim of the kernels that write a.planes */
constexpr int kWholeHead = 128;  /* head_dim of the fast kernels that take a.whole */
constexpr int kMaxSplits =
    ATTENTION_SPLITS;            /* most splits of the keys; for one token of latents kSplitUnits */
constexpr int kPrefillRows = 64; /* tokens of a tile of the prefill family */
constexpr int kSplitUnits = 132; /* wgmma: most units if keys are split; the SMs of an H200 */

template <int N> using HeadSize = std::integral_constant<int, N>;

/* Shared memory that a block can have on every chip since sm_75. */
constexpr size_t kLeastShared = 64 << 10;

/* Calls run(head_dim, capped). Both are integral_constants, so that they select a kernel's template. Kernels
 * with a cap are compiled only for the head sizes of models that cap scores (Gemma 2). */
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

/* Stride, in halves, of a head's rows in shared memory: 16-byte aligned, neighbouring rows in different
 * banks. */
__host__ __device__ constexpr int padded_stride(int head_dim) {
  return head_dim + 8;
}

/* Stride, in bytes, of rows of a cache in 8 bits. It puts 16 bytes of each of eight neighbouring rows into
 * different banks. */
__host__ __device__ constexpr int padded_bytes(int head_dim) {
  return head_dim % 32 ? head_dim : head_dim + 16;
}

/* All kThreads of a block copy N rows of kRow numbers, from row `first` on. The copies are kStride numbers
 * apart; rows from `end` on become zeros. */
template <int kRow, int kStride, int N, int kThreads, typename T>
__device__ __forceinline__ void load_strided(T *shared, const T *from, size_t from_stride, int first,
                                             int end) {
  constexpr int kChunk = 16 / sizeof(T), kChunks = kRow / kChunk;
  for (int i = threadIdx.x; i < N * kChunks; i += kThreads) {
    int row = i / kChunks, chunk = i % kChunks;
    bool valid = first + row < end;
    copy_async_16(shared + row * kStride + chunk * kChunk,
                  from + (size_t)(valid ? first + row : first) * from_stride + chunk * kChunk,
                  valid ? 16 : 0);
  }
}

/* load_strided() for rows of a head in fp16, padded. */
template <int kHeadDim, int N, int kThreads>
__device__ __forceinline__ void load_rows(__half *shared, const __half *from, size_t from_stride, int first,
                                          int end) {
  load_strided<kHeadDim, padded_stride(kHeadDim), N, kThreads>(shared, from, from_stride, first, end);
}

/* Loads the first n of N keys, from row `at` of the cache on, and their values after the N rows of keys. The
 * other rows become zeros. */
template <int kHeadDim, int N, int kThreads>
__device__ __forceinline__ void load_tile(__half *stage, const AttentionArgs &a, size_t at, int n) {
  const size_t from = at * kHeadDim;
  load_rows<kHeadDim, N, kThreads>(stage, (const __half *)a.k + from, kHeadDim, 0, n);
  load_rows<kHeadDim, N, kThreads>(stage + N * padded_stride(kHeadDim), (const __half *)a.v + from, kHeadDim,
                                   0, n);
}

/* Least bytes of shared memory that a family takes: with one stage, or two for decode with a.whole > 0. */
size_t attention_decode_shared(const AttentionArgs &a, int n_tokens);
size_t attention_prefill_shared(const AttentionArgs &a);

/* attention_wgmma_shared(): bytes of shared memory that wgmma takes, or SIZE_MAX if it has no kernel for such
 * heads. attention_wgmma_rows(): rows of its tile, tokens x query heads per KV head, or 0. */
size_t attention_wgmma_shared(const AttentionArgs &a);
int attention_wgmma_rows(const AttentionArgs &a);

/* n_blocks: blocks of each KV head: one for each split of the keys, or with a.units one for each unit. */
Status attention_decode(const AttentionArgs &a, int n_tokens, int n_blocks, cudaStream_t stream, Error *err);
/* n_tiles: number of a.tiles; 0 without them. */
Status attention_prefill(const AttentionArgs &a, int n_tokens, int n_tiles, cudaStream_t stream, Error *err);
/* Splits of the keys that attention_wgmma() chooses. */
int attention_wgmma_splits(const AttentionArgs &a, int n_tokens, int past);
/* past: a.pos[0] or a guess of it; decides only how the work is divided. */
Status attention_wgmma(const AttentionArgs &a, int n_tokens, int past, int n_sms, cudaStream_t stream,
                       Error *err);
/* attention_wgmma() for the tiles of a.tiles, in a step of n_tokens tokens. */
Status attention_wgmma_tiles(const AttentionArgs &a, int n_tokens, int n_tiles, int n_sms,
                             cudaStream_t stream, Error *err);
/* attention_wgmma() for the units of a.units. PRECOND a.value_dims > 0. */
Status attention_wgmma_units(const AttentionArgs &a, int n_tokens, int n_units, int n_sms,
                             cudaStream_t stream, Error *err);
Status attention_plain(const AttentionArgs &a, KvType kv, int n_tokens, cudaStream_t stream, Error *err);
/* Unpacks the keys and values that the step's tokens see, from a cache in 8 bits to fp16, to the same rows of
 * k and v; with a.value_dims only keys. n_tiles: the number of a.tiles, or of a.units, whichever describes
 * the tokens; 0: the tokens are of one sequence, at consecutive positions. */
Status attention_unpack(const AttentionArgs &a, int n_tokens, int n_tiles, void *k, void *v,
                        cudaStream_t stream, Error *err);
