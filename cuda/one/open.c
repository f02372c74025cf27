/* open.c - see open.h: sizes and addresses of a session's buffers. */
#include "cuda/one/open.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/kernels/attention/chosen.h"
#include "cuda/kernels/delta/delta.h"
#include "cuda/kernels/ops/index.h"
#include "cuda/kernels/ops/streams_few.h"
#include "cuda/one/layers/index.h"
#include "cuda/one/layers/streams.h"
#include "cuda/one/products.h"

static int attention_outputs(const ModelConfig *c, const LayerConfig *own) {
  if (c->latent.kv_rank > 0) return 0; /* latent_in has them */
  const int index = c->indexer.block > 0 ? (c->indexer.n_heads + 1) * c->indexer.head_dim : 0;
  return state_index_outputs(own) + index;
}

/* Rows of logits that the sampler picks from at once. */
static int count_picks(const StateOptions *o) {
  if (o->n_sequences > 0) return o->n_sequences;
  return o->max_logit_rows < STATE_ROW_PICKS ? o->max_logit_rows : STATE_ROW_PICKS;
}

static size_t most(size_t a, size_t b) {
  return a > b ? a : b;
}

/* The length of a row of expert_g: the experts' width, padded as LinearCall requires for
 * DeviceLinear.summed. */
static int expert_row(const ModelConfig *c) {
  return (c->experts.width + 127) / 128 * 128;
}

/* The experts, and one more for the shared expert: weights.c can lay that out as an expert. */
static ExpertConfig most_experts(const ModelConfig *c) {
  ExpertConfig most = c->experts;
  if (most.shared_width > 0) most.n_experts++, most.n_chosen++;
  return most;
}

/* The largest of each size over all layers: numbers of a row, but workspaces in bytes; `halves`: numbers in a
 * cache of keys that attention reads as fp16; `pairs`, by LayerRope: pairs that a rope rotates. */
typedef struct {
  size_t heads, beside, intermediate, workspace, index_workspace, halves;
  int projections, pairs[2];
} LargestSizes;

static LargestSizes largest_sizes(const ModelConfig *c, const StateOptions *o, int unit_partials) {
  const bool has_index = c->indexer.block > 0;
  LargestSizes sizes = {.heads = (size_t)padded_row(c->delta.n_value_heads * c->delta.value_dim),
                        .intermediate = (size_t)padded_row(c->per_layer_width),
                        .projections = delta_outputs(&c->delta),
                        .pairs = {c->rope.rotary_dim / 2}};
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
                                                        c->latent.kv_rank, unit_partials));
    if (has_index && own.kind == LAYER_ATTENTION)
      sizes.index_workspace =
          most(sizes.index_workspace,
               chosen_workspace_bytes(own.n_heads, own.head_dim, (int)index_most_chosen(&c->indexer),
                                      o->max_chunk < INDEX_ROWS ? o->max_chunk : INDEX_ROWS));
    if (o->kv == KV_Q8)
      sizes.halves = most(sizes.halves, state_cache_rows(c, o, layer, KEYS) * (size_t)own.head_dim);
    const int projections = attention_outputs(c, &own) + (own.delta_beside ? delta_outputs(&c->delta) : 0);
    if (own.delta_beside) sizes.beside = (size_t)padded_row(c->delta.n_value_heads * c->delta.value_dim);
    if (sizes.projections < projections) sizes.projections = projections;
    if (own.rope == ROPE_LOCAL) sizes.pairs[ROPE_LOCAL] = c->local_rope.rotary_dim / 2;
  }
  return sizes;
}

/* The argument of attention_workspace_bytes(). With `invariant`: the most partial results that an attention
 * layer makes in a step. Else 0, which stands for the number that attention makes without `invariant`. */
static int unit_partials(const ModelConfig *c, const StateOptions *o) {
  int most = 0;
  for (int layer = 0; o->invariant && layer < c->n_layers; layer++) {
    const LayerConfig own = config_layer(c, layer);
    if (own.kind != LAYER_ATTENTION) continue;
    const Attention a = {.n_heads = own.n_heads,
                         .n_kv_heads = own.n_kv_heads,
                         .head_dim = own.head_dim,
                         .value_dims = c->latent.kv_rank};
    const int partials =
        attention_fixed_partials(attention_unit_blocks(&a), o->n_sequences + GUESS_ROWS, o->n_ctx);
    if (most < partials) most = partials;
  }
  return most;
}

