/* derived.h - matrices on the device that are made from others there: some rows of one, and a dense one
 * rounded to 4 bits. Implemented in relayout.cu. Called by: draft.c. */
#pragma once

#include "cuda/linear/linear.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The outputs from first_out on, a multiple of 16, as a matrix of its own in the same memory. PRECOND neither
 * interleaved nor of experts. */
DeviceLinear linear_outputs_from(const DeviceLinear *linear, int first_out);

/* True if linear_round() takes this matrix. */
bool linear_can_round(const DeviceLinear *linear);

/* *rounded = a dense matrix with the rounding of src/model/quant/round.c, in device memory of its own, which
 * *memory names for cudaFree(). Waits until that is done. */
Status linear_round(const DeviceLinear *dense, DeviceLinear *rounded, void **memory, cudaStream_t stream,
                    Error *err);

#ifdef __cplusplus
}
#endif
