/* test_config.c - configs of old and new transformers, what is refused in them, and rotary frequencies.
 *
 * The reference is transformers 5.23: its config classes for defaults and meanings, its rotary embeddings for
 * the frequencies in rope_reference.h (made by make_rope_reference.py). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "config_text.h"
#include "rope_reference.h"
#include "test/directory.h"

/* --- sizes */

static void what_a_config_leaves_out_is_as_in_transformers(void **state) {
  (void)state;
  static const struct {
    const char *architecture, *model_type;
    int intermediate, n_kv_heads, head_dim, vocab_size, max_position, bos, n_eos, window;
    bool qk_norm;
  } cases[] = {{"LlamaForCausalLM", "llama", 11008, 32, 128, 32000, 2048, 1, 1, 0, false},
               {"MistralForCausalLM", "mistral", 14336, 8, 128, 32000, 131072, 1, 1, 4096, false},
               {"Qwen2ForCausalLM", "qwen2", 22016, 32, 128, 151936, 32768, -1, 0, 0, false},
               {"Qwen3ForCausalLM", "qwen3", 22016, 32, 128, 151936, 32768, -1, 0, 0, true}};
  for (int i = 0; i < 8; i++) {
    char text[200];
    if (i < 4)
      snprintf(text, sizeof text, "{'architectures': ['%s']}", cases[i].architecture);
    else
      snprintf(text, sizeof text, "{'model_type': '%s', 'architectures': null}", cases[i % 4].model_type);
    ModelConfig c = accepted(text);
    assert_string_equal(c.architecture, cases[i % 4].architecture);
    assert_int_equal(c.hidden, 4096);
    assert_int_equal(c.intermediate, cases[i % 4].intermediate);
    assert_int_equal(c.n_layers, 32);
    assert_int_equal(c.n_heads, 32);
    assert_int_equal(c.n_kv_heads, cases[i % 4].n_kv_heads);
    assert_int_equal(c.head_dim, cases[i % 4].head_dim);
    assert_int_equal(c.vocab_size, cases[i % 4].vocab_size);
    assert_int_equal(c.max_position, cases[i % 4].max_position);
    assert_true(c.norm_eps == 1e-6);
    assert_int_equal(c.rope.kind, ROPE_PLAIN);
    assert_true(c.rope.theta == 10000);
    assert_false(c.tied_embeddings);
    assert_int_equal(c.qk_norm, cases[i % 4].qk_norm);
    for (int layer = 0; layer < 32; layer++) assert_int_equal(c.layers[layer].window, cases[i % 4].window);
    assert_int_equal(c.quant.scheme.method, QUANT_NONE);
    assert_int_equal(c.bos, cases[i % 4].bos);
    assert_int_equal(c.n_eos, cases[i % 4].n_eos);
    if (c.n_eos) assert_int_equal(c.eos[0], 2);
    assert_false(c.generation.do_sample);
    assert_true(c.generation.temperature == 1 && c.generation.top_k == 0 && c.generation.top_p == 1);
    assert_true(c.generation.min_p == 0 && c.generation.repetition_penalty == 1);
    config_release(&c);
    assert_null(c.layers);
  }
}

static void what_a_config_says_is_taken(void **state) {
  (void)state;
  ModelConfig c =
      accepted("{'architectures': ['Qwen3ForCausalLM'], 'model_type': 'qwen3', 'hidden_size': 1000,"
               "'intermediate_size': 3000, 'num_hidden_layers': 3, 'num_attention_heads': 12,"
               "'num_key_value_heads': 4, 'head_dim': 94, 'vocab_size': 500, 'rms_norm_eps': 1e-05,"
               "'max_position_embeddings': 40960, 'rope_theta': 1000000, 'hidden_act': 'silu',"
               "'tie_word_embeddings': true, 'bos_token_id': 7, 'eos_token_id': [5, 6],"
               "'torch_dtype': 'bfloat16', 'dtype': 'float16', 'sliding_window': null,"
               "'attention_bias': false, 'what_nobody_knows': [{}]}");
  assert_int_equal(c.hidden, 1000);
  assert_int_equal(c.intermediate, 3000);
  assert_int_equal(c.n_layers, 3);
  assert_int_equal(c.n_heads, 12);
  assert_int_equal(c.n_kv_heads, 4);
  assert_int_equal(c.head_dim, 94);
  assert_int_equal(c.vocab_size, 500);
  assert_int_equal(c.max_position, 40960);
  assert_true(c.norm_eps == 1e-5 && c.rope.theta == 1e6 && c.tied_embeddings);
  assert_int_equal(c.bos, 7);
  assert_int_equal(c.n_eos, 2);
  assert_int_equal(c.eos[0], 5);
  assert_int_equal(c.eos[1], 6);
  config_release(&c);
}

