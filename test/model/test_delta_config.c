/* test_delta_config.c - kinds of layers and sizes of the gated delta rule and of Mamba-2 in config.json, as
 * transformers 5.23 reads them (configuration_qwen3_5.py, configuration_granitemoehybrid.py,
 * configuration_bamba.py, configuration_falcon_h1.py, configuration_olmo_hybrid.py,
 * configuration_nemotron_h.py, configuration_kimi_linear.py, configuration_bailing_hybrid.py), and what is
 * refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config_text.h"

/* Kinds of layers as letters: d(elta rule), a(ttention), m(LP alone), e(xperts alone). */
static void assert_kinds(const char *text, const char *expected) {
  char found[64] = "";
  ModelConfig c = accepted(text);
  for (int i = 0; i < c.n_layers && i < 63; i++)
    found[i] = config_layer(&c, i).kind == LAYER_DELTA       ? 'd'
               : config_layer(&c, i).kind == LAYER_ATTENTION ? 'a'
               : config_layer(&c, i).n_experts > 0           ? 'e'
                                                             : 'm';
  assert_string_equal(found, expected);
  config_release(&c);
}

/* As Qwen/Qwen3.5-27B has it; its text is three times the same position, so that mrope is plain rope. */
static void qwen3_5(void **state) {
  (void)state;
  ModelConfig c = accepted(
      "{'architectures': ['Qwen3_5ForConditionalGeneration'], 'model_type': 'qwen3_5', 'text_config': {"
      "'model_type': 'qwen3_5_text', 'hidden_size': 5120, 'intermediate_size': 17408, 'num_hidden_layers': "
      "64,"
      "'num_attention_heads': 24, 'num_key_value_heads': 4, 'linear_num_value_heads': 48, "
      "'attn_output_gate': "
      "true, 'full_attention_interval': 4, 'mtp_num_hidden_layers': 1, 'rope_parameters': {'rope_type': "
      "'default', 'rope_theta': 10000000, 'partial_rotary_factor': 0.25, 'mrope_interleaved': true, "
      "'mrope_section': [11, 11, 10]}}, 'vision_config': {}}");
  assert_true(c.text_part && c.norm == NORM_PLUS_ONE && c.qk_norm == QK_NORM_HEADS);
  assert_int_equal(c.attn_gate, ATTN_GATE_IN_Q);
  assert_int_equal(c.rope.rotary_dim, 64);
  assert_true(c.rope.theta == 1e7 && c.rope.kind == ROPE_PLAIN);
  assert_true(c.delta.rule == RULE_GATED_DELTA && !c.delta.interleaved);
  assert_true(c.delta.n_key_heads == 16 && c.delta.n_value_heads == 48 && c.delta.conv == 4);
  assert_true(c.delta.key_dim == 128 && c.delta.value_dim == 128);
  assert_int_equal(delta_channels(&c.delta), 10240); /* rows of the published conv1d */
  assert_int_equal(config_state_numbers(&c, 63), 0);
  assert_int_equal(config_state_numbers(&c, 0), 3 * 10240 + 48 * 128 * 128);
  assert_int_equal(config_count_layers(&c, LAYER_ATTENTION, 64), 16);
  assert_int_equal(config_count_layers(&c, LAYER_ATTENTION, 7), 1);
  assert_int_equal(config_layer(&c, 62).kind, LAYER_DELTA);
  assert_int_equal(config_layer(&c, 63).kind, LAYER_ATTENTION);
  config_release(&c);
#define TEXT(members) "{'model_type': 'qwen3_5_text', " members "}"
  assert_kinds(TEXT("'num_hidden_layers': 9"), "dddadddad");
  assert_kinds(TEXT("'num_hidden_layers': 5, 'full_attention_interval': 2"), "dadad");
  assert_kinds(TEXT("'num_hidden_layers': 3, 'full_attention_interval': 1"), "aaa");
  assert_kinds(TEXT("'num_hidden_layers': 3, 'layer_types': ['full_attention', 'linear_attention', "
                    "'full_attention']"),
               "ada");
  c = accepted(TEXT("'num_hidden_layers': 2, 'layer_types': ['full_attention', 'full_attention']"));
  assert_int_equal(c.delta.n_key_heads, 0); /* without such layers there is no state either */
  config_release(&c);
#undef TEXT
}

#define MAMBA(members) "{'model_type': 'granitemoehybrid', 'num_local_experts': 0, " members "}"

