/* gpu.c - see gpu.h. */
#include "cuda/one/gpu.h"

#include <stdio.h>
#include <string.h>

#include "cuda/kernels/ops/norm_rope.h"
#include "cuda/kernels/ptx/device.h"

Status device_use(int gpu, Error *err) {
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
    return error_set(err, STATUS_FAILED, "no NVIDIA GPU is visible");
  if (error == cudaErrorInsufficientDriver)
    return error_set(err, STATUS_FAILED, "no NVIDIA driver, or one older than this program's CUDA needs");
  TRY(cuda_status(error, "cannot count the devices", err));
  if (gpu < 0 || gpu >= count)
    return error_set(err, STATUS_FAILED, "--gpu is %d, expected 0 to %d: %d GPU%s visible", gpu, count - 1,
                     count, count == 1 ? " is" : "s are");
  TRY(cuda_status(cudaSetDevice(gpu), "cannot open the device", err));
  /* By default the driver reserves 1 KB of stack per resident thread (277 MB on an H200) for kernels whose
   * stack the compiler cannot bound. No kernel here is such a kernel. */
  TRY(cuda_status(cudaDeviceSetLimit(cudaLimitStackSize, 0), "cannot open the device", err));
  int major = 0, minor = 0;
  TRY(device_attribute(gpu, cudaDevAttrComputeCapabilityMajor, &major, err));
  TRY(device_attribute(gpu, cudaDevAttrComputeCapabilityMinor, &minor, err));
  error = ops_probe();
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction ||
      error == cudaErrorUnsupportedPtxVersion)
    return error_set(
        err, STATUS_FAILED,
        "GPU %d has compute capability %d.%d, for which this program was not built (make CUDA_ARCHS=%d%d)",
        gpu, major, minor, major, minor);
  return cuda_status(error, "cannot load the program's kernels", err);
}

Status device_name(int gpu, char *out, size_t size, Error *err) {
  struct cudaDeviceProp properties;
  TRY(cuda_status(cudaGetDeviceProperties(&properties, gpu), "cannot ask it", err));
  snprintf(out, size, "%s", properties.name);
  return STATUS_OK;
}

Status device_identity(int gpu, uint8_t out[16], Error *err) {
  struct cudaDeviceProp properties;
  TRY(cuda_status(cudaGetDeviceProperties(&properties, gpu), "cannot ask it", err));
  memcpy(out, properties.uuid.bytes, 16);
  return STATUS_OK;
}

Status device_bytes(size_t *free_bytes, size_t *all_bytes, Error *err) {
  return cuda_status(cudaMemGetInfo(free_bytes, all_bytes), "cannot ask for its free memory", err);
}
