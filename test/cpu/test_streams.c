/* test_streams.c - limits of mixers that the miniatures' own numbers do not reach: AltUp's streams and
 * latents that are nearly nothing, latents of many heads, scores of blocks that are no numbers or equal,
 * caches of 8 bits. */
#include "cpu/cpu.h"
#include "cpu_test.h"
#include "test/engine/step_once.h"
#include "test/tests.h"

enum { MOST_HIDDEN = 32, MOST_POSITIONS = 20 };

typedef struct {
  Model *model;
  BackendModel *loaded;
  BackendState *state;
} World;

static void open_world(const char *path, KvType kv, World *w) {
  Error err = {{0}};
  if (model_open(path, NULL, &w->model, &err) || model_prepare(w->model, 1, &err) ||
      cpu_backend.load(w->model, &(BackendOptions){.n_threads = 1}, &w->loaded, &err) ||
      cpu_backend.open(
          w->loaded,
          &(StateOptions){
              .n_ctx = MOST_POSITIONS, .max_chunk = MOST_POSITIONS, .max_logit_rows = 1, .kv = kv},
          &w->state, &err))
    fail_msg("%s: %s", path, err.text);
}

static void close_world(World *w) {
  cpu_backend.close(w->state);
  cpu_backend.unload(w->loaded);
  model_close(w->model);
}

static double mean_square(const double *x, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += x[i] * x[i];
  return sum / n;
}

/* y = w x times the factor that makes it as large as `first`, were its mean square at least 1e-5. */
static void exact_stream(const Linear *w, const double *x, const double *first, double *y) {
  const uint16_t *numbers = w->weight;
  for (int o = 0; o < w->n_out; o++) {
    y[o] = 0;
    for (int i = 0; i < w->n_in; i++) y[o] += (double)bf16_to_float(numbers[o * w->n_in + i]) * x[i];
  }
  const double factor = sqrt(mean_square(first, w->n_out) / fmax(mean_square(y, w->n_out), 1e-5));
  for (int o = 0; o < w->n_out; o++) y[o] *= factor;
}

/* h of a row with these streams. */
static void exact_join(const World *w, double streams[][MOST_HIDDEN], double *h) {
  const int n = w->model->config.hidden, n_streams = w->model->config.altup.n;
  for (int i = 0; i < n; i++) h[i] = streams[0][i] / n_streams;
  for (int s = 1; s < n_streams; s++) {
    double projected[MOST_HIDDEN];
    exact_stream(&w->model->streams_out[s - 1], streams[s], streams[0], projected);
    for (int i = 0; i < n; i++) h[i] += projected[i] / n_streams;
  }
  const double size = sqrt(mean_square(h, n) + w->model->config.norm_eps);
  for (int i = 0; i < n; i++) h[i] *= (double)w->loaded->final_norm[i] / size;
}

/* Rows of an embedding, each 30 times smaller than the one before, so that the last ones fall below the least
 * size. Sums of 16 products in fp32 err by some 1e-7 of the largest. */
TEST(small_streams_stay_small) {
  enum { N_ROWS = 4 };
  World w;
  uint64_t seed = 3;
  open_world("test/data/miniatures/gemma3n-bf16", KV_F32, &w);
  const int n = w.model->config.hidden, n_streams = w.model->config.altup.n;
  const size_t stride = (size_t)w.state->plan.hidden, all = (size_t)w.state->plan.streams;
  double streams[N_ROWS][MAX_STREAMS][MOST_HIDDEN], h[MOST_HIDDEN], least = 1, most = 0;
  assert_true(n <= MOST_HIDDEN && n_streams > 1);
  for (int r = 0; r < N_ROWS; r++)
    for (int i = 0; i < n; i++) {
      float *x = &w.state->x[(size_t)r * stride + (size_t)i];
      *x = next_float(&seed) * (float)pow(30, -r);
      streams[r][0][i] = (double)*x;
    }
  cpu_begin_streams(w.state, N_ROWS);
  for (int r = 0; r < N_ROWS; r++)
    for (int s = 0; s < n_streams; s++) {
      double *stream = streams[r][s];
      if (s > 0) exact_stream(&w.model->streams_in[s - 1], streams[r][0], streams[r][0], stream);
      const double size = sqrt(mean_square(streams[r][0], n)), ratio = sqrt(mean_square(stream, n)) / size;
      least = fmin(least, ratio), most = fmax(most, ratio);
      for (int i = 0; i < n; i++) {
        const float got = w.state->streams[(size_t)r * all + (size_t)s * stride + (size_t)i];
        assert_float_equal(got, stream[i], 1e-6 * size);
      }
    }
  assert_true(least < 0.1 && most > 0.999);
  cpu_join_streams(w.state, NULL, 0, N_ROWS);
  for (int r = 0; r < N_ROWS; r++) {
    exact_join(&w, streams[r], h);
    for (int i = 0; i < n; i++) assert_float_equal(w.state->h[(size_t)r * stride + (size_t)i], h[i], 1e-5);
  }
  close_world(&w);
}

