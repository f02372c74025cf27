/* architectures.h - how each architecture differs from Llama, and the defaults of its config.
 *
 * architectures.c is the only table with names of models: config.c turns a row of it and a config.json into
 * the fields of ModelConfig, and only these decide what loaders and backends do. A model family that needs
 * nothing new is one more row. */
#pragma once

#include "model/config/config.h"
#include "model/config/reader.h"

/* Which layers have a sliding window. */
typedef enum {
  WINDOW_NONE,        /* no layer, whatever the config says of windows */
  WINDOW_ALL,         /* all layers, if sliding_window is given */
  WINDOW_BY_LAYER,    /* if use_sliding_window: by layer_types, else the layers from max_window_layers on */
  WINDOW_FROM_LAYER,  /* the same, whatever use_sliding_window says */
  WINDOW_PERIODIC,    /* by layer_types, else all but every n-th, n being sliding_window_pattern */
  WINDOW_AFTER_FULL,  /* by layer_types, else all but the first of every n */
  WINDOW_FIRST_FULL,  /* by layer_types, else all but the first and every n-th */
  WINDOW_BEFORE_LAST, /* by layer_types, else all but every n-th counted back from the last, which is none */
  WINDOW_OR_NOPE,  /* as WINDOW_PERIODIC, the other layers without rope; null: no windows, rope everywhere */
  WINDOW_AND_NOPE, /* the same, but there must be a window */
  WINDOW_SOME_FULL_NOPE, /* the same, without layer_types: the first, every n-th from the second on and the
                          * last have no window */
  WINDOW_NOPE,           /* if use_sliding_window: by layer_types, else the NoPE layers */
} WindowRule;

/* Members of config.json that only some architectures have; the others ignore them, as transformers does. */
enum {
  HAS_ATTENTION_BIAS = 1 << 0, /* attention_bias: q, k, v and o have one */
  HAS_MLP_BIAS = 1 << 1,       /* mlp_bias: gate, up and down have one */
  HAS_MULTIPLIERS = 1 << 2,    /* embedding_, attention_, residual_multiplier and logits_scaling */
  HAS_QUERY_SCALAR = 1 << 3,   /* query_pre_attn_scalar: scores are scaled by its square root's reciprocal */
  HAS_ATTENTION_CAP = 1 << 4,  /* attn_logit_softcapping */
  HAS_LOGIT_CAP = 1 << 5,      /* final_logit_softcapping */
  HAS_NOPE = 1 << 6,           /* no_rope_layers, else every no_rope_layer_interval-th: NoPE layers */
  HAS_PARTIAL_ROTARY = 1 << 7, /* partial_rotary_factor */
  HAS_LOCAL_ROPE = 1 << 8,     /* another rope in windowed layers: rope_parameters has one for each kind */
  HAS_ROTARY_DIM = 1 << 9,     /* rotary_dim: partial_rotary_factor times head_dim, if that is absent */
  HAS_DELTA = 1 << 20,         /* linear_...: layers with the gated delta rule */
  HAS_QKV_BIAS = 1 << 11,      /* attention_bias: q, k and v have one; absent: as qkv_bias below */
  HAS_OUT_BIAS = 1 << 12,      /* attention_out_bias: o has one */
  HAS_QUERY_SCALE = 1 << 13, /* llama_4_scaling_beta among a rope's parameters, which are YaRN's by default */
  HAS_ALPHA = 1 << 14,       /* alpha of the rope type "dynamic": theta times alpha^(dim / (dim - 2)) */
  HAS_USE_BIAS = 1 << 15,    /* use_bias: all linear layers have one */
  HAS_HYBRID_LAYERS = 1 << 16, /* layer_types may name Mamba-2 layers, mamba_...; position_embedding_type */
  HAS_LAYER_THETA = 1 << 17,   /* layer_rope_theta: a theta for each layer, 0 for no rope */
  HAS_LAYER_ROPE = 1 << 18,  /* layer_rope_theta: 0 for no rope, else the model's; absent: 0 in full layers */
  HAS_QK_FACTOR = 1 << 19,   /* qk_scale_factor, output_multiplier, post_norm_eps */
  HAS_LOCAL_THETA = 1 << 10, /* rope_local_base_freq: that rope's theta */
  HAS_LAYER_SIZES = 1 << 21, /* global_head_dim, per_layer_config and the like (layer_sizes.c) */
  HAS_SHORT_CONV = 1 << 22,  /* conv_L_cache, conv_bias: layers with a short convolution (short_conv.c) */
  HAS_BLOCK_WIDTH = 1 << 23, /* block_ff_dim and what adjusts it, full_attn_idxs, tie_embedding (LFM2) */
  HAS_SANDWICH = 1 << 24,    /* use_sandwich_norm, use_attention_gate, windows in some layers (LFM3) */
  HAS_QK_NORM = 1 << 25,     /* use_qk_norm: qk_norm below only if it is true, refused without one */
  HAS_OWN_ROPE = 1 << 26,    /* rope parameters must be given: the default is a scaling of its own */
  HAS_INTERLEAVED_DELTA = 1 << 27, /* delta layers are stored by key head (DeltaConfig.interleaved) */
  HAS_MUP = 1 << 28,               /* mup_enabled: as scaled_embedding below */
  HAS_POST_NORM = 1 << 29, /* use_post_norm; logits_scaling is a factor, not a divisor (HyperCLOVA X) */
  HAS_OFF_ONLY = 1 << 30,  /* use_sliding_window and clip_qkv must be off (IQuest-Coder) */
};

