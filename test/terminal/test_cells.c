/* test_cells.c - texts become cells of the width they have on a screen, and come back as they were. */
#include "base/utf8.h"
#include "terminal/cells.h"
#include "test/tests.h"

static int begin(void **state) {
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

TEST(joined_characters_are_one_cell) {
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
    for (size_t k = 0; k < line.size; k++) columns += cells_width(&cells, line.data[k], 0);
    if (cases[i].columns) assert_int_equal(columns, cases[i].columns);
  }
  cell_string_release(&line);
  cells_release(&cells);
}

static uint32_t random_state = 7;
static uint32_t below(uint32_t n) {
  random_state = random_state * 1664525 + 1013904223;
  return (uint32_t)(((uint64_t)random_state * n) >> 32);
}

TEST(any_text_comes_back) {
  static const uint32_t ranges[][2] = {{1, 0x7F},          {0x300, 0x370},     {0x4E00, 0x4F00},
                                       {0xF0000, 0xF0020}, {0x20000, 0x20020}, {0x1F300, 0x1F700},
                                       {0x200B, 0x2010},   {0xFE00, 0xFE10},   {0x80, 0x10FFFF}};
  Cells cells = {0};
  CellString line = {0};
  for (int round = 0; round < 2000; round++) {
    char text[256];
    size_t size = 0;
    for (uint32_t n = below(40); n > 0; n--) {
      const uint32_t *range = ranges[below(sizeof ranges / sizeof *ranges)];
      uint32_t code = range[0] + below(range[1] - range[0]);
      if (code >= 0xD800 && code < 0xE000) continue;
      size += (size_t)utf8_encode(code, text + size);
    }
    to_cells(&cells, text, size, &line);
    assert_back(&cells, &line, text, size);
  }
  cell_string_release(&line);
  cells_release(&cells);
}

/* A character does not grow without end: time and memory stay linear. */
TEST(heaps_of_accents_are_cut) {
  enum { N = 200000 };
  Cells cells = {0};
  CellString line = {0};
  Buffer text = {0};
  for (int i = 0; i < N; i++) {
    char bytes[4];
    uint32_t code = 0x300 + below(0x50);
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
    column += cells_width(cells, line->data[i], column);
  }
}

TEST(what_is_shown_is_what_is_meant) {
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
  assert_int_equal(line.size, 4); /* a label is one cell */
  assert_int_equal(cells_width(&cells, line.data[3], 0), 9);
  buffer_release(&out);
  cell_string_release(&line);
  cells_release(&cells);
}

TEST(what_steers_a_terminal_is_shown_by_name) {
  Cells cells = {0};
  CellString line = {0};
  Buffer out = {0};
  to_cells(&cells, "a\tb\x1b[2J\x7f\xc2\x9b\xf0\xaf\xbf\xbf\xe2\x80\xaez\xe2\x80\x8f", 21, &line);
  shown(&cells, &line, &out);
  const char want[] = "a       b^[[2J^?<U+009B><U+2FFFF><U+202E>z<U+200F>";
  assert_int_equal(out.size, sizeof want - 1);
  assert_memory_equal(out.data, want, sizeof want - 1);
  buffer_release(&out);
  cell_string_release(&line);
  cells_release(&cells);
}

/* The text that is written for a cell takes as many columns as the cell says. */
TEST(every_cell_is_as_wide_as_what_is_shown_for_it) {
  const Cells cells = {0};
  Buffer out = {0};
  for (uint32_t code = 1; code < 0x110000; code++) {
    if (code >= 0xD800 && code < 0xE000) continue;
    for (int column = 0; column < (code < 0x80 ? 17 : 1); column++) {
      int columns = 0;
      out.size = 0;
      assert_int_equal(cells_show(&cells, (wchar_t)code, column, &out, NULL), STATUS_OK);
      for (size_t at = 0; at < out.size;) {
        uint32_t shown;
        at += (size_t)utf8_decode(out.data + at, out.size - at, &shown);
        const bool is_new_picture = shown >= 0x1F000 && shown < 0x1FC00 && wcwidth((wchar_t)shown) < 0;
        columns += is_new_picture ? 2 : wcwidth((wchar_t)shown);
        if (shown < 0x20 || shown == 0x7F || (code >= 0x80 && shown < 0x80 && out.size < 8))
          fail_msg("U+%04X is shown as %.*s", code, (int)out.size, out.data);
      }
      if (cells_width(&cells, (wchar_t)code, column) != columns)
        fail_msg("U+%04X at %d: %d columns", code, column, cells_width(&cells, (wchar_t)code, column));
    }
  }
  assert_int_equal(cells_width(&cells, L'\t', 0), 8);
  assert_int_equal(cells_width(&cells, L'\t', 7), 1);
  assert_int_equal(cells_width(&cells, L'\t', 8), 8);
  buffer_release(&out);
}

