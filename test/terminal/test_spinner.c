/* test_spinner.c - what a spinner leaves on its screen, here a pipe, once the user has interrupted. */
#include <fcntl.h>
#include <unistd.h>

#include "terminal/spinner.h"
#include "test/tests.h"

static const char erased[] = "\r\033[K";

/* Reads what was written within so many milliseconds. */
static const char *written(int screen, int ms) {
  static char text[1 << 14];
  usleep((useconds_t)ms * 1000);
  const ssize_t n = read(screen, text, sizeof text - 1);
  text[n > 0 ? n : 0] = 0;
  return text;
}

static bool ends_with(const char *text, const char *end) {
  const size_t n = strlen(text), length = strlen(end);
  return n >= length && strcmp(text + n - length, end) == 0;
}

TEST(an_interrupted_one_erases_its_line_at_once) {
  for (int turns = 0; turns < 2; turns++) {
    int screen[2];
    volatile int interrupted = 0;
    assert_int_equal(pipe2(screen, O_NONBLOCK), 0);
    Spinner s = {.is_on = true, .turns = turns, .screen = screen[1], .interrupted = &interrupted};
    spinner_begin(&s);
    spinner_say(&s, "1 of 9");
    written(screen[0], 400);
    spinner_say(&s, "2 of 9");
    assert_non_null(strstr(written(screen[0], 150), "2 of 9"));
    interrupted = 1;
    assert_true(ends_with(written(screen[0], 400), erased));
    spinner_say(&s, "3 of 9");
    assert_string_equal(written(screen[0], 250), "");
    spinner_end(&s);
    assert_string_equal(written(screen[0], 0), ""); /* it is erased already */
    close(screen[0]);
    close(screen[1]);
  }
}

TEST(one_that_ends_erases_its_line) {
  int screen[2];
  assert_int_equal(pipe2(screen, O_NONBLOCK), 0);
  Spinner s = {.is_on = true, .screen = screen[1]};
  spinner_begin(&s);
  spinner_say(&s, "1 of 9");
  assert_string_equal(written(screen[0], 350), ""); /* what is fast shows none */
  spinner_say(&s, "2 of 9");
  assert_non_null(strstr(written(screen[0], 0), "2 of 9"));
  spinner_end(&s);
  assert_string_equal(written(screen[0], 0), erased);
  close(screen[0]);
  close(screen[1]);
}
