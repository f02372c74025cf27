/* test_experts_config.c - mixtures of experts in config.json, as transformers 5.23 reads them
 * (models/NAME/configuration_NAME.py and the routers of modeling_NAME.py). */
#include <math.h>

#include "config_text.h"
#include "model/config/architectures.h"

#define ROUTED ", 'n_routed_experts': 8, 'num_experts_per_tok': 2"

/* --- what is left out */

static const struct {
  const char *model_type, *members; /* members that the family needs */
  int n_experts, n_chosen, width, shared_width;
  ExpertScore score;
  bool renormalise, choice_bias, biases, shared_gate;
  const char *layers; /* of the first four: e(xperts), d(ense) */
  double scale;
} defaults[] = {
    /* clang-format off */
  {"qwen2_moe", "", 60, 4, 1408, 5632, SCORE_SOFTMAX, false, false, false, true, "eeee", 1},
  {"qwen3_moe", "", 128, 8, 768, 0, SCORE_SOFTMAX, false, false, false, false, "eeee", 1},
  {"qwen3_5_moe_text", "", 256, 8, 512, 512, SCORE_SOFTMAX, true, false, false, true, "eeee", 1},
  {"qwen4_exp_text", "", 512, 10, 512, 512, SCORE_SOFTMAX, true, false, false, true, "eeee", 1},
  {"qwen3_next", "", 512, 10, 512, 512, SCORE_SOFTMAX, true, false, false, true, "eeee", 1},
  {"mixtral", "", 8, 2, 14336, 0, SCORE_SOFTMAX, true, false, false, false, "eeee", 1},
  {"gpt_oss", ", 'rope_parameters': {'rope_type': 'default'}", 128, 4, 2880, 0, SCORE_CHOSEN, false, false,
   true, false, "eeee", 1},
  {"glm4_moe", ", 'head_dim': 128", 128, 8, 1408, 1408, SCORE_SIGMOID, true, true, false, false, "deee", 1},
  {"granitemoe", "", 8, 2, 11008, 0, SCORE_CHOSEN, false, false, false, false, "eeee", 1},
  {"olmoe", "", 64, 8, 2048, 0, SCORE_SOFTMAX, false, false, false, false, "eeee", 1},
  {"ernie4_5_moe", "", 64, 6, 1536, 3072, SCORE_SOFTMAX, true, true, false, false, "deee", 1},
  {"lfm2_moe", "", 32, 4, 1792, 0, SCORE_SIGMOID, true, true, false, false, "ddee", 1},
  {"minimax_m2", "", 256, 8, 1536, 0, SCORE_SIGMOID, true, true, false, false, "eeee", 1},
  {"mellum", "", 64, 8, 896, 0, SCORE_SOFTMAX, true, false, false, false, "eeee", 1},
  {"dots1", ", 'n_routed_experts': 128, 'num_experts_per_tok': 6, 'n_shared_experts': 2", 128, 6, 1408, 2816,
   SCORE_SIGMOID, false, true, false, false, "eeee", 1},
  {"hunyuan_v1_moe", "", 1, 1, 11008, 11008, SCORE_SOFTMAX, true, false, false, false, "eeee", 1},
  {"exaone_moe", "", 64, 8, 1024, 1024, SCORE_SIGMOID, true, true, false, false, "deee", 2.5},
  {"solar_open", "", 128, 8, 1280, 1280, SCORE_SIGMOID, true, true, false, false, "eeee", 1},
  {"hy_v3", "", 192, 8, 1536, 1536, SCORE_SIGMOID, true, true, false, false, "deee", 2.826},
  {"granitemoeshared", "", 8, 2, 11008, 0, SCORE_CHOSEN, false, false, false, false, "eeee", 1},
  {"granitemoe_swa", "", 8, 2, 11008, 0, SCORE_CHOSEN, false, false, false, false, "eeee", 1},
  {"afmoe", "", 64, 6, 1408, 2816, SCORE_SIGMOID, true, true, false, false, "deee", 1},
  {"flex_olmo", "", 7, 5, 11008, 0, SCORE_SOFTMAX, false, false, false, false, "eeee", 1},
  {"kolibri1", "", 384, 6, 512, 512, SCORE_CHOSEN_SIGMOID, false, true, false, false, "eeee", 1},
  {"flint", "", 256, 6, 512, 1024, SCORE_SIGMOID, true, false, false, false, "ddee", 1},
  {"mimo_v2_flash", "", 256, 8, 2048, 0, SCORE_SIGMOID, true, true, false, false, "deee", 1},
  {"llama4_text", "", 16, 1, 8192, 8192, SCORE_CHOSEN_SIGMOID, false, false, false, false, "eeee", 1},
  {"axk1", ", 'n_group': 1, 'topk_group': 1", 192, 8, 2048, 2048, SCORE_SIGMOID, true, true, false, false,
   "deee", 2.5},
  {"cohere2_moe", "", 8, 2, 22528, 0, SCORE_CHOSEN, false, false, false, false, "eeee", 1},
  {"phimoe", "", 16, 2, 6400, 0, SCORE_CHOSEN_NEAR, false, false, false, false, "eeee", 1},
  {"laguna", "", 256, 8, 512, 512, SCORE_SIGMOID, true, true, false, false, "deee", 1},
  {"nemotron_h", ", 'layers_block_type': ['moe', 'moe', 'moe', 'moe']", 8, 2, 7688, 7688, SCORE_SIGMOID, true,
   true, false, false, "eeee", 1},
  {"deepseek_v2", ", 'num_experts_per_tok': 6", 64, 6, 1407, 2814, SCORE_SOFTMAX, false, false, false, false,
   "eeee", 1},
  {"deepseek_v3", ", 'n_group': 1, 'topk_group': 1", 256, 8, 2048, 2048, SCORE_SIGMOID, true, true, false,
   false, "ddde", 2.5},
  {"kimi_linear", "", 256, 8, 1024, 1024, SCORE_SIGMOID, true, true, false, false, "deee", 2.446},
  {"bailing_hybrid", ", 'n_group': 1, 'topk_group': 1", 512, 8, 768, 768, SCORE_SIGMOID, true, true,
   false, false, "ddee", 2.5},
  {"glm4_moe_lite", "", 64, 4, 1536, 1536, SCORE_SIGMOID, true, true, false, false, "deee", 1.8},
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
    n += architectures[i].architecture && architectures[i].experts.names &&
         !architectures[i].experts.enable_key && !has(&architectures[i], MAY_LACK_EXPERTS);
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
    assert_int_equal(e->scales_input, strcmp(defaults[i].model_type, "llama4_text") == 0);
    assert_int_equal(e->post_norm, strcmp(defaults[i].model_type, "axk1") == 0);
    assert_true(e->scale == defaults[i].scale && e->n_groups == 1 && e->n_chosen_groups == 1 &&
                !e->own_norms);
    assert_experts_in(&c, defaults[i].layers);
    assert_int_equal(config_layer(&c, 3).intermediate, defaults[i].shared_width);
    assert_int_equal(config_layer(&c, 0).intermediate,
                     defaults[i].layers[0] == 'd' ? c.intermediate : defaults[i].shared_width);
    assert_int_equal(c.activation, defaults[i].biases         ? ACTIVATION_CLAMPED
                                   : is_ungated(c.activation) ? ACTIVATION_RELU
                                                              : ACTIVATION_SILU);
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
      {"'model_type': 'llama4_text', 'interleave_moe_layer_step': 2", "dede"},
      {"'model_type': 'llama4_text', 'interleave_moe_layer_step': 2, 'moe_layers': [0, 3, 77]", "edde"},
      {"'model_type': 'llama4_text', 'moe_layers': []", "dddd"},
      {"'model_type': 'glm4_moe', 'head_dim': 128, 'first_k_dense_replace': 3", "ddde"},
      {"'model_type': 'glm4_moe', 'head_dim': 128, 'first_k_dense_replace': 9", "dddd"},
      {"'model_type': 'lfm2_moe', 'num_dense_layers': 0", "eeee"},
      {"'model_type': 'ernie4_5_moe', 'moe_layer_interval': 2, 'moe_layer_end_index': 2", "dedd"},
      {"'model_type': 'ernie4_5_moe', 'moe_layer_start_index': 0, 'moe_layer_end_index': 1", "eedd"},
      {"'model_type': 'mellum', 'mlp_layer_types': ['sparse', 'dense', 'sparse', 'dense']", "eded"},
      {"'model_type': 'exaone_moe', 'first_k_dense_replace': 2", "ddee"},
      {"'model_type': 'exaone_moe', 'first_k_dense_replace': 2, 'mlp_layer_types': ['sparse', 'sparse', "
       "'sparse', 'dense']",
       "eeed"},
      {"'model_type': 'hy_v3', 'first_k_dense_replace': 2, 'mlp_layer_types': null", "deee"},
      {"'model_type': 'solar_open', 'first_k_dense_replace': 2", "eeee"},
      {"'model_type': 'afmoe', 'num_dense_layers': 2", "ddee"},
      {"'model_type': 'deepseek_v2', 'num_experts_per_tok': 2, 'first_k_dense_replace': 1", "deee"},
      {"'model_type': 'deepseek_v3', 'first_k_dense_replace': 2", "ddee"},
      {"'model_type': 'glm4_moe_lite', 'mlp_layer_types': ['dense', 'dense', 'sparse', 'sparse']", "ddee"},
      {"'model_type': 'cohere2_moe', 'first_k_dense_replace': 2", "ddee"},
      {"'model_type': 'axk1', 'first_k_dense_replace': 2", "ddee"},
      {"'model_type': 'axk1', 'moe_layer_freq': 2", "dded"},
      {"'model_type': 'axk1', 'moe_layer_freq': 2, 'mlp_layer_types': ['sparse', 'dense', 'sparse', "
       "'sparse']",
       "edee"},
      {"'model_type': 'cohere2_moe', 'mlp_layer_types': ['dense', 'sparse', 'sparse', 'dense']", "deed"},
      {"'model_type': 'flint', 'mlp_only_layers': []", "eeee"},
      {"'model_type': 'flint', 'mlp_only_layers': [3]", "eeed"},
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
  c = accepted(
      "{'model_type': 'hunyuan_v1_moe', 'num_hidden_layers': 2, 'num_experts': [64, 64], 'moe_topk': "
      "[8, 8], 'intermediate_size': 3072, 'moe_intermediate_size': [5, 5], 'norm_topk_prob': false}");
  assert_true(c.experts.n_experts == 64 && c.experts.n_chosen == 8 && c.experts.renormalise);
  assert_true(c.experts.width == 3072 && c.experts.shared_width == 3072 && c.qk_norm_after_rope);
  config_release(&c);
  c = accepted(
      "{'model_type': 'granitemoeshared', 'shared_intermediate_size': 1024, 'intermediate_size': 512, "
      "'logits_scaling': 6}");
  assert_true(c.experts.width == 512 && c.experts.shared_width == 1024 && c.logit_divisor == 6);
  config_release(&c);
  c = accepted(
      "{'model_type': 'hy_v3', 'router_scaling_factor': 3, 'num_shared_experts': 2, 'mlp_bias': true}");
  assert_true(c.experts.scale == 3 && c.experts.shared_width == 3072 && c.mlp_bias && !c.experts.biases);
  config_release(&c);
  c = accepted(
      "{'model_type': 'deepseek_v2', 'num_experts_per_tok': 6, 'n_routed_experts': 160, 'n_group': 8, "
      "'topk_group': 3, 'topk_method': 'group_limited_greedy', 'routed_scaling_factor': 16.0}");
  assert_true(c.experts.n_groups == 8 && c.experts.n_chosen_groups == 3 && c.experts.group_is_best);
  assert_true(c.experts.scale == 16 && !c.experts.renormalise);
  config_release(&c);
  c = accepted("{'model_type': 'deepseek_v2', 'num_experts_per_tok': 6, 'n_group': 8, 'topk_group': 3}");
  assert_true(c.experts.n_groups == 1 && c.experts.n_chosen_groups == 1 && !c.experts.group_is_best);
  config_release(&c);
  c = accepted("{'model_type': 'qwen3_next', 'num_hidden_layers': 4}");
  assert_true(c.delta.interleaved && config_layer(&c, 0).kind == LAYER_DELTA);
  config_release(&c);
}

