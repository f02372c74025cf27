/* test_backend.c - tiny models go through the operations, against a transformer in doubles. */
#include <math.h>

#include "cpu_test.h"
#include "model/layers.h"
#include "test/engine/step_once.h"
#include "test/tests.h"

enum {
  N_LAYERS = 2,
  N_TOKENS = 300,
  VOCAB = 61,
  HIDDEN = 48,
  INTER = 40,
  HEADS = 6,
  KV_HEADS = 2,
  HEAD_DIM = 18
};
enum { LINEARS = 8 * N_LAYERS + 1 };

typedef struct {
  bool awq, biases, tied;
  int window; /* of the second layer */
  RopeKind rope;
  KvType kv;
  /* As in ModelConfig; a scale of 0 is the usual one. */
  QkNorm qk_norm;
  bool qk_norm_after_rope, attn_sinks;
  bool embedding_norm;
  double post_norm_eps;
  AttnGate attn_gate;
  NormPlacement norms;
  NormKind norm;
  Activation activation;
  double query_scale_beta; /* with a step of 37 positions */
  double embedding_scale, attention_scale, residual_scale, gate_scale, mlp_scale, logit_divisor,
      attention_cap, logit_cap;
  int rotary_dim;
  bool neighbours;
  LayerRope second_rope; /* of the second layer */
  bool long_rope;
} Shape;

typedef struct {
  Model model;
  ModelLayer layers[N_LAYERS];
  LayerConfig layer_configs[N_LAYERS];
  bool long_rope;
  TestLinear linears[LINEARS];
  int n_linears;
  float vectors[8192];
  size_t n_vectors;
  uint64_t seed;
  int32_t ids[N_TOKENS];
} TestModel;

static Vector vector_of(TestModel *t, int n, float middle, float spread) {
  float *at = t->vectors + t->n_vectors;
  t->n_vectors += (size_t)n;
  assert_true(t->n_vectors <= sizeof t->vectors / sizeof *t->vectors);
  for (int i = 0; i < n; i++) at[i] = middle + spread * next_float(&t->seed);
  return (Vector){.data = at, .dtype = DTYPE_F32, .n = n};
}

static Linear linear_of(TestModel *t, const Shape *shape, int n_in, int n_out) {
  TestLinear *linear = &t->linears[t->n_linears++];
  *linear = shape->awq && n_out % 8 == 0 ? test_awq(n_in, n_out, n_in / 2, t->seed)
                                         : test_dense(n_in, n_out, DTYPE_BF16, t->seed);
  next_random(&t->seed);
  if (shape->biases) linear->linear.bias = vector_of(t, n_out, 0, 0.5f);
  return linear->linear;
}

/* The mean of a norm's weights: with norms_plus_one() the factor is one more than the weight. */
static Vector norm_of(TestModel *t, int n) {
  return vector_of(t, n, norms_plus_one(&t->model.config) ? 0 : 1, 0.5f);
}

static double scale_or(double scale, double usual) {
  return scale != 0 ? scale : usual;
}