enum { MAX_FACTOR = 1000000 }; /* of activations: a larger one is likely a mistake */

/* Which layers have experts. */
typedef enum {
  EXPERTS_EVERYWHERE,
  EXPERTS_BY_STEP,     /* decoder_sparse_step, mlp_only_layers */
  EXPERTS_AFTER_FIRST, /* all but the first, whose number n_dense_key says */
  EXPERTS_BY_TYPE,     /* by mlp_layer_types, else as EXPERTS_AFTER_FIRST; n_dense_key NULL: n_dense */
  EXPERTS_IN_LIST,     /* moe_layers, else every interleave_moe_layer_step-th */
  EXPERTS_IN_INTERVAL, /* moe_layer_start_index, moe_layer_end_index, moe_layer_interval */
} ExpertLayers;

/* If the weights of the chosen experts are divided by their sum: norm_topk_prob may say it. */
typedef enum {
  RENORMALISE_NEVER,
  RENORMALISE_ALWAYS,
  RENORMALISE_BY_KEY,
  RENORMALISE_UNLESS_KEY
} Renormalise;

/* How the experts of an architecture are configured; numbers are defaults of absent members. */
typedef struct {
  struct {
    int n_experts, n_chosen; /* 0: the config must say it */
    int width;               /* moe_intermediate_size; 0: experts are as wide as intermediate_size says */
    ExpertScore score;
    Renormalise renormalise;
  };
  const ExpertNames *names;
  ExpertLayers layers;
  const char *width_key; /* another name of moe_intermediate_size, or NULL */
  bool may_be_none;      /* num_local_experts may be 0: the model is dense */
  double sum_plus;
  const char *n_dense_key;   /* with EXPERTS_AFTER_FIRST */
  int n_dense, dense_layers; /* dense_layers: the first so many, where mlp_only_layers is absent */
  const char *shared_width_key, *shared_count_key; /* of the MLP beside experts: its width, or as how many */
  int shared_width, n_shared;
  const char *enable_key; /* experts are there only if this is true; NULL: always */
  const char *bias_key;   /* choice_bias is there unless this is false; NULL: always if it has a name */
  const char *jitter_key; /* of SCORE_CHOSEN_NEAR: half of ExpertConfig.near, by default `jitter` */
  double jitter;
  bool scales_input, shared_gate, own_norms, biases; /* as in ExpertConfig; biases: also the router's */
  bool post_norm;                                    /* likewise */
  bool by_function; /* expert_selection_fn says what `score` is (Command A+) */
  bool may_average; /* shared_expert_combination_strategy: half of the sum with the MLP beside them, or all */
  const char *scale_key;         /* routed_scaling_factor, or another name; NULL: none */
  double scale;                  /* its default; 0: 1 */
  bool grouped;                  /* n_group, topk_group */
  int n_groups, n_chosen_groups; /* their defaults; 0: 1 */
  bool by_frequency; /* moe_layer_freq: layers whose number is no multiple of it have no experts either */
  bool by_method;    /* topk_method says whether groups count, by their best expert */
  bool latent;       /* moe_latent_size */
  /* Members have names of their own, num_experts_per_token, moe_renormalize, num_expert_group and
   * num_shared_experts, which count more than those that transformers also takes (Kimi Linear). */
  bool kimi_names;
  bool lists;   /* numbers of experts may be lists, of one number for each layer */
  bool clamped; /* the activation is ACTIVATION_CLAMPED */
} ExpertFamily;

