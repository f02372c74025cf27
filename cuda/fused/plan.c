/* plan.c - see plan.h.
 *
 * Always true: every tile row of every matrix belongs to exactly one block's share of its inputs; areas
 * at the same offset are never in use at once (one_token.cu, few_tokens.cu), and all fit a block's
 * shared memory. */
#include "cuda/fused/plan.h"

#include <stdint.h>
#include <string.h>

enum {
  LEAST_SLOTS = STEP_TEAMS + 1, /* step.cu, set_in_flight() */
  PLANES = 2 * STEP_GROUP,      /* bytes of a token's group */
  NOTES = 8,
  STATE = STEP_HEAD_DIM * 2 + 8,
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

StepCut step_cut(int n_groups) {
  for (int spans = ceil_div(n_groups, STEP_SPAN);; spans++) {
    StepCut best = {0};
    for (int k_warps = STEP_TEAM_WARPS; k_warps >= 1; k_warps /= 2) {
      const int parts = spans / k_warps, groups = ceil_div(n_groups, parts > 0 ? parts : 1);
      if (parts * k_warps != spans || parts > STEP_MAX_PARTS || groups > k_warps * STEP_SPAN) continue;
      const bool keeps = STEP_TEAMS % parts == 0, kept = best.parts && STEP_TEAMS % best.parts == 0;
      if (best.parts && (kept || !keeps)) continue;
      best = (StepCut){.n_groups = n_groups,
                       .parts = parts,
                       .groups = groups,
                       .k_warps = k_warps,
                       .span = ceil_div(groups, k_warps),
                       .rows = STEP_TEAM_WARPS / k_warps};
    }
    if (best.parts) return best;
  }
}

/* Bytes of tiles, scales and zeros. Zeros begin at a multiple of 8 bytes, their copies at one of 16. */
static int bytes_of(int rows, int groups) {
  return rows * (groups * (1024 + 32) + align_up(groups * 8 + 8, 16));
}

int step_piece_bytes(StepCut cut) {
  return bytes_of(cut.rows, cut.groups);
}

int step_pieces(StepCut cut, int n_tile_rows) {
  return ceil_div(n_tile_rows, cut.rows) * cut.parts;
}

/* --- one token */

static void share_units(const StepShape *s, StepPlan *plan) {
  for (int c = 0; c < s->n_clusters; c++) {
    StepShare *share = &plan->shares[c];
    share->first_unit = step_first_unit(s, c);
    share->n_units = step_first_unit(s, c + 1) - share->first_unit;
    share->down = step_cut(share->n_units);
  }
}

/* Floats between the sums of neighbouring warps along k, which begin 4 banks apart: for so many tile
 * rows and those that fill the last stage. */
static int stride_of(int n_tile_rows) {
  return align_up(n_tile_rows, STEP_TEAM_WARPS) * 16 + 4;
}

static int sums_bytes(StepCut cut, int stride) {
  return cut.parts * cut.k_warps * stride * (int)sizeof(float);
}

/* Stages of a layer in the block that has most. */
static int most_pieces_of_one(const StepPlan *plan) {
  int most = 0;
  for (int c = 0; c < plan->shape.n_clusters; c++) {
    const StepShare *share = &plan->shares[c];
    most = larger(most,
                  step_pieces(plan->full, 2 * share->n_units) + step_pieces(share->down, plan->slice / 16));
  }
  return most + step_pieces(plan->full, plan->heads_per_kv + 2) + step_pieces(plan->o, plan->slice / 16);
}

static void place_one(const StepShape *s, StepPlan *plan, int largest_share) {
  StepShared *at = &plan->at;
  const int heads = plan->heads_per_kv;
  int slot = larger(STEP_KEYS * STEP_HEAD_DIM * 2 * 2, plan->head_rows * s->hidden * 2);
  slot = larger(slot, larger(step_piece_bytes(plan->full), step_piece_bytes(plan->o)));
  plan->stride_qkv = stride_of(heads + 2);
  plan->stride_slice = stride_of(plan->slice / 16);
  int sums = sums_bytes(plan->o, plan->stride_slice), long_sums = sums_bytes(plan->full, plan->stride_qkv);
  for (int c = 0; c < s->n_clusters; c++) {
    StepShare *share = &plan->shares[c];
    share->stride = stride_of(2 * share->n_units);
    slot = larger(slot, step_piece_bytes(share->down));
    long_sums = larger(long_sums, sums_bytes(plan->full, share->stride));
    sums = larger(sums, sums_bytes(share->down, plan->stride_slice));
  }
  plan->slot_bytes = align_up(slot, 128);

  const int states = plan->states * heads * STATE, attention = STEP_BLOCKS * heads * STATE;
  const int projections = (heads + 2) * STEP_HEAD_DIM * 4;
  const int groups = larger(larger(s->hidden / STEP_GROUP, heads), largest_share);
  at->x = STEP_BARRIER_BYTES + STEP_SHARES_BYTES;
  at->sums = at->x + align_up(larger(s->hidden * 4, larger(long_sums, states)), 16);
  at->planes = at->attention = at->sums + align_up(sums, 16);
  at->scales = at->planes + groups * 2 * STEP_GROUP;
  at->exchange = align_up(larger(at->scales + groups * 8, at->attention + attention), 16);
  at->heads = at->exchange + align_up(larger(projections, largest_share * STEP_GROUP * 4), 16);
  at->small = at->heads + (STEP_MAX_SHARED_HEADS + 2) * STEP_HEAD_DIM * 2;
  at->residual = at->small + s->hidden / 32 * 4 + 64 * 8 + 2 * STEP_WARPS * 8 * 4;
  at->pieces = align_up(at->residual + plan->slice * 4, 16);
  at->tasks = at->pieces + most_pieces_of_one(plan) * STEP_PIECE_BYTES;
  at->total = align_up(at->tasks + most_pieces_of_one(plan) * STEP_PIECE_BYTES, 16);
}

/* --- several tokens */

/* Bytes of a share's largest stage, and how many stages it has. */
static int share_bytes(int n_groups) {
  return bytes_of(STEP_TEAM_WARPS, step_rows_span(n_groups));
}
static int pieces(int tile_rows, int n_groups) {
  return ceil_div(tile_rows, STEP_TEAM_WARPS) * step_rows_parts(n_groups);
}

/* Stages of a layer in the block that has most. */
static int most_pieces_of_several(const StepPlan *plan) {
  const int columns = ceil_div(plan->shape.hidden / STEP_GROUP, STEP_BLOCKS), tile_rows = columns * 8;
  const int units = plan->most_units;
  return pieces(STEP_BLOCKS * (plan->heads_per_kv + 2), columns) + pieces(tile_rows, plan->heads_per_kv) +
         pieces(2 * STEP_BLOCKS * units, columns) + pieces(tile_rows, units);
}

/* The most inputs of lm_head that a stage may hold: an equal part of hidden, a multiple of 64. */
static int head_width(int hidden, int most) {
  int parts = ceil_div(hidden, most);
  while (hidden % parts != 0 || hidden / parts % 64 != 0) parts++;
  return hidden / parts;
}

static void place_several(StepPlan *plan) {
  const StepShape *s = &plan->shape;
  StepShared *at = &plan->at;
  const int rows = plan->rows, groups = s->hidden / STEP_GROUP, columns = ceil_div(groups, STEP_BLOCKS);
  const int inputs = larger(plan->heads_per_kv, plan->most_units);
  const int owned = ceil_div(plan->queries, STEP_BLOCKS);
  const int values = plan->states * plan->queries * STEP_HEAD_DIM * 2,
            weights = plan->states * plan->queries * 8;
  const int head_sums = 2 * STEP_WARPS * rows * STEP_HEAD_ROWS * 4;
  at->squares = STEP_BARRIER_BYTES + STEP_SHARES_BYTES;
  at->x_notes = at->squares + groups * rows * 4;
  at->in_notes = at->x_notes + groups * rows * NOTES;
  at->rope = at->in_notes + inputs * rows * NOTES;
  at->chunks = at->rope + STEP_HEAD_DIM / 2 * 8;
  at->pieces = at->chunks + (1 + STEP_BLOCKS / rows) * STEP_CHUNKS * 8;
  at->parts = align_up(at->pieces + most_pieces_of_several(plan) * STEP_PIECE_BYTES, 128);
  at->x = at->warp_values = at->parts;
  at->slice = at->warp_weights = at->parts + larger(STEP_CHUNKS * STEP_CHUNK_BYTES, values);
  at->heads = at->slice + larger(columns * rows * PLANES, align_up(weights, 16));
  at->states = at->heads + (plan->columns * 8 + 2 * rows) * STEP_HEAD_DIM * 2;
  /* After x of lm_head, which peers send while this block still multiplies x of down. */
  at->in = at->exchange =
      larger(at->states + align_up(owned * STEP_BLOCKS * STATE, 16), at->x + groups * rows * PLANES);
  at->total = align_up(at->in + larger(inputs * rows * PLANES, head_sums), 128);
}

/* A slot holds the largest stage of any share, of the cache and of lm_head. */
static int slot_of_several(const StepPlan *plan) {
  const int groups = plan->shape.hidden / STEP_GROUP, units = plan->most_units;
  const int shares[] = {ceil_div(groups, STEP_BLOCKS), groups / STEP_BLOCKS, plan->heads_per_kv, units,
                        larger(1, units - 1)};
  int slot =
      larger(STEP_KEYS * STEP_HEAD_DIM * 2 * 2, STEP_HEAD_ROWS * (plan->head_width * 2 + STEP_HEAD_PAD));
  for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) slot = larger(slot, share_bytes(shares[i]));
  return align_up(slot, 128);
}

