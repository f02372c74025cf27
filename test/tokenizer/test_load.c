/* test_load.c - what a tokenizer.json may contain, what is refused and by which name, and the effect of
 * normalizers, pre-tokenizers and templates on a text. */
#include "small.h"

#define A_VOCAB "{\"a\":0,\"b\":1,\" \":2,\"_\":3,\"1\":4,\"2\":5,\".\":6,\"ab\":7,\"_a\":8}"

static void refused(Parts parts, const char *message) {
  Tokenizer *tokenizer = NULL;
  Error err = {{0}};
  if (!parts.vocab) parts.vocab = A_VOCAB;
  Status status = open_parts(parts, &tokenizer, &err);
  if (status != STATUS_MODEL) fail_msg("accepted, expected: %s", message);
  assert_null(tokenizer);
  assert_string_equal(err.text, message);
}

static void unknown_components_are_refused_by_name(void **state) {
  refused((Parts){.normalizer = "{\"type\": \"BertNormalizer\"}"},
          "file: normalizer: type \"BertNormalizer\" is not supported");
  refused(
      (Parts){.normalizer =
                  "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": \"Nmt\"}]}"},
      "file: normalizer.Sequence[1]: type \"Nmt\" is not supported");
  refused((Parts){.pre_tokenizer = "{\"type\": \"BertPreTokenizer\"}"},
          "file: pre_tokenizer: type \"BertPreTokenizer\" is not supported");
  refused((Parts){.post_processor = "{\"type\": \"RobertaProcessing\"}"},
          "file: post_processor: type \"RobertaProcessing\" is not supported");
  refused((Parts){.decoder = "{\"type\": \"WordPiece\"}"},
          "file: decoder: type \"WordPiece\" is not supported");
  refused((Parts){.decoder = "{}"}, "file: decoder: type is missing");
  refused((Parts){.decoder = "7"}, "file: decoder is 7, expected an object");
  refused((Parts){.options = "\"dropout\": 0.1,"}, "file: model: dropout is 0.1: its encodings are chance");
  refused((Parts){.options = "\"something_new\": 1,"}, "file: model: something_new is not supported");
  refused((Parts){.normalizer = "{\"type\": \"NFC\", \"form\": 2}"},
          "file: normalizer.NFC: form is not supported");
}

static void broken_options_are_refused_with_their_place(void **state) {
  refused((Parts){.pre_tokenizer = "{\"type\": \"ByteLevel\"}"},
          "file: pre_tokenizer.ByteLevel: add_prefix_space is missing");
  refused((Parts){.pre_tokenizer = "{\"type\": \"Digits\", \"individual_digits\": 1}"},
          "file: pre_tokenizer.Digits: individual_digits is 1, expected true or false");
  refused((Parts){.pre_tokenizer = "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(\"}, \"behavior\": "
                                   "\"Isolated\", \"invert\": false}"},
          "file: pre_tokenizer.Split: regular expression at byte 1: a group without ')'");
  refused(
      (Parts){.pre_tokenizer =
                  "{\"type\": \"Split\", \"pattern\": \"a\", \"behavior\": \"Isolated\", \"invert\": false}"},
      "file: pre_tokenizer.Split: pattern is neither {\"String\": ...} nor {\"Regex\": ...}");
  refused((Parts){.pre_tokenizer = "{\"type\": \"Split\", \"pattern\": {\"String\": \"a\"}, \"behavior\": "
                                   "\"Lost\", \"invert\": false}"},
          "file: pre_tokenizer.Split: behavior is Lost, expected Removed, Isolated, MergedWithPrevious, "
          "MergedWithNext or "
          "Contiguous");
  refused((Parts){.pre_tokenizer = "{\"type\": \"Metaspace\", \"replacement\": \"xy\"}"},
          "file: pre_tokenizer.Metaspace: replacement is \"xy\", expected a string of one character");
  refused((Parts){.pre_tokenizer =
                      "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"last\"}"},
          "file: pre_tokenizer.Metaspace: prepend_scheme is last, expected always, first or never");
  refused((Parts){.pre_tokenizer =
                      "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"add_prefix_space\": false}"},
          "file: pre_tokenizer.Metaspace: add_prefix_space is false, but prepend_scheme is not never");
  refused(
      (Parts){.normalizer = "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a*\"}, \"content\": \"b\"}"},
      "file: normalizer.Replace: a pattern that can match no character is not supported");
  refused((Parts){.decoder = "{\"type\": \"Strip\", \"content\": \" \", \"start\": -1, \"stop\": 0}"},
          "file: decoder.Strip: start is -1, expected an integer from 0 to 2147483647");
  refused((Parts){.added = "[{\"id\": 9, \"content\": \"x\"}]"},
          "file: added_tokens[0]: single_word is missing");
  char token[TOKEN_SIZE], added[TOKEN_SIZE + 8];
  snprintf(added, sizeof added, "[%s]", token_json(token, "  ", "n"));
  refused((Parts){.added = added,
                  .normalizer = "{\"type\": \"Strip\", \"strip_left\": true, \"strip_right\": true}"},
          "file: added_tokens: \"  \" is nothing when normalized");
  char *json = malloc(2 * TOKEN_SIZE + (16 << 20)), *at = json;
  assert_non_null(json);
  token_json(token, "X", "");
  at += sprintf(at, "[%.*s", (int)(strchr(token, 'X') - token), token);
  memset(at, 'a', (16 << 20) + 1);
  sprintf(at + (16 << 20) + 1, "%s]", strchr(token, 'X') + 1);
  refused((Parts){.added = json}, "file: added_tokens: all together have more than 16.0 MiB");
  free(json);
  refused((Parts){.added = "{}"}, "file: added_tokens is an object, expected an array");
  refused((Parts){.added = "[3]"}, "file: added_tokens[0] is 3, expected an object");
}