/* null is absence for most members, but not for all. */
static void null_means_what_it_means_in_transformers(void **state) {
  (void)state;
  ModelConfig c =
      accepted("{'model_type': 'mistral', 'hidden_size': 640, 'num_attention_heads': 10, 'head_dim': null,"
               "'num_key_value_heads': null, 'sliding_window': null, 'rope_scaling': null,"
               "'eos_token_id': null, 'bos_token_id': null, 'quantization_config': null}");
  assert_int_equal(c.head_dim, 64);
  assert_int_equal(c.n_kv_heads, 10);
  assert_int_equal(c.layers[0].window, 0);
  assert_int_equal(c.n_eos, 0);
  assert_int_equal(c.bos, -1);
  assert_int_equal(c.quant.scheme.method, QUANT_NONE);
  config_release(&c);
}

static void sliding_windows_are_given_by_layer(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int windows[4];
  } cases[] = {
      {"'model_type': 'qwen2', 'use_sliding_window': false, 'sliding_window': 8, 'max_window_layers': 0",
       {0}},
      {"'model_type': 'qwen2', 'use_sliding_window': true, 'sliding_window': 8, 'max_window_layers': 3",
       {0, 0, 0, 8}},
      {"'model_type': 'qwen2', 'use_sliding_window': true, 'sliding_window': 8", {0}}, /* from layer 28 on */
      {"'model_type': 'qwen2', 'use_sliding_window': true, 'max_window_layers': 2", {0, 0, 4096, 4096}},
      {"'model_type': 'qwen3', 'use_sliding_window': true, 'sliding_window': null, 'max_window_layers': 0",
       {0}},
      {"'model_type': 'qwen3', 'use_sliding_window': true, 'sliding_window': 8, 'max_window_layers': 0,"
       "'layer_types': ['sliding_attention', 'full_attention', 'full_attention', 'sliding_attention']",
       {8, 0, 0, 8}},
      {"'model_type': 'qwen3', 'use_sliding_window': true, 'sliding_window': 1,"
       "'layer_types': ['sliding_attention', 'full_attention', 'full_attention', 'sliding_attention']",
       {1, 0, 0, 1}},
      {"'model_type': 'qwen3', 'sliding_window': null,"
       "'layer_types': ['full_attention', 'full_attention', 'full_attention', 'full_attention']",
       {0}},
      {"'model_type': 'mistral', 'sliding_window': 9", {9, 9, 9, 9}},
      {"'model_type': 'mistral', 'sliding_window': 9,"
       "'layer_types': ['sliding_attention', 'sliding_attention', 'sliding_attention', 'sliding_attention']",
       {9, 9, 9, 9}},
      {"'model_type': 'llama', 'sliding_window': 9, 'use_sliding_window': true", {0}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[500];
    snprintf(text, sizeof text, "{'num_hidden_layers': 4, %s}", cases[i].text);
    ModelConfig c = accepted(text);
    for (int layer = 0; layer < 4; layer++)
      if (c.layers[layer].window != cases[i].windows[layer]) fail_msg("%s: layer %d", text, layer);
    config_release(&c);
  }
}

/* --- rope */

