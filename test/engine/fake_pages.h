/* fake_pages.h - a backend of several sequences in a few lines, for tests of batch.c.
 *
 * As that of fake_backend.h its "model" is a hash: the logits after a token depend on every token that the
 * sequence's pages hold before it, on their order and on the layer, so that a page that is lost, mixed up or
 * written by another sequence shows in them. The recurrent state of a hybrid is a hash of the tokens so far.
 * It checks the promises of backend.h and counts. */
#pragma once

#include "engine/backend.h"
#include "test/unit.h"

enum { PAGED_VOCAB = 61, PAGED_LAYERS = 2, PAGED_TOKENS = 8, PAGED_POSITIONS = 160 };

typedef struct {
  int n_steps, n_tokens;
  int highest_page; /* that a table had */
  int n_copied;     /* pages */
  int fail_at;      /* the step (1 ...) that fails; 0: none */
  int32_t turn;     /* what tokens of long texts are more by in the cache */
  int32_t form;     /* likewise those that are computed as rows of a prompt */
  int n_ahead;      /* steps whose picks stayed on the device */
} PagedCounts;

static PagedCounts paged;

struct BackendModel {
  const Model *model;
};

struct BackendState {
  StateOptions sizes;
  const ModelConfig *config;
  int32_t *cache[PAGED_LAYERS]; /* [n_pages * PAGED_TOKENS] */
  int32_t *tables;              /* [n_sequences][PAGED_POSITIONS] */
  uint32_t *states;             /* [n_sequences][PAGED_POSITIONS] after each token */
  int *state_lengths;           /* [n_sequences] */
  int32_t *x;                   /* [max_chunk] */
  float *logits;                /* [max_logit_rows][PAGED_VOCAB] */
  int n_rows;
  int *sequences;        /* [max_logit_rows] of the rows of logits */
  int32_t *picked;       /* [n_sequences] each one's last pick on the device, or TOKEN_PICKED */
  int32_t *on_their_way; /* [2][max_logit_rows] picks that were not taken, the older ones first */
  int n_on_their_way[2]; /* rows of each */
};

static void paged_close(BackendState *s) {
  for (int layer = 0; layer < PAGED_LAYERS; layer++) free(s->cache[layer]);
  free(s->tables);
  free(s->states);
  free(s->state_lengths);
  free(s->x);
  free(s->logits);
  free(s->sequences);
  free(s->picked);
  free(s->on_their_way);
  free(s);
}

static Status paged_open(BackendModel *loaded, const StateOptions *sizes, BackendState **state, Error *err) {
  (void)err;
  BackendState *s = calloc(1, sizeof *s);
  const size_t n = (size_t)sizes->n_sequences;
  s->sizes = *sizes;
  s->config = &loaded->model->config;
  for (int layer = 0; layer < PAGED_LAYERS; layer++)
    s->cache[layer] = calloc((size_t)sizes->n_pages * PAGED_TOKENS, sizeof(int32_t));
  s->tables = calloc(n * PAGED_POSITIONS, sizeof *s->tables);
  s->states = calloc(n * PAGED_POSITIONS, sizeof *s->states);
  s->state_lengths = calloc(n, sizeof *s->state_lengths);
  s->x = calloc((size_t)sizes->max_chunk, sizeof *s->x);
  s->logits = calloc((size_t)sizes->max_logit_rows * PAGED_VOCAB, sizeof *s->logits);
  s->sequences = calloc((size_t)sizes->max_logit_rows, sizeof *s->sequences);
  s->picked = calloc(n, sizeof *s->picked);
  for (size_t i = 0; i < n; i++) s->picked[i] = TOKEN_PICKED;
  s->on_their_way = calloc(2 * (size_t)sizes->max_logit_rows, sizeof *s->on_their_way);
  *state = s;
  return STATUS_OK;
}

static int32_t *paged_place(BackendState *s, int layer, int sequence, int pos) {
  const int32_t page = s->tables[sequence * PAGED_POSITIONS + pos / PAGED_TOKENS];
  return &s->cache[layer][page * PAGED_TOKENS + pos % PAGED_TOKENS];
}

