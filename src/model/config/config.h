/* config.h - a checkpoint's configuration: sizes, rope, windows, end tokens, sampling defaults.
 *
 * These are read from config.json and the files beside it (config_load()), in the spellings of transformers 4
 * and 5, and checked against the ranges below. Unknown features are refused by name. Nothing here reads
 * weights. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arithmetic.h"
#include "base/content.h"
#include "base/status.h"
#include "model/quant/quantization.h"

typedef enum { ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN, ROPE_LONGROPE, ROPE_PROPORTIONAL } RopeKind;

const char *rope_kind_name(RopeKind kind); /* as rope_type spells it */

/* Rotary positions and their scaling (transformers, modeling_rope_utils.py); see rope_frequencies(). */
typedef struct {
  RopeKind kind;
  int rotary_dim;                /* even, 2..head_dim: the first dimensions of a head that are rotated */
  bool neighbours;               /* pairs are (2 i, 2 i + 1), not (i, i + rotary_dim / 2) */
  bool backwards;                /* pairs turn the other way: frequencies are negative (NanoChat) */
  double theta;                  /* rope_theta */
  double factor;                 /* all but ROPE_PLAIN: > 0 */
  double low_freq_factor;        /* llama3 */
  double high_freq_factor;       /* llama3 */
  double original_max_position;  /* llama3, yarn, longrope: original_max_position_embeddings */
  double beta_fast, beta_slow;   /* yarn: 32 and 1 unless given */
  double attention_factor;       /* yarn, longrope: 0 if not given */
  double long_attention_factor;  /* longrope: the attention factor of long texts; 0: attention_factor */
  double mscale, mscale_all_dim; /* yarn: 0 if not given */
  bool truncate;                 /* yarn: true unless given */
  int n_turned; /* proportional: the first n_turned of the rotary_dim / 2 pairs are rotated */
  /* longrope: [rotary_dim / 2] factors of the wavelengths. short_factors: in texts of up to
   * original_max_position tokens; long_factors: in longer texts. */
  float short_factors[MAX_HEAD_DIM / 2], long_factors[MAX_HEAD_DIM / 2];
} RopeConfig;

/* Which rope rotates a layer's q and k. */
typedef enum { ROPE_GLOBAL, ROPE_LOCAL, ROPE_NONE } LayerRope;

/* A layer's token mixer. LAYER_ATTENTION: attention over keys and values. LAYER_DELTA, the gated delta rule
 * (or Mamba-2), and LAYER_CONV, a short convolution, have a recurrent state instead of a cache.
 * LAYER_MLP_ALONE: none (Nemotron-H). */
typedef enum { LAYER_ATTENTION, LAYER_DELTA, LAYER_CONV, LAYER_MLP_ALONE, N_LAYER_KINDS } LayerKind;

/* Where a layer has RMSNorms. NORM_BEFORE: at the inputs of attention and MLP. NORM_AFTER: at their outputs,
 * before these are added to the residual stream. NORM_AROUND: at inputs and outputs. */
typedef enum { NORM_BEFORE, NORM_AROUND, NORM_AFTER } NormPlacement;

/* Parallel layers add the outputs of attention and of the MLP to the same x. PARALLEL_ONE_NORM: the MLP reads
 * attention's input, so there is no mlp_norm. PARALLEL_TWO_NORMS: it reads mlp_norm of the x that attn_norm
 * reads. */
typedef enum { NOT_PARALLEL, PARALLEL_ONE_NORM, PARALLEL_TWO_NORMS } ParallelMlp;

/* Norms of x. NORM_RMS: RMSNorm times weight. NORM_PLUS_ONE: times 1 + weight; NORM_PLUS_ONE_INSIDE: in all
 * norms but the last (Muse Glimmer). NORM_SPHERE: without weights (SphereConfig). Centred norms subtract the
 * mean first: NORM_CENTRED is LayerNorm without a bias, NORM_CENTRED_BIAS has a bias, NORM_CENTRED_PLUS_ONE
 * also multiplies by 1 + weight (Nemotron).
 * Nothing but norms reads x, so a backend may subtract the mean from x itself and compute RMSNorm. */
typedef enum {
  NORM_RMS,
  NORM_PLUS_ONE,
  NORM_PLUS_ONE_INSIDE,
  NORM_SPHERE,
  NORM_CENTRED,
  NORM_CENTRED_BIAS,
  NORM_CENTRED_PLUS_ONE,
} NormKind;

