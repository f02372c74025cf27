/* fake_backend.h - a backend in a few lines, for tests of the code above backends.
 *
 * Its "model" is a hash: the logits after a token depend on every token in the cache before it, on their
 * positions and on the order, so that whatever a session gets wrong about its cache shows in them. The
 * recurrent state of a layer of LAYER_DELTA is all tokens so far: that of another text shows. It checks
 * the promises of backend.h as it is called (positions within the context, rows within the chunk, the order
 * of the operations) and counts what it was asked to do. */
#pragma once

#include "engine/backend.h"
#include "engine/kept_states.h"
#include "test/unit.h"

enum { FAKE_VOCAB = 97, FAKE_LAYERS = 3, FAKE_POSITIONS = 200 };

typedef struct {
  int n_tokens;     /* computed in all steps */
  int n_steps;      /* calls of embed */
  int n_rows;       /* rows of logits made */
  int largest;      /* tokens of the largest step */
  int fail_at;      /* the step (1 ...) whose last operation fails; 0: none */
  int n_open;       /* states open */
  int largest_lead; /* picks that were dropped at once, at most */
  int32_t turn;     /* what tokens of long texts (TokenRange) are more by in the cache */
  int32_t end_at;   /* position whose logits make token FAKE_VOCAB - 1 certain; -1: none */
  bool no_writes;   /* kv_copy() from the host fails */
  int n_drained;    /* calls of drain() */
  bool no_draining; /* drain() fails */
  bool no_opening;  /* open() fails */
  int n_slots;      /* of the recurrent state; 0: MAX_KEPT_STATES */
  int n_saved, n_restored;
  bool no_saving, no_restoring; /* state_save(), state_restore() fail */
  bool no_state_writes;         /* state_copy() from the host fails */
} FakeCounts;

static FakeCounts fake;

struct BackendModel {
  const Model *model;
};

struct BackendState {
  StateOptions sizes;
  int32_t *cache[FAKE_LAYERS]; /* [n_ctx] the token at each position; LAYER_DELTA: the first n_recurrent */
  int32_t *slots;              /* [n_slots][FAKE_LAYERS][n_ctx] kept states */
  int *slot_lengths;           /* [n_slots] n_recurrent of each */
  int n_recurrent;
  const ModelConfig *config;
  int32_t *x;                    /* [max_chunk] */
  float *logits;                 /* [max_logit_rows][FAKE_VOCAB] */
  int n_kept;                    /* rows of the last norm_logits */
  int next;                      /* the operation that must come: layer * 5 + index, or -1: embed */
  int32_t picks[FAKE_POSITIONS]; /* of the backend that runs ahead: all, in order */
  int n_picked, n_taken;
};

static void fake_close(BackendState *state) {
  for (int layer = 0; layer < FAKE_LAYERS; layer++) free(state->cache[layer]);
  free(state->x);
  free(state->slots);
  free(state->slot_lengths);
  free(state->logits);
  free(state);
  fake.n_open--;
}

static Status fake_open(BackendModel *loaded, const StateOptions *sizes, BackendState **state, Error *err) {
  if (fake.no_opening) return error_set(err, STATUS_FAILED, "the device has no room");
  BackendState *s = calloc(1, sizeof *s);
  s->sizes = *sizes;
  for (int layer = 0; layer < FAKE_LAYERS; layer++)
    s->cache[layer] = calloc((size_t)sizes->n_ctx, sizeof **s->cache);
  s->x = calloc((size_t)sizes->max_chunk, sizeof *s->x);
  s->config = &loaded->model->config;
  s->slots = calloc((size_t)sizes->n_slots + 1, FAKE_LAYERS * (size_t)sizes->n_ctx * sizeof *s->slots);
  s->slot_lengths = calloc((size_t)sizes->n_slots + 1, sizeof *s->slot_lengths);
  s->logits = calloc((size_t)sizes->max_logit_rows * FAKE_VOCAB, sizeof *s->logits);
  s->next = -1;
  fake.n_open++;
  *state = s;
  return STATUS_OK;
}

