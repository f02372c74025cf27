/* step_rows_plan.c - see step_rows_plan.h.
 *
 * Always true: what is in turns in one place of shared memory is never there at once (step_rows.cu), and all
 * fits what the shape says a block has. */
#include "cuda/step_rows_plan.h"

#include <string.h>

enum {
  LEAST_SLOTS = STEP_TEAMS + 1, /* step_rows_open(): of what is under way */
  PLANES = 2 * STEP_GROUP,      /* bytes of a group and row */
  NOTES = 16,
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

/* Zeros begin at a multiple of 8 bytes, copies at one of 16. */
static int piece_bytes(int groups) {
  return STEP_TEAM_WARPS * (groups * (1024 + 32) + align_up(groups * 8 + 8, 16));
}

/* The widest piece of the head that fits, of an equal number of inputs each. */
static int head_width(int hidden, int most) {
  int parts = ceil_div(hidden, most);
  while (hidden % parts != 0 || hidden / parts % 64 != 0) parts++;
  return hidden / parts;
}

/* Of a share. */
static int pieces(const StepRowsPlan *plan, int tile_rows, int groups) {
  return ceil_div(tile_rows, STEP_TEAM_WARPS) * ceil_div(groups, plan->span);
}

/* Of a layer, of the block that has most. */
static int most_pieces(const StepRowsPlan *plan) {
  const int groups = plan->shape.hidden / STEP_GROUP, columns = ceil_div(groups, STEP_BLOCKS) * STEP_GROUP;
  return pieces(plan, plan->heads_per_kv + 2, groups) + pieces(plan, columns / 16, plan->heads_per_kv) +
         pieces(plan, 2 * plan->most_units, groups) + pieces(plan, columns / 16, plan->most_units);
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
  at->x_notes = at->x + groups * rows * PLANES;
  at->in = at->x_notes + groups * rows * NOTES;
  at->in_notes = at->in + inputs * rows * PLANES;
  at->exchange = at->in_notes + inputs * rows * NOTES;
  at->states = at->exchange + align_up(larger(larger(projections, plan->states * plan->queries * state),
                                              larger(gated, head_sums)),
                                       16);
  at->heads = at->states + owned * STEP_BLOCKS * state;
  at->rope = at->heads + (plan->columns * 8 + 2 * rows) * STEP_HEAD_DIM * 2;
  at->pieces = at->rope + rows * (STEP_HEAD_DIM / 2) * 8;
  at->total = align_up(at->pieces + most_pieces(plan) * STEP_PIECE_BYTES, 128);
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

Status step_rows_plan(const StepShape *s, int rows, StepRowsPlan *plan, Error *err) {
  memset(plan, 0, sizeof *plan);
  TRY(refuse_shape(s, rows, err));
  plan->shape = *s;
  plan->rows = rows;
  plan->heads_per_kv = s->n_heads / s->n_kv_heads;
  plan->span = STEP_SPAN;
  plan->keys = STEP_KEYS;
  plan->queries = plan->heads_per_kv * rows;
  plan->columns = plan->queries <= 8 ? 1 : plan->queries <= 16 ? 2 : 4;
  plan->members = plan->columns == 1 ? plan->keys / 16 : plan->columns;
  plan->states = STEP_TEAMS * plan->members / plan->columns;
  plan->most_units = ceil_div(s->intermediate / STEP_GROUP, s->n_clusters);
  plan->head_width = head_width(s->hidden, STEP_HEAD_WIDTH);
  plan->n_head_blocks = ceil_div(s->vocab_size, STEP_HEAD_ROWS);
  plan->piece_bytes = piece_bytes(plan->span);
  plan->slot_bytes =
      larger(plan->keys * STEP_HEAD_DIM * 2 * 2, STEP_HEAD_ROWS * (plan->head_width * 2 + STEP_HEAD_PAD));
  plan->slot_bytes = align_up(larger(plan->slot_bytes, plan->piece_bytes), 128);
  place_shared(plan);
  plan->ring_at = plan->at.total;
  const int room = ((int)s->shared_bytes - plan->at.total) / plan->slot_bytes;
  plan->n_slots = room > STEP_MAX_SLOTS ? STEP_MAX_SLOTS : room;
  if (s->max_slots && plan->n_slots > s->max_slots) plan->n_slots = s->max_slots;
  if (plan->n_slots < LEAST_SLOTS)
    return error_set(err, STATUS_MODEL, "one kernel a step of %d rows: %d bytes of shared memory are needed",
                     rows, plan->at.total + LEAST_SLOTS * plan->slot_bytes);
  const size_t rows_of_hidden = (size_t)(s->n_kv_heads + 3 * s->n_clusters) * (size_t)rows;
  plan->memory_bytes = rows_of_hidden * (size_t)s->hidden * sizeof(float);
  return STATUS_OK;
}
