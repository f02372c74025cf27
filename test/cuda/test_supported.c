/* test_supported.c - cuda_check_model() refuses models that GPUs do not compute, by reason, and no others. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cuda/one/table.h"
#include "test/tests.h"

enum { N_LAYERS = 3 };

static LayerConfig layer_configs[N_LAYERS];
static ModelLayer layers[N_LAYERS]; /* dense by default */

/* Qwen3's config with a window and YaRN. */
static ModelConfig like_qwen3(void) {
  for (int i = 0; i < N_LAYERS; i++) layer_configs[i] = (LayerConfig){.window = i == 1 ? 4096 : 0};
  return (ModelConfig){.architecture = "Qwen3ForCausalLM",
                       .n_layers = N_LAYERS,
                       .head_dim = 128,
                       .qk_norm = QK_NORM_HEADS,
                       .embedding_scale = 1,
                       .attention_scale = 1 / sqrt(128),
                       .residual_scale = 1,
                       .gate_scale = 1,
                       .mlp_scale = 1,
                       .logit_divisor = 1,
                       .rope = {.kind = ROPE_YARN, .rotary_dim = 128, .theta = 1e6, .factor = 4},
                       .layers = layer_configs};
}

static void refused(ModelConfig config, const char *words) {
  Error err;
  Model model = {.config = config, .layers = layers};
  if (cuda_check_model(&model, &err) != STATUS_MODEL) fail_msg("taken, expected: %s", words);
  char expected[200];
  snprintf(expected, sizeof expected, "Qwen3ForCausalLM has %s, which GPUs do not compute yet", words);
  assert_string_equal(err.text, expected);
}

#define TAKEN(member, value)                                                                                 \
  do {                                                                                                       \
    Error err;                                                                                               \
    Model model = {.config = like_qwen3(), .layers = layers};                                                \
    model.config.member = (value);                                                                           \
    assert_int_equal(cuda_check_model(&model, &err), STATUS_OK);                                             \
  } while (0)

TEST(every_architecture_has_its_kernels) {
  TAKEN(norms, NORM_AROUND);
  TAKEN(norms, NORM_AFTER);
  TAKEN(norm, NORM_PLUS_ONE);
  TAKEN(qk_norm, QK_NORM_NONE);
  TAKEN(qk_norm, QK_NORM_WHOLE);
  TAKEN(qk_norm, QK_NORM_CENTRED);
  TAKEN(activation, ACTIVATION_GELU_EXACT);
  TAKEN(qkv_bias, true);
  TAKEN(activation, ACTIVATION_GELU_TANH);
  TAKEN(embedding_scale, 12);
  TAKEN(attention_scale, 0.1);
  TAKEN(residual_scale, 0.22);
  TAKEN(norm, NORM_CENTRED);
  TAKEN(parallel, PARALLEL_ONE_NORM);
  TAKEN(norm, NORM_CENTRED_BIAS);
  TAKEN(head_bias, true);
  TAKEN(gate_scale, 0.5);
  TAKEN(mlp_scale, 0.5);
  TAKEN(logit_divisor, 16);
  TAKEN(attention_cap, 50);
  TAKEN(logit_cap, 30);
  TAKEN(fused, FUSES_ALL);
  TAKEN(fused, FUSES_GATE_UP);
  TAKEN(rope.rotary_dim, 96);
  TAKEN(rope.kind, ROPE_LONGROPE);
  TAKEN(rope.neighbours, true);
  TAKEN(qk_norm_after_rope, true);
  TAKEN(query_scale_beta, 0.1);
  TAKEN(head_dim, 512);
  TAKEN(layers[1].head_dim, 64);
  TAKEN(layers[2].n_kv_heads, 3);
  TAKEN(layers[0].intermediate, 24);
  TAKEN(layers[2].k_as_v, true);
  TAKEN(layers[2].shares_kv, true);
  TAKEN(per_layer_width, 16);
  TAKEN(v_norm, true);
  TAKEN(rope.kind, ROPE_PROPORTIONAL);
  TAKEN(attn_sinks, true);
  TAKEN(embedding_norm, true);
  TAKEN(qk_norm, QK_NORM_PLAIN);
  TAKEN(norm, NORM_PLUS_ONE_INSIDE);
  TAKEN(post_norm_eps, 1e-8);
  TAKEN(attn_gate, ATTN_GATE_NUMBERS);
  TAKEN(attn_gate, ATTN_GATE_HEADS);
  TAKEN(attn_gate, ATTN_GATE_IN_Q);
  TAKEN(delta.n_key_heads, 16);
  Error err;
  const Model model = {.config = like_qwen3(), .layers = layers};
  layer_configs[1].rope = ROPE_NONE, layer_configs[2].rope = ROPE_LOCAL;
  assert_int_equal(cuda_check_model(&model, &err), STATUS_OK);
}

