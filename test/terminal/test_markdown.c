/* test_markdown.c - answers on a terminal: where rows break, what has a style, and that the text stays. Known
 * texts against what is written; random texts, widths, resizing and cuts against what must always hold. */
#include <wchar.h>

#include "base/utf8.h"
#include "terminal/cells.h"
#include "terminal/markdown.h"
#include "test/tests.h"

#define B "\033[1m"  /* bold */
#define D "\033[2m"  /* dim */
#define N "\033[22m" /* neither */
#define C "\033[36m" /* code */
#define E "\033[39m" /* none */

static Markdown markdown_for(int columns, bool styles) {
  return (Markdown){.wrap = {.styles = styles, .columns = columns}};
}

/* Writes text[0..size) in pieces of `piece` bytes and leaves the output in m->wrap.out, with a 0 after it. */
static void show(Markdown *m, const char *text, size_t size, size_t piece) {
  for (size_t at = 0; at < size; at += piece)
    assert_int_equal(markdown_push(m, text + at, size - at < piece ? size - at : piece, NULL), STATUS_OK);
  assert_int_equal(markdown_end(m, NULL), STATUS_OK);
  assert_int_equal(buffer_append(&m->wrap.out, "", 1, NULL), STATUS_OK);
}

static void assert_shown(Markdown m, const char *text, const char *want) {
  show(&m, text, strlen(text), strlen(text) ? strlen(text) : 1);
  if (strcmp(m.wrap.out.data, want) != 0)
    fail_msg("\"%s\" is shown as \"%s\", expected \"%s\"", text, m.wrap.out.data, want);
  markdown_release(&m);
}

