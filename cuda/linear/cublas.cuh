/* cublas.cuh - one fp16, bf16 or fp32 matmul by cuBLAS, and our epilogue on its result.
 *
 * cuBLAS writes fp16 and fp32 results and adds to fp32 ones; with a bias or SwiGLU it writes fp32 sums to a
 * scratch, and a kernel finishes them. Results are repeatable for one device and library: the workspace is
 * fixed and no atomics are allowed. cuBLAS does not clamp fp16 results, so outputs must stay in range, as
 * those of a model that ran in fp16 do. */
#ifndef AUK_CUDA_LINEAR_CUBLAS_CUH
#define AUK_CUDA_LINEAR_CUBLAS_CUH

#include "cuda/linear/kernel.cuh"

/* Row-major y[n_tokens][y_stride] (+)= x[n_tokens][x_stride] w[n_rows][w_stride]^T. */
struct Gemm {
  const void *w, *x;
  cudaDataType type; /* of w and x */
  int n_rows, n_tokens, n_in;
  size_t w_stride, x_stride;
  void *y;
  cudaDataType y_type;
  size_t y_stride;
  bool add;
};

inline Status cublas_gemm(const Cublas *cublas, const Gemm &p, const char *name, Error *err) {
  const float one = 1.0f, beta = p.add ? 1.0f : 0.0f;
  cublasStatus_t s = cublas->gemm_ex(cublas->handle, CUBLAS_OP_T, CUBLAS_OP_N, p.n_rows, p.n_tokens, p.n_in,
                                     &one, p.w, p.type, (int)p.w_stride, p.x, p.type, (int)p.x_stride, &beta,
                                     p.y, p.y_type, (int)p.y_stride, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  return s ? error_set(err, STATUS_FAILED, "%s: cuBLAS: %s", name, cublas->status_string(s)) : STATUS_OK;
}

/* Whether cuBLAS cannot write the output itself (nor fp16 results of fp32 operands). */
inline bool needs_scratch(const DeviceLinear *w) {
  return w->has_bias || w->interleaved || w->type == WEIGHT_F32;
}

/* Passes sums[n_tokens][n_rows], whose first row is in tile `first_tile`, to the epilogue. */
static __global__ void finish_sums(Epilogue out, const float *sums, int n_rows, int n_tokens,
                                   int first_tile) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, tiles = (n_rows + 15) / 16, g = i % 8, tile = i / 8 % tiles,
      token = i / 8 / tiles;
  if (token >= n_tokens) return;
  const float *from = sums + (size_t)token * n_rows + tile * 16 + g;
  bool low = tile * 16 + g < n_rows, high = tile * 16 + g + 8 < n_rows;
  store_row_pair(out, token, first_tile + tile, g, low ? from[0] : 0.0f, high ? from[8] : 0.0f);
}

/* Matmul of rows [first_row, first_row + p.n_rows) with the epilogue; first_row % 16 == 0. `sums` is the
 * scratch if needs_scratch(). Fills in the y fields of p. */
inline Status cublas_matmul(const LinearArgs &args, Gemm p, int first_row, float *sums, Error *err) {
  Epilogue out = args.out;
  if (!needs_scratch(args.w)) {
    bool half = out.kind == LINEAR_TO_F16;
    p.y = half ? (void *)((__half *)out.y + first_row) : (void *)((float *)out.y + first_row);
    p.y_type = half ? CUDA_R_16F : CUDA_R_32F;
    p.y_stride = out.stride;
    p.add = out.kind == LINEAR_ADD_F32;
    return cublas_gemm(args.cublas, p, args.w->name, err);
  }
  p.y = sums;
  p.y_type = CUDA_R_32F;
  p.y_stride = (size_t)p.n_rows;
  p.add = false;
  TRY(cublas_gemm(args.cublas, p, args.w->name, err));
  long threads = (long)args.n_tokens * ceil_div(p.n_rows, kTileOut) * 8;
  return launch(finish_sums, dim3((unsigned)ceil_div(threads, 256)), 256, 0, args.stream, false, args.w->name,
                err, out, (const float *)sums, p.n_rows, p.n_tokens, first_row / kTileOut);
}

#endif
