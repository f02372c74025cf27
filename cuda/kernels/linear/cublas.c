/* cublas.c - see cublas.h. */
#include "cuda/kernels/linear/cublas.h"

#include <dlfcn.h>

#include "cuda/kernels/ptx/device.h"

#define TEXT_OF(number) #number
#define SONAME(major)   "libcublas.so." TEXT_OF(major)

static Status find(void *library, const char *name, void *function, Error *err) {
  void *found = dlsym(library, name);
  if (!found) return error_set(err, STATUS_FAILED, "cuBLAS: %s", dlerror());
  *(void **)function = found; /* POSIX allows converting this to a function pointer */
  return STATUS_OK;
}

Status cublas_load(const char *name, Cublas *cublas, Error *err) {
  if (!name) name = SONAME(CUBLAS_VER_MAJOR);
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return error_set(
        err, STATUS_FAILED,
        "these products need cuBLAS, which cannot be loaded: %s (it comes with the CUDA toolkit; "
        "LD_LIBRARY_PATH can name its folder)",
        dlerror());
  TRY(find(library, "cublasCreate_v2", &cublas->create, err));
  TRY(find(library, "cublasDestroy_v2", &cublas->destroy, err));
  TRY(find(library, "cublasSetStream_v2", &cublas->set_stream, err));
  TRY(find(library, "cublasSetWorkspace_v2", &cublas->set_workspace, err));
  TRY(find(library, "cublasGemmEx", &cublas->gemm_ex, err));
  TRY(find(library, "cublasGemmStridedBatchedEx", &cublas->gemm_batched, err));
  return find(library, "cublasGetStatusString", &cublas->status_string, err);
}

Status cublas_open(Cublas *cublas, cudaStream_t stream, Error *err) {
  if (cublas->handle) return STATUS_OK;
  TRY(cublas_load(NULL, cublas, err));
  if (!cublas->workspace)
    TRY(cuda_status(cudaMalloc(&cublas->workspace, CUBLAS_WORKSPACE_BYTES), "workspace of cuBLAS", err));
  cublasStatus_t s = cublas->create(&cublas->handle);
  if (!s) s = cublas->set_stream(cublas->handle, stream);
  if (!s) s = cublas->set_workspace(cublas->handle, cublas->workspace, CUBLAS_WORKSPACE_BYTES);
  return s ? error_set(err, STATUS_FAILED, "cuBLAS: %s", cublas->status_string(s)) : STATUS_OK;
}

void cublas_close(Cublas *cublas) {
  if (cublas->handle) cublas->destroy(cublas->handle);
  cudaFree(cublas->workspace);
  *cublas = (Cublas){0};
}
