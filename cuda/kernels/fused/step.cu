/* step.cu - host side of the fused kernels: their device memory and their launches. */
#include "cuda/kernels/fused/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/kernels/delta/delta.h"
#include "cuda/kernels/fused/block.cuh"
#include "cuda/kernels/fused/experts/folded_router.h"
#include "cuda/kernels/ptx/launch.cuh"
#include "cuda/kernels/ptx/tensor_map.cuh"

using step::Args;
using step::Kernel;
using step::LatentLayer;
using step::Layer;
using step::VariedLayer;

struct Step {
  Args args;
  mutable unsigned launches;
};

static Kernel kernel_of(const StepPlan &plan, bool debug, bool taps, bool several) {
  if (several) return step::few_sequences_kernel(plan.shape, plan.tokens, debug);
  if (step_is_varied(&plan.shape)) return step::one_varied_kernel(plan.shape);
  if (step_is_latent(&plan.shape)) return step::one_latent_kernel(plan.shape);
  if (step_parts(&plan.shape) > STEP_FP4_PARTS) return step::one_bytes_kernel(plan.shape, debug);
  return plan.tokens == 1 ? step::one_token_kernel(plan.shape, debug, taps)
                          : step::few_tokens_kernel(plan.shape, plan.tokens, debug, taps);
}

bool step_keeps_taps(const StepShape *s) {
  return s->group == STEP_GROUP && s->head_dim == 128 && s->n_experts == 0 && s->n_gpus <= 1 &&
         s->n_layers <= 64 && !s->q8;
}

static size_t shared_bytes(const StepPlan &plan) {
  return (size_t)plan.n_slots * plan.slot_bytes + plan.off.total;
}

static int major_of(int gpu) {
  int major = 0;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu) == cudaSuccess ? major : 0;
}

bool step_measured(int gpu) {
  return major_of(gpu) == 9;
}

static cudaLaunchConfig_t launch_config(int n_clusters, size_t shared, cudaStream_t stream,
                                        cudaLaunchAttribute attributes[2]) {
  attributes[0] = cluster_attribute(STEP_BLOCKS);
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3((unsigned)(n_clusters * STEP_BLOCKS));
  config.blockDim = dim3(STEP_ALL_THREADS);
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  return config;
}

int step_clusters(int gpu, size_t shared) {
  int n = 0;
  if (major_of(gpu) < 9) return 0;
  StepShape any = {};
  /* Any kernel will do, as all have the same number of threads. */
  any.group = STEP_GROUP, any.head_dim = STEP_MAX_HEAD_DIM;
  const Kernel kernel = step::one_token_kernel(any, false, false);
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared) != cudaSuccess)
    return 0;
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config = launch_config(STEP_MAX_CLUSTERS, shared, 0, attributes);
  if (cudaOccupancyMaxActiveClusters(&n, kernel, &config) != cudaSuccess) {
    cudaGetLastError(); /* a chip without clusters is not a failure */
    return 0;
  }
  return n < STEP_MAX_CLUSTERS ? n : STEP_MAX_CLUSTERS;
}

/* --- device memory: table of layers (two tables with varied experts or latent attention), the layers'
 * vectors, StepDelta of each layer, folded routers, words that clusters exchange, the blocks' best logits
 * (leave_best()), Args.bounds, tensor maps */

static int vectors_stride(const StepShape &s) {
  const int more = step_is_varied(&s) ? s.hidden + s.n_experts + s.n_heads : 0;
  if (step_is_latent(&s)) return 2 * s.hidden + s.q_rank + STEP_LATENT + s.n_experts;
  return 2 * s.hidden + (2 + s.n_heads + 2 * s.n_kv_heads) * s.head_dim + more;
}

static size_t layers_bytes(const StepShape &s) {
  const size_t more = step_is_varied(&s) ? sizeof(VariedLayer) : step_is_latent(&s) ? sizeof(LatentLayer) : 0;
  return align_up((size_t)s.n_layers * (sizeof(Layer) + more));
}
static size_t vectors_bytes(const StepShape &s) {
  return align_up((size_t)(s.n_layers + 1) * (size_t)vectors_stride(s) * sizeof(float));
}

