/* test_chat_open.c - the templates that chat_open() finds in a checkpoint, by which names, and their use:
 * built-in formats with the checkpoint's own special tokens, ends of turns, memory. The files are in the
 * program's own directory. */
#include "small.h"
#include "test/directory.h"
#include "test/tests.h"
#include "test/transcript.h"
#include "tokenizer/chat/chat.h"

/* Writes a file of the program's own directory. */
static void put_file(const char *name, const char *text, size_t size) {
  FILE *file = fopen(in_directory(own_directory, name), "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(text, 1, size, file), size);
  assert_int_equal(fclose(file), 0);
}

static void put_config(const char *config) {
  put_file("tokenizer_config.json", config, strlen(config));
}

static Chat *open_in_directory(const char *name, const Tokenizer *tokenizer) {
  Chat *chat;
  Error err;
  if (chat_open(own_directory, name, tokenizer, &chat, &err) != STATUS_OK) fail_msg("%s", err.text);
  assert_non_null(chat);
  return chat;
}

/* A conversation in JSON, rendered, NUL-terminated. */
static void render_json(const Chat *chat, const char *json, TrustedText *text) {
  Json *variables;
  Error err;
  bool raised;
  if (json_parse("variables", STATUS_FAILED, json, strlen(json), NULL, 0, &variables, &err))
    fail_msg("%s", err.text);
  if (chat_render_json(chat, variables, 0, text, &raised, &err)) fail_msg("%s", err.text);
  assert_int_equal(buffer_append(&text->text, "", 1, &err), STATUS_OK);
  json_free(variables);
}

/* --- test/data/transcripts/chats: "built-in NAME" renders the last conversation with the last config as
 * tokenizer_config.json; below "template TEXT" are the ids that end turns, and how the model thinks. */

static void print_rendered(const char *name, const char *conversation, FILE *out) {
  Chat *chat = open_in_directory(name, NULL);
  TrustedText text = {0};
  Buffer json = {0};
  render_json(chat, conversation, &text);
  assert_int_equal(json_write_string(&json, text.text.data, text.text.size - 1, NULL), STATUS_OK);
  fprintf(out, "    %.*s\n", (int)json.size, json.data);
  buffer_release(&json);
  trusted_text_release(&text);
  chat_close(chat);
}

static void print_facts(const char *template, FILE *out) {
  static const char *const controls[] = {"<|im_start|>", "<|im_end|>", "<|eot_id|>", "</s>", "<|end|>"};
  Tokenizer *t = with_controls(controls, 5);
  const char *text = template;
  Buffer unquoted = {0};
  IdList ids = {0};
  char found[64];
  read_string(&text, &unquoted);
  put_file("chat_template.jinja", unquoted.data, unquoted.size);
  Chat *chat = open_in_directory(NULL, t);
  for (int i = 0; i < 2; i++) assert_int_equal(chat_ends(chat, t, &ids, NULL), STATUS_OK); /* each once */
  fprintf(out, "    ends: %s\n", ids.count ? ids_text(&ids, found, sizeof found) : "none");
  const ChatThinking thinking = chat_thinking(chat, t);
  assert_int_equal(!!thinking.open, !!thinking.close);
  if (thinking.open) fprintf(out, "    thinks from %s to %s\n", thinking.open, thinking.close);
  if (thinking.can_switch) fprintf(out, "    can be told whether to think\n");
  chat_close(chat);
  id_list_release(&ids);
  buffer_release(&unquoted);
  tokenizer_close(t);
}

static void write_chats(const char *old, FILE *out) {
  char line[TRANSCRIPT_LINE], conversation[TRANSCRIPT_LINE] = "";
  empty_own_directory();
  put_config("{}");
  while (transcript_next_line(&old, line)) {
    if (*line == ' ') continue;
    fprintf(out, "%s\n", line);
    if (strncmp(line, "config ", 7) == 0) put_config(line + 7);
    if (strncmp(line, "conversation ", 13) == 0) strcpy(conversation, line + 13);
    if (strncmp(line, "built-in ", 9) == 0) print_rendered(line + 9, conversation, out);
    if (strncmp(line, "template ", 9) == 0) print_facts(line + 9, out);
  }
}

TEST(chats_are_those_of_their_transcript) {
  check_transcripts("test/data/transcripts/chats", write_chats);
}

/* Names that end in _token, with something before it; strings and objects with a content. */
TEST(special_tokens_are_known_by_their_names) {
  static const char text[] =
      "{{ bos_token }}|{{ x_token }}|{{ _token }}|{{ tokens }}|{{ bos_tokens }}|{{ sep_token }}|"
      "{{ pad_token }}|{{ cls_token }}|{{ mask_token }}";
#define CONFIG                                                                                               \
  "{\"bos_token\": \"A\", \"x_token\": {\"content\": \"B\"}, \"_token\": \"C\", \"tokens\": \"D\", "         \
  "\"bos_tokens\": \"E\", \"sep_token\": 7, \"cls_token\": null, \"mask_token\": {\"content\": 1}"
  static const char map[] = "{\"bos_token\": \"a\", \"x_token\": \"b\", \"sep_token\": \"f\", \"pad_token\": "
                            "{\"content\": \"g\"}, \"cls_token\": \"h\", \"mask_token\": \"i\"}";
  /* As in transformers the map counts more where the config has no added_tokens_decoder. */
  static const char *const cases[][2] = {{CONFIG "}", "a|b||||f|g|h|i"},
                                         {CONFIG ", \"added_tokens_decoder\": {}}", "A|B||||f|g|h|i"}};
  for (int i = 0; i < 2; i++) {
    empty_own_directory();
    put_file("chat_template.jinja", text, sizeof text - 1);
    put_config(cases[i][0]);
    put_file("special_tokens_map.json", map, sizeof map - 1);
    Chat *chat = open_in_directory(NULL, NULL);
    TrustedText rendered = {0};
    render_json(chat, "{}", &rendered);
    assert_string_equal(rendered.text.data, cases[i][1]);
    trusted_text_release(&rendered);
    chat_close(chat);
  }
}

/* The hash that decides whether cached answers are still valid. */
TEST(the_hash_is_of_the_text_and_the_special_tokens) {
  static const struct {
    const char *template, *config;
  } cases[] = {{"a", "{}"},
               {"b", "{}"},
               {"ab", "{}"},
               {"a", "{\"bos_token\": \"a\"}"},
               {"a", "{\"eos_token\": \"a\"}"},
               {"a", "{\"bos_token\": \"b\"}"}};
  enum { N = sizeof cases / sizeof *cases };
  uint64_t hashes[N];
  for (size_t i = 0; i < N; i++)
    for (int again = 0; again < 2; again++) {
      empty_own_directory();
      put_config(cases[i].config);
      put_file("chat_template.jinja", cases[i].template, strlen(cases[i].template));
      Chat *chat = open_in_directory(NULL, NULL);
      if (again) assert_true(chat_hash(chat) == hashes[i]);
      hashes[i] = chat_hash(chat);
      for (size_t k = 0; k < i; k++) assert_true(hashes[k] != hashes[i]);
      chat_close(chat);
    }
}

TEST(a_template_file_has_a_mebibyte_at_most) {
  enum { MIB = 1 << 20 };
  char *text = malloc(MIB + 1);
  assert_non_null(text);
  memset(text, 'x', MIB + 1);
  empty_own_directory();
  for (size_t size = MIB; size <= MIB + 1; size++) {
    Chat *chat;
    Error err;
    put_file("mine", text, size);
    Status status = chat_open(NULL, in_directory(own_directory, "mine"), NULL, &chat, &err);
    assert_int_equal(status == STATUS_OK, size == MIB);
    chat_close(chat);
  }
  free(text);
}

static void assert_source(const char *name, const char *source) {
  Chat *chat = open_in_directory(name, NULL);
  assert_string_equal(chat_source(chat), source);
  chat_close(chat);
}

/* A name is looked for in the checkpoint's lists, then in its folder, then among the built-in ones. */
TEST(a_template_is_found_in_its_order) {
  empty_own_directory();
  put_config("{\"chat_template\": \"own\"}");
  assert_source(NULL, "tokenizer_config.json");
  assert_source("phi", "built-in phi"); /* a single template has no name */
  put_config("{\"chat_template\": [{\"name\": \"rag\", \"template\": \"r\"}, {\"name\": \"phi\", "
             "\"template\": \"p\"}]}");
  static const char json[] = "{\"chat_template\": [{\"name\": \"default\", \"template\": \"d\"}]}";
  put_file("chat_template.json", json, sizeof json - 1);
  assert_source(NULL, "chat_template.json");
  assert_source("default", "chat_template.json");
  assert_source("rag", "tokenizer_config.json");
  assert_source("phi", "tokenizer_config.json");
  assert_source("gemma", "built-in gemma");
  assert_int_equal(mkdir(in_directory(own_directory, "additional_chat_templates"), 0700), 0);
  assert_int_equal(mkdir(in_directory(own_directory, "additional_chat_templates/deep"), 0700), 0);
  put_file("additional_chat_templates/gemma.jinja", "g", 1);
  put_file("additional_chat_templates/deep/er.jinja", "e", 1);
  put_file("chat_template.jinja", "j", 1);
  assert_source(NULL, "chat_template.jinja");
  assert_source("gemma", "gemma");
  assert_source("rag", "tokenizer_config.json");
  put_file("chat_template.json", "{", 1);
  assert_source(NULL, "chat_template.jinja"); /* a faulty file that is not needed */
  Chat *chat;
  Error err;
  assert_int_not_equal(chat_open(own_directory, "deep/er", NULL, &chat, &err), STATUS_OK); /* it is a path */
  assert_null(chat);
}

/* However many and long the existing names are. */
TEST(an_unknown_name_is_refused_with_those_there_are) {
  Buffer config = {0};
  char message[600] =
      "there is no chat template \"x\": expected a file, or one of chatml, llama3, gemma, phi, deepseek, "
      "mistral, llama2";
  buffer_append_string(&config, "{\"chat_template\": [{\"name\": 7, \"template\": \"t\"}", NULL);
  for (int i = 0; i < 100; i++) {
    buffer_printf(&config, NULL, ", {\"name\": \"%060d\", \"template\": \"t\"}", i);
    if (i < 2) snprintf(message + strlen(message), 60, ", %050d", 0);
  }
  buffer_append(&config, "]}", 3, NULL);
  empty_own_directory();
  put_config(config.data);
  Chat *chat;
  Error err;
  assert_int_equal(chat_open(own_directory, "x", NULL, &chat, &err), STATUS_USAGE);
  assert_int_equal(strncmp(err.text, message, strlen(message)), 0);
  buffer_release(&config);
}

TEST(a_rendering_can_be_interrupted) {
  static const char text[] = "{% for i in range(100000) %}{{ i }}{% endfor %}";
  static volatile int interrupted;
  empty_own_directory();
  put_file("chat_template.jinja", text, sizeof text - 1);
  Chat *chat = open_in_directory(NULL, NULL);
  chat_heed(chat, &interrupted);
  for (interrupted = 0; interrupted < 2; interrupted++) {
    TrustedText rendered = {0};
    Error err;
    assert_int_equal(chat_render(chat, NULL, 0, (ChatOptions){0}, &rendered, &err),
                     interrupted ? STATUS_INTERRUPTED : STATUS_OK);
    trusted_text_release(&rendered);
  }
  chat_close(chat);
}

TEST(an_empty_rendering_has_no_ids) {
  Tokenizer *t = make_bytes("[]");
  const TrustedText nothing = {0};
  IdList ids = {0};
  assert_int_equal(chat_encode(t, &nothing, false, &ids, NULL), STATUS_OK);
  assert_int_equal(ids.count, 0);
  tokenizer_close(t);
}

/* Opens the chat of the program's directory, or what `user` names, and uses it if there is one. */
static void use_chat(void *user) {
  Chat *chat;
  Error err;
  if (chat_open(own_directory, user, NULL, &chat, &err) != STATUS_OK || !chat) return;
  const ChatMessage messages[] = {
      {.role = "user", .text = "a", .size = 1},
      {.role = "assistant", .text = "b", .size = 1, .thinking = "c", .thinking_size = 1},
      {.role = "user", .text = "\xff", .size = 1}};
  TrustedText text = {0};
  chat_render(chat, messages, 2, (ChatOptions){.think = THINK_YES}, &text, &err);
  chat_render(chat, messages, 3, (ChatOptions){0}, &text, &err);
  trusted_text_release(&text);
  chat_close(chat);
}

TEST(nothing_stays_in_memory) {
  static const char *const configs[] = {"{\"chat_template\": [{\"name\": \"default\", \"template\": \"{{ "
                                        "messages }}\"}], \"bos_token\": \"b\"}",
                                        "{\"chat_template\": \"{{ raise_exception('no') }}\"}",
                                        "{\"chat_template\": \"{{ (\"}",
                                        "{\"chat_template\": 7}",
                                        "[]",
                                        "{"};
  for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
    empty_own_directory();
    put_config(configs[i]);
    assert_nothing_stays(configs[i], use_chat, NULL);
    assert_nothing_stays(configs[i], use_chat, "default");
    assert_nothing_stays(configs[i], use_chat, "nonsense");
    assert_nothing_stays(configs[i], use_chat, "phi");
    put_file("chat_template.json", "{\"chat_template\": \"O{{ bos_token }}\"}", 37);
    assert_nothing_stays(configs[i], use_chat, NULL);
    put_file("chat_template.jinja", "J{{ x.y.z }}", 12);
    assert_nothing_stays(configs[i], use_chat, NULL);
  }
}

