/* test_dialogue.c - a chat on the tiny model, without a terminal: when the oldest turns are forgotten and how
 * many, which messages say so, and that nothing is lost if no answer came. */
#include "dialogue_test.h"
#include "test/tests.h"

static void add(Role role, const char *text) {
  assert_int_equal(conversation_add(&d.conversation, role, text, strlen(text), NULL), STATUS_OK);
}

static void clear(void) {
  conversation_truncate(&d.conversation, 0);
  d.held.count = 0;
}

/* n turns of different lengths. */
static void add_turns(size_t n) {
  static const char *const words[] = {"One day.", "Tim and Lily went to the park to play.", "So?",
                                      "The dog ran to the big red ball."};
  for (size_t i = 0; i < n; i++) {
    add(ROLE_USER, words[i % 4]);
    add(ROLE_ASSISTANT, words[(i + 1) % 3]);
  }
}

static size_t count_tokens(size_t first) {
  IdList ids = {0};
  assert_int_equal(dialogue_encode(&d, &d.conversation, first, &ids, NULL), STATUS_OK);
  size_t n = ids.count;
  id_list_release(&ids);
  return n;
}

/* A message that makes the conversation so many tokens long: each of its words is one token. */
static const char *message_for(size_t n_tokens) {
  static char text[4000];
  *text = 0;
  for (;;) {
    add(ROLE_USER, text);
    size_t n = count_tokens(0);
    conversation_truncate(&d.conversation, d.conversation.count - 1);
    if (n == n_tokens) return text;
    assert_true(n < n_tokens);
    strcat(text, " the");
  }
}

/* --- room in the context */

/* How many of the oldest turns have to go: the fewest that leave no more than three quarters of the context,
 * or than twice the room for an answer leaves, but never the last turn. */
static size_t turns_to_forget(size_t n_ctx) {
  size_t room = d.assistant.max_tokens >= 0 ? (size_t)d.assistant.max_tokens : n_ctx;
  if (room > n_ctx / 4) room = n_ctx / 4;
  const size_t freed = 2 * room > n_ctx / 4 ? 2 * room : n_ctx / 4;
  size_t n_turns = conversation_n_turns(&d.conversation), at = conversation_next_turn(&d.conversation, 0);
  for (size_t n = 1; n + 1 < n_turns; n++) {
    at = conversation_next_turn(&d.conversation, at + 1);
    if (count_tokens(at) <= n_ctx - freed) return n;
  }
  return n_turns - 1;
}

enum { CONTEXT = 240 };

/* Sends a message that makes the conversation this long, and looks whether it and its turns stay. */
static void send_with(Overflow overflow, size_t n_tokens, size_t n_turns, bool system, bool has_room) {
  Status status;
  Error err = {{0}};
  char want[200] = "";
  clear();
  if (system) add(ROLE_SYSTEM, "Be kind.");
  add_turns(n_turns);
  talk.overflow = overflow;
  const char *text = message_for(n_tokens);
  size_t before = d.conversation.count, gone = 0, left = n_tokens < CONTEXT ? CONTEXT - n_tokens : 0;
  if (!has_room && overflow == OVERFLOW_SLIDE) {
    add(ROLE_USER, text);
    gone = turns_to_forget(CONTEXT);
    conversation_truncate(&d.conversation, before);
  }
  const char *said = send(text, &status, &err);
  if (has_room || overflow == OVERFLOW_SLIDE) {
    assert_int_equal(status, STATUS_OK);
    assert_int_equal(d.conversation.count, before + 2 - 2 * gone);
    if (gone)
      snprintf(want, sizeof want, "auk: the oldest %zu turn%s forgotten, %zu tokens: the context has %d\n",
               gone, gone == 1 ? " is" : "s are", n_tokens - (size_t)d.result.n_prompt, CONTEXT);
    if (strncmp(said, want, strlen(want)) != 0 || (!gone && strstr(said, "forgotten")))
      fail_msg("%zu tokens: \"%s\", expected \"%s\"", n_tokens, said, want);
    if (system) assert_int_equal(d.conversation.messages[0].role, ROLE_SYSTEM);
  } else {
    assert_int_equal(status, STATUS_USAGE);
    assert_int_equal(d.conversation.count, before);
    snprintf(want, sizeof want,
             "with this message the conversation has %zu tokens, the context %d: %zu %s left for "
             "an answer; /clear or /undo make room, --context-overflow slide forgets the "
             "oldest turns",
             n_tokens, CONTEXT, left, left == 1 ? "is" : "are");
    assert_string_equal(err.text, want);
  }
}

