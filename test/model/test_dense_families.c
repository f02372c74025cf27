/* test_dense_families.c - what the newer dense families mean by their configs, and what is refused in them.
 *
 * The reference is transformers 5.23, as in test_architectures.c, which has what is left out. */
#include <math.h>

#include "config_text.h"

/* As allenai/Olmo-3-1025-7B has it, and in the spelling of transformers 5. A rope_theta beside the objects is
 * that of the layers without a window alone. */
static void olmo3(void **state) {
  (void)state;
  static const struct {
    const char *text, *layers;
    RopeKind kind;
    double theta, local_theta, factor;
  } cases[] = {
      {"'num_hidden_layers': 8", "LLLgLLLg", ROPE_PLAIN, 5e5, 5e5, 0},
      {"'num_hidden_layers': 2, 'layer_types': ['full_attention', 'sliding_attention']", "gL", ROPE_PLAIN,
       5e5, 5e5, 0},
      {"'num_hidden_layers': 4, 'rope_theta': 70, 'rope_local_base_freq': 90, 'sliding_window_pattern': 2,"
       "'rope_scaling': {'rope_type': 'yarn', 'factor': 8.0, 'original_max_position_embeddings': 8192,"
       "'attention_factor': 1.2079441541679836, 'beta_fast': 32, 'beta_slow': 1}",
       "LLLg", ROPE_YARN, 70, 5e5, 8},
      {"'num_hidden_layers': 4, 'rope_parameters': {'full_attention': {'rope_type': 'yarn', 'rope_theta': "
       "60, 'factor': 4}, 'sliding_attention': {'rope_type': 'default', 'rope_theta': 50}}",
       "LLLg", ROPE_YARN, 60, 50, 4},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[500];
    snprintf(text, sizeof text, "{'model_type': 'olmo3', %s}", cases[i].text);
    ModelConfig c = accepted(text);
    assert_layers(&c, cases[i].layers);
    assert_true(c.norms == NORM_AFTER && c.qk_norm == QK_NORM_WHOLE && c.local_rope.kind == ROPE_PLAIN);
    assert_int_equal(c.rope.kind, cases[i].kind);
    if (c.rope.theta != cases[i].theta || c.local_rope.theta != cases[i].local_theta ||
        c.rope.factor != cases[i].factor)
      fail_msg("%s: theta %g, %g, factor %g", text, c.rope.theta, c.local_rope.theta, c.rope.factor);
    config_release(&c);
  }
}

/* As LGAI-EXAONE/EXAONE-4.0-32B and EXAONE-4.0-1.2B have it. */
static void exaone4(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"'num_hidden_layers': 9", "GGGnGGGnG"},
      {"'num_hidden_layers': 5, 'sliding_window_pattern': 2", "GnGnG"},
      {"'num_hidden_layers': 3, 'sliding_window_pattern': 'LLLG', 'layer_types': ['sliding_attention', "
       "'full_attention', 'sliding_attention']",
       "GnG"},
      {"'num_hidden_layers': 2, 'layer_types': ['full_attention', 'full_attention']", "nn"},
      {"'num_hidden_layers': 2, 'sliding_window': null, 'sliding_window_pattern': null, 'layer_types': "
       "['full_attention', 'full_attention']",
       "gg"},
      {"'num_hidden_layers': 4, 'sliding_window': null", "gggg"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[500];
    snprintf(text, sizeof text, "{'model_type': 'exaone4', %s}", cases[i][0]);
    ModelConfig c = accepted(text);
    assert_true(c.norms == NORM_AFTER && c.qk_norm == QK_NORM_HEADS);
    assert_layers(&c, cases[i][1]);
    config_release(&c);
  }
}

