/* backend.c - the CUDA backend: the operations of engine/backend.h as launches on one stream, and a decode
 * step as one CUDA graph.
 *
 * Called by: forward.c and session.c through the table cuda_backend.
 * Calls: linear.h, attention.h, delta.h, norm_rope.h, short_conv.h, sample.h, fused.h.
 * Always true: every operation only enqueues; the host waits only for logits and tokens that it takes. A
 *              step's position and ids lie in device memory, so the graph of the first one-token step
 *              (begin_step .. end_step) serves every later one; LongRoPE's long texts have a second graph. */
#include "cuda/backend.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/attention/attention.h"
#include "cuda/bench/kernel_bench.h"
#include "cuda/delta/delta.h"
#include "cuda/device.h"
#include "cuda/fused/fused.h"
#include "cuda/ops/norm_rope.h"
#include "cuda/ops/sample.h"
#include "cuda/ops/short_conv.h"
#include "cuda/weights.h"

enum { RING = 64, CHUNK = 2048 };

/* A session's device memory. Row strides are padded to 8 so that every row is 16-byte aligned. */
struct BackendState {
  const BackendModel *loaded;
  StateOptions options;
  void *memory;
  float *x;           /* [max_chunk][hidden] the residual stream over residual_scale */
  void *h;            /* f16 [max_chunk][h_stride] normalised x */
  float *projections; /* [max_chunk][projection_stride] what the layer's qkv gives */
  float *branch;      /* [max_chunk][hidden] output of o or down, if a norm follows before it is added to x */
  void *q, *a;    /* f16 [max_chunk][a_stride] queries; attention's output; [layer_stride()] other layers' */
  float *gate_up; /* [max_chunk][2 * intermediate], unless one matmul computes g */
  void *g;        /* f16 [max_chunk][g_stride] activation(gate) * up */
  void *lm_head_in;      /* f16 [max_logit_rows][h_stride] */
  float *logits;         /* [max_logit_rows][vocab_size] */
  void *rope_tables[2];  /* by LayerRope: float2 [max_chunk][n_pairs] of the step; or NULL */
  int *pos;              /* position of the step's first token */
  int *ids;              /* [max_chunk] of the step; the sampler writes its pick to ids[0] */
  void *k, *v;           /* [layers with attention][n_kv_heads][n_ctx][head_dim] */
  void *workspace;       /* of attention_workspace_bytes() */
  void *delta_workspace; /* of delta_workspace_bytes() */
  float *recurrent;      /* [1 + n_slots][states of all layers], the current ones first */
  FusedStep *fused;      /* runs steps of few tokens as one kernel; or NULL */
  size_t kv_layer_bytes;
  int h_stride, a_stride, delta_stride, g_stride, projection_stride;

  DeviceSampler *sampler;
  uint64_t notes_version; /* sampler_version() of the notes on the device */
  bool ahead;    /* picks are enqueued that the host has not seen: only the device's notes count them */
  Sampled *ring; /* [RING] pinned: pick n is in slot n % RING */
  uint64_t n_enqueued, n_taken;
  void *staging; /* [vocab_size] pinned, after the ring: logits or notes in a copy */

  cudaGraphExec_t
      graphs[2]; /* a one-token step with logits, by TokenRange.long_rope; NULL: not captured yet */
  cudaGraphExec_t *capturing; /* the one that is being captured, or NULL */
  int n_logit_rows;           /* rows of logits that the last step left */
};

/* --- the model */

static void cuda_unload(BackendModel *loaded) {
  if (!loaded) return;
  linear_close(loaded->linear);
  weights_release(loaded);
  if (loaded->stream) cudaStreamDestroy(loaded->stream);
  free(loaded);
}

static Status prepare_projections(BackendModel *loaded, const DeviceProjections *p, int max_tokens,
                                  Error *err) {
  for (int i = 0; i < p->n_parts; i++)
    TRY(linear_prepare(loaded->linear, &p->parts[i], loaded->act, max_tokens, loaded->kernel, err));
  return STATUS_OK;
}

/* Checks that every matrix has a kernel for every count of tokens, and makes the workspace large enough. */
static Status prepare(BackendModel *loaded, int max_tokens, int max_logit_rows, Error *err) {
  for (int i = 0; i < loaded->model->config.n_layers; i++) {
    const DeviceLayer *layer = &loaded->layers[i];
    TRY(prepare_projections(loaded, &layer->qkv, max_tokens, err));
    TRY(linear_prepare(loaded->linear, &layer->o, loaded->act, max_tokens, loaded->kernel, err));
    TRY(prepare_projections(loaded, &layer->gate_up, max_tokens, err));
    TRY(linear_prepare(loaded->linear, &layer->down, loaded->act, max_tokens, loaded->kernel, err));
  }
  return linear_prepare(loaded->linear, &loaded->head, ACT_F16, max_logit_rows, NULL, err);
}