/* The norm of latents has an epsilon of its own, 1e-6, which small latents show: rows, each 30 times smaller
 * than the one before. Sums of 16 products in fp32 err by some 1e-7 of the largest. */
TEST(small_latents_have_their_own_epsilon) {
  enum { N_ROWS = 4, LAYER = 1 };
  World w;
  uint64_t seed = 5;
  open_world("test/data/miniatures/axk1-bf16", KV_F32, &w);
  const Linear *kv_a = w.loaded->layers[LAYER].kv_a.linear;
  const uint16_t *numbers = kv_a->weight;
  const int n = w.model->config.hidden, rank = w.model->config.latent.kv_rank;
  const size_t stride = (size_t)w.state->plan.hidden;
  float *rows = need(N_ROWS * stride, sizeof *rows);
  for (int r = 0; r < N_ROWS; r++)
    for (int i = 0; i < n; i++) rows[(size_t)r * stride + (size_t)i] = next_float(&seed) * (float)pow(30, -r);
  cpu_latent_project(w.state, (TokenRange){.n_tokens = N_ROWS}, LAYER, rows);
  for (int r = 0; r < N_ROWS; r++) {
    double latent[MOST_HIDDEN] = {0};
    assert_true(rank <= MOST_HIDDEN && kv_a->n_in == n && !kv_a->bias.data);
    for (int o = 0; o < rank; o++)
      for (int i = 0; i < n; i++)
        latent[o] += (double)bf16_to_float(numbers[o * n + i]) * (double)rows[(size_t)r * stride + (size_t)i];
    const double size = sqrt(mean_square(latent, rank) + 1e-6);
    for (int o = 0; o < rank; o++)
      assert_float_equal(w.state->kv_latents[(size_t)r * (size_t)w.state->plan.kv_a + (size_t)o],
                         latent[o] / size * (double)w.loaded->layers[LAYER].kv_a_norm[o], 1e-5);
  }
  free(rows);
  close_world(&w);
}

static float *need_aligned(size_t n) {
  float *memory = aligned_alloc(64, (n * sizeof *memory + 63) / 64 * 64);
  assert_non_null(memory);
  memset(memory, 0, n * sizeof *memory);
  return memory;
}

/* Heads are multiplied 32 at a time; real models have 64 and more, the miniatures 2. Here their matrices
 * alternate. Sums of 16 products in fp32 err by some 1e-7 of the largest. */
