/* page_pool.h - which pages of a KV cache hold which tokens: who uses them, and pages found by their tokens.
 *
 * A page belongs to the tokens in it and to all tokens before them: those of its parent (the page before it),
 * of the parent's parent, and so on. A page that no sequence uses any more stays known until it is taken for
 * other tokens; the page that was unused longest is taken first. Pages that were never used are taken last,
 * so that a cache touches no more memory than its sequences once needed at the same time.
 *
 *   page 3: [32 tokens]     ->   page 8: [32 tokens]   ->  page 1: [5 tokens]    one sequence
 *                           ->   page 6: [20 tokens]                             another, also with page 3
 *
 * A page is found by a hash of all tokens before its own. Other tokens with the same hash can be constructed.
 * So the parents' tokens are compared as well, unless the parents are the same pages.
 *
 * Host only.
 * Always true: each page is in use (by one sequence or more), known but unused, or empty; nothing allocates
 *              after page_pool_open(). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct PagePool PagePool;

Status page_pool_open(int n_pages, int page_tokens, PagePool **pool, Error *err);
void page_pool_close(PagePool *pool);
size_t page_pool_bytes(int n_pages, int page_tokens); /* the most memory that such a pool takes */

int page_pool_used(const PagePool *pool); /* pages that sequences use */
int page_pool_free(const PagePool *pool); /* all other pages */

/* The pages of a text before another page. */
typedef struct {
  const int32_t *pages; /* [n] full, and in use */
  int n;
  uint64_t salt; /* keeps apart keys that are computed differently (LongRoPE) */
} PagesBefore;

/* Returns an empty page with one user, for the tokens after `text`; -1 if all pages are in use. */
int page_pool_take(PagePool *pool, PagesBefore text);
/* Notes that one more sequence uses the page, or one less. */
void page_pool_share(PagePool *pool, int page);
void page_pool_release(PagePool *pool, int page);

/* ids[0..n) are the page's next tokens, which the next step computes. PRECOND they fit, and one sequence uses
 * the page */
void page_pool_add(PagePool *pool, int page, const int32_t *ids, int n);
/* Notes that all tokens that were added are computed. */
void page_pool_computed(PagePool *pool, int page);

typedef struct {
  int page;     /* -1: no page has computed tokens that agree */
  int n_tokens; /* how many of the page's first tokens agree and are computed */
  int n_coming; /* the most tokens that agree in any page, tokens that this step computes included */
} PageMatch;

/* The page after `text` whose computed tokens agree longest with ids[0..n). */
PageMatch page_pool_find(const PagePool *pool, PagesBefore text, const int32_t *ids, int n);
