/* bench.c - `auk bench`: measures the speed of a model, in the manner of llama.cpp's llama-bench.
 *
 * Called by: main.c through the table of commands.c.
 * Always true: each run of a test has its own fixed tokens; no timed token is taken from a cache; untimed
 *              runs of each test come first. A decoded token is sampled (greedily without flags) and
 *              appended; a prefill step takes up to a chunk of tokens, and the last step computes the last
 *              token's logits. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "commands/answer/assistant.h"
#include "commands/commands.h"
#include "commands/common.h"
#include "commands/device.h"
#include "commands/measure/bench_guesses.h"
#include "commands/measure/bench_kernels.h"
#include "commands/measure/bench_parallel.h"
#include "commands/measure/bench_roofline.h"
#include "commands/measure/bench_subject.h"
#include "commands/model_flags.h"
#include "engine/one.h"
#include "engine/step_cost.h"

/* A row of the table: n tokens of a prompt, or n decoded one by one, after `depth` other tokens. */
typedef struct {
  bool decode;
  int n, depth;
} Test;

typedef struct {
  double mean, deviation; /* tokens per second over all repetitions; sample standard deviation */
} Speed;

typedef struct {
  const BenchOptions *options;
  ModelPlace place;
  Model *model;
  Device device;
  BenchSubject subject;
  Session *session;
  int max_chunk;   /* tokens in the session's largest step */
  int32_t *ids;    /* [n_ctx] */
  double *rates;   /* [repetitions] tokens per second in one test */
  double start_ms; /* start of the process */
  double load_ms,
      first_token_ms; /* since start_ms: until weights and session are ready, and until the first token */
  int n_first;        /* prompt tokens before the first token */
  int n_ctx;
  double taken_before; /* bytes of device memory in use before loading the weights */
} Bench;

/* Fills in pseudo-random tokens. Even the first one depends on `salt`, so that no prefix of an earlier run is
 * reused. */
static void fill_ids(const Bench *bench, int32_t *ids, int n, unsigned salt) {
  uint32_t state = salt * 2654435761u + 1;
  for (int i = 0; i < n; i++) {
    ids[i] = (int32_t)((state >> 8) % (unsigned)bench->model->config.vocab_size);
    state = state * 1664525u + 1013904223u; /* Numerical Recipes' generator */
  }
  if (n) ids[0] = (int32_t)(salt % (unsigned)bench->model->config.vocab_size);
}

static bool go_on(void *user, int done, int total) {
  return !*((const Bench *)user)->subject.interrupted;
}

static Status take_token(void *user, int32_t id, TokenReply *reply, Error *err) {
  return STATUS_OK;
}

/* Tokens in the session when a test begins: decoding needs at least one. */
static int tokens_before(const Test *test) {
  return test->decode && test->depth == 0 ? 1 : test->depth;
}

/* Runs a test once; *ms: its time. For decoding, this is the time of test->n steps after the first token,
 * which the prompt's logits give. The loop is that of `auk -p`. */
static Status run_once(Bench *bench, const Test *test, unsigned salt, double *ms, Error *err) {
  const int before = tokens_before(test);
  fill_ids(bench, bench->ids + test->depth, test->n, salt);
  if (before) TRY(session_sync(bench->session, bench->ids, before, err));
  if (!test->decode) {
    double start = clock_ms();
    TRY(session_sync(bench->session, bench->ids, before + test->n, err));
    *ms = clock_ms() - start;
    return STATUS_OK;
  }
  const GenerateOptions options = {.max_tokens = test->n + 1, .interrupted = bench->subject.interrupted};
  GenerateResult result;
  TRY(generate(bench->session, &options, take_token, NULL, &result, err));
  if (result.reason == FINISH_INTERRUPTED) return error_set(err, STATUS_INTERRUPTED, "interrupted");
  *ms = result.decode_ms;
  return STATUS_OK;
}

enum { TEST_NAME = 48 };

static void name_test(const Test *test, char name[TEST_NAME]) {
  int length = snprintf(name, TEST_NAME, "%s%d", test->decode ? "tg" : "pp", test->n);
  if (test->depth) snprintf(name + length, TEST_NAME - (size_t)length, " @ d%d", test->depth);
}

