/* fuzz_json.c - hostile JSON: the tree and the cursor must agree about it, and neither may crash.
 *
 * Checked of every input: json_parse() with and without a tree and with skipped members agree on accepting
 * it; a tree and a cursor over the same text hold the same values; a cursor ends on refused texts, too;
 * and any bytes that json_write_string() writes are read back, exactly where they were valid UTF-8. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
  if (!condition) abort();
}

/* Passes over the string at the cursor, which has to be that of `bytes`. */
static void compare_string(JsonCursor *cursor, const char *bytes, size_t size) {
  Buffer walked = {0};
  bool is_string;
  require(json_cursor_string(cursor, &walked, &is_string, NULL) == STATUS_OK && is_string);
  require(walked.size == size && (size == 0 || memcmp(walked.data, bytes, size) == 0));
  buffer_release(&walked);
}

/* A key in a tree has C0 80 for each U+0000, which nothing else in it can be. */
static void compare_key(JsonCursor *cursor, const char *key) {
  Buffer plain = {0};
  for (; *key; key++) {
    bool nul = (unsigned char)*key == 0xc0;
    buffer_append(&plain, nul ? "" : key, 1, NULL);
    key += nul;
  }
  compare_string(cursor, plain.data, plain.size);
  buffer_release(&plain);
}

static void compare_number(JsonCursor *cursor, const Json *tree) {
  int64_t parsed = 0, walked = 0;
  double real;
  bool whole = json_int64(tree, &parsed);
  JsonCursor stays = *cursor;
  require(json_cursor_int64(cursor, &walked) == whole && parsed == walked);
  require(whole || cursor->at == stays.at);
  if (whole)
    require(json_double(tree, &real) && real == (double)parsed);
  else
    json_cursor_value(cursor);
}

static void compare(JsonCursor *cursor, const Json *tree) {
  bool object = json_is_object(tree), first = true;
  if (object || json_is_array(tree)) {
    require(json_cursor_enter(cursor, object ? '{' : '['));
    size_t count = 0;
    for (const Json *item = json_first(tree); item; item = json_next(item), count++) {
      require(json_cursor_next(cursor, &first));
      if (object) compare_key(cursor, json_key(item));
      compare(cursor, item);
    }
    require(!json_cursor_next(cursor, &first) && count == json_count(tree));
  } else if (json_is_string(tree)) {
    size_t size;
    const char *bytes = json_string(tree, &size);
    require(utf8_valid_prefix(bytes, size) == size);
    compare_string(cursor, bytes, size);
  } else if (json_is_number(tree)) {
    compare_number(cursor, tree);
  } else {
    JsonSpan word = json_cursor_value(cursor);
    bool value;
    const char *expected = !json_bool(tree, &value) ? "null" : value ? "true" : "false";
    require(word.size == strlen(expected) && memcmp(word.text, expected, word.size) == 0);
  }
}

/* The same text with members left out: what was left out is valid by itself, and absent from the tree. */
static void check_skips(const char *text, size_t size, Status status) {
  JsonSkip skips[] = {{.path = "a"}, {.path = "b.c"}, {.path = "model.vocab"}};
  Json *tree;
  require(json_parse("text", STATUS_MODEL, text, size, skips, 3, &tree, NULL) == status);
  for (int i = 0; i < 3; i++) {
    if (!skips[i].span.text) continue;
    require(json_parse("span", STATUS_MODEL, skips[i].span.text, skips[i].span.size, NULL, 0, NULL, NULL) ==
            STATUS_OK);
    JsonCursor cursor = json_cursor(skips[i].span);
    require(json_cursor_value(&cursor).size == skips[i].span.size && cursor.at == cursor.end);
  }
  if (skips[0].span.text) require(!json_member(tree, "a"));
  if (skips[1].span.text) require(!json_member(json_member(tree, "b"), "c"));
  json_free(tree);
}

/* Every step goes forward, so that there are at most as many as there are bytes. */
static void walk_anything(const char *text, size_t size) {
  JsonCursor cursor = json_cursor((JsonSpan){text, size});
  for (size_t step = 0; cursor.at < cursor.end; step++) {
    require(step <= size);
    const char *before = cursor.at;
    Buffer string = {0};
    bool is_string, first = step % 2;
    int64_t number;
    if (!json_cursor_enter(&cursor, step % 3 ? '[' : '{')) json_cursor_next(&cursor, &first);
    if (!json_cursor_int64(&cursor, &number)) json_cursor_string(&cursor, &string, &is_string, NULL);
    if (cursor.at == before) json_cursor_value(&cursor);
    require(cursor.at > before && cursor.at <= cursor.end);
    buffer_release(&string);
  }
}

static void check_writing(const char *bytes, size_t size) {
  Buffer text = {0};
  Json *tree;
  require(json_write_string(&text, bytes, size, NULL) == STATUS_OK);
  require(json_parse("written", STATUS_MODEL, text.data, text.size, NULL, 0, &tree, NULL) == STATUS_OK);
  size_t read_size;
  const char *read = json_string(tree, &read_size);
  if (utf8_valid_prefix(bytes, size) == size)
    require(read_size == size && (size == 0 || memcmp(read, bytes, size) == 0));
  json_free(tree);
  buffer_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *text = (const char *)data;
  Json *tree;
  Error err = {{0}};
  Status status = json_parse("text", STATUS_MODEL, text, size, NULL, 0, &tree, &err);
  require(status == STATUS_OK ? tree != NULL : status == STATUS_MODEL && tree == NULL && err.text[0]);
  require(json_parse("text", STATUS_MODEL, text, size, NULL, 0, NULL, NULL) == status);
  check_skips(text, size, status);
  if (status == STATUS_OK) {
    JsonCursor cursor = json_cursor((JsonSpan){text, size});
    compare(&cursor, tree);
  }
  json_free(tree);
  walk_anything(text, size);
  check_writing(text, size);
  return 0;
}
