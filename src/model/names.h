/* names.h - the names that a model's tensors have; `usual` is a tensor's name in tensors.def. Called by:
 * layers.c, hf_directory.c. */
#pragma once

#include "model/model.h"

const char *linear_name(const ModelConfig *config, int layer, int which, const char *usual);
const char *vector_name(const ModelConfig *config, int layer, int which, const char *usual);
/* The i-th of the names that a family's row can give to a layer's linear layers; NULL: there are no more. */
const char **linear_own_name(TensorNames *names, size_t i);
/* The names of tensors outside the layers, MODEL_HEAD .. and MODEL_FINAL_NORM .. . */
const char *model_linear_base(const ModelConfig *config, int which, const char *usual);
const char *model_vector_base(const ModelConfig *config, int which, const char *usual);