static Status measure(Bench *bench, const Test *test, Speed *speed, Error *err) {
  char name[TEST_NAME];
  name_test(test, name);
  const int n = bench->options->repetitions;
  const int unmeasured = bench->device.backend != &cpu_backend ? 2 : 1; /* a GPU's 2nd run makes its graph */
  double ms = 0, sum = 0, squares = 0;
  fill_ids(bench, bench->ids, test->depth, 0);
  for (int i = -unmeasured; i < n; i++) {
    bench_say_run(&bench->subject, name, i);
    TRY(run_once(bench, test, (unsigned)(i + unmeasured) + 1, &ms, err));
    if (i >= 0) bench->rates[i] = ms > 0 ? test->n * 1e3 / ms : INFINITY;
  }
  for (int i = 0; i < n; i++) sum += bench->rates[i];
  speed->mean = sum / n;
  for (int i = 0; i < n; i++) squares += (bench->rates[i] - speed->mean) * (bench->rates[i] - speed->mean);
  speed->deviation = n > 1 ? sqrt(squares / (n - 1)) : 0;
  return STATUS_OK;
}

/* --- the table */

static const Column columns[] = {
    {"model", "model", false, 0},
    {NULL, "size MiB", true, 0},
    {"weight_bytes", NULL, true, 0},
    BENCH_DEVICE_COLUMNS,
    {"test", NULL, false, 0},
    {"sampling", NULL, false, 0},
    {NULL, "test", false, 18}, /* test and sampling */
    {"n_prompt", NULL, true, 0},
    {"n_gen", NULL, true, 0},
    {"n_depth", NULL, true, 0},
    {"repetitions", NULL, true, 0},
    {NULL, "t/s", true, 18},
    {"avg_ts", NULL, true, 0},
    {"stddev_ts", NULL, true, 0},
    {"steps", NULL, true, 0},
    {"bytes", NULL, true, 0},
    {NULL, "MB/step", true, 8},
    {"gbps", "GB/s", true, 8},
    {"of_wall", "of wall", true, 7},
    {"machine_gbps", NULL, true, 0},
    {"machine_tflops", NULL, true, 0},
    {"load_ms", "load ms", true, 0},
    {"first_token_ms", "first token ms", true, 0},
    {"first_token_prompt", NULL, true, 0},
};

/* Writes "greedy" for temperature 0, then flag and value of each setting that is not neutral: "temp 0.7,
 * top-k 20". */
static void name_sampling(const SamplerSettings *s, char name[160]) {
  const struct {
    const char *flag;
    double value, neutral;
  } settings[] = {
      {"temp", s->temperature, 0},
      {"top-k", s->top_k, 0},
      {"top-p", s->top_p, 1},
      {"min-p", s->min_p, 0},
      {"repeat-penalty", s->repetition_penalty, 1},
      {"presence-penalty", s->presence_penalty, 0},
      {"frequency-penalty", s->frequency_penalty, 0},
  };
  int length = s->temperature == 0 ? snprintf(name, 160, "greedy") : 0;
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
    if (settings[i].value != settings[i].neutral)
      length += snprintf(name + length, (size_t)(160 - length), "%s%s %.6g", length ? ", " : "",
                         settings[i].flag, settings[i].value);
}

static Status put_test(const Bench *bench, const Test *test, Table *table, Error *err) {
  char name[TEST_NAME], sampling[160] = "none", both[224];
  name_test(test, name);
  if (test->decode) name_sampling(&bench->subject.sampler, sampling);
  const bool plain = !test->decode || strcmp(sampling, "greedy") == 0;
  snprintf(both, sizeof both, plain ? "%s" : "%s (%s)", name, sampling);
  TRY(table_text(table, name, err));
  TRY(table_text(table, sampling, err));
  TRY(table_text(table, both, err));
  TRY(table_integer(table, test->decode ? 0 : test->n, err));
  TRY(table_integer(table, test->decode ? test->n : 0, err));
  return table_integer(table, test->depth, err);
}

/* Writes the number of steps, the mean bytes that a step must read, the GB/s read, the ideal time divided by
 * the measured time, and the machine's rates. */