/* Windows, and layers without a rope, as assert_layers() has them. */
static void layers_differ(void **state) {
  (void)state;
  static const char *const cases[][3] = {
      {"mellum", "", "gggg"},
      {"mellum", ", 'sliding_window': null", "gggg"},
      {"mellum",
       ", 'layer_types': ['full_attention', 'sliding_attention', 'sliding_attention', 'full_attention']",
       "gLLg"},
      {"dots1", ROUTED, "gggg"},
      {"dots1", ROUTED ", 'max_window_layers': 3", "gggG"},
      {"dots1", ROUTED ", 'max_window_layers': 3, 'sliding_window': null", "gggg"},
      {"dots1", ROUTED ", 'use_sliding_window': false, 'max_window_layers': 1", "gGGG"},
      {"exaone_moe", "", "GGGn"},
      {"exaone_moe", ", 'sliding_window_pattern': 2", "GnGn"},
      {"exaone_moe",
       ", 'sliding_window_pattern': 'LLLG', 'layer_types': ['sliding_attention', 'full_attention', "
       "'full_attention', 'sliding_attention']",
       "GnnG"},
      {"granitemoe_swa", "", "gGGG"},
      {"granitemoe_swa", ", 'layer_rope_theta': [0, 5, 0, 7]", "nGNL"},
      {"afmoe", "", "GGGn"},
      {"afmoe", ", 'global_attn_every_n_layers': 3", "GGnG"},
      {"afmoe", ", 'layer_types': ['full_attention', 'full_attention', 'full_attention', 'full_attention']",
       "nnnn"},
      {"kolibri1", "", "GGGG"},
      {"kolibri1",
       ", 'layer_types': ['full_attention', 'sliding_attention', 'sliding_attention', "
       "'full_attention']",
       "nGGn"},
      {"flint", "", "nnGn"},
      {"laguna", "", "gggg"},
      {"laguna",
       ", 'layer_types': ['full_attention', 'sliding_attention', 'sliding_attention', 'full_attention']",
       "gLLg"},
      {"minimax_m2", ", 'sliding_window': 7", "gggg"},
      {"solar_open", ", 'sliding_window': 7", "gggg"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[300];
    snprintf(text, sizeof text, "{'model_type': '%s', 'num_hidden_layers': 4%s}", cases[i][0], cases[i][1]);
    ModelConfig c = accepted(text);
    assert_layers(&c, cases[i][2]);
    config_release(&c);
  }
  ModelConfig c = accepted("{'model_type': 'flint', 'num_hidden_layers': 12}");
  assert_layers(&c, "nnGGGnGGGnGn");
  config_release(&c);
}

static void ropes_and_factors_are_read(void **state) {
  (void)state;
  ModelConfig c = accepted("{'model_type': 'minimax_m2', 'rotary_dim': 64}");
  assert_true(c.rope.rotary_dim == 64 && c.rope.theta == 5e6 && c.qk_norm == QK_NORM_WHOLE);
  config_release(&c);
  c = accepted("{'model_type': 'minimax_m2', 'rotary_dim': 64, 'partial_rotary_factor': 0.25}");
  assert_int_equal(c.rope.rotary_dim, 32);
  config_release(&c);
  c = accepted(
      "{'model_type': 'minimax_m2', 'rope_parameters': {'rope_theta': 7.0, 'partial_rotary_factor': 0.5}}");
  assert_true(c.rope.rotary_dim == 64 && c.rope.theta == 7);
  config_release(&c);
  c = accepted("{'model_type': 'mellum'}");
  assert_true(c.rope.theta == 5e5 && c.local_rope.theta == 1e4 && c.qk_norm == QK_NORM_HEADS);
  config_release(&c);
  c = accepted("{'model_type': 'afmoe', 'hidden_size': 1024, 'mup_enabled': true}");
  assert_true(c.embedding_scale == 32 && c.norms == NORM_AROUND && c.attn_gate == ATTN_GATE_NUMBERS);
  config_release(&c);
  c = accepted("{'model_type': 'afmoe'}");
  assert_true(c.embedding_scale == 1);
  config_release(&c);
  c = accepted("{'model_type': 'solar_open', 'attention_bias': true}");
  assert_true(c.qkv_bias && !c.o_bias && c.rope.theta == 1e6);
  config_release(&c);
}

#define TWO_LAYERS "'model_type': 'laguna', 'num_hidden_layers': 2"

/* Laguna: heads by layer, gates that are softplus, and a part of heads that one of two ropes turns. */
static void layers_of_laguna_have_heads_of_their_own(void **state) {
  (void)state;
  ModelConfig c = accepted("{" TWO_LAYERS "}");
  assert_true(c.rope.theta == 5e5 && c.rope.rotary_dim == 64);
  assert_true(c.local_rope.theta == 1e4 && c.local_rope.rotary_dim == 128);
  assert_true(c.attn_gate == ATTN_GATE_HEADS && c.attn_gate_softplus && c.qk_norm == QK_NORM_HEADS);
  assert_true(config_layer(&c, 1).n_heads == 48 && config_most_heads(&c) == 48 &&
              config_layer_is_alike(&c, 1));
  config_release(&c);
  c = accepted("{" TWO_LAYERS ", 'num_attention_heads_per_layer': [48, 64], 'gating': 'per-element', "
               "'partial_rotary_factor': 0.25, 'rope_theta': 3.0, 'rope_parameters': {'full_attention': "
               "{'rope_theta': 7.0, 'partial_rotary_factor': 0.75}, 'sliding_attention': "
               "{'partial_rotary_factor': 1.0}}}");
  assert_true(c.rope.theta == 7 && c.rope.rotary_dim == 96);
  assert_true(c.local_rope.theta == 1e4 && c.local_rope.rotary_dim == 128);
  assert_true(c.attn_gate == ATTN_GATE_NUMBERS && c.attn_gate_softplus);
  assert_true(config_layer(&c, 0).n_heads == 48 && config_layer(&c, 1).n_heads == 64);
  assert_true(config_most_heads(&c) == 64 && !config_layer_is_alike(&c, 1));
  config_release(&c);
  c = accepted("{" TWO_LAYERS ", 'gating': 'per-head', 'rope_parameters': {'full_attention': {}}}");
  assert_true(c.attn_gate == ATTN_GATE_HEADS && c.rope.rotary_dim == 128);
  config_release(&c);
}

static void assert_chunks(const ModelConfig *c, const char *letters) {
  for (int i = 0; letters[i]; i++) {
    const LayerConfig own = config_layer(c, i);
    assert_int_equal(own.chunk, letters[i] == 'c' || letters[i] == 'C' ? 64 : 0);
    assert_int_equal(own.rope, letters[i] == 'c' || letters[i] == 'f' ? ROPE_GLOBAL : ROPE_NONE);
    assert_int_equal(own.no_qk_norm, own.rope == ROPE_NONE);
    assert_int_equal(own.window, 0);
  }
}

/* Llama 4: small letters have a rope; c(hunks), f(ull attention). */
static void layers_of_llama4_have_chunks(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"", "cccF"},
      {", 'no_rope_layers': null, 'no_rope_layer_interval': 2", "cFcF"},
      {", 'no_rope_layers': [], 'no_rope_layer_interval': 3", "ccFc"},
      {", 'no_rope_layers': [0, 1, 1, 0]", "FccF"},
      {", 'layer_types': ['full_attention', 'chunked_attention', 'full_attention', 'chunked_attention']",
       "fcfC"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[300];
    snprintf(text, sizeof text,
             "{'model_type': 'llama4_text', 'num_hidden_layers': 4, 'attention_chunk_size': 64%s}",
             cases[i][0]);
    ModelConfig c = accepted(text);
    assert_chunks(&c, cases[i][1]);
    config_release(&c);
  }
  ModelConfig c = accepted("{'model_type': 'llama4_text'}");
  assert_true(config_layer(&c, 0).chunk == 8192 && c.rope.neighbours && c.rope.theta == 5e5);
  assert_true(c.qk_norm == QK_NORM_HEADS && c.qk_norm_plain && c.qk_norm_after_rope);
  assert_true(c.query_scale_nope && c.query_scale_beta == 0.1 && c.query_scale_step == 8192);
  assert_true(c.intermediate == 16384 && c.hidden == 5120 && c.head_dim == 128);
  config_release(&c);
  c = accepted("{'model_type': 'llama4_text', 'use_qk_norm': false, 'attn_temperature_tuning': 0}");
  assert_true(c.qk_norm == QK_NORM_NONE && !c.qk_norm_plain && !c.qk_norm_after_rope);
  assert_true(c.query_scale_beta == 0);
  config_release(&c);
  c = accepted("{'model_type': 'llama4_text', 'attn_temperature_tuning': 4, 'attn_scale': 0.5}");
  assert_true(c.query_scale_beta == 0.5);
  config_release(&c);
}

