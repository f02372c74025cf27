/* test_config_limits.c - every number of a config at both ends of its range and just beyond them, what each
 * architecture computes where its config says nothing, and rotary frequencies of made-up configs.
 *
 * The reference is transformers 5.23: defaults of its config classes; for the frequencies the formulas that
 * modeling_rope_utils.py gives, here in double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "config_text.h"
#include "test/directory.h"

/* --- ranges */

#define SCALING(type, members) "'rope_scaling': {'type': '" type "', " members "}"
#define LLAMA3(factor, low, high)                                                                            \
  SCALING("llama3", "'factor': " factor ", 'low_freq_factor': " low ", 'high_freq_factor': " high)
#define LONG(first, last)                                                                                    \
  SCALING("longrope", "'short_factor': [" first ", 1], 'long_factor': [1, " last "], 'factor': 2")
#define QUANT(members) "'quantization_config': {" members "}"
#define COMPRESSED(numbers)                                                                                  \
  QUANT("'quant_method': 'compressed-tensors', 'format': 'pack-quantized', 'config_groups': {'g': {"         \
        "'targets': ['Linear'], 'weights': {" numbers "}}}")

/* Members of a config with one %s for a number: the two that end its range, and the two beyond. */
static const struct {
  const char *model_type, *members, *key, *least, *less, *most, *more;
} ranges[] = {
    {"llama", "'head_dim': 64, 'hidden_size': %s", "hidden_size", "1", "0", "1048576", "1048577"},
    {"llama", "'intermediate_size': %s", "intermediate_size", "1", "0", "4194304", "4194305"},
    {"llama", "'num_hidden_layers': %s", "num_hidden_layers", "1", "0", "4096", "4097"},
    {"qwen3_5_text", "'linear_num_value_heads': 16384, 'linear_num_key_heads': %s", "linear_num_key_heads",
     "1", "0", "16384", "16385"},
    {"qwen3_5_text", "'linear_num_key_heads': 1, 'linear_num_value_heads': %s", "linear_num_value_heads", "1",
     "0", "16384", "16385"},
    {"qwen3_5_text", "'linear_key_head_dim': %s", "linear_key_head_dim", "1", "0", "1024", "1025"},
    {"qwen3_5_text", "'linear_value_head_dim': %s", "linear_value_head_dim", "1", "0", "1024", "1025"},
    {"lfm3", "'conv_L_cache': %s", "conv_L_cache", "1", "0", "16", "17"},
    {"qwen3_5_text", "'linear_conv_kernel_dim': %s", "linear_conv_kernel_dim", "1", "0", "16", "17"},
    {"llama", "'vocab_size': %s", "vocab_size", "1", "0", "8388608", "8388609"},
    {"llama", "'max_position_embeddings': %s", "max_position_embeddings", "1", "0", "1073741824",
     "1073741825"},
    {"llama", "'head_dim': 2, 'num_key_value_heads': 1, 'num_attention_heads': %s", "num_attention_heads",
     "1", "0", "16384", "16385"},
    {"llama", "'head_dim': 2, 'num_attention_heads': 16384, 'num_key_value_heads': %s", "num_key_value_heads",
     "1", "0", "16384", "16385"},
    {"llama", "'head_dim': %s", "head_dim", "2", "1", "512", "513"},
    {"llama", "'head_dim': %s", "head_dim", "4", "3", "510", "514"},
    {"llama", "'rms_norm_eps': %s", "rms_norm_eps", "0", "-1e-9", "1", "1.001"},
    {"llama", "'rope_theta': %s", "rope_theta", "1", "0.999", "1e18", "1.01e18"},
    {"llama", "'eos_token_id': %s", "eos_token_id", "0", "-1", "2147483647", "2147483648"},
    {"llama", "'eos_token_id': [3, %s]", "eos_token_id", "0", "-1", "2147483647", "2147483648"},
    {"llama", "'bos_token_id': %s", "bos_token_id", "-1", "-2", "2147483647", "2147483648"},
    {"llama", SCALING("linear", "'factor': %s"), "factor", "0.001", "0.0009", "1000000", "1000001"},
    {"llama", LLAMA3("%s", "1", "4"), "factor", "0.001", "0.0009", "1000000", "1000001"},
    {"llama", LLAMA3("8", "%s", "1000000"), "low_freq_factor", "0.001", "0.0009", "999999", "1000001"},
    {"llama", LLAMA3("8", "0.001", "%s"), "high_freq_factor", "0.002", "0.0009", "1000000", "1000001"},
    {"llama", LLAMA3("8", "2", "%s"), "high_freq_factor", "2", "1.999", "5", "1e7"},
    {"llama", SCALING("yarn", "'factor': %s"), "factor", "0.001", "0.0009", "1000000", "1000001"},
    {"llama", SCALING("yarn", "'beta_fast': %s"), "beta_fast", "0.001", "0.0009", "1000000", "1000001"},
    {"llama", SCALING("yarn", "'beta_slow': %s"), "beta_slow", "0.001", "0.0009", "1000000", "1000001"},
    {"llama", SCALING("yarn", "'beta_fast': %s"), "beta_fast", "0", "-1", "24.5", "1e7"},
    {"llama", SCALING("yarn", "'beta_slow': %s"), "beta_slow", "0", "-1", "2", "1e7"},
    {"llama", SCALING("yarn", "'attention_factor': %s"), "attention_factor", "0.001", "0.0009", "1000",
     "1000.1"},
    {"llama", SCALING("yarn", "'mscale': %s"), "mscale", "0", "-0.1", "1000", "1000.1"},
    {"llama", SCALING("yarn", "'mscale_all_dim': %s"), "mscale_all_dim", "0", "-0.1", "1000", "1000.1"},
    {"llama", SCALING("yarn", "'original_max_position_embeddings': %s"), "original_max_position_embeddings",
     "1", "0", "1073741824", "1073741825"},
    {"llama", SCALING("yarn", "'factor': 2") ", 'original_max_position_embeddings': %s",
     "original_max_position_embeddings", "1", "0", "1073741824", "1073741825"},
    {"llama", SCALING("yarn", "'factor': 2") ", 'rope_theta': %s", "rope_theta", "1.001", "1", "1e18",
     "1.01e18"},
    {"llama", "'head_dim': 4, " LONG("%s", "1"), "short_factor[0]", "0.001", "0.0009", "1000000", "1000001"},
    {"llama", "'head_dim': 4, " LONG("1", "%s"), "long_factor[1]", "0.001", "0.0009", "1000000", "1000001"},
    {"phi3", "'head_dim': 4, 'original_max_position_embeddings': %s, " LONG("1", "1"),
     "original_max_position_embeddings", "2", "1", "1073741824", "1073741825"},
    {"phi3", "'head_dim': 16, 'partial_rotary_factor': %s", "partial_rotary_factor", "0.125", "0.1", "1",
     "1.01"},
    {"mistral", "'sliding_window': %s", "sliding_window", "1", "0", "1073741824", "1073741825"},
    {"qwen2", "'use_sliding_window': true, 'max_window_layers': %s", "max_window_layers", "0", "-1",
     "2147483647", "2147483648"},
    {"smollm3", "'no_rope_layer_interval': %s", "no_rope_layer_interval", "1", "0", "2147483647",
     "2147483648"},
    {"gemma3_text", "'sliding_window_pattern': %s", "sliding_window_pattern", "1", "0", "2147483647",
     "2147483648"},
    {"gemma3_text", "'rope_local_base_freq': %s", "rope_local_base_freq", "1", "0.999", "1e18", "1.01e18"},
    {"gemma3_text", "'query_pre_attn_scalar': %s", "query_pre_attn_scalar", "1e-6", "9e-7", "1000000",
     "1000001"},
    {"gemma2", "'attn_logit_softcapping': %s", "attn_logit_softcapping", "1e-6", "9e-7", "1000000",
     "1000001"},
    {"gemma2", "'final_logit_softcapping': %s", "final_logit_softcapping", "1e-6", "9e-7", "1000000",
     "1000001"},
    {"granite", "'embedding_multiplier': %s", "embedding_multiplier", "1e-6", "9e-7", "1000000", "1000001"},
    {"granite", "'attention_multiplier': %s", "attention_multiplier", "1e-6", "9e-7", "1000000", "1000001"},
    {"granite", "'residual_multiplier': %s", "residual_multiplier", "1e-6", "9e-7", "1000000", "1000001"},
    {"granite", "'logits_scaling': %s", "logits_scaling", "1e-6", "9e-7", "1000000", "1000001"},
    {"llama", QUANT("'quant_method': 'awq', 'group_size': %s"), "group_size", "-1", "-2", "4194304",
     "4194305"},
    {"llama", QUANT("'quant_method': 'awq', 'q_group_size': %s"), "q_group_size", "1", "-2", "4194304",
     "4194305"},
    {"llama", QUANT("'quant_method': 'gptq', 'group_size': %s"), "group_size", "1", "0", "4194304",
     "4194305"},
    {"llama", QUANT("'quant_method': 'gptq', 'dynamic': {'x': {'bits': %s}}"), "bits", "16", "0", "64", "65"},
    {"llama", QUANT("'quant_method': 'auto-round', 'act_bits': %s"), "act_bits", "16", "15", "64", "65"},
    {"llama", COMPRESSED("'num_bits': 4, 'group_size': %s"), "group_size", "1", "-2", "4194304", "4194305"},
    {"llama", COMPRESSED("'group_size': 8, 'num_bits': %s"), "num_bits", "4", "0", "8", "65"},
};

