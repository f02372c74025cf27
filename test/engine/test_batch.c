/* test_batch.c - many sequences at once: each gets what it gets alone, in the steps that batch.h promises,
 * and no page is lost. */
#include "batch_test.h"
#include "test/tests.h"

enum { MANY = 1000 };

static void check_many(const Model *of, int n, const Backend *backend, bool invariant) {
  static const BatchOptions options[] = {
      {.n_sequences = 2, .chunk = 5},
      {.n_sequences = 7, .n_pages = 26},
      {.n_sequences = 64, .n_pages = 70},
      {.n_sequences = 64},
      {.n_sequences = 3, .n_guesses = 5, .guess_always = true},
      {.n_sequences = 9, .n_guesses = DRAFT_MOST, .n_pages = 30},
      {.n_sequences = 20, .chunk = 40, .n_guesses = 4, .guess_always = true},
      {.n_sequences = 9, .n_guesses = 5, .n_drafters = 6, .guess_always = true}};
  Item *alone = make_items(n);
  Run run = {0};
  paged = (PagedCounts){.turn = 1000, .form = 5000};
  assert_int_equal(run_items(of, alone, n, (BatchOptions){.n_sequences = 1, .invariant = invariant}, &run),
                   STATUS_OK);
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    Item *items = make_items(n);
    run = (Run){.backend = backend};
    BatchOptions wanted = options[i];
    wanted.draft = known;
    wanted.invariant = invariant;
    known_items = alone;
    n_known = n;
    assert_int_equal(run_items(of, items, n, wanted, &run), STATUS_OK);
    long long guessed = 0, accepted = 0;
    for (int item = 0; item < n; item++) {
      guessed += items[item].result.generated.guesses.n_guessed;
      accepted += items[item].result.generated.guesses.n_accepted;
    }
    const bool guesses = wanted.n_guesses > 0 && !of->config.layers; /* a recurrent state allows none */
    /* with too few drafters there are guesses at the end alone, perhaps only right ones */
    const int least = wanted.n_drafters > 0 ? 0 : n / 2;
    assert_true(guesses ? accepted > least && accepted <= guessed - (least > 0) : guessed == 0);
    for (int item = 0; item < n; item++) assert_same(&items[item], &alone[item]);
    assert_int_equal(run.most_sequences, options[i].chunk == 5 ? 2 : run.most_sequences);
    assert_true(run.n_mixed > 0);
    assert_true((run.n_taken_back > 0) == (options[i].n_pages > 0));
    free(items);
  }
  free(alone);
}

static void check_models(const Backend *backend, bool invariant) {
  check_many(&model, MANY, backend, invariant);
  check_many(&hybrid_model, 200, backend, invariant);
  check_many(&long_model, 200, backend, invariant);
}

TEST(each_gets_what_it_gets_alone) {
  const Backend gpu = like_a_gpu();
  check_models(NULL, false);
  check_models(&gpu, false);
}

/* Also where rows of prompts give other numbers than those of answers: sequences share prompts alone. */
TEST(each_gets_it_from_rows_of_the_same_form) {
  const Backend gpu = like_a_gpu();
  check_models(&gpu, true);
}

/* A record of 3 tokens, whose answer ends by its length, by an end token or by its sink, or whose sink may
 * force tokens. On a device the sink gets a token after the next step has begun, unless it may force tokens
 * or the answer's length ends it. The step after an end token, or after a sink ends the answer, is wasted. */
