/* products.h - the matmuls of a step: by kernels, or for weights on the host by the CPU.
 *
 * The CPU multiplies few rows by a matrix on the host (device_model.h). It does so in a host function in the
 * stream's order, so the step stays one graph:
 *     x ─► pinned rows of x ─► host function: src/cpu/products.h ─► pinned rows of y ─► y
 * All experts of a layer are one such call. For more rows the weights are copied to the device first
 * (weights_stream()), and kernels multiply. */
#pragma once

#include "cuda/one/state.h"

/* STREAM_ROWS: from this many rows on, a matrix on the host is streamed. STREAM_EXPERT_ROWS: the same for
 * experts, by the average rows of an expert; steps of more than MOST_CPU_ROWS rows always stream experts.
 * Measured on a host of 16 cores (LOG.md, "Weights on the host"). */
enum { STREAM_ROWS = 4, STREAM_EXPERT_ROWS = 8, MOST_CPU_ROWS = 256 };

/* True if a step of n_rows rows streams weights; such a step cannot be captured as a graph. */
bool products_stream(const BackendModel *m, int n_rows);

/* The kernel to force where the user's --kernel does not apply: LINEAR_INVARIANT with StateOptions.invariant,
 * else NULL. */
const char *products_kernel(const BackendState *s);

/* A LinearCall with the fields that every matmul of a session sets. */
LinearCall products_call(const BackendState *s, const DeviceLinear *weights, const void *x, int x_stride,
                         int n_tokens, LinearOutput output, void *y, int y_stride);

/* Computes a call wherever its weights are. PRECOND its weights are not experts that the CPU multiplies. */
Status products_run(BackendState *s, const LinearCall *call, Error *err);

Status products_matmul(BackendState *s, const DeviceLinear *weights, const void *x, int x_stride,
                       int n_tokens, LinearOutput output, void *y, int y_stride, Error *err);

/* The RMSNorm of x with `weight`, for LinearCall.norm. The result's `rows` is NULL, for no norm, if there is
 * no `weight`, if h has the norm already, or if the projections are not one matrix that computes the norm. */
LinearNorm products_own_norm(const BackendState *s, const DeviceProjections *p, const float *weight,
                             float eps, int n_rows);

/* Multiplies h by the parts from first_part on; all outputs lie side by side in rows of y_stride floats. */
Status products_project(BackendState *s, const DeviceProjections *p, int first_part, int n_tokens, float *y,
                        int y_stride, Error *err);

/* True if the CPU multiplies n_rows rows by this matrix, or by the experts that it belongs to. */
bool products_on_cpu(const BackendModel *m, const DeviceLinear *weights, int n_rows);

/* to = (with `add`: +=) the sum of the chosen experts' outputs for x; x f16 [n_tokens][x_stride], to
 * [n_tokens][expert_row_width()]. PRECOND products_on_cpu(gate_up). */
Status products_sum_experts(BackendState *s, const DeviceExperts *experts, const void *x, int x_stride,
                            int n_tokens, bool add, float *to, Error *err);

/* Sizes that calls of the CPU need in steps of at most max_chunk rows: the most rows of a call, and the most
 * numbers of x and y. */
typedef struct {
  int n;
  size_t x, y;
} HostRows;
/* Zeros if all weights are on the device; m may be NULL, for a model that is not loaded. */
HostRows products_host_rows(const BackendModel *m, int max_chunk);