static Status fake_embed(BackendState *state, TokenRange range, int layer, Error *err) {
  (void)layer, (void)err;
  assert_true(range.pos >= 0 && range.n_tokens >= 1);
  assert_true(range.pos + range.n_tokens <= state->sizes.n_ctx);
  assert_true(range.n_tokens <= state->sizes.max_chunk);
  if (range.ids) {
    for (int i = 0; i < range.n_tokens; i++) state->x[i] = range.ids[i] + (range.long_rope ? fake.turn : 0);
  } else { /* the token picked last, which the host has not seen */
    assert_true(range.n_tokens == 1 && state->n_picked > state->n_taken);
    state->x[0] = state->picks[state->n_picked - 1] + (range.long_rope ? fake.turn : 0);
  }
  fake.n_steps++;
  fake.n_tokens += range.n_tokens;
  if (range.n_tokens > fake.largest) fake.largest = range.n_tokens;
  state->next = 0;
  return STATUS_OK;
}

static Status fake_operation(BackendState *state, int layer, int index) {
  assert_int_equal(state->next, layer * 5 + index);
  state->next++;
  return STATUS_OK;
}

static Status fake_norm_qkv_rope_append(BackendState *state, TokenRange range, int layer, Error *err) {
  (void)err;
  memcpy(state->cache[layer] + range.pos, state->x, (size_t)range.n_tokens * sizeof *state->x);
  return fake_operation(state, layer, 0);
}

/* The states of the layers follow one another: a step changes all of them or fails. */
static Status fake_norm_delta_rule(BackendState *state, TokenRange range, int layer, Error *err) {
  (void)err;
  const bool first = config_count_layers(state->config, LAYER_DELTA, layer) == 0;
  if (first && range.pos == 0) state->n_recurrent = 0;
  const int at = first ? state->n_recurrent : state->n_recurrent - range.n_tokens;
  assert_int_equal(at, range.pos); /* the state is that of another position */
  memcpy(state->cache[layer] + at, state->x, (size_t)range.n_tokens * sizeof *state->x);
  if (first) state->n_recurrent += range.n_tokens;
  TRY(fake_operation(state, layer, 0));
  return fake_operation(state, layer, 1);
}

static Status fake_norm_short_conv(BackendState *state, TokenRange range, int layer, Error *err) {
  return fake_norm_delta_rule(state, range, layer, err);
}

static size_t fake_recurrent_bytes(const ModelConfig *config, int layer) {
  const int n_layers = config_count_layers(config, LAYER_DELTA, config->n_layers);
  if (config_layer(config, layer).kind != LAYER_DELTA) return 0;
  if (fake.n_slots) return KEPT_STATES_BYTES / (size_t)fake.n_slots / (size_t)n_layers;
  return (size_t)(1 + config->max_position) * sizeof(int32_t);
}

/* Copies the layers with a state from or to a slot. */
static void fake_copy_state(BackendState *state, int slot, bool save) {
  assert_true(slot >= 0 && slot < state->sizes.n_slots);
  const size_t n_ctx = (size_t)state->sizes.n_ctx;
  for (int layer = 0; layer < FAKE_LAYERS; layer++) {
    int32_t *kept = state->slots + ((size_t)slot * FAKE_LAYERS + (size_t)layer) * n_ctx;
    if (config_layer(state->config, layer).kind != LAYER_DELTA) continue;
    memcpy(save ? kept : state->cache[layer], save ? state->cache[layer] : kept, n_ctx * sizeof *kept);
  }
}

static Status fake_state_save(BackendState *state, int slot, Error *err) {
  if (fake.no_saving) return error_set(err, STATUS_FAILED, "the device is gone");
  fake_copy_state(state, slot, true);
  state->slot_lengths[slot] = state->n_recurrent;
  fake.n_saved++;
  return STATUS_OK;
}

static Status fake_state_restore(BackendState *state, int slot, Error *err) {
  if (fake.no_restoring) return error_set(err, STATUS_FAILED, "the device is gone");
  fake_copy_state(state, slot, false);
  state->n_recurrent = state->slot_lengths[slot];
  fake.n_restored++;
  return STATUS_OK;
}

