/* backend.h - the CUDA backend, which programs built with CUDA have, and the models it computes. */
#pragma once

#include "engine/backend.h"

extern const Backend cuda_backend;

/* STATUS_MODEL with the reason if some part of the model has no kernel.
 * Host only (supported.c): programs built without CUDA have it too. */
Status cuda_check_model(const Model *model, Error *err);
