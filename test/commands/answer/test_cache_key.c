/* test_cache_key.c - what makes kept keys and values those of another program, model or machine. */
#include <gnu/libc-version.h>

#include "commands/answer/cache.h"
#include "test/tests.h"

static const char *library = "2.36";

/* In place of the C library's. */
const char *gnu_get_libc_version(void) {
  return library;
}

typedef struct {
  ContentHash program, model;
  const char *backend, *arithmetic, *library;
  KvType kv;
} Parts;

static const Parts usual = {{1, 2}, {3, 4}, "cpu", "avx2", "2.36", KV_F16};

static void key_of(const Parts *parts, char out[CACHE_KEY]) {
  library = parts->library;
  cache_key(parts->program, parts->model, parts->backend, parts->arithmetic, parts->kv, out);
}

TEST(every_part_makes_another_key) {
  Parts others[] = {usual, usual, usual, usual, usual, usual, usual, usual};
  enum { N = sizeof others / sizeof *others };
  others[0].program.a++;
  others[1].program.b++;
  others[2].model.a++;
  others[3].model.b++;
  others[4].backend = "cuda";
  others[5].arithmetic = "avx512";
  others[6].library = "2.37";
  others[7].kv = KV_F32;
  char keys[N + 1][CACHE_KEY];
  key_of(&usual, keys[N]);
  for (int i = 0; i < N; i++) {
    key_of(&others[i], keys[i]);
    for (int k = 0; k < i; k++) assert_string_not_equal(keys[i], keys[k]);
    assert_string_not_equal(keys[i], keys[N]);
  }
  char again[CACHE_KEY];
  key_of(&usual, again);
  assert_string_equal(again, keys[N]);
}
