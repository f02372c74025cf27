/* test_declared.c - tokens that the files beside tokenizer.json declare. Ids and texts are those of
 * transformers 5.24's AutoTokenizer (PreTrainedTokenizerFast) for the same files. */
#include <unistd.h>

#include "small.h"
#include "test/directory.h"

/* Writes a text with ' for ", or nothing if it is NULL. */
static void write_quoted(const char *directory, const char *name, const char *text) {
  if (!text) return;
  FILE *file = fopen(in_directory(directory, name), "w");
  assert_non_null(file);
  for (; *text; text++) fputc(*text == '\'' ? '"' : *text, file);
  assert_int_equal(fclose(file), 0);
}

/* A tokenizer.json in which a byte is its own id and 256 is <e>. */
static void write_bytes(const char *directory, bool special) {
  char *vocab = byte_vocab(NULL);
  FILE *file = fopen(in_directory(directory, "tokenizer.json"), "w");
  fprintf(file,
          "{\"version\": \"1.0\", \"added_tokens\": [{\"id\": 256, \"content\": \"<e>\", \"single_word\": "
          "false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": %s}], "
          "\"normalizer\": null, \"pre_tokenizer\": " BYTE_LEVEL
          ", \"post_processor\": null, \"decoder\": " BYTE_LEVEL
          ", \"model\": {\"type\": \"BPE\", \"vocab\": %s, \"merges\": []}}",
          special ? "true" : "false", vocab);
  assert_int_equal(fclose(file), 0);
  free(vocab);
}

typedef struct {
  const char *what;
  bool plain; /* <e> is not special in tokenizer.json */
  const char *config, *added, *map, *text, *ids, *skipped;
} Case;

