/* hf_tensors.h - finds and checks tensors of a Hugging Face directory by name. Private to src/model; used by
 * the other hf_*.c files. */
#pragma once

#include "model/loaders.h"

typedef struct {
  Model *model;
  const WeightFiles *files;
  const char *config_path; /* for messages */
  const char *body, *head; /* prefixes of names: body "model.", head "lm_head" */
  bool midlayer;           /* the file calls "layers.0." "midlayer." (EAGLE-3) */
  /* Set while one expert is read from tensors that hold all experts of a layer (hf_experts.c): hf_find() then
   * searches these views and ignores `base`. Else NULL. */
  StoredTensor *views;
  float *ones; /* [hidden] for norms without weights; NULL: not made yet. Belongs to the model. */
  Error *err;
} HfLoader;

/* Room for any name:
 * "thinker.model.language_model.layers.4095.mlp.experts.4095.gate_proj.weight_zero_point". */
#define NAME_SIZE 128

/* The tensor whose name is `base` followed by `suffix`, or NULL. `suffix` may be "". */
StoredTensor *hf_find(const HfLoader *loader, const char *base, const char *suffix);

/* Marks a tensor as used, counts its bytes once, and returns its data. */
const void *hf_use(HfLoader *loader, StoredTensor *tensor);

/* hf_missing() always fails; hf_check_shape() refuses another shape, hf_check_float() a dtype other than F16,
 * BF16 or F32. `why` ends the message. */
Status hf_missing(const HfLoader *loader, const char *base, const char *suffix, const char *why);
Status hf_check_shape(const HfLoader *loader, const StoredTensor *tensor, int rank, const int64_t *shape,
                      const char *why);
Status hf_check_float(const HfLoader *loader, const StoredTensor *tensor);

/* The expert's part whose name ends with `suffix`, or NULL (hf_experts.c). PRECOND loader->views */
StoredTensor *hf_view(const HfLoader *loader, const char *suffix);
/* Each ..._take() refuses a checkpoint without what it takes. hf_norm_take(): a vector of finite numbers.
 * hf_layer_take(): all tensors of a layer; its Linears have their names already. hf_own_take(): model->linear
 * and model->vector, except the head. hf_table_take(): a table of embeddings. hf_has_linear(): true if there
 * are weights of this name, dense or quantised. */
Status hf_norm_take(HfLoader *loader, const char *base, const char *suffix, int64_t n, Vector *out);
Status hf_layer_take(HfLoader *loader, int index);
Status hf_own_take(HfLoader *loader);
Status hf_table_take(HfLoader *loader, StoredTable stored, Matrix *table);
bool hf_has_linear(const HfLoader *loader, const char *name);

/* Refuses a tensor of a decoder layer that changes what is computed and that nothing took (hf_unknown.c). */
Status hf_refuse_unknown(const HfLoader *loader);
/* True for a bias of zeros: AutoGPTQ writes one for every linear layer that it quantises. */
bool hf_is_no_bias(const StoredTensor *tensor);

/* Takes all experts of a layer, if it has experts (hf_experts.c). */
Status hf_experts_take(HfLoader *loader, int layer);

/* Takes tables of n-grams, if there are layers with them (hf_ngrams.c). */
Status hf_ngrams_take(HfLoader *loader);

/* If possible, has the outputs of gate and up put into the order of down's inputs, and sets down->order to
 * NULL. Refuses a gate and an up whose inputs have different orders (hf_order.c). gate->n_out may be 0. */
Status hf_order_mlp(HfLoader *loader, Linear *gate, Linear *up, Linear *down);

/* Takes a dense layer out of a tensor [n_in][n_out]: the layer is the tensor's outputs first_out,
 * first_out + step, ... model_prepare() transposes them. */
Status hf_transposed_take(HfLoader *loader, int n_out, int first_out, int step, StoredTensor *tensor,
                          Linear *linear);

/* Takes the weights of `linear`, dense or quantised, from the stored matrix of its name. This matrix has
 * n_out outputs; the Linear's begin at first_out. PRECOND the Linear's name and sizes are set. */
Status hf_weights_take(HfLoader *loader, int n_out, int first_out, Linear *linear);

/* A linear layer's rows in a stored matrix: outputs first, first + 1 + row_skip, ... of n_out. inputs_first:
 * a dense matrix is [inputs][outputs]. hf_linear_take(): the weights and the bias, which may be missing
 * unless has_bias. */
typedef struct {
  int n_out, first, row_skip;
  bool inputs_first;
} StoredRows;
Status hf_linear_take(HfLoader *loader, StoredRows rows, bool has_bias, Linear *linear);
