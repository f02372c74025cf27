/* filters.c - see filters.h.   Called by: answer.c. */
#include "commands/answer/filters/filters.h"

#include <string.h>

static bool in_thought(const Filters *f) {
  return f->channels.state ? f->text.is_thought : f->text.splitter.state == THINKING_INSIDE;
}

/* True if the answer itself has a form, not calls within free text. */
static bool has_form(const Filters *f) {
  return f->bound.form && !f->bound.form->is_calls;
}

/* --- where the parts of an answer begin and end */

/* *inside = the prompt ends in an open thought: its text ends with the opening mark, but for white space. */
static Status ends_in_thought(const Assistant *a, const int32_t *ids, size_t n, bool *inside, Error *err) {
  *inside = false;
  if (!a->thinking.open) return STATUS_OK;
  size_t length = strlen(a->thinking.open),
         last = length + 8; /* upper bound: a token has a byte or more; 8 for white space */
  if (last > n) last = n;
  OWNED(buffer_release) Buffer text = {0};
  TRY(tokenizer_decode(a->tokenizer, ids + n - last, last, false, &text, err));
  while (text.size && strchr(" \t\r\n", text.data[text.size - 1])) text.size--;
  *inside = text.size >= length && memcmp(text.data + text.size - length, a->thinking.open, length) == 0;
  return STATUS_OK;
}

/* Appends the ids of `before` and the closing mark as templates write it: on a line of its own, then an empty
 * line. */
static Status encode_after(const Assistant *a, const char *before, IdList *ids, Error *err) {
  const char *mark = a->thinking.close;
  const PromptPiece pieces[] = {
      {before, strlen(before), true}, {"\n", 1, true}, {mark, strlen(mark), true}, {"\n\n", 2, true}};
  return tokenizer_encode_pieces(a->tokenizer, pieces, sizeof pieces / sizeof *pieces, false, ids, err);
}

/* A tokenizer may insert a space at the beginning of a text. To avoid that, this encodes "a" and the mark,
 * and drops the ids of "a" if they are a proper prefix of the result. */
static Status encode_closing(const Assistant *a, IdList *ids, Error *err) {
  OWNED(id_list_release) IdList letter = {0}, whole = {0};
  TRY(tokenizer_encode(a->tokenizer, "a", 1, (EncodeOptions){0}, &letter, err));
  TRY(encode_after(a, "a", &whole, err));
  size_t n = letter.count;
  bool apart = n < whole.count && (n == 0 || memcmp(letter.ids, whole.ids, n * sizeof *whole.ids) == 0);
  for (size_t i = n; apart && i < whole.count; i++) TRY(id_list_append(ids, whole.ids[i], err));
  return apart ? STATUS_OK : encode_after(a, "", ids, err);
}

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

/* True if the token belongs to an answer with a form, not to a thought, its marks or white space after them.
 * Counts such white space. */
static bool is_bound(Filters *f, int32_t id) {
  if (!has_form(f) || in_thought(f) || f->n_closing || id == opening(f)) return false;
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
  const bool is_message = c->state == CHANNEL_THOUGHT || c->state == CHANNEL_TEXT;
  if (c->state == CHANNEL_NONE || (c->state == CHANNEL_TEXT && has_form(f))) return STATUS_OK;
  if (id == c->end && is_message) TRY(text_chain_end(&f->text, false, err));
  TRY(channels_take(c, id, taken, &f->whole, &f->ended, reply, err));
  if (c->state != CHANNEL_HEADER) f->text.is_thought = c->state == CHANNEL_THOUGHT;
  return text_chain_emit(&f->text, TEXT_CALL, &f->whole, err);
}

static Status take_in_calls(Filters *f, int32_t id, bool *taken, TokenReply *reply, Error *err) {
  if (!f->calls.tools || in_thought(f) || f->n_closing) return STATUS_OK;
  const bool was_text = f->calls.state == CALLS_NONE;
  TRY(calls_take(&f->calls, id, taken, &f->whole, &f->ended, reply, err));
  if (*taken && was_text) TRY(text_chain_end(&f->text, true, err));
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
    TRY(text_chain_end(&f->text, false, err));
    TRY(channels_next(&f->channels, true, err));
    channels_forced(&f->channels, reply);
    return STATUS_OK;
  }
  TRY(encode_closing(f->assistant, &f->closing, err));
  f->n_closing = f->closing.count;
  reply->forced = f->closing.ids;
  reply->n_forced = (int)f->closing.count;
  return STATUS_OK;
}

