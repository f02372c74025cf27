/* cublas.h - NVIDIA's cuBLAS, loaded when a shape first needs it. The program starts without it. Commands and
 * models that never need it save 80 ms and 100 MB of memory (on an H200 machine). */
#pragma once

#include <cublas_v2.h>

#include "base/status.h"

C_BEGIN

/* cublasGemmEx as in C; in C++ it is overloaded. */
typedef cublasStatus_t (*CublasGemmEx)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n,
                                       int k, const void *alpha, const void *a, cudaDataType, int lda,
                                       const void *b, cudaDataType, int ldb, const void *beta, void *c,
                                       cudaDataType, int ldc, cublasComputeType_t, cublasGemmAlgo_t);

/* cublasGemmStridedBatchedEx as in C. */
typedef cublasStatus_t (*CublasGemmBatched)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m,
                                            int n, int k, const void *alpha, const void *a, cudaDataType,
                                            int lda, long long a_step, const void *b, cudaDataType, int ldb,
                                            long long b_step, const void *beta, void *c, cudaDataType,
                                            int ldc, long long c_step, int n_batches, cublasComputeType_t,
                                            cublasGemmAlgo_t);

/* The functions that we call, and a handle on one stream. */
typedef struct {
  __typeof__(&cublasCreate_v2) create;
  __typeof__(&cublasDestroy_v2) destroy;
  __typeof__(&cublasSetStream_v2) set_stream;
  __typeof__(&cublasSetWorkspace_v2) set_workspace;
  CublasGemmEx gemm_ex;
  CublasGemmBatched gemm_batched;
  __typeof__(&cublasGetStatusString) status_string;
  cublasHandle_t handle; /* NULL until cublas_open() */
  void *workspace;       /* device [CUBLAS_WORKSPACE_BYTES]: captured graphs use no memory of the library's */
} Cublas;

#define CUBLAS_WORKSPACE_BYTES ((size_t)32 << 20) /* cuBLAS's recommendation for Hopper */

/* Loads the library `name` (NULL: the library of this program's CUDA toolkit) and finds the functions;
 * STATUS_FAILED says what is missing and where it comes from. The library stays loaded, because CUDA's
 * libraries keep threads and handlers. */
Status cublas_load(const char *name, Cublas *cublas, Error *err);

/* cublas_load(NULL), then creates the handle and its workspace, unless open already. */
Status cublas_open(Cublas *cublas, cudaStream_t stream, Error *err);
void cublas_close(Cublas *cublas); /* *cublas may be all zeros */

C_END
