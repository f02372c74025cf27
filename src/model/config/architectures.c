/* architectures.c - the table of architectures; see architectures.h and models.md, "Architectures".
 *
 * Called by: config.c, draft.c; activation_name() by others. Always true: meanings and defaults of members
 * are those of transformers 5.23 (models/NAME/configuration_NAME.py, modeling_NAME.py); test/data/miniatures
 * has a model for every row. */
#include "model/config/architectures.h"

#include <string.h>

const Architecture architectures[] = {
    /* clang-format off */
  /* vocab_size, hidden, intermediate, layers, heads, kv heads, head_dim, positions, bos, eos, eps, theta */
  { .architecture = "LlamaForCausalLM", .model_type = "llama", /* SmolLM2, R1-Distill-Llama */
    {  32000, 4096, 11008, 32, 32,  0,   0,   2048,      1,      2, 1e-6,   10000 },
    .members = HAS_ATTENTION_BIAS | HAS_MLP_BIAS },
  { .architecture = "MistralForCausalLM", .model_type = "mistral", /* Mistral 7B, Nemo, Small */
    {  32000, 4096, 14336, 32, 32,  8,   0, 131072,      1,      2, 1e-6,   10000 },
    .windows = WINDOW_ALL, .window = 4096 },
  { .architecture = "MinistralForCausalLM", .model_type = "ministral", /* Ministral 8B 2410 */
    {  32000, 4096, 14336, 32, 32,  8,   0, 131072,      1,      2, 1e-6,   10000 },
    .windows = WINDOW_PERIODIC, .window = 4096, .period = INT32_MAX },
  { .architecture = "Ministral3ForCausalLM", .model_type = "ministral3", /* Ministral 3, Devstral 2 */
    { 131072, 4096, 14336, 34, 32,  8, 128, 262144,      1,      2, 1e-5,   10000 },
    .windows = WINDOW_ALL, .members = HAS_QUERY_SCALE },
  { .architecture = "Qwen2ForCausalLM", .model_type = "qwen2", /* Qwen2, Qwen2.5, QwQ, R1-Distill */
    { 151936, 4096, 22016, 32, 32, 32,   0,  32768,     -1,     -1, 1e-6,   10000 },
    .qkv_bias = true, .windows = WINDOW_BY_LAYER, .window = 4096, .max_window_layers = 28 },
  { .architecture = "Qwen3ForCausalLM", .model_type = "qwen3",
    { 151936, 4096, 22016, 32, 32, 32, 128,  32768,     -1,     -1, 1e-6,   10000 },
    .qk_norm = QK_NORM_HEADS, .windows = WINDOW_BY_LAYER, .window = 4096, .max_window_layers = 28,
    .members = HAS_ATTENTION_BIAS },
  { .architecture = "Qwen3_5ForCausalLM", .model_type = "qwen3_5_text", /* Qwen3.5, 3.6, 3.8 */
    { 248320, 4096, 12288, 32, 16,  4, 256,  32768,     -1,     -1, 1e-6,   10000 },
    .norm_plus_one = true, .qk_norm = QK_NORM_HEADS, .attn_gate = ATTN_GATE_IN_Q, .rotary_part = 0.25,
    .members = HAS_ATTENTION_BIAS | HAS_PARTIAL_ROTARY | HAS_DELTA },
  { .architecture = "SmolLM3ForCausalLM", .model_type = "smollm3",
    { 128256, 2048, 11008, 36, 16,  4,   0,  32768, 128000, 128001, 1e-6, 2000000 },
    .windows = WINDOW_NOPE, .members = HAS_ATTENTION_BIAS | HAS_MLP_BIAS | HAS_NOPE, .tied = true },
  { .architecture = "Phi3ForCausalLM", .model_type = "phi3", /* Phi-3, Phi-3.5, Phi-4, Phi-4-mini */
    {  32064, 3072,  8192, 32, 32,  0,   0,   4096,      1,  32000, 1e-5,   10000 },
    .fused = true, .longrope_only = true, .original_max_position = 4096,
    .windows = WINDOW_ALL, .members = HAS_PARTIAL_ROTARY },
  { .architecture = "GemmaForCausalLM", .model_type = "gemma", /* Gemma 1 and 1.1, CodeGemma */
    { 256000, 3072, 24576, 28, 16, 16, 256,   8192,      2,      1, 1e-6,   10000 },
    .norm_plus_one = true, .scaled_embedding = true, .tied = true, .gelu_is_tanh = true,
    .may_be_encoder = true, .members = HAS_ATTENTION_BIAS, .activation = ACTIVATION_GELU_TANH },
  { .architecture = "Gemma2ForCausalLM", .model_type = "gemma2",
    { 256000, 2304,  9216, 26,  8,  4, 256,   8192,      2,      1, 1e-6,   10000 },
    .norms = NORM_AROUND, .norm_plus_one = true, .scaled_embedding = true, .tied = true,
    .windows = WINDOW_PERIODIC, .window = 4096, .period = 2,
    .members = HAS_ATTENTION_BIAS | HAS_QUERY_SCALAR | HAS_ATTENTION_CAP | HAS_LOGIT_CAP,
    .query_scalar = 256, .attention_cap = 50, .logit_cap = 30,
    .activation_key = "hidden_activation", .activation = ACTIVATION_GELU_TANH },
  { .architecture = "VaultGemmaForCausalLM", .model_type = "vaultgemma", /* VaultGemma 1B */
    { 256000, 2304,  9216, 26,  8,  4, 256,   8192,      2,      1, 1e-6,   10000 },
    .norm_plus_one = true, .scaled_embedding = true, .tied = true,
    .windows = WINDOW_PERIODIC, .window = 4096, .period = 2,
    .members = HAS_ATTENTION_BIAS | HAS_QUERY_SCALAR | HAS_ATTENTION_CAP | HAS_LOGIT_CAP,
    .query_scalar = 256, .attention_cap = 50, .logit_cap = 30,
    .activation_key = "hidden_activation", .activation = ACTIVATION_GELU_TANH,
    .names = { .mlp_norm = "pre_feedforward_layernorm" } },
  { .architecture = "Gemma3ForCausalLM", .model_type = "gemma3_text", /* and the text part of 4B to 27B */
    { 262208, 2304,  9216, 26,  8,  4, 256, 131072,      2,      1, 1e-6, 1000000 },
    .norms = NORM_AROUND, .norm_plus_one = true, .scaled_embedding = true, .tied = true,
    .qk_norm = QK_NORM_HEADS,
    .windows = WINDOW_PERIODIC, .window = 4096, .period = 6,
    .members = HAS_ATTENTION_BIAS | HAS_QUERY_SCALAR | HAS_LOGIT_CAP | HAS_LOCAL_ROPE | HAS_LOCAL_THETA,
    .period_key = "sliding_window_pattern",
    .query_scalar = 256, .local_rope_theta = 10000,
    .activation_key = "hidden_activation", .activation = ACTIVATION_GELU_TANH },
  { .architecture = "Gemma3nForCausalLM", .model_type = "gemma3n_text", /* and the text part of E2B and E4B */
    { 262400, 2048, 16384, 35,  8,  2, 256,  32768,      2,      1, 1e-6, 1000000 },
    .norms = NORM_AROUND, .scaled_embedding = true, .tied = true, .v_norm = true, .altup = true,
    .qk_norm = QK_NORM_HEADS, .windows = WINDOW_PERIODIC, .window = 512, .period = 5,
    .members = HAS_ATTENTION_BIAS | HAS_LOGIT_CAP | HAS_LOCAL_ROPE | HAS_LOCAL_THETA,
    .local_rope_theta = 10000, .attention_scale = 1, .logit_cap = 30,
    .per_layer_width = 256, .per_layer_vocab = 262144, .n_kv_shared = 15,
    .activation_key = "hidden_activation", .activation = ACTIVATION_GELU_TANH },
  { .architecture = "Gemma4ForCausalLM", .model_type = "gemma4_text", /* and the text part of E2B to 31B */
    { 262144, 2304,  9216, 30,  8,  4, 256, 131072,      2,      1, 1e-6, 1000000 },
    .norms = NORM_AROUND, .scaled_embedding = true, .tied = true, .v_norm = true, .layer_scalar = true,
    .qk_norm = QK_NORM_HEADS,
    .windows = WINDOW_PERIODIC, .window = 512, .period = 6, .last_full = true,
    .members = HAS_ATTENTION_BIAS | HAS_LOGIT_CAP | HAS_LOCAL_ROPE | HAS_LAYER_SIZES,
    .proportional_rope = true, .rotary_part = 0.25, .local_rope_theta = 10000,
    .global_head_dim = 512, .per_layer_width = 256,
    .attention_scale = 1, .experts = &experts_of_gemma4_moe,
    .activation_key = "hidden_activation", .activation = ACTIVATION_GELU_TANH },
  { .architecture = "Gemma4UnifiedForCausalLM", .model_type = "gemma4_unified_text", /* text part of 12B */
    { 262144, 2304,  9216, 30,  8,  4, 256, 262144,      2,      1, 1e-6, 1000000 },
    .norms = NORM_AROUND, .scaled_embedding = true, .tied = true, .v_norm = true, .layer_scalar = true,
    .qk_norm = QK_NORM_HEADS, .windows = WINDOW_PERIODIC, .window = 1024, .period = 6, .last_full = true,
    .members = HAS_ATTENTION_BIAS | HAS_LOGIT_CAP | HAS_LOCAL_ROPE | HAS_LAYER_SIZES,
    .proportional_rope = true, .rotary_part = 0.25, .local_rope_theta = 10000,
    .global_head_dim = 512, .attention_scale = 1,
    .activation_key = "hidden_activation", .activation = ACTIVATION_GELU_TANH },
  { .architecture = "GraniteForCausalLM", .model_type = "granite", /* Granite 3 */
    {  32000, 4096, 11008, 32, 32,  0,   0,   2048,      1,      2, 1e-6,   10000 },
    .members = HAS_ATTENTION_BIAS | HAS_MLP_BIAS | HAS_MULTIPLIERS },
  { .architecture = "MiniCPMForCausalLM", .model_type = "minicpm", /* MiniCPM 1B, 2B; MiniCPM4, 4.1 */
    {  32000, 4096, 11008, 32, 32,  0,   0,   2048,      1,      2, 1e-6,   10000 },
    .depth_scale = true, .multipliers = { 1, 0, 1, 1 }, .members = HAS_ATTENTION_BIAS, .tied = true },
  { .architecture = "HyperCLOVAXForCausalLM", .model_type = "hyperclovax", /* HyperCLOVA X SEED Think 14B */
    {  32000, 4096, 11008, 32, 32,  0,   0,   2048,      1,      2, 1e-6,   10000 },
    .norms = NORM_AROUND,
    .members = HAS_ATTENTION_BIAS | HAS_MLP_BIAS | HAS_MULTIPLIERS | HAS_POST_NORM,
    .names = { .attn_post_norm = "post_norm1", .mlp_norm = "post_attention_layernorm",
               .mlp_post_norm = "post_norm2" } },
  { .architecture = "Olmo2ForCausalLM", .model_type = "olmo2", /* OLMo-2 */
    {  50304, 4096, 11008, 32, 32,  0,   0,   2048,     -1,  50279, 1e-5,   10000 },
    .norms = NORM_AFTER, .qk_norm = QK_NORM_WHOLE, .members = HAS_ATTENTION_BIAS },
  { .architecture = "Olmo3ForCausalLM", .model_type = "olmo3", /* Olmo 3, 3.1 */
    {  50304, 4096, 11008, 32, 32,  0,   0,   2048,     -1,  50279, 1e-5,  500000 },
    .norms = NORM_AFTER, .qk_norm = QK_NORM_WHOLE, .members = HAS_ATTENTION_BIAS | HAS_LOCAL_ROPE,
    .windows = WINDOW_PERIODIC, .window = 4096, .period = 4, .local_rope_theta = 500000 },
  { .architecture = "OlmoHybridForCausalLM", .model_type = "olmo_hybrid", /* Olmo Hybrid 7B */
    { 100352, 3840, 11008, 32, 30,  0,   0,  65536,     -1, 100257, 1e-6,   10000 },
    .norms = NORM_AFTER, .qk_norm = QK_NORM_WHOLE, .delta_apart = true,
    .members = HAS_ATTENTION_BIAS | HAS_DELTA,
    .names = { .attn_norm = "attention_layer_norm", .mlp_norm = "feedforward_layer_norm" } },
  { .architecture = "CohereForCausalLM", .model_type = "cohere", /* Command R, Aya 23, Aya Expanse */
    { 256000, 8192, 22528, 40, 64,  0,   0,   8192,      5, 255001, 1e-5,  500000 },
    .centred = true, .parallel = true, .logit_scale = 0.0625, .neighbours = true, .tied = true,
    .eps_key = "layer_norm_eps", .length_key = "model_max_length",
    .members = HAS_ATTENTION_BIAS | HAS_QK_NORM },
  { .architecture = "Cohere2ForCausalLM", .model_type = "cohere2", /* Command R7B, Command A */
    { 256000, 8192, 22528, 40, 64,  0,   0,   8192,      5, 255001, 1e-5,   10000 },
    .centred = true, .parallel = true, .logit_scale = 0.0625, .neighbours = true, .tied = true,
    .windows = WINDOW_AND_NOPE, .window = 4096, .period = 4, .period_key = "sliding_window_pattern",
    .eps_key = "layer_norm_eps", .length_key = "model_max_length", .members = HAS_ATTENTION_BIAS },
  { .architecture = "Cohere2MoeForCausalLM", .model_type = "cohere2_moe", /* Command A+ */
    { 256000, 8192, 22528, 40, 64,  0, 128,   8192,      5, 255001, 1e-5,   10000 },
    .centred = true, .may_be_rms = true, .parallel = true, .logit_scale = 0.0625, .neighbours = true,
    .tied = true, .dense_prefix = true, .dense_key = "prefix_dense_intermediate_size",
    .windows = WINDOW_AND_NOPE, .window = 4096, .period = 4, .period_key = "sliding_window_pattern",
    .eps_key = "layer_norm_eps", .members = HAS_ATTENTION_BIAS, .experts = &experts_of_cohere2_moe },
  { .architecture = "PhiMoEForCausalLM", .model_type = "phimoe", /* Phi-3.5-MoE, Phi-mini-MoE, Phi-tiny-MoE */
    {  32064, 4096,  6400, 32, 32,  8,   0, 131072,      1,      2, 1e-5, 1000000 },
    .other_name = "PhimoeForCausalLM", .centred = true, .norm_bias = true, .head_bias = true,
    .longrope_only = true, .mscales = true, .windows = WINDOW_ALL,
    .members = HAS_ATTENTION_BIAS, .experts = &experts_of_phimoe },
  { .architecture = "InternLM3ForCausalLM", .model_type = "internlm3", /* InternLM3 8B */
    { 128512, 4096, 10240, 48, 32,  2, 128,  32768,      1,      2, 1e-5,   10000 },
    .members = HAS_ATTENTION_BIAS | HAS_MLP_BIAS },
  { .architecture = "IQuestCoderForCausalLM", .model_type = "iquestcoder", /* IQuest-Coder 7B to 40B */
    {  76800, 5120, 27648, 80, 40,  8, 128, 131072,      1,      2, 1e-5,   10000 },
    .members = HAS_ATTENTION_BIAS | HAS_MLP_BIAS | HAS_OFF_ONLY },
  { .architecture = "HeliumForCausalLM", .model_type = "helium", /* Helium 1 2B */
    {  48000, 2560,  7040, 24, 20, 20, 128,   4096,      1,      2, 1e-8,  100000 },
    .neighbours = true, .members = HAS_QKV_BIAS | HAS_MLP_BIAS },
  { .architecture = "Llama4ForCausalLM", .model_type = "llama4_text", /* and the text part of Llama 4 */
    { 202048, 5120, 16384, 48, 40,  8, 128, 131072,      1,      2, 1e-5,  500000 },
    .qk_norm = QK_NORM_HEADS, .qk_norm_plain = true, .qk_norm_after_rope = true, .neighbours = true,
    .chunked = true, .members = HAS_ATTENTION_BIAS | HAS_NOPE, .intermediate_key = "intermediate_size_mlp",
    .names = { .gate = "feed_forward.gate_proj", .up = "feed_forward.up_proj",
               .down = "feed_forward.down_proj" },
    .experts = &experts_of_llama4 },
  { .architecture = "CwmForCausalLM", .model_type = "cwm", /* Code World Model 32B */
    { 128256, 6144, 21504, 64, 48,  8, 128, 131072, 128000, 128001, 1e-5, 1000000 },
    .more_eos = { 128008, 128009 }, .windows = WINDOW_AFTER_FULL, .window = 8192, .period = 4,
    .members = HAS_MLP_BIAS | HAS_OWN_ROPE },
  { .architecture = "SeedOssForCausalLM", .model_type = "seed_oss", /* Seed-OSS 36B */
    { 155136, 4096, 27648, 64, 80,  8, 128, 524288,      0,      2, 1e-6,   10000 },
    .qkv_bias = true, .members = HAS_QKV_BIAS | HAS_OUT_BIAS | HAS_MLP_BIAS },
  { .architecture = "HunYuanDenseV1ForCausalLM", .model_type = "hunyuan_v1_dense", /* Hunyuan 0.5B to 7B */
    { 290943, 4096, 11008, 32, 32,  0,   0,   2048,      1,      2, 1e-5,   10000 },
    .qk_norm = QK_NORM_HEADS, .qk_norm_after_rope = true, .members = HAS_ATTENTION_BIAS | HAS_ALPHA,
    .names = { .q_norm = "self_attn.query_layernorm", .k_norm = "self_attn.key_layernorm" } },
  { .architecture = "GlmForCausalLM", .model_type = "glm", /* GLM-4 9B, GLM-Edge */
    { 151552, 4096, 13696, 40, 32,  2, 128, 131072,     -1, 151329, 1.5625e-7, 10000 },
    .more_eos = { 151336, 151338 }, .qkv_bias = true, .fused_gate_up = true, .neighbours = true,
    .rotary_part = 0.5, .members = HAS_QKV_BIAS | HAS_PARTIAL_ROTARY },
  { .architecture = "Glm4ForCausalLM", .model_type = "glm4", /* GLM-4-0414, GLM-Z1 */
    { 151552, 4096, 13696, 40, 32,  2, 128, 131072,     -1, 151329, 1.5625e-7, 10000 },
    .more_eos = { 151336, 151338 }, .qkv_bias = true, .fused_gate_up = true, .neighbours = true,
    .rotary_part = 0.5, .members = HAS_QKV_BIAS | HAS_PARTIAL_ROTARY, .norms = NORM_AROUND,
    .names = { .attn_post_norm = "post_self_attn_layernorm", .mlp_norm = "post_attention_layernorm",
               .mlp_post_norm = "post_mlp_layernorm" } },
  { .architecture = "Ernie4_5ForCausalLM", .model_type = "ernie4_5", /* ERNIE 4.5 0.3B */
    { 103424, 1024,  3072, 18, 16,  2, 128, 131072,      1,      2, 1e-5,  500000 },
    .neighbours = true, .members = HAS_USE_BIAS, .tied = true },
  { .architecture = "Exaone4ForCausalLM", .model_type = "exaone4", /* EXAONE 4.0 1.2B, 32B */
    { 102400, 4096, 16384, 32, 32, 32,   0,   2048,      0,      2, 1e-5,   10000 },
    .norms = NORM_AFTER, .qk_norm = QK_NORM_HEADS, .windows = WINDOW_OR_NOPE, .window = 4096, .period = 4,
    .period_key = "sliding_window_pattern" },
  { .architecture = "GraniteMoeHybridForCausalLM", .model_type = "granitemoehybrid", /* Granite 4.0, 4.0 H */
    {  32000, 4096,  1024, 32, 32,  0,   0,   2048,      1,      2, 1e-6,   10000 },
    .intermediate_key = "shared_intermediate_size", .fused_gate_up = true,
    .members = HAS_ATTENTION_BIAS | HAS_MULTIPLIERS | HAS_HYBRID_LAYERS,
    .names = { .gate_up = "shared_mlp.input_linear", .down = "shared_mlp.output_linear" },
    .experts = &experts_of_granite_hybrid },
  { .architecture = "BambaForCausalLM", .model_type = "bamba", /* Bamba 9B */
    { 128000, 4096, 14336, 32, 32,  8,   0, 262144,      1,      2, 1e-5,   10000 },
    .rotary_part = 0.5, .attn_indices = true,
    .members = HAS_ATTENTION_BIAS | HAS_MLP_BIAS | HAS_PARTIAL_ROTARY | HAS_HYBRID_LAYERS,
    .names = { .mlp_norm = "pre_ff_layernorm", .final_norm = "final_layernorm",
               .gate = "feed_forward.gate_proj", .up = "feed_forward.up_proj",
               .down = "feed_forward.down_proj" } },
  { .architecture = "FalconH1ForCausalLM", .model_type = "falcon_h1", /* Falcon-H1 0.5B to 34B */
    { 128000, 4096, 14336, 32, 32,  8,   0,   8192,      1,      2, 1e-5,   10000 },
    .mamba_beside = true,
    .names = { .mlp_norm = "pre_ff_layernorm", .final_norm = "final_layernorm",
               .gate = "feed_forward.gate_proj", .up = "feed_forward.up_proj",
               .down = "feed_forward.down_proj" } },
  { .architecture = "GraniteSWAForCausalLM", .model_type = "granite_swa", /* Granite Swash */
    { 100352, 2560,  8192, 24, 20,  4,   0,   8192, 100257, 100257, 1e-5,   10000 },
    .windows = WINDOW_AFTER_FULL, .window = 128, .period = 4, .attn_sinks = true, .tied = true,
    .members = HAS_ATTENTION_BIAS | HAS_MLP_BIAS | HAS_MULTIPLIERS | HAS_LAYER_THETA },
  { .architecture = "Lfm2ForCausalLM", .model_type = "lfm2", /* LFM2, LFM2.5 */
    {  65536, 2560, 12288, 32, 32,  8,   0, 128000,      1,      2, 1e-5, 1000000 },
    .qk_norm = QK_NORM_HEADS, .tied = true, .eps_key = "norm_eps",
    .members = HAS_SHORT_CONV | HAS_BLOCK_WIDTH,
    .names = { .attn_norm = "operator_norm", .mlp_norm = "ffn_norm", .final_norm = "embedding_norm",
               .q_norm = "self_attn.q_layernorm", .k_norm = "self_attn.k_layernorm",
               .o = "self_attn.out_proj",
               .gate = "feed_forward.w1", .up = "feed_forward.w3", .down = "feed_forward.w2" } },
  { .architecture = "Lfm3ForCausalLM", .model_type = "lfm3", /* LFM3 1.7B */
    { 128000, 2048,  7680, 24, 16,  4, 128, 128000, 124894, 124900, 1e-5, 1000000 },
    .norms = NORM_AROUND, .qk_norm = QK_NORM_HEADS, .attn_gate = ATTN_GATE_HEADS, .tied = true,
    .eps_key = "norm_eps", .proportional_rope = true, .rotary_part = 0.5, .local_rope_theta = 10000,
    .window = 256, .members = HAS_SHORT_CONV | HAS_SANDWICH | HAS_ATTENTION_BIAS | HAS_LOCAL_ROPE,
    .names = { .attn_norm = "operator_norm", .attn_post_norm = "post_operator_norm", .mlp_norm = "ffn_norm",
               .mlp_post_norm = "post_ffn_norm", .final_norm = "embedding_norm",
               .attn_gate = "self_attn.g_proj",
               .gate = "feed_forward.w1", .up = "feed_forward.w3", .down = "feed_forward.w2" } },
  { .architecture = "Qwen2MoeForCausalLM", .model_type = "qwen2_moe", /* Qwen1.5-MoE, Qwen2-57B-A14B */
    { 151936, 2048,  5632, 24, 16, 16,   0,  32768,     -1,     -1, 1e-6,   10000 },
    .qkv_bias = true, .experts = &experts_of_qwen2_moe },
  { .architecture = "Qwen3MoeForCausalLM", .model_type = "qwen3_moe", /* Qwen3-30B-A3B, Qwen3-Coder */
    { 151936, 2048,  6144, 24, 32,  4,   0,  32768,     -1,     -1, 1e-6,   10000 },
    .qk_norm = QK_NORM_HEADS, .members = HAS_ATTENTION_BIAS, .experts = &experts_of_qwen3_moe },
  { .architecture = "Qwen3_5MoeForCausalLM", .model_type = "qwen3_5_moe_text", /* Qwen3.5, 3.6 A3B */
    { 248320, 2048,   512, 40, 16,  2, 256,  32768,     -1,     -1, 1e-6,   10000 },
    .norm_plus_one = true, .qk_norm = QK_NORM_HEADS, .attn_gate = ATTN_GATE_IN_Q, .rotary_part = 0.25,
    .members = HAS_ATTENTION_BIAS | HAS_PARTIAL_ROTARY | HAS_DELTA, .experts = &experts_of_qwen3_5_moe },
  { .architecture = "Qwen4ExpForCausalLM", .model_type = "qwen4_exp_text", /* Qwen3.8-Flash-Next */
    { 248320, 2048,   512, 40, 16,  2, 256,  32768,     -1,     -1, 1e-6,   10000 },
    .norm_plus_one = true, .qk_norm = QK_NORM_HEADS, .attn_gate = ATTN_GATE_IN_Q, .streams = true,
    .members = HAS_ATTENTION_BIAS | HAS_PARTIAL_ROTARY | HAS_DELTA, .experts = &experts_of_qwen4_exp },
  { .architecture = "Qwen3NextForCausalLM", .model_type = "qwen3_next", /* Qwen3-Next, Qwen3-Coder-Next */
    { 151936, 2048,  5632, 48, 16,  2, 256,  32768,     -1,     -1, 1e-6,   10000 },
    .norm_plus_one = true, .qk_norm = QK_NORM_HEADS, .attn_gate = ATTN_GATE_IN_Q, .rotary_part = 0.25,
    .members = HAS_ATTENTION_BIAS | HAS_PARTIAL_ROTARY | HAS_DELTA | HAS_INTERLEAVED_DELTA,
    .experts = &experts_of_qwen3_next },
  { .architecture = "MixtralForCausalLM", .model_type = "mixtral",
    {  32000, 4096, 14336, 32, 32,  8,   0, 131072,      1,      2, 1e-5, 1000000 },
    .windows = WINDOW_ALL, .experts = &experts_of_mixtral },
  { .architecture = "GptOssForCausalLM", .model_type = "gpt_oss", /* gpt-oss-20b, 120b */
    { 201088, 2880,  2880, 36, 64,  8,  64, 131072,     -1,     -1, 1e-5,  150000 },
    .o_bias = true, .attn_sinks = true, .windows = WINDOW_PERIODIC, .window = 128, .period = 2,
    .members = HAS_ATTENTION_BIAS | HAS_OWN_ROPE, .experts = &experts_of_gpt_oss },
  { .architecture = "Glm4MoeForCausalLM", .model_type = "glm4_moe", /* GLM-4.5, 4.5-Air, 4.6, 4.7 */
    { 151552, 4096, 10944, 46, 96,  8,   0, 131072,     -1,     -1, 1e-5,   10000 },
    .qk_norm = QK_NORM_HEADS, .rotary_part = 0.5,
    .members = HAS_QKV_BIAS | HAS_PARTIAL_ROTARY | HAS_QK_NORM, .experts = &experts_of_glm4_moe },
  { .architecture = "GraniteMoeForCausalLM", .model_type = "granitemoe", /* Granite 3.1 A400M, A800M */
    {  32000, 4096, 11008, 32, 32,  0,   0,   2048,      1,      2, 1e-6,   10000 },
    .members = HAS_ATTENTION_BIAS | HAS_MULTIPLIERS, .experts = &experts_of_granite_moe },
  { .architecture = "OlmoeForCausalLM", .model_type = "olmoe", /* OLMoE-1B-7B */
    {  50304, 2048,  2048, 16, 16,  0,   0,   4096,     -1,  50279, 1e-5,   10000 },
    .qk_norm = QK_NORM_WHOLE, .members = HAS_ATTENTION_BIAS, .experts = &experts_of_olmoe },
  { .architecture = "Ernie4_5_MoeForCausalLM", .model_type = "ernie4_5_moe", /* ERNIE 4.5 21B-A3B */
    { 103424, 2560, 12288, 28, 20,  4,   0, 131072,      1,      2, 1e-5,  500000 },
    .neighbours = true, .members = HAS_USE_BIAS, .tied = true, .experts = &experts_of_ernie_moe },
  { .architecture = "Lfm2MoeForCausalLM", .model_type = "lfm2_moe", /* LFM2-8B-A1B */
    {  65536, 2048,  7168, 32, 32,  8,   0, 128000,      1,      2, 1e-5, 1000000 },
    .qk_norm = QK_NORM_HEADS, .tied = true, .eps_key = "norm_eps", .members = HAS_SHORT_CONV,
    .names = { .attn_norm = "operator_norm", .mlp_norm = "ffn_norm", .final_norm = "embedding_norm",
               .q_norm = "self_attn.q_layernorm", .k_norm = "self_attn.k_layernorm",
               .o = "self_attn.out_proj",
               .gate = "feed_forward.w1", .up = "feed_forward.w3", .down = "feed_forward.w2" },
    .experts = &experts_of_lfm2_moe },
  { .model_type = "qwen2_vl_text", /* Qwen2-VL */
    { 152064, 8192, 29568, 80, 64,  8,   0,  32768, 151643, 151645, 1e-5, 1000000 },
    .mrope = true, .qkv_bias = true,
    .windows = WINDOW_BY_LAYER, .window = 4096, .max_window_layers = 80 },
  { .model_type = "qwen2_5_vl_text", /* Qwen2.5-VL */
    { 152064, 8192, 29568, 80, 64,  8,   0,  32768, 151643, 151645, 1e-5, 1000000 },
    .mrope = true, .qkv_bias = true,
    .windows = WINDOW_BY_LAYER, .window = 4096, .max_window_layers = 80 },
  { .model_type = "qwen2_5_omni_text", /* Qwen2.5-Omni's thinker */
    { 152064, 3584, 18944, 28, 28,  4,   0,  32768,     -1,     -1, 1e-6, 1000000 },
    .qkv_bias = true, .windows = WINDOW_BY_LAYER, .window = 32768, .max_window_layers = 28 },
  { .model_type = "qwen3_vl_text", /* Qwen3-VL 2B to 32B */
    { 151936, 4096, 22016, 32, 32, 32, 128, 128000,     -1,     -1, 1e-6,  500000 },
    .qk_norm = QK_NORM_HEADS, .members = HAS_ATTENTION_BIAS },
  { .model_type = "qwen3_vl_moe_text", /* Qwen3-VL 30B-A3B, 235B-A22B */
    { 151936, 2048,  5632, 24, 16, 16,   0, 128000,     -1,     -1, 1e-6,  500000 },
    .qk_norm = QK_NORM_HEADS, .members = HAS_ATTENTION_BIAS, .experts = &experts_of_qwen3_vl_moe },
  { .model_type = "qwen3_omni_moe_text", /* Qwen3-Omni's thinker */
    {   3584, 2048, 18944, 28, 28,  4,   0,  32768,     -1,     -1, 1e-6, 1000000 },
    .qk_norm = QK_NORM_HEADS, .members = HAS_ATTENTION_BIAS, .experts = &experts_of_qwen3_omni_moe },
  { .model_type = "glm4v_text", /* GLM-4.1V, 4.6V-Flash */
    { 151552, 4096, 13696, 40, 32,  2,   0,  32768,     -1,     -1, 1e-5,   10000 },
    .qkv_bias = true, .fused_gate_up = true, .neighbours = true,
    .members = HAS_PARTIAL_ROTARY, .norms = NORM_AROUND,
    .names = { .attn_post_norm = "post_self_attn_layernorm", .mlp_norm = "post_attention_layernorm",
               .mlp_post_norm = "post_mlp_layernorm" } },
  { .model_type = "glm4v_moe_text", /* GLM-4.5V, 4.6V */
    { 151424, 4096, 10944, 46, 96,  8,   0,  65536,     -1,     -1, 1e-5,   10000 },
    .qkv_bias = true, .rotary_part = 0.5, .members = HAS_QKV_BIAS | HAS_PARTIAL_ROTARY,
    .experts = &experts_of_glm4_moe },
  { .model_type = "glm_ocr_text", /* GLM-OCR */
    {  59392, 1024,  4096, 16, 16,  8,   0, 131072,     -1,     -1, 1e-5,   10000 },
    .fused_gate_up = true, .neighbours = true, .members = HAS_PARTIAL_ROTARY, .norms = NORM_AROUND,
    .names = { .attn_post_norm = "post_self_attn_layernorm", .mlp_norm = "post_attention_layernorm",
               .mlp_post_norm = "post_mlp_layernorm" } },
  { .model_type = "hunyuan_vl_text", /* HunyuanOCR */
    { 290943, 4096, 11008, 32, 32,  0,   0,   2048,      1,      2, 1e-5,   10000 },
    .qk_norm = QK_NORM_HEADS, .qk_norm_after_rope = true, .xdrope = true, .tied = true,
    .head_dim_key = "attention_head_dim",
    .members = HAS_ATTENTION_BIAS | HAS_ALPHA,
    .names = { .q_norm = "self_attn.query_layernorm", .k_norm = "self_attn.key_layernorm" } },
  { .model_type = "paddleocr_vl_text", /* PaddleOCR-VL */
    { 103424, 1024,  3072, 18, 16,  2, 128, 131072,      1,      2, 1e-5,   10000 },
    .members = HAS_USE_BIAS, .tied = true },
  { .model_type = "granite4_vision_text", /* Granite 4 Vision */
    {  32000, 4096, 11008, 32, 32,  0,   0,   2048,      1,      2, 1e-6,   10000 },
    .members = HAS_ATTENTION_BIAS | HAS_MLP_BIAS | HAS_MULTIPLIERS },
  { .model_type = "granite_docling_text", /* Granite Docling */
    { 133800, 1024,  2048, 28, 16,  4,   0,  32768, 100257, 100257, 1e-5,   10000 },
    .members = HAS_ATTENTION_BIAS | HAS_MLP_BIAS | HAS_MULTIPLIERS, .tied = true,
    .multipliers = { 12, 0.015625, 0.263, 4 } },
  { .architecture = "MiniMaxM2ForCausalLM", .model_type = "minimax_m2", /* MiniMax-M2 to M2.7 */
    { 200064, 3072,  1536, 62, 48,  8, 128, 196608, 200034, 200020, 1e-6, 5000000 },
    .qk_norm = QK_NORM_WHOLE, .members = HAS_ROTARY_DIM, .experts = &experts_of_minimax_m2 },
  { .architecture = "MellumForCausalLM", .model_type = "mellum", /* Mellum2-12B-A2.5B */
    {  98304, 2304,  7168, 28, 32,  4, 128, 131072,     -1,     -1, 1e-6,  500000 },
    .qk_norm = QK_NORM_HEADS, .windows = WINDOW_PERIODIC, .window = 1024, .period = 1,
    .members = HAS_ATTENTION_BIAS | HAS_LOCAL_ROPE, .ropes_in_objects = true, .local_rope_theta = 10000,
    .experts = &experts_of_mellum },
  { .architecture = "Dots1ForCausalLM", .model_type = "dots1", /* dots.llm1 */
    { 152064, 4608, 10944, 62, 32, 32,   0,   2048,     -1,     -1, 1e-6,   10000 },
    .qk_norm = QK_NORM_HEADS, .windows = WINDOW_FROM_LAYER, .window = 4096, .max_window_layers = 62,
    .members = HAS_ATTENTION_BIAS, .experts = &experts_of_dots1 },
  { .architecture = "HunYuanMoEV1ForCausalLM", .model_type = "hunyuan_v1_moe", /* Hunyuan-A13B */
    { 290943, 4096, 11008, 32, 32,  0,   0,   2048,      1,      2, 1e-5,   10000 },
    .qk_norm = QK_NORM_HEADS, .qk_norm_after_rope = true, .members = HAS_ATTENTION_BIAS | HAS_ALPHA,
    .names = { .q_norm = "self_attn.query_layernorm", .k_norm = "self_attn.key_layernorm" },
    .experts = &experts_of_hunyuan_moe },
  { .architecture = "ExaoneMoeForCausalLM", .model_type = "exaone_moe", /* K-EXAONE-236B-A23B */
    { 102400, 4096, 16384, 32, 32, 32,   0,   2048,      1,     53, 1e-5,   10000 },
    .qk_norm = QK_NORM_HEADS, .windows = WINDOW_OR_NOPE, .window = 4096, .period = 4,
    .period_key = "sliding_window_pattern", .experts = &experts_of_exaone_moe },
  { .architecture = "SolarOpenForCausalLM", .model_type = "solar_open", /* Solar-Open-100B */
    { 196608, 4096, 10240, 48, 64,  8, 128, 131072,     -1,     -1, 1e-5, 1000000 },
    .members = HAS_QKV_BIAS, .experts = &experts_of_solar_open },
  { .architecture = "HYV3ForCausalLM", .model_type = "hy_v3", /* Hy3 */
    { 120832, 4096, 13312, 80, 64,  8, 128, 131072,     -1,     -1, 1e-5, 11158840 },
    .qk_norm = QK_NORM_HEADS, .members = HAS_ATTENTION_BIAS | HAS_MLP_BIAS, .experts = &experts_of_hy_v3 },
  { .architecture = "GraniteMoeSharedForCausalLM", .model_type = "granitemoeshared",
    {  32000, 4096, 11008, 32, 32,  0,   0,   2048,      1,      2, 1e-6,   10000 },
    .fused_gate_up = true, .members = HAS_ATTENTION_BIAS | HAS_MULTIPLIERS,
    .names = { .gate_up = "shared_mlp.input_linear", .down = "shared_mlp.output_linear" },
    .experts = &experts_of_granite_moe_shared },
  { .architecture = "GraniteMoeSWAForCausalLM", .model_type = "granitemoe_swa", /* Granite Swash A600M */
    {  32000, 4096, 11008, 32, 32,  0,   0,   2048,      1,      2, 1e-6,   10000 },
    .windows = WINDOW_AFTER_FULL, .window = 128, .period = 4, .attn_sinks = true, .fused_gate_up = true,
    .members = HAS_ATTENTION_BIAS | HAS_MULTIPLIERS | HAS_LAYER_THETA,
    .names = { .gate_up = "shared_mlp.input_linear", .down = "shared_mlp.output_linear" },
    .experts = &experts_of_granite_moe_swa },
  { .architecture = "AfmoeForCausalLM", .model_type = "afmoe", /* Trinity */
    { 200192, 2048,  6144, 32, 16,  0, 128,  16384,     -1,     -1, 1e-5,   10000 },
    .norms = NORM_AROUND, .qk_norm = QK_NORM_HEADS, .attn_gate = ATTN_GATE_NUMBERS,
    .windows = WINDOW_AND_NOPE, .window = 1024, .period = 4, .period_key = "global_attn_every_n_layers",
    .members = HAS_ATTENTION_BIAS | HAS_MUP,
    .names = { .mlp_norm = "pre_mlp_layernorm", .mlp_post_norm = "post_mlp_layernorm" },
    .experts = &experts_of_afmoe },
  { .architecture = "FlexOlmoForCausalLM", .model_type = "flex_olmo", /* FlexOlmo-7x7B */
    { 100352, 4096, 11008, 32, 32,  0,   0,   4096,     -1, 100257, 1e-6,  500000 },
    .norms = NORM_AFTER, .qk_norm = QK_NORM_WHOLE, .members = HAS_ATTENTION_BIAS,
    .experts = &experts_of_flex_olmo },
  { .architecture = "Kolibri1ForCausalLM", .model_type = "kolibri1", /* Kolibri-1 */
    { 128000, 2560,   512, 50, 48,  4, 128, 262144,     -1,     -1, 1e-6,   10000 },
    .norms = NORM_AROUND, .qk_norm = QK_NORM_HEADS, .windows = WINDOW_OR_NOPE, .window = 513, .period = 5,
    .names = { .attn_post_norm = "post_attn_norm", .mlp_norm = "post_attention_layernorm",
               .mlp_post_norm = "post_ffn_norm" },
    .experts = &experts_of_kolibri1 },
  { .architecture = "ArceeForCausalLM", .model_type = "arcee", /* AFM 4.5B */
    {  32000, 2560, 18432, 32, 32,  0,   0,   4096, 128000, 128001, 1e-5,   10000 },
    .ungated = true, .activation = ACTIVATION_RELU, .members = HAS_ATTENTION_BIAS | HAS_MLP_BIAS },
  { .architecture = "ApertusForCausalLM", .model_type = "apertus", /* Apertus 8B, 70B */
    { 131072, 4096, 14336, 32, 32,  0,   0,  65536,      1,      2, 1e-5, 12000000 },
    .ungated = true, .activation = ACTIVATION_XIELU, .qk_norm = QK_NORM_HEADS,
    .members = HAS_ATTENTION_BIAS | HAS_OWN_ROPE,
    .names = { .attn_norm = "attention_layernorm", .mlp_norm = "feedforward_layernorm" } },
  { .architecture = "NemotronHForCausalLM", .model_type = "nemotron_h", /* Nemotron-H, Nano 2, 3 and 3.5 */
    { 131072, 4096, 21504,  4, 32,  8, 128,   4096,      1,      2, 1e-5,   10000 },
    .ungated = true, .activation = ACTIVATION_RELU, .single_blocks = true, .activation_key = "mlp_hidden_act",
    .eps_key = "layer_norm_epsilon", .members = HAS_MLP_BIAS,
    .names = { .block = "mixer", .attn_norm = "norm", .mlp_norm = "norm", .final_norm = "norm_f",
               .embedding = "embeddings", .body = "backbone." },
    .experts = &experts_of_nemotron_moe },
  { .architecture = "DeepseekV2ForCausalLM", .model_type = "deepseek_v2", /* V2-Lite, Coder-V2-Lite */
    { 102400, 4096, 11008, 32, 32,  0,   0,   2048,      1,      2, 1e-6,   10000 },
    .latent_attention = true, .latent = { 512, 1536, 128, 64, 128 }, .neighbours = true,
    .members = HAS_ATTENTION_BIAS | HAS_MLP_BIAS, .experts = &experts_of_deepseek_v2 },
  { .architecture = "DeepseekV3ForCausalLM", .model_type = "deepseek_v3", /* V3, R1, Moonlight, Kimi K2 */
    { 129280, 7168, 18432, 61, 128, 0,   0,   4096,      0,      1, 1e-6,   10000 },
    .latent_attention = true, .latent = { 512, 1536, 128, 64, 128 }, .neighbours = true,
    .other_type = "kimi_k2", .members = HAS_ATTENTION_BIAS, .experts = &experts_of_deepseek_v3 },
  { .architecture = "AXK1ForCausalLM", .model_type = "axk1", /* A.X-K1 */
    { 163840, 7168, 18432, 61, 64,  0,   0,  32768, 163691, 163691, 1e-6,  10000 },
    .latent_attention = true, .latent = { 512, 1536, 128, 64, 128 }, .neighbours = true,
    .other_type = "AXK1", .members = HAS_ATTENTION_BIAS,
    .names = { .mlp_post_norm = "post_mlp_layernorm" }, .experts = &experts_of_axk1 },
  { .architecture = "Glm4MoeLiteForCausalLM", .model_type = "glm4_moe_lite", /* GLM-4.7-Flash */
    { 154880, 2048, 10240, 47, 20,  0,   0, 202752,      0,      1, 1e-5,   10000 },
    .latent_attention = true, .latent = { 512, 768, 192, 64, 256 }, .neighbours = true,
    .members = HAS_ATTENTION_BIAS, .experts = &experts_of_glm4_moe_lite },
  { .model_type = "mistral4", /* Mistral Small 4: only a text part */
    { 131072, 4096, 12288, 36, 32,  0,   0, 1048576,     1,      2, 1e-6,   10000 },
    .latent_attention = true, .latent = { 256, 1024, 64, 64, 128 }, .neighbours = true,
    .members = HAS_ATTENTION_BIAS | HAS_QUERY_SCALE | HAS_OWN_ROPE, .experts = &experts_of_mistral4 },
  { .architecture = "KimiLinearForCausalLM", .model_type = "kimi_linear", /* Kimi-Linear-48B-A3B */
    { 163840, 2304,  9216, 27, 32,  0,   0, 1048576, 163584, 163586, 1e-5,  10000 },
    .latent_attention = true, .latent = { 512, 0, 128, 64, 128 }, .no_rope = true, .channel_delta = true,
    .low_rank_gates = true, .kimi_names = true, .members = HAS_ATTENTION_BIAS,
    .names = { .delta = "self_attn", .in_some = true, .gate = "block_sparse_moe.gate_proj",
               .up = "block_sparse_moe.up_proj", .down = "block_sparse_moe.down_proj" },
    .experts = &experts_of_kimi_linear },
  { .architecture = "BailingHybridForCausalLM", .model_type = "bailing_hybrid", /* Ling 3.0 Flash */
    { 157184, 2560,  6144, 42, 32,  0,   0, 262144,     -1, 156895, 1e-6, 6000000 },
    .latent_attention = true, .latent = { 512, 0, 128, 64, 128 }, .neighbours = true, .channel_delta = true,
    .attn_gate = ATTN_GATE_HEADS, .kimi_names = true, .members = HAS_ATTENTION_BIAS,
    .names = { .attention = "attention", .delta = "attention", .attn_gate = "self_attn.g_proj",
               .in_some = true, .o = "self_attn.dense", .delta_o = "linear_attn.dense",
               .embedding = "word_embeddings" },
    .experts = &experts_of_ling },
  { .architecture = "YoutuForCausalLM", .model_type = "youtu", /* Youtu-LLM 2B */
    { 128256, 2048,  6144, 32, 16,  0,   0, 131072, 128000, 128001, 1e-6,   10000 },
    .latent_attention = true, .latent = { 512, 1536, 128, 64, 128 }, .neighbours = true,
    .members = HAS_ATTENTION_BIAS, .tied = true },
  { .architecture = "MiniCPM3ForCausalLM", .model_type = "minicpm3", /* MiniCPM3 4B */
    {  73448, 2560,  6400, 62, 40,  0,   0,  32768,      1,      2, 1e-5,   10000 },
    .latent_attention = true, .latent = { 256, 768, 64, 32, 0 }, .depth_scale = true,
    .multipliers = { 12, 0, 1.4, 256 }, .members = HAS_ATTENTION_BIAS | HAS_MLP_BIAS, .tied = true },
  { .architecture = "FlintForCausalLM", .model_type = "flint",
    { 150144, 2048,  6144, 49, 32,  4, 128, 262144,     -1,     -1, 1e-6,   10000 },
    .qk_norm = QK_NORM_HEADS, .attn_sinks = true, .windows = WINDOW_SOME_FULL_NOPE, .window = 513,
    .period = 4, .members = HAS_ATTENTION_BIAS, .names = { .sinks = "self_attn.softmax_offset" },
    .experts = &experts_of_flint },
  { .architecture = "MiMoV2FlashForCausalLM", .model_type = "mimo_v2_flash", /* MiMo-V2-Flash */
    { 152576, 4096, 16384, 48, 64,  4, 192, 131072,      1,     -1, 1e-5, 5000000 },
    .attn_sinks = true, .value_heads = true, .windows = WINDOW_FIRST_FULL, .window = 129, .period = 6,
    .before_key = "sliding_window_size",
    .rotary_part = 0.334, .both_rotary = true, .local_rope_theta = 10000, .ropes_in_objects = true,
    .members = HAS_QKV_BIAS | HAS_LOCAL_ROPE | HAS_PARTIAL_ROTARY,
    .names = { .sinks = "self_attn.attention_sink_bias" }, .experts = &experts_of_mimo },
  { .architecture = "LagunaForCausalLM", .model_type = "laguna", /* Laguna XS.2, XS-2.1, S-2.1 */
    { 100352, 2048,  8192, 40, 48,  8, 128, 131072,     -1,     -1, 1e-6,  500000 },
    .qk_norm = QK_NORM_HEADS, .attn_gate = ATTN_GATE_HEADS, .own_heads_and_gates = true,
    .windows = WINDOW_PERIODIC, .window = 512, .period = 1, .rotary_part = 0.5, .local_rope_theta = 10000,
    .members = HAS_ATTENTION_BIAS | HAS_LOCAL_ROPE | HAS_PARTIAL_ROTARY, .ropes_in_objects = true,
    .names = { .attn_gate = "self_attn.g_proj" }, .experts = &experts_of_laguna },
  { .model_type = "muse_glimmer_text", /* Muse Glimmer 30B: only a text part */
    { 202048, 6656, 19968, 52, 32,  2, 128, 131072, 200000, 200001, 1e-5,   10000 },
    .norms = NORM_AROUND, .norm_plus_one = true, .final_norm_plain = true, .embedding_norm = true,
    .qk_norm = QK_NORM_HEADS, .qk_norm_plain = true, .attn_gate = ATTN_GATE_NUMBERS,
    .windows = WINDOW_BEFORE_LAST, .window = 2048, .period = 4, .activation_key = "hidden_activation",
    .members = HAS_ATTENTION_BIAS | HAS_LOGIT_CAP | HAS_QK_FACTOR | HAS_LAYER_ROPE, .logit_cap = 20 },
    /* clang-format on */
};
const size_t n_architectures = sizeof architectures / sizeof *architectures;

const char *activation_name(Activation activation) {
  static const char *const names[N_ACTIVATIONS] = {[ACTIVATION_SILU] = "silu",
                                                   [ACTIVATION_GELU_TANH] = "gelu_pytorch_tanh",
                                                   [ACTIVATION_CLAMPED] = "clamped silu",
                                                   [ACTIVATION_RELU] = "relu2",
                                                   [ACTIVATION_XIELU] = "xielu"};
  return names[activation];
}

const Architecture *architecture_find(const char *architecture, const char *model_type) {
  for (size_t i = 0; i < n_architectures; i++) {
    const Architecture *row = &architectures[i];
    if (!row->architecture) continue;
    if (architecture && row->other_name && strcmp(architecture, row->other_name) == 0) return row;
    if ((architecture ? strcmp(architecture, row->architecture) : strcmp(model_type, row->model_type)) == 0)
      return row;
  }
  return NULL;
}

const Architecture *architecture_of_type(const char *model_type) {
  for (size_t i = 0; i < n_architectures; i++)
    if (strcmp(architectures[i].model_type, model_type) == 0) return &architectures[i];
  return NULL;
}