static void mamba_2(void **state) {
  (void)state;
  ModelConfig c = accepted(
      "{'model_type': 'granitemoehybrid', 'hidden_size': 1536, 'num_hidden_layers': 3, "
      "'num_attention_heads': 12, "
      "'num_key_value_heads': 4, 'intermediate_size': 512, 'shared_intermediate_size': 1024, "
      "'num_local_experts': 64, 'num_experts_per_tok': 6, 'layer_types': ['mamba', 'attention', 'mamba'], "
      "'mamba_n_heads': 48, 'mamba_n_groups': 1, 'mamba_d_state': 128, 'mamba_d_head': 64, 'mamba_d_conv': "
      "4}");
  assert_true(c.delta.rule == RULE_MAMBA2 && c.delta.conv_bias && !c.delta.biases);
  assert_true(c.delta.n_key_heads == 1 && c.delta.n_value_heads == 48 && c.delta.conv == 4);
  assert_true(c.delta.key_dim == 128 && c.delta.value_dim == 64);
  assert_true(c.delta.least_step == 0 && isinf(c.delta.largest_step));
  assert_int_equal(delta_channels(&c.delta), 3072 + 2 * 128);
  assert_int_equal(delta_norm_width(&c.delta), 3072);
  const DeltaPlaces places = delta_places(&c.delta);
  assert_true(places.v == 0 && places.k == 3072 && places.q == 3200);
  assert_int_equal(config_state_numbers(&c, 0), 3 * 3328 + 48 * 128 * 64);
  assert_int_equal(config_state_numbers(&c, 1), 0);
  assert_true(c.experts.n_experts == 64 && c.experts.width == 512 && c.experts.shared_width == 1024);
  assert_int_equal(config_layer(&c, 1).rope, ROPE_NONE);
  config_release(&c);
  assert_kinds(MAMBA("'num_hidden_layers': 3"), "ddd");
  assert_kinds(MAMBA("'num_hidden_layers': 2, 'layers_block_type': ['attention', 'mamba']"), "ad");
  assert_kinds(MAMBA("'num_hidden_layers': 2, 'layer_types': ['linear_attention', 'full_attention']"), "da");
  c = accepted(MAMBA("'num_hidden_layers': 1, 'time_step_limit': [0.001, {'__float__': 'Infinity'}]"));
  assert_true(c.delta.least_step == 0.001 && isinf(c.delta.largest_step) && c.experts.n_experts == 0);
  assert_int_equal(c.intermediate, 1024);
  config_release(&c);
  c = accepted(MAMBA("'num_hidden_layers': 1, 'layer_types': ['attention']"));
  assert_int_equal(c.delta.n_key_heads, 0); /* without such layers there is no state either */
  config_release(&c);
}

#define BAMBA(members) "{'model_type': 'bamba', " members "}"

/* As ibm-ai-platform/Bamba-9B-v1 has it. */
static void bamba(void **state) {
  (void)state;
  ModelConfig c = accepted(
      "{'architectures': ['BambaForCausalLM'], 'model_type': 'bamba', 'attn_layer_indices': [9, 18, 27], "
      "'attn_rotary_emb': 64, 'hidden_size': 4096, 'intermediate_size': 14336, 'mamba_chunk_size': 256, "
      "'mamba_conv_bias': true, 'mamba_d_conv': 4, 'mamba_d_head': 64, 'mamba_d_state': 128, "
      "'mamba_expand': 2, 'mamba_n_groups': 1, 'mamba_n_heads': 128, 'mamba_proj_bias': false, "
      "'num_attention_heads': 32, 'num_hidden_layers': 32, 'num_key_value_heads': 8, 'rope_theta': 10000.0}");
  assert_true(c.delta.rule == RULE_MAMBA2 && c.delta.conv_bias && !c.delta.biases);
  assert_true(c.delta.n_key_heads == 1 && c.delta.n_value_heads == 128 && c.delta.conv == 4);
  assert_true(c.delta.key_dim == 128 && c.delta.value_dim == 64 && c.rope.rotary_dim == 64);
  assert_true(c.residual_scale == 1 && c.logit_divisor == 1 && c.experts.n_experts == 0 && !c.fused);
  assert_int_equal(config_count_layers(&c, LAYER_ATTENTION, 32), 3);
  assert_int_equal(config_layer(&c, 18).kind, LAYER_ATTENTION);
  assert_int_equal(config_layer(&c, 18).rope, ROPE_GLOBAL);
  config_release(&c);
  assert_kinds(BAMBA("'num_hidden_layers': 3"), "ddd");
  assert_kinds(BAMBA("'num_hidden_layers': 3, 'attn_layer_indices': null"), "ddd");
  assert_kinds(BAMBA("'num_hidden_layers': 3, 'attn_layer_indices': [2, 0, 9]"), "ada");
  c = accepted(BAMBA("'rope_parameters': {'rope_theta': 5.0, 'partial_rotary_factor': 1.0}"));
  assert_true(c.rope.rotary_dim == 128 && c.rope.theta == 5);
  config_release(&c);
  assert_members_refused("bamba", "'attn_layer_indices': 3",
                         "attn_layer_indices is 3, expected a list of numbers of layers");
  assert_members_refused("bamba", "'attn_layer_indices': [-1]",
                         "attn_layer_indices holds -1, expected numbers of layers");
  assert_members_refused("bamba", "'partial_rotary_factor': 1.0", "partial_rotary_factor is 1, expected 0.5");
  assert_members_refused("bamba", "'hidden_act': 'gelu_pytorch_tanh'",
                         "is not supported with Mamba-2 layers, expected silu");
}

