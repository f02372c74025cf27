/* test_conversation.c - messages, turns, and splicing what was generated into what is encoded. */
#include "base/file.h"
#include "commands/conversation/conversation.h"
#include "test/unit.h"

static void add(Conversation *c, Role role, const char *text) {
  assert_int_equal(conversation_add(c, role, text, strlen(text), NULL), STATUS_OK);
}

/* "suaua": the roles, by their first letters. */
static void assert_roles(const Conversation *c, const char *want) {
  assert_int_equal(c->count, strlen(want));
  for (size_t i = 0; i < c->count; i++) assert_int_equal(role_name(c->messages[i].role)[0], want[i]);
}

static void a_turn_begins_with_the_user(void **state) {
  Conversation c = {0};
  assert_int_equal(conversation_last_turn(&c), 0); /* as many as there are messages: none */
  add(&c, ROLE_SYSTEM, "s");
  assert_int_equal(conversation_last_turn(&c), 1);
  add(&c, ROLE_USER, "u1");
  add(&c, ROLE_ASSISTANT, "a1");
  add(&c, ROLE_USER, "u2");
  add(&c, ROLE_TOOL, "t2");
  add(&c, ROLE_ASSISTANT, "a2");
  assert_int_equal(conversation_next_turn(&c, 0), 1);
  assert_int_equal(conversation_next_turn(&c, 2), 3);
  assert_int_equal(conversation_next_turn(&c, 4), 6);
  assert_int_equal(conversation_last_turn(&c), 3);
  assert_int_equal(conversation_n_turns(&c), 2);
  ChatMessage *view;
  size_t n;
  assert_int_equal(conversation_view(&c, 3, &view, &n, NULL), STATUS_OK);
  assert_int_equal(n, 4); /* the system message stays in front */
  assert_string_equal(view[0].role, "system");
  assert_memory_equal(view[1].text, "u2", 2);
  assert_null(view[3].thinking);
  free(view);
  conversation_drop(&c, 1, 2);
  assert_roles(&c, "suta");
  conversation_truncate(&c, conversation_last_turn(&c));
  assert_roles(&c, "s");
  conversation_release(&c);
}

/* In a file a conversation may begin with more than a system message. */
static void all_that_stands_before_the_first_turn_stays_in_front(void **state) {
  Conversation c = {0};
  static const Role roles[] = {ROLE_SYSTEM,    ROLE_ASSISTANT, ROLE_USER,
                               ROLE_ASSISTANT, ROLE_USER,      ROLE_ASSISTANT};
  static const struct {
    size_t first;
    const char *roles;
  } cases[] = {{0, "sauaua"}, {1, "sauaua"}, {2, "sauaua"}, {4, "saua"}, {6, "sa"}};
  for (size_t i = 0; i < 6; i++) add(&c, roles[i], "x");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ChatMessage *view;
    size_t n;
    assert_int_equal(conversation_view(&c, cases[i].first, &view, &n, NULL), STATUS_OK);
    assert_int_equal(n, strlen(cases[i].roles));
    for (size_t k = 0; k < n; k++) assert_int_equal(view[k].role[0], cases[i].roles[k]);
    free(view);
  }
  conversation_release(&c);
}

static void there_is_one_system_message_at_most(void **state) {
  Conversation c = {0};
  assert_null(conversation_system(&c));
  assert_int_equal(conversation_set_system(&c, "", 0, NULL), STATUS_OK);
  add(&c, ROLE_USER, "u");
  assert_int_equal(conversation_set_system(&c, "one", 3, NULL), STATUS_OK);
  assert_int_equal(conversation_set_system(&c, "three", 5, NULL), STATUS_OK);
  assert_roles(&c, "su");
  assert_int_equal(conversation_system(&c)->text.size, 5);
  assert_int_equal(conversation_set_system(&c, "", 0, NULL), STATUS_OK);
  assert_roles(&c, "u");
  Conversation copy = {0};
  assert_int_equal(conversation_append(&copy, &c, 0, 1, NULL), STATUS_OK);
  assert_roles(&copy, "u");
  assert_ptr_not_equal(copy.messages[0].text.data, c.messages[0].text.data);
  conversation_release(&copy);
  conversation_release(&c);
}