static Status parse_number(size_t range, const char *number, char text[500], Error *err) {
  char members[400];
  ModelConfig config;
  snprintf(members, sizeof members, ranges[range].members, number);
  snprintf(text, 500, "{'model_type': '%s', %s}", ranges[range].model_type, members);
  Status status = parse(text, &config, err);
  config_release(&config);
  return status;
}

static void every_number_has_its_range(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
    const char *const fine[] = {ranges[i].least, ranges[i].most}, *const bad[] = {ranges[i].less,
                                                                                  ranges[i].more};
    for (size_t k = 0; k < 2; k++) {
      char text[500];
      Error err = {{0}};
      if (parse_number(i, fine[k], text, &err) != STATUS_OK) fail_msg("refused %s: %s", text, err.text);
      if (parse_number(i, bad[k], text, &err) != STATUS_MODEL) fail_msg("taken: %s", text);
      if (!strstr(err.text, ranges[i].key) || !strstr(err.text, bad[k]))
        fail_msg("%s: \"%s\"", text, err.text);
    }
  }
}

static void a_list_of_end_tokens_has_its_length(void **state) {
  (void)state;
  for (int n = 0; n <= MAX_EOS; n += n < 2 ? 1 : MAX_EOS - 2) {
    char text[500] = "{'model_type': 'llama', 'eos_token_id': [";
    for (int i = 0; i < n; i++) sprintf(text + strlen(text), "%s%d", i ? "," : "", 100 + i);
    strcat(text, "]}");
    ModelConfig c = accepted(text);
    assert_int_equal(c.n_eos, n);
    for (int i = 0; i < n; i++) assert_int_equal(c.eos[i], 100 + i);
    config_release(&c);
  }
}

