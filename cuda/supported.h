/* supported.h - which models the kernels here compute: host only, no GPU needed. */
#ifndef AUK_CUDA_SUPPORTED_H
#define AUK_CUDA_SUPPORTED_H

#include "model/model.h"

/* STATUS_MODEL with the reason if some layer has no kernel. Every architecture has its kernels; only the
 * scales of a linear layer can be refused. */
Status cuda_check_model(const Model *model, Error *err);

#endif
