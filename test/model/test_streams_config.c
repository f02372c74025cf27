/* test_streams_config.c - hyper-connections, n-grams, sparse attention and the delta rule's gate in
 * config.json, as transformers 5.23 reads them (configuration_qwen4_exp.py), and what is refused. */
#include <stdio.h>

#include "config_text.h"

#define TEXT(members)                                                                                        \
  "{'model_type': 'qwen4_exp_text', 'eos_token_id': 7, 'num_hidden_layers': 4, " members "}"
#define INDEXER                                                                                              \
  "'indexer_n_heads': 4, 'indexer_kv_heads': 1, 'indexer_head_dim': 128, 'indexer_budget': 2048, "           \
  "'indexer_compress_ratio': 16, 'partial_rotary_factor': 0.25"

static void what_is_left_out_is_as_in_transformers(void **state) {
  (void)state;
  ModelConfig c = accepted("{'architectures': ['Qwen4ExpForCausalLM']}");
  assert_true(c.vocab_size == 248320 && c.hidden == 2048 && c.n_layers == 40 && c.max_position == 32768);
  assert_true(c.n_heads == 16 && c.n_kv_heads == 2 && c.head_dim == 256 && !c.tied_embeddings &&
              c.n_eos == 0);
  assert_true(c.rope.rotary_dim == 256 && c.rope.theta == 10000); /* unlike Qwen3.5, which turns a quarter */
  assert_true(c.norm == NORM_PLUS_ONE && c.qk_norm == QK_NORM_HEADS && c.attn_gate == ATTN_GATE_IN_Q &&
              !c.qkv_bias);
  assert_true(c.streams.n == 4 && c.streams.rank == 320);
  assert_true(c.ngrams.longest == 0 && c.indexer.block == 0);
  assert_true(c.delta.n_key_heads == 16 && c.delta.n_value_heads == 32 && !c.delta.interleaved);
  assert_true(c.delta.rule == RULE_GATED_DELTA && !c.delta.gate_is_sigmoid);
  assert_true(c.experts.n_experts == 512 && c.experts.n_chosen == 10 && c.experts.renormalise);
  assert_int_equal(config_count_layers(&c, LAYER_ATTENTION, 40), 10);
  for (int layer = 0; layer < 40; layer++) assert_int_equal(config_layer(&c, layer).ngrams, 0);
  config_release(&c);
  c = accepted(TEXT("'ple_layer_ids': [1], 'hidden_size': 1024"));
  assert_true(c.ngrams.longest == 3 && c.ngrams.n_hashes == 8 && c.ngrams.width == 1024 &&
              c.ngrams.taps == 4);
  assert_true(c.ngrams.least == 20000000 && c.ngrams.multiple == 128 && c.ngrams.seed == 1234);
  assert_true(c.ngrams.empty == 7);
  config_release(&c);
  c = accepted("{'model_type': 'qwen3_5_text', 'hc_count': 4, 'ple_layer_ids': [1], 'indexer_budget': 8, "
               "'output_gate_type': 'sigmoid'}"); /* others have none of this */
  assert_true(c.streams.n == 0 && c.ngrams.longest == 0 && c.indexer.block == 0 && !c.delta.gate_is_sigmoid);
  config_release(&c);
}

