/* bench_parallel.c - see bench_parallel.h.   Called by: bench.c.
 *
 * All sequences begin at once, each with a prompt of its own. A row has three rates: prompt tokens until the
 * last sequence has its first token; answer tokens from then on; and all tokens over the whole time. The row
 * also has what a step must read while all sequences generate: each weight once, and each sequence's keys and
 * values up to the middle of its answer. */
#include "commands/measure/bench_parallel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/step_cost.h"

typedef struct Run Run;

typedef struct {
  Run *run;
  bool begun;
} Asked;

/* A test, and one run of it. */
struct Run {
  const BenchSubject *subject;
  int n_sequences, n_prompt, n_answer;
  int32_t *ids; /* [n_prompt] */
  Asked *asked; /* [n_sequences] */
  unsigned salt;
  int n_asked, n_generated, n_begun;
  int n_early;     /* answer tokens of all sequences when the last sequence got its first token */
  double first_ms; /* clock_ms() at that time */
};

typedef struct {
  double prompt, answer, all; /* tokens per second */
  double step_ms;             /* time of a step, which gives each sequence a token */
} Rates;

static Status take_token(void *user, int32_t id, TokenReply *reply, Error *err) {
  Asked *asked = user;
  Run *run = asked->run;
  run->n_generated++;
  if (asked->begun) return STATUS_OK;
  asked->begun = true;
  if (++run->n_begun < run->n_sequences) return STATUS_OK;
  run->first_ms = clock_ms();
  run->n_early = run->n_generated;
  return STATUS_OK;
}

/* Gives the next sequence's request. Prompts differ from the first token on, so that no two share pages. */
static Status next(void *user, bool may_wait, EngineRequest *request, bool *found, Error *err) {
  Run *run = user;
  const unsigned vocab = (unsigned)run->subject->model->config.vocab_size;
  *found = run->n_asked < run->n_sequences;
  if (!*found) return STATUS_OK;
  uint32_t state = ++run->salt * 2654435761u + 1;
  for (int i = 0; i < run->n_prompt; i++, state = state * 1664525u + 1013904223u)
    run->ids[i] = (int32_t)((i ? state >> 8 : run->salt) % vocab);
  Asked *asked = &run->asked[run->n_asked++];
  *asked = (Asked){.run = run};
  *request = (EngineRequest){.ids = run->ids,
                             .n_ids = run->n_prompt,
                             .sampler = &run->subject->sampler,
                             .generate = {.max_tokens = run->n_answer},
                             .sink = take_token,
                             .user = asked};
  return STATUS_OK;
}

static Status done(void *user, const EngineRequest *request, const EngineResult *result, Error *err) {
  return result->status ? error_set(err, result->status, "%s", result->error.text) : STATUS_OK;
}

static Status run_once(Run *run, Engine *engine, Rates *sum, Error *err) {
  const EngineJob job = {.next = next, .done = done, .interrupted = run->subject->interrupted, .user = run};
  run->n_asked = run->n_generated = run->n_begun = 0;
  const double start = clock_ms();
  TRY(engine_run(engine, &job, err));
  const double end = clock_ms(), n = run->n_sequences, left = run->n_generated - run->n_early;
  sum->prompt += n * run->n_prompt * 1e3 / (run->first_ms - start);
  sum->answer += left > 0 ? left * 1e3 / (end - run->first_ms) : NAN;
  sum->all += n * (run->n_prompt + run->n_answer) * 1e3 / (end - start);
  sum->step_ms += left > 0 ? (end - run->first_ms) * n / left : NAN;
  return STATUS_OK;
}

static BatchOptions options_of(const Run *run) {
  return (BatchOptions){.n_sequences = run->n_sequences,
                        .n_ctx = run->n_prompt + run->n_answer,
                        .kv = run->subject->kv,
                        .invariant = run->subject->options->device.invariant};
}

static Status measure(Run *run, Rates *mean, Error *err) {
  const BenchSubject *subject = run->subject;
  const BatchOptions batch = options_of(run);
  const EngineOptions options = {.batch = &batch};
  Rates unmeasured, sum = {0};
  Engine *engine;
  char name[64];
  snprintf(name, sizeof name, "%d sequences of %d and %d tokens", run->n_sequences, run->n_prompt,
           run->n_answer);
  bench_say_run(subject, name, -1);
  TRY(engine_open(subject->device->backend, subject->device->loaded, subject->model, &options, &engine, err));
  Status status = run_once(run, engine, &unmeasured, err);
  for (int i = 0; i < subject->options->repetitions && status == STATUS_OK; i++) {
    bench_say_run(subject, name, i);
    status = run_once(run, engine, &sum, err);
  }
  bench_say(subject, NULL);
  engine_close(engine);
  const double n = subject->options->repetitions;
  *mean = (Rates){sum.prompt / n, sum.answer / n, sum.all / n, sum.step_ms / n};
  return status;
}

/* --- the table */