/* DECODE_AUTO takes the fused step for models on which it was measured to be faster (LOG.md). */
static Status choose_decode_step(BackendModel *loaded, DecodeStep wanted, Error *err) {
  loaded->decode_step = wanted == DECODE_AUTO && !fused_preferred(loaded) ? DECODE_KERNELS : wanted;
  return wanted == DECODE_FUSED ? fused_check(loaded, err) : STATUS_OK;
}

static Status open_model(BackendModel *loaded, const BackendOptions *options, Error *err) {
  int shared_bytes = 0;
  TRY(device_use(options->gpu, err));
  TRY(device_attribute(options->gpu, cudaDevAttrMaxSharedMemoryPerBlockOptin, &shared_bytes, err));
  loaded->shared_bytes = (size_t)shared_bytes;
  TRY(cuda_status(cudaStreamCreateWithFlags(&loaded->stream, cudaStreamNonBlocking), "cannot make a stream",
                  err));
  TRY(choose_decode_step(loaded, options->decode_step, err));
  TRY(linear_open(options->gpu, loaded->stream, &loaded->linear, err));
  return weights_load(loaded, options, err);
}

static Status cuda_load(const Model *model, const BackendOptions *options, BackendModel **out, Error *err) {
  *out = NULL;
  TRY(cuda_check_model(model, err));
  BackendModel *loaded = mem_alloc(1, sizeof *loaded, "model", err);
  if (!loaded) return STATUS_FAILED;
  loaded->model = model;
  loaded->gpu = options->gpu;
  loaded->act = options->int8_activations ? ACT_INT8 : ACT_F16;
  loaded->kernel = options->kernel;
  loaded->graphs = !options->no_graphs;
  Status status = open_model(loaded, options, err);
  if (status)
    cuda_unload(loaded);
  else
    *out = loaded;
  return status;
}

/* --- a session's state */

static size_t kv_bytes(KvType kv) {
  return kv == KV_F32 ? sizeof(float) : 2;
}

static int padded(int n) {
  return (n + 7) / 8 * 8;
}

static bool has_local_rope(const ModelConfig *c) {
  for (int layer = 0; layer < c->n_layers; layer++)
    if (config_layer(c, layer).rope == ROPE_LOCAL) return true;
  return false;
}

/* Queries and the gates among them. */
static int query_outputs(const ModelConfig *c) {
  return (c->attn_gate == ATTN_GATE_IN_Q ? 2 : 1) * c->n_heads * c->head_dim;
}

/* Outputs of q, k and v together, after which come those of attn_gate where it is a layer. */
static int qkv_outputs(const ModelConfig *c) {
  return query_outputs(c) + 2 * c->n_kv_heads * c->head_dim;
}

static int attention_outputs(const ModelConfig *c) {
  const int heads = c->n_heads * c->head_dim;
  return qkv_outputs(c) + (c->attn_gate == ATTN_GATE_NUMBERS ? heads
                           : c->attn_gate == ATTN_GATE_HEADS ? c->n_heads
                                                             : 0);
}

/* Outputs of b, a, qkv and z of a layer with the gated delta rule; 0 if the model has none. */
static int delta_outputs(const DeltaConfig *d) {
  return delta_channels(d) + d->n_value_heads * (d->value_dim + 2);
}

static int larger(int a, int b) {
  return a > b ? a : b;
}

/* Floats of the recurrent states of the layers before `layer`, one after the other. */
static size_t states_before(const ModelConfig *c, int layer) {
  const int n_conv = config_count_layers(c, LAYER_CONV, layer),
            n_delta = config_count_layers(c, LAYER_DELTA, layer);
  const size_t conv = (size_t)padded(c->hidden) * (size_t)c->conv.taps;
  return (size_t)n_conv * conv + (n_delta ? (size_t)n_delta * delta_state_floats(&c->delta) : 0);
}

static size_t cuda_recurrent_bytes(const ModelConfig *c) {
  return states_before(c, c->n_layers) * sizeof(float);
}