/* --- both */

static const char *step_of(int rows) {
  return rows == 1   ? "a step"
         : rows == 2 ? "a step of 2 rows"
         : rows == 4 ? "a step of 4 rows"
                     : "a step of 8 rows";
}

static Status refuse(const StepShape *s, int rows, Error *err) {
  const int shared_heads = s->n_heads / s->n_kv_heads;
  const char *what =
      s->hidden % 512 != 0 || s->hidden > STEP_MAX_HIDDEN ||
              (rows > 1 && s->hidden < STEP_BLOCKS * STEP_GROUP)
          ? "hidden size"
      : s->intermediate % (2 * STEP_GROUP) != 0           ? "intermediate size"
      : s->n_heads % s->n_kv_heads != 0 || s->n_heads % 2 ? "number of heads"
      : shared_heads > STEP_MAX_SHARED_HEADS || (rows > 1 && shared_heads * rows > STEP_ROWS_QUERIES)
          ? "number of heads of a KV head"
      : s->n_kv_heads > s->n_clusters     ? "number of KV heads"
      : s->n_clusters > STEP_MAX_CLUSTERS ? "number of clusters"
      : s->intermediate / STEP_GROUP < s->n_clusters ||
              (rows == 1 && ceil_div(s->intermediate / STEP_GROUP, s->n_clusters) > STEP_SPAN * STEP_WARPS)
          ? "intermediate size"
          : NULL;
  if (!what) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "one kernel %s: not with this %s", step_of(rows), what);
}

