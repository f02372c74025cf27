/* test_page_pool.c - pages found by their tokens: those whose texts before them differ are kept apart, also
 * where hash64 does not. */
#include "base/hash64.h"
#include "engine/page_pool.h"
#include "test/tests.h"

enum { TOKENS = 16, PAGES = 8 };

static const int32_t next[TOKENS] = {7, 8, 9};

static const PagesBefore start = {0};

static PagePool *open_pool(void) {
  PagePool *pool;
  Error err;
  assert_int_equal(page_pool_open(PAGES, TOKENS, &pool, &err), STATUS_OK);
  return pool;
}

/* A page that holds ids[TOKENS], all computed. */
static int page_of(PagePool *pool, PagesBefore text, const int32_t *ids) {
  const int page = page_pool_take(pool, text);
  assert_true(page >= 0);
  page_pool_add(pool, page, ids, TOKENS);
  page_pool_computed(pool, page);
  return page;
}

static int n_found(const PagePool *pool, PagesBefore text) {
  return page_pool_find(pool, text, next, TOKENS).n_tokens;
}

/* The first of hash64's sums takes words 0 and 4 of a page: s1 = (s0 + word 0 * P2) <<< 31 * P1, then word 4
 * alike. The highest bit of word 0 changes s1 by +-2^30 * P1, which another word 4 makes good. The sign
 * depends on all tokens before: one of both texts has the same hash. */
static void make_collision(int32_t *ids, bool negative) {
  static const uint64_t P1 = 0x9E3779B185EBCA87, P2 = 0xC2B2AE3D27D4EB4F;
  uint64_t words[TOKENS / 2], inverse = P2;
  for (int i = 0; i < 6; i++) inverse *= 2 - P2 * inverse; /* modulo 2^64, by Newton's method */
  assert_true(inverse * P2 == 1);
  memcpy(words, ids, sizeof words);
  words[0] ^= 1ull << 63;
  words[4] -= (negative ? 0 - (1ull << 30) : 1ull << 30) * P1 * inverse;
  memcpy(ids, words, sizeof words);
}

TEST(texts_with_the_same_hash_are_kept_apart) {
  static const int32_t text[TOKENS] = {1, 2, 3, 4, 5};
  const uint64_t salt = 0, root = hash64(&salt, sizeof salt, 0);
  int n_same = 0;
  for (int negative = 0; negative < 2; negative++) {
    int32_t other[TOKENS];
    memcpy(other, text, sizeof text);
    make_collision(other, negative);
    n_same += hash64(text, sizeof text, root) == hash64(other, sizeof other, root);
    PagePool *pool = open_pool();
    const int32_t first = page_of(pool, start, text), second = page_of(pool, start, other);
    page_of(pool, (PagesBefore){&first, 1, 0}, next);
    assert_int_equal(n_found(pool, (PagesBefore){&first, 1, 0}), TOKENS);
    assert_int_equal(n_found(pool, (PagesBefore){&second, 1, 0}), 0);
    /* also where the other text has got the parent's page */
    page_pool_release(pool, first);
    assert_int_equal(page_of(pool, start, other), first);
    assert_int_equal(n_found(pool, (PagesBefore){&first, 1, 0}), 0);
    page_pool_close(pool);
  }
  assert_int_equal(n_same, 1);
}

/* Two sequences that computed the same text at the same time have pages of their own. */
TEST(pages_of_the_same_text_are_the_same) {
  static const int32_t texts[2][TOKENS] = {{1}, {2}};
  int32_t pages[2][2];
  PagePool *pool = open_pool();
  for (int i = 0; i < 2; i++) {
    pages[i][0] = page_of(pool, start, texts[0]);
    pages[i][1] = page_of(pool, (PagesBefore){pages[i], 1, 0}, texts[1]);
  }
  page_of(pool, (PagesBefore){pages[0], 2, 0}, next);
  for (int i = 0; i < 2; i++) assert_int_equal(n_found(pool, (PagesBefore){pages[i], 2, 0}), TOKENS);
  assert_int_equal(n_found(pool, start), 0);
  page_of(pool, start, next);
  assert_int_equal(n_found(pool, start), TOKENS);
  assert_int_equal(n_found(pool, (PagesBefore){NULL, 0, 1}), 0);
  page_pool_close(pool);
}

/* A page whose parent was needed for other tokens is not found any more. */
TEST(a_page_without_its_parent_is_forgotten) {
  static const int32_t texts[2][TOKENS] = {{1}, {2}};
  PagePool *pool = open_pool();
  const int32_t gone = page_of(pool, start, texts[0]), kept = page_of(pool, start, texts[0]);
  page_of(pool, (PagesBefore){&gone, 1, 0}, next);
  assert_int_equal(n_found(pool, (PagesBefore){&kept, 1, 0}), TOKENS);
  page_pool_release(pool, gone); /* and it is known as long as it is not needed */
  assert_int_equal(n_found(pool, (PagesBefore){&kept, 1, 0}), TOKENS);
  assert_int_equal(page_of(pool, start, texts[1]), gone);
  assert_int_equal(n_found(pool, (PagesBefore){&kept, 1, 0}), 0);
  page_pool_close(pool);
}

/* Tokens that a step is about to compute are coming, but not any more once no sequence uses their page. */
TEST(what_no_sequence_computes_is_not_coming) {
  PagePool *pool = open_pool();
  const int page = page_pool_take(pool, start);
  page_pool_add(pool, page, next, 3);
  page_pool_computed(pool, page);
  page_pool_add(pool, page, next + 3, 4);
  page_pool_share(pool, page);
  for (int users = 2; users >= 0; users--) {
    const PageMatch match = page_pool_find(pool, start, next, TOKENS);
    assert_true(match.page == page && match.n_tokens == 3 && match.n_coming == (users ? 7 : 3));
    assert_int_equal(page_pool_used(pool), users > 0);
    if (users > 0) page_pool_release(pool, page);
  }
  page_pool_close(pool);
}

/* The longest unused page goes first, and pages that were never used go last. */
TEST(pages_are_taken_in_the_order_of_their_use) {
  int32_t text[TOKENS] = {0};
  int pages[3];
  PagePool *pool = open_pool();
  for (int i = 0; i < 3; i++) text[0] = i, pages[i] = page_of(pool, start, text);
  for (int i = 2; i >= 0; i--) page_pool_release(pool, pages[i]);
  page_pool_share(pool, pages[2]); /* it is used again, and later than the others */
  page_pool_release(pool, pages[2]);
  assert_int_equal(page_pool_free(pool), PAGES);
  static const int order[] = {1, 0, 2};
  for (int i = 0; i < 3; i++) assert_int_equal(page_pool_take(pool, start), pages[order[i]]);
  for (int i = 3; i < PAGES; i++) assert_int_equal(page_pool_take(pool, start), i);
  assert_int_equal(page_pool_take(pool, start), -1);
  assert_int_equal(page_pool_free(pool), 0);
  page_pool_close(pool);
}