static TestModel *model_of(const Shape *shape) {
  TestModel *t = need(1, sizeof *t);
  t->seed = 11;
  const int rotary_dim = shape->rotary_dim ? shape->rotary_dim : HEAD_DIM;
  t->model.config = (ModelConfig){.hidden = HIDDEN,
                                  .intermediate = INTER,
                                  .n_layers = N_LAYERS,
                                  .n_heads = HEADS,
                                  .n_kv_heads = KV_HEADS,
                                  .head_dim = HEAD_DIM,
                                  .vocab_size = VOCAB,
                                  .max_position = 4096,
                                  .norm_eps = 1e-5,
                                  .tied_embeddings = shape->tied,
                                  .qk_norm = shape->qk_norm,
                                  .qk_norm_after_rope = shape->qk_norm_after_rope,
                                  .embedding_norm = shape->embedding_norm,
                                  .post_norm_eps = shape->post_norm_eps,
                                  .attn_sinks = shape->attn_sinks,
                                  .attn_gate = shape->attn_gate,
                                  .layers = t->layer_configs,
                                  .norms = shape->norms,
                                  .norm = shape->norm,
                                  .activation = shape->activation,
                                  .embedding_scale = scale_or(shape->embedding_scale, 1),
                                  .attention_scale = scale_or(shape->attention_scale, 1 / sqrt(HEAD_DIM)),
                                  .query_scale_beta = shape->query_scale_beta,
                                  .query_scale_step = 37,
                                  .residual_scale = scale_or(shape->residual_scale, 1),
                                  .gate_scale = scale_or(shape->gate_scale, 1),
                                  .mlp_scale = scale_or(shape->mlp_scale, 1),
                                  .logit_divisor = scale_or(shape->logit_divisor, 1),
                                  .attention_cap = shape->attention_cap,
                                  .logit_cap = shape->logit_cap,
                                  .local_rope = {.kind = ROPE_PLAIN, .rotary_dim = rotary_dim, .theta = 7},
                                  .rope = {.kind = shape->rope,
                                           .rotary_dim = rotary_dim,
                                           .neighbours = shape->neighbours,
                                           .theta = 100,
                                           .factor = 4,
                                           .original_max_position = 64,
                                           .beta_fast = 32,
                                           .beta_slow = 1,
                                           .truncate = true}};
  t->layer_configs[1] = (LayerConfig){.window = shape->window, .rope = shape->second_rope};
  t->long_rope = shape->long_rope;
  for (int i = 0; i < HEAD_DIM / 2; i++) {
    t->model.config.rope.short_factors[i] = 1 + 0.1f * (float)i;
    t->model.config.rope.long_factors[i] = 2 + 0.5f * (float)i;
  }
  t->model.layers = t->layers;
  for (int i = 0; i < N_LAYERS; i++) {
    ModelLayer *layer = &t->layers[i];
    for (int which = 0; which <= LAYER_LAUREL_NORM; which++) {
      const StoredVector stored = layer_vector_stored(&t->model.config, i, which);
      if (stored.name) layer->vector[which] = norm_of(t, stored.n);
    }
    if (shape->attn_sinks) layer->sinks = vector_of(t, HEADS, 1, 3);
    layer->q = linear_of(t, shape, HIDDEN, HEADS * HEAD_DIM);
    layer->k = linear_of(t, shape, HIDDEN, KV_HEADS * HEAD_DIM);
    layer->v = linear_of(t, shape, HIDDEN, KV_HEADS * HEAD_DIM);
    layer->o = linear_of(t, shape, HEADS * HEAD_DIM, HIDDEN);
    layer->gate = linear_of(t, shape, HIDDEN, INTER);
    layer->up = linear_of(t, shape, HIDDEN, INTER);
    layer->down = linear_of(t, shape, INTER, HIDDEN);
    if (!layer_linear_exists(&t->model.config, i, LAYER_ATTN_GATE)) continue;
    layer->attn_gate =
        linear_of(t, shape, HIDDEN, HEADS * (shape->attn_gate == ATTN_GATE_HEADS ? 1 : HEAD_DIM));
  }
  t->model.final_norm = norm_of(t, HIDDEN);
  t->linears[t->n_linears] = test_dense(HIDDEN, VOCAB, DTYPE_F16, 5);
  t->model.head = t->linears[t->n_linears++].linear;
  t->model.embedding = (Matrix){t->model.head.weight, DTYPE_F16, VOCAB, HIDDEN};
  for (int i = 0; i < N_TOKENS; i++) t->ids[i] = (int32_t)(next_random(&t->seed) % VOCAB);
  return t;
}

static void model_free(TestModel *t) {
  for (int i = 0; i < t->n_linears; i++) test_linear_free(&t->linears[i]);
  free(t);
}

/* --- the transformer, plainly --- */

/* The same transformer says how far fp32 may be off: with a unit of EPSILON every result errs by up to
 * `units` of its `size`, as many as fp32's sums and products of that many numbers can err by at worst; with a
 * unit of 0 it is exact. The errors are random, so that they add up as roundings do. */
typedef struct {
  double unit;
  uint64_t seed;
} Errors;

static double inexact(Errors *errors, double value, double units, double size) {
  return value + errors->unit * units * size * (double)next_float(&errors->seed);
}

/* out = x / sqrt(mean(x^2) + eps) * (more + weights), or * 1 if weights is NULL; out may be x. */
static void exact_norm_of(Errors *errors, const double *x, const float *weights, int n, double more,
                          double eps, double *out) {
  double squares = 0;
  for (int i = 0; i < n; i++) squares += x[i] * x[i];
  double factor = 1 / sqrt(squares / n + eps);
  for (int i = 0; i < n; i++) {
    double value = x[i] * factor * (weights ? more + (double)weights[i] : 1);
    out[i] = inexact(errors, value, 3 + more, fabs(value));
  }
}

/* RMSNorm of weight->n numbers. */
static void exact_norm(Errors *errors, const TestModel *t, const double *x, const Vector *weight,
                       double *out) {
  exact_norm_of(errors, x, weight->data, weight->n, norms_plus_one(&t->model.config), 1e-5, out);
}

/* x itself where there is no such norm. */
static const double *exact_input(Errors *errors, const TestModel *t, const double *x, const Vector *norm,
                                 double *h) {
  if (!norm->data) return x;
  exact_norm(errors, t, x, norm, h);
  return h;
}

