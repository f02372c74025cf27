/* faults_cuda.c - makes calls of the CUDA runtime fail, on a real GPU: linked into build/torture with ld's
 * --wrap, as faults.c is.
 *
 * Driven by: scripts/torture.py --cuda, through the environment: AUK_FAULT=cuda:N fails the Nth call and all
 * after it, as on a device that is lost; AUK_FAULT_TOLD=F: this file appears then. The emulated GPU does the
 * same (test/cuda/emulator/runtime.cpp).
 * Always true: a call that fails does nothing; before that all are passed on untouched. cuBLAS, which is
 * loaded while the program runs, has calls of its own, which are not wrapped. */
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long which; /* 0: none fails */
static atomic_long calls;

/* Runs before main(); until then nothing fails. */
__attribute__((constructor)) static void read_environment(void) {
  const char *fault = getenv("AUK_FAULT");
  if (fault && strncmp(fault, "cuda:", 5) == 0) which = atol(fault + 5);
}

static bool lost(void) {
  return which && atomic_load(&calls) >= which;
}

static bool fails(void) {
  if (!which) return false;
  long n = atomic_fetch_add(&calls, 1) + 1;
  const char *told = n == which ? getenv("AUK_FAULT_TOLD") : NULL;
  int file = told ? open(told, O_CREAT | O_WRONLY, 0600) : -1;
  if (file >= 0) close(file);
  return n >= which;
}

/* The Makefile reads the names of what is wrapped off these lines. */
#define FAULTY(name, error, parameters, ...)                                                                 \
  cudaError_t __real_##name parameters;                                                                      \
  cudaError_t __wrap_##name parameters {                                                                     \
    return fails() ? error : __real_##name(__VA_ARGS__);                                                     \
  }
#define BROKEN  cudaErrorLaunchFailure
#define NO_ROOM cudaErrorMemoryAllocation

/* clang-format off */
FAULTY(cudaGetDeviceCount, BROKEN, (int *count), count)
FAULTY(cudaSetDevice, BROKEN, (int gpu), gpu)
FAULTY(cudaDeviceSetLimit, BROKEN, (enum cudaLimit limit, size_t value), limit, value)
FAULTY(cudaDeviceGetAttribute, BROKEN, (int *value, enum cudaDeviceAttr which_one, int gpu), value,
       which_one, gpu)
FAULTY(cudaDeviceSynchronize, BROKEN, (void))
FAULTY(cudaMemGetInfo, BROKEN, (size_t *available, size_t *total), available, total)
FAULTY(cudaMalloc, NO_ROOM, (void **memory, size_t size), memory, size)
FAULTY(cudaHostAlloc, NO_ROOM, (void **memory, size_t size, unsigned flags), memory, size, flags)
FAULTY(cudaFree, BROKEN, (void *memory), memory)
FAULTY(cudaFreeHost, BROKEN, (void *memory), memory)
FAULTY(cudaMemset, BROKEN, (void *memory, int value, size_t size), memory, value, size)
FAULTY(cudaMemsetAsync, BROKEN, (void *memory, int value, size_t size, cudaStream_t stream), memory, value,
       size, stream)
FAULTY(cudaMemcpyAsync, BROKEN, (void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
       cudaStream_t stream), to, from, size, kind, stream)
FAULTY(cudaMemcpy2DAsync, BROKEN, (void *to, size_t to_pitch, const void *from, size_t from_pitch,
       size_t width, size_t height, enum cudaMemcpyKind kind, cudaStream_t stream), to, to_pitch, from,
       from_pitch, width, height, kind, stream)
FAULTY(cudaStreamCreateWithFlags, BROKEN, (cudaStream_t *stream, unsigned flags), stream, flags)
FAULTY(cudaStreamDestroy, BROKEN, (cudaStream_t stream), stream)
FAULTY(cudaStreamQuery, BROKEN, (cudaStream_t stream), stream)
FAULTY(cudaStreamSynchronize, BROKEN, (cudaStream_t stream), stream)
FAULTY(cudaStreamBeginCapture, BROKEN, (cudaStream_t stream, enum cudaStreamCaptureMode mode), stream, mode)
FAULTY(cudaStreamEndCapture, BROKEN, (cudaStream_t stream, cudaGraph_t *graph), stream, graph)
FAULTY(cudaGraphInstantiate, BROKEN, (cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags),
       exec, graph, flags)
FAULTY(cudaGraphLaunch, BROKEN, (cudaGraphExec_t exec, cudaStream_t stream), exec, stream)
FAULTY(cudaGraphDestroy, BROKEN, (cudaGraph_t graph), graph)
FAULTY(cudaGraphExecDestroy, BROKEN, (cudaGraphExec_t exec), exec)
FAULTY(cudaEventCreate, BROKEN, (cudaEvent_t *event), event)
FAULTY(cudaEventCreateWithFlags, BROKEN, (cudaEvent_t *event, unsigned flags), event, flags)
FAULTY(cudaEventDestroy, BROKEN, (cudaEvent_t event), event)
FAULTY(cudaEventRecord, BROKEN, (cudaEvent_t event, cudaStream_t stream), event, stream)
FAULTY(cudaEventSynchronize, BROKEN, (cudaEvent_t event), event)
FAULTY(cudaFuncSetAttribute, BROKEN, (const void *kernel, enum cudaFuncAttribute attribute, int value),
       kernel, attribute, value)
FAULTY(cudaLaunchKernelExC, BROKEN, (const cudaLaunchConfig_t *config, const void *kernel,
       void **arguments), config, kernel, arguments)
FAULTY(cudaFuncGetAttributes, BROKEN, (struct cudaFuncAttributes *attributes, const void *kernel),
       attributes, kernel)
FAULTY(cudaOccupancyMaxActiveClusters, BROKEN, (int *n, const void *kernel,
       const cudaLaunchConfig_t *config), n, kernel, config)
FAULTY(cudaGetDriverEntryPointByVersion, BROKEN, (const char *symbol, void **function, unsigned version,
       unsigned long long flags, enum cudaDriverEntryPointQueryResult *found), symbol, function, version,
       flags, found)
/* The function that a launch with <<<>>> calls (the toolkit's crt/device_functions.h). */
FAULTY(__cudaLaunchKernel, BROKEN, (cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
       size_t shared, cudaStream_t stream), kernel, grid, block, arguments, shared, stream)
/* clang-format on */

cudaError_t __real_cudaGetLastError(void);
cudaError_t __wrap_cudaGetLastError(void) {
  cudaError_t error = __real_cudaGetLastError();
  return lost() ? BROKEN : error;
}