/* Matrices that are stored as one. FUSES_GATE_UP: gate and up. FUSES_QKV: q, k and v. FUSES_QKV_HEADS (as in
 * GPT-NeoX): q, k and v; until model_prepare() reorders the rows, they are grouped by KV head (its queries,
 * its key, its value). FUSES_ALL: q, k and v, and gate and up (as in Phi-3). FUSES_DELTA: the matrices of the
 * gated delta rule (Lara 4 Mini). */
typedef enum { FUSES_NONE, FUSES_GATE_UP, FUSES_QKV, FUSES_QKV_HEADS, FUSES_ALL, FUSES_DELTA } FusedMatrices;

/* A layer's part after its token mixer. MLP_OF_MODEL: experts, if the model has some (ModelConfig.experts),
 * else an MLP. MLP_DENSE: an MLP, although the model has experts. MLP_NONE: nothing (Nemotron-H). */
typedef enum { MLP_OF_MODEL, MLP_DENSE, MLP_NONE } LayerMlp;

/* Norms of q and k, before rope unless qk_norm_after_rope. QK_NORM_HEADS: RMSNorm over each head;
 * QK_NORM_PLAIN: the same without weights. QK_NORM_WHOLE: RMSNorm over all heads together. QK_NORM_CENTRED:
 * LayerNorm of each head, without a bias, with weights of the head's own (StableLM 2 12B, Command R+). */
typedef enum { QK_NORM_NONE, QK_NORM_PLAIN, QK_NORM_HEADS, QK_NORM_WHOLE, QK_NORM_CENTRED } QkNorm;

/* Attention's output is multiplied by gates before o. A gate is the sigmoid (with
 * ModelConfig.attn_gate_softplus the softplus) of an output of attn_gate, a linear layer of attention's
 * input. ATTN_GATE_NUMBERS: a gate for each number. ATTN_GATE_HEADS: for each head. ATTN_GATE_IN_Q: for each
 * number, made by the matrix of q. This matrix's outputs are, for each head, the query and then the gates. */
typedef enum { ATTN_GATE_NONE, ATTN_GATE_NUMBERS, ATTN_GATE_HEADS, ATTN_GATE_IN_Q } AttnGate;

/* Loops over layers (OP_LOOP): the layer begins none, the first one, or a later one. */
typedef enum { BEGINS_NO_LOOP, BEGINS_FIRST_LOOP, BEGINS_LOOP } LoopStart;

/* The properties in which layers of one model may differ. In ModelConfig.layers a size of 0 stands for the
 * model's own; config_layer() fills it in. */
typedef struct {
  LayerKind kind;
  int n_heads, n_kv_heads, head_dim; /* n_heads % n_kv_heads == 0 */
  /* Width of the MLP; 0 with MLP_NONE. In a layer with experts: width of the shared expert, an MLP for every
   * token beside its chosen experts; 0: there is none. */
  int intermediate;
  int window; /* sliding window: a position attends to itself and the window - 1 before; 0: all */
  int chunk;  /* positions of a chunk: a position attends to its own chunk, up to itself; 0: all */
  LayerRope rope;
  bool no_sinks;   /* the layer has no sinks, whatever the model's attn_sinks says (MiMo) */
  bool no_qk_norm; /* q and k are not normalised, whatever the model's qk_norm says (Llama 4) */
  bool k_as_v;     /* values are the keys before their norm: there is no v_proj (Gemma 4) */
  /* The layer uses the keys and values of layer kv_layer: an earlier layer (Gemma 3n and 4) or, with
   * DRAFT_ASSISTANT, a layer of the target. */
  bool shares_kv;
  int kv_layer; /* config_layer() sets it to the layer itself unless shares_kv */
  LayerMlp mlp;
  /* The layer has LAYER_DELTA's token mixer as well as attention. Both read the same normalised input, and
   * both outputs are added to the residual stream. Only in layers of LAYER_ATTENTION (Falcon-H1). */
  bool delta_beside;
  /* The share of the layer's gates that would become 0 if they were Gaussian (Gemma 3n): 0 <= sparsity < 1.
   * Gates become max(gate - c, 0). c: their mean plus gate_deviations, which is gaussian_quantile(sparsity),
   * times their standard deviation. 0: gates are unchanged. */
  double sparsity;
  float gate_deviations;
  /* The limit of ACTIVATION_LIMITED (Step 3.5). mlp_limit: in the layer's MLP or shared expert; expert_limit:
   * in its experts. 0: the model's activation, without a limit. */
  double mlp_limit, expert_limit;
  bool norms_before; /* the layer's norms are NORM_BEFORE, whatever the model's are (Olmo Hybrid) */
  int ngrams;        /* the layer's number among those with n-grams, from 1 on; 0: it has none */
  LoopStart begins;
  int back; /* > 0: the layer has no tensors, and uses those of the layer this many before it (Dory) */
  /* config_layer() sets all that follows. Properties that depend on the model and on the layer are decided
   * there alone: programs, backends and sizes of tensors read them here. */
  NormPlacement norms;
  int n_experts; /* the model's, or 0 in a layer without experts */
  bool latent;   /* the layer's attention is latent (LatentConfig) */
  /* Attention's gates, ATTN_GATE_NONE in layers without attention; n_gates: of a row. */
  AttnGate attn_gate;
  int n_gates;
  int q_outputs; /* of the matrix of q: queries and, with ATTN_GATE_IN_Q, gates */
  int value_dim; /* size of a head's value, as o reads it */
  QkNorm qk_norm;
  bool sinks;
  double query_scale_beta;                  /* 0 in layers whose queries have no such factor */
  Activation activation, expert_activation; /* of the MLP or the shared expert, and of the experts */
  /* n_kv_heads, plus one if the layer has index keys (IndexerConfig). Index keys are one more KV head of the
   * cache. Its value is the position's index key; its key is the index key of the block that ends at the
   * position. */
  int n_cache_heads;
} LayerConfig;

