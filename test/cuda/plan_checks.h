/* plan_checks.h - what tests of fused steps' plans share: models of test/data/configs, and the conditions
 * that every plan for one token holds. */
#pragma once

#include <stdio.h>
#include <string.h>

#include "cuda/kernels/fused/sizes/plan_one.h"
#include "cuda/one/step_models.h"
#include "engine/backend.h"
#include "test/unit.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { H200_SHARED = 227 * 1024 };

static Model *open_config(const char *name) {
  char path[256];
  snprintf(path, sizeof path, "test/data/configs/%s", name);
  Model *model;
  Error err;
  if (model_open_dummy(path, &model, &err) != STATUS_OK) fail_msg("%s", err.text);
  return model;
}

static StepShape shape_of(const Model *model, int n_clusters) {
  StepShape shape = step_shape(&model->config);
  shape.group = step_group(model);
  shape.attn_group = step_attn_group(model);
  shape.n_clusters = n_clusters;
  shape.shared_bytes = H200_SHARED;
  return shape;
}

static int larger(int a, int b) {
  return a > b ? a : b;
}

static int zeros_stride(int groups, int parts) {
  if (parts == STEP_HALF_PARTS) return 0;
  if (parts >= STEP_FP4_PARTS) return STEP_FACTOR_BYTES;
  return parts == 1 ? (groups * 8 + 16) / 16 * 16 : groups * parts * 8;
}

/* Bytes of a group's tiles in a tile row. */
static int tile_bytes(int parts) {
  return parts == STEP_HALF_PARTS ? 4096 : step_in_bytes(parts) ? 2048 : 1024;
}

/* Bytes of a group's scales in a tile row: fp16, FP4 a byte each, int8 none. */
static int scale_bytes(int parts) {
  if (step_in_rows(parts)) return 0;
  if (parts == STEP_FP8_PARTS) return 32;
  return 16 * parts * (parts == STEP_FP4_PARTS ? 1 : 2);
}

/* Bytes of a tile row's second factors, which varied experts have: of a stage's second expert. */
static int more_factors(const StepShape *s, int parts) {
  return step_is_varied(s) && parts == STEP_FP4_PARTS ? STEP_FACTOR_BYTES : 0;
}

/* Bytes of a slot that weight_ring.cuh writes for a stage of so many tile rows and groups: tiles,
 * scales, and zeros. With one part these begin at a multiple of 8 bytes and are copied from and to multiples
 * of 16. */
static int bytes_touched(int rows, int groups, int parts) {
  const int stride = zeros_stride(groups, parts);
  int end = 0;
  if (parts > 1) return rows * (groups * (tile_bytes(parts) + scale_bytes(parts)) + stride);
  for (int odd = 0; odd <= 8; odd += 8) {
    const int copied = (odd + groups * 8 + 15) / 16 * 16;
    assert_true(copied <= stride); /* the next row's zeros begin after them */
    end = larger(end, rows * groups * (1024 + 32) + (rows - 1) * stride + copied);
  }
  return end;
}

/* Every group of inputs belongs to one warp of a warpgroup, and a stage is no larger than its slot. parts: of
 * the matrix. */
static void check_split(KSplit cut, const StepPlan *plan, int parts) {
  assert_true(cut.span >= 1 && cut.span <= step_span(parts));
  assert_true(cut.splits >= 1 && cut.splits <= step_most_splits(step_span(parts)));
  assert_int_equal(STEP_WARPGROUP_WARPS % cut.k_warps, 0);
  assert_int_equal(cut.rows, STEP_WARPGROUP_WARPS / cut.k_warps);
  int most = 0;
  for (int split = 0; split < cut.splits; split++) {
    int groups = (split + 1) * cut.n_groups / cut.splits - split * cut.n_groups / cut.splits;
    assert_true(groups >= 1 && groups <= cut.k_warps * cut.span);
    if (groups > most) most = groups;
  }
  assert_int_equal(cut.groups, most);
  assert_int_equal(step_stage_bytes(cut, parts), bytes_touched(cut.rows, cut.groups, parts));
  assert_true(step_stage_bytes(cut, parts) + cut.rows * more_factors(&plan->shape, parts) <=
              plan->slot_bytes);
}

