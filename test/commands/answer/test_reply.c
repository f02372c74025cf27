/* test_reply.c - an answer in each form, whole and as it comes; the messages where something is missing; the
 * figures in the JSON object and in the line of -v. */
#include <unistd.h>

#include "commands/answer/reply.h"
#include "test/directory.h"
#include "test/standard_streams.h"

/* 40 of the 100 tokens of the prompt were computed, in half a second: 80 a second. The first of 11 tokens
 * came after a quarter of a second, the other 10 took two seconds: 5 a second. */
static const AnswerResult result = {.reason = FINISH_EOS,
                                    .n_prompt = 100,
                                    .n_reused = 60,
                                    .n_generated = 11,
                                    .prefill_ms = 500,
                                    .first_token_ms = 250,
                                    .decode_ms = 2000};

static void the_object_counts_only_computed_tokens_in_its_speeds(void **state) {
  const Buffer a = {.data = (char *)"a", .size = 1}, none = {0};
  const AnswerText text = {.text = &a, .thinking = &none, .model = "m"};
  Buffer out = {0};
  assert_int_equal(answer_json(&out, &text, &result, NULL), STATUS_OK);
  assert_int_equal(buffer_append(&out, "", 1, NULL), STATUS_OK);
  assert_non_null(strstr(out.data, "\"prompt_tokens\": 100, \"reused_tokens\": 60, "));
  assert_non_null(strstr(out.data,
                         "\"prompt_ms\": 500.000, \"first_token_ms\": 750.000, \"decode_ms\": 2000.000, "
                         "\"prompt_per_second\": 80.00, \"decode_per_second\": 5.00}"));
  buffer_release(&out);
}