TEST(more_heads_than_a_block_have_their_own_latents) {
  enum { N_HEADS = 70, N_ROWS = 2, LAYER = 1 };
  World w;
  uint64_t seed = 7;
  open_world("test/data/miniatures/axk1-bf16", KV_F32, &w);
  ModelConfig *config = &w.model->config;
  ModelLayer *layer = &w.model->layers[LAYER];
  BackendState *state = w.state;
  const ModelConfig own_config = *config;
  const BackendState own_state = *state;
  Linear *own_heads = layer->value_heads, heads[N_HEADS];
  const size_t head_dim = (size_t)config->head_dim, rope = (size_t)config->latent.rope_dim,
               rank = (size_t)config->latent.kv_rank, width = (size_t)config->latent.value_dim;
  for (int h = 0; h < N_HEADS; h++) heads[h] = own_heads[h % config->n_heads];
  config->n_heads = N_HEADS;
  layer->value_heads = heads;
  state->plan.heads = N_HEADS * (int)head_dim;
  state->plan.queries = N_HEADS * (int)width;
  state->q = need_aligned(N_ROWS * N_HEADS * head_dim);
  state->queries = need_aligned(N_ROWS * N_HEADS * width);
  state->head_inputs = need_aligned((size_t)N_HEADS * MOST_POSITIONS * (size_t)state->plan.head_in);
  for (size_t i = 0; i < N_ROWS * N_HEADS * head_dim; i++) state->q[i] = next_float(&seed);
  cpu_latent_values(state, N_ROWS, LAYER);
  for (size_t at = 0; at < N_ROWS * N_HEADS; at++) {
    const Linear *head = &heads[at % N_HEADS];
    const uint16_t *numbers = head->weight;
    assert_true((size_t)head->n_in == rank && (size_t)head->n_out == width);
    for (size_t o = 0; o < width; o++) {
      double sum = 0;
      for (size_t i = 0; i < rank; i++)
        sum += (double)bf16_to_float(numbers[o * rank + i]) * (double)state->q[at * head_dim + rope + i];
      assert_float_equal(state->queries[at * width + o], sum, 1e-5);
    }
  }
  free(state->q);
  free(state->queries);
  free(state->head_inputs);
  *config = own_config;
  *state = own_state;
  layer->value_heads = own_heads;
  close_world(&w);
}

/* Rows that see fewer positions than all have a NaN among their logits if a score is none, and others none:
 * with blocks of 4 and a budget of 8 those from the twelfth row on. */
TEST(scores_that_are_no_numbers_show) {
  World w;
  Error err = {{0}};
  int32_t ids[MOST_POSITIONS];
  float none[MAX_HEAD_DIM];
  open_world("test/data/miniatures/qwen4-exp-bf16", KV_F32, &w);
  const IndexerConfig *indexer = &w.model->config.indexer;
  const int n_all = indexer->budget + indexer->block - 1, vocab = w.model->config.vocab_size;
  float *logits = need((size_t)vocab, sizeof *logits);
  for (int i = 0; i < MAX_HEAD_DIM; i++) none[i] = NAN;
  for (int i = 0; i < MOST_POSITIONS; i++) ids[i] = i * 7 % vocab;
  w.loaded->layers[w.model->config.n_layers - 1].index_q_norm = none;
  for (int n = n_all - 1; n <= n_all + 2; n++) {
    int n_nans = 0;
    const TokenRange range = {.n_tokens = n, .ids = ids, .n_logit_rows = 1};
    assert_int_equal(step_once(&cpu_backend, w.state, &w.model->config, range, &err), STATUS_OK);
    assert_int_equal(cpu_backend.read_logits(w.state, 0, logits, &err), STATUS_OK);
    for (int i = 0; i < vocab; i++) n_nans += isnan(logits[i]);
    assert_int_equal(n_nans > 0, n > n_all);
  }
  free(logits);
  close_world(&w);
}

static double number_at(KvType type, const void *numbers, size_t at) {
  if (type == KV_F32) return (double)((const float *)numbers)[at];
  if (type == KV_Q8) return ((const int8_t *)numbers)[at];
  return (double)f16_to_float(((const uint16_t *)numbers)[at]);
}

/* Number d of the key at a place, or of the value (kernels.h, KvHead). */
static double cached_number(const KvHead *kv, bool value, size_t place, size_t d) {
  const size_t block = place / KEY_BLOCK, in_block = place % KEY_BLOCK, dim = (size_t)kv->head_dim,
               n_scales = (size_t)kv_key_scales(kv->type, kv->head_dim),
               scale = (block * n_scales + d / KEY_SCALE_DIMS) * KEY_BLOCK + in_block;
  if (value)
    return number_at(kv->type, kv->v, place * (size_t)kv->v_width + d) *
           (kv->type == KV_Q8 ? (double)f16_to_float(kv->v_scales[place]) : 1);
  return number_at(kv->type, kv->k, block * dim * KEY_BLOCK + d * KEY_BLOCK + in_block) *
         (kv->type == KV_Q8 ? (double)f16_to_float(kv->k_scales[scale]) : 1);
}

