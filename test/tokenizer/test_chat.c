/* test_chat.c - conversations become their formats' text and its ids; a person's text stays a person's.
 *
 * test/data/tokenizers/formats/ holds conversations rendered by the templates of SmolLM2 (ChatML) and
 * Llama 3. The ids of a byte-level tokenizer without merges are the text's bytes and the control tokens,
 * so equal ids are equal renderings. test/commands/test_template.py tests what chat_open() finds in a
 * checkpoint. */
#include <time.h>
#include <unistd.h>

#include "small.h"
#include "test/tests.h"
#include "tokenizer/chat/chat.h"
#include "tokenizer/chat/chat_internal.h"

static const char *const chatml_controls[] = {"<|im_start|>", "<|im_end|>"};
static const char *const llama3_controls[] = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                                              "<|eot_id|>"};

static Chat *open_named(const char *name, const Tokenizer *tokenizer) {
  Chat *chat;
  Error err;
  if (chat_open(NULL, name, tokenizer, &chat, &err) != STATUS_OK)
    fail_msg("%s: %s", name ? name : "its own", err.text);
  return chat;
}

/* --- formats */

/* A conversation that the built-in format covers: plain texts and, if the model's own template would add a
 * system turn, such a turn. */
static bool is_plain(const Json *line, bool needs_system) {
  const Json *messages = json_member(line, "messages");
  bool plain = json_member(line, "rendered") && json_count(messages) > 0;
  for (const Json *m = json_first(messages); m; m = json_next(m))
    plain &= json_count(m) == 2 && json_is_string(json_member(m, "content")) &&
             json_is_string(json_member(m, "role"));
  return plain && (!needs_system || json_string_is(json_member(json_first(messages), "role"), "system"));
}

static void check_conversation(const Tokenizer *t, const Chat *chat, const Json *line) {
  ChatMessage messages[64] = {0};
  ChatOptions options = {.add_generation_prompt = false};
  size_t n = 0, size;
  for (const Json *m = json_first(json_member(line, "messages")); m; m = json_next(m)) {
    assert_true(n < 64);
    messages[n].role = json_string(json_member(m, "role"), &size);
    messages[n].text = json_string(json_member(m, "content"), &messages[n].size);
    n++;
  }
  json_bool(json_member(json_member(line, "options"), "add_generation_prompt"),
            &options.add_generation_prompt);
  const char *rendered = json_string(json_member(line, "rendered"), &size);
  IdList expected = {0}, ids = {0};
  TrustedText text = {0};
  Error err;
  assert_int_equal(chat_render(chat, messages, n, options, &text, &err), STATUS_OK);
  if (text.text.size != size || memcmp(text.text.data, rendered, size) != 0)
    fail_msg("%.*s\n differs from %s", (int)text.text.size, text.text.data, rendered);
  assert_int_equal(tokenizer_encode(t, rendered, size, PLAIN, &expected, &err), STATUS_OK);
  assert_int_equal(chat_encode(t, &text, true, &ids, &err), STATUS_OK);
  assert_int_equal(ids.count, expected.count);
  assert_memory_equal(ids.ids, expected.ids, ids.count * sizeof *ids.ids);
  trusted_text_release(&text);
  id_list_release(&expected);
  id_list_release(&ids);
}

static int check_file(const char *path, const Tokenizer *t, const Chat *chat, bool needs_system) {
  MappedFile file;
  Error err;
  assert_int_equal(file_map(path, STATUS_FAILED, &file, &err), STATUS_OK);
  int n = 0;
  const char *at = (const char *)file.data, *end = at + file.size;
  for (const char *newline; at < end && (newline = memchr(at, '\n', (size_t)(end - at))); at = newline + 1) {
    Json *line;
    assert_int_equal(json_parse(path, STATUS_FAILED, at, (size_t)(newline - at), NULL, 0, &line, &err),
                     STATUS_OK);
    if (is_plain(line, needs_system)) {
      check_conversation(t, chat, line);
      n++;
    }
    json_free(line);
  }
  file_unmap(&file);
  return n;
}

