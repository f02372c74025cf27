/* answer.c - assistant_answer(): generates tokens and splits them into thought and answer; see
 * assistant.h. Called by: run.c, map.c, map_answer.c, dialogue.c; reply.c and chat_commands.c for figures.
 * Text of an answer with a form (bound.h) goes straight to the sink.
 * Always true: other text passes through the stream (whole characters), the splitter (thought or
 *              answer), the stop strings (answers only) and the sink; each stage holds back only what the
 *              next token may change. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "commands/answer/assistant.h"
#include "commands/answer/repetition.h"
#include "commands/answer/stop.h"
#include "commands/answer/thinking.h"
#include "commands/form/bound.h"
#include "commands/form/calls.h"
#include "commands/form/channels.h"
#include "commands/keep/remote.h"

struct Answer {
  const Assistant *assistant;
  SamplerSettings sampler; /* of the request that answer_ask() makes */
  const AnswerSink *sink;
  AnswerResult *result;
  TokenizerStream *stream;
  ThinkingSplitter splitter;
  StopFilter stop;
  Buffer text, thought, answer, shown; /* text of one token, stage by stage */
  IdList closing;                      /* token ids that close a thought, encoded on first use */
  size_t n_closing;                    /* forced ids of a closing that are still to come */
  Bound bound;                         /* the form that the answer, or its calls, keep to */
  Calls calls;                         /* calls of functions, with --tools */
  Channels channels;                   /* for a model that writes messages with channels */
  int n_spaces;                        /* white-space tokens between a thought and an answer with a form */
  int budget;                          /* limit on tokens of thought; -1: none, or the thought is closed */
  bool stopped;                        /* the sink asked to stop */
  bool calls_ended;                    /* the last call ended the answer */
  Repetition repetition;
  bool loops; /* a repetition was found: stop */
};

static Status end_message(Answer *answer, Error *err);

/* --- thoughts */

/* Reports whether the prompt ends in an open thought: its text ends with the opening mark and white space. */
static Status ends_in_thought(const Assistant *a, const int32_t *ids, size_t n, bool *inside, Error *err) {
  *inside = false;
  if (!a->thinking.open) return STATUS_OK;
  size_t length = strlen(a->thinking.open),
         last = length + 8; /* a token has at least one byte; 8 for white space */
  if (last > n) last = n;
  Buffer text = {0};
  Status status = tokenizer_decode(a->tokenizer, ids + n - last, last, false, &text, err);
  while (text.size && strchr(" \t\r\n", text.data[text.size - 1])) text.size--;
  *inside = text.size >= length && memcmp(text.data + text.size - length, a->thinking.open, length) == 0;
  buffer_release(&text);
  return status;
}

/* Appends the ids of `before` and the closing mark as templates write it: on a line of its own, then an empty
 * line. */
static Status encode_closing(const Assistant *a, const char *before, const char *mark, IdList *ids,
                             Error *err) {
  const PromptPiece pieces[] = {
      {before, strlen(before), true}, {"\n", 1, true}, {mark, strlen(mark), true}, {"\n\n", 2, true}};
  return tokenizer_encode_pieces(a->tokenizer, pieces, sizeof pieces / sizeof *pieces, false, ids, err);
}

/* Encodes the closing mark. A tokenizer may insert a space at the beginning of a text; to avoid that, this
 * encodes "a" + mark and drops the ids of "a", if they are a proper prefix. */
static Status make_closing(Answer *answer, Error *err) {
  const Assistant *a = answer->assistant;
  IdList letter = {0}, whole = {0};
  Status status = tokenizer_encode(a->tokenizer, "a", 1, (EncodeOptions){0}, &letter, err);
  if (status == STATUS_OK) status = encode_closing(a, "a", a->thinking.close, &whole, err);
  size_t n = letter.count;
  bool apart = n < whole.count && (n == 0 || memcmp(letter.ids, whole.ids, n * sizeof *whole.ids) == 0);
  for (size_t i = n; apart && i < whole.count && status == STATUS_OK; i++)
    status = id_list_append(&answer->closing, whole.ids[i], err);
  if (!apart && status == STATUS_OK) status = encode_closing(a, "", a->thinking.close, &answer->closing, err);
  id_list_release(&letter);
  id_list_release(&whole);
  return status;
}

