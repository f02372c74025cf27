/* plan_one.h - the plan of a step of one token (plan.h), from nothing but a shape and the bytes of a stage of
 * keys and values. In C++ the plan can be made when a kernel is compiled (models.cuh).
 *
 * Always true: areas at the same offset are never in use at once (one_kernel.cuh). */
#pragma once

#include "cuda/kernels/fused/plan.h"
#include "cuda/kernels/ptx/ceil_div.h"

#ifdef __cplusplus
#define STEP_PLANNING constexpr static inline
#else
#define STEP_PLANNING static inline
#endif

enum {
  STEP_PLANE_BYTES = 2 * STEP_GROUP, /* bytes of a group of a token's x as two planes */
  STEP_X_SCALE_BYTES = 8,
};

STEP_PLANNING int step_align_up(int n, int to) {
  return ceil_div(n, to) * to;
}

STEP_PLANNING int step_larger(int a, int b) {
  return a > b ? a : b;
}

/* Bytes of a head's softmax state. */
STEP_PLANNING int step_state_bytes(const StepShape *s) {
  return step_state_dim(s) * 2 + 8;
}

/* Cuts n_groups groups of inputs, 1 .. STEP_SPAN * STEP_WARPS, into as few spans of at most `most` groups
 * (step_span()) as possible. A warp spends the time of `most` groups on each span of each tile row, however
 * short. Among cuts into equally many spans it prefers one that keeps each warpgroup at the same split, then
 * one with long stages of few tile rows. */
STEP_PLANNING KSplit step_split(int n_groups, int most) {
  for (int spans = ceil_div(n_groups, most);; spans++) {
    KSplit best = {0, 0, 0, 0, 0, 0};
    for (int k_warps = STEP_WARPGROUP_WARPS; k_warps >= 1; k_warps /= 2) {
      const int splits = spans / k_warps, groups = ceil_div(n_groups, splits > 0 ? splits : 1);
      if (splits * k_warps != spans || splits > step_most_splits(most) || groups > k_warps * most) continue;
      const bool keeps = STEP_WARPGROUPS % splits == 0,
                 kept = best.splits && STEP_WARPGROUPS % best.splits == 0;
      if (best.splits && (kept || !keeps)) continue;
      best.n_groups = n_groups, best.splits = splits, best.groups = groups, best.k_warps = k_warps;
      best.span = ceil_div(groups, k_warps), best.rows = STEP_WARPGROUP_WARPS / k_warps;
    }
    if (best.splits) return best;
  }
}

/* Bytes of the tiles, scales and zeros of a stage. With one part the zeros may begin at an odd multiple of 8
 * bytes. A bulk copy begins and ends at multiples of 16, so it takes 8 bytes more. FP4 has a byte for each
 * scale; FP4 and FP8 have factors in place of zeros, int8 has only factors, fp16 nothing beside its tiles. */
STEP_PLANNING int step_bytes_of(int rows, int groups, int parts) {
  if (parts == STEP_FP4_PARTS) return rows * (groups * (1024 + 16 * parts) + STEP_FACTOR_BYTES);
  if (parts == STEP_HALF_PARTS) return rows * groups * 4096;
  if (step_in_bytes(parts))
    return rows * (groups * (2048 + (parts == STEP_FP8_PARTS ? 32 : 0)) + STEP_FACTOR_BYTES);
  const int zeros = parts == 1 ? step_align_up(groups * 8 + 8, 16) : groups * parts * 8;
  return rows * (groups * (1024 + 32 * parts) + zeros);
}

/* Splits the inputs of down of a cluster with n FFN blocks. */
STEP_PLANNING KSplit step_down_split(const StepShape *s, int n) {
  return step_split(step_down_groups(s, n), step_span(step_parts(s)));
}

/* step_qkv_split() splits the inputs of q, k and v, step_full_split() those of gate and up. */
STEP_PLANNING KSplit step_qkv_split(const StepShape *s) {
  return step_split(step_input_groups(s), step_span(step_attn_parts(s)));
}
STEP_PLANNING KSplit step_full_split(const StepShape *s) {
  return step_split(step_input_groups(s), step_span(step_parts(s)));
}

/* Bytes of a stage of the cut's largest split; parts: step_parts() or step_attn_parts(). */
STEP_PLANNING int step_stage_bytes(KSplit cut, int parts) {
  return step_bytes_of(cut.rows, cut.groups, parts);
}

