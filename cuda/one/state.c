/* state.c - see state.h: sizes and places of a session's buffers, and its KV cache.
 *
 * Called by: backend.c, tokens.c.   Calls: attention.h, delta.h and fused.h for what they need,
 * sample.h. */
#include "cuda/one/state.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/kernels/attention/attention.h"
#include "cuda/kernels/delta/delta.h"
#include "cuda/kernels/ops/streams.h"
#include "cuda/kernels/ptx/device.h"
#include "cuda/one/layers/altup.h"
#include "cuda/one/layers/index.h"
#include "cuda/one/layers/latent.h"
#include "cuda/one/layers/streams.h"
#include "cuda/one/products.h"
#include "cuda/one/rows.h"

static bool has_local_rope(const ModelConfig *c) {
  for (int layer = 0; layer < c->n_layers; layer++)
    if (config_layer(c, layer).rope == ROPE_LOCAL) return true;
  return false;
}

int query_outputs(const ModelConfig *c, const LayerConfig *own) {
  return (c->attn_gate == ATTN_GATE_IN_Q ? 2 : 1) * own->n_heads * own->head_dim;
}

int qkv_outputs(const ModelConfig *c, const LayerConfig *own) {
  const int n = own->shares_kv ? 0 : own->k_as_v ? 1 : 2;
  return query_outputs(c, own) + n * own->n_kv_heads * own->head_dim;
}

int state_index_outputs(const ModelConfig *c, const LayerConfig *own) {
  const int heads = own->n_heads * own->head_dim;
  return qkv_outputs(c, own) + (c->attn_gate == ATTN_GATE_NUMBERS ? heads
                                : c->attn_gate == ATTN_GATE_HEADS ? own->n_heads
                                                                  : 0);
}

static int attention_outputs(const ModelConfig *c, const LayerConfig *own) {
  if (c->latent.kv_rank > 0) return 0; /* latent_in has them */
  const int index = c->indexer.block > 0 ? (c->indexer.n_heads + 1) * c->indexer.head_dim : 0;
  return state_index_outputs(c, own) + index;
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
  return n_layers ? n_layers * ops_ngram_state_floats(n, c->streams.n, c->hidden) : 0;
}

/* Floats of the recurrent states of the layers before `layer`, one after the other. */
static size_t states_before(const ModelConfig *c, int layer) {
  const int n_conv = config_count_layers(c, LAYER_CONV, layer),
            n_delta = config_count_layers(c, LAYER_DELTA, layer);
  const size_t conv = (size_t)padded_row(c->conv.channels) * (size_t)c->conv.taps;
  return (size_t)n_conv * conv + (n_delta ? (size_t)n_delta * delta_state_floats(&c->delta) : 0) +
         ngrams_before(c, layer);
}

size_t state_floats(const ModelConfig *c) {
  return states_before(c, c->n_layers);
}

static size_t count_sequences(const StateOptions *o) {
  return o->n_sequences > 0 ? (size_t)o->n_sequences : 1;
}

/* Rows of logits that the sampler picks from at once. */
static int count_picks(const StateOptions *o) {
  if (o->n_sequences > 0) return o->n_sequences;
  return o->max_logit_rows < STATE_ROW_PICKS ? o->max_logit_rows : STATE_ROW_PICKS;
}

int page_positions(const StateOptions *o) {
  if (o->n_sequences > 0) return KV_PAGE_TOKENS;
  /* Every part of a layer's cache, of heads of 64 or more, is then a multiple of 256 bytes, as arena_take()
   * rounds it: layers follow one another without gaps, which the fused step relies on. An even number of
   * pages is such a multiple, too (state_pages()). */
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
  return (states_before(c, layer + 1) - states_before(c, layer)) * sizeof(float);
}

static size_t most(size_t a, size_t b) {
  return a > b ? a : b;
}

/* Numbers of a row of expert_g, as LinearCall requires for rows of summed experts. */
static int expert_row(const ModelConfig *c) {
  return (c->experts.width + 127) / 128 * 128;
}

/* The experts and, where it can be one of them (weights.c), the MLP beside them. */
static ExpertConfig most_experts(const ModelConfig *c) {
  ExpertConfig most = c->experts;
  if (most.shared_width > 0) most.n_experts++, most.n_chosen++;
  return most;
}

/* The largest sizes of all layers. */
typedef struct {
  size_t heads, beside, intermediate, workspace;
  int projections;
} LargestSizes;

