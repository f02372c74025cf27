/* test_step_plan.c - plans of fused steps, on the host: every stage of every matrix belongs to one block,
 * and everything fits, for the models in test/data/configs and for steps of one and of several tokens;
 * which models are served, and how others are refused.
 *
 * An H200 runs 15 clusters of 8 blocks at once and has 227 KB of shared memory a block. */
#include <stdio.h>
#include <string.h>

#include "model/slice.h"
#include "test/cuda/plan_checks.h"
#include "test/tests.h"

static const char *const configs[] = {
    "Qwen3-0.6B-AWQ",
    "Qwen3-1.7B-AWQ",
    "Qwen3-4B-AWQ",
    "Qwen3-8B-AWQ",
    "Qwen3-14B-AWQ",
    "Qwen3-32B-AWQ",
    "Qwen2.5-7B-Instruct-AWQ",
    "Llama-3.1-8B-Instruct-AWQ",
    "Llama-3.2-1B-Instruct-AWQ", /* heads of 64 */
    "Qwen3-8B-W4A16-G32",        /* groups of 32 */
    "Qwen3-30B-A3B-AWQ",         /* experts, which steps of several tokens have no kernel for */
    "Qwen3-8B-NVFP4",            /* FP4 */
    "Qwen3-8B-FP8",              /* 8 bits, which steps of several tokens have no kernel for */
    "Qwen3-8B-W8A8",
    "gpt-oss-20b",       /* varied experts */
    "GLM-4.7-Flash-AWQ", /* latent attention */
};

/* Latent attention: FFN blocks of a cluster in a layer without experts; a block's tile rows of q_b, at most.
 */
static int dense_blocks_of(const StepShape *s, int cluster) {
  const int all = s->dense_width / STEP_GROUP;
  return step_first_of(s, all, cluster + 1) - step_first_of(s, all, cluster);
}
static KSplit dense_down_of(const StepPlan *plan, int cluster) {
  return plan->dense_down[plan->most_dense_blocks - dense_blocks_of(&plan->shape, cluster)];
}
static int query_rows(const StepPlan *plan) {
  return (plan->heads_per_kv * step_latent_query(&plan->shape) / 16 + STEP_BLOCKS - 1) / STEP_BLOCKS;
}

/* The tables have an entry for every stage of a layer in every block, and a stage's groups fit five
 * bits. */
static void check_stages(const StepPlan *plan) {
  const StepOffsets *off = &plan->off;
  const int experts = plan->shape.n_experts, words = experts ? 4 : 1; /* of a tile row of a stage */
  const int rows = plan->slice / 16, room = (off->tasks - off->stage_table) / (words * STEP_ENTRY_BYTES);
  if (experts) {
    assert_true(off->stage_table % 8 == 0 && off->experts % 16 == 0);
    assert_true(off->experts - off->tasks >= room * STEP_ENTRY_BYTES);
    assert_true(off->total - off->experts >= (experts + plan->slice + plan->most_ffn_blocks +
                                              2 * plan->shape.n_chosen + STEP_BLOCKS * plan->shape.n_chosen) *
                                                 (int)sizeof(float));
    assert_true(plan->most_ffn_blocks <= step_expert_blocks(&plan->shape));
    /* the output of attention, for the router; rows of the folded router in a stage */
    assert_true(off->heads - off->exchange >=
                plan->o_packs * (step_value_bytes(&plan->shape) + STEP_PACK * 4));
    assert_true(plan->slot_bytes >= STEP_WARPGROUP_WARPS * plan->o_packs * STEP_PACK * (int)sizeof(float));
  }
  assert_true((plan->off.total - plan->off.tasks) / STEP_ENTRY_BYTES >= room);
  assert_true(STEP_SPAN * STEP_WARPGROUP_WARPS < 32);
  for (int c = 0; c < plan->shape.n_clusters; c++) {
    const KSplit down = down_of(plan, c);
    const StepShape *s = &plan->shape;
    const int gate_up_rows = (step_is_varied(s) ? 1 : 2) * ffn_blocks_of(s, c);
    int n = step_stages(step_qkv_split(s), plan->qkv_packs) + step_stages(plan->o, rows) +
            step_stages(plan->full, gate_up_rows) + step_stages(down, rows);
    if (step_is_latent(s)) n += step_stages(plan->q_b, query_rows(plan));
    if (s->n_dense > 0)
      n += step_stages(plan->full, 2 * dense_blocks_of(s, c)) + step_stages(dense_down_of(plan, c), rows);
    assert_true(!step_is_varied(s) || 2 * down.groups <= STEP_ENTRY_GROUPS);
    assert_true(n <= room);
    assert_true(plan->full.rows * 4 <= STEP_ENTRY_BYTES && down.rows * 4 <= STEP_ENTRY_BYTES);
  }
}

/* Outputs of q_a, kv_a and q_b lie before x of o; merged states lie in the area of x; a stage holds its rows
 * of the heads' matrices, and a warpgroup that skips q_b's stages finds its next one in another slot. */
static void check_latent(const StepPlan *plan) {
  const StepShape *s = &plan->shape;
  const StepOffsets *off = &plan->off;
  const int heads = plan->heads_per_kv, rows = plan->slice / 16;
  assert_int_equal(plan->attending * heads, s->n_heads);
  assert_true(heads <= STEP_MAX_SHARED_HEADS);
  assert_true(off->heads - off->exchange >= (step_latent_inputs(s) + heads * step_latent_query(s)) * 4 +
                                                plan->o_packs * step_value_bytes(s));
  assert_true(off->sums - off->x >= (heads * STEP_LATENT + 2 * STEP_WARPS * 16) * (int)sizeof(float));
  assert_true(off->heads - off->exchange >= STEP_WARPS * 32 * 4 * (int)sizeof(float));
  assert_true(off->small - off->heads >= (STEP_MAX_SHARED_HEADS + 1) * STEP_LATENT_HEAD * 2);
  assert_true(plan->slot_bytes >= STEP_LATENT_KEYS * s->nope_dim * 2);
  assert_true(plan->slot_bytes >= STEP_LATENT_VALUES * STEP_LATENT * 2);
  assert_true(plan->slot_bytes >= STEP_KEYS_256 * STEP_LATENT_HEAD * 2);
  assert_true(off->experts - off->mixers >= STEP_LATENT_BYTES);
  check_split(plan->q_b, plan, 1);
  check_share(plan, plan->q_b, 1, query_rows(plan), off->planes - off->sums, 0, s->q_rank / STEP_GROUP);
  for (int c = 0; c < s->n_clusters && s->n_dense > 0; c++) {
    const int n = dense_blocks_of(s, c), all = s->dense_width / STEP_GROUP;
    assert_true(n == plan->most_dense_blocks || n == plan->most_dense_blocks - 1);
    assert_int_equal(dense_down_of(plan, c).n_groups, n);
    check_share(plan, plan->full, 1, 2 * n, off->sums - off->long_sums, 0, s->hidden / STEP_GROUP);
    check_share(plan, dense_down_of(plan, c), 1, rows, off->planes - off->sums, step_first_of(s, all, c),
                all);
  }
}

