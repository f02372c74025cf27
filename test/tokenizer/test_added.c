/* test_added.c - added tokens: which ones are found where, and that a person's text cannot bring special
 * ones in.
 *
 * All tokenizers here have a byte as its own id, and added tokens from 256 on. */
#include "small.h"

static Tokenizer *with_tokens(const char *const contents[][2], size_t n) {
  Buffer json = {0};
  for (size_t i = 0; i < n; i++) {
    char token[TOKEN_SIZE];
    buffer_printf(&json, NULL, "%c%s", i ? ',' : '[', token_json(token, contents[i][0], contents[i][1]));
  }
  buffer_append(&json, "]", 2, NULL);
  Tokenizer *tokenizer = make_bytes(json.data);
  buffer_release(&json);
  return tokenizer;
}

static void the_longest_of_the_leftmost_counts(void **state) {
  (void)state;
  static const char *const tokens[][2] = {{"<a>", ""}, {"<a><b>", ""}, {"b><", ""}, {"<a", "s"}};
  Tokenizer *t = with_tokens(tokens, 4);
  assert_ids(t, "<a><b>", PLAIN, "257");
  assert_ids(t, "<a><b", PLAIN, "256 60 98");
  assert_ids(t, "x<a<a>", PLAIN, "120 259 256");
  assert_ids(t, "<b><a>", PLAIN, "60 258 97 62"); /* "b><" is there before "<a>" */
  /* A special token that does not count takes its place all the same. */
  assert_ids(t, "<a<a>", (EncodeOptions){false, false}, "60 97 256");
  tokenizer_close(t);
}

static void single_words_and_stripped_space(void **state) {
  (void)state;
  static const char *const tokens[][2] = {
      {"word", "w"}, {"<l>", "l"}, {"<r>", "r"}, {"<b>", "lr"}, {"\\n\\n", "lr"}};
  Tokenizer *t = with_tokens(tokens, 5);
  assert_ids(t, "word", PLAIN, "256");
  assert_ids(t, "-word.", PLAIN, "45 256 46");
  assert_ids(t, "swordé word", PLAIN, "115 119 111 114 100 195 169 32 256");
  assert_ids(t, "a \t\n<l> b", PLAIN, "97 257 32 98");
  assert_ids(t, "a <r>\xe2\x80\x83 b", PLAIN, "97 32 258 98");
  assert_ids(t, "a <b> <b> b", PLAIN, "97 259 259 98");
  assert_ids(t, "<r>  <l>", PLAIN, "258 257"); /* the space goes to the first one */
  assert_ids(t, "\n\n\n\n", PLAIN, "260");     /* the second one lies in what the first one took */
  tokenizer_close(t);
}

/* A million matches, each with half a million characters of white space behind it: whether one that was
 * stripped is walked over once or each time is the difference between milliseconds and hours. */
static void stripping_takes_linear_time(void **state) {
  (void)state;
  static const char *const tokens[][2] = {{"\\n\\n", "r"}, {"  ", "r"}, {"\\t", ""}};
  Tokenizer *t = with_tokens(tokens, 3);
  enum { SIZE = 1000002 };
  char *text = malloc(SIZE);
  assert_non_null(text);
  IdList ids = {0};
  Error err;
  memset(text, '\n', SIZE);
  assert_int_equal(tokenizer_encode(t, text, SIZE, PLAIN, &ids, &err), STATUS_OK);
  assert_int_equal(ids.count, SIZE / 2);
  assert_int_equal(ids.ids[SIZE / 2 - 1], 256);
  /* "  \t" again and again: the tabs, which strip nothing, are found within what the spaces stripped. */
  for (int i = 0; i < SIZE; i++) text[i] = i % 3 == 2 ? '\t' : ' ';
  ids.count = 0;
  assert_int_equal(tokenizer_encode(t, text, SIZE, PLAIN, &ids, &err), STATUS_OK);
  assert_int_equal(ids.count, SIZE / 3 * 2);
  id_list_release(&ids);
  free(text);
  tokenizer_close(t);
}

