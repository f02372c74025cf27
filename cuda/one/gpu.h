/* gpu.h - choosing a GPU; its name and its memory. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Makes GPU `gpu` the current one. Fails without a driver, without such a GPU, or if the program has no code
 * for its compute capability. */
Status device_use(int gpu, Error *err);

/* Writes the GPU's name, such as "NVIDIA H200", to out[size]. */
Status device_name(int gpu, char *out, size_t size, Error *err);

/* The GPU's UUID, which no other GPU has, on any machine. */
Status device_identity(int gpu, uint8_t out[16], Error *err);

/* Free and total bytes of the current GPU's memory. CUDA contexts count as used. */
Status device_bytes(size_t *free_bytes, size_t *all_bytes, Error *err);
