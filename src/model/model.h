/* model.h - an open checkpoint: its config and its weights as typed views into mapped files.
 *
 * A Hugging Face directory and the packed ak48 file both become a Model, which is read-only and shared. Every
 * shape is checked against the config, every offset against its file. Pointers into mapped files have NO
 * alignment: read them with memcpy or unaligned vector loads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"
#include "model/config/config.h"

typedef enum {
  DTYPE_F32,
  DTYPE_F16,
  DTYPE_BF16,
  DTYPE_I32,
  DTYPE_I16,
  DTYPE_I8,
  DTYPE_U8,
  DTYPE_I64,
  DTYPE_F8_E4M3,
  DTYPE_F8_E8M0,
  DTYPE_OTHER
} Dtype;

size_t dtype_bytes(Dtype dtype);     /* 0 for DTYPE_OTHER */
const char *dtype_name(Dtype dtype); /* as safetensors spells it: "F16" */
/* out[0..n) = elements [first, first + n) of F32, F16 or BF16 data (at any alignment) as fp32. */
void floats_read(const void *data, Dtype dtype, size_t first, size_t n, float *out);

/* n numbers: a norm's weights, or a bias; data is NULL if the checkpoint has none. */
typedef struct {
  const void *data; /* [n] */
  Dtype dtype;      /* F32, F16 or BF16 */
  int n;
} Vector;

/* n_rows x n_columns numbers, rows contiguous: the embedding. */
typedef struct {
  const void *data; /* [n_rows][n_columns] */
  Dtype dtype;      /* F32, F16 or BF16 */
  int n_rows, n_columns;
} Matrix;

typedef enum { LINEAR_DENSE, LINEAR_AWQ, LINEAR_GROUPED, LINEAR_INT8, LINEAR_FP8, LINEAR_FP4 } LinearKind;

/* A linear layer y = W x + bias, n_in inputs, n_out outputs, in one of six forms:
 *
 * LINEAR_AWQ: 4-bit weights in groups along the input,
 *     w[i][o] = (q[i][o] - z[i / group][o]) * scales[i / group][o]
 *   where column 8c + [0,2,4,6,1,3,5,7][k] sits in bits 4k .. 4k+3 of word c of its row (models.md, "AutoAWQ
 *   gemm").
 * LINEAR_GROUPED: the same formula with weights of 8 bits, a byte each, or of 4 bits, packed as above, whose
 *   zero points exceed 15 or whose scales do not fit F16.
 * LINEAR_INT8: w[i][o] = weight[o][i] * scales[o], and x is rounded to int8 before the product:
 *     s = largest |x[i]| / 127.5,  p[i] = x[i] / s to the nearest integer, ties to even, in -128 .. 127,
 *     y[o] = s * scales[o] * sum over i of weight[o][i] * p[i]
 * LINEAR_FP8: w[i][o] = e4m3(weight[o][i]) * scales[(block_first + o) / block][i / group]
 * LINEAR_FP4: w[i][o] = e2m1(code) * scale_values[scales[o][i / group]]; the code is the lower four bits of
 *   weight[o][i / 2] for an even i, the upper four for an odd one, and stands for
 *     0: 0   1: 0.5   2: 1   3: 1.5   4: 2   5: 3   6: 4   7: 6,   with bit 3 set the negative of it.
 * LINEAR_DENSE: weight[o][i] as stored.
 *
 * model_open() sets the form; a layer that is stored otherwise has no data before model_prepare(), which may
 * still change 4-bit layers from LINEAR_AWQ to LINEAR_GROUPED or back, as their numbers require. */
