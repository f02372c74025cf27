/* test_channels.c - answers in channels, token by token: which headers may come and are forced, what each
 * begins, and the calls that come out; and the functions of --tools, from the file to the list of the
 * template. The template is gpt-oss's, the tokens are bytes and its marks. */
#include "commands/form/channels.h"
#include "test/directory.h"
#include "test/tests.h"
#include "test/tokenizer/small.h"

static const char *const controls[] = {"<|start|>",     "<|end|>",    "<|message|>", "<|channel|>",
                                       "<|constrain|>", "<|return|>", "<|call|>"};
enum { N_CONTROLS = sizeof controls / sizeof *controls, N_IDS = 256 + N_CONTROLS };
static const int32_t ends[] = {261, 262};
static const IdList end_list = {.ids = (int32_t *)ends, .count = 2};
static Tokenizer *tokenizer;
static Chat *chat;

static int open_chat(void **state) {
  Error err;
  make_own_directory(state);
  tokenizer = with_controls(controls, N_CONTROLS);
  return chat_open(NULL, "test/data/templates/gptoss.jinja", tokenizer, &chat, &err);
}

static int close_chat(void **state) {
  chat_close(chat);
  tokenizer_close(tokenizer);
  return remove_own_directory(state);
}

/* --- functions */

static Status open_tools(const char *file, int choice, Tools *tools, AnswerForm *form, Error *err) {
  char path[700];
  snprintf(path, sizeof path, "%s", in_directory(own_directory, "tools.json"));
  FILE *out = fopen(path, "w");
  assert_non_null(out);
  fputs(file, out);
  assert_int_equal(fclose(out), 0);
  *tools = (Tools){.given = false};
  *form = (AnswerForm){.given = false};
  return tools_open(&(ToolFlags){.file = path, .choice = choice}, &(FormFlags){.key_order = 0}, chat,
                    tokenizer, N_IDS, tools, form, err);
}

/* The parameters take an object whatever else the schema names, or are refused with what is wrong. */
TEST(parameters_take_an_object) {
  static const struct {
    const char *parameters, *why; /* why NULL: they are taken */
  } cases[] = {
      {"{}", NULL},
      {"null", NULL},
      {"{\"type\": \"object\"}", NULL},
      {"{\"properties\": {}}", NULL},
      {"{\"type\": [\"object\"]}", NULL},
      {"{\"type\": [\"object\", \"null\"]}", NULL},
      {"{\"type\": [\"null\", \"object\"]}", NULL},
      {"{\"type\": [\"null\", \"object\", \"string\"]}", NULL},
      {"{\"type\": \"string\"}", "have the type \"string\", expected \"object\""},
      {"{\"type\": \"objects\"}", "is \"objects\""},
      {"{\"type\": [\"null\", \"string\"]}", "have the type [\"null\", \"string\"]"},
      {"{\"type\": \"array\"}", "have the type \"array\""},
      {"[]", "are no JSON Schema, expected an object"},
      {"true", "are no JSON Schema, expected an object"},
      {"\"object\"", "are no JSON Schema, expected an object"},
      {"{\"type\": \"object\", \"required\": 1}", "parameters of \"f\": #/required"},
  };
  static const char *const keys[] = {"parameters", "inputSchema", "input_schema"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int form_of = 0; form_of < 6; form_of++) { /* with and without "function" around it */
      char file[300];
      Tools tools;
      AnswerForm form;
      Error err = {{0}};
      snprintf(file, sizeof file, "[%s{\"name\": \"f\", \"%s\": %s}%s]",
               form_of % 2 ? "{\"type\": \"function\", \"function\": " : "", keys[form_of / 2],
               cases[i].parameters, form_of % 2 ? "}" : "");
      const Status status = open_tools(file, 0, &tools, &form, &err);
      if (cases[i].why ? status != STATUS_USAGE || (!strstr(err.text, cases[i].why) && i != 9)
                       : status != STATUS_OK)
        fail_msg("%s: \"%s\"", file, err.text);
      if (!status) {
        assert_int_equal(tools.written.count, 1);
        const Buffer *parameters = &tools.written.items[0].parameters;
        assert_memory_equal(parameters->data, "{\"type\": \"object\"", 17);
        assert_false(tools.required);
      }
      tools_release(&tools);
      form_release(&form);
    }
}

