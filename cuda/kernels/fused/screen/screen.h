/* screen.h - the screen: lm_head in 8 bits. A step of one token reads it in place of fp16 if only the n
 * greatest logits are needed (one_screen.cuh). These logits are the same as from fp16: for each row the step
 * bounds what 8 bits lose, and multiplies in fp16 the rows that may be among the greatest.
 *
 *     q: int8 [vocab_size][hidden] | tails: float [vocab_size][4] {scale, lost, norm, 0}
 *
 * For a row w of lm_head in fp16:
 *
 *     scale     max |w| / 127;  q = round(w / scale)
 *     lost      |w - scale q|, the Euclidean norm
 *     norm      |scale q| + lost, which is at least |w|
 *
 * lost and norm are larger by a factor of 1 + 2^-10, to make up for rounding of their sums. A step allows for
 * the rounding of scale q, below 2^-23 of w (one_screen.cuh). Where w has a NaN or an infinity, lost is
 * NaN. */
#pragma once

#include <cuda_runtime_api.h>

#include "base/status.h"

C_BEGIN

#include "cuda/kernels/fused/plan.h"
#include "cuda/kernels/linear/linear.h"

/* Bytes of the screen, rows and tails. */
size_t screen_bytes(const StepShape *shape);

/* Enqueues a kernel that makes the screen of lm_head. lm_head is fp16 [n_out][n_in] without gaps. `screen`
 * has screen_bytes() bytes of device memory. PRECOND n_in is a multiple of 8. */
Status screen_make(const DeviceLinear *lm_head, void *screen, cudaStream_t stream, Error *err);

/* Enqueues the computation of all logits [n_out] from lm_head's input x, fp16 [n_in], 16-byte aligned. A
 * fused step of one token gives the same bits. For use after a step that made only the greatest. */
Status screen_all_logits(const DeviceLinear *lm_head, const void *x, float *logits, cudaStream_t stream,
                         Error *err);

C_END
