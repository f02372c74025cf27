/* test_json_generated.c - JSON over generated texts, against slow and plain references; and its limits,
 * at their exact values and one past them. */
#include <sys/mman.h>

#include "base/json.h"
#include "base/utf8.h"
#include "test/tests.h"

static uint32_t random_state = 1;

static uint32_t below(uint32_t n) {
  random_state = random_state * 1664525 + 1013904223;
  return (uint32_t)(((uint64_t)random_state * n) >> 32);
}

static Json *parsed(const char *text, size_t size) {
  Json *tree;
  Error err = {{0}};
  if (json_parse("name", STATUS_MODEL, text, size, NULL, 0, &tree, &err) != STATUS_OK)
    fail_msg("refused %.*s: %s", (int)size, text, err.text);
  return tree;
}

/* --- integers */

/* The integer that a number's digits and its point, moved by its exponent, are; false where they are none
 * or it is not within int64. */
static bool slow_int64(const char *text, int64_t *out) {
  char digits[256];
  long n = 0, point = -1;
  const bool negative = *text == '-';
  const char *at = text + negative;
  for (; *at && *at != 'e' && *at != 'E'; at++) {
    if (*at == '.')
      point = n;
    else
      digits[n++] = *at;
  }
  if (point < 0) point = n;
  if (*at) point += strtol(at + 1, NULL, 10);
  __int128 value = 0;
  for (long i = 0; i < n || i < point; i++) {
    const int digit = i < n ? digits[i] - '0' : 0;
    if (i >= point && digit) return false;
    if (i >= point) continue;
    value = value * 10 + digit;
    if (value > (__int128)1 << 64) return false;
  }
  if (negative) value = -value;
  if (value > INT64_MAX || value < INT64_MIN) return false;
  *out = (int64_t)value;
  return true;
}

static void put_digits(Buffer *text, uint32_t n, bool zeros) {
  for (uint32_t i = 0; i < n; i++) {
    char digit = (char)(zeros && below(3) ? '0' : '0' + below(10));
    if (i == 0 && text->size <= 1 && digit == '0') digit = '9'; /* no needless zero */
    buffer_append(text, &digit, 1, NULL);
  }
}

static void put_number(Buffer *text) {
  static const char *const edges[] = {
      "9223372036854775807", "9223372036854775808",  "9223372036854775809", "0",
      "922337203685477580",  "18446744073709551615", "18446744073709551616"};
  static const char *const exponents[] = {"e%d", "E+%d", "E-%d", "e-0%d"};
  const bool zeros = below(2);
  if (below(2)) buffer_append(text, "-", 1, NULL);
  if (below(3) == 0)
    buffer_append_string(text, edges[below(7)], NULL);
  else
    put_digits(text, 1 + below(21), zeros);
  if (below(2)) {
    buffer_append(text, ".", 1, NULL);
    const size_t before = text->size;
    put_digits(text, 1 + below(20), zeros);
    if (below(2)) memset(text->data + before, '0', text->size - before);
  }
  if (below(2)) buffer_printf(text, NULL, exponents[below(4)], (int)below(24));
}

TEST(integers_are_those_of_slow_arithmetic) {
  Buffer text = {0};
  int n_whole = 0;
  for (int round = 0; round < 40000; round++) {
    text.size = 0;
    put_number(&text);
    buffer_append(&text, "", 1, NULL);
    JsonCursor cursor = json_cursor((JsonSpan){text.data, text.size - 1});
    const char *begin = cursor.at;
    int64_t want = 0, got = 0;
    const bool whole = slow_int64(text.data, &want);
    if (json_cursor_int64(&cursor, &got) != whole || got != want)
      fail_msg("%s: %lld", text.data, (long long)got);
    assert_ptr_equal(cursor.at, whole ? cursor.end : begin);
    n_whole += whole;
  }
  assert_in_range(n_whole, 5000, 35000);
  buffer_release(&text);
}

/* --- whole trees: what was meant, what the tree says and what the cursor says, each in one plain form */

static void put_space(Buffer *text) {
  static const char *const spaces[] = {"", "", "", " ", "\n", "\t\r", "         ", "                 \n"};
  buffer_append_string(text, spaces[below(8)], NULL);
}

static void mean_bytes(Buffer *meaning, const char *bytes, size_t size) {
  buffer_append_string(meaning, "'", NULL);
  for (size_t i = 0; i < size; i++) buffer_printf(meaning, NULL, "%02x", (unsigned char)bytes[i]);
  buffer_append_string(meaning, "'", NULL);
}

