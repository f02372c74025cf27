/* test_attention.c - the cache and attention over it, segment by segment, against doubles. */
#include <math.h>

#include "cpu_test.h"

#include "cpu/cpu.h"
#include "test/tests.h"

typedef struct {
  KvHead kv;
  int n;         /* positions */
  double *k, *v; /* [n][head_dim] as the cache holds them */
} Cache;

/* out[i] = x[i] as a cache of this type holds it (backend.h, KvType), where they share a scale. */
static void stored(KvType type, const float *x, size_t n, double *out) {
  float largest = 0;
  for (size_t i = 0; i < n; i++) largest = fmaxf(largest, fabsf(x[i]));
  uint16_t half = float_to_f16(largest / 127);
  if (f16_to_float(half) < largest / 127) half++;
  half = (uint16_t)((half + 15) & ~15);
  const float scale = f16_to_float(half);
  for (size_t i = 0; i < n; i++)
    out[i] = type == KV_F16  ? (double)f16_to_float(float_to_f16(x[i]))
             : type == KV_Q8 ? (double)scale * (double)rintf(scale > 0 ? x[i] / scale : 0)
                             : (double)x[i];
}

static Cache cache_of(const Kernels *kernels, KvType type, int head_dim, int n, uint64_t seed) {
  size_t dim = (size_t)head_dim, size = kv_number_bytes(type),
         blocks = (size_t)(n + KEY_BLOCK - 1) / KEY_BLOCK;
  Cache cache = {.kv = {.type = type, .head_dim = head_dim}, .n = n};
  cache.kv.v_width = (head_dim + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
  cache.kv.k = need(blocks * dim * KEY_BLOCK, size);
  cache.kv.v = need((size_t)n * (size_t)cache.kv.v_width, size);
  cache.kv.k_scales = need(blocks * KEY_BLOCK * (size_t)kv_key_scales(type, head_dim), KV_SCALE_BYTES);
  cache.kv.v_scales = need((size_t)n, KV_SCALE_BYTES);
  cache.k = need((size_t)n * dim, sizeof *cache.k);
  cache.v = need((size_t)n * dim, sizeof *cache.v);
  float k[MAX_HEAD_DIM], v[MAX_HEAD_DIM];
  for (int position = 0; position < n; position++) {
    for (size_t d = 0; d < dim; d++) {
      k[d] = 4 * next_float(&seed);
      v[d] = next_float(&seed);
    }
    if (position == 7) memset(v, 0, sizeof v);
    for (size_t d = 0; d < dim; d += KEY_SCALE_DIMS)
      stored(type, k + d, dim - d < KEY_SCALE_DIMS ? dim - d : KEY_SCALE_DIMS,
             cache.k + (size_t)position * dim + d);
    stored(type, v, dim, cache.v + (size_t)position * dim);
    kernels->append(&cache.kv, position, k, v);
  }
  return cache;
}

static void cache_free(Cache *cache) {
  free(cache->kv.k);
  free(cache->kv.v);
  free(cache->kv.k_scales);
  free(cache->kv.v_scales);
  free(cache->k);
  free(cache->v);
}

/* Query i of the tile over all its segments, as attention.c goes. */
static void attend_all(const Kernels *kernels, const Cache *cache, const QueryTile *tile, float *value) {
  static float out[MAX_QUERIES * MAX_HEAD_DIM], part[MAX_QUERIES * MAX_HEAD_DIM];
  SoftmaxSum sums[MAX_QUERIES] = {0}, parts[MAX_QUERIES];
  size_t width = (size_t)cache->kv.v_width, dim = (size_t)cache->kv.head_dim;
  for (int segment = tile->low[0] / SEGMENT; segment <= tile->high[tile->n - 1] / SEGMENT; segment++) {
    kernels->attend(&cache->kv, segment, tile, parts, part);
    for (int i = 0; i < tile->n; i++)
      kernels->merge(&sums[i], out + (size_t)i * width, parts[i], part + (size_t)i * width,
                     cache->kv.v_width);
  }
  for (size_t i = 0; i < (size_t)tile->n; i++) {
    for (size_t d = 0; d < dim; d++) value[i * dim + d] = out[i * width + d] / sums[i].sum;
  }
}

/* The exact value, and the largest magnitude sum of a score. */
static double exact(const Cache *cache, const float *q, int low, int high, double cap, double *value) {
  size_t dim = (size_t)cache->kv.head_dim;
  double *score = need((size_t)cache->n, sizeof *score), largest = -INFINITY, sum = 0, magnitude = 0;
  for (int key = low; key <= high; key++) {
    double size = 0;
    for (size_t d = 0; d < dim; d++) {
      double term = (double)q[d] * cache->k[(size_t)key * dim + d];
      score[key] += term;
      size += fabs(term);
    }
    if (cap != 0) score[key] = cap * tanh(score[key] / cap);
    if (score[key] > largest) largest = score[key];
    if (size > magnitude) magnitude = size;
  }
  for (size_t d = 0; d < dim; d++) value[d] = 0;
  for (int key = low; key <= high; key++) {
    double p = exp(score[key] - largest);
    sum += p;
    for (size_t d = 0; d < dim; d++) value[d] += p * cache->v[(size_t)key * dim + d];
  }
  for (size_t d = 0; d < dim; d++) value[d] /= sum;
  free(score);
  return magnitude;
}

/* A score errs by (head_dim + 1) eps of its magnitude sum, and so does its difference from the largest; a
 * probability by that and 4 eps of e^x, relative; numerator and sum are chains of 256 terms and 4 merges.
 * Values are below 1. A capped score errs by no more than it did before, and by 6.5 eps of the cap. */
static double allowed(int head_dim, double magnitude, double cap) {
  return 2 * (2 * ((head_dim + 1) * magnitude + 6.5 * cap) + 4 + 256 + 16) * EPSILON;
}

static void check_tile(const Kernels *kernels, const Cache *cache, int n, int group, int pos, int window,
                       float cap) {
  static float q[MAX_QUERIES * MAX_HEAD_DIM], value[MAX_QUERIES * MAX_HEAD_DIM], alone[MAX_HEAD_DIM];
  size_t dim = (size_t)cache->kv.head_dim;
  uint64_t seed = (uint64_t)(pos * 31 + window);
  for (size_t i = 0; i < (size_t)n * dim; i++) q[i] = next_float(&seed) / sqrtf((float)dim);
  QueryTile tile = {.n = n, .cap = cap, .q = q};
  for (int i = 0; i < n; i++) {
    tile.high[i] = pos + i / group;
    tile.low[i] = window && tile.high[i] >= window ? tile.high[i] - window + 1 : 0;
  }
  attend_all(kernels, cache, &tile, value);
  for (int i = 0; i < n; i++) {
    double want[MAX_HEAD_DIM], bound;
    bound = exact(cache, q + (size_t)i * dim, tile.low[i], tile.high[i], (double)cap, want);
    bound = allowed(cache->kv.head_dim, bound, (double)cap);
    for (size_t d = 0; d < dim; d++) {
      if (!(fabs((double)value[(size_t)i * dim + d] - want[d]) <= bound))
        fail_msg("%s, head_dim %zu, pos %d, window %d, query %d: %.9g, not %.9g", kernels->name, dim, pos,
                 window, i, (double)value[(size_t)i * dim + d], want[d]);
    }
    /* The same bits as when it is computed alone. */
    QueryTile one = {
        .n = 1, .low = {tile.low[i]}, .high = {tile.high[i]}, .cap = cap, .q = q + (size_t)i * dim};
    attend_all(kernels, cache, &one, alone);
    assert_memory_equal(alone, value + (size_t)i * dim, dim * sizeof *alone);
  }
}

TEST(attention_of_every_head_dim) {
  static const int dims[] = {2, 34, 64, 80, 96, 128, 256};
  int n_tables;
  const Kernels *const *tables = kernels_usable(&n_tables);
  for (int isa = 0; isa < n_tables; isa++) {
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
      for (KvType type = KV_F16; type <= KV_Q8; type++) {
        Cache cache = cache_of(tables[isa], type, dims[i], 600, i);
        check_tile(tables[isa], &cache, 1, 1, 0, 0, 0);
        check_tile(tables[isa], &cache, 24, 3, 0, 0, 0);
        check_tile(tables[isa], &cache, 21, 7, 255, 0, 0);
        check_tile(tables[isa], &cache, 8, 4, 598, 0, 0);
        check_tile(tables[isa], &cache, 24, 1, 500, 17, 0);
        check_tile(tables[isa], &cache, 24, 1, 250, 5, 0);
        check_tile(tables[isa], &cache, 5, 1, 520, 300, 0);
        check_tile(tables[isa], &cache, 3, 1, 515, 1, 0);
        check_tile(tables[isa], &cache, 8, 4, 598, 0, 1.5f);
        check_tile(tables[isa], &cache, 24, 1, 250, 5, 4);
        cache_free(&cache);
      }
    }
  }
}