/* A message that leaves just the room that an answer is to have, and one of a token more: a quarter of the
 * context where turns are forgotten without a question, else a sixteenth, no more than -n, but a token. */
TEST(turns_are_forgotten_where_an_answer_has_no_room) {
  static const struct {
    Overflow overflow;
    int n;
    size_t room;
  } cases[] = {
      {OVERFLOW_SLIDE, 1, 1},   {OVERFLOW_SLIDE, 0, 1},  {OVERFLOW_SLIDE, 59, 59}, {OVERFLOW_SLIDE, 61, 60},
      {OVERFLOW_SLIDE, -1, 60}, {OVERFLOW_STOP, 1, 1},   {OVERFLOW_STOP, 14, 14},  {OVERFLOW_STOP, 16, 15},
      {OVERFLOW_STOP, -1, 15},  {OVERFLOW_ASK, 100, 15},
  };
  begin(CONTEXT, 1, PLAIN);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    d.assistant.max_tokens = cases[i].n;
    send_with(cases[i].overflow, CONTEXT - cases[i].room, 2, false, true);
    send_with(cases[i].overflow, CONTEXT - cases[i].room + 1, 2, false, false);
  }
  end();
}

/* The tokens of the first k turns of n. */
static size_t tokens_of_turns(size_t n, size_t k) {
  size_t at = 0;
  clear();
  add_turns(n);
  for (size_t i = 0; i < k; i++) at = conversation_next_turn(&d.conversation, at + 1);
  return count_tokens(0) - count_tokens(at);
}

/* The rest takes three quarters of the context, give or take one token. */
TEST(as_few_turns_are_forgotten_as_can_be) {
  size_t n_tried = 0;
  begin(CONTEXT, 1, PLAIN);
  for (size_t n_turns = 1; n_turns < 7; n_turns++) {
    size_t all = tokens_of_turns(n_turns, n_turns);
    for (size_t k = 1; k <= n_turns; k++) {
      for (size_t n = CONTEXT * 3 / 4 + tokens_of_turns(n_turns, k) - 1, end = n + 3; n < end; n++) {
        if (n < CONTEXT || n < all + 12 || n - all >= CONTEXT) continue;
        send_with(OVERFLOW_SLIDE, n, n_turns, false, false);
        n_tried++;
      }
    }
    send_with(OVERFLOW_SLIDE, CONTEXT + 3, n_turns, true, false);
  }
  assert_true(n_tried > 15);
  send_with(OVERFLOW_STOP, CONTEXT + 5, 2, true, false);
  end();
}

TEST(a_message_alone_is_answered_or_refused) {
  Status status;
  Error err = {{0}};
  begin(CONTEXT, 1, PLAIN);
  for (int overflow = OVERFLOW_ASK; overflow <= OVERFLOW_STOP; overflow++) {
    talk.overflow = overflow;
    clear();
    send(message_for(CONTEXT - 1), &status, &err);
    assert_int_equal(status, STATUS_OK);
    clear();
    send(message_for(CONTEXT), &status, &err);
    assert_int_equal(status, STATUS_USAGE);
    assert_int_equal(d.conversation.count, 0);
    assert_string_equal(err.text,
                        "the message has 240 tokens with what belongs to it, the context 240 (-c N sets it, "
                        "the model's maximum is 512)");
  }
  end();
}

/* Turns are forgotten with an answer, and not before there is one. */
TEST(an_answer_that_does_not_come_leaves_every_turn) {
  static const volatile int interrupted = 1;
  const volatile int *none;
  Status status;
  Error err = {{0}};
  begin(CONTEXT, 1, PLAIN);
  talk.overflow = OVERFLOW_SLIDE;
  add(ROLE_SYSTEM, "Be kind.");
  add_turns(3);
  const char *text = message_for(CONTEXT + 10);
  none = d.assistant.interrupted;
  d.assistant.interrupted = &interrupted; /* of the prefill; texts are encoded all the same */
  const char *said = send(text, &status, &err);
  assert_int_equal(status, STATUS_INTERRUPTED);
  assert_string_equal(said, "");
  assert_int_equal(d.conversation.count, 7);
  assert_string_equal(role_name(d.conversation.messages[6].role), "assistant");
  d.assistant.interrupted = none;
  said = send(text, &status, &err);
  assert_int_equal(status, STATUS_OK);
  assert_non_null(strstr(said, "forgotten"));
  assert_true(d.conversation.count < 9);
  end();
}

