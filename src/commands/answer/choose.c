/* choose.c - see choose.h.
 * A session computes the common prefix of prompt and answers once; sequences of a batch share its pages where
 * they can. An answer's last token is not computed, since no logits are needed after it. */
#include "commands/answer/choose.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "commands/common.h"
#include "commands/input_text.h"

enum { MAX_EXIT_CHOICES = 100 };

const Flag choose_flags[] = {
    FLAG_STRINGS("--choose", "A,B,...", ChooseFlags, lists,
                 "answers with the one of these texts that the model finds likeliest"),
    FLAG_STRINGS("--choice", "TEXT", ChooseFlags, answers,
                 "one more such text, which may have commas; may be repeated"),
    FLAG_CHOICE("--choose-by", "sum|mean", ChooseFlags, by,
                "compares the sum of the log-probabilities of a text's tokens (the default) or their mean, "
                "which does not favour short texts"),
    FLAG_SWITCH("--exit-choice", ChooseFlags, exit_choice,
                "exit status 10 if the first was chosen, 11 if the second, ..."),
};

/* --- the answers */

bool choose_is_given(const ChooseFlags *flags) {
  return flags->lists.count || flags->answers.count;
}

static Status add_choice(Choices *choices, const char *text, size_t size, size_t *capacity, Error *err) {
  if (size == 0) return error_set(err, STATUS_USAGE, "--choose: an answer is empty");
  for (size_t i = 0; i < choices->n; i++)
    if (choices->items[i].size == size && memcmp(choices->items[i].text, text, size) == 0)
      return error_set(err, STATUS_USAGE, "--choose: \"%.*s\" is there twice", (int)size, text);
  return APPEND(choices->items, choices->n, *capacity, "answers", err, (Choice){.text = text, .size = size});
}

/* Adds the comma-separated answers, without surrounding blanks. */
static Status add_list(Choices *choices, const char *list, size_t *capacity, Error *err) {
  for (;;) {
    list += strspn(list, " \t");
    size_t length = strcspn(list, ","), size = length;
    while (size && strchr(" \t", list[size - 1])) size--;
    TRY(add_choice(choices, list, size, capacity, err));
    if (!list[length]) return STATUS_OK;
    list += length + 1;
  }
}

Status choices_open(const ChooseFlags *flags, Choices *choices, Error *err) {
  size_t capacity = 0;
  choices->by = (ChooseBy)flags->by;
  for (size_t i = 0; i < flags->lists.count; i++) {
    TRY(text_check("--choose", flags->lists.items[i], err));
    TRY(add_list(choices, flags->lists.items[i], &capacity, err));
  }
  for (size_t i = 0; i < flags->answers.count; i++) {
    const char *text = flags->answers.items[i];
    TRY(text_check("--choice", text, err));
    TRY(add_choice(choices, text, strlen(text), &capacity, err));
  }
  if (flags->exit_choice && choices->n > MAX_EXIT_CHOICES)
    return error_set(err, STATUS_USAGE, "--exit-choice has room for %d answers, not for %zu",
                     MAX_EXIT_CHOICES, choices->n);
  return STATUS_OK;
}

void choices_release(Choices *choices) {
  for (size_t i = 0; i < choices->n; i++) id_list_release(&choices->items[i].ids);
  free(choices->items);
  free(choices->log_p);
  id_list_release(&choices->prompt);
  *choices = (Choices){0};
}

/* --- prompt and answer as one text */

/* The pieces of a prompt, with room for four more: three that close a thought, and an answer. */
typedef struct {
  TrustedText text;
  PromptPiece *pieces;
  size_t n;
  bool add_special;
} Pieces;

static Status render(const Assistant *a, const ChatMessage *messages, size_t n_messages, Pieces *prompt,
                     Error *err) {
  const bool trusted = a->flags->chat.parse_special;
  const ChatMessage *last = &messages[n_messages - 1];
  ChatOptions options = {.add_generation_prompt = true, .think = a->think, .trusted = trusted};
  prompt->add_special = !a->chat;
  if (a->chat) TRY(chat_render(a->chat, messages, n_messages, options, &prompt->text, err));
  size_t n_runs = a->chat ? prompt->text.n_runs : 1, start = 0;
  TRY(NEW(prompt->pieces, n_runs + 4, "a prompt", err));
  if (!a->chat) {
    prompt->pieces[prompt->n++] = (PromptPiece){last->text ? last->text : "", last->size, trusted};
    return STATUS_OK;
  }
  for (size_t i = 0; i < n_runs; start = prompt->text.runs[i++].end) {
    const TextRun *run = &prompt->text.runs[i];
    prompt->pieces[prompt->n++] =
        (PromptPiece){prompt->text.text.data + start, run->end - start, run->trusted || trusted};
  }
  return STATUS_OK;
}

