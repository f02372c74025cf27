/* map_job.c - see map_job.h. Called by: commands/map/map.c. The settings leave out the device, kernels,
 * threads and the build: these change only the last bits of a logit. They leave out -p and -f too: each
 * record's hash covers them. */
#include "commands/map/map_job.h"

#include <stdio.h>
#include <string.h>

#include "model/identity.h"

static Status add_text(MapSettings *s, const char *name, const char *text, Error *err) {
  return map_settings_add(s, name, text, strlen(text), NULL, err);
}

static Status add_int(MapSettings *s, const char *name, long long value, Error *err) {
  char text[32];
  snprintf(text, sizeof text, "%lld", value);
  return add_text(s, name, text, err);
}

static Status add_switch(MapSettings *s, const char *name, bool on, Error *err) {
  return add_text(s, name, on ? "on" : "off", err);
}

static Status add_number(MapSettings *s, const char *name, double value, Error *err) {
  char exact[32], what[32];
  snprintf(exact, sizeof exact, "%.17g", value);
  snprintf(what, sizeof what, "%g", value);
  return map_settings_add(s, name, exact, strlen(exact), what, err);
}

/* --- model */

static Status add_model(MapSettings *s, const Assistant *a, Error *err) {
  const ContentSearch search = {.directory = cache_known_directory(a->cache),
                                .may_read = true,
                                .n_threads = a->device.options.n_threads,
                                .interrupted = a->interrupted};
  ContentHash content = {0};
  bool known;
  TRY(model_content(a->model, &search, &content, &known, err));
  if (!known) return error_set(err, STATUS_FAILED, "%s has changed since it was opened", a->place.path);
  return map_settings_add(s, "model", &content, sizeof content, a->place.name, err);
}

static Status add_tokenizer(MapSettings *s, const Assistant *a, Error *err) {
  const char *path = a->model->tokenizer_path, *slash = strrchr(path, '/');
  const JsonSpan declared = tokenizer_declared(a->tokenizer);
  OWNED(buffer_release) Buffer all = {0};
  OWNED(file_unmap) MappedFile file = {0};
  TRY(file_map(path, STATUS_MODEL, &file, err));
  TRY(buffer_append(&all, file.size ? (const void *)file.data : "", file.size, err));
  TRY(buffer_append(&all, declared.size ? declared.text : "", declared.size, err));
  return map_settings_add(s, "--tokenizer", all.data ? all.data : "", all.size, slash ? slash + 1 : path,
                          err);
}

static Status add_chat(MapSettings *s, const Assistant *a, Error *err) {
  const ChatFlags *flags = &a->flags->chat;
  uint64_t hash = a->chat ? chat_hash(a->chat) : 0;
  const char *source = a->chat ? chat_source(a->chat) : "none";
  TRY(map_settings_add(s, "--chat-template", &hash, sizeof hash, source, err));
  /* An empty system prompt is a message: it is hashed as one NUL. No system prompt is hashed as no bytes. */
  const bool is_empty = a->has_system && a->system.size == 0;
  const char *system = a->system.size ? a->system.data : "", *what = is_empty ? "empty" : "none";
  const size_t size = is_empty ? 1 : a->system.size;
  TRY(map_settings_add(s, "-sys", system, size, a->system.size ? NULL : what, err));
  TRY(add_switch(s, "--parse-special", flags->parse_special, err));
  static const char *const thinks[] = {[THINK_UNSAID] = "unsaid", [THINK_NO] = "off", [THINK_YES] = "on"};
  TRY(add_text(s, "--think", thinks[a->think], err));
  TRY(add_int(s, "--think-budget", a->think_budget, err));
  TRY(add_switch(s, "--show-thinking", flags->show_thinking, err));
  return add_switch(s, "--hide-thinking", flags->hide_thinking, err);
}

/* --- the answer */

/* A list of texts. exact: each text with its NUL, so that "a", "b" differs from "ab". what: the list as a
 * message shows it. */
typedef struct {
  Buffer exact, what;
} TextList;

static void list_release(TextList *list) {
  buffer_release(&list->exact);
  buffer_release(&list->what);
}

static Status add_item(TextList *list, const char *text, size_t size, const char *quote, Error *err) {
  const char *between = list->what.size ? *quote ? ", " : "," : "";
  TRY(buffer_append(&list->exact, text, size, err));
  TRY(buffer_append(&list->exact, "", 1, err));
  return buffer_printf(&list->what, err, "%s%s%.*s%s", between, quote, (int)size, text, quote);
}

static Status add_list(MapSettings *s, const char *name, const TextList *list, Error *err) {
  const bool some = list->exact.size;
  return map_settings_add(s, name, some ? list->exact.data : "", list->exact.size,
                          some ? list->what.data : "none", err);
}

static Status add_stops(MapSettings *s, const StringList *stops, Error *err) {
  OWNED(list_release) TextList list = {0};
  for (size_t i = 0; i < stops->count; i++)
    TRY(add_item(&list, stops->items[i], strlen(stops->items[i]), "\"", err));
  return add_list(s, "--stop", &list, err);
}

