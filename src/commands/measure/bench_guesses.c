/* bench_guesses.c - see bench_guesses.h.
 *
 * Called by: bench.c.
 * Always true: a token is picked from every row of logits that is used, as in an answer. A separate draw
 *              decides whether a guess counts as right; each repetition has the same draws. */
#include "commands/measure/bench_guesses.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "commands/answer/guess.h"

typedef struct {
  const BenchSubject *subject;
  int n_guesses, depth, n;
  Session *session;
  int32_t *ids; /* [depth], or [1] for depth 0: the tokens before the answer */
  uint64_t random;
} Run;

typedef struct {
  double tokens_a_second, tokens_a_step, step_ms, draft_ms; /* step_ms, draft_ms: times per step */
} Rates;

/* --- a drafter that costs nothing */

static Status propose(void *self, const DraftText *text, int most, Guesses *guesses, Error *err) {
  const int *n_guesses = self;
  for (; guesses->n < most && guesses->n < *n_guesses; guesses->n++)
    guesses->ids[guesses->n] = text->ids[(text->n - 1 + guesses->n) % text->n];
  return STATUS_OK;
}

/* --- a run */

static bool is_right(Run *run) {
  run->random = run->random * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
  return (double)(run->random >> 11) * 0x1p-53 < run->subject->options->accept;
}

/* Picks the next token: the guess if it counts as right, else another token. Without a guess, picks the
 * sampled token. */
static Status next_token(Run *run, int32_t *id, Error *err) {
  const int32_t *guesses;
  TRY(session_sample(run->session, id, err));
  if (session_guessed(run->session, &guesses) == 0) return STATUS_OK;
  const int32_t n_ids = run->subject->model->config.vocab_size;
  if (is_right(run))
    *id = guesses[0];
  else if (*id == guesses[0])
    *id = (*id + 1) % n_ids;
  return STATUS_OK;
}

static Status run_once(Run *run, Rates *sum, Error *err) {
  const int n_before = run->depth > 0 ? run->depth : 1;
  int32_t id;
  session_keep(run->session, 0);
  session_take_guesses(run->session);
  run->random = 1;
  TRY(session_sync(run->session, run->ids, n_before, err));
  TRY(next_token(run, &id, err));
  const double start = clock_ms();
  for (int i = 0; i < run->n; i++) {
    if (*run->subject->interrupted) return error_set(err, STATUS_INTERRUPTED, "interrupted");
    session_hold(run->session, id);
    TRY(session_decode_held(run->session, run->n - i - 1, err));
    TRY(next_token(run, &id, err));
  }
  const double ms = clock_ms() - start;
  const GuessCounts counts = session_take_guesses(run->session);
  const double n_steps = run->n_guesses > 0 ? (double)counts.n_steps : run->n;
  sum->tokens_a_second += run->n * 1e3 / ms;
  sum->tokens_a_step += run->n / n_steps;
  sum->step_ms += ms / n_steps;
  sum->draft_ms += counts.draft_ms / n_steps;
  return STATUS_OK;
}

static Status repeat(Run *run, Rates *mean, Error *err) {
  const BenchSubject *subject = run->subject;
  const int n = subject->options->repetitions;
  Rates unmeasured = {0};
  char name[64];
  snprintf(name, sizeof name, "%d guesses a step, %d tokens after %d", run->n_guesses, run->n, run->depth);
  for (int i = -1; i < n; i++) {
    bench_say_run(subject, name, i);
    TRY(run_once(run, i < 0 ? &unmeasured : mean, err));
  }
  bench_say(subject, NULL);
  *mean = (Rates){mean->tokens_a_second / n, mean->tokens_a_step / n, mean->step_ms / n, mean->draft_ms / n};
  return STATUS_OK;
}

static int context_of(const Run *run) {
  return (run->depth > 0 ? run->depth : 1) + run->n;
}

