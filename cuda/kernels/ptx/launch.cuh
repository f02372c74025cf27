/* launch.cuh - the checked launch of all kernels but the fused steps (fused/step.cu).
 *
 * A `dependent` launch (programmatic dependent launch) can begin while the kernel before it ends. This hides
 * the launch latency between small kernels, and lets a matmul fetch its first weights while a norm runs. The
 * kernel calls begin_overlapping(), or dependents_may_start() and wait_for_previous(). Until
 * wait_for_previous() has returned, the kernel reads nothing that an earlier kernel still writes, and writes
 * nothing that an earlier kernel still reads or writes. Every kernel of a stream waits for the kernel before
 * it, so all earlier kernels are complete then. (Where attention_decode.cu runs beside attention_wgmma.cu,
 * attention_decode.cu waits only at its end. This is enough for the kernels that follow.) */
#pragma once

#include <cuda_runtime.h>
#include <utility>

#include "cuda/kernels/ptx/ceil_div.h"
#include "cuda/kernels/ptx/device.h"
#include "cuda/kernels/ptx/ptx.cuh"

/* n rounded up to a multiple of `to` bytes: the alignment of parts of a workspace. */
inline size_t align_up(size_t n, size_t to = 256) {
  return (n + to - 1) / to * to;
}

template <class Kernel> Status allow_shared(Kernel kernel, size_t shared, const char *name, Error *err) {
  if (shared <= 48 * 1024) return STATUS_OK;
  return cuda_status(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
                     name, err);
}

/* The attribute of a launch in clusters of n blocks along x. */
inline cudaLaunchAttribute cluster_attribute(unsigned n) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = n;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  return attribute;
}

/* launch() with n attributes; `attributes` has room for n + 1. */
template <class... Parameters, class... Arguments>
Status launch_with(cudaLaunchAttribute *attributes, unsigned n, void (*kernel)(Parameters...), dim3 grid,
                   dim3 block, size_t shared, cudaStream_t stream, bool dependent, const char *name,
                   Error *err, Arguments &&...arguments) {
  TRY(allow_shared(kernel, shared, name, err));
  attributes[n].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[n].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = n + (dependent ? 1 : 0);
  return cuda_status(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), name, err);
}

/* Launches kernel(arguments...) with `shared` bytes of dynamic shared memory; `name` is for the error
 * message. */
template <class... Parameters, class... Arguments>
Status launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
              bool dependent, const char *name, Error *err, Arguments &&...arguments) {
  cudaLaunchAttribute attributes[1] = {};
  return launch_with(attributes, 0, kernel, grid, block, shared, stream, dependent, name, err,
                     std::forward<Arguments>(arguments)...);
}

/* launch() of a kernel whose blocks wait for each other, in clusters of `cluster` blocks along x. Refuses a
 * grid that does not fit on the device at once. */
template <class... Parameters, class... Arguments>
Status launch_clusters(unsigned cluster, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
                       cudaStream_t stream, bool dependent, const char *name, Error *err,
                       Arguments &&...arguments) {
  cudaLaunchAttribute attributes[2] = {
      cluster_attribute(cluster)}; /* even if it is 1: test/cuda/emulator then keeps all blocks resident */
  cudaLaunchConfig_t config = {};
  config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = shared;
  config.attrs = attributes, config.numAttrs = 1;
  int fitting = 0;
  TRY(allow_shared(kernel, shared, name, err));
  TRY(cuda_status(cudaOccupancyMaxActiveClusters(&fitting, kernel, &config), name, err));
  if ((int)(grid.x / cluster) > fitting)
    return error_set(err, STATUS_FAILED,
                     "%s: %u blocks wait for each other, and this GPU runs %d of them at once", name, grid.x,
                     fitting * (int)cluster);
  return launch_with(attributes, 1, kernel, grid, block, shared, stream, dependent, name, err,
                     std::forward<Arguments>(arguments)...);
}

template <class... Parameters, class... Arguments>
Status launch_resident(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
                       cudaStream_t stream, bool dependent, const char *name, Error *err,
                       Arguments &&...arguments) {
  return launch_clusters(1, kernel, grid, block, shared, stream, dependent, name, err,
                         std::forward<Arguments>(arguments)...);
}

/* The first statement of a kernel that does no work before its predecessor's results are complete. */
__device__ __forceinline__ void begin_overlapping() {
  dependents_may_start();
  wait_for_previous();
}
