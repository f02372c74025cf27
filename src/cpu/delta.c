/* delta.c - layers with the gated delta rule, and their recurrent states (backend.h, norm_delta_rule).
 *
 * Called by: backend.c, session.c through cpu_backend.   Calls: linear.c, the kernels.
 * Always true: each number of a state is computed by one thread, token by token, so that chunks and threads
 *              change no bit. The state of a layer:
 *                [conv - 1][channels]                 inputs of the convolution, the oldest first
 *                [n_value_heads][key_dim][value_dim]  rows padded with zeros to ALIGN_FLOATS */
#include <math.h>
#include <string.h>

#include "cpu/cpu.h"

enum {
  BLOCK_CHANNELS = 64, /* channels of a task of the convolution */
  BLOCK_COLUMNS = 64,  /* columns of a head's state of a task of the recurrence */
};

/* --- the model */

/* Room for n floats at place[*next]; NULL if place is NULL. */
static float *take_floats(size_t n, float *place, size_t *next) {
  float *out = place ? place + *next : NULL;
  *next += n;
  return out;
}

CpuDelta cpu_take_delta(const DeltaConfig *config, const DeltaLayer *from, float *place, size_t *next) {
  const size_t channels = (size_t)delta_channels(config), taps = (size_t)config->conv;
  const size_t stride = (size_t)cpu_padded((int64_t)channels), keys = (size_t)config->key_dim;
  CpuDelta delta = {.qkv = cpu_take_linear(&from->qkv, place, next),
                    .z = cpu_take_linear(&from->z, place, next),
                    .b = cpu_take_linear(&from->b, place, next),
                    .a = cpu_take_linear(&from->a, place, next),
                    .dt_bias = cpu_take_vector(&from->dt_bias, 0, place, next),
                    .norm = cpu_take_vector(&from->norm, 0, place, next)};
  float *rate = take_floats((size_t)config->n_value_heads, place, next);
  float *transposed = take_floats(taps * stride, place, next);
  float *q_scales = take_floats(keys, place, next), *k_scales = take_floats(keys, place, next);
  delta.rate = rate, delta.taps = transposed, delta.q_scales = q_scales, delta.k_scales = k_scales;
  if (!place) return delta;
  floats_read(from->a_log.data, from->a_log.dtype, 0, (size_t)config->n_value_heads, rate);
  for (int head = 0; head < config->n_value_heads; head++) rate[head] = (float)-exp((double)rate[head]);
  for (size_t i = 0; i < keys; i++) {
    q_scales[i] = (float)(1.0 / config->key_dim);
    k_scales[i] = (float)(1 / sqrt(config->key_dim));
  }
  memset(transposed, 0, taps * stride * sizeof *transposed);
  for (size_t channel = 0; channel < channels; channel++) {
    float own[MAX_DELTA_CONV];
    floats_read(from->conv.data, from->conv.dtype, channel * taps, taps, own);
    for (size_t t = 0; t < taps; t++) transposed[t * stride + channel] = own[t];
  }
  return delta;
}

/* --- states */

static size_t tail_numbers(const DeltaConfig *config) {
  return (size_t)(config->conv - 1) * (size_t)cpu_padded(delta_channels(config));
}

static size_t head_numbers(const DeltaConfig *config) {
  return (size_t)config->key_dim * (size_t)cpu_padded(config->value_dim);
}

size_t cpu_delta_numbers(const DeltaConfig *config) {
  if (!config->n_key_heads) return 0;
  return tail_numbers(config) + (size_t)config->n_value_heads * head_numbers(config);
}

size_t cpu_recurrent_bytes(const ModelConfig *config) {
  const size_t n_layers = (size_t)config_count_layers(config, LAYER_DELTA, config->n_layers);
  return n_layers * cpu_delta_numbers(&config->delta) * sizeof(float);
}

/* The states of all layers: those of a slot, or with slot -1 the current ones. */
static float *states_of(const BackendState *state, int slot) {
  return state->recurrent + (size_t)(slot + 1) * (state->plan.recurrent_bytes / sizeof(float));
}