TEST(conversations_are_rendered_as_the_models_templates_do) {
  Tokenizer *t = with_controls(chatml_controls, 2);
  Chat *chat = open_named(NULL, t);
  assert_string_equal(chat_source(chat), "built-in chatml");
  assert_true(check_file("test/data/tokenizers/formats/chatml_chat.jsonl", t, chat, true) >= 9);
  chat_close(chat);
  tokenizer_close(t);
  t = with_controls(llama3_controls, 4);
  chat = open_named(NULL, t);
  assert_string_equal(chat_source(chat), "built-in llama3");
  assert_true(check_file("test/data/tokenizers/formats/llama3_chat.jsonl", t, chat, false) >= 20);
  chat_close(chat);
  tokenizer_close(t);
}

/* Numbers in TZ count hours west of UTC. */
TEST(the_present_time_is_the_one_of_the_zone) {
  static const struct {
    const char *zone;
    int64_t ahead;
  } zones[] = {{"UTC0", 0}, {"EAST-5:30", 19800}, {"WEST+3", -10800}};
  const char *zone = getenv("TZ");
  char *saved = zone ? strdup(zone) : NULL;
  for (size_t i = 0; i < sizeof zones / sizeof *zones; i++) {
    assert_int_equal(setenv("TZ", zones[i].zone, 1), 0);
    tzset();
    const int64_t before = time(NULL), now = chat_now(), after = time(NULL);
    assert_in_range(now - zones[i].ahead, before, after);
  }
  assert_int_equal(saved ? setenv("TZ", saved, 1) : unsetenv("TZ"), 0);
  tzset();
  free(saved);
}

/* Completions offer CHAT_BUILTINS. */
TEST(every_built_in_is_listed) {
  size_t n = 0, listed = 0;
  for (; chat_builtins[n].name; n++) {
    const char *name = chat_builtins[n].name, *at = strstr("|" CHAT_BUILTINS "|", name);
    assert_non_null(at);
    assert_int_equal(at[-1], '|');
    assert_int_equal(at[strlen(name)], '|');
  }
  for (const char *at = CHAT_BUILTINS; at; at = strchr(at + 1, '|')) listed++;
  assert_int_equal(listed, n);
}

TEST(which_template_is_taken) {
  Chat *chat;
  Error err;
  Tokenizer *none = with_controls(chatml_controls, 1), *chatml = with_controls(chatml_controls, 2);
  assert_int_equal(chat_open(NULL, NULL, none, &chat, &err), STATUS_OK);
  assert_null(chat);
  assert_int_equal(chat_open(NULL, NULL, NULL, &chat, &err), STATUS_OK);
  assert_null(chat);
  chat = open_named("gemma", chatml);
  assert_string_equal(chat_source(chat), "built-in gemma");
  chat_close(chat);
  assert_int_equal(chat_open(NULL, "nonsense", chatml, &chat, &err), STATUS_USAGE);
  assert_null(chat);
  assert_string_equal(err.text,
                      "there is no chat template \"nonsense\": expected a file, or one of chatml, llama3, "
                      "gemma, phi, deepseek, mistral, llama2");
  tokenizer_close(chatml);
  tokenizer_close(none);
  char one[TOKEN_SIZE], two[TOKEN_SIZE],
      added[2 * TOKEN_SIZE + 8]; /* not special: any text could hold them */
  snprintf(added, sizeof added, "[%s,%s]", token_json(one, "<|im_start|>", ""),
           token_json(two, "<|im_end|>", ""));
  none = make_bytes(added);
  assert_int_equal(chat_open(NULL, NULL, none, &chat, &err), STATUS_OK);
  assert_null(chat);
  tokenizer_close(none);
}

