/* run.c - `auk -m MODEL -p TEXT`: a prompt in, the answer streamed out.
 *
 * Called by: main.c.   Calls: prompt.c, stop.c, the tokenizer, session.c, generate.c.
 * Always true: standard output carries the answer's text and nothing else; whatever can be refused is refused
 *              before a weight is touched; every token's text is written as soon as it is known to be
 *              shown. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/output.h"
#include "commands/commands.h"
#include "commands/common.h"
#include "commands/device.h"
#include "commands/prompt.h"
#include "commands/stop.h"
#include "engine/generate.h"

enum { NOT_GIVEN = INT_MIN };

typedef struct {
  ModelFlags model;
  DeviceFlags device;
  PromptFlags prompt;
  StringList stops;
  int max_tokens; /* -1: no limit */
  int context;    /* NOT_GIVEN: choose; 0: the model's maximum */
  Seed seed;
  double temperature, top_p, min_p, repetition_penalty; /* NAN: as generation_config.json says */
  int top_k;                                            /* NOT_GIVEN: likewise */
  double presence_penalty, frequency_penalty;
  bool ignore_eos, verbose;
} Options;

/* Everything that is open while a prompt is answered. */
typedef struct {
  const Options *options;
  char *model_path;
  Model *model;
  Tokenizer *tokenizer;
  ChatFormat format;
  Buffer prompt;
  IdList ids; /* of the prompt */
  IdList eos;
  Device device;
  Session *session;
  TokenizerStream *stream;
  StopFilter stop;
  Buffer text, shown; /* of one token: decoded, and what the stop strings let through */
  bool ends_line;     /* the last byte written was a newline */
  const volatile int *interrupted;
} Run;

/* --- what to sample with, where to stop */

static double given_or(double flag, double otherwise) {
  return isnan(flag) ? otherwise : flag;
}

static Status choose_sampler(const Options *o, const GenerationDefaults *defaults, SamplerSettings *settings,
                             Error *err) {
  *settings = (SamplerSettings){
      .temperature = given_or(o->temperature, defaults->do_sample ? defaults->temperature : 0),
      .top_k = o->top_k == NOT_GIVEN ? defaults->top_k : o->top_k,
      .top_p = given_or(o->top_p, defaults->top_p),
      .min_p = given_or(o->min_p, defaults->min_p),
      .repetition_penalty = given_or(o->repetition_penalty, defaults->repetition_penalty),
      .presence_penalty = o->presence_penalty,
      .frequency_penalty = o->frequency_penalty,
      .seed = o->seed.value,
  };
  if (!o->seed.given && getrandom(&settings->seed, sizeof settings->seed, 0) != sizeof settings->seed)
    return error_set(err, STATUS_FAILED, "cannot get a random seed (give one with --seed)");
  return STATUS_OK;
}

/* The checkpoint's end tokens, the chat format's, and every --stop that is a special token itself, which
 * never shows up as text. A checkpoint that names none (a packed file alone) ends where its tokenizer's usual
 * ones are. */