/* Names within a layer where they are not Llama's, Gemma's or Qwen3's: "self_attn.query_layernorm"; NULL: the
 * usual name. */
typedef struct {
  const char *layers; /* stands for "layers": "h" */
  const char *block;  /* stands for "self_attn", "mlp", "mamba" in all names: "mixer" gives "mixer.q_proj" */
  const char *attention, *delta; /* stand for "self_attn" and "linear_attn" */
  const char *attn_norm, *attn_post_norm, *mlp_norm, *mlp_post_norm;
  const char *attn_norm_bias, *mlp_norm_bias;
  const char *q_norm, *k_norm;
  const char *o, *delta_o;                /* o: in layers with attention; delta_o: of DELTA_APART */
  const char *attn_gate;                  /* a name of attn_gate in some checkpoints of the family */
  const char *gate, *up, *gate_up, *down; /* gate_up: the matrix of both */
  bool up_first;                          /* the outputs of up come first in gate_up */
  const char *qkv;                        /* the matrix of q, k and v */
  const char *sinks;
  /* In some checkpoints of the family o, delta_o, gate, up and down have these names; in others they have the
   * usual names. */
  bool optional;
  bool inputs_first; /* dense matrices of layers are stored as [inputs][outputs] (Conv1D of GPT-2) */
  /* These name parts of the whole model. positions: the table of learned positions. body: what names begin
   * with if none begins with "model.", or nothing in some checkpoints; head: a name that lm_head has in some
   * checkpoints of the family. */
  const char *final_norm, *final_norm_bias, *embedding, *positions, *body, *head;
} TensorNames;

/* The shape of dense tensors of all experts. OUTPUTS_ARE_FIRST: [experts][outputs][inputs]. INPUTS_ARE_FIRST:
 * [experts][inputs][outputs]. INPUTS_MAY_BE_FIRST: either (Qwen3-VL has inputs first as published, outputs
 * first as transformers 5 saves it). */
typedef enum { OUTPUTS_ARE_FIRST, INPUTS_ARE_FIRST, INPUTS_MAY_BE_FIRST } InputsFirst;

/* The linear layers of an expert. */
enum {
#define EXPERT_LINEAR(SLOT, ...) EXPERT_##SLOT,
#include "model/tensors.def"
  N_EXPERT_LINEARS
};

/* Names within a layer with experts. Experts are stored one by one (the third one's gate is
 * "mlp.experts.2.gate_proj"), or all experts of a layer together in tensors of three dimensions. */
