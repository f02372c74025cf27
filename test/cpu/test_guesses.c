/* test_guesses.c - answers with guessed tokens are those without, token by token, over 300 prompts and small
 * models of every kind of layer: guesses that are right, wrong and half right, from the text, and of a draft
 * model that is the model itself. Also the hidden states that a step gives to a drafter. */
#include "engine/drafters/draft_model.h"
#include "engine/drafters/draft_text.h"
#include "engine/one.h"
#include "test/tests.h"

extern const Backend cpu_backend;

enum { N_PROMPTS = 300, N_PROMPT = 12, N_ANSWER = 14, N_CTX = N_PROMPT + N_ANSWER, MOST_GUESSES = 6 };

static const char *const models[] = {
    "test/data/stories260K-awq",          "test/data/miniatures/qwen3_5-awq",
    "test/data/miniatures/lfm2-bf16",     "test/data/miniatures/qwen3-next-awq",
    "test/data/miniatures/gpt-oss-mxfp4", "test/data/miniatures/gemma4-e",
};
enum { N_MODELS = sizeof models / sizeof *models };

static uint32_t number(uint32_t *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return *seed >> 16;
}

typedef enum { RIGHT, WRONG, HALF_RIGHT, FROM_TEXT, OF_ITSELF, N_KINDS } Kind;

typedef struct {
  Kind kind;
  int32_t ids[N_CTX]; /* prompt and answer */
  int vocab_size;
  const Backend *backend;
  float *states; /* [N_CTX][width] hidden states that take() got */
  size_t width;
  int n_told;
  uint32_t seed;
} Oracle;

static Status propose(void *self, const DraftText *text, int most, Guesses *guesses, Error *err) {
  Oracle *o = self;
  (void)err;
  assert_int_equal(o->n_told, text->n_computed);
  while (guesses->n < most && text->n + guesses->n < N_CTX) {
    const int32_t id = o->ids[text->n + guesses->n];
    const bool right = o->kind == RIGHT || (o->kind == HALF_RIGHT && number(&o->seed) % 3 > 0);
    guesses->ids[guesses->n++] = right ? id : (id + 1) % o->vocab_size;
  }
  return STATUS_OK;
}

static Status take(void *self, const DraftRows *rows, Error *err) {
  Oracle *o = self;
  assert_true(rows->pos <= o->n_told && rows->n > 0);
  assert_memory_equal(rows->ids, o->ids + rows->pos, (size_t)rows->n * sizeof *rows->ids);
  o->n_told = rows->pos + rows->n;
  return o->backend->read_taps(rows->target, rows->row, rows->n, o->states + (size_t)rows->pos * o->width,
                               err);
}

static Status hear(void *user, int32_t id, TokenReply *reply, Error *err) {
  int32_t **next = user;
  (void)reply, (void)err;
  *(*next)++ = id;
  return STATUS_OK;
}

typedef struct {
  Model *model;
  BackendModel *loaded;
  SamplerSettings sampler;
} Target;

static GuessCounts answer(const Target *t, const int32_t *prompt, Drafter *drafter, int32_t ids[N_ANSWER]) {
  Session *session;
  Error err = {{0}};
  GenerateResult result;
  const SessionOptions options = {.n_ctx = N_CTX,
                                  .chunk = 5,
                                  .sampler = t->sampler,
                                  .drafter = drafter,
                                  .n_guesses = drafter ? MOST_GUESSES : 0,
                                  .guess_always = true};
  if (session_open(&cpu_backend, t->loaded, t->model, &options, &session, &err)) fail_msg("%s", err.text);
  if (session_sync(session, prompt, N_PROMPT, &err)) fail_msg("%s", err.text);
  const GenerateOptions generate_options = {.max_tokens = N_ANSWER};
  if (generate(session, &generate_options, hear, &ids, &result, &err)) fail_msg("%s", err.text);
  session_close(session);
  return result.guesses;
}

