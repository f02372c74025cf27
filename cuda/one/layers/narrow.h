/* narrow.h - a layer of 2 to 32 rows as five kernels: each makes the operand of the next, which for matmuls
 * is int8 planes (linear/quantise.cuh).
 *
 *   qkv       its epilogue: norm and rope of each head; queries; keys and values into the cache
 *   attention a, in planes
 *   o         its epilogue: the residual stream; planes of the stream times the next norm's weight
 *   gate, up  its epilogue: the gated product, in planes
 *   down      as o
 *
 * A matmul multiplies by 1 / rms itself (LinearCall.norm). Called by: table.c, mlp.c. */
#pragma once

#include "cuda/kernels/attention/attention.h"
#include "cuda/one/state.h"

/* True if the layer is computed as five kernels. Then its four matmuls are the operations below. */
bool narrow_five_kernels(const BackendState *s, int layer, int n_rows);
/* True if the layer's first three kernels (qkv, attention, o) are of this form: also in layers with experts,
 * for which narrow_five_kernels() is false. */
bool narrow_three_kernels(const BackendState *s, int layer, int n_rows);

/* If the first matmul of the layer after this one takes planes of the residual stream, and nothing changes
 * the stream before it, sets *next so that the call that adds to that stream makes these planes. */
void narrow_give_next(BackendState *s, int layer, int n_rows, LinearNext *next);
Status narrow_norm_qkv_rope_append(BackendState *s, int layer, int n_rows, Error *err);
/* Makes the layer's attention write its output as planes if `can` says that its kernels do so. */
void narrow_attention(BackendState *s, int n_rows, bool can, Attention *attention);
Status narrow_out_proj_residual(BackendState *s, int layer, int n_rows, Error *err);
Status narrow_norm_gate_up(BackendState *s, int layer, int n_rows, Error *err);
Status narrow_down_residual(BackendState *s, int layer, int n_rows, Error *err);