static void broken_models_are_refused_with_their_place(void **state) {
  refused((Parts){.vocab = "{\"a\": -1}"},
          "file: model.vocab: the id of \"a\" is -1, expected an integer from 0 to 16777215");
  refused((Parts){.vocab = "{\"a\": 1.5}"},
          "file: model.vocab: the id of \"a\" is 1.5, expected an integer from 0 to 16777215");
  refused((Parts){.vocab = "{\"a\": \"1\"}"},
          "file: model.vocab: the id of \"a\" is \"1\", expected an integer from 0 to 16777215");
  refused((Parts){.vocab = "{\"a\": 16777216}"},
          "file: model.vocab: the id of \"a\" is 16777216, expected an integer from 0 to 16777215");
  refused((Parts){.vocab = "{\"a\": 1, \"b\": 1}"}, "file: model.vocab: \"a\" and \"b\" have the same id 1");
  refused((Parts){.vocab = "7"}, "file: model.vocab is 7, expected an object");
  refused((Parts){.merges = "{}"}, "file: model.merges is an object, expected an array");
  refused((Parts){.merges = "[\"a b\", \"a  b\"]"},
          "file: model.merges: merge 1: \"a  b\" is not two tokens with a space between them");
  refused((Parts){.merges = "[\"ab\"]"},
          "file: model.merges: merge 0: \"ab\" is not two tokens with a space between them");
  refused((Parts){.merges = "[\"a b\", [\"a\", \"b\"]]"},
          "file: model.merges: merge 1: merges are all strings or all pairs of strings");
  refused((Parts){.merges = "[1]"},
          "file: model.merges: merge 0: merges are all strings or all pairs of strings");
  refused((Parts){.merges = "[[\"a\"]]"}, "file: model.merges: merge 0 is not a pair of strings");
  refused((Parts){.merges = "[[\"a\", \"b\", \"c\"]]"},
          "file: model.merges: merge 0 is not a pair of strings");
  refused((Parts){.merges = "[[\"a\", 1]]"}, "file: model.merges: merge 0 is not a pair of strings");
  refused((Parts){.merges = "[\"a b\", \"x b\"]"},
          "file: model.merges: merge 1: \"x\" is not in the vocabulary");
  refused((Parts){.merges = "[\"a b\", \"a x\"]"},
          "file: model.merges: merge 1: \"x\" is not in the vocabulary");
  refused((Parts){.merges = "[\"a b\", \"b a\"]"},
          "file: model.merges: merge 1: \"ba\" is not in the vocabulary");
  refused((Parts){.merges = "[\"a b\"]", .options = "\"continuing_subword_prefix\": \"##\","},
          "file: model.merges: merge 0: its right side is shorter than continuing_subword_prefix");
}