/* Each format by its two tokens, which must both be special; the first format in the list wins. */
TEST(a_built_in_is_taken_where_both_its_tokens_are_special) {
  static const char *const pairs[][3] = {
      {"chatml", "<|im_start|>", "<|im_end|>"},      {"llama3", "<|start_header_id|>", "<|eot_id|>"},
      {"gemma", "<start_of_turn>", "<end_of_turn>"}, {"phi", "<|assistant|>", "<|end|>"},
      {"deepseek", "<｜User｜>", "<｜Assistant｜>"}, {"mistral", "[INST]", "[/INST]"}};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
    for (int special = 0; special < 4; special++) {
      char one[TOKEN_SIZE], two[TOKEN_SIZE], added[2 * TOKEN_SIZE + 8], source[40];
      Chat *chat;
      Error err;
      snprintf(added, sizeof added, "[%s,%s]", token_json(one, pairs[i][1], special & 1 ? "s" : ""),
               token_json(two, pairs[i][2], special & 2 ? "s" : ""));
      Tokenizer *t = make_bytes(added);
      assert_int_equal(chat_open(NULL, NULL, t, &chat, &err), STATUS_OK);
      snprintf(source, sizeof source, "built-in %s", pairs[i][0]);
      if (special == 3)
        assert_string_equal(chat_source(chat), source);
      else
        assert_null(chat);
      chat_close(chat);
      tokenizer_close(t);
    }
  const char *both[] = {pairs[5][1], pairs[5][2], pairs[1][1], pairs[1][2]};
  Tokenizer *t = with_controls(both, 4);
  Chat *chat = open_named(NULL, t);
  assert_string_equal(chat_source(chat), "built-in llama3");
  chat_close(chat);
  tokenizer_close(t);
}

/* Earlier text stays; the borders of trust move with the text. */
TEST(a_rendering_is_appended) {
  Tokenizer *t = with_controls(chatml_controls, 2);
  Chat *chat = open_named("chatml", t);
  const ChatMessage message = {.role = "user", .text = "<|im_end|>", .size = 10};
  for (int trusted = 0; trusted < 2; trusted++) {
    TrustedText text = {0};
    IdList ids = {0};
    Error err;
    for (int i = 0; i < 2; i++)
      assert_int_equal(chat_render(chat, &message, 1, (ChatOptions){.trusted = trusted}, &text, &err),
                       STATUS_OK);
    assert_int_equal(text.text.size, 2 * strlen("<|im_start|>user\n<|im_end|><|im_end|>\n"));
    assert_int_equal(chat_encode(t, &text, false, &ids, &err), STATUS_OK);
    int controls = 0;
    for (size_t i = 0; i < ids.count; i++) controls += ids.ids[i] >= 256;
    assert_int_equal(controls, trusted ? 6 : 4);
    id_list_release(&ids);
    trusted_text_release(&text);
  }
  chat_close(chat);
  tokenizer_close(t);
}

/* --- a person's text */

static const char *ids_of(const Tokenizer *t, const Chat *chat, const char *role, const char *text,
                          bool trusted, char found[512]) {
  const ChatMessage message = {.role = role, .text = text, .size = strlen(text)};
  ChatOptions options = {.add_generation_prompt = true, .trusted = trusted};
  TrustedText rendered = {0};
  IdList ids = {0};
  Error err;
  if (chat_render(chat, &message, 1, options, &rendered, &err) != STATUS_OK) fail_msg("%s", err.text);
  assert_int_equal(chat_encode(t, &rendered, false, &ids, &err), STATUS_OK);
  ids_text(&ids, found, 512);
  id_list_release(&ids);
  trusted_text_release(&rendered);
  return found;
}

/* Control tokens in a person's text are text; the template's count. */
TEST(a_person_cannot_end_a_turn) {
  Tokenizer *t = with_controls(chatml_controls, 2);
  Chat *chat = open_named("chatml", t);
  char found[512];
  assert_string_equal(ids_of(t, chat, "user", "<|im_end|>", false, found),
                      "256 117 115 101 114 10 60 124 105 109 95 101 110 100 124 62 257 10 "
                      "256 97 115 115 105 115 116 97 110 116 10");
  assert_string_equal(ids_of(t, chat, "user", "<|im_end|>", true, found),
                      "256 117 115 101 114 10 257 257 10 256 97 115 115 105 115 116 97 110 116 10");
  chat_close(chat);
  tokenizer_close(t);
}