/* Sizes and factors as those of Falcon-H1-0.5B. */
static void falcon_h1(void **state) {
  (void)state;
  ModelConfig c = accepted(
      "{'architectures': ['FalconH1ForCausalLM'], 'model_type': 'falcon_h1', 'attention_bias': false, "
      "'attention_in_multiplier': 1.0, 'attention_out_multiplier': 0.9375, 'embedding_multiplier': "
      "5.656854249492381, 'head_dim': 64, 'hidden_size': 1024, 'intermediate_size': 2048, 'key_multiplier': "
      "0.390625, 'lm_head_multiplier': 0.0390625, 'mamba_chunk_size': 128, 'mamba_conv_bias': true, "
      "'mamba_d_conv': 4, 'mamba_d_head': 64, 'mamba_d_ssm': 1536, 'mamba_d_state': 128, 'mamba_expand': 2, "
      "'mamba_n_groups': 1, 'mamba_n_heads': 24, 'mamba_norm_before_gate': false, 'mamba_proj_bias': false, "
      "'mamba_rms_norm': false, 'mamba_use_mlp': true, 'mlp_multipliers': [0.875, 0.5859375], "
      "'num_attention_heads': 8, 'num_hidden_layers': 36, 'num_key_value_heads': 2, 'projectors_bias': "
      "false, "
      "'rope_theta': 100000000000.0, 'ssm_in_multiplier': 1.25, 'ssm_multipliers': [0.5, 0.25, 0.375, 0.75, "
      "0.125], 'ssm_out_multiplier': 0.234375}");
  const DeltaConfig *d = &c.delta;
  assert_true(d->rule == RULE_MAMBA2 && d->conv_bias && !d->biases && d->no_norm && d->conv == 4);
  assert_true(d->n_value_heads == 24 && d->value_dim == 64 && d->n_key_heads == 1 && d->key_dim == 128);
  assert_true(d->z_scale == 0.625 && d->v_scale == 0.3125 && d->k_scale == 0.46875);
  assert_true(d->q_scale == 0.9375 && d->a_scale == 0.15625 && d->out_scale == 0.25);
  assert_true(c.residual_scale == 0.9375 && c.gate_scale == 0.875 && c.mlp_scale == 0.625);
  assert_true(c.attention_scale == 0.125 * 0.390625 && c.logit_divisor == 25.6 && c.head_dim == 64);
  assert_int_equal(config_count_layers(&c, LAYER_ATTENTION, 36), 36);
  assert_int_equal(config_count_layers(&c, LAYER_DELTA, 36), 36);
  assert_true(config_state_numbers(&c, 35) > 0 && config_kv_numbers(&c, 35) == 2 * 2 * 64);
  config_release(&c);
  c = accepted("{'model_type': 'falcon_h1', 'mamba_d_ssm': null, 'mamba_rms_norm': true, "
               "'mamba_norm_before_gate': false, 'attention_in_multiplier': 0.5}");
  assert_true(c.delta.value_dim == 64 && c.delta.n_value_heads == 128 && !c.delta.no_norm);
  assert_true(c.residual_scale == 0.5 && c.delta.out_scale == 2 && c.delta.z_scale == 1 && c.mlp_scale == 2);
  config_release(&c);
  static const char *const refused[][2] = {
      {"'mamba_rms_norm': true", "mamba_norm_before_gate is true, expected false with mamba_rms_norm"},
      {"'mamba_d_head': 16", "mamba_d_head is 16, expected mamba_d_ssm / mamba_n_heads, 8"},
      {"'mamba_n_heads': 48", "mamba_n_heads is 48, expected a divisor of mamba_d_ssm, 1024"},
      {"'projectors_bias': true", "projectors_bias is true, which is not supported, expected false"},
      {"'attention_bias': true", "attention_bias is true, which is not supported, expected false"},
      {"'mlp_multipliers': [1]", "mlp_multipliers is an array, expected a list of 2 numbers"},
      {"'ssm_multipliers': 2", "ssm_multipliers is 2, expected a list of 5 numbers"},
      {"'ssm_multipliers': [1, 1, 0, 1, 1]",
       "ssm_multipliers holds 0, expected numbers from 1e-06 to 1000000"},
      {"'key_multiplier': 0", "key_multiplier is 0, expected"},
      {"'hidden_act': 'gelu_pytorch_tanh'", "is not supported with Mamba-2 layers, expected silu"}};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    assert_members_refused("falcon_h1", refused[i][0], refused[i][1]);
}

#define OLMO(members) "{'model_type': 'olmo_hybrid', " members "}"

