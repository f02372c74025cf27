/* dialogue.c - see dialogue.h. Called by: chat.c, chat_commands.c, tool_results.c.
 * Always true: after an answer the session holds a prefix of `held`; dropping turns from a conversation is
 *              always reported. */
#include "commands/chat/dialogue.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/terminal_text.h"
#include "base/utf8.h"
#include "commands/answer/answer.h"
#include "terminal/console.h"

/* --- messages to the user */

void dialogue_release(Dialogue *d) {
  show_release(&d->show);
  conversation_release(&d->conversation);
  continued_release(&d->continued);
  id_list_release(&d->held);
  buffer_release(&d->attached);
  answer_text_release(&d->answer);
  assistant_release(&d->assistant);
}

/* Writes a text and ends its last line; words wrap unless --no-wrap. PRECOND d->interactive */
static Status put_wrapped(const Dialogue *d, bool dim, const char *text, size_t size, Error *err) {
  const bool wraps = !d->assistant.flags->answer.no_wrap;
  OWNED(markdown_release)
  Markdown m = {.wrap = {.styles = d->dim, .columns = wraps ? terminal_columns(fileno(d->screen)) : 0},
                .is_plain = true,
                .is_dim = dim && d->dim};
  OWNED(buffer_release) Buffer safe = {0};
  TRY(terminal_text(&safe, text, size, err));
  TRY(buffer_append(&safe, "\n", 1, err));
  TRY(markdown_push(&m, safe.data, safe.size, err));
  TRY(markdown_end(&m, err));
  if (m.wrap.out.size) fwrite(m.wrap.out.data, 1, m.wrap.out.size, d->screen);
  fflush(d->screen);
  return STATUS_OK;
}

void dialogue_print(const Dialogue *d, const Buffer *lines) {
  OWNED(buffer_release) Buffer safe = {0};
  const size_t size = lines->size;
  if (size == 0) return;
  if (d->interactive)
    put_wrapped(d, false, lines->data, size - (lines->data[size - 1] == '\n'), NULL);
  else if (terminal_text(&safe, lines->data, size, NULL) == STATUS_OK && safe.size)
    fwrite(safe.data, 1, safe.size, stderr);
}

void dialogue_line(const Dialogue *d, bool is_note, const char *format, ...) {
  char line[2048];
  OWNED(buffer_release) Buffer text = {0};
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  if (d->interactive)
    put_wrapped(d, is_note, line, strlen(line), NULL);
  else if (buffer_printf(&text, NULL, "auk: %s\n", line) == STATUS_OK)
    dialogue_print(d, &text);
}

Status dialogue_recall(const Dialogue *d, const Buffer *text, Error *err) {
  return text->size ? put_wrapped(d, true, text->data, text->size, err) : STATUS_OK;
}

void dialogue_end_turn(Dialogue *d) {
  if (d->turn_ends && d->interactive) put_wrapped(d, false, "", 0, NULL);
  d->turn_ends = false;
}

Status dialogue_excerpt(const char *text, size_t size, size_t most, Buffer *out, Error *err) {
  size_t end = 0;
  for (size_t n = 0; end < size && n < most; n++) {
    uint32_t code;
    int length = utf8_decode(text + end, size - end, &code);
    end += length > 0 ? (size_t)length : 1;
  }
  size_t start = out->size;
  TRY(terminal_text(out, text, end, err));
  for (size_t i = start; i < out->size; i++)
    if (out->data[i] == '\n' || out->data[i] == '\t') out->data[i] = ' ';
  return end < size ? buffer_append_string(out, "...", err) : STATUS_OK;
}

/* --- room in the context */

Status dialogue_encode(const Dialogue *d, const Conversation *c, size_t first, IdList *ids, Error *err) {
  OWNED(mem_release) ChatMessage *view = NULL;
  size_t n;
  ids->count = 0;
  TRY(conversation_view(c, first, &view, &n, err));
  return assistant_encode(&d->assistant, view, n, ids, err);
}

