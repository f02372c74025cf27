/* test_json.c - what JSON is accepted, what is refused and where, and that nothing is lost on the way.
 *
 * The reference is RFC 8259; values are compared exactly. */
#include <math.h>
#include <time.h>

#include "base/json.h"
#include "test/tests.h"
#include "test/transcript.h"

/* A text as it is written, which may hold NULs, and its size. */
#define TEXT(literal) (literal), sizeof(literal) - 1

typedef struct {
  const char *text;
  size_t size;
  const char *message; /* of a refusal: how it must begin after "name" */
} Case;

static Json *accepted(const char *text, size_t size) {
  Json *tree;
  Error err = {{0}};
  Status status = json_parse("name", STATUS_MODEL, text, size, NULL, 0, &tree, &err);
  if (status != STATUS_OK) fail_msg("refused %s: %s", text, err.text);
  assert_non_null(tree);
  assert_int_equal(json_parse("name", STATUS_MODEL, text, size, NULL, 0, NULL, &err), STATUS_OK);
  return tree;
}

/* A value, with its numbers in both forms. */
static void print_value(const Json *tree, FILE *out) {
  char described[64];
  int64_t whole;
  double number;
  Buffer string = {0};
  size_t size;
  if (json_is_string(tree)) {
    const char *text = json_string(tree, &size);
    assert_int_equal(json_write_string(&string, text, size, NULL), STATUS_OK);
    fprintf(out, "    %.*s", (int)string.size, string.data);
    buffer_release(&string);
  } else {
    fprintf(out, "    %s", json_describe(tree, described));
  }
  if (json_is_number(tree)) {
    if (json_int64(tree, &whole)) fprintf(out, ", the integer %lld", (long long)whole);
    if (json_double(tree, &number)) fprintf(out, ", the double %.17g", number);
  }
  fprintf(out, "\n");
}

static void parse_text(const char *text, size_t size, FILE *out) {
  char *copy = malloc(size + 1); /* exactly as long, so that ASan sees a read past its end */
  Json *tree;
  Error err = {{0}};
  int64_t whole = 0, walked = 0;
  memcpy(copy, text, size);
  const Status status = json_parse("name", STATUS_MODEL, copy, size, NULL, 0, &tree, &err);
  assert_int_equal(json_parse("name", STATUS_MODEL, copy, size, NULL, 0, NULL, NULL), status);
  free(copy);
  if (status == STATUS_OK) {
    JsonCursor cursor = json_cursor((JsonSpan){text, size});
    if (json_is_number(tree)) assert_int_equal(json_int64(tree, &whole), json_cursor_int64(&cursor, &walked));
    assert_int_equal(whole, walked);
    print_value(tree, out);
  } else {
    assert_null(tree);
    fprintf(out, "    status %d: %s\n", status, err.text);
  }
  json_free(tree);
}

/* test/data/transcripts/json: below each text, in which %00 is a byte in hexadecimal, are its value or why it
 * is refused. */
static void write_texts(const char *old, FILE *out) {
  char line[TRANSCRIPT_LINE], text[TRANSCRIPT_LINE];
  while (transcript_next_line(&old, line)) {
    if (*line == ' ') continue;
    fprintf(out, "%s\n", line);
    if (*line != '>') continue;
    size_t size = 0;
    for (const char *at = line + 1 + (line[1] == ' '); *at; size++) {
      unsigned byte;
      const bool in_hex = *at == '%' && sscanf(at, "%%%2x", &byte) == 1;
      text[size] = in_hex ? (char)byte : *at;
      at += in_hex ? 3 : 1;
    }
    parse_text(text, size, out);
  }
}

TEST(texts_are_parsed_as_their_transcript_says) {
  check_transcripts("test/data/transcripts/json", write_texts);
}

/* As Python's json module writes it; nothing else of its own is taken. */
TEST(infinity_may_be_pythons) {
  static const char text[] = "{\"a\": [0.0, Infinity]}", object[] = "{\"b\": -Infinity}";
  Json *tree;
  Error err;
  assert_int_equal(json_parse_python("f", STATUS_MODEL, text, sizeof text - 1, &tree, &err), STATUS_OK);
  const Json *list = json_member(tree, "a"), *second = json_next(json_first(list));
  assert_int_equal(json_count(list), 2);
  assert_true(json_string_is(json_member(second, "__float__"), "Infinity"));
  assert_null(json_next(second));
  assert_null(json_next(NULL));
  json_free(tree);
  assert_int_equal(json_parse_python("f", STATUS_MODEL, object, sizeof object - 1, &tree, &err),
                   STATUS_MODEL);
  assert_string_equal(err.text, "f:1:8: expected a digit, found 'I'");
  json_free(tree);
  assert_int_equal(json_parse_python("f", STATUS_MODEL, "[Inf]", 5, &tree, &err), STATUS_MODEL);
  assert_string_equal(err.text, "f:1:2: expected Infinity");
  json_free(tree);
}

