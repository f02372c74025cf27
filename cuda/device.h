/* device.h - the GPU itself: which one, what it has free, and CUDA's errors as ours. */
#ifndef AUK_CUDA_DEVICE_H
#define AUK_CUDA_DEVICE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "base/status.h"

/* STATUS_OK, or STATUS_FAILED with "GPU: WHAT: CUDA's words (its code)". */
Status cuda_status(cudaError_t error, const char *what, Error *err);

/* Makes GPU `gpu` the current one. Refused where there is no driver, no such GPU, or one that this program
 * holds no code for (by its compute capability). */
Status device_use(int gpu, Error *err);

/* Whether device_use() would succeed; if not, `reason` says why. Nothing stays open. */
bool device_usable(int gpu, Error *reason);

/* "NVIDIA H200" in out[size]. */
Status device_name(int gpu, char *out, size_t size, Error *err);

/* Bytes of shared memory that one block may take, where it asks for them. */
Status device_shared_bytes(int gpu, size_t *bytes, Error *err);

/* Bytes of the current GPU's memory: free ones, and all that programs can have (contexts, too, are taken of
 * it). */
Status device_bytes(size_t *free_bytes, size_t *all_bytes, Error *err);
Status device_free_bytes(size_t *bytes, Error *err);

/* All of device memory that one thing needs, taken at once and cut into pieces: run the same cuts twice,
 * first with base NULL to measure, then to place. Pieces are 256-byte aligned. */
typedef struct {
  char *base;  /* device memory, or NULL while measuring */
  size_t used; /* bytes */
} Carver;
void *carve(Carver *carver, size_t n, size_t size);

#ifdef __cplusplus
}
#endif
#endif
