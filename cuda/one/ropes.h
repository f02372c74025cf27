/* ropes.h - the frequencies of a model's ropes on the device. Called by: weights.c. */
#pragma once

#include "cuda/kernels/ptx/device.h"
#include "cuda/one/device_model.h"

/* Takes memory for the frequencies from the arena, and notes the ropes' sizes. */
void ropes_reserve(BackendModel *loaded, DeviceArena *arena);
/* Copies the frequencies to the device. */
Status ropes_copy(BackendModel *loaded, Error *err);