TEST(nesting_is_limited_to_512) {
  char text[2 * 513 + 1];
  for (int depth = 512; depth <= 513; depth++) {
    memset(text, '[', (size_t)depth);
    memset(text + depth, ']', (size_t)depth);
    Json *tree;
    Error err;
    Status status = json_parse("name", STATUS_USAGE, text, 2 * (size_t)depth, NULL, 0, &tree, &err);
    assert_int_equal(status, depth == 512 ? STATUS_OK : STATUS_USAGE);
    if (status != STATUS_OK) assert_string_equal(err.text, "name:1:513: nested deeper than 512");
    json_free(tree);
  }
}

TEST(strings_keep_every_byte) {
  Json *tree =
      accepted(TEXT("{\"s\":\"\\u0000a\\u0000\\u0000\\ud83d\\ude00\\n\\/\\u00e4\",\"e\":\"\",\"n\":\"12\","
                    "\"k\\u0000k\":1,\"k\":2,\"z\":null}"));
  size_t size;
  const char *bytes = json_string(json_member(tree, "s"), &size);
  static const char expected[] = "\0a\0\0\xf0\x9f\x98\x80\n/\xc3\xa4";
  assert_int_equal(size, sizeof expected - 1);
  assert_memory_equal(bytes, expected, size);
  json_string(json_member(tree, "e"), &size);
  assert_int_equal(size, 0);
  assert_true(json_is_string(json_member(tree, "n")) && !json_is_number(json_member(tree, "n")));
  assert_true(json_string_is(json_member(tree, "n"), "12"));
  assert_false(json_string_is(json_member(tree, "s"), ""));
  int64_t k;
  assert_true(json_int64(json_member(tree, "k"), &k)); /* not the one whose key goes on after a NUL */
  assert_int_equal(k, 2);
  assert_null(json_member(tree, "z"));
  assert_null(json_member(tree, "absent"));
  assert_int_equal(json_count(tree), 6);
  const Json *first = json_first(tree);
  assert_string_equal(json_key(first), "s");
  const Json *fourth = json_next(json_next(json_next(first)));
  assert_string_equal(json_key(fourth), "k\xc0\x80k");
  Buffer decoded = {0};
  const char *key;
  assert_int_equal(json_key_bytes(fourth, &decoded, &key, &size, NULL), STATUS_OK);
  assert_int_equal(size, 3);
  assert_memory_equal(key, "k\0k", 3);
  assert_int_equal(json_key_bytes(first, &decoded, &key, &size, NULL), STATUS_OK);
  assert_int_equal(size, 1);
  assert_ptr_equal(key, json_key(first));
  buffer_release(&decoded);
  json_free(tree);
}

TEST(what_no_double_holds_is_none) {
  Json *tree = accepted(TEXT("[1e309, -1e309, \"1\", true]"));
  for (const Json *item = json_first(tree); item; item = json_next(item)) {
    double value;
    assert_false(json_double(item, &value));
  }
  json_free(tree);
}

/* --- skipped members */

static void assert_span(JsonSpan span, const char *expected) {
  assert_non_null(span.text);
  assert_int_equal(span.size, strlen(expected));
  assert_memory_equal(span.text, expected, span.size);
}

TEST(skipped_members_are_left_as_text) {
  static const char text[] =
      "{\"model\" : {\"vocab\": {\"a\\u0000\": 1, \"b\" : [ 2 ]} , \"merges\":[\"a b\"],\"unk\":1},"
      "\"vocab\": {\"model\": {\"vocab\": 7}}, \"list\": [{\"vocab\": 8}], \"\\u0078\": \"\\u0000\"}";
  JsonSkip skips[] = {{.path = "model.vocab"}, {.path = "model.merges"}, {.path = "model.vocab.b"},
                      {.path = "x"},           {.path = "list.vocab"},   {.path = "mode"},
                      {.path = "model.absent"}};
  Json *tree;
  Error err;
  assert_int_equal(json_parse("name", STATUS_MODEL, TEXT(text), skips, 7, &tree, &err), STATUS_OK);
  assert_span(skips[0].span, "{\"a\\u0000\": 1, \"b\" : [ 2 ]}");
  assert_span(skips[1].span, "[\"a b\"]");
  assert_span(skips[2].span, "[ 2 ]"); /* inside of another one */
  assert_span(skips[3].span, "\"\\u0000\"");
  for (int i = 4; i < 7; i++) assert_null(skips[i].span.text);
  const Json *model = json_member(tree, "model");
  assert_null(json_member(model, "vocab"));
  assert_null(json_member(model, "merges"));
  assert_non_null(json_member(model, "unk"));
  assert_null(json_member(tree, "x"));
  assert_non_null(json_member(json_member(json_member(tree, "vocab"), "model"), "vocab"));
  assert_non_null(json_member(json_first(json_member(tree, "list")), "vocab"));
  json_free(tree);
}