static LargestSizes largest_sizes(const ModelConfig *c, int unit_places) {
  LargestSizes sizes = {.heads = (size_t)padded_row(c->delta.n_value_heads * c->delta.value_dim),
                        .intermediate = (size_t)padded_row(c->per_layer_width),
                        .projections = delta_outputs(&c->delta)};
  if (c->conv.taps > 0) {
    sizes.heads = most(sizes.heads, (size_t)padded_row(c->conv.channels));
    if (sizes.projections < 3 * c->conv.channels) sizes.projections = 3 * c->conv.channels;
  }
  for (int layer = 0; layer < c->n_layers; layer++) {
    const LayerConfig own = config_layer(c, layer);
    sizes.heads = most(sizes.heads, (size_t)padded_row(own.n_heads * own.head_dim));
    sizes.intermediate = most(sizes.intermediate, (size_t)padded_row(own.intermediate));
    sizes.workspace =
        most(sizes.workspace, attention_workspace_bytes(own.n_heads, own.n_kv_heads, own.head_dim,
                                                        c->latent.kv_rank, unit_places));
    const int projections = attention_outputs(c, &own) + (own.delta_beside ? delta_outputs(&c->delta) : 0);
    if (own.delta_beside) sizes.beside = (size_t)padded_row(c->delta.n_value_heads * c->delta.value_dim);
    if (sizes.projections < projections) sizes.projections = projections;
  }
  return sizes;
}

/* The number of attention's partial results with `invariant`; else 0: attention's own number is enough. */
static int unit_places(const ModelConfig *c, const StateOptions *o) {
  int most = 0;
  for (int layer = 0; o->invariant && layer < c->n_layers; layer++) {
    const LayerConfig own = config_layer(c, layer);
    if (own.kind != LAYER_ATTENTION) continue;
    const Attention a = {.n_heads = own.n_heads,
                         .n_kv_heads = own.n_kv_heads,
                         .head_dim = own.head_dim,
                         .value_dims = c->latent.kv_rank};
    const int places =
        attention_fixed_places(attention_unit_blocks(&a), o->n_sequences + GUESS_ROWS, o->n_ctx);
    if (most < places) most = places;
  }
  return most;
}

/* Bytes of a position of one KV head in a part of the cache. */
static size_t part_bytes(KvType kv, int head_dim, CachePart part) {
  const size_t numbers = (size_t)head_dim * kv_number_bytes(kv);
  switch (part) {
  case KEY_SCALES: return kv_key_bytes(kv, head_dim) - numbers;
  case VALUE_SCALES: return kv_value_bytes(kv, head_dim) - numbers;
  default: return numbers;
  }
}

/* Latent attention's values are a part of its keys, which are then kept once. */
static bool keys_are_values(const ModelConfig *c) {
  return c->latent.kv_rank > 0;
}

/* Positions times KV heads of a part of a layer's own cache. */
static size_t cache_rows(const ModelConfig *c, const StateOptions *o, int layer, CachePart part) {
  const bool of_values = part == VALUES || part == VALUE_SCALES;
  if (part >= INDEX_KEYS)
    return c->indexer.block > 0 && config_kv_numbers(c, layer) > 0 ? cached_positions(o) : 0;
  if (config_kv_numbers(c, layer) == 0 || (of_values && keys_are_values(c))) return 0;
  return (size_t)config_layer(c, layer).n_kv_heads * cached_positions(o);
}

/* Bytes of a part of the caches of all layers before `layer`: each cache begins at a multiple of 256. */
static size_t part_before(const ModelConfig *c, const StateOptions *o, int layer, CachePart part) {
  DeviceArena before = {0};
  for (int i = 0; i < layer; i++)
    arena_take(&before, cache_rows(c, o, i, part), part_bytes(o->kv, config_layer(c, i).head_dim, part));
  return before.used;
}

size_t state_cache_bytes(const BackendState *s, CachePart part) {
  const ModelConfig *c = &s->loaded->model->config;
  return part_before(c, &s->options, c->n_layers, part);
}

/* Sets the pointers into the memory that the other GPUs write to, one after another from `base`; returns its
 * bytes. */
