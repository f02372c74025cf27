/* lanes.cuh - reductions over the lanes of a warp. Unless a function says otherwise the result is in every
 * lane. The order of a sum is fixed. */
#pragma once

/* Sum over the lanes whose ids differ only in these bits, one bit after the other. <4, 8, 16> sums over the
 * eight lanes that hold the same column of an mma result. */
template <int... kBits, class T> __device__ __forceinline__ T lanes_sum(T v) {
  ((v += __shfl_xor_sync(~0u, v, kBits)), ...);
  return v;
}

template <int... kBits> __device__ __forceinline__ float lanes_max(float v) {
  ((v = fmaxf(v, __shfl_xor_sync(~0u, v, kBits))), ...);
  return v;
}

/* Inclusive prefix sum: each lane gets the sum of the lanes up to itself. */
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

/* Each lane has n <= 32 numbers, n a power of two. Lane l returns the warp's sum of number l / (32 / n). In
 * each round two lanes exchange half of their numbers, and each lane adds what it gets to the half that it
 * keeps. */
template <int n, int kBit = 16> __device__ __forceinline__ float warp_sums(float (&v)[n]) {
  if constexpr (n == 1) {
#pragma unroll
    for (int o = kBit; o > 0; o /= 2) v[0] += __shfl_xor_sync(~0u, v[0], o);
    return v[0];
  } else {
    const bool upper = threadIdx.x % 32 & kBit;
    float half[n / 2];
#pragma unroll
    for (int i = 0; i < n / 2; i++)
      half[i] = (upper ? v[i + n / 2] : v[i]) + __shfl_xor_sync(~0u, upper ? v[i] : v[i + n / 2], kBit);
    return warp_sums<n / 2, kBit / 2>(half);
  }
}

/* Index of the warp in its block. The shuffle shows the compiler that it is the same in all lanes. */
__device__ __forceinline__ int warp_of_block() {
  return __shfl_sync(~0u, threadIdx.x / 32, 0);
}
