/* test_architectures.c - what each architecture means by its config, and what is refused in the members that
 * only some of them have.
 *
 * The reference is transformers 5.23: defaults are those of its config classes, derived numbers what its
 * models compute with. That the arithmetic is the same is for test/commands/measure/test_logits.py,
 * with a miniature of each. */
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

/* --- what is left out */

static const struct {
  const char *architecture, *model_type;
  int vocab_size, hidden, intermediate, n_layers, n_heads, n_kv_heads, head_dim, max_position;
  double norm_eps;
  int bos, eos;
  bool tied;
  double rope_theta;
  const char *activation;
} defaults[] = {
    /* clang-format off */
  /* vocab, hidden, intermediate, layers, heads, kv heads, head_dim, positions, eps, bos, eos, tied, theta */
  {"LlamaForCausalLM", "llama", 32000, 4096, 11008, 32, 32, 32, 128, 2048, 1e-6, 1, 2, false, 1e4, "silu"},
  {"MistralForCausalLM", "mistral", 32000, 4096, 14336, 32, 32, 8, 128, 131072, 1e-6, 1, 2, false,
   1e4, "silu"},
  {"Ministral3ForCausalLM", "ministral3", 131072, 4096, 14336, 34, 32, 8, 128, 262144, 1e-5, 1, 2, false,
   1e6, "silu"},
  {"Qwen2ForCausalLM", "qwen2", 151936, 4096, 22016, 32, 32, 32, 128, 32768, 1e-6, -1, -1, false,
   1e4, "silu"},
  {"Qwen3ForCausalLM", "qwen3", 151936, 4096, 22016, 32, 32, 32, 128, 32768, 1e-6, -1, -1, false,
   1e4, "silu"},
  {"Qwen3_5ForCausalLM", "qwen3_5_text", 248320, 4096, 12288, 32, 16, 4, 256, 32768, 1e-6, -1, -1, false,
   1e4, "silu"},
  {"SmolLM3ForCausalLM", "smollm3", 128256, 2048, 11008, 36, 16, 4, 128, 32768, 1e-6, 128000,
   128001, true, 2e6,
   "silu"},
  {"Phi3ForCausalLM", "phi3", 32064, 3072, 8192, 32, 32, 32, 96, 4096, 1e-5, 1, 32000, false, 1e4, "silu"},
  {"Gemma2ForCausalLM", "gemma2", 256000, 2304, 9216, 26, 8, 4, 256, 8192, 1e-6, 2, 1, true, 1e4,
   "gelu_pytorch_tanh"},
  {"Gemma3ForCausalLM", "gemma3_text", 262208, 2304, 9216, 26, 8, 4, 256, 131072, 1e-6, 2, 1, true, 1e6,
   "gelu_pytorch_tanh"},
  {"Gemma3nForCausalLM", "gemma3n_text", 262400, 2048, 16384, 35, 8, 2, 256, 32768, 1e-6, 2, 1, true, 1e6,
   "gelu_pytorch_tanh"},
  {"Gemma4ForCausalLM", "gemma4_text", 262144, 2304, 9216, 30, 8, 4, 256, 131072, 1e-6, 2, 1, true, 1e6,
   "gelu_pytorch_tanh"},
  {"Gemma4UnifiedForCausalLM", "gemma4_unified_text", 262144, 2304, 9216, 30, 8, 4, 256, 262144, 1e-6, 2, 1,
   true, 1e6, "gelu_pytorch_tanh"},
  {"GraniteForCausalLM", "granite", 32000, 4096, 11008, 32, 32, 32, 128, 2048, 1e-6, 1, 2, false,
   1e4, "silu"},
  {"Olmo2ForCausalLM", "olmo2", 50304, 4096, 11008, 32, 32, 32, 128, 2048, 1e-5, -1, 50279, false,
   1e4, "silu"},
  {"Olmo3ForCausalLM", "olmo3", 50304, 4096, 11008, 32, 32, 32, 128, 2048, 1e-5, -1, 50279, false,
   5e5, "silu"},
  {"OlmoHybridForCausalLM", "olmo_hybrid", 100352, 3840, 11008, 32, 30, 30, 128, 65536, 1e-6, -1, 100257,
   false, 1e4, "silu"},
  {"CohereForCausalLM", "cohere", 256000, 8192, 22528, 40, 64, 64, 128, 8192, 1e-5, 5, 255001, true, 5e5,
   "silu"},
  {"Cohere2ForCausalLM", "cohere2", 256000, 8192, 22528, 40, 64, 64, 128, 8192, 1e-5, 5, 255001, true, 1e4,
   "silu"},
  {"HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", 290943, 4096, 11008, 32, 32, 32, 128, 2048, 1e-5, 1, 2,
   false, 1e4, "silu"},
  {"GlmForCausalLM", "glm", 151552, 4096, 13696, 40, 32, 2, 128, 131072, 0.00000015625, -1, 151329,
   false, 1e4, "silu"},
  {"Glm4ForCausalLM", "glm4", 151552, 4096, 13696, 40, 32, 2, 128, 131072, 0.00000015625, -1, 151329,
   false, 1e4, "silu"},
  {"Ernie4_5ForCausalLM", "ernie4_5", 103424, 1024, 3072, 18, 16, 2, 128, 131072, 1e-5, 1, 2, true, 5e5,
   "silu"},
  {"Exaone4ForCausalLM", "exaone4", 102400, 4096, 16384, 32, 32, 32, 128, 2048, 1e-5, 0, 2, false, 1e4,
   "silu"},
  {"GraniteMoeHybridForCausalLM", "granitemoehybrid", 32000, 4096, 1024, 4, 32, 32, 128, 2048, 1e-6, 1, 2,
   false, 1e4, "silu"},
  {"BambaForCausalLM", "bamba", 128000, 4096, 14336, 32, 32, 8, 128, 262144, 1e-5, 1, 2, false, 1e4, "silu"},
  {"FalconH1ForCausalLM", "falcon_h1", 128000, 4096, 14336, 32, 32, 8, 128, 8192, 1e-5, 1, 2, false, 1e4,
   "silu"},
  {"GraniteSWAForCausalLM", "granite_swa", 100352, 2560, 8192, 24, 20, 4, 128, 8192, 1e-5, 100257, 100257,
   true, 1e4, "silu"},
  {"Lfm2ForCausalLM", "lfm2", 65536, 2560, 8192, 32, 32, 8, 80, 128000, 1e-5, 1, 2, true, 1e6, "silu"},
  {"Lfm3ForCausalLM", "lfm3", 128000, 2048, 7680, 24, 16, 4, 128, 128000, 1e-5, 124894, 124900, true, 1e6,
   "silu"},
  {"MuseGlimmerForConditionalGeneration", "muse_glimmer", 202048, 6656, 19968, 52, 32, 2, 128, 131072, 1e-5,
   200000, 200001, false, 1e4, "silu"},
  {"Qwen2VLForConditionalGeneration", "qwen2_vl", 152064, 8192, 29568, 80, 64, 8, 128, 32768, 1e-5, 151643,
   151645, false, 1e6, "silu"},
  {"Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", 152064, 8192, 29568, 80, 64, 8, 128, 32768, 1e-5,
   151643, 151645, false, 1e6, "silu"},
  {"Qwen2_5OmniThinkerForConditionalGeneration", "qwen2_5_omni_thinker", 152064, 3584, 18944, 28, 28, 4, 128,
   32768, 1e-6, -1, -1, false, 1e6, "silu"},
  {"Qwen3VLForConditionalGeneration", "qwen3_vl", 151936, 4096, 22016, 32, 32, 32, 128, 128000, 1e-6, -1, -1,
   false, 5e5, "silu"},
  {"Glm4vForConditionalGeneration", "glm4v", 151552, 4096, 13696, 40, 32, 2, 128, 32768, 1e-5, -1, -1, false,
   1e4, "silu"},
  {"GlmOcrForConditionalGeneration", "glm_ocr", 59392, 1024, 4096, 16, 16, 8, 64, 131072, 1e-5, -1, -1, false,
   1e4, "silu"},
  {"HunYuanVLForConditionalGeneration", "hunyuan_vl", 290943, 4096, 11008, 32, 32, 32, 128, 2048, 1e-5, 1, 2,
   true, 1e4, "silu"},
  {"PaddleOCRVLForConditionalGeneration", "paddleocr_vl", 103424, 1024, 3072, 18, 16, 2, 128, 131072, 1e-5, 1,
   2, true, 1e4, "silu"},
  {"Granite4VisionForConditionalGeneration", "granite4_vision", 32000, 4096, 11008, 32, 32, 32, 128, 2048,
   1e-6, 1, 2, false, 1e4, "silu"},
  {"GraniteDoclingForConditionalGeneration", "granite_docling", 133800, 1024, 2048, 28, 16, 4, 64, 32768,
   1e-5, 100257, 100257, true, 1e4, "silu"},
  {"MinistralForCausalLM", "ministral", 32000, 4096, 14336, 32, 32, 8, 128, 131072, 1e-6, 1, 2, false, 1e4,
   "silu"},
  {"GemmaForCausalLM", "gemma", 256000, 3072, 24576, 28, 16, 16, 256, 8192, 1e-6, 2, 1, true, 1e4,
   "gelu_pytorch_tanh"},
  {"VaultGemmaForCausalLM", "vaultgemma", 256000, 2304, 9216, 26, 8, 4, 256, 8192, 1e-6, 2, 1, true, 1e4,
   "gelu_pytorch_tanh"},
  {"HyperCLOVAXForCausalLM", "hyperclovax", 32000, 4096, 11008, 32, 32, 32, 128, 2048, 1e-6, 1, 2, false, 1e4,
   "silu"},
  {"InternLM3ForCausalLM", "internlm3", 128512, 4096, 10240, 48, 32, 2, 128, 32768, 1e-5, 1, 2, false, 1e4,
   "silu"},
  {"IQuestCoderForCausalLM", "iquestcoder", 76800, 5120, 27648, 80, 40, 8, 128, 131072, 1e-5, 1, 2, false,
   1e4, "silu"},
  {"HeliumForCausalLM", "helium", 48000, 2560, 7040, 24, 20, 20, 128, 4096, 1e-8, 1, 2, false, 1e5, "silu"},
  {"CwmForCausalLM", "cwm", 128256, 6144, 21504, 64, 48, 8, 128, 131072, 1e-5, 128000, 128001, false, 1e6,
   "silu"},
  {"ArceeForCausalLM", "arcee", 32000, 2560, 18432, 32, 32, 32, 80, 4096, 1e-5, 128000, 128001, false, 1e4,
   "relu2"},
  {"ApertusForCausalLM", "apertus", 131072, 4096, 14336, 32, 32, 32, 128, 65536, 1e-5, 1, 2, false, 12e6,
   "xielu"},
  {"YoutuForCausalLM", "youtu", 128256, 2048, 6144, 32, 16, 1, 576, 131072, 1e-6, 128000, 128001, true, 1e4,
   "silu"},
  {"MiniCPM3ForCausalLM", "minicpm3", 73448, 2560, 6400, 62, 40, 1, 288, 32768, 1e-5, 1, 2, true, 1e4,
   "silu"},
  {"MiniCPMForCausalLM", "minicpm", 32000, 4096, 11008, 32, 32, 32, 128, 2048, 1e-6, 1, 2, true, 1e4,
   "silu"},
  {"SeedOssForCausalLM", "seed_oss", 155136, 4096, 27648, 64, 80, 8, 128, 524288, 1e-6, 0, 2, false,
   1e4, "silu"},
    /* clang-format on */
};