/* x = x + residual_scale * y, y normalised before where there is a norm for that. */
static void exact_add(Errors *errors, const TestModel *t, const Vector *post_norm, double *y, double *x) {
  const ModelConfig *config = &t->model.config;
  if (post_norm->data)
    exact_norm_of(errors, y, post_norm->data, post_norm->n, norms_plus_one(config),
                  config->post_norm_eps != 0 ? config->post_norm_eps : 1e-5, y);
  for (int i = 0; i < HIDDEN; i++) {
    double more = t->model.config.residual_scale * y[i];
    x[i] = inexact(errors, x[i] + more, 1, fabs(x[i]) + fabs(more));
  }
}

static double capped(Errors *errors, double value, double cap) {
  if (cap == 0) return value;
  double result = cap * tanh(value / cap);
  return inexact(errors, result, 7, fabs(result));
}

static void exact_product(Errors *errors, const TestModel *t, const Linear *linear, const double *x,
                          double *y) {
  const double *weights = NULL;
  for (int i = 0; i < t->n_linears; i++) {
    const Linear *known = &t->linears[i].linear;
    bool same =
        linear->kind == LINEAR_AWQ ? known->qweight == linear->qweight : known->weight == linear->weight;
    if (same && known->kind == linear->kind) weights = t->linears[i].weights;
  }
  for (int o = 0; o < linear->n_out; o++) {
    y[o] = linear->bias.data ? (double)((const float *)linear->bias.data)[o] : 0;
    double size = fabs(y[o]);
    for (int i = 0; i < linear->n_in; i++) {
      double product = weights[o * linear->n_in + i] * x[i];
      y[o] += product;
      size += fabs(product);
    }
    y[o] = inexact(errors, y[o], linear->n_in + 1, size);
  }
}

/* The angle is a product in fp32 (rope_frequencies), all else in double. */
static void exact_turn(Errors *errors, const TestModel *t, int layer, int position, double *head) {
  const ModelConfig *config = &t->model.config;
  const LayerRope which = config_layer(config, layer).rope;
  const RopeConfig *rope = which == ROPE_LOCAL ? &config->local_rope : &config->rope;
  float frequencies[HEAD_DIM / 2], factor;
  int half = which == ROPE_NONE ? 0 : rope->rotary_dim / 2;
  rope_frequencies(rope, t->long_rope, frequencies, &factor);
  for (int i = 0; i < half; i++) {
    double *first = rope->neighbours ? head + 2 * i : head + i,
           *second = first + (rope->neighbours ? 1 : half);
    double angle = (double)((float)position * frequencies[i]), a = *first, b = *second;
    double size = (fabs(a) + fabs(b)) * (double)factor;
    *first = inexact(errors, (a * cos(angle) - b * sin(angle)) * (double)factor, 5, size);
    *second = inexact(errors, (b * cos(angle) + a * sin(angle)) * (double)factor, 5, size);
  }
}

static void exact_heads(Errors *errors, const TestModel *t, const Vector *norm, int layer, int position,
                        int n, double heads[][HEAD_DIM]) {
  if (t->model.config.qk_norm == QK_NORM_WHOLE) exact_norm(errors, t, heads[0], norm, heads[0]);
  for (int i = 0; i < n; i++) {
    const bool after = t->model.config.qk_norm_after_rope;
    if (after) exact_turn(errors, t, layer, position, heads[i]);
    if (t->model.config.qk_norm == QK_NORM_PLAIN)
      exact_norm_of(errors, heads[i], NULL, HEAD_DIM, 0, 1e-5, heads[i]);
    else if (t->model.config.qk_norm == QK_NORM_HEADS)
      exact_norm(errors, t, heads[i], norm, heads[i]);
    if (!after) exact_turn(errors, t, layer, position, heads[i]);
  }
}

static double held(KvType type, double value) {
  return type == KV_F16 ? (double)f16_to_float(float_to_f16((float)value)) : value;
}

typedef struct {
  double k[N_LAYERS][N_TOKENS][KV_HEADS][HEAD_DIM], v[N_LAYERS][N_TOKENS][KV_HEADS][HEAD_DIM];
} ExactCache;