static void check_places(const StepPlan *plan) {
  const StepShape *s = &plan->shape;
  const StepOffsets *off = &plan->off;
  check_stages(plan);
  const bool varied = step_is_varied(s), latent = step_is_latent(s);
  const int packs = plan->o_packs, rows = plan->slice / 16, ffn_blocks = s->intermediate / step_features(s);
  const int most_ffn_blocks = plan->most_ffn_blocks, parts = step_parts(s), attn_parts = step_attn_parts(s);
  const int state = plan->heads_per_kv * (step_state_dim(s) * 2 + 8);
  const int most_groups[] = {packs, step_down_groups(s, most_ffn_blocks), s->q_rank / STEP_GROUP,
                             plan->most_dense_blocks};
  assert_int_equal(packs * STEP_PACK, plan->heads_per_kv * step_value_dim(s));
  if (!latent) assert_int_equal((plan->qkv_packs - packs) * STEP_PACK, 2 * s->head_dim);
  assert_true(off->sums - off->x >= s->hidden * 4 && off->sums - off->x >= plan->states * state);
  assert_true(off->exchange - off->attention >= STEP_BLOCKS * state);
  assert_true(off->heads - off->exchange >= plan->qkv_packs * STEP_PACK * 4);
  assert_true(off->heads - off->exchange >= most_ffn_blocks * step_features(s) * 4);
  for (size_t i = 0; i < COUNT(most_groups); i++) {
    assert_true(off->scales - off->planes >= most_groups[i] * 2 * STEP_GROUP);
    assert_true(off->exchange - off->scales >= most_groups[i] * step_x_scales(step_parts(s)) * 8);
  }
  if (latent) check_latent(plan);
  check_x(plan);
  check_share(plan, step_qkv_split(s), attn_parts, plan->qkv_packs, off->sums - off->long_sums, 0,
              step_input_groups(s));
  for (int c = 0; c < s->n_clusters; c++) {
    check_share(plan, plan->full, parts, (varied ? 1 : 2) * ffn_blocks_of(s, c), off->sums - off->long_sums,
                0, step_input_groups(s));
    check_share(plan, down_of(plan, c), parts, rows, off->planes - off->sums,
                varied ? 0 : step_first_ffn_block(s, c), varied ? down_of(plan, c).n_groups : ffn_blocks);
    check_odd_zeros(plan, down_of(plan, c), step_first_ffn_block(s, c));
    if (c < plan->attending)
      check_share(plan, plan->o, attn_parts, rows, off->planes - off->sums, c * packs,
                  plan->attending * packs);
  }
}

/* Gives the shape the next of the groups and heads that have kernels. */
static void next_form(StepShape *s) {
  static const int groups[] =
      {128, 64, 32, 128, 16, 128, 32, STEP_FP8_GROUP, STEP_INT8_GROUP, STEP_HALF_GROUP, 16},
                   head_dims[] = {128, 128, 128, 64, 128, 128, 128, 128, 64, 128, 64},
                   chosen[] = {0, 0, 0, 0, 0, 8, 2, 0, 0, 0, 4};
  static unsigned turn;
  const bool varied = turn % 11 == 10;
  s->q8 = turn % 2;
  s->group = groups[turn % 11], s->head_dim = head_dims[turn % 11];
  s->n_chosen = chosen[turn % 11], s->n_experts = 8 * s->n_chosen;
  s->n_gpus = 1 + turn / 2 % 2;
  s->width = varied ? s->hidden - (int)(turn / 11 % 16) * 64 : 0,
  s->attn_group = varied ? STEP_HALF_GROUP : 0;
  turn++;
}

/* Samples: the steps of intermediate sizes and KV heads divide no size of a plan. */
TEST(whatever_is_taken_fits) {
  int taken = 0;
  StepShape s = {.n_layers = 3, .vocab_size = 1001, .shared_bytes = H200_SHARED};
  for (s.hidden = 512; s.hidden <= STEP_MAX_HIDDEN; s.hidden += SANITIZED ? 4 * 512 : 512)
    for (s.intermediate = 256; s.intermediate <= 131072; s.intermediate += s.intermediate < 8192 ? 768 : 3328)
      for (s.n_kv_heads = 1; s.n_kv_heads <= STEP_MAX_CLUSTERS; s.n_kv_heads += 3)
        for (s.n_heads = s.n_kv_heads; s.n_heads <= 8 * s.n_kv_heads; s.n_heads += s.n_kv_heads)
          for (s.n_clusters = s.n_kv_heads; s.n_clusters <= STEP_MAX_CLUSTERS; s.n_clusters++) {
            StepPlan plan;
            next_form(&s);
            if (step_plan(&s, 1, &plan, NULL) != STATUS_OK) continue;
            check_plan(&s, &plan);
            check_places(&plan);
            taken++;
          }
  assert_true(taken > SAMPLE(10000));
}

TEST(models_of_today_fit_an_h200) {
  for (size_t i = 0; i < COUNT(configs); i++)
    for (int clusters = 8; clusters <= 15; clusters++) {
      Model *model = open_config(configs[i]);
      StepShape shape = shape_of(model, clusters);
      StepPlan plan;
      Error err;
      if (step_supports(model, &err) != STATUS_OK) fail_msg("%s: %s", configs[i], err.text);
      if (step_plan(&shape, 1, &plan, &err) != STATUS_OK) fail_msg("%s: %s", configs[i], err.text);
      check_plan(&shape, &plan);
      model_close(model);
    }
}

