/* state.c - see state.h, and the simpler functions of a GPU's Quantizer. Called by: quantize.c of
 * src/quantize through the table. */
#include "cuda/quantize/state.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/kernels/ptx/device.h"
#include "cuda/quantize/quantizer.h"

#define STAGING_BYTES ((size_t)32 << 20)

/* --- memory */

Status gpu_alloc(size_t bytes, const char *name, void **there, Error *err) {
  size_t free_bytes = 0, all_bytes;
  if (cudaMalloc(there, bytes ? bytes : 1) == cudaSuccess) return STATUS_OK;
  *there = NULL;
  cudaGetLastError(); /* else a later launch would report it */
  cudaMemGetInfo(&free_bytes, &all_bytes);
  return error_set(err, STATUS_FAILED, "out of memory: %s needs %zu bytes on the GPU, which has %zu free",
                   name, bytes, free_bytes);
}

Status gpu_grow(Scratch *scratch, bool pinned, size_t bytes, const char *name, Error *err) {
  if (scratch->bytes >= bytes) return STATUS_OK;
  if (pinned)
    cudaFreeHost(scratch->at);
  else
    cudaFree(scratch->at);
  *scratch = (Scratch){0};
  if (pinned)
    TRY(cuda_status(cudaMallocHost(&scratch->at, bytes), name, err));
  else
    TRY(gpu_alloc(bytes, name, &scratch->at, err));
  scratch->bytes = bytes;
  return STATUS_OK;
}

Status gpu_scratch(Gpu *gpu, int which, size_t n, size_t size, void *at, Error *err) {
  TRY(gpu_grow(&gpu->scratch[which], false, n * size, "rounding", err));
  *(void **)at = gpu->scratch[which].at;
  return STATUS_OK;
}

static void release(const QuantizerState *state, float *there) {
  cudaFree(there);
}

static Status make(const QuantizerState *state, size_t n, const char *name, float **there, Error *err) {
  TRY(gpu_alloc(n * sizeof **there, name, (void **)there, err));
  return cuda_status(cudaMemsetAsync(*there, 0, n * sizeof **there, state->gpu->stream), name, err);
}

/* --- to the GPU and back */

Status gpu_send(Gpu *gpu, void *there, const void *here, size_t bytes, Error *err) {
  TRY(cuda_status(cudaMemcpyAsync(there, here, bytes, cudaMemcpyHostToDevice, gpu->stream), "a copy", err));
  return cuda_status(cudaStreamSynchronize(gpu->stream), "a copy", err);
}

Status gpu_fetch(Gpu *gpu, void *here, const void *there, size_t bytes, Error *err) {
  TRY(cuda_status(cudaMemcpyAsync(here, there, bytes, cudaMemcpyDeviceToHost, gpu->stream), "a copy", err));
  return cuda_status(cudaStreamSynchronize(gpu->stream), "a result", err);
}

Status gpu_send_rows(Gpu *gpu, FillRow *fill, const void *user, int n_rows, int n, float *to, Error *err) {
  const size_t size = (size_t)n * sizeof *to;
  const int most = size < STAGING_BYTES ? (int)(STAGING_BYTES / size) : 1;
  for (int first = 0, turn = 0; first < n_rows; first += most, turn ^= 1) {
    const int rows = n_rows - first < most ? n_rows - first : most;
    TRY(gpu_grow(&gpu->staging[turn], true, (size_t)rows * size, "a copy", err));
    TRY(cuda_status(cudaEventSynchronize(gpu->sent[turn]), "a copy", err));
    float *at = gpu->staging[turn].at, *there = to + (size_t)first * (size_t)n;
#pragma omp parallel for num_threads(gpu->n_threads)
    for (int r = 0; r < rows; r++) fill(user, first + r, at + (size_t)r * (size_t)n);
    cudaError_t error = cudaMemcpyAsync(there, at, (size_t)rows * size, cudaMemcpyHostToDevice, gpu->stream);
    if (!error) error = cudaEventRecord(gpu->sent[turn], gpu->stream);
    TRY(cuda_status(error, "a copy", err));
  }
  return STATUS_OK;
}

