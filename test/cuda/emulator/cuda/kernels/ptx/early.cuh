/* early.cuh - the loads of cuda/kernels/ptx/early.cuh. */
#pragma once

#include <cuda_runtime.h>

inline uint4 load_early(const uint4 *p) {
  return *p;
}
inline uint2 load_early(const uint2 *p) {
  return *p;
}