/* Architectures whose models need not have experts: test_experts_config.c has the others. */
static size_t n_dense(void) {
  size_t n = 0;
  for (size_t i = 0; i < n_architectures; i++)
    n += !architectures[i].experts.names || architectures[i].experts.enable_key ||
         has(&architectures[i], MAY_LACK_EXPERTS);
  return n;
}

static void what_is_left_out_is_as_in_transformers(void **state) {
  (void)state;
  const size_t n = sizeof defaults / sizeof *defaults;
  assert_int_equal(n, n_dense());
  for (size_t i = 0; i < 2 * n; i++) {
    char text[300];
    const size_t at = i % n;
    const char *more = strcmp(defaults[at].model_type, "granitemoehybrid") == 0 ? HYBRID
                       : strstr("cwm apertus", defaults[at].model_type)
                           ? ", 'rope_scaling': {'type': 'default'}"
                       : strstr(defaults[at].architecture, "Conditional") ? ", 'text_config': {}"
                                                                          : "";
    const int input = strcmp(defaults[at].model_type, "gemma3n_text") == 0; /* it refuses 0 */
    if (i < n)
      snprintf(text, sizeof text, "{'architectures': ['%s'], 'hidden_size_per_layer_input': %d%s}",
               defaults[at].architecture, input, more);
    else
      snprintf(text, sizeof text,
               "{'model_type': '%s', 'architectures': null, 'hidden_size_per_layer_input': %d%s}",
               defaults[at].model_type, input, more);
    ModelConfig c = accepted(text);
    assert_string_equal(c.architecture, defaults[at].architecture);
    assert_int_equal(c.vocab_size, defaults[at].vocab_size);
    assert_int_equal(c.hidden, defaults[at].hidden);
    assert_int_equal(c.intermediate, defaults[at].intermediate);
    assert_int_equal(c.n_layers, defaults[at].n_layers);
    assert_int_equal(c.n_heads, defaults[at].n_heads);
    assert_int_equal(c.n_kv_heads, defaults[at].n_kv_heads);
    assert_int_equal(c.head_dim, defaults[at].head_dim);
    const int part =
        strcmp(defaults[at].model_type, "bamba") == 0                                                 ? 2
        : c.delta.n_key_heads && !c.layers[0].delta_beside && !c.delta.apart                          ? 4
        : strstr(defaults[at].architecture, "GlmFor") || strstr(defaults[at].architecture, "Glm4For") ? 2
                                                                                                      : 1;
    const bool gemma4 = strncmp(defaults[at].model_type, "gemma4", 6) == 0;
    const int latent = c.latent.rope_dim;
    assert_int_equal(c.rope.rotary_dim, gemma4 ? 512 : latent ? latent : defaults[at].head_dim / part);
    assert_int_equal(c.max_position, defaults[at].max_position);
    assert_true(c.norm_eps == defaults[at].norm_eps && c.rope.theta == defaults[at].rope_theta);
    assert_int_equal(c.bos, defaults[at].bos);
    assert_int_equal(c.n_eos ? c.eos[0] : -1, defaults[at].eos);
    assert_int_equal(c.tied_embeddings, defaults[at].tied);
    assert_string_equal(activation_name(c.activation), defaults[at].activation);
    assert_false(c.o_bias || c.mlp_bias);
    assert_int_equal(c.text_part, strstr(defaults[at].architecture, "Conditional") != NULL);
    config_release(&c);
    assert_null(c.layers);
  }
}

