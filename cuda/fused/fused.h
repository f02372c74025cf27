/* fused.h - a loaded model's steps of up to eight tokens as one kernel each (step.h), for one session.
 *
 * Called by: backend.c. */
#ifndef AUK_CUDA_FUSED_FUSED_H
#define AUK_CUDA_FUSED_FUSED_H

#include "cuda/fused/step.h"

typedef struct FusedStep FusedStep;

/* Whether those kernels serve the model on this GPU; else STATUS_MODEL with the reason, or STATUS_USAGE where
 * a kernel is asked for by name. Before weights are loaded: loaded's model, gpu, act, kernel and shared_bytes
 * are there. */
Status fused_check(const BackendModel *loaded, Error *err);

/* Whether they serve the model, and were measured to be faster than a kernel for each operation on such a GPU
 * with as few KV heads. */
bool fused_leads(const BackendModel *loaded);

/* Bytes of device memory that a session takes for them, of any model, at most. */
size_t fused_bytes(const ModelConfig *config);

/* Opens the kernels that steps of up to options->max_chunk tokens may need; those of several tokens only
 * where they serve the model. Refuses keys and values that are not fp16. */
Status fused_open(const BackendModel *loaded, const StateOptions *options, FusedStep **fused, Error *err);
void fused_close(FusedStep *fused);

/* Whether a step of so many tokens has a kernel; NULL has none. */
bool fused_takes(const FusedStep *fused, int n_tokens);

/* Enqueues such a step. */
Status fused_run(const FusedStep *fused, const StepCall *call, cudaStream_t stream, Error *err);

#endif
