/* assistant.c - see assistant.h: opening, prompts, context. */
#include "commands/answer/assistant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/size_text.h"
#include "commands/common.h"
#include "commands/input_text.h"
#include "commands/keep/start.h"
#include "engine/batch_memory.h"
#include "model/identity.h"

#define SYSTEM_IS_USUAL MEMBER_OF_TYPE(ChatFlags, system_is_usual, bool)
#define THINK_IS_USUAL  MEMBER_OF_TYPE(ChatFlags, think_is_usual, bool)
const Flag chat_flags[] = {
    FLAG_OF(KIND_STRING, const char *, "-sys, --system, --system-prompt", "TEXT", ChatFlags, system,
            "instructions to the model: the system prompt", .weak = SYSTEM_IS_USUAL),
    FLAG_OF(KIND_STRING, const char *, "-sysf, --system-prompt-file", "FILE", ChatFlags, system_file,
            "the same from a file", .hint = VALUE_FILE, .weak = SYSTEM_IS_USUAL),
    FLAG_OF(KIND_SWITCH, bool, "--think", NULL, ChatFlags, think,
            "lets the model think before it answers, if its template leaves the choice",
            .weak = THINK_IS_USUAL),
    FLAG_OF(KIND_SWITCH, bool, "--no-think", NULL, ChatFlags, no_think,
            "lets the model answer without a thought: its template says so, or auk closes the thought as "
            "soon as it begins",
            .weak = THINK_IS_USUAL),
    FLAG_INT("--think-budget, --reasoning-budget", "N", ChatFlags, think_budget, -1, INT_MAX,
             "ends a thought after N tokens, so that the answer begins (default -1: no limit)"),
    FLAG_SWITCH("--hide-thinking, --hidethinking", ChatFlags, hide_thinking,
                "shows no thoughts, neither on a terminal nor with --json"),
    FLAG_SWITCH("--show-thinking", ChatFlags, show_thinking,
                "writes thoughts to a pipe or a file too, between the model's own marks"),
    FLAG_OF(
        KIND_STRING, const char *, "--chat-template, --chat-template-file", "NAME|FILE", ChatFlags,
        chat_template,
        "chatml, llama2, llama3, mistral, deepseek, gemma, phi, or a file with a Jinja template (default: "
        "the model's own)",
        .hint = VALUE_FILE, .words = CHAT_BUILTINS,
        .weak = MEMBER_OF_TYPE(ChatFlags, template_is_usual, bool)),
    FLAG_SWITCH("--raw, -no-cnv, --ignore-chat-template", ChatFlags, raw,
                "no chat template: the model gets the text as it is"),
    FLAG_SWITCH(
        "--parse-special", ChatFlags, parse_special,
        "text like <|im_end|> in the prompt becomes the special token; without this flag it stays text"),
};
const Flag answer_flags[] = {
    FLAG_INT("-n, --predict, --n-predict, --max-tokens, --max-new-tokens", "N", AnswerFlags, max_tokens, -1,
             INT_MAX,
             "at most N tokens in an answer (default -1: until the model ends it, the context is full, or "
             "the answer repeats itself)"),
    FLAG_OF(KIND_INT, int, "-c, --ctx-size", "N", AnswerFlags, context,
            "context: tokens of prompt and answer together; 0: the model's maximum (default: that, or fewer "
            "if they would take more than half of the memory that the weights leave free)",
            .low = 0, .high = INT_MAX, .weak = MEMBER_OF_TYPE(AnswerFlags, context_is_usual, bool)),
    FLAG_OF(KIND_STRINGS, StringList, "--stop, -r, --reverse-prompt", "TEXT", AnswerFlags, stops,
            "ends the answer before this text; may be repeated", .check = flag_check_filled),
    FLAG_SWITCH("--ignore-eos", AnswerFlags, ignore_eos, "goes on where the model ends"),
    FLAG_SWITCH("--plain", AnswerFlags, plain,
                "on a terminal: no colours, bold or dim text (so does NO_COLOR=1)"),
    FLAG_SWITCH("--no-wrap", AnswerFlags, no_wrap, "on a terminal: does not wrap lines between words"),
    FLAG_SWITCH("-v, --verbose", AnswerFlags, verbose, "settings and statistics to standard error"),
};
const Flag sampling_flags[] = {
    FLAG_DOUBLE("--temp, --temperature", "X", SamplingFlags, temperature, 0, 1000,
                "temperature; 0: greedy (default: the checkpoint's generation_config.json, else greedy)"),
    FLAG_INT("--top-k", "N", SamplingFlags, top_k, 0, INT_MAX, "only the N likeliest; 0: off"),
    FLAG_DOUBLE("--top-p", "X", SamplingFlags, top_p, 0, 1,
                "only the likeliest that together reach X; 1: off"),
    FLAG_DOUBLE("--min-p", "X", SamplingFlags, min_p, 0, 1,
                "only those at least X times as likely as the likeliest; 0: off"),
    FLAG_DOUBLE("--repeat-penalty, --repetition-penalty", "X", SamplingFlags, repetition_penalty, 0.001, 1000,
                "makes tokens less likely that are in the prompt or the answer; 1: off"),
    FLAG_DOUBLE("--presence-penalty", "X", SamplingFlags, presence_penalty, -1000, 1000,
                "makes tokens less likely that are in the answer (default 0: off)"),
    FLAG_DOUBLE("--frequency-penalty", "X", SamplingFlags, frequency_penalty, -1000, 1000,
                "the same for each time that the token is in the answer (default 0: off)"),
    FLAG_SEED("-s, --seed", SamplingFlags, seed,
              "the same seed gives the same answer (default -1: a new one each time)"),
};