/* --- what is computed */

static void only_what_an_architecture_has_is_taken(void **state) {
  (void)state;
  /* Members of others, which transformers does not look at in a Llama. */
  ModelConfig c = accepted(
      "{'model_type': 'llama', 'num_hidden_layers': 4, 'query_pre_attn_scalar': 7, 'attn_logit_softcapping': "
      "5,"
      "'final_logit_softcapping': 5, 'embedding_multiplier': 3, 'logits_scaling': 0, 'no_rope_layers': 7,"
      "'hidden_activation': 'relu', 'sliding_window': 'x', 'sliding_window_pattern': 0, 'qkv_bias': true,"
      "'residual_multiplier': 'x', 'use_bidirectional_attention': true, 'rope_local_base_freq': -1}");
  assert_true(c.norms == NORM_BEFORE && c.norm == NORM_RMS && c.qk_norm == QK_NORM_NONE && !c.fused);
  assert_true(c.embedding_scale == 1 && c.residual_scale == 1 && c.logit_divisor == 1);
  assert_true(c.attention_scale == 1 / sqrt(128) && c.attention_cap == 0 && c.logit_cap == 0);
  assert_false(c.qkv_bias);
  assert_layers(&c, "gggg");
  config_release(&c);
}

static void biases_are_asked_for_by_name(void **state) {
  (void)state;
  static const struct {
    const char *text;
    bool qkv, o, mlp;
  } cases[] = {
      {"{'model_type': 'llama', 'attention_bias': true, 'mlp_bias': true}", true, true, true},
      {"{'model_type': 'llama', 'mlp_bias': true}", false, false, true},
      {"{'model_type': 'qwen2'}", true, false, false},
      {"{'model_type': 'qwen2', 'attention_bias': true}", true, false, false},
      {"{'model_type': 'mistral', 'attention_bias': true}", false, false, false},
      {"{'model_type': 'granite', 'attention_bias': true, 'mlp_bias': true}", true, true, true},
      {"{'model_type': 'olmo2', 'attention_bias': true, 'mlp_bias': true}", true, true, false},
      {"{'model_type': 'gemma2', 'attention_bias': true}", true, true, false},
      {"{'model_type': 'seed_oss'}", true, false, false},
      {"{'model_type': 'ernie4_5', 'use_bias': true}", true, true, true},
      {"{'model_type': 'ernie4_5', 'attention_bias': true, 'mlp_bias': true}", false, false, false},
      {"{'model_type': 'glm4', 'mlp_bias': true, 'attention_out_bias': true}", true, false, false},
      {"{'model_type': 'glm', 'attention_bias': false}", false, false, false},
      {"{'model_type': 'seed_oss', 'attention_bias': false, 'mlp_bias': true}", false, false, true},
      {"{'model_type': 'seed_oss', 'attention_bias': false, 'attention_out_bias': true}", false, true, false},
      {"{'model_type': 'smollm3', 'attention_bias': true, 'mlp_bias': true}", true, true, true},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ModelConfig c = accepted(cases[i].text);
    if (c.qkv_bias != cases[i].qkv || c.o_bias != cases[i].o || c.mlp_bias != cases[i].mlp)
      fail_msg("%s: biases %d %d %d", cases[i].text, c.qkv_bias, c.o_bias, c.mlp_bias);
    config_release(&c);
  }
}

