/* architectures.c - the table of architectures; see architectures.h and models.md, "Architectures".
 *
 * Called by: config.c, positions.c. Always true: meanings and defaults of members are those of
 * transformers 5.23 (models/NAME/configuration_NAME.py, modeling_NAME.py); test/data/miniatures has a model
 * for every row. */
#include "model/config/architectures.h"

#include <stdio.h>
#include <string.h>

const Architecture architectures[] = {
    {
        .architecture = "LlamaForCausalLM", /* Llama 2 and 3, SmolLM2, DeepSeek-R1-Distill-Llama */
        .model_type = "llama",
        .members = HAS_ATTENTION_BIAS | HAS_MLP_BIAS,
        .activation_key = "hidden_act",
        .vocab_size = 32000,
        .hidden = 4096,
        .intermediate = 11008,
        .n_layers = 32,
        .n_heads = 32,
        .max_position = 2048,
        .bos = 1,
        .eos = 2,
        .norm_eps = 1e-6,
        .rope_theta = 10000,
    },
    {
        .architecture = "MistralForCausalLM", /* Mistral 7B, Nemo (head_dim is not hidden / heads), Small */
        .model_type = "mistral",
        .windows = WINDOW_ALL,
        .activation_key = "hidden_act",
        .vocab_size = 32000,
        .hidden = 4096,
        .intermediate = 14336,
        .n_layers = 32,
        .n_heads = 32,
        .n_kv_heads = 8,
        .max_position = 131072,
        .window = 4096,
        .bos = 1,
        .eos = 2,
        .norm_eps = 1e-6,
        .rope_theta = 10000,
    },
    {
        .architecture = "Qwen2ForCausalLM", /* Qwen2, Qwen2.5, QwQ, DeepSeek-R1-Distill-Qwen */
        .model_type = "qwen2",
        .qkv_bias = true,
        .windows = WINDOW_BY_LAYER,
        .activation_key = "hidden_act",
        .vocab_size = 151936,
        .hidden = 4096,
        .intermediate = 22016,
        .n_layers = 32,
        .n_heads = 32,
        .n_kv_heads = 32,
        .max_position = 32768,
        .window = 4096,
        .bos = -1,
        .eos = -1,
        .norm_eps = 1e-6,
        .rope_theta = 10000,
    },
    {
        .architecture = "Qwen3ForCausalLM",
        .model_type = "qwen3",
        .qk_norm = QK_NORM_HEADS,
        .windows = WINDOW_BY_LAYER,
        .members = HAS_ATTENTION_BIAS,
        .activation_key = "hidden_act",
        .vocab_size = 151936,
        .hidden = 4096,
        .intermediate = 22016,
        .n_layers = 32,
        .n_heads = 32,
        .n_kv_heads = 32,
        .head_dim = 128,
        .max_position = 32768,
        .window = 4096,
        .bos = -1,
        .eos = -1,
        .norm_eps = 1e-6,
        .rope_theta = 10000,
    },
    {
        .architecture = "SmolLM3ForCausalLM",
        .model_type = "smollm3",
        .windows = WINDOW_NOPE,
        .members = HAS_ATTENTION_BIAS | HAS_MLP_BIAS | HAS_NOPE,
        .activation_key = "hidden_act",
        .vocab_size = 128256,
        .hidden = 2048,
        .intermediate = 11008,
        .n_layers = 36,
        .n_heads = 16,
        .n_kv_heads = 4,
        .max_position = 32768,
        .bos = 128000,
        .eos = 128001,
        .tied = true,
        .norm_eps = 1e-6,
        .rope_theta = 2000000,
    },
    {
        .architecture = "Phi3ForCausalLM", /* Phi-3, Phi-3.5, Phi-4, Phi-4-mini */
        .model_type = "phi3",
        .fused = true,
        .longrope_only = true,
        .windows = WINDOW_ALL,
        .members = HAS_PARTIAL_ROTARY,
        .activation_key = "hidden_act",
        .vocab_size = 32064,
        .hidden = 3072,
        .intermediate = 8192,
        .n_layers = 32,
        .n_heads = 32,
        .max_position = 4096,
        .original_max_position = 4096,
        .bos = 1,
        .eos = 32000,
        .norm_eps = 1e-5,
        .rope_theta = 10000,
    },
    {
        .architecture = "Gemma2ForCausalLM",
        .model_type = "gemma2",
        .norms = NORM_AROUND,
        .norm_plus_one = true,
        .scaled_embedding = true,
        .windows = WINDOW_PERIODIC,
        .members = HAS_ATTENTION_BIAS | HAS_QUERY_SCALAR | HAS_ATTENTION_CAP | HAS_LOGIT_CAP,
        .activation_key = "hidden_activation",
        .vocab_size = 256000,
        .hidden = 2304,
        .intermediate = 9216,
        .n_layers = 26,
        .n_heads = 8,
        .n_kv_heads = 4,
        .head_dim = 256,
        .max_position = 8192,
        .window = 4096,
        .period = 2,
        .bos = 2,
        .eos = 1,
        .tied = true,
        .activation = ACTIVATION_GELU_TANH,
        .norm_eps = 1e-6,
        .rope_theta = 10000,
        .query_scalar = 256,
        .attention_cap = 50,
        .logit_cap = 30,
    },
    {
        .architecture = "Gemma3ForCausalLM", /* Gemma 3 1B and 270M; the text part of the larger ones */
        .model_type = "gemma3_text",
        .norms = NORM_AROUND,
        .norm_plus_one = true,
        .qk_norm = QK_NORM_HEADS,
        .scaled_embedding = true,
        .windows = WINDOW_PERIODIC,
        .members = HAS_ATTENTION_BIAS | HAS_QUERY_SCALAR | HAS_LOGIT_CAP | HAS_LOCAL_ROPE | HAS_PATTERN,
        .activation_key = "hidden_activation",
        .vocab_size = 262208,
        .hidden = 2304,
        .intermediate = 9216,
        .n_layers = 26,
        .n_heads = 8,
        .n_kv_heads = 4,
        .head_dim = 256,
        .max_position = 131072,
        .window = 4096,
        .period = 6,
        .bos = 2,
        .eos = 1,
        .tied = true,
        .activation = ACTIVATION_GELU_TANH,
        .norm_eps = 1e-6,
        .rope_theta = 1000000,
        .local_rope_theta = 10000,
        .query_scalar = 256,
    },
    {
        .architecture = "GraniteForCausalLM", /* Granite 3 */
        .model_type = "granite",
        .members = HAS_ATTENTION_BIAS | HAS_MLP_BIAS | HAS_MULTIPLIERS,
        .activation_key = "hidden_act",
        .vocab_size = 32000,
        .hidden = 4096,
        .intermediate = 11008,
        .n_layers = 32,
        .n_heads = 32,
        .max_position = 2048,
        .bos = 1,
        .eos = 2,
        .norm_eps = 1e-6,
        .rope_theta = 10000,
    },
    {
        .architecture = "Olmo2ForCausalLM", /* OLMo-2 */
        .model_type = "olmo2",
        .norms = NORM_AFTER,
        .qk_norm = QK_NORM_WHOLE,
        .members = HAS_ATTENTION_BIAS,
        .activation_key = "hidden_act",
        .vocab_size = 50304,
        .hidden = 4096,
        .intermediate = 11008,
        .n_layers = 32,
        .n_heads = 32,
        .max_position = 2048,
        .bos = -1,
        .eos = 50279,
        .norm_eps = 1e-5,
        .rope_theta = 10000,
    },
};
const size_t n_architectures = sizeof architectures / sizeof *architectures;

