/* test_latent_config.c - multi-head latent attention in config.json, as transformers 5.23 reads it
 * (configuration_NAME.py and modeling_NAME.py of models/deepseek_v2, deepseek_v3, glm4_moe_lite, mistral4 and
 * youtu), and what is refused. */
#include <math.h>

#include "config_text.h"

#define V2(members)                                                                                          \
  "{'model_type': 'deepseek_v2', 'num_experts_per_tok': 6, 'num_hidden_layers': 2" members "}"

static void sizes_that_are_left_out(void **state) {
  (void)state;
  static const struct {
    const char *text;
    LatentConfig latent;
    int n_heads;
  } cases[] = {
      {V2(""), {.kv_rank = 512, .q_rank = 1536, .nope_dim = 128, .rope_dim = 64, .value_dim = 128}, 32},
      {V2(", 'q_lora_rank': null"), {.kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128}, 32},
      {"{'model_type': 'deepseek_v3', 'num_hidden_layers': 2}",
       {.kv_rank = 512, .q_rank = 1536, .nope_dim = 128, .rope_dim = 64, .value_dim = 128},
       128},
      {"{'model_type': 'glm4_moe_lite'}",
       {.kv_rank = 512, .q_rank = 768, .nope_dim = 192, .rope_dim = 64, .value_dim = 256},
       20},
      {"{'architectures': ['Mistral3ForConditionalGeneration'], 'model_type': 'mistral3', 'text_config': "
       "{'model_type': 'mistral4', 'num_hidden_layers': 2, 'rope_parameters': {'rope_type': 'default', "
       "'llama_4_scaling_beta': 0.1, "
       "'original_max_position_embeddings': 8192}}}",
       {.kv_rank = 256, .q_rank = 1024, .nope_dim = 64, .rope_dim = 64, .value_dim = 128},
       32},
      {"{'model_type': 'youtu'}",
       {.kv_rank = 512, .q_rank = 1536, .nope_dim = 128, .rope_dim = 64, .value_dim = 128},
       16},
      {"{'model_type': 'minicpm3', 'v_head_dim': null}",
       {.kv_rank = 256, .q_rank = 768, .nope_dim = 64, .rope_dim = 32, .value_dim = 64},
       40},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ModelConfig c = accepted(cases[i].text);
    const LatentConfig *expected = &cases[i].latent, *latent = &c.latent;
    assert_int_equal(latent->kv_rank, expected->kv_rank);
    assert_int_equal(latent->q_rank, expected->q_rank);
    assert_int_equal(latent->nope_dim, expected->nope_dim);
    assert_int_equal(latent->rope_dim, expected->rope_dim);
    assert_int_equal(latent->value_dim, expected->value_dim);
    assert_int_equal(c.n_heads, cases[i].n_heads);
    /* Attention has one KV head, whose row is the latent and the rotated key. */
    assert_int_equal(c.n_kv_heads, 1);
    assert_int_equal(c.head_dim, expected->kv_rank + expected->rope_dim);
    assert_int_equal(c.rope.rotary_dim, expected->rope_dim);
    assert_int_equal(c.rope.neighbours, strstr(cases[i].text, "minicpm3") == NULL);
    config_release(&c);
  }
}

static double scale_of(const char *text) {
  ModelConfig c = accepted(text);
  const double scale = c.attention_scale;
  config_release(&c);
  return scale;
}

static void scores_are_scaled_by_stored_heads(void **state) {
  (void)state;
  assert_true(scale_of(V2("")) == 1 / sqrt(192));
  assert_true(scale_of(V2(", 'qk_nope_head_dim': 80, 'qk_rope_head_dim': 20")) == 0.1);
#define YARN(members)                                                                                        \
  ", 'rope_scaling': {'type': 'yarn', 'original_max_position_embeddings': 4096" members "}"
  /* As DeepSeek-V2-Lite has it: 0.1 * 0.707 * ln(40) + 1. */
  const double factor = 1.2608037774058572;
  assert_float_equal(scale_of(V2(YARN(", 'factor': 40, 'mscale': 0.707, 'mscale_all_dim': 0.707"))),
                     factor * factor / sqrt(192), 1e-12);
  assert_true(scale_of(V2(YARN(", 'factor': 40, 'mscale': 0.707, 'mscale_all_dim': 0"))) == 1 / sqrt(192));
  assert_true(scale_of(V2(YARN(", 'factor': 1, 'mscale': 1, 'mscale_all_dim': 1"))) == 1 / sqrt(192));
}