static Status paged_embed(BackendState *s, TokenRange range, int layer, Error *err) {
  (void)layer, (void)err;
  int n = 0;
  bool seen[256] = {false};
  assert_true(range.n_tokens >= 1 && range.n_tokens <= s->sizes.max_chunk && range.parts);
  for (int i = 0; i < range.n_parts; i++) {
    const SequenceRows *part = &range.parts[i];
    assert_true(part->sequence >= 0 && part->sequence < s->sizes.n_sequences && !seen[part->sequence]);
    assert_true(part->pos >= 0 && part->n_tokens >= 1 && part->pos + part->n_tokens <= s->sizes.n_ctx);
    seen[part->sequence] = true;
    if (s->sizes.invariant) assert_true(part->of_prompt || part->n_tokens <= 1 + GUESS_ROWS);
    for (int r = 0; r < part->n_tokens; r++, n++) {
      const int32_t id = range.ids[n] == TOKEN_PICKED ? s->picked[part->sequence] : range.ids[n];
      assert_true(id >= 0 && id < PAGED_VOCAB);
      s->x[n] = id + (part->long_rope ? paged.turn : 0) + (part->of_prompt ? paged.form : 0);
    }
  }
  assert_int_equal(n, range.n_tokens);
  paged.n_steps++;
  paged.n_tokens += n;
  return STATUS_OK;
}

static Status paged_norm_qkv_rope_append(BackendState *s, TokenRange range, int layer, Error *err) {
  (void)err;
  for (int i = 0, n = 0; i < range.n_parts; i++)
    for (int r = 0; r < range.parts[i].n_tokens; r++)
      *paged_place(s, layer, range.parts[i].sequence, range.parts[i].pos + r) = s->x[n++];
  return STATUS_OK;
}

static Status paged_norm_delta_rule(BackendState *s, TokenRange range, int layer, Error *err) {
  (void)layer, (void)err;
  for (int i = 0, n = 0; i < range.n_parts; i++) {
    const SequenceRows *part = &range.parts[i];
    uint32_t *states = s->states + part->sequence * PAGED_POSITIONS;
    if (part->pos == 0) s->state_lengths[part->sequence] = 0;
    assert_int_equal(s->state_lengths[part->sequence], part->pos);
    if (part->of_prompt) assert_int_equal(part->pos % PAGED_TOKENS, 0);
    for (int pos = part->pos; pos < part->pos + part->n_tokens; pos++)
      states[pos] = ((pos ? states[pos - 1] : 1) ^ (uint32_t)s->x[n++]) * 16777619u;
    s->state_lengths[part->sequence] += part->n_tokens;
  }
  return STATUS_OK;
}

static Status paged_norm_short_conv(BackendState *s, TokenRange range, int layer, Error *err) {
  return paged_norm_delta_rule(s, range, layer, err);
}

static Status paged_attention(BackendState *s, TokenRange range, int layer, Error *err) {
  (void)s, (void)range, (void)layer, (void)err;
  return STATUS_OK;
}

static Status paged_down_residual(BackendState *s, TokenRange range, int layer, Error *err) {
  (void)s, (void)range, (void)layer;
  return paged.fail_at == paged.n_steps ? error_set(err, STATUS_FAILED, "the device is gone") : STATUS_OK;
}

static void paged_row(BackendState *s, const SequenceRows *part, int pos, float *logits) {
  uint32_t hash = 2166136261u;
  for (int layer = 0; layer < PAGED_LAYERS; layer++)
    for (int i = 0; config_layer(s->config, layer).kind == LAYER_ATTENTION && i <= pos; i++)
      hash = (hash ^ (uint32_t)*paged_place(s, layer, part->sequence, i)) * 16777619u + (uint32_t)i;
  if (config_layer(s->config, 1).kind == LAYER_DELTA)
    hash ^= s->states[part->sequence * PAGED_POSITIONS + pos];
  for (int v = 0; v < PAGED_VOCAB; v++) {
    hash = hash * 1664525u + 1013904223u;
    logits[v] = (float)(hash >> 20) * 0x1p-9f; /* 0 .. 8 */
  }
}

static Status paged_norm_logits(BackendState *s, TokenRange range, int layer, Error *err) {
  (void)layer, (void)err;
  const int n_rows = range.n_logit_rows;
  assert_true(n_rows <= s->sizes.max_logit_rows);
  for (int row = 0; row < n_rows; row++) {
    const SequenceRows *part = range.parts;
    int at = range.logit_rows[row];
    assert_true(at >= 0 && at < range.n_tokens && (row == 0 || at > range.logit_rows[row - 1]));
    for (; at >= part->n_tokens; part++) at -= part->n_tokens;
    paged_row(s, part, part->pos + at, s->logits + row * PAGED_VOCAB);
    s->sequences[row] = part->sequence;
  }
  s->n_rows = n_rows;
  return STATUS_OK;
}