STEP_PLANNING int step_stages(KSplit cut, int n_tile_rows) {
  return ceil_div(n_tile_rows, cut.rows) * cut.splits;
}

/* Sets how clusters divide heads, packs and FFN blocks. A hybrid's clusters differ in the heads that they
 * have, so heads_per_kv, o_packs and qkv_packs are the largest numbers of any cluster. Plans for several
 * tokens use this, too. */
STEP_PLANNING void step_plan_heads(const StepShape *s, StepPlan *plan) {
  const bool hybrid = s->head_dim == STEP_WIDE_HEAD;
  const int sharers = step_sharers(s);
  while (!hybrid && 2 << plan->log_sharers <= sharers) plan->log_sharers++;
  plan->attending = step_mix_clusters(s, false);
  plan->heads_per_kv = s->n_heads / plan->attending;
  if (step_is_varied(s)) { /* clusters have whole packs of queries */
    while (plan->log_sharers > 0 && step_query_packs(s) % (1 << plan->log_sharers) != 0) plan->log_sharers--;
    plan->attending = s->n_kv_heads << plan->log_sharers;
    plan->heads_per_kv = s->n_heads / plan->attending;
  }
  plan->o_packs = step_query_packs(s) >> plan->log_sharers;
  plan->qkv_packs = plan->o_packs + step_kv_packs(s);
  plan->most_ffn_blocks = ceil_div(s->intermediate / step_features(s), s->n_clusters);
  if (step_is_latent(s)) {
    /* All clusters that attend have the one KV head. qkv_packs: packs of q_a and kv_a, rounded up. */
    plan->log_sharers = 0;
    plan->attending = step_latent_clusters(s);
    plan->heads_per_kv = s->n_heads / plan->attending;
    plan->o_packs = plan->heads_per_kv * s->value_dim / STEP_PACK;
    plan->qkv_packs = ceil_div(step_latent_inputs(s), STEP_PACK);
    plan->most_dense_blocks = ceil_div(s->dense_width / STEP_GROUP, s->n_clusters);
  }
  if (!hybrid) return;
  plan->heads_per_kv = plan->o_packs = plan->qkv_packs = 0;
  for (int i = 0; i < 2 * s->n_clusters; i++) {
    const bool delta = i % 2;
    if (delta && s->delta_layers == 0) continue;
    const StepMix mix = step_mix(s, delta, i / 2);
    if (!delta) plan->heads_per_kv = step_larger(plan->heads_per_kv, mix.n);
    plan->o_packs = step_larger(plan->o_packs, step_mix_groups(mix, delta));
    plan->qkv_packs = step_larger(plan->qkv_packs, step_mix_packs(mix, delta));
  }
}

STEP_PLANNING int step_sums_bytes(KSplit cut, int tile_rows) {
  return cut.splits * cut.k_warps * step_sums_stride(tile_rows) * (int)sizeof(float);
}

/* Cuts q_b, and down of layers without experts; raises the bytes of a slot and of sums, and the number of
 * stages, to what latent attention needs. */
STEP_PLANNING void step_plan_latent(const StepShape *s, StepPlan *plan, int *slot, int *stages, int *sums) {
  const int parts = step_parts(s), rows = s->hidden / STEP_BLOCKS / 16, dense = plan->most_dense_blocks,
            query_rows = ceil_div(plan->heads_per_kv * step_latent_query(s) / 16, STEP_BLOCKS);
  int most_stages = 0;
  plan->q_b = step_split(s->q_rank / STEP_GROUP, step_span(parts));
  *slot = step_larger(*slot, step_stage_bytes(plan->q_b, parts));
  *slot =
      step_larger(*slot, step_larger(STEP_LATENT_KEYS * s->nope_dim, STEP_LATENT_VALUES * STEP_LATENT) * 2);
  *sums = step_larger(*sums, step_sums_bytes(plan->q_b, query_rows));
  for (int less = 0; less < 2 && dense > less; less++) {
    const KSplit down = plan->dense_down[less] = step_down_split(s, dense - less);
    *slot = step_larger(*slot, step_stage_bytes(down, parts));
    *sums = step_larger(*sums, step_sums_bytes(down, rows));
    most_stages = step_larger(most_stages, step_stages(down, rows));
  }
  *stages += step_stages(plan->q_b, query_rows) + step_stages(plan->full, 2 * dense) + most_stages;
}

/* Cuts the matrices, sizes the stages, and places all areas of shared memory but the ring. keys_bytes: bytes
 * of a stage of keys and values. PRECOND step_plan_heads(). */