TEST(broken_text_is_refused) {
  Chat *chat = open_named("llama3", NULL);
  const ChatMessage messages[] = {
      {.role = "user", .text = " \xc3", .size = 2},
      {.role = "assistant", .text = "a", .size = 1, .thinking = "b\xff", .thinking_size = 2},
      {.role = "user", .text = NULL, .size = 0}};
  static const char *const expected[] = {"the user message is not valid UTF-8: byte 0xc3 at offset 1",
                                         "the assistant message is not valid UTF-8: byte 0xff at offset 1",
                                         NULL};
  for (int i = 0; i < 3; i++) {
    TrustedText text = {0};
    Error err = {{0}};
    Status status =
        chat_render(chat, &messages[i], 1, (ChatOptions){.add_generation_prompt = true}, &text, &err);
    assert_int_equal(status, expected[i] ? STATUS_USAGE : STATUS_OK);
    if (expected[i]) assert_string_equal(err.text, expected[i]);
    trusted_text_release(&text);
  }
  chat_close(chat);
}

/* --- templates of the test's own, from a file */

static Chat *open_text(const char *text, const Tokenizer *tokenizer) {
  char path[] = "/tmp/auk-test-chat-XXXXXX";
  int descriptor = mkstemp(path);
  Error err;
  Chat *chat;
  assert_true(descriptor >= 0);
  assert_int_equal(descriptor_write(descriptor, path, text, strlen(text), &err), STATUS_OK);
  close(descriptor);
  Status status = chat_open(NULL, path, tokenizer, &chat, &err);
  if (status != STATUS_OK) fail_msg("%s", err.text);
  assert_string_equal(chat_source(chat), path);
  remove(path);
  return chat;
}

/* As llava-1.5-7b-hf, SmolVLM and others have it; Qwen2-VL's takes both. */
TEST(a_template_that_knows_only_parts_gets_parts) {
  static const char *const templates[] = {
      "{% for m in messages %}{{ m.role }}:{% for c in m['content'] | selectattr('type', 'equalto', 'text') "
      "%}"
      "{{ c['text'] }}{% endfor %}{% endfor %}",
      "{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}"
      "{% for c in m.content %}{{ c.text }}!{% endfor %}{% endif %}{% endfor %}",
      "{% for m in messages %}{{ m.role }}:{{ m.content[0].text }}{% endfor %}"};
  for (int i = 0; i < 3; i++) {
    Chat *chat = open_text(templates[i], NULL);
    const ChatMessage message = {.role = "user", .text = "a \"b\"\n", .size = 6};
    TrustedText text = {0};
    Error err;
    assert_int_equal(chat->in_parts, i != 1);
    assert_int_equal(chat_render(chat, &message, 1, (ChatOptions){0}, &text, &err), STATUS_OK);
    assert_int_equal(text.text.size, 11);
    assert_memory_equal(text.text.data, "user:a \"b\"\n", 11);
    assert_true(text.n_runs > 1 && !text.runs[text.n_runs - 1].trusted); /* words stay a person's */
    trusted_text_release(&text);
    chat_close(chat);
  }
}

TEST(what_a_template_raises_is_told) {
  Chat *chat = open_text("{{ raise_exception('no ' ~ messages[0].role) }}", NULL);
  const ChatMessage message = {.role = "wizard", .text = "", .size = 0};
  TrustedText text = {0};
  Error err;
  assert_int_equal(chat_render(chat, &message, 1, (ChatOptions){0}, &text, &err), STATUS_USAGE);
  assert_string_equal(err.text, "the chat template says: no wizard");
  assert_int_equal(text.text.size, 0);
  assert_int_equal(chat_render(chat, &message, 1, (ChatOptions){0}, &text, NULL), STATUS_USAGE);
  assert_int_equal(text.text.size, 0);
  chat_close(chat);
}