#define REFUSED(member, value, words)                                                                        \
  do {                                                                                                       \
    ModelConfig config = like_qwen3();                                                                       \
    config.member = (value);                                                                                 \
    refused(config, words);                                                                                  \
  } while (0)

TEST(parts_without_a_kernel_are_refused_by_name) {
  REFUSED(layer_scalar, true, "a factor of what leaves a layer");
  TAKEN(altup.n, 4);
  layers[1].altup_correct.kind = LINEAR_FP8;
  REFUSED(altup.n, 4, "AltUp with quantised coefficients");
  layers[1] = (ModelLayer){0};
  TAKEN(conv.taps, 3);
  TAKEN(value_dim, 64);
  ModelConfig many = like_qwen3();
  many.value_dim = 64, many.n_heads = many.n_kv_heads = 192;
  Error kept;
  const Model largest = {.config = many, .layers = layers};
  assert_int_equal(cuda_check_model(&largest, &kept), STATUS_OK);
  many.n_kv_heads = 96, layer_configs[2].n_kv_heads = 193;
  refused(many, "values that are shorter than keys, and more than 12288 numbers of a token");
  REFUSED(experts, ((ExpertConfig){.n_experts = 4, .n_chosen = 2, .scales_input = true}),
          "several experts of a token, each with an input of its own");
  ModelConfig uneven = like_qwen3();
  layer_configs[1] = (LayerConfig){.chunk = 48};
  refused(uneven, "attention in chunks whose size is no power of two");
  layer_configs[1].chunk = 64;
  Error none;
  const Model chunked = {.config = uneven, .layers = layers};
  assert_int_equal(cuda_check_model(&chunked, &none), STATUS_OK);
  uneven.n_heads = 2, uneven.head_dim = 34;
  refused(uneven, "heads that have together a number of outputs that is no multiple of 8");
  uneven.n_heads = 4;
  layer_configs[1].head_dim = 33;
  refused(uneven, "heads that have together a number of outputs that is no multiple of 8");
  uneven = like_qwen3();
  uneven.n_heads = 4, uneven.head_dim = 34;
  Error unused;
  Model even = {.config = uneven, .layers = layers};
  assert_int_equal(cuda_check_model(&even, &unused), STATUS_OK);
  REFUSED(latent.kv_rank, 24, "latent attention whose kv_lora_rank and v_head_dim are not multiples of 16");
  REFUSED(latent.value_dim, 8, "latent attention whose kv_lora_rank and v_head_dim are not multiples of 16");
  ModelConfig config = like_qwen3();
  config.latent = (LatentConfig){.kv_rank = 64, .nope_dim = 24, .rope_dim = 8, .value_dim = 48};
  Error err;
  Model model = {.config = config, .layers = layers};
  assert_int_equal(cuda_check_model(&model, &err), STATUS_OK);
  config.n_heads = 1025;
  refused(config, "latent attention with more than 1024 heads");
  Linear heads[1] = {0};
  layers[1].key_heads = heads, layers[1].kv_b.kind = LINEAR_INT8;
  config.n_heads = 8;
  refused(config, "latent attention with kv_b_proj in W8A8");
  layers[1] = (ModelLayer){0};
  config = like_qwen3();
  config.streams.n = 4,
  config.indexer = (IndexerConfig){.block = 4, .budget = 8, .n_heads = 2, .head_dim = 8};
  config.n_heads = 32, config.n_kv_heads = 2, config.head_dim = 256;
  model.config = config;
  assert_int_equal(cuda_check_model(&model, &err), STATUS_OK);
  const char *sizes = "attention to chosen positions with heads that it does not take";
  config.head_dim = 72;
  refused(config, sizes);
  config.head_dim = 512;
  refused(config, sizes);
  config.head_dim = 64, config.n_kv_heads = 1;
  refused(config, sizes);
}

static Status with_scales(float last, bool dummy, Error *err) {
  float scales[2][8];
  for (int i = 0; i < 16; i++) scales[i / 8][i % 8] = 0.01f;
  scales[1][7] = last;
  Linear *linear = &layers[N_LAYERS - 1].up;
  *linear =
      (Linear){.kind = LINEAR_GROUPED, .bits = 8, .n_in = 64, .n_out = 8, .group = 32, .scales = scales};
  const Model model = {.config = like_qwen3(), .layers = layers, .dummy = dummy};
  const Status status = cuda_check_model(&model, err);
  *linear = (Linear){0};
  return status;
}

