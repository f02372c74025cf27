/* backend.c - the CPU's Backend: a session's memory, and the operations.
 *
 * Called by: the engine, products.c, quantize/calibration.c and the commands through cpu_backend.
 * Always true: matrices are never copied; a session's memory is one block; a row gets the same bits whatever
 *              the other rows and the number of threads; a matmul's input is followed by zeros up to a
 *              multiple of ALIGN_FLOATS. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "cpu/cpu.h"
#include "model/buffers.h"
#include "model/layers.h"

enum {
  LINE = 64,
  SEQUENCES = 32, /* more sequences at once give hardly more tokens a second */
};

/* --- a session's state --- */

int cpu_padded(int64_t n) {
  n = (n + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
  return n < INT32_MAX ? (int)n : INT32_MAX;
}

static void raise_to(int *most, int64_t n) {
  if (cpu_padded(n) > *most) *most = cpu_padded(n);
}

/* Plans sparse attention (sparse.c): block_scores has room for the scores and for a copy to select from. */
static void plan_index(const ModelConfig *config, const StateOptions *options, StatePlan *plan) {
  const IndexerConfig *indexer = &config->indexer;
  if (!indexer->block) return;
  raise_to(&plan->index, (int64_t)(indexer->n_heads + 1) * indexer->head_dim);
  if (indexer->budget >= options->n_ctx) return; /* every row attends to all positions */
  plan->selected = cpu_most_selected(indexer);
  plan->block_scores = 2 * (options->n_ctx / indexer->block + 1);
  plan->gathered_bytes = cpu_gathered_bytes(plan, options->kv, config->head_dim);
  plan->gathered_bytes = (plan->gathered_bytes + LINE - 1) / LINE * LINE;
}

static StatePlan plan_of(const ModelConfig *config, const StateOptions *options) {
  const DeltaConfig *delta = &config->delta;
  StatePlan plan = {.hidden = cpu_padded(config->hidden),
                    .channels = cpu_padded(delta_channels(delta)),
                    .delta_heads = cpu_padded(delta->n_value_heads),
                    .delta_decays = cpu_padded(delta_decays(delta)),
                    .gate_rank = cpu_padded(delta->gate_rank),
                    .delta_width = cpu_padded((int64_t)delta->n_value_heads * delta->value_dim),
                    .recurrent_bytes = cpu_all_recurrent_bytes(config),
                    .n_segments = (options->n_ctx - 1) / SEGMENT + 1,
                    .n_sequences = options->n_sequences ? options->n_sequences : 1,
                    .n_table = options->n_sequences ? (options->n_ctx - 1) / PAGE_TOKENS + 1 : 0,
                    .n_ropes = 1,
                    .angles = config->rope.rotary_dim / 2};
  /* A convolution of one tap has states of 0 bytes, but `recurrent` must not be NULL. */
  if (plan.recurrent_bytes == 0) plan.recurrent_bytes = sizeof(float);
  plan.heads = plan.delta_width;
  if (config->conv.taps) {
    raise_to(&plan.heads, config->hidden);
    raise_to(&plan.channels, 2 * (int64_t)config->hidden + plan.hidden); /* b, c, and u padded */
  }
  for (int layer = 0; layer < config->n_layers; layer++) {
    const LayerConfig own = config_layer(config, layer);
    raise_to(&plan.heads, (int64_t)own.n_heads * own.head_dim);
    raise_to(&plan.kv_heads, (int64_t)own.n_kv_heads * own.head_dim);
    raise_to(&plan.gates, own.n_gates);
    if (own.attn_gate == ATTN_GATE_IN_Q) raise_to(&plan.queries, own.q_outputs);
    raise_to(&plan.intermediate, own.intermediate);
    raise_to(&plan.v_width, own.head_dim);
    if (own.rope == ROPE_LOCAL) plan.n_ropes = 2;
    if (own.sparsity > 0 || config->norm == NORM_SPHERE) raise_to(&plan.up, own.intermediate);
    if (own.begins) raise_to(&plan.start, config->hidden);
    if (own.delta_beside) plan.beside = plan.delta_width;
  }
  const LatentConfig *latent = &config->latent;
  const int head = latent->nope_dim + latent->rope_dim;
  if (latent->kv_rank) {
    raise_to(&plan.queries, (int64_t)config->n_heads * (head > latent->value_dim ? head : latent->value_dim));
    raise_to(&plan.q_rank, latent->q_rank);
    raise_to(&plan.kv_a, latent->kv_rank + latent->rope_dim);
    raise_to(&plan.head_in, latent->kv_rank > latent->nope_dim ? latent->kv_rank : latent->nope_dim);
  }
  raise_to(&plan.intermediate, config->per_layer_width); /* layer_end uses the MLP's scratch, g */
  raise_to(&plan.inputs, (int64_t)config->n_layers * config->per_layer_width);
  if (config->draft.kind) {
    raise_to(&plan.states, (int64_t)config->draft.n_states * config->draft.target_hidden);
    raise_to(&plan.pairs, 2 * (int64_t)config->hidden);
    raise_to(&plan.pairs, 2 * (int64_t)config->draft.target_hidden);
  }
  raise_to(&plan.streams, (int64_t)config->streams.n * config->hidden);
  raise_to(&plan.stream_rank, config->streams.rank);
  raise_to(&plan.stream_factors, config->streams.n);
  raise_to(&plan.streams, (int64_t)config->altup.n * plan.hidden);
  raise_to(&plan.stream_rank, config->altup.laurel_rank);
  raise_to(&plan.stream_factors, config->altup.n * config->altup.n);
  raise_to(&plan.ngrams, config->ngrams.width);
  plan_index(config, options, &plan);
  raise_to(&plan.routes, config->experts.n_experts);
  raise_to(&plan.expert_width, config->experts.width);
  if (config->experts.n_experts) raise_to(&plan.expert_row, expert_row_width(config));
  if (plan.n_ropes > 1 && config->local_rope.rotary_dim > config->rope.rotary_dim)
    plan.angles = config->local_rope.rotary_dim / 2;
  return plan;
}

/* Bytes of n items, rounded up to whole cache lines; SIZE_MAX: too many. */
static size_t lines_of(size_t n, size_t size) {
  const size_t bytes = buffers_product(n, size);
  return bytes < SIZE_MAX - LINE ? (bytes + LINE - 1) / LINE * LINE : SIZE_MAX;
}

/* The sizes of a layer's KV cache; zeros: it has none of its own. The caller sets `heads`. */
static LayerCache size_cache(const ModelConfig *config, const StateOptions *options, int index) {
  if (config_kv_numbers(config, index) == 0) return (LayerCache){0};
  const LayerConfig layer = config_layer(config, index);
  const size_t item = kv_number_bytes(options->kv);
  const size_t places =
      options->n_sequences ? buffers_product((size_t)options->n_pages, PAGE_TOKENS) : (size_t)options->n_ctx;
  const size_t blocks = (places - 1) / KEY_BLOCK + 1,
               n_scales = (size_t)kv_key_scales(options->kv, layer.head_dim) * KEY_BLOCK;
  LayerCache cache = {.head_dim = layer.head_dim, .v_width = cpu_padded(layer.head_dim)};
  const size_t values = lines_of(buffers_product(places, (size_t)cache.v_width), item),
               value_scales = lines_of(n_scales ? places : 0, KV_SCALE_BYTES);
  cache.k_bytes = lines_of(buffers_product(blocks, (size_t)layer.head_dim * KEY_BLOCK), item);
  cache.scales = cache.k_bytes + values;
  cache.scales_bytes = lines_of(buffers_product(blocks, n_scales), KV_SCALE_BYTES);
  const size_t most = SIZE_MAX / 8;
  const bool fits = cache.k_bytes < most && values < most && cache.scales_bytes < most && value_scales < most;
  cache.head_bytes = fits ? cache.scales + cache.scales_bytes + value_scales : SIZE_MAX;
  return cache;
}

static size_t cache_bytes(const ModelConfig *config, const StateOptions *options, int layer) {
  return buffers_product((size_t)config_layer(config, layer).n_cache_heads,
                         size_cache(config, options, layer).head_bytes);
}

static size_t all_cache_bytes(const ModelConfig *config, const StateOptions *options) {
  size_t all = 0;
  for (int layer = 0; layer < config->n_layers; layer++)
    if (__builtin_add_overflow(all, cache_bytes(config, options, layer), &all)) return SIZE_MAX;
  return all;
}

/* Divides the memory of the KV caches among the layers. */
static void place_caches(BackendState *state, const ModelConfig *config) {
  const StateOptions *options = &state->options;
  const LayerCache *shared = options->target ? options->target->kv : state->kv;
  uint8_t *at = state->caches; /* NULL for a drafter whose layers all read the target's cache */
  for (int layer = 0; layer < config->n_layers; layer++) {
    const LayerConfig own = config_layer(config, layer);
    LayerCache cache = size_cache(config, options, layer);
    cache.heads = at;
    if (at) at += cache_bytes(config, options, layer);
    state->kv[layer] = own.shares_kv ? shared[own.kv_layer] : cache;
  }
}

/* The matrices that one call of run_matmuls(), run_groups() or cpu_products_stacked() may get: those of an
 * operation that read the same inputs. For the operation with experts all matrices count as one call, since
 * the chosen and the shared expert run together. */
typedef struct {
  int operation, n_in;
  size_t n_parts;
} MatrixCall;

/* Raises the sizes to what a call needs. n_parts is the number of the call's partial sums: outputs * splits *
 * rows. */
static void raise_sizes(MatmulScratch *scratch, int n_in, size_t n_parts) {
  const size_t width = ((size_t)n_in + ROUNDED_ALIGN - 1) / ROUNDED_ALIGN * ROUNDED_ALIGN;
  if (scratch->rounded.stride < width) scratch->rounded.stride = width;
  if (scratch->n_parts < n_parts) scratch->n_parts = n_parts;
}

static void size_layer(MatmulScratch *scratch, const ModelConfig *config, int layer, size_t rows) {
  const int n_linears = layer_linear_count(config, layer);
  MatrixCall calls[N_LAYER_LINEARS + N_EXPERT_LINEARS];
  int n = 0;
  for (int which = 0; which < n_linears && which < expert_linear(1, 0); which++) {
    if (!layer_linear_exists(config, layer, which)) continue;
    int n_in, n_out, i = 0, operation = (int)layer_tensor_operation(config, layer, false, which);
    const size_t n_chosen = which < N_LAYER_LINEARS ? 1 : (size_t)config->experts.n_chosen,
                 n_rows = buffers_product(rows, n_chosen);
    if (operation == OP_DELTA) operation = OP_QKV; /* with delta_beside they may be stacked */
    layer_linear_sizes(config, layer, which, &n_in, &n_out);
    while (i < n && (calls[i].operation != operation || (operation != OP_EXPERTS && calls[i].n_in != n_in)))
      i++;
    if (i == n) calls[n++] = (MatrixCall){operation, n_in, 0};
    calls[i].n_parts += buffers_product(n_rows, (size_t)n_out * (size_t)matmul_splits_of(n_in));
    raise_sizes(scratch, n_in, calls[i].n_parts);
  }
}

/* A dense lm_head has no partial sums. */
static void size_scratch(MatmulScratch *scratch, const ModelConfig *config, const StateOptions *options) {
  const size_t rows = (size_t)(options->max_chunk < FEW_ROWS ? options->max_chunk : FEW_ROWS),
               logit_rows = (size_t)options->max_logit_rows < rows ? (size_t)options->max_logit_rows : rows;
  LayerConfig last[N_LAYER_KINDS] = {{0}};
  for (int layer = 0; layer < config->n_layers; layer++) {
    LayerConfig own = config_layer(config, layer);
    own.kv_layer = 0; /* layers that differ in this alone have matrices of the same sizes */
    if (memcmp(&own, &last[own.kind], sizeof own) == 0) continue;
    last[own.kind] = own;
    size_layer(scratch, config, layer, rows);
  }
  for (int which = 0; which < N_MODEL_LINEARS; which++) {
    int n_in, n_out;
    model_linear_sizes(config, which, &n_in, &n_out);
    if (n_out == 0 || (which == MODEL_HEAD && !config->quant.head)) continue;
    const size_t n_rows = model_linear_rows(which) == ROWS_OF_LOGITS ? logit_rows : rows;
    raise_sizes(scratch, n_in, buffers_product(n_rows, (size_t)n_out * (size_t)matmul_splits_of(n_in)));
  }
}

static void take_scratch(MatmulScratch *scratch, const ModelConfig *config, const StateOptions *options,
                         Buffers *memory) {
  RoundedRows *rounded = &scratch->rounded;
  const size_t heads = config->latent.kv_rank ? (size_t)config->n_heads : 0,
               chosen = 1 + (size_t)config->experts.n_chosen;
  const size_t all = buffers_product((size_t)options->max_chunk, heads > chosen ? heads : chosen);
  size_scratch(scratch, config, options);
  buffers_add(memory, &scratch->parts, scratch->n_parts, 1, sizeof(float));
  scratch->n_ordered = config->quant.ordered ? buffers_product(all, rounded->stride) : 0;
  buffers_add(memory, &scratch->ordered, scratch->n_ordered, 1, sizeof(float));
  if (!config->quant.int8_activations) return;
  buffers_add(memory, &rounded->numbers, all, rounded->stride, sizeof(int16_t));
  buffers_add(memory, &rounded->scales, all, 1, sizeof(float));
}

/* Sets the plan of a state, as its options and the config require, and takes its buffers. Returns their bytes
 * plus LINE, so that cpu_open() can align the start; SIZE_MAX: too many. */
static size_t lay_out(BackendState *state, const ModelConfig *config, Buffers *memory) {
  const StateOptions *options = &state->options;
  const ExpertConfig *experts = &config->experts;
  const DraftConfig *draft = &config->draft;
  StatePlan *plan = &state->plan;
  *plan = plan_of(config, options);
  const size_t rows = (size_t)options->max_chunk, chosen = rows * (size_t)experts->n_chosen,
               n_heads = (size_t)config->n_heads, most_heads = (size_t)config_most_heads(config),
               n_segments = (size_t)plan->n_segments, n_ropes = (size_t)plan->n_ropes,
               n_states = (size_t)plan->n_sequences + (size_t)options->n_slots,
               target_width = (size_t)draft->n_states * (size_t)draft->target_hidden;
#define LIVE(first, last) buffers_live(memory, OP_##first, OP_##last);
#define BUFFER(type, member, n, width)                                                                       \
  buffers_add(memory, &state->member, (size_t)(n), (size_t)(width), sizeof(type));
#include "cpu/buffers.def"
  buffers_live(memory, OP_EMBED, OP_LOGITS);
  take_scratch(&state->scratch, config, options, memory);
  const size_t bytes = buffers_fit(memory, LINE);
  return bytes > SIZE_MAX - LINE ? SIZE_MAX : bytes + LINE;
}

static size_t cpu_state_bytes(const ModelConfig *config, const StateOptions *options) {
  BackendState state = {.options = *options};
  Buffers memory = {.n = 0};
  size_t bytes;
  return __builtin_add_overflow(lay_out(&state, config, &memory), sizeof state, &bytes) ? SIZE_MAX : bytes;
}

static void cpu_close(BackendState *state) {
  if (!state) return;
  free(state->memory);
  free(state);
}

RELEASE_BY(state_release, BackendState, cpu_close)

static Status cpu_open(BackendModel *loaded, const StateOptions *options, BackendState **out, Error *err) {
  *out = NULL;
  OWNED(state_release) BackendState *state = NULL;
  TRY(NEW(state, 1, "a session", err));
  state->loaded = loaded;
  state->options = *options;
  const ModelConfig *config = &loaded->model->config;
  Buffers memory = {.n = 0};
  state->memory = mem_alloc(lay_out(state, config, &memory), 1, "a session's cache and activations", err);
  if (!state->memory) return STATUS_FAILED;
  uint8_t *start = state->memory;
  buffers_point(&memory, start + (LINE - (uintptr_t)start % LINE) % LINE);
  place_caches(state, config);
  *out = TAKE(state);
  return STATUS_OK;
}

/* --- the operations --- */

/* p = (p + sqrt(width) * row[first .. first + width)) / sqrt(2), `row` being the table's row `id`, or row 0
 * if the table has no such row. */
static void add_table_row(const Matrix *table, int32_t id, int first, int width, float *p) {
  enum { BLOCK = 256 };
  float part[BLOCK];
  const float scale = (float)sqrt(width), half = (float)sqrt(0.5);
  if (id >= table->n_rows) id = 0;
  for (int from = 0; from < width; from += BLOCK) {
    const int n = width - from < BLOCK ? width - from : BLOCK;
    floats_read(table->data, table->dtype, (size_t)id * (size_t)table->n_columns + (size_t)(first + from),
                (size_t)n, part);
    for (int i = 0; i < n; i++) p[from + i] = (p[from + i] + part[i] * scale) * half;
  }
}

/* Sets state->inputs: each layer's own input for each token. PRECOND x is the embedding */
static void make_layer_inputs(BackendState *state, TokenRange range, const int32_t *ids) {
  const BackendModel *loaded = state->loaded;
  const ModelConfig *config = &loaded->model->config;
  const int width = config->per_layer_width;
  const float scale = (float)(1 / sqrt(config->hidden));
  run_matmul(state, loaded->input_projection, state->x, state->plan.hidden, range.n_tokens, state->inputs,
             state->plan.inputs);
#pragma omp parallel for if (range.n_tokens > 1) num_threads(loaded->n_threads)
  for (int r = 0; r < range.n_tokens; r++) {
    float *p = state->inputs + (size_t)r * (size_t)state->plan.inputs;
    for (int layer = 0; layer < config->n_layers; layer++, p += width) {
      for (int i = 0; i < width; i++) p[i] *= scale;
      loaded->kernels->rms_norm(p, loaded->input_norm, width, config->norm_eps, p);
      add_table_row(&loaded->model->input_table, ids[r], layer * width, width, p);
    }
  }
}

static void read_row(const Matrix *table, int row, float *x) {
  floats_read(table->data, table->dtype, (size_t)row * (size_t)table->n_columns, (size_t)table->n_columns, x);
}

void cpu_read_embedding(const BackendState *state, int32_t id, float *x) {
  read_row(&state->loaded->model->embedding, id, x);
}

void cpu_centre(float *x, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += (double)x[i];
  for (int i = 0; i < n; i++) x[i] = (float)((double)x[i] - sum / n);
}

/* Centres x, if operations of this kind end with that. */
static void centre(BackendState *state, OpKind kind, int n_rows) {
  const ModelConfig *config = &state->loaded->model->config;
  for (int r = 0; op_centres(config, kind) && r < n_rows; r++)
    cpu_centre(cpu_row(state->x, state->plan.hidden, r), config->hidden);
}

static Status cpu_embed(BackendState *state, TokenRange range, int layer, Error *err) {
  const Model *model = state->loaded->model;
  const Matrix *embedding = &model->embedding;
  const int32_t *ids = range.ids ? range.ids : &state->last_id;
  cpu_place_rows(state, range);
  for (int r = 0; r < range.n_tokens; r++) {
    if (ids[r] < 0 || ids[r] >= embedding->n_rows)
      return error_set(err, STATUS_FAILED, "token %d at position %d is outside the vocabulary of %d",
                       (int)ids[r], state->positions[r], embedding->n_rows);
  }
  const float scale = (float)model->config.embedding_scale;
#pragma omp parallel for if (range.n_tokens > 1) num_threads(state->loaded->n_threads)
  for (int r = 0; r < range.n_tokens; r++) {
    float *x = state->x + (size_t)r * (size_t)state->plan.hidden;
    cpu_read_embedding(state, ids[r], x);
    if (model->config.embedding_norm)
      state->loaded->kernels->rms_norm(x, state->loaded->ones, embedding->n_columns, model->config.norm_eps,
                                       x);
    for (int i = 0; scale != 1 && i < embedding->n_columns; i++) x[i] *= scale;
    if (!model->config.learned_positions) continue;
    float *learned = cpu_row(state->h, state->plan.hidden, r);
    read_row(&model->input_table, state->positions[r], learned);
    for (int i = 0; i < embedding->n_columns; i++) x[i] += learned[i];
  }
  centre(state, OP_EMBED, range.n_tokens);
  if (state->plan.ngrams) memcpy(state->ids, ids, (size_t)range.n_tokens * sizeof *ids);
  for (int r = 0; r < range.n_tokens; r++)
    for (int s = 0; s < model->config.streams.n; s++)
      memcpy(cpu_row(state->streams, state->plan.streams, r) + s * model->config.hidden,
             cpu_row(state->x, state->plan.hidden, r), (size_t)model->config.hidden * sizeof *state->x);
  if (model->config.per_layer_width > 0) make_layer_inputs(state, range, ids);
  if (model->config.altup.n > 0) cpu_begin_streams(state, range.n_tokens);
  return STATUS_OK;
}

void cpu_norm_rows(const BackendState *state, const float *from, int from_stride, int n_rows,
                   const float *weight, int n, double eps, float *to, int to_stride) {
#pragma omp parallel for if (n_rows > 1) num_threads(state->loaded->n_threads)
  for (int r = 0; r < n_rows; r++)
    state->loaded->kernels->rms_norm(from + (size_t)r * (size_t)from_stride, weight, n, eps,
                                     to + (size_t)r * (size_t)to_stride);
}

static void add_bias(const float *bias, int n, float *h) {
  for (int i = 0; bias && i < n; i++) h[i] += bias[i];
}

const float *cpu_normalised(BackendState *state, int n_rows, const float *weight, const float *bias) {
  const ModelConfig *config = &state->loaded->model->config;
  if (config->streams.n > 0) return state->h; /* already the weighted mean of the streams */
  if (!weight) return state->x;
  cpu_norm_rows(state, state->x, state->plan.hidden, n_rows, weight, config->hidden, config->norm_eps,
                state->h, state->plan.hidden);
  for (int r = 0; r < n_rows; r++)
    add_bias(bias, config->hidden, state->h + (size_t)r * (size_t)state->plan.hidden);
  return state->h;
}

/* The input of a layer's attention, delta rule or convolution. */
static const float *attn_input(BackendState *state, TokenRange range, int layer) {
  const CpuLayer *weights = &state->loaded->layers[layer];
  return cpu_normalised(state, range.n_tokens, weights->attn_norm, weights->attn_norm_bias);
}

/* x = rmsnorm(x) * (1 - rates); rates NULL: zeros. */
static void norm_x(BackendState *state, int n_rows, const float *rates) {
  const ModelConfig *config = &state->loaded->model->config;
  cpu_norm_rows(state, state->x, state->plan.hidden, n_rows, state->loaded->ones, config->hidden,
                config->norm_eps, state->x, state->plan.hidden);
  for (int r = 0; rates && r < n_rows; r++)
    for (int i = 0; i < config->hidden; i++) cpu_row(state->x, state->plan.hidden, r)[i] *= 1 - rates[i];
}

static Status cpu_begin_loop(BackendState *state, TokenRange range, int layer, Error *err) {
  const size_t n = (size_t)state->plan.hidden * (size_t)range.n_tokens;
  norm_x(state, range.n_tokens, NULL);
  if (config_layer(&state->loaded->model->config, layer).begins == BEGINS_FIRST_LOOP)
    memcpy(state->start, state->x, n * sizeof *state->x);
  for (size_t i = 0; i < n; i++) state->x[i] += state->start[i];
  return STATUS_OK;
}

/* With NORM_SPHERE: row = row / sqrt(|row|^2 + eps), for rows of n numbers. */
static void to_length(const BackendState *state, float *rows, int stride, int n_rows, int n, double eps) {
  if (state->loaded->model->config.norm != NORM_SPHERE) return;
  cpu_norm_rows(state, rows, stride, n_rows, state->loaded->ones, n, eps / n, rows, stride);
  for (size_t r = 0; r < (size_t)n_rows; r++)
    for (int i = 0; i < n; i++) rows[r * (size_t)stride + (size_t)i] *= (float)(1 / sqrt(n));
}

/* x = x + residual_scale * post_norm(w from + bias); post_norm NULL: no norm. */
static void matmul_residual(BackendState *state, CpuLinear w, const float *from, int from_stride, int n_rows,
                            const float *post_norm) {
  const BackendModel *loaded = state->loaded;
  const ModelConfig *config = &loaded->model->config;
  const float scale = (float)config->residual_scale;
  size_t stride = (size_t)state->plan.hidden;
  const Matmul matmul = {
      .w = w, .add = !post_norm, .scale = scale, .y = post_norm ? state->h : state->x, .y_stride = stride};
  run_matmuls(state, from, from_stride, n_rows, &matmul, 1);
  if (!post_norm) return;
  cpu_norm_rows(state, state->h, state->plan.hidden, n_rows, post_norm, config->hidden, post_norm_eps(config),
                state->h, state->plan.hidden);
  if (config->norm == NORM_SPHERE) norm_x(state, n_rows, post_norm);
  for (int r = 0; r < n_rows; r++) {
    float *x = state->x + (size_t)r * stride, *h = state->h + (size_t)r * stride;
    for (int i = 0; i < config->hidden; i++) x[i] += scale * h[i];
  }
}

/* Copies q and gates from state->queries, where they alternate by heads. */
static void split_queries(BackendState *state, int n_rows, int layer) {
  const LayerConfig own = config_layer(&state->loaded->model->config, layer);
  const size_t dim = (size_t)own.head_dim, bytes = dim * sizeof(float);
  for (int r = 0; r < n_rows; r++) {
    const float *from = state->queries + (size_t)r * (size_t)state->plan.queries;
    float *q = state->q + (size_t)r * (size_t)state->plan.heads;
    float *gates = state->gates + (size_t)r * (size_t)state->plan.gates;
    for (size_t head = 0; head < (size_t)own.n_heads; head++) {
      memcpy(q + head * dim, from + 2 * head * dim, bytes);
      memcpy(gates + head * dim, from + (2 * head + 1) * dim, bytes);
    }
  }
}

/* Cuts the outputs of a matmul to -limit .. limit. NaN stays NaN. */
static void clip(const Matmul *matmul, int n_rows, float limit) {
  for (size_t r = 0; r < (size_t)n_rows; r++) {
    float *y = matmul->y + r * matmul->y_stride;
    for (int i = 0; i < matmul->w.linear->n_out; i++)
      y[i] = y[i] > limit ? limit : y[i] < -limit ? -limit : y[i];
  }
}

static Status cpu_norm_qkv_rope_append(BackendState *state, TokenRange range, int layer, Error *err) {
  const ModelConfig *config = &state->loaded->model->config;
  const CpuLayer *weights = &state->loaded->layers[layer];
  const LayerConfig own = config_layer(config, layer);
  const bool gate_in_q = own.attn_gate == ATTN_GATE_IN_Q;
  if (own.latent) {
    cpu_latent_project(state, range, layer, attn_input(state, range, layer));
    return STATUS_OK;
  }
  /* A layer may lack some matrices. */
  const Matmul all[] = {
      {.w = weights->q,
       .y = gate_in_q ? state->queries : state->q,
       .y_stride = (size_t)(gate_in_q ? state->plan.queries : state->plan.heads)},
      {.w = weights->k, .y = state->k, .y_stride = (size_t)state->plan.kv_heads},
      {.w = weights->v, .y = state->v, .y_stride = (size_t)state->plan.kv_heads},
      {.w = weights->attn_gate, .y = state->gates, .y_stride = (size_t)state->plan.gates},
  };
  Matmul matmuls[sizeof all / sizeof *all];
  const bool pairs = config->draft.kind == DRAFT_EAGLE3 && layer == 0;
  const float *from = pairs ? state->pairs : attn_input(state, range, layer);
  int n_matmuls = 0;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (all[i].w.linear) matmuls[n_matmuls++] = all[i];
  run_matmuls(state, from, pairs ? state->plan.pairs : state->plan.hidden, range.n_tokens, matmuls,
              n_matmuls);
  for (int i = 0; config->qkv_clip != 0 && i < n_matmuls; i++)
    clip(&matmuls[i], range.n_tokens, (float)config->qkv_clip);
  if (weights->index.linear) cpu_index(state, range, layer, from);
  if (gate_in_q) split_queries(state, range.n_tokens, layer);
  cpu_rotate_queries(state, range, layer);
  if (!own.shares_kv) cpu_append(state, range, layer);
  if (config->parallel == PARALLEL_TWO_NORMS)
    cpu_normalised(state, range.n_tokens, weights->mlp_norm, weights->mlp_norm_bias);
  return STATUS_OK;
}

/* Multiplies attention's output by the sigmoid or softplus of its gates, one for each number or for each
 * head. */
static void apply_gates(BackendState *state, int n_rows, int layer) {
  const ModelConfig *config = &state->loaded->model->config;
  const LayerConfig own = config_layer(config, layer);
  const int n = own.n_gates, width = own.attn_gate == ATTN_GATE_HEADS ? own.head_dim : 1;
#pragma omp parallel for if (n_rows > 1) num_threads(state->loaded->n_threads)
  for (int r = 0; r < n_rows; r++) {
    float *gates = state->gates + (size_t)r * (size_t)state->plan.gates;
    float *out = state->q + (size_t)r * (size_t)state->plan.heads;
    cpu_multiply(gates, state->loaded->layers[layer].attn_gate_factors, n);
    if (!config->attn_gate_softplus) state->loaded->kernels->sigmoid(gates, n);
    for (int i = 0; config->attn_gate_softplus && i < n; i++) gates[i] = (float)softplus(gates[i]);
    for (int i = 0; i < n; i++)
      for (int d = 0; d < width; d++) out[i * width + d] *= gates[i];
  }
}

static Status cpu_norm_delta_rule(BackendState *state, TokenRange range, int layer, Error *err) {
  cpu_delta_rule(state, range, layer, attn_input(state, range, layer));
  return STATUS_OK;
}

static Status cpu_norm_short_conv(BackendState *state, TokenRange range, int layer, Error *err) {
  cpu_short_conv(state, range, layer, attn_input(state, range, layer));
  return STATUS_OK;
}

/* Zeroes what follows the n numbers of each row, up to a multiple of ALIGN_FLOATS: other layers and buffers
 * leave numbers there. */
static void pad_rows(float *rows, int stride, int n_rows, int n) {
  for (int r = 0; r < n_rows; r++)
    for (int i = n; i < cpu_padded(n); i++) rows[(size_t)r * (size_t)stride + (size_t)i] = 0;
}

/* Where values are shorter than keys: makes the heads of each row contiguous, as o reads them. */
static void join_values(const BackendState *state, int n_rows, int layer) {
  const LayerConfig own = config_layer(&state->loaded->model->config, layer);
  const size_t to = (size_t)own.value_dim, from = (size_t)own.head_dim;
  if (own.kind != LAYER_ATTENTION || to == from) return;
  for (size_t r = 0; r < (size_t)n_rows; r++) {
    float *row = state->q + r * (size_t)state->plan.heads;
    for (size_t h = 1; h < (size_t)own.n_heads; h++) memmove(row + h * to, row + h * from, to * sizeof *row);
  }
}

/* x = factor * x */
static void scale_rows(BackendState *state, int n_rows, float factor) {
  const size_t hidden = (size_t)state->loaded->model->config.hidden, stride = (size_t)state->plan.hidden;
  for (size_t r = 0; r < (size_t)n_rows; r++)
    for (size_t i = 0; i < hidden; i++) state->x[r * stride + i] *= factor;
}

/* Moves the range.n_kept kept rows of x and of `from` to the front; n_kept 0: all rows stay. Returns the
 * number of rows that are left. */
static int keep_rows(BackendState *state, TokenRange range, float *from, int from_stride) {
  const size_t stride = (size_t)state->plan.hidden, other = (size_t)from_stride;
  for (int i = 0; i < range.n_kept; i++) { /* rows ascend: a row is moved before another takes its place */
    const int row = range.parts ? range.logit_rows[i] : range.n_tokens - range.n_kept + i;
    memmove(state->x + (size_t)i * stride, state->x + (size_t)row * stride, stride * sizeof *from);
    memmove(from + (size_t)i * other, from + (size_t)row * other, other * sizeof *from);
  }
  return range.n_kept > 0 ? range.n_kept : range.n_tokens;
}

static bool cpu_cuts_rows(const BackendState *state, TokenRange range) {
  return true;
}

static Status cpu_out_proj_residual(BackendState *state, TokenRange range, int layer, Error *err) {
  const CpuLayer *weights = &state->loaded->layers[layer];
  const ModelConfig *config = &state->loaded->model->config;
  const LayerConfig own = config_layer(config, layer);
  float *from = own.latent ? state->queries : state->q;
  const int stride = own.latent ? state->plan.queries : state->plan.heads;
  if (own.n_gates > 0) apply_gates(state, range.n_tokens, layer);
  to_length(state, state->q, state->plan.heads, range.n_tokens, weights->o.linear->n_in,
            config->norm_eps * config->hidden);
  if (own.latent)
    cpu_latent_values(state, range.n_tokens, layer);
  else
    join_values(state, range.n_tokens, layer);
  const int n_rows = keep_rows(state, range, from, stride);
  pad_rows(from, stride, n_rows, weights->o.linear->n_in);
  matmul_residual(state, weights->o, from, stride, n_rows, weights->attn_post_norm);
  if (own.delta_beside)
    matmul_residual(state, weights->delta_o, state->beside, state->plan.beside, n_rows, NULL);
  centre(state, OP_OUT_PROJ, n_rows);
  if (config->altup.n > 0) scale_rows(state, n_rows, (float)sqrt(0.5));
  return STATUS_OK;
}

/* g = max(g - c, 0), c being `deviations` standard deviations above the mean. */
static void cut_gates(float *g, int n, float deviations) {
  double sum = 0, squares = 0;
  for (int i = 0; i < n; i++) sum += (double)g[i];
  for (int i = 0; i < n; i++) squares += ((double)g[i] - sum / n) * ((double)g[i] - sum / n);
  const float c = (float)(sum / n + (double)deviations * sqrt(squares / n));
  for (int i = 0; i < n; i++) g[i] = g[i] <= c ? 0 : g[i] - c; /* NaN stays NaN */
}

/* The gated product with factors, or with sparse gates: cut_gates() needs all gates of a row first. */
static void apart_gate_up(BackendState *state, int n_rows, int layer) {
  const BackendModel *loaded = state->loaded;
  const CpuLayer *weights = &loaded->layers[layer];
  const LayerConfig own = config_layer(&loaded->model->config, layer);
  const int n = weights->up.linear->n_out;
  const size_t g_stride = (size_t)state->plan.intermediate, up_stride = (size_t)state->plan.up;
  const Matmul both[] = {{.w = weights->gate, .y = state->g, .y_stride = g_stride},
                         {.w = weights->up, .y = state->up, .y_stride = up_stride}};
  run_matmuls(state, cpu_normalised(state, n_rows, weights->mlp_norm, weights->mlp_norm_bias),
              state->plan.hidden, n_rows, both, 2);
#pragma omp parallel for if (n_rows > 1) num_threads(loaded->n_threads)
  for (int r = 0; r < n_rows; r++) {
    float *g = state->g + (size_t)r * g_stride;
    float *up = state->up + (size_t)r * up_stride;
    cpu_multiply(g, weights->gate_factors, n);
    cpu_multiply(up, weights->up_factors, n);
    if (!weights->gate_factors) cut_gates(g, n, own.gate_deviations);
    loaded->kernels->activate(loaded->model->config.activation, NULL, g, up, n);
  }
  to_length(state, state->g, state->plan.intermediate, n_rows, n, loaded->model->config.norm_eps);
}

static Status cpu_norm_gate_up(BackendState *state, TokenRange range, int layer, Error *err) {
  const CpuLayer *weights = &state->loaded->layers[layer];
  if (config_layer(&state->loaded->model->config, layer).sparsity > 0 || weights->gate_factors) {
    apart_gate_up(state, range.n_tokens, layer);
    return STATUS_OK;
  }
  Matmul matmul = cpu_gate_up(state->loaded, layer);
  matmul.y = state->g, matmul.y_stride = (size_t)state->plan.intermediate;
  const bool parallel = state->loaded->model->config.parallel; /* norm_qkv_rope_append() has made h */
  const float *from =
      parallel ? state->h : cpu_normalised(state, range.n_tokens, weights->mlp_norm, weights->mlp_norm_bias);
  run_matmuls(state, from, state->plan.hidden, range.n_tokens, &matmul, 1);
  return STATUS_OK;
}

static Status cpu_down_residual(BackendState *state, TokenRange range, int layer, Error *err) {
  const CpuLayer *weights = &state->loaded->layers[layer];
  pad_rows(state->g, state->plan.intermediate, range.n_tokens, weights->down.linear->n_in);
  matmul_residual(state, weights->down, state->g, state->plan.intermediate, range.n_tokens,
                  weights->mlp_post_norm);
  centre(state, OP_DOWN, range.n_tokens);
  return STATUS_OK;
}

static Status cpu_norm_experts_residual(BackendState *state, TokenRange range, int layer, Error *err) {
  if (state->loaded->layers[layer].down.linear)
    pad_rows(state->g, state->plan.intermediate, range.n_tokens,
             state->loaded->layers[layer].down.linear->n_in);
  cpu_experts(state, range.n_tokens, layer);
  centre(state, OP_EXPERTS, range.n_tokens);
  return STATUS_OK;
}

/* x = x + rmsnorm(W (f(Wgate x) * p)), p being the layer's own input. With AltUp x becomes the rmsnorm alone,
 * which is added to all streams but the first. */
static void add_layer_input(BackendState *state, TokenRange range, int layer) {
  const BackendModel *loaded = state->loaded;
  const bool altup = loaded->model->config.altup.n > 0;
  const CpuLayer *weights = &loaded->layers[layer];
  const int width = loaded->model->config.per_layer_width, stride = state->plan.intermediate;
  run_matmul(state, weights->input_gate, state->x, state->plan.hidden, range.n_tokens, state->g, stride);
  for (size_t r = 0; r < (size_t)range.n_tokens; r++) {
    const float *p = state->inputs + r * (size_t)state->plan.inputs + (size_t)layer * (size_t)width;
    loaded->kernels->activate(loaded->model->config.activation, NULL, state->g + r * (size_t)stride, p,
                              width);
  }
  pad_rows(state->g, stride, range.n_tokens, width);
  if (altup) scale_rows(state, range.n_tokens, 0);
  matmul_residual(state, weights->input_projection, state->g, stride, range.n_tokens, weights->input_norm);
  if (altup) cpu_add_to_streams(state, range.n_tokens);
}

static Status cpu_layer_end(BackendState *state, TokenRange range, int layer, Error *err) {
  if (state->loaded->model->config.per_layer_width > 0) add_layer_input(state, range, layer);
  const float *scalar = state->loaded->layers[layer].scalar;
  if (scalar) scale_rows(state, range.n_tokens, *scalar);
  return STATUS_OK;
}

/* h[i] = rmsnorm(x[row]) * final_norm + final_norm_bias, row = rows[i], or first_row + i with rows NULL. */
static void normalise_logit_rows(BackendState *state, const int32_t *rows, int first_row, int n_rows) {
  const BackendModel *loaded = state->loaded;
  const ModelConfig *config = &loaded->model->config;
  const int stride = state->plan.hidden;
#pragma omp parallel for if (n_rows > 1) num_threads(loaded->n_threads)
  for (int i = 0; i < n_rows; i++)
    loaded->kernels->rms_norm(cpu_row(state->x, stride, rows ? rows[i] : first_row + i), loaded->final_norm,
                              config->hidden, config->norm_eps, cpu_row(state->h, stride, i));
  for (int i = 0; i < n_rows; i++)
    add_bias(loaded->final_norm_bias, config->hidden, cpu_row(state->h, stride, i));
}

/* Divides and caps the outputs of the lm_head. */
static void finish_logits(BackendState *state, int n_rows) {
  enum { BLOCK = 4096 };
  const ModelConfig *config = &state->loaded->model->config;
  const float divisor = (float)config->logit_divisor, cap = (float)config->logit_cap;
  for (int r = 0; r < n_rows; r++)
    cpu_multiply(cpu_row(state->logits, config->vocab_size, r), state->loaded->logit_factors,
                 config->vocab_size);
  if (divisor == 1 && cap == 0) return;
  const int64_t n = (int64_t)n_rows * config->vocab_size;
#pragma omp parallel for num_threads(state->loaded->n_threads)
  for (int64_t from = 0; from < n; from += BLOCK) {
    int some = n - from < BLOCK ? (int)(n - from) : BLOCK;
    for (int i = 0; i < some; i++) state->logits[from + i] /= divisor;
    if (cap != 0) state->loaded->kernels->soft_cap(state->logits + from, some, cap);
  }
}

static Status cpu_norm_logits(BackendState *state, TokenRange range, int layer, Error *err) {
  const int first_row = range.first_logit, n_rows = range.n_logit_rows;
  if (n_rows > state->options.max_logit_rows)
    return error_set(err, STATUS_FAILED, "logits of %d rows were asked for, the session keeps %d", n_rows,
                     state->options.max_logit_rows);
  const BackendModel *loaded = state->loaded;
  const CpuMix mix = {.down = loaded->mix_down, .up = loaded->mix_up};
  const int32_t *rows = range.parts ? range.logit_rows : NULL;
  if (loaded->model->config.altup.n > 0)
    cpu_join_streams(state, rows, first_row, n_rows);
  else if (mix.down.linear)
    cpu_mix(state, loaded->final_norm, &mix, rows, first_row, n_rows);
  else
    normalise_logit_rows(state, rows, first_row, n_rows);
  run_matmul(state, loaded->head, state->h, state->plan.hidden, n_rows, state->logits,
             loaded->model->config.vocab_size);
  finish_logits(state, n_rows);
  state->n_logit_rows = n_rows;
  return STATUS_OK;
}

static const BackendProbe cpu_probe = {.measure_machine = cpu_measure_machine};

const Backend cpu_backend = {
    .name = "cpu",
    .probe = &cpu_probe,
    .chunk = 256,
    .row_cost = 0.2,
    .guesses = 15,
    .prepares_experts = true,
    .load = cpu_load,
    .unload = cpu_unload,
    .state_bytes = cpu_state_bytes,
    .open = cpu_open,
    .close = cpu_close,
    .read_logits = cpu_read_logits,
    .kv_copy = kv_rows_copy,
    .arithmetic = cpu_arithmetic,
    .recurrent_bytes = cpu_recurrent_bytes,
    .state_save = cpu_state_save,
    .state_restore = cpu_state_restore,
    .state_copy = cpu_state_copy,
    .cuts_rows = cpu_cuts_rows,
    .draft_take = cpu_draft_take,
    .draft_move = cpu_draft_move,
    .draft_context = cpu_draft_context,
    .keep_tap = cpu_keep_tap,
    .read_taps = cpu_read_taps,
    .carried_floats = cpu_carried_floats,
    .carry = cpu_carry,
    .page_tokens = PAGE_TOKENS,
    .sequences = SEQUENCES,
    .set_pages = cpu_set_pages,
    .copy_page = cpu_copy_page,
    .sample = cpu_sample,
    .sample_rows = cpu_sample_rows,
#define OPERATION(KIND, function, ...) .run[OP_##KIND] = cpu_##function,
#include "model/operations.def"
};
