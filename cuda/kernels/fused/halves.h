/* halves.h - converts dense weights from bf16 to fp16. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "base/status.h"
#include "cuda/kernels/linear/linear.h"

C_BEGIN

/* Converts a dense matrix from bf16 to fp16 in place if that loses next to nothing of the whole matrix and,
 * with each_row, of each row. *done: true if it was converted. Waits for the stream. */
Status linear_to_halves(DeviceLinear *weights, bool each_row, cudaStream_t stream, bool *done, Error *err);

C_END
