/* test_map_settings.c - the lines that say with which settings results were made: short and one line each
 * whatever the settings hold, while their hashes cover all of it. */
#include "base/hash64.h"
#include "commands/map/map_settings.h"
#include "test/tests.h"

#define TEN   "0123456789"
#define FIFTY TEN TEN TEN TEN TEN

TEST(a_line_is_short_and_its_hash_is_of_all) {
  static const struct {
    const char *value, *what, *shown;
  } cases[] = {
      {"", NULL, ""},
      {"a", NULL, "a"},
      {"a", "b", "b"},
      {"a", "", ""},
      {FIFTY "012345678", NULL, FIFTY "012345678"},
      {FIFTY TEN, NULL, FIFTY TEN},
      {FIFTY TEN "x", NULL, FIFTY TEN "..."},
      {FIFTY "012345678\xc3\xa4", NULL, FIFTY "012345678..."}, /* not within a character */
      {FIFTY "01234567\xc3\xa4", NULL, FIFTY "01234567\xc3\xa4"},
      {FIFTY "01234567\xc3\xa4x", NULL, FIFTY "01234567\xc3\xa4..."},
      {FIFTY "012345678\xf0\x9f\x99\x82", NULL, FIFTY "012345678..."},
      {"a\nb\tc\x1f \x7f\xc3\xa4", NULL, "a.b.c. .\xc3\xa4"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    MapSettings settings = {0};
    char want[200];
    const char *value = cases[i].value;
    assert_int_equal(map_settings_add(&settings, "-x", value, strlen(value), cases[i].what, NULL), STATUS_OK);
    snprintf(want, sizeof want, "%016llx -x %s\n", (unsigned long long)hash64(value, strlen(value), 0),
             cases[i].shown);
    assert_int_equal(settings.lines.size, strlen(want));
    assert_memory_equal(settings.lines.data, want, strlen(want));
    map_settings_release(&settings);
  }
}

static void add(MapSettings *settings, const char *name, const char *value) {
  assert_int_equal(map_settings_add(settings, name, value, strlen(value), NULL, NULL), STATUS_OK);
}

/* The settings as JSON results have them: every value and name counts, and their order; -c alone does not. */
TEST(the_hash_of_all_tells_settings_apart) {
  static const char *const sets[][6] = {
      {"-n", "1", "-s", "2", "-c", "9"}, {"-n", "2", "-s", "2", "-c", "9"}, {"-n", "1", "-s", "1", "-c", "9"},
      {"-n", "2", "-s", "1", "-c", "9"}, {"-m", "1", "-s", "2", "-c", "9"}, {"-s", "2", "-n", "1", "-c", "9"},
      {"-n", "1", "-s", "2", "-d", "9"}, {"-n", "1", "-s", "2", "-c", "8"}, {"-c", "9", "-n", "1", "-s", "2"},
  };
  enum { COUNT = sizeof sets / sizeof *sets, N_APART = COUNT - 2 };
  uint64_t hashes[COUNT];
  for (size_t i = 0; i < COUNT; i++) {
    MapSettings settings = {0};
    for (size_t k = 0; k < 6; k += 2) add(&settings, sets[i][k], sets[i][k + 1]);
    hashes[i] = settings.hash;
    map_settings_release(&settings);
    for (size_t k = 0; k < i && i < N_APART; k++) assert_true(hashes[i] != hashes[k]);
    if (i >= N_APART) assert_true(hashes[i] == hashes[0]);
  }
}

/* A file that another version has written, or that was cut. */
TEST(lines_that_are_missing_or_none_are_refused_by_name) {
#define HASH "0123456789abcdef"
  static const struct {
    const char *lines, *error;
  } cases[] = {
      {"", "out: nothing says which -n its results were made with"},
      {HASH " -n 1", "out: nothing says which -n its results were made with"},
      {HASH "  \n", "out: nothing says which -n its results were made with"},
      {HASH "-n 1\n", "out: nothing says which -n its results were made with"},
      {"0123456789abcde -n 1\n", "out: nothing says which -n its results were made with"},
      {HASH " -n\n", "out: nothing says which -n its results were made with"},
      {HASH " -nn 1\n", "out: nothing says which -n its results were made with"},
      {HASH " - 1\n", "out: nothing says which -n its results were made with"},
      {HASH " -n 2\n", "out: its results were made with -n 2, now it is 1"},
      {HASH " -n \n", "out: its results were made with -n , now it is 1"},
      {HASH " -n 1\n", "out: its results were made with another -n than this one (1)"},
  };
  MapSettings settings = {0};
  add(&settings, "-n", "1");
  add(&settings, "-s", "2");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Error err = {{0}};
    const char *lines = cases[i].lines;
    assert_int_equal(
        map_settings_compare(&settings, lines, strlen(lines), CONTEXT_MAY_DIFFER, "out", NULL, &err),
        STATUS_USAGE);
    assert_string_equal(err.text, cases[i].error);
  }
  const Buffer *all = &settings.lines;
  Error err = {{0}};
  size_t first = (size_t)((char *)memchr(all->data, '\n', all->size) + 1 - all->data);
  assert_int_equal(map_settings_compare(&settings, all->data, all->size, 0, "out", NULL, NULL), STATUS_OK);
  assert_int_equal(map_settings_compare(&settings, all->data, first, 0, "out", NULL, &err), STATUS_USAGE);
  assert_string_equal(err.text, "out: nothing says which -s its results were made with");
  map_settings_release(&settings);
}