#define SPLIT_OF(members)     "{\"type\": \"Split\", " members ", \"invert\": false}"
#define METASPACE_OF(members) "{\"type\": \"Metaspace\", " members "}"

/* One wrong member each; a name is known by all of its letters. */
static void every_member_is_checked(void **state) {
  refused((Parts){.normalizer =
                      "{\"type\": \"Strip\", \"strip_left\": true, \"strip_right\": true, \"strip\": 1}"},
          "file: normalizer.Strip: strip is not supported");
  refused(
      (Parts){.normalizer =
                  "{\"type\": \"Strip\", \"strip_left\": true, \"strip_right\": true, \"strip_right2\": 1}"},
      "file: normalizer.Strip: strip_right2 is not supported");
  refused((Parts){.normalizer = "{\"type\": \"Strip\", \"strip_left\": true}"},
          "file: normalizer.Strip: strip_right is missing");
  refused((Parts){.normalizer = "{\"type\": \"Prepend\"}"}, "file: normalizer.Prepend: prepend is missing");
  refused((Parts){.normalizer = "{\"type\": \"Prepend\", \"prepend\": 1}"},
          "file: normalizer.Prepend: prepend is 1, expected a string");
  refused((Parts){.normalizer = "{\"type\": \"Sequence\"}"},
          "file: normalizer.Sequence: normalizers is missing");
  refused((Parts){.normalizer = "{\"type\": \"Sequence\", \"normalizers\": 1}"},
          "file: normalizer.Sequence: normalizers is 1, expected an array");
  refused((Parts){.pre_tokenizer = SPLIT_OF("\"pattern\": {\"String\": \"a\"}")},
          "file: pre_tokenizer.Split: behavior is missing, expected Removed, Isolated, MergedWithPrevious, "
          "MergedWithNext or Contiguous");
  static const char *const patterns[] = {"{\"String\": \"a\", \"Regex\": \"a\"}", "{\"Regex\": 1}", "{}",
                                         "null", "{\"Regex\": \"a\", \"more\": 1}"};
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
    char split[200];
    snprintf(split, sizeof split, SPLIT_OF("\"behavior\": \"Removed\", \"pattern\": %s"), patterns[i]);
    refused((Parts){.pre_tokenizer = split},
            "file: pre_tokenizer.Split: pattern is neither {\"String\": ...} nor {\"Regex\": ...}");
  }
  refused((Parts){.pre_tokenizer = METASPACE_OF("\"replacement\": \"\"")},
          "file: pre_tokenizer.Metaspace: replacement is \"\", expected a string of one character");
  refused((Parts){.pre_tokenizer = METASPACE_OF("\"replacement\": \"\u00e9\u00e9\"")},
          "file: pre_tokenizer.Metaspace: replacement is \"\xc3\xa9\xc3\xa9\", expected a string of one "
          "character");
  refused((Parts){.pre_tokenizer = METASPACE_OF("\"replacement\": 7")},
          "file: pre_tokenizer.Metaspace: replacement is 7, expected a string of one character");
  refused((Parts){.pre_tokenizer = METASPACE_OF("\"split\": true")},
          "file: pre_tokenizer.Metaspace: replacement is missing");
  refused((Parts){.pre_tokenizer = METASPACE_OF("\"replacement\": \"_\", \"split\": 1")},
          "file: pre_tokenizer.Metaspace: split is 1, expected true or false");
  refused((Parts){.options = "\"unk_token\": 7,"}, "file: model: unk_token is 7, expected a string");
  refused((Parts){.options = "\"end_of_word_suffix\": 7,"},
          "file: model: end_of_word_suffix is 7, expected a string");
  refused((Parts){.options = "\"dropout\": 1.5,"},
          "file: model: dropout is 1.5, expected a number from 0 to 1");
  refused((Parts){.options = "\"fuse_unk\": 1,"}, "file: model: fuse_unk is 1, expected true or false");
  refused((Parts){.options = "\"byte_fallback\": 1,"},
          "file: model: byte_fallback is 1, expected true or false");
  refused((Parts){.options = "\"ignore_merges\": 1,"},
          "file: model: ignore_merges is 1, expected true or false");
  refused((Parts){.decoder = "{\"type\": \"Strip\", \"content\": \"ab\", \"start\": 0, \"stop\": 0}"},
          "file: decoder.Strip: content is \"ab\", expected a string of one character");
  refused((Parts){.decoder = "{\"type\": \"Strip\", \"content\": \"a\", \"start\": 0}"},
          "file: decoder.Strip: stop is missing");
  refused((Parts){.decoder = "{\"type\": \"Fuse\", \"content\": 1}"},
          "file: decoder.Fuse: content is not supported");
  refused((Parts){.decoder = "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, 7]}"},
          "file: decoder.Sequence[1] is 7, expected an object");
  refused((Parts){.post_processor =
                      "{\"type\": \"Sequence\", \"processors\": [" BYTE_LEVEL ", {\"type\": \"X\"}]}"},
          "file: post_processor.Sequence[1]: type \"X\" is not supported");
  refused((Parts){.post_processor = "{\"type\": \"TemplateProcessing\", \"pair\": []}"},
          "file: post_processor.TemplateProcessing: single is missing");
  refused((Parts){.post_processor = "{\"type\": \"TemplateProcessing\", \"single\": [], \"double\": []}"},
          "file: post_processor.TemplateProcessing: double is not supported");
  refused(
      (Parts){.post_processor = "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {}}]}"},
      "file: post_processor.TemplateProcessing: special token \"\" is not in special_tokens");
  char one[TOKEN_SIZE], added[2 * TOKEN_SIZE];
  snprintf(added, sizeof added, "[%s, {\"id\": 1, \"content\": 7}]", token_json(one, "x", ""));
  refused((Parts){.added = added}, "file: added_tokens[1]: content is 7, expected a string");
  snprintf(added, sizeof added, "[%s]", token_json(one, "x", ""));
  memcpy(strstr(added, "special"), "spatial", 7);
  refused((Parts){.added = added}, "file: added_tokens[0]: spatial is not supported");
}