/* MiMo: as published, whose members for layers with a window say what transformers takes anyway. */
static void layers_of_mimo_have_shorter_values(void **state) {
  (void)state;
  ModelConfig c = accepted(
      "{'model_type': 'mimo_v2_flash', 'num_hidden_layers': 7, 'head_dim': 192, 'v_head_dim': 128, "
      "'swa_head_dim': 192, 'swa_v_head_dim': 128, 'swa_num_attention_heads': 64, "
      "'swa_num_key_value_heads': 8, 'hybrid_layer_pattern': [0, 1, 1, 1, 1, 0, 1], 'sliding_window': 128, "
      "'sliding_window_size': 128, 'partial_rotary_factor': 0.334, 'attention_value_scale': 0.707, "
      "'add_swa_attention_sink_bias': true, 'add_full_attention_sink_bias': false, "
      "'rope_theta': 5000000, 'swa_rope_theta': 10000, 'layernorm_epsilon': 1e-05, 'n_shared_experts': null, "
      "'scoring_func': 'sigmoid', 'topk_method': 'noaux_tc', 'moe_layer_freq': [0, 1, 1, 1, 1, 1, 1], "
      "'rope_scaling': {'rope_type': 'default', 'type': 'default'}, 'routed_scaling_factor': null}");
  for (int i = 0; i < 7; i++) {
    const LayerConfig own = config_layer(&c, i);
    const bool full = i == 0 || i == 5;
    assert_int_equal(own.window, full ? 0 : 129);
    assert_int_equal(own.n_kv_heads, full ? 4 : 8);
    assert_int_equal(own.rope, full ? ROPE_GLOBAL : ROPE_LOCAL);
    assert_int_equal(own.no_sinks, full);
    assert_int_equal(config_value_dim(&c, &own), 128);
  }
  assert_true(c.value_scale == 0.707 && c.attn_sinks && c.head_dim == 192);
  assert_true(c.rope.theta == 5e6 && c.local_rope.theta == 1e4);
  assert_true(c.rope.rotary_dim == 64 && c.local_rope.rotary_dim == 64);
  config_release(&c);
  c = accepted(
      "{'model_type': 'mimo_v2_flash', 'num_hidden_layers': 2, 'sliding_window': 9, "
      "'attention_value_scale': null, 'layer_types': ['sliding_attention', 'full_attention'], "
      "'rope_parameters': {'full_attention': {'rope_theta': 7.0}, 'sliding_attention': {'rope_theta': 9.0, "
      "'partial_rotary_factor': 0.5}}}");
  assert_true(config_layer(&c, 0).window == 9 && config_layer(&c, 1).window == 0 && c.value_scale == 1);
  assert_true(c.rope.theta == 7 && c.rope.rotary_dim == 64);
  assert_true(c.local_rope.theta == 9 && c.local_rope.rotary_dim == 96);
  config_release(&c);
  c = accepted("{'model_type': 'mimo_v2_flash', 'num_hidden_layers': 2, 'sliding_window': null, "
               "'sliding_window_size': 128}");
  assert_true(config_layer(&c, 0).window == 0 && config_layer(&c, 1).window == 129);
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
      {"dots1", "'num_experts_per_tok': 6", "num_experts is missing"},
      {"dots1", "'n_routed_experts': 128", "num_experts_per_tok is missing, expected a number of experts"},
      {"hunyuan_v1_moe", "'num_experts': 64, 'moe_topk': [8, 6]",
       "moe_topk has 8 and 6, expected the same number for each layer"},
      {"hunyuan_v1_moe", "'num_experts': ['x']", "num_experts holds \"x\", expected integers from 1 to 4096"},
      {"hunyuan_v1_moe", "'num_experts': []", "num_experts is empty, expected a number for each layer"},
      {"qwen3_moe", "'num_experts': [64, 64]", "num_experts is an array, expected an integer"},
      {"minimax_m2", "'rotary_dim': 256", "rotary_dim is 256, expected an integer from 1 to 128"},
      {"minimax_m2", "'rotary_dim': 63", "partial_rotary_factor 0.492188 turns 63 of head_dim 128 numbers"},
      {"mellum", "'mlp_layer_types': ['dense']",
       "mlp_layer_types is of another length, expected a list of 28"},
      {"mellum", "'num_hidden_layers': 1, 'mlp_layer_types': ['moe']",
       "mlp_layer_types[0] is \"moe\", expected dense or sparse"},
      {"mellum", "'sliding_window': null, 'num_hidden_layers': 1, 'layer_types': ['sliding_attention']",
       "layer_types[0] is sliding_attention, expected full_attention"},
      {"mellum", "'rope_parameters': {'rope_theta': 5.0}", "rope_theta is in no object for a kind of layer"},
      {"exaone_moe", "'sliding_window_pattern': 'LLLG'", "sliding_window_pattern is \"LLLG\""},
      {"afmoe", "'sliding_window': null", "sliding_window is null, expected a number of positions"},
      {"olmoe", "'clip_qkv': 8.0", "clip_qkv is not supported, expected null"},
      {"gpt_oss", "'rope_theta': 5e4", "rope_scaling and rope_parameters are missing"},
      {"gpt_oss", "'rope_scaling': {'rope_type': 'default'}, 'swiglu_limit': 5",
       "swiglu_limit 5 and swiglu_alpha 1.702 is not supported, expected silu, 7, 1.702"},
      {"laguna", "'num_attention_heads_per_layer': [48]",
       "num_attention_heads_per_layer has 1 numbers, expected 40 (num_hidden_layers)"},
      {"laguna", "'num_attention_heads_per_layer': 48",
       "num_attention_heads_per_layer is 48, expected a list of 40 numbers"},
      {"laguna", "'num_hidden_layers': 2, 'num_attention_heads_per_layer': [48, 60]",
       "num_attention_heads_per_layer[1] is 60, expected a multiple of num_key_value_heads 8"},
      {"laguna", "'num_hidden_layers': 1, 'num_attention_heads_per_layer': [0]",
       "num_attention_heads_per_layer[0] is 0, expected a multiple"},
      {"laguna", "'partial_rotary_factor': 0.5, 'rope_parameters': {'full_attention': {}}",
       "partial_rotary_factor 0.5 is not supported, expected one in full_attention"},
      {"laguna", "'rope_scaling': {'rope_type': 'linear', 'factor': 2.0}",
       "rope_scaling is not supported, expected rope_parameters"},
      {"laguna", "'swa_attention_sink_enabled': true",
       "swa_attention_sink_enabled is true, which is not supported"},
      {"mimo_v2_flash", "'v_head_dim': 193", "v_head_dim is 193"},
      {"mimo_v2_flash", "'v_head_dim': 7", "v_head_dim is 7, expected an even number"},
      {"mimo_v2_flash", "'swa_v_head_dim': 64", "swa_v_head_dim is 64, expected 128"},
      {"mimo_v2_flash", "'swa_num_key_value_heads': 4", "swa_num_key_value_heads is 4, expected 8"},
      {"mimo_v2_flash", "'num_attention_heads': 4",
       "num_attention_heads is 4, expected a multiple of twice its 4"},
      {"mimo_v2_flash", "'add_full_attention_sink_bias': true", "add_full_attention_sink_bias is true"},
      {"mimo_v2_flash", "'hybrid_layer_pattern': [1]", "hybrid_layer_pattern is of another length"},
      {"mimo_v2_flash", "'num_hidden_layers': 2, 'hybrid_layer_pattern': [0, 0]",
       "hybrid_layer_pattern[1] is 0, expected 1"},
      {"mimo_v2_flash", "'partial_rotary_factor': 0.5", "partial_rotary_factor 0.5 is not supported"},
      {"mimo_v2_flash", "'attention_value_scale': 0", "attention_value_scale is 0"},
      {"mimo_v2_flash", "'sliding_window_size': 0", "sliding_window_size is 0"},
      {"mimo_v2_flash", "'rope_theta': 1e6",
       "rope_theta is 1000000, expected 5000000, which transformers takes"},
      {"mimo_v2_flash", "'swa_rope_theta': 1e6", "swa_rope_theta is 1000000, expected 10000"},
      {"mimo_v2_flash", "'partial_rotary_factor': 1.0",
       "partial_rotary_factor 1 turns 192 numbers of a head, expected 64"},
      {"mimo_v2_flash", "'layernorm_epsilon': 1e-6", "layernorm_epsilon is 1e-06, expected 1e-05"},
      {"mimo_v2_flash", "'num_hidden_layers': 2, 'moe_layer_freq': [1, 1]",
       "moe_layer_freq[0] is 1, expected 0: mlp_layer_types, or its default, says so"},
      {"mimo_v2_flash", "'moe_layer_freq': 1", "moe_layer_freq is 1, expected a list of 48 numbers"},
      {"mimo_v2_flash", "'n_shared_experts': 1", "n_shared_experts is 1, expected 0"},
      {"mimo_v2_flash", "'scoring_func': 'softmax'", "scoring_func is softmax, expected sigmoid"},
      {"mimo_v2_flash", "'topk_method': 'greedy'", "topk_method is greedy, expected noaux_tc"},
      {"mimo_v2_flash", "'rope_scaling': {'rope_type': 'yarn', 'factor': 2.0}",
       "rope_scaling is not supported, expected rope_parameters"},
      {"llama4_text", "'attention_chunk_size': null", "attention_chunk_size is null, expected a number"},
      {"llama4_text", "'attention_chunk_size': 0", "attention_chunk_size is 0"},
      {"llama4_text", "'layer_types': 'chunked_attention'", "expected a list of names"},
      {"llama4_text", "'layer_types': ['chunked_attention']",
       "layer_types is a list of 1, expected a list of 48"},
      {"llama4_text", "'num_hidden_layers': 1, 'layer_types': ['sliding_attention']",
       "layer_types[0] is \"sliding_attention\", expected chunked_attention or full_attention"},
      {"llama4_text", "'no_rope_layers': [1, 2]", "no_rope_layers is a list of 2"},
      {"llama4_text", "'moe_layers': 3", "moe_layers is 3, expected a list of numbers of layers"},
      {"llama4_text", "'moe_layers': [-1]", "moe_layers holds -1, expected numbers of layers"},
      {"llama4_text", "'interleave_moe_layer_step': 0", "interleave_moe_layer_step is 0"},
      {"llama4_text", "'attn_temperature_tuning': 'yes'", "attn_temperature_tuning is \"yes\""},
      {"llama4_text", "'floor_scale': 0", "floor_scale is 0"},
      {"llama4_text", "'attn_scale': -1", "attn_scale is -1"},
      {"laguna", "'gating': false", "gating is false, expected true, per-head or per-element"},
      {"laguna", "'gating': 'sigmoid'", "gating is \"sigmoid\", expected true, per-head or per-element"},
      {"laguna", "'moe_router_logit_softcapping': 30.0", "moe_router_logit_softcapping is 30, expected 0"},
      {"laguna", "'moe_apply_router_weight_on_input': true", "moe_apply_router_weight_on_input is true"},
      {"axk1", "'moe_layer_freq': 0", "moe_layer_freq is 0"},
      {"axk1", "'topk_group': 9",
       "topk_group is 9, expected groups with at least 8 experts, of 8 groups of 24"},
      {"cohere2_moe", "'sliding_window': null", "sliding_window is null, expected a number of positions"},
      {"cohere2_moe", "'first_k_dense_replace': -1", "first_k_dense_replace is -1"},
      {"cohere2_moe", "'prefix_dense_sliding_window_pattern': 0", "prefix_dense_sliding_window_pattern is 0"},
      {"cohere2_moe", "'prefix_dense_intermediate_size': 0", "prefix_dense_intermediate_size is 0"},
      {"cohere2_moe", "'rms_norm_eps': 2", "rms_norm_eps is 2"},
      {"cohere2_moe", "'shared_expert_combination_strategy': 'product'",
       "shared_expert_combination_strategy product is not supported, expected average or sum"},
      {"cohere2_moe", "'norm_topk_prob': 1, 'expert_selection_fn': 'sigmoid'", "norm_topk_prob is 1"},
      {"phimoe", "'num_experts_per_tok': 3", "num_experts_per_tok is 3, expected 2"},
      {"phimoe", "'num_local_experts': 1", "num_experts_per_tok is 2, expected at most num_local_experts, 1"},
      {"phimoe", "'router_jitter_noise': -0.1", "router_jitter_noise is -0.1"},
      {"phimoe", "'rope_scaling': {'type': 'yarn', 'factor': 2.0}",
       "rope type yarn is not supported, expected default or longrope"},
      {"phimoe",
       "'head_dim': 2, 'rope_scaling': {'type': 'longrope', 'short_factor': [1], 'long_factor': [1], "
       "'short_mscale': 0, 'long_mscale': 1}",
       "short_mscale is 0"},
      {"gemma4_text", "'hidden_size_per_layer_input': 0, 'enable_moe_block': true", "num_experts is missing"},
      {"gemma4_text", "'enable_moe_block': true, 'num_experts': 8, 'top_k_experts': 2",
       "moe_intermediate_size is missing"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_members_refused(cases[i][0], cases[i][1], cases[i][2]);
}

/* As microsoft/Phi-3.5-MoE-instruct and Phi-tiny-MoE-instruct have it. */
static void phimoe(void **state) {
  (void)state;
  ModelConfig c = accepted(
      "{'architectures': ['PhiMoEForCausalLM'], 'model_type': 'phimoe', 'attention_bias': true, "
      "'head_dim': 8, 'lm_head_bias': true, 'router_jitter_noise': 0.03, 'input_jitter_noise': 0.01, "
      "'rope_theta': 10000.0, 'sliding_window': 131072, 'rope_scaling': {'type': 'longrope', "
      "'short_factor': [1, 1, 1, 1], 'long_factor': [2, 3, 4, 5], 'short_mscale': 1.25, 'long_mscale': 1.5, "
      "'original_max_position_embeddings': 4096}}");
  assert_true(c.norm == NORM_CENTRED_BIAS && c.head_bias && !c.parallel && c.qkv_bias && c.o_bias);
  assert_true(c.experts.near == 0.06 && c.norms == NORM_BEFORE && c.rope.theta == 1e4);
  float frequencies[4], factor;
  rope_frequencies(&c.rope, false, frequencies, &factor);
  assert_true(factor == 1.25f && frequencies[0] == 1);
  rope_frequencies(&c.rope, true, frequencies, &factor);
  assert_true(factor == 1.5f && frequencies[0] == 0.5f && rope_original_context(&c) == 4096);
  config_release(&c);
  c = accepted("{'architectures': ['PhimoeForCausalLM'], 'sliding_window': 2047, 'rope_scaling': null}");
  assert_true(c.experts.near == 0.02 && !c.head_bias && !c.o_bias && c.rope.kind == ROPE_PLAIN);
  assert_true(c.rope.theta == 1e6 && config_layer(&c, 31).window == 2047);
  assert_string_equal(c.architecture, "PhiMoEForCausalLM");
  config_release(&c);
}

/* Layers without experts at the beginning have windows by a rule of their own, and may have a rope without
 * one. L: a window and a rope, g: a rope, n: neither. */
static void layers_of_cohere2_moe(void **state) {
  (void)state;
  static const struct {
    const char *members, *layers;
  } cases[] = {
      {"", "LLLnLL"},
      {"'first_k_dense_replace': 1", "gLLLnL"},
      {"'first_k_dense_replace': 2, 'sliding_window_pattern': 2", "ggLnLn"},
      {"'first_k_dense_replace': 3, 'prefix_dense_sliding_window_pattern': 2", "LnLLLL"},
      {"'first_k_dense_replace': 1, 'mlp_layer_types': ['sparse', 'sparse', 'sparse', 'dense', 'sparse', "
       "'sparse']",
       "nLLLnL"},
      {"'mlp_layer_types': ['sparse', 'sparse', 'sparse', 'dense', 'sparse', 'sparse']", "LLLgLL"},
      {"'first_k_dense_replace': 1, 'layer_types': ['sliding_attention', 'full_attention', "
       "'sliding_attention', "
       "'full_attention', 'full_attention', 'sliding_attention']",
       "LnLnnL"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[400], found[7] = "";
    snprintf(text, sizeof text,
             "{'model_type': 'cohere2_moe', 'num_hidden_layers': 6, 'sliding_window': 9%s%s}",
             *cases[i].members ? ", " : "", cases[i].members);
    ModelConfig c = accepted(text);
    for (int layer = 0; layer < 6; layer++) {
      const LayerConfig own = config_layer(&c, layer);
      assert_true(own.window == 0 || (own.window == 9 && own.rope == ROPE_GLOBAL));
      found[layer] = own.window ? 'L' : own.rope == ROPE_GLOBAL ? 'g' : 'n';
    }
    assert_string_equal(found, cases[i].layers);
    config_release(&c);
  }
}

static void cohere2_moe(void **state) {
  (void)state;
  ModelConfig c = accepted("{'model_type': 'cohere2_moe', 'intermediate_size': 64, 'num_shared_experts': 2, "
                           "'expert_selection_fn': 'sigmoid', 'rms_norm_eps': null}");
  assert_true(c.norm == NORM_CENTRED && c.parallel && c.norm_eps == 1e-5 && c.intermediate == 64 &&
              c.head_dim == 128);
  assert_true(c.experts.score == SCORE_CHOSEN_SIGMOID && c.experts.renormalise && c.experts.halves_shared);
  assert_true(c.experts.width == 64 && c.experts.shared_width == 128 && c.experts.scale == 0.5);
  config_release(&c);
  c = accepted("{'model_type': 'cohere2_moe', 'intermediate_size': 64, 'prefix_dense_intermediate_size': 96, "
               "'shared_expert_combination_strategy': 'sum', 'num_shared_experts': 1, 'rms_norm_eps': 1e-6, "
               "'norm_topk_prob': false, 'expert_selection_fn': 'sigmoid'}");
  assert_true(c.norm == NORM_RMS && c.norm_eps == 1e-6 && c.intermediate == 96 && c.experts.width == 64);
  assert_true(!c.experts.renormalise && !c.experts.halves_shared && c.experts.scale == 1);
  config_release(&c);
  c = accepted("{'model_type': 'cohere2_moe', 'rope_scaling': {'rope_type': 'default'}, 'rope_parameters': "
               "{'rope_type': 'linear', 'factor': 4, 'rope_theta': 50}}");
  assert_true(c.rope.kind == ROPE_LINEAR && c.rope.theta == 50);
  config_release(&c);
  assert_members_refused("cohere2_moe", "'rope_scaling': {'type': 'linear', 'factor': 4}",
                         "rope_scaling is not supported, expected rope_parameters");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_left_out_is_as_in_transformers),
      cmocka_unit_test(layers_may_be_dense),
      cmocka_unit_test(members_are_read),
      cmocka_unit_test(layers_differ),
      cmocka_unit_test(ropes_and_factors_are_read),
      cmocka_unit_test(layers_of_laguna_have_heads_of_their_own),
      cmocka_unit_test(layers_of_llama4_have_chunks),
      cmocka_unit_test(layers_of_mimo_have_shorter_values),
      cmocka_unit_test(phimoe),
      cmocka_unit_test(layers_of_cohere2_moe),
      cmocka_unit_test(cohere2_moe),
      cmocka_unit_test(what_is_wrong_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
