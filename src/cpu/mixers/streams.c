/* streams.c - residual streams and n-grams of tokens (model/operations.def).
 *
 * Called by: backend.c, states.c; forward.c through cpu_backend.
 * Always true: a stream has a multiple of ALIGN_FLOATS numbers; each number is computed by one thread, row by
 *              row, so that chunks and threads change no bit. The state of a layer with n-grams, the oldest
 *              first:
 *                [(taps - 1) * longest][plan.streams]  inputs of the convolution
 *                [longest - 1]                         token ids minus ngrams.empty: 0 is "no token" */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "model/ngram_rows.h"

/* --- streams */

/* to = rmsnorm(stream) * weight for each stream of a row. */
static void normalise_streams(const BackendState *state, const float *from, const float *weight, float *to) {
  const ModelConfig *config = &state->loaded->model->config;
  const size_t hidden = (size_t)config->hidden;
  for (size_t at = 0; at < hidden * (size_t)config->streams.n; at += hidden)
    state->loaded->kernels->rms_norm(from + at, weight + at, config->hidden, config->norm_eps, to + at);
}

/* x = silu(x / n), between the matrices down and up of a mix (CpuMix). */
static void activate(float *x, int width, int n) {
  for (int i = 0; i < width; i++) {
    const double value = (double)x[i] / n;
    x[i] = (float)(value / (1 + exp(-value)));
  }
}

/* h = the mean over a row's normalised streams of sigmoid(weights) * stream. */
static void mean_of_streams(const BackendState *state, int row) {
  const ModelConfig *config = &state->loaded->model->config;
  const int hidden = config->hidden, n = config->streams.n;
  const float *streams = cpu_row(state->stream_rows, state->plan.streams, row);
  float *weights = cpu_row(state->stream_weights, state->plan.streams, row),
        *h = cpu_row(state->h, state->plan.hidden, row);
  state->loaded->kernels->sigmoid(weights, n * hidden);
  for (int i = 0; i < hidden; i++) {
    float sum = 0;
    for (int s = 0; s < n; s++) sum += weights[s * hidden + i] * streams[s * hidden + i];
    h[i] = sum / (float)n;
  }
}

/* Finishes stream_factors, by which a block's output is multiplied: f becomes 2 sigmoid(f / n). */
static void finish_factors(const BackendState *state, int row) {
  const int n = state->loaded->model->config.streams.n;
  float *factors = cpu_row(state->stream_factors, state->plan.stream_factors, row);
  for (int s = 0; s < n; s++) factors[s] /= (float)n;
  state->loaded->kernels->sigmoid(factors, n);
  for (int s = 0; s < n; s++) factors[s] *= 2;
}

void cpu_mix(BackendState *state, const float *norm, const CpuMix *mix, const int32_t *rows, int first_row,
             int n_rows) {
  const BackendModel *loaded = state->loaded;
  const StatePlan *plan = &state->plan;
  const int n = loaded->model->config.streams.n;
#pragma omp parallel for if (n_rows > 1) num_threads(loaded->n_threads)
  for (int r = 0; r < n_rows; r++)
    normalise_streams(state, cpu_row(state->streams, plan->streams, rows ? rows[r] : first_row + r), norm,
                      cpu_row(state->stream_rows, plan->streams, r));
  const Matmul first[] = {
      {.w = mix->down, .y = state->stream_ranks, .y_stride = (size_t)plan->stream_rank},
      {.w = mix->inject, .y = state->stream_factors, .y_stride = (size_t)plan->stream_factors}};
  run_matmuls(state, state->stream_rows, plan->streams, n_rows, first, mix->inject.linear ? 2 : 1);
#pragma omp parallel for if (n_rows > 1) num_threads(loaded->n_threads)
  for (int r = 0; r < n_rows; r++)
    activate(cpu_row(state->stream_ranks, plan->stream_rank, r), plan->stream_rank, n);
  run_matmul(state, mix->up, state->stream_ranks, plan->stream_rank, n_rows, state->stream_weights,
             plan->streams);
#pragma omp parallel for if (n_rows > 1) num_threads(loaded->n_threads)
  for (int r = 0; r < n_rows; r++) {
    mean_of_streams(state, r);
    if (mix->inject.linear) finish_factors(state, r);
  }
}

static Status mix_for_block(BackendState *state, int n_rows, const float *norm, CpuMix mix) {
  cpu_mix(state, norm, &mix, NULL, 0, n_rows);
  memset(state->x, 0, (size_t)n_rows * (size_t)state->plan.hidden * sizeof *state->x);
  return STATUS_OK;
}

