/* attention.c - the attention of a step, split among threads.
 *
 * Called by: forward.c through cpu_backend. All three drivers merge the segments of the KV cache in order
 * into a query's online softmax, so the result does not depend on the number of rows, sequences or threads.
 * One row: a task takes one segment of a KV head and at most MAX_QUERIES queries; the results are merged when
 * all tasks are done. Several rows: a task takes some queries of one sequence and KV head over all their
 * segments. Sparse attention: a task is a row and a KV head.
 *
 * Query j of a sequence and KV head is row j / group of the sequence's rows, head j % group of the heads that
 * share the KV head. */
#include <math.h>
#include <string.h>

#include "cpu/cpu.h"

#include <omp.h>

typedef struct {
  BackendState *state;
  SequenceRows part;               /* the rows of one sequence */
  int first_row;                   /* the index of the part's first row in the step */
  int layer, window, chunk, group; /* window, chunk: 0 if none; group: query heads of a KV head */
  int head_dim, v_width;
  float cap;          /* soft cap of the scores; 0: none */
  const float *sinks; /* [n_heads] or NULL */
  DraftKind draft;
  const KvHead *gathered; /* K and V that a row selected (sparse.c); NULL: rows read the cache */
  int n_gathered;
} AttentionWork;

static int lowest(const AttentionWork *work, int position) {
  if (work->chunk > 0) return position - position % work->chunk;
  return work->window > 0 && position >= work->window ? position - work->window + 1 : 0;
}

/* The first and last position that a row attends to; with `gathered`, indices in the gathered keys. A row of
 * a DFlash block attends to the whole block. A row of a Gemma 4 assistant attends to the target's keys before
 * its own position. The assistant's window is one position longer than that of other models, as in
 * transformers. */
static void span_of(const AttentionWork *work, int row, int *low, int *high) {
  const int position = work->part.pos + row;
  *high = position;
  *low = lowest(work, position);
  if (work->gathered) *low = 0, *high = work->n_gathered - 1;
  if (work->draft == DRAFT_DFLASH) *high = work->part.pos + work->part.n_tokens - 1;
  if (work->draft != DRAFT_ASSISTANT) return;
  *high = position - 1;
  *low = work->window > 0 && *high > work->window ? *high - work->window : 0;
}

static float *value_of(const AttentionWork *work, int kv_head, int query) {
  int row = work->first_row + query / work->group, head = kv_head * work->group + query % work->group;
  return cpu_row(work->state->q, work->state->plan.heads, row) + head * work->head_dim;
}

/* The tile of queries [first, first + n) of a KV head; the caller sets q. */
static QueryTile tile_of(const AttentionWork *work, int first, int n) {
  QueryTile tile = {.n = n, .cap = work->cap};
  for (int i = 0; i < n; i++) {
    span_of(work, (first + i) / work->group, &tile.low[i], &tile.high[i]);
  }
  return tile;
}

/* The denominator of a head's softmax, with the head's sink; it is infinite if the sink is far above all
 * scores. */
static float softmax_sum(const AttentionWork *work, int head, SoftmaxSum sum) {
  if (!work->sinks) return sum.sum;
  return sum.sum + (float)exp((double)work->sinks[head] - (double)sum.max);
}

static void divide(const float *out, float sum, int n, float *value) {
  for (int d = 0; d < n; d++) value[d] = out[d] / sum;
}

static void attend_queries(const AttentionWork *work, int kv_head, int first, int n) {
  float q[MAX_QUERIES * MAX_HEAD_ROW], out[MAX_QUERIES * MAX_HEAD_ROW] __attribute__((aligned(64)));
  float part[MAX_QUERIES * MAX_HEAD_ROW] __attribute__((aligned(64)));
  SoftmaxSum sums[MAX_QUERIES] = {0}, parts[MAX_QUERIES];
  const Kernels *kernels = work->state->loaded->kernels;
  for (int i = 0; i < n; i++) {
    memcpy(q + (size_t)i * (size_t)work->head_dim, value_of(work, kv_head, first + i),
           (size_t)work->head_dim * sizeof *q);
  }
  QueryTile tile = tile_of(work, first, n);
  tile.q = q;
  const KvHead kv = work->gathered ? *work->gathered
                                   : state_kv_head(work->state, work->part.sequence, work->layer, kv_head);
  for (int segment = tile.low[0] / SEGMENT; segment <= tile.high[n - 1] / SEGMENT; segment++) {
    kernels->attend(&kv, segment, &tile, parts, part);
    for (int i = 0; i < n; i++) {
      size_t at = (size_t)i * (size_t)work->v_width;
      kernels->merge(&sums[i], out + at, parts[i], part + at, work->v_width);
    }
  }
  for (int i = 0; i < n; i++) {
    const int head = kv_head * work->group + (first + i) % work->group;
    divide(out + (size_t)i * (size_t)work->v_width, softmax_sum(work, head, sums[i]), work->head_dim,
           value_of(work, kv_head, first + i));
  }
}

/* The number of tiles of a part's queries for one KV head. */
static int64_t n_tiles_of(const AttentionWork *work, SequenceRows part) {
  return ((int64_t)part.n_tokens * work->group + MAX_QUERIES - 1) / MAX_QUERIES;
}

