/* test_buffer.c - bytes and ids that grow, checked memory, sizes in words, and messages that a terminal can
 * show. */
#include "base/buffer.h"
#include "base/size_text.h"
#include "base/utf8.h"
#include "test/tests.h"

TEST(a_buffer_holds_what_was_appended) {
  enum { N = 100000 };
  Buffer buffer = {0};
  Error err;
  assert_int_equal(buffer_append(&buffer, NULL, 0, &err), STATUS_OK);
  assert_null(buffer.data);
  size_t n_moves = 0, capacity = 0;
  for (int i = 0; i < N; i++) {
    unsigned char piece[3] = {(unsigned char)i, 0, (unsigned char)(i >> 8)};
    assert_int_equal(buffer_append(&buffer, piece, 3, &err), STATUS_OK);
    assert_int_equal(buffer.size, 3 * (i + 1));
    assert_true(buffer.size <= buffer.capacity);
    if (buffer.capacity != capacity) n_moves++;
    capacity = buffer.capacity;
  }
  /* grown by half each time from 16: log(300000 / 16) / log(1.5) = 24.3 moves */
  assert_in_range(n_moves, 1, 26);
  for (int i = 0; i < N; i++) {
    const unsigned char *piece = (const unsigned char *)buffer.data + 3 * (size_t)i;
    assert_true(piece[0] == (unsigned char)i && piece[1] == 0 && piece[2] == (unsigned char)(i >> 8));
  }
  buffer_release(&buffer);
  assert_null(buffer.data);
  assert_int_equal(buffer.size + buffer.capacity, 0);
}

TEST(a_buffer_prints) {
  Buffer buffer = {0};
  Error err;
  assert_int_equal(buffer_append_string(&buffer, "a", &err), STATUS_OK);
  for (int i = 0; i < 100; i++) {
    assert_int_equal(buffer_printf(&buffer, &err, "%d %s;", i, "text"), STATUS_OK);
    assert_true(buffer.size < buffer.capacity && buffer.data[buffer.size] == 0);
  }
  assert_int_equal(buffer.size, 1 + 10 * 7 + 90 * 8);
  assert_memory_equal(buffer.data, "a0 text;1 text;", 15);
  assert_memory_equal(buffer.data + buffer.size - 9, ";99 text;", 9);
  buffer_release(&buffer);
}

TEST(ids_are_kept) {
  IdList list = {0};
  Error err;
  for (int32_t i = 0; i < 1000; i++) {
    assert_int_equal(id_list_append(&list, -i, &err), STATUS_OK);
    assert_true(list.count <= list.capacity);
  }
  assert_int_equal(list.count, 1000);
  for (int32_t i = 0; i < 1000; i++) assert_int_equal(list.ids[i], -i);
  id_list_release(&list);
  assert_null(list.ids);
}

TEST(what_no_memory_can_hold_is_refused) {
  Error err;
  assert_null(mem_alloc(SIZE_MAX / 2, 3, "a thing", &err));
  assert_non_null(strstr(err.text, "out of memory: a thing needs"));
  assert_null(mem_alloc(1, (size_t)PTRDIFF_MAX + 1, "a thing", &err));
  void *nothing = mem_alloc(0, 8, "a thing", &err);
  assert_non_null(nothing);
  free(nothing);

  Buffer buffer = {0};
  assert_int_equal(buffer_append(&buffer, "text", 4, &err), STATUS_OK);
  size_t capacity = buffer.capacity;
  assert_int_equal(buffer_append(&buffer, "text", SIZE_MAX, &err), STATUS_FAILED); /* the sum overflows */
  assert_int_equal(buffer_append(&buffer, "text", (size_t)PTRDIFF_MAX, &err), STATUS_FAILED);
  void *data = buffer.data;
  assert_int_equal(mem_grow(&data, &buffer.capacity, SIZE_MAX / 2, 16, "text", &err), STATUS_FAILED);
  assert_true(data == buffer.data && buffer.capacity == capacity && buffer.size == 4);
  assert_memory_equal(buffer.data, "text", 4); /* untouched and still owned */
  buffer_release(&buffer);
}

TEST(memory_is_zeroed) {
  unsigned char *memory = mem_alloc(1000, 3, "a thing", NULL);
  for (int i = 0; i < 3000; i++) assert_int_equal(memory[i], 0);
  free(memory);
}

TEST(messages_can_be_shown) {
  Error err;
  assert_int_equal(error_set(&err, STATUS_MODEL, "%s: %d", "a\n\x1b[31m\xc3\xa4\xff\x7f\xc2\x9b.", 5),
                   STATUS_MODEL);
  assert_string_equal(err.text,
                      "a??[31m\xc3\xa4?\?\?\?.: 5"); /* C2 9B is a control character too: two bytes */
  assert_int_equal(error_set(NULL, STATUS_USAGE, "%s", "nobody listens"), STATUS_USAGE);

  char longer[3 * 1024 + 1]; /* cut inside a character: what is left of it must not stay */
  for (int i = 0; i < 1024; i++) memcpy(longer + 3 * i, "\xe2\x82\xac", 3);
  longer[sizeof longer - 1] = 0;
  error_set(&err, STATUS_FAILED, "x%s", longer);
  assert_int_equal(strlen(err.text), sizeof err.text - 1);
  assert_int_equal(utf8_valid_prefix(err.text, strlen(err.text)), strlen(err.text));
}

TEST(sizes_can_be_read) {
  assert_string_equal(size_text(0).text, "0 bytes");
  assert_string_equal(size_text(1023).text, "1023 bytes");
  assert_string_equal(size_text(1024).text, "1.0 KiB");
  assert_string_equal(size_text(1536).text, "1.5 KiB");
  assert_string_equal(size_text(100000000).text, "95.4 MiB");
  static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  for (int i = 0; i < 6; i++) {
    char expected[16];
    const char *unit;
    snprintf(expected, sizeof expected, "1.0 %s", units[i]);
    assert_string_equal(size_text((uint64_t)1 << 10 * (i + 1)).text, expected);
    assert_true(size_in_unit((uint64_t)3 << (10 * (i + 1) - 1), &unit) == 1.5);
    assert_string_equal(unit, units[i]);
  }
  assert_string_equal(size_text(UINT64_MAX).text, "16.0 EiB");
}