static Status put_roofline(const Bench *bench, const Test *test, const Speed *speed, Table *table,
                           Error *err) {
  const Model *model = bench->model;
  const MachineRates *machine = &bench->subject.machine;
  const KvType kv = bench->subject.kv;
  const size_t spared = session_head_spares(bench->session, tokens_before(test));
  const TestRoofline roofline =
      test->decode ? roofline_of_decode(model, kv, machine, tokens_before(test), test->n, spared)
                   : roofline_of_prefill(model, kv, machine, test->depth, test->n, bench->max_chunk);
  const double ms = test->n * 1e3 / speed->mean, step_bytes = roofline.bytes / roofline.n_steps;
  TRY(table_integer(table, roofline.n_steps, err));
  TRY(table_integer(table, (long long)(step_bytes + 0.5), err));
  TRY(table_number(table, step_bytes * 1e-6, 1, err));
  TRY(table_number(table, roofline.bytes / ms * 1e-6, 1, err));
  TRY(table_number(table, roofline.ideal_ms / ms, 3, err));
  TRY(table_number(table, machine->read_gbps > 0 ? machine->read_gbps : NAN, 0, err));
  return table_number(table, machine->fp16_tflops > 0 ? machine->fp16_tflops : NAN, 0, err);
}

static Status put_row(const Bench *bench, const Test *test, const Speed *speed, Table *table, Error *err) {
  char speeds[64];
  snprintf(speeds, sizeof speeds, "%.2f ± %.2f", speed->mean, speed->deviation);
  TRY(table_text(table, bench->subject.model_name, err));
  TRY(table_number(table, (double)bench->model->weight_bytes / 0x1p20, 2, err));
  TRY(table_integer(table, (long long)bench->model->weight_bytes, err));
  TRY(bench_put_device(&bench->subject, table, err));
  TRY(put_test(bench, test, table, err));
  TRY(table_integer(table, bench->options->repetitions, err));
  TRY(table_text(table, speeds, err));
  TRY(table_number(table, speed->mean, 2, err));
  TRY(table_number(table, speed->deviation, 2, err));
  TRY(put_roofline(bench, test, speed, table, err));
  TRY(table_number(table, bench->load_ms, 1, err));
  TRY(table_number(table, bench->first_token_ms, 1, err));
  TRY(table_integer(table, bench->n_first, err));
  return table_end_row(table, err);
}

/* --- the tests */

static Status run_test(Bench *bench, Test test, Table *table, Error *err) {
  if (test.n == 0) return STATUS_OK;
  Speed speed = {0};
  TRY(measure(bench, &test, &speed, err));
  bench_say(&bench->subject, NULL);
  return put_row(bench, &test, &speed, table, err);
}

static Status run_tests(void *user, Table *table, Error *err) {
  Bench *bench = user;
  const BenchOptions *o = bench->options;
  for (size_t d = 0; d < o->depths.count; d++) {
    for (size_t p = 0; p < o->prompts.count; p++)
      TRY(run_test(bench, (Test){false, o->prompts.ids[p], o->depths.ids[d]}, table, err));
    for (size_t g = 0; g < o->answers.count; g++)
      TRY(run_test(bench, (Test){true, o->answers.ids[g], o->depths.ids[d]}, table, err));
  }
  return STATUS_OK;
}

static int greatest(const IdList *list) {
  int most = 0;
  for (size_t i = 0; i < list->count; i++) most = list->ids[i] > most ? list->ids[i] : most;
  return most;
}

static Status choose_context(Bench *bench, Error *err) {
  const BenchOptions *o = bench->options;
  int64_t prompt = greatest(&o->prompts), answer = (int64_t)greatest(&o->answers) + 1;
  int64_t needed = greatest(&o->depths) + (prompt > answer ? prompt : answer);
  if (needed > bench->model->config.max_position)
    return error_set(err, STATUS_USAGE, "the longest test takes %lld positions, %s has %d", (long long)needed,
                     bench->place.path, bench->model->config.max_position);
  bench->n_ctx = (int)needed;
  return STATUS_OK;
}

/* Start of the process on clock_ms()'s clock. The kernel records it before libraries are loaded, in ticks of
 * some ms, rounded down (field 22 in proc_pid_stat(5)). If that is unavailable, the current time. */
static double process_start_ms(void) {
  const double now = clock_ms();
  unsigned long long ticks;
  char line[1024];
  struct timespec since_boot;
  FILE *file = fopen("/proc/self/stat", "re");
  if (!file) return now;
  const char *rest =
      fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL; /* the name may contain anything */
  fclose(file);
  for (int field = 3; rest && field <= 22; field++) rest = strchr(rest + 1, ' ');
  if (!rest || sscanf(rest, " %llu", &ticks) != 1 || clock_gettime(CLOCK_BOOTTIME, &since_boot) != 0)
    return now;
  double age = (double)since_boot.tv_sec * 1e3 + (double)since_boot.tv_nsec * 1e-6 -
               (double)ticks * 1e3 / (double)sysconf(_SC_CLK_TCK);
  return age > 0 ? now - age : now;
}

