/* test_filters.c - an answer does not depend on how its text is cut into tokens: many tokenizations of a
 * text, one of them into bytes, give the same thought, answer, code and calls through the same filters. */
#include "commands/answer/filters/filters.h"
#include "test/constrain/small_vocabulary.h"
#include "test/tests.h"

static const char call_schema[] =
    "{\"type\": \"object\", \"properties\": {\"name\": {\"const\": \"f\"}, \"arguments\": {\"const\": {}}}, "
    "\"required\": [\"name\", \"arguments\"], \"additionalProperties\": false}";
static const char *const stops[] = {"sun", "ed ball", "\xc3\xa9\xc3\xa9"};

static const struct {
  const char *text, *thought, *answer; /* thought and answer without stop strings */
  const char *stopped;                 /* the answer up to the first stop string; NULL: the same */
  const char *code;                    /* with -x, without stop strings; NULL: there is no block */
  const char *prompt;                  /* the end of the prompt; NULL: no thought is open */
  const char *regex;                   /* the answer's form, or NULL */
  const char *calls;                   /* calls, which begin with the token "b"; NULL: there are no tools */
} texts[] = {
    {.text = "Once upon a time", .thought = "", .answer = "Once upon a time"},
    {.text = "<think>\nIs it the sun?\n</think>\n\nIt is. The sun!",
     .thought = "Is it the sun?",
     .answer = "It is. The sun!",
     .stopped = "It is. The "},
    {.text = "no mark</think> later", .thought = "", .answer = "no mark</think> later"},
    {.text = "</think>\n\nan answer", .thought = "", .answer = "an answer"},
    {.text = "<think>never closed </thin", .thought = "never closed </thin", .answer = ""},
    {.text = "<think></think>", .thought = "", .answer = ""},
    {.text = " as the prompt </think> \nhas it",
     .thought = "as the prompt",
     .answer = "has it",
     .prompt = "<think>"},
    {.text = "a red bal, a red ball",
     .thought = "",
     .answer = "a red bal, a red ball",
     .stopped = "a red bal, a r"},
    {.text = "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8c\x9e \xc3\xa9\xc3\xa9n",
     .thought = "",
     .answer = "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8c\x9e \xc3\xa9\xc3\xa9n",
     .stopped = "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8c\x9e "},
    {.text = "<think>```\na\n```</think>Here:\n  ```c\n  x = `1`;\n ``\n  ``` \nThat is all.",
     .thought = "```\na\n```",
     .answer = "Here:\n  ```c\n  x = `1`;\n ``\n  ``` \nThat is all.",
     .code = "x = `1`;\n``\n"},
    {.text = "~~~~\nthe day\n~~~\n~~~~ ",
     .thought = "",
     .answer = "~~~~\nthe day\n~~~\n~~~~ ",
     .code = "the day\n~~~\n"},
    {.text = "```\nno end\n``", .thought = "", .answer = "```\nno end\n``", .code = "no end\n``"},
    {.text = "```\na red ball\n```\n",
     .thought = "",
     .answer = "```\na red ball\n```\n",
     .stopped = "```\na r",
     .code = "a red ball\n"},
    {.text = "the sun \xc3\xa9\xc3\xa9",
     .thought = "",
     .answer = " the sun \xc3\xa9\xc3\xa9", /* the first token has a blank */
     .regex = "[a-z \xc3\xa9]+"},
    {.text = "why\n</think>\n\nthe sun",
     .thought = "why",
     .answer = "the sun",
     .prompt = "<think>\n",
     .regex = "[a-z ]+"},
    {.text = "It is the sun.\nb{\"name\": \"f\", \"arguments\":\n{}}",
     .thought = "",
     .answer = "It is the sun.\n",
     .stopped = "It is the ",
     .calls = "{\"name\": \"f\", \"arguments\": {}}\n"},
    {.text = "why</think>\nb\n{\"name\":\"f\",\"arguments\":{}}",
     .thought = "why",
     .answer = "",
     .prompt = "<think>",
     .calls = "{\"name\": \"f\", \"arguments\": {}}\n"},
};
enum { N_TEXTS = sizeof texts / sizeof *texts, N_CUTS = 60 };