/* Closes a thought that has used up its budget: `forced` ids come next. */
static Status limit_thought(Answer *answer, const int32_t **forced, int *n_forced, Error *err) {
  const bool has_channels = channels_are_used(&answer->channels);
  if (has_channels ? answer->channels.state != CHANNEL_THOUGHT : answer->splitter.state != THINKING_INSIDE)
    return STATUS_OK;
  if (answer->budget < 0 || answer->result->n_thought < answer->budget) return STATUS_OK;
  answer->budget = -1;
  if (has_channels) {
    TRY(end_message(answer, err));
    TRY(channels_next(&answer->channels, true, err));
    channels_forced(&answer->channels, forced, n_forced);
    answer->n_closing = (size_t)*n_forced;
    return STATUS_OK;
  }
  TRY(make_closing(answer, err));
  answer->n_closing = answer->closing.count;
  *forced = answer->closing.ids;
  *n_forced = (int)answer->closing.count;
  return STATUS_OK;
}

/* --- text */

static Status pass_on(Answer *answer, TextKind kind, Buffer *text, Error *err) {
  Status status = STATUS_OK;
  if (text->size && !answer->stopped)
    status = answer->sink->text(answer->sink->user, kind, text->data, text->size, &answer->stopped, err);
  text->size = 0;
  return status;
}

/* Passes the text of a token through splitter and stop strings; at the end, also the held-back text. */
static Status take_text(Answer *answer, bool end, Error *err) {
  ThinkingSplitter *splitter = &answer->splitter;
  const bool has_channels = channels_are_used(&answer->channels);
  if (has_channels) {
    Buffer *to = answer->channels.state == CHANNEL_TEXT ? &answer->answer : &answer->thought;
    TRY(buffer_append(to, answer->text.data ? answer->text.data : "", answer->text.size, err));
  } else {
    TRY(thinking_push(splitter, answer->text.data, answer->text.size, &answer->thought, &answer->answer,
                      err));
    if (end) TRY(thinking_end(splitter, &answer->thought, &answer->answer, err));
  }
  if (answer->bound.form && !answer->calls.tools && !has_channels)
    answer->answer.size = 0; /* drops text that shares a token with the thought's closing mark */
  answer->text.size = 0;
  TRY(pass_on(answer, TEXT_THOUGHT, &answer->thought, err));
  TRY(stop_filter_push(&answer->stop, answer->answer.data, answer->answer.size, &answer->shown, err));
  if (end && !answer->stop.stopped) TRY(stop_filter_end(&answer->stop, &answer->shown, err));
  answer->answer.size = 0;
  return pass_on(answer, TEXT_ANSWER, &answer->shown, err);
}

/* Passes on the text of a message to its end. */
static Status end_message(Answer *answer, Error *err) {
  TRY(tokenizer_stream_end(answer->stream, &answer->text, err));
  return take_text(answer, false, err);
}

/* True if the token produces text: special tokens do not, except the marks of a thought. */
static bool has_text(const Assistant *a, int32_t id) {
  if (!tokenizer_is_special(a->tokenizer, id)) return true;
  return a->thinking.open && (id == tokenizer_find(a->tokenizer, a->thinking.open) ||
                              id == tokenizer_find(a->tokenizer, a->thinking.close));
}

/* True if a loop ends the answer: not with explicit limits on the answer or on its thought. */
static bool obeys_repetition(const Answer *answer) {
  const Assistant *a = answer->assistant;
  bool thought_will_close = answer->splitter.state == THINKING_INSIDE && answer->budget >= 0;
  return a->max_tokens < 0 && !a->flags->answer.ignore_eos && !thought_will_close;
}

