/* architectures.c - the table of architectures; see architectures.h and models.md, "Architectures".
 *
 * Called by: config.c, draft.c; activation_name() by others. Always true: meanings and defaults of members
 * are those of transformers 5.23 (models/NAME/configuration_NAME.py, modeling_NAME.py); test/data/miniatures
 * has a model for every row. */
#include "model/config/architectures.h"

#include <string.h>

/* --- mixtures of experts */

/* Names of an expert's matrices, and of the tensors that hold those of all experts. */
#define GATE_UP_DOWN    .gate = "gate_proj", .up = "up_proj", .down = "down_proj"
#define W1_W3_W2        .gate = "w1", .up = "w3", .down = "w2"
#define ALL_IN(experts) .all_gate_up = experts ".gate_up_proj", .all_down = experts ".down_proj"

static const ExpertNames qwen_names = {.router = "mlp.gate",
                                       .shared = SHARED_EXPERT,
                                       .each = "mlp.experts",
                                       GATE_UP_DOWN,
                                       ALL_IN("mlp.experts")},
                         qwen3_vl_names = {.router = "mlp.gate",
                                           .inputs_first = INPUTS_MAY_BE_FIRST,
                                           .each = "mlp.experts",
                                           GATE_UP_DOWN,
                                           ALL_IN("mlp.experts")},
                         glm_names = {.router = "mlp.gate",
                                      .choice_bias = "mlp.gate.e_score_correction_bias",
                                      .shared = SHARED_EXPERTS,
                                      .each = "mlp.experts",
                                      GATE_UP_DOWN,
                                      ALL_IN("mlp.experts")},
                         ernie_names = {.router = "mlp.gate",
                                        .choice_bias = "mlp.moe_statics.e_score_correction_bias",
                                        .shared = SHARED_EXPERTS,
                                        .each = "mlp.experts",
                                        GATE_UP_DOWN,
                                        ALL_IN("mlp.experts")},
                         mixtral_names = {.router = "block_sparse_moe.gate",
                                          .each = "block_sparse_moe.experts",
                                          W1_W3_W2,
                                          ALL_IN("mlp.experts")},
                         lfm2_names = {.router = "feed_forward.gate",
                                       .choice_bias = "feed_forward.expert_bias",
                                       .each = "feed_forward.experts",
                                       W1_W3_W2,
                                       ALL_IN("feed_forward.experts")},
                         granite_names = {.router = "block_sparse_moe.router.layer",
                                          .each = "block_sparse_moe.experts",
                                          GATE_UP_DOWN,
                                          .all_gate_up = "block_sparse_moe.input_linear.weight",
                                          .all_down = "block_sparse_moe.output_linear.weight"},
                         gemma_names = {.router = "router.proj",
                                        .each = "experts",
                                        GATE_UP_DOWN,
                                        ALL_IN("experts")},
                         gpt_oss_names = {.router = "mlp.router",
                                          .alternate = true,
                                          .inputs_first = INPUTS_ARE_FIRST,
                                          .each = "mlp.experts",
                                          GATE_UP_DOWN,
                                          ALL_IN("mlp.experts")};