STEP_PLANNING void step_plan_areas(const StepShape *s, int keys_bytes, StepPlan *plan) {
  StepOffsets *off = &plan->off;
  const int heads = plan->heads_per_kv, most = plan->most_ffn_blocks, rows = s->hidden / STEP_BLOCKS / 16,
            parts = step_parts(s), attn_parts = step_attn_parts(s), width = step_width(s);
  const bool varied = step_is_varied(s);
  const int row_blocks = varied ? 1 : 2,             /* tile rows that a block has in an FFN block */
      more_factors = varied ? STEP_FACTOR_BYTES : 0; /* of a second expert, in each tile row (one_fp4.cuh) */
  plan->slice = s->hidden / STEP_BLOCKS;
  plan->expert_blocks = s->n_experts > 0 ? step_expert_blocks(s) : 0;
  plan->columns = 1;
  plan->full = step_full_split(s);
  plan->o = step_split(plan->o_packs, step_span(attn_parts));
  const KSplit qkv = step_qkv_split(s);
  plan->stage_bytes = step_stage_bytes(plan->full, parts) + plan->full.rows * more_factors;
  plan->lm_head_rows = step_larger(1, 16384 / (width * 2));
  if (plan->lm_head_rows > STEP_LM_HEAD_ROWS) plan->lm_head_rows = STEP_LM_HEAD_ROWS;
  plan->states = STEP_KEY_SETS * (step_keys(s) / 16) + 1;

  int slot = step_larger(keys_bytes, plan->lm_head_rows * width * 2), stages = 0;
  slot = step_larger(slot, step_larger(plan->stage_bytes, step_stage_bytes(plan->o, attn_parts)));
  slot = step_larger(slot, step_stage_bytes(qkv, attn_parts));
  int sums = step_sums_bytes(plan->o, rows);
  /* Clusters have `most` FFN blocks, or one less. */
  const int kinds = s->intermediate / step_features(s) % s->n_clusters == 0 ? 1 : 2;
  for (int less = 0; less < kinds; less++) {
    const KSplit down = plan->down[less] = step_down_split(s, most - less);
    slot = step_larger(slot, step_stage_bytes(down, parts) + down.rows * more_factors);
    sums = step_larger(sums, step_sums_bytes(down, rows));
    stages =
        step_larger(stages, step_stages(plan->full, row_blocks * (most - less)) + step_stages(down, rows));
  }
  const bool latent = step_is_latent(s);
  if (latent) step_plan_latent(s, plan, &slot, &stages, &sums);
  const int most_gated = step_larger(most, plan->most_dense_blocks);
  const int outputs = plan->o_packs * STEP_PACK * 4; /* bytes of x of o in fp32, for the folded router */
  slot = step_larger(slot, step_folded_rows(s) * outputs);
  const bool hybrid = s->head_dim == STEP_WIDE_HEAD; /* its layers of each kind have stages of their own */
  stages += (1 + hybrid) * (step_stages(qkv, plan->qkv_packs) + step_stages(plan->o, rows));
  if (s->n_gpus > 1 && s->n_experts > 0)
    slot += 16 * STEP_WARPGROUP_WARPS; /* kOddBlocks: rows of zero points are longer */
  plan->slot_bytes = step_align_up(slot, attn_parts == STEP_HALF_PARTS ? 1024 : 128); /* one_halves.cuh */

  const int long_sums = step_larger(step_sums_bytes(qkv, plan->qkv_packs),
                                    step_sums_bytes(plan->full, row_blocks * most_gated));
  const int state = heads * step_state_bytes(s), states = plan->states * state,
            attention =
                hybrid ? step_larger(STEP_BLOCKS * state, STEP_DELTA_HEADS * 160 * 4) : STEP_BLOCKS * state;
  const int projections = plan->qkv_packs * STEP_PACK * 4,
            inputs_of_o = plan->o_packs * step_value_bytes(s) + (latent ? step_latent_floats(s, heads) * 4
                                                                 : s->n_experts > 0 ? outputs
                                                                                    : 0);
  const int scores = latent ? STEP_WARPS * 32 * 16 : 0; /* of one_attention.cuh, score_latents() */
  const bool owns = step_owns_groups(s);
  const int x_groups = s->hidden / STEP_GROUP, x_scale_bytes = step_x_scales(parts) * STEP_X_SCALE_BYTES,
            groups = step_larger(step_larger(owns ? 0 : x_groups, plan->o_packs),
                                 step_larger(step_down_groups(s, most_gated), s->q_rank / STEP_GROUP));
  /* In a hybrid long_sums lies after x, because the last warp reads x while the others multiply. */
  const int floats = step_align_up(
      step_larger(s->hidden * 4, step_larger(states, latent ? heads * STEP_LATENT * 4 : 0)), 16);
  off->x = off->x_planes = STEP_VARS_BYTES;
  off->x_scales = off->x_planes + x_groups * STEP_PLANE_BYTES;
  off->long_sums = hybrid ? off->x + floats
                   : owns ? step_align_up(off->x_scales + x_groups * x_scale_bytes, 16)
                          : off->x;
  off->sums = step_larger(off->x + floats, off->long_sums + step_align_up(long_sums, 16));
  off->planes = off->attention = off->delta = off->sums + step_align_up(sums, 16);
  off->scales = off->planes + groups * STEP_PLANE_BYTES;
  if (!owns) off->x_planes = off->planes, off->x_scales = off->scales;
  /* Where a block owns whole groups, each warp exchanges a group of x between its lanes in `planes`. */
  off->exchange =
      step_align_up(step_larger(step_larger(off->scales + groups * x_scale_bytes, off->attention + attention),
                                off->planes + (owns ? STEP_WARPS * STEP_PLANE_BYTES : 0)),
                    16);
  off->heads = off->exchange +
               step_align_up(step_larger(step_larger(step_larger(projections, scores), inputs_of_o),
                                         step_larger(most_gated * step_features(s) * 4, STEP_SCREEN_SCRATCH)),
                             16);
  off->small = off->heads + (STEP_MAX_SHARED_HEADS + 2) * s->head_dim * 2;
  off->residual = off->small + s->hidden / 32 * 4 + STEP_MAX_HEAD_DIM / 2 * 8 + 2 * STEP_WARPS * 8 * 4;
  off->stage_table = step_align_up(off->residual + plan->slice * 4, 16);
  /* With experts a stage has copies from two experts, and entries of two words. */
  off->tasks = off->stage_table + stages * STEP_ENTRY_BYTES * (s->n_experts > 0 ? 4 : 1);
  off->total = step_align_up(off->tasks + stages * STEP_ENTRY_BYTES, 16);
  if (hybrid) {
    off->mixers = off->total;
    off->gates = off->mixers + STEP_MIX_BYTES;
    off->total = off->gates + plan->heads_per_kv * s->head_dim * 4;
  }
  if (latent) {
    off->mixers = off->total;
    off->total = off->mixers + STEP_LATENT_BYTES;
  }
  if (s->n_experts == 0) return;
  off->experts = off->total;
  const int words = step_align_up(2 * s->n_chosen + most_gated, 4) + step_align_up(step_router_rows(s), 4) +
                    plan->slice + STEP_BLOCKS * step_candidates(s);
  off->total = step_align_up(off->experts + words * 4, 16);
}

