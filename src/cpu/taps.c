/* taps.c - the hidden states of a step's rows: kept for a drafter (backend.h, TapList), or copied between
 * layers (forward_part()).
 *
 * Called by: forward.c and quantize/calibration.c through cpu_backend; cpu_read_taps() by tests. */
#include <string.h>

#include "cpu/cpu.h"

Status cpu_keep_tap(BackendState *state, TokenRange range, int index, Error *err) {
  const size_t hidden = (size_t)state->loaded->model->config.hidden, n = (size_t)state->options.taps.n;
  for (size_t r = 0; r < (size_t)range.n_tokens; r++)
    memcpy(state->taps + (r * n + (size_t)index) * hidden, state->x + r * (size_t)state->plan.hidden,
           hidden * sizeof *state->taps);
  return STATUS_OK;
}

Status cpu_read_taps(BackendState *state, int row, int n, float *out, Error *err) {
  const size_t width = (size_t)state->options.taps.n * (size_t)state->loaded->model->config.hidden;
  if (width == 0 || row < 0 || n < 1 || n > state->options.max_chunk - row)
    return error_set(err, STATUS_FAILED, "hidden states of %d rows from %d on, the session keeps %d", n, row,
                     width ? state->options.max_chunk : 0);
  memcpy(out, state->taps + (size_t)row * width, (size_t)n * width * sizeof *out);
  return STATUS_OK;
}

size_t cpu_carried_floats(const BackendState *state) {
  return (size_t)state->loaded->model->config.hidden + (size_t)state->plan.streams;
}

Status cpu_carry(BackendState *state, TokenRange range, bool into, float *rows, Error *err) {
  const size_t hidden = (size_t)state->loaded->model->config.hidden, streams = (size_t)state->plan.streams;
#pragma omp parallel for if (range.n_tokens > 1) num_threads(state->loaded->n_threads)
  for (size_t r = 0; r < (size_t)range.n_tokens; r++) {
    float *x = state->x + r * (size_t)state->plan.hidden, *own = state->streams + r * streams,
          *row = rows + r * (hidden + streams);
    memcpy(into ? x : row, into ? row : x, hidden * sizeof *row);
    if (streams) memcpy(into ? own : row + hidden, into ? row + hidden : own, streams * sizeof *row);
  }
  return STATUS_OK;
}
