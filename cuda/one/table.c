/* table.c - the CUDA backend of one GPU: the operations of operations.def as launches on a stream, and steps
 * that repeat as CUDA graphs.
 *
 * Called by: the files of src/ and cuda/several, through the table cuda_backend.
 * Always true: every operation only enqueues, but weights_stream() also waits for earlier copies. In a step
 *              by separate kernels, position and ids lie in device memory. So the step's graph (begin_step ..
 *              end_step) serves later steps that differ in nothing else (step_graphs.h). */
#include "cuda/one/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash64.h"
#include "cuda/kernels/attention/attention.h"
#include "cuda/kernels/delta/delta.h"
#include "cuda/kernels/ops/norm_rope.h"
#include "cuda/kernels/ops/short_conv.h"
#include "cuda/kernels/ops/values.h"
#include "cuda/kernels/ptx/device.h"
#include "cuda/one/draft.h"
#include "cuda/one/fused.h"
#include "cuda/one/gpu.h"
#include "cuda/one/kernel_bench.h"
#include "cuda/one/layers/altup.h"
#include "cuda/one/layers/copies.h"
#include "cuda/one/layers/index.h"
#include "cuda/one/layers/latent.h"
#include "cuda/one/layers/mlp.h"
#include "cuda/one/layers/narrow.h"
#include "cuda/one/layers/prepare.h"
#include "cuda/one/layers/streams.h"
#include "cuda/one/open.h"
#include "cuda/one/products.h"
#include "cuda/one/residual.h"
#include "cuda/one/rows.h"
#include "cuda/one/shared.h"
#include "cuda/one/state.h"
#include "cuda/one/tokens.h"
#include "cuda/one/weights.h"
#include "cuda/quantize/quantizer.h"
#include "engine/forward.h"

/* --- the model */

static void cuda_unload(BackendModel *loaded) {
  if (!loaded) return;
  linear_close(loaded->linear);
  cpu_products_close(loaded->cpu);
  draft_unload(loaded);
  fused_release_screen(loaded);
  copies_release(loaded);
  weights_release(loaded);
  if (loaded->stream && !loaded->target) cudaStreamDestroy(loaded->stream);
  program_release(&loaded->program);
  free(loaded);
}

/* DECODE_AUTO takes the fused step for models on which it was measured to be faster (LOG.md, "Decode by
 * kernels or by one kernel"). */
static Status choose_decode_step(BackendModel *loaded, DecodeStep wanted, Error *err) {
  loaded->decode_step = wanted == DECODE_AUTO && !fused_preferred(loaded) ? DECODE_KERNELS : wanted;
  return wanted == DECODE_FUSED ? fused_check(loaded, err) : STATUS_OK;
}

/* Sets DeviceLayer.forms of all layers. */
static void find_forms(BackendModel *loaded) {
  for (int i = 0; i < loaded->model->config.n_layers; i++) loaded->layers[i].forms = (1u << N_FORMS) - 1;
  for (const Op *op = loaded->program.ops; op < loaded->program.ops + loaded->program.n; op++)
    for (int form = 0; form < N_FORMS; form++)
      if (op_is_of_layer(op, &loaded->model->config) &&
          !form_supports(form, UINT32_C(1) << op->kind, op->differences))
        loaded->layers[op->layer].forms &= ~(1u << form);
}

static Status open_model(BackendModel *loaded, const BackendOptions *options, Error *err) {
  int shared_bytes = 0;
  TRY(device_use(options->gpu, err));
  TRY(device_attribute(options->gpu, cudaDevAttrMaxSharedMemoryPerBlockOptin, &shared_bytes, err));
  loaded->shared_bytes = (size_t)shared_bytes;
  TRY(attention_wgmma_sms(options->gpu, &loaded->attention_sms, err));
  if (loaded->target)
    loaded->stream = loaded->target->stream;
  else
    TRY(cuda_status(cudaStreamCreateWithFlags(&loaded->stream, cudaStreamNonBlocking), "cannot make a stream",
                    err));
  TRY(choose_decode_step(loaded, loaded->target ? DECODE_KERNELS : options->decode_step, err));
  TRY(linear_open(options->gpu, loaded->stream, &loaded->linear, err));
  TRY(weights_load(loaded, options, err));
  find_forms(loaded);
  if (options->copies) TRY(copies_make(loaded, err));
  TRY(draft_load(loaded, err));
  if (loaded->n_host == 0) return fused_prepare(loaded, options->decode_step == DECODE_FUSED, err);
  if (options->decode_step == DECODE_FUSED)
    return error_set(err, STATUS_FAILED, "--decode-step cluster needs all weights on the GPU");
  loaded->decode_step = DECODE_KERNELS;
  const int n_rows = products_host_rows(loaded, MOST_CPU_ROWS).n;
  return cpu_products_open(loaded->model, options->n_threads, n_rows, &loaded->cpu, err);
}