/* --- generation_config.json */

static Status load(const char *config_text, const char *generation, ModelConfig *config, Error *err) {
  const char *const names[] = {"config.json", "generation_config.json"}, *const texts[] = {config_text,
                                                                                           generation};
  for (int i = 0; i < 2; i++) {
    FILE *file = fopen(in_directory(own_directory, names[i]), "w");
    for (const char *p = texts[i]; *p; p++) fputc(*p == '\'' ? '"' : *p, file);
    fclose(file);
  }
  return config_load(own_directory, config, err);
}

static void every_sampling_default_has_its_range(void **state) {
  (void)state;
  static const struct {
    const char *key, *least, *less, *most, *more;
  } members[] = {
      {"temperature", "0", "-0.01", "1000", "1000.1"},
      {"top_k", "-1", "-2", "2147483647", "2147483648"},
      {"top_p", "0", "-0.01", "1", "1.01"},
      {"min_p", "0", "-0.01", "1", "1.01"},
      {"repetition_penalty", "0.001", "0.0009", "1000", "1000.1"},
      {"bos_token_id", "-1", "-2", "2147483647", "2147483648"},
      {"eos_token_id", "0", "-1", "2147483647", "2147483648"},
      {"do_sample", "false", "0", "true", "1"},
  };
  for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
    const char *const values[] = {members[i].least, members[i].most, members[i].less, members[i].more};
    for (size_t k = 0; k < 4; k++) {
      char text[100], said[100];
      ModelConfig c;
      Error err = {{0}};
      snprintf(text, sizeof text, "{'%s': %s}", members[i].key, values[k]);
      if (load("{'model_type': 'llama'}", text, &c, &err) != (k < 2 ? STATUS_OK : STATUS_MODEL))
        fail_msg("%s: \"%s\"", text, err.text);
      snprintf(said, sizeof said, "generation_config.json: %s is %s, expected", members[i].key, values[k]);
      if (k >= 2 && !strstr(err.text, said)) fail_msg("%s: \"%s\"", text, err.text);
      config_release(&c);
    }
  }
}