/* The members that only some architectures have, all at once. Taken are: a(ttention_bias), m(lp_bias), the
 * four (f)actors of Granite, (q)uery_pre_attn_scalar, attention (c)ap, (l)ogit cap, the (r)ope of windowed
 * layers; windows and layers that are not turned as assert_layers() has them. */
static void each_member_is_for_some_architectures(void **state) {
  (void)state;
  static const char *const cases[][3] = {
      {"llama", "am", "gggg"},
      {"mistral", "", "GGGG"},
      {"ministral3", "", "GGGG"},
      {"qwen2", "", "ggGG"},
      {"qwen3", "a", "ggGG"},
      {"qwen3_5_text", "a", "gggg"},
      {"smollm3", "am", "Nggg"},
      {"phi3", "", "GGGG"},
      {"gemma2", "aqcl", "GgGg"},
      {"gemma3_text", "aqlr", "LLgL"},
      {"gemma3n_text', 'num_kv_shared_layers': 1, 'x': '", "alr", "LLLL"},
      {"gemma4_text", "al", "LLLg"},
      {"gemma4_unified_text", "al", "LLLg"},
      {"granite", "amf", "gggg"},
      {"olmo2", "a", "gggg"},
      {"olmo3", "a", "LLLg"},
      {"olmo_hybrid", "a", "gggg"},
      {"cohere", "a", "gggg"},
      {"cohere2", "a", "GGnG"},
      {"seed_oss", "m", "gggg"},
      {"hunyuan_v1_dense", "a", "gggg"},
      {"glm", "", "gggg"},
      {"glm4", "", "gggg"},
      {"ernie4_5", "", "gggg"},
      {"exaone4", "", "GGnG"},
      {"granitemoehybrid', 'num_local_experts': 0, 'x': '", "af", "nnnn"},
      {"bamba", "am", "gggg"},
      {"falcon_h1", "", "gggg"},
      {"granite_swa", "amf", "gGGG"},
      {"lfm2", "", "gggg"},
      {"lfm3", "a", "gggg"},
      {"qwen2_vl', 'text_config': {'x': '", "", "ggGG"},
      {"qwen2_5_vl', 'text_config': {'x': '", "", "ggGG"},
      {"qwen2_5_omni_thinker', 'text_config': {'x': '", "", "ggGG"},
      {"qwen3_vl', 'text_config': {'x': '", "a", "gggg"},
      {"glm4v', 'text_config': {'x': '", "", "gggg"},
      {"glm_ocr', 'text_config': {'x': '", "", "gggg"},
      {"hunyuan_vl', 'text_config': {'x': '", "a", "gggg"},
      {"paddleocr_vl', 'text_config': {'x': '", "", "gggg"},
      {"granite4_vision', 'text_config': {'x': '", "amf", "gggg"},
      {"granite_docling', 'text_config': {'x': '", "amf", "gggg"},
      {"ministral", "", "GGGG"},
      {"gemma", "a", "gggg"},
      {"vaultgemma", "aqcl", "GgGg"},
      {"hyperclovax", "am", "gggg"},
      {"internlm3", "am", "gggg"},
      {"helium", "m", "gggg"},
      {"arcee", "am", "gggg"},
      {"iquestcoder", "am", "gggg"},
      {"youtu", "a", "gggg"},
      {"minicpm3", "am", "gggg"},
      {"minicpm", "a", "gggg"},
      {"cwm', 'rope_scaling': {'type': 'default'}, 'x': '", "m", "gGGG"},
      {"apertus', 'rope_scaling': {'type': 'default'}, 'x': '", "a", "gggg"},
      {"muse_glimmer', 'text_config': {'x': '", "al", "GGGn"}};
  assert_int_equal(sizeof cases / sizeof *cases, n_dense());
  for (size_t i = 0; i < n_dense(); i++) {
    char text[900], found[20] = "";
    const char *biases = strcmp(cases[i][0], "falcon_h1") == 0 ? "false" : "true"; /* it refuses them */
    const bool refused_cap = strncmp(cases[i][0], "gemma3", 6) == 0 ||
                             strncmp(cases[i][0], "gemma4", 6) == 0 || strstr(cases[i][0], "muse");
    snprintf(text, sizeof text,
             "{'model_type': '%s', 'num_hidden_layers': 4, 'attention_bias': %s, 'mlp_bias': %s, "
             "'embedding_multiplier': 3, 'attention_multiplier': 5, 'residual_multiplier': 7, "
             "'logits_scaling': 9, 'query_pre_attn_scalar': 49, %s'final_logit_softcapping': 13, "
             "'no_rope_layers': [0, 1, 1, 1], 'no_rope_layer_interval': 1, 'sliding_window_pattern': 3, "
             "'sliding_window': 17, %s'max_window_layers': 2, "
             "'rope_local_base_freq': 19, 'hidden_size_per_layer_input': %d%s}",
             cases[i][0], biases, biases, refused_cap ? "" : "'attn_logit_softcapping': 11, ",
             strstr(cases[i][0], "iquest") ? "" : "'use_sliding_window': true, ",
             strstr(cases[i][0], "gemma3n") != NULL, /* it refuses 0 */
             strstr(cases[i][0], "moehybrid")
                 ? ", 'layer_types': ['attention', 'attention', 'attention', 'attention']"
             : strstr(cases[i][0], "text_config") ? "}"
                                                  : "");
    ModelConfig c = accepted(text);
    const bool has[] = {c.o_bias,
                        c.mlp_bias,
                        c.embedding_scale == 3 && c.attention_scale == 5 && c.residual_scale == 7 &&
                            c.logit_divisor == 9,
                        c.attention_scale == 1 / sqrt(49),
                        c.attention_cap == 11,
                        c.logit_cap == 13,
                        c.local_rope.theta == 19};
    for (size_t k = 0; k < sizeof has; k++)
      if (has[k]) found[strlen(found)] = "amfqclr"[k];
    assert_string_equal(found, cases[i][1]);
    assert_layers(&c, cases[i][2]);
    config_release(&c);
  }
}