Status dialogue_count(const Dialogue *d, const Buffer *text, size_t *n, Error *err) {
  OWNED(id_list_release) IdList ids = {0};
  *n = 0;
  if (text->size == 0) return STATUS_OK;
  TRY(tokenizer_encode(d->assistant.tokenizer, text->data, text->size, (EncodeOptions){0}, &ids, err));
  *n = ids.count;
  return STATUS_OK;
}

Status dialogue_measure(const Dialogue *d, const Buffer *text, size_t *n, Error *err) {
  const Conversation *c = &d->conversation;
  OWNED(conversation_release) Conversation alone = {0};
  OWNED(id_list_release) IdList ids = {0};
  TRY(conversation_append(&alone, c, 0, conversation_next_turn(c, 0), err));
  TRY(conversation_add(&alone, ROLE_USER, text->data, text->size, err));
  TRY(dialogue_encode(d, &alone, 0, &ids, err));
  *n = ids.count;
  return STATUS_OK;
}

ContextHint dialogue_context_hint(const Dialogue *d) {
  const int maximum = d->assistant.model->config.max_position;
  ContextHint hint = {""};
  if (assistant_n_ctx(&d->assistant) < maximum)
    snprintf(hint.text, sizeof hint.text, " (-c N sets it, the model's maximum is %d)", maximum);
  return hint;
}

/* Finds how few of the oldest turns have to be dropped, so that the rest has at most `most` tokens. Keeps at
 * least the last turn. */
