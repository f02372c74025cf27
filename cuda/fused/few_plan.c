/* few_plan.c - see few_plan.h.
 *
 * Always true: what is in turns in one place of shared memory is never there at once (few_tokens.cu), and all
 * fits what the shape says a block has. */
#include "cuda/fused/few_plan.h"

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

/* The largest of a share. Zeros begin at a multiple of 8 bytes, copies at one of 16. */
static int piece_bytes(int n_groups) {
  const int groups = step_rows_span(n_groups);
  return STEP_TEAM_WARPS * (groups * (1024 + 32) + align_up(groups * 8 + 8, 16));
}

/* Of a share. */
static int pieces(int tile_rows, int n_groups) {
  return ceil_div(tile_rows, STEP_TEAM_WARPS) * step_rows_parts(n_groups);
}

/* Of a layer, of the block that has most. */
static int most_pieces(const StepRowsPlan *plan) {
  const int columns = ceil_div(plan->shape.hidden / STEP_GROUP, STEP_BLOCKS), tile_rows = columns * 8;
  const int units = plan->most_units;
  return pieces(STEP_BLOCKS * (plan->heads_per_kv + 2), columns) + pieces(tile_rows, plan->heads_per_kv) +
         pieces(2 * STEP_BLOCKS * units, columns) + pieces(tile_rows, units);
}

/* The widest piece of the head that fits, of an equal number of inputs each. */
static int head_width(int hidden, int most) {
  int parts = ceil_div(hidden, most);
  while (hidden % parts != 0 || hidden / parts % 64 != 0) parts++;
  return hidden / parts;
}

static void place_shared(StepRowsPlan *plan) {
  const StepShape *s = &plan->shape;
  StepRowsShared *at = &plan->at;
  const int rows = plan->rows, groups = s->hidden / STEP_GROUP, columns = ceil_div(groups, STEP_BLOCKS);
  const int inputs = larger(plan->heads_per_kv, plan->most_units);
  const int state = STEP_HEAD_DIM * 2 + 8, owned = ceil_div(plan->queries, STEP_BLOCKS);
  const int values = plan->states * plan->queries * STEP_HEAD_DIM * 2,
            weights = plan->states * plan->queries * 8;
  const int head_sums = 2 * STEP_WARPS * rows * STEP_HEAD_ROWS * 4;
  at->squares = STEP_BARRIER_BYTES + STEP_SHARES_BYTES;
  at->x_notes = at->squares + groups * rows * 4;
  at->in_notes = at->x_notes + groups * rows * NOTES;
  at->rope = at->in_notes + inputs * rows * NOTES;
  at->chunks = at->rope + STEP_HEAD_DIM / 2 * 8;
  at->pieces = at->chunks + (1 + STEP_BLOCKS / rows) * STEP_CHUNKS * 8;
  at->parts = align_up(at->pieces + most_pieces(plan) * STEP_PIECE_BYTES, 128);
  at->x = at->warp_values = at->parts;
  at->slice = at->warp_weights = at->parts + larger(STEP_CHUNKS * STEP_CHUNK_BYTES, values);
  at->heads = at->slice + larger(columns * rows * PLANES, align_up(weights, 16));
  at->states = at->heads + (plan->columns * 8 + 2 * rows) * STEP_HEAD_DIM * 2;
  /* Behind x of the head, which peers send while this block still multiplies what goes into down. */
  at->in = at->exchange =
      larger(at->states + align_up(owned * STEP_BLOCKS * state, 16), at->x + groups * rows * PLANES);
  at->total = align_up(at->in + larger(inputs * rows * PLANES, head_sums), 128);
}

/* The ring, and what lies before it. */
static void place_ring(StepRowsPlan *plan) {
  const StepShape *s = &plan->shape;
  const int groups = s->hidden / STEP_GROUP, units = plan->most_units;
  const int shares[] = {ceil_div(groups, STEP_BLOCKS), groups / STEP_BLOCKS, plan->heads_per_kv, units,
                        larger(1, units - 1)};
  plan->piece_bytes = piece_bytes(shares[0]);
  plan->slot_bytes =
      larger(STEP_KEYS * STEP_HEAD_DIM * 2 * 2, STEP_HEAD_ROWS * (plan->head_width * 2 + STEP_HEAD_PAD));
  for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
    plan->slot_bytes = larger(plan->slot_bytes, piece_bytes(shares[i]));
  plan->slot_bytes = align_up(plan->slot_bytes, 128);
  plan->ring_at = plan->at.total;
  plan->n_slots = ((int)s->shared_bytes - plan->at.total) / plan->slot_bytes;
  if (plan->n_slots > STEP_MAX_SLOTS) plan->n_slots = STEP_MAX_SLOTS;
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
      : s->intermediate / STEP_GROUP < s->n_clusters          ? "intermediate size"
                                                              : NULL;
  if (!what) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "one kernel a step of %d rows: not with this %s", rows, what);
}

size_t step_rows_memory(const StepShape *s, int rows) {
  const size_t words = 2 * STEP_SUM_TURNS * sizeof(uint64_t), residual = STEP_MAX_CLUSTERS * sizeof(float);
  return (words + residual) * (size_t)rows * (size_t)s->hidden + sizeof(uint64_t); /* and of launches */
}

Status step_rows_plan(const StepShape *s, int rows, StepRowsPlan *plan, Error *err) {
  memset(plan, 0, sizeof *plan);
  TRY(refuse_shape(s, rows, err));
  plan->shape = *s;
  plan->rows = rows;
  plan->heads_per_kv = s->n_heads / s->n_kv_heads;
  plan->queries = plan->heads_per_kv * rows;
  plan->columns = plan->queries <= 8 ? 1 : plan->queries <= 16 ? 2 : 4;
  plan->members = STEP_TEAM_WARPS / plan->columns < 2 ? plan->columns : 2 * plan->columns;
  plan->states = STEP_TEAMS * (plan->members / plan->columns);
  plan->most_units = ceil_div(s->intermediate / STEP_GROUP, s->n_clusters);
  plan->head_width = head_width(s->hidden, STEP_HEAD_WIDTH);
  plan->n_head_blocks = ceil_div(s->vocab_size, STEP_HEAD_ROWS);
  plan->memory_bytes = step_rows_memory(s, rows);
  place_shared(plan);
  place_ring(plan);
  if (plan->n_slots >= LEAST_SLOTS) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "one kernel a step of %d rows: %d bytes of shared memory are needed",
                   rows, plan->at.total + LEAST_SLOTS * plan->slot_bytes);
}
