/* test_experts_config.c - mixtures of experts in config.json, as transformers 5.23 reads them
 * (models/NAME/configuration_NAME.py and the routers of modeling_NAME.py). */
#include <math.h>

#include "config_text.h"
#include "model/config/architectures.h"

/* --- what is left out */

static const struct {
  const char *model_type, *members; /* members that the family needs */
  int n_experts, n_chosen, width, shared_width;
  ExpertScore score;
  bool renormalise, choice_bias, biases, shared_gate;
  const char *layers; /* of the first four: e(xperts), d(ense) */
} defaults[] = {
    /* clang-format off */
  {"qwen2_moe", "", 60, 4, 1408, 5632, SCORE_SOFTMAX, false, false, false, true, "eeee"},
  {"qwen3_moe", "", 128, 8, 768, 0, SCORE_SOFTMAX, false, false, false, false, "eeee"},
  {"qwen3_5_moe_text", "", 256, 8, 512, 512, SCORE_SOFTMAX, true, false, false, true, "eeee"},
  {"qwen3_next", "", 512, 10, 512, 512, SCORE_SOFTMAX, true, false, false, true, "eeee"},
  {"mixtral", "", 8, 2, 14336, 0, SCORE_SOFTMAX, true, false, false, false, "eeee"},
  {"gpt_oss", ", 'rope_parameters': {'rope_type': 'default'}", 128, 4, 2880, 0, SCORE_CHOSEN, false, false,
   true, false, "eeee"},
  {"glm4_moe", ", 'head_dim': 128", 128, 8, 1408, 1408, SCORE_SIGMOID, true, true, false, false, "deee"},
  {"granitemoe", "", 8, 2, 11008, 0, SCORE_CHOSEN, false, false, false, false, "eeee"},
  {"olmoe", "", 64, 8, 2048, 0, SCORE_SOFTMAX, false, false, false, false, "eeee"},
  {"ernie4_5_moe", "", 64, 6, 1536, 3072, SCORE_SOFTMAX, true, true, false, false, "deee"},
  {"lfm2_moe", "", 32, 4, 1792, 0, SCORE_SIGMOID, true, true, false, false, "ddee"},
    /* clang-format on */
};

static void assert_experts_in(const ModelConfig *c, const char *letters) {
  for (int i = 0; letters[i]; i++)
    assert_int_equal(config_layer(c, i).n_experts, letters[i] == 'e' ? c->experts.n_experts : 0);
}

static void what_is_left_out_is_as_in_transformers(void **state) {
  (void)state;
  size_t n = 0;
  for (size_t i = 0; i < n_architectures; i++)
    n += architectures[i].architecture && architectures[i].experts && !architectures[i].experts->enable_key;
  assert_int_equal(n, sizeof defaults / sizeof *defaults);
  for (size_t i = 0; i < n; i++) {
    char text[200];
    snprintf(text, sizeof text, "{'model_type': '%s', 'num_hidden_layers': 4%s}", defaults[i].model_type,
             defaults[i].members);
    ModelConfig c = accepted(text);
    const ExpertConfig *e = &c.experts;
    assert_int_equal(e->n_experts, defaults[i].n_experts);
    assert_int_equal(e->n_chosen, defaults[i].n_chosen);
    assert_int_equal(e->width, defaults[i].width);
    assert_int_equal(e->shared_width, defaults[i].shared_width);
    assert_int_equal(e->score, defaults[i].score);
    assert_int_equal(e->renormalise, defaults[i].renormalise);
    assert_int_equal(e->choice_bias, defaults[i].choice_bias);
    assert_true(e->biases == defaults[i].biases && e->router_bias == defaults[i].biases);
    assert_int_equal(e->shared_gate, defaults[i].shared_gate);
    assert_true(e->scale == 1 && e->n_groups == 1 && e->n_chosen_groups == 1 && !e->own_norms);
    assert_experts_in(&c, defaults[i].layers);
    assert_int_equal(config_layer(&c, 3).intermediate, defaults[i].shared_width);
    assert_int_equal(config_layer(&c, 0).intermediate,
                     defaults[i].layers[0] == 'd' ? c.intermediate : defaults[i].shared_width);
    assert_int_equal(c.activation, defaults[i].biases ? ACTIVATION_CLAMPED : ACTIVATION_SILU);
    config_release(&c);
  }
}

/* --- what configs say */

