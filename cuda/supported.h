/* supported.h - which models the kernels here compute: host only, no GPU needed. */
#ifndef AUK_CUDA_SUPPORTED_H
#define AUK_CUDA_SUPPORTED_H

#include "model/model.h"

/* Refuses (STATUS_MODEL) a model with what no kernel computes, by its name. Every architecture is computed;
 * what may not be is a linear layer. */
Status cuda_check_model(const Model *model, Error *err);

#endif
