/* names.h - a tensor's name in a layer of this model; `usual` is that of tensors.def. Called by: layers.c. */
#pragma once

#include "model/model.h"

const char *linear_name(const ModelConfig *config, int layer, int which, const char *usual);
const char *vector_name(const ModelConfig *config, int layer, int which, const char *usual);
/* Likewise of MODEL_HEAD .. and of MODEL_FINAL_NORM .. . */
const char *model_linear_base(const ModelConfig *config, int which, const char *usual);
const char *model_vector_base(const ModelConfig *config, int which, const char *usual);
