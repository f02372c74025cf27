/* test_convolution.c - short convolutions of the CPU backend against the same in doubles: in chunks, by
 * several threads, and from kept states.
 *
 * Tolerance: an output is a product of three sums of at most 80 products. Each errs by some units of
 * 2^-24, so outputs of about 1 are held to 1e-4. */
#include "cpu_test.h"

#include "cpu/cpu.h"
#include "test/tests.h"

enum { TOKENS = 40, VOCAB = 30, LAYERS = 2 };

/* hidden, taps, biases: widths at which b, c and u are not aligned, and several blocks of columns. */
static const struct {
  int hidden, taps;
  bool bias;
} sizes[] = {{2, 1, false}, {10, 3, true}, {24, 7, false}, {80, 16, true}, {150, 3, false}};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

typedef struct {
  Model model;
  LayerConfig layer_configs[LAYERS];
  ModelLayer layers[LAYERS];
  TestLinear in, embedding;
  float *vectors;
  int32_t ids[TOKENS];
} World;

static World *world_of(int size) {
  World *w = need(1, sizeof *w);
  uint64_t seed = 7;
  const int hidden = sizes[size].hidden, taps = sizes[size].taps;
  const size_t n_taps = (size_t)(hidden * taps), n = (size_t)hidden;
  w->in = test_dense(hidden, 3 * hidden, DTYPE_BF16, 30);
  w->embedding = test_dense(hidden, VOCAB, DTYPE_BF16, 31);
  w->vectors = need(n_taps + 5 * n, sizeof *w->vectors);
  for (size_t i = 0; i < n_taps + 5 * n; i++) w->vectors[i] = next_float(&seed);
  const float *at = w->vectors + n_taps;
  if (sizes[size].bias) w->in.linear.bias = (Vector){at, DTYPE_F32, 3 * hidden};
  const ModelLayer layer = {
      .attn_norm = {at + 4 * n, DTYPE_F32, hidden},
      .conv_in = w->in.linear,
      .conv_taps = {w->vectors, DTYPE_F32, hidden * taps},
      .conv_bias = {sizes[size].bias ? at + 3 * n : NULL, DTYPE_F32, sizes[size].bias ? hidden : 0}};
  for (int i = 0; i < LAYERS; i++) {
    w->layer_configs[i] = (LayerConfig){.kind = LAYER_CONV};
    w->layers[i] = layer;
  }
  w->model = (Model){.config = {.hidden = hidden,
                                .intermediate = 8,
                                .n_layers = LAYERS,
                                .n_heads = 1,
                                .n_kv_heads = 1,
                                .head_dim = 2,
                                .vocab_size = VOCAB,
                                .max_position = TOKENS,
                                .norm_eps = 1e-6,
                                .conv = {taps, sizes[size].bias},
                                .embedding_scale = 1,
                                .layers = w->layer_configs,
                                .rope = {.rotary_dim = 2, .theta = 100}},
                     .layers = w->layers,
                     .final_norm = layer.attn_norm,
                     .head = w->embedding.linear,
                     .embedding = {w->embedding.linear.weight, DTYPE_BF16, VOCAB, hidden}};
  for (int i = 0; i < TOKENS; i++) w->ids[i] = (int32_t)(next_random(&seed) % VOCAB);
  return w;
}

static void world_free(World *w) {
  test_linear_free(&w->in);
  test_linear_free(&w->embedding);
  free(w->vectors);
  free(w);
}

static double number(const Vector *vector, int i) {
  return vector->data ? (double)((const float *)vector->data)[i] : 0;
}

/* out[TOKENS][hidden]: what a layer hands to o. */
static void exact_layer(const World *w, double *out) {
  const int hidden = w->model.config.hidden, n_taps = w->model.config.conv.taps;
  const ModelLayer *conv = &w->layers[0];
  double *bcu = need((size_t)(TOKENS * 3 * hidden), sizeof *bcu), *x = need((size_t)hidden, sizeof *x);
  for (int t = 0; t < TOKENS; t++) {
    double squares = 0, *row = bcu + t * 3 * hidden;
    for (int i = 0; i < hidden; i++) {
      x[i] = w->embedding.weights[w->ids[t] * hidden + i];
      squares += x[i] * x[i];
    }
    for (int i = 0; i < hidden; i++)
      x[i] *= number(&w->layers[0].attn_norm, i) / sqrt(squares / hidden + 1e-6);
    for (int o = 0; o < 3 * hidden; o++) {
      row[o] = number(&conv->conv_in.bias, o);
      for (int i = 0; i < hidden; i++) row[o] += w->in.weights[o * hidden + i] * x[i];
    }
    for (int i = 0; i < hidden; i++) {
      double sum = number(&conv->conv_bias, i);
      for (int tap = 0; tap < n_taps; tap++) {
        const int from = t - (n_taps - 1) + tap;
        const double *earlier = bcu + from * 3 * hidden;
        if (from >= 0)
          sum += number(&conv->conv_taps, i * n_taps + tap) * earlier[i] * earlier[2 * hidden + i];
      }
      out[t * hidden + i] = row[hidden + i] * sum;
    }
  }
  free(bcu), free(x);
}

