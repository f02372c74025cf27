/* step_rows_plan.c - see step_rows_plan.h.
 *
 * Always true: what is in turns in one place of shared memory is never there at once (step_rows.cu), and all
 * fits what the shape says a block has. */
#include "cuda/step_rows_plan.h"

#include <stdint.h>
#include <string.h>

enum {
  LEAST_SLOTS = STEP_TEAMS + 1, /* step_rows_open(): of what is under way */
  PLANES = 2 * STEP_GROUP,      /* bytes of a group and row */
  NOTES = 8,
};

static int ceil_div(int a, int b) {
  return (a + b - 1) / b;
}

static int align_up(int n, int to) {
  return ceil_div(n, to) * to;
}

static int larger(int a, int b) {
  return a > b ? a : b;
}

static StepRowsCut cut_of(const StepRowsPlan *plan, int n_groups) {
  if (plan->rows == 2) return step_rows_cut(n_groups, plan->small);
  return (StepRowsCut){.parts = step_rows_parts(n_groups), .k_warps = 1, .rows = STEP_TEAM_WARPS};
}

/* Whether blocks multiply by their own columns alone. */
static bool is_sliced(const StepRowsPlan *plan) {
  return plan->rows > 2;
}

/* The largest of a share. Zeros begin at a multiple of 8 bytes, copies at one of 16. */
static int piece_bytes(const StepRowsPlan *plan, int n_groups) {
  const StepRowsCut cut = cut_of(plan, n_groups);
  const int groups = ceil_div(n_groups, cut.parts);
  return cut.rows * (groups * (1024 + 32) + align_up(groups * 8 + 8, 16));
}

/* Bytes behind a piece's tiles that are read as tiles of groups that a warp has not (step_rows_two.cuh). */
static int beyond_tiles(const StepRowsPlan *plan, int n_groups) {
  const StepRowsCut cut = cut_of(plan, n_groups);
  int beyond = 0;
  for (int part = 0; plan->rows == 2 && part < cut.parts; part++) {
    const int n = (part + 1) * n_groups / cut.parts - part * n_groups / cut.parts;
    const int span = ceil_div(n, cut.k_warps), last = (cut.k_warps - 1) * span;
    beyond = larger(beyond, (last < n - 1 ? last : n - 1) + STEP_ROWS_SPAN - n);
  }
  return beyond * 1024;
}

/* The widest piece of the head that fits, of an equal number of inputs each. */
static int head_width(int hidden, int most) {
  int parts = ceil_div(hidden, most);
  while (hidden % parts != 0 || hidden / parts % 64 != 0) parts++;
  return hidden / parts;
}

/* Of a share. */
static int pieces(const StepRowsPlan *plan, int tile_rows, int groups) {
  const StepRowsCut cut = cut_of(plan, groups);
  return ceil_div(tile_rows, cut.rows) * cut.parts;
}

/* Of a layer, of the block that has most. */
static int most_pieces(const StepRowsPlan *plan) {
  const int groups = plan->shape.hidden / STEP_GROUP, mine = ceil_div(groups, STEP_BLOCKS);
  const int columns = mine * STEP_GROUP, units = plan->most_units;
  /* Of all tile rows the cluster's, or the block's alone. */
  const int inputs = is_sliced(plan) ? mine : groups, all = is_sliced(plan) ? STEP_BLOCKS : 1;
  int most = 0;
  for (int n = larger(1, units - 1); n <= units; n++) /* one unit fewer may be cut into more pieces */
    most = larger(most, pieces(plan, 2 * n * all, inputs) + pieces(plan, columns / 16, n));
  return most + pieces(plan, (plan->heads_per_kv + 2) * all, inputs) +
         pieces(plan, columns / 16, plan->heads_per_kv);
}

/* Of what warps leave of attention, with each piece of keys in so many parts. */
static int values_bytes(const StepRowsPlan *plan, int parts) {
  return STEP_TEAMS * parts * plan->queries * STEP_HEAD_DIM * 2;
}

/* Room for sums of as few tile rows as may be. */
static int sums_bytes(const StepRowsPlan *plan, int groups) {
  if (plan->rows != 2) return 0;
  const StepRowsCut cut = cut_of(plan, groups);
  const int wave = STEP_TEAMS / cut.parts * cut.rows;
  return align_up(wave, 2) * cut.parts * cut.k_warps * plan->rows * 16 * (int)sizeof(float);
}

