/* states.c - the recurrent states of a session's layers: where they are, and copies of them.
 *
 * Called by: backend.c, delta.c, convolution.c, streams.c; session.c and batch_memory.c through cpu_backend.
 * The states of a sequence lie one after another, in the order of layers; a layer may have none. */
#include <string.h>

#include "cpu/cpu.h"

/* Floats of the delta rule's or the convolution's state, with which a layer's state begins. */
static size_t mixer_numbers(const ModelConfig *config, int layer) {
  const LayerConfig own = config_layer(config, layer);
  if (layer_has(own, LAYER_DELTA)) return cpu_delta_numbers(&config->delta);
  return own.kind == LAYER_CONV ? (size_t)(config->conv.taps - 1) * (size_t)cpu_padded(config->hidden) : 0;
}

static size_t numbers_of(const ModelConfig *config, int layer) {
  return mixer_numbers(config, layer) + cpu_ngram_numbers(config, layer);
}

static size_t numbers_before(const ModelConfig *config, int layer) {
  size_t n = 0;
  for (int i = 0; i < layer; i++) n += numbers_of(config, i);
  return n;
}

size_t cpu_recurrent_bytes(const ModelConfig *config, int layer) {
  return numbers_of(config, layer) * sizeof(float);
}

size_t cpu_all_recurrent_bytes(const ModelConfig *config) {
  return numbers_before(config, config->n_layers) * sizeof(float);
}

/* The states of all layers of a sequence or, with an index from kept(), of a slot. */
static float *states_of(const BackendState *state, int index) {
  return state->recurrent + (size_t)index * (state->plan.recurrent_bytes / sizeof(float));
}

/* The index of a slot's states. */
static int kept(const BackendState *state, int slot) {
  return state->plan.n_sequences + slot;
}

static float *layer_of(const BackendState *state, int index, int layer) {
  return states_of(state, index) + numbers_before(&state->loaded->model->config, layer);
}

float *cpu_layer_state(const BackendState *state, int layer, int sequence) {
  return layer_of(state, sequence, layer);
}

void cpu_begin_states(const BackendState *state, int layer, TokenRange range) {
  const size_t bytes = mixer_numbers(&state->loaded->model->config, layer) * sizeof(float);
  for (int i = 0; i < cpu_n_parts(&range); i++)
    if (cpu_part(&range, i).pos == 0) memset(layer_of(state, cpu_part(&range, i).sequence, layer), 0, bytes);
}

float *cpu_ngram_state(const BackendState *state, int layer, int sequence) {
  return layer_of(state, sequence, layer) + mixer_numbers(&state->loaded->model->config, layer);
}

Status cpu_state_save(BackendState *state, int slot, Error *err) {
  memcpy(states_of(state, kept(state, slot)), states_of(state, 0), state->plan.recurrent_bytes);
  return STATUS_OK;
}

Status cpu_state_restore(BackendState *state, int slot, Error *err) {
  memcpy(states_of(state, 0), states_of(state, kept(state, slot)), state->plan.recurrent_bytes);
  return STATUS_OK;
}

Status cpu_state_copy(BackendState *state, CopyDirection direction, int slot, int layer, void *host,
                      Error *err) {
  float *own = layer_of(state, kept(state, slot), layer);
  const bool reads = direction == TO_HOST;
  memcpy(reads ? host : own, reads ? own : host, cpu_recurrent_bytes(&state->loaded->model->config, layer));
  return STATUS_OK;
}
