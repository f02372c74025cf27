/* copies.h - rotated copies in bytes of a model's matrices of 4 bits (linear_rotate()), for many rows with
 * int8 activations. Called by: table.c, several.c. */
#pragma once

#include "cuda/one/device_model.h"

/* Bytes of the copies for a model that is loaded with these options; 0: none are needed, some weights
 * stay on the host, or the chip has no kernel for them. */
Status copies_bytes(const Model *model, const BackendOptions *options, size_t *bytes, Error *err);

/* Makes the copies, after the weights have been loaded; none if memory does not suffice. */
Status copies_make(BackendModel *loaded, Error *err);
void copies_release(BackendModel *loaded);