TEST(skipped_members_are_validated) {
  static const Case cases[] = {{TEXT("{\"a\": {\"b\": 1, \"b\": 2}}"), ":1:17: duplicate key \"b\""},
                               {TEXT("{\"a\": [01]}"), ":1:8: a number begins with a needless 0"},
                               {TEXT("{\"a\": \"\xff\"}"), ":1:8: invalid UTF-8"},
                               {TEXT("{\"a\": 1, \"a\": 2}"), ":1:11: duplicate key \"a\""}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    JsonSkip skip = {.path = "a"};
    Json *tree;
    Error err;
    Status status = json_parse("name", STATUS_MODEL, cases[i].text, cases[i].size, &skip, 1, &tree, &err);
    assert_int_equal(status, STATUS_MODEL);
    assert_null(tree);
    assert_null(skip.span.text);
    assert_memory_equal(err.text + 4, cases[i].message, strlen(cases[i].message));
  }
}

/* --- typed members */

TEST(members_of_a_wrong_type_are_named) {
  Json *tree = accepted(TEXT(
      "{\"i\": 5, \"f\": 0.5, \"s\": \"x\", \"z\": \"a\\u0000b\", \"b\": true, \"n\": null, \"o\": {}}"));
  JsonSource source = {"file", STATUS_MODEL};
  int64_t i = 0;
  double d = 0;
  bool b = false;
  const char *s = NULL;
  Error err;
  assert_int_equal(json_get_int(source, tree, "i", 0, 5, 1, &i, &err), STATUS_OK);
  assert_int_equal(i, 5);
  assert_int_equal(json_get_int(source, tree, "n", 0, 5, 1, &i, &err), STATUS_OK);
  assert_int_equal(i, 1);
  assert_int_equal(json_get_int(source, tree, "i", 0, 4, 1, &i, &err), STATUS_MODEL);
  assert_string_equal(err.text, "file: i is 5, expected an integer from 0 to 4");
  assert_int_equal(json_get_int(source, tree, "f", 0, 4, 1, &i, &err), STATUS_MODEL);
  assert_string_equal(err.text, "file: f is 0.5, expected an integer from 0 to 4");
  assert_int_equal(json_get_double(source, tree, "i", 0, 9, 1, &d, &err), STATUS_OK);
  assert_true(d == 5);
  assert_int_equal(json_get_double(source, tree, "s", 0, 9, 1, &d, &err), STATUS_MODEL);
  assert_string_equal(err.text, "file: s is \"x\", expected a number from 0 to 9");
  assert_int_equal(json_get_bool(source, tree, "b", false, &b, &err), STATUS_OK);
  assert_true(b);
  assert_int_equal(json_get_bool(source, tree, "o", false, &b, &err), STATUS_MODEL);
  assert_string_equal(err.text, "file: o is an object, expected true or false");
  assert_int_equal(json_get_string(source, tree, "s", &s, &err), STATUS_OK);
  assert_string_equal(s, "x");
  assert_int_equal(json_get_string(source, tree, "absent", &s, &err), STATUS_OK);
  assert_null(s);
  assert_int_equal(json_get_string(source, tree, "i", &s, &err), STATUS_MODEL);
  assert_string_equal(err.text, "file: i is 5, expected a string");
  assert_int_equal(json_get_string(source, tree, "z", &s, &err), STATUS_MODEL);
  assert_string_equal(err.text, "file: z is \"a\", expected a string without NUL");
  json_free(tree);
}

/* --- the cursor */