/* Settings that generation_config.json leaves out are neutral; tokens that it leaves out are those of
 * config.json. */
static void an_empty_generation_config_changes_nothing(void **state) {
  (void)state;
  static const char *const empty[] = {"{}", "{'eos_token_id': null, 'bos_token_id': null, 'top_k': null}"};
  for (size_t i = 0; i < 2; i++) {
    ModelConfig c;
    Error err;
    assert_int_equal(
        load("{'model_type': 'llama', 'bos_token_id': 5, 'eos_token_id': [6, 7]}", empty[i], &c, &err),
        STATUS_OK);
    assert_true(c.bos == 5 && c.n_eos == 2 && c.eos[0] == 6 && c.eos[1] == 7);
    assert_true(!c.generation.do_sample && c.generation.temperature == 1 && c.generation.top_k == 0);
    assert_true(c.generation.top_p == 1 && c.generation.min_p == 0 && c.generation.repetition_penalty == 1);
    config_release(&c);
  }
}

/* --- what is computed where nothing is said */

static const struct {
  const char *model_type;
  NormPlacement norms;
  bool norm_plus_one;
  QkNorm qk_norm;
  Activation activation;
  double attention; /* 1 / scale^2 */
  double attention_cap, logit_cap, embedding;
  bool qkv_bias, fused;
  const char *layers;
  int window;
} computed[] = {
    {"llama", NORM_BEFORE, false, QK_NORM_NONE, ACTIVATION_SILU, 128, 0, 0, 1, false, false,
     "gggggggggggggggggggggggggggggggg", 0},
    {"mistral", NORM_BEFORE, false, QK_NORM_NONE, ACTIVATION_SILU, 128, 0, 0, 1, false, false,
     "GGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGG", 4096},
    {"ministral3", NORM_BEFORE, false, QK_NORM_NONE, ACTIVATION_SILU, 128, 0, 0, 1, false, false,
     "gggggggggggggggggggggggggggggggggg", 0},
    {"qwen2", NORM_BEFORE, false, QK_NORM_NONE, ACTIVATION_SILU, 128, 0, 0, 1, true, false,
     "gggggggggggggggggggggggggggggggg", 0},
    {"qwen2', 'use_sliding_window': true, 'x': '", NORM_BEFORE, false, QK_NORM_NONE, ACTIVATION_SILU, 128, 0,
     0, 1, true, false, "ggggggggggggggggggggggggggggGGGG", 4096},
    {"qwen3", NORM_BEFORE, false, QK_NORM_HEADS, ACTIVATION_SILU, 128, 0, 0, 1, false, false,
     "gggggggggggggggggggggggggggggggg", 0},
    {"qwen3', 'use_sliding_window': true, 'x': '", NORM_BEFORE, false, QK_NORM_HEADS, ACTIVATION_SILU, 128, 0,
     0, 1, false, false, "ggggggggggggggggggggggggggggGGGG", 4096},
    {"smollm3", NORM_BEFORE, false, QK_NORM_NONE, ACTIVATION_SILU, 128, 0, 0, 1, false, false,
     "gggngggngggngggngggngggngggngggngggn", 0},
    {"smollm3', 'use_sliding_window': true, 'x': '", NORM_BEFORE, false, QK_NORM_NONE, ACTIVATION_SILU, 128,
     0, 0, 1, false, false, "gggngggngggngggngggngggngggngggngggn", 0},
    {"phi3", NORM_BEFORE, false, QK_NORM_NONE, ACTIVATION_SILU, 96, 0, 0, 1, false, true,
     "gggggggggggggggggggggggggggggggg", 0},
    {"gemma2", NORM_AROUND, true, QK_NORM_NONE, ACTIVATION_GELU_TANH, 256, 50, 30, 48, false, false,
     "GgGgGgGgGgGgGgGgGgGgGgGgGg", 4096},
    {"gemma3_text", NORM_AROUND, true, QK_NORM_HEADS, ACTIVATION_GELU_TANH, 256, 0, 0, 48, false, false,
     "LLLLLgLLLLLgLLLLLgLLLLLgLL", 4096},
    {"granite", NORM_BEFORE, false, QK_NORM_NONE, ACTIVATION_SILU, 1, 0, 0, 1, false, false,
     "gggggggggggggggggggggggggggggggg", 0},
    {"olmo2", NORM_AFTER, false, QK_NORM_WHOLE, ACTIVATION_SILU, 128, 0, 0, 1, false, false,
     "gggggggggggggggggggggggggggggggg", 0},
    {"olmo3", NORM_AFTER, false, QK_NORM_WHOLE, ACTIVATION_SILU, 128, 0, 0, 1, false, false,
     "LLLgLLLgLLLgLLLgLLLgLLLgLLLgLLLg", 4096},
    {"hunyuan_v1_dense", NORM_BEFORE, false, QK_NORM_HEADS, ACTIVATION_SILU, 128, 0, 0, 1, false, false,
     "gggggggggggggggggggggggggggggggg", 0},
    {"glm", NORM_BEFORE, false, QK_NORM_NONE, ACTIVATION_SILU, 128, 0, 0, 1, true, false,
     "gggggggggggggggggggggggggggggggggggggggg", 0},
    {"glm4", NORM_AROUND, false, QK_NORM_NONE, ACTIVATION_SILU, 128, 0, 0, 1, true, false,
     "gggggggggggggggggggggggggggggggggggggggg", 0},
    {"ernie4_5", NORM_BEFORE, false, QK_NORM_NONE, ACTIVATION_SILU, 128, 0, 0, 1, false, false,
     "gggggggggggggggggg", 0},
    {"exaone4", NORM_AFTER, false, QK_NORM_HEADS, ACTIVATION_SILU, 128, 0, 0, 1, false, false,
     "GGGnGGGnGGGnGGGnGGGnGGGnGGGnGGGn", 4096},
    {"granitemoehybrid', 'num_local_experts': 0, 'num_hidden_layers': 1, 'layer_types': ['attention'], 'x': "
     "'",
     NORM_BEFORE, false, QK_NORM_NONE, ACTIVATION_SILU, 1, 0, 0, 1, false, false, "n", 0},
    {"granite_swa", NORM_BEFORE, false, QK_NORM_NONE, ACTIVATION_SILU, 1, 0, 0, 1, false, false,
     "gGGGgGGGgGGGgGGGgGGGgGGG", 128},
    {"muse_glimmer', 'text_config': {}, 'x': '", NORM_AROUND, true, QK_NORM_HEADS, ACTIVATION_SILU,
     128 / 3.87 / 3.87, 0, 20, 1, false, false, "GGGnGGGnGGGnGGGnGGGnGGGnGGGnGGGnGGGnGGGnGGGnGGGnGGGn", 2048},
    {"seed_oss", NORM_BEFORE, false, QK_NORM_NONE, ACTIVATION_SILU, 128, 0, 0, 1, true, false,
     "ggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggg" /* of 64 */, 0},
};