static void plan_one(const StepShape *s, StepPlan *plan) {
  plan->slice = s->hidden / STEP_BLOCKS;
  plan->full = step_cut(s->hidden / STEP_GROUP);
  plan->o = step_cut(plan->heads_per_kv);
  plan->piece_bytes = step_piece_bytes(plan->full);
  share_units(s, plan);
  plan->head_rows = larger(1, 16384 / (s->hidden * 2));
  if (plan->head_rows > 8) plan->head_rows = 8;
  plan->states = 2 * STEP_PAIRS + 1;
  place_one(s, plan, ceil_div(s->intermediate / STEP_GROUP, s->n_clusters));
}

static void plan_several(const StepShape *s, StepPlan *plan) {
  plan->queries = plan->heads_per_kv * plan->rows;
  plan->columns = plan->queries <= 8 ? 1 : plan->queries <= 16 ? 2 : 4;
  plan->members = STEP_TEAM_WARPS / plan->columns < 2 ? plan->columns : 2 * plan->columns;
  plan->states = STEP_TEAMS * (plan->members / plan->columns);
  plan->most_units = ceil_div(s->intermediate / STEP_GROUP, s->n_clusters);
  plan->head_rows = STEP_HEAD_ROWS;
  plan->head_width = head_width(s->hidden, STEP_HEAD_WIDTH);
  plan->piece_bytes = share_bytes(ceil_div(s->hidden / STEP_GROUP, STEP_BLOCKS));
  plan->slot_bytes = slot_of_several(plan);
  place_several(plan);
}