/* The length of the longest row of x that is gathered for a matrix with permuted inputs (Linear.order);
 * supported.c says which matrices can have these. */
static size_t widest_input(const BackendState *s, const ModelConfig *c, const LargestSizes *sizes) {
  const int ranks[] = {s->h_stride, padded_row(c->latent.q_rank), padded_row(c->delta.gate_rank),
                       padded_row(c->experts.latent), padded_row(c->altup.laurel_rank)};
  size_t widest = most(most(sizes->heads, sizes->beside), sizes->intermediate);
  for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) widest = most(widest, (size_t)ranks[i]);
  return widest;
}

/* A session's memory on the device, and its pinned memory on the host. */
typedef struct {
  Buffers device, pinned;
} Memory;

/* Sets the sizes of a session, and takes all its arrays. Returns the bytes that these need on the device;
 * SIZE_MAX: too many. */
static size_t lay_out(BackendState *s, const ModelConfig *c, bool separate_gate_up, Memory *memory) {
  const StateOptions *o = &s->options;
  const LatentConfig *latent = &c->latent;
  const DraftConfig *draft = &c->draft;
  const ExpertConfig experts = most_experts(c);
  s->unit_partials = unit_partials(c, o);
  const LargestSizes sizes = largest_sizes(c, o, s->unit_partials);
  const HostRows host = products_host_rows(s->loaded, o->max_chunk);
  /* The first layer of EAGLE-3 takes an embedding and a state. */
  s->h_stride = padded_row(draft->kind == DRAFT_EAGLE3 ? 2 * c->hidden : c->hidden);
  s->projection_stride = padded_row(sizes.projections);
  s->expert_stride = expert_row(c);
  s->host_rows = host.n;
  const size_t chunk = (size_t)o->max_chunk, rows = (size_t)o->max_logit_rows;
  const bool own_norms = c->experts.norms == EXPERTS_OWN_NORMS, own_input = own_norms || experts.scales_input,
             wide = experts.n_experts > 0 && (c->parallel || norms_have_biases(c)),
             separate_norms = c->norms != NORM_BEFORE || c->experts.norms == EXPERTS_POST_NORM ||
                              c->per_layer_width > 0 || draft->kind;
  const size_t branches = c->split > 1 ? 2 + own_norms : separate_norms,
               apart = own_norms ? (c->split > 1 ? 2 : 1) : 0;
  const int widest = c->hidden > draft->target_hidden ? c->hidden : draft->target_hidden,
            draft_width = draft->n_states * draft->target_hidden;
  const size_t choices = experts.n_experts > 0 ? chunk * (size_t)experts.n_chosen : 0,
               few = chunk < EXPERTS_FEW_TOKENS ? chunk : EXPERTS_FEW_TOKENS,
               parts = choices ? (size_t)experts_few_parts((int)few * experts.n_chosen) : 0;
  const size_t latent_heads = latent->kv_rank ? (size_t)c->n_heads : 0,
               head_x_row = most(linear_heads_stride(latent->nope_dim), (size_t)latent->kv_rank),
               delta_bytes = c->delta.n_key_heads > 0 ? delta_workspace_bytes(&c->delta, o->max_chunk) : 0;
  const StreamConfig *streams = &c->streams;
  const size_t streams_row = (size_t)streams->n * (size_t)c->hidden,
               altup_row = (size_t)c->altup.n * (size_t)c->hidden,
               mix_rows = streams->n > 0 ? most(chunk, rows) : 0,
               few_mixes = chunk < STREAMS_FEW_ROWS ? chunk : STREAMS_FEW_ROWS,
               ngram_rows = c->ngrams.longest > 0 ? chunk : 0;
  const size_t index_rows = c->indexer.block == 0 ? 0 : chunk < INDEX_ROWS ? chunk : INDEX_ROWS;
  const size_t operands[PLANES_COUNT] = {(size_t)c->hidden, sizes.heads, sizes.intermediate};
  const size_t n_ring = most(2 * state_sequences(o), STATE_RING), n_picks = (size_t)count_picks(o),
               mask_words = ((size_t)c->vocab_size + 63) / 64;
  Buffers *m = &memory->device;
#define LIVE(first, last)              buffers_live(m, OP_##first, OP_##last);
#define ZEROS                          m->zeros = true;
#define PINNED                         m = &memory->pinned;
#define BUFFER(type, member, n, width) buffers_add(m, &s->member, (size_t)(n), (size_t)(width), sizeof(type));
#define BUFFERS(type, member, count, n, width)                                                               \
  for (int i = 0; i < (count); i++) buffers_add(m, &s->member[i], (size_t)(n), (size_t)(width), sizeof(type));
#include "cuda/one/buffers.def"
  return buffers_fit(&memory->device, 256);
}