TEST(a_cursor_walks_what_was_validated) {
  static const char text[] = " { \"a\\u0000\\\"\" : [ 1 , -2e1,\"x\" ,{} ,[ ] , [[ \"]\" ]] ], \"b\" :{\"c\" "
                             ":{\"d\":null} } ,\"e\":1.5 } ";
  json_free(accepted(TEXT(text)));
  JsonCursor cursor = json_cursor((JsonSpan){TEXT(text)});
  Buffer key = {0};
  bool first = true, is_string;
  int64_t number;
  Error err;
  assert_false(json_cursor_enter(&cursor, '['));
  assert_true(json_cursor_enter(&cursor, '{'));
  assert_true(json_cursor_next(&cursor, &first));
  assert_int_equal(json_cursor_string(&cursor, &key, &is_string, &err), STATUS_OK);
  assert_true(is_string && key.size == 3);
  assert_memory_equal(key.data, "a\0\"", 3);

  bool first_inside = true;
  assert_true(json_cursor_enter(&cursor, '['));
  assert_true(json_cursor_next(&cursor, &first_inside));
  assert_true(json_cursor_int64(&cursor, &number) && number == 1);
  assert_true(json_cursor_next(&cursor, &first_inside));
  assert_true(json_cursor_int64(&cursor, &number) && number == -20);
  assert_true(json_cursor_next(&cursor, &first_inside));
  assert_false(json_cursor_int64(&cursor, &number));
  assert_span(json_cursor_value(&cursor), "\"x\"");
  assert_true(json_cursor_next(&cursor, &first_inside));
  assert_int_equal(json_cursor_string(&cursor, &key, &is_string, &err), STATUS_OK);
  assert_false(is_string);
  assert_span(json_cursor_value(&cursor), "{}");
  assert_true(json_cursor_next(&cursor, &first_inside));
  assert_span(json_cursor_value(&cursor), "[ ]");
  assert_true(json_cursor_next(&cursor, &first_inside));
  assert_span(json_cursor_value(&cursor), "[[ \"]\" ]]");
  assert_false(json_cursor_next(&cursor, &first_inside));

  assert_true(json_cursor_next(&cursor, &first));
  key.size = 0;
  assert_int_equal(json_cursor_string(&cursor, &key, &is_string, &err), STATUS_OK);
  assert_span(json_cursor_value(&cursor), "{\"c\" :{\"d\":null} }");
  assert_true(json_cursor_next(&cursor, &first));
  assert_int_equal(json_cursor_string(&cursor, &key, &is_string, &err), STATUS_OK);
  assert_false(json_cursor_int64(&cursor, &number));
  assert_span(json_cursor_value(&cursor), "1.5");
  assert_false(json_cursor_next(&cursor, &first));
  buffer_release(&key);
}

TEST(what_is_found_is_described) {
  static const char text[] = "[null, true, -0.50, \"a\\u0000b\", {\"a\": 1}, [ 1, \"]\"], \"\"]";
  static const char *const values[] = {"null", "true", "-0.50", "\"a\"", "an object", "an array", "\"\""};
  static const char *const texts[] = {"null",      "true",        "-0.50", "\"a\\u0000b\"",
                                      "an object", "[ 1, \"]\"]", "\"\""};
  char found[64];
  Json *tree = accepted(TEXT(text));
  JsonCursor cursor = json_cursor((JsonSpan){TEXT(text)});
  assert_true(json_cursor_enter(&cursor, '['));
  bool first = true;
  size_t i = 0;
  for (const Json *item = json_first(tree); item; item = json_next(item), i++) {
    assert_string_equal(json_describe(item, found), values[i]);
    assert_true(json_cursor_next(&cursor, &first));
    assert_string_equal(json_cursor_describe(cursor, found), texts[i]); /* the cursor stays */
    json_cursor_value(&cursor);
  }
  assert_int_equal(i, sizeof values / sizeof *values);
  json_free(tree);
  assert_string_equal(json_describe(NULL, found), "missing");
  assert_string_equal(json_cursor_describe(json_cursor((JsonSpan){0}), found), "missing");
  const char *const numbers = "[1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000]";
  cursor = json_cursor((JsonSpan){numbers, strlen(numbers)});
  assert_string_equal(json_cursor_describe(cursor, found), "[1000, 2000, 3000, 4000, 5000, 6000, 700...");
}

/* A member that the caller did not pass over must end the walk, not go on for ever. */
TEST(a_cursor_that_is_not_moved_on_ends) {
  JsonCursor cursor = json_cursor((JsonSpan){TEXT("[1,2]")});
  bool first = true;
  assert_true(json_cursor_enter(&cursor, '['));
  assert_true(json_cursor_next(&cursor, &first));
  assert_false(json_cursor_next(&cursor, &first));
  cursor = json_cursor((JsonSpan){0});
  assert_false(json_cursor_enter(&cursor, '['));
}