typedef struct {
  LinearKind kind;
  int n_in, n_out; /* both > 0; for AWQ and GROUPED n_in % group == 0 and n_out % 8 == 0 */
  int bits;        /* AWQ, FP4: 4, GROUPED: 4 or 8, INT8, FP8: 8 */
  /* Inputs that share a scale: AWQ, GROUPED: n_in for one scale per column; FP4: 16 or 32; FP8: n_in, or a
   * multiple of 16 with a shorter last group. */
  int group;
  /* AWQ, GROUPED: columns of each stored row that belong to other layers (fused ones): rows of qweight,
   * qzeros and scales are n_out + skip columns apart; skip % 8 == 0. */
  int skip;
  int block;           /* FP8: outputs that share a scale; the last block may be shorter */
  int block_first;     /* FP8: outputs of the first block that belong to another layer; < block */
  const void *qweight; /* 4 bits: u32 [n_in][n_out / 8]; GROUPED of 8: u8 [n_in][n_out] */
  const void *qzeros;  /* AWQ: u32 [n_in / group][n_out / 8]; GROUPED: u8 [n_in / group][n_out] */
  /* [n_in / group][n_out], AWQ: f16, GROUPED: f32; INT8: f32 [n_out]; FP4: u8 [n_out][n_in / group];
   * FP8: f32 [blocks of outputs][groups of inputs]. */
  const void *scales;
  const float *scale_values; /* FP4: [256] what the codes in `scales` stand for */
  const void *weight; /* [n_out][n_in], dense: of `dtype`, INT8: i8, FP8: u8; FP4: u8 [n_out][n_in / 2] */
  Dtype dtype;        /* dense: F32, F16 or BF16 */
  int row_skip;       /* dense, FP4: rows of other layers between two of `weight` and of FP4's `scales` */
  /* Dense, FP8, FP4 in a model's part (slice.h): inputs of other parts between two rows of `weight`, and
   * their scales between two rows of `scales`. */
  int input_skip, scale_skip;
  Vector bias;      /* [n_out], or data NULL */
  const char *name; /* "model.layers.3.self_attn.q_proj", for messages; belongs to the model */
} Linear;

/* Bytes of n inputs of an output, of weights that lie by outputs (`weight`). */
static inline size_t linear_input_bytes(const Linear *linear, size_t n) {
  switch (linear->kind) {
  case LINEAR_FP4: return n / 2;
  case LINEAR_FP8:
  case LINEAR_INT8: return n;
  default: return n * dtype_bytes(linear->dtype);
  }
}

/* The numbers of a layer's ACTIVATION_XIELU (Huang and Schlag, arXiv:2411.13010):
 *   g = alpha_p u^2 + beta u where u > 0, else alpha_n (e^min(u, eps) - 1 - u) + beta u.
 * They are stored so that alpha_p is ln(1 + e^stored), alpha_n that plus beta. */
typedef struct {
  Vector alpha_p, alpha_n; /* [1]; data NULL unless config.activation is ACTIVATION_XIELU */
  Vector beta, eps;        /* [1]; data NULL: 0.5 and -1e-6 */
} XieluLayer;
typedef struct {
  float alpha_p, alpha_n, beta, eps;
} Xielu;
/* ln(1 + e^x), as torch's softplus: x itself from 20 on. */
double softplus(double x);
Xielu xielu_read(const XieluLayer *layer); /* zeros if the layer has none */

/* Weights of LAYER_DELTA in place of q, k, v and their norms (backend.h, norm_delta_rule), or beside them. C:
 * delta_channels(). */
typedef struct {
  /* hidden -> C, -> n_value_heads * value_dim, -> n_value_heads, -> delta_decays(). config.delta.interleaved,
   * before model_prepare(): qkv -> C + n_value_heads * value_dim, b -> 2 n_value_heads, z and a have n_out
   * 0. RULE_MAMBA2: there is no b; a is the step size, dt */
  Linear qkv, z, b, a;
  Linear k, v;       /* with config.delta.apart, and qkv is q alone; else n_out 0 */
  Linear z_in, a_in; /* hidden -> gate_rank, which z and a multiply instead; n_out 0 with a gate_rank of 0 */
  Linear o;          /* n_value_heads * value_dim -> hidden; n_out 0 unless LayerConfig.delta_beside */
  Vector conv;       /* [C][taps], the last tap for the token itself */
  Vector conv_bias;  /* [C]; data NULL unless config.delta.conv_bias */
  Vector a_log;      /* [n_value_heads] */
  Vector dt_bias;    /* [delta_decays()] */
  Vector skip;       /* [n_value_heads] Mamba-2's D; data NULL with the gated delta rule */
  /* [value_dim], with RULE_MAMBA2 [n_value_heads * value_dim]; multiplies by weight also with
   * norm_plus_one; data NULL with config.delta.no_norm */
  Vector norm;
} DeltaLayer;