/* True if a loop ends the answer; not with -n or --ignore-eos, nor in a thought that its budget will end. */
static bool obeys_repetition(const Filters *f) {
  const Assistant *a = f->assistant;
  const bool thought_will_close = in_thought(f) && f->budget >= 0;
  return a->max_tokens < 0 && !a->flags->answer.ignore_eos && !thought_will_close;
}

static Status take(void *user, int32_t id, TokenReply *reply, Error *err) {
  Filters *f = user;
  AnswerText *answer = f->text.sink->answer;
  bool taken = false;
  TRY(id_list_append(&answer->ids, id, err));
  if (answer->scores.n_best) answer->scores.count += (size_t)answer->scores.n_best + 1;
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

/* Writes a token's scores past the list's end. take() then counts them; it is not called for an end token. */
static Status score(void *user, const TokenScore *scores, Error *err) {
  ScoreList *to = &((Filters *)user)->text.sink->answer->scores;
  const size_t n = (size_t)to->n_best + 1;
  TRY(mem_grow(&to->items, &to->capacity, to->count + n, sizeof *to->items, "scores", err));
  memcpy(to->items + to->count, scores, n * sizeof *scores);
  return STATUS_OK;
}

/* --- begin and end */

Status filters_begin(Filters *f, const Assistant *a, AnswerForm *form, const AnswerSink *sink,
                     AnswerResult *result, EngineRequest *request, Error *err) {
  const int n_best = sink->answer->scores.n_best;
  TokenReply first = {0};
  bool inside;
  f->assistant = a;
  f->result = result;
  f->budget = a->think == THINK_NO && !a->thinking.can_switch ? 0 : a->think_budget;
  TRY(bound_begin(&f->bound, form, &a->ends, err));
  TRY(channels_begin(&f->channels, a->chat, a->tokenizer, &a->tools, &f->bound, a->think == THINK_NO, err));
  if (!f->channels.state && a->tools.given) f->calls = (Calls){.tools = &a->tools, .bound = &f->bound};
  TRY(text_chain_begin(&f->text, a->tokenizer, sink, err));
  f->text.drops_answer = has_form(f);
  f->text.stop.strings = a->flags->answer.stops.items;
  f->text.stop.n_strings = a->flags->answer.stops.count;
  TRY(ends_in_thought(a, request->ids, (size_t)request->n_ids, &inside, err));
  const char *open = form->has_tokens || f->channels.state ? NULL : a->thinking.open;
  thinking_begin(&f->text.splitter, open, a->thinking.close, inside);
  result->thought = in_thought(f);
  channels_forced(&f->channels, &first);
  TRY(limit_thought(f, &first, err));
  request->sink = take;
  request->user = f;
  request->generate = (GenerateOptions){
      .max_tokens = a->max_tokens,
      .eos = a->ends.ids,
      .n_eos = (int)a->ends.count,
      .ignore_eos = a->flags->answer.ignore_eos,
      .allow = f->bound.form ? allow : NULL,
      .score = n_best ? score : NULL,
      .n_best = n_best,
      .may_force = f->bound.form || f->budget >= 0 || first.n_forced > 0,
      .forced = first.forced,
      .n_forced = first.n_forced,
      .interrupted = a->interrupted,
  };
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

Status filters_end(Filters *f, const GenerateResult *generated, Error *err) {
  AnswerResult *r = f->result;
  r->reason = f->loops ? FINISH_REPETITION : f->ended ? FINISH_EOS : generated->reason;
  r->n_generated = generated->n_generated;
  if (f->assistant->flags->guess.most != 0) /* the process that keeps the model may guess nevertheless */
    r->guesses = generated->guesses;
  r->first_token_ms = generated->first_token_ms;
  r->decode_ms = generated->decode_ms;
  const bool cut = has_form(f) && !f->ended && answer_was_cut(r) && !in_thought(f),
             complete = cut && constraint_may_end(&f->bound.form->constraint); /* such as a number */
  r->in_form = cut && !complete;
  r->is_json = f->bound.form && f->bound.form->is_json && (complete || r->reason == FINISH_EOS);
  if (!f->text.stopped) {
    r->in_call = (f->channels.state == CHANNEL_CALL || calls_is_inside(&f->calls)) && !f->ended;
    r->in_thought = in_thought(f);
    if (f->calls.state == CALLS_NONE) TRY(text_chain_end(&f->text, true, err));
  }
  r->in_block = f->text.block.state == BLOCK_INSIDE;
  r->has_no_block = f->text.sink->answer->extracts && f->text.block.state == BLOCK_BEFORE;
  return STATUS_OK;
}