/* --- answers with a form */

/* The token that opens a thought where the answer may begin with one, else -1. */
static int32_t opening(const Answer *answer) {
  const Assistant *a = answer->assistant;
  if (answer->splitter.state != THINKING_UNKNOWN || answer->bound.begun || a->think == THINK_NO) return -1;
  return tokenizer_find(a->tokenizer, a->thinking.open);
}

/* True if more white space may follow a thought, even if the answer's form does not allow white space. */
static bool may_be_spaced(const Answer *answer) {
  enum { MOST = 2 };
  return answer->splitter.state == THINKING_AFTER && !answer->bound.begun && answer->n_spaces < MOST;
}

static Status allow_in_channels(Answer *answer, const uint64_t **mask, Error *err) {
  Bound *bound = &answer->bound;
  *mask = NULL;
  switch (answer->channels.state) {
  case CHANNEL_HEADER: channels_mask_header(&answer->channels, bound, mask); break;
  case CHANNEL_THOUGHT: bound_mask_thought(bound, mask); break;
  case CHANNEL_TEXT: return answer->channels.tools ? STATUS_OK : bound_mask(bound, -1, false, mask, err);
  case CHANNEL_CALL: return bound_mask(bound, -1, false, mask, err);
  }
  return STATUS_OK;
}

static Status allow(void *user, const uint64_t **mask, Error *err) {
  Answer *answer = user;
  if (channels_are_used(&answer->channels)) return allow_in_channels(answer, mask, err);
  if (answer->splitter.state == THINKING_INSIDE) {
    *mask = NULL;
    if (!answer->calls.tools) bound_mask_thought(&answer->bound, mask);
    return STATUS_OK;
  }
  if (answer->calls.tools) return calls_mask(&answer->calls, &answer->bound, mask, err);
  return bound_mask(&answer->bound, opening(answer), may_be_spaced(answer), mask, err);
}

/* True if the token belongs to an answer with a form, not to a thought, its marks or white space after it. */
static bool is_bound(Answer *answer, int32_t id) {
  if (!answer->bound.form || answer->calls.tools || answer->splitter.state == THINKING_INSIDE ||
      answer->n_closing)
    return false;
  if (id == opening(answer)) return false;
  const bool space = may_be_spaced(answer) && bound_is_space(&answer->bound, id);
  answer->n_spaces += space;
  return !space;
}

static Status take_bound(Answer *answer, int32_t id, TokenReply *reply, Error *err) {
  answer->result->n_forced += answer->bound.n_forced > 0;
  TRY(bound_take(&answer->bound, id, &answer->answer, err));
  answer->splitter.state = THINKING_ANSWER;
  TRY(pass_on(answer, TEXT_ANSWER, &answer->answer, err));
  answer->loops =
      !answer->bound.ended && obeys_repetition(answer) && repetition_push(&answer->repetition, id);
  reply->stop = answer->bound.ended || answer->stopped || answer->loops;
  if (reply->stop) return STATUS_OK;
  return bound_forced(&answer->bound, answer->assistant->tokenizer, &reply->forced, &reply->n_forced, err);
}

/* --- calls of functions */

/* Passes on all text before a call. */
static Status end_text(Answer *answer, Error *err) {
  TRY(tokenizer_stream_end(answer->stream, &answer->text, err));
  return take_text(answer, true, err);
}