RELEASE_BY(unload, BackendModel, cuda_unload)

static Status cuda_load(const Model *model, const BackendOptions *options, BackendModel **out, Error *err) {
  *out = NULL;
  TRY(cuda_check_model(model, err));
  OWNED(unload) BackendModel *loaded = NULL;
  TRY(NEW(loaded, 1, "model", err));
  loaded->model = model;
  loaded->target = options->target;
  loaded->gpu = options->gpu;
  loaded->act = options->int8_activations ? ACT_INT8 : ACT_F16;
  loaded->kernel = options->target ? NULL : options->kernel;
  loaded->graphs = !options->no_graphs;
  loaded->n_threads = options->n_threads;
  TRY(forward_prepare(&cuda_backend, &model->config, &loaded->program, err));
  TRY(open_model(loaded, options, err));
  *out = TAKE(loaded);
  return STATUS_OK;
}

/* --- a session */

RELEASE_BY(state_release, BackendState, state_close)

static Status cuda_open(BackendModel *loaded, const StateOptions *options, BackendState **out, Error *err) {
  *out = NULL;
  if (options->invariant)
    TRY(prepare_check_options(loaded->act == ACT_INT8, loaded->kernel, loaded->n_host > 0,
                              loaded->model->config.split, err));
  if (loaded->model->config.indexer.block > 0 && options->kv != KV_F16)
    return error_set(err, STATUS_USAGE, "%s needs --kv f16 on a GPU: it has an index of positions",
                     loaded->model->config.architecture);
  TRY(prepare_matrices(loaded, options, err));
  OWNED(state_release) BackendState *s = NULL;
  TRY(NEW(s, 1, "session", err));
  s->loaded = loaded;
  s->options = *options;
  s->peers.rank = loaded->rank;
  s->notes_version = UINT64_MAX;
  TRY(state_open(s, err));
  *out = TAKE(s);
  return STATUS_OK;
}

/* --- a step */

/* True if one kernel can take the step. The logits must be those of the step's last rows, all rows must have
 * the same rope, and several sequences must keep no hidden states for drafters (span.taps). */
static bool fits_fused(TokenRange span) {
  if (span.n_parts > 1 && span.taps) return false;
  for (int i = 0; i < span.n_logit_rows; i++)
    if (span.logit_rows[i] != span.n_tokens - span.n_logit_rows + i) return false;
  for (int i = 1; i < span.n_parts; i++)
    if (span.parts[i].long_rope != span.parts[0].long_rope) return false;
  return true;
}

/* The step as if all its rows were of the first sequence, with that sequence's position and rope. */
static TokenRange first_of(TokenRange span) {
  const SequenceRows *part = span.parts;
  if (!part) return span;
  return (TokenRange){.pos = part->pos, .n_tokens = span.n_tokens, .long_rope = part->long_rope};
}

static Status set_rows_of_sequences(BackendState *s, TokenRange span, Error *err) {
  TRY(sequences_set_step(&s->sequences, &s->rows, span, s->loaded->stream, err));
  return tokens_fill(s, span, err);
}

/* Enqueues the whole step. sequences_set_step() has described a step of several sequences. PRECOND an earlier
 * launch or copy writes s->rows.ids, or the pick is left to this step. */