/* One for each architecture with experts (expert_families.c). */
extern const ExpertFamily experts_of_qwen2_moe, experts_of_qwen3_moe, experts_of_qwen3_vl_moe,
    experts_of_qwen3_omni_moe, experts_of_qwen3_next, experts_of_qwen3_5_moe, experts_of_qwen4_exp,
    experts_of_mixtral, experts_of_olmoe, experts_of_gpt_oss, experts_of_granite_moe, experts_of_gemma4_moe,
    experts_of_glm4_moe, experts_of_glm4_moe_lite, experts_of_deepseek_v3, experts_of_deepseek_v2,
    experts_of_mistral4, experts_of_nemotron_moe, experts_of_ernie_moe, experts_of_lfm2_moe,
    experts_of_minimax_m2, experts_of_mellum, experts_of_dots1, experts_of_hunyuan_moe, experts_of_exaone_moe,
    experts_of_solar_open, experts_of_hy_v3, experts_of_granite_moe_shared, experts_of_granite_hybrid,
    experts_of_granite_moe_swa, experts_of_afmoe, experts_of_flex_olmo, experts_of_kolibri1,
    experts_of_laguna, experts_of_flint, experts_of_llama4, experts_of_mimo, experts_of_phimoe,
    experts_of_cohere2_moe, experts_of_axk1, experts_of_kimi_linear, experts_of_ling;