static void put_escaped(Buffer *text, uint32_t code) {
  static const char codes[] = "\"\\/\b\f\n\r\t", letters[] = "\"\\/bfnrt";
  const char *letter = code && code < 0x80 ? strchr(codes, (int)code) : NULL;
  const char *const format = below(2) ? "\\u%04x" : "\\u%04X";
  if (letter && below(2))
    buffer_append(text, (char[]){'\\', letters[letter - codes]}, 2, NULL);
  else if (code < 0x10000)
    buffer_printf(text, NULL, format, (unsigned)code);
  else {
    buffer_printf(text, NULL, format, 0xd800u + ((unsigned)code - 0x10000) / 1024);
    buffer_printf(text, NULL, format, 0xdc00u + (unsigned)code % 1024);
  }
}

/* A string of characters at both sides of each limit of UTF-8 and of escapes. */
static void put_string(Buffer *text, Buffer *meaning, const char *begin, bool is_key) {
  static const uint32_t codes[] = {1,       '\t',    '\n',    0x1f,     ' ',      '"',     '\\',
                                   '/',     'u',     ']',     0x7e,     0x7f,     0x80,    0x7ff,
                                   0x800,   0xd7ff,  0xe000,  0xfffd,   0xffff,   0x10000, 0x103ff,
                                   0x10400, 0x1f600, 0xfffff, 0x100000, 0x10ffff, 0};
  Buffer bytes = {0};
  buffer_append_string(&bytes, begin, NULL);
  buffer_printf(text, NULL, "\"%s", begin);
  for (uint32_t n = below(6); n > 0; n--) {
    const uint32_t code = codes[below(is_key ? 26 : 27)];
    char encoded[4];
    const size_t size = (size_t)utf8_encode(code, encoded);
    buffer_append(&bytes, encoded, size, NULL);
    if (code < 0x20 || code == '"' || code == '\\' || below(3) == 0)
      put_escaped(text, code);
    else
      buffer_append(text, encoded, size, NULL);
  }
  buffer_append(text, "\"", 1, NULL);
  mean_bytes(meaning, bytes.data ? bytes.data : "", bytes.size);
  buffer_release(&bytes);
}

static void put_value(Buffer *text, Buffer *meaning, int depth);

static void put_container(Buffer *text, Buffer *meaning, int depth, bool object) {
  const uint32_t n = below(12);
  buffer_append_string(text, object ? "{" : "[", NULL);
  buffer_append_string(meaning, object ? "{" : "[", NULL);
  for (uint32_t i = 0; i < n; i++) {
    char begin[16];
    snprintf(begin, sizeof begin, "%u", (unsigned)i);
    if (i) buffer_append_string(text, ",", NULL);
    put_space(text);
    if (object) {
      put_string(text, meaning, begin, true);
      put_space(text);
      buffer_append_string(text, ":", NULL);
      put_space(text);
    }
    put_value(text, meaning, depth + 1);
    put_space(text);
  }
  if (n == 0) put_space(text);
  buffer_append_string(text, object ? "}" : "]", NULL);
  buffer_append_string(meaning, object ? "}" : "]", NULL);
}

static void put_value(Buffer *text, Buffer *meaning, int depth) {
  static const char *const words[] = {"true",  "false", "null", "0",
                                      "-1.50", "2E+3",  "-0",   "123456789012345678"};
  const uint32_t kind = below(depth < 4 ? 8 : 4);
  if (kind >= 4) {
    put_container(text, meaning, depth, kind & 1);
  } else if (kind >= 2) {
    put_string(text, meaning, "", false);
  } else {
    const char *word = words[below(8)];
    buffer_append_string(text, word, NULL);
    buffer_printf(meaning, NULL, "%s;", word);
  }
}

static void mean_tree(Buffer *meaning, const Json *value) {
  size_t size, count = 0;
  bool truth = false;
  if (json_is_string(value)) {
    const char *bytes = json_string(value, &size);
    mean_bytes(meaning, bytes, size);
  } else if (json_is_number(value)) {
    const char *digits = json_number(value, &size);
    buffer_printf(meaning, NULL, "%.*s;", (int)size, digits);
  } else if (json_is_array(value) || json_is_object(value)) {
    const bool object = json_is_object(value);
    buffer_append_string(meaning, object ? "{" : "[", NULL);
    for (const Json *item = json_first(value); item; item = json_next(item), count++) {
      if (object) mean_bytes(meaning, json_key(item), strlen(json_key(item)));
      mean_tree(meaning, item);
    }
    assert_int_equal(json_count(value), count);
    buffer_append_string(meaning, object ? "}" : "]", NULL);
  } else {
    assert_int_equal(json_bool(value, &truth), json_is_bool(value));
    buffer_append_string(meaning, !json_is_bool(value) ? "null;" : truth ? "true;" : "false;", NULL);
  }
}