static Status enqueue_fused(BackendState *s, TokenRange span, Error *err) {
  const RopeAngles angles = rows_rope_angles(s, first_of(span), ROPE_GLOBAL);
  StepCall call = {.n_parts = 1,
                   .parts[0].pos = span.pos,
                   .ids = s->rows.ids,
                   .pick = tokens_take_deferred(s),
                   .frequencies = angles.frequencies,
                   .attention_factor = angles.attention_factor,
                   .k = s->cache[KEYS],
                   .v = s->cache[VALUES],
                   .k_scales = s->cache[KEY_SCALES],
                   .v_scales = s->cache[VALUE_SCALES],
                   .states = state_of_sequence(s, span.parts ? span.parts->sequence : 0),
                   .pages = s->options.n_sequences > 0 ? s->rows.pages : NULL,
                   .n_ctx = page_positions(&s->options),
                   .n_pages = state_pages(&s->options),
                   .n_tokens = span.n_tokens,
                   .first_logit = span.n_tokens - span.n_logit_rows,
                   .logits = s->logits + shared_first_logit(s),
                   .n_best = s->top_made,
                   .head_x = s->lm_head_in};
  if (span.parts) call.n_parts = span.n_parts;
  for (int i = 0, row = 0; i < span.n_parts; row += span.parts[i++].n_tokens)
    call.parts[i] = (StepPart){span.parts[i].pos, row, sequences_first_page(&s->sequences, row)};
  s->logits_apart = shared_in_memory(s);
  return fused_run(s->fused, &call, s->loaded->stream, err);
}

static Attention attention_of(const BackendState *s, TokenRange span, int layer) {
  Attention attention = state_attention(s, layer);
  attention.past = span.pos;
  if (s->loaded->model->config.draft.kind == DRAFT_DFLASH) attention.whole = span.n_tokens;
  return attention;
}

/* A hash of attention_division() of all layers: steps with different hashes have different launches. */
static uint64_t divide_attention(const BackendState *s, TokenRange span) {
  const ModelConfig *c = &s->loaded->model->config;
  uint64_t all = 0;
  for (int layer = 0; layer < c->n_layers; layer++) {
    if (config_layer(c, layer).kind != LAYER_ATTENTION) continue;
    const Attention attention = attention_of(s, span, layer);
    const int division = attention_division(&attention, span.n_tokens);
    all = hash64(&division, sizeof division, all);
  }
  return all;
}

/* Launches the step's graph, or may begin to capture one (step_graphs_begin()). */
static Status replay(BackendState *s, TokenRange span, bool *replayed, Error *err) {
  const BackendModel *m = s->loaded;
  const StepKey key = {.n_tokens = span.n_tokens,
                       .n_logit_rows = span.n_logit_rows,
                       .long_rope = span.long_rope,
                       .taps = span.taps != NULL,
                       .only_logits = span.only_logits,
                       .selects = s->selects,
                       .attention = span.n_tokens > 1 && !s->selects ? divide_attention(s, span) : 0,
                       .workspace = linear_workspace(m->linear)};
  if (span.n_logit_rows > 0) s->n_logit_rows = span.n_logit_rows;
  /* With guesses the number of rows varies: such a step is captured only at its fourth use. */
  const int n_uses = span.n_logit_rows > 1 ? 4 : 2;
  return step_graphs_begin(&s->graphs, &key, n_uses, m->stream, replayed, err);
}

/* replay() for a step of several sequences. The step has a graph if all rows are units (only_singles): all
 * launches then take the rows from device memory. */
static Status replay_many(BackendState *s, TokenRange span, bool *replayed, Error *err) {
  const BackendModel *m = s->loaded;
  const Sequences *q = &s->sequences;
  if (span.n_logit_rows > 0) s->n_logit_rows = span.n_logit_rows;
  if (!q->only_singles) return STATUS_OK;
  const StepKey key = {.n_tokens = q->n_rows,
                       .n_logit_rows = q->n_logit_rows,
                       .taps = span.taps != NULL,
                       .selects = s->selects,
                       .attention = s->selects ? 0 : (uint64_t)q->n_units,
                       .workspace = linear_workspace(m->linear)};
  return step_graphs_begin(&s->graphs, &key, 2, m->stream, replayed, err);
}

static bool can_replay(const BackendState *s, int n_rows) {
  return s->loaded->graphs && !products_stream(s->loaded, n_rows);
}

/* Forgets the best logits of the last fused step. A deferred pick (is_deferred) stays deferred. */
static void forget_best(BackendState *s) {
  s->has_best = s->logits_apart = false, s->top_made = 0;
}