typedef struct {
  /* architecture is NULL if this is the text part of multimodal models alone. */
  const char *architecture, *model_type; /* "Gemma3ForCausalLM", "gemma3_text" */

  struct { /* defaults of absent members */
    int vocab_size, hidden, intermediate, n_layers, n_heads;
    int n_kv_heads; /* 0: n_heads */
    int head_dim;   /* 0: hidden / n_heads */
    int max_position;
    int bos, eos; /* -1: none */
    double norm_eps, rope_theta;
  };
  LatentConfig latent; /* with latent_attention: likewise */

  /* Differences from Llama: zero means as in Llama. */
  NormPlacement norms;
  bool norm_plus_one;                /* norms multiply by 1 + weight */
  bool centred, parallel, norm_bias; /* as in ModelConfig */
  QkNorm qk_norm;
  bool qk_norm_after_rope;
  bool v_norm, layer_scalar; /* as in ModelConfig */
  TensorNames names;
  const ExpertFamily *experts;                          /* NULL: the architecture has none */
  bool qk_norm_plain, final_norm_plain, embedding_norm; /* as in ModelConfig */
  AttnGate attn_gate;
  /* num_attention_heads_per_layer; gating: gates by head or by number, which are softplus (Laguna) */
  bool own_heads_and_gates;
  bool attn_sinks;       /* each head's softmax has one more logit, which is dropped after */
  bool qkv_bias;         /* q, k and v have a bias, whatever the config says unless HAS_QKV_BIAS */
  bool o_bias;           /* default of HAS_ATTENTION_BIAS */
  bool head_bias;        /* lm_head_bias: lm_head has one */
  bool fused;            /* q, k, v are stored as one matrix, gate and up as another */
  bool fused_gate_up;    /* gate and up are stored as one matrix; q, k and v are not */
  bool latent_attention; /* q_lora_rank, kv_lora_rank and sizes of heads (LatentConfig) */
  bool neighbours;       /* rotary pairs are (2 i, 2 i + 1) */
  bool gelu_is_tanh;     /* the activation "gelu" is gelu_pytorch_tanh */
  bool ungated;          /* as in ModelConfig; no other activation than the default is accepted */
  bool attn_indices;     /* with HAS_HYBRID_LAYERS: attn_layer_indices, and a rope in those layers (Bamba) */
  bool mamba_beside;     /* every layer has both attention and Mamba-2, each with factors (Falcon-H1) */
  /* With HAS_DELTA. The delta rule's q, k and v are three matrices. Its layers have norms before the rule and
   * the MLP, whatever `norms` is. A rope_theta of null means that no layer has a rope (Olmo Hybrid). */
  bool delta_apart;
  /* Layers have the delta rule with a decay for each number of a key, or latent attention (Kimi Linear, Ling
   * 3.0). low_rank_gates: the rule's gates are made by two matrices each, and its sizes and layers stand in
   * linear_attn_config (Kimi Linear). */
  bool channel_delta, low_rank_gates;
  bool no_rope;           /* no layer has a rope, and members of ropes do not count */
  bool kimi_names;        /* model_max_length counts more than max_position_embeddings */
  bool single_blocks;     /* a layer mixes tokens or is an MLP: layers_block_type (Nemotron-H) */
  bool may_be_encoder;    /* use_bidirectional_attention is read, as where windows are WINDOW_PERIODIC */
  bool scaled_embedding;  /* the embedding is multiplied by sqrt(hidden) */
  bool longrope_only;     /* rope scaling is longrope, without mscales also under the names "su" and "yarn" */
  bool mscales;           /* longrope's attention factors are short_mscale and long_mscale (PhiMoE) */
  bool depth_scale;       /* scale_emb, scale_depth, dim_model_base (MiniCPM) */
  bool mrope;             /* the rope type "mrope" is the plain one, as it is for text */
  bool xdrope;            /* the rope type "xdrope" is "dynamic", as it is for text (HunyuanOCR) */
  bool proportional_rope; /* that of layers without a window; ropes stand in rope_parameters alone */
  bool ropes_in_objects;  /* so do Mellum's and Laguna's; rope_theta beside it is not read */
  bool dense_prefix;      /* first_k_dense_replace and what goes with it (dense_prefix.c) */
  bool may_be_rms;        /* norms are not centred where rms_norm_eps is given, which is then epsilon */
  bool value_heads;       /* v_head_dim and what goes with it (value_heads.c) */
  bool both_rotary;       /* rotary_part is that of both ropes, also of objects without a part */
  bool chunked; /* attention_chunk_size, and what differs between layers with and without a rope (chunks.c) */
  bool streams; /* hc_..., ple_..., indexer_...: hyper-connections, n-grams, sparse attention (streams.c) */
  bool altup;   /* altup_..., laurel_rank, activation_sparsity_pattern and what goes with them (altup.c) */
  bool last_full; /* the last layer has no window, whatever layer_types says */
  WindowRule windows;
  unsigned members;             /* HAS_... */
  const char *intermediate_key; /* config.json's key for the MLP's width; NULL: "intermediate_size" */
  const char *dense_key;        /* its key in layers without experts, where it is given; or NULL */
  const char *activation_key;   /* config.json's key for the activation; NULL: "hidden_act" */
  const char *other_name;       /* another name of `architecture`, or NULL */
  const char *other_type;       /* a model_type that means the same beside `architecture`, or NULL */
  const char *head_dim_key;     /* config.json's key where "head_dim" is absent, or NULL */
  const char *eps_key;          /* config.json's key for epsilon; NULL: "rms_norm_eps" */
  /* Keys that count beside another one, or NULL: for the longest context where it is larger than
   * max_position_embeddings; for the window without the position itself, in place of sliding_window. */
  const char *length_key, *before_key;

  /* Defaults of members that Llama does not have, or has with zero as default. */
  int original_max_position; /* 0: max_position */
  int window;                /* 0: none */
  int more_eos[2];           /* besides eos; they also stand for an eos_token_id of null. 0: none */
  double rotary_part;        /* partial_rotary_factor, or that of the proportional rope; 0: 1 */
  int period;                /* WINDOW_PERIODIC and others of that kind */
  const char *period_key;    /* config.json's key for it; NULL: none */
  int per_layer_width;       /* hidden_size_per_layer_input */
  int per_layer_vocab;       /* vocab_size_per_layer_input; 0: vocab_size */
  int n_kv_shared;           /* num_kv_shared_layers */
  int global_head_dim;       /* head_dim of layers without a window */
  double attention_scale;    /* 0: head_dim^-1/2, or by members */
  int max_window_layers;     /* WINDOW_BY_LAYER and WINDOW_FROM_LAYER */
  bool tied;
  Activation activation;
  double logit_scale; /* default of logit_scale, a factor of logits; 0: the config has no such member */
  double local_rope_theta, query_scalar, attention_cap, logit_cap;

  struct { /* with HAS_MULTIPLIERS; 0: 1 */
    double embedding, attention, residual, logits;
  } multipliers;
} Architecture;