TEST(rows_break_at_blanks) {
  static const struct {
    int columns;
    const char *text, *shown;
  } cases[] = {
      {10, "", ""},
      {10, "one two three four", "one two\nthree four"},
      {10, "one two three", "one two\nthree"},
      {7, "one two three", "one two\nthree"}, /* fills its row: the blank after it is dropped */
      {6, "one two three", "one\ntwo\nthree"},
      {3, "one three two", "one\nthree\ntwo"}, /* the terminal breaks what is wider than a row */
      {10, "see https://example.com/a/b", "see\nhttps://example.com/a/b"},
      {10, "one two  three", "one two \nthree"}, /* one of the two is the break */
      {8, "one two   three", "one two \n three"},
      {10, "one\ntwo\n\nthree", "one\ntwo\n\nthree"},
      {10, "one two   \nthree", "one two   \nthree"},
      {7, "one two   \nthree", "one two\nthree"}, /* they would make an empty row */
      {9, "a\tb\tc", "a\tb\nc"},
      {12, "    indented words", "    indented\nwords"},
      {12, "中文字 words here", "中文字 words\nhere"},
      {6, "one 中文字符", "one 中文字符"}, /* the terminal breaks between characters of two columns */
      {5, "ones 中文", "ones\n中文"},
      {6, "Python中 x", "Python中 x"},
      {7, "a Python中", "a\nPython中"},
      {6, "ab e\xcc\x81\x65\xcc\x81 x", "ab e\xcc\x81\x65\xcc\x81\nx"}, /* accents take no column */
      {5, "a\xc2\xa0\x62 cd", "a\xc2\xa0\x62\ncd"},
      {5, "\xc2\xa0\xc2\xa0\xc2\xa0 cd", "\xc2\xa0\xc2\xa0\xc2\xa0\ncd"},
      {10, "| a cell | of a table |", "| a cell | of a table |"},
      {10, "```\nint main(void) { return 0; }\n```\none two three",
       "```\nint main(void) { return 0; }\n```\none two\nthree"},
      {0, "one two three four five", "one two three four five"},
      {1, "one two", "one two"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int styles = 0; styles < (strchr(cases[i].text, '`') ? 1 : 2); styles++)
      assert_shown(markdown_for(cases[i].columns, styles), cases[i].text, cases[i].shown);
}

/* --- what is seen */

enum { MOST = 4000 };

/* A character as it stands on the screen, with its style. */
typedef struct {
  wchar_t character;
  char style;
} Seen;

typedef struct {
  Seen seen[MOST];
  size_t n;
} Sight;

/* Adds the characters that a terminal shows for these bytes, and their styles. The bytes must end with no
 * style on. */
static void look(Sight *sight, const char *bytes, size_t size) {
  char style = 0;
  for (size_t at = 0; at < size;) {
    uint32_t code;
    if (bytes[at] == '\033') {
      const char *const known[] = {B, D, N, C, E};
      size_t k = 0;
      while (k < 5 && strncmp(bytes + at, known[k], strlen(known[k])) != 0) k++;
      assert_true(k < 5);
      const bool begins = k != 2 && k != 4;
      assert_true(begins == (style == 0)); /* one at a time */
      style = begins ? "bd-c"[k] : 0;
      at += strlen(known[k]);
      continue;
    }
    const int length = utf8_decode(bytes + at, size - at, &code);
    assert_true(length > 0 && sight->n < MOST);
    const bool shows_style = code != ' ' && code != '\t' && code != '\n';
    sight->seen[sight->n++] = (Seen){(wchar_t)code, shows_style ? style : (char)0};
    at += (size_t)length;
  }
  assert_int_equal(style, 0);
}

static void assert_seen(Markdown m, const char *text, const char *want) {
  Sight got = {.n = 0}, due = {.n = 0};
  show(&m, text, strlen(text), strlen(text));
  look(&got, m.wrap.out.data, m.wrap.out.size - 1);
  look(&due, want, strlen(want));
  if (got.n != due.n || memcmp(got.seen, due.seen, got.n * sizeof *got.seen) != 0)
    fail_msg("\"%s\" is shown as \"%s\", expected \"%s\"", text, m.wrap.out.data, want);
  markdown_release(&m);
}

TEST(marks_have_styles_and_stay) {
  static const char *const cases[][2] = {
      {"a **b c** d", "a " B "**b c**" N " d"},
      {"a **b**.", "a " B "**b**" N "."},
      {"***b***", B "***b***" N},
      {"a *b* c", "a *b* c"},
      {"2 ** 3 ** 4", "2 ** 3 ** 4"},
      {"x**2 and y**2", "x**2 and y**2"},
      {"**a **b** c", B "**a **b**" N " c"},
      {"\xe8\xbf\x99**\xe9\x87\x8d**\xe5\xa5\xbd", "\xe8\xbf\x99" B "**\xe9\x87\x8d**" N "\xe5\xa5\xbd"},
      {"**a\nb**", B "**a" N "\nb**"}, /* a mark ends with its line */
      {"****", "****"},
      {"\\**a**", "\\**a**"},
      {"\\*\\*a", "\\*\\*a"},
      {"a `b c` d", "a " C "`b c`" E " d"},
      {"``b ` c`` d", C "``b ` c``" E " d"},
      {"`a**b**`", C "`a**b**`" E},
      {"`a`**b**", C "`a`" E B "**b**" N},
      {"**a `b` c**", B "**a" N " " C "`b`" E " " B "c**" N},
      {"`a\\` b", C "`a\\`" E " b"},
      {"\\`a", "\\`a"},
      {"`a\nb", C "`a" E "\nb"},
      {"# One two\nthree", B "# One two" N "\nthree"},
      {"### `a` b", B "###" N " " C "`a`" E " " B "b" N},
      {"  ## a", "  " B "## a" N},
      {"#", B "#" N},
      {"#one", "#one"},
      {"####### one", "####### one"},
      {"a # b", "a # b"},
      {"```c\nint x; // **a**\n```\nb", D "```c" N "\n" C "int x; // **a**" E "\n" D "```" N "\nb"},
      {"~~~\n```\n~~\n~~~~ \nb", D "~~~" N "\n" C "```" E "\n" C "~~" E "\n" D "~~~~" N " \nb"},
      {"- a\n    ```\n    x\n\n    ```\nb",
       "- a\n    " D "```" N "\n    " C "x" E "\n\n    " D "```" N "\nb"},
      {"```a` b\nc", C "```a` b" E "\nc"}, /* the info string of a fence has no backtick */
      {"``` x", D "``` x" N},
      {"| **a** |", "| " B "**a**" N " |"},
      {"> **a**", "> " B "**a**" N},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_seen(markdown_for(0, true), cases[i][0], cases[i][1]);
    assert_seen(markdown_for(0, false), cases[i][0], cases[i][0]);
    Markdown plain = markdown_for(0, true);
    plain.is_plain = true;
    assert_seen(plain, cases[i][0], cases[i][0]);
  }
  Markdown dim = markdown_for(8, true);
  dim.is_dim = true;
  assert_seen(dim, "# a **b** cc", D "# a" N "\n" D "**b** cc" N);
}

TEST(text_comes_as_soon_as_its_place_is_known) {
  static const char *const steps[][2] = {
      {"on", "on"},       {"e", "e"},         {" t", ""},  {"w", ""},          {"o ", " two"},
      {"thre", "\nthre"}, {"e", "e"},         {" **", ""}, {"b", ""},          {"*", ""},
      {"*", ""},          {"\n", " **b**\n"}, {"``", ""},  {"`c\n", "```c\n"},
  };
  Markdown m = markdown_for(11, false);
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    assert_int_equal(markdown_push(&m, steps[i][0], strlen(steps[i][0]), NULL), STATUS_OK);
    if (m.wrap.out.size != strlen(steps[i][1]) || memcmp(m.wrap.out.data, steps[i][1], m.wrap.out.size) != 0)
      fail_msg("after \"%s\" (step %zu) comes \"%.*s\", expected \"%s\"", steps[i][0], i,
               (int)m.wrap.out.size, m.wrap.out.data, steps[i][1]);
    m.wrap.out.size = 0;
  }
  markdown_release(&m);
}

