/* narrow.h - a layer of 2 to 32 rows as five kernels. Each makes the operand of the next kernel. For a matmul
 * the operand is int8 planes (linear/quantise.cuh).
 *
 *   qkv       its epilogue: norm and rope of each head; queries; keys and values into the cache
 *   attention a, in planes
 *   o         its epilogue: the residual stream; planes of the stream times the next norm's weight
 *   gate, up  its epilogue: the gated product, in planes
 *   down      as o
 *
 * A matmul multiplies by 1 / rms itself (LinearCall.norm). Called by: table.c, mlp.c, rows.c. */
#pragma once

#include "cuda/one/state.h"

/* True if the layer is computed as five kernels. */
bool narrow_five_kernels(const BackendState *s, int layer, int n_rows);
/* True if the layer's first three kernels (qkv, attention, o) are of this form. Layers with experts can have
 * these three; narrow_five_kernels() is false for such layers. */
bool narrow_three_kernels(const BackendState *s, int layer, int n_rows);

/* Sets *next so that the call, which adds to the residual stream, makes planes of the stream. Does so only if
 * the next layer's first matmul takes planes and nothing changes the stream before it. */
void narrow_set_next(BackendState *s, int layer, int n_rows, LinearNext *next);

/* True if this matmul of the layer is a kernel of this form. Then also sets kernel, planes, norm and next of
 * *call, which is otherwise complete. `next` of NARROW_QKV is left to the caller. */
typedef enum { NARROW_QKV, NARROW_O, NARROW_GATE_UP, NARROW_DOWN } NarrowPart;
bool narrow_fit(BackendState *s, int layer, int n_rows, NarrowPart part, LinearCall *call);