static void place(BackendState *s, const ModelConfig *c, bool separate_gate_up, DeviceArena *m) {
  const StateOptions *o = &s->options;
  size_t chunk = (size_t)o->max_chunk, rows = (size_t)o->max_logit_rows;
  const size_t n_caches = (size_t)config_count_layers(c, LAYER_ATTENTION, c->n_layers);
  s->h_stride = padded(c->hidden);
  s->a_stride = padded(c->n_heads * c->head_dim);
  s->g_stride = padded(c->intermediate);
  s->delta_stride = padded(c->delta.n_value_heads * c->delta.value_dim);
  const int others = larger(delta_outputs(&c->delta), c->conv.taps ? 3 * c->hidden : 0);
  s->projection_stride = padded(larger(attention_outputs(c), others));
  s->x = arena_take(m, chunk * (size_t)c->hidden, sizeof(float));
  s->h = arena_take(m, chunk * (size_t)s->h_stride, 2);
  s->branch = arena_take(m, c->norms == NORM_BEFORE ? 0 : chunk * (size_t)c->hidden, sizeof(float));
  DeviceArena mlp = *m; /* overlays attention's buffers, which are dead by then */
  s->projections = arena_take(m, chunk * (size_t)s->projection_stride, sizeof(float));
  s->q = arena_take(m, chunk * (size_t)s->a_stride, 2);
  const int widest = larger(s->delta_stride, c->conv.taps ? s->h_stride : 0);
  s->a = arena_take(m, chunk * (size_t)larger(s->a_stride, widest), 2);
  const size_t recurrent = cuda_recurrent_bytes(c);
  const bool delta = c->delta.n_key_heads > 0;
  s->delta_workspace = arena_take(m, delta ? delta_workspace_bytes(&c->delta, o->max_chunk) : 0, 1);
  s->gate_up = arena_take(&mlp, separate_gate_up ? chunk * 2 * (size_t)c->intermediate : 0, sizeof(float));
  s->g = arena_take(&mlp, chunk * (size_t)s->g_stride, 2);
  if (mlp.used > m->used) m->used = mlp.used;
  s->lm_head_in = arena_take(m, rows * (size_t)s->h_stride, 2);
  s->logits = arena_take(m, rows * (size_t)c->vocab_size, sizeof(float));
  const size_t angles = chunk * ((size_t)c->rope.rotary_dim / 2),
               local_angles = chunk * ((size_t)c->local_rope.rotary_dim / 2);
  s->rope_tables[ROPE_GLOBAL] = arena_take(m, angles, 2 * sizeof(float));
  s->rope_tables[ROPE_LOCAL] = has_local_rope(c) ? arena_take(m, local_angles, 2 * sizeof(float)) : NULL;
  s->pos = arena_take(m, 1, sizeof(int));
  s->ids = arena_take(m, chunk, sizeof(int));
  s->workspace = arena_take(m, attention_workspace_bytes(c->n_kv_heads, c->head_dim), 1);
  s->kv_layer_bytes = (size_t)c->n_kv_heads * (size_t)o->n_ctx * (size_t)c->head_dim * kv_bytes(o->kv);
  s->k = arena_take(m, n_caches, s->kv_layer_bytes);
  s->v = arena_take(m, n_caches, s->kv_layer_bytes);
  s->recurrent = arena_take(m, 1 + (size_t)o->n_slots, recurrent);
}

/* Upper bound, before the weights are known: assumes separate gate and up, and a fused step. */
static size_t cuda_state_bytes(const ModelConfig *config, const StateOptions *options) {
  BackendState measured = {.options = *options};
  DeviceArena arena = {0};
  place(&measured, config, true, &arena);
  return arena.used == SIZE_MAX ? SIZE_MAX : arena.used + fused_bytes(config);
}

static void cuda_close(BackendState *s) {
  if (!s) return;
  cudaStreamSynchronize(s->loaded->stream);
  for (int i = 0; i < 2; i++)
    if (s->graphs[i]) cudaGraphExecDestroy(s->graphs[i]);
  fused_close(s->fused);
  device_sampler_close(s->sampler);
  cudaFreeHost(s->ring);
  cudaFree(s->memory);
  free(s);
}

static Status open_state(BackendState *s, Error *err) {
  const BackendModel *loaded = s->loaded;
  const StateOptions *options = &s->options;
  const ModelConfig *config = &loaded->model->config;
  bool separate = false;
  for (int i = 0; i < config->n_layers; i++)
    separate = separate || !loaded->layers[i].gate_up.parts[0].interleaved;
  DeviceArena arena = {0};
  place(s, config, separate, &arena);
  if (arena.used == SIZE_MAX)
    return error_set(err, STATUS_FAILED, "a context of %d tokens is too large", options->n_ctx);
  TRY(cuda_status(cudaMalloc(&s->memory, arena.used), "no memory for the context", err));
  arena = (DeviceArena){.base = s->memory};
  place(s, config, separate, &arena);
  TRY(device_sampler_open(config->vocab_size, &s->sampler, err));
  const size_t ring = RING * sizeof *s->ring, staging = (size_t)config->vocab_size * sizeof(float);
  TRY(cuda_status(cudaHostAlloc((void **)&s->ring, ring + staging, cudaHostAllocMapped), "cannot pin memory",
                  err));
  memset(s->ring, 0, ring);
  s->staging = s->ring + RING;
  if (loaded->decode_step == DECODE_FUSED || (loaded->decode_step == DECODE_AUTO && options->kv == KV_F16))
    TRY(fused_open(loaded, options, &s->fused, err));
  return cuda_status(cudaMemsetAsync(s->workspace, 0,
                                     attention_workspace_bytes(config->n_kv_heads, config->head_dim),
                                     loaded->stream),
                     "cannot clear memory", err);
}

static Status cuda_open(BackendModel *loaded, const StateOptions *options, BackendState **out, Error *err) {
  *out = NULL;
  TRY(prepare(loaded, options->max_chunk, options->max_logit_rows, err));
  BackendState *s = mem_alloc(1, sizeof *s, "session", err);
  if (!s) return STATUS_FAILED;
  s->loaded = loaded;
  s->options = *options;
  s->notes_version = UINT64_MAX;
  Status status = open_state(s, err);
  if (status)
    cuda_close(s);
  else
    *out = s;
  return status;
}