/* Takes a token if it belongs to a call (*is_call), else leaves it to the caller. */
static Status take_call(Answer *answer, int32_t id, bool *is_call, TokenReply *reply, Error *err) {
  Calls *calls = &answer->calls;
  bool ended = false;
  const bool was_text = calls->state == CALLS_NONE;
  *is_call = false;
  if (!calls->tools || answer->splitter.state == THINKING_INSIDE || answer->n_closing) return STATUS_OK;
  answer->result->n_forced += answer->bound.n_forced > 0 || calls->n_marks > 0;
  TRY(calls_take(calls, &answer->bound, answer->assistant->tokenizer, id, is_call, &answer->answer, &ended,
                 &reply->forced, &reply->n_forced, err));
  if (*is_call && was_text) {
    Buffer lines = answer->answer;
    answer->answer = (Buffer){0};
    Status status = end_text(answer, err);
    buffer_release(&answer->answer);
    answer->answer = lines;
    TRY(status);
  }
  answer->loops = !ended && obeys_repetition(answer) && repetition_push(&answer->repetition, id);
  reply->stop = ended || answer->stopped || answer->loops;
  answer->calls_ended = ended;
  return pass_on(answer, TEXT_CALL, &answer->answer, err);
}

/* --- messages with channels */

/* Takes a token of a call's arguments, which end the answer. */
static Status take_argument(Answer *answer, int32_t id, TokenReply *reply, Error *err) {
  Channels *c = &answer->channels;
  answer->result->n_forced += answer->bound.n_forced > 0;
  TRY(bound_take(&answer->bound, id, &c->arguments, err));
  answer->loops =
      !answer->bound.ended && obeys_repetition(answer) && repetition_push(&answer->repetition, id);
  answer->calls_ended = reply->stop = answer->bound.ended;
  reply->stop |= answer->loops;
  if (!answer->bound.ended)
    return reply->stop ? STATUS_OK
                       : bound_forced(&answer->bound, answer->assistant->tokenizer, &reply->forced,
                                      &reply->n_forced, err);
  TRY(channels_write_call(c, &answer->answer, err));
  return pass_on(answer, TEXT_CALL, &answer->answer, err);
}

/* Takes a token of a header. The text of the message begins after the header's last token. */
static Status take_header(Answer *answer, int32_t id, TokenReply *reply, Error *err) {
  Channels *c = &answer->channels;
  Error inner;
  TRY(bound_check(&answer->bound, channels_take_header(c, id, answer->bound.form, &inner), &inner, err));
  if (c->state == CHANNEL_CALL) return bound_restart(&answer->bound, err);
  if (c->state == CHANNEL_THOUGHT) answer->result->thought = true;
  if (c->state == CHANNEL_THOUGHT) answer->splitter.state = THINKING_INSIDE;
  if (c->state == CHANNEL_TEXT) answer->splitter.state = THINKING_ANSWER;
  if (answer->n_closing > 0) answer->n_closing--;
  if (answer->n_closing == 0 && c->state == CHANNEL_HEADER) {
    channels_forced(c, &reply->forced, &reply->n_forced);
    answer->n_closing = (size_t)reply->n_forced;
  }
  return limit_thought(answer, &reply->forced, &reply->n_forced, err);
}

static Status take_in_channel(Answer *answer, int32_t id, TokenReply *reply, Error *err) {
  Channels *c = &answer->channels;
  const bool is_text = c->state == CHANNEL_TEXT;
  if (c->state == CHANNEL_HEADER) return take_header(answer, id, reply, err);
  if (c->state == CHANNEL_CALL) return take_argument(answer, id, reply, err);
  if (is_text && answer->bound.form && !c->tools) return take_bound(answer, id, reply, err);
  if (id == c->end) {
    TRY(end_message(answer, err));
    TRY(channels_next(c, false, err));
    channels_forced(c, &reply->forced, &reply->n_forced);
    answer->n_closing = (size_t)reply->n_forced;
    return STATUS_OK;
  }
  answer->result->n_thought += !is_text;
  if (!tokenizer_is_special(answer->assistant->tokenizer, id))
    TRY(tokenizer_stream_push(answer->stream, id, &answer->text, err));
  TRY(take_text(answer, false, err));
  answer->loops = obeys_repetition(answer) && repetition_push(&answer->repetition, id);
  reply->stop = answer->stop.stopped || answer->stopped || answer->loops;
  return reply->stop ? STATUS_OK : limit_thought(answer, &reply->forced, &reply->n_forced, err);
}

