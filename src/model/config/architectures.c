/* architectures.c - the table of architectures; see architectures.h and models.md, "Architectures".
 *
 * Called by: config.c, draft.c; activation_name() by others. Always true: meanings and defaults of members
 * are those of transformers 5.23 (models/NAME/configuration_NAME.py, modeling_NAME.py); test/data/miniatures
 * has a model for every row. */
#include "model/config/architectures.h"

#include <string.h>

/* clang-format off */

/* Names of an expert's matrices, and of the tensors that hold those of all experts. */
#define GATE_UP_DOWN    .gate = "gate_proj", .up = "up_proj", .down = "down_proj"
#define W1_W3_W2        .gate = "w1", .up = "w3", .down = "w2"
#define ALL_IN(experts) .all_gate_up = experts ".gate_up_proj", .all_down = experts ".down_proj"
#define IN_MLP          "mlp.experts", GATE_UP_DOWN, ALL_IN("mlp.experts")

static const ExpertNames /* router, experts; the MLP beside them, the bias that chooses */
qwen_names        = { "mlp.gate", IN_MLP, SHARED_EXPERT },
  qwen3_vl_names    = { "mlp.gate", IN_MLP, .inputs_first = INPUTS_MAY_BE_FIRST },
  glm_names         = { "mlp.gate", IN_MLP, SHARED_EXPERTS, "mlp.gate.e_score_correction_bias" },
  ernie_names       = { "mlp.gate", IN_MLP, SHARED_EXPERTS, "mlp.moe_statics.e_score_correction_bias" },
  mixtral_names     = { "block_sparse_moe.gate", "block_sparse_moe.experts", W1_W3_W2,
      ALL_IN("mlp.experts") },
  lfm2_names        = { "feed_forward.gate", "feed_forward.experts", W1_W3_W2, ALL_IN("feed_forward.experts"),
      .choice_bias = "feed_forward.expert_bias" },
  granite_names     = { "block_sparse_moe.router.layer", "block_sparse_moe.experts", GATE_UP_DOWN,
      .all_gate_up = "block_sparse_moe.input_linear.weight",
      .all_down = "block_sparse_moe.output_linear.weight" },
  gemma_names       = { "router.proj", "experts", GATE_UP_DOWN, ALL_IN("experts") },
  minimax_names     = { "block_sparse_moe.gate", "block_sparse_moe.experts", W1_W3_W2, ALL_IN("mlp.experts"),
      .choice_bias = "block_sparse_moe.e_score_correction_bias" },
  hunyuan_names     = { "mlp.gate.wg", IN_MLP, SHARED_MLP },
  exaone_names      = { "mlp.gate", IN_MLP, SHARED_EXPERTS, "mlp.e_score_correction_bias" },
  hy_names          = { "mlp.router.gate", IN_MLP, SHARED_MLP, "mlp.expert_bias" },
  afmoe_names       = { "mlp.router.gate", IN_MLP, SHARED_EXPERTS, "mlp.expert_bias" },
  kolibri_names     = { "mlp.gate", IN_MLP, SHARED_EXPERTS, "moe.router.expert_bias" },
  granite_swa_names = { "block_sparse_moe.router", "block_sparse_moe.experts", GATE_UP_DOWN,
      ALL_IN("block_sparse_moe.experts") },
  laguna_names      = { "mlp.gate", IN_MLP, SHARED_EXPERT, "mlp.experts.e_score_correction_bias" },
  gpt_oss_names     = { "mlp.router", IN_MLP, .alternate = true, .inputs_first = INPUTS_ARE_FIRST },
  mimo_names        = { "mlp.gate", IN_MLP, .choice_bias = "mlp.gate.e_score_correction_bias" },
  llama4_names      = { "feed_forward.router", "feed_forward.experts", GATE_UP_DOWN,
      ALL_IN("feed_forward.experts"), SHARED_FEED_FORWARD, .inputs_first = INPUTS_ARE_FIRST },
  axk1_names        = { "mlp.gate", IN_MLP, SHARED_EXPERTS, "mlp.gate.e_score_correction_bias",
      .bias_may_miss = true },
  kimi_names        = { "block_sparse_moe.gate", "block_sparse_moe.experts", W1_W3_W2,
      ALL_IN("block_sparse_moe.experts"), SHARED_SPARSE_BLOCK,
      "block_sparse_moe.gate.e_score_correction_bias" },
  ling_names        = { "mlp.gate", IN_MLP, SHARED_EXPERTS, "mlp.gate.expert_bias" },
  deepseek_v2_names = { "mlp.gate", IN_MLP, SHARED_EXPERTS },
  nemotron_names    = { "mlp.gate", "mlp.experts", GATE_UP_DOWN, .all_gate_up = "mlp.experts.up_proj",
      .all_down = "mlp.experts.down_proj", .shared = SHARED_EXPERTS,
      .choice_bias = "mlp.gate.e_score_correction_bias" };

/* Names and members that several rows have. */
#define FEED_FORWARD .gate = "feed_forward.gate_proj", .up = "feed_forward.up_proj", \
                     .down = "feed_forward.down_proj"
#define FEED_FORWARD_W .gate = "feed_forward.w1", .up = "feed_forward.w3", .down = "feed_forward.w2"
#define BIG_MLP .up = "mlp.dense_h_to_4h", .down = "mlp.dense_4h_to_h"
#define GLM4_NAMES { .attn_post_norm = "post_self_attn_layernorm", .mlp_norm = "post_attention_layernorm", \
                     .mlp_post_norm = "post_mlp_layernorm" }
#define LFM2_NAMES { .attn_norm = "operator_norm", .mlp_norm = "ffn_norm", .final_norm = "embedding_norm", \
                     .q_norm = "self_attn.q_layernorm", .k_norm = "self_attn.k_layernorm", \
                     .o = "self_attn.out_proj", FEED_FORWARD_W }
#define HUNYUAN_NAMES { .q_norm = "self_attn.query_layernorm", .k_norm = "self_attn.key_layernorm" }
#define SHARED_MLP_NAMES { .gate_up = "shared_mlp.input_linear", .down = "shared_mlp.output_linear" }
#define FIRST_DENSE(n) .dense = { "first_k_dense_replace", n }
#define N_SHARED(n) .shared_count = { "n_shared_experts", n }
#define SHARED_WIDTH(n) .shared_width = { "shared_expert_intermediate_size", n }
#define ROUTED_SCALE(factor) .scale = { "routed_scaling_factor", factor }
#define HAS(...) .traits = { __VA_ARGS__ }