/* Of four and eight rows. */
static void place_slices(StepRowsPlan *plan) {
  const StepShape *s = &plan->shape;
  StepRowsShared *at = &plan->at;
  const int rows = plan->rows, groups = s->hidden / STEP_GROUP, mine = ceil_div(groups, STEP_BLOCKS);
  const int inputs = larger(plan->heads_per_kv, plan->most_units);
  const int state = STEP_HEAD_DIM * 2 + 8, owned = ceil_div(plan->queries, STEP_BLOCKS);
  const int weights = plan->states * plan->queries * 8,
            head_sums = 2 * STEP_WARPS * rows * STEP_HEAD_ROWS * 4;
  at->squares = STEP_BARRIER_BYTES + STEP_SHARES_BYTES;
  at->x_notes = at->squares + groups * rows * 4;
  at->in_notes = at->x_notes + groups * rows * NOTES;
  at->rope = at->in_notes + inputs * rows * NOTES;
  at->chunks = at->rope + STEP_HEAD_DIM / 2 * 8;
  at->pieces = at->chunks + (1 + STEP_BLOCKS / rows) * STEP_CHUNKS * 8;
  at->parts = align_up(at->pieces + most_pieces(plan) * STEP_PIECE_BYTES, 128);
  at->x = at->warp_values = at->parts;
  at->slice = at->warp_weights = at->parts + STEP_CHUNKS * STEP_CHUNK_BYTES;
  at->heads = at->slice + larger(mine * rows * PLANES, align_up(weights, 16));
  at->states = at->heads + (plan->columns * 8 + 2 * rows) * STEP_HEAD_DIM * 2;
  /* Behind x of the head, which peers send while this block still multiplies what goes into down. */
  at->in = at->exchange =
      larger(at->states + align_up(owned * STEP_BLOCKS * state, 16), at->x + groups * rows * PLANES);
  at->total = align_up(at->in + larger(inputs * rows * PLANES, head_sums), 128);
}

static void place_shared(StepRowsPlan *plan) {
  const StepShape *s = &plan->shape;
  StepRowsShared *at = &plan->at;
  const int rows = plan->rows, groups = s->hidden / STEP_GROUP;
  const int inputs = larger(plan->heads_per_kv, plan->most_units);
  const int state = STEP_HEAD_DIM * 2 + 8, owned = ceil_div(plan->queries, STEP_BLOCKS);
  const int projections = (plan->heads_per_kv + 2) * rows * STEP_HEAD_DIM * 4;
  const int gated = plan->most_units * rows * STEP_GROUP * 4;
  const int head_sums = 2 * STEP_WARPS * rows * STEP_HEAD_ROWS * 4;
  at->x = STEP_BARRIER_BYTES + STEP_SHARES_BYTES;
  at->x_notes = at->x + larger(groups * rows * PLANES, sums_bytes(plan, groups));
  at->squares = at->x_notes + groups * rows * NOTES;
  at->in = align_up(at->squares + groups * rows * 4, 16);
  at->in_notes = at->in + inputs * rows * PLANES;
  at->exchange = align_up(at->in_notes + inputs * rows * NOTES, 16);
  const int values = plan->states * plan->queries * STEP_HEAD_DIM * 2,
            weights = plan->states * plan->queries * 8;
  const bool in_x = values <= at->x_notes - at->x;
  at->warp_values = in_x ? at->x : at->exchange;
  at->warp_weights = at->exchange + (in_x ? 0 : values);
  int exchange = larger(larger(projections, weights + (in_x ? 0 : values)), larger(gated, head_sums));
  exchange = larger(exchange, sums_bytes(plan, plan->heads_per_kv));
  for (int units = larger(1, plan->most_units - 1); units <= plan->most_units; units++)
    exchange = larger(exchange, sums_bytes(plan, units));
  at->states = at->exchange + align_up(exchange, 16);
  at->heads = at->states + owned * STEP_BLOCKS * state;
  at->rope = at->heads + (plan->columns * 8 + 2 * rows) * STEP_HEAD_DIM * 2;
  at->pieces = at->rope + rows * (STEP_HEAD_DIM / 2) * 8;
  at->total = align_up(at->pieces + most_pieces(plan) * STEP_PIECE_BYTES, 128);
}