static void each_architecture_computes_its_own(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof computed / sizeof *computed; i++) {
    char text[200], layers[64];
    snprintf(text, sizeof text, "{'model_type': '%s'}", computed[i].model_type);
    ModelConfig c = accepted(text);
    layers_of(&c, layers);
    assert_string_equal(layers, computed[i].layers);
    for (int layer = 0; layer < c.n_layers; layer++)
      assert_int_equal(c.layers[layer].window, layers[layer] < 'a' ? computed[i].window : 0);
    assert_int_equal(c.norms, computed[i].norms);
    assert_int_equal(norms_plus_one(&c), computed[i].norm_plus_one);
    assert_int_equal(c.qk_norm, computed[i].qk_norm);
    assert_int_equal(c.activation, computed[i].activation);
    assert_true(fabs(c.attention_scale * sqrt(computed[i].attention) - 1) < 1e-15);
    assert_true(c.attention_cap == computed[i].attention_cap && c.logit_cap == computed[i].logit_cap);
    assert_true(c.embedding_scale == computed[i].embedding && c.residual_scale == 1);
    assert_true(c.logit_divisor == (c.text_part ? 1 / 0.19611613513818404 : 1));
    assert_int_equal(c.qkv_bias, computed[i].qkv_bias);
    assert_int_equal(c.fused == FUSES_ALL, computed[i].fused);
    assert_false(c.o_bias || c.mlp_bias);
    const double theta = strcmp(computed[i].model_type, "gemma3_text") == 0 ? 1e4
                         : strcmp(computed[i].model_type, "olmo3") == 0     ? 5e5
                                                                            : 0;
    assert_true(c.local_rope.theta == theta);
    assert_int_equal(rope_original_context(&c), INT32_MAX);
    config_release(&c);
  }
}