/* --- tokens */

static Status take_token(void *user, int32_t id, TokenReply *reply, Error *err) {
  Answer *answer = user;
  if (answer->sink->ids) TRY(id_list_append(answer->sink->ids, id, err));
  if (answer->sink->scores) answer->sink->scores->count += (size_t)answer->sink->scores->n_best + 1;
  bool is_call;
  if (channels_are_used(&answer->channels)) return take_in_channel(answer, id, reply, err);
  TRY(take_call(answer, id, &is_call, reply, err));
  if (is_call) return STATUS_OK;
  if (is_bound(answer, id)) return take_bound(answer, id, reply, err);
  bool inside = answer->splitter.state == THINKING_INSIDE;
  if (has_text(answer->assistant, id)) TRY(tokenizer_stream_push(answer->stream, id, &answer->text, err));
  TRY(take_text(answer, false, err));
  if (answer->n_closing) {
    answer->n_closing--;
  } else if (inside && answer->splitter.state == THINKING_INSIDE) {
    answer->result->n_thought++;
  }
  if (answer->splitter.state == THINKING_INSIDE) answer->result->thought = true;
  answer->loops = obeys_repetition(answer) && repetition_push(&answer->repetition, id);
  reply->stop = answer->stop.stopped || answer->stopped || answer->loops;
  return reply->stop ? STATUS_OK : limit_thought(answer, &reply->forced, &reply->n_forced, err);
}

static Status finish_text(Answer *answer, Error *err) {
  if (answer->stop.stopped || answer->stopped) return STATUS_OK;
  const bool in_call = channels_are_used(&answer->channels) ? answer->channels.state == CHANNEL_CALL
                                                            : calls_is_inside(&answer->calls);
  answer->result->in_call = in_call && !answer->calls_ended;
  if (answer->calls.state != CALLS_NONE) return STATUS_OK;
  /* The splitter's state is still INSIDE if a call's channel directly follows a thought's. */
  answer->result->in_thought = answer->splitter.state == THINKING_INSIDE && !in_call && !answer->calls_ended;
  TRY(tokenizer_stream_end(answer->stream, &answer->text, err));
  return take_text(answer, true, err);
}

/* --- the answer */

static bool prefilling(void *user, int done, int total) {
  const Answer *answer = user;
  if (answer->sink->prefilling) answer->sink->prefilling(answer->sink->user, done, total);
  return !*answer->assistant->interrupted;
}

static Status begin(Answer *answer, AnswerForm *form, const int32_t *ids, size_t n, Error *err) {
  const Assistant *a = answer->assistant;
  bool inside;
  TRY(channels_begin(&answer->channels, a->chat, a->tokenizer, &a->tools, form, a->think == THINK_NO, err));
  const bool splits = !form->has_tokens && !channels_are_used(&answer->channels);
  TRY(ends_in_thought(a, ids, n, &inside, err));
  inside = inside && splits;
  thinking_begin(&answer->splitter, splits ? a->thinking.open : NULL, a->thinking.close, inside);
  answer->budget = a->think == THINK_NO && !a->thinking.can_switch ? 0 : a->think_budget;
  answer->result->thought = inside;
  answer->stop.strings = a->flags->answer.stops.items;
  answer->stop.n_strings = a->flags->answer.stops.count;
  answer->calls.tools = a->tools.given && !channels_are_used(&answer->channels) ? &a->tools : NULL;
  TRY(bound_begin(&answer->bound, form, &a->ends, err));
  return tokenizer_stream_open(a->tokenizer, false, &answer->stream, err);
}

