/* slice.h - a model's part for one of several GPUs that compute each layer together (tensor parallel).
 *
 * A part is a Model of its own, whose matrices are views into the whole model's. It has heads of q, k and v,
 * with the inputs of o that belong to them; hidden units of gate and up, with the same inputs of down, in
 * MLPs and in each expert; key heads of the delta rule, with their value heads; channels of a short
 * convolution; rows of lm_head. Embedding, norms and routers are whole. The results of o and down are then
 * sums over all parts; their biases are in the first part alone. Where there are fewer KV heads than parts,
 * several parts have the same head. Hidden units are divided in whole groups of down's inputs, so parts may
 * differ by a group. */
#pragma once

#include "model/model.h"

/* Refuses (STATUS_MODEL) a model that cannot be divided among n GPUs: names the obstacle, and the numbers of
 * GPUs that would work. Needs no weights. n 1: any model. */
Status model_check_split(const Model *model, int n, Error *err);

/* The sizes of part `index` of n; no part has larger sizes than the first. Release with
 * config_part_release(), also after a failure. PRECOND model_check_split() returned STATUS_OK. */
Status config_part(const Model *whole, int index, int n, ModelConfig *part, Error *err);
void config_part_release(ModelConfig *part);

/* Part `index` of n. Weights that model_prepare() makes have no data unless it was called before. The whole
 * model must outlive its parts. Release with model_part_free() (NULL is fine). PRECOND as for
 * config_part(). */
Status model_part(const Model *whole, int index, int n, Model **part, Error *err);
void model_part_free(Model *part);
RELEASE_BY(part_release, Model, model_part_free)

/* The first row of lm_head that part `index` of n has; vocab_size if index is n. */
int model_part_head(int vocab_size, int index, int n);

/* In a layer with n_kv_heads KV heads: the first one that part `index` of n has. */
int model_part_kv_head(int n_kv_heads, int index, int n);
