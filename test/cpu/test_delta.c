/* test_delta.c - the gated delta rule and Mamba-2 of the CPU backend against the same in doubles, in chunks
 * and by several threads, and its states when they are kept and taken back.
 *
 * Tolerance: states forget, and an output is a sum of at most 128 products that err by some units of 2^-24;
 * normalised outputs of about 1 are held to 1e-4. States of 16 bits: the doubles are rounded with the same
 * noise. It seldom falls between them and the CPU's numbers, so that all squares of errors are together at
 * most an eighth of what rounding makes; with other noise they would be twice that. */
#include <math.h>

#include "base/half.h"

#include "cpu_test.h"

#include "cpu/cpu.h"
#include "test/tests.h"

enum { HIDDEN = 24, TOKENS = 90, VOCAB = 50 };

/* Sizes at which neither heads nor channels fill a vector, and several value heads share a key head. */
#define SIZES(keys, values, k, v, taps)                                                                      \
  .n_key_heads = keys, .n_value_heads = values, .key_dim = k, .value_dim = v, .conv = taps
#define MAMBA_SCALED(z, a, out)                                                                              \
  .rule = RULE_MAMBA2, .conv_bias = true, .least_step = 0.05, .largest_step = 0.2, .z_scale = z,             \
  .a_scale = a, .out_scale = out
#define MAMBA MAMBA_SCALED(1, 1, 1)
static const DeltaConfig sizes[] = {{SIZES(1, 1, 1, 1, 1)},
                                    {SIZES(2, 6, 8, 12, 4)},
                                    {SIZES(3, 3, 20, 7, 2)},
                                    {SIZES(1, 4, 16, 70, 3)},
                                    {SIZES(2, 2, 128, 128, 4)},
                                    {SIZES(1, 2, 5, 130, 16)},
                                    {SIZES(1, 1, 1, 1, 1), MAMBA},
                                    {SIZES(2, 6, 12, 20, 3), MAMBA},
                                    {SIZES(2, 4, 12, 20, 4), .doubles_beta = true, .norm_eps = 1e-3},
                                    {SIZES(2, 2, 20, 20, 3), .rule = RULE_CHANNELS, .gate_is_sigmoid = true},
                                    {SIZES(2, 4, 12, 70, 2), .rule = RULE_CHANNELS, .gate_rank = 5},
                                    {SIZES(1, 1, 6, 6, 4), .rule = RULE_CHANNELS, .log_bound = -2},
                                    {SIZES(1, 2, 8, 8, 4), .rule = RULE_CHANNELS, .doubles_beta = true},
                                    {SIZES(1, 4, 128, 64, 4), MAMBA},
                                    {SIZES(2, 4, 12, 20, 3), MAMBA_SCALED(0.5, 1.5, 0.75)},
                                    {SIZES(2, 4, 12, 20, 3), MAMBA_SCALED(1.5, 0.5, 0.25), .no_norm = true}};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

typedef struct {
  Model model;
  LayerConfig layer_configs[2];
  ModelLayer layers[2];
  TestLinear linears[6]; /* qkv, z, b, a, z_in, a_in of both layers */
  TestLinear others[4];
  float *vectors;
  size_t n_vectors;
  int32_t ids[TOKENS];
} World;

static Vector vector_of(World *w, size_t n, float middle, float spread, uint64_t *seed) {
  float *at = w->vectors + w->n_vectors;
  w->n_vectors += n;
  for (size_t i = 0; i < n; i++) at[i] = middle + spread * next_float(seed);
  return (Vector){at, DTYPE_F32, (int)n};
}

