/* map_answer.c - see map_answer.h. Called by: map.c, map_many.c. */
#include "commands/map/map_answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "commands/common.h"

/* --- the prompt */

/* Puts the system message of -sys first, unless the record's own messages begin with one. */
static Status add_system(Mapping *m, Error *err) {
  const Assistant *a = m->assistant;
  MapPrompt *prompt = &m->prompt;
  if (!a->has_system || (prompt->is_chat && strcmp(prompt->messages[0].role, "system") == 0))
    return STATUS_OK;
  TRY(mem_grow(&prompt->messages, &prompt->capacity, prompt->n_messages + 1, sizeof *prompt->messages,
               "a conversation", err));
  memmove(prompt->messages + 1, prompt->messages, prompt->n_messages * sizeof *prompt->messages);
  prompt->messages[0] =
      (ChatMessage){.role = "system", .text = a->system.data ? a->system.data : "", .size = a->system.size};
  prompt->n_messages++;
  return STATUS_OK;
}

static Status add_user(MapPrompt *prompt, Error *err) {
  if (prompt->is_chat) return STATUS_OK;
  TRY(mem_grow(&prompt->messages, &prompt->capacity, 1, sizeof *prompt->messages, "a conversation", err));
  prompt->messages[0] = (ChatMessage){
      .role = "user", .text = prompt->text.data ? prompt->text.data : "", .size = prompt->text.size};
  prompt->n_messages = 1;
  return STATUS_OK;
}

/* Encodes with --truncate as for a single prompt, with the record in place of standard input and files. */
static Status encode_cut(Mapping *m, const Record *record, Error *err) {
  const PromptFlags *flags = m->job->prompt;
  const Prompt prompt = {.frame = prompt_text(flags),
                         .n_places = m->pattern.n_places,
                         .input = {.data = (char *)record->text, .size = record->size}};
  return prompt_encode(&prompt, m->assistant, (Truncation)flags->truncate, &m->ids, err);
}

/* Sets the form's schema to that in the record, if each record has its own. */
static Status take_schema(Mapping *m, const Record *record, Error *err) {
  AnswerForm *form = &m->form;
  char name[64];
  if (!form->member) return STATUS_OK;
  const JsonSpan schema =
      json_span_find((JsonSpan){record->text, record->size}, form->member, form->member_size);
  if (!schema.text)
    return error_set(err, STATUS_USAGE, "the record has no member %.*s (--json-schema)",
                     (int)form->member_size, form->member);
  snprintf(name, sizeof name, "the record's %.*s", (int)form->member_size, form->member);
  return form_set_schema(form, name, schema.text, schema.size, err);
}

static Status make_prompt(Mapping *m, const Record *record, Error *err) {
  m->ids.count = 0;
  TRY(map_prompt_fill(&m->pattern, record, &m->prompt, err));
  TRY(take_schema(m, record, err));
  TRY(add_user(&m->prompt, err));
  TRY(add_system(m, err));
  if (m->choices.n) return STATUS_OK; /* scoring encodes the prompt itself */
  if (m->job->prompt->truncate) return encode_cut(m, record, err);
  return assistant_encode(m->assistant, m->prompt.messages, m->prompt.n_messages, &m->ids, err);
}

/* --- the common prefix of all prompts */

/* Encodes the prompt of a record with the text `filling`; no ids if the template refuses it. */
static Status encode_outline(Mapping *m, const char *filling, IdList *ids, Error *err) {
  TRY(map_prompt_outline(&m->pattern, filling, &m->prompt, err));
  TRY(add_user(&m->prompt, err));
  TRY(add_system(m, err));
  Status status = assistant_encode(m->assistant, m->prompt.messages, m->prompt.n_messages, ids, err);
  if (status != STATUS_USAGE && status != STATUS_MODEL) return status;
  ids->count = 0;
  return STATUS_OK;
}

static size_t common_prefix(const IdList *a, const IdList *b) {
  size_t n = 0;
  while (n < a->count && n < b->count && a->ids[n] == b->ids[n]) n++;
  return n;
}

