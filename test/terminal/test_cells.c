/* test_cells.c - texts become cells of the width they have on a screen, and come back as they were. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/utf8.h"
#include "terminal/cells.h"

static int begin(void **state) {
  (void)state;
  return cells_begin() ? 0 : -1;
}

static size_t to_cells(Cells *cells, const char *text, size_t size, CellString *out) {
  out->size = 0;
  assert_int_equal(cells_of_text(cells, text, size, out, NULL), STATUS_OK);
  return out->size;
}

static void assert_back(const Cells *cells, const CellString *line, const char *text, size_t size) {
  Buffer out = {0};
  assert_int_equal(cells_text(cells, line->data, line->size, &out, NULL), STATUS_OK);
  assert_int_equal(out.size, size);
  if (size) assert_memory_equal(out.data, text, size);
  buffer_release(&out);
}

static void joined_characters_are_one_cell(void **state) {
  (void)state;
  static const struct {
    const char *text;
    size_t n_cells;
    int columns;
  } cases[] = {
      {"abc", 3, 3},
      {"\xe4\xb8\xad\xe6\x96\x87", 2, 4},                     /* two of two columns */
      {"e\xcc\x81x", 2, 2},                                   /* e and an accent */
      {"e\xcc\x81\xcc\x82\xcc\x83x", 2, 2},                   /* three accents */
      {"\xe3\x81\x8b\xe3\x82\x99", 1, 2},                     /* ka and its voicing mark */
      {"\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb", 2, 4}, /* a person, a joiner, a computer */
      {"\xe2\x9d\xa4\xef\xb8\x8f", 1, 1},                     /* a heart and a variation selector */
      {"\xcc\x81", 1, 1},                                     /* an accent on nothing */
      {"a\n\xcc\x81z", 4, 0},                                 /* a newline carries none */
      {"\xf3\xb0\x80\x80\xf0\xa0\x80\x80", 2, 3},             /* the proxies' own code points */
      {"\xf3\xb0\x80\x80\xcc\x81", 1, 1},
  };
  Cells cells = {0};
  CellString line = {0};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    size_t size = strlen(cases[i].text);
    assert_int_equal(to_cells(&cells, cases[i].text, size, &line), cases[i].n_cells);
    assert_back(&cells, &line, cases[i].text, size);
    int columns = 0;
    for (size_t k = 0; k < line.size; k++) columns += wcwidth(line.data[k]);
    if (cases[i].columns) assert_int_equal(columns, cases[i].columns);
  }
  cell_string_release(&line);
  cells_release(&cells);
}

static uint32_t random_state = 7;
static uint32_t random_below(uint32_t n) {
  random_state = random_state * 1664525 + 1013904223;
  return (uint32_t)(((uint64_t)random_state * n) >> 32);
}

static void any_text_comes_back(void **state) {
  (void)state;
  static const uint32_t ranges[][2] = {{1, 0x7F},          {0x300, 0x370},     {0x4E00, 0x4F00},
                                       {0xF0000, 0xF0020}, {0x20000, 0x20020}, {0x1F300, 0x1F700},
                                       {0x200B, 0x2010},   {0xFE00, 0xFE10},   {0x80, 0x10FFFF}};
  Cells cells = {0};
  CellString line = {0};
  for (int round = 0; round < 2000; round++) {
    char text[256];
    size_t size = 0;
    for (uint32_t n = random_below(40); n > 0; n--) {
      const uint32_t *range = ranges[random_below(sizeof ranges / sizeof *ranges)];
      uint32_t code = range[0] + random_below(range[1] - range[0]);
      if (code >= 0xD800 && code < 0xE000) continue;
      size += (size_t)utf8_encode(code, text + size);
    }
    to_cells(&cells, text, size, &line);
    assert_back(&cells, &line, text, size);
  }
  cell_string_release(&line);
  cells_release(&cells);
}

/* What grows without end is no character: time and memory are linear. */
static void heaps_of_accents_are_cut(void **state) {
  (void)state;
  enum { N = 200000 };
  Cells cells = {0};
  CellString line = {0};
  Buffer text = {0};
  for (int i = 0; i < N; i++) {
    char bytes[4];
    uint32_t code = 0x300 + random_below(0x50);
    if (i % 1000 == 0) code = 'a' + (uint32_t)(i / 1000) % 26;
    buffer_append(&text, bytes, (size_t)utf8_encode(code, bytes), NULL);
  }
  to_cells(&cells, text.data, text.size, &line);
  assert_in_range(line.size, N / 64, N);
  assert_back(&cells, &line, text.data, text.size);
  buffer_release(&text);
  cell_string_release(&line);
  cells_release(&cells);
}

static void shown(const Cells *cells, const CellString *line, Buffer *out) {
  int column = 0;
  for (size_t i = 0; i < line->size; i++) {
    assert_int_equal(cells_show(cells, line->data[i], column, out, NULL), STATUS_OK);
    column += cells_width(line->data[i], column);
  }
}

static void what_is_shown_is_what_is_meant(void **state) {
  (void)state;
  Cells cells = {0};
  CellString line = {0};
  Buffer out = {0};
  to_cells(&cells, "e\xcc\x81\xe4\xb8\xad \xcc\x81", 9, &line); /* a blank carries an accent, too */
  assert_int_equal(cells_of_block(&cells, "one\ntwo", 7, "[2 lines]", &line, NULL), STATUS_OK);
  shown(&cells, &line, &out);
  const char want[] = "e\xcc\x81\xe4\xb8\xad \xcc\x81[2 lines]";
  assert_int_equal(out.size, sizeof want - 1);
  assert_memory_equal(out.data, want, sizeof want - 1);
  assert_back(&cells, &line, "e\xcc\x81\xe4\xb8\xad \xcc\x81one\ntwo", 16);
  int group = cells_group(&cells, line.data[line.size - 1]);
  assert_int_not_equal(group, 0);
  assert_int_equal(cells_group(&cells, line.data[line.size - 9]), group);
  assert_int_equal(cells_group(&cells, line.data[0]), 0);
  buffer_release(&out);
  cell_string_release(&line);
  cells_release(&cells);
}

static void what_steers_a_terminal_is_shown_by_name(void **state) {
  (void)state;
  Cells cells = {0};
  CellString line = {0};
  Buffer out = {0};
  to_cells(&cells, "a\tb\x1b[2J\x7f\xc2\x9b\xf0\xaf\xbf\xbf", 14, &line);
  shown(&cells, &line, &out);
  const char want[] = "a       b^[[2J^?<U+009B><U+2FFFF>";
  assert_int_equal(out.size, sizeof want - 1);
  assert_memory_equal(out.data, want, sizeof want - 1);
  buffer_release(&out);
  cell_string_release(&line);
  cells_release(&cells);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(joined_characters_are_one_cell),
      cmocka_unit_test(any_text_comes_back),
      cmocka_unit_test(heaps_of_accents_are_cut),
      cmocka_unit_test(what_is_shown_is_what_is_meant),
      cmocka_unit_test(what_steers_a_terminal_is_shown_by_name),
  };
  return cmocka_run_group_tests(tests, begin, NULL);
}