static int ffn_blocks_of(const StepShape *s, int cluster) {
  return step_first_ffn_block(s, cluster + 1) - step_first_ffn_block(s, cluster);
}

/* The split of a cluster's down. */
static KSplit down_of(const StepPlan *plan, int cluster) {
  return plan->down[plan->most_ffn_blocks - ffn_blocks_of(&plan->shape, cluster)];
}

static void check_plan(const StepShape *s, const StepPlan *plan) {
  check_split(plan->full, plan, step_parts(s));
  check_split(step_qkv_split(s), plan, step_attn_parts(s));
  check_split(plan->o, plan, step_attn_parts(s));
  int next = 0;
  for (int c = 0; c < s->n_clusters; c++) {
    const int n = ffn_blocks_of(s, c);
    assert_int_equal(step_first_ffn_block(s, c), next);
    assert_true(n >= 1 && (n == plan->most_ffn_blocks || n == plan->most_ffn_blocks - 1));
    assert_int_equal(down_of(plan, c).n_groups, step_down_groups(s, n));
    check_split(down_of(plan, c), plan, step_parts(s));
    next += n;
  }
  assert_int_equal(ffn_blocks_of(s, s->n_clusters - 1), plan->most_ffn_blocks);
  assert_int_equal(next * step_features(s), s->intermediate);
  assert_true(plan->lm_head_rows * step_width(s) * 2 <= plan->slot_bytes);
  assert_true(plan->n_lm_head_stages * plan->lm_head_rows >= s->vocab_size);
  assert_true((plan->n_lm_head_stages - 1) * plan->lm_head_rows < s->vocab_size);
  assert_true(plan->lm_head_rows >= 1 && plan->lm_head_rows <= 8);
  assert_true((size_t)plan->n_slots * (size_t)plan->slot_bytes + (size_t)plan->off.total <= s->shared_bytes);
  /* step.cu: each warpgroup's last stage has been loaded, and one more is in flight. */
  assert_true(plan->n_slots > STEP_WARPGROUPS && plan->n_slots <= STEP_MAX_SLOTS);
  assert_int_equal(plan->slot_bytes % (step_attn_parts(s) == STEP_HALF_PARTS ? 1024 : 128), 0);
}

/* Down of experts with an odd number of groups of 128, on one of several GPUs: where weight_ring.cuh writes
 * the zeros of a stage's groups, one_matmul.cuh reads them (odd_zeros()), and they end before the next row's.
 */
static void check_odd_zeros(const StepPlan *plan, KSplit cut, int first_group) {
  const int blocks = plan->expert_blocks, room = zeros_stride(cut.groups + 1, 1) / 8;
  if (plan->shape.n_gpus <= 1 || plan->shape.n_experts == 0 || plan->shape.group != STEP_GROUP) return;
  for (int tile = 0; tile < 2; tile++)
    for (int split = 0; split < cut.splits; split++) {
      const int from = split * cut.n_groups / cut.splits, n = (split + 1) * cut.n_groups / cut.splits - from;
      const int group = (first_group + from) % blocks, own = n < blocks - group ? n : blocks - group;
      const int odd = (tile * blocks + group) % 2,
                next = (odd + own + 1) / 2 * 2; /* where another copy begins */
      const int end = own == n ? next : next + (tile * blocks % 2 + n - own + 1) / 2 * 2;
      assert_true(end <= room && n - own <= blocks);
      for (int i = 0; i < n; i++) {
        const int written = i < own ? odd + i : next + tile * blocks % 2 + i - own;
        assert_int_equal(written, odd + i + (blocks % 2 && i >= own));
      }
    }
  assert_true(cut.rows * (cut.groups * (1024 + 32) + room * 8) <= plan->slot_bytes);
}