static void activations_have_several_names(void **state) {
  (void)state;
  static const struct {
    const char *name;
    Activation activation;
  } names[] = {{"'silu'", ACTIVATION_SILU},
               {"'swish'", ACTIVATION_SILU},
               {"'gelu_pytorch_tanh'", ACTIVATION_GELU_TANH},
               {"'gelu_new'", ACTIVATION_GELU_TANH}};
  for (size_t i = 0; i < 4; i++) {
    char text[200];
    for (int gemma = 0; gemma < 2; gemma++) {
      snprintf(text, sizeof text, "{'model_type': '%s': %s}",
               gemma ? "gemma2', 'hidden_activation" : "llama', 'hidden_act", names[i].name);
      ModelConfig c = accepted(text);
      assert_int_equal(c.activation, names[i].activation);
      config_release(&c);
    }
  }
  ModelConfig c = accepted("{'model_type': 'gemma2', 'hidden_activation': null, 'hidden_act': 'silu'}");
  assert_int_equal(c.activation, ACTIVATION_GELU_TANH);
  config_release(&c);
  assert_string_equal(activation_name(ACTIVATION_SILU), "silu");
}

/* Each sign by itself, in the config or in its text part. */
static void what_gives_a_model_away_is_named(void **state) {
  (void)state;
  static const char *const signs[][2] = {{"num_local_experts", "experts"}, {"num_experts", "experts"},
                                         {"n_routed_experts", "experts"},  {"moe_num_experts", "experts"},
                                         {"vision_config", "parts"},       {"audio_config", "parts"},
                                         {"speech_config", "parts"}};
  for (size_t i = 0; i < 2 * sizeof signs / sizeof *signs; i++) {
    const char *const sign = signs[i / 2][0], *const kind = signs[i / 2][1];
    char text[200], part[100];
    ModelConfig c;
    Error err;
    snprintf(text, sizeof text,
             i % 2 ? "{'model_type': 'y', 'text_config': {'%s': {}}}" : "{'model_type': 'y', '%s': 2}", sign);
    snprintf(part, sizeof part, "%s (%s); take a ", kind, sign);
    assert_int_equal(parse(text, &c, &err), STATUS_MODEL);
    if (!strstr(err.text, part)) fail_msg("%s: \"%s\"", text, err.text);
    config_release(&c);
  }
}

/* --- where things are looked for */

static void quantisation_is_looked_for_in_three_places(void **state) {
  (void)state;
#define AWQ(group) "{'quant_method': 'awq', 'group_size': " group "}"
  static const struct {
    const char *text;
    int group;
  } cases[] = {
      {"{'model_type': 'llama', 'compression_config': " AWQ("32") "}", 32},
      {"{'model_type': 'llama', 'quantization_config': " AWQ("64") ", 'compression_config': " AWQ("32") "}",
       64},
      {"{'model_type': 'llama', 'quantization_config': " AWQ("64") ", 'quantization': {'bits': 4}}", 64},
      {"{'model_type': 'mistral3', 'text_config': {'quantization_config': " AWQ("16") "}}", 16},
      {"{'model_type': 'mistral3', 'quantization_config': " AWQ(
           "64") ", 'text_config': {'quantization_config': " AWQ("16") "}}",
       64},
      {"{'model_type': 'mistral3', 'compression_config': " AWQ(
           "32") ", 'text_config': {'quantization_config': " AWQ("16") "}}",
       16},
      {"{'model_type': 'mistral3', 'compression_config': " AWQ("32") ", 'text_config': {}}", 32},
      {"{'model_type': 'llama', 'quantization': {'group_size': 64}}", 0},
      {"{'model_type': 'llama', 'quantization': 4}", 0},
  };
#undef AWQ
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ModelConfig c = accepted(cases[i].text);
    if (c.quant.scheme.group != cases[i].group || c.quant.given != (cases[i].group > 0))
      fail_msg("%s: groups of %d", cases[i].text, c.quant.scheme.group);
    config_release(&c);
  }
}

