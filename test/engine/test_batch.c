/* test_batch.c - many sequences at once over a backend that is a hash of their pages (fake_pages.h): each
 * gets what it gets alone, in the steps that batch.h promises, and no page is lost. */
#include "fake_pages.h"

#include "engine/batch.h"

enum { MANY = 1000, MOST_IDS = 100, LONG_FROM = 43 };

static const Model model = {.config = {.n_layers = PAGED_LAYERS,
                                       .n_kv_heads = 1,
                                       .head_dim = 1,
                                       .vocab_size = PAGED_VOCAB,
                                       .max_position = PAGED_POSITIONS}};
static LayerConfig hybrid_layers[PAGED_LAYERS] = {[1] = {.kind = LAYER_DELTA}};
static const Model hybrid_model = {.config = {.n_layers = PAGED_LAYERS,
                                              .n_kv_heads = 1,
                                              .head_dim = 1,
                                              .vocab_size = PAGED_VOCAB,
                                              .max_position = PAGED_POSITIONS,
                                              .layers = hybrid_layers}};
/* Whose texts of more than 43 tokens, not a whole number of pages, have other positions. */
static const Model long_model = {
    .config = {.n_layers = PAGED_LAYERS,
               .n_kv_heads = 1,
               .head_dim = 1,
               .vocab_size = PAGED_VOCAB,
               .max_position = PAGED_POSITIONS,
               .rope = {.kind = ROPE_LONGROPE, .original_max_position = LONG_FROM}}};

/* A record and its answer. */
typedef struct {
  int32_t ids[MOST_IDS], answer[PAGED_POSITIONS], forced[3];
  int n_ids, n_answer;
  SamplerSettings sampler;
  int max_tokens, stop_at, fail_at, force_at, n_scored; /* 0: never */
  int n_first;                                          /* tokens of `forced` that the answer begins with */
  int n_ctx;                                            /* its own; 0: the batch's */
  const uint64_t *mask;                                 /* tokens that may be in the answer; NULL: all */
  bool is_scored, has_no_end;                           /* each token of the answer; no token ends it */
  double log_p[MOST_IDS];
  int steps_before[PAGED_POSITIONS]; /* that had begun when the sink got the token */
  BatchResult result;
  int n_done;
  bool late;        /* forces tokens in its turn, not in its sink */
  bool owes, waits; /* it is to force them; it was asked to wait */
  int quit_at;
} Item;

typedef struct {
  Item *items; /* [n] */
  int n, next, n_done;
  int stop_after; /* answers; then `interrupted` is set */
  bool at_once;   /* all records are there from the start */
  volatile int interrupted;
  int chunk, n_sequences, n_taken_back, most_sequences, n_mixed; /* steps with prompts and answers */
  const Backend *backend;                                        /* NULL: paged_backend */
  int most_rows;
  bool turns; /* records have a turn() */
  int n_waits, n_all_waits;
  char trace[2000];
} Run;

static uint64_t seed;

static int any(int n) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (int)((seed >> 33) % (uint64_t)n);
}

static Status take(void *user, int32_t id, TokenReply *reply, Error *err) {
  Item *item = user;
  item->answer[item->n_answer++] = id;
  item->steps_before[item->n_answer - 1] = paged.n_steps;
  reply->stop = item->n_answer == item->stop_at;
  if (item->n_answer == item->fail_at) return error_set(err, STATUS_USAGE, "no more of this");
  assert_false(item->waits);
  if (item->n_answer != item->force_at) return STATUS_OK;
  item->owes = item->late;
  if (!item->late) reply->forced = item->forced, reply->n_forced = 3;
  return STATUS_OK;
}

/* Waits now and then, forces what the sink owes, and quits. */
static BatchTurn take_turn(void *user, TokenReply *reply) {
  Item *item = user;
  item->waits = false;
  if (item->quit_at && item->n_answer >= item->quit_at) return TURN_END;
  item->waits = any(3) == 0;
  if (item->waits) return TURN_WAIT;
  if (item->owes) reply->forced = item->forced, reply->n_forced = 3;
  item->owes = false;
  return TURN_GO;
}