static Status prefill(Answer *answer, const int32_t *ids, int n, Error *err) {
  const Assistant *a = answer->assistant;
  double start = clock_ms();
  cache_restore(a->cache, a->session, ids, n);
  answer->result->n_reused = session_common(a->session, ids, n);
  TRY(session_set_sampler(a->session, &a->sampler, err));
  Status status = session_sync(a->session, ids, n, prefilling, answer, err);
  if (status == STATUS_OK) cache_prefilled(a->cache, n);
  answer->result->prefill_ms = clock_ms() - start;
  return status;
}

/* Writes a token's scores past the list's end. take_token() counts them in; it never gets an end token. */
static Status score(void *user, const TokenScore *scores, Error *err) {
  const Answer *answer = user;
  ScoreList *list = answer->sink->scores;
  const size_t n = (size_t)list->n_best + 1;
  TRY(mem_grow(&list->items, &list->capacity, list->count + n, sizeof *list->items, "scores", err));
  memcpy(list->items + list->count, scores, n * sizeof *scores);
  return STATUS_OK;
}

static Status choose_options(Answer *answer, GenerateOptions *options, Error *err) {
  const Assistant *a = answer->assistant;
  *options = (GenerateOptions){
      .max_tokens = a->max_tokens,
      .eos = a->ends.ids,
      .n_eos = (int)a->ends.count,
      .ignore_eos = a->flags->answer.ignore_eos,
      .allow = answer->bound.form ? allow : NULL,
      .score = answer->sink->scores ? score : NULL,
      .n_best = answer->sink->scores ? answer->sink->scores->n_best : 0,
      .may_force = answer->bound.form || answer->budget >= 0,
      .interrupted = a->interrupted,
  };
  if (channels_are_used(&answer->channels)) {
    channels_forced(&answer->channels, &options->forced, &options->n_forced);
    answer->n_closing = (size_t)options->n_forced;
  }
  return limit_thought(answer, &options->forced, &options->n_forced, err);
}

static bool is_cut_in_form(Answer *answer) {
  return answer->bound.form && !answer->bound.form->is_calls && !answer->bound.ended &&
         answer_was_cut(answer->result) && answer->splitter.state != THINKING_INSIDE &&
         !constraint_may_end(&answer->bound.form->constraint);
}

static void set_result(Answer *answer, const GenerateResult *generated) {
  answer->result->reason = answer->loops ? FINISH_REPETITION
                           : answer->bound.ended && (!answer->assistant->tools.given || answer->calls_ended)
                               ? FINISH_EOS
                               : generated->reason;
  answer->result->is_json =
      answer->bound.form && answer->bound.form->is_json && answer->result->reason == FINISH_EOS;
  answer->result->in_form = is_cut_in_form(answer);
  answer->result->n_generated = generated->n_generated;
  if (answer->assistant->flags->guess.most != 0) /* the process that keeps the model may guess nevertheless */
    answer->result->guesses = generated->guesses;
  answer->result->first_token_ms = generated->first_token_ms;
  answer->result->decode_ms = generated->decode_ms;
}

static Status generate_answer(Answer *answer, Error *err) {
  const Assistant *a = answer->assistant;
  GenerateOptions options;
  TRY(choose_options(answer, &options, err));
  GenerateResult generated = {0};
  session_watch(a->session, prefilling, answer);
  Status status = generate(a->session, &options, take_token, answer, &generated, err);
  session_watch(a->session, NULL, NULL);
  set_result(answer, &generated);
  return status ? status : finish_text(answer, err);
}

static void release(Answer *answer) {
  tokenizer_stream_close(answer->stream);
  thinking_release(&answer->splitter);
  stop_filter_release(&answer->stop);
  bound_release(&answer->bound);
  calls_release(&answer->calls);
  channels_release(&answer->channels);
  buffer_release(&answer->text);
  buffer_release(&answer->thought);
  buffer_release(&answer->answer);
  buffer_release(&answer->shown);
  id_list_release(&answer->closing);
}