static void exact_attention(Errors *errors, const TestModel *t, const ExactCache *cache, int layer,
                            int position, double q[HEADS][HEAD_DIM], double out[HEADS][HEAD_DIM]) {
  const ModelConfig *config = &t->model.config;
  const double scale =
      config->attention_scale * (1 + config->query_scale_beta * log(1 + position / 37)); /* whole steps */
  const int window = t->layer_configs[layer].window;
  const int low = window && position >= window ? position - window + 1 : 0;
  for (int head = 0; head < HEADS; head++) {
    double p[N_TOKENS], sizes[HEAD_DIM] = {0}, sum = 0, largest = -INFINITY;
    int kv_head = head / (HEADS / KV_HEADS);
    memset(out[head], 0, sizeof out[head]);
    for (int key = low; key <= position; key++) {
      double size = 0;
      p[key] = 0;
      for (int d = 0; d < HEAD_DIM; d++) {
        double product = q[head][d] * cache->k[layer][key][kv_head][d] * scale;
        p[key] += product;
        size += fabs(product);
      }
      p[key] =
          capped(errors, inexact(errors, p[key], HEAD_DIM + 2 + 3 * (config->query_scale_beta != 0), size),
                 t->model.config.attention_cap);
      largest = fmax(largest, p[key]);
    }
    for (int key = low; key <= position; key++) {
      p[key] = exp(p[key] - largest);
      sum += p[key];
    }
    const float *sinks = t->layers[layer].sinks.data;
    if (sinks) sum += exp((double)sinks[head] - largest);
    for (int key = low; key <= position; key++) {
      for (int d = 0; d < HEAD_DIM; d++) {
        double product = p[key] / sum * cache->v[layer][key][kv_head][d];
        out[head][d] += product;
        sizes[d] += fabs(product);
      }
    }
    for (int d = 0; d < HEAD_DIM; d++)
      out[head][d] = inexact(errors, out[head][d], 2 * (position - low + 1) + 4, sizes[d]);
  }
}

/* Errors of the two activations (test_rows.c derives them), and three of the factors of gate and up. */
static double exact_gated(Errors *errors, const TestModel *t, double gate, double up) {
  double u = sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate);
  double tanh_value = gate / (1 + exp(-2 * u)) * up, silu_value = gate / (1 + exp(-gate)) * up;
  return t->model.config.activation == ACTIVATION_GELU_TANH
             ? inexact(errors, tanh_value, 6 * fabs(2 * u) + 9, fabs(tanh_value))
             : inexact(errors, silu_value, 9, fabs(silu_value));
}

/* The sigmoid errs by 4 units (test_rows.c), the product by one. PRECOND layer has such a gate */
static void exact_gate(Errors *errors, const TestModel *t, const Linear *gate, const double *in,
                       double out[HEADS][HEAD_DIM]) {
  double gates[HEADS * HEAD_DIM];
  exact_product(errors, t, gate, in, gates);
  for (int head = 0; head < HEADS; head++)
    for (int d = 0; d < HEAD_DIM; d++) {
      const double value = gate->n_out == HEADS ? gates[head] : gates[head * HEAD_DIM + d];
      out[head][d] = inexact(errors, out[head][d] / (1 + exp(-value)), 5, fabs(out[head][d]));
    }
}

static void exact_layer(Errors *errors, const TestModel *t, KvType type, ExactCache *cache, int layer,
                        int position, double *x) {
  const ModelLayer *w = &t->layers[layer];
  double h[HIDDEN], q[HEADS][HEAD_DIM], out[HEADS][HEAD_DIM], gate[INTER], up[INTER], y[HIDDEN];
  double(*k)[HEAD_DIM] = cache->k[layer][position], (*v)[HEAD_DIM] = cache->v[layer][position];
  const double *in = exact_input(errors, t, x, &w->attn_norm, h);
  exact_product(errors, t, &w->q, in, q[0]);
  exact_product(errors, t, &w->k, in, k[0]);
  exact_product(errors, t, &w->v, in, v[0]);
  exact_heads(errors, t, &w->q_norm, layer, position, HEADS, q);
  exact_heads(errors, t, &w->k_norm, layer, position, KV_HEADS, k);
  for (int i = 0; i < KV_HEADS; i++) {
    for (int d = 0; d < HEAD_DIM; d++) {
      k[i][d] = held(type, k[i][d]);
      v[i][d] = held(type, v[i][d]);
    }
  }
  exact_attention(errors, t, cache, layer, position, q, out);
  if (w->attn_gate.n_out) exact_gate(errors, t, &w->attn_gate, in, out);
  exact_product(errors, t, &w->o, out[0], y);
  exact_add(errors, t, &w->attn_post_norm, y, x);
  in = exact_input(errors, t, x, &w->mlp_norm, h);
  exact_product(errors, t, &w->gate, in, gate);
  exact_product(errors, t, &w->up, in, up);
  for (int i = 0; i < INTER; i++)
    gate[i] = exact_gated(errors, t, t->model.config.gate_scale * gate[i], t->model.config.mlp_scale * up[i]);
  exact_product(errors, t, &w->down, gate, y);
  exact_add(errors, t, &w->mlp_post_norm, y, x);
}