size_t step_memory(const StepShape *s, int rows) {
  const size_t values = (size_t)rows * (size_t)s->hidden;
  if (rows == 1) return (1 + STEP_MAX_CLUSTERS) * STEP_PLACES * values * sizeof(uint64_t);
  return (2 * STEP_SUM_TURNS * sizeof(uint64_t) + STEP_MAX_CLUSTERS * sizeof(float)) * values +
         sizeof(uint64_t); /* and the count of launches */
}

Status step_plan(const StepShape *s, int rows, StepPlan *plan, Error *err) {
  memset(plan, 0, sizeof *plan);
  TRY(refuse(s, rows, err));
  plan->shape = *s;
  plan->rows = rows;
  plan->heads_per_kv = s->n_heads / s->n_kv_heads;
  if (rows == 1)
    plan_one(s, plan);
  else
    plan_several(s, plan);
  plan->n_head_pieces = ceil_div(s->vocab_size, plan->head_rows);
  plan->n_slots = ((int)s->shared_bytes - plan->at.total) / plan->slot_bytes;
  if (plan->n_slots > STEP_MAX_SLOTS) plan->n_slots = STEP_MAX_SLOTS;
  if (s->max_slots && plan->n_slots > s->max_slots) plan->n_slots = s->max_slots;
  plan->ring_at = rows == 1 ? -plan->n_slots * plan->slot_bytes : plan->at.total;
  if (plan->n_slots >= LEAST_SLOTS) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "one kernel %s: %d bytes of shared memory are needed", step_of(rows),
                   plan->at.total + LEAST_SLOTS * plan->slot_bytes);
}

/* --- which models */

static bool is_four_bits(const Linear *l, bool may_have_bias) {
  return l->kind == LINEAR_AWQ && l->group == STEP_GROUP && (may_have_bias || !l->bias.data);
}

static const char *beyond_layer(const ModelConfig *c, const ModelLayer *l, int layer) {
  const Linear *with_bias[] = {&l->q, &l->k, &l->v}, *without[] = {&l->o, &l->gate, &l->up, &l->down};
  for (size_t i = 0; i < sizeof with_bias / sizeof *with_bias; i++)
    if (!is_four_bits(with_bias[i], true)) return "layers that are not 4 bits in groups of 128";
  for (size_t i = 0; i < sizeof without / sizeof *without; i++)
    if (!is_four_bits(without[i], false)) return "layers that are not 4 bits in groups of 128, or a bias";
  if (c->windows[layer] != 0) return "sliding windows";
  return config_layer_rope(c, layer) == ROPE_GLOBAL ? NULL : "layers with another rope";
}

static const char *beyond_config(const ModelConfig *c) {
  return c->head_dim != STEP_HEAD_DIM || c->rotary_dim != c->head_dim ? "heads of another size than 128"
         : c->norms != NORM_BEFORE                                    ? "norms of what is added"
         : c->qk_norm == QK_NORM_WHOLE                                ? "a norm over all heads"
         : c->activation != ACTIVATION_SILU                           ? "another activation than silu"
         : c->attention_cap != 0 || c->logit_cap != 0 || c->logit_divisor != 1 ? "capped or divided scores"
         : c->residual_scale != 1                                              ? "a scaled residual stream"
                                                                               : NULL;
}

Status step_serves(const Model *model, Error *err) {
  const ModelConfig *c = &model->config;
  const char *beyond = beyond_config(c);
  for (int i = 0; !beyond && i < c->n_layers; i++) beyond = beyond_layer(c, &model->layers[i], i);
  if (!beyond && (model->head.kind != LINEAR_DENSE || model->head.dtype != DTYPE_F16))
    beyond = "a head that is not fp16";
  if (!beyond) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "one kernel a step: not for %s", beyond);
}