static void mean_cursor_string(Buffer *meaning, JsonCursor *cursor) {
  Buffer bytes = {0};
  bool is_string;
  assert_int_equal(json_cursor_string(cursor, &bytes, &is_string, NULL), STATUS_OK);
  assert_true(is_string);
  mean_bytes(meaning, bytes.data ? bytes.data : "", bytes.size);
  buffer_release(&bytes);
}

/* Passes over some values whole, whose text then means the same. */
static void mean_cursor(Buffer *meaning, JsonCursor *cursor, int depth) {
  const char open = *cursor->at;
  bool first = true;
  if (open == '"') {
    mean_cursor_string(meaning, cursor);
  } else if (depth && below(4) == 0) {
    JsonCursor inside = json_cursor(json_cursor_value(cursor));
    mean_cursor(meaning, &inside, 0);
  } else if (json_cursor_enter(cursor, '{') || json_cursor_enter(cursor, '[')) {
    buffer_append(meaning, &open, 1, NULL);
    while (json_cursor_next(cursor, &first)) {
      if (open == '{') mean_cursor_string(meaning, cursor);
      mean_cursor(meaning, cursor, depth + 1);
    }
    buffer_append_string(meaning, open == '{' ? "}" : "]", NULL);
  } else {
    const JsonSpan word = json_cursor_value(cursor);
    buffer_printf(meaning, NULL, "%.*s;", (int)word.size, word.text);
  }
}

static void assert_same_meaning(const Buffer *got, const Buffer *want, const Buffer *text, const char *by) {
  if (got->size != want->size || memcmp(got->data, want->data, want->size) != 0)
    fail_msg("%s: %.*s\nis %.*s\nexpected %.*s", by, (int)text->size, text->data, (int)got->size, got->data,
             (int)want->size, want->data);
}

TEST(trees_and_cursors_say_what_was_written) {
  Buffer text = {0}, want = {0}, got = {0};
  size_t bytes = 0;
  for (int round = 0; round < 600; round++) {
    text.size = want.size = got.size = 0;
    put_space(&text);
    put_value(&text, &want, 0);
    put_space(&text);
    bytes += text.size;
    char *exact = malloc(text.size); /* nothing stands after it */
    memcpy(exact, text.data, text.size);
    Json *tree = parsed(exact, text.size);
    mean_tree(&got, tree);
    json_free(tree);
    assert_same_meaning(&got, &want, &text, "tree");
    got.size = 0;
    JsonCursor cursor = json_cursor((JsonSpan){exact, text.size});
    mean_cursor(&got, &cursor, 0);
    assert_same_meaning(&got, &want, &text, "cursor");
    free(exact);
  }
  assert_in_range(bytes, 100000, 10000000);
  buffer_release(&text);
  buffer_release(&want);
  buffer_release(&got);
}

/* Any bytes: what is no UTF-8 is U+FFFD, the rest comes back. */
TEST(written_strings_are_read_back) {
  static const char *const pieces[] = {"a",
                                       "\"",
                                       "\\",
                                       "/",
                                       "\n",
                                       "\x01",
                                       "\x7f",
                                       "\xc2\x85",
                                       "\xe2\x80\xa8",
                                       "\xf0\x9f\x98\x80",
                                       "\xff",
                                       "\xe2\x82",
                                       "\xef\xbf\xbd"};
  Buffer out = {0}, want = {0}, bytes = {0};
  for (int round = 0; round < 3000; round++) {
    out.size = want.size = bytes.size = 0;
    uint32_t last = 0;
    for (uint32_t n = below(8); n > 0; n--) {
      const uint32_t i = below(13);
      buffer_append_string(&bytes, pieces[i], NULL);
      buffer_append_string(&want, i == 10 || i == 11 ? "\xef\xbf\xbd" : pieces[i], NULL);
      last = i;
    }
    if (last == 6 && bytes.size % 2) { /* a NUL too */
      buffer_append(&bytes, "", 1, NULL);
      buffer_append(&want, "", 1, NULL);
    }
    assert_int_equal(json_write_string(&out, bytes.data ? bytes.data : "", bytes.size, NULL), STATUS_OK);
    Json *tree = parsed(out.data, out.size);
    size_t size;
    const char *read = json_string(tree, &size);
    assert_int_equal(size, want.size);
    assert_memory_equal(read, want.size ? want.data : "", size);
    json_free(tree);
  }
  buffer_release(&out);
  buffer_release(&want);
  buffer_release(&bytes);
}