static Status hear(void *user, bool may_wait, Error *err) {
  (void)err;
  Run *run = user;
  run->n_all_waits += may_wait;
  for (int i = 0; i < run->next; i++) run->n_waits += run->items[i].waits;
  return STATUS_OK;
}

static Status allow(void *user, const uint64_t **mask, Error *err) {
  (void)err;
  const Item *item = user;
  *mask = item->mask;
  return STATUS_OK;
}

static Status score(void *user, const TokenScore *scores, Error *err) {
  (void)user, (void)scores, (void)err;
  return STATUS_OK;
}

static Status next(void *user, bool may_wait, BatchRequest *request, bool *found, Error *err) {
  (void)err;
  Run *run = user;
  *found = run->next < run->n &&
           (may_wait || run->at_once || any(4) > 0); /* sometimes the next one is not there yet */
  if (!*found) return STATUS_OK;
  Item *item = &run->items[run->next++];
  static const int32_t end[] = {PAGED_VOCAB - 1};
  *request = (BatchRequest){.ids = item->ids,
                            .n_ids = item->n_ids,
                            .sampler = &item->sampler,
                            .generate = {.max_tokens = item->max_tokens,
                                         .eos = end,
                                         .n_eos = !item->has_no_end,
                                         .may_force = item->force_at > 0,
                                         .forced = item->forced,
                                         .n_forced = item->n_first,
                                         .allow = item->mask ? allow : NULL,
                                         .score = item->is_scored ? score : NULL},
                            .sink = take,
                            .log_p = item->log_p,
                            .n_scored = item->n_scored,
                            .n_ctx = item->n_ctx,
                            .turn = run->turns ? take_turn : NULL,
                            .user = item};
  return STATUS_OK;
}

static Status done(void *user, const BatchRequest *request, const BatchResult *result, Error *err) {
  (void)err;
  Run *run = user;
  Item *item = request->user;
  item->result = *result;
  item->n_done++;
  if (++run->n_done == run->stop_after) run->interrupted = 1;
  return STATUS_OK;
}

static void look(void *user, const BatchStep *step) {
  Run *run = user;
  bool prompts = false, answers = false;
  char *end = run->trace + strlen(run->trace);
  for (int i = 0; i < step->range.n_parts; i++) {
    const SequenceRows *part = &step->range.parts[i];
    if (end - run->trace < (int)sizeof run->trace - 40)
      end += sprintf(end, "%s%d:%d+%d", i ? " " : "", part->sequence, part->pos, part->n_tokens);
    *(part->n_tokens > 1 ? &prompts : &answers) = true;
  }
  if (end - run->trace < (int)sizeof run->trace - 40) strcpy(end, "\n");
  run->n_mixed += prompts && answers;
  run->n_taken_back += step->n_taken_back;
  if (step->range.n_parts > run->most_sequences) run->most_sequences = step->range.n_parts;
  if (step->range.n_tokens > run->most_rows) run->most_rows = step->range.n_tokens;
  assert_true(step->range.n_tokens <= run->chunk && step->range.n_tokens > 0);
  assert_true(step->range.n_parts + step->n_waiting <= run->n_sequences);
}

static Status run_items(const Model *of, Item *items, int n, BatchOptions options, Run *run) {
  BackendModel loaded = {of};
  Batch *batch;
  Error err = {{0}};
  const Backend *backend = run->backend ? run->backend : &paged_backend;
  if (batch_open(backend, &loaded, of, &options, &batch, &err)) fail_msg("%s", err.text);
  run->items = items;
  run->n = n;
  run->n_sequences = options.n_sequences;
  run->chunk = batch_sizes(&options, &paged_backend, &of->config).max_chunk;
  const BatchJob job = {.next = next,
                        .done = done,
                        .step = look,
                        .interrupted = &run->interrupted,
                        .user = run,
                        .listen = hear};
  Status status = batch_run(batch, &job, &err);
  assert_int_equal(batch_pages_used(batch), 0);
  batch_close(batch);
  return status;
}