TEST(a_device_computes_while_its_host_works) {
  const Backend gpu = like_a_gpu();
  static const struct {
    int max_tokens, stop_at, force_at;
    bool late;
    int n_in_vain;
  } cases[] = {{12, 0, 0, true, 0}, {-1, 0, 0, true, 1}, {30, 5, 0, true, 1}, {12, 0, 5, false, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Item items[2] = {0};
    int n_steps[2];
    for (int k = 0; k < 2; k++) {
      Run run = {.at_once = true, .backend = k ? &gpu : NULL};
      seed = 11;
      make_ids(&items[k], 3, 0);
      items[k].sampler = (SamplerSettings){.temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = 4};
      items[k].max_tokens = cases[i].max_tokens;
      items[k].stop_at = cases[i].stop_at;
      items[k].force_at = cases[i].force_at;
      paged = (PagedCounts){0};
      assert_int_equal(run_items(&model, &items[k], 1, (BatchOptions){.n_sequences = 2}, &run), STATUS_OK);
      n_steps[k] = paged.n_steps;
    }
    assert_same(&items[0], &items[1]);
    assert_int_equal(n_steps[1], n_steps[0] + cases[i].n_in_vain);
    assert_int_equal(paged.n_ahead, cases[i].late ? n_steps[1] : 0);
    assert_true(items[0].n_answer > 4);
    for (int t = 0; t < items[0].n_answer - 1; t++)
      assert_int_equal(items[1].steps_before[t], items[0].steps_before[t] + cases[i].late);
  }
}

/* A device that gets steps before their tokens are known: answers that end in any way, in pages that are
 * shared, run out or belong to texts of two ropes, while records come, and where some tokens are awaited. */
TEST(steps_go_ahead_of_their_picks) {
  const Backend gpu = like_a_gpu();
  const Model *const models[] = {&model, &hybrid_model, &long_model};
  static const BatchOptions options[] = {{.n_sequences = 2, .chunk = 5},
                                         {.n_sequences = 7, .n_pages = 26},
                                         {.n_sequences = 64, .n_pages = 70},
                                         {.n_sequences = 1}};
  enum { N = 300 };
  for (size_t m = 0; m < sizeof models / sizeof *models; m++)
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
      Item *items[2] = {make_items(N), make_items(N)};
      int n_ahead = 0;
      for (int k = 0; k < 2; k++) {
        Run run = {.backend = k ? &gpu : NULL};
        for (Item *item = items[k]; item < items[k] + N; item++) {
          const bool awaited = (item - items[k]) % 50 == 0;
          if (!awaited) item->sampler.repetition_penalty = 1, item->sampler.presence_penalty = 0;
          if (!awaited) item->force_at = item->n_scored = 0;
        }
        paged = (PagedCounts){.turn = 1000};
        assert_int_equal(run_items(models[m], items[k], N, options[i], &run), STATUS_OK);
        n_ahead = paged.n_ahead;
      }
      assert_true(n_ahead > paged.n_steps / 4 && n_ahead < paged.n_steps);
      for (int n = 0; n < N; n++) assert_same(&items[0][n], &items[1][n]);
      free(items[0]);
      free(items[1]);
    }
}

/* A record that goes on where another has ended, with the same tokens, finds all their whole pages. */
TEST(tokens_that_came_late_are_shared) {
  const Backend gpu = like_a_gpu();
  Item items[2] = {0};
  for (int i = 0; i < 2; i++) {
    Run run = {.at_once = true, .backend = &gpu};
    items[i] = (Item){.max_tokens = 21, .has_no_end = true};
    make_ids(&items[i], 12, 12);
    items[i].sampler = (SamplerSettings){.top_p = 1, .repetition_penalty = 1};
    paged = (PagedCounts){0};
    if (i == 1) memcpy(items[1].ids + 12, items[0].answer, 21 * sizeof(int32_t)), items[1].n_ids += 21;
    assert_int_equal(run_items(&model, items, 1 + i, (BatchOptions){.n_sequences = 1}, &run), STATUS_OK);
    items[0].n_answer = items[0].n_done = 0;
  }
  assert_int_equal(items[1].result.n_reused, 32);
}

/* Tokens that a turn forces are as those of a sink; a turn that waits changes nothing; one that ends leaves
 * what was answered. */