/* Bytes of the device's own memory that all programs use; 0 if the device has none. */
static Status memory_taken(const Bench *bench, double *bytes, Error *err) {
  const BackendProbe *probe = bench->device.backend->probe;
  size_t free_bytes, all_bytes;
  *bytes = 0;
  if (!probe->memory_now) return STATUS_OK;
  TRY(probe->memory_now(&bench->device.options, &free_bytes, &all_bytes, err));
  *bytes = (double)(all_bytes - free_bytes);
  return STATUS_OK;
}

/* Prints to standard error the MB of the weights, the KV cache and everything else, and the MB in use. On a
 * CPU that is the process's peak. On a device with its own memory it is what all programs use, now and before
 * the weights were loaded. PRECOND every kind of step has run */
static Status report_memory(const Bench *bench, Error *err) {
  const double weights = (double)bench->model->weight_bytes, mb = 1e6;
  const double cache =
      kv_cache_bytes(&bench->model->config, bench->subject.kv, session_view(bench->session).text->n_ctx);
  const bool own = bench->device.backend->probe->memory_now != NULL;
  struct rusage usage; /* on a CPU: peak memory, with the pages of mapped files */
  double taken;
  TRY(memory_taken(bench, &taken, err));
  if (!own) taken = getrusage(RUSAGE_SELF, &usage) == 0 ? (double)usage.ru_maxrss * 1024 : 0;
  fprintf(stderr, "auk: memory in MB: weights %.1f as stored, KV cache %.1f, everything else %.1f; ",
          weights / mb, cache / mb, (taken - weights - cache) / mb);
  if (own)
    fprintf(stderr, "%.1f taken, %.1f before the weights came\n", taken / mb, bench->taken_before / mb);
  else
    fprintf(stderr, "%.1f resident at most\n", taken / mb);
  return STATUS_OK;
}

/* Measures the time from the start of the process to the first token. The prompt has as many tokens as the
 * first number of -p says, but at least one. */
static Status time_first_token(Bench *bench, Error *err) {
  const IdList *prompts = &bench->options->prompts;
  bench->load_ms = clock_ms() - bench->start_ms;
  bench->n_first = prompts->count && prompts->ids[0] ? prompts->ids[0] : 1;
  fill_ids(bench, bench->ids, bench->n_first, 0);
  int32_t id;
  bench_say(&bench->subject, "the first token, after %d of a prompt", bench->n_first);
  TRY(session_sync(bench->session, bench->ids, bench->n_first, err));
  TRY(session_sample(bench->session, &id, err));
  bench->first_token_ms = clock_ms() - bench->start_ms;
  bench_say(&bench->subject, NULL);
  if (!bench->options->verbose) return STATUS_OK;
  if (session_view(bench->session).text->n_past < bench->n_ctx) TRY(session_decode(bench->session, id, err));
  TRY(session_drain(bench->session, err));
  return report_memory(bench, err);
}

/* --- the model */

static Status open_model(Bench *bench, Error *err) {
  const BenchOptions *o = bench->options;
  const ModelOverrides *over = &o->model.overrides;
  if (!o->dummy_weights) return model_place_open(&bench->place, &o->model, &bench->model, err);
  if (over->rope_theta != 0 || over->norm_eps != 0)
    return error_set(err, STATUS_USAGE,
                     "%s is only for packed files: with --dummy-weights config.json says it",
                     over->rope_theta != 0 ? "--rope-theta" : "--norm-eps");
  return model_open_dummy(bench->place.path, &bench->model, err);
}

/* Loads the weights. For a dummy model it first makes random weights in the host's memory if the backend has
 * no memory of its own, or if that memory may not hold all weights. */
static Status load_weights(Bench *bench, Error *err) {
  const bool read = !bench->device.backend->memory || bench->device.options.weight_bytes > 0;
  if (bench->model->dummy && read) TRY(model_fill_dummy(bench->model, err));
  return device_load(&bench->device, bench->model, err);
}

static Status load(Bench *bench, const SessionOptions *session, Error *err) {
  const Backend *backend = bench->device.backend;
  StateOptions sizes = session_sizes(session, backend, &bench->model->config);
  bench->max_chunk = sizes.max_chunk;
  TRY(memory_taken(bench, &bench->taken_before, err));
  TRY(device_check_memory(&bench->device, bench->model, &sizes, err));
  TRY(load_weights(bench, err));
  TRY(session_open(backend, bench->device.loaded, bench->model, session, &bench->session, err));
  session_watch(bench->session, go_on, bench);
  return STATUS_OK;
}