/* As mistralai/Ministral-3-8B-Instruct-2512 has it, and what a config without any rope has. */
static void ministral3(void **state) {
  (void)state;
  ModelConfig c = accepted("{'model_type': 'ministral3', 'num_hidden_layers': 2, 'rope_theta': 5}");
  assert_true(c.rope.kind == ROPE_YARN && c.rope.theta == 1e6 && c.rope.factor == 16);
  assert_true(c.rope.original_max_position == 16384 && c.rope.beta_fast == 32 && c.rope.beta_slow == 1);
  assert_true(c.query_scale_beta == 0.1 && c.query_scale_step == 16384 && c.rope.truncate);
  assert_layers(&c, "gg");
  float frequencies[64], factor;
  rope_frequencies(&c.rope, false, frequencies, &factor);
  assert_true(factor == 1 && frequencies[0] == 1);
  config_release(&c);
  c = accepted(
      "{'architectures': ['Mistral3ForConditionalGeneration'], 'model_type': 'mistral3', 'text_config': "
      "{'model_type': 'ministral3', 'num_hidden_layers': 2, 'sliding_window': null, 'rope_parameters': "
      "{'rope_theta': 1000000.0, 'rope_type': 'yarn', 'type': 'yarn', 'factor': 8.0, 'beta_fast': 16.0, "
      "'llama_4_scaling_beta': 0.25, 'mscale': 1.0, 'mscale_all_dim': 1.0, "
      "'original_max_position_embeddings': 8192}}, 'vision_config': {}}");
  assert_string_equal(c.architecture, "Mistral3ForConditionalGeneration");
  assert_true(c.text_part && c.head_dim == 128 && c.max_position == 262144);
  assert_true(c.rope.kind == ROPE_YARN && c.rope.factor == 8 && c.rope.beta_fast == 16);
  assert_true(c.query_scale_beta == 0.25 && c.query_scale_step == 8192);
  config_release(&c);
}

/* As tencent/Hunyuan-7B-Instruct has it. */
static void hunyuan(void **state) {
  (void)state;
  static const struct {
    const char *text;
    double theta;
  } cases[] = {
      {"'rope_scaling': {'alpha': 1000.0, 'factor': 1.0, 'type': 'dynamic'}", 1e4},
      {"'rope_parameters': {'rope_type': 'dynamic', 'alpha': 50, 'rope_theta': 300}", 300},
      {"'rope_scaling': {'alpha': 0, 'type': 'dynamic', 'factor': 2}", 1e4},
      {"'rope_scaling': {'alpha': 1000.0, 'rope_type': 'linear', 'factor': 1.0}", 1e4},
      {"'rope_theta': 7", 7},
  };
  static const double factors[] = {1000, 50, 1, 1, 1};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[300];
    snprintf(text, sizeof text, "{'model_type': 'hunyuan_v1_dense', %s}", cases[i].text);
    ModelConfig c = accepted(text);
    assert_true(c.qk_norm == QK_NORM_HEADS && c.qk_norm_after_rope && c.norms == NORM_BEFORE);
    assert_true(c.rope.theta == cases[i].theta * pow(factors[i], 128.0 / 126));
    config_release(&c);
  }
}

/* As THUDM/glm-4-9b-chat-hf and THUDM/GLM-4-9B-0414 have it. */
static void glm_and_ernie(void **state) {
  (void)state;
  for (int is_glm4 = 0; is_glm4 < 2; is_glm4++) {
    char text[300];
    const char *type = is_glm4 ? "glm4" : "glm";
    snprintf(text, sizeof text, "{'model_type': '%s', 'eos_token_id': null}", type);
    ModelConfig c = accepted(text);
    assert_true(c.rope.neighbours && c.rope.rotary_dim == 64 && c.fused == FUSES_GATE_UP);
    assert_true(c.norms == (is_glm4 ? NORM_AROUND : NORM_BEFORE) && c.qkv_bias && !c.o_bias);
    assert_true(c.n_eos == 3 && c.eos[0] == 151329 && c.eos[1] == 151336 && c.eos[2] == 151338);
    config_release(&c);
    snprintf(text, sizeof text,
             "{'model_type': '%s', 'eos_token_id': [7, 8], 'partial_rotary_factor': 0.25, 'rope_theta': 9}",
             type);
    c = accepted(text);
    assert_true(c.rope.rotary_dim == 32 && c.n_eos == 2 && c.eos[1] == 8 && c.rope.theta == 9);
    config_release(&c);
    snprintf(
        text, sizeof text,
        "{'model_type': '%s', 'rope_parameters': {'rope_type': 'default', 'partial_rotary_factor': 1.0}}",
        type);
    c = accepted(text);
    assert_true(c.rope.rotary_dim == 128 && c.rope.neighbours);
    config_release(&c);
  }
  ModelConfig c = accepted("{'model_type': 'ernie4_5'}");
  assert_true(c.rope.neighbours && c.rope.rotary_dim == 128 && !c.fused);
  config_release(&c);
  c = accepted("{'model_type': 'llama'}");
  assert_false(c.rope.neighbours || c.fused);
  config_release(&c);
}