static size_t deltas_bytes(const StepShape &s) {
  return s.delta_layers == 0 ? 0 : align_up((size_t)s.n_layers * sizeof(StepDelta));
}

static const DeviceLinear *projections_of(const StepLayer *l) {
  return &l->qkv[l->delta.conv ? l->n_qkv - 1 : 0];
}

/* The distance from the first row of b to the first row of a, in rows. */
static long first_row_of_a(const StepLayer *l, const StepShape &s) {
  const DeviceLinear *gates = l->qkv;
  return l->n_qkv == 2
             ? s.n_value_heads
             : ((const char *)gates[1].dense - (const char *)gates[0].dense) / 2 / (long)gates[0].stride;
}

static Layer layer_of(const StepLayer *from, const float *folded, const unsigned char *maps) {
  const DeviceLinear *matrices[] = {projections_of(from), from->o, from->gate_up, from->down};
  Layer l = {};
  l.router = (const unsigned char *)from->router->dense,
  l.shared_gate = (const unsigned char *)from->shared_gate->dense;
  l.folded_router = folded;
  for (int i = 0; i < step::MATRICES; i++) {
    const DeviceLinear &w = *matrices[i];
    const bool int8 = w.type == WEIGHT_INT8;
    l.matrices[i] = {int8 || w.type == WEIGHT_F16 ? maps + i * step::kMaps * step::kMapBytes
                                                  : (const unsigned char *)w.tiles,
                     w.type == WEIGHT_FP8 && w.group >= w.n_in ? NULL : (const unsigned char *)w.scales,
                     (const unsigned char *)(int8                         ? (const void *)w.scales
                                             : weight_has_factors(w.type) ? (const void *)w.factors
                                                                          : w.zeros)};
  }
  return l;
}

static size_t layer_maps_bytes(const StepShape &s) {
  return step_in_rows(step_attn_parts(&s)) ? (size_t)step::MATRICES * step::kMaps * step::kMapBytes : 0;
}

/* Makes the tensor maps of a matrix: for boxes of 1, 2 ... kMaps groups, but no more groups than the matrix
 * has. */
static Status make_maps(const DeviceLinear &w, unsigned char *to, Error *err) {
  static_assert(sizeof(CUtensorMap) == step::kMapBytes, "loading warps count on it");
  const bool int8 = w.type == WEIGHT_INT8;
  const cuuint32_t columns = int8 ? kTileIn / 2 : kTileIn; /* of a tile, in units of two bytes */
  const cuuint64_t row = int8 ? (cuuint64_t)w.n_in : w.stride * 2, tiles = (cuuint64_t)w.n_in / kTileIn,
                   rows = align_up((size_t)w.n_out, kTileOut);
  for (cuuint32_t i = 1; i <= step::kMaps && 2 * i <= tiles + tiles % 2; i++, to += step::kMapBytes) {
    CUtensorMap map; /* an aligned one, as the driver demands */
    TRY(map_boxes(int8 ? w.tiles : w.dense, {columns, rows, tiles}, {row, columns * 2},
                  {columns, kTileOut, 2 * i}, int8 ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
                  w.name, &map, err));
    memcpy(to, &map, sizeof map);
  }
  return STATUS_OK;
}

/* Writes the scales of 1 within Args.bounds (kOnesAt), and waits for the stream. */
static Status copy_ones(uint64_t *bounds, cudaStream_t stream, Error *err) {
  uint16_t ones[(step::kBoundsWords - step::kOnesAt) * 4];
  for (uint16_t &one : ones) one = 0x3c00;
  cudaError_t failed =
      cudaMemcpyAsync(bounds + step::kOnesAt, ones, sizeof ones, cudaMemcpyHostToDevice, stream);
  if (!failed) failed = cudaStreamSynchronize(stream);
  return cuda_status(failed, "cannot copy scales", err);
}

/* Copies `bytes` bytes to the device, waits for the stream, and frees `from`, which mem_alloc() gave. */
static Status copy_bytes(void *from, size_t bytes, void *to, cudaStream_t stream, Error *err) {
  cudaError_t failed = cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream);
  if (!failed) failed = cudaStreamSynchronize(stream);
  free(from);
  return cuda_status(failed, "cannot copy the layers' places", err);
}

