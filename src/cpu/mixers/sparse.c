/* sparse.c - attention to the best blocks of positions (config.h, IndexerConfig).
 *
 * Called by: backend.c, attention.c. See norm_qkv_rope_append and attention in model/operations.def.
 * Always true: a row's choice depends on its own queries and the KV cache alone, so that chunks and threads
 *              change no bit. The index keys of a layer are a KV head of the cache
 *              (LayerConfig.n_cache_heads). There the value of a position is the position's own index key, as
 *              the index matrix gives it. The key of a block's last position is the block's key: the mean of
 *              the block's values, normalised, rotated as at the block's first position. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/half.h"
#include "cpu/cpu.h"

static KvHead index_head(const BackendState *state, int sequence, int layer) {
  return state_kv_head(state, sequence, layer, config_layer(&state->loaded->model->config, layer).n_kv_heads);
}

static float number_of(const KvHead *kv, const void *numbers, size_t at) {
  if (kv->type == KV_F32) return ((const float *)numbers)[at];
  if (kv->type == KV_Q8) return ((const int8_t *)numbers)[at];
  return f16_to_float(((const uint16_t *)numbers)[at]);
}

/* Reads the first n numbers of the value (read_key(): of the key) at a position. */
static void read_value(const KvHead *kv, int position, int n, float *to) {
  const size_t place = (size_t)kv_place(kv, position);
  const float scale = kv->type == KV_Q8 ? f16_to_float(kv->v_scales[place]) : 1;
  for (int d = 0; d < n; d++) to[d] = scale * number_of(kv, kv->v, place * (size_t)kv->v_width + (size_t)d);
}

static void read_key(const KvHead *kv, int position, int n, float *to) {
  const size_t place = (size_t)kv_place(kv, position), dim = (size_t)kv->head_dim, block = place / KEY_BLOCK,
               at = block * dim * KEY_BLOCK + place % KEY_BLOCK,
               n_scales = (size_t)kv_key_scales(kv->type, kv->head_dim);
  for (size_t d = 0; d < (size_t)n; d++) {
    const size_t scale = (block * n_scales + d / KEY_SCALE_DIMS) * KEY_BLOCK + place % KEY_BLOCK;
    to[d] = number_of(kv, kv->k, at + d * KEY_BLOCK) *
            (kv->type == KV_Q8 ? f16_to_float(kv->k_scales[scale]) : 1);
  }
}

/* --- the index keys of a step */

/* key[MAX_HEAD_DIM] = the key of the block that ends at `position`, then zeros. */
static void block_key(const BackendState *state, int layer, const KvHead *kv, int position, float *key) {
  const ModelConfig *config = &state->loaded->model->config;
  const CpuRope *rope = &state->loaded->ropes[ROPE_GLOBAL];
  const int dim = config->indexer.head_dim, block = config->indexer.block, first = position + 1 - block;
  float one[MAX_HEAD_DIM], cosines[MAX_HEAD_DIM / 2], sines[MAX_HEAD_DIM / 2];
  double sums[MAX_HEAD_DIM] = {0};
  for (int p = first; p <= position; p++) {
    read_value(kv, p, dim, one);
    for (int d = 0; d < dim; d++) sums[d] += one[d];
  }
  memset(key, 0, MAX_HEAD_DIM * sizeof *key);
  for (int d = 0; d < dim; d++) key[d] = (float)(sums[d] / block);
  state->loaded->kernels->rms_norm(key, state->loaded->layers[layer].index_k_norm, dim, config->norm_eps,
                                   key);
  cpu_angles(rope, first, cosines, sines);
  state->loaded->kernels->rotate(key, cosines, sines, rope->n_pairs, dim, 1);
}

/* Appends the index keys of a sequence's rows. */
static void append_keys(const BackendState *state, int layer, SequenceRows part, int first_row) {
  const ModelConfig *config = &state->loaded->model->config;
  const int dim = config->indexer.head_dim;
  const KvHead kv = index_head(state, part.sequence, layer);
  float raw[MAX_HEAD_DIM] = {0}, key[MAX_HEAD_DIM] = {0};
  for (int r = 0; r < part.n_tokens; r++) {
    const int position = part.pos + r;
    const float *row = state->index + (size_t)(first_row + r) * (size_t)state->plan.index;
    memcpy(raw, row + config->indexer.n_heads * dim, (size_t)dim * sizeof *raw);
    memset(key, 0, sizeof key);
    state->loaded->kernels->append(&kv, position, key, raw);
    if ((position + 1) % config->indexer.block != 0) continue;
    block_key(state, layer, &kv, position, key);
    state->loaded->kernels->append(&kv, position, key, raw);
  }
}