static World *world_of(const DeltaConfig *delta) {
  World *w = need(1, sizeof *w);
  uint64_t seed = 5;
  const int channels = delta_channels(delta), values = delta->n_value_heads * delta->value_dim;
  w->vectors = need((size_t)channels * (size_t)(delta->conv + 1) + 4096, sizeof *w->vectors);
  const bool mamba = delta->rule == RULE_MAMBA2;
  const int rank = delta->gate_rank, first = rank ? rank : HIDDEN;
  const int n_out[] = {channels, values, delta->n_value_heads, delta_decays(delta), rank, rank};
  const int n_in[] = {HIDDEN, first, HIDDEN, first, HIDDEN, HIDDEN};
  for (int i = 0; i < (rank ? 6 : 4); i++)
    w->linears[i] = test_dense(n_in[i], n_out[i], DTYPE_BF16, 30 + (uint64_t)i);
  w->others[0] = test_dense(values, HIDDEN, DTYPE_BF16, 40);
  w->others[1] = test_dense(HIDDEN, 8, DTYPE_BF16, 41);
  w->others[2] = test_dense(8, HIDDEN, DTYPE_BF16, 42);
  w->others[3] = test_dense(HIDDEN, VOCAB, DTYPE_BF16, 43);
  ModelLayer layer = {.attn_norm = vector_of(w, HIDDEN, 1, 0.5f, &seed),
                      .mlp_norm = vector_of(w, HIDDEN, 1, 0.5f, &seed),
                      .o = w->others[0].linear,
                      .gate = w->others[1].linear,
                      .up = w->others[1].linear,
                      .down = w->others[2].linear};
  layer.delta_qkv = w->linears[0].linear;
  layer.delta_z = w->linears[1].linear;
  layer.delta_b = mamba ? (Linear){0} : w->linears[2].linear;
  layer.delta_a = w->linears[3].linear;
  layer.delta_z_in = w->linears[4].linear;
  layer.delta_a_in = w->linears[5].linear;
  layer.delta_conv = vector_of(w, (size_t)channels * (size_t)delta->conv, 0, 0.7f, &seed);
  layer.delta_a_log = vector_of(w, (size_t)delta->n_value_heads, 0, 1, &seed);
  layer.delta_dt_bias = vector_of(w, (size_t)delta_decays(delta), -2, 1, &seed);
  layer.delta_norm = vector_of(w, (size_t)(mamba ? values : delta->value_dim), 1, 0.5f, &seed);
  if (mamba) {
    layer.delta_conv_bias = vector_of(w, (size_t)channels, 0, 0.5f, &seed);
    layer.delta_skip = vector_of(w, (size_t)delta->n_value_heads, 1, 0.5f, &seed);
  }
  for (int i = 0; i < 2; i++) {
    w->layer_configs[i] = (LayerConfig){.kind = LAYER_DELTA};
    w->layers[i] = layer;
  }
  w->model = (Model){.config = {.hidden = HIDDEN,
                                .intermediate = 8,
                                .n_layers = 2,
                                .n_heads = 1,
                                .n_kv_heads = 1,
                                .head_dim = 2,
                                .vocab_size = VOCAB,
                                .max_position = TOKENS,
                                .norm_eps = 1e-6,
                                .delta = *delta,
                                .embedding_scale = 1,
                                .attention_scale = 1,
                                .residual_scale = 1,
                                .gate_scale = 1,
                                .mlp_scale = 1,
                                .logit_divisor = 1,
                                .layers = w->layer_configs,
                                .rope = {.rotary_dim = 2, .theta = 100}},
                     .layers = w->layers,
                     .final_norm = layer.attn_norm,
                     .head = w->others[3].linear,
                     .embedding = {w->others[3].linear.weight, DTYPE_BF16, VOCAB, HIDDEN}};
  for (int i = 0; i < TOKENS; i++) w->ids[i] = (int32_t)(next_random(&seed) % VOCAB);
  return w;
}

static void world_free(World *w) {
  for (int i = 0; i < (w->model.config.delta.gate_rank ? 6 : 4); i++) test_linear_free(&w->linears[i]);
  for (int i = 0; i < 4; i++) test_linear_free(&w->others[i]);
  free(w->vectors);
  free(w);
}

/* --- the reference */

static double number(const Vector *vector, int i) {
  return (double)((const float *)vector->data)[i];
}

static double silu(double x) {
  return x / (1 + exp(-x));
}

static void product(const TestLinear *linear, const double *x, double *y) {
  for (int o = 0; o < linear->linear.n_out; o++) {
    y[o] = 0;
    for (int i = 0; i < linear->linear.n_in; i++) y[o] += linear->weights[o * linear->linear.n_in + i] * x[i];
  }
}

static void unit(double *x, int n, double scale) {
  double squares = 1e-6;
  for (int i = 0; i < n; i++) squares += x[i] * x[i];
  for (int i = 0; i < n; i++) x[i] *= scale / sqrt(squares);
}