/* Keys and values of chosen positions are copied as they are, whatever they are stored in. */
TEST(chosen_positions_are_copied_whole) {
  static const KvType types[] = {KV_F32, KV_F16, KV_Q8};
  for (int t = 0; t < 3; t++) {
    World w;
    Error err = {{0}};
    int32_t ids[MOST_POSITIONS];
    open_world("test/data/miniatures/qwen4-exp-bf16", types[t], &w);
    const int layer = w.model->config.n_layers - 1, row = MOST_POSITIONS - 1;
    for (int i = 0; i < MOST_POSITIONS; i++) ids[i] = i * 7 % w.model->config.vocab_size;
    const TokenRange range = {.n_tokens = MOST_POSITIONS, .ids = ids, .n_logit_rows = 1};
    assert_int_equal(step_once(&cpu_backend, w.state, &w.model->config, range, &err), STATUS_OK);
    cpu_select(w.state, MOST_POSITIONS, layer);
    const int n = w.state->n_selected[row], *positions = w.state->selected + row * w.state->plan.selected;
    const KvHead from = state_kv_head(w.state, 0, layer, 0),
                 to = cpu_gather(w.state, &from, row, w.state->gathered);
    assert_true(n > 0 && n < MOST_POSITIONS && positions[n - 1] > n - 1); /* some are left out */
    const uint8_t *end = types[t] == KV_Q8 ? (const uint8_t *)(to.v_scales + n)
                                           : (const uint8_t *)to.v +
                                                 (size_t)n * (size_t)to.v_width * kv_number_bytes(types[t]);
    assert_true(end <= w.state->gathered + cpu_gathered_bytes(&w.state->plan, types[t], from.head_dim));
    for (int i = 0; i < n; i++)
      for (int d = 0; d < from.head_dim; d++)
        for (int value = 0; value < 2; value++)
          assert_true(cached_number(&to, value, (size_t)i, (size_t)d) ==
                      cached_number(&from, value, (size_t)positions[i], (size_t)d));
    close_world(&w);
  }
}

/* The first of blocks with the same score is chosen: a budget of 8 takes, from five blocks of 4 positions,
 * the one whose key is not zero and the first of the others. */
TEST(the_first_of_equal_blocks_is_chosen) {
  enum { BEST = 3 };
  World w;
  Error err = {{0}};
  int32_t ids[MOST_POSITIONS];
  int n_chosen = 0;
  open_world("test/data/miniatures/qwen4-exp-bf16", KV_F32, &w);
  const ModelConfig *config = &w.model->config;
  const int layer = config->n_layers - 1, row = MOST_POSITIONS - 1, block = config->indexer.block;
  assert_true(block == 4 && config->indexer.budget == 8 && MOST_POSITIONS == 5 * block);
  for (int i = 0; i < MOST_POSITIONS; i++) ids[i] = i * 7 % config->vocab_size;
  const TokenRange range = {.n_tokens = MOST_POSITIONS, .ids = ids, .n_logit_rows = 1};
  assert_int_equal(step_once(&cpu_backend, w.state, config, range, &err), STATUS_OK);
  const KvHead head = state_kv_head(w.state, 0, layer, config_layer(config, layer).n_kv_heads);
  float *keys = (float *)(uintptr_t)head.k;
  /* One of both signs has a positive product with a query; negative ones count as nothing. */
  for (int sign = -1; sign <= 1; sign += 2) {
    for (int b = 0; b < 5; b++)
      for (int d = 0; d < head.head_dim; d++) {
        const int place = b * block + block - 1;
        keys[place / KEY_BLOCK * head.head_dim * KEY_BLOCK + d * KEY_BLOCK + place % KEY_BLOCK] =
            b == BEST ? (float)sign : 0;
      }
    cpu_select(w.state, MOST_POSITIONS, layer);
    if (w.state->block_scores[BEST] == 0) continue;
    const int *positions = w.state->selected + row * w.state->plan.selected;
    n_chosen++;
    assert_int_equal(w.state->n_selected[row], 2 * block);
    for (int i = 0; i < block; i++)
      assert_true(positions[i] == i && positions[block + i] == BEST * block + i);
  }
  assert_true(n_chosen > 0);
  close_world(&w);
}
