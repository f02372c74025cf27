/* guess.c - see guess.h. Called by: assistant.c, measure/bench_guesses.c. */
#include "commands/answer/guess.h"

#include <string.h>

#include "engine/drafters/draft_model.h"
#include "engine/drafters/draft_text.h"
#include "engine/step_cost.h"

const Flag guess_flags[] = {
    FLAG_INT("--guess, --draft-max", "N", GuessFlags, most, 0, DRAFT_MOST,
             "speculative decoding: guess at most N tokens per step; 0: off (default: up to 15, with --draft "
             "up to 7; fewer while guesses are wrong)"),
    FLAG_PLAIN(
        KIND_STRING, VALUE_MODEL, const char *, "--draft, --draft-model, --model-draft, -md", "MODEL",
        GuessFlags, draft,
        "the draft model of speculative decoding: a smaller model with the same vocabulary, a drafter "
        "trained for this model, or mtp, the model's own multi-token-prediction layer (auk inspect names "
        "it); without --draft auk looks up what followed an earlier passage like the end of the text"),
};

/* Refuses a draft model in which one of the target's tokens is missing or has another id. */
static Status check_vocabulary(const Guesser *g, const Model *target, const Tokenizer *tokenizer,
                               const Tokenizer *draft, Error *err) {
  for (int32_t id = 0; id < target->config.vocab_size; id++) {
    size_t size, draft_size;
    const char *token = tokenizer_content(tokenizer, id, &size), *other;
    if (!token) continue;
    other = id < g->model->config.vocab_size ? tokenizer_content(draft, id, &draft_size) : NULL;
    if (!other)
      return error_set(err, STATUS_MODEL, "--draft %s has another vocabulary: it lacks token %d, \"%.*s\"",
                       g->place.name, (int)id, (int)size, token);
    if (size != draft_size || memcmp(token, other, size) != 0)
      return error_set(err, STATUS_MODEL,
                       "--draft %s has another vocabulary: its token %d is \"%.*s\", expected \"%.*s\"",
                       g->place.name, (int)id, (int)draft_size, other, (int)size, token);
  }
  return STATUS_OK;
}

/* --- drafters that are trained for the target (engine/drafters/published.h) */

/* Finds what --draft names: the target's own MTP layer, a drafter that is trained for a target, or
 * (*is_trained false) another model. */
static Status find_trained(Guesser *g, const Model *target, const char **path, bool *is_trained, Error *err) {
  *path = model_path(target);
  *is_trained = strcmp(g->flags->draft, "mtp") == 0;
  if (*is_trained) return STATUS_OK;
  TRY(model_place_find(&g->place_flags, &g->place, err));
  TRY(model_place_check(&g->place, err));
  *path = g->place.path;
  return file_is_directory(*path) ? config_is_draft(*path, is_trained, err) : STATUS_OK;
}

/* Sets the drafter's device: the target's, without the target's weights (`loaded`) and config (`part`). The
 * drafter makes no copies of weights (DeviceMemory.copies): that memory is planned for the target's state. */
static void take_device(Guesser *g, const Device *device) {
  g->device = *device;
  g->device.loaded = NULL;
  g->device.without_copies = true, g->device.options.copies = false;
  g->device.part = (ModelConfig){.layers = NULL};
}

/* Refuses a drafter that cannot be split among the GPUs of the target. */
static Status check_split(const Guesser *g, const Device *device, Error *err) {
  Error reason;
  const Status status = model_check_split(g->model, device->options.split, &reason);
  return status ? error_set(err, status, "--draft %s: %s", g->flags->draft, reason.text) : STATUS_OK;
}

static Status open_trained(Guesser *g, const char *path, const Model *target, const Device *device,
                           Error *err) {
  take_device(g, device);
  TRY(model_open_draft(path, target, &g->model, err));
  return check_split(g, device, err);
}

