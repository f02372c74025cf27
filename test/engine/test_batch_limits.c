/* test_batch_limits.c - what a batch may take: an answer ends with its context, guesses fit what is left,
 * what does not fit is refused, and prompts enter at the rate of a device. */
#include "batch_test.h"
#include "engine/batch_memory.h"
#include "test/tests.h"

/* A record of n tokens whose answer, by greedy picks, ends by its length or by the context. */
static Item long_winded(int n, int max_tokens, int n_ctx) {
  Item item = {.max_tokens = max_tokens, .n_ctx = n_ctx, .has_no_end = true};
  seed = 1;
  make_ids(&item, n, 0);
  item.sampler = (SamplerSettings){.top_p = 1, .repetition_penalty = 1};
  return item;
}

/* A request's own context, unless the batch's is smaller. The last token of an answer is not computed. */
TEST(an_answer_ends_with_its_own_context) {
  const Backend gpu = like_a_gpu();
  static const struct {
    int n, n_ctx, n_answer; /* 0: it does not fit */
  } cases[] = {{9, 0, 32},  {9, 20, 12}, {9, 9, 1},   {9, 8, 0},
               {9, 39, 31}, {9, 40, 32}, {9, 41, 32}, {9, 150, 32}};
  enum { N = sizeof cases / sizeof *cases };
  for (int k = 0; k < 2; k++) {
    Item items[N];
    Run run = {.at_once = true, .backend = k ? &gpu : NULL};
    paged = (PagedCounts){0};
    for (int i = 0; i < N; i++) items[i] = long_winded(cases[i].n, -1, cases[i].n_ctx);
    assert_int_equal(run_items(&model, items, N, (BatchOptions){.n_sequences = 3, .n_ctx = 40}, &run),
                     STATUS_OK);
    for (int i = 0; i < N; i++) {
      assert_int_equal(items[i].n_answer, cases[i].n_answer);
      assert_int_equal(items[i].result.status, cases[i].n_answer ? STATUS_OK : STATUS_USAGE);
      if (cases[i].n_answer) assert_int_equal(items[i].result.generated.reason, FINISH_CONTEXT);
      assert_memory_equal(items[i].answer, items[0].answer, (size_t)cases[i].n_answer * sizeof(int32_t));
    }
    assert_string_equal(items[3].result.error.text, "9 tokens, expected 1 to the context of 8");
  }
}

/* A drafter was asked for `most` guesses after n tokens. */
static struct { int n, most; } asked[PAGED_POSITIONS];
static int n_asked;

static Status propose_when_asked(void *self, const DraftText *text, int most, Guesses *guesses, Error *err) {
  asked[n_asked].n = text->n;
  asked[n_asked++].most = most;
  return propose_known(self, text, most, guesses, err);
}

static Status open_asked(void *user, int n_ctx, Drafter *drafter, Error *err) {
  (void)user, (void)n_ctx, (void)err;
  *drafter = (Drafter){.name = "asked", .propose = propose_when_asked};
  return STATUS_OK;
}

enum { PAGE, CONTEXT, ORIGINAL, LENGTH, N_BOUNDS };

/* The guesses for which the bounds leave room after n tokens of a record. */
static void bounds_after(const Item *item, const Model *of, int n_ctx, int n, int *bounds) {
  const bool is_short = of == &long_model && n <= LONG_FROM;
  bounds[PAGE] = (n + PAGED_TOKENS - 1) / PAGED_TOKENS * PAGED_TOKENS - n;
  bounds[CONTEXT] = (item->n_ctx ? item->n_ctx : n_ctx) - n;
  bounds[ORIGINAL] = (is_short ? LONG_FROM : PAGED_POSITIONS) - n;
  bounds[LENGTH] = (item->max_tokens > 0 ? item->n_ids + item->max_tokens : PAGED_POSITIONS) - n - 1;
}

/* No guess is made that could not stay: all fit the last page, the contexts of the request and of LongRoPE,
 * and max_tokens less the token that the step gives anyhow. None is made while tokens are forced singly. */