static Status open_and_run(Run *run, Guesser *guesser, Rates *rates, Error *err) {
  const BenchSubject *subject = run->subject;
  const Device *device = subject->device;
  const GuessFlags flags = {.most = run->n_guesses,
                            .draft = run->n_guesses > 0 ? subject->options->draft : NULL};
  SessionOptions options = {
      .n_ctx = context_of(run), .kv = subject->kv, .sampler = subject->sampler, .guess_always = true};
  TRY(guesser_open(&flags, subject->model, NULL, device, guesser, err));
  guesser_choose(guesser, device->backend, &options);
  Drafter free_drafter = {.name = "none", .self = &run->n_guesses, .propose = propose};
  if (!flags.draft)
    options.drafter = run->n_guesses > 0 ? &free_drafter : NULL;
  else
    TRY(guesser_start(guesser, subject->model, device, &options, err));
  TRY(session_open(device->backend, device->loaded, subject->model, &options, &run->session, err));
  Status status = repeat(run, rates, err);
  session_close(run->session);
  return status;
}

/* --- the table */

static const Column columns[] = {
    {"model", "model", false, 0},        BENCH_DEVICE_COLUMNS,
    {"draft", "draft", false, 0},        {"n_guesses", "guesses", true, 7},
    {"accept", "accept", true, 0},       {"n_gen", "answer", true, 7},
    {"n_depth", "depth", true, 7},       {"repetitions", NULL, true, 0},
    {"avg_ts", "t/s", true, 7},          {"tokens_per_step", "tokens/step", true, 11},
    {"step_ms", "ms/step", true, 7},     {"draft_ms", "draft ms", true, 8},
    {"verify_ms", "verify ms", true, 9},
};

static Status put_row(const Run *run, const Rates *rates, Table *table, Error *err) {
  const BenchOptions *o = run->subject->options;
  TRY(table_text(table, run->subject->model_name, err));
  TRY(bench_put_device(run->subject, table, err));
  TRY(table_text(table, run->n_guesses > 0 && o->draft ? o->draft : "none", err));
  TRY(table_integer(table, run->n_guesses, err));
  TRY(table_number(table, o->accept, 3, err));
  TRY(table_integer(table, run->n, err));
  TRY(table_integer(table, run->depth, err));
  TRY(table_integer(table, o->repetitions, err));
  TRY(table_number(table, rates->tokens_a_second, 2, err));
  TRY(table_number(table, rates->tokens_a_step, 3, err));
  TRY(table_number(table, rates->step_ms, 3, err));
  TRY(table_number(table, rates->draft_ms, 3, err));
  TRY(table_number(table, rates->step_ms - rates->draft_ms, 3, err));
  return table_end_row(table, err);
}

static Status run_test(Run *run, Table *table, Error *err) {
  const int n_before = run->depth > 0 ? run->depth : 1;
  Guesser guesser = {.flags = NULL};
  Rates rates = {0};
  TRY(NEW(run->ids, (size_t)n_before, "tokens", err));
  for (int i = 0; i < n_before; i++)
    run->ids[i] =
        (int32_t)((uint32_t)(i + 1) * 2654435761u % (uint32_t)run->subject->model->config.vocab_size);
  Status status = open_and_run(run, &guesser, &rates, err);
  guesser_release(&guesser);
  free(run->ids);
  return status ? status : put_row(run, &rates, table, err);
}

static Status run_tests(void *user, Table *table, Error *err) {
  const BenchSubject *subject = user;
  const BenchOptions *o = subject->options;
  for (size_t d = 0; d < o->depths.count; d++)
    for (size_t a = 0; a < o->answers.count; a++)
      for (size_t g = 0; g < o->guesses.count; g++) {
        Run run = {.subject = subject,
                   .n_guesses = o->guesses.ids[g],
                   .depth = o->depths.ids[d],
                   .n = o->answers.ids[a]};
        if (run.n > 0) TRY(run_test(&run, table, err));
      }
  return STATUS_OK;
}

Status bench_guesses_check(const BenchSubject *subject, Error *err) {
  const BenchOptions *o = subject->options;
  const int most = subject->model->config.max_position;
  for (size_t d = 0; d < o->depths.count; d++)
    for (size_t a = 0; a < o->answers.count; a++)
      if ((int64_t)o->depths.ids[d] + 1 + o->answers.ids[a] > most)
        return error_set(err, STATUS_USAGE, "-d %d and -n %d take more than the %d positions of %s",
                         o->depths.ids[d], o->answers.ids[a], most, subject->model_name);
  return STATUS_OK;
}

Status bench_guesses(BenchSubject *subject, Error *err) {
  return bench_print(subject, columns, sizeof columns / sizeof *columns, run_tests, subject, err);
}
