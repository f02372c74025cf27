/* device.h - choosing a GPU, its properties, and CUDA's errors as Status. */
#pragma once

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "base/status.h"

/* STATUS_OK, or STATUS_FAILED with "GPU: `what`: CUDA's message (CUDA's name of the error)". */
Status cuda_status(cudaError_t error, const char *what, Error *err);

/* Makes GPU `gpu` the current one. Fails without a driver, without such a GPU, or if the program has no code
 * for its compute capability. */
Status device_use(int gpu, Error *err);

/* "NVIDIA H200" in out[size]. */
Status device_name(int gpu, char *out, size_t size, Error *err);

/* The GPU's UUID, which no other GPU has, on any machine. */
Status device_identity(int gpu, uint8_t out[16], Error *err);

Status device_attribute(int gpu, enum cudaDeviceAttr which, int *value, Error *err);

/* Free and total bytes of the current GPU's memory. CUDA contexts count as used. */
Status device_bytes(size_t *free_bytes, size_t *all_bytes, Error *err);

/* Bump allocator within one allocation: make the same requests twice, first with base NULL to measure, then
 * with memory to place. Parts are 256-byte aligned. After an overflow `used` is SIZE_MAX. */
typedef struct {
  char *base;  /* device memory, or NULL while measuring */
  size_t used; /* bytes */
} DeviceArena;
void *arena_take(DeviceArena *arena, size_t n, size_t size);

#ifdef __cplusplus
}
#endif
