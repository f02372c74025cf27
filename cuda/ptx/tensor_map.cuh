/* tensor_map.cuh - tensor maps for copy_box() (ptx/wgmma.cuh). */
#pragma once

#include <cuda.h>

#include "cuda/device.h"

/* Map of a matrix of 2-byte numbers, `stride` bytes between its rows, in boxes. Out of bounds reads as 0. The
 * driver's encoder is found at run time, so that the program does not link the driver. */
inline Status map_matrix(const void *at, size_t columns, size_t rows, size_t stride, int box_columns,
                         int box_rows, CUtensorMapSwizzle swizzle, const char *name, CUtensorMap *map,
                         Error *err) {
  void *encode = nullptr;
  cudaDriverEntryPointQueryResult found;
  TRY(cuda_status(
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &found),
      name, err));
  cuuint64_t size[2] = {columns, rows}, strides[1] = {stride};
  cuuint32_t box[2] = {(cuuint32_t)box_columns, (cuuint32_t)box_rows}, step[2] = {1, 1};
  CUresult r = encode ? ((decltype(&cuTensorMapEncodeTiled))encode)(
                            map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, (void *)at, size, strides, box, step,
                            CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
                      : CUDA_ERROR_NOT_FOUND;
  return r ? error_set(err, STATUS_FAILED, "%s: the driver refuses a tensor map (%d)", name, (int)r)
           : STATUS_OK;
}
