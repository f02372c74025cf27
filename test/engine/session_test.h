/* session_test.h - what the tests of sessions share: a model whose backend is a hash of its cache
 * (fake_backend.h), one whose long texts have other positions, and the logits that either has to give. */
#pragma once

#include "fake_backend.h"

#include "engine/session.h"

static const Model model = {.config = {.n_layers = FAKE_LAYERS,
                                       .n_kv_heads = 1,
                                       .head_dim = 1,
                                       .vocab_size = FAKE_VOCAB,
                                       .max_position = FAKE_POSITIONS}};
/* With a recurrent state in the second layer. */
static LayerConfig hybrid_layers[FAKE_LAYERS] = {[1] = {.kind = LAYER_DELTA}};
static const Model hybrid_model = {.config = {.n_layers = FAKE_LAYERS,
                                              .n_kv_heads = 1,
                                              .head_dim = 1,
                                              .vocab_size = FAKE_VOCAB,
                                              .max_position = FAKE_POSITIONS,
                                              .layers = hybrid_layers}};
/* Whose texts of more than SHORT_TEXT tokens have other positions, by LONG_TURN. */
enum { SHORT_TEXT = 40, LONG_TURN = 1000 };
static const Model long_hybrid_model = {
    .config = {.n_layers = FAKE_LAYERS,
               .n_kv_heads = 1,
               .head_dim = 1,
               .vocab_size = FAKE_VOCAB,
               .max_position = FAKE_POSITIONS,
               .layers = hybrid_layers,
               .rope = {.kind = ROPE_LONGROPE, .original_max_position = SHORT_TEXT}}};
static const Model long_model = {
    .config = {.n_layers = FAKE_LAYERS,
               .n_kv_heads = 1,
               .head_dim = 1,
               .vocab_size = FAKE_VOCAB,
               .max_position = FAKE_POSITIONS,
               .rope = {.kind = ROPE_LONGROPE, .original_max_position = SHORT_TEXT}}};
static const SamplerSettings greedy = {.top_p = 1, .repetition_penalty = 1};

static const Backend *backend = &fake_backend; /* the one under test: set before a group of tests */

static inline Session *open_session(SessionOptions options) {
  fake = (FakeCounts){.end_at = -1};
  if (options.sampler.top_p == 0) options.sampler = greedy;
  BackendModel loaded = {&model};
  Session *session;
  Error err = {{0}};
  if (session_open(backend, &loaded, &model, &options, &session, &err) != STATUS_OK) fail_msg("%s", err.text);
  return session;
}

/* A session of hybrid_model that keeps n_slots recurrent states. */
static inline Session *open_hybrid(SessionOptions options, int n_slots) {
  fake = (FakeCounts){.end_at = -1, .n_slots = n_slots};
  options.sampler = greedy;
  BackendModel loaded = {&hybrid_model};
  Session *session;
  Error err = {{0}};
  if (session_open(backend, &loaded, &hybrid_model, &options, &session, &err) != STATUS_OK)
    fail_msg("%s", err.text);
  return session;
}

static inline void make_ids(int32_t *ids, int n, int salt) {
  for (int i = 0; i < n; i++) ids[i] = (i * 31 + i / 7 + salt * 13) % FAKE_VOCAB;
}

/* The logits after ids[0 .. n) of a model without a cache. */
static inline void whole_logits(const int32_t *ids, int n, float *out) {
  int32_t copy[FAKE_POSITIONS], *const cache[FAKE_LAYERS] = {copy, copy, copy};
  memcpy(copy, ids, (size_t)n * sizeof *ids);
  fake_row(cache, n, out);
}

static inline void assert_holds(Session *session, const int32_t *ids, int n) {
  float got[FAKE_VOCAB], want[FAKE_VOCAB];
  assert_int_equal(session_view(session).text->n_past, n);
  assert_memory_equal(session_view(session).text->ids, ids, (size_t)n * sizeof *ids);
  assert_int_equal(session_logits(session, got, NULL), STATUS_OK);
  whole_logits(ids, n, want);
  assert_memory_equal(got, want, sizeof got);
}

static inline void sync_ok(Session *session, const int32_t *ids, int n) {
  Error err = {{0}};
  if (session_sync(session, ids, n, &err) != STATUS_OK) fail_msg("%s", err.text);
}

static inline Session *open_long(SessionOptions options) {
  BackendModel loaded = {&long_model};
  Session *session;
  Error err = {{0}};
  fake = (FakeCounts){.end_at = -1, .turn = LONG_TURN};
  options.sampler = greedy;
  if (session_open(backend, &loaded, &long_model, &options, &session, &err) != STATUS_OK)
    fail_msg("%s", err.text);
  return session;
}

/* The logits of long_model after ids[0 .. n) of a text of n_all tokens. */
static inline void long_logits(const int32_t *ids, int n, int n_all, float *out) {
  int32_t copy[FAKE_POSITIONS];
  for (int i = 0; i < n; i++) copy[i] = ids[i] + (n_all > SHORT_TEXT ? LONG_TURN : 0);
  whole_logits(copy, n, out);
}

static inline void assert_holds_long(Session *session, const int32_t *ids, int n) {
  float got[FAKE_VOCAB], want[FAKE_VOCAB];
  assert_int_equal(session_view(session).text->n_past, n);
  assert_memory_equal(session_view(session).text->ids, ids, (size_t)n * sizeof *ids);
  assert_int_equal(session_logits(session, got, NULL), STATUS_OK);
  long_logits(ids, n, n, want);
  assert_memory_equal(got, want, sizeof got);
}
