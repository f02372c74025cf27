/* check.cuh - CHECK for calls of CUDA and MUST for calls that return Status: a failure ends the program. */
#pragma once

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"

#define CHECK(call)                                                                                          \
  do {                                                                                                       \
    cudaError_t failed_ = (call);                                                                            \
    if (failed_ != cudaSuccess) {                                                                            \
      printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(failed_));                     \
      exit(1);                                                                                               \
    }                                                                                                        \
  } while (0)

/* The message of a failed call in MUST. */
[[maybe_unused]] static Error error;

#define MUST(call)                                                                                           \
  do {                                                                                                       \
    if ((call) != STATUS_OK) {                                                                               \
      printf("%s:%d: %s\n", __FILE__, __LINE__, error.text);                                                 \
      exit(1);                                                                                               \
    }                                                                                                        \
  } while (0)