static Drafter make_drafter(const Target *t, Kind kind, Oracle *oracle) {
  Drafter drafter;
  Session *session;
  const SessionOptions options = {.n_ctx = N_CTX, .sampler = t->sampler};
  if (kind == FROM_TEXT) {
    assert_int_equal(draft_text_open(N_CTX, &drafter, NULL), STATUS_OK);
    return drafter;
  }
  if (kind == OF_ITSELF) {
    assert_int_equal(session_open(&cpu_backend, t->loaded, t->model, &options, &session, NULL), STATUS_OK);
    assert_int_equal(draft_model_open(session, t->model->config.vocab_size, 1e-9, &drafter, NULL), STATUS_OK);
    return drafter;
  }
  drafter = (Drafter){.name = "oracle", .self = oracle, .propose = propose, .take = take};
  drafter.taps = (TapList){.n = 2, .layers = {0, t->model->config.n_layers - 1}};
  return drafter;
}

static void compare(const Target *t, const int32_t *prompt, uint32_t seed, GuessCounts all[N_KINDS]) {
  int32_t plain[N_ANSWER], guessed[N_ANSWER];
  const size_t width = 2 * (size_t)t->model->config.hidden;
  float *first = calloc(N_CTX * width, sizeof *first), *other = calloc(N_CTX * width, sizeof *other);
  int n_first = 0;
  answer(t, prompt, NULL, plain);
  for (int kind = 0; kind < N_KINDS; kind++) {
    Oracle oracle = {.kind = (Kind)kind,
                     .vocab_size = t->model->config.vocab_size,
                     .backend = &cpu_backend,
                     .states = kind == RIGHT ? first : other,
                     .width = width,
                     .seed = seed};
    memcpy(oracle.ids, prompt, N_PROMPT * sizeof *prompt);
    memcpy(oracle.ids + N_PROMPT, plain, sizeof plain);
    Drafter drafter = make_drafter(t, (Kind)kind, &oracle);
    const GuessCounts counts = answer(t, prompt, &drafter, guessed);
    assert_memory_equal(guessed, plain, sizeof plain);
    all[kind].n_guessed += counts.n_guessed;
    all[kind].n_accepted += counts.n_accepted;
    /* Hidden states are those of the text, whatever was guessed between. */
    if (kind == RIGHT) n_first = oracle.n_told;
    if (kind == WRONG || kind == HALF_RIGHT) {
      const int n = oracle.n_told < n_first ? oracle.n_told : n_first;
      assert_true(n > N_PROMPT);
      assert_memory_equal(other, first, (size_t)n * width * sizeof *first);
    }
    drafter_close(&drafter);
  }
  free(first);
  free(other);
}

TEST(answers_are_those_without_guesses) {
  GuessCounts counts[N_KINDS] = {{0}};
  uint32_t seed = 9;
  for (int m = 0; m < N_MODELS; m++) {
    Target t = {.model = NULL};
    Error err = {{0}};
    if (model_open(models[m], NULL, &t.model, &err)) fail_msg("%s: %s", models[m], err.text);
    if (model_prepare_scales(t.model, 1, &err) || model_prepare(t.model, 1, &err)) fail_msg("%s", err.text);
    if (cpu_backend.load(t.model, &(BackendOptions){.n_threads = 1}, &t.loaded, &err))
      fail_msg("%s", err.text);
    for (int i = 0; i < SAMPLE(N_PROMPTS / N_MODELS); i++) {
      int32_t prompt[N_PROMPT];
      for (int j = 0; j < N_PROMPT; j++)
        prompt[j] = (int32_t)(number(&seed) % (uint32_t)t.model->config.vocab_size);
      for (int j = 5; j < N_PROMPT && i % 2; j++) prompt[j] = prompt[j - 4]; /* a text that repeats */
      t.sampler =
          (SamplerSettings){.temperature = i % 3 ? 0 : 0.8, .top_p = 1, .repetition_penalty = 1, .seed = i};
      if (i % 5 == 1) t.sampler.repetition_penalty = 1.1;
      compare(&t, prompt, seed, counts);
    }
    cpu_backend.unload(t.loaded);
    model_close(t.model);
  }
  if (SANITIZED) return;
  assert_true(counts[RIGHT].n_guessed > 1000 && counts[RIGHT].n_accepted > counts[RIGHT].n_guessed * 8 / 10);
  assert_true(counts[WRONG].n_guessed > 1000 && counts[WRONG].n_accepted == 0);
  assert_true(counts[HALF_RIGHT].n_accepted > 300);
  assert_true(counts[FROM_TEXT].n_guessed > 100);
  assert_true(counts[OF_ITSELF].n_accepted > counts[OF_ITSELF].n_guessed * 8 / 10);
}