static void exact_logits(Errors errors, const TestModel *t, KvType type, double *logits) {
  ExactCache *cache = need(1, sizeof *cache);
  const double *embedding = t->linears[t->n_linears - 1].weights;
  for (int position = 0; position < N_TOKENS; position++) {
    double x[HIDDEN], h[HIDDEN];
    for (int i = 0; i < HIDDEN; i++) {
      x[i] = embedding[t->ids[position] * HIDDEN + i] * t->model.config.embedding_scale;
      x[i] = inexact(&errors, x[i], 1, fabs(x[i]));
    }
    if (t->model.config.embedding_norm) exact_norm_of(&errors, x, NULL, HIDDEN, 0, 1e-5, x);
    for (int layer = 0; layer < N_LAYERS; layer++) exact_layer(&errors, t, type, cache, layer, position, x);
    const double more = t->model.config.norm == NORM_PLUS_ONE;
    exact_norm_of(&errors, x, t->model.final_norm.data, HIDDEN, more, 1e-5, h);
    double *row = logits + position * VOCAB;
    exact_product(&errors, t, &t->model.head, h, row);
    for (int i = 0; i < VOCAB; i++) {
      double value = row[i] / t->model.config.logit_divisor;
      row[i] = capped(&errors, inexact(&errors, value, 1, fabs(value)), t->model.config.logit_cap);
    }
  }
  free(cache);
}

/* --- and ours --- */

static void our_logits(TestModel *t, KvType kv, int chunk, int n_threads, float *logits) {
  Error err;
  BackendModel *loaded;
  BackendState *state;
  BackendOptions options = {.n_threads = n_threads};
  StateOptions wanted = {.n_ctx = N_TOKENS, .max_chunk = chunk, .max_logit_rows = chunk, .kv = kv};
  assert_int_equal(cpu_backend.load(&t->model, &options, &loaded, &err), STATUS_OK);
  assert_int_equal(cpu_backend.open(loaded, &wanted, &state, &err), STATUS_OK);
  for (int pos = 0; pos < N_TOKENS; pos += chunk) {
    const int n = N_TOKENS - pos < chunk ? N_TOKENS - pos : chunk;
    TokenRange range = {
        .pos = pos, .n_tokens = n, .ids = t->ids + pos, .n_logit_rows = n, .long_rope = t->long_rope};
    assert_int_equal(step_once(&cpu_backend, state, &t->model.config, range, &err), STATUS_OK);
    for (int r = 0; r < range.n_tokens; r++)
      assert_int_equal(cpu_backend.read_logits(state, r, logits + (pos + r) * VOCAB, &err), STATUS_OK);
  }
  cpu_backend.close(state);
  cpu_backend.unload(loaded);
}

enum { SEQUENCES = 3, TABLE = (N_TOKENS - 1) / PAGE_TOKENS + 1, SHARED = 40 };

static int32_t page_of(int sequence, int entry) {
  return (entry * SEQUENCES + sequence) * 7 % (SEQUENCES * TABLE); /* no two are neighbours */
}

static BackendState *open_sequences(BackendModel *loaded, KvType kv) {
  Error err;
  BackendState *state;
  const StateOptions wanted = {.n_ctx = N_TOKENS,
                               .max_chunk = 96,
                               .max_logit_rows = 96,
                               .kv = kv,
                               .n_sequences = SEQUENCES,
                               .n_pages = SEQUENCES * TABLE};
  assert_int_equal(cpu_backend.open(loaded, &wanted, &state, &err), STATUS_OK);
  for (int sequence = 0; sequence < SEQUENCES; sequence++) {
    for (int entry = 0; entry < TABLE; entry++) {
      const int32_t page = page_of(sequence, entry);
      assert_int_equal(cpu_backend.set_pages(state, sequence, entry, &page, 1, &err), STATUS_OK);
    }
  }
  return state;
}

/* The second sequence begins with SHARED tokens of the first: a whole page and a part of a copied one. */
static void share_beginning(BackendState *state) {
  Error err;
  const int32_t page = page_of(0, 0);
  assert_int_equal(cpu_backend.set_pages(state, 1, 0, &page, 1, &err), STATUS_OK);
  assert_int_equal(cpu_backend.copy_page(state, page_of(0, 1), page_of(1, 1), &err), STATUS_OK);
}

