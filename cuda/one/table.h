/* table.h - the CUDA backend of one GPU, in programs built with CUDA; which models it can run. */
#pragma once

#include "engine/backend.h"

extern const Backend cuda_backend;

/* Members of cuda_backend and of its BackendProbe that the backend of cuda/several also has. */
enum { CUDA_CHUNK = 2048, CUDA_SEQUENCES = 1024 };
#define CUDA_ROW_COST 0.05
Status cuda_describe(const BackendOptions *options, char *out, size_t size, Error *err);
Status cuda_memory_now(const BackendOptions *options, size_t *free_bytes, size_t *all_bytes, Error *err);

/* Most numbers of a token's V: as many fp32 numbers as fit 48 KB, the shared memory that every GPU gives a
 * block. ops_spread_values() widens V there. */
enum { CUDA_MAX_VALUES = 48 * 1024 / 4 };

/* STATUS_MODEL with the reason if some part of the model has no kernel.
 * Host only (supported.c): programs built without CUDA have it too. */
Status cuda_check_model(const Model *model, Error *err);
