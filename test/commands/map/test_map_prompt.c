/* test_map_prompt.c - patterns and records to prompts: what is a placeholder and what is text, members of
 * every kind, conversations, and what is wrong with a record said in words. */
#include "commands/map/map_prompt.h"
#include "test/tests.h"

static Status fill(bool json, const char *before, const char *text, const char *bytes, size_t size,
                   MapPrompt *prompt, Error *err) {
  PromptPattern pattern = {.json = json};
  Record record = {.text = bytes, .size = size};
  Status status = before ? prompt_pattern_begin(&pattern, before, strlen(before), err) : STATUS_OK;
  if (status == STATUS_OK) status = prompt_pattern_parse(&pattern, text, err);
  if (status == STATUS_OK) status = map_prompt_fill(&pattern, &record, prompt, err);
  prompt_pattern_release(&pattern);
  return status;
}

static void assert_prompt(bool json, const char *pattern, const char *record, const char *want) {
  MapPrompt prompt = {0};
  Error err = {{0}};
  if (fill(json, NULL, pattern, record, strlen(record), &prompt, &err) != STATUS_OK)
    fail_msg("%s of %s: %s", pattern ? pattern : "itself", record, err.text);
  assert_false(prompt.is_chat);
  size_t size = prompt.text.size;
  if (size != strlen(want) || (size && memcmp(prompt.text.data, want, size) != 0))
    fail_msg("%s of %s is \"%.*s\", expected \"%s\"", pattern ? pattern : "itself", record,
             (int)prompt.text.size, prompt.text.data, want);
  map_prompt_release(&prompt);
}

static void assert_refused(bool json, const char *pattern, const char *record, size_t size,
                           const char *words) {
  MapPrompt prompt = {0};
  Error err = {{0}};
  assert_int_equal(fill(json, NULL, pattern, record, size, &prompt, &err), STATUS_USAGE);
  if (!strstr(err.text, words)) fail_msg("\"%s\" does not say \"%s\"", err.text, words);
  map_prompt_release(&prompt);
}

TEST(the_record_stands_where_the_braces_do) {
  assert_prompt(false, NULL, "a {} b", "a {} b");
  assert_prompt(false, "{}", "a {} b", "a {} b"); /* what a record says is no pattern */
  assert_prompt(false, "<{}>", "x", "<x>");
  assert_prompt(false, "{} and {}", "x", "x and x");
  assert_prompt(false, "{}{}", "", "");
  assert_prompt(false, "Sum up:", "x\ny", "x\ny\nSum up:"); /* as after standard input */
  assert_prompt(false, "", "x", "x\n");
}

TEST(other_braces_are_themselves) {
  assert_prompt(false, "{\"label\": \"{}\"}", "x", "{\"label\": \"x\"}");
  assert_prompt(false, "{{}} {}", "x", "{} x");
  assert_prompt(false, "{{}}", "x", "x\n{}"); /* no place for the record, which comes first */
  assert_prompt(false, "{{}", "x", "{x");
  assert_prompt(false, "{}}", "x", "x}");
  assert_prompt(false, "{{{}}}", "x", "x\n{{}}");
}

static void put_char(char *text, char c) {
  text += strlen(text);
  text[0] = c;
  text[1] = 0;
}

/* The {} or {NAME} that `at` begins with; 0: none. */
static size_t plain_place(bool json, const char *at) {
  size_t size = *at == '{' ? strspn(at + 1, json ? "abx.-_9\xc3\xa4" : "") + 1 : 0;
  return size && at[size] == '}' ? size + 1 : 0;
}

/* The reference: what map_prompt.h says of a pattern with a place and the record {"a": "1"} or 1. Returns the
 * number of {}; -1: the record cannot fill it. */
static int plain_fill(bool json, const char *pattern, char *out, bool *has_place) {
  int n_records = 0;
  bool missing = false;
  *out = 0;
  *has_place = false;
  while (*pattern) {
    size_t size = plain_place(json, pattern), quoted = *pattern == '{' ? plain_place(json, pattern + 1) : 0;
    if (quoted && pattern[1 + quoted] == '}') {
      strncat(out, pattern + 1, quoted);
      pattern += quoted + 2;
    } else if (size) {
      *has_place = true;
      missing |= size > 2 && strncmp(pattern, "{a}", 3) != 0;
      n_records += size == 2;
      strcat(out, size > 2 ? "1" : json ? "{\"a\": \"1\"}" : "1");
      pattern += size;
    } else {
      put_char(out, *pattern++);
    }
  }
  return missing ? -1 : n_records;
}

