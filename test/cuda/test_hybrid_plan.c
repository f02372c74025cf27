/* test_hybrid_plan.c - plans of fused steps for hybrids (Qwen3.5 to 3.8), on the host: each cluster's part of
 * their layers, where it lies, and which hybrids are refused. */
#include <stdio.h>
#include <string.h>

#include "test/cuda/plan_checks.h"
#include "test/tests.h"

/* Qwen3.8-27B and two smaller ones of the family, Qwen3.6-35B-A3B, and one of its kind whose clusters' FFN
 * blocks are of two experts; with groups of 32. */
static const struct {
  int hidden, intermediate, n_layers, n_heads, n_kv_heads, n_key_heads, n_value_heads, n_experts, n_chosen;
} hybrids[] = {{5120, 17408, 64, 24, 4, 16, 48, 0, 0},
               {4096, 12288, 32, 16, 4, 16, 32, 0, 0},
               {2048, 6144, 24, 8, 2, 16, 16, 0, 0},
               {2048, 9 * 512, 40, 16, 2, 16, 32, 256, 9},
               {512, 7 * 768, 4, 8, 2, 8, 16, 136, 7}};
enum { A3B = 3 };

static StepShape hybrid_shape(size_t i, int n_clusters) {
  StepShape s = {.hidden = hybrids[i].hidden,
                 .intermediate = hybrids[i].intermediate,
                 .n_layers = hybrids[i].n_layers,
                 .n_heads = hybrids[i].n_heads,
                 .n_kv_heads = hybrids[i].n_kv_heads,
                 .vocab_size = 248320,
                 .group = 32,
                 .head_dim = 256,
                 .n_clusters = n_clusters,
                 .shared_bytes = H200_SHARED,
                 .n_experts = hybrids[i].n_experts,
                 .n_chosen = hybrids[i].n_chosen,
                 .n_key_heads = hybrids[i].n_key_heads,
                 .n_value_heads = hybrids[i].n_value_heads};
  for (int layer = 0; layer < s.n_layers; layer++)
    if (layer % 4 != 3) s.delta_layers |= UINT64_C(1) << layer;
  return s;
}

/* Every head belongs to one cluster, which has all packs that it needs, and all clusters together have all
 * packs of the matrix. */
static void check_mixes(const StepPlan *plan, bool delta) {
  const StepShape *s = &plan->shape;
  const int n_packs = delta ? 2 * s->n_key_heads + 2 * s->n_value_heads : 4 * s->n_heads + 4 * s->n_kv_heads;
  char has[512] = {0};
  int next = 0, clusters = 0;
  assert_true(n_packs <= (int)COUNT(has));
  for (int c = 0; c < s->n_clusters; c++) {
    const StepMix mix = step_mix(s, delta, c);
    const int packs = step_mix_packs(mix, delta);
    assert_true(packs <= plan->qkv_packs && packs <= STEP_WARPS);
    assert_true(step_mix_groups(mix, delta) <= plan->o_packs && mix.n <= (delta ? STEP_DELTA_HEADS : 8));
    if (mix.n == 0) continue;
    assert_int_equal(mix.first, next);
    next += mix.n, clusters++;
    const int of_key = delta ? s->n_value_heads / s->n_key_heads : s->n_heads / s->n_kv_heads;
    assert_int_equal(mix.first_key, mix.first / of_key);
    assert_int_equal(mix.first_key + mix.n_keys - 1, (mix.first + mix.n - 1) / of_key);
    for (int i = 0; i < packs; i++) {
      const int pack = step_mix_pack(s, mix, delta, i);
      assert_in_range(pack, 0, n_packs - 1);
      has[pack] = 1;
    }
  }
  assert_int_equal(next, delta ? s->n_value_heads : s->n_heads);
  assert_int_equal(clusters, step_mix_clusters(s, delta));
  for (int i = 0; i < n_packs; i++) assert_true(has[i]);
}

