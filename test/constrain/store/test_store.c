/* test_store.c - what all stores of the room are made of: failures, limits on work, and tables that grow. */
#include "constrain/store/failure.h"
#include "constrain/store/key_table.h"
#include "test/tests.h"

/* --- failures */

static void assert_failed(const Failure *failure, Status status, const char *message) {
  Error err = {{0}};
  assert_true(has_failed(failure));
  assert_int_equal(failure_check(failure, &err), status);
  assert_string_equal(err.text, message);
}

TEST(the_first_failure_stays) {
  Failure failure = {.work = 0};
  Error err;
  void *items = NULL;
  size_t capacity = 0;
  assert_int_equal(failure_check(&failure, &err), STATUS_OK);
  failure_set(&failure, STATUS_USAGE, "the first");
  failure_set(&failure, STATUS_FAILED, "the second");
  assert_false(failure_grow(&failure, &items, &capacity, SIZE_MAX / 2, 8));
  assert_failed(&failure, STATUS_USAGE, "the first");
  failure_begin_work(&failure); /* begins the work anew, not the store */
  assert_false(failure_work(&failure, 1));
  assert_failed(&failure, STATUS_USAGE, "the first");
  assert_false(failure.too_hard);
  assert_null(items);
}

TEST(room_that_is_not_there_is_a_failure) {
  Failure failure = {.work = 0};
  uint32_t *items = NULL;
  size_t capacity = 0;
  assert_true(failure_grow(&failure, &items, &capacity, 100, sizeof *items));
  assert_true(capacity >= 100 && !has_failed(&failure));
  assert_false(failure_grow(&failure, &items, &capacity, SIZE_MAX / 2, sizeof *items));
  assert_int_equal(failure_check(&failure, NULL), STATUS_FAILED);
  assert_false(failure.too_hard);
  free(items);
}

/* Work adds up to the limit, whether in small units or in one large one; each beginning gives all of it. */
TEST(work_ends_at_its_limit) {
  static const uint64_t units[] = {1 << 10, (1 << 18) - 1, 1 << 18, MAX_WORK};
  for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
    Failure failure = {.work = 0};
    for (int turn = 0; turn < 2; turn++) {
      failure_begin_work(&failure);
      for (uint64_t done = units[i]; done <= MAX_WORK; done += units[i])
        assert_true(failure_work(&failure, units[i]));
    }
    uint64_t more = 0;
    for (; failure_work(&failure, units[i]); more += units[i]) assert_true(more <= 1 << 18);
    assert_true(failure.too_hard);
    assert_int_equal(failure_check(&failure, NULL), STATUS_USAGE);
    assert_false(failure_work(&failure, 0));
  }
}

/* The flag is looked at soon after it is set, by every store, and ends nothing while it is 0. */
TEST(an_interruption_is_a_failure) {
  volatile int interrupted = 0;
  Failure failure = {.work = 0}, other = {.work = 0}, failed = {.work = 0};
  failure_set(&failed, STATUS_USAGE, "too hard");
  failure_heed(&interrupted);
  failure_begin_work(&failure);
  for (int i = 0; i < 1000; i++) assert_true(failure_work(&failure, 1000));
  interrupted = 1;
  int more = 0;
  for (; failure_work(&failure, 1000); more++) assert_true(more < 1000);
  assert_failed(&failure, STATUS_INTERRUPTED, "interrupted");
  assert_false(failure_work(&failed, 1));
  assert_failed(&failed, STATUS_USAGE, "too hard");
  failure_heed(NULL);
  assert_true(failure_work(&other, MAX_WORK));
}

/* --- tables */

enum { KEYS = 5000 };

/* Keys of one slot in small tables, and neighbours. */
static uint64_t key_of(uint64_t i) {
  return i % 2 ? i << 32 | 1 : i + 2;
}

TEST(keys_are_found_however_many_there_are) {
  KeyTable table = {.count = 0};
  assert_null(key_table_find(&table, 1));
  for (uint32_t i = 0; i < KEYS; i++) {
    assert_null(key_table_find(&table, key_of(i)));
    assert_true(key_table_add(&table, (KeyEntry){key_of(i), {.number = i}}));
    assert_int_equal(table.count, i + 1);
    assert_true(2 * table.count <= table.n_slots);
  }
  for (uint32_t i = 0; i < KEYS; i++) {
    const KeyEntry *entry = key_table_find(&table, key_of(i));
    assert_true(entry && entry->key == key_of(i) && entry->value.number == i);
  }
  assert_null(key_table_find(&table, key_of(KEYS)));
  key_table_release(&table);
  assert_null(key_table_find(&table, key_of(1)));
}

/* Three numbers of each hash; the first hash is 0. */
static uint64_t hash_of(uint32_t number) {
  return (uint64_t)(number / 3) << 32;
}

TEST(numbers_are_found_by_their_hashes) {
  KeyTable table = {.count = 0};
  for (int turn = 0; turn < 2; turn++) {
    for (uint32_t i = 0; i < KEYS; i++)
      assert_true(key_table_add(&table, (KeyEntry){hash_of(i), {.number = i}}));
    for (uint32_t i = 0; i < KEYS + 300; i += 3) {
      unsigned seen = 0;
      for (const KeyEntry *e = key_table_find(&table, hash_of(i)); e; e = key_table_next(&table, e)) {
        const uint32_t number = e->value.number;
        assert_true(number / 3 == i / 3 && !(seen >> number % 3 & 1));
        seen |= 1u << number % 3;
      }
      for (uint32_t k = 0; k < 3; k++) assert_int_equal(seen >> k & 1, i + k < KEYS);
    }
    key_table_reset(&table);
    assert_int_equal(table.count, 0);
    assert_null(key_table_find(&table, hash_of(0)));
  }
  key_table_release(&table);
  assert_null(key_table_find(&table, hash_of(0)));
}

TEST(items_are_appended_with_the_entries_that_find_them) {
  KeyTable table = {.count = 0};
  Failure failure = {.work = 0};
  uint64_t *items = NULL;
  size_t count = 0, capacity = 0;
  for (uint64_t i = 0; i < KEYS; i++)
    assert_int_equal(key_table_append(&table, i / 2, &items, &count, &capacity, &i, sizeof i, &failure), i);
  assert_int_equal(count, KEYS);
  for (uint64_t i = 0; i < KEYS; i++) {
    const KeyEntry *e = key_table_find(&table, i / 2);
    while (e && items[e->value.number] != i) e = key_table_next(&table, e);
    assert_true(e && e->value.number == i);
  }
  free(items);
  key_table_release(&table);
}
