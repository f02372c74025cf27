/* test_short_conv_config.c - layers with a short convolution in config.json, and what LFM2 and LFM3 have of
 * their own, as transformers 5.23 reads them (models/lfm2 and models/lfm3, configuration_*.py). */
#include <math.h>

#include "config_text.h"

/* Kinds of layers as letters: c(onvolution), a(ttention), w: attention in a window. */
static void assert_kinds(const ModelConfig *c, const char *expected) {
  char found[64] = "";
  for (int i = 0; i < c->n_layers && i < 63; i++) {
    const LayerConfig layer = config_layer(c, i);
    found[i] = layer.kind == LAYER_CONV ? 'c' : layer.window ? 'w' : 'a';
    assert_int_equal(layer.rope, layer.window ? ROPE_LOCAL : ROPE_GLOBAL);
  }
  assert_string_equal(found, expected);
}

static void assert_accepted(const char *text, const char *kinds, int intermediate) {
  ModelConfig c = accepted(text);
  assert_kinds(&c, kinds);
  assert_int_equal(c.intermediate, intermediate);
  config_release(&c);
}

/* As LiquidAI/LFM2-1.2B has it, in part. */
#define LFM2_1_2B                                                                                            \
  "{'architectures': ['Lfm2ForCausalLM'], 'model_type': 'lfm2', 'block_auto_adjust_ff_dim': true, "          \
  "'block_dim': 2048, 'block_ff_dim': 12288, 'block_ffn_dim_multiplier': 1.0, 'block_multiple_of': 256, "    \
  "'conv_L_cache': 3, 'conv_bias': false, 'full_attn_idxs': [2, 5, 8, 10, 12, 14], 'hidden_size': 2048, "    \
  "'max_position_embeddings': 128000, 'norm_eps': 0.00002, 'num_attention_heads': 32, "                      \
  "'num_hidden_layers': 16, 'num_key_value_heads': 8, 'rope_theta': 1000000.0, 'eos_token_id': 7, "          \
  "'vocab_size': 65536}"

static void lfm2(void **state) {
  (void)state;
  ModelConfig c = accepted(LFM2_1_2B);
  assert_kinds(&c, "ccaccaccacacacac");
  assert_int_equal(c.intermediate, 8192);
  assert_true(c.tied_embeddings && c.norm_eps == 2e-5 && c.rope.theta == 1e6);
  assert_int_equal(c.head_dim, 64);
  assert_true(c.norms == NORM_BEFORE && c.qk_norm == QK_NORM_HEADS && c.attn_gate == ATTN_GATE_NONE);
  assert_int_equal(c.conv.taps, 3);
  assert_false(c.conv.bias);
  assert_true(config_has_states(&c));
  assert_int_equal(config_state_numbers(&c, 0), 2 * 2048);
  assert_int_equal(config_state_numbers(&c, 2), 0);
  assert_int_equal(config_kv_numbers(&c, 0), 0);
  assert_int_equal(config_kv_numbers(&c, 2), 2 * 8 * 64);
  config_release(&c);
#define TEXT(members) "{'model_type': 'lfm2', 'num_hidden_layers': 2, " members "}"
  assert_accepted(TEXT("'x': 0"), "aa", 8192); /* of 12288 */
  assert_accepted(TEXT("'full_attn_idxs': []"), "cc", 8192);
  assert_accepted(TEXT("'full_attn_idxs': [0], 'layer_types': ['conv', 'full_attention']"), "ca", 8192);
  assert_accepted(TEXT("'intermediate_size': 90, 'block_multiple_of': 7"), "aa", 63);
  assert_accepted(TEXT("'intermediate_size': 90, 'block_ff_dim': 100, 'block_multiple_of': 1"), "aa", 66);
  assert_accepted(TEXT("'block_ff_dim': 100, 'block_auto_adjust_ff_dim': false"), "aa", 100);
  assert_accepted(TEXT("'block_ff_dim': 100, 'block_ffn_dim_multiplier': 1.3, 'block_multiple_of': 8"), "aa",
                  88);
  assert_accepted(TEXT("'block_ff_dim': 100, 'block_ffn_dim_multiplier': null"), "aa", 66);
  c = accepted(TEXT("'tie_embedding': false, 'tie_word_embeddings': true, 'conv_bias': true"));
  assert_false(c.tied_embeddings);
  assert_false(config_has_states(&c)); /* all layers have attention: there is nothing to be biased either */
  assert_false(c.conv.taps || c.conv.bias);
  config_release(&c);
#undef TEXT
}