/* A member beside the text part of a model of several parts wins over the same member within it. */
static void what_is_beside_a_text_part_counts_more(void **state) {
  (void)state;
  ModelConfig c = accepted("{'model_type': 'mistral3', 'bos_token_id': 11, 'eos_token_id': 12, "
                           "'tie_word_embeddings': true, 'text_config': {'bos_token_id': 3, 'eos_token_id': "
                           "[4, 5], 'tie_word_embeddings': false}}");
  assert_true(c.bos == 11 && c.n_eos == 1 && c.eos[0] == 12 && c.tied_embeddings);
  config_release(&c);
  c = accepted("{'model_type': 'mistral3', 'text_config': {'bos_token_id': 3, 'eos_token_id': [4, 5], "
               "'tie_word_embeddings': true}}");
  assert_true(c.bos == 3 && c.n_eos == 2 && c.eos[1] == 5 && c.tied_embeddings);
  config_release(&c);
}

/* --- rotary frequencies */

typedef struct {
  uint64_t state;
} Random;

/* Even in [low, high). */
static double any(Random *random, double low, double high) {
  random->state = random->state * 6364136223846793005u + 1442695040888963407u;
  return low + (high - low) * (double)(random->state >> 11) * 0x1p-53;
}

static double clamp(double x) {
  return x < 0 ? 0 : x > 1 ? 1 : x;
}

/* Frequencies and the attention factor by the formulas, in double. */
static double expected_frequency(const RopeConfig *rope, int dim, bool long_rope, int pair) {
  const double f = pow(rope->theta, -2.0 * pair / dim), length = rope->original_max_position;
  const double turns = length * f / (2 * M_PI); /* over the original context */
  double ends[2];
  const double betas[2] = {rope->beta_fast, rope->beta_slow};
  switch (rope->kind) {
  case ROPE_PLAIN: return f;
  case ROPE_LINEAR: return f / rope->factor;
  case ROPE_LLAMA3: {
    const double kept =
        clamp((turns - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor));
    return kept * f + (1 - kept) * f / rope->factor;
  }
  case ROPE_LONGROPE: return f / (long_rope ? rope->long_factors : rope->short_factors)[pair];
  case ROPE_PROPORTIONAL: return pair < rope->n_turned ? f / rope->factor : 0;
  case ROPE_YARN: break;
  }
  for (int i = 0; i < 2; i++) ends[i] = dim * log(length / (betas[i] * 2 * M_PI)) / (2 * log(rope->theta));
  if (rope->truncate) ends[0] = floor(ends[0]), ends[1] = ceil(ends[1]);
  ends[0] = fmax(ends[0], 0);
  ends[1] = fmin(ends[1], dim - 1);
  if (ends[0] == ends[1]) ends[1] += 0.001;
  const double slowed = clamp((pair - ends[0]) / (ends[1] - ends[0]));
  return slowed * f / rope->factor + (1 - slowed) * f;
}

static double mscale(double factor, double times) {
  return factor > 1 ? 1 + 0.1 * times * log(factor) : 1;
}

static double expected_attention(const RopeConfig *rope) {
  if (rope->kind != ROPE_YARN && rope->kind != ROPE_LONGROPE) return 1;
  if (rope->attention_factor != 0) return rope->attention_factor;
  if (rope->kind == ROPE_LONGROPE)
    return rope->factor > 1 ? sqrt(1 + log(rope->factor) / log(rope->original_max_position)) : 1;
  if (rope->mscale == 0 || rope->mscale_all_dim == 0) return mscale(rope->factor, 1);
  return mscale(rope->factor, rope->mscale) / mscale(rope->factor, rope->mscale_all_dim);
}

