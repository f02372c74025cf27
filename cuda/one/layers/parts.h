/* parts.h - the matrices that a GPU joins in a layer, and latent attention's heads. Called by: weights.c. */
#pragma once

#include "cuda/kernels/ptx/device.h"
#include "cuda/one/device_model.h"

/* Lists the matrices of joined[which] in the order of outputs; returns their number. */
int parts_joined(const ModelConfig *config, int layer, const ModelLayer *from, int which,
                 const Linear *out[MAX_PROJECTIONS]);

/* Latent attention: takes memory for all layers' key_halves and value_halves. PRECOND key_heads and
 * value_heads are laid out. parts_fill_halves() fills that memory. PRECOND key_heads and value_heads have
 * their weights. */
void parts_reserve_halves(BackendModel *loaded, DeviceArena *arena);
Status parts_fill_halves(BackendModel *loaded, Error *err);
