/* screen.h - lm_head in 8 bits, which a step of one token reads in place of fp16 if all that is wanted of its
 * logits is the best token (one_screen.cuh). The token is the same: for each row the step has a bound of what
 * 8 bits lose, and it multiplies rows that may be the best one in fp16.
 *
 * First come the rows of all tokens, int8 [hidden], q; then their tails, four floats each. With w the row in
 * fp16:
 *
 *     scale     max |w| / 127;  q = round(w / scale)
 *     lost      |w - scale q|, the Euclidean norm
 *     norm      |scale q| + lost, which is at least |w|
 *     0
 *
 * lost and norm are some 2^-10 too large, so that rounding of their own does not matter. Where w has a NaN or
 * an infinity, lost is NaN.
 *
 * Called by: fused.c, step.cu, test_step.cu. */
#pragma once

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "cuda/fused/plan.h"
#include "cuda/linear/linear.h"

/* Bytes of all rows. */
size_t screen_bytes(const StepShape *shape);

/* Enqueues the rows of lm_head, fp16 [n_out][n_in] without gaps, n_in a multiple of 512. */
Status screen_make(const DeviceLinear *lm_head, void *rows, cudaStream_t stream, Error *err);

#ifdef __cplusplus
}
#endif
