/* architectures.h - how each architecture differs from Llama, and the defaults of its config.
 *
 * Only architectures.c and multimodal.c have tables with names of architectures. config.c turns a row of
 * architectures.c and a config.json into the fields of ModelConfig. These fields alone decide what loaders
 * and backends do. A model family that needs nothing new is one more row. */
#pragma once

#include "model/config/config.h"
#include "model/config/reader.h"

/* Which layers have a sliding window (config_parse_windows()). */
typedef enum {
  WINDOW_NONE,        /* no layer: sliding_window is ignored, layer_types with windows is refused */
  WINDOW_ALL,         /* all layers; none if sliding_window is null, or absent without a default */
  WINDOW_BY_LAYER,    /* if use_sliding_window: by layer_types, else layers >= max_window_layers */
  WINDOW_FROM_LAYER,  /* as WINDOW_BY_LAYER, whatever use_sliding_window says */
  WINDOW_PERIODIC,    /* by layer_types, else all but every n-th; n: the period of `windows` */
  WINDOW_AFTER_FULL,  /* by layer_types, else all but the first of every n */
  WINDOW_FIRST_FULL,  /* by layer_types, else all but the first and every n-th */
  WINDOW_BEFORE_LAST, /* by layer_types, else all but the last and every n-th before it */
  /* As WINDOW_PERIODIC, and layers without a window have no rope. If sliding_window is null, no layer has a
   * window and all have a rope. */
  WINDOW_OR_NOPE,
  WINDOW_AND_NOPE, /* as WINDOW_OR_NOPE, but a null sliding_window is refused */
  /* As WINDOW_AND_NOPE. Without layer_types, layers without a window are the first, the second and every n-th
   * after the second, and the last. */
  WINDOW_SOME_FULL_NOPE,
  WINDOW_NOPE, /* if use_sliding_window: by layer_types, else the NoPE layers */
} WindowRule;

/* The rope types that a config may name besides "default". */
typedef enum {
  ROPES_USUAL,        /* "linear", "llama3", "yarn", "longrope" and "dynamic" */
  ROPES_MROPE,        /* as ROPES_USUAL, and "mrope", which for text is the plain rope */
  ROPES_OTHER_YARN,   /* as ROPES_USUAL, and "deepseek_yarn", which is "yarn" (Sarvam) */
  ROPES_XDROPE,       /* as ROPES_USUAL, and "xdrope", which for text is "dynamic" (HunyuanOCR) */
  ROPES_LONG,         /* "longrope" alone, also under the names "su" and "yarn" */
  ROPES_LONG_MSCALES, /* "longrope" alone, with attention factors short_mscale and long_mscale (PhiMoE) */
  ROPES_PROPORTIONAL, /* "proportional" alone; rope_parameters has a rope for each kind of layer */
} RopeTypes;

/* Traits that an architecture has and others lack. Traits before QKV_BIAS stand for members of config.json.
 * An architecture without the trait ignores the member, as transformers does, or refuses it. */