/* The time of a guess as a fraction of a target's step, estimated from the bytes that both read. DFlash makes
 * a block of guesses in one pass. */
static double cost_of_trained(const Model *model, const Model *target) {
  const DraftConfig *draft = &model->config.draft;
  const double head = model->draft.target_head || draft->kind == DRAFT_ASSISTANT ? 0.2 : 0;
  const double pass = (double)model_loaded_bytes(model) / (double)target->weight_bytes + head;
  return draft->kind == DRAFT_DFLASH ? pass / (draft->block - 1) : pass;
}

/* Sets the options of published.h. The drafter runs on the target's device, which by now may have changed to
 * the CPU. */
static void describe_trained(Guesser *g, const Model *target, const Device *device,
                             const SessionOptions *target_options) {
  take_device(g, device);
  g->published = (PublishedOptions){.backend = g->device.backend,
                                    .backend_options = &g->device.options,
                                    .target = target,
                                    .loaded_target = device->loaded,
                                    .model = g->model,
                                    .loaded = g->published.loaded,
                                    .n_ctx = target_options->n_ctx,
                                    .kv = target_options->kv,
                                    .cost = cost_of_trained(g->model, target)};
}

static Status prepare_trained(Guesser *g, const Device *device, Error *err) {
  const int n_threads = device->options.n_threads;
  TRY(model_prepare(g->model, n_threads, err));
  /* On a GPU a guess takes about as long as reading the drafter's weights, so 4 bits make it faster. */
  return device->backend->memory ? model_round_draft(g->model, n_threads, err) : STATUS_OK;
}

/* --- all kinds */

Status guesser_open(const GuessFlags *flags, const Model *target, const Tokenizer *tokenizer,
                    const Device *device, Guesser *g, Error *err) {
  g->flags = flags;
  if (!flags->draft) return STATUS_OK;
  const char *path;
  bool is_trained;
  if (flags->most == 0) return error_set(err, STATUS_USAGE, "--draft does not go with --guess 0");
  if (device->options.ranks)
    return error_set(err, STATUS_USAGE,
                     "--draft does not go with --split auto: give --split N on one machine");
  g->place_flags.path = flags->draft;
  TRY(find_trained(g, target, &path, &is_trained, err));
  if (is_trained) return open_trained(g, path, target, device, err);
  TRY(model_place_open_known(&g->place, &g->place_flags, &g->model, err));
  take_device(g, device);
  TRY(check_split(g, device, err));
  TRY(device_fit(&g->device, g->model, err));
  if (!tokenizer) return STATUS_OK;
  OWNED(tokenizer_release) Tokenizer *draft = NULL;
  TRY(model_tokenizer_open(g->model, g->place.path, &draft, err));
  return check_vocabulary(g, target, tokenizer, draft, err);
}

void guesser_choose(Guesser *g, const Backend *backend, SessionOptions *options) {
  enum { MODEL_GUESSES = 7 };
  const int block = g->model ? g->model->config.draft.block : 0;
  options->n_guesses = g->flags->most >= 0 ? g->flags->most
                       : block > 0         ? block - 1
                       : g->model          ? MODEL_GUESSES
                                           : backend->guesses;
  if (options->n_guesses > DRAFT_MOST) options->n_guesses = DRAFT_MOST;
  options->drafter = options->n_guesses > 0 ? &g->drafter : NULL;
}

/* The time of a draft model's step as a fraction of a target's step, estimated from the bytes both read. */
static double cost_of(const Guesser *g, const Model *target, KvType kv) {
  const double own = step_cost(g->model, kv, 0, 1, 1).bytes, all = step_cost(target, kv, 0, 1, 1).bytes;
  return own / all;
}

static bool is_trained(const Guesser *g) {
  return g->model && g->model->config.draft.kind;
}