/* Copies a table whose entry for layer i is entry_of(i), and waits for the stream. */
template <class Entry, class EntryOf>
static Status copy_table(const StepShape &s, Entry *to, cudaStream_t stream, Error *err, EntryOf entry_of) {
  Entry *all = (Entry *)mem_alloc((size_t)s.n_layers, sizeof *all, "layers", err);
  if (!all) return STATUS_FAILED;
  for (int i = 0; i < s.n_layers; i++) all[i] = entry_of(i);
  return copy_bytes(all, (size_t)s.n_layers * sizeof *all, to, stream, err);
}

/* Copies the tensor maps of all layers, if weights need them, and waits for the stream. */
static Status copy_maps(const StepLayer *from, const StepShape &s, void *to, cudaStream_t stream,
                        Error *err) {
  const size_t of_layer = layer_maps_bytes(s), of_matrix = of_layer / step::MATRICES;
  Status status = STATUS_OK;
  if (of_layer == 0) return STATUS_OK;
  unsigned char *maps = (unsigned char *)mem_alloc((size_t)s.n_layers, of_layer, "layers", err);
  if (!maps) return STATUS_FAILED;
  for (int i = 0; i < s.n_layers * step::MATRICES && !status; i++) {
    const StepLayer &l = from[i / step::MATRICES];
    const DeviceLinear *matrices[] = {projections_of(&l), l.o, l.gate_up, l.down};
    if (matrices[i % step::MATRICES]->type != WEIGHT_FP4) /* FP4 experts beside fp16 have no tensor maps */
      status = make_maps(*matrices[i % step::MATRICES], maps + (size_t)i * of_matrix, err);
  }
  if (!status) return copy_bytes(maps, (size_t)s.n_layers * of_layer, to, stream, err);
  free(maps);
  return status;
}

static Status copy_vectors(const StepModel *m, const StepShape &s, float *to, cudaStream_t stream,
                           Error *err) {
  cudaError_t failed = cudaSuccess;
  auto copy = [&](const float *from, int n, int room) {
    if (from && !failed)
      failed = cudaMemcpyAsync(to, from, (size_t)n * sizeof *to, cudaMemcpyDeviceToDevice, stream);
    to += room;
  };
  const int width = step_width(&s), qkv = (s.n_heads + 2 * s.n_kv_heads) * s.head_dim;
  for (int i = 0; i < s.n_layers; i++) {
    const StepLayer &l = m->layers[i];
    copy(l.attn_norm, width, s.hidden), copy(l.mlp_norm, width, s.hidden);
    if (step_is_latent(&s)) {
      copy(l.q_a_norm, s.q_rank, s.q_rank), copy(l.kv_a_norm, STEP_LATENT, STEP_LATENT);
      copy(l.choice_bias, s.n_experts, s.n_experts);
      continue;
    }
    copy(l.q_norm, s.head_dim, s.head_dim), copy(l.k_norm, s.head_dim, s.head_dim);
    copy(l.qkv[0].bias, qkv, qkv);
    if (!step_is_varied(&s)) continue;
    copy(l.o->bias, width, s.hidden);
    copy(l.router->bias, s.n_experts, s.n_experts);
    copy(l.sinks, s.n_heads, s.n_heads);
  }
  copy(m->final_norm, width, s.hidden);
  return cuda_status(failed, "cannot copy the layers' norms", err);
}

static size_t routers_bytes(const StepShape &s, int tokens) {
  return tokens == 1 ? align_up(folded_bytes(&s)) : 0;
}

/* best_words(): words of the best logits of all GPUs' blocks. best_bytes(): in a step of one token, bytes for
 * the best_words() and for Args.bounds after them. */
static size_t best_words(const StepShape &s) {
  return (size_t)(s.n_gpus > 1 ? s.n_gpus : 1) * step::STEP_BEST_WORDS;
}
static size_t best_bytes(const StepShape &s, int tokens) {
  return tokens == 1 ? align_up((best_words(s) + step::kBoundsWords) * sizeof(uint64_t)) : 0;
}

