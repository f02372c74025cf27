/* test_sets.c - sets of code points, kinds, tables and hashes against plain implementations.
 *
 * A plain set is a byte for each code point. Sets are random ranges about the borders: 0, 255 and 256
 * (of blocks of kinds) and the last code point. */
#include "small.h"
#include "test/tests.h"
#include "tokenizer/hash.h"
#include "tokenizer/regex/charset.h"
#include "tokenizer/regex/kinds.h"

typedef struct {
  uint8_t has[UNICODE_END];
} PlainSet;

static uint32_t next_random(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

/* Near a border more often than not. */
static uint32_t random_code(uint32_t *random) {
  static const uint32_t near[] = {0, 250, 256, 512, 1020, UNICODE_END - 256, UNICODE_END - 12};
  return near[next_random(random) % 7] + next_random(random) % 12;
}

static void random_set(uint32_t *random, CharSet *set, PlainSet *plain) {
  *set = (CharSet){0};
  memset(plain, 0, sizeof *plain);
  for (uint32_t n = next_random(random) % 6; n > 0; n--) {
    uint32_t a = random_code(random), b = random_code(random);
    uint32_t first = a < b ? a : b, last = n % 2 ? first + (first < UNICODE_END - 1) : a < b ? b : a;
    assert_int_equal(charset_add(set, first, last, NULL), STATUS_OK);
    for (uint32_t code = first; code <= last; code++) plain->has[code] = 1;
  }
}

static void assert_set(const CharSet *set, const PlainSet *plain, const char *what) {
  size_t at = 0;
  for (uint32_t code = 0; code < UNICODE_END; code++) {
    while (at < set->count && set->ranges[at].last < code) at++;
    bool has = at < set->count && set->ranges[at].first <= code;
    if (has != plain->has[code]) fail_msg("%s: U+%04X is %d", what, (unsigned)code, has);
  }
  for (size_t i = 1; i < set->count; i++)
    if (set->ranges[i].first <= set->ranges[i - 1].last + 1) fail_msg("%s: not tidy", what);
  for (size_t i = 0; i < set->count; i++)
    for (uint32_t k = 0; k < 3; k++) {
      uint32_t code = k == 2 ? set->ranges[i].last : set->ranges[i].first - (k && set->ranges[i].first);
      assert_int_equal(charset_contains(set, code), plain->has[code]);
      if (code + 1 < UNICODE_END) assert_int_equal(charset_contains(set, code + 1), plain->has[code + 1]);
    }
}

TEST(sets_do_what_plain_sets_do) {
  static PlainSet first, second;
  uint32_t random = 3;
  for (int round = 0; round < 16; round++) {
    CharSet a, b, c = {0};
    random_set(&random, &a, &first);
    random_set(&random, &b, &second);
    charset_tidy(&a);
    assert_set(&a, &first, "tidy");
    charset_tidy(&b);
    assert_int_equal(charset_equal(&a, &b), memcmp(&first, &second, sizeof first) == 0);
    assert_int_equal(charset_unite(&c, &a, NULL), STATUS_OK);
    assert_true(charset_equal(&a, &c));
    assert_int_equal(charset_intersect(&c, &b, NULL), STATUS_OK);
    for (uint32_t i = 0; i < UNICODE_END; i++) second.has[i] &= first.has[i];
    assert_set(&c, &second, "intersection");
    assert_int_equal(charset_complement(&c, NULL), STATUS_OK);
    for (uint32_t i = 0; i < UNICODE_END; i++) second.has[i] ^= 1;
    assert_set(&c, &second, "complement");
    assert_int_equal(charset_unite(&c, &a, NULL), STATUS_OK);
    charset_tidy(&c);
    for (uint32_t i = 0; i < UNICODE_END; i++) second.has[i] |= first.has[i];
    assert_set(&c, &second, "union");
    charset_release(&a);
    charset_release(&b);
    charset_release(&c);
  }
}

/* Sets that differ in one end only are not the same. */
TEST(equal_sets_have_equal_ranges) {
  CharSet a = {0}, b = {0};
  assert_true(charset_equal(&a, &b));
  assert_int_equal(charset_add(&a, 5, 9, NULL), STATUS_OK);
  assert_false(charset_equal(&a, &b));
  assert_int_equal(charset_add(&b, 5, 8, NULL), STATUS_OK);
  assert_false(charset_equal(&a, &b));
  assert_int_equal(charset_add(&b, 9, 9, NULL), STATUS_OK);
  charset_tidy(&b);
  assert_true(charset_equal(&a, &b));
  charset_release(&a);
  charset_release(&b);
}

/* The representative of each code point if case is ignored, by a linear search of all series. */
static void fold_plainly(const CaseTable *table, uint32_t *mapped) {
  for (uint32_t code = 0; code < UNICODE_END; code++) mapped[code] = code;
  for (size_t i = 0; i < table->count; i++) {
    const CaseSeries *s = &table->series[i];
    for (uint32_t code = s->first; code <= s->last; code += (uint32_t)s->stride)
      mapped[code] = (uint32_t)((int32_t)code + s->delta);
  }
}

static uint32_t mapped[UNICODE_END];

TEST(every_code_point_is_found_in_the_tables) {
  const CaseTable *const cases[] = {&unicode_lower, &unicode_fold};
  const RunTable *const runs[] = {&unicode_categories, &unicode_scripts, &unicode_flags, &unicode_normal};
  for (size_t t = 0; t < 2; t++) {
    fold_plainly(cases[t], mapped);
    for (uint32_t code = 0; code < UNICODE_END; code++)
      if (unicode_case(cases[t], code) != mapped[code]) fail_msg("case of U+%04X", (unsigned)code);
  }
  for (size_t t = 0; t < 4; t++) {
    size_t at = 0;
    for (uint32_t code = 0; code < UNICODE_END; code++) {
      while (at + 1 < runs[t]->count && runs[t]->runs[at + 1] >> 11 <= code) at++;
      if (unicode_value(runs[t], code) != (runs[t]->runs[at] & 2047)) fail_msg("U+%04X", (unsigned)code);
    }
  }
  assert_int_equal(unicode_case(&unicode_lower, 'Z'), 'z');
  assert_int_equal(unicode_case(&unicode_fold, 0x212a), unicode_case(&unicode_fold, 'K')); /* KELVIN SIGN */
}

/* The sets of flags and values, by asking for each code point. */
static void assert_table_set(const RunTable *table, uint32_t mask, uint32_t value) {
  static PlainSet plain;
  CharSet set = {0};
  for (uint32_t code = 0; code < UNICODE_END; code++) {
    uint32_t found = unicode_value(table, code);
    plain.has[code] = mask ? (found & mask) != 0 : found == value;
  }
  Status status =
      mask ? charset_add_flags(&set, table, mask, NULL) : charset_add_value(&set, table, value, NULL);
  assert_int_equal(status, STATUS_OK);
  assert_set(&set, &plain, "table");
  charset_release(&set);
}

TEST(sets_of_tables_hold_what_the_tables_say) {
  assert_table_set(&unicode_flags, CHAR_SPACE, 0);
  assert_table_set(&unicode_flags, CHAR_WORD | CHAR_PUNCTUATION, 0);
  assert_table_set(&unicode_categories, 0, 0);
  for (uint32_t i = 0; unicode_category_names[i]; i++)
    if (strcmp(unicode_category_names[i], "Co") == 0) assert_table_set(&unicode_categories, 0, i);
}

TEST(case_is_folded_in_both_directions) {
  static PlainSet plain, folded;
  static const uint32_t members[] = {'a', 'K', 0x17f, 0x3c2, 0x1c6, 0xb5, 0x10400, '1', 0x1e9e, 0x2126};
  fold_plainly(&unicode_fold, mapped);
  for (uint32_t round = 0; round < 1u << 10; round += 31) {
    CharSet set = {0};
    memset(&plain, 0, sizeof plain);
    memset(&folded, 0, sizeof folded);
    for (size_t i = 0; i < 10; i++) {
      if (!(round >> i & 1)) continue;
      assert_int_equal(charset_add(&set, members[i], members[i], NULL), STATUS_OK);
      plain.has[members[i]] = 1;
    }
    static uint8_t wanted[UNICODE_END]; /* representatives */
    memset(wanted, 0, sizeof wanted);
    for (uint32_t code = 0; code < UNICODE_END; code++)
      if (plain.has[code]) wanted[mapped[code]] = 1;
    for (uint32_t code = 0; code < UNICODE_END; code++) folded.has[code] = wanted[mapped[code]];
    assert_int_equal(charset_fold(&set, NULL), STATUS_OK);
    assert_set(&set, &folded, "fold");
    charset_release(&set);
  }
}

/* --- kinds */

/* The kind of every code point is in the sets that contain the code point. */
TEST(kinds_tell_sets_apart) {
  enum { MOST = 17 };
  static PlainSet plain[MOST];
  static KindSet members[MOST];
  uint32_t random = 11;
  for (int round = 0; round < 6; round++) {
    CharSet sets[MOST];
    size_t n = round == 0 ? 0 : round == 1 ? MOST : 1 + next_random(&random) % 9;
    for (size_t i = 0; i < n; i++) {
      random_set(&random, &sets[i], &plain[i]);
      charset_tidy(&sets[i]);
    }
    KindMap map;
    assert_int_equal(kind_map_build("test", sets, n, &map, members, NULL), STATUS_OK);
    for (uint32_t code = 0; code < UNICODE_END; code++) {
      uint8_t kind = kind_of(&map, code);
      assert_true(kind < map.n_kinds);
      for (size_t i = 0; i < n; i++)
        if (members[i].has[kind] != plain[i].has[code])
          fail_msg("round %d: U+%04X in set %zu", round, (unsigned)code, i);
    }
    for (size_t i = 0; i < n; i++) {
      for (int k = map.n_kinds; k < MAX_KINDS; k++) assert_false(members[i].has[k]);
      charset_release(&sets[i]);
    }
    kind_map_release(&map);
  }
}

/* With n sets of one character each there are n + 1 kinds. */
TEST(so_many_kinds_and_no_more) {
  static CharSet sets[MAX_KINDS];
  static KindSet members[MAX_KINDS];
  for (uint32_t i = 0; i < MAX_KINDS; i++)
    assert_int_equal(charset_add(&sets[i], 1000 + i, 1000 + i, NULL), STATUS_OK);
  KindMap map;
  Error err = {{0}};
  assert_int_equal(kind_map_build("test", sets, MAX_KINDS - 1, &map, members, &err), STATUS_OK);
  assert_int_equal(map.n_kinds, MAX_KINDS);
  for (uint32_t i = 0; i < MAX_KINDS - 1; i++) assert_true(members[i].has[kind_of(&map, 1000 + i)]);
  kind_map_release(&map);
  assert_int_equal(kind_map_build("test", sets, MAX_KINDS, &map, members, &err), STATUS_MODEL);
  assert_string_equal(err.text, "test: tells more than 256 kinds of characters apart");
  kind_map_release(&map);
  for (uint32_t i = 0; i < MAX_KINDS; i++) charset_release(&sets[i]);
}

TEST(a_text_has_the_kinds_of_its_characters) {
  CharSet set = {0};
  KindSet members[1];
  KindMap map;
  uint8_t kinds[8];
  assert_int_equal(charset_add(&set, 0x7f, 0x80, NULL), STATUS_OK);
  assert_int_equal(charset_add(&set, 0x7ff, 0x7ff, NULL), STATUS_OK);
  assert_int_equal(charset_add(&set, 0x10ffff, 0x10ffff, NULL), STATUS_OK);
  assert_int_equal(kind_map_build("test", &set, 1, &map, members, NULL), STATUS_OK);
  static const char text[] = "a\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xf4\x8f\xbf\xbf\xf0\x90\x80\x80";
  static const bool expected[] = {false, true, true, true, false, true, false};
  assert_int_equal(kinds_of_text(&map, text, sizeof text - 1, kinds), 7);
  for (size_t i = 0; i < 7; i++) assert_int_equal(members[0].has[kinds[i]], expected[i]);
  assert_int_equal(kinds_of_text(&map, text, 0, kinds), 0);
  kind_map_release(&map);
  charset_release(&set);
}

/* --- hashes */

/* Equal bytes have equal hashes wherever they lie and whatever lies beside them; each byte counts. */
TEST(hashes_are_of_all_bytes_and_no_more) {
  uint64_t seed = hash_seed();
  assert_true(seed & 1);
  for (size_t size = 0; size <= 40; size++) {
    char one[64], two[64];
    memset(one, 'x', sizeof one);
    memset(two, 'y', sizeof two);
    for (size_t i = 0; i < size; i++) one[3 + i] = two[8 + i] = (char)(i * 37 + 5);
    uint64_t hash = hash_bytes(seed, one + 3, size);
    assert_true(hash == hash_bytes(seed, two + 8, size));
    assert_true(hash != hash_bytes(seed + 2, one + 3, size));
    assert_true(hash != hash_bytes(seed, one + 3, size + 1));
    for (size_t i = 0; i < size; i++) {
      two[8 + i] ^= 64;
      if (hash == hash_bytes(seed, two + 8, size)) fail_msg("byte %zu of %zu does not count", i, size);
      two[8 + i] ^= 64;
    }
  }
}
