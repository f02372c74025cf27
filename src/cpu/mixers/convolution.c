/* convolution.c - causal convolutions along the tokens: of the gated delta rule's channels, and of layers
 * with a short convolution (operations.def, norm_short_conv).
 *
 * Called by: backend.c, delta.c, load.c.
 * Always true: each number is computed by one thread, row by row, so that chunks and threads change
 *              no bit. The state of a layer with a short convolution: [taps - 1][plan.hidden], the last
 *              rows of b * u, the oldest first. */
#include <string.h>

#include "cpu/cpu.h"

float *cpu_take_floats(size_t n, float *place, size_t *next) {
  float *out = place ? place + *next : NULL;
  *next += n;
  return out;
}

const float *cpu_take_taps(const Vector *from, int n_taps, float *place, size_t *next) {
  const size_t taps = (size_t)n_taps, n = (size_t)from->n / taps, stride = (size_t)cpu_padded((int64_t)n);
  float *out = cpu_take_floats(taps * stride, place, next);
  if (!out) return NULL;
  memset(out, 0, taps * stride * sizeof *out);
  for (size_t channel = 0; channel < n; channel++) {
    float own[MAX_CONV_TAPS];
    floats_read(from->data, from->dtype, channel * taps, taps, own);
    for (size_t t = 0; t < taps; t++) out[t * stride + channel] = own[t];
  }
  return out;
}

const float *cpu_take_padded(const Vector *from, size_t n, float *place, size_t *next) {
  const size_t padded = (size_t)cpu_padded((int64_t)n);
  float *out = cpu_take_floats(padded, place, next);
  if (out) memset(out, 0, padded * sizeof *out);
  if (out && from->data) floats_read(from->data, from->dtype, 0, n, out);
  return out;
}

/* Row `row` of the inputs; rows 1 - n_taps .. -1 are in c->tail. */
static const float *input_row(const Convolution *c, int row) {
  return row >= 0 ? c->rows + (size_t)row * c->stride
                  : c->tail + (size_t)(row + c->n_taps - 1) * (size_t)c->width;
}

/* Starts with the last row: `out` may be `rows`, and each output needs the inputs of earlier rows. */
void cpu_convolve(const Kernels *kernels, const Convolution *c, int first) {
  const int n_tail = c->n_taps - 1, left = c->width - first;
  const int n = left < CONVOLUTION_BLOCK ? left : CONVOLUTION_BLOCK;
  float tail[MAX_CONV_TAPS - 1][CONVOLUTION_BLOCK];
  for (int i = 0; i < n_tail; i++)
    memcpy(tail[i], input_row(c, c->n_rows - n_tail + i) + first, (size_t)n * sizeof(float));
  for (int r = c->n_rows - 1; r >= 0; r--) {
    const float *x[MAX_CONV_TAPS];
    for (int t = 0; t < c->n_taps; t++) x[t] = input_row(c, r - n_tail + t) + first;
    float *out = c->out + (size_t)r * c->out_stride + first;
    if (c->gates)
      kernels->gated_convolve(x, c->n_taps, c->taps + first, (size_t)c->width, n,
                              c->gates + (size_t)r * c->gate_stride + first, c->bias + first, out);
    else
      kernels->convolve(x, c->n_taps, c->taps + first, (size_t)c->width, n, c->bias ? c->bias + first : NULL,
                        out);
  }
  for (int i = 0; i < n_tail; i++)
    memcpy(c->tail + (size_t)i * (size_t)c->width + first, tail[i], (size_t)n * sizeof(float));
}

/* The convolution of one sequence's rows, from row `row` of the step on. */
static Convolution convolution_of(BackendState *state, int layer, const SequenceRows *part, size_t row) {
  const StatePlan *plan = &state->plan;
  const CpuLayer *weights = &state->loaded->layers[layer];
  const size_t hidden = (size_t)state->loaded->model->config.hidden, channels = (size_t)plan->channels;
  return (Convolution){.rows = state->h + row * (size_t)plan->hidden,
                       .stride = (size_t)plan->hidden,
                       .tail = cpu_layer_state(state, layer, part->sequence),
                       .taps = weights->conv_taps,
                       .n_rows = part->n_tokens,
                       .n_taps = state->loaded->model->config.conv.taps,
                       .width = plan->hidden,
                       .gates = state->channels + row * channels + hidden,
                       .gate_stride = channels,
                       .bias = weights->conv_bias,
                       .out = state->q + row * (size_t)plan->heads,
                       .out_stride = (size_t)plan->heads};
}

void cpu_short_conv(BackendState *state, TokenRange range, int layer, const float *from) {
  const BackendModel *loaded = state->loaded;
  const StatePlan *plan = &state->plan;
  const size_t hidden = (size_t)loaded->model->config.hidden, channels = (size_t)plan->channels;
  cpu_begin_states(state, layer, range);
  run_matmul(state, loaded->layers[layer].conv_in, from, plan->hidden, range.n_tokens, state->channels,
             plan->channels);
#pragma omp parallel num_threads(loaded->n_threads)
  {
#pragma omp for
    for (int r = 0; r < range.n_tokens; r++) {
      const float *b = state->channels + (size_t)r * channels, *u = b + 2 * hidden;
      for (size_t i = 0; i < hidden; i++) state->h[(size_t)r * (size_t)plan->hidden + i] = b[i] * u[i];
    }
#pragma omp for
    for (int first = 0; first < plan->hidden; first += CONVOLUTION_BLOCK) {
      size_t row = 0;
      for (int i = 0; i < cpu_n_parts(&range); i++) {
        const SequenceRows part = cpu_part(&range, i);
        const Convolution convolution = convolution_of(state, layer, &part, row);
        cpu_convolve(loaded->kernels, &convolution, first);
        row += (size_t)part.n_tokens;
      }
    }
  }
}