typedef enum {
  END_OF_TRAITS,
  ATTENTION_BIAS, /* attention_bias: q, k, v and o have a bias */
  QKV_BIAS_KEY,   /* attention_bias: q, k and v have a bias; absent: as QKV_BIAS says */
  OUT_BIAS,       /* attention_out_bias: o has a bias */
  MLP_BIAS,       /* mlp_bias: gate, up and down have a bias */
  USE_BIAS,       /* use_bias: q, k, v, o, gate, up and down have a bias */
  HEAD_BIAS,      /* lm_head_bias: lm_head has a bias */
  MULTIPLIERS,    /* embedding_, attention_, residual_multiplier and logits_scaling */
  QUERY_SCALAR,   /* query_pre_attn_scalar: scores are divided by the square root of this */
  ATTENTION_CAP,  /* attn_logit_softcapping */
  LOGIT_CAP,      /* final_logit_softcapping */
  PARTIAL_ROTARY, /* partial_rotary_factor */
  ROTARY_DIM,     /* rotary_dim: rotary_dim / head_dim is the default of partial_rotary_factor */
  LOCAL_ROPE,     /* another rope in windowed layers: rope_parameters has a rope for each kind */
  LOCAL_THETA,    /* rope_local_base_freq: theta of the rope in windowed layers */
  QUERY_SCALE,    /* llama_4_scaling_beta among rope parameters; without these, a fixed YaRN and beta */
  ALPHA,          /* alpha of rope types "dynamic", "xdrope": theta times alpha^(d / (d - 2)), d = head_dim */
  QK_FACTOR,      /* qk_scale_factor, output_multiplier, post_norm_eps */
  USE_QK_NORM,    /* use_qk_norm: if true, the row's qk_norm holds, and QK_NORM_NONE is refused */
  QK_NORM_USUAL,  /* the default of use_qk_norm is true */
  SOME_SCALED,    /* rope_scaling_layers must be absent if the rope is scaled (Molmo 2) */
  OWN_ROPE,       /* rope parameters must be given: transformers' default is a scaled rope */
  MUP,            /* mup_enabled: if true, as SCALED_EMBEDDING */
  POST_NORM,      /* use_post_norm; logits_scaling is a factor, not a divisor (HyperCLOVA X) */
  OUTPUT_VOCAB,   /* output_vocab_size: the output head has only this many tokens, the first ones */
  NO_CLIP,        /* clip_qkv must be absent or null */
  MULTI_QUERY,    /* multi_query: one KV head */
  CLIP,           /* clip_qkv */
  USE_QKV_BIAS,   /* use_qkv_bias: as QKV_BIAS_KEY */
  PARALLEL_KEY,   /* use_parallel_residual: overrides PARALLEL, its default */
  QK_LAYERNORM,   /* qk_layernorm: if true, the row's qk_norm holds */
  BLOCK_WIDTH,    /* block_ff_dim and the block_ members that adjust it (LFM2) */
  SANDWICH,       /* use_sandwich_norm, use_attention_gate, windows in some layers (LFM3) */
  MAY_BE_ENCODER, /* use_bidirectional_attention must be false, as in rows with WINDOW_PERIODIC */
  MAY_BE_RMS,     /* if rms_norm_eps is given, it is epsilon, and norms are not centred */
  DEPTH_SCALE,    /* scale_emb, scale_depth, dim_model_base (MiniCPM) */
  MAX_LENGTH,     /* model_max_length overrides max_position_embeddings */
  CHOICES,        /* expert_selection_fn, shared_expert_combination_strategy (Command A+) */
  GROUPED,        /* n_group, topk_group */
  METHOD_KEY,     /* topk_method says whether experts are chosen in groups, scored by their best expert */
  FREQUENCY_KEY,  /* moe_layer_freq: layers with experts have numbers that are multiples of this */
  LATENT_EXPERTS, /* moe_latent_size */
  LISTS,          /* numbers of experts may be lists, with the same number for each layer */
  MAY_LACK_EXPERTS, /* num_local_experts may be 0: the model is dense */
  /* Traits from here on have no member in config.json. A trait without a comment sets the bool of ModelConfig
   * that has the same name. */
  QKV_BIAS,
  BIASED,         /* the default of ATTENTION_BIAS, MLP_BIAS, USE_BIAS and HEAD_BIAS */
  PARALLEL,       /* sets `parallel` to PARALLEL_ONE_NORM */
  PARALLEL_NORMS, /* sets it to PARALLEL_TWO_NORMS where layers are parallel */
  NORMS_PLAIN,
  EMBEDDING_NORM,
  LEARNED_POSITIONS,
  QK_NORM_AFTER_ROPE,
  V_NORM,
  SCALED_LAYERS, /* sets layer_scalar */
  ATTN_SINKS,
  NEIGHBOURS,       /* sets RopeConfig.neighbours */
  BACKWARDS,        /* sets RopeConfig.backwards */
  TIED,             /* the default of tie_word_embeddings */
  SCALED_EMBEDDING, /* the embedding is multiplied by sqrt(hidden) */
  SCALES_INPUT,     /* this and the next four set members of ExpertConfig */
  SHARED_GATE,
  OWN_NORMS,
  POST_NORM_OF_SUM,
  EXPERT_BIASES,
  CLAMPED,      /* the activation of experts is ACTIVATION_CLAMPED */
  GELU_IS_TANH, /* the activation "gelu" is gelu_pytorch_tanh */
  NO_ROPE,      /* no layer has a rope, and members of ropes are ignored */
  /* The ropes are in rope_parameters. rope_theta is ignored, and rope_scaling is refused if it scales. */
  ROPES_IN_OBJECTS,
  BOTH_ROTARY,     /* rotary_part is partial_rotary_factor's default for both ropes, also in their objects */
  NO_ROPE_SCALING, /* transformers ignores rope_scaling, so it is refused if it scales (Command A+) */
  LAST_FULL,       /* the last layer has no window, whatever layer_types says */
} Trait;
enum { MAX_TRAITS = 12, MAX_FIXED = 9 };

