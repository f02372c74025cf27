/* test_terminal_text.c - which characters steer a terminal, and what stands in their places. */
#include "base/terminal_text.h"
#include "base/utf8.h"
#include "test/tests.h"

/* The control characters (general category Cc), the separators Zl and Zp, and those with the property
 * Bidi_Control. */
static const uint32_t steering[][2] = {{0, 0x1F},        {0x7F, 0x9F},     {0x61C, 0x61C},  {0x200E, 0x200F},
                                       {0x2028, 0x2029}, {0x202A, 0x202E}, {0x2066, 0x2069}};

static bool steers(uint32_t code) {
  for (size_t i = 0; i < sizeof steering / sizeof *steering; i++)
    if (code >= steering[i][0] && code <= steering[i][1]) return true;
  return false;
}

static void assert_shown(const char *text, size_t size, const char *expected, size_t expected_size) {
  Buffer out = {0};
  assert_int_equal(terminal_text(&out, text, size, NULL), STATUS_OK);
  if (out.size != expected_size || (out.size && memcmp(out.data, expected, out.size) != 0))
    fail_msg("\"%.*s\" for \"%.*s\"", (int)out.size, out.data, (int)size, text);
  buffer_release(&out);
}

/* Each between two letters: as itself, as a picture of its own, or as U+FFFD. */
TEST(every_character_is_itself_or_seen_in_its_place) {
  for (uint32_t code = 0; code < 0x110000; code++) {
    if (steers_terminal(code) != steers(code)) fail_msg("U+%04X", code);
    if (code >= 0xD800 && code < 0xE000) continue;
    if (!steers(code) && code > 0x3000 && code % 977) continue; /* the others are alike */
    char text[6] = "a", expected[6] = "a";
    size_t size = 1 + (size_t)utf8_encode(code, text + 1), expected_size = 1;
    const bool kept = code == '\n' || code == '\t' || !steers(code);
    const uint32_t shown = kept ? code : code < 0x20 ? 0x2400 + code : code == 0x7F ? 0x2421 : 0xFFFD;
    if (code != '\r') expected_size += (size_t)utf8_encode(shown, expected + 1);
    text[size++] = expected[expected_size++] = 'z';
    assert_shown(text, size, expected, expected_size);
    assert_shown(expected, expected_size, expected, expected_size); /* nothing more the second time */
  }
}

TEST(bytes_that_are_no_character_are_seen_one_by_one) {
  assert_shown("", 0, "", 0);
  assert_shown("\xff", 1, "\xef\xbf\xbd", 3);
  assert_shown("a\xe2\x82z\r\n", 6, "a\xef\xbf\xbd\xef\xbf\xbdz\n", 9);
  assert_shown("\xf0\x9f\x98", 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", 9); /* cut at the end */
  assert_shown("\x1b\x1b[m", 4, "\xe2\x90\x9b\xe2\x90\x9b[m", 8);
}

TEST(what_is_shown_is_appended) {
  Buffer out = {0};
  assert_int_equal(terminal_text(&out, "one\a", 4, NULL), STATUS_OK);
  assert_int_equal(terminal_text(&out, "two", 3, NULL), STATUS_OK);
  assert_int_equal(out.size, 9);
  assert_memory_equal(out.data, "one\xe2\x90\x87two", 9);
  buffer_release(&out);
}