static void make_ids(Item *item, int n, int like) {
  item->n_ids = n;
  for (int i = 0; i < n; i++) item->ids[i] = i < like ? (i * 7 + 3) % PAGED_VOCAB : any(PAGED_VOCAB);
}

/* A record of any kind: most begin alike, some are scored, stopped, or fail. */
static void make_item(Item *item, int i) {
  make_ids(item, 1 + any(60), any(5) ? 30 : 0);
  item->sampler = (SamplerSettings){.temperature = any(2),
                                    .top_p = 1,
                                    .repetition_penalty = any(3) ? 1 : 1.3,
                                    .presence_penalty = any(3) ? 0 : 0.5,
                                    .seed = (uint64_t)i};
  item->max_tokens = any(6) ? 1 + any(40) : -1;
  item->stop_at = any(5) ? 0 : 1 + any(20);
  item->fail_at = any(9) ? 0 : 1 + any(20);
  item->force_at = any(7) ? 0 : 1 + any(20);
  for (int f = 0; f < 3; f++) item->forced[f] = any(PAGED_VOCAB);
  if (any(6) == 0 && item->n_ids > 1) item->n_scored = 1 + any(item->n_ids - 1);
  if (any(30) == 0) item->ids[item->n_ids - 1] = PAGED_VOCAB; /* no such token */
}

static Item *make_items(int n) {
  Item *items = calloc((size_t)n, sizeof *items);
  seed = 5;
  for (int i = 0; i < n; i++) make_item(&items[i], i);
  return items;
}

static void assert_same(const Item *a, const Item *b) {
  assert_int_equal(a->n_done, 1);
  assert_int_equal(b->n_done, 1);
  assert_int_equal(a->result.status, b->result.status);
  if (a->result.status) assert_string_equal(a->result.error.text, b->result.error.text);
  assert_int_equal(a->n_answer, b->n_answer);
  assert_memory_equal(a->answer, b->answer, sizeof a->answer);
  assert_int_equal(a->result.generated.reason, b->result.generated.reason);
  assert_memory_equal(a->log_p, b->log_p, sizeof a->log_p);
}

/* A drafter that knows the answers, and says each token of them with a chance of 5 in 6. */
static const Item *known_items; /* [n_known] */
static int n_known;
static long long n_proposed;

static Status propose_known(void *self, const DraftText *text, int most, Guesses *guesses, Error *err) {
  (void)self, (void)err;
  for (const Item *item = known_items; item < known_items + n_known; item++) {
    if (item->n_ids > text->n || memcmp(item->ids, text->ids, (size_t)item->n_ids * sizeof *text->ids) != 0)
      continue;
    const int at = text->n - item->n_ids;
    if (at > item->n_answer ||
        memcmp(item->answer, text->ids + item->n_ids, (size_t)at * sizeof *text->ids) != 0)
      continue;
    while (guesses->n < most && at + guesses->n < item->n_answer) {
      const int32_t id = item->answer[at + guesses->n];
      guesses->ids[guesses->n++] = text->n * 7 % 6 ? id : (id + 1) % PAGED_VOCAB;
    }
    n_proposed += guesses->n;
    return STATUS_OK;
  }
  return STATUS_OK;
}

static Status open_known(void *user, int n_ctx, Drafter *drafter, Error *err) {
  (void)user, (void)n_ctx, (void)err;
  *drafter = (Drafter){.name = "known", .propose = propose_known};
  return STATUS_OK;
}

static const DraftSource known = {.open = open_known};

static Status memory_of_its_own(const Model *of, const BackendOptions *options, DeviceMemory *memory,
                                Error *err) {
  (void)of, (void)options, (void)err;
  *memory = (DeviceMemory){.weights = 0};
  return STATUS_OK;
}

