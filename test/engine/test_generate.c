/* test_generate.c - tokens that a sink forces, over the backend that is a hash of its cache (fake_backend.h):
 * with a device that waits and with one that runs ahead the same as a sampler that picks from logits made
 * from the whole text at once. */
#include "fake_backend.h"

#include "base/clock.h"
#include "engine/one.h"
#include "engine/session.h"
#include "test/tests.h"

enum { N_PROMPT = 20, N_FORCED = 3, N_CTX = 90 };

static const Model model = {
    .config = {.n_layers = FAKE_LAYERS, .vocab_size = FAKE_VOCAB, .max_position = FAKE_POSITIONS}};
static const int32_t forced_ids[N_FORCED] = {5, 90, 5};
static const Backend *const both[] = {&fake_backend, &fake_ahead_backend};
static const SamplerSettings greedy = {.top_p = 1, .repetition_penalty = 1};
/* Warm, so that draws count. Penalties, so that what was seen does: not where the fake device runs ahead,
 * which knows nothing of what it has picked itself. */
static const SamplerSettings warm = {.temperature = 3, .top_p = 0.9, .repetition_penalty = 1, .seed = 11};
static const SamplerSettings penalised = {.temperature = 3,
                                          .top_p = 0.9,
                                          .repetition_penalty = 1.3,
                                          .presence_penalty = 0.5,
                                          .frequency_penalty = 0.25,
                                          .seed = 11};

/* Where a sink forces: after token `every` - 1, 2 `every` - 1, ... of the model's own (0: nowhere), and
 * before all of them if `first` is set. */
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

/* A session that has computed make_prompt()'s prompt. */
static Session *open_prompt(const Backend *backend, const Model *of, const SamplerSettings *settings) {
  fake = (FakeCounts){.end_at = -1};
  int32_t prompt[N_PROMPT];
  make_prompt(prompt);
  BackendModel loaded = {of};
  Session *session;
  const SessionOptions sizes = {.n_ctx = N_CTX, .sampler = *settings};
  assert_int_equal(session_open(backend, &loaded, of, &sizes, &session, NULL), STATUS_OK);
  assert_int_equal(session_sync(session, prompt, N_PROMPT, NULL), STATUS_OK);
  return session;
}

static GenerateResult run(const Backend *backend, const SamplerSettings *settings, const Plan *plan,
                          Heard *heard) {
  Session *session = open_prompt(backend, &model, settings);
  GenerateResult result;
  *heard = (Heard){.plan = plan, .left = plan->first ? N_FORCED : 0};
  GenerateOptions options = {.max_tokens = plan->max_tokens,
                             .forced = plan->first ? forced_ids : NULL,
                             .n_forced = plan->first ? N_FORCED : 0};
  assert_int_equal(generate(session, &options, hear, heard, &result, NULL), STATUS_OK);
  assert_int_equal(result.n_generated, heard->n);
  /* The session may lack the last token, since no logits after it were needed, and the forced tokens that end
   * the answer with it. */
  assert_true(session_view(session).text->n_past >= N_PROMPT + heard->n - 1 - N_FORCED);
  assert_memory_equal(session_view(session).text->ids + N_PROMPT, heard->ids,
                      (size_t)(session_view(session).text->n_past - N_PROMPT) * sizeof *heard->ids);
  assert_int_equal(session_view(session).n_in_flight, 0);
  session_close(session);
  return result;
}

/* Computes the expected tokens without a session, a device or generate(). */
static void work_out(const SamplerSettings *settings, const Plan *plan, Heard *heard) {
  int32_t ids[FAKE_POSITIONS], *const cache[FAKE_LAYERS] = {ids, ids, ids};
  make_prompt(ids);
  Sampler *sampler;
  assert_int_equal(sampler_open(settings, FAKE_VOCAB, &sampler, NULL), STATUS_OK);
  for (int i = 0; i < N_PROMPT; i++) sampler_count_token(sampler, ids[i], false);
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
    sampler_count_token(sampler, id, true);
    ids[N_PROMPT + heard->n] = id;
    heard->ids[heard->n++] = id;
  }
  sampler_close(sampler);
}