/* Weights of a layer of LAYER_CONV in place of q, k, v and their norms (backend.h, norm_short_conv). */
typedef struct {
  Linear in;   /* hidden -> 3 hidden: the gates of inputs, those of outputs, and what is convolved */
  Vector taps; /* [hidden][taps], the last tap for the token itself */
  Vector bias; /* [hidden]; data NULL unless config.conv.bias */
} ConvLayer;

/* One of a layer's experts: an MLP of the width config.experts.width. Experts are stored one by one, or all
 * of a layer in tensors with one dimension more: these Linears are then views into them. */
typedef struct {
  Linear gate, up, down; /* expert_row_width() -> width twice, and back; config.ungated: gate has n_out 0 */
} Expert;

/* Weights of an MLP with experts (backend.h, norm_experts_residual). The MLP beside them, which every token
 * passes, is gate, up and down of ModelLayer. */
typedef struct {
  Linear router;      /* hidden -> n_experts, dense; its bias: config.experts.router_bias */
  Expert *experts;    /* [n_experts] */
  Linear shared_gate; /* hidden -> 1, dense; n_out 0 unless config.experts.shared_gate */
  Vector choice_bias; /* [n_experts]; data NULL unless config.experts.choice_bias */
  /* hidden -> latent, and back; n_out 0 unless config.experts.latent: what the experts read is latent_in of
   * the layer's input, and latent_out multiplies their sum. */
  Linear latent_in, latent_out;
  /* Only with config.experts.own_norms. [n_experts]: factors of the experts' weights. [hidden] each: what
   * multiplies the router's normalised input; norms of the experts' input, of their output, and of the output
   * of the MLP beside them. */
  Vector scales;
  Vector router_scale, norm, post_norm, shared_post_norm;
} ExpertLayer;

/* The matrices that make one row of a token's residual streams (backend.h, mix_streams). S: streams.n *
 * hidden. */
typedef struct {
  Linear down, up; /* S -> streams.rank, and back: the weights of the mix */
  Linear inject;   /* S -> streams.n: the factors of what the block returns; n_out 0 before the logits */
} StreamMix;

/* AltUp and LAuReL in a layer (backend.h, predict_streams, add_laurel). n: config.altup.n. */
typedef struct {
  Vector router_norm;      /* [hidden] */
  Linear router;           /* hidden -> n */
  Linear predict, correct; /* n -> n * n, n -> n: coefficients */
  Vector output_scale;     /* [hidden] of the first stream where the layer's own input is added */
  Linear left, right;      /* hidden -> laurel_rank, and back */
  Vector laurel_norm;      /* [hidden] output of right */
} AltupLayer;

/* Rows of a table of n-grams. Numbers in F8_E4M3 or I8 are multiplied by a scale. */
typedef struct {
  Matrix rows;
  Vector scales; /* [1] for all rows or [rows.n_rows]; data NULL: no scales */
} NgramShard;

/* Embeddings of n-grams (backend.h, add_ngrams). */
typedef struct {
  Linear key, value;                      /* ngrams.width -> S, -> hidden */
  Vector key_norm, query_norm, conv_norm; /* [S], each stream is normalised by itself */
  Vector taps;                            /* [S][taps], the last tap for the token itself */
  NgramShard
      *shards; /* [n_shards] the table, one after another: as many rows each, of ngram_columns() numbers */
  int n_shards;
} NgramLayer;