static void ids_follow_the_vocabulary(void **state) {
  (void)state;
  static const char *const tokens[][2] = {{"<x>", "s"}, {"a", ""}, {"<y>", ""}};
  Tokenizer *t = with_tokens(tokens, 3);
  assert_int_equal(tokenizer_n_ids(t), 258);
  assert_int_equal(tokenizer_find(t, "<x>"), 256);
  assert_int_equal(tokenizer_find(t, "a"), 97);
  assert_int_equal(tokenizer_find(t, "<y>"), 257);
  assert_int_equal(tokenizer_find(t, "<z>"), -1);
  assert_true(tokenizer_is_special(t, 256));
  assert_false(tokenizer_is_special(t, 257));
  assert_false(tokenizer_is_special(t, -1));
  assert_false(tokenizer_is_special(t, 1 << 30));
  size_t size;
  assert_string_equal(tokenizer_content(t, 256, &size), "<x>");
  assert_string_equal(tokenizer_content(t, ' ', &size), "\xc4\xa0"); /* U+0120 stands for a space */
  assert_int_equal(size, 2);
  assert_null(tokenizer_content(t, 258, &size));
  assert_null(tokenizer_content(t, -1, &size));
  tokenizer_close(t);
}

/* Encodes pieces "t:..." (trusted) and "p:..." (a person's). */
static void assert_pieces(const Tokenizer *t, const char *const *texts, size_t n, const char *expected) {
  PromptPiece pieces[8];
  for (size_t i = 0; i < n; i++)
    pieces[i] = (PromptPiece){texts[i] + 2, strlen(texts[i] + 2), texts[i][0] == 't'};
  IdList ids = {0};
  Error err = {{0}};
  char found[1024];
  assert_int_equal(tokenizer_encode_pieces(t, pieces, n, false, &ids, &err), STATUS_OK);
  assert_string_equal(ids_text(&ids, found, sizeof found), expected);
  id_list_release(&ids);
}

#define PIECES(...)                                                                                          \
  ((const char *const[]){__VA_ARGS__}), sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)

static void check_trust(const char *flags, const char *normalizer) {
  char one[TOKEN_SIZE], two[TOKEN_SIZE], added[3 * TOKEN_SIZE], flags_of_two[4] = "";
  if (strchr(flags, 'n')) strcat(flags_of_two, "n");
  snprintf(added, sizeof added, "[%s, %s]", token_json(one, "<s>", flags),
           token_json(two, "<t>", flags_of_two));
  char *vocab = byte_vocab(NULL);
  Tokenizer *t =
      make((Parts){.added = added, .pre_tokenizer = BYTE_LEVEL, .normalizer = normalizer, .vocab = vocab});
  free(vocab);
  assert_pieces(t, PIECES("t:<s>a", "p:<s>", "t:<s>"), "256 97 60 115 62 256");
  assert_pieces(t, PIECES("t:<", "p:s", "t:>"), "60 115 62");
  assert_pieces(t, PIECES("t:<s", "p:>"), "60 115 62");
  assert_pieces(t, PIECES("p:<", "t:s>"), "60 115 62");
  assert_pieces(t, PIECES("p:<s", "t:>"), "60 115 62");
  assert_pieces(t, PIECES("p:<s>", "t:"), "60 115 62");
  assert_pieces(t, PIECES("t:<s", "t:>"), "256"); /* trusted from end to end */
  assert_pieces(t, PIECES("p:<t", "t:>"), "257"); /* what is not special counts everywhere */
  assert_pieces(t, PIECES("p:<s><t", "t:>", "p:x<s>"), "60 115 62 257 120 60 115 62");
  assert_pieces(t, PIECES("t:<s>", "p:", "t:<s>"), "256 256");
  tokenizer_close(t);
}