static Status find_short(const Dialogue *d, size_t most, size_t *first, int *n_dropped, Error *err) {
  const Conversation *c = &d->conversation;
  size_t low = 1, high = conversation_n_turns(c) - 1; /* bounds of the number of turns to drop */
  OWNED(id_list_release) IdList ids = {0};
  while (low < high) {
    size_t middle = low + (high - low) / 2, at = conversation_next_turn(c, 0);
    for (size_t i = 0; i < middle; i++) at = conversation_next_turn(c, at + 1);
    TRY(dialogue_encode(d, c, at, &ids, err));
    if (ids.count <= most) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  *first = conversation_next_turn(c, 0);
  for (size_t i = 0; i < low; i++) *first = conversation_next_turn(c, *first + 1);
  *n_dropped = (int)low;
  return STATUS_OK;
}

/* Tokens to keep free for an answer: a quarter of the context if turns are dropped without a question, else
 * 1/16 of it; in both cases at most -n, and at least 1. */
static size_t wanted_room(const Dialogue *d) {
  size_t n_ctx = (size_t)assistant_n_ctx(&d->assistant);
  size_t room = d->talk->overflow == OVERFLOW_SLIDE ? n_ctx / 4 : n_ctx / 16;
  if (d->assistant.max_tokens >= 0 && (size_t)d->assistant.max_tokens < room)
    room = (size_t)d->assistant.max_tokens;
  return room ? room : 1;
}

static Status may_drop(Dialogue *d, size_t n_ids, int n_turns, bool *may, Error *err) {
  int n_ctx = assistant_n_ctx(&d->assistant);
  size_t left = n_ids < (size_t)n_ctx ? (size_t)n_ctx - n_ids : 0;
  *may = d->talk->overflow == OVERFLOW_SLIDE;
  if (*may) return STATUS_OK;
  if (d->talk->overflow == OVERFLOW_ASK && d->interactive) {
    dialogue_say(
        d, "With this message the conversation has %zu tokens, the context %d: %zu %s left for an answer.",
        n_ids, n_ctx, left, left == 1 ? "is" : "are");
    char question[64];
    snprintf(question, sizeof question, "Forget the oldest %d turn%s? [y/n] ", n_turns,
             n_turns == 1 ? "" : "s");
    TRY(chat_input_ask(&d->input, question, may, err));
    if (!*may) dialogue_say(d, "Not sent. /clear and /undo make room%s.", dialogue_context_hint(d).text);
    return STATUS_OK;
  }
  return error_set(err, STATUS_USAGE,
                   "with this message the conversation has %zu tokens, the context %d: %zu %s left for an "
                   "answer; /clear or /undo make room, --context-overflow slide forgets the oldest turns",
                   n_ids, n_ctx, left, left == 1 ? "is" : "are");
}

static Status refuse_message(const Dialogue *d, size_t n, Error *err) {
  const int n_ctx = assistant_n_ctx(&d->assistant);
  const ContextHint hint = dialogue_context_hint(d);
  size_t n_files;
  TRY(dialogue_count(d, &d->attached, &n_files, err));
  if (n_files == 0)
    return error_set(err, STATUS_USAGE,
                     "the message has %zu tokens with what belongs to it, the context %d%s", n, n_ctx,
                     hint.text);
  return error_set(
      err, STATUS_USAGE,
      "the message has %zu tokens with what belongs to it, %zu of them from /read, the context %d%s: "
      "/undo drops what was read",
      n, n_files, n_ctx, hint.text);
}

/* The oldest turns, which the next answer ignores. */
typedef struct {
  size_t n_messages; /* number of messages, from the first turn on; 0: none */
  int n_turns;
  size_t n_tokens;
} Forgotten;

/* Encodes the conversation. Leaves out its oldest turns if it is too long and they may be dropped; the
 * conversation keeps them until the answer is complete. *fits is false if the user refused to drop them. */
static Status make_room(Dialogue *d, IdList *ids, Forgotten *forgotten, bool *fits, Error *err) {
  const Conversation *c = &d->conversation;
  size_t n_ctx = (size_t)assistant_n_ctx(&d->assistant), room = wanted_room(d);
  *fits = true;
  TRY(dialogue_encode(d, c, 0, ids, err));
  if (ids->count + room <= n_ctx) return STATUS_OK;
  OWNED(id_list_release) IdList alone = {0};
  TRY(dialogue_encode(d, c, conversation_last_turn(c), &alone, err));
  if (alone.count >= n_ctx) return refuse_message(d, alone.count, err);
  if (conversation_n_turns(c) < 2) return STATUS_OK; /* little room, but nothing to drop */
  size_t first, n_all = ids->count, leading = conversation_next_turn(c, 0);
  /* Frees more than wanted_room(), so that drops are rare: after a drop the whole prompt is computed
   * again. */
  const size_t freed = 2 * room > n_ctx / 4 ? 2 * room : n_ctx / 4;
  int n_turns;
  TRY(find_short(d, n_ctx - freed, &first, &n_turns, err));
  TRY(may_drop(d, n_all, n_turns, fits, err));
  if (!*fits) return STATUS_OK;
  TRY(dialogue_encode(d, c, first, ids, err));
  *forgotten = (Forgotten){first - leading, n_turns, n_all - ids->count};
  return STATUS_OK;
}

/* Drops the forgotten turns from the conversation; they stay in the chat's file. */
static Status forget(Dialogue *d, const Forgotten *forgotten, Error *err) {
  const int n = forgotten->n_turns;
  const size_t first = conversation_next_turn(&d->conversation, 0);
  if (forgotten->n_messages == 0) return STATUS_OK;
  TRY(conversation_append(&d->continued.kept.forgotten, &d->conversation, first,
                          first + forgotten->n_messages, err));
  conversation_drop(&d->conversation, first, forgotten->n_messages);
  dialogue_note(d, "the oldest %d turn%s forgotten, %zu tokens: the context has %d", n,
                n == 1 ? " is" : "s are", forgotten->n_tokens, assistant_n_ctx(&d->assistant));
  d->reported_percent = 0;
  return STATUS_OK;
}

void dialogue_keep(Dialogue *d) {
  Error note;
  if (!d->unsaved) return;
  d->unsaved = false;
  continued_keep(&d->continued, &d->assistant, &d->conversation, &note);
  if (*note.text) dialogue_note(d, "%s", note.text);
}

/* --- an answer */

static Status take_text(void *user, TextKind kind, const char *text, size_t size, Error *err) {
  Dialogue *d = user;
  if (kind == TEXT_THOUGHT && !d->show.thoughts)
    spinner_say(&d->spinner, "thinking");
  else
    spinner_end(&d->spinner);
  return show_text(&d->show, kind, text, size, err);
}

static void prefilling(void *user, int done, int total) {
  Dialogue *d = user;
  if (done < total) spinner_say(&d->spinner, "prompt: %d of %d tokens", done, total);
}

static void note_fullness(Dialogue *d) {
  static const int levels[] = {90, 75};
  int n_ctx = assistant_n_ctx(&d->assistant), used = assistant_n_held(&d->assistant);
  int full = (int)(100LL * used / n_ctx);
  if (full < levels[1]) d->reported_percent = 0;
  if (d->result.reason == FINISH_CONTEXT) d->reported_percent = levels[0]; /* already reported */
  for (int i = 0; i < 2; i++) {
    if (full < levels[i] || d->reported_percent >= levels[i]) continue;
    d->reported_percent = levels[i];
    dialogue_note(d, "the context is %d%% full: %d of %d tokens", full, used, n_ctx);
    return;
  }
}

static void note_end(const Dialogue *d) {
  switch (d->result.reason) {
  case FINISH_CONTEXT:
    dialogue_note(d, "the context of %d tokens is full: the answer ends here",
                  assistant_n_ctx(&d->assistant));
    break;
  case FINISH_LENGTH:
    if (d->interactive) dialogue_note(d, "cut after %d tokens (/set n)", d->assistant.max_tokens);
    break;
  case FINISH_REPETITION: dialogue_note(d, "cut: it repeats itself (/set n N allows that)"); break;
  case FINISH_INTERRUPTED: dialogue_note(d, "interrupted"); break;
  default: break;
  }
  const AnswerLack lack = answer_lack(&d->result, &d->assistant);
  if (*lack.text) dialogue_note(d, "%s", lack.text);
}

static void note_status(const Dialogue *d) {
  if (d->interactive && !d->talk->no_status)
    dialogue_note(d, "%s", answer_figures(&d->result, &d->assistant).text);
}

static void count(Dialogue *d) {
  const AnswerResult *r = &d->result;
  d->has_result = true;
  d->totals.n_answers++;
  d->totals.n_reused += r->n_reused;
  d->totals.n_prefilled += r->n_prompt - r->n_reused;
  d->totals.prefill_ms += r->prefill_ms;
  d->totals.n_generated += r->n_generated;
  d->totals.decode_ms += r->first_token_ms + r->decode_ms;
}

static Status hold(Dialogue *d, const IdList *ids, Error *err) {
  for (size_t i = 0; i < ids->count; i++) TRY(id_list_append(&d->held, ids->ids[i], err));
  return STATUS_OK;
}

static Status generate_answer(Dialogue *d, const IdList *prompt, Error *err) {
  const AnswerSink sink = {.answer = &d->answer, .text = take_text, .prefilling = prefilling, .user = d};
  answer_text_clear(&d->answer);
  d->held.count = 0;
  TRY(hold(d, prompt, err));
  TRY(chat_settings_seed(&d->settings, err));
  d->show.thoughts = d->settings.show_thinking;
  if (d->interactive) {
    console_attend();
    console_mode(CONSOLE_ANSWERING);
  }
  show_begin(&d->show);
  spinner_begin(&d->spinner);
  Status status = assistant_answer(&d->assistant, prompt->ids, prompt->count, &sink, &d->result, err);
  spinner_end(&d->spinner);
  if (status == STATUS_OK)
    status = show_end(&d->show, err);
  else if (d->show.terminal && d->show.begun)
    show_end(&d->show, NULL); /* what follows stands on a line of its own */
  if (status == STATUS_OK) status = hold(d, &d->answer.ids, err);
  d->weights_changed = assistant_check_weights(&d->assistant, err) != STATUS_OK;
  if (d->weights_changed) status = STATUS_FAILED; /* changed weights may explain the failure, too */
  if (d->interactive) {
    console_mode(CONSOLE_IDLE);
    console_attend(); /* an interruption of the answer does not affect the next line */
  }
  return status;
}

/* Reports that no answer is possible any more; the conversation can still be saved. */
static Status note_changed_weights(const Dialogue *d, const char *why) {
  dialogue_say(d, "%s", why);
  dialogue_say(d, "Nothing is answered any more; /save FILE keeps the conversation.");
  return STATUS_OK;
}

static Status keep_answer(Dialogue *d, Error *err) {
  const Buffer *calls = &d->answer.calls;
  TRY(continued_add_answer(&d->continued, &d->conversation, &d->answer, err));
  Message *message = &d->conversation.messages[d->conversation.count - 1];
  if (calls->size == 0) return STATUS_OK;
  TRY(buffer_append_string(&message->members, "\"tool_calls\":", err));
  return tools_write_calls(calls, &message->members, err);
}

static Status answer_once(Dialogue *d, bool *answered, Error *err) {
  IdList prompt = {0};
  Forgotten forgotten = {0};
  *answered = false;
  if (d->weights_changed) return note_changed_weights(d, "Not sent: the model's weights were written to.");
  bool fits;
  Status status = make_room(d, &prompt, &forgotten, &fits, err);
  if (status == STATUS_OK && fits) status = ids_splice(d->assistant.tokenizer, &d->held, &prompt, err);
  if (status == STATUS_OK && fits) status = generate_answer(d, &prompt, err);
  id_list_release(&prompt);
  if (d->weights_changed) return note_changed_weights(d, err->text);
  if (status || !fits) return status;
  count(d);
  bool interrupted = d->result.reason == FINISH_INTERRUPTED;
  if (interrupted && !d->interactive) return error_set(err, STATUS_INTERRUPTED, "interrupted");
  if (interrupted && d->answer.text.size + d->answer.thinking.size + d->answer.calls.size == 0) {
    dialogue_note(d, "interrupted before anything came: the message is taken back");
    return STATUS_OK;
  }
  *answered = d->unsaved = d->turn_ends = true;
  TRY(keep_answer(d, err));
  TRY(forget(d, &forgotten, err));
  note_end(d);
  note_status(d);
  note_fullness(d);
  return STATUS_OK;
}

/* If the tools gave all results, but answering them fails, removes these results again. */
Status dialogue_answer(Dialogue *d, bool *answered, Error *err) {
  enum { MOST_ROUNDS = 64 };
  bool again = false;
  TRY(answer_once(d, answered, err));
  for (int i = 0; *answered; i++) {
    const size_t before = d->conversation.count;
    bool went_on = false;
    TRY(dialogue_run_tools(d, i < MOST_ROUNDS, &again, err));
    if (!again) break;
    Status status = answer_once(d, &went_on, err);
    if (!went_on) conversation_truncate(&d->conversation, before);
    if (status != STATUS_OK || !went_on) return status;
  }
  return STATUS_OK;
}

static Status join(const Dialogue *d, const char *text, size_t size, Buffer *message, Error *err) {
  if (d->attached.size) {
    TRY(buffer_append(message, d->attached.data, d->attached.size, err));
    if (message->data[message->size - 1] != '\n') TRY(buffer_append(message, "\n", 1, err));
  }
  return buffer_append(message, text, size, err);
}

Status dialogue_send(Dialogue *d, const char *text, size_t size, Error *err) {
  OWNED(buffer_release) Buffer message = {0};
  bool answered = false;
  TRY(join(d, text, size, &message, err));
  TRY(conversation_add(&d->conversation, ROLE_USER, message.data, message.size, err));
  const Status status = dialogue_answer(d, &answered, err);
  if (answered) {
    d->attached.size = 0;
  } else {
    conversation_truncate(&d->conversation, conversation_last_turn(&d->conversation));
  }
  return status;
}
