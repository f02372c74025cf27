/* cublas_matmul.cu - the matmul of many tokens by cuBLAS, for quantised and dense weights.
 *
 * cuBLAS takes slices of the matrix's rows. Slice by slice quantised weights are dequantised to fp16
 * (awq_dequant.cu), and bf16 is converted to fp16. (The 8 bits of mantissa fit; below 2^-17 numbers are
 * rounded to multiples of 2^-24, and from 2^16 on they become infinite.) So the scratch is bounded, and a
 * slice is still in L2 when cuBLAS reads it. For fp32 weights x is converted to fp32.
 *
 * cuBLAS writes fp16 and fp32 results and adds to fp32 ones. With a bias, factors, SwiGLU or fp32 weights it
 * writes fp32 sums to a scratch, and a kernel finishes them. Results are repeatable for one device and
 * library: the workspace is fixed and no atomics are allowed. cuBLAS does not clamp fp16 results, so outputs
 * must stay in range, as those of a model that ran in fp16 do. */
#include <algorithm>
#include <cuda_bf16.h>

#include "cuda/kernels/linear/kernel.cuh"

namespace {

constexpr size_t kSliceBytes = 64 << 20; /* limit of converted weights, and of sums */

/* Row-major y[n_tokens][y_stride] (+)= x[n_tokens][x_stride] w[n_rows][w_stride]^T. */
struct Gemm {
  const void *w, *x;
  cudaDataType type; /* of w and x */
  int n_rows;
  size_t w_stride, x_stride;
};

Status gemm(const LinearArgs &args, const Gemm &g, void *y, cudaDataType y_type, size_t y_stride, bool add,
            Error *err) {
  const float one = 1.0f, beta = add ? 1.0f : 0.0f;
  const Cublas *cublas = args.cublas;
  cublasStatus_t s =
      cublas->gemm_ex(cublas->handle, CUBLAS_OP_T, CUBLAS_OP_N, g.n_rows, args.n_tokens, args.w->n_in, &one,
                      g.w, g.type, (int)g.w_stride, g.x, g.type, (int)g.x_stride, &beta, y, y_type,
                      (int)y_stride, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  return s ? error_set(err, STATUS_FAILED, "%s: cuBLAS: %s", args.w->name, cublas->status_string(s))
           : STATUS_OK;
}

/* True if cuBLAS writes fp32 sums that a kernel finishes: with a bias or factors, for SwiGLU, and for fp32
 * operands, whose results cuBLAS cannot write as fp16. */
bool needs_sums(const DeviceLinear *w) {
  return w->has_bias || w->interleaved || w->type == WEIGHT_F32 || weight_has_factors(w->type);
}

/* Passes sums[n_tokens][n_rows], those of the outputs from tile row first_tile on, to the epilogue. */
__global__ void finish_sums(Epilogue out, const float *sums, int n_rows, int n_tokens, int first_tile) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, tiles = (n_rows + 15) / 16, g = i % 8, tile = i / 8 % tiles,
      token = i / 8 / tiles;
  if (token >= n_tokens) return;
  const float *from = sums + (size_t)token * n_rows + tile * 16 + g;
  bool low = tile * 16 + g < n_rows, high = tile * 16 + g + 8 < n_rows;
  store_row_pair(out, token, first_tile + tile, g, low ? from[0] : 0.0f, high ? from[8] : 0.0f);
}

/* Multiplies the slice that begins with row first_row, a multiple of 16, and stores the results in y. */
Status multiply_slice(const LinearArgs &args, const Gemm &g, int first_row, float *sums, Error *err) {
  const Epilogue &out = args.out;
  if (!needs_sums(args.w)) {
    if (out.kind == LINEAR_TO_F16)
      return gemm(args, g, (__half *)out.y + first_row, CUDA_R_16F, out.stride, false, err);
    return gemm(args, g, (float *)out.y + first_row, CUDA_R_32F, out.stride, out.kind == LINEAR_ADD_F32, err);
  }
  TRY(gemm(args, g, sums, CUDA_R_32F, (size_t)g.n_rows, false, err));
  long threads = (long)args.n_tokens * ceil_div(g.n_rows, kTileOut) * 8;
  return launch(finish_sums, dim3((unsigned)ceil_div(threads, 256)), 256, 0, args.stream, false, args.w->name,
                err, out, (const float *)sums, g.n_rows, args.n_tokens, first_row / kTileOut);
}

/* Rows of a slice, and bytes of the parts of the scratch. The parts follow each other in the workspace. */
struct Slices {
  int rows;
  size_t weights, x, sums;
};

/* Slices of equally many rows, a multiple of 256 if there are several; the last one may have fewer. */
Slices slices_of(const DeviceLinear *w, int n_tokens, size_t slice_bytes) {
  const size_t tokens = (size_t)n_tokens, row_bytes = weight_is_quantised(w->type) ? (size_t)w->n_in * 2
                                                      : w->type == WEIGHT_BF16     ? w->stride * 2
                                                                                   : 0;
  size_t most = (size_t)w->n_out;
  if (row_bytes) most = std::min(most, slice_bytes / row_bytes);
  if (needs_sums(w)) most = std::min(most, slice_bytes / (tokens * sizeof(float)));
  const int n = ceil_div(w->n_out, (long)std::max(most, (size_t)256));
  const int rows = n == 1 ? w->n_out : std::min(w->n_out, (int)align_up((size_t)ceil_div(w->n_out, n)));
  return {rows, align_up((size_t)rows * row_bytes),
          w->type == WEIGHT_F32 ? align_up(tokens * w->stride * sizeof(float)) : 0,
          needs_sums(w) ? (size_t)rows * tokens * sizeof(float) : 0};
}

/* A bound that never falls as the tokens grow, because linear_prepare() asks for some counts only. More
 * tokens may make the slices smaller. So each part is bounded by itself: the weights by a slice for one
 * token, the sums by kSliceBytes and the rounding of a slice up to 256 rows. */
size_t workspace(const DeviceLinear *w, int n_tokens, const DeviceLimits &) {
  const size_t token_bytes = (size_t)n_tokens * sizeof(float);
  const size_t sums = std::min((size_t)w->n_out * token_bytes, kSliceBytes + 255 * token_bytes);
  return slices_of(w, 1, kSliceBytes).weights + slices_of(w, n_tokens, kSliceBytes).x +
         (needs_sums(w) ? sums : 0);
}

__global__ void bf16_to_f16(const __nv_bfloat162 *from, __half2 *to, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < n) to[i] = __float22half2_rn(__bfloat1622float2(from[i]));
}

