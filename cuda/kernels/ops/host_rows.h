/* host_rows.h - rows on their way between the device and pinned memory of the host, where the CPU multiplies
 * matrices (cuda/one/products.h). All functions only enqueue. The kernels read and write pinned memory
 * themselves. */
#pragma once

#include <cuda_runtime_api.h>

#include "base/status.h"

C_BEGIN

/* Ids and weights of the experts that rows have chosen, [n_rows][n]; n 0: nothing to copy. They are copied
 * from the device (from_) to pinned memory (to_). */
typedef struct {
  int n;
  const int *from_ids;
  const float *from_weights;
  int *to_ids;
  float *to_weights;
} HostChoices;

/* to[row][i] = x[row][i] for i < n, then zeros up to to_stride; x fp16 [n_rows][x_stride], to fp32
 * [n_rows][to_stride] pinned. Copies `choices`, too. */
Status ops_rows_to_host(const void *x, int x_stride, int n, int n_rows, float *to, int to_stride,
                        HostChoices choices, cudaStream_t stream, Error *err);

typedef enum { HOST_ROWS_F32, HOST_ROWS_ADD_F32, HOST_ROWS_F16 } HostRowsForm;
/* y = from, y += from, or y = factors[row] * from (factors NULL: 1) in fp16, clamped to fp16's range; from
 * fp32 [n_rows][n] pinned, y [n_rows][y_stride]. */
Status ops_rows_from_host(const float *from, int n, int n_rows, HostRowsForm form, const float *factors,
                          void *y, int y_stride, cudaStream_t stream, Error *err);

C_END
