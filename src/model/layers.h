/* layers.h - the seven linear layers of a transformer layer in one table: where they are, what they are called,
 * how large they are. In the order in which an ak48 file holds them. */
#ifndef AUK_MODEL_LAYERS_H
#define AUK_MODEL_LAYERS_H

#include "model/model.h"

enum { LAYER_Q, LAYER_K, LAYER_V, LAYER_O, LAYER_GATE, LAYER_DOWN, LAYER_UP, N_LAYER_LINEARS };

Linear *layer_linear(ModelLayer *layer, int which);
const Linear *layer_linear_const(const ModelLayer *layer, int which);
const char *layer_linear_name(int which); /* "self_attn.q_proj" */

/* Inputs and outputs that the config gives linear layer `which`. Exact for any int fields. */
void layer_linear_sizes(const ModelConfig *config, int which, int64_t *n_in, int64_t *n_out);

/* Whether all those sizes fit the ints of a Linear; refused naming `file` and the layer. */
Status layer_sizes_check(const ModelConfig *config, const char *file, Error *err);

/* "model.layers.3.self_attn.q_proj" and the like, in a slot of fixed size: the number has at most ten digits. */
#define LINEAR_NAME_SIZE 48
void layer_linear_full_name(int layer, int which, char out[LINEAR_NAME_SIZE]);

#endif