size_t step_bytes(const StepShape *s, int tokens) {
  return layers_bytes(*s) + vectors_bytes(*s) + deltas_bytes(*s) + routers_bytes(*s, tokens) +
         align_up(step_memory(s, tokens)) + best_bytes(*s, tokens) +
         (tokens == 1 ? (size_t)s->n_layers * layer_maps_bytes(*s) : 0);
}

/* Sets how many stages are prefetched. The fewer clusters have a KV head, the longer the other clusters wait.
 * Prefetching gains 1% to 4% if 4 of 15 clusters have one. If 8 have one, it gains from 4% to -8%, depending
 * on the number of stages and the machine (LOG.md, "L2 and prefetches"). */
static Status set_prefetch(const StepPlan &plan, int wanted, int *prefetch_stages, Error *err) {
  int gpu = 0, l2 = 0;
  *prefetch_stages = wanted > 0 ? wanted : 0;
  if (plan.shape.n_experts > 0) *prefetch_stages = 0;              /* the chosen experts are known too late */
  if (plan.shape.head_dim == STEP_WIDE_HEAD) *prefetch_stages = 0; /* the last warp has other work */
  if (wanted != 0 || plan.tokens > 1 || plan.shape.n_experts > 0 || plan.shape.head_dim == STEP_WIDE_HEAD ||
      2 * plan.shape.n_kv_heads >= plan.shape.n_clusters)
    return STATUS_OK;
  TRY(cuda_status(cudaGetDevice(&gpu), "one kernel a step", err));
  TRY(cuda_status(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, gpu), "one kernel a step", err));
  const int stages = l2 / 10 * 7 / (plan.shape.n_clusters * STEP_BLOCKS) / plan.stage_bytes;
  *prefetch_stages = stages < STEP_PREFETCH_STAGES ? stages : (int)STEP_PREFETCH_STAGES;
  return STATUS_OK;
}

/* Fills `deltas` with pointers to the vectors and gates of each layer, waits for the stream, and sets
 * *mixers. */
static Status set_mixers(StepMixers *mixers, const StepModel *m, const StepShape &s, StepDelta *deltas,
                         cudaStream_t stream, Error *err) {
  int first = 0;
  if (s.delta_layers == 0) return STATUS_OK;
  TRY(copy_table(s, deltas, stream, err, [&](int i) { return m->layers[i].delta; }));
  while (!step_is_delta(&s, first)) first++;
  const DeviceLinear &gates = m->layers[first].qkv[0];
  mixers->layers = deltas;
  mixers->gates_stride = (int)gates.stride;
  mixers->gates_bf16 = gates.type == WEIGHT_BF16;
  mixers->state_floats = delta_state_floats(m->delta, STATES_F32);
  mixers->input_floats = delta_input_floats(m->delta);
  mixers->q_scale = (float)(1 / sqrt((double)m->delta->key_dim));
  mixers->first_a = (int)first_row_of_a(&m->layers[first], s);
  for (int i = first; i < s.n_layers; i++)
    if (step_is_delta(&s, i) && first_row_of_a(&m->layers[i], s) != mixers->first_a)
      return error_set(err, STATUS_FAILED, "one kernel a step: gates of the delta rule lie apart");
  return STATUS_OK;
}

/* Sets the arguments that come from the model. */
static void set_model(Args *a, const StepModel *m) {
  a->head_norms = m->layers[0].q_norm != NULL;
  for (int i = 0; i < a->plan.shape.n_layers; i++) a->bias |= m->layers[i].qkv[0].bias != NULL;
  const DeviceLinear &router = *m->layers[a->plan.shape.n_dense].router;
  a->router_stride = (int)router.stride;
  a->router_is_bf16 = router.type == WEIGHT_BF16;
  a->renormalise = m->renormalise;
  a->lm_head = (const unsigned char *)m->lm_head->dense;
  a->embedding = m->embedding;
  a->embedding_stride = m->embedding_stride;
  a->embedding_type = m->embedding_type;
  a->embedding_scale = m->embedding_scale;
  a->norm_eps = m->norm_eps;
  a->scale_log2 = m->attention_scale * 1.44269504f;
  a->taps = m->taps;
}