/* Numbers that fp32 holds: the formulas' inputs are then the same in both. */
static RopeConfig any_rope(Random *random, RopeKind kind, int dim) {
  RopeConfig rope = {.kind = kind,
                     .theta = floor(any(random, 500, 1e6)),
                     .factor = (float)(any(random, 0, 1) < 0.2 ? any(random, 0.3, 1) : any(random, 1, 40)),
                     .low_freq_factor = floor(any(random, 1, 4)),
                     .high_freq_factor = floor(any(random, 4, 9)),
                     .original_max_position = floor(any(random, 8, 1 << 17)),
                     .beta_fast = floor(any(random, 16, 64)),
                     .beta_slow = floor(any(random, 1, 8)),
                     .attention_factor = any(random, 0, 1) < 0.3 ? any(random, 0.5, 2) : 0,
                     .mscale = any(random, 0, 1) < 0.6 ? any(random, 0.1, 2) : 0,
                     .mscale_all_dim = any(random, 0, 1) < 0.6 ? any(random, 0.1, 2) : 0,
                     .truncate = any(random, 0, 1) < 0.5,
                     .n_turned = dim / 4};
  for (int i = 0; i < dim / 2; i++) {
    rope.short_factors[i] = (float)any(random, 0.5, 3);
    rope.long_factors[i] = (float)any(random, 1, 60);
  }
  return rope;
}

/* fp32 against double, in units of 2^-24 of the unscaled frequency: the power and its reciprocal err by a
 * unit each, and each further operation by half a one of at most twice the frequency: ten in all. llama3's
 * weights add up to high / (high - low) <= 8, yarn's as many as the ramp's place is widths away from 0: 40,
 * with a factor of 2 or more between the betas and theta up to 10^6. A wrong term is thousands. */
static void frequencies_follow_the_formulas(void **state) {
  (void)state;
  static const int dims[] = {2, 16, 64, 80, 128, 256, 512};
  Random random = {7};
  for (int i = 0; i < 600; i++) {
    const RopeKind kind = (RopeKind)(i % 6);
    const int dim = dims[i / 6 % 7];
    const bool long_rope = i % 2;
    RopeConfig rope = any_rope(&random, kind, dim);
    rope.rotary_dim = dim;
    float got[MAX_HEAD_DIM / 2], attention;
    rope_frequencies(&rope, long_rope, got, &attention);
    assert_true(attention == (float)expected_attention(&rope));
    for (int pair = 0; pair < dim / 2; pair++) {
      const double want = expected_frequency(&rope, dim, long_rope, pair);
      const double f = pow(rope.theta, -2.0 * pair / dim);
      if (!(fabs(got[pair] - want) <= 64 * 0x1p-24 * fmax(f, want)))
        fail_msg("%s, case %d: frequency %d of %d is %a, expected %a", rope_kind_name(kind), i, pair, dim,
                 (double)got[pair], want);
    }
  }
}

static void texts_are_long_beyond_the_original_length(void **state) {
  (void)state;
  ModelConfig c = accepted("{'model_type': 'llama', 'head_dim': 4, " LONG(
      "1", "1") ", 'max_position_embeddings': 4096, 'original_max_position_embeddings': 1000}");
  assert_true(c.rope.kind == ROPE_LONGROPE && c.rope.factor == 2);
  assert_int_equal(rope_original_context(&c), 1000);
  config_release(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_number_has_its_range),
      cmocka_unit_test(a_list_of_end_tokens_has_its_length),
      cmocka_unit_test_setup_teardown(every_sampling_default_has_its_range, make_own_directory,
                                      remove_own_directory),
      cmocka_unit_test_setup_teardown(an_empty_generation_config_changes_nothing, make_own_directory,
                                      remove_own_directory),
      cmocka_unit_test(each_architecture_computes_its_own),
      cmocka_unit_test(activations_have_several_names),
      cmocka_unit_test(what_gives_a_model_away_is_named),
      cmocka_unit_test(quantisation_is_looked_for_in_three_places),
      cmocka_unit_test(what_is_beside_a_text_part_counts_more),
      cmocka_unit_test(frequencies_follow_the_formulas),
      cmocka_unit_test(texts_are_long_beyond_the_original_length),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