static void the_line_of_usage_counts_only_computed_tokens_in_its_speeds(void **state) {
  AnswerResult thought = result, none = {.reason = FINISH_LENGTH, .n_prompt = 3};
  thought.thought = true;
  thought.n_thought = 4;
  thought.n_reused = 0;
  const struct {
    const AnswerResult *result;
    const char *line;
  } cases[] = {
      {&result, "auk: prompt 100 tokens (60 known), 500.0 ms (80.0/s); "
                "answer 11 tokens, 2250.0 ms (5.0/s); end: eos\n"},
      {&thought, "auk: prompt 100 tokens, 500.0 ms (200.0/s); "
                 "answer 11 tokens (4 of thought), 2250.0 ms (5.0/s); end: eos\n"},
      {&none, "auk: prompt 3 tokens, 0.0 ms (0.0/s); answer 0 tokens, 0.0 ms (0.0/s); end: length\n"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tell_begin();
    answer_print_usage(cases[i].result);
    assert_string_equal(note_end(), cases[i].line);
  }
}

static void an_answer_is_cut_by_a_limit_or_by_circles(void **state) {
  static const bool cut[] = {
      [FINISH_EOS] = false,    [FINISH_STOP] = false,        [FINISH_LENGTH] = true,
      [FINISH_CONTEXT] = true, [FINISH_INTERRUPTED] = false, [FINISH_REPETITION] = true};
  for (size_t reason = 0; reason < sizeof cut / sizeof *cut; reason++)
    assert_int_equal(answer_was_cut(&(AnswerResult){.reason = (FinishReason)reason}), cut[reason]);
}

/* --- every form */

typedef struct {
  char kind; /* 't'hought or 'a'nswer; 0: no more */
  const char *text;
} Piece;

typedef struct {
  ReplyFlags flags;
  bool hide, show; /* thoughts */
  bool formed;     /* by --regex */
  bool must_call;
  Piece pieces[5];
  AnswerResult result;
  const char *before; /* in the file when the last piece has come */
  const char *file;   /* in the end */
  Status status;
  const char *error, *said; /* NULL: nothing */
} Form;

#define USAGE                                                                                                \
  ", \"usage\": {\"prompt_tokens\": 0, \"reused_tokens\": 0, \"completion_tokens\": 0, "                     \
  "\"thinking_tokens\": 0}, \"timings\": {\"prompt_ms\": 0.000, \"first_token_ms\": 0.000, "                 \
  "\"decode_ms\": 0.000, \"prompt_per_second\": 0.00, \"decode_per_second\": 0.00}, \"seed\": 7, "           \
  "\"model\": \"m\""
#define OBJECT(members, reason) "{" members ", \"finish_reason\": \"" reason "\"" USAGE "}\n"

#define TALK                                                                                                 \
  {                                                                                                          \
    {'t', "hm"}, {'t', " so"}, {'a', "Yes"}, {                                                               \
      'a', " no"                                                                                             \
    }                                                                                                        \
  }
#define CODE                                                                                                 \
  {                                                                                                          \
    {'t', "```\nt\n```\n"}, {'a', "Here:\n```c\nx"}, {                                                       \
      'a', "y\n``"                                                                                           \
    }                                                                                                        \
  }
#define NO_CODE                                                                                              \
  {                                                                                                          \
    {'t', "hm"}, {                                                                                           \
      'a', "no code"                                                                                         \
    }                                                                                                        \
  }
#define ENDS(reason_)                                                                                        \
  { .reason = reason_ }

static const Form forms[] = {
    {.pieces = TALK, .before = "Yes no", .file = "Yes no\n"},
    {.show = true,
     .pieces = TALK,
     .before = "<t>\nhm so\n</t>\n\nYes no",
     .file = "<t>\nhm so\n</t>\n\nYes no\n"},
    {.flags = {.no_stream = true}, .pieces = TALK, .before = "", .file = "Yes no\n"},
    {.flags = {.no_stream = true},
     .show = true,
     .pieces = TALK,
     .before = "",
     .file = "<t>\nhm so\n</t>\n\nYes no\n"},
    {.flags = {.json = true},
     .pieces = TALK,
     .before = "",
     .file = OBJECT("\"text\": \"Yes no\", \"thinking\": \"hm so\"", "eos")},
    {.flags = {.json = true},
     .hide = true,
     .pieces = TALK,
     .before = "",
     .file = OBJECT("\"text\": \"Yes no\"", "eos")},
    {.flags = {.json = true, .ids = true},
     .pieces = {{'a', "\"\n"}},
     .before = "",
     .file = "{\"text\": \"\\\"\\n\", \"finish_reason\": \"eos\"" USAGE
             ", \"prompt_ids\": [1, 2, 3], \"ids\": [40]}\n"},
    {.flags = {.json = true},
     .result = ENDS(FINISH_STOP),
     .before = "",
     .file = OBJECT("\"text\": \"\"", "stop")},
    {.flags = {.jsonl = true},
     .pieces = TALK,
     .before = "{\"thinking\": \"hm\"}\n{\"thinking\": \" so\"}\n{\"text\": \"Yes\"}\n{\"text\": \" no\"}\n",
     .file =
         "{\"thinking\": \"hm\"}\n{\"thinking\": \" so\"}\n{\"text\": \"Yes\"}\n{\"text\": \" no\"}\n" OBJECT(
             "\"text\": \"Yes no\", \"thinking\": \"hm so\"", "eos")},
    {.flags = {.jsonl = true},
     .hide = true,
     .pieces = TALK,
     .before = "{\"text\": \"Yes\"}\n{\"text\": \" no\"}\n",
     .file = "{\"text\": \"Yes\"}\n{\"text\": \" no\"}\n" OBJECT("\"text\": \"Yes no\"", "eos")},
    {.flags = {.exact = true}, .pieces = TALK, .before = "Yes no", .file = "Yes no"},
    {.flags = {.exact = true, .no_stream = true}, .pieces = TALK, .before = "", .file = "Yes no"},
    {.pieces = {{'a', "Yes\n"}}, .before = "Yes\n", .file = "Yes\n"},
    {.pieces = {{'a', "Yes"}},
     .result = ENDS(FINISH_INTERRUPTED),
     .before = "Yes",
     .file = "Yes\n",
     .status = STATUS_INTERRUPTED},
    {.flags = {.code = true}, .pieces = {{'a', "```\n```\n"}}, .before = "", .file = ""},
    /* -x: what could be a fence is held back until the end. */
    {.flags = {.code = true},
     .pieces = CODE,
     .before = "xy\n",
     .file = "xy\n``\n",
     .said = "auk: the end came within the code block (eos)\n"},
    {.flags = {.code = true, .no_stream = true},
     .pieces = CODE,
     .before = "",
     .file = "xy\n``\n",
     .said = "auk: the end came within the code block (eos)\n"},
    {.flags = {.code = true, .jsonl = true},
     .pieces = {{'a', "```\nx"}, {'a', "\n"}},
     .result = ENDS(FINISH_INTERRUPTED),
     .before = "{\"text\": \"x\"}\n{\"text\": \"\\n\"}\n",
     .file = "{\"text\": \"x\"}\n{\"text\": \"\\n\"}\n" OBJECT("\"text\": \"x\\n\"", "interrupted"),
     .status = STATUS_INTERRUPTED},
    {.flags = {.code = true, .json = true},
     .pieces = {{'t', "hm"}, {'a', "```\nx\n```\n"}},
     .before = "",
     .file = OBJECT("\"text\": \"x\\n\", \"thinking\": \"hm\"", "eos")},
    {.flags = {.code = true},
     .pieces = NO_CODE,
     .before = "",
     .file = "",
     .status = STATUS_FAILED,
     .error = "the answer has no fenced code block (-x)"},
    {.flags = {.code = true},
     .pieces = NO_CODE,
     .result = ENDS(FINISH_INTERRUPTED),
     .before = "",
     .file = "",
     .status = STATUS_INTERRUPTED},
    /* Where the answer is cut. */
    {.result = ENDS(FINISH_CONTEXT),
     .before = "",
     .file = "",
     .said = "auk: the answer is cut: the context of 30 tokens is full\n"},
    {.result = ENDS(FINISH_REPETITION),
     .before = "",
     .file = "",
     .said = "auk: the answer is cut: it repeats itself (give -n N to allow that)\n"},
    {.result = ENDS(FINISH_LENGTH), .before = "", .file = ""},
    {.result = {.reason = FINISH_LENGTH, .in_thought = true},
     .before = "",
     .file = "",
     .said = "auk: the end came within the thought (length), there is no answer\n"},
    {.result = {.reason = FINISH_INTERRUPTED, .in_thought = true},
     .before = "",
     .file = "",
     .status = STATUS_INTERRUPTED},
    /* A form that is cut is no success, whatever else is asked for. */
    {.flags = {.json = true},
     .formed = true,
     .result = {.reason = FINISH_LENGTH, .in_form = true},
     .before = "",
     .file = OBJECT("\"text\": \"\"", "length"),
     .status = STATUS_CUT_SHORT,
     .error = "the end came within the answer (length), which does not fit --regex"},
    {.flags = {.require_stop = true},
     .formed = true,
     .result = {.reason = FINISH_REPETITION, .in_form = true},
     .before = "",
     .file = "",
     .status = STATUS_CUT_SHORT,
     .error = "the end came within the answer (repetition), which does not fit --regex",
     .said = "auk: the answer is cut: it repeats itself (give -n N to allow that)\n"},
    {.formed = true,
     .result = {.reason = FINISH_CONTEXT, .in_thought = true},
     .before = "",
     .file = "",
     .status = STATUS_CUT_SHORT,
     .error = "the end came within the thought (context), there is no answer",
     .said = "auk: the answer is cut: the context of 30 tokens is full\n"},
    {.formed = true,
     .result = {.reason = FINISH_INTERRUPTED, .in_form = true},
     .before = "",
     .file = "",
     .status = STATUS_INTERRUPTED},
    {.formed = true, .result = ENDS(FINISH_LENGTH), .before = "", .file = ""}, /* it fits as it is */
    {.result = {.reason = FINISH_LENGTH, .in_call = true},
     .before = "",
     .file = "",
     .status = STATUS_CUT_SHORT,
     .error = "the end came within a call (length), which is left out"},
    {.must_call = true,
     .result = {.reason = FINISH_LENGTH, .in_thought = true},
     .before = "",
     .file = "",
     .status = STATUS_CUT_SHORT,
     .error = "the end came within the thought (length), there is no answer"},
    {.flags = {.code = true},
     .pieces = CODE,
     .result = ENDS(FINISH_LENGTH),
     .before = "xy\n",
     .file = "xy\n``\n",
     .status = STATUS_CUT_SHORT,
     .error = "the end came within the code block (length)"},
    {.flags = {.require_stop = true},
     .result = ENDS(FINISH_LENGTH),
     .before = "",
     .file = "",
     .status = STATUS_CUT_SHORT,
     .error = "the answer was cut short by -n (--require-stop)"},
    {.flags = {.require_stop = true},
     .result = ENDS(FINISH_CONTEXT),
     .before = "",
     .file = "",
     .status = STATUS_CUT_SHORT,
     .error = "the answer was cut short by the context (--require-stop)",
     .said = "auk: the answer is cut: the context of 30 tokens is full\n"},
    {.flags = {.require_stop = true},
     .result = ENDS(FINISH_REPETITION),
     .before = "",
     .file = "",
     .status = STATUS_CUT_SHORT,
     .error = "the answer was cut short by going in circles (--require-stop)",
     .said = "auk: the answer is cut: it repeats itself (give -n N to allow that)\n"},
    {.flags = {.require_stop = true}, .result = ENDS(FINISH_STOP), .before = "", .file = ""},
    {.flags = {.require_stop = true},
     .result = ENDS(FINISH_INTERRUPTED),
     .before = "",
     .file = "",
     .status = STATUS_INTERRUPTED},
    {.flags = {.usage = true},
     .before = "",
     .file = "",
     .said = "auk: prompt 0 tokens, 0.0 ms (0.0/s); answer 0 tokens, 0.0 ms (0.0/s); end: eos\n"},
};

static void assert_holds(size_t form, const char *path, const char *want) {
  char got[2000];
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  got[fread(got, 1, sizeof got - 1, file)] = 0;
  fclose(file);
  if (strcmp(got, want) != 0) fail_msg("form %zu: the file holds \"%s\", expected \"%s\"", form, got, want);
}

static void answer_in_form(size_t index, const Form *form, const char *path) {
  static const int32_t prompt[] = {1, 2, 3};
  ReplyFlags flags = form->flags;
  AssistantFlags assistant_flags = ASSISTANT_DEFAULTS;
  const Assistant assistant = {.flags = &assistant_flags,
                               .form = {.given = form->formed, .flag = "--regex"},
                               .tools = {.required = form->must_call},
                               .thinking = {.open = "<t>", .close = "</t>"},
                               .sampler = {.seed = 7},
                               .session_options = {.n_ctx = 30},
                               .place = {.name = (char *)"m"}};
  Reply reply;
  Error err = {{0}};
  flags.path = path;
  assistant_flags.chat.hide_thinking = form->hide;
  assistant_flags.chat.show_thinking = form->show;
  assert_int_equal(reply_begin(&flags, &assistant, &reply, &err), STATUS_OK);
  const AnswerSink sink = reply_sink(&reply);
  assert_int_equal(sink.ids != NULL, flags.ids);
  if (sink.ids) assert_int_equal(id_list_append(sink.ids, 40, NULL), STATUS_OK);
  for (const Piece *piece = form->pieces; piece->kind; piece++) {
    bool stop = false;
    assert_int_equal(sink.text(sink.user, piece->kind == 't' ? TEXT_THOUGHT : TEXT_ANSWER, piece->text,
                               strlen(piece->text), &stop, NULL),
                     STATUS_OK);
    assert_int_equal(stop, reply.block.state == BLOCK_AFTER);
  }
  assert_holds(index, path, form->before);
  tell_begin();
  Status status = reply_end(&reply, prompt, 3, &form->result, &err);
  const char *said = note_end();
  assert_int_equal(status, form->status);
  assert_string_equal(said, form->said ? form->said : "");
  assert_string_equal(err.text, form->error ? form->error : "");
  assert_holds(index, path, form->file);
  reply_release(&reply);
}

static void each_form_is_written_as_it_comes_and_in_the_end(void **state) {
  const char *path = in_directory(own_directory, "answer");
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) answer_in_form(i, &forms[i], path);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_object_counts_only_computed_tokens_in_its_speeds),
      cmocka_unit_test(the_line_of_usage_counts_only_computed_tokens_in_its_speeds),
      cmocka_unit_test(an_answer_is_cut_by_a_limit_or_by_circles),
      cmocka_unit_test(each_form_is_written_as_it_comes_and_in_the_end),
  };
  return cmocka_run_group_tests(tests, make_own_directory, remove_own_directory);
}
