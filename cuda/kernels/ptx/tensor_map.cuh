/* tensor_map.cuh - tensor maps for copy_box() (ptx/wgmma.cuh, ptx/cluster.cuh). */
#pragma once

#include <cuda.h>

#include "cuda/kernels/ptx/cluster.cuh"
#include "cuda/kernels/ptx/device.h"
#include "cuda/kernels/ptx/ptx.cuh"

/* The first address at or after `shared` that tensor copies in the 128-byte swizzle can fill: a multiple of
 * 1,024, so up to 1,023 bytes lie before it. */
__device__ __forceinline__ unsigned char *align_for_copies(unsigned char *shared) {
  return shared + (1024 - shared_address(shared) % 1024) % 1024;
}

/* Map of a stack of matrices of 2-byte numbers, or with size[2] = 0 of one matrix. size: {columns, rows,
 * matrices}. stride: {bytes from a row to the next, bytes from a matrix to the next}. box: the size that one
 * copy brings. Elements out of bounds read as 0. The driver's encoder is found at run time, so the program
 * does not link the driver. */
inline Status map_boxes(const void *at, const cuuint64_t (&size)[3], const cuuint64_t (&stride)[2],
                        const cuuint32_t (&box)[3], CUtensorMapSwizzle swizzle, const char *name,
                        CUtensorMap *map, Error *err) {
  static void *encode = nullptr;
  cudaDriverEntryPointQueryResult found;
  if (!encode)
    TRY(cuda_status(
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &found),
        name, err));
  const cuuint32_t step[3] = {1, 1, 1};
  const CUresult r = encode ? ((decltype(&cuTensorMapEncodeTiled))encode)(
                                  map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, size[2] ? 3 : 2, (void *)at, size,
                                  stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
                            : CUDA_ERROR_NOT_FOUND;
  return r ? error_set(err, STATUS_FAILED, "%s: the driver refuses a tensor map (%d)", name, (int)r)
           : STATUS_OK;
}