/* As allenai/Olmo-Hybrid-7B has it; a theta of null is no rope. */
static void olmo_hybrid(void **state) {
  (void)state;
  ModelConfig c = accepted(OLMO("'rope_theta': null, 'linear_num_key_heads': 30, 'linear_key_head_dim': 96, "
                                "'linear_value_head_dim': 192, 'linear_num_value_heads': 30, "
                                "'linear_conv_kernel_dim': 4, 'linear_allow_neg_eigval': true"));
  assert_true(c.delta.apart && c.delta.doubles_beta && c.delta.norm_eps == 1e-5 && c.norm_eps == 1e-6);
  assert_true(c.norms == NORM_AFTER && c.qk_norm == QK_NORM_WHOLE && c.attn_gate == ATTN_GATE_NONE);
  for (int layer = 0; layer < 32; layer++) {
    const LayerConfig own = config_layer(&c, layer);
    assert_int_equal(own.kind, layer % 4 == 3 ? LAYER_ATTENTION : LAYER_DELTA);
    assert_int_equal(own.norms, layer % 4 == 3 ? NORM_AFTER : NORM_BEFORE);
    assert_int_equal(own.rope, ROPE_NONE);
  }
  config_release(&c);
  c = accepted(OLMO("'num_attention_heads': 20, 'linear_allow_neg_eigval': false"));
  assert_true(c.delta.n_key_heads == 20 && c.delta.n_value_heads == 20 && c.delta.key_dim == 144);
  assert_true(c.delta.value_dim == 288 && c.delta.conv == 4 && !c.delta.doubles_beta);
  assert_int_equal(config_layer(&c, 3).rope, ROPE_GLOBAL);
  config_release(&c);
  assert_kinds(OLMO("'num_hidden_layers': 3"), "dda");
  assert_kinds(OLMO("'num_hidden_layers': 6"), "dddadd");
  assert_kinds(OLMO("'num_hidden_layers': 2, 'layer_types': ['full_attention', 'linear_attention']"), "ad");
  c = accepted(OLMO("'num_hidden_layers': 1, 'layer_types': ['full_attention']"));
  assert_true(c.delta.n_key_heads == 0 && !config_has_states(&c) && config_layer(&c, 0).norms == NORM_AFTER);
  config_release(&c);
  static const struct {
    const char *text;
    LayerRope rope;
  } ropes[] = {{OLMO("'rope_parameters': null"), ROPE_GLOBAL},
               {OLMO("'rope_parameters': {'rope_theta': null}"), ROPE_NONE},
               {OLMO("'rope_theta': 5, 'rope_parameters': {'rope_theta': null}"), ROPE_NONE},
               {OLMO("'rope_theta': null, 'rope_parameters': {'rope_theta': 5}"), ROPE_GLOBAL},
               {OLMO("'rope_theta': null, 'rope_parameters': {'rope_type': 'default'}"), ROPE_NONE}};
  for (size_t i = 0; i < sizeof ropes / sizeof *ropes; i++) {
    c = accepted(ropes[i].text);
    assert_int_equal(config_layer(&c, 3).rope, ropes[i].rope);
    config_release(&c);
  }
  assert_members_refused("olmo_hybrid", "'layer_types': ['mamba']", "layer_types is a list of 1");
  assert_members_refused("olmo_hybrid", "'linear_key_head_dim': 600", "heads of 600 and 1200 numbers");
  assert_members_refused("olmo_hybrid", "'hidden_size': 32, 'head_dim': 4, 'linear_num_key_heads': 30",
                         "heads of 0 and 0 numbers");
  assert_members_refused("olmo_hybrid", "'linear_num_value_heads': 45",
                         "expected a multiple of its 30 key heads");
  assert_members_refused("olmo_hybrid", "'linear_allow_neg_eigval': 2", "linear_allow_neg_eigval is 2");
  assert_members_refused("olmo_hybrid", "'hidden_act': 'gelu_pytorch_tanh'",
                         "is not supported with layers of the gated delta rule, expected silu");
}

#define KIMI(members) "{'model_type': 'kimi_linear', " members "}"