static void rope_is_read_in_old_and_new_spellings(void **state) {
  (void)state;
  static const char *const yarns[] = {
      "'rope_theta': 5e5, 'rope_scaling': {'type': 'yarn', 'factor': 4, 'original_max_position_embeddings': "
      "1024}",
      "'rope_theta': 5e5, 'rope_scaling': {'rope_type': 'yarn', 'type': 'linear', 'factor': 4.0,"
      "'original_max_position_embeddings': 1024}",
      "'rope_parameters': {'rope_theta': 5e5, 'rope_type': 'yarn', 'factor': 4, 'beta_fast': 0,"
      "'original_max_position_embeddings': 1024}",
      "'rope_theta': 7, 'rope_parameters': {'rope_theta': 500000, 'rope_type': 'yarn', 'beta_slow': null,"
      "'original_max_position_embeddings': 1024, 'partial_rotary_factor': 1.0}", /* 4096 / 1024 */
      "'original_max_position_embeddings': 1024, 'rope_theta': 5e5, 'rope_parameters': {'rope_type': "
      "'linear'},"
      "'rope_scaling': {'type': 'yarn', 'factor': 4, 'original_max_position_embeddings': 7}",
  };
  for (size_t i = 0; i < sizeof yarns / sizeof *yarns; i++) {
    char text[500];
    snprintf(text, sizeof text, "{'model_type': 'qwen2', 'max_position_embeddings': 4096, %s}", yarns[i]);
    ModelConfig c = accepted(text);
    assert_int_equal(c.rope.kind, ROPE_YARN);
    assert_true(c.rope.theta == 5e5 && c.rope.factor == 4 && c.rope.original_max_position == 1024);
    assert_true(c.rope.beta_fast == 32 && c.rope.beta_slow == 1 && c.rope.truncate);
    assert_true(c.rope.attention_factor == 0 && c.rope.mscale == 0 && c.rope.mscale_all_dim == 0);
    config_release(&c);
  }
  ModelConfig c =
      accepted("{'model_type': 'llama', 'rope_scaling': {}, 'rope_parameters': {'rope_theta': 77}}");
  assert_true(c.rope.kind == ROPE_PLAIN && c.rope.theta == 77);
  config_release(&c);
  /* It scales what is longer than the longest context. */
  c = accepted(
      "{'model_type': 'llama', 'rope_scaling': {'type': 'dynamic', 'factor': 2}, 'quantization': {}}");
  assert_true(c.rope.kind == ROPE_PLAIN && c.rope.theta == 10000);
  config_release(&c);
}

/* Errors are counted in 2^-23 of the frequency without scaling, f. Both sides compute theta^e to within 1 ulp
 * of each other (PyTorch's vectorised pow errs by at most 1 ulp, ours by half of one) and round 1 / theta^e:
 * 2 units. linear divides: one more. llama3's weight s = (original / wave - low) / (high - low) carries
 * wave's 3 units times high / (high - low) = 4/3 into s (1 - 1/factor) f, and its sum of products rounds four
 * times by half a unit of at most f: 2 + 4 + 2 = 8. yarn's weights are computed alike; its two terms, at most
 * 2 f where factor is 0.5, carry 2 units each and round: 8. longrope multiplies the wave: one more. */
static void frequencies_are_those_of_transformers(void **state) {
  (void)state;
  static const double units[] = {
      [ROPE_PLAIN] = 2, [ROPE_LINEAR] = 3, [ROPE_LLAMA3] = 8, [ROPE_YARN] = 8, [ROPE_LONGROPE] = 3};
  for (size_t i = 0; i < sizeof rope_references / sizeof *rope_references; i++) {
    const char *text = rope_references[i].config;
    ModelConfig c;
    Error err;
    float got[128], attention_factor;
    if (config_parse("config.json", text, strlen(text), &c, &err) != STATUS_OK)
      fail_msg("%s: %s", text, err.text);
    assert_int_equal(c.rope.rotary_dim, 2 * rope_references[i].n);
    rope_frequencies(&c.rope, rope_references[i].long_rope, got, &attention_factor);
    assert_true(attention_factor == rope_references[i].attention_factor);
    for (int pair = 0; pair < rope_references[i].n; pair++) {
      double want = rope_references[i].frequencies[pair];
      double unscaled = pow(c.rope.theta, -2.0 * pair / c.rope.rotary_dim);
      if (!(fabs(got[pair] - want) <= units[c.rope.kind] * 0x1p-23 * unscaled))
        fail_msg("%s: frequency %d is %a, expected %a", text, pair, (double)got[pair], want);
    }
    config_release(&c);
  }
}