Status cpu_state_save(BackendState *state, int slot, Error *err) {
  (void)err;
  memcpy(states_of(state, slot), states_of(state, -1), state->plan.recurrent_bytes);
  return STATUS_OK;
}

Status cpu_state_restore(BackendState *state, int slot, Error *err) {
  (void)err;
  memcpy(states_of(state, -1), states_of(state, slot), state->plan.recurrent_bytes);
  return STATUS_OK;
}

/* --- the operation */

typedef struct {
  BackendState *state;
  const DeltaConfig *config;
  const CpuDelta *weights;
  float *tail, *heads; /* the layer's state */
  int n_rows;
} DeltaWork;

static float *row_of(const DeltaWork *work, int row) {
  return work->state->channels + (size_t)row * (size_t)work->state->plan.channels;
}

/* Convolves channels [first, first + n) of all rows in place, the last row first, since a row needs those
 * before it as they were. */
static void convolve_channels(const DeltaWork *work, int first, int n) {
  const int taps = work->config->conv, n_tail = taps - 1;
  const size_t width = (size_t)work->state->plan.channels, bytes = (size_t)n * sizeof(float);
  float tail[MAX_DELTA_CONV - 1][BLOCK_CHANNELS];
  for (int i = 0; i < n_tail; i++) {
    const int row = work->n_rows - n_tail + i;
    const float *from = row >= 0 ? row_of(work, row) : work->tail + (size_t)(row + n_tail) * width;
    memcpy(tail[i], from + first, bytes);
  }
  for (int r = work->n_rows - 1; r >= 0; r--) {
    const float *x[MAX_DELTA_CONV];
    for (int t = 0; t < taps; t++) {
      const int row = r - n_tail + t;
      x[t] = (row >= 0 ? row_of(work, row) : work->tail + (size_t)(row + n_tail) * width) + first;
    }
    work->state->loaded->kernels->convolve(x, taps, work->weights->taps + first, width, n,
                                           row_of(work, r) + first);
  }
  for (int i = 0; i < n_tail; i++) memcpy(work->tail + (size_t)i * width + first, tail[i], bytes);
}

/* Normalises q and k of one key head in one row, and makes the decays and betas of its value heads. */
static void prepare_head(const DeltaWork *work, int row, int key_head) {
  const DeltaConfig *config = work->config;
  const Kernels *kernels = work->state->loaded->kernels;
  const double eps = 1e-6 / config->key_dim;
  float *q = row_of(work, row) + (size_t)key_head * (size_t)config->key_dim;
  float *k = q + (size_t)config->n_key_heads * (size_t)config->key_dim;
  kernels->rms_norm(q, work->weights->q_scales, config->key_dim, eps, q);
  kernels->rms_norm(k, work->weights->k_scales, config->key_dim, eps, k);
  const int group = config->n_value_heads / config->n_key_heads;
  const size_t at = (size_t)row * (size_t)work->state->plan.delta_heads;
  float *decays = work->state->decays + at, *betas = work->state->betas + at;
  for (int head = key_head * group; head < (key_head + 1) * group; head++) {
    const double step = (double)decays[head] + (double)work->weights->dt_bias[head];
    const double softplus = step > 20 ? step : log1p(exp(step));
    decays[head] = (float)exp((double)work->weights->rate[head] * softplus);
    betas[head] = (float)(1 / (1 + exp(-(double)betas[head])));
  }
}