TEST(guesses_fit_what_is_left) {
  static const struct {
    int n, max_tokens, n_ctx, n_first;
  } cases[] = {{9, -1, 0, 0}, {9, -1, 45, 0}, {9, 12, 0, 0}, {38, 30, 60, 0}, {9, -1, 0, 3}};
  enum { N = sizeof cases / sizeof *cases };
  bool was_least[N_BOUNDS] = {false};
  for (size_t i = 0; i < 2 * N; i++) {
    const Model *of = i < N ? &model : &long_model;
    Item alone = long_winded(cases[i % N].n, cases[i % N].max_tokens, cases[i % N].n_ctx);
    alone.n_first = cases[i % N].n_first;
    alone.is_scored = alone.n_first > 0;
    Item item = alone;
    BatchOptions options = {.n_sequences = 1, .n_ctx = 70};
    Run runs[2] = {{0}};
    paged = (PagedCounts){.turn = 1000};
    assert_int_equal(run_items(of, &alone, 1, options, &runs[0]), STATUS_OK);
    known_items = &alone;
    n_known = 1;
    n_asked = 0;
    options.n_guesses = DRAFT_MOST;
    options.guess_always = true;
    options.draft = (DraftSource){.open = open_asked};
    assert_int_equal(run_items(of, &item, 1, options, &runs[1]), STATUS_OK);
    assert_same(&item, &alone);
    assert_true(n_asked > 1 && asked[0].n == item.n_ids + item.n_first);
    for (int k = 0; k < n_asked; k++) {
      int bounds[N_BOUNDS], least = PAGED_POSITIONS;
      bounds_after(&item, of, options.n_ctx, asked[k].n, bounds);
      for (int bound = 0; bound < N_BOUNDS; bound++) least = bounds[bound] < least ? bounds[bound] : least;
      assert_int_equal(asked[k].most, least);
      int n_least = 0;
      for (int bound = 0; bound < N_BOUNDS; bound++) n_least += bounds[bound] == least;
      for (int bound = 0; bound < N_BOUNDS; bound++)
        was_least[bound] |= n_least == 1 && bounds[bound] == least;
    }
  }
  for (int bound = 0; bound < N_BOUNDS; bound++) assert_true(was_least[bound]);
}

TEST(what_does_not_fit_is_refused) {
  BackendModel loaded = {&model};
  Engine *engine;
  Error err = {{0}};
  BatchOptions options = {.n_sequences = 2, .n_ctx = 100, .n_pages = 12};
  assert_int_equal(
      engine_open(&paged_backend, &loaded, &model, &(const EngineOptions){.batch = &options}, &engine, &err),
      STATUS_USAGE);
  assert_string_equal(err.text, "12 pages of 8 tokens, fewer than the 13 of one context of 100 tokens");
  const Backend single = {.name = "single"};
  assert_int_equal(
      engine_open(&single, &loaded, &model, &(const EngineOptions){.batch = &options}, &engine, &err),
      STATUS_USAGE);
  assert_string_equal(err.text, "the backend single computes one sequence at a time, not 2");
  options.n_pages = 13;
  Item *items = calloc(4, sizeof *items);
  for (int i = 0; i < 4; i++) {
    make_ids(&items[i], i == 0 ? MOST_IDS : 5, 0);
    items[i].sampler = (SamplerSettings){.top_p = 1, .repetition_penalty = 1};
    items[i].max_tokens = 1;
  }
  items[0].n_ids++;
  items[2].n_first = items[3].n_first = 2;
  items[2].forced[1] = INT32_MAX;
  items[3].forced[0] = -1;
  Run run = {0};
  assert_int_equal(run_items(&model, items, 4, options, &run), STATUS_OK);
  assert_int_equal(items[0].result.status, STATUS_USAGE);
  assert_string_equal(items[0].result.error.text, "101 tokens, expected 1 to the context of 100");
  assert_int_equal(items[1].n_answer, 1);
  for (int i = 2; i < 4; i++) assert_int_equal(items[i].result.status, STATUS_USAGE);
  assert_string_equal(items[2].result.error.text, "forced token 1 has id 2147483647, expected 0 to 60");
  assert_string_equal(items[3].result.error.text, "forced token 0 has id -1, expected 0 to 60");
  free(items);
}

/* On a device with memory of its own four prompts of 12 tokens with answers of 4 or 12 enter at the rate at
 * which answers end: steps of 4 * (1 + 12 / 4) = 16 rows, or of 8. The tokens are those of a record alone. */
