/* hf_tensors.h - the tensors of a Hugging Face directory by name, with the messages about what is wrong with
 * one. Private to src/model: hf_directory.c says which tensors a model has, hf_quantised.c which a quantised
 * layer. */
#ifndef AUK_MODEL_HF_TENSORS_H
#define AUK_MODEL_HF_TENSORS_H

#include "model/loaders.h"

typedef struct {
  Model *model;
  const WeightFiles *files;
  const char *config_path; /* for messages */
  const char *body, *head; /* names begin so: "model.", and the output head's: "lm_head" */
  Error *err;
} Loader;

/* Of any name that is looked for: "model.layers.2147483647.self_attn.q_proj.weight_zero_point". */
#define NAME_SIZE 96

/* The tensor of this name, NULL where there is none. `suffix` may be "". */
StoredTensor *hf_find(const Loader *loader, const char *base, const char *suffix);

/* Counts a tensor as a part of the model, once however often it serves. Gives its data. */
const void *hf_use(Loader *loader, StoredTensor *tensor);

/* Refusals: there is none ("... is missing", then `why`), another shape, no F16, BF16 or F32. */
Status hf_missing(const Loader *loader, const char *base, const char *suffix, const char *why);
Status hf_check_shape(const Loader *loader, const StoredTensor *tensor, int rank, const int64_t *shape,
                      const char *why);
Status hf_check_float(const Loader *loader, const StoredTensor *tensor);

/* Where a Linear lies in the files: it is outputs [first_out, first_out + n_out of the Linear) of the layer
 * `name`, which has n_out. */
typedef struct {
  const char *name;
  int n_out, first_out;
} StoredPart;

/* The weights of `linear`, dense or quantised. PRECOND its sizes are set. */
Status hf_weights_take(Loader *loader, StoredPart part, Linear *linear);

#endif