/* Sets how many stages may be in flight. Loads finish in any order. A warpgroup waits for every fourth stage.
 * A slot's barrier distinguishes its present phase only from the previous one. So when a warpgroup waits for
 * a stage, the slot's previous stage must have been loaded. A warpgroup's stages of keys of several sequences
 * are further apart: wait_until_loading(). */
static void set_in_flight(Args *a, const StepModel *m) {
  static_assert((int)STEP_KEY_SETS <= (int)STEP_WARPGROUPS, "sets that attend are no further apart");
  const int bytes = m->in_flight ? m->in_flight : STEP_IN_FLIGHT, stages = bytes / a->plan.stage_bytes;
  a->most_in_flight = a->plan.n_slots - STEP_WARPGROUPS;
  a->in_flight = stages < 1 ? 1 : stages > a->most_in_flight ? a->most_in_flight : stages;
}

/* Lets a kernel have the plan's shared memory. */
static Status use_shared(const StepPlan &plan, Kernel kernel, Error *err) {
  const cudaError_t got =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes(plan));
  return cuda_status(got, "one kernel a step", err);
}

static Status fill(Args *a, const StepModel *m, const StepPlan &plan, void *memory, cudaStream_t stream,
                   Error *err) {
  const StepShape &s = plan.shape;
  const size_t values = (size_t)plan.tokens * (size_t)s.hidden;
  float *vectors = (float *)((char *)memory + layers_bytes(s));
  StepDelta *deltas = (StepDelta *)((char *)vectors + vectors_bytes(s));
  float *folded = (float *)((char *)deltas + deltas_bytes(s));
  for (bool debug : {false, true}) {
    TRY(use_shared(plan, kernel_of(plan, debug, m->taps.n > 0, false), err));
    if (m->several && plan.tokens > 1) TRY(use_shared(plan, kernel_of(plan, debug, false, true), err));
  }
  TRY(set_prefetch(plan, m->prefetch_stages, &a->prefetch_stages, err));
  TRY(cuda_status(cudaMemsetAsync(memory, 0, step_bytes(&s, plan.tokens), stream), "cannot clear memory",
                  err));
  TRY(copy_vectors(m, s, vectors, stream, err));
  if (plan.tokens == 1) TRY(fold_routers(&s, m->layers, folded, stream, err));
  a->totals = (uint64_t *)((char *)folded + routers_bytes(s, plan.tokens));
  uint64_t *best = (uint64_t *)((char *)a->totals + align_up(step_memory(&s, plan.tokens)));
  unsigned char *maps = (unsigned char *)best + best_bytes(s, plan.tokens);
  TRY(copy_maps(m->layers, s, maps, stream, err));
  TRY(copy_table(s, (Layer *)memory, stream, err, [&](int i) {
    return layer_of(&m->layers[i], folded_router(&s, folded, i), maps + (size_t)i * layer_maps_bytes(s));
  }));
  VariedLayer *varied = (VariedLayer *)((Layer *)memory + s.n_layers);
  if (step_is_varied(&s))
    TRY(copy_table(s, varied, stream, err, [&](int i) {
      return VariedLayer{m->layers[i].gate_up->bias, m->layers[i].down->bias};
    }));
  a->varied = {varied, step_qkv_split(&s), m->window, m->windows};
  LatentLayer *latent = (LatentLayer *)((Layer *)memory + s.n_layers);
  if (step_is_latent(&s))
    TRY(copy_table(s, latent, stream, err, [&](int i) {
      const StepLayer &l = m->layers[i];
      const DeviceLinear &q_b = *l.q_b;
      return LatentLayer{{(const unsigned char *)q_b.tiles, (const unsigned char *)q_b.scales,
                          (const unsigned char *)q_b.zeros},
                         (const unsigned char *)l.key_halves,
                         (const unsigned char *)l.value_halves};
    }));
  a->latent = {latent, m->neighbours, m->sum_plus, m->expert_scale};
  a->plan = plan;
  a->layers = (const Layer *)memory;
  a->vectors = vectors;
  a->vectors_stride = vectors_stride(s);
  TRY(set_mixers(&a->mixers, m, s, deltas, stream, err));
  a->peers.mail[0] = a->totals + (1 + STEP_MAX_CLUSTERS) * STEP_SUM_BUFFERS * (size_t)step_sum_words(&s);
  a->best_at = (size_t)(best - a->peers.mail[0]);
  a->bounds = best + best_words(s);
  if (s.group == STEP_FP8_GROUP) TRY(copy_ones(a->bounds, stream, err));
  a->residual = (float *)(a->totals + 2 * STEP_SUM_TURNS * values);
  a->launches = (unsigned *)(a->residual + STEP_MAX_CLUSTERS * values);
  set_model(a, m);
  set_in_flight(a, m);
  if (plan.tokens == 1) a->screen = (const unsigned char *)m->screen;
  return STATUS_OK;
}