static size_t place_peers(BackendState *s, const ModelConfig *c, void *base) {
  DeviceArena arena = {.base = base};
  Peers *p = &s->peers;
  if (c->split <= 1) return 0;
  p->n = c->split;
  s->first_tag = arena_take(&arena, 1, sizeof *s->first_tag);
  p->flags[p->rank] = arena_take(&arena, MAX_SPLIT, sizeof **p->flags);
  p->inbox[p->rank] = arena_take(&arena, peers_inbox_bytes(p->n, c->hidden), 1);
  return arena.used;
}

/* As place_peers(), for the pointers to a step's rows, which are copied to the device in one piece. */
static size_t place_rows(BackendState *s, void *base) {
  DeviceArena arena = {.base = base};
  step_rows_place(&s->rows, &s->options, &arena);
  return arena.used;
}

/* As place_peers(), for the pointers to the parts of all layers' caches: pages are found at distances from
 * the keys (CachePlace). */
static size_t place_caches(BackendState *s, const ModelConfig *c, void *base) {
  DeviceArena arena = {.base = base};
  for (CachePart part = 0; part < CACHE_PARTS; part++)
    s->cache[part] = arena_take(&arena, part_before(c, &s->options, c->n_layers, part), 1);
  return arena.used;
}

/* With KV_Q8: takes the memory in which the cache of any layer fits as fp16. */
static void take_halves(BackendState *s, const ModelConfig *c, Buffers *m) {
  const StateOptions *o = &s->options;
  size_t largest = 0;
  for (int i = 0; i < c->n_layers && o->kv == KV_Q8; i++)
    largest = most(largest, cache_rows(c, o, i, KEYS) * (size_t)config_layer(c, i).head_dim);
  for (int i = 0; i < 2; i++) s->halves[i] = buffers_take(m, i == 1 && keys_are_values(c) ? 0 : largest, 2);
}

/* Memory of latent attention; none for other models. */
static void place_latent(BackendState *s, const ModelConfig *c, Buffers *m) {
  const LatentConfig *latent = &c->latent;
  const size_t chunk = (size_t)s->options.max_chunk, n_heads = latent->kv_rank ? (size_t)c->n_heads : 0,
               queries = n_heads * (size_t)(latent->nope_dim + latent->rope_dim);
  s->latent_in = buffers_take(m, chunk * (size_t)padded_row(latent_inputs(c)), sizeof(float));
  s->q_latents = buffers_take(m, chunk * (size_t)padded_row(latent->q_rank), 2);
  s->latent_queries = buffers_take(m, latent->q_rank ? chunk * queries : 0, sizeof(float));
  s->head_x = buffers_take(m, chunk * n_heads,
                           2 * most(linear_heads_stride(latent->nope_dim), (size_t)latent->kv_rank));
}