static void what_says_nothing_is_accepted(void **state) {
  static const Parts parts[] = {
      {.options = "\"dropout\": 0.0,"},
      {.options = "\"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": null,"},
      {.pre_tokenizer = METASPACE_OF("\"replacement\": \"_\", \"add_prefix_space\": false, "
                                     "\"prepend_scheme\": \"never\", \"str_rep\": \"_\"")},
      {.pre_tokenizer = METASPACE_OF("\"replacement\": \"_\", \"add_prefix_space\": true")},
      {.decoder = "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a*\"}, \"content\": \"\"}"},
      {.decoder = "{\"type\": \"Sequence\", \"decoders\": []}"},
      {.post_processor = "{\"type\": \"TemplateProcessing\", \"single\": []}"},
      {.added = "[]"},
  };
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    Parts given = parts[i];
    given.vocab = A_VOCAB;
    tokenizer_close(make(given));
  }
}

/* The largest id need not be the last one, and some may be missing. */
static void ids_of_a_vocabulary_come_in_any_order(void **state) {
  Tokenizer *t = make((Parts){.vocab = "{\"a\": 9000, \"b\": 0, \"c\": 5000}"});
  size_t size;
  assert_int_equal(tokenizer_n_ids(t), 9001);
  assert_ids(t, "abc", PLAIN, "9000 0 5000");
  assert_string_equal(tokenizer_content(t, 9000, &size), "a");
  assert_string_equal(tokenizer_content(t, 0, &size), "b");
  assert_string_equal(tokenizer_content(t, 5000, &size), "c");
  assert_null(tokenizer_content(t, 5001, &size));
  assert_null(tokenizer_content(t, 9001, &size));
  assert_int_equal(tokenizer_find(t, "c"), 5000);
  tokenizer_close(t);
}