/* --- a step */

Status step_open(const StepModel *m, const StepPlan *plan, void *memory, cudaStream_t stream, Step **out,
                 Error *err) {
  *out = NULL;
  Step *s = (Step *)mem_alloc(1, sizeof *s, "a step", err);
  if (!s) return STATUS_FAILED;
  const Status status = fill(&s->args, m, *plan, memory, stream, err);
  if (status != STATUS_OK) {
    free(s);
    return status;
  }
  *out = s;
  return STATUS_OK;
}

void step_close(Step *s) {
  free(s);
}

bool step_leaves_pick(const Step *s) {
  return s->args.plan.tokens == 1;
}

bool step_screens(const Step *s) {
  return s->args.screen != NULL;
}

uint64_t *step_mail(const Step *s) {
  return s->args.peers.mail[s->args.peers.rank];
}

void step_connect(Step *s, const StepPeers *peers) {
  s->args.peers = *peers;
}

Status step_run(const Step *s, const StepCall *call, const StepDebug *debug, cudaStream_t stream,
                Error *err) {
  const StepPlan &plan = s->args.plan;
  Args a = s->args;
  if (call->pick.token && !step_leaves_pick(s))
    return error_set(err, STATUS_FAILED, "one kernel a step: this kernel leaves no pick");
  const bool can_screen = step_screens(s) && call->head_x;
  if (call->n_best < 0 || call->n_best > STEP_MOST_BEST || (call->n_best > 0 && !can_screen))
    return error_set(err, STATUS_FAILED, "one kernel a step: this kernel does not find %d best logits",
                     call->n_best);
  a.turn = ++s->launches;
  a.call = *call;
  if (debug) a.debug = *debug;
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config = launch_config(plan.shape.n_clusters, shared_bytes(plan), stream, attributes);
  /* A pick follows another step. If this step began early, its clusters would be placed in the order in which
   * SMs become free. If all SMs are free, the clusters that attend are spread over the chip. This gains more
   * than an early start (LOG.md, "Where clusters lie"). */
  if (call->pick.token) config.numAttrs = 1;
  const Kernel kernel = kernel_of(plan, debug != NULL, a.taps.n > 0, call->n_parts > 1);
  return cuda_status(cudaLaunchKernelEx(&config, kernel, a), "one kernel a step", err);
}

static __global__ void pick_best(StepPeers peers, size_t best_at, unsigned turn, int n_blocks,
                                 StepPick pick) {
  begin_overlapping();
  const Sampled found = step::best_of_blocks(peers, best_at, turn, n_blocks, (int)threadIdx.x);
  if (threadIdx.x == 0) step::store_pick(pick, found);
}

Status step_pick(const Step *s, StepPick pick, cudaStream_t stream, Error *err) {
  if (!step_leaves_pick(s))
    return error_set(err, STATUS_FAILED, "one kernel a step: this kernel leaves no pick");
  return launch(pick_best, dim3(1), dim3(32), 0, stream, true, "the best token", err, s->args.peers,
                s->args.best_at, s->launches, s->args.plan.shape.n_clusters * STEP_BLOCKS, pick);
}
