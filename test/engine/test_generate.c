/* test_generate.c - tokens that a sink forces, over the backend that is a hash of its cache (fake_backend.h):
 * with a device that waits and with one that runs ahead the same as a sampler that picks from logits made
 * from the whole text at once. */
#include "fake_backend.h"

#include "engine/generate.h"
#include "engine/session.h"

enum { N_PROMPT = 20, N_FORCED = 3, N_CTX = 90 };

static const Model model = {
    .config = {.n_layers = FAKE_LAYERS, .vocab_size = FAKE_VOCAB, .max_position = FAKE_POSITIONS}};
static const int32_t forced_ids[N_FORCED] = {5, 90, 5};
/* Warm, so that draws count. Penalties, so that what was seen does: not where the fake device runs ahead,
 * which knows nothing of what it has picked itself. */
static const SamplerSettings warm = {.temperature = 3, .top_p = 0.9, .repetition_penalty = 1, .seed = 11};
static const SamplerSettings penalised = {.temperature = 3,
                                          .top_p = 0.9,
                                          .repetition_penalty = 1.3,
                                          .presence_penalty = 0.5,
                                          .frequency_penalty = 0.25,
                                          .seed = 11};

/* Where a sink forces: behind token `every` - 1, 2 `every` - 1, ... of the model's own (0: nowhere), and
 * first of all where `first` is set. */
typedef struct {
  int every;
  bool first;
  int max_tokens;
} Plan;

typedef struct {
  const Plan *plan;
  int32_t ids[FAKE_POSITIONS];
  int n, n_own, left; /* left: forced tokens that are to come */
} Heard;

static Status hear(void *user, int32_t id, TokenReply *reply, Error *err) {
  (void)err;
  Heard *heard = user;
  heard->ids[heard->n++] = id;
  if (heard->left > 0) {
    heard->left--;
    return STATUS_OK;
  }
  heard->n_own++;
  if (heard->plan->every && heard->n_own % heard->plan->every == 0) {
    reply->forced = forced_ids;
    reply->n_forced = heard->left = N_FORCED;
  }
  return STATUS_OK;
}

static void make_prompt(int32_t ids[N_PROMPT]) {
  for (int i = 0; i < N_PROMPT; i++) ids[i] = (i * 31 + 7) % FAKE_VOCAB;
}

static GenerateResult run(const Backend *backend, const SamplerSettings *settings, const Plan *plan,
                          Heard *heard) {
  fake = (FakeCounts){.end_at = -1};
  int32_t prompt[N_PROMPT];
  make_prompt(prompt);
  BackendModel loaded = {&model};
  Session *session;
  GenerateResult result;
  *heard = (Heard){.plan = plan, .left = plan->first ? N_FORCED : 0};
  GenerateOptions options = {.max_tokens = plan->max_tokens,
                             .forced = plan->first ? forced_ids : NULL,
                             .n_forced = plan->first ? N_FORCED : 0};
  const SessionOptions sizes = {.n_ctx = N_CTX, .sampler = *settings};
  assert_int_equal(session_open(backend, &loaded, &model, &sizes, &session, NULL), STATUS_OK);
  assert_int_equal(session_sync(session, prompt, N_PROMPT, NULL, NULL, NULL), STATUS_OK);
  assert_int_equal(generate(session, &options, hear, heard, &result, NULL), STATUS_OK);
  assert_int_equal(result.n_generated, heard->n);
  assert_true(session_length(session) >= N_PROMPT + heard->n - 1); /* but the last, which nobody asked for */
  assert_memory_equal(session_ids(session) + N_PROMPT, heard->ids,
                      (size_t)(session_length(session) - N_PROMPT) * sizeof *heard->ids);
  assert_int_equal(session_pushed(session), 0);
  session_close(session);
  return result;
}

/* The same without sessions, devices or loops. */
static void work_out(const SamplerSettings *settings, const Plan *plan, Heard *heard) {
  int32_t ids[FAKE_POSITIONS], *const cache[FAKE_LAYERS] = {ids, ids, ids};
  make_prompt(ids);
  Sampler *sampler;
  assert_int_equal(sampler_open(settings, FAKE_VOCAB, &sampler, NULL), STATUS_OK);
  for (int i = 0; i < N_PROMPT; i++) sampler_note(sampler, ids[i], false);
  *heard = (Heard){.plan = plan};
  int left = plan->first ? N_FORCED : 0, most = N_CTX - N_PROMPT + 1;
  if (plan->max_tokens >= 0) most = plan->max_tokens;
  while (heard->n < most) {
    int32_t id = left ? forced_ids[N_FORCED - left] : 0;
    if (left > 0) {
      left--;
    } else {
      float logits[FAKE_VOCAB];
      fake_row(cache, N_PROMPT + heard->n, logits);
      assert_int_equal(sampler_pick(sampler, logits, &id, NULL), STATUS_OK);
      heard->n_own++;
      if (plan->every && heard->n_own % plan->every == 0) left = N_FORCED;
    }
    sampler_note(sampler, id, true);
    ids[N_PROMPT + heard->n] = id;
    heard->ids[heard->n++] = id;
  }
  sampler_close(sampler);
}

static void forced_tokens_take_the_place_of_the_models_own(void **state) {
  (void)state;
  static const struct {
    const Backend *backend;
    const SamplerSettings *settings;
  } cases[] = {{&fake_backend, &warm}, {&fake_ahead_backend, &warm}, {&fake_backend, &penalised}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
    for (int every = 0; every < 9; every++)
      for (int first = 0; first < 2; first++)
        for (int max_tokens = -1; max_tokens < 30; max_tokens++) {
          const Plan plan = {every, first, max_tokens};
          Heard want, got;
          work_out(cases[c].settings, &plan, &want);
          GenerateResult result = run(cases[c].backend, cases[c].settings, &plan, &got);
          assert_int_equal(result.reason, max_tokens < 0 ? FINISH_CONTEXT : FINISH_LENGTH);
          assert_int_equal(got.n, want.n);
          assert_memory_equal(got.ids, want.ids, (size_t)want.n * sizeof *want.ids);
        }
}

/* An end token that is forced is a token like others; one that the model makes ends it. */
static void a_forced_end_token_ends_nothing(void **state) {
  (void)state;
  fake = (FakeCounts){.end_at = -1};
  int32_t prompt[N_PROMPT];
  make_prompt(prompt);
  BackendModel loaded = {&model};
  Session *session;
  const SessionOptions sizes = {.n_ctx = N_CTX, .sampler = {.top_p = 1, .repetition_penalty = 1}};
  assert_int_equal(session_open(&fake_backend, &loaded, &model, &sizes, &session, NULL), STATUS_OK);
  assert_int_equal(session_sync(session, prompt, N_PROMPT, NULL, NULL, NULL), STATUS_OK);
  const Plan plan = {.max_tokens = -1};
  const int32_t end = FAKE_VOCAB - 1;
  Heard heard = {.plan = &plan, .left = 1};
  GenerateResult result;
  fake.end_at = N_PROMPT + 4;
  const GenerateOptions options = {.max_tokens = -1, .eos = &end, .n_eos = 1, .forced = &end, .n_forced = 1};
  assert_int_equal(generate(session, &options, hear, &heard, &result, NULL), STATUS_OK);
  assert_int_equal(result.reason, FINISH_EOS);
  assert_int_equal(heard.n, 5);
  assert_int_equal(heard.ids[0], end);
  session_close(session);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(forced_tokens_take_the_place_of_the_models_own),
      cmocka_unit_test(a_forced_end_token_ends_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