static const Case cases[] = {
    {"of two with one id the later counts", false, "{}", "{'<a>': 257, '<b>': 257}", NULL, "<a>x<b>",
     "60 97 62 120 257", "<a>x<b>"},
    {"an id that a token before took is none of tokenizer.json", false, "{}", "{'<a>': 200, '<b>': 257}",
     NULL, "<a>x<b>", "257 120 258", "<a>x<b>"},
    {"one flag is another token", false,
     "{'added_tokens_decoder': {'256': {'content': '<e>', 'special': true, 'lstrip': true}}}", NULL, NULL,
     "x <e>", "120 256", "x"},
    {"the later of two special tokens counts", false,
     "{'eos_token': {'__type': 'AddedToken', 'content': '<a>', 'special': true, 'lstrip': true}, "
     "'additional_special_tokens': ['<a>']}",
     NULL, NULL, "x <a>", "120 32 257", "x "},
    {"added_tokens_decoder in the order of ids", false,
     "{'added_tokens_decoder': {'258': {'content': '<b>', 'special': true}, '257': {'content': '<a>', "
     "'special': true}, '256': {'content': '<e>', 'special': true}}}",
     NULL, NULL, "<a>x<b><e>", "257 120 258 256", "x"},
    {"ids that the file gives do not count", false,
     "{'added_tokens_decoder': {'600': {'content': '<b>', 'special': true}, '7': {'content': '<a>', "
     "'special': true}}}",
     NULL, NULL, "<a>x<b>", "257 120 258", "x"},
    {"other flags replace those of tokenizer.json", false,
     "{'added_tokens_decoder': {'256': {'content': '<e>', 'lstrip': true}}}", NULL, NULL, "x <e>", "120 256",
     "x"},
    {"members may be missing", false,
     "{'added_tokens_decoder': {'257': {'content': '<a>'}, '258': {'content': '<b>', 'special': true}}}",
     NULL, NULL, "<a>x<b>", "257 120 258", "<a>x"},
    {"a named token is special", false,
     "{'added_tokens_decoder': {'257': {'content': '<a>'}}, 'eos_token': '<a>'}", NULL, NULL, "<a>x",
     "257 120", "x"},
    {"and so is that of tokenizer.json", true,
     "{'added_tokens_decoder': {'256': {'content': '<e>'}}, 'eos_token': '<e>'}", NULL, NULL, "<e>x",
     "256 120", "x"},
    {"also without added_tokens_decoder", true, "{'pad_token': '<e>'}", NULL, NULL, "<e>x", "256 120", "x"},
    {"but not if added_tokens_decoder is empty", true, "{'added_tokens_decoder': {}, 'eos_token': '<e>'}",
     NULL, NULL, "<e>x", "256 120", "<e>x"},
    {"added_tokens.json", false, "{}", "{'<b>': 258, '<a>': 257}", NULL, "<a>x<b>", "257 120 258", "<a>x<b>"},
    {"of which special tokens are special", false, "{'eos_token': '<a>'}", "{'<b>': 258, '<a>': 257}",
     "{'additional_special_tokens': ['<b>']}", "<a>x<b>", "257 120 258", "x<b>"},
    {"it is not read beside added_tokens_decoder", false,
     "{'added_tokens_decoder': {'257': {'content': '<b>', 'special': true}}}", "{'<a>': 257}", NULL,
     "<a>x<b>", "60 97 62 120 257", "<a>x"},
    {"nor does it take an id of tokenizer.json", false, "{}", "{'<a>': 256, '<b>': 257}", NULL, "<a>x<b>",
     "60 97 62 120 257", "<a>x<b>"},
    {"special tokens alone", false,
     "{'eos_token': '<b>', 'bos_token': '<a>', 'additional_special_tokens': ['<c>', '<a>']}", NULL, NULL,
     "<b>x<a><c>", "258 120 257 259", "x"},
    {"with their flags", false, "{'eos_token': {'__type': 'AddedToken', 'content': '<b>', 'lstrip': true}}",
     NULL, NULL, "x <b>", "120 257", "x"},
    {"a token of the vocabulary keeps its id", false, "{'eos_token': 'x'}", NULL, NULL, "axb", "97 120 98",
     "ab"},
    {"names of the model's own", false,
     "{'extra_special_tokens': {'image_token': '<a>'}, 'audio_token': '<b>'}", NULL, NULL, "<a>x<b>",
     "258 120 257", "x"},
    {"special_tokens_map.json", false, "{}", NULL,
     "{'eos_token': {'content': '<a>'}, 'additional_special_tokens': ['<b>']}", "<a>x<b>", "257 120 258",
     "x"},
    {"which counts more", false, "{'eos_token': '<b>'}", NULL, "{'eos_token': '<a>'}", "<a>x<b>",
     "257 120 60 98 62", "x<b>"},
    {"but not beside added_tokens_decoder", false, "{'eos_token': '<b>', 'added_tokens_decoder': {}}", NULL,
     "{'eos_token': '<a>', 'pad_token': '<c>'}", "<a>x<b><c>", "60 97 62 120 257 60 99 62", "<a>x<c>"},
    {"nothing of this", false, "{}", NULL, NULL, "<a>x<e>", "60 97 62 120 256", "<a>x"},
};

static void assert_skipped(const Tokenizer *t, const Case *it) {
  IdList ids = {0};
  Buffer text = {0};
  assert_int_equal(tokenizer_encode(t, it->text, strlen(it->text), (EncodeOptions){false, true}, &ids, NULL),
                   STATUS_OK);
  assert_int_equal(tokenizer_decode(t, ids.ids, ids.count, true, &text, NULL), STATUS_OK);
  assert_int_equal(buffer_append(&text, "", 1, NULL), STATUS_OK);
  assert_string_equal(text.data, it->skipped);
  buffer_release(&text);
  id_list_release(&ids);
}