/* --- messages */

/* A conversation that fills so many tokens of the context; what is said of that. */
static const char *fill_to(size_t used) {
  Status status;
  const char *said = send(message_for(used), &status, NULL);
  assert_int_equal(status, STATUS_OK);
  assert_int_equal(session_view(engine_session(d.assistant.engine)).text->n_past, used);
  conversation_truncate(&d.conversation, 0);
  return said;
}

TEST(a_context_that_fills_is_told_of_once_a_level) {
  static const struct {
    size_t used;
    const char *said;
  } cases[] = {
      {149, ""},
      {150, "auk: the context is 75% full: 150 of 200 tokens\n"},
      {151, ""}, /* 75% still */
      {170, ""},
      {179, ""},
      {180, "auk: the context is 90% full: 180 of 200 tokens\n"},
      {190, ""},
      {160, ""}, /* not below the first level */
      {181, ""},
      {148, ""},
      {185, "auk: the context is 92% full: 185 of 200 tokens\n"}, /* it begins anew, with the higher one */
      {155, ""},
  };
  begin(200, 1, PLAIN);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_string_equal(fill_to(cases[i].used), cases[i].said);
  end();
}

/* The message about turns that are gone comes again. */
TEST(a_context_that_fills_again_is_told_of_again) {
  Status status;
  begin(200, 1, PLAIN);
  talk.overflow = OVERFLOW_SLIDE;
  for (int way = 0; way < 2; way++) {
    clear();
    d.reported_percent = 90;
    if (way == 0) {
      const ChatLine line = chat_parse("/clear", 6);
      tell_begin();
      assert_int_equal(chat_command(&d, &line, NULL), STATUS_OK);
      assert_string_equal(note_end(), "auk: the conversation is forgotten\n");
    } else {
      add(ROLE_USER, message_for(40));
      add(ROLE_ASSISTANT, "a");
    }
    const char *text = message_for(way ? 202 : 160), *said = send(text, &status, NULL);
    assert_non_null(strstr(said, "% full"));
    assert_int_equal(strstr(said, "forgotten") != NULL, way);
    assert_int_equal(d.reported_percent, 75);
  }
  end();
}

TEST(an_answer_ends_its_line_in_a_pipe) {
  Status status;
  begin(200, 0, PLAIN);
  send("Hi", &status, NULL);
  assert_true(written.size == 1 && written.data[0] == '\n');
  written.size = 0;
  d.assistant.max_tokens = 5;
  send("Hi", &status, NULL);
  assert_int_equal(written.size, d.answer.text.size + 1);
  assert_memory_equal(written.data, d.answer.text.data, d.answer.text.size);
  assert_int_equal(written.data[d.answer.text.size], '\n');
  end();
}