static void check_hybrid(const StepPlan *plan) {
  const StepShape *s = &plan->shape;
  const StepOffsets *off = &plan->off;
  const int rows = plan->slice / 16, state = plan->heads_per_kv * (s->head_dim * 2 + 8);
  int stages = 0;
  check_plan(s, plan);
  check_mixes(plan, false);
  check_mixes(plan, true);
  assert_true(off->long_sums - off->x >= s->hidden * 4 && off->long_sums - off->x >= plan->states * state);
  check_x(plan);
  assert_true(off->exchange - off->attention >= STEP_BLOCKS * state);
  assert_true(off->exchange - off->attention >= STEP_DELTA_HEADS * (128 + 32) * 4);
  assert_true(off->heads - off->exchange >= plan->qkv_packs * STEP_PACK * 4);
  assert_true(off->gates - off->mixers >= STEP_MIX_BYTES && off->mixers % 16 == 0);
  assert_true(off->total - off->gates >= plan->heads_per_kv * 256 * 4);
  assert_true(STEP_DELTA_ROWS * STEP_DELTA_ROW_BYTES <= plan->slot_bytes && 16 * 1024 <= plan->slot_bytes);
  check_share(plan, plan->full, step_parts(s), plan->qkv_packs, off->sums - off->long_sums, 0,
              s->hidden / STEP_GROUP);
  for (int c = 0; c < s->n_clusters; c++) {
    check_odd_zeros(plan, down_of(plan, c), step_first_ffn_block(s, c));
    check_share(plan, plan->full, step_parts(s), 2 * ffn_blocks_of(s, c), off->sums - off->long_sums, 0,
                s->hidden / STEP_GROUP);
    check_share(plan, plan->o, step_parts(s), rows, off->planes - off->sums, 0, plan->o_packs);
    stages = larger(stages,
                    step_stages(plan->full, 2 * ffn_blocks_of(s, c)) + step_stages(down_of(plan, c), rows));
  }
  stages += 2 * (step_stages(plan->full, plan->qkv_packs) + step_stages(plan->o, rows));
  assert_true(off->tasks - off->stage_table >= stages * STEP_ENTRY_BYTES * (s->n_experts > 0 ? 4 : 1));
  assert_true(off->mixers - off->tasks >= stages * STEP_ENTRY_BYTES);
  if (s->n_experts == 0) return;
  assert_true(off->stage_table % 8 == 0);
  assert_true(off->experts >= off->gates + plan->heads_per_kv * 256 * 4 && off->experts % 16 == 0);
  assert_true(off->total - off->experts >= (s->n_experts + 4 + plan->slice + plan->most_ffn_blocks +
                                            2 * s->n_chosen + STEP_BLOCKS * (s->n_chosen - 1)) *
                                               4);
  assert_true(plan->most_ffn_blocks <= step_expert_blocks(s));
  /* the outputs of attention and of the delta rule, for the router; rows of the folded router in a stage */
  assert_true(off->heads - off->exchange >= plan->o_packs * (step_value_bytes(s) + STEP_PACK * 4));
  assert_true(plan->slot_bytes >= (2 * STEP_WARPGROUP_WARPS + 1) * plan->o_packs * STEP_PACK * 4);
}

TEST(hybrids_fit_an_h200) {
  for (size_t i = 0; i < COUNT(hybrids); i++)
    for (int clusters = 12; clusters <= STEP_MAX_CLUSTERS; clusters++) {
      const StepShape s = hybrid_shape(i, clusters);
      StepPlan plan;
      Error err;
      if (step_plan(&s, 1, &plan, &err) != STATUS_OK) fail_msg("%zu: %s", i, err.text);
      check_hybrid(&plan);
    }
  Model *model = open_config("Qwen3.8-27B-INT4");
  Error err;
  if (step_supports(model, &err) != STATUS_OK) fail_msg("%s", err.text);
  const StepShape want = hybrid_shape(0, 15), got = shape_of(model, 15);
  assert_true(got.delta_layers == want.delta_layers && got.head_dim == want.head_dim);
  assert_true(got.n_key_heads == want.n_key_heads && got.n_value_heads == want.n_value_heads);
  assert_int_equal(got.group, 32);
  model_close(model);
  model = open_config("Qwen3.6-35B-A3B-INT4");
  if (step_supports(model, &err) != STATUS_OK) fail_msg("%s", err.text);
  const StepShape experts = hybrid_shape(A3B, 15), found = shape_of(model, 15);
  assert_true(found.n_experts == experts.n_experts && found.n_chosen == experts.n_chosen);
  assert_true(found.intermediate == experts.intermediate && found.delta_layers == experts.delta_layers);
  model_close(model);
}