static void place(BackendState *s, const ModelConfig *c, bool separate_gate_up, Buffers *m) {
  const StateOptions *o = &s->options;
  size_t chunk = (size_t)o->max_chunk, rows = (size_t)o->max_logit_rows;
  const size_t inputs = chunk * (size_t)c->per_layer_width;
  s->unit_places = unit_places(c, o);
  const LargestSizes sizes = largest_sizes(c, s->unit_places);
  const bool separate_norms = c->norms != NORM_BEFORE || c->experts.norms == EXPERTS_POST_NORM ||
                              c->per_layer_width > 0 || c->draft.kind;
  /* The first layer of EAGLE-3 takes an embedding and a state. */
  s->h_stride = padded_row(c->draft.kind == DRAFT_EAGLE3 ? 2 * c->hidden : c->hidden);
  s->projection_stride = padded_row(sizes.projections);
  s->x = buffers_take(m, chunk * (size_t)c->hidden, sizeof(float));
  s->h = buffers_take(m, chunk * (size_t)s->h_stride, 2);
  const bool wide = c->experts.n_experts > 0 && (c->parallel || c->norm == NORM_CENTRED_BIAS);
  s->wide_h = buffers_take(m, wide ? chunk * (size_t)c->hidden : 0, sizeof(float));
  const size_t branches = c->split > 1 ? 2 + (c->experts.norms == EXPERTS_OWN_NORMS) : separate_norms;
  const int widest = c->hidden > c->draft.target_hidden ? c->hidden : c->draft.target_hidden;
  s->branch = buffers_take(m, branches * chunk * (size_t)widest, sizeof(float));
  s->inputs = buffers_take(m, (size_t)c->n_layers * inputs, sizeof(float));
  const ExpertConfig experts = most_experts(c);
  const size_t choices = experts.n_experts > 0 ? chunk * (size_t)experts.n_chosen : 0;
  s->expert_stride = expert_row(c);
  s->expert_g = buffers_take(m, choices * (size_t)s->expert_stride, 2);
  void *memory = buffers_take(m, choices ? experts_choices_bytes(&experts, o->max_chunk) : 0, 1);
  if (m->start && choices) experts_place_choices(&s->choices, &experts, o->max_chunk, memory);
  s->expert_h = buffers_take(
      m, experts.norms == EXPERTS_OWN_NORMS || experts.scales_input ? chunk * (size_t)s->h_stride : 0, 2);
  const size_t apart = experts.norms == EXPERTS_OWN_NORMS ? (c->split > 1 ? 2 : 1) : 0;
  s->shared_branch = buffers_take(m, apart * chunk * (size_t)c->hidden, sizeof(float));
  streams_place(s, c, m); /* lives through all layers */
  altup_place(s, c, m);
  buffers_live(m, OP_DELTA, OP_OUT_PROJ);
  s->projections = buffers_take(m, chunk * (size_t)s->projection_stride, sizeof(float));
  s->q = buffers_take(m, chunk * sizes.heads, 2);
  s->a = buffers_take(m, chunk * sizes.heads, 2);
  s->beside = buffers_take(m, chunk * sizes.beside, 2);
  place_latent(s, c, m);
  index_place(s, c, m);
  s->gate_h = buffers_take(m, chunk * (size_t)padded_row(c->delta.gate_rank), 2);
  s->delta_workspace =
      buffers_take(m, c->delta.n_key_heads > 0 ? delta_workspace_bytes(&c->delta, o->max_chunk) : 0, 1);
  buffers_live(m, OP_GATE_UP, OP_LAYER_END);
  s->gate_up = buffers_take(m, separate_gate_up ? chunk * 2 * sizes.intermediate : 0, sizeof(float));
  s->g = buffers_take(m, chunk * sizes.intermediate, 2);
  s->input_gate = buffers_take(m, inputs, sizeof(float));
  const size_t row = choices ? (size_t)expert_row_width(c) : 0, latent = (size_t)c->experts.latent;
  s->expert_up =
      buffers_take(m, is_ungated(c->activation) ? choices * (size_t)s->expert_stride : 0, sizeof(float));
  s->latent_h = buffers_take(m, chunk * (size_t)padded_row((int)latent), 2);
  s->latent_sum = buffers_take(m, chunk * latent, sizeof(float));
  const size_t few = o->max_chunk < EXPERTS_FEW_TOKENS ? chunk : EXPERTS_FEW_TOKENS,
               parts = choices ? (size_t)experts_few_parts((int)few * experts.n_chosen) : 0;
  s->expert_y =
      buffers_take(m, (choices > parts ? choices : parts) * (size_t)padded_row((int)row), sizeof(float));
  s->gathered = s->expert_y; /* narrower than expert_y, and dead before expert_y is written */
  buffers_live(m, OP_EMBED, OP_LOGITS);
  s->lm_head_in = buffers_take(m, rows * (size_t)s->h_stride, 2);
  s->logits = buffers_take(m, rows * (size_t)c->vocab_size, sizeof(float));
  s->taps = buffers_take(m, chunk * (size_t)o->taps.n * (size_t)c->hidden, sizeof(float));
  const DraftConfig *draft = &c->draft;
  const size_t width = (size_t)draft->n_states * (size_t)draft->target_hidden;
  s->draft_rows = buffers_take(m, draft->kind ? (chunk + 1) * width : 0, sizeof(float));
  const bool joins = draft->kind == DRAFT_MTP || draft->kind == DRAFT_GEMMA4;
  const int together = joins ? 2 * draft->target_hidden : (int)width;
  s->draft_h = buffers_take(m, draft->kind ? chunk * (size_t)padded_row(together) : 0, 2);
  s->draft_seen = draft->kind == DRAFT_GEMMA4 ? buffers_take(m, 1, sizeof *s->draft_seen) : NULL;
  const size_t angles = chunk * ((size_t)c->rope.rotary_dim / 2),
               local_angles = chunk * ((size_t)c->local_rope.rotary_dim / 2);
  s->rope_tables[ROPE_GLOBAL] = buffers_take(m, angles, 2 * sizeof(float));
  s->rope_tables[ROPE_LOCAL] = has_local_rope(c) ? buffers_take(m, local_angles, 2 * sizeof(float)) : NULL;
  place_rows(s, buffers_take(m, place_rows(s, NULL), 1));
  s->logit_x = buffers_take(m, o->n_sequences > 0 ? rows * (size_t)c->hidden : 0, sizeof(float));
  s->caches = buffers_take(m, o->n_sequences > 0 ? (size_t)c->n_layers * CACHE_PARTS : 0, sizeof *s->caches);
  place_peers(s, c, buffers_take(m, place_peers(s, c, NULL), 1));
  const size_t operands[PLANES_COUNT] = {(size_t)c->hidden, sizes.heads, sizes.intermediate};
  for (int i = 0; i < PLANES_COUNT; i++)
    s->planes[i] = buffers_take(m, linear_planes_bytes((int)operands[i], LINEAR_MOST_PLANES), 1);
  s->workspace = buffers_take(m, sizes.workspace, 1);
  place_caches(s, c, buffers_take(m, place_caches(s, c, NULL), 1));
  take_halves(s, c, m);
  s->recurrent = buffers_take(m, count_sequences(o) + (size_t)o->n_slots, state_floats(c) * sizeof(float));
}

