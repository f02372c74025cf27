/* device.c - see device.h. */
#include "cuda/kernels/ptx/device.h"

#include <stdint.h>

Status cuda_status(cudaError_t error, const char *what, Error *err) {
  if (error == cudaSuccess) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "GPU: %s: %s (%s)", what, cudaGetErrorString(error),
                   cudaGetErrorName(error));
}

Status device_attribute(int gpu, enum cudaDeviceAttr which, int *value, Error *err) {
  return cuda_status(cudaDeviceGetAttribute(value, which, gpu), "cannot ask it", err);
}

void *arena_reserve(DeviceArena *arena, size_t n, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(n, size, &bytes) || __builtin_add_overflow(bytes, 255, &bytes) ||
      __builtin_add_overflow(bytes & ~(size_t)255, arena->used, &bytes)) {
    arena->used = SIZE_MAX; /* and stays so: the caller compares once, at the end */
    return NULL;
  }
  void *part = arena->base ? arena->base + arena->used : NULL;
  arena->used = bytes;
  return part;
}
