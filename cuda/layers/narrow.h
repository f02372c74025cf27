/* narrow.h - a layer of 2 to 32 rows as five kernels: each matmul, and attention, makes the operand of
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
/* True if its first three kernels are: those of any layer that narrow_takes(), and of layers with experts. */
bool narrow_takes_attention(const BackendState *s, int layer, int n_rows);

/* If the first matmul of the layer after this one takes planes of the residual stream, sets *next so that
 * what adds to that stream makes them. */
void narrow_give_next(BackendState *s, int layer, int n_rows, LinearNext *next);
Status narrow_norm_qkv_rope_append(BackendState *s, int layer, int n_rows, Error *err);
/* The layer's attention writes planes, if its kernels can. */
void narrow_attention(BackendState *s, int n_rows, bool can, Attention *attention);
Status narrow_out_proj_residual(BackendState *s, int layer, int n_rows, Error *err);
Status narrow_norm_gate_up(BackendState *s, int layer, int n_rows, Error *err);
Status narrow_down_residual(BackendState *s, int layer, int n_rows, Error *err);
