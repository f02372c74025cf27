/* values.h - heads whose values are shorter than their keys (config.value_dim): attention computes with
 * values of head_dim numbers, 0 from number value_dim on. Used by: rows.c, table.c. */
#pragma once

#include <cuda_runtime_api.h>

#include "base/status.h"

C_BEGIN

/* n_heads heads of value_dim numbers, and as many heads of head_dim >= value_dim. */
typedef struct {
  int n_heads, value_dim, head_dim;
} ValueHeads;

/* Widens each head of each row in place from value_dim numbers to head_dim: the values times `scale`, then
 * zeros. Rows are fp32, `stride` floats apart. PRECOND n_heads * value_dim <= CUDA_MAX_VALUES (table.h). */
Status ops_spread_values(const ValueHeads *heads, float scale, float *rows, size_t stride, int n_rows,
                         cudaStream_t stream, Error *err);

/* Copies the first value_dim numbers of each head of each row, without the zeros that follow them: fp16
 * [n_rows][n_heads][head_dim] to [n_rows][n_heads][value_dim]. PRECOND head_dim and value_dim are even. */
Status ops_join_values(const ValueHeads *heads, const void *from, int n_rows, void *to, cudaStream_t stream,
                       Error *err);

C_END