/* --- a step */

/* Writes the step's position and ids to device memory. ids NULL: the sampler's pick is there already. */
static Status set_step(BackendState *s, TokenRange span, const int32_t *ids, Error *err) {
  cudaStream_t stream = s->loaded->stream;
  if (span.n_tokens == 1) return ops_set_step(s->pos, span.pos, s->ids, ids ? *ids : -1, stream, err);
  TRY(ops_set_step(s->pos, span.pos, s->ids, -1, stream, err));
  return cuda_status(
      cudaMemcpyAsync(s->ids, ids, (size_t)span.n_tokens * sizeof *ids, cudaMemcpyHostToDevice, stream),
      "cannot copy ids", err); /* from pageable memory: the call returns after reading ids */
}

/* Fills a rope's table for the step's positions. A long text has a global rope of its own. */
static Status fill_rope_table(BackendState *s, TokenRange span, LayerRope which, Error *err) {
  const BackendModel *m = s->loaded;
  const DeviceRope *rope = &m->ropes[which == ROPE_GLOBAL && span.long_rope ? ROPE_OF_LONG_TEXTS : which];
  return ops_rope_table(rope->frequencies, rope->n_pairs, rope->attention_factor, s->pos, span.n_tokens,
                        s->rope_tables[which], m->stream, err);
}

/* Enqueues the whole step. PRECOND set_step() was enqueued. */
static Status enqueue_fused(BackendState *s, TokenRange span, int n_logit_rows, Error *err) {
  TRY(fill_rope_table(s, span, ROPE_GLOBAL, err));
  const StepCall call = {.pos = s->pos,
                         .ids = s->ids,
                         .rope_table = s->rope_tables[ROPE_GLOBAL],
                         .k = s->k,
                         .v = s->v,
                         .n_ctx = s->options.n_ctx,
                         .n_tokens = span.n_tokens,
                         .first_logit = span.n_tokens - n_logit_rows,
                         .logits = s->logits};
  return fused_run(s->fused, &call, s->loaded->stream, err);
}

/* Launches the graph of a one-token step, or begins to capture it if it does not exist yet. */
static Status replay(BackendState *s, TokenRange span, bool *replayed, Error *err) {
  cudaGraphExec_t *step = &s->graphs[span.long_rope];
  *replayed = *step != NULL;
  if (*step) return cuda_status(cudaGraphLaunch(*step, s->loaded->stream), "cannot launch a step", err);
  s->capturing = step;
  return cuda_status(cudaStreamBeginCapture(s->loaded->stream, cudaStreamCaptureModeThreadLocal),
                     "cannot capture a step", err);
}

static Status cuda_begin_step(BackendState *s, TokenRange span, const int32_t *ids, int n_logit_rows,
                              bool *replayed, Error *err) {
  *replayed = false;
  TRY(set_step(s, span, ids, err));
  if (span.n_tokens != 1 || n_logit_rows != 1 || !s->loaded->graphs) return STATUS_OK;
  s->n_logit_rows = 1;
  return replay(s, span, replayed, err);
}

static Status cuda_end_step(BackendState *s, Status so_far, Error *err) {
  cudaGraphExec_t *step = s->capturing;
  if (!step) return so_far;
  s->capturing = NULL;
  cudaGraph_t graph = NULL;
  cudaError_t ended = cudaStreamEndCapture(s->loaded->stream, &graph);
  Status status = so_far ? so_far : cuda_status(ended, "cannot capture a step", err);
  if (!status)
    status = cuda_status(cudaGraphInstantiate(step, graph, 0), "cannot make a graph of a step", err);
  if (!status) status = cuda_status(cudaGraphLaunch(*step, s->loaded->stream), "cannot launch a step", err);
  if (graph) cudaGraphDestroy(graph);
  return status;
}

static Status cuda_fused_step(BackendState *s, TokenRange span, const int32_t *ids, int n_logit_rows,
                              bool *done, Error *err) {
  *done = n_logit_rows > 0 && fused_takes(s->fused, span.n_tokens);
  if (!*done) return STATUS_OK;
  bool replayed = false;
  s->n_logit_rows = n_logit_rows;
  TRY(set_step(s, span, ids, err));
  if (span.n_tokens == 1 && s->loaded->graphs) TRY(replay(s, span, &replayed, err));
  return replayed ? STATUS_OK : cuda_end_step(s, enqueue_fused(s, span, n_logit_rows, err), err);
}

/* x is the residual stream divided by residual_scale, so that layers add to it without a factor. */
static Status cuda_embed(BackendState *s, TokenRange span, const int32_t *ids, Error *err) {
  (void)ids; /* set_step put them into device memory */
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const float scale = (float)(c->embedding_scale / c->residual_scale);
  TRY(ops_embed(m->embedding, m->model->embedding.dtype, c->hidden, m->embedding_stride, s->ids,
                span.n_tokens, scale, s->x, m->stream, err));
  TRY(fill_rope_table(s, span, ROPE_GLOBAL, err));
  return s->rope_tables[ROPE_LOCAL] ? fill_rope_table(s, span, ROPE_LOCAL, err) : STATUS_OK;
}