/* The table of contents grows several times. */
static void any_number_of_contents_is_found(void **state) {
  enum { N = 5000 };
  Buffer vocab = {0};
  for (int i = 0; i < N; i++) buffer_printf(&vocab, NULL, "%c\"t%d\":%d", i ? ',' : '{', i, N - i);
  buffer_append(&vocab, "}", 2, NULL);
  Tokenizer *t = make((Parts){.vocab = vocab.data});
  for (int i = 0; i < N; i++) {
    char content[16];
    snprintf(content, sizeof content, "t%d", i);
    assert_int_equal(tokenizer_find(t, content), N - i);
  }
  assert_int_equal(tokenizer_find(t, "t5000"), -1);
  tokenizer_close(t);
  buffer_release(&vocab);
}

/* Rules are read in batches; a line of merges.txt's head is none of them. */
static void a_broken_rule_is_named_by_its_number(void **state) {
  for (int n = 0; n < 50; n++) {
    Buffer merges = {0};
    char message[100];
    buffer_append_string(&merges, "[\"#version: 0.2\"", NULL);
    for (int i = 0; i < n; i++) buffer_append_string(&merges, ", \"a b\"", NULL);
    buffer_append_string(&merges, ", \"a x\"", NULL);
    for (int i = 0; i < 20; i++) buffer_append_string(&merges, ", \"a b\"", NULL);
    buffer_append(&merges, "]", 2, NULL);
    snprintf(message, sizeof message, "file: model.merges: merge %d: \"x\" is not in the vocabulary", n);
    refused((Parts){.merges = merges.data}, message);
    buffer_release(&merges);
  }
}

/* The time for many members, pieces or marks is linear: quadratically these would take minutes. */
static void large_files_load_in_linear_time(void **state) {
  enum { N = 100000 };
  Buffer json = {0};
  assert_int_equal(buffer_printf(&json, NULL, "{\"type\": \"NFC\""), STATUS_OK);
  for (int i = 0; i < N; i++) assert_int_equal(buffer_printf(&json, NULL, ", \"n%d\": null", i), STATUS_OK);
  assert_int_equal(buffer_append(&json, "}", 2, NULL), STATUS_OK);
  tokenizer_close(make((Parts){.normalizer = json.data, .vocab = A_VOCAB}));
  json.size = 0;
  assert_int_equal(buffer_printf(&json, NULL, "{\"type\": \"TemplateProcessing\", \"single\": ["), STATUS_OK);
  for (int i = 0; i <= 256; i++)
    assert_int_equal(buffer_printf(&json, NULL, "%s{\"Sequence\": {\"id\": \"A\"}}", i ? "," : ""),
                     STATUS_OK);
  assert_int_equal(buffer_append(&json, "]}", 3, NULL), STATUS_OK);
  refused((Parts){.post_processor = json.data},
          "file: post_processor.TemplateProcessing: single has more than 256 pieces");
  buffer_release(&json);
}

static void parse_refused(const char *text, const char *message) {
  Tokenizer *tokenizer;
  Error err = {{0}};
  assert_int_equal(tokenizer_parse("file", text, strlen(text), &tokenizer, &err), STATUS_MODEL);
  assert_null(tokenizer);
  assert_string_equal(err.text, message);
}

static void broken_files_are_refused(void **state) {
  parse_refused("[]", "file: its JSON is an array, expected an object");
  parse_refused("{}", "file: model is missing");
  parse_refused("{\"model\": 7}", "file: model is 7, expected an object");
  parse_refused("{\"version\": 1, \"model\": {}}", "file: version is 1, expected \"1.0\"");
  parse_refused("{\"version\": \"2.0\", \"model\": {}}", "file: version is \"2.0\", expected \"1.0\"");
  parse_refused("{\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"a\": 0}}}",
                "file: model: type \"WordPiece\" is not supported");
  parse_refused("{\"model\": {\"type\": \"BPE\", \"merges\": []}}",
                "file: model.vocab is missing, expected an object");
  parse_refused("{\"model\": {\"type\": \"BPE\", \"vocab\": {}}}",
                "file: model.merges is missing, expected an array");
  Tokenizer *tokenizer;
  Error err = {{0}};
  assert_int_equal(tokenizer_parse("file", "{\"model\": ", 10, &tokenizer, &err), STATUS_MODEL);
  assert_int_equal(tokenizer_open("/nowhere/tokenizer.json", &tokenizer, &err), STATUS_MODEL);
  assert_null(tokenizer);
}

