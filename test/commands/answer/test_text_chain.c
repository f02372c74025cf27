/* test_text_chain.c - the text of an answer does not depend on how it is cut into tokens: each of many
 * tokenizations of a text gives the sink the same thought and the same answer, and with -x the same code. */
#include "commands/answer/filters/text_chain.h"
#include "test/constrain/small_vocabulary.h"
#include "test/tests.h"

static const char *const stops[] = {"sun", "ed ball", "\xc3\xa9\xc3\xa9"};

static const struct {
  const char *text, *thought, *answer; /* thought and answer without stop strings */
  const char *stopped;                 /* the answer up to the first stop string; NULL: the same */
  const char *code;                    /* with -x, without stop strings; NULL: there is no block */
} texts[] = {
    {"Once upon a time", "", "Once upon a time", NULL, NULL},
    {"<think>\nIs it the sun?\n</think>\n\nIt is. The sun!", "Is it the sun?", "It is. The sun!",
     "It is. The ", NULL},
    {"no mark</think> later", "", "no mark</think> later", NULL, NULL},
    {"</think>\n\nan answer", "", "an answer", NULL, NULL},
    {"<think>never closed </thin", "never closed </thin", "", NULL, NULL},
    {"<think></think>", "", "", NULL, NULL},
    {"a red bal, a red ball", "", "a red bal, a red ball", "a red bal, a r", NULL},
    {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8c\x9e \xc3\xa9\xc3\xa9n", "",
     "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8c\x9e \xc3\xa9\xc3\xa9n",
     "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8c\x9e ", NULL},
    {"<think>```\na\n```</think>Here:\n  ```c\n  x = `1`;\n ``\n  ``` \nThat is all.", "```\na\n```",
     "Here:\n  ```c\n  x = `1`;\n ``\n  ``` \nThat is all.", NULL, "x = `1`;\n``\n"},
    {"~~~~\nthe sun\n~~~\n~~~~ ", "", "~~~~\nthe sun\n~~~\n~~~~ ", "~~~~\nthe ", "the sun\n~~~\n"},
    {"```\nno end\n``", "", "```\nno end\n``", NULL, "no end\n``"},
};
enum { N_TEXTS = sizeof texts / sizeof *texts, N_CUTS = 60 };

typedef struct {
  Buffer of[3]; /* by TextKind */
  AnswerText answer;
} Got;

static Status see(void *user, TextKind kind, const char *text, size_t size, Error *err) {
  Got *seen = user;
  assert_true(size > 0);
  return buffer_append(&seen->of[kind], text, size, err);
}

static void forget(Got *seen) {
  for (int kind = 0; kind < 3; kind++) buffer_release(&seen->of[kind]);
  answer_text_release(&seen->answer);
}

static bool holds(const Buffer *buffer, const char *text) {
  return buffer->size == strlen(text) && (buffer->size == 0 || memcmp(buffer->data, text, buffer->size) == 0);
}

/* Appends the tokens of a text. Cut 1 has tokens of single bytes in place of all but the first, the cuts
 * after it in place of a third, by chance. */
static void cut(const char *text, int number, IdList *ids) {
  IdList whole = {0};
  const PromptPiece piece = {text, strlen(text), false};
  assert_int_equal(tokenizer_encode_pieces(tokenizer, &piece, 1, false, &whole, NULL), STATUS_OK);
  for (size_t i = 0; i < whole.count; i++) {
    Buffer bytes = {0};
    bool is_text = false;
    assert_int_equal(tokenizer_token_bytes(tokenizer, whole.ids[i], &bytes, &is_text, NULL), STATUS_OK);
    const bool apart = i > 0 && is_text && number > 0 && (number == 1 || rand() % 3 == 0);
    if (!apart) assert_int_equal(id_list_append(ids, whole.ids[i], NULL), STATUS_OK);
    for (size_t at = 0; apart && at < bytes.size; at++) {
      char name[8];
      snprintf(name, sizeof name, "<0x%02X>", (unsigned char)bytes.data[at]);
      assert_int_equal(id_list_append(ids, tokenizer_find(tokenizer, name), NULL), STATUS_OK);
    }
    buffer_release(&bytes);
  }
  id_list_release(&whole);
}

