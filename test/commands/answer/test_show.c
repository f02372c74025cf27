/* test_show.c - thoughts and answers on their way to pipes and terminals: what stands around them, and how
 * the last line ends. */
#include "commands/answer/show.h"
#include "test/tests.h"

#define D "\033[2m"
#define N "\033[22m"
#define B "\033[1m"

/* Each write by itself leaves the terminal as it was. */
static Status collect(void *user, const char *bytes, size_t size, Error *err) {
  int depth = 0;
  for (size_t i = 0; i < size; i++) {
    if (size - i >= 4 && (memcmp(bytes + i, D, 4) == 0 || memcmp(bytes + i, B, 4) == 0)) depth++;
    if (size - i >= 5 && memcmp(bytes + i, N, 5) == 0) depth--;
  }
  assert_int_equal(depth, 0);
  assert_true(size > 0);
  return buffer_append(user, bytes, size, err);
}

typedef struct {
  const char *to;        /* "p"ipe or "t"erminal, "d"im, "h"idden thoughts, "s"ource, e"x"act */
  const char *pieces[6]; /* the first character is the kind */
  const char *shown;
} Case;

static const Case cases[] = {
    {"p", {"thm", "t so", "aYes.", "a\n"}, "<t>\nhm so\n</t>\n\nYes.\n"},
    {"p", {"aYes."}, "Yes.\n"},
    {"p", {"aYes.\n"}, "Yes.\n"},
    {"px", {"aYes."}, "Yes."},
    {"px", {NULL}, ""},
    {"tx", {"aYes."}, "Yes.\n"},
    {"p", {"thm"}, "<t>\nhm\n"},
    {"p", {NULL}, "\n"},
    {"ph", {"thm", "aYes."}, "Yes.\n"},
    {"ph", {"thm\n"}, "\n"},
    {"p", {"a\033[2J\r\n"}, "\033[2J\r\n"},
    {"t", {"thm", "t so", "aYes."}, "<t>\nhm so\n</t>\n\nYes.\n"},
    {"t", {"aYes.", "a\n"}, "Yes.\n"},
    {"t", {"aYes.\n", "amore"}, "Yes.\nmore\n"},
    {"t", {NULL}, "\n"},
    {"th", {"thm\n"}, "\n"},
    {"th", {"thm", "aYes."}, "Yes.\n"},
    {"t", {"a\033[2J"}, "\xe2\x90\x9b[2J\n"},
    {"td", {"thm", "t so", "aYes."}, D "hm" N " " D "so" N "\n\nYes.\n"},
    {"td", {"thm"}, D "hm" N "\n"},
    {"td", {"t\033[0m"}, D "\xe2\x90\x9b[0m" N "\n"},
    {"td", {"aYes.", "thm"}, "Yes." D "hm" N "\n"},
    {"p", {"a**b**\n# c"}, "**b**\n# c\n"},
    {"t", {"a**b**\n# c"}, "**b**\n# c\n"},
    {"td", {"a**b", "a**\n", "a#", "a c"}, B "**b" N B "**" N "\n" B "# c" N "\n"},
    {"td", {"t**b** `c`", "a`c`"}, D "**b** `c" N D "`" N "\n\n\033[36m`c\033[39m\033[36m`\033[39m\n"},
    {"td",
     {"t```\n#", "a# x"},
     D "```" N "\n" D "#" N "\n\n" B "# x" N "\n"}, /* a thought's fence ends with it */
    {"tds", {"a# **b**"}, "# **b**\n"},
    {"tds", {"thm", "a# b"}, D "hm" N "\n\n# b\n"},
};

TEST(what_is_shown_is_as_its_reader_needs_it) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const Case *c = &cases[i];
    Buffer got = {0};
    Show show = {.write = collect,
                 .user = &got,
                 .terminal = strchr(c->to, 't'),
                 .screen = -1,
                 .styles = strchr(c->to, 'd'),
                 .source = strchr(c->to, 's'),
                 .thoughts = !strchr(c->to, 'h'),
                 .exact = strchr(c->to, 'x'),
                 .open = "<t>",
                 .close = "</t>"};
    for (int again = 0; again < 2; again++) { /* an answer has nothing of the one before it */
      got.size = 0;
      show_begin(&show);
      for (const char *const *piece = c->pieces; *piece; piece++)
        assert_int_equal(show_text(&show, **piece == 't' ? TEXT_THOUGHT : TEXT_ANSWER, *piece + 1,
                                   strlen(*piece) - 1, NULL),
                         STATUS_OK);
      assert_int_equal(show_end(&show, NULL), STATUS_OK);
      if (got.size != strlen(c->shown) || (got.size && memcmp(got.data, c->shown, got.size) != 0))
        fail_msg("case %zu: \"%.*s\", expected \"%s\"", i, (int)got.size, got.data, c->shown);
    }
    show_release(&show);
    buffer_release(&got);
  }
}
