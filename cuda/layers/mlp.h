/* mlp.h - the operations of a layer's MLP, or of its experts and the MLP beside them; engine/backend.h has
 * the formulas. Called by: backend.c. Each only enqueues. */
#pragma once

#include "cuda/state.h"

Status cuda_norm_gate_up(BackendState *s, TokenRange span, int layer, Error *err);
Status cuda_down_residual(BackendState *s, TokenRange span, int layer, Error *err);
Status cuda_norm_experts_residual(BackendState *s, TokenRange span, int layer, Error *err);