/* The tokens [from, to) in chunks in both layers, whose states do not meet: out[to - from][hidden]. */
static void run(const World *w, BackendState *state, int from, int to, int chunk, float *out) {
  const size_t hidden = (size_t)w->model.config.hidden;
  Error err;
  for (int pos = from; pos < to; pos += chunk) {
    const int n = to - pos < chunk ? to - pos : chunk;
    const TokenRange range = {.pos = pos, .n_tokens = n, .ids = w->ids + pos};
    for (int layer = 0; layer < LAYERS; layer++) {
      assert_int_equal(cpu_backend.run[OP_EMBED](state, range, -1, &err), STATUS_OK);
      assert_int_equal(cpu_backend.run[OP_CONV](state, range, layer, &err), STATUS_OK);
      for (int r = 0; r < range.n_tokens; r++) {
        float *row = out + (size_t)(pos - from + r) * hidden;
        const float *made = state->q + (size_t)r * (size_t)state->plan.heads;
        if (layer > 0) assert_memory_equal(row, made, hidden * sizeof *row);
        memcpy(row, made, hidden * sizeof *row);
      }
    }
  }
}

static BackendState *open_state(const World *w, int n_threads, int chunk, BackendModel **loaded) {
  Error err;
  BackendState *state;
  const StateOptions options = {
      .n_ctx = TOKENS, .max_chunk = chunk, .max_logit_rows = 1, .kv = KV_F32, .n_slots = 2};
  if (cpu_backend.load(&w->model, &(BackendOptions){.n_threads = n_threads}, loaded, &err)) fail_msg("load");
  if (cpu_backend.open(*loaded, &options, &state, &err)) fail_msg("open");
  return state;
}

TEST(the_convolution_is_that_of_its_formula) {
  for (int i = 0; i < N_SIZES; i++) {
    World *w = world_of(i);
    const size_t n = TOKENS * (size_t)sizes[i].hidden;
    float *whole = need(n, sizeof *whole), *other = need(n, sizeof *other);
    double *want = need(n, sizeof *want);
    exact_layer(w, want);
    const int chunks[][2] = {{TOKENS, 1}, {1, 1}, {2, 3}, {7, 2}, {TOKENS, 3}};
    for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
      BackendModel *loaded;
      BackendState *state = open_state(w, chunks[c][1], chunks[c][0], &loaded);
      run(w, state, 0, TOKENS, chunks[c][0], c == 0 ? whole : other);
      if (c > 0 && memcmp(other, whole, n * sizeof *whole) != 0)
        fail_msg("size %d, chunks of %d", i, chunks[c][0]);
      cpu_backend.close(state);
      cpu_backend.unload(loaded);
    }
    for (size_t at = 0; at < n; at++)
      if (!(fabs((double)whole[at] - want[at]) <= 1e-4))
        fail_msg("size %d, number %zu: %g, expected %g", i, at, (double)whole[at], want[at]);
    free(whole), free(other), free(want);
    world_free(w);
  }
}

TEST(kept_states_are_taken_back) {
  for (int i = 1; i < N_SIZES; i++) { /* with one tap there is no state */
    World *w = world_of(i);
    const size_t bytes = 10 * (size_t)sizes[i].hidden * sizeof(float); /* of ten tokens */
    float *at_20 = need(1, bytes), *at_30 = need(1, bytes), *first = need(2, bytes), *again = need(2, bytes);
    BackendModel *loaded;
    BackendState *state = open_state(w, 2, TOKENS, &loaded);
    Error err;
    const size_t one = all_recurrent_bytes(&w->model.config);
    assert_true(one >= LAYERS * config_state_numbers(&w->model.config, 0) * sizeof(float));
    run(w, state, 0, 20, TOKENS, first);
    assert_int_equal(cpu_backend.state_save(state, 1, &err), STATUS_OK);
    run(w, state, 20, 30, TOKENS, at_20);
    assert_int_equal(cpu_backend.state_save(state, 0, &err), STATUS_OK);
    run(w, state, 30, TOKENS, TOKENS, at_30);
    assert_int_equal(cpu_backend.state_restore(state, 1, &err), STATUS_OK);
    run(w, state, 20, 30, 3, again);
    assert_memory_equal(again, at_20, bytes);
    run(w, state, 0, 7, 3, again); /* another text: position 0 begins with an empty state */
    assert_memory_equal(again, first, 7 * (size_t)sizes[i].hidden * sizeof *again);
    through_the_host(state, &w->model.config, 0);
    assert_int_equal(cpu_backend.state_restore(state, 0, &err), STATUS_OK);
    run(w, state, 30, TOKENS, TOKENS, again);
    assert_memory_equal(again, at_30, bytes);
    free(at_20), free(at_30), free(first), free(again);
    cpu_backend.close(state);
    cpu_backend.unload(loaded);
    world_free(w);
  }
}