/* transformers takes mscale and mscale_all_dim where both are there and none is 0, and else neither. */
static void one_mscale_of_yarn_counts_for_nothing_without_the_other(void **state) {
  (void)state;
  static const char *const givens[] = {"", ", 'mscale': 0.707", ", 'mscale_all_dim': 0.707",
                                       ", 'mscale': 0.707, 'mscale_all_dim': 0",
                                       ", 'mscale': 0, 'mscale_all_dim': 0.707"};
  for (size_t i = 0; i < sizeof givens / sizeof *givens; i++) {
    char text[300];
    snprintf(text, sizeof text,
             "{'model_type': 'llama', 'head_dim': 64, 'rope_scaling': {'type': 'yarn', 'factor': 40, "
             "'original_max_position_embeddings': 4096%s}}",
             givens[i]);
    ModelConfig c = accepted(text);
    float frequencies[32], attention_factor;
    rope_frequencies(&c.rope, false, frequencies, &attention_factor);
    if (attention_factor != (float)(0.1 * log(40) + 1))
      fail_msg("%s: the attention factor is %g", text, (double)attention_factor);
    config_release(&c);
  }
}

/* The longest context is vLLM's (_get_and_verify_max_len()), but never less than max_position_embeddings. */
static void a_scaled_rope_extends_the_context(void **state) {
  (void)state;
  static const struct {
    const char *members;
    int context;
  } cases[] = {
      /* as Qwen's model cards say */
      {"'rope_scaling': {'type': 'yarn', 'factor': 4.0, 'original_max_position_embeddings': 1000}", 4000},
      {"'rope_parameters': {'rope_type': 'yarn', 'factor': 2.5, 'original_max_position_embeddings': 1000}",
       2500},
      {"'original_max_position_embeddings': 500, 'rope_scaling': {'type': 'yarn', 'factor': 4}", 2000},
      {"'original_max_position_embeddings': 500, 'rope_scaling': {'type': 'yarn', 'factor': 4, "
       "'original_max_position_embeddings': 900}",
       2000},
      /* where max_position_embeddings is the long one already */
      {"'rope_scaling': {'type': 'yarn', 'factor': 4, 'original_max_position_embeddings': 250}", 1000},
      {"'rope_scaling': {'type': 'yarn', 'factor': 2, 'original_max_position_embeddings': 250}", 1000},
      {"'rope_scaling': {'type': 'linear', 'factor': 4, 'original_max_position_embeddings': 250}", 1000},
      {"'rope_scaling': {'type': 'yarn', 'factor': 4}", 1000},
      {"'rope_scaling': {'type': 'yarn', 'original_max_position_embeddings': 250}", 1000},
      /* Vicuna 16K, LongChat */
      {"'rope_scaling': {'type': 'linear', 'factor': 4}", 4000},
      {"'rope_scaling': {'type': 'linear', 'factor': 0.5}", 1000},
      {"'rope_scaling': {'type': 'linear', 'factor': 3, 'original_max_position_embeddings': 500}", 1500},
      {"'rope_scaling': {'type': 'linear', 'factor': 1e6}", 1000000000},
      {"'rope_scaling': {'type': 'yarn', 'factor': 1e6, 'original_max_position_embeddings': 10000}", 1 << 30},
      /* others say in max_position_embeddings what they can do */
      {"'rope_scaling': {'type': 'dynamic', 'factor': 4}", 1000},
      {"'rope_scaling': {'type': 'llama3', 'factor': 8, 'low_freq_factor': 1, 'high_freq_factor': 4, "
       "'original_max_position_embeddings': 500}",
       1000},
      {"'rope_scaling': null", 1000},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[400];
    snprintf(text, sizeof text, "{'model_type': 'llama', 'max_position_embeddings': 1000, %s}",
             cases[i].members);
    ModelConfig c = accepted(text);
    if (c.max_position != cases[i].context) fail_msg("%s: the context is %d", text, c.max_position);
    config_release(&c);
  }
  /* Olmo 3 scales layers without a window alone; Gemma 3's max_position_embeddings is the scaled one. */
  ModelConfig c =
      accepted("{'model_type': 'olmo3', 'max_position_embeddings': 1000, 'rope_scaling': {'type': "
               "'yarn', 'factor': 8, 'original_max_position_embeddings': 1000}}");
  assert_int_equal(c.max_position, 8000);
  config_release(&c);
  c = accepted(
      "{'model_type': 'gemma3_text', 'max_position_embeddings': 1000, 'rope_scaling': {'type': 'linear', "
      "'factor': 8}}");
  assert_int_equal(c.max_position, 1000);
  config_release(&c);
}

