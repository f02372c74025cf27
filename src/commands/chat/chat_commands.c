/* chat_commands.c - the commands of a chat. Called by: chat.c. */
#include <string.h>

#include "commands/chat/dialogue.h"
#include "commands/chat/text_editor.h"
#include "commands/chat/user_path.h"
#include "commands/common.h"
#include "commands/conversation/conversation_file.h"
#include "commands/input_text.h"

static const char *plural(long long n) {
  return n == 1 ? "" : "s";
}

/* --- help, settings, statistics */

static Status help(Buffer *out, Error *err) {
  for (int i = 0; i < WORD_TEXT; i++) {
    const ChatCommand *c = &chat_commands[i];
    char call[64];
    snprintf(call, sizeof call, "/%s %s", c->name, c->argument ? c->argument : "");
    TRY(buffer_printf(out, err, "  %-19s  %s\n", call, c->help));
  }
  return buffer_append_string(
      out,
      "Enter sends; Alt-Enter puts a newline in, and so do lines between \"\"\" and \"\"\".\n"
      "Tab completes. Ctrl-C stops an answer and keeps it. \" /word\" is sent as text.\n",
      err);
}

static void stats(const Dialogue *d) {
  const AnswerResult *r = &d->result;
  const Totals *t = &d->totals;
  if (!d->has_result) {
    dialogue_say(d, "Nothing was answered yet.");
    return;
  }
  int n_new = r->n_prompt - r->n_reused;
  dialogue_say(d, "prompt: %d tokens, %d of them known; %d prefilled in %.0f ms (%.1f/s)", r->n_prompt,
               r->n_reused, n_new, r->prefill_ms, answer_per_second(n_new, r->prefill_ms));
  dialogue_say(d, "answer: %d tokens (%.1f/s), the first after %.0f ms; end: %s", r->n_generated,
               answer_per_second(r->n_generated - 1, r->decode_ms), r->prefill_ms + r->first_token_ms,
               finish_name(r->reason));
  if (r->guesses.n_guessed)
    dialogue_say(d, "guesses: %lld tokens, %lld of them right; %.2f tokens a step", r->guesses.n_guessed,
                 r->guesses.n_accepted, answer_per_step(r));
  dialogue_say(d, "all %d answers: %lld prefilled (%.1f/s), %lld known, %lld generated (%.1f/s)",
               t->n_answers, t->n_prefilled, answer_per_second(t->n_prefilled, t->prefill_ms), t->n_reused,
               t->n_generated, answer_per_second(t->n_generated, t->decode_ms));
}

/* --- tokens */

static Status list_tokens(const Dialogue *d, Buffer *out, size_t *n_texts, Error *err) {
  for (size_t i = 0; i < d->conversation.count; i++) {
    const Message *m = &d->conversation.messages[i];
    size_t n, n_thought;
    const Buffer *text = m->text.size || m->role != ROLE_ASSISTANT ? &m->text : &m->members;
    TRY(dialogue_count(d, text, &n, err));
    TRY(dialogue_count(d, &m->thinking, &n_thought, err));
    *n_texts += n;
    TRY(buffer_printf(out, err, "%7zu  %-9s  ", n, role_name(m->role)));
    TRY(dialogue_excerpt(text->data ? text->data : "", text->size, 50, out, err));
    if (n_thought) TRY(buffer_printf(out, err, "  (and %zu of thought)", n_thought));
    TRY(buffer_append_string(out, "\n", err));
  }
  return STATUS_OK;
}

static Status list_attached(const Dialogue *d, Buffer *out, Error *err) {
  const Buffer *text = &d->attached;
  size_t n;
  if (text->size == 0) return STATUS_OK;
  TRY(dialogue_count(d, text, &n, err));
  TRY(buffer_printf(out, err, "%7zu  wait for your next message (/undo drops them): ", n));
  TRY(dialogue_excerpt(text->data, text->size, 30, out, err));
  return buffer_append_string(out, "\n", err);
}