/* Also through the copy for other processes. */
static void adds_what_is_declared(void **state) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const Case *it = &cases[i];
    char *directory = make_directory(), *path;
    write_bytes(directory, !it->plain);
    write_quoted(directory, "tokenizer_config.json", it->config);
    write_quoted(directory, "added_tokens.json", it->added);
    write_quoted(directory, "special_tokens_map.json", it->map);
    path = in_directory(directory, "tokenizer.json");
    Tokenizer *tokenizers[2];
    Error err = {{0}};
    int image;
    print_message("%s\n", it->what);
    if (tokenizer_open(path, &tokenizers[0], &err) != STATUS_OK) fail_msg("%s: %s", it->what, err.text);
    assert_int_equal(tokenizer_image_make(path, &image, &err), STATUS_OK);
    remove_directory(directory);
    assert_int_equal(tokenizer_image_open("image", image, &tokenizers[1], &err), STATUS_OK);
    close(image);
    for (int k = 0; k < 2; k++) {
      assert_ids(tokenizers[k], it->text, (EncodeOptions){false, true}, it->ids);
      assert_skipped(tokenizers[k], it);
      tokenizer_close(tokenizers[k]);
    }
  }
}

/* A file of another name has no files beside it. */
static void only_a_tokenizer_json_has_them(void **state) {
  char *directory = make_directory();
  Tokenizer *tokenizer;
  write_bytes(directory, true);
  write_quoted(directory, "tokenizer_config.json", "{'added_tokens_decoder': {'257': {'content': '<a>'}}}");
  assert_int_equal(tokenizer_open(in_directory(directory, "tokenizer.json"), &tokenizer, NULL), STATUS_OK);
  assert_int_equal(tokenizer_find(tokenizer, "<a>"), 257);
  assert_true(tokenizer_declared(tokenizer).size > 0);
  tokenizer_close(tokenizer);
  assert_int_equal(rename(in_directory(directory, "tokenizer.json"), in_directory(directory, "t.json")), 0);
  assert_int_equal(tokenizer_open(in_directory(directory, "t.json"), &tokenizer, NULL), STATUS_OK);
  assert_int_equal(tokenizer_find(tokenizer, "<a>"), -1);
  assert_int_equal(tokenizer_declared(tokenizer).size, 0);
  tokenizer_close(tokenizer);
  remove_directory(directory);
}

static void refuses_what_is_no_token(void **state) {
  static const struct {
    const char *name, *text, *message;
  } refused[] = {
      {"tokenizer_config.json", "[]", "tokenizer_config.json: its JSON is an array, expected an object"},
      {"tokenizer_config.json", "{'added_tokens_decoder': 1}",
       "added_tokens_decoder is 1, expected an object"},
      {"tokenizer_config.json", "{'added_tokens_decoder': {'x': {'content': 'a'}}}",
       "added_tokens_decoder: \"x\" has no id, expected a whole number"},
      {"tokenizer_config.json", "{'added_tokens_decoder': {'-1': {'content': 'a'}}}", "\"-1\" has no id"},
      {"tokenizer_config.json", "{'added_tokens_decoder': {'9': 'a'}}", "token 9 has no content, a string"},
      {"tokenizer_config.json", "{'added_tokens_decoder': {'9': {'content': 'a', 'special': 2}}}",
       "special is 2, expected true or false"},
      {"added_tokens.json", "{'a': '9'}", "added_tokens.json: \"a\" has no id, expected a whole number"},
      {"special_tokens_map.json", "{", "special_tokens_map.json"},
  };
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    char *directory = make_directory();
    Tokenizer *tokenizer;
    Error err = {{0}};
    write_bytes(directory, true);
    write_quoted(directory, refused[i].name, refused[i].text);
    assert_int_equal(tokenizer_open(in_directory(directory, "tokenizer.json"), &tokenizer, &err),
                     STATUS_MODEL);
    if (!strstr(err.text, refused[i].message)) fail_msg("%s, not %s", err.text, refused[i].message);
    remove_directory(directory);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(adds_what_is_declared),
      cmocka_unit_test(only_a_tokenizer_json_has_them),
      cmocka_unit_test(refuses_what_is_no_token),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