/* Older files name no type; an empty vocabulary is one. */
static void what_older_files_leave_out(void **state) {
  static const char json[] =
      "{\"model\": {\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"#version: 0.2\", \"a b\"]}}";
  Tokenizer *t;
  Error err;
  assert_int_equal(tokenizer_parse("file", json, sizeof json - 1, &t, &err), STATUS_OK);
  assert_ids(t, "aab", PLAIN, "0 2");
  tokenizer_close(t);
  t = make((Parts){.vocab = "{}"});
  assert_int_equal(tokenizer_n_ids(t), 0);
  assert_ids(t, "ab", PLAIN, "");
  tokenizer_close(t);
}

/* --- what the parts make of a text: ids of A_VOCAB */

static void encodes(Parts parts, const char *text, const char *expected) {
  parts.vocab = A_VOCAB;
  parts.merges = "[\"a b\", \"_ a\"]";
  Tokenizer *t = make(parts);
  assert_ids(t, text, PLAIN, expected);
  tokenizer_close(t);
}

#define SPLIT(pattern, behavior, invert)                                                                     \
  "{\"type\": \"Split\", \"pattern\": " pattern ", \"behavior\": \"" behavior "\", \"invert\": " invert "}"

/* "ab" is one token unless it was split. */
static void pre_tokenizers(void **state) {
  encodes((Parts){0}, "ab1ab", "7 4 7");
  encodes((Parts){.pre_tokenizer = SPLIT("{\"String\": \"b\"}", "Isolated", "false")}, "abab", "0 1 0 1");
  encodes((Parts){.pre_tokenizer = SPLIT("{\"String\": \"b\"}", "Removed", "false")}, "abab", "0 0");
  encodes((Parts){.pre_tokenizer = SPLIT("{\"String\": \"b\"}", "Removed", "true")}, "abab", "1 1");
  encodes((Parts){.pre_tokenizer = SPLIT("{\"String\": \"b\"}", "MergedWithPrevious", "false")}, "abbab",
          "7 1 7");
  encodes((Parts){.pre_tokenizer = SPLIT("{\"String\": \"a\"}", "MergedWithNext", "false")}, "aabab",
          "0 7 7");
  encodes((Parts){.pre_tokenizer = SPLIT("{\"Regex\": \"\"}", "Isolated", "false")}, "ab", "0 1");
  encodes((Parts){.pre_tokenizer = "{\"type\": \"Digits\", \"individual_digits\": true}"}, "ab12", "7 4 5");
  encodes((Parts){.pre_tokenizer = "{\"type\": \"Whitespace\"}"}, " ab. .ab  a", "7 6 6 7 0");
  encodes((Parts){.pre_tokenizer = "{\"type\": \"WhitespaceSplit\"}"}, " ab. ab ", "7 6 7");
  encodes((Parts){.pre_tokenizer = "{\"type\": \"Punctuation\", \"behavior\": \"Removed\"}"}, "a.b..ab",
          "0 1 7");
  encodes((Parts){.pre_tokenizer = "{\"type\": \"Metaspace\", \"replacement\": \"_\"}"}, "ab a", "3 7 8");
  encodes((Parts){.pre_tokenizer =
                      "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"never\"}"},
          "ab a", "7 8");
}