enum { MAX_FACTOR = 1000000 }; /* of factors, limits and caps in a config: larger ones are likely mistakes */

/* Which layers have experts. */
typedef enum {
  EXPERTS_EVERYWHERE,
  EXPERTS_BY_STEP,     /* decoder_sparse_step, mlp_only_layers */
  EXPERTS_AFTER_FIRST, /* all but the first layers, whose number experts.dense gives */
  EXPERTS_BY_TYPE,     /* by mlp_layer_types, else as EXPERTS_AFTER_FIRST */
  EXPERTS_IN_TEXT,     /* as EXPERTS_BY_TYPE, or by moe_layers_enum: "3,4,5" */
  EXPERTS_IN_LIST,     /* moe_layers, else every interleave_moe_layer_step-th */
  EXPERTS_IN_INTERVAL, /* as EXPERTS_AFTER_FIRST, but also by moe_layer_end_index and moe_layer_interval */
} ExpertLayers;

/* When the weights of the chosen experts are divided by their sum. BY_KEY: if norm_topk_prob is true;
 * UNLESS_KEY: unless it is false. */
typedef enum {
  RENORMALISE_NEVER,
  RENORMALISE_ALWAYS,
  RENORMALISE_BY_KEY,
  RENORMALISE_UNLESS_KEY
} Renormalise;

typedef struct Architecture Architecture;
/* Fills a part of a config from its members. */
typedef Status ParsePart(const ConfigReader *r, const Architecture *arch, ModelConfig *config);

/* A member of config.json and its default; key NULL: there is no such member, and `usual` holds. */
typedef struct {
  const char *key;
  int usual;
} IntMember;
typedef struct {
  const char *key;
  double usual;
} DoubleMember;

struct Architecture {
  /* architecture is NULL for a text part that occurs only within multimodal models. */
  const char *architecture, *model_type; /* "Gemma3ForCausalLM", "gemma3_text" */
  const char *models;                    /* published models, for `auk inspect --architectures` */

  struct {                                                   /* defaults of absent members */
    int vocab_size, hidden, intermediate, n_layers, n_heads; /* intermediate 0: 4 * hidden */
    int n_kv_heads;                                          /* 0: n_heads */
    int head_dim;                                            /* 0: hidden / n_heads */
    int max_position;
    int bos, eos; /* -1: none */
    double norm_eps, rope_theta;
  };
  uint8_t traits[MAX_TRAITS]; /* see has() */

  /* layers: fills the kinds of layers and their windows; NULL: config_parse_windows(). sizes: then fills what
   * else differs between layers, or NULL. last: fills or checks what needs the whole config, or NULL. */
  ParsePart *layers, *sizes, *last;