/* As moonshotai/Kimi-Linear-48B-A3B-Instruct has it, whose lists of layers are of other lengths there. */
static void kimi_linear(void **state) {
  (void)state;
  ModelConfig c = accepted(KIMI(
      "'num_hidden_layers': 8, 'first_k_dense_replace': 1, 'head_dim': 72, 'q_lora_rank': null, "
      "'linear_attn_config': {'full_attn_layers': [4, 8], 'head_dim': 128, 'kda_layers': [1, 2, 3, 5, 6, "
      "7], 'num_heads': 32, 'short_conv_kernel_size': 4}, 'mla_use_nope': true, 'model_max_length': "
      "1048576, 'moe_layer_freq': 1, 'moe_renormalize': true, 'moe_router_activation_func': 'sigmoid', "
      "'num_expert_group': 1, 'num_experts': 256, 'num_experts_per_token': 8, 'num_nextn_predict_layers': "
      "0, 'num_shared_experts': 1, 'rope_scaling': null, 'rope_theta': 10000.0, 'topk_group': 1, "
      "'use_grouped_topk': true, 'routed_scaling_factor': 2.446"));
  assert_true(c.delta.apart && c.delta.by_channel && c.delta.gate_is_sigmoid && c.delta.log_bound == 0);
  assert_true(c.delta.n_key_heads == 32 && c.delta.n_value_heads == 32 && c.delta.gate_rank == 128);
  assert_true(c.delta.key_dim == 128 && c.delta.value_dim == 128 && c.delta.conv == 4);
  assert_int_equal(delta_decays(&c.delta), 4096); /* numbers of the published dt_bias */
  assert_true(c.latent.kv_rank == 512 && c.latent.q_rank == 0 && c.head_dim == 576 && c.norm_eps == 1e-5);
  assert_true(c.attention_scale == 1 / sqrt(192) && c.max_position == 1 << 20);
  for (int layer = 0; layer < 8; layer++) {
    const LayerConfig own = config_layer(&c, layer);
    assert_int_equal(own.kind, layer % 4 == 3 ? LAYER_ATTENTION : LAYER_DELTA);
    assert_int_equal(own.rope, ROPE_NONE);
    assert_int_equal(own.n_experts, layer > 0 ? 256 : 0);
  }
  config_release(&c);
  c = accepted(KIMI("'num_hidden_layers': 2, 'max_position_embeddings': 70, 'num_experts_per_tok': 3, "
                    "'norm_topk_prob': false, 'n_group': 2, 'n_shared_experts': 3, 'linear_head_dim': 5, "
                    "'linear_num_heads': 7, 'linear_conv_kernel_dim': 2, 'rope_parameters': {'rope_type': "
                    "'yarn'}, 'mlp_layer_types': ['sparse', 'dense']"));
  assert_true(c.max_position == 70 && c.experts.n_chosen == 3 && !c.experts.renormalise);
  assert_true(c.experts.n_groups == 2 && c.experts.shared_width == 3072 && c.delta.key_dim == 5);
  assert_true(c.delta.n_value_heads == 7 && c.delta.conv == 2 && c.delta.gate_rank == 5 && c.layers[1].dense);
  config_release(&c);
  c = accepted(KIMI("'max_position_embeddings': 70, 'model_max_length': 60, 'num_experts_per_tok': 3, "
                    "'num_experts_per_token': 4, 'norm_topk_prob': false, 'moe_renormalize': true, "
                    "'n_group': 2, 'num_expert_group': 4, 'topk_group': 1, 'n_shared_experts': 3, "
                    "'num_shared_experts': 0, 'linear_head_dim': 5, 'linear_attn_config': {'head_dim': 6}"));
  assert_true(c.max_position == 60 && c.experts.n_chosen == 4 && c.experts.renormalise);
  assert_true(c.experts.n_groups == 4 && c.experts.shared_width == 0 && c.delta.key_dim == 6);
  config_release(&c);
  assert_kinds(KIMI("'num_hidden_layers': 10"), "ddddadddad");
  assert_kinds(KIMI("'num_hidden_layers': 6, 'linear_attn_config': {'kda_layers': [1]}"), "ddddad");
  assert_kinds(KIMI("'num_hidden_layers': 2, 'layer_types': ['full_attention', 'linear_attention'], "
                    "'linear_attn_config': {'kda_layers': [1], 'full_attn_layers': [2]}"),
               "ad");
  c = accepted(KIMI("'num_hidden_layers': 1, 'layer_types': ['full_attention']"));
  assert_true(c.delta.n_key_heads == 0 && !config_has_states(&c));
  config_release(&c);
  static const char *const refused[][2] = {
      {"'num_hidden_layers': 2, 'linear_attn_config': {'kda_layers': [1, 2], 'full_attn_layers': [2]}",
       "kda_layers and full_attn_layers both hold layer 2, expected one of them to hold it"},
      {"'num_hidden_layers': 2, 'linear_attn_config': {'kda_layers': [0], 'full_attn_layers': [2]}",
       "kda_layers and full_attn_layers count layers from 1, but one of them holds 0"},
      {"'num_hidden_layers': 2, 'linear_attn_config': {'kda_layers': [], 'full_attn_layers': [2]}",
       "kda_layers and full_attn_layers do not hold layer 1"},
      {"'linear_attn_config': {'kda_layers': 1, 'full_attn_layers': []}", "kda_layers is 1, expected a list"},
      {"'linear_attn_config': {'kda_layers': [-1], 'full_attn_layers': []}", "kda_layers holds -1"},
      {"'linear_attn_config': []", "linear_attn_config is an array, expected an object"},
      {"'linear_attn_config': {'head_dim': 1025}", "linear_attn_config: head_dim is 1025"},
      {"'linear_attn_config': {'num_heads': 0}", "linear_attn_config: num_heads is 0"},
      {"'linear_attn_config': {'short_conv_kernel_size': 17}", "short_conv_kernel_size is 17"},
      {"'linear_num_heads': 'x'", "linear_num_heads is"},
      {"'layer_types': ['full_attention']", "layer_types is a list of 1"},
      {"'num_hidden_layers': 1, 'layer_types': ['kda']", "expected linear_attention or full_attention"},
      {"'mla_use_nope': false", "mla_use_nope is false, expected true"},
      {"'tie_word_embeddings': true", "tie_word_embeddings is true"},
      {"'moe_layer_freq': 2", "moe_layer_freq is 2, expected 1"},
      {"'moe_router_activation_func': 'softmax'",
       "moe_router_activation_func softmax is not supported, expected sigmoid"},
      {"'num_experts_per_token': 257", "num_experts_per_token is 257, expected at most num_experts, 256"},
      {"'num_expert_group': 3", "num_expert_group is 3, expected a divisor of the 256"},
      {"'model_max_length': 0", "model_max_length is 0"},
      {"'hidden_act': 'gelu_pytorch_tanh'", "gated delta rule, expected silu"}};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    assert_members_refused("kimi_linear", refused[i][0], refused[i][1]);
}

