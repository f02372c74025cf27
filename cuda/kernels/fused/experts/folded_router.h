/* folded_router.h - the router of a layer of experts times the matrix o before it, for a step of one token.
 *
 * The router reads x = w * (r + O a): r is the residual stream before the layer's o, a the output of
 * attention or of the delta rule, w the weight of the norm. Multiplication is linear. So the router's logits,
 * without the factor 1 / rms that all share, are
 *
 *     R x = R (w * r) + F a,      F[e][i] = sum over o of R[e][o] w[o] O[o][i]
 *
 * F, the folded router, is computed once, in fp32 from exact weights. In a step the first term needs only
 * what the layer begins with. The second term is computed beside O a. So the experts are known at the same
 * time as the sum of o, and their weights are loaded while x is made (one_experts.cuh).
 *
 * Called by: step.cu. Always true: all folded routers are fp32 [layers with experts][step_router_rows()]
 * [inputs of the layer's o]. */
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/kernels/fused/step.h"

/* Bytes of the folded routers of all layers; 0 without experts or with too many for a plan. */
size_t folded_bytes(const StepShape *shape);

/* Where a layer's folded router begins in the memory of all layers' folded routers. */
float *folded_router(const StepShape *shape, float *all, int layer);

/* Enqueues the computation of all layers' folded routers. PRECOND o has integers of 4 bits or is fp16. */
Status fold_routers(const StepShape *shape, const StepLayer *layers, float *all, cudaStream_t stream,
                    Error *err);
