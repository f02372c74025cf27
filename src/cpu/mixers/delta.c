/* delta.c - layers with the gated delta rule or Mamba-2, and their recurrent states (operations.def,
 * norm_delta_rule).
 *
 * Called by: backend.c, states.c.
 * Always true: each number of a state is computed by one thread, token by token, so that chunks and threads
 *              change no bit. With StateOptions.states other than STATES_F32 numbers are rounded after each
 *              token, and stay fp32 in memory. The state of a layer:
 *                [conv - 1][channels]                 inputs of the convolution, the oldest first
 *                [n_value_heads][key_dim][value_dim]  rows padded with zeros to ALIGN_FLOATS */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "cpu/cpu.h"

enum {
  BLOCK_COLUMNS = 64, /* columns of a head's state that one task computes */
};

/* --- the state */

static size_t tail_numbers(const DeltaConfig *config) {
  return (size_t)(config->conv - 1) * (size_t)cpu_padded(delta_channels(config));
}

static size_t head_numbers(const DeltaConfig *config) {
  return (size_t)config->key_dim * (size_t)cpu_padded(config->value_dim);
}

size_t cpu_delta_numbers(const DeltaConfig *config) {
  return tail_numbers(config) + (size_t)config->n_value_heads * head_numbers(config);
}

/* --- the operation */

typedef struct {
  BackendState *state;
  const DeltaConfig *config;
  const CpuLayer *weights;
  int layer;
  TokenRange range;
  float *z; /* [n_rows][z_stride] z, then o's input */
  size_t z_stride;
} DeltaWork;

static float *row_of(const DeltaWork *work, int row) {
  return work->state->channels + (size_t)row * (size_t)work->state->plan.channels;
}

static float *decays_of(const DeltaWork *work, int row) {
  return work->state->decays + (size_t)row * (size_t)work->state->plan.delta_decays;
}

/* Where a head's q, k and v begin in a row of state->channels. */
static float *q_of(const DeltaWork *work, int row, int key_head) {
  return row_of(work, row) + delta_offsets(work->config).q + (size_t)key_head * (size_t)work->config->key_dim;
}
static float *k_of(const DeltaWork *work, int row, int key_head) {
  return row_of(work, row) + delta_offsets(work->config).k + (size_t)key_head * (size_t)work->config->key_dim;
}
static float *v_of(const DeltaWork *work, int row, int head) {
  return row_of(work, row) + delta_offsets(work->config).v + (size_t)head * (size_t)work->config->value_dim;
}

/* For RULE_CHANNELS: replaces a value head's outputs of `a`, one for each number of a key, by decays. */
static void decay_channels(const DeltaWork *work, int row, int head) {
  const DeltaConfig *config = work->config;
  const size_t first = (size_t)head * (size_t)config->key_dim;
  const double rate = (double)work->weights->delta_a_log[head];
  const float *dt_bias = work->weights->delta_dt_bias + first;
  float *decays = decays_of(work, row) + first;
  for (int i = 0; i < config->key_dim; i++) {
    const double step = (double)decays[i] + (double)dt_bias[i];
    const double log_decay =
        config->log_bound != 0 ? config->log_bound / (1 + exp(rate * step)) : rate * softplus(step);
    decays[i] = (float)exp(log_decay);
  }
}

/* Normalises q and k of one key head in one row (not for Mamba-2), then computes the decays and betas of the
 * key head's value heads. For Mamba-2 beta is the step size. */
