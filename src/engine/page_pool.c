/* page_pool.c - see page_pool.h. */
#include "engine/page_pool.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash64.h"

enum { NONE = -1 };

typedef struct {
  uint64_t before; /* the hash of the salt and of all tokens before the page's */
  uint64_t salt;
  uint64_t number, parent_number; /* n_taken just after this page was taken, and just after its parent was */
  int parent;                     /* the page before it in the text; NONE: it is the first */
  int n_users;                    /* sequences */
  int n_added;                    /* its tokens, computed or in the next step */
  int n_computed;                 /* how many of its tokens have keys and values */
  int next_of_hash;               /* the next page of its bucket, or NONE */
  int newer, older;               /* in the list of unused pages that keep their tokens; NONE at its ends */
} Page;

struct PagePool {
  int n_pages, page_tokens;
  Page *pages;        /* [n_pages] */
  int32_t *ids;       /* [n_pages][page_tokens] */
  int *buckets;       /* [n_buckets] the first page of each, or NONE */
  uint64_t n_buckets; /* a power of two */
  int n_touched;      /* pages from this one on were never used */
  int n_used;
  uint64_t n_taken;   /* how often a page was taken, in all */
  int newest, oldest; /* ends of the list of unused pages that keep their tokens */
};

RELEASE_BY(pool_release, PagePool, page_pool_close)

Status page_pool_open(int n_pages, int page_tokens, PagePool **out, Error *err) {
  *out = NULL;
  OWNED(pool_release) PagePool *pool = NULL;
  TRY(NEW(pool, 1, "a pool of pages", err));
  *pool = (PagePool){
      .n_pages = n_pages, .page_tokens = page_tokens, .n_buckets = 1, .newest = NONE, .oldest = NONE};
  while (pool->n_buckets < (uint64_t)n_pages) pool->n_buckets *= 2;
  TRY(NEW(pool->pages, (size_t)n_pages, "a pool of pages", err));
  TRY(NEW(pool->ids, (size_t)n_pages * (size_t)page_tokens, "ids of pages", err));
  TRY(NEW(pool->buckets, pool->n_buckets, "a pool of pages", err));
  for (uint64_t i = 0; i < pool->n_buckets; i++) pool->buckets[i] = NONE;
  *out = TAKE(pool);
  return STATUS_OK;
}

void page_pool_close(PagePool *pool) {
  if (!pool) return;
  free(pool->pages);
  free(pool->ids);
  free(pool->buckets);
  free(pool);
}

size_t page_pool_bytes(int n_pages, int page_tokens) {
  const PagePool *pool = NULL;
  return sizeof *pool + (size_t)n_pages * (sizeof *pool->pages + (size_t)page_tokens * sizeof *pool->ids +
                                           2 * sizeof *pool->buckets);
}

int page_pool_used(const PagePool *pool) {
  return pool->n_used;
}

int page_pool_free(const PagePool *pool) {
  return pool->n_pages - pool->n_used;
}

static int32_t *ids_of(const PagePool *pool, int page) {
  return pool->ids + (size_t)page * (size_t)pool->page_tokens;
}

static uint64_t hash_of(const PagePool *pool, PagesBefore text) {
  if (text.n == 0) return hash64(&text.salt, sizeof text.salt, 0);
  const int last = text.pages[text.n - 1];
  return hash64(ids_of(pool, last), (size_t)pool->page_tokens * sizeof *pool->ids, pool->pages[last].before);
}

/* True if `text` holds the tokens before a page. False also if one of the page's parents was taken for other
 * tokens meanwhile. */
static bool is_after(const PagePool *pool, int page, PagesBefore text) {
  if (pool->pages[page].salt != text.salt) return false;
  for (int n = text.n;; n--) {
    const Page *p = &pool->pages[page];
    if (p->parent == NONE || n == 0) return p->parent == NONE && n == 0;
    if (pool->pages[p->parent].number != p->parent_number) return false;
    if (p->parent == text.pages[n - 1]) return true;
    page = p->parent;
    if (pool->pages[page].n_added != pool->page_tokens ||
        memcmp(ids_of(pool, page), ids_of(pool, text.pages[n - 1]),
               (size_t)pool->page_tokens * sizeof *pool->ids) != 0)
      return false;
  }
}

/* --- lists */

static int *bucket_of(const PagePool *pool, uint64_t before) {
  return &pool->buckets[before & (pool->n_buckets - 1)];
}

static void forget(PagePool *pool, int page) {
  int *link = bucket_of(pool, pool->pages[page].before);
  while (*link != page) link = &pool->pages[*link].next_of_hash;
  *link = pool->pages[page].next_of_hash;
}

static void leave_unused(PagePool *pool, int page) {
  const Page *p = &pool->pages[page];
  *(p->newer == NONE ? &pool->newest : &pool->pages[p->newer].older) = p->older;
  *(p->older == NONE ? &pool->oldest : &pool->pages[p->older].newer) = p->newer;
}

static void join_unused(PagePool *pool, int page) {
  Page *p = &pool->pages[page];
  p->newer = NONE;
  p->older = pool->newest;
  *(p->older == NONE ? &pool->oldest : &pool->pages[p->older].newer) = page;
  pool->newest = page;
}

/* --- use */

int page_pool_take(PagePool *pool, PagesBefore text) {
  const int parent = text.n > 0 ? text.pages[text.n - 1] : NONE;
  const uint64_t before = hash_of(pool, text);
  int page = pool->oldest;
  if (page != NONE) {
    leave_unused(pool, page);
    forget(pool, page);
  } else if (pool->n_touched < pool->n_pages) {
    page = pool->n_touched++;
  } else {
    return NONE;
  }
  int *bucket = bucket_of(pool, before);
  pool->pages[page] = (Page){.before = before,
                             .number = ++pool->n_taken,
                             .parent = parent,
                             .parent_number = parent == NONE ? 0 : pool->pages[parent].number,
                             .salt = text.salt,
                             .n_users = 1,
                             .next_of_hash = *bucket};
  *bucket = page;
  pool->n_used++;
  return page;
}

void page_pool_share(PagePool *pool, int page) {
  if (pool->pages[page].n_users++ > 0) return;
  leave_unused(pool, page);
  pool->n_used++;
}

void page_pool_release(PagePool *pool, int page) {
  Page *p = &pool->pages[page];
  if (--p->n_users > 0) return;
  p->n_added = p->n_computed; /* no step computes the other tokens any more */
  join_unused(pool, page);
  pool->n_used--;
}

void page_pool_add(PagePool *pool, int page, const int32_t *ids, int n) {
  Page *p = &pool->pages[page];
  memcpy(ids_of(pool, page) + p->n_added, ids, (size_t)n * sizeof *ids);
  p->n_added += n;
}

void page_pool_computed(PagePool *pool, int page) {
  pool->pages[page].n_computed = pool->pages[page].n_added;
}

PageMatch page_pool_find(const PagePool *pool, PagesBefore text, const int32_t *ids, int n) {
  const uint64_t before = hash_of(pool, text);
  PageMatch match = {.page = NONE};
  for (int page = *bucket_of(pool, before); page != NONE; page = pool->pages[page].next_of_hash) {
    const Page *p = &pool->pages[page];
    int same = 0;
    if (p->before != before || !is_after(pool, page, text)) continue;
    while (same < n && same < p->n_added && ids_of(pool, page)[same] == ids[same]) same++;
    if (same > match.n_coming) match.n_coming = same;
    if (same > p->n_computed) same = p->n_computed;
    if (same > match.n_tokens) match.page = page, match.n_tokens = same;
  }
  return match;
}