#define LING(members) "{'model_type': 'bailing_hybrid', " members "}"

static void ling(void **state) {
  (void)state;
  ModelConfig c = accepted(LING("'num_hidden_layers': 6, 'head_dim': 96, 'num_attention_heads': 20, "
                                "'num_key_value_heads': 20, 'short_conv_kernel_size': 3"));
  assert_true(c.delta.apart && c.delta.by_channel && c.delta.gate_is_sigmoid && c.delta.gate_rank == 0);
  assert_true(c.delta.key_dim == 96 && c.delta.value_dim == 96 && c.delta.n_value_heads == 20);
  assert_true(c.delta.conv == 3 && c.delta.log_bound == -5 && c.attn_gate == ATTN_GATE_HEADS);
  assert_true(c.rope.neighbours && c.rope.theta == 6e6 && c.rope.rotary_dim == 64);
  assert_int_equal(config_layer(&c, 5).rope, ROPE_GLOBAL);
  config_release(&c);
  /* As transformers saves it: head_dim is qk_rope_head_dim. */
  c = accepted(LING("'head_dim': 64, 'linear_head_dim': 128, 'linear_num_heads': 16, "
                    "'linear_conv_kernel_dim': 2, 'kda_safe_gate': false"));
  assert_true(c.delta.key_dim == 128 && c.delta.n_key_heads == 16 && c.delta.conv == 2);
  assert_true(c.delta.log_bound == 0);
  config_release(&c);
  assert_kinds(LING("'num_hidden_layers': 7"), "dddddad");
  assert_kinds(LING("'num_hidden_layers': 4, 'layer_group_size': 2"), "dada");
  assert_kinds(LING("'num_hidden_layers': 2, 'layer_types': ['full_attention', 'linear_attention']"), "ad");
  static const char *const refused[][2] = {
      {"'kda_lower_bound': 0", "kda_lower_bound is 0, expected"},
      {"'kda_lower_bound': 5", "kda_lower_bound is 5, expected"},
      {"'kda_safe_gate': 1", "kda_safe_gate is 1"},
      {"'layer_group_size': 0", "layer_group_size is 0"},
      {"'head_dim': 2000", "head_dim is 2000"},
      {"'rope_interleave': false", "rope_interleave is false, expected true"},
      {"'q_lora_rank': 32", "q_lora_rank is 32, expected null"},
      {"'mla_use_nope': true", "mla_use_nope is true, expected false"},
      {"'hidden_act': 'gelu_pytorch_tanh'", "gated delta rule, expected silu"}};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    assert_members_refused("bailing_hybrid", refused[i][0], refused[i][1]);
}

#define NEMOTRON(members) "{'model_type': 'nemotron_h', " members "}"

