/* latent.c - multi-head latent attention: the steps before and after attention itself (LatentConfig).
 *
 * Called by: backend.c.
 *
 * A row of the cache serves all heads: | rotated key, rope_dim | normalised latent, kv_rank |. A query has
 * the same form: its rotated part, then its other part times the head's matrix in key_heads.
 * Attention gives each head a weighted sum of latents, which is multiplied by the head's matrix in
 * value_heads. */
#include <string.h>

#include "cpu/cpu.h"

static float *head_input(const BackendState *state, int head, int row) {
  const size_t rows = (size_t)state->options.max_chunk;
  return state->head_inputs + ((size_t)head * rows + (size_t)row) * (size_t)state->plan.head_in;
}

/* Copies n numbers to a head's input, and pads it with zeros to a multiple of ALIGN_FLOATS. */
static void take_input(const BackendState *state, int head, int row, const float *from, int n) {
  float *to = head_input(state, head, row);
  memcpy(to, from, (size_t)n * sizeof *to);
  for (int i = n; i < cpu_padded(n); i++) to[i] = 0;
}

/* For each head h: y[row][h * step ..] = matrices[h] times the head's input. */
static void multiply_heads(BackendState *state, const Linear *matrices, int n_rows, float *y, size_t y_stride,
                           int step) {
  enum { BLOCK = 32 };
  const int n_heads = state->loaded->model->config.n_heads;
  for (int from = 0; from < n_heads; from += BLOCK) {
    MatmulGroup groups[BLOCK];
    const int n = n_heads - from < BLOCK ? n_heads - from : BLOCK;
    for (int i = 0; i < n; i++) {
      const int head = from + i;
      groups[i] = (MatmulGroup){.matmul = {.w = {.linear = &matrices[head]},
                                           .y = y + (size_t)head * (size_t)step,
                                           .y_stride = y_stride},
                                .x = head_input(state, head, 0),
                                .x_stride = (size_t)state->plan.head_in,
                                .n_rows = n_rows};
    }
    run_groups(state, groups, n);
  }
}

/* queries = the matrix q times `from` or, with q_rank, times the queries' normalised latent. kv_latents = the
 * normalised latent, then the key's part for RoPE. gates = attn_gate times `from`. */
static void project(BackendState *state, int n_rows, int layer, const float *from) {
  const CpuLayer *weights = &state->loaded->layers[layer];
  const StatePlan *plan = &state->plan;
  const LatentConfig *latent = &state->loaded->model->config.latent;
  const Matmul kv_a = {.w = weights->kv_a, .y = state->kv_latents, .y_stride = (size_t)plan->kv_a},
               q_a = {.w = weights->q_a, .y = state->q_latents, .y_stride = (size_t)plan->q_rank},
               q = {.w = weights->q, .y = state->queries, .y_stride = (size_t)plan->queries};
  const Matmul gates = {.w = weights->attn_gate, .y = state->gates, .y_stride = (size_t)plan->gates};
  const Matmul first[] = {kv_a, latent->q_rank ? q_a : q, gates};
  run_matmuls(state, from, plan->hidden, n_rows, first, gates.w.linear ? 3 : 2);
  cpu_norm_rows(state, state->kv_latents, plan->kv_a, n_rows, weights->kv_a_norm, latent->kv_rank, LATENT_EPS,
                state->kv_latents, plan->kv_a);
  show_input(state, state->kv_latents, plan->kv_a, n_rows, &state->loaded->model->layers[layer].kv_b);
  if (!latent->q_rank) return;
  cpu_norm_rows(state, state->q_latents, plan->q_rank, n_rows, weights->q_a_norm, latent->q_rank, LATENT_EPS,
                state->q_latents, plan->q_rank);
  for (int r = 0; r < n_rows; r++) /* a matmul's input is padded with zeros */
    for (int i = latent->q_rank; i < plan->q_rank; i++)
      state->q_latents[(size_t)r * (size_t)plan->q_rank + (size_t)i] = 0;
  run_matmuls(state, state->q_latents, plan->q_rank, n_rows, &q, 1);
}

void cpu_latent_project(BackendState *state, TokenRange range, int layer, const float *from) {
  const ModelConfig *config = &state->loaded->model->config;
  const LatentConfig *latent = &config->latent;
  const size_t rope = (size_t)latent->rope_dim, rank = (size_t)latent->kv_rank,
               nope = (size_t)latent->nope_dim, row_size = (size_t)config->head_dim;
  project(state, range.n_tokens, layer, from);
#pragma omp parallel for if (range.n_tokens > 1) num_threads(state->loaded->n_threads)
  for (int r = 0; r < range.n_tokens; r++) {
    const float *queries = state->queries + (size_t)r * (size_t)state->plan.queries,
                *kv = state->kv_latents + (size_t)r * (size_t)state->plan.kv_a;
    float *q = state->q + (size_t)r * (size_t)state->plan.heads,
          *k = state->k + (size_t)r * (size_t)state->plan.kv_heads;
    for (size_t h = 0; h < (size_t)config->n_heads; h++) {
      const float *query = queries + h * (nope + rope);
      take_input(state, (int)h, r, query, latent->nope_dim);
      memcpy(q + h * row_size, query + nope, rope * sizeof *q);
    }
    memcpy(k, kv + rank, rope * sizeof *k);
    memcpy(k + rope, kv, rank * sizeof *k);
  }
  multiply_heads(state, state->loaded->model->layers[layer].key_heads, range.n_tokens, state->q + rope,
                 (size_t)state->plan.heads, config->head_dim);
  cpu_rotate_queries(state, range, layer);
  cpu_append(state, range, layer);
}

void cpu_latent_values(BackendState *state, int n_rows, int layer) {
  const ModelConfig *config = &state->loaded->model->config;
  const LatentConfig *latent = &config->latent;
#pragma omp parallel for if (n_rows > 1) num_threads(state->loaded->n_threads)
  for (int r = 0; r < n_rows; r++)
    for (int h = 0; h < config->n_heads; h++)
      take_input(state, h, r,
                 cpu_row(state->q, state->plan.heads, r) + h * config->head_dim + latent->rope_dim,
                 latent->kv_rank);
  multiply_heads(state, state->loaded->model->layers[layer].value_heads, n_rows, state->queries,
                 (size_t)state->plan.queries, latent->value_dim);
}
