/* kernel_probe.h - whether the current GPU can run this program's kernels at all. */
#ifndef AUK_CUDA_BENCH_KERNEL_PROBE_H
#define AUK_CUDA_BENCH_KERNEL_PROBE_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* cudaErrorNoKernelImageForDevice or similar if the program has no code for it. Launches nothing. */
cudaError_t kernel_probe(void);

#ifdef __cplusplus
}
#endif
#endif