/* Notes where each layer's cache and recurrent state lie, which every operation of a step asks for. */
static Status place_layers(BackendState *s, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  s->layers = mem_alloc((size_t)c->n_layers, sizeof *s->layers, "session", err);
  if (!s->layers) return STATUS_FAILED;
  for (int i = 0; i < c->n_layers; i++) {
    const int from = config_layer(c, i).kv_layer;
    s->layers[i].recurrent = states_before(c, i);
    if (s->options.target)
      memcpy(s->layers[i].cache, s->options.target->layers[from].cache, sizeof s->layers[i].cache);
    for (CachePart part = 0; part < CACHE_PARTS && !s->options.target; part++)
      s->layers[i].cache[part] = (char *)s->cache[part] + part_before(c, &s->options, from, part);
    if (keys_are_values(c)) s->layers[i].cache[VALUES] = s->layers[i].cache[KEYS];
  }
  return STATUS_OK;
}

/* Places the session's buffers, and returns their bytes; SIZE_MAX: too many. */
static size_t measure(BackendState *s, const ModelConfig *c, bool separate_gate_up, Buffers *memory) {
  buffers_begin(memory, NULL);
  place(s, c, separate_gate_up, memory);
  return buffers_fit(memory, 256);
}

/* Upper bound, before the weights are known: assumes separate gate and up, and a fused step. */
size_t state_bytes(const ModelConfig *config, const StateOptions *options) {
  BackendState measured = {.options = *options};
  Buffers memory;
  const size_t bytes = measure(&measured, config, true, &memory);
  if (bytes == SIZE_MAX) return SIZE_MAX;
  const size_t fused = options->invariant ? 0 : fused_bytes(config);
  return bytes + fused + device_sampler_bytes(config->vocab_size, count_picks(options));
}

void state_close(BackendState *s) {
  if (!s) return;
  cudaStreamSynchronize(s->loaded->stream);
  step_graphs_close(&s->graphs);
  step_graphs_close(&s->draft_graphs);
  fused_close(s->fused);
  products_close(s);
  streams_close(s);
  sequences_close(&s->sequences);
  device_sampler_close(s->sampler);
  cudaFreeHost(s->ring);
  cudaFree(s->memory);
  free(s->layers);
  free(s->row_versions);
  free(s->row_picks);
  free(s);
}