Status cpu_mix_for_attention(BackendState *state, TokenRange range, int layer, Error *err) {
  const CpuLayer *w = &state->loaded->layers[layer];
  return mix_for_block(state, range.n_tokens, w->attn_norm,
                       (CpuMix){w->attn_mix_down, w->attn_mix_up, w->attn_inject});
}

Status cpu_mix_for_mlp(BackendState *state, TokenRange range, int layer, Error *err) {
  const CpuLayer *w = &state->loaded->layers[layer];
  return mix_for_block(state, range.n_tokens, w->mlp_norm,
                       (CpuMix){w->mlp_mix_down, w->mlp_mix_up, w->mlp_inject});
}

Status cpu_inject_streams(BackendState *state, TokenRange range, int layer, Error *err) {
  const ModelConfig *config = &state->loaded->model->config;
  const int hidden = config->hidden;
#pragma omp parallel for if (range.n_tokens > 1) num_threads(state->loaded->n_threads)
  for (int r = 0; r < range.n_tokens; r++) {
    const float *x = cpu_row(state->x, state->plan.hidden, r),
                *factors = cpu_row(state->stream_factors, state->plan.stream_factors, r);
    float *stream = cpu_row(state->streams, state->plan.streams, r);
    for (int s = 0; s < config->streams.n; s++, stream += hidden)
      for (int i = 0; i < hidden; i++) stream[i] += factors[s] * x[i];
  }
  return STATUS_OK;
}

/* --- n-grams */

static int n_tail(const NgramConfig *ngrams) {
  return (ngrams->taps - 1) * ngrams->longest;
}

size_t cpu_ngram_numbers(const ModelConfig *config, int layer) {
  if (!config_layer(config, layer).ngrams) return 0;
  const size_t streams = (size_t)cpu_padded((int64_t)config->streams.n * config->hidden);
  return (size_t)n_tail(&config->ngrams) * streams + (size_t)cpu_padded(config->ngrams.longest - 1);
}

/* The token `back` tokens before row `row` of a sequence's rows. */
static int32_t token_before(const BackendState *state, const float *kept, int first_row, int row, int back) {
  const NgramConfig *ngrams = &state->loaded->model->config.ngrams;
  if (row >= back) return state->ids[first_row + row - back];
  return (int32_t)kept[ngrams->longest - 1 + row - back] + ngrams->empty;
}

/* to[ngrams.width] = the table's rows of the n-grams that end with the sequence's row `row`. */
static void read_ngrams(const BackendState *state, int layer, const float *kept, int first_row, int row,
                        float *to) {
  const NgramConfig *ngrams = &state->loaded->model->config.ngrams;
  int32_t tokens[MAX_NGRAM];
  tokens[0] = state->ids[first_row + row];
  for (int back = 1; back < ngrams->longest; back++)
    tokens[back] = token_before(state, kept, first_row, row, back);
  ngram_read_rows(ngrams, state->loaded->layers[layer].hash, &state->loaded->model->layers[layer], tokens,
                  to);
}

/* On entry stream_weights is k and h is v. Sets stream_rows = c, which is v times each stream's gate, and
 * stream_weights = norm(c) (operations.def, add_ngrams). */
static void gate_ngrams(const BackendState *state, const CpuLayer *weights, int row) {
  const ModelConfig *config = &state->loaded->model->config;
  const int hidden = config->hidden, n = config->streams.n;
  float *key = cpu_row(state->stream_weights, state->plan.streams, row),
        *gated = cpu_row(state->stream_rows, state->plan.streams, row);
  const float *value = cpu_row(state->h, state->plan.hidden, row);
  normalise_streams(state, key, weights->ngram_key_norm, key);
  normalise_streams(state, cpu_row(state->streams, state->plan.streams, row), weights->ngram_query_norm,
                    gated);
  for (int s = 0; s < n; s++) {
    double sum = 0;
    for (int i = s * hidden; i < (s + 1) * hidden; i++) sum += (double)key[i] * gated[i];
    const double score = sum / sqrt(hidden), least = 1e-6;
    const double size = sqrt(fabs(score) < least ? least : fabs(score)), /* NaN stays */
        gate = 1 / (1 + exp(score < 0 ? size : -size));
    /* in transformers sign(0) is 0 */
    const float factor = score == 0 ? 0.5f : (float)gate;
    for (int i = 0; i < hidden; i++) gated[s * hidden + i] = factor * value[i];
  }
  normalise_streams(state, gated, weights->ngram_conv_norm, key);
}

