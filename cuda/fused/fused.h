/* fused.h - the fused steps (step.h) of up to eight tokens of a loaded model, for a session, or for one of
 * several sequences when no other has rows in the step.
 *
 * Called by: backend.c. */
#pragma once

#include "cuda/fused/step.h"

typedef struct FusedStep FusedStep;

/* STATUS_OK if the fused kernels serve the model on this GPU, STATUS_MODEL with the reason if not,
 * STATUS_USAGE if a kernel is requested by name. Needs loaded's model, gpu, act, kernel and
 * shared_bytes, but no weights. */
Status fused_check(const BackendModel *loaded, Error *err);

/* True if the fused step supports the model on this GPU and was measured there to be faster than separate
 * kernels for models with so few KV heads. */
bool fused_preferred(const BackendModel *loaded);

/* The clusters of the step of one token; 0: there is no such step. GPUs that share a model need as many. */
int fused_clusters(const BackendModel *loaded);

/* If loaded->decode_step may be the fused step: makes fp16 of an lm_head in bf16, as that step reads it, and
 * lm_head in 8 bits (screen.h) if eight times its bytes are free. Where fp16 does not hold the numbers,
 * separate kernels run, or it is an error if the fused step is `demanded`. */
Status fused_take_head(BackendModel *loaded, bool demanded, Error *err);
void fused_release_head(BackendModel *loaded);

/* The most bytes of device memory that a session takes for them; 0 if they do not serve the config. */
size_t fused_bytes(const ModelConfig *config);

/* Opens the kernels for steps of up to options->max_chunk tokens; those of several tokens only if they
 * serve the model. Each step keeps options->taps in `taps`, as [n_tokens][taps.n][hidden]; where no kernel
 * does so, *fused is NULL, or with decode_step DECODE_FUSED it is an error. Refuses keys and values that are
 * not fp16. */
Status fused_open(const BackendModel *loaded, const StateOptions *options, float *taps, FusedStep **fused,
                  Error *err);
void fused_close(FusedStep *fused);

/* For GPUs that share the model: the memory that the others send to, NULL without a kernel; and the addresses
 * of all GPUs' (fused_connect()). */
uint64_t *fused_mail(const FusedStep *fused);
void fused_connect(FusedStep *fused, const StepPeers *peers);

/* True if a kernel is open for a step of so many tokens, and with DECODE_AUTO the position is one where it is
 * faster; false if `fused` is NULL. */
bool fused_takes(const FusedStep *fused, TokenRange span);

/* True if steps of one token leave their best token. The next one takes it (StepCall.pick), or fused_pick()
 * enqueues a kernel that does. */
bool fused_leaves_pick(const FusedStep *fused);
Status fused_pick(const FusedStep *fused, StepPick pick, cudaStream_t stream, Error *err);

/* True if steps of one token can find their best logits without most of lm_head in fp16 (StepCall.n_best).
 * fused_all_logits() enqueues all logits, with the step's bits, from the input of lm_head that it leaves. */
bool fused_screens(const FusedStep *fused);
Status fused_all_logits(const FusedStep *fused, const void *head_x, float *logits, cudaStream_t stream,
                        Error *err);

/* Bytes that such a step at `pos` does not read; 0 if there is none. */
size_t fused_head_spares(const FusedStep *fused, int pos);

/* Enqueues a step. */
Status fused_run(const FusedStep *fused, const StepCall *call, cudaStream_t stream, Error *err);