/* Attention of several rows. Tasks are ordered by part, tile, KV head. */
static void attend_rows(const AttentionWork *all, TokenRange range, int n_kv_heads) {
  int64_t n_tasks = 0;
  for (int i = 0; i < cpu_n_parts(&range); i++) n_tasks += n_tiles_of(all, cpu_part(&range, i)) * n_kv_heads;
    /* Starts with the last tile, whose queries attend to the most keys of their sequence. */
#pragma omp parallel for schedule(dynamic) num_threads(all->state->loaded->n_threads)
  for (int64_t at = n_tasks - 1; at >= 0; at--) {
    AttentionWork work = *all;
    int64_t task = at;
    int part = 0;
    for (int64_t n; task >= (n = n_tiles_of(all, cpu_part(&range, part)) * n_kv_heads); task -= n)
      work.first_row += cpu_part(&range, part++).n_tokens;
    work.part = cpu_part(&range, part);
    int64_t first = task / n_kv_heads * MAX_QUERIES, left = (int64_t)work.part.n_tokens * work.group - first;
    attend_queries(&work, (int)(task % n_kv_heads), (int)first, left < MAX_QUERIES ? (int)left : MAX_QUERIES);
  }
}

/* Attention of one row. part_sums and part_outs are ordered by KV head, tile of queries, segment, query, so
 * that a task's results are adjacent. */
static void attend_row(const AttentionWork *work, int n_kv_heads) {
  BackendState *state = work->state;
  const Kernels *kernels = state->loaded->kernels;
  int lowest_seen, highest_seen;
  span_of(work, 0, &lowest_seen, &highest_seen);
  const int first_segment = lowest_seen / SEGMENT, n_segments = highest_seen / SEGMENT - first_segment + 1;
  int n_tiles = (work->group + MAX_QUERIES - 1) / MAX_QUERIES;
  size_t width = (size_t)work->v_width;
#pragma omp parallel num_threads(state->loaded->n_threads)
  {
#pragma omp for schedule(dynamic)
    for (int64_t task = 0; task < (int64_t)n_kv_heads * n_tiles * n_segments; task++) {
      int segment = (int)(task % n_segments), tile_index = (int)(task / n_segments % n_tiles);
      int kv_head = (int)(task / n_segments / n_tiles), first = tile_index * MAX_QUERIES;
      int n = work->group - first < MAX_QUERIES ? work->group - first : MAX_QUERIES;
      size_t at = (size_t)(kv_head * work->group + first) * (size_t)n_segments + (size_t)segment * (size_t)n;
      QueryTile tile = tile_of(work, first, n);
      tile.q = value_of(work, kv_head, first);
      KvHead kv = state_kv_head(state, work->part.sequence, work->layer, kv_head);
      kernels->attend(&kv, first_segment + segment, &tile, state->part_sums + at,
                      state->part_outs + at * width);
    }
#pragma omp for
    for (int head = 0; head < n_kv_heads * work->group; head++) {
      int kv_head = head / work->group, query = head % work->group, first = query / MAX_QUERIES * MAX_QUERIES;
      int n = work->group - first < MAX_QUERIES ? work->group - first : MAX_QUERIES;
      size_t at = (size_t)(kv_head * work->group + first) * (size_t)n_segments + (size_t)(query - first);
      float out[MAX_HEAD_ROW] __attribute__((aligned(64)));
      SoftmaxSum sum = {0};
      for (int segment = 0; segment < n_segments; segment++, at += (size_t)n)
        kernels->merge(&sum, out, state->part_sums[at], state->part_outs + at * width, work->v_width);
      divide(out, softmax_sum(work, head, sum), work->head_dim, value_of(work, kv_head, query));
    }
  }
}

/* Attention of rows that select positions (sparse.c): a task is a row and a KV head. */
static void attend_chosen(const AttentionWork *all, int n_rows, int n_kv_heads) {
  BackendState *state = all->state;
  cpu_select(state, n_rows, all->layer);
#pragma omp parallel for schedule(dynamic) num_threads(cpu_gatherers(state->loaded))
  for (int task = 0; task < n_rows * n_kv_heads; task++) {
    AttentionWork work = *all;
    const int row = task / n_kv_heads, kv_head = task % n_kv_heads;
    const KvHead whole = state_kv_head(state, state->sequences[row], all->layer, kv_head);
    const KvHead own = cpu_gather(
        state, &whole, row, state->gathered + (size_t)omp_get_thread_num() * state->plan.gathered_bytes);
    work.part =
        (SequenceRows){.sequence = state->sequences[row], .pos = state->positions[row], .n_tokens = 1};
    work.first_row = row;
    work.gathered = &own;
    work.n_gathered = state->n_selected[row];
    for (int first = 0; first < work.group; first += MAX_QUERIES)
      attend_queries(&work, kv_head, first,
                     work.group - first < MAX_QUERIES ? work.group - first : MAX_QUERIES);
  }
}

Status cpu_attention(BackendState *state, TokenRange range, int layer, Error *err) {
  const ModelConfig *config = &state->loaded->model->config;
  const LayerConfig own = config_layer(config, layer);
  const AttentionWork work = {.state = state,
                              .part = cpu_part(&range, 0),
                              .layer = layer,
                              .window = own.window,
                              .chunk = own.chunk,
                              .group = own.n_heads / own.n_kv_heads,
                              .head_dim = own.head_dim,
                              .v_width = state->kv[layer].v_width,
                              .cap = (float)config->attention_cap,
                              .draft = config->draft.kind,
                              .sinks = state->loaded->layers[layer].sinks};
  if (cpu_selects(state, range.n_tokens))
    attend_chosen(&work, range.n_tokens, own.n_kv_heads);
  else if (range.n_tokens == 1)
    attend_row(&work, own.n_kv_heads);
  else
    attend_rows(&work, range, own.n_kv_heads);
  return STATUS_OK;
}