/* Closes a thought that the template has opened, in the way that templates write an empty thought. If
 * messages have channels (gpt-oss), begins the message of the channel "final" instead. */
static void close_thought(const Assistant *a, Pieces *prompt) {
  if (!a->thinking.open || prompt->n == 0) return;
  static const char channel[] = "<|channel|>", final[] = "<|channel|>final<|message|>";
  if (a->chat && strncmp(a->thinking.open, channel, strlen(channel)) == 0) {
    prompt->pieces[prompt->n++] = (PromptPiece){final, strlen(final), true};
    return;
  }
  const PromptPiece *last = &prompt->pieces[prompt->n - 1];
  size_t length = strlen(a->thinking.open), size = last->size;
  while (size && strchr(" \t\r\n", last->text[size - 1])) size--;
  if (!last->trusted || size < length || memcmp(last->text + size - length, a->thinking.open, length) != 0)
    return;
  const char *const closing[] = {"\n", a->thinking.close, "\n\n"};
  for (int i = 0; i < 3; i++)
    prompt->pieces[prompt->n++] = (PromptPiece){closing[i], strlen(closing[i]), true};
}

static Status encode(const Assistant *a, const Pieces *prompt, size_t n, IdList *ids, Error *err) {
  ids->count = 0;
  TRY(tokenizer_encode_pieces(a->tokenizer, prompt->pieces, n, prompt->add_special, ids, err));
  return ids_check(a->model, ids->ids, ids->count, "the prompt", IDS_ENCODED, err);
}

static Status encode_all(Choices *choices, const Assistant *a, Pieces *prompt, Error *err) {
  TRY(encode(a, prompt, prompt->n, &choices->prompt, err));
  size_t common = choices->prompt.count;
  for (size_t i = 0; i < choices->n; i++) {
    Choice *choice = &choices->items[i];
    prompt->pieces[prompt->n] = (PromptPiece){choice->text, choice->size, a->flags->chat.parse_special};
    TRY(encode(a, prompt, prompt->n + 1, &choice->ids, err));
    size_t same = 0;
    while (same < common && same < choice->ids.count && choice->ids.ids[same] == choices->prompt.ids[same])
      same++;
    common = same;
  }
  if (common == 0)
    return error_set(err, STATUS_USAGE, "the prompt has no tokens that an answer could stand behind");
  choices->prompt.count = common;
  return STATUS_OK;
}

static void pieces_release(Pieces *prompt) {
  free(prompt->pieces);
  trusted_text_release(&prompt->text);
}

static Status encode_messages(Choices *choices, const Assistant *a, const ChatMessage *messages,
                              size_t n_messages, Error *err) {
  OWNED(pieces_release) Pieces prompt = {0};
  TRY(render(a, messages, n_messages, &prompt, err));
  close_thought(a, &prompt);
  return encode_all(choices, a, &prompt, err);
}

/* --- scores */

void choices_prepare(Assistant *a) {
  if (a->thinking.can_switch) a->think = THINK_NO;
  a->session_options.max_logit_rows = CHOICE_LOGIT_ROWS;
  a->chooses = true;
}

/* Tokens of the prompt and of its longest answer but the last, which are to be computed. */
static size_t n_to_compute(const Choices *choices) {
  size_t longest = 1;
  for (size_t i = 0; i < choices->n; i++)
    if (choices->items[i].ids.count > longest) longest = choices->items[i].ids.count;
  return longest - 1;
}