/* Parts on two and four GPUs, with at most as many clusters as FFN blocks. */
TEST(parts_of_hybrids_fit_an_h200) {
  static const int groups[] = {32, 64, 128};
  int taken = 0;
  for (size_t i = 0; i < COUNT(hybrids); i++)
    for (int n = 2; n <= 4; n += 2)
      for (int clusters = 6; clusters <= STEP_MAX_CLUSTERS; clusters++)
        for (size_t g = 0; g < COUNT(groups); g++) {
          StepShape s = hybrid_shape(i, clusters);
          s.n_gpus = n, s.group = groups[g];
          s.intermediate /= n, s.n_heads /= n, s.n_key_heads /= n, s.n_value_heads /= n;
          s.n_kv_heads = s.n_kv_heads < n ? 1 : s.n_kv_heads / n;
          if (s.n_clusters > s.intermediate / STEP_GROUP) s.n_clusters = s.intermediate / STEP_GROUP;
          StepPlan plan;
          if (step_plan(&s, 1, &plan, NULL) != STATUS_OK) continue;
          check_hybrid(&plan);
          taken++;
        }
  assert_true(taken > 100);
}

/* One size at a time, of Qwen3.6-35B-A3B. */
TEST(hybrids_with_other_experts_are_refused) {
  const struct {
    int n_experts, n_chosen, width, group;
    const char *because;
  } cases[] = {
      {264, 9, 512, 32, "number of experts"},         {252, 9, 512, 32, "number of experts"},
      {256, 17, 512, 32, "number of chosen experts"}, {256, 8, 384, 32, "width of experts"},
      {256, 9, 512, 16, "mixture of experts"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    StepShape s = hybrid_shape(A3B, 15);
    s.n_experts = cases[i].n_experts, s.n_chosen = cases[i].n_chosen, s.group = cases[i].group;
    s.intermediate = s.n_chosen * cases[i].width;
    StepPlan plan;
    Error err = {{0}};
    if (step_plan(&s, 1, &plan, &err) != STATUS_MODEL || !strstr(err.text, cases[i].because))
      fail_msg("case %zu: %s", i, err.text);
  }
}

TEST(hybrids_without_a_kernel_are_refused) {
  const struct {
    int tokens, clusters, n_layers, n_value_heads;
    bool q8;
    const char *because;
  } cases[] = {
      {2, 15, 32, 32, false, "size of heads"},         {1, 15, 32, 32, true, "size of heads in 8 bits"},
      {1, 15, 65, 32, false, "number of layers"},      {1, 15, 32, 36, false, "number of value heads"},
      {1, 11, 32, 48, false, "number of value heads"}, /* five in a cluster */
      {1, 15, 32, 24, false, "number of value heads"}, /* of 16 key heads */
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    StepShape s = hybrid_shape(1, cases[i].clusters);
    s.n_layers = cases[i].n_layers, s.n_value_heads = cases[i].n_value_heads, s.q8 = cases[i].q8;
    StepPlan plan;
    Error err = {{0}};
    const Status status = step_plan(&s, cases[i].tokens, &plan, &err);
    if (status != STATUS_MODEL || !strstr(err.text, cases[i].because)) fail_msg("case %zu: %s", i, err.text);
  }
}

TEST(models_it_is_not_for_are_told_why) {
  Model *model = open_config("Qwen3.8-27B-INT4");
  ModelConfig *c = &model->config;
  ModelLayer *delta = &model->layers[1], *attention = &model->layers[3];
  assert_int_equal(step_supports(model, NULL), STATUS_OK);
  REFUSED_WITH(model, c->head_dim, 128, "norm_delta_rule of layer 0");
  REFUSED_WITH(model, c->rope.rotary_dim, 128, "rope over a part");
  REFUSED_WITH(model, c->attn_gate, ATTN_GATE_NONE, "heads of 256 without gates");
  REFUSED_WITH(model, c->qk_norm, QK_NORM_NONE, "heads of 256 without gates and norms");
  REFUSED_WITH(model, c->delta.key_dim, 64, "delta rule of these sizes");
  REFUSED_WITH(model, c->delta.value_dim, 64, "delta rule of these sizes");
  REFUSED_WITH(model, c->delta.conv, 3, "delta rule of these sizes");
  REFUSED_WITH(model, c->delta.rule, RULE_MAMBA2, "Mamba-2 layers");
  REFUSED_WITH(model, c->delta.form, DELTA_APART, "a delta rule of this kind");
  REFUSED_WITH(model, c->delta.doubles_beta, true, "a delta rule of this kind");
  REFUSED_WITH(model, c->delta.norm_eps, 1e-5, "a delta rule of this kind");
  REFUSED_WITH(model, delta->delta_b.kind, LINEAR_AWQ, "gates of the delta rule");
  REFUSED_WITH(model, delta->delta_a.dtype, DTYPE_F32, "gates of the delta rule");
  REFUSED_WITH(model, delta->delta_qkv.group, 64, "groups of different sizes");
  REFUSED_WITH(model, delta->delta_z.kind, LINEAR_DENSE, "4 bits in groups");
  REFUSED_WITH(model, delta->delta_z.bias.data, (void *)model, "bias");
  REFUSED_WITH(model, attention->q.bias.data, (void *)model, "bias");
  REFUSED_WITH(model, attention->k.group, 128, "groups of different sizes");
  model_close(model);
}

/* README.md of cuda/ names the position. */
TEST(long_contexts_are_for_separate_kernels) {
  Model *hybrid = open_config("Qwen3.8-27B-INT4"), *other = open_config("Qwen3-8B-AWQ");
  const StepShape of_hybrid = step_shape(&hybrid->config), of_other = step_shape(&other->config);
  assert_true(step_reaches(&of_hybrid, false, 0));
  assert_true(step_reaches(&of_hybrid, false, 40959));
  assert_false(step_reaches(&of_hybrid, false, 40960));
  assert_true(step_reaches(&of_hybrid, true, 40960));
  assert_true(step_reaches(&of_other, false, 1 << 20));
  model_close(hybrid);
  model_close(other);
}

TEST(experts_of_hybrids_it_is_not_for_are_told_why) {
  Model *model = open_config("Qwen3.6-35B-A3B-INT4");
  ExpertConfig *e = &model->config.experts;
  ModelLayer *l = &model->layers[5];
  assert_int_equal(step_supports(model, NULL), STATUS_OK);
  REFUSED_WITH(model, e->shared_width, 1024, "without an MLP of their width");
  REFUSED_WITH(model, e->shared_width, 0, "without an MLP of their width");
  REFUSED_WITH(model, e->shared_output, SHARED_WHOLE, "without a gate");
  REFUSED_WITH(model, l->shared_gate.dtype, DTYPE_F32, "gate beside experts");
  REFUSED_WITH(model, l->router.dtype, DTYPE_F32, "router");
  REFUSED_WITH(model, l->up.group, 64, "not like them");
  REFUSED_WITH(model, l->down.kind, LINEAR_DENSE, "not like them");
  REFUSED_WITH(model, l->experts[0].down.group, 64, "groups of different sizes");
  model_close(model);
}
