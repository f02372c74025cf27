/* layers.h - which tensors a model of a given config has, with their names and sizes (from tensors.def). */
#pragma once

#include "model/model.h"
#include "model/program.h"

/* Linear layers from N_LAYER_LINEARS on are those of a layer's experts: EXPERT_GATE .. of the first, then of
 * the second, and so on. */
static inline int expert_linear(int expert, int part) {
  return N_LAYER_LINEARS + expert * N_EXPERT_LINEARS + part;
}
/* N_LAYER_LINEARS plus the number of the linear layers of the layer's experts: at most 2^14. */
int layer_linear_count(const ModelConfig *config, int layer);

/* Linear layer `which`, LAYER_Q .. layer_linear_count() - 1; const is dropped, as in strchr(). */
Linear *layer_linear(const ModelLayer *layer, int which);
const char *layer_linear_name(int which); /* "self_attn.q_proj"; PRECOND which < N_LAYER_LINEARS */
const char *layer_vector_name(int which); /* "input_layernorm" */

const char *layers_name(const ModelConfig *config); /* "layers", or the model's own name for them */

/* out[size] = the full name of a part of a layer, "model.layers.3.self_attn.q_proj": the prefix `body`
 * ("model."), then the layer's number, then the part's name. config.names.block, .attention and .delta
 * replace the part's "self_attn" and the like. */
void layer_full_name(const ModelConfig *config, const char *body, int layer, const char *part, char *out,
                     size_t size);

/* True if the layer has linear layer `which`; otherwise that Linear has n_out 0. */
bool layer_linear_exists(const ModelConfig *config, int layer, int which);

/* Inputs and outputs of linear layer `which` of a layer: far below 2^31 within the ranges of config.h. */
void layer_linear_sizes(const ModelConfig *config, int layer, int which, int *n_in, int *n_out);

/* True if the config requires that linear layer `which` has a bias. */
bool layer_linear_needs_bias(const ModelConfig *config, int layer, int which);

/* The stored matrix that holds a linear layer; with config->fused or Mamba-2 it can hold others, too. */
typedef struct {
  const char *name; /* "self_attn.qkv_proj" */
  int first_part;   /* the linear layer (LAYER_Q ..) with the first outputs of the matrix */
  int first;        /* this linear layer's first output in the matrix */
  int n_out;        /* outputs of the matrix */
} StoredLinear;
/* Room for "thinker.model.language_model.layers.4095.block_sparse_moe.experts.4095.gate_proj". */
#define LINEAR_NAME_SIZE 88
/* PRECOND which < N_LAYER_LINEARS */
StoredLinear layer_linear_stored(const ModelConfig *config, int layer, int which);
/* name = the stored matrix's name within the layer, such as "mlp.experts.7.gate_proj". */
void layer_linear_part(const ModelConfig *config, int layer, int which, char name[LINEAR_NAME_SIZE]);
/* True if linear layer `which` is the first one in its stored matrix; false also if the layer lacks it. */
bool layer_linear_is_first(const ModelConfig *config, int layer, int which);

/* A vector as it is stored: its name within the layer is name followed by suffix. */
typedef struct {
  const char *name;   /* "input_layernorm"; NULL: the layer has no such vector */
  const char *suffix; /* ".weight" of a norm, or "" */
  int n, taps;        /* [n], or with taps > 0 [n][1][taps] */
  Dtype usually;      /* DTYPE_F32 if fp16 and bf16 checkpoints have the vector in fp32, else DTYPE_F16 */
} StoredVector;
StoredVector layer_vector_stored(const ModelConfig *config, int layer, int which);
/* True for a norm's weights that the checkpoint lacks (config.norms_plain), in a layer or outside the layers:
 * the loader sets each to 1. */
bool layer_vector_is_made(const ModelConfig *config, int which);
bool model_vector_is_made(const ModelConfig *config, int which);

/* --- outside the layers: MODEL_HEAD .., tables MODEL_EMBEDDING .., vectors MODEL_FINAL_NORM .. */

/* A table's name without a prefix, "embed_tokens", and its sizes; no columns: the model lacks it. */
typedef struct {
  const char *name;
  int n_rows, n_columns;
} StoredTable;
StoredTable model_table_stored(const ModelConfig *config, int which);

/* A linear layer's numbers of inputs and outputs, and a vector's length. If the model lacks the tensor, the
 * number of outputs or the length is 0. */