/* --- refusals */

static void what_is_not_known_is_refused_by_name(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"{'architectures': ['MptForCausalLM'], 'model_type': 'mpt'}",
       "architecture MptForCausalLM is not supported"},
      {"{'architectures': ['LlamaForSequenceClassification']}",
       "LlamaForSequenceClassification is not supported"},
      {"{'architectures': ['LlamaForCausalLM', 'x'], 'model_type': 'mistral'}",
       "model_type is mistral, expected llama"},
      {"{'model_type': 'molmo2'}", "model_type molmo2 is not supported"},
      {"{}", "neither architectures nor model_type"},
      {"{'architectures': 'LlamaForCausalLM'}",
       "architectures is \"LlamaForCausalLM\", expected a list of names"},
      {"{'architectures': [5]}", "architectures[0] is 5, expected a name"},
      {"[]", "its JSON is an array, expected an object"},
      {"{'model_type': 'llama',}", "config.json:1:24: expected a key"},
      {"+'hidden_size': '5'", "hidden_size is \"5\", expected an integer from 1"},
      {"+'hidden_size': 0", "hidden_size is 0"},
      {"+'hidden_size': 1048577", "hidden_size is 1048577"},
      {"+'hidden_size': 4096.5", "hidden_size is 4096.5"},
      {"+'hidden_size': 100000000000000000000", "hidden_size is 100000000000000000000"},
      {"+'hidden_size': 100, 'num_attention_heads': 3",
       "hidden_size is 100, expected a multiple of num_attention_heads 3"},
      {"+'intermediate_size': 4194305", "intermediate_size is 4194305"},
      {"+'num_hidden_layers': 4097", "num_hidden_layers is 4097"},
      {"+'num_attention_heads': -1", "num_attention_heads is -1"},
      {"+'num_attention_heads': 12, 'num_key_value_heads': 5, 'head_dim': 64", "multiple of its 5 kv heads"},
      {"+'num_key_value_heads': 0", "num_key_value_heads is 0"},
      {"+'num_attention_heads': 8, 'num_key_value_heads': 16", "num_attention_heads is 8"},
      {"+'head_dim': 63", "head_dim is 63, expected an even number from 2 to 512"},
      {"+'head_dim': 514", "head_dim is 514"},
      {"+'hidden_size': 33, 'num_attention_heads': 1", "head_dim is 33"},
      {"+'vocab_size': 16777217", "vocab_size is 16777217"},
      {"+'max_position_embeddings': 1073741825", "max_position_embeddings is 1073741825"},
      {"+'rms_norm_eps': -1e-6", "rms_norm_eps is -1e-6"},
      {"+'rms_norm_eps': 1e999", "rms_norm_eps is 1e999"},
      {"+'tie_word_embeddings': 1", "tie_word_embeddings is 1, expected true or false"},
      {"+'hidden_act': 'gelu'", "hidden_act gelu is not supported"},
      {"+'rope_theta': 0", "rope_theta is 0"},
      {"+'rope_scaling': 'linear'", "rope_scaling is \"linear\", expected an object"},
      {"+'rope_scaling': {'type': 'ntk', 'factor': 2}", "rope_scaling: rope type ntk is not supported"},
      {"+'rope_parameters': {'rope_type': 'longrope'}", "rope_parameters: short_factor is missing"},
      {"+'rope_scaling': {'type': 'linear'}", "rope_scaling: factor is missing"},
      {"+'rope_scaling': {'type': 'linear', 'factor': 2, 'original_max_position_embeddings': 'x'}",
       "original_max_position_embeddings is \"x\""},
      {"+'rope_scaling': {'type': 'linear', 'factor': 0}", "rope_scaling: factor is 0"},
      {"+'rope_scaling': {'type': 'llama3', 'factor': 8, 'low_freq_factor': 1}",
       "high_freq_factor is missing"},
      {"+'rope_scaling': {'type': 'llama3', 'factor': 8, 'low_freq_factor': 4, 'high_freq_factor': 3}",
       "high_freq_factor is 3, expected at least low_freq_factor 4"},
      {"+'rope_scaling': {'type': 'yarn', 'attention_factor': 0}", "attention_factor is 0"},
      {"+'rope_theta': 1, 'rope_scaling': {'type': 'yarn', 'factor': 2}",
       "rope_theta is 1, expected more than 1"},
      {"+'rope_scaling': {'type': 'yarn', 'beta_slow': 1e-300}", "beta_slow 1e-300, expected at least 0.001"},
      {"+'partial_rotary_factor': 0.5", "partial_rotary_factor 0.5 is not supported"},
      {"+'rope_parameters': {'partial_rotary_factor': 0.25}", "partial_rotary_factor 0.25 is not supported"},
      {"+'rope_parameters': {'full_attention': {'rope_theta': 5}}",
       "kind of layer (full_attention) are not supported"},
      {"{'model_type': 'mistral', 'sliding_window': 0}", "sliding_window is 0"},
      {"{'model_type': 'qwen2', 'num_hidden_layers': 1, 'layer_types': ['linear_attention']}",
       "layer_types[0] is \"linear_attention\", expected full_attention or sliding_attention"},
      {"{'model_type': 'qwen2', 'num_hidden_layers': 2, 'layer_types': ['full_attention']}",
       "layer_types is a list of 1, expected a list of 2 names"},
      {"{'model_type': 'qwen2', 'num_hidden_layers': 1, 'layer_types': ['sliding_attention']}",
       "layer_types[0] is sliding_attention, expected full_attention"},
      {"{'model_type': 'mistral', 'num_hidden_layers': 1, 'layer_types': ['full_attention']}",
       "layer_types[0] is full_attention, expected sliding_attention"},
      {"+'num_hidden_layers': 1, 'layer_types': ['sliding_attention']",
       "layer_types[0] is sliding_attention"},
      {"+'eos_token_id': 'x'", "eos_token_id is \"x\", expected a token id or a list of them"},
      {"+'eos_token_id': -2", "eos_token_id is -2, expected a token id or a list of them"},
      {"+'eos_token_id': [1, 2.5]", "an id of eos_token_id is 2.5, expected a token id"},
      {"+'eos_token_id': "
       "[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
       "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]",
       "eos_token_id has 65 ids, expected at most 64"},
      {"+'bos_token_id': 2147483648", "bos_token_id is 2147483648"},
      {"+'quantization_config': []", "quantization_config is an array, expected an object"},
      {"+'compression_config': 5", "compression_config is 5, expected an object"},
      {"+'compression_config': {'format': 'x'}", "compression_config: quant_method is missing"},
      {"+'quantization': {'group_size': 64, 'bits': 4}",
       "quantization: quantisation method mlx (Apple's layout) is not supported"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const bool member = cases[i][0][0] == '+'; /* of an otherwise good config */
    assert_members_refused(member ? "llama" : NULL, cases[i][0] + member, cases[i][1]);
  }
}