/* As ibm-granite/granite-4.0-micro has it: a hybrid whose layers are all attention, without experts. */
static void granite4(void **state) {
  (void)state;
  ModelConfig c =
      accepted("{'architectures': ['GraniteMoeHybridForCausalLM'], 'model_type': 'granitemoehybrid', "
               "'num_key_value_heads': 8, 'intermediate_size': 77, 'shared_intermediate_size': 8192, "
               "'attention_multiplier': 0.015625, 'embedding_multiplier': 12, 'residual_multiplier': 0.22, "
               "'logits_scaling': 10, 'position_embedding_type': 'rope', 'rope_theta': 10000000, "
               "'mamba_n_heads': 128" HYBRID "}");
  assert_true(c.intermediate == 8192 && c.fused == FUSES_GATE_UP && c.attention_scale == 0.015625);
  assert_true(c.embedding_scale == 12 && c.residual_scale == 0.22 && c.logit_divisor == 10);
  assert_layers(&c, "gggg");
  config_release(&c);
  c = accepted("{'model_type': 'granitemoehybrid', 'position_embedding_type': 'nope'" HYBRID "}");
  assert_layers(&c, "nnnn");
  config_release(&c);
  c = accepted("{'model_type': 'granitemoehybrid', 'num_local_experts': 0, 'num_hidden_layers': 1, "
               "'layers_block_type': ['attention'], 'position_embedding_type': null}");
  assert_layers(&c, "n");
  config_release(&c);
}