/* Notes which units and tiles the layers' attention needs in a step, and where the layers' caches lie. */
static Status open_sequences(BackendState *s, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const size_t n_places = (size_t)c->n_layers * CACHE_PARTS;
  CachePlace *places = mem_alloc(n_places, sizeof *places, "session", err);
  if (!places) return STATUS_FAILED;
  Status status = STATUS_OK;
  for (int i = 0; i < c->n_layers && !status; i++) {
    const LayerConfig own = config_layer(c, i);
    for (CachePart part = 0; part < CACHE_PARTS; part++) {
      const bool has = cache_rows(c, &s->options, i, part) > 0;
      const size_t n_heads = part >= INDEX_KEYS ? 1 : (size_t)own.n_kv_heads,
                   rows = has ? n_heads * KV_PAGE_TOKENS : 0;
      places[i * CACHE_PARTS + part] =
          (CachePlace){(size_t)((char *)s->layers[i].cache[part] - (char *)s->cache[KEYS]),
                       rows * part_bytes(s->options.kv, own.head_dim, part)};
    }
    if (own.kind != LAYER_ATTENTION) continue;
    const Attention attention = state_attention(s, i);
    const int blocks = attention_unit_blocks(&attention), tokens = attention_tile_tokens(&attention);
    status = sequences_add_tile_size(&s->sequences, tokens, err);
    if (tokens > 0 && blocks > s->sequences.unit_blocks) s->sequences.unit_blocks = blocks;
  }
  const size_t bytes = n_places * sizeof *places;
  if (!status)
    status = cuda_status(cudaMemcpy(s->caches, places, bytes, cudaMemcpyHostToDevice), "cannot copy", err);
  free(places);
  TRY(status);
  const size_t n = (size_t)s->options.n_sequences;
  if (!(s->row_versions = mem_alloc(n, sizeof *s->row_versions, "session", err)) ||
      !(s->row_picks = mem_alloc(n, sizeof *s->row_picks, "session", err)))
    return STATUS_FAILED;
  for (size_t i = 0; i < n; i++) s->row_versions[i] = UINT64_MAX;
  return sequences_open(&s->sequences, &s->options, err);
}

Attention state_attention(const BackendState *s, int layer) {
  const ModelConfig *c = &s->loaded->model->config;
  const LayerConfig own = config_layer(c, layer);
  const bool many = s->options.n_sequences > 0, assists = c->draft.kind == DRAFT_GEMMA4;
  return (Attention){
      .n_heads = own.n_heads,
      .n_kv_heads = own.n_kv_heads,
      .head_dim = own.head_dim,
      .n_ctx = page_positions(s->options.target ? &s->options.target->options : &s->options),
      .window = own.window + (assists && own.window > 0), /* as transformers counts windows */
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
      .unit_places = s->unit_places,
      .scale = c->attention_scale,
      .cap = c->attention_cap,
      .sinks = s->loaded->layers[layer].sinks,
  };
}

/* Zeroes the counters of the router, and the numbers of experts' rows from the width to the stride. */
static Status clear_experts(BackendState *s, Error *err) {
  const ExpertConfig experts = most_experts(&s->loaded->model->config);
  if (experts.n_experts == 0) return STATUS_OK;
  const size_t rows = (size_t)s->options.max_chunk * (size_t)experts.n_chosen;
  TRY(cuda_status(cudaMemsetAsync(s->expert_g, 0, rows * (size_t)s->expert_stride * 2, s->loaded->stream),
                  "cannot clear memory", err));
  return cuda_status(cudaMemsetAsync(s->choices.counters, 0, (size_t)s->options.max_chunk * sizeof(unsigned),
                                     s->loaded->stream),
                     "cannot clear memory", err);
}

/* Notes this GPU's own memory in `peers`, and clears the part that the other GPUs write to. */
static Status open_peers(BackendState *s, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  Peers *p = &s->peers;
  if (p->n == 0) return STATUS_OK;
  int major = 0;
  TRY(device_attribute(s->loaded->gpu, cudaDevAttrComputeCapabilityMajor, &major, err));
  p->pushed_rows = major >= 9 ? PUSHED_ROWS : 1;
  p->first_tag = s->first_tag;
  p->parts[0][p->rank] = s->branch;
  p->parts[1][p->rank] = s->branch + (size_t)s->options.max_chunk * (size_t)c->hidden;
  p->logits[p->rank] = s->logits;
  const size_t bytes =
      (size_t)((char *)p->inbox[p->rank] - (char *)s->first_tag) + peers_inbox_bytes(p->n, c->hidden);
  TRY(cuda_status(cudaMemsetAsync(s->first_tag, 0, bytes, s->loaded->stream), "cannot clear memory", err));
  return state_wait(s, err);
}