/* --- directories */

static const char *const names[] = {"config.json", "quant_config.json", "generation_config.json"};

/* Loads a directory with the given texts; NULL: the file is absent. */
static Status load(const char *config_text, const char *quant, const char *generation, ModelConfig *config,
                   Error *err) {
  const char *texts[] = {config_text, quant, generation};
  for (int i = 0; i < 3; i++) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", own_directory, names[i]);
    unlink(path);
    if (!texts[i]) continue;
    FILE *file = fopen(path, "w");
    char *copy = quoted(texts[i]);
    fputs(copy, file);
    free(copy);
    fclose(file);
  }
  return config_load(own_directory, config, err);
}

static void end_tokens_and_sampling_come_from_generation_config(void **state) {
  (void)state;
  ModelConfig c;
  Error err;
  assert_int_equal(
      load("{'model_type': 'llama', 'eos_token_id': [7, 8]}", NULL,
           "{'eos_token_id': [3, 4, 5], 'bos_token_id': 9, 'do_sample': true, 'temperature': 0.6,"
           "'top_k': 20, 'top_p': 0.95, 'min_p': 0.1, 'repetition_penalty': 1.05}",
           &c, &err),
      STATUS_OK);
  assert_int_equal(c.n_eos, 3);
  assert_int_equal(c.eos[0], 3);
  assert_int_equal(c.bos, 9);
  assert_true(c.generation.do_sample && c.generation.temperature == 0.6 && c.generation.top_k == 20);
  assert_true(c.generation.top_p == 0.95 && c.generation.min_p == 0.1 &&
              c.generation.repetition_penalty == 1.05);
  config_release(&c);

  assert_int_equal(load("{'model_type': 'llama', 'eos_token_id': [7, 8]}", NULL,
                        "{'eos_token_id': null, 'top_k': -1}", &c, &err),
                   STATUS_OK);
  assert_int_equal(c.n_eos, 2);
  assert_int_equal(c.eos[1], 8);
  assert_int_equal(c.generation.top_k, 0);
  config_release(&c);

  assert_int_equal(load("{'model_type': 'llama'}", NULL, "{'eos_token_id': 11}", &c, &err), STATUS_OK);
  assert_int_equal(c.n_eos, 1);
  assert_int_equal(c.eos[0], 11);
  config_release(&c);

  assert_int_equal(load("{'model_type': 'llama'}", NULL, "{'temperature': 'hot'}", &c, &err), STATUS_MODEL);
  assert_non_null(strstr(err.text, "generation_config.json: temperature is \"hot\""));
  config_release(&c);
}

