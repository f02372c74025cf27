/* test_kv_rows.c - keys and values that left one session's cache and came into another's give the same logits
 * as if the second had computed them, to the bit: no tolerance. */
#include "cpu_test.h"
#include "engine/session.h"
#include "test/tests.h"

enum { N = 120, CUTS = 5 };

/* Grouped queries, one KV head of 34 numbers (rows of V are padded), sliding windows, bfloat16. */
static const char *const models[] = {
    "test/data/miniatures/llama-head-34",
    "test/data/miniatures/mistral-window",
    "test/data/miniatures/qwen3-awq",
    "test/data/miniatures/gemma4-e",
};

typedef struct {
  Model *model;
  BackendModel *loaded;
  KvType kv;
  int32_t ids[N];
} World;

static Session *open_session(const World *world, int n_ctx, int chunk) {
  SessionOptions options = {
      .n_ctx = n_ctx, .chunk = chunk, .kv = world->kv, .sampler = {.top_p = 1, .repetition_penalty = 1}};
  Session *session;
  Error err = {{0}};
  if (session_open(&cpu_backend, world->loaded, world->model, &options, &session, &err))
    fail_msg("%s", err.text);
  return session;
}

static void sync_ok(Session *session, const int32_t *ids, int n) {
  Error err = {{0}};
  if (session_sync(session, ids, n, &err)) fail_msg("%s", err.text);
}

typedef struct {
  Session *from;
  int cuts[CUTS]; /* where pieces begin and end: not at multiples of anything */
  int n_more;     /* tokens that each piece holds after those that are taken */
} Pieces;

/* Copies the pieces out of another session. */
static Status carry_over(const Pieces *pieces, Session *session, Error *err) {
  for (int layer = 0; layer < session_view(session).text->config->n_layers; layer++) {
    for (int i = 0; i + 1 < CUTS; i++) {
      TokenRange range = {.pos = pieces->cuts[i], .n_tokens = pieces->cuts[i + 1] - pieces->cuts[i]},
                 stored = range;
      stored.n_tokens += pieces->n_more;
      void *bytes = need((size_t)stored.n_tokens, session_view(session).kv_bytes[layer]);
      TRY(session_kv_copy(pieces->from, TO_HOST, stored, layer, stored.n_tokens, bytes, err));
      TRY(session_kv_copy(session, FROM_HOST, range, layer, stored.n_tokens, bytes, err));
      free(bytes);
    }
  }
  return STATUS_OK;
}

static void check(const World *world) {
  const int vocab = world->model->config.vocab_size;
  float *want = need((size_t)vocab, sizeof *want), *got = need((size_t)vocab, sizeof *got);
  Session *whole = open_session(world, N, 0);
  sync_ok(whole, world->ids, N);
  assert_int_equal(session_logits(whole, want, NULL), STATUS_OK);
  const Pieces pieces[] = {
      {whole, {0, 1, 17, 64, 100}, 0}, {whole, {0, 16, 32, 33, 90}, 7}, {whole, {0, 40, 41, 47, N - 1}, 1}};
  const int contexts[] = {N, 121, 128};
  for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
    Session *session = open_session(world, contexts[i], 1 + 9 * (int)i);
    Error err = {{0}};
    if (session_rewind(session, world->ids, N, &err)) fail_msg("%s", err.text);
    if (carry_over(&pieces[i], session, &err)) fail_msg("%s", err.text);
    session_adopt(session, pieces[i].cuts[CUTS - 1]);
    assert_int_equal(session_view(session).text->n_past, pieces[i].cuts[CUTS - 1]);
    sync_ok(session, world->ids, N);
    assert_int_equal(session_logits(session, got, NULL), STATUS_OK);
    assert_memory_equal(got, want, (size_t)vocab * sizeof *got);
    session_close(session);
  }
  session_close(whole);
  free(want);
  free(got);
}

TEST(logits_are_the_same_to_the_bit) {
  uint64_t seed = 5;
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    for (int kv = KV_F16; kv <= KV_Q8; kv++) {
      World world = {.kv = (KvType)kv};
      Error err = {{0}};
      const BackendOptions options = {.n_threads = 1};
      if (model_open(models[i], NULL, &world.model, &err)) fail_msg("%s", err.text);
      if (cpu_backend.load(world.model, &options, &world.loaded, &err)) fail_msg("%s", err.text);
      for (int t = 0; t < N; t++)
        world.ids[t] = (int32_t)(next_random(&seed) % (uint32_t)world.model->config.vocab_size);
      check(&world);
      cpu_backend.unload(world.loaded);
      model_close(world.model);
    }
  }
}

TEST(what_is_not_there_is_refused) {
  World world = {.kv = KV_F16};
  Error err = {{0}};
  const BackendOptions options = {.n_threads = 1};
  if (model_open(models[0], NULL, &world.model, &err)) fail_msg("%s", err.text);
  if (cpu_backend.load(world.model, &options, &world.loaded, &err)) fail_msg("%s", err.text);
  Session *session = open_session(&world, 50, 0);
  sync_ok(session, world.ids, 30);
  void *bytes = need(60, session_view(session).kv_bytes[0]);
  assert_int_equal(session_kv_copy(session, TO_HOST, (TokenRange){.n_tokens = 30}, 0, 30, bytes, &err),
                   STATUS_OK);
  assert_int_equal(session_kv_copy(session, TO_HOST, (TokenRange){.n_tokens = 31}, 0, 31, bytes, &err),
                   STATUS_FAILED);
  assert_int_equal(
      session_kv_copy(session, TO_HOST, (TokenRange){.pos = 30, .n_tokens = 1}, 0, 1, bytes, &err),
      STATUS_FAILED);
  assert_int_equal(
      session_kv_copy(session, TO_HOST, (TokenRange){.pos = -1, .n_tokens = 2}, 0, 2, bytes, &err),
      STATUS_FAILED);
  assert_int_equal(session_kv_copy(session, FROM_HOST, (TokenRange){.n_tokens = 50}, 1, 60, bytes, &err),
                   STATUS_OK);
  assert_int_equal(session_kv_copy(session, FROM_HOST, (TokenRange){.n_tokens = 51}, 1, 60, bytes, &err),
                   STATUS_FAILED);
  assert_int_equal(
      session_kv_copy(session, FROM_HOST, (TokenRange){.pos = 49, .n_tokens = 2}, 1, 60, bytes, &err),
      STATUS_FAILED);
  assert_int_equal(session_kv_copy(session, FROM_HOST, (TokenRange){.n_tokens = 5}, 1, 4, bytes, &err),
                   STATUS_FAILED);
  free(bytes);
  session_close(session);
  cpu_backend.unload(world.loaded);
  model_close(world.model);
}
