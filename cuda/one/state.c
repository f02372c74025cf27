/* state.c - see state.h: how large a session's cache and recurrent states are, and copies of them. */
#include "cuda/one/state.h"

#include <string.h>

#include "cuda/kernels/delta/delta.h"
#include "cuda/kernels/ops/streams.h"
#include "cuda/kernels/ptx/device.h"

int qkv_outputs(const LayerConfig *own) {
  const int n = own->shares_kv ? 0 : own->k_as_v ? 1 : 2;
  return own->q_outputs + n * own->n_kv_heads * own->head_dim;
}

int state_index_outputs(const LayerConfig *own) {
  return qkv_outputs(own) + (own->attn_gate == ATTN_GATE_IN_Q ? 0 : own->n_gates);
}

int state_latent_inputs(const ModelConfig *c) {
  const LatentConfig *latent = &c->latent;
  if (latent->kv_rank == 0) return 0;
  const int n_gates = c->attn_gate == ATTN_GATE_HEADS ? c->n_heads : 0,
            n_queries = latent->q_rank ? latent->q_rank : c->n_heads * (latent->nope_dim + latent->rope_dim);
  return n_queries + latent->kv_rank + latent->rope_dim + n_gates;
}

int delta_outputs(const DeltaConfig *d) {
  const int b = d->rule == RULE_MAMBA2 ? 0 : d->n_value_heads;
  return delta_channels(d) + d->n_value_heads * d->value_dim + b + delta_decays(d) + 2 * d->gate_rank;
}

/* Floats of the n-grams' states of the layers before `layer`. */
static size_t ngrams_before(const ModelConfig *c, int layer) {
  const NgramConfig *n = &c->ngrams;
  size_t n_layers = 0;
  for (int i = 0; n->longest > 0 && i < layer; i++) n_layers += config_layer(c, i).ngrams > 0;
  return n_layers ? n_layers * ops_ngram_state_floats(n->longest, n->taps, c->streams.n, c->hidden) : 0;
}

size_t state_floats_before(const ModelConfig *c, StatesType type, int layer) {
  const int n_conv = config_count_layers(c, LAYER_CONV, layer),
            n_delta = config_count_layers(c, LAYER_DELTA, layer);
  const size_t conv = (size_t)padded_row(c->conv.channels) * (size_t)c->conv.taps;
  return (size_t)n_conv * conv + (n_delta ? (size_t)n_delta * delta_state_floats(&c->delta, type) : 0) +
         ngrams_before(c, layer);
}

size_t state_floats(const ModelConfig *c, StatesType type) {
  return state_floats_before(c, type, c->n_layers);
}

size_t state_sequences(const StateOptions *o) {
  return o->n_sequences > 0 ? (size_t)o->n_sequences : 1;
}

int page_positions(const StateOptions *o) {
  if (o->n_sequences > 0) return KV_PAGE_TOKENS;
  /* Positions are a multiple of `unit`. With heads of 64 or more, every part of a layer's cache is then a
   * multiple of 256 bytes, to which arena_reserve() rounds. So layers follow one another without gaps, as the
   * fused step needs. An even number of pages (state_pages()) has the same effect. */
  const int unit = o->kv == KV_Q8 ? 128 : 2;
  return (o->n_ctx + unit - 1) / unit * unit;
}

int state_pages(const StateOptions *o) {
  return o->n_sequences > 0 ? (o->n_pages + 1) / 2 * 2 : 1;
}

static size_t cached_positions(const StateOptions *o) {
  return (size_t)state_pages(o) * (size_t)page_positions(o);
}

size_t state_recurrent_bytes(const ModelConfig *c, int layer) {
  return (state_floats_before(c, STATES_F32, layer + 1) - state_floats_before(c, STATES_F32, layer)) *
         sizeof(float);
}

size_t state_array_bytes(KvType kv, int head_dim, CacheArray array) {
  const size_t numbers = (size_t)head_dim * kv_number_bytes(kv);
  switch (array) {
  case KEY_SCALES: return kv_key_bytes(kv, head_dim) - numbers;
  case VALUE_SCALES: return kv_value_bytes(kv, head_dim) - numbers;
  default: return numbers;
  }
}

bool state_keys_are_values(const ModelConfig *c) {
  return c->latent.kv_rank > 0;
}