typedef struct {
  Vector attn_norm; /* [hidden] input of q, k and v; data NULL with NORM_AFTER, and of LAYER_MLP_ALONE */
  Vector attn_norm_bias,
      mlp_norm_bias; /* [hidden] added to what these norms make; data NULL unless config.norm_bias */
  DeltaLayer delta;  /* of LAYER_DELTA, where q, k, v have n_out 0, their norms data NULL; or delta_beside */
  ConvLayer conv;    /* of LAYER_CONV; likewise */
  /* In a model's part (slice.h) outputs of delta.qkv or conv.in that follow its own; else n_out 0. */
  Linear more[2];
  /* hidden -> n_heads * head_dim, hidden -> n_kv_heads * head_dim twice, and back (v and o with
   * config_value_dim() for head_dim); no v with k_as_v,
   * no k and v with shares_kv: n_out is 0. LAYER_DELTA: o is n_value_heads * value_dim -> hidden;
   * LAYER_CONV: hidden -> hidden; of LAYER_MLP_ALONE n_out is 0 */
  Linear q, k, v, o;
  /* Only with latent attention (LatentConfig), which has no k and v: hidden -> q_rank (n_out 0 without one);
   * hidden -> kv_rank, and then rope_dim; kv_rank -> for each head nope_dim of its key and then value_dim. q
   * is q_rank or hidden -> n_heads * (nope_dim + rope_dim), o n_heads * value_dim -> hidden. */
  Linear q_a, kv_a, kv_b;
  Vector q_a_norm, kv_a_norm; /* [q_rank], [kv_rank] of their outputs */
  /* [n_heads] parts of kv_b: nope_dim -> kv_rank, its transpose, dense; kv_rank -> value_dim. */
  Linear *key_heads, *value_heads;
  Linear attn_gate;      /* hidden -> n_heads * head_dim or n_heads; n_out 0 unless config.attn_gate */
  Vector q_norm, k_norm; /* [head_dim], or [heads * head_dim]; data NULL unless config.qk_norm */
  Vector sinks;          /* [n_heads] logits; data NULL unless config.attn_sinks, or with no_sinks */
  Vector attn_post_norm; /* [hidden] output of o; data NULL with NORM_BEFORE */
  /* [hidden] input of gate and up; data NULL with NORM_AFTER, with no_mlp and with config.parallel */
  Vector mlp_norm;
  /* hidden -> intermediate twice, and back; n_out 0 where experts are alone, or with no_mlp, and of gate with
   * config.ungated */
  Linear gate, up, down;
  XieluLayer xielu;
  ExpertLayer moe;      /* of layers with experts (config_layer().n_experts) */
  Vector mlp_post_norm; /* [hidden] output of down; data NULL with NORM_BEFORE */
  /* Only with config.per_layer_width: hidden -> per_layer_width and back, and [hidden] its output. */
  Linear input_gate, input_projection;
  Vector input_norm;
  Vector scalar; /* [1] multiplies what leaves the layer; data NULL unless config.layer_scalar */
  /* Only with config.streams.n: of attention, or what stands in its place, and of the MLP. Then attn_norm and
   * mlp_norm are [streams.n * hidden], of the streams. */
  StreamMix attn_mix, mlp_mix;
  AltupLayer altup;  /* only with config.altup.n */
  NgramLayer ngrams; /* only with LayerConfig.ngrams */
  /* Only of LAYER_ATTENTION with config.indexer.block: hidden -> index queries, then the index key; and
   * [indexer.head_dim] their norms. */
  Linear index;
  Vector index_q_norm, index_k_norm;
} ModelLayer;

/* The parts of a drafter beside its layers (config.h, DraftKind). W: width of an embedding and of the
 * target's states. The norm of EAGLE-3's embeddings is the first layer's attn_norm. */