  /* As in ModelConfig. */
  NormKind norm;
  NormPlacement norms;
  QkNorm qk_norm;
  AttnGate attn_gate;
  FusedMatrices fused;
  Activation activation; /* default; config.json can replace an ungated one only if both are GELUs */
  TensorNames names;
  LatentConfig latent; /* defaults; kv_rank 0: the model has usual attention */
  DeltaConfig delta;   /* its form and rule, and defaults of sizes */

  struct {
    WindowRule rule;
    int window;             /* the default; 0: none */
    int n;                  /* the period; with WINDOW_BY_LAYER and WINDOW_FROM_LAYER, max_window_layers */
    const char *period_key; /* config.json's key for the period; NULL: none */
  } windows;
  RopeTypes ropes;
  int original_max_position; /* the default; 0: max_position */
  double rotary_part;        /* default of partial_rotary_factor; 0: 1 */
  double local_rope_theta;

  struct {
    const char *key, *value;
  } fixed[MAX_FIXED];     /* members of config.json that must have these values or be absent */
  const MemberName *keys; /* the family's own names for members of config.json; NULL: none */
  /* Other keys of config.json, or NULL. */
  const char *dense_key;  /* for the MLP's width in layers without experts, where given */
  const char *length_key; /* overrides max_position if it is larger and the rope is not scaled */
  const char *before_key; /* for window - 1, the number of earlier positions; overrides sliding_window */
  const char *other_name; /* a second name of `architecture`; other rows may have it, too */
  const char *other_type; /* a model_type that `architecture` may have instead */

  /* More defaults, which are 0 in Llama's row. */
  int more_eos[2];        /* besides eos; also used if eos_token_id is null. 0: none */
  int per_layer_width;    /* hidden_size_per_layer_input */
  int per_layer_vocab;    /* vocab_size_per_layer_input; 0: vocab_size */
  int n_kv_shared;        /* num_kv_shared_layers */
  int global_head_dim;    /* head_dim of layers without a window */
  double attention_scale; /* 0: head_dim^-1/2, unless members of the config say otherwise */
  double logit_scale;     /* a factor of logits; 0: the config has no such member */
  double query_scalar;    /* 0: head_dim */
  double attention_cap, logit_cap;
  /* Defaults of the members of MULTIPLIERS. 0 means 1 (for attention with POST_NORM: head_dim^-1/2). With
   * DEPTH_SCALE: defaults of scale_emb (embedding), scale_depth (residual) and dim_model_base (logits). */
  struct {
    double embedding, attention, residual, logits;
  } multipliers;

  struct {
    int n_experts, n_chosen; /* 0: the config must give the number */
    int width;               /* moe_intermediate_size; 0: intermediate_size (OWN_NORMS: must be given) */
    ExpertScore score;
    Renormalise renormalise;
    const ExpertNames *names; /* NULL: the architecture has no experts */
    ExpertLayers layers;
    double sum_plus;
    IntMember dense; /* the number of first layers without experts; not used where config.json lists them */
    /* The shared expert's width: the member shared_width, or `width` times the member shared_count; with
     * OWN_NORMS the MLP's width. */
    IntMember shared_width, shared_count;
    DoubleMember scale;  /* routed_scaling_factor, or another name */
    DoubleMember jitter; /* for SCORE_CHOSEN_NEAR: half of ExpertConfig.near */
    struct {
      int n, n_chosen; /* n_group and topk_group; 0 means 1 */
    } groups;
    const char *enable_key; /* experts are there only if this is true; NULL: always */
    const char *bias_key;   /* choice_bias exists unless this is false; NULL: always, if `names` has it */
  } experts;
};

bool has(const Architecture *arch, Trait trait);

extern const Architecture architectures[];
extern const size_t n_architectures;

/* Where the config of a text part is. ONE_TEXT: in text_config; its model_type is `text`, old_text or absent.
 * ANY_TEXT: in text_config, with any model_type that multimodal_text() takes. FLAT_TEXT: as ONE_TEXT, or in
 * config.json itself if there is no text_config. THINKER_TEXT: in the text_config of thinker_config. */