/* Each of the usual ones that the template writes and the tokenizer has as a special token; eos_token, if
 * it is one, comes first, and once. */
TEST(each_usual_end_ends_turns) {
  static const char *const ends[] = {
      "<|im_end|>", "<|eot_id|>",    "<|eom_id|>",      "<end_of_turn>",         "<|return|>",
      "<|call|>",   "<|endoftext|>", "<|end_of_text|>", "<|end_of_turn|>",       "<|END_OF_TURN_TOKEN|>",
      "<|eot|>",    "</s>",          "[|endofturn|]",   "<｜end▁of▁sentence｜>", "<|end|>",
  };
  enum { N = sizeof ends / sizeof *ends };
  Tokenizer *t = with_controls(ends, N), *none = make_bytes("[]");
  empty_own_directory();
  for (int i = 0; i <= N; i++) {
    char config[100], expected[32], found[64];
    const int eos = i * 4 % N;
    snprintf(config, sizeof config, "{\"eos_token\": \"%s\"}", i < N ? ends[eos] : "no token");
    put_config(config);
    const char *text = i < N ? ends[i] : "<|im_end|";
    put_file("chat_template.jinja", text, strlen(text));
    Chat *chat = open_in_directory(NULL, t);
    IdList ids = {0};
    Error err;
    assert_int_equal(chat_ends(chat, t, &ids, &err), STATUS_OK);
    snprintf(expected, sizeof expected, i == N ? "" : eos == i ? "%d" : "%d %d", 256 + eos, 256 + i);
    assert_string_equal(ids_text(&ids, found, sizeof found), expected);
    ids.count = 0;
    assert_int_equal(chat_ends(chat, none, &ids, &err), STATUS_OK);
    assert_int_equal(ids.count, 0);
    id_list_release(&ids);
    chat_close(chat);
  }
  tokenizer_close(none);
  char token[TOKEN_SIZE], added[TOKEN_SIZE + 8]; /* not special: a person's text could hold it */
  snprintf(added, sizeof added, "[%s]", token_json(token, "<|im_end|>", ""));
  none = make_bytes(added);
  put_config("{\"eos_token\": \"<|im_end|>\"}");
  put_file("chat_template.jinja", "<|im_end|>", 10);
  Chat *chat = open_in_directory(NULL, none);
  IdList ids = {0};
  assert_int_equal(chat_ends(chat, none, &ids, NULL), STATUS_OK);
  assert_int_equal(ids.count, 0);
  chat_close(chat);
  tokenizer_close(none);
  tokenizer_close(t);
}

static CMFixtureFunction before_all = make_own_directory, after_all = remove_own_directory;