static void prepare_head(const DeltaWork *work, int row, int key_head) {
  const DeltaConfig *config = work->config;
  const Kernels *kernels = work->state->loaded->kernels;
  const bool mamba = config->rule == RULE_MAMBA2;
  const double eps = 1e-6 / config->key_dim, most = config->doubles_beta ? 2 : 1; /* beta's limit */
  float *q = q_of(work, row, key_head), *k = k_of(work, row, key_head);
  if (!mamba) {
    kernels->rms_norm(q, work->state->loaded->q_scales, config->key_dim, eps, q);
    kernels->rms_norm(k, work->state->loaded->k_scales, config->key_dim, eps, k);
  }
  const int group = config->n_value_heads / config->n_key_heads;
  float *decays = decays_of(work, row);
  float *betas = work->state->betas + (size_t)row * (size_t)work->state->plan.delta_heads;
  for (int head = key_head * group; head < (key_head + 1) * group; head++) {
    if (config->rule == RULE_CHANNELS) {
      decay_channels(work, row, head);
      betas[head] = (float)(most / (1 + exp(-(double)betas[head])));
      continue;
    }
    const double a = (double)decays[head] * (mamba ? config->a_scale : 1);
    const double step = a + (double)work->weights->delta_dt_bias[head];
    double size = softplus(step);
    if (mamba) size = fmin(fmax(size, config->least_step), config->largest_step);
    decays[head] = (float)exp((double)work->weights->delta_a_log[head] * size);
    betas[head] = mamba ? (float)size : (float)(most / (1 + exp(-(double)betas[head])));
  }
}

/* Number `index` of a layer's states as a GPU stores it after the token at `pos`. */
static float stored(StatesType type, float x, uint32_t pos, uint32_t index) {
  const uint32_t bits = states_noisy(type, x, states_noise_at(pos, index));
  return type == STATES_F16 ? f16_to_float(float_toward_f16(bits_float(bits) / STATES_F16_SCALE))
                            : bits_float(bits & 0xffff0000);
}

/* Rounds columns [first, first + n) of a head's state after the token at `pos`. */
static void round_columns(const DeltaWork *work, uint32_t pos, int head, int first, int n, float *cells) {
  const DeltaConfig *config = work->config;
  const StatesType type = work->state->options.states;
  for (int key = 0; key < config->key_dim; key++, cells += cpu_padded(config->value_dim))
    for (int i = 0; i < n; i++) {
      const int index = (head * config->value_dim + first + i) * config->key_dim + key;
      cells[i] = stored(type, cells[i], pos, (uint32_t)index);
    }
}

/* Runs columns [first, first + n) of one value head over a sequence's rows, which begin at the step's
 * row row_of_part. Outputs replace v. */
static void run_columns(const DeltaWork *work, SequenceRows part, int row_of_part, int head, int first,
                        int n) {
  const DeltaConfig *config = work->config;
  const bool by_channel = config->rule == RULE_CHANNELS;
  const int key_head = head / (config->n_value_heads / config->n_key_heads), columns = cpu_padded(n);
  const float skip = work->weights->delta_skip ? work->weights->delta_skip[head] : 0;
  float *heads = cpu_layer_state(work->state, work->layer, part.sequence) + tail_numbers(config);
  float *cells = heads + (size_t)head * head_numbers(config) + first;
  float v[BLOCK_COLUMNS] = {0}, out[BLOCK_COLUMNS];
  for (int r = row_of_part; r < row_of_part + part.n_tokens; r++) {
    float *values = v_of(work, r, head) + first;
    const size_t at = (size_t)r * (size_t)work->state->plan.delta_heads + (size_t)head;
    memcpy(v, values, (size_t)n * sizeof *v);
    const DeltaToken token = {.q = q_of(work, r, key_head),
                              .k = k_of(work, r, key_head),
                              .v = v,
                              .decay = by_channel ? 1 : decays_of(work, r)[head],
                              .decays = by_channel ? decays_of(work, r) + head * config->key_dim : NULL,
                              .beta = work->state->betas[at],
                              .only_adds = config->rule == RULE_MAMBA2};
    work->state->loaded->kernels->delta_rule(&token, config->key_dim, columns, cells,
                                             (size_t)cpu_padded(config->value_dim), out);
    if (work->state->options.states != STATES_F32)
      round_columns(work, (uint32_t)(part.pos + r - row_of_part), head, first, n, cells);
    for (int i = 0; i < n; i++) values[i] = work->weights->delta_skip ? out[i] + skip * v[i] : out[i];
  }
}