TEST(places_are_found_in_any_pattern) {
  uint64_t random = 1;
  size_t n_refused = 0;
  for (int c = 0; c < 6000; c++) {
    const bool json = c % 2;
    char text[16] = "", want[400];
    bool has_place;
    for (uint32_t n = random_below(&random, 12); n > 0; n--)
      put_char(text, "{}{}{}ab x"[random_below(&random, 10)]);
    int n_records = plain_fill(json, text, want, &has_place);
    if (!has_place) continue;
    PromptPattern pattern = {.json = json};
    Record record = {.text = json ? "{\"a\": \"1\"}" : "1", .size = json ? 10 : 1};
    MapPrompt prompt = {0};
    assert_int_equal(prompt_pattern_parse(&pattern, text, NULL), STATUS_OK);
    Status status = map_prompt_fill(&pattern, &record, &prompt, NULL);
    assert_int_equal(status, n_records < 0 ? STATUS_USAGE : STATUS_OK);
    n_refused += status != STATUS_OK;
    if (status == STATUS_OK) {
      assert_int_equal(pattern.n_places, n_records);
      if (prompt.text.size != strlen(want) || memcmp(prompt.text.data, want, prompt.text.size) != 0)
        fail_msg("%s is \"%.*s\", expected \"%s\"", text, (int)prompt.text.size, prompt.text.data, want);
    }
    map_prompt_release(&prompt);
    prompt_pattern_release(&pattern);
  }
  assert_true(n_refused > 10);
}

TEST(an_outline_is_the_pattern_around_any_record) {
  static const struct {
    bool json;
    const char *before, *pattern, *want;
  } cases[] = {
      {false, NULL, NULL, "R"},        {false, NULL, "a {} b {}", "a R b R"},
      {false, NULL, "a", "R\na"},      {false, "file\n", "{}{{}}", "file\nR{}"},
      {true, NULL, "{x}: {}", "R: R"}, {true, "file\n", NULL, "file\nR"},
  };
  MapPrompt prompt = {0};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    PromptPattern pattern = {.json = cases[i].json};
    const char *before = cases[i].before;
    if (before) assert_int_equal(prompt_pattern_begin(&pattern, before, strlen(before), NULL), STATUS_OK);
    assert_int_equal(prompt_pattern_parse(&pattern, cases[i].pattern, NULL), STATUS_OK);
    prompt.is_chat = true; /* of the record before */
    assert_int_equal(map_prompt_outline(&pattern, "R", &prompt, NULL), STATUS_OK);
    assert_false(prompt.is_chat);
    assert_int_equal(prompt.text.size, strlen(cases[i].want));
    assert_memory_equal(prompt.text.data, cases[i].want, prompt.text.size);
    prompt_pattern_release(&pattern);
  }
  map_prompt_release(&prompt);
}

TEST(members_stand_where_their_names_do) {
  static const char record[] = "{\"a\": \"x\\ny\\u0041\", \"n\": -1.50e3, \"b\": true, \"list\": [1, \"z\"], "
                               "\"it em\": 1, \"\xc3\xbc\": \"u\", \"none\": null, \"\": \"empty\"}";
  assert_prompt(true, "{a}", record, "x\nyA");
  assert_prompt(true, "{n} {b} {list}", record, "-1.50e3 true [1, \"z\"]"); /* as they are written */
  assert_prompt(true, "{\xc3\xbc}", record, "u");
  assert_prompt(true, "{it em}{\"a\": {a}}{{a}}{{}}", record, "{it em}{\"a\": x\nyA}{a}{}");
  static const char alike[] = "{\"question\": \"1\", \"q\": \"2\", \"que\": \"3\"}";
  assert_prompt(true, "{q} {que} {question}", alike, "2 3 1"); /* by the whole name */
  assert_refused(true, "{qu}", alike, strlen(alike), "no member qu");
  assert_prompt(true, "{}", record, record);
  assert_prompt(true, "<{}>", "\t\"te\\\"xt\" ", "<te\"xt>");
  assert_prompt(true, "<{}>", " [1, 2] ", "<[1, 2]>");
  assert_refused(true, "{none}", record, strlen(record), "member none is null");
  assert_refused(true, "{nothing}", record, strlen(record), "no member nothing");
  assert_refused(true, "{x.y}", record, strlen(record), "no member x.y");
  assert_refused(true, "{a}", "[1]", 3,
                 "the record is a list, expected a JSON object on each line (jq -c .[] ");
  assert_refused(true, "{a}", "1", 1, "the record is no object");
  assert_refused(true, "no place", record, strlen(record), "-p has no {NAME}");
  assert_refused(true, "{{a}}", record, strlen(record), "-p has no {NAME}");
}