/* Scores that differ by more than e^x can say leave no NaN and no trace. */
TEST(far_scores) {
  int n_tables;
  const Kernels *const *tables = kernels_usable(&n_tables);
  for (int isa = 0; isa < n_tables; isa++) {
    Cache cache = cache_of(tables[isa], KV_F32, 16, 300, 1);
    float k[16] = {1e30f}, v[16] = {0.5f}, q[16] = {1e5f}, value[16];
    tables[isa]->append(&cache.kv, 7, k, v);
    QueryTile tile = {.n = 1, .low = {0}, .high = {299}, .q = q};
    attend_all(tables[isa], &cache, &tile, value);
    assert_memory_equal(value, v, sizeof v);
    q[0] = -1e5f;
    attend_all(tables[isa], &cache, &tile, value);
    for (int d = 0; d < 16; d++) assert_true(fabsf(value[d]) < 1);
    cache_free(&cache);
  }
}

/* --- a step's attention, as threads share it */

typedef struct {
  int heads, kv_heads, pos, n_tokens, window;
  float cap;
} Step;

enum { STEP_DIM = 10, STEP_CONTEXT = 640 };

/* The cache of a session's second layer holds these keys; what no row may see is NaN. */
static void fill_cache(BackendState *state, const Step *step, const Cache *caches) {
  const int first = step->window && step->pos >= step->window ? step->pos - step->window + 1 : 0;
  const size_t blocks = STEP_CONTEXT / KEY_BLOCK, dim = STEP_DIM;
  float nothing[STEP_DIM];
  for (int d = 0; d < STEP_DIM; d++) nothing[d] = NAN;
  for (int i = 0; i < step->kv_heads; i++) {
    const KvHead kv = state_kv_head(state, 0, 1, i);
    memcpy(kv.k, caches[i].kv.k, blocks * dim * KEY_BLOCK * sizeof(float));
    memcpy(kv.v, caches[i].kv.v, (size_t)STEP_CONTEXT * (size_t)kv.v_width * sizeof(float));
    for (int position = 0; position < STEP_CONTEXT; position++) {
      if (position < first || position >= step->pos + step->n_tokens)
        state->loaded->kernels->append(&kv, position, nothing, nothing);
    }
  }
}