typedef struct {
  Linear states;                        /* n_states * W -> hidden; n_out 0 unless EAGLE-3 or DFlash */
  Linear join;                          /* 2 W -> hidden; n_out 0 unless MTP or Gemma 4 */
  Linear out;                           /* hidden -> W; n_out 0 unless Gemma 4 */
  Vector embedding_norm;                /* [W]; data NULL unless MTP */
  Vector state_norm;                    /* [hidden], of MTP [W]; data NULL with Gemma 4 */
  Vector states_norm[MAX_DRAFT_STATES]; /* [n_states * W], or [W] each; data NULL: none */
  bool target_head;    /* the head is the target's: it is copied again when that is prepared */
  bool round_head;     /* a device that has the target's head rounds it to 4 bits for the drafter */
  int32_t *target_ids; /* [vocab_size] the target's ids of the drafter's tokens; NULL: the same */
} DraftParts;

typedef struct ModelFiles ModelFiles; /* the mapped files and other memory, private to src/model */

typedef enum { LAYOUT_HF_DIRECTORY, LAYOUT_AK48 } ModelLayout;

typedef struct {
  ModelConfig config;
  ModelLayout layout;
  bool dummy;       /* made by model_open_dummy() */
  Matrix embedding; /* [vocab_size][hidden]; of a drafter [target_vocab][W], perhaps its target's own */
  /* Only with config.per_layer_width: what makes each layer's own input of a token. */
  Matrix input_table;      /* [per_layer_vocab][n_layers * per_layer_width] */
  Linear input_projection; /* hidden -> n_layers * per_layer_width */
  Vector input_norm;       /* [per_layer_width] */
  ModelLayer *layers;      /* [n_layers] */
  DraftParts draft;        /* only with config.draft.kind */
  Vector final_norm;       /* [hidden], or [streams.n * hidden] */
  Vector final_norm_bias;  /* [hidden]; data NULL unless config.norm_bias */
  StreamMix mix;           /* of the logits' input; only with config.streams.n */
  /* Only with config.altup.n: hidden -> hidden, [i] makes stream i + 1 of an embedding, or what logits read
   * of that stream. */
  Linear streams_in[MAX_STREAMS - 1], streams_out[MAX_STREAMS - 1];
  /* lm_head, hidden -> vocab_size; the embedding's own data when tied; its bias: config.head_bias */
  Linear head;
  size_t weight_bytes; /* all tensors used, as stored, each once */
  size_t table_bytes;  /* tables of n-grams, a part of weight_bytes: rows are read from the mapped file */
  /* Memory that model_prepare() takes, and that opening has taken to join the parts of convolutions (Olmo
   * Hybrid). */
  size_t made_bytes;
  size_t replaced_bytes; /* the part of weight_bytes that is not read after model_prepare() */
  size_t unused_tensors; /* in the files and not used (rotary tables and the like), for inspect */
  bool assumed;          /* an ak48 file: rope_theta or epsilon is Qwen3's for lack of another source */
  char *tokenizer_path;  /* the model's tokenizer.json (not opened here), or NULL */
  /* Sources of rope_theta and epsilon, for inspect; static strings: "flag", "config.json beside the file",
   * "Qwen3's published value", or for a directory "config.json". NULL: the value is not known. */
  const char *theta_source, *eps_source;
  ModelFiles *files;
} Model;

/* Values of flags, which override the file's. A directory refuses all but `tokenizer` with STATUS_USAGE. */
typedef struct {
  double rope_theta;     /* 0: not given */
  double norm_eps;       /* 0: not given */
  const char *tokenizer; /* path of a tokenizer.json, or NULL */
} ModelOverrides;

/* Opens a Hugging Face directory or an ak48 file; overrides may be NULL. Release with model_close(), also
 * after a failure (NULL is fine). */
Status model_open(const char *path, const ModelOverrides *overrides, Model **model, Error *err);
void model_close(Model *model);

/* Opens a drafter for a target: a directory of its own, or the target's path for the layer that predicts
 * several tokens inside its checkpoint (Qwen3.5 to 3.8, Qwen3-Next). It uses embedding and head of the
 * target, which outlives it, where it has none. A drafter that does not fit is refused by name. */