/* Notes where each layer's cache and recurrent state lie, for the operations of a step. */
static void locate_layers(BackendState *s) {
  const ModelConfig *c = &s->loaded->model->config;
  for (int i = 0; i < c->n_layers; i++) {
    const int from = config_layer(c, i).kv_layer;
    s->layers[i].recurrent = state_floats_before(c, s->options.states, i);
    if (s->options.target)
      memcpy(s->layers[i].cache, s->options.target->layers[from].cache, sizeof s->layers[i].cache);
    for (CacheArray array = 0; array < CACHE_ARRAYS && !s->options.target; array++)
      s->layers[i].cache[array] =
          (array < INDEX_KEYS ? s->cache[array] : s->index_cache[array - INDEX_KEYS]) +
          state_array_before(c, &s->options, from, array);
    if (state_keys_are_values(c)) s->layers[i].cache[VALUES] = s->layers[i].cache[KEYS];
  }
}

/* Upper bound, before the weights are known: assumes separate gate and up, and a fused step unless
 * `invariant`. */
size_t state_bytes(const ModelConfig *config, const StateOptions *options) {
  BackendState measured = {.options = *options};
  Memory memory = {0};
  const size_t bytes = lay_out(&measured, config, true, &memory);
  if (bytes == SIZE_MAX) return SIZE_MAX;
  const size_t fused = options->invariant ? 0 : fused_bytes(config);
  return bytes + fused;
}

void state_close(BackendState *s) {
  if (!s) return;
  cudaStreamSynchronize(s->loaded->stream);
  step_graphs_close(&s->graphs);
  step_graphs_close(&s->draft_graphs);
  fused_close(s->fused);
  sequences_close(&s->sequences);
  cudaFreeHost(s->pinned);
  cudaFree(s->memory);
  for (int i = 0; i < 2; i++)
    if (s->row_picks[i].made) cudaEventDestroy(s->row_picks[i].made);
  free(s);
}

/* Notes which units and tiles the layers' attention needs in a step, and where the layers' caches lie. */
static Status open_sequences(BackendState *s, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  for (int i = 0; i < c->n_layers; i++) {
    const LayerConfig own = config_layer(c, i);
    for (CacheArray array = 0; array < CACHE_ARRAYS; array++) {
      const bool has = state_cache_rows(c, &s->options, i, array) > 0;
      const size_t n_heads = array >= INDEX_KEYS ? 1 : (size_t)own.n_kv_heads,
                   rows = has ? n_heads * KV_PAGE_TOKENS : 0;
      s->paged_arrays[i * CACHE_ARRAYS + array] =
          (PagedArray){(size_t)((char *)s->layers[i].cache[array] - s->memory),
                       rows * state_array_bytes(s->options.kv, own.head_dim, array)};
    }
    if (own.kind != LAYER_ATTENTION) continue;
    const Attention attention = state_attention(s, i);
    const int blocks = attention_unit_blocks(&attention), tokens = attention_tile_tokens(&attention);
    TRY(sequences_add_tile_size(&s->sequences, tokens, err));
    if (tokens > 0 && blocks > s->sequences.unit_blocks) s->sequences.unit_blocks = blocks;
  }
  const size_t n = (size_t)s->options.n_sequences;
  for (int i = 0; i < 2; i++) {
    RowPicks *of = &s->row_picks[i];
    of->picks = s->picks + (size_t)i * n;
    of->slots = s->ring + (size_t)i * n;
    TRY(cuda_status(cudaEventCreateWithFlags(&of->made, cudaEventDisableTiming), "cannot make an event",
                    err));
  }
  for (size_t i = 0; i < n; i++) s->row_versions[i] = UINT64_MAX;
  return sequences_open(&s->sequences, &s->options, s->pinned_rows, err);
}