static Status check_time(const char *name, const char *text, Error *err) {
  int seconds;
  return keep_time(name, text, &seconds, err);
}

const Flag keep_flags[] = {
    FLAG_OF(
        KIND_STRING, const char *, "--keep", "TIME", KeepFlags, time,
        "leaves a background process with the model in memory, for later calls; it ends after this long "
        "without one: 90s, 10m, 2h (default: $AUK_KEEP). Calls without --keep use it too; --keep 0 does not",
        .check = check_time),
};

/* --- what to sample with, where to end */

static double given_or(double flag, double otherwise) {
  return isnan(flag) ? otherwise : flag;
}

SamplerSettings sampling_settings(const SamplingFlags *flags, const GenerationDefaults *defaults) {
  return (SamplerSettings){
      .temperature = given_or(flags->temperature, defaults->do_sample ? defaults->temperature : 0),
      .top_k = flags->top_k == NOT_GIVEN ? defaults->top_k : flags->top_k,
      .top_p = given_or(flags->top_p, defaults->top_p),
      .min_p = given_or(flags->min_p, defaults->min_p),
      .repetition_penalty = given_or(flags->repetition_penalty, defaults->repetition_penalty),
      .presence_penalty = flags->presence_penalty,
      .frequency_penalty = flags->frequency_penalty,
      .seed = flags->seed.value,
  };
}

/* Prints which of the given flags --top-k, --top-p, --min-p and -s have no effect at temperature 0. Penalties
 * do have an effect: they change which token is likeliest. */
static void note_idle(const SamplingFlags *flags, const char *before, const char *after) {
  const char *given[4];
  char names[64] = "";
  int n = 0;
  if (flags->top_k != NOT_GIVEN) given[n++] = "--top-k";
  if (!isnan(flags->top_p)) given[n++] = "--top-p";
  if (!isnan(flags->min_p)) given[n++] = "--min-p";
  if (flags->seed.given) given[n++] = "-s";
  for (int i = 0; i < n; i++) strcat(strcat(names, i == 0 ? "" : i + 1 < n ? ", " : " and "), given[i]);
  if (n) print_note("%s%s %s no effect%s", before, names, n > 1 ? "have" : "has", after);
}

void sampling_note_idle(const SamplingFlags *flags) {
  if (flags->temperature == 0) note_idle(flags, "", " with --temp 0 (it always takes the likeliest token)");
}

static Status choose_sampler(Assistant *a, Error *err) {
  const SamplingFlags *flags = &a->flags->sampling;
  a->sampler = sampling_settings(flags, &a->model->config.generation);
  if (a->sampler.temperature == 0 && isnan(flags->temperature))
    note_idle(flags, "the model's temperature is 0: ", " (--temp X sets another)");
  return flags->seed.given ? STATUS_OK : random_seed(&a->sampler.seed, err);
}

static Status add_end(Assistant *a, const char *content, Error *err) {
  int32_t id = tokenizer_find(a->tokenizer, content);
  return id >= 0 && tokenizer_is_special(a->tokenizer, id) ? id_list_append(&a->ends, id, err) : STATUS_OK;
}

/* Collects end tokens: the checkpoint's, the chat template's, and every --stop that is itself a special token
 * (such a token never appears as text). A checkpoint that names no end tokens (a lone packed file) gets the
 * tokens in `usual` that its tokenizer has. */