void cpu_index(BackendState *state, TokenRange range, int layer, const float *from) {
  run_matmul(state, state->loaded->layers[layer].index, from, state->plan.hidden, range.n_tokens,
             state->index, state->plan.index);
  for (int i = 0, first = 0; i < cpu_n_parts(&range); first += cpu_part(&range, i++).n_tokens)
    append_keys(state, layer, cpu_part(&range, i), first);
}

/* --- the choice */

/* The k-th largest of n numbers, 1 <= k <= n (Hoare's selection); changes their order. */
static float largest(float *x, int n, int k) {
  int low = 0, high = n - 1;
  for (k--; low < high;) {
    const float middle = x[low + (high - low) / 2];
    int i = low, j = high;
    while (i <= j) {
      while (x[i] > middle) i++;
      while (x[j] < middle) j--;
      if (i > j) break;
      const float other = x[i];
      x[i++] = x[j];
      x[j--] = other;
    }
    if (k <= j)
      high = j;
    else if (k >= i)
      low = i;
    else
      break;
  }
  return x[k];
}

/* scores[b] = the score of block b for a row's index queries, b < n_blocks, computed by n_threads threads.
 * Normalises and rotates the queries in place. */
static void score_blocks(const BackendState *state, int layer, const KvHead *kv, int row, int n_blocks,
                         int n_threads, float *scores) {
  const ModelConfig *config = &state->loaded->model->config;
  const int dim = config->indexer.head_dim, n_heads = config->indexer.n_heads;
  float *q = state->index + (size_t)row * (size_t)state->plan.index;
  float cosines[MAX_HEAD_DIM / 2], sines[MAX_HEAD_DIM / 2];
  const CpuRope *rope = &state->loaded->ropes[ROPE_GLOBAL];
  cpu_angles(rope, state->positions[row], cosines, sines);
  for (int h = 0; h < n_heads; h++) {
    float *head = q + h * dim;
    state->loaded->kernels->rms_norm(head, state->loaded->layers[layer].index_q_norm, dim, config->norm_eps,
                                     head);
    state->loaded->kernels->rotate(head, cosines, sines, rope->n_pairs, dim, 1);
  }
#pragma omp parallel for if (n_threads > 1) num_threads(n_threads)
  for (int b = 0; b < n_blocks; b++) {
    float key[MAX_HEAD_DIM];
    scores[b] = 0;
    read_key(kv, (b + 1) * config->indexer.block - 1, dim, key);
    for (int h = 0; h < n_heads; h++) {
      float score = 0;
      for (int d = 0; d < dim; d++) score += q[h * dim + d] * key[d];
      scores[b] += score < 0 ? 0 : score; /* NaN stays */
    }
  }
}

int cpu_most_selected(const IndexerConfig *indexer) {
  return indexer->budget + indexer->block - 1;
}

/* Writes the positions that a row selects, in ascending order, and returns their number. Among equal scores
 * earlier blocks are chosen. `scores` has room for the blocks' scores and for a copy that is reordered. */
static int select_positions(const BackendState *state, int layer, int row, int n_threads, float *scores,
                            int *positions) {
  const IndexerConfig *indexer = &state->loaded->model->config.indexer;
  const KvHead kv = index_head(state, state->sequences[row], layer);
  const int n_seen = state->positions[row] + 1, n_blocks = n_seen / indexer->block,
            n_chosen = indexer->budget / indexer->block;
  int n = 0, ties = n_chosen;
  float least = -1; /* read only if n_blocks > n_chosen, which sets it */
  if (n_blocks > n_chosen) {
    score_blocks(state, layer, &kv, row, n_blocks, n_threads, scores);
    for (int b = 0; b < n_blocks; b++) {
      if (!isnan(scores[b])) continue;
      scores[b] = 0; /* a NaN cannot be compared; set in q instead, it reaches the logits */
      state->q[(size_t)row * (size_t)state->plan.heads] = NAN;
    }
    memcpy(scores + n_blocks, scores, (size_t)n_blocks * sizeof *scores);
    least = largest(scores + n_blocks, n_blocks, n_chosen);
    for (int b = 0; b < n_blocks; b++) ties -= scores[b] > least;
  }
  for (int b = 0; b < n_blocks; b++) {
    const bool tie = n_blocks > n_chosen && scores[b] == least;
    if (n_blocks > n_chosen && !tie && !(scores[b] > least)) continue;
    if (tie && ties-- <= 0) continue;
    for (int i = 0; i < indexer->block; i++) positions[n++] = b * indexer->block + i;
  }
  for (int p = n_blocks * indexer->block; p < n_seen; p++) positions[n++] = p;
  return n;
}

