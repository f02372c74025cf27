/* kernel.cuh - the interface between linear.cu and a kernel: LinearArgs, and a LinearKernel of two functions.
 *
 * linear.cu maps dispatch.h's LinearLaunch to LinearKernels. Included by the .cu files of linear/ and by
 * tests. */
#pragma once

#include "cuda/linear/cublas.h"
#include "cuda/linear/epilogue.cuh"
#include "cuda/linear/layout.cuh"
#include "cuda/linear/linear.h"
#include "cuda/ptx/launch.cuh"

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
  int variant;    /* 0: the kernel's own choice of tile shape, n: its n-th, for measuring */
  float *mailbox; /* [n_sms][kMailboxFloats], zero before and after every launch; NULL before sm_90a */
};

constexpr int kCounters = 1 << 16, kMailboxFloats = 24576;

struct LinearKernel {
  size_t (*workspace)(const DeviceLinear *w, int n_tokens, const DeviceLimits &device); /* bytes; NULL: 0 */
  Status (*launch)(const LinearArgs &args, Error *err);
  bool cublas;
};

extern const LinearKernel awq_dot_kernel, awq_planes_kernel, awq_pipelined_kernel, awq_tensorcore_kernel,
    awq_wgmma_kernel, cublas_kernel, cublas_plain_kernel, awq_plain_kernel, int8_gemv_kernel, int8_mma_kernel,
    int8_dp4a_kernel, int8_token_kernel, dense_rows_kernel, float_mma_kernel, planes_wgmma_kernel,
    int8_wgmma_kernel, narrow_wgmma_kernel;

inline LinearQuery linear_query(const DeviceLinear &w, ActType act, int n_tokens,
                                const DeviceLimits &device) {
  return {w.type, w.type == WEIGHT_INT8 ? ACT_INT8 : act, w.n_in, w.n_out, w.group, n_tokens, device};
}

/* Tiles of 64 inputs, padding included. */
inline int quant_tiles_in(const DeviceLinear &w) {
  return ceil_div(w.n_in, kPadIn) * (kPadIn / kTileIn);
}

inline QuantView quant_view(const DeviceLinear &w) {
  QuantView v = {};
  v.tiles = (const uint4 *)w.tiles;
  v.scales = (const uint32_t *)w.scales;
  v.zeros = w.zeros;
  v.n_in = w.n_in;
  v.n_tiles_out = ceil_div(w.n_out, kTileOut);
  v.n_tiles_in = quant_tiles_in(w);
  v.n_groups = w.n_groups;
  v.group_inverse = (uint32_t)((((uint64_t)1 << 32) + (uint64_t)w.group - 1) / (uint64_t)w.group);
  return v;
}

/* Calls `work` with a value of the type of layout.cuh that unpacks quantised weights of `type`. */
template <class Work> Status with_weights(WeightType type, Work work) {
  switch (type) {
  case WEIGHT_AWQ4: return work(Bits4());
  case WEIGHT_FP4: return work(Fp4());
  case WEIGHT_FP8: return work(Fp8());
  default: return work(Bits8());
  }
}

/* The arguments of a kernel that reads x as it is and needs no workspace. */
struct QuantArgs {
  QuantView w;
  const __half *x;
  int x_stride, n_tokens;
  Epilogue out;
};

inline QuantArgs quant_args(const LinearArgs &args) {
  return {quant_view(*args.w), args.x, args.x_stride, args.n_tokens, args.out};
}