extern const Architecture architectures[];
extern const size_t n_architectures;

/* Where the config of a text part is: in text_config, whose model_type is always the same, or any that is in
 * `architectures`; in config.json itself if there is no text_config; in that of thinker_config. */
typedef enum { ONE_TEXT, ANY_TEXT, FLAT_TEXT, THINKER_TEXT } TextPlace;

/* A model of several parts. The text part alone is computed. */
typedef struct {
  const char *architecture, *model_type; /* "Gemma3ForConditionalGeneration", "gemma3" */
  const char *text;                      /* model_type of its text part, also where text_config has none */
  TextPlace is;
  const char *old_text;     /* another name of `text`, or NULL */
  const char *text_key;     /* config.json's key for the text part; NULL: "text_config" */
  const char *old_text_key; /* its key where that one is absent, or NULL */
} Multimodal;

/* The row of this architecture or, if that is NULL, of this model_type; NULL if there is no such row. */
const Architecture *architecture_find(const char *architecture, const char *model_type);
const Multimodal *multimodal_find(const char *architecture, const char *model_type);

/* The row of this model_type, also of text parts alone; NULL if there is none. */
const Architecture *architecture_of_type(const char *model_type);

/* The row of the text part whose config has this model_type, or NULL for none; NULL if it is refused. */
const Architecture *multimodal_text(const Multimodal *whole, const char *model_type);

/* Fills delta and the kinds of layers (delta.c) of an architecture that HAS_DELTA. PRECOND config->layers is
 * allocated. */
Status config_parse_delta(const ConfigReader *r, const Architecture *arch, ModelConfig *config);
/* The same for an architecture with delta_apart, and the ropes and norms of layers. PRECOND the rope is
 * filled. */
Status config_parse_delta_apart(const ConfigReader *r, ModelConfig *config);

/* The same for an architecture with channel_delta. */
Status config_parse_channel_delta(const ConfigReader *r, const Architecture *arch, ModelConfig *config);

/* Fills value_dim and value_scale, and the KV heads and sinks of layers (value_heads.c). PRECOND the windows
 * of layers are filled. */
Status config_parse_value_heads(const ConfigReader *r, ModelConfig *config);
/* Refuses members that transformers does not read where they contradict the config. PRECOND all of it is
 * filled but for quantisation and special tokens. */
Status config_check_value_heads(const ConfigReader *r, const ModelConfig *config);

/* Fills the windows and ropes of layers of an architecture with dense_prefix (dense_prefix.c). PRECOND
 * windows and experts are filled. */
Status config_parse_dense_prefix(const ConfigReader *r, const Architecture *arch, ModelConfig *config);