/* The number of tokens, and then these tokens. */
static Status fake_state_copy(BackendState *state, CopyDirection direction, int slot, int layer, void *host,
                              Error *err) {
  const size_t n_ctx = (size_t)state->sizes.n_ctx;
  int32_t *numbers = host, *own = state->slots + ((size_t)slot * FAKE_LAYERS + (size_t)layer) * n_ctx;
  if (direction == TO_HOST) {
    memset(numbers, 0, fake_recurrent_bytes(state->config, layer));
    numbers[0] = state->slot_lengths[slot];
    memcpy(numbers + 1, own, n_ctx * sizeof *numbers);
    return STATUS_OK;
  }
  if (fake.no_state_writes) return error_set(err, STATUS_FAILED, "the device is gone");
  state->slot_lengths[slot] = numbers[0];
  memcpy(own, numbers + 1, n_ctx * sizeof *numbers);
  return STATUS_OK;
}

static Status fake_attention(BackendState *state, TokenRange range, int layer, Error *err) {
  (void)range, (void)err;
  return fake_operation(state, layer, 1);
}

static Status fake_out_proj_residual(BackendState *state, TokenRange range, int layer, Error *err) {
  (void)range, (void)err;
  return fake_operation(state, layer, 2);
}

static Status fake_norm_gate_up(BackendState *state, TokenRange range, int layer, Error *err) {
  (void)range, (void)err;
  return fake_operation(state, layer, 3);
}

static Status fake_down_residual(BackendState *state, TokenRange range, int layer, Error *err) {
  (void)range;
  if (fake.fail_at == fake.n_steps && layer == FAKE_LAYERS - 1)
    return error_set(err, STATUS_FAILED, "the device is gone");
  return fake_operation(state, layer, 4);
}

/* The logits after cache[0 .. n): they depend on the contents of every layer's cache. */
static void fake_row(int32_t *const *cache, int n, float *logits) {
  uint32_t hash = 2166136261u;
  for (int layer = 0; layer < FAKE_LAYERS; layer++)
    for (int i = 0; i < n; i++) hash = (hash ^ (uint32_t)cache[layer][i]) * 16777619u + (uint32_t)i;
  for (int v = 0; v < FAKE_VOCAB; v++) {
    hash = hash * 1664525u + 1013904223u;
    logits[v] = (float)(hash >> 20) * 0x1p-9f; /* 0 .. 8 */
  }
  if (n - 1 == fake.end_at) logits[FAKE_VOCAB - 1] = 100;
}

static Status fake_norm_logits(BackendState *state, TokenRange range, int layer, Error *err) {
  (void)layer, (void)err;
  const int first_row = range.first_logit, n_rows = range.n_logit_rows;
  assert_int_equal(state->next, FAKE_LAYERS * 5);
  assert_true(n_rows >= 1 && n_rows <= state->sizes.max_logit_rows);
  assert_true(first_row >= 0 && first_row + n_rows <= range.n_tokens);
  for (int row = 0; row < n_rows; row++)
    fake_row(state->cache, range.pos + first_row + row + 1, state->logits + row * FAKE_VOCAB);
  state->n_kept = n_rows;
  fake.n_rows += n_rows;
  return STATUS_OK;
}

static Status fake_read_logits(BackendState *state, int row, float *out, Error *err) {
  (void)err;
  assert_true(row >= 0 && row < state->n_kept);
  memcpy(out, state->logits + row * FAKE_VOCAB, FAKE_VOCAB * sizeof *out);
  return STATUS_OK;
}

static Status fake_sample(BackendState *state, Sampler *sampler, int row, int32_t *id, Error *err) {
  assert_true(row >= 0 && row < state->n_kept);
  const float *logits = state->logits + row * FAKE_VOCAB;
  if (id) return sampler_pick(sampler, logits, id, err);
  assert_true(state->n_picked < FAKE_POSITIONS);
  return sampler_pick(sampler, logits, &state->picks[state->n_picked++], err);
}

static Status fake_wait_token(BackendState *state, int32_t *id, Error *err) {
  (void)err;
  assert_true(state->n_taken < state->n_picked);
  *id = state->picks[state->n_taken++];
  return STATUS_OK;
}