static Status answer_by_request(Assistant *a, const int32_t *ids, size_t n, const AnswerSink *sink,
                                AnswerResult *result, Error *err);

Status assistant_answer(Assistant *a, const int32_t *ids, size_t n, const AnswerSink *sink,
                        AnswerResult *result, Error *err) {
  TRY(assistant_renew(a, n, err));
  if (!a->session) return answer_by_request(a, ids, n, sink, result, err);
  *result = (AnswerResult){.reason = FINISH_INTERRUPTED, .n_prompt = (int)n};
  TRY(assistant_check_prompt(a, n, session_context(a->session), err));
  Answer answer = {.assistant = a, .sink = sink, .result = result};
  Status status = begin(&answer, &a->form, ids, n, err);
  if (status == STATUS_OK) status = prefill(&answer, ids, (int)n, err);
  if (status == STATUS_OK) status = generate_answer(&answer, err);
  release(&answer);
  return status == STATUS_INTERRUPTED ? STATUS_OK : status;
}

/* --- an answer among others */

Status answer_ask(const Assistant *a, AnswerForm *form, const int32_t *ids, size_t n, const AnswerSink *sink,
                  AnswerResult *result, Answer **out, BatchRequest *request, Error *err) {
  *out = NULL;
  *result = (AnswerResult){.reason = FINISH_INTERRUPTED, .n_prompt = (int)n};
  TRY(assistant_check_prompt(a, n, assistant_n_ctx(a), err));
  Answer *answer = mem_alloc(1, sizeof *answer, "an answer", err);
  if (!answer) return STATUS_FAILED;
  *answer = (Answer){.assistant = a, .sampler = a->sampler, .sink = sink, .result = result};
  *request = (BatchRequest){.ids = ids,
                            .n_ids = (int)n,
                            .sampler = &answer->sampler,
                            .sink = take_token,
                            .n_ctx = assistant_n_ctx(a),
                            .user = answer};
  Status status = begin(answer, form, ids, n, err);
  if (status == STATUS_OK) status = choose_options(answer, &request->generate, err);
  if (status == STATUS_OK)
    *out = answer;
  else
    answer_free(answer);
  return status;
}

Status answer_end(Answer *answer, const BatchResult *done, Error *err) {
  if (done->status) return error_set(err, done->status, "%s", done->error.text);
  set_result(answer, &done->generated);
  answer->result->n_reused = done->n_reused;
  answer->result->prefill_ms = done->prefill_ms;
  return finish_text(answer, err);
}

void answer_free(Answer *answer) {
  if (!answer) return;
  release(answer);
  free(answer);
}

/* --- an answer of the batch alone, or of another process */

typedef struct {
  const BatchRequest *request; /* NULL: the batch has it already */
  Answer *answer;
  Status status; /* of answer_end(), as `error` is */
  Error error;
} Alone;

static Status next_alone(void *user, bool may_wait, BatchRequest *request, bool *found, Error *err) {
  Alone *alone = user;
  (void)may_wait, (void)err;
  *found = alone->request != NULL;
  if (*found) *request = *alone->request;
  alone->request = NULL;
  return STATUS_OK;
}

static Status done_alone(void *user, const BatchRequest *request, const BatchResult *result, Error *err) {
  Alone *alone = user;
  BatchResult done = *result;
  (void)request, (void)err;
  if (done.status == STATUS_INTERRUPTED) { /* the mask's search noticed the interruption first */
    done.status = STATUS_OK;
    done.generated.reason = FINISH_INTERRUPTED;
  }
  alone->status = answer_end(alone->answer, &done, &alone->error);
  return STATUS_OK;
}

static void progress_alone(void *user, const BatchRequest *request, const BatchResult *result, int done,
                           int total) {
  Alone *alone = user;
  (void)request, (void)result;
  prefilling(alone->answer, done, total);
}

/* Interruptions are watched by the request (GenerateOptions.interrupted), not by the job, so that the answer
 * still gets its last text and result. */