typedef struct {
  const char *router;                /* "mlp.gate" */
  const char *each;                  /* "mlp.experts" */
  const char *own[N_EXPERT_LINEARS]; /* an expert's: "gate_proj" */
  /* All experts': "mlp.experts.gate_up_proj"; NULL: the tensor before has this linear layer's rows, too (not
   * for the first one). */
  const char *all[N_EXPERT_LINEARS];
  /* The shared expert's: "mlp.shared_expert.gate_proj"; NULL: those of the MLP in layers without experts. */
  const char *shared[N_EXPERT_LINEARS];
  const char *choice_bias; /* "mlp.gate.e_score_correction_bias", or NULL */
  /* There are as many experts for images as for text, numbered after the text's; their own router is
   * `weight_1`. choice_bias has a row for each kind; routers are [inputs][outputs] (ERNIE 4.5 VL). */
  bool two_kinds;
  bool bias_may_miss; /* choice_bias may be missing, in all layers (A.X-K1) */
  bool alternate;     /* rows of gate and rows of up alternate in the tensor of both (gpt-oss) */
  InputsFirst inputs_first;
} ExpertNames;

/* Hyper-connections (Qwen3.8-Flash-Next): a token has n residual streams of hidden numbers each. Each stream
 * begins as the token's embedding. Attention and MLP each read a weighted mean of them, and their outputs are
 * added to each stream with a factor; lm_head reads a weighted mean, too. See model/operations.def. */
typedef struct {
  int n;    /* 0: one stream, as usual */
  int rank; /* numbers between the two matrices that make the weights of the mean */
} StreamConfig;

/* AltUp (Gemma 3n; Baykal et al., arXiv:2301.13310): a token has n residual streams of hidden numbers each. A
 * layer predicts all of them, computes the first, and corrects all by the error of its prediction. LAuReL
 * (Menghani et al., arXiv:2411.07501) is a product of two matrices beside attention. See predict_streams and
 * add_laurel in operations.def. */
typedef struct {
  int n;           /* 2 .. MAX_STREAMS; 0: one stream, as usual, and no LAuReL */
  int laurel_rank; /* numbers between LAuReL's matrices */
} AltupConfig;

/* nGPT (Loshchilov et al., arXiv:2410.01131): attention and MLP move x from rmsnorm(x) towards their own
 * normalised output, by a rate for each channel. Inputs of o and down are normalised, too. x is sqrt(hidden)
 * times the paper's, whose length is 1. A stored rate is times init / rate; a stored factor of q or of
 * attention's gates is the square root of the factor, times init. */
typedef struct {
  double init; /* initializer_range; 0: not NORM_SPHERE */
  double rate; /* ngpt_alpha_init */
} SphereConfig;

/* Embeddings of a token's n-grams, added to the streams before some layers (LayerConfig.ngrams). The token
 * and the 1 .. longest - 1 tokens before it are hashed into rows of a large table. See add_ngrams in
 * operations.def. */
typedef struct {
  int longest;      /* tokens of the longest n-gram, 2 .. MAX_NGRAM; 0: the model has none */
  int n_hashes;     /* for each length of n-gram; each hash picks a row of the table: 1 .. MAX_NGRAM_HASHES */
  int width;        /* numbers in all rows for a token: (longest - 1) * n_hashes rows of equal size */
  int taps;         /* taps of the convolution over tokens; they are `longest` tokens apart */
  int64_t least;    /* the hashes' numbers of rows are consecutive primes; the first is at least this */
  int64_t multiple; /* the table's rows are rounded up to a multiple of this */
  int64_t seed;     /* seed of the hashes' factors */
  int32_t empty;    /* the first EOS: stands for tokens before the text's beginning, and ends n-grams */
} NgramConfig;
enum { MAX_NGRAM = 8, MAX_NGRAM_HASHES = 64, MAX_NGRAM_LAYERS = 16, MAX_NGRAM_SHARDS = 4096 };

/* The layers with a short convolution (LAYER_CONV); see norm_short_conv in operations.def. */
typedef struct {
  int taps;     /* 1 .. MAX_CONV_TAPS; 0: the model has no such layers */
  int channels; /* hidden_size, or what one of several GPUs has of it (model/slice.h) */
  bool bias;    /* the convolution and the matrices before and after it have biases */
} ConvConfig;

const char *activation_name(Activation activation); /* "silu", "gelu_pytorch_tanh", "clamped silu" */