/* Whatever tokens the mark is made of, and whatever white space the template puts after it. */
TEST(a_prompt_that_ends_in_an_open_thought_is_answered_with_one) {
  static const struct {
    const char *end;
    bool inside;
  } cases[] = {{"<think>", true},
               {"<think>{{ '\\n' }}", true},
               {"<think>{{ ' \\t\\r\\n' }}", true},
               {"<think>{{ '\\n\\n\\n\\n\\n\\n\\n\\n' }}", true},
               {"<think>x", false},
               {"<think></think>", false},
               {"<think", false},
               {"think>", false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char template[300];
    Status status;
    snprintf(template, sizeof template,
             "{%% for m in messages %%}{{ m.content }}{%% endfor %%}%s{# <think></think> #}", cases[i].end);
    begin(100, 3, template);
    send("Once", &status, NULL);
    assert_int_equal(status, STATUS_OK);
    assert_int_equal(d.result.in_thought, cases[i].inside);
    assert_int_equal(d.result.n_thought, cases[i].inside ? 3 : 0);
    assert_int_equal(d.answer.thinking.size > 0, cases[i].inside);
    assert_int_equal(d.answer.text.size > 0, !cases[i].inside);
    const size_t n_thinking = d.answer.thinking.size, n_text = d.answer.text.size;
    clear();
    send("Once", &status, NULL); /* the same once more: nothing of an answer is left in the next */
    assert_true(d.answer.thinking.size == n_thinking && d.answer.text.size == n_text);
    end();
  }
}

/* --- what is held and counted */

TEST(totals_are_those_of_all_answers) {
  static const char *const texts[] = {"Once upon a time", "And then?", "So?"};
  long long prefilled = 0, reused = 0, generated = 0;
  Status status;
  begin(400, 7, PLAIN);
  for (int i = 0; i < 3; i++) {
    size_t n_held = d.held.count;
    send(texts[i], &status, NULL);
    const AnswerResult *r = &d.result;
    assert_int_equal(r->n_generated, 7);
    assert_int_equal(d.held.count, r->n_prompt + r->n_generated);
    /* The answer's last token was not computed further. */
    assert_int_equal(r->n_reused, n_held ? n_held - 1 : 0);
    prefilled += r->n_prompt - r->n_reused;
    reused += r->n_reused;
    generated += r->n_generated;
  }
  const ChatLine line = chat_parse("/stats", 6);
  char want[200];
  tell_begin();
  assert_int_equal(chat_command(&d, &line, NULL), STATUS_OK);
  const char *said = note_end();
  assert_int_equal(d.totals.n_answers, 3);
  assert_true(d.totals.n_prefilled == prefilled && d.totals.n_reused == reused &&
              d.totals.n_generated == generated);
  snprintf(want, sizeof want, "auk: prompt: %d tokens, %d of them known; %d prefilled in ", d.result.n_prompt,
           d.result.n_reused, d.result.n_prompt - d.result.n_reused);
  assert_non_null(strstr(said, want));
  assert_non_null(strstr(said, "\nauk: answer: 7 tokens ("));
  snprintf(want, sizeof want, "\nauk: all 3 answers: %lld prefilled (", prefilled);
  assert_non_null(strstr(said, want));
  snprintf(want, sizeof want, "/s), %lld known, 21 generated (", reused);
  assert_non_null(strstr(said, want));
  end();
}

static size_t tokens_of(const char *text) {
  const Buffer bytes = {.data = (char *)text, .size = strlen(text)};
  size_t n;
  assert_int_equal(dialogue_count(&d, &bytes, &n, NULL), STATUS_OK);
  return n;
}

/* A text of so many characters. */
static const char *letters(size_t n) {
  static char text[2][100];
  static int next;
  char *at = text[next++ % 2];
  memset(at, 'x', n);
  at[n] = 0;
  return at;
}

TEST(tokens_are_listed_by_message) {
  char want[1000];
  begin(300, 1, PLAIN);
  add(ROLE_SYSTEM, "Be\nkind.");
  add(ROLE_USER, letters(50));
  add(ROLE_ASSISTANT, letters(51));
  assert_int_equal(buffer_append_string(&d.conversation.messages[2].thinking, "hm so", NULL), STATUS_OK);
  assert_int_equal(buffer_append_string(&d.attached, letters(31), NULL), STATUS_OK);
  size_t n[] = {tokens_of("Be\nkind."), tokens_of(letters(50)), tokens_of(letters(51))};
  int at = snprintf(
      want, sizeof want,
      "%7zu  system     Be kind.\n%7zu  user       %s\n%7zu  assistant  %s...  (and %zu of thought)\n", n[0],
      n[1], letters(50), n[2], letters(50), tokens_of("hm so"));
  at += snprintf(want + at, sizeof want - (size_t)at,
                 "%7zu  in the messages\n"
                 "%7zu  with the template's own and the beginning of an answer, of a context of 300\n",
                 n[0] + n[1] + n[2], count_tokens(0));
  snprintf(want + at, sizeof want - (size_t)at,
           "%7zu  wait for your next message (/undo drops them): %s...\n", tokens_of(letters(31)),
           letters(30));
  const ChatLine line = chat_parse("/tokens", 7);
  tell_begin();
  assert_int_equal(chat_command(&d, &line, NULL), STATUS_OK);
  assert_string_equal(note_end(), want);
  end();
}

TEST(an_excerpt_is_one_line_of_whole_characters) {
  static const struct {
    const char *text;
    size_t most;
    const char *want;
  } cases[] = {
      {"", 3, ""},
      {"abc", 3, "abc"},
      {"abcd", 3, "abc..."},
      {"a\nb\tc\n", 6, "a b c "},
      {"abc", 0, "..."},
      {"\xc3\xa4\xc3\xb6\xc3\xbc", 3, "\xc3\xa4\xc3\xb6\xc3\xbc"},
      {"\xc3\xa4\xc3\xb6", 1, "\xc3\xa4..."},
      {"\xe4\xb8\xad\xf0\x9f\x99\x82x", 2, "\xe4\xb8\xad\xf0\x9f\x99\x82..."},
      {"\033[2J", 2, "\xe2\x90\x9b[..."},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Buffer out = {0};
    assert_int_equal(buffer_append_string(&out, "before\n", NULL), STATUS_OK);
    assert_int_equal(dialogue_excerpt(cases[i].text, strlen(cases[i].text), cases[i].most, &out, NULL),
                     STATUS_OK);
    assert_int_equal(buffer_append(&out, "", 1, NULL), STATUS_OK);
    assert_memory_equal(out.data, "before\n", 7);
    assert_string_equal(out.data + 7, cases[i].want);
    buffer_release(&out);
  }
}

/* --- commands */

/* "sua": the roles of the conversation, by their first letters. */
static void assert_roles(const char *want) {
  char got[20] = "";
  for (size_t i = 0; i < d.conversation.count; i++) got[i] = role_name(d.conversation.messages[i].role)[0];
  assert_string_equal(got, want);
}

TEST(another_answer_takes_the_place_of_the_last_one) {
  static const volatile int interrupted = 1;
  static const struct {
    const char *before, *after; /* NULL: refused */
  } cases[] = {{"ua", "ua"},  {"u", "ua"},      {"sua", "sua"}, {"uaua", "uaua"},
               {"uaa", "ua"}, {"utua", "utua"}, {"uta", "uta"}, {"uat", "uata"},
               {"", NULL},    {"s", NULL},      {"sa", NULL},   {"uaaua", "uaaua"}};
  begin(200, 2, PLAIN);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    static const char letters[] = "suat";
    const char *before = cases[i].before;
    Status status;
    clear();
    for (const char *at = before; *at; at++) add((Role)(strchr(letters, *at) - letters), "old");
    if (!cases[i].after) {
      command("/regen", &status, NULL);
      assert_int_equal(status, STATUS_USAGE);
      assert_roles(before);
      continue;
    }
    const volatile int *none = d.assistant.interrupted;
    d.assistant.interrupted = &interrupted;
    command("/regen", &status, NULL);
    d.assistant.interrupted = none;
    assert_int_equal(status, STATUS_INTERRUPTED);
    assert_roles(before); /* nothing came: all of it is still there */
    command("/regen", &status, NULL);
    assert_int_equal(status, STATUS_OK);
    assert_roles(cases[i].after);
    const Message *last = &d.conversation.messages[d.conversation.count - 1];
    assert_int_equal(last->text.size, d.answer.text.size);
    assert_memory_equal(last->text.data, d.answer.text.data, d.answer.text.size);
    if (d.conversation.count > 1) assert_memory_equal(d.conversation.messages[0].text.data, "old", 3);
  }
  end();
}