/* Steps with rows of several sequences give each the bits that it has alone. */
static void check_sequences(TestModel *t, KvType kv, const float *want) {
  static const int sizes[SEQUENCES] = {41, 10, 30};
  Error err;
  BackendModel *loaded;
  assert_int_equal(cpu_backend.load(&t->model, &(BackendOptions){.n_threads = 2}, &loaded, &err), STATUS_OK);
  BackendState *state = open_sequences(loaded, kv);
  int done[SEQUENCES] = {0};
  float row[VOCAB];
  while (done[0] < N_TOKENS || done[1] < N_TOKENS || done[2] < N_TOKENS) {
    SequenceRows parts[SEQUENCES];
    int32_t ids[96], rows[96];
    TokenRange range = {.parts = parts, .logit_rows = rows};
    int positions[96], n_rows = 0;
    if (done[0] >= 2 * PAGE_TOKENS && done[1] == 0) share_beginning(state), done[1] = SHARED;
    for (int s = SEQUENCES - 1; s >= 0; s--) {
      const int left = N_TOKENS - done[s], size = done[s] % 5 == 2 ? 1 : sizes[s];
      const int n = s == 1 && done[1] == 0 ? 0 : left < size ? left : size;
      if (n == 0) continue;
      parts[range.n_parts++] =
          (SequenceRows){.sequence = s, .pos = done[s], .n_tokens = n, .long_rope = t->long_rope};
      for (int i = 0; i < n; i++, done[s]++, range.n_tokens++) {
        ids[range.n_tokens] = t->ids[done[s]];
        if (i % 3 != 1) rows[n_rows] = range.n_tokens, positions[n_rows++] = done[s];
      }
    }
    range.ids = ids, range.n_logit_rows = n_rows;
    assert_int_equal(step_once(&cpu_backend, state, &t->model.config, range, &err), STATUS_OK);
    for (int i = 0; i < n_rows; i++) {
      assert_int_equal(cpu_backend.read_logits(state, i, row, &err), STATUS_OK);
      assert_memory_equal(row, want + positions[i] * VOCAB, sizeof row);
    }
  }
  cpu_backend.close(state);
  cpu_backend.unload(loaded);
}

static double farthest(const double *a, const double *b) {
  double worst = 0;
  for (int i = 0; i < N_TOKENS * VOCAB; i++) {
    double off = fabs(a[i] - b[i]);
    if (!(off <= worst)) worst = off;
  }
  return worst;
}

/* Steps of any length and any number of threads give the same bits. Sanitizers look at one of them. */
static const struct {
  int chunk, n_threads;
} steps[] = {
#ifndef __SANITIZE_ADDRESS__
    {1, 1},
    {24, 3},
    {N_TOKENS, 4},
    {1, 5},
#endif
    {7, 2}};

/* The bound: how far the worst roundings of fp32, in random directions, can move a logit, 3e-5 to 3e-4 here,
 * with values of an fp16 cache that then round to the other neighbour. A fault moves logits by 0.1 and
 * more. */
static void check_model(Shape shape) {
  static float logits[N_TOKENS * VOCAB], again[N_TOKENS * VOCAB];
  static double want[N_TOKENS * VOCAB], rough[N_TOKENS * VOCAB], got[N_TOKENS * VOCAB];
  TestModel *t = model_of(&shape);
  exact_logits((Errors){0, 1}, t, shape.kv, want);
  exact_logits((Errors){EPSILON, 1}, t, shape.kv, rough);
  our_logits(t, shape.kv, 64, 2, logits);
  for (int i = 0; i < N_TOKENS * VOCAB; i++) got[i] = (double)logits[i];
  double off = farthest(got, want), bound = farthest(rough, want);
  assert_true(bound < 0.01);
  if (!(off <= bound)) fail_msg("logits are off by %g, more than %g", off, bound);
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    our_logits(t, shape.kv, steps[i].chunk, steps[i].n_threads, again);
    assert_memory_equal(again, logits, sizeof logits);
  }
  check_sequences(t, shape.kv, logits);
  model_free(t);
}

TEST(packed_model) {
  check_model((Shape){.awq = true, .tied = true, .kv = KV_F32});
  check_model((Shape){.awq = true, .tied = true, .kv = KV_F16});
}

TEST(dense_model_with_biases_and_windows) {
  check_model((Shape){.biases = true, .window = 37, .kv = KV_F32});
  check_model((Shape){.biases = true, .window = 260, .kv = KV_F16});
}

TEST(packed_model_with_everything) {
  check_model((Shape){
      .awq = true, .biases = true, .qk_norm = QK_NORM_HEADS, .window = 1, .rope = ROPE_YARN, .kv = KV_F32});
}

