/* test_map_answer.c - records on the tiny model: where arithmetic depends on the steps, no answer begins with
 * what the record before it has computed; what is counted; nothing of a record is left for the next. */
#include "commands/map/map_answer.h"
#include "test/tests.h"

static AssistantFlags flags;
static PromptFlags prompt;
static ReplyFlags reply;
static MapFlags map = {.input = "-"};
static ChooseFlags choose;
static const MapJob job = {&map, &choose, &prompt, &reply, &flags};
static Assistant assistant;
static Mapping mapping;
static Backend other; /* the CPU's, as one of another device */

static void begin(const char *text, bool another_device, bool seeded) {
  Error err = {{0}};
  flags = (AssistantFlags)ASSISTANT_DEFAULTS;
  flags.model.path = "test/data/stories260K-awq";
  flags.chat.raw = true;
  flags.answer = (AnswerFlags){.max_tokens = 3, .context = 200, .ignore_eos = true};
  flags.sampling.temperature = 1;
  flags.sampling.seed = (Seed){seeded, 5};
  flags.device.threads = 1;
  static const char *texts[1];
  texts[0] = text;
  prompt = (PromptFlags){.texts = {.items = texts, .count = text != NULL}};
  assistant = (Assistant){0};
  mapping = (Mapping){.job = &job, .assistant = &assistant, .format = RESULTS_LINES, .seed = 5};
  if (assistant_open(&flags, &assistant, &err)) fail_msg("%s", err.text);
  other = cpu_backend;
  if (another_device) assistant.device.backend = &other;
  if (prompt_pattern_parse(&mapping.pattern, text, &err) || assistant_start(&assistant, 0, &err) ||
      map_begin(&mapping, &err))
    fail_msg("%s", err.text);
}

static void end(void) {
  mapping_release(&mapping);
  assistant_release(&assistant);
}

typedef struct {
  const Record *record;
  Buffer *line;
  bool was_asked;
} Asked;

static Status next(void *user, bool may_wait, EngineRequest *request, bool *found, Error *err) {
  Asked *asked = user;
  *found = !asked->was_asked;
  asked->was_asked = true;
  return *found ? map_ask(&mapping, asked->record, request, err) : STATUS_OK;
}

static Status done(void *user, const EngineRequest *request, const EngineResult *result, Error *err) {
  const Asked *asked = user;
  bool complete;
  return map_reply(&mapping, asked->record, request, result, &complete, asked->line, err);
}

/* The result of a record, as a string. */
static const char *answer(size_t index, const char *text) {
  static char line[4000];
  const Record record = {.index = index, .line = index + 1, .text = text, .size = strlen(text)};
  Buffer out = {0};
  Error err = {{0}};
  Asked asked = {.record = &record, .line = &out};
  const EngineJob engine_job = {.next = next, .done = done, .user = &asked};
  if (assistant_run(&assistant, 1, &engine_job, &err) != STATUS_OK) fail_msg("%s", err.text);
  snprintf(line, sizeof line, "%.*s", (int)out.size, out.data);
  buffer_release(&out);
  return line;
}

/* How many tokens all prompts begin with: what one of "a" and one of "0" have in common. */
static size_t count_beginning(const char *a, const char *b) {
  IdList ids[2] = {{0}, {0}};
  size_t n = 0;
  assert_int_equal(assistant_encode_prompt(&assistant, a, strlen(a), &ids[0], NULL), STATUS_OK);
  assert_int_equal(assistant_encode_prompt(&assistant, b, strlen(b), &ids[1], NULL), STATUS_OK);
  while (n < ids[0].count && n < ids[1].count && ids[0].ids[n] == ids[1].ids[n]) n++;
  id_list_release(&ids[0]);
  id_list_release(&ids[1]);
  return n;
}