static void lfm3(void **state) {
  (void)state;
  ModelConfig c = accepted("{'model_type': 'lfm3', 'num_hidden_layers': 9, 'conv_bias': true}");
  assert_kinds(&c, "ccacwcacw");
  assert_int_equal(c.intermediate, 7680);
  assert_true(c.norms == NORM_AROUND && c.attn_gate == ATTN_GATE_HEADS && c.tied_embeddings);
  assert_int_equal(config_layer(&c, 4).window, 256);
  assert_true(c.conv.taps == 7 && c.conv.bias);
  assert_true(c.rope.kind == ROPE_PROPORTIONAL && c.rope.theta == 1e6 && c.local_rope.theta == 1e4);
  assert_int_equal(c.rope.n_turned, 32); /* half of the 64 pairs */
  assert_true(c.local_rope.kind == ROPE_PLAIN && c.local_rope.rotary_dim == 128);
  config_release(&c);
  c = accepted(
      "{'model_type': 'lfm3', 'num_hidden_layers': 3, 'layer_types': ['sliding_attention', 'conv', "
      "'full_attention'], 'use_sandwich_norm': false, 'use_attention_gate': false, 'conv_L_cache': 16, "
      "'sliding_window': 5, 'attention_bias': true, 'rope_parameters': {'full_attention': {'rope_type': "
      "'default', 'rope_theta': 50}, 'sliding_attention': {'rope_type': 'proportional', 'rope_theta': "
      "60}}}");
  assert_kinds(&c, "wca");
  assert_true(c.norms == NORM_BEFORE && c.attn_gate == ATTN_GATE_NONE && c.qkv_bias && c.o_bias);
  assert_int_equal(config_layer(&c, 0).window, 5);
  assert_int_equal(c.conv.taps, 16);
  assert_true(c.rope.theta == 50 && c.local_rope.theta == 60 && c.local_rope.n_turned == 64);
  config_release(&c);
  assert_accepted("{'model_type': 'lfm3', 'num_hidden_layers': 2, 'sliding_window': null, 'layer_types': "
                  "['conv', 'full_attention']}",
                  "ca", 7680);
}

static void what_is_wrong_is_named(void **state) {
  (void)state;
  static const char *const cases[][3] = {
      {"lfm2", "'layer_types': ['conv', 'sliding_attention']",
       "layer_types[1] is \"sliding_attention\", expected conv or full_attention"},
      {"lfm3", "'layer_types': ['conv', 'mamba']",
       "layer_types[1] is \"mamba\", expected conv, sliding_attention or full_attention"},
      {"lfm3", "'layer_types': ['conv']", "layer_types is a list of 1, expected a list of 2 names"},
      {"lfm3", "'layer_types': 'conv'", "layer_types is \"conv\", expected a list of names"},
      {"lfm3", "'layer_types': ['conv', 'sliding_attention'], 'sliding_window': null",
       "sliding_window is null, expected a number of positions: layer 1 has a window"},
      {"lfm2", "'full_attn_idxs': 1", "full_attn_idxs is 1, expected a list of layers"},
      {"lfm2", "'full_attn_idxs': [0, 2]", "full_attn_idxs has 2, expected layers from 0 to 1"},
      {"lfm2", "'conv_L_cache': 17", "conv_L_cache is 17, expected"},
      {"lfm2", "'block_ff_dim': 1", "block_ff_dim 1 becomes 0 as block_auto_adjust_ff_dim says"},
      {"lfm2", "'block_ffn_dim_multiplier': 1000, 'block_ff_dim': 4194304", "expected 1 to 4194304"},
      {"lfm2", "'rope_scaling': {'type': 'proportional'}", "rope type proportional is not supported"},
      {"lfm3", "'rope_parameters': {'full_attention': {'rope_type': 'yarn'}}",
       "rope type yarn is not supported"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char members[300];
    snprintf(members, sizeof members, "'num_hidden_layers': 2, %s", cases[i][1]);
    assert_members_refused(cases[i][0], members, cases[i][2]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lfm2),
      cmocka_unit_test(lfm3),
      cmocka_unit_test(what_is_wrong_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