/* As Gemma, Granite, OLMo-2, SmolLM3 and Phi-3 combine them. */
TEST(norms_around_caps_and_two_ropes) {
  check_model((Shape){.awq = true,
                      .tied = true,
                      .kv = KV_F32,
                      .window = 37,
                      .norms = NORM_AROUND,
                      .norm = NORM_PLUS_ONE,
                      .qk_norm = QK_NORM_HEADS,
                      .activation = ACTIVATION_GELU_TANH,
                      .embedding_scale = sqrt(HIDDEN),
                      .attention_scale = 0.3,
                      .attention_cap = 2,
                      .logit_cap = 0.5,
                      .second_rope = ROPE_LOCAL});
}

TEST(factors_of_everything) {
  check_model((Shape){.awq = true,
                      .biases = true,
                      .kv = KV_F32,
                      .embedding_scale = 12,
                      .attention_scale = 0.5,
                      .residual_scale = 0.22,
                      .gate_scale = 1.5,
                      .mlp_scale = 0.75,
                      .logit_divisor = 16});
}

TEST(norms_behind_only) {
  check_model((Shape){.kv = KV_F32, .norms = NORM_AFTER, .qk_norm = QK_NORM_WHOLE, .residual_scale = 0.7});
}

TEST(queries_that_grow_with_their_position) {
  check_model((Shape){.awq = true, .kv = KV_F32, .rope = ROPE_YARN, .query_scale_beta = 0.7});
}

TEST(norms_of_q_and_k_after_their_rope) {
  check_model(
      (Shape){.awq = true, .kv = KV_F32, .qk_norm = QK_NORM_HEADS, .qk_norm_after_rope = true, .window = 37});
}

TEST(pairs_of_neighbours) {
  check_model((Shape){.awq = true, .kv = KV_F32, .neighbours = true, .rotary_dim = 10});
  check_model((Shape){.biases = true, .kv = KV_F32, .neighbours = true, .second_rope = ROPE_LOCAL});
}

TEST(sinks_of_attention) {
  check_model((Shape){.awq = true, .kv = KV_F32, .attn_sinks = true, .window = 37, .attention_scale = 0.4});
  check_model((Shape){.kv = KV_F16, .attn_sinks = true, .second_rope = ROPE_NONE});
}

/* As Muse Glimmer combines them. */
TEST(norms_without_weights) {
  check_model((Shape){.awq = true,
                      .kv = KV_F32,
                      .embedding_norm = true,
                      .qk_norm = QK_NORM_PLAIN,
                      .norms = NORM_AROUND,
                      .norm = NORM_PLUS_ONE_INSIDE,
                      .post_norm_eps = 0.1,
                      .attn_gate = ATTN_GATE_NUMBERS});
}

TEST(gates_of_attentions_output) {
  check_model((Shape){.kv = KV_F32, .attn_gate = ATTN_GATE_NUMBERS, .norms = NORM_AROUND});
  check_model((Shape){.awq = true, .biases = true, .kv = KV_F32, .attn_gate = ATTN_GATE_NUMBERS});
  check_model((Shape){.awq = true, .kv = KV_F32, .attn_gate = ATTN_GATE_HEADS, .qk_norm = QK_NORM_HEADS});
}

TEST(a_layer_without_positions_and_a_part_turned) {
  check_model((Shape){.awq = true, .kv = KV_F32, .second_rope = ROPE_NONE, .rotary_dim = 10});
  check_model((Shape){.kv = KV_F32, .rope = ROPE_LONGROPE, .rotary_dim = 14});
  check_model((Shape){.kv = KV_F32, .rope = ROPE_LONGROPE, .rotary_dim = 14, .long_rope = true});
  check_model((Shape){.kv = KV_F32, .rope = ROPE_LONGROPE, .second_rope = ROPE_LOCAL, .long_rope = true});
}

/* --- what a caller can get wrong, and sizes --- */

TEST(refusals) {
  TestModel *t = model_of(&(Shape){.awq = true});
  Error err;
  BackendModel *loaded;
  BackendState *session;
  StateOptions wanted = {.n_ctx = 8, .max_chunk = 4, .max_logit_rows = 2, .kv = KV_F16};
  float logits[VOCAB];
  int32_t bad[] = {0, VOCAB}, id;
  assert_int_equal(cpu_backend.load(&t->model, &(BackendOptions){0}, &loaded, &err), STATUS_OK);
  assert_int_equal(cpu_backend.open(loaded, &wanted, &session, &err), STATUS_OK);
  assert_int_equal(cpu_backend.read_logits(session, 0, logits, &err), STATUS_FAILED);
  assert_int_equal(cpu_backend.sample(session, NULL, 0, &id, &err), STATUS_FAILED);
  const TokenRange badly = {.pos = 3, .n_tokens = 2, .ids = bad};
  assert_int_equal(cpu_backend.run[OP_EMBED](session, badly, -1, &err), STATUS_FAILED);
  assert_string_equal(err.text, "token 61 at position 4 is outside the vocabulary of 61");
  bad[1] = -1;
  assert_int_equal(cpu_backend.run[OP_EMBED](session, badly, -1, &err), STATUS_FAILED);
  const TokenRange many = {.n_tokens = 4, .first_logit = 1, .n_logit_rows = 3};
  assert_int_equal(cpu_backend.run[OP_LOGITS](session, many, 2, &err), STATUS_FAILED);
  cpu_backend.close(session);
  cpu_backend.close(NULL);
  cpu_backend.unload(loaded);
  cpu_backend.unload(NULL);
  model_free(t);
}

