/* cublas.cpp - in place of cuda/kernels/linear/cublas.c: the GEMMs that are asked of cuBLAS, in plain loops. */
#include "cuda/kernels/linear/cublas.h"

#include <cuda_bf16.h>

namespace {

float number(const void *data, cudaDataType type, size_t i) {
  if (type == CUDA_R_32F) return ((const float *)data)[i];
  if (type == CUDA_R_16F) return ((const __half *)data)[i];
  return ((const __nv_bfloat16 *)data)[i];
}

cublasStatus_t create(cublasHandle_t *handle) {
  *handle = (cublasHandle_t)(new cudaStream_t());
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t destroy(cublasHandle_t handle) {
  delete (cudaStream_t *)handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t set_stream(cublasHandle_t handle, cudaStream_t stream) {
  *(cudaStream_t *)handle = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t set_workspace(cublasHandle_t, void *, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
const char *status_string(cublasStatus_t) {
  return "the emulator's cuBLAS cannot do this";
}

/* c[n][ldc] = a[m][lda] b[n][ldb] + beta c: column-major with a transposed, as cublas_matmul.cu asks for it. One
 * block of one thread for each row of c. */
cublasStatus_t gemm_ex(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                       const void *, const void *a, cudaDataType type, int lda, const void *b, cudaDataType,
                       int ldb, const void *beta_at, void *c, cudaDataType c_type, int ldc,
                       cublasComputeType_t, cublasGemmAlgo_t) {
  if (ta != CUBLAS_OP_T || tb != CUBLAS_OP_N) return CUBLAS_STATUS_NOT_SUPPORTED;
  float beta = *(const float *)beta_at;
  auto row = [=]() {
    size_t j = blockIdx.x;
    for (int i = 0; i < m; i++) {
      double sum = 0;
      for (int l = 0; l < k; l++)
        sum += (double)number(a, type, (size_t)i * lda + l) * number(b, type, j * ldb + l);
      size_t at = j * ldc + i;
      if (beta != 0) sum += (double)beta * number(c, c_type, at);
      if (c_type == CUDA_R_32F)
        ((float *)c)[at] = (float)sum;
      else
        ((__half *)c)[at] = __half((float)sum);
    }
  };
  return emulator::run({dim3((unsigned)n), dim3(1), 0, *(cudaStream_t *)handle}, "cublasGemmEx", row)
             ? CUBLAS_STATUS_NOT_SUPPORTED
             : CUBLAS_STATUS_SUCCESS;
}

/* The same for matrices at equal distances. */
cublasStatus_t gemm_batched(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                            int k, const void *alpha, const void *a, cudaDataType type, int lda,
                            long long a_step, const void *b, cudaDataType b_type, int ldb, long long b_step,
                            const void *beta, void *c, cudaDataType c_type, int ldc, long long c_step,
                            int n_batches, cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  if (type != CUDA_R_16F || b_type != CUDA_R_16F || c_type != CUDA_R_16F) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (int i = 0; i < n_batches; i++) {
    const cublasStatus_t s =
        gemm_ex(handle, ta, tb, m, n, k, alpha, (const __half *)a + i * a_step, type, lda,
                (const __half *)b + i * b_step, b_type, ldb, beta, (__half *)c + i * c_step, c_type, ldc,
                compute, algorithm);
    if (s) return s;
  }
  return CUBLAS_STATUS_SUCCESS;
}

} // namespace

Status cublas_load(const char *, Cublas *cublas, Error *) {
  cublas->create = create;
  cublas->destroy = destroy;
  cublas->set_stream = set_stream;
  cublas->set_workspace = set_workspace;
  cublas->gemm_ex = gemm_ex;
  cublas->gemm_batched = gemm_batched;
  cublas->status_string = status_string;
  return STATUS_OK;
}

Status cublas_open(Cublas *cublas, cudaStream_t stream, Error *err) {
  if (cublas->handle) return STATUS_OK;
  TRY(cublas_load(nullptr, cublas, err));
  cublas->create(&cublas->handle);
  cublas->set_stream(cublas->handle, stream);
  return STATUS_OK;
}

void cublas_close(Cublas *cublas) {
  if (cublas->handle) cublas->destroy(cublas->handle);
  *cublas = Cublas();
}
