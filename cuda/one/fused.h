/* fused.h - the fused steps (step.h) of a loaded model; a session opens them. A step takes up to eight tokens
 * of one sequence or of several. */
#pragma once

#include "cuda/kernels/fused/step.h"
#include "cuda/one/device_model.h"

typedef struct FusedStep FusedStep;

/* STATUS_OK if the fused kernels serve the model on this GPU, STATUS_MODEL with the reason if not,
 * STATUS_USAGE if a kernel is requested by name (--kernel). Needs loaded's model, gpu, act, kernel and
 * shared_bytes, but no weights. */
Status fused_check(const BackendModel *loaded, Error *err);

/* True if the fused step supports the model, was measured on GPUs like this one, and has so many clusters for
 * attention that it is faster than separate kernels. */
bool fused_preferred(const BackendModel *loaded);

/* The number of clusters of the step of one token; 0: there is no such step. GPUs that share a model need
 * equal numbers. */
int fused_clusters(const BackendModel *loaded);

/* Does nothing if loaded->decode_step is DECODE_KERNELS. Converts lm_head and matrices of layers from bf16 to
 * fp16, which fused steps read. If fp16 does not hold the numbers, separate kernels run; with `demanded` it
 * is an error. Makes a copy of lm_head in 8 bits (screen.h) if eight times the copy's bytes are free. */
Status fused_prepare(BackendModel *loaded, bool demanded, Error *err);
void fused_release_screen(BackendModel *loaded);

/* Bytes of device memory that a session's fused steps take, at most; 0 if they do not support the config. */
size_t fused_bytes(const ModelConfig *config);

/* Opens the kernels for steps of up to options->max_chunk tokens, as far as they support the model. Each step
 * keeps options->taps in `taps`, as [n_tokens][taps.n][hidden]. If no kernel does so, *fused is NULL. With
 * decode_step DECODE_FUSED it is an error if no kernel keeps the taps, or if none takes one token. Refuses
 * KV_F32. */
Status fused_open(const BackendModel *loaded, const StateOptions *options, float *taps, FusedStep **fused,
                  Error *err);
void fused_close(FusedStep *fused);

/* For GPUs that share the model: this GPU's memory that the other GPUs write to, or NULL without a kernel.
 * fused_connect() takes the addresses of all GPUs' memory. */
uint64_t *fused_mail(const FusedStep *fused);
void fused_connect(FusedStep *fused, const StepPeers *peers);

/* True if a kernel is open for a step of span.n_tokens and is to run: because it is faster at span.pos than
 * separate kernels, or demanded (DECODE_FUSED). False if `fused` is NULL. */
bool fused_supports(const FusedStep *fused, TokenRange span);

/* True if steps of one token leave their best token in device memory. It is taken by the next
 * such step (StepCall.pick) or by a kernel that fused_pick() enqueues. */
bool fused_leaves_pick(const FusedStep *fused);
Status fused_pick(const FusedStep *fused, StepPick pick, cudaStream_t stream, Error *err);

/* True if steps of one token can find their best logits and read only a small part of lm_head in fp16
 * (StepCall.n_best). fused_all_logits() enqueues the computation of all logits from the input of lm_head that
 * the step leaves (StepCall.head_x). It gives the same bits. */
bool fused_screens(const FusedStep *fused);
Status fused_all_logits(const FusedStep *fused, const void *head_x, float *logits, cudaStream_t stream,
                        Error *err);

/* Bytes that StepCall.n_best spares a step at `pos`: those of lm_head in fp16 minus those of its copy in 8
 * bits; 0 if there is no such step. */
size_t fused_head_spares(const FusedStep *fused, int pos);

/* A layer as the fused kernels read it. */
StepLayer fused_layer(const DeviceLayer *layer);

/* Enqueues a step. PRECOND fused_supports() for its tokens and position. */
Status fused_run(const FusedStep *fused, const StepCall *call, cudaStream_t stream, Error *err);