/* As google/gemma-2-27b-it has it, whose scores are not scaled by its head_dim. */
static void gemma2(void **state) {
  (void)state;
  ModelConfig c = accepted(
      "{'architectures': ['Gemma2ForCausalLM'], 'model_type': 'gemma2', 'hidden_size': 4608, 'head_dim': 128,"
      "'num_attention_heads': 32, 'num_key_value_heads': 16, 'num_hidden_layers': 6, 'intermediate_size': "
      "36864,"
      "'attn_logit_softcapping': 50.0, 'final_logit_softcapping': 30.0, 'query_pre_attn_scalar': 144,"
      "'sliding_window': 4096, 'hidden_act': 'gelu_pytorch_tanh', 'hidden_activation': 'gelu_pytorch_tanh',"
      "'cache_implementation': 'hybrid', 'sliding_window_size': 4096}");
  assert_true(c.norms == NORM_AROUND && c.norm == NORM_PLUS_ONE && c.qk_norm == QK_NORM_NONE);
  assert_true(c.activation == ACTIVATION_GELU_TANH && c.tied_embeddings);
  assert_true(c.embedding_scale == sqrt(4608) && c.attention_scale == 1 / sqrt(144));
  assert_true(c.attention_cap == 50 && c.logit_cap == 30);
  assert_layers(&c, "GgGgGg");
  assert_int_equal(c.layers[0].window, 4096);
  config_release(&c);
  c = accepted("{'model_type': 'gemma2', 'attn_logit_softcapping': null, 'final_logit_softcapping': null}");
  assert_true(c.attention_cap == 0 && c.logit_cap == 0);
  config_release(&c);
}

static void smollm3(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"'num_hidden_layers': 9", "gggngggng"},
      {"'num_hidden_layers': 5, 'no_rope_layer_interval': 2", "gngng"},
      {"'num_hidden_layers': 3, 'no_rope_layer_interval': 1", "nnn"},
      {"'num_hidden_layers': 3, 'no_rope_layers': [0, 1, 0, 1], 'no_rope_layer_interval': 1", "ngn"},
      {"'num_hidden_layers': 4, 'use_sliding_window': true, 'sliding_window': 8", "gggN"},
      {"'num_hidden_layers': 4, 'use_sliding_window': true, 'sliding_window': null", "gggn"},
      {"'num_hidden_layers': 4, 'use_sliding_window': false, 'sliding_window': 8", "gggn"},
      {"'num_hidden_layers': 4, 'use_sliding_window': true, 'sliding_window': 8, 'layer_types': "
       "['sliding_attention', 'full_attention', 'full_attention', 'full_attention']",
       "Gggn"},
      {"'num_hidden_layers': 4, 'layer_types': ['full_attention', 'full_attention', 'full_attention',"
       "'full_attention'], 'max_window_layers': 28",
       "gggn"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[500];
    snprintf(text, sizeof text, "{'model_type': 'smollm3', %s}", cases[i][0]);
    ModelConfig c = accepted(text);
    assert_layers(&c, cases[i][1]);
    config_release(&c);
  }
}

#define FACTORS "'short_factor': [1, 1.5, 2], 'long_factor': [4, 5, 6.5]"

