/* rope.c - what depends on a row's position: its angles, its rotated queries, its key and value in the cache.
 *
 * Always true: a row gets the same bits whatever the other rows and the number of threads. */
#include <math.h>
#include <string.h>

#include "cpu/cpu.h"

/* The offset of a row's angles in state->cosines and state->sines. */
static size_t angles_at(const BackendState *state, LayerRope rope, int row) {
  size_t rows = (size_t)rope * (size_t)state->options.max_chunk + (size_t)row;
  return rows * (size_t)state->plan.angles;
}

/* As in transformers: angle = position times frequency in fp32, then its cosine and sine times the attention
 * factor of YaRN and LongRoPE. */
void cpu_angles(const CpuRope *rope, int position, float *cosines, float *sines) {
  for (int i = 0; i < rope->n_pairs; i++) {
    float angle = (float)position * rope->frequencies[i];
    cosines[i] = (float)cos((double)angle) * rope->attention_factor;
    sines[i] = (float)sin((double)angle) * rope->attention_factor;
  }
}

static void set_angles(BackendState *state, LayerRope which, bool long_rope, int row) {
  const BackendModel *loaded = state->loaded;
  const CpuRope *rope = long_rope && which == ROPE_GLOBAL ? &loaded->long_rope : &loaded->ropes[which];
  cpu_angles(rope, state->positions[row], state->cosines + angles_at(state, which, row),
             state->sines + angles_at(state, which, row));
}

void cpu_place_rows(BackendState *state, TokenRange range) {
  for (int i = 0, row = 0; i < cpu_n_parts(&range); i++) {
    const SequenceRows part = cpu_part(&range, i);
    for (int r = 0; r < part.n_tokens; r++, row++) {
      state->sequences[row] = part.sequence;
      state->positions[row] = part.pos + r;
      /* A row keeps its angles if they were made for its position and long_rope. `auk quantize` gains by
       * this: it computes one text after another from position 0 on. */
      const int64_t now = 1 + 2 * (int64_t)state->positions[row] + part.long_rope;
      for (int rope = 0; state->angled[row] != now && rope < state->plan.n_ropes; rope++)
        set_angles(state, (LayerRope)rope, part.long_rope, row);
      state->angled[row] = now;
    }
  }
}

/* Applies RoPE, `scale` and the q or k norm (if the model has one) to the heads of a row. */
static void norm_rope_heads(const BackendState *state, const LayerConfig *layer, const float *norm, int row,
                            int n_heads, float scale, float *heads) {
  const ModelConfig *config = &state->loaded->model->config;
  const Kernels *kernels = state->loaded->kernels;
  const bool none = layer->rope == ROPE_NONE;
  const int dim = layer->head_dim, half = none ? 0 : state->loaded->ropes[layer->rope].n_pairs;
  const bool neighbours = !none && state->loaded->ropes[layer->rope].neighbours;
  size_t at = half ? angles_at(state, layer->rope, row) : 0;
  const bool after = norm && config->qk_norm_after_rope;
  const double eps = config->qk_norm_eps != 0 ? config->qk_norm_eps : config->norm_eps;
  if (norm && layer->qk_norm == QK_NORM_WHOLE) kernels->rms_norm(heads, norm, n_heads * dim, eps, heads);
  for (int i = 0; i < n_heads; i++) {
    float *head = heads + (size_t)i * (size_t)dim;
    if (norm && layer->qk_norm <= QK_NORM_HEADS && !after) kernels->rms_norm(head, norm, dim, eps, head);
    if (norm && layer->qk_norm == QK_NORM_CENTRED) {
      cpu_centre(head, dim);
      kernels->rms_norm(head, norm + i * dim, dim, eps, head);
    }
    (neighbours ? kernels->rotate_neighbours : kernels->rotate)(head, state->cosines + at, state->sines + at,
                                                                half, dim, after ? 1 : scale);
    if (after) kernels->rms_norm(head, norm, dim, eps, head);
    for (int d = 0; after && d < dim; d++) head[d] *= scale;
  }
}

/* The scale of a query at `position`, in fp32 as transformers computes it. */
static float query_scale(const ModelConfig *config, const LayerConfig *own, int position) {
  const float scale = (float)config->attention_scale;
  if (own->query_scale_beta == 0) return scale;
  const float steps = floorf((float)(position + config->query_scale_nope) / (float)config->query_scale_step);
  return scale * (1 + (float)own->query_scale_beta * (float)log((double)(1 + steps)));
}

static void norm_values(const BackendModel *loaded, const LayerConfig *layer, float *v) {
  for (int i = 0; i < layer->n_kv_heads; i++, v += layer->head_dim)
    loaded->kernels->rms_norm(v, loaded->ones, layer->head_dim, loaded->model->config.norm_eps, v);
}

/* Widens each head of a row's values in place from value_dim numbers to head_dim: the values times
 * value_scale, then zeros. */
static void spread_values(const ModelConfig *config, const LayerConfig *own, float *v) {
  const int from = own->value_dim, to = own->head_dim;
  const float scale = (float)config->value_scale;
  if (!config->value_dim) return;
  for (int i = own->n_kv_heads - 1; i >= 0; i--) {
    memmove(v + (size_t)i * (size_t)to, v + (size_t)i * (size_t)from, (size_t)from * sizeof *v);
    for (int d = 0; d < to; d++) v[i * to + d] = d < from ? scale * v[i * to + d] : 0;
  }
}

void cpu_rotate_queries(BackendState *state, TokenRange range, int layer) {
  const ModelConfig *config = &state->loaded->model->config;
  const LayerConfig own = config_layer(config, layer);
  const CpuLayer *weights = &state->loaded->layers[layer];
#pragma omp parallel for if (range.n_tokens > 1) num_threads(state->loaded->n_threads)
  for (int r = 0; r < range.n_tokens; r++) {
    float *q = state->q + (size_t)r * (size_t)state->plan.heads;
    norm_rope_heads(state, &own, weights->q_norm, r, own.n_heads,
                    query_scale(config, &own, state->positions[r]), q);
    cpu_multiply(q, weights->query_factors, own.n_heads * own.head_dim);
  }
}

void cpu_append(BackendState *state, TokenRange range, int layer) {
  const ModelConfig *config = &state->loaded->model->config;
  const LayerConfig own = config_layer(config, layer);
  const size_t dim = (size_t)own.head_dim;
#pragma omp parallel for if (range.n_tokens > 1) num_threads(state->loaded->n_threads)
  for (int r = 0; r < range.n_tokens; r++) {
    float *k = state->k + (size_t)r * (size_t)state->plan.kv_heads;
    float *v = state->v + (size_t)r * (size_t)state->plan.kv_heads;
    spread_values(config, &own, v);
    if (own.k_as_v || own.latent) memcpy(v, k, (size_t)own.n_kv_heads * dim * sizeof *v);
    /* The rope's part of a value is never read; with KV_Q8 it could only make the scale larger. */
    memset(v, 0, (size_t)config->latent.rope_dim * sizeof *v);
    if (config->v_norm) norm_values(state->loaded, &own, v);
    norm_rope_heads(state, &own, state->loaded->layers[layer].k_norm, r, own.n_kv_heads, 1, k);
    for (size_t i = 0; i < (size_t)own.n_kv_heads; i++) {
      KvHead kv = state_kv_head(state, state->sequences[r], layer, (int)i);
      state->loaded->kernels->append(&kv, state->positions[r], k + i * dim, v + i * dim);
    }
  }
}
