/* test_limits.c - the most that a tokenizer.json may hold and make of a text: each limit, and one more. */
#include "small.h"
#include "test/tests.h"

#define A_VOCAB "{\"a\":0,\"b\":1,\"_\":2}"

/* `message` NULL: it is accepted. */
static void check_parts(Parts parts, const char *message) {
  Tokenizer *t = NULL;
  Error err = {{0}};
  if (!parts.vocab) parts.vocab = A_VOCAB;
  Status status = open_parts(parts, &t, &err);
  if (!message) {
    if (status != STATUS_OK) fail_msg("refused: %s", err.text);
  } else {
    if (status != STATUS_MODEL) fail_msg("accepted, expected: %s", message);
    assert_string_equal(err.text, message);
  }
  tokenizer_close(t);
}

/* The four lists of components: their places in the file, and how a Sequence and a member are written. */
static const struct {
  const char *part, *list, *member, *plural;
  size_t place; /* in Parts */
} lists[] = {
    {"normalizer", "normalizers", "{\"type\": \"NFC\"}", "normalizers", offsetof(Parts, normalizer)},
    {"pre_tokenizer", "pretokenizers", "{\"type\": \"Punctuation\"}", "pre-tokenizers",
     offsetof(Parts, pre_tokenizer)},
    {"decoder", "decoders", "{\"type\": \"Fuse\"}", "decoders", offsetof(Parts, decoder)},
    {"post_processor", "processors", BYTE_LEVEL, NULL, offsetof(Parts, post_processor)},
};

static void check_list(size_t list, const char *json, const char *message) {
  Parts parts = {0};
  *(const char **)((char *)&parts + lists[list].place) = json;
  check_parts(parts, message);
}

TEST(components_are_nested_so_deep_and_no_deeper) {
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
    for (int depth = 32; depth <= 33; depth++) {
      Buffer json = {0};
      char message[600] = "file: ";
      strcat(message, lists[i].part);
      for (int k = 0; k < depth; k++)
        buffer_printf(&json, NULL, "{\"type\": \"Sequence\", \"%s\": [", lists[i].list);
      buffer_append_string(&json, lists[i].member, NULL);
      for (int k = 0; k < depth; k++) buffer_append_string(&json, "]}", NULL);
      buffer_append(&json, "", 1, NULL);
      Parts parts = {0};
      *(const char **)((char *)&parts + lists[i].place) = json.data;
      Tokenizer *t = NULL;
      Error err = {{0}};
      parts.vocab = A_VOCAB;
      assert_int_equal(open_parts(parts, &t, &err), depth > 32 ? STATUS_MODEL : STATUS_OK);
      if (depth > 32) {
        assert_int_equal(strncmp(err.text, message, strlen(message)), 0);
        assert_non_null(strstr(err.text, ": nested too deep"));
      }
      tokenizer_close(t);
      buffer_release(&json);
    }
}

TEST(so_many_components_and_no_more) {
  for (size_t i = 0; i < 3; i++)
    for (int n = 64; n <= 65; n++) {
      Buffer json = {0};
      char message[120];
      buffer_printf(&json, NULL, "{\"type\": \"Sequence\", \"%s\": [", lists[i].list);
      for (int k = 0; k < n; k++) buffer_printf(&json, NULL, "%s%s", k ? "," : "", lists[i].member);
      buffer_append(&json, "]}", 3, NULL);
      snprintf(message, sizeof message, "file: %s.Sequence[64]: more than 64 %s", lists[i].part,
               lists[i].plural);
      /* The component's own type ends the place that its loader names. */
      Error err = {{0}};
      Parts parts = {.vocab = A_VOCAB};
      Tokenizer *t = NULL;
      *(const char **)((char *)&parts + lists[i].place) = json.data;
      assert_int_equal(open_parts(parts, &t, &err), n > 64 ? STATUS_MODEL : STATUS_OK);
      if (n > 64) assert_string_equal(err.text, message);
      tokenizer_close(t);
      buffer_release(&json);
    }
}