static void granite_swa(void **state) {
  (void)state;
  static const struct {
    const char *text, *layers;
    double theta, local_theta;
  } cases[] = {
      {"'num_hidden_layers': 6", "gGGGgG", 1e4, 0},
      {"'num_hidden_layers': 2, 'layer_types': ['sliding_attention', 'full_attention']", "Gg", 1e4, 0},
      {"'num_hidden_layers': 5, 'layer_rope_theta': [0, 50, 50.0, 7, 0]", "nGGLn", 50, 7},
      {"'num_hidden_layers': 2, 'rope_theta': 9, 'layer_rope_theta': [0, 0]", "nN", 9, 0},
      {"'num_hidden_layers': 2, 'rope_theta': 9, 'layer_rope_theta': [5, 5.0]", "gG", 5, 0},
      {"'num_hidden_layers': 2, 'rope_theta': 9, 'layer_rope_theta': null", "gG", 9, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[300];
    snprintf(text, sizeof text, "{'model_type': 'granite_swa', %s}", cases[i].text);
    ModelConfig c = accepted(text);
    assert_layers(&c, cases[i].layers);
    assert_true(c.rope.theta == cases[i].theta && c.local_rope.theta == cases[i].local_theta);
    assert_true(c.attn_sinks && c.tied_embeddings && (!c.local_rope.theta || c.local_rope.rotary_dim == 128));
    config_release(&c);
  }
}

static void muse_glimmer(void **state) {
  (void)state;
  static const struct {
    const char *text, *layers;
  } cases[] = {
      {"'num_hidden_layers': 5", "nGGGn"},
      {"'num_hidden_layers': 4, 'layer_rope_theta': [0, 7, 10000.0, 0]", "NGGn"},
      {"'num_hidden_layers': 2, 'layer_types': ['full_attention', 'sliding_attention']", "gN"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[300];
    snprintf(text, sizeof text, "{'model_type': 'muse_glimmer', 'text_config': {%s}}", cases[i].text);
    ModelConfig c = accepted(text);
    assert_layers(&c, cases[i].layers);
    assert_true(c.embedding_norm && c.qk_norm_plain && c.norm == NORM_PLUS_ONE_INSIDE);
    assert_true(c.attn_gate == ATTN_GATE_NUMBERS && c.post_norm_eps == 1e-8 && c.rope.theta == 1e4);
    config_release(&c);
  }
  ModelConfig c = accepted(
      "{'architectures': ['MuseGlimmerForConditionalGeneration'], 'text_config': {'qk_scale_factor': 2, "
      "'output_multiplier': 0.25, 'post_norm_eps': 0.001, 'final_logit_softcapping': 30, 'head_dim': 64}}");
  assert_true(c.attention_scale == 0.25 && c.logit_divisor == 4 && c.post_norm_eps == 0.001);
  assert_true(c.logit_cap == 30);
  config_release(&c);
}

static void contradictions_are_refused_by_name(void **state) {
  (void)state;
  static const struct {
    const char *model_type, *members, *message;
  } cases[] = {
      {"ministral3", "'rope_parameters': {'rope_type': 'yarn', 'factor': 4}",
       "rope_parameters: llama_4_scaling_beta is missing"},
      {"ministral3", "'rope_parameters': {'rope_type': 'yarn', 'factor': 4, 'llama_4_scaling_beta': 0.1}",
       "rope_parameters: original_max_position_embeddings is missing"},
      {"ministral3", "'rope_parameters': {'llama_4_scaling_beta': -1}", "llama_4_scaling_beta is -1"},
      {"hunyuan_v1_dense", "'rope_scaling': {'type': 'dynamic', 'alpha': -1}", "rope_scaling: alpha is -1"},
      {"hunyuan_v1_dense", "'rope_scaling': {'type': 'dynamic', 'alpha': 1e-4}",
       "alpha is 0.0001, expected 0 or a number from 1"},
      {"hunyuan_v1_dense", "'head_dim': 2, 'rope_scaling': {'type': 'dynamic', 'alpha': 5}",
       "alpha is not supported with head_dim 2, expected at least 4"},
      {"glm4", "'head_dim': 6", "partial_rotary_factor 0.5 turns 3 of head_dim 6 numbers"},
      {"glm", "'attention_bias': 1", "attention_bias is 1, expected true or false"},
      {"ernie4_5", "'use_bias': 1", "use_bias is 1, expected true or false"},
      {"ernie4_5", "'partial_rotary_factor': 0.5", "partial_rotary_factor 0.5 is not supported, expected 1"},
      {"exaone4", "'sliding_window_pattern': 'LLLG'", "sliding_window_pattern is \"LLLG\", expected"},
      {"exaone4", "'sliding_window_pattern': 0", "sliding_window_pattern is 0"},
      {"exaone4", "'sliding_window': null, 'num_hidden_layers': 1, 'layer_types': ['sliding_attention']",
       "there is no sliding window"},
      {"granitemoehybrid", "'shared_intermediate_size': 0", "shared_intermediate_size is 0"},
      {"granite_swa", "'sliding_window': null", "sliding_window is null, expected a number of positions"},
      {"granite_swa", "'num_hidden_layers': 2, 'layer_rope_theta': [5]",
       "layer_rope_theta is a list of 1, expected a list of 2 numbers (num_hidden_layers)"},
      {"granite_swa", "'layer_rope_theta': 5", "layer_rope_theta is 5, expected a list of 24 numbers"},
      {"granite_swa", "'num_hidden_layers': 2, 'layer_rope_theta': [0, 1]",
       "layer_rope_theta[1] is 1, expected 0 or a number above 1"},
      {"granite_swa", "'num_hidden_layers': 2, 'layer_rope_theta': [-5, 1]", "layer_rope_theta[0] is -5"},
      {"granite_swa", "'num_hidden_layers': 1, 'layer_rope_theta': [1e19]", "layer_rope_theta[0] is 1e19"},
      {"granite_swa", "'num_hidden_layers': 1, 'layer_rope_theta': [true]", "layer_rope_theta[0] is true"},
      {"granite_swa", "'num_hidden_layers': 4, 'layer_rope_theta': [5, 6, 0, 7]",
       "layer_rope_theta has a third number other than 0, 7: two are supported"},
      {"muse_glimmer", "'x': 1", "text_config is missing"},
      {"muse_glimmer_text", "'x': 1", "model_type muse_glimmer_text is not supported"},
      {"muse_glimmer", "'text_config': {'qk_scale_factor': 0}", "qk_scale_factor is 0"},
      {"muse_glimmer", "'text_config': {'output_multiplier': -1}", "output_multiplier is -1"},
      {"muse_glimmer", "'text_config': {'post_norm_eps': 0}", "post_norm_eps is 0"},
      {"muse_glimmer", "'text_config': {'num_hidden_layers': 2, 'layer_rope_theta': [0]}",
       "layer_rope_theta is a list of 1, expected a list of 2 numbers"},
      {"muse_glimmer", "'text_config': {'sliding_window': null}", "sliding_window is null"},
      {"seed_oss", "'attention_bias': 1", "attention_bias is 1, expected true or false"},
      {"seed_oss", "'attention_out_bias': 'x'", "attention_out_bias is \"x\", expected true or false"},
      {"olmo3", "'sliding_window': null", "sliding_window is null, expected a number of positions"},
      {"olmo3", "'rope_parameters': {'rope_type': 'default', 'rope_theta': 5}",
       "rope_parameters: rope_theta is in no object for a kind of layer"},
      {"olmo3", "'partial_rotary_factor': 0.5", "partial_rotary_factor 0.5 is not supported, expected 1"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_members_refused(cases[i].model_type, cases[i].members, cases[i].message);
}

/* As CohereLabs/c4ai-command-r7b-12-2024 and c4ai-command-r-08-2024 have it. */
static void cohere(void **state) {
  (void)state;
  ModelConfig c =
      accepted("{'architectures': ['Cohere2ForCausalLM'], 'model_type': 'cohere2', 'hidden_size': 4096, "
               "'num_attention_heads': 32, 'num_key_value_heads': 8, 'num_hidden_layers': 32, "
               "'intermediate_size': 14336, 'logit_scale': 0.25, 'rope_theta': 50000, "
               "'sliding_window': 4096, 'sliding_window_pattern': 4, 'layer_norm_eps': 1e-05, "
               "'use_embedding_sharing': true, 'position_embedding_type': 'rope_gptj'}");
  assert_true(c.norm == NORM_CENTRED && c.parallel && c.rope.neighbours && c.norms == NORM_BEFORE &&
              c.logit_divisor == 4);
  assert_true(c.tied_embeddings && c.norm_eps == 1e-5 && c.head_dim == 128 && !c.qkv_bias);
  for (int layer = 0; layer < 32; layer++) {
    const LayerConfig own = config_layer(&c, layer);
    assert_int_equal(own.window, layer % 4 == 3 ? 0 : 4096);
    assert_int_equal(own.rope, layer % 4 == 3 ? ROPE_NONE : ROPE_GLOBAL);
  }
  config_release(&c);
  c = accepted("{'architectures': ['CohereForCausalLM'], 'model_type': 'cohere', 'use_qk_norm': false, "
               "'num_key_value_heads': 8, 'rope_theta': 4000000.0, 'attention_bias': false}");
  assert_true(c.norm == NORM_CENTRED && c.parallel && c.rope.neighbours && c.logit_divisor == 16 &&
              c.qk_norm == QK_NORM_NONE);
  assert_true(config_layer(&c, 3).window == 0 && config_layer(&c, 3).rope == ROPE_GLOBAL);
  config_release(&c);
}

/* As CohereLabs/c4ai-command-r-v01 has it; a scaled rope is one for max_position_embeddings. */
static void the_longest_context_of_cohere_may_be_model_max_length(void **state) {
  (void)state;
  static const struct {
    const char *members;
    int longest;
  } cases[] = {
      {"'max_position_embeddings': 8192, 'model_max_length': 131072", 131072},
      {"'max_position_embeddings': 8192, 'model_max_length': 131072, 'rope_scaling': null", 131072},
      {"'model_max_length': 131072, 'rope_parameters': {'rope_type': 'default', 'rope_theta': 5.0}", 131072},
      {"'max_position_embeddings': 8192, 'model_max_length': 4096", 8192},
      {"'max_position_embeddings': 8192, 'model_max_length': null", 8192},
      {"'model_max_length': 131072, 'rope_scaling': {'type': 'dynamic', 'factor': 2.0}", 8192},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int newer = 0; newer < 2; newer++) {
      char text[512];
      snprintf(text, sizeof text, "{'model_type': '%s', 'sliding_window': 4096, %s}",
               newer ? "cohere2" : "cohere", cases[i].members);
      ModelConfig c = accepted(text);
      assert_int_equal(c.max_position, cases[i].longest);
      config_release(&c);
    }
  assert_members_refused("cohere", "'model_max_length': 0", "model_max_length is 0");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_longest_context_of_cohere_may_be_model_max_length),
      cmocka_unit_test(cohere),
      cmocka_unit_test(olmo3),
      cmocka_unit_test(exaone4),
      cmocka_unit_test(ministral3),
      cmocka_unit_test(hunyuan),
      cmocka_unit_test(glm_and_ernie),
      cmocka_unit_test(granite4),
      cmocka_unit_test(granite_swa),
      cmocka_unit_test(muse_glimmer),
      cmocka_unit_test(contradictions_are_refused_by_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