TEST(turns_wait_force_and_end) {
  const Backend gpu = like_a_gpu();
  enum { N = 300 };
  static const BatchOptions options[] = {{.n_sequences = 1},
                                         {.n_sequences = 2, .chunk = 5},
                                         {.n_sequences = 7, .n_pages = 26},
                                         {.n_sequences = 9, .n_guesses = 5, .guess_always = true}};
  Item *alone = make_items(N);
  Run run = {0};
  paged = (PagedCounts){.turn = 1000};
  assert_int_equal(run_items(&model, alone, N, (BatchOptions){.n_sequences = 1}, &run), STATUS_OK);
  known_items = alone;
  n_known = N;
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    Item *items = make_items(N);
    int n_quit = 0, n_forced = 0;
    for (int k = 0; k < N; k++) items[k].late = k % 2, items[k].quit_at = k % 7 ? 0 : 1 + k % 11;
    run = (Run){.turns = true, .backend = i % 2 ? &gpu : NULL};
    BatchOptions wanted = options[i];
    wanted.draft = known;
    assert_int_equal(run_items(&model, items, N, wanted, &run), STATUS_OK);
    for (int k = 0; k < N; k++) {
      const Item *item = &items[k];
      const bool quit = item->result.generated.reason == FINISH_INTERRUPTED;
      n_quit += quit;
      n_forced += item->late && item->force_at > 0 && item->n_answer > item->force_at;
      if (item->late && item->force_at > 0) assert_int_equal(item->result.generated.guesses.n_guessed, 0);
      if (!quit) {
        assert_same(item, &alone[k]);
        continue;
      }
      assert_true(item->n_done == 1 && item->n_answer >= item->quit_at &&
                  item->n_answer <= alone[k].n_answer);
      assert_memory_equal(item->answer, alone[k].answer, (size_t)item->n_answer * sizeof *item->answer);
    }
    assert_true(n_quit > 10 && n_forced > 2 && run.n_waits > N);
    if (wanted.n_sequences <= 2) assert_true(run.n_all_waits > N / 2);
    free(items);
  }
  free(alone);
}

/* Two old records wait until a young one is done, which needs more pages than they leave: it gets theirs, and
 * they compute their tokens again. */
TEST(who_waits_gives_its_pages_to_the_others) {
  for (int n_old = 1; n_old <= 2; n_old++) {
    Item items[3] = {0}, alone[3];
    Run run = {.at_once = true, .turns = true};
    BatchOptions options = {.n_sequences = 3, .n_ctx = 80, .n_pages = 10};
    seed = 1;
    paged = (PagedCounts){0};
    for (int i = 0; i <= n_old; i++) {
      items[i] = (Item){.max_tokens = i < n_old ? 12 : 40, .has_no_end = true};
      items[i].sampler = (SamplerSettings){.top_p = 1, .repetition_penalty = 1};
      make_ids(&items[i], i < n_old ? 20 : 30, 0);
      alone[i] = items[i];
      if (i < n_old) items[i].waits_for = &items[n_old];
    }
    for (int i = 0; i <= n_old; i++) {
      Run one = {.at_once = true};
      assert_int_equal(run_items(&model, &alone[i], 1, (BatchOptions){.n_sequences = 1, .n_ctx = 80}, &one),
                       STATUS_OK);
    }
    assert_int_equal(run_items(&model, items, n_old + 1, options, &run), STATUS_OK);
    assert_true(run.n_taken_back > 0);
    for (int i = 0; i <= n_old; i++) {
      assert_same(&items[i], &alone[i]);
      assert_int_equal(items[i].result.n_reused, 0);
    }
  }
}

/* Each token of a record is computed once, or found in what others have computed: with room for all, the rows
 * of all steps are the tokens less those that are reused. The last token of an answer is not computed. */
