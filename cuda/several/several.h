/* several.h - a model on several GPUs that compute each layer together (tensor parallel): a backend whose
 * model and sessions hold those of each GPU (one/), ordinary ones of a part of the model (model/slice.h) with
 * a stream and graphs of their own:
 *   a step    a thread for each GPU runs forward() over its part. The results of o and down are added
 *             up, and the logits gathered, by kernels that wait for each other (ops/add_norm.h)
 *   a pick    each GPU picks the token itself, from the same logits and by the same random number
 *   a cache   each GPU has the keys and values of its own heads, at the same pages
 * If the GPUs do not reach each other's memory, or on request, each gets a sum and a gather by NCCL (nccl.h,
 * one/reduce.h); the first GPU then gets all logits and picks for all.
 * With BackendOptions.ranks each GPU has a process (ranks.h): `parts` then has this process's part alone, and
 * rank 0 sends each call to the other ranks before it makes the call itself.
 * A GPU that fails or hangs makes the others give up, so that nothing waits for ever.
 *
 * Called by: commands/device.c, for BackendOptions.split > 1. */
#pragma once

#include "engine/backend.h"

extern const Backend cuda_several_backend;
