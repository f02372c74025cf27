/* bench.c - `auk bench`: how fast a model is, in the manner of llama.cpp's llama-bench.
 *
 * Called by: main.c.   Calls: session.c.
 * Always true: a test's tokens are the same in every run; what is timed computes every token anew; one run
 *              of each test comes before the timed ones. A decoded token is sampled (greedily) and
 *              appended. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/output.h"
#include "commands/commands.h"
#include "commands/common.h"
#include "commands/device.h"
#include "engine/generate.h"

typedef enum { FORM_MARKDOWN, FORM_CSV, FORM_JSON } Form;

typedef struct {
  ModelFlags model;
  DeviceFlags device;
  IntList prompts, answers, depths; /* tokens; a 0 among the first two is no test */
  int repetitions, form;
} Options;

/* One row: n tokens prefilled at once, or decoded one by one, behind `depth` others. */
typedef struct {
  bool decode;
  int n, depth;
} Test;

typedef struct {
  double mean, deviation; /* tokens per second over the repetitions; the sample's standard deviation */
} Speed;

typedef struct {
  const Options *options;
  const char *model_path;
  Model *model;
  Device device;
  Session *session;
  int32_t *ids;  /* [n_ctx] */
  double *rates; /* [repetitions] tokens per second of one test */
  Buffer out;
  double start_ms; /* when the command began */
  double load_ms,
      first_token_ms; /* from there until the weights and the session are ready; until the first token */
  int n_first;        /* tokens of the prompt before the first token */
  int n_ctx;
  int n_rows; /* rows written */
  const volatile int *interrupted;
} Bench;

/* Tokens that differ between `salt`s from the first one on, so that nothing of an earlier run is in the
 * cache. */
static void fill_ids(const Bench *bench, int32_t *ids, int n, unsigned salt) {
  uint32_t state = salt * 2654435761u + 1;
  for (int i = 0; i < n; i++) {
    ids[i] = (int32_t)((state >> 8) % (unsigned)bench->model->config.vocab_size);
    state = state * 1664525u + 1013904223u; /* Numerical Recipes' generator */
  }
  if (n) ids[0] = (int32_t)(salt % (unsigned)bench->model->config.vocab_size);
}

static bool go_on(void *user, int done, int total) {
  (void)done, (void)total;
  return !*((const Bench *)user)->interrupted;
}

static Status sync(Bench *bench, int n, Error *err) {
  return session_sync(bench->session, bench->ids, n, go_on, bench, err);
}

static Status take_token(void *user, int32_t id, bool *stop, Error *err) {
  (void)user, (void)id, (void)err;
  *stop = false;
  return STATUS_OK;
}

/* One run of a test, in milliseconds. Decoding is timed from the first token, which the prompt's logits give,
 * to the last: as many steps as tokens, by the loop that `auk -p` runs. */
static Status run_once(Bench *bench, const Test *test, unsigned salt, double *ms, Error *err) {
  int behind = test->depth;
  fill_ids(bench, bench->ids + behind, test->n, salt);
  if (test->decode && behind == 0) behind = 1; /* the first token to decode needs one before it */
  if (behind) TRY(sync(bench, behind, err));
  if (!test->decode) {
    double start = clock_ms();
    TRY(sync(bench, behind + test->n, err));
    *ms = clock_ms() - start;
    return STATUS_OK;
  }
  const GenerateOptions options = {.max_tokens = test->n + 1, .interrupted = bench->interrupted};
  GenerateResult result;
  TRY(generate(bench->session, &options, take_token, NULL, &result, err));
  if (result.reason == FINISH_INTERRUPTED) return error_set(err, STATUS_INTERRUPTED, "interrupted");
  *ms = result.decode_ms;
  return STATUS_OK;
}

static Status measure(Bench *bench, const Test *test, Speed *speed, Error *err) {
  const int n = bench->options->repetitions;
  double ms = 0, sum = 0, squares = 0;
  fill_ids(bench, bench->ids, test->depth, 0);
  for (int i = 0; i <= n; i++) {
    TRY(run_once(bench, test, (unsigned)i + 1, &ms, err));
    if (i > 0) bench->rates[i - 1] = ms > 0 ? test->n * 1e3 / ms : INFINITY;
  }
  for (int i = 0; i < n; i++) sum += bench->rates[i];
  speed->mean = sum / n;
  for (int i = 0; i < n; i++) squares += (bench->rates[i] - speed->mean) * (bench->rates[i] - speed->mean);
  speed->deviation = n > 1 ? sqrt(squares / (n - 1)) : 0;
  return STATUS_OK;
}

/* --- the table */

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash && slash[1] ? slash + 1 : path;
}

