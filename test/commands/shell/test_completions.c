/* test_completions.c - how much of a flag's help a shell shows beside it. */
#include "commands/shell/completions.h"
#include "test/tests.h"

/* Up to the first aside, in brackets or after a semicolon, that begins after more than twelve characters. */
TEST(a_help_ends_at_its_first_aside) {
  static const char *const cases[][2] = {
      {"", ""},
      {"a; b", "a; b"},
      {"twelve chars; more", "twelve chars; more"},
      {"thirteen char; more", "thirteen char"},
      {"twelve chars (more)", "twelve chars (more)"},
      {"thirteen char (more)", "thirteen char"},
      {"thirteen char;more(x)", "thirteen char;more(x)"},
      {"short; but then more; and more", "short; but then more"},
      {"an 'x' [y] \\: z in it", "an \\'x\\' \\[y] \\\\: z in it"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Buffer out = {0};
    assert_int_equal(completions_put_help(&out, cases[i][0], "'[\\", NULL), STATUS_OK);
    assert_int_equal(out.size, strlen(cases[i][1]));
    if (out.size) assert_memory_equal(out.data, cases[i][1], out.size);
    buffer_release(&out);
  }
}
