/* kernel.cuh - the interface between linear.cu and a kernel: LinearArgs, and a LinearKernel of two functions.
 *
 * linear.cu maps dispatch.h's LinearLaunch to LinearKernels. Included by the .cu files of linear/ and by
 * tests. */
#ifndef AUK_CUDA_LINEAR_KERNEL_CUH
#define AUK_CUDA_LINEAR_KERNEL_CUH

#include "cuda/linear/cublas.h"
#include "cuda/linear/epilogue.cuh"
#include "cuda/linear/layout.cuh"
#include "cuda/linear/linear.h"
#include "cuda/ptx/launch.cuh"

/* Properties of the device that decide which kernel runs. */
struct DeviceLimits {
  int n_sms;
  int arch;            /* SM(...) or SM_90A */
  size_t shared_bytes; /* that one block may use */
};

struct LinearArgs {
  const DeviceLinear *w;
  const __half *x;
  int x_stride, n_tokens;
  Epilogue out;
  DeviceLimits device;
  unsigned char *workspace; /* as many bytes as LinearKernel.workspace says */
  unsigned *counters;       /* [kCounters], zero before and after every launch */
  const Cublas *cublas;     /* open if LinearKernel.cublas */
  cudaStream_t stream;
  bool dependent;
  int variant; /* 0: the kernel's own choice of tile shape, n: its n-th, for measuring */
};

constexpr int kCounters = 1 << 16;

struct LinearKernel {
  size_t (*workspace)(const DeviceLinear *w, int n_tokens, const DeviceLimits &device); /* bytes; NULL: 0 */
  Status (*launch)(const LinearArgs &args, Error *err);
  bool cublas;
};

extern const LinearKernel awq_gemv_kernel, awq_small_batch_kernel, awq_planes_kernel, awq_pipelined_kernel,
    awq_tensorcore_kernel, awq_wgmma_kernel, awq_dequant_kernel, awq_dequant_plain_kernel, awq_plain_kernel,
    int8_gemv_kernel, int8_mma_kernel, int8_dp4a_kernel, int8_token_kernel, dense_rows_kernel,
    dense_cublas_kernel;

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

#endif