TEST(what_is_no_text_of_an_editor_is_replaced) {
  Cells cells = {0};
  CellString line = {0};
  assert_int_equal(to_cells(&cells, "a\0b\xff\xe2\x82z", 7, &line), 7);
  assert_memory_equal(line.data,
                      L"a\xFFFD"
                      L"b\xFFFD\xFFFD\xFFFDz",
                      8 * sizeof(wchar_t));
  assert_back(&cells, &line,
              "a\xef\xbf\xbd"
              "b\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz",
              15);
  cell_string_release(&line);
  cells_release(&cells);
}

/* A cell that has 64 bytes takes no more accents, of two bytes each. */
TEST(a_cell_grows_up_to_64_bytes) {
  static const char *const bases[] = {"e", "\xc3\xa9"};
  for (size_t k = 0; k < 2; k++) {
    Cells cells = {0};
    CellString line = {0};
    Buffer text = {0};
    buffer_append_string(&text, bases[k], NULL);
    for (int i = 1; i <= 40; i++) {
      buffer_append_string(&text, "\xcc\x81", NULL);
      assert_int_equal(to_cells(&cells, text.data, text.size, &line), text.size - 2 < 64 ? 1 : 2);
      assert_back(&cells, &line, text.data, text.size);
    }
    buffer_release(&text);
    cell_string_release(&line);
    cells_release(&cells);
  }
}

/* As long as the chat is: what was joined once is the same cell each time. */
TEST(equal_characters_are_equal_cells) {
  Cells cells = {0};
  CellString line = {0}, again = {0};
  Buffer text = {0};
  for (uint32_t i = 0; i < 3000; i++) {
    char bytes[8];
    size_t size = (size_t)utf8_encode(i % 2 ? 'a' + i / 2 % 26 : 0x4E00 + i / 2 % 26, bytes);
    size += (size_t)utf8_encode(0x300 + i / 52, bytes + size);
    buffer_append(&text, bytes, size, NULL);
  }
  to_cells(&cells, text.data, text.size, &line);
  const size_t n_proxies = cells.count;
  to_cells(&cells, text.data, text.size, &again);
  assert_int_equal(line.size, again.size);
  assert_memory_equal(line.data, again.data, line.size * sizeof *line.data);
  assert_int_equal(cells.count, n_proxies);
  assert_in_range(n_proxies, 2800, 3000);
  buffer_release(&text);
  cell_string_release(&line);
  cell_string_release(&again);
  cells_release(&cells);
}

/* There are 61,440 proxies; accents that come then stand alone. */
TEST(more_characters_than_there_are_proxies_still_come_back) {
  Cells cells = {0};
  CellString line = {0};
  Buffer text = {0};
  size_t n = 0;
  for (uint32_t accent = 0x300; accent < 0x370; accent++) {
    for (uint32_t base = 'a'; base <= 'z'; base++) {
      for (uint32_t second = 0x300; second < 0x318; second++, n++) {
        char bytes[8];
        size_t size = (size_t)utf8_encode(base, bytes);
        size += (size_t)utf8_encode(accent, bytes + size);
        size += (size_t)utf8_encode(second, bytes + size);
        buffer_append(&text, bytes, size, NULL);
      }
    }
  }
  assert_in_range(n, 0xF000, 80000);
  to_cells(&cells, text.data, text.size, &line);
  assert_int_equal(cells.count, 0xF000);
  assert_true(line.size > n);
  assert_back(&cells, &line, text.data, text.size);
  Error err = {{0}};
  assert_int_equal(cells_of_block(&cells, "text", 4, "[label]", &line, &err), STATUS_FAILED);
  assert_non_null(strstr(err.text, "too many different characters"));
  to_cells(&cells, "\xf3\xbf\xbf\xbd", 4, &line); /* a proxy's own code point: there is none left for it */
  assert_int_equal(line.data[0], 0xFFFD);
  buffer_release(&text);
  cell_string_release(&line);
  cells_release(&cells);
}

/* Each label is a cell of its own, whatever its text; nothing joins with it. */
TEST(labels_are_told_apart) {
  Cells cells = {0};
  CellString line = {0};
  for (int i = 0; i < 2; i++)
    assert_int_equal(cells_of_block(&cells, "same", 4, "[x]", &line, NULL), STATUS_OK);
  assert_int_equal(line.size, 2);
  assert_int_equal(cells_append(&cells, 0x301, &line, NULL), STATUS_OK);
  assert_int_equal(line.size, 3);
  assert_int_not_equal(line.data[0], line.data[1]);
  assert_back(&cells, &line, "samesame\xcc\x81", 10);
  cell_string_release(&line);
  cells_release(&cells);
}

static CMFixtureFunction before_all = begin;