static Status fake_drain(BackendState *state, Error *err) {
  fake.n_drained++;
  if (fake.no_draining) return error_set(err, STATUS_FAILED, "the device is gone");
  fake.largest_lead = state->n_picked - state->n_taken > fake.largest_lead ? state->n_picked - state->n_taken
                                                                           : fake.largest_lead;
  state->n_picked = state->n_taken = 0;
  return STATUS_OK;
}

/* A row of one KV head with one number: the key is the token, the value names its layer and position. */
static uint16_t fake_tag(int layer, int pos) {
  return (uint16_t)(layer * 20011 + pos * 7 + 1);
}

/* To the cache: bytes of another layer or position become another token. */
static Status fake_kv_copy(BackendState *state, CopyDirection direction, TokenRange range, int layer, int n,
                           void *host, Error *err) {
  uint16_t *keys = host, *values = keys + n;
  if (direction == FROM_HOST && fake.no_writes) return error_set(err, STATUS_FAILED, "the device is gone");
  for (int i = 0; i < range.n_tokens; i++) {
    const uint16_t tag = fake_tag(layer, range.pos + i);
    if (direction == TO_HOST)
      keys[i] = (uint16_t)state->cache[layer][range.pos + i], values[i] = tag;
    else
      state->cache[layer][range.pos + i] = keys[i] + values[i] - tag;
  }
  return STATUS_OK;
}

static Status fake_arithmetic(const BackendModel *loaded, char *out, size_t size, Error *err) {
  (void)loaded, (void)err;
  snprintf(out, size, "a hash");
  return STATUS_OK;
}

static Status fake_load(const Model *model, const BackendOptions *options, BackendModel **loaded,
                        Error *err) {
  (void)options, (void)err;
  *loaded = calloc(1, sizeof **loaded);
  (*loaded)->model = model;
  return STATUS_OK;
}

static void fake_unload(BackendModel *loaded) {
  free(loaded);
}

static size_t fake_state_bytes(const ModelConfig *config, const StateOptions *sizes) {
  (void)config;
  return (size_t)sizes->n_ctx * FAKE_LAYERS * 4;
}

/* The fake's layers have neither experts nor several streams. */
#define FAKE_OPERATIONS                                                                                      \
  .run = {[OP_EMBED] = fake_embed,           [OP_QKV] = fake_norm_qkv_rope_append,                           \
          [OP_DELTA] = fake_norm_delta_rule, [OP_CONV] = fake_norm_short_conv,                               \
          [OP_ATTENTION] = fake_attention,   [OP_OUT_PROJ] = fake_out_proj_residual,                         \
          [OP_GATE_UP] = fake_norm_gate_up,  [OP_DOWN] = fake_down_residual,                                 \
          [OP_LOGITS] = fake_norm_logits},                                                                   \
  .sample = fake_sample
static const Backend fake_backend = {.name = "fake",
                                     .chunk = 256,
                                     .load = fake_load,
                                     .unload = fake_unload,
                                     .state_bytes = fake_state_bytes,
                                     .open = fake_open,
                                     .close = fake_close,
                                     .read_logits = fake_read_logits,
                                     .kv_copy = fake_kv_copy,
                                     .arithmetic = fake_arithmetic,
                                     .recurrent_bytes = fake_recurrent_bytes,
                                     .state_save = fake_state_save,
                                     .state_restore = fake_state_restore,
                                     .state_copy = fake_state_copy,
                                     FAKE_OPERATIONS};

/* The same, as a device that runs ahead of the host. */
static const Backend fake_ahead_backend = {.name = "fake ahead",
                                           .chunk = 256,
                                           .load = fake_load,
                                           .unload = fake_unload,
                                           .state_bytes = fake_state_bytes,
                                           .open = fake_open,
                                           .close = fake_close,
                                           .read_logits = fake_read_logits,
                                           .wait_token = fake_wait_token,
                                           .recurrent_bytes = fake_recurrent_bytes,
                                           .state_save = fake_state_save,
                                           .state_restore = fake_state_restore,
                                           .drain = fake_drain,
                                           FAKE_OPERATIONS};
#undef FAKE_OPERATIONS