/* A token that was sampled and not handed out is what embed takes when it is given none. */
TEST(the_sampled_token_stays) {
  TestModel *t = model_of(&(Shape){.awq = true});
  Error err;
  BackendModel *loaded;
  BackendState *session;
  Sampler *sampler;
  StateOptions wanted = {.n_ctx = 8, .max_chunk = 4, .max_logit_rows = 2, .kv = KV_F16};
  static float stayed[VOCAB], given[VOCAB];
  assert_int_equal(cpu_backend.load(&t->model, &(BackendOptions){0}, &loaded, &err), STATUS_OK);
  assert_int_equal(cpu_backend.open(loaded, &wanted, &session, &err), STATUS_OK);
  assert_int_equal(
      sampler_open(&(SamplerSettings){.top_p = 1, .repetition_penalty = 1}, VOCAB, &sampler, &err),
      STATUS_OK);
  const ModelConfig *config = &t->model.config;
  TokenRange range = {.n_tokens = 3, .ids = t->ids, .n_logit_rows = 2};
  assert_int_equal(step_once(&cpu_backend, session, config, range, &err), STATUS_OK);
  assert_int_equal(cpu_backend.read_logits(session, 1, given, &err), STATUS_OK);
  int32_t best = 0, id;
  for (int32_t i = 1; i < VOCAB; i++) best = given[i] > given[best] ? i : best;
  assert_int_equal(cpu_backend.sample(session, sampler, 1, NULL, &err), STATUS_OK);
  range = (TokenRange){.pos = 3, .n_tokens = 1, .n_logit_rows = 1};
  assert_int_equal(step_once(&cpu_backend, session, config, range, &err), STATUS_OK);
  assert_int_equal(cpu_backend.read_logits(session, 0, stayed, &err), STATUS_OK);
  range.ids = &best;
  assert_int_equal(step_once(&cpu_backend, session, config, range, &err), STATUS_OK);
  assert_int_equal(cpu_backend.read_logits(session, 0, given, &err), STATUS_OK);
  assert_memory_equal(stayed, given, sizeof given);
  assert_int_equal(cpu_backend.sample(session, sampler, 0, &id, &err), STATUS_OK);
  sampler_close(sampler);
  cpu_backend.close(session);
  cpu_backend.unload(loaded);
  model_free(t);
}

/* Cache, logits and activations by hand, to the padding; and a size that memory cannot have is said, not
 * wrapped. */
TEST(sizes_are_known_beforehand) {
  TestModel *t = model_of(&(Shape){.awq = true});
  ModelConfig *config = &t->model.config;
  StateOptions small = {.n_ctx = 1000, .max_chunk = 8, .max_logit_rows = 1, .kv = KV_F32}, large = small;
  large.n_ctx = 1000 + 512;
  size_t grown = cpu_backend.state_bytes(config, &large) - cpu_backend.state_bytes(config, &small);
  size_t cache = N_LAYERS * KV_HEADS * (size_t)4 * ((1520 - 1008) * HEAD_DIM + 512 * 32);
  size_t parts = HEADS * (size_t)2 * (32 * 4 + sizeof(SoftmaxSum));
  assert_in_range(grown, cache + parts - 512, cache + parts + 512);
  large = small;
  large.max_logit_rows = 101;
  grown = cpu_backend.state_bytes(config, &large) - cpu_backend.state_bytes(config, &small);
  assert_in_range(grown, 100 * VOCAB * 4 - 64, 100 * VOCAB * 4 + 64);
  large.n_ctx = large.max_chunk = large.max_logit_rows = INT32_MAX;
  ModelConfig most = *config; /* whose cache alone exceeds any address */
  most.layers = NULL;
  most.n_layers = MAX_LAYERS, most.hidden = MAX_HIDDEN, most.intermediate = MAX_INTERMEDIATE;
  most.n_heads = most.n_kv_heads = MAX_HEADS, most.head_dim = MAX_HEAD_DIM;
  assert_true(cpu_backend.state_bytes(&most, &large) == SIZE_MAX);
  model_free(t);
}
