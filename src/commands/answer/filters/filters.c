/* filters.c - see filters.h.   Called by: answer.c. */
#include "commands/answer/filters/filters.h"

#include <string.h>

#include "commands/answer/filters/thoughts.h"

static bool in_thought(const Filters *f) {
  return f->channels.state ? f->channels.in_thought : f->text.splitter.state == THINKING_INSIDE;
}

/* --- where the parts of an answer begin and end */

/* The token that opens a thought, if the answer has not begun and may begin with a thought; else -1. */
static int32_t opening(const Filters *f) {
  const Assistant *a = f->assistant;
  if (f->text.splitter.state != THINKING_UNKNOWN || f->bound.begun || a->think == THINK_NO) return -1;
  return tokenizer_find(a->tokenizer, a->thinking.open);
}

/* True if more white space may follow a thought, even if the answer's form does not allow white space. */
static bool may_be_spaced(const Filters *f) {
  enum { MOST = 2 };
  return f->text.splitter.state == THINKING_AFTER && !f->bound.begun && f->n_spaces < MOST;
}

/* True if the token belongs to an answer with a form, not to a thought, its marks or white space after it. */
static bool is_bound(Filters *f, int32_t id) {
  if (!f->bound.form || f->bound.form->is_calls || in_thought(f) || f->n_closing || id == opening(f))
    return false;
  const bool space = may_be_spaced(f) && bound_is_space(&f->bound, id);
  f->n_spaces += space;
  return !space;
}

/* True if the token produces text: special tokens do not, except the marks of a thought. */
static bool has_text(const Assistant *a, int32_t id) {
  if (!tokenizer_is_special(a->tokenizer, id)) return true;
  return a->thinking.open && (id == tokenizer_find(a->tokenizer, a->thinking.open) ||
                              id == tokenizer_find(a->tokenizer, a->thinking.close));
}

/* --- the filters */

typedef Status (*TakeToken)(Filters *f, int32_t id, bool *taken, TokenReply *reply, Error *err);

static Status take_in_channels(Filters *f, int32_t id, bool *taken, TokenReply *reply, Error *err) {
  Channels *c = &f->channels;
  if (c->state == CHANNEL_NONE) return STATUS_OK;
  if (id == c->end && (c->state == CHANNEL_THOUGHT || c->state == CHANNEL_TEXT))
    TRY(text_chain_end_message(&f->text, err));
  TRY(channels_take(c, id, taken, &f->whole, &f->ended, reply, err));
  f->text.is_thought = c->in_thought;
  return text_chain_emit(&f->text, TEXT_CALL, &f->whole, err);
}

static Status take_in_calls(Filters *f, int32_t id, bool *taken, TokenReply *reply, Error *err) {
  if (!f->calls.tools || in_thought(f) || f->n_closing) return STATUS_OK;
  const bool was_text = f->calls.state == CALLS_NONE;
  TRY(calls_take(&f->calls, id, taken, &f->whole, &f->ended, reply, err));
  if (*taken && was_text) TRY(text_chain_end(&f->text, err));
  return text_chain_emit(&f->text, TEXT_CALL, &f->whole, err);
}

static Status take_in_form(Filters *f, int32_t id, bool *taken, TokenReply *reply, Error *err) {
  *taken = is_bound(f, id);
  if (!*taken) return STATUS_OK;
  TRY(bound_take(&f->bound, id, &f->whole, err));
  f->ended = f->bound.ended;
  f->text.splitter.state = THINKING_ANSWER;
  TRY(text_chain_emit(&f->text, TEXT_ANSWER, &f->whole, err));
  return bound_forced(&f->bound, reply, err);
}

static Status take_as_text(Filters *f, int32_t id, bool *taken, TokenReply *reply, Error *err) {
  const bool inside = in_thought(f);
  (void)reply;
  *taken = true;
  if (has_text(f->assistant, id)) TRY(text_chain_take(&f->text, id, err));
  if (f->n_closing)
    f->n_closing--;
  else if (inside && in_thought(f))
    f->result->n_thought++;
  return STATUS_OK;
}

/* The last filter takes every token that it is offered. */
static const TakeToken filters[] = {take_in_channels, take_in_calls, take_in_form, take_as_text};

/* Closes a thought that has used up its budget: forced ids come next. */
static Status limit_thought(Filters *f, TokenReply *reply, Error *err) {
  if (!in_thought(f) || f->channels.state == CHANNEL_HEADER || f->budget < 0 ||
      f->result->n_thought < f->budget)
    return STATUS_OK;
  f->budget = -1;
  if (f->channels.state) {
    TRY(text_chain_end_message(&f->text, err));
    TRY(channels_next(&f->channels, true, err));
    channels_forced(&f->channels, reply);
    return STATUS_OK;
  }
  TRY(thoughts_close(f->assistant, &f->closing, err));
  f->n_closing = f->closing.count;
  reply->forced = f->closing.ids;
  reply->n_forced = (int)f->closing.count;
  return STATUS_OK;
}

/* True if a loop ends the answer: not with -n, --ignore-eos, or a thought that its budget will end. */
static bool obeys_repetition(const Filters *f) {
  const Assistant *a = f->assistant;
  const bool thought_will_close = in_thought(f) && f->budget >= 0;
  return a->max_tokens < 0 && !a->flags->answer.ignore_eos && !thought_will_close;
}

/* Adds the token to the lists of the sink; score() has written its scores. */
static Status list(Filters *f, int32_t id, Error *err) {
  const AnswerSink *sink = f->text.sink;
  if (sink->scores) sink->scores->count += (size_t)sink->scores->n_best + 1;
  return sink->ids ? id_list_append(sink->ids, id, err) : STATUS_OK;
}