static Status cuda_begin_step(BackendState *s, TokenRange span, bool *replayed, Error *err) {
  *replayed = false;
  if (span.n_logit_rows > 0) forget_best(s);
  TRY(tokens_enqueue_deferred(s, err));
  s->selects = index_selects(s, span);
  TRY(shared_begin_sums(s, step_sums(&s->loaded->model->config), err));
  if (span.parts) {
    TRY(set_rows_of_sequences(s, span, err));
    return can_replay(s, s->sequences.n_rows) ? replay_many(s, span, replayed, err) : STATUS_OK;
  }
  TRY(rows_set(s, span, err));
  if (!span.ids) TRY(shared_broadcast_pick(s, err));
  return can_replay(s, span.n_tokens) ? replay(s, span, replayed, err) : STATUS_OK;
}

static Status cuda_end_step(BackendState *s, Status so_far, Error *err) {
  return step_graphs_end(&s->graphs, so_far, s->loaded->stream, err);
}

static Status cuda_fused_step(BackendState *s, TokenRange span, bool *done, Error *err) {
  *done =
      span.n_logit_rows > 0 && (!span.parts || fits_fused(span)) && fused_supports(s->fused, first_of(span));
  if (!*done) return STATUS_OK;
  const bool single = span.n_tokens == 1 && !span.parts;
  s->has_best = fused_leaves_pick(s->fused) && single;
  if (span.ids || !s->has_best) TRY(tokens_enqueue_deferred(s, err));
  /* Without ids the step follows a pick, and the pick after the step is most likely of the same kind. */
  s->top_made = fused_screens(s->fused) && single && !span.ids ? s->top_asked : 0;
  s->n_logit_rows = span.n_logit_rows;
  if (span.parts) {
    TRY(set_rows_of_sequences(s, span, err));
  } else {
    tokens_forget_picks(s);
    if (span.ids) TRY(rows_set(s, span, err));
  }
  TRY(enqueue_fused(s, span, err));
  return span.parts ? tokens_join_logits(s, err) : STATUS_OK;
}

/* Each layer's own input of each token (operations.def). PRECOND x is the embedding. */
static Status make_layer_inputs(BackendState *s, int n_tokens, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const int n = c->n_layers * c->per_layer_width;
  TRY(ops_round(s->x, c->hidden, (float)(c->residual_scale / sqrt(c->hidden)), c->hidden, n_tokens, s->h,
                s->h_stride, m->stream, err));
  TRY(products_matmul(s, &m->input_projection, s->h, s->h_stride, n_tokens, LINEAR_TO_F32, s->inputs, n,
                      err));
  const LayerInputs call = {.table = m->input_table,
                            .dtype = m->model->input_table.dtype,
                            .n_layers = c->n_layers,
                            .width = c->per_layer_width,
                            .n_rows = c->per_layer_vocab,
                            .ids = s->rows.ids,
                            .weight = m->input_norm,
                            .eps = (float)c->norm_eps};
  return ops_layer_inputs(&call, n_tokens, s->inputs, m->stream, err);
}

/* x is the residual stream divided by residual_scale: layers then add to x without a factor. rows_set() or
 * sequences_set_step() has put the ids into device memory. */
static Status cuda_embed(BackendState *s, TokenRange span, int layer, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const int n_rows = rows_of(s, span);
  const float scale = (float)(c->embedding_scale / c->residual_scale);
  s->ready = READY_NONE;
  TRY(ops_embed(m->embedding, m->embedding_type, c->hidden, m->embedding_stride, s->rows.ids, n_rows,
                c->embedding_norm ? 1 : scale, s->x, m->stream, err));
  const NormRows norm = {.x = s->x,
                         .x_stride = (size_t)c->hidden,
                         .eps = (float)c->norm_eps,
                         .factor = scale,
                         .n = c->hidden,
                         .wide = s->x};
  if (c->embedding_norm) TRY(ops_norm_rows(&norm, n_rows, m->stream, err));
  if (c->learned_positions)
    TRY(ops_add_rows(m->input_table, m->model->input_table.dtype, c->hidden, s->rows.pos, n_rows, s->x,
                     m->stream, err));
  TRY(residual_centre(s, OP_EMBED, n_rows, err));
  if (c->per_layer_width > 0) TRY(make_layer_inputs(s, n_rows, err));
  if (c->streams.n > 0) TRY(streams_begin(s, n_rows, err));
  if (c->altup.n > 0) TRY(altup_begin(s, n_rows, err));
  return rows_rope_tables(s, span, err);
}

static Status cuda_begin_loop(BackendState *s, TokenRange span, int layer, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const bool first = config_layer(c, layer).begins == BEGINS_FIRST_LOOP;
  s->ready = READY_NONE;
  return ops_norm_plus(s->x, NULL, s->start, first, residual_eps(c), c->hidden, rows_of(s, span),
                       s->loaded->stream, err);
}

