/* layers.h - the linear layers and norms of a transformer layer as tables: place, name, size. Linear layers
 * are in the order of an ak48 file; those that only some models have follow. */
#pragma once

#include "model/model.h"

enum {
  LAYER_Q,
  LAYER_K,
  LAYER_V,
  LAYER_O,
  LAYER_GATE,
  LAYER_DOWN,
  LAYER_UP,
  N_COMMON_LINEARS, /* those before are in every model */
  LAYER_ATTN_GATE = N_COMMON_LINEARS,
  LAYER_DELTA_QKV,
  LAYER_DELTA_Z,
  LAYER_DELTA_B,
  LAYER_DELTA_A,
  LAYER_DELTA_K,
  LAYER_DELTA_V,
  LAYER_DELTA_Z_IN,
  LAYER_DELTA_A_IN,
  LAYER_DELTA_O,
  LAYER_CONV_IN,
  LAYER_INPUT_GATE,
  LAYER_INPUT_PROJECTION,
  LAYER_ROUTER,
  LAYER_SHARED_GATE,
  LAYER_LATENT_IN,
  LAYER_LATENT_OUT,
  LAYER_Q_A,
  LAYER_KV_A,
  LAYER_KV_B,
  LAYER_ATTN_MIX_DOWN,
  LAYER_ATTN_MIX_UP,
  LAYER_ATTN_INJECT,
  LAYER_MLP_MIX_DOWN,
  LAYER_MLP_MIX_UP,
  LAYER_MLP_INJECT,
  LAYER_INDEX,
  LAYER_NGRAM_KEY,
  LAYER_NGRAM_VALUE,
  LAYER_ALTUP_ROUTER,
  LAYER_ALTUP_PREDICT,
  LAYER_ALTUP_CORRECT,
  LAYER_LAUREL_LEFT,
  LAYER_LAUREL_RIGHT,
  N_LAYER_LINEARS
};

/* Linear layers from N_LAYER_LINEARS on are those of a layer's experts: gate, up and down of the first, then
 * of the second, and so on. */
enum { EXPERT_GATE, EXPERT_UP, EXPERT_DOWN, N_EXPERT_LINEARS };
static inline int expert_linear(int expert, int part) {
  return N_LAYER_LINEARS + expert * N_EXPERT_LINEARS + part;
}
/* N_LAYER_LINEARS and those of the layer's experts: at most 2^14 */
int layer_linear_count(const ModelConfig *config, int layer);

/* Linear layer `which` (LAYER_Q .. layer_linear_count()) of a layer; const is dropped, as strchr() does. */
Linear *layer_linear(const ModelLayer *layer, int which);
const char *layer_linear_name(int which); /* "self_attn.q_proj"; PRECOND which < N_LAYER_LINEARS */

/* out[size] = the whole name of a part of a layer, "model.layers.3.self_attn.q_proj", from what names begin
 * with ("model."), the layer's number and the part's name, where config.names.block, .attention and .delta
 * replace "self_attn" and the like. */
void layer_full_name(const ModelConfig *config, const char *body, int layer, const char *part, char *out,
                     size_t size);

/* True if the layer has linear layer `which`; the Linear of one that it lacks has n_out 0. */
bool layer_linear_exists(const ModelConfig *config, int layer, int which);

/* Inputs and outputs of linear layer `which` of a layer: far below 2^31 within the ranges of config.h. */
void layer_linear_sizes(const ModelConfig *config, int layer, int which, int *n_in, int *n_out);

/* True if the config requires a bias. */
bool layer_linear_needs_bias(const ModelConfig *config, int layer, int which);

/* The stored matrix that holds a linear layer; with config->fused or fused_gate_up it may
 * also hold others. */
typedef struct {
  const char *name; /* "self_attn.qkv_proj" */
  int first_part;   /* the linear layer (LAYER_Q ..) with the first outputs of the matrix */
  int first;        /* the first of this layer's outputs in the matrix */
  int n_out;        /* outputs of the matrix */
} StoredLinear;
/* Room for "thinker.model.language_model.layers.4095.block_sparse_moe.experts.4095.gate_proj". */
#define LINEAR_NAME_SIZE 88
/* PRECOND which < N_LAYER_LINEARS */
StoredLinear layer_linear_stored(const ModelConfig *config, int layer, int which);
/* "mlp.experts.7.gate_proj" of a linear layer from N_LAYER_LINEARS on. */
void expert_linear_name(const ModelConfig *config, int which, char name[LINEAR_NAME_SIZE]);
/* True if the linear layer is the first in its stored matrix, which holds one such layer; false if
 * the layer has no such linear layer. */
bool layer_linear_is_first(const ModelConfig *config, int layer, int which);

enum {
  LAYER_ATTN_NORM,
  LAYER_ATTN_POST_NORM,
  LAYER_MLP_NORM,
  LAYER_MLP_POST_NORM,
  LAYER_Q_NORM,
  LAYER_K_NORM,
  LAYER_INPUT_NORM,
  LAYER_EXPERT_NORM,
  LAYER_EXPERT_POST_NORM,
  LAYER_SHARED_POST_NORM,
  LAYER_Q_A_NORM,
  LAYER_KV_A_NORM,
  LAYER_INDEX_Q_NORM,
  LAYER_INDEX_K_NORM,
  LAYER_NGRAM_KEY_NORM,
  LAYER_NGRAM_QUERY_NORM,
  LAYER_NGRAM_CONV_NORM,
  LAYER_ALTUP_NORM,
  LAYER_LAUREL_NORM,
  N_LAYER_NORMS
};

Vector *layer_norm_of(const ModelLayer *layer, int which);
/* Name of a norm within a layer, "input_layernorm", and its width; NULL if the layer has no such norm. */
const char *layer_norm_name(const ModelConfig *config, int layer, int which, int *width);

/* The biases of norms, and the vectors of DeltaLayer, ConvLayer, NgramLayer, ExpertLayer, AltupLayer and
 * XieluLayer as stored: "linear_attn.conv1d.weight" [n][1][taps], or [n]. */
enum {
  DELTA_CONV,
  DELTA_A_LOG,
  DELTA_DT_BIAS,
  DELTA_NORM,
  DELTA_CONV_BIAS,
  DELTA_SKIP,
  CONV_TAPS,
  CONV_BIAS,
  NGRAM_TAPS,
  ATTN_NORM_BIAS,
  MLP_NORM_BIAS,
  EXPERT_CHOICE_BIAS, /* [n] or [1][n] */
  EXPERT_SCALES,
  EXPERT_ROUTER_SCALE,
  ALTUP_OUTPUT_SCALE,
  XIELU_ALPHA_P, /* these four: [1] or a scalar; the last two may be missing */
  XIELU_ALPHA_N,
  XIELU_BETA,
  XIELU_EPS,
  N_LAYER_VECTORS
};
typedef struct {
  const char *name; /* NULL: the layer has no such vector */
  int n, taps;      /* taps: 0 of a vector of rank 1 */
  Dtype usually;    /* DTYPE_F32 if checkpoints store it so beside fp16 and bf16 weights, else DTYPE_F16 */
} LayerVector;
Vector *layer_vector_of(const ModelLayer *layer, int which);
LayerVector layer_vector_stored(const ModelConfig *config, int layer, int which);