static Status tokens(Dialogue *d, Buffer *out, Error *err) {
  OWNED(id_list_release) IdList ids = {0};
  size_t n_texts = 0;
  TRY(list_tokens(d, out, &n_texts, err));
  if (d->conversation.count) TRY(dialogue_encode(d, &d->conversation, 0, &ids, err));
  TRY(buffer_printf(out, err, "%7zu  in the messages\n", n_texts));
  TRY(buffer_printf(out, err,
                    "%7zu  with the template's own and the beginning of an answer, of a context of %d\n",
                    ids.count, assistant_n_ctx(&d->assistant)));
  return list_attached(d, out, err);
}

/* --- the conversation */

static void clear(Dialogue *d) {
  conversation_truncate(&d->conversation, conversation_system(&d->conversation) ? 1 : 0);
  d->attached.size = 0;
  d->reported_percent = 0;
  d->held.count = 0;
  kept_release(&d->continued.kept);
  dialogue_note(d, "the conversation is forgotten");
}

static Status need_turn(const Dialogue *d, size_t *turn, Error *err) {
  *turn = conversation_last_turn(&d->conversation);
  if (*turn < d->conversation.count) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "there is no message of yours yet");
}

static Status undo(Dialogue *d, Error *err) {
  size_t turn;
  TRY(need_turn(d, &turn, err));
  const Message *m = &d->conversation.messages[turn];
  OWNED(buffer_release) Buffer text = {0};
  TRY(dialogue_excerpt(m->text.data ? m->text.data : "", m->text.size, 50, &text, err));
  TRY(buffer_append(&text, "", 1, err));
  conversation_truncate(&d->conversation, turn);
  d->unsaved = true;
  dialogue_note(d, "taken back: %s", text.data);
  return STATUS_OK;
}

static void exchange(Conversation *a, Conversation *b) {
  const Conversation before = *a;
  *a = *b;
  *b = before;
}

/* Answers a copy of the conversation: its first `keep` messages and the user message `text` (NULL: none). If
 * there is no answer, the old conversation is kept. */
static Status answer_anew(Dialogue *d, size_t keep, const Buffer *text, Error *err) {
  OWNED(conversation_release) Conversation other = {0};
  bool answered = false;
  TRY(conversation_append(&other, &d->conversation, 0, keep, err));
  if (text) TRY(conversation_add(&other, ROLE_USER, text->data, text->size, err));
  exchange(&d->conversation, &other);
  const Status status = dialogue_answer(d, &answered, err);
  if (!answered) exchange(&d->conversation, &other);
  return status;
}

static Status regen(Dialogue *d, Error *err) {
  const Conversation *c = &d->conversation;
  size_t turn, keep = c->count;
  TRY(need_turn(d, &turn, err));
  while (keep > turn + 1 && c->messages[keep - 1].role == ROLE_ASSISTANT) keep--;
  bool again = keep < c->count;
  TRY(answer_anew(d, keep, NULL, err));
  if (again && d->interactive && !(d->assistant.sampler.temperature > 0))
    dialogue_note(d, "temp is 0: the same settings give the same answer (/set temp 0.8)");
  return STATUS_OK;
}

static Status edit(Dialogue *d, Error *err) {
  if (!d->interactive) return error_set(err, STATUS_USAGE, "/edit needs a terminal");
  Conversation *c = &d->conversation;
  size_t turn = conversation_last_turn(c);
  bool is_new = turn == c->count;
  OWNED(buffer_release) Buffer text = {0};
  if (!is_new && c->messages[turn].text.size)
    TRY(buffer_append(&text, c->messages[turn].text.data, c->messages[turn].text.size, err));
  TRY(text_edit(&text, err));
  bool same = !is_new && text.size == c->messages[turn].text.size &&
              (text.size == 0 || memcmp(text.data, c->messages[turn].text.data, text.size) == 0);
  if (same || text.size == 0) {
    dialogue_note(d, text.size ? "nothing was changed" : "the text is empty: nothing is sent");
    return STATUS_OK;
  }
  TRY(chat_input_remember(&d->input, text.data, text.size, err));
  TRY(chat_input_show(&d->input, text.data, text.size, err));
  return is_new ? dialogue_send(d, text.data, text.size, err) : answer_anew(d, turn, &text, err);
}