/* As NVIDIA-Nemotron-3-Nano-30B-A3B has it, Python's Infinity included, but for the number of layers. */
static void nemotron_h(void **state) {
  (void)state;
  ModelConfig c = accepted(NEMOTRON(
      "'hidden_size': 2688, 'hybrid_override_pattern': 'MEM*E-', 'num_hidden_layers': 52, "
      "'mamba_num_heads': 64, 'mamba_head_dim': 64, 'ssm_state_size': 128, 'n_groups': 8, 'conv_kernel': 4, "
      "'time_step_limit': [0.0, Infinity], 'num_attention_heads': 32, 'num_key_value_heads': 2, "
      "'intermediate_size': 1856, 'moe_intermediate_size': 1856, 'n_routed_experts': 128, "
      "'num_experts_per_tok': 6, 'moe_shared_expert_intermediate_size': 3712, 'routed_scaling_factor': 2.5"));
  assert_int_equal(c.n_layers, 6); /* as the pattern says, whatever num_hidden_layers is */
  assert_true(c.activation == ACTIVATION_RELU);
  assert_true(c.delta.rule == RULE_MAMBA2 && c.delta.conv_bias && !c.delta.biases);
  assert_true(c.delta.n_key_heads == 8 && c.delta.n_value_heads == 64 && c.delta.conv == 4);
  assert_true(c.delta.key_dim == 128 && c.delta.value_dim == 64);
  assert_true(c.delta.least_step == 0 && isinf(c.delta.largest_step));
  assert_int_equal(delta_norm_width(&c.delta), 512);
  assert_true(c.experts.n_experts == 128 && c.experts.n_chosen == 6 && c.experts.scale == 2.5);
  assert_true(c.experts.width == 1856 && c.experts.shared_width == 3712 && c.experts.latent == 0);
  assert_int_equal(expert_row_width(&c), 2688);
  static const int widths[] = {0, 3712, 0, 0, 3712, 1856};
  for (int i = 0; i < 6; i++) {
    const LayerConfig layer = config_layer(&c, i);
    assert_int_equal(layer.intermediate, widths[i]);
    assert_int_equal(layer.n_experts, i == 1 || i == 4 ? 128 : 0);
    assert_int_equal(layer.no_mlp, widths[i] == 0);
    assert_int_equal(layer.rope, ROPE_NONE);
    assert_int_equal(config_state_numbers(&c, i) > 0, i == 0 || i == 2);
    assert_int_equal(config_kv_numbers(&c, i), i == 3 ? 2 * 2 * 128 : 0);
  }
  config_release(&c);
  assert_kinds(NEMOTRON("'hybrid_override_pattern': 'MEM*E-'"), "dedaem");
  assert_kinds(NEMOTRON("'layers_block_type': ['mamba', 'attention', 'mlp', 'moe']"), "dame");
  assert_kinds(NEMOTRON("'layer_types': ['linear_attention', 'full_attention', 'mlp']"), "dam");
  c = accepted(NEMOTRON("'layers_block_type': ['mamba', 'mlp'], 'mamba_n_groups': 4, 'n_groups': 2, "
                        "'mamba_d_conv': 3, 'mamba_conv_bias': false, 'mamba_dt_limit': [0.5, 2], "
                        "'use_bias': true, 'mlp_bias': true"));
  assert_true(c.delta.n_key_heads == 4 && c.delta.conv == 3 && !c.delta.conv_bias && c.delta.biases);
  assert_true(c.delta.least_step == 0.5 && c.delta.largest_step == 2 && c.mlp_bias && !c.qkv_bias);
  assert_int_equal(c.experts.n_experts, 0);
  config_release(&c);
  c = accepted(NEMOTRON("'layers_block_type': ['moe', 'full_attention'], 'moe_latent_size': 1024"));
  assert_true(c.experts.latent == 1024 && expert_row_width(&c) == 1024 && c.delta.n_key_heads == 0);
  assert_false(config_has_states(&c));
  config_release(&c);
}