static void members(void **state) {
  (void)state;
  ModelConfig c = accepted(
      "{'model_type': 'qwen4_exp', 'eos_token_id': 5, 'text_config': {'model_type': 'qwen4_exp_text', "
      "'eos_token_id': [9, 5], 'num_hidden_layers': 6, 'full_attention_interval': 3, 'hidden_size': 48, "
      "'head_dim': 16, 'hc_count': 3, 'hc_lowrank': 8, 'ple_layer_ids': [5, 1, 4, 1], 'ple_embed_dim': 24, "
      "'ple_conv_kernel_size': 2, 'ngram_size': 4, 'heads_per_ngram': 2, 'ngram_vocab_size_base': 50, "
      "'make_ngram_vocab_size_divisible_by': 8, 'seed': -9007199254740993, "
      "'output_gate_type': 'sigmoid', 'norm_topk_prob': false, 'indexer_n_heads': 2, 'indexer_kv_heads': 1, "
      "'indexer_head_dim': 12, 'indexer_budget': 12, 'indexer_compress_ratio': 4, 'rope_parameters': "
      "{'rope_type': 'default', 'rope_theta': 1000.0, 'partial_rotary_factor': 0.5}}, 'vision_config': {}}");
  assert_true(c.text_part && c.streams.n == 3 && c.streams.rank == 8 && c.delta.gate_is_sigmoid);
  assert_true(c.ngrams.longest == 4 && c.ngrams.n_hashes == 2 && c.ngrams.width == 24 && c.ngrams.taps == 2);
  assert_true(c.ngrams.least == 50 && c.ngrams.multiple == 8);
  assert_true(c.ngrams.seed == -9007199254740993 && !c.experts.renormalise);
  assert_true(c.ngrams.empty == 9 && c.n_eos == 1 && c.eos[0] == 5); /* the text part's own, the whole's */
  static const int ngrams[] = {1, 0, 0, 2, 3, 0};
  for (int layer = 0; layer < 6; layer++) {
    assert_int_equal(config_layer(&c, layer).ngrams, ngrams[layer]);
    assert_int_equal(config_layer(&c, layer).kind, layer % 3 == 2 ? LAYER_ATTENTION : LAYER_DELTA);
  }
  assert_true(c.indexer.block == 4 && c.indexer.budget == 12 && c.indexer.n_heads == 2);
  assert_true(c.indexer.head_dim == 12 && c.rope.rotary_dim == 8);
  config_release(&c);
  c = accepted(TEXT("'layer_types': ['linear_attention', 'full_attention', 'indexed_attention', "
                    "'linear_attention'], 'ple_layer_ids': [4], " INDEXER));
  for (int layer = 0; layer < 4; layer++) {
    assert_int_equal(config_layer(&c, layer).kind, layer % 3 ? LAYER_ATTENTION : LAYER_DELTA);
    assert_int_equal(config_layer(&c, layer).ngrams, layer == 3);
  }
  assert_true(c.indexer.block == 16 && c.indexer.budget == 2048 && c.indexer.n_heads == 4);
  config_release(&c);
}

/* As Qwen/Qwen3.8-Flash-Next has it; its text is three times the same position, so that mrope is plain
 * rope. */
static void flash_next(void **state) {
  (void)state;
  ModelConfig c = accepted(
      "{'architectures': ['Qwen4ExpForConditionalGeneration'], 'model_type': 'qwen4_exp', 'text_config': {"
      "'model_type': 'qwen4_exp_text', 'hidden_size': 2560, 'num_hidden_layers': 48, 'num_attention_heads': "
      "24, "
      "'num_key_value_heads': 2, 'head_dim': 256, 'vocab_size': 248320, 'eos_token_id': 248044, "
      "'max_position_embeddings': 262144, 'num_experts': 512, 'num_experts_per_tok': 10, "
      "'moe_intermediate_size': 640, 'shared_expert_intermediate_size': 640, 'full_attention_interval': 4, "
      "'linear_num_key_heads': 16, 'linear_num_value_heads': 48, 'hc_count': 4, 'hc_lowrank': 320, "
      "'indexer_budget': 2048, 'indexer_compress_ratio': 4, 'indexer_head_dim': 128, 'indexer_n_heads': 4, "
      "'indexer_kv_heads': 1, 'ngram_size': 3, 'ngram_vocab_size_base': 20000000, 'heads_per_ngram': 8, "
      "'split_ngram_parts': 128, 'make_ngram_vocab_size_divisible_by': 128, 'ple_layer_ids': [2], "
      "'ple_embed_dim': 2560, 'ple_conv_kernel_size': 4, 'output_gate_type': 'sigmoid', 'rope_parameters': {"
      "'mrope_interleaved': true, 'mrope_section': [11, 11, 10], 'partial_rotary_factor': 0.25, "
      "'rope_theta': "
      "10000000, 'rope_type': 'default'}}, 'vision_config': {}}");
  assert_true(c.streams.n == 4 && c.streams.rank == 320 && c.delta.gate_is_sigmoid && c.text_part);
  assert_true(c.ngrams.longest == 3 && c.ngrams.width == 2560);
  assert_true(c.ngrams.empty == 248044 && config_layer(&c, 1).ngrams == 1 && config_layer(&c, 0).ngrams == 0);
  assert_true(c.indexer.block == 4 && c.indexer.budget == 2048 && c.indexer.n_heads == 4);
  assert_true(c.indexer.head_dim == 128 && c.rope.rotary_dim == 64 && c.rope.theta == 1e7);
  assert_true(c.experts.width == 640 && c.experts.shared_width == 640 && c.experts.shared_gate);
  assert_int_equal(config_count_layers(&c, LAYER_ATTENTION, 48), 12);
  config_release(&c);
}