/* A device with memory of its own. */
static Backend like_a_gpu(void) {
  Backend gpu = paged_backend;
  gpu.memory = memory_of_its_own;
  gpu.sequences = 2;
  return gpu;
}

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
    const int least = wanted.n_drafters > 0 ? 0 : n / 2; /* too few drafters: guesses at the end alone */
    assert_true(guesses ? accepted > least && accepted < guessed : guessed == 0);
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

static void each_gets_what_it_gets_alone(void **state) {
  (void)state;
  const Backend gpu = like_a_gpu();
  check_models(NULL, false);
  check_models(&gpu, false);
}

/* Also where rows of prompts give other numbers than those of answers: sequences share prompts alone. */
static void each_gets_it_from_rows_of_the_same_form(void **state) {
  (void)state;
  const Backend gpu = like_a_gpu();
  check_models(&gpu, true);
}

/* A record of 3 tokens, whose answer ends by its length, by an end token or by its sink, or whose sink may
 * force tokens. On a device the sink gets a token after the next step has begun, unless it may force tokens
 * or the step would be wasted. The step after a sink ends the answer is wasted. */
static void a_device_computes_while_its_host_works(void **state) {
  (void)state;
  const Backend gpu = like_a_gpu();
  static const struct {
    int max_tokens, stop_at, force_at;
    bool late;
    int n_in_vain;
  } cases[] = {{12, 0, 0, true, 0}, {-1, 0, 0, true, 0}, {30, 5, 0, true, 1}, {12, 0, 5, false, 0}};
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
    assert_true(items[0].n_answer > 4);
    for (int t = 0; t < items[0].n_answer - 1; t++)
      assert_int_equal(items[1].steps_before[t], items[0].steps_before[t] + cases[i].late);
  }
}

/* Tokens that a turn forces are as those of a sink; a turn that waits changes nothing; one that ends leaves
 * what was answered. */
