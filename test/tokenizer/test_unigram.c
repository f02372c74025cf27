/* test_unigram.c - the model "Unigram": which of equal sums counts, unknown characters, and its time.
 *
 * The reference is the Python package tokenizers 0.23.3, whose ids are expected here; test_small.c has many
 * more of them. */
#include "small.h"

#include "base/clock.h"

static void encodes(const char *vocab, const char *options, const char *text, const char *expected) {
  Tokenizer *t = make((Parts){.vocab = vocab, .options = options});
  assert_ids(t, text, PLAIN, expected);
  tokenizer_close(t);
}

static void the_largest_sum_counts(void **state) {
  encodes("[[\"a\", -1], [\"b\", -2], [\"ab\", -2.5]]", NULL, "abab", "2 2");
  encodes("[[\"a\", -1], [\"b\", -2], [\"ab\", -3.5]]", NULL, "abab", "0 1 0 1");
  encodes("[[\"a\", -1], [\"b\", -2], [\"ab\", -3], [\"ba\", -9]]", NULL, "abab", "2 2");
  encodes("[[\"a\", -1], [\"aa\", -2], [\"aaa\", -3]]", NULL, "aaaaa", "1 2");
  encodes("[[\"a\", -1], [\"\", 100]]", NULL, "aa", "0 0"); /* an empty piece is nowhere */
}

/* -2.0154635906219482 is read as the double before it; and sums of doubles depend on their order. */
static void scores_are_read_as_the_reference_reads_them(void **state) {
  encodes("[[\"a\", -2.0154635906219482], [\"b\", 0], [\"ab\", -2.0154635906219480]]", NULL, "ab", "2");
  encodes("[[\"a\", -2.0154635906219482], [\"b\", 0], [\"ab\", -2.0154635906219485]]", NULL, "ab", "0 1");
  encodes("[[\"a\", 100000000000000000000], [\"b\", -1e20], [\"ab\", 1e-400]]", NULL, "ab", "2");
  encodes("[[\"a\", 0e999], [\"b\", -0.0], [\"ab\", 0.0000001e+7]]", NULL, "ab", "2");
  encodes("[[\"a\", 1e308], [\"b\", -1e308]]", NULL, "aabb", "0 0 1 1");
}

#define UNK   "\"unk_id\": 0,"
#define BYTES "\"byte_fallback\": true,"

static void unknown_characters_are_one_token_together(void **state) {
  encodes("[[\"<unk>\", 0], [\"a\", -1]]", UNK, "axya\xc3\xa9", "1 0 1 0");
  encodes("[[\"<unk>\", 0], [\"a\", -1]]", UNK, "<unk>z<unk>a<unk>", "0 1 0");
  /* two unknown characters have a larger sum than the piece, which is then found for both */
  encodes("[[\"<unk>\", 30], [\"xy\", 30]]", UNK, "xy", "1");
  encodes("[[\"<unk>\", 30], [\"xy\", 30]]", UNK, "xyxy", "0");
}

static void bytes_stand_for_unknown_characters(void **state) {
  static const char vocab[] = "[[\"<unk>\", 0], [\"<0xC3>\", -9], [\"<0xA9>\", -9], [\"a\", -1]]";
  encodes(vocab, UNK BYTES, "a\xc3\xa9\xc3\xa9", "3 1 2 1 2");
  encodes(vocab, UNK, "a\xc3\xa9\xc3\xa9", "3 0");
  encodes(vocab, UNK BYTES, "\xc3\xa9z", "0"); /* a byte of the run has no piece: all is unknown */
}

static void an_unknown_character_needs_unk_id(void **state) {
  Tokenizer *t = make((Parts){.vocab = "[[\"a\", -1]]", .options = BYTES});
  IdList ids = {0};
  Error err = {{0}};
  assert_ids(t, "aa", PLAIN, "0 0");
  assert_int_equal(tokenizer_encode(t, "az", 2, PLAIN, &ids, &err), STATUS_MODEL);
  assert_string_equal(err.text, "file: model: unk_id is needed for \"z\" but missing");
  assert_int_equal(ids.count, 0);
  id_list_release(&ids);
  tokenizer_close(t);
}

static void older_files_leave_out_the_type(void **state) {
  static const char json[] = "{\"model\": {\"vocab\": [[\"a\", 0], [\"ab\", 0]], \"unk_id\": 0}}";
  Tokenizer *t;
  Error err;
  assert_int_equal(tokenizer_parse("file", json, sizeof json - 1, &t, &err), STATUS_OK);
  assert_ids(t, "aab", PLAIN, "0 1");
  tokenizer_close(t);
}

/* A megabyte of the beginning of a long piece: each place is one step further into it, or back. */
static void a_long_text_takes_linear_time(void **state) {
  enum { SIZE = 1 << 20, PIECE = 1 << 16 };
  char *text = malloc(SIZE);
  Buffer vocab = {0};
  memset(text, 'a', SIZE);
  buffer_printf(&vocab, NULL, "[[\"a\", -1], [\"aaa\", -2], [\"%.*sb\", 0]]", PIECE, text);
  buffer_append(&vocab, "", 1, NULL);
  Tokenizer *t = make((Parts){.vocab = vocab.data});
  IdList ids = {0};
  const double start = clock_ms();
  assert_int_equal(tokenizer_encode(t, text, SIZE, PLAIN, &ids, NULL), STATUS_OK);
  assert_true(clock_ms() - start < 20000); /* walks into the piece from each place would take minutes */
  assert_int_equal(ids.count, SIZE / 3 + 1);
  id_list_release(&ids);
  tokenizer_close(t);
  buffer_release(&vocab);
  free(text);
}

static void an_interrupted_text_ends(void **state) {
  Tokenizer *t = make((Parts){.vocab = "[[\"a\", -1]]"});
  const volatile int interrupted = 1;
  IdList ids = {0};
  Error err;
  tokenizer_heed(t, &interrupted);
  assert_int_equal(tokenizer_encode(t, "aa", 2, PLAIN, &ids, &err), STATUS_INTERRUPTED);
  id_list_release(&ids);
  tokenizer_close(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_largest_sum_counts),
      cmocka_unit_test(scores_are_read_as_the_reference_reads_them),
      cmocka_unit_test(unknown_characters_are_one_token_together),
      cmocka_unit_test(bytes_stand_for_unknown_characters),
      cmocka_unit_test(an_unknown_character_needs_unk_id),
      cmocka_unit_test(older_files_leave_out_the_type),
      cmocka_unit_test(a_long_text_takes_linear_time),
      cmocka_unit_test(an_interrupted_text_ends),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
