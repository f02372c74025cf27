/* backend.h - the CUDA backend, which programs built with CUDA have. */
#ifndef AUK_CUDA_BACKEND_H
#define AUK_CUDA_BACKEND_H

#include "engine/backend.h"

extern const Backend cuda_backend;

#endif