/* x of qkv, gate and up has room as planes. Peers that own whole groups may send it while a block still reads
 * its sums of down, its states of attention or its x of down, and a warp reads it while others write sums. */
static void check_x(const StepPlan *plan) {
  const StepShape *s = &plan->shape;
  const StepOffsets *off = &plan->off;
  const int groups = s->hidden / STEP_GROUP, end = off->x_scales + groups * step_x_scales(step_parts(s)) * 8;
  assert_true(off->x_planes % 16 == 0 && off->x_scales % 8 == 0);
  assert_true(off->x_scales - off->x_planes >= groups * 2 * STEP_GROUP);
  if (step_owns_groups(s))
    assert_true(off->x <= off->x_planes && end <= off->long_sums && end <= off->sums &&
                off->exchange - off->planes >= STEP_WARPS * 2 * STEP_GROUP);
  else
    assert_true(off->x_planes == off->planes && off->x_scales == off->scales && end <= off->exchange);
}

/* The sums of n_rows tile rows, and of the ones that fill the last stage, lie within `bytes`, and their
 * offset fits a task's 21 bits, with varied experts 17. A stage lies within its slot, and what warps read
 * after it, in place of groups that they do not have, is still shared memory. Zeros are copied from an even
 * group to an even one of their row. */
static void check_share(const StepPlan *plan, KSplit cut, int parts, int n_rows, int bytes, int first_group,
                        int all_groups) {
  const int stride = step_sums_stride(n_rows);
  const int filled = (n_rows + cut.rows - 1) / cut.rows * cut.rows;
  assert_true(filled * 16 <= stride && cut.splits * cut.k_warps * stride * (int)sizeof(float) <= bytes);
  assert_true(cut.splits * cut.k_warps * stride < 1 << (step_is_varied(&plan->shape) ? 17 : 21));
  const int zeros = zeros_stride(cut.groups, parts) + more_factors(&plan->shape, parts);
  assert_true(cut.rows * (cut.groups * (tile_bytes(parts) + scale_bytes(parts)) + zeros) <= plan->slot_bytes);
  assert_true(!step_in_rows(parts) || cut.groups <= STEP_BYTES_SPAN * STEP_WARPGROUP_WARPS); /* kMaps */
  const int read =
      ((cut.rows - 1) * cut.groups + (cut.k_warps - 1) * cut.span + step_span(parts)) * tile_bytes(parts);
  assert_true(read <= plan->slot_bytes + plan->off.total);
  for (int split = 0; split < cut.splits; split++) {
    const int from = split * cut.n_groups / cut.splits, n = (split + 1) * cut.n_groups / cut.splits - from;
    const bool is_odd = plan->shape.n_gpus > 1 && plan->shape.n_experts > 0; /* check_odd_zeros() */
    const int even = parts == 1 && !is_odd ? 2 : 1; /* copies are of so many groups' zeros */
    const int begin = (first_group + from) / even * even;
    const int end = (first_group + from + n + even - 1) / even * even;
    assert_true(((end - begin) * 8 * parts <= zeros || parts >= STEP_FP4_PARTS) && end <= all_groups);
  }
}

static void assert_refused(Model *model, const char *because) {
  Error err;
  assert_int_equal(step_supports(model, &err), STATUS_MODEL);
  if (!strstr(err.text, because)) fail_msg("\"%s\" does not speak of %s", err.text, because);
}

/* A case for each condition: the model is served; with one thing changed it is refused with the reason;
 * with that restored it is served again. */
#define REFUSED_WITH(model, place, value, because)                                                           \
  do {                                                                                                       \
    const __typeof__(place) before = (place);                                                                \
    (place) = (value);                                                                                       \
    assert_refused((model), (because));                                                                      \
    (place) = before;                                                                                        \
    assert_int_equal(step_supports((model), NULL), STATUS_OK);                                               \
  } while (0)