static Status show_system(const Dialogue *d, Buffer *out, Error *err) {
  const Message *m = conversation_system(&d->conversation);
  if (!m) {
    dialogue_say(d, "There is no system message.");
    return STATUS_OK;
  }
  TRY(buffer_append(out, m->text.data, m->text.size, err));
  return buffer_append(out, "\n", 1, err);
}

static bool is_quotes(const ChatLine *line) {
  return line->size == 2 && memcmp(line->argument, "\"\"", 2) == 0;
}

static Status change_system(Dialogue *d, const ChatLine *line, Buffer *out, Error *err) {
  if (line->size == 0) return show_system(d, out, err);
  bool none = is_quotes(line);
  TRY(conversation_set_system(&d->conversation, line->argument, none ? 0 : line->size, err));
  d->unsaved = true;
  dialogue_note(d, none ? "there is no system message any more"
                        : "the system message is changed, for answers to come");
  return STATUS_OK;
}

static Status tool(Dialogue *d, const ChatLine *line, Buffer *out, Error *err) {
  if (line->size == 0) return dialogue_list_calls(d, out, err);
  return dialogue_give_result(d, line->argument, is_quotes(line) ? 0 : line->size, err);
}

/* --- files */

static Status drop_attached(Dialogue *d, Error *err) {
  size_t n;
  if (d->attached.size == 0) return error_set(err, STATUS_USAGE, "no file waits for your next message");
  TRY(dialogue_count(d, &d->attached, &n, err));
  d->attached.size = 0;
  dialogue_note(d, "what was read is dropped, %zu tokens", n);
  return STATUS_OK;
}

/* Attaches a file's text to the next message. Refuses it if the attached texts would fill the context. */
static Status attach(Dialogue *d, const char *path, const Buffer *text, Error *err) {
  const int n_ctx = assistant_n_ctx(&d->assistant);
  size_t n, n_waiting, n_message, before = d->attached.size;
  TRY(dialogue_count(d, text, &n, err));
  TRY(dialogue_count(d, &d->attached, &n_waiting, err));
  if (before && d->attached.data[before - 1] != '\n') TRY(buffer_append(&d->attached, "\n", 1, err));
  if (text->size) TRY(buffer_append(&d->attached, text->data, text->size, err));
  TRY(dialogue_measure(d, &d->attached, &n_message, err));
  if (n_message < (size_t)n_ctx) {
    dialogue_note(d, "%s: %zu tokens, in front of your next message (/undo drops them)", path, n);
    return STATUS_OK;
  }
  char waiting[64] = "";
  if (n_waiting) snprintf(waiting, sizeof waiting, " (beside %zu that wait already)", n_waiting);
  return error_set(err, STATUS_USAGE,
                   "%s has %zu tokens%s: the message would have %zu, the context has %d%s; it is not read",
                   path, n, waiting, n_message, n_ctx, dialogue_context_hint(d).text);
}

Status dialogue_attach_file(Dialogue *d, const char *path, Error *err) {
  OWNED(buffer_release) Buffer text = {0};
  const size_t before = d->attached.size;
  TRY(text_read(path, &text, err));
  const Status status = attach(d, path, &text, err);
  if (status != STATUS_OK) d->attached.size = before;
  return status;
}

static Status save(Dialogue *d, const char *path, Error *err) {
  const WrittenFile output = written_file("/save", path);
  TRY(assistant_check_output(&d->assistant, &output, err));
  const ConversationHead head = {.model = d->continued.head.model,
                                 .chat_template = d->continued.head.chat_template,
                                 .think = d->assistant.think};
  TRY(conversation_save(&d->conversation, &head, path, err));
  dialogue_note(d, "%zu message%s saved", d->conversation.count, plural((long long)d->conversation.count));
  return STATUS_OK;
}

