/* host_device.h - functions in headers that are both C and CUDA C++, for the host and for a GPU's kernels.
 * HOST_DEVICE begins such a function; CONSTEXPR before it makes its results constants of C++. */
#pragma once

#ifdef __CUDACC__
#define HOST_DEVICE static __host__ __device__ inline
#else
#define HOST_DEVICE static inline
#endif

#ifdef __cplusplus
#define CONSTEXPR constexpr
#else
#define CONSTEXPR
#endif