static void turns_wait_force_and_end(void **state) {
  (void)state;
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

/* The first record's prompt is longer than a step; the second begins like it, and waits for what is computed
 * of it; the third has nothing in common. */
static void steps_are_filled_as_promised(void **state) {
  (void)state;
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
static void memory_is_that_of_the_sequences_at_once(void **state) {
  (void)state;
  Item *items = make_items(MANY);
  Run run = {0};
  paged = (PagedCounts){0};
  for (int i = 0; i < MANY; i++) items[i].max_tokens = 1 + i % 9;
  assert_int_equal(run_items(&model, items, MANY, (BatchOptions){.n_sequences = 2}, &run), STATUS_OK);
  assert_in_range(paged.highest_page, 8, 2 * (60 + 9 + 3) / PAGED_TOKENS + 2);
  free(items);
}

static void an_end_in_the_middle_leaves_no_page(void **state) {
  (void)state;
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
static void a_mask_ends_with_its_run(void **state) {
  (void)state;
  static const uint64_t one = 1u << 5;
  BackendModel loaded = {&model};
  const BatchOptions options = {.n_sequences = 1};
  Batch *batch;
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
  const BatchJob job = {.next = next, .done = done, .step = look, .user = &run};
  assert_int_equal(batch_open(&paged_backend, &loaded, &model, &options, &batch, &err), STATUS_OK);
  assert_int_equal(batch_run(batch, &job, &err), STATUS_FAILED);
  assert_true(items[0].n_answer == 1 && items[0].answer[0] == 5);
  run.n = 2;
  assert_int_equal(batch_run(batch, &job, &err), STATUS_OK);
  batch_close(batch);
  Item alone = items[1];
  alone.n_answer = alone.n_done = 0;
  run = (Run){0};
  assert_int_equal(run_items(&model, &alone, 1, options, &run), STATUS_OK);
  assert_same(&items[1], &alone);
}

/* Two records with a beginning in common, whose answers cross the original context of LongRoPE: all keys are
 * computed again, which adds nothing to the tokens that the second one found. */
static void tokens_of_others_are_counted_once(void **state) {
  (void)state;
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

static Status next_of_stream(void *user, bool may_wait, BatchRequest *request, bool *found, Error *err) {
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

static Status done_of_stream(void *user, const BatchRequest *request, const BatchResult *result, Error *err) {
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
  Batch *batch;
  Error err = {{0}};
  int n_interrupted = 0;
  Status status;
  seed = 9;
  stream = (Stream){0};
  paged = (PagedCounts){0};
  assert_int_equal(batch_open(backend, &loaded, &model, &options, &batch, &err), STATUS_OK);
  do {
    stream.interrupted = 0;
    const BatchJob job = {
        .next = next_of_stream, .done = done_of_stream, .interrupted = &stream.interrupted, .user = &stream};
    status = batch_run(batch, &job, &err);
    assert_int_equal(batch_pages_used(batch), 0);
    stream.n_made = stream.n_done;
    memset(stream.used, 0, sizeof stream.used);
    n_interrupted += status == STATUS_INTERRUPTED;
  } while (status == STATUS_INTERRUPTED);
  assert_int_equal(status, STATUS_OK);
  assert_int_equal(stream.n_done, STREAM);
  assert_true(n_interrupted > 5 && stream.n_failed > 500 && stream.n_failed < 5000);
  assert_in_range(resident_pages(), 1, (unsigned long)stream.early_pages + 64);
  batch_close(batch);
}

static void ten_thousand_records_leave_no_page_and_no_memory(void **state) {
  (void)state;
  const Backend gpu = like_a_gpu();
  check_stream(&paged_backend);
  check_stream(&gpu);
}

/* A record of n tokens whose answer, by greedy picks, ends by its length or by the context. */
static Item long_winded(int n, int max_tokens, int n_ctx) {
  Item item = {.max_tokens = max_tokens, .n_ctx = n_ctx, .has_no_end = true};
  seed = 1;
  make_ids(&item, n, 0);
  item.sampler = (SamplerSettings){.top_p = 1, .repetition_penalty = 1};
  return item;
}

/* A request's own context, unless the batch's is smaller. The last token of an answer is not computed. */
static void an_answer_ends_with_its_own_context(void **state) {
  (void)state;
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
static void guesses_fit_what_is_left(void **state) {
  (void)state;
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

static void what_does_not_fit_is_refused(void **state) {
  (void)state;
  BackendModel loaded = {&model};
  Batch *batch;
  Error err = {{0}};
  BatchOptions options = {.n_sequences = 2, .n_ctx = 100, .n_pages = 12};
  assert_int_equal(batch_open(&paged_backend, &loaded, &model, &options, &batch, &err), STATUS_USAGE);
  assert_string_equal(err.text, "12 pages of 8 tokens, fewer than the 13 of one context of 100 tokens");
  const Backend single = {.name = "single"};
  assert_int_equal(batch_open(&single, &loaded, &model, &options, &batch, &err), STATUS_USAGE);
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
static void prompts_of_a_gpu_are_spread_over_steps(void **state) {
  (void)state;
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_gets_what_it_gets_alone),
      cmocka_unit_test(each_gets_it_from_rows_of_the_same_form),
      cmocka_unit_test(a_device_computes_while_its_host_works),
      cmocka_unit_test(turns_wait_force_and_end),
      cmocka_unit_test(steps_are_filled_as_promised),
      cmocka_unit_test(memory_is_that_of_the_sequences_at_once),
      cmocka_unit_test(an_end_in_the_middle_leaves_no_page),
      cmocka_unit_test(a_mask_ends_with_its_run),
      cmocka_unit_test(tokens_of_others_are_counted_once),
      cmocka_unit_test(ten_thousand_records_leave_no_page_and_no_memory),
      cmocka_unit_test(an_answer_ends_with_its_own_context),
      cmocka_unit_test(guesses_fit_what_is_left),
      cmocka_unit_test(what_does_not_fit_is_refused),
      cmocka_unit_test(prompts_of_a_gpu_are_spread_over_steps),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