static Status cuda_norm_qkv_rope_append(BackendState *s, TokenRange span, int layer, Error *err) {
  const DeviceLayer *l = &s->loaded->layers[layer];
  const ModelConfig *c = &s->loaded->model->config;
  const LayerConfig own = config_layer(c, layer);
  const int n_rows = rows_of(s, span);
  if (own.latent) return latent_project(s, layer, n_rows, err);
  if (c->parallel || c->altup.n > 0) { /* h is also the input of the MLP, the router (in fp32) or LAuReL */
    TRY((own.n_experts > 0 ? residual_norm_wide : residual_norm_input)(s, attn_input_norm(l), n_rows, err));
    TRY(products_project(s, &l->qkv, 0, n_rows, s->projections, s->projection_stride, err));
  } else if (!own.delta_beside) { /* else norm_delta_rule() has made q, k and v */
    bool done;
    TRY(rows_project_heads(s, layer, n_rows, &done, err));
    if (done) return STATUS_OK;
  }
  TRY(rows_append(s, layer, n_rows, err));
  if (c->parallel == PARALLEL_TWO_NORMS) TRY(residual_norm_input(s, mlp_input_norm(l), n_rows, err));
  return c->indexer.block > 0 ? index_keys(s, layer, n_rows, err) : STATUS_OK;
}

static Status cuda_attention(BackendState *s, TokenRange span, int layer, Error *err) {
  Attention attention = attention_of(s, span, layer);
  const Sequences *q = &s->sequences;
  const int n_rows = rows_of(s, span);
  cudaStream_t stream = s->loaded->stream;
  if (s->selects) return index_attend(s, layer, n_rows, err);
  const AttentionFamily family = span.parts ? ATTENTION_DECODE : attention_choose(&attention, span.n_tokens);
  s->a_is_in_planes =
      narrow_three_kernels(s, layer, n_rows) &&
      (span.parts ? attention_many_make_planes(&attention) : attention_makes_planes(&attention, family));
  if (s->a_is_in_planes)
    attention.planes = s->planes[PLANES_A], attention.planes_tokens = linear_planes_tokens(n_rows);
  if (!span.parts) return attention_run(family, &attention, span.n_tokens, stream, err);
  const int size = sequences_tile_size(q, attention_tile_tokens(&attention));
  const AttentionWork work = {s->rows.units,    s->rows.tiles[size], q->n_units,
                              q->n_tiles[size], q->unit_keys,        q->tile_keys[size]};
  return attention_run_many(&attention, &work, q->n_rows, stream, err);
}

/* Makes z and a in the projections from the outputs of z_in and a_in, which lie before z and a. */
static Status run_second_gates(BackendState *s, const DeviceLayer *l, int n_rows, Error *err) {
  const DeltaConfig *delta = &s->loaded->model->config.delta;
  const DeviceLinear *const gates[] = {&l->delta_z, &l->delta_a};
  const int rank = delta->gate_rank, stride = padded_row(rank);
  float *from = s->projections + delta->n_value_heads + delta_channels(delta), *to = from + 2 * rank;
  for (int i = 0; i < 2; i++) {
    TRY(ops_round(from + i * rank, s->projection_stride, 1, rank, n_rows, s->gate_h, stride,
                  s->loaded->stream, err));
    TRY(products_matmul(s, gates[i], s->gate_h, stride, n_rows, LINEAR_TO_F32, to, s->projection_stride,
                        err));
    to += gates[i]->n_out;
  }
  return STATUS_OK;
}

