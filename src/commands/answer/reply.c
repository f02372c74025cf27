/* reply.c - see reply.h. Called by: run.c; in part by choose.c and map_answer.c.
 * Always true: only thoughts, answer and calls, as text or JSON, go to standard output or the file; notes and
 *              figures go to standard error. */
#include "commands/answer/reply.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/output.h"
#include "commands/common.h"
#include "commands/input_text.h"

const Flag reply_flags[] = {
    FLAG_FILE("-o, --output, --output-file", "FILE", ReplyFlags, path,
              "writes the answer to this file, which is overwritten, and not to standard output"),
    FLAG_SWITCH("--json", ReplyFlags, json,
                "one JSON object at the end: text, value (of an answer that is JSON), thinking, "
                "finish_reason, usage, timings, seed, model"),
    FLAG_SWITCH(
        "--jsonl-stream", ReplyFlags, jsonl,
        "a JSON object for each piece as it comes, {\"text\": ...} or {\"thinking\": ...}, and at the "
        "end the one of --json"),
    FLAG_SWITCH("--ids", ReplyFlags, ids, "adds the token ids of prompt and answer to the JSON object"),
    FLAG_INT("--logprobs, --n-probs", "N", ReplyFlags, logprobs, 1, MOST_BEST,
             "adds logprobs to the JSON object: the log-probability of each token and of the N likeliest in "
             "its place"),
    FLAG_SWITCH("-x, --extract", ReplyFlags, code,
                "writes only the first fenced code block, where the answer then ends; without one it is exit "
                "status 1"),
    FLAG_SWITCH("--no-stream", ReplyFlags, no_stream, "writes the answer when it is complete, all at once"),
    FLAG_SWITCH("--no-newline", ReplyFlags, exact,
                "to a pipe or a file, exactly the text of the answer: without the newline at its end that a "
                "text which lacks one gets else"),
    FLAG_SWITCH("-u, --usage", ReplyFlags, usage, "writes tokens and times to standard error"),
    FLAG_SWITCH(
        "--require-stop", ReplyFlags, require_stop,
        "exit status 4 if -n, the context or repetition cut the answer; with a form, a call or -x this "
        "is so without the flag where it is not complete"),
};

bool reply_shows_usage(const ReplyFlags *flags, const AssistantFlags *assistant) {
  return flags->usage || assistant->answer.verbose;
}

/* True if standard output and standard error are terminals: a person reads both. If standard output is a
 * pipe, figures and a turning sign (Spinner.turns) would garble the screen of its reader (a pager). */
static bool has_person(void) {
  return progress_is_terminal() && output_is_terminal();
}

static void print_figures(const Reply *reply, const AnswerResult *result) {
  const Assistant *a = reply->assistant;
  if (reply_shows_usage(reply->flags, a->flags)) {
    answer_print_usage(result);
  } else if (has_person()) {
    const bool dim = terminal_has_colours(STDERR_FILENO) && !a->flags->answer.plain;
    fprintf(stderr, "%s%s%s\n", dim ? style_begin(STYLE_DIM) : "", answer_figures(result, a).text,
            dim ? style_end(STYLE_DIM) : "");
  }
}

/* --- the JSON object */

static Status put_ids(JsonWriter w, const char *key, const IdList *ids) {
  TRY(json_put_raw(w, key, "["));
  for (size_t i = 0; i < ids->count; i++) TRY(json_put_int(w, NULL, ids->ids[i]));
  return json_end(w, "]");
}

static Status put_score(JsonWriter w, const Tokenizer *tokenizer, const TokenScore *score) {
  OWNED(buffer_release) Buffer bytes = {0};
  bool is_text;
  size_t size = 0;
  TRY(tokenizer_token_bytes(tokenizer, score->id, &bytes, &is_text, w.err));
  const char *content = is_text ? bytes.data : tokenizer_content(tokenizer, score->id, &size);
  TRY(json_put_raw(w, NULL, "{"));
  TRY(json_put_int(w, "id", score->id));
  TRY(json_put_text(w, "token", content, is_text ? bytes.size : size));
  return buffer_printf(w.out, w.err, ", \"logprob\": %.6f", score->log_p);
}

static Status put_scores(JsonWriter w, const Tokenizer *tokenizer, const ScoreList *list) {
  if (list->n_best == 0) return STATUS_OK;
  TRY(json_put_raw(w, "logprobs", "["));
  for (size_t i = 0; i < list->count; i += (size_t)list->n_best + 1) {
    TRY(put_score(w, tokenizer, &list->items[i]));
    TRY(json_put_raw(w, "top", "["));
    for (int k = 1; k <= list->n_best && list->items[i + (size_t)k].id >= 0; k++) {
      TRY(put_score(w, tokenizer, &list->items[i + (size_t)k]));
      TRY(json_end(w, "}"));
    }
    TRY(json_end(w, "]}"));
  }
  return json_end(w, "]");
}