Status state_open(BackendState *s, Error *err) {
  const BackendModel *loaded = s->loaded;
  const StateOptions *options = &s->options;
  const ModelConfig *config = &loaded->model->config;
  bool separate = false;
  for (int i = 0; i < config->n_layers; i++)
    separate = separate ||
               (loaded->layers[i].gate_up.n_parts > 0 && !loaded->layers[i].gate_up.parts[0].interleaved);
  Buffers memory;
  const size_t bytes = measure(s, config, separate, &memory);
  if (bytes == SIZE_MAX)
    return error_set(err, STATUS_FAILED, "a context of %d tokens is too large", options->n_ctx);
  TRY(cuda_status(cudaMalloc(&s->memory, bytes), "no memory for the context", err));
  buffers_begin(&memory, s->memory);
  place(s, config, separate, &memory);
  TRY(place_layers(s, err));
  const size_t n_sequences = count_sequences(options);
  if (options->n_sequences > 0) TRY(open_sequences(s, err));
  TRY(device_sampler_open(config->vocab_size, count_picks(options), &s->sampler, err));
  const size_t n_ring = n_sequences > STATE_RING ? n_sequences : STATE_RING, ring = n_ring * sizeof *s->ring,
               staging = (size_t)config->vocab_size * sizeof(float);
  const size_t n_mask = n_sequences * (((size_t)config->vocab_size + 63) / 64),
               mask = n_mask * sizeof *s->mask;
  TRY(cuda_status(cudaHostAlloc((void **)&s->ring, ring + mask + staging, cudaHostAllocMapped),
                  "cannot pin memory", err));
  memset(s->ring, 0, ring);
  s->mask = (uint64_t *)(s->ring + n_ring);
  s->staging = s->mask + n_mask;
  const bool fused =
      loaded->decode_step == DECODE_FUSED || (loaded->decode_step == DECODE_AUTO && options->kv != KV_F32);
  TRY(products_open(s, err));
  TRY(streams_open(s, err));
  TRY(index_open(s, err));
  /* A fused step gives a row other bits than the kernels that compute it in a larger step. */
  if (fused && !options->invariant) TRY(fused_open(loaded, options, s->taps, &s->fused, err));
  TRY(clear_experts(s, err));
  TRY(open_peers(s, err));
  return cuda_status(
      cudaMemsetAsync(s->workspace, 0, largest_sizes(config, s->unit_places).workspace, loaded->stream),
      "cannot clear memory", err);
}

/* --- the KV cache */

float *state_recurrent(const BackendState *s, int layer) {
  return s->recurrent + s->layers[layer].recurrent;
}

float *state_of_ngrams(const BackendState *s, int layer) {
  const ModelConfig *c = &s->loaded->model->config;
  const size_t own = ngrams_before(c, layer + 1) - ngrams_before(c, layer);
  return s->recurrent + states_before(c, layer + 1) - own;
}

float *state_of_sequence(const BackendState *s, int sequence) {
  return s->recurrent + (size_t)sequence * state_floats(&s->loaded->model->config);
}

Status state_wait(BackendState *s, Error *err) {
  Reduce *reduce = s->loaded->reduce;
  if (reduce) return reduce->wait(reduce, s->loaded->stream, err);
  return cuda_status(cudaStreamSynchronize(s->loaded->stream), "a step failed", err);
}

/* Copies rows of n_heads KV heads between a part of a layer's cache and the host, where heads are n_rows rows
 * apart. */
static Status copy_rows(BackendState *s, TokenRange span, int layer, CachePart part, int n_heads, char *host,
                        size_t n_rows, bool to_host, Error *err) {
  const LayerConfig own = config_layer(&s->loaded->model->config, layer);
  const size_t row = part_bytes(s->options.kv, own.head_dim, part), run = (size_t)span.n_tokens * row,
               host_pitch = n_rows * row, cache_pitch = (size_t)page_positions(&s->options) * row;
  char *cache = (char *)s->layers[layer].cache[part] + (size_t)span.pos * row;
  const cudaError_t error =
      to_host ? cudaMemcpy2DAsync(host, host_pitch, cache, cache_pitch, run, (size_t)n_heads,
                                  cudaMemcpyDeviceToHost, s->loaded->stream)
              : cudaMemcpy2DAsync(cache, cache_pitch, host, host_pitch, run, (size_t)n_heads,
                                  cudaMemcpyHostToDevice, s->loaded->stream);
  return cuda_status(error, "cannot copy keys and values", err);
}

/* Heads are page_positions() rows apart in the cache, and n_stored rows on the host (0: as many as are
 * copied). The host has rows of values even where the cache has keys alone, which are then the values. */