TEST(lists_of_functions_are_checked) {
  static const struct {
    const char *file, *why, *list; /* why NULL: taken, with this list for the template */
  } cases[] = {
      {"[{\"name\": \"f\"}]", NULL, "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]"},
      {"[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"x\": 1}}, {\"name\": \"g\", "
       "\"parameters\": "
       "{}}]",
       NULL,
       "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"x\": 1}}, {\"type\": \"function\", "
       "\"function\": {\"name\": \"g\", \"parameters\": {}}}]"},
      {"[{\"name\": \"f\", \"description\": \"d\", \"inputSchema\": {\"type\": \"object\"}}]", NULL,
       "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": \"d\", \"parameters\": "
       "{\"type\": \"object\"}}}]"},
      {"[{\"name\": \"f\", \"input_schema\": null}]", NULL,
       "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": \"\", \"parameters\": "
       "{}}}]"},
      {"[{\"name\": \"f\", \"input_schema\": {\"x\": 1}, \"parameters\": {\"y\": 1}}]", NULL,
       "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"input_schema\": {\"x\": 1}, "
       "\"parameters\": {\"y\": 1}}}]"},
      {"[]", "the list of tools is empty", NULL},
      {"{}", "no list of tools", NULL},
      {"[1]", "tool 1 is no object", NULL},
      {"[{\"name\": \"f\"}, \"g\"]", "tool 2 is no object", NULL},
      {"[{}]", "tool 1 has no name", NULL},
      {"[{\"name\": 1}]", "tool 1 has no name", NULL},
      {"[{\"name\": \"\"}]", "tool 1 has no name", NULL},
      {"[{\"function\": {\"description\": \"f\"}, \"name\": \"f\"}]", "tool 1 has no name", NULL},
      {"[{\"name\": \"f\"}, {\"name\": \"g\"}, {\"name\": \"f\"}]",
       "tool 3 has the name of one before, \"f\"", NULL},
      {"[{\"name\": \"f<\"}]", "has <, > or a line end", NULL},
      {"[{\"name\": \"f\"}", "tools.json", NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Tools tools;
    AnswerForm form;
    Error err = {{0}};
    const Status status = open_tools(cases[i].file, 1, &tools, &form, &err);
    if (cases[i].why ? status != STATUS_USAGE || !strstr(err.text, cases[i].why) : status != STATUS_OK)
      fail_msg("%s: \"%s\"", cases[i].file, err.text);
    if (!status) {
      assert_true(tools.required && tools.given);
      assert_int_equal(tools.list.size, strlen(cases[i].list));
      assert_memory_equal(tools.list.data, cases[i].list, tools.list.size);
    }
    tools_release(&tools);
    form_release(&form);
  }
}

/* --- headers */

typedef struct {
  Tools tools;
  AnswerForm form;
  Bound bound;
  Channels channels;
} Talk;

static const char *const two =
    "[{\"name\": \"now\"}, {\"name\": \"now_utc\", \"parameters\": {\"properties\": "
    "{\"n\": {\"type\": \"integer\"}}, \"required\": [\"n\"], "
    "\"additionalProperties\": false}}]";

static void begin(Talk *it, bool with_tools, int choice, bool no_thought) {
  Error err = {{0}};
  *it = (Talk){.channels = {.state = CHANNEL_NONE}};
  if (with_tools && open_tools(two, choice, &it->tools, &it->form, &err)) fail_msg("%s", err.text);
  assert_int_equal(bound_begin(&it->bound, &it->form, &end_list, &err), STATUS_OK);
  if (channels_begin(&it->channels, chat, tokenizer, &it->tools, &it->bound, no_thought, &err))
    fail_msg("%s", err.text);
  assert_int_equal(it->channels.state, CHANNEL_HEADER);
}

static void end(Talk *it) {
  channels_release(&it->channels);
  bound_release(&it->bound);
  form_release(&it->form);
  tools_release(&it->tools);
}

/* Takes the tokens of a text with marks; *n_text: those that were text of a message. */
static bool take(Talk *it, const char *text, Buffer *lines, int *n_text) {
  const PromptPiece piece = {text, strlen(text), true};
  IdList ids = {0};
  Error err = {{0}};
  bool ended = false;
  *n_text = 0;
  assert_int_equal(tokenizer_encode_pieces(tokenizer, &piece, 1, false, &ids, &err), STATUS_OK);
  for (size_t i = 0; i < ids.count; i++) {
    TokenReply reply = {0};
    bool taken;
    assert_false(ended);
    if (channels_take(&it->channels, ids.ids[i], &taken, lines, &ended, &reply, &err))
      fail_msg("%s: %s", text, err.text);
    *n_text += !taken;
  }
  id_list_release(&ids);
  return ended;
}

TEST(a_header_says_what_its_message_is) {
  static const struct {
    const char *header;
    ChannelState state;
    const char *function;
  } cases[] = {
      {"<|channel|>analysis<|message|>", CHANNEL_THOUGHT, NULL},
      {"<|channel|>final<|message|>", CHANNEL_TEXT, NULL},
      {"<|channel|>commentary<|message|>", CHANNEL_TEXT, NULL},
      {"<|channel|> analysis<|message|>", CHANNEL_THOUGHT, NULL},
      {"<|channel|>analysi<|message|>", CHANNEL_TEXT, NULL},
      {"<|channel|>analysis2<|message|>", CHANNEL_TEXT, NULL},
      {"<|channel|>analysis <|constrain|>json<|message|>", CHANNEL_THOUGHT, NULL},
      {"<|message|>", CHANNEL_TEXT, NULL},
      {"<|channel|>commentary to=functions.now <|constrain|>json<|message|>", CHANNEL_CALL, "now"},
      {"<|channel|>commentary to=functions.now_utc<|constrain|>json<|message|>", CHANNEL_CALL, "now_utc"},
      {"<|channel|>commentary to=functions.now<|message|>", CHANNEL_CALL, "now"},
      {" to=functions.now_utc<|channel|>analysis <|constrain|>json<|message|>", CHANNEL_CALL, "now_utc"},
      {"<|channel|>commentary to=functions.no<|message|>", CHANNEL_THOUGHT, NULL},
      {"<|channel|>commentary to=functions.nows<|message|>", CHANNEL_THOUGHT, NULL},
      {"<|channel|>commentary to=functions.<|message|>", CHANNEL_THOUGHT, NULL},
      {"<|channel|>commentary to=functions<|message|>", CHANNEL_THOUGHT, NULL},
      {"<|channel|>commentary to=function_.now<|message|>", CHANNEL_THOUGHT, NULL},
      {"<|channel|>commentary to=browser.search <|constrain|>json<|message|>", CHANNEL_THOUGHT, NULL},
      {"<|channel|>final to=user<|message|>", CHANNEL_THOUGHT, NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int with_tools = 0; with_tools < 2; with_tools++) {
      Talk it;
      Buffer lines = {0};
      int n_text;
      const bool is_call = cases[i].state == CHANNEL_CALL;
      begin(&it, with_tools, 0, false);
      assert_false(take(&it, cases[i].header, &lines, &n_text));
      const ChannelState want = is_call && !with_tools ? CHANNEL_THOUGHT : cases[i].state;
      if (it.channels.state != want || n_text != 0)
        fail_msg("%s with%s tools is %d", cases[i].header, with_tools ? "" : "out", it.channels.state);
      if (is_call && with_tools) {
        const Buffer *name = &it.channels.function->name;
        assert_int_equal(name->size, strlen(cases[i].function));
        assert_memory_equal(name->data, cases[i].function, name->size);
      } else {
        /* Its text is passed on, and after <|end|> comes a header without anything of this one. */
        take(&it, "some text", &lines, &n_text);
        assert_int_equal(n_text, 9);
        take(&it, "<|end|>", &lines, &n_text);
        assert_true(n_text == 0 && it.channels.state == CHANNEL_HEADER && !it.channels.is_first);
        take(&it, "<|start|>assistant<|channel|>final<|message|>", &lines, &n_text);
        assert_true(n_text == 0 && it.channels.state == CHANNEL_TEXT);
      }
      assert_int_equal(lines.size, 0);
      buffer_release(&lines);
      end(&it);
    }
}

/* The call of a function, whose arguments end the answer where they are complete. */
TEST(calls_come_out_as_lines) {
  static const char *const cases[][3] = {
      {"now", "{}", "{\"name\": \"now\", \"arguments\": {}}\n"},
      {"now_utc", "{\"n\": 12}", "{\"name\": \"now_utc\", \"arguments\": {\"n\":12}}\n"},
      {"now_utc", "{ \"n\" :-1 }", "{\"name\": \"now_utc\", \"arguments\": {\"n\":-1}}\n"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int first = 0; first < 2; first++) {
      Talk it;
      Buffer lines = {0};
      int n_text;
      char header[200];
      begin(&it, true, 0, false);
      if (!first) take(&it, "<|channel|>analysis<|message|>{}<|end|><|start|>assistant", &lines, &n_text);
      snprintf(header, sizeof header, "<|channel|>commentary to=functions.%s <|constrain|>json<|message|>",
               cases[i][0]);
      assert_false(take(&it, header, &lines, &n_text));
      assert_int_equal(it.channels.state, CHANNEL_CALL);
      assert_true(take(&it, cases[i][1], &lines, &n_text));
      assert_int_equal(n_text, 0);
      assert_int_equal(lines.size, strlen(cases[i][2]));
      assert_memory_equal(lines.data, cases[i][2], lines.size);
      buffer_release(&lines);
      end(&it);
    }
}

/* True if the tokens of `text` may be the header: they are in the mask one after the other. */
static bool may_come(Talk *it, bool closing, const char *text, size_t *n_forced) {
  const PromptPiece piece = {text, strlen(text), true};
  IdList ids = {0};
  Error err = {{0}};
  Buffer lines = {0};
  bool may = true;
  TokenReply forced = {0};
  assert_int_equal(channels_next(&it->channels, closing, &err), STATUS_OK);
  channels_forced(&it->channels, &forced);
  *n_forced = (size_t)forced.n_forced;
  assert_int_equal(tokenizer_encode_pieces(tokenizer, &piece, 1, false, &ids, &err), STATUS_OK);
  for (size_t i = 0; i < ids.count && may; i++) {
    const uint64_t *mask;
    TokenReply reply = {0};
    bool taken, ended = false;
    channels_mask_header(&it->channels, &mask);
    may = !mask || (mask[ids.ids[i] / 64] >> ids.ids[i] % 64 & 1);
    if (may && i < *n_forced) assert_int_equal(ids.ids[i], forced.forced[i]);
    if (may)
      assert_int_equal(channels_take(&it->channels, ids.ids[i], &taken, &lines, &ended, &reply, &err), 0);
  }
  id_list_release(&ids);
  buffer_release(&lines);
  return may;
}

/* A thought comes first and at most once, calls only with tools, an answer only where no call is required; a
 * header that closes a thought begins with its end. The tokens that all of them begin with are forced. */
TEST(headers_are_those_that_may_come) {
  static const char *const headers[] = {
      "<|channel|>analysis<|message|>",
      "<|channel|>final<|message|>",
      "<|channel|>commentary to=functions.now <|constrain|>json<|message|>",
      "<|channel|>commentary to=functions.now_utc <|constrain|>json<|message|>",
      "<|channel|>commentary to=functions.n <|constrain|>json<|message|>",
      "<|channel|>commentary<|message|>"};
  static const char *const starts[] = {"", "<|start|>assistant", "<|end|><|start|>assistant"};
  for (int choice = 0; choice < 2; choice++)
    for (int no_thought = 0; no_thought < 2; no_thought++)
      for (int start = 0; start < 3; start++)
        for (int written = 0; written < 3; written++)
          for (size_t h = 0; h < sizeof headers / sizeof *headers; h++) {
            Talk it;
            char text[200];
            size_t n_forced;
            begin(&it, true, choice, no_thought);
            it.channels.is_first = start == 0;
            snprintf(text, sizeof text, "%s%s", starts[written], headers[h]);
            const bool is_there = h == 0   ? start == 0 && !no_thought
                                  : h == 1 ? choice == 0
                                           : h == 2 || h == 3;
            if (may_come(&it, start == 2, text, &n_forced) != (is_there && written == start))
              fail_msg("choice %d, no thought %d, start %d: %s", choice, no_thought, start, text);
            /* <|start|>assistant is ten tokens; with one kind of header, more of it are common. */
            const size_t before = start == 0 ? 0 : start == 1 ? 10 : 11;
            const bool calls_alone = choice == 1 && (start > 0 || no_thought);
            const size_t common = calls_alone ? strlen("commentary to=functions.now") + 1 : 1;
            assert_int_equal(n_forced, before + common);
            end(&it);
          }
}

/* Without tools and a form all headers are free; without a thought the answer's is the only one. */
TEST(a_free_answer_has_free_headers) {
  for (int no_thought = 0; no_thought < 2; no_thought++) {
    Talk it;
    Buffer lines = {0};
    int n_text;
    TokenReply reply = {0};
    begin(&it, false, 0, no_thought);
    const uint64_t *mask;
    channels_mask_header(&it.channels, &mask);
    assert_null(mask);
    channels_forced(&it.channels, &reply);
    assert_int_equal(reply.n_forced, no_thought ? 7 : 0); /* <|channel|>final<|message|> */
    take(&it, no_thought ? "<|channel|>final<|message|>" : "<|channel|>analysis<|message|>", &lines, &n_text);
    assert_int_equal(it.channels.state, no_thought ? CHANNEL_TEXT : CHANNEL_THOUGHT);
    assert_int_equal(it.channels.n_forced, 0);
    buffer_release(&lines);
    end(&it);
  }
}

static CMFixtureFunction before_all = open_chat, after_all = close_chat;