/* Multiplies the machine's rates by the number of GPUs that share the model. Prints the all-reduce's time if
 * all GPUs are this process's. */
static Status measure_sums(Bench *bench, Error *err) {
  const int n = bench->device.options.split, rows[] = {1, bench->max_chunk > 1 ? bench->max_chunk : 2};
  double microseconds[2];
  bench->subject.machine.read_gbps *= n;
  bench->subject.machine.fp16_tflops *= n;
  if (bench->device.options.ranks) return STATUS_OK; /* the other processes do not join in timing */
  TRY(bench->device.backend->probe->time_sums(bench->device.loaded, rows, 2, microseconds, err));
  fprintf(
      stderr,
      "auk: a sum over %d GPUs, of which a step has %d, takes as a kernel of its own %.2f us for a token, "
      "%.1f us for %d\n",
      n, 2 * bench->model->config.n_layers, microseconds[0], microseconds[1], rows[1]);
  return STATUS_OK;
}

/* Measures the machine, unless memory is so short that this could harm other programs. */
static Status measure_machine(Bench *bench, Error *err) {
  DeviceMemory memory;
  TRY(device_memory(&bench->device, bench->model, &memory, err));
  if (memory.free_bytes < (size_t)2 << 30) return STATUS_OK;
  bench_say(&bench->subject, "what this machine can do");
  TRY(bench->device.backend->probe->measure_machine(&bench->device.options, &bench->subject.machine, err));
  bench_say(&bench->subject, NULL);
  return bench->device.options.split > 1 ? measure_sums(bench, err) : STATUS_OK;
}

static Status run_tests_of_model(Bench *bench, Error *err) {
  const BenchSubject *subject = &bench->subject;
  TRY(choose_context(bench, err));
  SessionOptions session = {.n_ctx = bench->n_ctx, .kv = subject->kv, .sampler = subject->sampler};
  TRY(load(bench, &session, err));
  TRY(NEW(bench->ids, (size_t)bench->n_ctx, "tokens", err));
  TRY(NEW(bench->rates, (size_t)bench->options->repetitions, "repetitions", err));
  TRY(time_first_token(bench, err));
  TRY(measure_machine(bench, err));
  return bench_print(&bench->subject, columns, sizeof columns / sizeof *columns, run_tests, bench, err);
}

static Status run_kernels(Bench *bench, Error *err) {
  const BenchOptions *o = bench->options;
  const KernelTimesOptions times = {.n_tokens = o->prompts.ids,
                                    .n_counts = o->prompts.count,
                                    .repetitions = o->repetitions,
                                    .interrupted = bench->subject.interrupted};
  return bench_kernels(&bench->subject, &times, err);
}

static Status run_parallel(Bench *bench, Error *err) {
  TRY(bench_parallel_check(&bench->subject, err));
  TRY(load_weights(bench, err));
  TRY(measure_machine(bench, err));
  return bench_parallel(&bench->subject, err);
}

static Status run_guesses(Bench *bench, Error *err) {
  TRY(bench_guesses_check(&bench->subject, err));
  TRY(load_weights(bench, err));
  return bench_guesses(&bench->subject, err);
}

static void describe_subject(Bench *bench, const volatile int *interrupted) {
  static const GenerationDefaults greedy = {.top_p = 1, .repetition_penalty = 1};
  const BenchOptions *o = bench->options;
  BenchSubject *subject = &bench->subject;
  *subject = (BenchSubject){.options = o,
                            .device = &bench->device,
                            .model = bench->model,
                            .sampler = sampling_settings(&o->sampling, &greedy),
                            .kv = (KvType)o->device.kv,
                            .interrupted = interrupted,
                            .on_screen = terminal_takes_escapes(STDERR_FILENO)};
  snprintf(subject->model_name, sizeof subject->model_name, "%.300s%s", bench->place.name,
           o->dummy_weights ? " (random weights)" : "");
}

