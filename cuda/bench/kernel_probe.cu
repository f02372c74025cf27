/* kernel_probe.cu - see kernel_probe.h: asks for the attributes of a kernel, which loads its code. */
#include "cuda/bench/kernel_probe.h"

namespace {
__global__ void probe_kernel() {}
} // namespace

cudaError_t kernel_probe(void) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, probe_kernel);
}
