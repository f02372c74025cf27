/* backend.h - the CUDA backend, where the program was built with it. */
#ifndef AUK_CUDA_BACKEND_H
#define AUK_CUDA_BACKEND_H

#include "engine/backend.h"

extern const Backend cuda_backend;

#endif
