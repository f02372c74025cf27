/* plan.c - see plan.h.
 *
 * Always true: each input of each tile row of a cluster belongs to exactly one block's share; areas at the
 * same offset are never in use at once (one_kernel.cuh, few/kernel.cuh), and all fit a block's shared
 * memory. */
#include "cuda/kernels/fused/sizes/plan_one.h"

#include <stdint.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/status.h"

enum {
  LEAST_SLOTS = STEP_WARPGROUPS + 1, /* so that one stage may be in flight: step.cu, set_in_flight() */
  /* A wait sees only the parity of a barrier's phase. A warpgroup without a head of the delta rule skips the
   * heads' stages. So it waits for a stage up to STEP_DELTA_HEADS further on. With fewer slots it could
   * mistake an earlier phase of the same parity for its stage's. */
  LEAST_SLOTS_OF_HYBRID = STEP_WARPGROUPS + STEP_DELTA_HEADS,
};

/* Bytes of a stage of keys and values. */
static int keys_bytes(const StepShape *s) {
  const KvType kv = s->q8 ? KV_Q8 : KV_F16;
  if (step_is_latent(s)) return step_keys(s) * (int)kv_key_bytes(kv, s->head_dim); /* keys are values */
  return step_keys(s) * (int)(kv_key_bytes(kv, s->head_dim) + kv_value_bytes(kv, s->head_dim));
}

/* --- several tokens */

/* share_bytes(): bytes of a share's largest stage. share_stages(): how many stages the share has. */
static int share_bytes(int n_groups, int parts) {
  return step_bytes_of(STEP_WARPGROUP_WARPS, step_few_span(n_groups), parts);
}
static int share_stages(int tile_rows, int n_groups) {
  return ceil_div(tile_rows, STEP_WARPGROUP_WARPS) * step_few_stages(n_groups);
}

/* Inputs in a stage of lm_head: the largest equal part of hidden up to `most` that is a multiple of 64. */
static int lm_head_width(int hidden, int most) {
  int splits = ceil_div(hidden, most);
  while (hidden % splits != 0 || hidden / splits % 64 != 0) splits++;
  return hidden / splits;
}

static void plan_several(const StepShape *s, StepPlan *plan) {
  StepOffsets *off = &plan->off;
  const int tokens = plan->tokens, packs = plan->o_packs, ffn_blocks = plan->most_ffn_blocks;
  const int groups = s->hidden / STEP_GROUP, own_groups = ceil_div(groups, STEP_BLOCKS),
            rows = own_groups * 8, parts = step_parts(s),
            x_scales = tokens * step_x_scales(parts) * STEP_X_SCALE_BYTES;
  plan->queries = plan->heads_per_kv * tokens;
  plan->columns = plan->queries <= 8 ? 1 : plan->queries <= 16 ? 2 : 4;
  plan->members = STEP_WARPGROUP_WARPS / plan->columns < 2 ? plan->columns : 2 * plan->columns;
  plan->states = STEP_WARPGROUPS * (plan->members / plan->columns);
  plan->lm_head_rows = STEP_LM_HEAD_ROWS;
  plan->lm_head_width = lm_head_width(s->hidden, STEP_LM_HEAD_WIDTH);
  plan->stage_bytes = share_bytes(own_groups, parts);

  /* A slot holds the largest stage of any share, of the KV cache and of lm_head. */
  const int shares[] = {own_groups, groups / STEP_BLOCKS, packs, ffn_blocks, step_larger(1, ffn_blocks - 1)};
  int slot = step_larger(keys_bytes(s), STEP_LM_HEAD_ROWS * (plan->lm_head_width * 2 + STEP_LM_HEAD_PAD));
  for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
    slot = step_larger(slot, share_bytes(shares[i], parts));
  plan->slot_bytes = step_align_up(slot, 128);

  const int stages = share_stages(STEP_BLOCKS * plan->qkv_packs, own_groups) + share_stages(rows, packs) +
                     share_stages(2 * STEP_BLOCKS * ffn_blocks, own_groups) + share_stages(rows, ffn_blocks);
  const int inputs = step_larger(packs, ffn_blocks), owned = ceil_div(packs * tokens, STEP_BLOCKS);
  const int states = plan->states * plan->queries;
  off->squares = STEP_VARS_BYTES;
  off->x_scales = off->squares + groups * tokens * 4;
  off->in_scales = off->x_scales + groups * x_scales;
  off->rope = off->in_scales + inputs * x_scales;
  off->spans = off->rope + STEP_MAX_HEAD_DIM / 2 * 8;
  off->chunks = off->spans + STEP_SPANS_BYTES;
  off->stage_table = off->chunks + (1 + STEP_BLOCKS / tokens) * STEP_CHUNKS * 8;
  off->chunk_sums = step_align_up(off->stage_table + stages * STEP_ENTRY_BYTES, 128);
  off->x = off->warp_values = off->chunk_sums;
  off->slice = off->warp_weights =
      off->chunk_sums + step_larger(STEP_CHUNKS * STEP_CHUNK_BYTES, states * s->head_dim * 2);
  off->heads =
      off->slice + step_larger(own_groups * tokens * STEP_PLANE_BYTES, step_align_up(states * 8, 16));
  off->states = off->heads + (plan->columns * 8 + 2 * tokens) * s->head_dim * 2;
  /* `in` (x of down) lies after x of lm_head: peers may send the latter while x of down is multiplied. */
  off->in = off->exchange = step_larger(
      off->states + step_align_up(owned * STEP_BLOCKS * (STEP_PACK / s->head_dim) * step_state_bytes(s), 16),
      off->x + groups * tokens * STEP_PLANE_BYTES);
  off->total = step_align_up(off->in + step_larger(inputs * tokens * STEP_PLANE_BYTES,
                                                   2 * STEP_WARPS * tokens * STEP_LM_HEAD_ROWS * 4),
                             128);
}