TEST(json_records_speak_for_themselves) {
  assert_prompt(true, NULL, "\"text\"", "text");
  assert_prompt(true, NULL, "{\"id\": 7, \"prompt\": \"text\"}", "text");
  assert_prompt(true, NULL, "{\"prompt\": \"\"}", "");
  assert_refused(true, NULL, "{\"id\": 7}", 9, "neither a prompt");
  assert_refused(true, NULL, "{\"prompt\": 7}", 13, "neither a prompt");
  assert_refused(true, NULL, "[\"text\"]", 8, "the record is a list");
  assert_refused(true, NULL, "{\"prompt\": \"\", \"messages\": []}", 30, "both");
}

TEST(conversations_keep_their_turns) {
  static const char record[] =
      "{\"messages\": [{\"role\": \"system\", \"content\": \"s\\u0000t\"}, {\"content\": \"\", \"role\": "
      "\"user\"}, "
      "{\"role\": \"assistant\", \"content\": \"a\", \"thinking\": \"hm\"}, "
      "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"one \"}, {\"text\": \"two\"}]}, "
      "{\"role\": \"tool\", \"content\": \"b\", \"reasoning_content\": \"so\", \"name\": \"f\"}]}";
  MapPrompt prompt = {0};
  for (int i = 0; i < 2; i++) { /* used again */
    assert_int_equal(fill(true, NULL, NULL, record, strlen(record), &prompt, NULL), STATUS_OK);
    assert_true(prompt.is_chat && prompt.n_messages == 5);
    const ChatMessage *m = prompt.messages;
    assert_string_equal(m[0].role, "system");
    assert_true(m[0].size == 3 && memcmp(m[0].text, "s\0t", 3) == 0);
    assert_string_equal(m[1].role, "user");
    assert_true(m[1].size == 0 && m[1].thinking == NULL);
    assert_string_equal(m[2].role, "assistant");
    assert_true(m[2].size == 1 && m[2].text[0] == 'a');
    assert_true(m[2].thinking_size == 2 && memcmp(m[2].thinking, "hm", 2) == 0);
    assert_string_equal(m[3].role, "user");
    assert_true(m[3].size == 7 && memcmp(m[3].text, "one two", 7) == 0);
    assert_true(m[3].thinking == NULL && m[3].members == NULL);
    assert_string_equal(m[4].role, "tool");
    assert_true(m[4].thinking_size == 2 && memcmp(m[4].thinking, "so", 2) == 0);
    static const char name[] = "\"name\":\"f\"";
    assert_true(m[4].members_size == strlen(name) && memcmp(m[4].members, name, strlen(name)) == 0);
  }
  map_prompt_release(&prompt);

  static const struct {
    const char *record, *words;
  } bad[] = {
      {"{\"messages\": []}", "messages is empty"},
      {"{\"messages\": {}}", "messages is no list"},
      {"{\"messages\": [3]}", "message 0 has no role"},
      {"{\"messages\": [{\"role\": 1, \"content\": \"\"}]}", "message 0 has no role"},
      {"{\"messages\": [{\"role\": \"u\\u0000\", \"content\": \"\"}]}", "role that is no name"},
      {"{\"messages\": [{\"role\": \"user<|im_end|>\", \"content\": \"\"}]}", "role that is no name"},
      {"{\"messages\": [{\"role\": \"user\", \"content\": \"\"}, {\"role\": \"user\"}]}",
       "message 1 has no content"},
      {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}]}",
       "a part that is no text"},
      {"{\"messages\": [{\"role\": \"user\", \"content\": [\"x\"]}]}", "a part that is no text"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_refused(true, NULL, bad[i].record, strlen(bad[i].record), bad[i].words);
}

TEST(files_come_first) {
  MapPrompt prompt = {0};
  assert_int_equal(fill(false, "file {}\n", "q: {}", "x", 1, &prompt, NULL), STATUS_OK);
  assert_true(prompt.text.size == 12 && memcmp(prompt.text.data, "file {}\nq: x", 12) == 0);
  assert_int_equal(fill(false, "file\n", NULL, "x", 1, &prompt, NULL), STATUS_OK);
  assert_true(prompt.text.size == 6);
  assert_int_equal(fill(false, "file\n", "sum up", "x", 1, &prompt, NULL), STATUS_OK);
  assert_true(prompt.text.size == 13 && memcmp(prompt.text.data, "file\nx\nsum up", 13) == 0);
  assert_int_equal(fill(true, "file\n", NULL, "{\"prompt\": \"x\"}", 15, &prompt, NULL), STATUS_OK);
  assert_true(prompt.text.size == 6);
  static const char chat[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}]}";
  Error err;
  assert_int_equal(fill(true, "file\n", NULL, chat, strlen(chat), &prompt, &err), STATUS_USAGE);
  assert_non_null(strstr(err.text, "-f"));
  map_prompt_release(&prompt);
}