/* A setting that only one of two runs was given: it is named, wherever it stands before another. */
TEST(settings_that_one_run_has_are_named) {
  static const char *const names[] = {"-n", "--n-best", "--act", "-c"};
  enum { N = sizeof names / sizeof *names };
  for (int more = 0; more < N - 1; more++)
    for (int turn = 0; turn < 4; turn++) {
      MapSettings some = {0}, all = {0};
      const char *other = turn & 1 ? "a" : NULL;
      char want[100];
      Error err = {{0}};
      for (int i = 0; i < N; i++) {
        if (i != more) add(&some, names[i], "1");
        add(&all, names[i], "1");
      }
      const bool had_more = turn & 2;
      const MapSettings *was = had_more ? &all : &some, *is = had_more ? &some : &all;
      assert_int_equal(map_settings_compare(is, was->lines.data, was->lines.size, 0, "out", other, &err),
                       STATUS_USAGE);
      const char *ends[][2] = {{"now it is 1", "those of a with 1"},
                               {"now it is not given", "those of a without"}};
      snprintf(want, sizeof want, "out: its results were made with%s %s%s, %s", had_more ? "" : "out",
               names[more], had_more ? " 1" : "", ends[had_more][other != NULL]);
      assert_string_equal(err.text, want);
      map_settings_release(&some);
      map_settings_release(&all);
    }
}

/* With `invariant` between two other settings, as a run has it that computes so. */
static MapSettings settings_of(bool invariant) {
  MapSettings settings = {0};
  add(&settings, "--kv", "f16");
  if (invariant) add(&settings, "--invariant", "on");
  add(&settings, "-c", "not given");
  return settings;
}

TEST(results_with_and_without_invariant_are_not_mixed) {
  static const struct {
    bool was, is;
    const char *other, *error; /* NULL: taken */
  } cases[] = {
      {false, false, NULL, NULL},
      {true, true, NULL, NULL},
      {false, true, NULL,
       "out: its results were made without --invariant, now it is on: give --no-invariant to go on"},
      {true, false, NULL,
       "out: its results were made with --invariant, now it is off: give --invariant to go on"},
      {false, true, "a", "out: its results were made without --invariant, those of a with it"},
      {true, false, "a", "out: its results were made with --invariant, those of a without it"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    MapSettings was = settings_of(cases[i].was), is = settings_of(cases[i].is);
    Error err = {{0}};
    const Status status = map_settings_compare(&is, was.lines.data, was.lines.size, CONTEXT_MAY_DIFFER, "out",
                                               cases[i].other, &err);
    assert_int_equal(status, cases[i].error ? STATUS_USAGE : STATUS_OK);
    if (status) assert_string_equal(err.text, cases[i].error);
    assert_int_equal(was.hash == is.hash, cases[i].was == cases[i].is); /* each JSON result says it, too */
    map_settings_release(&was);
    map_settings_release(&is);
  }
}

/* -c, the shard and the seal: each may differ only where it is said. */
TEST(only_what_may_differ_may) {
  static const struct {
    const char *name;
    int tolerance; /* with which it may differ, alone */
  } lines[] = {{"-c", CONTEXT_MAY_DIFFER}, {"shard", SHARD_MAY_DIFFER}, {"-n", 0}};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
    for (int tolerance = 0; tolerance <= (CONTEXT_MAY_DIFFER | SHARD_MAY_DIFFER); tolerance++) {
      MapSettings was = {0}, is = {0};
      add(&was, lines[i].name, "1");
      add(&is, lines[i].name, "2");
      assert_int_equal(map_settings_seal(&was, NULL) || map_settings_seal(&is, NULL), STATUS_OK);
      const Status status =
          map_settings_compare(&is, was.lines.data, was.lines.size, tolerance, "out", NULL, NULL);
      assert_int_equal(status == STATUS_OK, (tolerance & lines[i].tolerance) != 0);
      map_settings_release(&was);
      map_settings_release(&is);
    }
}

/* Whatever changes above the last line, or in it. */
TEST(a_seal_tells_of_every_change) {
  MapSettings settings = settings_of(true);
  assert_false(map_settings_are_sealed(&settings));
  assert_int_equal(map_settings_seal(&settings, NULL), STATUS_OK);
  assert_true(map_settings_are_sealed(&settings));
  const MapSettings without = settings_of(true);
  assert_true(settings.hash == without.hash); /* results are those of a run over all records */
  for (size_t i = 0; i < settings.lines.size - strlen(" above\n"); i++) {
    settings.lines.data[i] ^= 1;
    assert_false(map_settings_are_sealed(&settings));
    settings.lines.data[i] ^= 1;
    const MapSettings cut = {.lines = {.data = settings.lines.data, .size = i}};
    assert_false(map_settings_are_sealed(&cut));
  }
  const MapSettings none = {0};
  assert_false(map_settings_are_sealed(&none));
  map_settings_release(&settings);
  map_settings_release((MapSettings *)&without);
}