/* Drafters: small models that guess the next tokens of a larger one, their target, from its hidden states.
 * Each row of a step has a token's embedding e and a state c (models.md, "Drafters"):
 * DRAFT_EAGLE3: q, k and v of the first layer take [rmsnorm(e), rmsnorm(c)]; the residual stream begins as c
 *   or rmsnorm(c). c = W_states [some states of the target]. For guesses after the first, c is what left the
 *   drafter's last layer (with norm_output, its final norm).
 * DRAFT_MTP, DRAFT_ASSISTANT (Gemma 4's): x = W_join [e, c]; for MTP both are normalised. c is the
 *   target's state after its final norm, or the drafter's own after its final norm (which an assistant
 *   multiplies by W_out). An assistant's layers have no keys and values: they use those of the target's last
 *   layer with the same attention.
 * DRAFT_DFLASH: keys and values are those of c = rmsnorm(W_states [states]) in every layer, one for each
 *   token that the target has computed. A step computes the known tokens after them (at least one), then
 *   masks: `block` rows in all. Each row attends to these keys and to the whole block. */
typedef enum { DRAFT_NONE, DRAFT_EAGLE3, DRAFT_DFLASH, DRAFT_MTP, DRAFT_ASSISTANT } DraftKind;

/* RMSNorm of the target's states before W_states. WHOLE: of all as one row; EACH: of each state. */
typedef enum { STATES_AS_THEY_ARE, STATES_NORM_WHOLE, STATES_NORM_EACH } StatesNorm;

enum { MAX_DRAFT_STATES = 8, MAX_DRAFT_BLOCK = 64 };

typedef struct {
  DraftKind kind;                  /* DRAFT_NONE: an ordinary model; the other members are unused */
  int target_hidden, target_vocab; /* sizes of the target: width of a state, number of tokens */
  int target_layers;               /* 0: not given */
  /* States of the target for each token. 0, until the target is known: those after 2, L / 2 and L - 3 of its
   * L layers (EAGLE-3 without a list). */
  int n_states;
  int states[MAX_DRAFT_STATES]; /* [n_states] each: x after this many layers of the target, 1 or more */
  StatesNorm states_norm;       /* EAGLE-3 */
  bool norm_before_residual;    /* EAGLE-3: the residual stream begins normalised */
  bool norm_output;             /* EAGLE-3: guesses after the first take the state after the final norm */
  int block, mask_id;           /* DFlash */
  char target[128];             /* the target's name, "" if the config does not give it */
} DraftConfig;

const char *draft_kind_name(DraftKind kind); /* "EAGLE-3" */
/* True if x = W_join [e, c]. */
static inline bool draft_joins(const DraftConfig *draft) {
  return draft->kind == DRAFT_MTP || draft->kind == DRAFT_ASSISTANT;
}

#define MAX_EOS 64

/* Sampling defaults of generation_config.json; absent members are neutral. */
typedef struct {
  bool do_sample;            /* false: greedy */
  double temperature;        /* >= 0 */
  int top_k;                 /* 0: off */
  double top_p;              /* 1: off */
  double min_p;              /* 0: off */
  double repetition_penalty; /* 1: off */
} GenerationDefaults;