/* out = rmsnorm(residual) * weight; weight NULL: out = residual. The residual is residual_scale * x. */
static Status norm(BackendState *s, const float *x, const float *weight, int n_rows, void *out, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const double r = c->residual_scale;
  cudaStream_t stream = s->loaded->stream;
  if (!weight) return ops_round(x, (float)r, c->hidden, n_rows, out, s->h_stride, stream, err);
  const float eps = (float)(c->norm_eps / (r * r));
  return ops_rms_norm(x, weight, eps, c->hidden, n_rows, out, s->h_stride, stream, err);
}

static Status matmul(BackendState *s, const DeviceLinear *weights, const void *x, int x_stride, int n_tokens,
                     LinearOutput output, void *y, int y_stride, Error *err) {
  const BackendModel *m = s->loaded;
  const bool is_lm_head = weights == &m->head; /* takes fp16 activations, and no forced kernel */
  const LinearCall call = {.weights = weights,
                           .x = x,
                           .x_stride = x_stride,
                           .n_tokens = n_tokens,
                           .output = output,
                           .y = y,
                           .y_stride = y_stride,
                           .act = is_lm_head ? ACT_F16 : m->act,
                           .dependent = n_tokens <= LINEAR_OVERLAP_TOKENS,
                           .kernel = is_lm_head ? NULL : m->kernel};
  return linear_run(m->linear, &call, err);
}

/* Multiplies h by the parts from first_part on; all outputs lie side by side in rows of y_stride floats. */
static Status project(BackendState *s, const DeviceProjections *p, int first_part, int n_tokens, float *y,
                      int y_stride, Error *err) {
  for (int i = first_part; i < p->n_parts; i++)
    TRY(matmul(s, &p->parts[i], s->h, s->h_stride, n_tokens, LINEAR_TO_F32, y + p->first[i], y_stride, err));
  return STATUS_OK;
}

static void *kv_layer(const BackendState *s, void *all, int layer) {
  const int before = config_count_layers(&s->loaded->model->config, LAYER_ATTENTION, layer);
  return (char *)all + (size_t)before * s->kv_layer_bytes;
}

/* RMSNorm of q and of k, each over all heads together. */
static Status norm_q_k(BackendState *s, const DeviceLayer *l, int n_tokens, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const int n_q = c->n_heads * c->head_dim, n_k = c->n_kv_heads * c->head_dim;
  return ops_rms_norm_qk(s->projections, (size_t)s->projection_stride, n_q, n_k, l->q_norm, l->k_norm,
                         (float)c->norm_eps, n_tokens, s->loaded->stream, err);
}

static Status cuda_norm_qkv_rope_append(BackendState *s, TokenRange span, int layer, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const DeviceLayer *l = &m->layers[layer];
  TRY(norm(s, s->x, l->attn_norm, span.n_tokens, s->h, err));
  TRY(project(s, &l->qkv, 0, span.n_tokens, s->projections, s->projection_stride, err));
  const bool whole = c->qk_norm == QK_NORM_WHOLE;
  if (whole) TRY(norm_q_k(s, l, span.n_tokens, err));
  const LayerRope rope = config_layer(c, layer).rope;
  const QkvHeads heads = {
      .n_heads = c->n_heads,
      .n_kv_heads = c->n_kv_heads,
      .head_dim = c->head_dim,
      .n_ctx = s->options.n_ctx,
      .eps = (float)c->norm_eps,
      .kv = s->options.kv,
      .q_norm = whole ? NULL : l->q_norm,
      .k_norm = whole ? NULL : l->k_norm,
      .rope_table = rope == ROPE_NONE ? NULL : s->rope_tables[rope],
      .pos = s->pos,
      .projections = s->projections,
      .stride = (size_t)s->projection_stride,
      .query_step = query_outputs(c) / c->n_heads,
      .q = s->q,
      .k_cache = kv_layer(s, s->k, layer),
      .v_cache = kv_layer(s, s->v, layer),
      .rotary_dim = rope == ROPE_NONE ? 0 : 2 * m->ropes[rope].n_pairs,
      .neighbours = c->rope.neighbours,
      .norm_after_rope = c->qk_norm_after_rope,
      .query_scale_beta = (float)c->query_scale_beta,
      .query_scale_step = (float)c->query_scale_step,
  };
  return ops_qk_norm_rope_append(&heads, span.n_tokens, m->stream, err);
}

static Status cuda_attention(BackendState *s, TokenRange span, int layer, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const Attention attention = {
      .n_heads = c->n_heads,
      .n_kv_heads = c->n_kv_heads,
      .head_dim = c->head_dim,
      .n_ctx = s->options.n_ctx,
      .window = config_layer(c, layer).window,
      .kv = s->options.kv,
      .shared_bytes = s->loaded->shared_bytes,
      .pos = s->pos,
      .q = s->q,
      .k = kv_layer(s, s->k, layer),
      .v = kv_layer(s, s->v, layer),
      .out = s->a,
      .workspace = s->workspace,
      .scale = c->attention_scale,
      .cap = c->attention_cap,
      .past = span.pos,
  };
  return attention_run(attention_choose(&attention, span.n_tokens), &attention, span.n_tokens,
                       s->loaded->stream, err);
}