static Status put_head(Bench *bench, Error *err) {
  switch ((Form)bench->options->form) {
  case FORM_MARKDOWN:
    return buffer_printf(&bench->out, err,
                         "| model | size MiB | backend | threads | kv | test | t/s |\n"
                         "| --- | ---: | --- | ---: | --- | --- | ---: |\n");
  case FORM_CSV:
    return buffer_printf(
        &bench->out, err,
        "model,weight_bytes,backend,threads,kv,test,n_prompt,n_gen,n_depth,repetitions,avg_ts,stddev_ts,"
        "load_ms,first_token_ms\n");
  case FORM_JSON: return buffer_printf(&bench->out, err, "[\n");
  }
  return STATUS_OK;
}

static void name_test(const Test *test, char name[48]) {
  int length = snprintf(name, 48, "%s%d", test->decode ? "tg" : "pp", test->n);
  if (test->depth) snprintf(name + length, (size_t)(48 - length), " @ d%d", test->depth);
}

static Status put_csv_string(Buffer *out, const char *text, Error *err) {
  TRY(buffer_append(out, "\"", 1, err));
  for (; *text; text++) TRY(buffer_append(out, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1, err));
  return buffer_append(out, "\"", 1, err);
}

static Status put_row(Bench *bench, const Test *test, const Speed *speed, Error *err) {
  const Options *o = bench->options;
  const char *model = base_name(bench->model_path), *kv = o->device.kv == KV_F32 ? "f32" : "f16";
  const char *backend = bench->device.backend->name;
  Buffer *out = &bench->out;
  size_t bytes = bench->model->weight_bytes;
  int n_prompt = test->decode ? 0 : test->n, n_gen = test->decode ? test->n : 0;
  char name[48];
  name_test(test, name);
  switch ((Form)o->form) {
  case FORM_MARKDOWN:
    return buffer_printf(out, err, "| %s | %.2f | %s | %d | %s | %s | %.2f ± %.2f |\n", model,
                         (double)bytes / 0x1p20, backend, bench->device.options.n_threads, kv, name,
                         speed->mean, speed->deviation);
  case FORM_CSV:
    TRY(put_csv_string(out, model, err));
    return buffer_printf(out, err, ",%zu,%s,%d,%s,%s,%d,%d,%d,%d,%.6f,%.6f,%.3f,%.3f\n", bytes, backend,
                         bench->device.options.n_threads, kv, name, n_prompt, n_gen, test->depth,
                         o->repetitions, speed->mean, speed->deviation, bench->load_ms,
                         bench->first_token_ms);
  case FORM_JSON:
    TRY(buffer_printf(out, err, "%s  {\"model\": ", bench->n_rows ? ",\n" : ""));
    TRY(json_write_string(out, model, strlen(model), err));
    return buffer_printf(
        out, err,
        ", \"weight_bytes\": %zu, \"backend\": \"%s\", \"threads\": %d, \"kv\": \"%s\", \"test\": "
        "\"%s\", \"n_prompt\": %d, \"n_gen\": %d, \"n_depth\": %d, \"repetitions\": %d, \"avg_ts\": "
        "%.6f, \"stddev_ts\": %.6f, \"load_ms\": %.3f, \"first_token_ms\": %.3f}",
        bytes, backend, bench->device.options.n_threads, kv, name, n_prompt, n_gen, test->depth,
        o->repetitions, speed->mean, speed->deviation, bench->load_ms, bench->first_token_ms);
  }
  return STATUS_OK;
}

static Status put_foot(Bench *bench, Error *err) {
  if (bench->options->form == FORM_JSON) return buffer_printf(&bench->out, err, "\n]\n");
  if (bench->options->form == FORM_CSV) return STATUS_OK;
  return buffer_printf(&bench->out, err,
                       "\nload %.1f ms, first token %.1f ms after the start (prompt of %d tokens)\n",
                       bench->load_ms, bench->first_token_ms, bench->n_first);
}

static Status flush(Bench *bench, Error *err) {
  Status status = output_write(bench->out.data, bench->out.size, err);
  bench->out.size = 0;
  return status;
}

/* --- the tests */

static Status run_test(Bench *bench, Test test, Error *err) {
  if (test.n == 0) return STATUS_OK;
  Speed speed;
  TRY(measure(bench, &test, &speed, err));
  TRY(put_row(bench, &test, &speed, err));
  bench->n_rows++;
  return flush(bench, err);
}

static Status run_tests(Bench *bench, Error *err) {
  const Options *o = bench->options;
  TRY(put_head(bench, err));
  for (size_t d = 0; d < o->depths.count; d++) {
    for (size_t p = 0; p < o->prompts.count; p++)
      TRY(run_test(bench, (Test){false, o->prompts.items[p], o->depths.items[d]}, err));
    for (size_t g = 0; g < o->answers.count; g++)
      TRY(run_test(bench, (Test){true, o->answers.items[g], o->depths.items[d]}, err));
  }
  TRY(put_foot(bench, err));
  return flush(bench, err);
}

static int greatest(const IntList *list) {
  int most = 0;
  for (size_t i = 0; i < list->count; i++) most = list->items[i] > most ? list->items[i] : most;
  return most;
}