static void an_old_quant_config_counts_where_config_says_nothing(void **state) {
  (void)state;
  ModelConfig c;
  Error err;
  const char *old = "{'zero_point': true, 'q_group_size': 64, 'w_bit': 4, 'version': 'GEMM'}";
  assert_int_equal(load("{'model_type': 'llama'}", old, NULL, &c, &err), STATUS_OK);
  assert_int_equal(c.quant.scheme.method, QUANT_AWQ);
  assert_int_equal(c.quant.scheme.group, 64);
  config_release(&c);
  assert_int_equal(
      load("{'model_type': 'llama', 'quantization_config': {'quant_method': 'awq', 'group_size': 32}}", old,
           NULL, &c, &err),
      STATUS_OK);
  assert_int_equal(c.quant.scheme.group, 32);
  config_release(&c);
  assert_int_equal(load("{'model_type': 'llama'}", "{'version': 'GEMV', 'w_bit': 4}", NULL, &c, &err),
                   STATUS_MODEL);
  assert_non_null(strstr(err.text, "quant_config.json: AWQ layout GEMV is not supported"));
  config_release(&c);
}

static void a_directory_without_a_config_is_refused(void **state) {
  (void)state;
  ModelConfig c;
  Error err;
  assert_int_equal(load(NULL, NULL, "{}", &c, &err), STATUS_MODEL);
  assert_non_null(strstr(err.text, "/config.json: cannot open: No such file"));
  config_release(&c);
  assert_int_equal(load("", NULL, NULL, &c, &err), STATUS_MODEL);
  assert_non_null(strstr(err.text, "/config.json: empty, expected JSON"));
  config_release(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_a_config_leaves_out_is_as_in_transformers),
      cmocka_unit_test(what_a_config_says_is_taken),
      cmocka_unit_test(null_means_what_it_means_in_transformers),
      cmocka_unit_test(sliding_windows_are_given_by_layer),
      cmocka_unit_test(rope_is_read_in_old_and_new_spellings),
      cmocka_unit_test(frequencies_are_those_of_transformers),
      cmocka_unit_test(one_mscale_of_yarn_counts_for_nothing_without_the_other),
      cmocka_unit_test(a_scaled_rope_extends_the_context),
      cmocka_unit_test(what_is_not_known_is_refused_by_name),
      cmocka_unit_test_setup_teardown(end_tokens_and_sampling_come_from_generation_config, make_own_directory,
                                      remove_own_directory),
      cmocka_unit_test_setup_teardown(an_old_quant_config_counts_where_config_says_nothing,
                                      make_own_directory, remove_own_directory),
      cmocka_unit_test_setup_teardown(a_directory_without_a_config_is_refused, make_own_directory,
                                      remove_own_directory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