static Status answer_by_request(Assistant *a, const int32_t *ids, size_t n, const AnswerSink *sink,
                                AnswerResult *result, Error *err) {
  BatchRequest request;
  Alone alone = {.request = &request};
  const BatchJob job = {.next = next_alone, .done = done_alone, .user = &alone, .progress = progress_alone};
  Status status = answer_ask(a, &a->form, ids, n, sink, result, &alone.answer, &request, err);
  if (status == STATUS_OK) {
    status = assistant_run_alone(a, 1, &job, err);
    if (status == STATUS_OK && alone.status) status = error_set(err, alone.status, "%s", alone.error.text);
  }
  answer_free(alone.answer);
  a->n_held = (int)n + result->n_generated;
  return status == STATUS_INTERRUPTED ? STATUS_OK : status;
}

/* --- statistics */

double answer_per_second(long long n, double ms) {
  return n > 0 && ms > 0 ? (double)n * 1e3 / ms : 0;
}

double answer_per_step(const AnswerResult *result) {
  const GuessCounts *g = &result->guesses;
  return g->n_steps > 0 ? (double)(g->n_steps + g->n_accepted) / (double)g->n_steps : 0;
}

bool answer_was_cut(const AnswerResult *result) {
  return result->reason == FINISH_LENGTH || result->reason == FINISH_CONTEXT ||
         result->reason == FINISH_REPETITION;
}

AnswerLack answer_lack(const AnswerResult *result, const Assistant *a) {
  AnswerLack lack = {{0}};
  const char *reason = finish_name(result->reason);
  if (result->reason == FINISH_INTERRUPTED) return lack;
  if (result->in_thought)
    snprintf(lack.text, sizeof lack.text, "the end came within the thought (%s), there is no answer", reason);
  else if (result->in_call)
    snprintf(lack.text, sizeof lack.text, "the end came within a call (%s), which is left out", reason);
  else if (result->in_form)
    snprintf(lack.text, sizeof lack.text, "the end came within the answer (%s), which does not fit %s",
             reason, a->form.flag);
  return lack;
}

bool answer_is_incomplete(const AnswerResult *result, const Assistant *a, bool code, bool in_block) {
  const bool is_text =
      (!a->form.given || a->form.is_calls) && !a->tools.required && !code && !result->in_call;
  return answer_was_cut(result) && !is_text && (in_block || *answer_lack(result, a).text);
}

AnswerFigures answer_figures(const AnswerResult *result, const Assistant *a) {
  AnswerFigures figures;
  snprintf(figures.text, sizeof figures.text, "[%d tokens, %.1f/s; context %d of %d]", result->n_generated,
           answer_per_second(result->n_generated - 1, result->decode_ms), assistant_n_held(a),
           assistant_n_ctx(a));
  return figures;
}

void answer_print_usage(const AnswerResult *result) {
  int n_new = result->n_prompt - result->n_reused, n = result->n_generated;
  char reused[48] = "", thought[48] = "";
  if (result->n_reused) snprintf(reused, sizeof reused, " (%d known)", result->n_reused);
  const GuessCounts *g = &result->guesses;
  char guessed[96] = "";
  if (g->n_guessed)
    snprintf(guessed, sizeof guessed, "; %lld tokens guessed, %lld right, %.2f a step", g->n_guessed,
             g->n_accepted, answer_per_step(result));
  if (result->thought) snprintf(thought, sizeof thought, " (%d of thought)", result->n_thought);
  fprintf(stderr,
          "auk: prompt %d tokens%s, %.1f ms (%.1f/s); answer %d tokens%s, %.1f ms (%.1f/s)%s; end: %s\n",
          result->n_prompt, reused, result->prefill_ms, answer_per_second(n_new, result->prefill_ms), n,
          thought, result->first_token_ms + result->decode_ms, answer_per_second(n - 1, result->decode_ms),
          guessed, finish_name(result->reason));
}