/* x += W from, or x += rmsnorm(W from) * post_norm. */
static Status linear_residual(BackendState *s, const DeviceLinear *weights, const void *from, int from_stride,
                              int n_tokens, const float *post_norm, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  if (!post_norm)
    return matmul(s, weights, from, from_stride, n_tokens, LINEAR_ADD_F32, s->x, c->hidden, err);
  TRY(matmul(s, weights, from, from_stride, n_tokens, LINEAR_TO_F32, s->branch, c->hidden, err));
  return ops_add_rms_norm(s->branch, post_norm, (float)c->norm_eps, c->hidden, n_tokens, s->x, m->stream,
                          err);
}

static Status cuda_norm_delta_rule(BackendState *s, TokenRange span, int layer, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const DeviceLayer *l = &m->layers[layer];
  DeltaRule rule = {.sizes = c->delta,
                    .eps = (float)c->norm_eps,
                    .shared_bytes = m->shared_bytes,
                    .pos = s->pos,
                    .projections = s->projections,
                    .stride = s->projection_stride,
                    .h = s->h,
                    .h_stride = s->h_stride,
                    .conv = l->delta.conv,
                    .a_log = l->delta.a_log,
                    .dt_bias = l->delta.dt_bias,
                    .norm = l->delta.norm,
                    .state = s->recurrent + states_before(c, layer),
                    .out = s->a,
                    .out_stride = s->delta_stride,
                    .workspace = s->delta_workspace};
  const DeviceLinear *first = &l->qkv.parts[0];
  if (l->qkv.n_parts > 1 && delta_step_takes(&rule, first, span.n_tokens)) rule.gates = first;
  TRY(norm(s, s->x, l->attn_norm, span.n_tokens, s->h, err));
  TRY(project(s, &l->qkv, rule.gates ? 1 : 0, span.n_tokens, s->projections, s->projection_stride, err));
  return delta_run(delta_choose(&rule, span.n_tokens), &rule, span.n_tokens, m->stream, err);
}

/* Multiplies attention's output by the sigmoid of its gates. */
static Status apply_gates(BackendState *s, int n_tokens, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const bool in_q = c->attn_gate == ATTN_GATE_IN_Q, by_head = c->attn_gate == ATTN_GATE_HEADS;
  const float *gates = s->projections + (in_q ? c->head_dim : qkv_outputs(c));
  const int step = in_q ? 2 * c->head_dim : by_head ? 1 : c->head_dim;
  return ops_gate_heads(gates, (size_t)s->projection_stride, step, by_head, c->n_heads, c->head_dim, n_tokens,
                        s->a, s->loaded->stream, err);
}

static Status cuda_norm_short_conv(BackendState *s, TokenRange span, int layer, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const DeviceLayer *l = &m->layers[layer];
  TRY(norm(s, s->x, l->attn_norm, span.n_tokens, s->h, err));
  TRY(project(s, &l->qkv, 0, span.n_tokens, s->projections, s->projection_stride, err));
  const ShortConv conv = {.hidden = c->hidden,
                          .n_taps = c->conv.taps,
                          .pos = s->pos,
                          .projections = s->projections,
                          .stride = s->projection_stride,
                          .taps = l->conv.taps,
                          .bias = l->conv.bias,
                          .kept = s->recurrent + states_before(c, layer),
                          .out = s->a,
                          .out_stride = s->h_stride};
  return ops_short_conv(&conv, span.n_tokens, m->stream, err);
}

/* Between rows of what goes into o. */
static int layer_stride(const BackendState *s, int layer) {
  const int strides[N_LAYER_KINDS] = {s->a_stride, s->delta_stride, s->h_stride};
  return strides[config_layer(&s->loaded->model->config, layer).kind];
}

static Status cuda_out_proj_residual(BackendState *s, TokenRange span, int layer, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const DeviceLayer *l = &s->loaded->layers[layer];
  if (c->attn_gate != ATTN_GATE_NONE && config_layer(c, layer).kind == LAYER_ATTENTION)
    TRY(apply_gates(s, span.n_tokens, err));
  return linear_residual(s, &l->o, s->a, layer_stride(s, layer), span.n_tokens, l->attn_post_norm, err);
}

static Status cuda_norm_gate_up(BackendState *s, TokenRange span, int layer, Error *err) {
  const BackendModel *m = s->loaded;
  const DeviceLayer *l = &m->layers[layer];
  const int n = m->model->config.intermediate;
  TRY(norm(s, s->x, l->mlp_norm, span.n_tokens, s->h, err));
  if (l->gate_up.parts[0].interleaved) /* the epilogue computes activation(gate) * up */
    return matmul(s, &l->gate_up.parts[0], s->h, s->h_stride, span.n_tokens, LINEAR_SWIGLU_F16, s->g,
                  s->g_stride, err);
  TRY(project(s, &l->gate_up, 0, span.n_tokens, s->gate_up, 2 * n, err));
  return ops_gated(m->model->config.activation, s->gate_up, n, span.n_tokens, s->g, s->g_stride, m->stream,
                   err);
}