TEST(a_template_is_given_what_transformers_gives) {
  Chat *chat =
      open_text("{{ tools }}{{ documents }}{{ add_generation_prompt }}{{ enable_thinking is defined }}"
                "{{ enable_thinking }}|{{ messages[0].reasoning_content }}|{{ messages[0].thinking }}|"
                "{{ messages[0].reasoning }}|{{ messages[0]|length }}{{ strftime_now('%Y')|int >= 2024 }}",
                NULL);
  static const char *const expected[] = {"NoneNoneFalseFalse||||2True",
                                         "NoneNoneFalseTrueFalse|why|why|why|5True",
                                         "NoneNoneFalseTrueTrue||||2True"};
  const ThinkChoice choices[] = {THINK_UNSAID, THINK_NO, THINK_YES};
  for (int i = 0; i < 3; i++) {
    const ChatMessage message = {.role = "assistant",
                                 .text = "x",
                                 .size = 1,
                                 .thinking = i == 1 ? "why" : NULL,
                                 .thinking_size = i == 1 ? 3 : 0};
    TrustedText text = {0};
    Error err;
    if (chat_render(chat, &message, 1, (ChatOptions){.think = choices[i]}, &text, &err))
      fail_msg("%s", err.text);
    assert_int_equal(buffer_append(&text.text, "", 1, &err), STATUS_OK);
    assert_string_equal(text.text.data, expected[i]);
    trusted_text_release(&text);
  }
  chat_close(chat);
}

/* Some models end their turns with the first token of the vocabulary. */
TEST(a_turn_may_end_with_token_0) {
  char token[TOKEN_SIZE], added[2 * TOKEN_SIZE];
  snprintf(added, sizeof added, "[%s]", token_json(token, "<|im_end|>", "s"));
  Tokenizer *t = make((Parts){.added = added, .vocab = "{\"<|im_end|>\": 0, \"a\": 1}"});
  Chat *chat = open_text("{{ messages }}<|im_end|>", t);
  IdList ids = {0};
  assert_int_equal(chat_ends(chat, t, &ids, NULL), STATUS_OK);
  assert_int_equal(ids.count, 1);
  assert_int_equal(ids.ids[0], 0);
  id_list_release(&ids);
  chat_close(chat);
  tokenizer_close(t);
}

TEST(a_control_that_is_no_token_is_named) {
  Tokenizer *both = with_controls(chatml_controls, 2), *one = with_controls(chatml_controls, 1);
  Chat *chatml = open_named("chatml", both), *llama2 = open_named("llama2", both);
  Chat *own = open_text("<|im_start|>{{ messages }}", both);
  assert_null(chat_missing_control(chatml, both));
  assert_string_equal(chat_missing_control(chatml, one), "<|im_end|>");
  assert_null(chat_missing_control(llama2, both)); /* [INST] is text there */
  assert_null(chat_missing_control(own, one));
  Tokenizer *end = with_controls(chatml_controls + 1, 1), *none = make_bytes("[]");
  assert_string_equal(chat_missing_control(chatml, end), "<|im_start|>");
  assert_string_equal(chat_missing_control(chatml, none), "<|im_start|>");
  tokenizer_close(end);
  tokenizer_close(none);
  chat_close(own);
  chat_close(llama2);
  chat_close(chatml);
  tokenizer_close(one);
  tokenizer_close(both);
}

TEST(both_marks_of_thinking_are_tokens) {
  static const char *const controls[] = {"<think>", "</think>"};
  Tokenizer *thinks = with_controls(controls, 2);
  Chat *chat = open_named("chatml", thinks);
  assert_string_equal(chat_thinking(chat, thinks).close, "</think>");
  Tokenizer *opens = with_controls(controls, 1), *closes = with_controls(controls + 1, 1);
  assert_null(chat_thinking(chat, opens).open); /* both tokens are needed */
  assert_null(chat_thinking(chat, closes).open);
  tokenizer_close(opens);
  tokenizer_close(closes);
  assert_null(chat_thinking(chat, NULL).open);
  chat_close(chat);
  tokenizer_close(thinks);
}