/* Plans the ring, which takes what the areas leave. Plans for several tokens use this, too. */
STEP_PLANNING void step_plan_ring(const StepShape *s, StepPlan *plan) {
  plan->n_lm_head_stages = ceil_div(s->vocab_size, plan->lm_head_rows);
  plan->n_slots = ((int)s->shared_bytes - plan->off.total) / plan->slot_bytes;
  if (plan->n_slots > STEP_MAX_SLOTS) plan->n_slots = STEP_MAX_SLOTS;
  if (s->max_slots && plan->n_slots > s->max_slots) plan->n_slots = s->max_slots;
  plan->ring_at = plan->tokens == 1 ? -plan->n_slots * plan->slot_bytes : plan->off.total;
}

/* The plan of a shape that refuse() (plan.c) accepts. step_plan() then refuses plans with too few slots. */
STEP_PLANNING StepPlan step_plan_one(const StepShape *s, int keys_bytes) {
  StepPlan plan = {};
  plan.shape = *s;
  plan.tokens = 1;
  step_plan_heads(s, &plan);
  step_plan_areas(s, keys_bytes, &plan);
  step_plan_ring(s, &plan);
  plan.screen_rows = plan.slot_bytes / (step_width(s) + STEP_SCREEN_TAIL);
  if (plan.screen_rows > STEP_SCREEN_ROWS) plan.screen_rows = STEP_SCREEN_ROWS;
  plan.n_screen_stages = ceil_div(s->vocab_size, plan.screen_rows);
  return plan;
}
