/* test_reply.c - an answer in each form, whole and as it comes; the messages where something is missing; the
 * figures in the JSON object and in the line of -v. */
#include <unistd.h>

#include "commands/answer/filters/text_chain.h"
#include "commands/answer/reply.h"
#include "commands/flags.h"
#include "test/directory.h"
#include "test/standard_streams.h"
#include "test/tests.h"
#include "test/transcript.h"

/* 40 of the 100 tokens of the prompt were computed, in half a second: 80 a second. The first of 11 tokens
 * came after a quarter of a second, the other 10 took two seconds: 5 a second. */
static const AnswerResult result = {.reason = FINISH_EOS,
                                    .n_prompt = 100,
                                    .n_reused = 60,
                                    .n_generated = 11,
                                    .prefill_ms = 500,
                                    .first_token_ms = 250,
                                    .decode_ms = 2000};

TEST(the_object_counts_only_computed_tokens_in_its_speeds) {
  static const AssistantFlags assistant_flags = ASSISTANT_DEFAULTS;
  const Assistant assistant = {.flags = &assistant_flags, .place = {.name = (char *)"m"}};
  const AnswerText text = {.text = {.data = (char *)"a", .size = 1}};
  Buffer out = {0};
  assert_int_equal(answer_json(&out, &text, NULL, &result, &(ReplyFlags){0}, &assistant, NULL), STATUS_OK);
  assert_int_equal(buffer_append(&out, "", 1, NULL), STATUS_OK);
  assert_non_null(strstr(out.data, "\"prompt_tokens\": 100, \"reused_tokens\": 60, "));
  assert_non_null(strstr(out.data,
                         "\"prompt_ms\": 500.000, \"first_token_ms\": 750.000, \"decode_ms\": 2000.000, "
                         "\"prompt_per_second\": 80.00, \"decode_per_second\": 5.00}"));
  buffer_release(&out);
}