Status gpu_load(const QuantizerState *state, FillRow *fill, const void *user, const char *name,
                Weights *weights, Error *err) {
  const size_t n = (size_t)weights->n_out * (size_t)weights->n_in;
  TRY(gpu_alloc(n * sizeof *weights->w, name, (void **)&weights->w, err));
  return gpu_send_rows(state->gpu, fill, user, weights->n_out, weights->n_in, weights->w, err);
}

/* --- squares */

static Status product(Gpu *gpu, cublasComputeType_t type, Rows a, int n_rows, Rows b, int n, int n_k,
                      float beta, Rows c, Error *err) {
  const float one = 1;
  const Cublas *cublas = &gpu->cublas;
  if (n_rows == 0 || n == 0 || n_k == 0) return STATUS_OK;
  const cublasStatus_t s = cublas->gemm_ex(cublas->handle, CUBLAS_OP_T, CUBLAS_OP_N, n, n_rows, n_k, &one,
                                           b.at, CUDA_R_32F, (int)b.stride, a.at, CUDA_R_32F, (int)a.stride,
                                           &beta, c.at, CUDA_R_32F, (int)c.stride, type, CUBLAS_GEMM_DEFAULT);
  return s ? error_set(err, STATUS_FAILED, "cuBLAS: %s", cublas->status_string(s)) : STATUS_OK;
}

Status gpu_product(Gpu *gpu, Rows a, int n_rows, Rows b, int n, int n_k, float beta, Rows c, Error *err) {
  return product(gpu, CUBLAS_COMPUTE_32F, a, n_rows, b, n, n_k, beta, c, err);
}

Status gpu_product_tf32(Gpu *gpu, Rows a, int n_rows, Rows b, int n, int n_k, float beta, Rows c,
                        Error *err) {
  return product(gpu, CUBLAS_COMPUTE_32F_FAST_TF32, a, n_rows, b, n, n_k, beta, c, err);
}

typedef struct {
  Rows rows;
  size_t bytes;
} RowsOf;

static void fill_rows(const void *user, int row, float *to) {
  const RowsOf *from = user;
  memcpy(to, from->rows.at + (size_t)row * from->rows.stride, from->bytes);
}

/* Sets (*columns)[n][n_rows], scratch buffer `which`, to the transpose of the host's rows [n_rows][n]. Uses
 * SCRATCH_A. */
static Status send_columns(Gpu *gpu, Rows rows, int n_rows, int n, int which, float **columns, Error *err) {
  float *sent;
  const RowsOf from = {rows, (size_t)n * sizeof *rows.at};
  TRY(gpu_scratch(gpu, SCRATCH_A, (size_t)n_rows * (size_t)n, sizeof *sent, &sent, err));
  TRY(gpu_scratch(gpu, which, (size_t)n_rows * (size_t)n, sizeof **columns, columns, err));
  TRY(gpu_send_rows(gpu, fill_rows, &from, n_rows, n, sent, err));
  return rounding_transpose(sent, (size_t)n, n_rows, n, *columns, (size_t)n_rows, gpu->stream, err);
}

/* Computes the sums in parts. A part has an eighth of a's columns, but at least 1,024 (or all, if a has
 * fewer). If a is b, the result is symmetric, and most of its upper triangle is left out. */
static Status add(const QuantizerState *state, int n_a, Rows a, int n_b, Rows b, int n_rows, float *sums,
                  Error *err) {
  Gpu *gpu = state->gpu;
  const size_t stride = (size_t)n_rows, size = (size_t)n_b;
  const int most = n_a < 1024 ? n_a : n_a / 8 < 1024 ? 1024 : n_a / 8;
  const bool same = a.at == b.at;
  float *columns, *others;
  TRY(send_columns(gpu, a, n_rows, n_a, SCRATCH_B, &columns, err));
  others = columns;
  if (!same) TRY(send_columns(gpu, b, n_rows, n_b, SCRATCH_C, &others, err));
  for (int first = 0; first < n_a; first += most) {
    const int rows = n_a - first < most ? n_a - first : most;
    TRY(gpu_product_tf32(gpu, (Rows){columns + (size_t)first * stride, stride}, rows, (Rows){others, stride},
                         same ? first + rows : n_b, n_rows, 1, (Rows){sums + (size_t)first * size, size},
                         err));
  }
  return STATUS_OK;
}