static void what_no_layer_has_is_left_out(void **state) {
  (void)state;
  ModelConfig c = accepted(TEXT("'full_attention_interval': 5, 'output_gate_type': 'silu', " INDEXER));
  assert_true(c.indexer.block == 0 && c.indexer.n_heads == 0 && !c.delta.gate_is_sigmoid);
  config_release(&c);
  c = accepted(TEXT("'full_attention_interval': 1, 'output_gate_type': 'sigmoid', " INDEXER));
  assert_true(c.indexer.block == 16 && c.delta.n_key_heads == 0 && !c.delta.gate_is_sigmoid);
  config_release(&c);
  /* Without layers with n-grams neither their members nor the end of a text are read. */
  c = accepted(
      "{'model_type': 'qwen4_exp_text', 'ple_layer_ids': [], 'ngram_size': 1, 'output_gate_type': null, "
      "'indexer_n_heads': null, 'indexer_budget': null}");
  assert_true(c.ngrams.longest == 0 && c.ngrams.width == 0 && c.indexer.block == 0);
  config_release(&c);
}

#define NGRAMS(members) "'ple_layer_ids': [1, 2], " members

static void contradictions_are_refused(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      /* streams */
      {"'hc_count': 1", "hc_count is 1, expected an integer from 2 to 16"},
      {"'hc_count': 17", "hc_count is 17"},
      {"'hc_lowrank': 0", "hc_lowrank is 0"},
      {"'hidden_size': 40", "hidden_size is 40, expected a multiple of 16"},
      /* kinds of layers */
      {"'layer_types': ['linear_attention', 'sliding_attention', 'full_attention', 'full_attention']",
       "layer_types[1] is \"sliding_attention\", expected linear_attention, indexed_attention or "
       "full_attention"},
      /* n-grams */
      {"'ple_layer_ids': 1", "ple_layer_ids is 1, expected a list of numbers of layers"},
      {"'ple_layer_ids': [0]", "ple_layer_ids holds 0, expected numbers of layers from 1 to 4"},
      {"'ple_layer_ids': [1, 5]", "ple_layer_ids holds 5, expected numbers of layers from 1 to 4"},
      {"'ple_layer_ids': ['1']", "ple_layer_ids holds \"1\", expected numbers of layers"},
      {"'ple_layer_ids': [4]",
       "ple_layer_ids holds 4, which has attention, expected layers of linear_attention"},
      {NGRAMS("'ngram_size': 1"), "ngram_size is 1, expected an integer from 2 to 8"},
      {NGRAMS("'ngram_size': 9"), "ngram_size is 9"},
      {NGRAMS("'heads_per_ngram': 0"), "heads_per_ngram is 0"},
      {NGRAMS("'heads_per_ngram': 65"), "heads_per_ngram is 65"},
      {NGRAMS("'ple_embed_dim': 0"), "ple_embed_dim is 0"},
      {NGRAMS("'ple_embed_dim': 40"),
       "ple_embed_dim is 40, expected a multiple of the 16 rows of a token's n-grams"},
      {NGRAMS("'hidden_size': 48, 'heads_per_ngram': 5"),
       "ple_embed_dim is 48, expected a multiple of the 10 rows"},
      {NGRAMS("'ple_conv_kernel_size': 0"), "ple_conv_kernel_size is 0"},
      {NGRAMS("'ple_conv_kernel_size': 17"), "ple_conv_kernel_size is 17"},
      {NGRAMS("'ngram_vocab_size_base': 0"), "ngram_vocab_size_base is 0"},
      {NGRAMS("'ngram_vocab_size_base': 134217728"), "ngram_vocab_size_base is 134217728: tables of 16 times "
                                                     "as many rows, in multiples of 128, are too large, "
                                                     "expected less than 2^31 rows"},
      {NGRAMS("'ngram_vocab_size_base': 2147483647, 'heads_per_ngram': 1"), "are too large"},
      {NGRAMS("'make_ngram_vocab_size_divisible_by': 0"), "make_ngram_vocab_size_divisible_by is 0"},
      {NGRAMS("'make_ngram_vocab_size_divisible_by': 2147483647"),
       "in multiples of 2147483647, are too large"},
      {NGRAMS("'seed': 1.5"), "seed is 1.5, expected an integer"},
      {NGRAMS("'vocab_size': 7"), "eos_token_id is 7, expected a token id below vocab_size 7"},
      /* sparse attention */
      {"'indexer_n_heads': 2",
       "indexer_kv_heads is missing, expected a number, as other members of the indexer"},
      {"'indexer_n_heads': 2, 'indexer_kv_heads': 1, 'indexer_head_dim': 128, 'indexer_budget': 64",
       "indexer_compress_ratio is missing"},
      {"'indexer_budget': 0", "indexer_budget is 0"},
      {"'indexer_n_heads': 2, 'indexer_kv_heads': 2, 'indexer_head_dim': 256, 'indexer_budget': 64, "
       "'indexer_compress_ratio': 4",
       "indexer_kv_heads is 2, expected 1"},
      {"'indexer_n_heads': 2, 'indexer_kv_heads': 1, 'indexer_head_dim': 256, 'indexer_budget': 66, "
       "'indexer_compress_ratio': 4",
       "indexer_budget is 66, expected a multiple of indexer_compress_ratio 4"},
      {"'indexer_n_heads': 2, 'indexer_kv_heads': 1, 'indexer_head_dim': 254, 'indexer_budget': 64, "
       "'indexer_compress_ratio': 4",
       "indexer_head_dim is 254, expected 256, the numbers that the rope turns, to head_dim 256"},
      {"'indexer_n_heads': 2, 'indexer_kv_heads': 1, 'indexer_head_dim': 66, 'indexer_budget': 64, "
       "'indexer_compress_ratio': 4, 'head_dim': 64",
       "indexer_head_dim is 66, expected 64, the numbers that the rope turns, to head_dim 64"},
      {"'indexer_n_heads': 2, 'indexer_kv_heads': 1, 'indexer_head_dim': 64, 'indexer_budget': 64, "
       "'indexer_compress_ratio': 4, 'head_dim': 64, 'rope_scaling': {'type': 'longrope', 'factor': 2, "
       "'original_max_position_embeddings': 64, 'partial_rotary_factor': 0.0625, 'short_factor': [1, 1], "
       "'long_factor': [1, 2]}",
       "longrope is not supported with indexer_budget"},
      /* the delta rule */
      {"'output_gate_type': 'swish'", "output_gate_type is \"swish\", expected sigmoid or silu"},
      {"'output_gate_type': 1", "output_gate_type is 1, expected sigmoid or silu"},
      {"'hidden_act': 'gelu_pytorch_tanh'", "hidden_act gelu_pytorch_tanh is not supported"},
      {"'attn_output_gate': false", "attn_output_gate is false, expected true"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[600];
    snprintf(text, sizeof text, TEXT("%s"), cases[i][0]);
    assert_refused(text, cases[i][1]);
  }
  static const char *const ends[][2] = {
      {"", "eos_token_id is missing, expected a token id: it stands for the tokens before a text"},
      {", 'eos_token_id': null", "eos_token_id is missing"},
      {", 'eos_token_id': []", "eos_token_id is an empty list, expected a token id"},
      {", 'eos_token_id': ['x', 1]", "eos_token_id is \"x\", expected a token id below vocab_size 248320"},
      {", 'eos_token_id': -1", "eos_token_id is -1, expected a token id"},
  };
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    char text[300];
    snprintf(text, sizeof text, "{'model_type': 'qwen4_exp_text', 'ple_layer_ids': [1]%s}", ends[i][0]);
    assert_refused(text, ends[i][1]);
  }
  /* The whole's does not stand for the text part's. */
  assert_refused("{'model_type': 'qwen4_exp', 'eos_token_id': 5, 'text_config': {'ple_layer_ids': [1]}}",
                 "text_config: eos_token_id is missing");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_left_out_is_as_in_transformers),
      cmocka_unit_test(members),
      cmocka_unit_test(flash_next),
      cmocka_unit_test(what_no_layer_has_is_left_out),
      cmocka_unit_test(contradictions_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