static void members_are_read(void **state) {
  (void)state;
  ModelConfig c = accepted(
      "{'model_type': 'deepseek_v3', 'num_hidden_layers': 4, 'num_attention_heads': 6, 'q_lora_rank': 7, "
      "'kv_lora_rank': 10, 'qk_nope_head_dim': 9, 'qk_rope_head_dim': 4, 'v_head_dim': 11, "
      "'rope_interleave': false, 'attention_bias': true, 'head_dim': 33}");
  const LatentConfig *latent = &c.latent;
  assert_true(latent->q_rank == 7 && latent->kv_rank == 10 && latent->nope_dim == 9);
  assert_true(latent->rope_dim == 4 && latent->value_dim == 11 && c.head_dim == 14 && c.n_heads == 6);
  assert_true(!c.rope.neighbours && c.qkv_bias && c.o_bias);
  assert_true(c.experts.n_groups == 8 && c.experts.n_chosen_groups == 4);
  assert_int_equal(config_kv_numbers(&c, 0), 2 * 14);
  config_release(&c);
}

static void what_is_wrong_is_named(void **state) {
  (void)state;
  static const char *const cases[][3] = {
      {"youtu", "'num_key_value_heads': 4", "num_key_value_heads is 4, expected num_attention_heads, 16"},
      {"youtu", "'qk_rope_head_dim': 31",
       "qk_rope_head_dim is 31 and kv_lora_rank 512, expected even numbers"},
      {"youtu", "'kv_lora_rank': 511", "qk_rope_head_dim is 64 and kv_lora_rank 511, expected even numbers"},
      {"youtu", "'qk_rope_head_dim': 130",
       "kv_lora_rank and qk_rope_head_dim are 512 and 130 together, expected at most 640"},
      {"youtu", "'v_head_dim': 500, 'kv_lora_rank': 64",
       "v_head_dim is 500, expected at most kv_lora_rank + qk_rope_head_dim, 128"},
      {"youtu", "'kv_lora_rank': 0", "kv_lora_rank is 0, expected an integer from 1 to 512"},
      {"youtu", "'q_lora_rank': 0", "q_lora_rank is 0, expected an integer from 1"},
      {"youtu", "'rope_interleave': 1", "rope_interleave is 1"},
      {"deepseek_v2", "'num_experts_per_tok': 6, 'topk_method': 'noaux_tc'",
       "topk_method noaux_tc is not supported, expected greedy or group_limited_greedy"},
      {"deepseek_v2", "'num_experts_per_tok': 6, 'topk_method': 'group_limited_greedy'",
       "n_group is missing, expected a number of groups for topk_method group_limited_greedy"},
      {"deepseek_v2", "'num_experts_per_tok': 6, 'topk_method': 'group_limited_greedy', 'n_group': 8",
       "topk_group is missing, expected a number of groups"},
      {"deepseek_v2",
       "'num_experts_per_tok': 6, 'topk_method': 'group_limited_greedy', 'n_group': 32, 'topk_group': 2",
       "topk_group is 2, expected groups with at least 6 experts, of 32 groups of 2"},
      {"deepseek_v2", "'topk_method': 'greedy'", "num_experts_per_tok is missing"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_members_refused(cases[i][0], cases[i][1], cases[i][2]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sizes_that_are_left_out),
      cmocka_unit_test(scores_are_scaled_by_stored_heads),
      cmocka_unit_test(members_are_read),
      cmocka_unit_test(what_is_wrong_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