TEST(the_last_turn_is_taken_back) {
  Status status;
  char want[200];
  begin(200, 2, PLAIN);
  add(ROLE_SYSTEM, "Be kind.");
  add(ROLE_USER, letters(50));
  add(ROLE_ASSISTANT, "a");
  add(ROLE_USER, letters(51));
  add(ROLE_TOOL, "t");
  add(ROLE_ASSISTANT, "a");
  snprintf(want, sizeof want, "auk: taken back: %s...\n", letters(50));
  assert_string_equal(command("/undo", &status, NULL), want);
  assert_roles("sua");
  snprintf(want, sizeof want, "auk: taken back: %s\n", letters(50));
  assert_string_equal(command("/undo", &status, NULL), want);
  assert_roles("s");
  assert_string_equal(command("/undo", &status, NULL), "");
  assert_int_equal(status, STATUS_USAGE);
  assert_string_equal(command("/system", &status, NULL), "Be kind.\n");
  command("/system \"\"", &status, NULL);
  assert_string_equal(command("/system", &status, NULL), "auk: There is no system message.\n");
  command("/system Be terse.", &status, NULL);
  assert_roles("s");
  assert_string_equal(command("/system", &status, NULL), "Be terse.\n");
  end();
}

TEST(a_conversation_is_saved_and_loaded_whole) {
  Status status;
  char line[400], want[200], *path = in_directory(own_directory, "talk.json");
  begin(200, 2, PLAIN);
  for (size_t n = 1; n < 4; n++) {
    clear();
    for (size_t i = 0; i < n; i++) add(i % 2 ? ROLE_ASSISTANT : ROLE_USER, "Hi");
    size_t n_tokens = count_tokens(0);
    snprintf(line, sizeof line, "/save %s", path);
    snprintf(want, sizeof want, "auk: %zu message%s saved\n", n, n == 1 ? "" : "s");
    assert_string_equal(command(line, &status, NULL), want);
    clear();
    add(ROLE_SYSTEM, "before");
    snprintf(line, sizeof line, "/load %s", path);
    snprintf(want, sizeof want, "auk: %zu message%s, %zu tokens%s\n", n, n == 1 ? "" : "s", n_tokens,
             n % 2 ? "; the last one has no answer: /regen" : "");
    assert_string_equal(command(line, &status, NULL), want);
    assert_roles(n == 1 ? "u" : n == 2 ? "ua" : "uau");
  }
  snprintf(line, sizeof line, "/load %s.not", path);
  assert_string_equal(command(line, &status, NULL), "");
  assert_int_equal(status, STATUS_FAILED);
  assert_roles("uau");
  end();
}