/* Adds c and silu(convolution) to the streams of a sequence's rows, in columns [first, first + n). */
static void add_columns(const BackendState *state, const CpuLayer *weights, const float *tail, int first_row,
                        int n_rows, int first, int n) {
  const NgramConfig *ngrams = &state->loaded->model->config.ngrams;
  const size_t width = (size_t)state->plan.streams;
  for (int r = 0; r < n_rows; r++) {
    float *stream = state->streams + (size_t)(first_row + r) * width;
    const float *gated = state->stream_rows + (size_t)(first_row + r) * width;
    for (int i = first; i < first + n; i++) {
      double sum = 0;
      for (int t = 0; t < ngrams->taps; t++) {
        const int from = r - (ngrams->taps - 1 - t) * ngrams->longest;
        const float *row = from >= 0 ? state->stream_weights + (size_t)(first_row + from) * width
                                     : tail + (size_t)(from + n_tail(ngrams)) * width;
        sum += (double)weights->ngram_taps[(size_t)t * width + (size_t)i] * row[i];
      }
      stream[i] += gated[i] + (float)(sum / (1 + exp(-sum)));
    }
  }
}

/* Updates a sequence's state: the last inputs of the convolution, and the last tokens. */
static void keep(const BackendState *state, float *tail, float *kept, int first_row, int n_rows) {
  const NgramConfig *ngrams = &state->loaded->model->config.ngrams;
  const size_t width = (size_t)state->plan.streams, n = (size_t)n_tail(ngrams);
  const size_t rows = (size_t)n_rows < n ? (size_t)n_rows : n;
  memmove(tail, tail + rows * width, (n - rows) * width * sizeof *tail);
  memcpy(tail + (n - rows) * width, state->stream_weights + ((size_t)(first_row + n_rows) - rows) * width,
         rows * width * sizeof *tail);
  float last[MAX_NGRAM] = {0};
  for (int i = 0; i < ngrams->longest - 1; i++)
    last[i] =
        (float)(token_before(state, kept, first_row, n_rows - 1, ngrams->longest - 2 - i) - ngrams->empty);
  memcpy(kept, last, (size_t)(ngrams->longest - 1) * sizeof *kept);
}

Status cpu_add_ngrams(BackendState *state, TokenRange range, int layer, Error *err) {
  const BackendModel *loaded = state->loaded;
  const StatePlan *plan = &state->plan;
  const CpuLayer *weights = &loaded->layers[layer];
  const size_t tail_numbers = (size_t)n_tail(&loaded->model->config.ngrams) * (size_t)plan->streams;
  for (int i = 0, first = 0; i < cpu_n_parts(&range); first += cpu_part(&range, i++).n_tokens) {
    const SequenceRows part = cpu_part(&range, i);
    float *tail = cpu_ngram_state(state, layer, part.sequence);
    if (part.pos == 0) memset(tail, 0, cpu_ngram_numbers(&loaded->model->config, layer) * sizeof *tail);
#pragma omp parallel for if (part.n_tokens > 1) num_threads(loaded->n_threads)
    for (int r = 0; r < part.n_tokens; r++)
      read_ngrams(state, layer, tail + tail_numbers, first, r,
                  cpu_row(state->ngram_rows, plan->ngrams, first + r));
  }
  const Matmul both[] = {
      {.w = weights->ngram_key, .y = state->stream_weights, .y_stride = (size_t)plan->streams},
      {.w = weights->ngram_value, .y = state->h, .y_stride = (size_t)plan->hidden}};
  run_matmuls(state, state->ngram_rows, plan->ngrams, range.n_tokens, both, 2);
#pragma omp parallel for if (range.n_tokens > 1) num_threads(loaded->n_threads)
  for (int r = 0; r < range.n_tokens; r++) gate_ngrams(state, weights, r);
  for (int i = 0, first = 0; i < cpu_n_parts(&range); first += cpu_part(&range, i++).n_tokens) {
    const SequenceRows part = cpu_part(&range, i);
    float *tail = cpu_ngram_state(state, layer, part.sequence);
#pragma omp parallel for num_threads(loaded->n_threads)
    for (int column = 0; column < plan->streams; column += CONVOLUTION_BLOCK)
      add_columns(state, weights, tail, first, part.n_tokens, column,
                  plan->streams - column < CONVOLUTION_BLOCK ? plan->streams - column : CONVOLUTION_BLOCK);
    keep(state, tail, tail + tail_numbers, first, part.n_tokens);
  }
  return STATUS_OK;
}
