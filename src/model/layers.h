/* layers.h - the seven linear layers and the norms of a transformer layer in two tables: where they are, what
 * they are called, how large they are. Linear layers in the order in which an ak48 file holds them. */
#ifndef AUK_MODEL_LAYERS_H
#define AUK_MODEL_LAYERS_H

#include "model/model.h"

enum { LAYER_Q, LAYER_K, LAYER_V, LAYER_O, LAYER_GATE, LAYER_DOWN, LAYER_UP, N_LAYER_LINEARS };

/* Linear layer `which` (LAYER_Q .. LAYER_UP) of a layer. */
Linear *layer_linear(ModelLayer *layer, int which);
const Linear *layer_linear_const(const ModelLayer *layer, int which);
const char *layer_linear_name(int which); /* "self_attn.q_proj" */

/* Inputs and outputs that the config gives linear layer `which`: far below 2^31 in the ranges of config.c and
 * of ak48.c. */
void layer_linear_sizes(const ModelConfig *config, int which, int *n_in, int *n_out);

/* Whether the config says that it has a bias. */
bool layer_linear_needs_bias(const ModelConfig *config, int which);

/* The matrix that it is stored in: itself, or with config->fused one that holds others beside it. */
typedef struct {
  const char *name; /* "self_attn.qkv_proj" */
  int first_part;   /* the layer whose outputs are the first there: `which` where it is alone */
  int first;        /* the first of its outputs there */
  int n_out;        /* all outputs there */
} StoredLinear;
StoredLinear layer_linear_stored(const ModelConfig *config, int which);
/* Whether it is the first in it: true for one layer of each matrix. */
bool layer_linear_is_first(const ModelConfig *config, int which);

/* "model.layers.3.self_attn.q_proj" and the like: the name of the matrix that it is stored in, behind `body`
 * ("model."), in a slot of fixed size: the number has at most ten digits, body at most 21 letters. */
#define LINEAR_NAME_SIZE 64
void layer_linear_full_name(const ModelConfig *config, const char *body, int layer, int which,
                            char out[LINEAR_NAME_SIZE]);

enum {
  LAYER_ATTN_NORM,
  LAYER_ATTN_POST_NORM,
  LAYER_MLP_NORM,
  LAYER_MLP_POST_NORM,
  LAYER_Q_NORM,
  LAYER_K_NORM,
  N_LAYER_NORMS
};

Vector *layer_norm_of(ModelLayer *layer, int which);
const Vector *layer_norm_const(const ModelLayer *layer, int which);
/* Its name in a layer, "input_layernorm", and its width; NULL where the config has no such norm. */
const char *layer_norm_name(const ModelConfig *config, int which, int *width);

#endif