static const ExpertFamily
    qwen2_moe = {.n_experts = 60,
                 .n_chosen = 4,
                 .width = 1408,
                 .renormalise = RENORMALISE_BY_KEY,
                 .layers = EXPERTS_BY_STEP,
                 .shared_width_key = "shared_expert_intermediate_size",
                 .shared_width = 5632,
                 .shared_gate = true,
                 .names = &qwen_names},
    qwen3_moe = {.n_experts = 128,
                 .n_chosen = 8,
                 .width = 768,
                 .renormalise = RENORMALISE_BY_KEY,
                 .layers = EXPERTS_BY_STEP,
                 .names = &qwen_names},
    qwen3_vl_moe = {.n_experts = 60,
                    .n_chosen = 4,
                    .width = 1408,
                    .renormalise = RENORMALISE_ALWAYS,
                    .layers = EXPERTS_BY_STEP,
                    .names = &qwen3_vl_names},
    qwen3_omni_moe = {.n_experts = 128,
                      .n_chosen = 8,
                      .width = 768,
                      .renormalise = RENORMALISE_UNLESS_KEY,
                      .layers = EXPERTS_BY_STEP,
                      .names = &qwen_names},
    qwen3_next = {.n_experts = 512,
                  .n_chosen = 10,
                  .width = 512,
                  .renormalise = RENORMALISE_UNLESS_KEY,
                  .layers = EXPERTS_BY_STEP,
                  .shared_width_key = "shared_expert_intermediate_size",
                  .shared_width = 512,
                  .shared_gate = true,
                  .names = &qwen_names},
    qwen3_5_moe = {.n_experts = 256,
                   .n_chosen = 8,
                   .width = 512,
                   .renormalise = RENORMALISE_ALWAYS,
                   .shared_width_key = "shared_expert_intermediate_size",
                   .shared_width = 512,
                   .shared_gate = true,
                   .names = &qwen_names},
    mixtral = {.n_experts = 8, .n_chosen = 2, .renormalise = RENORMALISE_ALWAYS, .names = &mixtral_names},
    olmoe = {.n_experts = 64, .n_chosen = 8, .renormalise = RENORMALISE_BY_KEY, .names = &qwen_names},
    gpt_oss = {.n_experts = 128,
               .n_chosen = 4,
               .score = SCORE_CHOSEN,
               .biases = true,
               .clamped = true,
               .names = &gpt_oss_names},
    granite_moe = {.n_experts = 8, .n_chosen = 2, .score = SCORE_CHOSEN, .names = &granite_names},
    gemma4_moe = {.renormalise = RENORMALISE_ALWAYS,
                  .enable_key = "enable_moe_block",
                  .own_norms = true,
                  .names = &gemma_names},
    glm4_moe = {.n_experts = 128,
                .n_chosen = 8,
                .width = 1408,
                .score = SCORE_SIGMOID,
                .renormalise = RENORMALISE_UNLESS_KEY,
                .sum_plus = 1e-20,
                .layers = EXPERTS_AFTER_FIRST,
                .n_dense_key = "first_k_dense_replace",
                .n_dense = 1,
                .shared_count_key = "n_shared_experts",
                .n_shared = 1,
                .scaled = true,
                .grouped = true,
                .names = &glm_names},
    ernie_moe = {.n_experts = 64,
                 .n_chosen = 6,
                 .width = 1536,
                 .renormalise = RENORMALISE_ALWAYS,
                 .sum_plus = 1e-12,
                 .layers = EXPERTS_IN_INTERVAL,
                 .shared_count_key = "moe_num_shared_experts",
                 .n_shared = 2,
                 .names = &ernie_names},
    lfm2_moe = {.n_experts = 32,
                .n_chosen = 4,
                .width = 1792,
                .score = SCORE_SIGMOID,
                .renormalise = RENORMALISE_UNLESS_KEY,
                .sum_plus = 1e-6,
                .layers = EXPERTS_AFTER_FIRST,
                .n_dense_key = "num_dense_layers",
                .n_dense = 2,
                .bias_key = "use_expert_bias",
                .scaled = true,
                .names = &lfm2_names};

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
    .members = HAS_ATTENTION_BIAS, .activation = ACTIVATION_GELU_TANH },
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
    .members = HAS_ATTENTION_BIAS | HAS_QUERY_SCALAR | HAS_LOGIT_CAP | HAS_LOCAL_ROPE | HAS_LOCAL_THETA |
               HAS_PATTERN,
    .query_scalar = 256, .local_rope_theta = 10000,
    .activation_key = "hidden_activation", .activation = ACTIVATION_GELU_TANH },
  { .architecture = "Gemma4ForCausalLM", .model_type = "gemma4_text", /* and the text part of E2B to 31B */
    { 262144, 2304,  9216, 30,  8,  4, 256, 131072,      2,      1, 1e-6, 1000000 },
    .norms = NORM_AROUND, .scaled_embedding = true, .tied = true, .v_norm = true, .layer_scalar = true,
    .qk_norm = QK_NORM_HEADS,
    .windows = WINDOW_PERIODIC, .window = 512, .period = 6, .last_full = true,
    .members = HAS_ATTENTION_BIAS | HAS_LOGIT_CAP | HAS_LOCAL_ROPE | HAS_LAYER_SIZES,
    .proportional_rope = true, .rotary_part = 0.25, .local_rope_theta = 10000,
    .global_head_dim = 512, .per_layer_width = 256,
    .attention_scale = 1, .experts = &gemma4_moe,
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
  { .architecture = "InternLM3ForCausalLM", .model_type = "internlm3", /* InternLM3 8B */
    { 128512, 4096, 10240, 48, 32,  2, 128,  32768,      1,      2, 1e-5,   10000 },
    .members = HAS_ATTENTION_BIAS | HAS_MLP_BIAS },
  { .architecture = "IQuestCoderForCausalLM", .model_type = "iquestcoder", /* IQuest-Coder 7B to 40B */
    {  76800, 5120, 27648, 80, 40,  8, 128, 131072,      1,      2, 1e-5,   10000 },
    .members = HAS_ATTENTION_BIAS | HAS_MLP_BIAS | HAS_OFF_ONLY },
  { .architecture = "HeliumForCausalLM", .model_type = "helium", /* Helium 1 2B */
    {  48000, 2560,  7040, 24, 20, 20, 128,   4096,      1,      2, 1e-8,  100000 },
    .neighbours = true, .members = HAS_QKV_BIAS | HAS_MLP_BIAS },
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
    .members = HAS_PATTERN },
  { .architecture = "GraniteMoeHybridForCausalLM", .model_type = "granitemoehybrid", /* Granite 4.0, dense */
    {  32000, 4096,  1024, 32, 32,  0,   0,   2048,      1,      2, 1e-6,   10000 },
    .intermediate_key = "shared_intermediate_size", .fused_gate_up = true,
    .members = HAS_ATTENTION_BIAS | HAS_MULTIPLIERS | HAS_HYBRID_LAYERS,
    .names = { .gate_up = "shared_mlp.input_linear", .down = "shared_mlp.output_linear" } },
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
    .qkv_bias = true, .experts = &qwen2_moe },
  { .architecture = "Qwen3MoeForCausalLM", .model_type = "qwen3_moe", /* Qwen3-30B-A3B, Qwen3-Coder */
    { 151936, 2048,  6144, 24, 32,  4,   0,  32768,     -1,     -1, 1e-6,   10000 },
    .qk_norm = QK_NORM_HEADS, .members = HAS_ATTENTION_BIAS, .experts = &qwen3_moe },
  { .architecture = "Qwen3_5MoeForCausalLM", .model_type = "qwen3_5_moe_text", /* Qwen3.5, 3.6 A3B */
    { 248320, 2048,   512, 40, 16,  2, 256,  32768,     -1,     -1, 1e-6,   10000 },
    .norm_plus_one = true, .qk_norm = QK_NORM_HEADS, .attn_gate = ATTN_GATE_IN_Q, .rotary_part = 0.25,
    .members = HAS_ATTENTION_BIAS | HAS_PARTIAL_ROTARY | HAS_DELTA, .experts = &qwen3_5_moe },
  { .architecture = "Qwen3NextForCausalLM", .model_type = "qwen3_next", /* Qwen3-Next, Qwen3-Coder-Next */
    { 151936, 2048,  5632, 48, 16,  2, 256,  32768,     -1,     -1, 1e-6,   10000 },
    .norm_plus_one = true, .qk_norm = QK_NORM_HEADS, .attn_gate = ATTN_GATE_IN_Q, .rotary_part = 0.25,
    .members = HAS_ATTENTION_BIAS | HAS_PARTIAL_ROTARY | HAS_DELTA | HAS_INTERLEAVED_DELTA,
    .experts = &qwen3_next },
  { .architecture = "MixtralForCausalLM", .model_type = "mixtral",
    {  32000, 4096, 14336, 32, 32,  8,   0, 131072,      1,      2, 1e-5, 1000000 },
    .windows = WINDOW_ALL, .experts = &mixtral },
  { .architecture = "GptOssForCausalLM", .model_type = "gpt_oss", /* gpt-oss-20b, 120b */
    { 201088, 2880,  2880, 36, 64,  8,  64, 131072,     -1,     -1, 1e-5,  150000 },
    .o_bias = true, .attn_sinks = true, .windows = WINDOW_PERIODIC, .window = 128, .period = 2,
    .members = HAS_ATTENTION_BIAS | HAS_OWN_ROPE, .experts = &gpt_oss },
  { .architecture = "Glm4MoeForCausalLM", .model_type = "glm4_moe", /* GLM-4.5, 4.5-Air, 4.6, 4.7 */
    { 151552, 4096, 10944, 46, 96,  8,   0, 131072,     -1,     -1, 1e-5,   10000 },
    .qk_norm = QK_NORM_HEADS, .rotary_part = 0.5,
    .members = HAS_QKV_BIAS | HAS_PARTIAL_ROTARY | HAS_QK_NORM, .experts = &glm4_moe },
  { .architecture = "GraniteMoeForCausalLM", .model_type = "granitemoe", /* Granite 3.1 A400M, A800M */
    {  32000, 4096, 11008, 32, 32,  0,   0,   2048,      1,      2, 1e-6,   10000 },
    .members = HAS_ATTENTION_BIAS | HAS_MULTIPLIERS, .experts = &granite_moe },
  { .architecture = "OlmoeForCausalLM", .model_type = "olmoe", /* OLMoE-1B-7B */
    {  50304, 2048,  2048, 16, 16,  0,   0,   4096,     -1,  50279, 1e-5,   10000 },
    .qk_norm = QK_NORM_WHOLE, .members = HAS_ATTENTION_BIAS, .experts = &olmoe },
  { .architecture = "Ernie4_5_MoeForCausalLM", .model_type = "ernie4_5_moe", /* ERNIE 4.5 21B-A3B */
    { 103424, 2560, 12288, 28, 20,  4,   0, 131072,      1,      2, 1e-5,  500000 },
    .neighbours = true, .members = HAS_USE_BIAS, .tied = true, .experts = &ernie_moe },
  { .architecture = "Lfm2MoeForCausalLM", .model_type = "lfm2_moe", /* LFM2-8B-A1B */
    {  65536, 2048,  7168, 32, 32,  8,   0, 128000,      1,      2, 1e-5, 1000000 },
    .qk_norm = QK_NORM_HEADS, .tied = true, .eps_key = "norm_eps", .members = HAS_SHORT_CONV,
    .names = { .attn_norm = "operator_norm", .mlp_norm = "ffn_norm", .final_norm = "embedding_norm",
               .q_norm = "self_attn.q_layernorm", .k_norm = "self_attn.k_layernorm",
               .o = "self_attn.out_proj",
               .gate = "feed_forward.w1", .up = "feed_forward.w3", .down = "feed_forward.w2" },
    .experts = &lfm2_moe },
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
    .qkv_bias = true, .tied = true,
    .windows = WINDOW_BY_LAYER, .window = 32768, .max_window_layers = 28 },
  { .model_type = "qwen3_vl_text", /* Qwen3-VL 2B to 32B */
    { 151936, 4096, 22016, 32, 32, 32, 128, 128000,     -1,     -1, 1e-6,  500000 },
    .qk_norm = QK_NORM_HEADS, .members = HAS_ATTENTION_BIAS },
  { .model_type = "qwen3_vl_moe_text", /* Qwen3-VL 30B-A3B, 235B-A22B */
    { 151936, 2048,  5632, 24, 16, 16,   0, 128000,     -1,     -1, 1e-6,  500000 },
    .qk_norm = QK_NORM_HEADS, .members = HAS_ATTENTION_BIAS, .tied = true, .experts = &qwen3_vl_moe },
  { .model_type = "qwen3_omni_moe_text", /* Qwen3-Omni's thinker */
    {   3584, 2048, 18944, 28, 28,  4,   0,  32768,     -1,     -1, 1e-6, 1000000 },
    .qk_norm = QK_NORM_HEADS, .members = HAS_ATTENTION_BIAS, .experts = &qwen3_omni_moe },
  { .model_type = "glm4v_text", /* GLM-4.1V, 4.6V-Flash */
    { 151552, 4096, 13696, 40, 32,  2,   0,  32768,     -1,     -1, 1e-5,   10000 },
    .qkv_bias = true, .fused_gate_up = true, .neighbours = true,
    .members = HAS_PARTIAL_ROTARY, .norms = NORM_AROUND,
    .names = { .attn_post_norm = "post_self_attn_layernorm", .mlp_norm = "post_attention_layernorm",
               .mlp_post_norm = "post_mlp_layernorm" } },
  { .model_type = "glm4v_moe_text", /* GLM-4.5V, 4.6V */
    { 151424, 4096, 10944, 46, 96,  8,   0,  65536,     -1,     -1, 1e-5,   10000 },
    .qkv_bias = true, .rotary_part = 0.5, .members = HAS_QKV_BIAS | HAS_PARTIAL_ROTARY,
    .experts = &glm4_moe },
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
                                                   [ACTIVATION_CLAMPED] = "clamped silu"};
  return names[activation];
}

const Architecture *architecture_find(const char *architecture, const char *model_type) {
  for (size_t i = 0; i < n_architectures; i++) {
    const Architecture *row = &architectures[i];
    if (row->architecture &&
        (architecture ? strcmp(architecture, row->architecture) : strcmp(model_type, row->model_type)) == 0)
      return row;
  }
  return NULL;
}

const Architecture *architecture_of_type(const char *model_type) {
  for (size_t i = 0; i < n_architectures; i++)
    if (strcmp(architectures[i].model_type, model_type) == 0) return &architectures[i];
  return NULL;
}