static void check(const char *text, int number, bool with_stops, bool is_thought, Got *seen) {
  TextChain chain;
  IdList ids = {0};
  const AnswerSink sink = {.answer = &seen->answer, .text = see, .user = seen};
  cut(text, number, &ids);
  assert_int_equal(text_chain_begin(&chain, tokenizer, &sink, NULL), STATUS_OK);
  thinking_begin(&chain.splitter, is_thought ? NULL : "<think>", "</think>", false);
  chain.is_thought = is_thought;
  chain.stop.strings = stops;
  chain.stop.n_strings = with_stops ? sizeof stops / sizeof *stops : 0;
  for (size_t i = 0; i < ids.count && !chain.stopped; i++)
    assert_int_equal(text_chain_take(&chain, ids.ids[i], NULL), STATUS_OK);
  if (!chain.stopped) assert_int_equal(text_chain_end(&chain, true, NULL), STATUS_OK);
  text_chain_release(&chain);
  id_list_release(&ids);
}

TEST(the_cut_into_tokens_does_not_matter) {
  srand(7);
  for (int i = 0; i < N_TEXTS; i++)
    for (int with_stops = 0; with_stops < 2; with_stops++)
      for (int number = 0; number < N_CUTS; number++) {
        Got seen = {0};
        const char *answer = with_stops && texts[i].stopped ? texts[i].stopped : texts[i].answer;
        check(texts[i].text, number, with_stops, false, &seen);
        if (!holds(&seen.of[TEXT_THOUGHT], texts[i].thought) || !holds(&seen.of[TEXT_ANSWER], answer) ||
            !holds(&seen.answer.text, answer))
          fail_msg("text %d, cut %d, stops %d: '%.*s' '%.*s'", i, number, with_stops,
                   (int)seen.of[TEXT_THOUGHT].size, seen.of[TEXT_THOUGHT].data,
                   (int)seen.of[TEXT_ANSWER].size, seen.of[TEXT_ANSWER].data);
        forget(&seen);
      }
}

/* Stop strings are looked for before code is. */
TEST(with_extraction_the_code_alone_is_shown) {
  for (int i = 0; i < N_TEXTS; i++)
    for (int number = 0; number < N_CUTS; number++) {
      Got seen = {.answer.extracts = true};
      const char *code = texts[i].code ? texts[i].code : "";
      check(texts[i].text, number, false, false, &seen);
      const size_t n = strlen(texts[i].answer), n_kept = seen.answer.text.size;
      if (!holds(&seen.of[TEXT_ANSWER], code) || !holds(&seen.answer.code, code))
        fail_msg("text %d, cut %d: '%.*s'", i, number, (int)seen.of[TEXT_ANSWER].size,
                 seen.of[TEXT_ANSWER].data);
      assert_true(n_kept <= n &&
                  (n_kept == 0 || memcmp(seen.answer.text.data, texts[i].answer, n_kept) == 0));
      forget(&seen);
    }
  Got seen = {.answer.extracts = true};
  check(texts[N_TEXTS - 2].text, 1, true, false, &seen);
  assert_true(holds(&seen.of[TEXT_ANSWER], "the "));
  forget(&seen);
}

/* A channel for thoughts says what its text is: marks and stop strings are text. */
TEST(all_text_of_a_channel_for_thoughts_is_thought) {
  for (int i = 0; i < N_TEXTS; i++) {
    Got seen = {0};
    check(texts[i].text, 1, true, true, &seen);
    assert_true(holds(&seen.of[TEXT_THOUGHT], texts[i].text));
    assert_int_equal(seen.of[TEXT_ANSWER].size, 0);
    forget(&seen);
  }
}

/* An answer with a form: text that shares a token with the closing mark is dropped, the thought is not. */
TEST(with_a_form_only_the_thought_passes) {
  Got seen = {0};
  TextChain chain;
  IdList ids = {0};
  const AnswerSink sink = {.answer = &seen.answer, .text = see, .user = &seen};
  cut("<think>why</think> {", 0, &ids);
  assert_int_equal(text_chain_begin(&chain, tokenizer, &sink, NULL), STATUS_OK);
  thinking_begin(&chain.splitter, "<think>", "</think>", false);
  chain.drops_answer = true;
  for (size_t i = 0; i < ids.count; i++)
    assert_int_equal(text_chain_take(&chain, ids.ids[i], NULL), STATUS_OK);
  assert_int_equal(text_chain_end(&chain, true, NULL), STATUS_OK);
  assert_true(holds(&seen.of[TEXT_THOUGHT], "why"));
  assert_int_equal(seen.of[TEXT_ANSWER].size, 0);
  text_chain_release(&chain);
  id_list_release(&ids);
  forget(&seen);
}

static CMFixtureFunction before_all = open_vocabulary, after_all = close_vocabulary;
