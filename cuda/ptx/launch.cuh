/* launch.cuh - what every family of kernels shares on the host: the arguments of a launch, and the launch
 * itself.
 *
 * Included by the .cu files of this room only. A family is two functions: one says how much workspace a
 * shape takes, the other launches; linear.cu maps the table's LinearLaunch to them. */
#ifndef AUK_CUDA_PTX_LAUNCH_CUH
#define AUK_CUDA_PTX_LAUNCH_CUH

#include <utility>

#include "cuda/linear/cublas.h"
#include "cuda/linear/epilogue.cuh"
#include "cuda/linear/layout.cuh"
#include "cuda/linear/linear.h"

/* What is known of the device when a kernel is chosen. */
struct DeviceLimits {
  int n_sms;
  int arch;            /* SM(...) or SM_90A */
  size_t shared_bytes; /* most that one block may take */
};

struct LinearArgs {
  const DeviceLinear *w;
  const __half *x;
  int x_stride, n_tokens;
  Epilogue out;
  DeviceLimits device;
  unsigned char *workspace; /* as many bytes as the family asked for */
  unsigned *counters;       /* [kCounters], zero before and after every launch */
  const Cublas *cublas;     /* for the families that need one */
  cudaStream_t stream;
  bool dependent;
  int variant; /* 0: the family's own choice of tile shape, n: its n-th, for measuring */
};

constexpr int kCounters = 1 << 16;

struct LinearKernel {
  size_t (*workspace)(const DeviceLinear *w, int n_tokens, const DeviceLimits &device); /* NULL: none */
  Status (*launch)(const LinearArgs &args, Error *err);
  bool cublas;
};

extern const LinearKernel awq_gemv_kernel, awq_small_batch_kernel, awq_planes_kernel, awq_pipelined_kernel,
    awq_tensorcore_kernel, awq_wgmma_kernel, awq_dequant_kernel, awq_dequant_plain_kernel, awq_plain_kernel,
    int8_gemv_kernel, int8_mma_kernel, int8_dp4a_kernel, int8_token_kernel, dense_rows_kernel,
    dense_cublas_kernel;

inline int ceil_div(long a, long b) {
  return (int)((a + b - 1) / b);
}

/* Where the next piece of a scratch may begin. */
inline size_t align_up(size_t n, size_t to = 256) {
  return (n + to - 1) / to * to;
}

inline Status cuda_check(cudaError_t result, const char *what, Error *err) {
  if (result == cudaSuccess) return STATUS_OK;
  return error_set(err, STATUS_FAILED, "CUDA: %s: %s", what, cudaGetErrorString(result));
}

inline QuantView quant_view(const DeviceLinear &w) {
  QuantView v = {};
  v.tiles = (const uint4 *)w.tiles;
  v.scales = (const uint32_t *)w.scales;
  v.zeros = w.zeros;
  v.n_in = w.n_in;
  v.n_tiles_out = ceil_div(w.n_out, kTileOut);
  v.n_tiles_in = ceil_div(w.n_in, kPadIn) * (kPadIn / kTileIn);
  v.n_groups = w.n_groups;
  v.group = w.group;
  v.group_inverse = (uint32_t)((((uint64_t)1 << 32) + (uint64_t)w.group - 1) / (uint64_t)w.group);
  return v;
}

/* Launches kernel(arguments...) with `shared` bytes of dynamic shared memory, checked. */
template <class... Parameters, class... Arguments>
Status launch(void (*kernel)(Parameters...), dim3 grid, int threads, size_t shared, cudaStream_t stream,
              bool dependent, const char *name, Error *err, Arguments &&...arguments) {
  if (shared > 48 * 1024)
    TRY(cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
                   name, err));
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3((unsigned)threads);
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = dependent ? 1 : 0;
  return cuda_check(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), name, err);
}

#endif
