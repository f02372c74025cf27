/* early.cuh - loads of weights that a kernel issues before wait_for_previous() (launch.cuh). ptxas keeps
 * these loads above that wait. It can move load_once() below the wait: ld.global.nc says that nothing writes
 * the memory. (In router_token.cu CUDA 13.0 would not move it.) PTX "ld". */
#pragma once

#include <cuda_runtime.h>

__device__ __forceinline__ uint4 load_early(const uint4 *p) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}

__device__ __forceinline__ uint2 load_early(const uint2 *p) {
  uint2 v;
  asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p) : "memory");
  return v;
}