size_t state_cache_rows(const ModelConfig *c, const StateOptions *o, int layer, CacheArray array) {
  const bool of_values = array == VALUES || array == VALUE_SCALES;
  if (array >= INDEX_KEYS)
    return c->indexer.block > 0 && config_kv_numbers(c, layer) > 0 ? cached_positions(o) : 0;
  if (config_kv_numbers(c, layer) == 0 || (of_values && state_keys_are_values(c))) return 0;
  return (size_t)config_layer(c, layer).n_kv_heads * cached_positions(o);
}

size_t state_array_before(const ModelConfig *c, const StateOptions *o, int layer, CacheArray array) {
  DeviceArena before = {0};
  for (int i = 0; i < layer; i++)
    arena_reserve(&before, state_cache_rows(c, o, i, array),
                  state_array_bytes(o->kv, config_layer(c, i).head_dim, array));
  return before.used;
}

Attention state_attention(const BackendState *s, int layer) {
  const ModelConfig *c = &s->loaded->model->config;
  const LayerConfig own = config_layer(c, layer);
  const bool many = s->options.n_sequences > 0, assists = c->draft.kind == DRAFT_ASSISTANT;
  return (Attention){
      .n_heads = own.n_heads,
      .n_kv_heads = own.n_kv_heads,
      .head_dim = own.head_dim,
      .n_ctx = page_positions(s->options.target ? &s->options.target->options : &s->options),
      .window = own.window + (assists && own.window > 0), /* one position longer, as in transformers */
      .chunk = own.chunk,
      .kv = s->options.kv,
      .shared_bytes = s->loaded->shared_bytes,
      .wgmma_sms = s->loaded->attention_sms,
      .pos = assists ? s->draft_seen : s->rows.pos,
      .q = s->q,
      .k = s->layers[layer].cache[KEYS],
      .v = s->layers[layer].cache[VALUES],
      .value_dims = c->latent.kv_rank,
      .k_scales = s->layers[layer].cache[KEY_SCALES],
      .v_scales = s->layers[layer].cache[VALUE_SCALES],
      .k_halves = s->halves[0],
      .v_halves = s->halves[1],
      .pages = many ? (AttentionPages){s->rows.pages, s->rows.first_page, s->options.n_pages}
                    : (AttentionPages){0},
      .out = c->latent.kv_rank ? s->head_x : s->a,
      .workspace = s->workspace,
      .unit_partials = s->unit_partials,
      .scale = c->attention_scale,
      .cap = c->attention_cap,
      .sinks = s->loaded->layers[layer].sinks,
  };
}

/* --- the KV cache */

float *state_recurrent(const BackendState *s, int layer) {
  return s->recurrent + s->layers[layer].recurrent;
}

float *state_of_ngrams(const BackendState *s, int layer) {
  const ModelConfig *c = &s->loaded->model->config;
  const size_t own = ngrams_before(c, layer + 1) - ngrams_before(c, layer);
  return s->recurrent + state_floats_before(c, s->options.states, layer + 1) - own;
}

Segments state_segments(const BackendState *s, TokenRange span) {
  const Sequences *q = &s->sequences;
  if (!span.parts) return (Segments){0};
  return (Segments){.device = s->rows.segments,
                    .host = q->pinned[1 - q->next].segments,
                    .of_row = s->rows.segment_of,
                    .n_singles = q->n_singles,
                    .n = q->n_segments,
                    .state_step = state_floats(&s->loaded->model->config, s->options.states)};
}

float *state_of_sequence(const BackendState *s, int sequence) {
  return s->recurrent + (size_t)sequence * state_floats(&s->loaded->model->config, s->options.states);
}

Status state_wait(BackendState *s, Error *err) {
  Reduce *reduce = s->loaded->reduce;
  if (reduce) return reduce->wait(reduce, s->loaded->stream, err);
  return cuda_status(cudaStreamSynchronize(s->loaded->stream), "a step failed", err);
}

/* Copies rows of n_heads KV heads between an array of a layer's cache and the host. On the host, heads are
 * n_rows rows apart. */