/* Columns [first, first + n) of one value head over all rows, whose v become outputs. */
static void run_columns(const DeltaWork *work, int head, int first, int n) {
  const DeltaConfig *config = work->config;
  const int key_head = head / (config->n_value_heads / config->n_key_heads), columns = cpu_padded(n);
  const size_t keys = (size_t)config->key_dim, all_keys = (size_t)config->n_key_heads * keys;
  float *cells = work->heads + (size_t)head * head_numbers(config) + first;
  float v[BLOCK_COLUMNS] = {0}, out[BLOCK_COLUMNS];
  for (int r = 0; r < work->n_rows; r++) {
    float *row = row_of(work, r);
    float *values = row + 2 * all_keys + (size_t)head * (size_t)config->value_dim + first;
    const size_t at = (size_t)r * (size_t)work->state->plan.delta_heads + (size_t)head;
    memcpy(v, values, (size_t)n * sizeof *v);
    const DeltaToken token = {.q = row + (size_t)key_head * keys,
                              .k = row + all_keys + (size_t)key_head * keys,
                              .v = v,
                              .decay = work->state->decays[at],
                              .beta = work->state->betas[at]};
    work->state->loaded->kernels->delta_rule(&token, config->key_dim, columns, cells,
                                             (size_t)cpu_padded(config->value_dim), out);
    memcpy(values, out, (size_t)n * sizeof *out);
  }
}

/* z = silu(z) * rmsnorm(output) * norm of one value head in one row; z is in state->q. */
static void gate_head(const DeltaWork *work, int row, int head) {
  const DeltaConfig *config = work->config;
  const Kernels *kernels = work->state->loaded->kernels;
  const size_t at = (size_t)head * (size_t)config->value_dim;
  float *out = row_of(work, row) + 2 * (size_t)config->n_key_heads * (size_t)config->key_dim + at;
  float *z = work->state->q + (size_t)row * (size_t)work->state->plan.heads + at;
  kernels->rms_norm(out, work->weights->norm, config->value_dim, work->state->loaded->model->config.norm_eps,
                    out);
  kernels->activate[ACTIVATION_SILU](z, out, config->value_dim);
}

static void run_rule(const DeltaWork *work) {
  const DeltaConfig *config = work->config;
  const int n_rows = work->n_rows, width = work->state->plan.channels;
  const int n_blocks = (config->value_dim - 1) / BLOCK_COLUMNS + 1;
#pragma omp parallel num_threads(work->state->loaded->n_threads)
  {
#pragma omp for
    for (int first = 0; first < width; first += BLOCK_CHANNELS)
      convolve_channels(work, first, width - first < BLOCK_CHANNELS ? width - first : BLOCK_CHANNELS);
#pragma omp for
    for (int task = 0; task < n_rows * config->n_key_heads; task++)
      prepare_head(work, task / config->n_key_heads, task % config->n_key_heads);
#pragma omp for
    for (int task = 0; task < config->n_value_heads * n_blocks; task++) {
      const int first = task % n_blocks * BLOCK_COLUMNS, left = config->value_dim - first;
      run_columns(work, task / n_blocks, first, left < BLOCK_COLUMNS ? left : BLOCK_COLUMNS);
    }
#pragma omp for
    for (int task = 0; task < n_rows * config->n_value_heads; task++)
      gate_head(work, task / config->n_value_heads, task % config->n_value_heads);
  }
}

void cpu_delta_rule(BackendState *state, TokenRange range, int layer, const float *from) {
  const BackendModel *loaded = state->loaded;
  const CpuLayer *weights = &loaded->layers[layer];
  const StatePlan *plan = &state->plan;
  const DeltaConfig *config = &loaded->model->config.delta;
  float *own = states_of(state, -1) + (size_t)weights->same_kind * plan->delta_numbers;
  if (range.pos == 0) memset(own, 0, plan->delta_numbers * sizeof *own);
  const Matmul matmuls[] = {
      {.w = weights->delta.qkv, .y = state->channels, .y_stride = (size_t)plan->channels},
      {.w = weights->delta.z, .y = state->q, .y_stride = (size_t)plan->heads},
      {.w = weights->delta.b, .y = state->betas, .y_stride = (size_t)plan->delta_heads},
      {.w = weights->delta.a, .y = state->decays, .y_stride = (size_t)plan->delta_heads},
  };
  run_matmuls(loaded, &state->scratch, from, (size_t)plan->hidden, range.n_tokens, matmuls, 4);
  run_rule(&(DeltaWork){.state = state,
                        .config = config,
                        .weights = &weights->delta,
                        .tail = own,
                        .heads = own + tail_numbers(config),
                        .n_rows = range.n_tokens});
}