static const TextWrapper wrappers[] = {
    {"Gemma3ForConditionalGeneration", "gemma3", "gemma3_text"},
    {"Mistral3ForConditionalGeneration", "mistral3", "mistral"},
};

const char *activation_name(Activation activation) {
  return activation == ACTIVATION_SILU ? "silu" : "gelu_pytorch_tanh";
}

static bool is(const char *wanted, const char *name) {
  return !wanted || strcmp(wanted, name) == 0;
}

const Architecture *architecture_find(const char *architecture, const char *model_type) {
  for (size_t i = 0; i < n_architectures; i++)
    if (is(architecture, architectures[i].architecture) && is(model_type, architectures[i].model_type))
      return &architectures[i];
  return NULL;
}

const TextWrapper *text_wrapper_find(const char *architecture, const char *model_type) {
  for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
    if (is(architecture, wrappers[i].architecture) && is(model_type, wrappers[i].model_type))
      return &wrappers[i];
  return NULL;
}

void architecture_names(char *out, size_t size) {
  size_t at = 0;
  for (size_t i = 0; i < n_architectures && at < size; i++) {
    const char *before = i == 0 ? "" : i + 1 < n_architectures ? ", " : " or ";
    at += (size_t)snprintf(out + at, size - at, "%s%s", before, architectures[i].architecture);
  }
}