Status model_open_draft(const char *path, const Model *target, Model **draft, Error *err);
/* Rounds a prepared drafter's dense matrices to 4 bits in groups of 128 where sizes allow; a head that is the
 * target's is left to the device (draft.round_head). */
Status model_round_draft(Model *draft, int n_threads, Error *err);
/* True if a checkpoint has such a layer, which is no part of the model. */
bool model_predicts_several(const Model *model);

/* Bytes of weights after model_prepare(), tables of n-grams among them. */
size_t model_loaded_bytes(const Model *model);

/* To be called before anything is computed: refuses (STATUS_MODEL) a model with assumed rope_theta or epsilon
 * and without q and k norms. With them it may be Qwen3: it passes, and the command reports the assumption. */
Status model_check_known(const Model *model, Error *err);

/* Repacks layers that are not stored in a Linear's form (models.md, "What is repacked") with n_threads
 * threads (0: all cores) and refuses infinite or NaN scales. To be called before weights are read, not
 * needed to look at sizes. A second call does nothing. */
Status model_prepare(Model *model, int n_threads, Error *err);
/* The same for a device that calls model_prepare_expert() before it reads an expert: their weights, most of a
 * mixture's, stay as they are stored until then. The memory for them is taken, but not touched. */
Status model_prepare_but_experts(Model *model, int n_threads, Error *err);
/* Repacks an expert's weights where that was left; else it returns at once. Not from two threads at a time,
 * unless model_prepare() was called. */
void model_prepare_expert(const Model *model, const Expert *expert, int n_threads);
/* The short first part of model_prepare(): makes and checks scales and zero points, so that a device can
 * refuse them before the weights are repacked. */
Status model_prepare_scales(Model *model, int n_threads, Error *err);

/* Reports whether the file at `path` begins with ak48's magic; fails (STATUS_MODEL) if it cannot be read. */
Status ak48_is(const char *path, bool *packed, Error *err);

/* Refuses, with advice, a directory that has no tokenizer.json but a tokenizer in another format
 * (SentencePiece's tokenizer.model and the like). */
Status other_tokenizer_refuse(const char *directory, Error *err);

/* A model made from a config alone (`path`: a config.json, or a directory with one), for measuring speed:
 * kinds, sizes and groups are those of an fp16 checkpoint of this config. Every tensor has an address, but
 * reading it raises SIGSEGV until model_fill_dummy() has made weight_bytes of random weights. A GPU makes its
 * own random weights instead. */
Status model_open_dummy(const char *path, Model **model, Error *err);
Status model_fill_dummy(const Model *model, Error *err); /* PRECOND model->dummy */

/* Refuses by name what an ak48 file (models.md, "ak48") cannot hold: biases, dense linear layers, values that
 * fp16 cannot hold exactly, different group sizes, rope scaling, sliding windows shorter than the context.
 * Returns STATUS_INTERRUPTED when *interrupted becomes other than 0 (NULL: never). */
Status ak48_check_fits(const Model *model, const volatile int *interrupted, Error *err);
/* Writes `model` as an ak48 file; the caller commits it, or after a failure aborts it. PRECOND
 * ak48_check_fits() returned STATUS_OK. */
Status ak48_write(const Model *model, AtomicFile *file, const volatile int *interrupted, Error *err);

/* Names of the optional files that auk reads beside a checkpoint's weights, in the same directory. */
enum { N_MODEL_COMPANIONS = 10 };
extern const char *const model_companions[N_MODEL_COMPANIONS];
const char *model_path(const Model *model); /* as given to model_open() */
/* The model's directory, a packed file's own, in new memory; NULL after a failure. */
char *model_directory(const Model *model, Error *err);
/* Reports whether this file is one of the model's weights, companions or its tokenizer. */
Status model_has_file(const Model *model, uint64_t device, uint64_t inode, bool *has, Error *err);