Status map_begin(Mapping *m, Error *err) {
  const MapJob *job = m->job;
  const bool reproducible = job->assistant->sampling.seed.given && prompt_text(job->prompt) &&
                            job->map->input && m->assistant->device.backend != &cpu_backend;
  if (!reproducible) return STATUS_OK;
  m->ids.count = 0;
  TRY(encode_outline(m, "a", &m->prefix, err));
  TRY(encode_outline(m, "0", &m->ids, err));
  m->prefix.count = common_prefix(&m->prefix, &m->ids);
  m->base = &m->prefix;
  return STATUS_OK;
}

/* --- the answer */

static Status take_shown(void *user, const char *bytes, size_t size, Error *err) {
  Mapping *m = user;
  return buffer_append(&m->shown, bytes, size, err);
}

static Status take_text(void *user, TextKind kind, const char *text, size_t size, Error *err) {
  return show_text(&((Mapping *)user)->show, kind, text, size, err);
}

static void begin_answer(Mapping *m, size_t index) {
  answer_text_clear(&m->text);
  m->text.extracts = m->job->reply->code;
  m->text.scores.n_best = m->job->reply->logprobs;
  m->show.write = take_shown;
  m->show.user = m;
  m->show.thoughts = m->job->assistant->chat.show_thinking;
  m->show.open = m->assistant->thinking.open;
  m->show.close = m->assistant->thinking.close;
  show_begin(&m->show);
  m->sink = (AnswerSink){.answer = &m->text, .text = m->format == RESULTS_JSON ? NULL : take_text, .user = m};
  m->assistant->sampler.seed = m->seed + index;
}

static void count(Mapping *m) {
  const AnswerResult *result = &m->result;
  m->n_answered++;
  m->n_prompt += (uint64_t)result->n_prompt;
  m->n_reused += (uint64_t)result->n_reused;
  m->n_generated += (uint64_t)result->n_generated;
  if (answer_was_cut(result)) m->n_cut++;
}

/* Counts an answer whose text has ended. */
static Status end_answer(Mapping *m, Error *err) {
  count(m);
  m->n_incomplete += answer_is_incomplete(&m->result, m->assistant);
  if (!m->result.has_no_block) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "the answer has no fenced code block (-x)");
}

static Status take_choice(Mapping *m, Error *err) {
  m->result =
      (AnswerResult){.reason = FINISH_STOP, .n_prompt = m->choices.n_prompt, .n_reused = m->choices.n_reused};
  count(m);
  const Choice *best = &m->choices.items[m->choices.best];
  return buffer_append(&m->shown, best->text, best->size, err);
}

/* --- the result */

static Status begin_object(const Mapping *m, const Record *record, Buffer *line, Error *err) {
  const MapFlags *map = m->job->map;
  const JsonWriter w = {line, err};
  if (map->input)
    TRY(result_object(record->index, record->hash, m->settings.hash, line, err));
  else
    TRY(buffer_printf(line, err, "{\"index\": %zu", record->index));
  if (map->n_best > 1) {
    TRY(json_put_size(w, "prompt", record->index / (size_t)map->n_best));
    TRY(json_put_int(w, "answer", record->copy));
  }
  if (!m->prompt.id.text) return STATUS_OK;
  TRY(json_put_key(w, "id"));
  return buffer_append(line, m->prompt.id.text, m->prompt.id.size, err);
}

static Status put_object(Mapping *m, const Record *record, Buffer *line, Error *err) {
  TRY(begin_object(m, record, line, err));
  TRY(m->choices.n ? choices_json(&m->choices, m->assistant->place.name, line, err)
                   : answer_json(line, &m->text, &m->ids, &m->result, m->job->reply, m->assistant, err));
  return buffer_append(line, "}\n", 2, err);
}