static Status run_bench(Bench *bench, Error *err) {
  const BenchOptions *o = bench->options;
  const volatile int *interrupted = interrupt_catch();
  TRY(model_place_find(&o->model, &bench->place, err));
  TRY(device_choose(&o->device, &bench->device, err));
  TRY(open_model(bench, err));
  TRY(device_fit(&bench->device, bench->model, err));
  describe_subject(bench, interrupted);
  if (o->parallel.count) return run_parallel(bench, err);
  if (!isnan(o->accept)) return run_guesses(bench, err);
  return o->kernels ? run_kernels(bench, err) : run_tests_of_model(bench, err);
}

/* --kernels takes only counts of rows, all at least one. */
static Status check_kernel_flags(const BenchOptions *o, Error *err) {
  if (o->answers.count || o->depths.count || o->parallel.count)
    return error_set(err, STATUS_USAGE, "--kernels takes counts of rows from -p; %s is for whole models",
                     o->answers.count  ? "-n"
                     : o->depths.count ? "-d"
                                       : "--parallel");
  for (size_t i = 0; i < o->prompts.count; i++)
    if (o->prompts.ids[i] < 1)
      return error_set(err, STATUS_USAGE, "-p %d: --kernels needs at least one row", o->prompts.ids[i]);
  return STATUS_OK;
}

static Status check_options(BenchOptions *o, Error *err) {
  if (o->json) o->form = FORM_JSON;
  if (o->form == NOT_GIVEN) o->form = (int)table_usual_form();
  sampling_note_idle(&o->sampling);
  if (o->kernels) return check_kernel_flags(o, err);
  if (o->parallel.count && o->depths.count)
    return error_set(err, STATUS_USAGE,
                     "-d does not go with --parallel, whose tests begin with their prompts");
  if (o->guesses.count == 0) TRY(id_list_append(&o->guesses, 3, err));
  if (o->prompts.count == 0) TRY(id_list_append(&o->prompts, 512, err));
  if (o->answers.count == 0) TRY(id_list_append(&o->answers, 128, err));
  if (o->depths.count == 0) TRY(id_list_append(&o->depths, 0, err));
  if (greatest(&o->prompts) == 0 && greatest(&o->answers) == 0)
    return error_set(err, STATUS_USAGE, "-p 0 and -n 0 leave nothing to measure");
  return STATUS_OK;
}

static Status run(CommandCall *call, Error *err) {
  Bench bench = {.options = call->options, .start_ms = process_start_ms()};
  TRY(check_options(call->options, err));
  Status status = run_bench(&bench, err);
  session_close(bench.session);
  device_release(&bench.device);
  free(bench.ids);
  free(bench.rates);
  model_place_release(&bench.place);
  model_close(bench.model);
  return status;
}

static const char usage[] = "auk bench -m MODEL [-p N,N,...] [-n N,N,...] [-d N,N,...] [FLAGS]\n"
                            "auk bench -m MODEL --parallel N,N,... [-p N,N,...] [-n N,N,...] [FLAGS]\n"
                            "auk bench -m MODEL --accept P [--guess N,N,...] [--draft MODEL] [FLAGS]\n"
                            "auk bench -m MODEL --kernels [-p N,N,...] [FLAGS]";

static const char about[] =
    "Measures tokens per second: ppN is the prefill of N tokens, tgN the generation of N, \"@ dN\" behind N\n"
    "others. Mean and standard deviation over the repetitions, after runs that do not count. The\n"
    "times until the model is loaded and until the first token (after a prompt as long as the first\n"
    "test's) count from the start of the process.\n"
    "MB/step: the least that a step reads, each weight, key and value once (for tgN the mean over its steps; "
    "lm_head\nin 8 bits, where these are enough to find the best tokens).\nGB/s: the same per second. of "
    "wall: a roofline, the part of the test's time that this machine would need at\nits own peak rates, "
    "measured just before: memory bandwidth or fp16 products, whichever takes longer (a CPU:\nbandwidth, for "
    "single tokens alone). Weights in a CPU's cache and int8 products can take it above 1.\n"
    "With --dummy-weights a config.json is enough: speed hardly depends on what the weights are. Its\n"
    "load time is that of making them.\n"
    "With --parallel N sequences begin at once. prompt t/s counts until the last one has its first token,\n"
    "answer t/s from then on, total t/s all tokens over the whole time.\n"
    "With --invariant it times what --map does by default on a Hopper GPU, without it --map --no-invariant.\n"
    "With --accept P speculative decoding is timed: a step guesses N tokens (--guess), and each counts as "
    "right with\nprobability P if all before it are, whatever the model says. So random weights will do. "
    "draft ms is the\n"
    "drafter's time in a step, verify ms all other time.\n"
    "With --kernels every kernel of the GPU that can multiply a matrix of the model is timed by itself,\n"
    "for each count of rows in -p (default 1, 2, 4 .. 4096): the median of the repetitions, bytes of\n"
    "the matrix and operations per second, and what fraction that is of what the machine did just before\n"
    "(the larger of reading and fp16 products; int8 activations can pass 1). The kernel that auk chooses by "
    "default is\nmarked, and so is the one that it chooses with --act int8. \"cublas fp16\" is cuBLAS on an "
    "fp16 matrix of the\nsame shape.";