/* As a template and a file are given it, also from a copy. */
static void what_a_message_has_beside_its_text_is_copied(void **state) {
  Conversation c = {0}, copy = {0};
  add(&c, ROLE_USER, "u");
  add(&c, ROLE_ASSISTANT, "a");
  assert_int_equal(buffer_append(&c.messages[1].thinking, "hm so", 5, NULL), STATUS_OK);
  assert_int_equal(buffer_append(&c.messages[1].members, "\"name\": \"n\"", 11, NULL), STATUS_OK);
  assert_int_equal(buffer_append(&c.messages[1].model, "other", 5, NULL), STATUS_OK);
  add(&c, ROLE_USER, "");
  assert_int_equal(conversation_append(&copy, &c, 0, 3, NULL), STATUS_OK);
  conversation_release(&c);
  ChatMessage *view;
  size_t n;
  assert_int_equal(conversation_view(&copy, 0, &view, &n, NULL), STATUS_OK);
  assert_int_equal(n, 3);
  assert_true(!view[0].thinking && view[0].thinking_size == 0 && view[0].size == 1);
  assert_true(view[1].thinking_size == 5 && memcmp(view[1].thinking, "hm so", 5) == 0);
  assert_true(view[1].size == 1 && view[1].text[0] == 'a');
  assert_true(view[1].members_size == 11 && memcmp(view[1].members, "\"name\": \"n\"", 11) == 0);
  const Buffer *model = &copy.messages[1].model;
  assert_true(model->size == 5 && memcmp(model->data, "other", 5) == 0 && copy.messages[2].model.size == 0);
  assert_true(view[2].size == 0 && view[2].text);
  free(view);
  conversation_release(&copy);
}

static void roles_are_four(void **state) {
  Role role;
  assert_true(role_find("assistant", 9, &role));
  assert_int_equal(role, ROLE_ASSISTANT);
  assert_false(role_find("assistant\n", 10, &role));
  assert_false(role_find("", 0, &role));
  assert_false(role_find("Assistant", 9, &role));
  assert_false(role_find("developer", 9, &role));
}

/* --- splicing */

static uint32_t random_state = 1;
static uint32_t random_below(uint32_t n) {
  random_state = random_state * 1664525 + 1013904223;
  return (uint32_t)(((uint64_t)random_state * n) >> 32);
}

static void encode(const Tokenizer *t, const char *text, size_t size, IdList *ids) {
  assert_int_equal(tokenizer_encode(t, text, size, (EncodeOptions){.parse_special = true}, ids, NULL),
                   STATUS_OK);
}

static void assert_same_text(const Tokenizer *t, const IdList *a, const IdList *b) {
  Buffer x = {0}, y = {0};
  assert_int_equal(tokenizer_decode(t, a->ids, a->count, false, &x, NULL), STATUS_OK);
  assert_int_equal(tokenizer_decode(t, b->ids, b->count, false, &y, NULL), STATUS_OK);
  assert_int_equal(x.size, y.size);
  if (x.size) assert_memory_equal(x.data, y.data, x.size);
  buffer_release(&x);
  buffer_release(&y);
}

static size_t common(const IdList *a, const IdList *b) {
  size_t n = 0;
  while (n < a->count && n < b->count && a->ids[n] == b->ids[n]) n++;
  return n;
}

typedef struct {
  Tokenizer *tokenizer;
  const char *open, *end; /* special tokens */
} Kind;

/* A tokenizer of bytes, from SmolLM2: the file is packed. */
static int open_byte_level(void **state) {
  FILE *pipe = popen("gzip -dc test/data/tokenizers/smollm2/tokenizer.json.gz", "r");
  Buffer text = {0};
  static Kind kind = {.open = "<|im_start|>", .end = "<|im_end|>"};
  bool good = pipe && stream_read(pipe, "tokenizer.json", 1 << 24, &text, NULL) == STATUS_OK &&
              tokenizer_parse("tokenizer.json", text.data, text.size, &kind.tokenizer, NULL) == STATUS_OK;
  if (pipe) pclose(pipe);
  buffer_release(&text);
  *state = &kind;
  return good ? 0 : -1;
}

