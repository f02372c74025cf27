/* halves.h - dense weights in bf16 as fp16. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "base/status.h"
#include "cuda/linear/linear.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes fp16 of a dense matrix in bf16, where it lies, if by that next to nothing is lost of the whole, or of
 * each row; *done says whether. Waits for the stream. */
Status linear_to_halves(DeviceLinear *weights, bool each_row, cudaStream_t stream, bool *done, Error *err);

#ifdef __cplusplus
}
#endif