static Status copy_rows(BackendState *s, TokenRange span, int layer, CacheArray array, int n_heads,
                        char *host, size_t n_rows, CopyDirection direction, Error *err) {
  const LayerConfig own = config_layer(&s->loaded->model->config, layer);
  const size_t row = state_array_bytes(s->options.kv, own.head_dim, array), run = (size_t)span.n_tokens * row,
               host_pitch = n_rows * row, cache_pitch = (size_t)page_positions(&s->options) * row;
  char *cache = (char *)s->layers[layer].cache[array] + (size_t)span.pos * row;
  const cudaError_t error =
      direction == TO_HOST ? cudaMemcpy2DAsync(host, host_pitch, cache, cache_pitch, run, (size_t)n_heads,
                                               cudaMemcpyDeviceToHost, s->loaded->stream)
                           : cudaMemcpy2DAsync(cache, cache_pitch, host, host_pitch, run, (size_t)n_heads,
                                               cudaMemcpyHostToDevice, s->loaded->stream);
  return cuda_status(error, "cannot copy keys and values", err);
}

/* Heads are page_positions() rows apart in the cache. The host has values even where the cache has only keys
 * (state_keys_are_values()). */
Status state_copy_heads(BackendState *s, CopyDirection direction, TokenRange span, int layer, int n,
                        char *host, int first_head, int n_heads, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const LayerConfig own = config_layer(c, layer);
  const size_t n_rows = (size_t)n;
  TRY(cuda_status(cudaSetDevice(s->loaded->gpu), "cannot use it", err));
  for (CacheArray array = 0; array < INDEX_KEYS; array++) {
    const size_t pitch = n_rows * state_array_bytes(s->options.kv, own.head_dim, array);
    if (pitch == 0) continue;
    char *rows = host + (size_t)first_head * pitch;
    host += (size_t)n_heads * pitch;
    if (array == VALUE_SCALES && state_keys_are_values(c)) { /* the cache has no such scales */
      if (direction == TO_HOST) memset(rows, 0, (size_t)own.n_kv_heads * pitch);
      continue;
    }
    TRY(copy_rows(s, span, layer, array, own.n_kv_heads, rows, n_rows, direction, err));
    if (own.n_cache_heads == own.n_kv_heads) continue;
    const CacheArray index = array == KEYS ? INDEX_KEYS : INDEX_VALUES;
    TRY(copy_rows(s, span, layer, index, 1, host, n_rows, direction, err));
    host += pitch;
  }
  return state_wait(s, err);
}

Status state_kv_copy(BackendState *s, CopyDirection direction, TokenRange span, int layer, int n, void *host,
                     Error *err) {
  const int n_heads = config_layer(&s->loaded->model->config, layer).n_kv_heads;
  return state_copy_heads(s, direction, span, layer, n, host, 0, n_heads, err);
}

/* --- recurrent states: slot -1 is the current one */

static float *slot_states(const BackendState *s, int slot) {
  return state_of_sequence(s, slot < 0 ? 0 : (int)state_sequences(&s->options) + slot);
}

static Status copy_states(BackendState *s, int to, int from, Error *err) {
  const size_t bytes = state_floats(&s->loaded->model->config, s->options.states) * sizeof(float);
  return cuda_status(cudaMemcpyAsync(slot_states(s, to), slot_states(s, from), bytes,
                                     cudaMemcpyDeviceToDevice, s->loaded->stream),
                     "cannot copy recurrent states", err);
}

Status state_save(BackendState *s, int slot, Error *err) {
  return copy_states(s, slot, -1, err);
}

Status state_restore(BackendState *s, int slot, Error *err) {
  return copy_states(s, -1, slot, err);
}

/* A range of n numbers in a layer's recurrent state. own: the range's offset in this GPU's state. The state
 * of a model on one GPU has the ranges of all GPUs one after another, from offset `first` on. */
typedef struct {
  size_t own, first, n;
} Run;
enum { MAX_RUNS = 3 };