/* A thought's marks, and its open fence, end with it. */
TEST(an_end_leaves_nothing_open) {
  Markdown m = markdown_for(20, true);
  show(&m, "```\nx **a `b", 12, 12);
  m.wrap.out.size = 0;
  show(&m, " c `d` e", 8, 8);
  assert_string_equal(m.wrap.out.data, " c " C "`d`" E " e");
  markdown_release(&m);
}

/* --- random texts */

static uint64_t random_state = 1;
static unsigned below(unsigned n) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)(random_state >> 33) % n;
}

static size_t random_text(char *text, size_t most) {
  static const char *const parts[] = {
      "a",
      "word",
      "longer",
      "x.",
      " ",
      " ",
      " ",
      " ",
      "  ",
      "\t",
      "\n",
      "\n\n",
      "**",
      "*",
      "`",
      "``",
      "\n```\n",
      "```",
      "\n# ",
      "\n#",
      "\n| ",
      "|",
      "\\",
      "中",
      "文字",
      "e\xcc\x81",
      "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb",
      "\xe2\x9d\xa4\xef\xb8\x8f",
      "\n~~~\n",
      "\n  ",
      "- ",
      "1. ",
      "\xc2\xa0",
      "averyveryverylongword",
  };
  size_t size = 0;
  const unsigned n = below(60);
  for (unsigned i = 0; i < n; i++) {
    const char *part = parts[below(sizeof parts / sizeof *parts)];
    if (size + strlen(part) > most) break;
    memcpy(text + size, part, strlen(part));
    size += strlen(part);
  }
  return size;
}

/* After resizing, thirty characters, written in rows of twenty, may be broken anew or cut. */
TEST(a_word_fits_however_the_terminal_breaks_the_row) {
  static const struct {
    int columns;
    const char *shown;
  } cases[] = {{11, "\na"}, {14, " a"}, {15, "\na"}, {25, " a"}};
  static const char thirty[] = "123456789012345678901234567890";
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char want[40];
    Markdown m = markdown_for(20, false);
    assert_int_equal(markdown_push(&m, thirty, sizeof thirty - 1, NULL), STATUS_OK);
    m.wrap.columns = cases[i].columns;
    snprintf(want, sizeof want, "%s%s", thirty, cases[i].shown);
    assert_shown(m, " a", want);
  }
}

