/* overlap.cuh - launches that may begin while the kernel before them ends (programmatic dependent launch).
 *
 * A kernel launched so begins with dependents_may_start(); wait_for_previous(); and touches nothing that an
 * earlier kernel makes or still reads in between. Since every kernel of a stream waits for the one before it,
 * all earlier ones are complete then. It saves the launch latency between small kernels, and lets a product
 * of linear.h fetch its first weights while a norm runs. */
#ifndef AUK_CUDA_PTX_OVERLAP_CUH
#define AUK_CUDA_PTX_OVERLAP_CUH

#include <cuda_runtime.h>
#include <utility>

#include "cuda/ptx/ptx.cuh"

template <class... Parameters, class... Arguments>
cudaError_t launch_overlapping(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
                               cudaStream_t stream, Arguments &&...arguments) {
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

/* The beginning of a kernel that is launched so. */
__device__ __forceinline__ void begin_overlapping() {
  dependents_may_start();
  wait_for_previous();
}

#endif