typedef struct {
  Buffer of[3]; /* by TextKind */
  AnswerText answer;
  AnswerResult result;
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
 * after it in place of a third, by chance. Tokens of a character in `kept` stay. */
static void cut(const char *text, int number, const char *kept, IdList *ids) {
  IdList whole = {0};
  const PromptPiece piece = {text, strlen(text), false};
  assert_int_equal(tokenizer_encode_pieces(tokenizer, &piece, 1, false, &whole, NULL), STATUS_OK);
  for (size_t i = 0; i < whole.count; i++) {
    Buffer bytes = {0};
    bool is_text = false;
    assert_int_equal(tokenizer_token_bytes(tokenizer, whole.ids[i], &bytes, &is_text, NULL), STATUS_OK);
    const bool splits = number == 1 || (number > 1 && rand() % 3 == 0),
               apart = splits && i > 0 && is_text && !(bytes.size == 1 && strchr(kept, bytes.data[0]));
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

static void take_all(EngineRequest *request, const IdList *ids) {
  TokenReply reply = {0};
  Error err = {{0}};
  for (size_t i = 0; i < ids->count && !reply.stop; i++) {
    reply = (TokenReply){0};
    if (request->sink(request->user, ids->ids[i], &reply, &err) != STATUS_OK) fail_msg("%s", err.text);
  }
  TokenReply last = {0};
  for (int i = 0; i < reply.n_forced; i++) /* the mark that ends a call */
    assert_int_equal(request->sink(request->user, reply.forced[i], &last, NULL), STATUS_OK);
}

static void check(int i, int number, bool with_stops, Got *seen) {
  static const ToolFormat format = {.begin = "b", .end = "e", .arguments = "arguments"};
  static const char *stop_list[3];
  memcpy(stop_list, stops, sizeof stops);
  AssistantFlags flags = ASSISTANT_DEFAULTS;
  if (with_stops) flags.answer.stops = (StringList){.items = stop_list, .count = 3};
  const FormFlags asked = {.schema = texts[i].calls ? call_schema : NULL, .regex = texts[i].regex};
  Assistant assistant = {.tokenizer = tokenizer,
                         .ends = {.ids = (int32_t[]){2}, .count = 1},
                         .flags = &flags,
                         .thinking = {.open = "<think>", .close = "</think>"},
                         .think_budget = -1,
                         .max_tokens = 1000};
  if (texts[i].calls)
    assistant.tools = (Tools){.given = true, .format = &format, .begin = tokenizer_find(tokenizer, "b")};
  AnswerForm form = {0};
  Error err = {{0}};
  if ((asked.schema || asked.regex) && form_open(&asked, tokenizer, 512, &form, &err) != STATUS_OK)
    fail_msg("%s", err.text);
  form.is_calls = texts[i].calls != NULL;
  IdList prompt = {0}, ids = {0};
  /* The token "b" begins a call. A form or a call may follow a thought once the closing mark is text, and a
   * decoder holds back a run of bytes until another token comes. */
  const char *kept = texts[i].calls ? "b>" : texts[i].regex ? ">" : "";
  cut(texts[i].prompt ? texts[i].prompt : "Hi", 0, "", &prompt);
  cut(texts[i].text, number, kept, &ids);
  EngineRequest request = {.ids = prompt.ids, .n_ids = (int)prompt.count};
  const AnswerSink sink = {.answer = &seen->answer, .text = see, .user = seen};
  Filters filters = {0};
  assert_int_equal(filters_begin(&filters, &assistant, &form, &sink, &seen->result, &request, NULL),
                   STATUS_OK);
  take_all(&request, &ids);
  assert_int_equal(filters_end(&filters, &(GenerateResult){.reason = FINISH_EOS}, NULL), STATUS_OK);
  filters_release(&filters);
  form_release(&form);
  id_list_release(&prompt);
  id_list_release(&ids);
}

TEST(the_cut_into_tokens_does_not_matter) {
  srand(7);
  for (int i = 0; i < N_TEXTS; i++)
    for (int with_stops = 0; with_stops < 2; with_stops++)
      for (int number = 0; number < N_CUTS; number++) {
        Got seen = {0};
        const bool stops_it = with_stops && texts[i].stopped;
        const char *answer = stops_it ? texts[i].stopped : texts[i].answer,
                   *calls = stops_it || !texts[i].calls ? "" : texts[i].calls;
        check(i, number, with_stops, &seen);
        const Buffer *const collected[] = {[TEXT_ANSWER] = &seen.answer.text,
                                           [TEXT_THOUGHT] = &seen.answer.thinking,
                                           [TEXT_CALL] = &seen.answer.calls};
        const char *expected[] = {
            [TEXT_ANSWER] = answer, [TEXT_THOUGHT] = texts[i].thought, [TEXT_CALL] = calls};
        for (int kind = 0; kind < 3; kind++)
          if (!holds(&seen.of[kind], expected[kind]) || !holds(collected[kind], expected[kind]))
            fail_msg("text %d, cut %d, stops %d, kind %d: '%.*s'", i, number, with_stops, kind,
                     (int)seen.of[kind].size, seen.of[kind].data);
        assert_false(seen.result.in_call || seen.result.in_block || seen.result.has_no_block);
        forget(&seen);
      }
}

/* Stop strings are looked for before code is; the answer up to the end of the block is collected, too. */
TEST(with_extraction_the_code_alone_is_shown) {
  for (int i = 0; i < N_TEXTS; i++)
    for (int number = 0; number < N_CUTS && !texts[i].regex && !texts[i].calls; number++) {
      Got seen = {.answer.extracts = true}, stopped = {.answer.extracts = true};
      const char *code = texts[i].code ? texts[i].code : "";
      check(i, number, false, &seen);
      const size_t n = strlen(texts[i].answer), n_kept = seen.answer.text.size;
      if (!holds(&seen.of[TEXT_ANSWER], code) || !holds(&seen.answer.code, code))
        fail_msg("text %d, cut %d: '%.*s'", i, number, (int)seen.of[TEXT_ANSWER].size,
                 seen.of[TEXT_ANSWER].data);
      assert_true(n_kept <= n &&
                  (n_kept == 0 || memcmp(seen.answer.text.data, texts[i].answer, n_kept) == 0));
      assert_int_equal(seen.result.has_no_block, !texts[i].code);
      assert_true(texts[i].code || !seen.result.in_block);
      check(i, number, true, &stopped);
      if (texts[i].code && texts[i].stopped) assert_true(holds(&stopped.of[TEXT_ANSWER], "a r"));
      forget(&seen);
      forget(&stopped);
    }
}

/* An answer with a form: text that shares a token with the closing mark is dropped, the thought is not. */
TEST(with_a_form_only_the_thought_passes) {
  Got seen = {0};
  IdList ids = {0};
  const AnswerSink sink = {.answer = &seen.answer, .text = see, .user = &seen};
  TextChain chain;
  cut("<think>why</think> {", 0, "", &ids);
  assert_int_equal(text_chain_begin(&chain, tokenizer, &sink, NULL), STATUS_OK);
  thinking_begin(&chain.splitter, "<think>", "</think>", false);
  chain.drops_answer = true;
  for (size_t k = 0; k < ids.count; k++)
    assert_int_equal(text_chain_take(&chain, ids.ids[k], NULL), STATUS_OK);
  assert_int_equal(text_chain_end(&chain, true, NULL), STATUS_OK);
  assert_true(holds(&seen.of[TEXT_THOUGHT], "why"));
  assert_int_equal(seen.of[TEXT_ANSWER].size, 0);
  text_chain_release(&chain);
  id_list_release(&ids);
  forget(&seen);
}

/* A channel for thoughts says what its text is: marks and stop strings are text. */
TEST(all_text_of_a_channel_for_thoughts_is_thought) {
  for (int i = 0; i < N_TEXTS; i++) {
    Got seen = {0};
    IdList ids = {0};
    const AnswerSink sink = {.answer = &seen.answer, .text = see, .user = &seen};
    TextChain chain;
    cut(texts[i].text, 1, "", &ids);
    assert_int_equal(text_chain_begin(&chain, tokenizer, &sink, NULL), STATUS_OK);
    thinking_begin(&chain.splitter, NULL, NULL, false);
    chain.is_thought = true;
    chain.stop.strings = stops;
    chain.stop.n_strings = sizeof stops / sizeof *stops;
    for (size_t k = 0; k < ids.count; k++)
      assert_int_equal(text_chain_take(&chain, ids.ids[k], NULL), STATUS_OK);
    assert_int_equal(text_chain_end(&chain, true, NULL), STATUS_OK);
    assert_true(holds(&seen.of[TEXT_THOUGHT], texts[i].text));
    assert_int_equal(seen.of[TEXT_ANSWER].size, 0);
    text_chain_release(&chain);
    id_list_release(&ids);
    forget(&seen);
  }
}

static CMFixtureFunction before_all = open_vocabulary, after_all = close_vocabulary;