static Status choose_ends(Assistant *a, Error *err) {
  static const char *const usual[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<|im_end|>", "<|eot_id|>"};
  const ModelConfig *config = &a->model->config;
  for (int i = 0; i < config->n_eos; i++) TRY(id_list_append(&a->ends, config->eos[i], err));
  for (size_t i = 0; i < sizeof usual / sizeof *usual && config->n_eos == 0; i++)
    TRY(add_end(a, usual[i], err));
  if (a->chat) TRY(chat_ends(a->chat, a->tokenizer, &a->ends, err));
  const StringList *stops = &a->flags->answer.stops;
  for (size_t i = 0; i < stops->count; i++) TRY(add_end(a, stops->items[i], err));
  return STATUS_OK;
}

/* Refuses a grammar with a token that ends answers: what follows it would never come. */
static Status check_grammar(const Assistant *a, Error *err) {
  for (size_t i = 0; i < a->ends.count && a->form.has_tokens; i++) {
    size_t size;
    const char *content = tokenizer_content(a->tokenizer, a->ends.ids[i], &size);
    if (grammar_names_token(a->form.constraint.grammar, a->ends.ids[i]))
      return error_set(
          err, STATUS_USAGE,
          "--grammar: the token %.*s ends the answer; leave it out of the grammar: the answer ends "
          "where its text is complete",
          (int)size, content ? content : "");
  }
  return STATUS_OK;
}

/* --- the chat */

static Status read_system(Assistant *a, Error *err) {
  const ChatFlags *flags = &a->flags->chat;
  a->has_system = flags->system || flags->system_file;
  if (flags->system) {
    TRY(text_check("-sys", flags->system, err));
    return buffer_append_string(&a->system, flags->system, err);
  }
  if (!flags->system_file) return STATUS_OK;
  TRY(file_name_check("-sysf", flags->system_file, err)); /* standard input is the prompt's */
  TRY(text_read(flags->system_file, &a->system, err));
  text_note_empty(flags->system_file, a->system.size);
  text_drop_newline(&a->system);
  return STATUS_OK;
}

static Status open_template(Assistant *a, Error *err) {
  OWNED(mem_release) char *directory = model_directory(a->model, err);
  return directory ? chat_open(directory, a->flags->chat.chat_template, a->tokenizer, &a->chat, err)
                   : STATUS_FAILED;
}

static Status open_chat(Assistant *a, Error *err) {
  const ChatFlags *flags = &a->flags->chat;
  a->think = flags->think ? THINK_YES : flags->no_think ? THINK_NO : THINK_UNSAID;
  a->think_budget = flags->think_budget;
  if (flags->raw) return STATUS_OK;
  TRY(open_template(a, err));
  if (a->chat) {
    a->thinking = chat_thinking(a->chat, a->tokenizer);
  } else if (!flags->system_is_usual && (flags->system || flags->system_file)) {
    return error_set(err, STATUS_USAGE,
                     "-sys needs a chat format, and %s has no chat template (--chat-template names one)",
                     a->place.path);
  }
  const char *missing = a->chat ? chat_missing_control(a->chat, a->tokenizer) : NULL;
  if (missing)
    print_note("--chat-template %s: this model's vocabulary has no %s, which it reads as ordinary text",
               flags->chat_template, missing);
  if (flags->think && !a->thinking.open && !flags->think_is_usual)
    fprintf(stderr, "auk: --think: the chat template of this model knows no thinking\n");
  return a->chat ? read_system(a, err) : STATUS_OK;
}

static Status open_tools(Assistant *a, Error *err) {
  const AssistantFlags *flags = a->flags;
  if (!flags->tools.file) return STATUS_OK;
  if (!a->chat)
    return error_set(err, STATUS_USAGE,
                     "--tools needs a chat format, and %s has no chat template (--chat-template names one)",
                     a->place.path);
  return tools_open(&flags->tools, &flags->form, a->chat, a->tokenizer, a->model->config.vocab_size,
                    &a->tools, &a->form, err);
}

void assistant_heed(Assistant *a, const volatile int *interrupted) {
  a->interrupted = interrupted;
  if (a->tokenizer) tokenizer_heed(a->tokenizer, interrupted);
  if (a->chat) chat_heed(a->chat, interrupted);
  constraint_heed(interrupted);
}

/* --- the engine, here or in a process that keeps the model */

/* True if the flags ask for something that a process keeping a model does not offer. */
static bool is_alone(const AssistantFlags *flags) {
  const bool cache = !flags->cache.off && (flags->cache.on || flags->cache.directory);
  return cache || flags->device.states != STATES_F32 || flags->guess.most > 0 || flags->guess.draft ||
         device_is_several(&flags->device) || device_split(&flags->device) == 0;
}

/* Tokens that -c asks for, or NOT_GIVEN. More than the model's maximum is cut if -c is from the settings
 * file, else refused later. */
static int asked_context(const Assistant *a) {
  const AnswerFlags *flags = &a->flags->answer;
  const int maximum = a->model->config.max_position;
  if (flags->context == NOT_GIVEN) return NOT_GIVEN;
  return flags->context == 0 || (flags->context_is_usual && flags->context > maximum) ? maximum
                                                                                      : flags->context;
}

/* Tokens of context that a process which keeps the model must have (keep_find()). */
static int needed_context(const Assistant *a) {
  const int asked = asked_context(a);
  return asked != NOT_GIVEN ? asked : a->many ? WHOLE_CONTEXT : 0;
}

/* Looks for a process that keeps the model. If that fails, this process computes. */
static Status find_holder(Assistant *a, Error *err) {
  const AssistantFlags *flags = a->flags;
  Error reason = {{0}};
  bool silent;
  TRY(keep_asked(flags, &a->keep_seconds, err));
  if (is_alone(flags)) a->keep_seconds = 0;
  const int n_ctx = needed_context(a);
  if (a->keep_seconds == 0 || n_ctx > a->model->config.max_position) return STATUS_OK;
  Status status = keep_find(flags, a->model, n_ctx, a->keep_seconds, &a->remote, &silent, &reason);
  if (status == STATUS_INTERRUPTED) return error_set(err, status, "interrupted");
  if (status && (silent || flags->answer.verbose)) print_note("%s", reason.text);
  if (silent) a->keep_seconds = 0; /* the holder would not answer a second time either */
  if (!a->remote) return STATUS_OK;
  TRY(device_elsewhere(&flags->device, remote_facts(a->remote)->backend, &a->device, err));
  return device_check_elsewhere(&a->device, err);
}

static Status choose_device(Assistant *a, Error *err) {
  TRY(device_choose(&a->flags->device, &a->device, err));
  return device_fit(&a->device, a->model, err);
}

static Status open_guesser(Assistant *a, Error *err) {
  return guesser_open(&a->flags->guess, a->model, a->tokenizer, &a->device, &a->guesser, err);
}

static Status check_cache(const AssistantFlags *flags, Error *err) {
  if (device_split(&flags->device) != 0 || flags->cache.off || !(flags->cache.on || flags->cache.directory))
    return STATUS_OK;
  return error_set(err, STATUS_USAGE,
                   "--cache does not go with --split auto: each process has a part of the keys");
}

Status assistant_open_engine(const AssistantFlags *flags, Assistant *a, Error *err) {
  a->flags = flags;
  a->session_options.kv = (KvType)flags->device.kv;
  assistant_heed(a, interrupt_catch());
  TRY(model_place_find(&flags->model, &a->place, err));
  TRY(device_check_flags(&flags->device, err));
  TRY(check_cache(flags, err));
  TRY(model_place_open_known(&a->place, &flags->model, &a->model, err));
  TRY(find_holder(a, err));
  return a->remote ? STATUS_OK : choose_device(a, err);
}

/* Opens the tokenizer, if possible from the image that the process keeping the model sends. */
static Status open_tokenizer(Assistant *a, Error *err) {
  const int image = a->remote ? remote_image(a->remote) : -1;
  if (image >= 0 && tokenizer_image_open(a->model->tokenizer_path, image, &a->tokenizer, err) == STATUS_OK)
    return STATUS_OK;
  return model_tokenizer_open(a->model, a->place.path, &a->tokenizer, err);
}

Status assistant_open(const AssistantFlags *flags, Assistant *a, Error *err) {
  sampling_note_idle(&flags->sampling);
  a->max_tokens = flags->answer.max_tokens;
  TRY(assistant_open_engine(flags, a, err));
  const volatile int *interrupted = a->interrupted;
  TRY(open_tokenizer(a, err));
  if (!a->remote) TRY(open_guesser(a, err));
  TRY(form_open(&flags->form, a->tokenizer, a->model->config.vocab_size, &a->form, err));
  TRY(open_chat(a, err));
  TRY(open_tools(a, err));
  assistant_heed(a, interrupted);
  TRY(choose_ends(a, err));
  TRY(check_grammar(a, err));
  const CacheUse use = {
      a->model, a->place.path, &a->device, a->session_options.kv, flags->answer.verbose, a->interrupted};
  TRY(cache_open(&flags->cache, &use, &a->cache, err));
  return choose_sampler(a, err);
}

Status assistant_check_output(const Assistant *a, const WrittenFile *output, Error *err) {
  const AssistantFlags *flags = a->flags;
  const char *template = flags->chat.chat_template;
  if (!a->chat || !template || strcmp(chat_source(a->chat), template) != 0) template = NULL; /* not a file */
  TRY(written_file_is_not_model(output, a->model, err));
  if (a->guesser.model) TRY(written_file_is_not_model(output, a->guesser.model, err));
  TRY(written_file_is_not(output, "-sysf", flags->chat.system_file, err));
  TRY(written_file_is_not(output, "--json-schema", flags->form.schema, err));
  TRY(written_file_is_not(output, "--grammar", flags->form.grammar, err));
  TRY(written_file_is_not(output, "--tools", flags->tools.file, err));
  return written_file_is_not(output, "--chat-template", template, err);
}

void assistant_release(Assistant *a) {
  cache_close(a->cache, a->engine ? engine_session(a->engine) : NULL);
  remote_close(a->remote);
  engine_close(a->engine);
  guesser_release(&a->guesser);
  device_release(&a->device);
  id_list_release(&a->ends);
  form_release(&a->form);
  tools_release(&a->tools);
  buffer_release(&a->system);
  chat_close(a->chat);
  tokenizer_close(a->tokenizer);
  model_close(a->model);
  model_place_release(&a->place);
  *a = (Assistant){0};
}

/* --- prompts */

static Status encode_chat(const Assistant *a, const ChatMessage *messages, size_t n_messages, IdList *ids,
                          Error *err) {
  bool trusted = a->flags->chat.parse_special;
  const bool tools = a->tools.given;
  ChatOptions options = {.add_generation_prompt = true,
                         .think = a->think,
                         .trusted = trusted,
                         .tools = tools ? a->tools.list.data : NULL,
                         .tools_size = tools ? a->tools.list.size : 0};
  OWNED(trusted_text_release) TrustedText text = {0};
  TRY(chat_render(a->chat, messages, n_messages, options, &text, err));
  return chat_encode(a->tokenizer, &text, trusted, ids, err);
}

Status assistant_encode(const Assistant *a, const ChatMessage *messages, size_t n_messages, IdList *ids,
                        Error *err) {
  size_t before = ids->count;
  if (a->chat) {
    TRY(encode_chat(a, messages, n_messages, ids, err));
  } else if (n_messages) {
    const ChatMessage *last = &messages[n_messages - 1];
    EncodeOptions options = {.add_special = true, .parse_special = a->flags->chat.parse_special};
    TRY(tokenizer_encode(a->tokenizer, last->text ? last->text : "", last->size, options, ids, err));
  }
  if (ids->count == before) return error_set(err, STATUS_USAGE, "the prompt is empty: it has no tokens");
  return ids_check(a->model, ids->ids + before, ids->count - before, "the prompt", IDS_ENCODED, err);
}

size_t assistant_messages(const Assistant *a, const char *text, size_t size, ChatMessage messages[2]) {
  size_t n = 0;
  if (a->has_system)
    messages[n++] =
        (ChatMessage){.role = "system", .text = a->system.data ? a->system.data : "", .size = a->system.size};
  messages[n++] = (ChatMessage){.role = "user", .text = text ? text : "", .size = size};
  return n;
}

Status assistant_encode_prompt(const Assistant *a, const char *text, size_t size, IdList *ids, Error *err) {
  ChatMessage messages[2];
  size_t n = assistant_messages(a, text, size, messages);
  return assistant_encode(a, messages, n, ids, err);
}

/* --- how long a context */

/* *n_ctx = the longest context, up to the model's maximum, whose state takes at most half of the memory that
 * the weights leave free; at least 1. */
static Status roomy_context(const Assistant *a, int *n_ctx, Error *err) {
  size_t room;
  TRY(device_room(&a->device, a->model, &room, err));
  const ModelConfig *config = device_config(&a->device, a->model);
  const Backend *backend = a->device.backend;
  SessionOptions options = a->session_options;
  int low = 1, high = config->max_position;
  while (low < high) {
    int middle = low + (high - low + 1) / 2;
    options.n_ctx = middle;
    StateOptions sizes = session_sizes(&options, backend, config);
    if (backend->state_bytes(config, &sizes) <= room / 2) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  *n_ctx = low;
  return STATUS_OK;
}

Status assistant_context(const Assistant *a, size_t n_prompt, int *n_ctx, Error *err) {
  const AnswerFlags *flags = &a->flags->answer;
  const int maximum = a->model->config.max_position;
  const int asked = flags->context_is_usual && flags->context > maximum ? maximum : flags->context;
  if (asked > maximum)
    return error_set(err, STATUS_USAGE, "-c is %d, more than the %d positions of %s", asked, maximum,
                     a->place.path);
  *n_ctx = asked > 0 ? asked : maximum;
  if (asked != NOT_GIVEN) return STATUS_OK;
  TRY(roomy_context(a, n_ctx, err));
  /* If memory is short, the error should be about memory, not about the length of the prompt. */
  size_t least = n_prompt + 256 < (size_t)maximum ? n_prompt + 256 : (size_t)maximum;
  if ((size_t)*n_ctx < least) *n_ctx = (int)least;
  return STATUS_OK;
}

Status assistant_check_prompt(const Assistant *a, size_t n_prompt, int n_ctx, Error *err) {
  if (n_prompt <= (size_t)n_ctx) return STATUS_OK;
  const int maximum = a->model->config.max_position;
  return error_set(err, STATUS_USAGE,
                   "the prompt has %zu tokens, the context %d (the model's maximum is %d%s)", n_prompt, n_ctx,
                   maximum, n_ctx < maximum ? "; -c N sets it" : "");
}

static Status choose_context(Assistant *a, size_t n_prompt, Error *err) {
  SessionOptions *options = &a->session_options;
  TRY(assistant_context(a, n_prompt, &options->n_ctx, err));
  TRY(assistant_check_prompt(a, n_prompt, options->n_ctx, err));
  StateOptions sizes = session_sizes(options, a->device.backend, &a->model->config);
  return device_check_memory(&a->device, a->model, &sizes, err);
}

static void print_settings(const Assistant *a) {
  const SamplerSettings *s = &a->sampler;
  const BatchOptions *batch = &a->batch_options;
  char gpu[sizeof(GpusText) + 2] = "";
  if (a->device.n_gpus > 1) snprintf(gpu, sizeof gpu, "%s: ", device_gpus_text(&a->device).text);
  if (a->remote)
    print_note("process %d keeps the model and answers (auk keep shows it)",
               (int)remote_facts(a->remote)->pid);
  else if (batch->n_sequences > 1)
    print_note("%s%d sequences at once, in %d pages of %d tokens%s%s; %s", gpu, batch->n_sequences,
               batch->n_pages, a->device.backend->page_tokens, batch->states ? ", states in " : "",
               batch->states ? states_type_name(batch->states) : "",
               a->device.invariant || !a->device.backend->memory ? "each answer is as it is alone"
                                                                 : "answers may depend on those beside them");
  if (batch->n_sequences > batch->n_drafters && batch->n_drafters > 0)
    print_note("%s guesses while at most %d sequences are in use", a->flags->guess.draft, batch->n_drafters);
  if (a->flags->device.nth > 0) return; /* the rest is as for the first GPU */
  print_note("%s on %s, context %d, chat format %s, temperature %g, top-k %d, top-p %g, min-p %g, repetition "
             "penalty %g, seed %llu",
             a->model->config.architecture, a->device.backend->name, a->session_options.n_ctx,
             a->chat ? chat_source(a->chat) : "none", s->temperature, s->top_k, s->top_p, s->min_p,
             s->repetition_penalty, (unsigned long long)s->seed);
  DeviceMemory memory;
  if (a->device.options.copies && device_memory(&a->device, a->model, &memory, NULL) == STATUS_OK)
    print_note("steps of many rows read the weights as bytes, %s of GPU memory beside the others",
               size_text(memory.copies).text);
}

Status assistant_check_weights(const Assistant *a, Error *err) {
  const bool read = a->device.backend == &cpu_backend || a->device.options.weight_bytes > 0;
  return read ? model_check_weights(a->model, err) : STATUS_OK;
}

/* Opens the engine; if memory is short, advises a smaller context. */
static Status open_engine(Assistant *a, const EngineOptions *options, Error *err) {
  const Device *device = &a->device;
  const Status status = engine_open(device->backend, device->loaded, a->model, options, &a->engine, err);
  if (status != STATUS_FAILED || !strstr(err->text, "memory")) return status;
  const Error reason = *err;
  return error_set(err, status, "%s (context of %d tokens; a smaller -c needs less)", reason.text,
                   a->session_options.n_ctx);
}

/* --- several sequences */

/* Makes room for n sequences by leaving more weights in the host's memory. Returns false if there is still
 * too little room. */
static bool fits_beside_fewer_weights(Assistant *a, int n) {
  if (!a->device.backend->memory) return false; /* on a CPU all weights are there already */
  const ModelConfig *config = &a->model->config;
  const BatchOptions least = batch_least(&a->batch_options, a->device.backend, config, n);
  const StateOptions sizes = batch_sizes(&least, a->device.backend, config);
  return device_check_memory(&a->device, a->model, &sizes, NULL) == STATUS_OK;
}

/* True if recurrent states are a reason to answer records one after another: if a model has them, sequences
 * of a batch cannot share prefixes. On a GPU a batch is faster nevertheless, because its steps take little
 * longer than steps for one sequence; but not with --choose, which generates nothing. */
static bool states_prefer_one(const Assistant *a) {
  return (!a->device.backend->memory || a->chooses) && config_has_states(&a->model->config);
}

/* True if records are answered one after another when no flag gives a number of sequences. Any one reason
 * suffices: a backend without batches, the prefix cache (which a batch does not use), recurrent states, or a
 * drafter for one sequence. */
static bool prefers_one(const Assistant *a) {
  return a->device.backend->page_tokens == 0 || a->cache || states_prefer_one(a) ||
         guesser_is_for_one(&a->guesser, &a->model->config);
}

/* True if even a single sequence is computed in a batch: with --states, which sessions do not have; with
 * device.invariant on a GPU, where a session rounds differently from a batch. */
static bool is_always_batch(const Assistant *a) {
  return a->flags->device.states != STATES_F32 || (a->device.invariant && a->device.backend->memory);
}

/* True if this process keeps the model, and has a session for clients that ask one at a time. One reason
 * suffices: a backend without pages has no batch; on a GPU a batch rounds differently; a batch cannot
 * continue from a recurrent state. There is no session if is_always_batch(). */
static bool holds_session(const Assistant *a) {
  const Backend *backend = a->device.backend;
  if (is_always_batch(a)) return false;
  return a->holds && (backend->page_tokens == 0 || backend->memory || config_has_states(&a->model->config));
}

/* True if the engine has a session. To be called once choose_batch() has set n_sequences. */
static bool has_session(const Assistant *a) {
  return holds_session(a) || (a->batch_options.n_sequences == 1 && !a->holds && !is_always_batch(a));
}

static bool has_batch(const Assistant *a) {
  return !has_session(a) || a->batch_options.n_sequences > 1;
}

/* Bytes of the session that a process keeping the model has beside its batch; 0 without such a session. */
static size_t session_beside(const Assistant *a) {
  const Backend *backend = a->device.backend;
  const ModelConfig *config = device_config(&a->device, a->model);
  const StateOptions sizes = session_sizes(&a->session_options, backend, config);
  return holds_session(a) ? backend->state_bytes(config, &sizes) : 0;
}

/* Guesses per sequence and step of a batch. On a GPU there are guesses only if flags ask for them, because
 * the many sequences of a batch fill its steps. */
static int n_batch_guesses(const Assistant *a) {
  const GuessFlags *flags = &a->flags->guess;
  const bool asked = flags->most >= 0 || flags->draft || !a->device.backend->memory;
  return asked ? a->session_options.n_guesses : 0;
}

/* The number of drafters for --draft: at most MOST, as many as fit a quarter of `left` bytes, but at least 1.
 * With more than MOST sequences, a step without guesses costs less per token (scripts/FIGURES.md,
 * "Speculative decoding"). Without --draft the number is 0: each sequence has a drafter (batch.h). */
static int n_batch_drafters(const Assistant *a, const DraftSource *source, size_t left) {
  enum { MOST = 8 };
  int n = MOST;
  if (!a->guesser.model) return 0;
  while (n > 1 && (size_t)n * source->bytes(source->user, a->session_options.n_ctx) > left / 4) n--;
  return n;
}

/* Sets the number of sequences and of their KV pages. */
static Status choose_batch(Assistant *a, int n, Error *err) {
  const Backend *backend = a->device.backend;
  const ModelConfig *config = device_config(&a->device, a->model);
  const StatesType states = (StatesType)a->flags->device.states;
  BatchOptions *options = &a->batch_options;
  size_t left;
  options->n_sequences = 1;
  if (states != STATES_F32 && config_count_layers(config, LAYER_DELTA, config->n_layers) == 0)
    return error_set(err, STATUS_USAGE, "--states %s: %s has no linear attention or Mamba-2",
                     states_type_name(states), config->architecture);
  const bool one = n == 1 || (n == 0 && prefers_one(a) && !a->holds);
  if (one && !is_always_batch(a)) return STATUS_OK;
  if (one) n = 1;
  if (a->holds && backend->page_tokens == 0) return STATUS_OK;
  const char *reason = guesser_is_for_one(&a->guesser, config);
  if (reason) return error_set(err, STATUS_USAGE, "--parallel %d: %s (--parallel 1)", n, reason);
  if (backend->page_tokens == 0)
    return error_set(err, STATUS_USAGE,
                     "--parallel %d: the device %s answers one record at a time (--parallel 1)", n,
                     backend->name);
  TRY(device_room(&a->device, a->model, &left, err));
  const size_t beside = session_beside(a) + guesser_weights(&a->guesser);
  left = left > beside ? left - beside : 0;
  const DraftSource draft = guesser_source(&a->guesser, a->model, &a->device, &a->session_options);
  const size_t share = batch_share(backend, left, a->holds), room = left - left / 16; /* 1/16: a reserve */
  *options = (BatchOptions){.n_ctx = a->session_options.n_ctx,
                            .n_guesses = n_batch_guesses(a),
                            .draft = draft,
                            .n_drafters = n_batch_drafters(a, &draft, left),
                            .chunk = a->session_options.chunk,
                            .kv = a->session_options.kv,
                            .states = states,
                            .invariant = a->device.invariant};
  const int most = n ? batch_most_sequences(options, backend, config, n, room)
                     : batch_usual_sequences(options, backend, config, share);
  if (n > most && !fits_beside_fewer_weights(a, n)) {
    const BatchOptions least = batch_least(options, backend, config, n);
    return error_set(
        err, STATUS_FAILED,
        "not enough memory: %zu bytes needed for %d sequences and a context of %d tokens, %zu free, "
        "enough for %d; a smaller --parallel or -c needs less",
        batch_bytes(&least, backend, config), n, options->n_ctx, room, most);
  }
  options->n_sequences = n > 0 ? n : most > 0 ? most : 1;
  options->n_pages = batch_most_pages(options, backend, config, share);
  if (!backend->memory || (options->n_sequences == 1 && !is_always_batch(a))) return STATUS_OK;
  const StateOptions sizes = batch_sizes(options, backend, config);
  return device_check_memory_bytes(&a->device, a->model, beside + backend->state_bytes(config, &sizes),
                                   options->n_ctx, err);
}

/* --- starting */

static Status choose_sizes(Assistant *a, size_t n_prompt, int n, Error *err) {
  guesser_choose(&a->guesser, a->device.backend, &a->session_options);
  TRY(choose_context(a, n_prompt, err));
  return choose_batch(a, n, err);
}

/* Takes the sizes from the process that keeps the model. *fits is false if that process's context is too
 * short for the prompt, and another process's could be longer. */
static Status start_remotely(Assistant *a, size_t n_prompt, int n, bool *fits, Error *err) {
  const WireState *facts = remote_facts(a->remote);
  const int asked = asked_context(a), maximum = a->model->config.max_position;
  const int n_ctx = asked > 0 && asked < facts->n_ctx ? asked : facts->n_ctx;
  *fits = n_prompt <= (size_t)n_ctx || asked != NOT_GIVEN || n_ctx == maximum;
  if (!*fits) return STATUS_OK;
  a->session_options.n_ctx = n_ctx;
  TRY(assistant_check_prompt(a, n_prompt, n_ctx, err));
  a->batch_options.n_sequences = n ? n : states_prefer_one(a) ? 1 : facts->n_sequences;
  if (a->flags->answer.verbose) print_settings(a);
  return STATUS_OK;
}

/* True if a process keeps the model with a context that -c has made too short for many prompts. Somebody has
 * started it for other calls, and a process with a longer context would take its place. */
static bool is_kept_shorter(const Assistant *a) {
  Remote *other = NULL;
  bool silent;
  Error unused;
  if (needed_context(a) != WHOLE_CONTEXT) return false;
  keep_find(a->flags, a->model, 0, -1, &other, &silent, &unused);
  remote_close(other);
  return other != NULL;
}

/* Starts a process that keeps the model, if --keep asks for one. If that fails, this process computes. */
static Status start_keeping(Assistant *a, Error *err) {
  Error reason = {{0}};
  if (a->keep_seconds <= 0 || a->model->dummy || is_kept_shorter(a)) return STATUS_OK;
  Status status =
      keep_start(a->flags, &a->place, a->model, needed_context(a), a->keep_seconds, &a->remote, &reason);
  if (status == STATUS_INTERRUPTED) return error_set(err, status, "interrupted");
  if (status) print_note("the model is not kept: %s", reason.text);
  if (!a->remote) return STATUS_OK;
  device_release(&a->device);
  return device_elsewhere(&a->flags->device, remote_facts(a->remote)->backend, &a->device, err);
}

/* Calls choose_sizes(). After STATUS_FAILED, ends idle processes that keep models, and calls it again. */
static Status choose_sizes_or_make_room(Assistant *a, size_t n_prompt, int n, Error *err) {
  Status status = choose_sizes(a, n_prompt, n, err);
  if (status != STATUS_FAILED || keep_make_room() == 0) return status;
  return choose_sizes(a, n_prompt, n, err);
}

void assistant_prefer_invariant(Assistant *a, int n) {
  Device *device = &a->device;
  Error unused;
  const bool kept = a->remote || a->keep_seconds > 0;
  if (device->invariant || kept || a->cache || a->flags->guess.draft || (n == 0 && prefers_one(a))) return;
  device->invariant = device_prefers_invariant(device, a->model);
  if (device->invariant) device->invariant = choose_sizes_or_make_room(a, 0, n, &unused) == STATUS_OK;
}

static Status start(Assistant *a, size_t n_prompt, int n, Error *err) {
  bool fits = false;
  if (!a->remote) TRY(start_keeping(a, err));
  if (a->remote) {
    TRY(start_remotely(a, n_prompt, n, &fits, err));
    if (fits) return STATUS_OK;
    remote_close(a->remote);
    a->remote = NULL;
    TRY(choose_device(a, err));
    TRY(open_guesser(a, err));
  }
  const Backend *chosen = a->device.backend;
  TRY(choose_sizes_or_make_room(a, n_prompt, n, err));
  TRY(device_load(&a->device, a->model, err));
  TRY(model_check_weights(a->model, err));
  if (a->device.backend != chosen) TRY(choose_sizes(a, n_prompt, n, err)); /* loading switched to the CPU */
  if (a->flags->answer.verbose && !a->holds) print_settings(a);
  a->session_options.sampler = a->sampler;
  EngineOptions options = {.store = cache_store(a->cache)};
  if (has_session(a)) {
    TRY(guesser_start(&a->guesser, a->model, &a->device, &a->session_options, err));
    options.session = &a->session_options;
  }
  if (has_batch(a)) {
    const int n_drafters = batch_drafters(&a->batch_options, a->device.backend, &a->model->config);
    if (n_drafters > 0)
      TRY(guesser_load(&a->guesser, a->model, &a->device, &a->session_options, n_drafters, err));
    options.batch = &a->batch_options;
  }
  return open_engine(a, &options, err);
}

Status assistant_start(Assistant *a, size_t n_prompt, Error *err) {
  return start(a, n_prompt, 1, err);
}

Status assistant_start_many(Assistant *a, int n, Error *err) {
  return start(a, 0, n, err);
}

Status assistant_start_holder(Assistant *a, Error *err) {
  a->holds = true;
  a->sampler = (SamplerSettings){.top_p = 1, .repetition_penalty = 1}; /* each request brings its own */
  a->session_options.max_logit_rows = CHOICE_LOGIT_ROWS;
  TRY(open_guesser(a, err));
  return start(a, 0, 0, err);
}

size_t assistant_device_bytes(const Assistant *a) {
  const Backend *backend = a->device.backend;
  DeviceMemory memory;
  if (!backend->memory || device_memory(&a->device, a->model, &memory, NULL) != STATUS_OK) return 0;
  const size_t batch = has_batch(a) ? batch_bytes(&a->batch_options, backend, &a->model->config) : 0;
  return memory.weights + session_beside(a) + batch;
}

bool assistant_is_lost(const Assistant *a) {
  return a->remote && !remote_is_alive(a->remote);
}

Status assistant_renew(Assistant *a, size_t n_prompt, Error *err) {
  if (!assistant_is_lost(a)) return STATUS_OK;
  remote_close(a->remote);
  a->remote = NULL;
  TRY(find_holder(a, err));
  if (!a->remote) TRY(choose_device(a, err));
  if (!a->remote) TRY(open_guesser(a, err));
  return start(a, n_prompt, 1, err);
}

int assistant_n_ctx(const Assistant *a) {
  return a->engine ? engine_context(a->engine) : a->session_options.n_ctx;
}

int assistant_n_held(const Assistant *a) {
  const Session *session = a->engine ? engine_session(a->engine) : NULL;
  return session ? session_view(session).text->n_past : a->n_held;
}

Status assistant_run(Assistant *a, int n_at_once, const EngineJob *job, Error *err) {
  return a->engine ? engine_run(a->engine, job, err) : remote_run(a->remote, n_at_once, job, err);
}