/* Fills the chunks of layers, whether they normalise q and k, and how queries grow (chunks.c). PRECOND the
 * ropes of layers are filled. */
Status config_parse_chunks(const ConfigReader *r, ModelConfig *config);

/* Fills streams, ngrams, which layers have these, indexer, and delta.gate_is_sigmoid (streams.c). PRECOND the
 * rope, the kinds of layers and delta are filled. */
Status config_parse_streams(const ConfigReader *r, ModelConfig *config);

/* Fills altup, the sparsity of layers, the widths of their MLPs, and what layers share (altup.c). PRECOND the
 * windows of layers are filled. */
Status config_parse_altup(const ConfigReader *r, const Architecture *arch, ModelConfig *config);

/* Fills delta, the kinds of layers and their ropes (mamba.c) of an architecture that HAS_HYBRID_LAYERS.
 * PRECOND as above; the activation is filled. */
Status config_parse_mamba(const ConfigReader *r, const Architecture *arch, ModelConfig *config);

/* The same of an architecture with mamba_beside, and the factors of all parts. PRECOND as above; factors are
 * those of Llama. */
Status config_parse_beside(const ConfigReader *r, ModelConfig *config);

/* The same of an architecture with single_blocks, and which layers have an MLP, or experts (mamba.c). PRECOND
 * n_layers is config_count_blocks(), the number of layers that the config lists. */
Status config_parse_blocks(const ConfigReader *r, ModelConfig *config);
Status config_count_blocks(const ConfigReader *r, int *n_layers);

/* Fills latent, n_heads, n_kv_heads and head_dim of an architecture with latent_attention (latent.c), and
 * attention_scale once the rope is filled. */
Status config_parse_latent(const ConfigReader *r, const Architecture *arch, ModelConfig *config);
void config_scale_latent(ModelConfig *config);

/* Fills experts, their names, and which layers are dense (experts.c). PRECOND config->layers is
 * allocated; the activation and the MLP's width are filled. */
Status config_parse_experts(const ConfigReader *r, const Architecture *arch, ModelConfig *config);

/* Fills conv, the kinds and windows of layers and the MLP's width (short_conv.c) of an architecture that
 * HAS_SHORT_CONV. PRECOND config->layers is allocated. */
Status config_parse_short_conv(const ConfigReader *r, const Architecture *arch, ModelConfig *config);

/* Fills the sizes in which layers differ (layer_sizes.c). PRECOND the layers' windows are filled. */
Status config_parse_layer_sizes(const ConfigReader *r, const Architecture *arch, ModelConfig *config);
/* The parts of it that Gemma 3n shares: num_kv_shared_layers, and per-layer embeddings. */
Status config_parse_shared(const ConfigReader *r, const Architecture *arch, ModelConfig *config);
Status config_parse_layer_inputs(const ConfigReader *r, const Architecture *arch, ModelConfig *config);
/* Fills the layers' numbers of heads and the kind of attention's gates, of own_heads_and_gates. PRECOND
 * config->layers is allocated. */
Status config_parse_layer_heads(const ConfigReader *r, ModelConfig *config);

/* Fills rope, local_rope, and the windows and ropes of layers (positions.c). PRECOND sizes are filled. */
Status config_parse_positions(const ConfigReader *r, const Architecture *arch, ModelConfig *config);

/* Fills sizes, arithmetic, positions and experts from the object of a text model (config.c), and how weights
 * are quantised, which may stand in the file's own object or in that one. */
Status config_parse_text(const ConfigReader *text, const Architecture *arch, ModelConfig *config);
Status config_parse_quantization(const ConfigReader *r, const ConfigReader *text, ModelConfig *config);
/* The rules of quantization are not more than linear layers. */
Status config_limit_rules(const char *file, ModelConfig *config, Error *err);

/* Refuses a drafter where a model is expected (draft.c). */
Status config_refuse_draft(const ConfigReader *r);
/* Refuses a drafter that does not fit the target, and fills what depends on it (draft.c). */
Status config_fit_draft(const char *file, const ModelConfig *target, ModelConfig *config, Error *err);