/* The ring, and what lies before it. */
static void place_ring(StepRowsPlan *plan) {
  const StepShape *s = &plan->shape;
  const int groups = s->hidden / STEP_GROUP, parts = is_sliced(plan) ? STEP_BLOCKS : 1;
  const int cuts[] = {ceil_div(groups, parts), groups / parts, plan->heads_per_kv, plan->most_units,
                      larger(1, plan->most_units - 1)};
  plan->piece_bytes = piece_bytes(plan, cuts[0]);
  plan->slot_bytes =
      larger(plan->keys * STEP_HEAD_DIM * 2 * 2, STEP_HEAD_ROWS * (plan->head_width * 2 + STEP_HEAD_PAD));
  plan->slack = 0;
  for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
    plan->slot_bytes = larger(plan->slot_bytes, piece_bytes(plan, cuts[i]));
    plan->slack = larger(plan->slack, beyond_tiles(plan, cuts[i]));
  }
  plan->slot_bytes = align_up(plan->slot_bytes, 128);
  if (is_sliced(plan))
    place_slices(plan);
  else
    place_shared(plan);
  plan->ring_at = plan->at.total;
  const int room = ((int)s->shared_bytes - plan->at.total - plan->slack) / plan->slot_bytes;
  plan->n_slots = room > STEP_MAX_SLOTS ? STEP_MAX_SLOTS : room;
  if (s->max_slots && plan->n_slots > s->max_slots) plan->n_slots = s->max_slots;
}

static Status refuse_shape(const StepShape *s, int rows, Error *err) {
  const char *what =
      s->hidden % 512 != 0 || s->hidden < STEP_BLOCKS * STEP_GROUP || s->hidden > STEP_MAX_HIDDEN
          ? "hidden size"
      : s->intermediate % (2 * STEP_GROUP) != 0               ? "intermediate size"
      : s->n_heads % s->n_kv_heads != 0 || s->n_heads % 2     ? "number of heads"
      : s->n_heads / s->n_kv_heads > STEP_MAX_SHARED_HEADS    ? "number of heads of a KV head"
      : s->n_heads / s->n_kv_heads * rows > STEP_ROWS_QUERIES ? "number of heads of a KV head"
      : s->n_kv_heads > s->n_clusters                         ? "number of KV heads"
      : s->n_clusters > STEP_MAX_CLUSTERS                     ? "number of clusters"
      : s->intermediate / STEP_GROUP < s->n_clusters ||
              s->intermediate / STEP_GROUP > STEP_ROWS_SPAN * STEP_WARPS * s->n_clusters
          ? "intermediate size"
          : NULL;
  if (!what) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "one kernel a step of %d rows: not with this %s", rows, what);
}

size_t step_rows_memory(const StepShape *s, int rows) {
  const size_t words = 2 * STEP_SUM_TURNS * sizeof(uint64_t), residual = STEP_MAX_CLUSTERS * sizeof(float);
  return (words + residual) * (size_t)rows * (size_t)s->hidden;
}

Status step_rows_plan(const StepShape *s, int rows, StepRowsPlan *plan, Error *err) {
  memset(plan, 0, sizeof *plan);
  TRY(refuse_shape(s, rows, err));
  plan->shape = *s;
  plan->rows = rows;
  plan->heads_per_kv = s->n_heads / s->n_kv_heads;
  plan->keys = STEP_KEYS;
  plan->queries = plan->heads_per_kv * rows;
  plan->columns = plan->queries <= 8 ? 1 : plan->queries <= 16 ? 2 : 4;
  plan->most_units = ceil_div(s->intermediate / STEP_GROUP, s->n_clusters);
  const int halves = plan->keys / 16, x_bytes = s->hidden / STEP_GROUP * rows * PLANES;
  const int room = is_sliced(plan) ? STEP_CHUNKS * STEP_CHUNK_BYTES : x_bytes;
  const bool is_split = plan->columns == 1 || (plan->columns == 2 && values_bytes(plan, halves) <= room);
  plan->members = plan->columns * (is_split ? halves : 1);
  plan->states = STEP_TEAMS * (is_split ? halves : 1);
  plan->head_width = head_width(s->hidden, STEP_HEAD_WIDTH);
  plan->n_head_blocks = ceil_div(s->vocab_size, STEP_HEAD_ROWS);
  plan->small = STEP_ROWS_SMALL;
  place_ring(plan);
  if (plan->n_slots < LEAST_SLOTS) plan->small = 0, place_ring(plan);
  if (plan->n_slots < LEAST_SLOTS)
    return error_set(err, STATUS_MODEL, "one kernel a step of %d rows: %d bytes of shared memory are needed",
                     rows, plan->at.total + plan->slack + LEAST_SLOTS * plan->slot_bytes);
  plan->memory_bytes = step_rows_memory(s, rows);
  return STATUS_OK;
}