static Status cuda_norm_delta_rule(BackendState *s, TokenRange span, int layer, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const DeviceLayer *l = &m->layers[layer];
  const int n_rows = rows_of(s, span);
  const bool beside = config_layer(c, layer).delta_beside;
  DeltaRule rule = {.sizes = c->delta,
                    .type = s->options.states,
                    .eps = (float)(c->delta.norm_eps != 0 ? c->delta.norm_eps : c->norm_eps),
                    .shared_bytes = m->shared_bytes,
                    .pos = s->rows.pos,
                    .projections = s->projections,
                    .stride = s->projection_stride,
                    .h = s->h,
                    .h_stride = s->h_stride,
                    .conv = l->delta_conv,
                    .conv_bias = l->delta_conv_bias,
                    .a_log = l->delta_a_log,
                    .dt_bias = l->delta_dt_bias,
                    .skip = l->delta_skip,
                    .norm = l->delta_norm,
                    .state = state_recurrent(s, layer),
                    .segments = state_segments(s, span),
                    .out = beside ? s->beside : s->a,
                    .out_stride = padded_row(beside ? l->delta_o.n_in : l->o.n_in),
                    .workspace = s->delta_workspace,
                    .max_tokens = s->options.max_chunk};
  const DeviceLinear *first = &l->qkv.parts[0];
  if (l->qkv.n_parts > 1 && !span.parts && !first->host && delta_step_supports(&rule, first, n_rows))
    rule.gates = first;
  TRY(residual_norm_input(s, attn_input_norm(l), n_rows, err));
  TRY(products_project(s, &l->qkv, rule.gates ? 1 : 0, n_rows, s->projections, s->projection_stride, err));
  if (c->delta.gate_rank > 0) TRY(run_second_gates(s, l, n_rows, err));
  if (!span.parts) return delta_run(delta_choose(&rule, n_rows), &rule, n_rows, m->stream, err);
  return delta_run_segments(&rule, n_rows, m->stream, err);
}

/* Multiplies attention's output by the sigmoid or softplus of its gates. */
static Status apply_gates(BackendState *s, int n_tokens, int layer, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const LayerConfig own = config_layer(c, layer);
  if (own.latent) return latent_gate(s, n_tokens, err);
  const bool in_q = own.attn_gate == ATTN_GATE_IN_Q;
  const HeadGates gates = {.gates = s->projections + (in_q ? own.head_dim : qkv_outputs(&own)),
                           .stride = (size_t)s->projection_stride,
                           .step = (in_q ? own.q_outputs : own.n_gates) / own.n_heads,
                           .by_head = own.attn_gate == ATTN_GATE_HEADS,
                           .softplus = c->attn_gate_softplus,
                           .n_heads = own.n_heads,
                           .head_dim = own.head_dim};
  return ops_gate_heads(&gates, n_tokens, s->a, s->loaded->stream, err);
}

static Status cuda_norm_short_conv(BackendState *s, TokenRange span, int layer, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const DeviceLayer *l = &m->layers[layer];
  const int n_rows = rows_of(s, span);
  TRY(residual_norm_input(s, attn_input_norm(l), n_rows, err));
  TRY(products_project(s, &l->qkv, 0, n_rows, s->projections, s->projection_stride, err));
  const ShortConv conv = {.hidden = c->conv.channels,
                          .n_taps = c->conv.taps,
                          .pos = s->rows.pos,
                          .projections = s->projections,
                          .stride = s->projection_stride,
                          .taps = l->conv_taps,
                          .bias = l->conv_bias,
                          .kept = state_recurrent(s, layer),
                          .out = s->a,
                          .out_stride = padded_row(l->o.n_in),
                          .segments = state_segments(s, span)};
  return ops_short_conv(&conv, n_rows, m->stream, err);
}

/* *out = attention's output as the matrix o reads it. If values are shorter than keys, the heads' outputs are
 * packed without gaps into s->q, whose queries are no longer needed. */
static Status join_values(BackendState *s, int n_rows, int layer, void **out, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const LayerConfig own = config_layer(c, layer);
  const ValueHeads heads = {own.n_heads, own.value_dim, own.head_dim};
  *out = s->a;
  if (own.kind != LAYER_ATTENTION || c->value_dim == 0) return STATUS_OK;
  *out = s->q;
  return ops_join_values(&heads, s->a, n_rows, s->q, s->loaded->stream, err);
}