/* --- duplicate keys, whichever two of however many; the objects before and around are of other keys */

TEST(any_two_equal_keys_are_found) {
  Buffer text = {0};
  for (int n = 2; n <= 20; n++) {
    for (int second = 1; second < n; second++) {
      for (int first = -1; first < second; first++) { /* -1: all are different */
        char expected[64];
        size_t at = 0;
        text.size = 0;
        buffer_append_string(&text, "{\"k3\":{\"k3\":0,\"k4\":{}},\"o\":{", NULL);
        for (int i = 0; i < n; i++) {
          buffer_append_string(&text, i ? ",\"" : "\"", NULL);
          if (i == second) at = text.size;
          buffer_printf(&text, NULL, "k%d\":{\"k%d\":1}", i == second && first >= 0 ? first : i, i);
        }
        buffer_append_string(&text, "},\"k4\":0}", NULL);
        Error err = {{0}};
        Status status = json_parse("name", STATUS_MODEL, text.data, text.size, NULL, 0, NULL, &err);
        assert_int_equal(status, first < 0 ? STATUS_OK : STATUS_MODEL);
        snprintf(expected, sizeof expected, "name:1:%zu: duplicate key \"k%d\"", at + 1, first);
        if (first >= 0) assert_string_equal(err.text, expected);
      }
    }
  }
  buffer_release(&text);
}

/* --- limits */

static Status parse_limited(const Buffer *text, JsonSkip *skip, bool tree_wanted, Error *err) {
  Json *tree = NULL;
  Status status = json_parse("name", STATUS_MODEL, text->data, text->size, skip, skip != NULL,
                             tree_wanted ? &tree : NULL, err);
  json_free(tree);
  return status;
}

/* An array of that many zeros, which is a value too, in an object, which is another. */
static void put_zeros(Buffer *text, size_t n) {
  text->size = 0;
  buffer_append_string(text, "{\"a\":[0", NULL);
  for (size_t i = 1; i < n; i++) buffer_append(text, ",0", 2, NULL);
  buffer_append_string(text, "]}", NULL);
}

TEST(a_tree_has_at_most_a_million_values) {
  const size_t most = 1 << 20;
  Buffer text = {0};
  Error err = {{0}};
  JsonSkip skip = {.path = "a"};
  put_zeros(&text, most - 2);
  assert_int_equal(parse_limited(&text, NULL, true, &err), STATUS_OK);
  put_zeros(&text, most - 1);
  assert_int_equal(parse_limited(&text, NULL, true, &err), STATUS_MODEL);
  assert_string_equal(err.text, "name:1:2097155: more than 1048576 values");
  assert_int_equal(parse_limited(&text, NULL, false, &err), STATUS_OK);
  assert_int_equal(parse_limited(&text, &skip, true, &err),
                   STATUS_OK); /* what is skipped is not in the tree */
  buffer_release(&text);
}