static void special_tokens_count_in_trusted_pieces_only(void **state) {
  (void)state;
  check_trust("s", NULL);
  check_trust("sn", NULL);
  check_trust("s", "{\"type\": \"NFC\"}");
  check_trust("sn", "{\"type\": \"NFC\"}");
  check_trust("sn", "{\"type\": \"Lowercase\"}");
}

/* A person's text can neither make a token of the template longer nor take a part of it. */
static void a_border_is_never_taken(void **state) {
  (void)state;
  static const char *const tokens[][2] = {{"<|e|>", "s"}, {"x<|e", "s"}, {"<|e|>!", "s"}};
  Tokenizer *t = with_tokens(tokens, 3);
  assert_pieces(t, PIECES("t:x<|e|>"), "257 124 62");
  assert_pieces(t, PIECES("p:x", "t:<|e|>"), "120 256");
  tokenizer_close(t);
}

/* U+01D5 is three characters in NFD, and so are its other spellings: tokens are looked for in what the
 * normalizer makes. U+01D7 is looked for in the text as it came. */
static void normalized_tokens(void **state) {
  (void)state;
  char one[TOKEN_SIZE], two[TOKEN_SIZE], added[3 * TOKEN_SIZE];
  snprintf(added, sizeof added, "[%s, %s]", token_json(one, "\\u01d5", "n"), token_json(two, "\\u01d7", ""));
  char *vocab = byte_vocab(NULL);
  Tokenizer *t = make((Parts){
      .added = added, .pre_tokenizer = BYTE_LEVEL, .vocab = vocab, .normalizer = "{\"type\": \"NFD\"}"});
  free(vocab);
  assert_ids(t, "\xc7\x95", PLAIN, "256");
  assert_ids(t, "\xc3\x9c\xcc\x84", PLAIN, "256");  /* U+00DC U+0304 */
  assert_ids(t, "U\xcc\x88\xcc\x84", PLAIN, "256"); /* U U+0308 U+0304 */
  assert_ids(t, "\xc7\x97", PLAIN, "257");
  assert_ids(t, "U\xcc\x88\xcc\x81", PLAIN, "85 204 136 204 129");
  tokenizer_close(t);
}

static void broken_text_is_refused_with_its_place(void **state) {
  (void)state;
  Tokenizer *t = make_bytes("[]");
  IdList ids = {0};
  Error err;
  assert_int_equal(tokenizer_encode(t, "ab\xc3", 3, PLAIN, &ids, &err), STATUS_USAGE);
  assert_string_equal(err.text, "the text is not valid UTF-8 at byte 2");
  const PromptPiece halves[] = {{"ab\xc3", 3, true}, {"\xa9", 1, true}};
  assert_int_equal(tokenizer_encode_pieces(t, halves, 2, false, &ids, &err), STATUS_USAGE);
  const PromptPiece second[] = {{"ab", 2, true}, {"c\xff", 2, false}};
  assert_int_equal(tokenizer_encode_pieces(t, second, 2, false, &ids, &err), STATUS_USAGE);
  assert_string_equal(err.text, "the text is not valid UTF-8 at byte 3");
  assert_int_equal(ids.count, 0);
  assert_int_equal(tokenizer_encode_pieces(t, NULL, 0, true, &ids, &err), STATUS_OK);
  assert_int_equal(ids.count, 0);
  assert_int_equal(tokenizer_encode(t, "a\0b", 3, PLAIN, &ids, &err), STATUS_OK);
  assert_int_equal(ids.count, 3);
  id_list_release(&ids);
  tokenizer_close(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_longest_of_the_leftmost_counts),
      cmocka_unit_test(single_words_and_stripped_space),
      cmocka_unit_test(stripping_takes_linear_time),
      cmocka_unit_test(ids_follow_the_vocabulary),
      cmocka_unit_test(special_tokens_count_in_trusted_pieces_only),
      cmocka_unit_test(a_border_is_never_taken),
      cmocka_unit_test(normalized_tokens),
      cmocka_unit_test(broken_text_is_refused_with_its_place),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