/* z = silu(z) (or sigmoid(z)) * rmsnorm(output) * norm, for one value head in one row. */
static void gate_head(const DeltaWork *work, int row, int head) {
  const DeltaConfig *config = work->config;
  const Kernels *kernels = work->state->loaded->kernels;
  const size_t at = (size_t)head * (size_t)config->value_dim;
  float *out = v_of(work, row, head);
  float *z = work->z + (size_t)row * work->z_stride + at;
  const double eps = config->norm_eps != 0 ? config->norm_eps : work->state->loaded->model->config.norm_eps;
  kernels->rms_norm(out, work->weights->delta_norm, config->value_dim, eps, out);
  if (!config->gate_is_sigmoid) {
    kernels->activate(ACTIVATION_SILU, NULL, z, out, config->value_dim);
    return;
  }
  kernels->sigmoid(z, config->value_dim);
  for (int i = 0; i < config->value_dim; i++) z[i] *= out[i];
}

static void scale_row(float *row, int n, double scale) {
  for (int i = 0; scale != 1 && i < n; i++) row[i] *= (float)scale;
}

/* z = out_scale * rmsnorm(silu(z_scale * z) * output) * norm, for the heads of one Mamba-2 group in one row.
 * With no_norm, rmsnorm and norm are left out. */
static void gate_group(const DeltaWork *work, int row, int group) {
  const DeltaConfig *config = work->config;
  const Kernels *kernels = work->state->loaded->kernels;
  const int width = delta_norm_width(config), head = group * (config->n_value_heads / config->n_key_heads);
  const size_t at = (size_t)group * (size_t)width;
  float *z = work->z + (size_t)row * work->z_stride + at;
  scale_row(z, width, config->z_scale);
  kernels->activate(ACTIVATION_SILU, NULL, z, v_of(work, row, head), width);
  if (!config->no_norm)
    kernels->rms_norm(z, work->weights->delta_norm + at, width, work->state->loaded->model->config.norm_eps,
                      z);
  scale_row(z, width, config->out_scale);
}

/* Convolves the block of columns that begins at `first`, for all sequences of the step. */
static void convolve_columns(const DeltaWork *work, int first) {
  const int width = work->state->plan.channels;
  for (int i = 0, row = 0; i < cpu_n_parts(&work->range); i++) {
    const SequenceRows part = cpu_part(&work->range, i);
    const Convolution convolution = {.rows = row_of(work, row),
                                     .stride = (size_t)width,
                                     .tail = cpu_layer_state(work->state, work->layer, part.sequence),
                                     .taps = work->weights->delta_conv,
                                     .bias = work->weights->delta_conv_bias,
                                     .n_rows = part.n_tokens,
                                     .n_taps = work->config->conv,
                                     .width = width,
                                     .out = row_of(work, row),
                                     .out_stride = (size_t)width};
    cpu_convolve(work->state->loaded->kernels, &convolution, first);
    row += part.n_tokens;
  }
}

static void run_rule(const DeltaWork *work) {
  const DeltaConfig *config = work->config;
  const int n_rows = work->range.n_tokens, width = work->state->plan.channels;
  const int n_blocks = (config->value_dim - 1) / BLOCK_COLUMNS + 1;
#pragma omp parallel num_threads(work->state->loaded->n_threads)
  {
#pragma omp for
    for (int first = 0; first < width; first += CONVOLUTION_BLOCK) convolve_columns(work, first);
#pragma omp for
    for (int task = 0; task < n_rows * config->n_key_heads; task++)
      prepare_head(work, task / config->n_key_heads, task % config->n_key_heads);
#pragma omp for
    for (int task = 0; task < config->n_value_heads * n_blocks; task++) {
      const int first = task % n_blocks * BLOCK_COLUMNS, left = config->value_dim - first;
      for (int i = 0, row = 0; i < cpu_n_parts(&work->range); row += cpu_part(&work->range, i++).n_tokens)
        run_columns(work, cpu_part(&work->range, i), row, task / n_blocks, first,
                    left < BLOCK_COLUMNS ? left : BLOCK_COLUMNS);
    }
    const bool mamba = config->rule == RULE_MAMBA2;
    const int n_gates = mamba ? config->n_key_heads : config->n_value_heads;
#pragma omp for
    for (int task = 0; task < n_rows * n_gates; task++)
      (mamba ? gate_group : gate_head)(work, task / n_gates, task % n_gates);
  }
}

