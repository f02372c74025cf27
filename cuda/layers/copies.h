/* copies.h - rotated copies in bytes of a model's matrices of 4 bits (linear_rotate()), for many rows with
 * int8 activations. Called by: backend.c, split.c. */
#pragma once

#include "cuda/device_model.h"

/* Bytes of the copies of a model that load() with these options puts on one GPU as a whole; 0: it needs none,
 * or the chip has no kernel for them. */
Status copies_bytes(const Model *model, const BackendOptions *options, size_t *bytes, Error *err);

/* Makes them, after the weights have been loaded, or none where there is no memory for them. */
Status copies_make(BackendModel *loaded, Error *err);
void copies_release(BackendModel *loaded);