Status answer_json(Buffer *out, const AnswerText *answer, const IdList *prompt, const AnswerResult *result,
                   const ReplyFlags *flags, const Assistant *a, Error *err) {
  const Buffer *text = answer->extracts ? &answer->code : &answer->text;
  const JsonWriter w = {out, err};
  TRY(json_put_text(w, "text", text->data, text->size));
  if (result->is_json) {
    TRY(json_put_key(w, "value"));
    TRY(form_compact(text->data, text->size, out, err));
  }
  if (answer->calls.size) {
    TRY(json_put_key(w, "tool_calls"));
    TRY(tools_write_calls(&answer->calls, out, err));
  }
  if (answer->thinking.size && !a->flags->chat.hide_thinking)
    TRY(json_put_text(w, "thinking", answer->thinking.data, answer->thinking.size));
  TRY(json_put_string(w, "finish_reason", finish_name(result->reason)));
  TRY(buffer_printf(out, err,
                    ", \"usage\": {\"prompt_tokens\": %d, \"reused_tokens\": %d, \"completion_tokens\": %d, "
                    "\"thinking_tokens\": %d",
                    result->n_prompt, result->n_reused, result->n_generated, result->n_thought));
  if (result->guesses.n_steps > 0)
    TRY(buffer_printf(out, err,
                      ", \"guessed_tokens\": %lld, \"accepted_tokens\": %lld, \"tokens_per_step\": %.3f",
                      result->guesses.n_guessed, result->guesses.n_accepted, answer_per_step(result)));
  if (result->n_forced) TRY(json_put_int(w, "forced_tokens", result->n_forced));
  TRY(buffer_printf(out, err,
                    "}, \"timings\": {\"prompt_ms\": %.3f, \"first_token_ms\": %.3f, \"decode_ms\": %.3f, "
                    "\"prompt_per_second\": %.2f, \"decode_per_second\": %.2f}",
                    result->prefill_ms, result->prefill_ms + result->first_token_ms, result->decode_ms,
                    answer_per_second(result->n_prompt - result->n_reused, result->prefill_ms),
                    answer_per_second(result->n_generated - 1, result->decode_ms)));
  TRY(json_put_size(w, "seed", answer->seed));
  TRY(json_put_string(w, "model", a->place.name));
  if (flags->ids) TRY(put_ids(w, "prompt_ids", prompt));
  if (flags->ids) TRY(put_ids(w, "ids", &answer->ids));
  return put_scores(w, a->tokenizer, &answer->scores);
}

/* --- the destination */

/* Creates or empties the file of -o; *file = -1: standard output. */
static Status open_output(const ReplyFlags *flags, int *file, Error *err) {
  *file = -1;
  if (!flags->path || strcmp(flags->path, "-") == 0) return STATUS_OK;
  *file = open(flags->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666);
  if (*file >= 0) return STATUS_OK;
  return system_error(flags->path, "write to it", err);
}

static Status close_output(const ReplyFlags *flags, int *file, Error *err) {
  int descriptor = *file;
  *file = -1;
  if (descriptor < 0 || close(descriptor) == 0) return STATUS_OK;
  return system_error(flags->path, "write to it", err);
}

Status reply_write(const ReplyFlags *flags, const Buffer *bytes, Error *err) {
  int file;
  TRY(open_output(flags, &file, err));
  if (file < 0) return output_write(bytes->data, bytes->size, err);
  Status status = output_write_to(file, flags->path, bytes->data, bytes->size, err);
  Status closed = close_output(flags, &file, status ? NULL : err);
  return status ? status : closed;
}

/* Writes text that show.c has prepared for the destination. */
static Status write_shown(void *user, const char *bytes, size_t size, Error *err) {
  const Reply *reply = user;
  return reply->file >= 0 ? descriptor_write(reply->file, reply->flags->path, bytes, size, err)
                          : output_write_shown(bytes, size, err);
}

static Status write_line(const Reply *reply, const Buffer *line, Error *err) {
  return reply->file >= 0 ? output_write_to(reply->file, reply->flags->path, line->data, line->size, err)
                          : output_write(line->data, line->size, err);
}

Status reply_check_output(const ReplyFlags *flags, const PromptFlags *prompt, const Assistant *a,
                          Error *err) {
  const WrittenFile output = written_file("-o", flags->path);
  TRY(prompt_check_output(prompt, &output, err));
  return assistant_check_output(a, &output, err);
}

Status reply_begin(const ReplyFlags *flags, const Assistant *a, Reply *reply, Error *err) {
  *reply = (Reply){.flags = flags,
                   .assistant = a,
                   .file = -1,
                   .answer = {.extracts = flags->code, .scores = {.n_best = flags->logprobs}}};
  TRY(open_output(flags, &reply->file, err));
  reply->show = show_to(a, reply->file >= 0 ? reply->file : STDOUT_FILENO);
  reply->show.source |= flags->code;
  reply->show.exact = flags->exact;
  reply->show.write = write_shown;
  reply->show.user = reply;
  show_begin(&reply->show);
  reply->spinner = (Spinner){.is_on = terminal_takes_escapes(STDERR_FILENO),
                             .turns = has_person(),
                             .dim = terminal_has_colours(STDERR_FILENO) && !a->flags->answer.plain,
                             .screen = STDERR_FILENO,
                             .interrupted = a->interrupted};
  spinner_begin(&reply->spinner);
  return STATUS_OK;
}