/* The decay of a number of a value head's key (RULE_CHANNELS), or of the head, for its a and dt_bias. */
static double exact_decay(const DeltaConfig *c, double a_log, double a, double dt_bias) {
  if (c->log_bound != 0) return exp(c->log_bound / (1 + exp(-exp(a_log) * (a + dt_bias))));
  double step = log1p(exp((c->rule == RULE_MAMBA2 ? c->a_scale : 1) * a + dt_bias));
  if (c->rule == RULE_MAMBA2) step = fmin(fmax(step, c->least_step), c->largest_step);
  return exp(-exp(a_log) * step);
}

/* One token of one value head: S [key_dim][value_dim], out [value_dim]; decays [key_dim]. */
static void exact_token(const DeltaConfig *c, const double *q, const double *k, const double *v,
                        const double *decays, double beta, double *s, double *out) {
  for (int i = 0; i < c->key_dim * c->value_dim; i++) s[i] *= decays[i / c->value_dim];
  for (int j = 0; j < c->value_dim; j++) {
    double held = 0;
    for (int i = 0; i < c->key_dim && c->rule != RULE_MAMBA2; i++) held += s[i * c->value_dim + j] * k[i];
    out[j] = 0;
    for (int i = 0; i < c->key_dim; i++) {
      s[i * c->value_dim + j] += k[i] * (v[j] - held) * beta;
      out[j] += s[i * c->value_dim + j] * q[i];
    }
  }
}

/* Number `index` of a layer's states after the token at `pos`, as `type` keeps it. */
static double rounded(StatesType type, double x, int pos, int index) {
  const uint32_t bits = states_noisy(type, (float)x, states_noise_at((uint32_t)pos, (uint32_t)index));
  const double noisy = (double)bits_float(bits) / (type == STATES_F16 ? (double)STATES_F16_SCALE : 1),
               most = type == STATES_F16 ? 65504 : 0x1.fep127;
  const int digits = type == STATES_F16 ? 11 : 8, least = type == STATES_F16 ? -24 : -133;
  int exponent;
  if (!isfinite(noisy)) return noisy;
  frexp(noisy, &exponent);
  const int last = exponent - digits < least ? least : exponent - digits;
  return fmin(fmax(ldexp(trunc(ldexp(noisy, -last)), last), -most), most);
}

/* Norm and gate of the outputs of a token; Mamba-2's gate comes first, and the norm only unless no_norm. */
static void exact_norm(const DeltaConfig *c, const Vector *norm, const double *z, double *row) {
  const bool mamba = c->rule == RULE_MAMBA2;
  const int width = delta_norm_width(c), values = c->n_value_heads * c->value_dim;
  const double eps = c->norm_eps != 0 ? c->norm_eps : 1e-6;
  for (int first = 0; first < values; first += width) {
    double mean = 0;
    for (int j = first; j < first + width; j++) {
      if (mamba) row[j] *= silu(c->z_scale * z[j]);
      mean += row[j] * row[j] / width;
    }
    for (int j = first; j < first + width; j++) {
      const double factor = mamba ? c->out_scale : c->gate_is_sigmoid ? 1 / (1 + exp(-z[j])) : silu(z[j]);
      row[j] *= c->no_norm ? factor : number(norm, mamba ? j : j - first) * factor / sqrt(mean + eps);
    }
  }
}