/* "ab" is a run of two matches, and one token where they stay together. The ids are the reference's. */
static void one_match_of_a_run_is_merged_and_contiguous_keeps_all(void **state) {
  static const struct {
    const char *pre_tokenizer, *expected;
  } cases[] = {
      {SPLIT("{\"Regex\": \"[ab]\"}", "MergedWithPrevious", "false"), "8 1 4 0 1"},
      {SPLIT("{\"Regex\": \"[ab]\"}", "MergedWithNext", "false"), "3 0 1 4 0 1"},
      {SPLIT("{\"Regex\": \"[ab]\"}", "Contiguous", "false"), "3 7 4 7"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    encodes((Parts){.pre_tokenizer = cases[i].pre_tokenizer}, "_ab1ab", cases[i].expected);
}

/* "first" means the beginning of the whole text: not after an added token, and not after stripped space. */
static void metaspace_first(void **state) {
  char token[TOKEN_SIZE], added[TOKEN_SIZE + 8];
  snprintf(added, sizeof added, "[%s]", token_json(token, "<x>", ""));
  Parts parts = {.added = added,
                 .pre_tokenizer =
                     "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"first\"}"};
  encodes(parts, "a<x>a", "8 9 0");
  encodes(parts, "<x>a", "9 0");
  encodes(parts, " a", "8");
  parts.normalizer = "{\"type\": \"Strip\", \"strip_left\": true, \"strip_right\": true}";
  encodes(parts, "a", "8");
  encodes(parts, " a", "0");
}

static void normalizers(void **state) {
  encodes((Parts){.normalizer = "{\"type\": \"Lowercase\"}"}, "AB", "7");
  encodes((Parts){.normalizer = "{\"type\": \"Prepend\", \"prepend\": \"_\"}"}, "ab", "3 7");
  encodes((Parts){.normalizer = "{\"type\": \"Prepend\", \"prepend\": \"_\"}"}, "", "");
  encodes((Parts){.normalizer = "{\"type\": \"Strip\", \"strip_left\": true, \"strip_right\": false}"},
          "\xc2\xa0 ab ", "7 2");
  encodes((Parts){.normalizer = "{\"type\": \"Strip\", \"strip_left\": false, \"strip_right\": true}"},
          " ab \n", "2 7");
  encodes((Parts){.normalizer =
                      "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"[0-9]+\"}, \"content\": \"b\"}"},
          "a12", "7");
  encodes((Parts){.normalizer = "{\"type\": \"NFKC\"}"}, "\xef\xbd\x81\xe2\x91\xa0",
          "0 4"); /* a wide a, a circled 1 */
  encodes(
      (Parts){
          .normalizer =
              "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Lowercase\"}, {\"type\": \"Prepend\", "
              "\"prepend\": \"_\"}]}"},
      "A", "8");
}

/* The composed form of each spelling; marks younger than Unicode 9 (U+1DF9) separate their neighbours. */
static void forms(void **state) {
  static const struct {
    const char *form, *text, *expected;
  } cases[] = {
      {"NFC", "e\xcc\x81", "\xc3\xa9"},
      {"NFC", "e\xcc\xa3\xcc\x82", "\xe1\xbb\x87"},
      {"NFC", "e\xcc\x82\xcc\xa3", "\xe1\xbb\x87"},
      {"NFC", "x\xcc\x81\xe1\xb7\xb9", "x\xcc\x81\xe1\xb7\xb9"},
      {"NFC", "x\xe1\xb7\xb9\xcc\x81", "x\xe1\xb7\xb9\xcc\x81"},
      {"NFC", "e\xe1\xb7\xb9\xcc\x81", "e\xe1\xb7\xb9\xcc\x81"},
      {"NFC", "\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8",
       "\xea\xb0\x81"}, /* Hangul: three letters, one syllable */
      {"NFC", "\xe2\x84\xab", "\xc3\x85"},
      {"NFC", "\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc"}, /* excluded from composition */
      {"NFC", "\xcc\x81\xcc\xa3", "\xcc\xa3\xcc\x81"},
      {"NFD", "\xe1\xbb\x87", "e\xcc\xa3\xcc\x82"},
      {"NFD", "\xea\xb0\x81", "\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8"},
      {"NFKC", "\xef\xac\x83", "ffi"},
      {"NFKD", "\xef\xac\x83\xe1\xba\x9b\xcc\xa3", "ffis\xcc\xa3\xcc\x87"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char normalizer[64], *vocab = byte_vocab(NULL);
    snprintf(normalizer, sizeof normalizer, "{\"type\": \"%s\"}", cases[i].form);
    Tokenizer *t = make((Parts){
        .normalizer = normalizer, .pre_tokenizer = BYTE_LEVEL, .decoder = BYTE_LEVEL, .vocab = vocab});
    free(vocab);
    IdList ids = {0};
    Buffer text = {0};
    Error err;
    assert_int_equal(tokenizer_encode(t, cases[i].text, strlen(cases[i].text), PLAIN, &ids, &err), STATUS_OK);
    assert_int_equal(tokenizer_decode(t, ids.ids, ids.count, false, &text, &err), STATUS_OK);
    assert_int_equal(buffer_append(&text, "", 1, &err), STATUS_OK);
    if (strcmp(text.data, cases[i].expected) != 0) fail_msg("case %zu: \"%s\"", i, text.data);
    buffer_release(&text);
    id_list_release(&ids);
    tokenizer_close(t);
  }
}

#define PIECE(id)        "{\"SpecialToken\": {\"id\": \"" id "\", \"type_id\": 0}}"
#define THE_TEXT         "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}"
#define SPECIAL(id, ids) "\"" id "\": {\"id\": \"" id "\", \"ids\": " ids ", \"tokens\": []}"
#define TEMPLATE(single, specials)                                                                           \
  "{\"type\": \"TemplateProcessing\", \"single\": [" single                                                  \
  "], \"pair\": [], \"special_tokens\": {" specials "}}"

static void templates(void **state) {
  const EncodeOptions special = {true, true};
  Tokenizer *t =
      make((Parts){.vocab = A_VOCAB,
                   .post_processor = TEMPLATE(PIECE("<s>") "," THE_TEXT "," PIECE("</s>"),
                                              SPECIAL("<s>", "[100]") "," SPECIAL("</s>", "[5, 6]"))});
  assert_ids(t, "a", special, "100 0 5 6");
  assert_ids(t, "a", PLAIN, "0");
  assert_ids(t, "", special, "100 5 6");
  tokenizer_close(t);
  t = make((Parts){.vocab = A_VOCAB, .post_processor = TEMPLATE(THE_TEXT "," THE_TEXT, "")});
  assert_ids(t, "a1", special, "0 4 0 4");
  tokenizer_close(t);
  t = make((Parts){.vocab = A_VOCAB,
                   .post_processor = "{\"type\": \"Sequence\", \"processors\": [" BYTE_LEVEL
                                     "," TEMPLATE(PIECE("<s>") "," THE_TEXT, SPECIAL("<s>", "[9]")) "]}"});
  assert_ids(t, "a", special, "9 0");
  tokenizer_close(t);
  refused((Parts){.post_processor = TEMPLATE(PIECE("<s>"), "")},
          "file: post_processor.TemplateProcessing: special token \"<s>\" is not in special_tokens");
  refused((Parts){.post_processor = TEMPLATE("{\"Sequence\": {\"id\": \"B\", \"type_id\": 0}}", "")},
          "file: post_processor.TemplateProcessing: single has a piece that is neither SpecialToken nor "
          "Sequence A");
  refused(
      (Parts){.post_processor = "{\"type\": \"Sequence\", \"processors\": [" TEMPLATE(
                  THE_TEXT, "") "," TEMPLATE(THE_TEXT, "") "]}"},
      "file: post_processor.Sequence[1].TemplateProcessing: a second TemplateProcessing is not supported");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(unknown_components_are_refused_by_name),
      cmocka_unit_test(broken_options_are_refused_with_their_place),
      cmocka_unit_test(broken_models_are_refused_with_their_place),
      cmocka_unit_test(every_member_is_checked),
      cmocka_unit_test(what_says_nothing_is_accepted),
      cmocka_unit_test(ids_of_a_vocabulary_come_in_any_order),
      cmocka_unit_test(any_number_of_contents_is_found),
      cmocka_unit_test(a_broken_rule_is_named_by_its_number),
      cmocka_unit_test(large_files_load_in_linear_time),
      cmocka_unit_test(broken_files_are_refused),
      cmocka_unit_test(what_older_files_leave_out),
      cmocka_unit_test(pre_tokenizers),
      cmocka_unit_test(one_match_of_a_run_is_merged_and_contiguous_keeps_all),
      cmocka_unit_test(metaspace_first),
      cmocka_unit_test(normalizers),
      cmocka_unit_test(forms),
      cmocka_unit_test(templates),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
