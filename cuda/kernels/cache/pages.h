/* pages.h - the KV cache in pages, which several sequences share. */
#pragma once

enum { KV_PAGE_TOKENS = 64 }; /* a multiple of the number of keys that decode and prefill load at once */

/* Position p of token t's sequence is in page table[first[t] + p / KV_PAGE_TOKENS]. */
typedef struct {
  const int *table; /* device; NULL: the cache is one page of n_ctx positions */
  const int *first; /* device: [n_tokens] */
  int n_pages;      /* pages in the cache */
} AttentionPages;
