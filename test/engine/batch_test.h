/* batch_test.h - what the tests of batch.c share: models whose backend is a hash of their pages
 * (fake_pages.h), records and their answers, a run over some of them, a drafter that knows the answers. */
#pragma once

#include "fake_pages.h"

#include "engine/engine.h"

enum { MOST_IDS = 100, LONG_FROM = 43 };

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
typedef struct Item {
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
  EngineResult result;
  int n_done;
  bool late;                    /* forces tokens in its turn, not in its sink */
  bool owes, waits;             /* it is to force them; it was asked to wait */
  const struct Item *waits_for; /* it waits, after its first token, until that one is done; or NULL */
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

static inline int any(int n) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (int)((seed >> 33) % (uint64_t)n);
}

static inline Status take(void *user, int32_t id, TokenReply *reply, Error *err) {
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
static inline EngineTurn take_turn(void *user, TokenReply *reply) {
  Item *item = user;
  item->waits = false;
  if (item->quit_at && item->n_answer >= item->quit_at) return TURN_END;
  item->waits = item->waits_for ? item->n_answer > 0 && !item->waits_for->n_done : any(3) == 0;
  if (item->waits) return TURN_WAIT;
  if (item->owes) reply->forced = item->forced, reply->n_forced = 3;
  item->owes = false;
  return TURN_GO;
}

static inline Status hear(void *user, bool may_wait, Error *err) {
  (void)err;
  Run *run = user;
  run->n_all_waits += may_wait;
  for (int i = 0; i < run->next; i++) run->n_waits += run->items[i].waits;
  return STATUS_OK;
}

static inline Status allow(void *user, const uint64_t **mask, Error *err) {
  (void)err;
  const Item *item = user;
  *mask = item->mask;
  return STATUS_OK;
}

static inline Status score(void *user, const TokenScore *scores, Error *err) {
  (void)user, (void)scores, (void)err;
  return STATUS_OK;
}

static inline Status next(void *user, bool may_wait, EngineRequest *request, bool *found, Error *err) {
  (void)err;
  Run *run = user;
  *found = run->next < run->n &&
           (may_wait || run->at_once || any(4) > 0); /* sometimes the next one is not there yet */
  if (!*found) return STATUS_OK;
  Item *item = &run->items[run->next++];
  static const int32_t end[] = {PAGED_VOCAB - 1};
  *request = (EngineRequest){.ids = item->ids,
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

static inline Status done(void *user, const EngineRequest *request, const EngineResult *result, Error *err) {
  (void)err;
  Run *run = user;
  Item *item = request->user;
  item->result = *result;
  item->n_done++;
  if (++run->n_done == run->stop_after) run->interrupted = 1;
  return STATUS_OK;
}

static inline void look(void *user, const EngineStep *step) {
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

static inline Status run_items(const Model *of, Item *items, int n, BatchOptions options, Run *run) {
  BackendModel loaded = {of};
  Engine *engine;
  Error err = {{0}};
  const Backend *backend = run->backend ? run->backend : &paged_backend;
  if (engine_open(backend, &loaded, of, &(const EngineOptions){.batch = &options}, &engine, &err))
    fail_msg("%s", err.text);
  run->items = items;
  run->n = n;
  run->n_sequences = options.n_sequences;
  run->chunk = batch_sizes(&options, &paged_backend, &of->config).max_chunk;
  const EngineJob job = {.next = next,
                         .done = done,
                         .step = look,
                         .interrupted = &run->interrupted,
                         .user = run,
                         .listen = hear};
  Status status = engine_run(engine, &job, &err);
  assert_int_equal(engine_pages_used(engine), 0);
  engine_close(engine);
  return status;
}

static inline void make_ids(Item *item, int n, int like) {
  item->n_ids = n;
  for (int i = 0; i < n; i++) item->ids[i] = i < like ? (i * 7 + 3) % PAGED_VOCAB : any(PAGED_VOCAB);
}

/* A record of any kind: most begin alike, some are scored, stopped, or fail. */
static inline void make_item(Item *item, int i) {
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

static inline Item *make_items(int n) {
  Item *items = calloc((size_t)n, sizeof *items);
  seed = 5;
  for (int i = 0; i < n; i++) make_item(&items[i], i);
  return items;
}

static inline void assert_same(const Item *a, const Item *b) {
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

static inline Status propose_known(void *self, const DraftText *text, int most, Guesses *guesses,
                                   Error *err) {
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

static inline Status open_known(void *user, int n_ctx, Drafter *drafter, Error *err) {
  (void)user, (void)n_ctx, (void)err;
  *drafter = (Drafter){.name = "known", .propose = propose_known};
  return STATUS_OK;
}

static const DraftSource known = {.open = open_known};

static inline Status memory_of_its_own(const Model *of, const BackendOptions *options, DeviceMemory *memory,
                                       Error *err) {
  (void)of, (void)options, (void)err;
  *memory = (DeviceMemory){.weights = 0};
  return STATUS_OK;
}

/* A device with memory of its own. */
static inline Backend like_a_gpu(void) {
  Backend gpu = paged_backend;
  gpu.memory = memory_of_its_own;
  gpu.sequences = 8;
  gpu.take_rows = paged_take_rows;
  return gpu;
}