typedef struct {
  char architecture[64]; /* "Qwen3ForCausalLM": for messages only */
  int hidden;            /* hidden_size: width of the residual stream */
  int intermediate;      /* intermediate_size: width of the MLP */
  int n_layers;
  int n_heads, n_kv_heads; /* n_heads % n_kv_heads == 0; a layer may differ: config_layer() */
  /* Even, 2..MAX_HEAD_DIM, with latent attention up to MAX_HEAD_ROW; need not be hidden / n_heads. */
  int head_dim;
  /* value_dim: the size of a head's value that v makes and o reads, at most head_dim; 0: head_dim, and
   * value_scale is not used. The cache has values of head_dim numbers, padded with 0. value_scale: a factor
   * of v (MiMo). */
  int value_dim;
  double value_scale;
  int vocab_size; /* rows of the embedding that are used, and of lm_head */
  /* Rows of the checkpoint's embedding, if those from vocab_size on are tokens of images and sound (Apertus
   * 1.5); 0: vocab_size. */
  int embedding_rows;
  int max_position; /* the longest context: max_position_embeddings, or more with some ropes */
  double norm_eps;  /* rms_norm_eps */

  NormKind norm;
  NormPlacement norms;
  ParallelMlp parallel;
  bool norms_plain;     /* norms of x have no weights: the loader makes weights of 1 */
  bool head_bias;       /* lm_head has a bias */
  bool embedding_norm;  /* embeddings are normalised, without weights */
  double post_norm_eps; /* epsilon of the norms after attention and MLP; 0: norm_eps */
  QkNorm qk_norm;
  double qk_norm_eps;      /* epsilon of the norms of q and k; 0: norm_eps */
  bool qk_norm_after_rope; /* q and k are normalised after their rope, not before */
  TensorNames names;
  const ExpertNames *expert_names; /* NULL unless the model has experts */
  bool attn_sinks;                 /* each head's softmax has one more score, whose weight is dropped */
  AttnGate attn_gate;
  double qkv_clip;         /* outputs of q, k and v are cut to -qkv_clip .. qkv_clip (OLMo 1); 0: not cut */
  bool attn_gate_softplus; /* gates are ln(1 + e^x), not sigmoids (Laguna) */
  LatentConfig latent;
  DeltaConfig delta;
  ConvConfig conv;
  StreamConfig streams;
  AltupConfig altup;
  SphereConfig sphere;
  NgramConfig ngrams;
  IndexerConfig indexer;
  ExpertConfig experts;
  DraftConfig draft; /* only in a drafter's config, whose vocab_size counts the tokens that it can guess */
  bool v_norm;       /* RMSNorm of v over each head, without a weight (Gemma 3n and 4) */
  bool layer_scalar; /* x after a layer is multiplied by a number of the layer's own (Gemma 4) */
  Activation activation;
  bool learned_positions; /* row p of a table of max_position rows is added to the embedding at position p */
  int per_layer_width;    /* size of the input that a token has for each layer (Gemma 3n and 4); 0: none */
  int per_layer_vocab;    /* rows of the inputs' table; ids beyond the last use row 0 (Gemma 3n) */
  double embedding_scale; /* x = embedding[id] * this; 1 unless the family or its config has a factor */
  /* Scores are q k times this: head_dim^-1/2 unless the family or its config says otherwise; with latent
   * attention config_scale_latent() sets it. */
  double attention_scale;
  /* After its rope q is multiplied by 1 + query_scale_beta * ln(1 + floor(position / query_scale_step));
   * query_scale_beta 0: it is not. query_scale_nope (Llama 4): only in layers without a rope, and with
   * position + 1 instead of position. */
  double query_scale_beta, query_scale_step;
  bool query_scale_nope;
  double residual_scale; /* x = x + this * output of attention or MLP; 1 unless the config has a factor */
  double gate_scale, mlp_scale; /* g = mlp_scale * f(gate_scale * gate) * up; 1 unless the config has them */
  double logit_divisor; /* logits are divided by this; 1 unless the family or its config says otherwise */
  double attention_cap; /* scores become cap * tanh(score / cap); 0: no cap */
  double logit_cap;     /* logits become cap * tanh(logit / cap); 0: no cap */

  RopeConfig rope;
  RopeConfig local_rope; /* the rope of ROPE_LOCAL layers */

  bool tied_embeddings;            /* lm_head is the embedding */
  bool qkv_bias, o_bias, mlp_bias; /* matrices that must have a bias: q, k, v; o; gate, up, down */
  FusedMatrices fused;
  bool text_part;      /* the text part of a multimodal model */
  LayerConfig *layers; /* [n_layers], read by config_layer(); NULL: no layer differs */
  int split;           /* > 1: number of GPUs; heads and MLP are one GPU's share (model/slice.h) */

  QuantConfig quant; /* storage of linear layers */

  int32_t bos; /* -1: none */
  int32_t eos[MAX_EOS];
  int n_eos;
  GenerationDefaults generation;

  ContentHash content; /* hash of the files read, except generation_config.json */
} ModelConfig;

/* Reads DIR/config.json and, if present, generation_config.json. Unless config.json says how weights are
 * quantised, also reads the first of quant_config.json, quantize_config.json and hf_quant_config.json. Zeroes
 * *config first. Release it with config_release(), also after a failure. */
Status config_load(const char *directory, ModelConfig *config, Error *err);
/* config_load() from the text of a config.json alone; `name` is for messages. */
Status config_parse(const char *name, const char *text, size_t size, ModelConfig *config, Error *err);
/* The config of a drafter in a directory of its own. A drafter that does not fit the target is refused;
 * target NULL: not checked. config_is_draft(): *is_draft is false if config.json is an ordinary model's. */
Status config_load_draft(const char *directory, const ModelConfig *target, ModelConfig *config, Error *err);
Status config_is_draft(const char *directory, bool *is_draft, Error *err);
void config_release(ModelConfig *config);