static const Flag flags[] = {
    FLAG_INTS("-p, --n-prompt", "N,...", BenchOptions, prompts, 0, INT_MAX,
              "tokens to prefill (default 512; 0: none)"),
    FLAG_INTS("-n, --n-gen", "N,...", BenchOptions, answers, 0, INT_MAX,
              "tokens to generate (default 128; 0: none)"),
    FLAG_INTS("-d, --n-depth", "N,...", BenchOptions, depths, 0, INT_MAX,
              "tokens already in the KV cache (default 0)"),
    FLAG_INTS("--parallel, -npl", "N,...", BenchOptions, parallel, 1, MOST_SEQUENCES,
              "sequences at once, each with a prompt (-p) and an answer (-n) of its own"),
    FLAG_DOUBLE("--accept", "P", BenchOptions, accept, 0, 1,
                "times steps with guesses, of which this part is right"),
    FLAG_INTS("--guess, --draft-max", "N,...", BenchOptions, guesses, 0, DRAFT_MOST,
              "tokens that a step guesses (default 3; 0: none, to compare)"),
    FLAG_PLAIN(KIND_STRING, VALUE_MODEL, const char *, "--draft, --draft-model, --model-draft, -md", "MODEL",
               BenchOptions, draft, "the model that makes the guesses; without it they cost nothing"),
    FLAG_INT("-r, --repetitions", "N", BenchOptions, repetitions, 1, 1000000,
             "timed runs of each test (default 5)"),
    FLAG_CHOICE("-o, --output", "table|md|csv|json", BenchOptions, form,
                "how to print it (default table on a terminal, else md, which has more columns)"),
    FLAG_SWITCH("--json", BenchOptions, json, "the same as -o json"),
    FLAG_SWITCH("--dummy-weights", BenchOptions, dummy_weights,
                "random weights: MODEL is a config.json, or a directory with one"),
    FLAG_SWITCH("-v, --verbose", BenchOptions, verbose, "what memory is taken, to standard error"),
    FLAG_SWITCH("--kernels", BenchOptions, kernels, "GPU: time every kernel on every matrix of the model"),
};
static const FlagGroup groups[] = {
    MODEL_FLAG_GROUP(BenchOptions, model),
    FLAG_GROUP("Tests", flags),
    FLAG_GROUP_IN("Sampling (greedy where nothing is given)", sampling_flags, BenchOptions, sampling,
                  SamplingFlags),
    DEVICE_FLAG_GROUP(BenchOptions, device),
    INVARIANT_FLAG_GROUP(BenchOptions, device),
};

static const FlagRule rules[] = {
    {"--guess, --draft", NEEDS, "--accept", NULL},
    {"--json", EXCLUDES, "-o", NULL},
    {"--invariant", NEEDS, "--parallel", NULL},
    INVARIANT_FLAG_RULES,
    {"--split", EXCLUDES, "--kernels", "it times kernels on one GPU"},
    {"--accept", EXCLUDES, "--parallel, --kernels, -p", "it times generation"},
    SAMPLING_FLAG_RULES,
};

const Interface bench_interface = {
    .usage = usage,
    .about = about,
    .examples = "auk bench -m MODEL -p 512 -n 128\n"
                "auk bench -m MODEL -p 0 -n 64 -d 8192,32768    # after long contexts\n"
                "auk bench -m config.json --dummy-weights -o json",
    INTERFACE_GROUPS(groups),
    INTERFACE_RULES(rules),
    INTERFACE_MODEL_OPERAND,
    .takes_foreign = true,
    .options_size = sizeof(BenchOptions),
    .defaults =
        &(const BenchOptions){
            .repetitions = 5, .form = NOT_GIVEN, .accept = NAN, .sampling = SAMPLING_NOT_GIVEN},
    .run = run,
};