static void check_step(BackendState *state, BackendModel *loaded, const Step *step, const Cache *caches) {
  const size_t stride = (size_t)state->plan.heads, n = (size_t)step->n_tokens * stride;
  const int group = step->heads / step->kv_heads;
  float *q = need(n, sizeof *q), *got = need(n, sizeof *got);
  uint64_t seed = (uint64_t)(step->pos + step->heads);
  for (size_t i = 0; i < n; i++) q[i] = next_float(&seed) / 3;
  fill_cache(state, step, caches);
  for (int n_threads = 1; n_threads <= 7; n_threads += 3) {
    loaded->n_threads = n_threads;
    memcpy(state->q, q, n * sizeof *q);
    assert_int_equal(
        cpu_attention(state, (TokenRange){.pos = step->pos, .n_tokens = step->n_tokens}, 1, NULL), STATUS_OK);
    if (n_threads > 1) assert_memory_equal(state->q, got, n * sizeof *q);
    memcpy(got, state->q, n * sizeof *q);
  }
  for (int row = 0; row < step->n_tokens; row++) {
    const int high = step->pos + row,
              low = step->window && high >= step->window ? high - step->window + 1 : 0;
    for (int head = 0; head < step->heads; head++) {
      const size_t at = (size_t)row * stride + (size_t)head * STEP_DIM;
      double want[MAX_HEAD_DIM];
      const double bound =
          allowed(STEP_DIM, exact(&caches[head / group], q + at, low, high, (double)step->cap, want),
                  (double)step->cap);
      for (size_t d = 0; d < STEP_DIM; d++) {
        if (!(fabs((double)got[at + d] - want[d]) <= bound))
          fail_msg("%s, %d heads of %d, row %d behind %d, window %d, head %d: %.9g, not %.9g",
                   loaded->kernels->name, step->heads, step->kv_heads, row, step->pos, step->window, head,
                   (double)got[at + d], want[d]);
      }
    }
    memcpy(state->q, q + (size_t)row * stride, stride * sizeof *q); /* alone it is the same */
    assert_int_equal(cpu_attention(state, (TokenRange){.pos = high, .n_tokens = 1}, 1, NULL), STATUS_OK);
    assert_memory_equal(state->q, got + (size_t)row * stride, (size_t)step->heads * STEP_DIM * sizeof *q);
  }
  free(q);
  free(got);
}