/* --- streaming */

static Status put_piece(Reply *reply, const char *key, const char *text, size_t size, Error *err) {
  OWNED(buffer_release) Buffer line = {0};
  TRY(line_append_member(key, text, size, &line, err));
  return write_line(reply, &line, err);
}

static Status take_text(void *user, TextKind kind, const char *text, size_t size, Error *err) {
  Reply *reply = user;
  const ReplyFlags *flags = reply->flags;
  const bool is_thought = kind == TEXT_THOUGHT,
             is_hidden = is_thought && reply->assistant->flags->chat.hide_thinking;
  if (flags->jsonl && kind != TEXT_CALL && !is_hidden) {
    spinner_end(&reply->spinner);
    return put_piece(reply, is_thought ? "thinking" : "text", text, size, err);
  }
  if (flags->json || flags->jsonl || flags->no_stream || (is_thought && flags->code)) return STATUS_OK;
  if (is_thought && !reply->show.thoughts)
    spinner_say(&reply->spinner, "thinking");
  else
    spinner_end(&reply->spinner);
  return show_text(&reply->show, kind, text, size, err);
}

static void show_progress(void *user, int done, int total) {
  Reply *reply = user;
  if (done < total) spinner_say(&reply->spinner, "prompt: %d of %d tokens", done, total);
}

AnswerSink reply_sink(Reply *reply) {
  return (AnswerSink){
      .answer = &reply->answer, .text = take_text, .prefilling = show_progress, .user = reply};
}

/* --- the end */

static Status put_object(Reply *reply, const IdList *prompt, const AnswerResult *result, Error *err) {
  OWNED(buffer_release) Buffer line = {0};
  TRY(buffer_append(&line, "{", 1, err));
  TRY(answer_json(&line, &reply->answer, prompt, result, reply->flags, reply->assistant, err));
  TRY(buffer_append(&line, "}\n", 2, err));
  return write_line(reply, &line, err);
}

static void report_cut(const Reply *reply, const AnswerResult *result) {
  if (result->reason == FINISH_CONTEXT)
    fprintf(stderr, "auk: the answer is cut: the context of %d tokens is full\n",
            reply->assistant->session_options.n_ctx);
  if (result->reason == FINISH_REPETITION)
    fprintf(stderr, "auk: the answer is cut: it repeats itself (give -n N to allow that)\n");
}

/* Reports what is incomplete at the end of the answer, as an error or a message. */
static Status check_complete(const Reply *reply, const AnswerResult *result, Error *err) {
  AnswerLack lack = answer_lack(result, reply->assistant);
  if (!*lack.text && result->in_block && result->reason != FINISH_INTERRUPTED)
    snprintf(lack.text, sizeof lack.text, "the end came within the code block (%s)",
             finish_name(result->reason));
  if (!*lack.text) return STATUS_OK;
  if (answer_is_incomplete(result, reply->assistant))
    return error_set(err, STATUS_CUT_SHORT, "%s", lack.text);
  fprintf(stderr, "auk: %s\n", lack.text);
  return STATUS_OK;
}

static Status finish(Reply *reply, const IdList *prompt, const AnswerResult *result, Error *err) {
  const ReplyFlags *flags = reply->flags;
  if (result->has_no_block && result->reason != FINISH_INTERRUPTED)
    return error_set(err, STATUS_FAILED, "the answer has no fenced code block (-x)");
  if (flags->json || flags->jsonl) return put_object(reply, prompt, result, err);
  reply->show.thoughts &= !flags->code;
  if (flags->no_stream) TRY(show_answer(&reply->show, &reply->answer, err));
  if (!reply->show.begun && !reply->show.terminal) return STATUS_OK; /* an empty answer is no line */
  return show_end(&reply->show, err);
}

Status reply_end(Reply *reply, const IdList *prompt, const AnswerResult *result, Error *err) {
  const ReplyFlags *flags = reply->flags;
  spinner_end(&reply->spinner);
  TRY(finish(reply, prompt, result, err));
  TRY(close_output(flags, &reply->file, err));
  report_cut(reply, result);
  const Status complete = check_complete(reply, result, err);
  print_figures(reply, result);
  if (result->reason == FINISH_INTERRUPTED) return STATUS_INTERRUPTED;
  if (complete == STATUS_OK && flags->require_stop && answer_was_cut(result))
    return error_set(err, STATUS_CUT_SHORT, "the answer was cut short by %s (--require-stop)",
                     result->reason == FINISH_LENGTH    ? "-n"
                     : result->reason == FINISH_CONTEXT ? "the context"
                                                        : "going in circles");
  return complete;
}

void reply_release(Reply *reply) {
  spinner_end(&reply->spinner);
  /* On a terminal the reason for which an answer failed in its middle stands on a line of its own. */
  if (reply->show.terminal && reply->show.begun && !reply->show.ends_line) show_end(&reply->show, NULL);
  if (reply->flags && reply->file >= 0) close(reply->file);
  show_release(&reply->show);
  answer_text_release(&reply->answer);
}