static Status finish(const QuantizerState *state, float factor, int n, float *square, Error *err) {
  TRY(rounding_multiply((size_t)n * (size_t)n, factor, square, state->gpu->stream, err));
  return rounding_mirror(n, square, state->gpu->stream, err);
}

static Status diagonal(const QuantizerState *state, int n, const float *square, float *here, Error *err) {
  float *there;
  TRY(gpu_scratch(state->gpu, SCRATCH_VECTORS, (size_t)n, sizeof *there, &there, err));
  TRY(rounding_diagonal(n, square, there, state->gpu->stream, err));
  return gpu_fetch(state->gpu, here, there, (size_t)n * sizeof *here, err);
}

static Status dampen(const QuantizerState *state, float more, int n, float *square, Error *err) {
  return rounding_dampen(n, more, square, state->gpu->stream, err);
}

static Status rescale(const QuantizerState *state, const float *scales, int n, float *square, float *lower,
                      Error *err) {
  float *there;
  TRY(gpu_scratch(state->gpu, SCRATCH_VECTORS, (size_t)n, sizeof *there, &there, err));
  TRY(gpu_send(state->gpu, there, scales, (size_t)n * sizeof *scales, err));
  return rounding_rescale(n, there, square, lower, state->gpu->stream, err);
}

/* --- its life */

static void close_gpu(QuantizerState *state) {
  if (!state) return;
  Gpu *gpu = state->gpu;
  for (int i = 0; gpu && i < N_SCRATCH; i++) cudaFree(gpu->scratch[i].at);
  for (int i = 0; gpu && i < N_STAGING; i++) {
    cudaFreeHost(gpu->staging[i].at);
    if (gpu->sent[i]) cudaEventDestroy(gpu->sent[i]);
  }
  if (gpu) {
    cudaFree(gpu->rows.at);
    cudaFreeHost(gpu->results.at);
    gpu_forget(state);
    free(gpu->loaded);
    cublas_close(&gpu->cublas);
    if (gpu->stream) cudaStreamDestroy(gpu->stream);
  }
  free(gpu);
  free(state);
}

static Status open_stream(Gpu *gpu, Error *err) {
  TRY(cuda_status(cudaSetDevice(gpu->gpu), "cannot open the device", err));
  TRY(cuda_status(cudaStreamCreate(&gpu->stream), "a stream", err));
  for (int i = 0; i < N_STAGING; i++) TRY(cuda_status(cudaEventCreate(&gpu->sent[i]), "an event", err));
  return cublas_open(&gpu->cublas, gpu->stream, err);
}

static Status open_gpu(const BackendOptions *options, QuantizerState **state, Error *err) {
  *state = mem_alloc(1, sizeof **state, "a quantizer", err);
  Gpu *gpu = *state ? mem_alloc(1, sizeof *gpu, "a quantizer", err) : NULL;
  if (!gpu) return STATUS_FAILED;
  (*state)->gpu = gpu;
  gpu->gpu = options->gpu;
  gpu->n_threads = options->n_threads;
  return open_stream(gpu, err);
}

const Quantizer cuda_quantizer = {
    .name = "cuda",
    .open = open_gpu,
    .close = close_gpu,
    .make = make,
    .release = release,
    .load = gpu_load,
    .add = add,
    .finish = finish,
    .diagonal = diagonal,
    .dampen = dampen,
    .rescale = rescale,
    .factor = gpu_factor,
    .correct = gpu_correct,
    .trial = gpu_trial,
    .round = gpu_round,
    .loss = gpu_loss,
    .multiply = gpu_multiply,
    .forget = gpu_forget,
};