TEST(prompts_of_a_gpu_are_spread_over_steps) {
  const Backend gpu = like_a_gpu();
  for (int n_answer = 4; n_answer <= 12; n_answer += 8) {
    Item items[2][8] = {0};
    Run runs[2] = {{.at_once = true}, {.at_once = true, .backend = &gpu}};
    for (int i = 0; i < 2; i++) {
      seed = 9;
      for (int k = 0; k < 8; k++) {
        make_ids(&items[i][k], 12, 0);
        items[i][k].sampler = (SamplerSettings){.top_p = 1, .repetition_penalty = 1};
        items[i][k].max_tokens = n_answer;
      }
      paged = (PagedCounts){.turn = 1000};
      const BatchOptions options = {.n_sequences = 4};
      assert_int_equal(run_items(&model, items[i], 8, options, &runs[i]), STATUS_OK);
    }
    for (int k = 0; k < 8; k++) assert_same(&items[0][k], &items[1][k]);
    assert_int_equal(runs[0].most_rows, 24);
    assert_int_equal(runs[1].most_rows, n_answer == 4 ? 16 : 8);
    assert_true(runs[1].n_mixed > runs[0].n_mixed);
  }
}
/* With pages for each sequence's whole context all begin in the first step: prompts of one token, which are
 * computed with the answers, and of twelve. */
TEST(sequences_with_pages_for_all_begin_at_once) {
  enum { N = 5 };
  for (int n_ids = 1; n_ids <= 12; n_ids += 11) {
    Item items[N] = {0};
    Run run = {.at_once = true};
    seed = 9;
    for (int k = 0; k < N; k++) {
      items[k] = (Item){.max_tokens = 12, .has_no_end = true};
      make_ids(&items[k], n_ids, 0);
      items[k].sampler = (SamplerSettings){.top_p = 1, .repetition_penalty = 1};
    }
    paged = (PagedCounts){.turn = 1000};
    const BatchOptions options = {.n_sequences = N, .n_ctx = 24, .chunk = N * n_ids};
    assert_int_equal(run_items(&model, items, N, options, &run), STATUS_OK);
    char first[100] = "";
    for (int k = 0; k < N; k++) sprintf(first + strlen(first), "%d:0+%d%s", k, n_ids, k < N - 1 ? " " : "\n");
    assert_int_equal(strncmp(run.trace, first, strlen(first)), 0);
    assert_int_equal(run.n_taken_back, 0);
  }
}

/* Pages for a quarter of the sequences with whole answers: a sequence begins where half of what the others'
 * answers still lack fits, so few lose their pages later (40); if only the tokens that it has had to fit,
 * pages were taken back 290 times. */
TEST(a_sequence_begins_where_others_can_grow) {
  enum { N = 200, ANSWER = 60 };
  Item *items = calloc(N, sizeof *items);
  Run run = {.at_once = true};
  seed = 9;
  for (int k = 0; k < N; k++) {
    items[k] = (Item){.max_tokens = ANSWER, .has_no_end = true};
    make_ids(&items[k], 12, 0);
    items[k].sampler = (SamplerSettings){.top_p = 1, .repetition_penalty = 1};
  }
  paged = (PagedCounts){.turn = 1000};
  const int whole = batch_pages(&paged_backend, 12 + ANSWER);
  const BatchOptions options = {.n_sequences = 40, .n_pages = 10 * whole};
  assert_int_equal(run_items(&model, items, N, options, &run), STATUS_OK);
  assert_in_range(run.n_taken_back, 1, 60);
  assert_in_range(run.most_sequences, 10, 20);
  free(items);
}

/* Answers of 40 prompts of 12 tokens that end after two of thirty tokens: prompts enter by 8 rows a step, as
 * if all were long, and at the end by 4 * (1 + 480 / (36 * 2 + 4 * 30)), which makes 16. */
TEST(the_rate_is_that_of_the_answers_so_far) {
  enum { N = 40 };
  const Backend gpu = like_a_gpu();
  Item *items = calloc(N, sizeof *items);
  Run run = {.at_once = true, .backend = &gpu};
  seed = 9;
  for (int k = 0; k < N; k++) {
    items[k] = (Item){.max_tokens = 30, .stop_at = 2, .has_no_end = true};
    make_ids(&items[k], 12, 0);
    items[k].sampler = (SamplerSettings){.top_p = 1, .repetition_penalty = 1};
  }
  paged = (PagedCounts){.turn = 1000};
  assert_int_equal(run_items(&model, items, N, (BatchOptions){.n_sequences = 4}, &run), STATUS_OK);
  assert_true(strncmp(run.trace, "0:0+8\n", 6) == 0);
  assert_int_equal(run.most_rows, 16);
  free(items);
}