bool cpu_selects(const BackendState *state, int n_rows) {
  const IndexerConfig *indexer = &state->loaded->model->config.indexer;
  if (!indexer->block) return false;
  for (int r = 0; r < n_rows; r++)
    if ((state->positions[r] + 1) / indexer->block > indexer->budget / indexer->block) return true;
  return false;
}

int cpu_gatherers(const BackendModel *loaded) {
  return loaded->n_threads < GATHERERS ? loaded->n_threads : GATHERERS;
}

void cpu_select(BackendState *state, int n_rows, int layer) {
  /* Threads divide the blocks of a single row. With several rows they divide the rows. */
  const int row_threads = n_rows > 1 ? 1 : state->loaded->n_threads;
#pragma omp parallel for schedule(dynamic) if (n_rows > 1) num_threads(cpu_gatherers(state->loaded))
  for (int r = 0; r < n_rows; r++)
    state->n_selected[r] = select_positions(state, layer, r, row_threads,
                                            state->block_scores + (size_t)omp_get_thread_num() *
                                                                      (size_t)state->plan.block_scores,
                                            state->selected + (size_t)r * (size_t)state->plan.selected);
}

/* --- a cache of the chosen positions alone */

/* to[place + d] = source[at + d] for the n numbers of a key, which are KEY_BLOCK apart in both. */
static void copy_key(KvType type, const void *source, size_t at, void *to, size_t place, size_t n) {
  for (size_t d = 0; type == KV_F32 && d < n * KEY_BLOCK; d += KEY_BLOCK)
    ((float *)to)[place + d] = ((const float *)source)[at + d];
  for (size_t d = 0; type == KV_F16 && d < n * KEY_BLOCK; d += KEY_BLOCK)
    ((uint16_t *)to)[place + d] = ((const uint16_t *)source)[at + d];
  for (size_t d = 0; type == KV_Q8 && d < n * KEY_BLOCK; d += KEY_BLOCK)
    ((int8_t *)to)[place + d] = ((const int8_t *)source)[at + d];
}

KvHead cpu_gather(const BackendState *state, const KvHead *from, int row, uint8_t *memory) {
  const int n = state->n_selected[row];
  const int *positions = state->selected + (size_t)row * (size_t)state->plan.selected;
  const size_t dim = (size_t)from->head_dim, width = (size_t)from->v_width,
               size = kv_number_bytes(from->type),
               n_scales = (size_t)kv_key_scales(from->type, from->head_dim),
               places = ((size_t)state->plan.selected + KEY_BLOCK - 1) / KEY_BLOCK * KEY_BLOCK;
  KvHead to = {.type = from->type, .head_dim = from->head_dim, .v_width = from->v_width, .k = memory};
  to.v = memory + places * dim * size;
  to.k_scales = (uint16_t *)(void *)(memory + places * (dim + width) * size);
  to.v_scales = to.k_scales + places * n_scales;
  for (int i = 0; i < n; i++) {
    const size_t place = (size_t)kv_place(from, positions[i]), at = place % KEY_BLOCK, here = (size_t)i;
    const size_t source = place / KEY_BLOCK * dim * KEY_BLOCK + at,
                 target = here / KEY_BLOCK * dim * KEY_BLOCK + here % KEY_BLOCK;
    copy_key(from->type, from->k, source, (void *)(uintptr_t)to.k, target, dim);
    memcpy((uint8_t *)to.v + here * width * size, (const uint8_t *)from->v + place * width * size,
           width * size);
    if (from->type != KV_Q8) continue;
    for (size_t s = 0; s < n_scales; s++)
      to.k_scales[(here / KEY_BLOCK * n_scales + s) * KEY_BLOCK + here % KEY_BLOCK] =
          from->k_scales[(place / KEY_BLOCK * n_scales + s) * KEY_BLOCK + at];
    to.v_scales[here] = from->v_scales[place];
  }
  return to;
}

size_t cpu_gathered_bytes(const StatePlan *plan, KvType type, int head_dim) {
  const size_t places = ((size_t)plan->selected + KEY_BLOCK - 1) / KEY_BLOCK * KEY_BLOCK;
  const size_t scales = type == KV_Q8 ? ((size_t)kv_key_scales(type, head_dim) + 1) * KV_SCALE_BYTES : 0;
  return places * ((size_t)(head_dim + cpu_padded(head_dim)) * kv_number_bytes(type) + scales);
}
