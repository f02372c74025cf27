/* device.h - CUDA's errors as Status, a GPU's attributes, and a bump allocator. */
#pragma once

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

C_BEGIN

/* STATUS_OK, or STATUS_FAILED with "GPU: `what`: CUDA's message (CUDA's name of the error)". */
Status cuda_status(cudaError_t error, const char *what, Error *err);

Status device_attribute(int gpu, enum cudaDeviceAttr which, int *value, Error *err);

/* Bump allocator within one allocation. Make the same requests twice: first with base NULL to measure, then
 * with memory to place. arena_reserve() returns n * size bytes, 256-byte aligned. It returns NULL while
 * measuring, and after an overflow, which leaves SIZE_MAX in `used`. */
typedef struct {
  char *base;  /* device memory, or NULL while measuring */
  size_t used; /* bytes */
} DeviceArena;
void *arena_reserve(DeviceArena *arena, size_t n, size_t size);

C_END
