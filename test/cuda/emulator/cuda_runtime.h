/* cuda_runtime.h - the emulator's keywords of CUDA C++, vector types, and the functions that kernels call. */
#pragma once

#include <math.h>
#include <time.h>
#include <utility>

#include "emulator.h"

#define __global__
#define __device__
#define __host__
#define __constant__    static const
#define __forceinline__ inline
#define __noinline__    /* nothing: the C++ library has the word inside its own __attribute__(()) */
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __shared__   static thread_local

/* Each part reads the running fiber's place. */
#define EMULATED_PART(part, of)                                                                              \
  struct {                                                                                                   \
    operator unsigned() const { return emulator::here().of.part; }                                           \
  } part
#define EMULATED_INDEX(name, of)                                                                             \
  static const struct {                                                                                      \
    EMULATED_PART(x, of);                                                                                    \
    EMULATED_PART(y, of);                                                                                    \
    EMULATED_PART(z, of);                                                                                    \
  } name = {}
EMULATED_INDEX(threadIdx, thread);
EMULATED_INDEX(blockIdx, block);
EMULATED_INDEX(blockDim, block_size);
EMULATED_INDEX(gridDim, grid_size);

/* --- vectors, aligned as CUDA has them */

struct __align__(8) float2 {
  float x, y;
};
struct __align__(16) float4 {
  float x, y, z, w;
};
struct __align__(16) double2 {
  double x, y;
};
struct __align__(8) int2 {
  int x, y;
};
struct __align__(16) int4 {
  int x, y, z, w;
};
struct __align__(8) uint2 {
  unsigned x, y;
};
struct __align__(16) uint4 {
  unsigned x, y, z, w;
};

struct __align__(16) ulonglong2 {
  unsigned long long x, y;
};

inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline int2 make_int2(int x, int y) {
  return {x, y};
}
inline int4 make_int4(int x, int y, int z, int w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}
inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) {
  return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}

/* --- arithmetic: the exact functions; the fast ones are at least as accurate */

#define EMULATED_MIN_MAX(type)                                                                               \
  inline type min(type a, type b) {                                                                          \
    return b < a ? b : a;                                                                                    \
  }                                                                                                          \
  inline type max(type a, type b) {                                                                          \
    return a < b ? b : a;                                                                                    \
  }
EMULATED_MIN_MAX(int)
EMULATED_MIN_MAX(unsigned)
EMULATED_MIN_MAX(long)
EMULATED_MIN_MAX(unsigned long)
EMULATED_MIN_MAX(unsigned long long)
EMULATED_MIN_MAX(float)
EMULATED_MIN_MAX(double)
inline float __fdividef(float a, float b) {
  return a / b;
}
inline float __expf(float v) {
  return expf(v);
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline float rsqrtf(float v) {
  return (float)(1.0 / sqrt((double)v));
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)((uint64_t)a * b >> 32);
}

template <class To, class From> To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To to;
  memcpy(&to, &value, sizeof to);
  return to;
}
/* NaN becomes 0, and what int does not hold its nearest number. */
inline int __float2int_rn(float v) {
  return v != v ? 0 : v >= 0x1p31f ? INT32_MAX : v < -0x1p31f ? INT32_MIN : (int)lrintf(v);
}
inline long long __float2ll_rn(float v) {
  return llrintf(v);
}
inline float __ll2float_rn(long long v) {
  return (float)v;
}
inline float __int_as_float(int v) {
  return bits_as<float>(v);
}
inline int __float_as_int(float v) {
  return bits_as<int>(v);
}
inline float __uint_as_float(unsigned v) {
  return bits_as<float>(v);
}
inline unsigned __float_as_uint(float v) {
  return bits_as<unsigned>(v);
}

/* --- memory: caches are not modelled */

template <class T> T __ldg(const T *p) {
  return *p;
}
template <class T> T __ldcg(const T *p) {
  return *p;
}
template <class T> T __ldcs(const T *p) {
  return *p;
}
template <class T> void __stcg(T *p, T v) {
  *p = v;
}
inline void __threadfence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void __threadfence_system() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void __threadfence_block() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

