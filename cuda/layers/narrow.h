/* narrow.h - a layer of 9 to 32 rows as five kernels: each matmul, and attention, makes the operand of
 * the next matmul, as planes (linear/quantise.cuh).
 *
 *   qkv       its epilogue: norm and rope of each head; queries; keys and values into the cache
 *   attention a, in planes
 *   o         its epilogue: the residual stream; planes of it times the weight of the next norm
 *   gate, up  its epilogue: the gated product, in planes
 *   down      as o
 *
 * A matmul multiplies by 1 / rms itself (LinearCall.norm). Called by: backend.c. */
#pragma once

#include "cuda/attention/attention.h"
#include "cuda/state.h"

/* True if the layer is computed so. Then the four operations of its matmuls are those below. */
bool narrow_takes(const BackendState *s, int layer, int n_rows);

Status narrow_norm_qkv_rope_append(BackendState *s, int layer, int n_rows, Error *err);
/* The layer's attention writes planes, if its kernels can. */
void narrow_attention(BackendState *s, int n_rows, bool can, Attention *attention);
Status narrow_out_proj_residual(BackendState *s, int layer, int n_rows, Error *err);
Status narrow_norm_gate_up(BackendState *s, int layer, int n_rows, Error *err);
Status narrow_down_residual(BackendState *s, int layer, int n_rows, Error *err);