/* --- writing */

static void assert_written(const char *text, size_t size, const char *expected) {
  Buffer out = {0};
  Error err;
  assert_int_equal(json_write_string(&out, text, size, &err), STATUS_OK);
  assert_int_equal(out.size, strlen(expected));
  assert_memory_equal(out.data, expected, out.size);
  buffer_release(&out);
}

TEST(strings_are_written_so_that_they_can_be_read) {
  assert_written(TEXT(""), "\"\"");
  assert_written(TEXT("a\"b\\c/"), "\"a\\\"b\\\\c/\"");
  assert_written(TEXT("\0\b\t\n\v\f\r\x1f\x7f"), "\"\\u0000\\b\\t\\n\\u000b\\f\\r\\u001f\\u007f\"");
  assert_written(TEXT("\xc2\x80\xc2\x9f\xc2\xa0"), "\"\\u0080\\u009f\xc2\xa0\"");
  assert_written(TEXT("\xe2\x80\xa7\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xae\xe2\x80\xaf"),
                 "\"\xe2\x80\xa7\\u2028\\u2029\\u202e\xe2\x80\xaf\"");
  assert_written(TEXT("\xd8\x9b\xd8\x9c\xe2\x80\x8d\xe2\x80\x8e\xe2\x81\xa6\xe2\x81\xa9\xe2\x81\xaa"),
                 "\"\xd8\x9b\\u061c\xe2\x80\x8d\\u200e\\u2066\\u2069\xe2\x81\xaa\"");
  assert_written(TEXT("\xf0\x9f\x98\x80"), "\"\xf0\x9f\x98\x80\"");
  /* each maximal part of a broken character is one U+FFFD */
  assert_written(TEXT("a\xffz"), "\"a\xef\xbf\xbdz\"");
  assert_written(TEXT("\xf0\x9f\x98"), "\"\xef\xbf\xbd\"");
  assert_written(TEXT("\xed\xa0\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
}

TEST(a_comma_stands_between_members_and_between_elements) {
  Buffer out = {0};
  const JsonWriter w = {&out, NULL};
  json_put_raw(w, NULL, "{");
  json_put_int(w, "a", -1);
  json_put_size(w, "b", UINT64_MAX);
  json_put_raw(w, "c", "[");
  json_put_text(w, NULL, NULL, 0);
  json_put_string(w, NULL, "[");
  json_put_bool(w, NULL, true);
  json_end(w, "]");
  json_put_raw(w, "d", "{");
  json_put_string(w, "e", NULL);
  json_end(w, "}}\n");
  json_put_raw(w, NULL, "{");
  buffer_append(&out, "", 1, NULL);
  assert_string_equal(out.data, "{\"a\": -1, \"b\": 18446744073709551615, \"c\": [\"\", \"[\", true], "
                                "\"d\": {\"e\": null}}\n{");
  buffer_release(&out);
}

/* --- duplicate keys in large objects */

/* Processor time, on which other programs have no influence. */
static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* An object of n keys; the last one is `last` again. */
static Buffer large_object(int n, const char *last) {
  Buffer text = {0};
  buffer_append_string(&text, "{", NULL);
  for (int i = 0; i < n; i++) buffer_printf(&text, NULL, "\"key%d\":%d,", i, i);
  buffer_printf(&text, NULL, "\"%s\":0}", last);
  return text;
}

/* Five objects of 200,000 keys, each key compared with each, are 1e11 comparisons: more than 10 s on any
 * machine. In linear time they take 0.2 s, under sanitizers 1 s. */
TEST(duplicates_among_many_keys_are_found_in_linear_time) {
  Json *tree = NULL;
  Error err;
  double begin = seconds();
  Buffer text = large_object(200000, "key200000");
  assert_int_equal(json_parse("name", STATUS_MODEL, text.data, text.size, NULL, 0, NULL, &err), STATUS_OK);
  buffer_release(&text);
  static const char *const again[] = {"key0", "key77777", "key199999", "\\u006bey123456"};
  for (int i = 0; i < 4; i++) {
    text = large_object(200000, again[i]);
    assert_int_equal(json_parse("name", STATUS_MODEL, text.data, text.size, NULL, 0, &tree, &err),
                     STATUS_MODEL);
    assert_non_null(strstr(err.text, again[i]));
    buffer_release(&text);
  }
  assert_true(seconds() - begin < 10);
}