Status dialogue_show_last_turn(Dialogue *d, Error *err) {
  const Conversation *c = &d->conversation;
  const size_t turn = conversation_last_turn(c);
  if (!d->interactive || turn == c->count) return STATUS_OK;
  const Buffer *asked = &c->messages[turn].text;
  OWNED(buffer_release) Buffer excerpt = {0};
  d->turn_ends = true;
  TRY(dialogue_excerpt(asked->data ? asked->data : "", asked->size, 400, &excerpt, err));
  TRY(chat_input_show(&d->input, excerpt.data ? excerpt.data : "", excerpt.size, err));
  for (size_t i = turn + 1; i < c->count; i++) TRY(dialogue_recall(d, &c->messages[i].text, err));
  return STATUS_OK;
}

static Status load(Dialogue *d, const char *path, Error *err) {
  OWNED(conversation_release) Conversation other = {0};
  OWNED(id_list_release) IdList ids = {0};
  TRY(conversation_load(path, &other, NULL, err));
  const size_t n = other.count;
  if (n) TRY(dialogue_encode(d, &other, 0, &ids, err)); /* the template decides which orders are valid */
  exchange(&d->conversation, &other);
  kept_release(&d->continued.kept); /* the conversation is kept as a new chat from here on */
  d->unsaved = true;
  const bool open = n && d->conversation.messages[n - 1].role == ROLE_USER;
  dialogue_note(d, "%zu message%s, %zu tokens%s", n, plural((long long)n), ids.count,
                open ? "; the last one has no answer: /regen" : "");
  return dialogue_show_last_turn(d, err);
}

/* Runs a command with its file. On a terminal refuses paths that could block: there Ctrl-C stops answers, but
 * not a read that waits for the writer of a fifo. */
static Status with_file(Dialogue *d, const ChatLine *line,
                        Status (*run)(Dialogue *dialogue, const char *path, Error *err), Error *err) {
  char name[32];
  snprintf(name, sizeof name, "/%s", chat_commands[line->word].name);
  if (line->size == 0) return error_set(err, STATUS_USAGE, "%s needs a file: %s FILE", name, name);
  OWNED(mem_release) char *path = NULL;
  TRY(user_path(line->argument, line->size, &path, err));
  TRY(file_name_check(name, path, err));
  if (d->interactive) TRY(file_refuse_waiting(path, err));
  return run(d, path, err);
}

/* --- dispatch */

static Status dispatch(Dialogue *d, const ChatLine *line, Buffer *out, Error *err) {
  const ChatCommand *command = &chat_commands[line->word];
  if (!command->argument && line->size)
    return error_set(err, STATUS_USAGE, "/%s stands alone (to send it as text, begin with a space)",
                     command->name);
  switch (line->word) {
  case WORD_CLEAR: clear(d); break;
  case WORD_EDIT: return edit(d, err);
  case WORD_EXIT: d->leaves = true; break;
  case WORD_HELP: return help(out, err);
  case WORD_LOAD: return with_file(d, line, load, err);
  case WORD_READ:
    return is_quotes(line) ? drop_attached(d, err) : with_file(d, line, dialogue_attach_file, err);
  case WORD_REGEN: return regen(d, err);
  case WORD_SAVE: return with_file(d, line, save, err);
  case WORD_SET: return chat_settings_take(&d->settings, line->argument, line->size, out, err);
  case WORD_STATS: stats(d); break;
  case WORD_SYSTEM: return change_system(d, line, out, err);
  case WORD_TOKENS: return tokens(d, out, err);
  case WORD_TOOL: d->unsaved = true; return tool(d, line, out, err);
  case WORD_UNDO: return d->attached.size ? drop_attached(d, err) : undo(d, err);
  case WORD_TEXT:
  case WORD_UNKNOWN: break;
  }
  return STATUS_OK;
}

Status chat_command(Dialogue *d, const ChatLine *line, Error *err) {
  OWNED(buffer_release) Buffer out = {0};
  const Status status = dispatch(d, line, &out, err);
  dialogue_print(d, &out);
  return status;
}