static const Column columns[] = {
    {"model", "model", false, 0},          BENCH_DEVICE_COLUMNS,
    {"parallel", "parallel", true, 8},     {"n_prompt", "prompt", true, 6},
    {"n_gen", "answer", true, 6},          {"repetitions", NULL, true, 0},
    {"prompt_ts", "prompt t/s", true, 10}, {"answer_ts", "answer t/s", true, 10},
    {"total_ts", "total t/s", true, 9},    {"step_ms", "ms/step", true, 8},
    {"step_bytes", NULL, true, 0},         {NULL, "MB/step", true, -1},
    {"step_flop", NULL, true, 0},          {NULL, "GFLOP/step", true, -1},
    {"of_wall", "of wall", true, 7},
};

/* The cost of a step with a token of each sequence. */
static StepCost cost_of(const Run *run) {
  const BenchSubject *subject = run->subject;
  const StepCost one = step_cost(subject->model, subject->kv, run->n_prompt + run->n_answer / 2, 1, 1);
  const StepCost first = step_cost(subject->model, subject->kv, 0, 1, 1);
  return (StepCost){.bytes = first.bytes + run->n_sequences * (one.bytes - first.bytes),
                    .flop = run->n_sequences * one.flop};
}

/* The least time of a step, in ms. Where arithmetic was not measured (on a CPU), only reading counts. */
static double wall_ms(const MachineRates *machine, StepCost cost) {
  const double reading = machine->read_gbps > 0 ? cost.bytes / machine->read_gbps * 1e-6 : NAN;
  return machine->fp16_tflops > 0 ? fmax(reading, cost.flop / machine->fp16_tflops * 1e-9) : reading;
}

static Status put_row(const Run *run, const Rates *rates, Table *table, Error *err) {
  const BenchSubject *subject = run->subject;
  const StepCost cost = cost_of(run);
  TRY(table_text(table, subject->model_name, err));
  TRY(bench_put_device(subject, table, err));
  TRY(table_integer(table, run->n_sequences, err));
  TRY(table_integer(table, run->n_prompt, err));
  TRY(table_integer(table, run->n_answer, err));
  TRY(table_integer(table, subject->options->repetitions, err));
  TRY(table_number(table, rates->prompt, 1, err));
  TRY(table_number(table, rates->answer, 1, err));
  TRY(table_number(table, rates->all, 1, err));
  TRY(table_number(table, rates->step_ms, 3, err));
  TRY(table_integer(table, (long long)(cost.bytes + 0.5), err));
  TRY(table_number(table, cost.bytes * 1e-6, 1, err));
  TRY(table_integer(table, (long long)(cost.flop + 0.5), err));
  TRY(table_number(table, cost.flop * 1e-9, 2, err));
  TRY(table_number(table, wall_ms(&subject->machine, cost) / rates->step_ms, 3, err));
  return table_end_row(table, err);
}

static Status test_and_print(void *user, Run *run, Error *err) {
  Table *table = user;
  Rates rates;
  OWNED(mem_release) int32_t *ids = NULL;
  OWNED(mem_release) Asked *asked = NULL;
  TRY(NEW(ids, (size_t)run->n_prompt, "a prompt", err));
  TRY(NEW(asked, (size_t)run->n_sequences, "sequences", err));
  run->ids = ids, run->asked = asked;
  TRY(measure(run, &rates, err));
  return put_row(run, &rates, table, err);
}

/* --- all tests */

typedef Status (*TestVisitor)(void *user, Run *run, Error *err);

static Status for_each(const BenchSubject *subject, TestVisitor visit, void *user, Error *err) {
  const BenchOptions *o = subject->options;
  for (size_t c = 0; c < o->parallel.count; c++)
    for (size_t p = 0; p < o->prompts.count; p++)
      for (size_t a = 0; a < o->answers.count; a++) {
        Run run = {.subject = subject,
                   .n_sequences = o->parallel.ids[c],
                   .n_prompt = o->prompts.ids[p],
                   .n_answer = o->answers.ids[a]};
        TRY(visit(user, &run, err));
      }
  return STATUS_OK;
}

static Status check(void *user, Run *run, Error *err) {
  const BenchSubject *subject = run->subject;
  const Backend *backend = subject->device->backend;
  const int most = subject->model->config.max_position;
  if (backend->page_tokens == 0)
    return error_set(err, STATUS_USAGE, "--parallel: the device %s computes one sequence at a time",
                     backend->name);
  if (run->n_sequences < 1 || run->n_prompt < 1 || run->n_answer < 1)
    return error_set(err, STATUS_USAGE, "--parallel %d -p %d -n %d: each is at least 1", run->n_sequences,
                     run->n_prompt, run->n_answer);
  if (run->n_answer > most - run->n_prompt)
    return error_set(err, STATUS_USAGE, "-p %d and -n %d take %lld positions, %s has %d", run->n_prompt,
                     run->n_answer, (long long)run->n_prompt + run->n_answer, subject->model_name, most);
  const BatchOptions options = options_of(run);
  const StateOptions sizes = batch_sizes(&options, backend, &subject->model->config);
  return device_check_memory(subject->device, subject->model, &sizes, err);
}

Status bench_parallel_check(const BenchSubject *subject, Error *err) {
  return for_each(subject, check, NULL, err);
}

static Status run_tests(void *user, Table *table, Error *err) {
  return for_each(user, test_and_print, table, err);
}

Status bench_parallel(BenchSubject *subject, Error *err) {
  return bench_print(subject, columns, sizeof columns / sizeof *columns, run_tests, subject, err);
}