static Status check_lengths(Choices *choices, const Assistant *a, Error *err) {
  size_t all = 0, common = choices->prompt.count;
  for (size_t i = 0; i < choices->n; i++) {
    Choice *choice = &choices->items[i];
    if (choice->ids.count == common)
      return error_set(err, STATUS_USAGE, "the answer \"%.*s\" adds no token to the prompt",
                       (int)choice->size, choice->text);
    choice->n_tokens = (int)(choice->ids.count - common);
    choice->first = all;
    all += choice->ids.count - common;
  }
  TRY(assistant_check_prompt(a, n_to_compute(choices), assistant_n_ctx(a), err));
  TRY(mem_grow(&choices->log_p, &choices->n_log_p, all, sizeof *choices->log_p, "scores", err));
  return STATUS_OK;
}

static Status add_up(const Choices *choices, Choice *choice, Error *err) {
  choice->sum = 0;
  for (int i = 0; i < choice->n_tokens; i++) choice->sum += choices->log_p[choice->first + (size_t)i];
  choice->mean = choice->sum / choice->n_tokens;
  if (!isnan(choice->sum)) return STATUS_OK;
  return error_set(
      err, STATUS_FAILED,
      "the logits hold a NaN or an infinity: the model's weights or their arithmetic are broken");
}

void choices_rank(Choices *choices) {
  double highest = -INFINITY, total = 0;
  choices->best = 0;
  for (size_t i = 0; i < choices->n; i++) {
    const Choice *choice = &choices->items[i], *best = &choices->items[choices->best];
    bool better = choices->by == CHOOSE_BY_MEAN ? choice->mean > best->mean : choice->sum > best->sum;
    if (better) choices->best = i;
    if (choice->sum > highest) highest = choice->sum;
  }
  for (size_t i = 0; i < choices->n; i++) {
    Choice *choice = &choices->items[i];
    choice->probability = isinf(highest) ? 1 : exp(choice->sum - highest);
    total += choice->probability;
  }
  for (size_t i = 0; i < choices->n; i++) choices->items[i].probability /= total;
}

typedef struct {
  Choices *choices;
  size_t n_asked;
} Asking;

static Status next_choice(void *user, bool may_wait, EngineRequest *request, bool *found, Error *err) {
  Asking *asking = user;
  *found = asking->n_asked < asking->choices->n;
  if (!*found) return STATUS_OK;
  *request = choices_request(asking->choices, asking->n_asked++);
  request->alone = true;
  return STATUS_OK;
}

static Status done_choice(void *user, const EngineRequest *request, const EngineResult *result, Error *err) {
  return choices_take(((Asking *)user)->choices, request, result, err);
}

/* Begins with answers and a prompt that are encoded. */
static Status prepare_scores(Choices *choices, const Assistant *a, Error *err) {
  TRY(check_lengths(choices, a, err));
  choices->n_prompt = (int)choices->prompt.count;
  choices->n_reused = 0;
  choices->prefill_ms = choices->score_ms = 0;
  return STATUS_OK;
}

/* Computes the scores and the best answer. PRECOND encode_messages() */
static Status score(Choices *choices, Assistant *a, Error *err) {
  Asking asking = {.choices = choices};
  const EngineJob job = {
      .next = next_choice, .done = done_choice, .interrupted = a->interrupted, .user = &asking};
  TRY(assistant_renew(a, n_to_compute(choices), err));
  TRY(prepare_scores(choices, a, err));
  TRY(assistant_run(a, (int)choices->n, &job, err));
  choices_rank(choices);
  return STATUS_OK;
}

Status choices_ask(Choices *choices, const Assistant *a, const ChatMessage *messages, size_t n_messages,
                   Error *err) {
  TRY(encode_messages(choices, a, messages, n_messages, err));
  return prepare_scores(choices, a, err);
}

EngineRequest choices_request(Choices *choices, size_t index) {
  Choice *choice = &choices->items[index];
  return (EngineRequest){.ids = choice->ids.ids,
                         .n_ids = (int)choice->ids.count,
                         .log_p = choices->log_p + choice->first,
                         .n_scored = choice->n_tokens,
                         .user = choice};
}

/* The answers of a record share its prompt, so n_reused and prefill_ms are those of the first answer. Lengths
 * were checked, so a failure is not the fault of the record. */
