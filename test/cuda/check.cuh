/* check.cuh - a call of CUDA that must succeed ends a test where it does not. */
#ifndef AUK_TEST_CUDA_CHECK_CUH
#define AUK_TEST_CUDA_CHECK_CUH

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                                          \
  do {                                                                                                       \
    cudaError_t failed_ = (call);                                                                            \
    if (failed_ != cudaSuccess) {                                                                            \
      printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(failed_));                     \
      exit(1);                                                                                               \
    }                                                                                                        \
  } while (0)

#endif