static void layers_may_be_dense(void **state) {
  (void)state;
  static const struct {
    const char *members, *layers;
  } cases[] = {
      {"'model_type': 'qwen3_moe', 'decoder_sparse_step': 2", "dede"},
      {"'model_type': 'qwen3_moe', 'mlp_only_layers': [0, 2, 77]", "dede"},
      {"'model_type': 'qwen2_moe', 'mlp_only_layers': [3], 'decoder_sparse_step': 2", "dedd"},
      {"'model_type': 'qwen3_5_moe_text', 'mlp_only_layers': [0]", "eeee"},
      {"'model_type': 'glm4_moe', 'head_dim': 128, 'first_k_dense_replace': 3", "ddde"},
      {"'model_type': 'glm4_moe', 'head_dim': 128, 'first_k_dense_replace': 9", "dddd"},
      {"'model_type': 'lfm2_moe', 'num_dense_layers': 0", "eeee"},
      {"'model_type': 'ernie4_5_moe', 'moe_layer_interval': 2, 'moe_layer_end_index': 2", "dedd"},
      {"'model_type': 'ernie4_5_moe', 'moe_layer_start_index': 0, 'moe_layer_end_index': 1", "eedd"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[300];
    snprintf(text, sizeof text, "{%s, 'num_hidden_layers': 4}", cases[i].members);
    ModelConfig c = accepted(text);
    assert_experts_in(&c, cases[i].layers);
    config_release(&c);
  }
}

static void members_are_read(void **state) {
  (void)state;
  ModelConfig c =
      accepted("{'model_type': 'glm4_moe', 'num_hidden_layers': 2, 'head_dim': 128, 'n_routed_experts': 16, "
               "'num_experts_per_tok': 3, 'n_group': 4, 'topk_group': 2, 'norm_topk_prob': false, "
               "'routed_scaling_factor': 2.5, 'n_shared_experts': 3, 'moe_intermediate_size': 64, "
               "'use_qk_norm': true, 'attention_bias': true}");
  assert_true(c.experts.n_experts == 16 && c.experts.n_chosen == 3);
  assert_true(c.experts.n_groups == 4 && c.experts.n_chosen_groups == 2);
  assert_true(!c.experts.renormalise && c.experts.scale == 2.5 && c.experts.shared_width == 192);
  assert_true(c.qk_norm == QK_NORM_HEADS && c.qkv_bias && !c.o_bias);
  config_release(&c);
  c = accepted("{'model_type': 'lfm2_moe', 'use_expert_bias': false, 'tie_embedding': false}");
  assert_true(!c.experts.choice_bias && !c.tied_embeddings && c.experts.sum_plus == 1e-6);
  config_release(&c);
  c = accepted(
      "{'model_type': 'gemma4_text', 'hidden_size_per_layer_input': 0, 'enable_moe_block': true, "
      "'num_experts': 128, 'top_k_experts': 8, 'moe_intermediate_size': 704, 'intermediate_size': 2112}");
  assert_true(c.experts.own_norms && c.experts.renormalise && c.experts.width == 704);
  assert_true(c.experts.shared_width == 2112 && config_layer(&c, 0).intermediate == 2112);
  config_release(&c);
  c = accepted("{'model_type': 'qwen3_next', 'num_hidden_layers': 4}");
  assert_true(c.delta.interleaved && config_layer(&c, 0).kind == LAYER_DELTA);
  config_release(&c);
}

static void what_is_wrong_is_named(void **state) {
  (void)state;
  static const char *const cases[][3] = {
      {"qwen3_moe", "'num_experts': 4, 'num_experts_per_tok': 5",
       "num_experts_per_tok is 5, expected at most num_experts, 4"},
      {"ernie4_5_moe", "'moe_num_experts': 4, 'moe_k': 5", "moe_k is 5, expected at most moe_num_experts, 4"},
      {"qwen3_moe", "'num_experts': 0", "num_experts is 0, expected an integer from 1 to 4096"},
      {"qwen3_moe", "'num_experts': 64, 'num_local_experts': 32",
       "num_experts is 64 and num_local_experts is 32, expected the same"},
      {"qwen3_moe", "'num_experts_per_tok': 65", "num_experts_per_tok is 65, expected at most 64"},
      {"qwen3_moe", "'moe_intermediate_size': 0", "moe_intermediate_size is 0"},
      {"qwen3_moe", "'use_sliding_window': true", "use_sliding_window is true, which is not supported"},
      {"qwen3_moe", "'mlp_only_layers': [0.5]", "mlp_only_layers holds 0.5, expected numbers of layers"},
      {"qwen3_moe", "'mlp_only_layers': 3", "mlp_only_layers is 3, expected a list"},
      {"qwen3_moe", "'num_experts': 4096, 'num_hidden_layers': 64", "64 layers of 4096 experts are too many"},
      {"glm4_moe", "'head_dim': 128, 'n_group': 3", "n_group is 3, expected a divisor of the 128 experts"},
      {"glm4_moe", "'head_dim': 128, 'n_group': 128", "in groups of two or more"},
      {"glm4_moe", "'head_dim': 128, 'n_group': 64, 'topk_group': 3",
       "topk_group is 3, expected groups with at least 8 experts, of 64 groups of 2"},
      {"olmoe", "'clip_qkv': 8.0", "clip_qkv is not supported, expected null"},
      {"gpt_oss", "'rope_theta': 5e4", "rope_scaling and rope_parameters are missing"},
      {"gpt_oss", "'rope_scaling': {'rope_type': 'default'}, 'swiglu_limit': 5",
       "swiglu_limit 5 and swiglu_alpha 1.702 is not supported, expected silu, 7, 1.702"},
      {"gemma4_text", "'hidden_size_per_layer_input': 0, 'enable_moe_block': true", "num_experts is missing"},
      {"gemma4_text", "'enable_moe_block': true, 'num_experts': 8, 'top_k_experts': 2",
       "moe_intermediate_size is missing"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_members_refused(cases[i][0], cases[i][1], cases[i][2]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_left_out_is_as_in_transformers),
      cmocka_unit_test(layers_may_be_dense),
      cmocka_unit_test(members_are_read),
      cmocka_unit_test(what_is_wrong_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