static Status add_choices(MapSettings *s, const Choices *choices, Error *err) {
  OWNED(list_release) TextList list = {0};
  for (size_t i = 0; i < choices->n; i++)
    TRY(add_item(&list, choices->items[i].text, choices->items[i].size, "", err));
  TRY(add_list(s, "--choose", &list, err));
  return add_text(s, "--choose-by", choices->by == CHOOSE_BY_MEAN ? "mean" : "sum", err);
}

static Status add_ends(MapSettings *s, const Assistant *a, Error *err) {
  const AnswerFlags *flags = &a->flags->answer;
  const IdList *ends = &a->ends;
  char what[32];
  snprintf(what, sizeof what, "%zu", ends->count);
  TRY(add_int(s, "-n", a->max_tokens, err));
  TRY(add_stops(s, &flags->stops, err));
  TRY(add_switch(s, "--ignore-eos", flags->ignore_eos, err));
  const void *ids = ends->count ? (const void *)ends->ids : "";
  return map_settings_add(s, "end-tokens", ids, ends->count * sizeof *ends->ids, what, err);
}

/* Adds the sampler's settings. Without -s the line is "-s -1": each run may then have another seed. */
static Status add_sampling(MapSettings *s, const Assistant *a, Error *err) {
  const SamplerSettings *sampler = &a->sampler;
  const Seed *seed = &a->flags->sampling.seed;
  TRY(add_number(s, "--temp", sampler->temperature, err));
  TRY(add_int(s, "--top-k", sampler->top_k, err));
  TRY(add_number(s, "--top-p", sampler->top_p, err));
  TRY(add_number(s, "--min-p", sampler->min_p, err));
  TRY(add_number(s, "--repeat-penalty", sampler->repetition_penalty, err));
  TRY(add_number(s, "--presence-penalty", sampler->presence_penalty, err));
  TRY(add_number(s, "--frequency-penalty", sampler->frequency_penalty, err));
  char text[32] = "-1";
  if (seed->given) snprintf(text, sizeof text, "%llu", (unsigned long long)seed->value);
  return add_text(s, "-s", text, err);
}

/* Adds the form of answers: its flag, what it is compiled from, its options, and the tools. */
static Status add_answer_form(MapSettings *s, const Assistant *a, Error *err) {
  const AnswerForm *form = &a->form;
  OWNED(list_release) TextList list = {0};
  if (form->given) TRY(add_item(&list, form->flag, strlen(form->flag), "", err));
  if (form->member)
    TRY(add_item(&list, form->member, form->member_size, "", err));
  else if (form->given)
    TRY(add_item(&list, form->text.size ? form->text.data : "", form->text.size, "", err));
  if (form->any_order) TRY(add_item(&list, "any", 3, "", err));
  if (form->lenient) TRY(add_item(&list, "lenient", 7, "", err));
  if (a->tools.given) TRY(add_item(&list, a->tools.list.data, a->tools.list.size, "", err));
  if (a->tools.required) TRY(add_item(&list, "required", 8, "", err));
  return add_list(s, "answer-form", &list, err);
}

static Status add_form(MapSettings *s, const MapJob *job, Error *err) {
  static const char *const cuts[] = {
      [TRUNCATE_NONE] = "none", [TRUNCATE_START] = "start", [TRUNCATE_MIDDLE] = "middle"};
  TRY(add_text(s, "--truncate", cuts[job->prompt->truncate], err));
  TRY(add_switch(s, "--map-json", job->map->json, err));
  TRY(add_switch(s, "-x", job->reply->code, err));
  TRY(add_switch(s, "--ids", job->reply->ids, err));
  if (job->reply->logprobs) TRY(add_int(s, "--logprobs", job->reply->logprobs, err));
  return job->map->n_best > 1 ? add_int(s, "--n-best", job->map->n_best, err) : STATUS_OK;
}

/* Adds the settings that change more than the last bits of results (int8 activations, a rounded cache), and
 * -c. Adds --invariant where it is on, also by default: a resumed run must then not change any bit of an
 * answer. */
static Status add_arithmetic(MapSettings *s, const Assistant *a, Error *err) {
  const DeviceFlags *flags = &a->flags->device;
  TRY(add_text(s, "--act", flags->act ? "int8" : "f16", err));
  TRY(add_text(s, "--kv", kv_type_name(a->session_options.kv), err));
  const int context = a->flags->answer.context;
  if (a->device.invariant) TRY(add_switch(s, "--invariant", true, err));
  if (flags->states) TRY(add_text(s, "--states", states_type_name((StatesType)flags->states), err));
  return context == NOT_GIVEN ? add_text(s, "-c", "not given", err) : add_int(s, "-c", context, err);
}

Status map_job_settings(const MapJob *job, const Assistant *a, const Choices *choices, MapSettings *s,
                        Error *err) {
  TRY(add_model(s, a, err));
  TRY(add_tokenizer(s, a, err));
  TRY(add_chat(s, a, err));
  TRY(add_ends(s, a, err));
  TRY(add_sampling(s, a, err));
  TRY(add_choices(s, choices, err));
  TRY(add_answer_form(s, a, err));
  TRY(add_form(s, job, err));
  return add_arithmetic(s, a, err);
}