/* --- files that are read for a message */

TEST(files_stand_before_their_message_on_lines_of_their_own) {
  Status status;
  Error err = {{0}};
  char line[400];
  static const char *const texts[] = {"one", "two\n", "", "four"};
  begin(300, 1, PLAIN);
  for (size_t i = 0; i < 4; i++) {
    char *path = in_directory(own_directory, "text");
    FILE *file = fopen(path, "w");
    fputs(texts[i], file);
    fclose(file);
    snprintf(line, sizeof line, "/read %s", path);
    command(line, &status, &err);
    assert_int_equal(status, STATUS_OK);
  }
  send(letters(0), &status, &err);
  assert_int_equal(status, STATUS_OK);
  const Buffer *text = &d.conversation.messages[0].text;
  assert_int_equal(text->size, 13);
  assert_memory_equal(text->data, "one\ntwo\nfour\n", 13);
  assert_int_equal(d.attached.size, 0);
  assert_int_equal(buffer_append_string(&d.attached, "two\n", NULL), STATUS_OK);
  send("Hi", &status, &err);
  text = &d.conversation.messages[2].text;
  assert_true(text->size == 6 && memcmp(text->data, "two\nHi", 6) == 0);
  end();
}

/* The longest file that is taken is the longest that a message can bring into the context. */
TEST(a_file_is_taken_where_its_message_has_a_token_of_answer) {
  Status status;
  char line[400], *path = in_directory(own_directory, "long");
  begin(CONTEXT, 1, PLAIN);
  snprintf(line, sizeof line, "/read %s", path);
  for (size_t i = 0; i < 4; i++) {
    const size_t n = CONTEXT - 1 + i % 2;
    Error err = {{0}};
    if (i == 2) add(ROLE_SYSTEM, "Be kind."); /* which stands before the message in any case */
    const char *text = message_for(n);
    char want[600];
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
    command(line, &status, &err);
    assert_int_equal(status, n < CONTEXT ? STATUS_OK : STATUS_USAGE);
    assert_int_equal(d.attached.size, n < CONTEXT ? strlen(text) : 0);
    snprintf(want, sizeof want,
             "%s has %zu tokens: the message would have 240, the context has 240 (-c N sets it, the model's "
             "maximum "
             "is 512); it is not read",
             path, tokens_of(text));
    assert_string_equal(err.text, n < CONTEXT ? "" : want);
    d.attached.size = 0;
  }
  end();
}

/* --- settings */

#define OPENED PLAIN "{# <think> </think> #}"

