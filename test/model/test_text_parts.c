/* test_text_parts.c - the text parts of models of several parts: where their configs are, and what they mean.
 *
 * The reference is transformers 5.23, configuration_NAME.py and modeling_NAME.py. test_architectures.c has
 * the defaults, and what is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config_text.h"
#include "model/config/architectures.h"

static void the_text_part_has_its_own_config(void **state) {
  (void)state;
  ModelConfig c = accepted(
      "{'architectures': ['Gemma3ForConditionalGeneration'], 'model_type': 'gemma3', 'hidden_size': 7,"
      "'eos_token_id': [1, 106], 'text_config': {'model_type': 'gemma3_text', 'hidden_size': 2560,"
      "'num_hidden_layers': 3, 'sliding_window': 1024, 'rope_scaling': {'factor': 8.0, 'rope_type': "
      "'linear'}},"
      "'vision_config': {'model_type': 'siglip_vision_model', 'hidden_size': 1152},"
      "'quantization_config': {'quant_method': 'awq', 'group_size': 64}}");
  assert_string_equal(c.architecture, "Gemma3ForConditionalGeneration");
  assert_true(c.text_part && c.hidden == 2560 && c.vocab_size == 262208 && c.head_dim == 256);
  assert_true(c.tied_embeddings && c.n_eos == 2 && c.eos[1] == 106 && c.bos == 2);
  assert_true(c.quant.scheme.method == QUANT_AWQ && c.quant.scheme.group == 64 && c.rope.factor == 8);
  assert_layers(&c, "LLL");
  config_release(&c);
  c = accepted(
      "{'model_type': 'mistral3', 'tie_word_embeddings': false, 'text_config': {'hidden_size': 5120, "
      "'head_dim': 128,"
      "'sliding_window': null, 'num_hidden_layers': 2, 'quantization_config': {'quant_method': 'awq'}}}");
  assert_string_equal(c.architecture, "Mistral3ForConditionalGeneration");
  assert_true(c.text_part && c.head_dim == 128 && !c.tied_embeddings && c.quant.scheme.method == QUANT_AWQ &&
              c.eos[0] == 2);
  assert_layers(&c, "gg");
  config_release(&c);
}

static void text_parts_have_defaults_of_their_own(void **state) {
  (void)state;
  ModelConfig c =
      accepted("{'model_type': 'qwen2_5_vl', 'vision_config': {'hidden_size': 9}, 'hidden_size': 128,"
               "'num_attention_heads': 4, 'num_key_value_heads': null, 'num_hidden_layers': 2,"
               "'rope_scaling': {'type': 'mrope', 'mrope_section': [2, 3, 3]}}");
  assert_true(c.text_part && c.hidden == 128 && c.n_kv_heads == 4 && c.head_dim == 32 && c.qkv_bias);
  assert_true(c.rope.kind == ROPE_PLAIN && c.rope.theta == 1e6 && c.norm_eps == 1e-5 && c.bos == 151643);
  config_release(&c);
  c = accepted("{'model_type': 'qwen2_vl', 'hidden_size': 7, 'text_config': {'num_hidden_layers': 82,"
               "'use_sliding_window': true}}");
  assert_true(c.hidden == 8192 && c.layers[79].window == 0 && c.layers[80].window == 4096);
  config_release(&c);
  c = accepted("{'model_type': 'qwen3_omni_moe', 'thinker_config': {'text_config': {'head_dim': 128}}}");
  assert_true(c.experts.n_experts == 128 && c.experts.renormalise && c.head_dim == 128 &&
              c.rope.theta == 1e6);
  config_release(&c);
  c = accepted("{'model_type': 'qwen3_vl_moe', 'text_config': {'norm_topk_prob': false}}");
  assert_true(c.experts.n_experts == 60 && c.experts.n_chosen == 4 && c.experts.renormalise &&
              c.experts.width == 1408 && c.rope.theta == 5e5);
  config_release(&c);
  c = accepted("{'model_type': 'glm4v', 'text_config': {}}");
  assert_true(c.norms == NORM_AROUND && c.rope.neighbours && c.rope.rotary_dim == 128 && c.qkv_bias &&
              !c.o_bias);
  config_release(&c);
  c = accepted(
      "{'model_type': 'glm46v', 'text_config': {'model_type': 'glm4v_moe_text', 'hidden_size': 768}}");
  assert_true(c.experts.score == SCORE_SIGMOID && c.head_dim == 8 && c.rope.rotary_dim == 4 && c.qkv_bias);
  config_release(&c);
}

/* Heads that scale logits as the text model does. */
static void text_parts_have_their_factors(void **state) {
  (void)state;
  ModelConfig c = accepted("{'model_type': 'granite_docling', 'text_config': {}}");
  assert_true(c.embedding_scale == 12 && c.attention_scale == 0.015625 && c.residual_scale == 0.263 &&
              c.logit_divisor == 4);
  config_release(&c);
  c = accepted("{'model_type': 'granite4_vision', 'text_config': {'model_type': 'granite4_vision_text', "
               "'logits_scaling': 8}}");
  assert_true(c.embedding_scale == 1 && c.attention_scale == 1 && c.logit_divisor == 8);
  config_release(&c);
  c = accepted("{'model_type': 'granite4_vision', 'text_config': {'model_type': 'granite', "
               "'logits_scaling': 8}}");
  assert_true(c.logit_divisor == 8 && c.n_layers == 32);
  config_release(&c);
  c = accepted(
      "{'architectures': ['HCXVisionV2ForCausalLM'], 'model_type': 'vlm', 'text_config': {'model_type': "
      "'hyperclovax', 'logits_scaling': 0.125, 'head_dim': 64}, 'vision_config': {}}");
  assert_true(c.text_part && c.norms == NORM_AROUND && c.logit_divisor == 8 && c.attention_scale == 0.125);
  config_release(&c);
}