static Status cuda_down_residual(BackendState *s, TokenRange span, int layer, Error *err) {
  const DeviceLayer *l = &s->loaded->layers[layer];
  return linear_residual(s, &l->down, s->g, s->g_stride, span.n_tokens, l->mlp_post_norm, err);
}

static Status cuda_norm_logits(BackendState *s, TokenRange span, int first_row, int n_rows, Error *err) {
  (void)span;
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  TRY(norm(s, s->x + (size_t)first_row * (size_t)c->hidden, m->final_norm, n_rows, s->lm_head_in, err));
  s->n_logit_rows = n_rows;
  TRY(matmul(s, &m->head, s->lm_head_in, s->h_stride, n_rows, LINEAR_TO_F32, s->logits, c->vocab_size, err));
  if (c->logit_divisor == 1 && c->logit_cap == 0) return STATUS_OK;
  return ops_finish_logits(s->logits, c->vocab_size, n_rows, (float)c->logit_divisor, (float)c->logit_cap,
                           m->stream, err);
}

/* --- tokens */

static Status synchronise(BackendState *s, Error *err) {
  return cuda_status(cudaStreamSynchronize(s->loaded->stream), "a step failed", err);
}

static Status cuda_read_logits(BackendState *s, int row, float *out, Error *err) {
  const size_t vocab = (size_t)s->loaded->model->config.vocab_size, bytes = vocab * sizeof *out;
  TRY(cuda_status(cudaMemcpyAsync(s->staging, s->logits + (size_t)row * vocab, bytes, cudaMemcpyDeviceToHost,
                                  s->loaded->stream),
                  "cannot copy logits", err));
  TRY(synchronise(s, err));
  memcpy(out, s->staging, bytes);
  return STATUS_OK;
}

/* Copies the host sampler's notes of seen tokens to the device if they have changed. */
static Status sync_notes(BackendState *s, const Sampler *sampler, Error *err) {
  if (!sampler_has_penalties(sampler) || s->ahead || s->notes_version == sampler_version(sampler))
    return STATUS_OK;
  TRY(synchronise(s, err)); /* the last copy may still read the staging memory */
  sampler_token_counts(sampler, s->staging);
  s->notes_version = sampler_version(sampler);
  return device_sampler_set_notes(s->sampler, s->staging, s->loaded->stream, err);
}

static Status cuda_wait_token(BackendState *s, int32_t *id, Error *err) {
  const volatile Sampled *slot = &s->ring[s->n_taken % RING];
  for (unsigned spin = 0; slot->kind == SAMPLED_NOTHING; spin++) {
    if (spin % 4096 != 4095) continue;
    cudaError_t error = cudaStreamQuery(s->loaded->stream);
    if (error == cudaErrorNotReady) continue;
    if (error != cudaSuccess) return cuda_status(error, "a step failed", err);
    if (slot->kind == SAMPLED_NOTHING)
      return error_set(err, STATUS_FAILED, "GPU: a step ended without a token");
  }
  __sync_synchronize(); /* the device writes the id before the kind */
  *id = slot->id;
  int kind = slot->kind;
  s->ring[s->n_taken++ % RING].kind = SAMPLED_NOTHING;
  if (kind == SAMPLED_TOKEN) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "%s: its weights or their arithmetic are broken",
                   kind == SAMPLED_NAN ? "a logit of the model is NaN or infinite"
                                       : "every logit of the model is -infinity");
}

static Status cuda_sample(BackendState *s, Sampler *sampler, int32_t *id, Error *err) {
  if (s->n_enqueued - s->n_taken >= RING)
    return error_set(err, STATUS_FAILED, "more than %d tokens are on their way", RING);
  TRY(sync_notes(s, sampler, err));
  const float *logits =
      s->logits + (size_t)(s->n_logit_rows - 1) * (size_t)s->loaded->model->config.vocab_size;
  TRY(device_sampler_pick(s->sampler, sampler_settings(sampler), sampler_take_draw(sampler), logits, s->ids,
                          &s->ring[s->n_enqueued % RING], s->loaded->stream, err));
  s->n_enqueued++;
  s->ahead = s->ahead || !id;
  return id ? cuda_wait_token(s, id, err) : STATUS_OK;
}

static Status cuda_drain(BackendState *s, Error *err) {
  Status status = synchronise(s, err);
  while (s->n_taken < s->n_enqueued) s->ring[s->n_taken++ % RING].kind = SAMPLED_NOTHING;
  s->ahead = false;
  s->notes_version = UINT64_MAX;
  return status;
}

/* --- reading and writing the KV cache */

/* Copies a layer's keys and then its values: per KV head a run of rows, n_ctx rows apart in the cache,
 * n_stored on the host. Any thread may call this, so it sets the thread's device. Waits for the copy. */
