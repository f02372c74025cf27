/* fused.h - a loaded model and a session of it as the decode step of one kernel takes them (step.h).
 *
 * Called by: backend.c. */
#ifndef AUK_CUDA_FUSED_FUSED_H
#define AUK_CUDA_FUSED_FUSED_H

#include "cuda/fused/few_tokens.h"

/* Whether that kernel serves the model on this GPU; else STATUS_MODEL with the reason, or STATUS_USAGE where
 * a kernel is asked for by name. Before weights are loaded: loaded's model, gpu, act, kernel and shared_bytes
 * are there. */
Status step_model_check(const BackendModel *loaded, Error *err);

/* Whether it serves the model, and was measured to be faster than a kernel for each operation on such a GPU
 * with as few KV heads. */
bool step_model_leads(const BackendModel *loaded);

/* Bytes of device memory that a session takes for it, of any model. */
size_t step_model_bytes(const ModelConfig *config);

/* `memory`: those bytes. Refuses keys and values that are not fp16. */
Status step_model_open(const BackendModel *loaded, const StateOptions *options, void *memory, Step **step,
                       Error *err);

/* The most that the kernels of steps of several rows take. */
size_t step_model_rows_bytes(const ModelConfig *config);

/* The same for steps of up to `rows` rows (2, 4, 8), in memory of its own (cudaFree): *step is NULL, without
 * failure, where the kernel does not serve the model with so many. After step_model_open(). */
Status step_model_open_rows(const BackendModel *loaded, int rows, void **memory, StepRows **step, Error *err);

#endif