TEST(a_text_has_at_most_a_gigabyte) {
  const size_t most = (size_t)1 << 30;
  Error err = {{0}};
  char *text = mmap(NULL, most + 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  assert_true(text != MAP_FAILED);
  assert_int_equal(json_parse("name", STATUS_MODEL, text, most, NULL, 0, NULL, &err), STATUS_MODEL);
  assert_string_equal(err.text, "name:1:1: expected a value, found byte 0x00");
  assert_int_equal(json_parse("name", STATUS_MODEL, text, most + 1, NULL, 0, NULL, &err), STATUS_MODEL);
  assert_string_equal(err.text, "name: 1073741825 bytes of JSON, expected at most 1073741824");
  munmap(text, most + 1);
}

TEST(up_to_32_members_are_skipped) {
  JsonSkip skips[33];
  char paths[33][4];
  Buffer text = {0};
  Error err = {{0}};
  for (int i = 0; i < 33; i++) {
    snprintf(paths[i], sizeof paths[i], "m%d", i);
    skips[i] = (JsonSkip){.path = paths[i]};
    buffer_printf(&text, NULL, "%s\"m%d\":%d", i ? "," : "{", i, 100 + i);
  }
  buffer_append_string(&text, "}", NULL);
  for (size_t n = 31; n <= 32; n++) {
    Json *tree;
    assert_int_equal(json_parse("name", STATUS_MODEL, text.data, text.size, skips, n, &tree, &err),
                     STATUS_OK);
    for (size_t i = 0; i < 33; i++) {
      if (i < n) assert_int_equal(atoi(skips[i].span.text), 100 + (int)i);
      assert_int_equal(json_member(tree, paths[i]) == NULL, i < n);
    }
    json_free(tree);
  }
  assert_int_equal(json_parse("name", STATUS_MODEL, text.data, text.size, skips, 33, NULL, &err),
                   STATUS_FAILED);
  assert_string_equal(err.text, "name: 33 members to skip, at most 32");
  buffer_release(&text);
}

TEST(long_texts_are_cut_in_messages) {
  char digits[81], found[64], text[400], expected[400];
  Error err = {{0}};
  memset(digits, '7', 80);
  digits[80] = 0;
  for (int n = 39; n <= 62; n++) {
    snprintf(text, sizeof text, "[%.*s,\"%.*s\"]", n, digits, n, digits);
    Json *tree = parsed(text, strlen(text));
    snprintf(expected, sizeof expected, "%.*s", n < 60 ? n : 60, digits);
    assert_string_equal(json_describe(json_first(tree), found), expected);
    snprintf(expected, sizeof expected, "\"%.*s\"", n < 40 ? n : 40, digits);
    assert_string_equal(json_describe(json_next(json_first(tree)), found), expected);
    json_free(tree);
    JsonCursor cursor = json_cursor((JsonSpan){text + 1, (size_t)n});
    snprintf(expected, sizeof expected, "%.*s%s", n < 40 ? n : 40, digits, n > 40 ? "..." : "");
    assert_string_equal(json_cursor_describe(cursor, found), expected);
  }
  for (int n = 99; n <= 102; n++) {
    char key[120];
    snprintf(key, sizeof key, "%020d%.*s", 0, n - 20,
             "77777777777777777777777777777777777777777777777777777777"
             "77777777777777777777777777777777777777777777");
    snprintf(text, sizeof text, "{\"%s\":1,\"%s\":2}", key, key);
    assert_int_equal(json_parse("name", STATUS_MODEL, text, strlen(text), NULL, 0, NULL, &err), STATUS_MODEL);
    snprintf(expected, sizeof expected, "name:1:%d: duplicate key \"%.100s\"", n + 8, key);
    assert_string_equal(err.text, expected);
  }
}

TEST(typed_members_keep_their_limits) {
  static const char text[] =
      "{\"low\":-3,\"high\":8,\"below\":-4,\"above\":9,\"null\":null,\"yes\":true,\"no\":false,"
      "\"empty\":\"\"}";
  const JsonSource source = {"file", STATUS_MODEL};
  const struct {
    const char *key;
    int64_t value; /* 99: refused */
  } cases[] = {{"low", -3}, {"high", 8}, {"below", 99}, {"above", 99}, {"null", 5}, {"absent", 5}};
  Json *tree = parsed(text, sizeof text - 1);
  Error err = {{0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const Status want = cases[i].value == 99 ? STATUS_MODEL : STATUS_OK;
    int64_t integer = 7;
    double number = 7;
    assert_int_equal(json_get_int(source, tree, cases[i].key, -3, 8, 5, &integer, &err), want);
    if (!want) assert_int_equal(integer, cases[i].value);
    assert_int_equal(json_get_double(source, tree, cases[i].key, -3, 8, 5, &number, &err), want);
    if (!want) assert_true(number == (double)cases[i].value);
    if (want) assert_non_null(strstr(err.text, ", expected a number from -3 to 8"));
  }
  for (int fallback = 0; fallback < 2; fallback++) {
    static const char *const keys[] = {"no", "yes", "null", "absent"};
    for (int i = 0; i < 4; i++) {
      bool truth = !fallback;
      assert_int_equal(json_get_bool(source, tree, keys[i], fallback, &truth, &err), STATUS_OK);
      assert_int_equal(truth, i < 2 ? i : fallback);
    }
  }
  const char *string = "x";
  assert_int_equal(json_get_string(source, tree, "null", &string, &err), STATUS_OK);
  assert_null(string);
  assert_int_equal(json_get_string(source, tree, "empty", &string, &err), STATUS_OK);
  assert_string_equal(string, "");
  assert_int_equal(json_count(json_member(tree, "low")) + json_count(NULL), 0);
  assert_null(json_first(json_member(tree, "empty")));
  assert_false(json_string_is(json_member(tree, "low"), "-3"));
  json_free(tree);
}