const Architecture architectures[] = {
  /* vocab_size, hidden, intermediate, layers, heads, kv heads, head_dim, positions, bos, eos, eps, theta;
   * windows: rule, window, period; experts: how many, of a token, width, score, renormalise, names, layers */
  { "LlamaForCausalLM", "llama", /* SmolLM2, R1-Distill-Llama */
    {  32000, 4096, 11008, 32, 32,  0,   0,   2048,      1,      2, 1e-6,   10000 },
    HAS(ATTENTION_BIAS, MLP_BIAS) },
  { "MistralForCausalLM", "mistral", /* Mistral 7B, Nemo, Small */
    {  32000, 4096, 14336, 32, 32,  8,   0, 131072,      1,      2, 1e-6,   10000 },
    .windows = { WINDOW_ALL, 4096 } },
  { "MinistralForCausalLM", "ministral", /* Ministral 8B 2410 */
    {  32000, 4096, 14336, 32, 32,  8,   0, 131072,      1,      2, 1e-6,   10000 },
    .windows = { WINDOW_PERIODIC, 4096, INT32_MAX } },
  { "Ministral3ForCausalLM", "ministral3", /* Ministral 3, Devstral 2 */
    { 131072, 4096, 14336, 34, 32,  8, 128, 262144,      1,      2, 1e-5,   10000 },
    HAS(QUERY_SCALE), .windows = { WINDOW_ALL } },
  { "Qwen2ForCausalLM", "qwen2", /* Qwen2, Qwen2.5, QwQ, R1-Distill */
    { 151936, 4096, 22016, 32, 32, 32,   0,  32768,     -1,     -1, 1e-6,   10000 },
    HAS(QKV_BIAS), .windows = { WINDOW_BY_LAYER, 4096, 28 } },
  { "Qwen3ForCausalLM", "qwen3",
    { 151936, 4096, 22016, 32, 32, 32, 128,  32768,     -1,     -1, 1e-6,   10000 },
    HAS(ATTENTION_BIAS), .qk_norm = QK_NORM_HEADS, .windows = { WINDOW_BY_LAYER, 4096, 28 } },
  { "Qwen3_5ForCausalLM", "qwen3_5_text", /* Qwen3.5, 3.6, 3.8 */
    { 248320, 4096, 12288, 32, 16,  4, 256,  32768,     -1,     -1, 1e-6,   10000 },
    HAS(ATTENTION_BIAS, PARTIAL_ROTARY), .layers = config_parse_delta, .norm = NORM_PLUS_ONE,
    .qk_norm = QK_NORM_HEADS, .attn_gate = ATTN_GATE_IN_Q, .rotary_part = 0.25 },
  { "ExaoneForCausalLM", "exaone", /* EXAONE 3.0, 3.5, Deep */
    { 102400, 4096, 14336, 32, 32,  8,   0,   4096,      1,    361, 1e-5,  500000 },
    HAS(ATTENTION_BIAS, MLP_BIAS, GPT_NAMES), .other_name = "LlamaForCausalLM",
    .names = { .layers = "h", .attention = "attn.attention", .attn_norm = "ln_1", .mlp_norm = "ln_2",
               .o = "self_attn.out_proj", .gate = "mlp.c_fc_0", .up = "mlp.c_fc_1", .down = "mlp.c_proj",
               .final_norm = "ln_f", .embedding = "wte", .body = "transformer." } },
  { "SmolLM3ForCausalLM", "smollm3",
    { 128256, 2048, 11008, 36, 16,  4,   0,  32768, 128000, 128001, 1e-6, 2000000 },
    HAS(ATTENTION_BIAS, MLP_BIAS, TIED), .windows = { WINDOW_NOPE } },
  { "Phi3ForCausalLM", "phi3", /* Phi-3, Phi-3.5, Phi-4, Phi-4-mini */
    {  32064, 3072,  8192, 32, 32,  0,   0,   4096,      1,  32000, 1e-5,   10000 },
    HAS(PARTIAL_ROTARY), .fused = FUSES_ALL, .windows = { WINDOW_ALL }, .ropes = ROPES_LONG,
    .original_max_position = 4096 },
  { "GemmaForCausalLM", "gemma", /* Gemma 1 and 1.1, CodeGemma */
    { 256000, 3072, 24576, 28, 16, 16, 256,   8192,      2,      1, 1e-6,   10000 },
    HAS(ATTENTION_BIAS, SCALED_EMBEDDING, TIED, GELU_IS_TANH, MAY_BE_ENCODER), .norm = NORM_PLUS_ONE,
    .activation = ACTIVATION_GELU_TANH },
  { "Gemma2ForCausalLM", "gemma2",
    { 256000, 2304,  9216, 26,  8,  4, 256,   8192,      2,      1, 1e-6,   10000 },
    HAS(ATTENTION_BIAS, QUERY_SCALAR, ATTENTION_CAP, LOGIT_CAP, SCALED_EMBEDDING, TIED),
    .norm = NORM_PLUS_ONE, .norms = NORM_AROUND, .activation = ACTIVATION_GELU_TANH,
    .activation_key = "hidden_activation", .windows = { WINDOW_PERIODIC, 4096, 2 }, .query_scalar = 256,
    .attention_cap = 50, .logit_cap = 30 },
  { "VaultGemmaForCausalLM", "vaultgemma", /* VaultGemma 1B */
    { 256000, 2304,  9216, 26,  8,  4, 256,   8192,      2,      1, 1e-6,   10000 },
    HAS(ATTENTION_BIAS, QUERY_SCALAR, ATTENTION_CAP, LOGIT_CAP, SCALED_EMBEDDING, TIED),
    .norm = NORM_PLUS_ONE, .activation = ACTIVATION_GELU_TANH, .activation_key = "hidden_activation",
    .windows = { WINDOW_PERIODIC, 4096, 2 }, .query_scalar = 256, .attention_cap = 50, .logit_cap = 30,
    .names = { .mlp_norm = "pre_feedforward_layernorm" } },
  { "Gemma3ForCausalLM", "gemma3_text", /* and the text part of 4B to 27B */
    { 262208, 2304,  9216, 26,  8,  4, 256, 131072,      2,      1, 1e-6, 1000000 },
    HAS(ATTENTION_BIAS, QUERY_SCALAR, LOGIT_CAP, LOCAL_ROPE, LOCAL_THETA, SCALED_EMBEDDING, TIED),
    .norm = NORM_PLUS_ONE, .norms = NORM_AROUND, .qk_norm = QK_NORM_HEADS,
    .activation = ACTIVATION_GELU_TANH, .activation_key = "hidden_activation",
    .windows = { WINDOW_PERIODIC, 4096, 6, "sliding_window_pattern" }, .query_scalar = 256,
    .local_rope_theta = 10000 },
  { "Gemma3nForCausalLM", "gemma3n_text", /* and the text part of E2B and E4B */
    { 262400, 2048, 16384, 35,  8,  2, 256,  32768,      2,      1, 1e-6, 1000000 },
    HAS(ATTENTION_BIAS, LOGIT_CAP, LOCAL_ROPE, LOCAL_THETA, SCALED_EMBEDDING, TIED, V_NORM),
    .sizes = config_parse_altup, .norms = NORM_AROUND, .qk_norm = QK_NORM_HEADS,
    .activation = ACTIVATION_GELU_TANH, .activation_key = "hidden_activation",
    .windows = { WINDOW_PERIODIC, 512, 5 }, .local_rope_theta = 10000, .attention_scale = 1,
    .logit_cap = 30, .per_layer_width = 256, .per_layer_vocab = 262144, .n_kv_shared = 15 },
  { "Gemma4ForCausalLM", "gemma4_text", /* and the text part of E2B to 31B */
    { 262144, 2304,  9216, 30,  8,  4, 256, 131072,      2,      1, 1e-6, 1000000 },
    HAS(ATTENTION_BIAS, LOGIT_CAP, LOCAL_ROPE, SCALED_EMBEDDING, TIED, V_NORM, SCALED_LAYERS, LAST_FULL,
      OWN_NORMS),
    .sizes = config_parse_layer_sizes, .norms = NORM_AROUND, .qk_norm = QK_NORM_HEADS,
    .activation = ACTIVATION_GELU_TANH, .activation_key = "hidden_activation",
    .windows = { WINDOW_PERIODIC, 512, 6 }, .ropes = ROPES_PROPORTIONAL, .rotary_part = 0.25,
    .local_rope_theta = 10000, .global_head_dim = 512, .per_layer_width = 256, .attention_scale = 1,
    .experts = { 0, 0, 0, SCORE_SOFTMAX, RENORMALISE_ALWAYS, &gemma_names, EXPERTS_EVERYWHERE,
                 .enable_key = "enable_moe_block" } },
  { "Gemma4UnifiedForCausalLM", "gemma4_unified_text", /* text part of 12B */
    { 262144, 2304,  9216, 30,  8,  4, 256, 262144,      2,      1, 1e-6, 1000000 },
    HAS(ATTENTION_BIAS, LOGIT_CAP, LOCAL_ROPE, SCALED_EMBEDDING, TIED, V_NORM, SCALED_LAYERS, LAST_FULL),
    .sizes = config_parse_layer_sizes, .norms = NORM_AROUND, .qk_norm = QK_NORM_HEADS,
    .activation = ACTIVATION_GELU_TANH, .activation_key = "hidden_activation",
    .windows = { WINDOW_PERIODIC, 1024, 6 }, .ropes = ROPES_PROPORTIONAL, .rotary_part = 0.25,
    .local_rope_theta = 10000, .global_head_dim = 512, .attention_scale = 1 },
  { "GraniteForCausalLM", "granite", /* Granite 3 */
    {  32000, 4096, 11008, 32, 32,  0,   0,   2048,      1,      2, 1e-6,   10000 },
    HAS(ATTENTION_BIAS, MLP_BIAS, MULTIPLIERS) },
  { "MiniCPMForCausalLM", "minicpm", /* MiniCPM 1B, 2B; MiniCPM4, 4.1 */
    {  32000, 4096, 11008, 32, 32,  0,   0,   2048,      1,      2, 1e-6,   10000 },
    HAS(ATTENTION_BIAS, DEPTH_SCALE, TIED), .multipliers = { 1, 0, 1, 1 } },
  { "HyperCLOVAXForCausalLM", "hyperclovax", /* HyperCLOVA X SEED Think 14B */
    {  32000, 4096, 11008, 32, 32,  0,   0,   2048,      1,      2, 1e-6,   10000 },
    HAS(ATTENTION_BIAS, MLP_BIAS, MULTIPLIERS, POST_NORM), .norms = NORM_AROUND,
    .names = { .attn_post_norm = "post_norm1", .mlp_norm = "post_attention_layernorm",
               .mlp_post_norm = "post_norm2" } },
  { "Olmo2ForCausalLM", "olmo2", /* OLMo-2 */
    {  50304, 4096, 11008, 32, 32,  0,   0,   2048,     -1,  50279, 1e-5,   10000 },
    HAS(ATTENTION_BIAS), .norms = NORM_AFTER, .qk_norm = QK_NORM_WHOLE },
  { "Olmo3ForCausalLM", "olmo3", /* Olmo 3, 3.1 */
    {  50304, 4096, 11008, 32, 32,  0,   0,   2048,     -1,  50279, 1e-5,  500000 },
    HAS(ATTENTION_BIAS, LOCAL_ROPE), .norms = NORM_AFTER, .qk_norm = QK_NORM_WHOLE,
    .windows = { WINDOW_PERIODIC, 4096, 4 }, .local_rope_theta = 500000 },
  { "OlmoHybridForCausalLM", "olmo_hybrid", /* Olmo Hybrid 7B */
    { 100352, 3840, 11008, 32, 30,  0,   0,  65536,     -1, 100257, 1e-6,   10000 },
    HAS(ATTENTION_BIAS), .layers = config_parse_delta_apart, .norms = NORM_AFTER, .qk_norm = QK_NORM_WHOLE,
    .names = { .attn_norm = "attention_layer_norm", .mlp_norm = "feedforward_layer_norm" } },
  { "CohereForCausalLM", "cohere", /* Command R, R+, Aya 23, Aya Expanse */
    { 256000, 8192, 22528, 40, 64,  0,   0,   8192,      5, 255001, 1e-5,  500000 },
    HAS(ATTENTION_BIAS, USE_QK_NORM, PARALLEL, NEIGHBOURS, TIED), .norm = NORM_CENTRED,
    .qk_norm = QK_NORM_CENTRED, .logit_scale = 0.0625, .eps_key = "layer_norm_eps",
    .length_key = "model_max_length" },
  { "Cohere2ForCausalLM", "cohere2", /* Command R7B, Command A */
    { 256000, 8192, 22528, 40, 64,  0,   0,   8192,      5, 255001, 1e-5,   10000 },
    HAS(ATTENTION_BIAS, PARALLEL, NEIGHBOURS, TIED), .norm = NORM_CENTRED,
    .windows = { WINDOW_AND_NOPE, 4096, 4, "sliding_window_pattern" }, .logit_scale = 0.0625,
    .eps_key = "layer_norm_eps", .length_key = "model_max_length" },
  { "Cohere2MoeForCausalLM", "cohere2_moe", /* Command A+ */
    { 256000, 8192, 22528, 40, 64,  0, 128,   8192,      5, 255001, 1e-5,   10000 },
    HAS(ATTENTION_BIAS, NO_ROPE_SCALING, MAY_BE_RMS, PARALLEL, NEIGHBOURS, TIED, SELECTION_KEY,
      COMBINATION_KEY),
    .last = config_parse_dense_prefix, .norm = NORM_CENTRED,
    .windows = { WINDOW_AND_NOPE, 4096, 4, "sliding_window_pattern" }, .logit_scale = 0.0625,
    .dense_key = "prefix_dense_intermediate_size", .eps_key = "layer_norm_eps",
    .experts = { 8, 2, 22528, SCORE_CHOSEN, RENORMALISE_NEVER, &deepseek_v2_names, EXPERTS_BY_TYPE,
                 .width_key = "intermediate_size", FIRST_DENSE(0),
                 .shared_count = { "num_shared_experts", 0 } } },
  { "PhiMoEForCausalLM", "phimoe", /* Phi-3.5-MoE, Phi-mini-MoE, Phi-tiny-MoE */
    {  32064, 4096,  6400, 32, 32,  8,   0, 131072,      1,      2, 1e-5, 1000000 },
    HAS(ATTENTION_BIAS, HEAD_BIAS), .norm = NORM_CENTRED_BIAS, .windows = { WINDOW_ALL },
    .ropes = ROPES_LONG_MSCALES, .other_name = "PhimoeForCausalLM",
    .experts = { 16, 2, 0, SCORE_CHOSEN_NEAR, RENORMALISE_NEVER, &mixtral_names, EXPERTS_EVERYWHERE,
                 .jitter = { "router_jitter_noise", 0.01 } } },
  { "Starcoder2ForCausalLM", "starcoder2", /* StarCoder2 3B to 15B */
    {  49152, 3072, 12288, 30, 24,  2,   0,   4096,  50256,  50256, 1e-5,   10000 },
    HAS(USE_BIAS, BIASED, TIED), .norm = NORM_CENTRED_BIAS, .activation = ACTIVATION_GELU_ALONE,
    .windows = { WINDOW_ALL }, .eps_key = "norm_epsilon",
    .names = { .up = "mlp.c_fc", .down = "mlp.c_proj" } },
  { "StableLmForCausalLM", "stablelm", /* StableLM 2 1.6B, Zephyr, 3B 4E1T, Code */
    {  50304, 2560,  6912, 32, 32, 32,   0,   4096,      0,      0, 1e-5,   10000 },
    HAS(USE_QKV_BIAS, PARTIAL_ROTARY, PARALLEL_KEY, QK_LAYERNORM), .norm = NORM_CENTRED_BIAS,
    .qk_norm = QK_NORM_CENTRED, .rotary_part = 0.25, .eps_key = "layer_norm_eps",
    .names = { .q_norm = "self_attn.q_layernorm", .k_norm = "self_attn.k_layernorm" } },
  { "GPTNeoXForCausalLM", "gpt_neox", /* GPT-NeoX-20B, Pythia, Dolly v2 */
    {  50432, 6144, 24576, 44, 64,  0,   0,   2048,      0,      2, 1e-5,   10000 },
    HAS(ATTENTION_BIAS, MLP_BIAS, BIASED, PARALLEL_KEY, PARALLEL, PARALLEL_NORMS, PARTIAL_ROTARY, NEOX_ROPE),
    .norm = NORM_CENTRED_BIAS, .fused = FUSES_QKV_HEADS, .activation = ACTIVATION_GELU_EXACT,
    .rotary_part = 0.25, .eps_key = "layer_norm_eps",
    .names = { .attention = "attention", .o = "self_attn.dense", BIG_MLP, .qkv = "self_attn.query_key_value",
               .final_norm = "final_layer_norm", .final_norm_bias = "final_layer_norm.bias",
               .embedding = "embed_in", .body = "gpt_neox.", .head = "embed_out" } },
  { "FalconForCausalLM", "falcon", /* Falcon 7B, 40B, 180B, Falcon2 11B */
    {  65024, 4544,     0, 32, 71,  0,   0,   2048,     11,     11, 1e-5,   10000 },
    HAS(TIED), .last = config_parse_falcon, .norm = NORM_CENTRED_BIAS, .fused = FUSES_QKV_HEADS,
    .activation = ACTIVATION_GELU_EXACT, .intermediate_key = "ffn_hidden_size",
    .activation_key = "activation", .eps_key = "layer_norm_epsilon",
    .names = { .layers = "h", .attention = "self_attention", .attn_norm = "ln_attn", .mlp_norm = "ln_mlp",
               .attn_norm_bias = "ln_attn.bias", .mlp_norm_bias = "ln_mlp.bias", .o = "self_attn.dense",
               BIG_MLP, .qkv = "self_attn.query_key_value", .final_norm = "ln_f",
               .final_norm_bias = "ln_f.bias", .embedding = "word_embeddings", .body = "transformer." } },
  { "PhiForCausalLM", "phi", /* Phi-1, 1.5, 2 */
    {  51200, 2048,  8192, 24, 32,  0,   0,   2048,      1,      2, 1e-5,   10000 },
    HAS(USE_BIAS, HEAD_BIAS, BIASED, PARTIAL_ROTARY, PARALLEL), .norm = NORM_CENTRED_BIAS,
    .activation = ACTIVATION_GELU_ALONE, .rotary_part = 0.5, .eps_key = "layer_norm_eps",
    .off_key = "qk_layernorm", .names = { .o = "self_attn.dense", .up = "mlp.fc1", .down = "mlp.fc2",
                                          .final_norm = "final_layernorm",
                                          .final_norm_bias = "final_layernorm.bias" } },
  { "OlmoForCausalLM", "olmo", /* OLMo 1B, 7B, 1.7 */
    {  50304, 4096, 11008, 32, 32,  0,   0,   2048,     -1,  50279, 1e-5,   10000 },
    HAS(ATTENTION_BIAS, CLIP, NORMS_PLAIN), .norm = NORM_CENTRED },
  { "Jais2ForCausalLM", "jais2", /* Jais 2 8B, 70B */
    { 150272, 3328, 26624, 32, 26,  0,   0,   8192,      0, 150024, 1e-5,   10000 },
    HAS(ATTENTION_BIAS, MLP_BIAS, BIASED), .norm = NORM_CENTRED_BIAS, .activation = ACTIVATION_RELU,
    .eps_key = "layer_norm_eps" },
  { "NanoChatForCausalLM", "nanochat",
    {  50304,  768,  8192, 12,  6,  0,   0,   2048,      0,      1, 1e-6,   10000 },
    HAS(ATTENTION_BIAS, LOGIT_CAP, NORMS_PLAIN, EMBEDDING_NORM, QK_NORM_PLAIN, QK_NORM_AFTER_ROPE, BACKWARDS),
    .qk_norm = QK_NORM_HEADS, .activation = ACTIVATION_RELU, .logit_cap = 15,
    .names = { .up = "mlp.fc1", .down = "mlp.fc2" } },
  { "InternLM3ForCausalLM", "internlm3", /* InternLM3 8B */
    { 128512, 4096, 10240, 48, 32,  2, 128,  32768,      1,      2, 1e-5,   10000 },
    HAS(ATTENTION_BIAS, MLP_BIAS) },
  { "IQuestCoderForCausalLM", "iquestcoder", /* IQuest-Coder 7B to 40B */
    {  76800, 5120, 27648, 80, 40,  8, 128, 131072,      1,      2, 1e-5,   10000 },
    HAS(ATTENTION_BIAS, MLP_BIAS, OFF_ONLY) },
  { "HeliumForCausalLM", "helium", /* Helium 1 2B */
    {  48000, 2560,  7040, 24, 20, 20, 128,   4096,      1,      2, 1e-8,  100000 },
    HAS(QKV_BIAS_KEY, MLP_BIAS, NEIGHBOURS) },
  { "Llama4ForCausalLM", "llama4_text", /* and the text part of Llama 4 */
    { 202048, 5120, 16384, 48, 40,  8, 128, 131072,      1,      2, 1e-5,  500000 },
    HAS(ATTENTION_BIAS, QK_NORM_PLAIN, QK_NORM_AFTER_ROPE, NEIGHBOURS, SCALES_INPUT),
    .layers = config_parse_chunks, .qk_norm = QK_NORM_HEADS, .intermediate_key = "intermediate_size_mlp",
    .names = { FEED_FORWARD },
    .experts = { 16, 1, 8192, SCORE_CHOSEN_SIGMOID, RENORMALISE_NEVER, &llama4_names, EXPERTS_IN_LIST,
                 .width_key = "intermediate_size", .shared_width = { "intermediate_size", 8192 } } },
  { "CwmForCausalLM", "cwm", /* Code World Model 32B */
    { 128256, 6144, 21504, 64, 48,  8, 128, 131072, 128000, 128001, 1e-5, 1000000 },
    HAS(MLP_BIAS, OWN_ROPE), .windows = { WINDOW_AFTER_FULL, 8192, 4 }, .more_eos = { 128008, 128009 } },
  { "SeedOssForCausalLM", "seed_oss", /* Seed-OSS 36B */
    { 155136, 4096, 27648, 64, 80,  8, 128, 524288,      0,      2, 1e-6,   10000 },
    HAS(QKV_BIAS_KEY, OUT_BIAS, MLP_BIAS, QKV_BIAS) },
  { "HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", /* Hunyuan 0.5B to 7B */
    { 290943, 4096, 11008, 32, 32,  0,   0,   2048,      1,      2, 1e-5,   10000 },
    HAS(ATTENTION_BIAS, ALPHA, QK_NORM_AFTER_ROPE), .qk_norm = QK_NORM_HEADS, .names = HUNYUAN_NAMES },
  { "GlmForCausalLM", "glm", /* GLM-4 9B, GLM-Edge */
    { 151552, 4096, 13696, 40, 32,  2, 128, 131072,     -1, 151329, 1.5625e-7, 10000 },
    HAS(QKV_BIAS_KEY, PARTIAL_ROTARY, QKV_BIAS, NEIGHBOURS), .fused = FUSES_GATE_UP,
    .more_eos = { 151336, 151338 }, .rotary_part = 0.5 },
  { "Glm4ForCausalLM", "glm4", /* GLM-4-0414, GLM-Z1 */
    { 151552, 4096, 13696, 40, 32,  2, 128, 131072,     -1, 151329, 1.5625e-7, 10000 },
    HAS(QKV_BIAS_KEY, PARTIAL_ROTARY, QKV_BIAS, NEIGHBOURS), .norms = NORM_AROUND, .fused = FUSES_GATE_UP,
    .more_eos = { 151336, 151338 }, .rotary_part = 0.5, .names = GLM4_NAMES },
  { "Ernie4_5ForCausalLM", "ernie4_5", /* ERNIE 4.5 0.3B */
    { 103424, 1024,  3072, 18, 16,  2, 128, 131072,      1,      2, 1e-5,  500000 },
    HAS(USE_BIAS, NEIGHBOURS, TIED) },
  { "Exaone4ForCausalLM", "exaone4", /* EXAONE 4.0 1.2B, 32B */
    { 102400, 4096, 16384, 32, 32, 32,   0,   2048,      0,      2, 1e-5,   10000 },
    .norms = NORM_AFTER, .qk_norm = QK_NORM_HEADS,
    .windows = { WINDOW_OR_NOPE, 4096, 4, "sliding_window_pattern" } },
  { "GraniteMoeHybridForCausalLM", "granitemoehybrid", /* Granite 4.0, 4.0 H */
    {  32000, 4096,  1024, 32, 32,  0,   0,   2048,      1,      2, 1e-6,   10000 },
    HAS(ATTENTION_BIAS, MULTIPLIERS, MAY_LACK_EXPERTS), .layers = config_parse_mamba, .fused = FUSES_GATE_UP,
    .intermediate_key = "shared_intermediate_size", .names = SHARED_MLP_NAMES,
    .experts = { 8, 2, 11008, SCORE_CHOSEN, RENORMALISE_NEVER, &granite_names, EXPERTS_EVERYWHERE,
                 .width_key = "intermediate_size", .shared_width = { "shared_intermediate_size", 1024 } } },
  { "BambaForCausalLM", "bamba", /* Bamba 9B */
    { 128000, 4096, 14336, 32, 32,  8,   0, 262144,      1,      2, 1e-5,   10000 },
    HAS(ATTENTION_BIAS, MLP_BIAS, PARTIAL_ROTARY), .layers = config_parse_listed_mamba, .rotary_part = 0.5,
    .names = { .mlp_norm = "pre_ff_layernorm", .final_norm = "final_layernorm", FEED_FORWARD } },
  { "FalconH1ForCausalLM", "falcon_h1", /* Falcon-H1 0.5B to 34B */
    { 128000, 4096, 14336, 32, 32,  8,   0,   8192,      1,      2, 1e-5,   10000 },
    .layers = config_parse_beside,
    .names = { .mlp_norm = "pre_ff_layernorm", .final_norm = "final_layernorm", FEED_FORWARD } },
  { "GraniteSWAForCausalLM", "granite_swa", /* Granite Swash */
    { 100352, 2560,  8192, 24, 20,  4,   0,   8192, 100257, 100257, 1e-5,   10000 },
    HAS(ATTENTION_BIAS, MLP_BIAS, MULTIPLIERS, ATTN_SINKS, TIED), .sizes = config_parse_layer_thetas,
    .windows = { WINDOW_AFTER_FULL, 128, 4 } },
  { "Lfm2ForCausalLM", "lfm2", /* LFM2, LFM2.5 */
    {  65536, 2560, 12288, 32, 32,  8,   0, 128000,      1,      2, 1e-5, 1000000 },
    HAS(BLOCK_WIDTH, TIED), .layers = config_parse_short_conv, .qk_norm = QK_NORM_HEADS,
    .eps_key = "norm_eps", .names = LFM2_NAMES },
  { "Lfm3ForCausalLM", "lfm3", /* LFM3 1.7B */
    { 128000, 2048,  7680, 24, 16,  4, 128, 128000, 124894, 124900, 1e-5, 1000000 },
    HAS(SANDWICH, ATTENTION_BIAS, LOCAL_ROPE, TIED), .layers = config_parse_short_conv, .norms = NORM_AROUND,
    .qk_norm = QK_NORM_HEADS, .attn_gate = ATTN_GATE_HEADS, .windows = { WINDOW_NONE, 256 },
    .ropes = ROPES_PROPORTIONAL, .eps_key = "norm_eps", .rotary_part = 0.5, .local_rope_theta = 10000,
    .names = { .attn_norm = "operator_norm", .attn_post_norm = "post_operator_norm", .mlp_norm = "ffn_norm",
               .mlp_post_norm = "post_ffn_norm", .final_norm = "embedding_norm",
               .attn_gate = "self_attn.g_proj", .gate = "feed_forward.w1", .up = "feed_forward.w3",
               .down = "feed_forward.w2" } },
  { "Qwen2MoeForCausalLM", "qwen2_moe", /* Qwen1.5-MoE, Qwen2-57B-A14B */
    { 151936, 2048,  5632, 24, 16, 16,   0,  32768,     -1,     -1, 1e-6,   10000 },
    HAS(QKV_BIAS, SHARED_GATE),
    .experts = { 60, 4, 1408, SCORE_SOFTMAX, RENORMALISE_BY_KEY, &qwen_names, EXPERTS_BY_STEP,
                 SHARED_WIDTH(5632) } },
  { "Qwen3MoeForCausalLM", "qwen3_moe", /* Qwen3-30B-A3B, Qwen3-Coder */
    { 151936, 2048,  6144, 24, 32,  4,   0,  32768,     -1,     -1, 1e-6,   10000 },
    HAS(ATTENTION_BIAS), .qk_norm = QK_NORM_HEADS,
    .experts = { 128, 8, 768, SCORE_SOFTMAX, RENORMALISE_BY_KEY, &qwen_names, EXPERTS_BY_STEP } },
  { "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", /* Qwen3.5, 3.6 A3B */
    { 248320, 2048,   512, 40, 16,  2, 256,  32768,     -1,     -1, 1e-6,   10000 },
    HAS(ATTENTION_BIAS, PARTIAL_ROTARY, SHARED_GATE), .layers = config_parse_delta, .norm = NORM_PLUS_ONE,
    .qk_norm = QK_NORM_HEADS, .attn_gate = ATTN_GATE_IN_Q, .rotary_part = 0.25,
    .experts = { 256, 8, 512, SCORE_SOFTMAX, RENORMALISE_ALWAYS, &qwen_names, EXPERTS_EVERYWHERE,
                 SHARED_WIDTH(512) } },
  { "Qwen4ExpForCausalLM", "qwen4_exp_text", /* Qwen3.8-Flash-Next */
    { 248320, 2048,   512, 40, 16,  2, 256,  32768,     -1,     -1, 1e-6,   10000 },
    HAS(ATTENTION_BIAS, PARTIAL_ROTARY, SHARED_GATE), .layers = config_parse_streams, .norm = NORM_PLUS_ONE,
    .qk_norm = QK_NORM_HEADS, .attn_gate = ATTN_GATE_IN_Q,
    .experts = { 512, 10, 512, SCORE_SOFTMAX, RENORMALISE_UNLESS_KEY, &qwen_names, EXPERTS_EVERYWHERE,
                 SHARED_WIDTH(512) } },
  { "Qwen3NextForCausalLM", "qwen3_next", /* Qwen3-Next, Qwen3-Coder-Next */
    { 151936, 2048,  5632, 48, 16,  2, 256,  32768,     -1,     -1, 1e-6,   10000 },
    HAS(ATTENTION_BIAS, PARTIAL_ROTARY, INTERLEAVED_DELTA, SHARED_GATE), .layers = config_parse_delta,
    .norm = NORM_PLUS_ONE, .qk_norm = QK_NORM_HEADS, .attn_gate = ATTN_GATE_IN_Q, .rotary_part = 0.25,
    .experts = { 512, 10, 512, SCORE_SOFTMAX, RENORMALISE_UNLESS_KEY, &qwen_names, EXPERTS_BY_STEP,
                 SHARED_WIDTH(512) } },
  { "LaraMiniForCausalLM", "lara_mini", /* Lara 4 Mini */
    { 151936, 1024,   512, 34, 16,  4, 128, 131072,     -1, 151643, 1e-6,   10000 },
    HAS(ATTENTION_BIAS, TIED), .layers = config_parse_delta_windows, .qk_norm = QK_NORM_HEADS,
    .fused = FUSES_DELTA,
    .experts = { 128, 4, 512, SCORE_SOFTMAX, RENORMALISE_UNLESS_KEY, &qwen_names, EXPERTS_EVERYWHERE,
                 SHARED_WIDTH(512) } },
  { "MixtralForCausalLM", "mixtral",
    {  32000, 4096, 14336, 32, 32,  8,   0, 131072,      1,      2, 1e-5, 1000000 },
    .windows = { WINDOW_ALL },
    .experts = { 8, 2, 0, SCORE_SOFTMAX, RENORMALISE_ALWAYS, &mixtral_names, EXPERTS_EVERYWHERE } },
  { "GptOssForCausalLM", "gpt_oss", /* gpt-oss-20b, 120b */
    { 201088, 2880,  2880, 36, 64,  8,  64, 131072,     -1,     -1, 1e-5,  150000 },
    HAS(ATTENTION_BIAS, OWN_ROPE, BIASED, ATTN_SINKS, EXPERT_BIASES, CLAMPED),
    .windows = { WINDOW_PERIODIC, 128, 2 },
    .experts = { 128, 4, 0, SCORE_CHOSEN, RENORMALISE_NEVER, &gpt_oss_names, EXPERTS_EVERYWHERE } },
  { "Glm4MoeForCausalLM", "glm4_moe", /* GLM-4.5, 4.5-Air, 4.6, 4.7 */
    { 151552, 4096, 10944, 46, 96,  8,   0, 131072,     -1,     -1, 1e-5,   10000 },
    HAS(QKV_BIAS_KEY, PARTIAL_ROTARY, USE_QK_NORM, GROUPED), .qk_norm = QK_NORM_HEADS, .rotary_part = 0.5,
    .experts = { 128, 8, 1408, SCORE_SIGMOID, RENORMALISE_UNLESS_KEY, &glm_names, EXPERTS_AFTER_FIRST,
                 .sum_plus = 1e-20, FIRST_DENSE(1), N_SHARED(1), ROUTED_SCALE(1) } },
  { "SarvamMoEForCausalLM", "sarvam_moe", /* Sarvam 30B */
    { 262144, 4096,  8192, 19, 64,  4,  64, 131072,     -1,      1, 1e-6, 8000000 },
    HAS(QKV_BIAS_KEY, USE_QKV_BIAS, PARTIAL_ROTARY, USE_QK_NORM, QK_NORM_USUAL, KIMI_NAMES, GROUPED),
    .qk_norm = QK_NORM_HEADS, .fused = FUSES_QKV, .other_name = "Glm4MoeForCausalLM",
    .names = { .attention = "attention", .q_norm = "self_attn.query_layernorm",
               .k_norm = "self_attn.key_layernorm", .o = "self_attn.dense",
               .qkv = "self_attn.query_key_value", .embedding = "word_embeddings" },
    .experts = { 128, 6, 1024, SCORE_SIGMOID, RENORMALISE_UNLESS_KEY, &ling_names, EXPERTS_AFTER_FIRST,
                 .sum_plus = 1e-20, FIRST_DENSE(1), N_SHARED(1), ROUTED_SCALE(2.5) } },
  { "GraniteMoeForCausalLM", "granitemoe", /* Granite 3.1 A400M, A800M */
    {  32000, 4096, 11008, 32, 32,  0,   0,   2048,      1,      2, 1e-6,   10000 },
    HAS(ATTENTION_BIAS, MULTIPLIERS),
    .experts = { 8, 2, 0, SCORE_CHOSEN, RENORMALISE_NEVER, &granite_names, EXPERTS_EVERYWHERE } },
  { "OlmoeForCausalLM", "olmoe", /* OLMoE-1B-7B */
    {  50304, 2048,  2048, 16, 16,  0,   0,   4096,     -1,  50279, 1e-5,   10000 },
    HAS(ATTENTION_BIAS), .qk_norm = QK_NORM_WHOLE,
    .experts = { 64, 8, 0, SCORE_SOFTMAX, RENORMALISE_BY_KEY, &qwen_names, EXPERTS_EVERYWHERE } },
  { "Ernie4_5_MoeForCausalLM", "ernie4_5_moe", /* ERNIE 4.5 21B-A3B */
    { 103424, 2560, 12288, 28, 20,  4,   0, 131072,      1,      2, 1e-5,  500000 },
    HAS(USE_BIAS, NEIGHBOURS, TIED),
    .experts = { 64, 6, 1536, SCORE_SOFTMAX, RENORMALISE_ALWAYS, &ernie_names, EXPERTS_IN_INTERVAL,
                 .sum_plus = 1e-12, .shared_count = { "moe_num_shared_experts", 2 } } },
  { "Lfm2MoeForCausalLM", "lfm2_moe", /* LFM2-8B-A1B */
    {  65536, 2048,  7168, 32, 32,  8,   0, 128000,      1,      2, 1e-5, 1000000 },
    HAS(TIED), .layers = config_parse_short_conv, .qk_norm = QK_NORM_HEADS, .eps_key = "norm_eps",
    .names = LFM2_NAMES,
    .experts = { 32, 4, 1792, SCORE_SIGMOID, RENORMALISE_UNLESS_KEY, &lfm2_names, EXPERTS_AFTER_FIRST,
                 .sum_plus = 1e-6, .dense = { "num_dense_layers", 2 }, ROUTED_SCALE(1),
                 .bias_key = "use_expert_bias" } },
  { NULL, "qwen2_vl_text", /* Qwen2-VL */
    { 152064, 8192, 29568, 80, 64,  8,   0,  32768, 151643, 151645, 1e-5, 1000000 },
    HAS(QKV_BIAS), .windows = { WINDOW_BY_LAYER, 4096, 80 }, .ropes = ROPES_MROPE },
  { NULL, "qwen2_5_vl_text", /* Qwen2.5-VL */
    { 152064, 8192, 29568, 80, 64,  8,   0,  32768, 151643, 151645, 1e-5, 1000000 },
    HAS(QKV_BIAS), .windows = { WINDOW_BY_LAYER, 4096, 80 }, .ropes = ROPES_MROPE },
  { NULL, "qwen2_5_omni_text", /* Qwen2.5-Omni's thinker */
    { 152064, 3584, 18944, 28, 28,  4,   0,  32768,     -1,     -1, 1e-6, 1000000 },
    HAS(QKV_BIAS), .windows = { WINDOW_BY_LAYER, 32768, 28 } },
  { NULL, "qwen3_vl_text", /* Qwen3-VL 2B to 32B */
    { 151936, 4096, 22016, 32, 32, 32, 128, 128000,     -1,     -1, 1e-6,  500000 },
    HAS(ATTENTION_BIAS), .qk_norm = QK_NORM_HEADS },
  { NULL, "qwen3_vl_moe_text", /* Qwen3-VL 30B-A3B, 235B-A22B */
    { 151936, 2048,  5632, 24, 16, 16,   0, 128000,     -1,     -1, 1e-6,  500000 },
    HAS(ATTENTION_BIAS), .qk_norm = QK_NORM_HEADS,
    .experts = { 60, 4, 1408, SCORE_SOFTMAX, RENORMALISE_ALWAYS, &qwen3_vl_names, EXPERTS_BY_STEP } },
  { NULL, "qwen3_omni_moe_text", /* Qwen3-Omni's thinker */
    {   3584, 2048, 18944, 28, 28,  4,   0,  32768,     -1,     -1, 1e-6, 1000000 },
    HAS(ATTENTION_BIAS), .qk_norm = QK_NORM_HEADS,
    .experts = { 128, 8, 768, SCORE_SOFTMAX, RENORMALISE_UNLESS_KEY, &qwen_names, EXPERTS_BY_STEP } },
  { NULL, "glm4v_text", /* GLM-4.1V, 4.6V-Flash */
    { 151552, 4096, 13696, 40, 32,  2,   0,  32768,     -1,     -1, 1e-5,   10000 },
    HAS(PARTIAL_ROTARY, QKV_BIAS, NEIGHBOURS), .norms = NORM_AROUND, .fused = FUSES_GATE_UP,
    .names = GLM4_NAMES },
  { NULL, "glm4v_moe_text", /* GLM-4.5V, 4.6V */
    { 151424, 4096, 10944, 46, 96,  8,   0,  65536,     -1,     -1, 1e-5,   10000 },
    HAS(QKV_BIAS_KEY, PARTIAL_ROTARY, QKV_BIAS, GROUPED), .rotary_part = 0.5,
    .experts = { 128, 8, 1408, SCORE_SIGMOID, RENORMALISE_UNLESS_KEY, &glm_names, EXPERTS_AFTER_FIRST,
                 .sum_plus = 1e-20, FIRST_DENSE(1), N_SHARED(1), ROUTED_SCALE(1) } },
  { NULL, "glm_ocr_text", /* GLM-OCR */
    {  59392, 1024,  4096, 16, 16,  8,   0, 131072,     -1,     -1, 1e-5,   10000 },
    HAS(PARTIAL_ROTARY, NEIGHBOURS), .norms = NORM_AROUND, .fused = FUSES_GATE_UP, .names = GLM4_NAMES },
  { NULL, "hunyuan_vl_text", /* HunyuanOCR */
    { 290943, 4096, 11008, 32, 32,  0,   0,   2048,      1,      2, 1e-5,   10000 },
    HAS(ATTENTION_BIAS, ALPHA, QK_NORM_AFTER_ROPE, TIED), .qk_norm = QK_NORM_HEADS, .ropes = ROPES_XDROPE,
    .head_dim_key = "attention_head_dim", .names = HUNYUAN_NAMES },
  { NULL, "paddleocr_vl_text", /* PaddleOCR-VL */
    { 103424, 1024,  3072, 18, 16,  2, 128, 131072,      1,      2, 1e-5,   10000 },
    HAS(USE_BIAS, TIED) },
  { NULL, "granite4_vision_text", /* Granite 4 Vision */
    {  32000, 4096, 11008, 32, 32,  0,   0,   2048,      1,      2, 1e-6,   10000 },
    HAS(ATTENTION_BIAS, MLP_BIAS, MULTIPLIERS) },
  { NULL, "granite_docling_text", /* Granite Docling */
    { 133800, 1024,  2048, 28, 16,  4,   0,  32768, 100257, 100257, 1e-5,   10000 },
    HAS(ATTENTION_BIAS, MLP_BIAS, MULTIPLIERS, TIED), .multipliers = { 12, 0.015625, 0.263, 4 } },
  { "MiniMaxM2ForCausalLM", "minimax_m2", /* MiniMax-M2 to M2.7 */
    { 200064, 3072,  1536, 62, 48,  8, 128, 196608, 200034, 200020, 1e-6, 5000000 },
    HAS(ROTARY_DIM), .qk_norm = QK_NORM_WHOLE,
    .experts = { 256, 8, 0, SCORE_SIGMOID, RENORMALISE_ALWAYS, &minimax_names, EXPERTS_EVERYWHERE } },
  { "MellumForCausalLM", "mellum", /* Mellum2-12B-A2.5B */
    {  98304, 2304,  7168, 28, 32,  4, 128, 131072,     -1,     -1, 1e-6,  500000 },
    HAS(ATTENTION_BIAS, LOCAL_ROPE, ROPES_IN_OBJECTS), .qk_norm = QK_NORM_HEADS,
    .windows = { WINDOW_PERIODIC, 1024, 1 }, .local_rope_theta = 10000,
    .experts = { 64, 8, 896, SCORE_SOFTMAX, RENORMALISE_UNLESS_KEY, &qwen_names, EXPERTS_BY_TYPE } },
  { "Dots1ForCausalLM", "dots1", /* dots.llm1 */
    { 152064, 4608, 10944, 62, 32, 32,   0,   2048,     -1,     -1, 1e-6,   10000 },
    HAS(ATTENTION_BIAS, GROUPED), .qk_norm = QK_NORM_HEADS, .windows = { WINDOW_FROM_LAYER, 4096, 62 },
    .experts = { 0, 0, 1408, SCORE_SIGMOID, RENORMALISE_BY_KEY, &glm_names, EXPERTS_AFTER_FIRST,
                 .sum_plus = 1e-20, FIRST_DENSE(0), N_SHARED(0), ROUTED_SCALE(1) } },
  { "HunYuanMoEV1ForCausalLM", "hunyuan_v1_moe", /* Hunyuan-A13B */
    { 290943, 4096, 11008, 32, 32,  0,   0,   2048,      1,      2, 1e-5,   10000 },
    HAS(ATTENTION_BIAS, ALPHA, QK_NORM_AFTER_ROPE, LISTS), .qk_norm = QK_NORM_HEADS, .names = HUNYUAN_NAMES,
    .experts = { 1, 1, 0, SCORE_SOFTMAX, RENORMALISE_ALWAYS, &hunyuan_names, EXPERTS_EVERYWHERE,
                 .shared_width = { "intermediate_size", 11008 } } },
  { "ExaoneMoeForCausalLM", "exaone_moe", /* K-EXAONE-236B-A23B */
    { 102400, 4096, 16384, 32, 32, 32,   0,   2048,      1,     53, 1e-5,   10000 },
    HAS(GROUPED), .qk_norm = QK_NORM_HEADS, .windows = { WINDOW_OR_NOPE, 4096, 4, "sliding_window_pattern" },
    .experts = { 64, 8, 1024, SCORE_SIGMOID, RENORMALISE_UNLESS_KEY, &exaone_names, EXPERTS_BY_TYPE,
                 .sum_plus = 1e-20, FIRST_DENSE(1), .shared_count = { "num_shared_experts", 1 },
                 ROUTED_SCALE(2.5) } },
  { "SolarOpenForCausalLM", "solar_open", /* Solar-Open-100B */
    { 196608, 4096, 10240, 48, 64,  8, 128, 131072,     -1,     -1, 1e-5, 1000000 },
    HAS(QKV_BIAS_KEY, GROUPED),
    .experts = { 128, 8, 1280, SCORE_SIGMOID, RENORMALISE_UNLESS_KEY, &glm_names, EXPERTS_EVERYWHERE,
                 .sum_plus = 1e-20, N_SHARED(1), ROUTED_SCALE(1) } },
  { "HYV3ForCausalLM", "hy_v3", /* Hy3 */
    { 120832, 4096, 13312, 80, 64,  8, 128, 131072,     -1,     -1, 1e-5, 11158840 },
    HAS(ATTENTION_BIAS, MLP_BIAS), .qk_norm = QK_NORM_HEADS,
    .experts = { 192, 8, 1536, SCORE_SIGMOID, RENORMALISE_ALWAYS, &hy_names, EXPERTS_BY_TYPE,
                 .sum_plus = 1e-20, .dense = { NULL, 1 }, .shared_count = { "num_shared_experts", 1 },
                 .scale = { "router_scaling_factor", 2.826 } } },
  { "GraniteMoeSharedForCausalLM", "granitemoeshared",
    {  32000, 4096, 11008, 32, 32,  0,   0,   2048,      1,      2, 1e-6,   10000 },
    HAS(ATTENTION_BIAS, MULTIPLIERS), .fused = FUSES_GATE_UP, .names = SHARED_MLP_NAMES,
    .experts = { 8, 2, 0, SCORE_CHOSEN, RENORMALISE_NEVER, &granite_names, EXPERTS_EVERYWHERE,
                 .shared_width = { "shared_intermediate_size", 0 } } },
  { "GraniteMoeSWAForCausalLM", "granitemoe_swa", /* Granite Swash A600M */
    {  32000, 4096, 11008, 32, 32,  0,   0,   2048,      1,      2, 1e-6,   10000 },
    HAS(ATTENTION_BIAS, MULTIPLIERS, ATTN_SINKS), .sizes = config_parse_layer_thetas, .fused = FUSES_GATE_UP,
    .windows = { WINDOW_AFTER_FULL, 128, 4 }, .names = SHARED_MLP_NAMES,
    .experts = { 8, 2, 0, SCORE_CHOSEN, RENORMALISE_NEVER, &granite_swa_names, EXPERTS_EVERYWHERE,
                 .shared_width = { "shared_intermediate_size", 0 } } },
  { "AfmoeForCausalLM", "afmoe", /* Trinity */
    { 200192, 2048,  6144, 32, 16,  0, 128,  16384,     -1,     -1, 1e-5,   10000 },
    HAS(ATTENTION_BIAS, MUP), .norms = NORM_AROUND, .qk_norm = QK_NORM_HEADS, .attn_gate = ATTN_GATE_NUMBERS,
    .windows = { WINDOW_AND_NOPE, 1024, 4, "global_attn_every_n_layers" },
    .names = { .mlp_norm = "pre_mlp_layernorm", .mlp_post_norm = "post_mlp_layernorm" },
    .experts = { 64, 6, 1408, SCORE_SIGMOID, RENORMALISE_ALWAYS, &afmoe_names, EXPERTS_AFTER_FIRST,
                 .sum_plus = 1e-20, .dense = { "num_dense_layers", 1 },
                 .shared_count = { "num_shared_experts", 2 }, .scale = { "route_scale", 1 } } },
  { "FlexOlmoForCausalLM", "flex_olmo", /* FlexOlmo-7x7B */
    { 100352, 4096, 11008, 32, 32,  0,   0,   4096,     -1, 100257, 1e-6,  500000 },
    HAS(ATTENTION_BIAS), .norms = NORM_AFTER, .qk_norm = QK_NORM_WHOLE,
    .experts = { 7, 5, 0, SCORE_SOFTMAX, RENORMALISE_BY_KEY, &qwen_names, EXPERTS_EVERYWHERE } },
  { "Kolibri1ForCausalLM", "kolibri1", /* Kolibri-1 */
    { 128000, 2560,   512, 50, 48,  4, 128, 262144,     -1,     -1, 1e-6,   10000 },
    .norms = NORM_AROUND, .qk_norm = QK_NORM_HEADS, .windows = { WINDOW_OR_NOPE, 513, 5 },
    .names = { .attn_post_norm = "post_attn_norm", .mlp_norm = "post_attention_layernorm",
               .mlp_post_norm = "post_ffn_norm" },
    .experts = { 384, 6, 512, SCORE_CHOSEN_SIGMOID, RENORMALISE_BY_KEY, &kolibri_names, EXPERTS_EVERYWHERE,
                 SHARED_WIDTH(512) } },
  { "ArceeForCausalLM", "arcee", /* AFM 4.5B */
    {  32000, 2560, 18432, 32, 32,  0,   0,   4096, 128000, 128001, 1e-5,   10000 },
    HAS(ATTENTION_BIAS, MLP_BIAS), .activation = ACTIVATION_RELU },
  { "ApertusForCausalLM", "apertus", /* Apertus 8B, 70B */
    { 131072, 4096, 14336, 32, 32,  0,   0,  65536,      1,      2, 1e-5, 12000000 },
    HAS(ATTENTION_BIAS, OWN_ROPE), .qk_norm = QK_NORM_HEADS, .activation = ACTIVATION_XIELU,
    .names = { .attn_norm = "attention_layernorm", .mlp_norm = "feedforward_layernorm" } },
  { "Apertus1p5TextForCausalLM", "apertus1p5_text", /* and the text part of Apertus 1.5 */
    { 266752, 4096, 14336, 32, 32,  0,   0,  65536,      1,      2, 1e-5, 12000000 },
    HAS(ATTENTION_BIAS, OWN_ROPE, OUTPUT_VOCAB), .qk_norm = QK_NORM_HEADS, .activation = ACTIVATION_XIELU,
    .names = { .attn_norm = "attention_layernorm", .mlp_norm = "feedforward_layernorm" } },
  { "NemotronHForCausalLM", "nemotron_h", /* Nemotron-H, Nano 2, 3 and 3.5 */
    { 131072, 4096, 21504,  4, 32,  8, 128,   4096,      1,      2, 1e-5,   10000 },
    HAS(MLP_BIAS, GROUPED, LATENT_EXPERTS), .layers = config_parse_blocks, .activation = ACTIVATION_RELU,
    .activation_key = "mlp_hidden_act", .eps_key = "layer_norm_epsilon",
    .names = { .block = "mixer", .attn_norm = "norm", .mlp_norm = "norm", .final_norm = "norm_f",
               .embedding = "embeddings", .body = "backbone." },
    .experts = { 8, 2, 7688, SCORE_SIGMOID, RENORMALISE_UNLESS_KEY, &nemotron_names, EXPERTS_EVERYWHERE,
                 .sum_plus = 1e-20, .shared_width = { "moe_shared_expert_intermediate_size", 7688 },
                 ROUTED_SCALE(1) } },
  { "DeepseekV2ForCausalLM", "deepseek_v2", /* V2-Lite, Coder-V2-Lite */
    { 102400, 4096, 11008, 32, 32,  0,   0,   2048,      1,      2, 1e-6,   10000 },
    HAS(ATTENTION_BIAS, MLP_BIAS, NEIGHBOURS, METHOD_KEY), .latent = { 512, 1536, 128, 64, 128 },
    .experts = { 64, 0, 1407, SCORE_SOFTMAX, RENORMALISE_NEVER, &deepseek_v2_names, EXPERTS_AFTER_FIRST,
                 FIRST_DENSE(0), N_SHARED(2), ROUTED_SCALE(1) } },
  { "DeepseekV3ForCausalLM", "deepseek_v3", /* V3, R1, Moonlight, Kimi K2 */
    { 129280, 7168, 18432, 61, 128, 0,   0,   4096,      0,      1, 1e-6,   10000 },
    HAS(ATTENTION_BIAS, NEIGHBOURS, GROUPED), .latent = { 512, 1536, 128, 64, 128 }, .other_type = "kimi_k2",
    .experts = { 256, 8, 2048, SCORE_SIGMOID, RENORMALISE_UNLESS_KEY, &glm_names, EXPERTS_AFTER_FIRST,
                 .sum_plus = 1e-20, FIRST_DENSE(3), N_SHARED(1), ROUTED_SCALE(2.5), .groups = { 8, 4 } } },
  { "SarvamMLAForCausalLM", "sarvam_mla", /* Sarvam 105B */
    { 262144, 4096, 16384, 32, 64,  0,   0,   4096,      0,      1, 1e-6,   10000 },
    HAS(ATTENTION_BIAS, NEIGHBOURS, KIMI_NAMES, GROUPED), .latent = { 512, 0, 128, 64, 128 },
    .ropes = ROPES_DEEPSEEK, .other_name = "DeepseekV3ForCausalLM",
    .experts = { 128, 8, 2048, SCORE_SIGMOID, RENORMALISE_UNLESS_KEY, &glm_names, EXPERTS_AFTER_FIRST,
                 .sum_plus = 1e-20, FIRST_DENSE(1), N_SHARED(1), ROUTED_SCALE(2.5) } },
  { "AXK1ForCausalLM", "axk1", /* A.X-K1 */
    { 163840, 7168, 18432, 61, 64,  0,   0,  32768, 163691, 163691, 1e-6,  10000 },
    HAS(ATTENTION_BIAS, NEIGHBOURS, FREQUENCY_KEY, POST_NORM_OF_SUM, GROUPED),
    .latent = { 512, 1536, 128, 64, 128 }, .other_type = "AXK1",
    .names = { .mlp_post_norm = "post_mlp_layernorm" },
    .experts = { 192, 8, 2048, SCORE_SIGMOID, RENORMALISE_UNLESS_KEY, &axk1_names, EXPERTS_BY_TYPE,
                 .sum_plus = 1e-20, FIRST_DENSE(1), N_SHARED(1), ROUTED_SCALE(2.5), .groups = { 8, 4 } } },
  { "Glm4MoeLiteForCausalLM", "glm4_moe_lite", /* GLM-4.7-Flash */
    { 154880, 2048, 10240, 47, 20,  0,   0, 202752,      0,      1, 1e-5,   10000 },
    HAS(ATTENTION_BIAS, NEIGHBOURS, GROUPED), .latent = { 512, 768, 192, 64, 256 },
    .experts = { 64, 4, 1536, SCORE_SIGMOID, RENORMALISE_UNLESS_KEY, &glm_names, EXPERTS_BY_TYPE,
                 .sum_plus = 1e-20, .dense = { NULL, 1 }, N_SHARED(1), ROUTED_SCALE(1.8) } },
  { NULL, "mistral4", /* Mistral Small 4: only a text part */
    { 131072, 4096, 12288, 36, 32,  0,   0, 1048576,     1,      2, 1e-6,   10000 },
    HAS(ATTENTION_BIAS, QUERY_SCALE, OWN_ROPE, NEIGHBOURS, GROUPED), .latent = { 256, 1024, 64, 64, 128 },
    .experts = { 128, 4, 2048, SCORE_SOFTMAX, RENORMALISE_UNLESS_KEY, &deepseek_v2_names,
                 EXPERTS_AFTER_FIRST, .sum_plus = 1e-20, FIRST_DENSE(0), N_SHARED(1), ROUTED_SCALE(1) } },
  { "KimiLinearForCausalLM", "kimi_linear", /* Kimi-Linear-48B-A3B */
    { 163840, 2304,  9216, 27, 32,  0,   0, 1048576, 163584, 163586, 1e-5,  10000 },
    HAS(ATTENTION_BIAS, NO_ROPE, KIMI_NAMES, GROUPED), .layers = config_parse_channel_delta,
    .latent = { 512, 0, 128, 64, 128 },
    .names = { .delta = "self_attn", .in_some = true, .gate = "block_sparse_moe.gate_proj",
               .up = "block_sparse_moe.up_proj", .down = "block_sparse_moe.down_proj" },
    .experts = { 256, 8, 1024, SCORE_SIGMOID, RENORMALISE_UNLESS_KEY, &kimi_names, EXPERTS_BY_TYPE,
                 .sum_plus = 1e-20, FIRST_DENSE(1), N_SHARED(1), ROUTED_SCALE(2.446) } },
  { "BailingHybridForCausalLM", "bailing_hybrid", /* Ling 3.0 Flash */
    { 157184, 2560,  6144, 42, 32,  0,   0, 262144,     -1, 156895, 1e-6, 6000000 },
    HAS(ATTENTION_BIAS, NEIGHBOURS, KIMI_NAMES, GROUPED), .layers = config_parse_channel_delta,
    .attn_gate = ATTN_GATE_HEADS, .latent = { 512, 0, 128, 64, 128 },
    .names = { .attention = "attention", .delta = "attention", .attn_gate = "self_attn.g_proj",
               .in_some = true, .o = "self_attn.dense", .delta_o = "linear_attn.dense",
               .embedding = "word_embeddings" },
    .experts = { 512, 8, 768, SCORE_SIGMOID, RENORMALISE_UNLESS_KEY, &ling_names, EXPERTS_BY_TYPE,
                 .sum_plus = 1e-20, FIRST_DENSE(2), N_SHARED(1), ROUTED_SCALE(2.5), .groups = { 8, 4 } } },
  { "YoutuForCausalLM", "youtu", /* Youtu-LLM 2B */
    { 128256, 2048,  6144, 32, 16,  0,   0, 131072, 128000, 128001, 1e-6,   10000 },
    HAS(ATTENTION_BIAS, NEIGHBOURS, TIED), .latent = { 512, 1536, 128, 64, 128 } },
  { "MiniCPM3ForCausalLM", "minicpm3", /* MiniCPM3 4B */
    {  73448, 2560,  6400, 62, 40,  0,   0,  32768,      1,      2, 1e-5,   10000 },
    HAS(ATTENTION_BIAS, MLP_BIAS, DEPTH_SCALE, TIED), .latent = { 256, 768, 64, 32, 0 },
    .multipliers = { 12, 0, 1.4, 256 } },
  { "FlintForCausalLM", "flint",
    { 150144, 2048,  6144, 49, 32,  4, 128, 262144,     -1,     -1, 1e-6,   10000 },
    HAS(ATTENTION_BIAS, ATTN_SINKS), .qk_norm = QK_NORM_HEADS, .windows = { WINDOW_SOME_FULL_NOPE, 513, 4 },
    .names = { .sinks = "self_attn.softmax_offset" },
    .experts = { 256, 6, 512, SCORE_SIGMOID, RENORMALISE_UNLESS_KEY, &qwen_names, EXPERTS_BY_STEP,
                 .dense_layers = 2, SHARED_WIDTH(1024) } },
  { "MiMoV2FlashForCausalLM", "mimo_v2_flash", /* MiMo-V2-Flash */
    { 152576, 4096, 16384, 48, 64,  4, 192, 131072,      1,     -1, 1e-5, 5000000 },
    HAS(QKV_BIAS_KEY, LOCAL_ROPE, PARTIAL_ROTARY, ATTN_SINKS, BOTH_ROTARY, ROPES_IN_OBJECTS, GROUPED),
    .sizes = config_parse_value_heads, .last = config_check_value_heads,
    .windows = { WINDOW_FIRST_FULL, 129, 6 }, .before_key = "sliding_window_size", .rotary_part = 0.334,
    .local_rope_theta = 10000, .names = { .sinks = "self_attn.attention_sink_bias" },
    .experts = { 256, 8, 2048, SCORE_SIGMOID, RENORMALISE_UNLESS_KEY, &mimo_names, EXPERTS_BY_TYPE,
                 .sum_plus = 1e-20, .dense = { NULL, 1 }, ROUTED_SCALE(1) } },
  { "LagunaForCausalLM", "laguna", /* Laguna XS.2, XS-2.1, S-2.1 */
    { 100352, 2048,  8192, 40, 48,  8, 128, 131072,     -1,     -1, 1e-6,  500000 },
    HAS(ATTENTION_BIAS, LOCAL_ROPE, PARTIAL_ROTARY, ROPES_IN_OBJECTS), .sizes = config_parse_layer_heads,
    .qk_norm = QK_NORM_HEADS, .attn_gate = ATTN_GATE_HEADS, .windows = { WINDOW_PERIODIC, 512, 1 },
    .rotary_part = 0.5, .local_rope_theta = 10000, .names = { .attn_gate = "self_attn.g_proj" },
    .experts = { 256, 8, 512, SCORE_SIGMOID, RENORMALISE_ALWAYS, &laguna_names, EXPERTS_BY_TYPE,
                 .dense = { NULL, 1 }, SHARED_WIDTH(512), .scale = { "moe_routed_scaling_factor", 1 } } },
  { NULL, "muse_glimmer_text", /* Muse Glimmer 30B: only a text part */
    { 202048, 6656, 19968, 52, 32,  2, 128, 131072, 200000, 200001, 1e-5,   10000 },
    HAS(ATTENTION_BIAS, LOGIT_CAP, QK_FACTOR, EMBEDDING_NORM, QK_NORM_PLAIN),
    .sizes = config_parse_layer_ropes, .norm = NORM_PLUS_ONE_INSIDE, .norms = NORM_AROUND,
    .qk_norm = QK_NORM_HEADS, .attn_gate = ATTN_GATE_NUMBERS, .activation_key = "hidden_activation",
    .windows = { WINDOW_BEFORE_LAST, 2048, 4 }, .logit_cap = 20 },
};
/* clang-format on */
const size_t n_architectures = sizeof architectures / sizeof *architectures;