static const char *set(const char *text) {
  Status status;
  static char line[200];
  Error err = {{0}};
  snprintf(line, sizeof line, "/set %s", text);
  const char *said = command(line, &status, &err);
  if (status) fail_msg("%s: %s", line, err.text);
  return said;
}

TEST(every_setting_is_set_by_itself_and_goes_back_with_default) {
  static const struct {
    const char *change, *line, *was;
  } cases[] = {
      {"temp 0.5", "temp 0.5", "temp 0"},
      {"top-k 7", "top-k 7", "top-k 0"},
      {"top-p 0.25", "top-p 0.25", "top-p 1"},
      {"min-p 0.125", "min-p 0.125", "min-p 0"},
      {"repeat-penalty 1.5", "repeat-penalty 1.5", "repeat-penalty 1"},
      {"presence-penalty 2", "presence-penalty 2", "presence-penalty 0"},
      {"frequency-penalty 3", "frequency-penalty 3", "frequency-penalty 0"},
      {"seed 18446744073709551615", "seed 18446744073709551615", "seed -1 (another one for each answer)"},
      {"n -1", "n -1 (no limit)", "n 4"},
      {"think off", "think off", "think auto"},
      {"think-budget 0", "think-budget 0", "think-budget -1 (no limit)"},
      {"show-thinking off", "show-thinking off", "show-thinking on"},
  };
  enum { COUNT = sizeof cases / sizeof *cases };
  begin(100, 4, OPENED);
  for (size_t changed = 0; changed <= COUNT + 1; changed++) {
    char want[1000] = "";
    for (size_t i = 0; i < COUNT; i++) {
      const bool is_new = i < changed && changed <= COUNT;
      snprintf(want + strlen(want), sizeof want - strlen(want), "  %s\n",
               is_new ? cases[i].line : cases[i].was);
    }
    assert_string_equal(set(""), want);
    if (changed < COUNT) assert_string_equal(set(cases[changed].change), "");
    if (changed == COUNT) assert_string_equal(set("default"), "");
  }
  end();
}

TEST(a_value_has_sixty_three_bytes_at_most) {
  Status status;
  Error err = {{0}};
  char line[100];
  begin(100, 4, PLAIN);
  snprintf(line, sizeof line, "/set temp 0.%s",
           "5000000000000000000000000000000000000000000000000000000000000");
  assert_int_equal(strlen(line), strlen("/set temp ") + 63);
  command(line, &status, &err);
  assert_int_equal(status, STATUS_OK);
  assert_true(d.assistant.sampler.temperature == 0.5);
  strcat(line, "0");
  command(line, &status, &err);
  assert_int_equal(status, STATUS_USAGE);
  assert_string_equal(err.text, "/set NAME VALUE; /set alone lists the names");
  end();
}

TEST(what_has_no_effect_at_temperature_0_is_said) {
  static const char *const idle[] = {"top-k 3", "top-p 0.5", "min-p 0.5", "seed 3"};
  static const char *const others[] = {"repeat-penalty 1.5", "presence-penalty 1", "frequency-penalty 1",
                                       "n 3"};
  begin(100, 4, PLAIN);
  for (int i = 0; i < 4; i++) {
    char want[100];
    snprintf(want, sizeof want, "temp is 0: %.*s has no effect until /set temp X\n",
             (int)strcspn(idle[i], " "), idle[i]);
    assert_string_equal(set(idle[i]), want);
    assert_string_equal(set(others[i]), "");
  }
  set("temp 0.5");
  for (int i = 0; i < 4; i++) assert_string_equal(set(idle[i]), "");
  end();
}

TEST(every_answer_has_the_next_seed) {
  Status status;
  begin(300, 1, PLAIN);
  set("seed 40");
  for (uint64_t i = 0; i < 3; i++) {
    send("Hi", &status, NULL);
    assert_true(d.assistant.sampler.seed == 40 + i);
  }
  set("temp 0.5"); /* goes on */
  send("Hi", &status, NULL);
  assert_true(d.assistant.sampler.seed == 43);
  set("seed 7");
  send("Hi", &status, NULL);
  assert_true(d.assistant.sampler.seed == 7);
  end();
}

static CMFixtureFunction before_all = make_own_directory, after_all = remove_own_directory;