/* out[TOKENS][values]: what the first layer hands to o. */
static void exact_layer(const World *w, StatesType type, double *out) {
  const DeltaConfig *c = &w->model.config.delta;
  const ModelLayer *delta = &w->layers[0];
  const int channels = delta_channels(c), values = c->n_value_heads * c->value_dim;
  const bool mamba = c->rule == RULE_MAMBA2;
  const DeltaOffsets at = delta_offsets(c);
  double *qkv = need((size_t)(TOKENS * channels), sizeof *qkv),
         *mixed = need((size_t)channels, sizeof *mixed);
  double *z = need((size_t)values, sizeof *z);
  double *state = need((size_t)(c->n_value_heads * c->key_dim * c->value_dim), sizeof *state);
  double b[16], a[256], x[HIDDEN], inner[HIDDEN], decays[128];
  for (int t = 0; t < TOKENS; t++) {
    double squares = 0;
    for (int i = 0; i < HIDDEN; i++) {
      x[i] = w->others[3].weights[w->ids[t] * HIDDEN + i];
      squares += x[i] * x[i];
    }
    for (int i = 0; i < HIDDEN; i++)
      x[i] *= number(&w->layers[0].attn_norm, i) / sqrt(squares / HIDDEN + 1e-6);
    product(&w->linears[0], x, qkv + t * channels);
    product(&w->linears[2], x, b);
    for (int i = 0; i < 2; i++) { /* z, a */
      if (c->gate_rank) product(&w->linears[4 + i], x, inner);
      product(&w->linears[1 + 2 * i], c->gate_rank ? inner : x, i ? a : z);
    }
    for (int i = 0; i < channels; i++) {
      double sum = mamba ? number(&delta->delta_conv_bias, i) : 0;
      for (int tap = 0; tap < c->conv; tap++) {
        const int from = t - (c->conv - 1) + tap;
        if (from >= 0) sum += number(&delta->delta_conv, i * c->conv + tap) * qkv[from * channels + i];
      }
      mixed[i] = silu(sum);
    }
    for (int head = 0; head < c->n_key_heads && !mamba; head++) {
      unit(mixed + at.q + head * c->key_dim, c->key_dim, 1 / sqrt(c->key_dim));
      unit(mixed + at.k + head * c->key_dim, c->key_dim, 1);
    }
    for (int head = 0; head < c->n_value_heads; head++) {
      const int key_head = head / (c->n_value_heads / c->n_key_heads);
      for (int i = 0; i < c->key_dim; i++) {
        const int own = c->rule == RULE_CHANNELS ? head * c->key_dim + i : head;
        decays[i] =
            exact_decay(c, number(&delta->delta_a_log, head), a[own], number(&delta->delta_dt_bias, own));
      }
      double step = mamba ? log1p(exp(c->a_scale * a[head] + number(&delta->delta_dt_bias, head))) : 0;
      if (mamba) step = fmin(fmax(step, c->least_step), c->largest_step);
      double *row = out + t * values + head * c->value_dim;
      const double *v = mixed + at.v + head * c->value_dim;
      exact_token(c, mixed + at.q + key_head * c->key_dim, mixed + at.k + key_head * c->key_dim, v, decays,
                  mamba ? step : (c->doubles_beta ? 2 : 1) / (1 + exp(-b[head])),
                  state + head * c->key_dim * c->value_dim, row);
      for (int i = 0; i < c->key_dim * c->value_dim && type != STATES_F32; i++) {
        double *cell = &state[(head * c->key_dim + i % c->key_dim) * c->value_dim + i / c->key_dim];
        *cell = rounded(type, *cell, t, head * c->key_dim * c->value_dim + i);
      }
      for (int j = 0; j < c->value_dim && mamba; j++) row[j] += number(&delta->delta_skip, head) * v[j];
    }
    exact_norm(c, &delta->delta_norm, z, out + t * values);
  }
  free(qkv), free(mixed), free(z), free(state);
}

/* --- the backend */

/* The first layer of TOKENS in chunks, out[TOKENS][values]. */
static void our_layer(World *w, StatesType type, int chunk, int n_threads, float *out) {
  const DeltaConfig *c = &w->model.config.delta;
  const size_t values = (size_t)(c->n_value_heads * c->value_dim);
  Error err;
  BackendModel *loaded;
  BackendState *state;
  if (cpu_backend.load(&w->model, &(BackendOptions){.n_threads = n_threads}, &loaded, &err)) fail_msg("load");
  const StateOptions options = {
      .n_ctx = TOKENS, .max_chunk = chunk, .max_logit_rows = 1, .kv = KV_F32, .states = type};
  if (cpu_backend.open(loaded, &options, &state, &err)) fail_msg("open");
  for (int pos = 0; pos < TOKENS; pos += chunk) {
    const int n = TOKENS - pos < chunk ? TOKENS - pos : chunk;
    const TokenRange range = {.pos = pos, .n_tokens = n, .ids = w->ids + pos};
    assert_int_equal(cpu_backend.run[OP_EMBED](state, range, -1, &err), STATUS_OK);
    assert_int_equal(cpu_backend.run[OP_DELTA](state, range, 0, &err), STATUS_OK);
    for (int r = 0; r < n; r++)
      memcpy(out + (size_t)(pos + r) * values, state->q + (size_t)r * (size_t)state->plan.heads,
             values * sizeof *out);
  }
  cpu_backend.close(state);
  cpu_backend.unload(loaded);
}

