/* table.h - the CUDA backend of one GPU, which programs built with CUDA have; models that GPUs compute. */
#pragma once

#include "engine/backend.h"

extern const Backend cuda_backend;

/* Parts of its table and its probe that several/ has, too. */
enum { CUDA_CHUNK = 2048, CUDA_SEQUENCES = 256 };
#define CUDA_ROW_COST 0.05
Status cuda_describe(const BackendOptions *options, char *out, size_t size, Error *err);
Status cuda_memory_now(const BackendOptions *options, size_t *free_bytes, size_t *all_bytes, Error *err);

/* Numbers of a token's values that fit the 48 KB of shared memory which a block has on every GPU: values are
 * widened there (ops/values.h). */
enum { CUDA_MAX_VALUES = 48 * 1024 / 4 };

/* STATUS_MODEL with the reason if some part of the model has no kernel.
 * Host only (supported.c): programs built without CUDA have it too. */
Status cuda_check_model(const Model *model, Error *err);
