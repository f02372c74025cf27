/* backend.h - the CUDA backend, which programs built with CUDA have, and the models it computes. */
#pragma once

#include "engine/backend.h"

extern const Backend cuda_backend;

/* Numbers of a token's values that fit the 48 KB of shared memory which a block has on every GPU: values are
 * widened there (ops/values.h). */
enum { CUDA_MAX_VALUES = 48 * 1024 / 4 };

/* STATUS_MODEL with the reason if some part of the model has no kernel.
 * Host only (supported.c): programs built without CUDA have it too. */
Status cuda_check_model(const Model *model, Error *err);