/* --- both */

static const char *const step_of[] = {
    [1] = "a step", [2] = "a step of 2 tokens", [4] = "a step of 4 tokens", [8] = "a step of 8 tokens"};

static Status refuse(const StepShape *s, int tokens, Error *err) {
  const bool latent = step_is_latent(s);
  const int shared_heads = s->n_heads / s->n_kv_heads / (latent ? step_latent_clusters(s) : 1),
            ffn_blocks = s->intermediate / step_features(s);
  const bool experts = s->n_experts > 0, hybrid = s->head_dim == STEP_WIDE_HEAD, varied = step_is_varied(s);
  /* Zero points are copied in units of 16 bytes, which hold the zero points of two groups of 128. So every
   * row of a matrix must have an even number of groups. Exceptions: varied experts, which have no zero
   * points, and experts on several GPUs (kOddBlocks in block.cuh). */
  const int even = (experts && s->n_gpus > 1) || varied ? 1 : 2;
  const int parts = s->group > 0 ? step_parts(s) : 0;
  const bool bytes = step_in_bytes(parts), halves = parts == STEP_HALF_PARTS;
  const struct {
    bool refused;
    const char *what;
  } rules[] = {
      {s->group != STEP_GROUP && s->group != 64 && s->group != 32 && s->group != STEP_FP4_GROUP && !bytes &&
           !halves,
       "group size"},
      {(bytes || halves) && (tokens > 1 || experts || hybrid),
       bytes ? "model in weights of 8 bits" : "model in weights of 16 bits"},
      {s->head_dim != 64 && s->head_dim != 128 && !hybrid && !latent, "size of heads"},
      {latent && (tokens > 1 || s->q8 || s->n_kv_heads != 1), s->q8 ? "cache in 8 bits" : "size of heads"},
      {latent && (s->n_gpus > 1), "number of GPUs"},
      {latent && (s->group != STEP_GROUP || !experts), "latent attention"},
      {latent &&
           (s->q_rank % (2 * STEP_GROUP) != 0 || s->q_rank < 1 || s->q_rank > STEP_GROUP * (STEP_WARPS - 5) ||
            s->nope_dim % 32 != 0 || s->nope_dim > STEP_WIDE_HEAD || s->value_dim % STEP_GROUP != 0),
       "latent attention"},
      {latent && s->n_dense > 0 &&
           (s->dense_width % (2 * STEP_GROUP) != 0 || s->dense_width / STEP_GROUP < s->n_clusters ||
            s->n_dense >= s->n_layers ||
            ceil_div(s->dense_width / STEP_GROUP, s->n_clusters) > STEP_SPAN * STEP_WARPS),
       "intermediate size"},
      {hybrid && (tokens > 1 || s->q8), tokens > 1 ? "size of heads" : "size of heads in 8 bits"},
      {hybrid && s->n_layers > STEP_HYBRID_LAYERS, "number of layers"},
      {hybrid && s->delta_layers != 0 &&
           (s->n_key_heads < 1 || s->n_value_heads % s->n_key_heads != 0 ||
            s->n_value_heads % (s->n_gpus > 1 ? 4 : 8) != 0 ||
            s->n_value_heads > STEP_DELTA_HEADS * s->n_clusters),
       "number of value heads"},
      {s->n_gpus > 1 && (tokens > 1 || s->head_dim == 64 || (s->q8 && experts) || parts == STEP_INT8_PARTS),
       "number of GPUs"},
      {varied && (tokens > 1 || s->n_gpus > 1), tokens > 1 ? "mixture of experts" : "number of GPUs"},
      {varied && (s->group != STEP_FP4_GROUP || s->attn_group != STEP_HALF_GROUP || !experts),
       "kind of weights beside experts"},
      {varied && (s->head_dim != 64 || s->q8), s->q8 ? "cache in 8 bits" : "size of heads"},
      {varied && (s->width % 64 != 0 || s->width > s->hidden || s->hidden % STEP_VARIED_COLUMNS != 0 ||
                  s->hidden - s->width >= STEP_VARIED_COLUMNS),
       "hidden size"},
      {varied && s->n_layers > 64, "number of layers"},
      {!varied && s->attn_group != 0, "kind of weights beside experts"},
      {s->hidden % 512 != 0 || s->hidden > STEP_MAX_HIDDEN, "hidden size"},
      {tokens > 1 && s->hidden < STEP_BLOCKS * STEP_GROUP, "hidden size"},
      {s->intermediate % (even * step_features(s)) != 0, "intermediate size"},
      {s->n_heads % s->n_kv_heads != 0 || s->n_heads * step_value_dim(s) % (2 * STEP_GROUP),
       "number of heads"},
      {shared_heads * step_value_dim(s) % STEP_PACK != 0, "number of heads of a KV head"},
      {shared_heads > STEP_MAX_SHARED_HEADS, "number of heads of a KV head"},
      {tokens > 1 && shared_heads * tokens > STEP_MAX_QUERIES, "number of heads of a KV head"},
      {s->n_kv_heads > s->n_clusters, "number of KV heads"},
      {s->n_clusters > STEP_MAX_CLUSTERS, "number of clusters"},
      {ffn_blocks < s->n_clusters, "intermediate size"},
      {tokens == 1 && ceil_div(ffn_blocks, s->n_clusters) > STEP_SPAN * STEP_WARPS, "intermediate size"},
      {experts && (tokens > 1 || (s->group == STEP_FP4_GROUP && !varied)), "mixture of experts"},
      {experts && (s->n_experts % STEP_BLOCKS != 0 ||
                   s->n_experts > (hybrid ? STEP_HYBRID_EXPERTS : STEP_MAX_EXPERTS)),
       "number of experts"},
      {experts && s->head_dim != 128 && !hybrid && !varied && !latent, "size of heads"},
      {experts && s->n_chosen > STEP_MAX_CHOSEN, "number of chosen experts"},
      {experts && s->intermediate % (even * step_features(s) * s->n_chosen) != 0, "width of experts"},
      /* a stage of down has inputs of two experts at most */
      {experts && ceil_div(ffn_blocks, s->n_clusters) > ffn_blocks / s->n_chosen, "width of experts"},
  };
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    if (rules[i].refused)
      return error_set(err, STATUS_MODEL, "one kernel %s: not with this %s", step_of[tokens], rules[i].what);
  return STATUS_OK;
}