static Status paged_read_logits(BackendState *s, int row, float *out, Error *err) {
  (void)err;
  assert_true(row >= 0 && row < s->n_rows);
  memcpy(out, s->logits + row * PAGED_VOCAB, PAGED_VOCAB * sizeof *out);
  return STATUS_OK;
}

static Status paged_sample(BackendState *s, Sampler *sampler, int row, int32_t *id, Error *err) {
  return sampler_pick(sampler, s->logits + row * PAGED_VOCAB, id, err);
}

/* Picks that the host does not wait for come to it when it takes them. */
static Status paged_sample_rows(BackendState *s, Sampler *const *samplers, int n, int32_t *ids, Error *err) {
  assert_true(n <= s->n_rows);
  const int older = s->n_on_their_way[0] > 0;
  int32_t *to = ids ? ids : s->on_their_way + older * s->sizes.max_logit_rows;
  assert_true(n > 0 && s->n_on_their_way[1] == 0 && (!ids || !older));
  for (int i = 0; i < n; i++) {
    if (!samplers[i]) continue;
    if (!ids) assert_true(!sampler_has_penalties(samplers[i]) && !sampler_allowed(samplers[i]));
    TRY(sampler_pick(samplers[i], s->logits + i * PAGED_VOCAB, &to[i], err));
    s->picked[s->sequences[i]] = to[i];
  }
  if (!ids) s->n_on_their_way[older] = n, paged.n_ahead++;
  return STATUS_OK;
}

static Status paged_take_rows(BackendState *s, int32_t *ids, Error *err) {
  (void)err;
  const int n = s->n_on_their_way[0], most = s->sizes.max_logit_rows;
  assert_true(n > 0);
  memcpy(ids, s->on_their_way, (size_t)n * sizeof *ids);
  memmove(s->on_their_way, s->on_their_way + most, (size_t)most * sizeof *ids);
  s->n_on_their_way[0] = s->n_on_their_way[1], s->n_on_their_way[1] = 0;
  return STATUS_OK;
}

static Status paged_set_pages(BackendState *s, int sequence, int first, const int32_t *pages, int n,
                              Error *err) {
  (void)err;
  for (int i = 0; i < n; i++) {
    assert_true(pages[i] >= 0 && pages[i] < s->sizes.n_pages && (first + i) * PAGED_TOKENS < s->sizes.n_ctx);
    s->tables[sequence * PAGED_POSITIONS + first + i] = pages[i];
    if (pages[i] > paged.highest_page) paged.highest_page = pages[i];
  }
  return STATUS_OK;
}

static Status paged_copy_page(BackendState *s, int from, int to, Error *err) {
  (void)err;
  assert_int_not_equal(from, to);
  for (int layer = 0; layer < PAGED_LAYERS; layer++)
    memcpy(s->cache[layer] + to * PAGED_TOKENS, s->cache[layer] + from * PAGED_TOKENS,
           PAGED_TOKENS * sizeof(int32_t));
  paged.n_copied++;
  return STATUS_OK;
}

static size_t paged_recurrent_bytes(const ModelConfig *config, int layer) {
  return config_layer(config, layer).kind == LAYER_DELTA ? sizeof(uint32_t) : 0;
}

static const Backend paged_backend = {.name = "fake pages",
                                      .chunk = 24,
                                      .open = paged_open,
                                      .close = paged_close,
                                      .read_logits = paged_read_logits,
                                      .recurrent_bytes = paged_recurrent_bytes,
                                      .page_tokens = PAGED_TOKENS,
                                      .set_pages = paged_set_pages,
                                      .copy_page = paged_copy_page,
                                      .sample_rows = paged_sample_rows,
                                      .sample = paged_sample,
                                      .run = {[OP_EMBED] = paged_embed,
                                              [OP_QKV] = paged_norm_qkv_rope_append,
                                              [OP_DELTA] = paged_norm_delta_rule,
                                              [OP_CONV] = paged_norm_short_conv,
                                              [OP_ATTENTION] = paged_attention,
                                              [OP_OUT_PROJ] = paged_attention,
                                              [OP_GATE_UP] = paged_attention,
                                              [OP_DOWN] = paged_down_residual,
                                              [OP_LOGITS] = paged_norm_logits}};