TEST(a_template_has_so_many_pieces_and_no_more) {
  for (int n = 256; n <= 257; n++) {
    Buffer json = {0};
    buffer_append_string(&json, "{\"type\": \"TemplateProcessing\", \"single\": [", NULL);
    for (int i = 0; i < n; i++) buffer_printf(&json, NULL, "%s{\"Sequence\": {\"id\": \"A\"}}", i ? "," : "");
    buffer_append(&json, "]}", 3, NULL);
    check_list(3, json.data,
               n > 256 ? "file: post_processor.TemplateProcessing: single has more than 256 pieces" : NULL);
    buffer_release(&json);
  }
}

TEST(ids_reach_the_largest_and_no_further) {
  Tokenizer *t = make((Parts){.vocab = "{\"a\": 16777215}"});
  assert_int_equal(tokenizer_n_ids(t), 16777216);
  assert_ids(t, "aa", PLAIN, "16777215 16777215");
  tokenizer_close(t);
#define TEMPLATE_IDS(ids)                                                                                    \
  "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"s\", \"type_id\": 0}}], "   \
  "\"pair\": [], \"special_tokens\": {\"s\": {\"id\": \"s\", \"ids\": [" ids "], \"tokens\": []}}}"
  check_list(3, TEMPLATE_IDS("0, 16777215"), NULL);
#define REFUSED_ID(id)                                                                                       \
  "file: post_processor.TemplateProcessing: an id of \"s\" is " id ", expected an integer from 0 to "        \
  "16777215"
  check_list(3, TEMPLATE_IDS("1, 16777216"), REFUSED_ID("16777216"));
  check_list(3, TEMPLATE_IDS("-1"), REFUSED_ID("-1"));
  check_list(3, TEMPLATE_IDS("0.5"), REFUSED_ID("0.5"));
  check_list(2, "{\"type\": \"Strip\", \"content\": \" \", \"start\": 0, \"stop\": 2147483647}", NULL);
  check_list(2, "{\"type\": \"Strip\", \"content\": \" \", \"start\": 0, \"stop\": 2147483648}",
             "file: decoder.Strip: stop is 2147483648, expected an integer from 0 to 2147483647");
  char token[TOKEN_SIZE], added[TOKEN_SIZE + 8], *zero;
  snprintf(added, sizeof added, "[%s]", token_json(token, "<x>", ""));
  zero = strchr(added, '0');
  *zero = '-', zero[1] = '1', zero[2] = ','; /* the id is -1 */
  check_parts((Parts){.added = added},
              "file: added_tokens[0]: id is -1, expected an integer from 0 to 16777215");
}

/* Contents of added tokens count each time they come, and so do their normal forms. */
TEST(added_tokens_have_so_many_bytes_and_no_more) {
  enum { MIB = 1 << 20 };
  static const struct {
    int n;
    const char *flags, *more; /* a token after the n of 1 MiB each */
    bool refused;
  } cases[] = {{16, "", NULL, false}, {16, "", "x", true}, {7, "n", NULL, false}, {8, "n", NULL, true}};
  char *content = malloc(MIB + 1);
  assert_non_null(content);
  memset(content, 'a', MIB);
  content[MIB] = '\0';
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Buffer json = {0};
    char token[TOKEN_SIZE];
    for (int k = 0; k < cases[i].n; k++) {
      const char *like = token_json(token, "X", cases[i].flags), *place = strchr(like, 'X');
      buffer_append(&json, k ? "," : "[", 1, NULL);
      buffer_append(&json, like, (size_t)(place - like), NULL);
      buffer_append(&json, content, MIB, NULL);
      buffer_append_string(&json, place + 1, NULL);
    }
    if (cases[i].more) buffer_printf(&json, NULL, ",%s", token_json(token, cases[i].more, ""));
    buffer_append(&json, "]", 2, NULL);
    check_parts((Parts){.added = json.data, .normalizer = "{\"type\": \"Prepend\", \"prepend\": \"_\"}"},
                cases[i].refused ? "file: added_tokens: all together have more than 16.0 MiB" : NULL);
    buffer_release(&json);
  }
  free(content);
}

/* --- what steps may make of a text: 256 bytes and 32 for each of its own */

static void check_encoding(const Tokenizer *t, const char *text, size_t size, const char *message) {
  IdList ids = {0};
  Error err = {{0}};
  id_list_append(&ids, 5, NULL);
  Status status = tokenizer_encode(t, text, size, PLAIN, &ids, &err);
  assert_int_equal(status, message ? STATUS_MODEL : STATUS_OK);
  if (message) {
    assert_string_equal(err.text, message);
    assert_int_equal(ids.count, 1); /* what was there stays, and nothing is added */
  }
  id_list_release(&ids);
}