/* The context that the longest test needs. */
static Status choose_context(Bench *bench, Error *err) {
  const Options *o = bench->options;
  int64_t prompt = greatest(&o->prompts), answer = (int64_t)greatest(&o->answers) + 1;
  int64_t needed = greatest(&o->depths) + (prompt > answer ? prompt : answer);
  if (needed > bench->model->config.max_position)
    return error_set(err, STATUS_USAGE, "the longest test takes %lld positions, %s has %d", (long long)needed,
                     bench->model_path, bench->model->config.max_position);
  bench->n_ctx = (int)needed;
  return STATUS_OK;
}

/* The first answer of the process: a prompt as long as the first test's, or one token. */
static Status time_first_token(Bench *bench, Error *err) {
  const IntList *prompts = &bench->options->prompts;
  bench->load_ms = clock_ms() - bench->start_ms;
  bench->n_first = prompts->count && prompts->items[0] ? prompts->items[0] : 1;
  fill_ids(bench, bench->ids, bench->n_first, 0);
  int32_t id;
  TRY(sync(bench, bench->n_first, err));
  TRY(session_sample(bench->session, &id, err));
  bench->first_token_ms = clock_ms() - bench->start_ms;
  return STATUS_OK;
}

static Status run_bench(Bench *bench, Error *err) {
  const Options *o = bench->options;
  bench->interrupted = interrupt_catch();
  TRY(model_flags_path(&o->model, &bench->model_path, err));
  TRY(device_choose(&o->device, &bench->device, err));
  TRY(model_flags_open(&o->model, &bench->model, err));
  TRY(choose_context(bench, err));
  SessionOptions session = {
      .n_ctx = bench->n_ctx, .kv = (KvType)o->device.kv, .sampler = {.top_p = 1, .repetition_penalty = 1}};
  StateOptions sizes = session_sizes(&session, bench->device.backend, &bench->model->config);
  TRY(device_check_memory(&bench->device, bench->model, &sizes, err));
  TRY(device_load(&bench->device, bench->model, err));
  TRY(session_open(bench->device.backend, bench->device.loaded, bench->model, &session, &bench->session,
                   err));
  bench->ids = mem_alloc((size_t)bench->n_ctx, sizeof *bench->ids, "tokens", err);
  bench->rates = mem_alloc((size_t)o->repetitions, sizeof *bench->rates, "repetitions", err);
  if (!bench->ids || !bench->rates) return STATUS_FAILED;
  TRY(time_first_token(bench, err));
  return run_tests(bench, err);
}

static void release(Bench *bench) {
  session_close(bench->session);
  device_release(&bench->device);
  free(bench->ids);
  free(bench->rates);
  buffer_release(&bench->out);
  model_close(bench->model);
}

/* --- the flags */

static const char usage[] = "auk bench -m MODEL [-p N,N,...] [-n N,N,...] [-d N,N,...] [FLAGS]";

static const char about[] =
    "Measures tokens per second: ppN is the prefill of N tokens, tgN the generation of N, \"@ dN\" behind N\n"
    "others. Mean and standard deviation over the repetitions, after one run that does not count.";

static Status parse(Options *o, int argc, char **argv, bool *helped, Error *err) {
  const Flag flags[] = {
      flag_ints("-p, --n-prompt", "N,...", &o->prompts, 0, INT_MAX,
                "tokens to prefill (default 512; 0: none)"),
      flag_ints("-n, --n-gen", "N,...", &o->answers, 0, INT_MAX, "tokens to generate (default 128; 0: none)"),
      flag_ints("-d, --n-depth", "N,...", &o->depths, 0, INT_MAX, "tokens that are there before (default 0)"),
      flag_int("-r, --repetitions", "N", &o->repetitions, 1, 1000000, "timed runs of each test (default 5)"),
      flag_choice("-o, --output", "md|csv|json", &o->form, "how to print it (default md)"),
  };
  const FlagGroup groups[] = {
      model_flag_group(&o->model),
      {"Tests", flags, sizeof flags / sizeof *flags},
      device_flag_group(&o->device),
  };
  const Interface interface = {usage, about, groups, sizeof groups / sizeof *groups, 0};
  TRY(flags_parse(&interface, argc, argv, NULL, NULL, helped, err));
  if (o->prompts.count == 0) TRY(int_list_add(&o->prompts, 512, err));
  if (o->answers.count == 0) TRY(int_list_add(&o->answers, 128, err));
  if (o->depths.count == 0) TRY(int_list_add(&o->depths, 0, err));
  return STATUS_OK;
}

int command_bench(int argc, char **argv) {
  Options options = {.repetitions = 5};
  Bench bench = {.options = &options, .start_ms = clock_ms()};
  Error err = {{0}};
  bool helped;
  Status status = parse(&options, argc, argv, &helped, &err);
  if (status == STATUS_OK && !helped) status = run_bench(&bench, &err);
  release(&bench);
  int_list_release(&options.prompts);
  int_list_release(&options.answers);
  int_list_release(&options.depths);
  return command_finish(status, &err);
}