static Status cuda_out_proj_residual(BackendState *s, TokenRange span, int layer, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const DeviceLayer *l = &s->loaded->layers[layer];
  const LayerConfig own = config_layer(c, layer);
  int n_rows = rows_of(s, span);
  LinearCall call =
      products_call(s, &l->o, s->a, padded_row(l->o.n_in), n_rows, LINEAR_ADD_F32, s->x, c->hidden);
  if (narrow_fit(s, layer, n_rows, NARROW_O, &call)) return products_run(s, &call, err);
  if (own.n_gates > 0) TRY(apply_gates(s, n_rows, layer, err));
  if (c->norm == NORM_SPHERE)
    TRY(ops_multiply(s->a, true, (size_t)l->o.n_in, l->o.n_in, NULL, (float)(c->norm_eps * c->hidden), n_rows,
                     s->loaded->stream, err));
  if (own.latent) TRY(latent_values(s, layer, n_rows, err));
  if (own.delta_beside)
    TRY(residual_linear(s, &l->delta_o, s->beside, n_rows, (Norms){0}, first_sum(layer), err));
  /* In three cases the next norm is not made here: route() makes it for experts, cuda_mix_for_mlp() makes it
   * for streams, and the input of a parallel MLP is made already. */
  const bool other = own.n_experts > 0 || c->streams.n > 0 || c->parallel;
  void *from;
  TRY(join_values(s, n_rows, layer, &from, err));
  if (span.n_kept > 0) {
    TRY(rows_keep(s, span, from, padded_row(l->o.n_in), err));
    n_rows = span.n_kept;
  }
  TRY(residual_linear(s, &l->o, from, n_rows, (Norms){l->attn_post_norm, NULL, other ? NULL : l->mlp_norm},
                      first_sum(layer), err));
  if (c->parallel) s->ready = READY_IN_H;
  return residual_centre(s, OP_OUT_PROJ, n_rows, err);
}

/* x = layer_scalar * (x + rmsnorm(W_projection (activation(W_gate r) * p)) * input_norm); r is the residual
 * stream (residual_scale * x), p the layer's own input. With AltUp the rmsnorm term is added to all streams
 * but the first, not to x. Without per_layer_width there is nothing to do. r can exceed fp16's range, so
 * r / 64 is rounded to fp16; gated.factor multiplies the gate by 64 again. */
static Status cuda_layer_end(BackendState *s, TokenRange span, int layer, Error *err) {
  const float divisor = 64;
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const DeviceLayer *l = &m->layers[layer];
  const int n = c->per_layer_width;
  const int n_rows = rows_of(s, span);
  if (n == 0) return STATUS_OK;
  TRY(ops_round(s->x, c->hidden, (float)c->residual_scale / divisor, c->hidden, n_rows, s->h, s->h_stride,
                m->stream, err));
  TRY(products_matmul(s, &l->input_gate, s->h, s->h_stride, n_rows, LINEAR_TO_F32, s->input_gate, n, err));
  const Gated gated = {.activation = c->activation,
                       .factor = divisor,
                       .up_factor = 1,
                       .gate = s->input_gate,
                       .up = s->inputs + (size_t)layer * (size_t)n,
                       .gate_stride = (size_t)n,
                       .up_stride = (size_t)c->n_layers * (size_t)n,
                       .n = n,
                       .out = s->g,
                       .out_stride = padded_row(n)};
  TRY(ops_gated(&gated, n_rows, m->stream, err));
  if (c->altup.n > 0) return altup_add_input(s, layer, n_rows, err);
  return residual_linear(s, &l->input_projection, s->g, n_rows,
                         (Norms){l->input_norm, l->scalar, next_attn_norm(m, layer)}, 0, err);
}

static Status cuda_norm_logits(BackendState *s, TokenRange span, int layer, Error *err) {
  const int first_row = span.first_logit;
  int n_rows = span.n_logit_rows;
  forget_best(s);
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const float *x = s->x + (size_t)first_row * (size_t)c->hidden;
  s->n_logit_rows = n_rows;
  tokens_forget_picks(s);
  if (span.parts) n_rows = s->sequences.n_logit_rows;
  if (c->altup.n > 0) {
    TRY(altup_join(s, span, first_row, n_rows, s->lm_head_in, err));
  } else if (c->streams.n > 0) {
    TRY(streams_mix_logits(s, span, first_row, n_rows, s->lm_head_in, err));
  } else {
    if (span.parts) {
      TRY(ops_gather_rows(s->x, s->rows.logit_rows, c->hidden, n_rows, s->logit_x, m->stream, err));
      x = s->logit_x;
    }
    TRY(residual_norm(s, x, (InputNorm){m->final_norm, m->final_norm_bias}, n_rows, s->lm_head_in, err));
  }
  TRY(products_matmul(s, &m->head, s->lm_head_in, s->h_stride, n_rows, LINEAR_TO_F32,
                      s->logits + shared_first_logit(s), c->vocab_size, err));
  if (m->logit_factors)
    TRY(ops_multiply(s->logits, false, (size_t)c->vocab_size, c->vocab_size, m->logit_factors, 0, n_rows,
                     m->stream, err));
  if (c->logit_divisor != 1 || c->logit_cap != 0) /* before the other GPUs read the logits */
    TRY(ops_finish_logits(s->logits, c->vocab_size, n_rows, (float)c->logit_divisor, (float)c->logit_cap,
                          m->stream, err));
  return shared_gather_logits(s, first_sum(c->n_layers), n_rows, err);
}