/* `format` has a place for `size` letters b. */
static char *with_letters(const char *format, int size) {
  char *letters = malloc((size_t)size + 1);
  assert_non_null(letters);
  memset(letters, 'b', (size_t)size);
  letters[size] = '\0';
  Buffer json = {0};
  assert_int_equal(buffer_printf(&json, NULL, format, letters), STATUS_OK);
  assert_int_equal(buffer_append(&json, "", 1, NULL), STATUS_OK);
  free(letters);
  return json.data;
}

/* A text of one byte becomes 288 bytes at most, also by several steps together. If a pre-tokenizer needs
 * the beginning of the text, bytes are traced; the limits are the same. */
TEST(normalizers_make_so_much_and_no_more) {
  static const struct {
    const char *normalizer;
    int most;
  } cases[] = {
      {"{\"type\": \"Prepend\", \"prepend\": \"%s\"}", 287},
      {"{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"%s\"}", 288},
      {"{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a\"}, \"content\": \"%s\"}", 288},
      {"{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": \"b%s\"}, "
       "{\"type\": \"Prepend\", \"prepend\": \"bbbbbbbb\"}]}",
       278},
  };
  static const char *const pre_tokenizers[] = {
      NULL, "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"first\"}"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (size_t k = 0; k < 2; k++)
      for (int more = 0; more <= 1; more++) {
        char *normalizer = with_letters(cases[i].normalizer, cases[i].most + more);
        Tokenizer *t =
            make((Parts){.normalizer = normalizer, .pre_tokenizer = pre_tokenizers[k], .vocab = A_VOCAB});
        check_encoding(t, "a", 1, more ? "file: normalizer: makes more than 288 bytes of a text" : NULL);
        tokenizer_close(t);
        free(normalizer);
      }
}

/* Eight marks of four bytes before each of n characters: 33 n bytes, of 256 + 32 n. */
TEST(pre_tokenizers_make_so_much_and_no_more) {
  Buffer json = {0};
  char text[257];
  memset(text, 'a', sizeof text);
  buffer_append_string(&json,
                       "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": "
                       "{\"Regex\": \".\"}, \"behavior\": \"Isolated\", \"invert\": false}",
                       NULL);
  for (int i = 0; i < 8; i++)
    buffer_printf(&json, NULL,
                  ", {\"type\": \"Metaspace\", \"replacement\": \"\xf0\x9f\x98%c\", \"split\": false}",
                  i % 2 ? 0x80 : 0x81);
  buffer_append(&json, "]}", 3, NULL);
  Tokenizer *t = make((Parts){.pre_tokenizer = json.data, .vocab = A_VOCAB});
  check_encoding(t, text, 255, NULL);
  check_encoding(t, text, 256, NULL);
  check_encoding(t, text, 257, "file: pre_tokenizer: makes more than 8.3 KiB of a text");
  tokenizer_close(t);
  buffer_release(&json);
}

/* A token "a" counts as two bytes, so n tokens may become 256 + 64 n bytes, by each step on average. */
TEST(decoders_make_so_much_and_no_more) {
  static const struct {
    const char *decoder;
    int most, n;
    const char *limit;
  } cases[] = {
      {"{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"%s\"}", 320, 1, "320 bytes"},
      {"{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a\"}, \"content\": \"%s\"}", 320, 1, "320 bytes"},
      /* three looks of the text: of 1 + 1, 1 + 1 and 957 + 1 bytes */
      {"{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, {\"type\": \"Replace\", \"pattern\": "
       "{\"String\": \"a\"}, \"content\": \"%s\"}]}",
       957, 1, "320 bytes"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int more = 0; more <= 1; more++) {
      char *decoder = with_letters(cases[i].decoder, cases[i].most + more), message[100];
      Tokenizer *t = make((Parts){.decoder = decoder, .vocab = A_VOCAB});
      const int32_t ids[] = {0, 0};
      Buffer text = {0};
      Error err = {{0}};
      Status status = tokenizer_decode(t, ids, (size_t)cases[i].n, false, &text, &err);
      snprintf(message, sizeof message, "file: decoder: makes more than %s of a text", cases[i].limit);
      assert_int_equal(status, more ? STATUS_MODEL : STATUS_OK);
      if (more)
        assert_string_equal(err.text, message);
      else
        assert_int_equal(text.size, cases[i].most * cases[i].n);
      buffer_release(&text);
      tokenizer_close(t);
      free(decoder);
    }
}

/* The bytes that one text took of the limit are given back at its end. */
TEST(a_stream_decodes_any_number_of_texts) {
  static const char decoder[] =
      "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": \"_\"}, "
      "\"content\": \"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\"}, {\"type\": \"Fuse\"}, "
      "{\"type\": \"Strip\", \"content\": \"b\", \"start\": 1, \"stop\": 1}]}";
  Tokenizer *t = make((Parts){.decoder = decoder, .vocab = A_VOCAB});
  TokenizerStream *stream;
  Error err = {{0}};
  assert_int_equal(tokenizer_stream_open(t, false, &stream, &err), STATUS_OK);
  for (int i = 0; i < 300; i++) {
    Buffer text = {0};
    static const int32_t ids[] = {2, 0, 2};
    for (size_t k = 0; k < 3; k++)
      assert_int_equal(tokenizer_stream_push(stream, ids[k], &text, &err), STATUS_OK);
    assert_int_equal(tokenizer_stream_end(stream, &text, &err), STATUS_OK);
    assert_int_equal(text.size, 32 + 1 + 32 - 2);
    buffer_release(&text);
  }
  tokenizer_stream_close(stream);
  tokenizer_close(t);
}

/* --- memory */

#define SPLIT_AT(regex)                                                                                      \
  "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" regex                                                  \
  "\"}, \"behavior\": \"Isolated\", \"invert\": false}"
#define REPLACE_BY(pattern) "{\"type\": \"Replace\", \"pattern\": {" pattern "}, \"content\": \"xyz\"}"
#define ADDED(content, normalized)                                                                           \
  "{\"id\": 0, \"content\": \"" content "\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, " \
  "\"normalized\": " normalized ", \"special\": true}"

/* Something in every part; the vocabulary has a gap, so that an added token takes an id with its
 * normal form. */
static const Parts full = {
    .added = "[" ADDED("<A>", "true") "," ADDED("<B>", "true") "," ADDED("<A>", "true") "," ADDED(
        "<A>", "false") "]",
    .normalizer = "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": "
                  "\"Lowercase\"}, " REPLACE_BY("\"Regex\": \"1+\"") "," REPLACE_BY(
                      "\"String\": \"22\"") ", {\"type\": \"Prepend\", \"prepend\": \"_\"}]}",
    .pre_tokenizer = "{\"type\": \"Sequence\", \"pretokenizers\": [" SPLIT_AT(
        "a|[b-d]") ", {\"type\": \"Digits\", \"individual_digits\": true}, {\"type\": \"Metaspace\", "
                   "\"replacement\": "
                   "\"_\", \"prepend_scheme\": \"first\"}]}",
    .post_processor = "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"s\"}}, "
                      "{\"Sequence\": {\"id\": \"A\"}}], \"special_tokens\": {\"s\": {\"ids\": [1]}}}",
    .decoder = "{\"type\": \"Sequence\", \"decoders\": [" REPLACE_BY(
        "\"Regex\": \"a+\"") ", {\"type\": \"ByteFallback\"}, "
                             "{\"type\": \"Fuse\"}, " REPLACE_BY(
                                 "\"String\": \"bb\"") ", {\"type\": \"Strip\", \"content\": \" \", "
                                                       "\"start\": 1, \"stop\": 1}]}",
    .options = "\"unk_token\": \"u\", \"byte_fallback\": true,",
    .vocab = "{\"a\":0,\"b\":1,\"ab\":2,\"\\u4e2d\":3,\"\\u4e2db\":4,\"u\":8,\"<0xC3>\":9}",
    .merges = "[[\"a\", \"b\"], [\"\\u4e2d\", \"b\"]]",
};

/* Opens it and, unless it is refused, encodes and decodes, also a text that is refused. */
static void use_parts(void *user) {
  const Parts *parts = user;
  Tokenizer *t = NULL;
  Error err;
  if (open_parts(*parts, &t, &err) != STATUS_OK) return;
  static const char text[] = "<a><B>aab \xe4\xb8\xad"
                             "b e\xcc\x81 11 22 ab <A>";
  const PromptPiece pieces[] = {{text, 10, true}, {text + 10, sizeof text - 11, false}, {text, 6, true}};
  IdList ids = {0};
  Buffer out = {0};
  tokenizer_encode_pieces(t, pieces, 3, true, &ids, &err);
  tokenizer_decode(t, ids.ids, ids.count, false, &out, &err);
  static const int32_t half[] = {9, 1, 9};
  tokenizer_decode(t, half, 3, false, &out, &err);
  tokenizer_encode(t, "ab\xff", 3, PLAIN, &ids, &err);
  buffer_release(&out);
  id_list_release(&ids);
  tokenizer_close(t);
}

TEST(nothing_stays_in_memory) {
  Parts parts = full;
  Tokenizer *t = make(parts); /* it is not among those that are refused */
  tokenizer_close(t);
  assert_nothing_stays("a tokenizer", use_parts, &parts);
  parts.options =
      "\"unk_token\": \"u\", \"continuing_subword_prefix\": \"#\", \"end_of_word_suffix\": \"/\",";
  parts.merges = "[]";
  assert_nothing_stays("affixes", use_parts, &parts);
  parts.pre_tokenizer = BYTE_LEVEL;
  assert_nothing_stays("bytes", use_parts, &parts);
  /* One part is broken after good ones. */
  static const struct {
    size_t place;
    const char *json;
  } broken[] = {
      {offsetof(Parts, added), "[" ADDED("<A>", "true") "," ADDED("<B>", "true") ", 7]"},
      {offsetof(Parts, added), "[" ADDED("<A>", "true") "," ADDED("<a>", "true") "]"},
      {offsetof(Parts, added), "[" ADDED("<A>", "true") ", {\"id\": 0, \"content\": \"x\"}]"},
      {offsetof(Parts, normalizer),
       "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, " REPLACE_BY(
           "\"Regex\": \"1\"") "," REPLACE_BY("\"Regex\": \"1*\"") "]}"},
      {offsetof(Parts, normalizer), REPLACE_BY("\"Regex\": \"[ab](\"")},
      {offsetof(Parts, pre_tokenizer), "{\"type\": \"Sequence\", \"pretokenizers\": [" SPLIT_AT(
                                           "a|[b-d]") ", {\"type\": \"Punctuation\"}, 7]}"},
      {offsetof(Parts, pre_tokenizer), SPLIT_AT("[ab]c|[d-f&&[e]")},
      {offsetof(Parts, pre_tokenizer), SPLIT_AT("(?i:[a\\\\x{DF}])")},
      {offsetof(Parts, pre_tokenizer), SPLIT_AT("[a[:foo:]]")},
      {offsetof(Parts, pre_tokenizer), SPLIT_AT("\\\\p{Foo}")},
      {offsetof(Parts, pre_tokenizer), SPLIT_AT("(?<=a*)b")},
      {offsetof(Parts, post_processor),
       "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": "
       "\"s\"}}, 7], \"special_tokens\": {\"s\": {\"ids\": [1]}}}"},
      {offsetof(Parts, decoder),
       "{\"type\": \"Sequence\", \"decoders\": [" REPLACE_BY("\"Regex\": \"a+\"") ", 7]}"},
      {offsetof(Parts, options),
       "\"continuing_subword_prefix\": \"#\", \"end_of_word_suffix\": \"/\", \"unk_token\": 7,"},
      {offsetof(Parts, vocab), "{\"a\":0,\"b\":1,\"\\u4e2d\":1}"},
      {offsetof(Parts, vocab), "{\"a\":0,\"b\":1,\"\\u4e2d\":-1}"},
      {offsetof(Parts, merges), "[[\"a\", \"b\"], [\"\\u4e2d\", \"\\u4e2d\"]]"},
  };
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
    char what[32];
    Error err;
    parts = full;
    *(const char **)((char *)&parts + broken[i].place) = broken[i].json;
    snprintf(what, sizeof what, "broken part %zu", i);
    if (open_parts(parts, &t, &err) != STATUS_MODEL) fail_msg("%s is accepted", what);
    assert_nothing_stays(what, use_parts, &parts);
  }
}
