/* altup.c - AltUp's residual streams, and LAuReL (operations.def, predict_streams, add_laurel,
 * correct_streams).
 *
 * Called by: backend.c; forward.c through cpu_backend.
 * Always true: a stream is plan.hidden numbers, zeros from config.hidden on; each number is computed by one
 *              thread, row by row, so that chunks and threads change no bit. */
#include <math.h>
#include <string.h>

#include "cpu/cpu.h"

/* --- the streams before the first layer, and their mean after the last one */

/* The root of x's mean square, or of `least` if the mean square is smaller. */
static double size_of(const float *x, int n, double least) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += (double)x[i] * x[i];
  return sqrt(sum / n > least ? sum / n : least);
}

/* The factor that gives a projected stream the root mean square of the first stream. */
static float same_size(const float *first, const float *projected, int n) {
  const double least = 1e-5; /* least mean square, as in transformers */
  return (float)(size_of(first, n, 0) / size_of(projected, n, least));
}

void cpu_begin_streams(BackendState *state, int n_rows) {
  const BackendModel *loaded = state->loaded;
  const ModelConfig *config = &loaded->model->config;
  const int stride = state->plan.hidden, all = state->plan.streams;
  for (int s = 1; s < config->altup.n; s++)
    run_matmul(state, loaded->streams_in[s - 1], state->x, stride, n_rows,
               state->streams + (size_t)s * (size_t)stride, all);
#pragma omp parallel for if (n_rows > 1) num_threads(loaded->n_threads)
  for (int r = 0; r < n_rows; r++) {
    const float *x = cpu_row(state->x, stride, r);
    float *streams = cpu_row(state->streams, all, r);
    memcpy(streams, x, (size_t)config->hidden * sizeof *x);
    for (int s = 1; s < config->altup.n; s++) {
      float *stream = streams + s * stride;
      const float factor = same_size(x, stream, config->hidden);
      for (int i = 0; i < config->hidden; i++) stream[i] *= factor;
    }
  }
}

void cpu_join_streams(BackendState *state, const int32_t *rows, int first_row, int n_rows) {
  const BackendModel *loaded = state->loaded;
  const ModelConfig *config = &loaded->model->config;
  const int stride = state->plan.hidden, all = state->plan.streams;
  for (int r = 0; r < n_rows; r++)
    memcpy(cpu_row(state->stream_rows, all, r), cpu_row(state->streams, all, rows ? rows[r] : first_row + r),
           (size_t)all * sizeof(float));
  for (int s = 1; s < config->altup.n; s++) {
    const size_t at = (size_t)s * (size_t)stride;
    run_matmul(state, loaded->streams_out[s - 1], state->stream_rows + at, all, n_rows,
               state->stream_weights + at, all);
  }
#pragma omp parallel for if (n_rows > 1) num_threads(loaded->n_threads)
  for (int r = 0; r < n_rows; r++) {
    const float *first = cpu_row(state->stream_rows, all, r),
                *others = cpu_row(state->stream_weights, all, r);
    float *h = cpu_row(state->h, stride, r);
    memcpy(h, first, (size_t)config->hidden * sizeof *h);
    for (int s = 1; s < config->altup.n; s++) {
      const float factor = same_size(first, others + s * stride, config->hidden);
      for (int i = 0; i < config->hidden; i++) h[i] += factor * others[s * stride + i];
    }
    for (int i = 0; i < config->hidden; i++) h[i] /= (float)config->altup.n;
    loaded->kernels->rms_norm(h, loaded->final_norm, config->hidden, config->norm_eps, h);
  }
}

/* --- layers */

/* stream_factors = w m; m = tanh(router rmsnorm(from) / hidden) stays in stream_weights. */
static void make_coefficients(BackendState *state, const CpuLayer *weights, const float *from,
                              int from_stride, CpuLinear w, int n_rows) {
  const BackendModel *loaded = state->loaded;
  const ModelConfig *config = &loaded->model->config;
  const int all = state->plan.streams, n = config->altup.n;
  cpu_norm_rows(state, from, from_stride, n_rows, weights->altup_norm, config->hidden, config->norm_eps,
                state->stream_rows, all);
  run_matmul(state, weights->altup_router, state->stream_rows, all, n_rows, state->stream_weights, all);
  for (int r = 0; r < n_rows; r++) {
    float *m = cpu_row(state->stream_weights, all, r);
    for (int s = 0; s < cpu_padded(n); s++) m[s] = s < n ? (float)tanh((double)m[s] / config->hidden) : 0;
  }
  run_matmul(state, w, state->stream_weights, all, n_rows, state->stream_factors, state->plan.stream_factors);
}