void model_linear_sizes(const ModelConfig *config, int which, int *n_in, int *n_out);
int model_vector_size(const ModelConfig *config, int which);
/* out = the full name: "model.altup_projections.2", "model.norm.weight". */
void model_linear_name(const ModelConfig *config, const char *body, int which, char out[LINEAR_NAME_SIZE]);
void model_vector_name(const ModelConfig *config, const char *body, int which, char out[LINEAR_NAME_SIZE]);
/* The rows of a step for which a linear layer is computed, or a vector is read. */
typedef enum { ROWS_OF_STEP, ROWS_OF_LOGITS, ROWS_OF_DRAFT } ModelRows;
ModelRows model_linear_rows(int which);
ModelRows model_vector_rows(int which);
/* As layer_vector_plus(), below; but 0 for final_norm with NORM_PLUS_ONE_INSIDE. */
float model_vector_plus(const ModelConfig *config, int which);

/* The term added to each number of a vector before use: 1 for norms with norms_plus_one(), else 0. */
float layer_vector_plus(const ModelConfig *config, int which);
/* A stored number of a vector as it is used: layer_vector_plus() is added, or SphereConfig says what. */
float layer_vector_number(const ModelConfig *config, int which, float stored);
/* A dummy's random numbers for a vector, layer_vector_plus() included, are uniform in [low, high). */
typedef struct {
  float low, high;
} VectorRange;
VectorRange layer_vector_range(int which);
VectorRange model_vector_range(int which);

/* The part of a tensor that one of several GPUs has (slice.c). */
typedef enum {
  DIVIDE_WHOLE,        /* the whole tensor */
  DIVIDE_QUERY_HEADS,  /* outputs, or numbers of a vector, of the GPU's query heads */
  DIVIDE_KV_HEADS,     /* the same for its KV heads */
  DIVIDE_VALUE_HEADS,  /* the same for its value heads of the delta rule */
  DIVIDE_KEY_RUNS,     /* three runs of channels: q and k of its key heads, v of its value heads */
  DIVIDE_CHANNEL_RUNS, /* its channels of a convolution; in a matrix, three runs of them */
  DIVIDE_MIXER_INPUTS, /* the inputs that its heads or channels produce */
  DIVIDE_UNITS,        /* outputs: its hidden units of an MLP */
  DIVIDE_UNIT_INPUTS,  /* inputs: its hidden units of an MLP */
} Division;
Division layer_linear_division(int which);
Division layer_vector_division(int which);

/* The matrix of a GPU's layer (cuda/one/device_model.h) that has a linear layer. Matrices from
 * MATRIX_ON_DEVICE on are on the GPU even if the layer's other matrices stay in the host's memory. */
typedef enum {
  MATRIX_ALONE, /* DeviceLayer.linear[which] */
  /* The next five multiply the layer's input and are joined in DeviceLayer.qkv in this order; matrices with
   * the same value are in the order of their rows in tensors.def. If b and a form a separate matrix, the
   * delta rule's kernels of few tokens compute its product, too (delta.h). */
  MATRIX_DELTA_B_A,
  MATRIX_DELTA,
  MATRIX_DELTA_END,
  MATRIX_QKV,
  MATRIX_QKV_END,
  MATRIX_GATE_UP,   /* joined in DeviceLayer.gate_up */
  MATRIX_ATTN_MIX,  /* joined in DeviceLayer.attn_mix */
  MATRIX_MLP_MIX,   /* joined in DeviceLayer.mlp_mix */
  MATRIX_ON_DEVICE, /* as MATRIX_ALONE */
  MATRIX_SMALL,     /* DeviceLayer.small[which - LAYER_ALTUP_ROUTER] */
  MATRIX_ROUTER,    /* as MATRIX_ALONE; only kernels of the router read it */
  MATRIX_HEADS,     /* key_heads and value_heads */
  MATRIX_EXPERTS,   /* DeviceLayer.experts; all linear layers of experts */
} DeviceMatrix;
/* The value in tensors.def, with two exceptions. MATRIX_ALONE: it multiplies the output of another matrix (z
 * and a of the delta rule with a gate_rank, q with a q_rank). MATRIX_DELTA_END: delta_a by channel. */
DeviceMatrix layer_device_matrix(const ModelConfig *config, int which);

/* True if `auk quantize` rounds this kind of linear layer. */
bool layer_linear_is_rounded(int which);

/* The layer's operation that reads tensor `which`: a vector if is_vector, else a linear layer. A layer that
 * lacks this operation (layer_computes()) lacks the tensor. */
OpKind layer_tensor_operation(const ModelConfig *config, int layer, bool is_vector, int which);