TEST(the_line_of_usage_counts_only_computed_tokens_in_its_speeds) {
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

TEST(an_answer_is_cut_by_a_limit_or_by_circles) {
  static const bool cut[] = {
      [FINISH_EOS] = false,    [FINISH_STOP] = false,        [FINISH_LENGTH] = true,
      [FINISH_CONTEXT] = true, [FINISH_INTERRUPTED] = false, [FINISH_REPETITION] = true};
  for (size_t reason = 0; reason < sizeof cut / sizeof *cut; reason++)
    assert_int_equal(answer_was_cut(&(AnswerResult){.reason = (FinishReason)reason}), cut[reason]);
}

/* --- every form: test/data/transcripts/replies/forms.txt
 *
 * A line has flags of reply.h, then words: `regex` or `must-call` (what the answer is bound to), `hide` or
 * `show` (thoughts), how it ended, and its pieces, t:THOUGHT and a:ANSWER, in which ~ is a blank. The lines
 * below it say what the file holds when the last piece has come, if that differs, and in the end, and what is
 * said then. */

typedef struct {
  ReplyFlags flags;
  bool hide, show, formed, must_call;
  char *pieces[8];
  int n_pieces;
  AnswerResult result;
} Form;

static void take_word(Form *form, char *word) {
  const struct {
    const char *name;
    bool *value;
  } switches[] = {{"hide", &form->hide},
                  {"show", &form->show},
                  {"regex", &form->formed},
                  {"must-call", &form->must_call},
                  {"in-thought", &form->result.in_thought},
                  {"in-form", &form->result.in_form},
                  {"in-call", &form->result.in_call}};
  for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
    if (strcmp(word, switches[i].name) == 0) *switches[i].value = true;
  for (int reason = FINISH_EOS; reason <= FINISH_REPETITION; reason++)
    if (strcmp(word, finish_name((FinishReason)reason)) == 0) form->result.reason = (FinishReason)reason;
  if (word[1] != ':') return;
  char *out = form->pieces[form->n_pieces++] = word;
  for (char *at = word; *at; at++) {
    const bool is_newline = strncmp(at, "\\n", 2) == 0;
    *out++ = is_newline ? '\n' : *at == '~' ? ' ' : *at;
    at += is_newline;
  }
  *out = 0;
}

static void read_form(char *line, Form *form) {
  static const FlagGroup group = FLAG_GROUP("Reply", reply_flags);
  static const Interface interface = {
      .usage = "", .about = "", .groups = &group, .n_groups = 1, .max_operands = 16};
  char *argv[24] = {(char *)"test"};
  const char *words[16];
  size_t n_words;
  int argc = 1;
  bool helped;
  Error err;
  *form = (Form){.n_pieces = 0};
  for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
  assert_int_equal(flags_parse(&interface, &form->flags, argc, argv, words, &n_words, &helped, &err),
                   STATUS_OK);
  for (size_t i = 0; i < n_words; i++) take_word(form, (char *)words[i]);
}

static char *content(const char *path) {
  static char text[2][2000];
  static int next;
  char *got = text[next++ % 2];
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  got[fread(got, 1, sizeof text[0] - 1, file)] = 0;
  fclose(file);
  return got;
}

static void write_text(FILE *out, const char *label, const char *text) {
  fprintf(out, "    %s <", label);
  for (; *text; text++) *text == '\n' ? fputs("\\n", out) : fputc(*text, out);
  fprintf(out, ">\n");
}

static void answer_in_form(const Form *form, const char *path, FILE *out) {
  const IdList prompt = {.ids = (int32_t[]){1, 2, 3}, .count = 3};
  ReplyFlags flags = form->flags;
  AssistantFlags assistant_flags = ASSISTANT_DEFAULTS;
  const Assistant assistant = {.flags = &assistant_flags,
                               .form = {.given = form->formed, .flag = "--regex"},
                               .tools = {.required = form->must_call},
                               .thinking = {.open = "<t>", .close = "</t>"},
                               .session_options = {.n_ctx = 30},
                               .place = {.name = (char *)"m"}};
  Reply reply;
  Error err = {{0}};
  flags.path = path;
  assistant_flags.chat.hide_thinking = form->hide;
  assistant_flags.chat.show_thinking = form->show;
  assert_int_equal(reply_begin(&flags, &assistant, &reply, &err), STATUS_OK);
  const AnswerSink sink = reply_sink(&reply);
  TextChain chain = {.sink = &sink};
  Buffer *code = &reply.answer.code;
  reply.answer.seed = 7;
  AnswerResult result_of_form = form->result;
  assert_int_equal(id_list_append(&reply.answer.ids, 40, NULL), STATUS_OK);
  for (int i = 0; i < form->n_pieces; i++) {
    const TextKind kind = *form->pieces[i] == 't' ? TEXT_THOUGHT : TEXT_ANSWER;
    Buffer text = {.data = form->pieces[i] + 2, .size = strlen(form->pieces[i] + 2)};
    assert_int_equal(text_chain_emit(&chain, kind, &text, NULL), STATUS_OK);
    assert_int_equal(chain.stopped, chain.block.state == BLOCK_AFTER);
  }
  const char *before = content(path);
  const size_t n_code = code->size;
  assert_int_equal(code_block_end(&chain.block, code, NULL), STATUS_OK);
  if (code->size > n_code)
    assert_int_equal(sink.text(sink.user, TEXT_ANSWER, code->data + n_code, code->size - n_code, NULL),
                     STATUS_OK);
  result_of_form.in_block = chain.block.state == BLOCK_INSIDE;
  result_of_form.has_no_block = flags.code && chain.block.state == BLOCK_BEFORE;
  tell_begin();
  const Status status = reply_end(&reply, &prompt, &result_of_form, &err);
  const char *said = note_end(), *file = content(path);
  if (strcmp(before, file) != 0) write_text(out, "before", before);
  write_text(out, "file", file);
  if (*said) write_text(out, "said", said);
  if (status) fprintf(out, "    status %d%s%s\n", status, *err.text ? " " : "", err.text);
  code_block_release(&chain.block);
  reply_release(&reply);
}

static void write_forms(const char *old, FILE *out) {
  const char *path = in_directory(own_directory, "answer");
  char line[TRANSCRIPT_LINE];
  while (transcript_next_line(&old, line)) {
    if (*line == ' ') continue;
    fprintf(out, "%s\n", line);
    if (!*line || *line == '#') continue;
    Form form;
    read_form(line, &form);
    answer_in_form(&form, path, out);
  }
}

TEST(each_form_is_written_as_it_comes_and_in_the_end) {
  check_transcript("test/data/transcripts/replies/forms.txt", write_forms);
}

static CMFixtureFunction before_all = make_own_directory, after_all = remove_own_directory;