TEST(what_is_not_reused_is_computed_once) {
  enum { N = 60 };
  for (int n_sequences = 1; n_sequences <= 16; n_sequences *= 4)
    for (int like = 0; like <= 40; like += 20) {
      Item *items = calloc(N, sizeof *items);
      Run run = {.at_once = true};
      int n_expected = 0, n_reused = 0;
      seed = 4;
      paged = (PagedCounts){.turn = 1000};
      for (int i = 0; i < N; i++) {
        items[i] = (Item){.max_tokens = 1 + any(9), .has_no_end = true};
        items[i].sampler = (SamplerSettings){.top_p = 1, .repetition_penalty = 1};
        make_ids(&items[i], 41 + any(19), like);
      }
      assert_int_equal(run_items(&model, items, N, (BatchOptions){.n_sequences = n_sequences}, &run),
                       STATUS_OK);
      for (int i = 0; i < N; i++) {
        assert_int_equal(items[i].n_answer, items[i].max_tokens);
        assert_int_equal(items[i].result.generated.n_generated, items[i].max_tokens);
        assert_in_range(items[i].result.n_reused, 0, items[i].n_ids - 1);
        n_expected += items[i].n_ids + items[i].n_answer - 1 - items[i].result.n_reused;
        n_reused += items[i].result.n_reused;
      }
      assert_int_equal(paged.n_tokens, n_expected);
      if (like > 0 && n_sequences > 1) assert_true(n_reused > N / 2 * (like - PAGED_TOKENS));
      free(items);
    }
}

/* --- progress */

typedef struct {
  Run run;
  int last[8], n_calls[8]; /* of each record: the last report */
} Heard;

static void hear_progress(void *user, const EngineRequest *request, const EngineResult *result, int n_done,
                          int total) {
  Heard *heard = user;
  const Item *item = request->user;
  const long i = item - heard->run.items;
  assert_int_equal(total, item->n_ids - (item->n_scored > 0));
  assert_true(n_done > heard->last[i] && n_done <= total); /* each step says more */
  assert_int_equal(result->prefill_ms > 0, n_done == total);
  assert_int_equal(item->n_answer, 0);
  heard->last[i] = n_done;
  heard->n_calls[i]++;
}

/* A prompt is reported step by step until all of it is computed, and not afterwards. */
TEST(prompts_are_reported_until_they_are_computed) {
  enum { N = 8 };
  static const int n_ids[N] = {1, 2, 23, 24, 25, 60, 48, 49};
  BackendModel loaded = {&model};
  for (int n_sequences = 1; n_sequences <= 3; n_sequences++) {
    const BatchOptions options = {.n_sequences = n_sequences};
    Engine *engine;
    Error err = {{0}};
    Item items[N] = {0};
    Heard heard = {.run = {.items = items,
                           .n = N,
                           .n_sequences = n_sequences,
                           .chunk = batch_sizes(&options, &paged_backend, &model.config).max_chunk,
                           .at_once = true}};
    seed = 6;
    paged = (PagedCounts){0};
    for (int i = 0; i < N; i++) {
      items[i] = (Item){.max_tokens = 3, .has_no_end = true};
      items[i].sampler = (SamplerSettings){.top_p = 1, .repetition_penalty = 1};
      make_ids(&items[i], n_ids[i], 0);
    }
    const EngineJob job = {
        .next = next, .done = done, .step = look, .progress = hear_progress, .user = &heard};
    assert_int_equal(engine_open(&paged_backend, &loaded, &model, &(const EngineOptions){.batch = &options},
                                 &engine, &err),
                     STATUS_OK);
    assert_int_equal(engine_run(engine, &job, &err), STATUS_OK);
    for (int i = 0; i < N; i++) {
      assert_int_equal(heard.last[i], n_ids[i]);
      assert_true(items[i].result.prefill_ms > 0 && items[i].result.generated.decode_ms >= 0);
      if (n_sequences == 1) assert_int_equal(heard.n_calls[i], (n_ids[i] + 23) / 24);
    }
    engine_close(engine);
  }
}

/* The first record's prompt is longer than a step; the second begins like it, and waits for what is computed
 * of it; the third has nothing in common. */