/* The options of a draft model's session for texts of up to n_ctx tokens. */
static SessionOptions session_of(const Guesser *g, int n_ctx) {
  SessionOptions options = {.n_ctx = n_ctx, .kv = g->kv, .sampler = g->sampler};
  if (options.n_ctx > g->model->config.max_position) options.n_ctx = g->model->config.max_position;
  return options;
}

static size_t bytes_of_one(const void *guesser, int n_ctx) {
  const Guesser *g = guesser;
  if (is_trained(g)) {
    PublishedOptions options = g->published;
    options.n_ctx = n_ctx;
    return published_bytes(&options);
  }
  const SessionOptions options = session_of(g, n_ctx);
  const Backend *backend = g->device.backend;
  const StateOptions sizes = session_sizes(&options, backend, &g->model->config);
  return backend->state_bytes(device_config(&g->device, g->model), &sizes);
}

static Status open_one(void *guesser, int n_ctx, Drafter *drafter, Error *err) {
  Guesser *g = guesser;
  if (!g->model) return draft_text_open(n_ctx, drafter, err);
  if (is_trained(g)) {
    PublishedOptions options = g->published;
    options.n_ctx = n_ctx;
    return published_open(&options, drafter, err);
  }
  const SessionOptions options = session_of(g, n_ctx);
  Session *session;
  TRY(session_open(g->device.backend, g->device.loaded, g->model, &options, &session, err));
  return draft_model_open(session, g->target_vocab, g->cost, drafter, err);
}

/* Sets what open_one() and bytes_of_one() use. */
static void describe(Guesser *g, const Model *target, const Device *device,
                     const SessionOptions *target_options) {
  g->kv = target_options->kv;
  g->sampler = target_options->sampler;
  g->target_vocab = target->config.vocab_size;
  if (is_trained(g))
    describe_trained(g, target, device, target_options);
  else if (g->model)
    g->cost = cost_of(g, target, g->kv);
}

const char *guesser_is_for_one(const Guesser *g, const ModelConfig *target) {
  if (!g->model) return NULL;
  if (config_has_states(target)) return "with --draft a model with recurrent states answers one at a time";
  if (g->model->config.draft.kind == DRAFT_ASSISTANT)
    return "an assistant of Gemma 4 guesses for one answer at a time";
  return NULL;
}

size_t guesser_weights(const Guesser *g) {
  return g->model ? g->model->weight_bytes : 0;
}

DraftSource guesser_source(Guesser *g, const Model *target, const Device *device,
                           const SessionOptions *target_options) {
  if (!g->model) return draft_text_source;
  describe(g, target, device, target_options);
  DraftSource source = {.open = open_one, .bytes = bytes_of_one, .on_device = true, .user = g};
  if (is_trained(g)) source.taps = published_taps(&g->model->config.draft);
  return source;
}

Status guesser_load(Guesser *g, const Model *target, const Device *device,
                    const SessionOptions *target_options, int n, Error *err) {
  if (!g->model) return STATUS_OK;
  if (is_trained(g)) TRY(prepare_trained(g, device, err));
  describe(g, target, device, target_options);
  const size_t bytes = (size_t)n * bytes_of_one(g, target_options->n_ctx);
  TRY(device_check_memory_bytes(&g->device, g->model, bytes, target_options->n_ctx, err));
  return is_trained(g) ? published_load(&g->published, &g->published.loaded, err)
                       : device_load(&g->device, g->model, err);
}

Status guesser_start(Guesser *g, const Model *target, const Device *device,
                     const SessionOptions *target_options, Error *err) {
  if (!target_options->drafter) return STATUS_OK;
  TRY(guesser_load(g, target, device, target_options, 1, err));
  return open_one(g, target_options->n_ctx, &g->drafter, err);
}

void guesser_release(Guesser *g) {
  drafter_close(&g->drafter);
  if (g->published.loaded) g->published.backend->unload(g->published.loaded);
  device_release(&g->device);
  model_close(g->model);
  model_place_release(&g->place);
  *g = (Guesser){.flags = NULL};
}