static void contradictions_are_refused(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"{'model_type': 'qwen3_5_text', 'num_hidden_layers': 1, 'layer_types': ['sliding_attention']}",
       "layer_types[0] is \"sliding_attention\", expected linear_attention or full_attention"},
      {"{'model_type': 'qwen3_5_text', 'num_hidden_layers': 2, 'layer_types': ['linear_attention']}",
       "layer_types is a list of 1, expected a list of 2 names (num_hidden_layers)"},
      {"{'model_type': 'qwen3_5_text', 'layer_types': 'linear_attention'}",
       "layer_types is \"linear_attention\", expected a list of names"},
      {"{'model_type': 'qwen3_5_text', 'full_attention_interval': 0}", "full_attention_interval is 0"},
      {"{'model_type': 'qwen3_5_text', 'linear_num_value_heads': 24}",
       "linear_num_value_heads is 24, expected a multiple of its 16 key heads"},
      {"{'model_type': 'qwen3_5_text', 'attn_output_gate': false}",
       "attn_output_gate is false, expected true"},
      {"{'model_type': 'qwen3_5_text', 'hidden_act': 'gelu_pytorch_tanh'}",
       "hidden_act gelu_pytorch_tanh is not supported with layers of the gated delta rule, expected silu"},
      {MAMBA("'num_hidden_layers': 1, 'layer_types': ['conv']"),
       "layer_types[0] is \"conv\", expected mamba or attention"},
      {MAMBA("'num_hidden_layers': 1, 'layers_block_type': ['sliding_attention']"),
       "layers_block_type[0] is \"sliding_attention\", expected mamba or attention"},
      {MAMBA("'num_hidden_layers': 2, 'layer_types': ['mamba']"), "expected a list of 2 names"},
      {MAMBA("'mamba_n_heads': 100"),
       "mamba_n_heads is 100, expected a divisor of mamba_expand * hidden_size"},
      {MAMBA("'mamba_n_heads': 2"), "heads of 4096 numbers, expected at most 1024"},
      {MAMBA("'mamba_d_head': 32"),
       "mamba_d_head is 32, expected mamba_expand * hidden_size / mamba_n_heads"},
      {MAMBA("'mamba_n_groups': 3"), "mamba_n_heads is 128, expected a multiple of its 3 groups"},
      {MAMBA("'mamba_d_conv': 17"), "mamba_d_conv is 17"},
      {NEMOTRON("'hidden_size': 64"),
       "layers_block_type is missing, expected a list of names, or hybrid_override_pattern"},
      {NEMOTRON("'hybrid_override_pattern': 'MXM'"), "has \"X\" at 1, expected M, *, - or E"},
      {NEMOTRON("'hybrid_override_pattern': ''"), "hybrid_override_pattern has 0 layers, expected 1 to 4096"},
      {NEMOTRON("'layers_block_type': 'MEM'"), "layers_block_type is \"MEM\", expected a list of names"},
      {NEMOTRON("'layers_block_type': ['mamba', 'conv']"),
       "layers_block_type[1] is \"conv\", expected linear_attention, full_attention, mlp or moe"},
      {NEMOTRON("'layers_block_type': ['mamba'], 'n_groups': 3"),
       "mamba_num_heads is 128, expected a multiple of its 3 groups"},
      {NEMOTRON("'layers_block_type': ['mamba'], 'mamba_hidden_act': 'relu'"),
       "mamba_hidden_act relu is not supported, expected silu"},
      {NEMOTRON("'layers_block_type': ['mlp'], 'mlp_hidden_act': 'silu'"),
       "mlp_hidden_act silu is not supported, expected relu2"},
      {"{'model_type': 'apertus', 'hidden_act': 'silu'}", "hidden_act silu is not supported, expected xielu"},
      {"{'model_type': 'apertus'}", "rope_scaling and rope_parameters are missing"},
      {NEMOTRON("'layers_block_type': ['mamba'], 'time_step_limit': [Infinity, 1]"), "expected a number"},
      {MAMBA("'time_step_limit': [1]"), "expected a list of two numbers"},
      {MAMBA("'time_step_limit': [1, 'x']"), "expected a number"},
      {MAMBA("'time_step_limit': [1, 0.5]"), "expected two ascending numbers"},
      {MAMBA("'hidden_act': 'gelu_pytorch_tanh'"), "is not supported with Mamba-2 layers, expected silu"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ModelConfig config;
    Error err;
    if (parse(cases[i][0], &config, &err) != STATUS_MODEL) fail_msg("taken: %s", cases[i][0]);
    if (!strstr(err.text, cases[i][1])) fail_msg("%s: \"%s\"", cases[i][0], err.text);
    config_release(&config);
  }
}

/* A pattern may take 2^28 steps over the number of patterns and over that of linear layers. So its steps show
 * how many linear layers are counted: those of all layers, and lm_head. */
static void all_linear_layers_are_counted(void **state) {
  (void)state;
  enum { PATTERNS = 1000 };
  static const struct {
    const char *members;
    uint32_t linears; /* of a layer */
  } cases[] = {{"'model_type': 'llama'", 7},
               {"'model_type': 'qwen3_5_text'", 8}, /* qkv, z, b, a, out; gate, up, down */
               {"'model_type': 'olmo_hybrid'", 10}, /* q, k, v, z, b, a, o; gate, up, down */
               /* two for z and for a; and two experts */
               {"'model_type': 'kimi_linear', 'num_experts': 2, 'num_experts_per_token': 1", 12 + 2 * 3}};
  char *text = malloc(PATTERNS * 16 + 300);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    size_t n =
        (size_t)sprintf(text,
                        "{%s, 'num_hidden_layers': 32, 'quantization_config': {'quant_method': 'gptq', "
                        "'bits': 4, 'group_size': 128, 'dynamic': {'0': {}",
                        cases[i].members);
    for (int pattern = 1; pattern < PATTERNS; pattern++) n += (size_t)sprintf(text + n, ",'%d': {}", pattern);
    strcpy(text + n, "}}}");
    ModelConfig c = accepted(text);
    assert_int_equal(c.quant.max_steps, (1u << 28) / PATTERNS / (32 * cases[i].linears + 1));
    config_release(&c);
  }
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(qwen3_5),
      cmocka_unit_test(mamba_2),
      cmocka_unit_test(bamba),
      cmocka_unit_test(falcon_h1),
      cmocka_unit_test(olmo_hybrid),
      cmocka_unit_test(kimi_linear),
      cmocka_unit_test(ling),
      cmocka_unit_test(nemotron_h),
      cmocka_unit_test(all_linear_layers_are_counted),
      cmocka_unit_test(contradictions_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