/* s_j = s_j + sum over i of c[j][i] s_i, for all j at once. */
static void predict_row(float *streams, int stride, const float *c, int n, int hidden) {
  for (int at = 0; at < hidden; at++) {
    float before[MAX_STREAMS];
    for (int i = 0; i < n; i++) before[i] = streams[i * stride + at];
    for (int j = 0; j < n; j++)
      for (int i = 0; i < n; i++) streams[j * stride + at] += c[j * n + i] * before[i];
  }
}

Status cpu_predict_streams(BackendState *state, TokenRange range, int layer, Error *err) {
  const ModelConfig *config = &state->loaded->model->config;
  const CpuLayer *weights = &state->loaded->layers[layer];
  const int stride = state->plan.hidden, all = state->plan.streams;
  make_coefficients(state, weights, state->streams, all, weights->altup_predict, range.n_tokens);
#pragma omp parallel for if (range.n_tokens > 1) num_threads(state->loaded->n_threads)
  for (int r = 0; r < range.n_tokens; r++) {
    float *streams = cpu_row(state->streams, all, r);
    predict_row(streams, stride, cpu_row(state->stream_factors, state->plan.stream_factors, r),
                config->altup.n, config->hidden);
    memcpy(cpu_row(state->x, stride, r), streams, (size_t)config->hidden * sizeof *streams);
  }
  return STATUS_OK;
}

Status cpu_add_laurel(BackendState *state, TokenRange range, int layer, Error *err) {
  const BackendModel *loaded = state->loaded;
  const ModelConfig *config = &loaded->model->config;
  const CpuLayer *weights = &loaded->layers[layer];
  const StatePlan *plan = &state->plan;
  run_matmul(state, weights->laurel_left, state->h, plan->hidden, range.n_tokens, state->stream_ranks,
             plan->stream_rank);
  run_matmul(state, weights->laurel_right, state->stream_ranks, plan->stream_rank, range.n_tokens,
             state->stream_rows, plan->streams);
#pragma omp parallel for if (range.n_tokens > 1) num_threads(loaded->n_threads)
  for (int r = 0; r < range.n_tokens; r++) {
    const float *h = cpu_row(state->h, plan->hidden, r);
    float *l = cpu_row(state->stream_rows, plan->streams, r), *x = cpu_row(state->x, plan->hidden, r);
    loaded->kernels->rms_norm(l, weights->laurel_norm, config->hidden, config->norm_eps, l);
    for (int i = 0; i < config->hidden; i++) x[i] += h[i] + l[i];
  }
  return STATUS_OK;
}

Status cpu_correct_streams(BackendState *state, TokenRange range, int layer, Error *err) {
  const ModelConfig *config = &state->loaded->model->config;
  const CpuLayer *weights = &state->loaded->layers[layer];
  const int stride = state->plan.hidden, hidden = config->hidden;
  make_coefficients(state, weights, state->x, stride, weights->altup_correct, range.n_tokens);
#pragma omp parallel for if (range.n_tokens > 1) num_threads(state->loaded->n_threads)
  for (int r = 0; r < range.n_tokens; r++) {
    const float *c = cpu_row(state->stream_factors, state->plan.stream_factors, r);
    float *x = cpu_row(state->x, stride, r), *streams = cpu_row(state->streams, state->plan.streams, r);
    for (int i = 0; i < hidden; i++) x[i] -= streams[i];
    for (int s = 0; s < config->altup.n; s++)
      for (int i = 0; i < hidden; i++) streams[s * stride + i] += (1 + c[s]) * x[i];
    for (int i = 0; i < hidden; i++) x[i] = streams[i] * weights->altup_output_scale[i];
  }
  return STATUS_OK;
}

void cpu_add_to_streams(BackendState *state, int n_rows) {
  const ModelConfig *config = &state->loaded->model->config;
  const int stride = state->plan.hidden;
  for (int r = 0; r < n_rows; r++)
    for (int s = 1; s < config->altup.n; s++) {
      const float *x = cpu_row(state->x, stride, r);
      float *stream = cpu_row(state->streams, state->plan.streams, r) + s * stride;
      for (int i = 0; i < config->hidden; i++) stream[i] += x[i];
    }
}
