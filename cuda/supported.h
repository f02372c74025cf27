/* supported.h - which models the kernels here compute: host only, no GPU needed. */
#ifndef AUK_CUDA_SUPPORTED_H
#define AUK_CUDA_SUPPORTED_H

#include "model/model.h"

/* What of the config no kernel computes, in words ("a soft cap of attention's scores"), or NULL. */
const char *cuda_cannot_compute(const ModelConfig *config);

/* Refuses (STATUS_MODEL) a model that has such a thing, by its name. */
Status cuda_check_model(const Model *model, Error *err);

#endif