Status state_kv_copy(BackendState *s, TokenRange span, int layer, int n_stored, char *host, int first_head,
                     int n_heads, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const LayerConfig own = config_layer(c, layer);
  const size_t n_rows = n_stored > 0 ? (size_t)n_stored : (size_t)span.n_tokens;
  const bool to_host = n_stored == 0;
  TRY(cuda_status(cudaSetDevice(s->loaded->gpu), "cannot use it", err));
  for (CachePart part = 0; part < INDEX_KEYS; part++) {
    const size_t pitch = n_rows * part_bytes(s->options.kv, own.head_dim, part);
    if (pitch == 0) continue;
    char *rows = host + (size_t)first_head * pitch;
    host += (size_t)n_heads * pitch;
    if (part == VALUE_SCALES && keys_are_values(c)) { /* the cache has no such scales */
      if (to_host) memset(rows, 0, (size_t)own.n_kv_heads * pitch);
      continue;
    }
    TRY(copy_rows(s, span, layer, part, own.n_kv_heads, rows, n_rows, to_host, err));
    if (own.n_cache_heads == own.n_kv_heads) continue;
    const CachePart index = part == KEYS ? INDEX_KEYS : INDEX_VALUES;
    TRY(copy_rows(s, span, layer, index, 1, host, n_rows, to_host, err));
    host += pitch;
  }
  return state_wait(s, err);
}

Status state_kv_read(BackendState *s, TokenRange span, int layer, void *out, Error *err) {
  const int n_heads = config_layer(&s->loaded->model->config, layer).n_kv_heads;
  return state_kv_copy(s, span, layer, 0, out, 0, n_heads, err);
}

Status state_kv_write(BackendState *s, TokenRange span, int layer, int n_stored, const void *from,
                      Error *err) {
  const int n_heads = config_layer(&s->loaded->model->config, layer).n_kv_heads;
  return state_kv_copy(s, span, layer, n_stored, (char *)from, 0, n_heads, err);
}

/* --- recurrent states: slot -1 is the current one */

static float *slot_states(const BackendState *s, int slot) {
  return state_of_sequence(s, slot < 0 ? 0 : (int)count_sequences(&s->options) + slot);
}

static Status copy_states(BackendState *s, int to, int from, Error *err) {
  const size_t bytes = state_floats(&s->loaded->model->config) * sizeof(float);
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

/* A run of n numbers in a layer's recurrent state. own: the run's offset in this GPU's state; first: the
 * offset, in the state of a model on one GPU, at which the runs of all GPUs follow one another. */
typedef struct {
  size_t own, first, n;
} Run;
enum { MAX_RUNS = 3 };

/* Lists the runs of a GPU. A model with n-grams always is on one GPU alone. */
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
                 first = states_before(part, layer + 1) - states_before(part, layer) - floats;
    runs[n++] = (Run){first, first, floats};
  }
  return n;
}

Status state_copy_kept(BackendState *s, int slot, int layer, void *host, bool to_host, int rank, int n_gpus,
                       Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  float *kept = slot_states(s, slot) + s->layers[layer].recurrent;
  Run runs[MAX_RUNS];
  const int n_runs = list_runs(c, layer, n_gpus, runs);
  TRY(cuda_status(cudaSetDevice(s->loaded->gpu), "cannot use it", err));
  for (int i = 0; i < n_runs; i++) {
    float *own = kept + runs[i].own, *place = (float *)host + runs[i].first + (size_t)rank * runs[i].n;
    const size_t bytes = runs[i].n * sizeof(float);
    const cudaError_t error =
        to_host ? cudaMemcpyAsync(place, own, bytes, cudaMemcpyDeviceToHost, s->loaded->stream)
                : cudaMemcpyAsync(own, place, bytes, cudaMemcpyHostToDevice, s->loaded->stream);
    TRY(cuda_status(error, "cannot copy recurrent states", err));
  }
  return state_wait(s, err);
}

Status state_read(BackendState *s, int slot, int layer, void *out, Error *err) {
  memset(out, 0, state_recurrent_bytes(&s->loaded->model->config, layer)); /* clears the gaps, too */
  return state_copy_kept(s, slot, layer, out, true, 0, 1, err);
}

Status state_write(BackendState *s, int slot, int layer, const void *from, Error *err) {
  return state_copy_kept(s, slot, layer, (void *)from, false, 0, 1, err);
}

/* --- hidden states for a drafter: as the residual stream, not divided by residual_scale */

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
  return attention_copy_page(s->cache[KEYS], s->caches, s->loaded->model->config.n_layers * CACHE_PARTS, from,
                             to, s->loaded->stream, err);
}