/* Kernels read scales as fp16: numbers in its normal range are taken, and smaller ones beside larger ones. */
TEST(scales_beyond_fp16_are_refused) {
  Error err;
  assert_int_equal(with_scales(0.02f, false, &err), STATUS_OK);
  assert_int_equal(with_scales(-65504, false, &err), STATUS_OK);
  assert_int_equal(with_scales(1e-7f, false, &err), STATUS_OK);
  assert_int_equal(with_scales(65536, false, &err), STATUS_MODEL);
  assert_string_equal(err.text,
                      "Qwen3ForCausalLM has scales that fp16 cannot hold, which GPUs do not compute yet");
  assert_int_equal(with_scales(65536, true, &err), STATUS_OK); /* a dummy model has no scales to check */
  float tiny[16];
  for (int i = 0; i < 16; i++) tiny[i] = 1e-6f;
  Linear *linear = &layers[0].q;
  *linear = (Linear){.kind = LINEAR_GROUPED, .bits = 8, .n_in = 64, .n_out = 8, .group = 32, .scales = tiny};
  refused(like_qwen3(), "scales that fp16 cannot hold");
  linear->scales = NULL; /* before model_prepare() */
  const Model model = {.config = like_qwen3(), .layers = layers};
  assert_int_equal(cuda_check_model(&model, &err), STATUS_OK);
  *linear = (Linear){0};
}

/* So are those of matrices beside the layers, if the model has these. */
TEST(scales_beside_the_layers_count) {
  float scales[16];
  for (int i = 0; i < 16; i++) scales[i] = 65536;
  const Linear large = {
      .kind = LINEAR_GROUPED, .bits = 8, .n_in = 64, .n_out = 8, .group = 32, .scales = scales};
  Error err;
  Model model = {.config = like_qwen3(), .layers = layers};
  Linear *const others[] = {&model.head,   &model.input_projection, &model.mix_down,
                            &model.mix_up, &model.streams_in[0],    &model.streams_out[1]};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    *others[i] = large;
    assert_int_equal(cuda_check_model(&model, &err), STATUS_MODEL);
    *others[i] = (Linear){0};
    assert_int_equal(cuda_check_model(&model, &err), STATUS_OK);
  }
}

/* A layer may be some columns of a shared matrix: only its own scales count, in each group. */
TEST(scales_of_a_part_of_a_matrix_are_its_own) {
  enum { GROUPS = 3, OWN = 8, OTHERS = 16 };
  for (int group = 0; group < GROUPS; group++)
    for (int column = 0; column < OWN + OTHERS; column++) {
      float scales[GROUPS][OWN + OTHERS];
      for (int i = 0; i < GROUPS * (OWN + OTHERS); i++)
        scales[i / (OWN + OTHERS)][i % (OWN + OTHERS)] = 0.01f;
      scales[group][column] = 65536;
      layers[0].q = (Linear){.kind = LINEAR_GROUPED,
                             .bits = 8,
                             .n_in = 32 * GROUPS,
                             .n_out = OWN,
                             .skip = OTHERS,
                             .group = 32,
                             .scales = scales};
      Error err;
      const Model model = {.config = like_qwen3(), .layers = layers};
      assert_int_equal(cuda_check_model(&model, &err), column < OWN ? STATUS_MODEL : STATUS_OK);
    }
  layers[0].q = (Linear){0};
}

TEST(every_kind_of_weights_has_a_kernel) {
  static const Linear kinds[] = {{.kind = LINEAR_AWQ, .bits = 4},     {.kind = LINEAR_GROUPED, .bits = 4},
                                 {.kind = LINEAR_GROUPED, .bits = 8}, {.kind = LINEAR_FP4, .bits = 4},
                                 {.kind = LINEAR_FP8, .bits = 8},     {.kind = LINEAR_INT8, .bits = 8}};
  Error err;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    layers[N_LAYERS - 1].up = kinds[i];
    const Model model = {.config = like_qwen3(), .layers = layers};
    assert_int_equal(cuda_check_model(&model, &err), STATUS_OK);
  }
  layers[N_LAYERS - 1].up = (Linear){0};
}

TEST(only_some_matrices_may_be_in_the_order_of_activations) {
  static const int32_t order[] = {0};
  Error err;
  Model model = {.config = like_qwen3(), .layers = layers};
  model.config.quant.ordered = true;
  layers[1].q.kind = layers[1].router.kind = LINEAR_AWQ;
  layers[1].router.name = "the router";
  layers[1].q.order = order;
  assert_int_equal(cuda_check_model(&model, &err), STATUS_OK);
  layers[1].router.order = order;
  assert_int_equal(cuda_check_model(&model, &err), STATUS_MODEL);
  assert_string_equal(err.text,
                      "the router has inputs in the order of activations, which GPUs do not gather there");
  layers[1] = (ModelLayer){0};
}