/* Parts of models that several GPUs share. */
TEST(parts_of_models) {
  const struct {
    const char *name;
    int n_gpus, blocks;
    const char *because; /* NULL: accepted */
  } cases[] = {
      {"Qwen3-8B-AWQ", 2, 48, NULL},
      {"Qwen3-8B-AWQ", 4, 24, NULL},
      {"Qwen3-30B-A3B-AWQ", 2, 8 * 3, NULL},
      {"Qwen3-30B-A3B-AWQ", 4, 8 * 2, NULL},
      {"Qwen3.6-35B-A3B-INT4", 2, 9 * 2, NULL},
      {"Qwen3.6-35B-A3B-INT4", 4, 9, NULL},
      {"Qwen3.8-27B-INT4", 2, 68, NULL},
      {"Qwen3.8-27B-INT4", 4, 34, NULL},
      {"Qwen3-8B-FP8", 2, 48, NULL},
      {"Qwen3-8B-FP8", 4, 24, NULL},
      {"Qwen3-8B-W8A8", 2, 48, "number of GPUs"},
      {"Llama-3.2-1B-Instruct-AWQ", 2, 32, "number of GPUs"},
  };
  for (size_t i = 0; i < COUNT(cases); i++)
    for (int index = 0; index < cases[i].n_gpus && SAMPLED(i); index++) {
      Model *whole = open_config(cases[i].name), *part;
      Error err = {{0}};
      if (model_part(whole, index, cases[i].n_gpus, &part, &err) != STATUS_OK) fail_msg("%s", err.text);
      StepShape shape = shape_of(part, 15);
      StepPlan plan;
      Status status = step_supports(part, &err);
      if (shape.intermediate < 15 * STEP_GROUP)
        shape.n_clusters = shape.intermediate / STEP_GROUP; /* fused.c */
      if (index == 0) assert_int_equal(shape.intermediate, cases[i].blocks * STEP_GROUP);
      assert_int_equal(shape.n_gpus, cases[i].n_gpus);
      if (!status) status = step_plan(&shape, 1, &plan, &err);
      const char *because = cases[i].because;
      if (because ? status != STATUS_MODEL || !strstr(err.text, because) : status != STATUS_OK)
        fail_msg("%s, part %d of %d: \"%s\"", cases[i].name, index, cases[i].n_gpus, err.text);
      if (!status && shape.head_dim != STEP_WIDE_HEAD) check_plan(&shape, &plan), check_places(&plan);
      model_part_free(part);
      model_close(whole);
    }
}

TEST(plan_of_qwen3_8b) {
  Model *model = open_config("Qwen3-8B-AWQ");
  StepShape shape = shape_of(model, 15);
  StepPlan plan;
  assert_int_equal(step_plan(&shape, 1, &plan, NULL), STATUS_OK);
  model_close(model);
  const KSplit full = {.n_groups = 32, .splits = 2, .groups = 16, .k_warps = 4, .span = 4, .rows = 1};
  const KSplit o = {.n_groups = 4, .splits = 1, .groups = 4, .k_warps = 1, .span = 4, .rows = 4};
  assert_memory_equal(&plan.full, &full, sizeof full);
  assert_memory_equal(&plan.o, &o, sizeof o);
  assert_int_equal(ffn_blocks_of(&shape, 0), 6); /* of 96: the last clusters have seven, the others six */
  assert_int_equal(ffn_blocks_of(&shape, 14), 7);
  assert_int_equal(step_stages(plan.full, 6), 12); /* a block has 6 tile rows of q, k and v */
  assert_true(plan.n_slots >= 9);                  /* 170 KB: what an SM reads during an all-reduce */
}

/* A warp spends the time of four groups on each span of a tile row, so there are as few as possible: for
 * 40 groups ten, not sixteen. */
TEST(few_spans_are_wasted) {
  for (int n = 1; n <= STEP_SPAN * STEP_WARPS; n++) {
    const KSplit cut = step_split(n, STEP_SPAN);
    const int least = (n + STEP_SPAN - 1) / STEP_SPAN;
    assert_true(cut.splits * cut.k_warps >= least && cut.splits * cut.k_warps <= least + 1);
  }
  const KSplit forty = step_split(40, STEP_SPAN), twenty = step_split(20, STEP_SPAN),
               ten = step_split(10, STEP_SPAN);
  assert_true(forty.splits == 5 && forty.k_warps == 2 && forty.rows == 2);
  assert_true(twenty.splits == 5 && twenty.k_warps == 1 && twenty.rows == 4);
  assert_true(ten.splits == 3 && ten.k_warps == 1 && ten.groups == 4);
}

/* The sizes of Qwen3-0.6B's layers, which any number of tokens has a plan for. */
static StepShape small_shape(void) {
  return (StepShape){.hidden = 1024,
                     .intermediate = 3072,
                     .n_layers = 2,
                     .n_heads = 16,
                     .n_kv_heads = 8,
                     .vocab_size = 1000,
                     .group = 128,
                     .head_dim = 128,
                     .n_clusters = 8,
                     .shared_bytes = H200_SHARED};
}