/* Multiplies the outputs of z_in and a_in by the second matrices, z and a. */
static void run_second_gates(const DeltaWork *work) {
  const BackendState *state = work->state;
  const StatePlan *plan = &state->plan;
  const int rank = work->config->gate_rank;
  const Matmul gates[] = {
      {.w = work->weights->delta_z, .y = work->z, .y_stride = work->z_stride},
      {.w = work->weights->delta_a, .y = state->decays, .y_stride = (size_t)plan->delta_decays},
  };
  float *const inputs[] = {state->z_inputs, state->a_inputs};
  for (int i = 0; i < 2; i++) {
    for (int r = 0; r < work->range.n_tokens; r++) { /* a matmul's input is padded with zeros */
      float *row = inputs[i] + (size_t)r * (size_t)plan->gate_rank;
      memset(row + rank, 0, (size_t)(plan->gate_rank - rank) * sizeof *row);
    }
    run_matmuls(state, inputs[i], plan->gate_rank, work->range.n_tokens, &gates[i], 1);
  }
}

/* Computes z, a, the convolution's input (by one matrix or by three) and, except for Mamba-2, b. */
static void run_inputs(const DeltaWork *work, const float *from) {
  const BackendState *state = work->state;
  const CpuLayer *weights = work->weights;
  const StatePlan *plan = &state->plan;
  const DeltaOffsets offsets = delta_offsets(work->config);
  const bool two = work->config->gate_rank > 0;
  const Matmul all[MAX_MATMULS] = {
      /* a layer may lack some matrices */
      {.w = weights->delta_qkv, .y = state->channels, .y_stride = (size_t)plan->channels},
      {.w = weights->delta_k, .y = state->channels + offsets.k, .y_stride = (size_t)plan->channels},
      {.w = weights->delta_v, .y = state->channels + offsets.v, .y_stride = (size_t)plan->channels},
      {.w = two ? weights->delta_z_in : weights->delta_z,
       .y = two ? state->z_inputs : work->z,
       .y_stride = two ? (size_t)plan->gate_rank : work->z_stride},
      {.w = two ? weights->delta_a_in : weights->delta_a,
       .y = two ? state->a_inputs : state->decays,
       .y_stride = (size_t)(two ? plan->gate_rank : plan->delta_decays)},
      {.w = weights->delta_b, .y = state->betas, .y_stride = (size_t)plan->delta_heads},
  };
  Matmul inputs[MAX_MATMULS];
  int n = 0;
  for (int i = 0; i < MAX_MATMULS; i++)
    if (all[i].w.linear) inputs[n++] = all[i];
  run_matmuls(state, from, plan->hidden, work->range.n_tokens, inputs, n);
  if (two) run_second_gates(work);
}

void cpu_delta_rule(BackendState *state, TokenRange range, int layer, const float *from) {
  const BackendModel *loaded = state->loaded;
  const CpuLayer *weights = &loaded->layers[layer];
  const ModelConfig *config = &loaded->model->config;
  const bool beside = config_layer(config, layer).delta_beside;
  cpu_begin_states(state, layer, range);
  const DeltaWork work = {.state = state,
                          .config = &config->delta,
                          .weights = weights,
                          .layer = layer,
                          .range = range,
                          .z = beside ? state->beside : state->q,
                          .z_stride = (size_t)(beside ? state->plan.beside : state->plan.heads)};
  run_inputs(&work, from);
  run_rule(&work);
}
