/* loaders.h - private to src/model: how the two layouts become a Model, and what both need for that. */
#ifndef AUK_MODEL_LOADERS_H
#define AUK_MODEL_LOADERS_H

#include "model/layers.h"
#include "model/stored_weights.h"
#include "model/weight_files.h"

struct ModelFiles {
  char *path;                   /* as it was given to model_open(); for messages */
  WeightFiles weights;          /* of a directory */
  MappedFile packed;            /* an ak48 file */
  StoredTensor *packed_tensors; /* [n_packed_tensors] in the file's order */
  size_t n_packed_tensors;
  char (*names)[LINEAR_NAME_SIZE]; /* [n_layers][N_LAYER_LINEARS] of the layers' Linears */
  char *packed_names;              /* what packed_tensors' names point into */
  StoredWeights *stored;           /* [n_stored] quantised layers that model_prepare() has to look at */
  size_t n_stored, stored_capacity;
  void **made; /* [n_made] memory of what it made */
  size_t n_made, made_capacity;
  bool scales_prepared, prepared;
  void *reserved; /* [reserved_bytes] addresses of a dummy's tensors, or NULL */
  size_t reserved_bytes;
};

/* Both fill a zeroed Model that has its `files`; model_close() releases it, also after a failure. */
Status hf_directory_open(const char *path, const ModelOverrides *overrides, Model *model, Error *err);
Status ak48_open(const char *path, const ModelOverrides *overrides, Model *model, Error *err);

/* Allocates model->layers and names its Linears, for the n_layers of its config. */
Status model_make_layers(Model *model, const char *body, Error *err);

/* Number `index` of a tensor of F32, F16 or BF16, at any alignment. */
float stored_float(const void *data, Dtype dtype, size_t index);

/* Whether every number of a norm is finite: one that is not would make every logit NaN. `name` and `file`
 * are for the message. */
Status check_norm(const Vector *norm, const char *name, const char *file, Error *err);

/* Whether a layer of linear->n_in inputs and n_out outputs can be quantised in groups of this size. `file`
 * and `what` (a tensor's or layer's name) are for the message. */
Status check_groups(const Linear *linear, int group, const char *file, const char *what, Error *err);

/* Reduces a layer to its outputs [first, first + n_out) without moving them. `file` is for the message.
 * PRECOND the layer has no bias yet. */
Status linear_cut(Linear *linear, int first, int n_out, const char *file, Error *err);

/* model->tokenizer_path: the flag's, or DIRECTORY/tokenizer.json where that is. */
Status find_tokenizer(Model *model, const char *directory, const ModelOverrides *overrides, Error *err);

#endif
