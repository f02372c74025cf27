/* test_load.c - the sizes of a tokenizer.json: any number of ids, contents and rules, and limits. Its
 * parts are in test_transcripts.c. */
#include "small.h"
#include "test/tests.h"

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

TEST(added_tokens_are_bounded) {
  char token[TOKEN_SIZE], *json = malloc(2 * TOKEN_SIZE + (16 << 20)), *at = json;
  assert_non_null(json);
  token_json(token, "X", "");
  at += sprintf(at, "[%.*s", (int)(strchr(token, 'X') - token), token);
  memset(at, 'a', (16 << 20) + 1);
  sprintf(at + (16 << 20) + 1, "%s]", strchr(token, 'X') + 1);
  refused((Parts){.added = json}, "file: added_tokens: all together have more than 16.0 MiB");
  free(json);
}

/* The largest id need not be the last one, and some may be missing. */
TEST(ids_of_a_vocabulary_come_in_any_order) {
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
TEST(any_number_of_contents_is_found) {
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
TEST(a_broken_rule_is_named_by_its_number) {
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
TEST(large_files_load_in_linear_time) {
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

TEST(a_missing_file_is_refused) {
  Tokenizer *tokenizer;
  assert_int_equal(tokenizer_open("/nowhere/tokenizer.json", &tokenizer, NULL), STATUS_MODEL);
  assert_null(tokenizer);
}