/* A tokenizer in SentencePiece's manner, with bytes by their names. */
static int open_byte_fallback(void **state) {
  static Kind kind = {.open = "<s>", .end = "</s>"};
  *state = &kind;
  return tokenizer_open("test/data/stories260K-awq/tokenizer.json", &kind.tokenizer, NULL) ? -1 : 0;
}

static int close_tokenizer(void **state) {
  tokenizer_close(((Kind *)*state)->tokenizer);
  return 0;
}

/* Appends ids that stand for the same text as `ids`: tokens are cut in two where both parts are tokens. */
static void cut_otherwise(const Tokenizer *t, const IdList *ids, IdList *out) {
  for (size_t i = 0; i < ids->count; i++) {
    size_t size;
    const char *content = tokenizer_content(t, ids->ids[i], &size);
    char part[2][64];
    int32_t cut[2] = {-1, -1};
    if (!tokenizer_is_special(t, ids->ids[i]) && content[0] != '<' && size > 1 && size < 64 &&
        random_below(4)) {
      size_t at = 1 + random_below((uint32_t)size - 1);
      snprintf(part[0], sizeof part[0], "%.*s", (int)at, content);
      snprintf(part[1], sizeof part[1], "%.*s", (int)(size - at), content + at);
      for (int k = 0; k < 2; k++) cut[k] = tokenizer_find(t, part[k]);
    }
    if (cut[0] >= 0 && cut[1] >= 0) {
      for (int k = 0; k < 2; k++) assert_int_equal(id_list_append(out, cut[k], NULL), STATUS_OK);
    } else {
      assert_int_equal(id_list_append(out, ids->ids[i], NULL), STATUS_OK);
    }
  }
}

/* A model may cut its text in any way, which is not the tokenizer's. The ids that were held are kept whole if
 * a special token follows their text, and the text is never another one. */
static void generated_ids_are_kept(void **state) {
  const Kind *kind = *state;
  const Tokenizer *t = kind->tokenizer;
  static const char *const words[] = {"hello",
                                      " world",
                                      "\n\n",
                                      "  indented",
                                      "\xe4\xb8\xad\xe6\x96\x87",
                                      "don't",
                                      "123456",
                                      "the",
                                      " the",
                                      "...",
                                      "\t",
                                      "na\xc3\xafve",
                                      " Once upon",
                                      "\xf0\x9f\x91\xa9\xe2\x80\x8d"};
  int n_cut_otherwise = 0;
  for (int round = 0; round < 500; round++) {
    Buffer text = {0};
    IdList held = {0}, ids = {0}, plain = {0};
    assert_int_equal(buffer_printf(&text, NULL, "%sassistant\n", kind->open), STATUS_OK);
    for (uint32_t n = 1 + random_below(8); n > 0; n--)
      assert_int_equal(buffer_append_string(&text, words[random_below(sizeof words / sizeof *words)], NULL),
                       STATUS_OK);
    encode(t, text.data, text.size, &plain);
    cut_otherwise(t, &plain, &held);
    plain.count = 0;
    assert_int_equal(buffer_printf(&text, NULL, "%s\n%suser\nMore.%s\n", kind->end, kind->open, kind->end),
                     STATUS_OK);
    encode(t, text.data, text.size, &ids);
    encode(t, text.data, text.size, &plain);
    n_cut_otherwise += common(&held, &ids) < held.count;
    assert_int_equal(ids_splice(t, &held, &ids, NULL), STATUS_OK);
    assert_int_equal(common(&held, &ids), held.count);
    assert_same_text(t, &ids, &plain);
    buffer_release(&text);
    id_list_release(&held);
    id_list_release(&ids);
    id_list_release(&plain);
  }
  assert_in_range(n_cut_otherwise, 250, 500); /* else nothing was tried */
}

static void what_differs_is_taken_from_the_text(void **state) {
  const Tokenizer *t = ((Kind *)*state)->tokenizer;
  static const char *const pairs[][2] = {
      {"the same and more", "the same and less"},
      {"", "all new"},
      {"held", ""},
      {"one", "one two three"},
      {"trailing blank \n", "trailing blank"},
      {"x", "y"},
      {"caf\xc3\xa9", "caf\xc3\xa8"},
  };
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    IdList held = {0}, ids = {0}, plain = {0};
    encode(t, pairs[i][0], strlen(pairs[i][0]), &held);
    encode(t, pairs[i][1], strlen(pairs[i][1]), &ids);
    encode(t, pairs[i][1], strlen(pairs[i][1]), &plain);
    assert_int_equal(ids_splice(t, &held, &ids, NULL), STATUS_OK);
    assert_same_text(t, &ids, &plain);
    id_list_release(&held);
    id_list_release(&ids);
    id_list_release(&plain);
  }
}