__global__ void widen_x(const __half *x, int x_stride, float *to, int to_stride, int n_in) {
  for (int i = threadIdx.x; i < n_in; i += blockDim.x)
    to[(size_t)blockIdx.x * to_stride + i] = __half2float(x[(size_t)blockIdx.x * x_stride + i]);
}

/* The operands of rows [first, first + n): weights that cuBLAS does not take are converted, into
 * `scratch`. */
Status slice_operands(const LinearArgs &args, int first, int n, bool plain, void *scratch, const void *x,
                      Gemm *g, Error *err) {
  const DeviceLinear *w = args.w;
  *g = {scratch, args.x, CUDA_R_16F, n, (size_t)w->n_in, (size_t)args.x_stride};
  if (weight_is_quantised(w->type)) return linear_dequantise(w, first, n, plain, scratch, args.stream, err);
  g->w_stride = w->stride;
  const size_t at = (size_t)first * w->stride, halves = (size_t)n * w->stride / 2;
  if (w->type == WEIGHT_BF16)
    return launch(bf16_to_f16, dim3((unsigned)ceil_div((long)halves, 256)), 256, 0, args.stream, false,
                  w->name, err, (const __nv_bfloat162 *)w->dense + at / 2, (__half2 *)scratch, halves);
  g->w = w->type == WEIGHT_F32 ? (const void *)((const float *)w->dense + at) : (const __half *)w->dense + at;
  if (w->type == WEIGHT_F32) g->x = x, g->type = CUDA_R_32F, g->x_stride = w->stride;
  return STATUS_OK;
}

Status run(const LinearArgs &args, bool plain, Error *err) {
  const DeviceLinear *w = args.w;
  const Slices s = slices_of(w, args.n_tokens, kSliceBytes >> args.variant);
  unsigned char *x = args.workspace + s.weights;
  if (w->type == WEIGHT_F32)
    TRY(launch(widen_x, dim3((unsigned)args.n_tokens), 256, 0, args.stream, false, w->name, err, args.x,
               args.x_stride, (float *)x, (int)w->stride, w->n_in));
  for (int first = 0; first < w->n_out; first += s.rows) {
    Gemm g;
    TRY(slice_operands(args, first, std::min(s.rows, w->n_out - first), plain, args.workspace, x, &g, err));
    TRY(multiply_slice(args, g, first, (float *)(x + s.x), err));
  }
  return STATUS_OK;
}

Status launch_cublas(const LinearArgs &args, Error *err) {
  return run(args, false, err);
}

Status launch_cublas_plain(const LinearArgs &args, Error *err) {
  return run(args, true, err);
}

} // namespace

const LinearKernel cublas_kernel = {workspace, launch_cublas, true};
const LinearKernel cublas_plain_kernel = {workspace, launch_cublas_plain, true};
