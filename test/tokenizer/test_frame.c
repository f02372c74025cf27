/* test_frame.c - conversations become the ids of what the models' own chat templates render.
 *
 * test/data/tokenizers/formats/ holds conversations with what the templates of SmolLM2 (ChatML) and Llama
 * 3 make of them. The ids of a byte-level tokenizer without merges are the text's bytes and the control
 * tokens, so equal ids are equal renderings. */
#include "small.h"
#include "tokenizer/frame.h"

static Tokenizer *with_controls(const char *const *controls, size_t n) {
  Buffer json = {0};
  for (size_t i = 0; i < n; i++) {
    char token[TOKEN_SIZE];
    buffer_printf(&json, NULL, "%c%s", i ? ',' : '[', token_json(token, controls[i], "s"));
  }
  buffer_append(&json, "]", 2, NULL);
  Tokenizer *tokenizer = make_bytes(json.data);
  buffer_release(&json);
  return tokenizer;
}

static const char *const chatml_controls[] = {"<|im_start|>", "<|im_end|>"};
static const char *const llama3_controls[] = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                                              "<|eot_id|>"};

/* A conversation that the built-in format covers: an opening of the assistant's turn, plain texts, and,
 * where the template would add a system turn of its own, one that is there. */
static bool is_plain(const Json *line, bool needs_system) {
  bool opens = false;
  json_bool(json_member(json_member(line, "options"), "add_generation_prompt"), &opens);
  const Json *messages = json_member(line, "messages");
  bool plain = opens && json_member(line, "rendered") && json_count(messages) > 0;
  for (const Json *m = json_first(messages); m; m = json_next(m))
    plain &= json_count(m) == 2 && json_is_string(json_member(m, "content")) &&
             json_is_string(json_member(m, "role"));
  return plain && (!needs_system || json_string_is(json_member(json_first(messages), "role"), "system"));
}

static void check_conversation(const Tokenizer *t, ChatFormat format, const Json *line) {
  FrameMessage messages[64];
  size_t n = 0, size;
  for (const Json *m = json_first(json_member(line, "messages")); m; m = json_next(m)) {
    assert_true(n < 64);
    messages[n].role = json_string(json_member(m, "role"), &size);
    messages[n].text = json_string(json_member(m, "content"), &messages[n].size);
    n++;
  }
  const char *rendered = json_string(json_member(line, "rendered"), &size);
  IdList expected = {0}, ids = {0};
  Error err;
  assert_int_equal(tokenizer_encode(t, rendered, size, PLAIN, &expected, &err), STATUS_OK);
  assert_int_equal(frame_encode(t, format, messages, n, true, &ids, &err), STATUS_OK);
  if (ids.count != expected.count || memcmp(ids.ids, expected.ids, ids.count * sizeof *ids.ids) != 0)
    fail_msg("differs from %s", rendered);
  id_list_release(&expected);
  id_list_release(&ids);
}

static int check_file(const char *path, const Tokenizer *t, ChatFormat format, bool needs_system) {
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
      check_conversation(t, format, line);
      n++;
    }
    json_free(line);
  }
  file_unmap(&file);
  return n;
}

static void conversations_are_rendered_as_the_templates_do(void **state) {
  (void)state;
  Tokenizer *t = with_controls(chatml_controls, 2);
  assert_int_equal(chat_format_of(t), CHAT_CHATML);
  assert_int_equal(chat_end_of_turn(t, CHAT_CHATML), 257);
  assert_true(check_file("test/data/tokenizers/formats/chatml_chat.jsonl", t, CHAT_CHATML, true) >= 3);
  tokenizer_close(t);
  t = with_controls(llama3_controls, 4);
  assert_int_equal(chat_format_of(t), CHAT_LLAMA3);
  assert_int_equal(chat_end_of_turn(t, CHAT_LLAMA3), 259);
  assert_true(check_file("test/data/tokenizers/formats/llama3_chat.jsonl", t, CHAT_LLAMA3, false) >= 5);
  tokenizer_close(t);
}

/* The control tokens of a person's text are text; the frame's are not. */
static void a_person_cannot_end_a_turn(void **state) {
  (void)state;
  Tokenizer *t = with_controls(chatml_controls, 2);
  const FrameMessage message = {"user", "<|im_end|>", 10};
  IdList ids = {0};
  Error err;
  char found[512];
  assert_int_equal(frame_encode(t, CHAT_CHATML, &message, 1, false, &ids, &err), STATUS_OK);
  assert_string_equal(ids_text(&ids, found, sizeof found),
                      "256 117 115 101 114 10 60 124 105 109 95 101 110 100 124 62 257 10 "
                      "256 97 115 115 105 115 116 97 110 116 10");
  ids.count = 0;
  assert_int_equal(frame_encode(t, CHAT_CHATML, &message, 1, true, &ids, &err), STATUS_OK);
  assert_string_equal(ids_text(&ids, found, sizeof found),
                      "256 117 115 101 114 10 257 257 10 256 97 115 115 105 115 116 97 110 116 10");
  id_list_release(&ids);
  tokenizer_close(t);
}

static void tokenizers_without_control_tokens_have_no_format(void **state) {
  (void)state;
  Tokenizer *t = with_controls(chatml_controls, 1);
  assert_int_equal(chat_format_of(t), CHAT_NONE);
  assert_int_equal(chat_end_of_turn(t, CHAT_NONE), -1);
  tokenizer_close(t);
  char one[TOKEN_SIZE], two[TOKEN_SIZE],
      added[2 * TOKEN_SIZE + 8]; /* not special: any text could hold them */
  snprintf(added, sizeof added, "[%s,%s]", token_json(one, "<|im_start|>", ""),
           token_json(two, "<|im_end|>", ""));
  t = make_bytes(added);
  assert_int_equal(chat_format_of(t), CHAT_NONE);
  tokenizer_close(t);
}

static void broken_text_is_refused(void **state) {
  (void)state;
  Tokenizer *t = with_controls(llama3_controls, 4);
  const FrameMessage messages[] = {{"user", " \xc3", 2}, {"user", "\x85\xc2", 2}, {"user", "", 0}};
  IdList ids = {0};
  Error err;
  assert_int_equal(frame_encode(t, CHAT_LLAMA3, &messages[0], 1, false, &ids, &err), STATUS_USAGE);
  assert_int_equal(frame_encode(t, CHAT_LLAMA3, &messages[1], 1, false, &ids, &err), STATUS_USAGE);
  assert_int_equal(frame_encode(t, CHAT_LLAMA3, &messages[2], 1, false, &ids, &err), STATUS_OK);
  id_list_release(&ids);
  tokenizer_close(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(conversations_are_rendered_as_the_templates_do),
      cmocka_unit_test(a_person_cannot_end_a_turn),
      cmocka_unit_test(tokenizers_without_control_tokens_have_no_format),
      cmocka_unit_test(broken_text_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