/* The text of a special token that a person typed is not the token. */
static void special_tokens_are_the_same_as_nothing_else(void **state) {
  const Kind *kind = *state;
  const Tokenizer *t = kind->tokenizer;
  char text[32];
  size_t size = (size_t)snprintf(text, sizeof text, "a%sb", kind->end);
  IdList special = {0}, typed = {0}, spliced = {0};
  encode(t, text, size, &special);
  for (int way = 0; way < 2; way++) {
    typed.count = spliced.count = 0;
    assert_int_equal(tokenizer_encode(t, text, size, (EncodeOptions){0}, &typed, NULL), STATUS_OK);
    const IdList *held = way ? &special : &typed, *want = way ? &typed : &special;
    for (size_t i = 0; i < want->count; i++) id_list_append(&spliced, want->ids[i], NULL);
    assert_int_equal(ids_splice(t, held, &spliced, NULL), STATUS_OK);
    assert_int_equal(spliced.count, want->count);
    assert_memory_equal(spliced.ids, want->ids, want->count * sizeof *want->ids);
  }
  id_list_release(&special);
  id_list_release(&typed);
  id_list_release(&spliced);
}

/* Nor is the name of a byte token, as a person typed it, the byte. */
static void byte_tokens_are_the_same_as_nothing_else(void **state) {
  const Tokenizer *t = ((Kind *)*state)->tokenizer;
  static const char *const characters[] = {"<", "0", "x", "4", "1", ">"};
  IdList byte = {0}, typed = {0}, spliced = {0};
  assert_int_equal(id_list_append(&byte, tokenizer_find(t, "<0x41>"), NULL), STATUS_OK);
  for (int i = 0; i < 6; i++)
    assert_int_equal(id_list_append(&typed, tokenizer_find(t, characters[i]), NULL), STATUS_OK);
  for (int i = 0; i < 6; i++) assert_true(typed.ids[i] >= 0 && byte.ids[0] >= 0);
  for (int way = 0; way < 2; way++) {
    const IdList *held = way ? &byte : &typed, *want = way ? &typed : &byte;
    spliced.count = 0;
    for (size_t i = 0; i < want->count; i++) id_list_append(&spliced, want->ids[i], NULL);
    assert_int_equal(ids_splice(t, held, &spliced, NULL), STATUS_OK);
    assert_int_equal(spliced.count, want->count);
    assert_memory_equal(spliced.ids, want->ids, want->count * sizeof *want->ids);
  }
  id_list_release(&byte);
  id_list_release(&typed);
  id_list_release(&spliced);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_turn_begins_with_the_user),
      cmocka_unit_test(all_that_stands_before_the_first_turn_stays_in_front),
      cmocka_unit_test(there_is_one_system_message_at_most),
      cmocka_unit_test(what_a_message_has_beside_its_text_is_copied),
      cmocka_unit_test(roles_are_four),
      cmocka_unit_test_setup_teardown(generated_ids_are_kept, open_byte_level, close_tokenizer),
      cmocka_unit_test_setup_teardown(generated_ids_are_kept, open_byte_fallback, close_tokenizer),
      cmocka_unit_test_setup_teardown(what_differs_is_taken_from_the_text, open_byte_level, close_tokenizer),
      cmocka_unit_test_setup_teardown(what_differs_is_taken_from_the_text, open_byte_fallback,
                                      close_tokenizer),
      cmocka_unit_test_setup_teardown(special_tokens_are_the_same_as_nothing_else, open_byte_level,
                                      close_tokenizer),
      cmocka_unit_test_setup_teardown(special_tokens_are_the_same_as_nothing_else, open_byte_fallback,
                                      close_tokenizer),
      cmocka_unit_test_setup_teardown(byte_tokens_are_the_same_as_nothing_else, open_byte_fallback,
                                      close_tokenizer),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