typedef enum { ONE_TEXT, ANY_TEXT, FLAT_TEXT, THINKER_TEXT } TextPlace;

/* A model of several parts. The text part alone is computed. */
typedef struct {
  const char *architecture, *model_type; /* "Gemma3ForConditionalGeneration", "gemma3" */
  const char *text;                      /* model_type of the text part, also where text_config has none */
  const char *models;                    /* published models */
  TextPlace is;
  const char *old_text;     /* another name of `text`, or NULL */
  const char *text_key;     /* config.json's key for the text part; NULL: "text_config" */
  const char *old_text_key; /* another key for the text part where text_key is absent, or NULL */
} Multimodal;

extern const Multimodal multimodals[];
extern const size_t n_multimodals;

/* The row with this architecture or other_name. If several rows have it: the one with this model_type, else
 * the first. architecture NULL: the row of this model_type. Rows of text parts alone are not found. Returns
 * NULL if there is no such row. */
const Architecture *architecture_find(const char *architecture, const char *model_type);
/* The row of this architecture; architecture NULL: of this model_type. NULL: no such row. */
const Multimodal *multimodal_find(const char *architecture, const char *model_type);

/* The row of this model_type. Unlike architecture_find() it also finds rows that are only the text part of a
 * multimodal model. NULL: no such row. */
const Architecture *architecture_of_type(const char *model_type);

/* The row of the text part of `whole`. model_type: that of the text part's config, NULL if it has none.
 * Returns NULL if this model_type is refused. */
const Architecture *multimodal_text(const Multimodal *whole, const char *model_type);

/* The kinds of layers, each a letter: d LAYER_DELTA, c LAYER_CONV, f attention to all positions, w with a
 * window, k in chunks. names: those that layer_types may have; letters: what each stands for. Without
 * layer_types: with a period every period-th layer is f, others are letters[0]; else layers are those of
 * `usual`, which is repeated without its first n_once letters. */
typedef struct {
  const char *names[5], *letters, *usual;
  int n_once, period;
} LayerKinds;
/* Sets kinds, windows and chunks of layers. size: positions of a window or chunk. */
Status config_parse_kinds(const ConfigReader *r, const LayerKinds *kinds, int size, ModelConfig *config);
/* Layers whose numbers are in the list `key` have attention, others are `other`. `bounded`: as in
 * reader_numbers_of_layers(). */
Status config_parse_attention_list(const ConfigReader *r, const char *key, bool bounded, LayerKind other,
                                   ModelConfig *config);

/* Functions for Architecture.layers, with what they fill beside the kinds of layers. PRECOND config->layers
 * is allocated; arithmetic is filled, the rope except with ROPES_PROPORTIONAL, and delta as in the row. */
ParsePart config_parse_windows;    /* windows, and layers without a rope (layer_kinds.c) */
ParsePart config_parse_chunks;     /* chunks, NoPE layers, norms of q and k, factors of q (layer_kinds.c) */
ParsePart config_parse_short_conv; /* conv, the MLP's width, windows, norms and gate of LFM3 (short_conv.c) */
ParsePart config_parse_delta;      /* delta (delta.c) */
ParsePart config_parse_delta_apart;   /* delta with q, k, v apart; norms and ropes of layers (Olmo Hybrid) */
ParsePart config_parse_delta_windows; /* delta, and windows in layers with a rope (Lara 4 Mini) */
ParsePart config_parse_channel_delta; /* delta with a decay for each number of a key (Kimi, Ling) */
ParsePart config_parse_streams;       /* config_parse_delta(), streams, ngrams and indexer (streams.c) */
ParsePart config_parse_mamba;         /* delta as Mamba-2, by layer_types; layers without a rope (mamba.c) */
ParsePart config_parse_listed_mamba;  /* Mamba-2 by attn_layer_indices (Bamba) */
ParsePart config_parse_beside;        /* attention and Mamba-2 in every layer, and factors (Falcon-H1) */
ParsePart config_parse_blocks;        /* Mamba-2, attention, MLP or experts alone in a layer (Nemotron-H) */
ParsePart config_parse_loops;         /* attention or MLP alone, loops over some layers, sphere (loops.c) */