/* Lists the runs of a layer's state on one GPU. Several GPUs never share a model with n-grams. */
static int list_runs(const ModelConfig *part, int layer, int n_gpus, Run runs[MAX_RUNS]) {
  const LayerConfig own = config_layer(part, layer);
  DeltaConfig whole = part->delta;
  int n = 0;
  whole.n_key_heads *= n_gpus;
  whole.n_value_heads *= n_gpus;
  if (own.kind == LAYER_CONV) {
    runs[0] = (Run){.n = (size_t)part->conv.taps * (size_t)part->conv.channels};
    n = 1;
  }
  if (layer_has(own, LAYER_DELTA)) {
    const DeltaConfig *d = &part->delta;
    const size_t states = (size_t)d->n_value_heads * (size_t)d->key_dim * (size_t)d->value_dim;
    runs[0] = (Run){.n = (size_t)d->conv * (size_t)delta_channels(d)};
    runs[1] = (Run){delta_input_floats(d), delta_input_floats(&whole), states};
    n = 2;
  }
  if (own.ngrams) {
    const size_t floats = ngrams_before(part, layer + 1) - ngrams_before(part, layer),
                 first = state_recurrent_bytes(part, layer) / sizeof(float) - floats;
    runs[n++] = (Run){first, first, floats};
  }
  return n;
}

Status state_copy_part(BackendState *s, CopyDirection direction, int slot, int layer, void *host, int rank,
                       int n_gpus, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  float *kept = slot_states(s, slot) + s->layers[layer].recurrent;
  Run runs[MAX_RUNS];
  const int n_runs = list_runs(c, layer, n_gpus, runs);
  TRY(cuda_status(cudaSetDevice(s->loaded->gpu), "cannot use it", err));
  for (int i = 0; i < n_runs; i++) {
    float *own = kept + runs[i].own, *there = (float *)host + runs[i].first + (size_t)rank * runs[i].n;
    const size_t bytes = runs[i].n * sizeof(float);
    const cudaError_t error =
        direction == TO_HOST ? cudaMemcpyAsync(there, own, bytes, cudaMemcpyDeviceToHost, s->loaded->stream)
                             : cudaMemcpyAsync(own, there, bytes, cudaMemcpyHostToDevice, s->loaded->stream);
    TRY(cuda_status(error, "cannot copy recurrent states", err));
  }
  return state_wait(s, err);
}

Status state_copy(BackendState *s, CopyDirection direction, int slot, int layer, void *host, Error *err) {
  const size_t bytes = state_recurrent_bytes(&s->loaded->model->config, layer);
  if (direction == TO_HOST) memset(host, 0, bytes); /* the gaps between runs stay 0 */
  return state_copy_part(s, direction, slot, layer, host, 0, 1, err);
}

/* --- hidden states for a drafter: `taps` has them divided by residual_scale, as x is, and state_read_taps()
 * multiplies what it copies by residual_scale */

Status state_keep_tap(BackendState *s, TokenRange span, int index, Error *err) {
  const size_t row = (size_t)s->loaded->model->config.hidden * sizeof(float);
  return cuda_status(cudaMemcpy2DAsync((char *)s->taps + (size_t)index * row, (size_t)s->options.taps.n * row,
                                       s->x, row, row, (size_t)rows_of(s, span), cudaMemcpyDeviceToDevice,
                                       s->loaded->stream),
                     "cannot copy hidden states", err);
}

Status state_read_taps(BackendState *s, int row, int n, float *out, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const size_t width = (size_t)s->options.taps.n * (size_t)c->hidden;
  if (width == 0 || row < 0 || n < 1 || n > s->options.max_chunk - row)
    return error_set(err, STATUS_FAILED, "hidden states of %d rows from %d on, the session keeps %d", n, row,
                     width ? s->options.max_chunk : 0);
  TRY(cuda_status(cudaMemcpyAsync(out, s->taps + (size_t)row * width, (size_t)n * width * sizeof *out,
                                  cudaMemcpyDeviceToHost, s->loaded->stream),
                  "cannot copy hidden states", err));
  TRY(state_wait(s, err));
  for (size_t i = 0; c->residual_scale != 1 && i < (size_t)n * width; i++) out[i] *= (float)c->residual_scale;
  return STATUS_OK;
}

/* --- pages */

Status state_set_pages(BackendState *s, int sequence, int first, const int32_t *pages, int n, Error *err) {
  return sequences_set_pages(&s->sequences, sequence, first, pages, n, err);
}

Status state_copy_page(BackendState *s, int from, int to, Error *err) {
  return attention_copy_page(s->memory, s->paged_arrays, s->loaded->model->config.n_layers * CACHE_ARRAYS,
                             from, to, s->loaded->stream, err);
}