static Status copy_layer(BackendState *s, TokenRange span, int layer, int n_stored, char *host, bool to_host,
                         Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  void *const caches[] = {s->k, s->v};
  const size_t row = (size_t)c->head_dim * kv_bytes(s->options.kv), n_heads = (size_t)c->n_kv_heads;
  const size_t run = (size_t)span.n_tokens * row, host_pitch = (size_t)n_stored * row,
               cache_pitch = (size_t)s->options.n_ctx * row;
  TRY(cuda_status(cudaSetDevice(s->loaded->gpu), "cannot use it", err));
  for (int i = 0; i < 2; i++, host += n_heads * host_pitch) {
    char *cache = (char *)kv_layer(s, caches[i], layer) + (size_t)span.pos * row;
    const cudaError_t error = to_host ? cudaMemcpy2DAsync(host, host_pitch, cache, cache_pitch, run, n_heads,
                                                          cudaMemcpyDeviceToHost, s->loaded->stream)
                                      : cudaMemcpy2DAsync(cache, cache_pitch, host, host_pitch, run, n_heads,
                                                          cudaMemcpyHostToDevice, s->loaded->stream);
    TRY(cuda_status(error, "cannot copy keys and values", err));
  }
  return synchronise(s, err);
}

static Status cuda_kv_read(BackendState *s, TokenRange span, int layer, void *out, Error *err) {
  return copy_layer(s, span, layer, span.n_tokens, out, true, err);
}

static Status cuda_kv_write(BackendState *s, TokenRange span, int layer, int n_stored, const void *from,
                            Error *err) {
  return copy_layer(s, span, layer, n_stored, (char *)from, false, err);
}

/* --- kept recurrent states */

static Status copy_states(BackendState *s, int to, int from, Error *err) {
  const size_t bytes = cuda_recurrent_bytes(&s->loaded->model->config), floats = bytes / sizeof(float);
  return cuda_status(cudaMemcpyAsync(s->recurrent + (size_t)to * floats, s->recurrent + (size_t)from * floats,
                                     bytes, cudaMemcpyDeviceToDevice, s->loaded->stream),
                     "cannot copy recurrent states", err);
}

static Status cuda_state_save(BackendState *s, int slot, Error *err) {
  return copy_states(s, 1 + slot, 0, err);
}

static Status cuda_state_restore(BackendState *s, int slot, Error *err) {
  return copy_states(s, 0, 1 + slot, err);
}

static Status cuda_arithmetic(const BackendModel *loaded, char *out, size_t size, Error *err) {
  char name[256];
  TRY(device_name(loaded->gpu, name, sizeof name, err));
  const char *step = loaded->decode_step == DECODE_FUSED  ? "cluster"
                     : loaded->decode_step == DECODE_AUTO ? "one kernel"
                                                          : "kernels";
  snprintf(out, size, "%s, act %s, kernel %s, decode step %s", name, loaded->act == ACT_INT8 ? "int8" : "f16",
           loaded->kernel ? loaded->kernel : "chosen", step);
  return STATUS_OK;
}

/* --- properties of the device */

static Status cuda_memory(const Model *model, const BackendOptions *options, size_t *needed,
                          size_t *free_bytes, Error *err) {
  size_t all_bytes;
  TRY(device_use(options->gpu, err));
  TRY(weights_bytes(model, needed, err));
  return device_bytes(free_bytes, &all_bytes, err);
}

static Status cuda_memory_now(const BackendOptions *options, size_t *free_bytes, size_t *all_bytes,
                              Error *err) {
  TRY(device_use(options->gpu, err));
  return device_bytes(free_bytes, all_bytes, err);
}

static Status cuda_describe(const BackendOptions *options, char *out, size_t size, Error *err) {
  return device_name(options->gpu, out, size, err);
}

static const BackendProbe cuda_probe = {.memory_now = cuda_memory_now,
                                        .describe = cuda_describe,
                                        .time_kernels = kernel_bench,
                                        .measure_machine = kernel_bench_machine};

const Backend cuda_backend = {.name = "cuda",
                              .probe = &cuda_probe,
                              .chunk = CHUNK,
                              .check_model = cuda_check_model,
                              .load = cuda_load,
                              .unload = cuda_unload,
                              .memory = cuda_memory,
                              .state_bytes = cuda_state_bytes,
                              .open = cuda_open,
                              .close = cuda_close,
                              .read_logits = cuda_read_logits,
                              .kv_read = cuda_kv_read,
                              .kv_write = cuda_kv_write,
                              .arithmetic = cuda_arithmetic,
                              .recurrent_bytes = cuda_recurrent_bytes,
                              .state_save = cuda_state_save,
                              .state_restore = cuda_state_restore,
                              .fused_step = cuda_fused_step,
                              .begin_step = cuda_begin_step,
                              .end_step = cuda_end_step,
                              .wait_token = cuda_wait_token,
                              .drain = cuda_drain,
#define ENTRY(name, arguments) .name = cuda_##name,
                              BACKEND_OPERATIONS(ENTRY)
#undef ENTRY
};