Status filters_take(void *user, int32_t id, TokenReply *reply, Error *err) {
  Filters *f = user;
  bool taken = false;
  TRY(list(f, id, err));
  f->result->n_forced += f->bound.n_forced > 0 || f->calls.n_marks > 0;
  for (size_t i = 0; !taken; i++) TRY(filters[i](f, id, &taken, reply, err));
  f->result->thought |= in_thought(f);
  f->loops = !f->ended && obeys_repetition(f) && repetition_push(&f->repetition, id);
  reply->stop = f->ended || f->loops || f->text.stopped;
  return reply->stop ? STATUS_OK : limit_thought(f, reply, err);
}

/* --- masks and scores */

static Status allow(void *user, const uint64_t **mask, Error *err) {
  Filters *f = user;
  *mask = NULL;
  if (f->channels.state == CHANNEL_HEADER) {
    channels_mask_header(&f->channels, mask);
  } else if (in_thought(f)) {
    if (!f->calls.tools) bound_mask_thought(&f->bound, mask);
  } else if (f->calls.tools) {
    return calls_mask(&f->calls, mask, err);
  } else if (f->channels.state != CHANNEL_TEXT || !f->channels.tools) {
    return bound_mask(&f->bound, opening(f), may_be_spaced(f), mask, err);
  }
  return STATUS_OK;
}

/* Writes a token's scores past the list's end; list(), which never gets an end token, counts them in. */
static Status score(void *user, const TokenScore *scores, Error *err) {
  ScoreList *to = ((Filters *)user)->text.sink->scores;
  const size_t n = (size_t)to->n_best + 1;
  TRY(mem_grow(&to->items, &to->capacity, to->count + n, sizeof *to->items, "scores", err));
  memcpy(to->items + to->count, scores, n * sizeof *scores);
  return STATUS_OK;
}

/* --- begin and end */

Status filters_begin(Filters *f, const Assistant *a, AnswerForm *form, const int32_t *ids, size_t n,
                     const AnswerSink *sink, AnswerResult *result, Error *err) {
  bool inside;
  f->assistant = a;
  f->result = result;
  f->budget = a->think == THINK_NO && !a->thinking.can_switch ? 0 : a->think_budget;
  TRY(bound_begin(&f->bound, form, &a->ends, err));
  TRY(channels_begin(&f->channels, a->chat, a->tokenizer, &a->tools, &f->bound, a->think == THINK_NO, err));
  if (!f->channels.state && a->tools.given) f->calls = (Calls){.tools = &a->tools, .bound = &f->bound};
  TRY(text_chain_begin(&f->text, a->tokenizer, sink, err));
  f->text.drops_answer = f->bound.form && !f->bound.form->is_calls;
  f->text.stop.strings = a->flags->answer.stops.items;
  f->text.stop.n_strings = a->flags->answer.stops.count;
  TRY(thoughts_are_open(a, ids, n, &inside, err));
  const bool splits = !form->has_tokens && !f->channels.state;
  thinking_begin(&f->text.splitter, splits ? a->thinking.open : NULL, a->thinking.close, inside);
  result->thought = in_thought(f);
  return STATUS_OK;
}

void filters_release(Filters *f) {
  text_chain_release(&f->text);
  bound_release(&f->bound);
  calls_release(&f->calls);
  channels_release(&f->channels);
  buffer_release(&f->whole);
  id_list_release(&f->closing);
}

Status filters_options(Filters *f, GenerateOptions *options, Error *err) {
  const Assistant *a = f->assistant;
  const ScoreList *scores = f->text.sink->scores;
  TokenReply first = {0};
  channels_forced(&f->channels, &first);
  TRY(limit_thought(f, &first, err));
  *options = (GenerateOptions){
      .max_tokens = a->max_tokens,
      .eos = a->ends.ids,
      .n_eos = (int)a->ends.count,
      .ignore_eos = a->flags->answer.ignore_eos,
      .allow = f->bound.form ? allow : NULL,
      .score = scores ? score : NULL,
      .n_best = scores ? scores->n_best : 0,
      .may_force = f->bound.form || f->budget >= 0 || first.n_forced > 0,
      .forced = first.forced,
      .n_forced = first.n_forced,
      .interrupted = a->interrupted,
  };
  return STATUS_OK;
}

/* Reports where in the answer its end came. */
static void set_place_of_end(Filters *f) {
  AnswerResult *r = f->result;
  const Bound *bound = &f->bound;
  r->in_form = bound->form && !bound->form->is_calls && !bound->ended && answer_was_cut(r) &&
               !in_thought(f) && !constraint_may_end(&bound->form->constraint);
  if (f->text.stopped) return;
  r->in_call = (f->channels.state == CHANNEL_CALL || calls_is_inside(&f->calls)) && !f->ended;
  r->in_thought = in_thought(f);
}

Status filters_end(Filters *f, const GenerateResult *generated, Error *err) {
  AnswerResult *r = f->result;
  r->reason = f->loops ? FINISH_REPETITION : f->ended ? FINISH_EOS : generated->reason;
  r->is_json = f->bound.form && f->bound.form->is_json && r->reason == FINISH_EOS;
  r->n_generated = generated->n_generated;
  if (f->assistant->flags->guess.most != 0) /* the process that keeps the model may guess nevertheless */
    r->guesses = generated->guesses;
  r->first_token_ms = generated->first_token_ms;
  r->decode_ms = generated->decode_ms;
  set_place_of_end(f);
  if (f->text.stopped || f->calls.state != CALLS_NONE) return STATUS_OK;
  return text_chain_end(&f->text, err);
}