TEST(steps_attend_however_they_are_shared) {
  static const Step steps[] = {
      {1, 1, 0, 1, 0, 0},      {1, 1, 0, 30, 0, 0},     {6, 2, 255, 2, 0, 0},   {6, 2, 256, 1, 0, 1.5f},
      {10, 2, 250, 9, 0, 0},   {7, 1, 510, 5, 0, 0},    {24, 1, 300, 2, 0, 0},  {25, 1, 300, 2, 0, 0},
      {50, 2, 511, 2, 0, 0},   {49, 1, 600, 1, 0, 4},   {48, 1, 256, 3, 0, 0},  {3, 3, 0, 40, 1, 0},
      {6, 2, 260, 9, 5, 0},    {6, 2, 4, 3, 5, 0},      {6, 2, 5, 1, 5, 0},     {6, 2, 254, 5, 256, 0},
      {10, 2, 255, 3, 255, 0}, {6, 2, 512, 3, 256, 0},  {6, 2, 511, 2, 257, 4}, {60, 2, 530, 2, 20, 0},
      {60, 2, 516, 1, 5, 0},   {2, 1, 500, 100, 17, 0},
  };
  int n_tables;
  const Kernels *const *tables = kernels_usable(&n_tables);
  for (int isa = 0; isa < n_tables; isa++) {
    Cache caches[3];
    for (int i = 0; i < 3; i++)
      caches[i] = cache_of(tables[isa], KV_F32, STEP_DIM, STEP_CONTEXT, (uint64_t)i);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
      LayerConfig windows[2] = {{.window = 3}, {.window = steps[i].window}};
      const Model model = {.config = {.hidden = 16,
                                      .intermediate = 16,
                                      .n_layers = 2,
                                      .n_heads = steps[i].heads,
                                      .n_kv_heads = steps[i].kv_heads,
                                      .head_dim = STEP_DIM,
                                      .rope = {.rotary_dim = 2},
                                      .vocab_size = 1,
                                      .layers = windows,
                                      .attention_cap = (double)steps[i].cap}};
      CpuLayer layers[2] = {{.sinks = NULL}};
      BackendModel loaded = {.model = &model, .kernels = tables[isa], .layers = layers};
      BackendState *session;
      const StateOptions options = {
          .n_ctx = STEP_CONTEXT, .max_chunk = 128, .max_logit_rows = 1, .kv = KV_F32};
      assert_int_equal(cpu_backend.open(&loaded, &options, &session, NULL), STATUS_OK);
      check_step(session, &loaded, &steps[i], caches);
      cpu_backend.close(session);
    }
    for (int i = 0; i < 3; i++) cache_free(&caches[i]);
  }
}