TEST(the_rule_is_that_of_its_formula) {
  for (int i = 0; i < N_SIZES; i++) {
    World *w = world_of(&sizes[i]);
    const size_t n = TOKENS * (size_t)(sizes[i].n_value_heads * sizes[i].value_dim);
    float *whole = need(n, sizeof *whole), *other = need(n, sizeof *other);
    double *want = need(n, sizeof *want);
    exact_layer(w, STATES_F32, want);
    our_layer(w, STATES_F32, TOKENS, 1, whole);
    for (size_t at = 0; at < n; at++)
      if (!(fabs((double)whole[at] - want[at]) <= 1e-4))
        fail_msg("size %d, number %zu: %g, expected %g", i, at, (double)whole[at], want[at]);
    const int chunks[][2] = {{1, 1}, {2, 1}, {7, 3}, {64, 2}, {TOKENS, 3}};
    for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
      our_layer(w, STATES_F32, chunks[c][0], chunks[c][1], other);
      if (memcmp(other, whole, n * sizeof *whole) != 0) fail_msg("size %d, chunks of %d", i, chunks[c][0]);
    }
    free(whole), free(other), free(want);
    world_free(w);
  }
}

TEST(states_of_16_bits_are_those_of_the_formula) {
  for (int i = 0; i < 2 * N_SIZES; i++) {
    const StatesType type = i % 2 ? STATES_F16 : STATES_BF16;
    World *w = world_of(&sizes[i / 2]);
    const size_t n = TOKENS * (size_t)(sizes[i / 2].n_value_heads * sizes[i / 2].value_dim);
    float *ours = need(n, sizeof *ours), *other = need(n, sizeof *other);
    double *want = need(n, sizeof *want), *unrounded = need(n, sizeof *unrounded), off = 0, rounding = 0;
    exact_layer(w, type, want);
    exact_layer(w, STATES_F32, unrounded);
    our_layer(w, type, TOKENS, 1, ours);
    for (size_t at = 0; at < n; at++) {
      off += pow((double)ours[at] - want[at], 2);
      rounding += pow(unrounded[at] - want[at], 2);
    }
    if (rounding == 0 || off > rounding / 8) fail_msg("size %d: %g of %g", i / 2, off, rounding);
    our_layer(w, type, 7, 3, other);
    assert_memory_equal(other, ours, n * sizeof *ours);
    free(ours), free(other), free(want), free(unrounded);
    world_free(w);
  }
}

TEST(rounding_of_states_has_no_direction_and_keeps_what_needs_none) {
  for (int i_type = 0; i_type < 4; i_type++) {
    const StatesType type = i_type % 2 ? STATES_F16 : STATES_BF16;
    /* 0.3 of a unit of the last place; 2^-20 is less than fp16's least normal number */
    const double whole = i_type < 2 ? 1 : 0x1p-20, unit = type == STATES_BF16 ? whole / 128
                                                          : i_type < 2        ? 0x1p-10
                                                                              : 0x1p-24;
    const double x = -(whole + 0.3 * unit);
    enum { N = 100000 };
    double sum = 0, neighbours = 0, before = 0;
    for (int i = 0; i < N; i++) { /* positions of one place, then places at one position */
      const double up = rounded(type, x, i < N / 2 ? i : 7, i < N / 2 ? 9 : i) < -whole;
      sum += up, neighbours += up * before, before = up;
    }
    /* 0.3 and 0.09 of them; five standard deviations */
    assert_true(fabs(sum / N - 0.3) < 5 * sqrt(0.21 / N) && fabs(neighbours / N - 0.09) < 5 * sqrt(0.2 / N));
    for (int i = 0; i < N; i++) {
      const double kept = type == STATES_F16 ? (double)f16_to_float((uint16_t)(i % 0x7c00))
                                             : (double)bf16_to_float((uint16_t)(i % 0x7f80));
      assert_true(rounded(type, kept, i, i) == kept);
    }
    assert_true(!isfinite(rounded(type, NAN, 3, 4)) && !isfinite(rounded(type, -INFINITY, 3, 4)));
  }
  assert_true(rounded(STATES_F16, 1e6, 0, 0) == 65504 && rounded(STATES_F16, -1e6, 0, 0) == -65504);
}