bool has(const Architecture *arch, Trait trait) {
  return memchr(arch->traits, trait, sizeof arch->traits) != NULL;
}

const char *activation_name(Activation activation) {
  static const char *const names[N_ACTIVATIONS] = {[ACTIVATION_SILU] = "silu",
                                                   [ACTIVATION_GELU_TANH] = "gelu_pytorch_tanh",
                                                   [ACTIVATION_CLAMPED] = "clamped silu",
                                                   [ACTIVATION_RELU] = "relu2",
                                                   [ACTIVATION_GELU_ALONE] = "gelu_pytorch_tanh",
                                                   [ACTIVATION_GELU_EXACT] = "gelu",
                                                   [ACTIVATION_XIELU] = "xielu"};
  return names[activation];
}

const Architecture *architecture_find(const char *architecture, const char *model_type) {
  const Architecture *found = NULL;
  for (size_t i = 0; i < n_architectures; i++) {
    const Architecture *row = &architectures[i];
    const bool is_type = model_type && strcmp(model_type, row->model_type) == 0;
    if (!row->architecture) continue;
    const bool named = architecture && (strcmp(architecture, row->architecture) == 0 ||
                                        (row->other_name && strcmp(architecture, row->other_name) == 0));
    if (is_type && (named || !architecture)) return row;
    if (named && !found) found = row;
  }
  return found;
}

const Architecture *architecture_of_type(const char *model_type) {
  for (size_t i = 0; i < n_architectures; i++)
    if (strcmp(architectures[i].model_type, model_type) == 0) return &architectures[i];
  return NULL;
}