Status choices_take(Choices *choices, const EngineRequest *request, const EngineResult *done, Error *err) {
  Choice *choice = request->user;
  if (done->status) return error_set(err, STATUS_FAILED, "%s", done->error.text);
  if (choice == choices->items) choices->n_reused = done->n_reused;
  if (choice == choices->items) choices->prefill_ms = done->prefill_ms;
  choices->score_ms += done->generated.decode_ms;
  return add_up(choices, choice, err);
}

/* --- output */

/* JSON has no infinities: an infinite score is null. */
static Status put_number(Buffer *out, const char *key, double value, Error *err) {
  if (isinf(value)) return buffer_printf(out, err, ", \"%s\": null", key);
  return buffer_printf(out, err, ", \"%s\": %.9g", key, value);
}

Status choices_json(const Choices *choices, const char *model, Buffer *out, Error *err) {
  const Choice *best = &choices->items[choices->best];
  const JsonWriter w = {out, err};
  TRY(json_put_text(w, "choice", best->text, best->size));
  TRY(buffer_printf(out, err, ", \"choice_index\": %zu, \"scores\": [", choices->best));
  int n_scored = 0;
  for (size_t i = 0; i < choices->n; i++) {
    const Choice *choice = &choices->items[i];
    TRY(json_put_raw(w, NULL, "{"));
    TRY(json_put_text(w, "text", choice->text, choice->size));
    TRY(json_put_int(w, "tokens", choice->n_tokens));
    TRY(put_number(out, "sum", choice->sum, err));
    TRY(put_number(out, "mean", choice->mean, err));
    TRY(put_number(out, "probability", choice->probability, err));
    TRY(buffer_append(out, "}", 1, err));
    n_scored += choice->n_tokens;
  }
  TRY(buffer_printf(out, err,
                    "], \"usage\": {\"prompt_tokens\": %d, \"reused_tokens\": %d, \"scored_tokens\": %d}, "
                    "\"timings\": {\"prompt_ms\": %.3f, \"score_ms\": %.3f}",
                    choices->n_prompt, choices->n_reused, n_scored, choices->prefill_ms, choices->score_ms));
  return json_put_string(w, "model", model);
}

/* --- one shot */

static Status write_best(const Choices *choices, const char *model, const ReplyFlags *reply, Buffer *out,
                         Error *err) {
  const Choice *best = &choices->items[choices->best];
  if (reply->json) {
    TRY(buffer_append(out, "{", 1, err));
    TRY(choices_json(choices, model, out, err));
    return buffer_append(out, "}\n", 2, err);
  }
  TRY(buffer_append(out, best->text, best->size, err));
  return best->text[best->size - 1] == '\n' ? STATUS_OK : buffer_append(out, "\n", 1, err);
}

Status choose_run(const ChooseFlags *flags, const PromptFlags *prompt, const ReplyFlags *reply,
                  const AssistantFlags *assistant_flags, Assistant *a, Error *err) {
  OWNED(choices_release) Choices choices = {0};
  OWNED(prompt_release) Prompt parts = {0};
  OWNED(buffer_release) Buffer text = {0}, out = {0};
  TRY(choices_open(flags, &choices, err));
  TRY(assistant_open(assistant_flags, a, err));
  TRY(reply_check_output(reply, prompt, a, err));
  choices_prepare(a);
  TRY(prompt_read(prompt, &parts, err));
  TRY(prompt_join(&parts, parts.input.data ? parts.input.data : "", parts.input.size, &text, err));
  ChatMessage messages[2];
  const size_t n = assistant_messages(a, text.data, text.size, messages);
  TRY(encode_messages(&choices, a, messages, n, err));
  TRY(assistant_start(a, n_to_compute(&choices), err));
  const Status status = score(&choices, a, err);
  TRY(assistant_check_weights(a, err)); /* changed weights may explain the failure, too */
  TRY(status);
  TRY(write_best(&choices, a->place.name, reply, &out, err));
  TRY(reply_write(reply, &out, err));
  if (reply_shows_usage(reply, assistant_flags))
    fprintf(stderr, "auk: prompt %d tokens, %.1f ms; %zu answers, %.1f ms\n", choices.n_prompt,
            choices.prefill_ms, choices.n, choices.score_ms);
  return flags->exit_choice ? (Status)(STATUS_CHOICE + (int)choices.best) : STATUS_OK;
}