TEST(what_the_records_before_have_computed_is_not_used_on_another_device) {
  static const char *const records[] = {"Tim and Lily", "Tim and Lily", "Tim and the dog", "x",
                                        "Tim and Lily"};
  char first[1000];
  begin("One day, {} went to", true, true);
  size_t n_beginning = count_beginning("One day, a went to", "One day, 0 went to");
  assert_true(n_beginning > 2);
  assert_ptr_equal(mapping.base, &mapping.prefix);
  assert_int_equal(mapping.prefix.count, n_beginning);
  strcpy(first, answer(0, records[0]));
  for (size_t i = 1; i < 5; i++) {
    answer(i, records[i]);
    /* A record may begin otherwise than "a" does: never more, and here no less by more than a token. */
    assert_in_range(mapping.result.n_reused, n_beginning - 1, n_beginning);
  }
  assert_string_equal(answer(0, records[0]), first);
  int32_t others[20]; /* another text, as long: nothing of it stays */
  for (int i = 0; i < 20; i++) others[i] = 300 + i;
  assert_int_equal(session_sync(engine_session(assistant.engine), others, 20, NULL), STATUS_OK);
  assert_string_equal(answer(0, records[0]), first);
  end();
  begin("{} went", true, true); /* nothing but what stands before every text */
  assert_int_equal(mapping.prefix.count, count_beginning("a went", "0 went"));
  answer(0, "Tim");
  answer(1, "Tim");
  assert_true((size_t)mapping.result.n_reused <= mapping.prefix.count);
  end();
}

TEST(elsewhere_all_is_kept_that_two_records_begin_with) {
  for (int way = 0; way < 2; way++) { /* on the CPU; without a seed */
    begin("One day, {} went to", way == 1, way == 0);
    assert_null(mapping.base);
    answer(0, "Tim and Lily");
    answer(1, "Tim and Lily");
    assert_int_equal(mapping.result.n_reused, mapping.result.n_prompt - 1);
    end();
  }
}

TEST(all_answers_are_counted) {
  uint64_t n_prompt = 0, n_reused = 0;
  begin("One day, {} went to", false, true);
  for (size_t i = 0; i < 3; i++) {
    answer(i, i == 1 ? "the dog" : "Tim");
    assert_true(assistant.sampler.seed == 5 + i);
    n_prompt += (uint64_t)mapping.result.n_prompt;
    n_reused += (uint64_t)mapping.result.n_reused;
  }
  assert_int_equal(mapping.n_answered, 3);
  assert_int_equal(mapping.n_cut, 3);
  assert_true(mapping.n_prompt == n_prompt && mapping.n_reused == n_reused && mapping.n_generated == 9);
  assert_true(n_reused > 6);
  end();
}

/* Whatever an answer has left, the result of the next record is its own. */
TEST(nothing_of_an_answer_is_in_the_next) {
  static const ResultsFormat formats[] = {RESULTS_LINES, RESULTS_TEXTS, RESULTS_JSON};
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    char first[4000];
    Buffer *const left[] = {&mapping.text.text, &mapping.text.thinking, &mapping.text.calls};
    begin("One day, {} went to", false, true);
    mapping.format = formats[i];
    reply.ids = true;
    strcpy(first, answer(1, "Tim"));
    for (size_t k = 0; k < sizeof left / sizeof *left; k++)
      assert_int_equal(buffer_append_string(left[k], "{\"name\": \"left\"}\n", NULL), STATUS_OK);
    assert_int_equal(id_list_append(&mapping.text.ids, 4711, NULL), STATUS_OK);
    const char *again = answer(1, "Tim");
    assert_null(strstr(again, "left"));
    assert_null(strstr(again, "4711"));
    if (formats[i] != RESULTS_JSON) assert_string_equal(again, first); /* those have times */
    reply.ids = false;
    end();
  }
}

TEST(a_device_of_one_sequence_says_so) {
  Error err = {{0}};
  begin("One day, {} went to", true, true);
  engine_close(assistant.engine);
  assistant.engine = NULL;
  drafter_close(&assistant.guesser.drafter);
  device_release(&assistant.device); /* what follows loads the weights again */
  other.page_tokens = 0;
  assert_int_equal(assistant_start_many(&assistant, 8, &err), STATUS_USAGE);
  assert_string_equal(err.text, "--parallel 8: the device cpu answers one record at a time (--parallel 1)");
  assert_int_equal(assistant_start_many(&assistant, 0, &err), STATUS_OK); /* it chooses one */
  assert_true(engine_session(assistant.engine) && !engine_has_batch(assistant.engine));
  end();
}
