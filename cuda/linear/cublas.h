/* cublas.h - NVIDIA's cuBLAS, loaded when a shape needs it and not before: the program starts without it, and
 * commands and models that never need it do not pay for it (80 ms and 100 MB resident, beside an H200,
 * 2026-11-20). */
#ifndef AUK_CUDA_LINEAR_CUBLAS_H
#define AUK_CUDA_LINEAR_CUBLAS_H

#include <cublas_v2.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* cublasGemmEx in C; in C++ the name has two types. */
typedef cublasStatus_t (*CublasGemmEx)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n,
                                       int k, const void *alpha, const void *a, cudaDataType, int lda,
                                       const void *b, cudaDataType, int ldb, const void *beta, void *c,
                                       cudaDataType, int ldc, cublasComputeType_t, cublasGemmAlgo_t);

/* The functions that are called, and a handle on one stream. */
typedef struct {
  __typeof__(&cublasCreate_v2) create;
  __typeof__(&cublasDestroy_v2) destroy;
  __typeof__(&cublasSetStream_v2) set_stream;
  __typeof__(&cublasSetWorkspace_v2) set_workspace;
  CublasGemmEx gemm_ex;
  __typeof__(&cublasGetStatusString) status_string;
  cublasHandle_t handle; /* NULL until cublas_open() */
  void *workspace;       /* device [CUBLAS_WORKSPACE_BYTES]: captured graphs own nothing of the library's */
} Cublas;

#define CUBLAS_WORKSPACE_BYTES ((size_t)32 << 20) /* what cuBLAS recommends on Hopper */

/* Loads the library `name` and finds the functions; STATUS_FAILED says what is missing and where it comes
 * from. NULL: the library of this program's CUDA toolkit. It stays loaded as long as the program runs: CUDA's
 * libraries keep threads and handlers of their own. */
Status cublas_load(const char *name, Cublas *cublas, Error *err);

/* cublas_load(NULL), and a handle with a workspace of ours. Nothing happens where it is open. */
Status cublas_open(Cublas *cublas, cudaStream_t stream, Error *err);
void cublas_close(Cublas *cublas); /* a zeroed one is fine */

#ifdef __cplusplus
}
#endif
#endif