/* Shows a text in random pieces, the window now and then another one. */
static void show_in_pieces(const char *text, size_t size, int columns, bool resizes, Sight *sight) {
  Markdown m = markdown_for(columns, true);
  sight->n = 0;
  for (size_t at = 0; at < size;) {
    size_t piece = 1 + below(8);
    if (piece > size - at) piece = size - at;
    if (resizes && below(4) == 0) m.wrap.columns = (int)below(40);
    assert_int_equal(markdown_push(&m, text + at, piece, NULL), STATUS_OK);
    look(sight, m.wrap.out.data, m.wrap.out.size);
    m.wrap.out.size = 0;
    at += piece;
  }
  assert_int_equal(markdown_end(&m, NULL), STATUS_OK);
  look(sight, m.wrap.out.data, m.wrap.out.size);
  markdown_release(&m);
}

static bool is_blank(wchar_t c) {
  return c == L' ' || c == L'\t';
}

/* Checks that the shown characters are those of the text, except that a newline may replace a blank and that
 * blanks at the end of a line may be missing. */
static void assert_same_text(const char *text, size_t size, const Sight *sight) {
  static Sight whole;
  size_t i = 0;
  whole.n = 0;
  look(&whole, text, size);
  for (size_t k = 0; k < whole.n; k++) {
    size_t next = k;
    while (next < whole.n && is_blank(whole.seen[next].character)) next++;
    if (next > k && (next == whole.n || whole.seen[next].character == L'\n')) {
      while (i < sight->n && is_blank(sight->seen[i].character)) i++;
      k = next - 1;
      continue;
    }
    const wchar_t want = whole.seen[k].character, got = i < sight->n ? sight->seen[i++].character : 0;
    if (got != want && !(is_blank(want) && got == L'\n'))
      fail_msg("\"%.*s\": character %zu is U+%04X, expected U+%04X", (int)size, text, i, (unsigned)got,
               (unsigned)want);
  }
  assert_int_equal(i, sight->n);
}

/* No word of narrow characters that would fit into a row crosses the edge, outside of code and tables. */
static void assert_words_are_whole(const char *text, size_t size, const Sight *sight, int columns) {
  if (columns < 2 || memchr(text, '|', size) || memchr(text, '`', size) || memchr(text, '~', size)) return;
  int column = 0;
  bool indented = true; /* only blanks stand before it in its line */
  for (size_t i = 0; i < sight->n;) {
    int width = 0;
    bool wide = false;
    size_t end = i;
    for (; end < sight->n && !wcschr(L" \t\n", sight->seen[end].character); end++) {
      const int w = cells_columns((uint32_t)sight->seen[end].character);
      wide |= w > 1;
      width += w;
    }
    if (!wide && !indented && width <= columns && column > 0 && column < columns && column + width > columns)
      fail_msg("\"%.*s\" in %d columns: a word is broken at column %d", (int)size, text, columns, column);
    for (; i < end; i++) {
      const int w = cells_columns((uint32_t)sight->seen[i].character);
      column = column + w > columns ? w : column + w;
    }
    indented = width == 0 && indented;
    if (i == sight->n) return;
    const wchar_t after = sight->seen[i++].character;
    if (after == L'\n') column = 0, indented = true;
    if (after == L' ') column = column == columns ? 1 : column + 1;
    if (after == L'\t') column = column + 8 - column % 8 < columns ? column + 8 - column % 8 : columns - 1;
  }
}

TEST(any_text_stays_at_any_width_however_it_is_cut) {
  static char text[1000];
  static Sight once, again, resized;
  for (int i = 0; i < 4000; i++) {
    const size_t size = random_text(text, sizeof text);
    const int columns = (int)below(30);
    show_in_pieces(text, size, columns, false, &once);
    show_in_pieces(text, size, columns, false, &again);
    if (once.n != again.n || memcmp(once.seen, again.seen, once.n * sizeof *once.seen) != 0)
      fail_msg("\"%.*s\" in %d columns depends on how it is cut", (int)size, text, columns);
    assert_same_text(text, size, &once);
    assert_words_are_whole(text, size, &once, columns);
    show_in_pieces(text, size, columns, true, &resized);
    assert_same_text(text, size, &resized);
  }
}

static int begin(void **state) {
  return cells_begin() ? 0 : -1;
}

static CMFixtureFunction before_all = begin;
