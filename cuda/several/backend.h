/* backend.h - the CUDA backend for BackendOptions.split > 1: several GPUs share each layer of a model. */
#pragma once

#include "engine/backend.h"

extern const Backend cuda_several_backend;