inline unsigned atomicOr(unsigned *p, unsigned v) {
  return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST);
}
template <class T> T atomicAdd(T *p, T v) {
  return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
}
inline double atomicAdd(double *p, double v) {
  double before = *p;
  for (;;) {
    uint64_t old = bits_as<uint64_t>(before), sum = bits_as<uint64_t>(before + v);
    if (__atomic_compare_exchange_n((uint64_t *)p, &old, sum, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
      return before;
    before = bits_as<double>(old);
  }
}
inline float atomicAdd(float *p, float v) {
  float before = *p;
  for (;;) {
    uint32_t old = bits_as<uint32_t>(before), sum = bits_as<uint32_t>(before + v);
    if (__atomic_compare_exchange_n((uint32_t *)p, &old, sum, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
      return before;
    before = bits_as<float>(old);
  }
}
inline unsigned atomicAdd(unsigned *p, int v) {
  return atomicAdd(p, (unsigned)v);
}
template <class T> T atomicMax(T *p, T v) {
  T before = __atomic_load_n(p, __ATOMIC_SEQ_CST);
  while (before < v &&
         !__atomic_compare_exchange_n(p, &before, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return before;
}
template <class T> T atomicMin(T *p, T v) {
  T before = __atomic_load_n(p, __ATOMIC_SEQ_CST);
  while (v < before &&
         !__atomic_compare_exchange_n(p, &before, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return before;
}

/* --- the block and the warp */

inline void __syncthreads() {
  emulator::sync_block();
}
inline void __syncwarp(unsigned mask = ~0u) {
  emulator::meet(mask, nullptr, 0, nullptr, "__syncwarp");
}

__attribute__((always_inline)) inline unsigned emulated_lane() {
  return emulator::here().lane;
}
template <class T> T __shfl_sync(unsigned mask, T value, int lane) {
  return *(T *)emulator::meet(mask, &value, sizeof value, nullptr, "__shfl_sync")[lane & 31];
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int step) {
  return *(T *)emulator::meet(mask, &value, sizeof value, nullptr, "__shfl_xor_sync")[emulated_lane() ^ step];
}
template <class T> T __shfl_down_sync(unsigned mask, T value, int step) {
  unsigned from = emulated_lane() + step;
  return *(T *)emulator::meet(mask, &value, sizeof value, nullptr,
                              "__shfl_down_sync")[from < 32 ? from : from - step];
}
template <class T> T __shfl_up_sync(unsigned mask, T value, int step) {
  const int from = (int)emulated_lane() - step;
  return *(T *)emulator::meet(mask, &value, sizeof value, nullptr,
                              "__shfl_up_sync")[from < 0 ? from + step : from];
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  unsigned char(*values)[64] = emulator::meet(mask, &predicate, sizeof predicate, nullptr, "__ballot_sync");
  unsigned bits = 0;
  for (int lane = 0; lane < 32; lane++)
    if (mask >> lane & 1 && *(int *)values[lane]) bits |= 1u << lane;
  return bits;
}
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate == 0) == 0;
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value) {
  unsigned char(*values)[64] = emulator::meet(mask, &value, sizeof value, nullptr, "__reduce_max_sync");
  unsigned best = 0;
  for (int lane = 0; lane < 32; lane++)
    if (mask >> lane & 1) best = max(best, *(unsigned *)values[lane]);
  return best;
}
inline int __reduce_add_sync(unsigned mask, int value) {
  unsigned char(*values)[64] = emulator::meet(mask, &value, sizeof value, nullptr, "__reduce_add_sync");
  unsigned sum = 0;
  for (int lane = 0; lane < 32; lane++)
    if (mask >> lane & 1) sum += *(unsigned *)values[lane];
  return (int)sum;
}
inline size_t __cvta_generic_to_shared(const void *p) {
  return emulator::shared_address(p);
}

[[noreturn]] inline void __trap() {
  abort();
}

/* A thread that reads the clock, or sleeps, waits for no thread in particular. */
inline long long clock64() {
  emulator::yield("clock64");
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (long long)t.tv_sec * 1000000000 + t.tv_nsec;
}
inline int __clz(int v) {
  return v ? __builtin_clz((unsigned)v) : 32;
}

inline int __ffs(int v) {
  return __builtin_ffs(v);
}
inline int __popc(unsigned v) {
  return __builtin_popcount(v);
}
inline int __popcll(unsigned long long v) {
  return __builtin_popcountll(v);
}

inline void __nanosleep(unsigned) {
  emulator::yield("nanosleep");
}

/* --- launches */

typedef enum {
  cudaLaunchAttributeCooperative = 2,
  cudaLaunchAttributeClusterDimension = 4,
  cudaLaunchAttributeProgrammaticStreamSerialization = 6,
} cudaLaunchAttributeID;
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  union {
    int programmaticStreamSerializationAllowed;
    int cooperative;
    struct {
      unsigned x, y, z;
    } clusterDim;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute *attrs;
  unsigned numAttrs;
};
struct cudaFuncAttributes {
  int numRegs;
};

inline emulator::Launch emulated_launch(const cudaLaunchConfig_t &config) {
  emulator::Launch launch{config.gridDim, config.blockDim, config.dynamicSmemBytes, config.stream};
  for (unsigned i = 0; i < config.numAttrs; i++) {
    const cudaLaunchAttribute &attribute = config.attrs[i];
    if (attribute.id != cudaLaunchAttributeClusterDimension) continue;
    bool row = attribute.val.clusterDim.y == 1 && attribute.val.clusterDim.z == 1;
    launch.cluster = row ? (int)attribute.val.clusterDim.x : -1;
  }
  return launch;
}

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Parameters...),
                               Arguments &&...arguments) {
  return emulator::run(
      emulated_launch(*config), __PRETTY_FUNCTION__, [kernel, arguments...]() { kernel(arguments...); },
      (const void *)kernel);
}
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveClusters(int *n, Kernel, const cudaLaunchConfig_t *config) {
  *n = emulator::most_clusters(emulated_launch(*config));
  return *n >= 0 ? cudaSuccess : cudaErrorInvalidValue;
}
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel kernel, cudaFuncAttribute attribute, int value) {
  if (attribute == cudaFuncAttributeNonPortableClusterSizeAllowed && value)
    emulator::allow_large_clusters((const void *)kernel);
  return cudaSuccess;
}
template <class Kernel> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *, Kernel) {
  return cudaSuccess;
}