/* --- properties of the model and the device */

static Status cuda_arithmetic(const BackendModel *loaded, char *out, size_t size, Error *err) {
  char name[256];
  TRY(device_name(loaded->gpu, name, sizeof name, err));
  const char *step = loaded->decode_step == DECODE_FUSED  ? "cluster"
                     : loaded->decode_step == DECODE_AUTO ? "one kernel"
                                                          : "kernels";
  const char *act = loaded->act == ACT_F16 ? "f16" : loaded->copies ? "int8 by bytes" : "int8";
  const int used = snprintf(out, size, "%s, act %s, kernel %s, decode step %s", name, act,
                            loaded->kernel ? loaded->kernel : "chosen", step);
  if (loaded->n_host > 0 && used > 0 && (size_t)used < size)
    snprintf(out + used, size - (size_t)used, ", on the host experts of %d and matrices of %d layers by %s",
             loaded->n_host_experts, loaded->n_host_layers, cpu_products_arithmetic(loaded->cpu));
  return STATUS_OK;
}

static Status cuda_memory(const Model *model, const BackendOptions *options, DeviceMemory *memory,
                          Error *err) {
  size_t all_bytes;
  TRY(device_use(options->gpu, err));
  TRY(weights_memory(model, options->weight_bytes, memory, err));
  TRY(copies_bytes(model, options, &memory->copies, err));
  return device_bytes(&memory->free_bytes, &all_bytes, err);
}

Status cuda_memory_now(const BackendOptions *options, size_t *free_bytes, size_t *all_bytes, Error *err) {
  TRY(device_use(options->gpu, err));
  return device_bytes(free_bytes, all_bytes, err);
}

Status cuda_describe(const BackendOptions *options, char *out, size_t size, Error *err) {
  return device_name(options->gpu, out, size, err);
}

static const BackendProbe cuda_probe = {.places = weights_memory,
                                        .memory_now = cuda_memory_now,
                                        .describe = cuda_describe,
                                        .time_kernels = kernel_bench,
                                        .measure_machine = kernel_bench_machine};

const Backend cuda_backend = {
    .name = "cuda",
    .probe = &cuda_probe,
    .quantizer = &cuda_quantizer,
    .chunk = CUDA_CHUNK,
    .row_cost = CUDA_ROW_COST,
    .row_costs = tokens_row_costs,
    .guesses = GUESS_ROWS,
    .check_model = cuda_check_model,
    .check_invariant = prepare_check_invariant,
    .prefers_invariant = prepare_prefers_invariant,
    .load = cuda_load,
    .unload = cuda_unload,
    .memory = cuda_memory,
    .state_bytes = state_bytes,
    .open = cuda_open,
    .close = state_close,
    .read_logits = tokens_read_logits,
    .kv_copy = state_kv_copy,
    .arithmetic = cuda_arithmetic,
    .recurrent_bytes = state_recurrent_bytes,
    .state_save = state_save,
    .state_restore = state_restore,
    .state_copy = state_copy,
    .fused_step = cuda_fused_step,
    .begin_step = cuda_begin_step,
    .end_step = cuda_end_step,
    .wait_token = tokens_wait,
    .drain = tokens_drain,
    .head_spares = tokens_head_spares,
    .cuts_rows = rows_cut,
    .page_tokens = KV_PAGE_TOKENS,
    .sequences = CUDA_SEQUENCES,
    .set_pages = state_set_pages,
    .copy_page = state_copy_page,
    .draft_take = draft_take,
    .draft_move = draft_move,
    .draft_context = draft_context,
    .keep_tap = state_keep_tap,
    .read_taps = state_read_taps,
    .sample = tokens_sample,
    .sample_rows = tokens_sample_rows,
    .take_rows = tokens_take_rows,
#define OPERATION(KIND, function, ...) .run[OP_##KIND] = cuda_##function,
#include "model/operations.def"
};