/* As tencent/HunyuanOCR has it, whose text part stands beside the rest, and PaddlePaddle/PaddleOCR-VL. */
static void text_parts_for_reading_pages(void **state) {
  (void)state;
  ModelConfig c = accepted(
      "{'architectures': ['HunYuanVLForConditionalGeneration'], 'model_type': 'hunyuan_vl', "
      "'hidden_size': 1024, 'head_dim': 128, 'num_attention_heads': 16, 'num_key_value_heads': 8, "
      "'num_hidden_layers': 24, 'rope_theta': 10000.0, 'use_qk_norm': true, 'rope_scaling': {'alpha': "
      "1000.0, 'beta_fast': 32, 'beta_slow': 1, 'factor': 1.0, 'mscale': 1.0, 'mscale_all_dim': 1.0, "
      "'type': 'xdrope', 'xdrope_section': [16, 16, 16, 16]}, 'vision_config': {'hidden_size': 1152}}");
  assert_true(c.text_part && c.hidden == 1024 && c.n_kv_heads == 8 && c.tied_embeddings);
  assert_true(c.qk_norm == QK_NORM_HEADS && c.qk_norm_after_rope && c.rope.kind == ROPE_PLAIN);
  assert_true(fabs(c.rope.theta / (1e4 * pow(1000, 128.0 / 126)) - 1) < 1e-12);
  config_release(&c);
  c = accepted("{'model_type': 'hunyuan_vl', 'hidden_size': 1024, 'num_attention_heads': 16, "
               "'attention_head_dim': 128}");
  assert_int_equal(c.head_dim, 128);
  config_release(&c);
  c = accepted(
      "{'model_type': 'paddleocr_vl', 'hidden_size': 1024, 'rope_theta': 500000.0, 'rope_scaling': "
      "{'mrope_section': [16, 24, 24], 'rope_type': 'default', 'type': 'default'}, 'use_bias': true, "
      "'tie_word_embeddings': false, 'vision_config': {}}");
  assert_true(c.text_part && c.rope.theta == 5e5 && !c.rope.neighbours && !c.tied_embeddings);
  assert_true(c.qkv_bias && c.o_bias && c.mlp_bias);
  config_release(&c);
  c = accepted("{'model_type': 'glm_ocr', 'text_config': {'head_dim': 128}}");
  assert_true(c.norms == NORM_AROUND && c.rope.neighbours && c.rope.rotary_dim == 128 && !c.qkv_bias);
  config_release(&c);
}

/* Kimi K2.5 calls its text part kimi_k2, as Kimi K2 calls itself. Nemotron 3 Nano Omni has it in llm_config,
 * or text_config, which counts more. MiniCPM-V's is Qwen3.5. */
static void text_parts_have_other_names(void **state) {
  (void)state;
  ModelConfig c = accepted(
      "{'architectures': ['KimiK25ForConditionalGeneration'], 'model_type': 'kimi_k25', 'text_config': "
      "{'model_type': 'kimi_k2', 'n_routed_experts': 384, 'num_experts_per_tok': 8, 'n_group': 1, "
      "'topk_group': 1, 'topk_method': 'noaux_tc', 'scoring_func': 'sigmoid', 'num_attention_heads': 64, "
      "'routed_scaling_factor': 2.827, 'first_k_dense_replace': 1, 'vocab_size': 163840}}");
  assert_true(c.text_part && c.latent.kv_rank == 512 && c.experts.n_experts == 384 &&
              c.experts.scale == 2.827);
  assert_true(c.experts.n_groups == 1 && c.vocab_size == 163840 && c.n_heads == 64);
  config_release(&c);
  c = accepted("{'architectures': ['DeepseekV3ForCausalLM'], 'model_type': 'kimi_k2', 'n_group': 1, "
               "'topk_group': 1}");
  assert_true(!c.text_part && c.latent.kv_rank == 512);
  config_release(&c);
  static const char *const omni[] = {
      "{'model_type': 'nemotron_h_omni', 'llm_config': {'hybrid_override_pattern': 'M*-'}}",
      "{'model_type': 'nemotron_h_omni', 'text_config': {'hybrid_override_pattern': 'M*-'}, 'llm_config': "
      "{}}",
      "{'architectures': ['NemotronH_Nano_Omni_Reasoning_V3'], 'llm_config': {'model_type': 'nemotron_h', "
      "'hybrid_override_pattern': 'M*-'}}"};
  for (size_t i = 0; i < sizeof omni / sizeof *omni; i++) {
    c = accepted(omni[i]);
    assert_true(c.text_part && c.n_layers == 3 && is_ungated(c.activation) && c.delta.rule == RULE_MAMBA2);
    config_release(&c);
  }
  c = accepted("{'model_type': 'minicpmv4_6', 'text_config': {'num_hidden_layers': 4}}");
  assert_true(c.text_part && c.delta.rule == RULE_GATED_DELTA && c.attn_gate == ATTN_GATE_IN_Q);
  config_release(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_text_part_has_its_own_config),
      cmocka_unit_test(text_parts_have_defaults_of_their_own),
      cmocka_unit_test(text_parts_have_their_factors),
      cmocka_unit_test(text_parts_for_reading_pages),
      cmocka_unit_test(text_parts_have_other_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
