/* lanes.cuh - reductions over the lanes of a warp: the result is in every lane, the order of the sum is
 * fixed. */
#pragma once

/* Sum over the lanes whose numbers differ in these bits, one bit after the other: <4, 8, 16> joins the eight
 * lanes that hold the same column of an mma result. */
template <int... kBits, class T> __device__ __forceinline__ T lanes_sum(T v) {
  ((v += __shfl_xor_sync(~0u, v, kBits)), ...);
  return v;
}

template <int... kBits> __device__ __forceinline__ float lanes_max(float v) {
  ((v = fmaxf(v, __shfl_xor_sync(~0u, v, kBits))), ...);
  return v;
}

/* Sum of the lanes up to this one. */
template <class T> __device__ __forceinline__ T warp_sum_up_to(T v) {
  for (int o = 1; o < 32; o *= 2) {
    const T other = __shfl_up_sync(~0u, v, o);
    if ((int)threadIdx.x % 32 >= o) v += other;
  }
  return v;
}

template <class T> __device__ __forceinline__ T warp_sum(T v) {
  return lanes_sum<16, 8, 4, 2, 1>(v);
}

/* Index of the warp in its block; the shuffle shows the compiler that it is uniform in the warp. */
__device__ __forceinline__ int warp_of_block() {
  return __shfl_sync(~0u, threadIdx.x / 32, 0);
}