static Status choose_ends(Run *run, Error *err) {
  static const char *const usual[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<|im_end|>", "<|eot_id|>"};
  const ModelConfig *config = &run->model->config;
  for (int i = 0; i < config->n_eos; i++) TRY(id_list_append(&run->eos, config->eos[i], err));
  for (size_t i = 0; i < sizeof usual / sizeof *usual && config->n_eos == 0; i++) {
    int32_t id = tokenizer_find(run->tokenizer, usual[i]);
    if (id >= 0 && tokenizer_is_special(run->tokenizer, id)) TRY(id_list_append(&run->eos, id, err));
  }
  if (run->format != CHAT_NONE)
    TRY(id_list_append(&run->eos, chat_end_of_turn(run->tokenizer, run->format), err));
  const StringList *stops = &run->options->stops;
  for (size_t i = 0; i < stops->count; i++) {
    if (!*stops->items[i]) return error_set(err, STATUS_USAGE, "--stop is empty");
    int32_t id = tokenizer_find(run->tokenizer, stops->items[i]);
    if (id >= 0 && tokenizer_is_special(run->tokenizer, id)) TRY(id_list_append(&run->eos, id, err));
  }
  run->stop = (StopFilter){.strings = stops->items, .n_strings = stops->count};
  return STATUS_OK;
}

/* --- how long a context */

/* The longest context, up to the model's, whose state takes at most half of the memory that the weights
 * leave. */
static Status roomy_context(const Run *run, SessionOptions options, int *n_ctx, Error *err) {
  DeviceMemory memory;
  TRY(device_memory(&run->device, run->model, &memory, err));
  size_t half = memory.free_bytes > memory.weights ? (memory.free_bytes - memory.weights) / 2 : 0;
  const ModelConfig *config = &run->model->config;
  const Backend *backend = run->device.backend;
  int low = 1, high = config->max_position;
  while (low < high) {
    int middle = low + (high - low + 1) / 2;
    options.n_ctx = middle;
    StateOptions sizes = session_sizes(&options, backend, config);
    if (backend->state_bytes(config, &sizes) <= half) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  *n_ctx = low;
  return STATUS_OK;
}

static Status choose_context(const Run *run, SessionOptions *session, Error *err) {
  const int asked = run->options->context, maximum = run->model->config.max_position;
  const size_t n_prompt = run->ids.count;
  if (asked > maximum)
    return error_set(err, STATUS_USAGE, "-c is %d, more than the %d positions of %s", asked, maximum,
                     run->model_path);
  session->n_ctx = asked ? asked : maximum;
  if (asked == NOT_GIVEN) {
    TRY(roomy_context(run, *session, &session->n_ctx, err));
    /* Where memory is short, that it is short is to be said, not that the prompt is long. */
    size_t least = n_prompt + 256 < (size_t)maximum ? n_prompt + 256 : (size_t)maximum;
    if ((size_t)session->n_ctx < least) session->n_ctx = (int)least;
  }
  if (n_prompt > (size_t)session->n_ctx)
    return error_set(err, STATUS_USAGE,
                     "the prompt has %zu tokens, the context %d (the model's maximum is %d%s)", n_prompt,
                     session->n_ctx, maximum, session->n_ctx < maximum ? "; -c N sets it" : "");
  StateOptions sizes = session_sizes(session, run->device.backend, &run->model->config);
  return device_check_memory(&run->device, run->model, &sizes, err);
}

/* --- the answer */

static Status show(Run *run, Error *err) {
  Status status = STATUS_OK;
  if (run->shown.size) {
    status = output_write(run->shown.data, run->shown.size, err);
    run->ends_line = run->shown.data[run->shown.size - 1] == '\n';
  }
  run->text.size = run->shown.size = 0;
  return status;
}

static Status take_token(void *user, int32_t id, TokenReply *reply, Error *err) {
  Run *run = user;
  TRY(tokenizer_stream_push(run->stream, id, &run->text, err));
  TRY(stop_filter_push(&run->stop, run->text.data, run->text.size, &run->shown, err));
  reply->stop = run->stop.stopped;
  return show(run, err);
}

/* What was held back, and on a terminal the newline that puts the shell's prompt where it belongs. */
static Status finish_text(Run *run, Error *err) {
  if (!run->stop.stopped) {
    TRY(tokenizer_stream_end(run->stream, &run->text, err));
    TRY(stop_filter_push(&run->stop, run->text.data, run->text.size, &run->shown, err));
    TRY(stop_filter_end(&run->stop, &run->shown, err));
    TRY(show(run, err));
  }
  return output_is_terminal() && !run->ends_line ? output_write("\n", 1, err) : STATUS_OK;
}

static bool prefill_progress(void *user, int done, int total) {
  const Run *run = user;
  if (progress_is_terminal() && total > 1) {
    fprintf(stderr, "\rprompt: %d of %d tokens", done, total);
  }
  return !*run->interrupted;
}

static double per_second(int n, double ms) {
  return n > 0 && ms > 0 ? n * 1e3 / ms : 0;
}

static void print_statistics(const Run *run, const GenerateResult *result, double prefill_ms) {
  int n_prompt = (int)run->ids.count, n = result->n_generated;
  fprintf(stderr, "auk: prompt %d tokens, %.1f ms (%.1f/s); answer %d tokens, %.1f ms (%.1f/s); end: %s\n",
          n_prompt, prefill_ms, per_second(n_prompt, prefill_ms), n,
          result->first_token_ms + result->decode_ms, per_second(n - 1, result->decode_ms),
          finish_name(result->reason));
}

static Status answer(Run *run, Error *err) {
  const GenerateOptions options = {
      .max_tokens = run->options->max_tokens,
      .eos = run->eos.ids,
      .n_eos = (int)run->eos.count,
      .ignore_eos = run->options->ignore_eos,
      .interrupted = run->interrupted,
  };
  double start = clock_ms();
  Status status = session_sync(run->session, run->ids.ids, (int)run->ids.count, prefill_progress, run, err);
  progress_clear();
  TRY(status);
  double prefill_ms = clock_ms() - start;
  TRY(tokenizer_stream_open(run->tokenizer, true, &run->stream, err));
  GenerateResult result;
  TRY(generate(run->session, &options, take_token, run, &result, err));
  TRY(finish_text(run, err));
  if (progress_is_terminal() || run->options->verbose) print_statistics(run, &result, prefill_ms);
  return result.reason == FINISH_INTERRUPTED ? STATUS_INTERRUPTED : STATUS_OK;
}

/* --- the way there */

static Status read_prompt(Run *run, Error *err) {
  const PromptFlags *flags = &run->options->prompt;
  if (flags->raw && flags->system)
    return error_set(err, STATUS_USAGE, "-sys needs a chat format, --raw has none");
  TRY(model_tokenizer_open(run->model, run->model_path, &run->tokenizer, err));
  run->format = flags->raw ? CHAT_NONE : chat_format_of(run->tokenizer);
  if (flags->system && run->format == CHAT_NONE)
    return error_set(err, STATUS_USAGE, "-sys needs a chat format, which the tokenizer of %s does not show",
                     run->model_path);
  TRY(prompt_text(flags, &run->prompt, err));
  TRY(prompt_encode(flags, run->tokenizer, run->format, &run->prompt, &run->ids, err));
  return ids_check(run->model, run->ids.ids, run->ids.count, "the prompt", IDS_ENCODED, err);
}

static void print_choices(const Run *run, const SessionOptions *session) {
  static const char *const formats[] = {
      [CHAT_NONE] = "none", [CHAT_CHATML] = "ChatML", [CHAT_LLAMA3] = "Llama 3"};
  const SamplerSettings *s = &session->sampler;
  fprintf(
      stderr,
      "auk: %s on %s, context %d, chat format %s, temperature %g, top-k %d, top-p %g, min-p %g, repetition "
      "penalty %g, seed %llu\n",
      run->model->config.architecture, run->device.backend->name, session->n_ctx, formats[run->format],
      s->temperature, s->top_k, s->top_p, s->min_p, s->repetition_penalty, (unsigned long long)s->seed);
}

static Status run_prompt(Run *run, Error *err) {
  const Options *o = run->options;
  run->interrupted = interrupt_catch();
  TRY(model_flags_path(&o->model, &run->model_path, err));
  TRY(device_choose(&o->device, &run->device, err));
  TRY(model_flags_open(&o->model, &run->model, err));
  TRY(read_prompt(run, err));
  TRY(choose_ends(run, err));
  SessionOptions session = {.kv = (KvType)o->device.kv};
  TRY(choose_sampler(o, &run->model->config.generation, &session.sampler, err));
  TRY(choose_context(run, &session, err));
  if (o->verbose) print_choices(run, &session);
  TRY(device_load(&run->device, run->model, err));
  TRY(session_open(run->device.backend, run->device.loaded, run->model, &session, &run->session, err));
  return answer(run, err);
}

static void release(Run *run) {
  stop_filter_release(&run->stop);
  tokenizer_stream_close(run->stream);
  session_close(run->session);
  device_release(&run->device);
  buffer_release(&run->shown);
  buffer_release(&run->text);
  buffer_release(&run->prompt);
  id_list_release(&run->eos);
  id_list_release(&run->ids);
  tokenizer_close(run->tokenizer);
  model_close(run->model);
  free(run->model_path);
}

/* --- the flags */

static const char usage[] =
    "auk -m MODEL -p TEXT [FLAGS]\nauk -m MODEL -f FILE [FLAGS]\n... | auk -m MODEL [-p TEXT] [FLAGS]";

static const char about[] =
    "Answers a prompt. Text from standard input comes first (unless - stands among the files), then the\n"
    "files, then -p, each beginning on a line of its own; a pipe, a socket or a file on standard input is\n"
    "read to its end. The prompt is put into the model's chat format where its tokenizer has one that is\n"
    "known (ChatML, Llama 3). Sampling is as the model's generation_config.json says, greedy where it says\n"
    "nothing; flags win. Exit status: 0 done, 1 failed, 2 usage, 3 model refused, 130 interrupted, 141 the\n"
    "reader of the output went away.";

static const Flag prompt_flags[] = {
    FLAG_STRING("-p, --prompt", "TEXT", Options, prompt.text, "the prompt"),
    FLAG_FILES("-f, --file", "FILE", Options, prompt.files,
               "a file with text of the prompt, - for standard input; may be repeated"),
    FLAG_STRING("-sys, --system-prompt", "TEXT", Options, prompt.system,
                "what the model is told before the prompt"),
    FLAG_SWITCH("--raw, -no-cnv", Options, prompt.raw, "no chat format: the text as it is"),
    FLAG_SWITCH("--parse-special", Options, prompt.parse_special,
                "text like <|im_end|> in the prompt is the special token; without it, it is ordinary text"),
};
static const Flag answer_flags[] = {
    FLAG_INT("-n, --n-predict, --max-new-tokens", "N", Options, max_tokens, -1, INT_MAX,
             "tokens to answer with at most (default -1: until the model ends or the context is full)"),
    FLAG_INT("-c, --ctx-size", "N", Options, context, 0, INT_MAX,
             "tokens of prompt and answer together; 0: the model's maximum (default: that, or what half of "
             "the free memory holds)"),
    FLAG_STRINGS("--stop", "TEXT", Options, stops, "ends the answer before this text; may be repeated"),
    FLAG_SWITCH("--ignore-eos", Options, ignore_eos, "goes on behind end tokens"),
    FLAG_SWITCH("-v, --verbose", Options, verbose, "settings and statistics to standard error"),
};
static const Flag sampling_flags[] = {
    FLAG_DOUBLE("--temp, --temperature", "X", Options, temperature, 0, 1000, "0: always the likeliest token"),
    FLAG_INT("--top-k", "N", Options, top_k, 0, INT_MAX, "only the N likeliest; 0: off"),
    FLAG_DOUBLE("--top-p", "X", Options, top_p, 0, 1, "only the likeliest that together reach X; 1: off"),
    FLAG_DOUBLE("--min-p", "X", Options, min_p, 0, 1,
                "only those at least X times as likely as the likeliest; 0: off"),
    FLAG_DOUBLE("--repeat-penalty, --repetition-penalty", "X", Options, repetition_penalty, 0.001, 1000,
                "of tokens in prompt or answer; 1: off"),
    FLAG_DOUBLE("--presence-penalty", "X", Options, presence_penalty, -1000, 1000,
                "of tokens in the answer (default 0: off)"),
    FLAG_DOUBLE("--frequency-penalty", "X", Options, frequency_penalty, -1000, 1000,
                "of tokens in the answer, for each time (default 0: off)"),
    FLAG_SEED("-s, --seed", Options, seed,
              "the same seed gives the same answer (default -1: a new one each time)"),
};
static const FlagGroup groups[] = {
    MODEL_FLAG_GROUP(Options, model),   FLAG_GROUP("Prompt", prompt_flags),
    FLAG_GROUP("Answer", answer_flags), FLAG_GROUP("Sampling", sampling_flags),
    DEVICE_FLAG_GROUP(Options, device),
};

const Interface run_interface = {
    .usage = usage,
    .about = about,
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .max_operands = 1,
};

static Status parse(Options *o, int argc, char **argv, bool *helped, Error *err) {
  const char *operand;
  size_t n_operands = 0;
  TRY(flags_parse(&run_interface, o, argc, argv, &operand, &n_operands, helped, err));
  if (n_operands == 0) return STATUS_OK;
  if (strcmp(operand, "-") != 0)
    return error_set(err, STATUS_USAGE, "unexpected argument \"%s\" (a prompt is given with -p)", operand);
  return string_list_add(&o->prompt.files, operand, err);
}

int command_run(int argc, char **argv) {
  Options options = {.max_tokens = -1,
                     .context = NOT_GIVEN,
                     .temperature = NAN,
                     .top_k = NOT_GIVEN,
                     .top_p = NAN,
                     .min_p = NAN,
                     .repetition_penalty = NAN};
  Run run = {.options = &options};
  Error err = {{0}};
  bool helped;
  Status status = parse(&options, argc, argv, &helped, &err);
  if (status == STATUS_OK && !helped) status = run_prompt(&run, &err);
  release(&run);
  string_list_release(&options.prompt.files);
  string_list_release(&options.stops);
  return command_finish(status, &err);
}
