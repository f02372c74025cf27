/* cache_rows.cuh - where the KV cache has a position: in one page, or in the pages of a sequence. Shared by
 * the kernels that read the cache, those that append to it (ops/, linear/), and the fused steps (fused/). */
#pragma once

#include "cuda/kernels/cache/pages.h"

/* Rows of one KV head, for one token's sequence. A row is head_dim numbers. */
struct CacheRows {
  const int *table; /* the sequence's pages; NULL: one page of n_ctx positions */
  int n_kv_heads, kv_head, n_ctx;

  __device__ __forceinline__ CacheRows(const int *table_, int n_kv_heads_, int kv_head_, int n_ctx_)
      : table(table_), n_kv_heads(n_kv_heads_), kv_head(kv_head_), n_ctx(n_ctx_) {}
  __device__ __forceinline__ CacheRows(const AttentionPages &pages, int token, int n_kv_heads_, int kv_head_,
                                       int n_ctx_)
      : CacheRows(pages.table ? pages.table + pages.first[token] : NULL, n_kv_heads_, kv_head_, n_ctx_) {}

  /* The index of a position's row. The rows of the following positions of its page come next. */
  __device__ __forceinline__ size_t at(int position) const {
    if (!table) return (size_t)kv_head * n_ctx + position;
    const size_t page = table[position / KV_PAGE_TOKENS];
    return (page * n_kv_heads + kv_head) * KV_PAGE_TOKENS + position % KV_PAGE_TOKENS;
  }
};