TEST(steps_are_filled_as_promised) {
  Item *items = calloc(3, sizeof *items);
  seed = 1; /* of texts whose answers do not end early */
  for (int i = 0; i < 3; i++) {
    items[i].sampler = (SamplerSettings){.top_p = 1, .repetition_penalty = 1};
    items[i].max_tokens = 3;
    make_ids(&items[i], i < 2 ? 30 : 4, i < 2 ? 28 : 0);
  }
  Run run = {.at_once = true};
  paged = (PagedCounts){0};
  assert_int_equal(run_items(&model, items, 3, (BatchOptions){.n_sequences = 3}, &run), STATUS_OK);
  assert_string_equal(run.trace, "0:0+24\n"
                                 "0:24+6 2:0+4\n"
                                 "0:30+1 1:28+2 2:4+1\n"
                                 "0:31+1 1:30+1 2:5+1\n"
                                 "1:31+1\n");
  assert_int_equal(items[1].result.n_reused, 28);
  assert_int_equal(paged.n_copied, 1);
  free(items);
}

/* A sequence takes pages that a finished one gave back before pages that were never used. */
TEST(memory_is_that_of_the_sequences_at_once) {
  Item *items = make_items(MANY);
  Run run = {0};
  paged = (PagedCounts){0};
  for (int i = 0; i < MANY; i++) items[i].max_tokens = 1 + i % 9;
  assert_int_equal(run_items(&model, items, MANY, (BatchOptions){.n_sequences = 2}, &run), STATUS_OK);
  assert_in_range(paged.highest_page, 8, 2 * (60 + 9 + 3) / PAGED_TOKENS + 2);
  free(items);
}

TEST(an_end_in_the_middle_leaves_no_page) {
  Item *items = make_items(MANY);
  Run run = {.stop_after = 100};
  paged = (PagedCounts){0};
  assert_int_equal(run_items(&model, items, MANY, (BatchOptions){.n_sequences = 7}, &run),
                   STATUS_INTERRUPTED);
  assert_in_range(run.n_done, 100, 107);
  run = (Run){0};
  paged = (PagedCounts){.fail_at = 50};
  assert_int_equal(run_items(&model, items, MANY, (BatchOptions){.n_sequences = 7}, &run), STATUS_FAILED);
  free(items);
}

/* A run that is interrupted between two tokens of a request with a mask, and another of the same batch. */
TEST(a_mask_ends_with_its_run) {
  static const uint64_t one = 1u << 5;
  BackendModel loaded = {&model};
  const BatchOptions options = {.n_sequences = 1};
  Engine *engine;
  Error err = {{0}};
  Item items[2] = {0};
  Run run = {.items = items, .n = 1, .n_sequences = 1, .chunk = PAGED_POSITIONS, .at_once = true};
  seed = 3;
  paged = (PagedCounts){.fail_at = 2};
  for (int i = 0; i < 2; i++) {
    items[i].sampler = (SamplerSettings){.top_p = 1, .repetition_penalty = 1};
    items[i].max_tokens = 5;
    make_ids(&items[i], 9, 0);
  }
  items[0].mask = &one;
  const EngineJob job = {.next = next, .done = done, .step = look, .user = &run};
  assert_int_equal(
      engine_open(&paged_backend, &loaded, &model, &(const EngineOptions){.batch = &options}, &engine, &err),
      STATUS_OK);
  assert_int_equal(engine_run(engine, &job, &err), STATUS_FAILED);
  assert_true(items[0].n_answer == 1 && items[0].answer[0] == 5);
  run.n = 2;
  assert_int_equal(engine_run(engine, &job, &err), STATUS_OK);
  engine_close(engine);
  Item alone = items[1];
  alone.n_answer = alone.n_done = 0;
  run = (Run){0};
  assert_int_equal(run_items(&model, &alone, 1, options, &run), STATUS_OK);
  assert_same(&items[1], &alone);
}

/* Two records with a beginning in common, whose answers cross the original context of LongRoPE: all keys are
 * computed again, which adds nothing to the tokens that the second one found. */