size_t step_memory(const StepShape *s, int tokens) {
  const size_t values = (size_t)tokens * (size_t)s->hidden;
  const size_t mail = s->n_gpus > 1 ? (size_t)s->n_gpus : 0;
  if (tokens == 1)
    return (1 + STEP_MAX_CLUSTERS + mail) * STEP_SUM_BUFFERS * (size_t)step_sum_words(s) * sizeof(uint64_t);
  return (2 * STEP_SUM_TURNS * sizeof(uint64_t) + STEP_MAX_CLUSTERS * sizeof(float)) * values +
         sizeof(uint64_t); /* and the count of launches */
}

Status step_plan(const StepShape *s, int tokens, StepPlan *plan, Error *err) {
  memset(plan, 0, sizeof *plan);
  TRY(refuse(s, tokens, err));
  if (tokens == 1) {
    *plan = step_plan_one(s, keys_bytes(s));
  } else {
    plan->shape = *s;
    plan->tokens = tokens;
    step_plan_heads(s, plan);
    plan_several(s, plan);
    step_plan_ring(s, plan);
  }
  if (s->head_dim == STEP_WIDE_HEAD &&
      (plan->qkv_packs > STEP_WARPS || plan->heads_per_kv > STEP_MAX_SHARED_HEADS))
    return error_set(err, STATUS_MODEL, "one kernel a step: not with this number of heads of a cluster");
  if (step_is_varied(s) && 2 * step_larger(plan->down[0].groups, plan->down[1].groups) > STEP_ENTRY_GROUPS)
    return error_set(err, STATUS_MODEL, "one kernel a step: not with this intermediate size of a cluster");
  const int least = s->head_dim == STEP_WIDE_HEAD ? LEAST_SLOTS_OF_HYBRID : LEAST_SLOTS;
  if (plan->n_slots >= least) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "one kernel %s: %d bytes of shared memory are needed", step_of[tokens],
                   plan->off.total + least * plan->slot_bytes);
}
