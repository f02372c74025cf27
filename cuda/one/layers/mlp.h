/* mlp.h - the operations of a layer's MLP, or of its experts and shared expert; model/operations.def has the
 * formulas. Called through: table.c. Each only enqueues, but weights_stream() also waits for earlier
 * copies. */
#pragma once

#include "cuda/one/state.h"

Operation cuda_norm_gate_up, cuda_down_residual, cuda_norm_experts_residual;