/* Logits after the tokens [pos, pos + n). */
static void run(World *w, BackendState *state, int pos, int n, float *logits) {
  const TokenRange range = {
      .pos = pos, .n_tokens = n, .ids = w->ids + pos, .n_logit_rows = 1, .first_logit = n - 1};
  Error err;
  assert_int_equal(cpu_backend.run[OP_EMBED](state, range, -1, &err), STATUS_OK);
  for (int layer = 0; layer < 2; layer++) {
    assert_int_equal(cpu_backend.run[OP_DELTA](state, range, layer, &err), STATUS_OK);
    assert_int_equal(cpu_backend.run[OP_OUT_PROJ](state, range, layer, &err), STATUS_OK);
    assert_int_equal(cpu_backend.run[OP_GATE_UP](state, range, layer, &err), STATUS_OK);
    assert_int_equal(cpu_backend.run[OP_DOWN](state, range, layer, &err), STATUS_OK);
  }
  assert_int_equal(cpu_backend.run[OP_LOGITS](state, range, 2, &err), STATUS_OK);
  assert_int_equal(cpu_backend.read_logits(state, 0, logits, &err), STATUS_OK);
}

TEST(kept_states_are_taken_back) {
  for (int i = 0; i < N_SIZES; i++) {
    World *w = world_of(&sizes[i]);
    BackendModel *loaded;
    BackendState *state;
    Error err;
    float at_30[VOCAB], at_50[VOCAB], again[VOCAB];
    if (cpu_backend.load(&w->model, &(BackendOptions){.n_threads = 2}, &loaded, &err)) fail_msg("load");
    const StateOptions options = {
        .n_ctx = TOKENS, .max_chunk = TOKENS, .max_logit_rows = 1, .kv = KV_F32, .n_slots = 2};
    if (cpu_backend.open(loaded, &options, &state, &err)) fail_msg("open");
    run(w, state, 0, 20, again);
    assert_int_equal(cpu_backend.state_save(state, 1, &err), STATUS_OK);
    run(w, state, 20, 10, at_30);
    assert_int_equal(cpu_backend.state_save(state, 0, &err), STATUS_OK);
    run(w, state, 30, 20, at_50);
    assert_memory_not_equal(at_30, at_50, sizeof at_30);
    for (int turn = 0; turn < 2; turn++) {
      assert_int_equal(cpu_backend.state_restore(state, 1, &err), STATUS_OK);
      run(w, state, 20, 10, again);
      assert_memory_equal(again, at_30, sizeof again);
      run(w, state, 0, 7, again); /* another text: position 0 begins with an empty state */
      through_the_host(state, &w->model.config, 0);
      assert_int_equal(cpu_backend.state_restore(state, 0, &err), STATUS_OK);
      run(w, state, 30, 20, again);
      assert_memory_equal(again, at_50, sizeof again);
    }
    run(w, state, 0, 50, again);
    assert_memory_equal(again, at_50, sizeof again);
    cpu_backend.close(state);
    cpu_backend.unload(loaded);
    world_free(w);
  }
}

TEST(kept_states_are_counted) {
  for (int i = 0; i < N_SIZES; i++) {
    World *w = world_of(&sizes[i]);
    StateOptions options = {.n_ctx = 10, .max_chunk = 5, .max_logit_rows = 1, .kv = KV_F16};
    const size_t none = cpu_backend.state_bytes(&w->model.config, &options);
    const size_t one = all_recurrent_bytes(&w->model.config);
    assert_true(one >= 2 * config_state_numbers(&w->model.config, 0) * sizeof(float));
    options.n_slots = 3;
    const size_t three = cpu_backend.state_bytes(&w->model.config, &options);
    assert_true(three >= none + 3 * one && three < none + 3 * one + 128); /* whole lines */
    world_free(w);
  }
}
