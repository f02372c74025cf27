/* layers.h - the seven linear layers of a transformer layer in one table: where they are, what they are
 * called, how large they are. In the order in which an ak48 file holds them. */
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

/* "model.layers.3.self_attn.q_proj" and the like, in a slot of fixed size: the number has at most ten
 * digits. */
#define LINEAR_NAME_SIZE 48
void layer_linear_full_name(int layer, int which, char out[LINEAR_NAME_SIZE]);

#endif
