/* several.h - a model on several GPUs that compute each layer together (tensor parallel). A model of this
 * backend holds, for each GPU, a model of cuda_backend (folder one/): the GPU's part of the whole
 * (model/slice.h). A session holds a session for each GPU. Each GPU has its own stream and graphs.
 *   a step    a thread for each GPU runs forward() over its part. The results of o and down are added
 *             up, and the logits gathered, by kernels that wait for each other (ops/add_norm.h)
 *   a pick    each GPU picks the token itself, from the same logits and by the same random number
 *   a cache   each GPU has the keys and values of its own heads, at the same pages
 * If the GPUs do not reach each other's memory, or on request, they sum and gather by NCCL (nccl.h,
 * one/reduce.h); then only the first GPU gets all logits, and picks the token.
 * With BackendOptions.ranks each GPU has a process (ranks.h), which has only its own part of the model.
 * Rank 0 sends each call to the other ranks before it makes the call itself.
 * A GPU that fails or hangs makes the others give up, so that nothing waits for ever. */
#pragma once

#include "engine/backend.h"

extern const Backend cuda_several_backend;