static inline int config_embedding_rows(const ModelConfig *config) {
  return config->embedding_rows ? config->embedding_rows : config->vocab_size;
}
/* A layer's properties, with the model's own sizes where the layer has no others. */
LayerConfig config_layer(const ModelConfig *config, int layer);
/* True if the layer has a token mixer of this kind, perhaps beside attention. */
static inline bool layer_has(LayerConfig own, LayerKind kind) {
  return own.kind == kind || (own.delta_beside && kind == LAYER_DELTA);
}
/* True if norms, perhaps except the last, multiply by 1 + weight. */
static inline bool norms_plus_one(const ModelConfig *config) {
  return config->norm == NORM_PLUS_ONE || config->norm == NORM_PLUS_ONE_INSIDE ||
         config->norm == NORM_CENTRED_PLUS_ONE;
}
static inline bool norms_are_centred(const ModelConfig *config) {
  return config->norm >= NORM_CENTRED;
}
static inline double post_norm_eps(const ModelConfig *config) {
  return config->post_norm_eps != 0 ? config->post_norm_eps : config->norm_eps;
}
static inline bool norms_have_biases(const ModelConfig *config) {
  return config->norm >= NORM_CENTRED_BIAS;
}
/* The largest n_heads of a layer. */
int config_most_heads(const ModelConfig *config);
/* How many of the first n layers have a token mixer of this kind (layer_has()). */
int config_count_layers(const ModelConfig *config, LayerKind kind, int n);
/* The size in numbers of a layer's recurrent state; 0 if it has none. LAYER_DELTA: [conv - 1][channels]
 * inputs of the convolution, and [key_dim][value_dim] for each value head. LAYER_CONV: [taps - 1][channels]
 * inputs. A layer with n-grams also keeps the last (taps - 1) * longest inputs of their convolution, each
 * [streams][hidden], and longest - 1 tokens. */
size_t config_state_numbers(const ModelConfig *config, int layer);
/* The size of a layer's table of n-grams: its rows, and the numbers of a row. PRECOND the layer has one */
int64_t ngram_rows(const ModelConfig *config, int layer);
int ngram_columns(const NgramConfig *ngrams);
/* How the n-grams of a layer are hashed. primes[n_primes]: the number of table rows of each hash, first those
 * of n-grams of 2 tokens, then of 3, ...; the table has its rows in this order. factors[]: the token's, then
 * those of the tokens before it. Source: transformers 5.23, models/qwen4_exp/modular_qwen4_exp.py. */
typedef struct {
  int n_primes;
  int64_t primes[(MAX_NGRAM - 1) * MAX_NGRAM_HASHES];
  int64_t factors[MAX_NGRAM];
} NgramHash;
void ngram_hash(const ModelConfig *config, int layer, NgramHash *hash);
/* The size of an expert's input and of its output. */
int expert_row_width(const ModelConfig *config);
/* True if some layer has a recurrent state. */
bool config_has_states(const ModelConfig *config);
/* True if the layer has the model's own heads, head_dim and width of the MLP. The width does not count if the
 * layer has experts or no MLP. */
bool config_layer_is_alike(const ModelConfig *config, int layer);
/* The numbers of one token's keys and values in a layer's cache; 0 if the layer shares another layer's, or
 * has no attention. */
size_t config_kv_numbers(const ModelConfig *config, int layer);

/* The quantile of the normal distribution of mean 0 and deviation 1: a share `part` of its numbers is below.
 * 0 < part < 1; `part` is rounded to fp32, as in transformers. */
double gaussian_quantile(double part);

/* out[i], i in [0, rotary_dim / 2): the angle per position of the i-th rotary pair, scaled, in fp32 as
 * transformers computes it. *attention_factor multiplies cos and sin; it is 1 except for yarn and longrope.
 * long_rope: use longrope's long factors, as for all positions of a text longer than original_max_position.
 * Source: transformers modeling_rope_utils.py; Peng et al., YaRN (arXiv:2309.00071); Ding et al., LongRoPE
 * (arXiv:2402.13753). */
void rope_frequencies(const RopeConfig *rope, bool long_rope, float *out, float *attention_factor);

/* Texts of more tokens than this need `long_rope` of rope_frequencies(). Without longrope: INT32_MAX. */
int rope_original_context(const ModelConfig *config);