TEST(tokens_of_others_are_counted_once) {
  for (int is_long = 0; is_long < 2; is_long++) {
    Item items[2] = {0};
    Run run = {.at_once = true};
    seed = 1;
    paged = (PagedCounts){.turn = 1000};
    for (int i = 0; i < 2; i++) {
      items[i].sampler = (SamplerSettings){.top_p = 1, .repetition_penalty = 1};
      items[i].max_tokens = 20;
      make_ids(&items[i], 30, 28);
    }
    assert_int_equal(
        run_items(is_long ? &long_model : &model, items, 2, (BatchOptions){.n_sequences = 2}, &run),
        STATUS_OK);
    assert_true(30 + items[0].n_answer > LONG_FROM + 1 && 30 + items[1].n_answer > LONG_FROM + 1);
    assert_int_equal(items[1].result.n_reused, 28);
  }
}

/* Records that come and go in the memory of few. */
enum { STREAM = 10000, STREAM_SLOTS = 33, EARLY = 1000 };

typedef struct {
  Item items[STREAM_SLOTS]; /* one more than there are sequences */
  bool used[STREAM_SLOTS];
  int n_made, n_done, n_failed;
  long early_pages; /* resident after EARLY records */
  volatile int interrupted;
} Stream;

static long resident_pages(void) {
  long all, resident;
  FILE *file = fopen("/proc/self/statm", "r");
  assert_non_null(file);
  assert_int_equal(fscanf(file, "%ld %ld", &all, &resident), 2);
  assert_int_equal(fclose(file), 0);
  return resident;
}

static Status next_of_stream(void *user, bool may_wait, EngineRequest *request, bool *found, Error *err) {
  Stream *stream = user;
  int slot = 0;
  *found = stream->n_made < STREAM;
  if (!*found) return STATUS_OK;
  while (stream->used[slot]) slot++;
  stream->used[slot] = true;
  stream->items[slot] = (Item){0};
  make_item(&stream->items[slot], stream->n_made++);
  Run one = {.items = &stream->items[slot], .n = 1, .at_once = true};
  return next(&one, may_wait, request, found, err);
}

static Status done_of_stream(void *user, const EngineRequest *request, const EngineResult *result,
                             Error *err) {
  (void)err;
  Stream *stream = user;
  const Item *item = request->user;
  stream->used[item - stream->items] = false;
  stream->n_failed += result->status != STATUS_OK;
  if (++stream->n_done == EARLY) stream->early_pages = resident_pages();
  if (any(500) == 0) stream->interrupted = 1;
  return STATUS_OK;
}

/* After an interruption, what was in flight counts as not made: as many other records come instead. */
static void check_stream(const Backend *backend) {
  static Stream stream;
  const BatchOptions options = {.n_sequences = STREAM_SLOTS - 1, .n_pages = 60};
  BackendModel loaded = {&model};
  Engine *engine;
  Error err = {{0}};
  int n_interrupted = 0;
  Status status;
  seed = 9;
  stream = (Stream){0};
  paged = (PagedCounts){0};
  assert_int_equal(
      engine_open(backend, &loaded, &model, &(const EngineOptions){.batch = &options}, &engine, &err),
      STATUS_OK);
  do {
    stream.interrupted = 0;
    const EngineJob job = {
        .next = next_of_stream, .done = done_of_stream, .interrupted = &stream.interrupted, .user = &stream};
    status = engine_run(engine, &job, &err);
    assert_int_equal(engine_pages_used(engine), 0);
    stream.n_made = stream.n_done;
    memset(stream.used, 0, sizeof stream.used);
    n_interrupted += status == STATUS_INTERRUPTED;
  } while (status == STATUS_INTERRUPTED);
  assert_int_equal(status, STATUS_OK);
  assert_int_equal(stream.n_done, STREAM);
  assert_true(n_interrupted > 5 && stream.n_failed > 500 && stream.n_failed < 5000);
  assert_in_range(resident_pages(), 1, (unsigned long)stream.early_pages + 64);
  engine_close(engine);
}

TEST(ten_thousand_records_leave_no_page_and_no_memory) {
  const Backend gpu = like_a_gpu();
  check_stream(&paged_backend);
  check_stream(&gpu);
}