/* As microsoft/Phi-4-mini-instruct has it, with fewer numbers. */
static void phi3(void **state) {
  (void)state;
  ModelConfig c = accepted(
      "{'architectures': ['Phi3ForCausalLM'], 'model_type': 'phi3', 'hidden_size': 64, "
      "'num_attention_heads': 8,"
      "'num_key_value_heads': 2, 'num_hidden_layers': 2, 'partial_rotary_factor': 0.75, 'attention_bias': "
      "false,"
      "'max_position_embeddings': 131072, 'original_max_position_embeddings': 4096, 'sliding_window': 262144,"
      "'rope_scaling': {'type': 'longrope', " FACTORS
      "}, 'tie_word_embeddings': true, 'rope_theta': 10000.0}");
  assert_true(c.fused == FUSES_ALL && c.rope.kind == ROPE_LONGROPE && c.head_dim == 8 &&
              c.rope.rotary_dim == 6);
  assert_true(c.rope.factor == 32 && c.rope.original_max_position == 4096 && c.rope.attention_factor == 0);
  assert_true(c.rope.short_factors[1] == 1.5f && c.rope.long_factors[2] == 6.5f);
  assert_int_equal(rope_original_context(&c), 4096);
  assert_layers(&c, "GG");
  float frequencies[3], factor;
  rope_frequencies(&c.rope, true, frequencies, &factor);
  assert_true(factor == (float)sqrt(1 + log(32) / log(4096)) && frequencies[0] == 0.25f);
  config_release(&c);

  static const struct {
    const char *text;
    double original, factor;
    bool longrope;
  } cases[] = {
      /* The class has a default of its own, which counts more than what is inside. */
      {"'max_position_embeddings': 8192, 'rope_scaling': {'type': 'su', 'original_max_position_embeddings': "
       "9,"
       " " FACTORS "}",
       4096, 2, true},
      {"'rope_scaling': {'type': 'yarn', 'factor': 3, " FACTORS "}, 'original_max_position_embeddings': 1024",
       1024, 3, true},
      {"'rope_parameters': {'rope_type': 'longrope', 'rope_theta': 5, 'partial_rotary_factor': 0.8, " FACTORS
       "}",
       4096, 1, true},
      {"'partial_rotary_factor': 0.5", 0, 0, false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[700];
    snprintf(text, sizeof text, "{'model_type': 'phi3', 'head_dim': 8, 'partial_rotary_factor': 0.75, %s}",
             cases[i].text);
    if (!cases[i].longrope)
      snprintf(text, sizeof text, "{'model_type': 'phi3', 'head_dim': 8, %s}", cases[i].text);
    c = accepted(text);
    assert_int_equal(c.rope.kind, cases[i].longrope ? ROPE_LONGROPE : ROPE_PLAIN);
    assert_int_equal(c.rope.rotary_dim, cases[i].longrope ? 6 : 4);
    assert_true(c.rope.original_max_position == cases[i].original && c.rope.factor == cases[i].factor);
    assert_layers(&c, "gggggggggggggggggggggggggggggggg");
    config_release(&c);
  }
}

/* As ibm-granite/granite-3.1-8b-instruct and allenai/OLMo-2-1124-7B have it. */
static void granite_and_olmo2(void **state) {
  (void)state;
  ModelConfig c =
      accepted("{'architectures': ['GraniteForCausalLM'], 'model_type': 'granite', 'num_key_value_heads': 8,"
               "'attention_multiplier': 0.0078125, 'embedding_multiplier': 12.0, 'residual_multiplier': 0.22,"
               "'logits_scaling': 16.0, 'rope_theta': 10000000.0, 'tie_word_embeddings': true}");
  assert_true(c.attention_scale == 0.0078125 && c.embedding_scale == 12 && c.residual_scale == 0.22);
  assert_true(c.logit_divisor == 16 && c.rope.theta == 1e7 && c.norms == NORM_BEFORE);
  config_release(&c);
  c = accepted("{'model_type': 'granite'}");
  assert_true(c.attention_scale == 1 && c.embedding_scale == 1 && c.residual_scale == 1 &&
              c.logit_divisor == 1);
  config_release(&c);
  c = accepted("{'architectures': ['Olmo2ForCausalLM'], 'model_type': 'olmo2', 'rope_theta': 500000}");
  assert_true(c.norms == NORM_AFTER && c.qk_norm == QK_NORM_WHOLE && c.norm == NORM_RMS);
  assert_true(c.rope.theta == 5e5 && c.attention_scale == 1 / sqrt(128));
  config_release(&c);
}

static void gemma_and_hyperclovax(void **state) {
  (void)state;
  ModelConfig c = accepted("{'model_type': 'gemma', 'hidden_act': 'gelu', 'hidden_size': 64}");
  assert_true(c.activation == ACTIVATION_GELU_TANH && c.norm == NORM_PLUS_ONE && c.embedding_scale == 8);
  config_release(&c);
  c = accepted("{'model_type': 'hyperclovax', 'logits_scaling': 0.125, 'head_dim': 64}");
  assert_true(c.norms == NORM_AROUND && c.logit_divisor == 8 && c.attention_scale == 0.125);
  config_release(&c);
  c = accepted("{'model_type': 'hyperclovax', 'use_post_norm': false, 'attention_multiplier': 0.5}");
  assert_true(c.norms == NORM_BEFORE && c.attention_scale == 0.5 && c.logit_divisor == 1);
  config_release(&c);
}

/* --- refusals */

static void contradictions_and_strange_numbers_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *model_type, *members, *message; /* model_type NULL: members are the whole config */
  } cases[] = {
      /* what it is */
      {NULL, "{'architectures': ['DbrxForCausalLM'], 'model_type': 'dbrx', 'num_local_experts': 16}",
       "architecture DbrxForCausalLM is not supported: it is a mixture of experts (num_local_experts); "
       "take a dense model"},
      {NULL, "{'model_type': 'dbrx', 'num_experts': 128}",
       "model_type dbrx is not supported: it is a mixture of experts (num_experts)"},
      {NULL, "{'architectures': ['DeepseekV32ForCausalLM'], 'n_routed_experts': 256}",
       "a mixture of experts"},
      {NULL, "{'architectures': ['MambaForCausalLM'], 'model_type': 'mamba', 'text_config': {}}",
       "architecture MambaForCausalLM is not supported; models.md lists those that are"},
      {NULL, "{'model_type': 'molmo2', 'vision_config': {}}",
       "model_type molmo2 is not supported: it is a model of several parts (vision_config); take a model of "
       "text alone"},
      {NULL, "{'model_type': 'qwen3_vl', 'text_config': {'model_type': 'qwen3'}}",
       "text_config: model_type qwen3 is not supported in Qwen3VLForConditionalGeneration"},
      {NULL, "{'model_type': 'llava_next', 'text_config': {'model_type': 'granite'}}",
       "text_config: model_type granite is not supported in LlavaNextForConditionalGeneration"},
      {NULL, "{'model_type': 'granite4_vision', 'text_config': {'model_type': 'granitemoehybrid'}}",
       "text_config: model_type granitemoehybrid is not supported in Granite4VisionForConditionalGeneration"},
      {NULL, "{'model_type': 'nemotron_h_omni', 'vision_config': {}}",
       "llm_config is missing, expected the config"},
      {NULL, "{'model_type': 'deepseek_vl', 'text_config': {'model_type': 'kimi_k2'}}",
       "text_config: model_type kimi_k2 is not supported in DeepseekVLForConditionalGeneration"},
      {NULL, "{'model_type': 'hunyuan_v1_dense', 'rope_scaling': {'type': 'xdrope', 'alpha': 2}}",
       "rope type xdrope is not supported"},
      {NULL, "{'model_type': 'internvl_chat', 'llm_config': {'model_type': 'internlm2'}}",
       "llm_config: model_type internlm2 is not supported in InternVLChatModel"},
      {NULL, "{'model_type': 'internvl_chat', 'text_config': {}}",
       "llm_config is missing, expected the config"},
      {NULL, "{'model_type': 'qwen2_5_omni', 'text_config': {}}",
       "text_config is missing, expected the config of Qwen2_5OmniModel's text part"},
      {NULL, "{'model_type': 'qwen2', 'rope_scaling': {'type': 'mrope'}}",
       "rope type mrope is not supported"},
      {NULL, "{'model_type': 'llama5', 'text_config': {'num_local_experts': 16}, 'vision_config': {}}",
       "model_type llama5 is not supported: it is a mixture of experts (num_local_experts)"},
      {NULL, "{'architectures': ['Gemma3ForCausalLM'], 'model_type': 'gemma3'}",
       "model_type is gemma3, expected gemma3_text with architecture Gemma3ForCausalLM"},
      {NULL, "{'architectures': ['Gemma3ForConditionalGeneration'], 'model_type': 'gemma3_text'}",
       "model_type is gemma3_text, expected gemma3 with architecture Gemma3ForConditionalGeneration"},
      {NULL, "{'model_type': 'gemma3'}",
       "text_config is missing, expected the config of Gemma3ForConditionalGeneration's text part"},
      {NULL, "{'model_type': 'gemma3', 'text_config': [1]}", "text_config is an array, expected an object"},
      {NULL, "{'model_type': 'mistral3', 'text_config': {'model_type': 'mistral5'}}",
       "text_config: model_type mistral5 is not supported in Mistral3ForConditionalGeneration"},
      {NULL, "{'model_type': 'mistral3', 'text_config': {'model_type': 'llama4'}}",
       "text_config: model_type llama4 is not supported in Mistral3ForConditionalGeneration"},
      {NULL, "{'architectures': ['Mistral4ForCausalLM'], 'model_type': 'mistral4', 'n_routed_experts': 128}",
       "architecture Mistral4ForCausalLM is not supported: it is a mixture of experts (n_routed_experts)"},
      {NULL, "{'model_type': 'mistral3', 'text_config': {'head_dim': 63}}",
       "config.json: text_config: head_dim is 63"},
      {NULL,
       "{'model_type': 'gemma3', 'text_config': {}, 'quantization_config': {'quant_method': 'awq', 'bits': "
       "3}}",
       "3 bits"},
      /* activations and biases */
      {"gemma2", "'hidden_activation': 'gelu'", "hidden_activation gelu is not supported, expected silu or"},
      {"gemma2", "'hidden_activation': 5", "hidden_activation is 5"},
      {"granite", "'hidden_act': 'relu'", "hidden_act relu is not supported"},
      {"granite", "'attention_bias': 1", "attention_bias is 1, expected true or false"},
      {"smollm3", "'mlp_bias': 'yes'", "mlp_bias is \"yes\""},
      /* factors and caps */
      {"gemma2", "'query_pre_attn_scalar': 0", "query_pre_attn_scalar is 0"},
      {"gemma3_text", "'query_pre_attn_scalar': -256", "query_pre_attn_scalar is -256"},
      {"gemma2", "'attn_logit_softcapping': 0", "attn_logit_softcapping is 0"},
      {"gemma2", "'attn_logit_softcapping': -50.0", "attn_logit_softcapping is -50.0"},
      {"gemma2", "'final_logit_softcapping': 1e7", "final_logit_softcapping is 1e7"},
      {"gemma2", "'final_logit_softcapping': 'x'", "final_logit_softcapping is \"x\""},
      {"gemma3_text", "'attn_logit_softcapping': 50.0",
       "attn_logit_softcapping is not supported in Gemma3ForCausalLM, expected null"},
      {"granite", "'embedding_multiplier': 0", "embedding_multiplier is 0"},
      {"granite", "'embedding_multiplier': 1e999", "embedding_multiplier is 1e999"},
      {"granite", "'attention_multiplier': -1", "attention_multiplier is -1"},
      {"granite", "'residual_multiplier': 1e-9", "residual_multiplier is 1e-9"},
      {"granite", "'logits_scaling': 0.0", "logits_scaling is 0.0"},
      {"granite", "'logits_scaling': []", "logits_scaling is"},
      /* layers */
      {"smollm3", "'num_hidden_layers': 3, 'no_rope_layers': [1, 0]",
       "no_rope_layers is a list of 2, expected a list of 3 numbers (num_hidden_layers)"},
      {"smollm3", "'num_hidden_layers': 3, 'no_rope_layers': 5",
       "no_rope_layers is 5, expected a list of 3 numbers"},
      {"smollm3", "'num_hidden_layers': 2, 'no_rope_layers': [1, 2]",
       "no_rope_layers[1] is 2, expected 0 or 1"},
      {"smollm3", "'num_hidden_layers': 2, 'no_rope_layers': [true, 1]",
       "no_rope_layers[0] is true, expected 0 or 1"},
      {"smollm3", "'num_hidden_layers': 2, 'no_rope_layers': [1, -1]",
       "no_rope_layers[1] is -1, expected 0 or 1"},
      {"smollm3", "'no_rope_layer_interval': 0", "no_rope_layer_interval is 0"},
      {"smollm3", "'num_hidden_layers': 1, 'layer_types': ['sliding_attention']",
       "layer_types[0] is sliding_attention, expected full_attention: there is no sliding window"},
      {"gemma3_text", "'sliding_window_pattern': 0", "sliding_window_pattern is 0"},
      {"gemma3_text", "'sliding_window_pattern': -6", "sliding_window_pattern is -6"},
      {"gemma3_text", "'sliding_window': null", "sliding_window is null, expected a number of positions"},
      {"gemma2", "'sliding_window': 0", "sliding_window is 0"},
      {"gemma", "'use_bidirectional_attention': true", "use_bidirectional_attention is not supported"},
      {"iquestcoder", "'clip_qkv': 8.0", "clip_qkv is not supported, expected null"},
      {"iquestcoder", "'use_sliding_window': true", "use_sliding_window is true, which is not supported"},
      {"gemma3_text", "'use_bidirectional_attention': true", "use_bidirectional_attention is not supported"},
      {"gemma2", "'num_hidden_layers': 2, 'layer_types': ['full_attention', 'chunked_attention']",
       "layer_types[1] is \"chunked_attention\", expected full_attention or"},
      {"gemma2",
       "'num_hidden_layers': 2, 'layer_types': ['full_attention', 'full_attention', 'full_attention']",
       "layer_types is a list of 3, expected a list of 2 names (num_hidden_layers)"},
      {"olmo2", "'num_hidden_layers': 1, 'layer_types': ['sliding_attention']",
       "layer_types[0] is sliding_attention, expected full_attention: all layers are alike in "
       "Olmo2ForCausalLM"},
      {"phi3", "'sliding_window': -1", "sliding_window is -1"},
      /* ropes by kind of layer */
      {"gemma3_text", "'rope_parameters': {'rope_type': 'default', 'rope_theta': 5}",
       "rope_parameters: rope_theta is in no object for a kind of layer"},
      {"gemma3_text", "'rope_parameters': {'full_attention': 7, 'sliding_attention': {}}",
       "rope_parameters: full_attention is 7, expected an object"},
      {"gemma3_text", "'rope_parameters': {'full_attention': {'rope_type': 'linear'}}",
       "rope_parameters: full_attention: factor is missing"},
      {"gemma3_text", "'rope_parameters': {'sliding_attention': {'rope_theta': 0}}",
       "rope_parameters: sliding_attention: rope_theta is 0"},
      {"gemma3_text",
       "'rope_parameters': {'full_attention': {'rope_type': 'default'}}, 'rope_scaling': {'rope_type': "
       "'linear',"
       "'factor': 8}",
       "rope_scaling and rope_parameters are both given"},
      {"llama", "'rope_scaling': {'type': 'proportional'}", "rope type proportional is not supported"},
      {"gemma3_text", "'rope_local_base_freq': 0.5", "rope_local_base_freq is 0.5"},
      {"gemma3_text", "'head_dim': 6, 'rope_scaling': {'type': 'longrope', " FACTORS "}",
       "longrope is not supported where ropes differ by kind of layer"},
      {"gemma3_text",
       "'head_dim': 6, 'rope_parameters': {'sliding_attention': {'type': 'longrope', " FACTORS "}}",
       "longrope is not supported where ropes differ by kind of layer"},
      {"gemma3_text", "'rope_parameters': {'sliding_attention': {'partial_rotary_factor': 0.5}}",
       "partial_rotary_factor 0.5 is not supported, expected 1"},
      {"gemma2", "'num_hidden_layers': 1, 'rope_parameters': {'sliding_attention': {'rope_theta': 5}}",
       "parameters by kind of layer (sliding_attention) are not supported"},
      /* parts of heads, longrope */
      {"phi3", "'head_dim': 8, 'partial_rotary_factor': 0.4",
       "partial_rotary_factor 0.4 turns 3 of head_dim 8 numbers, expected an even number from 2"},
      {"phi3", "'head_dim': 8, 'partial_rotary_factor': 0", "partial_rotary_factor 0 turns 0 of head_dim 8"},
      {"phi3", "'partial_rotary_factor': 1.5", "partial_rotary_factor is 1.5"},
      {"granite", "'partial_rotary_factor': 0.5", "partial_rotary_factor 0.5 is not supported, expected 1"},
      {"mistral", "'partial_rotary_factor': 0.5", "partial_rotary_factor 0.5 is not supported, expected 1"},
      {"qwen2", "'partial_rotary_factor': 0.5", "partial_rotary_factor 0.5 is not supported, expected 1"},
      {"qwen3", "'partial_rotary_factor': 0.5", "partial_rotary_factor 0.5 is not supported, expected 1"},
      {"smollm3", "'partial_rotary_factor': 0.5", "partial_rotary_factor 0.5 is not supported, expected 1"},
      {"gemma2", "'partial_rotary_factor': 0.5", "partial_rotary_factor 0.5 is not supported, expected 1"},
      {"olmo2", "'partial_rotary_factor': 0.5", "partial_rotary_factor 0.5 is not supported, expected 1"},
      {"phi3", "'rope_scaling': {'type': 'linear', 'factor': 2}",
       "rope type linear is not supported, expected default or longrope"},
      {"phi3", "'rope_scaling': {'type': 'llama3'}", "rope type llama3 is not supported"},
      {"phi3", "'rope_scaling': {'type': 'dynamic', 'factor': 2}", "rope type dynamic is not supported"},
      {"llama", "'rope_scaling': {'type': 'su'}",
       "rope type su is not supported, expected default, linear, dynamic, llama3"},
      {"phi3", "'head_dim': 6, 'rope_scaling': {'type': 'longrope', 'short_factor': [1, 1, 1]}",
       "rope_scaling: long_factor is missing"},
      {"phi3",
       "'head_dim': 6, 'rope_scaling': {'type': 'longrope', 'short_factor': [1, 1], 'long_factor': [1, 1, "
       "1]}",
       "short_factor is a list of 2, expected a list of 3 numbers, one for each pair that is turned"},
      {"phi3", "'head_dim': 8, 'rope_scaling': {'type': 'longrope', " FACTORS "}",
       "short_factor is a list of 3, expected a list of 4 numbers"},
      {"phi3",
       "'head_dim': 6, 'rope_scaling': {'type': 'longrope', 'short_factor': 1, 'long_factor': [1, 1, 1]}",
       "short_factor is 1, expected a list of 3"},
      {"phi3",
       "'head_dim': 6, 'rope_scaling': {'type': 'longrope', 'short_factor': [1, 1, 1], 'long_factor': [1, 0, "
       "1]}",
       "long_factor[1] is 0, expected a number from 0.001 to 1000000"},
      {"phi3",
       "'head_dim': 6, 'rope_scaling': {'type': 'longrope', 'short_factor': [1, 1, 'x'], 'long_factor': [1, "
       "1, 1]}",
       "short_factor[2] is \"x\", expected a number"},
      {"phi3",
       "'head_dim': 6, 'rope_scaling': {'type': 'longrope', 'short_factor': [1, 1, 1e999], 'long_factor': "
       "[1, 1, 1]}",
       "short_factor[2] is 1e999, expected a number"},
      {"phi3",
       "'head_dim': 6, 'original_max_position_embeddings': 1, 'rope_scaling': {'type': 'longrope', " FACTORS
       "}",
       "original_max_position_embeddings is 1, expected at least 2 with longrope"},
      {"phi3",
       "'head_dim': 6, 'original_max_position_embeddings': 0, 'rope_scaling': {'type': 'longrope', " FACTORS
       "}",
       "original_max_position_embeddings is 0"},
      {"phi3", "'head_dim': 6, 'rope_scaling': {'type': 'longrope', 'factor': 0, " FACTORS "}",
       "factor is 0"},
      {"phi3", "'head_dim': 6, 'rope_scaling': {'type': 'longrope', 'attention_factor': 1e4, " FACTORS "}",
       "attention_factor is 1e4"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_members_refused(cases[i].model_type, cases[i].members, cases[i].message);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_left_out_is_as_in_transformers),
      cmocka_unit_test(only_what_an_architecture_has_is_taken),
      cmocka_unit_test(biases_are_asked_for_by_name),
      cmocka_unit_test(each_member_is_for_some_architectures),
      cmocka_unit_test(gemma2),
      cmocka_unit_test(smollm3),
      cmocka_unit_test(phi3),
      cmocka_unit_test(granite_and_olmo2),
      cmocka_unit_test(gemma_and_hyperclovax),
      cmocka_unit_test(contradictions_and_strange_numbers_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