TEST(forced_tokens_take_the_place_of_the_models_own) {
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
TEST(a_forced_end_token_ends_nothing) {
  Session *session = open_prompt(&fake_backend, &model, &greedy);
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

/* --- masks */

/* Token n may be next where the sum of n and the token before it is a multiple of three. */
typedef struct {
  Heard heard;
  uint64_t mask[(FAKE_VOCAB + 63) / 64];
  int32_t last;
  int n_asked;
} Masked;

static void fill_mask(int32_t last, uint64_t *mask) {
  memset(mask, 0, (FAKE_VOCAB + 63) / 64 * sizeof *mask);
  for (int id = 0; id < FAKE_VOCAB; id++) mask[id / 64] |= (uint64_t)((id + last) % 3 == 0) << (id % 64);
}

static Status allow(void *user, const uint64_t **mask, Error *err) {
  (void)err;
  Masked *masked = user;
  masked->n_asked++;
  fill_mask(masked->last, masked->mask);
  *mask = masked->mask;
  return STATUS_OK;
}

static Status hear_masked(void *user, int32_t id, TokenReply *reply, Error *err) {
  Masked *masked = user;
  masked->last = id;
  return hear(&masked->heard, id, reply, err);
}

/* The mask is asked for after the token before it was handed out, on a device that runs ahead as well. */
TEST(masks_hold_for_the_very_next_token) {
  for (int ahead = 0; ahead < 2; ahead++)
    for (int every = 0; every < 4; every++) {
      int32_t prompt[N_PROMPT], ids[FAKE_POSITIONS], *const cache[FAKE_LAYERS] = {ids, ids, ids};
      const Plan plan = {.every = every, .max_tokens = -1};
      Session *session = open_prompt(both[ahead], &model, &warm);
      GenerateResult result;
      Masked masked = {.heard = {.plan = &plan}};
      const GenerateOptions options = {.max_tokens = -1, .allow = allow};
      assert_int_equal(generate(session, &options, hear_masked, &masked, &result, NULL), STATUS_OK);
      assert_int_equal(masked.heard.n, N_CTX - N_PROMPT + 1);
      assert_int_equal(masked.n_asked, masked.heard.n_own);

      Sampler *sampler;
      uint64_t mask[(FAKE_VOCAB + 63) / 64];
      int32_t last = 0;
      assert_int_equal(sampler_open(&warm, FAKE_VOCAB, &sampler, NULL), STATUS_OK);
      sampler_allow(sampler, mask);
      make_prompt(ids);
      for (int i = 0, left = 0, n_own = 0; i < masked.heard.n; i++) {
        float logits[FAKE_VOCAB];
        int32_t id = left ? forced_ids[N_FORCED - left] : -1;
        fill_mask(last, mask);
        fake_row(cache, N_PROMPT + i, logits);
        if (left-- == 0) {
          assert_int_equal(sampler_pick(sampler, logits, &id, NULL), STATUS_OK);
          left = every && ++n_own % every == 0 ? N_FORCED : 0;
        }
        assert_int_equal(masked.heard.ids[i], id);
        ids[N_PROMPT + i] = last = id;
      }
      sampler_close(sampler);
      int32_t free_id; /* afterwards the session is free again */
      make_prompt(prompt);
      assert_int_equal(session_sync(session, prompt, N_PROMPT, NULL), STATUS_OK);
      assert_int_equal(session_sample(session, &free_id, NULL), STATUS_OK);
      session_close(session);
    }
}

static Status refuse_to_allow(void *user, const uint64_t **mask, Error *err) {
  (void)user, (void)mask;
  return error_set(err, STATUS_USAGE, "no token leads on");
}

TEST(where_no_token_may_follow_it_fails) {
  for (int ahead = 0; ahead < 2; ahead++) {
    Session *session = open_prompt(both[ahead], &model, &warm);
    GenerateResult result;
    Heard heard = {.plan = &(const Plan){.max_tokens = -1}};
    Error err = {{0}};
    const GenerateOptions options = {.max_tokens = -1, .allow = refuse_to_allow};
    assert_int_equal(generate(session, &options, hear, &heard, &result, &err), STATUS_USAGE);
    assert_string_equal(err.text, "no token leads on");
    assert_int_equal(heard.n, 0);
    session_close(session);
  }
}

/* --- ends and times */

static const Plan endless = {.max_tokens = -1};

/* Wherever it stands among the end tokens, and however early it comes. */
TEST(any_end_token_ends_and_is_not_handed_out) {
  enum { END = FAKE_VOCAB - 1, N_EOS = 4 };
  for (int ahead = 0; ahead < 2; ahead++)
    for (int place = 0; place < N_EOS; place++)
      for (int n_before = 0; n_before < 4; n_before++) {
        Session *session = open_prompt(both[ahead], &model, &greedy);
        int32_t eos[N_EOS] = {-1, -2, -3, -4}; /* no token that is made */
        eos[place] = END;
        fake.end_at = N_PROMPT - 1 + n_before;
        if (n_before == 0) {
          int32_t prompt[N_PROMPT];
          make_prompt(prompt);
          assert_int_equal(session_sync(session, prompt, N_PROMPT, NULL), STATUS_OK);
        }
        Heard heard = {.plan = &endless};
        GenerateResult result;
        GenerateOptions options = {.max_tokens = -1, .eos = eos, .n_eos = N_EOS};
        assert_int_equal(generate(session, &options, hear, &heard, &result, NULL), STATUS_OK);
        assert_int_equal(result.reason, FINISH_EOS);
        assert_int_equal(heard.n, n_before);
        assert_int_equal(result.n_generated, n_before);
        assert_int_equal(session_view(session).n_in_flight, 0);
        session_close(session);

        session = open_prompt(both[ahead], &model, &greedy);
        fake.end_at = N_PROMPT + n_before;
        options.n_eos = place; /* those before it alone */
        options.max_tokens = 10;
        heard = (Heard){.plan = &endless};
        assert_int_equal(generate(session, &options, hear, &heard, &result, NULL), STATUS_OK);
        assert_int_equal(result.reason, FINISH_LENGTH);
        assert_int_equal(heard.ids[n_before + 1], END);
        session_close(session);
      }
}

TEST(an_interruption_before_the_first_token_leaves_none) {
  const volatile int interrupted = 1;
  for (int ahead = 0; ahead < 2; ahead++) {
    Session *session = open_prompt(both[ahead], &model, &greedy);
    Heard heard = {.plan = &endless};
    GenerateResult result;
    const GenerateOptions options = {.max_tokens = -1, .interrupted = &interrupted};
    assert_int_equal(generate(session, &options, hear, &heard, &result, NULL), STATUS_OK);
    assert_int_equal(result.reason, FINISH_INTERRUPTED);
    assert_int_equal(heard.n, 0);
    assert_true(result.first_token_ms == 0 && result.decode_ms == 0);
    assert_int_equal(session_view(session).text->n_past, N_PROMPT);
    session_close(session);
  }
}

static bool stop_at_once(void *user, int done, int total) {
  (void)user, (void)done, (void)total;
  return false;
}

/* A text that grows long is computed again, which can be stopped: the answer ends there. */
TEST(what_is_computed_again_can_be_stopped) {
  enum { SHORT_TEXT = N_PROMPT + 6 };
  Model long_model = model;
  long_model.config.rope = (RopeConfig){.kind = ROPE_LONGROPE, .original_max_position = SHORT_TEXT};
  Session *session = open_prompt(&fake_backend, &long_model, &greedy);
  session_watch(session, stop_at_once, NULL);
  Heard heard = {.plan = &endless};
  GenerateResult result;
  const GenerateOptions options = {.max_tokens = -1};
  assert_int_equal(generate(session, &options, hear, &heard, &result, NULL), STATUS_OK);
  assert_int_equal(result.reason, FINISH_INTERRUPTED);
  assert_int_equal(heard.n, 7); /* the seventh was handed out, and did not come into the cache */
  session_close(session);
}

static Status refuse_the_third(void *user, int32_t id, TokenReply *reply, Error *err) {
  (void)id, (void)reply;
  return ++*(int *)user == 3 ? error_set(err, STATUS_PIPE, "gone") : STATUS_OK;
}

TEST(a_failure_is_told_and_leaves_nothing_on_its_way) {
  for (int ahead = 0; ahead < 2; ahead++) {
    Session *session = open_prompt(both[ahead], &model, &greedy);
    int n_heard = 0;
    GenerateResult result;
    Error err = {{0}};
    const GenerateOptions options = {.max_tokens = -1};
    assert_int_equal(generate(session, &options, refuse_the_third, &n_heard, &result, &err), STATUS_PIPE);
    assert_string_equal(err.text, "gone");
    assert_int_equal(session_view(session).n_in_flight, 0);
    assert_int_equal(result.n_generated, 2);
    session_close(session);

    session = open_prompt(both[ahead], &model, &greedy); /* the device fails, not the sink */
    n_heard = 0;
    fake.fail_at = fake.n_steps + 2;
    assert_int_equal(generate(session, &options, refuse_the_third, &n_heard, &result, &err), STATUS_FAILED);
    assert_string_equal(err.text, "the device is gone");
    assert_int_equal(session_view(session).n_in_flight, 0);
    session_close(session);
  }
  Session *session = open_prompt(&fake_ahead_backend, &model, &greedy); /* at the very end */
  Heard heard = {.plan = &endless};
  GenerateResult result;
  fake.no_draining = true;
  const GenerateOptions options = {.max_tokens = 3};
  assert_int_equal(generate(session, &options, hear, &heard, &result, NULL), STATUS_FAILED);
  session_close(session);
}

static Status stop_with_the_job(void *user, int32_t id, TokenReply *reply, Error *err) {
  (void)id, (void)err;
  *(int *)user = 1;
  reply->stop = true;
  return STATUS_OK;
}

/* The answer ends in the step in which its job is interrupted: without a result, and with nothing on its
 * way. */
TEST(an_answer_that_ends_as_its_job_is_interrupted_leaves_the_session) {
  for (int ahead = 0; ahead < 2; ahead++) {
    int interrupted = 0;
    One one = {.session = open_prompt(both[ahead], &model, &greedy)};
    const EngineJob job = {.interrupted = &interrupted};
    const EngineRequest request = {
        .generate = {.max_tokens = -1}, .sink = stop_with_the_job, .user = &interrupted};
    Error err;
    bool idle;
    assert_int_equal(one_begin(&one, &job, &request, &err), STATUS_OK);
    assert_int_equal(one_step(&one, &job, &idle, &err), STATUS_INTERRUPTED);
    one_drop(&one);
    assert_int_equal(session_view(one.session).n_in_flight, 0);
    session_close(one.session);
  }
}

/* Forces three tokens after the model's first one, and another two once one of the three was handed out. */
static Status change_its_mind(void *user, int32_t id, TokenReply *reply, Error *err) {
  (void)err;
  static const int32_t three[] = {11, 12, 13}, two[] = {21, 22};
  Heard *heard = user;
  heard->ids[heard->n++] = id;
  if (heard->n == 1) *reply = (TokenReply){.forced = three, .n_forced = 3};
  if (heard->n == 2) *reply = (TokenReply){.forced = two, .n_forced = 2};
  reply->stop = heard->n == 5;
  return STATUS_OK;
}

TEST(later_forced_tokens_replace_earlier_ones) {
  for (int ahead = 0; ahead < 2; ahead++) {
    Session *session = open_prompt(both[ahead], &model, &greedy);
    Heard heard = {0};
    GenerateResult result;
    const GenerateOptions options = {.max_tokens = -1};
    assert_int_equal(generate(session, &options, change_its_mind, &heard, &result, NULL), STATUS_OK);
    assert_int_equal(result.reason, FINISH_STOP);
    assert_int_equal(heard.n, 5);
    assert_int_equal(heard.ids[1], 11);
    assert_int_equal(heard.ids[2], 21);
    assert_int_equal(heard.ids[3], 22);
    int32_t text[FAKE_POSITIONS], *const cache[FAKE_LAYERS] = {text, text, text}, best = 0;
    float logits[FAKE_VOCAB];
    make_prompt(text);
    memcpy(text + N_PROMPT, heard.ids, 4 * sizeof *text);
    fake_row(cache, N_PROMPT + 4, logits);
    for (int32_t v = 1; v < FAKE_VOCAB; v++) best = logits[v] > logits[best] ? v : best;
    assert_int_equal(heard.ids[4], best);
    session_close(session);
  }
}

typedef struct {
  double first, last; /* when tokens came */
} Moments;

/* Lets the clock go on by at least a millisecond. */
static Status look_at_the_clock(void *user, int32_t id, TokenReply *reply, Error *err) {
  (void)id, (void)reply, (void)err;
  Moments *m = user;
  const double now = clock_ms();
  if (m->first == 0) m->first = now;
  while (clock_ms() < now + 1) {
  }
  m->last = clock_ms();
  return STATUS_OK;
}

/* Each pick takes some time. */
static Status slow_sample(BackendState *state, Sampler *sampler, int row, int32_t *id, Error *err) {
  const double now = clock_ms();
  while (clock_ms() < now + 1) {
  }
  return fake_sample(state, sampler, row, id, err);
}

/* The first token's time ends before it is handed out; what follows is the other. However slow the machine,
 * these hold. */
TEST(times_are_of_the_first_token_and_of_the_rest) {
  for (int ahead = 0; ahead < 2; ahead++) {
    Backend slow = *both[ahead];
    slow.sample = slow_sample;
    Session *session = open_prompt(&slow, &model, &greedy);
    Moments m = {0};
    GenerateResult result;
    const GenerateOptions options = {.max_tokens = 4};
    const double start = clock_ms();
    assert_int_equal(generate(session, &options, look_at_the_clock, &m, &result, NULL), STATUS_OK);
    const double end = clock_ms();
    assert_true(result.first_token_ms >= 1 && result.first_token_ms <= m.first - start);
    assert_true(result.decode_ms >= m.last - m.first && result.decode_ms >= 4);
    assert_true(result.first_token_ms + result.decode_ms <= end - start + 1e-6);
    session_close(session);
  }
}

TEST(every_reason_has_its_name) {
  static const char *const names[] = {
      [FINISH_EOS] = "eos",
      [FINISH_STOP] = "stop",
      [FINISH_LENGTH] = "length",
      [FINISH_CONTEXT] = "context",
      [FINISH_INTERRUPTED] = "interrupted",
      [FINISH_REPETITION] = "repetition",
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    assert_string_equal(finish_name((FinishReason)i), names[i]);
}