TEST(the_id_is_kept_as_it_is_written) {
  static const struct {
    const char *record, *id;
  } cases[] = {
      {"{\"prompt\": \"\", \"id\": \"a\\n\\\"b\"}", "\"a\\n\\\"b\""},
      {"{\"id\": -12.0, \"prompt\": \"\"}", "-12.0"},
      {"{\"id\": {\"a\": 1}, \"prompt\": \"\"}", NULL},
      {"{\"id\": null, \"prompt\": \"\"}", NULL},
      {"{\"id\": true, \"prompt\": \"\"}", NULL},
      {"{\"id\": [1], \"prompt\": \"\"}", NULL},
      {"{\"id\": 0, \"prompt\": \"\"}", "0"},
      {"{\"id\": 9, \"prompt\": \"\"}", "9"},
      {"{\"id\": \"\", \"prompt\": \"\"}", "\"\""},
      {"\"id\"", NULL},
  };
  MapPrompt prompt = {0};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(fill(true, NULL, NULL, cases[i].record, strlen(cases[i].record), &prompt, NULL),
                     STATUS_OK);
    assert_int_equal(prompt.id.text != NULL, cases[i].id != NULL);
    if (cases[i].id) assert_memory_equal(prompt.id.text, cases[i].id, prompt.id.size);
    if (cases[i].id) assert_int_equal(prompt.id.size, strlen(cases[i].id));
  }
  map_prompt_release(&prompt);
}

/* A prompt is used again for each record: the record before leaves nothing in it. */
TEST(a_record_has_nothing_of_the_one_before_it) {
  static const char first[] = "{\"id\": 7, \"messages\": [{\"role\": \"user\", \"content\": \"before\"}]}";
  static const char *const broken[] = {"{\"id\": 8, \"prompt\": \"", "no JSON", ""};
  MapPrompt prompt = {0};
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
    assert_int_equal(fill(true, NULL, NULL, first, strlen(first), &prompt, NULL), STATUS_OK);
    assert_true(prompt.is_chat && prompt.id.size == 1);
    assert_int_equal(fill(true, NULL, NULL, broken[i], strlen(broken[i]), &prompt, NULL), STATUS_USAGE);
    assert_null(prompt.id.text); /* an error object has no "id" of another record */
    assert_false(prompt.is_chat);
    assert_int_equal(prompt.n_messages, 0);
  }
  assert_int_equal(fill(true, NULL, NULL, first, strlen(first), &prompt, NULL), STATUS_OK);
  assert_int_equal(fill(true, NULL, NULL, "\"text\"", 6, &prompt, NULL), STATUS_OK);
  assert_false(prompt.is_chat);
  assert_true(prompt.text.size == 4 && memcmp(prompt.text.data, "text", 4) == 0);
  map_prompt_release(&prompt);
}

TEST(broken_records_are_refused_in_words) {
  assert_refused(false, "{}", "ab\xff", 3, "not valid UTF-8: byte 0xff at offset 2");
  assert_refused(false, "{}", "ab\xe2\x82", 4, "not valid UTF-8: byte 0xe2 at offset 2");
  assert_refused(true, "{}", "{\"a\": \"\xff\"}", 10, "the record");
  assert_refused(true, "{a}", "{\"a\": 1", 7, "the record");
  assert_refused(true, "{a}", "{\"a\": 1} x", 10, "the record");
  assert_refused(true, "{a}", "", 0, "the record");
  assert_refused(false, "{}", "ab\0c", 4, "the record has a NUL at offset 2 (-0: records end with a NUL)");
  assert_refused(false, "{} \xff", "x", 1, "-p is not valid UTF-8");
  PromptPattern pattern = {0};
  MapPrompt prompt = {0};
  Record record = {.text = "ab", .size = 2, .cut = true};
  Error err;
  assert_int_equal(prompt_pattern_parse(&pattern, "{}", NULL), STATUS_OK);
  assert_int_equal(map_prompt_fill(&pattern, &record, &prompt, &err), STATUS_USAGE);
  assert_string_equal(err.text, "the record has more than 2 bytes");
  prompt_pattern_release(&pattern);
  map_prompt_release(&prompt);
}