void state_reach(BackendState *s, const BackendState *peer) {
  Peers *to = &s->peers;
  const int i = peer->peers.rank;
  if (to->n_sms > peer->peers.n_sms) to->n_sms = peer->peers.n_sms;
  if (to->pushed_rows > peer->peers.pushed_rows) to->pushed_rows = peer->peers.pushed_rows;
  to->flags[i] = peer->peer_flags;
  to->inbox[i] = peer->peer_inbox;
  to->parts[0][i] = peer->branch;
  to->parts[1][i] =
      peer->branch + (size_t)peer->options.max_chunk * (size_t)peer->loaded->model->config.hidden;
  to->x[i] = peer->x;
  to->h[i] = peer->h;
  to->logits[i] = peer->logits;
}

/* Notes what this GPU itself gives to `peers`. */
static Status open_peers(BackendState *s, Error *err) {
  const int n_gpus = s->loaded->model->config.split;
  Peers *p = &s->peers;
  int major = 0;
  if (n_gpus <= 1) return STATUS_OK;
  p->n = n_gpus;
  TRY(device_attribute(s->loaded->gpu, cudaDevAttrComputeCapabilityMajor, &major, err));
  p->pushed_rows = major >= 9 ? PUSHED_ROWS : 1;
  TRY(device_attribute(s->loaded->gpu, cudaDevAttrMultiProcessorCount, &p->n_sms, err));
  p->first_tag = s->first_tag;
  state_reach(s, s);
  return state_wait(s, err);
}

/* Sets all pointers into the memory, and clears the buffers that begin as zeros. */
static Status point(BackendState *s, const Memory *memory, Error *err) {
  const Buffers *device = &memory->device;
  const ExpertConfig experts = most_experts(&s->loaded->model->config);
  buffers_point(device, s->memory);
  buffers_point(&memory->pinned, s->pinned);
  step_rows_point(&s->rows, &s->options, s->row_memory);
  if (experts.n_experts > 0)
    experts_place_choices(&s->choices, &experts, s->options.max_chunk, s->choice_memory);
  for (int i = 0; i < device->n; i++)
    if (device->all[i].zeros && device->all[i].bytes > 0)
      TRY(cuda_status(
          cudaMemsetAsync(s->memory + device->all[i].at, 0, device->all[i].bytes, s->loaded->stream),
          "cannot clear memory", err));
  return STATUS_OK;
}

Status state_open(BackendState *s, Error *err) {
  const BackendModel *loaded = s->loaded;
  const StateOptions *options = &s->options;
  const ModelConfig *config = &loaded->model->config;
  bool separate = false;
  for (int i = 0; i < config->n_layers; i++)
    separate = separate ||
               (loaded->layers[i].gate_up.n_parts > 0 && !loaded->layers[i].gate_up.parts[0].interleaved);
  Memory memory = {0};
  const size_t bytes = lay_out(s, config, separate, &memory), pinned = buffers_fit(&memory.pinned, 256);
  if (bytes == SIZE_MAX || pinned == SIZE_MAX)
    return error_set(err, STATUS_FAILED, "a context of %d tokens is too large", options->n_ctx);
  TRY(cuda_status(cudaMalloc((void **)&s->memory, bytes), "no memory for the context", err));
  TRY(cuda_status(cudaHostAlloc(&s->pinned, pinned, cudaHostAllocMapped), "cannot pin memory", err));
  TRY(point(s, &memory, err));
  memset(s->pinned, 0, pinned);
  locate_layers(s);
  streams_open(s);
  s->sampler = (DeviceSampler){.vocab_size = config->vocab_size,
                               .scores = s->sampler_scores,
                               .notes = s->sampler_notes,
                               .allowed = s->sampler_allowed,
                               .controls = s->sampler_controls,
                               .picks = s->sampler_picks,
                               .tokens = s->sampler_tokens,
                               .pinned = {s->sampler_pinned[0], s->sampler_pinned[1]}};
  TRY(device_sampler_reset(&s->sampler, count_picks(options), loaded->stream, err));
  if (options->n_sequences > 0) TRY(open_sequences(s, err));
  const bool fused =
      loaded->decode_step == DECODE_FUSED || (loaded->decode_step == DECODE_AUTO && options->kv != KV_F32);
  /* A fused step gives a row other bits than the kernels that compute it in a larger step. */
  if (fused && !options->invariant && options->states == STATES_F32)
    TRY(fused_open(loaded, options, s->taps, &s->fused, err));
  return open_peers(s, err);
}