/* Functions for Architecture.sizes. PRECOND the windows of layers are filled. */
ParsePart config_parse_layer_thetas; /* layer_rope_theta: a theta for each layer, 0 for no rope */
ParsePart config_parse_layer_ropes;  /* layer_rope_theta: 0 for no rope; absent: by the rule of windows */
ParsePart config_parse_layer_sizes;  /* global_head_dim, per_layer_config and the like (layer_sizes.c) */
ParsePart config_parse_layer_heads;  /* numbers of heads, and the kind of attention's gates (Laguna) */
typedef Status ParseLayer(const ConfigReader *r, const ModelConfig *config, LayerConfig *layer);
/* Reads per_layer_config, as transformers 5 saves it: an object for each layer that differs, with the layer's
 * number as its key. `parse` reads one such object (layer_sizes.c). */
Status config_parse_per_layer(const ConfigReader *r, ModelConfig *config, ParseLayer *parse);
ParsePart config_parse_layer_lists; /* ropes, limits of gates and up, numbers of heads (layer_lists.c) */
ParsePart config_parse_altup;       /* altup, widths and sparsity of MLPs (altup.c) */
ParsePart config_parse_value_heads; /* value_dim, value_scale, KV heads and sinks (value_heads.c) */

/* Functions for Architecture.last. PRECOND sizes, arithmetic, positions and experts are filled. */
ParsePart config_parse_dense_prefix; /* windows and ropes of Command A+ (layer_kinds.c) */
ParsePart config_parse_parallel;     /* parallel blocks, KV heads, biases of Falcon (parallel.c) */
ParsePart config_check_value_heads;  /* refuses members that contradict what is computed (value_heads.c) */

/* The parts of layer_sizes.c that Gemma 3n shares: num_kv_shared_layers, and per-layer embeddings. */
ParsePart config_parse_shared, config_parse_layer_inputs;

/* *n_layers = the number of layers that a config for config_parse_blocks() lists. */
Status config_count_blocks(const ConfigReader *r, int *n_layers);
/* The same for config_parse_loops(): layers in loops count once for each loop. */
Status config_count_loops(const ConfigReader *r, int *n_layers);

/* config_parse_latent() fills latent, n_heads, n_kv_heads and head_dim (latent.c). config_scale_latent() sets
 * attention_scale. PRECOND of config_scale_latent(): the rope is filled */
ParsePart config_parse_latent;
void config_scale_latent(ModelConfig *config);

/* Fills experts, their names, and which layers are dense (experts.c). PRECOND config->layers is allocated;
 * the activation and the MLP's width are filled. */
ParsePart config_parse_experts;

/* Allocates config->layers; fills rope, local_rope, and what layers differ in (positions.c). PRECOND sizes
 * and arithmetic are filled */
ParsePart config_parse_positions;

/* config_parse_text() fills sizes, arithmetic, positions and experts from the object of a text model.
 * config_parse_quantization() fills how weights are quantised, from the file's own object or the text model's
 * (config.c). */
ParsePart config_parse_text;
Status config_parse_quantization(const ConfigReader *r, const ConfigReader *text, ModelConfig *config);
/* Calls quantization_limit() with the number of the model's matrices. */
Status config_limit_rules(const char *file, ModelConfig *config, Error *err);

/* Refuses a drafter where a model is expected (draft.c). */
Status config_refuse_draft(const ConfigReader *r);
/* Refuses a drafter that does not fit the target, and fills what depends on the target (draft.c). */
Status config_fit_draft(const char *file, const ModelConfig *target, ModelConfig *config, Error *err);
