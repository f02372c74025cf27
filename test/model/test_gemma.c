/* test_gemma.c - what configs of Gemma 3, 3n and 4 mean layer by layer, and what is refused in the last two.
 *
 * The reference is transformers 5.23, models/NAME/configuration_NAME.py. That the arithmetic is the same is
 * for test/commands/measure/test_logits.py. */
#include <math.h>

#include "config_text.h"

static void gemma3(void **state) {
  (void)state;
  static const struct {
    const char *text, *layers;
    double theta, local_theta, factor, local_factor;
  } cases[] = {
      {"'num_hidden_layers': 7", "LLLLLgL", 1e6, 1e4, 0, 0},
      {"'num_hidden_layers': 4, 'sliding_window_pattern': 2", "LgLg", 1e6, 1e4, 0, 0},
      {"'num_hidden_layers': 3, 'sliding_window_pattern': 1", "ggg", 1e6, 1e4, 0, 0},
      {"'num_hidden_layers': 3, '_sliding_window_pattern': 1", "LLL", 1e6, 1e4, 0, 0},
      {"'num_hidden_layers': 3, 'sliding_window_pattern': 1, 'layer_types': ['full_attention', "
       "'full_attention',"
       "'sliding_attention']",
       "ggL", 1e6, 1e4, 0, 0},
      {"'num_hidden_layers': 2, 'rope_theta': 5000, 'rope_local_base_freq': 70,"
       "'rope_scaling': {'rope_type': 'linear', 'factor': 8.0}",
       "LL", 5000, 70, 8, 0},
      {"'num_hidden_layers': 2, 'rope_theta': 3, 'rope_parameters': {'full_attention': {'rope_type': "
       "'linear',"
       "'factor': 2, 'rope_theta': 60}, 'sliding_attention': {'rope_type': 'linear', 'factor': 3}}",
       "LL", 60, 1e4, 2, 3},
      {"'num_hidden_layers': 2, 'rope_parameters': {'full_attention': null, 'sliding_attention': "
       "{'rope_type':"
       "'default', 'rope_theta': 9}}",
       "LL", 1e6, 9, 0, 0},
      {"'num_hidden_layers': 2, 'rope_parameters': {}, 'rope_scaling': {}", "LL", 1e6, 1e4, 0, 0},
      {"'num_hidden_layers': 2, 'rope_parameters': {'full_attention': {'rope_theta': 8}}, 'rope_scaling': {}",
       "LL", 8, 1e4, 0, 0},
      {"'num_hidden_layers': 2, 'rope_theta': 3, 'rope_local_base_freq': 5, 'rope_parameters': "
       "{'full_attention': {}, 'sliding_attention': {}}",
       "LL", 3, 5, 0, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[700];
    snprintf(text, sizeof text, "{'model_type': 'gemma3_text', 'sliding_window': 512, %s}", cases[i].text);
    ModelConfig c = accepted(text);
    assert_layers(&c, cases[i].layers);
    if (c.rope.theta != cases[i].theta || c.local_rope.theta != cases[i].local_theta ||
        c.rope.factor != cases[i].factor || c.local_rope.factor != cases[i].local_factor)
      fail_msg("%s: theta %g, %g, factor %g, %g", text, c.rope.theta, c.local_rope.theta, c.rope.factor,
               c.local_rope.factor);
    assert_true(c.qk_norm == QK_NORM_HEADS && c.norms == NORM_AROUND && c.norm == NORM_PLUS_ONE);
    config_release(&c);
  }
}

/* As google/gemma-3n-E4B-it and E2B-it have it. */
static void gemma3n(void **state) {
  (void)state;
  ModelConfig c = accepted("{'architectures': ['Gemma3nForConditionalGeneration'], 'model_type': 'gemma3n',"
                           "'text_config': {'model_type': 'gemma3n_text', 'altup_coef_clip': 120.0,"
                           "'altup_lr_multiplier': 1.0, 'rope_theta': 1000000.0, 'rope_scaling': null,"
                           "'rope_local_base_freq': 10000.0}, 'vision_config': {}, 'audio_config': {}}");
  assert_true(c.text_part && c.altup.n == 4 && c.altup.laurel_rank == 64 && c.logit_cap == 30);
  assert_true(c.norms == NORM_AROUND && c.norm == NORM_RMS && c.v_norm && !c.layer_scalar);
  assert_true(c.attention_scale == 1 && c.embedding_scale == sqrt(2048) && c.tied_embeddings);
  assert_true(c.per_layer_width == 256 && c.per_layer_vocab == 262144 && c.vocab_size == 262400);
  assert_true(c.rope.theta == 1e6 && c.local_rope.theta == 1e4);
  assert_layers(&c, "LLLLgLLLLgLLLLgLLLLgLLLLgLLLLgLLLLg");
  for (int layer = 0; layer < 35; layer++) {
    const LayerConfig own = config_layer(&c, layer);
    assert_true(own.sparsity == (layer < 10 ? 0.95 : 0) && own.window == (layer % 5 == 4 ? 0 : 512));
    assert_int_equal(own.kv_layer, layer < 20 ? layer : layer % 5 == 4 ? 19 : 18);
    assert_true(own.intermediate == 16384 && own.shares_kv == (layer >= 20));
  }
  config_release(&c);
  c = accepted("{'model_type': 'gemma3n_text', 'num_hidden_layers': 3, 'num_kv_shared_layers': 1,"
               "'intermediate_size': [8, 16, 24], 'activation_sparsity_pattern': [0, 0.5, 0.999999],"
               "'altup_num_inputs': 2, 'laurel_rank': 1, 'vocab_size_per_layer_input': 1}");
  assert_true(c.altup.n == 2 && c.altup.laurel_rank == 1 && c.per_layer_vocab == 1 && c.intermediate == 8);
  for (int layer = 0; layer < 3; layer++)
    assert_int_equal(config_layer(&c, layer).intermediate, 8 * (layer + 1));
  assert_true(config_layer(&c, 0).sparsity == 0 && config_layer(&c, 1).sparsity == 0.5);
  config_release(&c);
  c = accepted("{'model_type': 'gemma3n_text', 'num_hidden_layers': 10, 'num_kv_shared_layers': 0}");
  assert_true(config_layer(&c, 0).sparsity == 0); /* only with more layers than ten */
  config_release(&c);
}

/* Values of torch.distributions.Normal(0, 1).icdf() in fp64, of p in fp32. */
static void quantiles_of_a_gaussian(void **state) {
  (void)state;
  static const double cases[][2] = {
      {0.95, 1.644853511366523}, {0.5, 0}, {0.25, -0.6744897501960818}, {0.999999, 4.750757754603034}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_true(fabs(gaussian_quantile(cases[i][0]) - cases[i][1]) < 1e-9);
}

static void what_gemma3n_has_not_is_refused(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"'altup_num_inputs': 1", "altup_num_inputs is 1, expected an integer from 2 to 16"},
      {"'altup_num_inputs': 17", "altup_num_inputs is 17, expected an integer from 2 to 16"},
      {"'altup_num_inputs': '4'", "altup_num_inputs is \"4\""},
      {"'altup_active_idx': 1", "altup_active_idx is 1, which is not supported, expected 0"},
      {"'altup_active_idx': -1", "altup_active_idx is -1"},
      {"'altup_correct_scale': false", "altup_correct_scale is false, which is not supported, expected true"},
      {"'laurel_rank': 0", "laurel_rank is 0, expected an integer from 1 to 1048576"},
      {"'num_hidden_layers': 15", "num_kv_shared_layers is 15, expected an integer from 0 to 14"},
      {"'num_hidden_layers': 6, 'num_kv_shared_layers': 2",
       "num_kv_shared_layers is 2: layer 4 has no layer before them to share with"},
      {"'hidden_size_per_layer_input': 0",
       "hidden_size_per_layer_input is 0, expected an integer from 1 to 16384"},
      {"'vocab_size_per_layer_input': 0", "vocab_size_per_layer_input is 0, expected an integer from 1"},
      {"'activation_sparsity_pattern': 0.95",
       "activation_sparsity_pattern is 0.95, expected a list of numbers"},
      {"'activation_sparsity_pattern': [0.95]",
       "activation_sparsity_pattern has 1 numbers, expected 35 (num_hidden_layers)"},
      {"'num_hidden_layers': 2, 'num_kv_shared_layers': 0, 'activation_sparsity_pattern': [0, 1]",
       "activation_sparsity_pattern[1] is 1, expected a number from 0 on, below 1"},
      {"'num_hidden_layers': 2, 'num_kv_shared_layers': 0, 'activation_sparsity_pattern': [0, 0.99999999]",
       "activation_sparsity_pattern[1] is 0.99999999, expected a number from 0 on, below 1"},
      {"'num_hidden_layers': 2, 'num_kv_shared_layers': 0, 'activation_sparsity_pattern': [-0.1, 0]",
       "activation_sparsity_pattern[0] is -0.1"},
      {"'num_hidden_layers': 2, 'num_kv_shared_layers': 0, 'activation_sparsity_pattern': [null, 0]",
       "activation_sparsity_pattern[0] is null"},
      {"'intermediate_size': [8]", "intermediate_size has 1 numbers, expected 35 (num_hidden_layers)"},
      {"'intermediate_size': []", "intermediate_size has 0 numbers"},
      {"'intermediate_size': 0", "intermediate_size is 0"},
      {"'num_hidden_layers': 2, 'num_kv_shared_layers': 0, 'intermediate_size': [8, 0]",
       "intermediate_size[1] is 0, expected an integer from 1 to 4194304"},
      {"'num_hidden_layers': 2, 'num_kv_shared_layers': 0, 'intermediate_size': [8.5, 8]",
       "intermediate_size[0] is 8.5"},
      {"'hidden_activation': 'gelu'", "hidden_activation gelu is not supported"},
      {"'attn_logit_softcapping': 50.0", "attn_logit_softcapping is not supported"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_members_refused("gemma3n_text", cases[i][0], cases[i][1]);
  assert_refused("{'model_type': 'gemma3_text', 'intermediate_size': [8]}", "intermediate_size is an array");
}

/* As google/gemma-4-E2B-it has it, with fewer layers: the last ones share keys and values by kind. */
static void gemma4_with_inputs_of_each_layer(void **state) {
  (void)state;
  static const int kv_layers[] = {0, 1, 2, 3, 2, 3, 2, 3};
  ModelConfig c =
      accepted("{'model_type': 'gemma4_text', 'num_hidden_layers': 8, 'hidden_size': 1536, 'vocab_size': 500,"
               "'num_kv_shared_layers': 4, 'use_double_wide_mlp': true, 'intermediate_size': 6144,"
               "'vocab_size_per_layer_input': 501, 'layer_types': ['full_attention', 'sliding_attention',"
               "'sliding_attention', 'full_attention', 'sliding_attention', 'full_attention',"
               "'sliding_attention', 'full_attention']}");
  assert_true(c.per_layer_width == 256 && c.per_layer_vocab == 501);
  for (int layer = 0; layer < 8; layer++) {
    const LayerConfig own = config_layer(&c, layer);
    assert_int_equal(own.kv_layer, kv_layers[layer]);
    assert_int_equal(own.shares_kv, layer >= 4);
    assert_int_equal(own.intermediate, layer < 4 ? 6144 : 12288);
    assert_int_equal(config_kv_numbers(&c, layer), layer >= 4 ? 0 : 2 * 4 * own.head_dim);
  }
  config_release(&c);
  c = accepted("{'model_type': 'gemma4_text', 'num_hidden_layers': 2, 'hidden_size_per_layer_input': null}");
  assert_int_equal(c.per_layer_width, 0);
  config_release(&c);
  c = accepted("{'model_type': 'gemma4_unified_text', 'hidden_size_per_layer_input': 256}");
  assert_int_equal(c.per_layer_width, 0);
  config_release(&c);
}

#define GEMMA4(members) "{'model_type': 'gemma4_text', 'hidden_size_per_layer_input': 0, " members "}"

/* As google/gemma-4-31B-it has it, with fewer layers, as it was published and as transformers 5 saves it. */
static void gemma4(void **state) {
  (void)state;
  static const char *const texts[] = {
      GEMMA4(
          "'num_hidden_layers': 7, 'hidden_size': 5376, 'num_attention_heads': 32, 'num_key_value_heads': 16,"
          "'num_global_key_value_heads': 4, 'attention_k_eq_v': true, 'final_logit_softcapping': 30.0,"
          "'global_head_dim': 512, 'use_bidirectional_attention': 'vision', 'sliding_window': 1024"),
      GEMMA4(
          "'num_hidden_layers': 7, 'hidden_size': 5376, 'num_attention_heads': 32, 'num_key_value_heads': 16,"
          "'attention_k_eq_v': true, 'final_logit_softcapping': 30.0, 'sliding_window': 1024,"
          "'per_layer_config': {'5': {'head_dim': 512, 'num_key_value_heads': 4},"
          "'6': {'num_key_value_heads': 4, 'head_dim': 512}}, 'global_head_dim': 64,"
          "'rope_parameters': {'full_attention': {'rope_type': 'proportional', 'partial_rotary_factor': 0.25,"
          "'rope_theta': 1000000}, 'sliding_attention': {'rope_type': 'default', 'rope_theta': 10000}}")};
  for (size_t i = 0; i < 2; i++) {
    ModelConfig c = accepted(texts[i]);
    assert_true(c.norms == NORM_AROUND && c.norm == NORM_RMS && c.qk_norm == QK_NORM_HEADS && c.v_norm);
    assert_true(c.layer_scalar && c.attention_scale == 1 && c.embedding_scale == sqrt(5376));
    assert_true(c.logit_cap == 30 && c.attention_cap == 0 && c.tied_embeddings);
    assert_layers(&c, "LLLLLgg"); /* the last has no window, whatever its number */
    for (int layer = 0; layer < 7; layer++) {
      const LayerConfig own = config_layer(&c, layer);
      assert_int_equal(own.head_dim, layer < 5 ? 256 : 512);
      assert_int_equal(own.n_kv_heads, layer < 5 ? 16 : 4);
      assert_int_equal(own.intermediate, 9216);
      assert_int_equal(own.k_as_v, layer >= 5);
      assert_int_equal(own.window, layer < 5 ? 1024 : 0);
    }
    assert_true(c.rope.kind == ROPE_PROPORTIONAL && c.rope.rotary_dim == 512 && c.rope.n_turned == 64);
    assert_true(c.rope.theta == 1e6 && c.rope.factor == 1);
    assert_true(c.local_rope.kind == ROPE_PLAIN && c.local_rope.rotary_dim == 256 &&
                c.local_rope.theta == 1e4);
    float frequencies[256], factor;
    rope_frequencies(&c.rope, false, frequencies, &factor);
    assert_true(factor == 1 && frequencies[0] == 1 && frequencies[64] == 0 && frequencies[255] == 0);
    assert_true(fabs(frequencies[63] / pow(1e6, -126.0 / 512) - 1) < 1e-6); /* of the whole head's pairs */
    config_release(&c);
  }
  ModelConfig c =
      accepted(GEMMA4("'num_hidden_layers': 2, 'num_global_key_value_heads': 1, 'sliding_window': 8,"
                      "'rope_parameters': {'full_attention': {'rope_type': 'proportional',"
                      "'factor': 4}}, 'rope_scaling': {'type': 'linear', 'factor': 9}"));
  assert_int_equal(config_layer(&c, 1).n_kv_heads, 4); /* one only where keys are values */
  assert_true(c.rope.n_turned == 256 && c.rope.factor == 4);
  float frequencies[256], factor;
  rope_frequencies(&c.rope, false, frequencies, &factor);
  assert_true(frequencies[0] == 0.25f && frequencies[255] > 0);
  config_release(&c);
}

static void contradictions_between_layers_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *model_type, *members, *message; /* model_type NULL: members are the whole config */
  } cases[] = {
      {"gemma4_text", "'num_kv_shared_layers': 30",
       "num_kv_shared_layers is 30, expected an integer from 0 to 29"},
      {"gemma4_text", "'num_hidden_layers': 4, 'num_kv_shared_layers': 2",
       "num_kv_shared_layers is 2: layer 3 has no layer before them to share with"},
      {"gemma4_text", "'use_double_wide_mlp': 1", "use_double_wide_mlp is 1, expected true or false"},
      {"gemma4_text", "'vocab_size_per_layer_input': 0", "vocab_size_per_layer_input is 0"},
      {NULL, "{'model_type': 'gemma4_text', 'vocab_size_per_layer_input': 262143}",
       "vocab_size_per_layer_input is 262143, expected at least vocab_size 262144"},
      {NULL, "{'model_type': 'gemma4_text', 'hidden_size_per_layer_input': 16385}",
       "hidden_size_per_layer_input is 16385, expected an integer from 0 to 16384"},
      {"gemma4_unified_text", "'enable_moe_block': true",
       "enable_moe_block is not supported: it is a mixture of experts; take a dense model"},
      {"gemma4_text", "'global_head_dim': 514", "global_head_dim is 514, expected an integer from 2 to 512"},
      {"gemma4_text", "'global_head_dim': 33",
       "global_head_dim is 33, expected an even number from 2 to 512"},
      {"gemma4_text", "'attention_k_eq_v': true, 'num_global_key_value_heads': 3",
       "num_global_key_value_heads is 3, expected a divisor of num_attention_heads 8"},
      {"gemma4_text", "'attention_k_eq_v': 'yes'", "attention_k_eq_v is \"yes\", expected true or false"},
      {"gemma4_text", "'use_bidirectional_attention': 'all'", "use_bidirectional_attention is not supported"},
      {"gemma4_unified_text", "'use_bidirectional_attention': true", "use_bidirectional_attention is true"},
      {"gemma4_text", "'per_layer_config': [1]", "per_layer_config is an array, expected an object"},
      {"gemma4_text", "'per_layer_config': {'30': {}}",
       "per_layer_config: 30 is no number of a layer, expected 0 to 29"},
      {"gemma4_text", "'per_layer_config': {'-1': {}}", "-1 is no number of a layer"},
      {"gemma4_text", "'per_layer_config': {'1x': {}}", "1x is no number of a layer"},
      {"gemma4_text", "'per_layer_config': {'1': 5}", "per_layer_config: 1 is 5, expected an object"},
      {"gemma4_text", "'per_layer_config': {'5': {'head_dim': 31}}",
       "per_layer_config: 5: head_dim is 31, expected an even number"},
      {"gemma4_text", "'per_layer_config': {'5': {'num_key_value_heads': 5}}",
       "per_layer_config: 5: num_key_value_heads is 5, expected a divisor of num_attention_heads 8"},
      {"gemma4_text", "'per_layer_config': {'5': {'sliding_window': 5}}",
       "per_layer_config: 5: sliding_window is not supported, expected head_dim or num_key_value_heads"},
      {"gemma4_text", "'per_layer_config': {'5': {'head_dim': 512}}",
       "layer 11 has 4 kv heads of 256 numbers, expected 4 of 512, as others with the same attention"},
      {"gemma4_text", "'rope_parameters': {'full_attention': {'rope_type': 'yarn', 'factor': 2}}",
       "rope type yarn is not supported, expected default or proportional"},
      {"gemma4_text", "'rope_parameters': {'full_attention': {'rope_type': 'proportional', 'factor': 0}}",
       "full_attention: factor is 0"},
      {"gemma4_text",
       "'rope_parameters': {'full_attention': {'rope_type': 'proportional', "
       "'partial_rotary_factor': 1.5}}",
       "partial_rotary_factor is 1.5"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char members[1000];
    snprintf(members, sizeof members, "%s%s", cases[i].model_type ? "'hidden_size_per_layer_input': 0, " : "",
             cases[i].members);
    assert_members_refused(cases[i].model_type, members, cases[i].message);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gemma3),
      cmocka_unit_test(gemma3n),
      cmocka_unit_test(quantiles_of_a_gaussian),
      cmocka_unit_test(what_gemma3n_has_not_is_refused),
      cmocka_unit_test(gemma4),
      cmocka_unit_test(gemma4_with_inputs_of_each_layer),
      cmocka_unit_test(contradictions_between_layers_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