static Status put_result(Mapping *m, const Record *record, Buffer *line, Error *err) {
  if (m->format == RESULTS_JSON) return put_object(m, record, line, err);
  if (m->format == RESULTS_TEXTS && record->index > 0) TRY(buffer_append(line, "\n", 1, err));
  return result_text(m->format, m->shown.data ? m->shown.data : "", m->shown.size, line, err);
}

Status map_error(Mapping *m, const Record *record, const Error *error, Buffer *line, Error *err) {
  line->size = 0;
  if (m->format == RESULTS_TEXTS && record->index > 0) TRY(buffer_append(line, "\n", 1, err));
  if (m->format != RESULTS_JSON) return result_error(m->format, error->text, line, err);
  TRY(begin_object(m, record, line, err));
  TRY(json_put_string((JsonWriter){line, err}, "error", error->text));
  return buffer_append(line, "}\n", 2, err);
}

/* --- requests */

Status map_begin_another(const Mapping *first, Assistant *assistant, Mapping *other, Error *err) {
  *other = (Mapping){.job = first->job,
                     .assistant = assistant,
                     .settings = first->settings,
                     .pattern = first->pattern,
                     .base = first->base,
                     .seed = first->seed,
                     .format = first->format};
  TRY(form_copy(&assistant->form, &other->form, err));
  return first->choices.n ? choices_open(first->job->choose, &other->choices, err) : STATUS_OK;
}

/* Sets `base`: the prefix of all prompts, if it is computed in steps of its own. Sets `alone`: true if
 * requests come one at a time. */
static void set_place(const Mapping *m, EngineRequest *request) {
  request->alone = m->assistant->batch_options.n_sequences == 1;
  static const int32_t none[1]; /* an empty base: NULL would mean that there is no base */
  request->base = !m->base ? NULL : m->base->count ? m->base->ids : none;
  request->n_base = m->base ? (int)m->base->count : 0;
}

void map_ask_more(Mapping *m, EngineRequest *request) {
  *request = choices_request(&m->choices, m->n_asked++);
  set_place(m, request);
}

Status map_ask(Mapping *m, const Record *record, EngineRequest *request, Error *err) {
  m->shown.size = 0;
  TRY(make_prompt(m, record, err));
  if (m->choices.n) {
    TRY(choices_ask(&m->choices, m->assistant, m->prompt.messages, m->prompt.n_messages, err));
    m->n_asked = m->n_scored = 0;
    map_ask_more(m, request);
    return STATUS_OK;
  }
  begin_answer(m, record->index);
  TRY(answer_ask(m->assistant, &m->form, m->ids.ids, m->ids.count, &m->sink, &m->result, &m->answer, request,
                 err));
  set_place(m, request);
  return STATUS_OK;
}

static Status take_answer(Mapping *m, const EngineResult *done, Error *err) {
  Status status = answer_end(m->answer, done, err);
  answer_free(m->answer);
  m->answer = NULL;
  return status ? status : end_answer(m, err);
}

Status map_reply(Mapping *m, const Record *record, const EngineRequest *request, const EngineResult *done,
                 bool *complete, Buffer *line, Error *err) {
  *complete = true;
  line->size = 0;
  if (m->choices.n) {
    TRY(choices_take(&m->choices, request, done, err));
    *complete = ++m->n_scored == m->choices.n;
    if (!*complete) return STATUS_OK;
    choices_rank(&m->choices);
    TRY(take_choice(m, err));
  } else {
    TRY(take_answer(m, done, err));
  }
  return put_result(m, record, line, err);
}

static void release_record(Mapping *m) {
  answer_free(m->answer);
  map_prompt_release(&m->prompt);
  id_list_release(&m->ids);
  answer_text_release(&m->text);
  buffer_release(&m->shown);
  show_release(&m->show);
}

void mapping_release_another(Mapping *m) {
  form_release(&m->form);
  choices_release(&m->choices);
  release_record(m);
}

void mapping_release(Mapping *m) {
  choices_release(&m->choices);
  map_settings_release(&m->settings);
  prompt_pattern_release(&m->pattern);
  id_list_release(&m->prefix);
  release_record(m);
}