/* Groups and heads without a kernel, and an odd number of heads of 64 for a KV head. */
TEST(forms_without_a_kernel_are_refused) {
  const struct {
    int group, head_dim, n_heads;
    const char *because; /* NULL: accepted */
  } cases[] = {
      {128, 128, 16, NULL},       {64, 128, 16, NULL},       {32, 128, 16, NULL},
      {16, 128, 16, NULL},        {128, 64, 16, NULL},       {64, 64, 16, NULL},
      {32, 64, 16, NULL},         {16, 64, 16, NULL},        {24, 128, 16, "group size"},
      {0, 128, 16, "group size"}, {128, 96, 16, "of heads"}, {128, 64, 24, "heads of a KV head"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    StepShape s = small_shape();
    s.group = cases[i].group, s.head_dim = cases[i].head_dim, s.n_heads = cases[i].n_heads;
    for (int tokens = 1; tokens <= 2; tokens++) {
      StepPlan plan;
      Error err = {{0}};
      const Status status = step_plan(&s, tokens, &plan, &err);
      const char *because = cases[i].because;
      if (because ? status != STATUS_MODEL || !strstr(err.text, because) : status != STATUS_OK)
        fail_msg("case %zu, %d tokens: \"%s\"", i, tokens, err.text);
    }
  }
}

/* One size at a time: accepted and refused values, and the message's word for it. */
TEST(sizes_that_do_not_divide_are_refused) {
  const struct {
    int hidden, intermediate, n_heads, n_kv_heads, n_clusters;
    const char *of_one, *of_rows; /* two tokens; NULL: accepted */
  } cases[] = {
      {1024, 3072, 16, 8, 8, NULL, NULL},
      {512, 3072, 16, 8, 8, NULL, "hidden size"},
      {1280, 3072, 16, 8, 8, "hidden size", "hidden size"},
      {8192, 3072, 16, 8, 8, NULL, NULL},
      {8704, 3072, 16, 8, 8, "hidden size", "hidden size"},
      {1024, 3200, 16, 8, 8, "intermediate size", "intermediate size"},
      {1024, 1024, 16, 8, 8, NULL, NULL}, /* one FFN block a cluster */
      {1024, 768, 16, 8, 8, "intermediate size", "intermediate size"},
      {1024, 65536, 16, 8, 8, NULL, NULL},
      {1024, 65792, 16, 8, 8, "intermediate size", NULL}, /* 65 FFN blocks in a cluster */
      {1024, 3072, 20, 8, 8, "number of heads", "number of heads"},
      {1024, 3072, 9, 3, 8, "number of heads", "number of heads"},
      {1024, 3072, 64, 8, 8, NULL, NULL},
      {1024, 3072, 72, 8, 8, "number of heads of a KV head", "number of heads of a KV head"},
      {1024, 3072, 16, 8, 7, "number of KV heads", "number of KV heads"},
      {1024, 4096, 16, 8, 16, NULL, NULL},
      {1024, 8704, 16, 8, 17, "number of clusters", "number of clusters"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    StepShape s = small_shape();
    s.hidden = cases[i].hidden, s.intermediate = cases[i].intermediate;
    s.n_heads = cases[i].n_heads, s.n_kv_heads = cases[i].n_kv_heads, s.n_clusters = cases[i].n_clusters;
    StepPlan plan;
    Error err = {{0}};
    Status status = step_plan(&s, 1, &plan, &err);
    if (cases[i].of_one ? status != STATUS_MODEL || !strstr(err.text, cases[i].of_one) : status != STATUS_OK)
      fail_msg("case %zu, one row: \"%s\"", i, err.text);
    err.text[0] = 0;
    status = step_plan(&s, 2, &plan, &err);
    if (cases[i].of_rows ? status != STATUS_MODEL || !strstr(err.text, cases[i].of_rows)
                         : status != STATUS_OK)
      fail_msg("case %zu, two rows: \"%s\"", i, err.text);
  }
}

/* A KV head serves at most 32 queries at once. */
TEST(rows_are_refused_by_the_queries_they_make) {
  for (int heads = 1; heads <= STEP_MAX_SHARED_HEADS; heads++)
    for (int rows = 2; rows <= STEP_MAX_TOKENS; rows *= 2) {
      StepShape s = small_shape();
      s.n_heads = heads * s.n_kv_heads;
      StepPlan plan;
      Error err = {{0}};
      const Status status = step_plan(&s, rows, &plan, &err);
      char says[96];
      snprintf(says, sizeof says, "a step of %d tokens: not with this number of heads of a KV head", rows);
      if (heads * rows <= 32)
        assert_int_equal(status, STATUS_OK);
      else if (status != STATUS_MODEL || !strstr(err.text, says))
        fail_msg("%d heads, %d rows: %s", heads, rows, err.text);
    }
}

/* --- steps of several tokens */

/* A stage of the share fits a slot. Returns the number of stages. */
static int check_few_share(const StepPlan *plan, int tile_rows, int n_groups) {
  const int stages = step_few_stages(n_groups), span = step_few_span(n_groups);
  assert_true(span <= STEP_STAGE_GROUPS && stages * span >= n_groups && (stages - 1) * span < n_groups);
  assert_true(bytes_touched(STEP_WARPGROUP_WARPS, span, step_parts(&plan->shape)) <= plan->slot_bytes);
  assert_int_equal(tile_rows % STEP_WARPGROUP_WARPS, 0); /* every warp of a warpgroup has a tile row */
  return tile_rows / STEP_WARPGROUP_WARPS * stages;
}

/* The table has an entry for every stage of a layer in every block. */
static void check_few_stages(const StepPlan *plan) {
  const StepShape *s = &plan->shape;
  const int room = (plan->off.chunk_sums - plan->off.stage_table) / STEP_ENTRY_BYTES;
  for (int c = 0; c < s->n_clusters; c++)
    for (int rank = 0; rank < STEP_BLOCKS; rank++) {
      const int ffn_blocks = step_first_ffn_block(s, c + 1) - step_first_ffn_block(s, c);
      const int groups = step_first_column_group(s, rank + 1) - step_first_column_group(s, rank);
      const int n = check_few_share(plan, 8 * plan->qkv_packs, groups) +
                    check_few_share(plan, 8 * groups, plan->o_packs) +
                    check_few_share(plan, 16 * ffn_blocks, groups) +
                    check_few_share(plan, 8 * groups, ffn_blocks);
      assert_true(n <= room);
    }
}

static void check_few_plan(const StepPlan *plan) {
  const StepShape *s = &plan->shape;
  const StepOffsets *off = &plan->off;
  const int rows = plan->tokens, groups = s->hidden / STEP_GROUP, parts = step_parts(s);
  const int pack_states = STEP_PACK * 2 + 8 * (STEP_PACK / s->head_dim);
  const int columns = (groups + STEP_BLOCKS - 1) / STEP_BLOCKS;
  const int inputs = larger(plan->o_packs, plan->most_ffn_blocks), planes = 2 * STEP_GROUP * rows;
  assert_true((size_t)(plan->n_slots * plan->slot_bytes + off->total) <= s->shared_bytes);
  assert_true(plan->n_slots > STEP_WARPGROUPS && plan->n_slots <= STEP_MAX_SLOTS);
  assert_int_equal(plan->slot_bytes % 128, 0);
  assert_int_equal(off->total % 128, 0);
  assert_int_equal(plan->stage_bytes, bytes_touched(STEP_WARPGROUP_WARPS, step_few_span(columns), parts));
  const KvType kv = s->q8 ? KV_Q8 : KV_F16;
  assert_true((size_t)(s->q8 ? STEP_KEYS_Q8 : STEP_KEYS) *
                  (kv_key_bytes(kv, s->head_dim) + kv_value_bytes(kv, s->head_dim)) <=
              (size_t)plan->slot_bytes);
  assert_true(STEP_LM_HEAD_ROWS * (plan->lm_head_width * 2 + STEP_LM_HEAD_PAD) <= plan->slot_bytes);
  assert_int_equal(s->hidden % plan->lm_head_width, 0);
  assert_int_equal(plan->n_lm_head_stages, (s->vocab_size + STEP_LM_HEAD_ROWS - 1) / STEP_LM_HEAD_ROWS);
  assert_int_equal(plan->lm_head_width % 32, 0);
  assert_int_equal(step_first_column_group(s, STEP_BLOCKS), groups);
  for (int rank = 0; rank < STEP_BLOCKS; rank++) {
    const int n = step_first_column_group(s, rank + 1) - step_first_column_group(s, rank);
    assert_true(n > 0 && n <= columns);
  }
  /* every query has a column; a stage of keys has four arrivals */
  assert_true(plan->columns * 8 >= plan->queries && plan->columns / 2 * 8 < plan->queries);
  assert_int_equal(STEP_WARPGROUP_WARPS % plan->members, 0);
  const int halves = plan->members / plan->columns;
  assert_true(plan->columns * halves == plan->members && (halves == 1 || halves == 2));
  assert_true(plan->members * STEP_WARPGROUPS <= STEP_WARPS);
  assert_int_equal(plan->states, STEP_WARPGROUPS * halves);
  /* every token has as many blocks, and a pack's chunks fit */
  assert_int_equal(STEP_BLOCKS % rows, 0);
  const int turns = STEP_BLOCKS / rows;
  assert_true((plan->qkv_packs + turns - 1) / turns <= STEP_CHUNKS);
  /* areas follow one another, each as large as its largest content */
  const int alike[] = {off->squares, off->x_scales,    off->in_scales,  off->rope,
                       off->chunks,  off->stage_table, off->chunk_sums, off->slice,
                       off->heads,   off->states,      off->in};
  for (size_t i = 0; i < COUNT(alike); i++) assert_int_equal(alike[i] % 16, 0);
  assert_true(off->x_scales - off->squares >= groups * rows * 4);
  assert_true(off->in_scales - off->x_scales >= groups * rows * step_x_scales(parts) * 8);
  assert_true(off->rope - off->in_scales >= inputs * rows * step_x_scales(parts) * 8);
  assert_true(off->chunks - off->rope >= s->head_dim / 2 * 8);
  assert_true(off->stage_table - off->chunks >= (1 + turns) * STEP_CHUNKS * 8);
  assert_true(off->warp_values == off->chunk_sums && off->warp_weights == off->slice);
  assert_true(off->slice - off->chunk_sums >= STEP_CHUNKS * STEP_CHUNK_BYTES);
  assert_true(off->slice - off->chunk_sums >= plan->states * plan->queries * s->head_dim * 2);
  assert_true(off->heads - off->slice >= columns * planes);
  assert_true(off->heads - off->slice >= plan->states * plan->queries * 8);
  assert_true(off->states - off->heads >= (plan->columns * 8 + 2 * rows) * s->head_dim * 2);
  assert_true(off->in - off->states >= (plan->o_packs * rows + 7) / 8 * STEP_BLOCKS * pack_states);
  assert_true(off->x == off->chunk_sums && off->in - off->x >= groups * planes);
  assert_true(off->exchange == off->in && off->total - off->in >= inputs * planes);
  assert_true(off->total - off->exchange >= 2 * STEP_WARPS * rows * STEP_LM_HEAD_ROWS * 4);
  check_few_stages(plan);
  /* every FFN block belongs to one cluster */
  assert_int_equal(step_first_ffn_block(s, 0), 0);
  assert_int_equal(step_first_ffn_block(s, s->n_clusters) * STEP_GROUP, s->intermediate);
  for (int c = 0; c < s->n_clusters; c++) {
    const int n = step_first_ffn_block(s, c + 1) - step_first_ffn_block(s, c);
    assert_true(n >= 1 && n <= plan->most_ffn_blocks && n + 1 >= plan->most_ffn_blocks);
  }
}

TEST(whatever_is_taken_of_rows_fits) {
  int taken = 0;
  StepShape s = {.n_layers = 3, .vocab_size = 1001, .shared_bytes = H200_SHARED};
  for (s.hidden = 1024; s.hidden <= STEP_MAX_HIDDEN; s.hidden += SANITIZED ? 4 * 512 : 512)
    for (s.intermediate = 256; s.intermediate <= 65536; s.intermediate += s.intermediate < 8192 ? 768 : 3328)
      for (s.n_kv_heads = 1; s.n_kv_heads <= STEP_MAX_CLUSTERS; s.n_kv_heads += 3)
        for (s.n_heads = s.n_kv_heads; s.n_heads <= 8 * s.n_kv_heads; s.n_heads += s.n_kv_heads)
          for (s.n_clusters = s.n_kv_heads; s.n_clusters <= STEP_MAX_CLUSTERS; s.n_clusters += 2)
            for (int rows = 2; rows <= STEP_MAX_TOKENS; rows *= 2) {
              StepPlan plan;
              next_form(&s);
              if (step_plan(&s, rows, &plan, NULL) != STATUS_OK) continue;
              check_few_plan(&plan);
              taken++;
            }
  assert_true(taken > SAMPLE(10000));
}

TEST(models_of_today_and_their_rows) {
  for (size_t i = 0; i < COUNT(configs); i++) {
    Model *model = open_config(configs[i]);
    const StepShape shape = shape_of(model, 15);
    for (int rows = 2; rows <= STEP_MAX_TOKENS; rows *= 2) {
      StepPlan plan;
      Error err;
      const bool none = shape.n_experts > 0 || step_in_bytes(step_parts(&shape)) ||
                        shape.n_heads / shape.n_kv_heads * rows > STEP_MAX_QUERIES;
      const Status status = step_plan(&shape, rows, &plan, &err);
      if ((status == STATUS_OK) == none) fail_msg("%s, %d rows: %s", configs[i], rows, err.text);
      if (status == STATUS_OK) check_few_plan(&plan);
    }
    model_close(model);
  }
}

TEST(fewer_slots_where_asked) {
  Model *model = open_config("Qwen3-8B-AWQ");
  StepShape shape = shape_of(model, 8);
  model_close(model);
  shape.max_slots = 5;
  StepPlan plan;
  assert_int_equal(step_plan(&shape, 1, &plan, NULL), STATUS_OK);
  assert_int_equal(plan.n_slots, 5);
  assert_int_equal(step_plan(&shape, 4, &plan, NULL), STATUS_OK);
  assert_int_equal(plan.n_slots, 5);
}

/* A plan uses a block's shared memory to the last byte. The smallest ring has one slot more than there
 * are warpgroups, or no copy could be in flight (step.cu). */
TEST(the_smallest_ring_is_one_slot_more_than_teams) {
  for (size_t i = 0; i < COUNT(configs); i++) {
    Model *model = open_config(configs[i]);
    StepShape shape = shape_of(model, 15);
    model_close(model);
    StepPlan plan;
    assert_int_equal(step_plan(&shape, 1, &plan, NULL), STATUS_OK);
    shape.shared_bytes = (size_t)(plan.off.total + (STEP_WARPGROUPS + 1) * plan.slot_bytes);
    assert_int_equal(step_plan(&shape, 1, &plan, NULL), STATUS_OK);
    assert_int_equal(plan.n_slots, STEP_WARPGROUPS + 1);
    shape.shared_bytes--;
    Error err;
    char needed[32];
    assert_int_equal(step_plan(&shape, 1, &plan, &err), STATUS_MODEL);
    snprintf(needed, sizeof needed, " %zu bytes", shape.shared_bytes + 1);
    assert_non_null(strstr(err.text, needed));
  }
}

TEST(the_smallest_ring_of_rows_is_one_slot_more_than_teams) {
  for (size_t i = 0; i < COUNT(configs); i++) {
    Model *model = open_config(configs[i]);
    StepShape shape = shape_of(model, 15);
    model_close(model);
    StepPlan plan;
    Error err;
    char needed[32];
    if (shape.n_experts > 0 || step_in_bytes(step_parts(&shape))) continue;
    assert_int_equal(step_plan(&shape, 2, &plan, NULL), STATUS_OK);
    shape.shared_bytes = (size_t)(plan.off.total + (STEP_WARPGROUPS + 1) * plan.slot_bytes);
    assert_int_equal(step_plan(&shape, 2, &plan, NULL), STATUS_OK);
    assert_int_equal(plan.n_slots, STEP_WARPGROUPS + 1);
    shape.shared_bytes--;
    assert_int_equal(step_plan(&shape, 2, &plan, &err), STATUS_MODEL);
    snprintf(needed, sizeof needed, " %zu bytes", shape.shared_bytes + 1);
    assert_non_null(strstr(err.text, needed));
  }
}

TEST(models_it_is_not_for_are_told_why) {
  Model *model = open_config("Qwen3-0.6B-AWQ");
  ModelConfig *c = &model->config;
  assert_int_equal(step_supports(model, NULL), STATUS_OK);
  REFUSED_WITH(model, c->head_dim, 96, "heads of another size");
  REFUSED_WITH(model, c->head_dim, 256, "rope over a part");
  REFUSED_WITH(model, c->rope.rotary_dim, 64, "rope over a part");
  REFUSED_WITH(model, model->layers[0].q.group, 16, "4 bits in groups of 32, 64 or 128");
  REFUSED_WITH(model, c->norms, NORM_AROUND, "norms");
  REFUSED_WITH(model, c->norms, NORM_AFTER, "norms");
  REFUSED_WITH(model, c->qk_norm, QK_NORM_WHOLE, "norm over all heads");
  REFUSED_WITH(model, c->activation, ACTIVATION_GELU_TANH, "gelu_pytorch_tanh (norm_gate_up of layer 0)");
  REFUSED_WITH(model, c->attention_cap, 30, "capped");
  REFUSED_WITH(model, c->logit_cap, 30, "capped");
  REFUSED_WITH(model, c->logit_divisor, 8, "divided");
  REFUSED_WITH(model, c->residual_scale, 0.5, "what layers add times 0.5");
  REFUSED_WITH(model, c->norm, NORM_CENTRED, "norms that subtract the mean");
  REFUSED_WITH(model, c->parallel, PARALLEL_ONE_NORM, "beside attention");
  REFUSED_WITH(model, c->head_bias, true, "output head");
  REFUSED_WITH(model, c->altup.n, 4, "several residual streams");
  REFUSED_WITH(model, c->gate_scale, 0.5, "gates of MLPs times 0.5");
  REFUSED_WITH(model, c->mlp_scale, 0.5, "gated products times 0.5");
  REFUSED_WITH(model, c->layers[3].window, 4096, "windows or chunks (attention of layer 3)");
  REFUSED_WITH(model, model->head.kind, LINEAR_AWQ, "head");
  REFUSED_WITH(model, model->head.dtype, DTYPE_F32, "head");
  assert_non_null(c->layers);
  REFUSED_WITH(model, c->layers[5].rope, ROPE_NONE, "another rope");
  model_close(model);
}

TEST(experts_it_is_not_for_are_told_why) {
  Model *model = open_config("Qwen3-30B-A3B-AWQ");
  ExpertConfig *e = &model->config.experts;
  ModelLayer *l = &model->layers[7];
  assert_int_equal(step_supports(model, NULL), STATUS_OK);
  REFUSED_WITH(model, e->score, SCORE_SIGMOID, "experts of this kind");
  REFUSED_WITH(model, e->score, SCORE_CHOSEN, "experts of this kind");
  REFUSED_WITH(model, e->score, SCORE_CHOSEN_NEAR, "experts of this kind");
  REFUSED_WITH(model, e->n_groups, 4, "experts of this kind");
  REFUSED_WITH(model, e->scale, 2.5, "experts of this kind");
  REFUSED_WITH(model, e->norms, EXPERTS_POST_NORM, "experts of this kind");
  REFUSED_WITH(model, e->sum_plus, 1e-20, "experts of this kind");
  REFUSED_WITH(model, e->choice_bias, true, "experts of this kind");
  REFUSED_WITH(model, e->biases, true, "experts of this kind");
  REFUSED_WITH(model, e->norms, EXPERTS_OWN_NORMS, "experts of this kind");
  REFUSED_WITH(model, e->shared_width, 768, "experts with an MLP beside them");
  REFUSED_WITH(model, l->router.dtype, DTYPE_F32, "router");
  REFUSED_WITH(model, l->experts[0].down.group, 64, "groups of different sizes");
  model_close(model);
}

/* Plans a step of case i, which is refused for this reason unless NULL, and never taken with two tokens.
 * True: there is a plan. */
static bool plan_experts(size_t i, const StepShape *s, const char *because, StepPlan *plan) {
  Error err = {{0}};
  const Status status = step_plan(s, 1, plan, &err);
  if (because ? status != STATUS_MODEL || !strstr(err.text, because) : status != STATUS_OK)
    fail_msg("case %zu: \"%s\"", i, err.text);
  StepPlan several;
  assert_int_equal(step_plan(s, 2, &several, &err), STATUS_MODEL);
  return status == STATUS_OK;
}

/* One size at a time, of a shape that is served: 8 of 64 experts of 256. */
TEST(experts_that_do_not_divide_are_refused) {
  const struct {
    int n_experts, n_chosen, width, n_clusters, group, head_dim;
    const char *because; /* NULL: accepted */
  } cases[] = {
      {64, 8, 256, 8, 128, 128, NULL},
      {128, 16, 256, 16, 32, 128, NULL},
      {60, 8, 256, 8, 128, 128, "number of experts"},
      {136, 8, 256, 8, 128, 128, "number of experts"},
      {64, 17, 256, 8, 128, 128, "number of chosen experts"},
      {64, 8, 128, 8, 128, 128, "width of experts"},  /* an odd number of groups */
      {64, 14, 256, 9, 128, 128, "width of experts"}, /* a cluster's FFN blocks would be of three experts */
      {64, 8, 256, 8, 16, 128, "mixture of experts"},
      {64, 8, 256, 8, 128, 64, "size of heads"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    StepShape s = small_shape();
    s.n_experts = cases[i].n_experts, s.n_chosen = cases[i].n_chosen, s.n_clusters = cases[i].n_clusters;
    s.intermediate = cases[i].n_chosen * cases[i].width;
    s.group = cases[i].group, s.head_dim = cases[i].head_dim;
    StepPlan plan;
    plan_experts(i, &s, cases[i].because, &plan);
  }
}

TEST(varied_experts_it_is_not_for_are_told_why) {
  Model *model = open_config("gpt-oss-20b");
  ModelConfig *c = &model->config;
  ExpertConfig *e = &c->experts;
  ModelLayer *l = &model->layers[7];
  assert_int_equal(step_supports(model, NULL), STATUS_OK);
  assert_int_equal(step_group(model), STEP_FP4_GROUP);
  assert_int_equal(step_attn_group(model), STEP_HALF_GROUP);
  REFUSED_WITH(model, c->layers[3].chunk, 128, "attention in chunks");
  REFUSED_WITH(model, c->layers[3].window, 64, "windows of different sizes");
  REFUSED_WITH(model, c->layers[3].no_sinks, true, "without sinks");
  REFUSED_WITH(model, c->attn_sinks, false, "without sinks");
  REFUSED_WITH(model, c->activation, ACTIVATION_SILU, "a sink for each head");
  REFUSED_WITH(model, e->score, SCORE_SOFTMAX, "another kind than gpt-oss's");
  REFUSED_WITH(model, e->choice_bias, true, "another kind than gpt-oss's");
  REFUSED_WITH(model, e->shared_width, 2880, "another kind than gpt-oss's");
  REFUSED_WITH(model, l->o.bias.data, NULL, "without all biases");
  REFUSED_WITH(model, l->router.bias.data, NULL, "without all biases");
  REFUSED_WITH(model, l->experts[0].down.bias.data, NULL, "without all biases");
  REFUSED_WITH(model, l->router.dtype, DTYPE_F32, "router");
  REFUSED_WITH(model, l->q.dtype, DTYPE_F32, "layers that are not fp16");
  REFUSED_WITH(model, l->q.dtype, l->k.dtype == DTYPE_F16 ? DTYPE_BF16 : DTYPE_F16,
               "layers in fp16 and in bf16");
  REFUSED_WITH(model, l->q.kind, LINEAR_FP4, "groups of different sizes");
  REFUSED_WITH(model, l->experts[0].down.kind, LINEAR_INT8, "groups of different sizes");
  model_close(model);
}

/* One size at a time of gpt-oss-20b's; the step has a kernel for one token and a cache in fp16 alone. */
TEST(varied_experts_that_do_not_divide_are_refused) {
  const struct {
    int hidden, width, expert_width, n_clusters, head_dim, group, attn_group, n_gpus;
    bool q8;
    const char *because; /* NULL: accepted */
  } cases[] = {
      {3072, 2880, 2880, 15, 64, STEP_FP4_GROUP, STEP_HALF_GROUP, 1, false, NULL},
      {1024, 64, 256, 15, 64, STEP_FP4_GROUP, STEP_HALF_GROUP, 1, false, NULL},
      {3072, 2896, 2880, 15, 64, STEP_FP4_GROUP, STEP_HALF_GROUP, 1, false, "hidden size"},
      {4096, 2880, 2880, 15, 64, STEP_FP4_GROUP, STEP_HALF_GROUP, 1, false, "hidden size"},
      {2560, 2560, 2880, 15, 64, STEP_FP4_GROUP, STEP_HALF_GROUP, 1, false, "hidden size"},
      {3072, 2880, 2864, 15, 64, STEP_FP4_GROUP, STEP_HALF_GROUP, 1, false, "width of experts"},
      {3072, 2880, 2880, 3, 64, STEP_FP4_GROUP, STEP_HALF_GROUP, 1, false, "number of KV heads"},
      {3072, 2880, 192, 8, 64, STEP_FP4_GROUP, STEP_HALF_GROUP, 1, false, NULL},
      {3072, 2880, 128, 8, 64, STEP_FP4_GROUP, STEP_HALF_GROUP, 1, false, NULL},
      {3072, 2880, 64, 8, 64, STEP_FP4_GROUP, STEP_HALF_GROUP, 1, false, "intermediate size"},
      {3072, 2880, 2880, 15, 128, STEP_FP4_GROUP, STEP_HALF_GROUP, 1, false, "size of heads"},
      {3072, 2880, 2880, 15, 64, 32, STEP_HALF_GROUP, 1, false, "kind of weights beside experts"},
      {3072, 2880, 2880, 15, 64, STEP_FP4_GROUP, 0, 1, false, "kind of weights beside experts"},
      {3072, 0, 3072, 15, 64, STEP_FP4_GROUP, STEP_HALF_GROUP, 1, false, "kind of weights beside experts"},
      {3072, 2880, 2880, 15, 64, STEP_FP4_GROUP, STEP_HALF_GROUP, 2, false, "number of GPUs"},
      {3072, 2880, 2880, 15, 64, STEP_FP4_GROUP, STEP_HALF_GROUP, 1, true, "cache in 8 bits"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    StepShape s = {.hidden = cases[i].hidden,
                   .width = cases[i].width,
                   .intermediate = 4 * cases[i].expert_width,
                   .n_layers = 24,
                   .n_heads = 64,
                   .n_kv_heads = 8,
                   .vocab_size = 201088,
                   .n_experts = 32,
                   .n_chosen = 4,
                   .group = cases[i].group,
                   .attn_group = cases[i].attn_group,
                   .head_dim = cases[i].head_dim,
                   .n_clusters = cases[i].n_clusters,
                   .n_gpus = cases[i].n_gpus,
                   .q8 = cases[i].q8,
                   .shared_bytes = H200_SHARED};
    StepPlan plan;
    if (plan_experts(i, &s, cases[i].because, &plan)) check_plan(&s, &plan), check_places(&plan);
  }
}

TEST(latent_attention_it_is_not_for_is_told_why) {
  static const float bias[1];
  Model *model = open_config("GLM-4.7-Flash-AWQ");
  ModelConfig *c = &model->config;
  ExpertConfig *e = &c->experts;
  ModelLayer *l = &model->layers[7];
  assert_int_equal(step_supports(model, NULL), STATUS_OK);
  const StepShape s = step_shape(c);
  assert_int_equal(s.n_dense, 1);
  assert_int_equal(s.dense_width, 10240);
  assert_int_equal(s.n_chosen, 5); /* with the shared expert */
  assert_true(step_reaches(&s, false, STEP_LATENT_POSITIONS - 1) && step_reaches(&s, true, 1 << 20));
  assert_false(step_reaches(&s, false, STEP_LATENT_POSITIONS));
  REFUSED_WITH(model, c->latent.kv_rank, 256, "512 + 64");
  REFUSED_WITH(model, c->latent.q_rank, 0, "without a latent of queries");
  REFUSED_WITH(model, e->n_experts, 0, "without experts");
  REFUSED_WITH(model, e->score, SCORE_SOFTMAX, "another kind than GLM-4.7-Flash's");
  REFUSED_WITH(model, e->choice_bias, false, "another kind than GLM-4.7-Flash's");
  REFUSED_WITH(model, e->n_groups, 8, "another kind than GLM-4.7-Flash's");
  REFUSED_WITH(model, e->shared_width, 3072, "MLP of their width");
  REFUSED_WITH(model, c->attn_gate, ATTN_GATE_HEADS, "a gate for each head");
  REFUSED_WITH(model, c->layers[3].mlp, MLP_DENSE, "layers with and without experts");
  REFUSED_WITH(model, l->router.dtype, DTYPE_F32, "router");
  Linear *linears[] = {&l->q_a, &l->kv_a, &l->q, &l->o, &l->experts[0].gate, &l->experts[0].down, &l->down};
  for (size_t i = 0; i < COUNT(linears); i++) {
    REFUSED_WITH(model, linears[i]->group, 64, i < 6 ? "groups of different sizes" : "not like them");
    REFUSED_WITH(model, linears[i]->bias.data, bias, i < 6 ? "bias" : "not like them");
  }
  model_close(model);
}

/* One size at a time of GLM-4.7-Flash's. */
TEST(latent_attention_that_does_not_divide_is_refused) {
  const struct {
    int n_heads, n_clusters, q_rank, nope_dim, value_dim, n_dense, dense_width, group;
    bool q8;
    const char *because; /* NULL: accepted */
  } cases[] = {
      {20, 15, 768, 192, 256, 1, 10240, 128, false, NULL},
      {16, 15, 1280, 128, 128, 3, 8192, 128, false, NULL},
      {20, 15, 768, 192, 256, 0, 0, 128, false, NULL},
      {128, 15, 768, 192, 256, 1, 10240, 128, false, "number of heads of a KV head"},
      {20, 15, 640, 192, 256, 1, 10240, 128, false, "latent attention"},
      {20, 15, 1536, 192, 256, 1, 10240, 128, false, "latent attention"},
      {20, 15, 768, 200, 256, 1, 10240, 128, false, "latent attention"},
      {20, 15, 768, 192, 192, 1, 10240, 128, false, "latent attention"},
      {20, 15, 768, 192, 256, 1, 10368, 128, false, "intermediate size"},
      {20, 15, 768, 192, 256, 1, 1280, 128, false, "intermediate size"},
      {20, 15, 768, 192, 256, 47, 10240, 128, false, "intermediate size"},
      {20, 15, 768, 192, 256, 1, 10240, 64, false, "latent attention"},
      {20, 15, 768, 192, 256, 1, 10240, 128, true, "cache in 8 bits"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    StepShape s = {.hidden = 2048,
                   .intermediate = 5 * 1536,
                   .n_layers = 47,
                   .n_heads = cases[i].n_heads,
                   .n_kv_heads = 1,
                   .head_dim = STEP_LATENT_HEAD,
                   .vocab_size = 154880,
                   .n_experts = 64,
                   .n_chosen = 5,
                   .group = cases[i].group,
                   .n_clusters = cases[i].n_clusters,
                   .q_rank = cases[i].q_rank,
                   .nope_dim = cases[i].nope_dim,
                   .value_dim = cases[i].value_dim,
                   .n_dense = cases[i].n_dense,
                   .dense_width = cases[i].dense_width,
                   .q8 = cases[i].q8,
                   .shared_bytes = H200_SHARED};
    StepPlan plan;
    if (plan_experts(i, &s, cases[i].because, &plan)) check_plan(&s, &plan), check_places(&plan);
  }
}

/* Each of the seven matrices of a layer; only q, k and v may have a bias. */
TEST(layers_it_is_not_for_are_told_why) {
  static const float bias[1];
  Model *model = open_config("Qwen3-0.6B-AWQ");
  ModelLayer *l = &model->layers[5];
  Linear *linears[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
  for (size_t i = 0; i < COUNT(linears); i++) {
    REFUSED_WITH(model, linears[i]->group, 64, "groups of different sizes");
    REFUSED_WITH(model, linears[i]->kind, LINEAR_GROUPED, "4 bits");
    REFUSED_WITH(model, linears[i]->kind, LINEAR_FP8, "groups of different sizes");
    REFUSED_WITH(model, linears[i]->kind, LINEAR_INT8, "groups of different sizes");
    REFUSED_WITH(model, linears[i]->kind, LINEAR_FP4, "groups of different sizes");
    linears[i]->bias.data = bias;
    if (i < 3)
      assert_int_equal(step_supports(model, NULL), STATUS_OK);
    else
      assert_refused(model, "bias");
    linears[i]->bias.data = NULL;
  }
  model_close(model);
}
